//! Audits are answered when the requesting aggregator has been told of all applied entries: behind the last chunk of the feed, or
//! while its pull waits for something new. So its view and the answer stand for the same entry.

use super::{NodeCore, Output};
use tidemark_types::ids::LogIndex;
use tidemark_wire::msg::{AuditAsk, FromGroup};

/// Audits of one aggregator that wait; of more the oldest are forgotten, and asked again.
pub const AUDITS_WAITING_MAX: usize = 64;

impl NodeCore {
    pub(super) fn on_audit(&mut self, seat: u8, ask: AuditAsk) {
        if ask.group != self.config.group.id {
            return;
        }
        let waiting = &mut self.feeds[usize::from(seat)].audits;
        if waiting.len() >= AUDITS_WAITING_MAX {
            waiting.pop_front();
        }
        waiting.push_back(ask);
    }

    /// The aggregator asks for new changes, and there are none.
    pub(super) fn serve_audits_at_rest(&mut self, seat: usize) {
        let feed = &self.feeds[seat];
        let pull = feed.parked.filter(|pull| !feed.audits.is_empty() && pull.group == self.config.group.id);
        if let Some(pull) = pull.filter(|pull| !self.group.has_feed(pull)) {
            self.serve_audits(seat, pull.cursor);
        }
    }

    pub(super) fn serve_audits(&mut self, seat: usize, told: LogIndex) {
        for ask in std::mem::take(&mut self.feeds[seat].audits) {
            let Some(audited) = self.group.audit(&ask, told) else { continue };
            self.outputs.push_back(Output::Aggregator { seat: seat as u8, msg: FromGroup::Audited(audited) });
        }
    }
}
