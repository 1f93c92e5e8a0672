//! Machines of data centres that come and go while clients count, on real logs: of their own dice, so that the runs without stay what
//! they are.

use crate::rng::Rng;
use tidemark_proto::placement::Placement;
use tidemark_proto::time::{Span, Time};

/// Number of 10,000 runs on real logs in which machines come and go.
const RUNS_PER_10K: u32 = 4_000;
/// Number of 10,000 data centres of such a run, beside the one that is sure, in which they do.
const CENTRES_PER_10K: u32 = 3_000;
/// Most machines that a data centre ever has.
const MACHINES_MAX: u16 = 5;
/// Machines that hold each log.
pub const REPLICAS: u16 = 3;
/// Most changes of one data centre.
const CHANGES_MAX: u64 = 4;
/// Of 10,000 data centres with machines that come and go, this number has operators in a hurry.
const HURRIES_PER_10K: u32 = 3_000;
/// Number of 10,000 changes there that are given out together with the next, and of the others that are given out before the last is done.
const TOGETHER_PER_10K: u32 = 4_000;
const EARLY_PER_10K: u32 = 6_000;
/// Number of 10,000 changes during which each group of the data centre loses a disk.
const DISKS_PER_10K: u32 = 4_000;
const DISK_AFTER_US: f64 = 3_000_000.0;

/// By data centre.
#[derive(Clone, Debug, Default)]
pub struct MovePlan(pub Vec<Option<Moving>>);

/// The layouts that a data centre has one after the other. A machine holds a process of each group of which it is a holder.
#[derive(Clone, Debug)]
pub struct Moving {
    /// Machines that it ever has.
    pub machines: u16,
    /// Number of the first of its groups, of which runs have only some: those of the lowest numbers move least.
    pub first_group: u16,
    /// The first one from the start.
    pub layouts: Vec<Change>,
}

/// A layout that machines read as they start.
#[derive(Clone, Debug)]
pub struct Change {
    /// The operator waits until then at least.
    pub from: Time,
    pub placement: Placement,
    /// Machines that come or go by it: one, if the operator is in no hurry.
    pub machines: Vec<u16>,
    /// The operator does not wait until all groups are where the last layout wants them.
    pub early: bool,
    /// So long after it is given out, each group of the data centre loses a disk.
    pub disk_after: Option<Span>,
    /// Machines that are restarted, one after the other, each with the pause before it.
    pub turns: Vec<(u16, Span)>,
}

impl MovePlan {
    pub(super) fn drawn(rng: &mut Rng, dcs: usize, end: Time) -> MovePlan {
        let moves = rng.per_10k(RUNS_PER_10K);
        let sure = rng.below(dcs as u64) as usize;
        let mut of_dc = |dc: usize| (rng.per_10k(CENTRES_PER_10K) || dc == sure).then(|| Moving::drawn(rng, end));
        let all: Vec<Option<Moving>> = (0..dcs).map(&mut of_dc).collect();
        if moves { MovePlan(all) } else { MovePlan::default() }
    }

    pub fn of(&self, dc: usize) -> Option<&Moving> {
        self.0.get(dc).and_then(Option::as_ref)
    }
}

impl Moving {
    fn drawn(rng: &mut Rng, end: Time) -> Moving {
        let mut machines = REPLICAS + rng.below(2) as u16;
        let mut gone = Vec::new();
        let placement = placement_of(machines, &gone);
        let none = Vec::new();
        let no_turns = Vec::new();
        let mut layouts =
            vec![Change { from: Time(0), placement, machines: none, early: false, disk_after: None, turns: no_turns }];
        // A data centre of a run has two groups at most.
        let first_group = rng.below(u64::from(machines) - 1) as u16;
        let mut times: Vec<u64> = (0..rng.between(1, CHANGES_MAX)).map(|_| rng.between(end.0 / 6, end.0)).collect();
        times.sort_unstable();
        let hurry = rng.per_10k(HURRIES_PER_10K);
        let mut changed = Vec::new();
        for (at, &from) in times.iter().enumerate() {
            let Some(machine) = change(rng, &mut machines, &mut gone) else { break };
            changed.push(machine);
            let together = rng.per_10k(TOGETHER_PER_10K);
            let early = rng.per_10k(EARLY_PER_10K);
            let may_follow = machines < MACHINES_MAX || usize::from(machines) - gone.len() > usize::from(REPLICAS);
            if hurry && together && may_follow && at + 1 < times.len() {
                continue;
            }
            let placement = placement_of(machines, &gone);
            let before = &layouts[layouts.len() - 1].placement;
            let is_there = |machine: &u16| !(before.is_gone(*machine) || *machine >= before.nodes());
            let concerned = (0..machines).filter(|machine| is_there(machine) || !placement.is_gone(*machine));
            let turns = turns(rng, concerned.collect());
            let after = Span(rng.exponential(DISK_AFTER_US) as u64);
            let disk_after = rng.per_10k(DISKS_PER_10K).then_some(after);
            let from = Time(from);
            let machines = std::mem::take(&mut changed);
            let early = hurry && early;
            layouts.push(Change { from, placement, machines, early, disk_after, turns });
        }
        Moving { machines, first_group, layouts }
    }

    /// Whether a layout does not wait until the one before is done.
    pub fn hurries(&self, layout: usize) -> bool {
        self.layouts.get(layout).is_some_and(|change| change.early)
    }
}

/// A machine comes or goes, if one can; which.
fn change(rng: &mut Rng, machines: &mut u16, gone: &mut Vec<u16>) -> Option<u16> {
    let present: Vec<u16> = placement_of(*machines, gone).present().collect();
    let grows = *machines < MACHINES_MAX;
    let shrinks = present.len() > usize::from(REPLICAS);
    if shrinks && (!grows || rng.per_10k(5_000)) {
        let machine = *rng.pick(&present);
        gone.push(machine);
        return Some(machine);
    }
    *machines += u16::from(grows);
    grows.then(|| *machines - 1)
}

/// In any order.
fn turns(rng: &mut Rng, mut machines: Vec<u16>) -> Vec<(u16, Span)> {
    let pause_us = *rng.pick(&[100_000.0, 1_000_000.0, 3_000_000.0]);
    let mut turns = Vec::new();
    while !machines.is_empty() {
        let machine = machines.swap_remove(rng.below(machines.len() as u64) as usize);
        turns.push((machine, Span(rng.exponential(pause_us) as u64 + 10_000)));
    }
    turns
}

fn placement_of(machines: u16, gone: &[u16]) -> Placement {
    Placement::new(machines, gone, REPLICAS).expect("as many are left as hold a log")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_runs_have_machines_that_come_and_go_one_at_a_time_unless_operators_hurry() {
        let plans: Vec<MovePlan> =
            (0..1_000).map(|seed| MovePlan::drawn(&mut Rng::new(seed), 3, Time(30_000_000))).collect();
        let all: Vec<&Moving> = plans.iter().flat_map(|plan| plan.0.iter().flatten()).collect();
        assert!((300..500).contains(&plans.iter().filter(|plan| !plan.0.is_empty()).count()));
        let mut come = 0;
        let mut gone = 0;
        let mut early = 0;
        let mut together = 0;
        for layouts in all.iter().map(|moving| &moving.layouts) {
            for pair in layouts.windows(2) {
                let before = pair[0].placement.present().count();
                let after = pair[1].placement.present().count();
                let at_once = pair[1].machines.len();
                assert!((1..=4).contains(&at_once) && (3..=5).contains(&after));
                assert!(before.abs_diff(after) <= at_once && (at_once > 1 || before.abs_diff(after) == 1));
                (come, gone) = (come + usize::from(after > before), gone + usize::from(after < before));
                (early, together) = (early + usize::from(pair[1].early), together + usize::from(at_once > 1));
                assert!(pair[0].from <= pair[1].from);
                let restarted =
                    pair[1].turns.iter().map(|(machine, _)| *machine).collect::<std::collections::BTreeSet<_>>();
                assert!(pair[1].placement.present().all(|machine| restarted.contains(&machine)));
                assert_eq!(restarted.len(), pair[1].turns.len());
            }
        }
        assert!(come > 300 && gone > 200 && early > 100 && together > 50, "{come} {gone} {early} {together}");
    }
}
