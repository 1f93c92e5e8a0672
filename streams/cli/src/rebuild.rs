//! `rebuild`: replaces blobs whose files are damaged or missing by what their inputs give.

use crate::args::{ReadingArgs, RebuildArgs, RebuildCommand};
use crate::blobs::text;
use crate::driver::{Driver, PARTITION, now};
use crate::error::CliError;
use crate::load::{OpenFile, open};
use crate::range;
use crate::raw;
use crate::resolve::{self, OfSource};
use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use tidemark_streams_core::blob::{BlobKey, BlobMeta};
use tidemark_streams_core::event::EventTypes;
use tidemark_streams_core::manifest::Partition;
use tidemark_streams_core::owner::{Counted, DeadLetter, Input, Record, Recount, RowBatch};
use tidemark_streams_core::rebuild::{CannotRebuild, Inputs, Lineages, Rebuilder, SourceRows};
use tidemark_streams_core::rollup::Rollups;
use tidemark_streams_core::schema::Schema;
use tidemark_streams_core::source::SourceId;
use tidemark_streams_serve::{Damaged, SOURCE, read_raw};
use tidemark_streams_source::mapping::TypeOf;
use tidemark_streams_source::rows::Rows;
use tidemark_streams_store::directory::{Directory, DirectoryError, live_blob};
use tidemark_streams_store::folder::file_name;
use tidemark_streams_store::parquet_rows::Wanted;

/// Rows of a file that are read at a time.
const BATCH_ROWS: u64 = 4_096;

/// What is left of the inputs: files of blobs, raw events of the intake, and a file that was named.
struct Left<'a> {
    directory: &'a Directory,
    lineages: &'a Lineages,
    args: &'a RebuildArgs,
    types: &'a EventTypes,
    file: Option<AtRow>,
    /// What could not be read. It explains why an input is not there.
    problem: Option<CliError>,
}

/// A file that is open, and its next row.
struct AtRow {
    file: OpenFile,
    next: u64,
}

pub fn run(args: &RebuildArgs, out: &mut impl Write) -> Result<(), CliError> {
    match &args.command {
        Some(RebuildCommand::Range(range)) => range::run(range, out),
        None => repair(args, out),
    }
}

fn repair(args: &RebuildArgs, out: &mut impl Write) -> Result<(), CliError> {
    let types = EventTypes::new(&args.types)?;
    // The option is required.
    let directory = Directory::open_damaged(&args.dir.clone().unwrap_or_default())?;
    let wanted = wanted(&directory, &args.blobs)?;
    let blobs = wanted.len();
    let damaged: Vec<(BlobMeta, DirectoryError)> =
        wanted.into_iter().filter_map(|meta| Some((meta, problem(&directory, &meta)?))).collect();
    if damaged.is_empty() {
        return Ok(writeln!(out, "{blobs} blobs are whole: nothing is rebuilt")?);
    }
    let lineages = directory.lineages()?;
    let mut driver = Driver::claim_for_repair(directory)?;
    let mut refused = 0;
    for (meta, problem) in &damaged {
        let name = file_name(&meta.key, meta.level);
        writeln!(out, "{name}\t{problem}")?;
        match rebuild(&mut driver, meta, &lineages, args, &types) {
            Ok(()) => writeln!(out, "{name}\trebuilt: {}", holding(meta))?,
            Err(why) => {
                refused += 1;
                writeln!(out, "{name}\tnot rebuilt: {}: {why}", holding(meta))?;
            }
        }
    }
    // What is not live may be an input of a blob that is still damaged. Without names all blobs were read.
    if refused == 0 && args.blobs.is_empty() {
        driver.directory.collect()?;
    }
    match refused {
        0 => Ok(()),
        refused => Err(CliError::NotRebuilt { refused, damaged: damaged.len(), has_file: args.from.is_some() }),
    }
}

/// What is lost with a blob that is not rebuilt.
fn holding(meta: &BlobMeta) -> String {
    let BlobMeta { level, scope, rows, total, hours, .. } = meta;
    match level.is_of_rows() {
        true => {
            let first = text(hours.first);
            let last = text(hours.last);
            format!("{level}, {rows} rows that count {total}, hours {first} to {last}, tenants {scope}")
        }
        false => format!("{rows} dead letters"),
    }
}

fn wanted(directory: &Directory, names: &[String]) -> Result<Vec<BlobMeta>, CliError> {
    if names.is_empty() {
        let mut live: Vec<BlobMeta> = directory.manifest().live().collect();
        live.sort_by_key(|meta| meta.key);
        return Ok(live);
    }
    let named = |name: &String| {
        let stem = name.rsplit('/').next().unwrap_or(name).split('.').next().unwrap_or(name);
        let key: Option<BlobKey> = stem.parse().ok();
        let meta = key.and_then(|key| live_blob(directory.manifest(), &key));
        meta.ok_or_else(|| CliError::NotLive { name: name.chars().take(80).collect() })
    };
    names.iter().map(named).collect()
}

/// Why a blob cannot be read.
fn problem(directory: &Directory, meta: &BlobMeta) -> Option<DirectoryError> {
    match meta.level.is_of_rows() {
        true => directory.rows(meta, Wanted::All).err(),
        false => directory.letters(meta).err(),
    }
}

fn rebuild(
    driver: &mut Driver,
    meta: &BlobMeta,
    lineages: &Lineages,
    args: &RebuildArgs,
    types: &EventTypes,
) -> Result<(), CliError> {
    let directory = &driver.directory;
    let mut left = Left { directory, lineages, args, types, file: None, problem: None };
    let manifest = directory.manifest();
    let partition = manifest.partition(PARTITION).cloned().unwrap_or_default();
    let mut rebuilder = Rebuilder::new(
        manifest.layout(),
        manifest.test_tenants(),
        &partition,
        manifest.types_of(PARTITION),
        lineages,
        &mut left,
    );
    let built = match meta.level.is_of_rows() {
        true => rebuilder.rows(meta).map(Built::Rows),
        false => rebuilder.letters(meta).map(Built::Letters),
    };
    let built = match (built, left.problem.take()) {
        (Ok(built), _) => built,
        (Err(CannotRebuild::NoSource { .. } | CannotRebuild::UnknownInputs(_)), Some(problem)) => return Err(problem),
        (Err(why @ CannotRebuild::OtherRefused { .. }), _) => {
            return Err(CliError::OtherTypes { why, types: args.types.join(",") });
        }
        (Err(why), _) => return Err(CliError::CannotRebuild(why)),
    };
    let key = meta.key;
    match &built {
        Built::Rows(rows) => driver.handle(Input::Rebuild { key, rows })?,
        Built::Letters(letters) => driver.handle(Input::RebuildLetters { key, letters })?,
    }
    match live_blob(driver.directory.manifest(), &key) {
        None => Ok(()),
        Some(_) => Err(CliError::RebuildNotTaken),
    }
}

enum Built {
    Rows(Rollups),
    Letters(Vec<DeadLetter>),
}

impl Inputs for Left<'_> {
    fn rows(&mut self, key: &BlobKey) -> Option<Rollups> {
        // The manifest's log has the checksum of a blob that is not live any more.
        let meta = self.lineages.get(key)?.meta;
        self.directory.rows(&meta, Wanted::All).ok()
    }

    fn letters(&mut self, key: &BlobKey) -> Option<Vec<DeadLetter>> {
        let meta = self.lineages.get(key)?.meta;
        self.directory.letters(&meta).ok()
    }

    fn count(&mut self, rows: &SourceRows, schema: &Schema, refused: Option<&BTreeSet<u64>>) -> Option<Counted> {
        let counted = match rows.source == SOURCE {
            true => self.count_raw(rows, schema, refused),
            false => self.count_file(rows, schema, refused),
        };
        counted.unwrap_or_else(|problem| {
            self.problem = Some(problem);
            None
        })
    }
}

impl Left<'_> {
    fn count_raw(
        &self,
        rows: &SourceRows,
        schema: &Schema,
        refused: Option<&BTreeSet<u64>>,
    ) -> Result<Option<Counted>, CliError> {
        let mut recount = Recount::new(schema.effective(self.types), refused);
        let dir = self.directory.path();
        let mut read = read_raw(dir, self.directory.id(), rows, |now, batch| recount.add(now, batch))?;
        if let Some(Damaged { path, rows, why }) = read.damaged.pop() {
            return Err(CliError::RawDamaged { path, rows, why });
        }
        match read.coverage.missing().first() {
            None => Ok(Some(recount.finish()?)),
            Some(&missing) => Err(CliError::RawMissing { rows: missing, reach: raw::reach(self.directory)? }),
        }
    }

    fn count_file(
        &mut self,
        rows: &SourceRows,
        schema: &Schema,
        refused: Option<&BTreeSet<u64>>,
    ) -> Result<Option<Counted>, CliError> {
        let Some(path) = &self.args.from else { return Ok(None) };
        let of_file = |error| CliError::Source { path: path.to_owned(), error };
        let AtRow { mut file, mut next } = match self.file.take().filter(|at| at.next <= rows.from) {
            Some(at) => at,
            None => AtRow { file: self.open(path)?, next: 0 },
        };
        self.check(path, &file, rows.source)?;
        let tenants = self.tenants(&file)?;
        let OpenFile { rows: reader, reading, .. } = &mut file;
        let event_type = match &reader.mapping().event_type {
            TypeOf::All(name) => name.clone(),
            TypeOf::Column(_) => String::new(),
        };
        let types = match event_type.as_str() {
            "" => self.types.clone(),
            name => EventTypes::new(&[name])?,
        };
        let mut recount = Recount::new(schema.effective(&types), refused);
        next += reader.skip(rows.from - next).map_err(of_file)?;
        let mut batch = Rows::default();
        while next < rows.to {
            batch.clear();
            reader.read(&mut batch, (rows.to - next).min(BATCH_ROWS) as usize).map_err(of_file)?;
            if batch.is_empty() {
                return Ok(None);
            }
            if let Some(tenants) = &tenants {
                tenants.resolve(reader, &mut batch, &event_type, next)?;
            }
            let records: Vec<Record<'_>> = batch.records(&event_type).collect();
            let of_rows =
                RowBatch { source: rows.source, reading: *reading, from: next, is_logged: false, records: &records };
            recount.add(now(), &of_rows);
            next += records.len() as u64;
        }
        self.file = Some(AtRow { file, next });
        Ok(Some(recount.finish()?))
    }

    /// The tenants of a file that names none, as its rows were loaded.
    fn tenants(&self, file: &OpenFile) -> Result<Option<OfSource>, CliError> {
        if file.rows.mapping().tenant.is_some() {
            return Ok(None);
        }
        let catalogue = resolve::opened(self.directory.path(), self.directory)?;
        OfSource::as_loaded(&catalogue, file.source).map(Some)
    }

    /// Whether a file is the source, and is read as it was.
    fn check(&self, path: &Path, file: &OpenFile, expected: SourceId) -> Result<(), CliError> {
        let source_id = file.source;
        if source_id != expected {
            return Err(CliError::OtherSource { path: path.to_owned(), source_id, expected });
        }
        let known = self.directory.manifest().partition(PARTITION).map(|known: &Partition| known.source(source_id));
        match known.filter(|known| known.reading != file.reading) {
            Some(known) => Err(CliError::OtherReading { path: path.to_owned(), source_id, next_row: known.next_row }),
            None => Ok(()),
        }
    }

    fn open(&self, path: &Path) -> Result<OpenFile, CliError> {
        let reading = ReadingArgs {
            map: self.args.map.clone().unwrap_or_default(),
            listings_separator: self.args.listings_separator.clone(),
            event_type: self.args.event_type.clone(),
            file_zone: self.args.file_zone.clone(),
        };
        open(path, &reading)?.identified(path, self.directory.manifest().schema())
    }
}
