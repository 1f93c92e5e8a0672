//! `…/life`, `…/reset`, and `DELETE` of a counter: counters that begin again.
//!
//! `if_generation` may stand in the URL or in the body. A counter of which nothing is known is not found, and nothing is kept of it.

use super::operation::Ask;
use super::params::value;
use super::server::Shared;
use super::typed::Json;
use super::{AggregatorProcess, Failure};
use crate::lives::{BegunBody, ExpiryBody, LifeBody, Lives, ResetBody};

pub(super) async fn show<B: AggregatorProcess>(ask: Ask<B>) -> Result<Json<LifeBody>, Failure> {
    Ok(Json(lives(&ask.shared)?.of(&ask.counter()?).await?))
}

pub(super) async fn reset<B: AggregatorProcess>(ask: Ask<B>, said: ResetBody) -> Result<Json<BegunBody>, Failure> {
    begin_again(&ask, true, said).await
}

pub(super) async fn remove<B: AggregatorProcess>(ask: Ask<B>, said: ResetBody) -> Result<Json<BegunBody>, Failure> {
    begin_again(&ask, false, said).await
}

async fn begin_again<B: AggregatorProcess>(
    ask: &Ask<B>,
    keeps_milestones: bool,
    said: ResetBody,
) -> Result<Json<BegunBody>, Failure> {
    let counter = ask.counter()?;
    let if_generation = generation_of(ask, said.if_generation)?;
    let lives = lives(&ask.shared)?;
    Ok(Json(lives.reset(&counter, keeps_milestones, if_generation).await?))
}

pub(super) async fn expire<B: AggregatorProcess>(ask: Ask<B>, said: ExpiryBody) -> Result<Json<LifeBody>, Failure> {
    let counter = ask.counter()?;
    let if_generation = generation_of(&ask, said.if_generation)?;
    let lives = lives(&ask.shared)?;
    Ok(Json(lives.expire(&counter, ExpiryBody { if_generation, ..said }).await?))
}

/// Said in the URL, in the body, or in both if they agree.
fn generation_of<B>(ask: &Ask<B>, in_body: Option<u32>) -> Result<Option<u32>, Failure> {
    let given = value(&ask.params, "if_generation");
    let refused = |text: &str| format!("if_generation is {text:?}: 0 to {} allowed", u32::MAX);
    let number = |text: &str| text.parse().map_err(|_| Failure::invalid("if_generation", refused(text)));
    match (given.map(number).transpose()?, in_body) {
        (Some(in_url), Some(in_body)) if in_url != in_body => {
            let message =
                format!("if_generation is {in_url} in the URL and {in_body} in the body: one of both is needed");
            Err(Failure::invalid("if_generation", message))
        }
        (in_url, in_body) => Ok(in_url.or(in_body)),
    }
}

fn lives<B: AggregatorProcess>(shared: &Shared<B>) -> Result<&Lives, Failure> {
    shared.backend.lives().ok_or_else(|| Failure::NotFound("counters are reset at aggregators only".to_owned()))
}
