//! `audit`: compares every live blob with the manifest, and the counts with raw events and with the files that were loaded.

use crate::args::AuditArgs;
use crate::blobs::text;
use crate::dead_letters;
use crate::driver::PARTITION;
use crate::error::CliError;
use crate::raw::{self, RawCounts};
use crate::recount::{Recounted, recount};
use std::collections::BTreeMap;
use std::io::Write;
use tidemark_streams_core::blob::{BlobMeta, Level};
use tidemark_streams_core::manifest::Partition;
use tidemark_streams_core::rollup::{RollupKey, RollupRow, Rollups};
use tidemark_streams_core::scope::TenantHash;
use tidemark_streams_core::time::{Day, HOURS_PER_DAY, Hour};
use tidemark_streams_core::values::Values;
use tidemark_streams_serve::Damaged;
use tidemark_streams_store::directory::{Directory, IfMissing};
use tidemark_streams_store::folder::file_name;
use tidemark_streams_store::parquet_rows::Wanted;

/// Differences that are named one by one.
const NAMED_MAX: u64 = 20;
/// Sums of a tenant and a day that are named.
const DAYS_MAX: usize = 100;

pub fn run(args: &AuditArgs, out: &mut impl Write) -> Result<(), CliError> {
    if let Some(option) = args.columns.first().filter(|_| args.against.is_empty()) {
        return Err(CliError::WithoutFile(option, "--against"));
    }
    let directory = Directory::open(&args.directory.dir, IfMissing::Refuse)?;
    let mut audited = Audited::default();
    let mut blobs = 0;
    let mut differences = 0;
    for meta in directory.manifest().live() {
        blobs += 1;
        if let Some(problem) = check(&directory, &meta, &mut audited) {
            differences += 1;
            writeln!(out, "{}: {problem}", file_name(&meta.key, meta.level))?;
        }
    }
    let Audited { rows: mut all, deleted } = audited;
    all.combine();
    let total = directory.manifest().partition(PARTITION).map_or(0, |partition| partition.total);
    let found = all.total() + deleted;
    if differences == 0 && u128::from(found) != total {
        differences += 1;
        writeln!(out, "the blobs count {found}, and the manifest {total}")?;
    }
    if !args.against.is_empty() || (raw::counted(&directory) > 0 && !args.skip_raw) {
        differences += against(args, &directory, &all, out)?;
    }
    if differences > 0 {
        return Err(CliError::Audit { differences, blobs });
    }
    writeln!(out, "{blobs} blobs are whole; {} rows count {total}", all.len())?;
    Ok(())
}

/// Compares the blobs with the rows of their sources, and returns how many counts differ.
fn against(args: &AuditArgs, directory: &Directory, all: &Rollups, out: &mut impl Write) -> Result<u64, CliError> {
    let Recounted { rows, others, dropped, raw, are_files_missing } = recount(args, directory, all)?;
    if dropped > 0 {
        writeln!(
            out,
            "{dropped} dead letters were dropped: a row of them differs if it can be counted now, such as one of a listing or type that \
             became known since the load"
        )?;
    }
    let raw_name = if args.against.is_empty() { "raw events" } else { "files" };
    let mut differences = 0;
    let mut exact_from = Hour(0);
    let none = Rollups::new();
    if let Some(raw) = &raw {
        differences += name_damaged(&raw.damaged, out)?;
        if raw.coverage.has_rows() {
            exact_from = reach(raw, out)?;
        } else if args.against.is_empty() {
            let asked = raw.coverage.asked_rows();
            writeln!(out, "no raw events are kept: the {asked} rows that `serve` counted are not compared")?;
            return Ok(differences);
        }
    }
    if are_files_missing {
        exact_from = Hour::MAX;
        writeln!(
            out,
            "files were loaded beside `serve`: raw events are compared alone, and the blobs may count more. Name the file of each source with \
             --against to compare all"
        )?;
    }
    let is_merged = directory.manifest().schema().has_merged_dimensions();
    let values = if others > 0 || is_merged { ValuesAre::LeftOut } else { ValuesAre::Compared };
    if others > 0 {
        // A flush may keep a value that the count of whole files does not keep.
        writeln!(
            out,
            "{others} counts of the {raw_name} have values beyond a bound: counts are compared without values"
        )?;
    } else if is_merged {
        // The load may have kept other values under the bounds of that time.
        writeln!(out, "event types with dimensions were merged: counts are compared without values")?;
    }
    let known = directory.manifest().partition(PARTITION);
    let possible = raw.as_ref().map_or(&none, |raw| &raw.possible);
    let sides = Sides {
        blobs: &kept(all, known, values)?,
        raw: &kept(&rows, known, values)?,
        possible: &kept(possible, known, values)?,
        exact_from,
        raw_name,
    };
    Ok(differences + sides.compare(out)?)
}

/// Names the files of the archive that cannot be read, and returns how many there are.
fn name_damaged(damaged: &[Damaged], out: &mut impl Write) -> Result<u64, CliError> {
    for Damaged { path, rows, why } in damaged {
        let first = rows.from + 1;
        writeln!(out, "{}: {why}: rows {first} to {} of `serve` are not compared", path.display(), rows.to)?;
    }
    Ok(damaged.len() as u64)
}

/// Says how far the raw events reach, and returns the hour from which on all of them are there.
fn reach(raw: &RawCounts, out: &mut impl Write) -> Result<Hour, CliError> {
    let RawCounts { coverage, settled, .. } = raw;
    if *settled > 0 {
        writeln!(
            out,
            "{settled} raw events were dead letters and were replayed or dropped: the blobs may have their counts or not; a row differs if it \
             was replayed with another text or without a time"
        )?;
    }
    let asked = coverage.asked_rows();
    if coverage.is_whole() {
        writeln!(out, "raw events of all {asked} rows that `serve` counted are compared")?;
        return Ok(coverage.exact_from());
    }
    let missing = coverage.missing_rows();
    let exact_from = coverage.exact_from();
    match exact_from < Hour::MAX {
        true => writeln!(
            out,
            "raw events of {missing} of {asked} rows that `serve` counted are not kept: in hours before {} the blobs may count more",
            text(exact_from)
        )?,
        false => writeln!(
            out,
            "raw events of {missing} of {asked} rows that `serve` counted are not kept, the last ones among them: the blobs may count more"
        )?,
    }
    Ok(exact_from)
}

/// The content of all blobs.
#[derive(Default)]
struct Audited {
    /// Under their present names.
    rows: Rollups,
    /// The sum of the counts of deleted types, which blobs still hold.
    deleted: u64,
}

/// The fault in a blob, if any. Its rows are added to all.
fn check(directory: &Directory, meta: &BlobMeta, audited: &mut Audited) -> Option<String> {
    match meta.level {
        Level::Delta | Level::Hour | Level::Day | Level::Period => check_rows(directory, meta, audited),
        Level::DeadLetters => match dead_letters::read(directory, meta) {
            Ok(letters) if letters.len() as u64 == meta.rows => None,
            Ok(letters) => Some(format!("{} dead letters, and the manifest says {}", letters.len(), meta.rows)),
            Err(error) => Some(error.to_string()),
        },
    }
}

fn check_rows(directory: &Directory, meta: &BlobMeta, audited: &mut Audited) -> Option<String> {
    let rows = match directory.rows(meta, Wanted::All) {
        Ok(rows) => rows,
        Err(error) => return Some(error.to_string()),
    };
    let types = directory.manifest().types_of(PARTITION);
    let renaming = types.since(meta.key.seq);
    for row in rows.iter() {
        // A blob may hold rows of deleted types until it is written again.
        let Some(row) = renaming.row(&row) else {
            audited.deleted += row.count();
            continue;
        };
        if let Err(error) = audited.rows.push(row) {
            return Some(error.to_string());
        }
    }
    let found = (rows.len() as u64, rows.total(), rows.hours());
    let expected = (meta.rows, meta.total, Some(meta.hours));
    (found != expected).then(|| {
        let (rows, total, _) = found;
        format!("{rows} rows that count {total}, and the manifest says {} that count {}", meta.rows, meta.total)
    })
}

/// Whether values of dimensions are compared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ValuesAre {
    Compared,
    LeftOut,
}

/// Rows without those that are erased or not kept.
fn kept(rows: &Rollups, partition: Option<&Partition>, values: ValuesAre) -> Result<Rollups, CliError> {
    let Some(partition) = partition else { return Ok(rows.clone()) };
    let mut kept = Rollups::new();
    for row in rows.iter().filter(|row| row.hour.day() >= partition.horizons.kept) {
        if !partition.erasures.erases(TenantHash::of(row.tenant), row.listing, row.hour) {
            kept.push(match values {
                ValuesAre::Compared => row,
                ValuesAre::LeftOut => RollupRow { values: Values::NONE, ..row },
            })?;
        }
    }
    kept.combine();
    Ok(kept)
}

/// What is compared.
struct Sides<'a> {
    blobs: &'a Rollups,
    raw: &'a Rollups,
    /// Counts that the blobs may have beside them.
    possible: &'a Rollups,
    /// In earlier hours the blobs may count more.
    exact_from: Hour,
    raw_name: &'static str,
}

impl Sides<'_> {
    /// Names the keys with different counts.
    fn compare(&self, out: &mut impl Write) -> Result<u64, CliError> {
        let mut blobs = self.blobs.iter().peekable();
        let mut raw = self.raw.iter().peekable();
        let mut possible = self.possible.iter().peekable();
        let mut differences = 0;
        let mut days = Days::default();
        loop {
            let keys = [blobs.peek(), raw.peek(), possible.peek()].into_iter().flatten();
            let Some(least) = keys.map(RollupRow::key).min() else { break };
            let found = sum(&mut blobs, &least);
            let expected = sum(&mut raw, &least);
            let beside = sum(&mut possible, &least);
            let is_exact = least.hour >= self.exact_from;
            let is_between = |quarter: usize| {
                let most = if is_exact { expected[quarter] + beside[quarter] } else { u64::MAX };
                (expected[quarter]..=most).contains(&found[quarter])
            };
            if (0..found.len()).all(is_between) {
                continue;
            }
            differences += 1;
            days.add(&least, &found, &expected);
            if differences <= NAMED_MAX {
                let RollupKey { tenant, values, listing, hour, event_type } = least;
                let shown: String = values.iter().map(|(_, value)| format!(" value {value:?}")).collect();
                let hour = text(hour);
                let name = self.raw_name;
                writeln!(
                    out,
                    "tenant {tenant:?} listing {listing:?} type {event_type}{shown} hour {hour}: the blobs count {found:?}, the {name} {expected:?}",
                )?;
            }
        }
        if differences > NAMED_MAX {
            days.name(self.raw_name, out)?;
        }
        Ok(differences)
    }
}

/// Sums of the counts that differ, by tenant and day.
#[derive(Default)]
struct Days {
    sums: BTreeMap<TenantDay, DaySums>,
    has_more: bool,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct TenantDay {
    tenant: String,
    day: Day,
}

#[derive(Default)]
struct DaySums {
    differences: u64,
    blobs: u64,
    raw: u64,
}

impl Days {
    fn add(&mut self, key: &RollupKey<'_>, blobs: &[u64; 4], raw: &[u64; 4]) {
        let of = TenantDay { tenant: key.tenant.to_owned(), day: key.hour.day() };
        if self.sums.len() >= DAYS_MAX && !self.sums.contains_key(&of) {
            self.has_more = true;
            return;
        }
        let sums = self.sums.entry(of).or_default();
        sums.differences += 1;
        sums.blobs += blobs.iter().sum::<u64>();
        sums.raw += raw.iter().sum::<u64>();
    }

    fn name(&self, raw_name: &str, out: &mut impl Write) -> Result<(), CliError> {
        for (TenantDay { tenant, day }, DaySums { differences, blobs, raw }) in &self.sums {
            let day = text(Hour(day.0 * HOURS_PER_DAY));
            let date = day.split('T').next().unwrap_or(&day);
            writeln!(
                out,
                "tenant {tenant:?} day {date}: {differences} counts differ; their sum is {blobs} in the blobs and {raw} in the {raw_name}"
            )?;
        }
        if self.has_more {
            writeln!(out, "counts of more tenants or days differ; these are the first {DAYS_MAX}")?;
        }
        Ok(())
    }
}

/// The quarters of all rows of a key.
pub fn sum<'a>(rows: &mut std::iter::Peekable<impl Iterator<Item = RollupRow<'a>>>, key: &RollupKey<'_>) -> [u64; 4] {
    let mut sums = [0; 4];
    while let Some(row) = rows.next_if(|row| row.key() == *key) {
        sums.iter_mut().zip(row.quarters).for_each(|(sum, count)| *sum += u64::from(count));
    }
    sums
}
