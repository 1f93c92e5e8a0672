//! The router, and what is asked of counters and awards: each reads its request, asks the backend, and writes what came back.

use super::answer::json;
use super::body::EventAt;
use super::namespaces::{check_namespace, explained};
use super::node;
use super::once::Said;
use super::operation::{Api, Ask, AskOf, Operation, only_get};
use super::operations::operations;
use super::params::{number, value};
use super::path::numbered_award;
use super::server::{NodeShared, Shared, State};
use super::typed::{Answer, AnswerForm, Exposition, InTime, Json, Line};
use super::{
    AWARDS_MAX, Add, Added, AggregatorProcess, AwardFilter, AwardPosition, BODY_BYTES_MAX, Failure, GivenPosition,
    MilestoneList, ProgressBody, READ_COUNTERS_MAX, REQUEST_TIMEOUT, StatusBody, body, letter, pages, series, spans,
};
use crate::certificate::Certificate;
use crate::names::{parse_counter, session_id};
use crate::process::{self, NodeProcess, Process};
use crate::session::{IssueError, SESSION_VERSION};
use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State as Extract};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use std::sync::Arc;
use tidemark_proto::ids::{CounterName, Half, SessionId};
use tidemark_proto::limits::MILESTONE_MAX;

/// The additional headers of pages of allowed origins, and the time for which they need not ask again.
const PREFLIGHT: [(header::HeaderName, &str); 2] = [
    (
        header::ACCESS_CONTROL_ALLOW_HEADERS,
        "authorization, content-type, idempotency-key, idempotency-home, idempotency-first-sent, last-event-id",
    ),
    (header::ACCESS_CONTROL_MAX_AGE, "600"),
];

/// The routes of an aggregator: the whole table, and those of a front end.
pub(super) struct AggregatorRouter(pub Router);

impl AggregatorRouter {
    pub fn new<B: AggregatorProcess>(shared: Arc<Shared<B>>, front: Option<Router>) -> AggregatorRouter {
        AggregatorRouter(router(shared, operations(), front))
    }
}

/// The routes of a node: what it tells of itself. Every other operation of the table is answered from one place.
pub(super) struct NodeRouter(pub Router);

impl NodeRouter {
    pub fn new<N: NodeProcess>(shared: Arc<NodeShared<N>>) -> NodeRouter {
        let operations = node::operations(shared.process().dc());
        NodeRouter(router(shared, operations, None))
    }
}

/// The routes of these operations, of pages, and of a front end.
fn router<S: State>(shared: Arc<S>, operations: Vec<Operation<S>>, front: Option<Router>) -> Router {
    let api = Arc::new(Api::new(shared.clone(), operations));
    let first = front.unwrap_or_else(|| Router::new().route("/", pages::console().route()));
    first
        .merge(pages::routes())
        .route_layer(from_fn(letter::without_body))
        .method_not_allowed_fallback(only_get)
        .fallback(async move |request: Request| api.answer(request).await)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(from_fn(letter::check))
        .layer(from_fn_with_state(shared, across_origins::<S>))
        .layer(from_fn(in_time))
        .layer(from_fn(spans::in_a_span))
}

/// Bounds the time of an answer, and counts it.
async fn in_time(request: Request, next: Next) -> Response {
    let method = request.method().clone();
    let answer = tokio::time::timeout(REQUEST_TIMEOUT, next.run(request)).await;
    let late = || {
        let limit_s = REQUEST_TIMEOUT.as_secs();
        let message = format!("no answer within {limit_s} s: a request with an id may be repeated with the same id");
        Failure::InDoubt(message).into_response()
    };
    let response = answer.unwrap_or_else(|_| late());
    let labels = [("method", method_label(&method)), ("status", response.status().as_u16().to_string())];
    metrics::counter!("tidemark_http_requests_total", &labels).increment(1);
    response
}

/// Lets pages of allowed origins read answers (the Fetch standard's CORS protocol), and answers what browsers ask beforehand: the methods
/// that the path has.
async fn across_origins<S: State>(Extract(shared): Extract<Arc<S>>, request: Request, next: Next) -> Response {
    let origin = shared.access().allowed_origin(request.headers()).cloned();
    let asks_first = request.method() == Method::OPTIONS;
    let mut response = next.run(request).await;
    if let Some(origin) = origin {
        let methods = response.headers().get(header::ALLOW).cloned();
        if let Some(methods) = methods.filter(|_| asks_first) {
            response = (StatusCode::NO_CONTENT, PREFLIGHT).into_response();
            response.headers_mut().insert(header::ACCESS_CONTROL_ALLOW_METHODS, methods);
        }
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

/// Whether requests should be sent here: a line, or each check.
pub(super) enum Ready {
    Line,
    Checks(body::ReadyBody),
}

/// `GET /healthz`.
pub(super) async fn alive<S: State>(_: AskOf<S>) -> Result<Line, Failure> {
    Ok(Line("ok\n"))
}

/// 200 while requests should be sent here. `?verbose` answers each check, whatever the status.
pub(super) async fn ready<S: State>(AskOf { shared, params, .. }: AskOf<S>) -> Result<Ready, Failure> {
    let ready = shared.process().ready();
    if params.is_empty() {
        return Ok(ready.map(|()| Ready::Line)?);
    }
    Ok(Ready::Checks(body::ReadyBody { ready: ready.is_ok(), checks: shared.process().health() }))
}

impl IntoResponse for Ready {
    fn into_response(self) -> Response {
        match self {
            Ready::Line => Line("ready\n").into_response(),
            Ready::Checks(body) if body.ready => json(StatusCode::OK, &body),
            Ready::Checks(body) => json(StatusCode::SERVICE_UNAVAILABLE, &body),
        }
    }
}

impl Answer for Ready {
    fn forms() -> Vec<AnswerForm> {
        let checks = |status, about| AnswerForm::json::<body::ReadyBody>(status, about);
        let mut forms = Line::forms();
        forms.push(checks(StatusCode::OK, "Requests should be sent here."));
        forms.push(checks(StatusCode::SERVICE_UNAVAILABLE, "Requests should go elsewhere."));
        forms
    }
}

pub(super) async fn metrics_text<S: State>(AskOf { shared, .. }: AskOf<S>) -> Result<Exposition, Failure> {
    let metrics = shared.metrics().ok_or_else(|| Failure::NotFound("this process keeps no metrics".into()))?;
    shared.process().measure();
    Ok(Exposition(metrics.render()))
}

pub(super) async fn status<S: State>(ask: AskOf<S>) -> Result<Json<StatusBody>, Failure> {
    Ok(Json(ask.shared.process().status().await))
}

pub(super) async fn cluster<B: AggregatorProcess>(
    Ask { shared, params, .. }: Ask<B>,
) -> Result<Json<super::ClusterBody>, Failure> {
    let counter = counter_param(&params)?;
    Ok(Json(shared.backend.cluster(&counter).await?))
}

pub(super) async fn read_counters<B: AggregatorProcess>(
    Ask { shared, params, .. }: Ask<B>,
) -> Result<Json<body::ReadingsBody>, Failure> {
    let counters = series::some_counters(&params)?;
    let readings = shared.backend.read(&counters).await?;
    let counters =
        counters.iter().zip(&readings).map(|(name, reading)| body::ReadingBody::new(name, reading)).collect();
    Ok(Json(body::ReadingsBody { counters }))
}

pub(super) async fn get_counter<B: AggregatorProcess>(ask: Ask<B>) -> Result<Json<body::ReadingBody>, Failure> {
    let name = ask.counter()?;
    let backend = &*ask.shared.backend;
    let reading = match value(&ask.params, "at_least") {
        Some(wanted) => process::at_least(backend, &name, wanted).await?,
        None => {
            let readings = backend.read(std::slice::from_ref(&name)).await?;
            readings.into_iter().next().ok_or_else(|| Failure::NotServing("no reading".to_owned()))?
        }
    };
    Ok(Json(body::ReadingBody::new(&name, &reading)))
}

pub(super) async fn progress<B: AggregatorProcess>(ask: Ask<B>) -> Result<Json<ProgressBody>, Failure> {
    let name = ask.counter()?;
    let progress = ask.shared.backend.progress(&name).await?;
    Ok(Json(ProgressBody::new(&name, &progress)))
}

pub(super) async fn milestones<B: AggregatorProcess>(ask: Ask<B>) -> Result<Json<MilestoneList>, Failure> {
    Ok(Json(ask.shared.backend.milestones(&ask.counter()?).await?))
}

/// `POST …/add`.
pub(super) async fn add<B: AggregatorProcess>(
    ask: Ask<B>,
    said: body::AddBody,
) -> Result<InTime<body::AddAnswerBody>, Failure> {
    let counter = ask.counter()?;
    let shared = &ask.shared;
    let session = said.session.as_deref().map(|token| session_of(shared, token, &counter)).transpose()?;
    let event = said.at.as_ref().map(EventAt::time).transpose()?;
    let (half, delta) = said.delta.weight();
    if half == Half::Down && session.is_some() {
        return Err(Failure::invalid("session", "a decrement is never a milestone, and belongs to no session"));
    }
    let wants_value = said.value.then(|| counter.clone());
    let of_body = Said { id: said.id, home: said.home, first_sent: said.first_sent };
    let id = of_body.or(&Said::of(ask.headers())?)?.id_of(&counter)?;
    let added = shared.backend.add(Add { counter, half, delta, session, event, id }).await;
    let added = added.map_err(|failure| explained(shared, failure, &ask.namespace()))?;
    let is_pending = added == Added::Pending;
    let answer = body::AddAnswerBody::new(added);
    // The increment is counted even if the value is not read.
    let answer = match wants_value {
        Some(counter) => answer.with_value(shared.backend.read_fresh(&counter).await),
        None => answer,
    };
    Ok(InTime::new(answer, is_pending))
}

/// `PUT …/milestones`.
pub(super) async fn define<B: AggregatorProcess>(
    ask: Ask<B>,
    define: body::DefineBody,
) -> Result<Json<MilestoneList>, Failure> {
    Ok(Json(ask.shared.backend.define(ask.counter()?, define.spec()?).await?))
}

/// `DELETE …/milestones`: `?at=N` removes that milestone, `?rule` the rule "every k". A request with neither is an error: nothing is
/// removed by accident.
pub(super) async fn disarm<B: AggregatorProcess>(ask: Ask<B>) -> Result<Json<MilestoneList>, Failure> {
    let at = match (value(&ask.params, "at"), value(&ask.params, "rule")) {
        (Some(at), None) => Some(number("at", at, MILESTONE_MAX)?),
        (None, Some(_)) => None,
        _ => return Err(Failure::invalid("parameter", "either ?at=N or ?rule is needed")),
    };
    Ok(Json(ask.shared.backend.disarm(ask.counter()?, at).await?))
}

pub(super) async fn awards<B: AggregatorProcess>(
    Ask { shared, params, .. }: Ask<B>,
) -> Result<Json<body::AwardsBody>, Failure> {
    let filter = award_filter(&params)?;
    let after = process::found(&*shared.backend, position_of(&params, "after")?).await?;
    let filter = AwardFilter { after, ..filter };
    let awards = shared.backend.awards(filter.clone()).await?;
    let births = shared.backend.history().births;
    let full = awards.len() >= filter.limit;
    let next = awards.last().filter(|_| full).map(|last| AwardPosition::of(last).marked(&births).to_string());
    let awards = awards.iter().map(|award| body::AwardBody::new(award, &births)).collect();
    Ok(Json(body::AwardsBody { awards, next }))
}

/// `GET /v1/awards/…/certificate`.
pub(super) async fn certificate<B: AggregatorProcess>(ask: Ask<B>) -> Result<Json<Certificate>, Failure> {
    let (counter, at) = numbered_award(ask.rest())?;
    let awarded = ask.shared.backend.certificate(&counter, at).await?;
    let awarded = awarded.ok_or_else(|| Failure::NotFound(format!("milestone {at} of {counter} is not awarded")))?;
    Ok(Json(Certificate::new(&awarded.award, &awarded.signatures, awarded.written_off)))
}

/// `POST /v1/sessions`.
pub(super) async fn issue_sessions<B: AggregatorProcess>(
    ask: Ask<B>,
    said: body::IssueBody,
) -> Result<Json<body::SessionsBody>, Failure> {
    let body::IssueBody { namespace, count, expires_s } = said;
    let (sessions, expires) = ask.shared.access.sessions()?.issue(&namespace, count, expires_s)?;
    check_namespace(&ask.shared, &namespace)?;
    Ok(Json(body::SessionsBody { sessions, expires }))
}

/// A session's digest. A token that says that it is signed must be good, and for the counter's namespace.
pub(super) fn session_of<B>(shared: &Shared<B>, token: &str, counter: &CounterName) -> Result<SessionId, Failure> {
    if !is_signed(token) {
        return session_id(token).map_err(|error| Failure::invalid("session", error));
    }
    let session = shared.access.sessions()?.verify_for(token, counter.namespace()).map_err(Failure::from);
    // The caller is known; its input is wrong.
    session.map(|session| session.id).map_err(|refused| Failure::invalid(refused.code(), refused))
}

/// Whether a session's token says that the cluster has signed it.
pub(super) fn is_signed(token: &str) -> bool {
    matches!(token.split_once('.'), Some((SESSION_VERSION, _)))
}

/// All of `counter=NAMESPACE/KEY`, in the order given; at least one.
pub(super) fn counters_of(params: &[(String, String)]) -> Result<Vec<CounterName>, Failure> {
    let named = params.iter().filter(|(name, _)| name == "counter");
    let parsed = named.map(|(_, text)| parse_counter(text).map_err(|error| Failure::invalid("counter", error)));
    let counters = parsed.collect::<Result<Vec<_>, _>>()?;
    if counters.len() > READ_COUNTERS_MAX {
        let message = format!("{} counters: at most {READ_COUNTERS_MAX} allowed", counters.len());
        return Err(Failure::invalid("too_many_counters", message));
    }
    Ok(counters)
}

/// The one `counter=NAMESPACE/KEY`.
pub(super) fn counter_param(params: &[(String, String)]) -> Result<CounterName, Failure> {
    let given = value(params, "counter");
    let text = given.ok_or_else(|| Failure::invalid("counter", "one ?counter=NAMESPACE/KEY is needed"))?;
    parse_counter(text).map_err(|error| Failure::invalid("counter", error))
}

/// All of it but the position.
fn award_filter(params: &[(String, String)]) -> Result<AwardFilter, Failure> {
    let counter = value(params, "counter").map(parse_counter).transpose();
    let limit = value(params, "limit").map(|text| number("limit", text, AWARDS_MAX as u64)).transpose()?;
    Ok(AwardFilter {
        namespace: value(params, "namespace").map(str::to_owned),
        counter: counter.map_err(|error| Failure::invalid("counter", error))?,
        after: AwardPosition::default(),
        limit: limit.map_or(AWARDS_MAX, |limit| limit as usize),
    })
}

/// The parameter `name`.
pub(super) fn position_of(params: &[(String, String)], name: &'static str) -> Result<Option<GivenPosition>, Failure> {
    let given = params.iter().find(|(given, _)| given == name);
    given.map(|(_, text)| text.parse::<GivenPosition>().map_err(|error| Failure::invalid(name, error))).transpose()
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
