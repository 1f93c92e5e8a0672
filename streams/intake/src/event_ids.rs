//! Ids of events that were accepted lately. An event with a known id is not counted again.

use crate::codec::{self, DecodeError, at_most};
use crate::entry::EventKey;
use crate::limits::IDS_PER_ROW_MAX;
use hashbrown::HashTable;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use xxhash_rust::xxh3::xxh3_128_with_seed;

const ROW_VERSION: u8 = 1;
/// The version of a row with ids of an event type that has bounds of its own.
const TYPE_ROW_VERSION: u8 = 2;

/// For how long, and how many ids are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IdBounds {
    pub kept_ms: u64,
    pub ids_max: usize,
}

/// The bounds of ids by event type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdSettings {
    /// Types with bounds of their own.
    pub of_types: BTreeMap<String, IdBounds>,
    /// All other types together.
    pub others: IdBounds,
}

/// An id, and when its event was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    pub at_ms: u64,
    pub key: EventKey,
}

/// The ids that are known.
pub struct EventIds {
    /// The place of the queue of a type. Other types have the first one.
    places: BTreeMap<String, Place>,
    queues: Vec<Queue>,
    /// The ids of all queues.
    index: HashTable<EventKey>,
}

/// The number of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(usize);

impl Place {
    /// The queue of all types without bounds of their own.
    pub const OTHERS: Place = Place(0);

    pub fn index(self) -> usize {
        self.0
    }
}

/// The ids of types with the same bounds, in the order in which they came.
struct Queue {
    bounds: IdBounds,
    order: VecDeque<Known>,
    forgotten_early: u64,
}

/// A row of a checkpoint: ids in the order in which they came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdRow {
    /// `None`: their types have no bounds of their own.
    pub event_type: Option<String>,
    pub ids: Vec<Known>,
}

/// The hash of an id in its tenant and event type. `seed` makes collisions unknown to a sender that chooses ids.
pub fn event_key(seed: u64, tenant: &str, event_type: &str, id: &str) -> EventKey {
    let mut text = Vec::with_capacity(tenant.len() + event_type.len() + id.len() + 2);
    for part in [tenant, event_type] {
        text.extend_from_slice(part.as_bytes());
        // No id of a tenant and no type has a control character.
        text.push(0);
    }
    text.extend_from_slice(id.as_bytes());
    let hash = xxh3_128_with_seed(&text, seed);
    EventKey((hash >> 64) as u64, hash as u64)
}

impl EventIds {
    pub fn new(settings: &IdSettings) -> EventIds {
        let queue = |bounds: &IdBounds| Queue { bounds: *bounds, order: VecDeque::new(), forgotten_early: 0 };
        let places = settings.of_types.keys().zip(1..).map(|(name, at)| (name.clone(), Place(at)));
        let bounds = std::iter::once(&settings.others).chain(settings.of_types.values());
        EventIds { places: places.collect(), queues: bounds.map(queue).collect(), index: HashTable::new() }
    }

    pub fn place_of(&self, event_type: &str) -> Place {
        self.places.get(event_type).copied().unwrap_or(Place::OTHERS)
    }

    /// The places, each with the type that has it.
    pub fn places(&self) -> impl Iterator<Item = (Place, Option<&str>)> {
        let of_types = self.places.iter().map(|(name, place)| (*place, Some(name.as_str())));
        std::iter::once((Place::OTHERS, None)).chain(of_types)
    }

    pub fn bounds(&self, place: Place) -> IdBounds {
        self.queues.get(place.0).map_or(IdBounds::default(), |queue| queue.bounds)
    }

    /// Forgets the ids after their time.
    pub fn expire(&mut self, now_ms: u64) {
        for queue in &mut self.queues {
            let kept_ms = queue.bounds.kept_ms;
            while queue.order.front().is_some_and(|known| known.at_ms.saturating_add(kept_ms) <= now_ms) {
                queue.forget_first(&mut self.index);
            }
        }
    }

    pub fn contains(&self, key: EventKey) -> bool {
        self.index.find(key.1, |known| *known == key).is_some()
    }

    /// Remembers an id. A known id keeps its time. Beyond the number of ids, the oldest of the queue is forgotten before its time.
    pub fn insert(&mut self, place: Place, known: Known) {
        if self.contains(known.key) {
            return;
        }
        let Some(queue) = self.queues.get_mut(place.0).filter(|queue| queue.bounds.ids_max > 0) else { return };
        if queue.order.len() >= queue.bounds.ids_max {
            queue.forget_first(&mut self.index);
            queue.forgotten_early += 1;
        }
        self.index.insert_unique(known.key.1, known.key, |key| key.1);
        queue.order.push_back(known);
    }

    pub fn len(&self) -> usize {
        self.index.len()
    }

    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Ids that were forgotten before their time, as there were too many. A repeated event of these is counted again.
    pub fn forgotten_early(&self) -> u64 {
        self.queues.iter().map(|queue| queue.forgotten_early).sum()
    }

    /// The same of each type with bounds of its own.
    pub fn forgotten_early_of_types(&self) -> impl Iterator<Item = (&str, u64)> {
        let forgotten = |place: &Place| self.queues.get(place.0).map_or(0, |queue| queue.forgotten_early);
        self.places.iter().map(move |(name, place)| (name.as_str(), forgotten(place)))
    }
}

impl Queue {
    fn forget_first(&mut self, index: &mut HashTable<EventKey>) {
        let Some(first) = self.order.pop_front() else { return };
        if let Ok(found) = index.find_entry(first.key.1, |known| *known == first.key) {
            found.remove();
        }
    }
}

/// A row of a checkpoint.
pub fn encode_row(event_type: Option<&str>, ids: &[Known]) -> Vec<u8> {
    match event_type {
        None => codec::encode(ROW_VERSION, &ids),
        Some(name) => codec::encode(TYPE_ROW_VERSION, &(name, ids)),
    }
}

/// # Errors
/// [`DecodeError`].
pub fn decode_row(bytes: &[u8]) -> Result<IdRow, DecodeError> {
    let row = match bytes.first() {
        Some(&TYPE_ROW_VERSION) => {
            let (event_type, ids): (String, Vec<Known>) = codec::decode(TYPE_ROW_VERSION, bytes)?;
            IdRow { event_type: Some(event_type), ids }
        }
        Some(_) | None => IdRow { event_type: None, ids: codec::decode(ROW_VERSION, bytes)? },
    };
    at_most("ids of a row:", row.ids.len(), IDS_PER_ROW_MAX)?;
    Ok(row)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(at_ms: u64, id: u64) -> Known {
        Known { at_ms, key: EventKey(id, id % 3) }
    }

    #[test]
    fn ids_are_known_for_their_time_and_number() {
        let others = IdBounds { kept_ms: 100, ids_max: 3 };
        let mut ids = EventIds::new(&IdSettings { others, of_types: BTreeMap::new() });
        (1..=3).for_each(|id| ids.insert(Place::OTHERS, known(id, id)));
        assert!(ids.contains(EventKey(1, 1)) && !ids.contains(EventKey(4, 1)));
        ids.insert(Place::OTHERS, known(50, 4));
        assert_eq!((ids.len(), ids.forgotten_early(), ids.contains(EventKey(1, 1))), (3, 1, false));
        ids.insert(Place::OTHERS, known(60, 4));
        ids.expire(103);
        assert_eq!((ids.len(), ids.contains(EventKey(4, 1))), (1, true));
        ids.expire(150);
        assert!(ids.is_empty());
    }

    #[test]
    fn types_with_bounds_of_their_own_do_not_push_out_others() {
        let others = IdBounds { kept_ms: 100, ids_max: 2 };
        let of_types = BTreeMap::from([("purchase".to_owned(), IdBounds { kept_ms: 1_000, ids_max: 3 })]);
        let mut ids = EventIds::new(&IdSettings { others, of_types });
        let purchase = ids.place_of("purchase");
        assert_eq!((ids.place_of("click"), ids.bounds(purchase).kept_ms), (Place::OTHERS, 1_000));
        (1..=2).for_each(|id| ids.insert(purchase, known(0, id)));
        (11..=15).for_each(|id| ids.insert(Place::OTHERS, known(0, id)));
        assert_eq!((ids.len(), ids.forgotten_early()), (4, 3));
        assert_eq!(ids.forgotten_early_of_types().collect::<Vec<_>>(), [("purchase", 0)]);
        // An id is known whatever type it came with.
        ids.insert(Place::OTHERS, known(0, 1));
        assert_eq!(ids.len(), 4);
        ids.expire(100);
        assert_eq!((ids.len(), ids.contains(EventKey(1, 1)), ids.contains(EventKey(15, 0))), (2, true, false));
        (3..=4).for_each(|id| ids.insert(purchase, known(500, id)));
        assert_eq!(ids.forgotten_early_of_types().collect::<Vec<_>>(), [("purchase", 1)]);
        ids.expire(1_000);
        assert_eq!(ids.len(), 2);
    }

    #[test]
    fn keys_differ_by_tenant_type_id_and_seed() {
        let keys = [
            event_key(1, "a", "click", "x"),
            event_key(1, "ac", "lick", "x"),
            event_key(1, "a", "click", "y"),
            event_key(2, "a", "click", "x"),
        ];
        assert!(keys.iter().enumerate().all(|(at, key)| !keys[..at].contains(key)));
    }

    #[test]
    fn rows_are_read_as_they_were_written() {
        let ids = vec![known(1, 1), known(u64::MAX, 2)];
        for event_type in [None, Some("purchase")] {
            let row = IdRow { event_type: event_type.map(str::to_owned), ids: ids.clone() };
            assert_eq!(decode_row(&encode_row(event_type, &ids)), Ok(row));
        }
        for damaged in [&[1, 255][..], &[2, 255], &[2], &[9], &[]] {
            assert!(decode_row(damaged).is_err(), "{damaged:?}");
        }
    }
}
