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
it. Nothing here depends on the machine: times are those of the network and of the protocol's own waits, not of processors.

*Measured* is everything that is not marked as computed: messages are the real ones, encoded by the real encoder, and counted when they
are sent. Not in them are the heads of QUIC, TLS and IP, Raft's own heads, acknowledgements and heartbeats, and pushes to browsers.
*Computed* is what is derived from measured numbers by a formula that the text gives.

The network only delays: half a round trip one way, 2 ms for a disk to make something durable. Round trips are the measured ones for 3, 5
and 15 data centres, and for more {base} ms + {per_km} µs for each km of the great circle between sites drawn in the four regions (a line
through the 105 measured pairs, which explains {explained} % of their variance). Increments: 40 % USA, 30 % Europe, 20 % Asia, 10 % South America, ten front
ends per data centre that flush every 15 ms (one for the sizes of milestones and where there are 200 data centres, whose run has only a second far from
its milestone), one counter with milestones. What arrives is drawn
as a count per flush (Poisson). What a group has rights for anyway goes as one weighted increment, which rights, reports, feed and gossip
cannot tell from as many of one each; what it may have to queue goes one by one, each with its session, so that queues, offers, placements and
awards are what they would be. Of the weighted ones {weighted} had to wait, and {refused} batches were refused, in all runs.

q is the quorum round trip; L = Σ r·(RTT + q) is what arrives while the decisive exchange is under way. *Near* a milestone is from 2 s before
it is due until 1 s after its award; what a milestone costs is what is sent then beyond what is sent in as much time far from one. Where
several milestones were awarded, the first, before rates are known, is left out.

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
            "At {rate} increments/s a limit is met: more than {max} increments wait for a decision at once (`UNDECIDED_ITEMS_MAX`), what is offered beyond is not\n\
             taken and offered again, and {part:.2} × L are sequenced. The award is exact all the same.\n\n",
            rate = grouped(line.rate_per_s as f64),
            max = grouped(tidemark_proto::limits::UNDECIDED_ITEMS_MAX as f64),
            part = part_of_zone(line),
        ),
    };
    format!(
        "## By rate, {reference}\n\n{table}\n{sequenced}\
         The number of increments that are sequenced grows with the rate and stays at {low:.2} to {high:.2} × L (medians): the claim is 1.5. \
         How many were\ncounted before does not enter.\n\n{limit}{latency}\
         An award is known where it was won RTT + q after the winner's apply and, in the median, at most {slowest} later: that is how\n\
         long reports and offers gather on their way (10 ms at each end), half of a group's commit interval, and what the winner waits for those before it.\n\n",
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
                "From {} to {} increments/s the bytes between data centres far from a milestone go from {} to {} per second: what is told is\n\
                 which components changed, and every one changes in every interval already. Inside a data centre the way from the front ends is all that grows, and only where\n\
                 increments carry sessions.\n\n",
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
                "With {n} data centres {digests} of the {all} per second into each are versions and {log} are the ledger's log: a digest names every data\n\
                 centre and goes to every peer, so gossip of versions grows with the cube of their number in the whole cluster, gossip of components and\n\
                 the log with the square. What is sequenced does not depend on the number, only on L. `DCS_MAX` is {max}.\n\n",
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
            "With {} counters a data centre takes in {} per second; told whole it would be {:.0} times as much for the own states and {:.0} times for\n\
             every state. With few counters, all of which change in every interval, deltas are states, and digests are what gossip costs.\n\n",
            grouped(f64::from(line.cold_counters)),
            bytes(told),
            own / told,
            every / told,
        )
    });
    format!(
        "## States told whole, or deltas\n\nBeside the counter with milestones each of the 150 front ends adds to one of so many cold counters in every flush. Bytes per second\n\
         into one data centre: ours measured; the others are the size of all components that an aggregator of that very run holds (of its own data centre,\n\
         or of all), encoded by the same encoder, names known, times the 14 others, 5 times a second (computed).\n\n{table}\n{plot}{reading}",
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
            "Whatever the size of the milestone, {low:.2} to {high:.2} × L are sequenced; of a milestone at {} the last percent would be {}, {} times as many.\n",
            grouped(line.milestone as f64),
            grouped(fixed as f64),
            grouped(fixed as f64 / line.sequenced().0.max(1) as f64),
        )
    });
    format!(
        "## By size of the milestone: rights, or a fixed last percent\n\nAt {reference}. With rights the run begins at most 300 s before the milestone is due: rights are granted\n\
         an eighth of the remaining time ahead and at most 30 s, so that further off nothing would differ. The fixed last percent is `sequence_from`; where it was\n\
         run, it was run from its beginning, else it is computed: increments are a hundredth of the milestone, messages and bytes grow in proportion from the\n\
         largest that was run. Messages and bytes are those between data centres for the sake of the milestone (reports, offers, recalls, ledger's log). One award each.\n\n\
         {table}\n{plot}{largest}",
        reference = tables::reference(),
        table = tables::milestones(lines),
        plot = plot(
            "milestones.svg",
            "Increments sequenced over the size of the milestone: rights, a fixed last percent, L"
        ),
    )
}
