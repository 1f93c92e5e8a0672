//! Which runs make a report.

use super::drive::RunPlan;
use super::line::Section;
use tidemark_proto::msg::MilestoneSpec;
use tidemark_proto::time::Span;

/// How much is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Everything: some minutes.
    Whole,
    /// A few runs of each kind: some seconds.
    Quick,
    /// As little as shows that everything works.
    Tiny,
}

/// Increments per second; the last is a trillion a day.
const RATES: [u64; 5] = [1_000, 10_000, 70_000, 1_000_000, 11_570_000];
/// The rate of the reference layout.
pub const RATE: u64 = 70_000;
const CENTRES: [usize; 5] = [3, 5, 15, 50, 200];
/// Data centres of the reference layout.
pub const REFERENCE_CENTRES: usize = 15;
/// Front ends of each data centre there: one per valve.
const FRONT_ENDS: usize = 10;
/// Cold counters beside the one with milestones.
const COLD: [u32; 4] = [10, 100, 1_000, 10_000];
/// Powers of ten with a milestone that is run with rights.
const POWERS: std::ops::RangeInclusive<u32> = 6..=12;
/// Powers of ten with a last percent that is really sequenced.
const POWERS_FIXED: std::ops::RangeInclusive<u32> = 6..=9;
/// The run with a milestone begins this long before it is due. Rights are granted for at most 30 s ahead, an eighth of the rest, so further
/// off nothing would differ.
const LEAD_S: u64 = 300;
/// And so long before its last percent, where that is sequenced.
const LEAD_FIXED_S: u64 = 10;
/// From a hundredth before the milestone on.
pub const FIXED_PART: u64 = 100;
/// Between two milestones.
const SPACING_S: u64 = 8;
/// Until the only one, where a virtual second takes many real ones.
const FIRST_S: u64 = 5;
/// Above this rate, and with more data centres, a run takes long: fewer awards are waited for.
const RATE_MANY: u64 = 1_000_000;
const CENTRES_MANY: usize = 50;

/// The plans of a report, each with what it is for.
pub fn plans(extent: Extent, seed: u64) -> Vec<(Section, RunPlan)> {
    let pick = |section: Section, plans: Vec<RunPlan>| plans.into_iter().map(move |plan| (section, plan));
    let rates = rates(extent).into_iter().map(|rate| at_rate(extent, seed, rate)).collect();
    let centres = centres(extent).into_iter().map(|centres| with_centres(extent, seed, centres)).collect();
    let rights = powers(extent, POWERS).into_iter().map(|power| with_rights(seed, power)).collect();
    let fixed = powers(extent, POWERS_FIXED).into_iter().map(|power| with_fixed_part(seed, power)).collect();
    let cells = cold(extent).into_iter().map(|cold| with_cells(extent, seed, cold)).collect();
    pick(Section::Rates, rates)
        .chain(pick(Section::Centres, centres))
        .chain(pick(Section::Rights, rights))
        .chain(pick(Section::Fixed, fixed))
        .chain(pick(Section::Cells, cells))
        .collect()
}

fn rates(extent: Extent) -> Vec<u64> {
    match extent {
        Extent::Whole => RATES.to_vec(),
        Extent::Quick => vec![1_000, RATE, 1_000_000],
        Extent::Tiny => vec![2_000],
    }
}

fn centres(extent: Extent) -> Vec<usize> {
    match extent {
        Extent::Whole => CENTRES.to_vec(),
        Extent::Quick => vec![3, 15],
        Extent::Tiny => vec![3],
    }
}

fn cold(extent: Extent) -> Vec<u32> {
    match extent {
        Extent::Whole => COLD.to_vec(),
        Extent::Quick => vec![10, 1_000],
        Extent::Tiny => vec![10],
    }
}

fn powers(extent: Extent, all: std::ops::RangeInclusive<u32>) -> Vec<u32> {
    match extent {
        Extent::Whole => all.collect(),
        Extent::Quick => all.take(2).collect(),
        Extent::Tiny => Vec::new(),
    }
}

fn base(seed: u64, centres: usize, rate_per_s: u64, spec: MilestoneSpec) -> RunPlan {
    RunPlan {
        seed,
        centres,
        rate_per_s,
        front_ends_per_centre: FRONT_ENDS,
        cold_counters: 0,
        start_at: 0,
        spec,
        awards: 1,
        counting_max: Span::from_secs(2 * LEAD_S),
    }
}

fn every(count: u64) -> MilestoneSpec {
    MilestoneSpec { every: Some(count), ..MilestoneSpec::default() }
}

fn at_rate(extent: Extent, seed: u64, rate: u64) -> RunPlan {
    let awards = match extent {
        Extent::Whole if rate <= RATE_MANY => 8,
        Extent::Tiny => 2,
        _ => 3,
    };
    let centres = if extent == Extent::Tiny { 3 } else { REFERENCE_CENTRES };
    RunPlan { awards, ..base(seed, centres, rate, every(SPACING_S * rate)) }
}

fn with_centres(extent: Extent, seed: u64, centres: usize) -> RunPlan {
    if centres > CENTRES_MANY {
        return RunPlan { front_ends_per_centre: 1, ..base(seed, centres, RATE, at(FIRST_S * RATE)) };
    }
    let awards = match extent {
        Extent::Whole if centres < CENTRES_MANY => 8,
        _ => 3,
    };
    RunPlan { awards, ..base(seed, centres, RATE, every(SPACING_S * RATE)) }
}

fn at(milestone: u64) -> MilestoneSpec {
    MilestoneSpec { at: vec![milestone], ..MilestoneSpec::default() }
}

fn with_rights(seed: u64, power: u32) -> RunPlan {
    let milestone = 10u64.pow(power);
    let start_at = milestone.saturating_sub(LEAD_S * RATE);
    // Another seed for each: with one, runs that begin as far from their milestones would be the same run.
    let seed = seed + u64::from(power);
    RunPlan { start_at, front_ends_per_centre: 1, ..base(seed, REFERENCE_CENTRES, RATE, at(milestone)) }
}

fn with_fixed_part(seed: u64, power: u32) -> RunPlan {
    let milestone = 10u64.pow(power);
    let from = milestone - milestone / FIXED_PART;
    let spec = MilestoneSpec { sequence_from: Some(from), ..at(milestone) };
    let start_at = from.saturating_sub(LEAD_FIXED_S * RATE);
    RunPlan { start_at, front_ends_per_centre: 1, ..base(seed, REFERENCE_CENTRES, RATE, spec) }
}

/// No milestone comes: what is told between data centres is gossip.
fn with_cells(extent: Extent, seed: u64, cold_counters: u32) -> RunPlan {
    let centres = if extent == Extent::Tiny { 3 } else { REFERENCE_CENTRES };
    let counting_max = Span::from_secs(if extent == Extent::Whole { 13 } else { 5 });
    RunPlan { cold_counters, counting_max, ..base(seed, centres, RATE, at(1 << 50)) }
}
