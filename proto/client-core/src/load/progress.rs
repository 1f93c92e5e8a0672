//! The progress of a load: the state from its records, both new ones and those read from a journal.

use super::{Lost, Only, Record, Sent, Stream, Tally, Task};
use std::collections::BTreeMap;
use std::ops::Range;
use tidemark_types::ids::ClientId;
use tidemark_types::limits::LANES_MAX;

/// Tasks and chunks of one load that are open; a journal with more was not written by a loader.
const OPEN_MAX: usize = 1 << 16;

/// A record that cannot come behind those before it: the journal is damaged, or another loader writes it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRecord {
    #[error("batches without a stream")]
    NoStream,
    #[error("rows {from} to {to} are not the rows to count next", from = .0.start + 1, to = .0.end)]
    Rows(Range<u64>),
    #[error("lane {0}: below {LANES_MAX} allowed")]
    Lane(u8),
    #[error("batch {seq} of lane {lane} came after {last}")]
    Gap { lane: u8, seq: u64, last: u64 },
    #[error("parts out of order")]
    Order,
    #[error("chunk {0} is not open")]
    NoChunk(u64),
    #[error("{0:?} is no stream of this load")]
    UnknownStream(ClientId),
    #[error("a record after the end")]
    Finished,
    #[error("the end comes before row {0} is counted")]
    Unfinished(u64),
    #[error("more than {OPEN_MAX} open chunks")]
    TooMany,
}

/// A stream, and how far each lane is.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Flow {
    stream: Stream,
    /// The last number of each lane that was used.
    last: BTreeMap<u8, u64>,
}

/// Parts of a chunk that are in doubt.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Open {
    task: Task,
    /// In `flows`.
    flow: usize,
    sent: Vec<Sent>,
    /// Sent parts that are known not to be counted.
    missed: Vec<Sent>,
}

/// All that is known. The same records always lead to the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    flows: Vec<Flow>,
    chunks: BTreeMap<u64, Open>,
    next_chunk: u64,
    /// Ascending; the last one has no end until the file's is known.
    tasks: Vec<Task>,
    tally: Tally,
    /// Rows of the file, once all are done.
    finished: Option<u64>,
}

impl Default for Progress {
    fn default() -> Progress {
        let all = Task { rows: 0..u64::MAX, only: Vec::new() };
        let (flows, chunks, tally) = Default::default();
        Progress { flows, chunks, next_chunk: 0, tasks: vec![all], tally, finished: None }
    }
}

impl Progress {
    /// The rows that were counted or refused for good.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// Rows of the file, if it is done.
    pub fn finished(&self) -> Option<u64> {
        self.finished
    }

    /// Whether any batch was ever sent.
    pub fn has_begun(&self) -> bool {
        self.next_chunk > 0
    }

    /// The first row that was not looked at yet.
    pub fn looked_at(&self) -> u64 {
        self.tasks.last().map_or(0, |task| task.rows.start)
    }

    /// Rows that are known to be done: all before the first that is open.
    pub fn done_before(&self) -> u64 {
        let open = self.chunks.values().map(|open| open.task.rows.start);
        open.chain(self.tasks.iter().map(|task| task.rows.start)).min().unwrap_or(0)
    }

    pub(super) fn task(&self) -> Option<&Task> {
        self.tasks.first()
    }

    pub(super) fn in_doubt(&self) -> usize {
        self.chunks.len()
    }

    pub(super) fn next_chunk(&self) -> u64 {
        self.next_chunk
    }

    pub(super) fn next_seq(&self, lane: u8) -> u64 {
        self.flows.last().and_then(|flow| flow.last.get(&lane)).map_or(1, |last| last + 1)
    }

    /// The oldest stream with chunks in doubt, and its lanes that have some.
    pub(super) fn to_fence(&self) -> Option<(Stream, Vec<u8>)> {
        let flow = self.chunks.values().map(|open| open.flow).min()?;
        let of_flow = self.chunks.values().filter(|open| open.flow == flow);
        let mut lanes: Vec<u8> =
            of_flow.flat_map(|open| &open.sent).filter(|sent| sent.seq.is_some()).map(|sent| sent.part.lane).collect();
        lanes.sort_unstable();
        lanes.dedup();
        Some((self.flows[flow].stream, lanes))
    }

    /// All rows in doubt, when their outcome cannot be learnt any more.
    pub(super) fn lost(&self, why: impl Into<String>) -> Lost {
        let rows = self.chunks.values().map(|open| &open.task.rows);
        let (start, end) = rows.fold((u64::MAX, 0), |(start, end), rows| (start.min(rows.start), end.max(rows.end)));
        Lost { rows: start.min(end)..end, why: why.into() }
    }

    /// Takes the next record. Errors change nothing.
    pub fn apply(&mut self, record: &Record) -> Result<(), BadRecord> {
        if self.finished.is_some() {
            return Err(BadRecord::Finished);
        }
        match record {
            Record::Stream(stream) => self.on_stream(*stream),
            Record::Chunk { task, sent } => self.on_chunk(task, sent),
            Record::Done { chunk } => {
                let open = self.chunks.remove(chunk).ok_or(BadRecord::NoChunk(*chunk))?;
                open.sent.iter().for_each(|sent| self.tally.add(sent.tally));
                self.settle(open.task, open.flow, open.missed);
                Ok(())
            }
            Record::Fenced { client, lane, last } => self.on_fenced(*client, *lane, *last),
            Record::Finished { rows } => {
                let is_last = self.chunks.is_empty() && self.tasks.len() == 1 && self.tasks[0].rows.start == *rows;
                if !is_last {
                    return Err(BadRecord::Unfinished(self.done_before()));
                }
                self.finished = Some(*rows);
                Ok(())
            }
        }
    }

    fn on_stream(&mut self, stream: Stream) -> Result<(), BadRecord> {
        if stream.lanes == 0 || stream.lanes > LANES_MAX {
            return Err(BadRecord::Lane(stream.lanes));
        }
        self.flows.push(Flow { stream, last: BTreeMap::new() });
        Ok(())
    }

    fn on_chunk(&mut self, task: &Task, sent: &[Sent]) -> Result<(), BadRecord> {
        let at = self.flows.len().checked_sub(1).ok_or(BadRecord::NoStream)?;
        let first = self.tasks.first();
        let of_first = |first: &&Task| {
            let whole = &first.rows;
            let cut = &task.rows;
            first.only == task.only && whole.start == cut.start && cut.start < cut.end && cut.end <= whole.end
        };
        if first.filter(of_first).is_none() || task.rows.end == u64::MAX {
            return Err(BadRecord::Rows(task.rows.clone()));
        }
        if self.chunks.len() >= OPEN_MAX || self.tasks.len() >= OPEN_MAX {
            return Err(BadRecord::TooMany);
        }
        check_sent(&self.flows[at], sent)?;
        for sent in sent {
            if let Some(seq) = sent.seq {
                self.flows[at].last.insert(sent.part.lane, seq);
            }
        }
        let first = &mut self.tasks[0];
        first.rows.start = task.rows.end;
        if first.rows.is_empty() {
            self.tasks.remove(0);
        }
        let (refused, sent): (Vec<Sent>, Vec<Sent>) = sent.iter().partition(|sent| sent.seq.is_none());
        refused.iter().for_each(|sent| self.tally.add(sent.tally));
        if !sent.is_empty() {
            let open = Open { task: task.clone(), flow: at, sent, missed: Vec::new() };
            self.chunks.insert(self.next_chunk, open);
        }
        self.next_chunk += 1;
        Ok(())
    }

    fn on_fenced(&mut self, client: ClientId, lane: u8, last: u64) -> Result<(), BadRecord> {
        let is_it = |flow: &Flow| flow.stream.client == client;
        let at = self.flows.iter().position(is_it).ok_or(BadRecord::UnknownStream(client))?;
        let mut settled = Vec::new();
        for (&number, open) in self.chunks.iter_mut().filter(|(_, open)| open.flow == at) {
            let (known, rest): (Vec<Sent>, Vec<Sent>) = open.sent.iter().partition(|sent| sent.part.lane == lane);
            let (counted, missed): (Vec<Sent>, Vec<Sent>) =
                known.into_iter().partition(|sent| sent.seq.is_some_and(|seq| seq <= last));
            counted.iter().for_each(|sent| self.tally.add(sent.tally));
            open.missed.extend(missed);
            open.sent = rest;
            if open.sent.is_empty() {
                settled.push(number);
            }
        }
        for number in settled {
            if let Some(open) = self.chunks.remove(&number) {
                self.settle(open.task, open.flow, open.missed);
            }
        }
        Ok(())
    }

    /// The parts of a chunk that were not counted are to be counted again.
    fn settle(&mut self, task: Task, flow: usize, missed: Vec<Sent>) {
        if missed.is_empty() {
            return;
        }
        let mut parts: Vec<_> = missed.iter().map(|sent| sent.part).collect();
        parts.sort_unstable();
        let lanes = self.flows[flow].stream.lanes;
        let Task { rows, mut only } = task;
        match only.iter_mut().find(|only| only.lanes == lanes) {
            Some(known) => known.parts.retain(|part| parts.binary_search(part).is_ok()),
            None => only.push(Only { lanes, parts }),
        }
        let at = self.tasks.partition_point(|task| task.rows.start < rows.start);
        self.tasks.insert(at, Task { rows, only });
    }
}

/// Each lane's numbers follow one another, and each part is named once, in order.
fn check_sent(flow: &Flow, sent: &[Sent]) -> Result<(), BadRecord> {
    let mut before = None;
    let mut used = flow.last.clone();
    for Sent { part, seq, .. } in sent {
        if part.lane >= flow.stream.lanes {
            return Err(BadRecord::Lane(part.lane));
        }
        if before.replace(*part) >= Some(*part) {
            return Err(BadRecord::Order);
        }
        let Some(seq) = *seq else { continue };
        let last = used.insert(part.lane, seq).unwrap_or(0);
        if last.checked_add(1) != Some(seq) {
            return Err(BadRecord::Gap { lane: part.lane, seq, last });
        }
    }
    Ok(())
}
