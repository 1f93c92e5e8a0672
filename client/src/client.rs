//! The parts that a program holds: the client and its counters.

pub(crate) mod pins;

use crate::edges::EdgeChanges;
use crate::error::{AddError, AskError, AwardError, ChangeError, FlushError, GetError, HandleError, HitError};
use crate::flusher::{Flusher, OnLoss};
use crate::hit::{Hit, HitCell};
use crate::limits::CHANGES_AT_ONCE_MAX;
use crate::link::Dialer;
use crate::link_state::{LinkState, Links};
use crate::named::{NamedError, NamedLinks, NamedOutcome, NamedPatience};
use crate::queries::{Answered, Queries};
use crate::reads::Reads;
use crate::shared::{self, CounterInner, NewHit, SeenGroup, Shared};
use crate::target::Target;
use crate::timed::EventTime;
use crate::waits::Waits;
use pins::{GroupError, Pins};
use std::sync::Arc;
use std::time::Duration;
use tidemark_proto::client::{ClientCore, InDoubt};
use tidemark_proto::edge_changes::{EdgesAnswer, EdgesMade};
use tidemark_proto::ids::{CounterName, Half, SessionId};
use tidemark_proto::msg::{Award, ItemId, Reading};
use tidemark_proto::queries::{QueryAnswer, QueryRequest};
use tidemark_proto::series::UnixTime;
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::time::{Instant, timeout};

/// A client of a cluster. Clones are the same client; when the last one is dropped it flushes in the background and ends.
#[derive(Clone, Debug)]
pub struct Client(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    shared: Arc<Shared>,
    reads: Reads,
    queries: Queries,
    /// Questions of this client are not to wait for its changes of edges.
    changes: Semaphore,
    named: NamedLinks,
    pins: Pins,
    waits: Waits,
    read_timeout: Duration,
    close_timeout: Duration,
    link: watch::Receiver<LinkState>,
    closed: watch::Receiver<Option<InDoubt>>,
}

/// A counter of a client. Clones, and further handles of the same name, are the same counter.
#[derive(Clone, Debug)]
pub struct Counter {
    counter: Arc<CounterInner>,
    shared: Arc<Shared>,
}

impl From<&Counter> for Target {
    fn from(counter: &Counter) -> Target {
        Target(shared::Target::Handle(counter.counter.clone()))
    }
}

/// The parts that the builder hands over.
pub(crate) struct Parts {
    pub core: ClientCore,
    pub dialer: Dialer,
    pub reads: Reads,
    pub queries: Queries,
    pub waits: Waits,
    pub keys_seed: u64,
    pub hits_max: usize,
    pub flush_interval: Duration,
    pub read_timeout: Duration,
    pub close_timeout: Duration,
    pub on_loss: OnLoss,
    pub pins: Pins,
}

/// An increment, or decrement, that counts once for its id.
#[derive(Clone, Copy, Debug)]
pub struct OnceHit {
    pub half: Half,
    pub session: Option<SessionId>,
    /// 1 to 2^40.
    pub weight: u64,
    /// When it happened; when it is logged, if nothing is said.
    pub event: Option<UnixTime>,
    pub id: ItemId,
}

impl Counter {
    /// Adds `n`. Never waits, never fails: what was added is sent within the flush interval, after a pause at once.
    /// (A counter that is refused, for an unknown namespace say, is told to the builder's `on_loss`.)
    ///
    /// Adds of a closed client are lost.
    #[inline]
    pub fn add(&self, n: u64) {
        self.counter.slots.add(n);
        self.shared.added();
    }

    /// Subtracts `n`, as [`Counter::add`] adds. Both are counted, and kept, apart: milestones look at what was added only. If the counter's
    /// namespace does not allow counters to go down, the weight is refused, and the builder's `on_loss` is called.
    #[inline]
    pub fn subtract(&self, n: u64) {
        self.counter.subtract(n);
        self.shared.added();
    }

    /// Adds `n` that happened at `at`: it counts in the total as all else, and in the buckets of that time. Never waits.
    ///
    /// Adds of one counter and minute are sent as one, with the latest of their times. The namespace says how late and how far ahead an
    /// event may be. An increment that is refused for its time is reported to the builder's `on_loss`, as [`BatchError::Event`], and counts
    /// in the refused weight of the next [`Client::flush`]; the others are counted.
    ///
    /// ```
    /// # use tidemark_client::{Client, UnixTime, fake::FakeCluster};
    /// # use std::time::{Duration, SystemTime};
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// # let cluster = FakeCluster::new();
    /// # let client = Client::builder().fake(&cluster).connect().await?;
    /// let views = client.counter("site", b"views/42")?;
    /// views.add_at(3, SystemTime::now() - Duration::from_secs(60))?;
    /// views.add_at(1, UnixTime::from_s(1_767_225_600)?)?;
    /// client.flush().await?;
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(example()).unwrap();
    /// ```
    ///
    /// # Errors
    /// Nothing was added: the time is not between 1970 and 3000, [`TIMED_ADDS_MAX`](crate::TIMED_ADDS_MAX) counters and minutes wait to
    /// be sent, or the client is closed.
    ///
    /// [`BatchError::Event`]: tidemark_proto::msg::BatchError::Event
    pub fn add_at(&self, n: u64, at: impl EventTime) -> Result<(), AddError> {
        self.shared.add_at(&self.counter.name, Half::Up, n, at)
    }

    /// Subtracts `n` as of a time, as [`Counter::add_at`] adds.
    ///
    /// # Errors
    /// As of [`Counter::add_at`].
    pub fn subtract_at(&self, n: u64, at: impl EventTime) -> Result<(), AddError> {
        self.shared.add_at(&self.counter.name, Half::Down, n, at)
    }

    /// The counter's name.
    pub fn name(&self) -> &CounterName {
        &self.counter.name
    }
}

impl Client {
    pub(crate) fn start(parts: Parts) -> Client {
        let shared = Arc::new(Shared::new(parts.keys_seed, parts.hits_max));
        let (told, closed) = watch::channel(None);
        let (state, link) = watch::channel(Links::first());
        let named = NamedLinks::new(parts.dialer.clone());
        let interval = parts.flush_interval;
        let flusher = Flusher::new(parts.core, shared.clone(), parts.dialer, interval, parts.on_loss, state, told);
        tokio::spawn(flusher.run());
        let Parts { reads, queries, waits, read_timeout, close_timeout, pins, .. } = parts;
        let changes = Semaphore::new(CHANGES_AT_ONCE_MAX);
        let inner =
            Inner { shared, reads, queries, changes, named, pins, waits, read_timeout, close_timeout, link, closed };
        Client(Arc::new(inner))
    }

    /// Whether the node in use takes increments.
    pub fn link_state(&self) -> LinkState {
        self.0.link.borrow().clone()
    }

    /// Waits until the group in use counts as gone: none of its nodes was heard for `silent`, or it has had no leader for `leaderless`
    /// though a node of it answers. Returns the reason; a slow group that is there is waited for without end.
    pub async fn until_gone(&self, silent: Duration, leaderless: Duration) -> String {
        let mut link = self.0.link.clone();
        loop {
            let state = link.borrow_and_update().clone();
            let gone_at = state.gone_at(silent, leaderless);
            tokio::select! {
                changed = link.changed() => {
                    if changed.is_err() {
                        return "the client has ended".to_owned();
                    }
                }
                () = tokio::time::sleep_until(gone_at.unwrap_or_else(Instant::now)), if gone_at.is_some() => {
                    return state.reason().to_owned();
                }
            }
        }
    }

    /// Takes a hit back that was not sent yet. Whether it was: then it is surely not counted, and resolves as
    /// [`AddError::Withdrawn`](tidemark_proto::client::AddError::Withdrawn). A hit that may have been sent stays under way.
    pub async fn withdraw(&self, hit: &Hit) -> bool {
        let (answer, withdrawn) = oneshot::channel();
        {
            let mut inbox = self.0.shared.inbox();
            if inbox.ended {
                return false;
            }
            inbox.withdrawals.push((hit.0.clone(), answer));
        }
        self.0.shared.notify.notify_one();
        withdrawn.await.unwrap_or(false)
    }

    /// A handle for a counter that is counted often. Errors: the name is outside its limits, or too many handles are held.
    pub fn counter(&self, namespace: &str, key: impl AsRef<[u8]>) -> Result<Counter, HandleError> {
        let name = CounterName::new(namespace, key.as_ref())?;
        let shared = self.0.shared.clone();
        Ok(Counter { counter: shared.handle(name)?, shared })
    }

    /// Adds `n` to a counter by name, as [`Counter::add`] does; for very many keys. Errors: nothing was counted.
    #[inline]
    pub fn add(&self, counter: &CounterName, n: u64) -> Result<(), AddError> {
        self.add_key(counter.namespace(), counter.key(), n)
    }

    /// [`Client::add`] without a name made beforehand. The name is checked when this thread first uses it.
    #[inline]
    pub fn add_key(&self, namespace: &str, key: &[u8], n: u64) -> Result<(), AddError> {
        self.0.shared.keys.add(namespace, key, n)?;
        self.0.shared.added();
        Ok(())
    }

    /// Subtracts `n` from a counter by name, as [`Counter::subtract`] does. Errors: nothing was counted.
    #[inline]
    pub fn subtract(&self, counter: &CounterName, n: u64) -> Result<(), AddError> {
        self.subtract_key(counter.namespace(), counter.key(), n)
    }

    /// [`Client::subtract`] without a name made beforehand.
    #[inline]
    pub fn subtract_key(&self, namespace: &str, key: &[u8], n: u64) -> Result<(), AddError> {
        self.0.shared.keys_down.add(namespace, key, n)?;
        self.0.shared.added();
        Ok(())
    }

    /// [`Counter::add_at`] by name.
    ///
    /// # Errors
    /// As of [`Counter::add_at`].
    pub fn add_at(&self, counter: &CounterName, n: u64, at: impl EventTime) -> Result<(), AddError> {
        self.0.shared.add_at(counter, Half::Up, n, at)
    }

    /// [`Counter::subtract_at`] by name.
    ///
    /// # Errors
    /// As of [`Counter::add_at`].
    pub fn subtract_at(&self, counter: &CounterName, n: u64, at: impl EventTime) -> Result<(), AddError> {
        self.0.shared.add_at(counter, Half::Down, n, at)
    }

    /// Counts 1 for a session. Waits only while too many hits wait for an answer; the returned future resolves to the place.
    ///
    /// `session`: a [`SessionId`] or a [`SessionToken`](crate::SessionToken).
    pub async fn hit(&self, counter: impl Into<Target>, session: impl Into<SessionId>) -> Result<Hit, HitError> {
        self.hit_weighted(counter, Some(session.into()), 1).await
    }

    /// [`Client::hit`] with a weight, 1 to 2^40, and perhaps without a session (a milestone without a session has no winner).
    pub async fn hit_weighted(
        &self,
        counter: impl Into<Target>,
        session: Option<SessionId>,
        weight: u64,
    ) -> Result<Hit, HitError> {
        let target = counter.into();
        self.submit_when_free(target, Half::Up, session, weight, None).await
    }

    /// [`Client::hit_weighted`] for something that happened at `at`, to the second.
    ///
    /// # Errors
    /// As of a hit; [`HitError::Time`] where the time is not between 1970 and 3000, and of the returned hit
    /// [`BatchError::Event`](tidemark_proto::msg::BatchError::Event) where the namespace does not take it any more, or not yet.
    pub async fn hit_at(
        &self,
        counter: impl Into<Target>,
        session: Option<SessionId>,
        weight: u64,
        at: impl EventTime,
    ) -> Result<Hit, HitError> {
        let target = counter.into();
        let event = at.unix_time()?;
        self.submit_when_free(target, Half::Up, session, weight, Some(event)).await
    }

    /// The opposite of [`Client::hit_weighted`]: counts a weight down, 1 to 2^40, and resolves when that is durable. It has no number
    /// and is never a milestone, and one that was reached stays so.
    ///
    /// # Errors
    /// The namespace does not say that its counters may go down
    /// ([`BatchError::GrowOnly`](tidemark_proto::msg::BatchError::GrowOnly)), and as of a hit.
    pub async fn take_back(&self, counter: impl Into<Target>, weight: u64) -> Result<Hit, HitError> {
        let target = counter.into();
        self.submit_when_free(target, Half::Down, None, weight, None).await
    }

    /// [`Client::take_back`] for something that happened at `at`, to the second.
    ///
    /// # Errors
    /// As of [`Client::take_back`], and of [`Client::hit_at`] for the time.
    pub async fn take_back_at(
        &self,
        counter: impl Into<Target>,
        weight: u64,
        at: impl EventTime,
    ) -> Result<Hit, HitError> {
        let target = counter.into();
        let event = at.unix_time()?;
        self.submit_when_free(target, Half::Down, None, weight, Some(event)).await
    }

    async fn submit_when_free(
        &self,
        target: Target,
        half: Half,
        session: Option<SessionId>,
        delta: u64,
        event: Option<UnixTime>,
    ) -> Result<Hit, HitError> {
        self.0.shared.permits.acquire().await.map_err(|_| HitError::Closed)?.forget();
        self.submit(target, half, session, delta, event, None)
    }

    /// [`Client::hit`] that does not wait: `Overloaded` instead.
    pub fn try_hit(&self, counter: impl Into<Target>, session: impl Into<SessionId>) -> Result<Hit, HitError> {
        let shared = &self.0.shared;
        let overloaded = HitError::Overloaded { limit: shared.hits_max };
        shared.permits.try_acquire().map_err(|_| overloaded)?.forget();
        self.submit(counter.into(), Half::Up, Some(session.into()), 1, None, None)
    }

    fn submit(
        &self,
        target: Target,
        half: Half,
        session: Option<SessionId>,
        delta: u64,
        event: Option<UnixTime>,
        id: Option<ItemId>,
    ) -> Result<Hit, HitError> {
        let cell = Arc::new(HitCell::default());
        let hit = NewHit { counter: target.0, half, session, delta, event, id, cell: cell.clone() };
        self.0.shared.submit(hit).inspect_err(|_| self.0.shared.permits.add_permits(1))?;
        Ok(Hit(cell))
    }

    /// A client of one group of a site, as increments with ids need it: an id belongs to one group, and this client goes to no other
    /// one. Made when it is first asked for, and closed with this one.
    ///
    /// # Errors
    /// No site of that name has such a group.
    pub fn at_group(&self, dc: &str, group: u16) -> Result<Client, GroupError> {
        self.0.pins.get(dc, group)
    }

    /// The group that this client counts at now, as its node said when it was last welcomed; `None` before.
    pub fn group(&self) -> Option<SeenGroup> {
        self.0.shared.group()
    }

    /// Counts an increment under an id, and resolves to its place. If the same id is counted at the same group ([`Client::at_group`])
    /// several times, from any process, it counts once, and each answer is that of the first time. The group remembers it for a day, unless
    /// its settings say otherwise.
    ///
    /// # Errors
    /// As of a hit, and of the returned hit [`IdReused`](tidemark_proto::client::AddError::IdReused) and the other reasons of ids;
    /// [`HitError::PlaceUnknown`] says that it counted, and that its place is not known yet: ask again for it.
    pub async fn hit_once(&self, target: impl Into<Target>, hit: OnceHit) -> Result<Hit, HitError> {
        self.0.shared.permits.acquire().await.map_err(|_| HitError::Closed)?.forget();
        let OnceHit { half, session, weight, event, id } = hit;
        self.submit(target.into(), half, session, weight, event, Some(id))
    }

    /// Adds to up to [`NAMED_ITEMS_MAX`](tidemark_proto::named::NAMED_ITEMS_MAX) counters their weights, all at once, under one id, as
    /// [`Client::hit_once`] does for one. Dropping the future changes nothing: it may be counted or not.
    pub async fn count_named(
        &self,
        id: ItemId,
        items: &[(CounterName, u64)],
        session: Option<SessionId>,
        patience: NamedPatience,
    ) -> Result<NamedOutcome, NamedError> {
        self.0.named.count(id, items, session, patience).await
    }

    /// Whether anything was counted under an id at the first site. If not, it never will be: [`NamedError::Fenced`] from now on.
    pub async fn fence_named(&self, id: ItemId, patience: Duration) -> Result<bool, NamedError> {
        self.0.named.fence(id, patience).await
    }

    /// Waits until everything that was added before is durable. Errors: some of it was refused, or is in doubt for good.
    pub async fn flush(&self) -> Result<(), FlushError> {
        match self.ask_to_flush()?.await {
            Ok((0, 0)) => Ok(()),
            Ok((refused, unknown)) => Err(FlushError::Losses { refused, unknown }),
            Err(_) => Err(FlushError::Closed),
        }
    }

    fn ask_to_flush(&self) -> Result<oneshot::Receiver<(u64, u64)>, FlushError> {
        let (answer, flushed) = oneshot::channel();
        let mut inbox = self.0.shared.inbox();
        if inbox.close.is_some() || inbox.ended {
            return Err(FlushError::Closed);
        }
        inbox.flushes.push(answer);
        drop(inbox);
        self.0.shared.notify.notify_one();
        Ok(flushed)
    }

    /// Takes nothing more, flushes, and ends the streams at the nodes, within the close timeout. Returns the increments that are in doubt
    /// then: counted once or not at all. Hits whose place is still open resolve to `PlaceUnknown`.
    pub async fn close(&self) -> Result<(), InDoubtError> {
        self.0.ask_to_close();
        for pinned in self.0.pins.all() {
            Box::pin(pinned.close()).await?;
        }
        let mut closed = self.0.closed.clone();
        let in_doubt = closed.wait_for(Option::is_some).await.map(|in_doubt| *in_doubt);
        match in_doubt.ok().flatten() {
            None | Some(InDoubt { weight: 0, .. }) => Ok(()),
            Some(in_doubt) => Err(InDoubtError(in_doubt)),
        }
    }

    /// The value of one counter, from the view of the first site with a reachable aggregator. A counter that never counted reads 0. At one
    /// aggregator neither half of a counter ever goes back, so neither does a counter that only grows.
    pub async fn get(&self, counter: &CounterName) -> Result<Reading, GetError> {
        self.0.reads.get(counter, false, self.0.read_timeout).await
    }

    /// [`Client::get`], at least as new as all that was placed anywhere before.
    pub async fn get_strong(&self, counter: &CounterName) -> Result<Reading, GetError> {
        self.0.reads.get(counter, true, self.0.read_timeout).await
    }

    /// Many values, in the order asked.
    pub async fn get_many(&self, counters: &[CounterName]) -> Result<Vec<Reading>, GetError> {
        self.0.reads.get_many(counters, false, self.0.read_timeout).await
    }

    /// Asks within the read timeout.
    pub(crate) async fn ask(&self, request: &QueryRequest) -> Result<QueryAnswer, AskError> {
        match self.0.queries.ask(request, self.0.read_timeout).await?.answer {
            QueryAnswer::Refused(refusal) => Err(refusal.into()),
            answer @ (QueryAnswer::AsOf(_)
            | QueryAnswer::Series(_)
            | QueryAnswer::Top(_)
            | QueryAnswer::Relatives(_)) => Ok(answer),
        }
    }

    /// Changes edges, so that counts of one counter flow to another or no longer do; returns once the ledger has them, as the aggregator knows
    /// it that was asked. All that is said is carried out together or nothing, unless it is [each for itself](EdgeChanges::each).
    ///
    /// The layout has to name this client's certificate among `graph_clients`, or it has to be that of an operator; by its name the change
    /// stands in the audit. It takes an agreement of the ledger's voters, over regions some hundred milliseconds, within the read timeout:
    /// say several edges at once. Lost aggregators are outlived, as of questions: it goes on at the next one, and is carried out once. No more
    /// than [`CHANGES_AT_ONCE_MAX`](crate::CHANGES_AT_ONCE_MAX) are under way; more wait.
    ///
    /// ```no_run
    /// # use tidemark_client::{Client, CounterName, EdgeChanges};
    /// # async fn example(client: Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let of = |key: &str| CounterName::new("site", key.as_bytes());
    /// let (answer, question, author) = (of("answer/7")?, of("question/3")?, of("author/9")?);
    /// let posted = EdgeChanges::new().insert(&answer, &question).insert(&answer, &author).allow_unknown();
    /// let made = client.change_edges(posted).await?;
    /// println!("{} edges are new", made.inserted);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// An edge would close a cycle, is of a namespace that is unknown or not allowed, and as of [`ChangeError`], which says whether anything may
    /// have been changed.
    pub async fn change_edges(&self, changes: EdgeChanges) -> Result<EdgesMade, ChangeError> {
        let begun = Instant::now();
        let within = self.0.read_timeout;
        let (_permit, left) = match self.0.changes.try_acquire() {
            Ok(permit) => (permit, within),
            Err(_) => match timeout(within, self.0.changes.acquire()).await {
                Ok(Ok(permit)) => (permit, within.saturating_sub(begun.elapsed())),
                _ => return Err(ChangeError::Busy),
            },
        };
        // If this future is dropped before a definite answer, the changes stay in doubt.
        let was_in_doubt = changes.doubt();
        let asked = self.0.queries.ask(changes.asked(), left).await;
        let made = match asked {
            Err(unanswered) => Err(unanswered.into()),
            Ok(Answered { answer, others_may_do_it }) => told(answer, was_in_doubt || others_may_do_it),
        };
        if !matches!(made, Err(ChangeError::Unknown(_))) {
            changes.settle(was_in_doubt && made.is_err());
        }
        made
    }

    /// Waits until the milestone `at` of a counter is awarded; returns at once if it is. To wait no longer, drop the future.
    ///
    /// Lost connections and sites are outlived: it goes on at the next site that has an aggregator.
    ///
    /// ```
    /// # use tidemark_client::{AwardError, Client, fake::FakeCluster};
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// # let cluster = FakeCluster::new();
    /// # cluster.milestone("search", b"queries", 1_000)?;
    /// # let client = Client::builder().fake(&cluster).connect().await?;
    /// let queries = client.counter("search", b"queries")?;
    /// queries.add(1_000);
    /// match client.award(&queries, 1_000).await {
    ///     Ok(award) => println!("{:?} was the thousandth", award.session),
    ///     Err(AwardError::NoMilestone) => println!("nobody has asked for the thousandth"),
    ///     Err(error) => return Err(error.into()),
    /// }
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(example()).unwrap();
    /// ```
    pub async fn award(&self, counter: impl Into<Target>, at: u64) -> Result<Award, AwardError> {
        let target = counter.into().0;
        let mut closed = self.0.closed.clone();
        tokio::select! {
            biased;
            _ = closed.wait_for(Option::is_some) => Err(AwardError::Closed),
            award = self.0.waits.award(target.name(), at) => award,
        }
    }
}

/// The result of a change that another aggregator may do, or have done, or not.
fn told(answer: EdgesAnswer, others_may_do_it: bool) -> Result<EdgesMade, ChangeError> {
    match answer {
        // Nothing was said to the ledger, which alone knows of the others.
        EdgesAnswer::Made(EdgesMade { inserted: 0, removed: 0, again: false, refused, .. })
            if others_may_do_it && !refused.is_empty() =>
        {
            Err(ChangeError::Unknown("an answer was lost; then all was refused".to_owned()))
        }
        EdgesAnswer::Made(made) => Ok(made),
        EdgesAnswer::Refused(refusal) => Err(ChangeError::refused(refusal, others_may_do_it)),
    }
}

/// The increments that a close could not settle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("weight {} ({} hits) is in doubt: counted once, or not at all", .0.weight, .0.hits)]
pub struct InDoubtError(pub InDoubt);

impl Inner {
    fn ask_to_close(&self) {
        self.shared.inbox().close.get_or_insert(Instant::now() + self.close_timeout);
        self.shared.notify.notify_one();
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.ask_to_close();
    }
}

/// Resolves when the process is asked to end: SIGTERM or SIGINT, or ctrl-C where there are no signals.
pub async fn terminated() -> std::io::Result<()> {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let mut term = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        tokio::select! {
            _ = term.recv() => {}
            _ = interrupt.recv() => {}
        }
        Ok(())
    }
    #[cfg(not(unix))]
    tokio::signal::ctrl_c().await
}
