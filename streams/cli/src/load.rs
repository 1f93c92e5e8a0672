//! `load`: counts the rows of a file.

use crate::args::{LoadArgs, ReadingArgs};
use crate::dead_letters;
use crate::driver::{Driver, PARTITION};
use crate::error::CliError;
use crate::resolve::{self, OfSource};
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use tidemark_proto::series::calendar::Zone;
use tidemark_streams_core::event::EventTypes;
use tidemark_streams_core::owner::{Input, Record, RowBatch};
use tidemark_streams_core::schema::Schema;
use tidemark_streams_core::source::{ReadingId, SourceId, SourceState};
use tidemark_streams_core::values::{DimensionNames, OTHER};
use tidemark_streams_serve::open_or_create;
use tidemark_streams_source::digest::{reading_id, source_id};
use tidemark_streams_source::file::{FileRows, SourceError};
use tidemark_streams_source::mapping::{Mapping, TypeOf};
use tidemark_streams_source::rows::Rows;
use tidemark_streams_source::value::Reading;
use tidemark_streams_store::catalogue::Catalogue;
use tidemark_streams_store::directory::Directory;

/// Rows that are read at a time.
const BATCH_ROWS: usize = 4_096;

/// A file, and which source it is.
pub struct OpenFile {
    pub rows: FileRows,
    pub source: SourceId,
    pub reading: ReadingId,
}

pub fn run(args: &LoadArgs, out: &mut impl Write) -> Result<(), CliError> {
    let mut file = open(&args.file, &args.reading)?;
    let types = match &file.rows.mapping().event_type {
        TypeOf::All(name) => EventTypes::new(&[name])?,
        TypeOf::Column(_) => EventTypes::new(&args.types)?,
    };
    if !file.rows.mapping().values.is_empty() && !args.directory.dir.exists() {
        // A new directory has no dimensions, and a refused load makes no directory.
        file.rows.name_dimensions(DimensionNames::default())?;
    }
    let needs_catalogue = file.rows.mapping().tenant.is_none();
    if needs_catalogue && !args.directory.dir.exists() {
        return Err(CliError::NoListings);
    }
    let directory = open_or_create(&args.directory.dir)?;
    let catalogue = if needs_catalogue { Some(resolve::opened(&args.directory.dir, &directory)?) } else { None };
    let schema = directory.manifest().schema();
    if let TypeOf::All(name) = &file.rows.mapping().event_type
        && schema.present(name).is_none()
    {
        return Err(CliError::TypeDeleted { name: name.clone() });
    }
    file = file.identified(&args.file, schema)?;
    let known = known(&directory, file.source);
    if let Some(known) = known.filter(|known| known.reading != file.reading) {
        let path = args.file.clone();
        let source_id = file.source;
        let next_row = known.next_row;
        return Err(CliError::OtherReading { path, source_id, next_row });
    }
    let is_complete = known.is_some_and(|known| known.is_complete);
    if !is_complete {
        file.rows.mapping().check_dimensions_of_type(&schema.effective(&types))?;
    }
    if file.rows.has_clock() {
        let _ = writeln!(
            io::stderr(),
            "note: the times of the file have no zone and are read by the clock of {}; --file-zone names another",
            args.reading.file_zone
        );
    }
    let mut driver = Driver::claim(directory, types, args.flush_counts)?;
    if !is_complete {
        count(&mut driver, &mut file, catalogue.as_ref(), args)?;
    }
    // A load that was killed behind its last row has left merges and files to later.
    driver.handle(Input::Seal)?;
    driver.directory.collect()?;
    let SourceState { next_row, accepted, dead_letters, .. } = known_after(&driver, file.source);
    let path = args.file.display();
    match is_complete {
        true => writeln!(out, "{path}: already counted: {next_row} rows; nothing is counted again")?,
        false => writeln!(out, "{path}: {next_row} rows: {accepted} counted, {dead_letters} dead letters")?,
    }
    let others = driver.owner.others();
    if others > 0 {
        writeln!(out, "{path}: {others} counts have values beyond the bound of a dimension: they count as {OTHER}")?;
    }
    Ok(())
}

impl OpenFile {
    /// The same source as under an earlier name of its event type, so that its rows count once. Its values are those of the dimensions of
    /// the directory.
    ///
    /// # Errors
    /// The file cannot be read, or the mapping names an unknown dimension.
    pub fn identified(mut self, path: &Path, schema: &Schema) -> Result<OpenFile, CliError> {
        self.rows.name_dimensions(schema.dimensions().names)?;
        let TypeOf::All(name) = &self.rows.mapping().event_type else { return Ok(self) };
        let identity = schema.identity(name);
        if identity != *name {
            let of_file = |error: io::Error| CliError::Source { path: path.to_owned(), error: error.into() };
            let mut file = File::open(path).map_err(of_file)?;
            self.source = source_id(&mut file, &TypeOf::All(identity)).map_err(of_file)?;
        }
        Ok(self)
    }
}

/// Opens a file and its first rows, so that a file that cannot be read changes nothing.
///
/// # Errors
/// The file, the mapping or the zone is none.
pub fn open(path: &Path, args: &ReadingArgs) -> Result<OpenFile, CliError> {
    let of_file = |error: SourceError| CliError::Source { path: path.to_owned(), error };
    let mapping = Mapping::parse(&args.map, args.event_type.as_deref())?;
    let mapping = mapping.separated(args.listings_separator.as_deref())?;
    let zone = Zone::named(&args.file_zone)?;
    let mut file = File::open(path).map_err(|error| of_file(error.into()))?;
    let reading = ReadingId(reading_id(&mapping, &zone));
    let source = source_id(&mut file, &mapping.event_type).map_err(|error| of_file(error.into()))?;
    let reading_of_file = Reading { mapping, zone, dimensions: DimensionNames::default() };
    let rows = FileRows::open(&file, reading_of_file).map_err(of_file)?;
    Ok(OpenFile { rows, source, reading })
}

fn known(directory: &Directory, source: SourceId) -> Option<SourceState> {
    directory.manifest().partition(PARTITION)?.sources.get(&source).copied()
}

fn known_after(driver: &Driver, source: SourceId) -> SourceState {
    known(&driver.directory, source).unwrap_or_default()
}

fn count(
    driver: &mut Driver,
    file: &mut OpenFile,
    catalogue: Option<&Catalogue>,
    args: &LoadArgs,
) -> Result<(), CliError> {
    let of_file = |error: SourceError| CliError::Source { path: args.file.clone(), error };
    let OpenFile { rows, source, reading } = file;
    let source = *source;
    let reading = *reading;
    let event_type = match &rows.mapping().event_type {
        TypeOf::All(name) => name.clone(),
        TypeOf::Column(_) => String::new(),
    };
    let begin = driver.owner.position(source).unwrap_or(0);
    let tenants = catalogue.map(|catalogue| OfSource::begin(catalogue, source, begin)).transpose()?;
    let mut read = rows.skip(begin).map_err(of_file)?;
    let mut batch = Rows::default();
    let mut reported = begin;
    loop {
        batch.clear();
        rows.read(&mut batch, BATCH_ROWS).map_err(of_file)?;
        if let Some(tenants) = &tenants {
            tenants.resolve(rows, &mut batch, &event_type, read)?;
        }
        let records: Vec<Record<'_>> = batch.records(&event_type).collect();
        let end = read + records.len() as u64;
        while driver.owner.position(source).is_some_and(|position| position < end) {
            driver.handle(Input::Rows(RowBatch {
                source,
                reading,
                from: read,
                is_logged: false,
                records: &records,
            }))?;
            reported = report(driver, source, reported, args)?;
        }
        read = end;
        if batch.is_empty() {
            driver.handle(Input::End { source, reading, rows: read })?;
            report(driver, source, reported, args)?;
            return Ok(());
        }
    }
}

/// Says how far the source is counted, and stops where too many rows were refused.
fn report(driver: &Driver, source: SourceId, reported: u64, args: &LoadArgs) -> Result<u64, CliError> {
    let SourceState { next_row, dead_letters, .. } = known_after(driver, source);
    if next_row == reported {
        return Ok(reported);
    }
    let _ = writeln!(io::stderr(), "counted rows {} to {next_row}", reported + 1);
    if dead_letters > args.dead_letters_max {
        let last = dead_letters::last(&driver.directory)?;
        let (row, reason) = last.map_or((0, String::new()), |letter| (letter.row + 1, letter.reason));
        let max = args.dead_letters_max;
        return Err(CliError::TooManyDeadLetters { refused: dead_letters, max, row, reason });
    }
    Ok(next_row)
}
