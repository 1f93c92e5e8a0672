//! Rows at rest: random updates of rows that are many, in checkpoints, in a directory of rows and in the log's file.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use bytes::Bytes;
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use tidemark_consensus::local::{
    CheckpointPart, Identity, LocalLog, LocalLogOptions, LogEvent, LsmOptions, Row, RowStore,
};

use super::cluster::Folder;
use super::line::{Asked, Sample};
use super::{BenchError, Meter, Plan, WriteMeter};
use tidemark_demo::cost;

/// As many as a small node has counters with series.
const ROWS: usize = 1_000_000;
/// Rows of one part while a store is filled.
const ROWS_PER_PART: usize = 4_096;
/// A row of buckets: this many bytes at least, and less than twice as many; they do not compress.
const ROW_BYTES: usize = 50;
/// The unit of a file's size on the disk, whatever that of the file system.
const BLOCK_BYTES: u64 = 512;
const PATIENCE: Duration = Duration::from_secs(600);

/// How rows change.
struct Phase {
    name: &'static str,
    /// Increments between two checkpoints, each of a row that chance chose.
    changed: usize,
    rows_per_part: usize,
    checkpoints: usize,
}

const PHASES: [Phase; 2] = [
    // The changes of some 64 MB of log, an entry of 64 bytes for each increment; handed in as a node does.
    Phase { name: "a node's checkpoints", changed: 1_000_000, rows_per_part: 4_096, checkpoints: 4 },
    // The changes of one second, all in one transaction.
    Phase { name: "a view's checkpoints", changed: 50_000, rows_per_part: usize::MAX, checkpoints: 10 },
];

/// `rows`.
pub fn run(plan: &Plan) -> Result<Vec<Sample>, BenchError> {
    let rows = plan.size_or(ROWS);
    let tree = measure(plan, rows, RowStore::Apart(LsmOptions::default()))?;
    let file = measure(plan, rows, RowStore::Beside)?;
    let budget = LsmOptions::default().bytes_max() as f64 / f64::from(1 << 20);
    let mut samples = tree.samples("in a directory of rows", rows);
    samples.extend(file.samples("in the log's file", rows));
    for (phase, (tree, file)) in PHASES.iter().zip(tree.phases.iter().zip(&file.phases)) {
        let named = |what: &str| Asked::rate(format!("{what}, {}", phase.name), "times");
        samples.push(named("updates, directory to file").is(tree.updates_per_s / file.updates_per_s));
        if let (Some(tree), Some(file)) = (tree.written_per_update, file.written_per_update) {
            samples.push(named("bytes written, file to directory").is(file / tree));
        }
    }
    samples.push(Asked::cost("memory that the directory's options allow", "MiB").is(budget));
    Ok(samples)
}

/// The cost of one way to keep rows.
struct Measured {
    phases: Vec<Updated>,
    disk_per_row: f64,
    reopen_s: f64,
    read_s: f64,
}

/// The cost of the updates of one phase.
struct Updated {
    updates_per_s: f64,
    cpu_s: Option<f64>,
    seconds: f64,
    /// By the whole process, merging of files and journals included; `None` where there is no `/proc`.
    written_per_update: Option<f64>,
    slowest_part_ms: f64,
}

impl Measured {
    fn samples(&self, place: &str, rows: usize) -> Vec<Sample> {
        let of = |what: &str| format!("{what}, {rows} rows {place}");
        let mut samples = Vec::new();
        for (phase, updated) in PHASES.iter().zip(&self.phases) {
            let in_phase = |what: &str| of(&format!("{what}, {}", phase.name));
            let rate = Asked::rate(in_phase("random updates, durable"), "/s").is(updated.updates_per_s);
            samples.push(rate.costing(updated.cpu_s, updated.seconds));
            let written = |bytes| Asked::cost(in_phase("written per update"), "B").is(bytes);
            samples.extend(updated.written_per_update.map(written));
            samples.push(Asked::cost(in_phase("slowest part"), "ms").is(updated.slowest_part_ms));
        }
        samples.push(Asked::cost(of("disk per row when merged"), "B").is(self.disk_per_row));
        samples.push(Asked::cost(of("opened again"), "s").is(self.reopen_s));
        samples.push(Asked::cost(of("all rows read"), "s").is(self.read_s));
        samples
    }
}

/// Rows beside a log.
pub struct Store {
    pub log: LocalLog,
    events: Receiver<LogEvent>,
}

impl Store {
    /// # Errors
    /// It cannot be made.
    pub fn open(dir: &Path, rows: RowStore) -> Result<Store, BenchError> {
        let (sender, events) = sync_channel(1 << 12);
        let identity = Identity { cluster: "bench".to_owned(), owner: "rows".to_owned() };
        let options = LocalLogOptions { rows, ..LocalLogOptions::new(identity) };
        let on_event = move |event| drop(sender.try_send(event));
        let (log, _) = LocalLog::open(dir.join("rows.redb").as_path(), options, on_event).map_err(BenchError::setup)?;
        Ok(Store { log, events })
    }

    /// Writes one part and waits until it is durable, as a node does.
    ///
    /// # Errors
    /// It failed, or takes too long.
    pub fn write(&self, rows: Vec<Row>) -> Result<Duration, BenchError> {
        let started = Instant::now();
        let part = CheckpointPart { applied: 0, last: true, rows };
        self.log.checkpoint(part).map_err(BenchError::setup)?;
        match self.events.recv_timeout(PATIENCE) {
            Ok(LogEvent::Failed(error)) => Err(BenchError::setup(error)),
            Ok(_) => Ok(started.elapsed()),
            Err(RecvTimeoutError::Timeout) => {
                Err(BenchError::Patience { what: "a durable part".to_owned(), waited_s: PATIENCE.as_secs() })
            }
            Err(gone) => Err(BenchError::setup(gone)),
        }
    }
}

fn measure(plan: &Plan, rows: usize, store: RowStore) -> Result<Measured, BenchError> {
    let dir = Folder::new()?;
    let open = || Store::open(dir.path(), store);
    let mut random = ChaCha8Rng::seed_from_u64(u64::from(plan.run));
    let filled = open()?;
    for first in (0..rows).step_by(ROWS_PER_PART) {
        filled.write((first..rows.min(first + ROWS_PER_PART)).map(|key| row(&mut random, key)).collect())?;
    }
    let phases =
        PHASES.iter().map(|phase| update(&filled, dir.path(), &mut random, rows, phase)).collect::<Result<_, _>>()?;
    filled.log.compact_rows().map_err(BenchError::setup)?;
    drop(filled);
    let disk = disk_bytes(dir.path())?;
    let started = Instant::now();
    let again = open()?;
    let reopen_s = started.elapsed().as_secs_f64();
    let mut found = 0;
    again.log.scan("rows", |_, _| found += 1).map_err(BenchError::setup)?;
    if found != rows {
        let reason = format!("{found} of {rows} rows were found again");
        return Err(BenchError::Failed { who: "the store".to_owned(), reason });
    }
    let read_s = started.elapsed().as_secs_f64() - reopen_s;
    Ok(Measured { phases, disk_per_row: disk as f64 / rows as f64, reopen_s, read_s })
}

/// Checkpoints of random rows.
fn update(
    store: &Store,
    dir: &Path,
    random: &mut ChaCha8Rng,
    rows: usize,
    phase: &Phase,
) -> Result<Updated, BenchError> {
    cost::sync_below(dir);
    let meter = Meter::start();
    let writes = WriteMeter::start(dir);
    let started = Instant::now();
    let mut updates = 0;
    let mut slowest = Duration::ZERO;
    for _ in 0..phase.checkpoints {
        let mut changed: Vec<usize> = (0..phase.changed.min(rows)).map(|_| random.random_range(0..rows)).collect();
        // A row that changed twice is in a checkpoint once, and rows are handed in in the order of their keys.
        changed.sort_unstable();
        changed.dedup();
        for part in changed.chunks(phase.rows_per_part) {
            slowest = slowest.max(store.write(part.iter().map(|key| row(random, *key)).collect())?);
        }
        updates += changed.len();
    }
    let seconds = started.elapsed().as_secs_f64();
    let cpu_s = meter.cpu_s();
    Ok(Updated {
        updates_per_s: updates as f64 / seconds,
        cpu_s,
        seconds,
        written_per_update: writes.bytes().map(|bytes| bytes as f64 / updates as f64),
        slowest_part_ms: slowest.as_secs_f64() * 1_000.0,
    })
}

/// The key is that of a component's row: a tag, its number, a side.
fn row(random: &mut ChaCha8Rng, key: usize) -> Row {
    let number = (key as u32).to_be_bytes();
    let mut value = vec![0; random.random_range(ROW_BYTES..2 * ROW_BYTES)];
    random.fill(&mut value[..]);
    let key = [&[5], number.as_slice(), &[0]].concat();
    Row { table: "rows", key: key.into(), value: Some(Bytes::from(value)) }
}

/// Bytes on the disk of files of rows: not journals, which are as large for few rows as for many.
///
/// # Errors
/// A file cannot be looked at.
pub fn disk_bytes(path: &Path) -> Result<u64, BenchError> {
    let fail = || BenchError::io(path.display().to_string());
    let mut bytes = 0;
    for entry in std::fs::read_dir(path).map_err(fail())? {
        let entry = entry.map_err(fail())?;
        let metadata = entry.metadata().map_err(fail())?;
        let path = entry.path();
        bytes += match path.extension() {
            Some(ending) if ending == "jnl" => 0,
            _ if metadata.is_dir() => disk_bytes(&path)?,
            _ => metadata.blocks() * BLOCK_BYTES,
        };
    }
    Ok(bytes)
}
