//! `…/claims`: how a counter's awards are claimed. `GET` and `POST /v1/awards/{namespace}/{key}/{at}/claim`: how an award's claim
//! stands, and claiming it.

use super::answer::json;
use super::path::claim_path;
use super::routes::{AppState, Body, below, is_signed, session_of, whole};
use super::server::Shared;
use super::{Backend, Failure, body};
use crate::claims::{ClaimRuleBody, Claims};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use serde::{Deserialize, Serialize};
use tidemark_proto::ids::CounterName;

/// `POST …/claim`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClaimingBody {
    /// Token of the session that claims. One that is not signed by the cluster needs the bearer token beside it.
    pub session: String,
    /// The claim's own name, 1 to 128 visible ASCII characters: said again, it is the same claim.
    pub id: String,
}

pub(super) fn rule<B: Backend>(shared: &Shared<B>, counter: &CounterName) -> Result<Response, Failure> {
    Ok(json(StatusCode::OK, &claims(shared)?.rule(counter)))
}

pub(super) async fn set_rule<B: Backend>(
    shared: &Shared<B>,
    counter: &CounterName,
    bytes: Body,
) -> Result<Response, Failure> {
    let wanted: ClaimRuleBody = body::parse(&whole(bytes)?)?;
    Ok(json(StatusCode::OK, &claims(shared)?.set_rule(counter, wanted).await?))
}

pub(super) fn get<B: Backend>(shared: &Shared<B>, rest: &str) -> Result<Response, Failure> {
    let (counter, at) = claim_path(rest)?;
    Ok(json(StatusCode::OK, &claims(shared)?.of(&counter, at)?))
}

/// The token of a session is the permission where we have signed it. Others are the front end's own, with names that may be guessed:
/// the front end shows its own permission with them.
pub(super) async fn claim<B: Backend>(
    State(shared): AppState<B>,
    headers: HeaderMap,
    uri: Uri,
    bytes: Body,
) -> Result<Response, Failure> {
    shared.access.check_origin(&headers)?;
    let (counter, at) = claim_path(below(&uri, "/v1/awards/"))?;
    let ClaimingBody { session, id } = body::parse(&whole(bytes)?)?;
    let session = match is_signed(&session) {
        true => shared.access.sessions()?.verify_for(&session, counter.namespace())?.id,
        false => {
            shared.access.write(&headers)?;
            session_of(&shared, &session, &counter)?
        }
    };
    Ok(json(StatusCode::OK, &claims(&shared)?.claim(&counter, at, session, &id).await?))
}

fn claims<B: Backend>(shared: &Shared<B>) -> Result<&Claims, Failure> {
    shared.backend.claims().ok_or_else(|| Failure::NotFound("awards are claimed at aggregators only".to_owned()))
}
