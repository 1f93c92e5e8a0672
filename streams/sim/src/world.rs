//! The event loop of a run: virtual time, faults, and deliveries between the machines.

use crate::checkers::{
    self, COMPLETE, MERGED, Merged, Ownership, PAUSED, Positions, Settled, TYPES, UnderWay, Violation,
};
use crate::group::{Assignment, Group};
use crate::helpers::{self, Answered, Query};
use crate::oracle::{self, START_S, Source};
use crate::rng::Rng;
use crate::store::Store;
use crate::worker::{PARTITION, Worker};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use tidemark_streams_core::blob::{BlobKey, BlobMeta, Level};
use tidemark_streams_core::collector;
use tidemark_streams_core::manifest::{
    AppliedCommit, ClaimRefused, Command, Commit, CommitRefused, Committed, ExpireRefused, Gone, Head, Manifest,
    Outcome as Applied, SetLayout, SetPause, SetRetention, SetTestTenant, SetTypes, TypesSet, replaces_head,
};
use tidemark_streams_core::owner::{
    Content, Fate, Input, Letter, Letters, Output, Owner, Put, Record, Recounted, RowBatch, Stop,
};
use tidemark_streams_core::pause::PauseTarget;
use tidemark_streams_core::rebuild::Lineages;
use tidemark_streams_core::recover::recover;
use tidemark_streams_core::rollup::Rollups;
use tidemark_streams_core::schema::TypeChange;
use tidemark_streams_core::scope::{Scope, TenantHash};
use tidemark_streams_core::source::ReadingId;
use tidemark_streams_core::time::{DAY_S, Day, Days, Now};

const READING: ReadingId = ReadingId(1);
const WORKERS: usize = 2;
/// Faults happen until then, in virtual milliseconds.
const FAULTS_MS: u64 = 60_000;
/// The compaction worker proposes nothing in this time before their end.
const COMPACTION_MS: u64 = 20_000;
/// An owner is not told what the compaction worker has merged. It learns it by a claim, of which faults bring more.
const LAST_COMPACTION: Now = Now(START_S * 1_000 + FAULTS_MS - COMPACTION_MS);
/// Without faults a run ends long before.
const END_MS: u64 = 600_000;
/// The clock of the machines leaps this far at most, once in a while.
const LEAP_MS: u64 = 30 * 3_600_000;
/// How far it goes at once when faults are over, in runs that wait for merges.
const WAITING_LEAP_MS: u64 = 6 * 3_600_000;
/// A merge of more rows than a run has.
const ROWS_UNBOUNDED: u64 = 1_000_000;
/// Copies of the manifest that are kept for workers that act on an old copy.
const COPIES: usize = 12;
/// Draws of recounts begin with this and the seed.
const RECOUNT_SEED: u64 = 0x7265_636f_756e_7400;

/// The situations that a run met, by their names.
pub type Situations = BTreeMap<&'static str, u64>;

#[derive(Clone, Debug)]
pub struct Outcome {
    pub violation: Option<Violation>,
    pub situations: Situations,
    /// Equal runs have equal traces.
    pub trace: u64,
    pub commands: u64,
}

/// An event of a time.
#[derive(Clone, Debug)]
enum Event {
    Work { worker: usize, life: u64 },
    Synced { worker: usize, life: u64, key: BlobKey },
    Failed { worker: usize, life: u64, key: BlobKey },
    Load { worker: usize, life: u64, key: BlobKey },
    Propose(Command),
    Deliver { worker: usize, life: u64, outcome: Applied, manifest: Rc<Manifest> },
    Start { worker: usize },
    Assigned { worker: usize, life: u64, assignment: Assignment },
    Fault,
    List,
    Collect { copy: Rc<Manifest>, list: Vec<BlobKey> },
    Rebuilt { worker: usize, life: u64, key: BlobKey, content: Content },
    Recount,
    Recounted { worker: usize, life: u64, recount: Recount },
    AskOwner(Query),
    Answer(Query),
}

/// Past days that an operator has counted again, in a state that may be old.
#[derive(Clone, Debug)]
struct Recount {
    days: Days,
    blobs: Vec<BlobKey>,
    revision: u64,
    rows: Rollups,
}

/// How the rows are merged once faults are over.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// By a seal.
    Sealed,
    /// As time goes on.
    Waited,
}

struct World {
    now: Now,
    /// How far the clock of the machines is ahead: days pass in it.
    ahead_ms: u64,
    end: End,
    /// Rows that a merge reads.
    rows_max: u64,
    /// The content of the manifest's store.
    rows: BTreeMap<Vec<u8>, Vec<u8>>,
    rng: Rng,
    queue: BTreeMap<(Now, u64), Event>,
    queued: u64,
    workers: Vec<Worker>,
    group: Group,
    sources: Vec<Source>,
    manifest: Rc<Manifest>,
    copies: Vec<Rc<Manifest>>,
    positions: Positions,
    ownership: Ownership,
    settled: Settled,
    store: Store,
    lineages: Lineages,
    /// The file beside the manifest.
    head: Head,
    gone: Gone,
    has_compaction_worker: bool,
    has_type_changes: bool,
    /// What is drawn for recounts does not change the rest of a run.
    recount_rng: Rng,
    /// Commits that replace rows of past days.
    replacing: BTreeSet<AppliedCommit>,
    situations: Situations,
    trace: u64,
    violation: Option<Violation>,
}

/// Runs a seed.
pub fn run(seed: u64) -> Outcome {
    let mut world = World::new(seed);
    while world.violation.is_none() {
        let Some(((at, number), event)) = world.queue.pop_first() else { break };
        world.now = at;
        if world.is_done() {
            break;
        }
        if at >= Now(START_S * 1_000 + END_MS) {
            let position = world.manifest.partition(PARTITION).map(|partition| partition.sources.clone());
            let is_clean = world.settled.names.is_clean(&world.manifest, &world.store);
            world.violation = Some(match world.is_counted() {
                true if !is_clean => Violation { checker: TYPES, what: "rows of deleted types stay".to_owned() },
                true => Violation {
                    checker: MERGED,
                    what: format!("live blobs: {:?}", world.manifest.live().collect::<Vec<_>>()),
                },
                false => {
                    Violation { checker: COMPLETE, what: format!("the run does not end; positions: {position:?}") }
                }
            });
            break;
        }
        if let Err(violation) = world.happen(number, event) {
            world.violation = Some(violation);
        }
    }
    let commands = world.manifest.index();
    Outcome { violation: world.violation, situations: world.situations, trace: world.trace, commands }
}

impl World {
    fn new(seed: u64) -> World {
        let mut rng = Rng::new(seed);
        let has_values = rng.percent(50);
        let has_log = rng.percent(40);
        let count = rng.between(1, 3) as u8;
        let draw = |number| Source::draw(number, has_values, has_log && number == 0, &mut rng);
        let mut sources: Vec<Source> = (0..count).map(draw).collect();
        let mut recount_rng = Rng::new(seed ^ RECOUNT_SEED);
        let has_recounts = recount_rng.percent(40);
        sources.iter_mut().filter(|_| has_recounts).for_each(|source| source.read_wrongly(&mut recount_rng));
        let mut manifest = Manifest::new();
        let mut settled = Settled::default();
        let store = Store::default();
        for command in oracle::dimension_commands().iter().filter(|_| has_values) {
            let outcome = manifest.apply(command);
            // Both types are listed, so nothing of it is refused or wrong.
            let _ = settled.names.on_applied(command, &outcome, &store);
        }
        manifest.apply(&Command::Layout(SetLayout { version: 0, layout: oracle::layout(&mut rng) }));
        if rng.percent(30) {
            let tenant = TenantHash::of(oracle::TEST_TENANT);
            manifest.apply(&Command::TestTenant(SetTestTenant { tenant, is_test: true }));
        }
        manifest.apply(&Command::Retention(SetRetention { retention: oracle::retention(&mut rng) }));
        let mut world = World {
            now: Now(START_S * 1_000),
            ahead_ms: 0,
            end: if rng.percent(50) { End::Sealed } else { End::Waited },
            rows_max: if rng.percent(30) { rng.between(8, 200) } else { ROWS_UNBOUNDED },
            rows: BTreeMap::new(),
            has_compaction_worker: rng.percent(30),
            has_type_changes: rng.percent(50),
            rng,
            recount_rng,
            replacing: BTreeSet::new(),
            queue: BTreeMap::new(),
            queued: 0,
            workers: (0..WORKERS).map(|_| Worker::down()).collect(),
            group: Group::default(),
            sources,
            head: manifest.head(Gone::default()),
            gone: Gone::default(),
            manifest: Rc::new(manifest),
            copies: Vec::new(),
            positions: Positions::default(),
            ownership: Ownership::default(),
            settled,
            store,
            lineages: Lineages::default(),
            situations: Situations::new(),
            trace: seed,
            violation: None,
        };
        world.after(0, 10, Event::Start { worker: 0 });
        world.after(100, 2_000, Event::Fault);
        if has_recounts {
            world.recount_later();
        }
        // The first rows of its tenant may be on their way, so no live blob holds some.
        if world.rng.percent(25) {
            let erase = oracle::erase(PARTITION, world.clock(), &mut world.rng);
            world.after(300, 3_000, Event::Propose(Command::Erase(erase)));
        }
        world
    }

    fn after(&mut self, least_ms: u64, most_ms: u64, event: Event) {
        let at = self.now.plus_ms(self.rng.between(least_ms, most_ms));
        self.at(at, event);
    }

    fn at(&mut self, at: Now, event: Event) {
        self.queued += 1;
        self.queue.insert((at, self.queued), event);
    }

    fn meet(&mut self, situation: &'static str) {
        *self.situations.entry(situation).or_default() += 1;
    }

    fn has_faults(&self) -> bool {
        self.now < Now(START_S * 1_000 + FAULTS_MS)
    }

    /// Whether faults are over, and everything is counted and merged.
    fn is_done(&self) -> bool {
        let is_merged = match checkers::merged(&self.manifest) {
            Merged::IntoOne => true,
            Merged::IntoPeriods => self.end == End::Waited || self.rows_max < ROWS_UNBOUNDED,
            // A blob of more rows than a merge may read stays as it is.
            Merged::No => self.rows_max < ROWS_UNBOUNDED,
        };
        let partition = self.manifest.partition(PARTITION);
        let is_erased = partition.is_none_or(|partition| partition.erasures.pending() == 0);
        let is_over = !self.has_faults() && is_merged && is_erased && self.is_counted() && self.damaged().is_none();
        is_over && self.settled.names.is_clean(&self.manifest, &self.store)
    }

    /// A live blob that is damaged.
    fn damaged(&self) -> Option<BlobMeta> {
        self.manifest.live().find(|meta| self.store.is_damaged(&meta.key))
    }

    /// Whether every row is counted.
    fn is_counted(&self) -> bool {
        let is_complete = |worker: &Worker| {
            let owner = worker.owner.as_ref();
            owner.is_some_and(|owner| owner.is_quiet() && self.sources.iter().all(|of| owner.is_complete(of.id)))
        };
        self.workers.iter().any(is_complete)
    }

    /// The clock of the machines.
    fn clock(&self) -> Now {
        self.now.plus_ms(self.ahead_ms)
    }

    fn happen(&mut self, number: u64, event: Event) -> Result<(), Violation> {
        if let Some(until) = self.paused(&event) {
            // It keeps its number, so that what waits for the end of a pause stays in its order.
            self.queue.insert((until, number), event);
            return Ok(());
        }
        match event {
            Event::Work { worker, life } => self.work(worker, life),
            Event::Synced { worker, life, key } => {
                if let Some(stored) = self.store.sync(key) {
                    self.give(worker, life, Input::Stored { key, stored });
                }
            }
            Event::Failed { worker, life, key } => self.give(worker, life, Input::StoreFailed { key }),
            Event::Load { worker, life, key } => self.load(worker, life, key),
            Event::Propose(command) => return self.apply(&command),
            Event::Deliver { worker, life, outcome, manifest } => {
                if self.workers[worker].life == life {
                    self.workers[worker].is_told_to_pause = manifest.pauses().of_partition(PARTITION).is_some();
                    let partition = manifest.partition(PARTITION);
                    self.workers[worker].told_horizons =
                        partition.map(|partition| partition.horizons).unwrap_or_default();
                    self.workers[worker].told_types = manifest.schema().changes().len();
                }
                self.give(worker, life, Input::Applied { outcome: &outcome, manifest: &manifest });
            }
            Event::Start { worker } => self.start(worker),
            Event::Assigned { worker, life, assignment } => self.assigned(worker, life, assignment),
            Event::Fault => self.fault(),
            Event::List => self.collect(Rc::clone(&self.manifest)),
            Event::Collect { copy, list } => {
                let deleted = helpers::collect(&copy, &list, &mut self.store);
                *self.situations.entry("file collected").or_default() += deleted;
            }
            Event::Rebuilt { worker, life, key, content: Content::Rows(rows) } => {
                self.give(worker, life, Input::Rebuild { key, rows: &rows });
            }
            Event::Rebuilt { worker, life, key, content: Content::DeadLetters(letters) } => {
                self.give(worker, life, Input::RebuildLetters { key, letters: &letters });
            }
            Event::Recount => self.recount(),
            Event::Recounted { worker, life, recount } => self.hand_over(worker, life, &recount),
            Event::AskOwner(query) => self.ask_owner(query),
            Event::Answer(query) => return self.answer(query),
        }
        Ok(())
    }

    /// Until when the worker of an event is paused.
    fn paused(&self, event: &Event) -> Option<Now> {
        let worker = match event {
            Event::Work { worker, .. } | Event::Synced { worker, .. } | Event::Failed { worker, .. } => *worker,
            Event::Load { worker, .. } | Event::Deliver { worker, .. } | Event::Rebuilt { worker, .. } => *worker,
            Event::Assigned { worker, .. } | Event::Recounted { worker, .. } => *worker,
            Event::Propose(_) | Event::Recount | Event::Start { .. } | Event::Fault => return None,
            Event::List | Event::Collect { .. } | Event::AskOwner(_) | Event::Answer(_) => return None,
        };
        Some(self.workers[worker].paused_until).filter(|until| *until > self.now)
    }

    fn start(&mut self, worker: usize) {
        if self.workers[worker].owner.is_some() {
            return;
        }
        let member = self.workers[worker].member(&mut self.rng);
        let again = self.workers[worker].assignment.filter(|_| self.has_faults() && self.rng.percent(20));
        if again.is_some() {
            self.meet("assignment used again");
        }
        let assignment = again.unwrap_or_else(|| self.group.assign(member));
        let life = self.workers[worker].life;
        let slow_ms = if self.has_faults() && self.rng.percent(10) { 4_000 } else { 10 };
        self.after(0, slow_ms, Event::Assigned { worker, life, assignment });
    }

    /// A worker learns that the partition is its own.
    fn assigned(&mut self, worker: usize, life: u64, assignment: Assignment) {
        if self.workers[worker].life != life || self.workers[worker].owner.is_some() {
            return;
        }
        if self.group.is_stale(&assignment) {
            self.meet("stale assignment");
        }
        // The types of the run are valid, so an owner starts; a run without one would not be complete.
        let now = self.clock();
        let _ = self.workers[worker].start(now, assignment, self.rows_max, &mut self.rng);
        let life = self.workers[worker].life;
        self.work(worker, life);
    }

    fn give(&mut self, worker: usize, life: u64, input: Input<'_>) {
        let now = self.clock();
        let known = &mut self.workers[worker];
        let Some(owner) = known.owner.as_mut().filter(|_| known.life == life) else { return };
        owner.handle(now, input);
        self.carry_out(worker);
    }

    /// A turn of a worker: time passes, and it reads rows.
    fn work(&mut self, worker: usize, life: u64) {
        if self.workers[worker].life != life || self.workers[worker].owner.is_none() {
            return;
        }
        self.give(worker, life, Input::Tick);
        let number = self.rng.below(self.sources.len() as u64) as usize;
        let source = self.sources[number].clone();
        let count = self.rng.below(8) as usize;
        let now = self.clock();
        let is_told_to_pause = self.workers[worker].is_told_to_pause;
        let told_horizons = self.workers[worker].told_horizons;
        let told_types = self.workers[worker].told_types;
        if let Some(owner) = &mut self.workers[worker].owner {
            let position = owner.position(source.id).unwrap_or(0);
            let len = source.len_at(self.now);
            let begin = (position as usize).min(len);
            let end = (begin + count).min(len);
            let records: Vec<Record<'_>> = source.rows[begin..end].iter().map(|row| row.record()).collect();
            let from = begin as u64;
            let is_logged = source.is_logged;
            let batch = RowBatch { source: source.id, reading: READING, from, is_logged, records: &records };
            if owner.position(source.id).is_some() {
                let others = owner.others();
                owner.handle(now, Input::Rows(batch));
                if owner.others() > others {
                    *self.situations.entry("value beyond the bound").or_default() += 1;
                }
                if end == source.rows.len() {
                    owner.handle(now, Input::End { source: source.id, reading: READING, rows: end as u64 });
                }
                let taken_to = owner.position(source.id).unwrap_or(position);
                let taken = &source.rows[begin..taken_to as usize];
                if taken.iter().any(|row| self.settled.names.judged(row, told_types) < told_types) {
                    *self.situations.entry("log row judged by earlier names").or_default() += 1;
                }
                self.settled.on_taken(owner.epoch(), &source, position..taken_to, &told_horizons);
                self.settled.names.on_taken(owner.epoch(), source.id, position..taken_to, told_types);
                if is_told_to_pause && taken_to > position {
                    let what = format!("rows {position} to {taken_to} are taken while the partition is paused");
                    self.violation = Some(Violation { checker: PAUSED, what });
                }
            }
        }
        let is_sealed = if self.has_faults() { self.rng.percent(2) } else { self.end == End::Sealed };
        if is_sealed {
            self.give(worker, life, Input::Seal);
        }
        self.carry_out(worker);
        self.after(5, 60, Event::Work { worker, life });
    }

    fn carry_out(&mut self, worker: usize) {
        let life = self.workers[worker].life;
        loop {
            let Some(owner) = &mut self.workers[worker].owner else { return };
            let Some(output) = owner.poll_output() else { return };
            match output {
                Output::Propose(command) => self.propose(command),
                Output::Put(put) => {
                    if owner.is_replacing() {
                        self.replacing.insert(AppliedCommit { epoch: put.key.epoch, seq: put.key.seq });
                    }
                    self.put(worker, life, put);
                }
                Output::Load(key) => self.after(1, 40, Event::Load { worker, life, key }),
                Output::Stopped(stop) => self.stopped(worker, &stop),
            }
        }
    }

    fn stopped(&mut self, worker: usize, stop: &Stop) {
        match stop {
            Stop::Deposed => self.meet("owner deposed"),
            Stop::Claim(_) => {
                let claimed = self.manifest.partition(PARTITION).map(|partition| partition.generation);
                let is_behind = claimed.is_some_and(|claimed| self.group.is_behind(claimed));
                self.meet(if is_behind { "claim of a group made again" } else { "claim refused" });
            }
            Stop::Commit(_) => self.meet("owner stopped by a refused commit"),
            Stop::Replace(_) => self.meet("owner stopped by a refused replacement"),
            Stop::Expire(_) => self.meet("owner stopped by a refused expiry"),
            Stop::Gap { .. } | Stop::ShortSource { .. } | Stop::Rows(_) => {
                self.violation = Some(Violation { checker: COMPLETE, what: stop.to_string() });
            }
        }
        self.workers[worker].drop_partition();
        // Once faults are over, one worker is enough: two would depose each other for ever.
        if self.has_faults() || worker == 0 {
            self.after(50, 1_500, Event::Start { worker });
        }
    }

    fn propose(&mut self, command: Command) {
        if self.has_faults() && self.rng.percent(5) {
            return self.meet("proposal lost");
        }
        let copies = if self.has_faults() && self.rng.percent(8) { 2 } else { 1 };
        for _ in 0..copies {
            let slow_ms = if self.has_faults() && self.rng.percent(10) { 5_000 } else { 60 };
            self.after(1, slow_ms, Event::Propose(command.clone()));
        }
    }

    fn put(&mut self, worker: usize, life: u64, put: Put) {
        let key = put.key;
        if !self.store.put(put) {
            return self.after(1, 50, Event::Failed { worker, life, key });
        }
        if self.has_faults() && self.rng.percent(8) {
            self.store.tear(key);
            self.meet("torn write");
            return self.after(1, 500, Event::Failed { worker, life, key });
        }
        let slow_ms = if self.has_faults() && self.rng.percent(10) { 4_000 } else { 80 };
        self.after(1, slow_ms, Event::Synced { worker, life, key });
    }

    fn load(&mut self, worker: usize, life: u64, key: BlobKey) {
        let is_slow = self.has_faults() && self.rng.percent(5);
        match self.store.read(&key).cloned() {
            Some(Content::Rows(rows)) if !is_slow => {
                let rows = (*rows).clone();
                self.give(worker, life, Input::Loaded { key, rows });
            }
            Some(Content::DeadLetters(letters)) if !is_slow => {
                let letters = (*letters).clone();
                self.give(worker, life, Input::LoadedLetters { key, letters });
            }
            Some(Content::Rows(_)) | Some(Content::DeadLetters(_)) | None => {
                self.give(worker, life, Input::StoreFailed { key });
            }
        }
    }

    fn apply(&mut self, command: &Command) -> Result<(), Violation> {
        let mut manifest = Manifest::clone(&self.manifest);
        let outcome = manifest.apply(command);
        if let (Command::Commit(commit), Applied::Commit { result: Ok(Committed::Now), .. }) = (command, &outcome) {
            if matches!(&commit.remove[..], [key] if self.store.is_damaged(key)) {
                self.meet("blob rebuilt");
            }
            self.lineages.add(commit);
        }
        if let (Command::Replace(replace), Applied::Replace { result: Ok(Committed::Now), .. }) = (command, &outcome) {
            self.lineages.add_replaced(replace);
            if self.settled.on_replaced(&manifest, replace, &self.sources) > 0 {
                self.meet("wrong rows replaced");
            }
        }
        self.trace = self.trace.rotate_left(7) ^ fingerprint(&outcome);
        self.count(command, &outcome);
        self.look_at_merge(command, &outcome);
        self.ownership.on_applied(command, &outcome)?;
        self.positions.on_applied(command, &outcome)?;
        let named = self.settled.names.on_applied(command, &outcome, &self.store);
        named.map_err(|what| Violation { checker: TYPES, what: format!("at index {} {what}", manifest.index()) })?;
        self.settled.on_applied(&manifest, command, &outcome, &self.store)?;
        self.settled.on_expired(&manifest, &outcome, &self.store)?;
        checkers::state(&manifest, &self.store, &self.sources, &mut self.settled)?;
        self.gone.follow(command, &outcome);
        if replaces_head(command, &outcome) {
            self.head = manifest.head(self.gone.clone());
        }
        if self.rng.percent(20) {
            manifest = self.snapshot(manifest)?;
        }
        if self.rng.percent(20) && !self.has_compaction_worker {
            self.recover(&manifest)?;
        }
        self.manifest = Rc::new(manifest);
        self.copies.push(Rc::clone(&self.manifest));
        if self.copies.len() > COPIES {
            self.copies.remove(0);
        }
        for worker in 0..self.workers.len() {
            let at = self.now.plus_ms(self.rng.between(1, 80)).max(self.workers[worker].last_delivery);
            self.workers[worker].last_delivery = at;
            let life = self.workers[worker].life;
            let outcome = outcome.clone();
            self.at(at, Event::Deliver { worker, life, outcome, manifest: Rc::clone(&self.manifest) });
        }
        Ok(())
    }

    /// Writes what changed, and goes on from what that gives back, as after a start.
    fn snapshot(&mut self, mut manifest: Manifest) -> Result<Manifest, Violation> {
        for row in manifest.take_changes() {
            match row.value {
                Some(value) => self.rows.insert(row.key, value),
                None => self.rows.remove(&row.key),
            };
        }
        self.meet("snapshot");
        checkers::restored(&manifest, &self.rows)
    }

    /// Which level a merge has reached.
    fn look_at_merge(&mut self, command: &Command, outcome: &Applied) {
        let (Command::Commit(commit), Applied::Commit { result: Ok(Committed::Now), .. }) = (command, outcome) else {
            return;
        };
        let has = |level: Level| commit.add.iter().any(|meta| meta.level == level);
        for (level, situation) in
            [(Level::Hour, "merge into hours"), (Level::Day, "merge into days"), (Level::Period, "merge into periods")]
        {
            if has(level) {
                self.meet(situation);
            }
        }
        if has(Level::Period) && self.replaces_period(commit) {
            self.meet("period replaced");
        }
        let test_tenants = self.manifest.test_tenants();
        let is_of_test =
            |meta: &BlobMeta| matches!(meta.scope, Scope::Part(part) if test_tenants.contains(&part.tenant));
        if commit.add.iter().any(is_of_test) {
            return self.meet("test tenant kept apart");
        }
        if commit.add.iter().any(|meta| matches!(meta.scope, Scope::Part(_))) {
            self.meet("large tenant split");
        }
    }

    /// Whether a commit that was applied to the present manifest removed a blob of a period.
    fn replaces_period(&self, commit: &Commit) -> bool {
        let Some(partition) = self.manifest.partition(PARTITION) else { return false };
        let is_period = |meta: BlobMeta| meta.level == Level::Period;
        commit.remove.iter().filter_map(|key| partition.live.get(key)).any(is_period)
    }

    fn count(&mut self, command: &Command, outcome: &Applied) {
        match (command, outcome) {
            (_, Applied::Claim { generation, result: Ok(_), .. }) => {
                let claimed = self.manifest.partition(PARTITION).map(|partition| partition.generation);
                self.meet(if claimed == Some(*generation) { "claim again" } else { "claim" });
            }
            (_, Applied::Claim { result: Err(ClaimRefused::OldGeneration { .. }), .. }) => self.meet("old claim"),
            (Command::Commit(commit), Applied::Commit { result, .. }) => self.count_commit(commit, result),
            (Command::Types(set), Applied::Types { result: Ok(true) }) => {
                self.meet(match &set.set {
                    TypesSet::Change(TypeChange::Rename { merges: true, .. }) => "type merged",
                    TypesSet::Change(TypeChange::Rename { .. }) => "type renamed",
                    TypesSet::Change(TypeChange::Delete { .. }) => "type deleted",
                    TypesSet::Change(TypeChange::Add { .. }) => "type used again",
                    TypesSet::Change(TypeChange::AddDimension { .. }) => "dimension added",
                    TypesSet::List(_) => "types listed",
                });
            }
            (_, Applied::Types { result: Err(_) }) => self.meet("type change refused"),
            (_, Applied::Types { .. }) => {}
            (_, Applied::Fence { result: Ok(_), .. }) => self.meet("fence"),
            (_, Applied::Layout { result: Ok(_) }) => self.meet("layout changed"),
            (_, Applied::Layout { result: Err(_) }) => self.meet("layout refused"),
            (Command::Pause(set), Applied::Pause { result: Ok(true) }) => {
                self.meet(if set.paused_at_ms.is_some() { "paused" } else { "resumed" });
            }
            (_, Applied::Pause { .. }) => {}
            (_, Applied::Expire { result: Ok(expired), .. }) => {
                self.meet("horizons raised");
                for meta in &expired.blobs {
                    self.meet(if meta.level == Level::Period { "period expired" } else { "lower level expired" });
                }
            }
            (_, Applied::Expire { result: Err(ExpireRefused::OldSeq { .. }), .. }) => self.meet("late expiry refused"),
            (_, Applied::Erase { result: Ok(_), .. }) => self.meet("erasure"),
            (_, Applied::Expire { .. } | Applied::Retention { .. } | Applied::Erase { .. }) => {}
            (_, Applied::TestTenant { .. }) => {}
            (_, Applied::Replace { result, .. }) => self.meet(match result {
                Ok(Committed::Now) => "range replaced",
                Ok(Committed::Already) => "replacement again",
                Err(_) => "replacement refused",
            }),
            (_, Applied::Fence { .. } | Applied::Claim { .. } | Applied::Commit { .. }) => {}
        }
    }

    fn count_commit(&mut self, commit: &Commit, result: &Result<Committed, CommitRefused>) {
        match result {
            Ok(Committed::Now) => {
                if commit.erased > 0 {
                    self.meet("rows erased");
                }
                self.meet(match (&commit.progress, &commit.settled) {
                    (Some(_), _) => "flush",
                    (None, Some(_)) => "dead letters settled",
                    (None, None) => "merge",
                });
            }
            Ok(Committed::Already) => self.meet("commit again"),
            Err(CommitRefused::OtherEpoch { .. }) => self.meet("commit of a deposed owner"),
            Err(CommitRefused::OldSeq { .. }) => self.meet("number not above the last"),
            Err(CommitRefused::OtherRevision { .. }) => {
                let has_changes = !self.manifest.schema().changes().is_empty();
                self.meet(if has_changes { "commit before a type change" } else { "commit before an erasure" });
            }
            Err(CommitRefused::NotLive(_)) => self.meet("merge of a removed blob"),
            Err(_) => self.meet("commit refused"),
        }
    }

    fn fault(&mut self) {
        if !self.has_faults() {
            // Pauses of workers end by themselves: deliveries that wait for their end must not be overtaken.
            if self.manifest.pauses().of_partition(PARTITION).is_some() {
                self.set_pause(false);
            }
            self.rebuild(0);
            // Days pass, so that all that is there may be merged.
            self.ahead_ms += WAITING_LEAP_MS;
            self.after(500, 1_500, Event::Fault);
            return self.after(0, 10, Event::Start { worker: 0 });
        }
        self.after(100, 1_200, Event::Fault);
        let worker = self.rng.below(WORKERS as u64) as usize;
        match self.rng.below(28) {
            0..=2 => {
                self.workers[worker].kill();
                self.meet("worker killed");
                self.after(10, 3_000, Event::Start { worker });
            }
            3 | 4 => self.after(1, 500, Event::Start { worker }),
            5 | 6 => {
                // A pause does not become shorter: what waits for its end must not be overtaken.
                let until = self.now.plus_ms(self.rng.between(100, 8_000));
                self.workers[worker].paused_until = self.workers[worker].paused_until.max(until);
                self.meet("worker paused");
            }
            7 => self.power_cut(),
            8..=10 => self.old_copy().into_iter().for_each(|copy| self.collect(copy)),
            11 if self.rng.percent(40) => {
                let command = collector::fence(&self.manifest, PARTITION);
                command.into_iter().for_each(|command| self.propose(command));
            }
            12 | 13 if self.has_compaction_worker && self.now < LAST_COMPACTION => self.compact(),
            14 if self.rng.percent(30) => {
                let layout = oracle::with_large_tenant(self.manifest.layout(), &mut self.rng);
                let version = self.manifest.layout_version() - self.rng.below(2);
                layout.into_iter().for_each(|layout| self.propose(Command::Layout(SetLayout { version, layout })));
            }
            15 | 16 => self.settle(worker),
            17 => {
                let is_paused = self.rng.percent(50);
                self.set_pause(is_paused);
            }
            18 if self.rng.percent(15) => {
                let erase = oracle::erase(PARTITION, self.clock(), &mut self.rng);
                self.propose(Command::Erase(erase));
            }
            26 if self.has_type_changes => self.change_types(),
            27 if self.rng.percent(10) => {
                self.group.make_again();
                self.meet("group made again");
            }
            23 => self.damage(),
            24 | 25 => self.rebuild(worker),
            20..=22 => {
                self.ahead_ms += self.rng.below(LEAP_MS);
                self.meet("clock leap");
            }
            _ => self.ask(),
        }
    }

    /// An operator changes event types. The intake's log says which events it acknowledged before.
    fn change_types(&mut self) {
        let log = self.sources.iter().find(|source| source.is_logged);
        let log_row = log.map_or(0, |log| log.len_at(self.now) as u64);
        let changes = match log_row > 0 && self.rng.percent(50) {
            true => oracle::reuse(&mut self.rng).to_vec(),
            false => vec![oracle::type_change(&mut self.rng)],
        };
        let asked_at_ms = self.clock().0;
        for change in changes {
            self.propose(Command::Types(SetTypes { set: TypesSet::Change(change), asked_at_ms, log_row }));
        }
    }

    /// The manifest is lost, and built again from the files that are there.
    fn recover(&mut self, manifest: &Manifest) -> Result<(), Violation> {
        // What a damaged file has replaced may be unknown. Torn files were never committed.
        if self.store.has_damaged() {
            return Ok(());
        }
        let files = self.store.files();
        let found = recover(self.head.clone(), &files);
        let under_way = UnderWay { names: &self.settled.names, replacing: &self.replacing };
        let is_ahead = checkers::recovered(manifest, found, &files, &self.store, &under_way)?;
        self.meet(if is_ahead { "manifest built again with a commit under way" } else { "manifest built again" });
        Ok(())
    }

    /// The file of a live blob is damaged.
    fn damage(&mut self) {
        let live: Vec<BlobKey> = self.manifest.live().map(|meta| meta.key).collect();
        let Some(key) = live.get(self.rng.below(live.len().max(1) as u64) as usize) else { return };
        if self.store.damage(key) {
            self.meet("blob damaged");
        }
    }

    /// An operator has a damaged blob rebuilt, by a copy of the manifest that may be old. With too little left its file is restored.
    fn rebuild(&mut self, worker: usize) {
        let copy = if self.has_faults() { self.old_copy() } else { Some(Rc::clone(&self.manifest)) };
        // The operator knows the blob by that copy.
        let is_known = |(copy, meta): &(Rc<Manifest>, BlobMeta)| {
            copy.partition(PARTITION).is_some_and(|partition| partition.live.contains_key(&meta.key))
        };
        let Some((copy, meta)) = copy.zip(self.damaged()).filter(is_known) else { return };
        let now = self.clock();
        match helpers::rebuilt(&copy, &meta, &self.lineages, now, &self.store, &self.sources) {
            Some(content) => {
                let life = self.workers[worker].life;
                self.after(0, 300, Event::Rebuilt { worker, life, key: meta.key, content });
            }
            None => {
                self.store.restore(&meta.key);
                self.meet("blob restored");
            }
        }
    }

    fn recount_later(&mut self) {
        let wait_ms = self.recount_rng.between(200, 4_000);
        self.at(self.now.plus_ms(wait_ms), Event::Recount);
    }

    /// An operator has past days counted again by the right columns, from a copy of the manifest that may be old.
    fn recount(&mut self) {
        if !self.has_faults() {
            return;
        }
        self.recount_later();
        let rng = &mut self.recount_rng;
        let at = if rng.percent(50) { self.copies.len().saturating_sub(1) } else { rng.below(COPIES as u64) as usize };
        let Some(copy) = self.copies.get(at).cloned() else { return };
        let Some(partition) = copy.partition(PARTITION) else { return };
        let first = Day((START_S / DAY_S - rng.below(5)) as u32);
        let days = Days { first, last: Day(first.0 + rng.below(2) as u32) };
        let all = self.settled.recounted(&copy, &self.sources);
        let rows = oracle::combined(all.iter().filter(|row| days.contains(row.hour.day())));
        if self.has_compaction_worker && self.now < LAST_COMPACTION && rng.percent(50) {
            let replacement = helpers::stale_replacement(&copy, days, &rows, &mut self.store, rng);
            if let Some(command) = replacement {
                self.propose(command);
                self.after(40, 200, Event::List);
            }
            return;
        }
        let blobs = partition.of_days(&days).iter().map(|meta| meta.key).collect();
        let recount = Recount { days, blobs, revision: partition.revision(), rows };
        let worker = rng.below(WORKERS as u64) as usize;
        let wait_ms = if rng.percent(30) { rng.below(2_000) } else { 0 };
        let life = self.workers[worker].life;
        self.at(self.now.plus_ms(wait_ms), Event::Recounted { worker, life, recount });
    }

    fn hand_over(&mut self, worker: usize, life: u64, recount: &Recount) {
        let &Recount { days, ref blobs, revision, ref rows } = recount;
        let recounted = Recounted { days, event_type: None, blobs, revision, rows, readings: &[] };
        let is_replacing = |world: &World| world.workers[worker].owner.as_ref().is_some_and(Owner::is_replacing);
        let was_replacing = is_replacing(self);
        self.give(worker, life, Input::Replace(recounted));
        if !was_replacing && !is_replacing(self) {
            self.meet("recount left out");
        }
    }

    fn set_pause(&mut self, is_paused: bool) {
        let paused_at_ms = is_paused.then_some(self.clock().0);
        self.propose(Command::Pause(SetPause { target: PauseTarget::Partition(PARTITION), paused_at_ms }));
    }

    /// An operator has dead letters replayed and dropped, from a copy of the manifest that may be old.
    fn settle(&mut self, worker: usize) {
        let Some(copy) = self.old_copy() else { return };
        let Some((key, letters)) = helpers::dead_letters(&copy, &self.store, &mut self.rng) else { return };
        let source = letters.first().and_then(|first| self.sources.iter().find(|source| source.id == first.source));
        let Some(source) = source.cloned() else { return };
        let records: Vec<[Record<'_>; 1]> =
            letters.iter().filter_map(|letter| Some([source.fixed.get(letter.row as usize)?.record()])).collect();
        let mut settled = Vec::new();
        for (letter, records) in letters.iter().zip(&records) {
            let fate = if checkers::is_replayed(letter.row) { Fate::Replay(records) } else { Fate::Drop };
            settled.push(Letter { letter, fate: if self.rng.percent(20) { Fate::Keep } else { fate } });
        }
        let life = self.workers[worker].life;
        self.give(worker, life, Input::Settle(Letters { key, letters: &settled }));
    }

    /// All processes end, and what was not synced is lost.
    fn power_cut(&mut self) {
        let lost = self.store.power_cut(&mut self.rng);
        self.meet("power cut");
        *self.situations.entry("file lost or torn by a power cut").or_default() += lost.files;
        for worker in 0..self.workers.len() {
            self.workers[worker].kill();
            self.after(10, 3_000, Event::Start { worker });
        }
    }

    fn old_copy(&mut self) -> Option<Rc<Manifest>> {
        let at = self.rng.below(self.copies.len() as u64) as usize;
        self.copies.get(at).cloned()
    }

    /// The collector lists files, and deletes some of them later.
    fn collect(&mut self, copy: Rc<Manifest>) {
        let list = self.store.list();
        self.after(1, 3_000, Event::Collect { copy, list });
    }

    fn compact(&mut self) {
        let Some(copy) = self.old_copy() else { return };
        let merge = helpers::stale_merge(&copy, &mut self.store, &mut self.rng);
        if let Some(command) = merge {
            self.propose(command);
            // Its number is far above that of the owner's next commit.
            self.after(40, 200, Event::List);
        }
    }

    fn ask(&mut self) {
        let manifest = Rc::clone(&self.manifest);
        let query = Query::pin(&manifest, &mut self.rng);
        self.after(0, 200, Event::AskOwner(query));
    }

    fn ask_owner(&mut self, mut query: Query) {
        let worker = self.rng.below(WORKERS as u64) as usize;
        // The names of the owner's rows are those of the blobs.
        if let Some(owner) = &self.workers[worker].owner
            && self.workers[worker].told_types == query.known_types
            && let Ok(rows) = owner.rows_of(self.clock(), &query.tenant)
        {
            // The owner refuses rows behind a horizon that was raised after the query began, and leaves out rows that were erased since.
            let partition = self.manifest.partition(PARTITION);
            let late = partition.map_or(Day(0), |partition| partition.horizons.late);
            let erasures = partition.map(|partition| partition.erasures.clone()).unwrap_or_default();
            query.add_owner_rows(rows, late, erasures);
        }
        self.after(0, 200, Event::Answer(query));
    }

    fn answer(&mut self, query: Query) -> Result<(), Violation> {
        let answered = query.answer(&self.store, &self.sources, &self.settled)?;
        self.meet(match answered {
            Answered::FromBlobs => "query from blobs",
            Answered::WithOwnerRows => "query with the owner's rows",
            Answered::OwnerRowsInBlobs => "query whose blobs hold the owner's rows",
            Answered::BehindOwner => "query behind the owner",
            Answered::Replanned => "query planned again",
        });
        Ok(())
    }
}

/// FNV-1a of what an outcome prints.
fn fingerprint(outcome: &Applied) -> u64 {
    let text = format!("{outcome:?}");
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
