//! `tidemark bench`: the figures that the project promises, measured on this machine and printed as one line of JSON.
//!
//! The measured parts run in processes of their own, started from this very program: nodes, aggregators, load generators. Loads are open
//! loops if a rate is named: a late increment is sent late, and measured from when it was due. Beside a rate stands the CPU time of the
//! whole tree of processes.

pub mod allocations;
mod buckets;
mod child;
pub mod cluster;
pub mod command;
mod edge_changes;
mod gossip;
mod hot_path;
mod ids;
pub mod line;
mod live;
mod live_demo;
pub mod load;
mod memory;
mod moves;
mod node;
mod old_buckets;
mod points;
#[cfg(feature = "postgres")]
mod postgres;
mod reads;
mod recovery;
mod replicas;
pub mod report;
mod rows;
mod series;
mod single_add;
mod slot_moves;
mod slots;
mod split;
pub mod task;
mod ticks;
mod whole;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use thiserror::Error;

use self::line::{Line, Sample};
use tidemark_demo::cost::{self, Cost};

/// Only a build that is asked for it has PostgreSQL's client.
#[cfg(not(feature = "postgres"))]
mod postgres {
    use super::{BenchError, Plan, Sample};

    pub fn run(_: &Plan) -> Result<Vec<Sample>, BenchError> {
        let why = "this program was built without PostgreSQL's client: build it with `--features postgres`";
        Err(BenchError::Setup(why.to_owned()))
    }
}

/// Between two looks at memory.
const MEMORY_EVERY: Duration = Duration::from_millis(500);
const MIB_PER_GIB: f64 = 1_024.0;

/// One figure, or a few that belong together.
pub struct Bench {
    pub name: &'static str,
    /// One line for the list.
    pub about: &'static str,
    /// Runs once.
    pub run: fn(&Plan) -> Result<Vec<Sample>, BenchError>,
}

/// All benches, in the order of the list.
pub const BENCHES: &[Bench] = &[
    Bench { name: "hot-path", about: "what counting costs a caller", run: hot_path::run },
    Bench { name: "node-deltas", about: "one node: distinct cell deltas over 10,000 keys, durable", run: node::deltas },
    Bench { name: "node-hits", about: "one node: single hits with sessions, durable", run: node::hits },
    Bench {
        name: "single-add",
        about: "single increments, each durable: over HTTP, by the client library, and a Redis beside them",
        run: single_add::run,
    },
    Bench { name: "reads", about: "one aggregator: get, get_many, and gets at a fixed rate", run: reads::run },
    Bench {
        name: "live",
        about: "one aggregator: 10,000 WebSockets, idle and busy, and an award to all",
        run: live::run,
    },
    Bench {
        name: "live-demo",
        about: "demo: 5,000 WebSockets while 70,000/s are counted, and every award to all",
        run: live_demo::run,
    },
    Bench {
        name: "recovery",
        about: "kill -9 under load with 1,000,000 cells: start to first answer",
        run: recovery::run,
    },
    Bench {
        name: "replicas",
        about: "three nodes, each group's log on all of them: single hits, durable; and a node that is killed",
        run: replicas::run,
    },
    Bench {
        name: "rows",
        about: "rows at rest: random updates in checkpoints, in a directory of rows and in the log's file",
        run: rows::run,
    },
    Bench {
        name: "buckets",
        about: "200,000,000 buckets of minutes, hours and days at rest: what each takes on the disk",
        run: buckets::run,
    },
    Bench {
        name: "series",
        about: "10,000,000 counters with minutes, hours and days: rate, memory, bytes written, kill -9",
        run: series::flat,
    },
    Bench {
        name: "hierarchy",
        about: "the same with two levels above them, and edges that change",
        run: series::hierarchy,
    },
    Bench {
        name: "edge-moves",
        about: "edges that move 100,000 counters' 40 buckets each, while these are read",
        run: moves::run,
    },
    Bench {
        name: "edge-changes",
        about: "three continents insert one edge at a time, many at once: rate, and how long each takes",
        run: edge_changes::run,
    },
    Bench {
        name: "slots",
        about: "the same with the view in 1, 4 and 16 slots, which edges cross: CPU of an increment",
        run: slots::run,
    },
    Bench {
        name: "split",
        about: "16 slots held by two aggregators, and by four that hold half of them each: CPU, memory, reads",
        run: split::run,
    },
    Bench {
        name: "slot-moves",
        about: "a slot of 1,000,000 counters moves from one aggregator to another, and two are split, while all are counted and read",
        run: slot_moves::run,
    },
    Bench {
        name: "recovery-series",
        about: "the same counters without levels: kill -9 under load, start to first answer, and what takes how long",
        run: series::recovery,
    },
    Bench {
        name: "postgres",
        about: "PostgreSQL beside it: 1,000,000 counters with minutes, hours and days, batched upserts",
        run: postgres::run,
    },
    Bench {
        name: "point-reads",
        about: "the same counters: reads by name, and a counter's days with a hundred others beside it",
        run: points::run,
    },
    Bench {
        name: "old-buckets",
        about: "buckets that ended, in memory and on disk only: what they take, and what a page costs that reads them",
        run: old_buckets::run,
    },
    Bench {
        name: "ids",
        about: "increments with ids: bytes of memory for each, and their rate over HTTP beside those without",
        run: ids::run,
    },
    Bench { name: "memory", about: "bytes per cell of a node and of a view", run: memory::run },
    Bench { name: "gossip", about: "bytes that data centres tell one another", run: gossip::run },
    Bench { name: "converged", about: "demo: a minute at 70,000/s, until all views are equal", run: whole::converged },
    Bench { name: "idle", about: "demo: what 15 data centres cost that have nothing to do", run: whole::idle },
    Bench { name: "sequence-all", about: "demo: the ledger places every increment", run: whole::sequence_all },
    Bench {
        name: "cut-off",
        about: "demo: a data centre that holds rights is cut off for five minutes at the milestone",
        run: whole::cut_off,
    },
    Bench { name: "sim", about: "events of the simulator per second", run: whole::sim },
];

fn no_proc() -> BenchError {
    BenchError::Setup("this system has no /proc".to_owned())
}

/// How a bench is run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Seconds that are measured per load, instead of as many as the promise names.
    pub seconds: Option<f64>,
    /// Instead of the rate that the promise names.
    pub rate: Option<f64>,
    /// Cells, keys or events, instead of as many as the promise names.
    pub size: Option<usize>,
    /// Slept after every sync of a node's disk.
    pub flush_delay: Duration,
    /// Where the programs of PostgreSQL are, instead of where they are looked for.
    pub postgres_bin: Option<PathBuf>,
    /// From 0; a source of chance.
    pub run: u32,
}

impl Plan {
    /// The rate that is asked for, or else the promise's.
    pub fn rate_or(&self, promised: f64) -> f64 {
        self.rate.unwrap_or(promised)
    }

    /// The time that is asked for, or else the promise's.
    pub fn seconds_or(&self, promised: f64) -> f64 {
        self.seconds.unwrap_or(promised)
    }

    /// The size that is asked for, or else the promise's.
    pub fn size_or(&self, promised: usize) -> usize {
        self.size.unwrap_or(promised)
    }
}

/// Why nothing was measured.
#[derive(Debug, Error)]
pub enum BenchError {
    #[error("there is no bench {name:?}; there are {known}")]
    Unknown { name: String, known: String },
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
    #[error("{who} has ended: {log}")]
    Ended { who: String, log: String },
    #[error("{who} says: {reason}")]
    Failed { who: String, reason: String },
    #[error("{what} did not happen within {waited_s} s")]
    Patience { what: String, waited_s: u64 },
    #[error("{} is no line of a bench: {reason}", path.display())]
    Line { path: PathBuf, reason: String },
    #[error("{0}")]
    Setup(String),
}

impl BenchError {
    fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> BenchError {
        let what = what.into();
        move |source| BenchError::Io { what, source }
    }

    fn setup(error: impl std::fmt::Display) -> BenchError {
        BenchError::Setup(error.to_string())
    }
}

/// Finds a bench by its name.
///
/// # Errors
/// There is none of that name.
pub fn find(name: &str) -> Result<&'static Bench, BenchError> {
    let known = || BENCHES.iter().map(|bench| bench.name).collect::<Vec<_>>().join(", ");
    let found = BENCHES.iter().find(|bench| bench.name == name);
    found.ok_or_else(|| BenchError::Unknown { name: name.to_owned(), known: known() })
}

/// Runs a bench `runs` times.
///
/// # Errors
/// The first [`BenchError`] of a run.
pub fn measure(bench: &Bench, plan: &Plan, runs: u32, command: String) -> Result<Line, BenchError> {
    let runs = (0..runs.max(1)).map(|run| (bench.run)(&Plan { run, ..plan.clone() }));
    let samples = runs.collect::<Result<Vec<_>, _>>()?;
    Ok(Line::new(bench.name, command, plan.flush_delay, &samples))
}

/// The cost of this tree of processes between two moments.
pub(crate) struct Meter(Option<Cost>);

impl Meter {
    pub fn start() -> Meter {
        Meter(cost::of_this_tree())
    }

    /// CPU seconds since the start; `None` where there is no `/proc`.
    pub fn cpu_s(&self) -> Option<f64> {
        Some(cost::of_this_tree()?.cpu_s_since(self.0.as_ref()?))
    }
}

/// The bytes that are written to the disk of a folder, from one moment on.
pub(crate) struct WriteMeter<'f> {
    folder: &'f Path,
    before: Option<u64>,
}

impl WriteMeter<'_> {
    /// To leave earlier writes out, sync first.
    pub fn start(folder: &Path) -> WriteMeter<'_> {
        WriteMeter { folder, before: cost::written_below(folder) }
    }

    /// Bytes since the start, with all that was handed over until now.
    pub fn bytes(&self) -> Option<u64> {
        cost::sync_below(self.folder);
        Some(cost::written_below(self.folder)?.saturating_sub(self.before?))
    }
}

/// Does something; and the most memory, GiB, that this tree of processes has taken meanwhile.
pub(crate) fn with_memory_gib<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let mut most_mib = 0.0f64;
            while !is_over.load(Ordering::Acquire) {
                most_mib = most_mib.max(cost::of_this_tree().map_or(0.0, |cost| cost.memory_mib));
                std::thread::sleep(MEMORY_EVERY);
            }
            most_mib
        });
        let done = work();
        is_over.store(true, Ordering::Release);
        (done, watching.join().expect("it does not panic") / MIB_PER_GIB)
    })
}
