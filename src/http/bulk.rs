//! `POST /v1/add`: many increments in one request, each counted or refused by itself.
//!
//! Lines of one counter, direction and time are counted as one increment. What is answered as added is durable. A request that is sent
//! again is counted again: a caller that got no answer cannot know, so one that must not count twice sends increments one by one, each with its
//! idempotency key, or uses the Rust client.

use super::answer::json;
use super::body::{EventAt, Signed};
use super::routes::AppState;
use super::{Add, Backend, Failure};
use crate::names::parse_counter;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use http_body_util::LengthLimitError;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::error::Error;
use tidemark_proto::client::AddError;
use tidemark_proto::ids::{CounterName, Half};
use tidemark_proto::limits::DELTA_MAX;
use tidemark_proto::series::UnixTime;

/// Increments of one request. More: `400`, and nothing is counted.
pub const BULK_LINES_MAX: usize = 10_000;
/// Bytes of its body. More: `413`.
pub const BULK_BYTES_MAX: usize = 2 << 20;
/// Such requests at a time, so that what is read of them and waited for stays small. More: `503`.
pub const BULKS_MAX: usize = 16;

/// One increment of many.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BulkLine {
    /// `NAMESPACE/KEY`.
    pub counter: String,
    /// As of [`AddBody`](super::body::AddBody).
    #[serde(default = "one")]
    pub delta: Signed,
    /// When it happened; when it is logged, if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<EventAt>,
}

fn one() -> Signed {
    Signed(1)
}

/// Answer: every line is in `added` or has an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BulkBody {
    /// Lines that are counted, durably.
    pub added: u64,
    /// Lines that are not counted or, with the code `in_doubt`, of which that is not known.
    pub errors: Vec<BulkErrorBody>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BulkErrorBody {
    /// Its line of the body, or its place in the array, from 1 on.
    pub line: u64,
    pub code: String,
    pub message: String,
}

/// Numbers of lines, and what each says or why it says nothing.
type Lines = Vec<(u64, Result<BulkLine, Failure>)>;

/// Increments, and the lines that each is made of.
#[derive(Default)]
struct Folded {
    adds: Vec<Add>,
    lines: Vec<Vec<u64>>,
    known: HashMap<(CounterName, Half, Option<UnixTime>), usize>,
}

pub(super) async fn add<B: Backend>(
    State(shared): AppState<B>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Failure> {
    shared.access.write(&headers)?;
    if headers.contains_key("idempotency-key") {
        return Err(Failure::invalid("idempotency_key", "many increments of one request take no idempotency key"));
    }
    let overloaded =
        || Failure::Overloaded { what: "requests with many increments".to_owned(), limit: BULKS_MAX as u64 };
    let _permit = shared.bulks.try_acquire().map_err(|_| overloaded())?;
    let bytes = axum::body::to_bytes(body, BULK_BYTES_MAX).await.map_err(unread)?;
    let mut refused: Vec<(u64, Failure)> = Vec::new();
    let mut folded = Folded::default();
    for (line, said) in lines(&bytes)? {
        if let Err(failure) = said.and_then(|said| folded.push(line, &said)) {
            refused.push((line, failure));
        }
    }
    let Folded { adds, lines, .. } = folded;
    let outcomes = if adds.is_empty() { Vec::new() } else { shared.backend.add_all(adds).await };
    let mut added = 0;
    for (outcome, lines) in outcomes.into_iter().zip(lines) {
        match outcome {
            Ok(()) => added += lines.len() as u64,
            Err(failure) => refused.extend(lines.into_iter().map(|line| (line, failure.clone()))),
        }
    }
    refused.sort_by_key(|(line, _)| *line);
    Ok(json(StatusCode::OK, &BulkBody { added, errors: refused.iter().map(BulkErrorBody::of).collect() }))
}

impl BulkErrorBody {
    fn of((line, failure): &(u64, Failure)) -> BulkErrorBody {
        BulkErrorBody { line: *line, code: failure.code().to_owned(), message: failure.to_string() }
    }
}

fn unread(error: axum::Error) -> Failure {
    let mut source = error.source();
    while let Some(inner) = source {
        if inner.is::<LengthLimitError>() {
            return Failure::TooLarge { what: "bytes of the body", value: "more".to_owned(), max: BULK_BYTES_MAX };
        }
        source = inner.source();
    }
    Failure::invalid("malformed_body", error)
}

/// What a body says: an array, or one object per line, where empty lines say nothing.
fn lines(bytes: &[u8]) -> Result<Lines, Failure> {
    let malformed = |error: serde_json::Error| Failure::invalid("malformed_body", error);
    let lines: Lines = if bytes.trim_ascii_start().starts_with(b"[") {
        let all: Vec<serde_json::Value> = serde_json::from_slice(bytes).map_err(malformed)?;
        (1..).zip(all.into_iter().map(|one| serde_json::from_value(one).map_err(malformed))).collect()
    } else {
        let numbered = (1..).zip(bytes.split(|byte| *byte == b'\n'));
        let said = numbered.filter(|(_, line)| !line.trim_ascii().is_empty());
        said.map(|(number, line)| (number, serde_json::from_slice(line).map_err(malformed))).collect()
    };
    if lines.len() > BULK_LINES_MAX {
        let message = format!("{} increments: at most {BULK_LINES_MAX} allowed", lines.len());
        return Err(Failure::invalid("too_many_lines", message));
    }
    Ok(lines)
}

impl Folded {
    /// Error: the line is no increment.
    fn push(&mut self, line: u64, said: &BulkLine) -> Result<(), Failure> {
        let counter = parse_counter(&said.counter).map_err(|error| Failure::invalid("counter", error))?;
        let (half, delta) = said.delta.weight();
        if delta == 0 || delta > DELTA_MAX {
            return Err(Failure::invalid("delta", AddError::Delta { delta }));
        }
        let event = said.at.as_ref().map(EventAt::time).transpose()?;
        let at = *self.known.entry((counter.clone(), half, event)).or_insert(self.adds.len());
        match self.adds.get_mut(at).filter(|add| add.delta + delta <= DELTA_MAX) {
            Some(add) => {
                add.delta += delta;
                self.lines[at].push(line);
            }
            None => {
                self.known.insert((counter.clone(), half, event), self.adds.len());
                self.adds.push(Add { counter, half, delta, session: None, event });
                self.lines.push(vec![line]);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folded(text: &str) -> (Folded, Vec<(u64, String)>) {
        let (mut folded, mut refused) = (Folded::default(), Vec::new());
        for (line, said) in lines(text.as_bytes()).unwrap() {
            let pushed = said.and_then(|said| folded.push(line, &said));
            refused.extend(pushed.err().map(|failure| (line, failure.code().to_owned())));
        }
        (folded, refused)
    }

    #[test]
    fn lines_of_one_counter_direction_and_time_are_one_increment_and_no_other() {
        let text = r#"
            {"counter":"s/a","at":60}
            {"counter":"s/a","at":"1970-01-01T00:01:00Z","delta":2}
            {"counter":"s/a","at":61}
            {"counter":"s/a"}

            {"counter":"s/a","delta":-4,"at":60}
            {"counter":"s/b","at":60}"#;
        let (folded, refused) = folded(text);
        let sums: Vec<_> = folded.adds.iter().map(|add| (add.half, add.delta, add.event.map(UnixTime::s))).collect();
        use Half::*;
        assert_eq!(sums, [(Up, 3, Some(60)), (Up, 1, Some(61)), (Up, 1, None), (Down, 4, Some(60)), (Up, 1, Some(60))]);
        assert_eq!(folded.lines, [vec![2, 3], vec![4], vec![5], vec![7], vec![8]]);
        assert!(refused.is_empty(), "{refused:?}");
    }

    #[test]
    fn no_sum_is_more_than_an_increment_may_be() {
        let most = format!(r#"{{"counter":"s/a","delta":{DELTA_MAX}}}"#);
        let more = format!(r#"{{"counter":"s/a","delta":{}}}"#, DELTA_MAX + 1);
        let text = format!("[{most},{most},{{\"counter\":\"s/a\"}},{more}]");
        let (folded, refused) = folded(&text);
        assert_eq!(folded.adds.iter().map(|add| add.delta).collect::<Vec<_>>(), [DELTA_MAX, DELTA_MAX, 1]);
        assert_eq!(refused, [(4, "delta".to_owned())]);
    }
}
