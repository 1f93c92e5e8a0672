//! Reads of counters that this aggregator and others of its data centre hold, each a part.

use super::Aggregator;
use crate::held::{
    AskCounts, AskOnce, Elsewhere, GATHERED_MAX, GatheringError, HeldError, HeldService, Parted, Terms, Together,
};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::Arc;
use tidemark_proto::aggregator::AggregatorCore;
use tidemark_proto::asking::{About, Answer, Question};
use tidemark_proto::ids::{CounterName, LogIndex};
use tidemark_proto::ledger::Ledger;
use tidemark_proto::msg::Reading;
use tidemark_proto::query::{GatherError, Gathering, KeyRange, Of, Page, QueryError, ShardAnswer, ShardAsk, Wanted};
use tidemark_proto::shards::ShardId;

impl Aggregator {
    /// Answers what only the process around this aggregator can say to others of the data centre; the first service that is given stays.
    pub fn serve_held(&self, service: Arc<dyn HeldService>) {
        self.held().set_service(service);
    }

    /// Whether several aggregators of the data centre hold a part of its view each.
    pub fn is_split(&self) -> bool {
        self.held().is_split()
    }

    /// Whether a counter is shown from here.
    fn holds(&self, counter: &CounterName) -> bool {
        self.held().at_once(|core, _, is_shown| is_shown(core.view().shard_of(counter)))
    }

    /// The answer about a counter from here, if it was held here all the while.
    pub async fn if_held<T>(&self, counter: &CounterName, say: impl Future<Output = T>) -> Option<T> {
        if !self.holds(counter) {
            return None;
        }
        let said = say.await;
        self.holds(counter).then_some(said)
    }

    /// Looks at the view at one instant, if these counters are all shown from here then.
    pub fn look_at<T>(&self, counters: &[CounterName], look: impl FnOnce(&AggregatorCore, &Ledger) -> T) -> Option<T> {
        self.held().at_once(|core, ledger, is_shown| {
            let is_here = counters.iter().all(|counter| is_shown(core.view().shard_of(counter)));
            is_here.then(|| look(core, ledger))
        })
    }

    /// The value of a counter, if it is shown from here.
    ///
    /// # Errors
    /// This view shows nothing.
    pub fn read_here(&self, counter: &CounterName) -> Result<Option<Reading>, HeldError> {
        let reading = self.look_at(std::slice::from_ref(counter), |core, ledger| core.read(counter, ledger));
        if self.shows() { Ok(reading) } else { Err(HeldError::NotShown) }
    }

    /// The slots that are not shown from here at present.
    pub fn held_elsewhere(&self) -> BTreeSet<ShardId> {
        self.held().at_once(|core, _, is_shown| {
            core.view().ranges().iter().map(|range| range.shard).filter(|&shard| !is_shown(shard)).collect()
        })
    }

    /// Values of many counters; of those held here, and of those that another one holds, each at one instant.
    ///
    /// # Errors
    /// No holder of one of them answers in time, or this view shows nothing.
    pub async fn read_many(&self, counters: &[CounterName]) -> Result<Vec<Reading>, HeldError> {
        self.read_not_before(counters, LogIndex(0)).await
    }

    /// The same by views beside which the ledger has been applied up to there at least.
    pub(crate) async fn read_not_before(
        &self,
        counters: &[CounterName],
        not_before: LogIndex,
    ) -> Result<Vec<Reading>, HeldError> {
        if !self.is_split() {
            let readings = self.get_many(counters.iter());
            return if self.shows() { Ok(readings) } else { Err(HeldError::NotShown) };
        }
        let mut read = self.read_parted(counters, not_before).await;
        for _ in 1..GATHERED_MAX {
            if read != Err(HeldError::ShownHere) {
                break;
            }
            read = self.read_parted(counters, not_before).await;
        }
        read
    }

    async fn read_parted(&self, counters: &[CounterName], not_before: LogIndex) -> Result<Vec<Reading>, HeldError> {
        let Parted { mut readings, elsewhere } = self.part(counters);
        if !self.shows() {
            return Err(HeldError::NotShown);
        }
        let begin = |shards: &BTreeSet<ShardId>| elsewhere.begin(shards, counters);
        let terms = Terms { not_before, ..Terms::READ };
        let told = self.held().ask(self.mesh(), elsewhere.0.keys().copied().collect(), terms, begin).await?;
        told.into_iter().for_each(|told| told.put(&mut readings));
        Ok(readings.into_iter().collect::<Option<Vec<Reading>>>().expect("all are shown here, or told"))
    }

    /// Values of many counters, as [`Aggregator::read_many`], as far as they are told at once: the holder of others is asked once.
    pub(crate) async fn read_at_once(&self, counters: &[CounterName]) -> Vec<Option<Reading>> {
        let Parted { mut readings, elsewhere } = self.part(counters);
        let begin = |shards: &BTreeSet<ShardId>| elsewhere.begin(shards, counters);
        if !self.shows() {
            return vec![None; counters.len()];
        }
        let (chosen, _) = self.held().chosen(self.mesh(), elsewhere.0.keys().copied(), &BTreeSet::new());
        for (.., told) in self.held().ask_each(self.mesh(), chosen, Terms::AT_ONCE, begin).await {
            if let Ok(told) = told {
                told.put(&mut readings);
            }
        }
        readings
    }

    /// Values of counters, as far as they are shown from here, all at one instant.
    fn part(&self, counters: &[CounterName]) -> Parted {
        let mut elsewhere = BTreeMap::<ShardId, Vec<usize>>::new();
        let mut readings = vec![None; counters.len()];
        self.held().at_once(|core, ledger, is_shown| {
            let shards: Vec<ShardId> = counters.iter().map(|counter| core.view().shard_of(counter)).collect();
            let shown: BTreeSet<ShardId> =
                shards.iter().copied().collect::<BTreeSet<_>>().into_iter().filter(|&shard| is_shown(shard)).collect();
            for (at, shard) in shards.into_iter().enumerate() {
                match shown.contains(&shard) {
                    true => readings[at] = Some(core.read(&counters[at], ledger)),
                    false => elsewhere.entry(shard).or_default().push(at),
                }
            }
        });
        Parted { readings, elsewhere: Elsewhere(elsewhere) }
    }

    /// Counters as a holder of all shards would show them. Each holder of a part tells its part as of one instant. `wanted` says which
    /// buckets are needed, given what is kept.
    ///
    /// # Errors
    /// As [`Aggregator::read_many`], or the question cannot be planned.
    pub async fn gather(
        &self,
        of: Of,
        counters: &[CounterName],
        wanted: impl Fn(&Gathering) -> Result<Wanted, QueryError>,
    ) -> Result<Together, GatheringError> {
        let mut gathering = self.held().at_once(|core, ledger, _| Gathering::begin(of, core.view(), ledger, counters));
        for _ in 0..GATHERED_MAX {
            let wanted = wanted(&gathering)?;
            let Some(gathered) = self.gather_once(&mut gathering, &wanted).await? else {
                // A slot was split meanwhile, or is shown from here now.
                let begin =
                    |core: &AggregatorCore, ledger: &Ledger| Gathering::begin(of, core.view(), ledger, counters);
                gathering = self.held().at_once(|core, ledger, _| begin(core, ledger));
                continue;
            };
            match gathered {
                Ok(together) => return Ok(together),
                // Where it is asked for something has expired that is kept here: asked again, it is left out.
                Err(GatherError::Expired(_)) => gathering = gathering.again(),
                Err(error) => return Err(HeldError::Refused(error.to_string()).into()),
            }
        }
        let reason =
            "the holders of its parts keep other buckets, or slots moved or were split all the while: ask again";
        Err(HeldError::Refused(reason.to_owned()).into())
    }

    /// `None`: it goes by slots of before a split, or asks for what is shown from here now.
    async fn gather_once(
        &self,
        gathering: &mut Gathering,
        wanted: &Wanted,
    ) -> Result<Option<Result<Together, GatherError>>, HeldError> {
        let needed = gathering.needs();
        let here = self.held().at_once(|core, ledger, is_shown| {
            if gathering.is_before_split(core.view()) {
                return None;
            }
            let (here, elsewhere): (BTreeSet<ShardId>, BTreeSet<ShardId>) =
                needed.into_iter().partition(|&shard| is_shown(shard));
            let mut inquiry = (!here.is_empty()).then(|| gathering.inquiry(here, wanted));
            inquiry.iter_mut().for_each(|inquiry| inquiry.answer(core.view(), ledger));
            let basis = (gathering.of() == Of::Total).then(|| core.basis(ledger));
            Some((inquiry.into_iter().collect::<Vec<_>>(), elsewhere, basis))
        });
        let Some((mut told, elsewhere, basis)) = here else { return Ok(None) };
        if !self.shows() {
            return Err(HeldError::NotShown);
        }
        let begin = |shards: &BTreeSet<ShardId>| AskCounts::new(gathering.inquiry(shards.clone(), wanted));
        let asked = match self.held().ask(self.mesh(), elsewhere, Terms::READ, begin).await {
            Err(HeldError::ShownHere) => return Ok(None),
            asked => asked?,
        };
        let instants = told.len() + asked.iter().map(|told| told.answers).sum::<usize>();
        let basis = basis.map(|basis| basis.with(asked.iter().filter_map(|told| told.stands.as_ref())));
        told.extend(asked.into_iter().map(|told| told.inquiry));
        let added = told.into_iter().try_for_each(|inquiry| gathering.add(inquiry));
        let counts = added.and_then(|()| gathering.complete());
        Ok(Some(counts.map(|counts| Together { counts, instants: instants.max(1), basis })))
    }

    /// The next counters of a range in slots that others hold: at present, or before.
    ///
    /// # Errors
    /// As [`Aggregator::read_many`].
    pub async fn scan_elsewhere(
        &self,
        before: BTreeSet<ShardId>,
        of: Of,
        keys: &KeyRange,
        most: u32,
    ) -> Result<Vec<Page>, HeldError> {
        let elsewhere = self.held_elsewhere().union(&before).copied().collect();
        let begin = |shards: &BTreeSet<ShardId>| {
            let shards = shards.clone();
            AskOnce::new(Question::Held(ShardAsk::Scan { of, shards, keys: keys.clone(), most }))
        };
        let told = self.held().ask(self.mesh(), elsewhere, Terms::LOOK, begin).await?;
        let page = |told: AskOnce| match told.answer {
            Some(Answer::Held(ShardAnswer::Page(page))) => Ok(page),
            other => Err(HeldError::Refused(format!("no page came, but {other:?}"))),
        };
        told.into_iter().map(page).collect()
    }

    /// The answer of the process around an aggregator that holds a counter, which is not held here.
    ///
    /// # Errors
    /// As [`Aggregator::read_many`], or what that process says against it.
    pub async fn ask_about(&self, what: About, counter: &CounterName) -> Result<Vec<u8>, HeldError> {
        let shard = self.with_core(|core| core.view().shard_of(counter));
        let begin = |_: &BTreeSet<ShardId>| AskOnce::new(Question::About { what, counter: counter.clone() });
        let told = self.held().ask(self.mesh(), BTreeSet::from([shard]), Terms::LOOK, begin).await?;
        match told.into_iter().next().and_then(|told| told.answer) {
            Some(Answer::About(said)) => Ok(said),
            other => Err(HeldError::Refused(format!("something else came: {other:?}"))),
        }
    }
}
