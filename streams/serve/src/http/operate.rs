//! `POST /v1/pause`, `POST /v1/resume` and `POST /v1/erase`: what operators ask of the manifest.

use super::answer::{Answer, Failure};
use super::question;
use super::request::{self, Params};
use super::tables;
use crate::engine::{EraseRequest, Erased, Message, PARTITION, Proposal, ProposalError};
use crate::node::{Node, now_ms};
use hyper::header::HeaderMap;
use serde_json::{Map, Value, json};
use tidemark_proto::series::UnixTime;
use tidemark_proto::series::calendar::Zone;
use tidemark_streams_core::erasure::{Erasure, ErasureKey};
use tidemark_streams_core::event::{check_listing, check_tenant, is_event_type_name};
use tidemark_streams_core::manifest::{Command, Outcome, SetPause};
use tidemark_streams_core::pause::PauseTarget;
use tidemark_streams_core::scope::TenantHash;
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
    request::check_site(headers)?;
    request::authorize_operator(node, headers)?;
    let target = match params.get("type") {
        None => PauseTarget::Partition(PARTITION),
        Some(name) => {
            // The manifest refuses a text that is no name.
            if paused_at_ms.is_some() && is_event_type_name(name) {
                let names = node.names();
                question::check_known(std::slice::from_ref(name), &names.schema, &names.types)?;
            }
            PauseTarget::EventType(name.clone())
        }
    };
    let outcome = propose(node, Command::Pause(SetPause { target, paused_at_ms })).await?;
    if let Outcome::Pause { result: Err(refused) } = outcome {
        return Err(Failure::bad("parameter", refused));
    }
    Ok(Answer::json(&paused(node)))
}

/// Erases a tenant or listing. Without `again` it only answers how far a known erasure is.
pub async fn erase(node: &Node, headers: &HeaderMap, params: &Params) -> Result<Answer, Failure> {
    request::check_site(headers)?;
    request::authorize_operator(node, headers)?;
    let missing = || Failure::bad("parameter", "tenant is missing: name the tenant to erase");
    let tenant = params.get("tenant").ok_or_else(missing)?;
    let listing = params.get("listing").map(String::as_str);
    check_tenant(tenant).map_err(|error| Failure::bad("parameter", error))?;
    listing.map_or(Ok(()), check_listing).map_err(|error| Failure::bad("parameter", error))?;
    let again = request::flag(params, "again")?;
    let begun = begin_erasure(node, ErasureKey::of(tenant, listing), again)?;
    let Erased { erasure, is_done, files_until_ms, raw_files } = begun.end().await?;
    // Rows that queries have read go too, and tables of the tenant.
    node.queries.stores.forget_blobs();
    let Erasure { before, asked_at_ms, .. } = erasure;
    if listing.is_none() {
        tables::erase(node, TenantHash::of(tenant), asked_at_ms)?;
    }
    Ok(Answer::json(&json!({
        "asked_at": time(asked_at_ms),
        "erased_before": time(before.start_s() * 1_000),
        "is_done": is_done,
        "files_until": files_until_ms.map(time),
        "raw_files": raw_files,
    })))
}

/// An erasure that the owner's thread was asked for.
pub(super) struct Begun(oneshot::Receiver<Result<Erased, ProposalError>>);

impl Begun {
    /// Waits until the erasure is in the manifest.
    pub async fn end(self) -> Result<Erased, Failure> {
        self.0.await.map_err(|_| ended())?.map_err(failed)
    }
}

pub(super) fn begin_erasure(node: &Node, key: ErasureKey, again: bool) -> Result<Begun, Failure> {
    let (sender, receiver) = oneshot::channel();
    let request = EraseRequest { key, again, answer: sender };
    node.engine.try_send(Message::Erase(request)).map_err(|_| overloaded())?;
    Ok(Begun(receiver))
}

/// The pauses, with their begin.
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
pub(super) async fn propose(node: &Node, command: Command) -> Result<Outcome, Failure> {
    let (sender, receiver) = oneshot::channel();
    node.engine.try_send(Message::Propose(Proposal { command, answer: sender })).map_err(|_| overloaded())?;
    receiver.await.map_err(|_| ended())?.map_err(failed)
}

fn overloaded() -> Failure {
    Failure::later("overloaded", "the owner has too many messages")
}

fn ended() -> Failure {
    Failure::later("not_serving", "the owner's thread has ended")
}

fn failed(error: ProposalError) -> Failure {
    match error {
        ProposalError::Manifest(_) | ProposalError::NotServing(_) => Failure::later("not_serving", error),
        ProposalError::Erase(_) => Failure::later("erasures_full", error),
    }
}
