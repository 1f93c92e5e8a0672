//! `GET /v1/dead-letters`, `POST /v1/dead-letters/replay` and `POST /v1/dead-letters/drop`: refused events of a running server.

use super::Server;
use super::answer::{Answer, Failure};
use super::events::unpacked;
use super::request::{self, Params, shown};
use crate::catalogue::Latest;
use crate::dead_letters::{Chosen, Fixed, LetterKey, Select, Tried};
use crate::engine::{LetterAction, LetterBlobs, LettersRequest, Message, SettleError, SettleRequest, SettledBlob};
use crate::masking::Masking;
use crate::node::{Node, now_ms};
use crate::settings::{LETTERS_BYTES_MAX, LETTERS_DEFAULT, LETTERS_MAX, LETTERS_TIME_S, REFUSED_LETTERS_MAX};
use hyper::body::Incoming;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::{Request, StatusCode};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::fmt;
use std::time::{Duration, Instant};
use tidemark_streams_core::blob::{BlobKey, BlobMeta};
use tidemark_streams_core::owner::DeadLetter;
use tidemark_streams_core::time::{Day, Now};
use tidemark_streams_intake::body::Rules;
use tidemark_streams_intake::limits::BODY_BYTES_MAX;
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
    /// The first letters that were tried and refused.
    refused: Vec<Refused>,
    /// Lines of repaired letters that name a letter.
    known: usize,
    problem: Option<Failure>,
}

/// A letter that stays, and why.
struct Refused {
    key: LetterKey,
    reason: String,
}

impl Settled {
    fn note_refused(&mut self, letters: &[DeadLetter], tried: &[Tried]) {
        let room = REFUSED_LETTERS_MAX - self.refused.len();
        let refused = letters.iter().zip(tried).filter_map(|(letter, tried)| {
            Some(Refused { key: LetterKey::of(letter), reason: tried.refused()?.to_owned() })
        });
        self.refused.extend(refused.take(room));
    }
}

pub async fn list(server: &Server, headers: &HeaderMap, params: &Params) -> Result<Answer, Failure> {
    let node = &server.node;
    request::authorize_operator(node, headers)?;
    let select = select(params)?;
    let is_raw = request::flag(params, "raw")?;
    let limit = limit(params)?;
    let from = params.get("from").map(|text| cursor(text)).transpose()?;
    let _permit = server.letters.try_acquire().map_err(|_| busy())?;
    let LetterBlobs { metas, unwritten } = blobs(node, false).await?;
    let listed = tokio::task::block_in_place(|| {
        let mut listed = listed(node, &metas, &select, limit, from);
        if !is_raw {
            mask(node, &mut listed.letters);
        }
        listed
    });
    if let Some(problem) = listed.problem.clone().filter(|_| listed.letters.is_empty() && listed.next.is_none()) {
        return Err(problem);
    }
    if is_raw {
        node.counters().letters_raw.add(listed.letters.len() as u64);
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

/// Masks values that a list does not show.
fn mask(node: &Node, letters: &mut [DeadLetter]) {
    let names = node.names();
    let masking = Masking { fields: &node.settings.mask_fields, dimensions: &names.schema.dimensions().names };
    for letter in letters {
        if let Cow::Owned(text) = masking.text(&letter.text) {
            letter.text = text;
        }
    }
}

/// Replays letters. With `fixed=true` the body has texts that are read in place of those of the letters.
pub async fn replay(server: &Server, request: Request<Incoming>, params: &Params) -> Result<Answer, Failure> {
    let node = &server.node;
    request::check_site(request.headers())?;
    request::authorize_operator(node, request.headers())?;
    let select = select(params)?;
    let _permit = server.letters.try_acquire().map_err(|_| busy())?;
    let fixed = fixed(request, request::flag(params, "fixed")?).await?;
    let chosen = Chosen { select, fixed: fixed.as_ref() };
    settle(node, params, &chosen, LetterAction::Replay).await
}

pub async fn give_up(server: &Server, headers: &HeaderMap, params: &Params) -> Result<Answer, Failure> {
    let node = &server.node;
    request::check_site(headers)?;
    request::authorize_operator(node, headers)?;
    let select = select(params)?;
    match (request::flag(params, "all")?, select.is_empty()) {
        (false, true) => {
            let message = "no dead letters are named: name source, row, reason or tenant, or all=true for all of them";
            return Err(Failure::bad("parameter", message));
        }
        (true, false) => {
            let message = "all=true stands beside source, row, reason or tenant: name the letters, or all of them";
            return Err(Failure::bad("parameter", message));
        }
        (false, false) | (true, true) => {}
    }
    let _permit = server.letters.try_acquire().map_err(|_| busy())?;
    settle(node, params, &Chosen { select, fixed: None }, LetterAction::Drop).await
}

/// The texts of a body. A body without `fixed=true` is refused: its texts would be left unread, and all letters replayed as they are.
async fn fixed(request: Request<Incoming>, is_asked: bool) -> Result<Option<Fixed>, Failure> {
    let coding = request::coding(request.headers())?;
    let packed = request::body(request, BODY_BYTES_MAX).await?;
    let body = unpacked(coding, &packed)?;
    let is_empty = body.trim_ascii().is_empty();
    match (is_asked, is_empty) {
        (false, true) => Ok(None),
        (false, false) => {
            let message = "the request has a body: add fixed=true if it has repaired letters, or leave it out";
            Err(Failure::bad("malformed_body", message))
        }
        (true, true) => Err(Failure::bad("malformed_body", "the body has no letters: send lines as the list has them")),
        (true, false) => match tokio::task::block_in_place(|| Fixed::read(&body)) {
            Ok(fixed) => Ok(Some(fixed)),
            Err(error) => Err(Failure::bad("malformed_body", format!("nothing was replayed: {error}"))),
        },
    }
}

async fn settle(node: &Node, params: &Params, chosen: &Chosen<'_>, action: LetterAction) -> Result<Answer, Failure> {
    let from = params.get("from").map(|text| cursor(text)).transpose()?;
    let by = Instant::now() + Duration::from_secs(LETTERS_TIME_S);
    let LetterBlobs { mut metas, unwritten } = blobs(node, true).await?;
    metas.retain(|meta| from.is_none_or(|from| meta.key >= from.key));
    let Settled { replayed, dropped, kept, is_incomplete, next, refused, known, problem } =
        settle_all(node, &metas, chosen, action, by).await;
    // The sender has to know what was settled, whatever failed later.
    if let Some(failure) = problem.clone().filter(|_| replayed + dropped == 0) {
        return Err(failure);
    }
    let is_complete = !is_incomplete && unwritten == 0;
    let is_whole = is_complete && from.is_none();
    let errors: Vec<Value> = refused
        .iter()
        .map(
            |Refused { key, reason }| json!({ "source": key.source.to_string(), "row": key.row + 1, "reason": reason }),
        )
        .collect();
    let mut answer = json!({
        "replayed": replayed,
        "dropped": dropped,
        "kept": kept,
        "is_complete": is_complete,
        "next": next.map(|key| Cursor { key, passed: 0 }.to_string()),
        "unwritten": unwritten,
        "errors": errors,
        "problem": problem.map(|failure| failure.message),
    });
    if let Some(fixed) = chosen.fixed {
        answer["missing"] = json!(is_whole.then(|| fixed.len().saturating_sub(known)));
    }
    Ok(Answer::json(&answer))
}

/// Settles the letters of one blob after another. The owner does other work in between.
async fn settle_all(
    node: &Node,
    metas: &[BlobMeta],
    chosen: &Chosen<'_>,
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
        match settle_blob(node, meta, chosen, action, by, &mut settled).await {
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
    chosen: &Chosen<'_>,
    action: LetterAction,
    by: Instant,
    settled: &mut Settled,
) -> Result<bool, Failure> {
    // Texts are read here, not on the owner's thread.
    let tried = || {
        let letters = read(node, meta)?;
        let tried = tried(node, chosen, action, &letters)?;
        Ok((letters, tried))
    };
    let (letters, tried): (Vec<DeadLetter>, Vec<Tried>) = tokio::task::block_in_place(tried)?;
    settled.known += chosen.fixed.map_or(0, |fixed| fixed.known(&letters));
    let meant = Tried::meant(&tried);
    if meant == 0 {
        return Ok(true);
    }
    settled.note_refused(&letters, &tried);
    let (sender, receiver) = oneshot::channel();
    let request = SettleRequest { key: meta.key, letters, tried, action, by, answer: sender };
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

/// What is to become of the letters of a blob.
fn tried(
    node: &Node,
    chosen: &Chosen<'_>,
    action: LetterAction,
    letters: &[DeadLetter],
) -> Result<Vec<Tried>, Failure> {
    match action {
        LetterAction::Drop => Ok(chosen.given_up(letters)),
        LetterAction::Replay => {
            let types = node.names().types;
            let tenants = Latest::of(&node.catalogue);
            // The owner refuses days that are not kept. Those are fewer than the intake refuses.
            let rules = Rules { now: Now(now_ms()), types: &types, kept_from: Day(0), seed: 0, tenants: &tenants };
            let failed = |error| Failure::later("catalogue_failed", error);
            chosen.replayed(letters, &rules).map_err(failed)
        }
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
    node.queries.fetcher.reader.letters(meta).map_err(failed)
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
    }
}
