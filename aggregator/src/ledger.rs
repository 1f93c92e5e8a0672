//! The ledger's replica in this process: the state machine behind the ledger's Raft.

use bytes::Bytes;
use std::sync::{Arc, Mutex, MutexGuard};
use tidemark_consensus::raft::{App, ApplyError, RestoreError};
use tidemark_proto::ids::LogIndex;
use tidemark_proto::ledger::Ledger;
use tidemark_proto::msg::LedgerCmd;
use tidemark_proto::wire;

/// No numbers of resets, nor how far they have come: what a snapshot lacks that was made before resets had numbers.
const NO_RESET_NUMBERS: &[u8] = &[0; 3];
/// Nor births: one that was made before the cluster had any.
const NO_BIRTHS: &[u8] = &[0; 5];
/// Nor owners of ids: one that was made before ids were remembered.
const NO_ID_OWNERS: &[u8] = &[0; 6];
/// Nor a clock of a leader, nor times of awards: one that was made before awards had times.
const NO_TIMES: &[u8] = &[0; 8];
/// Nor splits of slots: one that was made before there were any.
const NO_SPLITS: &[u8] = &[0; 10];
/// Nor moves of slots: one that was made before there were any.
const NO_MOVES: &[u8] = &[0; 12];
/// Nor edges between counters: one that was made before there were any.
const NO_EDGES: &[u8] = &[0; 13];
/// Nor namespaces with series: one that was made before there were any.
const NO_SERIES: &[u8] = &[0; 14];
/// Nor voters that are to vote again: one that was made before any were noted.
const NO_RETURNING: &[u8] = &[0; 15];
/// Nor anything that lost its turn: one that was made before anything could.
const NO_DEFERRED: &[u8] = &[0; 16];
/// Nor namespaces of counters that go down: one that was made before there were any.
const NO_UPDOWN: &[u8] = &[0; 17];
/// Nor starts of views: one that was made before there were pairs of aggregators.
const NO_VIEW_STARTS: &[u8] = &[0; 18];
/// Nor forgotten data centres: one that was made before any could be.
const NO_FORGOTTEN: &[u8] = &[0; 19];
/// Nor lives of counters: one that was made before counters could begin again.
const NO_RESETS: &[u8] = &[0; 20];
/// Nor groups that are lost, nor losses: one that was made before any could be.
const NO_LOSSES: &[u8] = &[0; 22];
/// Nor terms of milestones: one that was made before there were leases.
const NO_TERMS: &[u8] = &[0; 23];
/// Nor turns of claims: one that was made before they were kept.
const NO_TURNS: &[u8] = &[0; 24];
/// Nor rules, claims, open ones, waiting ones: one that was made before there were claims.
const NO_CLAIMS: &[u8] = &[0; 28];

/// The applied state, shared between Raft (which applies) and the host (which reads).
#[derive(Clone, Default)]
pub struct SharedLedger(Arc<Mutex<Ledger>>);

impl SharedLedger {
    pub fn lock(&self) -> MutexGuard<'_, Ledger> {
        self.0.lock().expect("apply never panics")
    }
}

/// Raft's view of the ledger.
pub struct LedgerApp(pub SharedLedger);

impl App for LedgerApp {
    fn apply(&mut self, index: u64, command: &[u8]) -> Result<(), ApplyError> {
        apply(&mut self.0.lock(), index, command)
    }

    /// Readers see whole entries: what is awarded by one of them has one index, and comes at once.
    fn apply_entry(&mut self, index: u64, commands: &mut dyn Iterator<Item = &[u8]>) -> Result<(), ApplyError> {
        let mut ledger = self.0.lock();
        for command in commands {
            apply(&mut ledger, index, command)?;
        }
        Ok(())
    }

    fn snapshot(&self) -> Bytes {
        let ledger = self.0.lock();
        // Growing would copy all of it, while readers wait.
        let bytes = Vec::with_capacity(ledger.graph().stored_bytes_about());
        postcard::to_extend(&*ledger, bytes).expect("the ledger holds only what postcard can encode").into()
    }

    fn restore(&mut self, snapshot: &[u8]) -> Result<(), RestoreError> {
        let ledger = read_ledger(snapshot);
        let ledger = ledger.map_err(|error| RestoreError(error.to_string()))?;
        self.0.lock().replace(ledger);
        Ok(())
    }
}

/// Why a state of the ledger is not read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LedgerStateError {
    #[error(transparent)]
    Malformed(#[from] postcard::Error),
    #[error("{bytes} bytes of it are not understood: a later version wrote it; upgrade this process")]
    Later { bytes: usize },
}

/// Reads a state of the ledger, of this program or an earlier one.
pub fn read_ledger(snapshot: &[u8]) -> Result<Ledger, LedgerStateError> {
    let with = |missing| move |_| read(&[snapshot, missing].concat());
    let ledger = read(snapshot)
        .or_else(with(NO_RESET_NUMBERS))
        .or_else(with(NO_BIRTHS))
        .or_else(with(NO_ID_OWNERS))
        .or_else(with(NO_TIMES))
        .or_else(with(NO_SPLITS))
        .or_else(with(NO_MOVES))
        .or_else(with(NO_EDGES))
        .or_else(with(NO_SERIES))
        .or_else(with(NO_RETURNING))
        .or_else(with(NO_DEFERRED))
        .or_else(with(NO_UPDOWN))
        .or_else(with(NO_VIEW_STARTS))
        .or_else(with(NO_FORGOTTEN));
    let ledger = ledger.or_else(with(NO_RESETS));
    ledger.or_else(with(NO_LOSSES)).or_else(with(NO_TERMS)).or_else(with(NO_TURNS)).or_else(with(NO_CLAIMS))
}

/// Reads a snapshot; a snapshot of a later program, with unknown content, is refused.
fn read(snapshot: &[u8]) -> Result<Ledger, LedgerStateError> {
    match postcard::take_from_bytes::<Ledger>(snapshot)? {
        (ledger, []) => Ok(ledger),
        (_, rest) => Err(LedgerStateError::Later { bytes: rest.len() }),
    }
}

/// A command that cannot be decoded stops this member: others, of the version that wrote it, apply it.
fn apply(ledger: &mut Ledger, index: u64, command: &[u8]) -> Result<(), ApplyError> {
    let cmd = wire::decode::<LedgerCmd>(command);
    let cmd = cmd.map_err(|error| ApplyError { index, reason: error.to_string() })?;
    ledger.apply(LogIndex(index), &cmd);
    debug_assert!({
        ledger.check_invariants();
        true
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn restored(snapshot: &[u8]) -> Result<Ledger, RestoreError> {
        let mut app = LedgerApp(SharedLedger::default());
        app.restore(snapshot)?;
        let mut ledger = app.0.lock().clone();
        ledger.take_changes();
        Ok(ledger)
    }

    #[test]
    fn snapshots_from_before_there_were_claims_their_turns_and_leases_are_read_and_others_refused() {
        let mut ledger = Ledger::default();
        ledger.apply(LogIndex(1), &LedgerCmd::Namespace("search".to_owned()));
        ledger.take_changes();
        let now = postcard::to_allocvec(&ledger).unwrap();
        let all = [
            NO_RESET_NUMBERS,
            NO_BIRTHS,
            NO_ID_OWNERS,
            NO_TIMES,
            NO_SPLITS,
            NO_MOVES,
            NO_EDGES,
            NO_SERIES,
            NO_RETURNING,
            NO_DEFERRED,
            NO_UPDOWN,
            NO_VIEW_STARTS,
            NO_FORGOTTEN,
            NO_RESETS,
            NO_LOSSES,
            NO_TERMS,
            NO_TURNS,
            NO_CLAIMS,
        ];
        for missing in [0].into_iter().chain(all.map(<[u8]>::len)) {
            let before = restored(&now[..now.len() - missing]).unwrap();
            assert_eq!(postcard::to_allocvec(&before).unwrap(), now, "{missing}");
        }
        for wrong in [&now[..now.len() - 21], &[&now[..], &[0]].concat(), b""] {
            assert!(restored(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_command_of_a_later_version_stops_the_member_before_it() {
        let mut app = LedgerApp(SharedLedger::default());
        let cmd = |name: &str| LedgerCmd::Namespace(name.to_owned());
        let later = wire::encode_with_tail(&cmd("second"), b"a field");
        for later in [&later[..], b"\x02\x00", b"\x01\x7f\x00", b""] {
            let commands = [&wire::encode(&cmd("first"))[..], later, &wire::encode(&cmd("third"))];
            let error = app.apply_entry(7, &mut commands.into_iter()).unwrap_err();
            let reason = wire::decode::<LedgerCmd>(later).unwrap_err().to_string();
            assert_eq!(error, ApplyError { index: 7, reason });
        }
        let ledger = app.0.lock();
        assert_eq!(ledger.namespaces().collect::<Vec<_>>(), ["first"]);
    }

    #[test]
    fn a_snapshot_keeps_the_terms_of_milestones() {
        let counter = tidemark_proto::ids::CounterName::new("search", b"queries").unwrap();
        let mut ledger = Ledger::default();
        ledger.apply(LogIndex(1), &LedgerCmd::Namespace("search".to_owned()));
        let policy = tidemark_proto::msg::Policy::Timely;
        let spec = tidemark_proto::msg::MilestoneSpec { at: vec![10], policy, ..Default::default() };
        ledger.apply(LogIndex(2), &LedgerCmd::Define { counter: counter.clone(), revision: 0, spec });
        let restored = restored(&postcard::to_allocvec(&ledger).unwrap()).unwrap();
        assert_eq!(restored.counter(&counter), ledger.counter(&counter));
        assert_eq!(restored.counter(&counter).map(|state| state.policy_of(10)), Some(policy));
    }
}
