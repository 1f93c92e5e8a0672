//! Blobs that follow each other, as their encoded bytes.

use super::{CHUNK_BLOBS_MAX, Place};
use crate::blob::BlobMeta;
use crate::codec::{DecodeError, check_meta};
use std::sync::Arc;

/// Sorted blobs. A clone shares the bytes.
#[derive(Clone, Debug, Default)]
pub(super) struct Chunk {
    bytes: Arc<[u8]>,
    len: u32,
}

/// A blob, and where its bytes are.
pub(super) struct Entry {
    pub meta: BlobMeta,
    start: usize,
    end: usize,
}

struct Entries<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Iterator for Entries<'_> {
    type Item = Entry;

    /// Bytes were checked when they were decoded; damaged ones would end here.
    fn next(&mut self) -> Option<Entry> {
        let (meta, rest) = postcard::take_from_bytes(&self.bytes[self.at..]).ok()?;
        let start = std::mem::replace(&mut self.at, self.bytes.len() - rest.len());
        Some(Entry { meta, start, end: self.at })
    }
}

impl Chunk {
    /// # Errors
    /// [`DecodeError`]: the bytes are none that [`Chunk::bytes`] gives.
    pub fn decode(bytes: &[u8]) -> Result<Chunk, DecodeError> {
        let mut len = 0_usize;
        let mut rest = bytes;
        while !rest.is_empty() {
            let (meta, tail) =
                postcard::take_from_bytes(rest).map_err(|error| DecodeError::Damaged(error.to_string()))?;
            check_meta(&meta)?;
            (rest, len) = (tail, len + 1);
        }
        if len > CHUNK_BLOBS_MAX {
            return Err(DecodeError::Blobs(len));
        }
        Ok(Chunk { bytes: bytes.into(), len: len as u32 })
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn len(&self) -> usize {
        self.len as usize
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn entries(&self) -> impl Iterator<Item = Entry> {
        Entries { bytes: &self.bytes, at: 0 }
    }

    pub fn blobs(&self) -> impl Iterator<Item = BlobMeta> {
        self.entries().map(|entry| entry.meta)
    }

    pub fn insert(&mut self, meta: &BlobMeta) {
        let place = Place::of(meta);
        let at =
            self.entries().find(|entry| Place::of(&entry.meta) > place).map_or(self.bytes.len(), |next| next.start);
        // Writing to a vector fails only for types of unknown length, which none of these has.
        let encoded = postcard::to_allocvec(meta).unwrap_or_default();
        self.bytes = [&self.bytes[..at], &encoded, &self.bytes[at..]].concat().into();
        self.len += 1;
    }

    pub fn remove(&mut self, entry: &Entry) {
        self.bytes = [&self.bytes[..entry.start], &self.bytes[entry.end..]].concat().into();
        self.len -= 1;
    }

    /// Keeps `len` blobs, and gives the others.
    pub fn split_off(&mut self, len: usize) -> Chunk {
        let at = self.entries().nth(len).map_or(self.bytes.len(), |entry| entry.start);
        let upper = Chunk { bytes: self.bytes[at..].into(), len: self.len - len as u32 };
        *self = Chunk { bytes: self.bytes[..at].into(), len: len as u32 };
        upper
    }
}
