//! Rows to batches: counts of one counter within one bucket of the finest granularity are one item.

use super::{Part, Row, Tally};
use hashbrown::HashTable;
use std::collections::BTreeMap;
use tidemark_types::hash::lane_of;
use tidemark_types::hash::{bytes_hash, name_hash};
use tidemark_types::ids::{CounterName, Half};
use tidemark_types::limits::{DELTA_MAX, KEY_BYTES_MAX, MESSAGE_BYTES_MAX, NAMESPACE_BYTES_MAX};
use tidemark_types::series::{Admission, NotAdmitted, SeriesPolicy, UnixTime};
use tidemark_wire::msg::{FromClient, WireItem, definition};

/// Rows of one chunk, at most: this number of rows is read again after a crash.
pub const CHUNK_ROWS_MAX: u64 = 1 << 20;
/// Items of one batch, at most: also when each is of a new counter with a long name, a node has room for them in one entry of its log.
pub const PART_ITEMS_MAX: usize = 2_048;
/// The most bytes of one item on the wire, with its counter's name.
const ITEM_BYTES: usize = 5 + 6 + 1 + 5 + 9 + NAMESPACE_BYTES_MAX + KEY_BYTES_MAX;
/// No bucket is shorter than a minute.
const BUCKET_S_MIN: u64 = 60;

const _: () = assert!(64 + PART_ITEMS_MAX * ITEM_BYTES < MESSAGE_BYTES_MAX);

/// How namespaces keep series, by name; nothing is known of other namespaces.
#[derive(Clone, Debug, Default)]
pub struct Spaces(pub BTreeMap<String, SeriesPolicy>);

impl Spaces {
    /// Whether a row is taken, by a clock that shows `now`. The group's log decides; this check reports refusals in advance.
    pub fn admit(&self, row: &Row, now: UnixTime) -> Result<Admission, NotAdmitted> {
        match (self.0.get(row.counter.namespace()), row.at) {
            (Some(policy), Some(at)) => policy.admit(at, now),
            _ => Ok(Admission::Bucketed),
        }
    }

    /// The end of the finest bucket that holds a row's time.
    fn bucket(&self, row: &Row) -> Option<UnixTime> {
        let finest = self.0.get(row.counter.namespace()).and_then(|policy| policy.retention().kept().first());
        row.at.map(|at| match finest {
            Some(kept) => kept.granularity.end(kept.granularity.index_at(at)),
            None => UnixTime::default().plus((at.s() / BUCKET_S_MIN + 1) * BUCKET_S_MIN),
        })
    }
}

/// Folded rows that become one item.
#[derive(Debug)]
struct Item {
    part: Part,
    counter: CounterName,
    half: Half,
    bucket: Option<UnixTime>,
    total_only: bool,
    at: Option<UnixTime>,
    delta: u64,
}

/// A batch as it is sent, but for its number.
#[derive(Debug, Default)]
pub(super) struct Content {
    pub defs: Vec<(u32, CounterName)>,
    pub items: Vec<WireItem>,
    pub times: Vec<UnixTime>,
}

/// The numbers of halves of counters in a batch.
type Numbers = BTreeMap<(CounterName, Half), u32>;

/// The rows of a chunk, so far.
#[derive(Debug)]
pub(super) struct Fold {
    lanes: u8,
    items_max: usize,
    items: Vec<Item>,
    index: HashTable<u32>,
    tallies: BTreeMap<Part, Tally>,
}

impl Fold {
    /// For a stream with this number of lanes, and this number of items in each part.
    pub fn new(lanes: u8, items_max: usize) -> Fold {
        Fold { lanes, items_max, items: Vec::new(), index: HashTable::new(), tallies: BTreeMap::new() }
    }

    fn part(&self, row: &Row) -> Part {
        Part { lane: lane_of(&row.counter, self.lanes), timed: row.at.is_some() }
    }

    /// A row that is not to be counted.
    pub fn refuse(&mut self, row: &Row) {
        let part = self.part(row);
        self.tallies.entry(part).or_default().refused += 1;
    }

    /// Takes a row, or gives it back: then its part is full.
    pub fn push(&mut self, row: Row, spaces: &Spaces, total_only: bool) -> Result<(), Row> {
        let part = self.part(&row);
        let bucket = spaces.bucket(&row);
        let hash = hash_of(&row.counter, bucket);
        let same = |item: &Item| {
            (item.half, item.bucket, item.total_only) == (row.half, bucket, total_only)
                && item.counter == row.counter
                && item.delta <= DELTA_MAX - row.delta
        };
        let tally = self.tallies.entry(part).or_default();
        if let Some(&at) = self.index.find(hash, |at| same(&self.items[*at as usize])) {
            let item = &mut self.items[at as usize];
            item.delta += row.delta;
            // An event in range stays in range longest at its latest time, and a late event is late at any time of its bucket.
            item.at = item.at.max(row.at);
        } else {
            if tally.items >= self.items_max as u64 {
                return Err(row);
            }
            let at = self.items.len() as u32;
            let items = &self.items;
            self.index.insert_unique(hash, at, |at| hash_of(&items[*at as usize].counter, items[*at as usize].bucket));
            tally.items += 1;
            let Row { counter, half, delta, at } = row;
            self.items.push(Item { part, counter, half, bucket, total_only, at, delta });
        }
        tally.counted += 1;
        tally.total_only += u64::from(total_only);
        Ok(())
    }

    /// The parts in order; parts with only refused rows come without content.
    pub fn finish(self) -> Vec<(Part, Tally, Option<Content>)> {
        let mut contents: BTreeMap<Part, (Numbers, Content)> = BTreeMap::new();
        for Item { part, counter, half, at, delta, .. } in self.items {
            let (numbers, content) = contents.entry(part).or_default();
            let next = numbers.len() as u32;
            let number = *numbers.entry((counter, half)).or_insert_with_key(|(counter, half)| {
                content.defs.push((definition(next, *half), counter.clone()));
                next
            });
            content.items.push(WireItem { number, delta, session: None });
            content.times.extend(at);
        }
        let tallies = self.tallies.into_iter().filter(|(_, tally)| tally.counted + tally.refused > 0);
        tallies.map(|(part, tally)| (part, tally, contents.remove(&part).map(|(_, content)| content))).collect()
    }
}

impl Content {
    pub fn message(self, lane: u8, seq: u64) -> FromClient {
        let Content { defs, items, times } = self;
        FromClient::Batch { lane, seq, defs, items, times }
    }
}

fn hash_of(counter: &CounterName, bucket: Option<UnixTime>) -> u64 {
    bytes_hash(name_hash(counter), &bucket.map_or(u64::MAX, UnixTime::s).to_le_bytes())
}
