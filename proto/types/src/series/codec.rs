//! The encoding of rows at rest and on the wire: some three bytes per bucket.
//!
//! A version byte, then each granularity that has buckets, by its number. Each granularity has the number, the count of buckets,
//! the position of the first, and for each bucket the gap before it and its value. Two predictions make that short. A granularity
//! is predicted to begin where the finer one before it does. A bucket's value is predicted to be the sum of that finer
//! granularity's buckets within it. That is right as long as all of those are in the row, and only the difference is written.
//! Both predictions affect size only: any row can be encoded.
//!
//! All numbers are varints of the least length, so a row has one encoding, and rows can be compared and hashed as bytes.

use super::row::Key;
use super::{BucketId, Granularity, Row, Totals};
use crate::limits::{COMPONENT_MAX, ROW_BUCKETS_MAX, ROW_BYTES_MAX};

/// The only version so far; its first byte.
pub const ROW_VERSION: u8 = 1;

/// Why bytes are not a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRow {
    #[error("row version {0}: this process knows {ROW_VERSION}")]
    Version(u8),
    #[error("row of {bytes} bytes: at most {ROW_BYTES_MAX} allowed")]
    TooLong { bytes: usize },
    #[error("row is cut off")]
    CutOff,
    #[error("{bytes} bytes behind the last piece of a row")]
    Later { bytes: usize },
    #[error("number in a row is not in its shortest form")]
    NotShortest,
    #[error("granularity number {code} in a row, after {before:?}: ascending and below {count} allowed", count = Granularity::ALL.len())]
    Granularity { code: u8, before: Option<u8> },
    #[error("{buckets} buckets in a row: 1 to {ROW_BUCKETS_MAX} allowed")]
    Buckets { buckets: u64 },
    #[error("bucket {index} of {granularity}: 0 to {max} allowed", max = granularity.index_max())]
    Index { granularity: Granularity, index: i128 },
    #[error("bucket of {value}: 1 to {most} allowed")]
    Value { value: u64, most: u64 },
}

/// The row has more buckets than one encoded row may have; [`Row::pieces`] cuts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("row of {0} buckets: at most {ROW_BUCKETS_MAX} are encoded together")]
pub struct RowTooLong(pub usize);

/// Encodes a row of at most [`ROW_BUCKETS_MAX`] buckets.
pub fn encode(row: &Row) -> Result<Vec<u8>, RowTooLong> {
    encode_buckets(row.ascending())
}

/// Encodes totals of at most [`ROW_BUCKETS_MAX`] buckets. They look like rows; only the reader knows that they are totals.
pub fn encode_totals(totals: &Totals) -> Result<Vec<u8>, RowTooLong> {
    encode_buckets(totals.ascending())
}

/// About the most bytes that a row takes: a bucket of a few hundred, next to the one before it, takes three.
pub fn size_max(row: &Row) -> usize {
    let value_bytes = |value: u64| (66 - value.leading_zeros() as usize).div_ceil(7) + 2;
    1 + 8 + row.buckets().map(|(_, value)| value_bytes(value)).sum::<usize>()
}

fn encode_buckets(buckets: &[(Key, u64)]) -> Result<Vec<u8>, RowTooLong> {
    if buckets.len() > ROW_BUCKETS_MAX {
        return Err(RowTooLong(buckets.len()));
    }
    let mut bytes = vec![ROW_VERSION];
    let mut finer = None;
    let mut start = 0;
    for level in buckets.chunk_by(|a, b| a.0.granularity() == b.0.granularity()) {
        let granularity = level[0].0.granularity();
        let mut expected = Expected::within(granularity, finer);
        put(&mut bytes, u128::from(granularity.code()));
        put(&mut bytes, level.len() as u128);
        let mut next = expected.first(buckets);
        for (at, &(key, value)) in level.iter().enumerate() {
            let index = key.index();
            let gap = i64::from(index) - i64::from(next);
            let difference = zigzag(value.wrapping_sub(expected.value(index, buckets)) as i64);
            put(&mut bytes, u128::from(difference) << 1 | u128::from(gap != 0));
            match at {
                _ if gap == 0 => {}
                0 => put(&mut bytes, u128::from(zigzag(gap))),
                _ => put(&mut bytes, gap as u128),
            }
            next = index + 1;
        }
        finer = Some(Level { granularity, start, end: start + level.len() });
        start += level.len();
    }
    Ok(bytes)
}

/// Decodes and validates: accepted bytes are a row, in its only encoding. Never panics.
pub fn decode(bytes: &[u8]) -> Result<Row, BadRow> {
    let mut buckets = Vec::new();
    decode_buckets(bytes, COMPONENT_MAX, &mut buckets).map(|()| Row::of_ascending(buckets))
}

/// Decodes rows one after the other, as [`decode`] does, by way of memory that is used again: each row takes one allocation, of its size.
#[derive(Clone, Debug, Default)]
pub struct Decoder {
    buckets: Vec<(Key, u64)>,
}

impl Decoder {
    pub fn decode(&mut self, bytes: &[u8]) -> Result<Row, BadRow> {
        self.buckets.clear();
        decode_buckets(bytes, COMPONENT_MAX, &mut self.buckets)?;
        Ok(Row::of_ascending(self.buckets.to_vec()))
    }

    /// Decodes the pieces of a row, merged, as a list of rows stands in an encoding: how many, and of each its length and its bytes.
    pub fn decode_pieces(&mut self, mut bytes: &[u8]) -> Result<Row, BadRow> {
        let row = self.take_pieces(&mut bytes)?;
        if bytes.is_empty() { Ok(row) } else { Err(BadRow::Later { bytes: bytes.len() }) }
    }

    /// Decodes a row from the beginning of these bytes, and leaves the rest.
    pub fn take_pieces(&mut self, bytes: &mut &[u8]) -> Result<Row, BadRow> {
        let count = take(bytes)?;
        let mut first = None;
        let mut others = Vec::new();
        for _ in 0..count {
            let length = usize::try_from(take(bytes)?).map_err(|_| BadRow::CutOff)?;
            let (piece, behind) = bytes.split_at_checked(length).ok_or(BadRow::CutOff)?;
            let piece = self.decode(piece)?;
            *bytes = behind;
            match first {
                None => first = Some(piece),
                Some(_) => others.push(piece),
            }
        }
        Ok(Row::of_pieces(first.into_iter().chain(others)))
    }
}

/// Like [`decode`]; a bucket of a total may hold any 64-bit value.
pub fn decode_totals(bytes: &[u8]) -> Result<Totals, BadRow> {
    let mut buckets = Vec::new();
    decode_buckets(bytes, u64::MAX, &mut buckets)?;
    Ok(Totals::from_buckets(buckets.into_iter().map(|(key, value)| (key.bucket(), value))))
}

/// Puts the buckets into an empty list, in order: granularities ascend, and indexes within each.
fn decode_buckets(bytes: &[u8], value_max: u64, buckets: &mut Vec<(Key, u64)>) -> Result<(), BadRow> {
    if bytes.len() > ROW_BYTES_MAX {
        return Err(BadRow::TooLong { bytes: bytes.len() });
    }
    let (&version, mut rest) = bytes.split_first().ok_or(BadRow::CutOff)?;
    if version != ROW_VERSION {
        return Err(BadRow::Version(version));
    }
    let mut finer: Option<Level> = None;
    while !rest.is_empty() {
        let granularity = take_granularity(&mut rest, finer)?;
        let start = buckets.len();
        take_level(&mut rest, granularity, finer, value_max, buckets)?;
        finer = Some(Level { granularity, start, end: buckets.len() });
    }
    Ok(())
}

fn take_granularity(rest: &mut &[u8], finer: Option<Level>) -> Result<Granularity, BadRow> {
    let code = take(rest)?.min(u8::MAX.into()) as u8;
    let before = finer.map(|level| level.granularity.code());
    let refused = BadRow::Granularity { code, before };
    let ascends = before.is_none_or(|before| before < code);
    Granularity::try_from(code).ok().filter(|_| ascends).ok_or(refused)
}

fn take_level(
    rest: &mut &[u8],
    granularity: Granularity,
    finer: Option<Level>,
    value_max: u64,
    buckets: &mut Vec<(Key, u64)>,
) -> Result<(), BadRow> {
    let count = take(rest)?;
    let held = buckets.len() as u128;
    if count == 0 || held + count > ROW_BUCKETS_MAX as u128 {
        return Err(BadRow::Buckets { buckets: (held + count).min(u64::MAX.into()) as u64 });
    }
    // Each bucket takes a byte at least: so the reserved memory is bounded by the input.
    buckets.reserve((count as usize).min(rest.len()));
    let mut expected = Expected::within(granularity, finer);
    let mut next = i128::from(expected.first(buckets));
    let index_max = granularity.index_max();
    for at in 0..count {
        let token = take(rest)?;
        let gap = match (token & 1, at) {
            (0, _) => 0,
            (_, 0) => i128::from(unzigzag(narrow(take(rest)?)?)),
            _ => take(rest)? as i128,
        };
        if token & 1 == 1 && gap == 0 {
            return Err(BadRow::NotShortest);
        }
        let place = next.saturating_add(gap);
        let index = u32::try_from(place).ok().filter(|&index| index <= index_max);
        let index = index.ok_or(BadRow::Index { granularity, index: place })?;
        let value = expected.value(index, buckets).wrapping_add(unzigzag(narrow(token >> 1)?) as u64);
        if value == 0 || value > value_max {
            return Err(BadRow::Value { value, most: value_max });
        }
        buckets.push((BucketId { granularity, index }.into(), value));
        next = i128::from(index) + 1;
    }
    Ok(())
}

/// Where the buckets of one granularity stand among those of a row.
#[derive(Clone, Copy)]
struct Level {
    granularity: Granularity,
    start: usize,
    end: usize,
}

/// The predicted values of a level, from the finer one before it. Queried for ascending indexes, with the buckets that contain
/// them.
struct Expected {
    granularity: Granularity,
    /// The part of the finer level that begins behind all queried buckets.
    finer: Option<Level>,
}

impl Expected {
    fn within(granularity: Granularity, finer: Option<Level>) -> Expected {
        Expected { granularity, finer }
    }

    /// The first bucket: where the finer level begins.
    fn first(&self, buckets: &[(Key, u64)]) -> u32 {
        let first = |finer: Level| self.granularity.index_at(finer.granularity.start(buckets[finer.start].0.index()));
        self.finer.map_or(0, first)
    }

    /// The sum over the finer buckets that begin within a bucket, modulo 2^64.
    fn value(&mut self, index: u32, buckets: &[(Key, u64)]) -> u64 {
        let Some(Level { granularity: finer, start, end }) = &mut self.finer else { return 0 };
        let mut sum = 0u64;
        for (key, value) in &buckets[*start..*end] {
            let within = self.granularity.index_at(finer.boundary(key.index()));
            if within > index {
                break;
            }
            sum = sum.wrapping_add(if within == index { *value } else { 0 });
            *start += 1;
        }
        sum
    }
}

fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)) as u64
}

fn unzigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

fn narrow(number: u128) -> Result<u64, BadRow> {
    u64::try_from(number).map_err(|_| BadRow::NotShortest)
}

/// Appends a varint: seven bits a byte, the lowest first.
fn put(bytes: &mut Vec<u8>, mut number: u128) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Takes a varint of at most 70 bits, in its shortest form.
#[inline]
fn take(rest: &mut &[u8]) -> Result<u128, BadRow> {
    if let Some((&byte, left)) = rest.split_first()
        && byte < 0x80
    {
        *rest = left;
        return Ok(byte.into());
    }
    take_long(rest)
}

fn take_long(rest: &mut &[u8]) -> Result<u128, BadRow> {
    let mut number = 0;
    for shift in (0..70).step_by(7) {
        let (&byte, left) = rest.split_first().ok_or(BadRow::CutOff)?;
        *rest = left;
        number |= u128::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return if byte == 0 && shift > 0 { Err(BadRow::NotShortest) } else { Ok(number) };
        }
    }
    Err(BadRow::NotShortest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::{Horizon, Kept, OutOfRange, Retention, SeriesPolicy, SeriesState, UnixTime};
    use proptest::prelude::*;

    fn bucket() -> impl Strategy<Value = (BucketId, u64)> {
        let codes = prop_oneof![Just(0u8), Just(11), Just(18), Just(19), 0..25u8];
        let value = prop_oneof![1..200u64, 1..=COMPONENT_MAX];
        (codes, prop_oneof![0..40u32, any::<u32>()], value).prop_map(|(code, index, value)| {
            let granularity = Granularity::ALL[usize::from(code)];
            (BucketId { granularity, index: index.min(granularity.index_max()) }, value)
        })
    }

    fn rows() -> impl Strategy<Value = Row> {
        proptest::collection::vec(bucket(), 0..60).prop_map(Row::from_buckets)
    }

    /// A counter with minutes, hours and days.
    fn horizon(now: u64) -> Horizon {
        let kept = |code: usize, ttl_s| Kept { granularity: Granularity::ALL[code], ttl_s };
        let retention = Retention::new(vec![kept(0, 172_800), kept(11, 30 * 86_400), kept(18, 400 * 86_400)]).unwrap();
        let policy = SeriesPolicy::new(retention, 86_400, 60, OutOfRange::Refused).unwrap();
        SeriesState::new(policy, UnixTime::try_from(now).unwrap()).horizon().clone()
    }

    const NOW: u64 = 1_800_000_000;

    fn counted(events: impl IntoIterator<Item = (u64, u64)>) -> Row {
        let mut row = Row::default();
        let horizon = horizon(NOW);
        for (ago_s, delta) in events {
            row.add(&horizon, UnixTime::try_from(NOW - ago_s).unwrap(), delta).unwrap();
        }
        row
    }

    proptest! {
        #[test]
        fn a_row_is_what_was_encoded(row in rows()) {
            let bytes = encode(&row).unwrap();
            prop_assert!(bytes.len() <= ROW_BYTES_MAX);
            prop_assert_eq!(Decoder::default().decode(&bytes), Ok(row.clone()));
            prop_assert_eq!(decode(&bytes), Ok(row));
        }

        #[test]
        fn pieces_are_decoded_as_the_list_that_they_are(row in rows(), at_most in 1..70usize, cut: usize, more in any::<u8>()) {
            let pieces: Vec<Row> = row.pieces(at_most).collect();
            let mut bytes = postcard::to_allocvec(&pieces).unwrap();
            prop_assert_eq!(Decoder::default().decode_pieces(&bytes), Ok(row));
            let cut = cut % bytes.len();
            prop_assert!(Decoder::default().decode_pieces(&bytes[..cut]).is_err());
            bytes.push(more);
            prop_assert_eq!(Decoder::default().decode_pieces(&bytes), Err(BadRow::Later { bytes: 1 }));
        }

        #[test]
        fn totals_are_what_was_encoded(row in rows(), more in proptest::collection::vec(any::<u64>(), 60)) {
            let larger = row.buckets().zip(more).map(|((bucket, value), more)| (bucket, (value ^ more).max(1)));
            let totals = Totals::from_buckets(larger);
            let bytes = encode_totals(&totals).unwrap();
            prop_assert!(bytes.len() <= ROW_BYTES_MAX);
            prop_assert_eq!(decode_totals(&bytes), Ok(totals));
        }

        #[test]
        fn what_is_accepted_is_the_only_encoding_of_a_row(
            row in rows(), at: usize, byte in prop_oneof![0..8u8, any::<u8>()], garbage in proptest::collection::vec(0..30u8, 0..40)
        ) {
            let mut damaged = encode(&row).unwrap();
            let at = at % damaged.len();
            damaged[at] = byte;
            let cut = damaged[..at].to_vec();
            let garbage = [&[ROW_VERSION], &garbage[..]].concat();
            for bytes in [damaged, cut, garbage] {
                let Ok(decoded) = decode(&bytes) else { continue };
                decoded.check_invariants();
                prop_assert_eq!(encode(&decoded).unwrap(), bytes);
            }
        }
    }

    #[test]
    fn rows_are_short() {
        let hit_once = counted([(5, 1)]);
        assert_eq!((hit_once.len(), encode(&hit_once).unwrap().len()), (3, 14));
        let every_minute = counted((0..600).map(|minute| (minute * 60, 1 + minute % 50)));
        let bytes = encode(&every_minute).unwrap().len();
        assert!(bytes <= 2 * every_minute.len(), "{bytes} bytes of {} buckets", every_minute.len());
        let now_and_then = counted((0..300).map(|n: u64| (n * n * 29 % 170_000, 1 + n * n % 1_000)));
        let bytes = encode(&now_and_then).unwrap().len();
        assert!(bytes <= 4 * now_and_then.len(), "{bytes} bytes of {} buckets", now_and_then.len());
        let mut coarse = now_and_then;
        coarse.expire(&horizon(NOW + 8 * 86_400));
        let bytes = encode(&coarse).unwrap().len();
        assert!(bytes <= 4 * coarse.len(), "{bytes} bytes of {} buckets without their minutes", coarse.len());
    }

    #[test]
    fn what_is_no_row_is_refused_with_value_and_limit() {
        let refused = |bytes: &[u8]| decode(bytes).unwrap_err().to_string();
        assert_eq!(refused(&[]), "row is cut off");
        assert_eq!(refused(&[2]), "row version 2: this process knows 1");
        assert_eq!(refused(&[1, 25]), "granularity number 25 in a row, after None: ascending and below 25 allowed");
        assert_eq!(refused(&[1, 18, 0]), "0 buckets in a row: 1 to 4096 allowed");
        assert_eq!(refused(&[1, 18, 0x81, 0x20]), "4097 buckets in a row: 1 to 4096 allowed");
        assert_eq!(refused(&[1, 18, 1, 0]), "bucket of 0: 1 to 72057594037927936 allowed");
        assert_eq!(refused(&[1, 18, 1, 5, 1]), "bucket -1 of 1d: 0 to 376199 allowed");
        assert_eq!(refused(&[1, 18, 0x81, 0]), "number in a row is not in its shortest form");
        assert_eq!(decode(&vec![1; ROW_BYTES_MAX + 1]), Err(BadRow::TooLong { bytes: ROW_BYTES_MAX + 1 }));
    }

    #[test]
    fn the_longest_row_fits_its_limit() {
        let value = |n: u32| if n.is_multiple_of(2) { COMPONENT_MAX } else { 1 };
        let granularity = Granularity::MINUTE;
        let far_apart = |n: u32| (BucketId { granularity, index: n * 100_000 }, value(n));
        let longest = Row::from_buckets((0..ROW_BUCKETS_MAX as u32).map(far_apart));
        let bytes = encode(&longest).unwrap();
        assert!(bytes.len() <= ROW_BYTES_MAX);
        assert_eq!(decode(&bytes), Ok(longest.clone()));
        let more = Row::from_buckets((0..=ROW_BUCKETS_MAX as u32).map(far_apart));
        assert_eq!(encode(&more), Err(RowTooLong(ROW_BUCKETS_MAX + 1)));
        let pieces: Vec<Row> = more.pieces(ROW_BUCKETS_MAX).collect();
        assert_eq!((pieces.len(), pieces[0].len(), pieces[1].len()), (2, ROW_BUCKETS_MAX, 1));
        assert_eq!(pieces[0], longest);
    }

    /// The encoding that stores hold and peers send: a change of it is a change of version.
    #[test]
    fn the_encoding_is_what_it_was() {
        let row = counted([(5, 1), (70, 300), (90_000, 7)]);
        let expected = [1, 0, 3, 29, 200, 246, 205, 28, 177, 9, 217, 11, 4, 11, 2, 0, 1, 23, 18, 2, 0, 0];
        assert_eq!(encode(&row).unwrap(), expected);
        assert_eq!(decode(&expected), Ok(row));
    }
}
