//! `POST /v1/add`: many increments in one request, each counted or refused by itself.
//!
//! Lines of one counter, direction and time are counted as one increment, unless they have ids. Lines that are answered as added
//! are durable. A line with an id counts once, however often the request is sent again. With a header `Idempotency-Key` the id of
//! a line is the key, `#` and the line's number, unless the line has an id. Lines without an id are counted again.

use super::answer::{FailureText, json};
use super::body::{EventAt, Signed};
use super::once::Said;
use super::operation::{Ask, whole_body};
use super::typed::{Answer, AnswerForm};
use super::{Add, AddId, AggregatorProcess, Counted, Failure};
use crate::json::{self as strict, without_mark};
use crate::names::parse_counter;
use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashMap};
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

/// One increment of a bulk request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BulkLine {
    /// `NAMESPACE/KEY`.
    #[schemars(schema_with = "crate::schemas::counter")]
    pub counter: String,
    /// As of [`AddBody`](super::body::AddBody).
    #[serde(default = "one")]
    #[schemars(schema_with = "crate::schemas::delta")]
    pub delta: Signed,
    /// When it happened; when it is logged, if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<EventAt>,
    /// As of [`AddBody`](super::body::AddBody).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schemas::id_or_null")]
    pub id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub home: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_sent: Option<EventAt>,
}

fn one() -> Signed {
    Signed(1)
}

/// Answer: every line is in `added` or has an error. Its status is 200 where something was added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BulkBody {
    /// Why nothing was added, as in all failures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<FailureText>,
    /// Lines that are counted, durably.
    pub added: u64,
    /// Of these, lines with ids that had counted before.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub known: u64,
    /// Lines that are not counted or, with the code `in_doubt`, of which that is not known.
    pub errors: Vec<BulkErrorBody>,
}

fn is_zero(lines: &u64) -> bool {
    *lines == 0
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BulkErrorBody {
    /// Its line of the body, or its place in the array, from 1 on.
    pub line: u64,
    pub code: String,
    pub message: String,
}

/// Statuses of requests of which nothing was added: those of their lines.
const NOTHING_ADDED: [StatusCode; 6] = [
    StatusCode::BAD_REQUEST,
    StatusCode::NOT_FOUND,
    StatusCode::CONFLICT,
    StatusCode::UNPROCESSABLE_ENTITY,
    StatusCode::SERVICE_UNAVAILABLE,
    StatusCode::GATEWAY_TIMEOUT,
];

/// The answer with its status.
pub(super) struct BulkAnswer {
    status: StatusCode,
    body: BulkBody,
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

pub(super) async fn add<B: AggregatorProcess>(ask: Ask<B>, body: Body) -> Result<BulkAnswer, Failure> {
    let key = Said::of(ask.headers())?;
    let shared = &ask.shared;
    let overloaded =
        || Failure::Overloaded { what: "requests with many increments".to_owned(), limit: BULKS_MAX as u64 };
    let _permit = shared.bulks.try_acquire().map_err(|_| overloaded())?;
    let bytes = whole_body(body, BULK_BYTES_MAX).await?;
    let mut refused: Vec<(u64, Failure)> = Vec::new();
    let mut folded = Folded::default();
    for (line, said) in lines(&bytes)? {
        if let Err(failure) = said.and_then(|said| folded.push(line, &said, &key)) {
            refused.push((line, failure));
        }
    }
    let Folded { adds, lines, .. } = folded;
    let outcomes = if adds.is_empty() { Vec::new() } else { shared.backend.add_all(adds).await };
    let mut added = 0;
    let mut known = 0;
    for (outcome, lines) in outcomes.into_iter().zip(lines) {
        match outcome {
            Ok(counted) => {
                added += lines.len() as u64;
                known += if counted == Counted::Before { lines.len() as u64 } else { 0 };
            }
            Err(failure) => refused.extend(lines.into_iter().map(|line| (line, failure.clone()))),
        }
    }
    refused.sort_by_key(|(line, _)| *line);
    Ok(answer(added, known, &refused))
}

/// Where nothing was added, the status and the code are those of all lines, if they are the same; a line in doubt goes before others.
fn answer(added: u64, known: u64, refused: &[(u64, Failure)]) -> BulkAnswer {
    let errors = refused.iter().map(|(line, failure)| BulkErrorBody::of(*line, failure)).collect();
    if added > 0 {
        return BulkAnswer { status: StatusCode::OK, body: BulkBody { error: None, added, known, errors } };
    }
    let Some((line, first)) =
        refused.iter().find(|(_, failure)| matches!(failure, Failure::InDoubt(_))).or(refused.first())
    else {
        let message = "the body has no increments: nothing was added".to_owned();
        let error = Some(FailureText { code: "nothing_added".to_owned(), message });
        return BulkAnswer { status: StatusCode::BAD_REQUEST, body: BulkBody { error, added, known, errors } };
    };
    let codes: BTreeSet<&str> = refused.iter().map(|(_, failure)| failure.code()).collect();
    let is_one = codes.len() == 1 || matches!(first, Failure::InDoubt(_));
    let (status, code) =
        if is_one { (first.status(), first.code()) } else { (StatusCode::BAD_REQUEST, "nothing_added") };
    let message = format!("none of {} increments was added; line {line}: {first}", refused.len());
    let error = Some(FailureText { code: code.to_owned(), message });
    BulkAnswer { status, body: BulkBody { error, added, known, errors } }
}

impl IntoResponse for BulkAnswer {
    fn into_response(self) -> Response {
        let mut response = json(self.status, &self.body);
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

impl Answer for BulkAnswer {
    fn forms() -> Vec<AnswerForm> {
        let refused = |status| AnswerForm::json::<BulkBody>(status, "None of the increments was added.");
        let mut forms = vec![AnswerForm::json::<BulkBody>(StatusCode::OK, "At least one increment was added.")];
        forms.extend(NOTHING_ADDED.map(refused));
        forms
    }
}

impl BulkErrorBody {
    fn of(line: u64, failure: &Failure) -> BulkErrorBody {
        BulkErrorBody { line, code: failure.code().to_owned(), message: failure.to_string() }
    }
}

/// The lines of a body: an array, one object per line (empty lines are skipped), or one object over several lines.
fn lines(bytes: &[u8]) -> Result<Lines, Failure> {
    let bytes = without_mark(bytes);
    let lines: Lines = if bytes.trim_ascii_start().starts_with(b"[") {
        match strict::from_slice::<Vec<BulkLine>>(bytes) {
            Ok(all) => (1..).zip(all.into_iter().map(Ok)).collect(),
            Err(_) => elements(bytes)?,
        }
    } else {
        let numbered = (1..).zip(bytes.split(|byte| *byte == b'\n'));
        let said = numbered.filter(|(_, line)| !line.trim_ascii().is_empty());
        let lines: Lines = said.map(|(number, line)| (number, strict::from_slice(line).map_err(malformed))).collect();
        match lines.first() {
            // Lines that are none by themselves: one object that is written over several.
            Some((first, Err(_)))
                if lines.len() > 1 && lines.iter().all(|(_, line)| line.is_err()) && is_open(bytes) =>
            {
                vec![(*first, Ok(strict::from_slice(bytes).map_err(malformed)?))]
            }
            _ => lines,
        }
    };
    if lines.len() > BULK_LINES_MAX {
        let message = format!("{} increments: at most {BULK_LINES_MAX} allowed", lines.len());
        return Err(Failure::invalid("too_many_lines", message));
    }
    Ok(lines)
}

fn malformed(error: serde_json::Error) -> Failure {
    Failure::invalid("malformed_body", error)
}

/// Whether the first line begins an object that does not end in it.
fn is_open(bytes: &[u8]) -> bool {
    let text = bytes.trim_ascii_start();
    let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    text.starts_with(b"{") && serde_json::from_slice::<IgnoredAny>(line).is_err_and(|error| error.is_eof())
}

/// The elements of an array, each by itself: one that says nothing that can be counted leaves the others alone.
fn elements(bytes: &[u8]) -> Result<Lines, Failure> {
    let mut lines = Lines::new();
    let mut rest = bytes.trim_ascii_start().get(1..).unwrap_or_default().trim_ascii_start();
    for number in 1.. {
        let at = |error: &dyn std::fmt::Display| {
            Failure::invalid("malformed_body", format!("increment {number} of the array: {error}"))
        };
        let mut stream = serde_json::Deserializer::from_slice(rest).into_iter::<IgnoredAny>();
        match stream.next() {
            Some(Ok(IgnoredAny)) => {}
            Some(Err(error)) => return Err(at(&error)),
            None => return Err(at(&"the array does not end")),
        }
        let (element, behind) = rest.split_at(stream.byte_offset());
        lines.push((number, strict::from_slice(element).map_err(malformed)));
        match behind.trim_ascii_start().split_first() {
            Some((b',', more)) => rest = more.trim_ascii_start(),
            Some((b']', end)) if end.trim_ascii().is_empty() => break,
            _ => return Err(at(&"`,` or the end of the array expected behind it")),
        }
    }
    Ok(lines)
}

/// The id of a line: its own, or that of the request with the line's number.
fn line_id(line: u64, said: &BulkLine, key: &Said, counter: &CounterName) -> Result<Option<AddId>, Failure> {
    let own = Said { id: said.id.clone(), home: said.home.clone(), first_sent: said.first_sent.clone() };
    let derived = key.id.as_ref().filter(|_| own.id.is_none()).map(|key| format!("{key}#{line}"));
    own.or(&Said { id: derived, ..key.clone() })?.id_of(counter)
}

impl Folded {
    /// Error: the line is no increment.
    fn push(&mut self, line: u64, said: &BulkLine, key: &Said) -> Result<(), Failure> {
        let counter = parse_counter(&said.counter).map_err(|error| Failure::invalid("counter", error))?;
        let (half, delta) = said.delta.weight();
        if delta == 0 || delta > DELTA_MAX {
            return Err(Failure::invalid("delta", AddError::Delta { delta }));
        }
        let event = said.at.as_ref().map(EventAt::time).transpose()?;
        if let Some(id) = line_id(line, said, key, &counter)? {
            self.adds.push(Add { counter, half, delta, session: None, event, id: Some(id) });
            self.lines.push(vec![line]);
            return Ok(());
        }
        let at = *self.known.entry((counter.clone(), half, event)).or_insert(self.adds.len());
        match self.adds.get_mut(at).filter(|add| add.delta + delta <= DELTA_MAX) {
            Some(add) => {
                add.delta += delta;
                self.lines[at].push(line);
            }
            None => {
                self.known.insert((counter.clone(), half, event), self.adds.len());
                self.adds.push(Add { counter, half, delta, session: None, event, id: None });
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
        let mut folded = Folded::default();
        let mut refused = Vec::new();
        for (line, said) in lines(text.as_bytes()).unwrap() {
            let pushed = said.and_then(|said| folded.push(line, &said, &Said::default()));
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
    fn an_element_of_an_array_is_read_as_the_same_line_is() {
        let wrong =
            [r#"{"counter":"s/a","delta":1,"delta":2}"#, r#"["s/a"]"#, r#"{"counter":"s/a","x":1}"#, "7", "null"];
        for wrong in wrong {
            let refused = |text: &str| folded(text).1;
            let as_line = refused(&format!("{{\"counter\":\"s/b\"}}\n{wrong}"));
            assert_eq!(as_line, [(2, "malformed_body".to_owned())], "{wrong}");
            assert_eq!(refused(&format!("[ {{\"counter\":\"s/b\"}} ,\n {wrong} ]")), as_line, "{wrong}");
        }
        assert_eq!(folded("\u{feff}[{\"counter\":\"s/b\"}]").0.adds.len(), 1);
        assert_eq!(folded("\u{feff}{\"counter\":\"s/b\"}\n").0.adds.len(), 1);
        for text in ["[", "[{}", "[1,]", "[1]x", "[1 2]", "[,]", "[{]}"] {
            assert_eq!(lines(text.as_bytes()).unwrap_err().code(), "malformed_body", "{text}");
        }
        assert!(lines(b"[]").unwrap().is_empty());
    }

    #[test]
    fn one_object_over_several_lines_is_one_increment_or_one_error() {
        let (counted, refused) = folded("{\n  \"counter\": \"s/a\",\n  \"delta\": 7\n}\n");
        assert_eq!((counted.adds[0].delta, refused.len()), (7, 0));
        let wrong = lines(b"{\n  \"counter\": \"s/a\",\n  \"deltas\": 7\n}\n").unwrap_err();
        assert!(wrong.to_string().contains("unknown field `deltas`"), "{wrong}");
        let mixed = folded("{\"counter\": \n{\"counter\":\"s/a\"}\n");
        assert_eq!((mixed.0.adds.len(), mixed.1.len()), (1, 1), "a line that is cut off leaves others alone");
    }

    #[test]
    fn lines_with_ids_are_not_folded_and_a_key_gives_each_line_its_own() {
        let text = r#"[{"counter":"s/a","id":"x"},{"counter":"s/a","id":"y"},{"counter":"s/a"},{"counter":"s/a"}]"#;
        let digests = |key: &Said| {
            let mut folded = Folded::default();
            for (line, said) in lines(text.as_bytes()).unwrap() {
                folded.push(line, &said.unwrap(), key).unwrap();
            }
            folded.adds.iter().map(|add| add.id.as_ref().map(|id| id.digest)).collect::<Vec<_>>()
        };
        let of = |id: &str| Some(crate::idempotency::digest_of("s", id));
        assert_eq!(digests(&Said::default()), [of("x"), of("y"), None], "those without an id are one increment");
        let key = Said { id: Some("k".to_owned()), ..Said::default() };
        assert_eq!(digests(&key), [of("x"), of("y"), of("k#3"), of("k#4")]);
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
