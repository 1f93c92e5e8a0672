//! Audits: a view's components of a counter compared with those of the groups that count it.
//!
//! Each component has one writer. A group reports its component (`Group::audit`) only once the feed has told the aggregator
//! everything up to then. So both sides stand for the same log index, and every difference is wrong, not late. Buckets are
//! compared as far as both sides keep them: each drops expired buckets by its own clock.
//!
//! Each side's buckets are also checked against themselves: a bucket is the sum of the finer ones in it, if all of those are
//! kept. And the buckets of one granularity hold no more than the total.

use crate::ids::ValveId;
use crate::series::{BucketId, Granularity, Horizon, Row};
use std::collections::BTreeMap;

/// Faults of one component that are listed; the others are counted.
pub const FAULTS_LISTED_MAX: usize = 32;

/// One component on one side.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    pub value: u64,
    pub row: Row,
}

/// Something that is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The view's total is another than the writer's.
    Total { view: u64, held: u64 },
    /// A bucket of the view is another than the writer's.
    Bucket { bucket: BucketId, view: u64, held: u64 },
    /// The writer's bucket is not the sum of the finer buckets in it.
    Finer { bucket: BucketId, held: u64, finer: u64 },
    /// The writer's buckets of a granularity hold more than its total.
    Beyond { granularity: Granularity, buckets: u64, held: u64 },
}

/// A component that is known on both sides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compared {
    pub valve: ValveId,
    pub view: u64,
    pub held: u64,
    /// Each bucket that both keep: the view's value, and the writer's.
    pub buckets: Vec<(BucketId, u64, u64)>,
    /// The part of the writer's total in none of its coarsest buckets: it has expired, or had no time.
    pub outside: u64,
    /// The first faults, and the number of all.
    pub faults: Vec<Fault>,
    pub faults_all: usize,
}

impl Compared {
    pub fn agrees(&self) -> bool {
        self.faults_all == 0
    }
}

/// The buckets that both sides of a comparison keep.
#[derive(Clone, Copy, Debug)]
pub struct KeptBy<'a> {
    pub by_view: &'a Horizon,
    /// `None`: the writer keeps no series.
    pub by_writer: Option<&'a Horizon>,
}

/// Compares a component at one log index.
pub fn compare(valve: ValveId, view: &Held, held: &Held, kept: KeptBy<'_>) -> Compared {
    let mut faults = Vec::new();
    if view.value != held.value {
        faults.push(Fault::Total { view: view.value, held: held.value });
    }
    let buckets = side_by_side(&view.row, &held.row, kept);
    let differs = buckets.iter().filter(|(_, view, held)| view != held);
    faults.extend(differs.map(|&(bucket, view, held)| Fault::Bucket { bucket, view, held }));
    let outside = match kept.by_writer {
        Some(horizon) => recount(held, horizon, &mut faults),
        None => held.value,
    };
    let faults_all = faults.len();
    faults.truncate(FAULTS_LISTED_MAX);
    Compared { valve, view: view.value, held: held.value, buckets, outside, faults, faults_all }
}

/// Each bucket that both keep and either has.
fn side_by_side(view: &Row, held: &Row, kept: KeptBy<'_>) -> Vec<(BucketId, u64, u64)> {
    let is_kept = |bucket| kept.by_view.keeps(bucket) && kept.by_writer.is_some_and(|horizon| horizon.keeps(bucket));
    let mut both: BTreeMap<BucketId, (u64, u64)> = BTreeMap::new();
    for (bucket, value) in view.buckets().filter(|&(bucket, _)| is_kept(bucket)) {
        both.entry(bucket).or_default().0 = value;
    }
    for (bucket, value) in held.buckets().filter(|&(bucket, _)| is_kept(bucket)) {
        both.entry(bucket).or_default().1 = value;
    }
    both.into_iter().map(|(bucket, (view, held))| (bucket, view, held)).collect()
}

/// Checks a component's buckets against each other; returns the part of the total in none of the coarsest buckets.
fn recount(held: &Held, horizon: &Horizon, faults: &mut Vec<Fault>) -> u64 {
    let kept = horizon.first();
    for pair in kept.windows(2) {
        let ((finer, first), (coarser, from)) = (pair[0], pair[1]);
        let whole = from.max(coarser.index_from(finer.start(first)));
        for (bucket, value) in held.row.buckets().filter(|(of, _)| of.granularity == coarser && of.index >= whole) {
            let sum = held.row.sum(finer, finer.index_at(bucket.start())..finer.index_from(bucket.end()));
            if sum != value {
                faults.push(Fault::Finer { bucket, held: value, finer: sum });
            }
        }
    }
    let mut outside = held.value;
    for &(granularity, first) in kept {
        let buckets = held.row.sum(granularity, first..u32::MAX);
        if buckets > held.value {
            faults.push(Fault::Beyond { granularity, buckets, held: held.value });
        }
        outside = held.value.saturating_sub(buckets);
    }
    outside
}

/// The state of a component in a view that is told of it by others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relayed {
    Agrees,
    /// The writer's value has not come yet.
    Behind,
    Differs,
}

/// Compares a view's value `before` its writer reported the value `held`, and `after` that. Components only grow, so the writer's
/// value lies between the two. If the view `has_all` that was told at the writer's data centre by then, a missing part is lost.
pub fn relayed(before: u64, held: u64, after: u64, has_all: bool) -> Relayed {
    match (before > held, after < held) {
        (true, _) => Relayed::Differs,
        (_, true) if has_all => Relayed::Differs,
        (_, true) => Relayed::Behind,
        _ => Relayed::Agrees,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{DcId, GroupId};
    use crate::series::{Kept, OutOfRange, Retention, SeriesPolicy, UnixTime};

    const NOW_S: u64 = 1_000_000;

    fn policy() -> SeriesPolicy {
        let kept = |text: &str, ttl_s| Kept { granularity: text.parse().unwrap(), ttl_s };
        let kept = vec![kept("1m", 7_200), kept("1h", 200_000)];
        SeriesPolicy::new(Retention::new(kept).unwrap(), 7_200, 300, OutOfRange::Refused).unwrap()
    }

    fn horizon() -> Horizon {
        Horizon::begin(&policy(), UnixTime::default().plus(NOW_S))
    }

    /// A component that has counted 5 two hours ago, 3 now, and 2 that are in no bucket.
    fn counted() -> Held {
        let mut row = Row::default();
        for (ago_s, delta) in [(7_100, 5), (0, 3)] {
            row.add(&horizon(), UnixTime::default().plus(NOW_S - ago_s), delta).unwrap();
        }
        Held { value: 10, row }
    }

    fn valve() -> ValveId {
        ValveId { group: GroupId { dc: DcId(1), group: 2, incarnation: 3 }, lane: 4 }
    }

    fn bucket(granularity: &str, ago_s: u64) -> BucketId {
        let granularity: Granularity = granularity.parse().unwrap();
        BucketId { granularity, index: granularity.index_at(UnixTime::default().plus(NOW_S - ago_s)) }
    }

    fn changed(held: &Held, bucket: BucketId, value: u64) -> Held {
        let others = held.row.buckets().filter(|(of, _)| *of != bucket);
        Held { row: Row::from_buckets(others.chain([(bucket, value)])), ..held.clone() }
    }

    #[test]
    fn what_is_equal_agrees_and_what_is_in_no_bucket_is_said() {
        let compared =
            compare(valve(), &counted(), &counted(), KeptBy { by_view: &horizon(), by_writer: Some(&horizon()) });
        assert!(compared.agrees(), "{compared:?}");
        assert_eq!((compared.view, compared.held, compared.outside, compared.buckets.len()), (10, 10, 2, 4));
        let compared =
            compare(valve(), &counted(), &counted(), KeptBy { by_view: &Horizon::everything(), by_writer: None });
        assert!(compared.agrees() && compared.buckets.is_empty() && compared.outside == 10, "{compared:?}");
    }

    #[test]
    fn what_was_altered_is_named_with_both_values() {
        let good = counted();
        let horizon = horizon();
        let kept = KeptBy { by_view: &horizon, by_writer: Some(&horizon) };
        let raised = Held { value: 12, ..good.clone() };
        assert_eq!(compare(valve(), &raised, &good, kept).faults, [Fault::Total { view: 12, held: 10 }]);
        let minute = bucket("1m", 0);
        let wrong = changed(&good, minute, 4);
        assert_eq!(compare(valve(), &wrong, &good, kept).faults, [Fault::Bucket { bucket: minute, view: 4, held: 3 }]);
        let lost = changed(&good, bucket("1h", 7_100), 0);
        let fault = Fault::Bucket { bucket: bucket("1h", 7_100), view: 0, held: 5 };
        assert_eq!(compare(valve(), &lost, &good, kept).faults, [fault]);
    }

    #[test]
    fn a_writer_whose_own_buckets_do_not_add_up_is_told_from_itself() {
        let good = counted();
        let horizon = horizon();
        let kept = KeptBy { by_view: &horizon, by_writer: Some(&horizon) };
        let hour = bucket("1h", 0);
        let wrong = changed(&good, hour, 4);
        let faults = compare(valve(), &wrong, &wrong, kept).faults;
        assert_eq!(faults, [Fault::Finer { bucket: hour, held: 4, finer: 3 }]);
        let small = Held { value: 7, ..good };
        let faults = compare(valve(), &small, &small, kept).faults;
        let beyond = |text: &str, buckets| Fault::Beyond { granularity: text.parse().unwrap(), buckets, held: 7 };
        assert_eq!(faults, [beyond("1m", 8), beyond("1h", 8)]);
    }

    #[test]
    fn a_bucket_that_either_side_has_dropped_is_not_compared() {
        let later = Horizon::begin(&policy(), UnixTime::default().plus(NOW_S + 3_600));
        let mut expired = counted();
        expired.row.expire(&later);
        assert!(
            compare(valve(), &expired, &counted(), KeptBy { by_view: &later, by_writer: Some(&horizon()) }).agrees()
        );
        assert!(
            compare(valve(), &counted(), &expired, KeptBy { by_view: &horizon(), by_writer: Some(&later) }).agrees()
        );
    }

    #[test]
    fn what_is_told_by_others_lies_between_before_and_after_or_has_yet_to_come() {
        assert_eq!(relayed(3, 5, 9, false), Relayed::Agrees);
        assert_eq!(relayed(6, 5, 9, false), Relayed::Differs, "more than was counted");
        assert_eq!(relayed(3, 5, 4, false), Relayed::Behind);
        assert_eq!(relayed(3, 5, 4, true), Relayed::Differs, "all was told, and this is missing");
    }
}
