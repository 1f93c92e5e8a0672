//! One receiver's deliveries: the open ones with the time of the next attempt, and those that were given up. It decides everything and does
//! no IO. The task around it sends, gives the time, and persists the changed rows before it tells any caller.
//!
//! An award is in the ledger until it is here, and here until the receiver has acknowledged it. It is an open delivery that is tried again,
//! ever more rarely, or it is given up as a dead letter that an operator can send again.

use crate::api::{AwardPosition, MarkedPosition};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;
use std::time::Duration;
use tidemark_proto::ids::Birth;

/// Bytes of an error that are kept and shown.
pub const ERROR_BYTES_MAX: usize = 300;
/// The key of the row that says how far the awards were looked at, and whether deliveries are held.
const STATE_KEY: &[u8] = b"state";
/// The first byte of a delivery's key; its position follows.
const DELIVERY_KEY: u8 = b'd';

/// Rows as they are kept: key and value.
pub type Rows = Vec<(Vec<u8>, Vec<u8>)>;

/// A row that changed; without a value it is gone.
pub type RowChange = (Vec<u8>, Option<Vec<u8>>);

/// Bounds of one receiver's deliveries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Open deliveries. Past it new awards wait in the ledger, which has them all by position.
    pub open_max: usize,
    /// Dead letters. Past it nothing is given up: it is tried on, and so are the open ones.
    pub dead_max: usize,
    /// Requests under way.
    pub at_once_max: usize,
    /// From a delivery's first failure to its next try; doubled from try to try.
    pub first_retry: Duration,
    /// The longest that a next try is waited for.
    pub retry_max: Duration,
    /// A delivery that fails so long after its first try is given up.
    pub give_up: Duration,
}

/// Milliseconds since 1970.
pub type NowMs = u64;

/// An award for one receiver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivery {
    pub id: String,
    /// `NAMESPACE/KEY`, for people.
    pub counter: String,
    pub at: u64,
    pub body: String,
    /// Failed tries since it was queued, released or sent again.
    pub attempts: u32,
    /// The first of them.
    pub tried_ms: Option<NowMs>,
    /// When the next try is due.
    pub due_ms: NowMs,
    pub last_error: Option<String>,
    /// Dead since.
    pub given_up_ms: Option<NowMs>,
}

/// Why a try did not succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    pub reason: String,
    /// The receiver answered 410 Gone: it wants nothing more.
    pub gone: bool,
}

/// Why kept rows are not believed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RowsError {
    #[error("a row has the key {0:?}, which is none of ours")]
    Key(Vec<u8>),
    #[error("the row {key:?}: {reason}")]
    Value { key: Vec<u8>, reason: String },
    #[error("there is a delivery of {0}, though no award was looked at")]
    NotBegun(MarkedPosition),
    #[error("row {0:?} is listed twice")]
    Twice(Vec<u8>),
}

#[derive(Serialize, Deserialize)]
struct StateRow {
    begun: bool,
    index: u64,
    at: u64,
    counter: u64,
    held: Option<bool>,
    /// Left out by versions that did not disable receivers.
    #[serde(default)]
    disabled_ms: Option<NowMs>,
    /// Left out by versions before there were births.
    #[serde(default)]
    birth: Option<Birth>,
}

/// The deliveries of one receiver.
#[derive(Debug)]
pub struct Queue {
    limits: Limits,
    begun: bool,
    /// The last award that was looked at; behind it are those to come.
    position: MarkedPosition,
    /// The operator's setting; until then the configuration decides.
    held: Option<bool>,
    /// Since when nothing is sent, because the receiver answered 410 Gone. Deliveries stay open until an operator releases them.
    disabled_ms: Option<NowMs>,
    open: BTreeMap<MarkedPosition, Delivery>,
    dead: BTreeMap<MarkedPosition, Delivery>,
    /// Of the open ones, those under way.
    sending: BTreeSet<MarkedPosition>,
    changed: BTreeSet<MarkedPosition>,
    state_changed: bool,
}

impl Delivery {
    /// A delivery that is due at once.
    pub fn new(id: String, counter: String, at: u64, body: String) -> Delivery {
        let attempts = 0;
        let tried_ms = None;
        let due_ms = 0;
        let last_error = None;
        let given_up_ms = None;
        Delivery { id, counter, at, body, attempts, tried_ms, due_ms, last_error, given_up_ms }
    }

    /// As if it had not been tried.
    fn anew(&mut self) {
        (self.attempts, self.tried_ms, self.due_ms, self.given_up_ms) = (0, None, 0, None);
    }
}

impl Queue {
    /// The kept deliveries; none at first.
    pub fn load(limits: Limits, rows: Rows) -> Result<Queue, RowsError> {
        let position = MarkedPosition { birth: None, position: AwardPosition::default() };
        let (open, dead, sending, changed) = Default::default();
        let begun = false;
        let held = None;
        let disabled_ms = None;
        let state_changed = false;
        let mut queue =
            Queue { limits, begun, position, held, disabled_ms, open, dead, sending, changed, state_changed };
        let mut seen = BTreeSet::new();
        for (key, value) in rows {
            if !seen.insert(key.clone()) {
                return Err(RowsError::Twice(key));
            }
            if key == STATE_KEY {
                let StateRow { begun, index, at, counter, held, disabled_ms, birth } = read(&key, &value)?;
                (queue.begun, queue.held, queue.disabled_ms) = (begun, held, disabled_ms);
                queue.position = MarkedPosition { birth, position: AwardPosition { index, at, counter } };
            } else {
                let position = position_of(&key).ok_or_else(|| RowsError::Key(key.clone()))?;
                let delivery: Delivery = read(&key, &value)?;
                let kind = if delivery.given_up_ms.is_some() { &mut queue.dead } else { &mut queue.open };
                kind.insert(position, delivery);
            }
        }
        match queue.open.keys().chain(queue.dead.keys()).next() {
            Some(delivery) if !queue.begun => Err(RowsError::NotBegun(*delivery)),
            _ => Ok(queue),
        }
    }

    /// Whether it is known from where on awards are looked at.
    pub fn has_begun(&self) -> bool {
        self.begun
    }

    /// Awards behind `position` are to come.
    pub fn begin(&mut self, position: MarkedPosition) {
        debug_assert!(!self.begun, "what was looked at is known");
        (self.begun, self.position, self.state_changed) = (true, position, true);
    }

    /// Begins anew behind `position`, since the last award that was looked at is not part of the history any more. Queued awards are sent
    /// all the same: they were awarded.
    pub fn begin_anew(&mut self, position: MarkedPosition) {
        (self.begun, self.position, self.state_changed) = (true, position, true);
    }

    /// Awards that may be queued now.
    pub fn room(&self) -> usize {
        self.limits.open_max.saturating_sub(self.open.len())
    }

    /// The last award that was looked at.
    pub fn position(&self) -> MarkedPosition {
        self.position
    }

    /// Looks at the next award: to be delivered, or nothing to do with this receiver.
    pub fn look_at(&mut self, position: MarkedPosition, delivery: Option<Delivery>) {
        debug_assert!(position.position > self.position.position, "awards come in the order of their positions");
        self.position = position;
        let is_queued = self.open.contains_key(&position) || self.dead.contains_key(&position);
        if let Some(delivery) = delivery.filter(|_| !is_queued) {
            self.open.insert(position, delivery);
            self.changed.insert(position);
            // An award that was only looked at may be looked at again: it is no reason to write.
            self.state_changed = true;
        }
    }

    /// The deliveries to be sent now, which are under way from here on.
    pub fn start(&mut self, now: NowMs, held: bool) -> Vec<(MarkedPosition, Delivery)> {
        if self.rests(held) {
            return Vec::new();
        }
        let room = self.limits.at_once_max.saturating_sub(self.sending.len());
        let retry_max = millis(self.limits.retry_max);
        let is_due = |(position, delivery): &(&MarkedPosition, &Delivery)| {
            !self.sending.contains(position) && wait_of(delivery, now, retry_max) == 0
        };
        let due = self.open.iter().filter(is_due).take(room);
        let due: Vec<_> = due.map(|(position, delivery)| (*position, delivery.clone())).collect();
        self.sending.extend(due.iter().map(|(position, _)| *position));
        due
    }

    /// How long until [`Queue::start`] may have something, as far as time decides.
    pub fn wait(&self, now: NowMs, held: bool) -> Option<Duration> {
        if self.rests(held) || self.sending.len() >= self.limits.at_once_max {
            return None;
        }
        let retry_max = millis(self.limits.retry_max);
        let resting = self.open.iter().filter(|(position, _)| !self.sending.contains(position));
        resting.map(|(_, delivery)| wait_of(delivery, now, retry_max)).min().map(Duration::from_millis)
    }

    /// The receiver has it.
    pub fn on_delivered(&mut self, position: MarkedPosition) {
        self.sending.remove(&position);
        if self.open.remove(&position).is_some() {
            self.changed.insert(position);
        }
    }

    /// The receiver does not have it, as far as is known. `random` spreads the next tries of many over half of the wait. True if
    /// it is given up. A receiver that is gone gives nothing up: it is disabled, and its deliveries wait.
    pub fn on_failed(&mut self, position: MarkedPosition, failed: Failed, now: NowMs, random: u64) -> bool {
        self.sending.remove(&position);
        let full = self.dead.len() >= self.limits.dead_max;
        let Some(delivery) = self.open.get_mut(&position) else { return false };
        let tried = *delivery.tried_ms.get_or_insert(now);
        delivery.attempts = delivery.attempts.saturating_add(1);
        delivery.last_error = Some(cut(failed.reason));
        delivery.due_ms = now + backoff_ms(&self.limits, delivery.attempts, random);
        self.changed.insert(position);
        if failed.gone {
            self.disabled_ms.get_or_insert(now);
            self.state_changed = true;
            return false;
        }
        let over = now.saturating_sub(tried) >= millis(self.limits.give_up);
        if !over || full {
            return false;
        }
        if let Some(mut delivery) = self.open.remove(&position) {
            delivery.given_up_ms = Some(now);
            self.dead.insert(position, delivery);
        }
        true
    }

    /// Opens dead letters again, oldest first and as many as there is room for: all of them, or the one with this id. `None` if
    /// there is none with it.
    pub fn redeliver(&mut self, id: Option<&str>) -> Option<usize> {
        let wanted = |delivery: &Delivery| id.is_none_or(|id| delivery.id == id);
        let found = self.dead.iter().filter(|(_, delivery)| wanted(delivery)).map(|(position, _)| *position);
        let found: Vec<MarkedPosition> = found.take(self.room()).collect();
        if id.is_some_and(|id| !self.dead.values().any(|delivery| delivery.id == id)) {
            return None;
        }
        for position in &found {
            if let Some(mut delivery) = self.dead.remove(position) {
                delivery.anew();
                self.open.insert(*position, delivery);
                self.changed.insert(*position);
            }
        }
        Some(found.len())
    }

    /// Holds deliveries back, or releases them; then all are due at once, as if they had not been tried, and a receiver that was disabled
    /// is enabled again.
    pub fn hold(&mut self, held: bool) {
        self.held = Some(held);
        self.state_changed = true;
        if !held {
            self.disabled_ms = None;
            for (position, delivery) in self.open.iter_mut().filter(|(_, delivery)| delivery.attempts > 0) {
                delivery.anew();
                self.changed.insert(*position);
            }
        }
    }

    /// Whether deliveries are held, where the configuration says `held`.
    pub fn is_held(&self, held: bool) -> bool {
        self.held.unwrap_or(held)
    }

    /// Since when the receiver is disabled.
    pub fn disabled_ms(&self) -> Option<NowMs> {
        self.disabled_ms
    }

    /// Whether nothing is sent.
    fn rests(&self, held: bool) -> bool {
        self.disabled_ms.is_some() || self.is_held(held)
    }

    pub fn open(&self) -> impl ExactSizeIterator<Item = &Delivery> {
        self.open.values()
    }

    pub fn dead(&self) -> impl ExactSizeIterator<Item = &Delivery> {
        self.dead.values()
    }

    /// Requests under way.
    pub fn sending(&self) -> usize {
        self.sending.len()
    }

    /// The rows that changed since the last call.
    pub fn take_changes(&mut self) -> Vec<RowChange> {
        let state = std::mem::take(&mut self.state_changed).then(|| {
            let MarkedPosition { birth, position: AwardPosition { index, at, counter } } = self.position;
            let begun = self.begun;
            let held = self.held;
            let disabled_ms = self.disabled_ms;
            let state = StateRow { begun, index, at, counter, held, disabled_ms, birth };
            (STATE_KEY.to_vec(), Some(write(&state)))
        });
        let changed = std::mem::take(&mut self.changed).into_iter();
        let row = |position: MarkedPosition| {
            let delivery = self.open.get(&position).or_else(|| self.dead.get(&position));
            (key_of(position), delivery.map(write))
        };
        state.into_iter().chain(changed.map(row)).collect()
    }

    /// Panics when a rule is broken. Called after every step in tests.
    pub fn check_invariants(&self) {
        assert!(self.open.len() <= self.limits.open_max && self.dead.len() <= self.limits.dead_max);
        assert!(self.sending.len() <= self.limits.at_once_max);
        assert!(self.sending.iter().all(|position| self.open.contains_key(position)), "what is sent is open");
        assert!(self.open.keys().all(|position| !self.dead.contains_key(position)), "dead and open");
        assert!(self.begun || (self.open.is_empty() && self.dead.is_empty()), "queued before anything was looked at");
        assert!(self.open.values().all(|delivery| delivery.given_up_ms.is_none()));
        assert!(self.dead.values().all(|delivery| delivery.given_up_ms.is_some()));
    }
}

/// How long until a delivery is due. A delivery that is due later than the longest wait was put off before the clock was set back.
fn wait_of(delivery: &Delivery, now: NowMs, retry_max: u64) -> u64 {
    let wait = delivery.due_ms.saturating_sub(now);
    if wait > retry_max { 0 } else { wait }
}

/// Doubled from try to try up to the longest; of which a random half is taken off.
fn backoff_ms(limits: &Limits, attempts: u32, random: u64) -> u64 {
    let doublings = attempts.saturating_sub(1).min(32);
    let wait = millis(limits.first_retry).saturating_mul(1 << doublings).min(millis(limits.retry_max));
    let least = wait / 2;
    least + random % (wait - least + 1)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn cut(mut text: String) -> String {
    if text.len() > ERROR_BYTES_MAX {
        let end = (0..=ERROR_BYTES_MAX).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        text.truncate(end);
    }
    text
}

/// Keys of one birth are in the order of positions. Keys from before there were births have none.
fn key_of(position: MarkedPosition) -> Vec<u8> {
    let MarkedPosition { birth, position: AwardPosition { index, at, counter } } = position;
    let birth = birth.map(|birth| birth.0.get().to_be_bytes());
    let numbers = [index, at, counter].map(u64::to_be_bytes);
    [&[DELIVERY_KEY], birth.as_slice().as_flattened(), numbers.as_flattened()].concat()
}

fn position_of(key: &[u8]) -> Option<MarkedPosition> {
    let (&DELIVERY_KEY, rest) = key.split_first()? else { return None };
    let (numbers, []) = rest.as_chunks::<8>() else { return None };
    let numbers: Vec<u64> = numbers.iter().copied().map(u64::from_be_bytes).collect();
    let (birth, index, at, counter) = match numbers[..] {
        [index, at, counter] => (None, index, at, counter),
        [birth, index, at, counter] => (Some(Birth(NonZeroU64::new(birth)?)), index, at, counter),
        _ => return None,
    };
    Some(MarkedPosition { birth, position: AwardPosition { index, at, counter } })
}

fn write(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("rows are JSON")
}

fn read<T: for<'de> Deserialize<'de>>(key: &[u8], value: &[u8]) -> Result<T, RowsError> {
    serde_json::from_slice(value).map_err(|error| RowsError::Value { key: key.to_owned(), reason: error.to_string() })
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
