//! Repairs: where two sides have the same versions and yet different components, each tells the other everything once.

use super::{Gossip, build};
use crate::ids::DcId;
use crate::msg::{DeltaWalk, Digest, PeerMsg, Version};
use crate::time::Time;
use crate::view::View;

/// Digests in a row that must differ: one may have crossed a change.
const MISMATCHES_BEFORE_REPAIR: u32 = 2;

impl Gossip {
    /// Compares sums with a peer's where versions are equal. Of many peers that differ, about one at a time is repaired.
    pub(super) fn compare_sums(&mut self, now: Time, view: &View, from: DcId, digest: &Digest) {
        for (at, &(dc, sum)) in digest.sums.iter().enumerate() {
            // Sums and versions are of the same data centres, unless somebody made them up.
            let is_it = |(of, _): &&(DcId, Version)| *of == dc;
            let theirs = digest.have.get(at).filter(is_it).or_else(|| digest.have.iter().find(is_it));
            let theirs = theirs.map(|(_, version)| *version);
            let ours = self.origins.get(&dc).map(|origin| origin.have);
            if let Some(version) = ours.filter(|_| ours == theirs)
                && self.differs_again(now, from, dc, sum == view.hash_of(dc))
                && self.draw().is_multiple_of(self.peers.len() as u64)
                && let Some(peer) = self.peers.get_mut(&from)
            {
                peer.mismatches.remove(&dc);
                peer.sending_in(dc, version.epoch).repair = Some(0);
                self.counts.repairs += 1;
                self.flush_at = Some(self.flush_at.map_or(now, |at| at.min(now)));
            }
        }
    }

    /// Counts digests that differ; true when there were enough, and no repair or walk is under way.
    fn differs_again(&mut self, now: Time, from: DcId, dc: DcId, is_equal: bool) -> bool {
        let Some(peer) = self.peers.get_mut(&from) else { return false };
        let is_busy = peer.walks.contains_key(&dc) || peer.sending.get(&dc).is_some_and(|s| s.repair.is_some());
        if is_equal || is_busy {
            peer.mismatches.remove(&dc);
            return false;
        }
        peer.digest_interval = self.config.digest_interval;
        peer.digest_at = peer.digest_at.min(now + peer.digest_interval);
        let count = peer.mismatches.entry(dc).or_default();
        *count += 1;
        *count >= MISMATCHES_BEFORE_REPAIR
    }

    /// One piece of each repair per flush. Nothing acknowledges it: if it is lost, the sums still differ. It names every cell
    /// whose number the peer is not known to know.
    pub(super) fn send_repairs(&mut self, now: Time, view: &View, to: DcId) {
        let Some(peer) = self.peers.get_mut(&to) else { return };
        let pending: Vec<(DcId, u32)> =
            peer.sending.iter().filter_map(|(&dc, sending)| Some((dc, sending.repair?))).collect();
        for (origin, from_slot) in pending {
            let (slots, next_slot) = build::cut_walk(view, origin, from_slot, &peer.named, self.config.delta_bytes_max);
            let last = next_slot >= view.cells();
            let mut delta = build::empty(self.start, origin, 0);
            delta.walk = Some(DeltaWalk { started: 0, from_slot, next_slot, last });
            build::fill(view, &mut delta, slots, &peer.named);
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
