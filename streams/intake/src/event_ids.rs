//! Ids of events that were accepted lately. An event with a known id is not counted again.

use crate::codec::{self, DecodeError, at_most};
use crate::entry::EventKey;
use crate::limits::IDS_PER_ROW_MAX;
use hashbrown::HashTable;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use xxhash_rust::xxh3::xxh3_128_with_seed;

const ROW_VERSION: u8 = 1;

/// For how long, and how many ids are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdBounds {
    pub kept_ms: u64,
    pub ids_max: usize,
}

/// An id, and when its event was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    pub at_ms: u64,
    pub key: EventKey,
}

/// The ids that are known, in the order in which they came.
pub struct EventIds {
    bounds: IdBounds,
    order: VecDeque<Known>,
    index: HashTable<EventKey>,
    forgotten_early: u64,
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
    pub fn new(bounds: IdBounds) -> EventIds {
        EventIds { bounds, order: VecDeque::new(), index: HashTable::new(), forgotten_early: 0 }
    }

    /// Forgets the ids after their time.
    pub fn expire(&mut self, now_ms: u64) {
        while self.order.front().is_some_and(|known| known.at_ms.saturating_add(self.bounds.kept_ms) <= now_ms) {
            self.forget_first();
        }
    }

    pub fn contains(&self, key: EventKey) -> bool {
        self.index.find(key.1, |known| *known == key).is_some()
    }

    /// Remembers an id. A known id keeps its time. Beyond the number of ids, the oldest is forgotten before its time.
    pub fn insert(&mut self, known: Known) {
        if self.bounds.ids_max == 0 || self.contains(known.key) {
            return;
        }
        if self.order.len() >= self.bounds.ids_max {
            self.forget_first();
            self.forgotten_early += 1;
        }
        self.index.insert_unique(known.key.1, known.key, |key| key.1);
        self.order.push_back(known);
    }

    fn forget_first(&mut self) {
        let Some(first) = self.order.pop_front() else { return };
        if let Ok(found) = self.index.find_entry(first.key.1, |known| *known == first.key) {
            found.remove();
        }
    }

    pub fn len(&self) -> usize {
        self.order.len()
    }

    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Ids that were forgotten before their time, as there were too many. A repeated event of these is counted again.
    pub fn forgotten_early(&self) -> u64 {
        self.forgotten_early
    }
}

/// A row of a checkpoint: ids in the order in which they came.
pub fn encode_row(ids: &[Known]) -> Vec<u8> {
    codec::encode(ROW_VERSION, &ids)
}

/// # Errors
/// [`DecodeError`].
pub fn decode_row(bytes: &[u8]) -> Result<Vec<Known>, DecodeError> {
    let ids: Vec<Known> = codec::decode(ROW_VERSION, bytes)?;
    at_most("ids of a row:", ids.len(), IDS_PER_ROW_MAX)?;
    Ok(ids)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(at_ms: u64, id: u64) -> Known {
        Known { at_ms, key: EventKey(id, id % 3) }
    }

    #[test]
    fn ids_are_known_for_their_time_and_number() {
        let mut ids = EventIds::new(IdBounds { kept_ms: 100, ids_max: 3 });
        (1..=3).for_each(|id| ids.insert(known(id, id)));
        assert!(ids.contains(EventKey(1, 1)) && !ids.contains(EventKey(4, 1)));
        ids.insert(known(50, 4));
        assert_eq!((ids.len(), ids.forgotten_early(), ids.contains(EventKey(1, 1))), (3, 1, false));
        ids.insert(known(60, 4));
        ids.expire(103);
        assert_eq!((ids.len(), ids.contains(EventKey(4, 1))), (1, true));
        ids.expire(150);
        assert!(ids.is_empty());
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
        assert_eq!(decode_row(&encode_row(&ids)), Ok(ids));
        assert!(decode_row(&[1, 255]).is_err() && decode_row(&[9]).is_err() && decode_row(&[]).is_err());
    }
}
