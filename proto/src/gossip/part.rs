//! A shard that is split: each of its parts goes on with its streams, under their names and versions, as they are.
//!
//! A version of a stream of a part thus says of the part's counters what it said of them in the whole. Who has split the shard speaks of its
//! parts from then on, and is heard by those who have split it as well; nothing is told again for it.

use super::pair::Held;
use super::{Gossip, Origin};
use crate::row_changes::RowChanges;

/// Which numbers slots, valves and rows of a shard have in one of its parts; those that are not in it have none.
pub struct Renumbered<'a> {
    pub slot: &'a dyn Fn(u32) -> Option<u32>,
    pub valve: &'a dyn Fn(u16) -> Option<u16>,
    pub row: &'a dyn Fn(u32) -> Option<u32>,
}

impl Gossip {
    /// Goes on with what another one knew of a shard of which this one's is a part. Peers are yet to be met.
    pub fn go_on_as_part(&mut self, whole: &Gossip, numbers: &Renumbered<'_>) {
        self.origins = whole.origins.iter().map(|(&id, origin)| (id, origin.of_part(numbers))).collect();
        self.held = whole.held.of_part(numbers);
        (self.leader, self.review_at) = (whole.leader, whole.review_at);
        (self.repaired, self.resumed, self.is_resumed) = (whole.repaired, whole.resumed, whole.is_resumed);
    }
}

impl Origin {
    fn of_part(&self, numbers: &Renumbered<'_>) -> Origin {
        let rows: RowChanges = self.rows.renumbered(numbers.row);
        let (source, behind_since, told) = Default::default();
        Origin { recent: self.recent.renumbered(numbers.slot), rows, source, behind_since, told, ..self.clone() }
    }
}

impl Held {
    fn of_part(&self, numbers: &Renumbered<'_>) -> Held {
        let mut part = Held { speaks: self.speaks, ..Held::default() };
        for (&(slot, valve), held) in &self.components {
            let (Some(slot), Some(valve)) = ((numbers.slot)(slot), (numbers.valve)(valve)) else { continue };
            let parts = held.parts.iter().filter_map(|&(row, part)| Some(((numbers.row)(row)?, part))).collect();
            part.components.insert((slot, valve), super::pair::HeldBack { since: held.since, parts });
        }
        part.oldest = self.oldest.filter(|_| !part.is_empty());
        part
    }
}
