//! Slots as operators see them: the ranges into which a view is cut, how much lies in each, and what a cut there costs.
//!
//! Every aggregator of a data centre holds all of them, so far (decision 0048): slots say where load lies, and move none.

use super::answer::json;
use super::routes::{AppState, Params, known_params};
use super::{Backend, Failure};
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde::{Deserialize, Serialize};

/// `GET /v1/slots`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotsBody {
    /// By the data centre's clock, milliseconds since 1970: of two answers, how fast weight grew.
    pub at_unix_ms: u64,
    /// In the order of their counters: of namespaces, and in one of its keys, by bytes.
    pub slots: Vec<SlotBody>,
    /// Connected aggregators whose views are cut at other counters, by their layouts: nothing is exchanged with them.
    pub cut_elsewhere: Vec<String>,
}

/// One range of counters, as the aggregator that answers has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotBody {
    pub slot: u16,
    /// Its first counter, as `NAMESPACE/KEY`; `null`: it begins before all.
    pub from: Option<String>,
    /// The first counter behind it; `null`: it ends behind all.
    pub before: Option<String>,
    /// Counters in it of which anything was ever counted.
    pub counters: u64,
    /// What this aggregator has heard since its process started that was counted of them, up and down, in all data centres.
    pub weight: u64,
    /// Totals, of counters in any slot, to which counts of this one flow along edges, or once did since the process started.
    pub totals: u64,
    /// Bytes of memory that its share of those totals takes; each further slot from which counts flow to a total has a share of its own.
    pub totals_bytes: u64,
}

pub(super) async fn list<B: Backend>(
    State(shared): AppState<B>,
    headers: HeaderMap,
    Query(params): Params,
) -> Result<Response, Failure> {
    shared.access.read(&headers)?;
    known_params(&params, &[])?;
    Ok(json(StatusCode::OK, &shared.backend.slots().await?))
}
