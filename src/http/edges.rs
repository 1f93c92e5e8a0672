//! Edges between counters: `POST /v1/edges` changes them, all that a request says or none; `…/graph` of a counter shows its own count and
//! its total. Milestones stand on a counter's own count, whatever flows to it.

use super::answer::json;
use super::namespaces::check_namespace;
use super::operation::Ask;
use super::params::{number, value};
use super::{Backend, Failure};
use crate::edges::ChangeBody;
use axum::http::StatusCode;
use axum::response::Response;
use tidemark_proto::ids::CounterName;

/// Bytes of the body of `POST /v1/edges`: as many changes as one command holds, of 400 bytes a name. More: `413`.
pub const EDGES_BODY_BYTES_MAX: usize = 2 << 20;

/// `POST /v1/edges`.
pub(super) async fn change<B: Backend>(ask: Ask<B>, wanted: ChangeBody) -> Result<Response, Failure> {
    Ok(json(StatusCode::OK, &ask.shared.backend.change_edges(wanted).await?))
}

/// `GET /v1/edges/audit`: who changed edges last; with `?entry=N` one of these changes, and its edges.
pub(super) async fn audit<B: Backend>(Ask { shared, params, .. }: Ask<B>) -> Result<Response, Failure> {
    let entry = value(&params, "entry").map(|text| number("entry", text, u64::MAX)).transpose()?;
    Ok(json(StatusCode::OK, &shared.backend.edges_audit(entry).await?))
}

/// `PUT /v1/edges/allowed/{from}/{to}`.
pub(super) async fn allow<B: Backend>(ask: Ask<B>) -> Result<Response, Failure> {
    let (from, to) = ask.rest().split_once('/').unwrap_or((ask.rest(), ""));
    for namespace in [from, to] {
        CounterName::new(namespace, b"-").map_err(|error| Failure::invalid("namespace", error))?;
        check_namespace(&ask.shared, namespace)?;
    }
    ask.shared.backend.allow_edges(from, to).await?;
    Ok(json(StatusCode::OK, &serde_json::json!({ "from": from, "to": to })))
}

/// `GET …/graph`.
pub(super) async fn graph<B: Backend>(ask: Ask<B>) -> Result<Response, Failure> {
    Ok(json(StatusCode::OK, &ask.shared.backend.graph_of(&ask.counter()?).await?))
}
