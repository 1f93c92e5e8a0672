//! Shards that an operator moves between the aggregators of a data centre.

use super::aggregators::AggregatorProc;
use super::{Event, World};
use crate::plan::Fault;
use std::collections::{BTreeMap, BTreeSet};
use tidemark_proto::aggregator::{AggregatorCore, Input};
use tidemark_proto::asking::Asking;
use tidemark_proto::ids::{AggregatorId, DcId};
use tidemark_proto::ledger::{MoveError, ShardMap};
use tidemark_proto::msg::ShardChange;
use tidemark_proto::shards::{Ranges, Seats, ShardId};
use tidemark_proto::time::Span;

/// An operator that was refused tries again after this time, until the faults are over.
const AGAIN: Span = Span::from_millis(400);

/// The common state of the holders of a shard when it began to move: the change, and of each counter its generation and sum.
pub type Floors = BTreeMap<(DcId, ShardId), (u64, Vec<(usize, u32, u64)>)>;

impl World {
    /// Which aggregators hold which shards, as one of them goes by it; of one that is down, as its disk does.
    pub(super) fn seats_at(&self, at: usize) -> Seats {
        let process = &self.aggregators[at];
        let of_disk = || self.seats().with_moved(process.map.moved().clone()).with_lineage(process.map.lineage());
        process.core().map_or_else(of_disk, |core| core.seats().clone())
    }

    /// Into which ranges the view of an aggregator is cut; of one that is down, that on its disk.
    pub(super) fn ranges_at(&self, at: usize) -> Ranges {
        let process = &self.aggregators[at];
        let of_disk = || self.ranges().with_splits(process.map.splits());
        process.core().map_or_else(of_disk, |core| core.view().ranges().clone())
    }

    /// An aggregator asks others by the splits that it knows of.
    pub(super) fn learn_splits(&mut self, at: usize) {
        let (core, ledger, asking) = self.aggregators[at].for_readers();
        asking.learn(&ledger.shard_map().lineage());
        core.into_iter().for_each(|core| asking.learn(core.view().ranges().lineage()));
    }

    /// Whether an aggregator shows a counter by itself.
    pub(super) fn holds(&self, at: usize, counter: usize) -> bool {
        let shard = self.ranges_at(at).find(&self.names[counter]);
        match self.aggregators[at].core() {
            Some(core) => core.holds(shard),
            None => self.seats_at(at).holds(self.id_of(at), shard),
        }
    }

    /// Whether the aggregators of its data centre hold some shards each.
    pub(super) fn is_split_at(&self, at: usize) -> bool {
        self.seats().are_split(self.id_of(at).dc)
    }

    /// Whether it is shown from here: what was shown here of it before is there.
    pub(super) fn may_show(&mut self, at: usize, counter: usize) -> bool {
        if !self.holds(at, counter) {
            return false;
        }
        self.learn_splits(at);
        let shard = self.ranges_at(at).find(&self.names[counter]);
        let now = self.now;
        let local = self.aggregator_time(at);
        let before = self.aggregators[at].asking.given_up();
        let (core, ledger, asking) = self.aggregators[at].for_readers();
        let may_show = core.is_none_or(|core| asking.may_show(now, shard, || core.stand(local, shard, ledger)));
        self.note_given_up(at, before);
        may_show
    }

    /// Shards that left an aggregator are asked of others from here on, and never less of them is shown.
    pub(super) fn note_left(&mut self, at: usize) {
        let own = self.id_of(at);
        self.learn_splits(at);
        let left = self.aggregators[at].take_left();
        self.coverage.saw_times("shard left an aggregator that had shown it", left.len() as u64);
        let asking: &mut Asking = &mut self.aggregators[at].asking;
        left.into_iter().for_each(|(shard, stand)| asking.left(own, shard, stand));
    }

    pub(super) fn move_shard(&mut self, stays: Option<Span>, index: usize) {
        self.on_move_shard(index);
        if let Some(span) = stays {
            self.after(span, Event::StayShard(index));
        }
    }

    /// The shard that a fault means, of those that an aggregator's ledger knows of: any but the first, which stays; `None` where there is no
    /// other.
    fn movable(&self, at: usize, dice: u64) -> Option<ShardId> {
        let ranges = self.ranges().with_splits(self.aggregators[at].ledger.shard_map().splits());
        let further: Vec<ShardId> =
            ranges.iter().map(|range| range.shard).filter(|shard| *shard != ShardId::FIRST).collect();
        (!further.is_empty()).then(|| further[dice as usize % further.len()])
    }

    /// Of a data centre's aggregators one that runs.
    fn asked_in(&self, dc: usize, dice: u64) -> Option<usize> {
        let up: Vec<usize> = self.aggregators_of(dc).into_iter().filter(|&at| self.aggregators[at].is_up()).collect();
        (!up.is_empty()).then(|| up[dice as usize % up.len()])
    }

    pub(super) fn on_move_shard(&mut self, index: usize) {
        let Fault::MoveShard { dc, dice, .. } = self.plan.faults[index].1 else { return };
        if self.faults_over {
            return;
        }
        let seat =
            |dice: u64| AggregatorId { dc: DcId(dc as u16), seat: (dice % self.aggregators_of(dc).len() as u64) as u8 };
        let cmd = self.asked_in(dc, dice >> 8).and_then(|at| {
            let process = &self.aggregators[at];
            let core = process.core()?;
            let shard = self.movable(at, dice)?;
            let seats = core.seats().with_lineage(process.ledger.shard_map().lineage());
            let holders: Vec<AggregatorId> = seats.holders(shard, DcId(dc as u16)).collect();
            let leaves = holders[(dice >> 16) as usize % holders.len()];
            let to = (0..8).map(|next| seat((dice >> 24) + next)).find(|to| !holders.contains(to))?;
            Some((at, core.moving(shard, leaves, to, &process.ledger)))
        });
        match cmd {
            Some((at, Ok(cmd))) => {
                self.note(73, [at as u64, 0, 0], || format!("operator at aggregator {at}: {cmd:?}"));
                self.coverage.saw("move of a shard ordered");
                self.aggregator_input(at, Input::Submit(vec![cmd]));
            }
            _ => self.after(AGAIN, Event::MoveShard(index)),
        }
    }

    pub(super) fn on_stay_shard(&mut self, index: usize) {
        let Fault::MoveShard { dc, dice, .. } = self.plan.faults[index].1 else { return };
        let Some(at) = self.asked_in(dc, dice >> 8) else { return };
        let Some(shard) = self.movable(at, dice) else { return };
        let process = &self.aggregators[at];
        let cmd = process.core().and_then(|core| core.staying(shard, &process.ledger).ok());
        if let Some(cmd) = cmd {
            self.note(74, [at as u64, 0, 0], || format!("operator at aggregator {at}: {cmd:?}"));
            self.coverage.saw("move of a shard taken back");
            self.aggregator_input(at, Input::Submit(vec![cmd]));
        }
    }

    pub(super) fn on_split_shard(&mut self, index: usize) {
        let Fault::SplitShard { dc, dice } = self.plan.faults[index].1 else { return };
        if self.faults_over {
            return;
        }
        let cmd = self.asked_in(dc, dice >> 8).and_then(|at| {
            let process = &self.aggregators[at];
            let ranges = self.ranges().with_splits(process.ledger.shard_map().splits());
            let name = &self.names[(dice >> 16) as usize % self.names.len()];
            Some((at, process.core()?.splitting(ranges.find(name), name, &process.ledger)))
        });
        match cmd {
            Some((at, Ok(cmd))) => {
                self.note(75, [at as u64, 0, 0], || format!("operator at aggregator {at}: {cmd:?}"));
                self.coverage.saw("split of a shard ordered");
                self.aggregator_input(at, Input::Submit(vec![cmd]));
            }
            // There is nothing to be cut off.
            Some((_, Err(MoveError::NotWithin { .. }))) => {}
            _ => self.after(AGAIN, Event::SplitShard(index)),
        }
    }

    /// Which shards have rows on an aggregator's disk from here on.
    pub(super) fn on_kept(&mut self, at: usize, map: ShardMap, kept: &BTreeSet<ShardId>) {
        let arrived = self.aggregators[at].core().is_some_and(|core| core.is_arriving());
        self.coverage.saw_times("shard begins to arrive", u64::from(arrived));
        let further = map.splits().len().saturating_sub(self.aggregators[at].map.splits().len());
        let has_some = self.aggregators[at].core().is_some_and(|core| !core.view().is_empty());
        self.coverage.saw_times("split is on disk", further as u64);
        self.coverage
            .saw_times("split is on the disk of one that shows something", further as u64 * u64::from(has_some));
        self.aggregators[at].keep(map, kept);
    }

    /// The ledger has applied a change of a shard's holders, or taken it for a late copy. The holders from then on have everything that
    /// both holders had when the change began.
    pub(super) fn audit_shard_change(&mut self, of: (DcId, ShardId), revision: u64, change: &ShardChange) {
        match change {
            ShardChange::Join { .. } => self.note_floor(of),
            ShardChange::Stay => drop(self.floors.remove(&of)),
            ShardChange::Split { .. } | ShardChange::Parted { .. } => {}
            ShardChange::Hold => {
                let Some((began, floor)) = self.floors.remove(&of) else { return };
                let is_it = began == revision && self.reference.shard_map().joining(of.0, of.1).is_none();
                let holder = self.seats_of_reference().holders(of.1, of.0).nth(1).filter(|_| is_it);
                let Some(at) = holder.and_then(|holder| self.at_of(holder)) else { return };
                let Some(core) = self.aggregators[at].core() else { return };
                self.coverage.saw("shard has arrived at one that was looked at");
                // Counts of an earlier generation are nowhere any more, once all have passed it.
                let resets = self.reference.resets();
                let is_present = |(counter, of, _): &(usize, u32, u64)| resets.generation(&self.names[*counter]) == *of;
                for (counter, generation, sum) in floor.into_iter().filter(is_present) {
                    let has = core.view().sum_of(&self.names[counter], generation);
                    self.audit.findings.check("slots", has >= sum, || {
                        format!(
                            "aggregator {at} holds shard {}: {has} of counter {counter}, of which others had {sum}",
                            of.1.0
                        )
                    });
                }
            }
        }
    }

    fn seats_of_reference(&self) -> Seats {
        let map = self.reference.shard_map();
        self.seats().with_moved(map.moved().clone()).with_lineage(map.lineage())
    }

    fn ranges_of_reference(&self) -> Ranges {
        self.ranges().with_splits(self.reference.shard_map().splits())
    }

    fn note_floor(&mut self, of: (DcId, ShardId)) {
        let Some(joining) = self.reference.shard_map().joining(of.0, of.1) else { return };
        if self.floors.get(&of).is_some_and(|(began, _)| *began == joining.revision) {
            return;
        }
        let holders: Vec<AggregatorId> = self.seats_of_reference().holders(of.1, of.0).collect();
        let processes = holders.iter().filter_map(|&holder| self.aggregators[self.at_of(holder)?].core());
        let cores: Vec<&AggregatorCore> = processes.filter(|core| core.holds(of.1)).collect();
        if cores.len() < holders.len() {
            return;
        }
        let ranges = self.ranges_of_reference();
        let in_shard = (0..self.names.len()).filter(|&counter| ranges.find(&self.names[counter]) == of.1);
        let floor = in_shard.map(|counter| {
            let generation = self.reference.resets().generation(&self.names[counter]);
            let sums = cores.iter().map(|core| core.view().sum_of(&self.names[counter], generation));
            (counter, generation, sums.min().unwrap_or(0))
        });
        let floor = floor.collect();
        self.floors.insert(of, (joining.revision, floor));
    }

    /// No shard is being moved any more, and every process knows it.
    pub(super) fn shards_at_rest(&self) -> bool {
        let is_moving = self.reference.shard_map().moved().values().any(|holding| holding.joins.is_some());
        let revision = self.reference.shard_map().revision();
        let knows = |core: &AggregatorCore| {
            !core.is_arriving() && core.map_revision() >= revision && !core.is_behind_splits(&self.reference)
        };
        let splits = self.reference.shard_map().splits();
        let is_gone = |process: &AggregatorProc| {
            !process.is_up() || splits.iter().all(|split| !process.has_cells_of(split.shard))
        };
        !is_moving && self.aggregators.iter().all(|process| process.core().is_none_or(knows) && is_gone(process))
    }

    /// Each range is held by the aggregators that the map names, and no other has any part of it.
    pub(super) fn audit_shards_end(&mut self) {
        let map = self.reference.shard_map();
        let seats = self.seats_of_reference();
        let mut findings = std::mem::take(&mut self.audit.findings);
        for (at, process) in self.aggregators.iter().enumerate() {
            let own = self.id_of(at);
            let ranges = self.ranges_of_reference();
            let is_done = !process.is_up() || self.ranges_at(at) == ranges;
            findings.check("slots", is_done, || format!("aggregator {at} has made two of each split range"));
            for split in map.splits().iter().filter(|_| process.is_up()) {
                let (is_kept, ShardId(shard)) = (process.has_cells_of(split.shard), split.shard);
                findings.check("slots", !is_kept, || {
                    format!("aggregator {at} keeps rows of shard {shard}, which is split")
                });
            }
            for range in ranges.iter().map(|range| range.shard) {
                let is_held = process.core().is_none_or(|core| core.holds(range) == seats.holds(own, range));
                findings.check("slots", is_held, || format!("aggregator {at}, shard {}: who holds it", range.0));
                let may_keep = range == ShardId::FIRST || seats.gathers(own, range);
                let is_kept = process.rows_of(range);
                findings.check("slots", may_keep || !is_kept, || {
                    format!("aggregator {at} keeps rows of shard {}", range.0)
                });
            }
        }
        let moved = map.moved().values().filter(|holding| holding.joins.is_none()).count() as u64;
        self.audit.findings = findings;
        self.coverage.saw_times("shard held elsewhere than founded at the end", moved);
    }
}
