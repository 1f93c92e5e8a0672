//! Whom to ask for relaying: an origin that others have, and that does not come from its own data centre.

use super::recent::{Recent, RelayRing};
use super::{Gossip, Origin};
use crate::ids::DcId;
use crate::msg::Version;
use crate::time::Time;

impl Gossip {
    /// A peer said what it has: what the best of them has is kept, since every digest asks for it and peers are many.
    pub(super) fn note_told(&mut self, have: &[(DcId, Version)]) {
        let capacity = self.config.relay_ring_events;
        let new = || Origin::new(Version::default(), Recent::Relay(RelayRing::new(capacity, 0)));
        for &(dc, version) in have {
            let origin = self.origins.entry(dc).or_insert_with(new);
            origin.told = origin.told.max(Some(version));
        }
    }

    /// What a peer said counts no longer: found anew from the others.
    pub(super) fn forget_told(&mut self) {
        for (&dc, origin) in &mut self.origins {
            origin.told = self.peers.values().filter_map(|peer| peer.have.get(&dc)).max().copied();
        }
    }

    /// Looks at every origin that lags behind what peers have, and chooses or changes who relays it.
    pub(super) fn review_sources(&mut self, now: Time) {
        let is_told = |(&dc, origin): (&DcId, &Origin)| (dc != self.dc && origin.told.is_some()).then_some(dc);
        let told: Vec<DcId> = self.origins.iter().filter_map(is_told).collect();
        for dc in told {
            if let Some(wait) = self.review_source(now, dc) {
                self.review_at = Some(self.review_at.map_or(wait, |at| at.min(wait)));
            }
        }
    }

    /// When to look at it again, if it lags behind.
    fn review_source(&mut self, now: Time, dc: DcId) -> Option<Time> {
        let (grace, patience) = (self.config.relay_grace, self.config.relay_patience);
        let is_connected = self.peers.contains_key(&dc);
        let origin = self.origins.get_mut(&dc)?;
        origin.source = origin.source.filter(|(source, _)| self.peers.contains_key(source));
        if Some(origin.have) >= origin.told {
            origin.behind_since = None;
            return None;
        }
        let since = (*origin.behind_since.get_or_insert(now)).max(origin.progressed);
        let due = match origin.source {
            Some((_, asked)) => since.max(asked) + patience,
            None if is_connected => since + grace,
            None => now,
        };
        if due > now {
            return Some(due);
        }
        let have = origin.have;
        let failed = origin.source.map(|(source, _)| source);
        let ahead = self.peers.iter().filter(|(_, peer)| peer.have(dc) > have);
        let chosen = ahead.max_by_key(|(peer_dc, peer)| {
            (Some(**peer_dc) != failed, peer.have(dc), std::cmp::Reverse((peer.rtt, **peer_dc)))
        });
        let chosen = *chosen?.0;
        origin.source = Some((chosen, now));
        if let Some(peer) = self.peers.get_mut(&chosen) {
            peer.digest_at = now;
        }
        Some(now + patience)
    }

    /// The origin tells its changes itself again: nobody needs to relay it.
    pub(super) fn drop_source(&mut self, now: Time, dc: DcId) {
        let Some(origin) = self.origins.get_mut(&dc) else { return };
        if let Some((source, _)) = origin.source.filter(|(source, _)| *source != dc) {
            origin.source = None;
            if let Some(peer) = self.peers.get_mut(&source) {
                peer.digest_at = peer.digest_at.min(now + self.config.digest_interval);
            }
        }
    }
}
