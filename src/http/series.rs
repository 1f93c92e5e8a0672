//! Questions about series: `…/window` and `…/series` of a counter, many counters by name, prefix or rank; and how namespaces keep them.

mod asked;
mod bodies;
mod export;

pub use asked::{AnchorBody, CompareBody, Of, WindowAsk};
pub use bodies::{
    AsOfBody, BasisBody, CountedBody, CounterAsOfBody, CounterSeriesBody, IntervalBody, NoPreviousBody, PlanBody,
    PlansBody, PreviousBody, RangeSeriesBody, ReadBody, SeriesBody, StepBody, TopBody, WindowBody, WindowedBody,
};

pub(super) use export::export;
pub use export::{ExportBody, ExportedBody, HalfBody};
pub use tidemark_proto::limits::RANGE_MAX;

use super::answer::json;
use super::routes::{AppState, Body, Params, below, counters_of, known_params, number, value, whole_of};
use super::server::Shared;
use super::{Backend, Failure, body};
use crate::names::{key_text, parse_counter};
use crate::series::PolicyBody;
use asked::{WINDOW_PARAMS, key_range};
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use tidemark_proto::ids::CounterName;
use tidemark_proto::limits::{QUERY_COUNTERS_MAX, RANKS_MAX};
use tidemark_proto::query::{Among, Ranking, SeriesQuery, TopAsOf, WindowQuery};

/// Bytes of the body of `POST /v1/read`: 10,000 names of 400 bytes. More: `413`.
pub const READ_BODY_BYTES_MAX: usize = 4 << 20;
/// Counters in one page of a range, unless the request says it.
const RANGE_DEFAULT: usize = 100;
/// Places of a ranking, unless the request says it.
const RANKS_DEFAULT: usize = 10;

/// `GET …/window`.
pub(super) async fn window<B: Backend>(
    shared: &Shared<B>,
    counter: CounterName,
    params: &[(String, String)],
) -> Result<Response, Failure> {
    known_params(params, &[&WINDOW_PARAMS[..], &["of"]].concat())?;
    let query = WindowAsk::of(params)?.window()?;
    let read = as_of(shared, Of::asked(params)?, &[counter], &[query]).await?;
    let body = read.single().ok_or_else(|| Failure::NotServing("no reading".to_owned()))?;
    Ok(json(StatusCode::OK, &body))
}

/// `GET …/series`.
pub(super) async fn series<B: Backend>(
    shared: &Shared<B>,
    counter: &CounterName,
    params: &[(String, String)],
) -> Result<Response, Failure> {
    known_params(params, &[&WINDOW_PARAMS[..], &["every", "anchor", "of"]].concat())?;
    let every =
        value(params, "every").ok_or_else(|| Failure::invalid("every", "every=PERIOD is needed, such as 1d"))?;
    let query = steps_of(params, every)?;
    let many = (counter.namespace(), std::slice::from_ref(counter));
    let read = shared.backend.read_series(Of::asked(params)?, many, &query).await?;
    Ok(json(StatusCode::OK, &SeriesBody::new(counter, &read, &query.zone, every)))
}

fn steps_of(params: &[(String, String)], every: &str) -> Result<SeriesQuery, Failure> {
    let anchor = bodies::anchor_of(value(params, "anchor"));
    let anchor = anchor.ok_or_else(|| Failure::invalid("anchor", "anchor is calendar or end"))?;
    WindowAsk::of(params)?.series(every, anchor)
}

/// `GET /v1/window?counter=…&counter=…`.
pub(super) async fn windows<B: Backend>(
    State(shared): AppState<B>,
    headers: HeaderMap,
    Query(params): Params,
) -> Result<Response, Failure> {
    shared.access.read(&headers)?;
    known_params(&params, &[&WINDOW_PARAMS[..], &["counter", "of"]].concat())?;
    let query = WindowAsk::of(&params)?.window()?;
    Ok(json(StatusCode::OK, &as_of(&shared, Of::asked(&params)?, &counters_of(&params)?, &[query]).await?))
}

/// `POST /v1/read`: up to 10,000 counters at one instant.
pub(super) async fn read<B: Backend>(
    State(shared): AppState<B>,
    headers: HeaderMap,
    bytes: Body,
) -> Result<Response, Failure> {
    shared.access.read(&headers)?;
    let ReadBody { counters, windows, of } = body::parse(&whole_of(bytes, READ_BODY_BYTES_MAX)?)?;
    if counters.len() > QUERY_COUNTERS_MAX {
        let message = format!("{} counters: at most {QUERY_COUNTERS_MAX} allowed", counters.len());
        return Err(Failure::invalid("too_many_counters", message));
    }
    let named = counters.iter().map(|text| parse_counter(text).map_err(|error| Failure::invalid("counter", error)));
    let counters = named.collect::<Result<Vec<_>, _>>()?;
    let queries = windows.iter().map(WindowAsk::window).collect::<Result<Vec<_>, _>>()?;
    Ok(json(StatusCode::OK, &as_of(&shared, of, &counters, &queries).await?))
}

/// `GET /v1/range?prefix=NAMESPACE/PREFIX`: counters in the order of their keys, with a window or without, or with `every=1d` in steps.
pub(super) async fn range<B: Backend>(
    State(shared): AppState<B>,
    headers: HeaderMap,
    Query(params): Params,
) -> Result<Response, Failure> {
    shared.access.read(&headers)?;
    let own = ["prefix", "limit", "after", "before", "of", "every", "anchor"];
    known_params(&params, &[&WINDOW_PARAMS[..], &own].concat())?;
    let keys = key_range(&params)?;
    let limit = value(&params, "limit").map(|text| number("limit", text, RANGE_MAX as u64)).transpose()?;
    let limit = limit.map_or(RANGE_DEFAULT, |limit| limit as usize);
    let (of, ask, every) = (Of::asked(&params)?, WindowAsk::of(&params)?, value(&params, "every"));
    if every.is_none() && value(&params, "anchor").is_some() {
        return Err(Failure::invalid("anchor", "anchor says where steps are cut: every=PERIOD is needed with it"));
    }
    let Some(every) = every else {
        let queries = if ask == WindowAsk::default() { Vec::new() } else { vec![ask.window()?] };
        let page = shared.backend.scan(of, &keys, limit).await?;
        let read = as_of(&shared, of, &page.counters, &queries).await?;
        return Ok(json(StatusCode::OK, &AsOfBody { next: page.next.as_deref().map(key_text), ..read }));
    };
    let query = steps_of(&params, every)?;
    let page = shared.backend.scan(of, &keys, limit).await?;
    let read = shared.backend.read_series(of, (&keys.namespace, &page.counters), &query).await?;
    let body = RangeSeriesBody::new(&page.counters, &read, &query.zone, every);
    Ok(json(StatusCode::OK, &RangeSeriesBody { next: page.next.as_deref().map(key_text), ..body }))
}

/// `GET /v1/top?prefix=NAMESPACE/PREFIX&last=7d&k=10`: those that counted most in a window; with `children=NAMESPACE/KEY` of
/// those whose counts flow straight to that counter.
pub(super) async fn top<B: Backend>(
    State(shared): AppState<B>,
    headers: HeaderMap,
    Query(params): Params,
) -> Result<Response, Failure> {
    shared.access.read(&headers)?;
    known_params(&params, &[&WINDOW_PARAMS[..], &["prefix", "children", "k", "after", "before", "of"]].concat())?;
    let among = among_of(&params)?;
    let k = value(&params, "k").map(|text| number("k", text, RANKS_MAX as u64)).transpose()?;
    let (of, window) = (Of::asked(&params)?, WindowAsk::of(&params)?.window()?);
    let zones = [window.zone.clone()];
    let ranking = Ranking::new(among, k.map_or(RANKS_DEFAULT, |k| k as usize), window)?;
    let TopAsOf { looked_at, counters, read } = shared.backend.top(of, ranking).await?;
    Ok(json(StatusCode::OK, &TopBody { looked_at, ranked: AsOfBody::new(&counters, read, &zones) }))
}

/// What is to be ranked.
fn among_of(params: &[(String, String)]) -> Result<Among, Failure> {
    let Some(counter) = value(params, "children") else { return Ok(Among::Keys(key_range(params)?)) };
    if let Some(other) = ["prefix", "after", "before"].into_iter().find(|name| value(params, name).is_some()) {
        return Err(Failure::invalid("children", format!("children= asks for counters by their edges: no {other}=")));
    }
    let counter = parse_counter(counter).map_err(|error| Failure::invalid("children", error))?;
    Ok(Among::FlowingTo { counter, behind: None })
}

/// `GET /v1/namespaces/{namespace}/series`.
pub(super) async fn policy<B: Backend>(
    State(shared): AppState<B>,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Response, Failure> {
    shared.access.read(&headers)?;
    Ok(json(StatusCode::OK, &shared.backend.series_terms(&namespace_of(&uri)?).await?))
}

/// `PUT` of the same.
pub(super) async fn set_policy<B: Backend>(
    State(shared): AppState<B>,
    headers: HeaderMap,
    uri: Uri,
    bytes: Body,
) -> Result<Response, Failure> {
    shared.access.write(&headers)?;
    let namespace = namespace_of(&uri)?;
    let wanted: PolicyBody = body::parse(&whole_of(bytes, super::BODY_BYTES_MAX)?)?;
    let terms = shared.backend.set_series_terms(&namespace, wanted.policy()?).await?;
    Ok(json(StatusCode::OK, &terms))
}

fn namespace_of(uri: &Uri) -> Result<String, Failure> {
    let refused = || Failure::NotFound("no such path: {namespace}/series expected".to_owned());
    let name = below(uri, "/v1/namespaces/").strip_suffix("/series").ok_or_else(refused)?;
    let name = percent_encoding::percent_decode_str(name).decode_utf8().map_err(|_| refused())?.into_owned();
    CounterName::new(&name, b"-").map_err(|error| Failure::invalid("namespace", error))?;
    Ok(name)
}

async fn as_of<B: Backend>(
    shared: &Shared<B>,
    of: Of,
    counters: &[CounterName],
    queries: &[WindowQuery],
) -> Result<AsOfBody, Failure> {
    let read = shared.backend.read_at(of, counters, queries).await?;
    let zones: Vec<_> = queries.iter().map(|query| query.zone.clone()).collect();
    Ok(AsOfBody::new(counters, read, &zones))
}
