//! Buckets that ended a while ago and are on disk only, on the *shelf*, once rows take more memory than the budget (decision
//! 0051).
//!
//! A row is its part in memory and its part on the shelf, merged. So whichever of the two has reached the disk when a process
//! ends, nothing is lost and nothing counted twice. A late part raises a bucket on the shelf in memory. To know by how much, the
//! shelf is read: only such late data waits for the disk. Readers of old buckets do as well.
//!
//! A checkpoint writes the buckets that are to leave, and the rest of their row in the same transaction. Memory drops them when
//! that is durable, unless they were raised meanwhile.

use super::View;
use super::cells::Cells;
use super::series::{Held, Series, bucket_hash, expires_on};
use std::borrow::Cow;
use std::cell::OnceCell;
use std::fmt::Debug;
use std::ops::Range;
use tidemark_types::numbers::Numbers;
use tidemark_types::series::codec::Decoder;
use tidemark_types::series::{BucketId, Granularity, Horizon, Row};
use tidemark_types::shelf::{
    self, LOOKED_AT_ONCE, Rounds, any_kept, count_ended, minute_of, parse, take_ended, value_of,
};
use tidemark_types::teeth::{Bug, bites};
use tidemark_wire::shards::ShardId;

/// About the most bytes that a bucket takes in a message.
const BUCKET_BYTES: usize = 12;

/// Where evicted buckets are read: values that this very view gave out to persist, once it was told that they are durable.
///
/// A value that cannot be read is not answered with less: shown and told counts would be wrong. So an implementation ends the
/// process, as it does when the disk takes no more.
pub trait Shelf: Debug + Send + Sync {
    /// The value under the key that [`shelf_key`](crate::aggregator::shelf_key) says of a row of a shard.
    fn read(&self, shard: ShardId, number: u32) -> Option<Vec<u8>>;

    /// All such values of a shard, in the order of their numbers.
    fn scan(&self, shard: ShardId, visit: &mut dyn FnMut(u32, &[u8]));

    /// A value that was written is missing or is none.
    fn is_damaged(&self, shard: ShardId, number: u32, why: &str) -> ! {
        panic!("old buckets of row {number} of shard {}: {why}", shard.0)
    }

    /// Old buckets of a total: the last value written under the number. They are of no use to another process.
    fn read_total(&self, number: u32) -> Option<Vec<u8>>;

    /// Puts such a value there, to be read at once, or takes it away. False where the disk takes no more now: all stays as it is.
    fn write_total(&self, number: u32, value: Option<&[u8]>) -> bool;

    /// As [`Shelf::is_damaged`], of a total.
    fn is_damaged_total(&self, number: u32, why: &str) -> ! {
        panic!("old buckets of totals, value {number}: {why}")
    }
}

/// The memory budget of the buckets of a view.
pub type Budget = shelf::Budget<dyn Shelf>;

/// The memory of a shard's rows, and the buckets that are leaving.
#[derive(Clone, Debug, Default)]
pub(super) struct Shelving {
    budget: Option<(Budget, ShardId)>,
    /// Bytes of the buckets of rows.
    pub bytes: usize,
    /// Rows with buckets to evict, by the state when that was decided: buckets that ended by a time, in minutes since 1970.
    leaving: Numbers,
    until: u32,
    rounds: Rounds,
    /// The shelf of these rows has expired.
    expired: Numbers,
    /// Some buckets on the shelf of these rows were not kept any more when a policy changed. The shelf is written anew without
    /// them, so that no later policy keeps them again.
    unkept: Numbers,
    /// Rows with buckets on the shelf.
    rows: usize,
}

impl Shelving {
    /// The same of no rows.
    pub fn emptied(&self) -> Shelving {
        Shelving { budget: self.budget.clone(), ..Shelving::default() }
    }

    /// Where nothing that was on the shelf of a row is kept any more, it goes from there; then the row is to be written.
    pub fn expire(&mut self, number: u32, held: &mut Held, horizon: &Horizon) -> bool {
        let is_over = held.shelved_until > 0 && !any_kept(held.shelved_until, horizon);
        if is_over {
            self.take_off(number, held);
        }
        is_over
    }

    /// Nothing of a row is on the shelf any more, or on its way to it.
    pub fn take_off(&mut self, number: u32, held: &mut Held) {
        self.rows -= usize::from(held.shelved_until > 0);
        // Leaving buckets are written to the place of the old ones, and would be deleted with them.
        let is_leaving = self.leaving.remove(number);
        if is_leaving || held.shelved_until > 0 {
            self.expired.insert(number);
        }
        (held.shelved_until, held.shelved) = (0, 0);
    }

    /// Merges a part into a row: by how much which buckets were raised.
    pub fn merge(&mut self, number: u32, held: &mut Held, part: &Row, kept: &Horizon) -> Vec<(BucketId, u64)> {
        let may_be_shelved = |(bucket, value): (BucketId, u64)| {
            minute_of(bucket.end()) <= held.shelved_until && kept.keeps(bucket) && held.row.get(bucket) < value
        };
        let is_any = held.shelved_until > 0 && part.buckets().any(may_be_shelved);
        let shelved = match is_any && !bites(Bug::ShelvedForgotten) {
            true => self.read(number),
            false => Row::default(),
        };
        let mut raised = Vec::new();
        self.bytes -= held.row.bucket_bytes();
        match shelved.is_empty() {
            true => drop(held.row.merge_with(part, kept, |bucket, by| raised.push((bucket, by)))),
            false => {
                let news = Row::from_buckets(part.buckets().filter(|&(bucket, value)| value > shelved.get(bucket)));
                // The larger value of memory and shelf was counted before.
                let by = |bucket, by: u64| by.min(news.get(bucket) - shelved.get(bucket));
                held.row.merge_with(&news, kept, |bucket, over| raised.push((bucket, by(bucket, over))));
            }
        }
        self.bytes += held.row.bucket_bytes();
        if !self.leaving.is_empty() && raised.iter().any(|&(bucket, _)| minute_of(bucket.end()) <= self.until) {
            self.leaving.remove(number);
        }
        raised
    }

    /// The part of a row on the shelf. Panics if there is no shelf: nothing was put there.
    fn read(&self, number: u32) -> Row {
        let (Budget { shelf, .. }, shard) = self.budget.as_ref().expect("what left memory is on the shelf");
        let value = shelf.read(*shard, number);
        match value.as_deref().map(|value| parse(&mut Decoder::default(), value)) {
            Some(Ok((_, row))) => row,
            Some(Err(error)) => shelf.is_damaged(*shard, number, &error.to_string()),
            None => shelf.is_damaged(*shard, number, "it is missing"),
        }
    }
}

/// The value that a checkpoint writes for a row with leaving buckets.
pub(crate) struct Leaving {
    /// The value for the shelf.
    pub shelf: Vec<u8>,
    /// The part that stays in memory.
    pub rest: Row,
    /// To be told when both are durable.
    pub left: Left,
}

/// The buckets that left a row when a part of a checkpoint is durable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Left {
    number: u32,
    buckets: usize,
}

/// A row for a reader: the shelf is read if the requested buckets may be there, once.
#[derive(Clone, Debug)]
pub struct HeldRow<'a> {
    memory: &'a Row,
    /// Where some is on the shelf: until which minute, and the number of the row in these.
    shelved: Option<(u32, &'a Series, u32)>,
    whole: OnceCell<Row>,
}

impl<'a> From<&'a Row> for HeldRow<'a> {
    fn from(memory: &'a Row) -> HeldRow<'a> {
        HeldRow { memory, shelved: None, whole: OnceCell::new() }
    }
}

impl HeldRow<'_> {
    /// All of it.
    pub fn whole(&self) -> &Row {
        match self.shelved {
            None => self.memory,
            Some((_, series, number)) => self.whole.get_or_init(|| series.whole(number).into_owned()),
        }
    }

    /// The sum over buckets of one granularity, saturating.
    pub fn sum(&self, granularity: Granularity, indexes: Range<u32>) -> u64 {
        self.behind(granularity, indexes.start).sum(granularity, indexes)
    }

    /// The buckets of one granularity in a range, ascending.
    pub fn within(&self, granularity: Granularity, indexes: Range<u32>) -> impl Iterator<Item = (BucketId, u64)> + '_ {
        self.behind(granularity, indexes.start).within(granularity, indexes)
    }

    /// The row with all buckets of a granularity from an index on.
    fn behind(&self, granularity: Granularity, index: u32) -> &Row {
        let is_in_memory = |until| minute_of(BucketId { granularity, index }.end()) > until;
        if self.shelved.is_none_or(|(until, ..)| is_in_memory(until)) { self.memory } else { self.whole() }
    }
}

impl Series {
    /// A row for a reader.
    pub fn held(&self, number: u32) -> HeldRow<'_> {
        let Held { row, shelved_until, .. } = &self.rows[number as usize];
        let shelved = (*shelved_until > 0).then_some((*shelved_until, self, number));
        HeldRow { memory: row, shelved, whole: OnceCell::new() }
    }

    /// A row with its part on the shelf.
    pub fn whole(&self, number: u32) -> Cow<'_, Row> {
        let held = &self.rows[number as usize];
        if held.shelved_until == 0 {
            return Cow::Borrowed(&held.row);
        }
        let mut row = self.shelving.read(number);
        row.merge(&held.row, &self.everything);
        Cow::Owned(row)
    }
}

impl Cells {
    /// From now on, buckets of rows beyond a budget leave memory. These are the cells of a shard.
    pub(crate) fn keep_within(&mut self, budget: &Budget, shard: ShardId) {
        self.series.shelving.budget = Some((budget.clone(), shard));
    }

    /// Whether buckets may be on the shelf.
    pub(crate) fn has_shelf(&self) -> bool {
        self.series.shelving.budget.is_some()
    }

    /// Bytes that rows take of memory.
    pub fn row_bytes(&self) -> usize {
        self.series.shelving.bytes
    }

    /// Rows with buckets on the shelf.
    pub fn rows_shelved(&self) -> usize {
        self.series.shelving.rows
    }

    /// About the most bytes that a row takes in a message.
    pub(crate) fn row_size_max(&self, number: u32) -> usize {
        let held = &self.series.rows[number as usize];
        tidemark_types::series::codec::size_max(&held.row) + BUCKET_BYTES * usize::from(held.shelved)
    }

    /// Whether a row has no bucket.
    pub(crate) fn row_is_empty(&self, number: u32) -> bool {
        let held = &self.series.rows[number as usize];
        held.row.is_empty() && held.shelved_until == 0
    }

    /// Takes over the part of a row on the shelf. Without a shelf it is in memory. False: there is no such row.
    pub(crate) fn load_shelved(&mut self, number: u32, until: u32, shelved: &Row) -> bool {
        let has_shelf = self.has_shelf();
        if !self.occupy(number) {
            return false;
        }
        let held = &mut self.series.rows[number as usize];
        if has_shelf {
            self.series.shelving.rows += usize::from(held.shelved_until == 0 && until > 0);
            held.shelved_until = until;
            held.shelved = u16::try_from(shelved.len()).unwrap_or(u16::MAX);
            return true;
        }
        self.series.shelving.bytes -= held.row.bucket_bytes();
        held.row.merge(shelved, &Horizon::everything());
        self.series.shelving.bytes += held.row.bucket_bytes();
        true
    }

    /// Adds the hashes of buckets on the shelf to sums, as far as they are kept and were not raised since.
    pub(super) fn sum_shelved(&mut self) {
        // A range that is not held here has no file.
        let shelved = self.series.shelving.budget.clone().filter(|_| self.series.shelving.rows > 0);
        let Some((budget, shard)) = shelved else { return };
        let mut decoder = Decoder::default();
        budget.shelf.scan(shard, &mut |number, value| {
            let Some(held) = self.series.rows.get(number as usize).filter(|held| held.shelved_until > 0) else {
                return;
            };
            let slot = held.slot;
            let valve = held.valve;
            let Some(space) = self.series.space_of(slot, &self.table) else { return };
            let shelved = parse(&mut decoder, value).map(|(_, row)| row);
            let shelved = shelved.unwrap_or_else(|error| budget.shelf.is_damaged(shard, number, &error.to_string()));
            let key = self.cell_hashes[slot as usize] ^ self.valve_hashes[usize::from(valve)];
            let dc = self.valves[usize::from(valve)].group.dc;
            let Series { spaces, rows, sums, shelving, .. } = &mut self.series;
            let view = &spaces[space].view;
            let row = &rows[number as usize].row;
            if shelved.buckets().any(|(bucket, _)| !view.horizon.keeps(bucket)) {
                shelving.unkept.insert(number);
            }
            for (bucket, value) in
                shelved.buckets().filter(|&(bucket, _)| view.horizon.keeps(bucket) && row.get(bucket) == 0)
            {
                let Some(day) = expires_on(&view.policy, bucket) else { continue };
                let sum = sums.entry((dc, day)).or_default();
                *sum = sum.wrapping_add(bucket_hash(key, bucket, value));
            }
        });
    }

    /// A checkpoint begins: chooses rows with buckets to evict, for about `bytes` bytes. They are to be written.
    pub(crate) fn begin_leaving(&mut self, bytes: usize) {
        let Series { rows, dirty, shelving, now, .. } = &mut self.series;
        let Some((Budget { after_s, .. }, _)) = &shelving.budget else { return };
        shelving.leaving = Numbers::default();
        shelving.until = minute_of(now.minus(*after_s));
        for number in std::iter::from_fn(|| shelving.unkept.pop()).take(LOOKED_AT_ONCE) {
            if rows[number as usize].shelved_until > 0 {
                shelving.leaving.insert(number);
                dirty.insert(number);
            }
        }
        let until = shelving.until;
        for number in shelving.rounds.take(rows.len(), LOOKED_AT_ONCE, bytes, |at| count_ended(&rows[at].row, until)) {
            shelving.leaving.insert(number);
            dirty.insert(number);
        }
    }

    /// The value that a checkpoint writes for a row with buckets to evict; `None` if it has none.
    pub(crate) fn leaving(&self, number: u32) -> Option<Leaving> {
        let Shelving { leaving, until, .. } = &self.series.shelving;
        if !leaving.contains(number) {
            return None;
        }
        let held = &self.series.rows[number as usize];
        let mut rest = held.row.clone();
        let ended = take_ended(&mut rest, *until);
        let mut shelved = if held.shelved_until > 0 { self.series.shelving.read(number) } else { Row::default() };
        shelved.merge(&ended, &Horizon::everything());
        shelved.expire(self.horizon_of(held.slot));
        let until = (*until).max(held.shelved_until);
        let left = Left { number, buckets: shelved.len() };
        Some(Leaving { shelf: value_of(until, &shelved), rest, left })
    }

    /// The buckets that left these rows are durable: memory drops them, unless they were raised since.
    pub(crate) fn let_go(&mut self, left: &[Left]) {
        let Series { rows, shelving, .. } = &mut self.series;
        for &Left { number, buckets } in left {
            if !shelving.leaving.remove(number) && !bites(Bug::LetGoRaised) {
                continue;
            }
            let held = &mut rows[number as usize];
            shelving.bytes -= held.row.bucket_bytes();
            take_ended(&mut held.row, shelving.until);
            shelving.bytes += held.row.bucket_bytes();
            shelving.rows += usize::from(held.shelved_until == 0);
            held.shelved_until = held.shelved_until.max(shelving.until);
            held.shelved = u16::try_from(buckets).unwrap_or(u16::MAX);
        }
    }

    /// Takes the rows without kept buckets on the shelf; none is left.
    pub(crate) fn take_expired_shelved(&mut self) -> Numbers {
        self.series.shelving.expired.take()
    }
}

impl View {
    /// From now on, buckets of rows beyond a budget leave memory.
    pub(crate) fn keep_within(&mut self, budget: &Budget) {
        for (shard, cells) in (0..).map(ShardId).zip(&mut self.shards) {
            cells.keep_within(budget, shard);
        }
        self.hierarchy.keep_within(budget);
        self.budget = Some(budget.clone());
    }

    /// Rows with buckets on disk only.
    pub fn rows_shelved(&self) -> usize {
        self.shards.iter().map(Cells::rows_shelved).sum()
    }

    /// Totals with buckets on disk only, each as often as ranges add to it.
    pub fn totals_shelved(&self) -> usize {
        self.hierarchy.shelved()
    }

    /// Bytes that the buckets of rows take of memory.
    pub(super) fn row_bytes(&self) -> usize {
        self.shards.iter().map(Cells::row_bytes).sum()
    }

    /// Bytes that the buckets of rows and totals take of memory, and may take; `None` where there is no limit.
    pub fn bucket_bytes(&self) -> (usize, Option<usize>) {
        (self.row_bytes() + self.hierarchy.bucket_bytes(), self.budget.as_ref().map(|budget| budget.bytes_max))
    }

    /// The number of these bytes that are to leave: their share of the excess.
    fn too_much(&self, of: usize) -> usize {
        let (bytes, Some(budget)) = (self.bucket_bytes().0, &self.budget) else { return 0 };
        (budget.too_much(bytes) as u128 * of as u128 / bytes.max(1) as u128) as usize
    }

    /// The number of bytes of a shard's rows that are to leave.
    pub(crate) fn too_much_of_rows(&self, shard: ShardId) -> usize {
        self.too_much(self.cells(shard).row_bytes())
    }

    /// Buckets of totals that are too many leave with the next steps ([`View::step_graph`]); whether there may be such.
    pub(crate) fn begin_leaving_totals(&mut self) -> bool {
        let bytes = self.too_much(self.hierarchy.bucket_bytes());
        self.hierarchy.begin_leaving(bytes, self.shards[0].time())
    }
}
