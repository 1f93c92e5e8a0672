//! The metrics of `/metrics`: each has a text of help and a unit, said once when a process starts to keep them.

use metrics::{Unit, describe_counter, describe_gauge};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tidemark_node::Statuses;

/// A metric: its name, kind, unit and help.
pub struct Measure {
    pub name: &'static str,
    pub kind: Kind,
    pub unit: Unit,
    pub help: &'static str,
}

/// Whether a metric only grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
}

const fn counter(name: &'static str, unit: Unit, help: &'static str) -> Measure {
    Measure { name, kind: Kind::Counter, unit, help }
}

const fn gauge(name: &'static str, unit: Unit, help: &'static str) -> Measure {
    Measure { name, kind: Kind::Gauge, unit, help }
}

/// All metrics.
pub const MEASURES: &[Measure] = &[
    counter("tidemark_http_requests_total", Unit::Count, "HTTP requests that were answered, by method and status."),
    counter("tidemark_node_entries_total", Unit::Count, "Entries that this node's groups applied from their logs."),
    counter(
        "tidemark_node_slow_clients_total",
        Unit::Count,
        "Connections of clients that were ended because answers waited for too long.",
    ),
    counter(
        "tidemark_peer_bytes_total",
        Unit::Bytes,
        "Bytes of messages that this aggregator sent to other aggregators.",
    ),
    counter("tidemark_webhook_requests_total", Unit::Count, "Requests to webhook receivers, by webhook and outcome."),
    gauge(
        "tidemark_webhook_deliveries_open",
        Unit::Count,
        "Deliveries that a webhook receiver has not acknowledged yet.",
    ),
    gauge("tidemark_webhook_dead_letters", Unit::Count, "Deliveries to a webhook receiver that were given up."),
    gauge(
        "tidemark_webhook_disabled",
        Unit::Count,
        "1 while a webhook is disabled because its receiver answered 410 Gone, else 0.",
    ),
    gauge("tidemark_view_behind_entries", Unit::Count, "Log entries of a group that the view has not taken yet."),
    gauge(
        "tidemark_view_behind_seconds",
        Unit::Seconds,
        "Age of the oldest log entry of a group that the view has not taken yet.",
    ),
    gauge("tidemark_graph_changes_waiting", Unit::Count, "Edge changes that the view has not finished."),
    gauge("tidemark_graph_pairs_done", Unit::Count, "Pairs of counters that the current edge change has moved so far."),
    gauge("tidemark_view_buckets_bytes", Unit::Bytes, "Memory of the view's buckets of series and totals."),
    gauge(
        "tidemark_view_buckets_bytes_max",
        Unit::Bytes,
        "Memory that the view's buckets may take; older ones are then read from disk.",
    ),
    gauge("tidemark_view_rows_shelved", Unit::Count, "Rows of series that the view keeps on disk only."),
    gauge("tidemark_view_totals_shelved", Unit::Count, "Rows of totals that the view keeps on disk only."),
    gauge("tidemark_group_buckets_bytes", Unit::Bytes, "Memory of a group's buckets of series."),
    gauge(
        "tidemark_group_buckets_bytes_max",
        Unit::Bytes,
        "Memory that a group's buckets may take; older ones are then read from disk.",
    ),
    gauge("tidemark_group_rows_shelved", Unit::Count, "Rows of series that a group keeps on disk only."),
    gauge("tidemark_group_held_seconds", Unit::Seconds, "How long batches have waited so far because a view lags."),
];

/// Keeps metrics from now on, for `/metrics`. `None` where this process keeps some already.
pub fn start() -> Option<PrometheusHandle> {
    let handle = PrometheusBuilder::new().install_recorder().ok()?;
    describe();
    Some(handle)
}

/// Sets the gauges of a node's groups.
pub fn groups(dc: &str, statuses: &Statuses) {
    for status in statuses.get() {
        let Some(group) = status.group else { continue };
        let labels = [("group", format!("{dc}/{}", group.group))];
        metrics::gauge!("tidemark_group_buckets_bytes", &labels).set(status.buckets_bytes as f64);
        if let Some(most) = status.buckets_bytes_max {
            metrics::gauge!("tidemark_group_buckets_bytes_max", &labels).set(most as f64);
        }
        metrics::gauge!("tidemark_group_rows_shelved", &labels).set(status.rows_shelved as f64);
        metrics::gauge!("tidemark_group_held_seconds", &labels).set(status.held_ms as f64 / 1_000.0);
    }
}

fn describe() {
    for Measure { name, kind, unit, help } in MEASURES {
        match kind {
            Kind::Counter => describe_counter!(*name, *unit, *help),
            Kind::Gauge => describe_gauge!(*name, *unit, *help),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;

    /// Names behind `metrics::gauge!(` and `metrics::counter!(` in a folder's sources.
    fn used(folder: &Path, names: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let path = entry.path();
            if path.is_dir() {
                used(&path, names);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                let macros = ["gauge!(", "counter!(", "histogram!("];
                let calls = macros.iter().flat_map(|call| text.split(call).skip(1));
                let quoted = calls.filter_map(|rest| rest.trim_start().strip_prefix('"')?.split_once('"'));
                names.extend(quoted.map(|(name, _)| name.to_owned()).filter(|name| name.starts_with("tidemark_")));
            }
        }
    }

    #[test]
    fn every_metric_in_use_is_described() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut names = BTreeSet::new();
        for folder in ["src", "node/src", "aggregator/src", "client/src", "transport/src", "consensus/src"] {
            used(&root.join(folder), &mut names);
        }
        let described: BTreeSet<String> = MEASURES.iter().map(|measure| measure.name.to_owned()).collect();
        assert_eq!(described, names);
        for Measure { name, kind, help, .. } in MEASURES {
            assert_eq!(name.ends_with("_total"), *kind == Kind::Counter, "{name}");
            assert!(help.ends_with('.') && help.len() <= 120, "{name}: {help}");
        }
    }
}
