//! A manifest that is followed from another process, and pins from it.
//!
//! A task takes a snapshot from a server and then each command. A query pins the state of an index, and asks the owner for the rows that
//! it holds in memory. It adds them if they continue the blobs of the index. Else it waits a moment for the feed and pins again, and
//! then answers from blobs only.

mod feeding;

use crate::clock::now_ms;
use crate::feed_client::{ClientError, FeedClient, Get, Reply, escaped};
use crate::messages::{AsOf, PARTITION, Pinned, incomplete};
use crate::names::{Names, PresentNames};
use crate::query_stores::QueryStores;
use crate::token::Token;
use hyper::StatusCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tidemark_streams_core::codec::DecodeError;
use tidemark_streams_core::feed::{FollowError, Follower, Held, Joined, Mark, Reach, SessionId};
use tidemark_streams_core::query::Plan;
use tidemark_streams_core::rollup::RowError;
use tidemark_streams_core::time::HourRange;
use tidemark_tls::Trust;
use tokio::sync::watch;

/// A query waits so long for the feed, so that the owner's rows continue its blobs. Then it answers from blobs only.
const HELD_WAIT: Duration = Duration::from_millis(100);
/// So often a query asks the owner for its rows.
const HELD_ASKED_MAX: u32 = 4;
/// The owner answers within this. It waits up to 2 s for rows that were durable before the query.
const HELD_TIMEOUT: Duration = Duration::from_millis(2_500);
/// An owner that did not answer in time is left alone for so long.
const SILENT: Duration = Duration::from_secs(1);
/// Bytes of the owner's rows of one tenant. With more, a query answers from blobs only.
pub const HELD_BYTES_MAX: usize = 32 << 20;
/// A query with a missing blob waits so long for a later index.
const SUCCESSOR_WAIT: Duration = Duration::from_secs(2);

/// Settings of a follower.
pub struct FollowingSettings {
    /// The address of each server that may have the directory open.
    pub servers: Vec<String>,
    /// Queries are refused once the feed is older.
    pub age_max: Duration,
    pub token: Option<Token>,
    /// Authorities of servers with TLS.
    pub trust: Option<Trust>,
    /// The id of the directory of the blobs.
    pub directory: String,
}

pub struct Following {
    settings: FollowingSettings,
    state: Mutex<State>,
    /// What is followed. It changes behind the state.
    seen: watch::Sender<Option<Seen>>,
    client: FeedClient,
    names: PresentNames,
    stores: Arc<QueryStores>,
}

#[derive(Default)]
struct State {
    known: Option<Known>,
    problem: Option<String>,
    /// The owner is not asked before this.
    silent_until: Option<Instant>,
}

/// What is known of the manifest.
struct Known {
    follower: Follower,
    /// The server that it comes from.
    address: String,
    heard_at: Instant,
    /// How old it was then.
    age_ms: u64,
}

/// An index of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    session: SessionId,
    index: u64,
}

/// A plan at one index.
struct Planned {
    plan: Plan,
    mark: Mark,
    session: SessionId,
    reach: Reach,
    age_ms: u64,
    lateness_s: u64,
    paused_at_ms: Option<u64>,
}

/// The feed is too old to answer from.
#[derive(Debug, thiserror::Error)]
pub enum StaleFeed {
    #[error("no manifest was received yet from {servers}: {why}")]
    None { servers: String, why: String },
    #[error("the manifest was heard of {age_s} s ago: at most {max_s}, see --feed-age-max-s; {why}")]
    Old { age_s: u64, max_s: u64, why: String },
}

/// Why the owner's rows are not known, or the feed does not go on.
#[derive(Debug, thiserror::Error)]
enum FeedError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("server {address} answers {status}: {text}")]
    Status { address: String, status: StatusCode, text: String },
    #[error("server {address}: {error}")]
    Decode { address: String, error: DecodeError },
    #[error("server {address}: {error}")]
    Follow { address: String, error: FollowError },
    #[error("the snapshot cannot be read: its thread has ended")]
    Ended,
    #[error("no server is followed yet, or it did not answer a moment ago")]
    Silent,
}

impl Following {
    pub fn new(settings: FollowingSettings, stores: Arc<QueryStores>) -> Following {
        Following {
            client: FeedClient::new(settings.token.clone(), settings.trust.clone()),
            settings,
            state: Mutex::default(),
            seen: watch::Sender::new(None),
            names: PresentNames::default(),
            stores,
        }
    }

    pub fn names(&self) -> Names {
        self.names.get()
    }

    /// Refuses to answer from a manifest that is unknown or too old.
    ///
    /// # Errors
    /// [`StaleFeed`].
    pub fn check_fresh(&self) -> Result<(), StaleFeed> {
        self.known(&self.state()).map(|_| ())
    }

    /// How long ago the manifest was heard of; `None`: never.
    pub fn age_ms(&self) -> Option<u64> {
        self.state().known.as_ref().map(Known::age_ms)
    }

    /// The index that is followed; 0: none.
    pub fn index(&self) -> u64 {
        self.state().known.as_ref().map_or(0, |known| known.follower.index())
    }

    /// Where requests that this process does not answer belong.
    pub fn server(&self) -> String {
        let followed = self.state().known.as_ref().map(|known| known.address.clone());
        followed.unwrap_or_else(|| self.settings.servers.join(" or "))
    }

    fn known<'s>(&self, state: &'s State) -> Result<&'s Known, StaleFeed> {
        let why = || state.problem.clone().unwrap_or_else(|| "the server is asked".to_owned());
        let none = || StaleFeed::None { servers: self.settings.servers.join(", "), why: why() };
        let known = state.known.as_ref().ok_or_else(none)?;
        let age = Duration::from_millis(known.age_ms());
        match age > self.settings.age_max {
            false => Ok(known),
            true => {
                let max_s = self.settings.age_max.as_secs();
                Err(StaleFeed::Old { age_s: age.as_secs(), max_s, why: why() })
            }
        }
    }

    /// Pins the rows of a tenant.
    ///
    /// # Errors
    /// [`StaleFeed`].
    pub async fn pin(&self, tenant: &str, hours: HourRange) -> Result<Pinned, StaleFeed> {
        self.check_fresh()?;
        let mut end = None;
        'asking: for _ in 0..HELD_ASKED_MAX {
            let Ok(held) = self.held(tenant, hours).await else { break };
            // At once, and again when the feed is as far as the owner was.
            for _ in 0..2 {
                let planned = self.plan(tenant, hours)?;
                if let Ok(Some(pinned)) = planned.whole(tenant, &held) {
                    return Ok(pinned);
                }
                self.stores.counters.pins_again.add(1);
                let wanted = Seen { session: held.session, index: held.mark.index };
                let end = *end.get_or_insert_with(|| tokio::time::Instant::now() + HELD_WAIT);
                if !self.wait_for(wanted, end).await {
                    break 'asking;
                }
            }
        }
        self.stores.counters.answers_of_blobs.add(1);
        Ok(self.plan(tenant, hours)?.of_blobs())
    }

    /// The plan of a query at the present index.
    fn plan(&self, tenant: &str, hours: HourRange) -> Result<Planned, StaleFeed> {
        let state = self.state();
        let known = self.known(&state)?;
        let follower = &known.follower;
        Ok(Planned {
            plan: follower.plan(tenant, hours),
            mark: follower.mark(),
            session: follower.served().session,
            reach: follower.reach(),
            age_ms: known.age_ms(),
            lateness_s: follower.served().lateness_s,
            paused_at_ms: follower.manifest().pauses().of_partition(PARTITION),
        })
    }

    /// Asks the owner for its rows of a tenant.
    async fn held(&self, tenant: &str, hours: HourRange) -> Result<Held, FeedError> {
        let address = {
            let state = self.state();
            let is_silent = state.silent_until.is_some_and(|until| Instant::now() < until);
            let known = state.known.as_ref().filter(|_| !is_silent);
            known.ok_or(FeedError::Silent)?.address.clone()
        };
        let HourRange { first, last } = hours;
        let path = format!("/v1/feed/rows?tenant={}&first={}&last={}", escaped(tenant), first.0, last.0);
        let get = Get { address: &address, path: &path, bytes_max: HELD_BYTES_MAX, timeout: HELD_TIMEOUT };
        let reply = self.client.get(&get).await.inspect_err(|error| {
            if matches!(error, ClientError::Timeout { .. }) {
                self.state().silent_until = Some(Instant::now() + SILENT);
            }
        })?;
        Held::decode(&ok(&address, reply)?).map_err(|error| FeedError::Decode { address, error })
    }

    /// Waits until the feed is at an index of a session, or behind it. `false`: it did not come in time.
    async fn wait_for(&self, wanted: Seen, end: tokio::time::Instant) -> bool {
        let mut seen = self.seen.subscribe();
        let is_there =
            |seen: &Option<Seen>| seen.is_some_and(|at| at.session == wanted.session && at.index >= wanted.index);
        tokio::time::timeout_at(end, seen.wait_for(is_there)).await.is_ok_and(|seen| seen.is_ok())
    }

    /// Waits for a state behind a pinned one.
    pub async fn has_successor_of(&self, pinned: &Pinned) -> bool {
        let mut seen = self.seen.subscribe();
        let AsOf { index, session, .. } = pinned.as_of;
        let is_later = |seen: &Option<Seen>| seen.is_some_and(|at| Some(at.session) != session || at.index > index);
        let later = tokio::time::timeout(SUCCESSOR_WAIT, seen.wait_for(is_later)).await;
        later.is_ok_and(|seen| seen.is_ok())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn age_ms(&self) -> u64 {
        (self.heard_at.elapsed().as_millis() as u64).saturating_add(self.age_ms)
    }
}

impl Planned {
    /// The rows of the owner beside the blobs; `None`: they do not continue the blobs.
    fn whole(&self, tenant: &str, held: &Held) -> Result<Option<Pinned>, RowError> {
        let mut plan = self.plan.clone();
        match held.join(tenant, &mut plan, self.mark, self.session)? {
            Joined::Apart(_) => Ok(None),
            Joined::Whole(unwritten) => Ok(Some(Pinned {
                unwritten,
                pinned_at_ms: held.at_ms,
                complete_to_ms: held.complete_to_ms,
                last_updated_at_ms: held.last_updated_at_ms,
                late_total: held.late,
                as_of: AsOf { has_held_rows: true, ..self.as_of() },
                ..self.of_blobs()
            })),
        }
    }

    /// The blobs only.
    fn of_blobs(&self) -> Pinned {
        Pinned {
            blobs: self.plan.blobs.clone(),
            view: self.plan.view.clone(),
            unwritten: Vec::new(),
            pinned_at_ms: now_ms(),
            complete_to_ms: self.reach.complete_to_ms,
            last_updated_at_ms: self.reach.updated_at_ms,
            incomplete: incomplete(&self.plan),
            paused_at_ms: self.paused_at_ms,
            lateness_s: self.lateness_s,
            late_total: None,
            as_of: self.as_of(),
        }
    }

    fn as_of(&self) -> AsOf {
        let feed_age_ms = Some(self.age_ms);
        AsOf { index: self.plan.index, session: Some(self.session), has_held_rows: false, feed_age_ms }
    }
}

/// The body of an answer with status 200.
fn ok(address: &str, reply: Reply) -> Result<bytes::Bytes, FeedError> {
    match reply.status {
        StatusCode::OK => Ok(reply.body),
        status => {
            let text = String::from_utf8_lossy(&reply.body).chars().take(300).collect();
            Err(FeedError::Status { address: address.to_owned(), status, text })
        }
    }
}
