//! `/v1/live`: a subscription over a WebSocket; `/v1/events`: the same as server-sent events, where a WebSocket cannot pass.
//!
//! A subscriber that takes no byte for [`SEND_TIMEOUT`](super::SEND_TIMEOUT) is disconnected, as on every connection, and comes
//! back with `?after=` the last position it saw.

use super::body::LiveBody;
use super::feed::{End, Feed, Frame};
use super::operation::Ask;
use super::server::Shared;
use super::typed::{Answer, AnswerForm, shape_of};
use super::{AggregatorProcess, Failure, GivenPosition, LIVE_PING_INTERVAL};
use axum::extract::FromRequestParts;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade};
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, SplitSink, SplitStream, StreamExt};
use futures_util::{SinkExt, TryStreamExt};
use std::convert::Infallible;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

/// The WebSocket protocol's name. A browser offers it and, as a second one, `session.TOKEN` or `bearer.TOKEN`.
pub const LIVE_PROTOCOL: &str = "tidemark.v1";
/// Clients have nothing to say; a longer message ends the connection.
const MESSAGE_BYTES_MAX: usize = 4 * 1024;
/// Clients say little, and there are many: a pong fits.
const READ_BUFFER_BYTES: usize = 256;
/// Frames are written as they come; this much waits at most, which one message may be.
const WRITE_BUFFER_BYTES_MAX: usize = 64 * 1024;
/// A peer that did not even answer pings for so long is gone.
const SILENCE_MAX: Duration = LIVE_PING_INTERVAL.saturating_mul(3);
/// A browser reconnects after this time when its events have ended.
const EVENTS_RETRY: Duration = Duration::from_secs(2);
/// How long a goodbye may take.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(1);

/// A connection that becomes a WebSocket, of which a description of HTTP says nothing.
pub(super) struct Subscribed(Response);

/// Server-sent events.
pub(super) struct Events(Response);

/// Subscribes over a WebSocket.
pub(super) async fn upgrade<B: AggregatorProcess>(ask: Ask<B>) -> Result<Subscribed, Failure> {
    let Ask { shared, mut parts, params, .. } = ask;
    let session = shared.access.live(&parts.headers)?;
    let upgrade = WebSocketUpgrade::from_request_parts(&mut parts, &()).await.map_err(no_upgrade)?;
    let permit = permit(&shared)?;
    let feed = Feed::open(shared, session, &params, None)?;
    let upgrade = upgrade.protocols([LIVE_PROTOCOL]).max_message_size(MESSAGE_BYTES_MAX);
    let upgrade = upgrade.read_buffer_size(READ_BUFFER_BYTES).write_buffer_size(0);
    let answer = upgrade.max_write_buffer_size(WRITE_BUFFER_BYTES_MAX).on_upgrade(async move |socket| {
        run(feed, socket).await;
        drop(permit);
    });
    Ok(Subscribed(answer))
}

impl IntoResponse for Subscribed {
    fn into_response(self) -> Response {
        self.0
    }
}

impl Answer for Subscribed {
    fn forms() -> Vec<AnswerForm> {
        Vec::new()
    }
}

impl IntoResponse for Events {
    fn into_response(self) -> Response {
        self.0
    }
}

impl Answer for Events {
    fn forms() -> Vec<AnswerForm> {
        let about = "Events without an end. The data of each is a `LiveBody`; that of an award has its position as id.";
        vec![AnswerForm { shape: shape_of::<LiveBody>, ..AnswerForm::text(about, "text/event-stream") }]
    }
}

/// Another version is told the one that there is (RFC 6455, section 4.4).
#[allow(clippy::wildcard_enum_match_arm, reason = "WebSocketUpgradeRejection is of another crate and grows")]
fn no_upgrade(rejection: WebSocketUpgradeRejection) -> Failure {
    match rejection {
        WebSocketUpgradeRejection::InvalidWebSocketVersionHeader(_) => {
            let refused = Failure::http(StatusCode::UPGRADE_REQUIRED, "websocket", "WebSockets are of version 13 here");
            refused.with_header(header::SEC_WEBSOCKET_VERSION, "13").with_header(header::UPGRADE, "websocket")
        }
        other => Failure::invalid("websocket", other),
    }
}

/// Subscribes to server-sent events. An event about the awards of all sessions has its position as id, so that a browser repeats the
/// position when it comes back. Each holds a connection, unlike a WebSocket: they get a part of those only.
pub(super) async fn events<B: AggregatorProcess>(ask: Ask<B>) -> Result<Events, Failure> {
    let Ask { shared, parts, params, .. } = ask;
    let session = shared.access.live(&parts.headers)?;
    let overloaded =
        || Failure::Overloaded { what: "subscriptions to events".to_owned(), limit: shared.events_max as u64 };
    let permits = (permit(&shared)?, shared.events.clone().try_acquire_owned().map_err(|_| overloaded())?);
    let feed = Feed::open(shared, session, &params, last_event(&parts.headers)?)?;
    let events = stream::try_unfold((feed, permits), async |(mut feed, permits)| {
        let frames = feed.next().await?;
        let events = stream::iter(frames.into_iter().map(|frame| Ok::<_, End>(event(&frame))));
        Ok(Some((events, (feed, permits))))
    });
    // A subscription that has ended ends the answer: there is no peer left to get the reason.
    let events = events.try_flatten().take_while(|event| std::future::ready(event.is_ok()));
    let events = events.map(|event| Ok::<_, Infallible>(event.unwrap_or_default()));
    let retry = stream::once(async { Ok(Event::default().retry(EVENTS_RETRY)) });
    let events = retry.chain(events);
    // A proxy that gathers an answer before it sends it would gather this one for ever.
    let unbuffered = (HeaderName::from_static("x-accel-buffering"), "no");
    let headers = [(header::CACHE_CONTROL, "no-store"), (header::X_CONTENT_TYPE_OPTIONS, "nosniff"), unbuffered];
    Ok(Events((headers, Sse::new(events)).into_response()))
}

fn permit<B>(shared: &Shared<B>) -> Result<OwnedSemaphorePermit, Failure> {
    let limit = shared.live_max as u64;
    let permit = shared.live.clone().try_acquire_owned();
    permit.map_err(|_| Failure::Overloaded { what: "live connections".to_owned(), limit })
}

fn event(frame: &Frame) -> Event {
    let event = Event::default().data(frame.text.as_str());
    match &frame.position {
        Some(position) => event.id(position.as_str()),
        None => event,
    }
}

fn last_event(headers: &HeaderMap) -> Result<Option<GivenPosition>, Failure> {
    let Some(value) = headers.get("last-event-id") else { return Ok(None) };
    let text = value.to_str().map_err(|error| Failure::invalid("after", error))?;
    text.parse::<GivenPosition>().map(Some).map_err(|error| Failure::invalid("after", error))
}

async fn run<B: AggregatorProcess>(mut feed: Feed<B>, socket: WebSocket) {
    let (mut sink, stream) = socket.split();
    let end = tokio::select! {
        end = write(&mut sink, &mut feed) => end,
        end = listen(stream) => end,
    };
    let _ = timeout(GOODBYE_TIMEOUT, sink.send(goodbye(end))).await;
}

async fn write<B: AggregatorProcess>(sink: &mut SplitSink<WebSocket, Message>, feed: &mut Feed<B>) -> End {
    let mut ping = tokio::time::interval(LIVE_PING_INTERVAL);
    loop {
        let messages: Vec<Message> = tokio::select! {
            biased;
            frames = feed.next() => match frames {
                Ok(frames) => frames.into_iter().map(|frame| Message::Text(frame.text)).collect(),
                Err(end) => return end,
            },
            _ = ping.tick() => vec![Message::Ping(Default::default())],
        };
        for message in messages {
            if sink.send(message).await.is_err() {
                return End::Gone;
            }
        }
    }
}

/// Until the peer leaves or falls silent.
async fn listen(mut stream: SplitStream<WebSocket>) -> End {
    while let Ok(Some(Ok(message))) = timeout(SILENCE_MAX, stream.next()).await {
        if let Message::Close(_) = message {
            return End::Gone;
        }
    }
    End::Gone
}

fn goodbye(end: End) -> Message {
    let (code, reason) = match end {
        End::Gone => (1000, ""),
        End::Expired => (1008, "the session has ended"),
        End::Stopping => (1001, "stopping"),
        End::Failed => (1011, "awards cannot be read; come back with ?after="),
    };
    Message::Close(Some(CloseFrame { code, reason: reason.into() }))
}
