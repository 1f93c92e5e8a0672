//! Ranges of counters that are split (decision 0048).
//!
//! Who holds a range that the ledger has split copies it into its two parts, in steps and while it goes on showing the range; then it has
//! two in its place, at once. Its feeds and streams go on in the parts where they were. The parts are written, and when all of both is on
//! disk, the map there names them and not the range, and the ledger is told. Who does not hold it goes on asking for it until all of its data
//! centre who do have two: so nobody is asked for what it does not know. Splits are done in the ledger's order, one after the other.

use super::checkpoint::Stale;
use super::feed::Feed;
use super::shard::Shard;
use super::{AggregatorCore, Output};
use crate::gossip::Renumbered;
use crate::ids::{AggregatorId, CounterName};
use crate::ledger::{Ledger, MoveError};
use crate::msg::{LedgerCmd, ShardChange};
use crate::shards::{ShardId, Split};
use crate::time::Time;
use crate::view::Parted;

/// What of splits is under way here.
#[derive(Clone, Debug, Default)]
pub(super) struct Splits {
    /// When the one that is under way is gone on with.
    step_at: Option<Time>,
    writing: Option<Writing>,
}

/// A range that was split here, of whose parts not all is on disk.
#[derive(Clone, Debug)]
struct Writing {
    split: Split,
    /// Of each part: when so many of its checkpoint's flushes are done, all of it is.
    flushes: [(ShardId, u64); 2],
    /// What goes from the first file then.
    stale: Stale,
}

/// How far a range is split here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Splitting {
    /// So many of its cells are copied, of so many.
    Copying { done: u64, of: u64 },
    /// There are two, which are not on disk yet.
    Writing,
    /// Others of the data centre who hold it are at it.
    Others,
}

impl Splits {
    pub fn due(&self) -> Option<Time> {
        self.step_at
    }
}

impl AggregatorCore {
    /// The command that cuts a range in two, of which the second begins with `at`.
    ///
    /// # Errors
    /// [`MoveError`]: nothing was changed.
    pub fn splitting(&self, shard: ShardId, at: &CounterName, ledger: &Ledger) -> Result<LedgerCmd, MoveError> {
        ledger.splitting(shard, at, self.config.own.dc, (&self.config.ranges, &self.config.seats))
    }

    /// How far a range is split here that the ledger has split; `None` of others.
    pub fn is_splitting(&self, shard: ShardId, ledger: &Ledger) -> Option<Splitting> {
        if self.splits.writing.as_ref().is_some_and(|writing| writing.split.parts().contains(&shard)) {
            return Some(Splitting::Writing);
        }
        ledger.shard_map().lineage().parts(shard).filter(|_| self.config.ranges.has(shard))?;
        let is_copied = self.view.splits().is_some_and(|split| split.shard == shard);
        let (done, of) = self.view.split_progress().filter(|_| is_copied).unwrap_or_default();
        Some(if self.config.gathers(shard) { Splitting::Copying { done, of } } else { Splitting::Others })
    }

    /// Whether something is being split here, or will be.
    pub fn is_behind_splits(&self, ledger: &Ledger) -> bool {
        self.config.ranges.lineage().len() < ledger.shard_map().splits().len() || self.splits.writing.is_some()
    }

    /// Which map is on disk here from now on, and which files there are.
    pub(super) fn say_kept(&mut self, ledger: &Ledger) {
        let (mut done, mut kept) = (self.config.ranges.lineage().len(), self.config.kept());
        if let Some(writing) = &self.splits.writing {
            done -= 1;
            kept.insert(writing.split.shard);
        }
        let map = ledger.shard_map().with_first_splits(done);
        self.outputs.push_back(Output::Kept { map, kept });
    }

    /// Says of which ranges that were held here all is in two parts on disk.
    pub(super) fn say_parted(&mut self, ledger: &Ledger) {
        let own @ AggregatorId { dc, seat } = self.config.own;
        let done = self.config.ranges.lineage().len() - usize::from(self.splits.writing.is_some());
        for Split { shard, .. } in ledger.shard_map().splits().iter().take(done) {
            if self.config.seats.holds(own, *shard) && !ledger.shard_map().has_parted(*shard, own) {
                let change = ShardChange::Parted { seat };
                self.standing.add(LedgerCmd::Shard { dc, shard: *shard, revision: 0, change });
            }
        }
    }

    /// Goes on with the next split of the ledger's, if there is one.
    pub(super) fn run_splits(&mut self, now: Time, ledger: &Ledger) {
        self.end_writing(now, ledger);
        let next = ledger.shard_map().splits().get(self.config.ranges.lineage().len());
        let Some(split) = next.filter(|_| self.splits.writing.is_none()) else {
            self.splits.step_at = None;
            return;
        };
        if self.view.splits().is_none() {
            let (dc, seats) = (self.config.own.dc, &self.config.seats);
            let may_begin = self.config.gathers(split.shard) || ledger.is_parted_in(split.shard, dc, seats);
            // A split that no layout as this one's allows is none.
            if !may_begin || self.config.ranges.split(split).is_none() {
                return;
            }
            self.view.begin_split(split, self.config.seed, ledger);
            self.splits.step_at = Some(now);
        }
        if self.splits.step_at.is_some_and(|at| at <= now) {
            match self.view.step_split(self.config.graph_step, ledger) {
                true => self.end_split(now, ledger),
                false => self.splits.step_at = Some(now + self.config.graph_interval),
            }
        }
    }

    /// From here on there are two in the place of the range.
    fn end_split(&mut self, now: Time, ledger: &Ledger) {
        self.splits.step_at = None;
        let is_held = self.view.splits().is_some_and(|split| self.config.gathers(split.shard));
        let Some(parted) = self.view.finish_split(self.config.seed, ledger) else { return };
        let shard = parted.split.shard;
        self.config.ranges = self.view.ranges().clone();
        self.config.seats = self.config.seats.with_lineage(self.config.ranges.lineage().clone());
        let beside = self.moves.filling.iter_mut().flat_map(|filling| filling.feeds.values_mut());
        self.feeds.values_mut().chain(beside).for_each(|feed: &mut Feed| feed.on_split(&parted));
        self.arrive_in_parts(&parted.split);
        let parts = [0, 1].map(|part| self.part(part, &parted));
        self.shards.extend(parts);
        let mut before = Shard::new(&self.config, shard);
        if shard == ShardId::FIRST {
            before.checkpoint = self.shards[0].checkpoint.of_limits_only();
        }
        self.shards[usize::from(shard.0)] = before;
        let stale = if shard == ShardId::FIRST { Stale::of(&parted.cells) } else { Stale::default() };
        if is_held {
            let flushes = parted.split.parts().map(|part| {
                let checkpoint = &mut self.shards[usize::from(part.0)].checkpoint;
                (part, checkpoint.flush(now))
            });
            self.hand_flushes(shard, flushes);
            self.splits.writing = Some(Writing { split: parted.split, flushes, stale });
            self.say_kept(ledger);
        } else {
            self.say_kept(ledger);
            self.drop_stale(now, stale);
        }
        self.ask_anew();
        self.meet_holders(now);
    }

    /// What is kept beside the cells of a part of a range.
    fn part(&self, part: usize, parted: &Parted) -> Shard {
        let shard = parted.split.parts()[part];
        let (before, cells) = (&parted.cells, self.view.cells(shard));
        let slot = |slot| parted.place(slot).filter(|place| place.part == part).map(|place| place.slot);
        let valve = |valve: u16| cells.valve_number(before.valves()[usize::from(valve)]);
        let row = |number| {
            let (of, by, _) = before.row(number);
            let (of, by) = (slot(of)?, valve(by)?);
            cells.rows_of(of).find(|&(_, valve, _)| valve == by).map(|(number, ..)| number)
        };
        let mut own = Shard::new(&self.config, shard);
        let whole = &self.shards[usize::from(parted.split.shard.0)].gossip;
        own.gossip.go_on_as_part(whole, &Renumbered { slot: &slot, valve: &valve, row: &row });
        own.checkpoint.touch_all(cells);
        own
    }

    /// When all of both parts is on disk, the range goes from there.
    fn end_writing(&mut self, now: Time, ledger: &Ledger) {
        let is_written =
            |&(part, flush): &(ShardId, u64)| self.shards[usize::from(part.0)].checkpoint.has_flushed(flush);
        let Some(writing) = self.splits.writing.take_if(|writing| writing.flushes.iter().all(is_written)) else {
            return;
        };
        self.say_kept(ledger);
        self.drop_stale(now, writing.stale);
        self.say_parted(ledger);
    }

    /// The file of the first range stays, with what limits readings.
    fn drop_stale(&mut self, now: Time, stale: Stale) {
        if !stale.is_empty() {
            self.shards[0].checkpoint.drop_rows(now, stale);
        }
    }
}
