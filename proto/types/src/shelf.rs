//! The rules that views, their totals and groups share for buckets that left memory (decision 0051). They are about the budget,
//! the order in which rows are looked at, the buckets that ended by a time, and the encoding on disk.

use crate::limits::ROW_BUCKETS_MAX;
use crate::series::codec::{BadRow, Decoder, decode_totals, encode_totals};
use crate::series::{BucketId, Horizon, Row, Totals, UnixTime};
use std::sync::Arc;

/// Buckets that ended this long ago may leave memory. Buckets that increments and reads of the last hour touch stay.
pub const SHELVED_AFTER_S: u64 = 3_600;
const MINUTE_S: u64 = 60;
/// Rows that a checkpoint looks at for buckets that may leave: some two milliseconds.
pub const LOOKED_AT_ONCE: usize = 1 << 14;
/// The least number of buckets that leave a row at a time, while there are such rows: each eviction writes the row's evicted part
/// again.
const LEAVE_LEAST: usize = 16;
/// The part of the budget that is freed beyond the excess at a time: an eighth.
const SLACK: usize = 8;

/// The memory budget of buckets, and where buckets beyond it are read.
#[derive(Debug)]
pub struct Budget<S: ?Sized> {
    /// Bytes of the buckets of all rows.
    pub bytes_max: usize,
    /// Seconds since its end after which a bucket may leave.
    pub after_s: u64,
    pub shelf: Arc<S>,
}

impl<S: ?Sized> Budget<S> {
    /// The number of bytes that are to leave, with this number of bytes in memory.
    pub fn too_much(&self, bytes: usize) -> usize {
        if bytes <= self.bytes_max { 0 } else { bytes - self.bytes_max + self.bytes_max / SLACK }
    }
}

impl<S: ?Sized> Clone for Budget<S> {
    fn clone(&self) -> Budget<S> {
        Budget { shelf: self.shelf.clone(), ..*self }
    }
}

impl<S: ?Sized> PartialEq for Budget<S> {
    fn eq(&self, other: &Budget<S>) -> bool {
        let same_shelf = Arc::ptr_eq(&self.shelf, &other.shelf);
        self.bytes_max == other.bytes_max && self.after_s == other.after_s && same_shelf
    }
}

/// The rows that are looked at in turn for buckets that may leave.
#[derive(Clone, Debug, Default)]
pub struct Rounds {
    /// The row that is looked at next, and how many there are before all were looked at.
    next: usize,
    left: usize,
    /// Whether rows are taken as well from which only little can leave: in the last round too little left.
    takes_little: bool,
    /// The number of rows that were looked at last.
    pub looked: usize,
    /// Bytes that are to leave since then, and that do.
    wanted: usize,
    found: usize,
}

impl Rounds {
    /// Chooses some of `rows` rows, to free about `bytes` bytes; looks at `looked_at` rows at most. `ended` gives the number of
    /// buckets that may leave a row.
    pub fn take(&mut self, rows: usize, looked_at: usize, bytes: usize, ended: impl Fn(usize) -> usize) -> Vec<u32> {
        let mut taken = Vec::new();
        let mut freed = 0;
        self.looked = 0;
        while self.looked < looked_at.min(rows) && freed < bytes {
            self.looked += 1;
            if self.left == 0 {
                self.takes_little = self.found < self.wanted;
                (self.left, self.found, self.wanted) = (rows, 0, 0);
            }
            self.wanted = self.wanted.max(bytes);
            let at = if self.next < rows { self.next } else { 0 };
            (self.next, self.left) = (at + 1, self.left - 1);
            let ended = ended(at);
            if ended >= if self.takes_little { 1 } else { LEAVE_LEAST } {
                freed += ended * size_of::<(BucketId, u64)>();
                self.found += ended * size_of::<(BucketId, u64)>();
                taken.push(at as u32);
            }
        }
        taken
    }
}

/// Full minutes since 1970.
pub fn minute_of(time: UnixTime) -> u32 {
    (time.s() / MINUTE_S) as u32
}

/// The beginning of a minute (since 1970).
pub fn start_of(minute: u32) -> UnixTime {
    UnixTime::default().plus(u64::from(minute) * MINUTE_S)
}

/// Whether any bucket that ended by a minute (since 1970) may be kept.
pub fn any_kept(until: u32, horizon: &Horizon) -> bool {
    let first_ended = |&(granularity, index)| minute_of(BucketId { granularity, index }.end()) <= until;
    horizon.first().iter().any(first_ended)
}

/// The number of a row's buckets that ended by a minute (since 1970).
pub fn count_ended(row: &Row, until: u32) -> usize {
    row.count_closed(start_of(until))
}

/// Splits off the buckets that ended by a minute (since 1970).
pub fn take_ended(row: &mut Row, until: u32) -> Row {
    Row::of_pieces(row.take_closed(start_of(until), 1, usize::MAX))
}

/// The value of evicted buckets: the minute until which they are evicted, and the buckets.
pub fn value_of(until: u32, shelved: &Row) -> Vec<u8> {
    let pieces: Vec<Row> = shelved.pieces(ROW_BUCKETS_MAX).collect();
    let pieces = postcard::to_allocvec(&pieces).expect("pieces fit an encoding");
    [&until.to_be_bytes()[..], &pieces].concat()
}

/// The same of a total, up and down.
pub fn value_of_totals(until: u32, shelved: &[Totals; 2]) -> Vec<u8> {
    let encode = |piece: Totals| encode_totals(&piece).expect("pieces fit an encoding");
    let halves = shelved.each_ref().map(|half| half.pieces(ROW_BUCKETS_MAX).map(encode).collect::<Vec<_>>());
    let halves = postcard::to_allocvec(&halves).expect("bytes are encoded");
    [&until.to_be_bytes()[..], &halves].concat()
}

/// Why a value of the shelf is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadShelved {
    #[error("cut off: it begins with four bytes of a time")]
    Short,
    #[error(transparent)]
    Row(#[from] BadRow),
    #[error("not pieces of a total")]
    Pieces,
}

/// The minute (since 1970) until which buckets were put on the shelf, and the buckets.
pub fn parse(decoder: &mut Decoder, value: &[u8]) -> Result<(u32, Row), BadShelved> {
    let (until, pieces) = value.split_first_chunk().ok_or(BadShelved::Short)?;
    Ok((u32::from_be_bytes(*until), decoder.decode_pieces(pieces)?))
}

/// The same of a total.
pub fn parse_totals(value: &[u8]) -> Result<(u32, [Totals; 2]), BadShelved> {
    let (until, halves) = value.split_first_chunk().ok_or(BadShelved::Short)?;
    let halves: [Vec<&[u8]>; 2] = postcard::from_bytes(halves).map_err(|_| BadShelved::Pieces)?;
    let mut totals = <[Totals; 2]>::default();
    for (all, pieces) in totals.iter_mut().zip(halves) {
        for piece in pieces {
            all.add_totals(&decode_totals(piece)?, None);
        }
    }
    Ok((u32::from_be_bytes(*until), totals))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::Granularity;
    use proptest::prelude::*;

    fn totals() -> impl Strategy<Value = Totals> {
        let granularity = prop_oneof![Just(Granularity::MINUTE), Just(Granularity::HOUR), Just(Granularity::DAY)];
        let bucket = (granularity, 0u32..100_000).prop_map(|(granularity, index)| BucketId { granularity, index });
        let value = prop_oneof![1u64..300, any::<u64>()];
        proptest::collection::vec((bucket, value), 0..80).prop_map(Totals::from_buckets)
    }

    proptest! {
        #[test]
        fn totals_are_read_as_they_were_written(until: u32, up in totals(), down in totals(), at: usize, byte: u8) {
            let halves = [up, down];
            let mut value = value_of_totals(until, &halves);
            prop_assert_eq!(parse_totals(&value), Ok((until, halves)));
            // Damaged bytes are refused, or read as another value.
            let at = at % value.len();
            prop_assert!(parse_totals(&value[..at]).is_err());
            value[at] ^= byte;
            let _ = parse_totals(&value);
        }

        #[test]
        fn garbage_is_refused_and_never_a_panic(value in proptest::collection::vec(prop_oneof![Just(0), any::<u8>()], 0..60)) {
            if let Ok((until, halves)) = parse_totals(&value) {
                prop_assert_eq!(parse_totals(&value_of_totals(until, &halves)), Ok((until, halves)));
            }
        }
    }

    /// More buckets than one encoding takes.
    #[test]
    fn totals_of_many_buckets_are_written_in_pieces() {
        let bucket = |index| (BucketId { granularity: Granularity::MINUTE, index }, u64::from(index) + 1);
        let many = Totals::from_buckets((0..ROW_BUCKETS_MAX as u32 * 2 + 5).map(bucket));
        let halves = [many, Totals::default()];
        assert_eq!(parse_totals(&value_of_totals(7, &halves)), Ok((7, halves)));
    }
}
