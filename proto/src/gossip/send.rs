//! Telling peers: which delta comes next, within the window of what is unacknowledged.

use super::build::Content;
use super::peer::{InFlight, Peer, Walk};
use super::{Gossip, GossipConfig, Origin, build};
use crate::ids::{AggregatorId, DcId};
use crate::msg::{Delta, DeltaWalk, PeerMsg, Version};
use crate::teeth::{Bug, bites};
use crate::time::Time;
use crate::view::Cells;
use std::collections::BTreeSet;

/// Sent again in vain so often, what the peer knows by number is no longer believed, and everything is named anew.
const RETRIES_BEFORE_RENAMING: u32 = 2;

impl Gossip {
    pub(super) fn flush(&mut self, now: Time, cells: &Cells) {
        let peers: Vec<AggregatorId> = self.peers.keys().copied().collect();
        for to in peers {
            let before = self.outbox.len();
            self.flush_peer(now, cells, to);
            // An acknowledgement that is to be sent soon goes the same way.
            if self.outbox.len() > before && self.peers.get(&to).is_some_and(|peer| peer.ack_at.is_some()) {
                self.send_ack(to);
            }
        }
    }

    /// Tells one peer what it lacks: own changes if it is near or asked, other origins if it asked.
    pub(super) fn flush_peer(&mut self, now: Time, cells: &Cells, to: AggregatorId) {
        let knows: BTreeSet<DcId> =
            self.origins.keys().map(|id| id.dc).filter(|&dc| self.knows_what_it_has(now, dc)).collect();
        let Some(peer) = self.peers.get_mut(&to) else { return };
        let told = |id: AggregatorId, peer: &Peer| peer.wants.contains(&id) || (id == self.own && peer.direct);
        let is_exact = |id: AggregatorId| id == self.own || !self.seats.are_split(to.dc) || knows.contains(&id.dc);
        let origins: Vec<AggregatorId> =
            self.origins.keys().copied().filter(|&id| id != to && told(id, peer) && is_exact(id)).collect();
        // What is held back here is in no version, and would be told with what is.
        let tells = |id: &&AggregatorId| peer.have(**id) < self.origins[*id].have;
        let is_told = origins.iter().filter(tells).any(|id| id.dc == self.own.dc);
        if is_told && !bites(Bug::HeldRelayed) {
            self.tell_held(now);
        }
        let Some(peer) = self.peers.get_mut(&to) else { return };
        for id in origins {
            let origin = &self.origins[&id];
            while let Some(delta) = next_delta(cells, self.start, id, origin, peer, &self.config) {
                self.counts.walks += u64::from(delta.walk.is_some_and(|walk| walk.from_slot == 0));
                self.counts.deltas_sent += 1;
                if let Some(sending) = peer.sending.get_mut(&id).filter(|sending| sending.resend_at.is_none()) {
                    sending.defer(now, peer.rtt, &self.config);
                }
                self.outbox.push_back((to, PeerMsg::Delta(delta)));
            }
        }
        self.send_repairs(now, cells, to);
    }

    /// Of each stream of a delta's data centre of how much of it something may be told, where that is more than the delta claims. What is
    /// here of a component may have come in any of them.
    pub fn partly(&self, delta: &Delta) -> impl Iterator<Item = (AggregatorId, Version)> + use<> {
        let claimed = Version { epoch: delta.epoch, version: delta.upto };
        // Of its own cells that changed again it tells none before it comes to the later change; of rows what they are now.
        let is_exact = delta.origin == self.own && delta.rows.is_empty();
        let more = |id: AggregatorId, some: Version| match id == delta.origin {
            true => !is_exact && some > claimed,
            false => some > Version::default(),
        };
        let of_dc = self.origins.iter().filter(|(id, _)| id.dc == delta.origin.dc);
        let said = of_dc.map(|(&id, origin)| (id, origin.some())).filter(|&(id, some)| more(id, some));
        said.collect::<Vec<_>>().into_iter()
    }

    /// Falls back to what is acknowledged where that did not come in time.
    pub(super) fn resend_lost(&mut self, now: Time) {
        for peer in self.peers.values_mut() {
            let late = |(&id, sending): (&AggregatorId, &super::peer::Sending)| {
                sending.resend_at.is_some_and(|at| at <= now).then_some(id)
            };
            for origin in peer.sending.iter().filter_map(late).collect::<Vec<_>>() {
                peer.fall_back(origin);
                self.counts.resent += 1;
                self.flush_at = Some(now);
                if peer.sending.get(&origin).is_some_and(|sending| sending.retries >= RETRIES_BEFORE_RENAMING) {
                    peer.named = Default::default();
                }
            }
        }
    }
}

/// The next delta of an origin for a peer, noted as in flight; `None` when it has all or the window is full.
fn next_delta(
    cells: &Cells,
    sender: u64,
    id: AggregatorId,
    origin: &Origin,
    peer: &mut Peer,
    config: &GossipConfig,
) -> Option<Delta> {
    let have = origin.have;
    let base = next_base(id, have, peer, config.window_deltas)?;
    let mut delta = build::empty(sender, id, have.epoch);
    (delta.base, delta.upto) = (base, have.version);
    let content = fill_from(cells, origin, &mut delta, peer, config.delta_bytes_max);
    let known = origin.known();
    delta.known = if known > delta.upto { known } else { 0 };
    let names = build::fill(cells, &mut delta, content, &peer.named);
    names.iter().for_each(|&slot| peer.named.insert(slot));
    let sending = peer.sending_in(id, have.epoch);
    if delta.walk.is_none_or(|walk| walk.last) {
        sending.sent = delta.upto;
    }
    sending.in_flight.push_back(InFlight { upto: delta.upto, walk: delta.walk, names });
    Some(delta)
}

/// The version that the next delta continues, if there is something to tell and the window has room. A new epoch is told of
/// even when nothing has happened in it.
fn next_base(id: AggregatorId, have: Version, peer: &mut Peer, window: usize) -> Option<u64> {
    let told = peer.have(id);
    let sending = peer.sending_in(id, have.epoch);
    if told >= have || sending.in_flight.len() >= window {
        return None;
    }
    let acked = if told.epoch == have.epoch { told.version } else { 0 };
    let base = sending.sent.max(acked);
    let is_walking = sending.walk.is_some_and(|walk| !walk.done);
    let is_new_epoch = told.epoch < have.epoch && sending.in_flight.is_empty();
    (is_walking || base < have.version || is_new_epoch).then_some(base)
}

/// The cells that come next: of a walk that is under way, of the recent changes, or of a walk that must begin.
fn fill_from(cells: &Cells, origin: &Origin, delta: &mut Delta, peer: &mut Peer, max: usize) -> Content {
    let walking = peer.sending_in(delta.origin, delta.epoch).walk.filter(|walk| !walk.done);
    let cut = match walking {
        Some(_) => None,
        None => build::cut(cells, origin, delta, &peer.named, max),
    };
    match cut {
        Some(cut) => {
            delta.upto = cut.upto;
            cut.content
        }
        None => {
            let fresh = Walk { started: delta.upto, ..Walk::default() };
            walk_on(cells, delta, walking.unwrap_or(fresh), peer, max)
        }
    }
}

/// Makes the delta the next piece of a walk.
fn walk_on(cells: &Cells, delta: &mut Delta, mut walk: Walk, peer: &mut Peer, max: usize) -> Content {
    let piece = build::cut_walk(cells, delta.origin, walk.next_slot, &peer.named, max);
    let (next_slot, last) = (piece.next, piece.is_last(cells));
    delta.walk = Some(DeltaWalk { started: walk.started, from_slot: walk.next_slot, next_slot, last });
    delta.upto = walk.started;
    (walk.next_slot, walk.done) = (next_slot, last);
    peer.sending_in(delta.origin, delta.epoch).walk = Some(walk);
    piece.content
}
