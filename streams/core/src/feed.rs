//! The feed of a manifest: how another process follows it, and joins the rows that the owner holds in memory.
//!
//! A follower takes a snapshot, and then the commands behind it. It applies them with the manifest machine itself, so its state at an
//! index is that of the server. Each page of commands has a [`Mark`] of the state behind it: a follower with another state begins
//! again.
//!
//! A feed belongs to one session of the owner. A follower of an earlier session takes a snapshot: the manifest of the directory may
//! have been restored from a copy.

mod follower;
mod held;

pub use follower::{FollowError, Followed, Follower};
pub use held::{Apart, Held, HeldSet, Joined};

use crate::blob::{Epoch, LiveDigest, PartitionId};
use crate::codec::{DecodeError, decode_versioned, encode_versioned};
use crate::limits::{FEED_BYTES_MAX, FEED_COMMANDS_MAX, FEED_PAGE_BYTES_MAX};
use crate::manifest::Manifest;
use crate::source::SourceId;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::sync::Arc;

/// The version of the encoding of snapshots, pages and held rows.
const VERSION: u8 = 1;

/// One session of an owner, told apart from all others by a random number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionId(pub u64);

/// The partition and the source that a feed is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subject {
    pub partition: PartitionId,
    /// The log of the intake: the owner holds rows of it in memory.
    pub source: SourceId,
}

/// The settings of a server that its answers depend on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Served {
    /// The id of its directory.
    pub directory: String,
    pub session: SessionId,
    /// An hour is settled so long after its end.
    pub lateness_s: u64,
    /// A replaced blob is kept so long.
    pub reader_grace_s: u64,
    /// The accepted event types, as they were configured.
    pub types: Vec<String>,
}

/// What tells the states of a partition apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    pub index: u64,
    pub epoch: Epoch,
    /// The number of erasures and changes of event types.
    pub revision: u64,
    /// The next row of the source that no blob has.
    pub position: u64,
    pub live: LiveDigest,
}

/// How far the blobs are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reach {
    /// Each event that was accepted before this is in the blobs; 0: unknown.
    pub complete_to_ms: u64,
    /// When the last event that is in the blobs was accepted; 0: unknown.
    pub updated_at_ms: u64,
}

/// How far the blobs are, and how old the statement is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    pub reach: Reach,
    /// So long ago the owner said so.
    pub age_ms: u64,
}

/// A row of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotRow {
    pub key: Vec<u8>,
    pub value: Vec<u8>,
}

/// A manifest at one index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    pub served: Served,
    pub mark: Mark,
    pub told: Told,
    pub rows: Vec<SnapshotRow>,
}

/// A command, and when the server applied it, in milliseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Logged {
    pub command: Vec<u8>,
    pub at_ms: u64,
}

/// Commands that follow each other. There may be none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    pub session: SessionId,
    /// The index before the first command.
    pub after: u64,
    pub commands: Vec<Logged>,
    /// The state behind the last command.
    pub mark: Mark,
    pub told: Told,
}

/// Why a page is not given: the follower takes a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FeedRefused {
    #[error("the feed is of session {:016x}, and {:016x} was named: take a snapshot", known.0, named.0)]
    OtherSession { named: SessionId, known: SessionId },
    #[error("commands after {after} are not kept: the first one is {first}; take a snapshot")]
    Behind { after: u64, first: u64 },
    #[error("index {after} is ahead of {last}, the last one: take a snapshot")]
    Ahead { after: u64, last: u64 },
}

impl Mark {
    pub fn of(manifest: &Manifest, subject: Subject) -> Mark {
        let index = manifest.index();
        let Some(partition) = manifest.partition(subject.partition) else { return Mark { index, ..Mark::default() } };
        Mark {
            index,
            epoch: partition.epoch,
            revision: partition.revision(),
            position: partition.source(subject.source).next_row,
            live: partition.live.digest(),
        }
    }
}

impl Snapshot {
    /// The present state of a manifest.
    pub fn of(manifest: &Manifest, subject: Subject, served: Served, told: Told) -> Snapshot {
        let row = |row: crate::manifest::Row| Some(SnapshotRow { key: row.key, value: row.value? });
        let rows = manifest.rows().filter_map(row).collect();
        Snapshot { served, mark: Mark::of(manifest, subject), told, rows }
    }

    pub fn encode(&self) -> Vec<u8> {
        encode_versioned(VERSION, self)
    }

    /// # Errors
    /// [`DecodeError`].
    pub fn decode(bytes: &[u8]) -> Result<Snapshot, DecodeError> {
        decode_versioned(VERSION, bytes)
    }
}

impl Page {
    pub fn encode(&self) -> Vec<u8> {
        encode_versioned(VERSION, self)
    }

    /// # Errors
    /// [`DecodeError`].
    pub fn decode(bytes: &[u8]) -> Result<Page, DecodeError> {
        decode_versioned(VERSION, bytes)
    }
}

/// The commands of a session that followers may still ask for.
#[derive(Clone, Debug)]
pub struct Recent {
    session: SessionId,
    /// The state before the first kept command.
    before: Mark,
    entries: VecDeque<Entry>,
    bytes: usize,
    reach: Reach,
}

#[derive(Clone, Debug)]
struct Entry {
    command: Arc<[u8]>,
    at_ms: u64,
    /// Behind this command.
    mark: Mark,
    reach: Reach,
}

/// A command that was applied, and the state behind it.
#[derive(Clone, Debug)]
pub struct Applied<'a> {
    pub command: &'a [u8],
    pub at_ms: u64,
    pub mark: Mark,
    pub reach: Reach,
}

impl Recent {
    /// A session begins with this state.
    pub fn new(session: SessionId, mark: Mark, reach: Reach) -> Recent {
        Recent { session, before: mark, entries: VecDeque::new(), bytes: 0, reach }
    }

    pub fn session(&self) -> SessionId {
        self.session
    }

    /// The index of the last command.
    pub fn last(&self) -> u64 {
        self.last_mark().index
    }

    fn last_mark(&self) -> Mark {
        self.entries.back().map_or(self.before, |entry| entry.mark)
    }

    /// Adds a command, and forgets the oldest ones beyond the limits.
    pub fn push(&mut self, applied: &Applied<'_>) {
        let Applied { command, at_ms, mark, reach } = *applied;
        self.reach = reach;
        self.bytes += command.len();
        self.entries.push_back(Entry { command: command.into(), at_ms, mark, reach });
        while self.entries.len() > FEED_COMMANDS_MAX || self.bytes > FEED_BYTES_MAX {
            let Some(oldest) = self.entries.pop_front() else { return };
            self.bytes -= oldest.command.len();
            self.before = oldest.mark;
        }
    }

    /// The blobs of the present index reach so far.
    pub fn tell(&mut self, reach: Reach) {
        self.reach = reach;
    }

    pub fn reach(&self) -> Reach {
        self.reach
    }

    /// The commands after an index, as many as fit a page.
    ///
    /// # Errors
    /// [`FeedRefused`].
    pub fn page(&self, named: SessionId, after: u64, age_ms: u64) -> Result<Page, FeedRefused> {
        let known = self.session;
        if named != known {
            return Err(FeedRefused::OtherSession { named, known });
        }
        let before = self.before.index;
        let last = self.last();
        if after < before {
            return Err(FeedRefused::Behind { after, first: before + 1 });
        }
        if after > last {
            return Err(FeedRefused::Ahead { after, last });
        }
        let skipped = usize::try_from(after - before).unwrap_or(usize::MAX);
        let mut page = Page {
            session: known,
            after,
            commands: Vec::new(),
            mark: self.last_mark(),
            told: Told { reach: self.reach, age_ms },
        };
        let mut bytes = 0;
        for entry in self.entries.iter().skip(skipped) {
            bytes += entry.command.len();
            if bytes > FEED_PAGE_BYTES_MAX && !page.commands.is_empty() {
                break;
            }
            page.commands.push(Logged { command: entry.command.to_vec(), at_ms: entry.at_ms });
            page.mark = entry.mark;
            page.told.reach = entry.reach;
        }
        // Only of the present state more may be known than at its command.
        if page.mark.index == last {
            page.told.reach = self.reach;
        }
        Ok(page)
    }
}
