//! The table of operations: every method on every path, with what it takes. A new one is written here, and nowhere else: the router, the
//! answers to what is not declared, and the tests that try it on each operation are made from this.

use super::bulk::{BULK_BYTES_MAX, BulkLine};
use super::edges::EDGES_BODY_BYTES_MAX;
use super::operation::{Operation, Permission, Rules, bare, get, json, json_of, many};
use super::params::{Param, ParamKind};
use super::series::{READ_BODY_BYTES_MAX, WINDOW_PARAMS};
use super::{
    Backend, audit, backup, bulk, claims, dcs, dry_run, edges, groups, hop_routes, ledger, live, lives, milestone,
    namespaces, routes, series, slots, webhooks,
};
use axum::http::Method;
use axum::response::IntoResponse;

const COUNTER: Param = Param::new("counter", ParamKind::Counter);
const COUNTERS: Param = COUNTER.repeated();
const PREFIX: Param = Param::new("prefix", ParamKind::Prefix);
const OF: Param = Param::text("of");
const LIMIT: Param = Param::text("limit");
const STEPS: &[Param] = &[Param::text("every"), Param::text("anchor")];
/// Keys between which a page begins and ends.
const KEYS: &[Param] = &[Param::new("after", ParamKind::Key), Param::new("before", ParamKind::Key)];
const IF_GENERATION: &[Param] = &[Param::text("if_generation")];
const SUBSCRIPTION: &[Param] = &[COUNTERS, Param::text("awards"), Param::text("after"), Param::text("own_after")];

/// What each operation takes.
pub fn rules<B: Backend>() -> Vec<Rules> {
    operations::<B>().into_iter().map(|operation| operation.rules).collect()
}

/// All of them.
pub(super) fn operations<B: Backend>() -> Vec<Operation<B>> {
    let mut all = process();
    all.extend(counters());
    all.extend(series_and_graph());
    all.extend(awards());
    all.extend(cluster());
    all
}

/// The process itself.
fn process<B: Backend>() -> Vec<Operation<B>> {
    vec![
        get("/healthz", async |_| Ok("ok\n".into_response())).with(Permission::Open),
        get("/readyz", routes::ready::<B>).params(&[&[Param::new("verbose", ParamKind::Flag)]]).with(Permission::Open),
        get("/metrics", routes::metrics_text::<B>),
        get("/v1/status", routes::status::<B>),
        get("/v1/cluster", routes::cluster::<B>).params(&[&[COUNTER]]),
        get("/v1/namespaces", namespaces::list::<B>),
        get("/v1/backup", backup::image::<B>).with(Permission::Write),
    ]
}

fn counters<B: Backend>() -> Vec<Operation<B>> {
    const POST: Method = Method::POST;
    vec![
        json(POST, "/v1/counters/{namespace}/{key}/add", routes::add::<B>).keyed(),
        many::<B, BulkLine, _>("/v1/add", BULK_BYTES_MAX, bulk::add::<B>).keyed(),
        get("/v1/counters", routes::read_counters::<B>).params(&[&[COUNTERS]]),
        get("/v1/counters/{namespace}/{key}", routes::get_counter::<B>).params(&[&[Param::text("at_least")]]),
        json(Method::DELETE, "/v1/counters/{namespace}/{key}", lives::remove::<B>).params(&[IF_GENERATION]),
        json(POST, "/v1/counters/{namespace}/{key}/reset", lives::reset::<B>).params(&[IF_GENERATION]),
        get("/v1/counters/{namespace}/{key}/life", lives::show::<B>),
        json(Method::PUT, "/v1/counters/{namespace}/{key}/life", lives::expire::<B>).params(&[IF_GENERATION]),
        get("/v1/counters/{namespace}/{key}/progress", routes::progress::<B>),
        get("/v1/counters/{namespace}/{key}/milestones", routes::milestones::<B>),
        json(Method::PUT, "/v1/counters/{namespace}/{key}/milestones", routes::define::<B>),
        bare(Method::DELETE, "/v1/counters/{namespace}/{key}/milestones", routes::disarm::<B>)
            .params(&[&[Param::text("at"), Param::new("rule", ParamKind::Flag)]]),
        get("/v1/counters/{namespace}/{key}/claims", claims::rule::<B>),
        json(Method::PUT, "/v1/counters/{namespace}/{key}/claims", claims::set_rule::<B>),
        get("/v1/counters/{namespace}/{key}/graph", edges::graph::<B>),
        get("/v1/counters/{namespace}/{key}/window", series::window::<B>).params(&[&WINDOW_PARAMS, &[OF]]),
        get("/v1/counters/{namespace}/{key}/series", series::series::<B>).params(&[&WINDOW_PARAMS, STEPS, &[OF]]),
    ]
}

/// Many counters over time, and edges between counters.
fn series_and_graph<B: Backend>() -> Vec<Operation<B>> {
    vec![
        get("/v1/window", series::windows::<B>).params(&[&WINDOW_PARAMS, &[COUNTERS, OF]]),
        get("/v1/range", series::range::<B>).params(&[&WINDOW_PARAMS, &[PREFIX, LIMIT, OF], KEYS, STEPS]),
        get("/v1/top", series::top::<B>).params(&[
            &WINDOW_PARAMS,
            &[PREFIX, Param::new("children", ParamKind::Counter), Param::text("k"), OF],
            KEYS,
        ]),
        get("/v1/export", series::export::<B>).params(&[&[PREFIX, LIMIT], KEYS]),
        get("/v1/audit", audit::audit::<B>).params(&[&[COUNTER, Param::text("rows")]]),
        json_of(Method::POST, "/v1/read", READ_BODY_BYTES_MAX, series::read::<B>).with(Permission::Read),
        get("/v1/namespaces/{namespace}/series", series::policy::<B>),
        json(Method::PUT, "/v1/namespaces/{namespace}/series", series::set_policy::<B>),
        json_of(Method::POST, "/v1/edges", EDGES_BODY_BYTES_MAX, edges::change::<B>),
        get("/v1/edges/audit", edges::audit::<B>).params(&[&[Param::text("entry")]]),
        bare(Method::PUT, "/v1/edges/allowed/{from}/{to}", edges::allow::<B>),
    ]
}

/// Awards, and whom they are told: sessions, subscribers, receivers.
fn awards<B: Backend>() -> Vec<Operation<B>> {
    const POST: Method = Method::POST;
    let filter = [Param::new("namespace", ParamKind::Namespace), COUNTER, Param::text("after"), LIMIT];
    vec![
        get("/v1/awards", routes::awards::<B>).params(&[&filter]),
        get("/v1/awards/{namespace}/{key}/{at}", milestone::award::<B>).params(&[&[Param::text("wait_s")]]),
        get("/v1/awards/{namespace}/{key}/{at}/certificate", routes::certificate::<B>),
        get("/v1/awards/{namespace}/{key}/{at}/claim", claims::of::<B>),
        json(POST, "/v1/awards/{namespace}/{key}/{at}/claim", claims::claim::<B>).with(Permission::Own),
        json(POST, "/v1/awards/{namespace}/{key}/{at}/dry-run", dry_run::dry_run::<B>),
        get("/v1/live", live::upgrade::<B>).params(&[SUBSCRIPTION]).with(Permission::Own),
        get("/v1/events", live::events::<B>).params(&[SUBSCRIPTION]).with(Permission::Own),
        json(POST, "/v1/sessions", routes::issue_sessions::<B>),
        json(POST, "/v1/hops", hop_routes::issue::<B>),
        json(POST, "/v1/hops/count", hop_routes::count::<B>).with(Permission::Own),
        get("/v1/webhooks", webhooks::list::<B>).with(Permission::Write),
        json(POST, "/v1/webhooks/{name}/redeliver", webhooks::redeliver::<B>),
        json(POST, "/v1/webhooks/{name}/hold", webhooks::hold::<B>),
        json(POST, "/v1/webhooks/{name}/test", webhooks::test::<B>),
    ]
}

/// What operators do.
fn cluster<B: Backend>() -> Vec<Operation<B>> {
    const POST: Method = Method::POST;
    vec![
        get("/v1/groups", groups::list::<B>),
        json(POST, "/v1/groups/{dc}/{group}/{incarnation}/lost", groups::lose::<B>),
        get("/v1/dcs", dcs::list::<B>),
        json(POST, "/v1/dcs/{dc}/forgotten", dcs::forget::<B>),
        get("/v1/slots", slots::list::<B>),
        json(POST, "/v1/slots/move", slots::move_one::<B>),
        json(POST, "/v1/slots/split", slots::split::<B>),
        json(POST, "/v1/slots/stay", slots::stay::<B>),
        get("/v1/ledger", ledger::members::<B>),
        json(POST, "/v1/ledger/voters", ledger::change_voters::<B>),
        json(POST, "/v1/ledger/set-aside", ledger::set_aside::<B>),
    ]
}
