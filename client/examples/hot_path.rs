//! What counting costs a caller, in ns per increment and thread, as one line of JSON: the median and the worst of several
//! runs. A run is cut into short pieces and counts as its median piece, so that what else the machine does in between is not
//! taken for the price of counting.
//!
//!     cargo run --release -p tidemark-client --example hot_path

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;
use tidemark_client::{Client, Counter, CounterName, fake::FakeCluster};

const ADDS: u64 = 50_000_000;
const KEYED_ADDS: u64 = 10_000_000;
const KEYS: usize = 10_000;
const RUNS: usize = 3;
/// Pieces of a run.
const PIECES: usize = 100;

/// Counts allocations of the measured threads.
struct Counting;

thread_local! { static ALLOCATIONS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) }; }
static MEASURED_ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: everything is handed to the system's allocator as it came.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps GlobalAlloc's contract, which is the system's too.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as above; `at` came from `alloc`.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Nanoseconds per call and thread of `adds` calls on each of `threads` threads: median and worst run.
fn measure(threads: usize, adds: u64, add: impl Fn(u64) + Sync) -> serde_json::Value {
    let barrier = Barrier::new(threads);
    let mut runs: Vec<f64> = (0..RUNS).map(|_| run(threads, adds, &barrier, &add)).collect();
    runs.sort_by(f64::total_cmp);
    serde_json::json!({ "median": runs[RUNS / 2], "worst": runs[RUNS - 1] })
}

/// The slowest thread's median piece.
fn run(threads: usize, adds: u64, barrier: &Barrier, add: &(impl Fn(u64) + Sync)) -> f64 {
    let one = || {
        let mut pieces = Vec::with_capacity(PIECES);
        (0..adds / PIECES as u64).for_each(add);
        barrier.wait();
        let allocations = ALLOCATIONS.get();
        pieces.extend((0..PIECES).map(|_| piece(adds / PIECES as u64, add)));
        MEASURED_ALLOCATIONS.fetch_add(ALLOCATIONS.get() - allocations, Relaxed);
        pieces.sort_by(f64::total_cmp);
        pieces[PIECES / 2]
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(one)).collect();
        threads.into_iter().map(|thread| thread.join().expect("a measured thread")).fold(0.0, f64::max)
    })
}

fn piece(adds: u64, add: &impl Fn(u64)) -> f64 {
    let start = Instant::now();
    (0..adds).for_each(add);
    start.elapsed().as_nanos() as f64 / adds as f64
}

/// 10,000 names of 24 bytes, in an order that caches cannot guess.
fn names() -> Vec<CounterName> {
    let key = |n: usize| format!("tenant-{:05}/page-{:06}", n % 100, n * 7_919 % KEYS);
    (0..KEYS).map(|n| CounterName::new("web", key(n).as_bytes()).expect("a valid name")).collect()
}

#[tokio::main(worker_threads = 1)]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let cluster = FakeCluster::new();
    let client = Client::builder().fake(&cluster).connect().await?;
    let counter: Counter = client.counter("search", b"queries")?;
    let names = names();
    assert!(names.iter().all(|name| name.key().len() == 24));
    let line = tokio::task::block_in_place(|| {
        let by_handle = |n| black_box(&counter).add(black_box(n & 3));
        let by_key = |n: u64| {
            let name = &names[(n.wrapping_mul(2_654_435_761) % KEYS as u64) as usize];
            client.add(black_box(name), 1).expect("a valid name");
        };
        // A thread that sees a name for the first time allocates: the warm-up of each run does.
        serde_json::json!({
            "bench": "hot_path",
            "counter_add_ns": measure(1, ADDS, by_handle),
            "counter_add_2_threads_ns": measure(2, ADDS, by_handle),
            "client_add_10000_keys_ns": measure(1, KEYED_ADDS, by_key),
            "client_add_10000_keys_2_threads_ns": measure(2, KEYED_ADDS, by_key),
            "allocations": MEASURED_ALLOCATIONS.load(Relaxed),
        })
    });
    client.flush().await?;
    println!("{line}");
    Ok(())
}
