//! Runs seeds and reports the results: one run, a replay with its trace, a sweep on two threads. Only this file of the crate reads a
//! clock or starts a thread. Neither affects a run.

use crate::checkers::sizes::{Day, Size};
use crate::coverage::{Coverage, Floors, Unmet};
use crate::engine::{Least, Mode};
use crate::plan::{Only, Plan};
use crate::shrink::{self, Part};
use crate::teeth::Mutation;
use crate::world::{Outcome, World};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
#[expect(clippy::disallowed_types, reason = "measures the simulator, not the simulated")]
use std::time::Instant;
use tidemark_proto::time::Time;

/// Seeds that failed once; a test runs them for ever.
pub const KEPT_SEEDS: &str = include_str!("../seeds.txt");

/// Threads of a sweep.
const THREADS: usize = 2;
/// Failing seeds that a sweep remembers by number.
const FAILURES_KEPT: usize = 20;

/// A run and how long it took.
#[derive(Clone, Debug)]
pub struct Timed {
    pub outcome: Outcome,
    /// [`Plan::meaning`] of its seed.
    pub meaning: u32,
    pub seconds: f64,
}

/// Runs one seed. A panic inside a machine is a violation like any other.
pub fn run(seed: u64, mutation: Mutation) -> Timed {
    run_plan(Plan::new(seed), mutation, None)
}

/// Runs a plan; hands every line of its trace to `print`.
pub fn run_plan(plan: Plan, mutation: Mutation, print: Option<&mut dyn FnMut(&str)>) -> Timed {
    run_plan_in(Mode::FAST, plan, mutation, print)
}

/// Runs a plan of a mode, as above.
pub fn run_plan_in(mode: Mode, plan: Plan, mutation: Mutation, print: Option<&mut dyn FnMut(&str)>) -> Timed {
    let began = now();
    let seed = plan.seed;
    let meaning = plan.meaning();
    let printed = print.is_some();
    let world = || World::on((mode.engine)(&plan), plan, mutation, printed);
    let outcome = match print {
        None => catch_unwind(AssertUnwindSafe(|| world().run())),
        Some(print) => catch_unwind(AssertUnwindSafe(|| replay(world(), print))),
    };
    let outcome = outcome.unwrap_or_else(|panic| panicked(seed, &*panic));
    Timed { outcome, meaning, seconds: seconds_since(began) }
}

fn replay(mut world: World, print: &mut dyn FnMut(&str)) -> Outcome {
    loop {
        let more = world.step();
        world.trace.take_lines().iter().for_each(|line| print(line));
        if !more {
            return world.run();
        }
    }
}

/// The parts that make a run fail.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// Name of the mode.
    pub mode: &'static str,
    /// The property that the whole run violates first, and so does the shrunk one.
    pub property: &'static str,
    /// Without any one of these, it does not fail so.
    pub parts: Vec<Part>,
    /// How many there were.
    pub of: usize,
    pub runs: u64,
    /// The shrunk plan, and what it came to.
    pub plan: Plan,
    pub timed: Timed,
}

/// Leaves out of a failing seed what it does not need to fail; `None` if it does not fail.
pub fn shrink(seed: u64, mutation: Mutation) -> Option<Shrunk> {
    shrink_in(Mode::FAST, seed, mutation)
}

/// As above, of a mode.
pub fn shrink_in(mode: Mode, seed: u64, mutation: Mutation) -> Option<Shrunk> {
    let whole = (mode.plan)(seed);
    let run_plan = |plan, mutation, print| run_plan_in(mode, plan, mutation, print);
    let first = |timed: &Timed| timed.outcome.findings.violations.first().map(|violation| violation.property);
    let property = first(&run_plan(whole.clone(), mutation, None))?;
    let with = |parts: &[Part]| Plan { only: shrink::only(parts), ..whole.clone() };
    let all = shrink::parts(&whole);
    let mut runs = 1;
    let parts = shrink::shrink(&all, |parts| {
        runs += 1;
        first(&run_plan(with(parts), mutation, None)) == Some(property)
    });
    let plan = with(&parts);
    let timed = run_plan(plan.clone(), mutation, None);
    Some(Shrunk { mode: mode.name, property, of: all.len(), parts, runs, plan, timed })
}

fn panicked(seed: u64, panic: &(dyn std::any::Any + Send)) -> Outcome {
    let text = panic.downcast_ref::<String>().cloned();
    let what = text.or_else(|| panic.downcast_ref::<&str>().map(|&s| s.to_owned())).unwrap_or_default();
    let mut findings = crate::checkers::Findings::default();
    findings.found("invariants", format!("panicked: {what}"));
    let trace_hash = 0;
    let events = 0;
    let increments = 0;
    let milestones = 0;
    let virtual_time = Time(0);
    let coverage = Coverage::default();
    let days = Vec::new();
    Outcome { seed, trace_hash, findings, events, increments, milestones, virtual_time, coverage, days }
}

impl Timed {
    /// The closing line of a run.
    pub fn json(&self) -> Value {
        let o = &self.outcome;
        let violations: Vec<Value> =
            o.findings.violations.iter().map(|v| json!(format!("{}: {}", v.property, v.what))).collect();
        let mut line = json!({
            "seed": o.seed,
            "seeds": 1,
            "failures": u64::from(!violations.is_empty()),
            "trace_hash": format!("{:016x}", o.trace_hash),
            "violations": violations,
            "coverage": o.coverage.json(),
            "events": o.events,
            "events_per_s": rate(o.events, self.seconds),
            "increments": o.increments,
            "milestones": o.milestones,
            "virtual_s": o.virtual_time.0 as f64 / 1e6,
        });
        if !o.days.is_empty() {
            line["days"] = o.days.iter().map(day_json).collect();
        }
        line
    }
}

/// The measurement that came nearest to its bound in a day, by name.
fn day_json(day: &Day) -> Value {
    let size = |(name, size): (&&str, &Size)| ((*name).to_owned(), json!({ "is": size.is, "bound": size.bound }));
    let sizes: serde_json::Map<String, Value> = day.sizes.iter().map(size).collect();
    json!({ "day": day.day, "sizes": sizes })
}

impl Shrunk {
    /// The needed parts, a line each.
    pub fn words(&self) -> Vec<String> {
        let seconds = |at: Time| at.0 as f64 / 1e6;
        let words = |part: &Part| match *part {
            Part::Fault(index) => {
                let (at, fault) = &self.plan.faults[index];
                format!("fault {index} at {:.6} s: {fault:?}", seconds(*at))
            }
            Part::Admin(index) => {
                let (at, cmd) = &self.plan.admin[index];
                format!("command {index} at {:.6} s: {cmd:?}", seconds(*at))
            }
            Part::Client(slot) => format!("client {slot}, of node {}", self.plan.clients[slot]),
            Part::Moves(dc) => format!("machines of data centre {dc} that come and go"),
            Part::Versions => "processes of the next version".to_owned(),
        };
        self.parts.iter().map(words).collect()
    }

    pub fn json(&self) -> Value {
        json!({
            "seed": self.plan.seed,
            "property": self.property,
            "parts": self.words(),
            "of": self.of,
            "runs": self.runs,
            "replay": replay_command(self.mode, &self.timed, &self.plan.only),
        })
    }
}

/// How to see a run again.
pub fn replay_command(mode: &str, timed: &Timed, only: &Only) -> String {
    replay_of(mode, timed.outcome.seed, timed.meaning, only)
}

fn replay_of(mode: &str, seed: u64, meaning: u32, only: &Only) -> String {
    // On modelled logs nothing moves.
    let moves = only.moves.clone().filter(|_| mode == "raft" || mode == "quic");
    let mode = if mode == Mode::FAST.name { String::new() } else { format!(" --mode {mode}") };
    let list = |some: &BTreeSet<usize>| match some.is_empty() {
        true => "none".to_owned(),
        false => some.iter().map(usize::to_string).collect::<Vec<_>>().join(","),
    };
    let some = [("faults", &only.faults), ("admin", &only.admin), ("clients", &only.clients), ("moves", &moves)];
    let some = some.into_iter().filter_map(|(name, some)| Some(format!(" --only-{name} {}", list(some.as_ref()?))));
    let one_version = if only.one_version { " --one-version" } else { "" };
    format!("tidemark sim replay{mode} --seed {seed} --meaning {meaning:08x}{}{one_version}", some.collect::<String>())
}

/// Which seeds a sweep runs: an end, or a time limit.
#[derive(Clone, Copy, Debug)]
pub struct SweepPlan {
    pub first: u64,
    pub count: u64,
    pub seconds: f64,
}

/// A run that failed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Failed {
    pub seed: u64,
    /// [`Plan::meaning`] of it.
    pub meaning: u32,
    /// The first violation.
    pub what: String,
}

/// The result of a sweep.
#[derive(Clone, Debug, Default)]
pub struct Sweep {
    /// Name of the mode.
    pub mode: &'static str,
    /// The floors that it has to meet.
    floors: Option<&'static Floors>,
    least: Least,
    /// The first seed.
    pub seed: u64,
    pub seeds: u64,
    /// Of all runs together, in whatever order they ended.
    pub trace_hash: u64,
    pub failures: u64,
    /// Failing seeds, the lowest first.
    pub failed: Vec<Failed>,
    pub events: u64,
    pub increments: u64,
    pub milestones: u64,
    /// Seconds of all threads together.
    pub busy_seconds: f64,
    /// Least increments and virtual seconds of one seed, and seeds without a milestone.
    pub increments_least: u64,
    pub virtual_s_least: f64,
    pub without_milestone: u64,
    pub coverage: Coverage,
}

/// Runs seeds on two threads. Every failure is handed to `report` when it is found.
pub fn sweep(plan: SweepPlan, mutation: Mutation, report: &(dyn Fn(&Timed) + Sync)) -> Sweep {
    sweep_in(Mode::FAST, plan, mutation, report)
}

/// As above, in a mode.
#[expect(clippy::disallowed_methods, reason = "a sweep runs seeds in parallel; each run is single-threaded")]
pub fn sweep_in(mode: Mode, plan: SweepPlan, mutation: Mutation, report: &(dyn Fn(&Timed) + Sync)) -> Sweep {
    let began = now();
    let next = std::sync::atomic::AtomicU64::new(0);
    let work = || {
        let mut sweep = Sweep { increments_least: u64::MAX, virtual_s_least: f64::MAX, ..Sweep::default() };
        loop {
            let n = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            if n >= plan.count || seconds_since(began) >= plan.seconds {
                return sweep;
            }
            let timed = run_plan_in(mode, (mode.plan)(plan.first + n), mutation, None);
            if !timed.outcome.findings.violations.is_empty() {
                report(&timed);
            }
            sweep.take(&timed);
        }
    };
    let parts: Vec<Sweep> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
        // A panic outside of a run is no sweep of fewer seeds.
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    });
    let sweep = parts.into_iter().reduce(Sweep::join).unwrap_or_default();
    Sweep { mode: mode.name, floors: mode.floors, least: mode.least, seed: plan.first, ..sweep }
}

impl Sweep {
    fn take(&mut self, timed: &Timed) {
        let o = &timed.outcome;
        self.seeds += 1;
        self.trace_hash = self.trace_hash.wrapping_add(o.trace_hash);
        self.events += o.events;
        self.increments += o.increments;
        self.milestones += o.milestones;
        self.busy_seconds += timed.seconds;
        self.coverage.merge(&o.coverage);
        if let Some(first) = o.findings.violations.first() {
            self.failures += 1;
            let what = format!("{}: {}", first.property, first.what);
            self.failed.push(Failed { seed: o.seed, meaning: timed.meaning, what });
            self.failed.sort();
            self.failed.truncate(FAILURES_KEPT);
            return;
        }
        self.increments_least = self.increments_least.min(o.increments);
        self.virtual_s_least = self.virtual_s_least.min(o.virtual_time.0 as f64 / 1e6);
        self.without_milestone += u64::from(o.milestones == 0);
    }

    fn join(mut self, other: Sweep) -> Sweep {
        self.seeds += other.seeds;
        self.trace_hash = self.trace_hash.wrapping_add(other.trace_hash);
        self.failures += other.failures;
        self.failed.extend(other.failed);
        self.failed.sort();
        self.events += other.events;
        self.increments += other.increments;
        self.milestones += other.milestones;
        self.busy_seconds += other.busy_seconds;
        self.increments_least = self.increments_least.min(other.increments_least);
        self.virtual_s_least = self.virtual_s_least.min(other.virtual_s_least);
        self.without_milestone += other.without_milestone;
        self.coverage.merge(&other.coverage);
        self
    }

    /// Situations that were not met as often as this number of seeds should.
    pub fn unmet(&self) -> Vec<Unmet> {
        self.floors.map(|floors| self.coverage.unmet(floors, self.seeds)).unwrap_or_default()
    }

    /// In what a run of it was less than evidence.
    pub fn thin(&self) -> Vec<String> {
        let Least { virtual_s, increments, milestones } = self.least;
        let is_any = self.seeds > self.failures;
        let short = (self.virtual_s_least < virtual_s)
            .then(|| format!("a seed ran for {} virtual seconds; {virtual_s} are the least", self.virtual_s_least));
        let few = (self.increments_least < increments)
            .then(|| format!("a seed had {} increments; {increments} are the least", self.increments_least));
        let without = (self.without_milestone > 0 && milestones > 0)
            .then(|| format!("{} seeds had no milestone; {milestones} is the least", self.without_milestone));
        [short, few, without].into_iter().flatten().filter(|_| is_any).collect()
    }

    /// The closing line of a sweep. `events_per_s` is per core.
    pub fn json(&self) -> Value {
        let failed: Vec<Value> = self
            .failed
            .iter()
            .map(|Failed { seed, meaning, what }| {
                let replay = replay_of(self.mode, *seed, *meaning, &Only::default());
                json!({ "seed": seed, "violation": what, "replay": replay })
            })
            .collect();
        let none = self.seeds == self.failures;
        let unmet = |unmet: &Unmet| json!({ "situation": unmet.situation, "met": unmet.met, "least": unmet.least });
        json!({
            "mode": self.mode,
            "seed": self.seed,
            "seeds": self.seeds,
            "failures": self.failures,
            "trace_hash": format!("{:016x}", self.trace_hash),
            "less_than_evidence": self.thin(),
            "floors_not_reached": self.unmet().iter().map(unmet).collect::<Vec<_>>(),
            "failed": failed,
            "events": self.events,
            "events_per_s": rate(self.events, self.busy_seconds),
            "increments": self.increments,
            "milestones": self.milestones,
            "increments_least": if none { 0 } else { self.increments_least },
            "virtual_s_least": if none { 0.0 } else { self.virtual_s_least },
            "seeds_without_milestone": self.without_milestone,
            "coverage": self.coverage.json(),
        })
    }
}

/// Seeds of a list: one per line, words after a `#` say what failed.
pub fn seeds(list: &str) -> impl Iterator<Item = u64> + '_ {
    list.lines().filter_map(|line| line.split('#').next()?.trim().parse().ok())
}

fn rate(events: u64, seconds: f64) -> u64 {
    if seconds > 0.0 { (events as f64 / seconds) as u64 } else { 0 }
}

#[expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "measures the simulator, not the simulated")]
fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_types, reason = "measures the simulator, not the simulated")]
fn seconds_since(began: Instant) -> f64 {
    began.elapsed().as_secs_f64()
}
