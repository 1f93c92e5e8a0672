//! The costs of the protocol, from runs of the shipped core in virtual time without faults: messages and bytes by kind, increments
//! sequenced per milestone, award latency, convergence. Numbers come from [`measure`] as lines; tables, plots and the page are made of
//! lines alone, so that what is written can be made again from what is kept.

mod arrivals;
mod books;
mod charts;
mod costs;
mod drive;
mod globe;
mod layout;
mod line;
mod log;
mod page;
mod plans;
mod rivals;
mod svg;
mod tables;
mod wake;
mod watch;
mod words;

pub use costs::{KINDS, Kind, Volume};
pub use drive::RunPlan;
pub use line::{AwardLine, RunLine, Section, TrafficLine};
pub use page::{File, files};
pub use plans::{Extent, plans};

use drive::Drive;
use tidemark_proto::gossip::GossipConfig;

/// All runs of a report; `done` hears of each as it ends.
pub fn measure(extent: Extent, seed: u64, done: &mut dyn FnMut(&RunLine)) -> Vec<RunLine> {
    let run = |(section, plan)| {
        let line = run(section, plan);
        done(&line);
        line
    };
    plans(extent, seed).into_iter().map(run).collect()
}

/// Lines as text: one of JSON each.
pub fn to_json(lines: &[RunLine]) -> String {
    let line = |line: &RunLine| serde_json::to_string(line).expect("numbers and words") + "\n";
    lines.iter().map(line).collect()
}

/// Lines from their text.
///
/// # Errors
/// The number of the first line that is none of a report, and why.
pub fn from_json(text: &str) -> Result<Vec<RunLine>, (usize, serde_json::Error)> {
    let parse = |(at, line): (usize, &str)| serde_json::from_str(line).map_err(|error| (at + 1, error));
    text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).map(parse).collect()
}

/// Runs one plan and says what it came to.
pub fn run(section: Section, plan: RunPlan) -> RunLine {
    let mut drive = Drive::new(plan);
    drive.run();
    let carried_bytes = drive.books.carried + drive.under_way_bytes();
    let Drive { plan, layout, books, watch, .. } = &drive;
    let all = (0..layout.centres() as u16).map(tidemark_proto::ids::DcId);
    let complete = watch.complete_at.iter().copied().collect::<Option<Vec<_>>>();
    let first = usize::from(plan.awards > 1);
    let milestone = plan.spec.at.first().copied().or(plan.spec.every).unwrap_or(0);
    RunLine {
        section,
        seed: plan.seed,
        centres: layout.centres(),
        measured_sites: layout.measured,
        front_ends: layout.centres() * plan.front_ends_per_centre,
        cold_counters: plan.cold_counters,
        rate_per_s: plan.rate_per_s,
        milestone,
        every: plan.spec.every,
        start_at: plan.start_at,
        sequence_from: plan.spec.sequence_from,
        quorum_us: layout.quorum_us(),
        farthest_us: (0..layout.centres()).map(|dc| layout.to_leader_us(dc)).max().unwrap_or(0),
        zone: layout.zone(plan.rate_per_s).round() as u64,
        arrived: drive.arrived,
        awards: watch.awards.values().skip(first).cloned().collect(),
        converged_us: complete.and_then(|at| at.into_iter().max()).map(|at| (at - watch.last_applied).0),
        undecided_max: watch.undecided_max,
        queued_max: watch.queued_max,
        quiet_us: books.quiet_us,
        near_us: books.near_us,
        traffic: books.traffic(),
        quiet_bytes_as_hits: books.quiet_bytes_as_hits,
        full_state_bytes: rivals::state_bytes(drive.view(), all),
        own_state_bytes: rivals::state_bytes(drive.view(), std::iter::once(drive.leader())),
        gossip_interval_us: GossipConfig::default().gossip_interval.0,
        carried_bytes,
        told_bytes: books.told_bytes(),
        weighted_queued: watch.weighted_queued,
        refused: watch.refused,
    }
}
