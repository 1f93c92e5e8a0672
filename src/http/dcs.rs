//! Data centres as operators see them: who is there, what is outstanding, and that one is given up that never returns.

use super::answer::json;
use super::body;
use super::routes::{AppState, Body, below, whole};
use super::{Backend, Failure};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};

/// `GET /v1/dcs`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DcsBody {
    /// In the order of the layout.
    pub dcs: Vec<DcBody>,
}

/// One data centre, as the one that answers knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DcBody {
    pub name: String,
    /// It can be reached from here, or is this one.
    pub connected: bool,
    /// It was given up, and never returns.
    pub forgotten: bool,
    pub member: Member,
    /// Incarnations of its groups that are not given up, as `DC/GROUP#INCARNATION`.
    pub groups: Vec<String>,
    /// Rights outstanding at them, of all counters: weight that they may have counted unseen.
    pub rights: u64,
    /// Why it would not be given up now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// What its aggregator is in the ledger: of several, what any is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Member {
    Voter,
    Learner,
    None,
}

/// `POST …/forgotten`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForgetBody {
    /// Although it was heard of a moment ago.
    #[serde(default)]
    pub force: bool,
}

/// Where [`ForgetBody`] is posted to.
pub fn forgotten_path(dc: &str) -> String {
    format!("/v1/dcs/{}/forgotten", utf8_percent_encode(dc, NON_ALPHANUMERIC))
}

pub(super) async fn list<B: Backend>(State(shared): AppState<B>, headers: HeaderMap) -> Result<Response, Failure> {
    shared.access.read(&headers)?;
    Ok(json(StatusCode::OK, &shared.backend.dcs().await?))
}

/// `{dc}/forgotten`.
pub(super) async fn forget<B: Backend>(
    State(shared): AppState<B>,
    headers: HeaderMap,
    uri: Uri,
    bytes: Body,
) -> Result<Response, Failure> {
    shared.access.write(&headers)?;
    let refused = || Failure::NotFound("POST needs a path of the form DC/forgotten".to_owned());
    let name = below(&uri, "/v1/dcs/").strip_suffix("/forgotten").ok_or_else(refused)?;
    let name = percent_encoding::percent_decode_str(name).decode_utf8().map_err(|_| refused())?;
    let ForgetBody { force } = body::parse(&whole(bytes)?)?;
    Ok(json(StatusCode::OK, &shared.backend.forget(&name, force).await?))
}
