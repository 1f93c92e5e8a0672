//! The bound on values of dimensions: a fold keeps some values of each dimension for a tenant and type, and counts further ones as
//! [`OTHER`].
//!
//! The first values in the order of rows are kept. So the result depends on the rows of a flush alone, and rows that are counted again
//! give the same blob.

use crate::event::{Event, EventType, EventTypes};
use crate::values::{DimensionNumber, OTHER, push};
use std::collections::{BTreeMap, BTreeSet};

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
        let kept = self.kept.entry(dimension).or_default();
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
