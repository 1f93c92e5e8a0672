//! `audit`: compares every live blob with the manifest, and the counts with a file that was loaded.

use crate::args::{AuditArgs, ReadingArgs};
use crate::dead_letters;
use crate::driver::PARTITION;
use crate::error::CliError;
use crate::load::{OpenFile, open};
use crate::resolve::{self, OfSource};
use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use tidemark_streams_core::blob::{BlobMeta, Level, Seq};
use tidemark_streams_core::event::EventTypes;
use tidemark_streams_core::fold::Fold;
use tidemark_streams_core::manifest::Partition;
use tidemark_streams_core::owner::Record;
use tidemark_streams_core::rollup::{RollupKey, RollupRow, Rollups};
use tidemark_streams_core::scope::TenantHash;
use tidemark_streams_core::time::Now;
use tidemark_streams_core::values::Values;
use tidemark_streams_source::mapping::{TYPE_DEFAULT, TypeOf};
use tidemark_streams_source::rows::Rows;
use tidemark_streams_store::directory::{Directory, IfMissing};
use tidemark_streams_store::folder::file_name;
use tidemark_streams_store::parquet_rows::Wanted;

/// The first commit of a partition.
const FIRST: Seq = Seq(1);
/// Differences that are named one by one.
const NAMED_MAX: u64 = 20;

pub fn run(args: &AuditArgs, out: &mut impl Write) -> Result<(), CliError> {
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
    if let Some(path) = &args.against {
        let reading = ReadingArgs {
            map: args.map.clone().unwrap_or_default(),
            event_type: args.event_type.clone(),
            file_zone: args.file_zone.clone(),
        };
        let opened = open(path, &reading)?;
        let catalogue = match opened.rows.mapping().tenant {
            None => Some(resolve::opened(&args.directory.dir, &directory)?),
            Some(_) => None,
        };
        let tenants = catalogue.as_ref().map(OfSource::as_accepted).transpose()?;
        let Recounted { rows, others, dropped } = recount(&directory, path, opened, tenants.as_ref(), &all)?;
        if dropped > 0 && tenants.is_some() {
            writeln!(
                out,
                "{dropped} dead letters were dropped: a row of them differs if its listing became known since the load"
            )?;
        }
        let known = directory.manifest().partition(PARTITION);
        let is_merged = directory.manifest().schema().has_merged_dimensions();
        let values = if others > 0 || is_merged { ValuesAre::LeftOut } else { ValuesAre::Compared };
        if others > 0 {
            // A flush may keep a value that the count of the whole file does not keep.
            writeln!(
                out,
                "{others} counts of the file have values beyond a bound: counts are compared without values"
            )?;
        } else if is_merged {
            // The load may have kept other values under the bounds of that time.
            writeln!(out, "event types with dimensions were merged: counts are compared without values")?;
        }
        differences += compare(&kept(&all, known, values)?, &kept(&rows, known, values)?, out)?;
    }
    if differences > 0 {
        return Err(CliError::Audit { differences, blobs });
    }
    writeln!(out, "{blobs} blobs are whole; {} rows count {total}", all.len())?;
    Ok(())
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

/// The rows of a file, and the sum of the counts with values beyond a bound.
struct Recounted {
    rows: Rollups,
    others: u64,
    /// Rows of the file with dropped dead letters.
    dropped: u64,
}

/// Whether values of dimensions are compared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ValuesAre {
    Compared,
    LeftOut,
}

/// Counts the rows of a file again, up to the position in the manifest, without the dead letters.
fn recount(
    directory: &Directory,
    path: &Path,
    opened: OpenFile,
    tenants: Option<&OfSource>,
    all: &Rollups,
) -> Result<Recounted, CliError> {
    let schema = directory.manifest().schema();
    let OpenFile { mut rows, source, reading } = opened.identified(path, schema)?;
    let partition = directory.manifest().partition(PARTITION);
    let sources = partition.map_or(0, |partition| partition.sources.len());
    let state = partition.and_then(|partition| partition.sources.get(&source).copied());
    let state = state.ok_or_else(|| CliError::NotLoaded { path: path.to_owned(), source_id: source })?;
    if state.reading != reading {
        return Err(CliError::OtherReading { path: path.to_owned(), source_id: source, next_row: state.next_row });
    }
    if sources > 1 {
        return Err(CliError::ManySources { sources });
    }
    // All commits with rows are of this source. They do not tell which of its rows came before a name was reused.
    if directory.manifest().types_of(PARTITION).has_reused_names_since(FIRST) {
        return Err(CliError::NameUsedAgain { path: path.to_owned() });
    }
    let mut refused = BTreeSet::new();
    for meta in dead_letters::blobs(directory) {
        refused.extend(dead_letters::read(directory, &meta)?.into_iter().map(|letter| letter.row));
    }
    let event_type = match &rows.mapping().event_type {
        TypeOf::All(name) => name.clone(),
        TypeOf::Column(_) => TYPE_DEFAULT.to_owned(),
    };
    let mut names: BTreeSet<&str> = all.iter().map(|row| row.event_type).collect();
    // An earlier name counts under the present name, and is not a configured type of its own.
    names.extend(schema.present(&event_type));
    let configured = match names.is_empty() {
        true => EventTypes::none(),
        false => EventTypes::new(&names.into_iter().collect::<Vec<_>>())?,
    };
    let types = schema.effective(&configured);
    let mut fold = Fold::new(types.clone(), rand::random());
    let mut row = Rows::default();
    for number in 0..state.next_row {
        row.clear();
        rows.read(&mut row, 1).map_err(|error| CliError::Source { path: path.to_owned(), error })?;
        if let Some(tenants) = tenants {
            tenants.resolve(&rows, &mut row, &event_type, number)?;
        }
        let Some(Record::Event(event)) = row.records(&event_type).next() else { continue };
        // The load has judged times by its clock. A row that is in no dead letter was accepted; where it cannot be counted now, its
        // count is missing here, and the comparison names it.
        if let Some(event) = event.check(Now(u64::MAX), &types).ok().filter(|_| !refused.contains(&number)) {
            fold.add(&event);
        }
    }
    Ok(Recounted { rows: fold.rollups()?, others: fold.others(), dropped: state.dropped })
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

/// Names the keys with different counts.
fn compare(blobs: &Rollups, file: &Rollups, out: &mut impl Write) -> Result<u64, CliError> {
    let mut blobs = blobs.iter().peekable();
    let mut file = file.iter().peekable();
    let mut differences = 0;
    loop {
        let least: RollupKey<'_> = match (blobs.peek(), file.peek()) {
            (None, None) => return Ok(differences),
            (Some(row), None) | (None, Some(row)) => row.key(),
            (Some(a), Some(b)) => a.key().min(b.key()),
        };
        let found = sum(&mut blobs, &least);
        let expected = sum(&mut file, &least);
        if found != expected {
            differences += 1;
            if differences <= NAMED_MAX {
                let RollupKey { tenant, values, listing, hour, event_type } = least;
                let shown: String = values.iter().map(|(_, value)| format!(" value {value:?}")).collect();
                writeln!(
                    out,
                    "tenant {tenant:?} listing {listing:?} type {event_type}{shown} hour {}: the blobs count {found:?}, the file {expected:?}",
                    hour.start_s()
                )?;
            }
        }
    }
}

/// The quarters of all rows of a key.
fn sum<'a>(rows: &mut std::iter::Peekable<impl Iterator<Item = RollupRow<'a>>>, key: &RollupKey<'_>) -> [u64; 4] {
    let mut sums = [0; 4];
    while let Some(row) = rows.next_if(|row| row.key() == *key) {
        sums.iter_mut().zip(row.quarters).for_each(|(sum, count)| *sum += u64::from(count));
    }
    sums
}
