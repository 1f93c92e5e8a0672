//! The cost of moving a shard of a million counters from one aggregator to another, and of splitting a shard in two, while all of it is
//! counted and read, beside the same load without that.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::json;

use super::child::{PATIENCE, TaskChild};
use super::cluster::Remote;
use super::line::{Asked, Sample};
use super::reads::{self, ReadKind, ReadReport, ReadTask};
use super::series::{Series, Shape};
use super::slots::cuts;
use super::task::{Said, Task};
use super::{BenchError, Plan};
use tidemark_server::api::slots::{SlotBody, SlotsBody};

/// Each is held by two of the four aggregators.
const SLOTS: usize = 4;
const FURTHER: usize = 3;
/// A shard that the read aggregator does not hold, before it is moved and after.
const MOVED: u16 = 1;
/// The shards that are split then, which it does not hold either: it has two in the place of each when all holders have.
const SPLIT: [u16; 2] = [1, 2];
const COUNTERS: usize = 4_000_000;
/// Number of counters that are read, of all shards: to learn many more names stops the client for tenths of a second.
const READ: usize = 20_000;
const SECONDS: f64 = 60.0;
/// Of this time a part, in which splits are done one after the other.
const SPLIT_SHARE: f64 = 0.5;
const PER_S: f64 = 10_000.0;
const READS_PER_S: f64 = 2_000.0;
const POLL: Duration = Duration::from_millis(20);
const MOVED_WITHIN: Duration = Duration::from_secs(300);

/// `slot-moves`.
pub fn run(plan: &Plan) -> Result<Vec<Sample>, BenchError> {
    let counters = plan.size_or(COUNTERS);
    let mut series = Series::start(plan, Shape { slots: cuts(SLOTS), further: FURTHER, ..Shape::of(counters) })?;
    series.found()?;
    series.catch_up()?;
    series.rest()?;
    let seconds = plan.seconds_or(SECONDS);
    let (_, at_rest) = phase(&mut series, plan, counters, seconds, |_, _| Ok(()))?;
    let (took, moving) = phase(&mut series, plan, counters, seconds, |remote, until| {
        let mut took = Vec::new();
        while took.is_empty() || Instant::now() < until {
            took.push(carry_out(remote)?);
        }
        Ok(took)
    })?;
    let (split, splitting) = phase(&mut series, plan, counters, seconds * SPLIT_SHARE, |remote, _| {
        SPLIT.into_iter().map(|slot| split(remote, slot)).collect::<Result<Vec<_>, _>>()
    })?;
    let mut samples: Vec<Sample> = Vec::new();
    for (done, took) in [("moved", &took), ("split", &split)] {
        let what = format!("slot of {} counters {done}", counters / SLOTS);
        samples.extend(took.iter().map(|took| Asked::cost(what.clone(), "s").is(took.as_secs_f64())));
    }
    samples.push(Asked::rate("such moves", "").is(took.len() as f64));
    let phases = [("without a move", at_rest), ("meanwhile", moving), ("while slots are split", splitting)];
    for (when, phase) in phases {
        samples.push(Asked::cost(format!("cores of nodes and aggregators {when}"), "").is(phase.cores));
        samples.push(Asked::rate(format!("gets of an open loop {when}"), "/s").is(phase.reads.values_per_s));
        samples.push(Asked::cost(format!("get {when}, p99"), "ms").is(phase.reads.answer.p99_ms));
        samples.push(Asked::cost(format!("get {when}, p50"), "ms").is(phase.reads.answer.p50_ms));
        samples
            .push(Asked::cost(format!("the generator's lateness {when}, p99"), "ms").is(phase.reads.lateness.p99_ms));
    }
    samples.extend(series.sums()?);
    Ok(samples)
}

/// The cost of a load and of reads, and the duration of reads.
struct Phase {
    cores: f64,
    reads: ReadReport,
}

/// Counts and reads for a while, and does something meanwhile.
fn phase<R>(
    series: &mut Series<'_>,
    plan: &Plan,
    counters: usize,
    seconds: f64,
    work: impl FnOnce(&Remote, Instant) -> Result<R, BenchError>,
) -> Result<(R, Phase), BenchError> {
    let kind = ReadKind::Rate { per_s: READS_PER_S };
    let keys = counters.min(READ);
    let task = ReadTask { place: series.cluster.place(), keys, kind, seconds, seed: plan.run.into() };
    let mut readers = TaskChild::start("readers", &Task::Read(task), series.cluster.folder())?;
    readers.wait_ready()?;
    let before = series.cluster.cpu_s();
    let begun = Instant::now();
    let done = series.meanwhile(plan.rate_or(PER_S), seconds, |remote| {
        readers.go()?;
        readers.wait_for(PATIENCE, |said| matches!(said, Said::Measuring).then_some(()))?;
        work(remote, Instant::now() + Duration::from_secs_f64(seconds))
    })?;
    let reads = reads::all_answered(&mut readers, &mut series.cluster, PATIENCE)?;
    let (before, after) = before.zip(series.cluster.cpu_s()).ok_or_else(super::no_proc)?;
    let spent = after.0 + after.1 - before.0 - before.1;
    Ok((done, Phase { cores: spent / begun.elapsed().as_secs_f64(), reads }))
}

/// Moves the slot to one that does not hold it, and waits until that one does.
fn carry_out(remote: &Remote) -> Result<Duration, BenchError> {
    let (slot, all) = slot(remote)?;
    let to = all.iter().find(|name| !slot.held_by.contains(name) && **name != all[0]);
    let (Some(from), Some(to)) = (slot.held_by.first(), to) else {
        return Err(failed(format!("slot {MOVED} is held by {:?}, of {all:?}", slot.held_by)));
    };
    let begun = Instant::now();
    remote.json("POST", "/v1/slots/move", &json!({ "slot": MOVED, "from": from, "to": to }).to_string())?;
    while !self::slot(remote)?.0.held_by.contains(to) {
        if begun.elapsed() > MOVED_WITHIN {
            return Err(failed(format!("slot {MOVED} was not moved from {from} to {to} in {MOVED_WITHIN:?}")));
        }
        std::thread::sleep(POLL);
    }
    Ok(begun.elapsed())
}

/// Splits a shard in the middle, and waits until all its holders of the data centre have both parts on disk.
fn split(remote: &Remote, slot: u16) -> Result<Duration, BenchError> {
    // As many leaves are in each half.
    let at = cuts(2 * SLOTS).swap_remove(2 * usize::from(slot));
    let begun = Instant::now();
    remote.json("POST", "/v1/slots/split", &json!({ "slot": slot, "at": at }).to_string())?;
    while listed(remote)?.slots.iter().any(|listed| listed.slot == slot) {
        if begun.elapsed() > MOVED_WITHIN {
            return Err(failed(format!("slot {slot} was not split at {at} in {MOVED_WITHIN:?}")));
        }
        std::thread::sleep(POLL);
    }
    Ok(begun.elapsed())
}

fn listed(remote: &Remote) -> Result<SlotsBody, BenchError> {
    let listed = remote.json("GET", "/v1/slots", "")?;
    serde_json::from_value(listed).map_err(|error| failed(error.to_string()))
}

/// The slot that is moved, and the names of all aggregators, the one first that is read at.
fn slot(remote: &Remote) -> Result<(SlotBody, Vec<String>), BenchError> {
    let listed = listed(remote)?;
    let all: BTreeSet<String> = listed.slots.iter().flat_map(|slot| slot.held_by.iter().cloned()).collect();
    let slot = listed.slots.into_iter().find(|slot| slot.slot == MOVED);
    Ok((slot.ok_or_else(|| failed(format!("there is no slot {MOVED}")))?, all.into_iter().collect()))
}

fn failed(reason: String) -> BenchError {
    BenchError::Failed { who: "the move".to_owned(), reason }
}
