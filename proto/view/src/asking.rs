//! Reads of shards that are held elsewhere in the data centre: the holder to ask, and whether an answer may be shown.
//!
//! A reader of one aggregator is never shown less than before. A holder of a shard never goes back by itself while it runs. But
//! two holders, or two starts of one, may each lack data that the other had shown. So an answer names the state of its view, its
//! *stand*. An answer with a stand behind the shown one is not taken: the same holder is asked again, or the other one. Data that
//! no connected holder has, since only an ended process knew it, is given up after a time.
//!
//! Aggregators of a data centre may learn of a split at different times. A holder is asked for the former ranges as well, and
//! names its stand in the ranges that it has. The shown state of a range counts for both its parts.

use crate::query::{ShardAnswer, ShardAsk};
pub use crate::stand::{OfShard, Stand, Stands};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use tidemark_types::ids::{AggregatorId, CounterName, DcId};
use tidemark_types::limits::{GROUPS_MAX, GUARDED_COUNTERS_MAX, SHARDS_MAX, STANDS_MAX};
use tidemark_types::teeth::{Bug, bites};
use tidemark_types::time::{Span, Time};
use tidemark_wire::shards::{Lineage, Ranges, Seats, ShardId};
use tidemark_wire::wire::{Message, Tail, WireError, bounds::text};

/// A question of one aggregator to another of its data centre, about shards that the other holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Question {
    Held(ShardAsk),
    /// A question that only the process around the core can answer.
    About {
        what: About,
        counter: CounterName,
    },
}

/// A question about a counter that a process answers in its own words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum About {
    /// The counter's state in each data centre.
    DataCentres,
    /// The shown counts beside the groups' counts; with all buckets, or only those that differ.
    Audit { with_rows: bool },
    /// The groups that have not heard that the counter began again.
    Unheard,
}

/// The answer to a [`Question`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// The start of the process that answers.
    pub start: u64,
    /// The stand of its view in the requested shards; `None` if it names none.
    pub stands: Option<Stands>,
    pub answer: Answer,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    Held(ShardAnswer),
    About(Vec<u8>),
    /// Why it says nothing.
    Refused(String),
}

impl Question {
    /// The shards that the answering aggregator has to hold.
    pub fn shards(&self, ranges: &Ranges) -> BTreeSet<ShardId> {
        match self {
            Question::Held(ask) => ask.shards(ranges),
            Question::About { counter, .. } => BTreeSet::from([ranges.find(counter)]),
        }
    }
}

impl Message for Question {
    const TAIL: Tail = Tail::Skipped;

    fn validate(&self) -> Result<(), WireError> {
        match self {
            Question::Held(ask) => ask.validate(),
            Question::About { counter, .. } => Ok(counter.validate()?),
        }
    }
}

impl Message for Reply {
    const TAIL: Tail = Tail::Skipped;

    fn validate(&self) -> Result<(), WireError> {
        if let Some(Stands { of_all, by_shard }) = &self.stands {
            at_most("shards of an answer", by_shard.len(), SHARDS_MAX)?;
            at_most("groups of a stand", of_all.groups.len(), GROUPS_MAX)?;
            for of_shard in by_shard.values() {
                at_most("streams of a stand", of_shard.versions.len(), STANDS_MAX)?;
                at_most("limits of a stand", of_shard.limits.len(), GUARDED_COUNTERS_MAX)?;
            }
        }
        match &self.answer {
            Answer::Held(answer) => answer.validate(),
            // As long as a message at most; the process around it decodes it.
            Answer::About(_) => Ok(()),
            Answer::Refused(reason) => text(reason),
        }
    }
}

fn at_most(what: &'static str, value: usize, max: usize) -> Result<(), WireError> {
    if value > max { Err(WireError::Limit { what, value: value as u64, max: max as u64 }) } else { Ok(()) }
}

/// The time that an answer lacking shown data may take to catch up; then that data is given up.
pub const STAND_PATIENCE: Span = Span::from_secs(5);

/// The state of one shard that was shown here.
#[derive(Clone, Debug)]
struct Shown {
    /// The aggregator that showed it, and its start.
    source: (AggregatorId, u64),
    stand: Stand,
    /// The time since which answers lack a part of it.
    lacking: Option<Time>,
}

/// The outcome of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    Yes,
    /// It lacks data that was shown before: another holder is asked, or the same again.
    StandsBehind,
    /// It is for a shard that is shown from here since the request, and may lack data that was shown.
    ShownHere,
}

/// The side of an aggregator that asks others of its data centre.
#[derive(Clone, Debug, Default)]
pub struct Asking {
    /// By shard that is not split, as far as is known here.
    shown: BTreeMap<ShardId, Shown>,
    /// Shards that are shown from this process's own view.
    here: BTreeSet<ShardId>,
    lineage: Lineage,
    given_up: u64,
}

impl Asking {
    /// Learns the splits of ranges.
    pub fn learn(&mut self, lineage: &Lineage) {
        if lineage.len() <= self.lineage.len() {
            return;
        }
        self.lineage = lineage.clone();
        for (shard, shown) in std::mem::take(&mut self.shown) {
            let is_split = self.lineage.parts(shard).is_some();
            let now = self.now(shard).into_iter().filter(|_| !(is_split && bites(Bug::ShownForgotten)));
            now.for_each(|shard| drop(self.shown.insert(shard, shown.clone())));
        }
        self.here = std::mem::take(&mut self.here).into_iter().flat_map(|shard| self.now(shard)).collect();
    }

    /// The number of splits that are known here.
    pub fn splits_known(&self) -> usize {
        self.lineage.len()
    }

    /// The shards that have a shard's counters now.
    fn now(&self, shard: ShardId) -> Vec<ShardId> {
        match self.lineage.parts(shard) {
            None => vec![shard],
            Some(_) => self.lineage.finest(shard).into_iter().collect(),
        }
    }

    /// The shown states of a shard, or of a part of it.
    fn shown_in(&self, shard: ShardId) -> impl Iterator<Item = &Shown> {
        self.now(shard).into_iter().filter_map(|shard| self.shown.get(&shard))
    }

    /// The holder to ask about a shard: of the connected holders the one that was heard last, else the first.
    pub fn choose(
        &self,
        seats: &Seats,
        dc: DcId,
        shard: ShardId,
        is_connected: impl Fn(AggregatorId) -> bool,
    ) -> Option<AggregatorId> {
        let connected: Vec<AggregatorId> = seats.holders(shard, dc).filter(|&holder| is_connected(holder)).collect();
        let last = self.shown_in(shard).next().map(|shown| shown.source.0);
        last.filter(|last| connected.contains(last)).or(connected.first().copied())
    }

    /// A shard is held here no more, and was shown at this stand until now.
    pub fn left(&mut self, own: AggregatorId, shard: ShardId, stand: Stand) {
        for shard in self.now(shard) {
            self.here.remove(&shard);
            // Data that others had shown and that was missing here was not shown from here either.
            let is_all = self.shown.get(&shard).is_none_or(|shown| stand.covers(&shown.stand));
            if is_all && !bites(Bug::LeftForgotten) {
                // No start has this number: a later state of this view counts as that of another process.
                self.shown.insert(shard, Shown { source: (own, 0), stand: stand.clone(), lacking: None });
            }
        }
    }

    /// Whether a shard that is held here may be shown: this view has come as far as others that showed it here since.
    pub fn may_show(&mut self, now: Time, shard: ShardId, stand: impl FnOnce() -> Stand) -> bool {
        if self.here.contains(&shard) {
            return true;
        }
        let shards = self.now(shard);
        if shards.iter().any(|shard| self.shown.contains_key(shard)) {
            let stand = stand();
            // Each of them, so that none is looked at again that may be.
            let may: Vec<bool> = shards.iter().map(|&shard| self.may_show_one(now, shard, &stand)).collect();
            if may.contains(&false) {
                return false;
            }
        }
        self.here.extend(shards);
        true
    }

    fn may_show_one(&mut self, now: Time, shard: ShardId, stand: &Stand) -> bool {
        let Some(shown) = self.shown.get(&shard) else { return true };
        let source = (shown.source.0, u64::MAX);
        let lacks = self.stands_behind(now, source, shard, stand);
        self.given_up += u64::from(!lacks && self.lacks_some(source, shard, stand));
        match self.shown.get_mut(&shard).filter(|_| lacks && !bites(Bug::StandForgotten)) {
            Some(shown) => {
                shown.lacking.get_or_insert(now);
                false
            }
            None => {
                self.shown.remove(&shard);
                true
            }
        }
    }

    /// An answer about some shards, made of these stands. It may be shown if it is taken.
    pub fn take(&mut self, now: Time, source: (AggregatorId, u64), stands: Stands) -> Taken {
        let mut each: Vec<(ShardId, Stand)> = Vec::new();
        for (shard, stand) in stands.into_each() {
            // The stand of a view in a range is its stand in the parts.
            let (here, elsewhere): (Vec<_>, Vec<_>) =
                self.now(shard).into_iter().partition(|part| self.here.contains(part));
            if elsewhere.is_empty() && !here.is_empty() {
                return Taken::ShownHere;
            }
            each.extend(elsewhere.into_iter().map(|part| (part, stand.clone())));
        }
        let stands = each;
        let lacks = |(shard, stand): &&(ShardId, Stand)| self.stands_behind(now, source, *shard, stand);
        let behind: BTreeSet<ShardId> = stands.iter().filter(lacks).map(|(shard, _)| *shard).collect();
        if !behind.is_empty() && !bites(Bug::StandForgotten) {
            for shard in behind {
                if let Some(shown) = self.shown.get_mut(&shard) {
                    shown.lacking.get_or_insert(now);
                }
            }
            return Taken::StandsBehind;
        }
        self.given_up += stands.iter().filter(|(shard, stand)| self.lacks_some(source, *shard, stand)).count() as u64;
        for (shard, stand) in stands {
            // Answers of one process may overtake each other.
            let known = self.shown.remove(&shard).filter(|shown| shown.source == source);
            let stand = known.map_or(stand.clone(), |shown| shown.stand.joined(&stand));
            self.shown.insert(shard, Shown { source, stand, lacking: None });
        }
        Taken::Yes
    }

    /// The number of answers that were shown though they lacked shown data, since no holder had that data for a time.
    pub fn given_up(&self) -> u64 {
        self.given_up
    }

    fn stands_behind(&self, now: Time, source: (AggregatorId, u64), shard: ShardId, stand: &Stand) -> bool {
        let lacking = self.shown.get(&shard).and_then(|shown| shown.lacking);
        let is_given_up = lacking.is_some_and(|since| now - since >= STAND_PATIENCE);
        !is_given_up && self.lacks_some(source, shard, stand)
    }

    /// Whether it comes from another process than the shown state, and lacks a part of that.
    fn lacks_some(&self, source: (AggregatorId, u64), shard: ShardId, stand: &Stand) -> bool {
        let shown = self.shown.get(&shard);
        shown.is_some_and(|shown| shown.source != source && !stand.covers(&shown.stand))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tidemark_types::ids::{GroupId, LogIndex};
    use tidemark_wire::msg::Version;

    const DC: DcId = DcId(0);
    const SHARD: ShardId = ShardId(2);

    fn holder(seat: u8) -> AggregatorId {
        AggregatorId { dc: DC, seat }
    }

    fn stand(ledger: u64, all: u64, some: u64, version: u64) -> Stand {
        let group = GroupId { dc: DC, group: 0, incarnation: 1 };
        Stand {
            ledger: LogIndex(ledger),
            graph: (3, 0),
            groups: vec![(group, LogIndex(all), LogIndex(some))],
            versions: vec![(DcId(1).into(), Version { epoch: 1, version }, Version { epoch: 1, version })],
            is_settled: true,
            limits: Vec::new(),
        }
    }

    fn take(asking: &mut Asking, at_s: u64, of: (u8, u64), stand: &Stand) -> Taken {
        asking.take(Time(at_s * 1_000_000), (holder(of.0), of.1), Stands::of([(SHARD, stand.clone())]))
    }

    #[test]
    fn another_one_is_shown_once_it_has_all_that_was_and_the_same_at_once() {
        let mut asking = Asking::default();
        assert_eq!(take(&mut asking, 0, (2, 1), &stand(5, 10, 12, 7)), Taken::Yes);
        // Answers of one process may overtake each other; the shown state does not go back.
        assert_eq!(take(&mut asking, 0, (2, 1), &stand(4, 9, 9, 7)), Taken::Yes);
        let unlinked = Stand { graph: (2, 9), ..stand(5, 12, 12, 7) };
        for behind in [stand(4, 12, 12, 7), stand(5, 11, 20, 7), stand(5, 12, 12, 6), unlinked] {
            assert_eq!(take(&mut asking, 1, (3, 1), &behind), Taken::StandsBehind, "{behind:?}");
            // The same holds for one aggregator after a restart.
            assert_eq!(take(&mut asking, 1, (2, 2), &behind), Taken::StandsBehind, "{behind:?}");
        }
        assert_eq!(take(&mut asking, 2, (3, 1), &stand(5, 12, 12, 7)), Taken::Yes);
        assert_eq!(take(&mut asking, 2, (2, 1), &stand(5, 11, 11, 7)), Taken::StandsBehind);
    }

    #[test]
    fn of_what_a_view_has_in_part_it_has_nothing_and_may_have_shown_all() {
        let mut asking = Asking::default();
        let of = AggregatorId::from(DcId(1));
        let version = |version| Version { epoch: 1, version };
        let part = |all, some| Stand { versions: vec![(of, version(all), version(some))], ..stand(5, 12, 12, 0) };
        assert_eq!(take(&mut asking, 0, (2, 1), &part(3, 7)), Taken::Yes);
        assert_eq!(take(&mut asking, 0, (3, 1), &part(6, 9)), Taken::StandsBehind);
        assert_eq!(take(&mut asking, 0, (3, 1), &part(7, 7)), Taken::Yes);
    }

    #[test]
    fn who_has_promised_to_show_less_is_behind_who_had_not() {
        let mut asking = Asking::default();
        let limited = |limit| Stand { limits: vec![(77, limit)], ..stand(5, 12, 12, 7) };
        assert_eq!(take(&mut asking, 0, (2, 1), &limited(100)), Taken::Yes);
        assert_eq!(take(&mut asking, 0, (3, 1), &limited(99)), Taken::StandsBehind, "it shows less");
        assert_eq!(take(&mut asking, 0, (3, 1), &limited(100)), Taken::Yes);
        assert_eq!(take(&mut asking, 0, (2, 1), &stand(5, 12, 12, 7)), Taken::Yes);
        assert_eq!(take(&mut asking, 0, (3, 1), &limited(100)), Taken::StandsBehind);
        assert_eq!(asking.given_up(), 0);
    }

    #[test]
    fn what_comes_back_or_leaves_is_shown_once_it_stands_where_readers_were() {
        let mut asking = Asking::default();
        assert!(Asking::default().may_show(Time(0), SHARD, Stand::default), "nobody has shown anything");
        assert_eq!(take(&mut asking, 0, (2, 1), &stand(5, 12, 12, 7)), Taken::Yes);
        assert!(!asking.may_show(Time(1), SHARD, || stand(5, 11, 11, 7)));
        assert!(asking.may_show(Time(2), SHARD, || stand(5, 12, 12, 7)));
        assert!(asking.may_show(Time(3), SHARD, Stand::default), "from here on it never goes back by itself");
        asking.left(holder(3), SHARD, stand(6, 20, 21, 9));
        assert_eq!(take(&mut asking, 0, (2, 1), &stand(6, 20, 20, 9)), Taken::StandsBehind);
        assert_eq!(take(&mut asking, 0, (2, 1), &stand(6, 21, 21, 9)), Taken::Yes);
        asking.left(holder(3), SHARD, stand(7, 22, 22, 9));
        assert!(!asking.may_show(Time(4), SHARD, || stand(6, 22, 22, 9)));
        assert!(asking.may_show(Time(4) + STAND_PATIENCE, SHARD, || stand(6, 22, 22, 9)), "nobody has it any more");
        assert_eq!(asking.given_up(), 1);
    }

    #[test]
    fn an_answer_that_comes_late_takes_nothing_of_what_was_shown_back() {
        let graph = |pairs| Stand { graph: (3, pairs), ..stand(5, 12, 12, 7) };
        for (more, less) in [
            (stand(5, 12, 12, 8), stand(5, 12, 12, 7)),
            (stand(5, 12, 14, 7), stand(5, 12, 12, 7)),
            (graph(2), graph(1)),
        ] {
            let mut asking = Asking::default();
            assert_eq!(take(&mut asking, 0, (2, 1), &more), Taken::Yes);
            assert_eq!(take(&mut asking, 0, (2, 1), &less), Taken::Yes);
            assert_eq!(take(&mut asking, 0, (3, 1), &less), Taken::StandsBehind, "{more:?}");
        }
        // Shown from here since it was asked for, it may be less than was read here meanwhile.
        let mut asking = Asking::default();
        assert_eq!(take(&mut asking, 0, (2, 1), &stand(5, 12, 12, 7)), Taken::Yes);
        assert!(asking.may_show(Time(1), SHARD, || stand(6, 13, 13, 8)));
        assert_eq!(take(&mut asking, 0, (2, 1), &stand(5, 12, 12, 7)), Taken::ShownHere);
        asking.left(holder(3), SHARD, stand(7, 14, 14, 9));
        assert_eq!(take(&mut asking, 0, (2, 1), &stand(6, 13, 13, 9)), Taken::StandsBehind);
        assert_eq!(take(&mut asking, 0, (2, 1), &stand(7, 14, 14, 9)), Taken::Yes);
    }

    #[test]
    fn what_was_shown_of_a_range_was_shown_of_its_parts_and_one_that_has_not_split_it_stands_in_both() {
        use tidemark_wire::shards::Split;
        let mut asking = Asking::default();
        let [left, right] = [ShardId(8), ShardId(9)];
        assert_eq!(take(&mut asking, 0, (2, 1), &stand(5, 12, 12, 7)), Taken::Yes);
        let split = Split { shard: SHARD, at: CounterName::new("t", b"k").unwrap(), first: left };
        asking.learn(&Lineage::of([split].iter()));
        let part = |asking: &mut Asking, of: (u8, u64), parts: &[(ShardId, Stand)]| {
            asking.take(Time(1), (holder(of.0), of.1), Stands::of(parts.iter().cloned()))
        };
        assert_eq!(part(&mut asking, (3, 1), &[(right, stand(5, 11, 11, 7))]), Taken::StandsBehind);
        assert_eq!(part(&mut asking, (3, 1), &[(right, stand(6, 13, 13, 9))]), Taken::Yes);
        // Another holder has not split it yet, and lacks data that was shown of one part.
        assert_eq!(take(&mut asking, 1, (2, 1), &stand(5, 12, 12, 7)), Taken::StandsBehind);
        assert_eq!(take(&mut asking, 1, (2, 1), &stand(6, 13, 13, 9)), Taken::Yes);
        assert!(!asking.may_show(Time(1), right, || stand(5, 12, 12, 7)));
        assert!(!asking.may_show(Time(1), SHARD, || stand(5, 12, 12, 7)));
        assert!(asking.may_show(Time(1), left, || stand(6, 13, 13, 9)), "of it nobody has shown more");
        assert_eq!(part(&mut asking, (2, 1), &[(left, stand(7, 14, 14, 9))]), Taken::ShownHere);
        assert_eq!(take(&mut asking, 1, (2, 1), &stand(7, 14, 14, 9)), Taken::Yes, "of the other part");
    }

    #[test]
    fn what_nobody_has_any_more_is_given_up_after_a_time_and_not_before() {
        let mut asking = Asking::default();
        let unsettled = Stand { is_settled: false, ..stand(5, 10, 10, 7) };
        assert_eq!(take(&mut asking, 0, (2, 1), &unsettled), Taken::Yes);
        let more = stand(9, 20, 20, 20);
        assert_eq!(
            take(&mut asking, 60, (3, 1), &more),
            Taken::StandsBehind,
            "it may have been told something by a walk"
        );
        assert_eq!(take(&mut asking, 64, (3, 1), &more), Taken::StandsBehind);
        assert_eq!(take(&mut asking, 65, (3, 1), &more), Taken::Yes);
    }

    #[test]
    fn who_was_heard_last_is_asked_again_while_it_is_there() {
        let mut asking = Asking::default();
        let seats = Seats::new(vec![4]);
        let choose = |asking: &Asking, there: &[u8]| {
            asking.choose(&seats, DC, SHARD, |of| there.contains(&of.seat)).map(|of| of.seat)
        };
        assert_eq!(
            [choose(&asking, &[0, 1, 2, 3]), choose(&asking, &[3]), choose(&asking, &[0, 1])],
            [Some(2), Some(3), None]
        );
        take(&mut asking, 0, (3, 1), &stand(1, 1, 1, 1));
        assert_eq!([choose(&asking, &[2, 3]), choose(&asking, &[2])], [Some(3), Some(2)]);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_no_question_and_no_answer_or_what_they_say(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            use tidemark_wire::wire::{decode, encode};
            if let Ok(question) = decode::<Question>(&bytes) {
                prop_assert_eq!(decode::<Question>(&encode(&question)), Ok(question));
            }
            if let Ok(reply) = decode::<Reply>(&bytes) {
                prop_assert_eq!(decode::<Reply>(&encode(&reply)), Ok(reply));
            }
        }
    }
}
