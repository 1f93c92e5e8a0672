//! The experience of one data centre's front ends: counts and distributions, cheap enough to keep for every hit.

use std::sync::Arc;

use hdrhistogram::Histogram;
use tokio::sync::Notify;

use crate::messages::{Counts, Latency, MilestoneHit};

/// Longest latency told apart, microseconds (an hour); longer ones count as this.
const LATENCY_US_MAX: u64 = 3_600_000_000;
/// Decimal digits that a recorded latency keeps.
const DIGITS: u8 = 3;

/// A distribution of latencies, recorded in microseconds.
#[derive(Clone, Debug)]
pub struct Latencies(Histogram<u64>);

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies(Histogram::new_with_bounds(1, LATENCY_US_MAX, DIGITS).expect("the bounds are constants that fit"))
    }
}

impl Latencies {
    /// Records one.
    pub fn record(&mut self, us: u64) {
        self.0.saturating_record(us.max(1));
    }

    /// Takes in another's.
    pub fn merge(&mut self, other: &Latencies) {
        self.0.add(&other.0).expect("all have the same bounds");
    }

    /// The distribution's marks.
    pub fn summary(&self) -> Latency {
        let ms = |quantile: f64| self.0.value_at_quantile(quantile) as f64 / 1_000.0;
        if self.0.is_empty() {
            return Latency::default();
        }
        Latency {
            count: self.0.len(),
            p50_ms: ms(0.5),
            p90_ms: ms(0.9),
            p99_ms: ms(0.99),
            p999_ms: ms(0.999),
            max_ms: ms(1.0),
        }
    }
}

/// Everything that is measured at one data centre.
#[derive(Clone, Debug, Default)]
pub struct SiteTally {
    pub counts: Counts,
    /// From when a hit should have been sent until it was durable.
    pub ack: Latencies,
    /// The same until its place was known.
    pub placement: Latencies,
    /// The generator's own.
    pub lateness: Latencies,
    /// Milestones since they were last taken.
    pub milestones: Vec<MilestoneHit>,
    /// Told of each.
    pub found: Arc<Notify>,
    /// When something last became durable, microseconds of the process's clock.
    pub last_ack_us: u64,
    /// Front ends that are connected.
    pub connected: usize,
    /// Hits and cold weight without an answer about durability.
    pub unacknowledged: u64,
    /// Hits without a last word.
    pub unanswered: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_of_a_distribution() {
        let mut latencies = Latencies::default();
        (1..=1_000_u64).for_each(|ms| latencies.record(ms * 1_000));
        let mut other = Latencies::default();
        other.record(u64::MAX);
        latencies.merge(&other);
        let summary = latencies.summary();
        assert_eq!(summary.count, 1_001);
        assert!((500.0..502.0).contains(&summary.p50_ms), "{summary:?}");
        assert!((990.0..993.0).contains(&summary.p99_ms), "{summary:?}");
        assert_eq!(Latencies::default().summary(), Latency::default());
    }
}
