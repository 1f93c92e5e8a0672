//! `GET /v1/dead-letters`, `POST /v1/dead-letters/replay` and `POST /v1/dead-letters/drop`: refused events of a running server.

use super::Server;
use super::answer::{Answer, Failure};
use super::request::{self, Params, shown};
use crate::dead_letters::Select;
use crate::engine::{LetterAction, LetterBlobs, LettersRequest, Message, SettleError, SettleRequest, SettledBlob};
use crate::node::Node;
use crate::settings::{LETTERS_BYTES_MAX, LETTERS_DEFAULT, LETTERS_MAX, LETTERS_TIME_S};
use hyper::StatusCode;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::json;
use std::fmt;
use std::time::{Duration, Instant};
use tidemark_streams_core::blob::{BlobKey, BlobMeta};
use tidemark_streams_core::owner::DeadLetter;
use tidemark_streams_store::dead_letters::encode;
use tokio::sync::oneshot;

/// A flush before a replay may take so long.
const FLUSH_WAIT: Duration = Duration::from_secs(5);
/// The last blob of a request may take so long after the request's time is over.
const LAST_BLOB_WAIT: Duration = Duration::from_secs(5);

const BLOB_FAILED: &str = "blob_failed";

/// Where a list goes on: the blob, and letters of it that were passed.
#[derive(Clone, Copy)]
struct Cursor {
    key: BlobKey,
    passed: usize,
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.key, self.passed)
    }
}

/// A part of the letters.
#[derive(Default)]
struct Listed {
    letters: Vec<DeadLetter>,
    next: Option<Cursor>,
    /// Why a blob was passed over.
    problem: Option<Failure>,
}

/// The results of a replay or drop.
#[derive(Default)]
struct Settled {
    replayed: u64,
    dropped: u64,
    /// Letters that were meant and stay.
    kept: u64,
    /// Letters that were meant were left out: time was over, or their blob was replaced or cannot be read.
    is_incomplete: bool,
    /// Where another request goes on.
    next: Option<BlobKey>,
    problem: Option<Failure>,
}

pub async fn list(server: &Server, headers: &HeaderMap, params: &Params) -> Result<Answer, Failure> {
    let node = &server.node;
    request::authorize_operator(node, headers)?;
    let select = select(params)?;
    let limit = limit(params)?;
    let from = params.get("from").map(|text| cursor(text)).transpose()?;
    let _permit = server.letters.try_acquire().map_err(|_| busy())?;
    let LetterBlobs { metas, unwritten } = blobs(node, false).await?;
    let listed = tokio::task::block_in_place(|| listed(node, &metas, &select, limit, from));
    if let Some(problem) = listed.problem.clone().filter(|_| listed.letters.is_empty() && listed.next.is_none()) {
        return Err(problem);
    }
    let failed = |error| Failure::new(StatusCode::INTERNAL_SERVER_ERROR, BLOB_FAILED, error);
    let answer = Answer::of_kind("application/x-ndjson", encode(&listed.letters).map_err(failed)?);
    let answer = answer.with(HeaderName::from_static("tidemark-unwritten"), HeaderValue::from(unwritten));
    let next = listed.next.map(|cursor| cursor.to_string());
    let problem = listed.problem.map(|failure| failure.message);
    let headers = [("tidemark-next", next), ("tidemark-problem", problem)];
    Ok(headers.into_iter().fold(answer, |answer, (name, text)| {
        match text.and_then(|text| HeaderValue::from_str(&text).ok()) {
            Some(value) => answer.with(HeaderName::from_static(name), value),
            None => answer,
        }
    }))
}

pub async fn replay(server: &Server, headers: &HeaderMap, params: &Params) -> Result<Answer, Failure> {
    settle(server, headers, params, LetterAction::Replay).await
}

pub async fn give_up(server: &Server, headers: &HeaderMap, params: &Params) -> Result<Answer, Failure> {
    settle(server, headers, params, LetterAction::Drop).await
}

async fn settle(
    server: &Server,
    headers: &HeaderMap,
    params: &Params,
    action: LetterAction,
) -> Result<Answer, Failure> {
    let node = &server.node;
    request::check_site(headers)?;
    request::authorize_operator(node, headers)?;
    let select = select(params)?;
    match (action, request::flag(params, "all")?, select.is_empty()) {
        (LetterAction::Drop, false, true) => {
            let message = "no dead letters are named: name source, row, reason or tenant, or all=true for all of them";
            return Err(Failure::bad("parameter", message));
        }
        (LetterAction::Drop, true, false) => {
            let message = "all=true stands beside source, row, reason or tenant: name the letters, or all of them";
            return Err(Failure::bad("parameter", message));
        }
        (LetterAction::Drop, ..) | (LetterAction::Replay, ..) => {}
    }
    let from = params.get("from").map(|text| cursor(text)).transpose()?;
    let _permit = server.letters.try_acquire().map_err(|_| busy())?;
    let by = Instant::now() + Duration::from_secs(LETTERS_TIME_S);
    let LetterBlobs { mut metas, unwritten } = blobs(node, true).await?;
    metas.retain(|meta| from.is_none_or(|from| meta.key >= from.key));
    let Settled { replayed, dropped, kept, is_incomplete, next, problem } =
        settle_all(node, &metas, &select, action, by).await;
    // The sender has to know what was settled, whatever failed later.
    if let Some(failure) = problem.clone().filter(|_| replayed + dropped == 0) {
        return Err(failure);
    }
    Ok(Answer::json(&json!({
        "replayed": replayed,
        "dropped": dropped,
        "kept": kept,
        "is_complete": !is_incomplete && unwritten == 0,
        "next": next.map(|key| Cursor { key, passed: 0 }.to_string()),
        "unwritten": unwritten,
        "problem": problem.map(|failure| failure.message),
    })))
}

/// Settles the letters of one blob after another. The owner does other work in between.
async fn settle_all(
    node: &Node,
    metas: &[BlobMeta],
    select: &Select<'_>,
    action: LetterAction,
    by: Instant,
) -> Settled {
    let mut settled = Settled::default();
    for meta in metas {
        if Instant::now() >= by {
            settled.is_incomplete = true;
            settled.next = Some(meta.key);
            break;
        }
        match settle_blob(node, meta, select, action, by, &mut settled).await {
            Ok(true) => {}
            Ok(false) => {
                settled.is_incomplete = true;
                settled.next = Some(meta.key);
                break;
            }
            // A blob that cannot be read does not keep the others from being settled.
            Err(failure) => {
                let goes_on = failure.code == BLOB_FAILED;
                settled.is_incomplete = true;
                settled.problem.get_or_insert(failure);
                if !goes_on {
                    break;
                }
            }
        }
    }
    settled
}

/// Settles the letters of a blob. `false`: time is over.
async fn settle_blob(
    node: &Node,
    meta: &BlobMeta,
    select: &Select<'_>,
    action: LetterAction,
    by: Instant,
    settled: &mut Settled,
) -> Result<bool, Failure> {
    let letters = tokio::task::block_in_place(|| read(node, meta))?;
    let is_meant: Vec<bool> = letters.iter().map(|letter| select.has(letter)).collect();
    let meant = is_meant.iter().filter(|is_meant| **is_meant).count() as u64;
    if meant == 0 {
        return Ok(true);
    }
    let (sender, receiver) = oneshot::channel();
    let request = SettleRequest { key: meta.key, letters, is_meant, action, by, answer: sender };
    node.engine.try_send(Message::Settle(request)).map_err(|_| overloaded())?;
    match answered(receiver, by + LAST_BLOB_WAIT).await? {
        SettledBlob::Done { replayed, dropped } => {
            settled.replayed += replayed;
            settled.dropped += dropped;
            settled.kept += meant.saturating_sub(replayed + dropped);
            Ok(true)
        }
        SettledBlob::Replaced => {
            settled.is_incomplete = true;
            Ok(true)
        }
        SettledBlob::TimeIsOver => Ok(false),
    }
}

/// The owner's answer, unless it takes too long.
async fn answered(
    receiver: oneshot::Receiver<Result<SettledBlob, SettleError>>,
    by: Instant,
) -> Result<SettledBlob, Failure> {
    match tokio::time::timeout_at(by.into(), receiver).await {
        Ok(answer) => answer.map_err(|_| ended())?.map_err(failure),
        Err(_) => Ok(SettledBlob::TimeIsOver),
    }
}

async fn blobs(node: &Node, flushes: bool) -> Result<LetterBlobs, Failure> {
    let (sender, receiver) = oneshot::channel();
    let request = LettersRequest { flushes, by: Instant::now() + FLUSH_WAIT, answer: sender };
    node.engine.try_send(Message::Letters(request)).map_err(|_| overloaded())?;
    receiver.await.map_err(|_| ended())?.map_err(failure)
}

/// Letters until the limit, the bytes of an answer, or the time is reached.
fn listed(node: &Node, metas: &[BlobMeta], select: &Select<'_>, limit: usize, from: Option<Cursor>) -> Listed {
    let by = Instant::now() + Duration::from_secs(LETTERS_TIME_S);
    let mut listed = Listed::default();
    let mut bytes = 0;
    for meta in metas.iter().filter(|meta| from.is_none_or(|from| meta.key >= from.key)) {
        let passed = from.filter(|from| from.key == meta.key).map_or(0, |from| from.passed);
        if Instant::now() >= by {
            listed.next = Some(Cursor { key: meta.key, passed });
            return listed;
        }
        // A blob that cannot be read does not hide the others.
        let letters = match read(node, meta) {
            Ok(letters) => letters,
            Err(failure) => {
                listed.problem.get_or_insert(failure);
                continue;
            }
        };
        for (at, letter) in letters.into_iter().enumerate().skip(passed).filter(|(_, letter)| select.has(letter)) {
            if listed.letters.len() == limit || bytes >= LETTERS_BYTES_MAX {
                listed.next = Some(Cursor { key: meta.key, passed: at });
                return listed;
            }
            bytes += letter.text.len() + letter.reason.len();
            listed.letters.push(letter);
        }
    }
    listed
}

fn read(node: &Node, meta: &BlobMeta) -> Result<Vec<DeadLetter>, Failure> {
    let failed = |error| Failure::new(StatusCode::INTERNAL_SERVER_ERROR, BLOB_FAILED, error);
    node.reader.letters(meta).map_err(failed)
}

fn select(params: &Params) -> Result<Select<'_>, Failure> {
    let text = |name: &str| params.get(name).map(String::as_str);
    let empty = ["source", "row", "reason", "tenant"].into_iter().find(|name| text(name) == Some(""));
    if let Some(name) = empty {
        return Err(Failure::bad("parameter", format!("{name} is empty: leave it out, or say which letters it means")));
    }
    let source = text("source");
    if let Some(begin) = source.filter(|begin| !begin.bytes().all(|byte| byte.is_ascii_hexdigit())) {
        let message = format!("source {:?}: the begin of a digest, in hexadecimal digits", shown(begin));
        return Err(Failure::bad("parameter", message));
    }
    let row = text("row").map(|text| number(text, "row", u64::MAX)).transpose()?;
    Ok(Select { source, row, reason: text("reason"), tenant: text("tenant") })
}

fn limit(params: &Params) -> Result<usize, Failure> {
    let text = params.get("limit");
    let limit = text.map(|text| number(text, "limit", LETTERS_MAX as u64)).transpose()?;
    Ok(limit.map_or(LETTERS_DEFAULT, |limit| limit as usize))
}

fn number(text: &str, name: &str, max: u64) -> Result<u64, Failure> {
    let wrong = || Failure::bad("parameter", format!("{name} {:?}: a whole number from 1 to {max}", shown(text)));
    let found: u64 = text.parse().map_err(|_| wrong())?;
    if (1..=max).contains(&found) { Ok(found) } else { Err(wrong()) }
}

fn cursor(text: &str) -> Result<Cursor, Failure> {
    let read = || {
        let (key, passed) = text.split_once('.')?;
        Some(Cursor { key: key.parse().ok()?, passed: passed.parse().ok()? })
    };
    let wrong = || {
        let message = format!("from {:?}: the value of the header tidemark-next of an answer", shown(text));
        Failure::bad("parameter", message)
    };
    read().ok_or_else(wrong)
}

fn busy() -> Failure {
    Failure::later("overloaded", "too many requests about dead letters at a time")
}

fn overloaded() -> Failure {
    Failure::later("overloaded", "the owner has too many messages")
}

fn ended() -> Failure {
    Failure::later("not_serving", "the owner's thread has ended: send the request again, no letter counts twice")
}

fn failure(error: SettleError) -> Failure {
    match error {
        SettleError::NotServing(_) => Failure::later("not_serving", error),
        SettleError::Paused => Failure::later("partition_paused", error),
        SettleError::TypePaused(_) => Failure::later("type_paused", error),
        SettleError::Lookup(_) => Failure::later("catalogue_failed", error),
    }
}
