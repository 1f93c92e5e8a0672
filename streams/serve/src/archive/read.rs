//! Raw events of a directory that no server has open: from the archive, and behind it from the intake's log.

use super::{ArchiveError, Coverage, Fault, Missing, RAW_FOLDER, list, read_file};
use crate::log::{LOG_FILE, LogError, READING, read_log};
use std::path::{Path, PathBuf};
use tidemark_streams_core::owner::RowBatch;
use tidemark_streams_core::rebuild::SourceRows;
use tidemark_streams_core::source::SourceId;
use tidemark_streams_core::time::Now;
use tidemark_streams_intake::archive::file::{FileError, FileName};
use tidemark_streams_intake::entry::{Batch, DecodeError, Head};

/// What a reader found.
#[derive(Debug)]
pub struct RawRead {
    pub coverage: Coverage,
    pub damaged: Vec<Damaged>,
}

/// A file of the archive that is not whole.
#[derive(Debug)]
pub struct Damaged {
    pub path: PathBuf,
    pub rows: Missing,
    pub why: DamagedFile,
}

/// Why a file of the archive is not read.
#[derive(Debug, thiserror::Error)]
pub enum DamagedFile {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("its entry of row {row}: {error}")]
    Entry { row: u64, error: DecodeError },
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// Why raw events are not read.
#[derive(Debug, thiserror::Error)]
pub enum RawError {
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    #[error(transparent)]
    Log(#[from] LogError),
}

/// Gives rows of the intake, batch by batch in their order. Erased rows are left out: their numbers are passed over.
///
/// # Errors
/// [`RawError`]: the folder or the log cannot be read. A damaged file is no error: the answer has its rows.
pub fn read_raw(
    dir: &Path,
    directory: &str,
    rows: &SourceRows,
    mut visit: impl FnMut(Now, &RowBatch<'_>),
) -> Result<RawRead, RawError> {
    let folder = dir.join(RAW_FOLDER);
    let mut read = RawRead { coverage: Coverage::of(rows.from..rows.to), damaged: Vec::new() };
    for name in list(&folder)?.index.files() {
        if read.coverage.begin(name) {
            read_archived(&folder.join(name.to_string()), directory, name, rows.source, &mut read, &mut visit);
        }
    }
    let log = dir.join(LOG_FILE);
    if let Some(from) = read.coverage.next()
        && log.exists()
    {
        read_log(&log, directory, &SourceRows { from, ..*rows }, |now, batch| {
            read.coverage.take_logged(batch.from..batch.from + batch.records.len() as u64, now.0);
            visit(now, batch);
        })?;
    }
    read.coverage.finish();
    Ok(read)
}

fn read_archived(
    path: &Path,
    directory: &str,
    name: &FileName,
    source: SourceId,
    read: &mut RawRead,
    visit: &mut impl FnMut(Now, &RowBatch<'_>),
) {
    let coverage = &mut read.coverage;
    let whole = read_file(path, directory, name, |head, entry| {
        if let Some(rows) = coverage.needs(head.first_row..head.end_row()) {
            visit_rows(head, entry, &SourceRows { source, from: rows.start, to: rows.end }, visit)?;
            coverage.take(&rows);
        }
        Ok(())
    });
    let why = match whole {
        Ok(()) => return read.coverage.end(name),
        Err(Fault::File(error)) => DamagedFile::File(error),
        Err(Fault::Entry { row, error }) => DamagedFile::Entry { row, error },
        Err(Fault::Io(error)) => DamagedFile::Io(error),
    };
    // A whole file that holds an unreadable entry has given the rows before it.
    let rows = read.coverage.end_damaged(name);
    read.damaged.push(Damaged { path: path.to_owned(), rows, why });
}

fn visit_rows(
    head: &Head,
    entry: &[u8],
    rows: &SourceRows,
    visit: &mut impl FnMut(Now, &RowBatch<'_>),
) -> Result<(), Fault> {
    let of_entry = |error| Fault::Entry { row: head.first_row, error };
    let (_, batch) = Batch::decode(entry).map_err(of_entry)?;
    let records = batch.records();
    let records = &records[(rows.from - head.first_row) as usize..(rows.to - head.first_row) as usize];
    let batch = RowBatch { source: rows.source, reading: READING, from: rows.from, is_logged: true, records };
    visit(Now(head.accepted_at_ms), &batch);
    Ok(())
}
