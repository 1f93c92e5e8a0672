//! Dedupe: the applied batches of each stream (client, lane), and the positions of its queued increments.

use crate::group::blocks::Blocks;
use hashbrown::HashTable;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use tidemark_types::hash::bytes_hash;
use tidemark_types::ids::ClientId;
use tidemark_types::limits::STREAM_RECORDS_MAX;
use tidemark_types::teeth::{Bug, bites};
use tidemark_wire::msg::Place;

/// Streams in one row of a checkpoint.
pub(super) const STREAMS_PER_BLOCK: u32 = 64;

/// The batches of one client in one lane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stream {
    pub client: ClientId,
    pub lane: u8,
    /// The last batch applied; 0 before the first.
    pub last: u64,
    /// Ended for ever.
    pub fenced: bool,
    /// The group's age when something last came of it.
    pub used: u32,
    /// Batches that had queued items: all that still have some, and the last few others.
    records: BTreeMap<u64, Record>,
    /// Batches in `records` with no queued item left, in order of becoming so.
    done: VecDeque<u64>,
}

/// Where the items of a batch stand that could not be certified at once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    pub parts: Vec<Part>,
    /// Items still queued.
    open: u32,
    /// Places of items that are more than "counted".
    placed: Vec<(u32, Place)>,
}

/// The queued items of one guarded counter in one batch: consecutive positions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Part {
    pub guard: u32,
    pub epoch: u32,
    /// Items of the counter certified before the first queued one.
    pub certified: u32,
    pub first_pos: u64,
    /// Index in the batch of the items at `first_pos ..`.
    pub indices: Vec<u32>,
}

impl Record {
    pub fn new(parts: Vec<Part>) -> Record {
        let open = parts.iter().map(|part| part.indices.len() as u32).sum();
        Record { parts, open, placed: Vec::new() }
    }

    /// Items still queued.
    pub fn open(&self) -> u32 {
        self.open
    }

    /// Whether one of its items is a milestone: such a record is kept for ever, or a late retry would be told "counted".
    fn won(&self) -> bool {
        self.placed.iter().any(|(_, place)| matches!(place, Place::Milestone { .. }))
    }

    /// Places of once queued items other than plain "counted": (index in the batch, place).
    pub fn placed(&self) -> &[(u32, Place)] {
        &self.placed
    }
}

impl Stream {
    /// Remembers a batch with queued items.
    pub fn remember(&mut self, seq: u64, record: Record) {
        self.records.insert(seq, record);
    }

    /// An item of batch `seq` that had counted is queued after all.
    pub fn requeue(&mut self, seq: u64, part: Part) {
        let record = self.records.entry(seq).or_default();
        if record.open == 0 {
            self.done.retain(|done| *done != seq);
        }
        record.open += part.indices.len() as u32;
        record.parts.push(part);
    }

    /// Item `idx` of batch `seq` got its place.
    pub fn on_placed(&mut self, seq: u64, idx: u32, place: Place) {
        let Some(record) = self.records.get_mut(&seq) else { return };
        if place != Place::Counted {
            record.placed.push((idx, place));
        }
        record.open = record.open.saturating_sub(1);
        if record.open == 0 {
            self.done.push_back(seq);
        }
        if self.done.len() > STREAM_RECORDS_MAX
            && let Some(oldest) = self.done.pop_front()
            && self.records.get(&oldest).is_some_and(|record| !record.won())
        {
            self.records.remove(&oldest);
        }
    }

    pub fn record(&self, seq: u64) -> Option<&Record> {
        self.records.get(&seq)
    }

    pub fn records(&self) -> impl Iterator<Item = (u64, &Record)> {
        self.records.iter().map(|(&seq, record)| (seq, record))
    }

    /// Queued items of all its batches.
    pub fn open(&self) -> u64 {
        self.records.values().map(|record| u64::from(record.open)).sum()
    }
}

/// All streams that a group remembers, numbered. The number of a forgotten stream is given to another.
#[derive(Clone, Debug, Default)]
pub(super) struct Streams {
    index: HashTable<u32>,
    streams: Vec<Option<Stream>>,
    free: BTreeSet<u32>,
    /// Every stream, under an age that is not later than the one at which it was last used.
    by_age: BTreeMap<u32, Vec<u32>>,
    pub dirty: Blocks,
}

impl Streams {
    /// Numbers given, those of forgotten streams included.
    pub fn numbers(&self) -> u32 {
        self.streams.len() as u32
    }

    /// Streams remembered.
    pub fn len(&self) -> u32 {
        self.numbers() - self.free.len() as u32
    }

    pub fn holds(&self, number: u32) -> bool {
        self.streams.get(number as usize).is_some_and(Option::is_some)
    }

    pub fn find(&self, client: ClientId, lane: u8) -> Option<u32> {
        let is_it = |&number: &u32| {
            let stream = self.get(number);
            stream.client == client && stream.lane == lane
        };
        self.index.find(stream_hash(client, lane), is_it).copied()
    }

    pub fn get(&self, number: u32) -> &Stream {
        self.streams[number as usize].as_ref().expect("what is in use is not forgotten")
    }

    /// A stream to be changed.
    pub fn get_mut(&mut self, number: u32) -> &mut Stream {
        self.dirty.set(number / STREAMS_PER_BLOCK);
        self.streams[number as usize].as_mut().expect("what is in use is not forgotten")
    }

    /// The number of a stream, new if there is none, that is used at an age of the group.
    pub fn find_or_new(&mut self, client: ClientId, lane: u8, age: u32) -> u32 {
        let number = self.find(client, lane).unwrap_or_else(|| {
            let records = BTreeMap::new();
            let done = VecDeque::new();
            let stream = Stream { client, lane, last: 0, fenced: false, used: age, records, done };
            let number = self.free.pop_first().unwrap_or(self.numbers());
            self.put(number, stream);
            number
        });
        self.get_mut(number).used = age;
        number
    }

    /// Appends the next number of a checkpoint: a stream that is not there yet, or none.
    pub fn push(&mut self, stream: Option<Stream>) {
        let number = self.numbers();
        match stream {
            Some(stream) => self.put(number, stream),
            None => {
                self.streams.push(None);
                self.free.insert(number);
            }
        }
    }

    /// Under a number that is free, or the next one.
    fn put(&mut self, number: u32, stream: Stream) {
        let hash = stream_hash(stream.client, stream.lane);
        self.by_age.entry(stream.used).or_default().push(number);
        if number == self.numbers() {
            self.streams.push(None);
        }
        self.streams[number as usize] = Some(stream);
        self.dirty.set(number / STREAMS_PER_BLOCK);
        let streams = &self.streams;
        let rehash = |&number: &u32| {
            streams[number as usize].as_ref().map_or(0, |stream| stream_hash(stream.client, stream.lane))
        };
        self.index.insert_unique(hash, number, rehash);
    }

    /// Forgets streams that were last used before an age, unless something of theirs is open here or, by `in_use`, elsewhere.
    pub fn forget(&mut self, before: u32, in_use: &BTreeSet<u32>) {
        let later = self.by_age.split_off(&before);
        let old = std::mem::replace(&mut self.by_age, later);
        for number in old.into_values().flatten() {
            let stream = self.get(number);
            let open = (stream.open() > 0 || in_use.contains(&number)) && !bites(Bug::ForgottenInUse);
            if stream.used < before && !open {
                self.remove(number);
            } else {
                let used = stream.used;
                self.by_age.entry(used).or_default().push(number);
            }
        }
    }

    fn remove(&mut self, number: u32) {
        let Some(stream) = self.streams[number as usize].take() else { return };
        let hash = stream_hash(stream.client, stream.lane);
        if let Ok(entry) = self.index.find_entry(hash, |&at| at == number) {
            entry.remove();
        }
        self.free.insert(number);
        self.dirty.set(number / STREAMS_PER_BLOCK);
    }

    /// The streams of one block of a checkpoint.
    pub fn block(&self, block: u32) -> &[Option<Stream>] {
        let from = (block * STREAMS_PER_BLOCK) as usize;
        &self.streams[from..self.streams.len().min(from + STREAMS_PER_BLOCK as usize)]
    }

    /// All streams with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Stream)> {
        (0..).zip(&self.streams).filter_map(|(number, stream)| Some((number, stream.as_ref()?)))
    }
}

fn stream_hash(client: ClientId, lane: u8) -> u64 {
    bytes_hash(u64::from(lane), &client.0.to_le_bytes())
}
