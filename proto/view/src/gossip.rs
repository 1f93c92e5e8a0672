//! Gossip of components between aggregators. The unit is (cell, valve incarnation, value); merging is maximum.
//!
//! Every data centre's aggregator numbers the changes of its own valves' components: its stream, named by (origin, epoch), has
//! versions that only say which changes were told. A delta continues a version (`base`) and leads to another (`upto`); a delta
//! that does not continue the receiver's state is ignored. When the record of recent changes no longer reaches back to the base,
//! the origin's components are walked instead.
//!
//! Own changes are pushed to the peers at once (to all, when they are few). An aggregator may see in a peer's digest that it
//! lacks changes of another origin. If it does not get them from there, it asks one peer to relay that origin (`want`). Digests
//! also carry a sum over hashes of each data centre's components. If versions are equal and sums stay different, both sides tell
//! each other everything once (a repair). A repair heals differences that no version shows, such as the last messages of a lost
//! disk.
//!
//! Deltas and digests may be lost, doubled or reordered: a delta that is not acknowledged in time is sent again. All messages
//! from, or to, an earlier start of a process (`sender`) are void.

mod build;
mod ended;
mod pair;
mod part;
pub mod peer;
mod receive;
mod recent;
mod repair;
mod send;
mod sources;

pub use ended::NumbersSwept;
pub use pair::Fed;
pub use part::Renumbered;
pub(crate) use peer::PAGE as NUMBERS_PER_PAGE;
pub use recent::RelayRing;

use crate::view::Cells;
use peer::Peer;
use recent::Recent;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use tidemark_types::hash::bytes_hash;
use tidemark_types::ids::{AggregatorId, DcId};
use tidemark_types::ring::ChangeRing;
use tidemark_types::row_changes::{Part, RowChanges};
use tidemark_types::time::{Span, Time};
use tidemark_wire::msg::{Digest, PeerMsg, Version};
use tidemark_wire::shards::{Seats, ShardId};

/// More versions than a stream gives out in a second, or between two checkpoints. Starts are numbered by seconds, and the
/// versions of a start begin at its number times this. So they lie above the versions of every earlier life, even of a life that
/// the disk knows nothing of.
const VERSIONS_PER_START: u64 = 1 << 30;
/// A stream that has fewer left is refused.
const VERSIONS_LEFT_MIN: u64 = 1 << 41;
/// Cells that one version covers, at most, and parts of rows.
const CELLS_PER_VERSION: u32 = 64;
const PARTS_PER_VERSION: usize = 1 << 10;

/// The time after a repair, or a start on a disk, in which its changes have come to the others as well.
const SETTLED_AFTER: Span = Span::from_secs(60);
/// Bytes of one delta, about, unless the process chooses less.
const DELTA_BYTES_DEFAULT: usize = 64 << 10;
/// Cells of the own stream that a checkpoint names because peers may lack them; with more, such peers are told by a walk.
const RETELL_MAX: usize = 1 << 14;

/// The settings of gossip. All of them are the process's own choice; peers may differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GossipConfig {
    /// Changes within this are told together.
    pub gossip_interval: Span,
    /// Between digests while there is something to tell.
    pub digest_interval: Span,
    /// Between digests when there is not; digests back off to it.
    pub digest_interval_max: Span,
    /// Bytes of one delta, about.
    pub delta_bytes_max: usize,
    /// Deltas of one origin to one peer that may be unacknowledged.
    pub window_deltas: usize,
    /// Peers that own changes are pushed to. With more, a subset is chosen and the others get them by relaying.
    pub direct_peers_max: usize,
    /// Acknowledgements of deltas within this are sent together.
    pub ack_delay: Span,
    /// Beyond the round trip and `ack_delay`: when an unacknowledged delta is sent again.
    pub resend_slack: Span,
    /// How long an origin that is connected may lag behind before another peer is asked to relay it.
    pub relay_grace: Span,
    /// A relaying peer that brings nothing for so long is replaced.
    pub relay_patience: Span,
    /// The second aggregator of a pair sends by itself the changes that the first has not sent for this long.
    pub partner_patience: Span,
    /// Own changes remembered (4 bytes each, and 4 per cell).
    pub own_ring_events: usize,
    /// Changes of each foreign origin remembered (4 bytes each).
    pub relay_ring_events: usize,
    /// Components that the second of a pair holds back; with more, all of them are told.
    pub held_max: usize,
}

/// The least window of each stream that shares a process's budget.
const WINDOW_DELTAS_MIN: usize = 2;
const RING_EVENTS_MIN: usize = 1 << 10;
const HELD_MIN: usize = 1 << 8;

impl GossipConfig {
    /// The settings of each of several streams of a process that share this budget.
    pub fn shared_by(&self, streams: usize) -> GossipConfig {
        // Never more than was chosen.
        let part = |whole: usize, least: usize| (whole / streams.max(1)).max(least.min(whole));
        GossipConfig {
            window_deltas: part(self.window_deltas, WINDOW_DELTAS_MIN),
            own_ring_events: part(self.own_ring_events, RING_EVENTS_MIN),
            relay_ring_events: part(self.relay_ring_events, RING_EVENTS_MIN),
            held_max: part(self.held_max, HELD_MIN),
            ..self.clone()
        }
    }
}

impl Default for GossipConfig {
    fn default() -> GossipConfig {
        GossipConfig {
            gossip_interval: Span::from_millis(200),
            digest_interval: Span::from_secs(1),
            digest_interval_max: Span::from_secs(20),
            delta_bytes_max: DELTA_BYTES_DEFAULT,
            window_deltas: 16,
            direct_peers_max: 16,
            ack_delay: Span::from_millis(250),
            resend_slack: Span::from_secs(1),
            relay_grace: Span::from_secs(1),
            relay_patience: Span::from_secs(5),
            partner_patience: Span::from_millis(1_500),
            own_ring_events: 1 << 18,
            relay_ring_events: 1 << 16,
            held_max: 1 << 13,
        }
    }
}

/// The own stream, as every part of a checkpoint must hold it, taken when that part was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamState {
    epoch: u64,
    /// Peers that have this version lack at most the cells in `retell` of the data that may be on disk.
    floor: u64,
    /// The next life's versions begin here or above.
    reserved: u64,
    retell: Vec<u32>,
}

impl StreamState {
    /// Whether another life finds enough versions above those that were given out.
    pub fn has_room(&self) -> bool {
        self.reserved.max(self.floor) <= u64::MAX - VERSIONS_LEFT_MIN
    }
}

/// The versions up to which foreign origins are merged; goes into the last part of a checkpoint that was begun when this was
/// taken.
pub type ForeignState = Vec<(AggregatorId, Version)>;

/// Gossip of one aggregator about one shard.
#[derive(Clone, Debug)]
pub struct Gossip {
    own: AggregatorId,
    shard: ShardId,
    /// It was split off: a peer that has not split yet knows nothing of it.
    is_part: bool,
    /// The aggregators that tell it in each data centre, and those that are silent meanwhile.
    seats: Seats,
    /// The start of this process.
    start: u64,
    config: GossipConfig,
    origins: BTreeMap<AggregatorId, Origin>,
    peers: BTreeMap<AggregatorId, Peer>,
    /// Cells touched by the present own version.
    touched: u32,
    leader: Option<AggregatorId>,
    seed: u64,
    draws: u64,
    flush_at: Option<Time>,
    flushed_at: Option<Time>,
    review_at: Option<Time>,
    held: pair::Held,
    /// When data of other data centres was last merged that no version covers.
    repaired: Option<Time>,
    /// When this process resumed from its disk.
    resumed: Option<Time>,
    /// Resumes from the disk, with rows that may be ahead of versions; nothing was done yet.
    is_resumed: bool,
    outbox: VecDeque<(AggregatorId, PeerMsg)>,
    counts: GossipCounts,
}

/// A cell of this data centre changed, and these parts of its rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnChange {
    pub slot: u32,
    /// For each row, by its number in the view.
    pub rows: Vec<(u32, Part)>,
}

impl OwnChange {
    /// The cell alone.
    pub fn of(slot: u32) -> OwnChange {
        OwnChange { slot, rows: Vec::new() }
    }

    /// The cell and all that its rows hold of one data centre.
    fn whole(slot: u32, dc: DcId, cells: &Cells) -> OwnChange {
        let own = |valve: u16| cells.valves()[usize::from(valve)].group.dc == dc;
        let rows = cells.row_numbers(slot).filter(|&(_, valve)| own(valve)).map(|(number, _)| (number, Part::WHOLE));
        OwnChange { slot, rows: rows.collect() }
    }
}

/// Counts of gossip, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GossipCounts {
    pub deltas_sent: u64,
    pub deltas_merged: u64,
    /// Deltas that did not continue the state here, or that used unknown numbers.
    pub deltas_ignored: u64,
    /// Deltas that named more cells or valves than are allowed, or valves of another data centre.
    pub deltas_refused: u64,
    pub resent: u64,
    pub walks: u64,
    pub repairs: u64,
}

/// One data centre's stream, as known here.
#[derive(Clone, Debug)]
struct Origin {
    /// Merged up to here; of the own data centre: given out.
    have: Version,
    /// Some changes before that come with changes after it. The first version is the one up to which all is merged. The second
    /// has to be merged for all of `have` to be complete.
    lacks: Option<(Version, u64)>,
    /// Changes up to here may be merged in part: parts of walks are ahead of `have`.
    partly: Version,
    /// The data on disk may be ahead of `have`, too.
    unsure: Unsure,
    recent: Recent,
    /// Recent changes in rows, by the same versions.
    rows: RowChanges,
    /// For a foreign origin: the peer that relays it to here, and since when; and when the origin last came further.
    source: Option<(AggregatorId, Time)>,
    behind_since: Option<Time>,
    progressed: Time,
    /// The highest version that a connected peer has, by its own word; `None` when none has said.
    told: Option<Version>,
}

/// Whether data of an origin may be here that its version does not cover, from the life before this start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unsure {
    No,
    /// The origin has not reported its version yet: no other peer has more of it.
    Yes,
    /// No more than it had when it said so.
    Until(Version),
}

impl Gossip {
    /// `start` numbers the starts of this process. It increases, and is higher than the epoch of any earlier stream of this data
    /// centre. Without a stream on disk it names a new one.
    pub fn new(own: impl Into<AggregatorId>, start: u64, config: GossipConfig, seed: u64) -> Gossip {
        Gossip::of_shard(own.into(), ShardId::FIRST, Seats::default(), start, config, seed)
    }

    /// The same for a shard of a view that is cut, with data centres of several aggregators.
    pub fn of_shard(
        own_id: AggregatorId,
        shard: ShardId,
        seats: Seats,
        start: u64,
        config: GossipConfig,
        seed: u64,
    ) -> Gossip {
        let start = start.max(1);
        let own = Version { epoch: start, version: 0 };
        let ring = ChangeRing::new(config.own_ring_events, 0);
        Gossip {
            own: own_id,
            shard,
            is_part: seats.is_part(shard),
            seats,
            start,
            origins: BTreeMap::from([(own_id, Origin::new(own, Recent::Own(ring), config.own_ring_events))]),
            peers: BTreeMap::new(),
            touched: 0,
            leader: None,
            seed,
            draws: 0,
            flush_at: None,
            flushed_at: None,
            review_at: None,
            held: pair::Held::default(),
            repaired: None,
            resumed: None,
            is_resumed: false,
            outbox: VecDeque::new(),
            counts: GossipCounts::default(),
            config,
        }
    }

    /// Resumes the stream on disk: peers keep their data. Changes that an earlier life told and did not write are fed again by
    /// the groups, and get versions above all that were ever given out. That includes versions of lives that an old copy of the
    /// disk knows nothing of, since those had lower numbers. So a peer's data up to any version is there, and it is told the
    /// changes after it.
    pub fn resume(&mut self, stream: StreamState, foreign: ForeignState, cells: &Cells) {
        let ring = ChangeRing::new(self.config.own_ring_events, stream.floor);
        let of_start = self.start.saturating_mul(VERSIONS_PER_START).min(u64::MAX - 2 * VERSIONS_LEFT_MIN);
        let own = Version { epoch: stream.epoch, version: stream.reserved.max(stream.floor).max(of_start) };
        let mut origin = Origin::new(own, Recent::Own(ring), self.config.own_ring_events);
        origin.rows = RowChanges::new(self.config.own_ring_events, stream.floor);
        self.origins.insert(self.own, origin);
        for (origin, have) in foreign.into_iter().filter(|(id, _)| *id != self.own) {
            let ring = RelayRing::new(self.config.relay_ring_events, have.version);
            let known = Origin::new(have, Recent::Relay(ring), self.config.relay_ring_events);
            // A stream that has ended gets no further versions.
            let unsure = if self.seats.gathers(origin, self.shard) { Unsure::Yes } else { Unsure::No };
            self.origins.insert(origin, Origin { unsure, ..known });
        }
        self.is_resumed = true;
        // Also data centres that were first heard of since then.
        let dcs: BTreeSet<DcId> = cells.valves().iter().map(|valve| valve.group.dc).collect();
        let holders = dcs.into_iter().flat_map(|dc| self.seats.holders(self.shard, dc));
        for holder in holders.filter(|id| *id != self.own).collect::<Vec<_>>() {
            self.origin(holder);
        }
        let retold = stream.retell.into_iter().filter(|&slot| slot < cells.len());
        let retold = retold.map(|slot| OwnChange::whole(slot, self.own.dc, cells)).collect::<Vec<_>>();
        self.on_own_changes(Time::default(), retold);
    }

    /// There are components on disk but no stream: peers are told all of them by a walk.
    pub fn begin_with_walk(&mut self) {
        self.new_stream(self.start);
    }

    pub fn stream_state(&self) -> StreamState {
        let own = self.own();
        let acked =
            |peer: &Peer| Some(peer.have(self.own)).filter(|v| v.epoch == own.have.epoch).map_or(0, |v| v.version);
        let base = self.peers.values().map(acked).min().unwrap_or(0);
        let changed: Vec<(u32, u64)> = own.recent.since(base).collect();
        let kept = &changed[changed.len().saturating_sub(RETELL_MAX)..];
        let all = kept.len() == changed.len() && own.recent.reaches(base);
        let floor = if all { base } else { kept.first().map_or(own.have.version, |&(_, version)| version) };
        let mut retell: Vec<u32> = kept.iter().map(|&(slot, _)| slot).collect();
        retell.extend(self.held.slots());
        let reserved = own.have.version.saturating_add(VERSIONS_PER_START);
        StreamState { epoch: own.have.epoch, floor, reserved, retell }
    }

    pub fn foreign_state(&self) -> ForeignState {
        self.whole_of_others().map(|(id, whole, _)| (id, whole)).collect()
    }

    /// For each stream of others: up to where all of it is merged, and up to where some.
    pub fn whole_of_others(&self) -> impl Iterator<Item = (AggregatorId, Version, Version)> + '_ {
        let others = self.origins.iter().filter(|(id, _)| **id != self.own);
        others.map(|(&id, origin)| (id, origin.whole(), origin.some()))
    }

    /// The other one of the data centre that holds the shard.
    fn partner(&self) -> Option<AggregatorId> {
        self.seats.partner(self.own, self.shard)
    }

    /// Whether this is the second of two: it sends nothing abroad while it hears the first.
    fn is_second(&self) -> bool {
        self.seats.is_second(self.own, self.shard)
    }

    /// Whether it is receiving all of the shard, to hold it.
    fn joins(&self) -> bool {
        self.seats.joins(self.own, self.shard)
    }

    /// Others hold the shard from here on.
    pub fn on_seats(&mut self, now: Time, seats: &Seats) {
        self.seats = seats.clone();
        // Changes behind the end of a stream are not sent any more; the holders of the shard send them in their own streams.
        for (id, origin) in &mut self.origins {
            if !seats.gathers(*id, self.shard) {
                (origin.lacks, origin.partly, origin.unsure) = (None, origin.have, Unsure::No);
            }
        }
        if !self.is_second() {
            self.speak_first(now);
        }
        self.choose_direct();
        self.review_sources(now);
    }

    pub fn has_peer(&self, peer: AggregatorId) -> bool {
        self.peers.contains_key(&peer)
    }

    /// Whether all data is merged that the other holders of the data centre, of those that are connected, had when each last
    /// reported; at least one is connected.
    pub fn has_what_holders_have(&self) -> bool {
        let holders = self.seats.holders(self.shard, self.own.dc).filter(|holder| *holder != self.own);
        let is_merged = |peer: &&Peer| {
            let have = |origin| self.origins.get(&origin).map_or(Version::default(), Origin::whole);
            peer.has_said_all && peer.have.iter().all(|(&origin, &version)| have(origin) >= version)
        };
        let connected: Vec<&Peer> = holders.filter_map(|holder| self.peers.get(&holder)).collect();
        !connected.is_empty() && connected.iter().all(is_merged)
    }

    fn own(&self) -> &Origin {
        &self.origins[&self.own]
    }

    /// The version vector.
    pub fn have(&self) -> impl Iterator<Item = (AggregatorId, Version)> + '_ {
        self.origins.iter().map(|(&id, origin)| (id, origin.have))
    }

    /// When something new of a data centre was merged last; `None` if nothing was since the start, and for the own one.
    pub fn progressed(&self, dc: DcId) -> Option<Time> {
        let of_dc = self.origins.iter().filter(|(origin, _)| origin.dc == dc);
        of_dc.map(|(_, origin)| origin.progressed).max().filter(|&at| at > Time::default())
    }

    /// Whether the versions of others of a data centre cover all that is here of it. For a while no repair has come. And after a
    /// start on a disk that may be ahead, each of them has reported its version and is merged so far here, or a while is over.
    fn knows_what_it_has(&self, now: Time, dc: DcId) -> bool {
        let since = |at: Option<Time>| at.is_none_or(|at| now - at >= SETTLED_AFTER);
        let mut others = self.origins.iter().filter(|(id, _)| id.dc == dc && **id != self.own);
        !self.is_resumed
            && (dc == self.own.dc || since(self.repaired))
            && (since(self.resumed) || others.all(|(_, origin)| origin.is_settled()))
    }

    /// Whether all data of other data centres here is covered by the versions of [`Gossip::whole_of_others`].
    pub fn is_settled(&self, now: Time) -> bool {
        let mut dcs = self.origins.keys().map(|id| id.dc).filter(|dc| *dc != self.own.dc);
        !self.is_resumed && dcs.all(|dc| self.knows_what_it_has(now, dc))
    }

    pub fn counts(&self) -> GossipCounts {
        self.counts
    }

    pub fn peers(&self) -> impl Iterator<Item = AggregatorId> + '_ {
        self.peers.keys().copied()
    }

    // ---- inputs ----

    /// Components of this data centre changed in these cells, and parts of their rows.
    pub fn on_own_changes(&mut self, now: Time, changes: impl IntoIterator<Item = OwnChange>) {
        let Some(own) = self.origins.get_mut(&self.own) else { return };
        let Recent::Own(ring) = &mut own.recent else { return };
        let mut changed = false;
        let mut parts = 0;
        for OwnChange { slot, rows } in changes {
            if !changed || self.touched >= CELLS_PER_VERSION || parts + rows.len() > PARTS_PER_VERSION {
                own.have.version += 1;
                (self.touched, parts) = (0, 0);
            }
            changed = true;
            self.touched += 1;
            parts += rows.len();
            ring.touch(slot, own.have.version);
            rows.into_iter().for_each(|(number, part)| own.rows.push(own.have.version, number, part));
        }
        if changed && !self.peers.is_empty() {
            self.something_new(now);
        }
    }

    /// A peer is connected; digests go both ways.
    pub fn on_peer_up(&mut self, now: Time, id: AggregatorId, rtt: Span) {
        if id == self.own {
            return;
        }
        let interval = self.config.digest_interval;
        let peer = Peer { rtt, digest_at: now, digest_interval: interval, ..Peer::default() };
        if self.peers.insert(id, peer).is_some() {
            self.forget_told();
        }
        self.choose_direct();
    }

    /// The connection is gone, with all that was on its way.
    pub fn on_peer_gone(&mut self, now: Time, id: AggregatorId) {
        self.peers.remove(&id);
        self.forget_told();
        self.choose_direct();
        self.review_sources(now);
    }

    /// A new measurement of the round trip to a peer.
    pub fn on_rtt(&mut self, id: AggregatorId, rtt: Span) {
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.rtt = rtt;
        }
    }

    pub fn on_leader(&mut self, leader: Option<AggregatorId>) {
        self.leader = leader;
        self.choose_direct();
    }

    /// Sends due messages. To be called after every other input, too.
    pub fn tick(&mut self, now: Time, cells: &Cells) {
        if std::mem::take(&mut self.is_resumed) {
            self.resumed = Some(now);
        }
        if self.review_at.is_some_and(|at| at <= now) {
            self.review_at = None;
            self.review_sources(now);
        }
        self.run_held(now);
        self.resend_lost(now);
        if self.flush_at.is_some_and(|at| at <= now) {
            (self.flush_at, self.flushed_at) = (None, Some(now));
            self.flush(now, cells);
        }
        self.send_digests(now, cells);
    }

    pub fn poll_output(&mut self) -> Option<(AggregatorId, PeerMsg)> {
        self.outbox.pop_front()
    }

    /// When `tick` has something to do.
    pub fn poll_timeout(&self) -> Option<Time> {
        let of_peer = |peer: &Peer| {
            let resend = peer.sending.values().filter_map(|sending| sending.resend_at).min();
            [Some(peer.digest_at), peer.ack_at, resend].into_iter().flatten().min()
        };
        let held = self.held.due(self.config.partner_patience);
        self.peers.values().filter_map(of_peer).chain(self.flush_at).chain(self.review_at).chain(held).min()
    }

    // ---- timing ----

    /// Something can be told: at once after a pause, else when the interval is over.
    fn something_new(&mut self, now: Time) {
        let due = self.flushed_at.map_or(now, |at| (at + self.config.gossip_interval).max(now));
        self.flush_at = Some(self.flush_at.map_or(due, |at| at.min(due)));
        self.expect_digests(now);
    }

    /// The version vector changed: digests go out soon.
    fn expect_digests(&mut self, now: Time) {
        let soon = now + self.config.digest_interval;
        for peer in self.peers.values_mut() {
            peer.digest_at = peer.digest_at.min(soon);
            peer.digest_interval = self.config.digest_interval;
        }
    }

    /// The peers that own changes are pushed to: all when they are few; else the ledger's leader, near ones, and far ones
    /// drawn at random.
    fn choose_direct(&mut self) {
        let max = self.config.direct_peers_max;
        // Of a pair abroad one is told, and tells the other.
        let told_by_first = |peer: &AggregatorId| {
            let first = self.seats.first(self.shard, peer.dc);
            *peer != first && peer.dc != self.own.dc && self.peers.contains_key(&first)
        };
        let told = self.peers.iter().filter(|(peer, _)| !told_by_first(peer));
        let mut by_rtt: Vec<(Span, AggregatorId)> = told.map(|(&id, peer)| (peer.rtt, id)).collect();
        by_rtt.sort();
        let mut chosen: Vec<AggregatorId> = by_rtt.iter().map(|&(_, id)| id).collect();
        if chosen.len() > max {
            let mut far = chosen.split_off(max / 2);
            chosen.extend(
                self.leader.and_then(|leader| far.iter().position(|&id| id == leader)).map(|at| far.remove(at)),
            );
            while chosen.len() < max && !far.is_empty() {
                let at = (self.draw() % far.len() as u64) as usize;
                chosen.push(far.swap_remove(at));
            }
        }
        for (id, peer) in &mut self.peers {
            peer.direct = chosen.contains(id);
        }
    }

    /// The next number drawn from the seed.
    fn draw(&mut self) -> u64 {
        self.draws += 1;
        bytes_hash(self.seed, &self.draws.to_le_bytes())
    }

    // ---- digests ----

    fn send_digests(&mut self, now: Time, cells: &Cells) {
        let due: Vec<AggregatorId> =
            self.peers.iter().filter(|(_, peer)| peer.digest_at <= now).map(|(&id, _)| id).collect();
        for id in due {
            self.send_full_digest(now, cells, id, false);
        }
        let acks: Vec<AggregatorId> =
            self.peers.iter().filter(|(_, p)| p.ack_at.is_some_and(|at| at <= now)).map(|(&id, _)| id).collect();
        for id in acks {
            self.send_ack(id);
        }
    }

    /// Everything this side has. The next one comes later if there is nothing to tell; then an answer stands for it.
    fn send_full_digest(&mut self, now: Time, cells: &Cells, to: AggregatorId, reply: bool) {
        let have: Vec<(AggregatorId, Version)> = self.have().collect();
        let Some(peer) = self.peers.get_mut(&to) else { return };
        let equal = have.iter().all(|&(id, version)| peer.have(id) == version);
        if !reply || equal {
            peer.digest_interval = match equal {
                true => Span((peer.digest_interval.0 * 2).min(self.config.digest_interval_max.0)),
                false => self.config.digest_interval,
            };
            // One of the two is a little later, so that digests do not cross and get two answers.
            let later = if equal && self.own > to { peer.digest_interval.0 / 4 } else { 0 };
            peer.digest_at = now + Span(peer.digest_interval.0 + later);
        }
        let after_day = cells.comparable_after_day();
        let sums = self.comparable().map(|dc| (dc, cells.hash_of(dc))).collect();
        let row_sums = self.comparable().map(|dc| (dc, cells.row_hash_of(dc, after_day))).collect();
        let digest = Digest {
            row_sums,
            row_sums_after_day: after_day,
            ended: cells.ended(),
            ..self.digest(to, have, sums, reply)
        };
        self.outbox.push_back((to, PeerMsg::Digest(digest)));
    }

    /// Data centres with components here that match the versions here: not the own one while changes of it are held back.
    fn comparable(&self) -> impl Iterator<Item = DcId> + '_ {
        let mut dcs: Vec<DcId> = self.origins.keys().map(|origin| origin.dc).collect();
        dcs.dedup();
        dcs.into_iter().filter(|&dc| dc != self.own.dc || self.held.is_empty())
    }

    /// Acknowledges only the deltas from this peer since the last digest.
    fn send_ack(&mut self, to: AggregatorId) {
        let Some(peer) = self.peers.get_mut(&to) else { return };
        let acks = std::mem::take(&mut peer.acks);
        (peer.ack_at, peer.unacked_deltas) = (None, 0);
        let have = acks.iter().filter_map(|id| self.origins.get(id).map(|origin| (*id, origin.have))).collect();
        let digest = self.digest(to, have, Vec::new(), true);
        self.outbox.push_back((to, PeerMsg::Digest(digest)));
    }

    fn digest(
        &self,
        to: AggregatorId,
        have: Vec<(AggregatorId, Version)>,
        sums: Vec<(DcId, u64)>,
        reply: bool,
    ) -> Digest {
        let walks = self.peers.get(&to).map_or_else(Vec::new, |peer| {
            let state = |(&id, walk): (&AggregatorId, &peer::Receiving)| (id, walk.as_message());
            peer.walks.iter().map(state).collect()
        });
        let wanted =
            |(&id, origin): (&AggregatorId, &Origin)| origin.source.filter(|(from, _)| *from == to).map(|_| id);
        let want = self.origins.iter().filter_map(wanted).collect();
        Digest { sender: self.start, have, walks, want, sums, reply, ..Digest::default() }
    }

    /// A peer's digest: its versions, and its requests.
    pub fn on_digest(&mut self, now: Time, cells: &Cells, from: AggregatorId, digest: &Digest) {
        if !self.is_current(from, digest.sender) {
            return;
        }
        if let Some(&(_, own)) = digest.have.iter().find(|(id, _)| *id == self.own) {
            self.outgrow(now, own);
        }
        let mut further = false;
        let Some(peer) = self.peers.get_mut(&from) else { return };
        // Acknowledgements have no sums, and say something of a part.
        peer.has_said_all |= !digest.sums.is_empty();
        // New changes since the last flush are told with the next one.
        let was_held_back = peer.is_held_back(self.config.window_deltas);
        for &(origin, version) in &digest.have {
            let stale = !peer.acknowledge(origin, version);
            further |= !stale;
            if let Some(sending) = peer.sending.get_mut(&origin).filter(|_| !stale) {
                sending.defer(now, peer.rtt, &self.config);
            }
        }
        for &(origin, walk) in &digest.walks {
            if peer.acknowledge_walk(origin, walk)
                && let Some(sending) = peer.sending.get_mut(&origin)
            {
                sending.defer(now, peer.rtt, &self.config);
                further = true;
            }
        }
        let wants = digest.want.iter().copied().collect();
        let wants_other = wants != peer.wants;
        peer.wants = wants;
        self.note_told(&digest.have);
        if let (Some(origin), Some(&(_, version))) =
            (self.origins.get_mut(&from), digest.have.iter().find(|(id, _)| *id == from))
            && origin.unsure == Unsure::Yes
        {
            origin.unsure = Unsure::Until(version);
        }
        self.compare_sums(now, cells, from, digest);
        self.review_sources(now);
        let asks = !digest.reply && self.flush_at.is_none();
        if (further && was_held_back) || wants_other || asks {
            self.flush_peer(now, cells, from);
        }
        if !digest.reply {
            self.send_full_digest(now, cells, from, true);
        }
    }

    /// Whether a message is from the process that is connected; a newer one takes over.
    fn is_current(&mut self, from: AggregatorId, sender: u64) -> bool {
        let Some(peer) = self.peers.get_mut(&from) else { return false };
        if sender > peer.sender {
            let is_first = std::mem::replace(&mut peer.sender, sender) == 0;
            if !is_first {
                peer.restart(sender);
                self.forget_told();
            }
            return true;
        }
        sender == peer.sender
    }

    /// Peers know a later version of this data centre's stream than this process gave out: the disk is an old copy, or `start`
    /// was too low. Goes on with a new stream.
    fn outgrow(&mut self, now: Time, told: Version) {
        if told > self.own().have {
            self.new_stream(told.epoch.saturating_add(1));
            self.something_new(now);
        }
    }

    /// Panics when a rule is broken.
    pub fn check_invariants(&self) {
        assert!(!self.peers.contains_key(&self.own));
        for (id, peer) in &self.peers {
            assert!(peer.sending.values().all(|s| s.in_flight.len() <= self.config.window_deltas), "window to {id:?}");
        }
    }
}

impl Origin {
    /// With room for about this number of row changes.
    fn new(have: Version, recent: Recent, changes: usize) -> Origin {
        let progressed = Time::default();
        let told = None;
        let rows = RowChanges::new(changes, have.version);
        let lacks = None;
        let partly = have;
        let unsure = Unsure::No;
        Origin { have, lacks, partly, unsure, recent, rows, source: None, behind_since: None, progressed, told }
    }

    /// The version up to which changes may be merged in part.
    fn some(&self) -> Version {
        self.have.max(self.partly)
    }

    /// Whether [`Origin::some`] covers all.
    fn is_settled(&self) -> bool {
        match self.unsure {
            Unsure::No => true,
            Unsure::Yes => false,
            Unsure::Until(version) => self.whole() >= version,
        }
    }

    /// Everything that ever changed up to here is merged.
    fn whole(&self) -> Version {
        self.lacks.map_or(self.have, |(whole, _)| whole)
    }

    /// The version that has to be merged for everything up to `have` to be complete.
    fn known(&self) -> u64 {
        self.lacks.map_or(self.have.version, |(_, known)| known)
    }

    /// More was told, by a peer that knows up to `known`; all of it, or only changes.
    fn advance(&mut self, to: Version, known: u64, is_all: bool) {
        let known = if is_all { known } else { known.max(self.known()) };
        let whole = self.whole();
        self.have = to;
        self.lacks = (known > to.version).then_some((whole, known));
    }
}

#[cfg(test)]
mod tests;
