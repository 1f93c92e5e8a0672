//! Questions about series: `…/window` and `…/series` of a counter, many counters by name, prefix or rank; and how namespaces keep them.

mod asked;
mod bodies;
mod export;

pub use crate::api::Of;
pub use asked::{AnchorBody, CompareBody, WindowAsk};
pub use bodies::{
    AsOfBody, BasisBody, CountedBody, CounterAsOfBody, CounterSeriesBody, IntervalBody, NoPreviousBody, PlanBody,
    PlansBody, PreviousBody, RangeSeriesBody, ReadBody, SeriesBody, StepBody, TopBody, WindowBody, WindowedBody,
};

pub(super) use asked::WINDOW_PARAMS;
pub(super) use export::export;
pub use export::{ExportBody, ExportedBody, HalfBody};
pub use tidemark_proto::limits::RANGE_MAX;

use super::namespaces::check_namespace;
use super::operation::Ask;
use super::params::{number, value};
use super::routes::counters_of;
use super::server::Shared;
use super::typed::Json;
use super::{AggregatorProcess, Failure};
use crate::names::{key_bytes, key_text, parse_counter};
use crate::series::{PolicyBody, TermsBody};
use asked::key_range;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeSet;
use tidemark_proto::ids::CounterName;
use tidemark_proto::limits::{QUERY_COUNTERS_MAX, RANKS_MAX};
use tidemark_proto::query::{Among, Ranking, SeriesQuery, TopAsOf, WindowQuery};

/// Bytes of the body of `POST /v1/read`: 10,000 names of 400 bytes. More: `413`.
pub const READ_BODY_BYTES_MAX: usize = 4 << 20;
/// Counters in one page of a range, unless the request says it.
const RANGE_DEFAULT: usize = 100;
/// Places of a ranking, unless the request says it.
const RANKS_DEFAULT: usize = 10;

/// Answer to `GET /v1/range`: with `every` in steps, else as of one instant.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub(super) enum RangeBody {
    Values(AsOfBody),
    Series(RangeSeriesBody),
}

/// `GET …/window`.
pub(super) async fn window<B: AggregatorProcess>(ask: Ask<B>) -> Result<Json<WindowBody>, Failure> {
    let counter = ask.counter()?;
    let params = &ask.params;
    let query = WindowAsk::of(params)?.window()?;
    let read = as_of(&ask.shared, Of::asked(params)?, &[counter], &[query]).await?;
    let body = read.single().ok_or_else(|| Failure::NotServing("no reading".to_owned()))?;
    Ok(Json(body))
}

/// `GET …/series`.
pub(super) async fn series<B: AggregatorProcess>(ask: Ask<B>) -> Result<Json<SeriesBody>, Failure> {
    let counter = ask.counter()?;
    let params = &ask.params;
    let every =
        value(params, "every").ok_or_else(|| Failure::invalid("every", "every=PERIOD is needed, such as 1d"))?;
    let query = steps_of(params, every)?;
    let of = Of::asked(params)?;
    let counters = std::slice::from_ref(&counter);
    let read = ask.shared.backend.read_series(of, counter.namespace(), counters, &query).await?;
    Ok(Json(SeriesBody::new(&counter, &read, &query.zone, every)))
}

fn steps_of(params: &[(String, String)], every: &str) -> Result<SeriesQuery, Failure> {
    let anchor = bodies::anchor_of(value(params, "anchor"));
    let anchor = anchor.ok_or_else(|| Failure::invalid("anchor", "anchor is calendar or end"))?;
    WindowAsk::of(params)?.series(every, anchor)
}

/// `GET /v1/window?counter=…&counter=…`.
pub(super) async fn windows<B: AggregatorProcess>(
    Ask { shared, params, .. }: Ask<B>,
) -> Result<Json<AsOfBody>, Failure> {
    let query = WindowAsk::of(&params)?.window()?;
    Ok(Json(as_of(&shared, Of::asked(&params)?, &some_counters(&params)?, &[query]).await?))
}

/// `POST /v1/read`: up to 10,000 counters at one instant.
pub(super) async fn read<B: AggregatorProcess>(ask: Ask<B>, said: ReadBody) -> Result<Json<AsOfBody>, Failure> {
    let ReadBody { counters, windows, of } = said;
    if counters.len() > QUERY_COUNTERS_MAX {
        let message = format!("{} counters: at most {QUERY_COUNTERS_MAX} allowed", counters.len());
        return Err(Failure::invalid("too_many_counters", message));
    }
    let named = counters.iter().map(|text| parse_counter(text).map_err(|error| Failure::invalid("counter", error)));
    let counters = named.collect::<Result<Vec<_>, _>>()?;
    let namespaces: BTreeSet<&str> = counters.iter().map(CounterName::namespace).collect();
    namespaces.into_iter().try_for_each(|namespace| check_namespace(&ask.shared, namespace))?;
    let queries = windows.iter().map(WindowAsk::window).collect::<Result<Vec<_>, _>>()?;
    Ok(Json(as_of(&ask.shared, of, &counters, &queries).await?))
}

/// `GET /v1/range?prefix=NAMESPACE/PREFIX`: counters in the order of their keys, with a window or without, or with `every=1d` in steps.
pub(super) async fn range<B: AggregatorProcess>(
    Ask { shared, params, .. }: Ask<B>,
) -> Result<Json<RangeBody>, Failure> {
    let keys = key_range(&params)?;
    let limit = value(&params, "limit").map(|text| number("limit", text, RANGE_MAX as u64)).transpose()?;
    let limit = limit.map_or(RANGE_DEFAULT, |limit| limit as usize);
    let of = Of::asked(&params)?;
    let ask = WindowAsk::of(&params)?;
    let every = value(&params, "every");
    if every.is_none() && value(&params, "anchor").is_some() {
        return Err(Failure::invalid("anchor", "anchor says where steps are cut: every=PERIOD is needed with it"));
    }
    let Some(every) = every else {
        let queries = if ask == WindowAsk::default() { Vec::new() } else { vec![ask.window()?] };
        let page = shared.backend.scan(of, &keys, limit).await?;
        let read = as_of(&shared, of, &page.counters, &queries).await?;
        return Ok(Json(RangeBody::Values(AsOfBody { next: page.next.as_deref().map(key_text), ..read })));
    };
    let query = steps_of(&params, every)?;
    let page = shared.backend.scan(of, &keys, limit).await?;
    let read = shared.backend.read_series(of, &keys.namespace, &page.counters, &query).await?;
    let body = RangeSeriesBody::new(&page.counters, &read, &query.zone, every);
    Ok(Json(RangeBody::Series(RangeSeriesBody { next: page.next.as_deref().map(key_text), ..body })))
}

/// `GET /v1/top?prefix=NAMESPACE/PREFIX&last=7d&k=10`: the counters with the largest counts in a window; with `children=NAMESPACE/KEY`,
/// only counters with an edge to that counter.
pub(super) async fn top<B: AggregatorProcess>(Ask { shared, params, .. }: Ask<B>) -> Result<Json<TopBody>, Failure> {
    let among = among_of(&params)?;
    let k = value(&params, "k").map(|text| number("k", text, RANKS_MAX as u64)).transpose()?;
    let of = Of::asked(&params)?;
    let window = WindowAsk::of(&params)?.window()?;
    let zones = [window.zone.clone()];
    let ranking = Ranking::new(among, k.map_or(RANKS_DEFAULT, |k| k as usize), window)?;
    let TopAsOf { looked_at, counters, read } = shared.backend.top(of, ranking).await?;
    Ok(Json(TopBody { looked_at, ranked: AsOfBody::new(&counters, read, &zones) }))
}

/// The counters that are to be ranked.
fn among_of(params: &[(String, String)]) -> Result<Among, Failure> {
    let Some(counter) = value(params, "children") else { return Ok(Among::Keys(key_range(params)?)) };
    if let Some(other) = ["prefix", "after", "before"].into_iter().find(|name| value(params, name).is_some()) {
        return Err(Failure::invalid("children", format!("children= asks for counters by their edges: no {other}=")));
    }
    let counter = parse_counter(counter).map_err(|error| Failure::invalid("children", error))?;
    Ok(Among::FlowingTo { counter, behind: None })
}

/// `GET /v1/namespaces/{namespace}/series`.
pub(super) async fn policy<B: AggregatorProcess>(ask: Ask<B>) -> Result<Json<TermsBody>, Failure> {
    Ok(Json(ask.shared.backend.series_terms(&namespace_of(&ask)?).await?))
}

/// `PUT` of the same.
pub(super) async fn set_policy<B: AggregatorProcess>(
    ask: Ask<B>,
    wanted: PolicyBody,
) -> Result<Json<TermsBody>, Failure> {
    let terms = ask.shared.backend.set_series_terms(&namespace_of(&ask)?, wanted.policy()?).await?;
    Ok(Json(terms))
}

fn namespace_of<B: AggregatorProcess>(ask: &Ask<B>) -> Result<String, Failure> {
    let name = String::from_utf8_lossy(&key_bytes(ask.rest())).into_owned();
    CounterName::new(&name, b"-").map_err(|error| Failure::invalid("namespace", error))?;
    Ok(name)
}

/// At least one counter.
pub(super) fn some_counters(params: &[(String, String)]) -> Result<Vec<CounterName>, Failure> {
    let counters = counters_of(params)?;
    let none = "counter=NAMESPACE/KEY is needed, once or more; GET /v1/range?prefix=NAMESPACE/ lists counters";
    if counters.is_empty() { Err(Failure::invalid("counter", none)) } else { Ok(counters) }
}

async fn as_of<B: AggregatorProcess>(
    shared: &Shared<B>,
    of: Of,
    counters: &[CounterName],
    queries: &[WindowQuery],
) -> Result<AsOfBody, Failure> {
    let read = shared.backend.read_at(of, counters, queries).await?;
    let zones: Vec<_> = queries.iter().map(|query| query.zone.clone()).collect();
    Ok(AsOfBody::new(counters, read, &zones))
}
