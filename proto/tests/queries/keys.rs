//! Pages of ranges of keys, against an ordered set.

use proptest::prelude::*;
use std::collections::BTreeSet;
use tidemark_proto::ids::{Bucket, CellId, CounterName, Half};
use tidemark_proto::query::{KeyOrder, KeyRange, scan, scan_across};
use tidemark_proto::table::CellTable;

fn cell() -> impl Strategy<Value = CellId> {
    let key = proptest::collection::vec(0u8..4, 1..5);
    ("[ab]{1,2}", key, 0u32..2, any::<bool>(), 0u32..8).prop_map(|(namespace, key, generation, down, span)| CellId {
        counter: CounterName::new(&namespace, &key).unwrap(),
        generation,
        half: if down { Half::Down } else { Half::Up },
        bucket: if span == 0 { Bucket::Span { length_s: 60, start_s: 0 } } else { Bucket::Total },
    })
}

fn range() -> impl Strategy<Value = KeyRange> {
    let key = || proptest::collection::vec(0u8..4, 0..4);
    let keys = ("[ab]", key(), prop::option::of(key()), prop::option::of(key()));
    keys.prop_map(|(namespace, prefix, after, before)| KeyRange { namespace, prefix, after, before })
}

fn all(order: &KeyOrder, table: &CellTable, keys: &KeyRange, most: usize) -> Vec<CounterName> {
    let mut keys = keys.clone();
    let mut counters = Vec::new();
    loop {
        let page = scan(&[(order, table)], &keys, most, |_| true);
        assert!(page.counters.len() <= most);
        counters.extend(page.counters);
        match page.next {
            Some(next) => keys.after = Some(next),
            None => return counters,
        }
    }
}

proptest! {
    #[test]
    fn pages_of_two_tables_join_to_the_range_of_both(
        cells in proptest::collection::vec((cell(), any::<bool>()), 0..100),
        keys in range(),
        most in 1usize..9,
    ) {
        let mut both = [(CellTable::new(7), KeyOrder::default()), (CellTable::new(8), KeyOrder::default())];
        let mut whole = (CellTable::new(9), KeyOrder::default());
        for (cell, is_second) in &cells {
            both[usize::from(*is_second)].0.intern(cell).unwrap();
            whole.0.intern(cell).unwrap();
        }
        both.iter_mut().chain([&mut whole]).for_each(|(table, order)| while !order.catch_up(table, 50) {});
        let mut range = keys.clone();
        let mut joined = Vec::new();
        loop {
            let [one, other] = both.each_ref().map(|(table, order)| scan(&[(order, table)], &range, most, |_| true));
            let page = one.joined(other);
            joined.extend(page.counters);
            match page.next {
                Some(next) => range.after = Some(next),
                None => break,
            }
        }
        prop_assert_eq!(&joined, &all(&whole.1, &whole.0, &keys, 7));
        // All at once, too. Counters in both tables stand there twice.
        let mut range = keys.clone();
        let mut across = Vec::new();
        loop {
            let parts = both.each_ref().map(|(table, order)| (order, table));
            let page = scan_across(&parts, &range, most, |_| true);
            prop_assert!(page.counters.len() <= most);
            across.extend(page.counters);
            match page.next {
                Some(next) => range.after = Some(next),
                None => break,
            }
        }
        across.dedup();
        prop_assert_eq!(across, joined);
    }

    #[test]
    fn pages_are_the_range_whatever_their_length_and_the_steps_of_catching_up(
        cells in proptest::collection::vec(cell(), 0..150),
        keys in range(),
        most in 1usize..20,
        step in 1u32..40,
    ) {
        let mut table = CellTable::new(7);
        let mut order = KeyOrder::default();
        let mut model = BTreeSet::new();
        for (nth, cell) in cells.iter().enumerate() {
            table.intern(cell).unwrap();
            if cell.bucket == Bucket::Total {
                model.insert(cell.counter.clone());
            }
            if nth % 3 == 0 {
                order.catch_up(&table, step);
            }
        }
        while !order.catch_up(&table, step) {}
        prop_assert_eq!(order.len(), model.len());
        let spread: Vec<CounterName> = model.iter().step_by(model.len().div_ceil(most).max(1)).cloned().collect();
        prop_assert_eq!(order.spread(&table, most), spread);
        let is_in = |name: &&CounterName| {
            let key = name.key();
            name.namespace() == keys.namespace
                && key.starts_with(&keys.prefix)
                && keys.after.as_deref().is_none_or(|after| key > after)
                && keys.before.as_deref().is_none_or(|before| key < before)
        };
        let wanted: Vec<CounterName> = model.iter().filter(is_in).cloned().collect();
        prop_assert_eq!(all(&order, &table, &keys, most), wanted);
    }
}

#[test]
fn many_keys_in_any_order_take_few_bytes_each_and_a_page_goes_on_where_one_ended() {
    let keys = KeyRange { namespace: "qa".into(), prefix: b"a/".to_vec(), after: None, before: None };
    for stride in [1u32, 7_919] {
        let mut table = CellTable::new(1);
        let mut order = KeyOrder::default();
        let count = 20_000u32;
        for nth in 0..count {
            let key = format!("a/{:08}", nth.wrapping_mul(stride) % count);
            table.intern(&CounterName::new("qa", key.as_bytes()).unwrap().total()).unwrap();
        }
        while !order.catch_up(&table, 1_000) {}
        assert!(order.heap_bytes() < 10 * count as usize, "{}", order.heap_bytes());
        let page = scan(&[(&order, &table)], &keys, 10, |_| true);
        assert_eq!(page.next.as_deref(), Some(&b"a/00000009"[..]));
        // A new key is in the next page if it sorts after the token, and it never moves other keys.
        table.intern(&CounterName::new("qa", b"a/00000009x").unwrap().total()).unwrap();
        table.intern(&CounterName::new("qa", b"a/000").unwrap().total()).unwrap();
        assert!(order.catch_up(&table, 2));
        let next = scan(&[(&order, &table)], &KeyRange { after: page.next, ..keys.clone() }, 2, |_| true);
        let names: Vec<String> = next.counters.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["qa/a/00000009x", "qa/a/00000010"]);
        assert_eq!(all(&order, &table, &keys, 999).len(), count as usize + 2);
    }
}
