//! A member of the ledger's log: the real one, with the real state machine behind it.

use crate::disk::Disk;
use crate::speaker::Speaker;
use bytes::Bytes;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tidemark_consensus::raft::{
    App, ApplyError, Config, Execution, RaftNode, RaftService, RaftTransport, RestoreError, Source, StartError,
};
use tidemark_proto::ids::LogIndex;
use tidemark_proto::ledger::Ledger;
use tidemark_proto::msg::LedgerCmd;
use tidemark_proto::wire;
use tidemark_sim::engine::{LedgerNews, News};
use tokio::task::JoinHandle;

/// Small, so that every run has snapshots and members that need them.
const SNAPSHOT_EVERY_ENTRIES: u64 = 150;
const KEEP_ENTRIES: u64 = 40;
const CACHE_BYTES: usize = 1 << 20;
/// Entries are read back from the disk past this.
const RECENT_BYTES_MAX: usize = 16 << 10;
/// How often a member checks for missing members.
const MEMBERSHIP_INTERVAL: Duration = Duration::from_millis(500);

/// The number of a data centre's member.
pub const fn member(dc: usize) -> u64 {
    dc as u64 + 1
}

/// The data centre of a member.
pub fn dc_of(member: u64) -> usize {
    (member - 1) as usize
}

/// The facts that all members share about each other.
#[derive(Clone, Debug)]
pub struct Layout {
    pub dcs: usize,
    /// Data centres; the first one founds the group.
    pub voters: Vec<usize>,
    /// How long a disk takes.
    pub flush: Duration,
}

/// The state machine, which tells of everything that it applies.
struct Replica {
    dc: usize,
    boot: u32,
    ledger: Ledger,
    speaker: Speaker,
}

impl Replica {
    fn say(&self, news: LedgerNews) {
        self.speaker.say(News::Ledger { dc: self.dc, boot: self.boot, news }, None);
    }
}

/// The ledger counts entries from 1, openraft from 0.
fn ledger_index(index: u64) -> LogIndex {
    LogIndex(index + 1)
}

impl App for Replica {
    fn apply(&mut self, index: u64, command: &[u8]) -> Result<(), ApplyError> {
        self.apply_entry(index, &mut std::iter::once(command))
    }

    fn apply_entry(&mut self, index: u64, commands: &mut dyn Iterator<Item = &[u8]>) -> Result<(), ApplyError> {
        let cmds: Vec<LedgerCmd> = commands.map(|bytes| wire::decode(bytes).expect("encoded by the world")).collect();
        cmds.iter().for_each(|cmd| self.ledger.apply(ledger_index(index), cmd));
        self.ledger.skip(ledger_index(index));
        self.ledger.take_changes();
        self.ledger.check_invariants();
        self.say(LedgerNews::Applied { index: index as usize, cmds });
        Ok(())
    }

    fn snapshot(&self) -> Bytes {
        postcard::to_allocvec(&(self.ledger.applied().0, &self.ledger)).expect("memory for a snapshot").into()
    }

    fn restore(&mut self, snapshot: &[u8]) -> Result<(), RestoreError> {
        let (applied, ledger): (u64, Ledger) =
            postcard::from_bytes(snapshot).map_err(|error| RestoreError(error.to_string()))?;
        self.ledger = ledger;
        let index = applied.saturating_sub(1) as usize;
        self.say(LedgerNews::Restored { index, ledger: Box::new(self.ledger.clone()) });
        Ok(())
    }
}

/// A running member.
pub struct Member {
    pub raft: RaftNode,
    pub service: Arc<dyn RaftService>,
    tasks: [JoinHandle<()>; 2],
}

impl Member {
    pub async fn start(
        dc: usize,
        boot: u32,
        disk: Disk,
        layout: Layout,
        transport: Arc<dyn RaftTransport>,
        speaker: Speaker,
    ) -> Result<Member, StartError> {
        let config = Config {
            snapshot_every_entries: SNAPSHOT_EVERY_ENTRIES,
            keep_entries: KEEP_ENTRIES,
            cache_bytes: CACHE_BYTES,
            recent_bytes_max: RECENT_BYTES_MAX,
            flush_gather: layout.flush,
            execution: Execution::Task,
            ..Config::new("sim", "ledger")
        };
        let app = Box::new(Replica { dc, boot, ledger: Ledger::default(), speaker: speaker.clone() });
        let source = Source::Backend(Box::new(disk));
        let raft = RaftNode::start(member(dc), source, config, transport, app, Box::new(|_| {})).await?;
        let service = raft.service();
        let watch = tokio::spawn(tell_leaders(raft.clone(), dc, boot, speaker.clone()));
        let look = tokio::spawn(look_after_members(raft.clone(), dc, boot, layout, speaker));
        Ok(Member { raft, service, tasks: [watch, look] })
    }

    /// Its outputs reach no other process any more: its disk and its links are dead.
    pub fn stop(self) {
        self.tasks.iter().for_each(JoinHandle::abort);
        tokio::spawn(async move { self.raft.shutdown().await });
    }
}

async fn tell_leaders(raft: RaftNode, dc: usize, boot: u32, speaker: Speaker) {
    let mut leaders = raft.leaders();
    loop {
        let leader = leaders.get();
        let term = raft.metrics().get().term;
        let leads = leader == Some(member(dc));
        let news = LedgerNews::Leader { leader: leader.map(dc_of), leads, term };
        speaker.say(News::Ledger { dc, boot, news }, None);
        leaders.changed().await;
    }
}

/// As an aggregator does: founds the group if there is none, and adds missing members.
async fn look_after_members(raft: RaftNode, dc: usize, boot: u32, layout: Layout, speaker: Speaker) {
    let voters: BTreeSet<u64> = layout.voters.iter().map(|&dc| member(dc)).collect();
    let all: BTreeSet<u64> = (0..layout.dcs).map(member).collect();
    loop {
        let metrics = raft.metrics().get();
        if let Some(reason) = metrics.stopped {
            return speaker.say(News::Ledger { dc, boot, news: LedgerNews::Failed { reason } }, None);
        }
        let blank = metrics.last_log.is_none() && metrics.leader.is_none() && metrics.voters.is_empty();
        if blank && layout.voters.first() == Some(&dc) {
            // A member that has not answered is asked again.
            let _ = raft.found(voters.clone(), &all).await;
        }
        for other in all.iter().filter(|other| metrics.is_leader && !metrics.voters.contains(other)) {
            if !metrics.learners.contains(other) {
                // Tried again in the next round.
                let _ = raft.add_learner(*other).await;
            }
        }
        tokio::time::sleep(MEMBERSHIP_INTERVAL).await;
    }
}
