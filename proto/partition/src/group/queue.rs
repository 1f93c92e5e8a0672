//! Increments of one guarded counter that await a place, by position.
//!
//! They are kept in blocks of neighbouring positions. A block without waiting increments is dropped, so memory grows with the
//! number of open increments. At a milestone that waits for a data centre that is cut off, the first may stay open for hours
//! while millions behind them get their places.

use crate::group::ids::NO_ID;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use tidemark_types::ids::SessionId;
use tidemark_types::limits::{BLOCK_ITEMS_MAX, OFFER_ITEMS_MAX};

/// Positions of one block, and of one row of a checkpoint.
pub(super) const POSITIONS_PER_BLOCK: u64 = 1_024;

/// One queued increment (48 bytes).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Stored", into = "Stored")]
pub(super) struct Queued {
    pub delta: u64,
    pub seq: u64,
    pub session: SessionId,
    /// Number of its stream.
    pub stream: u32,
    pub idx: u32,
    /// Number of its id, or [`NO_ID`].
    pub id: u32,
    pub has_session: bool,
    pub placed: bool,
}

/// As checkpoints have it. Before there were ids, the last byte said only whether it was placed.
#[derive(Serialize, Deserialize)]
struct Stored {
    delta: u64,
    seq: u64,
    session: SessionId,
    stream: u32,
    idx: u32,
    has_session: bool,
    tail: StoredTail,
}

#[derive(Serialize, Deserialize)]
enum StoredTail {
    Open,
    Placed,
    OpenId(u32),
    PlacedId(u32),
}

impl From<Stored> for Queued {
    fn from(stored: Stored) -> Queued {
        let Stored { delta, seq, session, stream, idx, has_session, tail } = stored;
        let (placed, id) = match tail {
            StoredTail::Open => (false, NO_ID),
            StoredTail::Placed => (true, NO_ID),
            StoredTail::OpenId(id) => (false, id),
            StoredTail::PlacedId(id) => (true, id),
        };
        Queued { delta, seq, session, stream, idx, id, has_session, placed }
    }
}

impl From<Queued> for Stored {
    fn from(queued: Queued) -> Stored {
        let Queued { delta, seq, session, stream, idx, id, has_session, placed } = queued;
        let tail = match (placed, id) {
            (false, NO_ID) => StoredTail::Open,
            (true, NO_ID) => StoredTail::Placed,
            (false, id) => StoredTail::OpenId(id),
            (true, id) => StoredTail::PlacedId(id),
        };
        Stored { delta, seq, session, stream, idx, has_session, tail }
    }
}

/// A saved block of a queue does not fill its positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{items} items from position {first_pos} are no block of the queue")]
pub struct PositionOutOfBounds {
    first_pos: u64,
    items: usize,
}

/// Queued increments from the first unplaced one on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Queue {
    blocks: BTreeMap<u64, Block>,
    head: u64,
    next: u64,
    open: u64,
}

/// Consecutive increments, some of them open.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Block {
    first_pos: u64,
    items: VecDeque<Queued>,
    open: u32,
}

impl Block {
    fn at(&self, pos: u64) -> Option<usize> {
        usize::try_from(pos.checked_sub(self.first_pos)?).ok()
    }

    fn first_open(&self, from: u64) -> Option<u64> {
        let skip = usize::try_from(from.saturating_sub(self.first_pos)).ok()?;
        let at = self.items.iter().skip(skip).position(|item| !item.placed)?;
        Some(self.first_pos + (skip + at) as u64)
    }
}

impl Queue {
    /// Every position below is placed.
    pub fn head(&self) -> u64 {
        self.head
    }

    pub fn next_pos(&self) -> u64 {
        self.next
    }

    /// Items without a place.
    pub fn open(&self) -> u64 {
        self.open
    }

    pub fn push(&mut self, item: Queued) -> u64 {
        let pos = self.next;
        let new = || Block { first_pos: pos, items: VecDeque::new(), open: 0 };
        let block = self.blocks.entry(pos / POSITIONS_PER_BLOCK).or_insert_with(new);
        block.items.push_back(item);
        block.open += 1;
        self.open += 1;
        self.next += 1;
        pos
    }

    /// The item at a position, if it awaits its place.
    pub fn get_open(&self, pos: u64) -> Option<&Queued> {
        let block = self.blocks.get(&(pos / POSITIONS_PER_BLOCK))?;
        block.items.get(block.at(pos)?).filter(|item| !item.placed)
    }

    /// The first position from `pos` on that awaits its place.
    pub fn next_open(&self, pos: u64) -> Option<u64> {
        self.blocks.range(pos / POSITIONS_PER_BLOCK..).find_map(|(_, block)| block.first_open(pos))
    }

    /// Marks the item as placed, once; its content, if it was open.
    pub fn place(&mut self, pos: u64) -> Option<Queued> {
        let number = pos / POSITIONS_PER_BLOCK;
        let block = self.blocks.get_mut(&number)?;
        let at = block.at(pos)?;
        let item = block.items.get_mut(at).filter(|item| !item.placed)?;
        item.placed = true;
        let item = *item;
        self.open -= 1;
        block.open -= 1;
        if block.open == 0 {
            self.blocks.remove(&number);
        }
        Some(item)
    }

    /// Drops the placed items at the head.
    pub fn advance(&mut self) {
        self.head = self.next;
        if let Some(mut first) = self.blocks.first_entry() {
            let block = first.get_mut();
            while block.items.front().is_some_and(|item| item.placed) {
                block.items.pop_front();
                block.first_pos += 1;
            }
            self.head = block.first_pos;
        }
    }

    /// Open items at consecutive positions from `pos` on, if they have one weight and are at least `items_min`: their number and
    /// weight.
    pub fn block(&self, pos: u64, items_min: usize) -> Option<(u64, u64)> {
        let mut items = self.open_run(pos, pos.saturating_add(BLOCK_ITEMS_MAX));
        let delta = items.next()?.delta;
        let count = 1 + items.take_while(|item| item.delta == delta).count();
        (count >= items_min).then_some((count as u64, delta))
    }

    /// At most [`OFFER_ITEMS_MAX`] open items at consecutive positions from `from` on, below `to`.
    pub fn range(&self, from: u64, to: u64) -> impl Iterator<Item = &Queued> {
        self.open_run(from, to.min(from.saturating_add(OFFER_ITEMS_MAX as u64)))
    }

    fn open_run(&self, from: u64, to: u64) -> impl Iterator<Item = &Queued> {
        let blocks = self.blocks.range(from / POSITIONS_PER_BLOCK..).map(|(_, block)| block);
        let items = blocks.flat_map(|block| (block.first_pos..).zip(&block.items));
        let items = items.skip_while(move |&(pos, _)| pos < from);
        (from..to).zip(items).map_while(|(wanted, (pos, item))| (pos == wanted && !item.placed).then_some(item))
    }

    // ---- rows ----

    /// A block as a checkpoint holds it: its first position and its items. `None` when nothing in it awaits a place.
    pub fn block_row(&self, number: u64) -> Option<(u64, Vec<Queued>)> {
        let block = self.blocks.get(&number)?;
        Some((block.first_pos, block.items.iter().copied().collect()))
    }

    pub fn has_block(&self, number: u64) -> bool {
        self.blocks.contains_key(&number)
    }

    /// Takes a block from its row. When all are there, [`Queue::advance`] must find the head that was saved.
    pub fn load_block(&mut self, number: u64, first_pos: u64, items: Vec<Queued>) -> Result<(), PositionOutOfBounds> {
        let wrong = PositionOutOfBounds { first_pos, items: items.len() };
        let start = number.checked_mul(POSITIONS_PER_BLOCK).ok_or(wrong)?;
        let end = start.saturating_add(POSITIONS_PER_BLOCK).min(self.next);
        let upto = first_pos.checked_add(items.len() as u64).ok_or(wrong)?;
        if first_pos < start || upto != end {
            return Err(wrong);
        }
        let open = items.iter().filter(|item| !item.placed).count() as u32;
        if open > 0 {
            self.open += u64::from(open);
            self.blocks.insert(number, Block { first_pos, items: items.into(), open });
        }
        Ok(())
    }

    /// A queue with blocks that are still to be loaded.
    pub fn to_load(head: u64, next: u64) -> Queue {
        Queue { head, next, ..Queue::default() }
    }

    /// All items of all blocks, placed ones included.
    pub fn items(&self) -> impl Iterator<Item = &Queued> {
        self.blocks.values().flat_map(|block| &block.items)
    }

    pub fn check_invariants(&self) {
        for (number, block) in &self.blocks {
            let open = block.items.iter().filter(|item| !item.placed).count();
            assert!(open > 0 && open == block.open as usize, "open items of a block");
            let upto = block.first_pos + block.items.len() as u64;
            let start = number * POSITIONS_PER_BLOCK;
            let end = (number + 1) * POSITIONS_PER_BLOCK;
            assert!(start <= block.first_pos && upto <= end && upto <= self.next, "positions of a block");
        }
        let open: u64 = self.blocks.values().map(|block| u64::from(block.open)).sum();
        assert_eq!(self.open, open, "open items of a queue");
        assert_eq!(
            self.head,
            self.next_open(0).unwrap_or(self.next),
            "every position below is placed, this one is not"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn item(delta: u64) -> Queued {
        let session = SessionId::default();
        Queued { delta, seq: 1, session, stream: 0, idx: 0, id: NO_ID, has_session: false, placed: false }
    }

    #[test]
    fn what_is_placed_behind_an_open_one_takes_no_memory() {
        let mut queue = Queue::default();
        for _ in 0..1_000_000 {
            let pos = queue.push(item(1));
            if pos != 3 {
                queue.place(pos);
                queue.advance();
            }
        }
        assert_eq!((queue.head(), queue.next_pos(), queue.open()), (3, 1_000_000, 1));
        assert!(queue.items().count() as u64 <= 2 * POSITIONS_PER_BLOCK);
        queue.place(3);
        queue.advance();
        assert_eq!(queue, Queue::to_load(1_000_000, 1_000_000));
    }

    proptest! {
        /// Like a plain list of weights and whether they are open.
        #[test]
        fn a_queue_is_a_list(steps in proptest::collection::vec((0u8..4, 0u64..4_000, 1u64..2_500), 1..60)) {
            let mut queue = Queue::default();
            let mut list: Vec<(u64, bool)> = Vec::new();
            for (step, at, count) in steps {
                if step < 2 {
                    for n in 0..count {
                        let delta = 1 + u64::from(n % 700 == 0 && step == 1);
                        prop_assert_eq!(queue.push(item(delta)), list.len() as u64);
                        list.push((delta, true));
                    }
                } else {
                    for pos in at..at + count {
                        let open = list.get(pos as usize).is_some_and(|&(_, open)| open);
                        prop_assert_eq!(queue.place(pos).is_some(), open);
                        if open {
                            list[pos as usize].1 = false;
                        }
                    }
                    queue.advance();
                }
                queue.check_invariants();
                prop_assert_eq!(queue.open(), list.iter().filter(|(_, open)| *open).count() as u64);
                let next_open = (at..list.len() as u64).find(|&pos| list[pos as usize].1);
                prop_assert_eq!(queue.next_open(at), next_open);
                prop_assert_eq!(queue.get_open(at).is_some(), next_open == Some(at));
                let run: Vec<u64> = list.iter().skip(at as usize).take_while(|(_, open)| *open).map(|(delta, _)| *delta).collect();
                let range: Vec<u64> = queue.range(at, at + count).map(|item| item.delta).collect();
                let asked = run.len().min(count as usize).min(OFFER_ITEMS_MAX);
                prop_assert_eq!(&range[..], &run[..asked]);
                let alike = run.iter().take_while(|delta| **delta == run[0]).count();
                let block = (alike >= 8).then(|| (alike as u64, run[0]));
                prop_assert_eq!(queue.block(at, 8), block);
                let mut loaded = Queue::to_load(queue.head(), queue.next_pos());
                for number in 0..=list.len() as u64 / POSITIONS_PER_BLOCK {
                    if let Some((first_pos, items)) = queue.block_row(number) {
                        loaded.load_block(number, first_pos, items).unwrap();
                    }
                }
                loaded.advance();
                prop_assert_eq!(&loaded, &queue);
            }
        }
    }
}
