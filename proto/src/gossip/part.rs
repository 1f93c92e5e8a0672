//! A shard that is split: each of its parts goes on with its streams, under their names and versions, as they are.
//!
//! A version of a stream of a part thus says of the part's counters what it said of them in the whole. Who has split the shard speaks of its
//! parts from then on, and is heard by those who have split it as well; nothing is told again for it.

use super::pair::{Held, HeldBack};
use super::recent::Recent;
use super::{Gossip, GossipConfig, Origin};

/// Which numbers slots, valves and rows of a shard have in one of its parts; those that are not in it have none.
pub struct Renumbered<'a> {
    pub slot: &'a dyn Fn(u32) -> Option<u32>,
    pub valve: &'a dyn Fn(u16) -> Option<u16>,
    pub row: &'a dyn Fn(u32) -> Option<u32>,
}

impl Gossip {
    /// Goes on with what another one knew of a shard of which this one's is a part. Peers are yet to be met.
    pub fn go_on_as_part(&mut self, whole: &Gossip, numbers: &Renumbered<'_>) {
        let of_part = |origin: &Origin| origin.of_part(numbers, &self.config);
        self.origins = whole.origins.iter().map(|(&id, origin)| (id, of_part(origin))).collect();
        self.held = whole.held.of_part(numbers);
        (self.leader, self.review_at) = (whole.leader, whole.review_at);
        (self.repaired, self.resumed, self.is_resumed) = (whole.repaired, whole.resumed, whole.is_resumed);
    }
}

impl Origin {
    fn of_part(&self, numbers: &Renumbered<'_>, config: &GossipConfig) -> Origin {
        let capacity = match self.recent {
            Recent::Own(_) => config.own_ring_events,
            Recent::Relay(_) => config.relay_ring_events,
        };
        let Origin { have, lacks, partly, unsure, progressed, .. } = *self;
        let (recent, rows) =
            (self.recent.renumbered(config, numbers.slot), self.rows.renumbered(capacity, numbers.row));
        let (source, behind_since, told) = Default::default();
        Origin { have, lacks, partly, unsure, recent, rows, source, behind_since, progressed, told }
    }
}

impl Held {
    fn of_part(&self, numbers: &Renumbered<'_>) -> Held {
        let mut part = Held { speaks: self.speaks, ..Held::default() };
        for (&(slot, valve), held) in &self.components {
            let (Some(slot), Some(valve)) = ((numbers.slot)(slot), (numbers.valve)(valve)) else { continue };
            let parts = held.parts.iter().filter_map(|&(row, part)| Some(((numbers.row)(row)?, part))).collect();
            part.components.insert((slot, valve), HeldBack { since: held.since, parts });
        }
        part.oldest = self.oldest.filter(|_| !part.is_empty());
        part
    }
}
