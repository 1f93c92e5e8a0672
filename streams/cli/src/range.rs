//! `rebuild range`: counts past days again from their sources, and replaces the rows that differ by one entry of the manifest.

use crate::adding::{Adding, Uncounted};
use crate::args::RangeArgs;
use crate::audit;
use crate::blobs::text;
use crate::driver::{Driver, PARTITION, now, time};
use crate::error::{CliError, RangeError};
use crate::raw::{self, RawCounts};
use crate::recount::{
    FileOptions, Files, WithListed, count_files, count_raw, counted_text, loaded, not_named, refused, types,
};
use std::collections::BTreeMap;
use std::io::Write;
use tidemark_proto::series::calendar::Zone;
use tidemark_streams_core::blob::{BlobKey, Seq};
use tidemark_streams_core::erasure;
use tidemark_streams_core::limits::COMMIT_BLOBS_MAX;
use tidemark_streams_core::manifest::{Partition, SourceReading};
use tidemark_streams_core::merge::MergePolicy;
use tidemark_streams_core::owner::{Input, Recounted};
use tidemark_streams_core::rollup::{RollupRow, Rollups};
use tidemark_streams_core::time::{DAY_S, Day, Days, Hour, Now};
use tidemark_streams_serve::{Damaged, Missing, SOURCE};
use tidemark_streams_store::directory::{Directory, IfMissing};
use tidemark_streams_store::parquet_rows::Wanted;

/// Tenants and days that are named one by one.
const NAMED_MAX: usize = 100;
/// The first commit of a partition.
const FIRST: Seq = Seq(1);

/// The days and types that are counted again.
struct Asked {
    days: Days,
    event_type: Option<String>,
}

/// What the sources count.
struct Recount {
    rows: Rollups,
    /// Files that are read by other columns or another zone than before.
    readings: Vec<SourceReading>,
}

pub fn run(args: &RangeArgs, out: &mut impl Write) -> Result<(), CliError> {
    if let Some(option) = args.columns.first().filter(|_| args.from_file.is_empty()) {
        return Err(CliError::WithoutFile(option, "--from-file"));
    }
    let directory = Directory::open(&args.directory.dir, IfMissing::Refuse)?;
    let partition = directory.manifest().partition(PARTITION).cloned().unwrap_or_default();
    let asked = Asked::of(args, &directory, &partition)?;
    let live = live_rows(&directory, &partition, Some(&asked.days))?;
    let recount = recount(args, &directory, &partition, &asked, &live, out)?;
    let counted = asked.kept(&recount.rows, &partition)?;
    let differences = Differences::of(&asked.kept(&live, &partition)?, &counted);
    differences.print(out)?;
    if !args.yes {
        return match differences.differing {
            0 => Ok(()),
            days => Err(RangeError::Differs { days }.into()),
        };
    }
    if differences.differing == 0 && recount.readings.is_empty() {
        return Ok(writeln!(out, "nothing is replaced")?);
    }
    replace(directory, &partition, &asked, &Recount { rows: counted, ..recount })?;
    Ok(writeln!(out, "replaced: {}", asked.text())?)
}

/// Replaces the rows. No other process has the directory open, so the claim and merges that are due change no counts.
fn replace(directory: Directory, seen: &Partition, asked: &Asked, recount: &Recount) -> Result<(), CliError> {
    let is_of_load = raw::counted(&directory) == 0;
    let mut driver = Driver::claim_for_repair(directory)?;
    let now = driver.directory.manifest().partition(PARTITION).cloned().unwrap_or_default();
    if now.sources != seen.sources || now.revision() != seen.revision() {
        return Err(RangeError::NotTaken.into());
    }
    let blobs: Vec<BlobKey> = now.of_days(&asked.days).iter().map(|meta| meta.key).collect();
    driver.handle(Input::Replace(Recounted {
        days: asked.days,
        event_type: asked.event_type.as_deref(),
        blobs: &blobs,
        revision: now.revision(),
        rows: &recount.rows,
        readings: &recount.readings,
    }))?;
    let is_taken = |behind: &Partition| behind.last_seq() > now.last_seq();
    if !driver.directory.manifest().partition(PARTITION).is_some_and(is_taken) {
        return Err(RangeError::NotTaken.into());
    }
    // `serve` merges by the clock.
    if is_of_load {
        driver.handle(Input::Seal)?;
    }
    driver.directory.collect()?;
    Ok(())
}

impl Asked {
    fn of(args: &RangeArgs, directory: &Directory, partition: &Partition) -> Result<Asked, CliError> {
        let first = day(&args.from)?;
        let last = day(&args.to)?;
        if last < first {
            return Err(CliError::EmptyRange { from: args.from.clone(), to: args.to.clone() });
        }
        let open = first_open(now());
        if last >= open {
            return Err(RangeError::Open { last: date(last), open: date(open) }.into());
        }
        let blobs = partition.of_days(&Days { first, last }).len();
        if blobs > COMMIT_BLOBS_MAX {
            return Err(RangeError::TooManyBlobs { blobs }.into());
        }
        let kept = partition.horizons.kept;
        if first < kept {
            return Err(RangeError::NotKept { first: date(first), kept: date(kept) }.into());
        }
        let schema = directory.manifest().schema();
        let event_type = match &args.only {
            None => None,
            Some(name) => {
                let present = schema.present(name).ok_or_else(|| CliError::TypeDeleted { name: name.clone() })?;
                if !schema.listed().contains(present) {
                    let known: Vec<&str> = schema.listed().iter().map(String::as_str).collect();
                    return Err(RangeError::UnknownType { name: name.clone(), known: known.join(", ") }.into());
                }
                Some(present.to_owned())
            }
        };
        Ok(Asked { days: Days { first, last }, event_type })
    }

    /// The rows of the days and types, without those that are erased.
    fn kept(&self, rows: &Rollups, partition: &Partition) -> Result<Rollups, CliError> {
        let is_of_type = |row: &RollupRow<'_>| self.event_type.as_deref().is_none_or(|name| name == row.event_type);
        let is_asked = |row: &RollupRow<'_>| self.days.contains(row.hour.day()) && is_of_type(row);
        let mut asked = Rollups::new();
        rows.iter().filter(is_asked).try_for_each(|row| asked.push(row))?;
        let mut kept = partition.erasures.kept(&asked)?.unwrap_or(asked);
        kept.combine();
        Ok(kept)
    }

    fn text(&self) -> String {
        let days = format!("{} to {}", date(self.days.first), date(self.days.last));
        self.event_type.as_ref().map_or_else(|| days.clone(), |name| format!("{days}, type {name}"))
    }
}

/// The first day that may still be open: its end is not `lateness_s` of merges behind.
fn first_open(now: Now) -> Day {
    Day((now.seconds().saturating_sub(MergePolicy::default().lateness_s) / DAY_S) as u32)
}

/// A day of UTC.
fn day(text: &str) -> Result<Day, CliError> {
    let seconds = Zone::UTC.time(text)?.s();
    match seconds.is_multiple_of(DAY_S) {
        true => Ok(Day(u32::try_from(seconds / DAY_S).unwrap_or(u32::MAX))),
        false => Err(RangeError::NoDay { text: text.to_owned() }.into()),
    }
}

fn date(day: Day) -> String {
    let date = day.date();
    format!("{:04}-{:02}-{:02}", date.year, date.month, date.day)
}

/// The rows of live blobs of some days, or of all, under their present names.
fn live_rows(directory: &Directory, partition: &Partition, days: Option<&Days>) -> Result<Rollups, CliError> {
    let types = directory.manifest().types_of(PARTITION);
    let metas: Vec<_> = match days {
        Some(days) => partition.of_days(days),
        None => partition.live.values().filter(|meta| meta.level.is_of_rows()).collect(),
    };
    let mut live = Rollups::new();
    for meta in metas {
        let rows = directory.rows(&meta, Wanted::All)?;
        let renaming = types.since(meta.key.seq);
        rows.iter().filter_map(|row| renaming.row(&row).map(|row| live.push(row))).collect::<Result<(), _>>()?;
    }
    live.combine();
    Ok(live)
}

/// Counts the sources again that may have rows of the days.
fn recount(
    args: &RangeArgs,
    directory: &Directory,
    partition: &Partition,
    asked: &Asked,
    live: &Rollups,
    out: &mut impl Write,
) -> Result<Recount, CliError> {
    let schema = directory.manifest().schema();
    if !args.from_file.is_empty() && directory.manifest().types_of(PARTITION).has_reused_names_since(FIRST) {
        return Err(RangeError::NameUsedAgain.into());
    }
    if schema.has_merged_dimensions() {
        return Err(RangeError::MergedDimensions.into());
    }
    let files = loaded(args.files(), directory)?;
    check_sources(args, directory, partition, asked, &files)?;
    let mut letters = refused(directory)?;
    let types = types(directory, &files, live, WithListed::Always)?;
    let readings: Vec<SourceReading> = files
        .iter()
        .filter(|(_, file)| file.is_read_otherwise())
        .map(|(source, file)| SourceReading { source: *source, reading: file.id })
        .collect();
    // Other columns may move rows to other days, so all days are compared then.
    let days = Some(asked.days).filter(|_| readings.is_empty());
    let mut adding = Adding::new(&types, &partition.erasures, days);
    if args.from_archive {
        let letters = letters.remove(&SOURCE).unwrap_or_default();
        if let Some(raw) = count_raw(directory, &letters, &mut adding)? {
            check_archive(directory, asked, raw, out)?;
        }
    }
    count_files(directory, &files, &mut letters, &mut adding)?;
    let Adding { fold, uncounted, first_uncounted, .. } = adding;
    if let Some(Uncounted { source, row, why }) = first_uncounted {
        return Err(RangeError::Uncounted { uncounted, source_id: source, row: row + 1, why }.into());
    }
    let others = fold.others();
    if others > 0 {
        return Err(RangeError::OtherValues { others }.into());
    }
    let rows = fold.rollups()?;
    if !readings.is_empty() {
        check_other_days(asked, partition, &live_rows(directory, partition, None)?, &rows)?;
    }
    Ok(Recount { rows, readings })
}

/// Each source that may have rows of the days is named, and nothing of it was replayed or dropped.
fn check_sources(
    args: &RangeArgs,
    directory: &Directory,
    partition: &Partition,
    asked: &Asked,
    files: &Files<'_>,
) -> Result<(), CliError> {
    let lineages = directory.lineages()?;
    let hours = asked.days.hours();
    let may_have_rows = |source, state: &_| {
        lineages.hours_of(source, state).is_none_or(|of_rows| of_rows.iter().any(|range| range.overlaps(&hours)))
    };
    let mut missing: Vec<String> = Vec::new();
    for (source, state) in not_named(directory, files).iter().filter(|(source, state)| may_have_rows(**source, state)) {
        missing.push(counted_text(source, state));
    }
    let of_serve = partition.source(SOURCE);
    if of_serve.next_row > 0 && !args.from_archive && may_have_rows(SOURCE, &of_serve) {
        missing.push(format!("`serve` ({} of {} rows count)", of_serve.accepted, of_serve.next_row));
    }
    if !missing.is_empty() {
        let shown = missing[..missing.len().min(20)].join(", ");
        return Err(RangeError::Sources { missing: missing.len(), shown }.into());
    }
    let archive = Some(SOURCE).filter(|_| args.from_archive);
    for source in files.keys().copied().chain(archive) {
        let dropped = partition.source(source).dropped;
        if dropped > 0 {
            return Err(RangeError::Dropped { source_id: source, dropped }.into());
        }
    }
    Ok(())
}

/// All events of the days are in the archive. Events of a day may come late, so each row after its begin is needed.
fn check_archive(directory: &Directory, asked: &Asked, raw: RawCounts, out: &mut impl Write) -> Result<(), CliError> {
    let RawCounts { coverage, mut damaged, settled, .. } = raw;
    writeln!(out, "{}", raw::reach(directory)?)?;
    if let Some(Damaged { path, rows, why }) = damaged.pop() {
        return Err(CliError::RawDamaged { path, rows, why });
    }
    let needed_from = asked.days.hours().first;
    let is_needed = |missing: &&Missing| erasure::before(Now(missing.until_ms)) > needed_from;
    if let Some(hole) = coverage.missing().iter().find(is_needed).copied() {
        let until = match hole.until_ms {
            u64::MAX => "now".to_owned(),
            until_ms => time(until_ms),
        };
        let covered = coverage.exact_from();
        let covered = if covered < Hour::MAX { text(covered) } else { "none".to_owned() };
        return Err(RangeError::NotCovered { rows: hole, until, covered }.into());
    }
    if settled > 0 {
        return Err(RangeError::Replayed { replayed: settled }.into());
    }
    Ok(())
}

/// Rows of a file that is read by other columns count on the other days as they do now.
fn check_other_days(asked: &Asked, partition: &Partition, live: &Rollups, counted: &Rollups) -> Result<(), CliError> {
    let others = |rows: &Rollups| -> Result<Rollups, CliError> {
        let mut others = Rollups::new();
        let is_other =
            |row: &RollupRow<'_>| !asked.days.contains(row.hour.day()) && row.hour.day() >= partition.horizons.kept;
        rows.iter().filter(is_other).try_for_each(|row| others.push(row))?;
        let mut kept = partition.erasures.kept(&others)?.unwrap_or(others);
        kept.combine();
        Ok(kept)
    };
    let differences = Differences::of(&others(live)?, &others(counted)?);
    match differences.first_and_last() {
        None if asked.event_type.is_none() => Ok(()),
        None => Err(RangeError::ColumnsOfOneType.into()),
        Some(found) => Err(RangeError::OtherDays { first: date(found.first), last: date(found.last) }.into()),
    }
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct TenantDay {
    tenant: String,
    day: Day,
}

#[derive(Clone, Copy, Default)]
struct Sums {
    live_rows: u64,
    live: u64,
    counted_rows: u64,
    counted: u64,
    is_other: bool,
}

/// The tenants and days, and whether their rows differ.
struct Differences {
    sums: BTreeMap<TenantDay, Sums>,
    differing: usize,
}

impl Differences {
    /// Compares two sets of rows, each sorted and combined.
    fn of(live: &Rollups, counted: &Rollups) -> Differences {
        let mut sums: BTreeMap<TenantDay, Sums> = BTreeMap::new();
        let of = |row: &RollupRow<'_>| TenantDay { tenant: row.tenant.to_owned(), day: row.hour.day() };
        for row in live.iter() {
            let sums = sums.entry(of(&row)).or_default();
            sums.live_rows += 1;
            sums.live += row.count();
        }
        for row in counted.iter() {
            let sums = sums.entry(of(&row)).or_default();
            sums.counted_rows += 1;
            sums.counted += row.count();
        }
        let mut live = live.iter().peekable();
        let mut counted = counted.iter().peekable();
        while let Some(least) = [live.peek(), counted.peek()].into_iter().flatten().map(RollupRow::key).min() {
            if audit::sum(&mut live, &least) != audit::sum(&mut counted, &least) {
                let of = TenantDay { tenant: least.tenant.to_owned(), day: least.hour.day() };
                sums.entry(of).or_default().is_other = true;
            }
        }
        let differing = sums.values().filter(|sums| sums.is_other).count();
        Differences { sums, differing }
    }

    fn first_and_last(&self) -> Option<Days> {
        let days = || self.sums.iter().filter(|(_, sums)| sums.is_other).map(|(of, _)| of.day);
        Some(Days { first: days().min()?, last: days().max()? })
    }

    fn print(&self, out: &mut impl Write) -> Result<(), CliError> {
        let others = self.sums.iter().filter(|(_, sums)| sums.is_other);
        for (TenantDay { tenant, day }, sums) in others.take(NAMED_MAX) {
            let Sums { live_rows, live, counted_rows, counted, .. } = sums;
            let day = date(*day);
            writeln!(
                out,
                "tenant {tenant:?} day {day}: {live_rows} rows that count {live} are live, and {counted_rows} that count {counted} were counted"
            )?;
        }
        if self.differing > NAMED_MAX {
            writeln!(out, "these are the first {NAMED_MAX} of {} tenants and days that differ", self.differing)?;
        }
        let mut all = Sums::default();
        for Sums { live_rows, live, counted_rows, counted, .. } in self.sums.values() {
            all.live_rows += live_rows;
            all.live += live;
            all.counted_rows += counted_rows;
            all.counted += counted;
        }
        let Sums { live_rows, live, counted_rows, counted, .. } = all;
        let differing = self.differing;
        let days = self.sums.len();
        writeln!(
            out,
            "{differing} of {days} tenants and days differ: {live_rows} rows that count {live} are live, and {counted_rows} that count {counted} were counted"
        )?;
        Ok(())
    }
}

impl RangeArgs {
    fn files(&self) -> FileOptions<'_> {
        FileOptions { files: &self.from_file, columns: &self.columns, option: "--from-file" }
    }
}
