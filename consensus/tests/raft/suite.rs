//! openraft's own suite for log stores and state machines, on ours.

use bytes::Bytes;
use openraft::StorageError;
use openraft::testing::log::{StoreBuilder, Suite};
use tempfile::TempDir;
use tidemark_consensus::raft::{App, ApplyError, Config, Execution, LogStore, RestoreError, StateMachine, TypeConfig};

struct Nothing;

impl App for Nothing {
    fn apply(&mut self, _index: u64, _command: &[u8]) -> Result<(), ApplyError> {
        Ok(())
    }

    fn snapshot(&self) -> Bytes {
        Bytes::new()
    }

    fn restore(&mut self, _snapshot: &[u8]) -> Result<(), RestoreError> {
        Ok(())
    }
}

struct Files(Config);

impl StoreBuilder<TypeConfig, LogStore, StateMachine, TempDir> for Files {
    async fn build(&self) -> Result<(TempDir, LogStore, StateMachine), StorageError<TypeConfig>> {
        let dir = tempfile::tempdir().unwrap();
        let store = LogStore::open(dir.path().join("raft.redb"), 0, &self.0).unwrap();
        let machine = StateMachine::new(Box::new(Nothing), Box::new(|_| ()), store.clone());
        Ok((dir, store, machine))
    }
}

#[tokio::test]
async fn passes_with_a_writer_thread() {
    let config = Config::new("demo", "suite");
    Suite::test_all(Files(config)).await.unwrap();
}

#[tokio::test]
async fn passes_inline_and_with_little_memory() {
    let config = Config { execution: Execution::Inline, recent_bytes_max: 0, ..Config::new("demo", "suite") };
    Suite::test_all(Files(config)).await.unwrap();
}
