//! The rows of a store that count: of a block's two sides, the later one that a completed checkpoint wrote. Rows are read one
//! after the other, wherever the store is read. [`Loading`](super::Loading) then puts the rows that count together, perhaps
//! elsewhere.

use super::{
    BEFORE, BUCKETS, Closing, FORMAT, LoadError, META, Meta, block_of, get, get_place, get_varint, is_shelved,
    malformed,
};
use crate::group::shelved::Place;
use tidemark_types::series::Row as Buckets;
use tidemark_types::series::codec::Decoder;

/// The content of a row, or of the two rows of a block.
#[derive(Debug)]
pub struct Stored(pub(super) Kind);

#[derive(Debug)]
pub(super) enum Kind {
    /// The row that completes a checkpoint; it comes first.
    Closing(Box<Closing>),
    /// A block as the checkpoint has it.
    Block { key: Vec<u8>, content: Vec<u8> },
    /// The buckets of a component, as the checkpoint has them.
    Buckets { number: u32, side: u8, row: Buckets, shelved: Option<Place> },
    /// A row of a checkpoint that was not completed.
    Leftover { key: Vec<u8> },
}

/// Reads the rows of a store in the order of their keys.
#[derive(Debug, Default)]
pub struct RowReader {
    reads: Reads,
    /// The key of the row before.
    last: Vec<u8>,
    /// The checkpoint of the best row so far of the block that is being read; its key and content stand below.
    best: Option<u64>,
    key: Vec<u8>,
    content: Vec<u8>,
    decoder: Decoder,
}

/// The content of a store, by its first row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Reads {
    #[default]
    Nothing,
    /// Parts of checkpoints, and none was ever completed.
    Unfinished,
    Checkpoint {
        number: u64,
    },
}

impl RowReader {
    /// Takes the next row. Rows that turn out to count, this one or the one before, are appended to `counts`.
    pub fn row(&mut self, key: &[u8], value: &[u8], counts: &mut Vec<Stored>) -> Result<(), LoadError> {
        let number = match self.reads {
            Reads::Nothing => return self.on_first(key, value, counts),
            Reads::Unfinished => return Ok(()),
            Reads::Checkpoint { number } => number,
        };
        if key <= &self.last[..] {
            return Err(LoadError::Order);
        }
        self.last.clear();
        self.last.extend_from_slice(key);
        if value.is_empty() || is_shelved(key) { Ok(()) } else { self.on_row(number, key, value, counts) }
    }

    /// There are no more rows.
    pub fn end(mut self, counts: &mut Vec<Stored>) -> Result<(), LoadError> {
        self.flush(counts)
    }

    fn on_first(&mut self, key: &[u8], value: &[u8], counts: &mut Vec<Stored>) -> Result<(), LoadError> {
        if key != [META] {
            self.reads = Reads::Unfinished;
            return Ok(());
        }
        let closing = closing(value)?;
        self.reads = Reads::Checkpoint { number: closing.meta.number };
        self.last.extend_from_slice(key);
        counts.push(Stored(Kind::Closing(Box::new(closing))));
        Ok(())
    }

    fn on_row(
        &mut self,
        complete: u64,
        key: &[u8],
        mut content: &[u8],
        counts: &mut Vec<Stored>,
    ) -> Result<(), LoadError> {
        let number = get_varint(&mut content).ok_or(malformed(key, "no checkpoint number"))?;
        if !matches!((key.len(), key.last()), (6 | 14, Some(0 | 1))) {
            return Err(malformed(key, "unknown key"));
        }
        if self.best.is_some() && self.key[..self.key.len() - 1] != key[..key.len() - 1] {
            self.flush(counts)?;
        }
        if number > complete {
            counts.push(Stored(Kind::Leftover { key: key.to_vec() }));
        } else if self.best.is_none_or(|best| best < number) {
            self.best = Some(number);
            self.key.clear();
            self.key.extend_from_slice(key);
            self.content.clear();
            self.content.extend_from_slice(content);
        }
        Ok(())
    }

    fn flush(&mut self, counts: &mut Vec<Stored>) -> Result<(), LoadError> {
        if self.best.take().is_none() {
            return Ok(());
        }
        counts.push(Stored(match self.key[0] {
            BUCKETS => {
                let mut content = &self.content[..];
                let row = self.decoder.take_pieces(&mut content);
                let row = row.map_err(|_| malformed(&self.key, "not a row of buckets"))?;
                let number = block_of(&self.key);
                let shelved = get_place(number, content).ok_or(malformed(&self.key, "not a place of old buckets"))?;
                Kind::Buckets { number, side: self.key[self.key.len() - 1], row, shelved }
            }
            _ => Kind::Block { key: self.key.clone(), content: self.content.clone() },
        }));
        Ok(())
    }
}

/// The row that completes a checkpoint.
fn closing(row: &[u8]) -> Result<Closing, LoadError> {
    let read = |row: &[u8]| get::<Meta>(row).ok_or(malformed(&[META], "not the closing row"));
    match row.split_first() {
        Some((&FORMAT, rest)) => Ok(Closing { format: FORMAT, meta: read(rest)? }),
        Some((&format, rest)) => {
            let lacks = BEFORE.into_iter().find(|before| before.0 == format).ok_or(LoadError::Format(format))?;
            Ok(Closing { format, meta: read(&[rest, lacks.1].concat())? })
        }
        None => Err(malformed(&[META], "empty")),
    }
}
