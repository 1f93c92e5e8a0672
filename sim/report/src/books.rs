//! The sent messages, apart for the time near a milestone and the time far from it; and what links carried.

use super::costs::{KINDS, Parcel, Tally};
use super::line::TrafficLine;
use tidemark_proto::time::Time;

/// The phase of a run, as far as costs go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// The run begins or ends: nothing is told of it.
    #[default]
    Before,
    Quiet,
    Near,
}

#[derive(Debug, Default)]
pub struct Books {
    pub phase: Phase,
    pub quiet: Tally,
    pub near: Tally,
    before: Tally,
    pub quiet_us: u64,
    pub near_us: u64,
    /// Bytes of increments sent far from a milestone, had each been a hit.
    pub quiet_bytes_as_hits: u64,
    /// Bytes that arrived at the ends of links.
    pub carried: u64,
}

impl Books {
    /// Time goes on.
    pub fn pass(&mut self, from: Time, to: Time) {
        match self.phase {
            Phase::Before => {}
            Phase::Quiet => self.quiet_us += (to - from).0,
            Phase::Near => self.near_us += (to - from).0,
        }
    }

    pub fn send(&mut self, parcel: &Parcel, between: bool) {
        let tally = match self.phase {
            Phase::Before => &mut self.before,
            Phase::Quiet => &mut self.quiet,
            Phase::Near => &mut self.near,
        };
        tally.count(parcel, between);
    }

    /// Sent, and at its end at once: no process waits for it.
    pub fn deliver(&mut self, parcel: &Parcel) {
        self.send(parcel, false);
        self.carried += parcel.bytes();
    }

    pub fn count_as_hits(&mut self, bytes: u64) {
        if self.phase == Phase::Quiet {
            self.quiet_bytes_as_hits += bytes;
        }
    }

    /// Bytes of all kinds from the start to the end.
    pub fn told_bytes(&self) -> u64 {
        [&self.before, &self.quiet, &self.near].iter().map(|tally| tally.sum().bytes).sum()
    }

    /// Every kind that was sent far from a milestone or near one.
    pub fn traffic(&self) -> Vec<TrafficLine> {
        let of = |between: bool| {
            KINDS.iter().map(move |&kind| {
                let quiet = self.quiet.get(kind, between);
                let near = self.near.get(kind, between);
                TrafficLine { kind, between, quiet, near }
            })
        };
        of(false).chain(of(true)).filter(|line| line.quiet.plus(line.near).messages > 0).collect()
    }
}
