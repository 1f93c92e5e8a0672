//! Who holds which range of counters in each data centre, where that is no longer as it was founded: moves, one step at a time.
//!
//! An operator orders a move ([`ShardChange::Join`]): from then on the one who joins is told all of the range, beside those who hold it. When
//! it has all of it, on disk too, it says so ([`ShardChange::Hold`]), and holds it from that entry on in the place of who leaves. Until then
//! an operator may have it stay ([`ShardChange::Stay`]). Each change names the revision that it was decided on, so a late copy of one means
//! nothing.

use super::Ledger;
use crate::ids::{AggregatorId, DcId};
use crate::limits::{AGGREGATORS_MAX, SHARDS_HELD_MAX, SHARDS_MAX};
use crate::msg::{LedgerCmd, ShardChange};
use crate::shards::{Holding, Joining, Ranges, Seats, ShardId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Ranges that were moved, or are being.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardMap {
    /// The number of changes so far.
    revision: u64,
    moved: BTreeMap<(DcId, ShardId), Holding>,
}

/// Why a range would not be moved. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MoveError {
    #[error("slot {shard}: there are {count}, the first is slot 0")]
    Unknown { shard: u16, count: usize },
    #[error("this data centre has {0} aggregators, which hold all slots: of more than two each holds some")]
    NotSplit(u8),
    #[error("slot 0 stays where it is: with it is kept what reads may show of counters with milestones")]
    First,
    #[error("slot {0} is being moved: wait until that is done, or let it stay")]
    Moving(u16),
    #[error("slot {0} is not being moved")]
    NotMoving(u16),
    #[error("that aggregator does not hold slot {0}")]
    NotHeld(u16),
    #[error("that aggregator holds slot {0} already")]
    Held(u16),
    #[error("that aggregator is told of {0} slots, and more are not allowed")]
    TooMany(usize),
    #[error("it is not connected here: a slot is moved to one that runs")]
    NotConnected,
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

    /// Whether a range is still being moved by that change.
    pub fn is_move(&self, dc: DcId, shard: ShardId, revision: u64) -> bool {
        self.joining(dc, shard).is_some_and(|joining| joining.revision == revision)
    }

    /// True if that changed something.
    fn change(&mut self, (dc, shard): (DcId, ShardId), revision: u64, change: &ShardChange) -> bool {
        let next = match *change {
            ShardChange::Join { seats, seat, leaves } => {
                let known = self.moved.get(&(dc, shard));
                let is_known = known.is_none_or(|known| known.seats == seats && known.joins.is_none());
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
}

impl Ledger {
    /// Who holds which range, where that is not as it was founded.
    pub fn shard_map(&self) -> &ShardMap {
        &self.shard_map
    }

    pub(super) fn on_shard(&mut self, of: (DcId, ShardId), revision: u64, change: &ShardChange) {
        if !self.is_forgotten(of.0) && self.shard_map.change(of, revision, change) {
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
        (leaves, to): (AggregatorId, AggregatorId),
        (ranges, seats): (&Ranges, &Seats),
    ) -> Result<LedgerCmd, MoveError> {
        let seats = seats.with_moved(self.shard_map.moved.clone());
        let number = self.movable(shard, to.dc, ranges, &seats)?;
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
    pub fn staying(
        &self,
        shard: ShardId,
        dc: DcId,
        (ranges, seats): (&Ranges, &Seats),
    ) -> Result<LedgerCmd, MoveError> {
        let number = self.movable(shard, dc, ranges, seats)?;
        match self.shard_map.joining(dc, shard) {
            None => Err(MoveError::NotMoving(number)),
            Some(Joining { revision, .. }) => Ok(LedgerCmd::Shard { dc, shard, revision, change: ShardChange::Stay }),
        }
    }

    fn movable(&self, shard: ShardId, dc: DcId, ranges: &Ranges, seats: &Seats) -> Result<u16, MoveError> {
        let count = ranges.count();
        match shard {
            ShardId(number) if usize::from(number) >= count => Err(MoveError::Unknown { shard: number, count }),
            _ if !seats.are_split(dc) => Err(MoveError::NotSplit(seats.count(dc))),
            ShardId::FIRST => Err(MoveError::First),
            ShardId(number) => Ok(number),
        }
    }

    pub(super) fn check_shard_map(&self) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{CounterName, LogIndex};
    use proptest::prelude::*;

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
            self.0.moving(ShardId(shard), (seat(leaves), seat(to)), (&ranges(), &self.1))
        }

        fn apply(&mut self, cmd: &LedgerCmd) {
            self.0.apply(LogIndex(2), cmd);
            self.0.check_invariants();
        }

        fn holders(&self, shard: u16) -> Vec<u8> {
            let seats = self.1.with_moved(self.0.shard_map().moved().clone());
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
        let stay = stage.0.staying(ShardId(5), DC, (&ranges(), &stage.1)).unwrap();
        let late = stage.hold(5);
        stage.apply(&stay);
        stage.apply(&late);
        assert_eq!(stage.holders(5), [2, 3]);
        assert_eq!(stage.0.staying(ShardId(5), DC, (&ranges(), &stage.1)), Err(MoveError::NotMoving(5)));
    }

    #[test]
    fn what_cannot_be_moved_is_said_with_its_reason() {
        let stage = Stage::new();
        assert_eq!(stage.moving(8, 0, 1), Err(MoveError::Unknown { shard: 8, count: 8 }));
        assert_eq!(stage.moving(0, 0, 2), Err(MoveError::First));
        assert_eq!(stage.moving(1, 0, 3), Err(MoveError::NotHeld(1)));
        assert_eq!(stage.moving(1, 1, 2), Err(MoveError::Held(1)));
        let abroad = AggregatorId { dc: DcId(1), seat: 1 };
        let refused = stage.0.moving(ShardId(1), (abroad, abroad), (&ranges(), &stage.1));
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

    proptest! {
        /// Whatever is proposed, two hold each range, and the map on disk is the map.
        #[test]
        fn two_hold_each_range_whatever_is_applied(
            steps in prop::collection::vec((0u16..4, 0u64..6, 0u8..3, 0u8..5, 0u8..5, 0u8..5, 0u8..5), 0..40)
        ) {
            let mut stage = Stage::new();
            for (shard, revision, kind, a, b, seat, leaves) in steps {
                let change = match kind {
                    0 => ShardChange::Join { seats: [a, b], seat, leaves },
                    1 => ShardChange::Hold,
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
