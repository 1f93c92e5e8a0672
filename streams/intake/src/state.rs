//! The state of the intake: a function of its log.
//!
//! A batch is judged first ([`State::turn`], [`State::drop_known`]), then it goes into the log, then it is applied ([`State::apply`]).
//! A start reads a checkpoint and applies the entries behind it; both give the same state.

use crate::codec::{self, DecodeError};
use crate::entry::{Answer, Batch, BatchOf, Event, EventKey, Head, ValidEvent};
use crate::event_ids::{self, EventIds, IdRow, IdSettings, Known, Place};
use crate::limits::{IDS_PER_ROW_MAX, LATE_TENANTS_MAX};
use crate::producers::{ProducerError, Producers, Turn};
use crate::refused::Refused;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use tidemark_streams_core::time::{HOUR_S, Quarter};

/// Tables of a checkpoint. [`META`] is written last: it says for which entry the others stand.
pub const PRODUCERS: &str = "producers";
pub const IDS: &str = "ids";
pub const LATE: &str = "late";
pub const REFUSED: &str = "refused";
pub const META: &str = "meta";
pub const META_KEY: &[u8] = b"state";

const META_VERSION: u8 = 1;

/// Settings that the state needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateConfig {
    pub ids: IdSettings,
    /// An hour is settled this long after its end. A later event is late.
    pub lateness_s: u64,
}

/// The state.
pub struct State {
    config: StateConfig,
    meta: Meta,
    producers: Producers,
    ids: EventIds,
    late: Late,
    refused: Refused,
    /// By the place of their queue.
    stored_ids: Vec<StoredIds>,
}

/// The head of a checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Meta {
    /// The last entry that was applied.
    index: u64,
    next_row: u64,
    totals: Totals,
    next_id_row: u64,
    accepted_at_ms: u64,
}

/// Numbers since the log began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    pub batches: u64,
    pub accepted: u64,
    pub dead_letters: u64,
    pub duplicates: u64,
    /// Counts that came after their hour was settled, of all tenants.
    pub late: u64,
}

/// Late counts by tenant.
#[derive(Default)]
struct Late {
    by_tenant: BTreeMap<String, u64>,
    changed: BTreeSet<String>,
}

/// Ids of a queue as a checkpoint has them.
#[derive(Default)]
struct StoredIds {
    /// For the next checkpoint.
    new: Vec<Known>,
    rows: VecDeque<StoredRow>,
}

/// A row of ids that a checkpoint has.
#[derive(Clone, Copy)]
struct StoredRow {
    number: u64,
    last_at_ms: u64,
}

/// A row to write. `None`: it is removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateRow {
    pub table: &'static str,
    pub key: Vec<u8>,
    pub value: Option<Vec<u8>>,
}

/// Why an entry does not follow.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("entry {index} begins at row {first_row}, and the next row is {next_row}")]
pub struct OutOfOrder {
    pub index: u64,
    pub first_row: u64,
    pub next_row: u64,
}

impl State {
    /// The state of an empty log.
    pub fn new(config: StateConfig) -> State {
        let ids = EventIds::new(&config.ids);
        let stored_ids = ids.places().map(|_| StoredIds::default()).collect();
        State {
            config,
            meta: Meta::default(),
            producers: Producers::default(),
            ids,
            late: Late::default(),
            refused: Refused::default(),
            stored_ids,
        }
    }

    /// The number of the next row.
    pub fn next_row(&self) -> u64 {
        self.meta.next_row
    }

    /// The last entry that was applied.
    pub fn index(&self) -> u64 {
        self.meta.index
    }

    pub fn totals(&self) -> Totals {
        self.meta.totals
    }

    /// When the last batch was accepted; 0 before the first.
    pub fn accepted_at_ms(&self) -> u64 {
        self.meta.accepted_at_ms
    }

    pub fn producers(&self) -> usize {
        self.producers.len()
    }

    pub fn ids(&self) -> &EventIds {
        &self.ids
    }

    /// Late counts of a tenant; `None` where they are not told apart.
    pub fn late_of(&self, tenant: &str) -> Option<u64> {
        let known = self.late.by_tenant.get(tenant).copied();
        known.or_else(|| (self.late.by_tenant.len() < LATE_TENANTS_MAX).then_some(0))
    }

    /// Refused events by tenant and code.
    pub fn refused(&self) -> &Refused {
        &self.refused
    }

    /// # Errors
    /// [`ProducerError`].
    pub fn turn(&mut self, now_ms: u64, batch: &BatchOf<'_>) -> Result<Turn, ProducerError> {
        self.producers.turn(now_ms, batch)
    }

    /// Removes the events with ids that are known, or stand in the batch before. Returns how many there were.
    pub fn drop_known(&mut self, now_ms: u64, events: &mut Vec<Event<'_>>) -> u32 {
        self.ids.expire(now_ms);
        let mut in_batch: BTreeSet<EventKey> = BTreeSet::new();
        let before = events.len();
        events.retain(|event| event.id().is_none_or(|id| !self.ids.contains(id) && in_batch.insert(id)));
        (before - events.len()) as u32
    }

    /// Takes over an entry of the log.
    ///
    /// # Errors
    /// [`OutOfOrder`]: rows are missing before it.
    pub fn apply(&mut self, index: u64, head: &Head, batch: &Batch<'_>) -> Result<(), OutOfOrder> {
        let Head { first_row, accepted_at_ms, .. } = *head;
        if first_row != self.meta.next_row {
            return Err(OutOfOrder { index, first_row, next_row: self.meta.next_row });
        }
        if let Some(of) = &batch.producer {
            self.producers.accepted(accepted_at_ms, of, batch.answer);
        }
        for event in &batch.events {
            match event {
                Event::Valid(event) => {
                    self.add_id(accepted_at_ms, event);
                    self.add_late(accepted_at_ms, event);
                }
                Event::Broken { reason, text } => self.refused.add(accepted_at_ms, reason, text),
            }
        }
        let Answer { accepted, dead_letters, duplicates } = batch.answer;
        let totals = &mut self.meta.totals;
        totals.batches += 1;
        totals.accepted += u64::from(accepted);
        totals.dead_letters += u64::from(dead_letters);
        totals.duplicates += u64::from(duplicates);
        self.meta.next_row = head.end_row();
        self.meta.index = index;
        self.meta.accepted_at_ms = accepted_at_ms;
        Ok(())
    }

    fn add_id(&mut self, at_ms: u64, event: &ValidEvent<'_>) {
        let Some(key) = event.id else { return };
        let known = Known { at_ms, key };
        let place = self.ids.place_of(&event.event_type);
        self.ids.insert(place, known);
        let max = self.ids.bounds(place).ids_max;
        let Some(stored) = self.stored_ids.get_mut(place.index()) else { return };
        // Ids for the next checkpoint: of more than are remembered, the last ones.
        if max > 0 && stored.new.len() >= max.saturating_mul(2) {
            stored.new.drain(..stored.new.len() - max);
        }
        stored.new.push(known);
    }

    fn add_late(&mut self, accepted_at_ms: u64, event: &ValidEvent<'_>) {
        let Some(quarter) = u64::try_from(event.at_s).ok().and_then(Quarter::of_s) else { return };
        let settled_at_s = quarter.hour().start_s() + HOUR_S + self.config.lateness_s;
        if accepted_at_ms / 1_000 <= settled_at_s {
            return;
        }
        let count = u64::from(event.count) * event.listings.as_slice().len() as u64;
        self.meta.totals.late += count;
        let tenant = event.tenant.as_ref();
        if !self.late.by_tenant.contains_key(tenant) && self.late.by_tenant.len() >= LATE_TENANTS_MAX {
            return;
        }
        *self.late.by_tenant.entry(tenant.to_owned()).or_default() += count;
        self.late.changed.insert(tenant.to_owned());
    }

    /// The rows that have changed since the last call, in the order in which they have to be written. Those from [`LATE`] on go into a
    /// single transaction.
    pub fn take_changes(&mut self, now_ms: u64) -> Vec<StateRow> {
        self.producers.expire(now_ms);
        let mut rows: Vec<StateRow> = Vec::new();
        for (name, value) in self.producers.changes() {
            rows.push(StateRow { table: PRODUCERS, key: name.as_bytes().to_vec(), value });
        }
        self.producers.clear_changes();
        self.take_id_rows(now_ms, &mut rows);
        for tenant in std::mem::take(&mut self.late.changed) {
            let count = self.late.by_tenant.get(&tenant).copied().unwrap_or_default();
            rows.push(StateRow { table: LATE, key: tenant.into_bytes(), value: Some(count.to_be_bytes().to_vec()) });
        }
        for (key, value) in self.refused.take_changes() {
            rows.push(StateRow { table: REFUSED, key, value: Some(value) });
        }
        let meta = codec::encode(META_VERSION, &self.meta);
        rows.push(StateRow { table: META, key: META_KEY.to_vec(), value: Some(meta) });
        rows
    }

    fn take_id_rows(&mut self, now_ms: u64, rows: &mut Vec<StateRow>) {
        for ((place, event_type), stored) in self.ids.places().zip(&mut self.stored_ids) {
            let kept_ms = self.ids.bounds(place).kept_ms;
            let is_over = |at_ms: u64| at_ms.saturating_add(kept_ms) <= now_ms;
            let new: Vec<Known> = std::mem::take(&mut stored.new);
            for ids in new.chunks(IDS_PER_ROW_MAX) {
                let last_at_ms = ids.last().map_or(0, |known| known.at_ms);
                let number = self.meta.next_id_row;
                self.meta.next_id_row += 1;
                stored.rows.push_back(StoredRow { number, last_at_ms });
                let value = Some(event_ids::encode_row(event_type, ids));
                rows.push(StateRow { table: IDS, key: number.to_be_bytes().to_vec(), value });
            }
            while let Some(row) = stored.rows.front().filter(|row| is_over(row.last_at_ms)) {
                rows.push(StateRow { table: IDS, key: row.number.to_be_bytes().to_vec(), value: None });
                stored.rows.pop_front();
            }
        }
    }

    /// Takes a row of a checkpoint. The rows of a table come in the order of their keys.
    ///
    /// # Errors
    /// [`DecodeError`].
    pub fn restore(&mut self, table: &str, key: &[u8], value: &[u8]) -> Result<(), DecodeError> {
        let damaged = |what: &str| DecodeError::Damaged(what.to_owned());
        match table {
            PRODUCERS => self.producers.restore(key, value),
            IDS => {
                let number = key.first_chunk().map(|bytes| u64::from_be_bytes(*bytes));
                let number = number.filter(|_| key.len() == 8).ok_or_else(|| damaged("a row of ids has no number"))?;
                let row = event_ids::decode_row(value)?;
                self.restore_ids(number, row);
                Ok(())
            }
            LATE => {
                let tenant = std::str::from_utf8(key).map_err(|_| damaged("a tenant is no UTF-8"))?;
                let count = value.first_chunk().filter(|_| value.len() == 8).map(|bytes| u64::from_be_bytes(*bytes));
                let count = count.ok_or_else(|| damaged("a late count is no number"))?;
                self.late.by_tenant.insert(tenant.to_owned(), count);
                codec::at_most("tenants with late counts:", self.late.by_tenant.len(), LATE_TENANTS_MAX)
            }
            REFUSED => self.refused.restore(key, value),
            META => {
                self.meta = codec::decode(META_VERSION, value)?;
                Ok(())
            }
            _ => Err(damaged("a table is unknown")),
        }
    }

    /// Ids of a type that has other bounds than before take those.
    fn restore_ids(&mut self, number: u64, row: IdRow) {
        let place = row.event_type.map_or(Place::OTHERS, |name| self.ids.place_of(&name));
        let last_at_ms = row.ids.last().map_or(0, |known| known.at_ms);
        if let Some(stored) = self.stored_ids.get_mut(place.index()) {
            stored.rows.push_back(StoredRow { number, last_at_ms });
        }
        row.ids.into_iter().for_each(|known| self.ids.insert(place, known));
    }
}

#[cfg(test)]
mod tests;
