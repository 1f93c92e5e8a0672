//! Counts that several processes hold, gathered by one that answers.
//!
//! A counter's own count is at the holders of its shard. Its total is its own count and the shares of all shards, each at a
//! holder of that shard. The answering process asks one process for each shard, so nothing is added twice, and evaluates the
//! question over their answers. The data of each counter comes from one instant of the process that sends it; different processes
//! send from different instants.

use super::inquiry::{CountsAnswer, CountsAsk, Cut, Inquiry};
use super::read::{Buckets, Of, Source, plan_at, plan_series};
use super::{QueryError, SeriesQuery, Wanted, WindowQuery};
use crate::view::{Total, View};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use tidemark_ledger::ledger::Ledger;
use tidemark_types::ids::{CounterName, Half};
use tidemark_types::limits::MESSAGE_BYTES_MAX;
use tidemark_types::series::{BucketId, Horizon, Totals};
use tidemark_types::time::WallMs;
use tidemark_wire::msg::Reading;
use tidemark_wire::read::READ_COUNTERS_MAX;
use tidemark_wire::shards::{ShardId, ShardMask};

/// Counters of one question between processes; of more, several are asked. The longest names still fit a message.
pub const SHARD_ASK_COUNTERS_MAX: usize = READ_COUNTERS_MAX;
/// Buckets of one answer: the rest is asked for again. A counter may have more than a message holds.
pub const COUNTS_BUCKETS_MAX: usize = 1 << 14;
/// Bytes of a counter's data beside its buckets: a reading, two shares, two lists of pieces.
const COUNTS_HEAD_BYTES: usize = 60 + 2 * 10 + 2 * 3;
/// Bytes of a bucket and its part of the head of a piece and of a granularity.
const BUCKET_BYTES_MAX: usize = 10 + 5 + 4;
/// Bytes of a namespace and how far it has expired.
const HORIZON_BYTES_MAX: usize = 65 + 7 + 8 * 6;
const _: () = assert!(
    SHARD_ASK_COUNTERS_MAX * COUNTS_HEAD_BYTES
        + COUNTS_BUCKETS_MAX * BUCKET_BYTES_MAX
        + tidemark_types::limits::NAMESPACES_MAX * HORIZON_BYTES_MAX
        <= MESSAGE_BYTES_MAX
);

/// The part that one process adds to one counter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Its own count as it is shown, from the process that was asked for the counter's shard.
    #[serde(with = "super::asks::reading")]
    pub reading: Option<Reading>,
    /// The increments that flow to it, modulo 2^64.
    pub up: u64,
    pub down: u64,
    /// The part that both add to buckets.
    #[serde(with = "super::asks::pieces")]
    pub up_buckets: Totals,
    #[serde(with = "super::asks::pieces")]
    pub down_buckets: Totals,
}

impl Counts {
    /// The number of buckets in both halves.
    pub fn len(&self) -> usize {
        self.up_buckets.len() + self.down_buckets.len()
    }

    /// Whether there is no bucket.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds buckets that were left out before.
    pub(super) fn go_on_with(&mut self, rest: &Counts) {
        self.up_buckets.add_totals(&rest.up_buckets, None);
        self.down_buckets.add_totals(&rest.down_buckets, None);
    }

    /// Leaves out all but the first `most` buckets, and says where they would go on.
    fn cut_to(&mut self, most: usize) -> Option<Cut> {
        let ups = self.up_buckets.len();
        let place = |half, bucket: BucketId| Cut { half, granularity: bucket.granularity, index: bucket.index };
        let ups_places = self.up_buckets.buckets().map(|(bucket, _)| place(Half::Up, bucket));
        let downs_places = self.down_buckets.buckets().map(|(bucket, _)| place(Half::Down, bucket));
        let cut = ups_places.chain(downs_places).nth(most)?;
        self.up_buckets = Totals::from_buckets(self.up_buckets.buckets().take(most));
        self.down_buckets = Totals::from_buckets(self.down_buckets.buckets().take(most.saturating_sub(ups)));
        Some(cut)
    }
}

/// Answers a question from a view that holds all the shards that it names: counters in the requested order, as many as fit, at
/// least one. The buckets of the first counter may be so many that they continue in another answer.
pub fn gather(view: &View, ledger: &Ledger, ask: &CountsAsk) -> CountsAnswer {
    gather_some(view, ledger, ask, COUNTS_BUCKETS_MAX)
}

/// The same with at most `buckets_max` buckets.
pub fn gather_some(view: &View, ledger: &Ledger, ask: &CountsAsk, buckets_max: usize) -> CountsAnswer {
    let mut answer = CountsAnswer::default();
    let mut room = buckets_max;
    for (at, counter) in ask.counters.iter().enumerate() {
        let is_first = answer.counts.is_empty();
        let mut counts = counts_of(view, ledger, ask, at, ask.from.filter(|_| is_first));
        if counts.len() > room && !is_first {
            break;
        }
        answer.cut = answer.cut.or(counts.cut_to(room));
        room -= counts.len();
        answer.counts.push(counts);
        if !ask.wanted.is_nothing() && !answer.horizons.contains_key(counter.namespace()) {
            let horizon = ask.of.horizon(view, counter.namespace()).cloned();
            answer.horizons.extend(horizon.map(|horizon| (counter.namespace().to_owned(), horizon)));
        }
        if answer.cut.is_some() {
            break;
        }
    }
    answer
}

/// The counts of the counter at a place of the question.
fn counts_of(view: &View, ledger: &Ledger, ask: &CountsAsk, at: usize, from: Option<Cut>) -> Counts {
    let counter = &ask.counters[at];
    let mask = ask.masks.get(at).copied().unwrap_or_default();
    let is_own = ask.shards.contains(&view.shard_of(counter));
    let mut counts = Counts { reading: is_own.then(|| view.read(counter, ledger)), ..Counts::default() };
    if !view.is_registered(ledger) {
        return counts;
    }
    let is_asked = |shard: &ShardId| ask.of == Of::Total && mask.has(*shard) && ask.shards.contains(shard);
    for (_, share) in view.shares(counter, ledger).filter(|(shard, _)| from.is_none() && is_asked(shard)) {
        counts.up = counts.up.wrapping_add(share.count(Half::Up));
        counts.down = counts.down.wrapping_add(share.count(Half::Down));
    }
    if ask.wanted.is_nothing() {
        return counts;
    }
    let generation = ledger.resets().generation(counter);
    let of_half = |half| {
        let mut buckets = Vec::new();
        if is_own {
            let rows = view.held_rows(counter, half, generation);
            rows.for_each(|row| ask.wanted.pick(&Buckets::Row(row), &mut buckets));
        }
        for (_, share) in view.inherited_buckets(counter, half, ledger).filter(|(shard, _)| is_asked(shard)) {
            ask.wanted.pick(&Buckets::Shares(share), &mut buckets);
        }
        buckets.retain(|&(BucketId { granularity, index }, _)| {
            from.is_none_or(|from| Cut { half, granularity, index } >= from)
        });
        Totals::from_buckets(buckets)
    };
    (counts.up_buckets, counts.down_buckets) = (of_half(Half::Up), of_half(Half::Down));
    counts
}

/// Why an answer cannot be taken in, or be read. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GatherError {
    #[error("an answer has {counters} counters: {asked} were requested")]
    Length { asked: usize, counters: usize },
    #[error("an answer continues where it has been already, or with a counter that is not its only one")]
    GoesBack,
    #[error("a counter began again while its buckets were read: request it again")]
    BeganAgain,
    #[error("the answers lack data of {0} requested counters")]
    Unfinished(usize),
    #[error("{0} was not requested")]
    NotAsked(CounterName),
    #[error("shard {} of {counter} came twice", shard.0)]
    Twice { counter: CounterName, shard: ShardId },
    #[error("the process that answered for {0} takes it for a counter of another shard")]
    OtherShard(CounterName),
    #[error("shard {} does not exist", .0.0)]
    NoShard(ShardId),
    #[error("no answer has the part of shard {} in {counter}", shard.0)]
    Missing { counter: CounterName, shard: ShardId },
    #[error("buckets of namespace {0:?} have expired at the process that holds them")]
    Expired(String),
}

/// The data received so far of some counters, each shard from one process.
#[derive(Clone, Debug)]
pub struct Gathering {
    of: Of,
    /// By namespace, as of the beginning: plans are made with these.
    horizons: BTreeMap<String, Horizon>,
    /// The same with all that has expired at the asked processes.
    later: BTreeMap<String, Horizon>,
    expired: Option<String>,
    /// All that there are.
    shards: BTreeSet<ShardId>,
    counters: BTreeMap<CounterName, Told>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Told {
    own: ShardId,
    /// For a total: the shards that may add to it, and its own.
    sources: ShardMask,
    by: BTreeSet<ShardId>,
    counts: Counts,
}

impl Told {
    fn new(own: ShardId, sources: ShardMask) -> Told {
        Told { own, sources, by: BTreeSet::new(), counts: Counts::default() }
    }

    /// Whether a shard has to be asked for.
    fn needs(&self, of: Of, shard: ShardId) -> bool {
        match of {
            Of::Direct => shard == self.own,
            Of::Total => self.sources.has(shard),
        }
    }
}

/// Some counters with complete data: equal to the answer of one process that holds all shards.
#[derive(Clone, Debug)]
pub struct Gathered {
    horizons: BTreeMap<String, Horizon>,
    counters: BTreeMap<CounterName, (Total, [Totals; 2])>,
}

impl Gathering {
    /// Begins without data. The places of the counters, the shards that add to them, and the kept buckets are those of this view
    /// now, also for shards that it does not hold.
    pub fn begin(of: Of, view: &View, ledger: &Ledger, counters: &[CounterName]) -> Gathering {
        let mut horizons = BTreeMap::new();
        for namespace in counters.iter().map(CounterName::namespace) {
            if !horizons.contains_key(namespace) {
                let horizon = of.horizon(view, namespace).cloned();
                horizons.extend(horizon.map(|horizon| (namespace.to_owned(), horizon)));
            }
        }
        let told = |counter: &CounterName| {
            let own = view.shard_of(counter);
            (counter.clone(), Told::new(own, view.sources(counter, ledger).with(ShardMask::of(own))))
        };
        let shards = view.ranges().iter().map(|range| range.shard).collect();
        let counters = counters.iter().map(told).collect();
        Gathering { of, later: horizons.clone(), horizons, expired: None, shards, counters }
    }

    /// The same without data, less the buckets that have expired at the asked processes: plans leave them out now.
    pub fn again(&self) -> Gathering {
        let untold = |(counter, told): (&CounterName, &Told)| (counter.clone(), Told::new(told.own, told.sources));
        let horizons = self.later.clone();
        let later = self.later.clone();
        let counters = self.counters.iter().map(untold).collect();
        Gathering { of: self.of, horizons, later, expired: None, shards: self.shards.clone(), counters }
    }

    /// Whether it uses other ranges than the view: one was split since.
    pub fn is_before_split(&self, view: &View) -> bool {
        self.shards.len() != view.ranges().count()
    }

    /// The buckets that [`read_at`](super::read_at) reads. Errors: its own, before any process is asked.
    pub fn wanted_at(
        &self,
        at: WallMs,
        counters: &[CounterName],
        windows: &[WindowQuery],
    ) -> Result<Wanted, QueryError> {
        let plans = plan_at(|namespace| self.horizons.get(namespace), at, counters, windows)?;
        Ok(Wanted::of_windows(plans.values().flatten()))
    }

    /// The buckets that [`read_series`](super::read_series) reads. Errors: its own.
    pub fn wanted_series(&self, at: WallMs, namespace: &str, query: &SeriesQuery) -> Result<Wanted, QueryError> {
        plan_series(self.horizons.get(namespace), at, namespace, query).map(|plan| Wanted::of_series(&plan))
    }

    /// The requested counts.
    pub fn of(&self) -> Of {
        self.of
    }

    /// The shards that have to be asked for.
    pub fn needs(&self) -> BTreeSet<ShardId> {
        let is_needed = |shard: &ShardId| self.counters.values().any(|told| told.needs(self.of, *shard));
        self.shards.iter().copied().filter(is_needed).collect()
    }

    /// Begins to ask one process for some shards, about the counters that need one of them.
    pub fn inquiry(&self, shards: BTreeSet<ShardId>, wanted: &Wanted) -> Inquiry {
        let is_asked = |told: &Told| shards.iter().any(|&shard| told.needs(self.of, shard));
        let mut counters = Vec::new();
        let mut masks = Vec::new();
        for (counter, told) in self.counters.iter().filter(|(_, told)| is_asked(told)) {
            counters.push(counter.clone());
            masks.extend((self.of == Of::Total).then_some(told.sources));
        }
        Inquiry::new(CountsAsk { of: self.of, shards, counters, wanted: wanted.clone(), from: None, masks })
    }

    /// Takes in all that one process has told. Errors: it is not all, a shard was told before, or the process takes counters for those of
    /// other shards.
    pub fn add(&mut self, inquiry: Inquiry) -> Result<(), GatherError> {
        inquiry.check_finished()?;
        let Inquiry { all: ask, counts, horizons, .. } = inquiry;
        if let Some(&shard) = ask.shards.difference(&self.shards).next() {
            return Err(GatherError::NoShard(shard));
        }
        for (counter, counts) in ask.counters.iter().zip(&counts) {
            let told = self.counters.get(counter).ok_or_else(|| GatherError::NotAsked(counter.clone()))?;
            if let Some(&shard) = told.by.intersection(&ask.shards).next() {
                return Err(GatherError::Twice { counter: counter.clone(), shard });
            }
            if counts.reading.is_some() != ask.shards.contains(&told.own) {
                return Err(GatherError::OtherShard(counter.clone()));
            }
        }
        for (counter, counts) in ask.counters.iter().zip(counts) {
            let told = self.counters.get_mut(counter).expect("all counters were looked for");
            told.by.extend(&ask.shards);
            told.counts.reading = told.counts.reading.or(counts.reading);
            told.counts.up = told.counts.up.wrapping_add(counts.up);
            told.counts.down = told.counts.down.wrapping_add(counts.down);
            told.counts.go_on_with(&counts);
        }
        let namespaces: BTreeSet<&str> = ask.counters.iter().map(CounterName::namespace).collect();
        namespaces
            .into_iter()
            .filter(|_| !ask.wanted.is_nothing())
            .for_each(|name| self.expire(name, horizons.get(name)));
        Ok(())
    }

    /// Notes the buckets that have expired at an asked process, or are not kept there.
    fn expire(&mut self, namespace: &str, there: Option<&Horizon>) {
        let (Some(here), Some(later)) = (self.horizons.get(namespace), self.later.get_mut(namespace)) else { return };
        let is_kept =
            |&(granularity, index): &(_, u32)| there.is_some_and(|there| there.keeps(BucketId { granularity, index }));
        if !here.first().iter().all(is_kept) {
            self.expired = Some(namespace.to_owned());
        }
        there.into_iter().for_each(|there| later.merge(there));
    }

    /// The data that can be read now. Errors: the answer of a shard is missing, or a process has not kept the requested buckets.
    /// Then ask [`Gathering::again`].
    pub fn complete(&self) -> Result<Gathered, GatherError> {
        if let Some(namespace) = &self.expired {
            return Err(GatherError::Expired(namespace.clone()));
        }
        let mut counters = BTreeMap::new();
        for (counter, told) in &self.counters {
            let Told { own, by, counts, .. } = told;
            let mut needed = self.shards.iter().copied().filter(|&shard| told.needs(self.of, shard));
            let direct = match (needed.find(|shard| !by.contains(shard)), counts.reading) {
                (None, Some(direct)) => direct,
                (missing, _) => {
                    let counter = counter.clone();
                    let shard = missing.unwrap_or(*own);
                    return Err(GatherError::Missing { counter, shard });
                }
            };
            let up = direct.up.saturating_add(counts.up);
            let down = direct.down.saturating_add(counts.down);
            let buckets = [counts.up_buckets.clone(), counts.down_buckets.clone()];
            counters.insert(counter.clone(), (Total { direct, up, down }, buckets));
        }
        Ok(Gathered { horizons: self.horizons.clone(), counters })
    }
}

impl Gathered {
    /// A counter's own count and its total; of own counts both are the same. Panics if it was not asked for.
    pub fn total(&self, counter: &CounterName) -> Total {
        self.of(counter).0
    }

    fn of(&self, counter: &CounterName) -> &(Total, [Totals; 2]) {
        self.counters.get(counter).expect("only counters that were asked for are read")
    }
}

impl Source for Gathered {
    fn horizon(&self, namespace: &str) -> Option<&Horizon> {
        self.horizons.get(namespace)
    }

    /// The fields beside the halves concern the counter itself only.
    fn reading(&self, counter: &CounterName) -> Reading {
        let Total { direct, up, down } = self.total(counter);
        Reading { up, down, ..direct }
    }

    fn rows(&self, counter: &CounterName, half: Half, generation: u32) -> Vec<Buckets<'_>> {
        let (total, buckets) = self.of(counter);
        debug_assert_eq!(total.direct.generation, generation, "buckets are those of the reading's generation");
        vec![Buckets::Sums(&buckets[half as usize])]
    }
}
