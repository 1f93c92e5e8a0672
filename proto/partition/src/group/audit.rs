//! The committed state of one cell, for an audit.

use crate::group::Group;
use tidemark_types::ids::LogIndex;
use tidemark_types::limits::{LANES_MAX, MESSAGE_BYTES_MAX, ROW_BUCKETS_MAX};
use tidemark_types::row_changes::{Part, part_of};
use tidemark_types::series::codec;
use tidemark_types::teeth::{Bug, bites};
use tidemark_wire::msg::{AuditAsk, Audited};

/// Bytes of an answer beside its rows: the name, horizons, components.
const AUDIT_HEAD_BYTES: usize = 4_096;
/// Bytes of a piece beside its buckets.
const PIECE_BYTES: usize = 16;

impl Group {
    /// The answer to an audit. The feed has told the aggregator all entries up to `told`. Lanes beyond the room of the answer are
    /// to be asked for again.
    ///
    /// `None`: the counter began again since that generation. The group may have dropped cells of the generation before it told of
    /// their last increments. The asker learns of the reset from the ledger and asks for the present generation.
    pub fn audit(&self, ask: &AuditAsk, told: LogIndex) -> Option<Audited> {
        if ask.cell.generation < self.generation(&ask.cell.counter) && !bites(Bug::EndedLifeAudited) {
            return None;
        }
        let mut audited = Audited {
            id: ask.id,
            group: self.config.id,
            cell: ask.cell.clone(),
            index: self.applied,
            told,
            from_lane: ask.from_lane.min(LANES_MAX),
            upto_lane: LANES_MAX,
            horizon: None,
            components: Vec::new(),
            rows: Vec::new(),
            too_long: false,
        };
        let Some(slot) = self.cells.table.find(&ask.cell) else { return Some(audited) };
        audited.horizon = self.series.horizon_of(slot, &self.cells.table).cloned();
        let mut room = MESSAGE_BYTES_MAX - AUDIT_HEAD_BYTES;
        for component in self.cells.of(slot).filter(|component| component.lane >= ask.from_lane) {
            let row = audited.horizon.as_ref().zip(self.buckets(slot, component.lane));
            let whole = row.map(|(horizon, row)| part_of(&row, horizon, &[Part::WHOLE])).unwrap_or_default();
            let pieces: Vec<_> = whole.pieces(ROW_BUCKETS_MAX).collect();
            let bytes: usize = pieces.iter().map(|piece| codec::size_max(piece) + PIECE_BYTES).sum();
            let is_first = audited.components.is_empty();
            if bytes > room && !is_first {
                audited.upto_lane = component.lane;
                break;
            }
            audited.components.push((component.lane, component.value));
            if bytes > room {
                audited.too_long = true;
                audited.upto_lane = component.lane + 1;
                break;
            }
            room -= bytes;
            audited.rows.extend(pieces.into_iter().map(|piece| (component.lane, piece)));
        }
        Some(audited)
    }
}
