//! The metrics of `/metrics`: unit and help text of each, and the gauges of the processes that this process reaches.

use metrics::Unit;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tidemark_aggregator::{Aggregator, LedgerStanding};
use tidemark_node::Statuses;

/// A metric, its unit and what it says.
struct Described {
    name: &'static str,
    unit: Unit,
    help: &'static str,
}

const fn described(name: &'static str, unit: Unit, help: &'static str) -> Described {
    Described { name, unit, help }
}

/// Set when `/metrics` is asked for.
const GAUGES: [Described; 35] = [
    described("tidemark_ready", Unit::Count, "1 while /readyz answers 200."),
    described("tidemark_peer_up", Unit::Count, "1 while the aggregator `peer` is connected."),
    described("tidemark_ledger_has_leader", Unit::Count, "1 while the ledger's leader is reached and can decide."),
    described("tidemark_ledger_voters", Unit::Count, "Voters of the ledger."),
    described(
        "tidemark_ledger_voters_reachable",
        Unit::Count,
        "Reachable voters of the ledger, this process included.",
    ),
    described("tidemark_ledger_caught_up", Unit::Count, "1 once the ledger's log was applied here since the start."),
    described("tidemark_group_serving", Unit::Count, "1 while `group` takes increments."),
    described(
        "tidemark_feed_connected",
        Unit::Count,
        "1 while `group` of this data centre is connected to this aggregator.",
    ),
    described("tidemark_view_behind_entries", Unit::Count, "Entries of the log of `group` that are not in the view."),
    described(
        "tidemark_view_behind_seconds",
        Unit::Seconds,
        "Time for which the view has lacked entries of `group`, or has not reached it.",
    ),
    described("tidemark_graph_changes_waiting", Unit::Count, "Changes of edges that totals do not show yet."),
    described("tidemark_graph_pairs_done", Unit::Count, "Pairs of counters done of the first waiting change of edges."),
    described("tidemark_view_buckets_bytes", Unit::Bytes, "Memory of the view's buckets."),
    described("tidemark_view_buckets_bytes_max", Unit::Bytes, "Limit of the memory of the view's buckets."),
    described("tidemark_view_cells", Unit::Count, "Cells of the view: a counter has one for each generation and half."),
    described(
        "tidemark_view_cells_ended",
        Unit::Count,
        "Cells of the view of ended generations: they hold nothing, and new cells get their slots.",
    ),
    described("tidemark_view_rows_shelved", Unit::Count, "Rows of the view with old buckets on disk only."),
    described("tidemark_view_totals_shelved", Unit::Count, "Rows of totals with old buckets on disk only."),
    described("tidemark_group_buckets_bytes", Unit::Bytes, "Memory of the buckets of `group`."),
    described("tidemark_group_buckets_bytes_max", Unit::Bytes, "Limit of the memory of the buckets of `group`."),
    described("tidemark_group_rows_shelved", Unit::Count, "Rows of `group` with old buckets on disk only."),
    described("tidemark_group_ids", Unit::Count, "Increments with ids that `group` remembers."),
    described("tidemark_group_ids_max", Unit::Count, "Limit of the ids that `group` remembers."),
    described(
        "tidemark_group_held_seconds",
        Unit::Seconds,
        "Time for which batches of `group` waited for views, since the start.",
    ),
    described("tidemark_group_applied_entries", Unit::Count, "Entries of the log of `group` that are applied here."),
    described("tidemark_group_connections", Unit::Count, "Clients connected to `group` here."),
    described("tidemark_group_caught_up", Unit::Count, "1 once the log of `group` was applied here since the start."),
    described("tidemark_webhook_dead_letters", Unit::Count, "Awards that a receiver did not accept: dead letters."),
    described("tidemark_webhook_deliveries_open", Unit::Count, "Awards that a receiver has not acknowledged yet."),
    described(
        "tidemark_webhook_disabled",
        Unit::Count,
        "1 while a webhook is disabled because its receiver answered 410 Gone.",
    ),
    described("tidemark_counter_lives", Unit::Count, "Counters that were reset or removed, or that expire."),
    described(
        "tidemark_counter_lives_max",
        Unit::Count,
        "Limit of the counters that were reset or removed, or that expire.",
    ),
    described("tidemark_counter_lives_expiring", Unit::Count, "Counters with a time of expiry."),
    described(
        "tidemark_counter_resets_unpassed",
        Unit::Count,
        "Resets that some view or group has not applied yet: until then views keep the earlier counts.",
    ),
    described("tidemark_build_info", Unit::Count, "1; `version` is that of this program."),
];

/// Counted as it happens.
const COUNTERS: [Described; 5] = [
    described("tidemark_http_requests_total", Unit::Count, "HTTP requests answered, by method and status."),
    described("tidemark_node_entries_total", Unit::Count, "Entries appended to the logs of groups."),
    described("tidemark_node_slow_clients_total", Unit::Count, "Clients disconnected because they read too slowly."),
    described("tidemark_peer_bytes_total", Unit::Bytes, "Bytes sent to other aggregators, Raft not included."),
    described("tidemark_webhook_requests_total", Unit::Count, "Requests to receivers of awards, by outcome."),
];

/// Keeps metrics from now on, for `/metrics`. `None` where this process keeps some already.
pub fn start(version: &'static str) -> Option<PrometheusHandle> {
    let handle = PrometheusBuilder::new().install_recorder().ok()?;
    describe_all(version);
    Some(handle)
}

/// Sets whether `/readyz` answers 200.
pub fn ready(is_ready: bool) {
    metrics::gauge!("tidemark_ready").set(flag(is_ready));
}

/// Sets the gauges of a node's groups.
pub fn groups(dc: &str, statuses: &Statuses) {
    for status in statuses.get() {
        let Some(group) = status.group else { continue };
        let labels = [("group", format!("{dc}/{}", group.group))];
        metrics::gauge!("tidemark_group_serving", &labels).set(flag(status.serving));
        metrics::gauge!("tidemark_group_caught_up", &labels).set(flag(status.caught_up));
        metrics::gauge!("tidemark_group_applied_entries", &labels).set(status.applied as f64);
        metrics::gauge!("tidemark_group_connections", &labels).set(status.connections as f64);
        metrics::gauge!("tidemark_group_buckets_bytes", &labels).set(status.buckets_bytes as f64);
        if let Some(most) = status.buckets_bytes_max {
            metrics::gauge!("tidemark_group_buckets_bytes_max", &labels).set(most as f64);
        }
        metrics::gauge!("tidemark_group_rows_shelved", &labels).set(status.rows_shelved as f64);
        metrics::gauge!("tidemark_group_ids", &labels).set(f64::from(status.ids));
        metrics::gauge!("tidemark_group_ids_max", &labels).set(f64::from(status.ids_max));
        metrics::gauge!("tidemark_group_held_seconds", &labels).set(status.held_ms as f64 / 1_000.0);
    }
}

/// Says what each metric is.
fn describe_all(version: &'static str) {
    for Described { name, unit, help } in GAUGES {
        metrics::describe_gauge!(name, unit, help);
    }
    for Described { name, unit, help } in COUNTERS {
        metrics::describe_counter!(name, unit, help);
    }
    metrics::gauge!("tidemark_build_info", "version" => version).set(1.0);
}

/// 1 or 0.
pub fn flag(is_so: bool) -> f64 {
    f64::from(u8::from(is_so))
}

/// Measures the connections of an aggregator.
pub fn measure(aggregator: &Aggregator) {
    let cluster = aggregator.cluster();
    for peer in cluster.aggregators().filter(|&peer| peer != aggregator.id()) {
        let labels = [("peer", cluster.aggregator_name(peer))];
        metrics::gauge!("tidemark_peer_up", &labels).set(flag(aggregator.reaches_aggregator(peer)));
    }
    let LedgerStanding { leader, voters, voters_reached, .. } = aggregator.ledger_standing();
    metrics::gauge!("tidemark_ledger_has_leader").set(flag(leader.is_some()));
    metrics::gauge!("tidemark_ledger_voters").set(voters as f64);
    metrics::gauge!("tidemark_ledger_voters_reachable").set(voters_reached as f64);
    metrics::gauge!("tidemark_ledger_caught_up").set(flag(aggregator.has_caught_up_with_ledger()));
    for (group, connected) in aggregator.own_groups() {
        let labels = [("group", aggregator.incarnation_name(group))];
        metrics::gauge!("tidemark_feed_connected", &labels).set(flag(connected));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Every metric that the sources name is described, and nothing else is.
    #[test]
    fn every_metric_has_a_unit_and_a_help_text() {
        let top = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        let mut named = BTreeSet::new();
        let mut dirs: Vec<_> =
            ["src", "server/src", "aggregator/src", "node/src", "client/src", "transport/src", "consensus/src"]
                .map(|dir| top.join(dir))
                .to_vec();
        while let Some(dir) = dirs.pop() {
            for entry in std::fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    dirs.push(path);
                } else if path.extension().is_some_and(|extension| extension == "rs") {
                    let text = std::fs::read_to_string(&path).unwrap();
                    for kind in ["gauge!(", "counter!("] {
                        for (_, after) in text.match_indices(kind).map(|(at, _)| text[at..].split_at(kind.len())) {
                            let name = after.trim_start().strip_prefix('"').and_then(|name| name.split('"').next());
                            named.extend(name.filter(|name| name.starts_with("tidemark_")).map(str::to_owned));
                        }
                    }
                }
            }
        }
        let all: BTreeSet<String> = GAUGES.iter().chain(&COUNTERS).map(|metric| metric.name.to_owned()).collect();
        assert_eq!(named, all);
        for Described { name, help, .. } in GAUGES.iter().chain(&COUNTERS) {
            assert!(help.ends_with('.') && help.len() <= 120, "{name}: {help}");
        }
    }

    /// The book's page of metrics lists each with what the program says of it.
    #[test]
    fn page_of_metrics_has_every_description() {
        let page =
            std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/metrics.md")).unwrap();
        let kinds = GAUGES.iter().map(|metric| ("gauge", metric));
        let mut metrics: Vec<_> = kinds.chain(COUNTERS.iter().map(|metric| ("counter", metric))).collect();
        metrics.sort_by_key(|(_, metric)| metric.name);
        let row = |(kind, Described { name, unit, help }): (&str, &Described)| {
            format!("| `{name}` | {kind} | {} | {help} |", format!("{unit:?}").to_lowercase())
        };
        let rows: Vec<String> = metrics.into_iter().map(row).collect();
        assert_eq!(page.lines().filter(|line| line.starts_with("| `")).collect::<Vec<_>>(), rows);
    }
}
