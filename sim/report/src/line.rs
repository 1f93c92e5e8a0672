//! A run as one line of JSON: the request, and the counts and measurements in whole numbers.

use super::costs::{Kind, Volume};
use serde::{Deserialize, Serialize};

/// The purpose of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Section {
    /// Rates of increments, in the reference layout.
    Rates,
    /// Numbers of data centres.
    Centres,
    /// Sizes of a milestone, with rights.
    Rights,
    /// Sizes of a milestone, with a fixed last part sequenced.
    Fixed,
    /// Numbers of counters, for what is told between data centres.
    Cells,
}

/// A run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunLine {
    pub section: Section,
    pub seed: u64,
    pub centres: usize,
    /// Whether round trips were measured between real sites.
    pub measured_sites: bool,
    pub front_ends: usize,
    pub cold_counters: u32,
    pub rate_per_s: u64,
    /// The first milestone, and the distance of the others.
    pub milestone: u64,
    pub every: Option<u64>,
    /// Counted when the milestone was defined.
    pub start_at: u64,
    /// Everything from here on is sequenced.
    pub sequence_from: Option<u64>,
    pub quorum_us: u64,
    /// The longest round trip to the ledger's leader.
    pub farthest_us: u64,
    /// L.
    pub zone: u64,
    /// Increments that arrived.
    pub arrived: u64,
    /// The first is not among them where several were waited for.
    pub awards: Vec<AwardLine>,
    /// From the last increment's apply until every view had all; none: not within the given time.
    pub converged_us: Option<u64>,
    pub undecided_max: u64,
    pub queued_max: u64,
    /// Virtual time far from a milestone, and near one.
    pub quiet_us: u64,
    pub near_us: u64,
    pub traffic: Vec<TrafficLine>,
    /// Of increments, client to node: had each been a hit with its session.
    pub quiet_bytes_as_hits: u64,
    /// The same at one moment: all that an aggregator holds, and all of its own data centre, told to one peer.
    pub full_state_bytes: u64,
    pub own_state_bytes: u64,
    pub gossip_interval_us: u64,
    /// Everything that links carried from the start to the end, and the same by kind, which must be equal.
    pub carried_bytes: u64,
    pub told_bytes: u64,
    /// Of these, what is allowed to be: none.
    pub weighted_queued: u64,
    pub refused: u64,
}

/// An award.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AwardLine {
    pub at: u64,
    pub first: u64,
    pub delta: u64,
    /// The weights before it add up to `first - 1`, and it covers the milestone.
    pub exact: bool,
    /// Where it was counted.
    pub centre: u16,
    /// Increments sequenced around it, and those of them before the ledger's leader knew of it.
    pub sequenced: u64,
    pub sequenced_before: u64,
    /// From the winner's apply until its data centre knew.
    pub latency_us: u64,
    /// That data centre's round trip to the leader, and q.
    pub bound_us: u64,
}

/// The traffic of one kind of message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrafficLine {
    pub kind: Kind,
    /// Between data centres, or inside one.
    pub between: bool,
    pub quiet: Volume,
    pub near: Volume,
}

impl RunLine {
    /// Seconds far from a milestone.
    pub fn quiet_s(&self) -> f64 {
        self.quiet_us as f64 / 1e6
    }

    pub fn traffic_of(&self, kind: Kind, between: bool) -> TrafficLine {
        let is_it = |line: &&TrafficLine| (line.kind, line.between) == (kind, between);
        let none = TrafficLine { kind, between, quiet: Volume::default(), near: Volume::default() };
        self.traffic.iter().find(is_it).copied().unwrap_or(none)
    }

    /// Bytes per second far from a milestone, of all kinds that `of` takes.
    pub fn quiet_bytes_per_s(&self, of: impl Fn(&TrafficLine) -> bool) -> f64 {
        let bytes: u64 = self.traffic.iter().filter(|line| of(line)).map(|line| line.quiet.bytes).sum();
        bytes as f64 / self.quiet_s()
    }

    /// (messages, bytes) of one kind that one milestone costs, beyond what would have been told anyway.
    pub fn per_milestone(&self, line: &TrafficLine) -> (f64, f64) {
        let awards = self.awards.len().max(1) as f64;
        let part = if self.quiet_us > 0 { self.near_us as f64 / self.quiet_us as f64 } else { 0.0 };
        let beyond = |near: u64, quiet: u64| ((near as f64 - quiet as f64 * part) / awards).max(0.0);
        (beyond(line.near.messages, line.quiet.messages), beyond(line.near.bytes, line.quiet.bytes))
    }

    /// Sequenced per milestone: the median and the most. Where a fixed part is sequenced this goes on after the award, which is not
    /// the milestone's.
    pub fn sequenced(&self) -> (u64, u64) {
        let of =
            |award: &AwardLine| if self.section == Section::Fixed { award.sequenced_before } else { award.sequenced };
        middle_and_most(self.awards.iter().map(of).collect())
    }

    /// Award latencies in microseconds, and what they are beyond RTT + q: each the median and the most.
    pub fn latencies_us(&self) -> ((u64, u64), (u64, u64)) {
        let latencies = self.awards.iter().map(|award| award.latency_us).collect();
        let beyond = self.awards.iter().map(|award| award.latency_us.saturating_sub(award.bound_us)).collect();
        (middle_and_most(latencies), middle_and_most(beyond))
    }
}

fn middle_and_most(mut values: Vec<u64>) -> (u64, u64) {
    values.sort_unstable();
    (values.get(values.len() / 2).copied().unwrap_or(0), values.last().copied().unwrap_or(0))
}
