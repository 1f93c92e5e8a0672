//! Shards: the stream of gossip and the checkpoint of each range of counters. Its cells are the view's.
//!
//! The holders of a shard, and aggregators that are receiving it, gossip about it. Messages about the first shard are the same as
//! those of a view that is not cut. Each digest names the cuts of its sender's view. An aggregator that cuts its own view at the
//! same counters gets the other shards by number, and is heard. With any other aggregator nothing can be exchanged, since its
//! shards are mixtures of the shards here.

use super::checkpoint::Checkpoint;
use super::feed::Feed;
use super::{AggregatorConfig, AggregatorCore, Event, Output};
use crate::asking::Stand;
use crate::gossip::Gossip;
use crate::query::Basis;
use std::collections::BTreeSet;
use tidemark_ledger::ledger::Ledger;
use tidemark_types::hash::bytes_hash;
use tidemark_types::ids::{AggregatorId, CellId, CounterName, DcId, GroupId};
use tidemark_types::limits::{FED_GROUPS_MAX, STREAMS_OF_DC_MAX};
use tidemark_types::time::{Span, Time};
use tidemark_wire::msg::{Delta, Digest, PeerMsg, ShardMsg};
use tidemark_wire::shards::ShardId;

/// The state of an aggregator for one range of counters beside their cells.
#[derive(Clone, Debug)]
pub(super) struct Shard {
    pub gossip: Gossip,
    pub checkpoint: Checkpoint,
}

impl Shard {
    /// With nothing on disk.
    pub fn new(config: &AggregatorConfig, shard: ShardId) -> Shard {
        Shard { gossip: gossip_of(config, shard), checkpoint: Checkpoint::default() }
    }
}

/// The stream of a shard that has none on disk.
pub(super) fn gossip_of(config: &AggregatorConfig, shard: ShardId) -> Gossip {
    let seed = config.seed.wrapping_add(shard.0.into());
    let held = config.ranges.iter().filter(|range| config.gathers(range.shard)).count();
    let gossip = config.gossip.shared_by(held);
    Gossip::of_shard(config.own, shard, config.seats.clone(), config.epoch, gossip, seed)
}

impl AggregatorCore {
    /// When something new of a data centre was merged last; `None` if nothing was since the start, and for the own one.
    pub fn progressed(&self, dc: DcId) -> Option<Time> {
        self.shards.iter().filter_map(|shard| shard.gossip.progressed(dc)).max()
    }

    /// Whether this is the second of a pair and sends in place of the first.
    pub fn speaks_for_its_partner(&self) -> bool {
        self.shards.iter().any(|shard| shard.gossip.speaks_for_its_partner())
    }

    /// The gossip of one shard. Panics if there is none of that number.
    pub fn gossip(&self, shard: ShardId) -> &Gossip {
        &self.shards[usize::from(shard.0)].gossip
    }

    /// The stand of this view in a shard that it holds.
    pub fn stand(&self, now: Time, shard: ShardId, ledger: &Ledger) -> Stand {
        let gossip = self.gossip(shard);
        let of_others = gossip.whole_of_others().filter(|(origin, ..)| origin.dc != self.config.own.dc);
        // A closed group's counts come from no other source any more.
        let some = |group, feed: &Feed| if ledger.is_fenced(group) { feed.cursor } else { feed.shows_some_of() };
        let all = |group, feed: &Feed| if ledger.is_fenced(group) { feed.cursor } else { feed.whole() };
        let groups = self.feeds.iter().map(|(&group, feed)| (group, all(group, feed), some(group, feed)));
        let progress = self.view.graph_progress();
        Stand {
            ledger: ledger.applied(),
            graph: (progress.index, progress.pairs),
            groups: groups.collect(),
            versions: of_others.collect(),
            is_settled: gossip.is_settled(now),
            limits: self.limits_in(shard, ledger),
        }
    }

    /// The least basis of the totals here.
    pub fn basis(&self, ledger: &Ledger) -> Basis {
        let progress = self.view.graph_progress();
        let held = self.view.ranges().iter().map(|range| range.shard).filter(|&shard| self.holds(shard));
        let of_shard = |shard: ShardId| {
            let others = self.gossip(shard).whole_of_others().filter(|(origin, ..)| origin.dc != self.config.own.dc);
            others.map(move |(origin, whole, _)| ((shard, origin), whole))
        };
        Basis {
            ledger: ledger.applied(),
            graph_known: ledger.graph().index(),
            graph: (progress.index, progress.pairs),
            groups: self.feeds.iter().map(|(&group, feed)| (group, feed.whole())).collect(),
            versions: held.flat_map(of_shard).collect(),
        }
    }

    /// Hashes of counters of a shard that this view shows less of than the ledger's state allows, and the limit of each.
    fn limits_in(&self, shard: ShardId, ledger: &Ledger) -> Vec<(u64, u64)> {
        let all = self.view.limits().beyond_ledger(ledger);
        let here = all.filter(|(counter, _)| self.view.shard_of(counter) == shard);
        let hash = |counter: &CounterName| bytes_hash(bytes_hash(0, counter.namespace().as_bytes()), counter.key());
        let mut limits: Vec<(u64, u64)> = here.map(|(counter, limit)| (hash(counter), limit)).collect();
        limits.sort_unstable();
        limits
    }

    /// Connected aggregators with views that are cut at other counters, or lay these otherwise: nothing is exchanged with them.
    pub fn cut_elsewhere(&self) -> &BTreeSet<AggregatorId> {
        &self.cut_elsewhere
    }

    /// Whether, as far as is known, shards of a peer's view have the same counters as the shards of the same numbers here.
    /// Otherwise it is asked for nothing, and believed nothing.
    pub fn is_cut_alike(&self, peer: AggregatorId) -> bool {
        !self.cut_elsewhere.contains(&peer)
    }

    pub(super) fn run_gossip(&mut self, now: Time) {
        let is_plain = self.view.ranges().began_plain();
        let cuts = self.view.ranges().fingerprint();
        let goes_by_versions = !self.view.ranges().is_whole() || self.config.seats.are_any_split();
        let dc = self.config.own.dc;
        let feeds = &self.feeds;
        let moves = &self.moves;
        for ((shard, cells), own) in self.view.shards().zip(&mut self.shards) {
            own.gossip.tick(now, cells);
            while let Some((peer, mut msg)) = own.gossip.poll_output() {
                if let PeerMsg::Delta(delta) = &mut msg {
                    if delta.origin.dc != peer.dc && goes_by_versions {
                        delta.partly = own.gossip.partly(delta).take(STREAMS_OF_DC_MAX).collect();
                    } else if delta.origin.dc == dc && peer.dc == dc {
                        let upto = |&group: &GroupId| Some((group, moves.shown_of(group, feeds)?));
                        delta.fed = delta.groups.iter().filter_map(upto).take(FED_GROUPS_MAX).collect();
                    }
                }
                // A peer that has not named its cuts would take it for gossip of all counters.
                if is_plain || matches!(msg, PeerMsg::Digest(_)) || self.cut_alike.contains(&peer) {
                    self.outputs.push_back(Output::Peer { peer, msg: of_shard(shard, cuts, msg) });
                }
            }
        }
    }

    /// For the first shard that both hold only, if views are cut from the beginning: a newly connected peer has yet to name its
    /// cuts.
    pub(super) fn gossip_peer_up(&mut self, now: Time, peer: AggregatorId, rtt: Span) {
        self.forget_cuts_of(peer);
        let first = self.config.first_shared(peer);
        let is_alike = self.view.ranges().began_plain();
        for (at, own) in self.shards.iter_mut().enumerate() {
            let shard = ShardId(at as u16);
            match first == Some(shard) || is_alike && self.config.shares(peer, shard) {
                true => own.gossip.on_peer_up(now, peer, rtt),
                false => own.gossip.on_peer_gone(now, peer),
            }
        }
    }

    pub(super) fn gossip_peer_gone(&mut self, now: Time, peer: AggregatorId) {
        self.forget_cuts_of(peer);
        self.shards.iter_mut().for_each(|shard| shard.gossip.on_peer_gone(now, peer));
    }

    fn forget_cuts_of(&mut self, peer: AggregatorId) {
        self.cut_alike.remove(&peer);
        self.cut_elsewhere.remove(&peer);
    }

    /// A digest, which says where a peer's view is cut: of the first shard it does in any case.
    fn on_cut_digest(&mut self, now: Time, peer: AggregatorId, shard: ShardId, digest: &Digest) {
        let is_first = self.config.first_shared(peer) == Some(shard);
        let says_nothing = digest.cuts == 0 && !is_first && !self.view.ranges().began_plain();
        if says_nothing && !self.cut_alike.contains(&peer) {
            return;
        }
        if digest.cuts != self.view.ranges().fingerprint() && !says_nothing {
            // An earlier version does not understand why it is not answered, and goes on.
            if self.is_cut_alike(peer) {
                self.gossip_peer_gone(now, peer);
                self.cut_elsewhere.insert(peer);
                self.outputs.push_back(Output::Notify(Event::CutElsewhere { peer }));
            }
            return;
        }
        if self.cut_alike.insert(peer) && !self.view.ranges().began_plain() {
            // The first shard as well: its messages until now were kept back.
            let rtt = self.rtts.get(&peer).copied().unwrap_or_default();
            for (at, own) in self.shards.iter_mut().enumerate() {
                if self.config.shares(peer, ShardId(at as u16)) {
                    own.gossip.on_peer_up(now, peer, rtt);
                }
            }
        }
        self.on_digest(now, shard, peer, digest);
    }

    /// The recipients of each shard have changed: connected peers are met in the shards that both are told of now.
    pub(super) fn meet_holders(&mut self, now: Time) {
        for (&peer, &rtt) in &self.rtts {
            let is_alike = self.view.ranges().began_plain() || self.cut_alike.contains(&peer);
            let first = self.config.first_shared(peer);
            for (at, own) in self.shards.iter_mut().enumerate() {
                let shard = ShardId(at as u16);
                let meets = self.config.shares(peer, shard) && (is_alike || first == Some(shard));
                match (meets, own.gossip.has_peer(peer)) {
                    (true, false) => own.gossip.on_peer_up(now, peer, rtt),
                    (false, true) => own.gossip.on_peer_gone(now, peer),
                    _ => {}
                }
            }
        }
    }

    /// Gossip of a shard that is not held here, or not by its sender, belongs to another layout, and is ignored.
    pub(super) fn on_shard(&mut self, now: Time, peer: AggregatorId, shard: ShardId, msg: &ShardMsg, ledger: &Ledger) {
        if usize::from(shard.0) >= self.shards.len() || !self.config.shares(peer, shard) {
            return;
        }
        match msg {
            ShardMsg::Digest(digest) => self.on_cut_digest(now, peer, shard, digest),
            _ if !(self.view.ranges().began_plain() || self.cut_alike.contains(&peer)) => {}
            ShardMsg::Delta(delta) => self.on_delta(now, shard, peer, delta, ledger),
        }
    }

    fn on_digest(&mut self, now: Time, shard: ShardId, peer: AggregatorId, digest: &Digest) {
        let gossip = &mut self.shards[usize::from(shard.0)].gossip;
        gossip.on_digest(now, self.view.cells(shard), peer, digest);
    }

    /// Whether a delta names counters of the shard only; else its sender is mistaken.
    fn is_of_shard(&self, shard: ShardId, delta: &Delta) -> bool {
        let ranges = self.view.ranges();
        let is_here = |counter: &CounterName| ranges.find(counter) == shard;
        ranges.is_whole() || delta.cells.iter().all(|(_, cell)| is_here(&cell.counter))
    }

    fn on_delta(&mut self, now: Time, shard: ShardId, from: AggregatorId, delta: &Delta, ledger: &Ledger) {
        if !self.is_of_shard(shard, delta) {
            return;
        }
        let at = usize::from(shard.0);
        let AggregatorCore { view, shards, .. } = self;
        let is_over = |cell: &CellId| ledger.resets().is_over(cell);
        let raised = view.change(|cells| shards[at].gossip.on_delta(now, &mut cells[at], from, delta, &is_over));
        for &(group, upto) in delta.fed.iter().filter(|(group, _)| group.dc == from.dc && from.dc == self.config.own.dc)
        {
            self.feeds.entry(group).or_default().on_other(upto);
        }
        let checkpoint = &mut shards[at].checkpoint;
        raised.into_iter().for_each(|slot| checkpoint.touch(slot));
        if !delta.cells.is_empty() {
            self.graph_at.get_or_insert(now);
        }
        self.heard.on_raised(now, &mut self.view);
        self.shards[at].checkpoint.moved(now, self.config.checkpoint_interval);
        self.want_notifications(now);
    }
}

/// Gossip of a shard as it goes to a peer.
fn of_shard(shard: ShardId, cuts: u64, msg: PeerMsg) -> PeerMsg {
    match msg {
        PeerMsg::Digest(digest) if shard == ShardId::FIRST => PeerMsg::Digest(Digest { cuts, ..digest }),
        PeerMsg::Digest(digest) => PeerMsg::Shard { shard, msg: ShardMsg::Digest(Digest { cuts, ..digest }) },
        PeerMsg::Delta(delta) if shard != ShardId::FIRST => PeerMsg::Shard { shard, msg: ShardMsg::Delta(delta) },
        other @ (PeerMsg::Delta(_)
        | PeerMsg::Propose(_)
        | PeerMsg::Recall(_)
        | PeerMsg::Shard { .. }
        | PeerMsg::Reading { .. }) => other,
    }
}
