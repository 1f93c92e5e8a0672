//! `POST /v1/pause` and `POST /v1/resume`: what operators ask of the manifest.

use super::answer::{Answer, Failure};
use super::request::{self, Params};
use crate::engine::{Message, PARTITION, Proposal, ProposalError};
use crate::node::{Node, now_ms};
use hyper::header::HeaderMap;
use serde_json::{Map, Value, json};
use tidemark_proto::series::UnixTime;
use tidemark_proto::series::calendar::Zone;
use tidemark_streams_core::manifest::{Command, Outcome, SetPause};
use tidemark_streams_core::pause::PauseTarget;
use tokio::sync::oneshot;

pub async fn pause(node: &Node, headers: &HeaderMap, params: &Params) -> Result<Answer, Failure> {
    set_pause(node, headers, params, Some(now_ms())).await
}

pub async fn resume(node: &Node, headers: &HeaderMap, params: &Params) -> Result<Answer, Failure> {
    set_pause(node, headers, params, None).await
}

async fn set_pause(
    node: &Node,
    headers: &HeaderMap,
    params: &Params,
    paused_at_ms: Option<u64>,
) -> Result<Answer, Failure> {
    request::authorize_operator(node, headers)?;
    let target = match params.get("type") {
        None => PauseTarget::Partition(PARTITION),
        Some(name) => PauseTarget::EventType(name.clone()),
    };
    let outcome = propose(node, Command::Pause(SetPause { target, paused_at_ms })).await?;
    if let Outcome::Pause { result: Err(refused) } = outcome {
        return Err(Failure::bad("parameter", refused));
    }
    Ok(Answer::json(&paused(node)))
}

/// What is paused, since when.
fn paused(node: &Node) -> Value {
    let pauses = node.pauses();
    let types: Map<String, Value> = pauses.types().map(|(name, at_ms)| (name.to_owned(), time(at_ms))).collect();
    json!({ "partition": pauses.of_partition(PARTITION).map(time), "types": types })
}

/// A time in milliseconds since 1970 as a text of UTC.
pub fn time(at_ms: u64) -> Value {
    UnixTime::from_s((at_ms / 1_000) as i64).map_or(Value::Null, |at| json!(Zone::UTC.text(at)))
}

/// Has the owner's thread propose a command.
async fn propose(node: &Node, command: Command) -> Result<Outcome, Failure> {
    let (sender, receiver) = oneshot::channel();
    node.engine
        .try_send(Message::Propose(Proposal { command, answer: sender }))
        .map_err(|_| Failure::later("overloaded", "the owner has too many messages"))?;
    let ended = |_| Failure::later("not_serving", "the owner's thread has ended");
    receiver.await.map_err(ended)?.map_err(|error| match error {
        ProposalError::Manifest(_) | ProposalError::NotServing(_) => Failure::later("not_serving", error),
    })
}
