//! Rows in a directory of their own: which directory belongs to a file, how rows come there, and their writer.
//!
//! The file names its directory by a stamp, so that neither is ever taken for a part of another. It says that the rows are there
//! once all of them are; until then what the directory holds is made anew. A directory that is missing or older than the log was
//! cut to is refused.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use redb::{Database, ReadableDatabase, ReadableTable};

use super::store::{POSITIONS, ROWS, Reached, Sink};
use super::{CheckpointPart, LocalLogOptions, LogEvent, OpenError, Row, RowStore, Source};
use crate::storage::lsm::{Lsm, LsmNow};
use crate::storage::{Cost, Persist, PersistError, rows};

/// In the file: which directory has the rows.
const STAMP: &str = "rows stamp";
/// In the file: whether they are all there.
const MOVED: &str = "rows moved";
/// In the directory: what rows stand for, and the stamp.
const APPLIED: &str = "applied";
/// Bytes of rows that are moved at a time.
const MOVE_BYTES: usize = 4 << 20;

/// Where a log's file is, and what it is called in errors.
pub(super) struct File {
    name: String,
    path: Option<PathBuf>,
}

pub(super) fn file_of(source: &Source) -> File {
    let path = match source {
        Source::Path(path) => Some(path.clone()),
        Source::Backend(_) => None,
    };
    File { name: source.to_string(), path }
}

impl File {
    fn refuse(&self, reason: impl Into<String>) -> OpenError {
        OpenError::Rows { source_name: self.name.clone(), reason: reason.into() }
    }

    fn fail(&self, error: PersistError) -> OpenError {
        OpenError::from_persist(&self.name, error)
    }

    /// `group.redb` has its rows in `group.rows-…`, under whatever name the file itself is kept later.
    fn directory(&self, path: &Path, stamp: u64) -> PathBuf {
        path.with_file_name(format!("{}{stamp:016x}", beginning(path)))
    }
}

/// How the names of its directories begin.
fn beginning(path: &Path) -> String {
    let file = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    format!("{}.rows-", file.split('.').next().unwrap_or_default())
}

/// The directories beside a file that its rows are in, or were.
pub(super) fn directories_of(path: &Path) -> io::Result<Vec<PathBuf>> {
    let beginning = beginning(path);
    let is_of_it = |entry: &fs::DirEntry| {
        let name = entry.file_name();
        name.to_str().is_some_and(|name| name.starts_with(&beginning)) && entry.path().is_dir()
    };
    let all = fs::read_dir(path.parent().unwrap_or(Path::new(".")))?.collect::<io::Result<Vec<_>>>()?;
    Ok(all.into_iter().filter(is_of_it).map(|entry| entry.path()).collect())
}

/// Rows that are apart.
pub(super) struct Apart {
    lsm: Arc<Lsm>,
    stamp: u64,
}

impl Apart {
    /// Index of the last entry with effects in the rows.
    pub fn applied(&self) -> Result<u64, PersistError> {
        let missing = || PersistError::corrupt("rows: what they stand for is missing");
        let note = self.lsm.note(APPLIED)?.ok_or_else(missing)?;
        let (stamp, applied) = note.split_at_checked(8).ok_or_else(missing)?;
        if stamp != self.stamp.to_be_bytes() {
            return Err(PersistError::corrupt("rows: they are of another file"));
        }
        applied.try_into().map(u64::from_be_bytes).map_err(|_| missing())
    }

    fn write<'a>(&self, rows: impl Iterator<Item = &'a Row>, applied: Option<u64>) -> Result<(), PersistError> {
        let note = applied.map(|applied| (APPLIED, [self.stamp.to_be_bytes(), applied.to_be_bytes()].concat()));
        self.lsm.write(rows.map(|row| (row.table, row.key.as_ref(), row.value.as_deref())), note.as_slice())
    }

    pub fn now(&self) -> LsmNow {
        self.lsm.now()
    }

    pub fn disk_bytes(&self) -> Result<u64, PersistError> {
        self.lsm.disk_bytes()
    }

    pub fn compact(&self) -> Result<(), PersistError> {
        self.lsm.compact()
    }
}

/// Opens the rows of a file where they are asked for in a directory; moves there what the file still holds.
pub(super) fn open_or_move(db: &Database, file: &File, options: &LocalLogOptions) -> Result<Option<Apart>, OpenError> {
    let (stamp, is_moved) = read_home(db).map_err(|error| file.fail(error))?;
    let lsm = match &options.rows {
        RowStore::Apart(lsm) => lsm,
        RowStore::Beside if is_moved => return Err(file.refuse("its rows are in a directory, and stay there")),
        RowStore::Beside => return Ok(None),
    };
    let path = file.path.as_deref().ok_or_else(|| file.refuse("rows in a directory need a file beside it"))?;
    let stamp = stamp.map_or_else(|| mint(db), Ok).map_err(|error| file.fail(error))?;
    let directory = file.directory(path, stamp);
    let open = || Lsm::open(&directory, lsm, options.flush_delay).map_err(|error| file.fail(error));
    if is_moved {
        if !directory.is_dir() {
            return Err(file.refuse(format!("the directory of its rows is missing: {}", directory.display())));
        }
        return Ok(Some(Apart { lsm: Arc::new(open()?), stamp }));
    }
    if directory.is_dir() {
        let removed = fs::remove_dir_all(&directory);
        removed.map_err(|error| file.fail(PersistError::Io(error.to_string())))?;
    }
    let apart = Apart { lsm: Arc::new(open()?), stamp };
    move_rows(db, &apart, options.kept).map_err(|error| file.fail(error))?;
    Ok(Some(apart))
}

/// The stamp of the directory, and whether the rows are there.
fn read_home(db: &Database) -> Result<(Option<u64>, bool), PersistError> {
    let positions = db.begin_read()?.open_table(POSITIONS)?;
    let stamp = positions.get(STAMP)?.map(|stamp| stamp.value());
    Ok((stamp, positions.get(MOVED)?.is_some()))
}

fn mint(db: &Database) -> Result<u64, PersistError> {
    let write = db.begin_write()?;
    let stamp = rand::random();
    write.open_table(POSITIONS)?.insert(STAMP, stamp)?;
    write.commit()?;
    Ok(stamp)
}

/// No caller knows of the directory until the last transaction here, which also frees the file of the rows.
fn move_rows(db: &Database, apart: &Apart, kept: &[&str]) -> Result<(), PersistError> {
    let read = db.begin_read()?;
    let tables = rows::tables(&read, ROWS)?;
    for table in tables.iter().filter(|table| !kept.contains(&table.as_str())) {
        move_table(&read, table, apart)?;
    }
    let applied = read.open_table(POSITIONS)?.get("applied")?.map_or(0, |applied| applied.value());
    apart.write(std::iter::empty(), Some(applied))?;
    drop(read);
    let write = db.begin_write()?;
    rows::delete(&write, |name| name.strip_prefix(ROWS).is_some_and(|table| !kept.contains(&table)))?;
    write.open_table(POSITIONS)?.insert(MOVED, 1)?;
    write.commit()?;
    Ok(())
}

fn move_table(read: &redb::ReadTransaction, table: &str, apart: &Apart) -> Result<(), PersistError> {
    let open = read.open_table(rows::definition(&format!("{ROWS}{table}")))?;
    let mut piece = Vec::new();
    let mut bytes = 0;
    for row in open.iter()? {
        let (key, value) = row?;
        bytes += key.value().len() + value.value().len();
        piece.push((key.value().to_vec(), value.value().to_vec()));
        if bytes >= MOVE_BYTES {
            write_piece(table, &piece, apart)?;
            piece.clear();
            bytes = 0;
        }
    }
    write_piece(table, &piece, apart)
}

fn write_piece(table: &str, piece: &[(Vec<u8>, Vec<u8>)], apart: &Apart) -> Result<(), PersistError> {
    apart.lsm.write(piece.iter().map(|(key, value)| (table, key.as_slice(), Some(value.as_slice()))), &[])
}

/// Writes checkpoints to the directory, behind the log.
pub(super) struct ApartWriter {
    apart: Arc<Apart>,
    sink: Sink,
    reached: Arc<Reached>,
}

impl ApartWriter {
    pub fn new(apart: Arc<Apart>, sink: Sink, reached: Arc<Reached>) -> Self {
        Self { apart, sink, reached }
    }
}

impl Persist for ApartWriter {
    type Op = CheckpointPart;

    fn cost(part: &CheckpointPart) -> Cost {
        Cost { entries: 0, bytes: part.rows.iter().map(Row::bytes).sum() }
    }

    fn persist(&mut self, parts: &[CheckpointPart]) -> Result<(), PersistError> {
        // Rows of entries which the log has lost are of a state that never was; and where they complete a checkpoint, corrupt.
        if let Some(begun) = parts.iter().map(|part| part.applied).max() {
            self.reached.wait_durable(begun)?;
        }
        let applied = parts.iter().filter(|part| part.last).map(|part| part.applied).max();
        self.apart.write(parts.iter().flat_map(|part| &part.rows), applied)
    }

    fn complete(&mut self, parts: Vec<CheckpointPart>, outcome: Result<(), PersistError>) {
        if let Err(error) = outcome {
            return self.sink.say(LogEvent::Failed(error));
        }
        for part in parts.iter().filter(|part| part.last) {
            self.reached.set_checkpointed(part.applied);
            self.sink.say(LogEvent::Checkpointed { applied: part.applied });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Identity, LocalLog, LsmOptions, Recovered};
    use super::*;

    fn options(rows: RowStore) -> LocalLogOptions {
        let identity = Identity { cluster: "demo".into(), owner: "move".into() };
        LocalLogOptions { rows, execution: super::super::Execution::Inline, ..LocalLogOptions::new(identity) }
    }

    fn open(path: &Path, rows: RowStore) -> (LocalLog, Recovered) {
        LocalLog::open(path, options(rows), |event| assert!(!matches!(event, LogEvent::Failed(_)))).unwrap()
    }

    fn checkpoint(log: &LocalLog, values: &[u8]) {
        let index = log.append(vec![bytes::Bytes::new()]).unwrap();
        let row = |(key, value): (usize, &u8)| {
            let key = vec![key as u8].into();
            Row { table: "cells", key, value: Some(vec![*value].into()) }
        };
        let rows = values.iter().enumerate().map(row).collect();
        log.checkpoint(CheckpointPart { applied: index, last: true, rows }).unwrap();
    }

    #[test]
    fn a_move_that_was_cut_off_begins_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("group.redb");
        let (log, recovered) = open(&path, RowStore::Beside);
        checkpoint(&log, &[1, 2, 3]);
        // The state if the process ends before the last transaction of a move: some rows, of any value.
        let file = file_of(&Source::from(path.as_path()));
        let stamp = mint(&log.db).unwrap();
        let directory = file.directory(&path, stamp);
        let cut_off = Lsm::open(&directory, &LsmOptions::default(), std::time::Duration::ZERO).unwrap();
        let stale = [("cells", b"\x01".as_slice(), Some(b"?".as_slice())), ("cells", b"x", Some(b"y"))];
        cut_off.write(stale.into_iter(), &[]).unwrap();
        drop((log, recovered, cut_off));
        // Meanwhile the rows of the file are the valid ones.
        let (log, recovered) = open(&path, RowStore::Beside);
        checkpoint(&log, &[4, 5]);
        drop((log, recovered));
        let (log, recovered) = open(&path, RowStore::Apart(LsmOptions::default()));
        assert_eq!(recovered.applied, 2);
        let mut values = Vec::new();
        log.scan("cells", |_, value| values.push(value.to_vec())).unwrap();
        assert_eq!(values, [vec![4], vec![5], vec![3]]);
        assert!(directory.is_dir(), "under the same stamp");
    }

    #[test]
    fn a_file_that_is_set_aside_keeps_its_directory() {
        let file = file_of(&Source::from(Path::new("/x/group-2.redb")));
        let of = |name: &str| file.directory(&Path::new("/x").join(name), 0xAB);
        assert_eq!(of("group-2.redb"), Path::new("/x/group-2.rows-00000000000000ab"));
        assert_eq!(of("group-2.redb"), of("group-2.redb.lost-7.again"));
    }
}
