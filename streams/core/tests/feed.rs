//! A follower of a manifest and the rows of an owner: any lag, delay, takeover, rename or erasure gives a true number, or none.
//!
//! The true number of an index: the rows below the position count as the commits decided, and those behind it as the owner of that
//! epoch reads them.

use proptest::prelude::*;
use std::collections::BTreeMap;
use tidemark_streams_core::blob::{BlobKey, PartitionId, StoredBlob};
use tidemark_streams_core::erasure::ErasureKey;
use tidemark_streams_core::event::{EventTypes, RawEvent};
use tidemark_streams_core::feed::{
    Apart, Applied, FeedRefused, FollowError, Follower, Held, HeldSet, Joined, Logged, Mark, Page, Reach, Recent,
    Served, SessionId, Snapshot, Subject, Told,
};
use tidemark_streams_core::limits::{FEED_BYTES_MAX, FEED_COMMANDS_MAX};
use tidemark_streams_core::manifest::{
    Command, Erase, Fence, Generation, Manifest, MemberId, Outcome, SetTypes, TypesSet,
};
use tidemark_streams_core::merge::MergePolicy;
use tidemark_streams_core::owner::{Content, Input, Output, Owner, OwnerConfig, Record, RowBatch};
use tidemark_streams_core::query::Plan;
use tidemark_streams_core::rollup::{RollupRow, Rollups};
use tidemark_streams_core::schema::TypeChange;
use tidemark_streams_core::source::{ReadingId, SourceId};
use tidemark_streams_core::time::{Hour, HourRange, Now};
use tidemark_streams_core::values::Values;

const PARTITION: PartitionId = PartitionId(0);
const SOURCE: SourceId = SourceId([7; 32]);
const SUBJECT: Subject = Subject { partition: PARTITION, source: SOURCE };
const SESSION: SessionId = SessionId(9);
const START: Now = Now(1_800_000_000_000);
/// The hour of all rows.
const HOUR: u32 = 499_990;
const TENANT: &str = "t";
const CASES: u32 = 256;

#[derive(Clone, Debug)]
enum Step {
    /// The owner reads rows.
    Read(usize),
    /// The owner's next actions are carried out.
    CarryOut(usize),
    Flush,
    Wait(u64),
    /// Another owner claims, which reads rows of both types or of one.
    TakeOver(bool),
    Rename,
    Erase,
    /// The present owner answers, or the one before it.
    Answer(bool),
    /// The follower applies commands.
    Follow(usize),
    /// The follower joins the last answer.
    Join,
}

/// A server, a follower, and an answer that is on its way.
struct World {
    now: Now,
    owner: Owner,
    former: Option<Owner>,
    manifest: Manifest,
    store: BTreeMap<BlobKey, Content>,
    log: Vec<Vec<u8>>,
    marks: Vec<Mark>,
    /// Whether both types are counted, by epoch.
    counts_both: BTreeMap<u64, bool>,
    /// The epoch that committed each row.
    committed_by: Vec<u64>,
    renames: u32,
    follower: Follower,
    answer: Option<Held>,
    whole: u32,
}

fn owner(generation: u64, counts_both: bool) -> Owner {
    let types: &[&str] = if counts_both { &["x", "y"] } else { &["x"] };
    let config = OwnerConfig {
        partition: PARTITION,
        member: MemberId(generation),
        generation: Generation(generation),
        types: EventTypes::new(types).unwrap(),
        seed: 3,
        flush_after_ms: 60_000,
        cells_max: 64,
        fold_bytes_max: 1 << 30,
        dead_letters_max: 1_000,
        merge: MergePolicy { deltas_max: 3, ..MergePolicy::default() },
        retry_after_ms: 100,
        keep_flushed_ms: 10_000,
    };
    Owner::new(START, config)
}

/// The type of a row, by its number.
fn type_of(row: u64) -> &'static str {
    if row.is_multiple_of(3) { "y" } else { "x" }
}

fn served() -> Served {
    Served { directory: "d".to_owned(), session: SESSION, types: vec!["x".to_owned()], ..Served::default() }
}

fn follower_of(manifest: &Manifest) -> Follower {
    let snapshot = Snapshot::of(manifest, SUBJECT, served(), Told::default());
    Follower::restore(Snapshot::decode(&snapshot.encode()).unwrap(), SUBJECT).unwrap()
}

impl World {
    fn new() -> World {
        let manifest = Manifest::new();
        let follower = follower_of(&manifest);
        let marks = vec![Mark::of(&manifest, SUBJECT)];
        World {
            now: START,
            owner: owner(1, true),
            former: None,
            manifest,
            store: BTreeMap::new(),
            log: Vec::new(),
            marks,
            counts_both: BTreeMap::from([(1, true)]),
            committed_by: Vec::new(),
            renames: 0,
            follower,
            answer: None,
            whole: 0,
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Read(count) => self.read(count),
            Step::CarryOut(count) => (0..count).for_each(|_| self.carry_out()),
            Step::Flush => self.owner.handle(self.now, Input::Flush),
            Step::Wait(ms) => {
                self.now = self.now.plus_ms(ms);
                self.owner.handle(self.now, Input::Tick);
            }
            Step::TakeOver(counts_both) => self.take_over(counts_both),
            Step::Rename => self.rename(),
            Step::Erase => {
                let key = ErasureKey::of(TENANT, None);
                self.propose(&Command::Erase(Erase {
                    partition: PARTITION,
                    key,
                    before: Hour(HOUR + 1),
                    asked_at_ms: self.now.0,
                }));
            }
            Step::Answer(is_former) => {
                let owner = if is_former { self.former.as_ref() } else { Some(&self.owner) };
                let held = owner.and_then(|owner| self.held(owner));
                self.answer = held.or(self.answer.take());
            }
            Step::Follow(count) => self.follow(count),
            Step::Join => self.join(),
        }
    }

    fn read(&mut self, count: usize) {
        let Some(from) = self.owner.position(SOURCE) else { return };
        let at_s = i64::from(HOUR) * 3_600;
        let event = |row: u64| RawEvent {
            tenant: TENANT,
            listing: "l",
            at_s,
            event_type: type_of(row),
            count: 1,
            values: Values::NONE,
        };
        let records: Vec<Record<'_>> = (from..from + count as u64).map(|row| Record::Event(event(row))).collect();
        let rows = RowBatch { source: SOURCE, reading: ReadingId(1), from, is_logged: false, records: &records };
        self.owner.handle(self.now, Input::Rows(rows));
    }

    fn carry_out(&mut self) {
        let now = self.now;
        match self.owner.poll_output() {
            None => {}
            Some(Output::Propose(command)) => {
                self.propose(&command);
            }
            Some(Output::Put(put)) => {
                self.store.insert(put.key, put.content);
                self.owner.handle(now, Input::Stored { key: put.key, stored: StoredBlob { bytes: 1, checksum: 2 } });
            }
            Some(Output::Load(key)) => match &self.store[&key] {
                Content::Rows(rows) => {
                    let rows = Rollups::clone(rows);
                    self.owner.handle(now, Input::Loaded { key, rows });
                }
                Content::DeadLetters(letters) => {
                    let letters = Vec::clone(letters);
                    self.owner.handle(now, Input::LoadedLetters { key, letters });
                }
            },
            Some(Output::Stopped(stop)) => panic!("{stop}"),
        }
    }

    fn propose(&mut self, command: &Command) {
        let outcome = self.manifest.apply(command);
        self.log.push(command.encode().unwrap());
        let mark = Mark::of(&self.manifest, SUBJECT);
        self.marks.push(mark);
        self.committed_by.resize(mark.position as usize, mark.epoch.0);
        self.owner.handle(self.now, Input::Applied { outcome: &outcome, manifest: &self.manifest });
        assert!(!matches!(outcome, Outcome::Claim { result: Err(_), .. }), "{outcome:?}");
    }

    fn take_over(&mut self, counts_both: bool) {
        let known = self.manifest.partition(PARTITION).map_or(0, |partition| partition.generation.0);
        let epoch = self.manifest.partition(PARTITION).map_or(0, |partition| partition.epoch.0);
        let former = std::mem::replace(&mut self.owner, owner(known + 1, counts_both));
        self.former = former.position(SOURCE).is_some().then_some(former);
        self.counts_both.insert(epoch + 1, counts_both);
        self.carry_out();
        assert!(self.owner.position(SOURCE).is_some());
    }

    fn rename(&mut self) {
        let name = |number: u32| if number == 0 { "x".to_owned() } else { format!("x{number}") };
        let change = TypeChange::Rename { from: name(self.renames), to: name(self.renames + 1), merges: false };
        let set = SetTypes { set: TypesSet::Change(change), asked_at_ms: self.now.0, log_row: 0 };
        let before = self.manifest.schema().changes().len();
        self.propose(&Command::Types(set));
        self.renames += (self.manifest.schema().changes().len() - before) as u32;
    }

    fn held(&self, owner: &Owner) -> Option<Held> {
        let sets = owner.rows_of(self.now, TENANT).unwrap();
        // An owner that was replaced knows the manifest as it was.
        let is_present = owner.epoch() == self.manifest.partition(PARTITION)?.epoch;
        let present = Mark::of(&self.manifest, SUBJECT);
        let known = self.marks.iter().rev().find(|mark| mark.epoch == owner.epoch()).copied();
        let held = Held {
            session: SESSION,
            mark: if is_present { present } else { known? },
            source: SOURCE,
            folded: owner.position(SOURCE)?,
            sets: sets.iter().map(|set| HeldSet::of(set, HourRange::ALL)).collect(),
            at_ms: self.now.0,
            complete_to_ms: self.now.0,
            last_updated_at_ms: self.now.0,
            late: None,
        };
        Some(Held::decode(&held.encode()).unwrap())
    }

    fn follow(&mut self, count: usize) {
        let after = self.follower.index();
        let to = (after as usize + count).min(self.log.len());
        let commands = &self.log[after as usize..to];
        let commands = commands.iter().map(|command| Logged { command: command.clone(), at_ms: 0 }).collect();
        let page = Page { session: SESSION, after, commands, mark: self.marks[to], told: Told::default() };
        self.follower.follow(&Page::decode(&page.encode()).unwrap()).unwrap();
    }

    fn join(&mut self) {
        let Some(held) = &self.answer else { return };
        let mark = self.follower.mark();
        let mut plan = self.follower.plan(TENANT, HourRange::ALL);
        let Joined::Whole(rows) = held.join(TENANT, &mut plan, mark, SESSION).unwrap() else { return };
        self.whole += 1;
        let end = held.folded.max(mark.position);
        assert_eq!(self.counted(&plan, &rows), self.expected(&plan, mark, end), "at {mark:?}, up to row {end}");
    }

    /// Counts by type of what a plan and the rows beside it show.
    fn counted(&self, plan: &Plan, held: &[Rollups]) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        let mut add = |row: &RollupRow<'_>| {
            if plan.view.shows(row) {
                *counts.entry(row.event_type.to_owned()).or_default() += row.count();
            }
        };
        for meta in &plan.blobs {
            let Content::Rows(rows) = &self.store[&meta.key] else { continue };
            let renaming = plan.view.renaming(&meta.key);
            rows.iter().filter_map(|row| renaming.row(&row)).for_each(|row| add(&row));
        }
        held.iter().flat_map(Rollups::iter).for_each(|row| add(&row));
        counts.retain(|_, count| *count > 0);
        counts
    }

    fn expected(&self, plan: &Plan, mark: Mark, end: u64) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        if !plan.view.erased.is_empty() {
            return counts;
        }
        for row in 0..end {
            let epoch = if row < mark.position { self.committed_by[row as usize] } else { mark.epoch.0 };
            if type_of(row) == "y" && !self.counts_both[&epoch] {
                continue;
            }
            let schema = &plan.view.types.schema;
            let name = schema.present(type_of(row)).unwrap();
            *counts.entry(name.to_owned()).or_default() += 1;
        }
        counts
    }
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1usize..6).prop_map(Step::Read),
        8 => (1usize..4).prop_map(Step::CarryOut),
        3 => Just(Step::Flush),
        3 => (1u64..30_000).prop_map(Step::Wait),
        1 => any::<bool>().prop_map(Step::TakeOver),
        1 => Just(Step::Rename),
        1 => Just(Step::Erase),
        6 => proptest::bool::weighted(0.2).prop_map(Step::Answer),
        6 => (0usize..4).prop_map(Step::Follow),
        8 => Just(Step::Join),
    ]
}

/// Runs steps. Returns how many answers were whole.
fn run(steps: &[Step]) -> u32 {
    let mut world = World::new();
    world.carry_out();
    steps.iter().for_each(|step| world.step(step));
    // Without any lag the answer is whole.
    world.follow(usize::MAX >> 1);
    world.step(&Step::Answer(false));
    let before = world.whole;
    world.join();
    assert_eq!(world.whole, before + 1, "an answer without any lag is not whole");
    world.whole
}

fn runner(seed: u8) -> proptest::test_runner::TestRunner {
    use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
    let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]))
}

#[test]
fn joined_rows_give_the_true_number_of_the_index() {
    let whole = std::cell::Cell::new(0);
    let steps = proptest::collection::vec(step(), 1..120);
    let done = runner(1).run(&steps, |steps| {
        whole.set(whole.get() + run(&steps));
        Ok(())
    });
    done.unwrap();
    assert!(whole.get() > 5 * CASES, "only {} answers were whole", whole.get());
}

/// Each rule that is left out gives a wrong number.
#[cfg(feature = "teeth")]
#[test]
fn each_rule_of_the_join_is_needed() {
    use tidemark_streams_core::teeth::{Bug, bite};
    let bugs =
        [Bug::OwnerRowsWithoutFrom, Bug::HeldRowsOfOtherEpoch, Bug::HeldRowsOfOtherRevision, Bug::HeldRowsWithoutEnd];
    for bug in bugs {
        bite(Some(bug));
        let steps = proptest::collection::vec(step(), 1..120);
        let runs = |steps: Vec<Step>| {
            run(&steps);
            Ok(())
        };
        let is_found = (1..20).any(|seed| runner(seed).run(&steps, runs).is_err());
        bite(None);
        assert!(is_found, "{bug:?} was not found");
    }
}

#[test]
fn page_of_other_session_or_index_is_refused() {
    let mut world = World::new();
    world.carry_out();
    let page = |session, after, mark| Page { session, after, commands: Vec::new(), mark, told: Told::default() };
    let mark = world.follower.mark();
    let other = world.follower.follow(&page(SessionId(1), 0, mark)).unwrap_err();
    assert!(matches!(other, FollowError::OtherSession { .. }), "{other}");
    let later = world.follower.follow(&page(SESSION, 1, mark)).unwrap_err();
    assert!(matches!(later, FollowError::OtherIndex { after: 1, index: 0 }), "{later}");
    // The mark tells that the machine of a server decides otherwise.
    let wrong = Mark { position: 1, ..mark };
    let state = world.follower.follow(&page(SESSION, 0, wrong)).unwrap_err();
    assert!(matches!(state, FollowError::OtherState { .. }), "{state}");
    let damaged = Page { commands: vec![Logged { command: vec![200], at_ms: 0 }], ..page(SESSION, 0, mark) };
    assert!(matches!(world.follower.follow(&damaged), Err(FollowError::Command { index: 1, .. })));
}

#[test]
fn snapshot_of_other_directory_or_old_epoch_is_refused() {
    let mut world = World::new();
    let before = follower_of(&world.manifest);
    world.carry_out();
    let after = follower_of(&world.manifest);
    assert_eq!(after.check_successor_of(&before), Ok(()));
    assert_eq!(before.check_successor_of(&after), Err(FollowError::OldEpoch { named: 0, known: 1 }));
    assert!(matches!(after.check_directory("e"), Err(FollowError::OtherDirectory { .. })));
    assert_eq!(after.check_directory("d"), Ok(()));
}

#[test]
fn answer_of_another_session_is_apart() {
    let mut world = World::new();
    world.carry_out();
    world.follow(1);
    let held = world.held(&world.owner).unwrap();
    let mut plan = world.follower.plan(TENANT, HourRange::ALL);
    let joined = held.join(TENANT, &mut plan, world.follower.mark(), SessionId(1)).unwrap();
    assert!(matches!(joined, Joined::Apart(Apart::OtherSession { .. })), "{joined:?}");
}

#[test]
fn oldest_commands_of_a_feed_are_forgotten() {
    let mark = |index| Mark { index, ..Mark::default() };
    let reach = |complete_to_ms| Reach { complete_to_ms, updated_at_ms: 1 };
    let command = Command::Fence(Fence { partition: PARTITION, epoch: Default::default() }).encode().unwrap();
    let push = |recent: &mut Recent, index: u64, command: &[u8]| {
        recent.push(&Applied { command, at_ms: index, mark: mark(index), reach: reach(index) });
    };
    let mut recent = Recent::new(SESSION, mark(10), reach(5));
    let told = recent.page(SESSION, 10, 3).unwrap().told;
    assert_eq!(told, Told { reach: reach(5), age_ms: 3 });
    let end = 10 + FEED_COMMANDS_MAX as u64 + 2;
    (11..=end).for_each(|index| push(&mut recent, index, &command));
    assert_eq!(recent.page(SESSION, 11, 0), Err(FeedRefused::Behind { after: 11, first: 13 }));
    assert_eq!(recent.page(SESSION, end + 1, 0), Err(FeedRefused::Ahead { after: end + 1, last: end }));
    assert!(matches!(recent.page(SessionId(0), end, 0), Err(FeedRefused::OtherSession { .. })));
    recent.tell(reach(end + 100));
    let page = recent.page(SESSION, 12, 0).unwrap();
    assert_eq!((page.commands.len(), page.mark, page.commands[0].at_ms), (FEED_COMMANDS_MAX, mark(end), 13));
    assert_eq!(page.told.reach.complete_to_ms, end + 100);
    // Long commands: a page has a part of them, and the time that belongs to it.
    let long = vec![0; 1 << 20];
    (1..=8).for_each(|at| push(&mut recent, end + at, &long));
    let page = recent.page(SESSION, end, 0).unwrap();
    assert_eq!((page.commands.len(), page.mark.index, page.told.reach.complete_to_ms), (4, end + 4, end + 4));
    let kept = (FEED_BYTES_MAX >> 20) as u64;
    (9..=2 * kept).for_each(|at| push(&mut recent, end + at, &long));
    assert!(matches!(recent.page(SESSION, end + kept - 1, 0), Err(FeedRefused::Behind { .. })));
    assert!(recent.page(SESSION, end + kept, 0).is_ok());
}
