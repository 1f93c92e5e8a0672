//! The messages between the demo and its load generator, another process: lines of JSON over the child's standard input and output.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::arrivals::Pattern;

/// From the demo to the load generator. The first is the load itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToLoad {
    Load(Load),
    /// Add this weight to the counter, as the client `baseline`, and say when it is durable.
    Baseline {
        amount: u64,
    },
    /// Begin.
    Start,
    /// Send no more, wait for answers as long as this, report and end. (So does the end of input.)
    Stop {
        drain_ms: u64,
    },
}

/// From the load generator to the demo.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromLoad {
    /// All front ends are connected.
    Ready,
    BaselineDone,
    /// Every second.
    Tick(Tally),
    /// A hit was the milestone, as the front end that sent it was told.
    Milestone(MilestoneHit),
    /// After `Stop`, as soon as every hit that was sent is durable (or given up): the weight that is.
    Acknowledged {
        last_ack_unix_us: u64,
        hits: u64,
        cold: u64,
    },
    /// The last message.
    Done(Box<LoadReport>),
    /// The load cannot be brought; the last message.
    Failed {
        reason: String,
    },
}

/// The increments, their places and their rates.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Load {
    pub cluster: String,
    pub namespace: String,
    pub key: String,
    pub sites: Vec<LoadSite>,
    /// Front ends per data centre, each with a connection of its own.
    pub clients_per_dc: usize,
    pub pattern: Pattern,
    pub swing: bool,
    /// Other counters, each incremented once per `cold_period_s`, spread evenly over time and data centres.
    pub cold_cells: usize,
    pub cold_period_s: u64,
    pub flush_ms: u64,
    pub seed: u64,
}

/// A data centre as its front ends see it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadSite {
    pub name: String,
    pub node: SocketAddr,
    /// Folder with the front ends' certificate and key.
    pub credentials: PathBuf,
    pub rate_per_s: f64,
    /// Where the front ends go when their own data centre is gone: indices of `sites`, nearest first.
    pub neighbours: Vec<usize>,
}

/// Counts of hits since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    pub sent: u64,
    /// Durable.
    pub acknowledged: u64,
    /// Placed at once or later, without a number.
    pub counted: u64,
    pub numbered: u64,
    pub milestones: u64,
    /// Durable at some time without a place: these were sequenced.
    pub sequenced: u64,
    /// Durable, but the place can no longer be said.
    pub place_unknown: u64,
    pub overloaded: u64,
    /// Surely not counted, for another reason.
    pub failed: u64,
    /// Hits that may or may not be counted.
    pub unknown: u64,
    /// Weight added to cold cells, and how much of it is durable.
    pub cold_sent: u64,
    pub cold_acknowledged: u64,
}

impl Counts {
    /// Hits that have had their last word.
    pub fn answered(&self) -> u64 {
        self.placed() + self.place_unknown + self.overloaded + self.failed + self.unknown
    }

    /// Hits with a known place.
    pub fn placed(&self) -> u64 {
        self.counted + self.numbered + self.milestones
    }

    /// Durable hits without a place at present.
    pub fn pending(&self) -> u64 {
        self.acknowledged.saturating_sub(self.placed() + self.place_unknown)
    }

    /// Adds another's counts.
    pub fn add(&mut self, other: &Counts) {
        self.sent += other.sent;
        self.acknowledged += other.acknowledged;
        self.counted += other.counted;
        self.numbered += other.numbered;
        self.milestones += other.milestones;
        self.sequenced += other.sequenced;
        self.place_unknown += other.place_unknown;
        self.overloaded += other.overloaded;
        self.failed += other.failed;
        self.unknown += other.unknown;
        self.cold_sent += other.cold_sent;
        self.cold_acknowledged += other.cold_acknowledged;
    }
}

/// The state of the load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tally {
    pub elapsed_ms: u64,
    /// By data centre.
    pub sites: Vec<Counts>,
    /// Durable acknowledgement, from when the hit should have been sent.
    pub ack: Latency,
}

impl Tally {
    /// Of the whole cluster.
    pub fn total(&self) -> Counts {
        let mut total = Counts::default();
        self.sites.iter().for_each(|site| total.add(site));
        total
    }
}

/// A distribution of latencies, milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    pub count: u64,
    pub p50_ms: f64,
    pub p90_ms: f64,
    pub p99_ms: f64,
    pub p999_ms: f64,
    pub max_ms: f64,
}

/// The hit that reached a milestone, with the moments of its life by this machine's clock (microseconds since 1970).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MilestoneHit {
    pub at: u64,
    pub first: u64,
    /// Index of the data centre.
    pub site: usize,
    /// When it should have been sent.
    pub sent_unix_us: u64,
    /// When the front end had its durable answer, which leaves the valve in the step that applies the hit.
    pub durable_unix_us: u64,
    /// When the front end was told that it is the milestone.
    pub placed_unix_us: u64,
    /// Hits of the whole load that were answered without a place so far.
    pub sequenced: u64,
}

/// The end of a load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadReport {
    pub tally: Tally,
    /// From when a hit should have been sent until its place was known.
    pub placement: Latency,
    /// How much later than it should have been a hit was handed to the client's core: the generator's own lateness.
    pub lateness: Latency,
    /// Hits still without a last word when the drain ended.
    pub unanswered: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_hit_is_in_one_place() {
        let counts = Counts {
            sent: 20,
            acknowledged: 12,
            counted: 5,
            numbered: 3,
            milestones: 1,
            place_unknown: 1,
            overloaded: 2,
            failed: 1,
            unknown: 1,
            ..Counts::default()
        };
        assert_eq!((counts.placed(), counts.pending(), counts.answered()), (9, 2, 14));
        let mut twice = counts.clone();
        twice.add(&counts);
        assert_eq!((twice.sent, twice.pending()), (40, 4));
    }

    #[test]
    fn messages_are_lines() {
        let message = FromLoad::Tick(Tally { sites: vec![Counts::default()], ..Tally::default() });
        let line = serde_json::to_string(&message).unwrap();
        assert!(!line.contains('\n') && line.starts_with("{\"tick\":"), "{line}");
        assert_eq!(serde_json::from_str::<FromLoad>(&line).unwrap(), message);
        assert_eq!(serde_json::to_string(&ToLoad::Start).unwrap(), "\"start\"");
    }
}
