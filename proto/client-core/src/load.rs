//! Loading history: rows of a file, each counted exactly once, whatever processes are killed and whichever answers are lost.
//!
//! Rows are folded and cut into *chunks*: a range of rows, and for each lane at most two batches (with times and without). Before
//! a chunk is sent, a [`Record`] names its rows, and the stream and numbers under which it goes. The shell keeps records in a
//! journal, and syncs them before it sends anything that comes behind them. A stream can be in doubt, because the loader was
//! killed or a batch was refused for its content. Such a stream is *fenced*: its group reports which batches it has applied, and
//! that no other ever will be. So it is known of each part of each chunk whether it is counted. Parts that are not counted are
//! cut anew under another stream. Nothing depends on folding the same rows into the same batch again.
//!
//! Batches that a group does not remember any more ([`STREAMS_KEPT_AGES`](tidemark_types::limits::STREAMS_KEPT_AGES)), or that
//! another incarnation of it never knew, are [`Lost`]. It is unknown whether they were counted, and the loader stops instead of
//! counting them again.

mod fold;
mod loader;
mod progress;
#[cfg(test)]
mod tests;

pub use fold::{CHUNK_ROWS_MAX, PART_ITEMS_MAX, Spaces};
pub use loader::{CHUNKS_IN_FLIGHT_MAX, Input, Loader, Output};
pub use progress::{BadRecord, Progress};

use serde::{Deserialize, Serialize};
use std::ops::Range;
use tidemark_types::ids::{ClientId, CounterName, GroupId, Half};
use tidemark_types::series::{NotAdmitted, UnixTime};

/// A row of a file: so much was counted of a half of a counter, at a time or when it is logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub counter: CounterName,
    pub half: Half,
    pub delta: u64,
    pub at: Option<UnixTime>,
}

/// The content of one batch of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Part {
    pub lane: u8,
    /// With a time for each item, or for none.
    pub timed: bool,
}

/// Parts of rows by the lanes of a stream: the parts of a chunk that are still to be counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Only {
    pub lanes: u8,
    pub parts: Vec<Part>,
}

/// Rows that are to be counted: all, or the rows that every filter takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// From 0 on.
    pub rows: Range<u64>,
    pub only: Vec<Only>,
}

/// A stream of batches under one client id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stream {
    pub client: ClientId,
    pub group: GroupId,
    pub lanes: u8,
    /// The group's age when it welcomed the id.
    pub since: u32,
}

/// A part of a chunk as it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    pub part: Part,
    /// In the stream of its lane; `None` where all of its rows were refused.
    pub seq: Option<u64>,
    pub tally: Tally,
}

/// Rows of a part, by their treatment once the part is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    pub counted: u64,
    /// The rows among them that count in the total only.
    pub total_only: u64,
    pub refused: u64,
    /// The items in batches after folding.
    pub items: u64,
}

/// A line of the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Record {
    /// The following batches are sent under this stream.
    Stream(Stream),
    /// The next rows of the first task are on their way, under the last stream.
    Chunk { task: Task, sent: Vec<Sent> },
    /// All parts of a chunk are durable; chunks are counted from 0 on.
    Done { chunk: u64 },
    /// A lane of a stream is ended: its group has applied all up to `last`, and nothing more ever.
    Fenced { client: ClientId, lane: u8, last: u64 },
    /// All rows are counted or refused.
    Finished { rows: u64 },
}

/// Why a row is not counted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RowRefused {
    #[error(transparent)]
    Time(#[from] NotAdmitted),
    #[error("unknown namespace {0:?}")]
    UnknownNamespace(String),
    #[error("counters of namespace {0:?} only grow")]
    GrowOnly(String),
    #[error("{0} is full")]
    Full(CounterName),
    #[error("refused by the node: {0}")]
    Node(String),
}

/// It is unknown whether these rows were counted. Nothing more is sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is not known whether rows {first} to {last} were counted: {why}", first = rows.start + 1, last = rows.end)]
pub struct Lost {
    pub rows: Range<u64>,
    pub why: String,
}

impl Only {
    fn takes(&self, row: &Row) -> bool {
        let lane = tidemark_types::hash::lane_of(&row.counter, self.lanes);
        self.parts.binary_search(&Part { lane, timed: row.at.is_some() }).is_ok()
    }
}

impl Task {
    /// Whether a row in the range passes all filters.
    pub fn takes(&self, row: &Row) -> bool {
        self.only.iter().all(|only| only.takes(row))
    }
}

impl Tally {
    fn add(&mut self, other: Tally) {
        for (sum, more) in [
            (&mut self.counted, other.counted),
            (&mut self.total_only, other.total_only),
            (&mut self.refused, other.refused),
            (&mut self.items, other.items),
        ] {
            *sum = sum.saturating_add(more);
        }
    }
}
