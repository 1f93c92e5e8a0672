//! `…/claims`: how a counter's awards are claimed. `GET` and `POST /v1/awards/{namespace}/{key}/{at}/claim`: how an award's claim
//! stands, and claiming it.

use super::operation::Ask;
use super::path::award_of;
use super::routes::{is_signed, session_of};
use super::server::Shared;
use super::typed::Json;
use super::{AggregatorProcess, Failure};
use crate::claims::{ClaimBody, ClaimRuleBody, Claims};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `POST …/claim`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClaimingBody {
    /// Token of the session that claims. A token that is not signed by the cluster needs the bearer token beside it.
    #[schemars(schema_with = "crate::schemas::session")]
    pub session: String,
    /// The claim's own name, 1 to 128 visible ASCII characters: said again, it is the same claim.
    #[schemars(schema_with = "crate::schemas::id")]
    pub id: String,
}

pub(super) async fn rule<B: AggregatorProcess>(ask: Ask<B>) -> Result<Json<ClaimRuleBody>, Failure> {
    Ok(Json(claims(&ask.shared)?.rule(&ask.counter()?)))
}

pub(super) async fn set_rule<B: AggregatorProcess>(
    ask: Ask<B>,
    wanted: ClaimRuleBody,
) -> Result<Json<ClaimRuleBody>, Failure> {
    Ok(Json(claims(&ask.shared)?.set_rule(&ask.counter()?, wanted).await?))
}

pub(super) async fn of<B: AggregatorProcess>(ask: Ask<B>) -> Result<Json<ClaimBody>, Failure> {
    let (counter, at) = award_of(ask.rest())?;
    Ok(Json(claims(&ask.shared)?.of(&counter, at)?))
}

/// The token of a session is the permission where we have signed it. Others are the front end's own, with names that may be guessed:
/// the front end shows its own permission with them.
pub(super) async fn claim<B: AggregatorProcess>(ask: Ask<B>, said: ClaimingBody) -> Result<Json<ClaimBody>, Failure> {
    let shared = &ask.shared;
    shared.access.check_origin(ask.headers())?;
    let (counter, at) = award_of(ask.rest())?;
    let ClaimingBody { session, id } = said;
    let session = match is_signed(&session) {
        true => shared.access.sessions()?.verify_for(&session, counter.namespace())?.id,
        false => {
            shared.access.write(ask.headers())?;
            session_of(shared, &session, &counter)?
        }
    };
    Ok(Json(claims(shared)?.claim(&counter, at, session, &id).await?))
}

fn claims<B: AggregatorProcess>(shared: &Shared<B>) -> Result<&Claims, Failure> {
    shared.backend.claims().ok_or_else(|| Failure::NotFound("awards are claimed at aggregators only".to_owned()))
}
