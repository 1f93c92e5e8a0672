//! Counters that began again, as far as one group has heard: the cell that an increment of theirs is added to.
//!
//! A batch may name a cell of an earlier generation: its client knew of no other, or it was proposed before the group heard. It
//! counts in the present generation all the same.
//!
//! A checkpoint does not list these counters: they follow from the table of names. The present generation of a counter is the
//! highest one with a named up half. Cells that were named before their generation began are an exception; those few are listed.

use super::Group;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use tidemark_types::ids::{Bucket, CellId, CounterName, Half};
use tidemark_types::limits::COUNTER_LIVES_MAX;
use tidemark_types::table::CellTable;
use tidemark_types::teeth::{Bug, bites};

/// Slots as bits.
#[derive(Clone, Debug, Default)]
pub(super) struct SlotSet(Vec<u64>);

impl SlotSet {
    pub fn insert(&mut self, slot: u32) {
        let word = slot as usize / 64;
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (slot % 64);
    }

    #[inline]
    pub fn contains(&self, slot: u32) -> bool {
        self.0.get(slot as usize / 64).is_some_and(|word| word >> (slot % 64) & 1 == 1)
    }
}

/// In place of a slot: increments of an ended generation count in a cell that is not named yet. Only a down half is ever so: few
/// counters have one. It is not named when its counter begins again, but by the next decrement.
pub(super) const NOWHERE: u32 = u32::MAX;

/// A generation of a counter and the slot of its up half, as a checkpoint's closing row has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Present {
    pub generation: u32,
    pub slot: u32,
}

/// The present generation of a counter that began again: the slots of both halves.
#[derive(Clone, Copy, Debug)]
struct Life {
    generation: u32,
    up: u32,
    down: u32,
}

/// A slot of an earlier generation: the place of its counter among the lives, and which half it is.
#[derive(Clone, Copy, Debug)]
struct Past {
    life: u32,
    half: Half,
}

/// Counters that began again.
#[derive(Clone, Debug, Default)]
pub(super) struct Generations {
    places: BTreeMap<CounterName, u32>,
    lives: Vec<Life>,
    past: BTreeMap<u32, Past>,
    is_past: SlotSet,
    /// Up halves that were named before their generation began, and their slots.
    ahead: BTreeMap<(CounterName, u32), u32>,
    /// All resets up to this number were heard of.
    heard: u64,
}

/// The generations in the closing row of a checkpoint.
#[derive(Debug)]
pub(super) enum SavedGenerations {
    /// Every counter that began again, with its present cell: formats before 9.
    All(Vec<(CounterName, Present)>),
    /// Cells that were named before their generation began; of every other counter the highest generation is the present one.
    Ahead(Vec<(CounterName, Present)>),
}

impl Generations {
    /// From a checkpoint; `None` if it is none of a table with these names.
    pub fn load(saved: SavedGenerations, table: &CellTable) -> Option<Generations> {
        let ahead = match saved {
            SavedGenerations::All(present) => return Generations::with_present(present, table),
            SavedGenerations::Ahead(ahead) => ahead,
        };
        let is_named = |(counter, of): &(CounterName, Present)| {
            of.generation > 0 && table.find_total(counter, of.generation) == Some(of.slot)
        };
        if !ahead.iter().all(is_named) {
            return None;
        }
        let ahead: BTreeMap<(CounterName, u32), u32> =
            ahead.into_iter().map(|(counter, of)| ((counter, of.generation), of.slot)).collect();
        let is_ahead: BTreeSet<u32> = ahead.values().copied().collect();
        let mut present: BTreeMap<CounterName, Present> = BTreeMap::new();
        for slot in table.later_totals().filter(|slot| !is_ahead.contains(slot)) {
            let CellId { counter, generation, half, .. } = table.name(slot);
            if half == Half::Down {
                continue;
            }
            let known = present.entry(counter).or_insert(Present { generation, slot });
            if generation > known.generation {
                *known = Present { generation, slot };
            }
        }
        Generations::with_present(present, table).map(|loaded| Generations { ahead, ..loaded })
    }

    fn with_present(
        present: impl IntoIterator<Item = (CounterName, Present)>,
        table: &CellTable,
    ) -> Option<Generations> {
        let mut loaded = Generations::default();
        for (counter, Present { generation, slot }) in present {
            let sound = generation > 0 && table.find_total(&counter, generation) == Some(slot);
            if !sound || loaded.places.contains_key(&counter) || loaded.lives.len() >= COUNTER_LIVES_MAX {
                return None;
            }
            let down = table.find_half(&counter, Half::Down, generation).unwrap_or(NOWHERE);
            loaded.places.insert(counter, loaded.lives.len() as u32);
            loaded.lives.push(Life { generation, up: slot, down });
        }
        loaded.find_past(table);
        Some(loaded)
    }

    /// Notes the cells of earlier generations: those of the first are looked up, all others have a generation in their names.
    fn find_past(&mut self, table: &CellTable) {
        let of_first = |(counter, &life): (&CounterName, &u32)| {
            let slots = [Half::Up, Half::Down].map(|half| (table.find_half(counter, half, 0), half));
            slots.into_iter().filter_map(move |(slot, half)| Some((slot?, Past { life, half })))
        };
        let of_later = |slot: u32| {
            let CellId { counter, generation, half, .. } = table.name(slot);
            let life = *self.places.get(&counter)?;
            (generation < self.lives[life as usize].generation).then_some((slot, Past { life, half }))
        };
        let first = self.places.iter().flat_map(of_first);
        let all: Vec<(u32, Past)> = first.chain(table.later_totals().filter_map(of_later)).collect();
        all.into_iter().for_each(|(slot, past)| self.redirect(slot, past));
    }

    /// For a checkpoint: cells that were named before their generation began.
    pub fn save_ahead(&self) -> Vec<(CounterName, Present)> {
        let ahead = self.ahead.iter();
        ahead
            .map(|((counter, generation), &slot)| (counter.clone(), Present { generation: *generation, slot }))
            .collect()
    }

    /// Every counter that began again, with its generation, and the target of every slot of an ended generation.
    #[cfg(test)]
    #[expect(clippy::type_complexity)]
    pub fn all(&self) -> (Vec<(CounterName, u32)>, Vec<(u32, u32)>) {
        let generation =
            |(counter, &life): (&CounterName, &u32)| (counter.clone(), self.lives[life as usize].generation);
        let past = self.past.keys().map(|&slot| (slot, self.slot_now(slot)));
        (self.places.iter().map(generation).collect(), past.collect())
    }

    fn life(&self, counter: &CounterName) -> Option<&Life> {
        if self.places.is_empty() {
            return None;
        }
        self.places.get(counter).map(|&life| &self.lives[life as usize])
    }

    /// The generation of a counter.
    pub fn of(&self, counter: &CounterName) -> u32 {
        self.life(counter).map_or(0, |life| life.generation)
    }

    /// Counters that began again.
    pub fn len(&self) -> usize {
        self.lives.len()
    }

    /// Slots of ended generations.
    pub fn past(&self) -> u32 {
        self.past.len() as u32
    }

    /// Whether a slot belongs to an ended generation: nothing counts in it any more.
    pub fn is_over(&self, slot: u32) -> bool {
        self.is_past.contains(slot)
    }

    /// The same counters in a table that has freed the slots of ended generations; `places` has the new slot of each.
    pub fn compacted(&self, places: &[u32]) -> Generations {
        let place = |slot: u32| if slot == NOWHERE { NOWHERE } else { places[slot as usize] };
        let life = |life: &Life| Life { up: place(life.up), down: place(life.down), ..*life };
        Generations {
            places: self.places.clone(),
            lives: self.lives.iter().map(life).collect(),
            ahead: self.ahead.iter().map(|(of, &slot)| (of.clone(), place(slot))).collect(),
            heard: self.heard,
            ..Generations::default()
        }
    }

    /// All resets up to this number were heard of.
    pub fn heard(&self) -> u64 {
        self.heard
    }

    /// As a checkpoint has it.
    pub fn load_heard(&mut self, heard: u64) {
        self.heard = heard;
    }

    /// Whether a message about resets behind one number up to another one is the next that was not heard of.
    pub fn is_next(&self, after: u64, upto: u64) -> bool {
        (after <= self.heard || bites(Bug::GapHeard)) && upto > self.heard
    }

    /// The slot in which an increment counts that names `slot`, or [`NOWHERE`].
    #[inline]
    pub fn slot_now(&self, slot: u32) -> u32 {
        if self.is_past.contains(slot) { self.present_of(slot) } else { slot }
    }

    fn present_of(&self, slot: u32) -> u32 {
        let Some(past) = self.past.get(&slot) else { return slot };
        let life = &self.lives[past.life as usize];
        match past.half {
            Half::Up => life.up,
            Half::Down => life.down,
        }
    }

    fn redirect(&mut self, slot: u32, past: Past) {
        self.past.insert(slot, past);
        self.is_past.insert(slot);
    }

    /// The counter is in a later generation. The place of its life.
    fn begin(&mut self, counter: &CounterName, next: Life) -> u32 {
        let upto = (counter.clone(), 0)..=(counter.clone(), next.generation);
        let named: Vec<u32> = self.ahead.extract_if(upto, |_, _| true).map(|(_, slot)| slot).collect();
        let at = self.put(counter, next);
        let over = named.into_iter().filter(|&slot| slot != next.up);
        over.for_each(|slot| self.redirect(slot, Past { life: at, half: Half::Up }));
        at
    }

    fn put(&mut self, counter: &CounterName, next: Life) -> u32 {
        if let Some(&at) = self.places.get(counter) {
            self.lives[at as usize] = next;
            return at;
        }
        let at = self.lives.len() as u32;
        self.places.insert(counter.clone(), at);
        self.lives.push(next);
        at
    }
}

impl Group {
    /// The number of times a counter began again, as far as this group has heard.
    pub fn generation(&self, counter: &CounterName) -> u32 {
        self.generations.of(counter)
    }

    /// Counters that began again, as far as this group has heard.
    pub fn lives(&self) -> usize {
        self.generations.len()
    }

    /// The cell in which a counter's increments (or, of the down half, decrements) count.
    pub fn cell_of(&self, counter: &CounterName, half: Half) -> CellId {
        counter.half_of(half, self.generations.of(counter))
    }

    /// The cell to be named before anything can count that names `slot`, if there is such a cell.
    #[inline]
    pub fn unnamed_cell_of(&self, slot: u32) -> Option<CellId> {
        (self.generations.slot_now(slot) == NOWHERE).then(|| {
            let CellId { counter, half, .. } = self.cells.table.name(slot);
            self.cell_of(&counter, half)
        })
    }

    /// All resets up to this number were heard of. A counter with a guard begins again by its account, which may come later.
    pub fn heard(&self) -> u64 {
        self.generations.heard
    }

    /// Counters began again: all with last resets between the two numbers.
    pub(super) fn on_generations(&mut self, after: u64, upto: u64, begun: &[(CounterName, u32)]) {
        // Takes each of them, even if one did not fit.
        let all = begun.iter().filter(|(counter, generation)| !self.on_generation(counter, *generation)).count() == 0;
        if all && self.generations.is_next(after, upto) {
            self.generations.heard = upto;
        }
    }

    /// A counter began again. False: the table is full, or too many did.
    fn on_generation(&mut self, counter: &CounterName, generation: u32) -> bool {
        self.guard_of(counter).is_some() || self.begin(counter, generation).is_some()
    }

    /// Begins a generation of a counter, if it is a later one; the slot of the present one. None: the table is full, or too many
    /// counters began again.
    pub(super) fn begin(&mut self, counter: &CounterName, generation: u32) -> Option<u32> {
        let before = self.generations.of(counter);
        if generation <= before {
            return self.intern(&counter.total_of(before)).ok();
        }
        let known = self.generations.life(counter).is_some();
        if !known && self.generations.len() >= COUNTER_LIVES_MAX {
            return None;
        }
        let slot = self.intern(&counter.total_of(generation)).ok()?;
        let table = &self.cells.table;
        let over = table.find_total(counter, before).filter(|_| !bites(Bug::ResetIgnored));
        let over_down = table.find_half(counter, Half::Down, before).filter(|_| !bites(Bug::ResetIgnoredByDown));
        let down = table.find_half(counter, Half::Down, generation).unwrap_or(NOWHERE);
        let life = self.generations.begin(counter, Life { generation, up: slot, down });
        over.into_iter().for_each(|slot| self.generations.redirect(slot, Past { life, half: Half::Up }));
        over_down.into_iter().for_each(|slot| self.generations.redirect(slot, Past { life, half: Half::Down }));
        self.effects.push_back(super::Effect::Began { counter: counter.clone() });
        Some(slot)
    }

    /// A batch that was proposed before the group heard of a reset may be the first to name a cell of an ended generation. A
    /// decrement may be the first to name the down half's present cell: increments that name an earlier cell count there.
    pub(super) fn on_named(&mut self, cell: &CellId, slot: u32) {
        let present = self.generations.of(&cell.counter);
        if cell.half == Half::Up && cell.generation > present && cell.bucket == Bucket::Total {
            self.generations.ahead.insert((cell.counter.clone(), cell.generation), slot);
        }
        let Some(&life) = self.generations.places.get(&cell.counter) else { return };
        if cell.generation < present {
            self.generations.redirect(slot, Past { life, half: cell.half });
        } else if cell.half == Half::Down && cell.generation == present {
            self.generations.lives[life as usize].down = slot;
        }
    }

    /// Whether a message about resets holds any that this group has not heard of.
    pub(super) fn is_behind(&self, generations: &[(CounterName, u32)]) -> bool {
        let news = |(counter, generation): &(CounterName, u32)| *generation > self.generations.of(counter);
        generations.iter().any(|begun| news(begun) && self.guard_of(&begun.0).is_none())
    }
}
