//! The cost of counting for a caller, in nanoseconds per increment and thread, beside the usual shared counter. A run is cut into short
//! pieces and counts as its median piece, so that other work of the machine is not taken for the price.

use std::error::Error;
use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tidemark_client::{Client, CounterName, fake::FakeCluster};

use super::allocations::of_this_thread;
use super::child::TaskChild;
use super::cluster::Folder;
use super::line::{Asked, Sample};
use super::task::{Said, Task};
use super::{BenchError, Plan, load};

const ADDS: usize = 50_000_000;
/// Adds by key take longer: fewer of them show as much.
const KEYED_SHARE: usize = 5;
const KEYS: usize = 10_000;
/// Pieces of a measurement.
const PIECES: usize = 100;
const PATIENCE: Duration = Duration::from_secs(120);

/// The child's findings: nanoseconds, and allocations by the measured threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HotPathReport {
    handle_ns: f64,
    handle_2_threads_ns: f64,
    keys_ns: f64,
    keys_2_threads_ns: f64,
    shared_ns: f64,
    shared_2_threads_ns: f64,
    allocations: u64,
}

/// `hot-path`.
pub fn run(plan: &Plan) -> Result<Vec<Sample>, BenchError> {
    let folder = Folder::new()?;
    let mut child = TaskChild::start("caller", &Task::HotPath { adds: plan.size_or(ADDS) }, folder.path())?;
    let report = child.wait_for(PATIENCE, |said| match said {
        Said::HotPath(report) => Some(report),
        _ => None,
    })?;
    Ok(vec![
        Asked::cost("counter.add(n) on a handle", "ns").must(5.0).aim(2.0).is(report.handle_ns),
        Asked::cost("the same, two threads", "ns").must(8.0).aim(2.0).is(report.handle_2_threads_ns),
        Asked::cost("client.add(&key, n) over 10,000 keys of 24 bytes", "ns").must(80.0).aim(40.0).is(report.keys_ns),
        Asked::cost("the same by key, two threads", "ns").is(report.keys_2_threads_ns),
        Asked::cost("allocations while counting", "").must(0.0).is(report.allocations as f64),
        Asked::cost("peer: one shared fetch_add", "ns").is(report.shared_ns),
        Asked::cost("peer: the same, two threads", "ns").is(report.shared_2_threads_ns),
    ])
}

/// Measures in this process. A thread that sees a name for the first time allocates: the first piece is not counted.
///
/// # Errors
/// The client cannot be made.
pub async fn count(adds: usize) -> Result<HotPathReport, Box<dyn Error>> {
    let cluster = FakeCluster::new();
    let client = Client::builder().fake(&cluster).connect().await?;
    let counter = client.counter("search", b"queries")?;
    let names = (0..KEYS).map(|n| load::name(n * 7_919 % KEYS)).collect::<Result<Vec<CounterName>, _>>()?;
    let shared = AtomicU64::new(0);
    let allocations = AtomicU64::new(0);
    let measured = tokio::task::spawn_blocking(move || {
        let by_handle = |n| black_box(&counter).add(black_box(n & 3));
        let by_key = |n: u64| {
            let name = &names[(n.wrapping_mul(2_654_435_761) % KEYS as u64) as usize];
            client.add(black_box(name), 1).expect("a valid name");
        };
        let by_shared = |n| {
            black_box(&shared).fetch_add(black_box(n & 3), Relaxed);
        };
        let keyed = adds / KEYED_SHARE;
        HotPathReport {
            handle_ns: measure(1, adds, &allocations, by_handle),
            handle_2_threads_ns: measure(2, adds, &allocations, by_handle),
            keys_ns: measure(1, keyed, &allocations, by_key),
            keys_2_threads_ns: measure(2, keyed, &allocations, by_key),
            shared_ns: measure(1, keyed, &allocations, by_shared),
            shared_2_threads_ns: measure(2, keyed, &allocations, by_shared),
            allocations: allocations.load(Relaxed),
        }
    });
    Ok(measured.await?)
}

/// Nanoseconds per call on each of `threads` threads: the slowest thread's median piece.
fn measure(threads: usize, adds: usize, allocations: &AtomicU64, add: impl Fn(u64) + Sync) -> f64 {
    let calls = (adds / PIECES).max(KEYS) as u64;
    let barrier = Barrier::new(threads);
    let one = || {
        let mut pieces = Vec::with_capacity(PIECES);
        (0..calls).for_each(&add);
        barrier.wait();
        let before = of_this_thread();
        pieces.extend((0..PIECES).map(|_| piece(calls, &add)));
        allocations.fetch_add(of_this_thread() - before, Relaxed);
        pieces.sort_unstable_by(f64::total_cmp);
        pieces[PIECES / 2]
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(one)).collect();
        threads.into_iter().map(|thread| thread.join().expect("a measured thread")).fold(0.0, f64::max)
    })
}

fn piece(calls: u64, add: &impl Fn(u64)) -> f64 {
    let start = Instant::now();
    (0..calls).for_each(add);
    start.elapsed().as_nanos() as f64 / calls as f64
}
