//! Slots as operators see them: the ranges into which a view is cut, how much lies in each, and what a cut there costs.
//!
//! One or two aggregators of a data centre hold all of them; of three or more, each holds some (decision 0048).

use super::operation::Ask;
use super::typed::Json;
use super::{AggregatorProcess, Failure};
use crate::api::slots::{MoveSlotBody, SlotBody, SlotsBody, SplitBody, SplitSlotBody, StaySlotBody};
use crate::names::parse_counter;

pub(super) async fn move_one<B: AggregatorProcess>(
    ask: Ask<B>,
    asked: MoveSlotBody,
) -> Result<Json<SlotBody>, Failure> {
    Ok(Json(ask.shared.backend.move_slot(asked).await?))
}

pub(super) async fn split<B: AggregatorProcess>(ask: Ask<B>, said: SplitSlotBody) -> Result<Json<SplitBody>, Failure> {
    let SplitSlotBody { slot, at } = said;
    let named = at.map(|at| parse_counter(&at).map_err(|error| Failure::invalid("at", error)));
    Ok(Json(ask.shared.backend.split_slot(slot, named.transpose()?).await?))
}

pub(super) async fn stay<B: AggregatorProcess>(ask: Ask<B>, said: StaySlotBody) -> Result<Json<SlotBody>, Failure> {
    Ok(Json(ask.shared.backend.stay_slot(said.slot).await?))
}

pub(super) async fn list<B: AggregatorProcess>(ask: Ask<B>) -> Result<Json<SlotsBody>, Failure> {
    Ok(Json(ask.shared.backend.slots().await?))
}
