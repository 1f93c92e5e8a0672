//! Groups as operators see them: connections and outstanding rights, and declaring a group lost.

use super::operation::Ask;
use super::typed::Json;
use super::{AggregatorProcess, Failure};
use crate::api::groups::{GroupBody, GroupName, GroupsBody, LoseBody};

pub(super) async fn list<B: AggregatorProcess>(ask: Ask<B>) -> Result<Json<GroupsBody>, Failure> {
    Ok(Json(ask.shared.backend.groups().await?))
}

/// `{dc}/{group}/{incarnation}/lost`.
pub(super) async fn lose<B: AggregatorProcess>(ask: Ask<B>, said: LoseBody) -> Result<Json<GroupBody>, Failure> {
    let (name, incarnation) = ask.rest().rsplit_once('/').unwrap_or((ask.rest(), ""));
    let name: GroupName = format!("{name}#{incarnation}").parse().map_err(|error| Failure::invalid("group", error))?;
    Ok(Json(ask.shared.backend.declare_lost(name, said.force).await?))
}
