//! The cost of a view in parts: a data centre of two aggregators that hold all 16 shards, and a data centre of four aggregators that hold
//! eight each, so that each shard is held twice in both. They count the same, with two levels of totals and edges that change; nearly every
//! edge crosses a shard; and they are read at their first aggregator, which asks others for half of it.

use super::line::{Asked, Sample};
use super::reads::{self, Promise};
use super::series::{Series, Shape, Spent};
use super::slots::{GROWTH_MAX, all_us, cuts, typical};
use super::{BenchError, Plan};
use tidemark::errln;

/// Aggregators of the two data centres. They are measured in turns.
const AGGREGATORS: [usize; 2] = [2, 4];
const SLOTS: usize = 16;
const TURNS: usize = 3;
const COUNTERS: usize = 1_000_000;
/// Of one measurement.
const LOAD_S: f64 = 20.0;
/// A rate that the busier keeps up with on two cores, beside the load itself.
const PER_S: f64 = 30_000.0;

/// `split`.
pub fn run(plan: &Plan) -> Result<Vec<Sample>, BenchError> {
    let counters = plan.size_or(COUNTERS);
    let mut places = Vec::new();
    for aggregators in AGGREGATORS {
        let mut series =
            Series::start(plan, Shape { slots: cuts(SLOTS), further: aggregators - 1, ..Shape::of(counters) })?;
        series.found()?;
        series.link()?;
        series.catch_up()?;
        series.rest()?;
        places.push((series, Vec::new()));
    }
    for turn in 0..TURNS {
        for (aggregators, (series, spent)) in AGGREGATORS.iter().zip(&mut places) {
            let now = series.spends(plan.rate_or(PER_S), plan.seconds_or(LOAD_S))?;
            let nodes = now.nodes_us;
            let others = now.aggregator_us;
            errln!("turn {turn}: {nodes:.2} µs of nodes, {others:.2} µs of {aggregators} aggregators");
            spent.push(now);
        }
    }
    let mut samples = costs(&places);
    for (aggregators, (series, _)) in AGGREGATORS.iter().zip(&mut places) {
        series.rest()?;
        let most = series.cluster.largest_aggregator_mib();
        let what =
            Asked::cost(format!("memory of the largest of {aggregators} aggregators, which hold all twice"), "MiB");
        samples.extend(most.map(|mib| what.is(mib)));
        let read = reads::all(&mut series.cluster, plan, counters, &Promise::default())?;
        samples.extend(series.sums()?.into_iter().chain(read).map(|sample| of(sample, *aggregators)));
    }
    Ok(samples)
}

fn costs(places: &[(Series<'_>, Vec<Spent>)]) -> Vec<Sample> {
    let mut samples = Vec::new();
    for (aggregators, (_, spent)) in AGGREGATORS.iter().zip(places) {
        for spent in spent {
            let what = format!("CPU of an increment, nodes and {aggregators} aggregators");
            samples.push(Asked::cost(what, "µs").is(all_us(spent)));
            let what = format!("CPU of an increment, {aggregators} aggregators");
            samples.push(Asked::cost(what, "µs").is(spent.aggregator_us));
        }
    }
    let [(_, pair), (_, four)] = places else { return samples };
    let all =
        Asked::cost("CPU of an increment, four aggregators with half of the slots each to two with all, medians", "×");
    samples.push(all.must(GROWTH_MAX).is(typical(four, all_us) / typical(pair, all_us)));
    samples
}

fn of(mut sample: Sample, aggregators: usize) -> Sample {
    sample.figure.name = format!("{}, {aggregators} aggregators", sample.figure.name);
    sample
}
