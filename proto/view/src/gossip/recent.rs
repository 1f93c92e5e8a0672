//! Recent changes in one origin's components, by the origin's versions.

use super::GossipConfig;
use std::collections::VecDeque;
use tidemark_types::ring::ChangeRing;

/// The recent changes of an origin: of this data centre's own (each cell once), or of one that may be relayed.
#[derive(Clone, Debug)]
pub enum Recent {
    Own(ChangeRing),
    Relay(RelayRing),
}

impl Recent {
    /// Whether every change after `version` is here; else the origin's components must be walked.
    pub fn reaches(&self, version: u64) -> bool {
        match self {
            Recent::Own(ring) => ring.reaches(version),
            Recent::Relay(ring) => version >= ring.reaches,
        }
    }

    /// The same of slots that have other numbers now; those without one are left out.
    pub fn renumbered(&self, config: &GossipConfig, number: impl Fn(u32) -> Option<u32>) -> Recent {
        match self {
            Recent::Own(ring) => Recent::Own(ring.renumbered(config.own_ring_events, number)),
            Recent::Relay(ring) => Recent::Relay(ring.renumbered(config.relay_ring_events, number)),
        }
    }

    /// (slot, version) ascending by version. A slot may come more than once.
    pub fn since(&self, version: u64) -> Box<dyn Iterator<Item = (u32, u64)> + '_> {
        match self {
            Recent::Own(ring) => Box::new(ring.since(version)),
            Recent::Relay(ring) => Box::new(ring.since(version)),
        }
    }
}

/// Changes of a foreign origin as they were told: no index by cell (there is one ring per origin), so a cell that changes
/// often takes room each time.
#[derive(Clone, Debug)]
pub struct RelayRing {
    capacity: usize,
    slots: VecDeque<u32>,
    /// (version, slots told with it).
    runs: VecDeque<(u64, u32)>,
    reaches: u64,
}

impl RelayRing {
    /// A ring of about `capacity` slots (the newest run is always kept), empty as of `version`.
    pub fn new(capacity: usize, version: u64) -> RelayRing {
        RelayRing { capacity, slots: VecDeque::new(), runs: VecDeque::new(), reaches: version }
    }

    /// Records the slots told with `version`, which is newer than all before.
    pub fn push(&mut self, version: u64, slots: impl ExactSizeIterator<Item = u32>) {
        self.runs.push_back((version, slots.len() as u32));
        self.slots.extend(slots);
        while self.runs.len() > 1 && (self.slots.len() > self.capacity || self.runs.len() > self.capacity) {
            if let Some((version, count)) = self.runs.pop_front() {
                self.slots.drain(..count as usize);
                self.reaches = version;
            }
        }
    }

    fn renumbered(&self, capacity: usize, number: impl Fn(u32) -> Option<u32>) -> RelayRing {
        let mut next = RelayRing::new(capacity, self.reaches);
        let mut slots = self.slots.iter();
        for &(version, count) in &self.runs {
            let told: Vec<u32> = slots.by_ref().take(count as usize).filter_map(|&slot| number(slot)).collect();
            next.push(version, told.into_iter());
        }
        next
    }

    fn since(&self, version: u64) -> impl Iterator<Item = (u32, u64)> + '_ {
        let first = self.runs.partition_point(|&(at, _)| at <= version);
        let skipped: usize = self.runs.range(..first).map(|&(_, count)| count as usize).sum();
        let versions = self.runs.range(first..).flat_map(|&(at, count)| (0..count).map(move |_| at));
        self.slots.range(skipped..).copied().zip(versions)
    }
}
