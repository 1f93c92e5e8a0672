//! The meaning of a seed: topology, link faults, a schedule of faults, the workload and the operators' commands. Everything is drawn here,
//! before the run begins, so that a change of the cores does not change what is asked of them.

pub mod ambushes;
pub mod claims;
pub mod cuts;
pub mod edges;
pub mod holds;
pub mod hour;
pub mod joins;
pub mod leases;
pub mod month;
pub mod moves;
pub mod old_views;
pub mod once;
pub mod pairs;
pub mod reads;
pub mod series;
pub mod valves;
pub mod versions;

use crate::net::LinkFaults;
use crate::rng::Rng;
use crate::rtt::SITES;
use crate::trace::hash_of;
use claims::ClaimPlan;
use edges::EdgesPlan;
use holds::HoldPlan;
use leases::LeasePlan;
use month::Days;
use moves::MovePlan;
use once::OncePlan;
use reads::ReadPlan;
use std::collections::BTreeSet;
use tidemark_proto::limits::{AGE_UNIT, STAY_MAX, STREAMS_KEPT_AGES};
use tidemark_proto::msg::ClaimRule;
use tidemark_proto::time::{Span, Time};
use versions::VersionPlan;

/// Shortest and longest safety phase.
pub const SAFETY: (Span, Span) = (Span::from_secs(60), Span::from_secs(75));
/// The same of a run on real logs.
pub const SAFETY_REAL: (Span, Span) = (Span::from_secs(30), Span::from_secs(40));
/// A run with fewer increments shows little.
pub const INCREMENTS_OF_EVIDENCE: u64 = 20_000;
/// After the faults increments go on until there were enough and a last milestone is awarded, at most for so long.
pub const LAST_MILESTONE_MAX: Span = Span::from_secs(40);
/// The liveness phase must have ended by then.
pub const LIVENESS_MAX: Span = Span::from_secs(240);

/// About this number of increments come while the leader hears of an increment from everywhere: a round trip and a quorum's, at a run's
/// rates.
pub const ZONE: u64 = 150;
/// Number of 10,000 runs that end with an old copy of a disk.
const OLD_DISKS_PER_10K: u32 = 2_000;
/// Number of 10,000 runs in which a group is lost.
const LOSSES_PER_10K: u32 = 1_000;
/// Number of 10,000 runs of few data centres in which each has several groups, each on nodes of its own, and their maximum.
const CROWDS_PER_10K: u32 = 2_000;
const CROWD_DCS_MAX: usize = 3;
const CROWD_MAX: u64 = 5;
/// The dice of these, and of machines that come and go.
const CROWD_FORK: u64 = 47;
const MOVES_FORK: u64 = 41;
/// The dice of edges: such that of the seeds that show other bugs (`tests/teeth.rs`) all but one have none.
const EDGES_FORK: u64 = 185_342;
/// The dice of cuts: such that of the seeds that show other bugs, and of those of rare situations (`tests/seeds.rs`), none is cut.
const CUTS_FORK: u64 = 17_914;
/// The dice of splits while running: such that of the seeds that show other bugs, and of those of rare situations, none has any.
const SPLITS_FORK: u64 = 476;
/// The dice of the order in which counters lie: such that in the seeds that show other bugs it is that of their names.
const LAID_FORK: u64 = 640;
/// The dice of nodes that hold batches for views: such that of the seeds that show other bugs, of rare situations, and of those that
/// failed once, none has any.
const HOLDS_FORK: u64 = 187_139;
/// The dice of increments with ids. Of the first 61 seeds, of those that show other bugs, of rare situations, and of those that failed
/// once, none has any; and the dice of the sends in a run that has some.
const ONCE_FORK: u64 = 224_127;
pub const ONCE_SENT_FORK: u64 = 60;
/// The dice of reads that wait for their groups: as those of ids; and of what is read in a run that has some.
const READS_FORK: u64 = 809_243;
pub const READS_BEGUN_FORK: u64 = 61;
/// The dice of batches and commits that clock themselves. None of the seeds that show other bugs, of rare situations, and of those that
/// failed once has them; and of 10,000 runs, this number has them.
const CLOCKED_FORK: u64 = 115;
const CLOCKED_PER_10K: u32 = 1_000;
/// The dice of groups that give back at once what is over. None of the seeds that show other bugs, of rare situations, and of those that
/// failed once has them; and of 10,000 runs, this number has them.
const COMPACTS_FORK: u64 = 1_522_866;
const COMPACTS_PER_10K: u32 = 2_000;
/// The dice of third and further aggregators.
const SPLIT_FORK: u64 = 48;
/// Valves of a group, twice those of the reference layout.
const LANES_DRAWN_MAX: u64 = 20;

/// A fault, begun at its time.
#[derive(Clone, Debug)]
pub enum Fault {
    CutPair {
        a: usize,
        b: usize,
        span: Span,
    },
    CutDc {
        dc: usize,
        span: Span,
    },
    /// Messages of `from` do not reach `to`; the other way it does.
    CutOneWay {
        from: usize,
        to: usize,
        span: Span,
    },
    /// A link goes and comes so often.
    Flap {
        a: usize,
        b: usize,
        times: u64,
        span: Span,
    },
    /// The process dies after this many further outputs.
    CrashNode {
        node: usize,
        outputs: u64,
        span: Span,
    },
    /// The process dies while it writes: what it has just appended, or a part of its checkpoint, is not synced.
    CrashAmidWrite {
        node: usize,
        part: bool,
        span: Span,
    },
    /// A group gets more valves.
    AddValves {
        group: usize,
        lanes: u8,
        gap: Span,
    },
    CrashAggregator {
        dc: usize,
        outputs: u64,
        span: Span,
    },
    /// Whichever data centre leads the ledger: its aggregator crashes.
    CrashLeader {
        outputs: u64,
        span: Span,
    },
    CrashClient {
        client: usize,
    },
    /// A client dies without a successor.
    VanishClient {
        client: usize,
    },
    MoveClient {
        client: usize,
        node: usize,
    },
    /// Client connections of a node break.
    BreakClients {
        node: usize,
    },
    /// The connection of a node and its aggregator breaks.
    BreakGroup {
        node: usize,
    },
    BreakPeers {
        a: usize,
        b: usize,
    },
    /// An election without need.
    Elect {
        candidate: usize,
    },
    /// Cut off the leader of the ledger.
    CutLeader {
        span: Span,
    },
    /// The disk of a node answers late.
    StallDisk {
        node: usize,
        span: Span,
    },
    /// The disk of a node takes no write: the process stops at its first one, each time that it is started.
    FullDisk {
        node: usize,
        span: Span,
    },
    /// The disk of a node is copied, and after this the copy takes its place. At most one in a run, at its end.
    OldDisk {
        node: usize,
        after: Span,
    },
    /// Most of a group's disks are lost, or all of it is given up though it runs (`forced`). After this time an operator declares it lost,
    /// and after a further time it is founded anew. At most one in a run.
    LoseGroup {
        node: usize,
        forced: bool,
        declare_after: Span,
        found_after: Span,
    },
    /// A client gets this number of hits at once.
    Flood {
        client: usize,
        hits: u64,
    },
    /// A node of the group is not heard by the others.
    Isolate {
        node: usize,
        span: Span,
    },
    /// An aggregator of a pair reaches no other, its partner neither; its groups it does.
    CutAggregator {
        at: usize,
        span: Span,
    },
    /// An aggregator of a pair and the ledger's leader reach each other no more; they may reach others.
    CutFromLeader {
        at: usize,
        span: Span,
    },
    /// An aggregator of a pair crashes and loses its view's file.
    WipeView {
        at: usize,
        span: Span,
    },
    /// The connections of one aggregator of a pair to its groups break.
    BreakFeeds {
        at: usize,
    },
    /// An aggregator of a pair crashes, and an operator sets its view aside.
    SetAside {
        at: usize,
        span: Span,
        after: Span,
    },
    /// In a data centre with more than two aggregators an operator moves a shard from one to another, both by dice, and may think
    /// better of it after a while.
    MoveShard {
        dc: usize,
        dice: u64,
        stays: Option<Span>,
    },
    /// An operator splits a shard, both where it is asked and at which counter by dice.
    SplitShard {
        dc: usize,
        dice: u64,
    },
    /// A node of the group loses its disk.
    Wipe {
        node: usize,
    },
    /// An election in the group without need.
    ElectInGroup {
        node: usize,
    },
    /// A node is added, with a group and its valves.
    Join(joins::Join),
    /// The disk of an aggregator's view is copied, and after each of these spans the copy takes its place.
    OldView {
        at: usize,
        after: Vec<Span>,
    },
    /// Cut off a data centre just when a milestone is about to be reached.
    CutAtMilestone {
        dc: usize,
        span: Span,
    },
    /// Cut off the data centre of a group that alone can name the increment at a milestone.
    CutAtBlock {
        span: Span,
    },
    /// Lose the leader of the ledger within a round trip of something that it says: it crashes, or is cut off.
    LoseLeader {
        at: Moment,
        cut: bool,
        span: Span,
    },
}

/// Something that the ledger's leader says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    Grant,
    Recall,
    Award,
    /// The greeting of a group that joins while it counts.
    Join,
    /// A milestone, or what a view answers that was asked about one.
    Arming,
    /// The end of a leased generation of a group that is not reached.
    Revocation,
}

/// A command of an operator.
#[derive(Clone, Debug)]
pub enum Admin {
    /// The namespace of all counters.
    Namespace,
    /// Its counters may go down.
    UpDown,
    /// They keep series.
    Series,
    /// Milestones at these counts.
    At { counter: usize, at: Vec<u64>, every: Option<u64>, sequence_from: Option<u64> },
    /// Milestones at these distances above what was counted when the command is given.
    Ahead { counter: usize, ahead: Vec<u64>, every: bool },
    /// A milestone that the run shall reach after its faults.
    Last,
    /// Removes the next milestone.
    Disarm { counter: usize },
    /// Removes the rule.
    DisarmRule { counter: usize },
    /// Removes the next milestone and defines it again at once.
    Again { counter: usize },
    /// The counter begins again, with its milestones or without.
    Reset { counter: usize, keeps_milestones: bool },
    /// The counter is removed so long after the command is given.
    Expire { counter: usize, after: Span },
    /// How awards to come are claimed.
    Claims { counter: usize, rule: Option<ClaimRule> },
    /// Edges between counters come and go.
    Edges(edges::EdgesAsked),
}

/// A counter of the workload.
#[derive(Clone, Debug)]
pub struct CounterPlan {
    pub key: String,
    /// Share of the hits, in 1,000.
    pub share: u64,
    /// Of 10,000 hits, how many weigh more than 1.
    pub heavy_per_10k: u32,
    /// Largest weight.
    pub weight_max: u64,
    /// Without sessions: `add` instead of `hit`.
    pub adds: bool,
}

/// The actions of the clients.
#[derive(Clone, Debug)]
pub struct Workload {
    pub counters: Vec<CounterPlan>,
    /// Mean time between two bursts of one client.
    pub burst_interval: Span,
    /// Hits of a burst.
    pub burst_max: u64,
    /// Bytes a client may hold.
    pub client_bytes_max: usize,
    /// Phases (until, factor in percent): rates swing.
    pub swings: Vec<(Time, u64)>,
}

/// Most resets of one counter in a run.
const RESETS_MAX: u64 = 2;
/// Generations of a counter that a run may have. Each has a number of its own: checkers take them for counters.
pub const GENERATIONS: usize = 4;
const _: () = assert!((RESETS_MAX as usize) < GENERATIONS);
/// Number of 10,000 runs with counters that begin again.
const WITH_RESETS_PER_10K: u32 = 2_500;

/// How soon groups forget streams of which nothing comes.
#[derive(Clone, Copy, Debug)]
pub struct Forgetting {
    /// In this time a group that is led grows older by one.
    pub age_unit: Span,
    /// Ages for which a stream is remembered.
    pub kept: u32,
    /// How long a client uses one id.
    pub renew_after: Span,
    /// Groups free ended cells as soon as they have any, and views give the slots of ended cells to new cells.
    pub compacts: bool,
}

/// Number of 10,000 runs in which groups forget within seconds records that usually last days.
const FORGETFUL_PER_10K: u32 = 2_500;

impl Forgetting {
    fn drawn(root: &Rng) -> Forgetting {
        let rng = &mut root.fork(15);
        let age_unit = Span::from_millis(rng.between(500, 2_000));
        let kept = rng.between(3, 8) as u32;
        let renew_after = Span(age_unit.0 * u64::from(kept) / 4);
        let soon = rng.per_10k(FORGETFUL_PER_10K);
        let compacts = root.fork(COMPACTS_FORK).per_10k(COMPACTS_PER_10K);
        if soon {
            Forgetting { age_unit, kept, renew_after, compacts }
        } else {
            Forgetting { compacts, ..Forgetting::late() }
        }
    }

    /// As outside of runs: after days.
    fn late() -> Forgetting {
        Forgetting { age_unit: AGE_UNIT, kept: STREAMS_KEPT_AGES, renew_after: STAY_MAX, compacts: false }
    }
}

/// Counters that go down.
#[derive(Clone, Copy, Debug)]
pub struct UpDownPlan {
    /// When they are allowed to; decrements that come before are refused.
    pub from: Time,
    /// Number of decrements in 10,000 counts of clients.
    pub per_10k: u32,
}

/// Number of 10,000 runs with counters that go down.
const UPDOWN_PER_10K: u32 = 3_000;

impl UpDownPlan {
    fn drawn(rng: &mut Rng, end: Time) -> Option<UpDownPlan> {
        let late = rng.per_10k(3_000);
        let from = Time(if late { rng.between(1, end.0 / 3) } else { 1 });
        let per_10k = *rng.pick(&[500, 2_000, 5_000]);
        rng.per_10k(UPDOWN_PER_10K).then_some(UpDownPlan { from, per_10k })
    }
}

/// A run, as its seed means it.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    /// Index in the round-trip table of each data centre.
    pub sites: Vec<usize>,
    /// Data centres with a second aggregator.
    pub pairs: Vec<usize>,
    /// Data centre of each group. In faults and clients, a node stands for all nodes of a group.
    pub nodes: Vec<usize>,
    /// Processes of each group: nodes that hold its log, and where machines come and go, that ever may.
    pub replicas: Vec<usize>,
    /// Groups that are founded while it counts, ascending: the last ones.
    pub joins: Vec<usize>,
    pub lanes: u8,
    /// Home node of each client.
    pub clients: Vec<usize>,
    pub voters: Vec<usize>,
    pub links: LinkFaults,
    /// Messages between aggregators may be lost, doubled and reordered, as if they were datagrams.
    pub lossy_peers: bool,
    pub sync: (Span, Span),
    pub faults: Vec<(Time, Fault)>,
    pub admin: Vec<(Time, Admin)>,
    pub claims: ClaimPlan,
    pub leases: LeasePlan,
    pub forgetting: Forgetting,
    pub eras: EraPlan,
    pub updown: Option<UpDownPlan>,
    pub once: Option<OncePlan>,
    pub reads: Option<ReadPlan>,
    pub series: Option<series::SeriesPlan>,
    pub holds: Option<HoldPlan>,
    /// Hits go at once where nothing is under way, and commits keep to a share of the time. Else both wait for fixed intervals.
    pub clocked: bool,
    pub edges: Option<edges::EdgesPlan>,
    /// Counters at which all views are cut.
    pub cuts: BTreeSet<usize>,
    /// By which piece of their keys counters lie, if not by their names.
    pub laid: Option<u8>,
    pub versions: VersionPlan,
    pub moves: MovePlan,
    pub workload: Workload,
    pub safety_end: Time,
    /// Where faults left fewer increments than this, more come after them.
    pub increments_least: u64,
    /// A run of days instead of a minute.
    pub days: Option<Days>,
    pub only: Only,
}

/// Images that are taken in a run, and what is left besides when all disks are gone at its end.
#[derive(Clone, Debug)]
pub struct EraPlan {
    /// When, and of which data centre.
    pub images: Vec<(Time, usize)>,
    /// A data centre with a disk that is there at the end, so that every award is known.
    pub survivor: Option<usize>,
}

/// Images of a run.
const IMAGES_MAX: u64 = 3;

impl EraPlan {
    fn new(rng: &mut Rng, dcs: usize, end: Time) -> EraPlan {
        let image = |rng: &mut Rng| (Time(rng.between(end.0 / 20, end.0)), rng.below(dcs as u64) as usize);
        let images = (0..rng.between(1, IMAGES_MAX)).map(|_| image(rng)).collect();
        let survivor = rng.per_10k(5_000).then(|| rng.below(dcs as u64) as usize);
        EraPlan { images, survivor }
    }
}

/// Of a plan, what a run is made of: numbers in its lists; `None` is all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Only {
    pub faults: Option<BTreeSet<usize>>,
    pub admin: Option<BTreeSet<usize>>,
    /// Clients that count; the others are there and say nothing.
    pub clients: Option<BTreeSet<usize>>,
    /// No process is of the next version.
    pub one_version: bool,
    /// Data centres with machines that come and go.
    pub moves: Option<BTreeSet<usize>>,
}

impl Only {
    pub fn fault(&self, index: usize) -> bool {
        has(&self.faults, index)
    }

    pub fn admin(&self, index: usize) -> bool {
        has(&self.admin, index)
    }

    pub fn client(&self, index: usize) -> bool {
        has(&self.clients, index)
    }

    pub fn moves(&self, dc: usize) -> bool {
        has(&self.moves, dc)
    }
}

fn has(some: &Option<BTreeSet<usize>>, index: usize) -> bool {
    some.as_ref().is_none_or(|some| some.contains(&index))
}

impl Admin {
    /// Without these, a run is none: its namespace, and the milestone at its end.
    pub fn is_needed(&self) -> bool {
        matches!(self, Admin::Namespace | Admin::Last)
    }
}

/// How much of everything a run has.
#[derive(Clone, Copy, Debug)]
struct Scale {
    dcs_max: usize,
    lanes_max: u8,
    safety: (Span, Span),
    /// About this number, and at least this number.
    increments: (u64, u64),
    /// Members of every group's log; `None`: as drawn.
    replicas: Option<usize>,
}

impl Plan {
    /// A run on modelled logs.
    pub fn new(seed: u64) -> Plan {
        let lanes_max = LANES_DRAWN_MAX as u8;
        let scale =
            Scale { dcs_max: SITES.len(), lanes_max, safety: SAFETY, increments: (36_000, 20_000), replicas: None };
        Plan::drawn(seed, scale)
    }

    /// A run on real logs: up to five data centres with groups of three nodes, up to three valves each, for half as long, and in some of
    /// them machines that come and go. Actions that real disks cannot be told (answer late, come back as old copies) are left out.
    pub fn real(seed: u64) -> Plan {
        let scale = Scale {
            dcs_max: 5,
            lanes_max: 3,
            safety: SAFETY_REAL,
            increments: (6_000, 0),
            replicas: Some(moves::REPLICAS.into()),
        };
        let mut plan = Plan::drawn(seed, scale);
        plan.faults.retain(|(_, fault)| !matches!(fault, Fault::StallDisk { .. } | Fault::OldDisk { .. }));
        plan.holds = None;
        plan.moves = MovePlan::drawn(&mut Rng::new(seed).fork(MOVES_FORK), plan.sites.len(), plan.safety_end);
        for (replicas, &dc) in plan.replicas.iter_mut().zip(&plan.nodes) {
            *replicas = plan.moves.of(dc).map_or(*replicas, |moving| moving.machines.into());
        }
        plan
    }

    fn drawn(seed: u64, scale: Scale) -> Plan {
        let root = Rng::new(seed);
        let mut rng = Rng::new(seed).fork(1);
        let mut sites = sites(&mut rng);
        sites.truncate(scale.dcs_max);
        let dcs = sites.len();
        let nodes = nodes(&mut rng, dcs);
        let crowd = scale.replicas.is_none().then(|| crowd(&mut root.fork(CROWD_FORK), dcs)).flatten();
        let nodes = crowd.unwrap_or(nodes);
        let clients = clients(&mut rng, nodes.len());
        let safety_end = Time(rng.between(scale.safety.0.0, scale.safety.1.0));
        let workload = workload(&mut root.fork(2), clients.len(), safety_end, scale.increments.0);
        let drawn = replicas(&mut root.fork(8), nodes.len());
        let mut plan = Plan {
            seed,
            lanes: lanes(&mut rng).min(scale.lanes_max),
            voters: voters(&mut rng, dcs),
            links: links(&mut rng),
            lossy_peers: rng.per_10k(5_000),
            sync: *rng.pick(&[(Span(100), Span(400)), (Span(2_000), Span(8_000)), (Span(200), Span(30_000))]),
            faults: Vec::new(),
            admin: Vec::new(),
            claims: ClaimPlan::new(root.fork(5), dcs, workload.guarded(), safety_end),
            leases: LeasePlan::new(root.fork(10), nodes.len(), dcs, workload.guarded()),
            forgetting: Forgetting::drawn(&root),
            eras: EraPlan::new(&mut root.fork(14), dcs, safety_end),
            updown: UpDownPlan::drawn(&mut root.fork(17), safety_end),
            once: None,
            reads: None,
            series: series::SeriesPlan::drawn(&mut root.fork(47), safety_end),
            holds: HoldPlan::drawn(&mut root.fork(HOLDS_FORK)),
            clocked: root.fork(CLOCKED_FORK).per_10k(CLOCKED_PER_10K),
            edges: None,
            cuts: BTreeSet::new(),
            laid: None,
            versions: VersionPlan::drawn(root.fork(31)),
            workload,
            replicas: scale.replicas.map_or(drawn, |replicas| vec![replicas; nodes.len()]),
            sites,
            pairs: Vec::new(),
            nodes,
            joins: Vec::new(),
            clients,
            safety_end,
            increments_least: scale.increments.1,
            days: None,
            moves: MovePlan::default(),
            only: Only::default(),
        };
        plan.faults = faults(&mut root.fork(3), &plan);
        plan.faults.extend(old_disk(&mut root.fork(6), &plan));
        plan.faults.extend(group_faults(&mut root.fork(9), &plan));
        plan.admin = admin(&mut root.fork(4), &plan);
        // Behind all others, which so keep their places.
        plan.admin.extend(plan.claims.rules.iter().cloned());
        plan.admin.extend(resets(&mut root.fork(12), &plan));
        plan.faults.extend(plan.leases.faults(dcs, safety_end));
        plan.faults.extend(lost_group(&mut root.fork(11), &plan));
        plan.faults.extend(valves::faults(&mut root.fork(45), &plan));
        if scale.replicas.is_none() {
            plan.add_pairs(&root, dcs);
        }
        plan.admin.extend(plan.updown.map(|updown| (updown.from, Admin::UpDown)));
        plan.admin.extend(plan.series.as_ref().map(|series| (series.from, Admin::Series)));
        plan.cut(&root);
        if scale.replicas.is_none() {
            plan.add_callers(&root);
        }
        plan
    }

    /// Second aggregators, what befalls them and views, and groups that join.
    fn add_pairs(&mut self, root: &Rng, dcs: usize) {
        let mut rng = root.fork(13);
        self.pairs = pairs::drawn(&mut rng, dcs);
        self.faults.extend(pairs::faults(&mut rng, self));
        self.faults.extend(old_views::faults(&mut root.fork(44), self));
        self.faults.extend(ambushes::faults(&mut root.fork(46), self));
        // Behind everything that is drawn of groups.
        joins::add(&mut root.fork(43), self);
    }

    /// Callers that count with ids, and callers that read recent counts.
    fn add_callers(&mut self, root: &Rng) {
        if let Some((once, forgetting)) = OncePlan::drawn(&mut root.fork(ONCE_FORK), self) {
            (self.once, self.forgetting) = (Some(once), forgetting);
        }
        self.reads = ReadPlan::drawn(&mut root.fork(READS_FORK), self);
    }

    /// Edges; and the shards of views, with their holders and splits.
    fn cut(&mut self, root: &Rng) {
        self.add_edges(&mut root.fork(EDGES_FORK));
        self.cuts = cuts::drawn(&mut root.fork(CUTS_FORK), self.workload.counters.len());
        self.split(&mut root.fork(SPLIT_FORK));
        let splits = cuts::splits(&mut root.fork(SPLITS_FORK), self);
        self.faults.extend(splits);
        self.laid = cuts::laid(&mut root.fork(LAID_FORK), self);
    }

    /// Where views are cut, some data centres have more than two aggregators, of which each holds some of the shards.
    fn split(&mut self, rng: &mut Rng) {
        if !self.cuts.is_empty() && !self.pairs.is_empty() {
            let further = pairs::further(rng, &self.pairs);
            self.pairs.extend(further);
            self.faults.extend(pairs::faults(rng, self));
            self.faults.extend(pairs::shard_moves(rng, self));
        }
    }

    fn add_edges(&mut self, rng: &mut Rng) {
        let dcs = self.sites.len();
        let counters = self.workload.counters.len();
        if let Some((edges, asked)) = EdgesPlan::drawn(rng, dcs, counters, self.safety_end, self.series.is_some()) {
            self.edges = Some(edges);
            self.admin.extend(asked);
        }
    }
}

impl Plan {
    /// Tells builds apart to which a seed means different runs: a hash of everything that is drawn of it, whatever is left out.
    pub fn meaning(&self) -> u32 {
        let all = Plan { only: Only::default(), ..self.clone() };
        (hash_of(&format!("{all:?}")) >> 32) as u32
    }

    /// Whether a shard is split while it runs.
    pub fn splits_shards(&self) -> bool {
        self.faults.iter().any(|(_, fault)| matches!(fault, Fault::SplitShard { .. }))
    }

    /// Whether a data centre has more than two aggregators, of which each holds some shards.
    pub fn is_split(&self) -> bool {
        let of = |dc: usize| self.pairs.iter().filter(|&&other| other == dc).count();
        (0..self.sites.len()).any(|dc| of(dc) > 1)
    }

    /// Index in the round-trip table of each aggregator's place: the first ones', then those of the others.
    pub fn places(&self) -> Vec<usize> {
        self.sites.iter().copied().chain(self.pairs.iter().map(|&dc| self.sites[dc])).collect()
    }
}

impl Fault {
    /// The group that joins, if one does.
    pub fn join(&self) -> Option<&joins::Join> {
        match self {
            Fault::Join(join) => Some(join),
            _ => None,
        }
    }
}

impl Workload {
    /// Number of counters, the first ones, that may get milestones.
    pub fn guarded(&self) -> usize {
        self.counters.iter().take_while(|c| c.key.starts_with("guarded")).count()
    }
}

fn sites(rng: &mut Rng) -> Vec<usize> {
    let any = rng.between(1, SITES.len() as u64) as usize;
    let dcs = *rng.pick(&[1, 2, 3, 3, 4, 5, 5, 6, 8, 15, any, any]);
    let mut all: Vec<usize> = (0..SITES.len()).collect();
    (0..dcs).map(|_| all.remove(rng.below(all.len() as u64) as usize)).collect()
}

fn lanes(rng: &mut Rng) -> u8 {
    let any = rng.between(1, LANES_DRAWN_MAX) as u8;
    *rng.pick(&[1, 2, 4, any])
}

fn nodes(rng: &mut Rng, dcs: usize) -> Vec<usize> {
    let two = dcs <= 4 && rng.per_10k(3_000);
    (0..dcs).flat_map(|dc| std::iter::repeat_n(dc, 1 + usize::from(two))).collect()
}

/// Three to five groups in each data centre. Drawn apart.
fn crowd(rng: &mut Rng, dcs: usize) -> Option<Vec<usize>> {
    let is_crowded = dcs <= CROWD_DCS_MAX && rng.per_10k(CROWDS_PER_10K);
    let mut groups = |dc| std::iter::repeat_n(dc, rng.between(3, CROWD_MAX) as usize);
    is_crowded.then(|| (0..dcs).flat_map(&mut groups).collect())
}

fn clients(rng: &mut Rng, nodes: usize) -> Vec<usize> {
    let per_node = rng.between(1, if nodes > 6 { 2 } else { 4 }) as usize;
    (0..nodes).flat_map(|node| std::iter::repeat_n(node, per_node)).collect()
}

fn voters(rng: &mut Rng, dcs: usize) -> Vec<usize> {
    let count = match dcs {
        1 | 2 => 1,
        3 | 4 => 3,
        _ => *rng.pick(&[3, 5]),
    };
    let mut all: Vec<usize> = (0..dcs).collect();
    (0..count).map(|_| all.remove(rng.below(all.len() as u64) as usize)).collect()
}

fn links(rng: &mut Rng) -> LinkFaults {
    let jitter_percent = *rng.pick(&[0, 10, 60]);
    match rng.below(4) {
        0 => LinkFaults { jitter_percent, ..LinkFaults::default() },
        1 => LinkFaults { loss_per_10k: 20, duplicate_per_10k: 20, late_per_10k: 20, jitter_percent },
        2 => LinkFaults { loss_per_10k: 200, duplicate_per_10k: 200, late_per_10k: 300, jitter_percent },
        _ => LinkFaults { loss_per_10k: 1_000, duplicate_per_10k: 500, late_per_10k: 1_000, jitter_percent },
    }
}

fn workload(rng: &mut Rng, clients: usize, end: Time, increments: u64) -> Workload {
    let guarded = rng.between(1, 3);
    let mut counters: Vec<CounterPlan> = (0..guarded)
        .map(|n| CounterPlan {
            key: format!("guarded/{n}"),
            share: if n == 0 { 700 } else { 100 },
            heavy_per_10k: *rng.pick(&[0, 0, 300, 3_000]),
            weight_max: *rng.pick(&[3, 50, 5_000]),
            adds: false,
        })
        .collect();
    let cold = rng.between(2, 20);
    counters.extend((0..cold).map(|n| CounterPlan {
        key: format!("cold/{n}"),
        share: 100 / cold + 1,
        heavy_per_10k: 2_000,
        weight_max: 1_000_000,
        adds: n % 3 != 0,
    }));
    let per_client = increments / clients as u64 + 1;
    let burst_max = *rng.pick(&[4, 8, 16]);
    let bursts = per_client * 2 / (burst_max + 1) + 1;
    let swings = (1..=8).map(|part| (Time(end.0 * part / 8), *rng.pick(&[100, 100, 50, 180]))).collect();
    let client_bytes_max = *rng.pick(&[48 << 10, 400 << 10, 400 << 10]);
    Workload { counters, burst_interval: Span(end.0 / bursts), burst_max, client_bytes_max, swings }
}

fn faults(rng: &mut Rng, plan: &Plan) -> Vec<(Time, Fault)> {
    let count = *rng.pick(&[0, 4, 12, 30]);
    let end = plan.safety_end.0;
    let mut faults: Vec<(Time, Fault)> =
        (0..count).map(|_| (Time(rng.between(end / 20, end)), fault(rng, plan))).collect();
    faults.sort_by_key(|(at, _)| *at);
    faults
}

/// Drawn apart: it ends a run.
fn old_disk(rng: &mut Rng, plan: &Plan) -> Option<(Time, Fault)> {
    let node = rng.below(plan.nodes.len() as u64) as usize;
    let restored = plan.safety_end.0 - rng.between(50_000, 2_000_000);
    let longest = *rng.pick(&[500_000, 5_000_000, 40_000_000]);
    let after = Span(rng.between(50_000, longest));
    // Runs on real logs are shorter than the longest, and leave the fault out.
    let fault = (Time(restored.saturating_sub(after.0)), Fault::OldDisk { node, after });
    // Where a log is on several nodes, an old copy of one disk is no old copy of the group.
    (rng.per_10k(OLD_DISKS_PER_10K) && plan.replicas[node] == 1).then_some(fault)
}

/// Drawn apart, and not where an old disk ends the run.
fn lost_group(rng: &mut Rng, plan: &Plan) -> Option<(Time, Fault)> {
    let node = rng.below(plan.nodes.len() as u64) as usize;
    let at = Time(rng.between(plan.safety_end.0 / 10, plan.safety_end.0 * 6 / 10));
    let forced = rng.per_10k(2_000);
    let declare_after = Span(rng.between(200_000, 20_000_000));
    let found_after = Span(rng.between(1_000, 5_000_000));
    let ends = plan.faults.iter().any(|(_, fault)| matches!(fault, Fault::OldDisk { .. }));
    let fault = Fault::LoseGroup { node, forced, declare_after, found_after };
    (rng.per_10k(LOSSES_PER_10K) && !ends).then_some((at, fault))
}

fn fault(rng: &mut Rng, plan: &Plan) -> Fault {
    let dc = rng.below(plan.sites.len() as u64) as usize;
    let other = rng.below(plan.sites.len() as u64) as usize;
    let node = rng.below(plan.nodes.len() as u64) as usize;
    let client = rng.below(plan.clients.len() as u64) as usize;
    let outputs = rng.below(12);
    let span = Span(rng.exponential(4e6) as u64 + 20_000);
    match rng.below(27) {
        0 | 1 if dc != other => Fault::CutPair { a: dc, b: other, span },
        2 => Fault::CutDc { dc, span },
        3 | 4 => Fault::CrashNode { node, outputs, span },
        5 => Fault::CrashAmidWrite { node, part: rng.per_10k(3_000), span },
        6 | 7 => Fault::CrashAggregator { dc, outputs, span },
        8 => Fault::CrashLeader { outputs, span },
        9 => Fault::CrashClient { client },
        10 | 11 => Fault::MoveClient { client, node },
        12 => Fault::BreakClients { node },
        13 => Fault::BreakGroup { node },
        14 if dc != other => Fault::BreakPeers { a: dc, b: other },
        15 => Fault::Elect { candidate: dc },
        16 => Fault::CutLeader { span },
        17 => Fault::CutAtMilestone { dc, span },
        18 => Fault::Flood { client, hits: rng.between(100, 3_500) },
        19 | 20 => {
            let at = *rng.pick(&[Moment::Grant, Moment::Recall, Moment::Award, Moment::Award]);
            Fault::LoseLeader { at, cut: rng.per_10k(4_000), span }
        }
        21 | 22 if dc != other => Fault::CutOneWay { from: dc, to: other, span },
        23 if dc != other => Fault::Flap { a: dc, b: other, times: rng.between(2, 12), span: Span(span.0 / 8) },
        // Half of them stay.
        24 if client % 2 == 1 => Fault::VanishClient { client },
        25 => Fault::FullDisk { node, span: Span(span.0 / 2) },
        _ => Fault::StallDisk { node, span: Span(span.0 / 8) },
    }
}

/// Four of ten runs have logs on several nodes; in one of them all have.
fn replicas(rng: &mut Rng, groups: usize) -> Vec<usize> {
    match rng.below(10) {
        0 => (0..groups).map(|_| *rng.pick(&[1, 3])).collect(),
        1 => vec![5; groups],
        2 | 3 => vec![3; groups],
        _ => vec![1; groups],
    }
}

/// Faults inside groups with a log on several nodes.
fn group_faults(rng: &mut Rng, plan: &Plan) -> Vec<(Time, Fault)> {
    let replicated: Vec<usize> = (0..plan.nodes.len()).filter(|&node| plan.replicas[node] > 1).collect();
    let count = if replicated.is_empty() { 0 } else { *rng.pick(&[0, 6, 15, 40]) };
    let end = plan.safety_end.0;
    let mut fault = || {
        let at = Time(rng.between(end / 20, end));
        let node = *rng.pick(&replicated);
        let span = Span(rng.exponential(3e6) as u64 + 20_000);
        let fault = match rng.below(8) {
            0..=2 => Fault::Isolate { node, span },
            3 => Fault::Wipe { node },
            4 | 5 => Fault::ElectInGroup { node },
            _ => Fault::CrashNode { node, outputs: rng.below(12), span },
        };
        (at, fault)
    };
    (0..count).map(|_| fault()).collect()
}

fn admin(rng: &mut Rng, plan: &Plan) -> Vec<(Time, Admin)> {
    let end = plan.safety_end.0;
    let mut all = vec![(Time(1), Admin::Namespace)];
    for counter in 0..plan.workload.guarded() {
        if counter == 0 || rng.per_10k(5_000) {
            let at = Time(rng.below(2) * rng.below(end / 4) + 1);
            all.push((at, first_admin(rng, counter)));
        }
        for _ in 0..rng.below(4) {
            all.push((Time(rng.between(end / 10, end * 9 / 10)), later_admin(rng, counter)));
        }
    }
    all.sort_by_key(|(at, _)| *at);
    all.push((plan.safety_end + Span(1_000), Admin::Last));
    all
}

/// Counters that begin again: of their own dice, so that the other runs stay what they are.
fn resets(rng: &mut Rng, plan: &Plan) -> Vec<(Time, Admin)> {
    let end = plan.safety_end.0;
    if !rng.per_10k(WITH_RESETS_PER_10K) {
        return Vec::new();
    }
    let mut all = Vec::new();
    for counter in 0..plan.workload.counters.len().min(8) {
        for _ in 0..rng.below(RESETS_MAX + 1) {
            let at = Time(rng.between(end / 10, end * 9 / 10));
            all.push(match rng.below(4) {
                // The last milestone of the run stands on the first.
                0 if counter > 0 => (at, Admin::Expire { counter, after: Span(rng.between(1_000_000, 8_000_000)) }),
                n => (at, Admin::Reset { counter, keeps_milestones: n > 1 }),
            });
        }
    }
    all
}

fn first_admin(rng: &mut Rng, counter: usize) -> Admin {
    let near = rng.between(500, 8_000);
    match rng.below(5) {
        0 => Admin::At {
            counter,
            at: vec![near, near + 1, near + rng.between(2, 3_000)],
            every: None,
            sequence_from: None,
        },
        1 => Admin::At { counter, at: vec![], every: Some(rng.between(700, 5_000)), sequence_from: None },
        2 => Admin::At { counter, at: vec![near], every: None, sequence_from: Some(near / 2) },
        3 => Admin::At { counter, at: vec![near, 4 * near], every: Some(20_000), sequence_from: None },
        _ => Admin::Ahead { counter, ahead: vec![near], every: false },
    }
}

fn later_admin(rng: &mut Rng, counter: usize) -> Admin {
    match rng.below(8) {
        0 => Admin::Disarm { counter },
        1 => Admin::DisarmRule { counter },
        6 | 7 => Admin::Again { counter },
        2 => Admin::Ahead { counter, ahead: vec![rng.between(1, 40)], every: false },
        3 => Admin::Ahead { counter, ahead: vec![rng.between(1_000, 4_000)], every: true },
        // The second one is as near to the first as what comes while that is decided.
        4 | 5 => {
            let first = rng.between(50, 3_000);
            Admin::Ahead { counter, ahead: vec![first, first + rng.between(1, ZONE)], every: false }
        }
        _ => Admin::Ahead { counter, ahead: vec![rng.between(50, 4_000), rng.between(1, 9_000)], every: false },
    }
}
