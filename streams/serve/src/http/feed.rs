//! `GET /v1/feed/...`: what query processes follow. Answers are binary, for this program only.

use super::Server;
use super::answer::{Answer, Failure};
use super::asking::refused;
use super::request::{self, Params, shown};
use crate::engine::{HeldRequest, Message, SnapshotRequest};
use crate::feed::NoPage;
use crate::following::HELD_BYTES_MAX;
use hyper::StatusCode;
use hyper::header::HeaderMap;
use std::str::FromStr;
use std::time::Duration;
use tidemark_streams_core::event::check_tenant;
use tidemark_streams_core::feed::SessionId;
use tidemark_streams_core::time::{Hour, HourRange};
use tokio::sync::{Semaphore, SemaphorePermit, oneshot};

const BINARY: &str = "application/octet-stream";
/// A request for rows waits so long for its turn. A query does not wait for its rows much longer.
const HELD_TURN_WAIT: Duration = Duration::from_millis(500);

/// The manifest at its present index.
pub async fn snapshot(server: &Server, headers: &HeaderMap) -> Result<Answer, Failure> {
    let node = &server.node;
    request::authorize_follower(node, headers)?;
    let _permit = permit(&server.snapshots)?;
    let (answer, receiver) = oneshot::channel();
    node.engine.try_send(Message::Snapshot(SnapshotRequest { answer })).map_err(|_| overloaded())?;
    let snapshot = receiver.await.map_err(|_| ended())?.map_err(refused)?;
    Ok(Answer::of_kind(BINARY, snapshot.encode()))
}

/// The commands after an index. Where there is none yet, the answer waits a moment.
pub async fn commands(server: &Server, headers: &HeaderMap, params: &Params) -> Result<Answer, Failure> {
    let node = &server.node;
    request::authorize_follower(node, headers)?;
    let session = SessionId(number(params, "session")?);
    let after = number(params, "after")?;
    let _permit = permit(&server.feeds)?;
    match node.feed.page(session, after).await {
        Ok(page) => Ok(Answer::of_kind(BINARY, page.encode())),
        Err(NoPage::Refused(refused)) => Err(Failure::new(StatusCode::CONFLICT, "feed_restart", refused)),
        Err(NoPage::NotServing) => Err(Failure::later("not_serving", NoPage::NotServing)),
    }
}

/// The rows of one tenant in a range of hours that the owner holds in memory.
pub async fn rows(server: &Server, headers: &HeaderMap, params: &Params) -> Result<Answer, Failure> {
    let node = &server.node;
    request::authorize_follower(node, headers)?;
    let missing = || Failure::bad("parameter", "tenant is missing: name the tenant");
    let tenant = params.get("tenant").cloned().ok_or_else(missing)?;
    check_tenant(&tenant).map_err(|error| Failure::bad("parameter", error))?;
    let hours = HourRange { first: Hour(number(params, "first")?), last: Hour(number(params, "last")?) };
    let turn = tokio::time::timeout(HELD_TURN_WAIT, server.held.acquire()).await;
    let _permit = turn.ok().and_then(Result::ok).ok_or_else(busy)?;
    let (answer, receiver) = oneshot::channel();
    let request = HeldRequest { tenant, hours, answer };
    node.engine.try_send(Message::Held(request)).map_err(|_| overloaded())?;
    let held = receiver.await.map_err(|_| ended())?.map_err(refused)?;
    let bytes = held.encode();
    if bytes.len() > HELD_BYTES_MAX {
        let message = format!("the rows have {} bytes: at most {HELD_BYTES_MAX}", bytes.len());
        return Err(Failure::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message));
    }
    Ok(Answer::of_kind(BINARY, bytes))
}

fn number<T: FromStr>(params: &Params, name: &str) -> Result<T, Failure> {
    let text = params.get(name).map_or("", String::as_str);
    text.parse().map_err(|_| Failure::bad("parameter", format!("{name} {:?} is no number", shown(text))))
}

fn permit(permits: &Semaphore) -> Result<SemaphorePermit<'_>, Failure> {
    permits.try_acquire().map_err(|_| busy())
}

fn busy() -> Failure {
    Failure::later("overloaded", "too many requests of query processes at a time")
}

fn overloaded() -> Failure {
    Failure::later("overloaded", "the owner has too many messages")
}

fn ended() -> Failure {
    Failure::later("not_serving", "the owner's thread has ended")
}
