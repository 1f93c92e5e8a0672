//! Webhooks as operators see them: what waits, what was given up, and what may be asked for. All of it needs the token.

use super::answer::json;
use super::body;
use super::routes::{AppState, Body, below, whole};
use super::server::Shared;
use super::{Backend, Failure};
use crate::names::key_bytes;
use crate::webhook::{HeldBody, Webhooks, WebhooksBody};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use serde::Deserialize;

/// `POST …/redeliver`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RedeliverBody {
    /// Of one dead letter; all when left out.
    #[serde(default)]
    id: Option<String>,
}

/// `POST …/test`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct NothingBody {}

pub(super) async fn list<B: Backend>(State(shared): AppState<B>, headers: HeaderMap) -> Result<Response, Failure> {
    shared.access.write(&headers)?;
    let webhooks = match &shared.webhooks {
        Some(webhooks) => webhooks.list().await,
        None => Vec::new(),
    };
    Ok(json(StatusCode::OK, &WebhooksBody { webhooks }))
}

/// `{name}/redeliver`, `{name}/hold` or `{name}/test`.
pub(super) async fn ask<B: Backend>(
    State(shared): AppState<B>,
    headers: HeaderMap,
    uri: Uri,
    bytes: Body,
) -> Result<Response, Failure> {
    shared.access.write(&headers)?;
    let rest = below(&uri, "/v1/webhooks/");
    let (name, verb) = rest.rsplit_once('/').unwrap_or((rest, ""));
    let name = String::from_utf8_lossy(&key_bytes(name)).into_owned();
    let webhooks = known(&shared, &name)?;
    let bytes = whole(bytes)?;
    match verb {
        "redeliver" => {
            let RedeliverBody { id } = body::parse(&bytes)?;
            Ok(json(StatusCode::OK, &webhooks.redeliver(&name, id).await?))
        }
        "hold" => {
            let HeldBody { held } = body::parse(&bytes)?;
            Ok(json(StatusCode::OK, &webhooks.hold(&name, held).await?))
        }
        "test" => {
            let NothingBody {} = body::parse(&bytes)?;
            Ok(json(StatusCode::OK, &webhooks.test(&name).await?))
        }
        _ => Err(Failure::NotFound("POST needs a path that ends in /redeliver, /hold or /test".to_owned())),
    }
}

fn known<'s, B>(shared: &'s Shared<B>, name: &str) -> Result<&'s Webhooks, Failure> {
    shared.webhooks.as_ref().ok_or_else(|| Failure::NotFound(format!("there is no webhook {name:?}")))
}
