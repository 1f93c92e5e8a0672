//! Webhooks as operators see them: what waits, what was given up, and what may be asked for. All of it needs the token.

use super::operation::Ask;
use super::typed::Json;
use super::{AggregatorProcess, Failure};
use crate::names::key_bytes;
use crate::webhook::{HeldBody, Redelivered, TestResult, WebhookStatus, Webhooks, WebhooksBody};
use schemars::JsonSchema;
use serde::Deserialize;

/// `POST …/redeliver`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RedeliverBody {
    /// Of one dead letter; all when left out.
    #[serde(default)]
    id: Option<String>,
}

/// `POST …/test`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NothingBody {}

pub(super) async fn list<B: AggregatorProcess>(ask: Ask<B>) -> Result<Json<WebhooksBody>, Failure> {
    let webhooks = match &ask.shared.webhooks {
        Some(webhooks) => webhooks.list().await,
        None => Vec::new(),
    };
    Ok(Json(WebhooksBody { webhooks }))
}

pub(super) async fn redeliver<B: AggregatorProcess>(
    ask: Ask<B>,
    said: RedeliverBody,
) -> Result<Json<Redelivered>, Failure> {
    let (webhooks, name) = named(&ask)?;
    Ok(Json(webhooks.redeliver(&name, said.id).await?))
}

pub(super) async fn hold<B: AggregatorProcess>(ask: Ask<B>, said: HeldBody) -> Result<Json<WebhookStatus>, Failure> {
    let (webhooks, name) = named(&ask)?;
    Ok(Json(webhooks.hold(&name, said.held).await?))
}

pub(super) async fn test<B: AggregatorProcess>(ask: Ask<B>, _: NothingBody) -> Result<Json<TestResult>, Failure> {
    let (webhooks, name) = named(&ask)?;
    Ok(Json(webhooks.test(&name).await?))
}

/// The webhooks, and the name of the one that the path is about.
fn named<B: AggregatorProcess>(ask: &Ask<B>) -> Result<(&Webhooks, String), Failure> {
    let name = String::from_utf8_lossy(&key_bytes(ask.rest())).into_owned();
    match &ask.shared.webhooks {
        Some(webhooks) => Ok((webhooks, name)),
        None => Err(Failure::NotFound(format!("there is no webhook {name:?}"))),
    }
}
