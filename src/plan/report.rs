//! A plan as text: a table for people, one line of JSON for programs.

use std::fmt::Write as _;

use super::capacity::{DcPlan, LedgerPlan, Plan};

/// One line of JSON with every field of the plan.
pub fn json(plan: &Plan) -> String {
    serde_json::to_string(plan).expect("a plan is plain data")
}

/// A table of the cluster, its ledger and each data centre.
pub fn table(plan: &Plan) -> String {
    let mut out = String::new();
    section(&mut out, "cluster", &cluster(plan));
    section(&mut out, "between data centres", &network(plan));
    section(&mut out, "ledger", &ledger(&plan.ledger));
    for other in &plan.ledger_alternatives {
        section(&mut out, "ledger, by another rule", &ledger(other));
    }
    data_centres(&mut out, &plan.dc);
    out
}

type Line = (&'static str, String);

fn section(out: &mut String, title: &str, lines: &[Line]) {
    push(out, format_args!("{title}"));
    for (name, value) in lines {
        push(out, format_args!("  {name:<34}{value}"));
    }
    out.push('\n');
}

fn push(out: &mut String, line: std::fmt::Arguments<'_>) {
    writeln!(out, "{line}").expect("writing to a string cannot fail");
}

fn cluster(plan: &Plan) -> Vec<Line> {
    vec![
        ("data centres, nodes, valves", format!("{}, {}, {}", plan.dcs, plan.nodes, plan.valves)),
        ("increments", format!("{}/s", grouped(plan.rate_per_s))),
        ("state of one spread counter", format!("{} B", grouped(plan.counter_state_bytes as f64))),
        ("the same with ids", format!("{} B", grouped(plan.counter_state_with_ids_bytes as f64))),
        ("client batches", format!("{}/s", grouped(plan.client_batches_per_s))),
        ("durable commits", format!("{}/s", grouped(plan.commits_per_s))),
        ("log, all nodes", per_second(plan.log_bytes_per_s)),
        ("feed, inside data centres", per_second(plan.feed_bytes_per_s)),
        ("aggregator memory for cells", aggregator(plan)),
        ("nodes", money(plan, plan.node_price_per_month)),
    ]
}

fn aggregator(plan: &Plan) -> String {
    let least = plan.aggregator_bytes_min as f64;
    let most = plan.aggregator_bytes as f64;
    format!("{} to {}", bytes(least), bytes(most))
}

fn network(plan: &Plan) -> Vec<Line> {
    vec![
        ("gossip, deltas", per_second(plan.wan_delta_bytes_per_s)),
        ("gossip, digests", per_second(plan.wan_digest_bytes_per_s)),
        ("a month", format!("{:.1} GB", plan.wan_gb_per_month)),
        ("transfer", money(plan, plan.transfer_price_per_month)),
    ]
}

fn ledger(ledger: &LedgerPlan) -> Vec<Line> {
    let without = ledger.zone_without_leader.map_or("none".to_owned(), grouped);
    vec![
        ("rule", ledger.rule.clone()),
        ("voters", ledger.voters.join(" ")),
        ("leader", ledger.leader.clone()),
        ("quorum round trip q", format!("{:.1} ms", ledger.quorum_ms)),
        ("sum of r x RTT", grouped(ledger.increments_in_flight)),
        ("zone L = sum of r x (RTT + q)", grouped(ledger.zone)),
        ("zone without the leader's DC", without),
        ("sequenced, expected and limit", sequenced(ledger)),
        (
            "award, aim: mean and worst DC",
            format!("{:.0} and {:.0} ms", ledger.award_aim_ms, ledger.award_aim_ms_worst),
        ),
        ("award, limit: worst DC", format!("{:.0} ms", ledger.award_limit_ms_worst)),
    ]
}

fn sequenced(ledger: &LedgerPlan) -> String {
    format!("{} and {}", grouped(ledger.sequenced_expected), grouped(ledger.sequenced_limit))
}

fn data_centres(out: &mut String, dcs: &[DcPlan]) {
    let width = dcs.iter().map(|dc| dc.name.len()).max().unwrap_or(0).max(11);
    push(
        out,
        format_args!(
            "{:<width$} {:>9} {:>5} {:>9} {:>9} {:>9} {:>8} {:>8} {:>9}",
            "data centre", "incr/s", "nodes", "batches/s", "commits/s", "log/day", "RTT ms", "award ms", "limit ms"
        ),
    );
    for dc in dcs {
        data_centre(out, dc, width);
    }
}

/// Commits and log are those of one node.
fn data_centre(out: &mut String, dc: &DcPlan, width: usize) {
    push(
        out,
        format_args!(
            "{:<width$} {:>9} {:>5} {:>9} {:>9} {:>6.1} GB {:>8.1} {:>8.0} {:>9.0}",
            dc.name,
            grouped(dc.rate_per_s),
            dc.nodes,
            grouped(dc.client_batches_per_s),
            grouped(dc.commits_per_s_per_node),
            dc.log_gb_per_day_per_node,
            dc.leader_rtt_ms,
            dc.award_aim_ms,
            dc.award_limit_ms
        ),
    );
}

fn money(plan: &Plan, amount: f64) -> String {
    format!("{amount:.2} {} a month", plan.currency)
}

fn per_second(value: f64) -> String {
    format!("{}/s", bytes(value))
}

fn bytes(value: f64) -> String {
    let units = [(1e9, "GB"), (1e6, "MB"), (1e3, "KB")];
    match units.iter().find(|(size, _)| value >= *size) {
        Some((size, unit)) => format!("{:.1} {unit}", value / size),
        None => format!("{value:.0} B"),
    }
}

/// A number rounded to a whole one, its digits in groups of three.
fn grouped(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::capacity::tests::plan_of;
    use super::super::input::tests::SAMPLE;
    use super::*;

    #[test]
    fn digits_are_grouped() {
        assert_eq!(grouped(0.0), "0");
        assert_eq!(grouped(999.4), "999");
        assert_eq!(grouped(1_000.0), "1,000");
        assert_eq!(grouped(1_234_567.0), "1,234,567");
    }

    #[test]
    fn bytes_have_units_of_ten() {
        assert_eq!(bytes(999.0), "999 B");
        assert_eq!(bytes(1_500.0), "1.5 KB");
        assert_eq!(bytes(2.5e9), "2.5 GB");
    }

    #[test]
    fn every_data_centre_has_a_row_and_the_json_one_line() {
        let plan = plan_of(SAMPLE).unwrap();
        let text = table(&plan);
        for dc in &plan.dc {
            assert!(text.lines().any(|line| line.starts_with(&format!("{} ", dc.name))), "{}", dc.name);
        }
        assert_eq!(json(&plan).lines().count(), 1);
    }
}
