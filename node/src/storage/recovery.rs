//! From the disk to a running core: the rows of the last checkpoint, then the log behind it. One thread reads and decodes. It is ahead of
//! the thread that puts the core together in the same order.

use super::{ROWS, StartError};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Instant;
use tidemark_consensus::local::{LocalLog, Recovered};
use tidemark_proto::group::{LoadError, RowReader, Stored, is_shelved};
use tidemark_proto::ids::LogIndex;
use tidemark_proto::node::{NodeConfig, NodeCore, ReadEntry, RecoverError, Recovery, Replay};

/// Rows of about this number of bytes are handed over at a time: few enough to stay in a cache.
const ROWS_BYTES: usize = 128 << 10;
/// Pieces that are read and not taken yet, rows or an entry each; past it the thread that reads waits.
const AHEAD_MAX: usize = 16;

/// A piece that was read; an error is the last.
type Read = Result<Piece, StartError>;

enum Piece {
    Rows(Vec<Stored>),
    RowsEnd { rows: u64, bytes: u64 },
    Entry { bytes: u64, entry: ReadEntry },
}

/// The disk that is read.
pub struct Disk<'a> {
    pub log: &'a LocalLog,
    pub recovered: &'a Recovered,
    pub path: &'a Path,
    /// It took so long to open.
    pub opened_ms: u64,
}

impl Disk<'_> {
    /// The core as it was.
    pub fn recover(&self, config: NodeConfig, nonce: u64) -> Result<NodeCore, StartError> {
        thread::scope(|scope| {
            let (to, read) = sync_channel(AHEAD_MAX);
            scope.spawn(move || self.read(&to));
            self.put_together(config, nonce, read)
        })
    }

    fn refuse(&self, source: impl Into<RecoverError>) -> StartError {
        StartError::Recover { path: self.path.display().to_string(), source: source.into() }
    }

    // ---- one thread ----

    fn read(&self, to: &SyncSender<Read>) {
        if let Err(error) = self.read_rows(to).and_then(|()| self.read_entries(to)) {
            // A receiver that takes no more has met an error before it.
            let _ = to.send(Err(error));
        }
    }

    fn read_rows(&self, to: &SyncSender<Read>) -> Result<(), StartError> {
        let mut reader = RowReader::default();
        let mut counts = Vec::new();
        let mut refused = None;
        let mut rows = 0;
        let mut bytes = 0;
        let mut held = 0;
        self.log.rows()?.scan(ROWS, |key, value| {
            // They are read by their keys when a caller wants them.
            if is_shelved(key) {
                return false;
            }
            let size = key.len() + value.len();
            (rows, bytes, held) = (rows + 1, bytes + size as u64, held + size);
            refused = reader.row(key, value, &mut counts).err();
            if refused.is_some() || held < ROWS_BYTES {
                return refused.is_none();
            }
            held = 0;
            to.send(Ok(Piece::Rows(std::mem::take(&mut counts)))).is_ok()
        })?;
        let ended: Result<(), LoadError> = refused.map_or_else(|| reader.end(&mut counts), Err);
        let _ = to.send(Ok(Piece::Rows(counts)));
        ended.map_err(|error| self.refuse(error))?;
        let _ = to.send(Ok(Piece::RowsEnd { rows, bytes }));
        Ok(())
    }

    fn read_entries(&self, to: &SyncSender<Read>) -> Result<(), StartError> {
        for entry in self.recovered.entries_after(self.recovered.applied)? {
            let (index, bytes) = entry?;
            let entry = ReadEntry::read(LogIndex(index), &bytes);
            if to.send(Ok(Piece::Entry { bytes: bytes.len() as u64, entry })).is_err() {
                break;
            }
        }
        Ok(())
    }

    // ---- the other ----

    fn put_together(&self, config: NodeConfig, nonce: u64, read: Receiver<Read>) -> Result<NodeCore, StartError> {
        let Recovered { applied, last, .. } = *self.recovered;
        let opened_ms = self.opened_ms;
        if last > 0 {
            tracing::info!(opened_ms, applied, last, "its log is open: reads its checkpoint");
        }
        let begun = Instant::now();
        let (replay, rows, row_bytes) = self.rows(config, &read)?;
        let rows_ms = ms_since(begun);
        if last > 0 {
            tracing::info!(rows, rows_ms, "its checkpoint is read: applies the log behind it");
        }
        let begun = Instant::now();
        let (replay, entries, entry_bytes) = self.entries(replay, &read)?;
        let entries_ms = ms_since(begun);
        if last > 0 {
            tracing::info!(
                opened_ms,
                rows,
                row_bytes,
                rows_ms,
                entries,
                entry_bytes,
                entries_ms,
                "recovered from its disk"
            );
        }
        Ok(replay.node(nonce))
    }

    fn rows(&self, config: NodeConfig, read: &Receiver<Read>) -> Result<(Replay, u64, u64), StartError> {
        let mut recovery = Recovery::new(config);
        for piece in read {
            match piece? {
                Piece::Rows(rows) => {
                    let taken = rows.into_iter().try_for_each(|row| recovery.row(row));
                    taken.map_err(|error| self.refuse(error))?;
                }
                Piece::RowsEnd { rows, bytes } => {
                    let replay = recovery.replay().map_err(|error| self.refuse(error))?;
                    return Ok((replay, rows, bytes));
                }
                Piece::Entry { .. } => unreachable!("rows end before entries begin"),
            }
        }
        unreachable!("what is read ends with an error, or behind its rows")
    }

    fn entries(&self, mut replay: Replay, read: &Receiver<Read>) -> Result<(Replay, u64, u64), StartError> {
        let mut entries = 0;
        let mut entry_bytes = 0;
        for piece in read {
            let Piece::Entry { bytes, entry } = piece? else { continue };
            (entries, entry_bytes) = (entries + 1, entry_bytes + bytes);
            replay.entry(entry).map_err(|error| self.refuse(error))?;
        }
        Ok((replay, entries, entry_bytes))
    }
}

fn ms_since(begun: Instant) -> u64 {
    begun.elapsed().as_millis() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemark_consensus::local::{
        CheckpointPart, Execution, Identity, LocalLogOptions, LogEvent, LsmOptions, Row, RowStore,
    };
    use tidemark_proto::group::{Group, GroupConfig};
    use tidemark_proto::hash::lane_of;
    use tidemark_proto::ids::{CellId, ClientId, CounterName, DcId, GroupId, Start};
    use tidemark_proto::msg::{Batch, GroupCmd, GroupEntry, Item, ToGroup};
    use tidemark_proto::time::WallMs;
    use tidemark_proto::wire::encode;

    /// Their rows are more than is read ahead.
    const COUNTERS: u32 = 100_000;
    const PER_ENTRY: u32 = 1_000;

    fn config() -> GroupConfig {
        GroupConfig::new(GroupId { dc: DcId(0), group: 0, incarnation: 1 }, 1)
    }

    fn open(path: &Path) -> (LocalLog, Recovered) {
        let identity = Identity { cluster: "demo".into(), owner: "recovery".into() };
        let rows = RowStore::Apart(LsmOptions::default());
        let options = LocalLogOptions { rows, execution: Execution::Inline, ..LocalLogOptions::new(identity) };
        LocalLog::open(path, options, |event| assert!(!matches!(event, LogEvent::Failed(_)), "{event:?}")).unwrap()
    }

    fn recover(path: &Path) -> Result<NodeCore, StartError> {
        let (log, recovered) = open(path);
        let disk = Disk { log: &log, recovered: &recovered, path, opened_ms: 0 };
        disk.recover(NodeConfig { group: config(), ..NodeConfig::new(config().id, 1) }, 1)
    }

    /// A group with its log.
    struct Logged {
        log: LocalLog,
        group: Group,
        batches: u64,
    }

    impl Logged {
        fn apply(&mut self, new_cells: Vec<CellId>, cmds: Vec<GroupCmd>) {
            let first_new_slot = self.group.table().len();
            let entry = GroupEntry { now: WallMs(0), first_new_slot, new_cells, cmds };
            let index = self.log.append(vec![encode(&entry).into()]).unwrap();
            self.group.apply(LogIndex(index), &entry);
            while self.group.poll_effect().is_some() {}
        }

        /// Counts one more for each of these counters.
        fn count(&mut self, slots: std::ops::Range<u32>, new_cells: Vec<CellId>) {
            self.batches += 1;
            let items = slots.map(|slot| Item { slot, delta: 1, session: None }).collect();
            let client = ClientId(7);
            let lane = 0;
            let seq = self.batches;
            self.apply(
                new_cells,
                vec![GroupCmd::Batch(Batch { client, lane, seq, since: 0, items, times: Vec::new() })],
            );
        }

        fn checkpoint(&mut self, rows: Vec<(Vec<u8>, Vec<u8>)>) {
            let rows = rows.into_iter();
            let rows = rows.map(|(key, value)| Row { table: ROWS, key: key.into(), value: Some(value.into()) });
            let part = CheckpointPart { applied: self.log.last_index(), last: true, rows: rows.collect() };
            self.log.checkpoint(part).unwrap();
        }
    }

    /// A log with a checkpoint of many counters, and entries behind it.
    fn filled(path: &Path) -> Logged {
        let mut logged = Logged { log: open(path).0, group: Group::new(config()), batches: 0 };
        let start = Start { number: 1, nonce: 1 };
        let confirmed = ToGroup::Confirmed { group: config().id, start, accounts: Vec::new(), resets: 0 };
        let namespaces = ToGroup::Namespaces(vec!["n".into()]);
        logged.apply(Vec::new(), vec![config().boot(1), GroupCmd::Ledger(confirmed), GroupCmd::Ledger(namespaces)]);
        for first in (0..COUNTERS).step_by(PER_ENTRY as usize) {
            let slots = first..first + PER_ENTRY;
            let name = |slot: u32| CounterName::new("n", format!("counter {slot:016}").as_bytes()).unwrap();
            assert_eq!(lane_of(&name(first), 1), 0);
            logged.count(slots.clone(), slots.map(|slot| name(slot).total()).collect());
        }
        let rows = logged.group.checkpoint();
        assert!(rows.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>() > AHEAD_MAX * ROWS_BYTES);
        logged.checkpoint(rows);
        (0..3).for_each(|_| logged.count(0..PER_ENTRY, Vec::new()));
        logged
    }

    #[test]
    fn what_is_read_ahead_of_a_start_comes_to_the_state_that_was_left() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("group.redb");
        let Logged { log, group, .. } = filled(&path);
        drop(log);
        let core = recover(&path).unwrap();
        assert_eq!(core.group().applied(), group.applied());
        let values = |group: &Group| (0..group.table().len()).map(|slot| group.sum(slot)).collect::<Vec<_>>();
        assert!(values(core.group()) == values(&group));
        core.check_invariants();
    }

    #[test]
    fn a_start_that_is_refused_at_its_first_rows_reads_no_further_and_says_why() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("group.redb");
        let mut logged = filled(&path);
        let first_names = vec![1, 0, 0, 0, 0, 1];
        logged.checkpoint(vec![(first_names, vec![1, 0xff])]);
        drop(logged);
        let refused = recover(&path).map(drop).unwrap_err().to_string();
        assert!(refused.contains("a name is malformed") && refused.contains("group.redb"), "{refused}");
    }
}
