//! Buckets that ended a while ago and are on disk only, on the *shelf*, once rows take more memory than the budget (decision
//! 0051).
//!
//! A group adds to its rows, so a row is the **sum** of three parts: the part in memory, the part that is leaving and the part on
//! the shelf. If a bucket on the shelf gets a late increment, memory has only the later amount. Counting reads no disk; telling
//! the feed of such a bucket does.
//!
//! The log is replayed over a checkpoint, so nothing that an unfinished one wrote may count. Leaving buckets are taken out of
//! memory when a checkpoint begins. The whole shelf of their row is then written with it under the other of two keys ([`Place`]).
//! The row of the staying buckets, of the same checkpoint, names the key that counts. Until all of that is durable, leaving
//! buckets are held beside the row.

use super::Group;
use super::blocks::Blocks;
use super::cells::Cells;
use super::rows::shelf_key;
use super::series::Series;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Debug;
use tidemark_types::numbers::Numbers;
use tidemark_types::row_changes::{Part, part_of};
use tidemark_types::series::codec::Decoder;
use tidemark_types::series::{Horizon, Row};
use tidemark_types::shelf::{
    self, LOOKED_AT_ONCE, Rounds, any_kept, count_ended, minute_of, parse, take_ended, value_of,
};
use tidemark_types::table::GONE;
use tidemark_types::teeth::{Bug, bites};
use tidemark_types::time::Span;

/// Reckoned for a row that is read while a message is filled: some 64 a message.
const READ_BYTES: usize = 4 << 10;
/// Rows that a checkpoint looks at for buckets that may leave: it comes once a minute or with much log, and is spread over parts.
const LOOKED_AT: usize = 8 * LOOKED_AT_ONCE;
/// A checkpoint comes so soon while more leaves than fits one.
pub(crate) const AGAIN_AFTER: Span = Span::from_secs(1);

/// Where evicted buckets are read: values that this very group gave out to persist, of durable checkpoints.
///
/// A value that cannot be read is not answered with less: the feed would then be wrong. So an implementation ends the process, as
/// it does when the disk takes no more.
pub trait Shelf: Debug + Send + Sync {
    /// The value of a checkpoint's row.
    fn read(&self, key: &[u8]) -> Option<Vec<u8>>;

    /// A value that was written is missing or is none.
    fn is_damaged(&self, key: &[u8], why: &str) -> ! {
        panic!("old buckets under {key:02x?}: {why}")
    }
}

/// The memory budget of the rows of a group.
pub type Budget = shelf::Budget<dyn Shelf>;

/// Where the old buckets of a row are, as the row says itself in a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The number under which they stand, which a compaction does not change.
    pub key: u32,
    /// The side: which of its two keys is used.
    pub side: u8,
    /// Buckets that ended by this minute (since 1970) are there.
    pub until: u32,
}

/// The memory of rows, and the places of their evicted buckets.
#[derive(Clone, Debug, Default)]
pub(super) struct Shelving {
    budget: Option<Budget>,
    /// Bytes of the buckets of rows, and of leaving buckets.
    bytes: usize,
    rounds: Rounds,
    /// By component: buckets that ended by this minute are on the shelf; 0 if none are.
    until: Vec<u32>,
    /// By component with buckets there, or leaving: the number of its place.
    keys: Vec<u32>,
    /// By the number of a place: the side that was written last, or is being written.
    sides: Blocks,
    /// Numbers of places that were given are below; those of them that are free again.
    next_key: u32,
    free: Numbers,
    /// Rows with buckets on the shelf.
    rows: usize,
    leaving: Leaving,
    /// Nothing at these places is kept any more; the next checkpoint says so.
    expired: Numbers,
}

/// The buckets that the present checkpoint, or the last one, takes out of memory.
#[derive(Clone, Debug, Default)]
struct Leaving {
    until: u32,
    rows: BTreeMap<u32, Row>,
    /// Rows below this were given out.
    saved: u32,
    /// Places without content now: they are emptied with the row that completes the checkpoint.
    gone: Numbers,
}

impl Shelving {
    /// The buckets of a row have changed: it took `before` bytes before.
    pub fn resized(&mut self, before: usize, row: &Row) {
        self.bytes = self.bytes - before + row.bucket_bytes();
    }

    pub fn heap_bytes(&self) -> usize {
        self.until.capacity() * size_of::<u32>() + self.leaving.rows.values().map(Row::heap_bytes).sum::<usize>()
    }

    /// The shelf's place in the row's value in a checkpoint.
    pub fn place(&self, number: u32) -> Option<Place> {
        let until = self.not_in_memory(number);
        (until > 0).then(|| {
            let key = self.key(number);
            Place { key, side: self.sides.side(key), until }
        })
    }

    fn key(&self, number: u32) -> u32 {
        self.keys.get(number as usize).copied().unwrap_or(number)
    }

    /// The place for buckets that leave a row. `None`: no number is left.
    fn key_or_new(&mut self, number: u32) -> Option<u32> {
        if self.not_in_memory(number) > 0 {
            return Some(self.key(number));
        }
        let key = match self.free.pop() {
            Some(key) => key,
            None => {
                self.next_key = self.next_key.checked_add(1)?;
                self.next_key - 1
            }
        };
        self.set_key(number, key);
        Some(key)
    }

    fn set_key(&mut self, number: u32, key: u32) {
        let at = number as usize;
        if at >= self.keys.len() {
            self.keys.resize(at + 1, 0);
        }
        self.keys[at] = key;
    }

    /// Components have other numbers: `places` has that of each, or [`GONE`]. Buckets on the shelf stay where they are, or go
    /// with the next checkpoint.
    pub fn compact(&mut self, places: &[u32]) {
        let until = std::mem::take(&mut self.until);
        let keys = std::mem::take(&mut self.keys);
        let leaving = std::mem::take(&mut self.leaving.rows);
        let key = |number: u32| keys.get(number as usize).copied().unwrap_or(number);
        self.rows = 0;
        for (number, until) in (0..).zip(until).filter(|&(_, until)| until > 0) {
            match places[number as usize] {
                GONE => self.expired.insert(key(number)),
                place => {
                    self.put(place, until);
                    self.set_key(place, key(number));
                }
            }
        }
        // All of it was given out.
        self.leaving.saved = GONE;
        for (number, row) in leaving {
            match places[number as usize] {
                GONE => {
                    self.bytes -= row.bucket_bytes();
                    self.expired.insert(key(number));
                }
                place => {
                    self.set_key(place, key(number));
                    self.leaving.rows.insert(place, row);
                }
            }
        }
    }

    /// A row is gone.
    pub fn dropped(&mut self, row: &Row) {
        self.bytes -= row.bucket_bytes();
    }

    /// Takes over the content of a checkpoint's row.
    pub fn load(&mut self, number: u32, row: &Row, place: Option<Place>) {
        self.bytes += row.bucket_bytes();
        if let Some(Place { key, side, until }) = place.filter(|place| place.until > 0 && place.key < u32::MAX) {
            self.sides.loaded(key, side);
            self.set_key(number, key);
            self.next_key = self.next_key.max(key + 1);
            self.put(number, until);
        }
    }

    /// Where nothing that is on the shelf of a row is kept any more, it goes from there; then the row is to be written.
    pub fn expire(&mut self, number: u32, horizon: &Horizon) -> bool {
        let until = self.on_shelf(number);
        if until == 0 || any_kept(until, horizon) || self.leaving.rows.contains_key(&number) {
            return false;
        }
        self.until[number as usize] = 0;
        self.rows -= 1;
        self.expired.insert(self.key(number));
        true
    }

    /// Buckets that ended by this minute are not all in memory.
    fn not_in_memory(&self, number: u32) -> u32 {
        let leaving = if self.leaving.rows.contains_key(&number) { self.leaving.until } else { 0 };
        self.on_shelf(number).max(leaving)
    }

    fn on_shelf(&self, number: u32) -> u32 {
        self.until.get(number as usize).copied().unwrap_or(0)
    }

    fn put(&mut self, number: u32, until: u32) {
        let at = number as usize;
        if at >= self.until.len() {
            self.until.resize(at + 1, 0);
        }
        self.rows += usize::from(self.until[at] == 0);
        self.until[at] = self.until[at].max(until);
    }

    /// Panics if `bytes` is not the memory of these rows.
    fn check(&self, rows: &[Row]) {
        let leaving = self.leaving.rows.values();
        assert_eq!(self.bytes, rows.iter().chain(leaving).map(Row::bucket_bytes).sum::<usize>(), "bytes of buckets");
    }

    /// The part of a row that is not in memory.
    fn elsewhere(&self, number: u32) -> Row {
        let leaving = self.leaving.rows.get(&number);
        let until = self.on_shelf(number);
        let mut row = match until {
            0 => Row::default(),
            // Leaving buckets are written to the other side.
            _ => {
                let key = self.key(number);
                self.read(Place { key, side: self.sides.side(key) ^ u8::from(leaving.is_some()), until })
            }
        };
        leaving.inspect(|leaving| row.add_row(leaving));
        row
    }

    /// The part of a row on the shelf. Panics if there is no shelf: nothing was put there.
    fn read(&self, place: Place) -> Row {
        let Budget { shelf, .. } = self.budget.as_ref().expect("what left memory is on the shelf");
        let key = shelf_key(place.key, place.side);
        let value = shelf.read(&key);
        match value.as_deref().map(|value| parse(&mut Decoder::default(), value)) {
            Some(Ok((until, row))) if until == place.until => row,
            Some(Ok((until, _))) => {
                shelf.is_damaged(&key, &format!("until minute {until}, and its row says {}", place.until))
            }
            Some(Err(error)) => shelf.is_damaged(&key, &error.to_string()),
            None => shelf.is_damaged(&key, "it is missing"),
        }
    }
}

impl Series {
    /// All of a row; `None` where there is none.
    pub fn whole(&self, number: u32) -> Option<Cow<'_, Row>> {
        if self.shelving.not_in_memory(number) == 0 {
            return self.row(number).map(Cow::Borrowed);
        }
        let mut row = self.shelving.elsewhere(number);
        self.row(number).inspect(|memory| row.add_row(memory));
        (!row.is_empty()).then_some(Cow::Owned(row))
    }

    /// These parts of a row, as far as they are kept. The disk is read where some of them may be on the shelf.
    pub fn holding(&self, number: u32, horizon: &Horizon, parts: &[Part]) -> Row {
        let until = self.shelving.not_in_memory(number);
        let in_memory = || parts.iter().all(|part| part.is_after(until, horizon));
        let row = match until == 0 || bites(Bug::LatePartAlone) || in_memory() {
            true => self.row(number).map(Cow::Borrowed),
            false => self.whole(number),
        };
        row.map(|row| part_of(&row, horizon, parts)).unwrap_or_default()
    }

    /// Bytes that are reckoned for reading the disk when this part of a row is told, so that few are read at a time.
    pub(super) fn read_bytes(&self, number: u32, part: Part) -> usize {
        let until = self.shelving.not_in_memory(number);
        let is_read = until > 0 && !part.begins_behind(until);
        if is_read { READ_BYTES } else { 0 }
    }

    /// A checkpoint begins: leaving buckets are taken out of their rows, which are to be written.
    pub(super) fn begin_leaving(&mut self) {
        self.persisted();
        let clock = self.clock();
        let Series { rows, dirty, shelving, .. } = self;
        let Shelving { budget: Some(budget), bytes, rounds, leaving, expired, .. } = shelving else { return };
        *leaving = Leaving { until: minute_of(clock.minus(budget.after_s)), ..Leaving::default() };
        leaving.gone = expired.take();
        let until = leaving.until;
        for number in rounds.take(rows.len(), LOOKED_AT, budget.too_much(*bytes), |at| count_ended(&rows[at], until)) {
            let Some(key) = shelving.key_or_new(number) else { break };
            let Shelving { bytes, sides, leaving, .. } = shelving;
            let row = &mut rows[number as usize];
            let ended = take_ended(row, until);
            if bites(Bug::LeftTwice) {
                row.add_row(&ended);
                *bytes += ended.bucket_bytes();
            }
            leaving.rows.insert(number, ended);
            leaving.gone.remove(key);
            sides.flip(key);
            dirty.set(number);
        }
    }

    /// The next value that the checkpoint writes to the shelf, and its key; `None` from when it has all of them.
    pub(super) fn next_shelved(&mut self, cells: &Cells) -> Option<(Vec<u8>, Vec<u8>)> {
        let Leaving { rows, saved, .. } = &mut self.shelving.leaving;
        let number = *rows.range(*saved..).next()?.0;
        *saved = number + 1;
        let space = self.space_of(cells.component(number).slot, &cells.table);
        let mut row = self.shelving.elsewhere(number);
        self.horizon_then(space).map(|horizon| row.expire(horizon));
        let Place { key, side, until } = self.shelving.place(number).expect("it is leaving");
        Some((shelf_key(key, side), value_of(until, &row)))
    }

    /// Keys of the shelf that nothing refers to once the checkpoint is complete; none is left.
    pub(super) fn take_gone(&mut self) -> impl Iterator<Item = Vec<u8>> + use<> {
        let mut gone = self.shelving.leaving.gone.take();
        let gone: Vec<u32> = std::iter::from_fn(move || gone.pop()).collect();
        gone.iter().for_each(|&key| self.shelving.free.insert(key));
        gone.into_iter().flat_map(|key| [0, 1].map(|side| shelf_key(key, side)))
    }

    /// Panics if the memory of buckets differs from the sum.
    pub(super) fn check_bytes(&self) {
        self.shelving.check(&self.rows);
    }

    /// The checkpoint is durable: evicted buckets are read from the shelf from now on.
    pub(super) fn persisted(&mut self) {
        let Leaving { until, rows, .. } = std::mem::take(&mut self.shelving.leaving);
        for (number, row) in rows {
            self.shelving.bytes -= row.bucket_bytes();
            self.shelving.put(number, until);
        }
    }
}

impl Group {
    /// From now on, buckets of rows beyond a budget leave memory with checkpoints. A group that was read from a disk on which
    /// there are such buckets is given their shelf before anything is asked of it.
    pub fn keep_within(&mut self, budget: Budget) {
        self.series.shelving.budget = Some(budget);
    }

    /// The last part of a checkpoint, and so all of it, is durable. Returns whether more is to leave memory, and some did.
    pub fn checkpoint_persisted(&mut self) -> bool {
        let before = self.row_bytes().0;
        self.series.persisted();
        let (bytes, most) = self.row_bytes();
        bytes < before && most.is_some_and(|most| bytes > most)
    }

    /// Bytes that the buckets of rows take of memory, and may take; `None` where there is no limit.
    pub fn row_bytes(&self) -> (usize, Option<usize>) {
        let Shelving { budget, bytes, .. } = &self.series.shelving;
        (*bytes, budget.as_ref().map(|budget| budget.bytes_max))
    }

    /// Rows with buckets on disk only.
    pub fn rows_shelved(&self) -> usize {
        self.series.shelving.rows
    }
}
