//! Counts queries that were sent on from one data centre, the origin, to another, the home: each once, in one of the two.
//!
//! The home has the origin's group fence the hop's name, and counts it unless that has counted it. The origin counts it itself when the
//! browser comes back because it cannot reach the home, unless the home has fenced it. Both remember in their groups' logs
//! ([`tidemark_proto::named`]); the state here saves a second request, and may be lost.

use crate::api::{Added, Failure};
use crate::hop::{Hop, HopError, HopRefusal};
use crate::idempotency::Idempotency;
use crate::patience::{DURABLE_PATIENCE, GONE_AFTER, LEADERLESS_MAX, PLACE_PATIENCE};
use crate::session::SessionKeys;
use crate::sync::lock;
use crate::tally::Tally;
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use std::collections::{BTreeSet, HashMap};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tidemark_aggregator::{Aggregator, CallError, Cluster, PeerService};
use tidemark_client::{ItemId, NamedError, NamedOutcome, NamedPatience};
use tidemark_proto::ids::{CounterName, DcId, SessionId};
use tidemark_proto::msg::{BatchError, PeerAnswer, PeerQuestion};
use tidemark_proto::wire;
use tokio::time::{Instant, sleep};

/// How long the home waits for the origin; then the caller is to ask again, or to ask the origin.
const ORIGIN_PATIENCE: Duration = Duration::from_secs(5);
/// How long the origin waits for its own group.
const FENCE_PATIENCE: Duration = Duration::from_secs(4);
/// Pause before the origin is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// Hops counted here at a time, by name; another request for one of them shares its answer. More: `503`.
pub const HOPS_MAX: usize = 1_024;
/// Hops of which it is remembered that their origin has fenced them; past it all are forgotten, and asked for again.
const FENCED_KNOWN_MAX: usize = 65_536;

/// The query that is to be redirected.
#[derive(Clone, Debug)]
pub struct HopAsked {
    /// Name of the data centre that shall count it; this one is a home like any other.
    pub home: String,
    pub counters: Vec<CounterName>,
    pub session: Option<SessionId>,
    /// The query's own id: asked again, the same query gets the same name.
    pub id: String,
    pub life_s: u64,
}

/// A token, and what is known of the way.
#[derive(Clone, Debug)]
pub struct HopIssued {
    pub token: String,
    /// Seconds since 1970.
    pub expires: u64,
    /// Whether the home can be reached from here at present. If not, count it here.
    pub reachable: bool,
}

/// The result of a hop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HopCounted {
    pub hop: Hop,
    /// The data centre that has counted it.
    pub dc: String,
    /// In the order of the hop's counters; the other data centre must be asked for those that it has counted.
    pub places: Option<Vec<Added>>,
}

/// Counts hops at one data centre. Clones count at the same one.
#[derive(Clone)]
pub struct Hops {
    aggregator: Aggregator,
    own: String,
    ids: Idempotency,
    keys: SessionKeys,
    tally: Option<Arc<Tally>>,
    state: Arc<Mutex<State>>,
}

type Counting = Shared<BoxFuture<'static, Result<HopCounted, Failure>>>;

#[derive(Default)]
struct State {
    under_way: HashMap<ItemId, Counting>,
    fenced: BTreeSet<[u8; 16]>,
}

/// A hop's place among those under way.
struct UnderWay {
    state: Arc<Mutex<State>>,
    id: ItemId,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        lock(&self.state).under_way.remove(&self.id);
    }
}

impl State {
    fn note_fenced(&mut self, digest: [u8; 16]) {
        if self.fenced.len() >= FENCED_KNOWN_MAX {
            self.fenced.clear();
        }
        self.fenced.insert(digest);
    }
}

impl Hops {
    /// Counts hops of this data centre, and answers the homes of hops that began here.
    pub fn start(aggregator: &Aggregator, ids: &Idempotency, keys: SessionKeys, tally: Option<Arc<Tally>>) -> Hops {
        let cluster = aggregator.cluster().clone();
        let own = cluster.name_of(aggregator.dc()).unwrap_or_default().to_owned();
        let origin = Origin { cluster, own: own.clone(), ids: ids.clone(), keys: keys.clone() };
        aggregator.serve_calls(Arc::new(origin));
        Hops { aggregator: aggregator.clone(), own, ids: ids.clone(), keys, tally, state: Arc::default() }
    }

    /// A token for a query that came here first.
    ///
    /// # Errors
    /// An unknown data centre, or what is wrong with the hop.
    pub fn issue(&self, asked: HopAsked) -> Result<HopIssued, Failure> {
        let HopAsked { home, counters, session, id, life_s } = asked;
        let dc = self.dc(&home)?;
        let hop = Hop { origin: self.own.clone(), home, id, session, counters };
        let (token, expires) = hop.issue(&self.keys, life_s)?;
        Ok(HopIssued { token, expires, reachable: self.aggregator.reaches(dc) })
    }

    /// Counts what a token says, at its home or at its origin. It goes on when its caller hangs up.
    ///
    /// # Errors
    /// The token is not believed, or is for other data centres; the other data centre has it, or cannot be reached. The same token
    /// may be tried again, here and there.
    pub async fn count(&self, token: &str) -> Result<HopCounted, Failure> {
        let hop = Hop::verify(&self.keys, token)?;
        self.counting(hop, token)?.await
    }

    /// The counting of a hop: one at a time, however many ask.
    fn counting(&self, hop: Hop, token: &str) -> Result<Counting, Failure> {
        // Of the same id with other content each is asked for itself.
        let id = hop.id();
        let mut state = lock(&self.state);
        if let Some(counting) = state.under_way.get(&id) {
            return Ok(counting.clone());
        }
        if state.under_way.len() >= HOPS_MAX {
            return Err(Failure::Overloaded { what: "hops under way".to_owned(), limit: HOPS_MAX as u64 });
        }
        let hops = self.clone();
        let token = token.to_owned();
        let under_way = UnderWay { state: self.state.clone(), id };
        let task = tokio::spawn(async move {
            let _under_way = under_way;
            hops.count_believed(hop, token).await
        });
        let ended = async move { task.await.unwrap_or_else(|error| Err(Failure::InDoubt(error.to_string()))) };
        let counting = ended.boxed().shared();
        state.under_way.insert(id, counting.clone());
        Ok(counting)
    }

    async fn count_believed(&self, hop: Hop, token: String) -> Result<HopCounted, Failure> {
        if hop.home != self.own && hop.origin != self.own {
            let message = format!("this is {}: the hop is from {} to {}", self.own, hop.origin, hop.home);
            return Err(Failure::Invalid { code: "hop_elsewhere", message });
        }
        self.check_namespaces(&hop).await?;
        if hop.home == self.own && hop.origin != self.own && self.origin_has_counted(&hop, token).await? {
            return Ok(HopCounted { dc: hop.origin.clone(), hop, places: None });
        }
        let items: Vec<(CounterName, u64)> = hop.counters.iter().map(|counter| (counter.clone(), 1)).collect();
        let patience = NamedPatience { durable: DURABLE_PATIENCE, places: PLACE_PATIENCE };
        let owner = self.ids.reach(&hop.id().digest, Some(&self.own))?;
        let counted = tokio::select! {
            counted = owner.client.count_named(hop.id(), &items, hop.session, patience) => counted,
            // The id may be asked for again: it counts once.
            _ = owner.client.until_gone(GONE_AFTER, LEADERLESS_MAX) => Err(NamedError::Unknown),
        };
        let places = match counted {
            Ok(NamedOutcome::Placed(places)) => places.into_iter().map(Added::Placed).collect(),
            Ok(NamedOutcome::Pending) => vec![Added::Pending; hop.counters.len()],
            Err(NamedError::Fenced) => {
                let message = format!("{} has taken the hop: ask there", hop.home);
                return Err(Failure::Conflict { code: "hop_taken", message });
            }
            Err(error) => return Err(named_failure(error)),
        };
        if let Some(tally) = &self.tally {
            tally.note_named(hop.id().digest, &hop.counters);
        }
        Ok(HopCounted { dc: self.own.clone(), hop, places: Some(places) })
    }

    /// Counters that can never be counted here are not taken from the origin. A process that has just started may not have applied the
    /// entry of the ledger that declares a namespace, so it catches up before it calls one unknown.
    async fn check_namespaces(&self, hop: &Hop) -> Result<(), Failure> {
        if self.unknown_namespace(hop).is_none() {
            return Ok(());
        }
        self.aggregator.catch_up_with_ledger().await?;
        let unknown = self.unknown_namespace(hop);
        unknown.map_or(Ok(()), |namespace| Err(BatchError::UnknownNamespace(namespace).into()))
    }

    fn unknown_namespace(&self, hop: &Hop) -> Option<String> {
        self.aggregator.with_ledger(|ledger| {
            let mut namespaces = hop.counters.iter().map(CounterName::namespace);
            namespaces.find(|namespace| !ledger.has_namespace(namespace)).map(str::to_owned)
        })
    }

    /// Has the origin's group fence the hop: from then on only this data centre counts it, unless that one has.
    async fn origin_has_counted(&self, hop: &Hop, token: String) -> Result<bool, Failure> {
        if lock(&self.state).fenced.contains(&hop.id().digest) {
            return Ok(false);
        }
        let origin = self.dc(&hop.origin)?;
        let question = Bytes::from(wire::encode(&PeerQuestion::FenceHop { token }));
        let until = Instant::now() + ORIGIN_PATIENCE;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let reason = match self.aggregator.call(origin, question.clone(), left).await {
                Ok(answer) => match wire::decode(&answer) {
                    Ok(PeerAnswer::Fenced { counted: true }) => return Ok(true),
                    Ok(PeerAnswer::Fenced { counted: false }) => {
                        lock(&self.state).note_fenced(hop.id().digest);
                        return Ok(false);
                    }
                    Ok(PeerAnswer::Unknown { reason }) => return Err(self.silent(hop, reason)),
                    Err(error) => return Err(self.silent(hop, error.to_string())),
                },
                Err(error @ CallError::TooLong { .. }) => return Err(Failure::invalid("hop", error)),
                Err(error) => error.to_string(),
            };
            if Instant::now() + ASK_AGAIN >= until {
                return Err(self.silent(hop, reason));
            }
            sleep(ASK_AGAIN).await;
        }
    }

    /// It may have been counted at an earlier visit, and the origin may have given it away.
    fn silent(&self, hop: &Hop, reason: String) -> Failure {
        Failure::InDoubt(format!("{} does not say whether it has counted: {reason}", hop.origin))
    }

    fn dc(&self, name: &str) -> Result<DcId, Failure> {
        self.aggregator.cluster().dc(name).map_err(|error| Failure::invalid("home", error))
    }
}

/// Why an origin does not say whether a hop was counted.
#[derive(Debug, thiserror::Error)]
enum FenceError {
    #[error(transparent)]
    Hop(#[from] HopRefusal),
    #[error("the hop is from {origin} to {home}")]
    OtherWay { origin: String, home: String },
    #[error(transparent)]
    Owner(#[from] Failure),
    #[error(transparent)]
    Group(#[from] NamedError),
}

/// The origin's side: answers homes.
struct Origin {
    cluster: Cluster,
    own: String,
    ids: Idempotency,
    keys: SessionKeys,
}

impl Origin {
    async fn fence(&self, from: DcId, token: &str) -> Result<bool, FenceError> {
        let hop = Hop::verify_late(&self.keys, token)?;
        if hop.origin != self.own || self.cluster.name_of(from) != Some(hop.home.as_str()) || hop.home == self.own {
            return Err(FenceError::OtherWay { origin: hop.origin, home: hop.home });
        }
        let owner = self.ids.reach(&hop.id().digest, Some(&self.own))?;
        Ok(owner.client.fence_named(hop.id(), FENCE_PATIENCE).await?)
    }
}

impl PeerService for Origin {
    fn on_call(&self, from: DcId, question: Bytes) -> Pin<Box<dyn Future<Output = Option<Bytes>> + Send + '_>> {
        Box::pin(async move {
            let PeerQuestion::FenceHop { token } = wire::decode(&question).ok()?;
            let answer = match self.fence(from, &token).await {
                Ok(counted) => PeerAnswer::Fenced { counted },
                Err(error) => PeerAnswer::Unknown { reason: error.to_string() },
            };
            Some(wire::encode(&answer).into())
        })
    }
}

fn named_failure(error: NamedError) -> Failure {
    let message = error.to_string();
    match error {
        NamedError::Items { .. } => Failure::Invalid { code: "hop", message },
        NamedError::Refused(error) => error.into(),
        NamedError::Reused => Failure::Mismatch { code: "id_reused", message },
        NamedError::Full { .. } => Failure::Unavailable { code: "ids_full", message },
        NamedError::Unknown => Failure::InDoubt(message),
        NamedError::Fenced | NamedError::NoIds => Failure::NotServing(message),
    }
}

impl From<HopError> for Failure {
    fn from(error: HopError) -> Failure {
        let code = match error {
            HopError::Counters(_) | HopError::Twice { .. } => "counters",
            HopError::Id { .. } => "id",
            HopError::Life(_) => "expires_s",
            HopError::TooLong { .. } => "hop",
        };
        Failure::invalid(code, error)
    }
}

impl From<HopRefusal> for Failure {
    fn from(refusal: HopRefusal) -> Failure {
        let message = refusal.to_string();
        let code = match refusal {
            HopRefusal::Malformed => "hop_malformed",
            HopRefusal::UnknownKey => "hop_key",
            HopRefusal::Forged => "hop_forged",
            HopRefusal::Expired { .. } => "hop_expired",
        };
        Failure::Session { code, message }
    }
}
