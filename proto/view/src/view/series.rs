//! Series of cells: how namespaces keep them, how far they have expired here, and the rows of all components.
//!
//! A view expires by its own clock. Rows may come before this replica of the ledger knows how their namespace keeps series: then
//! all their buckets are kept until it does. Old buckets may be on disk only ([`shelved`](super::shelved)): a row here then has
//! the newer buckets, and those raised since.

use super::cells::{Cells, component_hash};
use super::shelved::{HeldRow, Shelving};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use tidemark_ledger::ledger::Ledger;
use tidemark_types::ids::{CounterName, DcId, Half, ValveId};
use tidemark_types::numbers::Numbers;
use tidemark_types::row_changes::{Part, part_of};
use tidemark_types::series::{BucketId, Horizon, Row, SeriesPolicy, UnixTime};
use tidemark_types::table::{CellTable, NamespacePlaces};
use tidemark_types::teeth::{Bug, bites};
use tidemark_types::warm;
use tidemark_wire::msg::SeriesTerms;

const DAY_S: u64 = 86_400;
const NO_ROW: u32 = u32::MAX;
/// Rows that are swept of expired buckets whenever the clock moves.
const SWEPT_AT_ONCE: usize = 4_096;

/// How a namespace keeps series, and how far they have expired in a view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeriesView {
    pub policy: SeriesPolicy,
    pub horizon: Horizon,
    /// The time from which the namespace keeps them so: earlier counts may be in totals only.
    pub since: UnixTime,
}

/// A row was raised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowRaised {
    /// The row's number in this view.
    pub number: u32,
    /// The changed parts, as they are told to peers.
    pub parts: Vec<Part>,
}

#[derive(Clone, Debug)]
pub(super) struct Space {
    namespace: String,
    revision: u64,
    pub view: SeriesView,
}

#[derive(Clone, Debug)]
pub(super) struct Held {
    pub slot: u32,
    pub valve: u16,
    /// The number of buckets on the shelf, about.
    pub shelved: u16,
    /// The next row of the same slot.
    next: u32,
    /// In minutes since 1970: buckets that ended by then may be on the shelf. 0: none are.
    pub shelved_until: u32,
    pub row: Row,
}

#[derive(Clone, Debug)]
pub(super) struct Series {
    pub now: UnixTime,
    pub spaces: Vec<Space>,
    /// In `spaces`.
    places: NamespacePlaces,
    pub rows: Vec<Held>,
    /// By slot: its first row.
    heads: Vec<u32>,
    /// By data centre and by day of expiry: sums of hashes of all buckets.
    pub sums: BTreeMap<(DcId, u32), u64>,
    /// Rows that are not on disk as they are.
    pub dirty: Numbers,
    /// Rows of ended cells that had the slot before. They have no buckets, and the next new row of the slot takes their place.
    vacant: Numbers,
    pub shelving: Shelving,
    pub everything: Horizon,
    sweep_next: usize,
}

impl Default for Series {
    fn default() -> Series {
        Series {
            now: UnixTime::default(),
            spaces: Vec::new(),
            places: NamespacePlaces::default(),
            rows: Vec::new(),
            heads: Vec::new(),
            sums: BTreeMap::new(),
            dirty: Numbers::default(),
            vacant: Numbers::default(),
            shelving: Shelving::default(),
            everything: Horizon::everything(),
            sweep_next: 0,
        }
    }
}

impl Series {
    /// The same without rows; the kept and expired buckets stay the same.
    pub fn emptied(&self) -> Series {
        let shelving = self.shelving.emptied();
        Series { now: self.now, spaces: self.spaces.clone(), shelving, ..Series::default() }
    }

    /// The place of the space of a slot's counter.
    pub fn space_of(&mut self, slot: u32, table: &CellTable) -> Option<usize> {
        self.places.of(slot, table, &self.spaces, |space| &space.namespace).map(usize::from)
    }

    fn number(&self, slot: u32, valve: u16) -> Option<u32> {
        self.numbers(slot).find(|&number| self.rows[number as usize].valve == valve)
    }

    /// The rows of a slot's present cell.
    fn numbers(&self, slot: u32) -> impl Iterator<Item = u32> + '_ {
        self.all_numbers(slot).filter(|&number| !self.vacant.contains(number))
    }

    /// All rows of a slot, including vacant rows.
    fn all_numbers(&self, slot: u32) -> impl Iterator<Item = u32> + '_ {
        let first = self.heads.get(slot as usize).copied().filter(|&number| number != NO_ROW);
        std::iter::successors(first, |&number| Some(self.rows[number as usize].next).filter(|&next| next != NO_ROW))
    }

    /// Finds or adds the row of a slot and a valve. `valves` are the valves of the view, and `cells` is its number of cells.
    fn number_or_new(&mut self, slot: u32, valve: u16, valves: &[ValveId], cells: u32) -> u32 {
        if let Some(number) = self.number(slot, valve) {
            return number;
        }
        let Some(number) = self.vacant_of(slot, valve, valves) else { return self.push(slot, valve, cells) };
        self.vacant.remove(number);
        self.rows[number as usize].valve = valve;
        self.dirty.insert(number);
        number
    }

    /// A vacant row of a slot for a valve. It belonged to the same data centre, because pending changes may name its number.
    fn vacant_of(&self, slot: u32, valve: u16, valves: &[ValveId]) -> Option<u32> {
        if self.vacant.is_empty() || bites(Bug::RowsKept) {
            return None;
        }
        let dc = |valve: u16| valves[usize::from(valve)].group.dc;
        let mut vacant = self.all_numbers(slot).filter(|&number| self.vacant.contains(number));
        vacant.find(|&number| dc(self.rows[number as usize].valve) == dc(valve))
    }

    /// Appends a row.
    fn push(&mut self, slot: u32, valve: u16, cells: u32) -> u32 {
        let at = slot as usize;
        if self.rows.is_empty() {
            // With series most cells have a row, and growing copies all of them. Unused room takes no memory.
            self.rows.reserve_exact(cells as usize);
            self.heads.reserve_exact(cells as usize);
        }
        if at >= self.heads.len() {
            self.heads.resize(at + 1, NO_ROW);
        }
        let number = self.rows.len() as u32;
        let next = std::mem::replace(&mut self.heads[at], number);
        self.rows.push(Held { slot, valve, shelved: 0, next, shelved_until: 0, row: Row::default() });
        number
    }

    /// Makes a row vacant, because its cell has ended. The row has no buckets, and has to be written.
    pub(super) fn clear(&mut self, number: u32) {
        self.vacant.insert(number);
        let held = &mut self.rows[number as usize];
        self.shelving.bytes -= held.row.bucket_bytes();
        held.row = Row::default();
        self.shelving.take_off(number, held);
        self.dirty.insert(number);
    }

    /// Drops expired buckets of the next few rows.
    fn sweep(&mut self, table: &CellTable) {
        for _ in 0..SWEPT_AT_ONCE.min(self.rows.len()) {
            let at = if self.sweep_next < self.rows.len() { self.sweep_next } else { 0 };
            self.sweep_next = at + 1;
            let Some(space) = self.space_of(self.rows[at].slot, table) else { continue };
            let horizon = &self.spaces[space].view.horizon;
            let held = &mut self.rows[at];
            self.shelving.bytes -= held.row.bucket_bytes();
            if held.row.expire(horizon) > 0 {
                self.dirty.insert(at as u32);
            }
            self.shelving.bytes += held.row.bucket_bytes();
            if self.shelving.expire(at as u32, held, horizon) {
                self.dirty.insert(at as u32);
            }
        }
    }
}

/// The day on which a bucket expires, in days since 1970, where its granularity is kept.
pub(super) fn expires_on(policy: &SeriesPolicy, bucket: BucketId) -> Option<u32> {
    let kept = policy.retention().kept().iter().find(|kept| kept.granularity == bucket.granularity)?;
    Some(((bucket.end().s() + kept.ttl_s) / DAY_S) as u32)
}

pub(super) fn bucket_hash(key: u64, bucket: BucketId, value: u64) -> u64 {
    let id = u64::from(bucket.granularity.code()) << 32 | u64::from(bucket.index);
    component_hash(key ^ id.wrapping_mul(0x9e37_79b9_7f4a_7c15), value)
}

/// Parts that hold all of these buckets, which come fine to coarse.
pub fn parts_of(buckets: impl IntoIterator<Item = BucketId>) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut starts = BTreeSet::new();
    for bucket in buckets {
        let start = bucket.start();
        let end = bucket.end();
        if starts.range(start..end).next().is_none() {
            starts.insert(start);
            parts.push(Part::at(start));
        }
    }
    parts
}

impl Cells {
    /// How a namespace keeps series here; `None` if it keeps none.
    pub fn series_of(&self, namespace: &str) -> Option<&SeriesView> {
        self.series.spaces.iter().find(|space| space.namespace == namespace).map(|space| &space.view)
    }

    /// The horizon here of each namespace that keeps series.
    pub(super) fn horizons(&self) -> impl Iterator<Item = (String, Horizon)> + '_ {
        self.series.spaces.iter().map(|space| (space.namespace.clone(), space.view.horizon.clone()))
    }

    /// The kept buckets of the namespace of a slot's counter; everything if that is not known.
    pub fn horizon_of(&self, slot: u32) -> &Horizon {
        let name = self.table.namespaces().get(self.table.namespace_of(slot));
        let known = name.and_then(|name| self.series_of(name));
        known.map_or(&self.series.everything, |series| &series.horizon)
    }

    /// The rows of one half of a counter in a generation, each of one valve. Expired buckets may still be in them: read them by a
    /// cover that was planned with the namespace's horizon.
    pub fn rows(
        &self,
        counter: &CounterName,
        half: Half,
        generation: u32,
    ) -> impl Iterator<Item = (ValveId, Cow<'_, Row>)> + '_ {
        let slot = self.table.find_half(counter, half, generation);
        slot.into_iter()
            .flat_map(|slot| self.rows_of(slot))
            .map(|(_, valve, row)| (self.valves[usize::from(valve)], row))
    }

    /// The same for a reader of only some of their buckets.
    pub fn held_rows(
        &self,
        counter: &CounterName,
        half: Half,
        generation: u32,
    ) -> impl Iterator<Item = HeldRow<'_>> + '_ {
        let slot = self.table.find_half(counter, half, generation);
        slot.into_iter().flat_map(|slot| self.series.numbers(slot)).map(|number| self.series.held(number))
    }

    /// The rows of a slot: number, valve, row.
    pub fn rows_of(&self, slot: u32) -> impl Iterator<Item = (u32, u16, Cow<'_, Row>)> + '_ {
        self.row_numbers(slot).map(|(number, valve)| (number, valve, self.series.whole(number)))
    }

    /// The rows of a slot: number, valve.
    pub fn row_numbers(&self, slot: u32) -> impl Iterator<Item = (u32, u16)> + '_ {
        self.series.numbers(slot).map(|number| (number, self.series.rows[number as usize].valve))
    }

    /// The number of rows; their numbers are below.
    pub fn rows_len(&self) -> u32 {
        self.series.rows.len() as u32
    }

    /// A row by its number. Panics if it was never given.
    pub fn row(&self, number: u32) -> Cow<'_, Row> {
        self.series.whole(number)
    }

    /// The part of a row in memory, by its number. Panics if it was never given.
    pub(crate) fn row_in_memory(&self, number: u32) -> &Row {
        &self.series.rows[number as usize].row
    }

    /// The slot and the valve of a row, by its number. Panics if it was never given.
    pub fn row_place(&self, number: u32) -> (u32, u16) {
        let held = &self.series.rows[number as usize];
        (held.slot, held.valve)
    }

    /// These parts of a row, ascending, as far as they are kept.
    pub(crate) fn row_part(&self, number: u32, parts: &[Part]) -> Row {
        let held = &self.series.rows[number as usize];
        // Told parts are mostly buckets that still get counts.
        let horizon = self.horizon_of(held.slot);
        let is_here = parts.iter().all(|part| part.is_after(held.shelved_until, horizon));
        let row = if is_here { Cow::Borrowed(&held.row) } else { self.series.whole(number) };
        part_of(&row, horizon, parts)
    }

    /// Prefetches the memory of a slot that [`Cells::merge_row`] will read.
    pub(crate) fn warm_row(&self, slot: u32) -> u64 {
        let head = self.series.heads.get(slot as usize).copied().unwrap_or(NO_ROW);
        let row = self.series.rows.get(head as usize).map_or(0, |held| held.row.warm());
        self.table.warm(slot).wrapping_add(row)
    }

    /// Merges a part of a component's row: the maximum of both for each kept bucket. Returns the raised buckets. Panics on a slot
    /// or a valve that was never given.
    pub fn merge_row(&mut self, slot: u32, valve: u16, part: &Row) -> Option<RowRaised> {
        if self.over.contains(slot) {
            return None;
        }
        let space = self.series.space_of(slot, &self.table);
        let horizon = match space {
            Some(space) if !bites(Bug::ExpiredKept) => &self.series.spaces[space].view.horizon,
            _ => &self.series.everything,
        };
        // Every row that has a number is on disk.
        if !part.buckets().any(|(bucket, _)| horizon.keeps(bucket)) {
            return None;
        }
        let number = self.series.number_or_new(slot, valve, &self.valves, self.table.len());
        let Series { spaces, rows, everything, sums, dirty, shelving, .. } = &mut self.series;
        let space = space.map(|space| &spaces[space]);
        let kept = space.filter(|_| !bites(Bug::ExpiredKept)).map_or(&*everything, |space| &space.view.horizon);
        let key = self.cell_hashes[slot as usize] ^ self.valve_hashes[usize::from(valve)];
        let dc = self.valves[usize::from(valve)].group.dc;
        let held = &mut rows[number as usize];
        let buckets = shelving.merge(number, held, part, kept);
        if buckets.is_empty() {
            return None;
        }
        let row = &held.row;
        if let Some(space) = space {
            for &(bucket, by) in &buckets {
                let Some(day) = expires_on(&space.view.policy, bucket) else { continue };
                let value = row.get(bucket);
                let was = if value == by { 0 } else { bucket_hash(key, bucket, value - by) };
                let sum = sums.entry((dc, day)).or_default();
                *sum = sum.wrapping_add(bucket_hash(key, bucket, value)).wrapping_sub(was);
            }
        }
        dirty.insert(number);
        let parts = parts_of(buckets.iter().map(|&(bucket, _)| bucket));
        self.gathered.buckets.push((slot, buckets));
        Some(RowRaised { number, parts })
    }

    /// Takes the host's clock. If it goes back, the latest time stays.
    pub fn on_time(&mut self, now: UnixTime) {
        if now <= self.series.now || bites(Bug::ExpiredKept) {
            return;
        }
        self.series.now = now;
        for space in &mut self.series.spaces {
            space.view.horizon.advance(&space.view.policy, now);
        }
        let today = (now.s() / DAY_S) as u32;
        self.series.sums.retain(|&(_, day), _| day >= today);
        self.series.sweep(&self.table);
    }

    /// The latest time that the host's clock has shown.
    pub fn time(&self) -> UnixTime {
        self.series.now
    }

    /// Takes over how namespaces keep series, as the ledger has it here.
    pub fn take_series(&mut self, ledger: &Ledger) {
        let mut has_changed = false;
        for (namespace, terms) in ledger.series() {
            let known = self.series.spaces.iter().position(|space| space.namespace == namespace);
            if known.is_none_or(|at| self.series.spaces[at].revision < terms.revision) {
                self.take_terms(namespace, terms, known);
                has_changed |= self.table.namespaces().iter().any(|counted| counted == namespace);
            }
        }
        if has_changed {
            self.sum_anew();
        }
    }

    fn take_terms(&mut self, namespace: &str, terms: &SeriesTerms, known: Option<usize>) {
        let policy = terms.policy.clone();
        let since = terms.since;
        let revision = terms.revision;
        match known {
            Some(at) => {
                let space = &mut self.series.spaces[at];
                space.view.horizon.change(&policy, since);
                (space.view.policy, space.view.since, space.revision) = (policy, since, revision);
            }
            None => {
                // Buckets that an earlier life has dropped stay dropped: the time comes from the disk.
                let horizon = Horizon::begin(&policy, self.series.now);
                let view = SeriesView { policy, horizon, since };
                self.series.spaces.push(Space { namespace: namespace.to_owned(), revision, view });
                self.series.places.forget();
            }
        }
    }

    /// Sums all rows, by present terms; buckets that have expired by these are dropped.
    fn sum_anew(&mut self) {
        self.series.sums.clear();
        for number in 0..self.series.rows.len() {
            warm::ahead(&self.series.rows, number, |held| {
                let hash = self.cell_hashes[held.slot as usize];
                self.table.warm(held.slot).wrapping_add(held.row.warm()).wrapping_add(hash)
            });
            let slot = self.series.rows[number].slot;
            let valve = self.series.rows[number].valve;
            let Some(space) = self.series.space_of(slot, &self.table).map(|space| &self.series.spaces[space]) else {
                continue;
            };
            let row = &mut self.series.rows[number].row;
            self.series.shelving.bytes -= row.bucket_bytes();
            if row.expire(&space.view.horizon) > 0 {
                self.series.dirty.insert(number as u32);
            }
            self.series.shelving.bytes += row.bucket_bytes();
            let key = self.cell_hashes[slot as usize] ^ self.valve_hashes[usize::from(valve)];
            let dc = self.valves[usize::from(valve)].group.dc;
            for (bucket, value) in row.buckets() {
                let Some(day) = expires_on(&space.view.policy, bucket) else { continue };
                let sum = self.series.sums.entry((dc, day)).or_default();
                *sum = sum.wrapping_add(bucket_hash(key, bucket, value));
            }
        }
        self.sum_shelved();
    }

    /// Sum over all buckets of a data centre that expire after a day (in days since 1970) of a hash of (cell, valve, bucket,
    /// value). Equal in two views that hold the same and keep series alike.
    pub fn row_hash_of(&self, dc: DcId, after_day: u32) -> u64 {
        let behind = self.series.sums.range((dc, after_day.saturating_add(1))..=(dc, u32::MAX));
        behind.fold(0, |sum, (_, hash)| sum.wrapping_add(*hash))
    }

    /// No side with a clock less than a day ahead has dropped buckets that expire after this day.
    pub fn comparable_after_day(&self) -> u32 {
        (self.series.now.s() / DAY_S) as u32 + 1
    }

    /// Numbers of rows that are to be persisted; none is left.
    pub(crate) fn take_dirty_rows(&mut self) -> Numbers {
        self.series.dirty.take()
    }

    /// Whether rows are to be persisted.
    pub fn has_dirty_rows(&self) -> bool {
        !self.series.dirty.is_empty()
    }

    /// Loads a row from disk, under the next number. False: the number is not the next, or its component already has a row.
    ///
    /// A row without buckets is vacant. Its component may have another row by now, because a crash can come between the writes of both
    /// rows.
    pub fn load_row(&mut self, number: u32, slot: u32, valve: u16, row: Row) -> bool {
        let is_alone = row.is_empty() || self.series.number(slot, valve).is_none();
        let is_next = number == self.rows_len() && is_alone;
        if is_next {
            self.series.push(slot, valve, self.table.len());
            if row.is_empty() {
                self.series.vacant.insert(number);
            }
            self.series.shelving.bytes += row.bucket_bytes();
            self.series.rows[number as usize].row = row;
        }
        is_next
    }

    /// Marks a loaded row as not vacant, because it has evicted buckets on disk. False: the row does not exist, or its component has
    /// another row.
    pub(super) fn occupy(&mut self, number: u32) -> bool {
        let Some(held) = self.series.rows.get(number as usize) else { return false };
        let is_alone = self.series.number(held.slot, held.valve).is_none_or(|other| other == number);
        self.series.vacant.remove(number);
        is_alone
    }

    /// Bytes allocated for rows.
    pub(super) fn series_heap_bytes(&self) -> usize {
        let rows = self.series.rows.iter().map(|held| held.row.heap_bytes()).sum::<usize>();
        rows + self.series.rows.capacity() * size_of::<Held>() + 4 * self.series.heads.capacity()
    }

    /// Panics when rows, lists or sums are wrong. Walks everything.
    pub(super) fn check_series(&self) {
        for (at, held) in self.series.rows.iter().enumerate() {
            held.row.check_invariants();
            self.series.whole(at as u32).check_invariants();
            match self.series.vacant.contains(at as u32) {
                true => assert!(held.row.is_empty() && held.shelved_until == 0, "a vacant row has no buckets"),
                false => {
                    assert_eq!(self.series.number(held.slot, held.valve), Some(at as u32), "a component has one row")
                }
            }
        }
        let bytes = self.series.rows.iter().map(|held| held.row.bucket_bytes()).sum::<usize>();
        assert_eq!(bytes, self.series.shelving.bytes, "bytes of rows");
        let shelved = self.series.rows.iter().filter(|held| held.shelved_until > 0).count();
        assert_eq!(shelved, self.rows_shelved(), "rows of which something is on the shelf");
        let mut anew = self.clone();
        anew.sum_anew();
        let today = (self.series.now.s() / DAY_S) as u32;
        let of = |cells: &Cells| -> BTreeMap<(DcId, u32), u64> {
            let behind = cells.series.sums.iter().filter(|&(&(_, day), &sum)| day > today && sum != 0);
            behind.map(|(&key, &sum)| (key, sum)).collect()
        };
        assert_eq!(of(&anew), of(self), "sums of hashes of buckets");
    }
}
