//! The ledger's members as operators see them: votes, entries behind, and the views that arming waits for; and the changes of both.

use super::operation::Ask;
use super::typed::Json;
use super::{AggregatorProcess, Failure};
use crate::api::ledger::{ChangeVotersBody, MembersBody, SetAsideBody};

pub(super) async fn members<B: AggregatorProcess>(ask: Ask<B>) -> Result<Json<MembersBody>, Failure> {
    Ok(Json(ask.shared.backend.members().await?))
}

pub(super) async fn change_voters<B: AggregatorProcess>(
    ask: Ask<B>,
    change: ChangeVotersBody,
) -> Result<Json<MembersBody>, Failure> {
    Ok(Json(ask.shared.backend.change_voters(change).await?))
}

pub(super) async fn set_aside<B: AggregatorProcess>(
    ask: Ask<B>,
    said: SetAsideBody,
) -> Result<Json<MembersBody>, Failure> {
    Ok(Json(ask.shared.backend.set_aside(said.aggregator).await?))
}
