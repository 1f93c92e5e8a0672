//! A run in virtual time: every data centre's node, aggregator and replica of the ledger, the machines that ship, over links that only
//! delay. It ends when the awards that were asked for are known and every view has all increments.

use super::arrivals::{FLUSH_INTERVAL, Flush, FrontEnd, poisson};
use super::books::{Books, Phase};
use super::costs::Parcel;
use super::layout::Layout;
use super::log::{Log, SYNC};
use super::wake::Wake;
use super::watch::Watch;
use tidemark_proto::aggregator::{self, AggregatorConfig, AggregatorCore};
use tidemark_proto::hash::lane_of;
use tidemark_proto::ids::{CounterName, DcId, GroupId, LogIndex};
use tidemark_proto::ledger::{Changes, Ledger};
use tidemark_proto::msg::{ForGroup, FromClient, FromGroup, LedgerCmd, MilestoneSpec, PeerMsg, ToClient, ToGroup};
use tidemark_proto::node::{self, ConnId, NodeConfig, NodeCore};
use tidemark_proto::shards::ShardId;
use tidemark_proto::time::{Span, Time};
use tidemark_sim::queue::Queue;
use tidemark_sim::rng::Rng;

/// Lanes of each group, and the reference layout's valves per data centre.
const LANES: u8 = 10;
const NAMESPACE: &str = "sim";
/// How often the run is looked at.
const LOOK_INTERVAL: Span = Span::from_millis(5);
/// A milestone is near when it is due within this, and for so long after its award.
const NEAR_BEFORE: Span = Span::from_secs(2);
const NEAR_AFTER: Span = Span::from_secs(1);
/// Rates become known, and the first rights are handed out.
const WARM_UP: Span = Span::from_secs(2);
/// Between arming and the first increment.
const GRANTS_FIRST: Span = Span::from_millis(500);
/// A recall that was delivered is in the group's log, and applied, within this: a commit interval, two syncs, and as much again.
const CAREFUL: Span = Span::from_millis(50);
/// Views have all increments within this, or the run says that they had not.
const CONVERGED_MAX: Span = Span::from_secs(60);

/// The input of one run.
#[derive(Clone, Debug)]
pub struct RunPlan {
    pub seed: u64,
    pub centres: usize,
    pub rate_per_s: u64,
    pub front_ends_per_centre: usize,
    pub cold_counters: u32,
    /// Counted before the milestone is defined.
    pub start_at: u64,
    pub spec: MilestoneSpec,
    /// The run counts on until this number of awards is known.
    pub awards: usize,
    /// And, awards or not, no longer than this.
    pub counting_max: Span,
}

/// Where a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Registering,
    Loading,
    Arming,
    Granting { until: Time },
    Counting { since: Time },
    Converging { since: Time },
    Over,
}

#[derive(Debug)]
enum Event {
    Flush {
        front_end: usize,
    },
    NodeTick {
        node: usize,
    },
    Synced {
        node: usize,
        upto: LogIndex,
    },
    NodePersisted {
        node: usize,
    },
    ToGroup {
        node: usize,
        msg: ForGroup,
    },
    FromGroup {
        dc: usize,
        msg: FromGroup,
    },
    AggregatorTick {
        dc: usize,
    },
    AggregatorPersisted {
        dc: usize,
    },
    Peer {
        from: usize,
        to: usize,
        msg: PeerMsg,
    },
    /// Entries of the ledger's log below `upto` are known to be committed.
    Committed {
        dc: usize,
        upto: usize,
    },
    Look,
}

/// An event, and what a link carried to bring it about.
#[derive(Debug)]
struct Arrival {
    bytes: u64,
    event: Event,
}

struct Node {
    core: NodeCore,
    wake: Wake,
    group: GroupId,
    /// Weight sent to it and not known to be applied.
    flying: u64,
    /// Until then a recall may be on its way through its log.
    careful_until: Time,
}

struct Aggregator {
    core: AggregatorCore,
    wake: Wake,
    ledger: Ledger,
    applied: usize,
}

/// A run under way.
pub struct Drive {
    pub plan: RunPlan,
    pub layout: Layout,
    pub books: Books,
    pub watch: Watch,
    pub arrived: u64,
    now: Time,
    queue: Queue<Arrival>,
    rng: Rng,
    counter: CounterName,
    cold: Vec<CounterName>,
    nodes: Vec<Node>,
    aggregators: Vec<Aggregator>,
    front_ends: Vec<FrontEnd>,
    log: Log,
    stage: Stage,
    near: bool,
}

impl Drive {
    pub fn new(plan: RunPlan) -> Drive {
        let layout = Layout::of(plan.centres, plan.seed);
        let rng = Rng::new(plan.seed).fork(20);
        let name = |key: String| CounterName::new(NAMESPACE, key.as_bytes()).expect("a short name");
        let cold: Vec<CounterName> = (0..plan.cold_counters).map(|n| name(format!("cold/{n:06}"))).collect();
        let mut drive = Drive {
            books: Books::default(),
            watch: Watch::new(layout.centres()),
            arrived: 0,
            now: Time(1),
            queue: Queue::default(),
            counter: name("search/queries".to_owned()),
            nodes: (0..layout.centres()).map(new_node).collect(),
            aggregators: (0..layout.centres()).map(new_aggregator).collect(),
            front_ends: new_front_ends(&plan, &layout),
            log: Log::new(&layout),
            stage: Stage::Registering,
            near: false,
            plan,
            layout,
            rng,
            cold,
        };
        drive.connect();
        drive
    }

    /// Runs to the end.
    pub fn run(&mut self) {
        while self.stage != Stage::Over {
            let Some((at, arrival)) = self.queue.pop() else { return };
            self.books.pass(self.now, at);
            self.now = at;
            self.books.carried += arrival.bytes;
            self.dispatch(arrival.event);
        }
    }

    /// Bytes of messages that were sent and have not arrived.
    pub fn under_way_bytes(&mut self) -> u64 {
        std::iter::from_fn(|| self.queue.pop()).map(|(_, arrival)| arrival.bytes).sum()
    }

    /// The view of the ledger's leader.
    pub fn view(&self) -> &tidemark_proto::view::View {
        self.aggregators[self.layout.leader].core.view()
    }

    pub fn leader(&self) -> DcId {
        DcId(self.layout.leader as u16)
    }

    fn connect(&mut self) {
        let leader = self.leader();
        for dc in 0..self.layout.centres() {
            self.aggregator_input(dc, aggregator::Input::Leader(Some((leader.into(), 1))));
            self.node_input(dc, node::Input::Tick);
            self.node_input(dc, node::Input::AggregatorUp { seat: 0 });
            let group = self.nodes[dc].group;
            self.aggregator_input(dc, aggregator::Input::GroupUp { group });
            for peer in (0..self.layout.centres()).filter(|&peer| peer != dc) {
                let rtt = Span(u64::from(self.layout.rtt_us[dc][peer]));
                self.aggregator_input(dc, aggregator::Input::PeerUp { peer: DcId(peer as u16).into(), rtt });
            }
        }
        self.submit(vec![LedgerCmd::Namespace(NAMESPACE.to_owned())]);
        self.after(LOOK_INTERVAL, Event::Look);
    }

    fn dispatch(&mut self, event: Event) {
        match event {
            Event::Flush { front_end } => self.on_flush(front_end),
            Event::NodeTick { node } => {
                if self.nodes[node].wake.fired(self.now) {
                    self.node_input(node, node::Input::Tick);
                }
            }
            Event::Synced { node, upto } => self.on_synced(node, upto),
            Event::NodePersisted { node } => self.node_input(node, node::Input::Persisted),
            Event::ToGroup { node, msg } => self.on_to_group(node, msg),
            Event::FromGroup { dc, msg } => {
                let group = self.nodes[dc].group;
                self.aggregator_input(dc, aggregator::Input::Group { group, msg });
            }
            Event::AggregatorTick { dc } => {
                if self.aggregators[dc].wake.fired(self.now) {
                    self.aggregator_input(dc, aggregator::Input::Tick);
                }
            }
            Event::AggregatorPersisted { dc } => {
                self.aggregator_input(dc, aggregator::Input::Persisted { shard: ShardId::FIRST })
            }
            Event::Peer { from, to, msg } => {
                self.aggregator_input(to, aggregator::Input::Peer { peer: DcId(from as u16).into(), msg });
            }
            Event::Committed { dc, upto } => self.on_committed(dc, upto),
            Event::Look => self.look(),
        }
    }

    fn after(&mut self, span: Span, event: Event) {
        self.queue.push(self.now + span, Arrival { bytes: 0, event });
    }

    /// Hands a message to the link between two data centres, or inside one.
    fn carry(&mut self, parcel: &Parcel, from: usize, to: usize, event: Event) {
        self.books.send(parcel, from != to);
        let at = self.now + Span(self.layout.one_way_us(from, to));
        self.queue.push(at, Arrival { bytes: parcel.bytes(), event });
    }

    // ---- front ends ----

    fn open(&mut self, front_end: usize) {
        let node = self.front_ends[front_end].node;
        let client = self.front_ends[front_end].id;
        let conn = ConnId(front_end as u64);
        let owner = FrontEnd::owner(front_end);
        self.node_input(node, node::Input::ClientUp { conn, owner });
        self.node_input(
            node,
            node::Input::Client { conn, msg: FromClient::Open { client, since: None, asks_known: false } },
        );
    }

    fn on_flush(&mut self, number: usize) {
        if !matches!(self.stage, Stage::Counting { .. }) {
            return;
        }
        let mean = self.front_ends[number].share * self.plan.rate_per_s as f64 * FLUSH_INTERVAL.as_secs_f64();
        let count = poisson(&mut self.rng, mean);
        if count > 0 {
            self.count(number, count);
        }
        if !self.cold.is_empty() {
            let at = self.rng.below(self.cold.len() as u64) as usize;
            self.count_cold(number, at);
        }
        self.after(FLUSH_INTERVAL, Event::Flush { front_end: number });
    }

    /// Increments that the group certifies for sure go as one; the rest may be queued, and goes one by one.
    fn count(&mut self, number: usize, count: u64) {
        let node = &self.nodes[self.front_ends[number].node];
        let guard = node.core.group().guards().first();
        let available = match guard {
            None => u64::MAX,
            Some(_) if self.now < node.careful_until => 0,
            Some(guard) => guard.available().saturating_sub(node.flying),
        };
        // A single increment is sent as it is: with its session.
        let weight = if count.min(available) > 1 { count.min(available) } else { 0 };
        self.send_count(number, weight, count - weight);
    }

    fn send_count(&mut self, number: usize, weight: u64, singles: u64) {
        let front_end = &mut self.front_ends[number];
        let node = front_end.node;
        let flush = front_end.count(&mut self.rng, &self.counter, weight, singles);
        self.nodes[node].flying += weight + singles;
        self.arrived += weight + singles;
        self.send_to_node(node, number, flush);
    }

    fn count_cold(&mut self, number: usize, at: usize) {
        let node = self.front_ends[number].node;
        let name = &self.cold[at];
        let flush = self.front_ends[number].count_cold(1 + at as u32, lane_of(name, LANES), name);
        self.send_to_node(node, number, flush);
    }

    /// At once, since what the group has rights for was looked up for this moment; its way only shifts the flush.
    fn send_to_node(&mut self, node: usize, front_end: usize, flush: Flush) {
        self.books.count_as_hits(flush.bytes_as_hits);
        self.books.deliver(&Parcel::increments(flush.bytes));
        self.node_input(node, node::Input::Client { conn: ConnId(front_end as u64), msg: flush.msg });
    }

    fn on_answer(&mut self, conn: ConnId, msg: &ToClient) {
        let number = conn.0 as usize;
        let node = self.front_ends[number].node;
        self.books.deliver(&Parcel::to_client(msg));
        match msg {
            ToClient::Welcome { own_lane, .. } => self.front_ends[number].own_lane = *own_lane,
            ToClient::Durable { lane, seq, pending, .. } => {
                let weight = self.front_ends[number].on_durable(self.now, *lane, *seq);
                self.nodes[node].flying -= weight;
                self.watch.last_applied = self.now;
                // Of a batch with a weighted increment this is the first; with none, everything weighs one.
                let weighted = pending.first() == Some(&0) && pending.len() as u64 != weight;
                self.watch.weighted_queued += u64::from(weighted);
            }
            ToClient::Refused { .. } | ToClient::NotYours { .. } | ToClient::Ids { .. } => self.watch.refused += 1,
            ToClient::Spread { .. } | ToClient::Placed { .. } | ToClient::Lifted { .. } => {}
            ToClient::Fenced { .. } | ToClient::Forgotten { .. } => {}
        }
    }

    // ---- nodes ----

    fn node_input(&mut self, node: usize, input: node::Input) {
        self.nodes[node].core.handle(self.now, input);
        while let Some(output) = self.nodes[node].core.poll_output() {
            self.on_node_output(node, output);
        }
        let process = &mut self.nodes[node];
        if let Some(at) = process.wake.arm(self.now, process.core.poll_timeout()) {
            self.queue.push(at, Arrival { bytes: 0, event: Event::NodeTick { node } });
        }
    }

    fn on_node_output(&mut self, node: usize, output: node::Output) {
        match output {
            node::Output::Append { index, .. } => self.after(SYNC, Event::Synced { node, upto: index }),
            node::Output::Client { conn, msg } => self.on_answer(conn, &msg),
            node::Output::Aggregator { msg, .. } => {
                let parcel = Parcel::from_group(&msg);
                self.carry(&parcel, node, node, Event::FromGroup { dc: node, msg });
            }
            node::Output::Persist(_) => self.after(SYNC, Event::NodePersisted { node }),
            node::Output::CutLog { .. } => {}
            node::Output::EndClients => {
                unreachable!("the report's groups are on one node each, and nothing in them is ever over")
            }
            node::Output::Abandon => unreachable!("the report's groups are not lost"),
            node::Output::Stop { error } => unreachable!("the report's groups are on one node each: {error}"),
        }
    }

    fn on_synced(&mut self, node: usize, upto: LogIndex) {
        self.node_input(node, node::Input::Durable { upto });
        self.watch.queued_max = self.watch.queued_max.max(self.nodes[node].core.group().queued());
    }

    fn on_to_group(&mut self, node: usize, msg: ForGroup) {
        if matches!(&msg, ForGroup::Ledger(ToGroup::Account(account)) if account.recall) {
            self.nodes[node].careful_until = self.now + CAREFUL;
        }
        self.node_input(node, node::Input::Aggregator { seat: 0, msg });
    }

    // ---- aggregators ----

    fn aggregator_input(&mut self, dc: usize, input: aggregator::Input) {
        let merges =
            matches!(input, aggregator::Input::Peer { msg: PeerMsg::Delta(_), .. } | aggregator::Input::Group { .. });
        let process = &mut self.aggregators[dc];
        process.core.handle(self.now, input, &process.ledger);
        while let Some(output) = self.aggregators[dc].core.poll_output() {
            self.on_aggregator_output(dc, output);
        }
        let process = &mut self.aggregators[dc];
        if let Some(at) = process.wake.arm(self.now, process.core.poll_timeout()) {
            self.queue.push(at, Arrival { bytes: 0, event: Event::AggregatorTick { dc } });
        }
        if merges && matches!(self.stage, Stage::Converging { .. }) {
            self.look_at_view(dc);
        }
    }

    fn on_aggregator_output(&mut self, dc: usize, output: aggregator::Output) {
        match output {
            aggregator::Output::Group { msg, .. } => {
                let parcel = Parcel::for_group(&msg);
                self.carry(&parcel, dc, dc, Event::ToGroup { node: dc, msg });
            }
            aggregator::Output::Peer { peer: to, msg } => {
                let parcel = Parcel::peer(&msg);
                let to = usize::from(to.dc.0);
                self.carry(&parcel, dc, to, Event::Peer { from: dc, to, msg });
            }
            aggregator::Output::Propose(cmds) => self.propose(cmds),
            aggregator::Output::Persist { .. } => self.after(SYNC, Event::AggregatorPersisted { dc }),
            aggregator::Output::Notify(aggregator::Event::Award { at, .. }) => self.on_award(dc, at),
            aggregator::Output::Notify(_) | aggregator::Output::Audited(_) | aggregator::Output::Kept { .. } => {}
        }
    }

    fn submit(&mut self, cmds: Vec<LedgerCmd>) {
        self.aggregator_input(self.layout.leader, aggregator::Input::Submit(cmds));
    }

    /// Every replica gets the entry at once, and learns that it is committed half a round trip after it was.
    fn propose(&mut self, cmds: Vec<LedgerCmd>) {
        let parcel = Parcel::log(&cmds);
        let committed = self.log.propose(self.now, cmds);
        let upto = self.log.entries.len();
        let leader = self.layout.leader;
        for dc in 0..self.layout.centres() {
            let mut at = committed;
            let mut bytes = 0;
            if dc != leader {
                self.books.send(&parcel, true);
                (at, bytes) = (committed + Span(self.layout.one_way_us(leader, dc)), parcel.bytes());
            }
            self.queue.push(at, Arrival { bytes, event: Event::Committed { dc, upto } });
        }
    }

    fn on_committed(&mut self, dc: usize, upto: usize) {
        let process = &mut self.aggregators[dc];
        for at in process.applied..upto {
            let index = LogIndex(at as u64 + 1);
            self.log.entries[at].iter().for_each(|cmd| process.ledger.apply(index, cmd));
            process.ledger.skip(index);
        }
        process.applied = process.applied.max(upto);
        let changes = process.ledger.take_changes();
        if dc == self.layout.leader {
            self.watch.ledger(&self.counter, &process.ledger);
        }
        if changes != Changes::default() {
            self.aggregator_input(dc, aggregator::Input::Ledger(changes));
        }
    }

    fn on_award(&mut self, dc: usize, at: u64) {
        let state = self.aggregators[dc].ledger.counter(&self.counter);
        let Some(award) = state.and_then(|state| state.awards().get(&at)).map(|awarded| &awarded.award) else { return };
        if usize::from(award.group.dc.0) != dc {
            return;
        }
        let applied = self.front_ends[FrontEnd::number_of(award.client)].applied_at(award.seq).unwrap_or(Time(0));
        let bound_us = self.layout.to_leader_us(dc) + self.layout.quorum_us();
        self.watch.award(self.now, award, at, applied, bound_us);
    }

    // ---- stages ----

    fn look(&mut self) {
        match self.stage {
            Stage::Registering if self.nodes.iter().all(|node| is_ready(&node.core)) => self.load(),
            Stage::Loading if (0..self.layout.centres()).all(|dc| self.has_loaded(dc)) => self.define(),
            Stage::Arming if self.is_armed() => self.stage = Stage::Granting { until: self.now + GRANTS_FIRST },
            Stage::Granting { until } if self.now >= until => self.begin_counting(),
            Stage::Counting { since } => self.look_while_counting(since),
            Stage::Converging { since } => {
                let over = self.watch.complete_at.iter().all(Option::is_some) || self.now - since > CONVERGED_MAX;
                self.stage = if over { Stage::Over } else { self.stage };
            }
            _ => {}
        }
        self.after(LOOK_INTERVAL, Event::Look);
    }

    /// Front ends connect, and what was counted before the run is counted.
    fn load(&mut self) {
        (0..self.front_ends.len()).for_each(|number| self.open(number));
        self.stage = Stage::Loading;
        let share = self.plan.start_at / self.layout.centres() as u64;
        let mut rest = self.plan.start_at;
        for dc in 0..self.layout.centres() {
            (0..self.cold.len()).for_each(|at| self.count_cold(dc * self.plan.front_ends_per_centre, at));
            let weight = if dc + 1 == self.layout.centres() { rest } else { share };
            rest -= weight;
            if weight > 0 {
                self.send_count(dc * self.plan.front_ends_per_centre, weight, 0);
            }
        }
    }

    fn define(&mut self) {
        self.stage = Stage::Arming;
        let counter = self.counter.clone();
        let spec = self.plan.spec.clone();
        self.submit(vec![LedgerCmd::Define { counter, revision: 0, spec }]);
    }

    fn is_armed(&self) -> bool {
        let state = self.aggregators[self.layout.leader].ledger.counter(&self.counter);
        state.is_some_and(|state| state.next_armed().is_some())
    }

    fn begin_counting(&mut self) {
        self.stage = Stage::Counting { since: self.now };
        for front_end in 0..self.front_ends.len() {
            let phase = Span(self.rng.below(FLUSH_INTERVAL.0));
            self.after(phase, Event::Flush { front_end });
        }
    }

    fn look_while_counting(&mut self, since: Time) {
        let near = self.is_near();
        match (self.near, near) {
            (false, true) => self.open_milestone(),
            (true, false) => self.close_milestone(),
            _ => {}
        }
        self.near = near;
        let several = self.plan.awards > 1;
        let warm = self.now - since >= WARM_UP && (!several || !self.watch.awards.is_empty() && !self.is_first(near));
        self.books.phase = match (warm, near) {
            (false, _) => Phase::Before,
            (true, true) => Phase::Near,
            (true, false) => Phase::Quiet,
        };
        let awarded = self.watch.awards.len() >= self.plan.awards && !near;
        if awarded || self.now - since > self.plan.counting_max {
            self.begin_converging();
        }
    }

    /// The first of several awards is not counted, nor what it costs.
    fn is_first(&self, near: bool) -> bool {
        near && self.watch.awards.len() == 1 && self.just_awarded()
    }

    /// Where everything is sequenced from some count on, an award ends nothing.
    fn just_awarded(&self) -> bool {
        let goes_on = self.plan.spec.sequence_from.is_some();
        !goes_on && self.watch.awarded_at.is_some_and(|at| self.now - at < NEAR_AFTER)
    }

    /// Whether the next milestone is due soon, or the last one has just been awarded.
    fn is_near(&self) -> bool {
        let before = (self.plan.rate_per_s as f64 * NEAR_BEFORE.as_secs_f64()) as u64;
        let from = |at: u64| {
            let sequenced = self.plan.spec.sequence_from.unwrap_or(at);
            at.min(sequenced).saturating_sub(before)
        };
        let next = self.next_milestone();
        self.just_awarded() || next.is_some_and(|at| self.arrived >= from(at))
    }

    /// The least milestone that is not known to be awarded.
    fn next_milestone(&self) -> Option<u64> {
        let listed = self.plan.spec.at.iter().copied().find(|at| !self.watch.awards.contains_key(at));
        let last = self.watch.awards.keys().next_back().copied().unwrap_or(self.plan.start_at);
        listed.or(self.plan.spec.every.map(|every| (last / every + 1) * every))
    }

    /// Increments that were sequenced before, while rights were still unknown, are not the milestone's.
    fn open_milestone(&mut self) {
        let ledger = &self.aggregators[self.layout.leader].ledger;
        self.watch.open(&self.counter, ledger);
    }

    fn close_milestone(&mut self) {
        let ledger = &self.aggregators[self.layout.leader].ledger;
        self.watch.close(&self.counter, ledger);
    }

    fn begin_converging(&mut self) {
        self.close_milestone();
        self.stage = Stage::Converging { since: self.now };
        self.books.phase = Phase::Before;
    }

    fn look_at_view(&mut self, dc: usize) {
        if self.watch.complete_at[dc].is_none() && self.has_all(dc) {
            self.watch.complete_at[dc] = Some(self.now);
        }
    }

    fn has_loaded(&self, dc: usize) -> bool {
        let view = self.aggregators[dc].core.view();
        let everywhere = self.layout.centres() as u64;
        self.has_all(dc) && self.cold.iter().all(|name| view.sum_of(name, 0) == everywhere)
    }

    fn has_all(&self, dc: usize) -> bool {
        self.aggregators[dc].core.view().sum_of(&self.counter, 0) == self.arrived
    }
}

fn is_ready(core: &NodeCore) -> bool {
    core.group().is_serving() && core.group().namespaces().contains(NAMESPACE)
}

fn new_node(dc: usize) -> Node {
    let group = GroupId { dc: DcId(dc as u16), group: 0, incarnation: 1 };
    // Commits at fixed intervals: what a second costs at most does not depend on a disk that the report would have to make up.
    let config = NodeConfig { commit_share_percent: 0, ..NodeConfig::new(group, LANES) };
    let core = NodeCore::new(config, dc as u64 + 1);
    Node { core, wake: Wake::default(), group, flying: 0, careful_until: Time(0) }
}

fn new_aggregator(dc: usize) -> Aggregator {
    let mut config = AggregatorConfig::new(DcId(dc as u16), 1);
    config.seed = dc as u64;
    Aggregator { core: AggregatorCore::new(config), wake: Wake::default(), ledger: Ledger::default(), applied: 0 }
}

fn new_front_ends(plan: &RunPlan, layout: &Layout) -> Vec<FrontEnd> {
    let per_centre = plan.front_ends_per_centre;
    let new = |number: usize| {
        let node = number / per_centre;
        let share = layout.share[node] / per_centre as f64;
        FrontEnd::new(number, node, share, LANES, 1 + plan.cold_counters as usize)
    };
    (0..layout.centres() * per_centre).map(new).collect()
}
