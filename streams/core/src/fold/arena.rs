//! Records of pairs (tenant, listing), one behind the other in chunks that do not move.
//!
//! A record: the pair's last cell (4 bytes), its tenant's number (4), the length of the listing's id (1), and the id.

use crate::limits::LISTING_BYTES_MAX;

const CHUNK_BYTES: usize = 1 << 20;
const TENANT_AT: usize = 4;
const LENGTH_AT: usize = 8;
const LISTING_AT: usize = 9;
/// No cell has this number.
const NO_CELL: u32 = u32::MAX;

const _: () = assert!(LISTING_BYTES_MAX <= u8::MAX as usize && LISTING_AT + LISTING_BYTES_MAX < CHUNK_BYTES);

/// Where a record begins, counted in bytes over all chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(pub u32);

#[derive(Default)]
pub struct Arena {
    chunks: Vec<Vec<u8>>,
}

impl Arena {
    pub fn push(&mut self, tenant: u32, listing: &str) -> Place {
        let bytes = LISTING_AT + listing.len();
        if self.chunks.last().is_none_or(|chunk| chunk.len() + bytes > CHUNK_BYTES) {
            self.chunks.push(Vec::with_capacity(CHUNK_BYTES));
        }
        let number = self.chunks.len() - 1;
        let chunk = &mut self.chunks[number];
        let place = Place((number * CHUNK_BYTES + chunk.len()) as u32);
        chunk.extend_from_slice(&NO_CELL.to_le_bytes());
        chunk.extend_from_slice(&tenant.to_le_bytes());
        chunk.push(listing.len() as u8);
        chunk.extend_from_slice(listing.as_bytes());
        place
    }

    pub fn tenant(&self, place: Place) -> u32 {
        self.number(place, TENANT_AT)
    }

    pub fn last_cell(&self, place: Place) -> u32 {
        self.number(place, 0)
    }

    pub fn set_last_cell(&mut self, place: Place, cell: u32) {
        let (number, start) = split(place);
        self.chunks[number][start..start + TENANT_AT].copy_from_slice(&cell.to_le_bytes());
    }

    pub fn listing(&self, place: Place) -> &str {
        let (number, start) = split(place);
        let record = &self.chunks[number][start..];
        let listing = &record[LISTING_AT..LISTING_AT + usize::from(record[LENGTH_AT])];
        // It was a text when it was pushed.
        std::str::from_utf8(listing).unwrap_or_default()
    }

    pub fn bytes(&self) -> usize {
        self.chunks.len() * CHUNK_BYTES
    }

    fn number(&self, place: Place, at: usize) -> u32 {
        let (number, start) = split(place);
        let bytes = &self.chunks[number][start + at..];
        bytes.first_chunk().map_or(NO_CELL, |bytes| u32::from_le_bytes(*bytes))
    }
}

fn split(place: Place) -> (usize, usize) {
    (place.0 as usize / CHUNK_BYTES, place.0 as usize % CHUNK_BYTES)
}
