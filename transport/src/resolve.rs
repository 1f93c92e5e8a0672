//! Host names to IP addresses, anew whenever a name is dialled.
//!
//! At most one lookup of a name is under way; another dial of the name meanwhile waits for that lookup, and its outcome holds for
//! [`REUSE`]: dials of a peer that is away overlap, and a resolver is not asked for each. A dialler waits for [`RESOLVE_MAX`] at most. A
//! lookup that takes longer goes on, and the next dialler finds its outcome.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use thiserror::Error;
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::time::{Instant, timeout};

/// A dialler waits for addresses for so long: less than the two seconds after which an attempt to connect is given up.
pub const RESOLVE_MAX: Duration = Duration::from_millis(1_500);
/// The outcome of a lookup holds for so long.
pub const REUSE: Duration = Duration::from_secs(1);
/// Addresses of a name that are dialled; further ones are ignored.
pub const ADDRESSES_MAX: usize = 16;
/// Names that are remembered; of more, those that are not in use are forgotten, and further ones are refused.
const NAMES_MAX: usize = 4_096;
/// A lookup without an outcome is given up after this.
const LOOKUP_MAX: Duration = Duration::from_secs(60);
/// Lookups by the operating system that are under way in this process, each on a thread of its own. More wait.
const LOOKUPS_MAX: usize = 16;

static LOOKUPS: Semaphore = Semaphore::const_new(LOOKUPS_MAX);

/// A lookup that is under way.
pub type Resolving<'a> = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send + 'a>>;

/// A source of the addresses of host names.
pub trait Resolver: fmt::Debug + Send + Sync {
    /// Looks a name up. It may take long, and must not block the thread.
    fn resolve<'a>(&'a self, name: &'a str) -> Resolving<'a>;
}

/// The operating system: its files, such as `/etc/hosts`, and its DNS servers.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemResolver;

impl Resolver for SystemResolver {
    /// On a thread of its own: `getaddrinfo` blocks, for up to half a minute if DNS servers do not answer. The runtime's threads for
    /// blocking calls are needed by others, and waited for at its end.
    fn resolve<'a>(&'a self, name: &'a str) -> Resolving<'a> {
        Box::pin(async move {
            let permit = LOOKUPS.acquire().await.map_err(io::Error::other)?;
            let (answer, answered) = oneshot::channel();
            let name = name.to_owned();
            thread::Builder::new().name("tidemark-resolve".into()).spawn(move || {
                let found = (name.as_str(), 0).to_socket_addrs();
                // Fails when no dialler waits any more.
                let _ = answer.send(found.map(|found| found.map(|addr| addr.ip()).collect()));
                drop(permit);
            })?;
            answered.await.map_err(io::Error::other)?
        })
    }
}

/// Why a host name has no addresses now.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ResolveError {
    /// The lookup goes on, and a later dial finds its outcome.
    #[error("no answer within {waited_ms} ms")]
    Late {
        /// How long the dialler waited.
        waited_ms: u128,
    },
    /// The lookup was given up.
    #[error("no answer within {waited_s} s")]
    GivenUp {
        /// How long it was under way.
        waited_s: u64,
    },
    /// The runtime of the lookup has ended.
    #[error("the lookup has ended without an answer")]
    Ended,
    /// Too many other names are in use.
    #[error("{limit} names are being looked up")]
    TooManyNames {
        /// The most names that are remembered.
        limit: usize,
    },
    /// The name is known, without an address.
    #[error("the name has no address")]
    NoAddress,
    /// None of the addresses was dialled to the end.
    #[error("none of its addresses was dialled to the end")]
    NotDialled,
    /// The resolver refused.
    #[error("{reason}")]
    Failed {
        /// In the resolver's words.
        reason: String,
    },
}

/// The names that an endpoint dials.
#[derive(Debug)]
pub(crate) struct Names {
    resolver: Arc<dyn Resolver>,
    known: Arc<Mutex<HashMap<Arc<str>, Known>>>,
}

/// The result of a lookup.
type Outcome = Result<Vec<IpAddr>, ResolveError>;

#[derive(Debug)]
struct Known {
    /// The latest lookup; its outcome, and when that came, once it is there.
    latest: watch::Receiver<Option<(Instant, Outcome)>>,
    /// The address that answered last.
    answered: Option<IpAddr>,
    /// How often it was dialled: each dial begins with another address, so that all are tried however soon a dialler gives up.
    dials: usize,
    /// Since when it does not resolve, which was said.
    failing_since: Option<Instant>,
}

impl Known {
    fn is_fresh(&self) -> bool {
        // A sender that is gone without an outcome: the runtime of the lookup has ended.
        let has_ended = self.latest.has_changed().is_err();
        self.latest.borrow().as_ref().map_or(!has_ended, |(at, _)| at.elapsed() < REUSE)
    }
}

impl Names {
    pub fn new(resolver: Arc<dyn Resolver>) -> Names {
        Names { resolver, known: Arc::default() }
    }

    /// The addresses of a name, one at least, in the order in which to dial them; or why there are none.
    pub async fn addresses(&self, name: &str) -> Result<Vec<IpAddr>, ResolveError> {
        let mut latest = self.latest(name)?;
        let ended = timeout(RESOLVE_MAX, latest.wait_for(Option::is_some)).await;
        let late = || ResolveError::Late { waited_ms: RESOLVE_MAX.as_millis() };
        let outcome = match ended.map_err(|_| late())? {
            Ok(outcome) => outcome.clone(),
            Err(_) => None,
        };
        let (_, found) = outcome.ok_or(ResolveError::Ended)?;
        Ok(self.in_order(name, found?))
    }

    /// Says that an address of a name answered: it is dialled first from now on.
    pub fn prefer(&self, name: &str, ip: IpAddr) {
        if let Some(known) = lock(&self.known).get_mut(name) {
            known.answered = Some(ip);
        }
    }

    /// The one that answered last, then the others, beginning with another one each time.
    fn in_order(&self, name: &str, mut found: Vec<IpAddr>) -> Vec<IpAddr> {
        if let Some(known) = lock(&self.known).get_mut(name) {
            let first = known.answered.filter(|answered| found.contains(answered));
            found.retain(|ip| Some(*ip) != first);
            if !found.is_empty() {
                let count = found.len();
                found.rotate_left(known.dials % count);
            }
            known.dials = known.dials.wrapping_add(1);
            found.splice(0..0, first);
        }
        found
    }

    /// The lookup to use; begins one where there is none.
    fn latest(&self, name: &str) -> Result<watch::Receiver<Option<(Instant, Outcome)>>, ResolveError> {
        let mut known = lock(&self.known);
        if let Some(present) = known.get(name).filter(|present| present.is_fresh()) {
            return Ok(present.latest.clone());
        }
        if known.len() >= NAMES_MAX && !known.contains_key(name) {
            known.retain(|_, present| present.is_fresh());
            if known.len() >= NAMES_MAX {
                return Err(ResolveError::TooManyNames { limit: NAMES_MAX });
            }
        }
        let (outcome, latest) = watch::channel(None);
        let name: Arc<str> = name.into();
        let new = || Known { latest: latest.clone(), answered: None, dials: 0, failing_since: None };
        known.entry(name.clone()).or_insert_with(new).latest = latest.clone();
        let resolver = self.resolver.clone();
        let known = self.known.clone();
        tokio::spawn(async move {
            let found = look_up(&*resolver, &name).await;
            note(&known, &name, &found);
            // Fails when the endpoint is gone.
            let _ = outcome.send(Some((Instant::now(), found)));
        });
        Ok(latest)
    }
}

async fn look_up(resolver: &dyn Resolver, name: &str) -> Outcome {
    let Ok(found) = timeout(LOOKUP_MAX, resolver.resolve(name)).await else {
        return Err(ResolveError::GivenUp { waited_s: LOOKUP_MAX.as_secs() });
    };
    let mut addresses: Vec<IpAddr> = Vec::new();
    for ip in found.map_err(|error| ResolveError::Failed { reason: error.to_string() })? {
        if !addresses.contains(&ip) && addresses.len() < ADDRESSES_MAX {
            addresses.push(ip);
        }
    }
    if addresses.is_empty() { Err(ResolveError::NoAddress) } else { Ok(addresses) }
}

/// Says once that a name does not resolve, and once that it does again.
fn note(known: &Mutex<HashMap<Arc<str>, Known>>, name: &Arc<str>, found: &Outcome) {
    let mut known = lock(known);
    let Some(known) = known.get_mut(name) else { return };
    match (found, known.failing_since) {
        (Err(error), None) => {
            tracing::warn!(%name, %error, "a host name does not resolve; it is tried again");
            known.failing_since = Some(Instant::now());
        }
        (Ok(addresses), Some(since)) => {
            let failed_ms = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
            tracing::info!(%name, ?addresses, failed_ms, "a host name resolves again");
            known.failing_since = None;
        }
        (Err(_), Some(_)) | (Ok(_), None) => {}
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::net::Ipv4Addr;

    use super::*;

    /// Answers in this order, each after a time; then never.
    #[derive(Debug, Default)]
    struct Script {
        answers: Mutex<VecDeque<(Duration, io::Result<Vec<IpAddr>>)>>,
        asked: Mutex<usize>,
    }

    impl Script {
        fn new(answers: impl IntoIterator<Item = (u64, io::Result<Vec<IpAddr>>)>) -> Arc<Script> {
            let answers = answers.into_iter().map(|(ms, answer)| (Duration::from_millis(ms), answer)).collect();
            Arc::new(Script { answers: Mutex::new(answers), asked: Mutex::default() })
        }

        fn asked(&self) -> usize {
            *lock(&self.asked)
        }
    }

    impl Resolver for Script {
        fn resolve<'a>(&'a self, _: &'a str) -> Resolving<'a> {
            *lock(&self.asked) += 1;
            let next = lock(&self.answers).pop_front();
            Box::pin(async move {
                let Some((after, answer)) = next else { return std::future::pending().await };
                tokio::time::sleep(after).await;
                answer
            })
        }
    }

    fn ip(last: u8) -> IpAddr {
        Ipv4Addr::new(127, 0, 0, last).into()
    }

    fn no_such_name() -> ResolveError {
        ResolveError::Failed { reason: "no such name".to_owned() }
    }

    fn unknown() -> io::Result<Vec<IpAddr>> {
        Err(io::Error::other("no such name"))
    }

    #[tokio::test(start_paused = true)]
    async fn dials_at_once_share_a_lookup_and_later_ones_ask_again() {
        let script = Script::new([(500, Ok(vec![ip(1)])), (0, Ok(vec![ip(2)])), (0, unknown()), (0, Ok(vec![ip(3)]))]);
        let names = Names::new(script.clone());
        let (first, second) = tokio::join!(names.addresses("a"), names.addresses("a"));
        assert_eq!((first, second, script.asked()), (Ok(vec![ip(1)]), Ok(vec![ip(1)]), 1));
        tokio::time::sleep(REUSE / 2).await;
        assert_eq!((names.addresses("a").await, script.asked()), (Ok(vec![ip(1)]), 1));
        tokio::time::sleep(REUSE).await;
        assert_eq!((names.addresses("a").await, script.asked()), (Ok(vec![ip(2)]), 2));
        tokio::time::sleep(REUSE).await;
        assert_eq!(names.addresses("a").await, Err(no_such_name()));
        assert_eq!((names.addresses("a").await, script.asked()), (Err(no_such_name()), 3));
        assert!(lock(&names.known)["a"].failing_since.is_some());
        tokio::time::sleep(REUSE).await;
        assert_eq!((names.addresses("a").await, script.asked()), (Ok(vec![ip(3)]), 4));
        assert!(lock(&names.known)["a"].failing_since.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn slow_lookup_goes_on_and_a_later_dial_finds_its_outcome() {
        let script = Script::new([(4_000, Ok(vec![ip(1)]))]);
        let names = Names::new(script.clone());
        let began = Instant::now();
        assert_eq!(names.addresses("a").await, Err(ResolveError::Late { waited_ms: 1_500 }));
        assert_eq!(began.elapsed(), RESOLVE_MAX);
        assert_eq!(names.addresses("a").await, Err(ResolveError::Late { waited_ms: 1_500 }));
        assert_eq!((names.addresses("a").await, script.asked()), (Ok(vec![ip(1)]), 1));
    }

    #[tokio::test(start_paused = true)]
    async fn lookup_without_an_outcome_is_given_up_and_begun_again() {
        let script = Script::new([]);
        let names = Names::new(script.clone());
        let began = Instant::now();
        while began.elapsed() < LOOKUP_MAX + 2 * REUSE {
            assert!(names.addresses("a").await.is_err());
            tokio::time::sleep(REUSE / 2).await;
        }
        assert_eq!(script.asked(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn every_address_is_dialled_first_until_one_answers() {
        let all = || vec![ip(1), ip(2), ip(1), ip(3)];
        let names = Names::new(Script::new((0..6).map(|_| (0, Ok(all())))));
        let mut orders = Vec::new();
        for _ in 0..4 {
            orders.push(names.addresses("a").await.unwrap());
        }
        let of = |lasts: [u8; 3]| lasts.map(ip).to_vec();
        assert_eq!(orders, [of([1, 2, 3]), of([2, 3, 1]), of([3, 1, 2]), of([1, 2, 3])]);
        names.prefer("a", ip(2));
        let order = names.addresses("a").await.unwrap();
        assert_eq!((order[0], order.len()), (ip(2), 3));
        names.prefer("a", ip(9));
        assert!(!names.addresses("a").await.unwrap().contains(&ip(9)), "it is none of the name's any more");
    }

    #[tokio::test(start_paused = true)]
    async fn empty_answer_is_a_failure_and_a_long_one_is_cut() {
        let many = (0..=u8::MAX).map(ip).collect();
        let names = Names::new(Script::new([(0, Ok(Vec::new())), (0, Ok(many))]));
        assert_eq!(names.addresses("a").await, Err(ResolveError::NoAddress));
        assert_eq!(names.addresses("b").await.map(|found| found.len()), Ok(ADDRESSES_MAX));
    }

    #[tokio::test(start_paused = true)]
    async fn names_past_the_limit_are_refused_until_others_are_out_of_use() {
        let names = Names::new(Script::new((0..2 * NAMES_MAX).map(|_| (0, Ok(vec![ip(1)])))));
        for name in 0..NAMES_MAX {
            names.addresses(&name.to_string()).await.unwrap();
        }
        assert_eq!(names.addresses("one more").await, Err(ResolveError::TooManyNames { limit: NAMES_MAX }));
        tokio::time::sleep(REUSE).await;
        assert_eq!(names.addresses("one more").await, Ok(vec![ip(1)]));
        assert_eq!(lock(&names.known).len(), 1);
    }

    #[tokio::test]
    async fn operating_system_knows_this_machine() {
        let found = SystemResolver.resolve("localhost").await.unwrap();
        assert!(!found.is_empty() && found.iter().all(IpAddr::is_loopback), "{found:?}");
    }
}
