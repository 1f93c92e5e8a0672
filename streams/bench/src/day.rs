//! `day`: one virtual partition for a day, with real rows and blobs, and the writes of all partitions by the shipped scheduler.
//!
//! The owner of the partition and its store are the shipped ones; the clock is virtual. The blobs of a day are merged for two days
//! more. In a steady state three days overlap, so a second of the day has the writes of that second of all three.

use crate::BenchError;
use crate::process::cpu_s;
use clap::Args;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;
use tidemark_streams_core::blob::{Level, PartitionId};
use tidemark_streams_core::event::{EventTypes, RawEvent};
use tidemark_streams_core::layout::{BucketsFrom, Layout};
use tidemark_streams_core::manifest::{Command, Generation, MemberId, SetLayout};
use tidemark_streams_core::merge::MergePolicy;
use tidemark_streams_core::owner::{Input, Output, Owner, OwnerConfig, Put, Record, RowBatch};
use tidemark_streams_core::source::{ReadingId, SourceId};
use tidemark_streams_core::time::{DAY_S, Day, Now};
use tidemark_streams_core::values::Values;
use tidemark_streams_sim::spread::Spread;
use tidemark_streams_store::directory::{Directory, IfMissing, live_blob};
use tidemark_streams_store::parquet_rows::Wanted;

const PARTITION: PartitionId = PartitionId(0);
const SOURCE: SourceId = SourceId([1; 32]);
const READING: ReadingId = ReadingId(1);
/// 2026-10-14, a Wednesday in the middle of a month, at midnight.
const BEGIN_S: u64 = 1_791_936_000;
/// Days after the events until all is in the blobs of its period.
const MERGING_DAYS: u64 = 3;
/// Virtual time between two deletions of blobs that merges have replaced.
const COLLECT_S: u64 = 3_600;
const DAYS_OF_MONTH: f64 = 31.0;

#[derive(Clone, Debug, Args)]
pub struct DayArgs {
    /// Number of virtual partitions of all machines
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub partitions: u32,
    /// Events per day in the partition
    #[arg(long, default_value_t = 1_000_000_000, value_parser = clap::value_parser!(u64).range(86_400..))]
    pub events: u64,
    /// Number of tenants in the partition
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub tenants: u32,
    /// Number of listings of a tenant
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub listings: u32,
    /// Number of buckets in the partition
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub buckets: u32,
    /// Seconds between two flushes
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    pub flush_s: u64,
    /// Number of hours of the day that have events
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u64).range(1..=24))]
    pub hours: u64,
    /// Measure again with ten times the events at the same pairs, and print the ratios
    #[arg(long)]
    pub tenfold: bool,
    /// Folder in which the directory is created [default: the folder of temporary files]
    #[arg(long, value_name = "DIR")]
    pub folder: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Blobs of a level that were written.
#[derive(Clone, Copy, Debug, Default)]
struct Written {
    blobs: u64,
    rows: u64,
    bytes: u64,
}

/// The partition, its store and its clock.
struct Bench {
    owner: Owner,
    directory: Directory,
    now_ms: u64,
    next_row: u64,
    written: BTreeMap<Level, Written>,
    collected_s: u64,
}

/// Draws events, each pair as often as any other.
struct Draw {
    tenants: Vec<String>,
    listings: Vec<String>,
    listings_per_tenant: usize,
    seed: u64,
}

pub fn run(args: &DayArgs) -> Result<String, BenchError> {
    let day = measured(args)?;
    let tenfold = match args.tenfold {
        true => Some(measured(&DayArgs { events: args.events.saturating_mul(10), ..args.clone() })?),
        false => None,
    };
    Ok(day.report(args, tenfold.as_ref()))
}

/// A day that has passed.
struct Measured {
    written: BTreeMap<Level, Written>,
    events: u64,
    cpu_s: f64,
    seconds: f64,
}

fn measured(args: &DayArgs) -> Result<Measured, BenchError> {
    let folder = match &args.folder {
        Some(folder) => tempfile::tempdir_in(folder)?,
        None => tempfile::tempdir()?,
    };
    let begun = Instant::now();
    let cpu_before_s = cpu_s("self");
    let mut bench = Bench::new(args, &folder.path().join("streams"))?;
    let events = bench.day(args)?;
    bench.merge()?;
    bench.compare(events)?;
    let cpu_s = cpu_s("self") - cpu_before_s;
    let seconds = begun.elapsed().as_secs_f64();
    Ok(Measured { written: bench.written, events, cpu_s, seconds })
}

impl Bench {
    fn new(args: &DayArgs, path: &std::path::Path) -> Result<Bench, BenchError> {
        let mut directory = Directory::open(path, IfMissing::Create)?;
        let buckets = vec![BucketsFrom { from: Day(0), buckets: args.buckets }];
        let layout = Layout { virtual_partitions: 1, buckets, ..Layout::default() };
        let version = directory.manifest().layout_version();
        directory.propose(&Command::Layout(SetLayout { version, layout }))?;
        let now_ms = BEGIN_S * 1_000;
        let config = OwnerConfig {
            partition: PARTITION,
            member: MemberId(1),
            generation: Generation(1),
            types: EventTypes::new(&["impression"])?,
            seed: 1,
            flush_after_ms: args.flush_s * 1_000,
            cells_max: usize::MAX,
            fold_bytes_max: usize::MAX,
            dead_letters_max: 1,
            merge: MergePolicy::default(),
            retry_after_ms: 1_000,
            keep_flushed_ms: 0,
        };
        let owner = Owner::new(Now(now_ms), config);
        let mut bench = Bench { owner, directory, now_ms, next_row: 0, written: BTreeMap::new(), collected_s: BEGIN_S };
        bench.settle()?;
        Ok(bench)
    }

    /// Takes the events of the day, second by second.
    fn day(&mut self, args: &DayArgs) -> Result<u64, BenchError> {
        let mut draw = Draw::new(args);
        let mut events = 0;
        for second in 0..args.hours * 3_600 {
            self.pass_to((BEGIN_S + second) * 1_000)?;
            let due = u64::try_from(u128::from(args.events) * u128::from(second + 1) / u128::from(DAY_S)).unwrap_or(0);
            let records = draw.records(due - events, (BEGIN_S + second) as i64);
            self.take(&records)?;
            events = due;
        }
        Ok(events)
    }

    /// Passes the time until all is merged.
    fn merge(&mut self) -> Result<(), BenchError> {
        self.pass_to((BEGIN_S + MERGING_DAYS * DAY_S) * 1_000)?;
        match self.directory.manifest().live().find(|meta| meta.level != Level::Period) {
            None => Ok(()),
            Some(meta) => Err(BenchError::Unmerged(meta.key.to_string())),
        }
    }

    /// Lets the owner do what is due until a time.
    fn pass_to(&mut self, until_ms: u64) -> Result<(), BenchError> {
        while let Some(at) = self.owner.poll_timeout().filter(|at| at.0 <= until_ms) {
            self.now_ms = self.now_ms.max(at.0);
            self.owner.handle(Now(self.now_ms), Input::Tick);
            self.settle()?;
        }
        self.now_ms = self.now_ms.max(until_ms);
        let now_s = self.now_ms / 1_000;
        if now_s >= self.collected_s + COLLECT_S {
            self.collected_s = now_s;
            self.directory.collect()?;
        }
        Ok(())
    }

    fn take(&mut self, records: &[Record<'_>]) -> Result<(), BenchError> {
        let batch = RowBatch { source: SOURCE, reading: READING, from: self.next_row, is_logged: false, records };
        self.next_row += records.len() as u64;
        self.owner.handle(Now(self.now_ms), Input::Rows(batch));
        self.settle()?;
        match self.owner.position(SOURCE) {
            Some(position) if position == self.next_row => Ok(()),
            position => Err(BenchError::NotTaken { position, expected: self.next_row }),
        }
    }

    /// Carries out what the owner asks for, at once.
    fn settle(&mut self) -> Result<(), BenchError> {
        while let Some(output) = self.owner.poll_output() {
            let now = Now(self.now_ms);
            match output {
                Output::Propose(command) => {
                    let outcome = self.directory.propose(&command)?;
                    let manifest = self.directory.manifest();
                    self.owner.handle(now, Input::Applied { outcome: &outcome, manifest });
                }
                Output::Put(put) => {
                    let stored = self.directory.put(&put)?;
                    self.note(&put, stored.bytes);
                    self.owner.handle(now, Input::Stored { key: put.key, stored });
                }
                Output::Load(key) => {
                    let missing = || BenchError::Unmerged(key.to_string());
                    let meta = live_blob(self.directory.manifest(), &key).ok_or_else(missing)?;
                    let rows = self.directory.rows(&meta, Wanted::All)?;
                    self.owner.handle(now, Input::Loaded { key, rows });
                }
                Output::Stopped(stop) => return Err(BenchError::Stopped(stop)),
            }
        }
        Ok(())
    }

    fn note(&mut self, put: &Put, bytes: u64) {
        use tidemark_streams_core::owner::Content;
        let rows = match &put.content {
            Content::Rows(rows) => rows.len(),
            Content::DeadLetters(letters) => letters.len(),
        };
        let written = self.written.entry(put.level).or_default();
        written.blobs += 1;
        written.rows += rows as u64;
        written.bytes += bytes;
    }

    /// Compares the live blobs with what was drawn.
    fn compare(&self, events: u64) -> Result<(), BenchError> {
        let mut found = 0;
        let mut tenants = std::collections::BTreeSet::new();
        for meta in self.directory.manifest().live() {
            for row in self.directory.rows(&meta, Wanted::All)?.iter() {
                found += row.count();
                tenants.insert(row.tenant.to_owned());
            }
        }
        if found == events { Ok(()) } else { Err(BenchError::Differs { found, sent: events, tenants: tenants.len() }) }
    }
}

impl Measured {
    fn of(&self, level: Level) -> Written {
        self.written.get(&level).copied().unwrap_or_default()
    }

    /// How much more is written where this many events are ten times those of another day.
    fn ratios(&self, ten: &Measured) -> Value {
        let blobs = |measured: &Measured| measured.written.values().map(|written| written.blobs).sum::<u64>() as f64;
        let bytes = |measured: &Measured, level| measured.of(level).bytes as f64;
        let merged = |measured: &Measured| bytes(measured, Level::Day) + bytes(measured, Level::Period);
        json!({
            "events": ten.events, "puts_ratio": blobs(ten) / blobs(self),
            "delta_bytes_ratio": bytes(ten, Level::Delta) / bytes(self, Level::Delta),
            "day_and_period_bytes_ratio": merged(ten) / merged(self),
            "cpu_s": ten.cpu_s, "cpu_us_per_event": ten.cpu_s * 1e6 / ten.events.max(1) as f64, "seconds": ten.seconds,
        })
    }

    fn report(&self, args: &DayArgs, tenfold: Option<&Measured>) -> String {
        let Measured { events, cpu_s, seconds, .. } = *self;
        let of = |level: Level| self.of(level);
        let delta = of(Level::Delta);
        let spread = Spread {
            partitions: args.partitions,
            buckets: args.buckets,
            flush_s: args.flush_s,
            pairs: u64::from(args.tenants) * u64::from(args.listings),
            delta_rows: delta.rows / delta.blobs.max(1),
        };
        let per_second = puts_per_second(&spread);
        let puts: u64 = per_second.iter().copied().map(u64::from).sum();
        let mean = puts as f64 / DAY_S as f64;
        let worst = per_second.iter().max().copied().unwrap_or(0);
        let share = 24.0 / args.hours as f64;
        let scale = share * f64::from(args.partitions) / DAY_S as f64;
        // A period blob is replaced on each day of its month, and holds the days before.
        let bytes_of = |level: Level| {
            let growth = if level == Level::Period { (DAYS_OF_MONTH + 1.0) / 2.0 } else { 1.0 };
            of(level).bytes as f64 * growth * scale / 1e6
        };
        let levels = [Level::Delta, Level::Hour, Level::Day, Level::Period];
        let mb_per_s: f64 = levels.into_iter().map(bytes_of).sum();
        let own_puts: u64 = self.written.values().map(|written| written.blobs).sum();
        if !args.json {
            return format!(
                "{mean:.1} blobs a second of {} partitions (worst second {worst}), {mb_per_s:.1} MB/s",
                args.partitions
            );
        }
        let shown: Vec<Value> = levels
            .into_iter()
            .map(|level| {
                json!({
                    "level": format!("{level:?}").to_lowercase(),
                    "blobs": of(level).blobs, "rows": of(level).rows, "bytes": of(level).bytes,
                    "bytes_per_row": of(level).bytes as f64 / of(level).rows.max(1) as f64,
                    "mb_per_s_of_all": bytes_of(level),
                })
            })
            .collect();
        json!({
            "bench": "day", "partitions": args.partitions, "events": events, "hours": args.hours,
            "tenants": args.tenants, "listings": args.listings, "buckets": args.buckets, "flush_s": args.flush_s,
            "puts_per_s_mean": mean, "puts_per_s_worst": worst, "worst_to_mean": f64::from(worst) / mean,
            "puts_per_s_measured": own_puts as f64 * scale, "mb_per_s": mb_per_s, "levels": shown,
            "cpu_s": cpu_s, "cpu_us_per_event": cpu_s * 1e6 / events.max(1) as f64, "seconds": seconds,
            "total_equals_sent": true, "tenfold": tenfold.map(|ten| self.ratios(ten)),
        })
        .to_string()
    }
}

/// Blobs of each second, with a thread for each core.
fn puts_per_second(spread: &Spread) -> Vec<u32> {
    let threads = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32).min(spread.partitions);
    let share = |thread: u32| spread.partitions * thread / threads..spread.partitions * (thread + 1) / threads;
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|thread| scope.spawn(move || spread.puts_of(share(thread)))).collect();
        let mut sums = vec![0_u32; DAY_S as usize];
        for puts in running.into_iter().filter_map(|thread| thread.join().ok()) {
            sums.iter_mut().zip(puts).for_each(|(sum, puts)| *sum += puts);
        }
        sums
    })
}

impl Draw {
    fn new(args: &DayArgs) -> Draw {
        let tenants: Vec<String> = (0..args.tenants).map(|tenant| format!("{tenant:08}")).collect();
        let listing = |tenant: &String| (0..args.listings).map(|listing| format!("{tenant}{listing:03}")).collect();
        let listings = tenants.iter().flat_map(|tenant| -> Vec<String> { listing(tenant) }).collect();
        Draw { tenants, listings, listings_per_tenant: args.listings as usize, seed: 1 }
    }

    fn records(&mut self, count: u64, at_s: i64) -> Vec<Record<'_>> {
        let Draw { tenants, listings, listings_per_tenant, seed } = self;
        let record = |_| {
            *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let pair = (*seed >> 20) as usize % listings.len();
            let tenant = &tenants[pair / *listings_per_tenant];
            let listing = &listings[pair];
            Record::Event(RawEvent { tenant, listing, at_s, event_type: "impression", count: 1, values: Values::NONE })
        };
        (0..count).map(record).collect()
    }
}
