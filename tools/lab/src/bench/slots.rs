//! The cost of shards: three data centres with the same counts, with two levels of totals above them and edges that change, and with views
//! of 1, 4 and 16 shards. Leaves and totals of each level are in all shards, so nearly every edge crosses from one shard to another.
//!
//! They are measured in turns, one after the other, so that what else goes on at the machine meets all alike.

use super::cluster::NAMESPACE;
use super::line::{Asked, Sample};
use super::load::TENANTS;
use super::series::{Series, Shape, Spent};
use super::{BenchError, Plan};
use tidemark::errln;
use tidemark_demo::figures::median;

/// A cluster of each number is measured in a turn.
const SLOTS: [usize; 3] = [1, 4, 16];
const TURNS: usize = 5;
const COUNTERS: usize = 1_000_000;
/// Of one measurement.
const LOAD_S: f64 = 20.0;
/// A rate that the busiest keeps up with on two cores, beside the load itself.
const PER_S: f64 = 50_000.0;
/// More CPU of an increment than with one slot, as a share.
pub const GROWTH_MAX: f64 = 1.15;

/// `slots`.
pub fn run(plan: &Plan) -> Result<Vec<Sample>, BenchError> {
    let counters = plan.size_or(COUNTERS);
    let mut places = Vec::new();
    for slots in SLOTS {
        let mut series = Series::start(plan, Shape { slots: cuts(slots), ..Shape::of(counters) })?;
        series.found()?;
        series.link()?;
        series.catch_up()?;
        places.push((series, Vec::new()));
    }
    let per_s = plan.rate_or(PER_S);
    let seconds = plan.seconds_or(LOAD_S);
    for turn in 0..TURNS {
        for (slots, (series, spent)) in SLOTS.iter().zip(&mut places) {
            let now = series.spends(per_s, seconds)?;
            errln!(
                "turn {turn}, {slots} slots: {:.2} µs of nodes, {:.2} µs of the aggregator",
                now.nodes_us,
                now.aggregator_us
            );
            spent.push(now);
        }
    }
    let mut samples: Vec<Sample> = SLOTS
        .iter()
        .zip(&places)
        .flat_map(|(slots, (_, spent))| spent.iter().flat_map(|of| of_turn(*slots, of)))
        .collect();
    let (_, whole) = &places[0];
    for (slots, (_, spent)) in SLOTS.iter().zip(&places).skip(1) {
        let all = Asked::cost(format!("CPU of an increment, {slots} slots to 1, medians"), "×").must(GROWTH_MAX);
        samples.push(all.is(typical(spent, all_us) / typical(whole, all_us)));
        let aggregator = Asked::cost(format!("the aggregator's share of it, {slots} slots to 1, medians"), "×");
        samples.push(aggregator.is(typical(spent, |of| of.aggregator_us) / typical(whole, |of| of.aggregator_us)));
    }
    for (slots, (series, _)) in SLOTS.iter().zip(&places) {
        let sums = series.sums()?.into_iter();
        samples.extend(sums.map(|sample| of_slots(sample, *slots)));
    }
    Ok(samples)
}

fn of_slots(mut sample: Sample, slots: usize) -> Sample {
    sample.figure.name = format!("{}, {slots} slots", sample.figure.name);
    sample
}

fn of_turn(slots: usize, spent: &Spent) -> [Sample; 3] {
    let of = |what: &str| format!("{what}, {slots} slots");
    [
        Asked::cost(of("CPU of an increment, nodes and aggregator"), "µs").is(all_us(spent)),
        Asked::cost(of("CPU of an increment, aggregator"), "µs").is(spent.aggregator_us),
        Asked::rate(of("changes of edges meanwhile, per 1,000 increments"), "").is(spent.edge_changes),
    ]
}

pub fn all_us(spent: &Spent) -> f64 {
    spent.nodes_us + spent.aggregator_us
}

pub fn typical(spent: &[Spent], of: impl Fn(&Spent) -> f64) -> f64 {
    median(&spent.iter().map(of).collect::<Vec<_>>()).unwrap_or(f64::NAN)
}

/// The boundaries of the view's shards, with as many leaves in each.
pub fn cuts(slots: usize) -> Vec<String> {
    (1..slots).map(|slot| format!("{NAMESPACE}/tenant-{:05}", slot * TENANTS / slots)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::load::name;

    #[test]
    fn as_many_counters_are_in_each_slot_and_those_of_a_total_in_all() {
        for slots in SLOTS {
            let mut counters = vec![0; slots];
            for leaf in 0..100 {
                let key = String::from_utf8(name(leaf).unwrap().key().to_vec()).unwrap();
                let full = format!("{NAMESPACE}/{key}");
                counters[cuts(slots).iter().filter(|cut| **cut <= full).count()] += 1;
            }
            let least = counters.iter().min().unwrap();
            let most = counters.iter().max().unwrap();
            assert!(*least > 0 && most - least <= 1, "{counters:?}");
        }
    }
}
