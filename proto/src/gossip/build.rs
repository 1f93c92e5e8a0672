//! Builds deltas: components of some cells of one origin, cut to a byte limit, in the numbers of one connection.

use super::peer::Bits;
use super::recent::Recent;
use crate::ids::{DcId, GroupId};
use crate::limits::{DELTA_GROUPS_MAX, MESSAGE_BYTES_MAX};
use crate::msg::Delta;
use crate::view::View;

/// Bytes of a delta that is told as a whole because it has one version; more is told by a walk.
const RUN_BYTES_MAX: usize = MESSAGE_BYTES_MAX / 2;

/// Cells for a delta, and what comes after them.
pub struct Cut {
    pub slots: Vec<u32>,
    /// After these, the receiver has the origin up to here.
    pub upto: u64,
}

/// A delta that says nothing yet.
pub fn empty(sender: u64, origin: DcId, epoch: u64) -> Delta {
    let (cells, groups, components) = (Vec::new(), Vec::new(), Vec::new());
    Delta { sender, origin, epoch, base: 0, upto: 0, walk: None, cells, groups, components }
}

/// The changes after `base`, whole versions up to about `bytes_max`. `None` when they must be walked instead.
pub fn cut(view: &View, origin: DcId, recent: &Recent, base: u64, upto: u64, named: &Bits, max: usize) -> Option<Cut> {
    if !recent.reaches(base) {
        return None;
    }
    let (mut slots, mut bytes) = (Vec::new(), 0);
    // Where the run of the present version begins, and the version before it.
    let (mut run, mut run_version, mut before_run) = (0, base, base);
    for (slot, version) in recent.since(base) {
        if version > run_version {
            if bytes >= max {
                return Some(Cut { slots, upto: run_version });
            }
            (run, before_run, run_version) = (slots.len(), run_version, version);
        }
        bytes += cell_bytes(view, origin, slot, named);
        if bytes > max && run > 0 {
            slots.truncate(run);
            return Some(Cut { slots, upto: before_run });
        }
        if bytes > RUN_BYTES_MAX {
            return None;
        }
        slots.push(slot);
    }
    Some(Cut { slots, upto })
}

/// The cells of a walk from `from` on, up to about `bytes_max` (at least one cell), and the slot after them.
pub fn cut_walk(view: &View, origin: DcId, from: u32, named: &Bits, bytes_max: usize) -> (Vec<u32>, u32) {
    let (mut slots, mut bytes, mut slot) = (Vec::new(), 0, from);
    while slot < view.cells() && bytes < bytes_max {
        if view.components_of(slot, origin).next().is_some() {
            bytes += cell_bytes(view, origin, slot, named);
            slots.push(slot);
        }
        slot += 1;
    }
    (slots, slot)
}

/// Fills in cells, groups and components; returns the slots that it names because they are not in `named`.
pub fn fill(view: &View, delta: &mut Delta, mut slots: Vec<u32>, named: &Bits) -> Vec<u32> {
    slots.sort_unstable();
    slots.dedup();
    let mut named_now = Vec::new();
    let mut found: Vec<(u32, u16, u8, u64)> = Vec::new();
    for &slot in &slots {
        for (valve, value) in view.components_of(slot, delta.origin) {
            let valve = view.valves()[usize::from(valve)];
            if let Some(index) = group_index(&mut delta.groups, valve.group) {
                found.push((slot, index, valve.lane, value));
            }
        }
        if !named.contains(slot) {
            named_now.push(slot);
            delta.cells.push((slot, view.name(slot)));
        }
    }
    let (mut before, groups) = (0, delta.groups.len() as u16);
    delta.components.reserve_exact(found.len());
    for (slot, index, lane, value) in found {
        delta.components.push((slot - before, u16::from(lane) * groups + index, value));
        before = slot;
    }
    named_now
}

/// The group's index in the delta. A cell that more than [`DELTA_GROUPS_MAX`] incarnations of one data centre counted is
/// told without the rest.
fn group_index(groups: &mut Vec<GroupId>, group: GroupId) -> Option<u16> {
    let at = groups.iter().rposition(|known| *known == group);
    match at {
        Some(at) => Some(at as u16),
        None if groups.len() < DELTA_GROUPS_MAX => {
            groups.push(group);
            Some(groups.len() as u16 - 1)
        }
        None => None,
    }
}

/// About the encoded size of a cell.
fn cell_bytes(view: &View, origin: DcId, slot: u32, named: &Bits) -> usize {
    let name = if named.contains(slot) { 0 } else { view.name_bytes(slot) + 12 };
    let component = |(_, value): (u16, u64)| 3 + (64 - value.leading_zeros() as usize).div_ceil(7);
    name + view.components_of(slot, origin).map(component).sum::<usize>()
}
