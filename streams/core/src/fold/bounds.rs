//! The bound on values of dimensions: a fold keeps some values of each dimension for a tenant and type, and counts further ones as
//! [`OTHER`].
//!
//! The first values in the order of rows are kept. So the result depends on the rows of a flush alone, and rows that are counted again
//! give the same blob.

use crate::event::{Event, EventType, EventTypes};
use crate::values::{DimensionNumber, OTHER, push};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

/// Memory of a dimension of a tenant and type, about: its place in the map, and the first node of its set.
const DIMENSION_BYTES: usize = 256;
/// Memory of a value beside its text, about.
const VALUE_BYTES: usize = 64;

#[derive(Default)]
pub struct Bounds {
    kept: BTreeMap<Dimension, BTreeSet<Box<str>>>,
    bytes: usize,
    others: u64,
}

/// A dimension of a tenant and type.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Dimension {
    tenant: u32,
    event_type: EventType,
    number: DimensionNumber,
}

impl Bounds {
    /// The values of an event where some are beyond a bound; `None`: all are kept.
    pub fn apply(&mut self, types: &EventTypes, tenant: u32, event: &Event<'_>) -> Option<String> {
        let mut text = String::new();
        let mut is_bounded = false;
        for (number, value) in event.values.iter() {
            let most = types.values_max(event.event_type, number).unwrap_or_default();
            let is_kept = self.keeps(Dimension { tenant, event_type: event.event_type, number }, value, most);
            is_bounded |= !is_kept;
            push(&mut text, number, if is_kept { value } else { OTHER });
        }
        if !is_bounded {
            return None;
        }
        self.others += u64::from(event.count);
        Some(text)
    }

    fn keeps(&mut self, dimension: Dimension, value: &str, most: u32) -> bool {
        let kept = match self.kept.entry(dimension) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(vacant) => {
                self.bytes += DIMENSION_BYTES;
                vacant.insert(BTreeSet::new())
            }
        };
        if value == OTHER || kept.contains(value) {
            return true;
        }
        if kept.len() >= most as usize {
            return false;
        }
        kept.insert(value.into());
        self.bytes += VALUE_BYTES + value.len();
        true
    }

    /// Whether no event had values.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// The sum of the counts whose value is not kept.
    pub fn others(&self) -> u64 {
        self.others
    }

    /// Memory that is allocated, about.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TENANTS: u32 = 100;

    /// Memory that is counted when each tenant has one value.
    fn counted(value: &str) -> usize {
        let mut bounds = Bounds::default();
        let [number, ..] = DimensionNumber::ALL;
        for tenant in 0..TENANTS {
            // The second event of a tenant adds nothing.
            for _ in 0..2 {
                assert!(bounds.keeps(Dimension { tenant, event_type: EventType(0), number }, value, 9));
            }
        }
        bounds.bytes()
    }

    #[test]
    fn memory_of_tenants_with_few_values_is_counted() {
        let each = size_of::<Dimension>() + size_of::<BTreeSet<Box<str>>>();
        // A node of a set has room for 11 values.
        let node = 11 * size_of::<Box<str>>();
        assert!(counted("NP") >= TENANTS as usize * (each + node + "NP".len()));
        assert_eq!(counted("NP"), TENANTS as usize * (DIMENSION_BYTES + VALUE_BYTES + 2));
        assert_eq!(counted(OTHER), TENANTS as usize * DIMENSION_BYTES, "the map has a place for it too");
    }
}
