//! A member of a group's log: the real replica, with the world's machine as its owner.

use crate::disk::Disk;
use crate::speaker::Speaker;
use std::sync::Arc;
use std::time::Duration;
use tidemark_consensus::raft::{Execution, RaftTransport, StartError};
use tidemark_consensus::replica::{self, CheckpointPart, Event, Position, Replica, ReplicaOptions, Row, Source};
use tidemark_proto::ids::LogIndex;
use tidemark_sim::disk::Rows;
use tidemark_sim::engine::{GroupNews, News, Reads};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// The table of the machine's rows.
const ROWS: &str = "rows";
/// Small, so that members that were away need rows.
const KEEP_ENTRIES: u64 = 40;
const CACHE_BYTES: usize = 1 << 20;
const RECENT_BYTES_MAX: usize = 16 << 10;
/// Often, so that counts of a disk are told in every run.
const COUNT_EVERY: Duration = Duration::from_secs(7);

/// The identity of a member.
#[derive(Clone, Debug)]
pub struct Place {
    pub node: usize,
    pub boot: u32,
    pub group: usize,
    /// By processes of the group.
    pub reads: Reads,
    /// Tells this disk from those that the node lost.
    pub mint: u32,
    pub nonce: u64,
    /// How long the disk takes.
    pub flush: Duration,
}

/// A running member.
pub struct Member {
    pub replica: Replica,
    /// The position that its owner has taken.
    pub position: Option<Position>,
    /// The position that the owner is being told.
    pub telling: Option<Position>,
    /// The checkpoint that is being persisted.
    checkpoint: Option<(LogIndex, Position)>,
    pump: JoinHandle<()>,
}

impl Member {
    /// Opens the disk; also the commands that the rows there stand for, and the rows.
    pub async fn start(
        place: Place,
        disk: Disk,
        transport: Arc<dyn RaftTransport>,
        speaker: Speaker,
    ) -> Result<(Member, usize, Rows), StartError> {
        let Place { node, boot, group, reads, mint, nonce, flush } = place;
        let numbers = |of: &[usize]| of.iter().map(|&node| node as u32).collect();
        let placement = numbers(&reads.placed);
        let mut options = ReplicaOptions::new("sim", format!("group-{group}"), placement, node as u32, mint, nonce);
        (options.nodes, options.gone) = (numbers(&reads.nodes), numbers(&reads.gone));
        options.count_every = COUNT_EVERY;
        options.raft.keep_entries = KEEP_ENTRIES;
        options.raft.cache_bytes = CACHE_BYTES;
        options.raft.recent_bytes_max = RECENT_BYTES_MAX;
        options.raft.flush_gather = flush;
        options.raft.execution = Execution::Task;
        let opened = Replica::open(Source::Backend(Box::new(disk)), options, transport).await?;
        let replica::Opened { replica, events, position } = opened;
        let rows = rows_of(&replica, position.as_ref()).map_err(StartError::Replay)?;
        let count = position.as_ref().map_or(0, |position| position.commands() as usize);
        let pump = tokio::spawn(tell(replica.clone(), events, node, boot, speaker));
        Ok((Member { replica, position, telling: None, checkpoint: None, pump }, count, rows))
    }

    /// As the shell of a node does: a checkpoint stands for all that was taken when its first part was made.
    pub fn checkpoint(&mut self, applied: LogIndex, last: bool, rows: Rows) {
        if self.checkpoint.as_ref().is_none_or(|(begun, _)| *begun != applied) {
            self.checkpoint = self.position.clone().map(|position| (applied, position));
        }
        let Some((_, position)) = self.checkpoint.clone() else { return };
        if last {
            self.checkpoint = None;
        }
        let value = |value: Vec<u8>| (!value.is_empty()).then(|| value.into());
        let row = |(key, content): (Vec<u8>, Vec<u8>)| Row { table: ROWS, key: key.into(), value: value(content) };
        let rows = rows.into_iter().map(row).collect();
        // A refused checkpoint was replaced by another member's rows, or the disk is dead: the owner is told.
        let _ = self.replica.checkpoint(CheckpointPart { position, last, rows });
    }

    /// Its outputs reach no other process any more: its disk and its links are dead.
    pub fn stop(self) {
        self.pump.abort();
        tokio::spawn(async move { self.replica.shutdown().await });
    }
}

fn rows_of(replica: &Replica, position: Option<&Position>) -> Result<Rows, String> {
    let mut rows = Rows::new();
    let take = |key: &[u8], value: &[u8]| {
        rows.push((key.to_vec(), value.to_vec()));
        true
    };
    let scanned = replica.reader(position).scan(ROWS, take);
    scanned.map(|()| rows).map_err(|error| error.to_string())
}

/// Says what the replica says, until it stops.
async fn tell(replica: Replica, mut events: mpsc::Receiver<Event>, node: usize, boot: u32, speaker: Speaker) {
    while let Some(event) = events.recv().await {
        let (news, position) = match event {
            Event::Committed { position, batch } => {
                let commands = batch.commands().map(<[u8]>::to_vec).collect();
                (GroupNews::Committed { count: position.commands() as usize, commands }, Some(position))
            }
            Event::Leads { leadership } => (GroupNews::Leads { leadership }, None),
            Event::Follows { .. } => (GroupNews::Follows, None),
            Event::Restored { position } => match rows_of(&replica, Some(&position)) {
                Ok(rows) => (GroupNews::Restored { count: position.commands() as usize, rows }, Some(position)),
                Err(reason) => (GroupNews::Failed { reason }, None),
            },
            Event::Checkpointed { position } => (GroupNews::Checkpointed { count: position.commands() as usize }, None),
            // For people: groups are lost in the fast mode only.
            Event::Bereft { .. } => continue,
            Event::Left => (GroupNews::Left, None),
            Event::Failed(failure) => (GroupNews::Failed { reason: failure.to_string() }, None),
        };
        speaker.say(News::Group { node, boot, news }, position);
    }
}
