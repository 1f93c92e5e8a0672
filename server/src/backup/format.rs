//! The format of an image: records, each with its length and kind, the last of which has a digest of all before.
//!
//! `length: u32 LE, kind: u8, content`. Kinds, in order: the head; the part of the view, if several aggregators hold it in parts;
//! pieces of the ledger's state; and rows of the view in the order of their keys. Then the beginning of each further shard, with
//! the shard's rows behind it; and the end. An image that was truncated or changed is refused.

use ring::digest::{Context, SHA256, SHA256_OUTPUT_LEN};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::mem::take;

/// The version of an image of a view that is not cut.
pub const IMAGE_VERSION: u32 = 1;
/// The version of an image with several shards: a reader that does not know of shards refuses it.
pub const IMAGE_VERSION_CUT: u32 = 2;
/// And of one that is held in parts.
pub const IMAGE_VERSION_PART: u32 = 3;
/// Bytes of one record's content: a row of the view has at most six million.
pub const RECORD_BYTES_MAX: usize = 8 << 20;
/// Records gather about this number of bytes.
const RECORD_BYTES: usize = 256 << 10;
const PREFIX_BYTES: usize = 5;

/// The first record of an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    pub version: u32,
    pub cluster: String,
    pub era: u64,
    /// The data centre that it was taken of, by its number in `dcs`.
    pub dc: u16,
    /// All data centres of the layout, by their numbers.
    pub dcs: Vec<String>,
    /// Milliseconds since 1970, UTC.
    pub taken_ms: u64,
    /// The entry up to which the ledger was applied.
    pub ledger_index: u64,
}

/// Which part of a data centre's view an image has, where several aggregators hold one each.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// The aggregator's name behind its data centre's: `first`, `second` and so on.
    pub aggregator: String,
    /// The slots it holds, ascending, and those that are none any more, since they were split: nothing of them is missed.
    pub held: Vec<u16>,
    /// How many numbers were given to slots: all are below it.
    pub slots: u16,
}

/// Rows, in the order of their keys.
pub type Rows = Vec<(Vec<u8>, Vec<u8>)>;

/// The content of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    Head(Head),
    Part(Part),
    /// The next piece of the ledger's state.
    Ledger(Vec<u8>),
    Rows(Rows),
    /// Rows of this shard follow; rows before it are of other shards, the first ones of shard 0.
    Shard(u16),
    End,
}

const HEAD: u8 = 1;
const LEDGER: u8 = 2;
const ROWS: u8 = 3;
const END: u8 = 4;
const SHARD: u8 = 5;
const PART: u8 = 6;

#[derive(Serialize, Deserialize)]
struct End {
    records: u64,
    digest: [u8; SHA256_OUTPUT_LEN],
}

/// Why bytes are no image.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    #[error("it is of version {0}, and this program reads versions up to {IMAGE_VERSION_PART}")]
    Version(u32),
    #[error("a record of {0} bytes: at most {RECORD_BYTES_MAX} allowed")]
    TooLong(usize),
    #[error("a record of kind {0} is of no known kind, or stands in the wrong place")]
    Kind(u8),
    #[error("a record of kind {kind} is malformed: {reason}")]
    Malformed { kind: u8, reason: String },
    #[error("it is damaged: its digest is another than it says")]
    Digest,
    #[error("it is cut off after {0} records")]
    CutOff(u64),
    #[error("something stands behind its end")]
    Trailing,
}

/// Makes records of what an image holds.
pub struct RecordWriter {
    digest: Context,
    records: u64,
    rows: Rows,
    row_bytes: usize,
}

impl RecordWriter {
    /// With the first record.
    pub fn new(head: &Head) -> (RecordWriter, Vec<u8>) {
        let mut writer = RecordWriter { digest: Context::new(&SHA256), records: 0, rows: Rows::new(), row_bytes: 0 };
        let first = writer.record(HEAD, &encode(head));
        (writer, first)
    }

    /// Which part of a view the image has, right behind the head.
    pub fn part(&mut self, part: &Part) -> Vec<u8> {
        self.record(PART, &encode(part))
    }

    /// The ledger's state as records, to stand before all rows.
    pub fn ledger<'w>(&'w mut self, state: &'w [u8]) -> impl Iterator<Item = Vec<u8>> + 'w {
        state.chunks(RECORD_BYTES).map(|piece| self.record(LEDGER, piece))
    }

    /// Takes a row; a record when enough have gathered.
    pub fn row(&mut self, key: &[u8], value: &[u8]) -> Option<Vec<u8>> {
        self.row_bytes += key.len() + value.len();
        self.rows.push((key.to_vec(), value.to_vec()));
        (self.row_bytes >= RECORD_BYTES).then(|| self.gathered())
    }

    /// Rows of another shard follow.
    pub fn shard(&mut self, shard: u16) -> impl Iterator<Item = Vec<u8>> + use<> {
        let before = (!self.rows.is_empty()).then(|| self.gathered());
        let begins = self.record(SHARD, &encode(&shard));
        before.into_iter().chain([begins])
    }

    /// The last records.
    pub fn end(mut self) -> Vec<u8> {
        let mut bytes = if self.rows.is_empty() { Vec::new() } else { self.gathered() };
        let mut digest = [0; SHA256_OUTPUT_LEN];
        digest.copy_from_slice(self.digest.clone().finish().as_ref());
        let end = End { records: self.records, digest };
        bytes.extend(self.record(END, &encode(&end)));
        bytes
    }

    fn gathered(&mut self) -> Vec<u8> {
        self.row_bytes = 0;
        let rows = take(&mut self.rows);
        self.record(ROWS, &encode(&rows))
    }

    fn record(&mut self, kind: u8, content: &[u8]) -> Vec<u8> {
        let length = u32::try_from(content.len()).expect("records are far smaller");
        let mut record = Vec::with_capacity(PREFIX_BYTES + content.len());
        record.extend(length.to_le_bytes());
        record.push(kind);
        record.extend(content);
        self.digest.update(&record);
        self.records += 1;
        record
    }
}

/// Takes an image's bytes as they come, and gives out what they hold.
pub struct RecordReader {
    buffer: Vec<u8>,
    at: usize,
    digest: Context,
    records: u64,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    Nothing,
    Head,
    Ledger,
    Rows,
    End,
}

impl Default for RecordReader {
    fn default() -> RecordReader {
        RecordReader::new()
    }
}

impl RecordReader {
    pub fn new() -> RecordReader {
        let buffer = Vec::new();
        let digest = Context::new(&SHA256);
        RecordReader { buffer, at: 0, digest, records: 0, state: State::Nothing }
    }

    /// Further bytes of the image.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..take(&mut self.at));
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole record, if there is one. Errors: [`FormatError`]; never panics.
    pub fn next_record(&mut self) -> Result<Option<Record>, FormatError> {
        let rest = &self.buffer[self.at..];
        if self.state == State::End {
            return if rest.is_empty() { Ok(None) } else { Err(FormatError::Trailing) };
        }
        let Some((prefix, rest)) = rest.split_first_chunk::<PREFIX_BYTES>() else { return Ok(None) };
        let [a, b, c, d, kind] = *prefix;
        let length = u32::from_le_bytes([a, b, c, d]) as usize;
        if length > RECORD_BYTES_MAX {
            return Err(FormatError::TooLong(length));
        }
        let Some(content) = rest.get(..length) else { return Ok(None) };
        let record = self.understand(kind, content)?;
        let end = self.at + PREFIX_BYTES + length;
        self.digest.update(&self.buffer[self.at..end]);
        (self.at, self.records) = (end, self.records + 1);
        self.state = match record {
            Record::Head(_) | Record::Part(_) => State::Head,
            Record::Ledger(_) => State::Ledger,
            Record::Rows(_) | Record::Shard(_) => State::Rows,
            Record::End => State::End,
        };
        Ok(Some(record))
    }

    /// To be called when there are no further bytes.
    pub fn finish(&self) -> Result<(), FormatError> {
        if self.state == State::End { Ok(()) } else { Err(FormatError::CutOff(self.records)) }
    }

    fn understand(&self, kind: u8, content: &[u8]) -> Result<Record, FormatError> {
        match (kind, self.state) {
            (HEAD, State::Nothing) => {
                // In every later version, the number stands first.
                match decode_first::<u32>(content) {
                    Some(IMAGE_VERSION | IMAGE_VERSION_CUT | IMAGE_VERSION_PART) => {
                        decode(kind, content).map(Record::Head)
                    }
                    Some(other) => Err(FormatError::Version(other)),
                    None => Err(FormatError::Malformed { kind, reason: "it has no version".to_owned() }),
                }
            }
            (PART, State::Head) => decode(kind, content).map(Record::Part),
            (LEDGER, State::Head | State::Ledger) => Ok(Record::Ledger(content.to_vec())),
            (ROWS, State::Ledger | State::Rows) => decode(kind, content).map(Record::Rows),
            (SHARD, State::Ledger | State::Rows) => decode(kind, content).map(Record::Shard),
            (END, State::Ledger | State::Rows) => {
                let End { records, digest } = decode(kind, content)?;
                let found = self.digest.clone().finish();
                let same = digest.as_slice() == found.as_ref() && records == self.records;
                if same { Ok(Record::End) } else { Err(FormatError::Digest) }
            }
            _ => Err(FormatError::Kind(kind)),
        }
    }
}

fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    postcard::to_allocvec(value).expect("records hold only what postcard can encode")
}

fn decode<T: DeserializeOwned>(kind: u8, content: &[u8]) -> Result<T, FormatError> {
    postcard::from_bytes(content).map_err(|error| FormatError::Malformed { kind, reason: error.to_string() })
}

fn decode_first<T: DeserializeOwned>(content: &[u8]) -> Option<T> {
    postcard::take_from_bytes(content).ok().map(|(first, _)| first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn head() -> Head {
        let dcs = vec!["usa-0".to_owned()];
        Head { version: 1, cluster: "t".into(), era: 3, dc: 0, dcs, taken_ms: 5, ledger_index: 9 }
    }

    fn image(ledger: &[u8], rows: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
        image_of(None, ledger, rows)
    }

    fn image_of(part: Option<&Part>, ledger: &[u8], rows: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
        let (mut writer, mut bytes) = RecordWriter::new(&head());
        part.into_iter().for_each(|part| bytes.extend(writer.part(part)));
        writer.ledger(ledger).for_each(|record| bytes.extend(record));
        for (key, value) in rows {
            bytes.extend(writer.row(key, value).unwrap_or_default());
        }
        bytes.extend(writer.end());
        bytes
    }

    fn read(bytes: &[u8], piece: usize) -> Result<Vec<Record>, FormatError> {
        let mut reader = RecordReader::new();
        let mut records = Vec::new();
        for piece in bytes.chunks(piece) {
            reader.push(piece);
            while let Some(record) = reader.next_record()? {
                records.push(record);
            }
        }
        reader.finish().map(|()| records)
    }

    proptest! {
        #[test]
        fn what_was_written_is_read_in_pieces_of_any_size(
            ledger in proptest::collection::vec(any::<u8>(), 1..600_000),
            rows in proptest::collection::vec((proptest::collection::vec(any::<u8>(), 1..9), proptest::collection::vec(any::<u8>(), 0..90)), 0..20),
            piece in 1usize..70_000,
            held in prop::option::of(proptest::collection::vec(any::<u16>(), 0..5)),
        ) {
            let part = held.map(|held| Part { aggregator: "third".into(), held, slots: 7 });
            let records = read(&image_of(part.as_ref(), &ledger, &rows), piece).unwrap();
            prop_assert_eq!(&records[0], &Record::Head(head()));
            let mut state = Vec::new();
            let mut found = Rows::new();
            let mut said = None;
            for record in records {
                match record {
                    Record::Ledger(piece) => state.extend(piece),
                    Record::Rows(rows) => found.extend(rows),
                    Record::Part(part) => said = Some(part),
                    Record::Head(_) | Record::Shard(_) | Record::End => {}
                }
            }
            prop_assert_eq!((state, found, said), (ledger, rows, part));
        }

        #[test]
        fn whatever_is_changed_cut_off_or_added_is_refused(at in any::<prop::sample::Index>(), flip in 1u8.., more in 1usize..9) {
            let whole = image(&[7; 300], &[(vec![1], vec![2; 50])]);
            let mut changed = whole.clone();
            let index = at.index(changed.len());
            changed[index] ^= flip;
            prop_assert!(read(&changed, 64).is_err());
            prop_assert!(read(&whole[..index], 64).is_err());
            prop_assert_eq!(read(&[&whole[..], &vec![0; more]].concat(), 64), Err(FormatError::Trailing));
        }

        #[test]
        fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = read(&bytes, 64);
        }
    }

    #[test]
    fn rows_of_shards_stay_apart() {
        let (mut writer, mut bytes) = RecordWriter::new(&Head { version: IMAGE_VERSION_CUT, ..head() });
        writer.ledger(&[7]).for_each(|record| bytes.extend(record));
        for shard in 0..3u8 {
            if shard > 0 {
                writer.shard(shard.into()).for_each(|record| bytes.extend(record));
            }
            bytes.extend(writer.row(&[1], &[shard]).unwrap_or_default());
        }
        bytes.extend(writer.end());
        let row = |shard| Record::Rows(vec![(vec![1], vec![shard])]);
        let shards = [row(0), Record::Shard(1), row(1), Record::Shard(2), row(2), Record::End];
        assert_eq!(read(&bytes, 64).unwrap()[2..], shards);
    }

    #[test]
    fn another_version_is_refused_by_its_number() {
        let (_, later) = RecordWriter::new(&Head { version: 4, ..head() });
        assert_eq!(read(&later, 64), Err(FormatError::Version(4)));
    }
}
