//! Rows in a directory of their own: a log-structured tree (fjall), for rows that are many and change at random.
//!
//! A write is one batch: all of it is there after a crash, or nothing. A write that returned is durable. A name of a few bytes beside the
//! rows (a `note`) changes with them in one batch.
//!
//! Budget of memory: [`LsmOptions::bytes_max`], plus one batch, what a merge of files holds, and some 2 bytes per row for what finds rows
//! in files.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use fjall::compaction::Leveled;
use fjall::config::{BlockSizePolicy, CompressionPolicy};
use fjall::{CompressionType, Database, Keyspace, KeyspaceCreateOptions, PersistMode, Readable, Snapshot};

use super::merging::{FILES_BEHIND, Merging};
use super::{PersistError, is_full};

/// Files that are kept open.
const OPEN_FILES_MAX: usize = 256;
/// They write memtables away; one thread merges files too if [`Merging`] falls behind. A single one might wait for itself when its queue is
/// full.
const WORKERS: usize = 2;
/// Nice value of threads that step back: with a tenth of what another thread's share is, they still come to an end beside two of those.
#[cfg(target_os = "linux")]
const STEPPED_BACK: i32 = 10;
/// Memtables that a tree fills before writes wait for the disk: four that are sealed, and the one that is written.
const MEMTABLES_MAX: u64 = 5;
/// A writer that does not wait pauses while this number of memtables is sealed.
const SEALED_UNWAITED: usize = 2;
/// Bytes of a row in a memtable besides its key and value, about.
const ROW_OVERHEAD_BYTES: usize = 48;
/// A read takes a block; smaller ones make a larger index, larger ones pack rows of one counter together.
const BLOCK_BYTES: u32 = 4 * 1_024;
/// fjall begins a journal at this size, whatever is in it: a hole in the file.
pub const JOURNAL_BYTES_MIN: u64 = 64 << 20;
/// fjall takes no smaller cache or memtable than makes sense with blocks of `BLOCK_BYTES`.
pub const CACHE_BYTES_MIN: u64 = 1 << 20;
/// A smaller memtable makes a file for every few thousand rows.
pub const MEMTABLE_BYTES_MIN: u64 = 1 << 20;
/// Where notes are kept.
const NOTES: &str = "#notes";

/// Settings of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LsmOptions {
    /// Blocks of rows that were read, in bytes.
    pub cache_bytes: u64,
    /// Rows that are not in a file of their own yet: a memtable is written away past this. Up to five may wait.
    pub memtable_bytes: u64,
    /// The journal, which is read at the next start: past this, memtables are written away so that it may go.
    pub journal_bytes: u64,
    /// Threads that write memtables away and merge files step back for all others of the machine (Linux; elsewhere they do not). For rows
    /// that no caller waits for.
    pub steps_back: bool,
}

impl Default for LsmOptions {
    /// 16 MiB of cache, memtables of 32 MiB, 128 MiB of journal.
    fn default() -> Self {
        Self { cache_bytes: 16 << 20, memtable_bytes: 32 << 20, journal_bytes: 128 << 20, steps_back: false }
    }
}

impl LsmOptions {
    /// Bytes of memory that the tree may hold, apart from a batch.
    pub fn bytes_max(&self) -> u64 {
        self.cache_bytes + MEMTABLES_MAX * self.memtable_bytes
    }

    /// A memtable is sealed at this size.
    fn sealed_at(&self) -> u64 {
        self.memtable_bytes.max(MEMTABLE_BYTES_MIN)
    }

    fn keyspace(&self) -> KeyspaceCreateOptions {
        KeyspaceCreateOptions::default()
            .max_memtable_size(self.sealed_at())
            .compaction_strategy(Arc::new(Leveled::default().with_l0_threshold(FILES_BEHIND)))
            .data_block_size_policy(BlockSizePolicy::all(BLOCK_BYTES))
            // A row of buckets is much like the next one: half the bytes. A table keeps what it was made with.
            .data_block_compression_policy(CompressionPolicy::all(CompressionType::Lz4))
            // Rows are read at the start, all of them, or by a key that is there.
            .expect_point_read_hits(true)
    }
}

/// The changes of one write besides rows: notes by name.
pub(crate) type Notes<'a> = &'a [(&'a str, Vec<u8>)];

/// An open tree.
pub(crate) struct Lsm {
    /// Ends before the rest.
    merging: Merging,
    db: Database,
    notes: Keyspace,
    options: LsmOptions,
    path: PathBuf,
    flush_delay: Duration,
    /// By table: what was written since its memtable was last sealed.
    unsealed: Mutex<BTreeMap<String, u64>>,
}

/// The rows of one moment; while it lives, what it shows is kept.
pub(crate) struct LsmNow {
    db: Database,
    options: LsmOptions,
    snapshot: Snapshot,
}

/// A row to write: table, key, and a value, or `None` to delete it.
pub(crate) type Change<'a> = (&'a str, &'a [u8], Option<&'a [u8]>);

impl Lsm {
    /// Opens the directory, or makes it.
    pub fn open(path: &Path, options: &LsmOptions, flush_delay: Duration) -> Result<Self, PersistError> {
        let db = match database(path, options) {
            Err(fjall::Error::JournalRecovery(_)) => without_unfinished_batch(path, options),
            opened => opened,
        };
        let db = db.map_err(persist_error)?;
        let notes = db.keyspace(NOTES, || options.keyspace()).map_err(persist_error)?;
        let step_back = if options.steps_back { step_back } else { || () };
        let merging = Merging::start(db.clone(), options.keyspace(), step_back);
        let merging = merging.map_err(|error| persist_error(error.into()))?;
        let path = path.to_owned();
        let unsealed = Mutex::default();
        Ok(Self { merging, db, notes, options: *options, path, flush_delay, unsealed })
    }

    /// Writes and deletes rows, and sets notes, all in one durable batch. Of two equal keys the later wins.
    pub fn write<'a>(&self, changes: impl Iterator<Item = Change<'a>>, notes: Notes<'_>) -> Result<(), PersistError> {
        if self.merging.has_failed() {
            return Err(self.failed(fjall::Error::Poisoned));
        }
        let mut changes: Vec<Change<'a>> = changes.collect();
        // A batch has one number: of two equal keys in it, fjall does not know the later. The sort keeps the order of equals.
        changes.sort_by_key(|(table, key, _)| (*table, *key));
        let mut batch = self.db.batch().durability(Some(PersistMode::SyncAll));
        let mut written = Vec::new();
        for table in changes.chunk_by(|a, b| a.0 == b.0) {
            let keyspace = table_of(&self.db, &self.options, table[0].0)?;
            let bytes =
                table.iter().map(|(_, key, value)| key.len() + value.map_or(0, <[u8]>::len) + ROW_OVERHEAD_BYTES);
            written.push((keyspace.clone(), bytes.sum::<usize>() as u64));
            for equals in table.chunk_by(|a, b| a.1 == b.1) {
                match equals.last() {
                    Some((_, key, Some(value))) => batch.insert(&keyspace, *key, *value),
                    Some((_, key, None)) => batch.remove(&keyspace, *key),
                    None => {}
                }
            }
        }
        for (name, value) in notes {
            batch.insert(&self.notes, *name, value.as_slice());
        }
        batch.commit().map_err(|error| self.failed(error))?;
        written.into_iter().try_for_each(|(keyspace, bytes)| self.seal_if_full(&keyspace, bytes))?;
        if !self.flush_delay.is_zero() {
            thread::sleep(self.flush_delay);
        }
        Ok(())
    }

    /// Writes or deletes one row, which is read so from then on and not synced. False: files are behind, and more would wait for them; nothing
    /// was changed.
    pub fn try_put(&self, table: &str, key: &[u8], value: Option<&[u8]>) -> Result<bool, PersistError> {
        if self.merging.has_failed() {
            return Err(self.failed(fjall::Error::Poisoned));
        }
        let keyspace = table_of(&self.db, &self.options, table)?;
        let is_behind = keyspace.sealed_memtable_count() >= SEALED_UNWAITED
            || keyspace.l0_table_count() >= usize::from(FILES_BEHIND);
        if is_behind {
            return Ok(false);
        }
        let written = match value {
            Some(value) => keyspace.insert(key, value),
            None => keyspace.remove(key),
        };
        written.map_err(|error| self.failed(error))?;
        let bytes = key.len() + value.map_or(0, <[u8]>::len) + ROW_OVERHEAD_BYTES;
        self.seal_if_full(&keyspace, bytes as u64)?;
        Ok(true)
    }

    /// The value of one row as it was written last.
    pub fn get(&self, table: &str, key: &[u8]) -> Result<Option<Vec<u8>>, PersistError> {
        let value = table_of(&self.db, &self.options, table)?.get(key).map_err(persist_error)?;
        Ok(value.map(|value| value.to_vec()))
    }

    /// fjall leaves it to its threads to seal a memtable, which grows while they merge: so that it does not, it is done here.
    fn seal_if_full(&self, keyspace: &Keyspace, bytes: u64) -> Result<(), PersistError> {
        let mut unsealed = self.unsealed.lock().unwrap_or_else(PoisonError::into_inner);
        let unsealed = unsealed.entry(keyspace.name().to_string()).or_default();
        *unsealed += bytes;
        if *unsealed >= self.options.sealed_at() {
            *unsealed = 0;
            keyspace.rotate_memtable().map_err(|error| self.failed(error))?;
            self.merging.is_due();
        }
        Ok(())
    }

    /// A note's value.
    pub fn note(&self, name: &str) -> Result<Option<Vec<u8>>, PersistError> {
        let value = self.notes.get(name).map_err(persist_error)?;
        Ok(value.map(|value| value.to_vec()))
    }

    /// All rows and notes as they are now.
    pub fn now(&self) -> LsmNow {
        LsmNow { db: self.db.clone(), options: self.options, snapshot: self.db.snapshot() }
    }

    /// Bytes of its files. Holes in them count.
    pub fn disk_bytes(&self) -> Result<u64, PersistError> {
        self.db.disk_space().map_err(persist_error)
    }

    /// Writes away what is in memory and merges all files of all tables; for measurements.
    pub fn compact(&self) -> Result<(), PersistError> {
        for name in self.db.list_keyspace_names() {
            let keyspace = table_of(&self.db, &self.options, &name)?;
            keyspace.rotate_memtable_and_wait().map_err(persist_error)?;
            keyspace.major_compact().map_err(persist_error)?;
        }
        Ok(())
    }

    /// A writing thread of fjall that fails leaves no reason behind; whether the disk is full can still be seen.
    #[allow(clippy::wildcard_enum_match_arm, reason = "fjall is of another crate and grows")]
    fn failed(&self, error: fjall::Error) -> PersistError {
        match error {
            fjall::Error::Poisoned => match probe(&self.path) {
                Err(error) if is_full(&error) => PersistError::Full(error.to_string()),
                _ => PersistError::Io(format!("{}: an earlier write of rows failed", self.path.display())),
            },
            other => persist_error(other),
        }
    }
}

impl LsmNow {
    /// Calls `visit(key, value)` for each row of a table, in key order, until it wants no more; a missing table has no rows.
    pub fn scan(&self, table: &str, mut visit: impl FnMut(&[u8], &[u8]) -> bool) -> Result<(), PersistError> {
        if !self.db.keyspace_exists(table) {
            return Ok(());
        }
        let keyspace = table_of(&self.db, &self.options, table)?;
        for row in self.snapshot.iter(&keyspace) {
            let (key, value) = row.into_inner().map_err(persist_error)?;
            if !visit(&key, &value) {
                break;
            }
        }
        Ok(())
    }

    /// The value of one row.
    pub fn get(&self, table: &str, key: &[u8]) -> Result<Option<Vec<u8>>, PersistError> {
        if !self.db.keyspace_exists(table) {
            return Ok(None);
        }
        let value = self.snapshot.get(&table_of(&self.db, &self.options, table)?, key).map_err(persist_error)?;
        Ok(value.map(|value| value.to_vec()))
    }

    /// As [`LsmNow::scan`], of the rows with keys that begin with these bytes.
    pub fn scan_prefix(
        &self,
        table: &str,
        prefix: &[u8],
        mut visit: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), PersistError> {
        if !self.db.keyspace_exists(table) {
            return Ok(());
        }
        for row in self.snapshot.prefix(&table_of(&self.db, &self.options, table)?, prefix) {
            let (key, value) = row.into_inner().map_err(persist_error)?;
            visit(&key, &value);
        }
        Ok(())
    }
}

fn table_of(db: &Database, options: &LsmOptions, name: &str) -> Result<Keyspace, PersistError> {
    db.keyspace(name, || options.keyspace()).map_err(persist_error)
}

/// Opens what is there, or makes it. A thread begins with the priority of the one that starts it, and fjall takes no other for its own.
fn database(path: &Path, options: &LsmOptions) -> Result<Database, fjall::Error> {
    if !options.steps_back {
        return database_here(path, options);
    }
    let open = || {
        step_back();
        database_here(path, options)
    };
    thread::scope(|scope| scope.spawn(open).join()).unwrap_or(Err(fjall::Error::Unrecoverable))
}

/// From here on, this thread and those that it starts step back for all others.
fn step_back() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::setpriority_process(None, STEPPED_BACK) {
        tracing::warn!(%error, "merges of rows keep the priority of the process");
    }
}

/// fjall asserts on some damaged files; a damaged file is an input, so that panic becomes an error.
fn database_here(path: &Path, options: &LsmOptions) -> Result<Database, fjall::Error> {
    let builder = Database::builder(path)
        .cache_size(options.cache_bytes.max(CACHE_BYTES_MIN))
        .max_journaling_size(options.journal_bytes.max(JOURNAL_BYTES_MIN))
        .max_cached_files(Some(OPEN_FILES_MAX))
        .worker_threads(WORKERS)
        // A damaged packed value would pass for the journal's end: all later values would be lost without a report.
        .journal_compression(CompressionType::None)
        .manual_journal_persist(true);
    let opened = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| builder.open()));
    opened.unwrap_or(Err(fjall::Error::Unrecoverable))
}

/// A batch is written and synced before the next begins. So at most the last batch of the newest journal may be damaged by a crash, and
/// then its write was not acknowledged. fjall drops a batch without an end, but refuses a batch when its end reached the disk before its
/// middle: the end goes here. A journal that is damaged elsewhere is refused as before, and left as it was.
fn without_unfinished_batch(path: &Path, options: &LsmOptions) -> Result<Database, fjall::Error> {
    let number = |path: &PathBuf| path.file_stem()?.to_str()?.parse::<u64>().ok();
    let entries = fs::read_dir(path)?.collect::<Result<Vec<_>, _>>()?;
    let journals = entries.into_iter().map(|entry| entry.path());
    let newest = journals.filter(|path| path.extension().is_some_and(|ending| ending == "jnl")).max_by_key(number);
    let newest = newest.ok_or(fjall::Error::Unrecoverable)?;
    let mut file = fs::OpenOptions::new().read(true).write(true).open(newest)?;
    let length = file.metadata()?.len();
    let (at, byte) = last_not_zero(&mut file)?.ok_or(fjall::Error::Unrecoverable)?;
    file.set_len(at)?;
    file.sync_all()?;
    let opened = database(path, options);
    if opened.is_err() {
        file.seek(SeekFrom::Start(at))?;
        file.write_all(&[byte])?;
        file.set_len(length)?;
        file.sync_all()?;
    }
    opened
}

/// The last byte that is not zero, and where: behind the last batch a journal is a hole.
fn last_not_zero(file: &mut fs::File) -> Result<Option<(u64, u8)>, io::Error> {
    const STEP: u64 = 1 << 20;
    let mut end = file.metadata()?.len();
    let mut buffer = vec![0; STEP as usize];
    while end > 0 {
        let start = end.saturating_sub(STEP);
        let piece = &mut buffer[..(end - start) as usize];
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(piece)?;
        if let Some(at) = piece.iter().rposition(|byte| *byte != 0) {
            return Ok(Some((start + at as u64, piece[at])));
        }
        end = start;
    }
    Ok(None)
}

/// Whether the disk takes a few bytes more. A single probe at a time: probes share a name.
fn probe(path: &Path) -> Result<(), io::Error> {
    static ONE: Mutex<()> = Mutex::new(());
    const PROBE_BYTES: usize = 1 << 20;
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let file = path.join("probe");
    let written = fs::write(&file, vec![1; PROBE_BYTES]).and_then(|()| fs::File::open(&file)?.sync_all());
    let _ = fs::remove_file(&file);
    written
}

#[allow(clippy::wildcard_enum_match_arm, reason = "fjall is of another crate and grows")]
pub(super) fn persist_error(error: fjall::Error) -> PersistError {
    let io = match error {
        fjall::Error::Io(error) | fjall::Error::Storage(fjall::LsmError::Io(error)) => error,
        fjall::Error::Poisoned | fjall::Error::Locked | fjall::Error::KeyspaceDeleted => {
            return PersistError::Io(format!("rows: {error:?}"));
        }
        damaged => return PersistError::corrupt(format_args!("rows: {damaged:?}")),
    };
    if is_full(&io) { PersistError::Full(io.to_string()) } else { PersistError::Io(io.to_string()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::merging::FILES_MERGED;

    const ROWS: u8 = 5;
    /// Some pages of the journal hold nothing but the middle of a row.
    const ROW_BYTES: usize = 10_000;

    fn open(path: &Path) -> Result<Lsm, PersistError> {
        Lsm::open(path, &LsmOptions::default(), Duration::ZERO)
    }

    /// Writes a batch of rows that all hold its number.
    fn write(lsm: &Lsm, number: u8) {
        let rows: Vec<(Vec<u8>, Vec<u8>)> = (0..ROWS).map(|row| (vec![row], vec![number; ROW_BYTES])).collect();
        let changes = rows.iter().map(|(key, value)| ("cells", key.as_slice(), Some(value.as_slice())));
        lsm.write(changes, &[("number", vec![number])]).unwrap();
    }

    /// The number that all rows and the note say.
    fn number(lsm: &Lsm) -> u8 {
        let number = lsm.note("number").unwrap().expect("a number")[0];
        let mut rows = 0;
        let scanned = lsm.now().scan("cells", |_, value| {
            assert_eq!(value, vec![number; ROW_BYTES], "half of a batch is there");
            rows += 1;
            true
        });
        scanned.unwrap();
        assert_eq!(rows, ROWS);
        number
    }

    /// Many short rows that are alike, in files.
    fn filled(lsm: &Lsm, from: u32, to: u32) {
        let rows: Vec<([u8; 4], Vec<u8>)> = (from..to).map(|row| (row.to_be_bytes(), like(row))).collect();
        lsm.write(rows.iter().map(|(key, value)| ("cells", key.as_slice(), Some(value.as_slice()))), &[]).unwrap();
        lsm.compact().unwrap();
    }

    fn like(row: u32) -> Vec<u8> {
        [&[7; 40], row.to_le_bytes().as_slice()].concat()
    }

    #[test]
    fn rows_that_are_alike_take_less_and_a_table_that_was_made_without_that_is_read_and_written_on() {
        const MANY: u32 = 20_000;
        let dir = tempfile::tempdir().unwrap();
        let plain = dir.path().join("plain");
        let packed = dir.path().join("packed");
        let options = LsmOptions::default();
        {
            let made = database(&plain, &options).unwrap();
            let uncompressed = CompressionPolicy::all(CompressionType::None);
            made.keyspace("cells", || options.keyspace().data_block_compression_policy(uncompressed)).unwrap();
        }
        let bytes = [plain, packed].map(|path| {
            filled(&open(&path).unwrap(), 0, MANY);
            let lsm = open(&path).unwrap();
            filled(&lsm, MANY, 2 * MANY);
            let mut row = 0u32;
            let scanned = lsm.now().scan("cells", |key, value| {
                assert_eq!((key, value), (row.to_be_bytes().as_slice(), like(row).as_slice()));
                row += 1;
                true
            });
            scanned.unwrap();
            assert_eq!(row, 2 * MANY);
            let tables = fs::read_dir(path.join("keyspaces")).unwrap();
            let files = tables.flat_map(|table| fs::read_dir(table.unwrap().path().join("tables")).unwrap());
            files.map(|file| file.unwrap().metadata().unwrap().len()).sum::<u64>()
        });
        assert!(bytes[0] > u64::from(2 * MANY) * 48 && bytes[1] < bytes[0] / 2, "{bytes:?}");
    }

    #[test]
    fn the_journal_is_not_packed() {
        let dir = tempfile::tempdir().unwrap();
        for number in 1..=2 {
            let before = if number == 1 { 0 } else { end(dir.path()) };
            write(&open(dir.path()).unwrap(), number);
            let rows = u64::from(ROWS) * ROW_BYTES as u64;
            assert!(end(dir.path()) > before + rows, "a row of equal bytes stands there as it is");
        }
    }

    /// The state that a crash leaves: all files as they are now.
    fn copy(from: &Path, to: &Path) {
        fs::create_dir_all(to).unwrap();
        for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
            let target = to.join(entry.file_name());
            if entry.path().is_dir() {
                copy(&entry.path(), &target);
            } else {
                fs::copy(entry.path(), target).unwrap();
            }
        }
    }

    fn journal(path: &Path) -> PathBuf {
        let mut files = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
        files.find(|path| path.extension().is_some_and(|ending| ending == "jnl")).expect("a journal")
    }

    fn end(path: &Path) -> u64 {
        last_not_zero(&mut fs::File::open(journal(path)).unwrap()).unwrap().unwrap().0 + 1
    }

    /// Puts zeros there, as a disk does that has written the pages around.
    fn lose(path: &Path, from: u64, to: u64) {
        use std::os::unix::fs::FileExt;
        let file = fs::OpenOptions::new().write(true).open(journal(path)).unwrap();
        file.write_all_at(&vec![0; (to - from) as usize], from).unwrap();
    }

    #[test]
    fn a_batch_of_which_a_crash_left_any_pages_is_gone_as_a_whole_and_those_before_are_there() {
        let dir = tempfile::tempdir().unwrap();
        let live = dir.path().join("live");
        let lsm = open(&live).unwrap();
        (1..=3).for_each(|number| write(&lsm, number));
        let begin = end(&live);
        write(&lsm, 4);
        let end = end(&live);
        let page = 4_096;
        let pages: Vec<(u64, u64)> = (begin / page..end.div_ceil(page))
            .map(|number| ((number * page).max(begin), ((number + 1) * page).min(end)))
            .collect();
        assert!(pages.len() > 10);
        // A page alone, all behind it, all before it.
        let lost = pages.iter().flat_map(|(from, to)| [(*from, *to), (*from, end), (begin, *to)]);
        for (case, (from, to)) in lost.enumerate() {
            let crashed = dir.path().join(case.to_string());
            copy(&live, &crashed);
            lose(&crashed, from, to);
            let found = open(&crashed).unwrap_or_else(|error| panic!("{from} to {to} of {begin} to {end}: {error}"));
            assert_eq!(number(&found), 3);
            write(&found, 5);
            drop(found);
            assert_eq!(number(&open(&crashed).unwrap()), 5, "what is written behind a cut is found");
            fs::remove_dir_all(&crashed).unwrap();
        }
        copy(&live, &dir.path().join("whole"));
        assert_eq!(number(&open(&dir.path().join("whole")).unwrap()), 4);
    }

    #[test]
    fn a_journal_that_is_damaged_before_its_last_batch_is_refused_and_stays_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let lsm = open(dir.path()).unwrap();
        write(&lsm, 1);
        let middle = end(dir.path()) / 2;
        write(&lsm, 2);
        drop(lsm);
        lose(dir.path(), middle, middle + 100);
        let damaged = fs::read(journal(dir.path())).unwrap();
        for _ in 0..2 {
            let refused = open(dir.path()).map(drop);
            assert!(matches!(refused, Err(PersistError::Corrupt(_))), "{refused:?}");
            assert!(fs::read(journal(dir.path())).unwrap() == damaged, "it is another now");
        }
    }

    #[test]
    fn of_equal_keys_in_one_batch_the_later_wins() {
        let dir = tempfile::tempdir().unwrap();
        let lsm = open(dir.path()).unwrap();
        let a = b"a".as_slice();
        let b = b"b".as_slice();
        let c = b"c".as_slice();
        let changes = [("t", a, Some(b)), ("u", a, None), ("t", b, Some(b)), ("t", a, Some(c)), ("t", b, None)];
        lsm.write(changes.into_iter(), &[]).unwrap();
        let mut rows = Vec::new();
        let mut collect = |table: &str| {
            let visit = |key: &[u8], value: &[u8]| rows.push((key.to_vec(), value.to_vec()));
            let mut visit = visit;
            lsm.now().scan(table, |key, value| {
                visit(key, value);
                true
            })
        };
        ["t", "u", "never written"].into_iter().for_each(|table| collect(table).unwrap());
        assert_eq!(rows, [(b"a".to_vec(), b"c".to_vec())]);
    }

    #[test]
    fn a_moment_stays_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let lsm = open(dir.path()).unwrap();
        write(&lsm, 1);
        let now = lsm.now();
        write(&lsm, 2);
        lsm.compact().unwrap();
        let mut said = Vec::new();
        let scanned = now.scan("cells", |_, value| {
            said.push(value[0]);
            said.len() < 3
        });
        scanned.unwrap();
        assert_eq!(said, [1, 1, 1], "as many as were wanted, as they were");
        assert_eq!(number(&lsm), 2);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn threads_of_a_tree_that_steps_back_have_a_lower_priority_and_no_other_has() {
        let nice = |task: &Path| -> Option<i32> {
            let stat = fs::read_to_string(task.join("stat")).ok()?;
            stat.rsplit_once(')')?.1.split_whitespace().nth(16)?.parse().ok()
        };
        let stepped_back = || {
            let tasks = fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
            tasks.filter(|task| nice(task) == Some(STEPPED_BACK)).count()
        };
        let dir = tempfile::tempdir().unwrap();
        let as_others = Lsm::open(&dir.path().join("a"), &LsmOptions::default(), Duration::ZERO).unwrap();
        assert_eq!(stepped_back(), 0);
        let options = LsmOptions { steps_back: true, ..LsmOptions::default() };
        let tree = Lsm::open(&dir.path().join("b"), &options, Duration::ZERO).unwrap();
        let all = WORKERS + 1;
        until("the thread that merges", || stepped_back() == all);
        assert_eq!(nice(Path::new("/proc/thread-self")), Some(0));
        drop((as_others, tree));
    }

    fn until(what: &str, mut holds: impl FnMut() -> bool) {
        let begun = std::time::Instant::now();
        while !holds() {
            assert!(begun.elapsed() < Duration::from_secs(20), "{what}: not in time");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Writes a file per write, with keys among those of all others.
    fn sealed(lsm: &Lsm, writes: std::ops::Range<u8>) -> Result<(), PersistError> {
        let row = vec![7; MEMTABLE_BYTES_MIN as usize];
        for write in writes {
            let keys = [[0, write], [9, write]];
            lsm.write(keys.iter().map(|key| ("cells", key.as_slice(), Some(row.as_slice()))), &[])?;
        }
        Ok(())
    }

    fn small(path: &Path) -> Lsm {
        let options = LsmOptions { memtable_bytes: MEMTABLE_BYTES_MIN, ..LsmOptions::default() };
        Lsm::open(path, &options, Duration::ZERO).unwrap()
    }

    #[test]
    fn files_are_merged_before_fjalls_threads_would() {
        let dir = tempfile::tempdir().unwrap();
        let lsm = small(dir.path());
        sealed(&lsm, 0..FILES_BEHIND - 1).unwrap();
        let cells = table_of(&lsm.db, &lsm.options, "cells").unwrap();
        until("few files", || cells.sealed_memtable_count() == 0 && cells.l0_table_count() < usize::from(FILES_MERGED));
    }

    #[test]
    fn what_a_tree_has_left_is_merged_when_it_is_opened() {
        let dir = tempfile::tempdir().unwrap();
        {
            let lsm = small(dir.path());
            lsm.merging.end();
            sealed(&lsm, 0..1).unwrap();
            let cells = table_of(&lsm.db, &lsm.options, "cells").unwrap();
            // Two that wait to be written away at the same time become one file.
            for write in 1..FILES_MERGED + 4 {
                until("a file", || cells.sealed_memtable_count() == 0);
                sealed(&lsm, write..write + 1).unwrap();
            }
            until("files", || cells.sealed_memtable_count() == 0 && cells.l0_table_count() > usize::from(FILES_MERGED));
        }
        let lsm = small(dir.path());
        let cells = table_of(&lsm.db, &lsm.options, "cells").unwrap();
        until("few files", || cells.l0_table_count() < usize::from(FILES_MERGED));
    }

    #[test]
    fn where_files_cannot_be_merged_no_more_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let lsm = small(dir.path());
        sealed(&lsm, 0..1).unwrap();
        let cells = table_of(&lsm.db, &lsm.options, "cells").unwrap();
        until("a file", || cells.sealed_memtable_count() == 0 && cells.table_count() > 0);
        for file in fs::read_dir(cells.path().join("tables")).unwrap().map(|file| file.unwrap().path()) {
            let bytes = fs::metadata(&file).unwrap().len();
            let mut file = fs::OpenOptions::new().write(true).open(file).unwrap();
            file.write_all(&vec![0; bytes as usize / 2]).unwrap();
        }
        sealed(&lsm, 1..FILES_BEHIND - 1)
            .unwrap_or_else(|error| assert!(matches!(error, PersistError::Io(_)), "{error}"));
        until("a merge that fails", || lsm.merging.has_failed());
        let refused = sealed(&lsm, 0..1);
        assert!(matches!(refused, Err(PersistError::Io(_))), "{refused:?}");
    }

    #[test]
    fn the_budget_is_what_is_stated() {
        assert_eq!(LsmOptions::default().bytes_max(), (16 + 5 * 32) << 20);
    }
}
