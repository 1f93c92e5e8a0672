//! The meaning of a seed for milestones under `timely`: their definitions, the errors of clocks' speeds, and the data centres that are cut
//! off for longer than a lease while they hold rights. Drawn apart from everything else.

use super::{Admin, Fault};
use crate::rng::Rng;
use tidemark_proto::limits::{CLOCK_DRIFT_PARTS, LEASE};
use tidemark_proto::msg::Policy;
use tidemark_proto::time::{Span, Time};

/// A clock shows this much more or less in a million than passes.
const DRIFT_PPM_MAX: u64 = 1_000_000 / CLOCK_DRIFT_PARTS - 1;

/// The meaning of a seed for leases.
#[derive(Clone, Debug)]
pub struct LeasePlan {
    /// By counter, what most of its definitions say.
    policies: Vec<Policy>,
    /// Of 10,000 definitions how many say the other.
    other_per_10k: u32,
    /// By node, by data centre: how much faster than time its clock goes, in millionths.
    pub nodes_ppm: Vec<i64>,
    pub aggregators_ppm: Vec<i64>,
    rng: Rng,
}

impl LeasePlan {
    pub(super) fn new(mut rng: Rng, nodes: usize, dcs: usize, counters: usize) -> LeasePlan {
        let some = rng.per_10k(5_000);
        let policy = |rng: &mut Rng| if some && rng.per_10k(7_000) { Policy::Timely } else { Policy::Strict };
        LeasePlan {
            policies: (0..counters).map(|_| policy(&mut rng)).collect(),
            other_per_10k: if some { *rng.pick(&[0, 0, 2_000]) } else { 0 },
            nodes_ppm: (0..nodes).map(|_| drift(&mut rng)).collect(),
            aggregators_ppm: (0..dcs).map(|_| drift(&mut rng)).collect(),
            rng,
        }
    }

    /// Milestones of the counters have these policies.
    pub(super) fn of(policies: Vec<Policy>, mut rng: Rng, nodes: usize, dcs: usize) -> LeasePlan {
        LeasePlan {
            policies,
            other_per_10k: 0,
            nodes_ppm: (0..nodes).map(|_| drift(&mut rng)).collect(),
            aggregators_ppm: (0..dcs).map(|_| drift(&mut rng)).collect(),
            rng,
        }
    }

    /// The policy that an operator's command says, by its place in the plan.
    pub fn policy(&self, index: usize, counter: usize) -> Policy {
        let usual = self.policies.get(counter).copied().unwrap_or_default();
        let other = self.rng.fork(index as u64).per_10k(self.other_per_10k);
        match (usual, other) {
            (Policy::Strict, false) | (Policy::Timely, true) => Policy::Strict,
            _ => Policy::Timely,
        }
    }

    /// Whether a data centre's disks stall while it is cut off, so that what it certified turns out to be durable when its leases
    /// are over.
    pub fn stalls(&self, fault: usize) -> Option<Span> {
        let mut rng = self.rng.fork(1 << 33 | fault as u64);
        let stalls = self.policies.contains(&Policy::Timely) && rng.per_10k(5_000);
        stalls.then(|| Span(LEASE.0 + rng.between(500_000, 4_000_000)))
    }

    /// Cuts about milestones, some shorter and some longer than a lease, and elections while they last.
    pub(super) fn faults(&self, dcs: usize, safety_end: Time) -> Vec<(Time, Fault)> {
        let mut faults = Vec::new();
        if !self.policies.contains(&Policy::Timely) {
            return faults;
        }
        let mut rng = self.rng.fork(1 << 32);
        for _ in 0..rng.below(6) {
            let at = Time(rng.between(safety_end.0 / 20, safety_end.0 * 9 / 10));
            let dc = rng.below(dcs as u64) as usize;
            let candidate = rng.below(dcs as u64) as usize;
            let span = Span(rng.between(LEASE.0 / 2, 3 * LEASE.0));
            faults.push((at, Fault::CutAtMilestone { dc, span }));
            if rng.per_10k(4_000) {
                faults.push((at + Span(rng.below(2 * LEASE.0)), Fault::Elect { candidate }));
            }
        }
        let mut rng = self.rng.fork(1 << 34);
        for _ in 0..rng.below(3) {
            let at = Time(rng.between(0, safety_end.0 / 2));
            faults.push((at, Fault::CutAtBlock { span: Span(rng.between(LEASE.0, 3 * LEASE.0)) }));
        }
        faults
    }
}

impl Admin {
    /// The counter with the milestones that the command defines.
    pub fn defines(&self) -> Option<usize> {
        match self {
            Admin::At { counter, .. } | Admin::Ahead { counter, .. } | Admin::Again { counter } => Some(*counter),
            Admin::Last => Some(0),
            Admin::Namespace
            | Admin::UpDown
            | Admin::Series
            | Admin::Disarm { .. }
            | Admin::DisarmRule { .. }
            | Admin::Claims { .. }
            | Admin::Edges(_) => None,
            Admin::Reset { .. } | Admin::Expire { .. } => None,
        }
    }
}

pub(super) fn drift(rng: &mut Rng) -> i64 {
    let most = DRIFT_PPM_MAX as i64;
    *rng.pick(&[0, most, -most, rng.clone().below(DRIFT_PPM_MAX) as i64])
}

/// The time of a clock that is this much too fast, when it began with time itself.
pub fn shown(now: Time, ppm: i64) -> Time {
    Time((i128::from(now.0) * (1_000_000 + i128::from(ppm)) / 1_000_000) as u64)
}

/// The first time at which it shows as much.
pub fn when(shown: Time, ppm: i64) -> Time {
    let parts = 1_000_000 + i128::from(ppm);
    Time(((i128::from(shown.0) * 1_000_000 + parts - 1) / parts) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_shows_what_was_waited_for_and_not_a_microsecond_before() {
        for ppm in [0, 4_999, -4_999, 1] {
            for at in [1, 999, 1_000_001, 77_000_123] {
                let time = when(Time(at), ppm);
                assert!(shown(time, ppm) >= Time(at) && shown(Time(time.0 - 1), ppm) < Time(at), "{at} {ppm}");
            }
        }
    }
}
