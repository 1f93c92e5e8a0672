//! The ledger's members as operators see them: who votes, who is behind, whose view arming waits for; and the changes of both.

use super::answer::json;
use super::body;
use super::routes::{AppState, Body, whole};
use super::{Backend, Failure};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde::{Deserialize, Serialize};

/// `GET /v1/ledger`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MembersBody {
    /// Who leads, as far as is known here.
    pub leader: Option<String>,
    /// Every aggregator of the layout.
    pub members: Vec<MemberBody>,
}

/// One aggregator as a member of the ledger, as another one knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberBody {
    /// `DC`, or `DC/second`.
    pub aggregator: String,
    pub votes: bool,
    /// Whether it can be reached from here.
    pub connected: bool,
    /// Entries of the log that it is not known to have; only who leads knows.
    pub behind: Option<u64>,
    /// Whether arming waits for its view.
    pub view: bool,
}

/// `POST /v1/ledger/voters`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplaceVoterBody {
    /// The aggregator that votes from then on.
    pub joins: String,
    /// The voter whose place it takes; it stays a member.
    pub leaves: String,
}

/// `POST /v1/ledger/set-aside`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetAsideBody {
    pub aggregator: String,
}

pub(super) async fn members<B: Backend>(State(shared): AppState<B>, headers: HeaderMap) -> Result<Response, Failure> {
    shared.access.read(&headers)?;
    Ok(json(StatusCode::OK, &shared.backend.members().await?))
}

pub(super) async fn replace_voter<B: Backend>(
    State(shared): AppState<B>,
    headers: HeaderMap,
    bytes: Body,
) -> Result<Response, Failure> {
    shared.access.write(&headers)?;
    let ReplaceVoterBody { joins, leaves } = body::parse(&whole(bytes)?)?;
    Ok(json(StatusCode::OK, &shared.backend.replace_voter(joins, leaves).await?))
}

pub(super) async fn set_aside<B: Backend>(
    State(shared): AppState<B>,
    headers: HeaderMap,
    bytes: Body,
) -> Result<Response, Failure> {
    shared.access.write(&headers)?;
    let SetAsideBody { aggregator } = body::parse(&whole(bytes)?)?;
    Ok(json(StatusCode::OK, &shared.backend.set_aside(aggregator).await?))
}
