//! A fold equals a plain map, whatever the order of events, and stays within its memory.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

impl Fold {
    fn counts(&self) -> BTreeMap<(String, String, u32, String), u64> {
        let mut counts = BTreeMap::new();
        for cell in self.cells() {
            let tenant = self.tenants.name(self.arena.tenant(cell.pair)).to_owned();
            let event_type = self.types.name(EventType((cell.slot >> QUARTER_BITS) as u8)).to_owned();
            let key = (tenant, self.arena.listing(cell.pair).to_owned(), cell.slot & QUARTER_MASK, event_type);
            *counts.entry(key).or_default() += u64::from(cell.count);
        }
        counts
    }
}

fn types() -> EventTypes {
    EventTypes::new(&["impression", "click"]).unwrap()
}

proptest! {
    #[test]
    fn fold_equals_a_plain_map_in_any_order(
        events in proptest::collection::vec((0..4_u8, 0..6_u8, 0..40_u64, 0..2_u8, 0..5_u32), 0..300),
        seed in any::<u64>(),
    ) {
        let mut fold = Fold::new(types(), seed);
        let mut brute: BTreeMap<(String, String, u32, String), u64> = BTreeMap::new();
        let mut all = Vec::new();
        for (tenant, listing, quarter, event_type, count) in events {
            let tenant = format!("t{tenant}");
            let listing = format!("listing-{listing}");
            let quarter = Quarter::of_s(quarter * 900 + 1_700_000_000).unwrap();
            let event_type = EventType(event_type);
            fold.add(&Event { tenant: &tenant, listing: &listing, quarter, event_type, count });
            if count > 0 {
                let name = types().name(event_type).to_owned();
                *brute.entry((tenant.clone(), listing.clone(), quarter.number(), name)).or_default() += u64::from(count);
            }
            all.push((tenant, listing, quarter, event_type, count));
        }
        let events = all.iter().map(|(tenant, listing, quarter, event_type, count)| Event {
            tenant: tenant.as_str(),
            listing: listing.as_str(),
            quarter: *quarter,
            event_type: *event_type,
            count: *count,
        });
        let all: Vec<Event<'_>> = events.collect();
        let mut at_once = Fold::new(types(), seed);
        at_once.add_all(&all);
        prop_assert_eq!(at_once.counts(), brute.clone());
        prop_assert_eq!(at_once.total(), fold.total());
        prop_assert_eq!(fold.counts(), brute.clone());
        let rows = fold.rollups().unwrap();
        prop_assert_eq!(rows.total(), fold.total());
        prop_assert!(rows.iter().map(|row| row.key()).is_sorted());
        let of_one: u64 = brute.iter().filter(|(key, _)| key.0 == "t1").map(|(_, count)| count).sum();
        prop_assert_eq!(fold.rollups_of("t1").unwrap().total(), of_one);
        prop_assert!(fold.rollups_of("nobody").unwrap().is_empty());
    }
}

#[test]
fn count_beyond_a_cell_goes_into_a_further_cell() {
    let mut fold = Fold::new(types(), 1);
    let quarter = Quarter::of_s(0).unwrap();
    let event = Event { tenant: "a", listing: "b", quarter, event_type: EventType(0), count: QUARTER_COUNT_MAX };
    for _ in 0..3 {
        fold.add(&event);
    }
    fold.add(&Event { count: 5, ..event });
    let rows = fold.rollups().unwrap();
    assert_eq!(rows.total(), 3 * u64::from(QUARTER_COUNT_MAX) + 5);
    assert_eq!(rows.len(), 4);
}

#[test]
fn live_pair_takes_at_most_48_bytes() {
    let mut fold = Fold::new(types(), 7);
    let quarter = Quarter::of_s(1_700_000_000).unwrap();
    // Where a table has just doubled it is emptiest: the worst and the best number of pairs.
    for pairs in [1_000_000_u32, 1_900_000] {
        for number in fold.size().pairs as u32..pairs {
            let tenant = format!("tenant-{:09}", number / 10);
            let listing = format!("listing-{number:08}");
            fold.add(&Event { tenant: &tenant, listing: &listing, quarter, event_type: EventType(0), count: 1 });
        }
        let size = fold.size();
        let per_pair = size.bytes as f64 / size.pairs as f64;
        assert_eq!((size.pairs, size.cells), (pairs as usize, pairs as usize));
        assert!(per_pair <= 48.0, "{per_pair} bytes at {pairs} pairs");
    }
}
