//! The routes: each reads its request, asks the backend, and writes what came back.

use super::answer::json;
use super::body::EventAt;
use super::path::{CounterPath, DRY_RUN, certificate_path, counter_path};
use super::server::Shared;
use super::{
    AWARDS_MAX, Add, Added, AwardFilter, AwardPosition, BODY_BYTES_MAX, Backend, Failure, ProgressBody,
    READ_COUNTERS_MAX, REQUEST_TIMEOUT, audit, backup, body, bulk, claims, dcs, dry_run, edges, groups, hop_routes,
    ledger, live, lives, milestone, pages, series, slots, version, webhooks,
};
use crate::certificate::Certificate;
use crate::names::{is_id, parse_counter, session_id};
use crate::session::{IssueError, SESSION_VERSION};
use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, Query, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use std::sync::Arc;
use tidemark_proto::ids::{CounterName, Half, SessionId};
use tidemark_proto::limits::MILESTONE_MAX;

/// Longest idempotency key, in bytes.
const IDEMPOTENCY_BYTES_MAX: usize = 128;

/// What pages of allowed origins may send.
const PREFLIGHT: [(header::HeaderName, &str); 3] = [
    (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, POST"),
    (header::ACCESS_CONTROL_ALLOW_HEADERS, "authorization, content-type, idempotency-key, last-event-id"),
    (header::ACCESS_CONTROL_MAX_AGE, "600"),
];

pub(super) type Params = Query<Vec<(String, String)>>;
pub(super) type AppState<B> = State<Arc<Shared<B>>>;
pub(super) type Body = Result<Bytes, BytesRejection>;

/// All routes, and those of a front end.
pub(super) fn router<B: Backend>(shared: Arc<Shared<B>>, front: Option<Router>) -> Router {
    let counter = get(get_counter::<B>).post(post_counter::<B>).put(put_counter::<B>).delete(delete_counter::<B>);
    let first = front.unwrap_or_else(|| Router::new().route("/", pages::totals().route()));
    let first: Router<Arc<Shared<B>>> = first.with_state(());
    first
        .merge(pages::routes())
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready::<B>))
        .route("/metrics", get(metrics_text::<B>))
        .route("/v1/status", get(status::<B>))
        .route("/v1/cluster", get(cluster::<B>))
        .route("/v1/counters", get(read_counters::<B>))
        .route("/v1/counters/{*rest}", counter)
        .route("/v1/add", post(bulk::add::<B>))
        .merge(series_routes())
        .route("/v1/awards", get(awards::<B>))
        .route("/v1/awards/{*rest}", get(one_award::<B>).post(post_award::<B>))
        .route("/v1/groups", get(groups::list::<B>))
        .route("/v1/groups/{*rest}", post(groups::lose::<B>))
        .route("/v1/backup", get(backup::image::<B>))
        .route("/v1/dcs", get(dcs::list::<B>))
        .route("/v1/dcs/{*rest}", post(dcs::forget::<B>))
        .route("/v1/slots", get(slots::list::<B>))
        .route("/v1/slots/move", post(slots::move_one::<B>))
        .route("/v1/slots/split", post(slots::split::<B>))
        .route("/v1/slots/stay", post(slots::stay::<B>))
        .route("/v1/ledger", get(ledger::members::<B>))
        .route("/v1/ledger/voters", post(ledger::change_voters::<B>))
        .route("/v1/ledger/set-aside", post(ledger::set_aside::<B>))
        .route("/v1/live", get(live::upgrade::<B>))
        .route("/v1/events", get(live::events::<B>))
        .route("/v1/sessions", post(issue_sessions::<B>))
        .route("/v1/hops", post(hop_routes::issue::<B>))
        .route("/v1/hops/count", post(hop_routes::count::<B>))
        .route("/v1/webhooks", get(webhooks::list::<B>))
        .route("/v1/webhooks/{*rest}", post(webhooks::ask::<B>))
        .fallback(async |uri: Uri| Failure::NotFound(format!("no such path: {}", uri.path())))
        .method_not_allowed_fallback(not_allowed)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(from_fn_with_state(shared.clone(), across_origins::<B>))
        .layer(from_fn(in_time))
        .with_state(shared)
}

/// What is asked about series, how they are kept, and edges.
fn series_routes<B: Backend>() -> Router<Arc<Shared<B>>> {
    let policy = get(series::policy::<B>).put(series::set_policy::<B>);
    let read = post(series::read::<B>).layer(DefaultBodyLimit::max(series::READ_BODY_BYTES_MAX));
    Router::new()
        .route("/v1/window", get(series::windows::<B>))
        .route("/v1/range", get(series::range::<B>))
        .route("/v1/top", get(series::top::<B>))
        .route("/v1/export", get(series::export::<B>))
        .route("/v1/audit", get(audit::audit::<B>))
        .route("/v1/read", read)
        .route("/v1/namespaces/{*rest}", policy)
        .route("/v1/edges", post(edges::change::<B>).layer(DefaultBodyLimit::max(edges::EDGES_BODY_BYTES_MAX)))
        .route("/v1/edges/audit", get(edges::audit::<B>))
        .route("/v1/edges/allowed/{*rest}", put(edges::allow::<B>))
}

/// Bounds the time of an answer, and counts it.
async fn in_time(request: Request, next: Next) -> Response {
    let method = request.method().clone();
    let answer = tokio::time::timeout(REQUEST_TIMEOUT, next.run(request)).await;
    let late = || Failure::InDoubt(format!("no answer within {} s", REQUEST_TIMEOUT.as_secs())).into_response();
    let response = answer.unwrap_or_else(|_| late());
    let labels = [("method", method_label(&method)), ("status", response.status().as_u16().to_string())];
    metrics::counter!("tidemark_http_requests_total", &labels).increment(1);
    response
}

/// Lets pages of allowed origins read answers (the Fetch standard's CORS protocol), and answers what browsers ask beforehand.
async fn across_origins<B: Backend>(State(shared): AppState<B>, request: Request, next: Next) -> Response {
    let origin = shared.access.allowed_origin(request.headers()).cloned();
    let asks_first = request.method() == Method::OPTIONS;
    let mut response = match &origin {
        Some(_) if asks_first => (StatusCode::NO_CONTENT, PREFLIGHT).into_response(),
        _ => next.run(request).await,
    };
    if let Some(origin) = origin {
        response.headers_mut().insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    }
    response.headers_mut().append(header::VARY, HeaderValue::from_static("origin"));
    response
}

/// Others would let a caller make up any number of labels.
fn method_label(method: &Method) -> String {
    let known = [Method::GET, Method::POST, Method::PUT, Method::DELETE, Method::HEAD];
    if known.contains(method) { method.to_string() } else { "other".to_owned() }
}

async fn not_allowed(method: Method, uri: Uri) -> Response {
    let failure = Failure::invalid("method", format!("{method} is not possible on {}", uri.path()));
    (StatusCode::METHOD_NOT_ALLOWED, failure.into_response().into_body()).into_response()
}

async fn ready<B: Backend>(State(shared): AppState<B>) -> Response {
    match shared.backend.ready() {
        Ok(()) => "ready\n".into_response(),
        Err(reason) => Failure::NotServing(reason).into_response(),
    }
}

async fn metrics_text<B: Backend>(State(shared): AppState<B>, headers: HeaderMap) -> Result<Response, Failure> {
    shared.access.read(&headers)?;
    let metrics = shared.metrics.as_ref().ok_or_else(|| Failure::NotFound("this process keeps no metrics".into()))?;
    shared.backend.measure();
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], metrics.render()).into_response())
}

async fn status<B: Backend>(State(shared): AppState<B>, headers: HeaderMap) -> Result<Response, Failure> {
    shared.access.read(&headers)?;
    Ok(json(StatusCode::OK, &shared.backend.status().await))
}

async fn cluster<B: Backend>(
    State(shared): AppState<B>,
    headers: HeaderMap,
    Query(params): Params,
) -> Result<Response, Failure> {
    shared.access.read(&headers)?;
    known_params(&params, &["counter"])?;
    let [counter] = &counters_of(&params)?[..] else {
        return Err(Failure::invalid("counter", "one ?counter=NAMESPACE/KEY is needed"));
    };
    Ok(json(StatusCode::OK, &shared.backend.cluster(counter).await?))
}

async fn read_counters<B: Backend>(
    State(shared): AppState<B>,
    headers: HeaderMap,
    Query(params): Params,
) -> Result<Response, Failure> {
    shared.access.read(&headers)?;
    known_params(&params, &["counter"])?;
    let counters = counters_of(&params)?;
    let readings = shared.backend.read(&counters).await?;
    let counters =
        counters.iter().zip(&readings).map(|(name, reading)| body::ReadingBody::new(name, reading)).collect();
    Ok(json(StatusCode::OK, &body::ReadingsBody { counters }))
}

async fn get_counter<B: Backend>(
    State(shared): AppState<B>,
    headers: HeaderMap,
    uri: Uri,
    Query(params): Params,
) -> Result<Response, Failure> {
    shared.access.read(&headers)?;
    match counter_path(below(&uri, "/v1/counters/"), false)? {
        CounterPath::Window(name) => series::window(&shared, name, &params).await,
        CounterPath::Series(name) => series::series(&shared, &name, &params).await,
        CounterPath::Graph(name) => edges::graph(&shared, &name).await,
        CounterPath::Milestones(name) => Ok(json(StatusCode::OK, &shared.backend.milestones(&name).await?)),
        CounterPath::Claims(name) => claims::rule(&shared, &name),
        CounterPath::Life(name) => lives::show(&shared, &name).await,
        CounterPath::Progress(name) => {
            let progress = shared.backend.progress(&name).await?;
            Ok(json(StatusCode::OK, &ProgressBody::new(&name, &progress)))
        }
        CounterPath::Value(name) if value(&params, "at_least").is_some() => {
            let wanted = value(&params, "at_least").unwrap_or_default();
            let reading = version::at_least(&*shared.backend, &name, wanted).await?;
            Ok(json(StatusCode::OK, &body::ReadingBody::new(&name, &reading)))
        }
        CounterPath::Value(name) | CounterPath::Add(name) | CounterPath::Reset(name) => {
            let readings = shared.backend.read(std::slice::from_ref(&name)).await?;
            let reading = readings.first().ok_or_else(|| Failure::NotServing("no reading".to_owned()))?;
            Ok(json(StatusCode::OK, &body::ReadingBody::new(&name, reading)))
        }
    }
}

async fn post_counter<B: Backend>(
    State(shared): AppState<B>,
    headers: HeaderMap,
    uri: Uri,
    bytes: Body,
) -> Result<Response, Failure> {
    shared.access.write(&headers)?;
    let counter = match counter_path(below(&uri, "/v1/counters/"), true)? {
        CounterPath::Add(counter) => counter,
        CounterPath::Reset(counter) => return lives::reset(&shared, &counter, bytes).await,
        _ => return Err(Failure::NotFound("POST needs a path that ends in /add or /reset".to_owned())),
    };
    let add: body::AddBody = body::parse(&whole(bytes)?)?;
    let session = add.session.as_deref().map(|token| session_of(&shared, token, &counter)).transpose()?;
    let event = add.at.as_ref().map(EventAt::time).transpose()?;
    let (half, delta) = add.delta.weight();
    if half == Half::Down && session.is_some() {
        return Err(Failure::invalid(
            "session",
            "what is counted down is never a milestone, and belongs to no session",
        ));
    }
    let wants_value = add.value.then(|| counter.clone());
    let add = Add { counter, half, delta, session, event };
    let added = match idempotency_of(&headers)? {
        Some(key) => shared.once.add(&shared.backend, key, add).await?,
        None => shared.backend.add(add).await?,
    };
    let status = if added == Added::Pending { StatusCode::ACCEPTED } else { StatusCode::OK };
    let answer = body::AddAnswerBody::new(added);
    // Whatever becomes of the value, the increment is counted.
    let answer = match wants_value {
        Some(counter) => answer.with_value(shared.backend.read_fresh(&counter).await),
        None => answer,
    };
    Ok(json(status, &answer))
}

async fn put_counter<B: Backend>(
    State(shared): AppState<B>,
    headers: HeaderMap,
    uri: Uri,
    bytes: Body,
) -> Result<Response, Failure> {
    shared.access.write(&headers)?;
    let counter = match counter_path(below(&uri, "/v1/counters/"), false)? {
        CounterPath::Milestones(counter) => counter,
        CounterPath::Claims(counter) => return claims::set_rule(&shared, &counter, bytes).await,
        CounterPath::Life(counter) => return lives::expire(&shared, &counter, bytes).await,
        _ => return Err(Failure::NotFound("PUT needs a path that ends in /milestones, /claims or /life".to_owned())),
    };
    let define: body::DefineBody = body::parse(&whole(bytes)?)?;
    Ok(json(StatusCode::OK, &shared.backend.define(counter, define.spec()?).await?))
}

/// `?at=N` of milestones removes that one, `?rule` the rule "every k". Neither is an error: nothing is removed by accident. Without
/// `/milestones` it is the counter itself.
async fn delete_counter<B: Backend>(
    State(shared): AppState<B>,
    headers: HeaderMap,
    uri: Uri,
    Query(params): Params,
) -> Result<Response, Failure> {
    shared.access.write(&headers)?;
    let counter = match counter_path(below(&uri, "/v1/counters/"), false)? {
        CounterPath::Milestones(counter) => counter,
        CounterPath::Value(counter) => return lives::remove(&shared, &counter, &params).await,
        _ => {
            return Err(Failure::NotFound("DELETE needs a counter's path, or one that ends in /milestones".to_owned()));
        }
    };
    let at = match &params[..] {
        [(name, at)] if name == "at" => Some(number("at", at, MILESTONE_MAX)?),
        [(name, _)] if name == "rule" => None,
        _ => return Err(Failure::invalid("parameter", "either ?at=N or ?rule is needed")),
    };
    Ok(json(StatusCode::OK, &shared.backend.disarm(counter, at).await?))
}

/// A claim, or a dry run.
async fn post_award<B: Backend>(
    shared: AppState<B>,
    headers: HeaderMap,
    uri: Uri,
    bytes: Body,
) -> Result<Response, Failure> {
    match uri.path().ends_with(DRY_RUN) {
        true => dry_run::dry_run(shared, headers, uri, bytes).await,
        false => claims::claim(shared, headers, uri, bytes).await,
    }
}

async fn awards<B: Backend>(
    State(shared): AppState<B>,
    headers: HeaderMap,
    Query(params): Params,
) -> Result<Response, Failure> {
    shared.access.read(&headers)?;
    let filter = award_filter(&params)?;
    let awards = shared.backend.awards(filter.clone()).await?;
    let full = awards.len() >= filter.limit;
    let next = awards.last().filter(|_| full).map(|last| AwardPosition::of(last).to_string());
    Ok(json(StatusCode::OK, &body::AwardsBody { awards: awards.iter().map(Into::into).collect(), next }))
}

/// An award, its certificate or its claim.
async fn one_award<B: Backend>(
    State(shared): AppState<B>,
    headers: HeaderMap,
    uri: Uri,
    Query(params): Params,
) -> Result<Response, Failure> {
    shared.access.read(&headers)?;
    let rest = below(&uri, "/v1/awards/");
    if rest.ends_with("/claim") {
        return claims::get(&shared, rest);
    }
    if !rest.ends_with("/certificate") {
        return milestone::award(&shared, rest, &params).await;
    }
    let (counter, at) = certificate_path(rest)?;
    let awarded = shared.backend.certificate(&counter, at).await?;
    let awarded = awarded.ok_or_else(|| Failure::NotFound(format!("milestone {at} of {counter} is not awarded")))?;
    Ok(json(StatusCode::OK, &Certificate::new(&awarded.award, &awarded.signatures, awarded.written_off)))
}

async fn issue_sessions<B: Backend>(
    State(shared): AppState<B>,
    headers: HeaderMap,
    bytes: Body,
) -> Result<Response, Failure> {
    shared.access.write(&headers)?;
    let body::IssueBody { namespace, count, expires_s } = body::parse(&whole(bytes)?)?;
    let (sessions, expires) = shared.access.sessions()?.issue(&namespace, count, expires_s)?;
    Ok(json(StatusCode::OK, &body::SessionsBody { sessions, expires }))
}

/// A session's digest. A token that says that it is signed must be good, and for the counter's namespace.
pub(super) fn session_of<B>(shared: &Shared<B>, token: &str, counter: &CounterName) -> Result<SessionId, Failure> {
    if !is_signed(token) {
        return session_id(token).map_err(|error| Failure::invalid("session", error));
    }
    let session = shared.access.sessions()?.verify_for(token, counter.namespace()).map_err(Failure::from);
    // Who asks is known; what it says is wrong.
    session.map(|session| session.id).map_err(|refused| Failure::invalid(refused.code(), refused))
}

/// Whether a session's token says that the cluster has signed it.
pub(super) fn is_signed(token: &str) -> bool {
    matches!(token.split_once('.'), Some((SESSION_VERSION, _)))
}

pub(super) fn below<'u>(uri: &'u Uri, prefix: &str) -> &'u str {
    uri.path().strip_prefix(prefix).unwrap_or_default()
}

pub(super) fn whole(bytes: Body) -> Result<Bytes, Failure> {
    whole_of(bytes, BODY_BYTES_MAX)
}

/// Where a route takes another length.
pub(super) fn whole_of(bytes: Body, max: usize) -> Result<Bytes, Failure> {
    bytes.map_err(|rejection| match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => Failure::TooLarge { what: "bytes of the body", value: "more".to_owned(), max },
        _ => Failure::invalid("malformed_body", rejection),
    })
}

fn idempotency_of(headers: &HeaderMap) -> Result<Option<String>, Failure> {
    let Some(value) = headers.get("idempotency-key") else { return Ok(None) };
    let refused = || Failure::invalid("idempotency_key", "1 to 128 visible ASCII characters are allowed");
    let key = value.to_str().map_err(|_| refused())?;
    if is_id(key, IDEMPOTENCY_BYTES_MAX) { Ok(Some(key.to_owned())) } else { Err(refused()) }
}

/// The value of a parameter.
pub(super) fn value<'p>(params: &'p [(String, String)], wanted: &str) -> Option<&'p str> {
    params.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str())
}

pub(super) fn known_params(params: &[(String, String)], known: &[&str]) -> Result<(), Failure> {
    match params.iter().find(|(name, _)| !known.contains(&name.as_str())) {
        Some((name, _)) => Err(Failure::invalid("parameter", format!("unknown parameter {name:?}: {known:?} allowed"))),
        None => Ok(()),
    }
}

/// All of `counter=NAMESPACE/KEY`, each once.
pub(super) fn counters_of(params: &[(String, String)]) -> Result<Vec<CounterName>, Failure> {
    let named = params.iter().filter(|(name, _)| name == "counter");
    let parsed = named.map(|(_, text)| parse_counter(text).map_err(|error| Failure::invalid("counter", error)));
    let mut counters = parsed.collect::<Result<Vec<_>, _>>()?;
    counters.sort_unstable();
    counters.dedup();
    if counters.len() > READ_COUNTERS_MAX {
        let message = format!("{} counters: at most {READ_COUNTERS_MAX} allowed", counters.len());
        return Err(Failure::invalid("too_many_counters", message));
    }
    Ok(counters)
}

fn award_filter(params: &[(String, String)]) -> Result<AwardFilter, Failure> {
    known_params(params, &["namespace", "counter", "after", "limit"])?;
    let value = |wanted: &str| params.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str());
    let counter = value("counter").map(parse_counter).transpose();
    Ok(AwardFilter {
        namespace: value("namespace").map(str::to_owned),
        counter: counter.map_err(|error| Failure::invalid("counter", error))?,
        after: position_of(params, "after")?.unwrap_or_default(),
        limit: value("limit").map_or(Ok(AWARDS_MAX as u64), |text| number("limit", text, AWARDS_MAX as u64))? as usize,
    })
}

/// The parameter `name`.
pub(super) fn position_of(params: &[(String, String)], name: &'static str) -> Result<Option<AwardPosition>, Failure> {
    let given = params.iter().find(|(given, _)| given == name);
    given.map(|(_, text)| text.parse().map_err(|error: String| Failure::invalid(name, error))).transpose()
}

pub(super) fn number(what: &'static str, text: &str, max: u64) -> Result<u64, Failure> {
    let value = text.parse().ok().filter(|&value| value >= 1 && value <= max);
    value.ok_or_else(|| Failure::invalid(what, format!("{what} is {text:?}: 1 to {max} allowed")))
}

impl From<IssueError> for Failure {
    fn from(error: IssueError) -> Failure {
        let message = error.to_string();
        match error {
            IssueError::Name(_) => Failure::Invalid { code: "namespace", message },
            IssueError::Count(_) => Failure::Invalid { code: "count", message },
            IssueError::Life(_) => Failure::Invalid { code: "expires_s", message },
            IssueError::Random(_) => Failure::NotServing(message),
        }
    }
}
