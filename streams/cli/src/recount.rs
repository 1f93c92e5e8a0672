//! Counts the rows of all sources again, for `audit`: raw events of `serve`, and files that were loaded.
//!
//! Blobs merge the rows of all sources, so sources are compared as a whole: each file that counted rows has to be named. The counts of all
//! sources are held in memory together; the rows are read one by one.

use crate::args::{AuditArgs, ReadingArgs};
use crate::dead_letters;
use crate::driver::PARTITION;
use crate::error::CliError;
use crate::load::{OpenFile, open};
use crate::raw::{self, RawCounts};
use crate::resolve::{self, OfSource};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use tidemark_streams_core::blob::Seq;
use tidemark_streams_core::event::EventTypes;
use tidemark_streams_core::fold::Fold;
use tidemark_streams_core::owner::Record;
use tidemark_streams_core::rollup::Rollups;
use tidemark_streams_core::source::{SourceId, SourceState};
use tidemark_streams_core::time::Now;
use tidemark_streams_serve::SOURCE;
use tidemark_streams_source::mapping::{TYPE_DEFAULT, TypeOf};
use tidemark_streams_source::rows::Rows;
use tidemark_streams_store::directory::Directory;

/// The first commit of a partition.
const FIRST: Seq = Seq(1);
/// Sources that an error names one by one.
const NAMED_MAX: usize = 20;

/// The rows of all sources.
pub struct Recounted {
    pub rows: Rollups,
    /// The sum of the counts with values beyond a bound.
    pub others: u64,
    /// Rows of the files with dropped dead letters.
    pub dropped: u64,
    /// `None`: the intake of `serve` has counted nothing.
    pub raw: Option<RawCounts>,
    pub are_files_missing: bool,
}

/// A file that was loaded. It is open only while it is read.
struct Loaded<'a> {
    path: &'a Path,
    reading: ReadingArgs,
    /// The type of all rows, or the default of rows whose column names none.
    event_type: String,
    names_tenants: bool,
    state: SourceState,
}

/// Files by their source.
type Files<'a> = BTreeMap<SourceId, Loaded<'a>>;

/// Counts the rows of all sources again, up to their positions in the manifest, without the dead letters. `all` are the rows of the
/// blobs. Without files, raw events are counted alone.
///
/// # Errors
/// A file is not of the directory, a source has no file, or a source cannot be read.
pub fn recount(args: &AuditArgs, directory: &Directory, all: &Rollups) -> Result<Recounted, CliError> {
    // The commits do not tell which of their rows came before a name was reused, and the file of a reused type has another source.
    if !args.against.is_empty() && directory.manifest().types_of(PARTITION).has_reused_names_since(FIRST) {
        return Err(CliError::NameUsedAgain);
    }
    let files = loaded(args, directory)?;
    let missing = missing(directory, &files);
    if !files.is_empty() {
        check_all_are_named(directory, &missing)?;
    }
    let mut refused: BTreeMap<SourceId, BTreeSet<u64>> = BTreeMap::new();
    for meta in dead_letters::blobs(directory) {
        for letter in dead_letters::read(directory, &meta)? {
            refused.entry(letter.source).or_default().insert(letter.row);
        }
    }
    let types = types(directory, &files, all)?;
    let mut fold = Fold::new(types.clone(), rand::random());
    let raw = count_raw(directory, &types, &refused.remove(&SOURCE).unwrap_or_default(), &mut fold)?;
    let accepted = directory.manifest().partition(PARTITION).map_or(0, |known| known.source(SOURCE).accepted);
    if !files.is_empty() && accepted > 0 && raw.as_ref().is_some_and(|raw| !raw.coverage.has_rows()) {
        return Err(CliError::OfIntake { accepted });
    }
    let dropped = count_files(directory, &files, &mut refused, &types, &mut fold)?;
    let others = fold.others() + raw.as_ref().map_or(0, |raw| raw.others);
    Ok(Recounted { rows: fold.rollups()?, others, dropped, raw, are_files_missing: !missing.is_empty() })
}

fn count_raw(
    directory: &Directory,
    types: &EventTypes,
    refused: &BTreeSet<u64>,
    fold: &mut Fold,
) -> Result<Option<RawCounts>, CliError> {
    match raw::counted(directory) {
        0 => Ok(None),
        _ => raw::count(directory, types, refused, fold).map(Some),
    }
}

/// Counts the rows of files, and returns how many of their dead letters were dropped.
fn count_files(
    directory: &Directory,
    files: &Files<'_>,
    refused: &mut BTreeMap<SourceId, BTreeSet<u64>>,
    types: &EventTypes,
    fold: &mut Fold,
) -> Result<u64, CliError> {
    let catalogue = match files.values().all(|file| file.names_tenants) {
        true => None,
        false => Some(resolve::opened(directory.path(), directory)?),
    };
    let tenants = catalogue.as_ref().map(OfSource::as_accepted).transpose()?;
    let mut dropped = 0;
    for (source, file) in files {
        let refused = refused.remove(source).unwrap_or_default();
        let tenants = tenants.as_ref().filter(|_| !file.names_tenants);
        let opened = file.open_again(*source, directory)?;
        file.count(opened, tenants, &refused, types, fold)?;
        dropped += file.state.dropped;
    }
    Ok(dropped)
}

/// The files that are named, with what the manifest says of their sources.
fn loaded<'a>(args: &'a AuditArgs, directory: &Directory) -> Result<Files<'a>, CliError> {
    let schema = directory.manifest().schema();
    let partition = directory.manifest().partition(PARTITION);
    let mut files = Files::new();
    for (number, path) in args.against.iter().enumerate() {
        let reading = args.reading_of(number)?;
        let OpenFile { rows, source, reading: id } = open(path, &reading)?.identified(path, schema)?;
        let state = partition.and_then(|partition| partition.sources.get(&source).copied());
        let state = state.ok_or_else(|| CliError::NotLoaded { path: path.clone(), source_id: source })?;
        if state.reading != id {
            return Err(CliError::OtherReading { path: path.clone(), source_id: source, next_row: state.next_row });
        }
        let event_type = match &rows.mapping().event_type {
            TypeOf::All(name) => name.clone(),
            TypeOf::Column(_) => TYPE_DEFAULT.to_owned(),
        };
        let names_tenants = rows.mapping().tenant.is_some();
        if let Some(other) = files.insert(source, Loaded { path, reading, event_type, names_tenants, state }) {
            let other = other.path.to_owned();
            return Err(CliError::NamedTwice { path: path.clone(), other, source_id: source });
        }
    }
    Ok(files)
}

/// Files that counted rows and are not named. A source without accepted rows adds nothing to the blobs.
fn missing(directory: &Directory, files: &Files<'_>) -> Vec<String> {
    let partition = directory.manifest().partition(PARTITION);
    let counted =
        partition.into_iter().flat_map(|partition| &partition.sources).filter(|(_, state)| state.accepted > 0);
    counted
        .filter(|(source, _)| **source != SOURCE && !files.contains_key(source))
        .map(|(source, SourceState { next_row, accepted, .. })| {
            format!("{source} ({accepted} of {next_row} rows count)")
        })
        .collect()
}

/// Refuses to compare while rows of a file that is not named are in the blobs.
fn check_all_are_named(directory: &Directory, missing: &[String]) -> Result<(), CliError> {
    if missing.is_empty() {
        return Ok(());
    }
    let mut shown = missing[..missing.len().min(NAMED_MAX)].join(", ");
    if missing.len() > NAMED_MAX {
        shown += &format!(" and {} more", missing.len() - NAMED_MAX);
    }
    let sources = directory.manifest().partition(PARTITION).map_or(0, |partition| partition.sources.len());
    Err(CliError::SourcesNotNamed { missing: missing.len(), sources, shown })
}

/// The types of the blobs, of the files, and of the owners that counted raw events.
fn types(directory: &Directory, files: &Files<'_>, all: &Rollups) -> Result<EventTypes, CliError> {
    let schema = directory.manifest().schema();
    let mut names: BTreeSet<&str> = all.iter().map(|row| row.event_type).collect();
    // An earlier name counts under the present name, and is not a configured type of its own.
    names.extend(files.values().filter_map(|file| schema.present(&file.event_type)));
    if raw::counted(directory) > 0 {
        names.extend(schema.listed().iter().map(String::as_str));
    }
    let configured = match names.is_empty() {
        true => EventTypes::none(),
        false => EventTypes::new(&names.into_iter().collect::<Vec<_>>())?,
    };
    Ok(schema.effective(&configured))
}

impl Loaded<'_> {
    /// Opens the file for its rows. It may have been replaced since it was identified.
    fn open_again(&self, source: SourceId, directory: &Directory) -> Result<OpenFile, CliError> {
        let opened = open(self.path, &self.reading)?.identified(self.path, directory.manifest().schema())?;
        match opened.source == source {
            true => Ok(opened),
            false => Err(CliError::NotLoaded { path: self.path.to_owned(), source_id: opened.source }),
        }
    }

    /// Adds the rows that were accepted.
    fn count(
        &self,
        opened: OpenFile,
        tenants: Option<&OfSource>,
        refused: &BTreeSet<u64>,
        types: &EventTypes,
        fold: &mut Fold,
    ) -> Result<(), CliError> {
        let OpenFile { mut rows, .. } = opened;
        let mut row = Rows::default();
        for number in 0..self.state.next_row {
            row.clear();
            rows.read(&mut row, 1).map_err(|error| CliError::Source { path: self.path.to_owned(), error })?;
            if let Some(tenants) = tenants {
                tenants.resolve(&rows, &mut row, &self.event_type, number)?;
            }
            let Some(Record::Event(event)) = row.records(&self.event_type).next() else { continue };
            // The load has judged times by its clock. A row that is in no dead letter was accepted; where it cannot be counted now, its
            // count is missing here, and the comparison names it.
            if let Some(event) = event.check(Now(u64::MAX), types).ok().filter(|_| !refused.contains(&number)) {
                fold.add(&event);
            }
        }
        Ok(())
    }
}

impl AuditArgs {
    /// How the rows of a file are read. An option is given once for all files, or once for each.
    fn reading_of(&self, number: usize) -> Result<ReadingArgs, CliError> {
        let files = self.against.len();
        let of_file = |option: &'static str, given: &[String]| match given {
            [] => Ok(None),
            [of_all] => Ok(Some(of_all.clone())),
            of_each if of_each.len() == files => Ok(of_each.get(number).cloned()),
            of_each => Err(CliError::OptionsOfFiles { option, given: of_each.len(), files }),
        };
        Ok(ReadingArgs {
            map: of_file("--map", &self.map)?.unwrap_or_default(),
            // An empty name is for a file with a column of types, beside files that need --type.
            event_type: of_file("--type", &self.event_type)?.filter(|name| !name.is_empty()),
            file_zone: of_file("--file-zone", &self.file_zone)?.unwrap_or_default(),
        })
    }
}
