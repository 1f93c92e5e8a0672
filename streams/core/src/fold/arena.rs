//! Records of pairs (tenant, listing), one behind the other in chunks that do not move.
//!
//! A record: the newest slot of the pair (4 bytes), its count (4), the tenant's number (4), the length of the listing's id (1), and the id.

use crate::limits::LISTING_BYTES_MAX;

const CHUNK_BYTES: usize = 1 << 20;
const COUNT_AT: usize = 4;
const TENANT_AT: usize = 8;
const LENGTH_AT: usize = 12;
const LISTING_AT: usize = 13;

const _: () = assert!(LISTING_BYTES_MAX <= u8::MAX as usize && LISTING_AT + LISTING_BYTES_MAX < CHUNK_BYTES);

/// Where a record begins, counted in bytes over all chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(pub u32);

/// A slot of a pair, and what was counted in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Newest {
    pub slot: u32,
    pub count: u32,
}

#[derive(Default)]
pub struct Arena {
    chunks: Vec<Vec<u8>>,
}

impl Arena {
    pub fn push(&mut self, tenant: u32, listing: &str, newest: Newest) -> Place {
        let bytes = LISTING_AT + listing.len();
        if self.chunks.last().is_none_or(|chunk| chunk.len() + bytes > CHUNK_BYTES) {
            self.chunks.push(Vec::with_capacity(CHUNK_BYTES));
        }
        let number = self.chunks.len() - 1;
        let chunk = &mut self.chunks[number];
        let place = Place((number * CHUNK_BYTES + chunk.len()) as u32);
        chunk.extend_from_slice(&newest.slot.to_le_bytes());
        chunk.extend_from_slice(&newest.count.to_le_bytes());
        chunk.extend_from_slice(&tenant.to_le_bytes());
        chunk.push(listing.len() as u8);
        chunk.extend_from_slice(listing.as_bytes());
        place
    }

    #[inline]
    pub fn tenant(&self, place: Place) -> u32 {
        number(self.record(place), TENANT_AT)
    }

    #[inline]
    pub fn newest(&self, place: Place) -> Newest {
        let record = self.record(place);
        Newest { slot: number(record, 0), count: number(record, COUNT_AT) }
    }

    #[inline]
    pub fn set_newest(&mut self, place: Place, newest: Newest) {
        let (number, start) = split(place);
        let record = &mut self.chunks[number][start..];
        record[..COUNT_AT].copy_from_slice(&newest.slot.to_le_bytes());
        record[COUNT_AT..TENANT_AT].copy_from_slice(&newest.count.to_le_bytes());
    }

    /// Whether a record has this listing.
    #[inline]
    pub fn is_of(&self, place: Place, listing: &str) -> bool {
        self.listing_bytes(place) == listing.as_bytes()
    }

    #[inline]
    pub fn listing(&self, place: Place) -> &str {
        // It was a text when it was pushed.
        std::str::from_utf8(self.listing_bytes(place)).unwrap_or_default()
    }

    /// All records, in the order in which they were pushed.
    pub fn places(&self) -> impl Iterator<Item = Place> {
        let starts = |chunk: &Vec<u8>| {
            let mut starts = Vec::new();
            let mut start = 0;
            while let Some(length) = chunk.get(start + LENGTH_AT) {
                starts.push(start);
                start += LISTING_AT + usize::from(*length);
            }
            starts
        };
        let place = |(number, start): (usize, usize)| Place((number * CHUNK_BYTES + start) as u32);
        let in_chunk = move |(number, chunk)| starts(chunk).into_iter().map(move |start| place((number, start)));
        self.chunks.iter().enumerate().flat_map(in_chunk)
    }

    pub fn bytes(&self) -> usize {
        self.chunks.len() * CHUNK_BYTES
    }

    #[inline]
    fn listing_bytes(&self, place: Place) -> &[u8] {
        let record = self.record(place);
        &record[LISTING_AT..LISTING_AT + usize::from(record[LENGTH_AT])]
    }

    #[inline]
    fn record(&self, place: Place) -> &[u8] {
        let (number, start) = split(place);
        &self.chunks[number][start..]
    }
}

fn number(record: &[u8], at: usize) -> u32 {
    record[at..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

fn split(place: Place) -> (usize, usize) {
    (place.0 as usize / CHUNK_BYTES, place.0 as usize % CHUNK_BYTES)
}
