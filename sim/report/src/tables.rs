//! The tables of a report, in Markdown: made of lines alone.

use super::charts::{fixed_part, into_centre, of, states_into_centre};
use super::costs::{KINDS, Kind};
use super::line::{RunLine, Section, TrafficLine};
use super::plans::{RATE, REFERENCE_CENTRES};
use super::words::{bytes, grouped, ms};

/// A table of cells, each row as long as the head.
pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let names: Vec<String> = head.iter().map(|&name| name.to_owned()).collect();
    let rule = format!("|{}\n", "---|".repeat(head.len()));
    let body: String = rows.iter().map(|row| line(row)).collect();
    format!("{}{rule}{body}", line(&names))
}

/// One row for each run of a section.
fn of_section(lines: &[RunLine], section: Section, head: &[&str], row: impl Fn(&RunLine) -> Vec<String>) -> String {
    let rows: Vec<Vec<String>> = of(lines, section).into_iter().map(row).collect();
    table(head, &rows)
}

/// How often `part` is in `whole`, with two digits behind the point.
pub fn times(part: u64, whole: u64) -> String {
    format!("{:.2}", part as f64 / whole.max(1) as f64)
}

/// The effect of the rate.
pub fn rates(lines: &[RunLine]) -> String {
    let head = [
        "increments/s",
        "L",
        "sequenced, median",
        "of L",
        "sequenced, most",
        "of L",
        "undecided at once, most",
        "award, median",
        "award, most",
        "beyond RTT + q, median",
        "most",
        "views equal after",
        "awards",
    ];
    of_section(lines, Section::Rates, &head, rate_row)
}

fn rate_row(line: &RunLine) -> Vec<String> {
    let mut row = vec![grouped(line.rate_per_s as f64), grouped(line.zone as f64)];
    row.extend(sequenced_cells(line));
    row.push(grouped(line.undecided_max as f64));
    row.extend(time_cells(line));
    row
}

fn sequenced_cells(line: &RunLine) -> [String; 4] {
    let (median, most) = line.sequenced();
    let cells = [(median, line.zone), (most, line.zone)].map(|(n, zone)| (grouped(n as f64), times(n, zone)));
    let [(median, median_part), (most, most_part)] = cells;
    [median, median_part, most, most_part]
}

fn time_cells(line: &RunLine) -> Vec<String> {
    let (all, beyond) = line.latencies_us();
    let mut cells = [all.0, all.1, beyond.0, beyond.1].map(ms).to_vec();
    cells.push(line.converged_us.map_or("not within a minute".to_owned(), ms));
    cells.push(format!("{} of {} exact", line.awards.iter().filter(|award| award.exact).count(), line.awards.len()));
    cells
}

/// Messages and bytes by kind, of the run at the reference rate.
pub fn kinds(lines: &[RunLine]) -> String {
    let head = [
        "kind",
        "inside: messages/s",
        "bytes/s",
        "per milestone: messages",
        "bytes",
        "between: messages/s",
        "bytes/s",
        "per milestone: messages",
        "bytes",
    ];
    let runs = of(lines, Section::Rates);
    let Some(line) = runs.iter().find(|line| line.rate_per_s == RATE).or(runs.first()) else { return String::new() };
    let rows: Vec<Vec<String>> = KINDS.iter().map(|&kind| kind_row(line, kind)).collect();
    table(&head, &rows)
}

fn kind_row(line: &RunLine, kind: Kind) -> Vec<String> {
    let mut row = vec![kind.name().to_owned()];
    for between in [false, true] {
        row.extend(volume_cells(line, line.traffic_of(kind, between)));
    }
    row
}

fn volume_cells(line: &RunLine, traffic: TrafficLine) -> [String; 4] {
    if traffic.quiet.plus(traffic.near).messages == 0 {
        return ["", "", "", ""].map(str::to_owned);
    }
    let per_s = |n: u64| n as f64 / line.quiet_s();
    let (messages, of_milestone) = line.per_milestone(&traffic);
    // Traffic that goes on all the time differs by chance between two stretches of time.
    let shown = |cell: String| if traffic.kind.is_of_milestones() { cell } else { String::new() };
    [
        grouped(per_s(traffic.quiet.messages)),
        bytes(per_s(traffic.quiet.bytes)),
        shown(grouped(messages)),
        shown(bytes(of_milestone)),
    ]
}

/// Bytes by kind at every rate.
pub fn traffic(lines: &[RunLine]) -> String {
    let runs = of(lines, Section::Rates);
    let rates: Vec<String> = runs.iter().map(|line| format!("{}/s", grouped(line.rate_per_s as f64))).collect();
    let head: Vec<&str> = std::iter::once("bytes").chain(rates.iter().map(String::as_str)).collect();
    let row = |name: &str, of: &dyn Fn(&RunLine) -> f64| -> Vec<String> {
        std::iter::once(name.to_owned()).chain(runs.iter().map(|line| bytes(of(line)))).collect()
    };
    let quiet = |kind: Kind, between: bool| {
        move |line: &RunLine| line.quiet_bytes_per_s(|traffic| traffic.kind == kind && traffic.between == between)
    };
    let whole = |kind: Kind, between: bool| move |line: &RunLine| line.per_milestone(&line.traffic_of(kind, between)).1;
    let rows = vec![
        row("per second: client → node, hits with sessions (computed)", &|l| {
            l.quiet_bytes_as_hits as f64 / l.quiet_s()
        }),
        row("per second: client → node, weights added up", &quiet(Kind::Increments, false)),
        row("per second: feed", &quiet(Kind::Feed, false)),
        row("per second, between: gossip of components", &quiet(Kind::Deltas, true)),
        row("per second, between: gossip of versions", &quiet(Kind::Digests, true)),
        row("per second, between: reports", &quiet(Kind::Reports, true)),
        row("per second, between: ledger's log", &quiet(Kind::Log, true)),
        row("per milestone, between: offers", &whole(Kind::Offers, true)),
        row("per milestone, between: ledger's log", &whole(Kind::Log, true)),
        row("per milestone, inside: offers", &whole(Kind::Offers, false)),
        row("per milestone, inside: placements", &whole(Kind::Placements, false)),
        row("per milestone, inside: accounts", &whole(Kind::Accounts, false)),
    ];
    table(&head, &rows)
}

/// The effect of the number of data centres.
pub fn centres(lines: &[RunLine]) -> String {
    let head = [
        "data centres",
        "sites",
        "q",
        "L",
        "sequenced, median",
        "of L",
        "sequenced, most",
        "of L",
        "award, median",
        "award, most",
        "beyond RTT + q, median",
        "most",
        "views equal after",
        "awards",
    ];
    let row = |line: &RunLine| {
        let sites = if line.measured_sites { "measured" } else { "synthetic globe" };
        let mut row = vec![line.centres.to_string(), sites.to_owned(), ms(line.quorum_us), grouped(line.zone as f64)];
        row.extend(sequenced_cells(line));
        row.extend(time_cells(line));
        row
    };
    of_section(lines, Section::Centres, &head, row)
}

/// Bytes into one data centre by number of data centres.
pub fn centres_traffic(lines: &[RunLine]) -> String {
    let kinds = [Kind::Deltas, Kind::Digests, Kind::Log, Kind::Reports];
    let names = kinds.map(Kind::name);
    let head: Vec<&str> =
        ["data centres"].into_iter().chain(names).chain(["all", "all, in the whole cluster"]).collect();
    let row = |line: &RunLine| {
        let into = |kind: Kind| bytes(into_centre(line, |traffic| traffic.kind == kind));
        let all = into_centre(line, |_| true);
        let ends = [bytes(all), bytes(all * line.centres as f64)];
        [line.centres.to_string()].into_iter().chain(kinds.map(into)).chain(ends).collect()
    };
    of_section(lines, Section::Centres, &head, row)
}

/// Whole states against deltas.
pub fn states(lines: &[RunLine]) -> String {
    let head = [
        "counters in every data centre",
        "deltas and digests",
        "of these deltas",
        "per sending peer",
        "the own state whole",
        "every state whole",
        "per sending peer",
    ];
    let row = |line: &RunLine| {
        let others = (line.centres - 1) as f64;
        let told = into_centre(line, |traffic| matches!(traffic.kind, Kind::Deltas | Kind::Digests));
        let deltas = into_centre(line, |traffic| traffic.kind == Kind::Deltas);
        let (every, own) = states_into_centre(line);
        let cells = [told, deltas, told / others, own, every, every / others];
        [grouped(f64::from(line.cold_counters))].into_iter().chain(cells.map(bytes)).collect()
    };
    of_section(lines, Section::Cells, &head, row)
}

/// Rights against a fixed last part, by size of the milestone.
pub fn milestones(lines: &[RunLine]) -> String {
    let head = [
        "milestone",
        "rights: sequenced",
        "of L",
        "messages between",
        "bytes between",
        "last 1 %: sequenced",
        "of L",
        "messages between",
        "bytes between",
        "its share is",
    ];
    let fixed = of(lines, Section::Fixed);
    let row = |line: &RunLine| {
        let (messages, size) = of_milestone(line);
        let (sequenced, _) = line.sequenced();
        let mut row = vec![grouped(line.milestone as f64), grouped(sequenced as f64), times(sequenced, line.zone)];
        row.extend([grouped(messages), bytes(size)]);
        row.extend(fixed_cells(line, &fixed));
        row
    };
    of_section(lines, Section::Rights, &head, row)
}

/// (messages, bytes) between data centres for the sake of one milestone.
pub fn of_milestone(line: &RunLine) -> (f64, f64) {
    let said = line.traffic.iter().filter(|traffic| traffic.between && traffic.kind.is_of_milestones());
    said.map(|traffic| line.per_milestone(traffic)).fold((0.0, 0.0), |sum, part| (sum.0 + part.0, sum.1 + part.1))
}

/// Measured where it was run; beyond, in proportion to the largest that was.
fn fixed_cells(line: &RunLine, fixed: &[&RunLine]) -> Vec<String> {
    let measured = fixed.iter().find(|run| run.milestone == line.milestone);
    let Some(known) = measured.or(fixed.last()) else { return vec![String::new(); 5] };
    let (messages, size) = of_milestone(known);
    let factor = line.milestone as f64 / known.milestone as f64;
    let (sequenced, how) = match measured {
        Some(run) => (run.sequenced().0, "measured"),
        None => (fixed_part(line.milestone), "computed"),
    };
    let of_zone = grouped(sequenced as f64 / line.zone.max(1) as f64);
    let cells = [grouped(sequenced as f64), of_zone, grouped(messages * factor), bytes(size * factor), how.to_owned()];
    cells.to_vec()
}

/// The least and the most of something over the runs of a section, as said in a sentence.
pub fn range(lines: &[RunLine], section: Section, of_line: impl Fn(&RunLine) -> f64) -> (f64, f64) {
    let values = of(lines, section).into_iter().map(of_line);
    values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)))
}

/// The reference layout in words.
pub fn reference() -> String {
    format!("{REFERENCE_CENTRES} data centres and {} increments/s", grouped(RATE as f64))
}
