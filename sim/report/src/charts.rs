//! The plots of a report: which numbers of which runs stand over which.

use super::costs::Kind;
use super::line::{RunLine, Section, TrafficLine};
use super::plans::{FIXED_PART, RATE, REFERENCE_CENTRES};
use super::svg::{Axis, Chart, Series, Stroke, Tick};

/// A plot and the name of its file.
pub struct Plot {
    pub file: &'static str,
    pub chart: Chart,
}

/// All plots that the lines suffice for.
pub fn plots(lines: &[RunLine]) -> Vec<Plot> {
    let rates = of(lines, Section::Rates);
    let centres = of(lines, Section::Centres);
    let cells = of(lines, Section::Cells);
    let rights = of(lines, Section::Rights);
    let mut plots = Vec::new();
    if !rates.is_empty() {
        plots.push(Plot { file: "sequenced.svg", chart: sequenced(&rates) });
        plots.push(Plot { file: "latency.svg", chart: latency(&rates) });
        plots.push(Plot { file: "traffic.svg", chart: traffic(&rates) });
    }
    if !centres.is_empty() {
        plots.push(Plot { file: "centres.svg", chart: by_centres(&centres) });
        plots.push(Plot { file: "centres-times.svg", chart: times_by_centres(&centres) });
    }
    if !cells.is_empty() {
        plots.push(Plot { file: "states.svg", chart: states(&cells) });
    }
    if !rights.is_empty() {
        plots.push(Plot { file: "milestones.svg", chart: milestones(&rights, &of(lines, Section::Fixed)) });
    }
    plots
}

/// The runs of one section, in their order.
pub fn of(lines: &[RunLine], section: Section) -> Vec<&RunLine> {
    lines.iter().filter(|line| line.section == section).collect()
}

/// Bytes per second into one data centre from the others, far from a milestone.
pub fn into_centre(line: &RunLine, of: impl Fn(&TrafficLine) -> bool) -> f64 {
    line.quiet_bytes_per_s(|traffic| traffic.between && of(traffic)) / line.centres as f64
}

/// Bytes per second into one data centre, if every other one told all that it holds, or all of its own, at every interval.
pub fn states_into_centre(line: &RunLine) -> (f64, f64) {
    let others = (line.centres - 1) as f64 * 1e6 / line.gossip_interval_us as f64;
    (line.full_state_bytes as f64 * others, line.own_state_bytes as f64 * others)
}

/// The sequenced increments of a fixed last part: the part itself, computed.
pub fn fixed_part(milestone: u64) -> u64 {
    milestone / FIXED_PART
}

fn series(name: &str, stroke: Stroke, points: impl Iterator<Item = (f64, f64)>) -> Series {
    // A logarithmic axis has no place for nothing.
    Series { name: name.to_owned(), stroke, points: points.filter(|&(_, y)| y > 0.0).collect() }
}

/// The value over a run.
type Height<'a> = &'a dyn Fn(&RunLine) -> f64;

fn along<'a>(lines: &'a [&RunLine], x: fn(&RunLine) -> f64) -> impl Fn(&str, Stroke, Height) -> Series + 'a {
    move |name, stroke, y| series(name, stroke, lines.iter().map(|line| (x(line), y(line))))
}

fn ms(us: u64) -> f64 {
    us as f64 / 1e3
}

fn rate_axis() -> Axis {
    Axis::new("increments per second in all data centres", true, Tick::Whole)
}

fn sequenced(rates: &[&RunLine]) -> Chart {
    let along = along(rates, |line| line.rate_per_s as f64);
    let of_zone = |count: u64, line: &RunLine| count as f64 / line.zone.max(1) as f64;
    Chart {
        title: "Increments sequenced per milestone, as a multiple of L".to_owned(),
        x: rate_axis(),
        y: Axis::new("sequenced ÷ L, where L = Σ r·(RTT + q)", false, Tick::Number),
        ticks_at_points: true,
        series: vec![
            along("median", Stroke::Solid, &|line| of_zone(line.sequenced().0, line)),
            along("most", Stroke::Marks, &|line| of_zone(line.sequenced().1, line)),
            along("L", Stroke::Dashed, &|_| 1.0),
            along("the claim, 1.5 × L", Stroke::Dashed, &|_| 1.5),
        ],
    }
}

fn latency(rates: &[&RunLine]) -> Chart {
    let along = along(rates, |line| line.rate_per_s as f64);
    Chart {
        title: "Award latency beyond RTT + q, from the winner's apply".to_owned(),
        x: rate_axis(),
        y: Axis::new("milliseconds", false, Tick::Number),
        ticks_at_points: true,
        series: vec![
            along("beyond RTT + q, median", Stroke::Solid, &|line| ms(line.latencies_us().1.0)),
            along("beyond RTT + q, most", Stroke::Marks, &|line| ms(line.latencies_us().1.1)),
            along("all of it, median", Stroke::Solid, &|line| ms(line.latencies_us().0.0)),
        ],
    }
}

fn traffic(rates: &[&RunLine]) -> Chart {
    let along = along(rates, |line| line.rate_per_s as f64);
    let between = |kinds: &'static [Kind]| {
        move |line: &RunLine| line.quiet_bytes_per_s(|traffic| traffic.between && kinds.contains(&traffic.kind))
    };
    Chart {
        title: "Bytes per second far from a milestone".to_owned(),
        x: rate_axis(),
        y: Axis::new("bytes per second, in all", true, Tick::Bytes),
        ticks_at_points: true,
        series: vec![
            along("client → node, hits with sessions", Stroke::Solid, &|line| {
                line.quiet_bytes_as_hits as f64 / line.quiet_s()
            }),
            along("client → node, weights added up", Stroke::Solid, &|line| {
                line.quiet_bytes_per_s(|traffic| traffic.kind == Kind::Increments)
            }),
            along("feed", Stroke::Solid, &|line| line.quiet_bytes_per_s(|traffic| traffic.kind == Kind::Feed)),
            along("between: gossip", Stroke::Solid, &between(&[Kind::Deltas, Kind::Digests])),
            along("between: ledger's log", Stroke::Solid, &between(&[Kind::Log])),
            along("between: reports", Stroke::Solid, &between(&[Kind::Reports])),
        ],
    }
}

fn centres_axis() -> Axis {
    Axis::new("data centres", true, Tick::Number)
}

fn by_centres(centres: &[&RunLine]) -> Chart {
    let along = along(centres, |line| line.centres as f64);
    let into = |kind: Kind| move |line: &RunLine| into_centre(line, |traffic| traffic.kind == kind);
    Chart {
        title: "Into one data centre, far from a milestone".to_owned(),
        x: centres_axis(),
        y: Axis::new("bytes per second from all other data centres", true, Tick::Bytes),
        ticks_at_points: true,
        series: vec![
            along("all", Stroke::Solid, &|line| into_centre(line, |_| true)),
            along("gossip of components", Stroke::Solid, &into(Kind::Deltas)),
            along("gossip of versions", Stroke::Solid, &into(Kind::Digests)),
            along("ledger's log", Stroke::Solid, &into(Kind::Log)),
        ],
    }
}

fn times_by_centres(centres: &[&RunLine]) -> Chart {
    let along = along(centres, |line| line.centres as f64);
    Chart {
        title: "Times by number of data centres".to_owned(),
        x: centres_axis(),
        y: Axis::new("milliseconds", false, Tick::Number),
        ticks_at_points: true,
        series: vec![
            along("all views equal after the last increment", Stroke::Solid, &|line| line.converged_us.map_or(0.0, ms)),
            along("award, median", Stroke::Solid, &|line| ms(line.latencies_us().0.0)),
            along("award beyond RTT + q, median", Stroke::Solid, &|line| ms(line.latencies_us().1.0)),
            along("q", Stroke::Dashed, &|line| ms(line.quorum_us)),
        ],
    }
}

fn states(cells: &[&RunLine]) -> Chart {
    let along = along(cells, |line| f64::from(line.cold_counters));
    let gossip = |traffic: &TrafficLine| matches!(traffic.kind, Kind::Deltas | Kind::Digests);
    Chart {
        title: format!("Whole states against deltas, {REFERENCE_CENTRES} data centres"),
        x: Axis::new("counters that every data centre has touched", true, Tick::Number),
        y: Axis::new("bytes per second into one data centre", true, Tick::Bytes),
        ticks_at_points: true,
        series: vec![
            along("deltas and digests (measured)", Stroke::Solid, &|line| into_centre(line, gossip)),
            along("every state whole, 5 times a second", Stroke::Solid, &|line| states_into_centre(line).0),
            along("the own state whole", Stroke::Solid, &|line| states_into_centre(line).1),
        ],
    }
}

fn milestones(rights: &[&RunLine], fixed: &[&RunLine]) -> Chart {
    let points = |lines: &[&RunLine]| -> Vec<(f64, f64)> {
        lines.iter().map(|line| (line.milestone as f64, line.sequenced().0 as f64)).collect()
    };
    let computed = rights.iter().map(|line| (line.milestone as f64, fixed_part(line.milestone) as f64));
    let zone = rights.iter().map(|line| (line.milestone as f64, line.zone as f64));
    Chart {
        title: format!("Sequenced by size of the milestone, {} increments/s", super::words::grouped(RATE as f64)),
        x: Axis::new("milestone", true, Tick::Number),
        y: Axis::new("increments sequenced", true, Tick::Number),
        ticks_at_points: true,
        series: vec![
            series("rights (measured)", Stroke::Solid, points(rights).into_iter()),
            series("last 1 % (measured)", Stroke::Marks, points(fixed).into_iter()),
            series("last 1 % (computed)", Stroke::Dashed, computed),
            series("L", Stroke::Dashed, zone),
        ],
    }
}
