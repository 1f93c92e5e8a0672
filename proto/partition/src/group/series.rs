//! Series of one group: how namespaces keep them, and for each component of a counter that has any its row of buckets.
//!
//! The stamps of the log are the clock. An increment without an event time happens at its entry's stamp, or at the latest one
//! before, should a leader's clock have gone back.

use super::blocks::Blocks;
use super::cells::Cells;
use super::shelved::{Place, Shelving};
use super::{Group, GroupConfig};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use tidemark_types::ids::Half;
use tidemark_types::limits::{NAMESPACES_MAX, ROW_BUCKETS_MAX};
use tidemark_types::numbers::Numbers;
use tidemark_types::row_changes::{Part, RowChanges};
use tidemark_types::series::{Admission, Horizon, Places, Row, SeriesState, UnixTime};
use tidemark_types::table::{CellTable, GONE, NamespacePlaces};
use tidemark_types::teeth::{Bug, bites};
use tidemark_types::warm;
use tidemark_wire::msg::{Batch, BatchError, SeriesTerms};

/// Rows that are swept of expired buckets with each entry: a few thousand a second.
const SWEPT_PER_ENTRY: usize = 64;

/// How one namespace keeps series, as far as this group has heard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Space {
    pub namespace: String,
    /// The revision of its terms.
    pub revision: u64,
    pub state: SeriesState,
}

/// The series count of an item beside its total: the buckets that hold a time, by the state of a space.
pub(super) type Event = Option<(u16, UnixTime)>;

#[derive(Clone, Debug)]
pub(super) struct Series {
    /// The latest stamp of the log.
    clock: UnixTime,
    spaces: Vec<Space>,
    /// In `spaces`.
    places: NamespacePlaces,
    /// The places of the last addition: the rest of its entry happens at the same time mostly.
    last: Option<((u16, UnixTime), Places)>,
    /// By number of a component, the part of its row in memory; empty for components without a row.
    pub(super) rows: Vec<Row>,
    /// By version of the log.
    changes: RowChanges,
    pub(super) dirty: Blocks,
    pub(super) shelving: Shelving,
    saving: Option<Saving>,
    /// The component with the row that is swept next. Not replicated: expired buckets are not seen anyhow.
    sweep_next: usize,
}

/// Rows that a checkpoint saves as they were when it began, while counting continues: a row is set aside before it is changed.
#[derive(Clone, Debug)]
struct Saving {
    pending: Numbers,
    set_aside: Vec<SavedRow>,
    /// By place of a space, as it was then.
    horizons: Vec<Horizon>,
}

/// The row of a component for a checkpoint.
#[derive(Clone, Debug)]
pub(super) struct SavedRow {
    pub number: u32,
    pub side: u8,
    /// Without expired buckets, and cut so that each fits an encoding.
    pub pieces: Vec<Row>,
    /// Where the rest of it is.
    pub shelved: Option<Place>,
}

impl Series {
    /// For about as many changes as a ring of components remembers; empty as of a version.
    pub fn new(config: &GroupConfig, version: u64) -> Series {
        Series {
            clock: UnixTime::default(),
            spaces: Vec::new(),
            places: NamespacePlaces::default(),
            last: None,
            rows: Vec::new(),
            changes: RowChanges::growing(config.ring_capacity, config.ring_per_component, version),
            dirty: Blocks::default(),
            shelving: Shelving::default(),
            saving: None,
            sweep_next: 0,
        }
    }

    pub fn clock(&self) -> UnixTime {
        self.clock
    }

    pub fn spaces(&self) -> &[Space] {
        &self.spaces
    }

    /// The most granularities that a namespace keeps.
    pub fn granularities(&self) -> usize {
        self.spaces.iter().map(|space| space.state.horizon().first().len()).max().unwrap_or(0)
    }

    pub fn changes(&self) -> &RowChanges {
        &self.changes
    }

    /// See [`RowChanges::told`].
    pub fn told(&mut self, upto: Option<u64>) {
        self.changes.told(upto);
    }

    /// An entry was proposed at `now`.
    pub fn advance(&mut self, now: UnixTime, cells: &Cells) {
        self.clock = self.clock.max(now);
        self.last = None;
        for space in &mut self.spaces {
            space.state.advance(now);
        }
        self.sweep(cells);
    }

    /// Whether terms are new here.
    pub fn is_behind(&self, namespace: &str, terms: &SeriesTerms) -> bool {
        match self.spaces.iter().find(|space| space.namespace == namespace) {
            Some(space) => space.revision < terms.revision,
            None => self.spaces.len() < NAMESPACES_MAX,
        }
    }

    /// Goes by these terms from here on, if they are news.
    pub fn take_terms(&mut self, namespace: &str, terms: &SeriesTerms) {
        if !self.is_behind(namespace, terms) {
            return;
        }
        let policy = terms.policy.clone();
        let now = self.clock;
        let revision = terms.revision;
        match self.spaces.iter_mut().find(|space| space.namespace == namespace) {
            Some(space) => {
                space.state.change(policy, now);
                space.revision = revision;
            }
            None => {
                let state = SeriesState::new(policy, now);
                self.spaces.push(Space { namespace: namespace.to_owned(), revision, state });
            }
        }
        self.places.forget();
        self.last = None;
    }

    /// The place of the space of a slot's counter.
    pub(super) fn space_of(&mut self, slot: u32, table: &CellTable) -> Option<u16> {
        self.places.of(slot, table, &self.spaces, |space| &space.namespace)
    }

    /// The series count of each item of a batch beside its total; empty if no item has one. Error: one of the events is refused,
    /// and the batch with it.
    pub fn admit(&mut self, batch: &Batch, table: &CellTable) -> Result<Vec<Event>, BatchError> {
        if self.spaces.is_empty() {
            return Ok(Vec::new());
        }
        let slots = table.len();
        let mut events = Vec::with_capacity(batch.items.len());
        for (idx, item) in batch.items.iter().enumerate() {
            warm::ahead(&batch.items, idx, |item| table.warm(item.slot));
            let known = item.slot < slots && table.is_total(item.slot);
            let space = if known { self.space_of(item.slot, table) } else { None };
            let event = match (space, batch.times.get(idx)) {
                (None, _) => None,
                (Some(space), None) => Some((space, self.clock)),
                (Some(space), Some(&event)) => match self.spaces[usize::from(space)].state.admit(event) {
                    Ok(Admission::Bucketed) => Some((space, event)),
                    Ok(Admission::TotalOnly) => None,
                    Err(why) => return Err(BatchError::Event { idx: idx as u32, why }),
                },
            };
            events.push(event);
        }
        Ok(events)
    }

    /// Adds to the buckets of a component's row. The component has been raised by as much: so no bucket is too large.
    pub fn add(&mut self, number: u32, event: Event, delta: u64, version: u64) {
        let Some((space, event)) = event else { return };
        self.set_aside(number, Some(space));
        let at = number as usize;
        if at >= self.rows.len() {
            self.rows.resize_with(at + 1, Row::default);
        }
        let places = match &mut self.last {
            Some((of, places)) if *of == (space, event) => places,
            last => {
                let places = Places::of(self.spaces[usize::from(space)].state.horizon(), event);
                &mut last.insert(((space, event), places)).1
            }
        };
        let before = self.rows[at].bucket_bytes();
        let added = self.rows[at].add_to(places, delta);
        self.shelving.resized(before, &self.rows[at]);
        debug_assert!(added.is_ok(), "a bucket is part of its component");
        if added.is_ok_and(|touched| touched > 0) {
            self.changes.push(version, number, Part::at(event));
            self.dirty.set(number);
        }
    }

    /// Prefetches the memory of a component that [`Series::add`] will read.
    pub fn warm(&self, number: u32) -> u64 {
        self.rows.get(number as usize).map_or(0, Row::warm).wrapping_add(self.changes.warm(number))
    }

    /// The part in memory of the row of a component.
    pub fn row(&self, number: u32) -> Option<&Row> {
        self.rows.get(number as usize).filter(|row| !row.is_empty())
    }

    /// Rows by component number: those below this may have one.
    pub fn len(&self) -> u32 {
        self.rows.len() as u32
    }

    /// The kept buckets of the namespace of a slot's counter.
    pub fn horizon_of(&self, slot: u32, table: &CellTable) -> Option<&Horizon> {
        let name = table.namespaces().get(table.namespace_of(slot))?;
        self.spaces.iter().find(|space| space.namespace == *name).map(|space| space.state.horizon())
    }

    /// Drops expired buckets of the next few rows.
    fn sweep(&mut self, cells: &Cells) {
        if bites(Bug::ExpiredKept) {
            return;
        }
        for _ in 0..SWEPT_PER_ENTRY.min(self.rows.len()) {
            let at = if self.sweep_next < self.rows.len() { self.sweep_next } else { 0 };
            self.sweep_next = at + 1;
            self.expire(at as u32, cells);
        }
    }

    fn expire(&mut self, number: u32, cells: &Cells) {
        if self.row(number).is_none() && self.shelving.place(number).is_none() {
            return;
        }
        let Some(space) = self.space_of(cells.component(number).slot, &cells.table) else { return };
        self.set_aside(number, Some(space));
        let Series { rows, spaces, shelving, dirty, .. } = self;
        let row = &mut rows[number as usize];
        let horizon = spaces[usize::from(space)].state.horizon();
        let before = row.bucket_bytes();
        let is_changed = row.expire(horizon) > 0;
        shelving.resized(before, row);
        if shelving.expire(number, horizon) || is_changed {
            dirty.set(number);
        }
    }

    /// A checkpoint begins: [`Series::next_saved`] gives out the rows that changed since the last one began.
    pub fn begin_saving(&mut self) {
        self.begin_leaving();
        let horizons = self.spaces.iter().map(|space| space.state.horizon().clone()).collect();
        self.saving = Some(Saving { pending: self.dirty.begin(), set_aside: Vec::new(), horizons });
    }

    /// The next row of the checkpoint that has begun; `None` from when it has all of them.
    pub fn next_saved(&mut self, cells: &Cells) -> Option<SavedRow> {
        let saving = self.saving.as_mut()?;
        if let Some(row) = saving.set_aside.pop() {
            return Some(row);
        }
        let Some(number) = saving.pending.pop() else {
            self.saving = None;
            return None;
        };
        // Rows of an unfinished checkpoint may belong to a component that does not exist yet again.
        let slot = (number < cells.len()).then(|| cells.component(number).slot);
        let space = slot.and_then(|slot| self.space_of(slot, &cells.table));
        Some(self.saved(number, space))
    }

    /// The row of a component is about to change.
    fn set_aside(&mut self, number: u32, space: Option<u16>) {
        if bites(Bug::SavedLate) || !self.saving.as_mut().is_some_and(|saving| saving.pending.remove(number)) {
            return;
        }
        let row = self.saved(number, space);
        self.saving.as_mut().expect("it was there").set_aside.push(row);
    }

    fn saved(&self, number: u32, space: Option<u16>) -> SavedRow {
        let mut row = self.row(number).cloned().unwrap_or_default();
        self.horizon_then(space).map(|horizon| row.expire(horizon));
        let side = self.dirty.side(number);
        let shelved = self.shelving.place(number);
        SavedRow { number, side, pieces: row.pieces(ROW_BUCKETS_MAX).collect(), shelved }
    }

    /// The kept buckets of a space when the present checkpoint began.
    pub(super) fn horizon_then(&self, space: Option<u16>) -> Option<&Horizon> {
        let horizons = self.saving.as_ref().map_or(&[][..], |saving| &saving.horizons);
        space.and_then(|space| horizons.get(usize::from(space)))
    }

    /// Takes over a checkpoint's state of all rows. `None`: its parts do not belong together.
    pub fn load_spaces(&mut self, clock: UnixTime, spaces: Vec<Space>) -> Option<()> {
        let twice = |(at, space): (usize, &Space)| spaces[..at].iter().any(|other| other.namespace == space.namespace);
        let sound = spaces.iter().all(|space| space.state.is_sound()) && spaces.len() <= NAMESPACES_MAX;
        (sound && !spaces.iter().enumerate().any(twice)).then(|| (self.clock, self.spaces) = (clock, spaces))
    }

    /// Takes over a row of a checkpoint with this number of components: most of them will have a row.
    pub fn load_row(&mut self, number: u32, components: u32, side: u8, row: Row, shelved: Option<Place>) {
        let at = number as usize;
        if self.rows.is_empty() {
            self.rows.reserve_exact(components as usize);
        }
        if at >= self.rows.len() {
            self.rows.resize_with(at + 1, Row::default);
        }
        self.shelving.load(number, &row, shelved);
        self.rows[at] = row;
        self.dirty.loaded(number, side);
    }

    /// The row of this component stands on this side on disk.
    pub fn loaded_side(&mut self, number: u32, side: u8) {
        self.dirty.loaded(number, side);
    }

    /// An unfinished checkpoint has written a row of this component: the next one writes it again.
    pub fn load_leftover(&mut self, number: u32) {
        self.dirty.set(number);
    }

    /// Components have other numbers: `places` has that of each, or [`GONE`]. Nothing is being saved. All rows are to be written.
    pub fn compact(&mut self, places: &[u32], config: &GroupConfig) {
        debug_assert!(self.saving.is_none(), "a checkpoint is of the numbers of its beginning");
        self.shelving.compact(places);
        let before = std::mem::take(&mut self.rows);
        let count = before.len() as u32;
        for (row, &place) in before.into_iter().zip(places) {
            match place {
                GONE => self.shelving.dropped(&row),
                place => {
                    self.rows.resize_with(place as usize + 1, Row::default);
                    self.rows[place as usize] = row;
                }
            }
        }
        let place = |number: u32| Some(places[number as usize]).filter(|&place| place != GONE);
        self.changes = self.changes.renumbered(config.ring_capacity, place);
        (self.last, self.sweep_next) = (None, 0);
        // Also where there is no row any more: on disk there is one of another component.
        (0..count).for_each(|number| self.dirty.set(number));
    }

    pub fn heap_bytes(&self) -> usize {
        let rows = self.rows.iter().map(Row::heap_bytes).sum::<usize>();
        rows + self.rows.capacity() * size_of::<Row>() + self.shelving.heap_bytes() + self.changes.heap_bytes()
    }
}

impl Group {
    /// The latest stamp of the log.
    pub fn clock(&self) -> UnixTime {
        self.series.clock()
    }

    /// How a namespace keeps series, as far as this group has heard.
    pub fn series_of(&self, namespace: &str) -> Option<&SeriesState> {
        self.series.spaces().iter().find(|space| space.namespace == namespace).map(|space| &space.state)
    }

    /// The row of buckets of one component; `None` if it has none. Expired buckets may still be in it.
    pub fn buckets(&self, slot: u32, lane: u8) -> Option<Cow<'_, Row>> {
        let number = (slot < self.cells.table.len()).then(|| self.cells.number(slot, lane)).flatten()?;
        self.series.whole(number)
    }

    /// Panics when a row holds more than its component.
    pub(super) fn check_rows(&self) {
        self.series.check_bytes();
        for number in 0..self.series.len() {
            let Some(row) = self.series.whole(number) else { continue };
            row.check_invariants();
            let component = self.cells.component(number);
            let all = |granularity| row.sum(granularity, 0..u32::MAX);
            let most = row.buckets().map(|(bucket, _)| all(bucket.granularity)).max().unwrap_or_default();
            assert!(most <= component.value, "buckets of one granularity are parts of the component");
            let half = self.cells.table.name(component.slot).half;
            assert!(half == Half::Up || !self.updown.is_empty(), "only up/down counters have rows of the down half");
        }
    }
}

#[cfg(test)]
mod tests;
