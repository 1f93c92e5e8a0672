//! An aggregator: the view of one data centre with everything around it. Feeds of its groups, gossip with other aggregators, the
//! messages between its groups and the ledger, and, if this aggregator leads the ledger, the leader's decisions.
//!
//! Event-driven; every call is lent the ledger's state as applied here. Its messages to groups about the ledger come from that
//! state only. Its messages to the ledger are repeated until the state shows their effect.

mod audit;
mod checkpoint;
mod claims;
mod feed;
mod generations;
mod image;
mod lost;
mod moves;
mod plumbing;
mod propose;
mod recovery;
mod reuse;
mod shard;
mod splits;
mod standing;

pub use audit::CellAudit;
pub use checkpoint::{RowError, Rows, buckets_at_rest, shelf_key, shelf_number, shelf_prefix};
pub use claims::{CLOCK_INTERVAL, LEADS_BEFORE_IT_ENDS};
pub use feed::FeedLag;
pub use image::{ImageReader, ViewImage, cursors_in, is_of_cells, is_of_image};
pub use moves::Missing;
pub use recovery::Recovery;
pub use splits::Splitting;

use crate::gossip::GossipConfig;
use crate::view::{Budget, View};
use checkpoint::Flushing;
use feed::Feed;
use generations::Telling;
use lost::Heard;
use moves::Moves;
use propose::Proposals;
use reuse::Reuse;
use shard::Shard;
use splits::Splits;
use standing::Standing;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use tidemark_ledger::leader::LeaderCore;
use tidemark_ledger::ledger::{Changes, Ledger, ShardMap};
use tidemark_types::alloc::PolicyConfig;
use tidemark_types::ids::{AggregatorId, CellId, CounterName, DcId, GroupId, LogIndex};
use tidemark_types::limits::GUARDED_COUNTERS_MAX;
use tidemark_types::series::UnixTime;
use tidemark_types::teeth::{Bug, bites};
use tidemark_types::time::{Span, Time, WallMs};
use tidemark_wire::msg::*;
use tidemark_wire::shards::{Ranges, Seats, ShardId};

/// Cells of ended generations that are dropped at a time: in a millisecond or so, for which reads wait.
const OVER_AT_ONCE: usize = 256;

/// The settings of a process, and its identity.
#[derive(Clone, Debug, PartialEq)]
pub struct AggregatorConfig {
    pub own: AggregatorId,
    /// Whether its data centre has other aggregators: then it shows nothing after a start before the ledger knows of that start.
    pub paired: bool,
    /// The aggregators that hold each range, this one included, by the map on disk here.
    pub seats: Seats,
    /// The revision of that map.
    pub map_revision: u64,
    /// Larger at every start of this aggregator.
    pub epoch: u64,
    /// Seed of the table of names.
    pub seed: u64,
    /// Where the view is cut; at most [`SHARDS_HELD_MAX`](tidemark_types::limits::SHARDS_HELD_MAX) ranges.
    pub ranges: Ranges,
    pub gossip: GossipConfig,
    pub policy: PolicyConfig,
    /// Bytes of one chunk of the feed.
    pub feed_bytes_max: u32,
    /// A pull of the feed without an answer is sent again after this, then twice as late each time, up to the second.
    pub feed_retry: Span,
    pub feed_retry_max: Span,
    /// Proposals gather for this long while something is decided soon.
    pub proposal_interval_near: Span,
    /// And for this long otherwise.
    pub proposal_interval_far: Span,
    /// Commands that must reach the ledger are repeated after this time.
    pub standing_retry: Span,
    /// Groups are told the settings again after this time, in case they missed them.
    pub settings_retry: Span,
    /// The least time between two notifications of totals.
    pub notify_interval: Span,
    /// The least time between two checkpoints of the view.
    pub checkpoint_interval: Span,
    /// Bytes of one part of a checkpoint, about.
    pub checkpoint_part_bytes: usize,
    /// Rows of a part that are encoded at a time: reads of the view wait meanwhile, and a part may have tens of thousands of
    /// rows.
    pub checkpoint_rows_at_once: usize,
    /// Edges, pairs and buckets that one step of totals behind the graph looks at, about: some half a millisecond, for which reads wait.
    pub graph_step: usize,
    /// The time between two of these.
    pub graph_interval: Span,
    /// The memory budget of rows of buckets; without it there is no limit.
    pub budget: Option<Budget>,
    /// Slots of a shard are freed once at least this many of its cells have ended, and at least one in `reused_part` of its cells.
    pub reused_min: u32,
    pub reused_part: u32,
}

impl AggregatorConfig {
    pub fn new(own: impl Into<AggregatorId>, epoch: u64) -> AggregatorConfig {
        AggregatorConfig {
            own: own.into(),
            paired: false,
            seats: Seats::default(),
            map_revision: 0,
            epoch,
            seed: 0,
            ranges: Ranges::whole(),
            gossip: GossipConfig::default(),
            policy: PolicyConfig::default(),
            feed_bytes_max: 256 << 10,
            feed_retry: Span::from_secs(1),
            feed_retry_max: Span::from_secs(10),
            proposal_interval_near: Span::from_millis(10),
            proposal_interval_far: Span::from_millis(100),
            standing_retry: Span::from_secs(1),
            settings_retry: Span::from_secs(10),
            notify_interval: Span::from_millis(100),
            checkpoint_interval: Span::from_secs(1),
            checkpoint_part_bytes: 1 << 20,
            checkpoint_rows_at_once: 1_024,
            graph_step: 1 << 13,
            graph_interval: Span::from_millis(1),
            budget: None,
            reused_min: 1 << 12,
            reused_part: 8,
        }
    }

    /// Whether this aggregator holds a shard.
    pub fn holds(&self, shard: ShardId) -> bool {
        self.ranges.has(shard) && self.seats.holds(self.own, shard)
    }

    /// Whether this aggregator is receiving all of a shard, to hold it.
    fn joins(&self, shard: ShardId) -> bool {
        self.ranges.has(shard) && self.seats.joins(self.own, shard)
    }

    /// Whether this aggregator is told of a shard.
    pub fn gathers(&self, shard: ShardId) -> bool {
        self.ranges.has(shard) && self.seats.gathers(self.own, shard)
    }

    /// Whether a shard has rows on disk: each shard that is told here, and the first, which has the limits of readings.
    pub fn keeps(&self, shard: ShardId) -> bool {
        shard == ShardId::FIRST || self.gathers(shard)
    }

    /// All that are so.
    pub fn kept(&self) -> BTreeSet<ShardId> {
        let further = self.ranges.iter().map(|range| range.shard).filter(|&shard| self.keeps(shard));
        further.chain([ShardId::FIRST]).collect()
    }

    /// The same by this map.
    pub fn by_map(mut self, map: &ShardMap) -> AggregatorConfig {
        self.ranges = self.ranges.with_splits(map.splits());
        let seats = self.seats.with_moved(map.moved().clone());
        (self.seats, self.map_revision) = (seats.with_lineage(self.ranges.lineage().clone()), map.revision());
        self
    }

    /// Whether another aggregator is told of a shard as well as this one.
    fn shares(&self, peer: AggregatorId, shard: ShardId) -> bool {
        self.gathers(shard) && self.seats.gathers(peer, shard)
    }

    /// Whether another aggregator holds a shard.
    fn is_held_by(&self, peer: AggregatorId, shard: ShardId) -> bool {
        self.seats.holds(peer, shard)
    }

    /// The first shard that both are told of: in its messages each learns where the other cuts its view.
    fn first_shared(&self, peer: AggregatorId) -> Option<ShardId> {
        // Where one knows of a split and the other does not yet, that of the least number is most likely the same.
        self.ranges.iter().map(|range| range.shard).filter(|&shard| self.shares(peer, shard)).min()
    }
}

/// An input of an aggregator.
#[derive(Clone, Debug)]
pub enum Input {
    /// A group of this data centre speaks for the first time on a connection.
    GroupUp {
        group: GroupId,
    },
    Group {
        group: GroupId,
        msg: FromGroup,
    },
    GroupGone {
        group: GroupId,
    },
    PeerUp {
        peer: AggregatorId,
        rtt: Span,
    },
    PeerRtt {
        peer: AggregatorId,
        rtt: Span,
    },
    Peer {
        peer: AggregatorId,
        msg: PeerMsg,
    },
    PeerGone {
        peer: AggregatorId,
    },
    /// The ledger's replica here has applied something.
    Ledger(Changes),
    /// The leader of the ledger, as far as is known here, and the term of its log: a leader that leads again has begun anew.
    Leader(Option<(AggregatorId, u64)>),
    /// The host's clock, every [`CLOCK_INTERVAL`]: if the ledger is led from here, it decides when claims end.
    Clock(WallMs),
    /// Commands of this data centre's operators and users; said until the ledger shows them.
    Submit(Vec<LedgerCmd>),
    /// Asks a group for its components of a cell; the answer comes as [`Output::Audited`], or never.
    Audit {
        group: GroupId,
        id: u64,
        cell: CellId,
    },
    /// Everything is to be written soon, though it is not time; [`AggregatorCore::flushes_done`] counts these.
    Flush,
    /// The rows last given out of a shard are durable.
    Persisted {
        shard: ShardId,
    },
    Tick,
}

/// An output of an aggregator.
#[derive(Clone, Debug)]
pub enum Output {
    Group {
        group: GroupId,
        msg: ForGroup,
    },
    Peer {
        peer: AggregatorId,
        msg: PeerMsg,
    },
    /// To be put into the ledger's log, in one entry: this data centre leads it.
    Propose(Vec<LedgerCmd>),
    /// Rows to persist in one transaction, answered with [`Input::Persisted`]: a part of a shard's checkpoint; of each one is out at a
    /// time.
    Persist {
        shard: ShardId,
        rows: Rows,
    },
    /// The ranges that have rows on disk from now on, and the map that names them. New ranges get a file, and the rows of ranges
    /// that are not named are deleted. Comes before any of their rows is persisted.
    Kept {
        map: ShardMap,
        kept: BTreeSet<ShardId>,
    },
    Notify(Event),
    /// Some lanes of a cell, compared at one entry of the group's log.
    Audited(CellAudit),
}

/// Something that subscribers may want to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Award {
        counter: CounterName,
        at: u64,
    },
    Signature {
        counter: CounterName,
        at: u64,
    },
    /// Claims may have taken a turn.
    Claims,
    /// The reading of a guarded counter changed; coalesced.
    Total {
        counter: CounterName,
        reading: Reading,
    },
    /// A connected aggregator cuts its view at other counters, or lays these otherwise: nothing is exchanged with it.
    CutElsewhere {
        peer: AggregatorId,
    },
}

/// The view of one data centre with everything around it.
#[derive(Clone, Debug)]
pub struct AggregatorCore {
    config: AggregatorConfig,
    view: View,
    /// By shard, as the view's cells.
    shards: Vec<Shard>,
    /// Connected aggregators with views that are cut like this one.
    cut_alike: BTreeSet<AggregatorId>,
    /// Connected aggregators with views that are cut otherwise.
    cut_elsewhere: BTreeSet<AggregatorId>,
    feeds: BTreeMap<GroupId, Feed>,
    moves: Moves,
    splits: Splits,
    flushing: Flushing,
    groups: BTreeSet<GroupId>,
    /// The progress of the groups of this data centre in hearing of resets.
    resets_heard: generations::ResetsHeard,
    /// When the next cells of ended generations are dropped.
    over_at: Option<Time>,
    reuse: Reuse,
    /// By connected group: the resets of counters that it was told of.
    telling: BTreeMap<GroupId, Telling>,
    rtts: BTreeMap<AggregatorId, Span>,
    /// When groups were last asked to repeat messages that may be lost.
    asked_again: Option<Time>,
    /// The leader of the ledger, and its term.
    reign: Option<(AggregatorId, u64)>,
    /// The time since which this aggregator leads the ledger.
    led_since: Option<Time>,
    leader_core: LeaderCore,
    /// When the leader wants to think again.
    leader_wake: Option<Time>,
    proposals: Proposals,
    standing: Standing,
    /// When guards and settings are said again.
    remind_at: Option<Time>,
    /// Last notified readings, and when totals may be notified again.
    notified: BTreeMap<CounterName, Reading>,
    /// Readings of guarded counters that are not held here, from their holders.
    told: BTreeMap<CounterName, Reading>,
    notify_at: Option<Time>,
    notify_last: Time,
    heard: Heard,
    /// When totals go on following the graph.
    graph_at: Option<Time>,
    /// The last reading of the host's clock, and when it came.
    clock: Option<(Time, WallMs)>,
    outputs: VecDeque<Output>,
    /// The ledger as it was at the start was taken in.
    started: bool,
}

impl AggregatorCore {
    /// An aggregator with nothing on disk.
    pub fn new(config: AggregatorConfig) -> AggregatorCore {
        let view = View::cut(config.own, config.seed, config.ranges.clone());
        let shards = (0..config.ranges.numbers() as u16).map(|shard| Shard::new(&config, ShardId(shard))).collect();
        AggregatorCore::with_state(config, view, shards, BTreeMap::new(), BTreeMap::new())
    }

    /// With a view that is cut as the configuration says, and as many shards. `beside` has the cursors of feeds that fill in the
    /// shards that are arriving.
    fn with_state(
        config: AggregatorConfig,
        mut view: View,
        shards: Vec<Shard>,
        feeds: BTreeMap<GroupId, Feed>,
        beside: BTreeMap<GroupId, LogIndex>,
    ) -> AggregatorCore {
        let mut standing = Standing::default();
        standing.add(registration(&config));
        if config.paired {
            view.show_from(config.epoch);
        }
        config.budget.iter().for_each(|budget| view.keep_within(budget));
        let mut core = AggregatorCore {
            leader_core: LeaderCore::new(config.policy.clone()),
            moves: Moves::default(),
            splits: Splits::default(),
            flushing: Flushing::default(),
            config,
            view,
            shards,
            cut_alike: BTreeSet::new(),
            cut_elsewhere: BTreeSet::new(),
            feeds,
            groups: BTreeSet::new(),
            resets_heard: generations::ResetsHeard::default(),
            over_at: None,
            reuse: Reuse::default(),
            telling: BTreeMap::new(),
            rtts: BTreeMap::new(),
            asked_again: None,
            led_since: None,
            reign: None,
            leader_wake: None,
            proposals: Proposals::default(),
            standing,
            remind_at: None,
            notified: BTreeMap::new(),
            told: BTreeMap::new(),
            notify_at: None,
            notify_last: Time(0),
            heard: Heard::default(),
            graph_at: None,
            clock: None,
            outputs: VecDeque::new(),
            started: false,
        };
        core.begin_moves(beside);
        core
    }

    /// Takes an input; `ledger` is the state applied here.
    pub fn handle(&mut self, now: Time, input: Input, ledger: &Ledger) {
        if !self.started {
            self.started = true;
            self.heard.start(now);
            if let Input::Clock(wall) = input {
                self.view.on_time(UnixTime::from_wall(wall));
            }
            self.view.on_start(ledger);
            self.on_map(now, ledger);
            self.say_parted(ledger);
            self.answer_arming(now, ledger);
        }
        match input {
            Input::GroupUp { group } => self.on_group_up(now, group, ledger),
            Input::Group { group, msg } => self.on_group(now, group, msg, ledger),
            Input::GroupGone { group } => self.on_group_gone(now, group),
            Input::PeerUp { peer, rtt } => self.on_peer_up(now, peer, rtt),
            Input::PeerRtt { peer, rtt } => {
                self.rtts.insert(peer, rtt);
                self.shards.iter_mut().for_each(|shard| shard.gossip.on_rtt(peer, rtt));
            }
            Input::Peer { peer, msg } => self.on_peer(now, peer, msg, ledger),
            Input::PeerGone { peer } => {
                self.rtts.remove(&peer);
                self.gossip_peer_gone(now, peer);
            }
            Input::Ledger(changes) => self.on_ledger(now, &changes, ledger),
            Input::Leader(leader) => self.on_leader(now, leader),
            Input::Clock(wall) => self.on_clock(now, wall, ledger),
            Input::Submit(cmds) => self.submit(cmds),
            Input::Audit { group, id, cell } => self.ask_audit(group, AuditAsk { id, group, cell, from_lane: 0 }),
            Input::Flush => self.flush(now),
            Input::Persisted { shard } => self.on_persisted(now, shard, ledger),
            Input::Tick => {}
        }
        self.run(now, ledger);
    }

    /// Everything that is due.
    fn run(&mut self, now: Time, ledger: &Ledger) {
        self.run_over(now, ledger);
        self.run_reuse(now, ledger);
        self.run_feeds(now);
        self.run_gossip(now);
        self.run_moves(now, ledger);
        self.run_splits(now, ledger);
        self.run_leader(now, ledger);
        self.say_heard(now, ledger);
        self.run_standing(now, ledger);
        self.run_reminders(now, ledger);
        self.run_proposals(now, ledger);
        self.run_notifications(now, ledger);
        self.run_graph(now, ledger);
        self.run_checkpoints(now);
    }

    /// The next output, in order, until `None`.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When an [`Input::Tick`] is due at the latest.
    pub fn poll_timeout(&self) -> Option<Time> {
        let feeds = self.all_feeds().filter_map(|(_, _, feed)| feed.due(&self.config)).min();
        let shards = self.shards.iter().flat_map(|own| [own.gossip.poll_timeout(), own.checkpoint.due()]);
        let times = [
            feeds,
            shards.flatten().min(),
            self.leader_wake,
            self.standing.due(),
            self.remind_at,
            self.over_at,
            self.reuse.due(),
            self.resets_heard.due(),
            self.proposals.due(),
            self.notify_at,
            self.graph_at,
            self.splits.due(),
        ];
        times.into_iter().flatten().min()
    }

    /// Drops cells of ended generations, some at a time.
    fn run_over(&mut self, now: Time, ledger: &Ledger) {
        let waits = self.over_at.is_some_and(|at| at > now);
        if !waits {
            self.over_at = None;
        }
        if self.view.may_drop(ledger) {
            let more = self.view.drop_over(ledger, if waits { 0 } else { OVER_AT_ONCE });
            self.over_at = self.over_at.or(more.then_some(now + self.config.graph_interval));
        }
        for (shard, dropped) in self.view.take_dropped() {
            let own = &mut self.shards[usize::from(shard.0)];
            dropped.into_iter().for_each(|slot| own.checkpoint.touch(slot));
            own.checkpoint.moved(now, self.config.checkpoint_interval);
        }
    }

    /// Totals follow the graph in steps between other work.
    fn run_graph(&mut self, now: Time, ledger: &Ledger) {
        if self.graph_at.is_none_or(|at| at > now) {
            return;
        }
        let more = self.view.step_graph(self.config.graph_step, ledger);
        self.graph_at = more.then(|| now + self.config.graph_interval);
    }

    /// The value of a counter as this view shows it.
    pub fn read(&self, counter: &CounterName, ledger: &Ledger) -> Reading {
        self.view.read(counter, ledger)
    }

    pub fn view(&self) -> &View {
        &self.view
    }

    /// The aggregators that hold each range, by the map that this view uses.
    pub fn seats(&self) -> &Seats {
        &self.config.seats
    }

    /// The number of this process's start: no earlier one of it had a higher one.
    pub fn start(&self) -> u64 {
        self.config.epoch
    }

    /// The measured round trip through the ledger's log; meaningful where it is led from.
    pub fn quorum_rtt(&self) -> Span {
        self.leader_core.quorum_rtt()
    }

    /// Round trips to the connected data centres: of a pair, to the nearer aggregator.
    pub fn rtts(&self) -> BTreeMap<DcId, Span> {
        let mut rtts = BTreeMap::new();
        for (peer, &rtt) in &self.rtts {
            rtts.entry(peer.dc).and_modify(|known: &mut Span| *known = rtt.min(*known)).or_insert(rtt);
        }
        rtts
    }

    /// Connected aggregators of a data centre.
    fn peers_of(&self, dc: DcId) -> impl Iterator<Item = AggregatorId> + use<> {
        let seats: Vec<AggregatorId> = self.rtts.keys().filter(|peer| peer.dc == dc).copied().collect();
        seats.into_iter()
    }

    /// The lag of the view behind each group of its data centre. For a group that is away nothing is known: the time since it was
    /// heard counts.
    pub fn feed_lags(&self, now: Time) -> impl Iterator<Item = (GroupId, FeedLag)> + '_ {
        self.feeds.iter().map(move |(&group, feed)| {
            let FeedLag { entries, time } = feed.lag(now);
            (group, FeedLag { entries, time: time.max(self.silent_for(now, group)) })
        })
    }

    /// Commands that the ledger has not shown yet.
    pub fn standing(&self) -> usize {
        self.standing.len()
    }

    // ---- gossip ----

    fn on_peer_up(&mut self, now: Time, peer: AggregatorId, rtt: Span) {
        self.rtts.insert(peer, rtt);
        self.gossip_peer_up(now, peer, rtt);
        self.tell_readings_to(peer);
        self.leader_core.on_peer_up(peer.dc);
        self.leader_wake = Some(now);
        if self.leader() == Some(peer) {
            self.on_leader_reached(now);
        }
    }

    fn on_peer(&mut self, now: Time, peer: AggregatorId, msg: PeerMsg, ledger: &Ledger) {
        match msg {
            PeerMsg::Digest(digest) => self.on_shard(now, peer, ShardId::FIRST, &ShardMsg::Digest(digest), ledger),
            PeerMsg::Delta(delta) => self.on_shard(now, peer, ShardId::FIRST, &ShardMsg::Delta(delta), ledger),
            // Messages about the first shard never name its number.
            PeerMsg::Shard { shard: ShardId::FIRST, .. } => {}
            PeerMsg::Shard { shard, msg } => self.on_shard(now, peer, shard, &msg, ledger),
            PeerMsg::Reading { counter, reading } => self.on_reading(now, peer, counter, reading, ledger),
            PeerMsg::Propose(cmds) => self.on_proposed_by(now, peer, cmds),
            PeerMsg::Recall(recall) if self.leader() == Some(peer) => self.forward_recall(&recall, ledger),
            // A recall names rights, and a group that returns more than it was granted is fenced: only the leader is believed.
            PeerMsg::Recall(_) => {}
        }
    }

    // ---- notifications ----

    /// Whether this aggregator has to send a counter's readings to an aggregator of this data centre, which does not hold it.
    fn is_told_of(&self, peer: AggregatorId, counter: &CounterName) -> bool {
        let shard = self.view.shard_of(counter);
        peer.dc == self.config.own.dc && self.holds(shard) && !self.config.is_held_by(peer, shard)
    }

    /// Sends the notified readings of guarded counters to an aggregator that has just been connected.
    fn tell_readings_to(&mut self, peer: AggregatorId) {
        let told = self.notified.iter().filter(|(counter, _)| self.is_told_of(peer, counter));
        let msg = |(counter, &reading): (&CounterName, &Reading)| Output::Peer {
            peer,
            msg: PeerMsg::Reading { counter: counter.clone(), reading },
        };
        let told: Vec<Output> = told.map(msg).collect();
        self.outputs.extend(told);
    }

    /// Takes a reading of a guarded counter that is not held here, from a holder. There are two holders, and one may be behind
    /// the other.
    fn on_reading(&mut self, now: Time, peer: AggregatorId, counter: CounterName, reading: Reading, ledger: &Ledger) {
        let shard = self.view.shard_of(&counter);
        let is_near = peer.dc == self.config.own.dc && self.is_cut_alike(peer);
        let of_holder = is_near && self.config.is_held_by(peer, shard);
        let is_new = of_holder && self.told.get(&counter).is_none_or(|known| goes_on(known, &reading));
        // An aggregator that was set aside does not know the milestones that were armed since.
        let is_registered = ledger.view_start(peer).is_some();
        if !(is_new && is_registered) || self.holds(shard) {
            return;
        }
        // The ledger's replica here may be behind, and not know yet that the counter is guarded.
        if self.told.len() >= GUARDED_COUNTERS_MAX {
            self.told.retain(|counter, _| ledger.counter(counter).is_some());
        }
        if self.told.len() < GUARDED_COUNTERS_MAX || self.told.contains_key(&counter) {
            self.told.insert(counter, reading);
            self.want_notifications(now);
        }
    }

    fn want_notifications(&mut self, now: Time) {
        let at = (self.notify_last + self.config.notify_interval).max(now);
        self.notify_at.get_or_insert(at);
    }

    fn run_notifications(&mut self, now: Time, ledger: &Ledger) {
        if self.notify_at.is_none_or(|at| at > now) {
            return;
        }
        (self.notify_at, self.notify_last) = (None, now);
        self.say_remains(ledger);
        // A view of a pair that was set aside has nothing to show.
        if self.config.paired && !self.view.is_registered(ledger) {
            return;
        }
        for counter in ledger.guarded() {
            let is_held = self.holds(self.view.shard_of(counter));
            let told = if is_held { Some(self.view.read(counter, ledger)) } else { self.told.get(counter).copied() };
            let old = self.notified.get(counter);
            // The holder that showed it before may have known more, for a moment.
            let Some(reading) = told.filter(|told| old.is_none_or(|old| goes_on(old, told))) else { continue };
            let shown = |reading: &Reading| (reading.up, reading.pending, reading.down);
            if old.is_none_or(|old| shown(old) != shown(&reading)) {
                self.notified.insert(counter.clone(), reading);
                self.outputs.push_back(Output::Notify(Event::Total { counter: counter.clone(), reading }));
                let peers = self.peers_of(self.config.own.dc).filter(|&peer| self.is_told_of(peer, counter));
                let msg = |peer| Output::Peer { peer, msg: PeerMsg::Reading { counter: counter.clone(), reading } };
                let told: Vec<Output> = peers.map(msg).collect();
                self.outputs.extend(told);
            }
        }
    }

    /// Panics when a rule is broken.
    pub fn check_invariants(&self) {
        self.view.check_invariants();
        let stray = self.view.shards().find(|(shard, cells)| !self.config.gathers(*shard) && !cells.is_empty());
        assert!(stray.is_none(), "cells of a shard that is not told here: {:?}", stray.map(|(shard, _)| shard));
        self.shards.iter().for_each(|shard| shard.gossip.check_invariants());
        self.check_freed();
    }
}

/// Whether a reading may be sent after another one.
fn goes_on(known: &Reading, reading: &Reading) -> bool {
    let halves = |reading: &Reading| (reading.generation, reading.up, reading.down);
    let ((was, up, down), (is, now_up, now_down)) = (halves(known), halves(reading));
    is > was || is == was && now_up >= up && now_down >= down || bites(Bug::ToldGoesBack)
}

/// The command that makes arming wait for this view.
fn registration(config: &AggregatorConfig) -> LedgerCmd {
    match config.paired {
        true => LedgerCmd::ViewStart { view: config.own, start: config.epoch },
        false => LedgerCmd::View(config.own),
    }
}

#[cfg(test)]
mod tests;
