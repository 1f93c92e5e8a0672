//! Edges between counters: `POST /v1/edges` changes them, all that a request says or none; `…/graph` of a counter shows its own count and
//! its total. Milestones stand on a counter's own count, whatever flows to it.

use super::namespaces::check_namespace;
use super::operation::Ask;
use super::params::{number, value};
use super::typed::Json;
use super::{AggregatorProcess, Failure};
use crate::edges::{AuditBody, ChangeBody, ChangedBody, GraphBody};
use schemars::JsonSchema;
use serde::Serialize;
use tidemark_proto::ids::CounterName;

/// Bytes of the body of `POST /v1/edges`: as many changes as one command holds, of 400 bytes a name. More: `413`.
pub const EDGES_BODY_BYTES_MAX: usize = 2 << 20;

/// Answer to `PUT /v1/edges/allowed/{from}/{to}`: edges from one namespace to the other are permitted.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct AllowedBody {
    from: String,
    to: String,
}

/// `POST /v1/edges`.
pub(super) async fn change<B: AggregatorProcess>(
    ask: Ask<B>,
    wanted: ChangeBody,
) -> Result<Json<ChangedBody>, Failure> {
    Ok(Json(ask.shared.backend.change_edges(wanted).await?))
}

/// `GET /v1/edges/audit`: the authors of the last changes of edges; with `?entry=N` one of these changes, and its edges.
pub(super) async fn audit<B: AggregatorProcess>(
    Ask { shared, params, .. }: Ask<B>,
) -> Result<Json<AuditBody>, Failure> {
    let entry = value(&params, "entry").map(|text| number("entry", text, u64::MAX)).transpose()?;
    Ok(Json(shared.backend.edges_audit(entry).await?))
}

/// `PUT /v1/edges/allowed/{from}/{to}`.
pub(super) async fn allow<B: AggregatorProcess>(ask: Ask<B>) -> Result<Json<AllowedBody>, Failure> {
    let (from, to) = ask.rest().split_once('/').unwrap_or((ask.rest(), ""));
    for namespace in [from, to] {
        CounterName::new(namespace, b"-").map_err(|error| Failure::invalid("namespace", error))?;
        check_namespace(&ask.shared, namespace)?;
    }
    ask.shared.backend.allow_edges(from, to).await?;
    Ok(Json(AllowedBody { from: from.to_owned(), to: to.to_owned() }))
}

/// `GET …/graph`.
pub(super) async fn graph<B: AggregatorProcess>(ask: Ask<B>) -> Result<Json<GraphBody>, Failure> {
    Ok(Json(ask.shared.backend.graph_of(&ask.counter()?).await?))
}
