//! A month as one run: the constants that ship, a little of everything each day, and hours in which nothing happens. Such hours cost next
//! to nothing, as time goes on from event to event.

use super::claims::ClaimPlan;
use super::leases::LeasePlan;
use super::moves::MovePlan;
use super::versions::VersionPlan;
use super::{Admin, CounterPlan, EraPlan, Fault, Forgetting, Moment, Only, Plan, Workload, sites};
use crate::net::LinkFaults;
use crate::rng::Rng;
use tidemark_proto::limits::{AGE_UNIT, STAY_MAX, STREAMS_KEPT_AGES};
use tidemark_proto::msg::Policy;
use tidemark_proto::time::{Span, Time};

/// A virtual day.
pub const DAY: Span = Span::from_secs(24 * 3_600);
/// Days of `sim run --mode month`: more than four times as long as a stream is remembered.
pub const MONTH_DAYS: u32 = 30;

/// Data centres, each with one group.
const DCS: usize = 3;
/// Members of the groups' logs.
const REPLICAS: [usize; DCS] = [1, 3, 1];
/// Places of client processes. In the first ones a process ends every few minutes and another one comes.
const CLIENTS: usize = 9;
const FLEETING: u64 = 6;
/// Client processes that end and are followed by others, each day.
pub const GONE_A_DAY: u64 = 150;
/// Counters: the first two get milestones, the first's strict and the second's timely.
const COUNTERS: usize = 8;
const GUARDED: usize = 2;
/// Between two bursts of one client by night; by day, a third of it, and once the faults are over the hundredth part.
const PAUSE: Span = Span::from_secs(400);
/// Hours after midnight in which there is more to do.
const BUSY: (u64, u64) = (8, 20);

/// The differences of a run of days.
#[derive(Clone, Copy, Debug)]
pub struct Days {
    pub days: u32,
    /// How often the world checks which processes reach one another and which leaders they elect, and tells them the time: in other runs
    /// ten times a second. Messages do not wait for it.
    pub look_interval: Span,
}

impl Plan {
    /// A run of a month.
    pub fn month(seed: u64) -> Plan {
        Plan::of_days(seed, MONTH_DAYS)
    }

    /// The same, shorter.
    pub fn of_days(seed: u64, days: u32) -> Plan {
        let root = Rng::new(seed).fork(17);
        let mut rng = root.fork(1);
        let mut sites = sites(&mut rng);
        let all = 0..crate::rtt::SITES.len();
        sites.extend(all.filter(|site| !sites.contains(site)).collect::<Vec<_>>());
        sites.truncate(DCS);
        let safety_end = Time(DAY.0 * u64::from(days));
        let claims = ClaimPlan::new(root.fork(5), DCS, GUARDED, safety_end);
        let mut admin = commands(&mut root.fork(4), days);
        admin.extend(claims.rules.iter().cloned());
        Plan {
            seed,
            sites,
            pairs: Vec::new(),
            joins: Vec::new(),
            nodes: (0..DCS).collect(),
            replicas: REPLICAS.to_vec(),
            lanes: 2,
            clients: (0..CLIENTS).map(|slot| slot % DCS).collect(),
            voters: (0..DCS).collect(),
            links: LinkFaults { loss_per_10k: 20, duplicate_per_10k: 20, late_per_10k: 20, jitter_percent: 10 },
            lossy_peers: rng.per_10k(5_000),
            sync: (Span(200), Span(8_000)),
            faults: faults(&mut root.fork(3), days),
            admin,
            claims,
            leases: LeasePlan::of(vec![Policy::Strict, Policy::Timely], root.fork(10), DCS, DCS),
            forgetting: Forgetting {
                age_unit: AGE_UNIT,
                kept: STREAMS_KEPT_AGES,
                renew_after: STAY_MAX,
                compacts: true,
            },
            eras: EraPlan::new(&mut root.fork(14), DCS, safety_end),
            updown: None,
            once: None,
            reads: None,
            series: None,
            holds: None,
            clocked: false,
            edges: None,
            cuts: Default::default(),
            laid: None,
            versions: VersionPlan::drawn(root.fork(31)),
            workload: workload(days),
            safety_end,
            increments_least: 0,
            days: Some(Days { days, look_interval: Span::from_secs(10) }),
            moves: MovePlan::default(),
            only: Only::default(),
        }
    }
}

fn workload(days: u32) -> Workload {
    let counter = |n: usize| CounterPlan {
        key: if n < GUARDED { format!("guarded/{n}") } else { format!("cold/{n}") },
        share: if n == 0 { 500 } else { 70 },
        heavy_per_10k: 300,
        weight_max: 50,
        adds: n > GUARDED && n.is_multiple_of(3),
    };
    let hour = DAY.0 / 24;
    let swings = (0..u64::from(days)).flat_map(|day| {
        let at = |hours: u64| Time(day * DAY.0 + hours * hour);
        [(at(BUSY.0), 1), (at(BUSY.1), 3), (at(24), 1)]
    });
    Workload {
        counters: (0..COUNTERS).map(counter).collect(),
        burst_interval: Span(PAUSE.0 / 100),
        burst_max: 4,
        client_bytes_max: 48 << 10,
        swings: swings.collect(),
    }
}

/// Each day clients go and others come, processes of every kind restart, and something is cut off for minutes.
fn faults(rng: &mut Rng, days: u32) -> Vec<(Time, Fault)> {
    let mut faults = Vec::new();
    for day in 0..u64::from(days) {
        let mut at = |fault: Fault, rng: &mut Rng| faults.push((Time(day * DAY.0 + 1 + rng.below(DAY.0 - 1)), fault));
        for _ in 0..GONE_A_DAY {
            let client = rng.below(FLEETING) as usize;
            at(Fault::CrashClient { client }, rng);
        }
        let minutes = |rng: &mut Rng| Span::from_secs(rng.between(1, 600));
        let node = rng.below(DCS as u64) as usize;
        let dc = rng.below(DCS as u64) as usize;
        at(Fault::CrashNode { node, outputs: rng.below(12), span: minutes(rng) }, rng);
        at(Fault::CrashAggregator { dc, outputs: rng.below(12), span: minutes(rng) }, rng);
        at(Fault::CutDc { dc: rng.below(DCS as u64) as usize, span: minutes(rng) }, rng);
        at(Fault::MoveClient { client: rng.below(CLIENTS as u64) as usize, node: 0 }, rng);
        at(Fault::ElectInGroup { node: 1 }, rng);
        at(Fault::LoseLeader { at: Moment::Award, cut: rng.per_10k(5_000), span: minutes(rng) }, rng);
        if day % 3 == 0 {
            at(Fault::Wipe { node: 1 }, rng);
            at(Fault::FullDisk { node: rng.below(DCS as u64) as usize, span: minutes(rng) }, rng);
        }
    }
    faults.sort_by_key(|(at, _)| *at);
    faults
}

/// A milestone now and then, and counters that begin again.
fn commands(rng: &mut Rng, days: u32) -> Vec<(Time, Admin)> {
    let end = u64::from(days) * DAY.0;
    let mut all = vec![(Time(1), Admin::Namespace)];
    for day in 0..u64::from(days) {
        let counter = rng.below(GUARDED as u64) as usize;
        let ahead = vec![rng.between(20, 400), rng.between(400, 2_000)];
        all.push((Time(day * DAY.0 + 2 + rng.below(DAY.0 / 2)), Admin::Ahead { counter, ahead, every: false }));
    }
    for counter in 1..COUNTERS {
        for _ in 0..=rng.below(super::RESETS_MAX) {
            let at = Time(rng.between(end / 10, end * 9 / 10));
            all.push((at, Admin::Reset { counter, keeps_milestones: rng.per_10k(5_000) }));
        }
    }
    all.push((Time(end) + Span(1_000), Admin::Last));
    all
}
