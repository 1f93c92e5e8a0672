//! Ended buckets, in memory and on disk only: the memory of a view and of a node, and the cost of a page that reads thirty days of them.

use std::time::{Duration, Instant, SystemTime};

use serde_json::json;

use super::cluster::{Cluster, NAMESPACE, Options};
use super::line::{Asked, Sample};
use super::points::{self, DAY, DAYS, PER_DAY};
use super::series::SERIES;
use super::{BenchError, Plan, node};

/// Each has counted on each of the days.
const COUNTERS: usize = 40_000;
const LINES_AT_ONCE: usize = 500;
/// Memory that buckets may take, in MiB: all of them fit the first.
const MEMORY_MIB: [u32; 2] = [4_096, 4];
/// Of the node, as the view makes them.
const CHECKPOINTS: &str = "log.checkpoint_interval_ms=1000";
/// All is counted and shown, and what does not fit has left memory, within this.
const PATIENCE: Duration = Duration::from_secs(180);
const POLL: Duration = Duration::from_millis(100);
const MIB: f64 = (1 << 20) as f64;

/// `old-buckets`.
pub fn run(plan: &Plan) -> Result<Vec<Sample>, BenchError> {
    let counters = plan.size_or(COUNTERS).max(points::names().len());
    let mut samples = Vec::new();
    for (memory_mib, place) in MEMORY_MIB.into_iter().zip(["in memory", "on disk"]) {
        let of = |key: &str| vec!["rows.store=tree".to_owned(), format!("{key}.buckets_memory_mib={memory_mib}")];
        let aggregator = of("view");
        let mut node = of("group");
        node.push(CHECKPOINTS.to_owned());
        let flush_delay = plan.flush_delay;
        let layout = SERIES.to_owned();
        let cluster = Cluster::start_as(Options { flush_delay, layout, aggregator, node, ..Options::default() })?;
        fill(&cluster, counters)?;
        let most = f64::from(memory_mib) * MIB;
        let (bytes, waited) = settle(&cluster, most)?;
        let of_node = settle_node(&cluster, most)?;
        let what = format!("{counters} counters by minute, hour and day over {DAYS} days, old ones {place}");
        samples.push(Asked::cost(format!("{what}: buckets in the view's memory"), "MiB").is(bytes / MIB));
        samples.push(Asked::cost(format!("{what}: buckets in the node's memory"), "MiB").is(of_node / MIB));
        samples.push(Asked::cost(format!("{what}: from then until they are at rest"), "s").is(waited.as_secs_f64()));
        let all = points::look(&cluster, plan.seconds_or(node::LOAD_S))?;
        let page = |share: &str| Asked::cost(format!("a counter by day and 100 relatives, {place}, {share}"), "ms");
        samples.push(page("p99").is(points::ms(&all, 0.99)));
        samples.push(page("p50").is(points::ms(&all, 0.5)));
    }
    Ok(samples)
}

/// Counts all of them on each of the last days.
fn fill(cluster: &Cluster, counters: usize) -> Result<(), BenchError> {
    let names = points::names();
    let others = (names.len()..counters).map(|number| format!("{NAMESPACE}/other-{number:08}"));
    let names: Vec<String> = names.iter().cloned().chain(others).collect();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    // An early event is late enough to be taken, and its counters are known by then.
    for day in (0..DAYS).rev() {
        let at = (now - DAY * day as u32).as_secs();
        let line = |counter: &String| json!({ "counter": counter, "delta": PER_DAY, "at": at }).to_string() + "\n";
        for names in names.chunks(LINES_AT_ONCE) {
            let added = cluster.json("POST", "/v1/add", &names.iter().map(line).collect::<String>())?;
            if added["added"].as_u64() != Some(names.len() as u64) {
                return Err(BenchError::Failed { who: "the fill".to_owned(), reason: added.to_string() });
            }
        }
    }
    Ok(())
}

/// Waits until the view has all of it and no more in memory than it may; returns its bytes then, and the duration.
fn settle(cluster: &Cluster, most: f64) -> Result<(f64, Duration), BenchError> {
    let begun = Instant::now();
    let asked = json!({ "counters": points::names() }).to_string();
    loop {
        let read = cluster.json("POST", "/v1/read", &asked)?;
        let shown = read["counters"].as_array().map_or(&[][..], Vec::as_slice);
        let all = shown.iter().all(|counter| counter["value"] == PER_DAY * DAYS);
        let view = &cluster.json("GET", "/v1/status", "")?["view"];
        let behind = view["groups"].as_array().is_none_or(|groups| groups.iter().any(|group| group["entries"] != 0));
        let bytes = view["buckets_bytes"].as_f64().unwrap_or(f64::MAX);
        if all && !behind && bytes <= most {
            return Ok((bytes, begun.elapsed()));
        }
        if begun.elapsed() > PATIENCE {
            let what = format!("buckets in {bytes} bytes of memory, of at most {most}");
            return Err(BenchError::Patience { what, waited_s: PATIENCE.as_secs() });
        }
        std::thread::sleep(POLL);
    }
}

/// Waits until the node has no more in memory than it may; returns its bytes then.
fn settle_node(cluster: &Cluster, most: f64) -> Result<f64, BenchError> {
    let begun = Instant::now();
    loop {
        let group = &cluster.node_status(0)?["groups"][0];
        let bytes = group["buckets_bytes"].as_f64().unwrap_or(f64::MAX);
        if bytes <= most {
            return Ok(bytes);
        }
        if begun.elapsed() > PATIENCE {
            let what = format!("buckets in {bytes} bytes of a node's memory, of at most {most}");
            return Err(BenchError::Patience { what, waited_s: PATIENCE.as_secs() });
        }
        std::thread::sleep(POLL);
    }
}
