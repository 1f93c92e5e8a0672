//! Counts the rows of all sources again, for `audit`: raw events of `serve`, and files that were loaded.
//!
//! Blobs merge the rows of all sources, so sources are compared as a whole: each file that counted rows has to be named. The counts of all
//! sources are held in memory together; the rows are read one by one.

use crate::adding::Adding;
use crate::args::{AuditArgs, ColumnsOfFiles, ReadingArgs};
use crate::dead_letters;
use crate::driver::PARTITION;
use crate::error::CliError;
use crate::load::{OpenFile, open};
use crate::raw::{self, RawCounts};
use crate::resolve::{self, OfSource};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use tidemark_streams_core::blob::Seq;
use tidemark_streams_core::event::{EventTypes, Judged};
use tidemark_streams_core::owner::Record;
use tidemark_streams_core::rollup::Rollups;
use tidemark_streams_core::source::{ReadingId, SourceId, SourceState};
use tidemark_streams_serve::SOURCE;
use tidemark_streams_source::mapping::{TYPE_DEFAULT, TypeOf};
use tidemark_streams_source::rows::Rows;
use tidemark_streams_store::directory::Directory;

/// The first commit of a partition.
const FIRST: Seq = Seq(1);
/// Sources that an error names one by one.
const NAMED_MAX: usize = 20;

/// The files that are counted, and how they are read.
#[derive(Clone, Copy)]
pub struct FileOptions<'a> {
    pub files: &'a [PathBuf],
    pub columns: &'a ColumnsOfFiles,
    /// The option that names a file.
    pub option: &'static str,
}

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
pub struct Loaded<'a> {
    path: &'a Path,
    reading: ReadingArgs,
    /// The type of all rows, or the default of rows whose column names none.
    event_type: String,
    names_tenants: bool,
    state: SourceState,
    /// How it is read now.
    pub id: ReadingId,
}

/// Files by their source.
pub type Files<'a> = BTreeMap<SourceId, Loaded<'a>>;

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
    let files = loaded(args.files(), directory)?;
    if let Some((source, file)) = files.iter().find(|(_, file)| file.is_read_otherwise()) {
        return Err(CliError::OtherReading {
            path: file.path.to_owned(),
            source_id: *source,
            next_row: file.state.next_row,
        });
    }
    let missing = missing(directory, &files);
    if !files.is_empty() {
        check_all_are_named(directory, &missing)?;
    }
    let mut refused = refused(directory)?;
    let types = types(directory, &files, all, WithListed::IfServed)?;
    let erasures = directory.manifest().partition(PARTITION).map(|known| known.erasures.clone()).unwrap_or_default();
    let mut adding = Adding::new(&types, &erasures, None);
    let raw = count_raw(directory, &refused.remove(&SOURCE).unwrap_or_default(), &mut adding)?;
    let accepted = directory.manifest().partition(PARTITION).map_or(0, |known| known.source(SOURCE).accepted);
    if !files.is_empty() && accepted > 0 && raw.as_ref().is_some_and(|raw| !raw.coverage.has_rows()) {
        return Err(CliError::OfIntake { accepted });
    }
    let dropped = count_files(directory, &files, &mut refused, &mut adding)?;
    let Adding { fold, .. } = adding;
    let others = fold.others() + raw.as_ref().map_or(0, |raw| raw.others);
    Ok(Recounted { rows: fold.rollups()?, others, dropped, raw, are_files_missing: !missing.is_empty() })
}

/// The rows of each source that are dead letters.
///
/// # Errors
/// A blob of dead letters cannot be read.
pub fn refused(directory: &Directory) -> Result<BTreeMap<SourceId, BTreeSet<u64>>, CliError> {
    let mut refused: BTreeMap<SourceId, BTreeSet<u64>> = BTreeMap::new();
    for meta in dead_letters::blobs(directory) {
        for letter in dead_letters::read(directory, &meta)? {
            refused.entry(letter.source).or_default().insert(letter.row);
        }
    }
    Ok(refused)
}

/// Counts the raw events of `serve`, if it has counted any.
///
/// # Errors
/// They cannot be read.
pub fn count_raw(
    directory: &Directory,
    refused: &BTreeSet<u64>,
    adding: &mut Adding<'_>,
) -> Result<Option<RawCounts>, CliError> {
    match raw::counted(directory) {
        0 => Ok(None),
        _ => raw::count(directory, refused, adding).map(Some),
    }
}

/// Counts the rows of files, and returns how many of their dead letters were dropped.
///
/// # Errors
/// A file cannot be read, or was replaced by another one.
pub fn count_files(
    directory: &Directory,
    files: &Files<'_>,
    refused: &mut BTreeMap<SourceId, BTreeSet<u64>>,
    adding: &mut Adding<'_>,
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
        file.count(opened, tenants, &refused, adding)?;
        dropped += file.state.dropped;
    }
    Ok(dropped)
}

/// The files that are named, with what the manifest says of their sources.
///
/// # Errors
/// A file cannot be read, was not loaded, or is named twice.
pub fn loaded<'a>(options: FileOptions<'a>, directory: &Directory) -> Result<Files<'a>, CliError> {
    let schema = directory.manifest().schema();
    let partition = directory.manifest().partition(PARTITION);
    let mut files = Files::new();
    for (number, path) in options.files.iter().enumerate() {
        let reading = options.reading_of(number)?;
        let OpenFile { rows, source, reading: id } = open(path, &reading)?.identified(path, schema)?;
        let state = partition.and_then(|partition| partition.sources.get(&source).copied());
        let state = state.ok_or_else(|| CliError::NotLoaded { path: path.clone(), source_id: source })?;
        let event_type = match &rows.mapping().event_type {
            TypeOf::All(name) => name.clone(),
            TypeOf::Column(_) => TYPE_DEFAULT.to_owned(),
        };
        let names_tenants = rows.mapping().tenant.is_some();
        if let Some(other) = files.insert(source, Loaded { path, reading, event_type, names_tenants, state, id }) {
            let other = other.path.to_owned();
            return Err(CliError::NamedTwice { path: path.clone(), other, source_id: source });
        }
    }
    Ok(files)
}

/// Files that counted rows and are not named. A source without accepted rows adds nothing to the blobs.
fn missing(directory: &Directory, files: &Files<'_>) -> Vec<String> {
    not_named(directory, files).iter().map(|(source, state)| counted_text(source, state)).collect()
}

/// The same with their states.
pub fn not_named(directory: &Directory, files: &Files<'_>) -> BTreeMap<SourceId, SourceState> {
    let partition = directory.manifest().partition(PARTITION);
    let counted =
        partition.into_iter().flat_map(|partition| &partition.sources).filter(|(_, state)| state.accepted > 0);
    let others = counted.filter(|(source, _)| **source != SOURCE && !files.contains_key(source));
    others.map(|(source, state)| (*source, *state)).collect()
}

/// A source, and how many of its rows count.
pub fn counted_text(source: &SourceId, state: &SourceState) -> String {
    let SourceState { next_row, accepted, .. } = state;
    format!("{source} ({accepted} of {next_row} rows count)")
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

/// Whether all types count that owners have listed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum WithListed {
    /// `serve` may have counted each of them.
    IfServed,
    /// `all` are rows of some days only.
    Always,
}

/// The types of the blobs, of the files, and of the owners that counted raw events.
///
/// # Errors
/// There are too many.
pub fn types(
    directory: &Directory,
    files: &Files<'_>,
    all: &Rollups,
    listed: WithListed,
) -> Result<EventTypes, CliError> {
    let schema = directory.manifest().schema();
    let mut names: BTreeSet<&str> = all.iter().map(|row| row.event_type).collect();
    // An earlier name counts under the present name, and is not a configured type of its own.
    names.extend(files.values().filter_map(|file| schema.present(&file.event_type)));
    if listed == WithListed::Always || raw::counted(directory) > 0 {
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
        adding: &mut Adding<'_>,
    ) -> Result<(), CliError> {
        let OpenFile { mut rows, source, .. } = opened;
        let mut row = Rows::default();
        for number in 0..self.state.next_row {
            row.clear();
            rows.read(&mut row, 1).map_err(|error| CliError::Source { path: self.path.to_owned(), error })?;
            if let Some(tenants) = tenants {
                tenants.resolve(&rows, &mut row, &self.event_type, number)?;
            }
            if refused.contains(&number) {
                continue;
            }
            // The load has judged times by its clock. A row that is in no dead letter was accepted; where it cannot be counted now, its
            // count is missing here, and the comparison names it.
            match row.records(&self.event_type).next() {
                Some(Record::Event(event)) => adding.add(source, number, &event, Judged::AsNow),
                Some(Record::Broken { reason, .. }) => adding.note_uncounted(source, number, reason),
                None => {}
            }
        }
        Ok(())
    }

    /// Whether it is read by other columns or another zone than it was loaded by.
    pub fn is_read_otherwise(&self) -> bool {
        self.state.reading != self.id
    }
}

impl AuditArgs {
    fn files(&self) -> FileOptions<'_> {
        FileOptions { files: &self.against, columns: &self.columns, option: "--against" }
    }
}

impl FileOptions<'_> {
    /// How the rows of a file are read. An option is given once for all files, or once for each.
    fn reading_of(&self, number: usize) -> Result<ReadingArgs, CliError> {
        let files = self.files.len();
        let of_file = |option: &'static str, given: &[String]| match given {
            [] => Ok(None),
            [of_all] => Ok(Some(of_all.clone())),
            of_each if of_each.len() == files => Ok(of_each.get(number).cloned()),
            of_each => Err(CliError::OptionsOfFiles { option, given: of_each.len(), files, each: self.option }),
        };
        let ColumnsOfFiles { map, listings_separator, event_type, file_zone } = self.columns;
        let separator = of_file("--listings-separator", listings_separator)?;
        Ok(ReadingArgs {
            map: of_file("--map", map)?.unwrap_or_default(),
            // An empty one is for a file without pages, beside files that need it.
            listings_separator: separator.filter(|text| !text.is_empty()),
            // An empty name is for a file with a column of types, beside files that need --type.
            event_type: of_file("--type", event_type)?.filter(|name| !name.is_empty()),
            file_zone: of_file("--file-zone", file_zone)?.unwrap_or_else(|| "UTC".to_owned()),
        })
    }
}
