//! Repairs: where two sides have the same versions and yet different components, each tells the other everything once.

use super::{Gossip, build};
use crate::view::Cells;
use std::collections::{BTreeMap, BTreeSet};
use tidemark_types::ids::{AggregatorId, DcId};
use tidemark_types::time::Time;
use tidemark_wire::msg::{DeltaWalk, Digest, PeerMsg, Version};

/// Digests in a row that must differ: one may have crossed a change.
const MISMATCHES_BEFORE_REPAIR: u32 = 2;

impl Gossip {
    /// Compares sums with a peer's if versions are equal. Of many peers that differ, about one at a time is repaired.
    pub(super) fn compare_sums(&mut self, now: Time, cells: &Cells, from: AggregatorId, digest: &Digest) {
        if digest.ended != cells.ended() {
            return;
        }
        let comparable: BTreeSet<DcId> = self.comparable().collect();
        let row_sums: BTreeMap<DcId, u64> = digest.row_sums.iter().copied().collect();
        // Buckets that a side with a later clock has dropped are not compared.
        let after_day = Some(digest.row_sums_after_day).filter(|&day| day >= cells.comparable_after_day());
        let theirs: BTreeMap<AggregatorId, Version> = digest.have.iter().copied().collect();
        for &(of, sum) in digest.sums.iter().filter(|(of, _)| comparable.contains(of)) {
            let holders: Vec<AggregatorId> = self.seats.holders(self.shard, of).collect();
            let id = self.seats.first(self.shard, of);
            let ours = |origin: AggregatorId| self.origins.get(&origin).map(|origin| origin.have);
            let is_equal =
                |origin| ours(origin).unwrap_or_default() == theirs.get(&origin).copied().unwrap_or_default();
            let is_told = holders.iter().all(|&holder| is_equal(holder));
            let rows_equal = |of: DcId| {
                let theirs = row_sums.get(&of).zip(after_day);
                theirs.is_none_or(|(&sum, day)| sum == cells.row_hash_of(of, day))
            };
            let version = holders.iter().find_map(|&holder| ours(holder));
            if let Some(version) = version.filter(|_| is_told)
                && self.differs_again(now, from, id, sum == cells.hash_of(of) && rows_equal(of))
                && self.draw().is_multiple_of(self.peers.len() as u64)
                && let Some(peer) = self.peers.get_mut(&from)
            {
                peer.mismatches.remove(&id);
                peer.sending_in(id, version.epoch).repair = Some(0);
                self.counts.repairs += 1;
                self.flush_at = Some(self.flush_at.map_or(now, |at| at.min(now)));
            }
        }
    }

    /// Counts digests that differ; true when there were enough, and no repair or walk is under way.
    fn differs_again(&mut self, now: Time, from: AggregatorId, id: AggregatorId, is_equal: bool) -> bool {
        let Some(peer) = self.peers.get_mut(&from) else { return false };
        let is_busy = peer.walks.contains_key(&id) || peer.sending.get(&id).is_some_and(|s| s.repair.is_some());
        if is_equal || is_busy {
            peer.mismatches.remove(&id);
            return false;
        }
        peer.digest_interval = self.config.digest_interval;
        peer.digest_at = peer.digest_at.min(now + peer.digest_interval);
        let count = peer.mismatches.entry(id).or_default();
        *count += 1;
        *count >= MISMATCHES_BEFORE_REPAIR
    }

    /// Sends one piece of each repair per flush. Nothing acknowledges it: if it is lost, the sums still differ. It names every
    /// cell with a number that the peer is not known to know.
    pub(super) fn send_repairs(&mut self, now: Time, cells: &Cells, to: AggregatorId) {
        let Some(peer) = self.peers.get_mut(&to) else { return };
        let pending: Vec<(AggregatorId, u32)> =
            peer.sending.iter().filter_map(|(&id, sending)| Some((id, sending.repair?))).collect();
        for (origin, from_slot) in pending {
            let piece = build::cut_walk(cells, origin, from_slot, &peer.named, self.config.delta_bytes_max);
            let next_slot = piece.next;
            let last = piece.is_last(cells);
            let mut delta = build::empty(self.start, origin, 0);
            delta.walk = Some(DeltaWalk { started: 0, from_slot, next_slot, last });
            build::fill(cells, &mut delta, piece.content, &peer.named);
            if let Some(sending) = peer.sending.get_mut(&origin) {
                sending.repair = (!last).then_some(next_slot);
            }
            if !last {
                let due = now + self.config.gossip_interval;
                self.flush_at = Some(self.flush_at.map_or(due, |at| at.min(due)));
            }
            self.counts.deltas_sent += 1;
            self.outbox.push_back((to, PeerMsg::Delta(delta)));
        }
    }
}
