//! The rows of a replica: checkpoints into them, snapshots out of them and in their place.

use std::collections::BTreeSet;
use std::io;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use redb::{ReadTransaction, ReadableDatabase};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use super::tables::{self, Checkpoint, Discard, Install, Part, Run, Stage};
use crate::raft::ServeError;
use crate::raft::log_store::LogStore;
use crate::raft::serve::stopped;
use crate::raft::snapshot::{SnapshotBody, SnapshotInbox, malformed};
use crate::raft::wire;
use crate::storage::{PersistError, Row, SubmitError, rows};

/// Cloneable handle on the rows of one member.
#[derive(Clone)]
pub(super) struct Rows {
    store: LogStore,
    /// The valid generation, as of what the writer has done.
    valid: Arc<AtomicU64>,
    /// The last generation given out.
    staged: Arc<AtomicU64>,
}

impl Rows {
    pub fn open(store: LogStore) -> Result<(Self, Option<Checkpoint>), PersistError> {
        let (generation, checkpoint) = tables::read_rows(&store.db().begin_read()?)?;
        // Nothing depends on it: what a refused sweep leaves, the next opening removes.
        let _ = store.try_put(Discard::AllBut(generation));
        let rows = Self { store, valid: Arc::new(generation.into()), staged: Arc::new(generation.into()) };
        Ok((rows, checkpoint))
    }

    pub fn store(&self) -> &LogStore {
        &self.store
    }

    pub fn generation(&self) -> u64 {
        self.valid.load(Ordering::Acquire)
    }

    /// Rows of generations before are not needed any more.
    pub fn reader(&self, generation: u64) -> RowsReader {
        // Nothing depends on it either.
        let _ = self.store.try_put(Discard::Before(generation));
        RowsReader { store: self.store.clone(), prefix: tables::prefix(generation).into() }
    }

    /// Never waits. The answer comes when the part is durable.
    pub fn checkpoint(
        &self,
        generation: u64,
        rows: Vec<Row>,
        completes: Option<Checkpoint>,
    ) -> Result<oneshot::Receiver<Result<(), PersistError>>, SubmitError> {
        let (done, outcome) = oneshot::channel();
        self.store.try_put(Part { generation, valid: self.valid.clone(), rows, completes, done: Some(done) })?;
        Ok(outcome)
    }

    /// The last complete checkpoint, to be read.
    pub fn image(&self) -> Result<Option<(Checkpoint, Image)>, PersistError> {
        let read = self.store.db().begin_read()?;
        let (generation, checkpoint) = tables::read_rows(&read)?;
        let Some(checkpoint) = checkpoint else { return Ok(None) };
        let Checkpoint { commands, founder, .. } = checkpoint;
        let stored = Stored { read, generation, commands, founder };
        Ok(Some((checkpoint, Image::Stored(Box::new(stored)))))
    }

    /// Puts a snapshot of another member in the place of the rows, which stay until a [`reader`](Self::reader) is made of the new ones;
    /// returns the generation.
    pub async fn install(&self, mut staged: Staged, checkpoint: Checkpoint) -> Result<u64, io::Error> {
        let generation = staged.generation;
        let (done, outcome) = oneshot::channel();
        staged.is_installed = true;
        self.store.put(Install { generation, valid: self.valid.clone(), checkpoint, done: Some(done) }).await?;
        outcome.await.map_err(|_| io::Error::other("the log has stopped"))??;
        Ok(generation)
    }
}

/// Reads the durable rows of one position and of the checkpoints made since, also while another member's snapshot takes their place. The
/// file is open while it lives.
#[derive(Clone)]
pub struct RowsReader {
    store: LogStore,
    prefix: Arc<str>,
}

impl RowsReader {
    /// Calls `visit(key, value)` for each row of `table`, in key order, for as long as it says that it wants more; a missing table has no
    /// rows.
    pub fn scan(&self, table: &str, visit: impl FnMut(&[u8], &[u8]) -> bool) -> Result<(), PersistError> {
        rows::scan_while(&self.store.db().begin_read()?, &self.name_of(table), visit)
    }

    /// The value of one row.
    pub fn get(&self, table: &str, key: &[u8]) -> Result<Option<Vec<u8>>, PersistError> {
        rows::get(&self.store.db().begin_read()?, &self.name_of(table), key)
    }

    fn name_of(&self, table: &str) -> String {
        format!("{}{table}", self.prefix)
    }
}

/// A snapshot as openraft hands it around.
pub enum Image {
    /// Rows in the own file, as of one moment.
    Stored(Box<Stored>),
    /// Rows of another member, all of them staged.
    Staged(Staged),
}

/// See [`Image::Stored`]. It keeps what the file holds while it lives.
pub struct Stored {
    read: ReadTransaction,
    generation: u64,
    commands: u64,
    founder: Option<u64>,
}

/// See [`Image::Staged`]. Dropping it removes what was not installed.
pub struct Staged {
    store: LogStore,
    generation: u64,
    pub(super) commands: u64,
    pub(super) founder: Option<u64>,
    is_installed: bool,
}

impl Drop for Staged {
    fn drop(&mut self) {
        if !self.is_installed {
            let _ = self.store.try_put(Discard::Only(self.generation));
        }
    }
}

/// A piece of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Piece {
    transfer: u64,
    number: u64,
    /// How many pieces there are; the last one says it.
    pieces: Option<u64>,
    /// Commands that the snapshot contains.
    commands: u64,
    /// The group that it is of.
    founder: Option<u64>,
    runs: Vec<Run>,
}

impl SnapshotBody for Image {
    fn pieces(self, transfer: u64, piece_bytes: usize) -> impl Iterator<Item = io::Result<Bytes>> + Send {
        let mut reader = match self {
            Self::Stored(stored) => Some(Reader::new(*stored, transfer, piece_bytes)),
            Self::Staged(_) => None,
        };
        std::iter::from_fn(move || match reader.take()? {
            Err(error) => Some(Err(error.into())),
            Ok(mut open) => match open.next_piece() {
                Ok(piece) => {
                    reader = piece.pieces.is_none().then_some(Ok(open));
                    Some(Ok(wire::encode(&piece)))
                }
                Err(error) => Some(Err(error.into())),
            },
        })
    }
}

/// Reads rows piece by piece.
struct Reader {
    stored: Stored,
    tables: Vec<String>,
    /// Where the next piece begins: a table, behind a key.
    table: usize,
    behind: Option<Vec<u8>>,
    transfer: u64,
    number: u64,
    piece_bytes: usize,
}

impl Reader {
    fn new(stored: Stored, transfer: u64, piece_bytes: usize) -> Result<Self, PersistError> {
        let tables = rows::tables(&stored.read, &tables::prefix(stored.generation))?;
        Ok(Self { stored, tables, table: 0, behind: None, transfer, number: 0, piece_bytes })
    }

    fn next_piece(&mut self) -> Result<Piece, PersistError> {
        let mut runs = Vec::new();
        let mut bytes = 0;
        while self.table < self.tables.len() && bytes < self.piece_bytes {
            let run = self.next_run(self.piece_bytes - bytes)?;
            bytes += run.bytes();
            runs.push(run);
        }
        let number = self.number;
        self.number += 1;
        let pieces = (self.table == self.tables.len()).then_some(self.number);
        let Stored { commands, founder, .. } = self.stored;
        Ok(Piece { transfer: self.transfer, number, pieces, commands, founder, runs })
    }

    /// Rows of one table up to and including the one that reaches `bytes_max`.
    fn next_run(&mut self, bytes_max: usize) -> Result<Run, PersistError> {
        let table = self.tables[self.table].clone();
        let name = format!("{}{table}", tables::prefix(self.stored.generation));
        let open = self.stored.read.open_table(rows::definition(&name))?;
        let start = self.behind.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut rows = Vec::new();
        let mut bytes = 0;
        for row in open.range::<&[u8]>((start, Bound::Unbounded))? {
            let (key, value) = row?;
            let row = (Bytes::copy_from_slice(key.value()), Bytes::copy_from_slice(value.value()));
            bytes += row.0.len() + row.1.len();
            rows.push(row);
            if bytes >= bytes_max {
                self.behind = rows.last().map(|(key, _)| key.to_vec());
                return Ok(Run { table, rows });
            }
        }
        self.table += 1;
        self.behind = None;
        Ok(Run { table, rows })
    }
}

/// Where pieces of other members' snapshots arrive: each is staged in the file as it comes. A single snapshot is staged at a time; the
/// first piece of another takes its place.
pub(super) struct RowsInbox {
    rows: Rows,
    message_bytes_max: usize,
    snapshot_bytes_max: usize,
    staging: Mutex<Option<Staging>>,
}

struct Staging {
    from: u64,
    transfer: u64,
    staged: Staged,
    bytes: usize,
    received: BTreeSet<u64>,
    pieces: Option<u64>,
}

impl RowsInbox {
    pub fn new(rows: Rows, message_bytes_max: usize, snapshot_bytes_max: usize) -> Self {
        Self { rows, message_bytes_max, snapshot_bytes_max, staging: Mutex::default() }
    }

    /// The generation that a piece belongs to.
    fn admit(&self, from: u64, piece: &Piece) -> Result<u64, ServeError> {
        let mut staging = self.staging.lock().expect("a handler panicked");
        let goes_on = staging.as_ref().is_some_and(|open| (open.from, open.transfer) == (from, piece.transfer));
        if !goes_on {
            *staging = Some(self.begin(from, piece));
        }
        let open = staging.as_mut().expect("just put there");
        let bytes = open.bytes + piece.runs.iter().map(Run::bytes).sum::<usize>();
        let limit = self.snapshot_bytes_max;
        if bytes > limit {
            *staging = None;
            return Err(ServeError::TooLong { bytes, limit });
        }
        open.bytes = bytes;
        Ok(open.staged.generation)
    }

    fn begin(&self, from: u64, piece: &Piece) -> Staging {
        let store = self.rows.store.clone();
        let generation = self.rows.staged.fetch_add(1, Ordering::AcqRel) + 1;
        let commands = piece.commands;
        let founder = piece.founder;
        let staged = Staged { store, generation, commands, founder, is_installed: false };
        Staging { from, transfer: piece.transfer, staged, bytes: 0, received: BTreeSet::new(), pieces: None }
    }

    fn note(&self, generation: u64, number: u64, pieces: Option<u64>) {
        let mut staging = self.staging.lock().expect("a handler panicked");
        if let Some(open) = staging.as_mut().filter(|open| open.staged.generation == generation) {
            open.received.insert(number);
            open.pieces = open.pieces.or(pieces);
        }
    }
}

impl SnapshotInbox for RowsInbox {
    type Body = Image;

    async fn take(&self, from: u64, piece: &[u8]) -> Result<(), ServeError> {
        let piece: Piece = wire::decode(piece, self.message_bytes_max)?;
        let generation = self.admit(from, &piece)?;
        let (done, outcome) = oneshot::channel();
        let stage = Stage { generation, runs: piece.runs, done: Some(done) };
        self.rows.store.put(stage).await.map_err(stopped)?;
        outcome.await.map_err(stopped)?.map_err(stopped)?;
        self.note(generation, piece.number, piece.pieces);
        Ok(())
    }

    fn finish(&self, from: u64, transfer: u64) -> Result<Image, ServeError> {
        let mut staging = self.staging.lock().expect("a handler panicked");
        let complete = staging.as_ref().is_some_and(|open| {
            let last = open.received.last().map(|last| last + 1);
            let whole = last == Some(open.received.len() as u64) && last == open.pieces;
            (open.from, open.transfer) == (from, transfer) && whole
        });
        let open = staging.take_if(|_| complete).ok_or_else(|| malformed("the snapshot is incomplete"))?;
        Ok(Image::Staged(open.staged))
    }
}

#[cfg(test)]
mod tests {
    use openraft::testing::log_id;
    use proptest::prelude::*;

    use super::*;
    use crate::raft::log_store::Layout;
    use crate::raft::types::{StoredMembership, TypeConfig};
    use crate::raft::{Config, Execution, Source};
    use crate::testing::{CrashDisk, CrashPoint};

    const ROWS: u64 = 40;

    fn try_open(disk: &CrashDisk) -> Option<(Rows, Option<Checkpoint>)> {
        let config = Config { execution: Execution::Inline, ..Config::new("demo", "rows") };
        let create_tables = tables::create_tables;
        let layout = Layout { format: tables::FORMAT, owner: "rows/1".into(), create_tables, replays: false };
        let store = LogStore::open_as(Source::Backend(Box::new(disk.clone())), &layout, &config).ok()?;
        Rows::open(store).ok()
    }

    fn open(disk: &CrashDisk) -> (Rows, Option<Checkpoint>) {
        try_open(disk).expect("a crashed disk opens")
    }

    fn checkpoint_at(index: u64) -> Checkpoint {
        let membership = StoredMembership::default();
        Checkpoint { log_id: log_id::<TypeConfig>(1, 1, index), membership, commands: index * 10, founder: Some(7) }
    }

    /// Rows that all say which checkpoint they are of.
    fn rows_of(index: u64, tables: &[&'static str]) -> Vec<Row> {
        let row = |table, n: u64| Row {
            table,
            key: n.to_be_bytes().to_vec().into(),
            value: Some(vec![index as u8; 1 + n as usize * 37 % 900].into()),
        };
        tables.iter().flat_map(|table| (0..ROWS).map(move |n| row(*table, n))).collect()
    }

    fn say(rows: &Rows, table: &str) -> Vec<u8> {
        said_by(&rows.reader(rows.generation()), table)
    }

    fn said_by(reader: &RowsReader, table: &str) -> Vec<u8> {
        let mut said = Vec::new();
        let add = |_: &[u8], value: &[u8]| {
            said.push(value[0]);
            true
        };
        reader.scan(table, add).unwrap();
        said
    }

    fn filled(disk: &CrashDisk, index: u64) -> Rows {
        let (rows, _) = open(disk);
        let tables = ["cells", "streams"];
        drop(rows.checkpoint(rows.generation(), rows_of(index, &tables), Some(checkpoint_at(index))).unwrap());
        rows
    }

    /// Sends what one has to the other; `None` when the other's disk dies.
    async fn send(from: &Rows, to: &Rows, transfer: u64) -> Option<()> {
        let inbox = RowsInbox::new(to.clone(), 1 << 20, 1 << 20);
        let (checkpoint, image) = from.image().unwrap().expect("a checkpoint");
        let mut pieces: Vec<Bytes> = image.pieces(transfer, 1000).map(Result::unwrap).collect();
        assert!(pieces.len() > 10);
        pieces.reverse();
        for piece in pieces {
            inbox.take(7, &piece).await.ok()?;
        }
        let Ok(Image::Staged(staged)) = inbox.finish(7, transfer) else { panic!("all pieces are there") };
        assert_eq!(staged.commands, checkpoint.commands);
        to.install(staged, checkpoint).await.ok().map(drop)
    }

    async fn crash_at(point: CrashPoint) {
        let source = filled(&CrashDisk::new(CrashPoint::Never), 9);
        let before = CrashDisk::new(CrashPoint::Never);
        drop(filled(&before, 5));
        let disk = before.reboot(usize::MAX, point);
        let installed = match try_open(&disk) {
            Some((rows, _)) => send(&source, &rows, 1).await.is_some(),
            None => false,
        };
        for kept in [0, 1, 3, usize::MAX] {
            let (rows, checkpoint) = open(&disk.reboot(kept, CrashPoint::Never));
            let index = checkpoint.expect("the old one or the new one").log_id.index();
            assert!(index == 9 || (index == 5 && !installed), "an installed snapshot is gone");
            for table in ["cells", "streams"] {
                assert_eq!(say(&rows, table), vec![index as u8; ROWS as usize], "a mixture");
            }
            send(&source, &rows, 2).await.expect("a healthy disk takes it again");
            assert_eq!(say(&rows, "cells"), vec![9; ROWS as usize]);
        }
    }

    #[tokio::test]
    async fn a_disk_that_dies_while_a_snapshot_is_installed_has_the_old_rows_or_the_new() {
        let source = filled(&CrashDisk::new(CrashPoint::Never), 9);
        let before = CrashDisk::new(CrashPoint::Never);
        drop(filled(&before, 5));
        let healthy = before.reboot(usize::MAX, CrashPoint::Never);
        send(&source, &open(&healthy).0, 1).await.expect("a healthy disk");
        let (syncs, writes) = healthy.operations();
        for n in 1..=syncs {
            crash_at(CrashPoint::Sync(n)).await;
        }
        for n in (1..=writes).step_by(3) {
            crash_at(CrashPoint::Write(n)).await;
        }
    }

    #[tokio::test]
    async fn what_is_not_installed_leaves_nothing_behind_and_old_checkpoints_have_no_effect() {
        let source = filled(&CrashDisk::new(CrashPoint::Never), 9);
        let disk = CrashDisk::new(CrashPoint::Never);
        let rows = filled(&disk, 5);
        let old = rows.generation();
        let reader = rows.reader(rows.generation());
        let inbox = RowsInbox::new(rows.clone(), 1 << 20, 1 << 20);
        let pieces: Vec<Bytes> = source.image().unwrap().unwrap().1.pieces(1, 1000).map(Result::unwrap).collect();
        inbox.take(7, &pieces[0]).await.unwrap();
        assert!(matches!(inbox.finish(7, 1), Err(ServeError::Malformed { .. })), "pieces are missing");
        inbox.take(8, &pieces[0]).await.unwrap();
        let staged_tables = || tables_of(&rows, |name| !name.starts_with(&tables::prefix(rows.generation())));
        assert_eq!(staged_tables().len(), 1, "the second transfer has replaced the first");
        drop(inbox);
        assert_eq!(staged_tables(), [""; 0]);
        send(&source, &rows, 2).await.unwrap();
        let late = rows.checkpoint(old, rows_of(6, &["cells"]), Some(checkpoint_at(6))).unwrap();
        late.await.unwrap().unwrap();
        assert_eq!(said_by(&reader, "cells"), vec![5; ROWS as usize], "who stands on the rows of before may read them");
        assert_eq!(reader.get("cells", &3u64.to_be_bytes()).unwrap().unwrap()[0], 5);
        assert_eq!(say(&rows, "cells"), vec![9; ROWS as usize]);
        drop(rows.checkpoint(rows.generation(), Vec::new(), None).unwrap().await);
        assert_eq!(staged_tables(), [""; 0], "they are gone with the next reader");
        assert_eq!(reader.get("cells", &3u64.to_be_bytes()), Ok(None));
        assert_eq!(rows.image().unwrap().unwrap().0, checkpoint_at(9));
    }

    fn tables_of(rows: &Rows, wanted: impl Fn(&str) -> bool) -> Vec<String> {
        let names = rows::tables(&rows.store.db().begin_read().unwrap(), "").unwrap();
        names.into_iter().filter(|name| name.starts_with("rows/") && wanted(name)).collect()
    }

    #[tokio::test]
    async fn a_snapshot_past_the_limit_is_refused() {
        let rows = filled(&CrashDisk::new(CrashPoint::Never), 5);
        let source = filled(&CrashDisk::new(CrashPoint::Never), 9);
        let inbox = RowsInbox::new(rows, 1 << 20, 2000);
        let pieces: Vec<Bytes> = source.image().unwrap().unwrap().1.pieces(1, 1000).map(Result::unwrap).collect();
        inbox.take(7, &pieces[0]).await.unwrap();
        let refused = inbox.take(7, &pieces[1]).await.unwrap_err();
        assert!(matches!(refused, ServeError::TooLong { limit: 2000, .. }), "{refused:?}");
    }

    proptest! {
        #[test]
        fn garbage_is_refused_and_never_a_panic(message in prop::collection::vec(prop_oneof![Just(0), any::<u8>()], 0..60)) {
            let decoded = wire::decode::<Piece>(&message, 40);
            prop_assert!(message.len() <= 40 || decoded.is_err());
            if let Ok(piece) = decoded {
                prop_assert_eq!(wire::decode::<Piece>(&wire::encode(&piece), usize::MAX), Ok(piece));
            }
        }
    }
}
