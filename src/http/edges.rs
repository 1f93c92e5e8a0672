//! Edges between counters: `POST /v1/edges` changes them, all that a request says or none; `…/graph` of a counter shows its own count and
//! its total. Milestones stand on a counter's own count, whatever flows to it.

use super::answer::json;
use super::routes::{AppState, Body, Params, below, known_params, number, value, whole_of};
use super::server::Shared;
use super::{Backend, Failure, body};
use crate::edges::ChangeBody;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use tidemark_proto::ids::CounterName;

/// Bytes of the body of `POST /v1/edges`: as many changes as one command holds, of 400 bytes a name. More: `413`.
pub const EDGES_BODY_BYTES_MAX: usize = 2 << 20;

/// `POST /v1/edges`.
pub(super) async fn change<B: Backend>(
    State(shared): AppState<B>,
    headers: HeaderMap,
    bytes: Body,
) -> Result<Response, Failure> {
    shared.access.write(&headers)?;
    let wanted: ChangeBody = body::parse(&whole_of(bytes, EDGES_BODY_BYTES_MAX)?)?;
    Ok(json(StatusCode::OK, &shared.backend.change_edges(wanted).await?))
}

/// `GET /v1/edges/audit`: who changed edges last; with `?entry=N` one of these changes, and its edges.
pub(super) async fn audit<B: Backend>(
    State(shared): AppState<B>,
    headers: HeaderMap,
    Query(params): Params,
) -> Result<Response, Failure> {
    shared.access.read(&headers)?;
    known_params(&params, &["entry"])?;
    let entry = value(&params, "entry").map(|text| number("entry", text, u64::MAX)).transpose()?;
    Ok(json(StatusCode::OK, &shared.backend.edges_audit(entry).await?))
}

/// `PUT /v1/edges/allowed/{from}/{to}`.
pub(super) async fn allow<B: Backend>(
    State(shared): AppState<B>,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Response, Failure> {
    shared.access.write(&headers)?;
    let rest = below(&uri, "/v1/edges/allowed/");
    let (from, to) = rest.split_once('/').ok_or_else(|| Failure::NotFound("{from}/{to} expected".to_owned()))?;
    for namespace in [from, to] {
        CounterName::new(namespace, b"-").map_err(|error| Failure::invalid("namespace", error))?;
    }
    shared.backend.allow_edges(from, to).await?;
    Ok(json(StatusCode::OK, &serde_json::json!({ "from": from, "to": to })))
}

/// `GET …/graph`.
pub(super) async fn graph<B: Backend>(shared: &Shared<B>, counter: &CounterName) -> Result<Response, Failure> {
    Ok(json(StatusCode::OK, &shared.backend.graph_of(counter).await?))
}
