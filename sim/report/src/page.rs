//! `costs.md`: the tables, the plots, and what can be read from them, made of lines alone.

use super::charts::{self, into_centre, of};
use super::costs::Kind;
use super::globe::Calibration;
use super::line::{RunLine, Section};
use super::tables;
use super::words::{bytes, grouped, ms};

/// A file of a report, by its path beside the page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    pub path: String,
    pub text: String,
}

/// The page, its plots, and the lines that they were made of.
pub fn files(lines: &[RunLine], json: &str) -> Vec<File> {
    let plots = charts::plots(lines).into_iter();
    let plots = plots.map(|plot| File { path: format!("costs/{}", plot.file), text: plot.chart.svg() });
    let page = File { path: "costs.md".to_owned(), text: page(lines) };
    let kept = File { path: "costs.json".to_owned(), text: json.to_owned() };
    [page, kept].into_iter().chain(plots).collect()
}

fn page(lines: &[RunLine]) -> String {
    let parts = [head(lines), by_rate(lines), by_kind(lines), by_centres(lines), by_cells(lines), by_size(lines)];
    parts.concat()
}

fn plot(file: &str, words: &str) -> String {
    format!("![{words}](costs/{file})\n\n")
}

fn head(lines: &[RunLine]) -> String {
    let line = Calibration::of_reference();
    let seed = lines.first().map_or(0, |line| line.seed);
    format!(
        "# What the protocol costs

Made by

    tidemark sim report --out docs

from runs of the shipped core (the machines of `proto`: groups, aggregators, ledger) in virtual time, without faults, seed {seed}. The
same seed gives this page again, byte for byte; `tidemark sim report --from docs/costs.json --out docs` makes it from the numbers beside
it. No number depends on the machine: times are those of the network and of the protocol's own waits, not of processors.

A number is *measured* unless it is marked as *computed*. Measured messages are encoded by the real encoder and counted when they are sent.
They exclude the headers of QUIC, TLS, IP and Raft, acknowledgements, heartbeats, and pushes to browsers. A computed number follows from
measured ones by a formula in the text.

* **Network.** It only delays: half a round trip one way. A disk needs 2 ms to make something durable. Round trips are measured for 3, 5 and
  15 data centres. For more they are {base} ms + {per_km} µs for each km of the great circle between sites in the four regions. This line
  through the 105 measured pairs explains {explained} % of their variance.
* **Increments.** 40 % come from the USA, 30 % from Europe, 20 % from Asia and 10 % from South America. Ten front ends per data centre flush
  every 15 ms. Runs by size of the milestone and with 200 data centres have one front end per data centre; the latter run has only a second
  far from its milestone. One counter has milestones. The arrivals of a flush are a random count (Poisson).
* **Weights.** Increments that surely fit a group's rights go as one weighted increment. Rights, reports, feed and gossip treat it as
  many increments of weight 1. Increments that may queue go one by one, each with its session, so queues, offers, placements and awards are
  realistic. In all runs {weighted} weighted increments had to wait, and {refused} batches were refused.

q is the quorum round trip. L = Σ r·(RTT + q) is the number of increments that arrive while the decisive exchange is under way. *Near* a
milestone is from 2 s before it is due until 1 s after its award. The cost of a milestone is the traffic in that time, less the traffic of
an equal time far from a milestone. Of several milestones the first, before rates are known, is left out.

",
        base = grouped(line.base_us / 1e3),
        per_km = grouped(line.us_per_km),
        explained = grouped(line.explained * 100.0),
        weighted = lines.iter().map(|line| line.weighted_queued).sum::<u64>(),
        refused = lines.iter().map(|line| line.refused).sum::<u64>(),
    )
}

fn part_of_zone(line: &RunLine) -> f64 {
    line.sequenced().0 as f64 / line.zone.max(1) as f64
}

fn by_rate(lines: &[RunLine]) -> String {
    let bounded = |line: &&RunLine| line.undecided_max < tidemark_proto::limits::UNDECIDED_ITEMS_MAX;
    let within: Vec<RunLine> = of(lines, Section::Rates).into_iter().filter(bounded).cloned().collect();
    let (low, high) = tables::range(&within, Section::Rates, part_of_zone);
    let (_, slowest) = tables::range(&within, Section::Rates, |line| line.latencies_us().1.0 as f64);
    let over: Vec<&RunLine> = of(lines, Section::Rates).into_iter().filter(|line| !bounded(line)).collect();
    let limit = match over.first() {
        None => String::new(),
        Some(line) => format!(
            "At {rate} increments/s a limit is met: more than {max} increments wait for a decision at once (`UNDECIDED_ITEMS_MAX`). Further offers are\n\
             refused and repeated, and {part:.2} × L are sequenced. The award is exact all the same.\n\n",
            rate = grouped(line.rate_per_s as f64),
            max = grouped(tidemark_proto::limits::UNDECIDED_ITEMS_MAX as f64),
            part = part_of_zone(line),
        ),
    };
    format!(
        "## By rate, {reference}\n\n{table}\n{sequenced}\
         The number of sequenced increments grows with the rate and stays at {low:.2} to {high:.2} × L (medians); the claim is 1.5. It does not\n\
         depend on the count before.\n\n{limit}{latency}\
         The winner's data centre knows an award RTT + q after the winner's apply and, in the median, at most {slowest} later. In that time reports\n\
         and offers gather (10 ms at each end), half of a group's commit interval passes, and the winner waits for the increments before it.\n\n",
        reference = "15 data centres",
        table = tables::rates(lines),
        sequenced = plot("sequenced.svg", "Increments sequenced per milestone as a multiple of L, over the rate"),
        latency = plot("latency.svg", "Award latency over the rate, beyond RTT + q and all of it"),
        slowest = ms(slowest as u64),
    )
}

fn by_kind(lines: &[RunLine]) -> String {
    let runs = of(lines, Section::Rates);
    let grows = match (runs.first(), runs.last()) {
        (Some(first), Some(last)) => {
            let between = |line: &RunLine| line.quiet_bytes_per_s(|traffic| traffic.between);
            format!(
                "From {} to {} increments/s the bytes between data centres far from a milestone go from {} to {} per second. Gossip sends\n\
                 changed components, and at the lowest rate every component changes in every interval already. Inside a data centre only the traffic from the front ends\n\
                 grows, and only if increments carry sessions.\n\n",
                grouped(first.rate_per_s as f64),
                grouped(last.rate_per_s as f64),
                bytes(between(first)),
                bytes(between(last)),
            )
        }
        _ => String::new(),
    };
    format!(
        "## Messages and bytes by kind\n\nAt {reference}; *inside* data centres and *between* them, in the whole cluster.\n\n{kinds}\n\
         The same at every rate, bytes:\n\n{traffic}\n{plot}{grows}",
        reference = tables::reference(),
        kinds = tables::kinds(lines),
        traffic = tables::traffic(lines),
        plot = plot("traffic.svg", "Bytes per second by kind over the rate"),
    )
}

fn by_centres(lines: &[RunLine]) -> String {
    let runs = of(lines, Section::Centres);
    let reading = match runs.last() {
        None => String::new(),
        Some(last) => {
            let of_kind = |kind: Kind| into_centre(last, |traffic| traffic.kind == kind);
            format!(
                "With {n} data centres {digests} of the {all} per second into each are versions and {log} are the ledger's log. A digest names every data\n\
                 centre and goes to every peer. So in the whole cluster gossip of versions grows with the cube of the number of data centres, gossip of\n\
                 components and the log with the square. The number of sequenced increments depends only on L. `DCS_MAX` is {max}.\n\n",
                n = last.centres,
                digests = bytes(of_kind(Kind::Digests)),
                all = bytes(into_centre(last, |_| true)),
                log = bytes(of_kind(Kind::Log)),
                max = tidemark_proto::limits::DCS_MAX,
            )
        }
    };
    format!(
        "## By number of data centres, {rate} increments/s\n\n{table}\n{times}Bytes per second into one data centre from the others, far from a milestone:\n\n\
         {traffic}\n{plot}{reading}",
        rate = grouped(super::plans::RATE as f64),
        table = tables::centres(lines),
        times = plot("centres-times.svg", "Award latency, convergence and q over the number of data centres"),
        traffic = tables::centres_traffic(lines),
        plot = plot("centres.svg", "Bytes per second into one data centre over their number, by kind"),
    )
}

fn by_cells(lines: &[RunLine]) -> String {
    let runs = of(lines, Section::Cells);
    let reading = runs.last().map_or(String::new(), |line| {
        let told = into_centre(line, |traffic| matches!(traffic.kind, Kind::Deltas | Kind::Digests));
        let (every, own) = charts::states_into_centre(line);
        format!(
            "With {} counters a data centre receives {} per second. Whole states would be {:.0} times as much for the own states and {:.0} times for\n\
             every state. With few counters, which all change in every interval, deltas are states, and digests are most of the gossip.\n\n",
            grouped(f64::from(line.cold_counters)),
            bytes(told),
            own / told,
            every / told,
        )
    });
    format!(
        "## Whole states, or deltas\n\nBeside the counter with milestones, each of the 150 front ends adds to one of the cold counters in every flush. The table has bytes per\n\
         second into one data centre. Deltas and digests are measured. Whole states are computed: the size of all components that an aggregator of the same run has\n\
         (of its own data centre, or of all), encoded by the same encoder, with known names, times the 14 others, 5 times a second.\n\n{table}\n{plot}{reading}",
        table = tables::states(lines),
        plot = plot(
            "states.svg",
            "Bytes per second into one data centre over the number of counters: deltas, own states, all states"
        ),
    )
}

fn by_size(lines: &[RunLine]) -> String {
    let (low, high) = tables::range(lines, Section::Rights, part_of_zone);
    let largest = of(lines, Section::Rights).last().map_or(String::new(), |line| {
        let fixed = charts::fixed_part(line.milestone);
        format!(
            "For every size of the milestone {low:.2} to {high:.2} × L are sequenced. The last percent of a milestone at {} would be {}, {} times as many.\n",
            grouped(line.milestone as f64),
            grouped(fixed as f64),
            grouped(fixed as f64 / line.sequenced().0.max(1) as f64),
        )
    });
    format!(
        "## By size of the milestone: rights, or a fixed last percent\n\nAt {reference}. A run with rights begins at most 300 s before the milestone is due. Rights are granted for an\n\
         eighth of the remaining time and at most 30 s, so an earlier beginning changes nothing. The fixed last percent is `sequence_from`. A measured\n\
         one ran from its beginning. A computed one has a hundredth of the milestone as increments, and messages and bytes in proportion to the\n\
         largest measured one. Messages and bytes are those between data centres for the milestone: reports, offers, recalls, the ledger's log. One award each.\n\n\
         {table}\n{plot}{largest}",
        reference = tables::reference(),
        table = tables::milestones(lines),
        plot = plot(
            "milestones.svg",
            "Increments sequenced over the size of the milestone: rights, a fixed last percent, L"
        ),
    )
}
