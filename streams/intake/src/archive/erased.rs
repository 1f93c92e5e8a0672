//! What of an entry goes into the archive and stays there: no event ids, and no rows of erased tenants and listings. The rows that stay
//! keep their numbers.

use crate::entry::{Batch, DecodeError, Event, Listings, ValidEvent};
use std::borrow::Cow;
use tidemark_streams_core::erasure::Erasures;
use tidemark_streams_core::names::Names;
use tidemark_streams_core::scope::TenantHash;
use tidemark_streams_core::time::{Hour, Now, Quarter};

/// What is left of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    /// No row of it is erased.
    Whole,
    /// Entries of the rows that stay: a new one begins behind each erased row. They name no producer.
    Rest(Vec<Vec<u8>>),
}

/// Rows that follow each other.
struct Run<'a> {
    first_row: u64,
    end_row: u64,
    events: Vec<Event<'a>>,
}

#[derive(Default)]
struct Runs<'a> {
    runs: Vec<Run<'a>>,
    has_erased: bool,
}

/// An entry without the ids of events. The log has dropped duplicates before, and a hash of 16 bytes does not pack.
///
/// # Errors
/// [`DecodeError`].
pub fn without_ids(entry: &[u8]) -> Result<Cow<'_, [u8]>, DecodeError> {
    let (head, mut batch) = Batch::decode(entry)?;
    if batch.events.iter().all(|event| event.id().is_none()) {
        return Ok(Cow::Borrowed(entry));
    }
    for event in &mut batch.events {
        if let Event::Valid(event) = event {
            event.id = None;
        }
    }
    Ok(Cow::Owned(batch.encode(head.first_row, head.accepted_at_ms)))
}

/// What is left of an entry.
///
/// # Errors
/// [`DecodeError`].
pub fn kept(entry: &[u8], erasures: &Erasures) -> Result<Kept, DecodeError> {
    if erasures.is_empty() {
        return Ok(Kept::Whole);
    }
    let (head, batch) = Batch::decode(entry)?;
    let mut runs = Runs::default();
    let mut row = head.first_row;
    for event in batch.events {
        let rows = event.rows() as u64;
        match event {
            Event::Broken { reason, text } => {
                let names = Names::of_text(&text, Now(head.accepted_at_ms));
                match erasures.erases_raw_letter(&names, head.accepted_at_ms) {
                    true => runs.has_erased = true,
                    false => runs.add(row, Event::Broken { reason, text }),
                }
            }
            Event::Valid(event) => runs.add_valid(row, event, erasures),
        }
        row += rows;
    }
    if !runs.has_erased {
        return Ok(Kept::Whole);
    }
    let encoded = |run: Run<'_>| {
        let batch = Batch { producer: None, answer: batch.answer, events: run.events };
        batch.encode(run.first_row, head.accepted_at_ms)
    };
    Ok(Kept::Rest(runs.runs.into_iter().map(encoded).collect()))
}

impl<'a> Runs<'a> {
    fn add(&mut self, row: u64, event: Event<'a>) {
        let end_row = row + event.rows() as u64;
        match self.runs.last_mut().filter(|run| run.end_row == row) {
            Some(run) => {
                run.end_row = end_row;
                run.events.push(event);
            }
            None => self.runs.push(Run { first_row: row, end_row, events: vec![event] }),
        }
    }

    /// Adds the listings of an event that stay, each group of neighbours as an event.
    fn add_valid(&mut self, first_row: u64, event: ValidEvent<'a>, erasures: &Erasures) {
        let tenant = TenantHash::of(&event.tenant);
        // A time that no row may have is in no hour: the owner refuses it.
        let hour = u64::try_from(event.at_s).ok().and_then(Quarter::of_s).map_or(Hour(0), Quarter::hour);
        let is_kept = |listing: &str| !erasures.erases(tenant, listing, hour);
        let listings = event.listings.as_slice();
        if listings.iter().all(|listing| is_kept(listing)) {
            return self.add(first_row, Event::Valid(event));
        }
        self.has_erased = true;
        let mut row = first_row;
        for group in listings.chunk_by(|a, b| is_kept(a) == is_kept(b)) {
            if group.first().is_some_and(|listing| is_kept(listing)) {
                let listings = Listings::Page(group.to_vec());
                self.add(row, Event::Valid(ValidEvent { listings, ..event.clone() }));
            }
            row += group.len() as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::Head;
    use tidemark_streams_core::blob::Seq;
    use tidemark_streams_core::erasure::{Erasure, ErasureKey};
    use tidemark_streams_core::owner::Record;

    const HOUR_S: i64 = 3_600;

    /// Erases hours before the tenth, at a time.
    fn erasures(keys: &[ErasureKey]) -> Erasures {
        let erasure = Erasure { before: Hour(10), asked_at_ms: 50_000_000, seq: Seq(1), is_done: true };
        let mut erasures = Erasures::default();
        keys.iter().for_each(|key| erasures.add(*key, erasure).unwrap());
        erasures
    }

    fn page(tenant: &'static str, listings: &[&'static str], hour: i64) -> Event<'static> {
        Event::Valid(ValidEvent {
            tenant: tenant.into(),
            listings: Listings::Page(listings.iter().map(|listing| (*listing).into()).collect()),
            at_s: hour * HOUR_S,
            event_type: "impression".into(),
            count: 2,
            id: None,
            values: "\u{1}NP".into(),
        })
    }

    fn broken(tenant: &str, hour: i64) -> Event<'static> {
        let text = format!("{{\"tenant\":\"{tenant}\",\"at\":{}}}", hour * HOUR_S);
        Event::Broken { reason: "listing is missing".into(), text: text.into() }
    }

    /// The rows that stay, each with its number, its tenant and its listing.
    fn rows(entry: &[u8], erasures: &Erasures) -> Vec<(u64, String, String)> {
        let parts = match kept(entry, erasures).unwrap() {
            Kept::Whole => vec![entry.to_owned()],
            Kept::Rest(parts) => parts,
        };
        let mut rows = Vec::new();
        for part in parts {
            let (head, batch) = Batch::decode(&part).unwrap();
            for (row, record) in (head.first_row..).zip(batch.records()) {
                rows.push(match record {
                    Record::Event(raw) => {
                        assert_eq!(raw.values.as_str(), "\u{1}NP");
                        (row, raw.tenant.to_owned(), raw.listing.to_owned())
                    }
                    Record::Broken { text, .. } => (row, text.to_owned(), String::new()),
                });
            }
        }
        rows
    }

    #[test]
    fn rows_that_stay_keep_their_numbers() {
        let events = vec![
            page("a", &["x"], 3),
            page("b", &["x", "y", "z"], 3),
            page("a", &["x"], 10),
            page("b", &["y", "y"], 3),
        ];
        let entry = Batch { events, ..Batch::default() }.encode(100, 40_000_000);
        let erasures = erasures(&[ErasureKey::of("a", None), ErasureKey::of("b", Some("y"))]);
        let row = |row, tenant: &str, listing: &str| (row, tenant.to_owned(), listing.to_owned());
        let expected = vec![row(101, "b", "x"), row(103, "b", "z"), row(104, "a", "x")];
        assert_eq!(rows(&entry, &erasures), expected);
        assert_eq!(kept(&entry, &Erasures::default()), Ok(Kept::Whole));
        let Ok(Kept::Rest(parts)) = kept(&entry, &erasures) else { panic!("rows were erased") };
        assert_eq!(parts.iter().map(|part| Head::decode(part).unwrap().rows).collect::<Vec<_>>(), [1, 2]);
        assert!(parts.iter().all(|part| kept(part, &erasures) == Ok(Kept::Whole)), "nothing is left to erase");
    }

    #[test]
    fn entry_without_ids_has_the_same_rows() {
        let mut events = vec![page("a", &["x", "y"], 3), broken("a", 3)];
        if let Event::Valid(event) = &mut events[0] {
            event.id = Some(crate::entry::EventKey(7, 8));
        }
        let producer = Some(crate::entry::BatchOf { name: "front".into(), seq: 3, digest: 4 });
        let batch = Batch { producer, events, ..Batch::default() };
        let entry = batch.encode(5, 6);
        let stripped = without_ids(&entry).unwrap();
        let (head, read) = Batch::decode(&stripped).unwrap();
        assert_eq!((head.first_row, head.rows, head.accepted_at_ms), (5, 3, 6));
        assert_eq!((read.records(), &read.producer), (batch.records(), &batch.producer));
        assert!(read.events.iter().all(|event| event.id().is_none()));
        assert_eq!(without_ids(&stripped), Ok(Cow::Borrowed(&stripped[..])));
    }

    #[test]
    fn refused_rows_of_erased_tenants_are_erased_too() {
        let erasures = erasures(&[ErasureKey::of("a", None)]);
        let events = vec![broken("a", 3), broken("b", 3), broken("a", 12)];
        let at = |at_ms| rows(&Batch { events: events.clone(), ..Batch::default() }.encode(0, at_ms), &erasures);
        let numbers = |rows: Vec<(u64, String, String)>| rows.iter().map(|(row, ..)| *row).collect::<Vec<_>>();
        assert_eq!(numbers(at(49_000_000)), [1], "they came before the erasure, whatever hour they name");
        assert_eq!(numbers(at(51_000_000)), [1, 2], "later ones go by their hour");
    }
}
