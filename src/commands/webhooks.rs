//! `tidemark webhooks`: what receivers of awards have not acknowledged, and what an operator can do about it.

use super::{Outcome, block_on, show};
use crate::remote::{Remote, RemoteError};
use clap::{Args, Subcommand};
use hyper::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::process::ExitCode;
use tidemark_proto::time::WallMs;
use tidemark_server::webhook::{HeldBody, Redelivered, TestResult, WebhookStatus, WebhooksBody};

/// Arguments of `tidemark webhooks`.
#[derive(Debug, Args)]
pub struct Webhooks {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    remote: Remote,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List all receivers, with the oldest deliveries that were given up; the default command
    #[command(after_help = "Example:\n  tidemark webhooks list")]
    List,
    /// Send deliveries again that were given up
    #[command(after_help = "Example:\n  tidemark webhooks redeliver orders")]
    Redeliver {
        /// Name of the webhook
        name: String,
        /// Send only the delivery with this id [default: all]
        #[arg(long)]
        id: Option<String>,
    },
    /// Hold deliveries back until they are released
    #[command(after_help = "Example:\n  tidemark webhooks hold orders")]
    Hold {
        /// Name of the webhook
        name: String,
    },
    /// Release deliveries that were held, and enable a receiver again that answered 410 Gone
    #[command(after_help = "Example:\n  tidemark webhooks release orders")]
    Release {
        /// Name of the webhook
        name: String,
    },
    /// Send a delivery that is marked as a trial, and print the receiver's answer
    #[command(after_help = "Example:\n  tidemark webhooks test orders")]
    Test {
        /// Name of the webhook
        name: String,
    },
}

pub fn run(args: Webhooks) -> Outcome {
    block_on(async {
        let Webhooks { action, remote } = args;
        match action.unwrap_or(Action::List) {
            Action::List => {
                let found: WebhooksBody = remote.get("/v1/webhooks").await?;
                show(remote.json, &found, || list_text(&found))
            }
            Action::Redeliver { name, id } => {
                let body = serde_json::json!({ "id": id });
                let done: Redelivered = post(&remote, &name, "redeliver", &body).await?;
                show(remote.json, &done, || format!("{} sent again, {} still dead", done.queued, done.dead))
            }
            Action::Hold { name } => hold(&remote, &name, true).await,
            Action::Release { name } => hold(&remote, &name, false).await,
            Action::Test { name } => test(&remote, &name).await,
        }
    })
}

async fn hold(remote: &Remote, name: &str, held: bool) -> Outcome {
    let status: WebhookStatus = post(remote, name, "hold", &HeldBody { held }).await?;
    show(remote.json, &status, || text(&status))
}

async fn test(remote: &Remote, name: &str) -> Outcome {
    let result: TestResult = post(remote, name, "test", &serde_json::json!({})).await?;
    show(remote.json, &result, || result_text(&result))?;
    Ok(if result.status.is_some() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

pub(super) fn result_text(result: &TestResult) -> String {
    match (result.status, &result.error) {
        (Some(status), _) => format!("{} acknowledged with {status} after {} ms", result.id, result.millis),
        (None, error) => format!("{} failed: {}", result.id, error.as_deref().unwrap_or_default()),
    }
}

async fn post<A: DeserializeOwned>(
    remote: &Remote,
    name: &str,
    verb: &str,
    body: &impl Serialize,
) -> Result<A, RemoteError> {
    let name = utf8_percent_encode(name, NON_ALPHANUMERIC);
    remote.call(Method::POST, &format!("/v1/webhooks/{name}/{verb}"), Some(body)).await
}

fn list_text(found: &WebhooksBody) -> String {
    let lines: Vec<String> = found.webhooks.iter().map(text).collect();
    if lines.is_empty() { "no webhooks".to_owned() } else { lines.join("\n") }
}

fn text(status: &WebhookStatus) -> String {
    let WebhookStatus { name, url, open, sending, delivered, dead, .. } = status;
    let mut lines =
        vec![format!("{name} {url}: {open} open ({sending} under way), {delivered} delivered, {dead} dead")];
    lines.extend(status.held.then(|| "  held".to_owned()));
    lines.extend(status.disabled_unix_ms.map(|since| {
        format!(
            "  disabled since {}: the receiver answered 410 Gone; `tidemark webhooks release {name}` enables it again",
            WallMs(since)
        )
    }));
    lines.extend(status.failed.as_ref().map(|reason| format!("  failed: {reason}")));
    lines.extend(status.last_error.as_ref().map(|error| format!("  last error: {error}")));
    lines.extend(status.dead_letters.iter().map(|letter| {
        let counter = &letter.counter;
        let at = letter.at;
        let tries = letter.attempts;
        format!("  {} {counter} milestone {at}: given up after {tries} tries: {}", letter.id, letter.last_error)
    }));
    lines.join("\n")
}
