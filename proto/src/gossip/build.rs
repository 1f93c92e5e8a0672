//! Builds deltas: components of some cells of one origin, cut to a byte limit, in the numbers of one connection.

use super::peer::Bits;
use super::recent::Recent;
use crate::ids::{AggregatorId, GroupId};
use crate::limits::{GROUPS_MAX, KEY_BYTES_MAX, MESSAGE_BYTES_MAX, NAMESPACE_BYTES_MAX, VALVES_MAX};
use crate::msg::Delta;
use crate::view::View;

/// Bytes of a delta that is told as a whole because it has one version; more is told by a walk.
const RUN_BYTES_MAX: usize = MESSAGE_BYTES_MAX / 2;

/// Most bytes of a component of the cell before it: difference, valve, value.
const COMPONENT_BYTES: usize = 1 + 3 + 9;
/// Most bytes of a group.
const GROUP_BYTES: usize = 3 + 3 + 5;
/// Most bytes of one cell that every valve has counted, with its name and all groups.
const CELL_BYTES_MAX: usize =
    VALVES_MAX * COMPONENT_BYTES + GROUPS_MAX * GROUP_BYTES + NAMESPACE_BYTES_MAX + KEY_BYTES_MAX + 64;
// Whatever a view holds of one cell goes into one delta, behind cells that nearly fill it.
const _: () = assert!(CELL_BYTES_MAX + super::DELTA_BYTES_DEFAULT < MESSAGE_BYTES_MAX);

/// Cells for a delta, and what comes after them.
pub struct Cut {
    pub slots: Vec<u32>,
    /// After these, the receiver has the origin up to here.
    pub upto: u64,
}

/// A delta that says nothing yet.
pub fn empty(sender: u64, origin: AggregatorId, epoch: u64) -> Delta {
    Delta { sender, origin, epoch, ..Delta::default() }
}

/// The changes after `base`, whole versions up to about `bytes_max`. `None` when they must be walked instead.
pub fn cut(
    view: &View,
    origin: AggregatorId,
    recent: &Recent,
    base: u64,
    upto: u64,
    named: &Bits,
    max: usize,
) -> Option<Cut> {
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
pub fn cut_walk(view: &View, origin: AggregatorId, from: u32, named: &Bits, bytes_max: usize) -> (Vec<u32>, u32) {
    let (mut slots, mut bytes, mut slot) = (Vec::new(), 0, from);
    while slot < view.cells() && bytes < bytes_max {
        if view.components_of(slot, origin.dc).next().is_some() {
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
    let mut found: Vec<(u32, u32, u8, u64)> = Vec::new();
    for &slot in &slots {
        for (valve, value) in view.components_of(slot, delta.origin.dc) {
            let valve = view.valves()[usize::from(valve)];
            found.push((slot, group_index(&mut delta.groups, valve.group), valve.lane, value));
        }
        if !named.contains(slot) {
            named_now.push(slot);
            delta.cells.push((slot, view.name(slot)));
        }
    }
    let (mut before, groups) = (0, delta.groups.len() as u32);
    delta.components.reserve_exact(found.len());
    for (slot, index, lane, value) in found {
        delta.components.push((slot - before, u32::from(lane) * groups + index, value));
        before = slot;
    }
    named_now
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
fn cell_bytes(view: &View, origin: AggregatorId, slot: u32, named: &Bits) -> usize {
    let name = if named.contains(slot) { 0 } else { view.name_bytes(slot) + 12 };
    let component = |(_, value): (u16, u64)| 3 + (64 - value.leading_zeros() as usize).div_ceil(7);
    name + view.components_of(slot, origin.dc).map(component).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{CounterName, DcId, ValveId};
    use crate::msg::PeerMsg;
    use crate::view::MergeError;
    use crate::wire;

    #[test]
    fn a_cell_of_as_many_groups_as_there_may_be_is_told_whole_and_fits_a_message() {
        let mut view = View::new(DcId(0), 0);
        let slot = view.slot(&CounterName::new("t", &[7; KEY_BYTES_MAX]).unwrap().total()).unwrap();
        let group = |n: usize| GroupId { dc: DcId(0), group: u16::MAX, incarnation: u32::MAX - n as u32 };
        for n in 0..VALVES_MAX {
            let lane = (n / GROUPS_MAX) as u8;
            let valve = view.valve(ValveId { group: group(n % GROUPS_MAX), lane }).unwrap();
            view.merge(slot, valve, crate::limits::COMPONENT_MAX - n as u64);
        }
        assert_eq!(view.valve(ValveId { group: group(GROUPS_MAX), lane: 0 }), Err(MergeError::Valves));
        let mut delta = empty(u64::MAX, DcId(0).into(), u64::MAX);
        fill(&view, &mut delta, vec![slot], &Bits::default());
        assert_eq!((delta.groups.len(), delta.components.len()), (GROUPS_MAX, VALVES_MAX));
        let bytes = wire::encode(&PeerMsg::Delta(delta.clone()));
        assert!(bytes.len() <= CELL_BYTES_MAX, "{} bytes", bytes.len());
        assert_eq!(wire::decode::<PeerMsg>(&bytes), Ok(PeerMsg::Delta(delta)));
    }
}
