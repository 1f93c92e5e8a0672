//! `POST /v1/impressions/query`: counts of one tenant.

use super::accept;
use super::answer::{Answer, Failure};
use super::asking::{self, Asking};
use super::counted::{self, Counted};
use super::request::{self, shown};
use crate::fetch::{FetchError, Fetched};
use crate::messages::Pinned;
use crate::names::Names;
use crate::queries::Queries;
use crate::query::{self, CountedAt, QueryError, RowSources};
use crate::settings::{QUERY_BYTES_MAX, QUERY_LISTINGS_MAX, ROWS_DEFAULT, ROWS_MAX};
use hyper::body::Incoming;
use hyper::{Request, StatusCode};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tidemark_proto::series::calendar::Zone;
use tidemark_streams_core::event::{self, EventTypes, check_listing, is_event_type_name};
use tidemark_streams_core::query::counts::{CountError, CountQuery, Dimension, WantedValue};
use tidemark_streams_core::query::previous::PreviousPeriod;
use tidemark_streams_core::query::range::QuarterRange;
use tidemark_streams_core::schema::Schema;
use tidemark_streams_core::time::Quarter;
use tidemark_streams_core::values::{DimensionNames, check_value};
use tidemark_streams_sql::frames::Format;

/// An answer takes at most so long.
const TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct QueryBody {
    #[serde(default)]
    tenant: Option<String>,
    from: String,
    to: String,
    #[serde(default)]
    zone: Option<String>,
    #[serde(default)]
    dimensions: Option<Vec<String>>,
    #[serde(default)]
    types: Option<Vec<String>>,
    #[serde(default)]
    listings: Option<Vec<String>>,
    /// Wanted values by dimension. An empty value means rows without a value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    values: Option<BTreeMap<String, Vec<String>>>,
    #[serde(default)]
    compare: Option<String>,
    #[serde(default)]
    zeros: bool,
    #[serde(default)]
    limit: Option<i64>,
    /// Of an answer that the client has: the same rows are not sent again.
    #[serde(default, skip_serializing)]
    unless_version: Option<String>,
}

/// A query as it is carried out.
struct Question {
    query: CountQuery,
    /// The query, as a text that tells it apart from others.
    text: String,
    unless_version: Option<String>,
    format: Format,
}

pub async fn ask(asking: &Asking, request: Request<Incoming>) -> Result<Answer, Failure> {
    let queries = &asking.queries;
    let keys = queries.keys.as_ref();
    request::refuse_packed(request.headers())?;
    request::check_token(keys, request.headers())?;
    let format = accept::format(request.headers())?;
    let headers = request.headers().clone();
    let body = request::body(request, QUERY_BYTES_MAX).await?;
    let body: QueryBody = request::object(&body, "tenant, from, to, …")?;
    let tenant = request::authorize_tenant(keys, &headers, body.tenant.as_deref())?;
    let question = body.checked(tenant, format, &queries.source.names())?;
    let question = Arc::new(question);
    let _open = asking.enter()?;
    let answered = tokio::time::timeout(TIMEOUT, answer(asking, &question)).await;
    let slow = |_| {
        Failure::new(StatusCode::GATEWAY_TIMEOUT, "query_timeout", format!("no answer within {} s", TIMEOUT.as_secs()))
    };
    let answer = answered.map_err(slow)??;
    queries.stores.counters.queries.add(1);
    Ok(answer)
}

/// Answers a question. If a blob is gone, it is pinned again.
async fn answer(asking: &Asking, question: &Arc<Question>) -> Result<Answer, Failure> {
    let queries = &asking.queries;
    let mut tries = 0;
    loop {
        let pinned = Arc::new(asking.pin(&question.query.tenant, question.query.hours()).await?);
        let counted_at = CountedAt::of(&question.query, &pinned, &queries.stores.commits);
        let version = query::version(&question.text, &question.query, &pinned, &counted_at);
        let is_known = question.unless_version.as_deref() == Some(&version);
        if is_known && question.format == Format::Json {
            return Ok(counted::unchanged(&question.query, &pinned, &version));
        }
        query::check_kept(&question.query, &pinned).map_err(|error| failure(queries, &error))?;
        let error = match queries.fetcher.fetch(&question.query.tenant, &pinned.blobs).await {
            Ok(fetched) => {
                let read = Read { pinned: Arc::clone(&pinned), fetched, counted_at, version };
                match count(asking, question, read).await? {
                    Ok(answer) => return Ok(answer),
                    Err(error) => error,
                }
            }
            Err(FetchError::Directory(error)) => QueryError::Directory(error),
            Err(error @ FetchError::Waited) => return Err(asking::waited(&error)),
        };
        match &error {
            QueryError::Directory(gone) if asking::may_pin_again(queries, &pinned, gone, tries).await => tries += 1,
            QueryError::Directory(_) | QueryError::NotKept { .. } | QueryError::Count(_) => {
                return Err(failure(queries, &error));
            }
        }
    }
}

/// What a query has pinned and read.
struct Read {
    pinned: Arc<Pinned>,
    fetched: Fetched,
    counted_at: CountedAt,
    version: String,
}

/// Counts what was read, on a thread that may block.
async fn count(asking: &Asking, question: &Arc<Question>, read: Read) -> Result<Result<Answer, QueryError>, Failure> {
    let _turn = asking.turn().await?;
    let question = Arc::clone(question);
    let unsent = Arc::clone(&asking.unsent);
    let counted = tokio::task::spawn_blocking(move || {
        let Read { pinned, fetched, counted_at, version } = read;
        let query = &question.query;
        let sources = RowSources { fetched: &fetched, counted_at: &counted_at };
        let counts = sources.count(query, &pinned)?;
        let names = &pinned.view.types.schema.dimensions().names;
        let counted = Counted { query, names, pinned: &pinned, counts: &counts, version: &version };
        Ok(counted.answer(question.format).and_then(|answer| answer.held(&unsent, &query.tenant)))
    });
    match counted.await {
        Ok(Ok(answer)) => answer.map(Ok),
        Ok(Err(error)) => Ok(Err(error)),
        // What the thread said of its end is in the server's own output.
        Err(_) => Err(request::query_failed()),
    }
}

fn failure(queries: &Queries, error: &QueryError) -> Failure {
    match error {
        QueryError::Directory(unread) => asking::unreadable(queries, unread, error.to_string()),
        QueryError::NotKept { .. } => Failure::new(StatusCode::GONE, "not_kept", error),
        QueryError::Count(error) => match error {
            CountError::Calendar(error) => Failure::bad("range", error),
            CountError::TooManyGroups => Failure::bad("too_many_groups", error),
        },
    }
}

impl QueryBody {
    fn checked(self, tenant: String, format: Format, names: &Names) -> Result<Question, Failure> {
        let Names { schema, types: accepted } = names;
        let names = accepted.dimensions();
        let text = serde_json::to_string(&(&tenant, &self)).unwrap_or_default();
        check_tenant(&tenant)?;
        let zone = zone(self.zone.as_deref())?;
        let range = range(&zone, &self.from, &self.to)?;
        let limit = self.limit.unwrap_or(ROWS_DEFAULT as i64);
        let limit = usize::try_from(limit).ok().filter(|limit| (1..=ROWS_MAX).contains(limit));
        let limit = limit.ok_or_else(|| {
            Failure::bad("limit", format!("limit {}: 1 to {ROWS_MAX}", self.limit.unwrap_or_default()))
        })?;
        let dimensions = dimensions(self.dimensions.as_deref(), names)?;
        if self.zeros && !matches!(dimensions.as_slice(), [time] if time.is_time()) {
            let message = "zeros: the only dimension must be quarter, hour or day";
            return Err(Failure::bad("zeros", message));
        }
        let previous = previous(self.compare.as_deref(), &dimensions, &zone, range)?;
        let query = CountQuery {
            tenant,
            range,
            zone,
            dimensions,
            types: types(self.types.unwrap_or_default(), schema, accepted)?,
            listings: listings(self.listings.unwrap_or_default())?,
            values: wanted_values(self.values.unwrap_or_default(), names)?,
            previous,
            has_zeros: self.zeros,
            limit,
        };
        Ok(Question { query, text, unless_version: self.unless_version, format })
    }
}

pub fn check_tenant(tenant: &str) -> Result<(), Failure> {
    event::check_tenant(tenant).map_err(|error| Failure::bad("tenant", error))
}

/// The zone of a query: UTC unless it names one.
pub fn zone(name: Option<&str>) -> Result<Zone, Failure> {
    Zone::named(name.unwrap_or("UTC")).map_err(|error| Failure::bad("zone", error))
}

/// The quarters of an hour between two times of a zone's clock.
pub fn range(zone: &Zone, from: &str, to: &str) -> Result<QuarterRange, Failure> {
    let quarter = |name: &str, text: &str| {
        let at = zone.time(text).map_err(|error| Failure::bad("range", format!("{name}: {error}")))?;
        let quarter = Quarter::of_s(at.s()).map(Quarter::number);
        quarter.ok_or_else(|| Failure::bad("range", format!("{name} {:?} is after the last hour", shown(text))))
    };
    let range = QuarterRange { from: quarter("from", from)?, to: quarter("to", to)? };
    if range.from >= range.to {
        let message = format!("from {:?} is not before to {:?} by a quarter of an hour", shown(from), shown(to));
        return Err(Failure::bad("range", message));
    }
    Ok(range)
}

fn dimensions(asked: Option<&[String]>, names: &DimensionNames) -> Result<Vec<Dimension>, Failure> {
    let Some(asked) = asked else { return Ok(vec![Dimension::Hour]) };
    let mut dimensions: Vec<Dimension> = Vec::new();
    for name in asked {
        let dimension = Dimension::named(name, names).map_err(|error| Failure::bad("dimensions", error))?;
        if dimensions.contains(&dimension) {
            return Err(Failure::bad("dimensions", format!("dimension {name:?} is given twice")));
        }
        dimensions.push(dimension);
    }
    let times = dimensions.iter().filter(|dimension| dimension.is_time());
    let times: Vec<&str> = times.map(|time| time.name(names)).collect();
    match times.as_slice() {
        [first, second, ..] => {
            Err(Failure::bad("dimensions", format!("{first} and {second} are both given: leave one out")))
        }
        _ => Ok(dimensions),
    }
}

/// The wanted values of the dimensions of events.
fn wanted_values(asked: BTreeMap<String, Vec<String>>, names: &DimensionNames) -> Result<Vec<WantedValue>, Failure> {
    let count: usize = asked.values().map(Vec::len).sum();
    if count > QUERY_LISTINGS_MAX {
        return Err(Failure::bad("values", format!("{count} values: at most {QUERY_LISTINGS_MAX}")));
    }
    let mut wanted = Vec::new();
    for (name, values) in asked {
        let Some(dimension) = names.find(&name) else {
            let message = format!("dimension {:?} is unknown; known dimensions: {}", shown(&name), names.shown());
            return Err(Failure::bad("values", message));
        };
        if values.is_empty() {
            return Err(Failure::bad("values", format!("{name} has no values: name at least one, or leave it out")));
        }
        for value in values {
            // An empty value means rows without a value.
            check_value(&name, &value).map_err(|error| Failure::bad("values", error))?;
            wanted.push(WantedValue { dimension, value });
        }
    }
    Ok(wanted)
}

fn types(names: Vec<String>, schema: &Schema, accepted: &EventTypes) -> Result<Vec<String>, Failure> {
    if let Some(name) = names.iter().find(|name| !is_event_type_name(name)) {
        return Err(Failure::bad("types", format!("type {:?} is no name of an event type", shown(name))));
    }
    check_known(&names, schema, accepted)?;
    Ok(names)
}

/// Checks that event types are known. `accepted` are those that the server takes now.
pub fn check_known(names: &[String], schema: &Schema, accepted: &EventTypes) -> Result<(), Failure> {
    match schema.first_unknown(names, accepted.names()) {
        Some(name) => {
            let known: BTreeSet<&str> = schema.listed().iter().chain(accepted.names()).map(String::as_str).collect();
            let known: Vec<&str> = known.into_iter().collect();
            let message = format!("type {:?} is unknown; known types: {}", shown(name), known.join(", "));
            Err(Failure::bad("types", message))
        }
        None => Ok(()),
    }
}

fn listings(names: Vec<String>) -> Result<Vec<String>, Failure> {
    if names.len() > QUERY_LISTINGS_MAX {
        let message = format!("{} listings: at most {QUERY_LISTINGS_MAX}", names.len());
        return Err(Failure::bad("listings", message));
    }
    match names.iter().find_map(|name| check_listing(name).err()) {
        Some(error) => Err(Failure::bad("listings", error)),
        None => Ok(names),
    }
}

/// The period before a range, if the query compares.
fn previous(
    compare: Option<&str>,
    dimensions: &[Dimension],
    zone: &Zone,
    range: QuarterRange,
) -> Result<Option<PreviousPeriod>, Failure> {
    let Some(compare) = compare else { return Ok(None) };
    if dimensions.contains(&Dimension::CountedAt) {
        return Err(Failure::bad("compare", "counted_at is not compared with the period before: leave one out"));
    }
    let before = match compare {
        "previous" => PreviousPeriod::of(zone, range),
        "week" => PreviousPeriod::week_before(zone, range),
        "month" => PreviousPeriod::month_before(zone, range),
        other => {
            let message = format!("compare {:?}: \"previous\", \"week\" or \"month\"", shown(other));
            return Err(Failure::bad("compare", message));
        }
    };
    before.map(Some).map_err(|error| Failure::bad("compare", format!("no period before: {error}")))
}
