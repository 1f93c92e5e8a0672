//! `POST /v1/events`: takes events. They are acknowledged once they are durable.

use super::Server;
use super::answer::{Answer, Failure};
use super::request::{self, Params, shown};
use crate::catalogue::Latest;
use crate::log::{Submission, SubmitRefused, Ticket};
use crate::node::{Node, now_ms};
use hyper::body::Incoming;
use hyper::{Request, StatusCode};
use serde_json::{Value, json};
use std::borrow::Cow;
use tidemark_consensus::local::PersistError;
use tidemark_proto::hash::bytes_hash;
use tidemark_streams_core::event::EventTypes;
use tidemark_streams_core::time::Now;
use tidemark_streams_intake::body::{self, BodyError, Decoded, Named, Rules};
use tidemark_streams_intake::entry::{Answer as Counted, BatchOf, Event};
use tidemark_streams_intake::limits::BODY_BYTES_MAX;
use tidemark_streams_intake::producers::{ProducerError, check_name};
use tidemark_streams_intake::unpack::{Coding, UnpackError};

/// The producer of a request, and the number of its batch.
struct Sender {
    name: String,
    seq: u64,
}

/// The batch that was handed to the log.
struct Taken {
    ticket: Ticket,
    named: Vec<Named>,
}

pub async fn take(server: &Server, request: Request<Incoming>, params: &Params) -> Result<Answer, Failure> {
    let node = &server.node;
    node.counters().requests.add(1);
    request::authorize_producer(node.settings.keys.as_ref(), request.headers())?;
    let sender = Sender::of(params)?;
    let coding = request::coding(request.headers())?;
    let busy = || Failure::later("overloaded", "too many bodies are read at a time; nothing was counted");
    let permit = server.bodies.try_acquire().map_err(|_| busy())?;
    let body = request::body(request, BODY_BYTES_MAX).await?;
    node.counters().body_bytes.add(body.len() as u64);
    let log = node.log().ok_or_else(|| not_serving(node))?;
    // Decoding takes milliseconds of a core; other tasks of this thread go elsewhere meanwhile.
    let taken = tokio::task::block_in_place(|| submit(node, &log, &body, coding, sender.as_ref()))?;
    drop(body);
    drop(permit);
    let Taken { ticket, named } = taken;
    log.durable(ticket.index).await.map_err(|error| in_doubt(&error))?;
    count(node, &ticket);
    let Counted { accepted, dead_letters, duplicates } = ticket.answer;
    let errors: Vec<Value> = named
        .iter()
        .map(|named| json!({ "event": named.event, "code": named.code, "message": named.reason }))
        .collect();
    Ok(Answer::json(&json!({
        "accepted": accepted,
        "dead_letters": dead_letters,
        "duplicates": duplicates,
        "known": ticket.is_known,
        "errors": errors,
    })))
}

fn submit(
    node: &Node,
    log: &crate::log::IntakeLog,
    body: &[u8],
    coding: Coding,
    sender: Option<&Sender>,
) -> Result<Taken, Failure> {
    let unpacked = unpacked(coding, body)?;
    let now_ms = now_ms();
    let kept_from = node.owner().kept_from;
    let types = node.names().types;
    let tenants = Latest::of(&node.catalogue);
    let rules = Rules { now: Now(now_ms), types: &types, kept_from, seed: log.seed(), tenants: &tenants };
    let mut decoded = body::decode(&unpacked, &rules).map_err(|error| match error {
        BodyError::Empty | BodyError::NoJson(_) | BodyError::Array(_) => Failure::bad("malformed_body", error),
        BodyError::TooManyEvents { .. } | BodyError::TooManyRows { .. } | BodyError::TooManyParts { .. } => {
            Failure::new(StatusCode::PAYLOAD_TOO_LARGE, "too_many_events", error)
        }
        BodyError::Lookup(_) => Failure::later("catalogue_failed", format!("nothing was counted: {error}")),
    })?;
    check_pauses(node, &decoded, &types)?;
    check_dead_letters(node, &decoded)?;
    let producer = sender.map(|Sender { name, seq }| BatchOf {
        name: Cow::Borrowed(name.as_str()),
        seq: *seq,
        digest: bytes_hash(0, &unpacked),
    });
    let named = std::mem::take(&mut decoded.named);
    let ticket = log.submit(Submission { producer, decoded, now_ms }).map_err(|refused| failure(node, refused))?;
    Ok(Taken { ticket, named })
}

/// A body as it was before it was packed.
pub fn unpacked(coding: Coding, body: &[u8]) -> Result<Cow<'_, [u8]>, Failure> {
    coding.unpack(body).map_err(|error| match error {
        UnpackError::TooLarge => Failure::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", error),
        UnpackError::Unsupported(_) => Failure::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "content_encoding", error),
        UnpackError::Damaged { .. } => Failure::bad("malformed_body", error),
    })
}

/// A batch with events of a paused type is not taken. It is sent again, and counts once the type is resumed.
fn check_pauses(node: &Node, decoded: &Decoded<'_>, types: &EventTypes) -> Result<(), Failure> {
    let pauses = node.pauses();
    let paused = pauses.types().find(|(paused, _)| {
        decoded.events.iter().any(|event| match event {
            Event::Valid(event) => types.present(&event.event_type) == *paused,
            Event::Broken { .. } => false,
        })
    });
    match paused {
        None => Ok(()),
        Some((name, _)) => {
            let message = format!("nothing was counted: event type {name} is paused; send the batch again later");
            Err(Failure::later("type_paused", message))
        }
    }
}

/// Dead letters are bounded: once there are too many, a batch with refused events is not taken.
fn check_dead_letters(node: &Node, decoded: &Decoded<'_>) -> Result<(), Failure> {
    let stored = node.owner().dead_letters;
    let max = node.settings.dead_letters_max;
    if decoded.dead_letters == 0 || stored < max {
        return Ok(());
    }
    let first = decoded.named.first().map_or("", |named| named.reason.as_str());
    let message = format!(
        "nothing was counted: {} events of the batch cannot be counted, the first because {first}; and there are {stored} dead \
         letters, at most {max}: send the batch without these events, or replay or drop dead letters",
        decoded.dead_letters
    );
    Err(Failure::later("dead_letters_full", message))
}

fn failure(node: &Node, refused: SubmitRefused) -> Failure {
    match refused {
        SubmitRefused::Producer(error) => match error {
            ProducerError::Name | ProducerError::Zero => Failure::bad("parameter", error),
            ProducerError::Old { .. } => Failure::new(StatusCode::CONFLICT, "seq_old", error),
            ProducerError::Gap { .. } => Failure::new(StatusCode::CONFLICT, "seq_gap", error),
            ProducerError::Reused { .. } => Failure::new(StatusCode::CONFLICT, "seq_reused", error),
            ProducerError::Unknown { .. } => Failure::new(StatusCode::CONFLICT, "producer_unknown", error),
            ProducerError::Full => Failure::later("producers_full", error),
        },
        SubmitRefused::Quota(error) => {
            node.counters().over_quota.add(1);
            let retry_after_s = Some(error.retry_after_s);
            Failure { retry_after_s, ..Failure::new(StatusCode::TOO_MANY_REQUESTS, "over_quota", error) }
        }
        SubmitRefused::Full { .. } => {
            let why =
                node.problem().map_or(String::new(), |problem| format!("; the owner makes no progress: {problem}"));
            Failure::later("log_full", format!("{refused}{why}"))
        }
        SubmitRefused::Long { .. } => Failure::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", refused),
        SubmitRefused::Busy { .. } => Failure::later("overloaded", refused),
        SubmitRefused::Failed(error) => log_failed(&error),
    }
}

/// The log took nothing of the request.
fn log_failed(error: &PersistError) -> Failure {
    let code = match error {
        PersistError::Full(_) => "disk_full",
        PersistError::Corrupt(_) | PersistError::Io(_) => "log_failed",
    };
    Failure::later(code, format!("nothing was counted: {error}"))
}

/// The request was handed to the log, which failed: a transaction that failed is not in the file.
fn in_doubt(error: &PersistError) -> Failure {
    log_failed(error)
}

fn not_serving(node: &Node) -> Failure {
    let why = node.problem().unwrap_or_else(|| "the process is starting".to_owned());
    let code = if why.contains("no space is left") { "disk_full" } else { "not_serving" };
    Failure::later(code, format!("the intake's log is not open; nothing was counted: {why}"))
}

fn count(node: &Node, ticket: &Ticket) {
    let counters = node.counters();
    if ticket.is_known {
        return counters.repeated.add(1);
    }
    let Counted { accepted, dead_letters, duplicates } = ticket.answer;
    counters.accepted.add(accepted.into());
    counters.dead_letters.add(dead_letters.into());
    counters.duplicates.add(duplicates.into());
}

impl Sender {
    fn of(params: &Params) -> Result<Option<Sender>, Failure> {
        let (name, seq) = match (params.get("producer"), params.get("seq")) {
            (None, None) => return Ok(None),
            (Some(name), Some(seq)) => (name, seq),
            (Some(_), None) => return Err(Failure::bad("parameter", "seq is missing: a producer numbers its batches")),
            (None, Some(_)) => {
                return Err(Failure::bad("parameter", "producer is missing: seq is the number of its batch"));
            }
        };
        check_name(name).map_err(|error| Failure::bad("parameter", format!("{error}; it is {:?}", shown(name))))?;
        let digits = seq.bytes().all(|byte| byte.is_ascii_digit());
        let seq = seq.parse().ok().filter(|seq: &u64| digits && *seq > 0).ok_or_else(|| {
            Failure::bad("parameter", format!("seq {:?}: a whole number from 1 to {}", shown(seq), u64::MAX))
        })?;
        Ok(Some(Sender { name: name.clone(), seq }))
    }
}
