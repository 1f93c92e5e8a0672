//! Reads of what others of the data centre hold, and answers to theirs. Each question is a channel of the connection between the two.

use crate::events::SharedCore;
use crate::ledger::SharedLedger;
use crate::mesh::Mesh;
mod orders;

use futures_util::future::join_all;
use orders::Orders;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tidemark_proto::aggregator::AggregatorCore;
use tidemark_proto::asking::{About, Answer, Asking, Question, Reply, Stands, Taken};
use tidemark_proto::ids::{AggregatorId, CounterName, LogIndex};
use tidemark_proto::ledger::Ledger;
use tidemark_proto::limits::MESSAGE_BYTES_MAX;
use tidemark_proto::msg::Reading;
use tidemark_proto::query::{
    Basis, GatherError, Gathered, Inquiry, QueryError, SHARD_ASK_COUNTERS_MAX, ShardAnswer, ShardAsk, gather, readings,
};
use tidemark_proto::shards::ShardId;
use tidemark_proto::time::Time;
use tidemark_proto::view::View;
use tidemark_proto::wire::{self, channel};
use tidemark_transport::exchange::{ExchangeError, next_message, send_only};
use tidemark_transport::{Channel, Clock, Connection};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout};

/// Questions of others that are answered at a time. More wait.
pub const ANSWERS_MAX: usize = 256;
/// A question that is not answered after this is given up by the answering aggregator.
const ANSWER_MAX: Duration = Duration::from_secs(20);
/// How long it is tried to have counters read that others hold; then the read is refused.
pub const HELD_PATIENCE: Duration = Duration::from_secs(2);
/// How long one of two that hold a slot has for an answer before the other one is asked: one that was killed may seem connected for seconds.
const ANSWERED_WITHIN: Duration = Duration::from_millis(500);
/// How long many reads wait together for the holders of a part of them; after that, reads that miss a part wait by themselves.
const AT_ONCE_PATIENCE: Duration = Duration::from_millis(100);
/// How long it is tried where a process has to look about for its answer: an audit waits for groups, and the first page puts all names in order.
const LOOK_PATIENCE: Duration = Duration::from_secs(15);
/// Between two tries.
const HELD_AGAIN: Duration = Duration::from_millis(20);
/// So often counters are asked for again because those that are asked have dropped buckets meanwhile, or a slot was split or came here; then the
/// read is refused.
pub(crate) const GATHERED_MAX: usize = 3;

/// Questions of clients that are taken, answered or sent back at a time. More wait.
pub const QUERIES_MAX: usize = 64;

/// Why what others hold is not read. Names the slot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeldError {
    #[error("slot {shard} is held by {holders}, and none of these answers at present: ask again")]
    NotServing { shard: u16, holders: String },
    #[error("the ledger does not know yet that this view has started: ask again")]
    NotShown,
    #[error("slots that were asked for are shown from here since: ask again")]
    ShownHere,
    #[error("{0}")]
    Refused(String),
}

/// Why counters are not gathered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GatheringError {
    #[error(transparent)]
    Held(#[from] HeldError),
    #[error("unknown namespace {0:?}")]
    UnknownNamespace(String),
    #[error(transparent)]
    Query(#[from] QueryError),
}

/// Why the process around an aggregator says nothing about a counter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AboutError {
    #[error("it stops")]
    Stops,
    #[error("{reason}")]
    Failed { reason: String },
}

impl AboutError {
    /// The fault, in the words of that process.
    pub fn failed(error: impl ToString) -> AboutError {
        AboutError::Failed { reason: error.to_string() }
    }
}

/// Answers that only the process around an aggregator can give.
pub trait HeldService: Send + Sync {
    /// Says something of a counter in its own words.
    fn about<'a>(
        &'a self,
        what: About,
        counter: &'a CounterName,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<u8>, AboutError>> + Send + 'a>>;
}

/// One aggregator among those of its data centre.
#[derive(Clone)]
pub(crate) struct Held {
    inner: Arc<Inner>,
}

struct Inner {
    own: AggregatorId,
    /// Several aggregators of the data centre hold a part each.
    is_split: bool,
    core: SharedCore,
    ledger: SharedLedger,
    clock: Clock,
    asking: Mutex<Asking>,
    /// Lock order: after the core.
    orders: Orders,
    service: OnceLock<Arc<dyn HeldService>>,
    answers: Semaphore,
    /// The same of questions of clients.
    queries: Arc<Semaphore>,
}

impl Held {
    pub fn new(own: AggregatorId, core: SharedCore, ledger: SharedLedger, clock: Clock) -> Held {
        let asking = Mutex::default();
        let service = OnceLock::new();
        let answers = Semaphore::new(ANSWERS_MAX);
        let is_split = core.lock().seats().are_split(own.dc);
        let orders = Orders::default();
        let queries = Arc::new(Semaphore::new(QUERIES_MAX));
        let inner = Inner { own, is_split, core, ledger, clock, asking, orders, service, answers, queries };
        Held { inner: Arc::new(inner) }
    }

    pub fn set_service(&self, service: Arc<dyn HeldService>) {
        let _ = self.inner.service.set(service);
    }

    /// Lock order: this before the ledger, and that before the core. Splits and departures are known to it.
    fn asking(&self) -> MutexGuard<'_, Asking> {
        let mut asking = self.inner.asking.lock().unwrap_or_else(PoisonError::into_inner);
        let ledger = self.inner.ledger.lock();
        if ledger.shard_map().splits().len() > asking.splits_known() {
            asking.learn(&ledger.shard_map().lineage());
        }
        let mut core = self.inner.core.lock();
        // After a start the ledger may be behind.
        asking.learn(core.view().ranges().lineage());
        let left = core.take_left();
        drop((core, ledger));
        left.into_iter().for_each(|(shard, stand)| asking.left(self.inner.own, shard, stand));
        asking
    }

    /// Looks at what is here at one instant, given which shards are shown from here then.
    pub fn at_once<T>(&self, look: impl FnOnce(&AggregatorCore, &Ledger, &mut dyn FnMut(ShardId) -> bool) -> T) -> T {
        if !self.inner.is_split {
            let ledger = self.inner.ledger.lock();
            return look(&self.inner.core.lock(), &ledger, &mut |_| true);
        }
        let mut asking = self.asking();
        let ledger = self.inner.ledger.lock();
        let (core, now) = (self.inner.core.lock(), self.now());
        asking.learn(core.view().ranges().lineage());
        let mut is_shown = |shard| core.holds(shard) && asking.may_show(now, shard, || core.stand(now, shard, &ledger));
        look(&core, &ledger, &mut is_shown)
    }

    /// Whether several aggregators of the data centre hold a part each.
    pub fn is_split(&self) -> bool {
        self.inner.is_split
    }

    /// Room for questions of clients.
    pub fn queries(&self) -> &Arc<Semaphore> {
        &self.inner.queries
    }

    pub fn orders(&self) -> &Orders {
        &self.inner.orders
    }

    /// Looks at the state here at one instant, even if the view shows nothing.
    pub fn look_once<T>(&self, look: impl FnOnce(&AggregatorCore, &Ledger) -> T) -> T {
        let ledger = self.inner.ledger.lock();
        look(&self.inner.core.lock(), &ledger)
    }

    fn now(&self) -> Time {
        Time(self.inner.clock.elapsed().as_micros() as u64)
    }

    // ---- answers ----

    /// Answers one question of another aggregator of the data centre.
    pub async fn serve(self, from: AggregatorId, channel: Channel) {
        let Ok(_permit) = self.inner.answers.acquire().await else { return };
        match timeout(ANSWER_MAX, self.answer_one(channel)).await {
            Ok(Ok(())) => {}
            Ok(Err(reason)) => tracing::debug!(%from, %reason, "question not answered"),
            Err(_) => tracing::debug!(%from, "question not answered in time"),
        }
    }

    async fn answer_one(&self, channel: Channel) -> Result<(), ExchangeError> {
        let Channel { mut reader, mut writer } = channel;
        let question = next_message(&mut reader).await?;
        let question: Question = wire::decode(&question).map_err(ExchangeError::malformed)?;
        let Reply { start, stands, answer } = self.reply(question).await;
        let mut reply = wire::encode(&Reply { start, stands, answer });
        if reply.len() > MESSAGE_BYTES_MAX {
            let refused = Answer::Refused(format!("an answer of {} bytes: ask for less", reply.len()));
            reply = wire::encode(&Reply { start, stands: None, answer: refused });
        }
        Ok(send_only(&mut writer, reply.into()).await?)
    }

    async fn reply(&self, question: Question) -> Reply {
        let shards = self.parts_of(&question);
        match question {
            Question::Held(ShardAsk::Readings { counters }) => self
                .look(&shards, |view, ledger| Answer::Held(ShardAnswer::Readings(readings(view, ledger, &counters)))),
            Question::Held(ShardAsk::Counts(ask)) => self.look(&shards, |view, ledger| {
                let ask = ask.of_parts(view.ranges().lineage());
                Answer::Held(ShardAnswer::Counts(gather(view, ledger, &ask)))
            }),
            // How far it had come before is what these answers have at least.
            Question::Held(ShardAsk::Scan { of, keys, most, .. }) => {
                let reply = self.look(&shards, |_, _| Answer::Held(ShardAnswer::NotShown));
                if reply.stands.is_none() {
                    return reply;
                }
                let page = self.scan_here(of, &keys, most as usize).await;
                match self.still_holds(&shards) {
                    true => Reply { answer: Answer::Held(ShardAnswer::Page(page)), ..reply },
                    false => Reply { stands: None, ..reply },
                }
            }
            Question::About { what, counter } => {
                let nobody = Answer::Refused("no process here can tell it".to_owned());
                let (reply, service) = self.before(&shards, nobody);
                let Some(service) = service else { return reply };
                let said = service.about(what, &counter).await;
                if !self.still_holds(&shards) {
                    return Reply { stands: None, answer: Answer::Held(ShardAnswer::NotHeld), ..reply };
                }
                Reply { answer: said.map_or_else(|error| Answer::Refused(error.to_string()), Answer::About), ..reply }
            }
        }
    }

    /// The shards of a question, as they are split here: the asking aggregator may not know yet of a split.
    fn parts_of(&self, question: &Question) -> BTreeSet<ShardId> {
        let core = self.inner.core.lock();
        let ranges = core.view().ranges();
        let asked = question.shards(ranges);
        if ranges.lineage().is_empty() {
            asked
        } else {
            asked.into_iter().flat_map(|shard| ranges.lineage().finest(shard)).collect()
        }
    }

    /// The reply, with the service that answers if all shards are held and shown here; `nobody` is the answer otherwise.
    fn before(&self, shards: &BTreeSet<ShardId>, nobody: Answer) -> (Reply, Option<&Arc<dyn HeldService>>) {
        let reply = self.look(shards, |_, _| nobody);
        let service = self.inner.service.get().filter(|_| reply.stands.is_some());
        (reply, service)
    }

    /// Whether none of these has left while an answer was made.
    fn still_holds(&self, shards: &BTreeSet<ShardId>) -> bool {
        let core = self.inner.core.lock();
        shards.iter().all(|&shard| core.holds(shard))
    }

    /// Looks at what is held here, with how far it has come, at one instant.
    fn look(&self, shards: &BTreeSet<ShardId>, look: impl FnOnce(&View, &Ledger) -> Answer) -> Reply {
        let ledger = self.inner.ledger.lock();
        let core = self.inner.core.lock();
        let without = |answer| Reply { start: core.start(), stands: None, answer: Answer::Held(answer) };
        if !shards.iter().all(|&shard| core.holds(shard)) {
            return without(ShardAnswer::NotHeld);
        }
        if !core.view().is_registered(&ledger) {
            return without(ShardAnswer::NotShown);
        }
        let now = self.now();
        let stands = Stands::of(shards.iter().map(|&shard| (shard, core.stand(now, shard, &ledger))));
        Reply { start: core.start(), stands: Some(stands), answer: look(core.view(), &ledger) }
    }

    // ---- questions ----

    /// The holder to ask about each of some shards, unless it was just asked in vain; and one shard without a holder.
    pub fn chosen(
        &self,
        mesh: &Mesh,
        shards: impl Iterator<Item = ShardId>,
        in_vain: &BTreeSet<AggregatorId>,
    ) -> (BTreeMap<AggregatorId, BTreeSet<ShardId>>, Option<ShardId>) {
        let own = self.inner.own;
        let mut nobodys = None;
        let (asking, mut chosen) = (self.asking(), BTreeMap::<AggregatorId, BTreeSet<ShardId>>::new());
        let core = self.inner.core.lock();
        for shard in shards {
            let may_answer =
                |holder| !in_vain.contains(&holder) && core.is_cut_alike(holder) && mesh.connection(holder).is_some();
            match asking.choose(core.seats(), own.dc, shard, may_answer) {
                Some(holder) => drop(chosen.entry(holder).or_default().insert(shard)),
                None => nobodys = Some(shard),
            }
        }
        (chosen, nobodys)
    }

    /// Asks the holders of some shards, until all have answered. `begin` begins to ask one holder about its shards.
    pub async fn ask<D: Dialogue>(
        &self,
        mesh: &Mesh,
        shards: BTreeSet<ShardId>,
        terms: Terms,
        begin: impl Fn(&BTreeSet<ShardId>) -> D,
    ) -> Result<Vec<D>, HeldError> {
        let deadline = Instant::now() + terms.patience;
        let mut left = shards;
        let mut in_vain = BTreeSet::new();
        let mut all = Vec::new();
        let mut is_first = true;
        while !left.is_empty() {
            let chosen = match self.chosen(mesh, left.iter().copied(), &in_vain) {
                (chosen, None) => chosen,
                (_, Some(shard)) if Instant::now() >= deadline => return Err(self.nobody(mesh, shard)),
                _ => {
                    in_vain.clear();
                    sleep(HELD_AGAIN).await;
                    continue;
                }
            };
            // If no holder was quick, the asked holder is waited for.
            let within = if is_first { terms.within } else { terms.patience };
            let terms = Terms { within, ..terms };
            is_first = false;
            for (holder, shards, told) in self.ask_each(mesh, chosen, terms, &begin).await {
                match told {
                    Ok(told) => {
                        all.push(told);
                        left.retain(|shard| !shards.contains(shard));
                    }
                    Err(AskError::Refused(reason)) => return Err(HeldError::Refused(reason)),
                    Err(AskError::ShownHere) => return Err(HeldError::ShownHere),
                    Err(AskError::InVain(reason)) => {
                        tracing::debug!(%holder, %reason, "a holder does not answer");
                        in_vain.insert(holder);
                    }
                }
            }
            if let Some(&missing) = left.first().filter(|_| Instant::now() >= deadline) {
                return Err(self.nobody(mesh, missing));
            }
        }
        Ok(all)
    }

    /// Asks each of some holders, once.
    pub async fn ask_each<D: Dialogue>(
        &self,
        mesh: &Mesh,
        chosen: BTreeMap<AggregatorId, BTreeSet<ShardId>>,
        terms: Terms,
        begin: impl Fn(&BTreeSet<ShardId>) -> D,
    ) -> impl Iterator<Item = (AggregatorId, BTreeSet<ShardId>, Result<D, AskError>)> {
        let asked = chosen.iter().map(|(&holder, shards)| self.ask_one(mesh, holder, shards, terms, begin(shards)));
        let told = join_all(asked).await;
        chosen.into_iter().zip(told).map(|((holder, shards), told)| (holder, shards, told))
    }

    async fn ask_one<D: Dialogue>(
        &self,
        mesh: &Mesh,
        holder: AggregatorId,
        shards: &BTreeSet<ShardId>,
        terms: Terms,
        mut dialogue: D,
    ) -> Result<D, AskError> {
        while let Some(question) = dialogue.next() {
            let connection = mesh.connection(holder).ok_or(InVain::NotConnected)?;
            let asked = timeout(terms.within, ask_on(&connection, &question)).await;
            let reply = asked.map_err(|_| InVain::Late { within: terms.within })?.map_err(InVain::from)?;
            let Reply { start, stands, answer } = reply;
            if let Answer::Refused(reason) = answer {
                return Err(AskError::Refused(reason));
            }
            let is_about_these = |stands: &Stands| self.is_about(stands, shards);
            let says = || InVain::Says { answer: format!("{answer:?}") };
            let stands = stands.filter(is_about_these).ok_or_else(says)?;
            // An aggregator that was set aside does not know of later arming.
            if self.inner.ledger.lock().view_start(holder) != Some(start) {
                return Err(InVain::UnknownStart.into());
            }
            if stands.of_all.ledger < terms.not_before {
                return Err(InVain::LedgerBehind { applied: stands.of_all.ledger, wanted: terms.not_before }.into());
            }
            dialogue.stands(&stands);
            match self.asking().take(self.now(), (holder, start), stands) {
                Taken::StandsBehind => return Err(InVain::ValuesBehind.into()),
                Taken::ShownHere if terms.of_values => return Err(AskError::ShownHere),
                Taken::ShownHere | Taken::Yes => {}
            }
            dialogue.take(answer).map_err(InVain::from)?;
        }
        Ok(dialogue)
    }

    /// Whether stands are those of some shards, or of parts of each, as far as it is known here what is a part of what.
    fn is_about(&self, stands: &Stands, shards: &BTreeSet<ShardId>) -> bool {
        let said = stands.by_shard.keys();
        if said.clone().eq(shards) {
            return true;
        }
        let lineage = self.inner.ledger.lock().shard_map().lineage();
        // A request for a page may be for a range from before a split and for its parts.
        let is_asked = |&said: &ShardId| shards.iter().any(|&of| lineage.is_within(said, of));
        let is_said = |&of: &ShardId| said.clone().any(|&said| lineage.is_within(said, of));
        said.clone().all(is_asked) && shards.iter().all(is_said)
    }

    fn nobody(&self, mesh: &Mesh, shard: ShardId) -> HeldError {
        let holders = self.inner.core.lock().seats().holders(shard, self.inner.own.dc);
        let names: Vec<String> = holders.map(|holder| mesh.name_of(holder)).collect();
        HeldError::NotServing { shard: shard.0, holders: names.join(" and ") }
    }
}

/// The questions to one holder, one after the other, each made from the answers so far.
pub(crate) trait Dialogue {
    /// `None`: it has said all.
    fn next(&self) -> Option<Question>;

    /// Error: it is no answer to that question.
    fn take(&mut self, answer: Answer) -> Result<(), NoAnswer>;

    /// How the view that answers stands; said before the answer is taken.
    fn stands(&mut self, _stands: &Stands) {}
}

/// On which terms holders are asked.
#[derive(Clone, Copy)]
pub(crate) struct Terms {
    /// In all.
    pub patience: Duration,
    /// For one answer: then another one is asked.
    pub within: Duration,
    /// No answer is taken of a ledger that had applied less.
    pub not_before: LogIndex,
    /// Values are asked for, which never go back for a reader.
    pub of_values: bool,
}

impl Terms {
    pub const AT_ONCE: Terms = Terms { within: AT_ONCE_PATIENCE, ..Terms::READ };
    pub const READ: Terms =
        Terms { patience: HELD_PATIENCE, within: ANSWERED_WITHIN, not_before: LogIndex(0), of_values: true };
    pub const LOOK: Terms =
        Terms { patience: LOOK_PATIENCE, within: LOOK_PATIENCE, not_before: LogIndex(0), of_values: false };
}

/// Why an answer is none to the question.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoAnswer {
    #[error("no {wanted}, but {answer}")]
    Other { wanted: &'static str, answer: String },
    #[error("{told} readings of {asked} counters")]
    Readings { told: usize, asked: usize },
    #[error(transparent)]
    Counts(#[from] GatherError),
}

/// Why a holder was asked in vain.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InVain {
    #[error("it is not connected")]
    NotConnected,
    #[error("it does not answer within {within:?}")]
    Late { within: Duration },
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
    #[error("it says {answer}")]
    Says { answer: String },
    #[error("the ledger, as applied here, does not know of its start")]
    UnknownStart,
    #[error("its ledger is applied up to entry {}: the request needs entry {}", applied.0, wanted.0)]
    LedgerBehind { applied: LogIndex, wanted: LogIndex },
    #[error("it lacks values that were shown here")]
    ValuesBehind,
    #[error(transparent)]
    NoAnswer(#[from] NoAnswer),
}

/// Why one holder said nothing that can be used.
pub(crate) enum AskError {
    /// Another one may say it, or it itself later.
    InVain(InVain),
    /// No holder will answer.
    Refused(String),
    /// It is to be looked up here.
    ShownHere,
}

impl From<InVain> for AskError {
    fn from(why: InVain) -> AskError {
        AskError::InVain(why)
    }
}

/// Own counts of counters, in their order.
pub(crate) struct AskReadings {
    counters: Vec<CounterName>,
    readings: Vec<Reading>,
}

/// Readings of counters, those that are shown from here, and where the others are.
pub(crate) struct Parted {
    pub readings: Vec<Option<Reading>>,
    pub elsewhere: Elsewhere,
}

/// By shard the places of counters in a list.
pub(crate) struct Elsewhere(pub BTreeMap<ShardId, Vec<usize>>);

impl Elsewhere {
    /// Begins to ask for those of some shards.
    pub fn begin(&self, shards: &BTreeSet<ShardId>, counters: &[CounterName]) -> Placed {
        let places: Vec<usize> = shards.iter().flat_map(|shard| &self.0[shard]).copied().collect();
        let asked = places.iter().map(|&at| counters[at].clone()).collect();
        Placed(places, AskReadings { counters: asked, readings: Vec::new() })
    }
}

/// Readings with their places in a list.
pub(crate) struct Placed(Vec<usize>, AskReadings);

impl Placed {
    pub fn put(self, readings: &mut [Option<Reading>]) {
        self.0.into_iter().zip(self.1.readings).for_each(|(at, reading)| readings[at] = Some(reading));
    }
}

impl Dialogue for Placed {
    fn next(&self) -> Option<Question> {
        self.1.next()
    }

    fn take(&mut self, answer: Answer) -> Result<(), NoAnswer> {
        self.1.take(answer)
    }
}

impl Dialogue for AskReadings {
    fn next(&self) -> Option<Question> {
        let left = &self.counters[self.readings.len()..];
        let next = left[..left.len().min(SHARD_ASK_COUNTERS_MAX)].to_vec();
        (!next.is_empty()).then_some(Question::Held(ShardAsk::Readings { counters: next }))
    }

    fn take(&mut self, answer: Answer) -> Result<(), NoAnswer> {
        let Answer::Held(ShardAnswer::Readings(values)) = answer else {
            return Err(NoAnswer::Other { wanted: "readings", answer: format!("{answer:?}") });
        };
        let asked = (self.counters.len() - self.readings.len()).min(SHARD_ASK_COUNTERS_MAX);
        if values.values.len() != asked {
            return Err(NoAnswer::Readings { told: values.values.len(), asked });
        }
        self.readings.extend(values.readings());
        Ok(())
    }
}

/// Counts of counters, and how the view stood that tells them, at the first of its answers.
pub(crate) struct AskCounts {
    pub inquiry: Inquiry,
    pub stands: Option<Stands>,
    pub answers: usize,
}

impl AskCounts {
    pub fn new(inquiry: Inquiry) -> AskCounts {
        AskCounts { inquiry, stands: None, answers: 0 }
    }
}

impl Dialogue for AskCounts {
    fn next(&self) -> Option<Question> {
        self.inquiry.ask().map(|ask| Question::Held(ShardAsk::Counts(ask)))
    }

    fn stands(&mut self, stands: &Stands) {
        self.stands.get_or_insert_with(|| stands.clone());
    }

    fn take(&mut self, answer: Answer) -> Result<(), NoAnswer> {
        let Answer::Held(ShardAnswer::Counts(counts)) = answer else {
            return Err(NoAnswer::Other { wanted: "counts", answer: format!("{answer:?}") });
        };
        self.answers += 1;
        Ok(self.inquiry.take(counts)?)
    }
}

/// Counts that several processes have told.
pub struct Together {
    pub counts: Gathered,
    /// Of how many instants they are: each answer is of one.
    pub instants: usize,
    /// The basis of totals, if they were asked for.
    pub basis: Option<Basis>,
}

/// One question with one answer.
pub(crate) struct AskOnce {
    question: Question,
    pub answer: Option<Answer>,
}

impl AskOnce {
    pub fn new(question: Question) -> AskOnce {
        AskOnce { question, answer: None }
    }
}

impl Dialogue for AskOnce {
    fn next(&self) -> Option<Question> {
        self.answer.is_none().then(|| self.question.clone())
    }

    fn take(&mut self, answer: Answer) -> Result<(), NoAnswer> {
        self.answer = Some(answer);
        Ok(())
    }
}

async fn ask_on(connection: &Connection, question: &Question) -> Result<Reply, ExchangeError> {
    let Channel { mut reader, mut writer } = connection.open_channel(channel::HELD).await?;
    send_only(&mut writer, wire::encode(question).into()).await?;
    let reply = next_message(&mut reader).await?;
    wire::decode(&reply).map_err(ExchangeError::malformed)
}
