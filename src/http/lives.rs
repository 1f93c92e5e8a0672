//! `…/life`, `…/reset`, and `DELETE` of a counter: counters that begin again.

use super::answer::json;
use super::routes::{Body, number, whole};
use super::server::Shared;
use super::{Backend, Failure, body};
use crate::lives::{ExpiryBody, Lives, ResetBody};
use axum::http::StatusCode;
use axum::response::Response;
use tidemark_proto::ids::CounterName;

pub(super) async fn show<B: Backend>(shared: &Shared<B>, counter: &CounterName) -> Result<Response, Failure> {
    Ok(json(StatusCode::OK, &lives(shared)?.of(counter).await?))
}

pub(super) async fn reset<B: Backend>(
    shared: &Shared<B>,
    counter: &CounterName,
    bytes: Body,
) -> Result<Response, Failure> {
    let ResetBody { if_generation } = body::parse(&whole(bytes)?)?;
    Ok(json(StatusCode::OK, &lives(shared)?.reset(counter, true, if_generation).await?))
}

pub(super) async fn expire<B: Backend>(
    shared: &Shared<B>,
    counter: &CounterName,
    bytes: Body,
) -> Result<Response, Failure> {
    let wanted: ExpiryBody = body::parse(&whole(bytes)?)?;
    Ok(json(StatusCode::OK, &lives(shared)?.expire(counter, wanted).await?))
}

/// With `?if_generation=N` only that generation.
pub(super) async fn remove<B: Backend>(
    shared: &Shared<B>,
    counter: &CounterName,
    params: &[(String, String)],
) -> Result<Response, Failure> {
    let if_generation = match params {
        [] => None,
        [(name, text)] if name == "if_generation" && text == "0" => Some(0),
        [(name, text)] if name == "if_generation" => Some(number("if_generation", text, u32::MAX.into())? as u32),
        _ => return Err(Failure::invalid("parameter", "only ?if_generation=N is allowed")),
    };
    Ok(json(StatusCode::OK, &lives(shared)?.reset(counter, false, if_generation).await?))
}

fn lives<B: Backend>(shared: &Shared<B>) -> Result<&Lives, Failure> {
    shared.backend.lives().ok_or_else(|| Failure::NotFound("counters are reset at aggregators only".to_owned()))
}
