//! An entry of the log: an accepted batch, as its rows are counted later.
//!
//! The head has a fixed length, so positions are found without reading events: a version, the number of the first row, the number of
//! rows, and the time of acceptance. The body follows.

use crate::codec::{self, at_most};
use crate::limits::{ENTRY_BYTES_MAX, EVENTS_MAX, LISTINGS_MAX, PRODUCER_BYTES_MAX};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use tidemark_streams_core::event::RawEvent;
use tidemark_streams_core::owner::Record;
use tidemark_streams_core::values::Values;

pub use crate::codec::DecodeError;

const HEAD_VERSION: u8 = 1;
const BODY_VERSION: u8 = 1;
/// The version of a body with values of dimensions. Other bodies stay as they are.
const VALUES_VERSION: u8 = 2;
const HEAD_BYTES: usize = 1 + 8 + 4 + 8;

/// The part of an entry that is known without reading its events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The number of its first row.
    pub first_row: u64,
    pub rows: u32,
    /// Milliseconds since 1970.
    pub accepted_at_ms: u64,
}

/// A batch that was accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch<'a> {
    #[serde(borrow)]
    pub producer: Option<BatchOf<'a>>,
    pub answer: Answer,
    #[serde(borrow)]
    pub events: Vec<Event<'a>>,
}

/// Which batch of which producer it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchOf<'a> {
    #[serde(borrow)]
    pub name: Cow<'a, str>,
    pub seq: u64,
    /// A hash of the body, which tells a repeated batch from another one under the same number.
    pub digest: u64,
}

/// The result of the events of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    pub accepted: u32,
    pub dead_letters: u32,
    /// Events with known ids. They are not in the entry.
    pub duplicates: u32,
}

/// An event of a batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event<'a> {
    #[serde(borrow)]
    Valid(ValidEvent<'a>),
    /// It becomes a dead letter.
    Broken { reason: Cow<'a, str>, text: Cow<'a, str> },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValidEvent<'a> {
    #[serde(borrow)]
    pub tenant: Cow<'a, str>,
    #[serde(borrow)]
    pub listings: Listings<'a>,
    pub at_s: i64,
    #[serde(borrow)]
    pub event_type: Cow<'a, str>,
    pub count: u32,
    pub id: Option<EventKey>,
    /// The text of the values of dimensions. It is behind all events of a batch.
    #[serde(skip)]
    pub values: Cow<'a, str>,
}

/// A batch with values: one text for each valid event.
#[derive(Serialize, Deserialize)]
struct WithValues<B, V> {
    batch: B,
    values: Vec<V>,
}

/// The listings of an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Listings<'a> {
    #[serde(borrow)]
    One(Cow<'a, str>),
    /// A page of several, each of which has a row.
    Page(Vec<Cow<'a, str>>),
}

/// An event's id, together with its tenant and its type, as a hash of 128 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct EventKey(pub u64, pub u64);

impl Event<'_> {
    pub fn rows(&self) -> usize {
        match self {
            Event::Valid(event) => event.listings.as_slice().len(),
            Event::Broken { .. } => 1,
        }
    }

    pub fn id(&self) -> Option<EventKey> {
        match self {
            Event::Valid(event) => event.id,
            Event::Broken { .. } => None,
        }
    }
}

impl<'a> Listings<'a> {
    pub fn as_slice(&self) -> &[Cow<'a, str>] {
        match self {
            Listings::One(listing) => std::slice::from_ref(listing),
            Listings::Page(listings) => listings,
        }
    }
}

impl Head {
    /// # Errors
    /// [`DecodeError`].
    pub fn decode(entry: &[u8]) -> Result<Head, DecodeError> {
        at_most("bytes of an entry:", entry.len(), ENTRY_BYTES_MAX)?;
        let (&found, rest) = entry.split_first().ok_or(DecodeError::Empty)?;
        if found != HEAD_VERSION {
            return Err(DecodeError::Version { found, known: HEAD_VERSION });
        }
        let short = || DecodeError::Damaged("its head is cut off".to_owned());
        let (first_row, rest) = rest.split_first_chunk().ok_or_else(short)?;
        let (rows, rest) = rest.split_first_chunk().ok_or_else(short)?;
        let (accepted_at_ms, _) = rest.split_first_chunk().ok_or_else(short)?;
        let head = Head {
            first_row: u64::from_le_bytes(*first_row),
            rows: u32::from_le_bytes(*rows),
            accepted_at_ms: u64::from_le_bytes(*accepted_at_ms),
        };
        head.first_row.checked_add(head.rows.into()).ok_or_else(|| DecodeError::Damaged("its rows overflow".into()))?;
        Ok(head)
    }

    /// The number of the row behind its last one.
    pub fn end_row(&self) -> u64 {
        self.first_row + u64::from(self.rows)
    }
}

impl<'a> Batch<'a> {
    pub fn rows(&self) -> usize {
        self.events.iter().map(Event::rows).sum()
    }

    /// The entry of this batch, with the number of its first row.
    pub fn encode(&self, first_row: u64, accepted_at_ms: u64) -> Vec<u8> {
        let mut entry = Vec::with_capacity(HEAD_BYTES + 64 * (1 + self.events.len()));
        entry.push(HEAD_VERSION);
        entry.extend_from_slice(&first_row.to_le_bytes());
        entry.extend_from_slice(&(self.rows() as u32).to_le_bytes());
        entry.extend_from_slice(&accepted_at_ms.to_le_bytes());
        let values: Vec<&str> = self.valid().map(|event| event.values.as_ref()).collect();
        // Writing to a vector fails only for types of unknown length, which none of these has.
        if values.iter().all(|values| values.is_empty()) {
            entry.push(BODY_VERSION);
            return postcard::to_extend(self, entry).unwrap_or_default();
        }
        entry.push(VALUES_VERSION);
        postcard::to_extend(&WithValues { batch: self, values }, entry).unwrap_or_default()
    }

    fn valid(&self) -> impl Iterator<Item = &ValidEvent<'a>> {
        self.events.iter().filter_map(|event| match event {
            Event::Valid(event) => Some(event),
            Event::Broken { .. } => None,
        })
    }

    /// # Errors
    /// [`DecodeError`].
    pub fn decode(entry: &'a [u8]) -> Result<(Head, Batch<'a>), DecodeError> {
        let head = Head::decode(entry)?;
        let body = &entry[HEAD_BYTES..];
        let batch: Batch<'a> = match body.first() {
            Some(&VALUES_VERSION) => Batch::with_values(codec::decode(VALUES_VERSION, body)?)?,
            Some(_) | None => codec::decode(BODY_VERSION, body)?,
        };
        at_most("events:", batch.events.len(), EVENTS_MAX)?;
        if let Some(producer) = &batch.producer {
            at_most("bytes of a producer:", producer.name.len(), PRODUCER_BYTES_MAX)?;
        }
        for event in &batch.events {
            at_most("listings:", event.rows(), LISTINGS_MAX)?;
        }
        let found = batch.rows() as u64;
        if found != u64::from(head.rows) {
            return Err(DecodeError::Rows { found, said: head.rows.into() });
        }
        Ok((head, batch))
    }

    fn with_values(read: WithValues<Batch<'a>, &'a str>) -> Result<Batch<'a>, DecodeError> {
        let WithValues { mut batch, values } = read;
        let found = values.len() as u64;
        let said = batch.valid().count() as u64;
        if found != said {
            return Err(DecodeError::Rows { found, said });
        }
        let mut values = values.into_iter();
        for event in &mut batch.events {
            if let Event::Valid(event) = event {
                let text = values.next().unwrap_or_default();
                Values::parse(text).map_err(|error| DecodeError::Damaged(error.to_string()))?;
                event.values = Cow::Borrowed(text);
            }
        }
        Ok(batch)
    }

    /// Its rows, as the owner takes them.
    pub fn records(&self) -> Vec<Record<'_>> {
        let mut records = Vec::with_capacity(self.events.len());
        for event in &self.events {
            match event {
                Event::Broken { reason, text } => records.push(Record::Broken { reason, text }),
                Event::Valid(event) => records.extend(event.rows().map(Record::Event)),
            }
        }
        records
    }
}

impl ValidEvent<'_> {
    /// The same, which borrows nothing.
    pub fn into_owned(self) -> ValidEvent<'static> {
        let owned = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        let listings = match self.listings {
            Listings::One(listing) => Listings::One(owned(listing)),
            Listings::Page(listings) => Listings::Page(listings.into_iter().map(owned).collect()),
        };
        ValidEvent {
            tenant: owned(self.tenant),
            listings,
            at_s: self.at_s,
            event_type: owned(self.event_type),
            count: self.count,
            id: self.id,
            values: owned(self.values),
        }
    }

    /// A row for each listing.
    pub fn rows(&self) -> impl Iterator<Item = RawEvent<'_>> {
        self.listings.as_slice().iter().map(|listing| RawEvent {
            tenant: &self.tenant,
            listing,
            at_s: self.at_s,
            event_type: &self.event_type,
            count: i64::from(self.count),
            values: parsed(&self.values),
        })
    }
}

/// The values of a text that was checked before.
pub(crate) fn parsed(text: &str) -> Values<'_> {
    Values::parse(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch() -> Batch<'static> {
        let valid = |listings| ValidEvent {
            tenant: "330".into(),
            listings,
            at_s: 1_483_271_606,
            event_type: "impression".into(),
            count: 2,
            id: Some(EventKey(7, u64::MAX)),
            values: "".into(),
        };
        Batch {
            producer: Some(BatchOf { name: "front-1".into(), seq: 9, digest: 3 }),
            answer: Answer { accepted: 2, dead_letters: 1, duplicates: 4 },
            events: vec![
                Event::Valid(valid(Listings::One("a".into()))),
                Event::Broken { reason: "no JSON".into(), text: "{".into() },
                Event::Valid(valid(Listings::Page(vec!["b".into(), "c".into()]))),
            ],
        }
    }

    #[test]
    fn entries_are_read_as_they_were_written() {
        let entry = batch().encode(40, 1_800_000_000_123);
        let (head, read) = Batch::decode(&entry).unwrap();
        assert_eq!(head, Head { first_row: 40, rows: 4, accepted_at_ms: 1_800_000_000_123 });
        assert_eq!((head.end_row(), &read), (44, &batch()));
        let records = read.records();
        assert_eq!(records.len(), 4);
        assert!(matches!(records[3], Record::Event(RawEvent { listing: "c", count: 2, .. })));
    }

    #[test]
    fn entries_with_values_are_read_as_they_were_written() {
        let plain = batch().encode(40, 7);
        assert_eq!(plain[HEAD_BYTES], BODY_VERSION);
        let mut batch = batch();
        let Event::Valid(last) = &mut batch.events[2] else { panic!("{batch:?}") };
        last.values = "\u{1}NP".into();
        let entry = batch.encode(40, 7);
        assert_eq!(entry[HEAD_BYTES], VALUES_VERSION);
        let (_, read) = Batch::decode(&entry).unwrap();
        assert_eq!(read, batch);
        let with = |record: &Record<'_>| matches!(record, Record::Event(raw) if raw.values.as_str() == "\u{1}NP");
        assert_eq!(read.records().iter().map(with).collect::<Vec<_>>(), [false, false, true, true]);
        for end in 0..entry.len() {
            assert!(Batch::decode(&entry[..end]).is_err(), "cut at {end}");
        }
        let Event::Valid(last) = &mut batch.events[2] else { panic!("{batch:?}") };
        last.values = "\u{1}NP\u{1}IN".into();
        assert!(matches!(Batch::decode(&batch.encode(40, 7)), Err(DecodeError::Damaged(_))));
    }

    #[test]
    fn damaged_entries_are_refused() {
        let entry = batch().encode(40, 7);
        for end in 0..entry.len() {
            assert!(Batch::decode(&entry[..end]).is_err(), "cut at {end}");
        }
        assert_eq!(Batch::decode(&[&entry[..], b"x"].concat()), Err(DecodeError::Tail(1)));
        assert_eq!(Head::decode(&[2]), Err(DecodeError::Version { found: 2, known: 1 }));
        let mut other = entry.clone();
        other[9] = 5;
        assert_eq!(Batch::decode(&other), Err(DecodeError::Rows { found: 4, said: 5 }));
        let mut last = entry;
        last[1..9].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(Head::decode(&last).is_err());
    }
}
