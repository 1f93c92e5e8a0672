//! Series: each bucket of a group is the sum of what its log counted at that time; a view never shows more, and in the end as much. Expired
//! buckets do not come back.

use super::Findings;
use crate::oracle::Minutes;
use tidemark_proto::series::{BucketId, Horizon, Row, UnixTime};

const NAME: &str = "series";
pub const MINUTE_S: u64 = 60;

fn sum_of(rows: &[&Row], bucket: BucketId) -> u64 {
    rows.iter().map(|row| row.get(bucket)).sum()
}

fn truth_of(truth: &Minutes, bucket: BucketId) -> u64 {
    truth.range(bucket.start().s() / MINUTE_S..bucket.end().s() / MINUTE_S).map(|(_, weight)| weight).sum()
}

/// Buckets that are kept and that hold anything, by the truth or by the rows.
fn buckets(rows: &[&Row], truth: &Minutes, horizon: &Horizon) -> Vec<BucketId> {
    let times = truth.keys().map(|minute| UnixTime::default().plus(minute * MINUTE_S));
    let of_time = |at: UnixTime| {
        let levels = horizon.first().iter().map(|&(granularity, _)| granularity);
        levels.map(move |granularity| BucketId { granularity, index: granularity.index_at(at) }).collect::<Vec<_>>()
    };
    let held = rows.iter().flat_map(|row| row.buckets()).map(|(bucket, _)| bucket);
    let mut all: Vec<BucketId> = times.flat_map(of_time).chain(held).filter(|&bucket| horizon.keeps(bucket)).collect();
    all.sort();
    all.dedup();
    all
}

/// After a group's committed state changed.
pub fn of_group(
    findings: &mut Findings,
    group: usize,
    counter: u16,
    rows: &[&Row],
    truth: &Minutes,
    horizon: &Horizon,
) {
    for bucket in buckets(rows, truth, horizon) {
        let held = sum_of(rows, bucket);
        let counted = truth_of(truth, bucket);
        findings.check(NAME, held == counted, || {
            format!("group {group} has {held} in {bucket:?} of counter {counter}; its log holds {counted}")
        });
    }
}

/// After a step of an aggregator.
pub fn of_view(findings: &mut Findings, dc: usize, counter: u16, rows: &[&Row], truth: &Minutes, horizon: &Horizon) {
    for bucket in buckets(rows, truth, horizon) {
        let held = sum_of(rows, bucket);
        let counted = truth_of(truth, bucket);
        findings.check(NAME, held <= counted, || {
            format!("view {dc} has {held} in {bucket:?} of counter {counter}; {counted} happened")
        });
    }
}

/// At the end; how many buckets were compared. The view's rows hold nothing that it should have dropped.
pub fn at_end(
    findings: &mut Findings,
    dc: usize,
    counter: u16,
    rows: &[&Row],
    truth: &Minutes,
    horizon: &Horizon,
) -> u64 {
    let all = buckets(rows, truth, horizon);
    for &bucket in &all {
        let held = sum_of(rows, bucket);
        let counted = truth_of(truth, bucket);
        findings.check(NAME, held == counted, || {
            format!("at the end view {dc} has {held} in {bucket:?} of counter {counter}; {counted} happened")
        });
    }
    all.len() as u64
}

/// A view expires by a clock that is nearly right: it may be behind by this much.
pub fn in_time(findings: &mut Findings, dc: usize, horizon: &Horizon, true_time: UnixTime, behind_s: u64) {
    let shows = horizon.now();
    findings.check(NAME, shows.plus(behind_s) >= true_time, || {
        format!("view {dc} has expired what was over by {} s; it is {} s", shows.s(), true_time.s())
    });
}
