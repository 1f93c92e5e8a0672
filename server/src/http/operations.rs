//! The table of operations: every method on every path, with what it takes, what it answers and with which errors it may fail. A new
//! operation is written here, and nowhere else. The router, the checks of requests, the description at `/openapi.json`, the answers to
//! undeclared input, and the tests that try it on each operation are made from this table.

use super::bulk::{BULK_BYTES_MAX, BulkLine};
use super::edges::EDGES_BODY_BYTES_MAX;
use super::operation::{Operation, Permission, Rules, bare, get, json, json_of, many};
use super::params::{Param, ParamKind};
use super::series::{RANGE_MAX, READ_BODY_BYTES_MAX, WINDOW_PARAMS};
use super::server::{Shared, State};
use super::{
    AWARD_WAIT_MAX, AWARDS_MAX, AggregatorProcess, audit, backup, bulk, claims, dcs, dry_run, edges, fails, groups,
    hop_routes, ledger, live, lives, log_level, milestone, namespaces, openapi, routes, series, slots, webhooks,
};
use crate::backend::LocalBackend;
use crate::schemas::{PERIOD_PATTERN, POSITION_PATTERN, VERSION_PATTERN};
use axum::http::Method;
use tidemark_proto::limits::{MILESTONE_MAX, RANKS_MAX};

const COUNTER: Param = Param::new("counter", ParamKind::Counter);
const COUNTERS: Param = COUNTER.repeated();
const PREFIX: Param = Param::new("prefix", ParamKind::Prefix);
const OF: Param = Param::one_of("of", &["direct", "total"]);
const EVERY: Param = Param::text("every", PERIOD_PATTERN);
const ANCHOR: Param = Param::one_of("anchor", &["calendar", "end"]);
const AFTER: Param = Param::text("after", POSITION_PATTERN);
/// Counters in one page of a range.
const LIMIT: Param = Param::number("limit", 1, RANGE_MAX as u64);
/// Keys between which a page begins and ends.
const KEYS: &[Param] = &[Param::new("after", ParamKind::Key), Param::new("before", ParamKind::Key)];
const IF_GENERATION: &[Param] = &[Param::number("if_generation", 0, u32::MAX as u64)];
const SUBSCRIPTION: &[Param] = &[
    COUNTERS,
    Param::one_of("awards", &["all", "watched", "none"]),
    AFTER,
    Param::text("own_after", POSITION_PATTERN),
];
const POST: Method = Method::POST;
const PUT: Method = Method::PUT;
const DELETE: Method = Method::DELETE;

/// The parameters, answers and failures of each operation.
pub fn rules() -> Vec<Rules> {
    operations::<LocalBackend>().into_iter().map(|operation| operation.rules).collect()
}

/// All of them: an aggregator serves each.
pub(super) fn operations<B: AggregatorProcess>() -> Vec<Operation<Shared<B>>> {
    let mut all = of_every_process();
    all.extend(process());
    all.extend(counters());
    all.extend(parts_of_counters());
    all.extend(many_counters());
    all.extend(graph());
    all.extend(awards());
    all.extend(sessions());
    all.extend(cluster());
    all
}

/// What every process serves, a node too.
pub(super) fn of_every_process<S: State>() -> Vec<Operation<S>> {
    vec![
        get("healthz", "/healthz", routes::alive::<S>).with(Permission::Open),
        get("readyz", "/readyz", routes::ready::<S>)
            .params(&[&[Param::new("verbose", ParamKind::Flag)]])
            .with(Permission::Open),
        get("metrics", "/metrics", routes::metrics_text::<S>),
        get("openapi", "/openapi.json", openapi::serve::<S>).with(Permission::Open),
        get("status", "/v1/status", routes::status::<S>),
        get("log_level", "/v1/log-level", log_level::show::<S>),
        json("set_log_level", PUT, "/v1/log-level", log_level::change::<S>).fails(&[&[(400, "log_level")]]),
    ]
}

/// The aggregator itself.
fn process<B: AggregatorProcess>() -> Vec<Operation<Shared<B>>> {
    vec![
        get("cluster", "/v1/cluster", routes::cluster::<B>).params(&[&[COUNTER.needed()]]),
        get("namespaces", "/v1/namespaces", namespaces::list::<B>),
        get("backup", "/v1/backup", backup::image::<B>).with(Permission::Write),
    ]
}

/// Counting, reading, and lives of counters.
fn counters<B: AggregatorProcess>() -> Vec<Operation<Shared<B>>> {
    let version = Param::text("at_least", VERSION_PATTERN);
    let stale: &[_] = &[(409, "version_elsewhere"), (409, "version_unknown")];
    let many_lines: &[_] = &[(400, "counter"), (400, "nothing_added"), (400, "too_many_lines")];
    vec![
        json("add", POST, "/v1/counters/{namespace}/{key}/add", routes::add::<B>)
            .keyed()
            .fails(&[fails::COUNTS, fails::SESSION_OF_ANOTHER]),
        many::<Shared<B>, BulkLine, _, _>("add_many", POST, "/v1/add", BULK_BYTES_MAX, bulk::add::<B>)
            .keyed()
            .fails(&[fails::COUNTS, many_lines]),
        get("read_counters", "/v1/counters", routes::read_counters::<B>)
            .params(&[&[COUNTERS.needed()]])
            .fails(&[&[(400, "too_many_counters")]]),
        get("read_counter", "/v1/counters/{namespace}/{key}", routes::get_counter::<B>)
            .params(&[&[version]])
            .fails(&[stale]),
        json("remove_counter", DELETE, "/v1/counters/{namespace}/{key}", lives::remove::<B>)
            .params(&[IF_GENERATION])
            .fails(&[fails::LIFE]),
        json("reset_counter", POST, "/v1/counters/{namespace}/{key}/reset", lives::reset::<B>)
            .params(&[IF_GENERATION])
            .fails(&[fails::LIFE]),
        get("counter_life", "/v1/counters/{namespace}/{key}/life", lives::show::<B>),
        json("expire_counter", PUT, "/v1/counters/{namespace}/{key}/life", lives::expire::<B>)
            .params(&[IF_GENERATION])
            .fails(&[fails::LIFE, &[(400, "expires"), (400, "expires_s"), (400, "expires_unix_ms")]]),
    ]
}

/// The operations on one counter besides its value.
fn parts_of_counters<B: AggregatorProcess>() -> Vec<Operation<Shared<B>>> {
    let at = Param::number("at", 1, MILESTONE_MAX);
    vec![
        get("progress", "/v1/counters/{namespace}/{key}/progress", routes::progress::<B>),
        get("milestones", "/v1/counters/{namespace}/{key}/milestones", routes::milestones::<B>),
        json("define_milestones", PUT, "/v1/counters/{namespace}/{key}/milestones", routes::define::<B>)
            .fails(&[fails::MILESTONES]),
        bare("disarm_milestone", DELETE, "/v1/counters/{namespace}/{key}/milestones", routes::disarm::<B>)
            .params(&[&[at, Param::new("rule", ParamKind::Flag)]])
            .fails(&[fails::MILESTONES]),
        get("claim_rule", "/v1/counters/{namespace}/{key}/claims", claims::rule::<B>),
        json("set_claim_rule", PUT, "/v1/counters/{namespace}/{key}/claims", claims::set_rule::<B>)
            .fails(&[&[(400, "period_s"), (409, "changed")]]),
        get("graph", "/v1/counters/{namespace}/{key}/graph", edges::graph::<B>),
        get("window", "/v1/counters/{namespace}/{key}/window", series::window::<B>)
            .params(&[&WINDOW_PARAMS, &[OF]])
            .fails(&[fails::WINDOWS]),
        get("series", "/v1/counters/{namespace}/{key}/series", series::series::<B>)
            .params(&[&WINDOW_PARAMS, &[EVERY.needed(), ANCHOR, OF]])
            .fails(&[fails::WINDOWS, fails::STEPS]),
    ]
}

/// Many counters at once.
fn many_counters<B: AggregatorProcess>() -> Vec<Operation<Shared<B>>> {
    let children = Param::new("children", ParamKind::Counter);
    let places = Param::number("k", 1, RANKS_MAX as u64);
    let prefix = PREFIX.needed();
    vec![
        get("windows", "/v1/window", series::windows::<B>)
            .params(&[&WINDOW_PARAMS, &[COUNTERS.needed(), OF]])
            .fails(&[fails::WINDOWS]),
        get("range", "/v1/range", series::range::<B>)
            .params(&[&WINDOW_PARAMS, &[prefix, LIMIT, OF], KEYS, &[EVERY, ANCHOR]])
            .fails(&[fails::WINDOWS, fails::KEYS, fails::STEPS]),
        get("top", "/v1/top", series::top::<B>)
            .params(&[&WINDOW_PARAMS, &[PREFIX, children, places, OF], KEYS])
            .fails(&[fails::WINDOWS, fails::KEYS]),
        get("export", "/v1/export", series::export::<B>).params(&[&[prefix, LIMIT], KEYS]).fails(&[fails::KEYS]),
        get("audit", "/v1/audit", audit::audit::<B>)
            .params(&[&[COUNTER.needed(), Param::one_of("rows", &["true", "false"])]]),
        json_of("read", POST, "/v1/read", READ_BODY_BYTES_MAX, series::read::<B>)
            .with(Permission::Read)
            .fails(&[fails::WINDOWS, &[(400, "counter"), (404, "unknown_namespace")]]),
        get("series_policy", "/v1/namespaces/{namespace}/series", series::policy::<B>),
        json("set_series_policy", PUT, "/v1/namespaces/{namespace}/series", series::set_policy::<B>)
            .fails(&[&[(400, "series"), (409, "changed")]]),
    ]
}

/// Edges between counters.
fn graph<B: AggregatorProcess>() -> Vec<Operation<Shared<B>>> {
    vec![
        json_of("change_edges", POST, "/v1/edges", EDGES_BODY_BYTES_MAX, edges::change::<B>).fails(&[fails::EDGES]),
        get("edges_audit", "/v1/edges/audit", edges::audit::<B>).params(&[&[Param::number("entry", 1, u64::MAX)]]),
        bare("allow_edges", PUT, "/v1/edges/allowed/{from}/{to}", edges::allow::<B>).fails(&[&[
            (400, "namespace"),
            (404, "unknown_namespace"),
            (409, "full"),
        ]]),
    ]
}

/// Awards and their claims.
fn awards<B: AggregatorProcess>() -> Vec<Operation<Shared<B>>> {
    let limit = Param::number("limit", 1, AWARDS_MAX as u64);
    let filter = [Param::new("namespace", ParamKind::Namespace), COUNTER, AFTER, limit];
    let wait = Param::number("wait_s", 1, AWARD_WAIT_MAX.as_secs());
    vec![
        get("awards", "/v1/awards", routes::awards::<B>).params(&[&filter]).fails(&[&[(409, "position_unknown")]]),
        get("award", "/v1/awards/{namespace}/{key}/{at}", milestone::award::<B>)
            .params(&[&[wait]])
            .fails(&[&[(409, "passed")]]),
        get("certificate", "/v1/awards/{namespace}/{key}/{at}/certificate", routes::certificate::<B>)
            .fails(&[&[(400, "milestone")]]),
        get("claim_state", "/v1/awards/{namespace}/{key}/{at}/claim", claims::of::<B>).fails(&[fails::CLAIMS]),
        json("claim", POST, "/v1/awards/{namespace}/{key}/{at}/claim", claims::claim::<B>)
            .with(Permission::Own)
            .fails(&[fails::CLAIMS, fails::SESSIONS]),
        json("rehearse_award", POST, "/v1/awards/{namespace}/{key}/{at}/dry-run", dry_run::dry_run::<B>)
            .fails(&[fails::SESSIONS, &[(409, "awarded"), (409, "passed")]]),
    ]
}

/// The recipients of awards: sessions, subscribers, receivers; and redirected queries.
fn sessions<B: AggregatorProcess>() -> Vec<Operation<Shared<B>>> {
    let issue: &[_] = &[(400, "count"), (400, "expires_s"), (400, "namespace"), (404, "unknown_namespace")];
    let hop: &[_] =
        &[(400, "counters"), (400, "expires_s"), (400, "home"), (400, "hop"), (400, "id"), (404, "unknown_namespace")];
    vec![
        get("live", "/v1/live", live::upgrade::<B>).params(&[SUBSCRIPTION]).with(Permission::Own).fails(&[
            fails::SUBSCRIBES,
            fails::SESSIONS,
            &[(400, "websocket"), (426, "websocket")],
        ]),
        get("events", "/v1/events", live::events::<B>)
            .params(&[SUBSCRIPTION])
            .with(Permission::Own)
            .fails(&[fails::SUBSCRIBES, fails::SESSIONS]),
        json("issue_sessions", POST, "/v1/sessions", routes::issue_sessions::<B>).fails(&[issue]),
        json("issue_hop", POST, "/v1/hops", hop_routes::issue::<B>).fails(&[hop, fails::SESSION_OF_ANOTHER]),
        json("count_hop", POST, "/v1/hops/count", hop_routes::count::<B>)
            .with(Permission::Own)
            .fails(&[fails::HOPS, fails::COUNTS]),
        get("webhooks", "/v1/webhooks", webhooks::list::<B>).with(Permission::Write),
        json("redeliver_webhook", POST, "/v1/webhooks/{name}/redeliver", webhooks::redeliver::<B>),
        json("hold_webhook", POST, "/v1/webhooks/{name}/hold", webhooks::hold::<B>),
        json("test_webhook", POST, "/v1/webhooks/{name}/test", webhooks::test::<B>),
    ]
}

/// The operations of operators.
fn cluster<B: AggregatorProcess>() -> Vec<Operation<Shared<B>>> {
    let set_aside: &[_] = &[(400, "aggregator"), (409, "alone"), (409, "connected")];
    vec![
        get("groups", "/v1/groups", groups::list::<B>),
        json("declare_group_lost", POST, "/v1/groups/{dc}/{group}/{incarnation}/lost", groups::lose::<B>)
            .fails(&[fails::LOSES]),
        get("dcs", "/v1/dcs", dcs::list::<B>),
        json("forget_dc", POST, "/v1/dcs/{dc}/forgotten", dcs::forget::<B>).fails(&[fails::FORGETS]),
        get("slots", "/v1/slots", slots::list::<B>),
        json("move_slot", POST, "/v1/slots/move", slots::move_one::<B>).fails(&[fails::SHARDS]),
        json("split_slot", POST, "/v1/slots/split", slots::split::<B>).fails(&[fails::SHARDS]),
        json("keep_slot", POST, "/v1/slots/stay", slots::stay::<B>).fails(&[fails::SHARDS]),
        get("ledger", "/v1/ledger", ledger::members::<B>),
        json("change_voters", POST, "/v1/ledger/voters", ledger::change_voters::<B>).fails(&[fails::VOTERS]),
        json("set_view_aside", POST, "/v1/ledger/set-aside", ledger::set_aside::<B>).fails(&[set_aside]),
    ]
}
