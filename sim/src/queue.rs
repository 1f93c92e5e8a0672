//! The event queue: a heap on (virtual time, sequence). Equal times leave in the order in which they entered.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use tidemark_proto::time::Time;

/// Events by time. Payloads stay in place; the heap moves small keys only.
#[derive(Debug)]
pub struct Queue<E> {
    heap: BinaryHeap<Reverse<(u64, u64, u32)>>,
    slots: Vec<Option<E>>,
    free: Vec<u32>,
    sequence: u64,
}

impl<E> Default for Queue<E> {
    fn default() -> Queue<E> {
        Queue { heap: BinaryHeap::new(), slots: Vec::new(), free: Vec::new(), sequence: 0 }
    }
}

impl<E> Queue<E> {
    pub fn push(&mut self, at: Time, event: E) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() as u32 - 1
        });
        self.slots[slot as usize] = Some(event);
        self.sequence += 1;
        self.heap.push(Reverse((at.0, self.sequence, slot)));
    }

    pub fn pop(&mut self) -> Option<(Time, E)> {
        let Reverse((at, _, slot)) = self.heap.pop()?;
        self.free.push(slot);
        self.slots[slot as usize].take().map(|event| (Time(at), event))
    }

    pub fn peek_time(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse((at, ..))| Time(*at))
    }

    pub fn len(&self) -> usize {
        self.heap.len()
    }

    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_leave_by_time_and_equal_times_in_order_of_entry() {
        let mut queue = Queue::default();
        for (at, event) in [(5, 'c'), (1, 'a'), (5, 'd'), (2, 'b')] {
            queue.push(Time(at), event);
        }
        let order: String = std::iter::from_fn(|| queue.pop().map(|(_, e)| e)).collect();
        assert_eq!(order, "abcd");
    }
}
