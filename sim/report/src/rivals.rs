//! The gossip that would be sent if it told states instead of their changes, measured with the encoder that it uses.

use tidemark_proto::ids::{DcId, GroupId};
use tidemark_proto::msg::{Delta, PeerMsg};
use tidemark_proto::shards::ShardId;
use tidemark_proto::view::View;
use tidemark_proto::wire;

/// Bytes of all components that a view holds of these data centres, told to one peer that knows the cells' numbers.
pub fn state_bytes(view: &View, origins: impl Iterator<Item = DcId>) -> u64 {
    origins.map(|origin| wire::encode(&PeerMsg::Delta(all_of(view, origin))).len() as u64).sum()
}

fn all_of(view: &View, origin: DcId) -> Delta {
    let cells = view.cells(ShardId::FIRST);
    let mut groups: Vec<GroupId> = cells.valves().iter().map(|valve| valve.group).filter(|g| g.dc == origin).collect();
    groups.sort_unstable();
    groups.dedup();
    let mut components = Vec::new();
    let mut before = 0;
    for slot in 0..cells.len() {
        for (valve, value) in cells.components_of(slot, origin) {
            let valve = cells.valves()[usize::from(valve)];
            let group = groups.iter().position(|known| *known == valve.group).unwrap_or_default();
            let number = u32::from(valve.lane) * groups.len() as u32 + group as u32;
            components.push((slot - before, number, value));
            before = slot;
        }
    }
    Delta {
        sender: 1,
        origin: origin.into(),
        epoch: 1,
        base: 0,
        upto: 0,
        walk: None,
        cells: Vec::new(),
        groups,
        components,
        ..Delta::default()
    }
}
