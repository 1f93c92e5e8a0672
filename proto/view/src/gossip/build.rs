//! Builds deltas: components of some cells of one origin, cut to a byte limit, in the numbers of one connection.

use super::Origin;
use super::peer::Bits;
use crate::view::Cells;
use std::collections::BTreeSet;
use tidemark_types::ids::{AggregatorId, GroupId};
use tidemark_types::limits::{
    GROUPS_MAX, KEY_BYTES_MAX, MESSAGE_BYTES_MAX, NAMESPACE_BYTES_MAX, ROW_BUCKETS_MAX, VALVES_MAX,
};
use tidemark_types::row_changes::{Part, Parts};
use tidemark_types::series::Row;
use tidemark_types::teeth::{Bug, bites};
use tidemark_wire::msg::{Delta, IS_ROW};

/// Bytes of a delta that is told as a whole because it has one version; more is told by a walk.
const RUN_BYTES_MAX: usize = MESSAGE_BYTES_MAX / 2;

/// Most bytes of a component of the cell before it: difference, valve, value.
const COMPONENT_BYTES: usize = 1 + 3 + 9;
/// Most bytes of a group.
const GROUP_BYTES: usize = 3 + 3 + 5;
/// Most bytes of one cell that every valve has counted, with its name and all groups.
const CELL_BYTES_MAX: usize =
    VALVES_MAX * COMPONENT_BYTES + GROUPS_MAX * GROUP_BYTES + NAMESPACE_BYTES_MAX + KEY_BYTES_MAX + 64;
// Any components of one cell go into one delta, behind cells that nearly fill it.
const _: () = assert!(CELL_BYTES_MAX + super::DELTA_BYTES_DEFAULT < MESSAGE_BYTES_MAX);

/// Most bytes of a part of a row beside its buckets, and about those of one change of a row.
const ROW_BYTES: usize = 12;
const PART_BYTES: usize = 40;

/// The content of a delta: components of cells, and parts of rows.
#[derive(Default)]
pub struct Content {
    pub slots: Vec<u32>,
    pub rows: Parts,
}

/// Changes for a delta, and the changes after them.
pub struct Cut {
    pub content: Content,
    /// After these, the receiver has the origin up to here.
    pub upto: u64,
}

/// A piece of a walk, and where the next one begins.
pub struct Piece {
    pub content: Content,
    pub next: u32,
}

impl Piece {
    pub fn is_last(&self, cells: &Cells) -> bool {
        self.next >= IS_ROW + cells.rows_len()
    }
}

/// A delta that says nothing yet.
pub fn empty(sender: u64, origin: AggregatorId, epoch: u64) -> Delta {
    Delta { sender, origin, epoch, ..Delta::default() }
}

/// The changes after the delta's base, whole versions up to about `max` bytes. `None` when they must be walked instead.
pub fn cut(cells: &Cells, origin: &Origin, delta: &Delta, named: &Bits, max: usize) -> Option<Cut> {
    let Delta { base, upto, .. } = *delta;
    if !origin.recent.reaches(base) || !origin.rows.reaches(base) {
        return None;
    }
    let rows = rows_until(cells, origin, base, upto, max)?;
    let (slots, upto) = slots_until(cells, delta, origin, rows, named, max)?;
    let of_versions = origin.rows.since(base).take_while(|&(version, ..)| version <= upto);
    let mut content = Content { slots, rows: Parts::new() };
    for (_, number, part) in of_versions {
        content.rows.entry(number).or_default().insert(part);
    }
    Some(Cut { content, upto })
}

/// Up to which version changes of rows fit. `None` where those of one version do not.
fn rows_until(cells: &Cells, origin: &Origin, base: u64, upto: u64, max: usize) -> Option<u64> {
    let mut bytes = 0;
    let mut run = base;
    let mut before = base;
    for (version, number, part) in origin.rows.since(base).take_while(|&(version, ..)| version <= upto) {
        if version > run {
            if bytes >= max {
                return Some(run);
            }
            (before, run) = (run, version);
        }
        bytes += if part == Part::WHOLE { whole_bytes(cells, number) } else { PART_BYTES };
        if bytes > max && before > base {
            return Some(before);
        }
        if bytes > RUN_BYTES_MAX {
            return None;
        }
    }
    Some(upto)
}

/// The cells that changed in versions up to `upto`, as far as they fit, and up to which version that is.
fn slots_until(
    cells: &Cells,
    delta: &Delta,
    origin: &Origin,
    upto: u64,
    named: &Bits,
    max: usize,
) -> Option<(Vec<u32>, u64)> {
    let base = delta.base;
    let mut slots = Vec::new();
    let mut bytes = 0;
    // Where the run of the present version begins, and the version before it.
    let mut run = 0;
    let mut run_version = base;
    let mut before_run = base;
    for (slot, version) in origin.recent.since(base).take_while(|&(_, version)| version <= upto) {
        if version > run_version {
            if bytes >= max {
                return Some((slots, run_version));
            }
            (run, before_run, run_version) = (slots.len(), run_version, version);
        }
        bytes += cell_bytes(cells, delta.origin, slot, named);
        if bytes > max && run > 0 {
            slots.truncate(run);
            return Some((slots, before_run));
        }
        if bytes > RUN_BYTES_MAX {
            return None;
        }
        slots.push(slot);
    }
    Some((slots, upto))
}

/// The cells, or behind them the rows, of a walk from a position on, up to about `bytes_max` (at least one).
pub fn cut_walk(cells: &Cells, origin: AggregatorId, from: u32, named: &Bits, bytes_max: usize) -> Piece {
    let mut content = Content::default();
    let mut bytes = 0;
    let mut next = from;
    while next < cells.len() && bytes < bytes_max {
        if cells.components_of(next, origin.dc).next().is_some() {
            bytes += cell_bytes(cells, origin, next, named);
            content.slots.push(next);
        }
        next += 1;
    }
    if next >= cells.len() {
        next = next.max(IS_ROW);
    }
    while next >= IS_ROW && next < IS_ROW + cells.rows_len() && bytes < bytes_max {
        let number = next - IS_ROW;
        let (_, valve) = cells.row_place(number);
        if cells.valves()[usize::from(valve)].group.dc == origin.dc && !cells.row_is_empty(number) {
            let more = whole_bytes(cells, number);
            if bytes > 0 && bytes + more > RUN_BYTES_MAX {
                break;
            }
            bytes += more;
            content.rows.insert(number, [Part::WHOLE].into());
        }
        next += 1;
    }
    Piece { content, next }
}

/// Fills in cells, groups, components and rows; returns the slots that it names because they are not in `named`.
pub fn fill(cells: &Cells, delta: &mut Delta, content: Content, named: &Bits) -> Vec<u32> {
    let Content { mut slots, rows } = content;
    let told = slots.clone();
    slots.extend(rows.keys().map(|&number| cells.row_place(number).0));
    // A new cell may get the slot of an ended cell, and a peer gets the name of a slot only once.
    slots.retain(|&slot| !cells.is_over(slot));
    slots.sort_unstable_by_key(|&slot| cells.number(slot));
    slots.dedup();
    let told: BTreeSet<u32> = told.into_iter().collect();
    let mut named_now = Vec::new();
    let mut found: Vec<(u32, u32, u8, u64)> = Vec::new();
    for &slot in &slots {
        for (valve, value) in cells.components_of(slot, delta.origin.dc).filter(|_| told.contains(&slot)) {
            let valve = cells.valves()[usize::from(valve)];
            found.push((cells.number(slot), group_index(&mut delta.groups, valve.group), valve.lane, value));
        }
        if !named.contains(slot) {
            named_now.push(slot);
            delta.cells.push((cells.number(slot), cells.name(slot)));
        }
    }
    let parts = rows_of(cells, delta, &rows);
    let mut before = 0;
    let groups = delta.groups.len() as u32;
    delta.components.reserve_exact(found.len());
    for (number, index, lane, value) in found {
        delta.components.push((number - before, u32::from(lane) * groups + index, value));
        before = number;
    }
    before = 0;
    for (number, index, lane, row) in parts {
        delta.rows.push((number - before, u32::from(lane) * groups + index, row));
        before = number;
    }
    named_now
}

/// The parts of rows in a delta, in order of the number of their cell, with the index of their group and the lane.
fn rows_of(cells: &Cells, delta: &mut Delta, rows: &Parts) -> Vec<(u32, u32, u8, Row)> {
    let mut found = Vec::with_capacity(rows.len());
    for (&number, parts) in rows {
        let (slot, valve) = cells.row_place(number);
        let valve = cells.valves()[usize::from(valve)];
        let last = parts.last().copied().filter(|_| bites(Bug::LastPartOnly));
        let parts = last.map_or_else(|| parts.iter().copied().collect(), |last| vec![last]);
        let part = cells.row_part(number, &parts);
        if !part.is_empty() {
            let index = group_index(&mut delta.groups, valve.group);
            let of_cell = cells.number(slot);
            found.extend(part.pieces(ROW_BUCKETS_MAX).map(|piece| (of_cell, index, valve.lane, piece)));
        }
    }
    found.sort_by_key(|&(of_cell, ..)| of_cell);
    found
}

/// About the encoded size of a whole row.
fn whole_bytes(cells: &Cells, number: u32) -> usize {
    ROW_BYTES + cells.row_size_max(number)
}

/// The group's index in the delta. A view knows no more groups than a delta may name.
fn group_index(groups: &mut Vec<GroupId>, group: GroupId) -> u32 {
    let at = groups.iter().rposition(|known| *known == group);
    let at = at.unwrap_or_else(|| {
        groups.push(group);
        groups.len() - 1
    });
    at as u32
}

/// About the encoded size of a cell.
fn cell_bytes(cells: &Cells, origin: AggregatorId, slot: u32, named: &Bits) -> usize {
    let name = if named.contains(slot) { 0 } else { cells.name_bytes(slot) + 12 };
    let component = |(_, value): (u16, u64)| 3 + (64 - value.leading_zeros() as usize).div_ceil(7);
    name + cells.components_of(slot, origin.dc).map(component).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::MergeError;
    use tidemark_types::ids::{CounterName, DcId, ValveId};
    use tidemark_wire::msg::PeerMsg;
    use tidemark_wire::wire;

    #[test]
    fn a_cell_of_as_many_groups_as_there_may_be_is_told_whole_and_fits_a_message() {
        let mut cells = Cells::new(0);
        let slot = cells.slot(&CounterName::new("t", &[7; KEY_BYTES_MAX]).unwrap().total()).unwrap();
        let group = |n: usize| GroupId { dc: DcId(0), group: u16::MAX, incarnation: u32::MAX - n as u32 };
        for n in 0..VALVES_MAX {
            let lane = (n / GROUPS_MAX) as u8;
            let valve = cells.valve(ValveId { group: group(n % GROUPS_MAX), lane }).unwrap();
            cells.merge(slot, valve, tidemark_types::limits::COMPONENT_MAX - n as u64);
        }
        assert_eq!(cells.valve(ValveId { group: group(GROUPS_MAX), lane: 0 }), Err(MergeError::Valves));
        let mut delta = empty(u64::MAX, DcId(0).into(), u64::MAX);
        let content = Content { slots: vec![slot], ..Content::default() };
        fill(&cells, &mut delta, content, &Bits::default());
        assert_eq!((delta.groups.len(), delta.components.len()), (GROUPS_MAX, VALVES_MAX));
        let bytes = wire::encode(&PeerMsg::Delta(delta.clone()));
        assert!(bytes.len() <= CELL_BYTES_MAX, "{} bytes", bytes.len());
        assert_eq!(wire::decode::<PeerMsg>(&bytes), Ok(PeerMsg::Delta(delta)));
    }
}
