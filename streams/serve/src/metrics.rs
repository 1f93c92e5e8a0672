//! The page `/metrics`: text for Prometheus, each metric with its unit and a line of help.

use crate::counters::{Counter, Counters};
use crate::engine::PARTITION;
use crate::following::Following;
use crate::log::LogSize;
use crate::node::{Node, now_ms};
use crate::queries::Queries;
use std::borrow::Cow;
use std::fmt::Write;
use std::time::Instant;
use tidemark_streams_sql::pool::{Ended, Stats};

#[derive(Clone, Copy)]
enum Kind {
    Counter,
    Gauge,
}

/// A metric as it is shown.
struct Metric {
    name: &'static str,
    kind: Kind,
    unit: &'static str,
    help: &'static str,
    value: f64,
}

fn counter(name: &'static str, unit: &'static str, help: &'static str, counter: &Counter) -> Metric {
    Metric { name, kind: Kind::Counter, unit, help, value: counter.get() as f64 }
}

fn gauge(name: &'static str, unit: &'static str, help: &'static str, value: f64) -> Metric {
    Metric { name, kind: Kind::Gauge, unit, help, value }
}

/// A metric with a value for each value of a label.
struct Labelled {
    name: &'static str,
    unit: &'static str,
    help: &'static str,
    label: &'static str,
    values: Vec<(Cow<'static, str>, u64)>,
}

/// All metrics, by name.
pub fn text(node: &Node) -> String {
    let size = node.log().map(|log| log.size()).unwrap_or_default();
    let mut metrics = intake(node);
    metrics.extend(log(&size));
    metrics.extend(progress(node, &size));
    metrics.extend(owner(node));
    metrics.extend(blobs(node));
    metrics.extend(archive(node));
    // A catalogue that cannot be read refuses requests with the reason.
    let listings = node.catalogue.view().map_or(0, |view| view.listings());
    let help = "Listings that the catalogue knows.";
    metrics.push(gauge("tidemark_streams_listings", "count", help, listings as f64));
    written(metrics, &node.queries, [refused_events(node), forgotten_ids(node)].into())
}

/// All metrics of a process that answers queries only, by name.
pub fn text_of_queries(queries: &Queries, following: &Following, started: Instant) -> String {
    let counters = &queries.stores.counters;
    let mut metrics =
        vec![requests_refused(counters), queries_answered(counters), blobs_gone(counters), uptime(started)];
    metrics.extend(followed(counters, following));
    written(metrics, queries, Vec::new())
}

/// The text of metrics, with those of SQL.
fn written(mut metrics: Vec<Metric>, queries: &Queries, labelled: Vec<Labelled>) -> String {
    let sql = queries.sql.stats();
    metrics.extend(queries_in_sql(queries, &sql));
    metrics.extend(reads_of_queries(&queries.stores.counters));
    metrics.push(counter(
        "tidemark_streams_certificate_errors_total",
        "count",
        "Changed certificates or keys of TLS that could not be used; the old ones stay.",
        &queries.stores.counters.certificates_refused,
    ));
    metrics.sort_by_key(|metric| metric.name);
    let mut text = String::new();
    for Metric { name, kind, unit, help, value } in metrics {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        // Writing to a text cannot fail.
        let value = if value.is_infinite() { "+Inf".to_owned() } else { value.to_string() };
        let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n# UNIT {name} {unit}\n{name} {value}\n");
    }
    for Labelled { name, unit, help, label, values } in by_reason(&sql).into_iter().chain(labelled) {
        let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} counter\n# UNIT {name} {unit}\n");
        for (value, count) in values {
            let _ = writeln!(text, "{name}{{{label}=\"{value}\"}} {count}");
        }
    }
    text
}

/// What queries read of blobs.
fn reads_of_queries(counters: &Counters) -> Vec<Metric> {
    let seconds = counters.read_us.get() as f64 / 1e6;
    let help = "Time that reads of queries from the store took, one beside the other.";
    vec![
        counter("tidemark_streams_query_reads_total", "count", "Reads of queries from the store.", &counters.reads),
        counter(
            "tidemark_streams_query_read_bytes_total",
            "bytes",
            "Bytes that queries asked the store for.",
            &counters.read_bytes,
        ),
        Metric { kind: Kind::Counter, ..gauge("tidemark_streams_query_read_seconds_total", "seconds", help, seconds) },
        counter(
            "tidemark_streams_query_reads_shared_total",
            "count",
            "Reads that a query did not begin, because another query was reading the same.",
            &counters.reads_shared,
        ),
        counter(
            "tidemark_streams_query_blobs_cached_total",
            "count",
            "Blobs of queries that needed no read.",
            &counters.blobs_cached,
        ),
        counter(
            "tidemark_streams_query_blobs_read_total",
            "count",
            "Blobs of queries that needed a read.",
            &counters.blobs_read,
        ),
    ]
}

fn queries_in_sql(queries: &Queries, sql: &Stats) -> Vec<Metric> {
    let total = |name, unit, help, value| Metric { kind: Kind::Counter, ..gauge(name, unit, help, value) };
    vec![
        total("tidemark_streams_sql_queries_total", "count", "Queries in SQL with a result.", sql.answered as f64),
        total("tidemark_streams_sql_seconds_total", "seconds", "Time that queries in SQL had a process.", sql.seconds),
        total("tidemark_streams_sql_scanned_rows_total", "count", "Rows that queries in SQL read.", sql.rows as f64),
        gauge("tidemark_streams_sql_children", "count", "Processes for SQL that run.", sql.alive() as f64),
        counter(
            "tidemark_streams_sql_log_errors_total",
            "count",
            "Lines that could not be written to the log of queries in SQL.",
            &queries.sql_log.errors,
        ),
    ]
}

/// Refusals by code, and ends of children by reason. Only codes that occurred have a line; each reason of an end has one.
fn by_reason(sql: &Stats) -> [Labelled; 2] {
    let ended = |(reason, name): (Ended, &'static str)| {
        (Cow::Borrowed(name), sql.ended.get(&reason).copied().unwrap_or_default())
    };
    [
        Labelled {
            name: "tidemark_streams_sql_refused_total",
            unit: "count",
            help: "Queries in SQL without a result, by the code of the error.",
            label: "code",
            values: sql.refused.iter().map(|(code, count)| (Cow::Borrowed(*code), *count)).collect(),
        },
        Labelled {
            name: "tidemark_streams_sql_children_ended_total",
            unit: "count",
            help: "Processes for SQL that ended, by reason.",
            label: "reason",
            values: Ended::ALL.map(ended).to_vec(),
        },
    ]
}

/// Refused events by code. Tenants are unbounded as a label: `GET /v1/refused` tells them apart.
fn refused_events(node: &Node) -> Labelled {
    let codes = node.log().map(|log| log.refused_by_code()).unwrap_or_default();
    Labelled {
        name: "tidemark_streams_events_refused_total",
        unit: "count",
        help: "Refused events since the log began, by code.",
        label: "code",
        values: codes.into_iter().map(|(code, of_code)| (Cow::Owned(code), of_code.events)).collect(),
    }
}

/// Event ids that were forgotten too early, of each type with bounds of its own.
fn forgotten_ids(node: &Node) -> Labelled {
    let of_types = node.log().map(|log| log.ids_forgotten_of_types()).unwrap_or_default();
    Labelled {
        name: "tidemark_streams_dedupe_overflow_of_type_total",
        unit: "count",
        help: "Event ids that were forgotten before their time, of each type with bounds of its own.",
        label: "type",
        values: of_types.into_iter().map(|(name, ids)| (Cow::Owned(name), ids)).collect(),
    }
}

fn intake(node: &Node) -> Vec<Metric> {
    let counters = node.counters();
    vec![
        counter("tidemark_streams_requests_total", "count", "Requests for events.", &counters.requests),
        requests_refused(counters),
        counter(
            "tidemark_streams_body_bytes_total",
            "bytes",
            "Bytes of events as they were sent.",
            &counters.body_bytes,
        ),
        counter("tidemark_streams_events_accepted_total", "count", "Events that were accepted.", &counters.accepted),
        counter(
            "tidemark_streams_events_dead_letter_total",
            "count",
            "Events that were refused and are kept as dead letters.",
            &counters.dead_letters,
        ),
        counter(
            "tidemark_streams_events_duplicate_total",
            "count",
            "Events with a known event_id; they did not count again.",
            &counters.duplicates,
        ),
        counter(
            "tidemark_streams_batches_repeated_total",
            "count",
            "Batches of producers that were sent again; they did not count again.",
            &counters.repeated,
        ),
        counter(
            "tidemark_streams_requests_over_quota_total",
            "count",
            "Requests that were refused because a tenant was over its quota.",
            &counters.over_quota,
        ),
        counter(
            "tidemark_streams_letters_raw_total",
            "count",
            "Dead letters that were listed without masks.",
            &counters.letters_raw,
        ),
        queries_answered(counters),
        blobs_gone(counters),
    ]
}

fn requests_refused(counters: &Counters) -> Metric {
    let help = "Requests of any kind that were refused.";
    counter("tidemark_streams_requests_refused_total", "count", help, &counters.refused)
}

fn queries_answered(counters: &Counters) -> Metric {
    counter("tidemark_streams_queries_total", "count", "Queries that were answered.", &counters.queries)
}

fn blobs_gone(counters: &Counters) -> Metric {
    let help = "Files of blobs that a query did not find; it is pinned again once they may be replaced.";
    counter("tidemark_streams_blobs_gone_total", "count", help, &counters.blobs_gone)
}

fn uptime(started: Instant) -> Metric {
    gauge("tidemark_streams_uptime_seconds", "seconds", "Since the start.", started.elapsed().as_secs_f64())
}

/// How a query process follows.
fn followed(counters: &Counters, following: &Following) -> Vec<Metric> {
    let age_s = following.age_ms().map_or(f64::INFINITY, |age_ms| age_ms as f64 / 1e3);
    vec![
        gauge(
            "tidemark_streams_feed_age_seconds",
            "seconds",
            "How long ago the manifest was heard of; +Inf: never.",
            age_s,
        ),
        gauge(
            "tidemark_streams_feed_index",
            "count",
            "Entries of the manifest's log that this process follows.",
            following.index() as f64,
        ),
        counter(
            "tidemark_streams_feed_snapshots_total",
            "count",
            "How often the whole manifest was taken.",
            &counters.snapshots,
        ),
        counter(
            "tidemark_streams_feed_broken_total",
            "count",
            "Commands that led to another state than that of the server; the manifest was taken again.",
            &counters.feeds_broken,
        ),
        counter(
            "tidemark_streams_pins_again_total",
            "count",
            "Pins that were repeated because the owner's rows did not continue the blobs.",
            &counters.pins_again,
        ),
        counter(
            "tidemark_streams_answers_of_blobs_total",
            "count",
            "Pins without the rows that the owner holds in memory.",
            &counters.answers_of_blobs,
        ),
    ]
}

fn log(size: &LogSize) -> Vec<Metric> {
    vec![
        gauge(
            "tidemark_streams_log_entries",
            "count",
            "Batches in the log, until they are in blobs and archived.",
            size.entries as f64,
        ),
        gauge(
            "tidemark_streams_log_bytes",
            "bytes",
            "Bytes of the batches in the log, until they are in blobs and archived.",
            size.bytes as f64,
        ),
        gauge("tidemark_streams_producers", "count", "Producers with numbered batches.", size.producers as f64),
        gauge("tidemark_streams_event_ids", "count", "Event ids that are known.", size.event_ids as f64),
        Metric {
            kind: Kind::Counter,
            ..gauge(
                "tidemark_streams_dedupe_overflow_total",
                "count",
                "Event ids that were forgotten before their time, because too many were known.",
                size.ids_forgotten_early as f64,
            )
        },
        Metric {
            kind: Kind::Counter,
            ..gauge(
                "tidemark_streams_late_total",
                "count",
                "Counts that came after their hour was settled, since the log began.",
                size.totals.late as f64,
            )
        },
    ]
}

fn flag(is_on: bool) -> f64 {
    if is_on { 1.0 } else { 0.0 }
}

/// How far the owner is.
fn progress(node: &Node, size: &LogSize) -> Vec<Metric> {
    let owner = node.owner();
    let now = now_ms();
    let lag_rows = size.next_row.saturating_sub(owner.folded);
    let age_s = |since_ms: Option<u64>| since_ms.map_or(0.0, |at| now.saturating_sub(at) as f64 / 1e3);
    let lag_s = age_s((lag_rows > 0).then_some(owner.folded_at_ms).filter(|at| *at > 0));
    vec![
        gauge("tidemark_streams_lag_rows", "count", "Rows that were accepted and are not folded yet.", lag_rows as f64),
        gauge(
            "tidemark_streams_uncommitted_rows",
            "count",
            "Rows that were accepted and are in no committed blob yet.",
            size.next_row.saturating_sub(owner.committed) as f64,
        ),
        gauge("tidemark_streams_lag_seconds", "seconds", "Since when rows wait to be folded; 0: none waits.", lag_s),
        gauge(
            "tidemark_streams_freshness_seconds",
            "seconds",
            "Age of the oldest batch that is in no blob; 0: all are.",
            age_s(size.oldest_at_ms),
        ),
        gauge(
            "tidemark_streams_stuck",
            "count",
            "1 while the owner makes no progress; /readyz?verbose says why.",
            flag(node.problem().is_some()),
        ),
    ]
}

fn owner(node: &Node) -> Vec<Metric> {
    let owner = node.owner();
    vec![
        gauge(
            "tidemark_streams_paused",
            "count",
            "1 while the partition is paused.",
            flag(node.pauses().of_partition(PARTITION).is_some()),
        ),
        gauge(
            "tidemark_streams_paused_types",
            "count",
            "Event types that are paused.",
            node.pauses().types().count() as f64,
        ),
        gauge("tidemark_streams_owner", "count", "1 while this process owns the partition.", flag(owner.is_owner)),
        gauge(
            "tidemark_streams_counts_held",
            "count",
            "Counts in memory that are in no blob.",
            owner.counts_held as f64,
        ),
        gauge(
            "tidemark_streams_counts_held_bytes",
            "bytes",
            "Memory of the counts that are in no blob.",
            owner.bytes_held as f64,
        ),
        gauge(
            "tidemark_streams_dead_letters",
            "count",
            "Dead letters in blobs, until they are replayed or dropped.",
            owner.dead_letters as f64,
        ),
        gauge(
            "tidemark_streams_erasures_pending",
            "count",
            "Erasures of tenants and listings that are not done.",
            owner.erasures_pending as f64,
        ),
        gauge(
            "tidemark_streams_deleting_blobs",
            "count",
            "Live blobs that are to be written again without rows of deleted event types.",
            owner.deleting_blobs as f64,
        ),
        gauge(
            "tidemark_streams_manifest_index",
            "count",
            "Entries of the manifest's log that are applied.",
            owner.manifest_index as f64,
        ),
        counter(
            "tidemark_streams_commits_total",
            "count",
            "Commands that the manifest has taken.",
            &node.counters().commits,
        ),
        counter(
            "tidemark_streams_sessions_failed_total",
            "count",
            "How often the owner ended and began again.",
            &node.counters().sessions_failed,
        ),
        uptime(node.started),
    ]
}

/// What the owner holds and writes.
fn blobs(node: &Node) -> Vec<Metric> {
    let owner = node.owner();
    vec![
        Metric {
            kind: Kind::Counter,
            ..gauge(
                "tidemark_streams_values_other_total",
                "count",
                "Counts with values beyond the bound of a dimension; they count as other.",
                owner.others as f64,
            )
        },
        Metric {
            kind: Kind::Counter,
            ..gauge(
                "tidemark_streams_expired_total",
                "count",
                "Counts that retention has deleted.",
                node.kept().expired as f64,
            )
        },
        gauge("tidemark_streams_live_blobs", "count", "Blobs that count.", owner.live_blobs as f64),
        gauge(
            "tidemark_streams_unreadable_blobs",
            "count",
            "Live blobs that could not be read; merges of them wait.",
            owner.unreadable_blobs as f64,
        ),
        counter(
            "tidemark_streams_store_errors_total",
            "count",
            "Blobs that could not be written or read.",
            &node.counters().store_errors,
        ),
    ]
}

/// The archive of raw events.
fn archive(node: &Node) -> Vec<Metric> {
    let archive = node.archive();
    let age_s = archive.first_ms.map_or(0.0, |at| now_ms().saturating_sub(at) as f64 / 1e3);
    vec![
        gauge("tidemark_streams_raw_files", "count", "Files of the archive of raw events.", archive.files as f64),
        gauge("tidemark_streams_raw_bytes", "bytes", "Bytes of the archive of raw events.", archive.bytes as f64),
        gauge(
            "tidemark_streams_raw_first_row",
            "count",
            "Number of the first row of the archive of raw events; 0 also while the archive is empty.",
            archive.first_row.unwrap_or_default() as f64,
        ),
        gauge(
            "tidemark_streams_raw_next_row",
            "count",
            "Number of the row behind all rows of the archive of raw events.",
            archive.end as f64,
        ),
        gauge(
            "tidemark_streams_raw_oldest_seconds",
            "seconds",
            "Age of the oldest event in the archive; 0: it is empty.",
            age_s,
        ),
        gauge(
            "tidemark_streams_raw_damaged_files",
            "count",
            "Files of the archive of raw events that could not be read.",
            archive.damaged as f64,
        ),
        counter(
            "tidemark_streams_raw_errors_total",
            "count",
            "How often files of the archive of raw events could not be written or removed.",
            &node.counters().archive_errors,
        ),
    ]
}
