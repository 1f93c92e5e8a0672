//! `/v1/live`: totals and awards over a WebSocket.
//!
//! A reader that is slow gets the latest total only, however many it missed. Awards are never dropped: a reader that cannot
//! keep up with the backend's events has them read again, in order and each once. One that takes no byte for
//! [`LIVE_SEND_TIMEOUT`] is disconnected, and comes back with `?after=` the last position it saw.

use super::body::{AwardBody, LiveBody, ReadingBody};
use super::routes::{Params, after_of, counters_of, known_params};
use super::server::{Shared, stopped};
use super::totals::Watching;
use super::{AWARDS_MAX, AwardFilter, AwardPosition, Backend, Failure, LIVE_PING_INTERVAL, LIVE_SEND_TIMEOUT};
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade};
use axum::extract::{Query, State};
use axum::http::HeaderMap;
use axum::response::Response;
use futures_util::SinkExt;
use futures_util::stream::{SplitSink, SplitStream, StreamExt};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tidemark_proto::ids::CounterName;
use tidemark_proto::msg::{Award, Reading};
use tokio::sync::{broadcast, mpsc};
use tokio::time::timeout;

/// The WebSocket protocol's name. A browser offers it and, as a second one, `bearer.TOKEN`.
pub const LIVE_PROTOCOL: &str = "tidemark.v1";
/// Clients have nothing to say; a longer message ends the connection.
const MESSAGE_BYTES_MAX: usize = 4 * 1024;
/// A peer that did not even answer pings for so long is gone.
const SILENCE_MAX: Duration = LIVE_PING_INTERVAL.saturating_mul(3);
/// Awards between the backend's events and the writer; more stay with the backend.
const AWARDS_WAITING_MAX: usize = 64;
/// How long a goodbye may take.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(1);

/// Which awards a connection wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    All,
    Watched,
    Nothing,
}

/// Why a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Gone,
    Slow,
    Stopping,
    Failed,
}

struct Connection<B: Backend> {
    shared: Arc<Shared<B>>,
    watching: Watching,
    wanted: Wanted,
    /// The last award taken.
    position: AwardPosition,
    /// Whether awards behind `position` may have been missed.
    catch_up: bool,
    awarded: broadcast::Receiver<Award>,
}

/// `?counter=NAMESPACE/KEY` (repeated), `awards=all|watched|none`, `after=POSITION`.
pub(super) async fn upgrade<B: Backend>(
    State(shared): State<Arc<Shared<B>>>,
    headers: HeaderMap,
    Query(params): Params,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Failure> {
    shared.access.read(&headers)?;
    known_params(&params, &["counter", "awards", "after"])?;
    let upgrade = upgrade.map_err(|rejection| Failure::invalid("websocket", rejection))?;
    let limit = shared.live_max as u64;
    let permit = shared.live.clone().try_acquire_owned();
    let permit = permit.map_err(|_| Failure::Overloaded { what: "live connections".to_owned(), limit })?;
    let connection = Connection::new(shared, &params)?;
    let upgrade = upgrade.protocols([LIVE_PROTOCOL]).max_message_size(MESSAGE_BYTES_MAX);
    Ok(upgrade.on_upgrade(async move |socket| {
        connection.run(socket).await;
        drop(permit);
    }))
}

impl<B: Backend> Connection<B> {
    fn new(shared: Arc<Shared<B>>, params: &[(String, String)]) -> Result<Connection<B>, Failure> {
        let counters = counters_of(params)?;
        let wanted = wanted_of(params, counters.is_empty())?;
        let after = after_of(params)?;
        let (last, awarded) = shared.backend.awarded();
        let watching = shared.totals.watch(counters)?;
        let (position, catch_up) = (after.unwrap_or(last), after.is_some_and(|after| after < last));
        Ok(Connection { shared, watching, wanted, position, catch_up, awarded })
    }

    async fn run(mut self, socket: WebSocket) {
        let (mut sink, stream) = socket.split();
        let (sender, receiver) = mpsc::channel(AWARDS_WAITING_MAX);
        let mut stopping = self.shared.stopping.clone();
        let mut totals = Totals::new(&self.watching);
        let first = first_totals(&self).await;
        let end = tokio::select! {
            end = self.take_awards(sender) => end,
            end = write(&mut sink, first, &mut totals, receiver) => end,
            end = listen(stream) => end,
            () = stopped(&mut stopping) => End::Stopping,
        };
        let _ = timeout(GOODBYE_TIMEOUT, sink.send(goodbye(end))).await;
    }

    /// Hands awards to the writer, at its pace.
    async fn take_awards(&mut self, sender: mpsc::Sender<Award>) -> End {
        loop {
            if self.catch_up {
                match self.take_missed(&sender).await {
                    Ok(()) => self.catch_up = false,
                    Err(end) => return end,
                }
            }
            match self.awarded.recv().await {
                Ok(award) => {
                    if let Err(end) = self.take(award, &sender).await {
                        return end;
                    }
                }
                Err(broadcast::error::RecvError::Lagged(_)) => self.catch_up = true,
                Err(broadcast::error::RecvError::Closed) => return End::Stopping,
            }
        }
    }

    async fn take_missed(&mut self, sender: &mpsc::Sender<Award>) -> Result<(), End> {
        loop {
            let filter = AwardFilter { namespace: None, counter: None, after: self.position, limit: AWARDS_MAX };
            let awards = self.shared.backend.awards(filter).await.map_err(|_| End::Failed)?;
            let last = awards.len() < AWARDS_MAX;
            for award in awards {
                self.take(award, sender).await?;
            }
            if last {
                return Ok(());
            }
        }
    }

    /// Hands on an award unless that was done before or it is not wanted.
    async fn take(&mut self, award: Award, sender: &mpsc::Sender<Award>) -> Result<(), End> {
        let position = AwardPosition::of(&award);
        if position <= self.position {
            return Ok(());
        }
        self.position = position;
        let wanted = match self.wanted {
            Wanted::All => true,
            Wanted::Watched => self.watching.counters.binary_search(&award.counter).is_ok(),
            Wanted::Nothing => false,
        };
        if wanted { sender.send(award).await.map_err(|_| End::Gone) } else { Ok(()) }
    }
}

fn wanted_of(params: &[(String, String)], no_counters: bool) -> Result<Wanted, Failure> {
    let named = params.iter().find(|(name, _)| name == "awards").map(|(_, value)| value.as_str());
    match named {
        Some("all") => Ok(Wanted::All),
        Some("watched") => Ok(Wanted::Watched),
        Some("none") => Ok(Wanted::Nothing),
        Some(other) => Err(Failure::invalid("awards", format!("awards is {other:?}: all, watched or none allowed"))),
        None => Ok(if no_counters { Wanted::All } else { Wanted::Watched }),
    }
}

/// The watched counters' totals: which are new since they were last told.
struct Totals {
    counters: Vec<CounterName>,
    latest: tokio::sync::watch::Receiver<super::totals::Latest>,
    told: BTreeMap<CounterName, Reading>,
}

impl Totals {
    fn new(watching: &Watching) -> Totals {
        let (counters, latest) = (watching.counters.clone(), watching.latest.clone());
        Totals { counters, latest, told: BTreeMap::new() }
    }

    fn news(&mut self) -> Vec<LiveBody> {
        let latest = self.latest.borrow_and_update().clone();
        let read = self.counters.iter().filter_map(|counter| Some((counter, latest.get(counter)?)));
        tell(&mut self.told, read)
    }
}

fn tell<'r>(
    told: &mut BTreeMap<CounterName, Reading>,
    read: impl Iterator<Item = (&'r CounterName, &'r Reading)>,
) -> Vec<LiveBody> {
    // A total depends on no ledger index that moved without it.
    let shown = |reading: &Reading| (reading.value, reading.pending);
    let new = read.filter(|(counter, reading)| told.get(counter).is_none_or(|old| shown(old) != shown(reading)));
    let new: Vec<_> = new.map(|(counter, reading)| (counter.clone(), *reading)).collect();
    let bodies = new.iter().map(|(counter, reading)| LiveBody::Total(ReadingBody::new(counter, reading))).collect();
    told.extend(new);
    bodies
}

/// Totals are told at once when a connection opens.
async fn first_totals<B: Backend>(connection: &Connection<B>) -> Vec<(CounterName, Reading)> {
    let counters = &connection.watching.counters;
    match connection.shared.backend.read(counters).await {
        Ok(readings) => counters.iter().cloned().zip(readings).collect(),
        Err(_) => Vec::new(),
    }
}

async fn write(
    sink: &mut SplitSink<WebSocket, Message>,
    first: Vec<(CounterName, Reading)>,
    totals: &mut Totals,
    mut awards: mpsc::Receiver<Award>,
) -> End {
    let mut ping = tokio::time::interval(LIVE_PING_INTERVAL);
    let first = tell(&mut totals.told, first.iter().map(|(counter, reading)| (counter, reading)));
    let mut news: Vec<Message> = first.iter().map(message).collect();
    loop {
        for message in news {
            if let Err(end) = send(sink, message).await {
                return end;
            }
        }
        news = tokio::select! {
            biased;
            award = awards.recv() => match award {
                Some(award) => vec![message(&LiveBody::Award(AwardBody::from(&award)))],
                None => return End::Stopping,
            },
            changed = totals.latest.changed() => match changed {
                Ok(()) => totals.news().iter().map(message).collect(),
                Err(_) => return End::Stopping,
            },
            _ = ping.tick() => vec![Message::Ping(Default::default())],
        };
    }
}

async fn send(sink: &mut SplitSink<WebSocket, Message>, message: Message) -> Result<(), End> {
    match timeout(LIVE_SEND_TIMEOUT, sink.send(message)).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err(End::Gone),
        Err(_) => Err(End::Slow),
    }
}

/// Until the peer leaves or falls silent.
async fn listen(mut stream: SplitStream<WebSocket>) -> End {
    while let Ok(Some(Ok(message))) = timeout(SILENCE_MAX, stream.next()).await {
        if matches!(message, Message::Close(_)) {
            break;
        }
    }
    End::Gone
}

fn message(body: &LiveBody) -> Message {
    Message::text(serde_json::to_string(body).expect("our messages are JSON"))
}

fn goodbye(end: End) -> Message {
    let (code, reason) = match end {
        End::Gone => (1000, ""),
        End::Slow => (1013, "too slow: nothing was taken for too long; come back with ?after="),
        End::Stopping => (1001, "stopping"),
        End::Failed => (1011, "awards cannot be read; come back with ?after="),
    };
    Message::Close(Some(CloseFrame { code, reason: reason.into() }))
}
