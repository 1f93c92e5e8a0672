//! Ranges of counters that are split (decision 0048).
//!
//! A holder of a range that the ledger has split copies it into its two parts, in steps, and shows the range meanwhile. Then the
//! two parts replace the range, at once. Its feeds and streams continue in the parts at the same positions. The parts are
//! written. When all of both is on disk, the map there names them and not the range, and the ledger is told. An aggregator that
//! does not hold the range asks for it until all its holders in the data centre have the parts. So no holder is asked for a part
//! that it does not know. Splits are done in the ledger's order, one after the other.

use super::checkpoint::Stale;
use super::shard::Shard;
use super::{AggregatorCore, Output};
use crate::gossip::Renumbered;
use crate::view::Parted;
use std::collections::{BTreeMap, BTreeSet};
use tidemark_ledger::ledger::{Ledger, MoveError};
use tidemark_types::ids::{AggregatorId, CounterName};
use tidemark_types::time::{Span, Time};
use tidemark_wire::msg::{LedgerCmd, ShardChange};
use tidemark_wire::shards::{ShardId, Split};

/// A step is as long as a step of totals behind the graph; the pause between two steps is this many times longer than there.
const PACE: u64 = 4;

/// The state of splits that are under way here.
#[derive(Clone, Debug, Default)]
pub(super) struct Splits {
    /// When the split that is under way continues.
    step_at: Option<Time>,
    writing: Option<Writing>,
}

/// A range that was split here, with parts that are not all on disk.
#[derive(Clone, Debug)]
struct Writing {
    split: Split,
    /// For each part that is told here: when this number of its checkpoint's flushes is done, all of it is on disk.
    flushes: BTreeMap<ShardId, u64>,
    /// The rows that are deleted from the first file then.
    stale: Stale,
}

/// The progress of a split here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Splitting {
    /// This number of its cells is copied, of all its cells.
    Copying { done: u64, of: u64 },
    /// There are two, which are not on disk yet.
    Writing,
    /// Other holders in the data centre are still at it.
    Others,
}

impl Splits {
    pub fn due(&self) -> Option<Time> {
        self.step_at
    }
}

impl AggregatorCore {
    /// The command that cuts a range in two, the second of which begins with `at`.
    ///
    /// # Errors
    /// [`MoveError`]: nothing was changed.
    pub fn splitting(&self, shard: ShardId, at: &CounterName, ledger: &Ledger) -> Result<LedgerCmd, MoveError> {
        // They would cut it elsewhere, or not at all, and then no other one either.
        if !self.cut_elsewhere.is_empty() {
            return Err(MoveError::CutElsewhere(self.cut_elsewhere.len()));
        }
        ledger.splitting(shard, at, self.config.own.dc, &self.config.ranges, &self.config.seats)
    }

    /// The progress here of a range that the ledger has split; `None` for other ranges.
    pub fn is_splitting(&self, shard: ShardId, ledger: &Ledger) -> Option<Splitting> {
        if self.splits.writing.as_ref().is_some_and(|writing| writing.split.parts().contains(&shard)) {
            return Some(Splitting::Writing);
        }
        ledger.shard_map().lineage().parts(shard).filter(|_| self.config.ranges.has(shard))?;
        let is_copied = self.view.splits().is_some_and(|split| split.shard == shard);
        let (done, of) = self.view.split_progress().filter(|_| is_copied).unwrap_or_default();
        Some(if self.config.gathers(shard) { Splitting::Copying { done, of } } else { Splitting::Others })
    }

    /// Whether a range is being split here, or will be.
    pub fn is_behind_splits(&self, ledger: &Ledger) -> bool {
        self.config.ranges.lineage().len() < ledger.shard_map().splits().len() || self.splits.writing.is_some()
    }

    /// Outputs the map that is on disk here from now on, and its files.
    pub(super) fn say_kept(&mut self, ledger: &Ledger) {
        let mut done = self.config.ranges.lineage().len();
        let mut kept = self.config.kept();
        if let Some(writing) = &self.splits.writing {
            done -= 1;
            kept.insert(writing.split.shard);
        }
        let map = ledger.shard_map().with_first_splits(done);
        self.outputs.push_back(Output::Kept { map, kept });
    }

    /// Reports the ranges held here with both parts on disk.
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
        // Reports are made by a map that is no older than the one on disk.
        if ledger.shard_map().revision() < self.map_revision() {
            return;
        }
        self.end_writing(now, ledger);
        let next = ledger.shard_map().splits().get(self.config.ranges.lineage().len());
        let Some(split) = next.filter(|_| self.splits.writing.is_none()) else {
            self.splits.step_at = None;
            return;
        };
        if self.view.splits().is_none() {
            let dc = self.config.own.dc;
            let seats = &self.config.seats;
            let may_begin = self.config.gathers(split.shard) || ledger.is_parted_in(split.shard, dc, seats);
            // A split that no layout as this one's allows is none.
            if !may_begin || self.config.ranges.split(split).is_none() {
                return;
            }
            self.view.begin_split(split, self.config.seed);
            self.splits.step_at = Some(now);
        }
        if self.splits.step_at.is_some_and(|at| at <= now) {
            match self.view.step_split(self.config.graph_step, ledger) {
                true => self.end_split(now, ledger),
                false => self.splits.step_at = Some(now + Span(PACE * self.config.graph_interval.0)),
            }
        }
    }

    /// From here on there are two in the place of the range.
    fn end_split(&mut self, now: Time, ledger: &Ledger) {
        self.splits.step_at = None;
        let mut before = self.gathered();
        let mut shown: BTreeSet<ShardId> = before.iter().copied().filter(|&shard| self.holds(shard)).collect();
        let Some(parted) = self.view.finish_split(self.config.seed, ledger) else { return };
        let shard = parted.split.shard;
        self.config.ranges = self.view.ranges().clone();
        self.config.seats = self.config.seats.with_lineage(self.config.ranges.lineage().clone());
        self.for_each_feed(|feed| feed.on_split(&parted));
        self.arrive_in_parts(&parted.split);
        let parts = [0, 1].map(|part| self.part(part, &parted));
        self.shards.extend(parts);
        let mut none = Shard::new(&self.config, shard);
        if shard == ShardId::FIRST {
            none.checkpoint = self.shards[0].checkpoint.of_limits_only();
        }
        self.shards[usize::from(shard.0)] = none;
        let parts = parted.split.parts();
        if shown.remove(&shard) {
            shown.extend(parts);
        }
        let is_told = before.remove(&shard);
        let stale = if shard == ShardId::FIRST { Stale::of(&parted.cells) } else { Stale::default() };
        if is_told {
            before.extend(parts);
            let mut flushes = BTreeMap::new();
            for part in parts.into_iter().filter(|&part| self.config.gathers(part)) {
                flushes.insert(part, self.shards[usize::from(part.0)].checkpoint.flush(now));
            }
            self.hand_flushes(shard, &flushes);
            self.splits.writing = Some(Writing { split: parted.split, flushes, stale });
            self.gather_by_map(now, &before, shown, ledger);
        } else {
            self.forget_flushes(shard);
            self.gather_by_map(now, &before, shown, ledger);
            self.drop_stale(now, stale);
        }
    }

    /// The state beside the cells of a part of a range.
    fn part(&self, part: usize, parted: &Parted) -> Shard {
        let shard = parted.split.parts()[part];
        let before = &parted.cells;
        let cells = self.view.cells(shard);
        let slot = |slot| parted.place(slot).filter(|place| place.part == part).map(|place| place.slot);
        let valve = |valve: u16| cells.valve_number(before.valves()[usize::from(valve)]);
        let row = |number| {
            let (of, by) = before.row_place(number);
            let of = slot(of)?;
            let by = valve(by)?;
            cells.row_numbers(of).find(|&(_, valve)| valve == by).map(|(number, _)| number)
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
            |(part, flush): (&ShardId, &u64)| self.shards[usize::from(part.0)].checkpoint.has_flushed(*flush);
        let Some(writing) = self.splits.writing.take_if(|writing| writing.flushes.iter().all(is_written)) else {
            return;
        };
        self.say_kept(ledger);
        self.drop_stale(now, writing.stale);
        self.say_parted(ledger);
    }

    /// A part is not told here any more.
    pub(super) fn forget_writing(&mut self, shard: ShardId) {
        if let Some(writing) = &mut self.splits.writing {
            writing.flushes.remove(&shard);
        }
    }

    /// The file of the first range stays, with the limits of readings.
    fn drop_stale(&mut self, now: Time, stale: Stale) {
        if !stale.is_empty() {
            self.shards[0].checkpoint.drop_rows(now, stale);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{AggregatorConfig, Input, Rows, is_of_image};
    use super::*;
    use tidemark_types::ids::{DcId, GroupId, LogIndex, Start};
    use tidemark_wire::msg::{FeedChunk, ForGroup, FromGroup, Hello, ScopedChunk, ScopedPull};
    use tidemark_wire::shards::{Ranges, Seats};

    const DC: DcId = DcId(0);
    const GROUP: GroupId = GroupId { dc: DC, group: 0, incarnation: 1 };
    const PARTS: [ShardId; 2] = [ShardId(4), ShardId(5)];

    fn counter(range: u8, number: u8) -> CounterName {
        CounterName::new("t", &[range, number]).unwrap()
    }

    /// One of four aggregators, the first of which holds ranges 0 and 3, and the second 0 and 1; its pulls and its disk.
    struct Stage {
        own: AggregatorId,
        core: AggregatorCore,
        ledger: Ledger,
        now: Time,
        pull: Option<ScopedPull>,
        disk: BTreeMap<ShardId, BTreeMap<Vec<u8>, Vec<u8>>>,
        /// The number of splits in the map on disk, and the ranges with rows there.
        kept: Option<(usize, BTreeSet<ShardId>)>,
        proposed: Vec<LedgerCmd>,
        /// Rows that are given out to be written stay on their way.
        is_stuck: bool,
        on_their_way: Vec<(ShardId, Rows)>,
    }

    fn config(own: AggregatorId, epoch: u64) -> AggregatorConfig {
        let cut = |number: u8| CounterName::new("t", &[number]).unwrap();
        let ranges = Ranges::of_cuts((1..4).map(cut).collect()).unwrap();
        let own_config = AggregatorConfig::new(DC, epoch);
        let seats = Seats::new(vec![4]);
        AggregatorConfig { own, paired: true, ranges, seats, reused_min: 1, reused_part: 1_000, ..own_config }
    }

    impl Stage {
        fn new(seat: u8) -> Stage {
            let own = AggregatorId { dc: DC, seat };
            let core = AggregatorCore::new(config(own, 1));
            let mut stage = Stage {
                own,
                core,
                ledger: Ledger::default(),
                now: Time(1_000),
                pull: None,
                disk: BTreeMap::new(),
                kept: None,
                proposed: Vec::new(),
                is_stuck: false,
                on_their_way: Vec::new(),
            };
            let hello = Hello { group: GROUP, lanes: 1, nonces: vec![1], number: 1, accounts: Vec::new() };
            stage.apply([LedgerCmd::Namespace("t".into()), LedgerCmd::Hello(hello)]);
            stage.apply([0, 1].map(|seat| LedgerCmd::ViewStart { view: AggregatorId { dc: DC, seat }, start: 1 }));
            stage.say(Input::GroupUp { group: GROUP });
            stage.say(Input::Leader(Some((own, 1))));
            stage
        }

        fn say(&mut self, input: Input) {
            let mut inputs = std::collections::VecDeque::from([input]);
            while let Some(input) = inputs.pop_front() {
                self.core.handle(self.now, input, &self.ledger);
                self.core.check_invariants();
                while let Some(output) = self.core.poll_output() {
                    match output {
                        Output::Group { msg: ForGroup::FeedIn(pull), .. } => self.pull = Some(pull),
                        Output::Kept { map, kept } => {
                            self.disk.retain(|shard, _| kept.contains(shard));
                            self.kept = Some((map.splits().len(), kept));
                        }
                        Output::Persist { shard, rows } if self.is_stuck => self.on_their_way.push((shard, rows)),
                        Output::Persist { shard, rows } => {
                            self.write(shard, rows);
                            inputs.push_back(Input::Persisted { shard });
                        }
                        Output::Propose(cmds) => self.proposed.extend(cmds),
                        _ => {}
                    }
                }
            }
        }

        fn apply(&mut self, cmds: impl IntoIterator<Item = LedgerCmd>) {
            for cmd in cmds {
                self.ledger.apply(self.ledger.applied().next(), &cmd);
            }
            let changes = self.ledger.take_changes();
            self.say(Input::Ledger(changes));
        }

        fn write(&mut self, shard: ShardId, rows: Rows) {
            let disk = self.disk.entry(shard).or_default();
            for (key, value) in rows {
                match value.is_empty() {
                    true => drop(disk.remove(&key)),
                    false => drop(disk.insert(key, value)),
                }
            }
        }

        /// What was on its way is written, and so is what comes from now on.
        fn release(&mut self) {
            self.is_stuck = false;
            for (shard, rows) in std::mem::take(&mut self.on_their_way) {
                self.write(shard, rows);
                self.say(Input::Persisted { shard });
            }
        }

        fn split(&mut self, range: u8) {
            let cmd = self.core.splitting(ShardId(range.into()), &counter(range, 50), &self.ledger).unwrap();
            self.apply([cmd]);
        }

        fn parted(&mut self, range: u16, seat: u8) {
            let change = ShardChange::Parted { seat };
            self.apply([LedgerCmd::Shard { dc: DC, shard: ShardId(range), revision: 0, change }]);
        }

        fn wait(&mut self, ticks: usize) {
            for _ in 0..ticks {
                self.now = self.now + tidemark_types::time::Span::from_millis(300);
                self.say(Input::Tick);
            }
        }

        /// The group tells of counters, with as many slots as it has named by then.
        fn tell(&mut self, upto: u64, counted: &[(u32, u8, u8, u64)], names: bool) {
            let pull = self.pull.take().unwrap();
            let chunk = FeedChunk {
                group: GROUP,
                start: Start { number: 1, nonce: 1 },
                base: pull.pull.cursor,
                upto: LogIndex(upto),
                applied: LogIndex(upto),
                first_slot: pull.pull.slots_known,
                cells: counted.iter().filter(|_| names).map(|of| counter(of.1, of.2).total()).collect(),
                components: counted.iter().map(|of| (of.0, 0, of.3)).collect(),
                ..FeedChunk::default()
            };
            let named = pull.pull.slots_known.max(counted.iter().map(|of| of.0 + 1).max().unwrap_or(0));
            let slots = counted.iter().filter(|_| names).map(|of| of.0).collect();
            let told = ScopedChunk { chunk, slots, named, scope: pull.scope, fills: false };
            self.say(Input::Group { group: GROUP, msg: FromGroup::FedIn(told) });
        }

        fn has(&self, range: u8, number: u8) -> u64 {
            self.core.view().sum_of(&counter(range, number), 0)
        }

        fn is_split(&self) -> bool {
            self.core.view().ranges().lineage().len() == 1
        }

        /// Begins anew from the disk.
        fn restart(&mut self) {
            self.restart_beside(self.ledger.clone());
        }

        /// The same with a replica of the ledger that is at another entry.
        fn restart_beside(&mut self, ledger: Ledger) {
            let map = self.ledger.shard_map().with_first_splits(self.kept.as_ref().map_or(0, |kept| kept.0));
            let config = config(self.own, 2).by_map(&map);
            let shards = (0..config.ranges.numbers() as u16).map(ShardId);
            let rows: Vec<_> = shards.map(|shard| self.disk.get(&shard).cloned().unwrap_or_default()).collect();
            self.core = AggregatorCore::recover_shards(config, rows).unwrap();
            (self.is_stuck, self.pull, self.ledger) = (false, None, ledger);
            self.on_their_way.clear();
            self.say(Input::GroupUp { group: GROUP });
        }
    }

    #[test]
    fn a_range_is_split_and_its_parts_are_told_on_from_where_it_was() {
        let mut stage = Stage::new(1);
        stage.tell(7, &[(0, 1, 10, 100), (1, 1, 60, 200)], true);
        stage.wait(8);
        stage.split(1);
        stage.wait(2);
        assert!(stage.is_split() && stage.core.holds(PARTS[0]) && !stage.core.holds(ShardId(1)));
        let told: Vec<_> = PARTS.map(|part| stage.core.view().cells(part).len()).into();
        assert_eq!((told, stage.has(1, 10), stage.has(1, 60)), (vec![1, 1], 100, 200));
        let pull = stage.pull.clone().unwrap();
        assert_eq!((pull.pull.cursor, pull.pull.slots_known), (LogIndex(7), 2), "nothing is told again");
        stage.tell(9, &[(1, 1, 60, 250)], false);
        assert_eq!((stage.has(1, 10), stage.has(1, 60)), (100, 250));
        stage.wait(8);
        assert_eq!(stage.kept, Some((1, [ShardId(0), PARTS[0], PARTS[1]].into())));
        let parted = ShardChange::Parted { seat: 1 };
        let said = |cmd: &LedgerCmd| matches!(cmd, LedgerCmd::Shard { change, .. } if *change == parted);
        assert!(stage.proposed.iter().any(said));
        stage.restart();
        assert_eq!((stage.has(1, 10), stage.has(1, 60), stage.is_split()), (100, 250, true));
    }

    /// The slots of ended cells of a range are noted when it is split: they are given away in its parts.
    #[test]
    fn slots_noted_before_a_split_are_given_away_after_it() {
        let mut stage = Stage::new(1);
        stage.tell(7, &[(0, 1, 10, 100), (1, 1, 60, 200), (2, 1, 11, 5)], true);
        stage.wait(8);
        stage.is_stuck = true;
        let reset = stage.ledger.reset(&counter(1, 10), false, true).unwrap();
        stage.apply([reset]);
        stage.apply([0, 1].map(|seat| LedgerCmd::ResetsHeard { view: AggregatorId { dc: DC, seat }, upto: 1 }));
        stage.wait(4);
        assert_eq!((stage.core.view().cells(ShardId(1)).over_len(), stage.has(1, 10)), (1, 0));
        stage.split(1);
        stage.wait(20);
        let of_first = |stage: &Stage| {
            let cells = stage.core.view().cells(PARTS[0]);
            (cells.len(), cells.over_len(), cells.free_len())
        };
        assert_eq!((stage.is_split(), of_first(&stage)), (true, (2, 1, 0)), "nothing of the parts is on disk");
        stage.release();
        stage.wait(40);
        assert_eq!(of_first(&stage), (2, 1, 1));
        stage.tell(9, &[(3, 1, 12, 7)], true);
        assert_eq!((of_first(&stage), stage.has(1, 12)), ((2, 0, 0), 7), "in the slot of the ended cell");
        stage.wait(40);
        stage.restart();
        assert_eq!((stage.has(1, 10), stage.has(1, 11), stage.has(1, 12), stage.has(1, 60)), (0, 5, 7, 200));
        stage.core.view().check_all();
    }

    /// The next start may come before that is in the ledger, and with a replica that does not know of the split yet.
    #[test]
    fn who_has_both_parts_on_disk_says_so_also_after_a_start_that_is_ahead_of_its_ledger() {
        let mut stage = Stage::new(1);
        stage.tell(7, &[(0, 1, 10, 100), (1, 1, 60, 200)], true);
        stage.wait(8);
        let before = stage.ledger.clone();
        let split = stage.core.splitting(ShardId(1), &counter(1, 50), &stage.ledger).unwrap();
        stage.apply([split.clone()]);
        stage.wait(10);
        assert_eq!(stage.kept.as_ref().map(|kept| kept.0), Some(1));
        stage.restart_beside(before);
        stage.proposed.clear();
        stage.say(Input::Leader(Some((stage.own, 1))));
        stage.wait(2);
        let parted = ShardChange::Parted { seat: 1 };
        let said = |cmd: &LedgerCmd| matches!(cmd, LedgerCmd::Shard { change, .. } if *change == parted);
        assert!(stage.is_split() && !stage.proposed.iter().any(said), "the ledger would not know of what");
        stage.apply([split]);
        stage.wait(2);
        assert!(stage.proposed.iter().any(said));
    }

    #[test]
    fn who_starts_before_both_parts_are_on_disk_begins_the_split_again() {
        let mut stage = Stage::new(1);
        stage.tell(7, &[(0, 1, 10, 100), (1, 1, 60, 200)], true);
        stage.wait(8);
        stage.is_stuck = true;
        stage.split(1);
        stage.wait(8);
        assert!(
            stage.is_split() && stage.kept.as_ref().is_some_and(|kept| kept.0 == 0 && kept.1.contains(&ShardId(1)))
        );
        assert_eq!(stage.core.is_splitting(PARTS[1], &stage.ledger), Some(Splitting::Writing));
        stage.restart();
        assert_eq!((stage.has(1, 10), stage.has(1, 60)), (100, 200));
        stage.wait(8);
        assert_eq!(stage.kept, Some((1, [ShardId(0), PARTS[0], PARTS[1]].into())));
        stage.restart();
        assert_eq!((stage.has(1, 10), stage.has(1, 60), stage.is_split()), (100, 200, true));
    }

    #[test]
    fn the_first_ones_file_stays_and_its_cells_go_from_it_also_after_a_start() {
        let mut stage = Stage::new(1);
        stage.tell(7, &[(0, 0, 10, 100), (1, 0, 60, 200)], true);
        stage.wait(8);
        assert!(stage.disk[&ShardId(0)].keys().any(|key| is_of_image(key)));
        let before = stage.disk[&ShardId(0)].clone();
        stage.split(0);
        stage.wait(16);
        let left = |stage: &Stage| stage.disk[&ShardId(0)].keys().filter(|key| is_of_image(key)).count();
        assert_eq!((left(&stage), stage.has(0, 60)), (0, 200));
        // As if nothing of that had been written yet.
        stage.disk.insert(ShardId(0), before);
        stage.restart();
        assert_eq!((stage.has(0, 10), stage.has(0, 60)), (100, 200));
        stage.wait(8);
        assert_eq!(left(&stage), 0);
    }

    /// Range 1, which the second and the third hold, is split, and its first part moves from the second to the fourth.
    fn split_and_move(stage: &mut Stage, changes: &[ShardChange]) -> Vec<LedgerCmd> {
        let views = [1, 2, 3].map(|seat| LedgerCmd::ViewStart { view: AggregatorId { dc: DC, seat }, start: 1 });
        stage.apply(views);
        let split = stage.core.splitting(ShardId(1), &counter(1, 50), &stage.ledger).unwrap();
        let of = |shard, revision, change| LedgerCmd::Shard { dc: DC, shard, revision, change };
        let parted = [1, 2].map(|seat| of(ShardId(1), 0, ShardChange::Parted { seat }));
        let moves = changes.iter().zip([1, 2]).map(|(change, at)| of(PARTS[0], at, change.clone()));
        std::iter::once(split).chain(parted).chain(moves).collect()
    }

    #[test]
    fn a_part_that_is_given_to_one_that_has_not_heard_of_the_split_arrives_there() {
        for changes in [1, 2] {
            let mut stage = Stage::new(3);
            stage.tell(7, &[], false);
            let join = ShardChange::Join { seats: [1, 2], seat: 3, leaves: 1 };
            let cmds = split_and_move(&mut stage, &[join, ShardChange::Hold][..changes]);
            stage.apply(cmds);
            stage.wait(2);
            assert!(stage.is_split() && stage.core.is_arriving() && !stage.core.holds(PARTS[0]));
            assert!(stage.kept.as_ref().is_some_and(|kept| kept.0 == 1 && kept.1.contains(&PARTS[0])));
        }
    }

    #[test]
    fn who_splits_late_keeps_the_part_that_stayed_and_forgets_the_one_that_was_moved_since() {
        let mut stage = Stage::new(1);
        stage.tell(7, &[(0, 1, 10, 100), (1, 1, 60, 200)], true);
        stage.wait(8);
        let join = ShardChange::Join { seats: [1, 2], seat: 3, leaves: 1 };
        let cmds = split_and_move(&mut stage, &[join, ShardChange::Hold]);
        stage.apply(cmds);
        stage.wait(8);
        assert_eq!((stage.has(1, 10), stage.has(1, 60)), (0, 200));
        assert_eq!(stage.kept, Some((1, [ShardId(0), PARTS[1]].into())));
        assert!(stage.core.take_left().contains_key(&PARTS[0]), "what readers were shown is not forgotten");
        assert!(!stage.core.is_behind_splits(&stage.ledger));
    }

    #[test]
    fn who_does_not_hold_it_goes_on_asking_for_it_until_all_who_do_have_two() {
        let mut stage = Stage::new(0);
        stage.split(1);
        stage.wait(3);
        assert!(!stage.is_split());
        assert_eq!(stage.core.is_splitting(ShardId(1), &stage.ledger), Some(Splitting::Others));
        stage.parted(1, 1);
        stage.wait(1);
        assert!(stage.is_split(), "the other one is set aside: nobody waits for it");
        assert_eq!(stage.kept.as_ref().map(|kept| kept.0), Some(1));
        let mut stage = Stage::new(0);
        let view = AggregatorId { dc: DC, seat: 2 };
        stage.apply([LedgerCmd::ViewStart { view, start: 1 }]);
        stage.split(1);
        stage.parted(1, 1);
        stage.wait(1);
        assert!(!stage.is_split());
        stage.parted(1, 2);
        stage.wait(1);
        assert!(stage.is_split());
    }
}
