//! Counters that keep series: of their own dice, so that the other runs stay what they are.

use crate::rng::Rng;
use tidemark_proto::series::{Granularity, Kept, OutOfRange, Retention, SeriesPolicy};
use tidemark_proto::time::Time;

/// Number of 10,000 runs with counters that keep series.
const SERIES_PER_10K: u32 = 3_000;

/// How the counters of a run keep series.
#[derive(Clone, Debug)]
pub struct SeriesPlan {
    /// When the namespace is told to.
    pub from: Time,
    pub policy: SeriesPolicy,
}

impl SeriesPlan {
    /// Minutes expire within the run, or do not; hours and days stay.
    pub fn drawn(rng: &mut Rng, end: Time) -> Option<SeriesPlan> {
        let late = rng.per_10k(3_000);
        let from = Time(if late { rng.between(1, end.0 / 3) } else { 1 });
        let minutes_s = *rng.pick(&[60, 120, 7_200]);
        let kept = |granularity, ttl_s| Kept { granularity, ttl_s };
        let all = vec![
            kept(Granularity::MINUTE, minutes_s),
            kept(Granularity::HOUR, 172_800),
            kept(Granularity::DAY, 864_000),
        ];
        let out_of_range = *rng.pick(&[OutOfRange::Refused, OutOfRange::TotalOnly]);
        let late_max_s = *rng.pick(&[0, 30, 3_600]);
        let retention = Retention::new(all).expect("minutes, hours and days nest");
        let policy =
            SeriesPolicy::new(retention, late_max_s, 60, out_of_range).expect("events are late by an hour at most");
        rng.per_10k(SERIES_PER_10K).then_some(SeriesPlan { from, policy })
    }
}
