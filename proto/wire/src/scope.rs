//! The counters that a consumer of a group's feed wants: those of some ranges. The result of a check is kept per slot, in two
//! bits.

use crate::counter_order::CounterOrder;
use crate::counter_order::KeySpan;
use crate::msg::ScopedPull;
use tidemark_types::table::CellTable;

const SLOTS_PER_WORD: u32 = 32;
const INSIDE: u64 = 0b11;
const OUTSIDE: u64 = 0b01;

/// The ranges that one consumer wants, and which slots of a group's table are in them.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    ranges: Vec<KeySpan>,
    /// The order of counters in which they are ranges.
    order: CounterOrder,
    /// The consumer's number for these ranges, and whether it asks for them beside another feed.
    pub number: u32,
    pub fills: bool,
    /// Two bits by slot: 0 if it was not checked yet, else whether it is inside.
    known: Vec<u64>,
}

impl Scope {
    /// Ranges of counters in the order of their names.
    pub fn new(ranges: Vec<KeySpan>) -> Scope {
        Scope { ranges, ..Scope::default() }
    }

    /// The ranges of a pull. Takes over the checked slots of the pull before, if its ranges were the same.
    pub fn next(before: Option<Scope>, pull: ScopedPull, order: CounterOrder) -> Scope {
        let ScopedPull { ranges, scope: number, fills, .. } = pull;
        let known = before.filter(|before| before.ranges == ranges && before.order == order);
        Scope { number, fills, ..known.unwrap_or_else(|| Scope { ranges, order, ..Scope::default() }) }
    }

    /// Whether a slot of the table is in the ranges. Slots never change their names. Panics if the slot was never given.
    pub fn has(&mut self, slot: u32, table: &CellTable) -> bool {
        let word = (slot / SLOTS_PER_WORD) as usize;
        let shift = slot % SLOTS_PER_WORD * 2;
        if self.known.len() <= word {
            self.known.resize(word + 1, 0);
        }
        let known = self.known[word] >> shift & INSIDE;
        if known != 0 {
            return known == INSIDE;
        }
        let (namespace, key, ..) = table.parts(slot);
        let is_inside = self.order.is_in(namespace, key, &self.ranges);
        self.known[word] |= if is_inside { INSIDE } else { OUTSIDE } << shift;
        is_inside
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tidemark_types::ids::CounterName;

    fn counter(key: u8) -> CounterName {
        CounterName::new("t", &[key + 1]).unwrap()
    }

    proptest! {
        #[test]
        fn a_slot_is_in_scope_as_its_name_is_however_often_it_is_asked(
            spans in prop::collection::vec((0u8..40, 1u8..20), 0..4),
            asked in prop::collection::vec(0u8..80, 1..200),
        ) {
            let mut table = CellTable::new(3);
            (0..80).for_each(|key| assert!(table.intern_total(&counter(key)).is_ok()));
            let span = |&(from, length): &(u8, u8)| KeySpan {
                from: (from > 0).then(|| counter(from)),
                before: (length < 19).then(|| counter(from + length)),
            };
            let mut scope = Scope::new(spans.iter().map(span).collect());
            for key in asked {
                let is_in = |&(from, length): &(u8, u8)| key >= from && (length == 19 || key < from + length);
                prop_assert_eq!(scope.has(key.into(), &table), spans.iter().any(is_in));
            }
        }
    }
}
