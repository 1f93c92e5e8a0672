//! Rows rise from deltas to periods at their time, and late rows take the same way.

use super::*;
use crate::blob::{BlobKey, Epoch, Level, PartitionId, Seq, StoredBlob};
use crate::layout::{BucketsFrom, LargeTenant, Layout};
use crate::manifest::BlobSet;
use crate::rollup::{RollupRow, Rollups};
use crate::scope::{Part, Scope, Slice, TenantHash};
use crate::time::{DAY_S, HOUR_S, Hour, HourRange, Now};
use crate::values::Values;
use std::collections::BTreeSet;

/// The 20th of January 1970, at midnight.
const DAY: u32 = 19;
const P: PartitionId = PartitionId(0);

fn policy() -> MergePolicy {
    MergePolicy {
        lateness_s: 600,
        deltas_max: 10,
        hour_spread_s: 0,
        day_spread_s: 0,
        period_spread_s: 0,
        rows_max: 100,
        merge_every_ms: 0,
        put_every_ms: 0,
    }
}

fn at(day: u32, hour: u32, minute: u64) -> Now {
    Now((u64::from(day) * DAY_S + u64::from(hour) * HOUR_S + minute * 60) * 1_000)
}

fn hour(day: u32, hour: u32) -> HourRange {
    HourRange::of(Hour(day * 24 + hour))
}

fn blob(seq: u64, level: Level, hours: HourRange) -> BlobMeta {
    let key = BlobKey { partition: P, epoch: Epoch(1), seq: Seq(seq), part: 0 };
    BlobMeta { key, level, scope: Scope::ALL, hours, rows: 10, total: 10, stored: StoredBlob { bytes: 1, checksum: 0 } }
}

/// The numbers of the blobs that are merged, and into what.
fn seqs(next: Next) -> Option<(Target, Vec<u64>)> {
    match next {
        Next::Merge(merge) => Some((merge.target, merge.inputs.iter().map(|meta| meta.key.seq.0).collect())),
        Next::At(_) | Next::Never => None,
    }
}

#[test]
fn many_test_tenants_hold_up_no_rows_of_others() {
    let mut rows = Rollups::new();
    let names: Vec<String> = (0..256).map(|number| format!("test-{number:03}")).chain(["zz".to_owned()]).collect();
    for day in 0..5 {
        for tenant in &names {
            let hour = Hour((DAY + day) * 24);
            let row = RollupRow {
                tenant,
                values: Values::NONE,
                listing: "a",
                hour,
                event_type: "click",
                quarters: [1, 0, 0, 0],
            };
            rows.push(row).unwrap();
        }
    }
    rows.combine();
    let tests: BTreeSet<TenantHash> = names[..256].iter().map(|name| TenantHash::of(name)).collect();
    let closed_before = crate::time::Day(DAY + 9);
    let old_before = crate::time::Day(0);
    let merge = Merge { target: Target::Day, inputs: Vec::new(), closed_before, old_before };
    let sets = cut(&rows, &merge, &Layout::default(), &tests).unwrap();
    let left: u64 = sets.iter().filter(|set| set.level == Level::Delta).map(|set| set.rows.total()).sum();
    let of_others = |set: &&CutSet| set.rows.iter().any(|row| row.tenant == "zz");
    assert!(left > 0, "the bins of 256 test tenants and five days are too many for one merge");
    assert!(sets.iter().filter(of_others).all(|set| set.level == Level::Day), "they go before test tenants");
    assert_eq!(sets.iter().map(|set| set.rows.total()).sum::<u64>(), 5 * 257);
    assert!(tests.len() <= crate::limits::TEST_TENANTS_MAX);
}

#[test]
fn deltas_are_merged_once_their_hour_is_closed_or_they_are_many() {
    let mut scheduler = Scheduler::new(at(DAY, 5, 0), P, policy());
    let layout = Layout::default();
    assert_eq!(scheduler.next(at(DAY, 5, 0), &BlobSet::new(), &layout), Next::Never);
    let open = HourRange { first: Hour(DAY * 24 + 5), last: Hour(DAY * 24 + 6) };
    let mut live: BlobSet = [blob(1, Level::Delta, hour(DAY, 5)), blob(2, Level::Delta, open)].into_iter().collect();
    assert_eq!(scheduler.next(at(DAY, 6, 9), &live, &layout), Next::At(at(DAY, 6, 10)));
    let next = scheduler.next(at(DAY, 6, 10), &live, &layout);
    assert_eq!(seqs(next), Some((Target::Hour, vec![1])));
    // The same slot: the delta that is open waits, and one that comes late waits for the next hour too.
    live.insert(&blob(3, Level::Delta, hour(DAY, 2)));
    live.remove(&blob(1, Level::Delta, hour(DAY, 5)).key);
    assert_eq!(scheduler.next(at(DAY, 6, 30), &live, &layout), Next::At(at(DAY, 7, 10)));
    assert_eq!(seqs(scheduler.next(at(DAY, 7, 10), &live, &layout)), Some((Target::Hour, vec![2, 3])));
    live.extend((10..18).map(|seq| blob(seq, Level::Delta, open)));
    let pressed = seqs(scheduler.next(at(DAY, 7, 20), &live, &layout)).unwrap();
    assert_eq!((pressed.0, pressed.1.len()), (Target::Hour, 10));
}

#[test]
fn blobs_of_one_hour_are_joined_unless_one_has_nearly_all_rows() {
    let mut scheduler = Scheduler::new(at(DAY, 5, 0), P, MergePolicy { merge_every_ms: 5_000, ..policy() });
    let layout = Layout::default();
    let of_rows = |seq, rows, hours| BlobMeta { rows, ..blob(seq, Level::Hour, hours) };
    let late = HourRange { first: Hour(DAY * 24 + 4), last: Hour(DAY * 24 + 5) };
    let blobs = [
        of_rows(1, 30, hour(DAY, 5)),
        of_rows(2, 40, late),
        of_rows(3, 2, hour(DAY, 4)),
        of_rows(4, 40, hour(DAY, 4)),
        of_rows(5, 40, hour(DAY, 6)),
        of_rows(6, 40, hour(DAY, 6)),
    ];
    let mut live: BlobSet = blobs.into_iter().collect();
    let now = at(DAY, 6, 10);
    assert_eq!(seqs(scheduler.next(now, &live, &layout)), Some((Target::Hour, vec![1, 2])), "the 6th hour is open");
    [blobs[0], blobs[1]].iter().for_each(|meta| {
        live.remove(&meta.key);
    });
    assert_eq!(seqs(scheduler.next(now, &live, &layout)), None, "two rows do not have 40 written again");
    assert_eq!(scheduler.next(at(DAY, 7, 10), &live, &layout), {
        let inputs = vec![blobs[4], blobs[5]];
        Next::Merge(Merge { target: Target::Hour, inputs, closed_before: Day(DAY), old_before: Day(DAY) })
    });
    assert_eq!(scheduler.next(at(DAY, 7, 10), &live, &layout), Next::At(at(DAY, 7, 10).plus_ms(5_000)));
}

#[test]
fn phases_lie_evenly_and_work_of_one_kind_is_apart_from_others() {
    let kinds = [Phase::Flush, Phase::Hour, Phase::Day, Phase::Period, Phase::Expire];
    for kind in kinds {
        let mut of_second = [0; 60];
        (0..1_000).for_each(|number| of_second[kind.of(number, 60) as usize] += 1);
        assert!(of_second.iter().all(|count| (14..=19).contains(count)), "{kind:?}: {of_second:?}");
        for other in kinds.into_iter().filter(|other| *other != kind) {
            let mut together = [[0; 10]; 10];
            (0..1_000).for_each(|number| together[kind.of(number, 10) as usize][other.of(number, 10) as usize] += 1);
            let most = together.iter().flatten().max();
            assert!(most.is_some_and(|most| *most <= 20), "{kind:?} and {other:?}: {together:?}");
        }
    }
}

#[test]
fn hours_of_a_closed_day_become_days_once_a_day() {
    let mut scheduler = Scheduler::new(at(DAY, 0, 0), P, policy());
    let layout = Layout::default();
    let hours = [
        blob(1, Level::Hour, hour(DAY, 5)),
        blob(2, Level::Hour, hour(DAY, 23)),
        blob(3, Level::Hour, hour(DAY + 1, 0)),
    ];
    let mut live: BlobSet = hours.into_iter().collect();
    assert_eq!(scheduler.next(at(DAY + 1, 0, 9), &live, &layout), Next::At(at(DAY + 1, 0, 10)));
    let Next::Merge(merge) = scheduler.next(at(DAY + 1, 0, 10), &live, &layout) else { panic!("a merge") };
    assert_eq!((merge.target, merge.inputs.len(), merge.closed_before), (Target::Day, 2, Day(DAY + 1)));
    live.remove(&hours[0].key);
    live.remove(&hours[1].key);
    // A late hour waits for the next day: its buckets are not written again each hour.
    live.insert(&blob(4, Level::Hour, hour(DAY, 7)));
    assert_eq!(scheduler.next(at(DAY + 1, 9, 0), &live, &layout), Next::At(at(DAY + 2, 0, 10)));
    assert_eq!(seqs(scheduler.next(at(DAY + 2, 0, 10), &live, &layout)), Some((Target::Day, vec![3, 4])));
}

#[test]
fn days_replace_the_blob_of_their_period() {
    let mut scheduler = Scheduler::new(at(DAY, 0, 0), P, policy());
    let layout = Layout::default();
    let january = blob(1, Level::Period, HourRange { first: Hour(0), last: Hour(DAY * 24) });
    let february = blob(2, Level::Period, hour(40, 0));
    let mut live: BlobSet = [january, february, blob(3, Level::Day, hour(DAY, 5))].into_iter().collect();
    assert_eq!(seqs(scheduler.next(at(DAY + 1, 0, 10), &live, &layout)), Some((Target::Period, vec![1, 3])));
    live.remove(&blob(3, Level::Day, hour(DAY, 5)).key);
    assert_eq!(scheduler.next(at(DAY + 1, 0, 10), &live, &layout), Next::Never);
    // Rows that are too many for one merge are lifted without the blob that is there.
    live.insert(&BlobMeta { rows: 95, ..blob(4, Level::Day, hour(DAY, 5)) });
    live.remove(&january.key);
    live.insert(&BlobMeta { rows: 96, ..january });
    assert_eq!(seqs(scheduler.next(at(50, 0, 10), &live, &layout)), Some((Target::Period, vec![4])));
}

#[test]
fn two_blobs_of_one_day_become_one_before_their_period_is_due() {
    let spread = MergePolicy { day_spread_s: 40 * DAY_S, ..policy() };
    let mut scheduler = Scheduler::new(at(DAY, 0, 0), P, spread);
    let days =
        [blob(1, Level::Day, hour(DAY, 1)), blob(2, Level::Day, hour(DAY, 5)), blob(3, Level::Day, hour(DAY + 1, 5))];
    let live: BlobSet = days.into_iter().collect();
    assert_eq!(seqs(scheduler.next(at(DAY + 3, 0, 0), &live, &Layout::default())), Some((Target::Day, vec![1, 2])));
}

#[test]
fn merges_into_days_and_periods_keep_their_distance() {
    let mut scheduler = Scheduler::new(at(DAY, 0, 0), P, MergePolicy { merge_every_ms: 5_000, ..policy() });
    let layout = Layout::default();
    let live: BlobSet = [blob(1, Level::Day, hour(DAY, 1)), blob(2, Level::Day, hour(40, 5))].into_iter().collect();
    let now = at(50, 0, 0);
    assert!(matches!(scheduler.next(now, &live, &layout), Next::Merge(_)));
    assert_eq!(scheduler.next(now, &live, &layout), Next::At(now.plus_ms(5_000)));
    assert!(matches!(scheduler.next(now.plus_ms(5_000), &live, &layout), Next::Merge(_)));
}

fn row(tenant: &'static str, day: u32) -> RollupRow<'static> {
    RollupRow {
        tenant,
        values: Values::NONE,
        listing: "l",
        hour: Hour(day * 24 + 3),
        event_type: "click",
        quarters: [1, 0, 0, 0],
    }
}

fn cut_of(rows: &[RollupRow<'_>], target: Target, layout: &Layout) -> Vec<(Level, Scope, usize)> {
    let mut all = Rollups::new();
    rows.iter().for_each(|row| all.push(*row).unwrap());
    all.combine();
    let merge = Merge { target, inputs: Vec::new(), closed_before: Day(50), old_before: Day(40) };
    let sets = cut(&all, &merge, layout, &BTreeSet::new()).unwrap();
    sets.iter().map(|set| (set.level, set.scope, set.rows.len())).collect()
}

#[test]
fn rows_are_cut_by_virtual_partition_bucket_and_period() {
    let buckets = vec![BucketsFrom { from: Day(0), buckets: 2 }];
    let large = vec![LargeTenant { tenant: TenantHash::of("a"), from: Day(46), parts: 4 }];
    let layout = Layout { virtual_partitions: 3, buckets, large, ..Layout::default() };
    let slice = |tenant, modulus| Scope::Slice(Slice::of(TenantHash::of(tenant), modulus));
    let hours = cut_of(&[row("a", 45), row("a", 60)], Target::Hour, &layout);
    assert_eq!(hours, [(Level::Hour, slice("a", 3), 1), (Level::Hour, slice("a", 3), 1)]);
    // Two old days of a month share a blob, a fresh one has its own, and an open one stays an hour.
    let days = [row("b", 33), row("b", 34), row("b", 45), row("b", 60)];
    let b = slice("b", 6);
    assert_eq!(
        cut_of(&days, Target::Day, &layout),
        [(Level::Day, b, 2), (Level::Day, b, 1), (Level::Hour, slice("b", 3), 1)]
    );
    // From its day on, a large tenant has parts of its own.
    let part = Scope::Part(Part::of(TenantHash::of("a"), "l", 4));
    let periods = cut_of(&[row("a", 10), row("a", 45), row("a", 46)], Target::Period, &layout);
    let a = slice("a", 6);
    assert_eq!(periods, [(Level::Period, a, 1), (Level::Period, a, 1), (Level::Period, part, 1)]);
}

#[test]
fn merge_of_very_many_days_leaves_a_delta_over() {
    let rows: Vec<RollupRow<'_>> = (0..3_000).map(|day| row("a", day)).collect();
    let sets = cut_of(&rows, Target::Hour, &Layout::default());
    assert_eq!((sets.len(), sets[0]), (1_024, (Level::Delta, Scope::ALL, 3_000 - 1_023)));
    assert!(cut_of(&[], Target::Hour, &Layout::default()).is_empty());
}

#[test]
fn sealing_lifts_closed_days_at_once_and_ends() {
    let scheduler = Scheduler::new(at(DAY, 0, 0), P, policy());
    let layout = Layout::default();
    let now = at(DAY + 1, 12, 0);
    let blobs = [
        blob(1, Level::Delta, hour(DAY + 1, 5)),
        blob(2, Level::Hour, hour(DAY, 5)),
        blob(3, Level::Hour, hour(DAY + 1, 5)),
        blob(4, Level::Hour, hour(DAY + 1, 6)),
        blob(5, Level::Day, hour(3, 6)),
        blob(6, Level::Period, hour(4, 6)),
    ];
    let mut live: BlobSet = blobs.into_iter().collect();
    let mut merges = Vec::new();
    while let Some(merge) = scheduler.next_sealing(now, &live, &layout) {
        merges.push((merge.target, merge.inputs.iter().map(|meta| meta.key.seq.0).collect::<Vec<u64>>()));
        merge.inputs.iter().for_each(|meta| {
            live.remove(&meta.key);
        });
        assert!(merges.len() < 10);
    }
    let expected = [(Target::Period, vec![1, 2]), (Target::Period, vec![5, 6]), (Target::Hour, vec![3, 4])];
    assert_eq!(merges, expected);
}
