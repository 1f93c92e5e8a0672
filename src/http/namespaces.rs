//! `GET /v1/namespaces`: the namespaces that exist.

use super::answer::json;
use super::routes::{AppState, Params, known_params};
use super::{Backend, Failure};
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde::{Deserialize, Serialize};

/// `GET /v1/namespaces`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamespacesBody {
    /// In the order of their names.
    pub namespaces: Vec<NamespaceBody>,
}

/// One namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamespaceBody {
    pub name: String,
    /// Its counters may go down.
    pub updown: bool,
    /// It keeps series.
    pub series: bool,
}

pub(super) async fn list<B: Backend>(
    State(shared): AppState<B>,
    headers: HeaderMap,
    Query(params): Params,
) -> Result<Response, Failure> {
    shared.access.read(&headers)?;
    known_params(&params, &[])?;
    Ok(json(StatusCode::OK, &NamespacesBody { namespaces: shared.backend.namespaces()? }))
}
