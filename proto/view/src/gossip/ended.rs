//! Prepares slots of ended cells for new cells (decision 0091): numbers of peers stop referring to them, and peers will get the name
//! of the new cell.

use super::Gossip;
use tidemark_types::ids::AggregatorId;
use tidemark_types::numbers::Numbers;

/// The progress of a sweep over the numbers of peers: the remaining peers, the present peer last, and its next page.
#[derive(Clone, Debug)]
pub struct NumbersSwept {
    peers: Vec<AggregatorId>,
    page: usize,
}

impl Gossip {
    /// Begins a sweep over the numbers of all connected peers. Peers that connect later define no numbers for these cells.
    pub fn begin_sweep(&self) -> NumbersSwept {
        NumbersSwept { peers: self.peers.keys().copied().collect(), page: 0 }
    }

    /// Sweeps the next page of numbers, so that none of them refers to these cells. False: no page was left.
    pub fn sweep_numbers(&mut self, swept: &mut NumbersSwept, over: &Numbers) -> bool {
        let Some(id) = swept.peers.last() else { return false };
        let more = self.peers.get_mut(id).is_some_and(|peer| peer.numbers.end_page(swept.page, over));
        swept.page += 1;
        if !more {
            swept.peers.pop();
            swept.page = 0;
        }
        true
    }

    /// Lets new cells get these slots: forgets which names peers know, and drops deferred changes.
    pub fn free_slots(&mut self, slots: &Numbers) {
        self.held.forget(slots);
        self.peers.values_mut().for_each(|peer| peer.named.clear_all(slots));
    }

    /// Panics if a number of a peer refers to one of these slots, or if a peer is recorded as knowing the name of such a slot.
    pub fn check_freed(&self, slots: &Numbers) {
        for (id, peer) in &self.peers {
            assert!(!peer.numbers.slots().any(|slot| slots.contains(slot)), "a number of {id:?} for a free slot");
            assert!(!slots.iter().any(|slot| peer.named.contains(slot)), "{id:?} was told the name of a free slot");
        }
    }
}
