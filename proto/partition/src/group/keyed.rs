//! Batches of increments with ids: new increments are counted and remembered, and the others get their first answer.
//!
//! A known id counts nothing; it is answered with the place of the increment that had it first. With other content, or without
//! room for one more, only its own increments are refused. All new increments of a batch count, or the batch is refused.

use super::ids::Standing;
use super::{Effect, Group, Judged, Leased};
use tidemark_types::limits::IDS_LATE_AGES;
use tidemark_types::teeth::{Bug, bites};
use tidemark_wire::msg::{Batch, BatchError, IdAnswer, Item, ItemId, Keyed, Place};

/// The standing of an id in its group.
#[derive(Clone, Copy, Debug)]
enum Unit {
    /// Its increments are to be counted; the number of the first.
    Fresh(u32),
    /// They were counted before; the number of the first.
    Known(u32),
    Refused(IdAnswer),
}

/// The new increments of a batch, and for each its index in the batch and the number of its id.
#[derive(Default)]
struct Fresh {
    items: Vec<Item>,
    times: Vec<tidemark_types::series::UnixTime>,
    ids: Vec<(u32, u32)>,
}

/// The answer to a batch, as far as it is made of its stream's record.
struct Answer {
    pending: Vec<u32>,
    placed: Vec<(u32, Place)>,
    leased: Vec<Leased>,
}

impl Group {
    /// Ids remembered: one for each increment that has one.
    pub fn ids(&self) -> u32 {
        self.ids.len()
    }

    /// How ids are remembered.
    pub fn id_terms(&self) -> tidemark_wire::msg::IdTerms {
        self.ids.terms()
    }

    pub(super) fn on_keyed(&mut self, keyed: &Keyed, named: bool) {
        let Batch { client, lane, seq, .. } = keyed.batch;
        if let Err(error) = self.take_keyed(keyed, named) {
            self.effects.push_back(Effect::Refused { client, lane, seq, error });
        }
    }

    fn take_keyed(&mut self, keyed: &Keyed, named: bool) -> Result<(), BatchError> {
        let Keyed { batch, asked, ids } = keyed;
        let judged = self.judge(batch)?;
        let asked = *asked;
        let age = self.age;
        let late = IDS_LATE_AGES;
        if asked.saturating_add(late) < age && !bites(Bug::LateIdsTaken) {
            return Err(BatchError::IdsLate { asked, age, late });
        }
        let covered = ids.iter().map(|id| u64::from(id.items)).sum();
        let items = batch.items.len() as u64;
        if covered != items {
            return Err(BatchError::Ids { covered, items });
        }
        if !batch.times.is_empty() && batch.times.len() as u64 != items {
            return Err(BatchError::Times { times: batch.times.len() as u64, items });
        }
        match judged {
            Judged::Again { stream } => {
                let units: Vec<Unit> = ids.iter().map(|id| self.find_unit(id)).collect();
                let (pending, placed, leased) = self.standing_of(stream, batch.seq);
                self.answer_units(keyed, &units, Answer { pending, placed, leased });
                Ok(())
            }
            Judged::Next { known, stream } => self.count_units(keyed, named, known, stream),
        }
    }

    fn count_units(&mut self, keyed: &Keyed, named: bool, known: Option<u32>, stream: u8) -> Result<(), BatchError> {
        let Keyed { batch, ids, .. } = keyed;
        if ids.is_empty() {
            return Err(BatchError::Empty);
        }
        // As with a stream's fence: a start that is not confirmed may stand on an old copy of the disk.
        if ids.iter().any(|id| id.items == 0) && !self.confirmed {
            return Err(BatchError::NotServing("the group's start is not confirmed yet".to_owned()));
        }
        self.check_limits(batch, named, known.is_none())?;
        let mark = self.ids.mark();
        let units: Vec<Unit> = ids.iter().map(|id| self.enter_unit(id)).collect();
        let Fresh { items, times, ids: fresh } = fresh_of(keyed, &units);
        let counted = Batch { items, times, ..*batch };
        if let Err(error) = self.add_items(&counted) {
            self.ids.take_back(mark);
            return Err(in_batch(error, &fresh));
        }
        let number = self.streams.find_or_new(batch.client, stream, self.age);
        self.streams.get_mut(number).last = batch.seq;
        let (pending, leased) = match self.guards.is_empty() {
            true => Default::default(),
            false => self.place_items(&counted, number, Some(&fresh)),
        };
        if bites(Bug::CountedIdForgotten) {
            self.ids.take_back(mark);
        }
        self.answer_units(keyed, &units, Answer { pending, placed: Vec::new(), leased });
        Ok(())
    }

    /// The standing of an id; a new id is remembered.
    fn enter_unit(&mut self, id: &ItemId) -> Unit {
        if let Some(number) = self.ids.find(id) {
            return self.known_unit(number, id);
        }
        match self.ids.is_full(id.items.max(1)) {
            true => Unit::Refused(IdAnswer::Full { max: self.ids.terms().max }),
            false => {
                let number = self.ids.enter(id, self.age);
                if id.items == 0 { Unit::Refused(IdAnswer::Fenced) } else { Unit::Fresh(number) }
            }
        }
    }

    /// The same for a batch that was applied: for ids that are not there, there was no room.
    fn find_unit(&self, id: &ItemId) -> Unit {
        let full = Unit::Refused(IdAnswer::Full { max: self.ids.terms().max });
        self.ids.find(id).map_or(full, |number| self.known_unit(number, id))
    }

    fn known_unit(&self, number: u32, id: &ItemId) -> Unit {
        match self.ids.standing(number) {
            Some(Standing::Fenced) => Unit::Refused(IdAnswer::Fenced),
            _ if id.items == 0 => Unit::Refused(IdAnswer::Counted),
            _ if !self.ids.is_same(number, id) && !bites(Bug::OtherContentTaken) => Unit::Refused(IdAnswer::Other),
            _ => Unit::Known(number),
        }
    }

    /// Answers a batch with its own increments standing as `answer` says.
    fn answer_units(&mut self, keyed: &Keyed, units: &[Unit], mut answer: Answer) {
        let Batch { client, lane, seq, .. } = keyed.batch;
        let mut answers = Vec::new();
        let mut idx = 0;
        let own = answer.pending.len();
        for ((at, id), unit) in (0..).zip(&keyed.ids).zip(units) {
            let all = idx..idx + u32::from(id.items);
            idx = all.end;
            match unit {
                Unit::Fresh(_) => {}
                Unit::Refused(refused) => answers.push((at, *refused)),
                Unit::Known(first) => {
                    let is_open =
                        all.zip(*first..).any(|(idx, number)| self.stands_open(idx, number, own, &mut answer));
                    answers.push((at, if is_open { IdAnswer::Open } else { IdAnswer::Known }));
                }
            }
        }
        if !answers.is_empty() {
            self.effects.push_back(Effect::Ids { client, lane, seq, answers });
        }
        let Answer { mut pending, placed, leased } = answer;
        pending.sort_unstable();
        self.answer(client, lane, seq, pending, placed, leased);
    }

    /// Whether the place of an increment that counted before is not known yet, and will not be reported; else its place goes into
    /// the answer. The first `own` of the pending items are the batch's own: their places will be reported.
    fn stands_open(&mut self, idx: u32, number: u32, own: usize, answer: &mut Answer) -> bool {
        let is_own = answer.pending[..own].binary_search(&idx).is_ok();
        if is_own || answer.leased.iter().any(|leased| leased.idx == idx) {
            return false;
        }
        match self.ids.standing(number) {
            Some(Standing::Open) => true,
            Some(Standing::Leased) if self.is_leased_id(number) => true,
            Some(Standing::Leased) => {
                self.ids.set(number, Standing::Placed(Place::Counted));
                false
            }
            Some(Standing::Placed(place)) if place != Place::Counted => {
                answer.pending.push(idx);
                answer.placed.push((idx, place));
                false
            }
            Some(Standing::Placed(_) | Standing::Fenced) | None => false,
        }
    }
}

/// The increments of a batch that are to be counted.
fn fresh_of(keyed: &Keyed, units: &[Unit]) -> Fresh {
    let Keyed { batch, ids, .. } = keyed;
    let mut fresh = Fresh::default();
    let mut idx = 0;
    for (id, unit) in ids.iter().zip(units) {
        let all = idx..idx + u32::from(id.items);
        idx = all.end;
        let Unit::Fresh(first) = unit else { continue };
        fresh.ids.extend(all.clone().zip(*first..));
        let all = all.start as usize..all.end as usize;
        fresh.items.extend_from_slice(&batch.items[all.clone()]);
        fresh.times.extend(batch.times.get(all).into_iter().flatten());
    }
    fresh
}

/// An error of the counted items, about the item as the client sent it.
fn in_batch(error: BatchError, fresh: &[(u32, u32)]) -> BatchError {
    let sent = |idx: u32| fresh.get(idx as usize).map_or(idx, |(idx, _)| *idx);
    match error {
        BatchError::Delta { idx, delta, max } => BatchError::Delta { idx: sent(idx), delta, max },
        BatchError::Event { idx, why } => BatchError::Event { idx: sent(idx), why },
        other @ (BatchError::Gap { .. }
        | BatchError::Fenced { .. }
        | BatchError::Expired { .. }
        | BatchError::UnknownNamespace(_)
        | BatchError::UnknownNumber(_)
        | BatchError::Empty
        | BatchError::TooManyItems { .. }
        | BatchError::UnknownLane { .. }
        | BatchError::Overflow { .. }
        | BatchError::Overloaded { .. }
        | BatchError::NotServing(_)
        | BatchError::GrowOnly(_)
        | BatchError::Times { .. }
        | BatchError::IdsLate { .. }
        | BatchError::Ids { .. }) => other,
    }
}
