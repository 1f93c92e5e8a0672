//! Measures a manifest of very many live blobs: `cargo run --release -p tidemark-streams-core --example manifest [BLOBS] [--json]`.
//!
//! The blobs are those of five years: 1,000 virtual partitions of 100 buckets, with a blob for each month and for each of 30 days.
//! The manifest is built by commits and written as rows to a file. Then a second process reads the rows, as a start does, and
//! prints how long that took and how much memory it has.

#![expect(clippy::disallowed_types, clippy::disallowed_methods, reason = "a measurement reads the clock and files")]

use std::error::Error;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::Path;
use std::time::Instant;
use tidemark_streams_core::blob::{BlobKey, BlobMeta, Epoch, Level, PartitionId, Seq, StoredBlob};
use tidemark_streams_core::manifest::{
    Claim, Command, Commit, Generation, Manifest, MemberId, Outcome, Progress, Restore,
};
use tidemark_streams_core::scope::{Scope, Slice, TenantHash};
use tidemark_streams_core::source::{ReadingId, SourceId};
use tidemark_streams_core::time::{Hour, HourRange};

const PARTITIONS: u64 = 1_000;
const BUCKETS: u64 = 100;
const COMMIT_BLOBS: u64 = 1_000;
/// The first hour of 2026.
const BEGIN: u32 = 490_896;
const READ: &str = "--read";

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [mode, path, form] = &arguments[..]
        && mode == READ
    {
        return measure(Path::new(path), form == "json");
    }
    let numbers = arguments.iter().find_map(|text| text.parse::<u64>().ok());
    let form = if arguments.iter().any(|text| text == "--json") { "json" } else { "text" };
    let path = std::env::temp_dir().join(format!("tidemark-manifest-{}", std::process::id()));
    write(&build(numbers.unwrap_or(10_000_000))?, &path)?;
    let status = std::process::Command::new(std::env::current_exe()?).arg(READ).arg(&path).arg(form).status();
    std::fs::remove_file(&path)?;
    if status?.success() { Ok(()) } else { Err("the process that reads has failed".into()) }
}

fn build(blobs: u64) -> Result<Manifest, Box<dyn Error>> {
    let mut manifest = Manifest::new();
    let per_partition = blobs.div_ceil(PARTITIONS);
    for id in 0..PARTITIONS.min(blobs) {
        let partition = PartitionId(id as u32);
        manifest.apply(&Command::Claim(Claim {
            partition,
            generation: Generation(1),
            member: MemberId(id),
            types: Some(Vec::new()),
        }));
        for (seq, first) in (1..).zip((0..per_partition).step_by(COMMIT_BLOBS as usize)) {
            let count = COMMIT_BLOBS.min(per_partition - first);
            let add: Vec<BlobMeta> = (0..count).map(|part| blob(partition, Seq(seq), part, first + part)).collect();
            let total: u64 = add.iter().map(|meta| meta.total).sum();
            let progress = Progress {
                source: SourceId([7; 32]),
                reading: ReadingId(1),
                from: first,
                to: first + count,
                dead_letters: 0,
                total,
                is_end: false,
            };
            let commit = Commit {
                partition,
                epoch: Epoch(1),
                seq: Seq(seq),
                progress: Some(progress),
                add,
                ..Commit::default()
            };
            match manifest.apply(&Command::Commit(commit)) {
                Outcome::Commit { result: Ok(_), .. } => {}
                other => return Err(format!("{other:?}").into()),
            }
        }
    }
    Ok(manifest)
}

/// Blob number `number` of a partition: a third are of days, the others of months.
fn blob(partition: PartitionId, seq: Seq, part: u64, number: u64) -> BlobMeta {
    let bucket = number / 3 % BUCKETS;
    let time = (number / 3 / BUCKETS) as u32;
    let (level, first, hours) = match number % 3 {
        0 => (Level::Day, BEGIN + time * 24, 23),
        other => (Level::Period, BEGIN + (time * 2 + other as u32) * 730, 729),
    };
    let remainder = partition.0 + (PARTITIONS * bucket) as u32;
    let checksum = TenantHash::of(&format!("{} {number}", partition.0)).0;
    BlobMeta {
        key: BlobKey { partition, epoch: Epoch(1), seq, part: part as u32 },
        level,
        scope: Scope::Slice(Slice { modulus: (PARTITIONS * BUCKETS) as u32, remainder }),
        hours: HourRange { first: Hour(first), last: Hour(first + hours) },
        rows: 240_000 + number % 1_000,
        total: 10_000_000 + number,
        stored: StoredBlob { bytes: 800_000 + number % 10_000, checksum },
    }
}

fn write(manifest: &Manifest, path: &Path) -> Result<(), Box<dyn Error>> {
    let mut file = BufWriter::new(File::create(path)?);
    for row in manifest.rows() {
        let value = row.value.unwrap_or_default();
        for bytes in [&row.key, &value] {
            file.write_all(&(bytes.len() as u32).to_le_bytes())?;
            file.write_all(bytes)?;
        }
    }
    Ok(file.flush()?)
}

fn measure(path: &Path, is_json: bool) -> Result<(), Box<dyn Error>> {
    let file_bytes = std::fs::metadata(path)?.len();
    let start = Instant::now();
    let mut file = BufReader::new(File::open(path)?);
    let mut restore = Restore::new();
    while let Some(key) = read(&mut file)? {
        let value = read(&mut file)?.ok_or("a row without a value")?;
        restore.add(&key, &value)?;
    }
    let manifest = restore.finish()?;
    let start_s = start.elapsed().as_secs_f64();
    let cpu_s = cpu_s()?;
    let blobs: u64 = manifest.partitions().map(|(_, partition)| partition.live.len()).sum();
    let held: usize = manifest.partitions().map(|(_, partition)| partition.live.bytes()).sum();
    let (lookups, lookup_us) = look_up(&manifest);
    let memory_mib = memory_kib()? as f64 / 1_024.0;
    let held_mib = held as f64 / f64::from(1 << 20);
    let line = match is_json {
        true => format!(
            "{{\"blobs\":{blobs},\"start_s\":{start_s:.2},\"start_cpu_s\":{cpu_s:.2},\"memory_mib\":{memory_mib:.0},\"blobs_mib\":{held_mib:.0},\
             \"snapshot_bytes\":{file_bytes},\"lookups\":{lookups},\"lookup_us\":{lookup_us:.1}}}\n"
        ),
        false => format!(
            "{blobs} live blobs: started in {start_s:.2} s with {cpu_s:.2} s of CPU, {memory_mib:.0} MiB of memory ({held_mib:.0} MiB for blobs), \
             a snapshot of {file_bytes} bytes; the blobs of a tenant are found in {lookup_us:.1} us\n"
        ),
    };
    Ok(std::io::stdout().write_all(line.as_bytes())?)
}

/// Finds the blobs of tenants, each in the partition of its hash. Returns how often, and the time of one.
fn look_up(manifest: &Manifest) -> (u32, f64) {
    const LOOKUPS: u32 = 1_000;
    let start = Instant::now();
    let mut found = 0_usize;
    for number in 0..LOOKUPS {
        let tenant = TenantHash::of(&format!("tenant {number}"));
        let id = PartitionId((tenant.0 % PARTITIONS) as u32);
        let partition = manifest.partition(id);
        found += partition.map_or(0, |partition| partition.live.of_tenant(tenant, HourRange::ALL).len());
    }
    let elapsed = start.elapsed().as_secs_f64() * 1e6 / f64::from(LOOKUPS);
    (LOOKUPS, if found == 0 { f64::NAN } else { elapsed })
}

fn read(file: &mut impl Read) -> Result<Option<Vec<u8>>, std::io::Error> {
    let mut length = [0; 4];
    if file.read(&mut length[..1])? == 0 {
        return Ok(None);
    }
    file.read_exact(&mut length[1..])?;
    let mut bytes = vec![0; u32::from_le_bytes(length) as usize];
    file.read_exact(&mut bytes)?;
    Ok(Some(bytes))
}

/// The CPU that this process has taken, in steps of 10 ms.
fn cpu_s() -> Result<f64, Box<dyn Error>> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let behind_name = stat.rsplit_once(')').ok_or("no name in /proc/self/stat")?.1;
    let ticks = behind_name.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
    Ok(ticks.sum::<Result<u64, _>>()? as f64 / 100.0)
}

/// The memory of this process, at its highest.
fn memory_kib() -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("no VmHWM")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}
