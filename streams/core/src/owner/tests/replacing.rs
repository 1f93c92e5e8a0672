//! Rows of past days are replaced by a recount.

use super::*;
use crate::manifest::Partition;
use crate::time::Days;

/// What an operator has seen of a partition. It may be old.
#[derive(Default)]
pub struct Seen {
    manifest: Manifest,
    settled: BTreeMap<u64, bool>,
}

impl World {
    pub fn look(&mut self) {
        self.seen = Seen { manifest: self.manifest.clone(), settled: self.settled.clone() };
    }

    /// Recounts one or two days of what was seen, of one type or all, and hands the recount to the owner.
    pub fn replace(&mut self, at: usize) {
        let Some(partition) = self.seen.manifest.partition(PARTITION) else { return };
        let counted = self.counted(partition.source(SOURCE).next_row as usize, &self.seen.settled);
        if counted.is_empty() {
            return;
        }
        let first = counted.get(at % counted.len()).hour.day();
        let days = Days { first, last: Day(first.0 + at as u32 % 2) };
        let event_type = at.is_multiple_of(3).then_some("click");
        self.hand_over(&Partition::clone(partition), days, event_type, &counted);
    }

    fn hand_over(&mut self, seen: &Partition, days: Days, event_type: Option<&str>, counted: &Rollups) {
        let blobs: Vec<BlobKey> = seen.of_days(&days).iter().map(|meta| meta.key).collect();
        let mut rows = Rollups::new();
        let is_of_type = |row: &RollupRow<'_>| event_type.is_none_or(|name| name == row.event_type);
        let is_asked = |row: &RollupRow<'_>| days.contains(row.hour.day()) && is_of_type(row);
        counted.iter().filter(is_asked).for_each(|row| rows.push(row).unwrap());
        let revision = seen.revision();
        let recounted = Recounted { days, event_type, blobs: &blobs, revision, rows: &rows, readings: &[] };
        self.owner.handle(self.now, Input::Replace(recounted));
    }
}

fn sale(day: i64, event_type: &'static str, count: i64) -> Row {
    let at_s = (19_675 + day) * 86_400 + 7 * 3_600;
    Row { tenant: format!("t{}", day % 2), listing: "l".into(), at_s, event_type, count }
}

/// Rows of five days and two types, all of them in blobs of periods.
fn sealed_world() -> World {
    let rows = (0..5).flat_map(|day| [sale(day, "click", 3), sale(day, "impression", 2)]);
    let mut world = World::new(rows.collect());
    world.finish();
    world.check_merged();
    world
}

fn apply_all(world: &mut World) {
    for _ in 0..50 {
        world.carry_out(0);
        world.apply_unchecked(0);
    }
}

#[test]
fn recounted_rows_replace_wrong_ones_and_others_stay() {
    let mut world = sealed_world();
    // The third day, and the clicks of the fourth, had counted by a wrong column.
    for row in &mut world.rows {
        let day = row.at_s / 86_400 - 19_675;
        let is_wrong = day == 2 || (day == 3 && row.event_type == "click");
        row.count = if is_wrong { 10 } else { row.count };
    }
    for (day, event_type) in [(2, None), (3, Some("click"))] {
        let day = Day(19_675 + day);
        let counted = world.counted(world.rows.len(), &BTreeMap::new());
        let seen = world.manifest.partition(PARTITION).cloned().unwrap();
        world.hand_over(&seen, Days { first: day, last: day }, event_type, &counted);
        assert!(world.owner.is_replacing());
        apply_all(&mut world);
        assert!(!world.owner.is_replacing());
    }
    world.check();
    let total = world.manifest.partition(PARTITION).unwrap().total;
    assert_eq!(total, 25 + 15 + 7, "the sum has the difference");
    world.finish();
    world.check_merged();
}

#[test]
fn recount_of_other_blobs_or_an_earlier_revision_is_left_out() {
    let mut world = World::new((0..8).map(|at| sale(at % 3, "click", 1)).collect());
    world.carry_out(0);
    world.apply_unchecked(0);
    world.give_rows(4);
    world.tick(1_000);
    apply_all(&mut world);
    let seen = world.manifest.partition(PARTITION).cloned().unwrap();
    let days = Days { first: Day(19_675), last: Day(19_677) };
    let counted = world.counted(4, &BTreeMap::new());
    assert_eq!((seen.of_days(&days).is_empty(), seen.total), (false, u128::from(counted.total())));
    // Late rows come, and are merged.
    world.finish();
    world.hand_over(&seen, days, None, &counted);
    assert!(!world.owner.is_replacing());
    let now = world.manifest.partition(PARTITION).cloned().unwrap();
    let counted = world.counted(8, &BTreeMap::new());
    world.erase(0);
    world.hand_over(&now, days, None, &counted);
    assert!(!world.owner.is_replacing(), "the recount did not know the erasure");
    world.finish();
    let now = world.manifest.partition(PARTITION).cloned().unwrap();
    world.hand_over(&now, days, None, &counted);
    assert!(world.owner.is_replacing());
    apply_all(&mut world);
    world.check();
}
