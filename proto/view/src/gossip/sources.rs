//! The choice of relays: for an origin that others have, and that does not come from its own data centre.

use super::{Gossip, Origin};
use tidemark_types::ids::AggregatorId;
use tidemark_types::time::Time;
use tidemark_wire::msg::Version;

impl Gossip {
    /// A peer reported its versions: the best of all peers is kept, since every digest needs it and peers are many.
    pub(super) fn note_told(&mut self, have: &[(AggregatorId, Version)]) {
        for &(id, version) in have {
            let origin = self.origin(id);
            origin.told = origin.told.max(Some(version));
        }
    }

    /// A peer's report counts no longer: the best is found anew from the others.
    pub(super) fn forget_told(&mut self) {
        for (&id, origin) in &mut self.origins {
            origin.told = self.peers.values().filter_map(|peer| peer.have.get(&id)).max().copied();
        }
    }

    /// Looks at every origin that lags behind the peers, and chooses or changes the peer that relays it.
    pub(super) fn review_sources(&mut self, now: Time) {
        let is_told = |(&id, origin): (&AggregatorId, &Origin)| (id != self.own && origin.told.is_some()).then_some(id);
        let told: Vec<AggregatorId> = self.origins.iter().filter_map(is_told).collect();
        for id in told {
            if let Some(wait) = self.review_source(now, id) {
                self.review_at = Some(self.review_at.map_or(wait, |at| at.min(wait)));
            }
        }
    }

    /// When to look at it again, if it lags behind.
    fn review_source(&mut self, now: Time, id: AggregatorId) -> Option<Time> {
        let partner = self.partner();
        let grace = self.config.relay_grace;
        let patience = match self.origins.get(&id)?.source {
            Some((source, _)) if Some(source) == partner => self.config.partner_patience,
            _ => self.config.relay_patience,
        };
        // The second of a pair hears of the others through the first.
        let hears_partner = partner.is_some_and(|partner| self.peers.contains_key(&partner));
        let through_partner = self.is_second() && Some(id) != partner && hears_partner;
        let is_connected = self.peers.contains_key(&id);
        let partner_has = partner.and_then(|partner| self.peers.get(&partner)).map(|partner| partner.have(id));
        let origin = self.origins.get_mut(&id)?;
        // It asked another while the partner brought nothing.
        let is_back = through_partner && partner_has >= Some(origin.have);
        origin.source = origin.source.filter(|(source, _)| !is_back || Some(*source) == partner);
        origin.source = origin.source.filter(|(source, _)| self.peers.contains_key(source));
        if Some(origin.have) >= origin.told {
            origin.behind_since = None;
            return None;
        }
        let since = (*origin.behind_since.get_or_insert(now)).max(origin.progressed);
        let due = match origin.source {
            Some((_, asked)) => since.max(asked) + patience,
            None if is_connected && !through_partner => since + grace,
            None => now,
        };
        if due > now {
            return Some(due);
        }
        let have = origin.have;
        let failed = origin.source.map(|(source, _)| source);
        let asks_partner = |peer: &AggregatorId| through_partner && Some(*peer) == partner;
        let ahead = self.peers.iter().filter(|(of, peer)| peer.have(id) > have || asks_partner(of));
        let chosen = ahead.max_by_key(|(of, peer)| {
            (Some(**of) != failed, asks_partner(of), peer.have(id), std::cmp::Reverse((peer.rtt, **of)))
        });
        let chosen = *chosen?.0;
        origin.source = Some((chosen, now));
        if let Some(peer) = self.peers.get_mut(&chosen) {
            peer.digest_at = now;
        }
        Some(now + patience)
    }

    /// The origin tells its changes itself again: it needs no relay.
    pub(super) fn drop_source(&mut self, now: Time, id: AggregatorId) {
        let Some(origin) = self.origins.get_mut(&id) else { return };
        if let Some((source, _)) = origin.source.filter(|(source, _)| *source != id) {
            origin.source = None;
            if let Some(peer) = self.peers.get_mut(&source) {
                peer.digest_at = peer.digest_at.min(now + self.config.digest_interval);
            }
        }
    }
}
