//! Increments under an id of the caller's choice: counted once, also when the process that asked has died and another asks again.
//!
//! Each is an exchange of its own with the group that owns the id, over one of a few links that are kept for that. A link has one stream
//! with these exchanges as its batches. An exchange without an answer ends with its link, and is asked again over another link.

use crate::link::{Dialer, Link};
use crate::link_event::{EVENTS_MAX, Event, Events};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tidemark_proto::client::{LinkId, SiteId};
use tidemark_proto::ids::{ClientId, CounterName, OwnerId, SessionId};
use tidemark_proto::msg::{BatchError, FromClient, IdAnswer, ItemId, Place, ToClient};
use tidemark_proto::named::{self, NAMED_ITEMS_MAX, NamedAnswer, NamedIncrement};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, sleep_until, timeout_at};

/// Named increments of one client at a time; others wait.
pub const NAMED_AT_ONCE_MAX: usize = 128;
/// Fences of one client at a time; others wait. Apart from the increments, as other data centres wait for them.
pub const FENCES_AT_ONCE_MAX: usize = 32;
/// A node that has not answered after this is asked again, over another link: another process with this name may have taken its
/// answer.
const RESEND: Duration = Duration::from_secs(1);
/// Pause after a link that broke, or a refusal of what may have been counted before.
const PAUSE: Duration = Duration::from_millis(100);
const SITE: SiteId = SiteId(0);

/// How long to wait for a named increment.
#[derive(Clone, Copy, Debug)]
pub struct NamedPatience {
    /// Until it is durable.
    pub durable: Duration,
    /// From then on, until all places are known.
    pub places: Duration,
}

/// A named increment that was counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamedOutcome {
    /// In the order of the counters.
    Placed(Vec<Place>),
    /// Not all places were known in time. Ask again for them.
    Pending,
}

/// A named increment, or its fence, without an answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NamedError {
    /// Nothing was counted.
    #[error("{items} counters under one id: 1 to {NAMED_ITEMS_MAX} allowed")]
    Items { items: usize },
    /// Nothing was counted under this id, and nothing ever will be.
    #[error("the id is fenced: nothing was counted under it, and nothing will be")]
    Fenced,
    /// Nothing was counted now.
    #[error("the id was used before for other increments; nothing was counted")]
    Reused,
    /// Nothing was counted.
    #[error("the group remembers {max} ids, as many as it may: nothing was counted; send it again later")]
    Full { max: u32 },
    /// This call has counted nothing. Where an earlier call with the name got no answer, ask again: that one may have.
    #[error("not counted: {0}")]
    Refused(BatchError),
    /// Ask again: it will be counted once, or the answer be that of the first time.
    #[error("no answer of the node in time: whether it was counted is to be asked again")]
    Unknown,
    /// Nothing was changed.
    #[error("the node is of an earlier version, which knows no ids: nothing was counted")]
    NoIds,
}

/// The links of a client for named increments.
#[derive(Debug)]
pub(crate) struct NamedLinks {
    dialer: Dialer,
    owner: OwnerId,
    idle: Mutex<Vec<NamedLink>>,
    counts: Semaphore,
    fences: Semaphore,
}

#[derive(Debug)]
struct NamedLink {
    link: Link,
    events: mpsc::Receiver<(LinkId, Event)>,
    /// Of its stream.
    client: ClientId,
    seq: u64,
    opening: Opening,
}

/// How far a link is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opening {
    Dialled,
    /// The hello is sent.
    Greeted,
    /// The node has welcomed it, and takes ids.
    Open,
}

/// The result of one attempt.
enum Attempt<T> {
    Answered(T),
    /// Nothing came in time.
    Silent,
    /// The link broke.
    Broken,
    /// The node knows no ids.
    NoIds,
}

impl NamedLinks {
    pub fn new(dialer: Dialer) -> NamedLinks {
        let owner = match &dialer {
            Dialer::Quic { endpoint, .. } => OwnerId(endpoint.identity().digest()),
            Dialer::Fake(_) => OwnerId::default(),
        };
        NamedLinks {
            dialer,
            owner,
            idle: Mutex::default(),
            counts: Semaphore::new(NAMED_AT_ONCE_MAX),
            fences: Semaphore::new(FENCES_AT_ONCE_MAX),
        }
    }

    pub async fn count(
        &self,
        id: ItemId,
        items: &[(CounterName, u64)],
        session: Option<SessionId>,
        patience: NamedPatience,
    ) -> Result<NamedOutcome, NamedError> {
        if items.is_empty() || items.len() > NAMED_ITEMS_MAX {
            return Err(NamedError::Items { items: items.len() });
        }
        let mut until = Instant::now() + patience.durable;
        let mut increment = NamedIncrement::new(id, items.to_vec(), session);
        // Whether an earlier copy of this call may have been counted.
        let mut in_doubt = false;
        while let Some(mut link) = self.link(&self.counts, until).await {
            let (answer, sent) = attempt(&mut link, &mut increment, &mut until, patience.places).await;
            match answer {
                Attempt::Answered(answer) => {
                    if increment.is_applied() {
                        self.keep(link);
                    }
                    match answer {
                        NamedAnswer::Placed(places) => return Ok(NamedOutcome::Placed(places)),
                        NamedAnswer::Id(answer) => return Err(answer.into()),
                        NamedAnswer::Refused(error) if !in_doubt => return Err(NamedError::Refused(error)),
                        NamedAnswer::Nothing | NamedAnswer::Durable | NamedAnswer::Refused(_) => {}
                    }
                }
                Attempt::NoIds => return Err(NamedError::NoIds),
                failed @ (Attempt::Silent | Attempt::Broken) => self.let_go(link, &failed),
            }
            in_doubt |= sent;
            sleep_until(until.min(Instant::now() + PAUSE)).await;
        }
        if increment.is_durable() { Ok(NamedOutcome::Pending) } else { Err(NamedError::Unknown) }
    }

    /// Whether anything was counted under the id; nothing will be from now on.
    pub async fn fence(&self, id: ItemId, patience: Duration) -> Result<bool, NamedError> {
        let until = Instant::now() + patience;
        while let Some(mut link) = self.link(&self.fences, until).await {
            let deadline = until.min(Instant::now() + RESEND);
            let seq = link.link.seq;
            let take = |message| named::fenced(seq, &message);
            match link.exchange(Some(named::fence(id, seq)), deadline, take).await.0 {
                Attempt::Answered(answer) => {
                    link.link.seq += 1;
                    self.keep(link);
                    return answer.map_err(NamedError::from);
                }
                Attempt::NoIds => return Err(NamedError::NoIds),
                failed @ (Attempt::Silent | Attempt::Broken) => self.let_go(link, &failed),
            }
            sleep_until(until.min(Instant::now() + PAUSE)).await;
        }
        Err(NamedError::Unknown)
    }

    /// Drops a link over which nothing came. Where one broke, the others did as well.
    fn let_go<T>(&self, used: Used<'_>, failed: &Attempt<T>) {
        drop(used);
        if matches!(failed, Attempt::Broken) {
            self.idle().clear();
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<NamedLink>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A link that is kept, or a new one; `None` when the time is over.
    async fn link<'a>(&'a self, permits: &'a Semaphore, until: Instant) -> Option<Used<'a>> {
        let permit = timeout_at(until, permits.acquire()).await.ok()?.ok()?;
        if Instant::now() >= until {
            return None;
        }
        let kept = self.idle().pop();
        let link = kept.unwrap_or_else(|| {
            let (sender, events): (Events, _) = mpsc::channel(EVENTS_MAX);
            let link = Link::open(&self.dialer, LinkId(0), SITE, sender);
            let client = ClientId::new(self.owner, rand::random());
            NamedLink { link, events, client, seq: 1, opening: Opening::Dialled }
        });
        Some(Used { link, _permit: permit })
    }

    fn keep(&self, used: Used<'_>) {
        self.idle().push(used.link);
    }
}

/// Says it once over a link, and whether anything was sent. Once it is durable the wait is for its places.
async fn attempt(
    link: &mut Used<'_>,
    increment: &mut NamedIncrement,
    until: &mut Instant,
    places: Duration,
) -> (Attempt<NamedAnswer>, bool) {
    let was_durable = increment.is_durable();
    let seq = link.link.seq;
    let message = Some(increment.start(seq));
    let take = |message| match increment.on_message(message) {
        NamedAnswer::Nothing => None,
        NamedAnswer::Durable if was_durable => None,
        answer @ (NamedAnswer::Durable | NamedAnswer::Placed(_) | NamedAnswer::Id(_) | NamedAnswer::Refused(_)) => {
            Some(answer)
        }
    };
    let deadline = (*until).min(Instant::now() + RESEND);
    let (answer, sent) = link.exchange(message, deadline, take).await;
    link.link.seq = seq + u64::from(increment.is_applied());
    if !matches!(answer, Attempt::Answered(NamedAnswer::Durable)) {
        return (answer, sent);
    }
    *until = Instant::now() + places;
    let take = |message| match increment.on_message(message) {
        NamedAnswer::Placed(places) => Some(NamedAnswer::Placed(places)),
        NamedAnswer::Nothing | NamedAnswer::Durable | NamedAnswer::Id(_) | NamedAnswer::Refused(_) => None,
    };
    let deadline = (*until).min(Instant::now() + RESEND);
    (link.exchange(None, deadline, take).await.0, sent)
}

/// A link in use; as many are kept as may be in use at a time.
struct Used<'a> {
    link: NamedLink,
    _permit: tokio::sync::SemaphorePermit<'a>,
}

impl Used<'_> {
    /// Sends a message, once the node has welcomed the link, and waits for the one that `take` takes. Also whether it was sent.
    async fn exchange<T>(
        &mut self,
        message: Option<FromClient>,
        until: Instant,
        mut take: impl FnMut(ToClient) -> Option<T>,
    ) -> (Attempt<T>, bool) {
        let NamedLink { link, events, client, opening, .. } = &mut self.link;
        let mut waiting = message;
        let mut sent = false;
        loop {
            if *opening == Opening::Open
                && let Some(message) = waiting.take()
            {
                sent = true;
                if !link.send(message) {
                    return (Attempt::Broken, sent);
                }
            }
            match timeout_at(until, events.recv()).await {
                Ok(Some((_, Event::Connected))) => {
                    *opening = Opening::Greeted;
                    if !link.send(FromClient::Open { client: *client, since: None, asks_known: false }) {
                        return (Attempt::Broken, sent);
                    }
                }
                Ok(Some((_, Event::Message(ToClient::Welcome { ids_kept, .. })))) => match ids_kept > 0 {
                    true => *opening = Opening::Open,
                    false => return (Attempt::NoIds, sent),
                },
                Ok(Some((_, Event::Message(message)))) => {
                    if let Some(taken) = take(message) {
                        return (Attempt::Answered(taken), sent);
                    }
                }
                Ok(Some((_, Event::Gone(_))) | None) => return (Attempt::Broken, sent),
                Err(_) => return (Attempt::Silent, sent),
            }
        }
    }
}

impl From<IdAnswer> for NamedError {
    fn from(answer: IdAnswer) -> NamedError {
        match answer {
            IdAnswer::Other => NamedError::Reused,
            IdAnswer::Full { max } => NamedError::Full { max },
            IdAnswer::Fenced => NamedError::Fenced,
            IdAnswer::Open | IdAnswer::Counted | IdAnswer::Known => NamedError::Unknown,
        }
    }
}
