//! `POST /v1/sql`: SQL over the rows of one tenant.

use super::accept::{self, ARROW_FILE, ARROW_STREAM};
use super::answer::{Answer, Failure};
use super::asking::{self, Asking};
use super::counted::{self, Asked};
use super::question;
use super::request;
use super::tables;
use super::unsent;
use crate::fetch::{FetchError, Fetched, Share};
use crate::messages::Pinned;
use crate::queries::Queries;
use crate::query_log::LogLine;
use crate::settings::{
    QUERY_BYTES_MAX, SQL_BODIES_MAX, SQL_BODIES_UNNAMED_MAX, SQL_BODY_BYTES_MAX, SQL_RESULT_BYTES_MAX,
    SQL_RESULT_ROWS_MAX, SQL_UNSENT_BYTES_MAX,
};
use crate::sql_rows::{SqlRowsError, TenantRange, check_kept, frames, gather};
use crate::token_keys::Caller;
use hyper::body::Incoming;
use hyper::header::{HeaderName, HeaderValue};
use hyper::{Request, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use tidemark_proto::series::calendar::Zone;
use tidemark_streams_core::query::range::QuarterRange;
use tidemark_streams_core::rollup::Rollups;
use tidemark_streams_sql::frames::{Format, Param, Planned, Query, ReadColumns};
use tidemark_streams_sql::limits::{PARAM_BYTES_MAX, PARAMS_MAX, SQL_BYTES_MAX};
use tidemark_streams_sql::pool::{Admitted, Begun, Entered, QueryResult, Session, SqlError};
use tokio::sync::{OwnedSemaphorePermit, SemaphorePermit};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SqlBody {
    query: String,
    #[serde(default)]
    params: Vec<Value>,
    #[serde(default)]
    tenant: Option<String>,
    from: String,
    to: String,
    #[serde(default)]
    zone: Option<String>,
}

/// A checked query.
struct SqlQuestion {
    tenant: String,
    zone: Zone,
    range: QuarterRange,
    query: Query,
}

/// Why a query has no answer.
enum AskError {
    Sql(SqlError),
    Other(Failure),
    /// The server failed. The text is for its operator.
    Failed(String),
}

impl From<SqlError> for AskError {
    fn from(error: SqlError) -> AskError {
        AskError::Sql(error)
    }
}

impl From<Failure> for AskError {
    fn from(failure: Failure) -> AskError {
        AskError::Other(failure)
    }
}

pub async fn ask(server: &Asking, request: Request<Incoming>) -> Result<Answer, Failure> {
    let queries = &server.queries;
    let keys = queries.keys.as_ref();
    request::refuse_packed(request.headers())?;
    let caller = request::caller(keys, request.headers())?;
    let format = accept::format(request.headers())?;
    let headers = request.headers().clone();
    let permit = || body_permit(server, caller.as_ref());
    let body = request::large_body(request, QUERY_BYTES_MAX, SQL_BODY_BYTES_MAX, permit).await?;
    let body: SqlBody = request::object(&body, "query, params, from, to, …")?;
    let tenant = request::tenant_of(caller, keys, &headers, body.tenant.as_deref())?;
    question::check_tenant(&tenant)?;
    let mut line = queries.sql_log.begin(&tenant, &body.query);
    let answered = match body.checked(queries, tenant, format) {
        Ok(question) => answer(server, question, &mut line).await,
        Err(refused) => Err(refused),
    };
    let answered = match answered {
        Ok(answer) => {
            line.outcome = "ok";
            Ok(answer)
        }
        Err(AskError::Sql(error)) => {
            line.outcome = error.code();
            line.detail = error.detail();
            queries.sql.count_refusal(&error);
            Err(failure(&error))
        }
        Err(AskError::Other(failure)) => {
            line.outcome = failure.code;
            Err(failure)
        }
        Err(AskError::Failed(detail)) => {
            let failure = request::query_failed();
            line.outcome = failure.code;
            line.detail = Some(detail);
            Err(failure)
        }
    };
    line.end().await;
    answered
}

/// The permit to read a body beyond its first bytes, which connections bound. A caller whose token is judged behind the body may be anyone,
/// and takes no permit of the others.
fn body_permit<'s>(server: &'s Asking, caller: Option<&Caller>) -> Result<SemaphorePermit<'s>, Failure> {
    let (permits, max) = match caller {
        Some(Caller::Unnamed) => (&server.sql_bodies_unnamed, SQL_BODIES_UNNAMED_MAX),
        Some(Caller::Tenant(_) | Caller::Producer) | None => (&server.sql_bodies, SQL_BODIES_MAX),
    };
    let busy = |_| {
        let message = format!("{max} bodies of more than {QUERY_BYTES_MAX} bytes are read: at most so many at a time");
        Failure::later("overloaded", message)
    };
    permits.try_acquire().map_err(busy)
}

async fn answer(server: &Asking, question: SqlQuestion, line: &mut LogLine<'_>) -> Result<Answer, AskError> {
    let queries = &server.queries;
    let SqlQuestion { tenant, zone, range, mut query } = question;
    let format = query.format;
    let rows_max = queries.sql.settings().scan_rows_max;
    let asked = TenantRange { tenant, range, rows_max, dimensions: query.dimensions.len() };
    // No work starts beyond the budget of the tenant: neither of the owner's thread nor of a reader of blobs.
    let entered = queries.sql.enter(&asked.tenant)?;
    query.uploads = tables::tables_of(queries, &asked.tenant)?;
    let uploads = query.uploads.clone();
    let Prepared { query: PlannedQuery { session, planned }, read } = prepared(server, &asked, entered, query).await?;
    let space = match space(server) {
        Ok(space) => space,
        Err(refused) => return Err(given_up(session, refused.into()).await),
    };
    let Planned { reads, uploads: named } = planned;
    let Reading { session, pinned } = match (read, reads) {
        (Ok(Read { pinned, fetched }), Some(columns)) => {
            let reading = Reading { session, pinned };
            send_rows(server, Sending { asked: &asked, columns: &columns }, Fetching { reading, fetched }, line).await?
        }
        (Ok(Read { pinned, fetched: _ }), None) => Reading { session, pinned },
        (Err(refused), _) => return Err(given_up(session, refused).await),
    };
    let mut session = session;
    for at in named {
        let Some(planned) = uploads.get(at as usize) else { continue };
        match tables::file_of(queries, &asked.tenant, planned) {
            Ok(file) => session.upload(at, &file).await?,
            Err(refused) => return Err(given_up(session, refused.into()).await),
        }
    }
    line.scanned = session.scanned();
    let result = session.finish().await?;
    line.rows = result.rows;
    line.bytes = result.output.len() as u64;
    let asked = Asked { tenant: &asked.tenant, zone: &zone, range };
    Ok(written(&asked, &pinned, Writing { format, result, space }))
}

/// A result with the space that is kept for it.
struct Writing {
    format: Format,
    result: QueryResult,
    space: OwnedSemaphorePermit,
}

/// Reserves space for the largest result. Clients that do not read their answers keep space reserved.
fn space(server: &Asking) -> Result<OwnedSemaphorePermit, SqlError> {
    let max_bytes = SQL_UNSENT_BYTES_MAX;
    let space = Arc::clone(&server.sql_unsent).try_acquire_many_owned(SQL_RESULT_BYTES_MAX as u32);
    space.map_err(|_| SqlError::Unsent { max_bytes })
}

/// A planned query that waits for rows, and the blobs and rows that are pinned for it.
struct Reading {
    session: Session,
    pinned: Pinned,
}

/// A child that has planned a query.
struct PlannedQuery {
    session: Session,
    planned: Planned,
}

/// A query that is planned, and its blobs.
struct Prepared {
    query: PlannedQuery,
    read: Result<Read, AskError>,
}

/// Plans a query, and reads its blobs.
async fn prepared(server: &Asking, asked: &TenantRange, entered: Entered, query: Query) -> Result<Prepared, AskError> {
    match entered.begin().await? {
        // Blobs are read while the child starts and plans. A query that is refused ends the reading.
        Begun::Admitted(turn) => {
            let reading = async { Ok(read(server, asked, Share::All).await) };
            let (query, read) = tokio::try_join!(planned(turn, query), reading)?;
            Ok(Prepared { query, read })
        }
        Begun::Reads(entered) => {
            let read = read(server, asked, Share::Early).await?;
            let query = planned(entered.turn().await?, query).await?;
            Ok(Prepared { query, read: Ok(read) })
        }
    }
}

async fn planned(turn: Admitted, query: Query) -> Result<PlannedQuery, AskError> {
    let mut session = turn.start().await?;
    let planned = session.plan(query).await?;
    Ok(PlannedQuery { session, planned })
}

/// What is pinned for a query, and its blobs if they could be read.
struct Read {
    pinned: Pinned,
    fetched: Result<Fetched, FetchError>,
}

/// Pins the rows of a tenant, and reads blobs.
async fn read(server: &Asking, asked: &TenantRange, share: Share) -> Result<Read, AskError> {
    let queries = &server.queries;
    let reading = async {
        let pinned = server.pin(&asked.tenant, asked.range.hours()).await?;
        check_kept(asked, &pinned).map_err(|error| unread(queries, error))?;
        let fetched = queries.fetcher.fetch_within(&asked.tenant, &pinned.blobs, share).await;
        Ok(Read { pinned, fetched })
    };
    let timeout = queries.sql.settings().timeout;
    let too_slow = |_| SqlError::Time { ms: timeout.as_millis() };
    tokio::time::timeout(timeout, reading).await.map_err(too_slow)?
}

async fn given_up(session: Session, why: AskError) -> AskError {
    session.give_up().await;
    why
}

/// A planned query, and its blobs if they could be read.
struct Fetching {
    reading: Reading,
    fetched: Result<Fetched, FetchError>,
}

/// Which rows are sent, and which columns of them.
#[derive(Clone, Copy)]
struct Sending<'a> {
    asked: &'a TenantRange,
    columns: &'a ReadColumns,
}

/// Gathers rows and sends them to the child. If a blob is gone, the query is pinned again.
async fn send_rows(
    server: &Asking,
    sending: Sending<'_>,
    mut fetching: Fetching,
    line: &mut LogLine<'_>,
) -> Result<Reading, AskError> {
    let Sending { asked, columns } = sending;
    let queries = &server.queries;
    let mut tries = 0;
    let Gathered { reading: Reading { mut session, pinned }, rows } = loop {
        let Gathered { reading, rows } = gathered(asked, fetching).await?;
        let Err(SqlRowsError::Directory(gone)) = &rows else {
            break Gathered { reading, rows };
        };
        if !asking::may_pin_again(queries, &reading.pinned, gone, tries).await {
            break Gathered { reading, rows };
        }
        tries += 1;
        let session = reading.session;
        fetching = match session.within(read(server, asked, Share::All)).await? {
            Ok(Read { pinned, fetched }) => Fetching { reading: Reading { session, pinned }, fetched },
            Err(refused) => return Err(given_up(session, refused).await),
        };
    };
    let rows = match rows {
        Ok(rows) => rows,
        Err(error) => return Err(given_up(session, unread(queries, error)).await),
    };
    for frame in frames(&rows, asked, columns) {
        let frame = match frame {
            Ok(frame) => frame,
            Err(error) => return Err(given_up(session, unread(queries, error)).await),
        };
        let sent = session.rows(frame).await;
        line.scanned = session.scanned();
        sent?;
    }
    Ok(Reading { session, pinned })
}

/// Rows that were read, or why they were not.
struct Gathered {
    reading: Reading,
    rows: Result<Rollups, SqlRowsError>,
}

async fn gathered(asked: &TenantRange, fetching: Fetching) -> Result<Gathered, AskError> {
    let Fetching { reading, fetched } = fetching;
    match fetched {
        Ok(fetched) => gathered_on_thread(asked, reading, fetched).await,
        Err(FetchError::Directory(error)) => Ok(Gathered { reading, rows: Err(SqlRowsError::Directory(error)) }),
        Err(error @ FetchError::Waited) => Err(given_up(reading.session, asking::waited(&error).into()).await),
    }
}

/// Gathers rows on a thread that may block. The thread owns the session, so the tenant's turn lasts until the thread ends, even if the
/// client disconnects. In that case the thread ends after the present blob.
async fn gathered_on_thread(asked: &TenantRange, reading: Reading, fetched: Fetched) -> Result<Gathered, AskError> {
    let asked = asked.clone();
    let waits = Arc::new(());
    let is_awaited = Arc::downgrade(&waits);
    let task = tokio::task::spawn_blocking(move || {
        let Reading { mut session, pinned } = reading;
        let charge = |rows| {
            session.charge(rows)?;
            if is_awaited.strong_count() > 0 { Ok(()) } else { Err(SqlError::Abandoned) }
        };
        let rows = gather(&asked, &pinned, &fetched, charge);
        Gathered { reading: Reading { session, pinned }, rows }
    });
    let read = task.await;
    drop(waits);
    read.map_err(|error| AskError::Failed(error.to_string()))
}

fn written(asked: &Asked<'_>, pinned: &Pinned, writing: Writing) -> Answer {
    let Writing { format, result, space } = writing;
    let QueryResult { columns, output, rows, scanned } = result;
    let mut body = counted::moment(asked, pinned);
    let said = |name: &str| body.get(name).and_then(Value::as_str).unwrap_or("unknown").to_owned();
    let headers = [
        ("tidemark-state", said("state")),
        ("tidemark-complete-to", said("complete_to")),
        ("tidemark-held-rows", pinned.as_of.has_held_rows.to_string()),
        ("tidemark-rows", rows.to_string()),
        ("tidemark-scanned", scanned.to_string()),
    ];
    let answer = match format {
        Format::Json => {
            let columns: Vec<Value> =
                columns.iter().map(|column| json!({ "name": column.name, "type": column.kind })).collect();
            body.insert("columns".to_owned(), json!(columns));
            body.insert("row_count".to_owned(), json!(rows));
            body.insert("scanned_rows".to_owned(), json!(scanned));
            let mut text = Value::Object(body).to_string().into_bytes();
            text.pop();
            text.extend(b",\"rows\":[");
            text.extend(output);
            text.extend(b"]}");
            return counted::of_now(Answer::of_kind("application/json", unsent::within(text, space)));
        }
        Format::Csv => Answer::of_kind("text/csv; charset=utf-8; header=present", unsent::within(output, space)),
        Format::ArrowStream => Answer::of_kind(ARROW_STREAM, unsent::within(output, space)),
        Format::ArrowFile => Answer::of_kind(ARROW_FILE, unsent::within(output, space)),
    };
    let mut answer = counted::of_now(answer);
    for (name, value) in headers {
        if let Ok(value) = HeaderValue::from_str(&value) {
            answer = answer.with(HeaderName::from_static(name), value);
        }
    }
    answer
}

impl SqlBody {
    fn checked(self, queries: &Queries, tenant: String, format: Format) -> Result<SqlQuestion, AskError> {
        let SqlBody { query, params, tenant: _, from, to, zone } = self;
        let zone = question::zone(zone.as_deref())?;
        let range = question::range(&zone, &from, &to)?;
        let bytes = query.len();
        if bytes > SQL_BYTES_MAX {
            return Err(SqlError::Text { bytes }.into());
        }
        let sent = params.len();
        if sent > PARAMS_MAX {
            return Err(SqlError::Params(format!("{sent} values in params: at most {PARAMS_MAX}")).into());
        }
        let params = params.into_iter().map(param).collect::<Result<_, _>>()?;
        let names = queries.source.names();
        let query = Query {
            sql: query,
            params,
            zone: zone.name().to_owned(),
            types: names.types.names().to_vec(),
            dimensions: names.types.dimensions().all().to_vec(),
            uploads: Vec::new(),
            format,
            rows_max: SQL_RESULT_ROWS_MAX,
            bytes_max: SQL_RESULT_BYTES_MAX,
            memory_bytes: queries.sql.settings().memory_bytes,
        };
        Ok(SqlQuestion { tenant, zone, range, query })
    }
}

fn param(value: Value) -> Result<Param, SqlError> {
    match value {
        Value::Null => Ok(Param::Null),
        Value::Bool(value) => Ok(Param::Bool(value)),
        Value::Number(number) => {
            let float = number.as_f64().filter(|_| !number.is_u64()).map(Param::Float);
            let large = || SqlError::Params(format!("params: {number} is larger than 2^63 - 1"));
            number.as_i64().map(Param::Int).or(float).ok_or_else(large)
        }
        Value::String(text) if text.len() > PARAM_BYTES_MAX => {
            let message = format!("params: a text has {} bytes: at most {PARAM_BYTES_MAX}", text.len());
            Err(SqlError::Params(message))
        }
        Value::String(text) => Ok(Param::Text(text)),
        Value::Array(_) | Value::Object(_) => {
            Err(SqlError::Params("params: a value is a text, a number, true, false or null".to_owned()))
        }
    }
}

fn unread(queries: &Queries, error: SqlRowsError) -> AskError {
    match error {
        SqlRowsError::Sql(error) => error.into(),
        // The name of a blob is for operators: `tidemark-streams audit` prints it.
        SqlRowsError::Directory(error) => {
            let message =
                "a blob of the range cannot be read: tell the operator of the server, or ask for another range";
            asking::unreadable(queries, &error, message.to_owned()).into()
        }
        SqlRowsError::NotKept { .. } => Failure::new(StatusCode::GONE, "not_kept", error).into(),
        SqlRowsError::Row(_) | SqlRowsError::Foreign => AskError::Failed(error.to_string()),
    }
}

pub fn failure(error: &SqlError) -> Failure {
    let status = match error {
        SqlError::NotInstalled { .. } | SqlError::Version { .. } => StatusCode::NOT_IMPLEMENTED,
        SqlError::Start(_)
        | SqlError::QueueFull { .. }
        | SqlError::Waited { .. }
        | SqlError::Displaced { .. }
        | SqlError::Unsent { .. } => StatusCode::SERVICE_UNAVAILABLE,
        SqlError::OverBudget(_) => StatusCode::TOO_MANY_REQUESTS,
        SqlError::Text { .. } | SqlError::Params(_) => StatusCode::BAD_REQUEST,
        SqlError::Refused { refusal, .. } => refused_status(*refusal),
        SqlError::Memory { .. } | SqlError::ScanRows { .. } | SqlError::Crashed { .. } => {
            StatusCode::UNPROCESSABLE_ENTITY
        }
        SqlError::Time { .. } => StatusCode::GATEWAY_TIMEOUT,
        SqlError::Abandoned | SqlError::Protocol(_) => StatusCode::INTERNAL_SERVER_ERROR,
    };
    Failure { retry_after_s: error.retry_after_s(), ..Failure::new(status, error.code(), error) }
}

fn refused_status(refusal: tidemark_streams_sql::frames::Refusal) -> StatusCode {
    use tidemark_streams_sql::frames::Refusal;
    match refusal {
        Refusal::Syntax
        | Refusal::NotAllowed
        | Refusal::Complex
        | Refusal::Plan
        | Refusal::Params
        | Refusal::Execution
        | Refusal::Upload => StatusCode::BAD_REQUEST,
        Refusal::Memory | Refusal::ResultRows | Refusal::ResultBytes => StatusCode::UNPROCESSABLE_ENTITY,
        Refusal::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    }
}
