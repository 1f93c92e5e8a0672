//! The ids of increments that a group remembers, so that each counts once, from any client, and however often it comes.
//!
//! Ids stand in blocks in the order in which they were first counted. All ids of a block have one age, so old ids go by whole
//! blocks, from the front. An id's number names its block and its place there; numbers ascend and are given again only after 2^32
//! others. A number that is not in the table any more means nothing: its place comes too late for any request.
//!
//! An id that stands for several increments takes a number for each, one behind the other in one block.

use super::blocks::Blocks;
use hashbrown::HashTable;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use tidemark_types::hash::bytes_hash;
use tidemark_types::limits::{IDS_GRACE_AGES, IDS_KEPT_AGES, IDS_MAX};
use tidemark_wire::msg::{IdTerms, ItemId, Place};

/// Numbers of one block, and of one row of a checkpoint.
const BLOCK: usize = 256;
const BLOCK_BITS: u32 = 8;
/// Block numbers are counted modulo this.
const BLOCKS_MASK: u32 = (1 << (32 - BLOCK_BITS)) - 1;
/// The number of no id.
pub(super) const NO_ID: u32 = u32::MAX;

/// The value in place of a place.
const COUNTED: u64 = 0;
const OPEN: u64 = 1;
const MILESTONE: u64 = 2;
const FENCED: u64 = 3;
const LEASED: u64 = 4;
/// A number `n` of the published order is stored as `n` plus this.
const NUMBERS: u64 = 5;
/// The increment belongs to the id of the entry before.
const FOLLOWS: u64 = 1 << 63;

/// Where an id's increment stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Placed(Place),
    /// It awaits its place.
    Open,
    /// It was certified under a lease, and the ledger may not have heard of it.
    Leased,
    /// Nothing was counted, and nothing ever will be.
    Fenced,
}

/// One increment with an id (32 bytes).
#[derive(Clone, Copy, Debug)]
struct Entry {
    digest: [u8; 16],
    content: [u8; 8],
    place: u64,
}

#[derive(Clone, Debug)]
struct Block {
    /// Where checkpoints have it.
    slot: u32,
    /// The age of all its ids.
    age: u32,
    entries: Vec<Entry>,
}

/// How far a batch that is refused after all takes the table back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    blocks: usize,
    entries: usize,
}

/// All ids that a group remembers.
#[derive(Clone, Debug, Default)]
pub(super) struct Ids {
    /// The seed of the index; replicas may have different seeds.
    seed: u64,
    index: HashTable<u32>,
    blocks: VecDeque<Block>,
    /// The number of the first block.
    first: u32,
    entries: u32,
    won: BTreeMap<u32, (u64, u64)>,
    terms: Option<IdTerms>,
    /// Slots of checkpoints ever used, and those of them that are free.
    slots: u32,
    free: BTreeSet<u32>,
    pub dirty: Blocks,
}

impl Ids {
    pub fn new(seed: u64) -> Ids {
        Ids { seed, ..Ids::default() }
    }

    pub fn terms(&self) -> IdTerms {
        self.terms.unwrap_or(IdTerms { kept: IDS_KEPT_AGES, max: IDS_MAX })
    }

    pub fn said_terms(&self) -> Option<IdTerms> {
        self.terms
    }

    pub fn set_terms(&mut self, terms: Option<IdTerms>) {
        self.terms = terms;
    }

    /// Increments with remembered ids.
    pub fn len(&self) -> u32 {
        self.entries
    }

    pub fn is_full(&self, items: u8) -> bool {
        self.entries.saturating_add(items.into()) > self.terms().max
    }

    fn block_of(&self, number: u32) -> usize {
        ((number >> BLOCK_BITS).wrapping_sub(self.first) & BLOCKS_MASK) as usize
    }

    fn get(&self, number: u32) -> Option<&Entry> {
        self.blocks.get(self.block_of(number))?.entries.get(number as usize % BLOCK)
    }

    fn get_mut(&mut self, number: u32) -> Option<&mut Entry> {
        let at = self.block_of(number);
        let block = self.blocks.get_mut(at)?;
        let entry = block.entries.get_mut(number as usize % BLOCK)?;
        self.dirty.set(block.slot);
        Some(entry)
    }

    /// The number of an id's first increment.
    pub fn find(&self, id: &ItemId) -> Option<u32> {
        let is_it = |&number: &u32| self.get(number).is_some_and(|entry| entry.digest == id.digest);
        self.index.find(hash(self.seed, &id.digest), is_it).copied()
    }

    /// Whether the id of a number stands for this content. A fence has none.
    pub fn is_same(&self, number: u32, id: &ItemId) -> bool {
        let same = |entry: &Entry| entry.content == id.content && self.items(number) == id.items.max(1);
        self.get(number).is_some_and(same)
    }

    /// Increments of the id of a number.
    fn items(&self, number: u32) -> u8 {
        let follows = |n: &u32| self.get(number.wrapping_add(*n)).is_some_and(|entry| entry.place & FOLLOWS != 0);
        // Numbers of one id stand in one block.
        let left = (BLOCK - number as usize % BLOCK) as u32;
        1 + (1..left).take_while(follows).count() as u8
    }

    /// Remembers an id that is not there yet; the number of its first increment.
    pub fn enter(&mut self, id: &ItemId, age: u32) -> u32 {
        let items = usize::from(id.items.max(1));
        let fits = |block: &Block| block.age == age && block.entries.len() + items <= BLOCK;
        if !self.blocks.back().is_some_and(fits) {
            let slot = self.free.pop_first().unwrap_or_else(|| {
                self.slots += 1;
                self.slots - 1
            });
            self.blocks.push_back(Block { slot, age, entries: Vec::new() });
        }
        let last = self.first.wrapping_add(self.blocks.len() as u32 - 1) & BLOCKS_MASK;
        let Some(block) = self.blocks.back_mut() else { return NO_ID };
        let number = last << BLOCK_BITS | block.entries.len() as u32;
        if block.entries.len() == block.entries.capacity() {
            // Not twice as much each time: a block's room is known.
            block.entries.reserve_exact((block.entries.len().max(8)).min(BLOCK - block.entries.len()));
        }
        let place = if id.items == 0 { FENCED } else { COUNTED };
        block.entries.push(Entry { digest: id.digest, content: id.content, place });
        let follower = Entry { place: COUNTED | FOLLOWS, digest: id.digest, content: id.content };
        block.entries.extend((1..items).map(|_| follower));
        self.dirty.set(block.slot);
        self.entries += items as u32;
        self.insert(number, &id.digest);
        number
    }

    fn insert(&mut self, number: u32, digest: &[u8; 16]) {
        let blocks = &self.blocks;
        let first = self.first;
        let seed = self.seed;
        let rehash = |&number: &u32| {
            let block = ((number >> BLOCK_BITS).wrapping_sub(first) & BLOCKS_MASK) as usize;
            let entry = blocks.get(block).and_then(|block| block.entries.get(number as usize % BLOCK));
            entry.map_or(0, |entry| hash(seed, &entry.digest))
        };
        self.index.insert_unique(hash(seed, digest), number, rehash);
    }

    pub fn mark(&self) -> Mark {
        Mark { blocks: self.blocks.len(), entries: self.blocks.back().map_or(0, |block| block.entries.len()) }
    }

    /// Forgets the ids that were entered since the mark.
    pub fn take_back(&mut self, mark: Mark) {
        while self.blocks.len() > mark.blocks {
            self.empty_block(0);
            if let Some(block) = self.blocks.pop_back() {
                self.free.insert(block.slot);
            }
        }
        self.empty_block(mark.entries);
    }

    /// Drops the entries of the last block from one on.
    fn empty_block(&mut self, from: usize) {
        let last = self.first.wrapping_add(self.blocks.len() as u32).wrapping_sub(1) & BLOCKS_MASK;
        let Some(block) = self.blocks.back_mut() else { return };
        if block.entries.len() > from {
            self.dirty.set(block.slot);
        }
        let gone: Vec<Entry> = block.entries.drain(from..).collect();
        self.entries -= gone.len() as u32;
        for (at, entry) in (from as u32..).zip(gone) {
            self.remove(last << BLOCK_BITS | at, &entry);
        }
    }

    fn remove(&mut self, number: u32, entry: &Entry) {
        if entry.place & FOLLOWS == 0
            && let Ok(found) = self.index.find_entry(hash(self.seed, &entry.digest), |&at| at == number)
        {
            found.remove();
        }
        if entry.place & !FOLLOWS == MILESTONE {
            self.won.remove(&number);
        }
    }

    /// Where the increment of a number stands.
    pub fn standing(&self, number: u32) -> Option<Standing> {
        Some(match self.get(number)?.place & !FOLLOWS {
            COUNTED => Standing::Placed(Place::Counted),
            OPEN => Standing::Open,
            FENCED => Standing::Fenced,
            LEASED => Standing::Leased,
            MILESTONE => {
                let &(at, first) = self.won.get(&number)?;
                Standing::Placed(Place::Milestone { at, first })
            }
            number => Standing::Placed(Place::Number(number - NUMBERS)),
        })
    }

    /// Notes where an increment stands; nothing, if it is not remembered.
    pub fn set(&mut self, number: u32, standing: Standing) {
        let Some(entry) = self.get_mut(number) else { return };
        let follows = entry.place & FOLLOWS;
        entry.place = follows
            | match standing {
                Standing::Open => OPEN,
                Standing::Leased => LEASED,
                Standing::Fenced => FENCED,
                Standing::Placed(Place::Counted) => COUNTED,
                Standing::Placed(Place::Number(number)) => number.saturating_add(NUMBERS) & !FOLLOWS,
                Standing::Placed(Place::Milestone { .. }) => MILESTONE,
            };
        if let Standing::Placed(Place::Milestone { at, first }) = standing {
            self.won.insert(number, (at, first));
        }
    }

    /// Forgets ids that are so old, for a group of this age, that no copy of them may come any more.
    pub fn forget(&mut self, age: u32) {
        let kept = self.terms().kept.saturating_add(IDS_GRACE_AGES);
        while self.blocks.front().is_some_and(|block| block.age.saturating_add(kept) < age) {
            let Some(block) = self.blocks.pop_front() else { return };
            // `remove` looks at numbers only, so it does not matter that the block is gone.
            for (at, entry) in (0..).zip(&block.entries) {
                self.remove(self.first << BLOCK_BITS | at, entry);
            }
            self.entries -= block.entries.len() as u32;
            self.first = self.first.wrapping_add(1) & BLOCKS_MASK;
            self.free.insert(block.slot);
            self.dirty.set(block.slot);
        }
        // A table that is mostly empty gives its memory back.
        if self.index.capacity() > 1024 && self.index.len() < self.index.capacity() / 8 {
            let blocks = &self.blocks;
            let first = self.first;
            let seed = self.seed;
            self.index.shrink_to_fit(|&number| {
                let block = ((number >> BLOCK_BITS).wrapping_sub(first) & BLOCKS_MASK) as usize;
                let entry = blocks.get(block).and_then(|block| block.entries.get(number as usize % BLOCK));
                entry.map_or(0, |entry| hash(seed, &entry.digest))
            });
        }
    }

    // ---- checkpoints ----

    pub fn slots(&self) -> u32 {
        self.slots
    }

    pub fn first(&self) -> u32 {
        self.first
    }

    /// Milestones among the places: number, milestone, first ordinal.
    pub fn won(&self) -> Vec<(u32, u64, u64)> {
        self.won.iter().map(|(&number, &(at, first))| (number, at, first)).collect()
    }

    /// Where the block of each slot stands among all.
    pub fn by_slot(&self) -> BTreeMap<u32, usize> {
        self.blocks.iter().enumerate().map(|(at, block)| (block.slot, at)).collect()
    }

    /// A block as a checkpoint holds it; nothing of a slot that is free.
    pub fn put_block(&self, at: Option<usize>, into: &mut Vec<u8>) {
        let Some((at, block)) = at.and_then(|at| Some((at, self.blocks.get(at)?))) else { return };
        into.extend((self.first.wrapping_add(at as u32) & BLOCKS_MASK).to_be_bytes());
        into.extend(block.age.to_be_bytes());
        for entry in &block.entries {
            into.extend(entry.digest);
            into.extend(entry.content);
            into.extend(entry.place.to_be_bytes());
        }
    }

    pub fn check_invariants(&self) {
        let entries: usize = self.blocks.iter().map(|block| block.entries.len()).sum();
        assert_eq!(entries, self.entries as usize, "ids remembered");
        assert_eq!(self.blocks.len() + self.free.len(), self.slots as usize, "slots of checkpoints");
        for (at, block) in self.blocks.iter().enumerate() {
            assert!(!block.entries.is_empty() && block.entries.len() <= BLOCK);
            for (n, entry) in block.entries.iter().enumerate().filter(|(_, entry)| entry.place & FOLLOWS == 0) {
                let number = (self.first.wrapping_add(at as u32) & BLOCKS_MASK) << BLOCK_BITS | n as u32;
                let id = ItemId { digest: entry.digest, ..ItemId::default() };
                assert_eq!(self.find(&id), Some(number), "an id is found under its number");
            }
        }
        let ages = self.blocks.iter().zip(self.blocks.iter().skip(1));
        assert!(ages.clone().all(|(block, next)| block.age <= next.age), "older ids come first");
    }
}

/// Blocks from the rows of a checkpoint, in the order of their slots.
#[derive(Debug, Default)]
pub(super) struct LoadingIds {
    blocks: Vec<(u32, Block)>,
    slots: u32,
    free: BTreeSet<u32>,
}

impl LoadingIds {
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// Takes the row of the next slot.
    pub fn push(&mut self, content: &[u8]) -> Option<()> {
        let slot = self.slots;
        self.slots += 1;
        if content.is_empty() {
            self.free.insert(slot);
            return Some(());
        }
        let (number, rest) = content.split_first_chunk::<4>()?;
        let (age, rest) = rest.split_first_chunk::<4>()?;
        let (entries, left) = rest.as_chunks::<32>();
        if entries.is_empty() || entries.len() > BLOCK || !left.is_empty() {
            return None;
        }
        let entries: Option<Vec<Entry>> = entries.iter().map(entry_of).collect();
        let number = Some(u32::from_be_bytes(*number)).filter(|number| *number <= BLOCKS_MASK)?;
        self.blocks.push((number, Block { slot, age: u32::from_be_bytes(*age), entries: entries? }));
        Some(())
    }

    /// The table, if all of it belongs together and nothing in it is younger than the group.
    pub fn finish(self, seed: u64, first: u32, won: Vec<(u32, u64, u64)>, age: u32) -> Option<Ids> {
        let LoadingIds { mut blocks, slots, free } = self;
        if first > BLOCKS_MASK {
            return None;
        }
        blocks.sort_by_key(|(number, _)| number.wrapping_sub(first) & BLOCKS_MASK);
        let follow = |(at, (number, _)): (usize, &(u32, Block))| number.wrapping_sub(first) & BLOCKS_MASK == at as u32;
        let ages = |pair: &[(u32, Block)]| pair[0].1.age <= pair[1].1.age;
        let young = blocks.last().is_none_or(|(_, block)| block.age <= age);
        if !blocks.iter().enumerate().all(follow) || !blocks.windows(2).all(ages) || !young {
            return None;
        }
        let blocks: VecDeque<Block> = blocks.into_iter().map(|(_, block)| block).collect();
        let mut ids = Ids { first, slots, free, blocks, ..Ids::new(seed) };
        ids.entries = ids.blocks.iter().map(|block| block.entries.len() as u32).sum();
        ids.index_loaded()?;
        for (number, at, milestone_first) in won {
            let is_one = ids.get(number).is_some_and(|entry| entry.place & !FOLLOWS == MILESTONE);
            if !is_one || ids.won.insert(number, (at, milestone_first)).is_some() {
                return None;
            }
        }
        let milestones = ids.blocks.iter().flat_map(|block| &block.entries);
        let milestones = milestones.filter(|entry| entry.place & !FOLLOWS == MILESTONE).count();
        (milestones == ids.won.len()).then_some(ids)
    }
}

impl Ids {
    fn index_loaded(&mut self) -> Option<()> {
        for at in 0..self.blocks.len() {
            let mut before = None;
            for n in 0..self.blocks[at].entries.len() {
                let entry = self.blocks[at].entries[n];
                let number = (self.first.wrapping_add(at as u32) & BLOCKS_MASK) << BLOCK_BITS | n as u32;
                let id = ItemId { digest: entry.digest, ..ItemId::default() };
                match entry.place & FOLLOWS {
                    0 if self.find(&id).is_none() => self.insert(number, &entry.digest),
                    0 => return None,
                    _ if before == Some(entry.digest) => {}
                    _ => return None,
                }
                before = Some(entry.digest);
            }
        }
        Some(())
    }
}

fn entry_of(bytes: &[u8; 32]) -> Option<Entry> {
    let (digest, rest) = bytes.split_first_chunk::<16>()?;
    let (content, rest) = rest.split_first_chunk::<8>()?;
    let place = u64::from_be_bytes(rest.try_into().ok()?);
    Some(Entry { digest: *digest, content: *content, place })
}

fn hash(seed: u64, digest: &[u8; 16]) -> u64 {
    bytes_hash(seed, digest)
}
