//! Batches of producers. A producer numbers its batches 1, 2, 3; a batch that is sent again counts once.

use crate::codec::{self, DecodeError};
use crate::entry::{Answer, BatchOf};
use crate::limits::{PRODUCER_BYTES_MAX, PRODUCER_KEPT_MS, PRODUCERS_MAX};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

const ROW_VERSION: u8 = 1;

/// The last batch of a producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastBatch {
    pub seq: u64,
    pub digest: u64,
    pub answer: Answer,
    pub at_ms: u64,
}

/// The turn of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The next one.
    Next,
    /// The last one again.
    Again(Answer),
}

/// Why a batch is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProducerError {
    #[error("producer: 1 to {PRODUCER_BYTES_MAX} visible ASCII characters")]
    Name,
    #[error("seq 0: batches are numbered from 1 on")]
    Zero,
    #[error("seq {seq} of producer {name:?}: the last batch was {last}; it and all before were accepted")]
    Old { name: String, seq: u64, last: u64 },
    #[error("seq {seq} of producer {name:?}: the next batch is {next}; none may be left out")]
    Gap { name: String, seq: u64, next: u64 },
    #[error("seq {seq} of producer {name:?} was accepted with another body: give each batch a number of its own")]
    Reused { name: String, seq: u64 },
    #[error(
        "seq {seq} of producer {name:?}: this producer is not known, or was silent for 24 hours; begin with seq 1 under a new name"
    )]
    Unknown { name: String, seq: u64 },
    #[error("{PRODUCERS_MAX} producers sent batches in the last 24 hours: no further one is taken")]
    Full,
}

/// The producers that are known.
#[derive(Default)]
pub struct Producers {
    known: BTreeMap<String, LastBatch>,
    changed: BTreeSet<String>,
}

/// Checks a producer's name.
///
/// # Errors
/// [`ProducerError::Name`].
pub fn check_name(name: &str) -> Result<(), ProducerError> {
    let is_short = (1..=PRODUCER_BYTES_MAX).contains(&name.len());
    if is_short && name.bytes().all(|byte| byte.is_ascii_graphic()) { Ok(()) } else { Err(ProducerError::Name) }
}

impl Producers {
    /// Which turn a batch has.
    ///
    /// # Errors
    /// [`ProducerError`].
    pub fn turn(&mut self, now_ms: u64, batch: &BatchOf<'_>) -> Result<Turn, ProducerError> {
        let BatchOf { ref name, seq, digest } = *batch;
        if seq == 0 {
            return Err(ProducerError::Zero);
        }
        let shown = || name.to_string();
        let Some(last) = self.known.get(&**name).filter(|last| !is_over(last, now_ms)) else {
            return match seq {
                1 => self.make_room(now_ms, name).map(|()| Turn::Next),
                _ => Err(ProducerError::Unknown { name: shown(), seq }),
            };
        };
        let next = last.seq.saturating_add(1);
        match seq {
            _ if seq == last.seq && digest == last.digest => Ok(Turn::Again(last.answer)),
            _ if seq == last.seq => Err(ProducerError::Reused { name: shown(), seq }),
            _ if seq == next => Ok(Turn::Next),
            _ if seq < last.seq => Err(ProducerError::Old { name: shown(), seq, last: last.seq }),
            _ => Err(ProducerError::Gap { name: shown(), seq, next }),
        }
    }

    fn make_room(&mut self, now_ms: u64, name: &str) -> Result<(), ProducerError> {
        if self.known.len() < PRODUCERS_MAX || self.known.contains_key(name) {
            return Ok(());
        }
        self.expire(now_ms);
        if self.known.len() < PRODUCERS_MAX { Ok(()) } else { Err(ProducerError::Full) }
    }

    /// A batch is in the log.
    pub fn accepted(&mut self, at_ms: u64, batch: &BatchOf<'_>, answer: Answer) {
        let last = LastBatch { seq: batch.seq, digest: batch.digest, answer, at_ms };
        self.known.insert(batch.name.to_string(), last);
        self.changed.insert(batch.name.to_string());
    }

    /// Forgets the producers that were silent for too long.
    pub fn expire(&mut self, now_ms: u64) {
        let changed = &mut self.changed;
        self.known.retain(|name, last| {
            let is_kept = !is_over(last, now_ms);
            if !is_kept {
                changed.insert(name.clone());
            }
            is_kept
        });
    }

    pub fn len(&self) -> usize {
        self.known.len()
    }

    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Rows for a checkpoint: what has changed since the last one. `None`: the producer was forgotten.
    pub fn changes(&self) -> impl Iterator<Item = (&str, Option<Vec<u8>>)> {
        self.changed.iter().map(|name| (name.as_str(), self.known.get(name).map(encode_row)))
    }

    /// The changes were handed to a checkpoint.
    pub fn clear_changes(&mut self) {
        self.changed.clear();
    }

    /// Takes a row of a checkpoint.
    ///
    /// # Errors
    /// [`DecodeError`].
    pub fn restore(&mut self, name: &[u8], row: &[u8]) -> Result<(), DecodeError> {
        let name = std::str::from_utf8(name).ok().filter(|name| check_name(name).is_ok());
        let name = name.ok_or_else(|| DecodeError::Damaged("a producer's name is none".to_owned()))?;
        let last: LastBatch = codec::decode(ROW_VERSION, row)?;
        self.known.insert(name.to_owned(), last);
        codec::at_most("producers:", self.known.len(), PRODUCERS_MAX)
    }
}

fn is_over(last: &LastBatch, now_ms: u64) -> bool {
    last.at_ms.saturating_add(PRODUCER_KEPT_MS) <= now_ms
}

fn encode_row(last: &LastBatch) -> Vec<u8> {
    codec::encode(ROW_VERSION, last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(name: &'static str, seq: u64, digest: u64) -> BatchOf<'static> {
        BatchOf { name: name.into(), seq, digest }
    }

    #[test]
    fn batches_come_in_order_and_the_last_may_come_again() {
        let mut producers = Producers::default();
        let answer = Answer { accepted: 5, dead_letters: 0, duplicates: 1 };
        assert_eq!(producers.turn(0, &batch("a", 1, 7)), Ok(Turn::Next));
        producers.accepted(0, &batch("a", 1, 7), Answer::default());
        assert_eq!(producers.turn(0, &batch("a", 2, 8)), Ok(Turn::Next));
        producers.accepted(0, &batch("a", 2, 8), answer);
        assert_eq!(producers.turn(0, &batch("a", 2, 8)), Ok(Turn::Again(answer)));
        assert!(matches!(producers.turn(0, &batch("a", 2, 9)), Err(ProducerError::Reused { seq: 2, .. })));
        assert!(matches!(producers.turn(0, &batch("a", 1, 7)), Err(ProducerError::Old { last: 2, .. })));
        assert!(matches!(producers.turn(0, &batch("a", 4, 7)), Err(ProducerError::Gap { next: 3, .. })));
        assert!(matches!(producers.turn(0, &batch("b", 4, 7)), Err(ProducerError::Unknown { seq: 4, .. })));
        assert_eq!(producers.turn(0, &batch("b", 0, 7)), Err(ProducerError::Zero));
    }

    #[test]
    fn producers_are_known_for_a_day() {
        let mut producers = Producers::default();
        producers.accepted(5, &batch("a", 1, 7), Answer::default());
        assert!(producers.turn(PRODUCER_KEPT_MS + 4, &batch("a", 2, 7)).is_ok());
        assert!(matches!(producers.turn(PRODUCER_KEPT_MS + 5, &batch("a", 2, 7)), Err(ProducerError::Unknown { .. })));
        assert_eq!(producers.turn(PRODUCER_KEPT_MS + 5, &batch("a", 1, 7)), Ok(Turn::Next));
        producers.expire(PRODUCER_KEPT_MS + 5);
        assert_eq!(producers.changes().collect::<Vec<_>>(), [("a", None)]);
        assert!(producers.is_empty());
    }

    #[test]
    fn no_more_producers_are_known_than_the_limit() {
        let mut producers = Producers::default();
        for number in 0..PRODUCERS_MAX {
            let of = BatchOf { name: format!("p{number}").into(), seq: 1, digest: 0 };
            producers.accepted(number as u64, &of, Answer::default());
        }
        assert_eq!(producers.turn(PRODUCERS_MAX as u64, &batch("new", 1, 0)), Err(ProducerError::Full));
        assert_eq!(producers.turn(PRODUCER_KEPT_MS + 10, &batch("new", 1, 0)), Ok(Turn::Next));
    }

    #[test]
    fn rows_are_restored_as_they_were() {
        let mut producers = Producers::default();
        producers.accepted(5, &batch("a", 3, 7), Answer { accepted: 1, dead_letters: 2, duplicates: 3 });
        let rows: Vec<(String, Vec<u8>)> =
            producers.changes().map(|(name, row)| (name.to_owned(), row.unwrap())).collect();
        let mut restored = Producers::default();
        restored.restore(rows[0].0.as_bytes(), &rows[0].1).unwrap();
        assert_eq!(restored.known, producers.known);
        assert!(restored.restore(b"a b", &rows[0].1).is_err() && restored.restore(b"a", b"\x01").is_err());
    }
}
