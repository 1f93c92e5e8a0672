//! Telling peers: the choice of the next delta, within the window of unacknowledged deltas.

use super::build::Content;
use super::peer::{InFlight, Peer, Walk};
use super::{Gossip, GossipConfig, Origin, build};
use crate::view::Cells;
use tidemark_types::ids::AggregatorId;
use tidemark_types::time::Time;
use tidemark_wire::msg::{Delta, DeltaWalk, PeerMsg, Version};

/// After this number of retries in vain, the peer's known numbers are no longer believed, and everything is named anew.
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

    /// Sends one peer the changes that it lacks: own changes if it is near or asked, other origins if it asked.
    pub(super) fn flush_peer(&mut self, now: Time, cells: &Cells, to: AggregatorId) {
        // The peer may have all of a part that its version of the whole covers; it reports that when it knows of the part.
        if self.is_part && self.peers.get(&to).is_none_or(|peer| peer.sender == 0) {
            return;
        }
        // Held-back changes are in no version, and would be told with others.
        if self.tells_of_its_own(to) {
            self.tell_held(now);
        }
        let to_split = self.seats.are_split(to.dc) && to.dc != self.own.dc;
        let knows = |id: AggregatorId| !to_split || self.knows_what_it_has(now, id.dc);
        // Within its data centre only the holders of the range tell it, and not a joining aggregator.
        let speaks = |id: AggregatorId| !(to_split && id.dc == self.own.dc && self.joins());
        let Some(peer) = self.peers.get(&to) else { return };
        let told = |&id: &AggregatorId| id != to && tells(peer, self.own, id) && speaks(id);
        let told = self.origins.keys().copied().filter(told);
        let origins: Vec<(AggregatorId, bool)> = told.map(|id| (id, knows(id))).collect();
        let Some(peer) = self.peers.get_mut(&to) else { return };
        // Its own changes have versions of this start, and belong to no other stream.
        for (id, knows) in origins.into_iter().filter(|&(id, knows)| knows || id == self.own) {
            let origin = &self.origins[&id];
            while let Some(delta) = next_delta(cells, self.start, knows, id, origin, peer, &self.config) {
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

    /// Whether changes of the own data centre are to be sent to a peer, and a process relies on the versions of the peer's
    /// streams.
    fn tells_of_its_own(&self, to: AggregatorId) -> bool {
        let is_watched = self.seats.are_split(to.dc) || to.dc == self.own.dc && self.seats.are_any_split();
        let Some(peer) = self.peers.get(&to).filter(|_| is_watched && !self.joins()) else {
            return false;
        };
        let is_unsent = |(id, origin): (&AggregatorId, &Origin)| {
            let sending = peer.sending.get(id).filter(|sending| sending.epoch == origin.have.epoch);
            let sent = sending.map_or(Version::default(), |sending| Version { version: sending.sent, ..origin.have });
            let has_room = sending.is_none_or(|sending| sending.in_flight.len() < self.config.window_deltas);
            has_room && peer.have(*id).max(sent) < origin.have
        };
        let of_own = self.origins.iter().filter(|(id, _)| id.dc == self.own.dc && **id != to);
        of_own.filter(|(id, _)| tells(peer, self.own, **id)).any(is_unsent)
    }

    /// For each stream of a delta's data centre, the version up to which changes may be in the delta, if that is more than the
    /// delta claims. A component's value here may have come in any of them.
    pub fn partly(&self, delta: &Delta) -> impl Iterator<Item = (AggregatorId, Version)> + use<> {
        let claimed = Version { epoch: delta.epoch, version: delta.upto };
        // Its own cells that changed again are told only with the later change; rows are told in their present state.
        let is_exact = delta.origin == self.own && delta.rows.is_empty();
        let more = |id: AggregatorId, some: Version| match id == delta.origin {
            true => !is_exact && some > claimed,
            false => some > Version::default(),
        };
        let of_dc = self.origins.iter().filter(|(id, _)| id.dc == delta.origin.dc);
        let said = of_dc.map(|(&id, origin)| (id, origin.some())).filter(|&(id, some)| more(id, some));
        said.collect::<Vec<_>>().into_iter()
    }

    /// Returns to the acknowledged version if later deltas were not acknowledged in time.
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

/// Whether a peer is told of an origin: of this side's own if it is near, of any if it asked.
fn tells(peer: &Peer, own: AggregatorId, id: AggregatorId) -> bool {
    peer.wants.contains(&id) || (id == own && peer.direct)
}

/// The next delta of an origin for a peer, noted as in flight; `None` when it has all or the window is full.
fn next_delta(
    cells: &Cells,
    sender: u64,
    may_walk: bool,
    id: AggregatorId,
    origin: &Origin,
    peer: &mut Peer,
    config: &GossipConfig,
) -> Option<Delta> {
    let have = origin.have;
    let base = next_base(id, have, peer, config.window_deltas)?;
    // A walk tells all of the data centre's data here, also data of other streams.
    let must_walk = !origin.recent.reaches(base) || !origin.rows.reaches(base);
    if must_walk && !may_walk {
        return None;
    }
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
    let next_slot = piece.next;
    let last = piece.is_last(cells);
    delta.walk = Some(DeltaWalk { started: walk.started, from_slot: walk.next_slot, next_slot, last });
    delta.upto = walk.started;
    (walk.next_slot, walk.done) = (next_slot, last);
    peer.sending_in(delta.origin, delta.epoch).walk = Some(walk);
    piece.content
}
