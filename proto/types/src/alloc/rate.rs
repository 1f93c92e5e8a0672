//! Forecast of one group's rate from its cumulative count of arrivals.
//!
//! Far fewer increments are sequenced when the rate of the next few hundred milliseconds is known than when the last seconds are
//! averaged. Several simple forecasters (means and straight lines over windows of different length) run side by side; the one
//! with the most accurate recent forecasts is believed. A jump that Poisson noise cannot explain cuts the history, so that the
//! old rate is forgotten at once.

const BIN_US: u64 = 50_000;
const BINS: usize = 48;
/// The forecast that a candidate is judged by: the arrivals of this many bins.
const AHEAD_BINS: usize = 6;
/// Share of an old forecast error that is kept per bin.
const ERROR_KEPT: f64 = 0.94;
/// Deviation, in standard deviations of a Poisson count, that cuts the history.
const JUMP_SIGMAS: f64 = 5.0;

#[derive(Clone, Copy, Debug)]
enum Candidate {
    /// Exponential, over [`SLOW_BINS`], for a trickle.
    Slow,
    Mean(usize),
    Line(usize),
}

/// With the factor that its error is judged by: the steadier one wins unless another is clearly better.
const CANDIDATES: [(Candidate, f64); 7] = [
    (Candidate::Slow, 1.0),
    (Candidate::Mean(48), 1.0),
    (Candidate::Mean(16), 1.05),
    (Candidate::Mean(6), 1.15),
    (Candidate::Line(32), 1.1),
    (Candidate::Line(20), 1.15),
    (Candidate::Line(12), 1.2),
];
const SLOW_BINS: f64 = 400.0;

/// Estimates a rate (weight per second) from a monotone total. Fed by the group at each commit; the result travels in
/// its reports. Time only has to be monotone on one clock.
#[derive(Clone, Debug, Default)]
pub struct RateEstimator {
    start: Option<(u64, u64)>,
    bins: Vec<f64>,
    forecasts: Vec<[f64; CANDIDATES.len()]>,
    errors: [f64; CANDIDATES.len()],
    slow: f64,
    slow_bins: f64,
    rate_per_s: f64,
}

impl RateEstimator {
    pub fn new() -> Self {
        Self::default()
    }

    /// `total` is everything that ever arrived, certified or queued. Earlier times and smaller totals are ignored.
    pub fn observe(&mut self, now_us: u64, total: u64) {
        let Some((start_us, start_total)) = self.start else {
            self.start = Some((now_us, total));
            return;
        };
        let elapsed_us = now_us.saturating_sub(start_us);
        if elapsed_us < BIN_US {
            return;
        }
        let whole = elapsed_us / BIN_US;
        let weight = total.saturating_sub(start_total) as f64 * BIN_US as f64 / elapsed_us as f64;
        for _ in 0..whole.min(BINS as u64) {
            self.close_bin(weight);
        }
        // The interval need not end on a bin's edge: the count is spread over all of it.
        let kept_us = elapsed_us % BIN_US;
        let kept = (weight * kept_us as f64 / BIN_US as f64) as u64;
        self.start = Some((now_us - kept_us, total.saturating_sub(kept).max(start_total)));
    }

    /// The rate expected for the next few hundred milliseconds, finite and not negative.
    pub fn rate_per_s(&self) -> f64 {
        self.rate_per_s
    }

    fn close_bin(&mut self, weight: f64) {
        if self.bins.len() == BINS {
            self.bins.remove(0);
        }
        self.bins.push(weight);
        if self.jumped() {
            self.forget();
        }
        self.judge();
        self.slow_bins = (self.slow_bins + 1.0).min(SLOW_BINS);
        self.slow += (weight - self.slow) / self.slow_bins;
        let forecast = CANDIDATES.map(|(candidate, _)| candidate.forecast(&self.bins, self.slow));
        if self.forecasts.len() == AHEAD_BINS {
            self.forecasts.remove(0);
        }
        self.forecasts.push(forecast);
        self.rate_per_s = forecast[self.best()] / (BIN_US as f64 / 1e6);
    }

    /// Whether the last two bins contradict the earlier forecast.
    fn jumped(&self) -> bool {
        let [.., before, _, _] = self.forecasts.as_slice() else {
            return false;
        };
        let [.., second, last] = self.bins.as_slice() else {
            return false;
        };
        let believed = 2.0 * before[self.best()];
        let seen = second + last;
        (seen - believed).abs() > JUMP_SIGMAS * believed.max(seen).max(4.0).sqrt() + 0.1 * believed
    }

    fn forget(&mut self) {
        self.bins.drain(..self.bins.len() - 2);
        self.forecasts.clear();
        self.errors = [0.0; CANDIDATES.len()];
        (self.slow, self.slow_bins) = (mean(&self.bins), self.bins.len() as f64);
    }

    fn judge(&mut self) {
        if self.forecasts.len() < AHEAD_BINS {
            return;
        }
        let seen: f64 = self.bins[self.bins.len() - AHEAD_BINS..].iter().sum();
        for (error, forecast) in self.errors.iter_mut().zip(self.forecasts[0]) {
            let missed = forecast * AHEAD_BINS as f64 - seen;
            *error = *error * ERROR_KEPT + missed * missed;
        }
    }

    fn best(&self) -> usize {
        let judged = |i: usize| self.errors[i] * CANDIDATES[i].1;
        (1..CANDIDATES.len()).fold(0, |best, i| if judged(i) < judged(best) { i } else { best })
    }
}

impl Candidate {
    /// Expected weight of a bin in the middle of the next `AHEAD_BINS`.
    fn forecast(self, bins: &[f64], slow: f64) -> f64 {
        match self {
            Self::Slow => slow,
            Self::Mean(length) => mean(newest(bins, length)),
            Self::Line(length) => line(newest(bins, length)).max(0.0),
        }
    }
}

fn newest(bins: &[f64], length: usize) -> &[f64] {
    &bins[bins.len().saturating_sub(length)..]
}

fn mean(bins: &[f64]) -> f64 {
    bins.iter().sum::<f64>() / bins.len().max(1) as f64
}

/// Least squares, continued to the middle of the forecast interval; a mean until there is enough to fit.
fn line(bins: &[f64]) -> f64 {
    let n = bins.len() as f64;
    if bins.len() < 8 {
        return mean(bins);
    }
    let middle = (n - 1.0) / 2.0;
    let spread = n * (n * n - 1.0) / 12.0;
    let slope = bins.iter().enumerate().map(|(i, weight)| (i as f64 - middle) * weight).sum::<f64>() / spread;
    mean(bins) + slope * (middle + (AHEAD_BINS as f64 + 1.0) / 2.0)
}
