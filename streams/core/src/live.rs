//! The live blobs of a partition, of which there may be millions.
//!
//! Blobs lie in chunks, sorted by level, scope, first hour and name. A chunk is the encoded bytes of at most [`CHUNK_BLOBS_MAX`]
//! blobs: some 40 bytes a blob, where a struct would take 100. A table of 8 bytes a blob finds the chunk of a name. So the blobs of
//! a tenant are a few neighbours for each level, and a blob is found by its name.
//!
//! Chunks are also what a snapshot keeps: a chunk is a row, and only chunks that changed are written again.

mod chunk;
#[cfg(test)]
mod tests;

use crate::blob::{BlobKey, BlobMeta, Level, LiveDigest};
use crate::codec::DecodeError;
use crate::scope::{Part, Scope, Slice, TenantHash};
use crate::teeth::{Bug, bites};
use crate::time::{Days, Hour, HourRange};
use chunk::{Chunk, Entry};
use hashbrown::HashTable;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Bound;

/// Blobs of a chunk. A chunk with more is cut in two. The simulator's builds have small ones, so that few blobs are many chunks.
pub const CHUNK_BLOBS_MAX: usize = if cfg!(feature = "teeth") { 4 } else { 128 };

/// The number of a chunk. A number is used again once its chunk is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChunkId(pub u32);

/// Where a blob is in the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    level: Level,
    scope: Scope,
    first: Hour,
    key: BlobKey,
}

/// Which chunk a name is in. The hash is of the name; equal hashes are told apart by the chunk's blobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot {
    hash: u32,
    chunk: ChunkId,
}

/// Blobs of slices of one size: a query looks up one slice of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SliceSize {
    level: Level,
    modulus: u32,
}

/// The chunk that holds a blob, and where in it.
struct Located {
    chunk: ChunkId,
    entry: Entry,
}

#[derive(Clone, Default)]
pub struct BlobSet {
    chunks: Vec<Option<Chunk>>,
    free: Vec<ChunkId>,
    /// The chunks in their order. A key is not above the first blob of its chunk, and above the last blob of the chunk before.
    order: BTreeMap<Place, ChunkId>,
    names: HashTable<Slot>,
    sizes: BTreeMap<SliceSize, u64>,
    digest: LiveDigest,
    changed: BTreeSet<ChunkId>,
}

impl Place {
    fn of(meta: &BlobMeta) -> Place {
        Place { level: meta.level, scope: meta.scope, first: meta.hours.first, key: meta.key }
    }

    fn first_of(level: Level, scope: Scope) -> Place {
        Place { level, scope, first: Hour(0), key: BlobKey::FIRST }
    }

    fn last_of(level: Level, scope: Scope) -> Place {
        Place { level, scope, first: Hour(u32::MAX), key: BlobKey::LAST }
    }
}

impl BlobSet {
    pub fn new() -> BlobSet {
        BlobSet::default()
    }

    pub fn len(&self) -> u64 {
        self.digest.blobs
    }

    pub fn is_empty(&self) -> bool {
        self.digest.blobs == 0
    }

    /// The sum of all counts.
    pub fn total(&self) -> u128 {
        self.digest.total
    }

    /// Which blobs these are, in short.
    pub fn digest(&self) -> LiveDigest {
        self.digest
    }

    pub fn get(&self, key: &BlobKey) -> Option<BlobMeta> {
        self.locate(key).map(|located| located.entry.meta)
    }

    pub fn contains_key(&self, key: &BlobKey) -> bool {
        self.locate(key).is_some()
    }

    /// All blobs, by level, scope, first hour and name.
    pub fn values(&self) -> impl Iterator<Item = BlobMeta> {
        self.order.values().filter_map(|id| self.chunk(*id)).flat_map(Chunk::blobs)
    }

    /// The blobs of a level, by scope, first hour and name.
    pub fn of_level(&self, level: Level) -> impl Iterator<Item = BlobMeta> {
        let first = Slice { modulus: 0, remainder: 0 };
        let last = Part { tenant: TenantHash(u64::MAX), parts: u32::MAX, part: u32::MAX };
        self.between(Place::first_of(level, Scope::Slice(first)), Place::last_of(level, Scope::Part(last)))
    }

    /// The blobs of a level and scope, by first hour and name.
    pub fn of_scope(&self, level: Level, scope: Scope) -> impl Iterator<Item = BlobMeta> {
        self.between(Place::first_of(level, scope), Place::last_of(level, scope))
    }

    /// The blobs that may hold rows of a tenant in a range of hours. Dead letters are not among them.
    pub fn of_tenant(&self, tenant: TenantHash, hours: HourRange) -> Vec<BlobMeta> {
        let mut found = Vec::new();
        let overlaps = |meta: &BlobMeta| meta.hours.overlaps(&hours);
        for SliceSize { level, modulus } in self.sizes.keys().filter(|size| size.level.is_of_rows()) {
            let slice = Slice::of(tenant, *modulus);
            found.extend(self.of_scope(*level, Scope::Slice(slice)).filter(overlaps));
        }
        for level in Level::OF_ROWS {
            let part = |parts, part| Scope::Part(Part { tenant, parts, part });
            let from = Place::first_of(level, part(0, 0));
            found.extend(self.between(from, Place::last_of(level, part(u32::MAX, u32::MAX))).filter(overlaps));
        }
        found
    }

    /// The blobs that may hold rows of some days. Dead letters are not among them.
    pub fn of_days(&self, days: &Days) -> Vec<BlobMeta> {
        let hours = days.hours();
        let of_rows = Level::OF_ROWS.into_iter().flat_map(|level| self.of_level(level));
        of_rows.filter(|meta| meta.hours.overlaps(&hours)).collect()
    }

    /// Adds a blob. `false`: one of its name is there, and nothing changes.
    pub fn insert(&mut self, meta: &BlobMeta) -> bool {
        if self.contains_key(&meta.key) {
            return false;
        }
        let place = Place::of(meta);
        let nearest = self.order.range(..=place).next_back().or_else(|| self.order.first_key_value());
        let id = match nearest.map(|(_, id)| *id) {
            Some(id) => id,
            None => self.open_chunk(place, Chunk::default()),
        };
        // A blob in front of all others moves the key of the first chunk.
        if let Some((first, _)) = self.order.first_key_value().filter(|(first, _)| place < **first) {
            let first = *first;
            self.order.remove(&first);
            self.order.insert(place, id);
        }
        if let Some(chunk) = self.chunk_mut(id) {
            chunk.insert(meta);
        }
        self.changed.insert(id);
        self.add_name(&meta.key, id);
        self.count(meta);
        self.split(id);
        true
    }

    /// Removes a blob.
    pub fn remove(&mut self, key: &BlobKey) -> Option<BlobMeta> {
        let Located { chunk: id, entry } = self.locate(key)?;
        let is_empty = self.chunk_mut(id).is_none_or(|chunk| {
            chunk.remove(&entry);
            chunk.is_empty()
        });
        if is_empty {
            self.close_chunk(id, Place::of(&entry.meta));
        }
        if !bites(Bug::RemovalsLeftOutOfSnapshot) {
            self.changed.insert(id);
        }
        let slot = Slot { hash: name_hash(key), chunk: id };
        if let Ok(found) = self.names.find_entry(spread(slot.hash), |known| *known == slot) {
            found.remove();
        }
        self.discount(&entry.meta);
        Some(entry.meta)
    }

    /// The bytes of the chunks that changed since the last call: `None` for a chunk that is gone.
    pub(crate) fn take_changes(&mut self) -> Vec<ChangedChunk> {
        let changed = std::mem::take(&mut self.changed);
        let bytes = |id: ChunkId| self.chunk(id).map(|chunk| chunk.bytes().to_vec());
        changed.into_iter().map(|id| ChangedChunk { id, bytes: bytes(id) }).collect()
    }

    /// Every chunk.
    pub(crate) fn chunks(&self) -> impl Iterator<Item = ChangedChunk> {
        self.order
            .values()
            .filter_map(|id| Some(ChangedChunk { id: *id, bytes: Some(self.chunk(*id)?.bytes().to_vec()) }))
    }

    /// Takes a chunk that [`BlobSet::take_changes`] gave. Chunks come once each, in any order; [`BlobSet::finish`] is the end.
    ///
    /// # Errors
    /// [`RestoreError`].
    pub(crate) fn restore(&mut self, id: ChunkId, bytes: &[u8]) -> Result<(), RestoreError> {
        let chunk = Chunk::decode(bytes).map_err(RestoreError::Decode)?;
        let metas: Vec<BlobMeta> = chunk.blobs().collect();
        let places: Vec<Place> = metas.iter().map(Place::of).collect();
        let (Some(first), Some(last)) = (places.first(), places.last()) else { return Err(RestoreError::Empty(id)) };
        let after = self.order.range(*first..).next().is_some_and(|(next, _)| next <= last);
        let before = self.order.range(..*first).next_back().and_then(|(_, id)| self.chunk(*id)?.blobs().last());
        let overlaps = after || before.is_some_and(|before| Place::of(&before) >= *first);
        if overlaps || !places.is_sorted_by(|a, b| a < b) || id.0 as usize >= CHUNKS_MAX {
            return Err(RestoreError::Order(id));
        }
        let at = id.0 as usize;
        if self.chunks.len() <= at {
            self.chunks.resize_with(at + 1, || None);
        }
        if self.chunks[at].is_some() {
            return Err(RestoreError::Twice(id));
        }
        self.order.insert(*first, id);
        self.chunks[at] = Some(chunk);
        for meta in &metas {
            if self.contains_key(&meta.key) {
                return Err(RestoreError::Name(meta.key));
            }
            self.add_name(&meta.key, id);
            self.count(meta);
        }
        Ok(())
    }

    /// The last chunk was restored.
    pub(crate) fn finish(&mut self) {
        let ids = (0..).zip(&self.chunks);
        self.free = ids.filter(|(_, chunk)| chunk.is_none()).map(|(id, _)| ChunkId(id)).collect();
    }

    /// Memory that is allocated, about.
    pub fn bytes(&self) -> usize {
        let chunks: usize = self.chunks.iter().flatten().map(|chunk| chunk.bytes().len()).sum();
        let names = self.names.capacity() * 8 / 7 * (size_of::<Slot>() + 1);
        let order = self.order.len() * (size_of::<Place>() + size_of::<ChunkId>()) * 3 / 2;
        chunks + names + order + self.chunks.capacity() * size_of::<Option<Chunk>>()
    }

    fn between(&self, from: Place, to: Place) -> impl Iterator<Item = BlobMeta> {
        let before = self.order.range(..=from).next_back().map(|(_, id)| *id);
        let behind = self.order.range((Bound::Excluded(from), Bound::Included(to))).map(|(_, id)| *id);
        let blobs = before.into_iter().chain(behind).filter_map(|id| self.chunk(id)).flat_map(Chunk::blobs);
        blobs.skip_while(move |meta| Place::of(meta) < from).take_while(move |meta| Place::of(meta) <= to)
    }

    fn chunk(&self, id: ChunkId) -> Option<&Chunk> {
        self.chunks.get(id.0 as usize)?.as_ref()
    }

    fn chunk_mut(&mut self, id: ChunkId) -> Option<&mut Chunk> {
        self.chunks.get_mut(id.0 as usize)?.as_mut()
    }

    fn locate(&self, key: &BlobKey) -> Option<Located> {
        let hash = name_hash(key);
        let slots = self.names.iter_hash(spread(hash)).filter(|slot| slot.hash == hash);
        let mut found = slots.filter_map(|slot| {
            let entry = self.chunk(slot.chunk)?.entries().find(|entry| entry.meta.key == *key)?;
            Some(Located { chunk: slot.chunk, entry })
        });
        found.next()
    }

    fn open_chunk(&mut self, place: Place, chunk: Chunk) -> ChunkId {
        let id = self.free.pop().unwrap_or(ChunkId(self.chunks.len() as u32));
        match self.chunks.get_mut(id.0 as usize) {
            Some(free) => *free = Some(chunk),
            None => self.chunks.push(Some(chunk)),
        }
        self.order.insert(place, id);
        self.changed.insert(id);
        id
    }

    /// Closes an empty chunk; its last blob was at a place.
    fn close_chunk(&mut self, id: ChunkId, place: Place) {
        let key = self.order.range(..=place).next_back().map(|(key, _)| *key);
        if let Some(key) = key {
            self.order.remove(&key);
        }
        if let Some(chunk) = self.chunks.get_mut(id.0 as usize) {
            *chunk = None;
            self.free.push(id);
        }
    }

    fn split(&mut self, id: ChunkId) {
        let Some(chunk) = self.chunk_mut(id).filter(|chunk| chunk.len() > CHUNK_BLOBS_MAX) else { return };
        let upper = chunk.split_off(CHUNK_BLOBS_MAX / 2);
        let moved: Vec<BlobMeta> = upper.blobs().collect();
        let Some(first) = moved.first() else { return };
        let upper = self.open_chunk(Place::of(first), upper);
        for meta in &moved {
            let slot = Slot { hash: name_hash(&meta.key), chunk: id };
            if let Some(found) = self.names.find_mut(spread(slot.hash), |known| *known == slot) {
                found.chunk = upper;
            }
        }
    }

    fn add_name(&mut self, key: &BlobKey, chunk: ChunkId) {
        let slot = Slot { hash: name_hash(key), chunk };
        self.names.insert_unique(spread(slot.hash), slot, |slot| spread(slot.hash));
    }

    fn count(&mut self, meta: &BlobMeta) {
        self.digest = self.digest.with(meta);
        if let Scope::Slice(Slice { modulus, .. }) = meta.scope {
            *self.sizes.entry(SliceSize { level: meta.level, modulus }).or_default() += 1;
        }
    }

    fn discount(&mut self, meta: &BlobMeta) {
        self.digest = self.digest.without(meta);
        let Scope::Slice(Slice { modulus, .. }) = meta.scope else { return };
        let size = SliceSize { level: meta.level, modulus };
        if let Some(count) = self.sizes.get_mut(&size) {
            *count -= 1;
            if *count == 0 {
                self.sizes.remove(&size);
            }
        }
    }
}

/// Chunks of a partition: a snapshot with a higher number is refused.
const CHUNKS_MAX: usize = 1 << 24;

/// A chunk, or that it is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChangedChunk {
    pub id: ChunkId,
    pub bytes: Option<Vec<u8>>,
}

/// Why a chunk is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    #[error("{0}")]
    Decode(DecodeError),
    #[error("chunk {} of blobs is empty", .0.0)]
    Empty(ChunkId),
    #[error("chunk {} of blobs is out of order, or overlaps another", .0.0)]
    Order(ChunkId),
    #[error("chunk {} of blobs stands twice", .0.0)]
    Twice(ChunkId),
    #[error("blob {0} stands twice")]
    Name(BlobKey),
}

fn name_hash(key: &BlobKey) -> u32 {
    let BlobKey { partition, epoch, seq, part } = *key;
    let first = epoch.0 ^ u64::from(partition.0) << 32 ^ u64::from(part);
    let hash = first.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seq.0.wrapping_mul(0xe703_7ed1_a0b4_28db);
    ((hash ^ hash >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32) as u32
}

/// The table takes the position from the low bits and a tag from the high ones.
fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl PartialEq for BlobSet {
    fn eq(&self, other: &BlobSet) -> bool {
        self.digest == other.digest && self.values().eq(other.values())
    }
}

impl Eq for BlobSet {}

impl fmt::Debug for BlobSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.values()).finish()
    }
}

impl Extend<BlobMeta> for BlobSet {
    fn extend<I: IntoIterator<Item = BlobMeta>>(&mut self, metas: I) {
        metas.into_iter().for_each(|meta| {
            self.insert(&meta);
        });
    }
}

impl FromIterator<BlobMeta> for BlobSet {
    fn from_iter<I: IntoIterator<Item = BlobMeta>>(metas: I) -> BlobSet {
        let mut set = BlobSet::new();
        set.extend(metas);
        set
    }
}
