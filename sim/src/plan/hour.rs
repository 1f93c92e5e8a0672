//! An hour of the reference layout as one run: all its data centres, ten valves each, a thousand increments a second, faults of all kinds
//! all the time, and a milestone every minute or so.

use super::claims::ClaimPlan;
use super::leases::LeasePlan;
use super::moves::MovePlan;
use super::versions::VersionPlan;
use super::{Admin, CounterPlan, EraPlan, Forgetting, Only, Plan, Workload, fault};
use crate::net::LinkFaults;
use crate::rng::Rng;
use crate::rtt::SITES;
use tidemark_proto::msg::Policy;
use tidemark_proto::time::{Span, Time};

/// A virtual hour.
pub const HOUR: Span = Span::from_secs(3_600);
/// Increments of a second, all data centres together.
pub const RATE_PER_S: u64 = 1_000;
/// More than that is asked for, as processes are down at times.
const SPARE_PERCENT: u64 = 25;
/// Valves of a data centre.
const LANES: u8 = 10;
/// Front ends of a data centre.
const CLIENTS: usize = 2;
/// Data centres that vote in the ledger.
const VOTERS: usize = 5;
/// Counters with milestones: the first one's are strict, the second one's timely.
const GUARDED: usize = 2;
const COLD: usize = 20;
/// A milestone at each multiple.
const EVERY: u64 = 50_000;
/// Faults of the hour.
const FAULTS: u64 = 300;

impl Plan {
    /// A run of an hour.
    pub fn hour(seed: u64) -> Plan {
        let root = Rng::new(seed).fork(18);
        let dcs = SITES.len();
        let safety_end = Time(HOUR.0);
        let mut rng = root.fork(1);
        let claims = ClaimPlan::new(root.fork(5), dcs, GUARDED, safety_end);
        let mut admin = commands();
        admin.extend(claims.rules.iter().cloned());
        let mut plan = Plan {
            seed,
            sites: (0..dcs).collect(),
            pairs: Vec::new(),
            joins: Vec::new(),
            nodes: (0..dcs).collect(),
            replicas: vec![1; dcs],
            lanes: LANES,
            clients: (0..dcs * CLIENTS).map(|slot| slot % dcs).collect(),
            voters: (0..VOTERS).collect(),
            links: LinkFaults { loss_per_10k: 20, duplicate_per_10k: 20, late_per_10k: 20, jitter_percent: 10 },
            lossy_peers: rng.per_10k(5_000),
            sync: (Span(200), Span(8_000)),
            faults: Vec::new(),
            admin,
            claims,
            leases: LeasePlan::of(vec![Policy::Strict, Policy::Timely], root.fork(10), dcs, dcs),
            forgetting: Forgetting::drawn(&root),
            eras: EraPlan::new(&mut root.fork(14), dcs, safety_end),
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
            workload: workload(dcs * CLIENTS),
            safety_end,
            increments_least: HOUR.0 / 1_000_000 * RATE_PER_S,
            days: None,
            moves: MovePlan::default(),
            only: Only::default(),
        };
        let mut rng = root.fork(3);
        plan.faults = (0..FAULTS).map(|_| (Time(rng.between(HOUR.0 / 100, HOUR.0)), fault(&mut rng, &plan))).collect();
        plan.faults.sort_by_key(|(at, _)| *at);
        plan
    }
}

fn workload(clients: usize) -> Workload {
    let counter = |n: usize| CounterPlan {
        key: if n < GUARDED { format!("guarded/{n}") } else { format!("cold/{n}") },
        share: if n < GUARDED { 350 } else { 300 / COLD as u64 },
        heavy_per_10k: 0,
        weight_max: 1,
        adds: n > GUARDED && n.is_multiple_of(3),
    };
    let burst_max = 8;
    // On average a burst has half as many and one half more.
    let bursts_per_s = RATE_PER_S * 2 * (100 + SPARE_PERCENT) / 100 / (burst_max + 1);
    Workload {
        counters: (0..GUARDED + COLD).map(counter).collect(),
        burst_interval: Span(1_000_000 * clients as u64 / bursts_per_s),
        burst_max,
        client_bytes_max: 400 << 10,
        swings: vec![(Time(HOUR.0), 100)],
    }
}

fn commands() -> Vec<(Time, Admin)> {
    let rule = |counter: usize| Admin::At { counter, at: Vec::new(), every: Some(EVERY), sequence_from: None };
    let mut all = vec![(Time(1), Admin::Namespace)];
    all.extend((0..GUARDED).map(|counter| (Time(1_000_000), rule(counter))));
    all.push((Time(HOUR.0) + Span(1_000), Admin::Last));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_hour_has_all_data_centres_and_so_many_increments() {
        let plan = Plan::hour(1);
        assert_eq!((plan.sites.len(), plan.nodes.len(), plan.safety_end), (SITES.len(), SITES.len(), Time(HOUR.0)));
        let bursts = plan.clients.len() as u64 * HOUR.0 / plan.workload.burst_interval.0;
        let increments = bursts * (plan.workload.burst_max + 1) / 2;
        assert!(increments > plan.increments_least && plan.increments_least == 3_600_000, "{increments}");
    }
}
