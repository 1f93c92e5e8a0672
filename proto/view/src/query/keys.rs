//! Counters in the order of their names: ranges and prefixes of keys, page by page.
//!
//! The order stands beside a table of cells and not in it: counting never looks at it. The first request for a range lets it
//! catch up with newer names, in bounded steps. A key takes 4 to 8 bytes.

use crate::view::Cells;
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use tidemark_types::ids::CounterName;
use tidemark_types::table::CellTable;

/// Slots of one run; a full one is cut in halves, so each addition moves 2 KiB at most.
const RUN_SLOTS_MAX: usize = 512;

/// The slots of a table, one of each counter, in the order of namespace and key.
#[derive(Clone, Debug, Default)]
pub struct KeyOrder {
    /// Ascending; none is empty.
    runs: Vec<Vec<u32>>,
    /// Slots below `seen` are in the order, and so are the first `seen_again` reused slots.
    seen: u32,
    seen_again: usize,
    /// The life of the shard's cells that they belong to.
    life: u32,
}

/// Keys of one namespace, in byte order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRange {
    pub namespace: String,
    pub prefix: Vec<u8>,
    /// Only keys behind this one: where the page before ended.
    pub after: Option<Vec<u8>>,
    /// Only keys before this one.
    pub before: Option<Vec<u8>>,
}

/// Some counters of a range, ascending.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    pub counters: Vec<CounterName>,
    /// Where the next page begins ([`KeyRange::after`]); `None`: there is nothing more.
    pub next: Option<Vec<u8>>,
}

impl Page {
    /// This page of a range and another one of the same: as far as both have come, in order, each counter once.
    pub fn joined(self, other: Page) -> Page {
        let next = match (self.next, other.next) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        let mut counters: Vec<CounterName> = self.counters.into_iter().chain(other.counters).collect();
        counters.sort_unstable_by(|one, other| one.key().cmp(other.key()));
        counters.dedup();
        counters.retain(|counter| next.as_deref().is_none_or(|next| counter.key() <= next));
        Page { counters, next }
    }

    /// Its first counters, at most `most`.
    pub fn cut(mut self, most: usize) -> Page {
        if let Some(last) = most.checked_sub(1).filter(|_| self.counters.len() > most) {
            self.next = Some(self.counters[last].key().to_vec());
            self.counters.truncate(most);
        }
        self
    }
}

impl KeyOrder {
    /// Adds at most `most` further cells of a shard, and returns whether all cells are added. Restarts if the known slots are of another
    /// [life](Cells::life) of these cells. Leaves ended cells out, because a new cell may get their slot.
    pub fn follow(&mut self, cells: &Cells, most: u32) -> bool {
        if self.life != cells.life() {
            *self = KeyOrder { life: cells.life(), ..KeyOrder::default() };
        }
        if !self.catch_up_with(cells.table(), most, |slot| !cells.is_over(slot)) {
            return false;
        }
        for &slot in cells.reused_slots().iter().skip(self.seen_again).take(most as usize) {
            self.seen_again += 1;
            if let Some(name) = cells.table().counter_of_total(slot) {
                self.insert(cells.table(), slot, name);
            }
        }
        self.seen_again == cells.reused_slots().len()
    }

    /// Takes in at most `most` further slots of the table, always the same one, and says whether that was all.
    pub fn catch_up(&mut self, table: &CellTable, most: u32) -> bool {
        self.catch_up_with(table, most, |_| true)
    }

    fn catch_up_with(&mut self, table: &CellTable, most: u32, is_taken: impl Fn(u32) -> bool) -> bool {
        let until = table.len().min(self.seen.saturating_add(most));
        while self.seen < until {
            let slot = self.seen;
            self.seen += 1;
            if let Some(name) = table.counter_of_total(slot).filter(|_| is_taken(slot)) {
                self.insert(table, slot, name);
            }
        }
        self.seen == table.len()
    }

    /// Number of counters.
    pub fn len(&self) -> usize {
        self.runs.iter().map(Vec::len).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Bytes allocated.
    pub fn heap_bytes(&self) -> usize {
        self.runs.capacity() * size_of::<Vec<u32>>() + self.runs.iter().map(|run| 4 * run.capacity()).sum::<usize>()
    }

    fn insert(&mut self, table: &CellTable, slot: u32, name: (&str, &[u8])) {
        let (mut run, mut at) = self.position(table, |other| other.cmp(&name));
        if self.runs.get(run).and_then(|run| run.get(at)).is_some_and(|&held| name_of(table, held) == name) {
            return;
        }
        if self.runs.get(run).is_none_or(|_| at == 0) && run > 0 {
            (run, at) = (run - 1, self.runs[run - 1].len());
        }
        let is_last = run + 1 >= self.runs.len();
        match self.runs.get_mut(run) {
            None => self.runs.push(vec![slot]),
            // Names that come in order fill runs.
            Some(held) if held.len() == RUN_SLOTS_MAX && at == held.len() && is_last => self.runs.push(vec![slot]),
            Some(held) if held.len() == RUN_SLOTS_MAX => {
                let mut upper = held.split_off(RUN_SLOTS_MAX / 2);
                match at.checked_sub(held.len()) {
                    Some(at) => upper.insert(at, slot),
                    None => held.insert(at, slot),
                }
                self.runs.insert(run + 1, upper);
            }
            Some(held) => held.insert(at, slot),
        }
    }

    /// At most `most` counters, evenly spread over all, ascending; all of them, if there are no more.
    pub fn spread(&self, table: &CellTable, most: usize) -> Vec<CounterName> {
        let step = self.len().div_ceil(most.max(1)).max(1);
        let mut slots = Vec::new();
        let mut next = 0;
        for run in &self.runs {
            slots.extend(run.iter().skip(next).step_by(step).copied());
            next = if next < run.len() { (step - (run.len() - next) % step) % step } else { next - run.len() };
        }
        let name = |slot| {
            let (namespace, key) = name_of(table, slot);
            CounterName::new(namespace, key).expect("a counter of the table")
        };
        slots.into_iter().map(name).collect()
    }

    /// The first position with a name that is not less: run and place in it, or behind the last.
    fn position(&self, table: &CellTable, cmp: impl Fn((&str, &[u8])) -> Ordering) -> (usize, usize) {
        let is_less = |&slot: &u32| cmp(name_of(table, slot)) == Ordering::Less;
        let run = self.runs.partition_point(|run| run.last().is_some_and(is_less));
        (run, self.runs.get(run).map_or(0, |run| run.partition_point(is_less)))
    }

    /// The counters of a range, ascending.
    fn range<'a>(&'a self, table: &'a CellTable, keys: &'a KeyRange) -> impl Iterator<Item = &'a [u8]> {
        let from = keys.after.as_deref().unwrap_or(&keys.prefix).max(&keys.prefix);
        let (run, at) = self.position(table, |(namespace, key)| {
            let behind = if keys.after.as_deref() == Some(key) { Ordering::Less } else { Ordering::Equal };
            namespace.cmp(&keys.namespace).then_with(|| key.cmp(from)).then(behind)
        });
        let runs = self.runs.get(run..).unwrap_or_default().iter();
        let slots = runs.enumerate().flat_map(move |(nth, run)| run[if nth == 0 { at } else { 0 }..].iter());
        let names = slots.map(|&slot| name_of(table, slot));
        let before = keys.before.as_deref();
        let is_in = move |(namespace, key): &(&str, &[u8])| {
            *namespace == keys.namespace && key.starts_with(&keys.prefix) && before.is_none_or(|before| *key < before)
        };
        names.take_while(is_in).map(|(_, key)| key)
    }
}

/// The next counters of a range: at most `most` are looked at, and those that `exists` are in the page. Each order must have
/// caught up with the table beside it, or newer names are left out. The names of each table stand behind those of the one before
/// it.
pub fn scan(
    parts: &[(&KeyOrder, &CellTable)],
    keys: &KeyRange,
    most: usize,
    exists: impl Fn(&CounterName) -> bool,
) -> Page {
    page(keys, parts.iter().flat_map(|(order, table)| order.range(table, keys)), most, exists)
}

/// The same where the names of the tables stand between each other's: each part is looked into.
pub fn scan_across(
    parts: &[(&KeyOrder, &CellTable)],
    keys: &KeyRange,
    most: usize,
    exists: impl Fn(&CounterName) -> bool,
) -> Page {
    let mut heads: Vec<_> = parts.iter().map(|(order, table)| order.range(table, keys).peekable()).collect();
    let next = || {
        heads.retain_mut(|head| head.peek().is_some());
        let first = (0..heads.len()).min_by_key(|&at| heads[at].peek().copied())?;
        heads[first].next()
    };
    page(keys, std::iter::from_fn(next), most, exists)
}

/// The next of a range's keys, which ascend.
fn page<'a>(
    keys: &KeyRange,
    mut range: impl Iterator<Item = &'a [u8]>,
    most: usize,
    exists: impl Fn(&CounterName) -> bool,
) -> Page {
    let looked_at: Vec<&[u8]> = range.by_ref().take(most).collect();
    let names = looked_at.iter().filter_map(|key| CounterName::new(&keys.namespace, key).ok());
    let counters = names.filter(|counter| exists(counter)).collect();
    let next = range.next().and(looked_at.last()).map(|key| key.to_vec());
    Page { counters, next }
}

fn name_of(table: &CellTable, slot: u32) -> (&str, &[u8]) {
    table.counter_of_total(slot).expect("only totals are taken in")
}
