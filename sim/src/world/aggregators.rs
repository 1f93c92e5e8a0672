//! Aggregators: an [`AggregatorCore`] each, its persisted rows, and its replica of the ledger behind the modelled log.

use super::claims::of_claims;
use super::links::Link;
use super::{Event, NAMESPACE, Timer, World};
use crate::disk::Rows;
use crate::engine::{Line, Party};
use crate::plan::Plan;
use crate::raft::Cmds;
use crate::rng::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use tidemark_proto::aggregator::{self, AggregatorConfig, AggregatorCore, Input, Output, is_of_image, shelf_number};
use tidemark_proto::asking::{Asking, Stand};
use tidemark_proto::counter_order::{CounterOrder, ShardBy};
use tidemark_proto::ids::{AggregatorId, CounterName, LogIndex};
use tidemark_proto::ledger::{Changes, Ledger, ShardMap};
use tidemark_proto::limits::AGGREGATORS_MAX;
use tidemark_proto::msg::{ForGroup, FromGroup, LedgerCmd, PeerMsg};
use tidemark_proto::shards::{Ranges, ShardId};
use tidemark_proto::time::Span;
use tidemark_proto::view::{Budget, Shelf};

/// Aggregators that a data centre may have.
pub const SEATS: usize = AGGREGATORS_MAX as usize;
/// A snapshot of the ledger is kept each time after this number of entries.
const SNAPSHOT_ENTRIES: usize = 64;

/// Rows on disk, by shard.
pub type ShardRows = BTreeMap<ShardId, BTreeMap<Vec<u8>, Vec<u8>>>;

/// A copy of the file of a view.
#[derive(Clone, Debug)]
pub struct ViewCopy {
    rows: ShardRows,
    map: ShardMap,
}

/// The buckets on the disk of an aggregator that left its memory, by shard that has a file; and of totals.
#[derive(Debug, Default)]
struct OnDisk(Mutex<BTreeMap<ShardId, BTreeMap<u32, Vec<u8>>>>, Mutex<BTreeMap<u32, Vec<u8>>>);

impl OnDisk {
    fn of(rows: &ShardRows) -> OnDisk {
        let shelved = |(key, value): (&Vec<u8>, &Vec<u8>)| Some((shelf_number(key)?, value.clone()));
        let of_shard = |(&shard, rows): (&ShardId, &BTreeMap<Vec<u8>, Vec<u8>>)| {
            (shard, rows.iter().filter_map(shelved).collect::<BTreeMap<_, _>>())
        };
        OnDisk(Mutex::new(rows.iter().map(of_shard).collect()), Mutex::default())
    }

    fn write(&self, shard: ShardId, key: &[u8], value: &[u8]) {
        let mut shelved = self.0.lock().expect("one thread");
        let of_shard = shelved.entry(shard).or_default();
        match shelf_number(key) {
            Some(number) if value.is_empty() => drop(of_shard.remove(&number)),
            Some(number) => drop(of_shard.insert(number, value.to_vec())),
            None => {}
        }
    }
}

impl Shelf for OnDisk {
    fn read(&self, shard: ShardId, number: u32) -> Option<Vec<u8>> {
        self.0.lock().expect("one thread")[&shard].get(&number).cloned()
    }

    fn scan(&self, shard: ShardId, visit: &mut dyn FnMut(u32, &[u8])) {
        self.0.lock().expect("one thread")[&shard].iter().for_each(|(&number, value)| visit(number, value));
    }

    fn read_total(&self, number: u32) -> Option<Vec<u8>> {
        self.1.lock().expect("one thread").get(&number).cloned()
    }

    fn write_total(&self, number: u32, value: Option<&[u8]>) -> bool {
        let mut totals = self.1.lock().expect("one thread");
        match value {
            Some(value) => drop(totals.insert(number, value.to_vec())),
            None => drop(totals.remove(&number)),
        }
        true
    }
}

pub struct AggregatorProc {
    /// `None` while it is down.
    core: Option<AggregatorCore>,
    pub boot: u32,
    /// Of each shard, as in a file of its own.
    rows: ShardRows,
    /// Of these, buckets that are not in memory.
    shelf: Arc<OnDisk>,
    /// Parts that are being written.
    writing: BTreeMap<ShardId, Rows>,
    pub ledger: Ledger,
    /// Entries of the log that the replica has applied.
    pub applied: usize,
    snapshot: (usize, Ledger),
    reign: Option<(usize, u64)>,
    timer: Timer,
    doom: Option<(u64, Span)>,
    /// The second of a pair tells what the first would.
    pub spoke: bool,
    /// Its questions to others of its data centre.
    pub asking: Asking,
    /// The holders of each shard, as on disk.
    pub map: ShardMap,
}

impl AggregatorProc {
    pub fn is_up(&self) -> bool {
        self.core.is_some()
    }

    /// The rows on its disk of each shard, in the order of keys. A shard that was split has none.
    pub fn rows(&self) -> impl Iterator<Item = &BTreeMap<Vec<u8>, Vec<u8>>> {
        let is_split = |shard: &ShardId| self.map.splits().iter().any(|split| split.shard == *shard);
        self.rows.iter().filter(move |(shard, _)| !is_split(shard)).map(|(_, rows)| rows)
    }

    /// Rows are durable; rows without a value are gone.
    fn write(&mut self, shard: ShardId, rows: Rows) {
        let disk = self.rows.entry(shard).or_default();
        for (key, value) in rows {
            self.shelf.write(shard, &key, &value);
            match value.is_empty() {
                true => drop(disk.remove(&key)),
                false => drop(disk.insert(key, value)),
            }
        }
    }

    /// Whether there are cells of a shard on disk, or how far they have come.
    pub fn has_cells_of(&self, shard: ShardId) -> bool {
        self.rows.get(&shard).is_some_and(|rows| rows.keys().any(|key| is_of_image(key)))
    }

    pub fn core(&self) -> Option<&AggregatorCore> {
        self.core.as_ref()
    }

    /// The state that its readers see.
    pub fn for_readers(&mut self) -> (Option<&AggregatorCore>, &Ledger, &mut Asking) {
        (self.core.as_ref(), &self.ledger, &mut self.asking)
    }

    pub fn take_left(&mut self) -> BTreeMap<ShardId, Stand> {
        self.core.as_mut().map(AggregatorCore::take_left).unwrap_or_default()
    }

    /// Rows of other shards go.
    pub fn keep(&mut self, map: ShardMap, kept: &BTreeSet<ShardId>) {
        self.map = map;
        self.rows.retain(|shard, _| kept.contains(shard));
        self.shelf.0.lock().expect("one thread").retain(|shard, _| kept.contains(shard));
        self.writing.retain(|shard, _| kept.contains(shard));
    }

    /// Whether anything of a shard is on disk.
    pub fn rows_of(&self, shard: ShardId) -> bool {
        self.rows.contains_key(&shard)
    }

    pub fn copy_rows(&self) -> ViewCopy {
        ViewCopy { rows: self.rows.clone(), map: self.map.clone() }
    }

    /// An old copy of the view's file takes its place. The ledger's is another file, from which all comes again that was applied.
    pub fn replace_rows(&mut self, copy: ViewCopy) {
        self.rows = copy.rows;
        self.map = copy.map;
        self.writing = BTreeMap::new();
        self.snapshot = (self.applied, self.ledger.clone());
    }

    /// The view's file is gone.
    pub fn lose_rows(&mut self) {
        self.rows.clear();
        self.writing.clear();
        self.map = ShardMap::default();
    }
}

impl World {
    pub(super) fn add_aggregator(&mut self, dc: usize) {
        self.aggregators.push(AggregatorProc {
            core: None,
            boot: 0,
            rows: BTreeMap::new(),
            shelf: Arc::default(),
            writing: BTreeMap::new(),
            ledger: Ledger::default(),
            applied: 0,
            snapshot: (0, Ledger::default()),
            reign: None,
            timer: Timer::default(),
            doom: None,
            spoke: false,
            asking: Asking::default(),
            map: ShardMap::default(),
        });
        self.start_aggregator(dc);
    }

    /// Into which every view is cut at first.
    pub(super) fn ranges(&self) -> Ranges {
        let laid = |piece| ShardBy { namespace: NAMESPACE.to_owned(), space: NAMESPACE.to_owned(), piece };
        let order = CounterOrder::new(self.plan.laid.map(laid).into_iter().collect()).expect("one namespace");
        let mut cuts: Vec<CounterName> = self.plan.cuts.iter().map(|&counter| self.names[counter].clone()).collect();
        cuts.sort_by(|one, other| order.begin(one).cmp(&order.begin(other)));
        cuts.dedup_by(|one, other| order.begin(one) == order.begin(other));
        Ranges::of_ordered(cuts, order).expect("ascending, each once")
    }

    /// A process start: the view from its rows, the ledger from its last snapshot; entries that were committed since then come again.
    pub(super) fn start_aggregator(&mut self, dc: usize) {
        if self.aggregators[dc].is_up() {
            return;
        }
        let mut rng: Rng = self.rng.fork(50 + dc as u64);
        let process = &mut self.aggregators[dc];
        process.boot += 1;
        // Real logs keep snapshots of their own.
        let snapshot = if self.engine.is_some() { Default::default() } else { process.snapshot.clone() };
        (process.applied, process.ledger) = snapshot;
        (process.timer, process.reign) = (Timer::default(), None);
        let rows = process.rows.clone();
        process.shelf = Arc::new(OnDisk::of(&rows));
        let shelf = process.shelf.clone();
        let boot = process.boot;
        let applied = process.applied;
        let mut config = aggregator_config(self.id_of(dc), boot, rng.next(), &self.plan);
        config.paired = self.is_paired(dc);
        config.feed_bytes_max = self.plan.holds.map_or(config.feed_bytes_max, |holds| holds.chunk_bytes);
        // Every second one has no room for buckets that have ended.
        if self.plan.series.is_some() && dc % 2 == 1 {
            config.budget = Some(Budget { bytes_max: 0, after_s: 0, shelf });
        }
        (config.ranges, config.seats) = (self.ranges(), self.seats());
        config = config.by_map(&self.aggregators[dc].map);
        if let Some(edges) = self.plan.edges {
            (config.graph_step, config.graph_interval) = (edges.step, edges.interval);
        }
        let shards = (0..config.ranges.numbers() as u16).map(ShardId);
        let rows = shards.into_iter().map(|shard| rows.get(&shard).cloned().unwrap_or_default());
        let core = AggregatorCore::recover_shards(config, rows);
        let version = self.version_of(Party::Aggregator(dc));
        self.note(40, [dc as u64, boot.into(), 0], || format!("aggregator {dc} starts for the {boot}. time{version}"));
        self.cover_version(Party::Aggregator(dc));
        self.raft.restart(dc, applied);
        self.replay_ledger(dc);
        match core {
            Ok(core) => self.aggregators[dc].core = Some(core),
            Err(error) => return self.audit.findings.found("recovery", format!("aggregator {dc}: {error}")),
        }
        self.joins.read_layout(dc, self.home_of(dc), &self.plan);
        let audit = &mut self.audit;
        [&mut audit.views, &mut audit.asked, &mut audit.notified].into_iter().for_each(|views| views.restarted(dc));
        self.aggregators[dc].asking = Asking::default();
        self.audit_replica_claims(dc);
        // As its host does at once.
        self.aggregator_input(dc, Input::Clock(self.wall(dc)));
        if self.engine.is_some() {
            self.tell_ledger(dc);
        }
    }

    pub(super) fn aggregator_input(&mut self, dc: usize, input: Input) {
        let now = self.aggregator_time(dc);
        let process = &mut self.aggregators[dc];
        let Some(core) = &mut process.core else { return };
        core.handle(now, input, &process.ledger);
        core.check_invariants();
        self.drain_aggregator(dc);
    }

    fn drain_aggregator(&mut self, dc: usize) {
        while let Some(output) = self.aggregators[dc].core.as_mut().and_then(AggregatorCore::poll_output) {
            if self.aggregator_dies_now(dc) {
                return self.crash_aggregator(dc);
            }
            self.on_aggregator_output(dc, output);
        }
        let wanted = self.aggregators[dc].core.as_ref().and_then(AggregatorCore::poll_timeout);
        let wanted = self.aggregator_when(dc, wanted);
        let process = &mut self.aggregators[dc];
        if let Some(at) = process.timer.arm(self.now, wanted) {
            let boot = process.boot;
            self.queue.push(at, Event::AggregatorTick { dc, boot });
        }
        self.audit_view(dc);
        self.cover_taking_over(dc);
    }

    fn aggregator_dies_now(&mut self, dc: usize) -> bool {
        match &mut self.aggregators[dc].doom {
            Some((0, _)) => true,
            Some((left, _)) => {
                *left -= 1;
                false
            }
            None => false,
        }
    }

    fn on_aggregator_output(&mut self, dc: usize, output: Output) {
        match output {
            Output::Group { group, msg } => self.aggregator_says(dc, group, msg),
            Output::Peer { peer, msg } => match self.at_of(peer) {
                Some(to) => self.peer_says(dc, to, msg),
                None => self.audit.findings.found("routing", format!("aggregator {dc} speaks to unknown {peer}")),
            },
            Output::Propose(cmds) => {
                self.propose(dc, cmds);
            }
            Output::Persist { shard, rows } => {
                self.aggregators[dc].writing.insert(shard, rows);
                let boot = self.aggregators[dc].boot;
                let span = self.span(self.plan.sync.0.0, 4 * self.plan.sync.1.0);
                self.after(span, Event::AggregatorPersisted { dc, boot, shard });
            }
            Output::Kept { map, kept } => self.on_kept(dc, map, &kept),
            Output::Notify(told) => {
                self.coverage.saw("notification");
                if let aggregator::Event::Total { counter, reading } = told {
                    self.audit_notified(dc, &counter, &reading);
                }
            }
            Output::Audited(audited) => self.on_audited(dc, &audited),
        }
    }

    fn aggregator_says(&mut self, dc: usize, group: tidemark_proto::ids::GroupId, msg: ForGroup) {
        let Some(at) = self.groups.iter().position(|known| *known == group) else {
            return self.audit.findings.found("routing", format!("aggregator {dc} speaks to unknown group {group}"));
        };
        if matches!(msg, ForGroup::Again) {
            self.coverage.saw("leader reached: said again");
        }
        if matches!(msg, ForGroup::FeedOrdered(..)) {
            self.coverage.saw("ranges asked for that are not of names");
        }
        self.audit_for_group(at, &msg);
        let msg = match msg {
            ForGroup::Ledger(message) => match self.mutation.to_group(message) {
                Some(message) => ForGroup::Ledger(message),
                None => return,
            },
            ForGroup::Feed(_)
            | ForGroup::FeedIn(_)
            | ForGroup::FeedOrdered(..)
            | ForGroup::Again
            | ForGroup::Lost { .. }
            | ForGroup::Audit(_) => msg,
        };
        let seat = usize::from(self.id_of(dc).seat);
        let Link { up: true, number: link, node, .. } = self.links.groups[at][seat] else { return };
        let line = Line { from: Party::Aggregator(dc), to: Party::Node(node), number: link.into() };
        if self.say(line, &msg) {
            return;
        }
        for delay in self.net.datagram(dc, dc).into_iter().flatten() {
            self.after(delay, Event::ToGroup { group: at, seat, link, msg: msg.clone() });
        }
    }

    pub(super) fn on_from_group(&mut self, group: usize, seat: usize, link: u32, msg: FromGroup) {
        let (Some(dc), id) = (self.at_seat(self.plan.nodes[group], seat), self.groups[group]) else { return };
        let now = self.links.groups[group][seat];
        if now.up && now.number == link {
            let Some(msg) = self.heard(Party::Node(now.node), Party::Aggregator(dc), msg) else { return };
            self.note(41, [group as u64, 0, 0], || format!("group {group} → aggregator: {msg:?}"));
            self.aggregator_input(dc, Input::Group { group: id, msg });
        }
    }

    fn peer_says(&mut self, from: usize, to: usize, msg: PeerMsg) {
        if from == to {
            return self.audit.findings.found("routing", format!("aggregator {from} speaks to itself: {msg:?}"));
        }
        self.peer_moment(from, &msg);
        let link = *self.links.peer(from, to);
        let line = Line { from: Party::Aggregator(from), to: Party::Aggregator(to), number: link.number.into() };
        if !link.up || self.say(line, &msg) {
            return;
        }
        if self.plan.lossy_peers {
            for delay in self.net.datagram(from, to).into_iter().flatten() {
                self.after(delay, Event::ToPeer { from, to, link: link.number, msg: msg.clone() });
            }
            return;
        }
        // A single ordered stream: loss is delay, until it breaks.
        let Some(delay) = self.net.ordered(from, to) else { return };
        let side = usize::from(from > to);
        let arrivals = &mut self.links.peer(from, to).arrivals[side];
        let at = (self.now + delay).max(*arrivals + Span(1));
        *arrivals = at;
        self.queue.push(at, Event::ToPeer { from, to, link: link.number, msg });
    }

    pub(super) fn on_to_peer(&mut self, from: usize, to: usize, link: u32, msg: PeerMsg) {
        let current = *self.links.peer(from, to);
        if current.up && current.number == link {
            let Some(msg) = self.heard(Party::Aggregator(from), Party::Aggregator(to), msg) else { return };
            self.note(42, [from as u64, to as u64, 0], || format!("aggregator {from} → {to}: {msg:?}"));
            let peer = self.id_of(from);
            self.aggregator_input(to, Input::Peer { peer, msg });
        }
    }

    pub(super) fn on_aggregator_tick(&mut self, dc: usize, boot: u32) {
        if self.aggregators[dc].boot == boot && self.aggregators[dc].timer.fired(self.now) {
            self.aggregator_input(dc, Input::Tick);
        }
    }

    pub(super) fn on_aggregator_persisted(&mut self, dc: usize, boot: u32, shard: ShardId) {
        if self.aggregators[dc].boot == boot && self.aggregators[dc].is_up() {
            // It may have left meanwhile.
            let Some(rows) = self.aggregators[dc].writing.remove(&shard) else { return };
            self.aggregators[dc].write(shard, rows);
            self.aggregator_input(dc, Input::Persisted { shard });
        }
    }

    // ---- the replica of the ledger ----

    /// Hands commands to the log; false when this member does not lead.
    pub(super) fn propose(&mut self, dc: usize, cmds: Vec<LedgerCmd>) -> bool {
        self.note(43, [dc as u64, cmds.len() as u64, 0], || format!("aggregator {dc} proposes {cmds:?}"));
        self.audit_proposed_claims(dc, &cmds);
        self.propose_moment(dc, &cmds);
        let mut cmds = cmds;
        cmds.extend(self.mutation.forged(&self.reference, &cmds));
        let cmds = Rc::new(cmds);
        let taken = self.propose_entry(dc, &cmds);
        self.copy_later(&cmds);
        self.coverage.saw_times("proposal of a deposed leader", u64::from(!taken));
        taken
    }

    /// Hands an entry to the ledger's log, as a member that leads; false when it does not.
    pub(super) fn propose_entry(&mut self, dc: usize, cmds: &Cmds) -> bool {
        match &mut self.engine {
            None => self.raft.propose(dc, Rc::clone(cmds)),
            Some(engine) => {
                let leads = self.raft.is_leader(dc);
                if leads {
                    engine.propose(dc, cmds);
                }
                leads
            }
        }
    }

    /// Applies what is committed, and tells the aggregator.
    pub(super) fn catch_up(&mut self, dc: usize) {
        self.advance_reference(dc);
        if !self.aggregators[dc].is_up() {
            return;
        }
        self.apply_committed(dc);
        let member = &self.raft.members[dc];
        let reign = member.leader.map(|leader| (leader, member.term));
        if self.aggregators[dc].reign != reign {
            self.aggregators[dc].reign = reign;
            let reign = reign.map(|(leader, term)| (self.id_of(leader), term));
            self.aggregator_input(dc, Input::Leader(reign));
        }
    }

    fn apply_committed(&mut self, dc: usize) {
        let commit = self.raft.members[dc].commit;
        if self.aggregators[dc].applied >= commit {
            return;
        }
        let claims = self.apply_to_replica(dc, commit);
        let process = &mut self.aggregators[dc];
        if commit >= process.snapshot.0 + SNAPSHOT_ENTRIES {
            process.snapshot = (commit, process.ledger.clone());
        }
        if claims {
            self.audit_replica_claims(dc);
        }
        self.tell_ledger(dc);
    }

    /// Whether something about claims was among it.
    pub(super) fn apply_to_replica(&mut self, dc: usize, commit: usize) -> bool {
        let process = &mut self.aggregators[dc];
        let mut claims = false;
        for at in process.applied..commit {
            let index = LogIndex(at as u64 + 1);
            let cmds = &self.raft.members[dc].log[at].cmds;
            cmds.iter().for_each(|cmd| process.ledger.apply(index, cmd));
            claims |= cmds.iter().any(|cmd| of_claims(cmd).is_some());
            process.ledger.skip(index);
        }
        process.applied = commit;
        claims
    }

    /// Tells the aggregator what changed in its replica.
    pub(super) fn tell_ledger(&mut self, dc: usize) {
        let changes = self.aggregators[dc].ledger.take_changes();
        if changes != Changes::default() {
            self.aggregator_input(dc, Input::Ledger(changes));
        }
    }

    /// Another member's snapshot arrives.
    pub(super) fn on_raft_snapshot(&mut self, to: usize, boot: u32, index: usize, ledger: Ledger) {
        if self.aggregators[to].boot != boot || !self.aggregators[to].is_up() || self.aggregators[to].applied >= index {
            return;
        }
        let Some(from) = self.members().find(|&dc| self.raft.members[dc].commit >= index) else { return };
        let prefix = self.raft.members[from].log[..index].to_vec();
        self.raft.install(to, prefix);
        self.coverage.saw("ledger snapshot installed");
        let process = &mut self.aggregators[to];
        (process.applied, process.snapshot) = (index, (index, ledger.clone()));
        process.ledger.replace(ledger);
        let changes = process.ledger.take_changes();
        self.audit_replica_claims(to);
        self.aggregator_input(to, Input::Ledger(changes));
    }

    /// A member that is far behind is sent a snapshot, when the seed says so.
    pub(super) fn send_snapshot(&mut self, to: usize) {
        let Some(leader) = self.raft.leader().filter(|&leader| leader != to) else { return };
        let (index, ledger) = self.aggregators[leader].snapshot.clone();
        let boot = self.aggregators[to].boot;
        if index > 0
            && let Some(delay) = self.net.ordered(leader, to)
        {
            self.after(delay, Event::RaftSnapshot { to, boot, index, ledger: Box::new(ledger) });
        }
    }

    // ---- faults ----

    pub(super) fn doom_aggregator(&mut self, dc: usize, outputs: u64, span: Span) {
        if self.aggregators[dc].is_up() {
            self.aggregators[dc].doom = Some((outputs, span));
        }
    }

    pub(super) fn spare_aggregators(&mut self) {
        self.aggregators.iter_mut().for_each(|process| process.doom = None);
    }

    pub(super) fn crash_aggregator(&mut self, dc: usize) {
        let process = &mut self.aggregators[dc];
        let Some((_, span)) = process.doom.take() else { return };
        process.core = None;
        // The other aggregator may lack counts that the lost one had.
        let own = self.id_of(dc).dc;
        self.floors.retain(|(of, _), _| *of != own);
        let process = &mut self.aggregators[dc];
        for (shard, rows) in std::mem::take(&mut process.writing) {
            if self.rng.per_10k(5_000) {
                process.write(shard, rows);
            }
        }
        process.boot += 1;
        self.cover_leader_lost(dc);
        self.raft.crash(dc);
        self.crash_ledger_member(dc);
        self.note(44, [dc as u64, 0, 0], || format!("aggregator {dc} crashes"));
        self.coverage.saw("aggregator crash");
        self.crash_doors_of(dc);
        self.break_feeds(dc);
        self.members().filter(|&peer| peer != dc).for_each(|peer| self.break_peers(dc, peer));
        self.after(span, Event::AggregatorRestart { dc });
    }
}

/// Small rings and quick retries, so that walks and repetitions happen in every run.
/// Small limits, but in a run of days those that ship.
fn aggregator_config(own: AggregatorId, boot: u32, seed: u64, plan: &Plan) -> AggregatorConfig {
    let mut config = AggregatorConfig::new(own, u64::from(boot));
    config.seed = seed;
    if plan.forgetting.compacts {
        (config.reused_min, config.reused_part) = (1, 64);
    }
    if plan.days.is_some() {
        return config;
    }
    config.gossip.delta_bytes_max = 512;
    (config.gossip.own_ring_events, config.gossip.relay_ring_events) = (16, 16);
    config
}
