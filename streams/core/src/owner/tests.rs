//! An owner counts each row once, whatever is lost, repeated or delayed.

use super::*;
use crate::blob::BlobMeta;
use crate::erasure::ErasureKey;
use crate::layout::{BucketsFrom, LargeTenant, PeriodUnit};
use crate::manifest::{
    Commit, Committed, Erase, Expire, ExpireRefused, Expired, Generation, Manifest, SetLayout, SetPause, SetTypes,
    TypesSet,
};
use crate::names::Names;
use crate::pause::PauseTarget;
use crate::rollup::RollupRow;
use crate::schema::TypeChange;
use crate::scope::TenantHash;
use crate::time::Day;
use crate::values::Values;
use proptest::prelude::*;

mod replacing;
mod turns;

const PARTITION: PartitionId = PartitionId(0);
const SOURCE: SourceId = SourceId([7; 32]);
const READING: ReadingId = ReadingId(1);
const NOW: Now = Now(1_800_000_000_000);
const STORED: StoredBlob = StoredBlob { bytes: 1, checksum: 2 };

fn config(generation: u64) -> OwnerConfig {
    OwnerConfig {
        partition: PARTITION,
        member: MemberId(generation),
        generation: Generation(generation),
        types: EventTypes::new(&["impression", "click"]).unwrap(),
        seed: 3,
        flush_after_ms: 1_000,
        cells_max: 4,
        fold_bytes_max: 1 << 30,
        dead_letters_max: 2,
        merge: MergePolicy { deltas_max: 3, rows_max: 1_000, put_every_ms: 20, ..MergePolicy::default() },
        retry_after_ms: 100,
        keep_flushed_ms: 10_000,
    }
}

/// Two virtual partitions of three buckets, and a tenant that is split in two from a day on that some rows are before.
fn layout() -> Layout {
    let buckets = vec![BucketsFrom { from: Day(0), buckets: 3 }];
    let large = vec![LargeTenant { tenant: TenantHash::of("t1"), from: Day(19_678), parts: 2 }];
    Layout { period: PeriodUnit::Week, virtual_partitions: 2, buckets, large }
}

/// Everything around an owner.
struct World {
    now: Now,
    owner: Owner,
    generation: u64,
    manifest: Manifest,
    store: BTreeMap<BlobKey, Content>,
    outputs: Vec<Output>,
    proposals: Vec<Command>,
    rows: Vec<Row>,
    /// Dead letters that were settled, by row: whether they were replayed.
    settled: BTreeMap<u64, bool>,
    /// The state that an operator knows.
    seen: replacing::Seen,
}

/// A row as the tests make it: a bad one has a negative count.
#[derive(Clone, Debug)]
struct Row {
    tenant: String,
    listing: String,
    at_s: i64,
    event_type: &'static str,
    count: i64,
}

impl World {
    fn new(rows: Vec<Row>) -> World {
        let owner = Owner::new(NOW, config(1));
        let (store, outputs, proposals) = Default::default();
        let mut manifest = Manifest::new();
        manifest.apply(&Command::Layout(SetLayout { version: 0, layout: layout() }));
        let settled = BTreeMap::new();
        let seen = replacing::Seen::default();
        World { now: NOW, owner, generation: 1, manifest, store, outputs, proposals, rows, settled, seen }
    }

    fn pull(&mut self) {
        while let Some(output) = self.owner.poll_output() {
            self.outputs.push(output);
        }
    }

    fn give_rows(&mut self, count: usize) {
        let Some(from) = self.owner.position(SOURCE) else { return };
        let end = (from as usize + count).min(self.rows.len());
        // A row more in front, which was taken before.
        let begin = (from as usize).saturating_sub(1);
        let records: Vec<Record<'_>> = self.rows[begin..end].iter().map(Row::record).collect();
        let batch =
            RowBatch { source: SOURCE, reading: READING, from: begin as u64, is_logged: false, records: &records };
        self.owner.handle(self.now, Input::Rows(batch));
        if end == self.rows.len() {
            self.owner.handle(self.now, Input::End { source: SOURCE, reading: READING, rows: end as u64 });
        }
    }

    /// The last expiry that was proposed.
    fn expiry(&mut self) -> Expire {
        self.pull();
        let expiry = |output: &Output| match output {
            Output::Propose(Command::Expire(expire)) => Some(*expire),
            _ => None,
        };
        self.outputs.iter().rev().find_map(expiry).unwrap()
    }

    /// The manifest says what became of an expiry.
    fn expired(&mut self, of: Expire, result: Result<Expired, ExpireRefused>) {
        let Expire { partition, epoch, seq, .. } = of;
        let outcome = Outcome::Expire { partition, epoch, seq: Some(seq), result };
        self.owner.handle(self.now, Input::Applied { outcome: &outcome, manifest: &self.manifest });
    }

    /// Carries out an output that is waiting.
    fn carry_out(&mut self, at: usize) {
        self.pull();
        if self.outputs.is_empty() {
            return;
        }
        let at = at % self.outputs.len();
        match self.outputs.remove(at) {
            Output::Propose(command) => self.proposals.push(command),
            Output::Put(put) => {
                assert!(self.store.insert(put.key, put.content).is_none(), "a name is used once");
                self.owner.handle(self.now, Input::Stored { key: put.key, stored: STORED });
            }
            Output::Load(key) => match self.store.get(&key) {
                Some(Content::Rows(rows)) => {
                    let rows = Rollups::clone(rows);
                    self.owner.handle(self.now, Input::Loaded { key, rows });
                }
                Some(Content::DeadLetters(letters)) => {
                    let letters = Vec::clone(letters);
                    self.owner.handle(self.now, Input::LoadedLetters { key, letters });
                }
                None => panic!("{key}"),
            },
            Output::Stopped(stop) => assert_eq!(stop, Stop::Deposed),
        }
    }

    fn fail(&mut self, at: usize) {
        self.pull();
        let count = self.outputs.len().max(1);
        if let Some(Output::Put(put)) = self.outputs.get(at % count) {
            let key = put.key;
            self.outputs.remove(at % count);
            self.owner.handle(self.now, Input::StoreFailed { key });
        }
    }

    fn apply(&mut self, at: usize, is_kept: bool) {
        if self.proposals.is_empty() {
            return;
        }
        let at = at % self.proposals.len();
        let command = if is_kept { self.proposals[at].clone() } else { self.proposals.remove(at) };
        let command = Command::decode(&command.encode().unwrap()).unwrap();
        let outcome = self.manifest.apply(&command);
        if let (Command::Commit(commit), Outcome::Commit { result: Ok(Committed::Now), .. }) = (&command, &outcome) {
            self.note_settled(commit);
        }
        self.owner.handle(self.now, Input::Applied { outcome: &outcome, manifest: &self.manifest });
        self.check();
    }

    fn apply_unchecked(&mut self, at: usize) {
        if self.proposals.is_empty() {
            return;
        }
        let command = self.proposals.remove(at);
        let outcome = self.manifest.apply(&command);
        self.owner.handle(self.now, Input::Applied { outcome: &outcome, manifest: &self.manifest });
    }

    /// Letters that a commit takes away are settled for the first time.
    fn note_settled(&mut self, commit: &Commit) {
        let Some(settled) = commit.settled else { return };
        let erasures = &self.manifest.partition(PARTITION).unwrap().erasures;
        // An erased letter is dropped, whatever the operator wishes.
        let is_erased =
            |letter: &DeadLetter, seq| erasures.erases_stored_letter(&Names::of_text(&letter.text, self.now), seq);
        let rows = |key: &BlobKey| match &self.store[key] {
            Content::DeadLetters(letters) => {
                letters.iter().map(|letter| (letter.row, is_erased(letter, key.seq))).collect()
            }
            Content::Rows(_) => Vec::new(),
        };
        let kept: Vec<u64> = commit.add.iter().flat_map(|meta| rows(&meta.key)).map(|(row, _)| row).collect();
        let gone = commit.remove.iter().flat_map(rows).filter(|(row, _)| !kept.contains(row));
        for (row, is_erased) in gone.collect::<Vec<_>>() {
            let is_replayed = row % 2 == 0 && settled.replayed > 0 && !is_erased;
            assert_eq!(self.settled.insert(row, is_replayed), None, "row {row} is settled twice");
        }
    }

    /// Letters of even rows are replayed with a new count, those of odd rows dropped, and some stay.
    fn settle(&mut self, at: usize) {
        let Some(partition) = self.manifest.partition(PARTITION) else { return };
        let blobs: Vec<BlobMeta> = partition.live.of_level(Level::DeadLetters).collect();
        let Some(meta) = blobs.get(at % blobs.len().max(1)) else { return };
        let Content::DeadLetters(letters) = &self.store[&meta.key] else { panic!("{meta:?}") };
        let fixed: Vec<Row> = letters.iter().map(|letter| self.rows[letter.row as usize].fixed()).collect();
        let records: Vec<[Record<'_>; 1]> = fixed.iter().map(|row| [row.record()]).collect();
        let mut settling: Vec<Letter<'_>> = Vec::new();
        for (letter, records) in letters.iter().zip(&records) {
            let fate = match letter.row % 2 {
                _ if letter.row as usize % 7 == at % 7 => Fate::Keep,
                0 => Fate::Replay(records),
                _ => Fate::Drop,
            };
            settling.push(Letter { letter, fate });
        }
        self.owner.handle(self.now, Input::Settle(Letters { key: meta.key, letters: &settling }));
    }

    /// Erases a tenant, or a listing of it, in all hours that rows have.
    fn erase(&mut self, at: usize) {
        let listing = format!("l{}", at % 3);
        let key = ErasureKey::of(&format!("t{}", at / 3 % 3), at.is_multiple_of(2).then_some(&listing));
        let before = crate::time::Hour(1_700_000_000 / 3_600 + 200);
        let erase = Erase { partition: PARTITION, key, before, asked_at_ms: self.now.0 };
        let outcome = self.manifest.apply(&Command::Erase(erase));
        self.owner.handle(self.now, Input::Applied { outcome: &outcome, manifest: &self.manifest });
        self.check();
    }

    fn pause(&mut self, is_paused: bool) {
        let paused_at_ms = is_paused.then_some(self.now.0);
        let pause = SetPause { target: PauseTarget::Partition(PARTITION), paused_at_ms };
        let outcome = self.manifest.apply(&Command::Pause(pause));
        self.owner.handle(self.now, Input::Applied { outcome: &outcome, manifest: &self.manifest });
    }

    fn tick(&mut self, ms: u64) {
        self.now = self.now.plus_ms(ms);
        self.owner.handle(self.now, Input::Tick);
    }

    fn crash(&mut self) {
        self.generation += 1;
        self.outputs.clear();
        self.owner = Owner::new(self.now, config(self.generation));
    }

    /// What the rows below a position count, and letters that were replayed.
    fn counted(&self, below: usize, settled: &BTreeMap<u64, bool>) -> Rollups {
        let replayed = settled.iter().filter(|(_, is_replayed)| **is_replayed);
        let fixed: Vec<Row> = replayed.map(|(row, _)| self.rows[*row as usize].fixed()).collect();
        let mut rows = brute_force(&self.rows[..below]).0;
        brute_force(&fixed).0.iter().for_each(|row| rows.push(row).unwrap());
        rows.combine();
        rows
    }

    /// The sum of all live blobs is what the rows below the position say, key by key.
    fn check(&self) {
        let Some(partition) = self.manifest.partition(PARTITION) else { return };
        let mut found = Rollups::new();
        let mut letters = Vec::new();
        for meta in partition.live.values() {
            match &self.store[&meta.key] {
                Content::Rows(rows) => {
                    let is_right = |row: RollupRow<'_>| {
                        meta.scope.holds(TenantHash::of(row.tenant), row.listing) && meta.hours.contains(row.hour)
                    };
                    assert!(rows.iter().all(is_right), "{meta:?}");
                    rows.iter().for_each(|row| found.push(row).unwrap());
                }
                Content::DeadLetters(some) => letters.extend(some.iter().map(|letter| letter.row)),
            }
        }
        found.combine();
        let below = partition.source(SOURCE).next_row as usize;
        let rows = self.counted(below, &self.settled);
        let of_file = brute_force(&self.rows[..below]).1;
        let mut bad: Vec<u64> = of_file.into_iter().filter(|row| !self.settled.contains_key(row)).collect();
        letters.sort_unstable();
        // Until an erasure is done, its letters may be live, and then none is. A broken row names no tenant.
        let is_erased = |row: &u64| {
            let Row { tenant, listing, at_s, event_type, .. } = &self.rows[*row as usize];
            let hour = crate::time::Hour((at_s / 3_600) as u32);
            *event_type != "broken" && partition.erasures.erases(TenantHash::of(tenant), listing, hour)
        };
        if partition.erasures.pending() == 0 {
            assert!(!letters.iter().any(is_erased), "an erasure is done, and blobs hold its letters");
        }
        letters.retain(|row| !is_erased(row));
        bad.retain(|row| !is_erased(row));
        // Until an erasure is done, blobs may hold its rows, and then none does.
        let without = |rows: &Rollups| partition.erasures.kept(rows).unwrap().unwrap_or_else(|| rows.clone());
        assert_eq!((without(&found), letters), (without(&rows), bad));
        if partition.erasures.pending() == 0 {
            assert_eq!(without(&found), found, "an erasure is done, and blobs hold its rows");
        }
    }

    /// All rows are old, so what was sealed is one blob for each bucket and period.
    fn check_merged(&self) {
        let Some(partition) = self.manifest.partition(PARTITION) else { return };
        let blobs: Vec<BlobMeta> = partition.live.values().filter(|meta| meta.level.is_of_rows()).collect();
        let group = |meta: &BlobMeta| (meta.scope, PeriodUnit::Week.start_of(meta.hours.first.day()));
        let groups: std::collections::BTreeSet<_> = blobs.iter().map(group).collect();
        assert!(blobs.iter().all(|meta| meta.level == Level::Period), "{blobs:?}");
        assert_eq!(groups.len(), blobs.len(), "{blobs:?}");
    }

    fn finish(&mut self) {
        self.crash();
        self.pause(false);
        for _ in 0..100_000 {
            if self.owner.stopped().is_some() {
                self.crash();
            }
            self.give_rows(5);
            self.carry_out(0);
            self.apply(0, false);
            self.tick(50);
            if self.owner.is_complete(SOURCE) && self.owner.is_quiet() {
                self.owner.handle(self.now, Input::Seal);
                self.pull();
                if self.outputs.is_empty() {
                    assert_eq!(self.manifest.partition(PARTITION).unwrap().erasures.pending(), 0);
                    return self.check();
                }
            }
        }
        panic!("it never ends");
    }
}

impl Row {
    /// The row as which its dead letter is replayed.
    fn fixed(&self) -> Row {
        Row { event_type: "click", count: 7, ..self.clone() }
    }

    fn record(&self) -> Record<'_> {
        if self.event_type == "broken" {
            return Record::Broken { reason: "no JSON", text: "{" };
        }
        let Row { tenant, listing, at_s, event_type, count } = self;
        Record::Event(RawEvent { tenant, listing, at_s: *at_s, event_type, count: *count, values: Values::NONE })
    }
}

/// The counts of rows, added up by a plain loop, and the numbers of the bad rows.
fn brute_force(rows: &[Row]) -> (Rollups, Vec<u64>) {
    let mut all = Rollups::new();
    let mut bad = Vec::new();
    for (number, row) in (0..).zip(rows) {
        if row.count < 0 || row.event_type == "broken" || row.listing.len() > 255 {
            bad.push(number);
            continue;
        }
        let mut quarters = [0; 4];
        quarters[(row.at_s % 3_600 / 900) as usize] = row.count as u32;
        let hour = crate::time::Hour((row.at_s / 3_600) as u32);
        let tenant = &row.tenant;
        let listing = &row.listing;
        let event_type = row.event_type;
        all.push(RollupRow { tenant, values: Values::NONE, listing, hour, event_type, quarters }).unwrap();
    }
    all.combine();
    (all, bad)
}

fn row() -> impl Strategy<Value = Row> {
    let types = prop_oneof![4 => Just("impression"), 2 => Just("click"), 1 => Just("broken")];
    (0..3_u8, 0..3_u8, 0..400_i64, types, -1..4_i64).prop_map(|(tenant, listing, quarter, event_type, count)| Row {
        tenant: format!("t{tenant}"),
        listing: format!("l{listing}"),
        at_s: 1_700_000_000 + quarter * 900,
        event_type,
        count,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn each_row_counts_once_whatever_is_lost_repeated_or_delayed(
        rows in proptest::collection::vec(row(), 0..60),
        steps in proptest::collection::vec((0..17_u8, 0..100_usize), 0..300),
    ) {
        let mut world = World::new(rows);
        for (step, at) in steps {
            match step {
                0..=2 => world.give_rows(at % 7),
                3..=6 => world.carry_out(at),
                7 => world.apply(at, true),
                8 | 9 => world.apply(at, false),
                10 if at % 10 == 0 => world.tick(at as u64 * 3_600_000),
                10 => world.tick(at as u64 * 20),
                12 => {
                    world.owner.handle(world.now, Input::LettersWait(at % 3 > 0));
                    world.settle(at);
                }
                13 => world.pause(at % 2 == 0),
                14 if at % 8 == 0 => world.erase(at / 8),
                14 => world.carry_out(at),
                15 => world.replace(at),
                16 => world.look(),
                _ if at % 3 > 0 => world.fail(at),
                _ => world.crash(),
            }
        }
        world.finish();
        world.check_merged();
    }
}

#[test]
fn rows_that_skip_some_stop_the_owner() {
    let mut world = World::new(Vec::new());
    world.carry_out(0);
    world.apply(0, false);
    let batch = RowBatch { source: SOURCE, reading: READING, from: 3, is_logged: false, records: &[] };
    world.owner.handle(NOW, Input::Rows(batch));
    assert_eq!(world.owner.stopped(), Some(&Stop::Gap { source_id: SOURCE, expected: 0, from: 3 }));
}

#[test]
fn source_that_became_shorter_stops_the_owner() {
    let row = Row { tenant: "a".into(), listing: "b".into(), at_s: 0, event_type: "click", count: 1 };
    let mut world = World::new(vec![row.clone(), row]);
    world.carry_out(0);
    world.apply(0, false);
    let records = [world.rows[0].record(), world.rows[1].record()];
    let batch = RowBatch { source: SOURCE, reading: READING, from: 0, is_logged: false, records: &records };
    world.owner.handle(NOW, Input::Rows(batch));
    world.owner.handle(NOW, Input::End { source: SOURCE, reading: READING, rows: 1 });
    let stop = Stop::ShortSource { source_id: SOURCE, rows: 1, expected: 2 };
    assert_eq!(world.owner.stopped(), Some(&stop));
}

#[test]
fn letter_that_still_cannot_count_stays_with_the_new_reason() {
    let bad = Row { tenant: "a".into(), listing: "b".into(), at_s: 0, event_type: "click", count: -1 };
    let mut world = World::new(vec![bad.clone(), bad]);
    let settle_all = |world: &mut World, records: &[Record<'_>]| {
        for _ in 0..20 {
            world.give_rows(5);
            world.carry_out(0);
            world.apply(0, false);
            world.tick(100);
        }
        let letters = world.manifest.live().find(|meta| meta.level == Level::DeadLetters).unwrap();
        let Content::DeadLetters(stored) = world.store[&letters.key].clone() else { panic!("{letters:?}") };
        let settling: Vec<Letter<'_>> =
            stored.iter().map(|letter| Letter { letter, fate: Fate::Replay(records) }).collect();
        world.owner.handle(world.now, Input::Settle(Letters { key: letters.key, letters: &settling }));
        world.pull();
        stored
    };
    let values = Values::NONE;
    let unknown = RawEvent { tenant: "a", listing: "b", at_s: 0, event_type: "view", count: 1, values };
    for records in [&[][..], &[Record::Event(unknown)], &[Record::Broken { reason: "no JSON", text: "" }]] {
        settle_all(&mut world, records);
        assert!(world.outputs.is_empty(), "nothing is written where nothing is settled: {:?}", world.outputs);
    }
    let valid = RawEvent { event_type: "click", ..unknown };
    let stored = settle_all(&mut world, &[Record::Event(valid), Record::Event(RawEvent { listing: "c", ..valid })]);
    let [Output::Put(put)] = &world.outputs[..] else { panic!("{:?}", world.outputs) };
    let Content::Rows(rows) = &put.content else { panic!("{put:?}") };
    assert_eq!((stored.len(), rows.total(), rows.len()), (2, 4, 2), "each letter counts the two rows of its page");
}

#[test]
fn paused_owner_takes_no_rows_until_it_is_resumed() {
    let row = Row { tenant: "a".into(), listing: "b".into(), at_s: 0, event_type: "click", count: 1 };
    let mut world = World::new(vec![row; 30]);
    world.pause(true);
    world.carry_out(0);
    world.apply(0, false);
    // The claim takes the pause over.
    world.give_rows(5);
    assert_eq!((world.owner.is_paused(), world.owner.position(SOURCE)), (true, Some(0)));
    world.pause(false);
    world.give_rows(5);
    world.pause(true);
    world.tick(3_600_000);
    world.give_rows(5);
    world.pull();
    assert_eq!((world.owner.position(SOURCE), world.outputs.len()), (Some(5), 0), "no flush begins");
    assert_eq!((world.owner.poll_timeout(), world.owner.rows_of(world.now, "a").unwrap()[0].to), (None, 5));
    world.finish();
    world.check_merged();
}

/// An owner with a row of tenant `a` and a bad one of each of `a` and `b`, read and not written.
fn world_with_letters() -> World {
    let row = |tenant: &str, count| Row {
        tenant: tenant.into(),
        listing: "l1".into(),
        at_s: 1_700_000_000,
        event_type: "click",
        count,
    };
    let long = Row { tenant: "a".into(), listing: "x".repeat(5_000), ..row("a", 1) };
    let mut world = World::new(vec![row("a", 1), long, row("b", -1), row("b", 1), row("b", 1)]);
    world.carry_out(0);
    world.apply(0, false);
    world.give_rows(3);
    world
}

fn erase_tenant(world: &mut World, tenant: &str) {
    let erase = Erase {
        partition: PARTITION,
        key: ErasureKey::of(tenant, None),
        before: crate::time::Hour(480_000),
        asked_at_ms: 1,
    };
    let outcome = world.manifest.apply(&Command::Erase(erase));
    world.owner.handle(world.now, Input::Applied { outcome: &outcome, manifest: &world.manifest });
}

/// The rows of all letters that are live.
fn letters_of(world: &World) -> Vec<u64> {
    let metas = world.manifest.live().filter(|meta| meta.level == Level::DeadLetters);
    let letters = metas.flat_map(|meta| match &world.store[&meta.key] {
        Content::DeadLetters(letters) => letters.iter().map(|letter| letter.row).collect(),
        Content::Rows(_) => Vec::new(),
    });
    letters.collect()
}

#[test]
fn letters_of_an_erased_tenant_leave_the_window() {
    let mut world = world_with_letters();
    erase_tenant(&mut world, "a");
    world.finish();
    // The text of row 1 is cut, and names the tenant all the same.
    assert_eq!(letters_of(&world), [2]);
    assert_eq!(world.manifest.partition(PARTITION).unwrap().source(SOURCE).accepted, 4);
}

#[test]
fn letters_of_an_erased_tenant_leave_a_flush_under_way() {
    let mut world = world_with_letters();
    // Two letters are as many as are held: their flush has begun.
    world.pull();
    let puts = |world: &World| world.outputs.iter().filter(|output| matches!(output, Output::Put(_))).count();
    assert_eq!(puts(&world), 2);
    erase_tenant(&mut world, "a");
    world.finish();
    assert_eq!(letters_of(&world), [2]);
}

#[test]
fn letters_of_rows_that_come_after_an_erasure_are_judged_by_their_hour() {
    let mut world = world_with_letters();
    world.rows[2].tenant = "a".into();
    world.rows[2].at_s = 1_799_999_999;
    world.crash();
    world.carry_out(0);
    world.apply(0, false);
    erase_tenant(&mut world, "a");
    for _ in 0..50 {
        world.give_rows(5);
        world.carry_out(0);
        world.apply_unchecked(0);
        world.tick(100);
    }
    assert_eq!(letters_of(&world), [2], "the hour of row 2 is behind the erasure");
}

#[test]
fn owner_expires_by_the_clock_of_the_machine() {
    let row = Row { tenant: "a".into(), listing: "b".into(), at_s: 1_700_000_000, event_type: "click", count: 1 };
    let mut world = World::new(vec![row]);
    world.carry_out(0);
    world.apply(0, false);
    let retention = crate::manifest::SetRetention { retention: Retention { late_days: 0, kept_days: 3 } };
    for _ in 0..50 {
        world.give_rows(5);
        world.carry_out(0);
        world.apply(0, false);
        world.tick(100);
    }
    // The rows of a log were accepted years later by a clock that was ahead.
    world.owner.handle(world.now, Input::Clock(Now(1_700_000_000_000)));
    let outcome = world.manifest.apply(&Command::Retention(retention));
    world.owner.handle(world.now, Input::Applied { outcome: &outcome, manifest: &world.manifest });
    assert_eq!(world.expiry().today, crate::retention::today(Now(1_700_000_000_000)));
}

/// An owner that has just proposed to expire blobs.
fn expiring() -> (World, Expire) {
    let row = Row { tenant: "a".into(), listing: "b".into(), at_s: 1_700_000_000, event_type: "click", count: 1 };
    let mut world = World::new(vec![row]);
    world.carry_out(0);
    world.apply(0, false);
    world.give_rows(1);
    world.finish();
    let retention = crate::manifest::SetRetention { retention: Retention { late_days: 0, kept_days: 3 } };
    let outcome = world.manifest.apply(&Command::Retention(retention));
    world.owner.handle(world.now, Input::Applied { outcome: &outcome, manifest: &world.manifest });
    let expire = world.expiry();
    (world, expire)
}

#[test]
fn each_part_of_an_expiry_has_a_number_of_its_own() {
    let (mut world, first) = expiring();
    world.expired(first, Ok(Expired { blobs: Vec::new(), has_more: true }));
    // A copy of the first part is refused, and says nothing about the second one.
    world.expired(first, Err(ExpireRefused::OldSeq { seq: first.seq, last: first.seq }));
    assert_eq!(world.expiry(), Expire { seq: Seq(first.seq.0 + 1), ..first });
    assert_eq!(world.owner.stopped(), None);
}

/// Another process commits under its epoch.
#[test]
fn owner_whose_expiry_is_refused_stops() {
    let (mut world, expire) = expiring();
    let refused = ExpireRefused::OldSeq { seq: expire.seq, last: Seq(expire.seq.0 + 7) };
    world.expired(expire, Err(refused));
    assert_eq!(world.owner.stopped(), Some(&Stop::Expire(refused)));
}

#[test]
fn rows_are_taken_while_a_flush_is_written() {
    let row = |quarter: i64| Row {
        tenant: "t1".into(),
        listing: "l1".into(),
        at_s: 1_700_000_000 + quarter * 900,
        event_type: "click",
        count: 1,
    };
    let mut world = World::new((0..20).map(row).collect());
    world.carry_out(0);
    world.apply(0, false);
    // Four counts are as many as are held: their flush begins, and the rows behind them are taken until they are due too.
    world.give_rows(4);
    assert_eq!((world.owner.position(SOURCE), world.owner.takes_rows()), (Some(4), true));
    world.give_rows(10);
    assert_eq!((world.owner.position(SOURCE), world.owner.takes_rows()), (Some(8), false));
    world.finish();
    world.check_merged();
}

/// Three flushes make a merge, whose inputs are read.
#[test]
fn blob_that_cannot_be_read_holds_up_no_flush() {
    let mut world = World::new(hourly_rows(40));
    world.carry_out(0);
    world.apply(0, false);
    let step = |world: &mut World, bad: Option<BlobKey>| {
        world.pull();
        match world.outputs.first() {
            Some(Output::Load(key)) if bad.is_none_or(|bad| bad == *key) => {
                let key = *key;
                world.outputs.remove(0);
                world.owner.handle(world.now, Input::StoreFailed { key });
                return Some(key);
            }
            _ => world.carry_out(0),
        }
        world.apply(0, false);
        None
    };
    let counted = |world: &World| world.manifest.partition(PARTITION).unwrap().source(SOURCE).next_row;
    let mut bad = None;
    while bad.is_none() {
        if world.owner.position(SOURCE) < Some(12) {
            world.give_rows(4);
        }
        bad = step(&mut world, None);
    }
    assert_eq!(world.owner.unreadable_blobs(), 1);
    let before = counted(&world);
    for _ in 0..40 {
        world.give_rows(4);
        step(&mut world, bad);
    }
    assert!(counted(&world) > before, "rows are flushed");
    assert!(world.owner.live.contains_key(&bad.unwrap()), "the blob stays live");
    // Once it can be read again, it is merged.
    world.finish();
    assert_eq!(world.owner.unreadable_blobs(), 0);
    world.check();
}

/// Rows of one listing, an hour apart.
fn hourly_rows(count: i64) -> Vec<Row> {
    let row = |hour: i64| Row {
        tenant: "a".into(),
        listing: "x".into(),
        at_s: 1_799_000_000 + hour * 3_600,
        event_type: "click",
        count: 1,
    };
    (0..count).map(row).collect()
}

#[test]
fn merge_with_too_much_text_is_planned_again_with_fewer_rows() {
    let mut world = World::new(hourly_rows(12));
    world.carry_out(0);
    world.apply(0, false);
    let loads = |world: &mut World| {
        world.pull();
        world.outputs.iter().filter(|output| matches!(output, Output::Load(_))).count()
    };
    while loads(&mut world) == 0 {
        world.give_rows(4);
        world.carry_out(0);
        world.apply(0, false);
    }
    let before = loads(&mut world);
    assert!(before > 1, "a merge of several blobs");
    world.outputs.clear();
    world.owner.merge_less(world.now, RowError::TooMuchText);
    world.tick(0);
    assert!(loads(&mut world) < before, "{} blobs of {before}", loads(&mut world));
    assert!(!matches!(world.owner.state, State::Stopped(_)));
    world.finish();
    world.check();
}

fn is_flush(command: &Command) -> bool {
    matches!(command, Command::Commit(commit) if commit.progress.is_some())
}

#[test]
fn merges_take_turns_with_a_deletion() {
    let row = |number: i64| Row {
        tenant: format!("t{}", number % 3),
        listing: "l0".into(),
        at_s: 1_700_000_000 + number * 3_600,
        event_type: "click",
        count: 1,
    };
    let mut world = World::new((0..40).map(row).collect());
    let merge = MergePolicy { merge_every_ms: 0, ..config(1).merge };
    world.owner = Owner::new(NOW, OwnerConfig { merge, ..config(1) });
    world.carry_out(0);
    world.apply(0, false);
    while world.owner.position(SOURCE).is_some_and(|position| position < 40) {
        world.give_rows(4);
        for _ in 0..20 {
            world.carry_out(0);
            world.apply_unchecked(0);
        }
        world.tick(1_000);
    }
    let change = TypeChange::Delete { name: "impression".to_owned() };
    let set = SetTypes { set: TypesSet::Change(change), asked_at_ms: 1, log_row: 0 };
    let outcome = world.manifest.apply(&Command::Types(set));
    assert_eq!(outcome, Outcome::Types { result: Ok(true) });
    // Days later all merges are due at once.
    world.now = world.now.plus_ms(30 * 86_400_000);
    world.owner.handle(world.now, Input::Applied { outcome: &outcome, manifest: &world.manifest });
    let mut merges = Vec::new();
    for _ in 0..1_000 {
        if world.owner.deleting() == 0 {
            break;
        }
        world.tick(20);
        world.carry_out(0);
        if let Some(Command::Commit(commit)) = world.proposals.first().filter(|command| !is_flush(command)) {
            let removed = world.manifest.partition(PARTITION).unwrap().live.get(&commit.remove[0]).unwrap();
            merges.push(commit.add[0].level != removed.level);
        }
        world.apply_unchecked(0);
    }
    assert_eq!(world.owner.deleting(), 0, "the deletion comes to its end");
    assert_eq!(merges.get(..4), Some(&[false, true, false, true][..]), "{merges:?}");
}

/// Which of four rows became dead letters. Their name was reused after the second row of the log.
fn refused_of_a_name_used_again(is_logged: bool) -> Vec<u64> {
    let row = Row { tenant: "a".into(), listing: "x".into(), at_s: 1_700_000_000, event_type: "click", count: 1 };
    let mut world = World::new(Vec::new());
    world.carry_out(0);
    world.apply(0, false);
    for change in [TypeChange::Delete { name: "click".to_owned() }, TypeChange::Add { name: "click".to_owned() }] {
        // The clock of the proposer is far ahead.
        let set = SetTypes { set: TypesSet::Change(change), asked_at_ms: u64::MAX, log_row: 2 };
        let outcome = world.manifest.apply(&Command::Types(set));
        world.owner.handle(world.now, Input::Applied { outcome: &outcome, manifest: &world.manifest });
    }
    let records = [row.record(); 4];
    for _ in 0..20 {
        let batch = RowBatch { source: SOURCE, reading: READING, from: 0, is_logged, records: &records };
        world.owner.handle(world.now, Input::Rows(batch));
        world.owner.handle(world.now, Input::Flush);
        world.carry_out(0);
        world.apply_unchecked(0);
    }
    let refused = letters_of(&world);
    assert_eq!(world.manifest.partition(PARTITION).unwrap().total, 4 - refused.len() as u128);
    refused
}

#[test]
fn rows_of_a_log_mean_what_they_meant_at_their_acceptance() {
    assert_eq!(refused_of_a_name_used_again(true), [0, 1]);
    assert_eq!(refused_of_a_name_used_again(false), [0_u64; 0]);
}
