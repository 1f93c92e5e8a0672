//! When increments arrive: an open loop by time, never by answers. A late increment is sent late and measured from when it should have been
//! sent.

use std::f64::consts::TAU;

use serde::{Deserialize, Serialize};

use super::query_log::mix;

/// Period of rates that swing. Long against round trips, short against a run, so that milestones meet every phase.
pub const SWING_PERIOD_S: f64 = 10.0;
/// A swinging rate goes from half of its mean to one and a half.
pub const SWING_SHARE: f64 = 0.5;
const US_PER_S: f64 = 1e6;

/// Gaps between arrivals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    /// Gaps are independent of one another, as those of people are.
    #[default]
    Poisson,
    /// All gaps are alike.
    Even,
}

/// A stream of arrivals. Times are microseconds since the load began.
#[derive(Clone, Debug)]
pub struct Arrivals {
    rate_per_s: f64,
    pattern: Pattern,
    /// The phase of a swinging rate, in turns.
    swing: Option<f64>,
    next_us: f64,
    state: u64,
}

impl Arrivals {
    /// Arrivals at a mean rate. With `swing`, the rate swings by half; the phase is given in turns, 0 to 1.
    pub fn new(rate_per_s: f64, pattern: Pattern, swing: Option<f64>, seed: u64) -> Arrivals {
        let mut arrivals = Arrivals { rate_per_s, pattern, swing, next_us: 0.0, state: seed };
        arrivals.next_us = arrivals.gap_us();
        arrivals
    }

    /// The next arrival up to `now_us`, if there is one; its time is when it was due.
    pub fn pop_due(&mut self, now_us: u64) -> Option<u64> {
        let due_us = self.next_us;
        if due_us > now_us as f64 {
            return None;
        }
        self.next_us += self.gap_us();
        Some(due_us as u64)
    }

    /// When the next arrival is due.
    pub fn next_us(&self) -> u64 {
        self.next_us as u64
    }

    fn gap_us(&mut self) -> f64 {
        let mean_us = US_PER_S / self.rate_now();
        match self.pattern {
            Pattern::Even => mean_us,
            Pattern::Poisson => -mean_us * self.uniform().ln(),
        }
    }

    fn rate_now(&self) -> f64 {
        let turns = |phase: f64| self.next_us / US_PER_S / SWING_PERIOD_S + phase;
        let factor = self.swing.map_or(1.0, |phase| 1.0 + SWING_SHARE * (TAU * turns(phase)).sin());
        self.rate_per_s * factor
    }

    /// Evenly in (0, 1].
    fn uniform(&mut self) -> f64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        ((mix(self.state) >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn times(mut arrivals: Arrivals, until_s: u64) -> Vec<u64> {
        std::iter::from_fn(|| arrivals.pop_due(until_s * 1_000_000)).collect()
    }

    #[test]
    fn nothing_is_sent_before_it_is_due() {
        let mut even = Arrivals::new(1_000.0, Pattern::Even, None, 1);
        assert_eq!(even.pop_due(999), None);
        assert_eq!(even.pop_due(2_000), Some(1_000));
        assert_eq!(even.pop_due(2_000), Some(2_000));
        assert_eq!(even.pop_due(2_000), None);
    }

    #[test]
    fn poisson_arrivals_vary_as_much_as_they_should() {
        let times = times(Arrivals::new(1_000.0, Pattern::Poisson, None, 3), 100);
        let mut per_s = [0.0; 100];
        times.iter().for_each(|us| per_s[(*us as usize / 1_000_000).min(99)] += 1.0);
        let mean = per_s.iter().sum::<f64>() / 100.0;
        let variance = per_s.iter().map(|count| (count - mean).powi(2)).sum::<f64>() / 99.0;
        assert!((980.0..1_020.0).contains(&mean), "{mean}");
        assert!((600.0..1_500.0).contains(&variance), "{variance}");
    }

    #[test]
    fn a_swinging_rate_goes_from_half_to_one_and_a_half() {
        let times = times(Arrivals::new(1_000.0, Pattern::Even, Some(0.0), 1), 10);
        let in_second = |s: u64| times.iter().filter(|us| **us / 1_000_000 == s).count();
        assert!((1_400..1_510).contains(&in_second(2)), "{}", in_second(2));
        assert!((490..600).contains(&in_second(7)), "{}", in_second(7));
        assert!((9_800..10_200).contains(&times.len()), "{}", times.len());
    }

    proptest! {
        #[test]
        fn arrivals_are_in_order_and_as_many_as_the_rate_says(
            rate in 50.0..5_000.0_f64, poisson: bool, phase in proptest::option::of(0.0..1.0_f64), seed: u64,
        ) {
            let pattern = if poisson { Pattern::Poisson } else { Pattern::Even };
            let times = times(Arrivals::new(rate, pattern, phase, seed), 20);
            prop_assert!(times.is_sorted());
            let expected = rate * 20.0;
            prop_assert!((times.len() as f64 - expected).abs() < 0.05 * expected + 6.0 * expected.sqrt());
        }
    }
}
