//! Timers: the ledger reads no clock, so the aggregator that leads it proposes by the clock of its host. It sets until when an
//! award may be claimed, ends that time, and lets counters expire. By the same clock a view drops buckets that have expired.

use crate::aggregator::AggregatorCore;
use tidemark_ledger::ledger::Ledger;
use tidemark_types::series::UnixTime;
use tidemark_types::teeth::{Bug, bites};
use tidemark_types::time::{Span, Time, WallMs};

/// The interval of the host's clock messages: the end of a time is noticed at most this late.
pub const CLOCK_INTERVAL: Span = Span::from_secs(2);
/// A new leader of the ledger ends claims only after this time: claims made without a leader come first.
pub const LEADS_BEFORE_IT_ENDS: Span = Span::from_secs(10);
const US_PER_MS: u64 = 1_000;
/// Claims that are timed at once; the others wait for the next clock message.
const CLAIMS_TIMED_AT_ONCE: usize = 2_048;
/// Counters that are removed at a time; the others wait for the next.
const EXPIRED_AT_ONCE: usize = 256;

impl AggregatorCore {
    /// Proposals that are lost on their way are due again the next time.
    pub(super) fn on_clock(&mut self, now: Time, wall: WallMs, ledger: &Ledger) {
        self.clock = Some((now, wall));
        self.view.on_time(UnixTime::from_wall(wall));
        self.view.expire_totals(ledger);
        self.graph_at.get_or_insert(now);
        for ((_, cells), shard) in self.view.shards().zip(&mut self.shards) {
            if cells.has_dirty_rows() {
                shard.checkpoint.moved(now, self.config.checkpoint_interval);
            }
        }
        let Some(since) = self.led_since else { return };
        let may_end = now - since >= LEADS_BEFORE_IT_ENDS || bites(Bug::ClaimEndsEarly);
        let mut due = ledger.claims().due(wall, may_end, CLAIMS_TIMED_AT_ONCE);
        due.extend(ledger.resets().due(wall, EXPIRED_AT_ONCE));
        if !due.is_empty() {
            self.propose(now, due);
        }
    }

    /// The host's clock now, by its last message; `None` before the first one.
    pub(super) fn wall(&self, now: Time) -> Option<WallMs> {
        let (then, wall) = self.clock?;
        Some(WallMs(wall.0.saturating_add((now - then).0 / US_PER_MS)))
    }
}
