//! The holders of ranges of counters in each data centre, if they differ from the founding: moves, one step at a time.
//!
//! An operator orders a move ([`ShardChange::Join`]): from then on the joining aggregator is told all of the range, beside its
//! holders. When it has all of it, on disk too, it reports that ([`ShardChange::Hold`]). It holds the range from that entry on,
//! in the place of the leaving aggregator. Until then an operator may cancel the move ([`ShardChange::Stay`]). Each change names
//! the revision that it was decided on, so a late copy of one means nothing.
//!
//! A range is split in all data centres by one entry ([`ShardChange::Split`]), and is no range from then on: it is neither moved
//! nor split any more. Each holder makes two ranges of it, and reports when both are on its disk ([`ShardChange::Parted`]). Its
//! parts have the same holders, and may be moved once all holders have reported.

use super::Ledger;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use tidemark_types::ids::{AggregatorId, CounterName, DcId};
use tidemark_types::limits::{AGGREGATORS_MAX, SHARDS_HELD_MAX, SHARDS_MAX};
use tidemark_wire::msg::{LedgerCmd, ShardChange};
use tidemark_wire::shards::{HOLDERS, Holding, Joining, Lineage, Range, Ranges, Seats, ShardId, Split};

/// Ranges that were moved, or are being moved, and ranges that were split.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardMap {
    /// The number of changes so far.
    revision: u64,
    moved: BTreeMap<(DcId, ShardId), Holding>,
    /// Stands by itself wherever a map is kept: it came later.
    #[serde(skip)]
    pub(super) splits: Splits,
}

/// Ranges that were split.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Splits {
    /// In their order.
    made: Vec<Split>,
    /// The aggregators that have made two ranges of one, on disk too.
    parted: BTreeSet<(ShardId, AggregatorId)>,
}

/// Why a range would not be moved. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MoveError {
    #[error("slot {shard}: the last one is slot {}", count - 1)]
    Unknown { shard: u16, count: usize },
    #[error("this data centre has {0} aggregators, and each holds all slots: slots move only between more than two")]
    NotSplit(u8),
    #[error("slot 0 cannot be moved: the limits of reads of counters with milestones are kept with it")]
    First,
    #[error("slot {0} is being moved: wait until that is done, or let it stay")]
    Moving(u16),
    #[error("slot {0} is not being moved")]
    NotMoving(u16),
    #[error("that aggregator does not hold slot {0}")]
    NotHeld(u16),
    #[error("that aggregator holds slot {0} already")]
    Held(u16),
    #[error("that aggregator holds or receives {0} slots: at most {SHARDS_HELD_MAX} are allowed")]
    TooMany(usize),
    #[error("the new holder is not connected here: a slot moves only to a running aggregator")]
    NotConnected,
    #[error("slot {shard} was split into slots {} and {}", parts[0], parts[1])]
    Split { shard: u16, parts: [u16; 2] },
    #[error(
        "{0} connected aggregators cut their views, or lay their counters, otherwise: a slot is split only if all layouts are equal"
    )]
    CutElsewhere(usize),
    #[error("slot {0} is still being split here: wait until all its holders have both parts")]
    Splitting(u16),
    #[error("{at} does not lie behind the beginning of slot {shard}, which is from {from} to {before}")]
    NotWithin { at: CounterName, shard: u16, from: String, before: String },
    #[error("{0} numbers were given to slots, split ones included: at most {SHARDS_MAX} are allowed")]
    Numbers(usize),
}

impl ShardMap {
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// All that was moved, or is being.
    pub fn moved(&self) -> &BTreeMap<(DcId, ShardId), Holding> {
        &self.moved
    }

    /// The move of a range that is under way.
    pub fn joining(&self, dc: DcId, shard: ShardId) -> Option<Joining> {
        self.moved.get(&(dc, shard))?.joins
    }

    /// Ranges that were split, in their order.
    pub fn splits(&self) -> &[Split] {
        &self.splits.made
    }

    /// The descent of ranges by splits.
    pub fn lineage(&self) -> Lineage {
        Lineage::of(self.splits.made.iter())
    }

    /// Whether an aggregator has made two ranges of one, on its disk too.
    pub fn has_parted(&self, shard: ShardId, aggregator: AggregatorId) -> bool {
        self.splits.parted.contains(&(shard, aggregator))
    }

    /// The same where these ranges were split.
    pub(super) fn with_splits(self, splits: Splits) -> ShardMap {
        ShardMap { splits, ..self }
    }

    /// The same with only the first `count` splits.
    pub fn with_first_splits(&self, count: usize) -> ShardMap {
        let made = self.splits.made.iter().take(count).cloned().collect();
        ShardMap { splits: Splits { made, parted: BTreeSet::new() }, ..self.clone() }
    }

    /// As it stands on an aggregator's disk.
    pub fn to_bytes(&self) -> Vec<u8> {
        postcard::to_allocvec(&(self, &self.splits)).expect("a map can be encoded")
    }

    /// Reads the bytes of [`ShardMap::to_bytes`], also those of a program that knew of no splits.
    ///
    /// # Errors
    /// It is no map.
    pub fn from_bytes(bytes: &[u8]) -> Result<ShardMap, postcard::Error> {
        let (map, rest) = postcard::take_from_bytes::<ShardMap>(bytes)?;
        let splits = if rest.is_empty() { Splits::default() } else { postcard::from_bytes(rest)? };
        Ok(map.with_splits(splits))
    }

    /// Whether a range is still being moved by that change.
    pub fn is_move(&self, dc: DcId, shard: ShardId, revision: u64) -> bool {
        self.joining(dc, shard).is_some_and(|joining| joining.revision == revision)
    }

    /// True if that changed something.
    fn change(&mut self, dc: DcId, shard: ShardId, revision: u64, change: &ShardChange) -> bool {
        let is_split = self.splits.made.iter().any(|split| split.shard == shard);
        let next = match *change {
            ShardChange::Split { ref at, first } => {
                return self.split(Split { shard, at: at.clone(), first }, revision);
            }
            ShardChange::Parted { seat } => {
                let is_due = is_split && seat < AGGREGATORS_MAX;
                return is_due && self.splits.parted.insert((shard, AggregatorId { dc, seat }));
            }
            ShardChange::Join { seats, seat, leaves } => {
                let known = self.moved.get(&(dc, shard));
                let is_known = known.is_none_or(|known| known.seats == seats && known.joins.is_none()) && !is_split;
                let fits = seats[0] != seats[1] && seats.contains(&leaves) && !seats.contains(&seat);
                let joins = Some(Joining { seat, leaves, revision: self.revision + 1 });
                (revision == self.revision && is_known && fits).then_some(Holding { seats, joins })
            }
            ShardChange::Hold => {
                self.moved.get(&(dc, shard)).filter(|_| self.is_move(dc, shard, revision)).map(Holding::moved)
            }
            ShardChange::Stay => {
                let known = self.moved.get(&(dc, shard)).filter(|_| self.is_move(dc, shard, revision));
                known.map(|known| Holding { joins: None, ..known.clone() })
            }
        };
        let Some(next) = next else { return false };
        self.revision += 1;
        self.moved.insert((dc, shard), next);
        true
    }

    /// True if that changed something.
    fn split(&mut self, split: Split, revision: u64) -> bool {
        let made = &self.splits.made;
        let is_new = made.iter().all(|known| known.shard != split.shard);
        // Numbers are given in their order, and each once.
        let goes_on = made.last().map_or(split.shard < split.first, |last| split.first.0 == last.first.0 + 2);
        let fits = usize::from(split.first.0) + 2 <= SHARDS_MAX && split.shard < split.first;
        let of_it: Vec<(DcId, Holding)> = self
            .moved
            .iter()
            .filter(|((_, of), _)| *of == split.shard)
            .map(|((dc, _), holding)| (*dc, holding.clone()))
            .collect();
        let is_moving = of_it.iter().any(|(_, holding)| holding.joins.is_some());
        if revision != self.revision || !is_new || !goes_on || !fits || is_moving {
            return false;
        }
        self.revision += 1;
        for (dc, holding) in of_it {
            self.moved.extend(split.parts().map(|part| ((dc, part), holding.clone())));
        }
        self.splits.made.push(split);
        true
    }
}

impl Ledger {
    /// The holders of ranges, if they differ from the founding.
    pub fn shard_map(&self) -> &ShardMap {
        &self.shard_map
    }

    pub(super) fn on_shard(&mut self, dc: DcId, shard: ShardId, revision: u64, change: &ShardChange) {
        if !self.is_forgotten(dc) && self.shard_map.change(dc, shard, revision, change) {
            self.changes.shards = true;
        }
    }

    /// Nothing of a data centre is held any more.
    pub(super) fn forget_moves(&mut self, dc: DcId) {
        let before = self.shard_map.moved.len();
        self.shard_map.moved.retain(|(of, _), _| *of != dc);
        if self.shard_map.moved.len() < before {
            self.shard_map.revision += 1;
            self.changes.shards = true;
        }
    }

    /// The command that begins to move a range of `to`'s data centre from one aggregator to another, decided on this state.
    ///
    /// # Errors
    /// [`MoveError`]: it would change nothing, or more would be held than may be.
    pub fn moving(
        &self,
        shard: ShardId,
        leaves: AggregatorId,
        to: AggregatorId,
        ranges: &Ranges,
        seats: &Seats,
    ) -> Result<LedgerCmd, MoveError> {
        let (ranges, seats) = self.as_split(ranges, seats);
        let number = self.movable(shard, to.dc, &ranges, &seats)?;
        if seats.joining(shard, to.dc).is_some() {
            return Err(MoveError::Moving(number));
        }
        let holders: Vec<AggregatorId> = seats.holders(shard, to.dc).collect();
        if !holders.contains(&leaves) {
            return Err(MoveError::NotHeld(number));
        }
        if holders.contains(&to) {
            return Err(MoveError::Held(number));
        }
        let told = ranges.iter().filter(|range| seats.gathers(to, range.shard)).count();
        if told >= SHARDS_HELD_MAX {
            return Err(MoveError::TooMany(told));
        }
        let [first, second] = holders[..] else { return Err(MoveError::NotSplit(seats.count(to.dc))) };
        let change = ShardChange::Join { seats: [first.seat, second.seat], seat: to.seat, leaves: leaves.seat };
        Ok(LedgerCmd::Shard { dc: to.dc, shard, revision: self.shard_map.revision, change })
    }

    /// The command that lets a range stay that is being moved.
    ///
    /// # Errors
    /// [`MoveError`]: it is not being moved.
    pub fn staying(&self, shard: ShardId, dc: DcId, ranges: &Ranges, seats: &Seats) -> Result<LedgerCmd, MoveError> {
        let (ranges, seats) = self.as_split(ranges, seats);
        let number = self.movable(shard, dc, &ranges, &seats)?;
        match self.shard_map.joining(dc, shard) {
            None => Err(MoveError::NotMoving(number)),
            Some(Joining { revision, .. }) => Ok(LedgerCmd::Shard { dc, shard, revision, change: ShardChange::Stay }),
        }
    }

    /// The command that cuts a range in two, the second of which begins with `at`, decided on this state, and by `by`.
    ///
    /// # Errors
    /// [`MoveError`]: it would change nothing, or more would be held than may be.
    pub fn splitting(
        &self,
        shard: ShardId,
        at: &CounterName,
        by: DcId,
        ranges: &Ranges,
        seats: &Seats,
    ) -> Result<LedgerCmd, MoveError> {
        let (ranges, seats) = self.as_split(ranges, seats);
        let number = splittable(shard, &ranges)?;
        if self.shard_map.moved.iter().any(|((_, of), holding)| *of == shard && holding.joins.is_some()) {
            return Err(MoveError::Moving(number));
        }
        let first = ranges.numbers();
        if first + 2 > SHARDS_MAX {
            return Err(MoveError::Numbers(first));
        }
        let split = Split { shard, at: at.clone(), first: ShardId(first as u16) };
        if ranges.split(&split).is_none() {
            let Range { from, before, .. } = ranges.range(shard).expect("it is one of them");
            let text = |end: &CounterName| match ranges.order().part(end) {
                None => end.to_string(),
                Some((space, part)) => format!("all of {space} {:?} ({end})", String::from_utf8_lossy(part)),
            };
            let name = |end: Option<&CounterName>, none: &str| end.map_or(none.to_owned(), text);
            let from = name(from, "the first");
            let before = name(before, "the last");
            return Err(MoveError::NotWithin { at: at.clone(), shard: number, from, before });
        }
        for holder in seats.dcs().flat_map(|dc| seats.holders(shard, dc)) {
            let told = ranges.iter().filter(|range| seats.gathers(holder, range.shard)).count();
            if told >= SHARDS_HELD_MAX {
                return Err(MoveError::TooMany(told));
            }
        }
        let change = ShardChange::Split { at: split.at, first: split.first };
        Ok(LedgerCmd::Shard { dc: by, shard, revision: self.shard_map.revision, change })
    }

    /// The known ranges and their holders, updated by all that this state knows.
    fn as_split(&self, ranges: &Ranges, seats: &Seats) -> (Ranges, Seats) {
        let ranges = ranges.with_splits(&self.shard_map.splits.made);
        let seats = seats.with_moved(self.shard_map.moved.clone()).with_lineage(ranges.lineage().clone());
        (ranges, seats)
    }

    /// Whether all holders of a split range in a data centre have made two of it. Holders that are set aside are not waited for.
    pub fn is_parted_in(&self, shard: ShardId, dc: DcId, seats: &Seats) -> bool {
        let seats = seats.with_moved(self.shard_map.moved.clone()).with_lineage(self.shard_map.lineage());
        let is_aside = |holder| seats.count(dc) >= HOLDERS && self.view_start(holder).is_none();
        seats.holders(shard, dc).all(|holder| self.shard_map.has_parted(shard, holder) || is_aside(holder))
    }

    fn movable(&self, shard: ShardId, dc: DcId, ranges: &Ranges, seats: &Seats) -> Result<u16, MoveError> {
        let number = splittable(shard, ranges)?;
        if !seats.are_split(dc) {
            return Err(MoveError::NotSplit(seats.count(dc)));
        }
        match ranges.lineage().parent(shard) {
            _ if shard == ShardId::FIRST => Err(MoveError::First),
            Some(parent) if !self.is_parted_in(parent, dc, seats) => Err(MoveError::Splitting(parent.0)),
            _ => Ok(number),
        }
    }

    pub(super) fn check_shard_map(&self) {
        let splits = &self.shard_map.splits;
        for (at, split) in splits.made.iter().enumerate() {
            assert!(split.shard < split.first, "a range that there was");
            assert!(splits.made[..at].iter().all(|earlier| earlier.shard != split.shard), "split once");
            assert!(at == 0 || splits.made[at - 1].first.0 + 2 == split.first.0, "numbers are given once");
        }
        for (&(dc, shard), holding) in &self.shard_map.moved {
            let [first, second] = holding.seats;
            assert!(first != second && first.max(second) < AGGREGATORS_MAX, "two hold a range");
            assert!(usize::from(shard.0) < SHARDS_MAX && !self.is_forgotten(dc), "ranges of who is there");
            if let Some(joining) = holding.joins {
                assert!(holding.seats.contains(&joining.leaves) && !holding.seats.contains(&joining.seat));
                assert!(joining.revision <= self.shard_map.revision, "a change that was made");
            }
        }
    }
}

/// The number of a range that is one still.
fn splittable(shard: ShardId, ranges: &Ranges) -> Result<u16, MoveError> {
    match ranges.lineage().parts(shard) {
        Some(parts) => Err(MoveError::Split { shard: shard.0, parts: parts.map(|part| part.0) }),
        None if !ranges.has(shard) => Err(MoveError::Unknown { shard: shard.0, count: ranges.numbers() }),
        None => Ok(shard.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tidemark_types::ids::LogIndex;

    const DC: DcId = DcId(0);

    fn seat(seat: u8) -> AggregatorId {
        AggregatorId { dc: DC, seat }
    }

    fn ranges() -> Ranges {
        let cut = |number: u8| CounterName::new("t", &[number]).unwrap();
        Ranges::of_cuts((1..8).map(cut).collect()).unwrap()
    }

    struct Stage(Ledger, Seats);

    impl Stage {
        fn new() -> Stage {
            let mut ledger = Ledger::default();
            ledger.apply(LogIndex(1), &LedgerCmd::View(DcId(1).into()));
            Stage(ledger, Seats::new(vec![4, 2]))
        }

        fn moving(&self, shard: u16, leaves: u8, to: u8) -> Result<LedgerCmd, MoveError> {
            self.0.moving(ShardId(shard), seat(leaves), seat(to), &ranges(), &self.1)
        }

        fn apply(&mut self, cmd: &LedgerCmd) {
            self.0.apply(LogIndex(2), cmd);
            self.0.check_invariants();
        }

        fn holders(&self, shard: u16) -> Vec<u8> {
            let seats =
                self.1.with_moved(self.0.shard_map().moved().clone()).with_lineage(self.0.shard_map().lineage());
            seats.holders(ShardId(shard), DC).map(|holder| holder.seat).collect()
        }

        fn hold(&self, shard: u16) -> LedgerCmd {
            let revision = self.0.shard_map().joining(DC, ShardId(shard)).map_or(0, |joining| joining.revision);
            LedgerCmd::Shard { dc: DC, shard: ShardId(shard), revision, change: ShardChange::Hold }
        }
    }

    #[test]
    fn a_range_is_held_by_who_joins_once_that_one_says_so_and_by_who_leaves_until_then() {
        let mut stage = Stage::new();
        assert_eq!(stage.holders(5), [1, 2]);
        let begin = stage.moving(5, 1, 3).unwrap();
        stage.apply(&begin);
        let hold = stage.hold(5);
        assert_eq!((stage.holders(5), stage.0.take_changes().shards), (vec![1, 2], true));
        stage.apply(&begin);
        assert!(!stage.0.take_changes().shards, "a late copy means nothing");
        assert_eq!(stage.moving(5, 2, 0), Err(MoveError::Moving(5)));
        stage.apply(&hold);
        assert_eq!(stage.holders(5), [2, 3]);
        let back = stage.moving(5, 3, 1).unwrap();
        stage.apply(&back);
        stage.apply(&hold);
        assert_eq!(stage.holders(5), [2, 3], "said of the move before");
        let stay = stage.0.staying(ShardId(5), DC, &ranges(), &stage.1).unwrap();
        let late = stage.hold(5);
        stage.apply(&stay);
        stage.apply(&late);
        assert_eq!(stage.holders(5), [2, 3]);
        assert_eq!(stage.0.staying(ShardId(5), DC, &ranges(), &stage.1), Err(MoveError::NotMoving(5)));
    }

    #[test]
    fn what_cannot_be_moved_is_said_with_its_reason() {
        let stage = Stage::new();
        assert_eq!(stage.moving(8, 0, 1), Err(MoveError::Unknown { shard: 8, count: 8 }));
        assert_eq!(stage.moving(0, 0, 2), Err(MoveError::First));
        assert_eq!(stage.moving(1, 0, 3), Err(MoveError::NotHeld(1)));
        assert_eq!(stage.moving(1, 1, 2), Err(MoveError::Held(1)));
        let abroad = AggregatorId { dc: DcId(1), seat: 1 };
        let refused = stage.0.moving(ShardId(1), abroad, abroad, &ranges(), &stage.1);
        assert_eq!(refused, Err(MoveError::NotSplit(2)));
    }

    #[test]
    fn nothing_is_moved_where_nobody_returns() {
        let mut stage = Stage::new();
        stage.apply(&stage.moving(5, 1, 3).unwrap());
        stage.apply(&LedgerCmd::Forget { dc: DC, forced: true, heard: 0 });
        assert!(stage.0.shard_map().moved().is_empty());
        stage.apply(&stage.moving(5, 1, 3).unwrap());
        assert!(stage.0.shard_map().moved().is_empty());
    }

    #[test]
    fn a_range_that_is_split_is_none_and_its_parts_are_held_by_whom_it_was_and_moved_once_these_have_two() {
        let mut stage = Stage::new();
        stage.apply(&stage.moving(5, 1, 3).unwrap());
        let at = CounterName::new("t", &[5, 100]).unwrap();
        let split = |stage: &Stage, shard: u16, at: &CounterName| {
            stage.0.splitting(ShardId(shard), at, DC, &ranges(), &stage.1)
        };
        assert_eq!(split(&stage, 5, &at), Err(MoveError::Moving(5)));
        stage.apply(&stage.hold(5));
        for wrong in [CounterName::new("t", &[5]).unwrap(), CounterName::new("t", &[6]).unwrap()] {
            assert!(matches!(split(&stage, 5, &wrong), Err(MoveError::NotWithin { .. })), "{wrong}");
        }
        assert_eq!(split(&stage, 8, &at), Err(MoveError::Unknown { shard: 8, count: 8 }));
        let cmd = split(&stage, 5, &at).unwrap();
        let moved = stage.moving(6, 2, 0).unwrap();
        stage.apply(&cmd);
        stage.apply(&cmd);
        stage.apply(&moved);
        let parts = ranges().with_splits(stage.0.shard_map().splits());
        assert_eq!((parts.find(&at), stage.0.shard_map().splits().len()), (ShardId(9), 1), "late copies mean nothing");
        assert_eq!([stage.holders(5), stage.holders(8), stage.holders(9)], [[2, 3]; 3]);
        assert_eq!(stage.moving(5, 2, 0), Err(MoveError::Split { shard: 5, parts: [8, 9] }));
        for view in [2, 3] {
            stage.apply(&LedgerCmd::ViewStart { view: seat(view), start: 1 });
            assert_eq!(stage.moving(9, 2, 0), Err(MoveError::Splitting(5)));
            let parted = ShardChange::Parted { seat: view };
            stage.apply(&LedgerCmd::Shard { dc: DC, shard: ShardId(5), revision: 0, change: parted });
        }
        stage.apply(&stage.moving(9, 2, 0).unwrap());
        stage.apply(&stage.hold(9));
        assert_eq!([stage.holders(8), stage.holders(9)], [[2, 3], [3, 0]]);
        let again = split(&stage, 8, &CounterName::new("t", &[5, 7]).unwrap()).unwrap();
        stage.apply(&again);
        assert_eq!(stage.0.shard_map().splits()[1].parts(), [ShardId(10), ShardId(11)]);
        let map = stage.0.shard_map().with_first_splits(2);
        assert_eq!(ShardMap::from_bytes(&map.to_bytes()), Ok(map.clone()));
        let before = postcard::to_allocvec(&map).unwrap();
        assert_eq!(ShardMap::from_bytes(&before), Ok(map.with_first_splits(0)), "of a program without splits");
    }

    #[test]
    fn there_are_no_more_numbers_of_ranges_than_are_allowed_and_no_more_ranges_of_one_aggregator() {
        let mut stage = Stage::new();
        let mut split = |number: u16| {
            let at = CounterName::new("t", &[vec![0], number.to_be_bytes().to_vec()].concat()).unwrap();
            let last = stage.0.shard_map().splits().last().map_or(ShardId(0), |split| split.parts()[1]);
            let cmd = stage.0.splitting(last, &at, DC, &ranges(), &stage.1)?;
            stage.apply(&cmd);
            Ok::<(), MoveError>(())
        };
        let refused = (0..).map(&mut split).find_map(Result::err).unwrap();
        assert_eq!(refused, MoveError::TooMany(SHARDS_HELD_MAX));
    }

    proptest! {
        /// After any proposals, two aggregators hold each range, and the map on disk is the map.
        #[test]
        fn two_hold_each_range_whatever_is_applied(
            steps in prop::collection::vec((0u16..10, 0u64..6, 0u8..5, 0u8..5, 0u8..5, 0u8..5, 0u8..5), 0..40)
        ) {
            let mut stage = Stage::new();
            for (shard, revision, kind, a, b, seat, leaves) in steps {
                let change = match kind {
                    0 => ShardChange::Join { seats: [a, b], seat, leaves },
                    1 => ShardChange::Hold,
                    2 => ShardChange::Split { at: CounterName::new("t", &[a, b]).unwrap(), first: ShardId(u16::from(seat) + 4) },
                    3 => ShardChange::Parted { seat },
                    _ => ShardChange::Stay,
                };
                stage.apply(&LedgerCmd::Shard { dc: DC, shard: ShardId(shard), revision, change });
                prop_assert_eq!(stage.holders(shard).len(), 2);
            }
            let bytes = postcard::to_allocvec(&stage.0).unwrap();
            let read: Ledger = postcard::from_bytes(&bytes).unwrap();
            prop_assert_eq!(read.shard_map(), stage.0.shard_map());
        }
    }
}
