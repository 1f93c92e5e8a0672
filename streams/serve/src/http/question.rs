//! `POST /v1/impressions/query`: counts of one tenant.

use super::Server;
use super::answer::{Answer, Failure};
use super::request::{self, shown};
use crate::engine::{Message, Pin, PinError, Pinned};
use crate::node::Node;
use crate::query::{self, Counts, Dimension, Query, QueryError, Range};
use crate::settings::{QUERY_BYTES_MAX, ROWS_DEFAULT, ROWS_MAX};
use hyper::body::Incoming;
use hyper::{Request, StatusCode};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Duration;
use tidemark_proto::series::UnixTime;
use tidemark_proto::series::calendar::Zone;
use tidemark_streams_core::event::is_event_type_name;
use tidemark_streams_core::limits::TENANT_BYTES_MAX;
use tidemark_streams_core::time::{DAY_S, HOUR_S, Quarter};
use tidemark_streams_intake::unpack::Coding;
use tokio::sync::oneshot;

/// An answer takes at most so long.
const TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct QueryBody {
    tenant: String,
    from: String,
    to: String,
    #[serde(default)]
    zone: Option<String>,
    #[serde(default)]
    dimensions: Option<Vec<String>>,
    #[serde(default)]
    types: Option<Vec<String>>,
    #[serde(default)]
    limit: Option<i64>,
}

pub async fn ask(server: &Server, request: Request<Incoming>) -> Result<Answer, Failure> {
    let node = &server.node;
    if request::coding(request.headers())? != Coding::Identity {
        let message = "content-encoding: packed queries are not read";
        return Err(Failure::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "content_encoding", message));
    }
    let headers = request.headers().clone();
    let body = request::body(request, QUERY_BYTES_MAX).await?;
    let body: QueryBody = serde_json::from_slice(&body).map_err(|error| {
        Failure::bad("malformed_body", format!("the query is no JSON object of tenant, from, to, …: {error}"))
    })?;
    request::authorize_tenant(node, &headers, &body.tenant)?;
    let query = body.checked()?;
    let busy = || Failure::later("overloaded", "too many queries are answered at a time");
    let _permit = server.queries.try_acquire().map_err(|_| busy())?;
    let answered = tokio::time::timeout(TIMEOUT, answer(node, query)).await;
    let slow = |_| {
        Failure::new(StatusCode::GATEWAY_TIMEOUT, "query_timeout", format!("no answer within {} s", TIMEOUT.as_secs()))
    };
    let answer = answered.map_err(slow)??;
    node.counters.queries.add(1);
    Ok(answer)
}

async fn answer(node: &Arc<Node>, query: Query) -> Result<Answer, Failure> {
    let pinned = pin(node, &query).await?;
    let shared = Arc::clone(node);
    let counted = tokio::task::spawn_blocking(move || {
        let counts = query::count(&query, &pinned, &shared.reader)?;
        Ok(shown_answer(&shared, &query, &pinned, &counts))
    });
    match counted.await {
        Ok(Ok(body)) => Ok(Answer::json(&body)),
        Ok(Err(error)) => Err(failure(&error)),
        Err(error) => Err(Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "query_failed", error)),
    }
}

fn failure(error: &QueryError) -> Failure {
    match error {
        QueryError::Directory(error) => Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "blob_failed", error),
        QueryError::Calendar(error) => Failure::bad("range", error),
        QueryError::NotKept { .. } => Failure::new(StatusCode::GONE, "not_kept", error),
        QueryError::TooManyGroups => Failure::bad("too_many_groups", error),
    }
}

/// Asks the owner's thread.
async fn pin(node: &Node, query: &Query) -> Result<Pinned, Failure> {
    let (sender, receiver) = oneshot::channel();
    let pin = Pin { tenant: query.tenant.clone(), hours: query.range.hours(), answer: sender };
    node.engine
        .try_send(Message::Pin(pin))
        .map_err(|_| Failure::later("overloaded", "the owner has too many messages"))?;
    let ended = |_| Failure::later("not_serving", "the owner's thread has ended");
    let answered = receiver.await.map_err(ended)?;
    answered.map_err(|error| match error {
        PinError::Rows(_) => Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "query_failed", error),
        PinError::Gap { .. } | PinError::NotServing(_) => Failure::later("not_serving", error),
    })
}

fn shown_answer(node: &Node, query: &Query, pinned: &Pinned, counts: &Counts) -> Value {
    let zone = &query.zone;
    let time = |seconds: u64| UnixTime::from_s(seconds as i64).map_or(Value::Null, |at| json!(zone.text(at)));
    let of_ms = |at_ms: u64| if at_ms == 0 { Value::Null } else { time(at_ms / 1_000) };
    let rows: Vec<Value> = counts
        .groups
        .iter()
        .map(|(group, n)| {
            let mut row = Map::new();
            let unit = if query.dimensions.contains(&Dimension::Hour) { "hour" } else { "day" };
            if let Some(from) = group.from {
                row.insert(unit.to_owned(), json!(zone.text(from)));
            }
            if let Some(listing) = &group.listing {
                row.insert("listing".to_owned(), json!(listing));
            }
            if let Some(event_type) = &group.event_type {
                row.insert("type".to_owned(), json!(event_type));
            }
            row.insert("n".to_owned(), json!(n));
            Value::Object(row)
        })
        .collect();
    let quarter = |number: u32| u64::from(number) * HOUR_S / 4;
    let last_hour_end = quarter(query.range.to).div_ceil(HOUR_S) * HOUR_S;
    let late = node.log().and_then(|log| log.late_of(&query.tenant));
    json!({
        "tenant": query.tenant,
        "zone": zone.name(),
        "from": time(quarter(query.range.from)),
        "to": time(quarter(query.range.to)),
        "rows": rows,
        "total": counts.total,
        "more": counts.has_more,
        "complete_to": of_ms(pinned.complete_to_ms),
        "last_updated_at": of_ms(pinned.last_updated_at_ms),
        "settled_at": time(last_hour_end + node.settings.lateness_s),
        "late_total": late,
        "incomplete_because": pinned.incomplete,
        "not_kept_before": not_kept_before(query, pinned).map(&time),
        "paused_since": pinned.paused_at_ms.map(&of_ms),
        "as_of": { "index": pinned.manifest_index, "blobs": pinned.blobs.len() },
    })
}

/// Where the counts of a range begin to be kept, if that is within it.
fn not_kept_before(query: &Query, pinned: &Pinned) -> Option<u64> {
    let day = pinned.view.kept_from;
    (query.range.hours().first.day() < day).then(|| u64::from(day.0) * DAY_S)
}

impl QueryBody {
    fn checked(self) -> Result<Query, Failure> {
        let tenant = self.tenant;
        if tenant.is_empty() || tenant.len() > TENANT_BYTES_MAX {
            let message = format!("tenant has {} bytes: 1 to {TENANT_BYTES_MAX}", tenant.len());
            return Err(Failure::bad("tenant", message));
        }
        let zone = Zone::named(self.zone.as_deref().unwrap_or("UTC")).map_err(|error| Failure::bad("zone", error))?;
        let quarter = |name: &str, text: &str| {
            let at = zone.time(text).map_err(|error| Failure::bad("range", format!("{name}: {error}")))?;
            let quarter = Quarter::of_s(at.s()).map(Quarter::number);
            quarter.ok_or_else(|| Failure::bad("range", format!("{name} {:?} is behind the last hour", shown(text))))
        };
        let range = Range { from: quarter("from", &self.from)?, to: quarter("to", &self.to)? };
        if range.from >= range.to {
            let message =
                format!("from {:?} is not before to {:?} by a quarter of an hour", shown(&self.from), shown(&self.to));
            return Err(Failure::bad("range", message));
        }
        let limit = self.limit.unwrap_or(ROWS_DEFAULT as i64);
        let limit = usize::try_from(limit).ok().filter(|limit| (1..=ROWS_MAX).contains(limit));
        let limit = limit.ok_or_else(|| {
            Failure::bad("limit", format!("limit {}: 1 to {ROWS_MAX}", self.limit.unwrap_or_default()))
        })?;
        Ok(Query {
            dimensions: dimensions(self.dimensions.as_deref())?,
            types: types(self.types.unwrap_or_default())?,
            tenant,
            range,
            zone,
            limit,
        })
    }
}

fn dimensions(names: Option<&[String]>) -> Result<Vec<Dimension>, Failure> {
    let Some(names) = names else { return Ok(vec![Dimension::Hour]) };
    let mut dimensions = Vec::new();
    for name in names {
        let known = Dimension::ALL.iter().find(|(_, known)| known == name);
        let Some((dimension, _)) = known else {
            let known = Dimension::ALL.map(|(_, known)| known).join(", ");
            return Err(Failure::bad("dimensions", format!("dimension {:?}; known dimensions: {known}", shown(name))));
        };
        if dimensions.contains(dimension) {
            return Err(Failure::bad("dimensions", format!("dimension {name:?} is given twice")));
        }
        dimensions.push(*dimension);
    }
    if dimensions.contains(&Dimension::Hour) && dimensions.contains(&Dimension::Day) {
        return Err(Failure::bad("dimensions", "hour and day are both given: leave one out"));
    }
    Ok(dimensions)
}

fn types(names: Vec<String>) -> Result<Vec<String>, Failure> {
    match names.iter().find(|name| !is_event_type_name(name)) {
        Some(name) => Err(Failure::bad("types", format!("type {:?} is no name of an event type", shown(name)))),
        None => Ok(names),
    }
}
