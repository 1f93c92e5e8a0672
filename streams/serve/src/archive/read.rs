//! Raw events of a directory that no server has open: from the archive, and behind it from the intake's log.

use super::{ArchiveError, Fault, RAW_FOLDER, list, read_file};
use crate::log::{LOG_FILE, LogError, READING, read_log};
use std::path::{Path, PathBuf};
use tidemark_streams_core::owner::RowBatch;
use tidemark_streams_core::rebuild::SourceRows;
use tidemark_streams_core::time::Now;
use tidemark_streams_intake::archive::file::{FileError, FileName};
use tidemark_streams_intake::entry::{Batch, DecodeError, Head};

/// Which of the rows that were asked for were there.
#[derive(Debug, Default)]
pub struct Coverage {
    /// In the order of their numbers.
    pub missing: Vec<Missing>,
    pub damaged: Vec<Damaged>,
    /// How many rows were asked for.
    asked: u64,
    /// The next row.
    next: u64,
}

/// Rows that are not there: `from` to `to`, `to` not included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missing {
    pub from: u64,
    pub to: u64,
    /// They were accepted up to then, in milliseconds since 1970.
    pub until_ms: u64,
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

impl Coverage {
    /// Whether all rows were there. Rows that were erased count as being there.
    pub fn is_whole(&self) -> bool {
        self.missing.is_empty()
    }

    /// Whether any row was there.
    pub fn has_rows(&self) -> bool {
        self.missing_rows() < self.asked
    }

    pub fn asked_rows(&self) -> u64 {
        self.asked
    }

    pub fn missing_rows(&self) -> u64 {
        self.missing.iter().map(|missing| missing.to - missing.from).sum()
    }

    /// The time up to which missing rows were accepted, in milliseconds since 1970.
    pub fn missing_until_ms(&self) -> Option<u64> {
        self.missing.iter().map(|missing| missing.until_ms).max()
    }

    /// Rows from this position on are there, but for missing ones before it, which were accepted until `until_ms`.
    fn reach(&mut self, from: u64, until_ms: u64) {
        if from > self.next {
            self.missing.push(Missing { from: self.next, to: from, until_ms });
            self.next = from;
        }
    }
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
) -> Result<Coverage, RawError> {
    let folder = dir.join(RAW_FOLDER);
    let asked = rows.to.saturating_sub(rows.from);
    let mut coverage = Coverage { next: rows.from, asked, ..Coverage::default() };
    for name in list(&folder)?.index.files() {
        if name.to <= coverage.next || name.from >= rows.to {
            continue;
        }
        coverage.reach(name.from, name.first_ms);
        let path = folder.join(name.to_string());
        read_archived(&path, directory, name, rows, &mut coverage, &mut visit);
    }
    let log = dir.join(LOG_FILE);
    if coverage.next < rows.to && log.exists() {
        let rest = SourceRows { from: coverage.next, ..*rows };
        read_log(&log, directory, &rest, |now, batch| {
            coverage.reach(batch.from, now.0);
            coverage.next = batch.from + batch.records.len() as u64;
            visit(now, batch);
        })?;
    }
    coverage.reach(rows.to, u64::MAX);
    Ok(coverage)
}

fn read_archived(
    path: &Path,
    directory: &str,
    name: &FileName,
    rows: &SourceRows,
    coverage: &mut Coverage,
    visit: &mut impl FnMut(Now, &RowBatch<'_>),
) {
    let read = read_file(path, directory, name, |head, entry| {
        let from = head.first_row.max(coverage.next);
        let to = head.end_row().min(rows.to);
        if from < to {
            visit_rows(head, entry, &SourceRows { source: rows.source, from, to }, visit)?;
            coverage.next = to;
        }
        Ok(())
    });
    let why = match read {
        Ok(()) => {
            coverage.next = coverage.next.max(name.to.min(rows.to));
            return;
        }
        Err(Fault::File(error)) => DamagedFile::File(error),
        Err(Fault::Entry { row, error }) => DamagedFile::Entry { row, error },
        Err(Fault::Io(error)) => DamagedFile::Io(error),
    };
    // A whole file that holds an unreadable entry has given the rows before it.
    let missing = Missing { from: coverage.next, to: name.to.min(rows.to), until_ms: name.last_ms };
    coverage.missing.push(missing);
    coverage.next = missing.to;
    coverage.damaged.push(Damaged { path: path.to_owned(), rows: missing, why });
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
