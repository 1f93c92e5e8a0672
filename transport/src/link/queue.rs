//! Datagrams under way, ordered by when they leave. Without IO and without a clock.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Most memory of datagrams under way in one endpoint. 60,000 full datagrams/s take 13 MB at 150 ms; a queue that is
/// full drops what is newest, as a router does.
pub const QUEUE_BYTES_MAX: usize = 64 << 20;
/// Bytes of an entry besides its content.
const ENTRY_BYTES: usize = 160;

/// A queue of items with a due time (any unit, the caller's) and a size in bytes. Equal times keep their order.
#[derive(Debug)]
pub(super) struct DelayQueue<T> {
    heap: BinaryHeap<Entry<T>>,
    next_seq: u64,
    bytes: usize,
    bytes_max: usize,
}

#[derive(Debug)]
struct Entry<T> {
    due: u64,
    seq: u64,
    bytes: usize,
    item: T,
}

impl<T> DelayQueue<T> {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { heap: BinaryHeap::new(), next_seq: 0, bytes: 0, bytes_max }
    }

    /// Adds an item; gives it back if the queue is full.
    pub(super) fn push(&mut self, due: u64, content_bytes: usize, item: T) -> Result<(), T> {
        let bytes = content_bytes + ENTRY_BYTES;
        if self.bytes + bytes > self.bytes_max {
            return Err(item);
        }
        self.bytes += bytes;
        self.heap.push(Entry { due, seq: self.next_seq, bytes, item });
        self.next_seq += 1;
        Ok(())
    }

    /// When the first item is due.
    pub(super) fn next_due(&self) -> Option<u64> {
        self.heap.peek().map(|entry| entry.due)
    }

    /// Takes the first item if it is due.
    pub(super) fn pop_due(&mut self, now: u64) -> Option<T> {
        self.next_due().filter(|due| *due <= now)?;
        let entry = self.heap.pop()?;
        self.bytes -= entry.bytes;
        Some(entry.item)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}

/// The heap gives the greatest: the entry that is due first.
impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.due, other.seq).cmp(&(self.due, self.seq))
    }
}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<T> Eq for Entry<T> {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_full_queue_refuses_and_recovers() {
        let mut queue = DelayQueue::new(2 * ENTRY_BYTES);
        assert_eq!(queue.push(1, 0, 'a'), Ok(()));
        assert_eq!(queue.push(1, 1, 'b'), Err('b'));
        assert_eq!(queue.push(1, 0, 'c'), Ok(()));
        assert_eq!(queue.push(1, 0, 'd'), Err('d'));
        assert_eq!((queue.pop_due(1), queue.push(1, 0, 'e')), (Some('a'), Ok(())));
    }

    proptest! {
        #[test]
        fn items_leave_when_due_in_stable_order(dues in prop::collection::vec(0..50u64, 0..100)) {
            let mut queue = DelayQueue::new(usize::MAX);
            for (at, due) in dues.iter().enumerate() {
                queue.push(*due, 0, (*due, at)).unwrap();
            }
            let mut got = Vec::new();
            for now in 0..50 {
                while let Some(item) = queue.pop_due(now) {
                    prop_assert_eq!(item.0, now);
                    got.push(item);
                }
            }
            prop_assert!(got.is_sorted() && got.len() == dues.len() && queue.is_empty() && queue.bytes == 0);
        }
    }
}
