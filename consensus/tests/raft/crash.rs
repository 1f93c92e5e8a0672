//! The disk of a Raft member dies at any operation: what it promised is there, and log and vote agree.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use openraft::alias::{EntryOf, LogIdOf, VoteOf};
use openraft::entry::RaftEntry;
use openraft::storage::{RaftLogStorage, RaftLogStorageExt, RaftStateMachine};
use openraft::testing::log_id;
use openraft::{EntryPayload, RaftLogReader, RaftSnapshotBuilder};
use tidemark_consensus::raft::{
    App, ApplyError, Batch, Config, Execution, LogStore, OpenError, RestoreError, Source, StateMachine, TypeConfig,
};
use tidemark_consensus::testing::{CrashDisk, CrashPoint};

type Id = LogIdOf<TypeConfig>;

/// Remembers how many commands it applied.
struct Count(u64);

impl App for Count {
    fn apply(&mut self, _index: u64, _command: &[u8]) -> Result<(), ApplyError> {
        self.0 += 1;
        Ok(())
    }

    fn snapshot(&self) -> Bytes {
        self.0.to_be_bytes().to_vec().into()
    }

    fn restore(&mut self, snapshot: &[u8]) -> Result<(), RestoreError> {
        self.0 = u64::from_be_bytes(snapshot.try_into().map_err(|_| RestoreError("length".into()))?);
        Ok(())
    }
}

/// The promises of the store so far.
#[derive(Clone, Debug, Default)]
struct Promised {
    term: u64,
    durable: Option<u64>,
    snapshot: Option<u64>,
}

fn config() -> Config {
    Config { execution: Execution::Inline, ..Config::new("demo", "crash") }
}

fn try_open(disk: &CrashDisk) -> Result<LogStore, OpenError> {
    LogStore::open(Source::Backend(Box::new(disk.clone())), 1, &config())
}

fn open(disk: &CrashDisk) -> LogStore {
    try_open(disk).expect("a crashed log opens")
}

fn created(point: CrashPoint) -> CrashDisk {
    let disk = CrashDisk::new(CrashPoint::Never);
    drop(open(&disk));
    disk.reboot(usize::MAX, point)
}

fn entry(term: u64, index: u64) -> EntryOf<TypeConfig> {
    let command = Bytes::from(vec![term as u8; 1 + index as usize * 131 % 2500]);
    EntryOf::<TypeConfig>::new(
        log_id::<TypeConfig>(term, 1, index),
        EntryPayload::Normal(Batch::pack([command].iter())),
    )
}

async fn append(store: &mut LogStore, term: u64, index: u64, promised: &Mutex<Promised>) -> Option<()> {
    store.blocking_append([entry(term, index)]).await.ok()?;
    promised.lock().unwrap().durable = Some(index);
    Some(())
}

/// Votes, appends, a conflict that truncates, a snapshot, a purge; until the disk dies.
async fn work(disk: &CrashDisk, promised: &Mutex<Promised>) -> Option<()> {
    let mut store = try_open(disk).ok()?;
    let mut machine = StateMachine::new(Box::new(Count(0)), Box::new(|_| ()), store.clone());
    for term in 1..=3 {
        store.save_vote(&VoteOf::<TypeConfig>::new(term, 1)).await.ok()?;
        promised.lock().unwrap().term = term;
        let start = (term - 1) * 6;
        for index in start..start + 8 {
            append(&mut store, term, index, promised).await?;
        }
        let keep = log_id::<TypeConfig>(term, 1, start + 5);
        promised.lock().unwrap().durable = Some(keep.index());
        store.truncate_after(Some(keep)).await.ok()?;
        let applied = (start..=keep.index()).map(|index| Ok((entry(term, index), None)));
        machine.apply(futures_util::stream::iter(applied)).await.ok()?;
        store.save_committed(Some(keep)).await.ok()?;
        machine.get_snapshot_builder().await.build_snapshot().await.ok()?;
        promised.lock().unwrap().snapshot = Some(keep.index());
        store.purge(log_id::<TypeConfig>(term, 1, start + 2)).await.ok()?;
    }
    Some(())
}

async fn verify(disk: &CrashDisk, promised: &Promised) {
    let mut store = open(disk);
    let vote = store.read_vote().await.unwrap();
    let term = vote.map_or(0, |vote| vote.leader_id.term);
    assert!(term >= promised.term, "a vote was forgotten: {promised:?}");
    let state = store.get_log_state().await.unwrap();
    let last = state.last_log_id.map(|id: Id| id.index());
    assert!(last >= promised.durable, "lost entries: {last:?} {promised:?}");
    assert!(state.last_log_id.is_none_or(|id| id.committed_leader_id().term <= term), "entries of a term not voted in");

    let first = state.last_purged_log_id.map_or(0, |id| id.index() + 1);
    let end = last.map_or(0, |last| last + 1);
    let entries = store.try_get_log_entries(0..u64::MAX).await.unwrap();
    let indices: Vec<u64> = entries.iter().map(|entry| entry.index()).collect();
    assert_eq!(indices, (first..end).collect::<Vec<_>>(), "a hole");
    assert!(entries.iter().all(|found| *found == entry(found.log_id.committed_leader_id().term, found.index())));

    let committed = store.read_committed().await.unwrap();
    assert!(committed <= state.last_log_id, "committed entries are missing");
    let mut machine = StateMachine::new(Box::new(Count(0)), Box::new(|_| ()), store.clone());
    let snapshot = machine.get_current_snapshot().await.unwrap();
    let covered = snapshot.as_ref().and_then(|snapshot| snapshot.meta.last_log_id).map(|id| id.index());
    assert!(covered >= promised.snapshot && covered >= state.last_purged_log_id.map(|id| id.index()));
    if let Some(snapshot) = snapshot {
        assert_eq!(snapshot.snapshot.as_ref(), (covered.unwrap() + 1).to_be_bytes(), "a torn snapshot");
    }
}

async fn crash_at(point: CrashPoint) {
    let disk = created(point);
    let promised = Arc::new(Mutex::new(Promised::default()));
    work(&disk, &promised).await;
    assert!(disk.is_dead());
    let promised = promised.lock().unwrap().clone();
    for kept in [0, 1, 3, usize::MAX] {
        verify(&disk.reboot(kept, CrashPoint::Never), &promised).await;
    }
}

#[tokio::test]
async fn every_sync_and_every_write_may_be_the_last() {
    let healthy = created(CrashPoint::Never);
    work(&healthy, &Mutex::default()).await.expect("a healthy disk");
    let (syncs, writes) = healthy.operations();
    for n in 1..=syncs {
        crash_at(CrashPoint::Sync(n)).await;
    }
    for n in 1..=writes {
        crash_at(CrashPoint::Write(n)).await;
    }
}
