//! `GET /v1/audit?counter=NAMESPACE/KEY`: what the view shows of a counter beside what its data centre's groups hold.

use super::answer::json;
use super::routes::{AppState, Params, known_params, value};
use super::{Backend, Failure};
use crate::names::parse_counter;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;

pub(super) async fn audit<B: Backend>(
    State(shared): AppState<B>,
    headers: HeaderMap,
    Query(params): Params,
) -> Result<Response, Failure> {
    shared.access.read(&headers)?;
    known_params(&params, &["counter", "rows"])?;
    let counter =
        value(&params, "counter").ok_or_else(|| Failure::invalid("counter", "counter=NAMESPACE/KEY is needed"))?;
    let counter = parse_counter(counter).map_err(|error| Failure::invalid("counter", error))?;
    let rows = match value(&params, "rows") {
        None | Some("false") => false,
        Some("true") => true,
        Some(other) => return Err(Failure::invalid("rows", format!("{other:?}: true or false expected"))),
    };
    Ok(json(StatusCode::OK, &shared.backend.audit(&counter, rows).await?))
}
