//! A shard that is split: each of its parts continues with its streams, under their names and versions, as they are.
//!
//! A version of a stream of a part thus covers the same changes of the part's counters as in the whole. An aggregator that has
//! split the shard gossips about its parts from then on, and is heard by others that have split it as well. No change is told
//! again for the split.

use super::pair::{Held, HeldBack};
use super::recent::Recent;
use super::{Gossip, GossipConfig, Origin};

/// The numbers of a shard's slots, valves and rows in one of its parts; those that are not in it have none.
pub struct Renumbered<'a> {
    pub slot: &'a dyn Fn(u32) -> Option<u32>,
    pub valve: &'a dyn Fn(u16) -> Option<u16>,
    pub row: &'a dyn Fn(u32) -> Option<u32>,
}

impl Gossip {
    /// Takes over the state of the whole shard that this one is a part of. Peers are yet to be met.
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
        let recent = self.recent.renumbered(config, numbers.slot);
        let rows = self.rows.renumbered(capacity, numbers.row);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gossip::{Fed, OwnChange};
    use crate::view::Cells;
    use tidemark_types::ids::{AggregatorId, CounterName, DcId, GroupId, ValveId};
    use tidemark_types::time::{Span, Time};
    use tidemark_wire::msg::{Digest, PeerMsg, Version};
    use tidemark_wire::shards::{Lineage, Seats, ShardId, Split};

    const OWN: AggregatorId = AggregatorId { dc: DcId(0), seat: 0 };
    const SECOND: AggregatorId = AggregatorId { dc: DcId(0), seat: 1 };
    const ABROAD: AggregatorId = AggregatorId { dc: DcId(1), seat: 0 };

    fn counter(number: u32) -> CounterName {
        CounterName::new("t", &number.to_be_bytes()).unwrap()
    }

    fn cells(numbers: impl Iterator<Item = u32>) -> Cells {
        let mut cells = Cells::new(1);
        let valve = cells.valve(ValveId { group: GroupId { dc: OWN.dc, group: 0, incarnation: 1 }, lane: 0 }).unwrap();
        for number in numbers {
            let slot = cells.slot(&counter(number).total()).unwrap();
            cells.merge(slot, valve, 7);
        }
        cells
    }

    fn seats() -> Seats {
        let split = Split { shard: ShardId(0), at: counter(4), first: ShardId(1) };
        Seats::new(vec![2, 1]).with_lineage(Lineage::of([split].iter()))
    }

    /// The odd ones of four counters, as those of the part.
    fn odd(slot: u32) -> Option<u32> {
        (slot % 2 == 1).then_some(slot / 2)
    }

    fn part_of(own: AggregatorId, whole: &Gossip) -> Gossip {
        let mut part = Gossip::of_shard(own, ShardId(1), seats(), 1, GossipConfig::default(), 1);
        part.go_on_as_part(whole, &Renumbered { slot: &odd, valve: &Some, row: &|_| None });
        part
    }

    fn told(gossip: &mut Gossip, now: Time, cells: &Cells) -> Vec<PeerMsg> {
        gossip.tick(now, cells);
        std::iter::from_fn(|| gossip.poll_output()).filter(|(to, _)| *to == ABROAD).map(|(_, msg)| msg).collect()
    }

    #[test]
    fn a_part_is_told_from_where_the_whole_was_and_to_nobody_who_has_not_spoken_of_it() {
        let mut whole = Gossip::new(OWN, 1, GossipConfig::default(), 1);
        for slots in [[0, 1], [2, 3]] {
            whole.on_own_changes(Time(0), slots.map(OwnChange::of));
        }
        let mut part = part_of(OWN, &whole);
        let cells = cells([1, 3].into_iter());
        part.on_peer_up(Time(0), ABROAD, Span(1));
        part.on_own_changes(Time(0), [OwnChange::of(0)]);
        let second = |s: u64| Time(s * 1_000_000);
        let silent = (0..5).flat_map(|s| told(&mut part, second(s), &cells)).collect::<Vec<_>>();
        assert!(!silent.is_empty() && silent.iter().all(|msg| matches!(msg, PeerMsg::Digest(_))), "{silent:?}");

        let version = |version| Version { epoch: 1, version };
        let digest = Digest { sender: 1, have: vec![(OWN, version(1))], ..Digest::default() };
        part.on_digest(second(5), &cells, ABROAD, &digest);
        let deltas = told(&mut part, second(5), &cells).into_iter().filter_map(|msg| match msg {
            PeerMsg::Delta(delta) => Some(delta),
            _ => None,
        });
        let deltas: Vec<_> = deltas.collect();
        let [delta] = &deltas[..] else { panic!("{deltas:?}") };
        assert_eq!((delta.base, delta.upto, delta.walk), (1, 3, None));
        let names: Vec<_> = delta.cells.iter().map(|(slot, cell)| (*slot, cell.counter.clone())).collect();
        assert_eq!(names, [(0, counter(1)), (1, counter(3))], "what changed since, under its numbers in the part");
    }

    #[test]
    fn what_the_second_of_a_pair_held_back_of_the_whole_it_holds_back_of_the_part() {
        let mut whole = Gossip::of_shard(SECOND, ShardId(0), seats(), 1, GossipConfig::default(), 1);
        let fed = (0..4).map(|slot| Fed { slot, valve: 0, rows: Vec::new() });
        whole.on_fed(Time(0), fed.collect());
        let mut part = part_of(SECOND, &whole);
        let cells = cells([1, 3].into_iter());
        assert_eq!((whole.held(), part.held()), (4, 2));
        let patience = GossipConfig::default().partner_patience;
        part.tick(Time(0) + patience, &cells);
        assert_eq!(
            (part.held(), part.speaks_for_its_partner()),
            (0, true),
            "told by itself, as late as it would have been"
        );
    }
}
