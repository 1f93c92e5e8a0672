//! A fold equals a plain map, whatever the order of events, and stays within its memory.

use super::*;
use crate::schema::{Changed, Schema, TypeChange};
use crate::values::OTHER;
use proptest::prelude::*;
use std::collections::BTreeMap;

impl Fold {
    fn counts(&self) -> BTreeMap<(String, String, u32, String), u64> {
        let mut counts = BTreeMap::new();
        for cell in self.cells() {
            let tenant = self.tenants.text_of(self.arena.tenant(cell.pair)).to_owned();
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
            fold.add(&Event { tenant: &tenant, listing: &listing, quarter, event_type, count, values: Values::NONE });
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
            values: Values::NONE,
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
fn texts_of_rows_are_within_the_stated_most() {
    let mut fold = Fold::new(types(), 1);
    for number in 0..2_000_u32 {
        let listing = format!("l{}", "x".repeat((number % 90) as usize));
        let tenant = format!("shop-{}", number % 7);
        let quarter = Quarter::of_s(u64::from(number % 5) * 900).unwrap();
        let event_type = types().find("click").unwrap();
        fold.add(&Event { tenant: &tenant, listing: &listing, quarter, event_type, count: 1, values: Values::NONE });
    }
    let rows = fold.rollups().unwrap();
    let text: usize = rows.iter().map(|row| row.tenant.len() + row.listing.len()).sum();
    assert!(fold.size().text_max >= text, "{} for {text}", fold.size().text_max);
}

#[test]
fn count_beyond_a_cell_goes_into_a_further_cell() {
    let mut fold = Fold::new(types(), 1);
    let quarter = Quarter::of_s(0).unwrap();
    let count = QUARTER_COUNT_MAX;
    let event = Event { tenant: "a", listing: "b", quarter, event_type: EventType(0), count, values: Values::NONE };
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
            let event_type = EventType(0);
            fold.add(&Event {
                tenant: &tenant,
                listing: &listing,
                quarter,
                event_type,
                count: 1,
                values: Values::NONE,
            });
        }
        let size = fold.size();
        let per_pair = size.bytes as f64 / size.pairs as f64;
        assert_eq!((size.pairs, size.cells), (pairs as usize, pairs as usize));
        assert!(per_pair <= 48.0, "{per_pair} bytes at {pairs} pairs");
    }
}

/// Impressions have a country with at most two values, and a surface with at most 100 values.
fn types_with_dimensions() -> EventTypes {
    let mut schema = Schema::default();
    schema.claim(Some(&["impression".to_owned(), "click".to_owned()])).unwrap();
    for (dimension, values_max) in [("country", 2), ("surface", 100)] {
        let name = "impression".to_owned();
        let change = TypeChange::AddDimension { name, dimension: dimension.to_owned(), values_max };
        schema.change(&Changed { change, at_ms: 0, log_row: 0 }).unwrap();
    }
    schema.effective(&types())
}

fn with_values<'a>(tenant: &'a str, listing: &'a str, values: &'a str) -> Event<'a> {
    let quarter = Quarter::of_s(1_700_000_000).unwrap();
    let values = Values::parse(values).unwrap();
    Event { tenant, listing, quarter, event_type: EventType(0), count: 1, values }
}

#[test]
fn values_beyond_the_bound_of_a_tenant_count_as_other() {
    let mut fold = Fold::new(types_with_dimensions(), 3);
    for values in ["\u{1}NP", "\u{1}IN", "\u{1}DE\u{2}feed", "", "\u{1}NP\u{2}feed", "\u{1}FR"] {
        fold.add(&with_values("a", "x", values));
    }
    // Another tenant has a bound of its own, and an event that counts nothing takes no place.
    fold.add(&Event { count: 0, ..with_values("b", "x", "\u{1}IT") });
    fold.add_all(&[with_values("b", "x", "\u{1}FR"), with_values("b", "x", "\u{1}DE")]);
    let rows = fold.rollups().unwrap();
    let found: Vec<_> = rows.iter().map(|row| (row.tenant, row.values.as_str(), row.count())).collect();
    let other = format!("\u{1}{OTHER}");
    let other_feed = format!("\u{1}{OTHER}\u{2}feed");
    let expected = [
        ("a", "", 1),
        ("a", "\u{1}IN", 1),
        ("a", "\u{1}NP", 1),
        ("a", "\u{1}NP\u{2}feed", 1),
        ("a", &other, 1),
        ("a", &other_feed, 1),
        ("b", "\u{1}DE", 1),
        ("b", "\u{1}FR", 1),
    ];
    assert_eq!(found, expected);
    assert_eq!((fold.others(), fold.total()), (2, 8));
    assert_eq!((fold.rollups_of("a").unwrap().total(), fold.rollups_of("b").unwrap().total()), (6, 2));
    assert!(fold.rollups_of("c").unwrap().is_empty());
}

proptest! {
    #[test]
    fn fold_with_values_adds_up_to_a_fold_without(
        events in proptest::collection::vec((0..3_u8, 0..3_u8, "(\u{1}[a-d])?(\u{2}[ab])?"), 0..200),
    ) {
        let names: Vec<_> = events
            .iter()
            .map(|(tenant, listing, values)| (format!("t{tenant}"), format!("l{listing}"), values))
            .collect();
        let all: Vec<_> = names.iter().map(|(tenant, listing, values)| with_values(tenant, listing, values)).collect();
        let plain: Vec<_> = all.iter().map(|event| Event { values: Values::NONE, ..*event }).collect();
        let mut with = Fold::new(types_with_dimensions(), 1);
        let mut without = Fold::new(types_with_dimensions(), 1);
        with.add_all(&all);
        without.add_all(&plain);
        let mut summed = Rollups::new();
        let rows = with.rollups().unwrap();
        rows.iter().for_each(|row| summed.push(RollupRow { values: Values::NONE, ..row }).unwrap());
        summed.combine();
        prop_assert_eq!(summed, without.rollups().unwrap());
        prop_assert!(rows.iter().map(|row| row.key()).is_sorted());
    }
}
