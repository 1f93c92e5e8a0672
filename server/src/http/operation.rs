//! The declaration of a route, and the one place that compares requests with it.
//!
//! An [`Operation`] is a method on a path with its permission, its parameters, and the fields of its body. Undeclared input is refused
//! before the handler runs, so no route ignores a caller's input. The table is in [`operations`](super::operations); the router, the
//! answers to wrong methods and the tests are made from it.

use super::params::{Param, Params, read_params};
use super::path::counter_of;
use super::server::{Shared, State};
use super::typed::{Answer, AnswerForm, Shape, shape_of};
use super::{BODY_BYTES_MAX, Failure, body};
use crate::json;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use futures_util::future::BoxFuture;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use percent_encoding::percent_decode_str;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use std::borrow::Cow;
use std::collections::HashMap;
use std::future::Future;
use std::ops::Range;
use std::sync::Arc;
use tidemark_proto::ids::CounterName;

/// Names a request that is sent again.
pub(super) const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// The permission that a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// No token.
    Open,
    /// The token, or none if reads are open.
    Read,
    /// The token.
    Write,
    /// The operation looks itself: a session's token, or what it is asked to carry out, is the permission.
    Own,
}

/// The rules for a request. Known to tests too, which try everything else.
#[derive(Clone, Debug)]
pub struct Rules {
    /// The operation's name in clients.
    pub name: &'static str,
    pub method: Method,
    /// Names in braces stand for parts of the path; `{key}` may hold further `/`.
    pub path: &'static str,
    pub permission: Permission,
    pub params: Vec<Param>,
    /// Fields of the JSON object that it reads; `None`: a body is refused.
    pub body: Option<&'static [&'static str]>,
    /// It reads lines, or an array, of such objects.
    pub many: bool,
    pub body_bytes_max: usize,
    /// It takes an `Idempotency-Key`.
    pub keyed: bool,
    /// The shape of the body that it reads.
    pub body_shape: Option<Shape>,
    /// Whether it needs a body: an empty object is refused.
    pub needs_body: bool,
    /// How it answers when it does not fail.
    pub answers: Vec<AnswerForm>,
    /// With which errors it may fail, besides those of every request like it.
    pub fails: Vec<ErrorCode>,
}

/// An error of an operation, by its status and its code.
pub type ErrorCode = (u16, &'static str);

type Handler<S> = Box<dyn Fn(AskOf<S>, Body) -> BoxFuture<'static, Result<Response, Failure>> + Send + Sync>;

/// A method on a path, of a process whose requests share the state `S`.
pub(super) struct Operation<S> {
    pub rules: Rules,
    handler: Handler<S>,
}

/// A request to an aggregator that was held against its operation.
pub(super) type Ask<B> = AskOf<Shared<B>>;

/// A request that was held against its operation.
pub(super) struct AskOf<S> {
    pub shared: Arc<S>,
    pub parts: Parts,
    pub params: Params,
    /// The place of the names in the path, still escaped.
    rest: Range<usize>,
}

/// Reads without a body.
pub(super) fn get<S, A, F>(
    name: &'static str,
    path: &'static str,
    handler: impl Fn(AskOf<S>) -> F + Send + Sync + 'static,
) -> Operation<S>
where
    S: State,
    A: Answer,
    F: Future<Output = Result<A, Failure>> + Send + 'static,
{
    bare(name, Method::GET, path, handler).with(Permission::Read)
}

/// Changes something without a body. `name` is what a client calls it.
pub(super) fn bare<S, A, F>(
    name: &'static str,
    method: Method,
    path: &'static str,
    handler: impl Fn(AskOf<S>) -> F + Send + Sync + 'static,
) -> Operation<S>
where
    S: State,
    A: Answer,
    F: Future<Output = Result<A, Failure>> + Send + 'static,
{
    let handler = Arc::new(handler);
    let whole: Handler<S> = Box::new(move |ask, body| {
        let handler = handler.clone();
        Box::pin(async move {
            refuse_body(body).await?;
            handler(ask).await.map(A::into_response)
        })
    });
    Operation { rules: Rules { answers: A::forms(), ..Rules::new(name, method, path) }, handler: whole }
}

/// Reads one JSON object; no body is an empty object.
pub(super) fn json<S, T, A, F>(
    name: &'static str,
    method: Method,
    path: &'static str,
    handler: impl Fn(AskOf<S>, T) -> F + Send + Sync + 'static,
) -> Operation<S>
where
    S: State,
    T: DeserializeOwned + JsonSchema + Send + 'static,
    A: Answer,
    F: Future<Output = Result<A, Failure>> + Send + 'static,
{
    json_of(name, method, path, BODY_BYTES_MAX, handler)
}

/// The same of a longer body.
pub(super) fn json_of<S, T, A, F>(
    name: &'static str,
    method: Method,
    path: &'static str,
    most: usize,
    handler: impl Fn(AskOf<S>, T) -> F + Send + Sync + 'static,
) -> Operation<S>
where
    S: State,
    T: DeserializeOwned + JsonSchema + Send + 'static,
    A: Answer,
    F: Future<Output = Result<A, Failure>> + Send + 'static,
{
    let handler = Arc::new(handler);
    let whole: Handler<S> = Box::new(move |ask, bytes| {
        let handler = handler.clone();
        Box::pin(async move {
            let bytes = whole_body(bytes, most).await?;
            handler(ask, body::parse(&bytes)?).await.map(A::into_response)
        })
    });
    let rules = Rules {
        answers: A::forms(),
        body: Some(json::fields::<T>()),
        body_shape: Some(shape_of::<T>),
        needs_body: body::parse::<T>(b"").is_err(),
        body_bytes_max: most,
        ..Rules::new(name, method, path)
    };
    Operation { rules, handler: whole }
}

/// Reads a body of many objects itself, as [`whole_body`] does.
pub(super) fn many<S, T, A, F>(
    name: &'static str,
    method: Method,
    path: &'static str,
    most: usize,
    handler: impl Fn(AskOf<S>, Body) -> F + Send + Sync + 'static,
) -> Operation<S>
where
    S: State,
    T: DeserializeOwned + JsonSchema,
    A: Answer,
    F: Future<Output = Result<A, Failure>> + Send + 'static,
{
    let handler = Arc::new(handler);
    let whole: Handler<S> = Box::new(move |ask, body| {
        let handler = handler.clone();
        Box::pin(async move { handler(ask, body).await.map(A::into_response) })
    });
    let rules = Rules {
        answers: A::forms(),
        body: Some(json::fields::<T>()),
        body_shape: Some(shape_of::<T>),
        needs_body: true,
        body_bytes_max: most,
        many: true,
        ..Rules::new(name, method, path)
    };
    Operation { rules, handler: whole }
}

impl Rules {
    /// Of an operation that takes and answers nothing.
    pub(super) fn new(name: &'static str, method: Method, path: &'static str) -> Rules {
        Rules {
            name,
            method,
            path,
            permission: Permission::Write,
            params: Vec::new(),
            body: None,
            many: false,
            body_bytes_max: BODY_BYTES_MAX,
            keyed: false,
            body_shape: None,
            needs_body: false,
            answers: Vec::new(),
            fails: Vec::new(),
        }
    }
}

impl<S: State> Operation<S> {
    /// Of a process that does not serve it: it answers `elsewhere` to a request that is as the operation says.
    pub fn elsewhere(rules: Rules, elsewhere: Failure) -> Operation<S> {
        let handler: Handler<S> = Box::new(move |_, _| Box::pin(std::future::ready(Err(elsewhere.clone()))));
        Operation { rules, handler }
    }

    pub fn with(mut self, permission: Permission) -> Operation<S> {
        self.rules.permission = permission;
        self
    }

    pub fn params(mut self, params: &[&[Param]]) -> Operation<S> {
        self.rules.params = params.concat();
        self
    }

    /// May fail with these errors, besides those of every request like it.
    pub fn fails(mut self, with: &[&[ErrorCode]]) -> Operation<S> {
        self.rules.fails = with.concat();
        self
    }

    /// Takes an `Idempotency-Key`.
    pub fn keyed(mut self) -> Operation<S> {
        self.rules.keyed = true;
        self
    }

    async fn answer(&self, shared: Arc<S>, request: Request, rest: Range<usize>) -> Result<Response, Failure> {
        let (parts, body) = request.into_parts();
        match self.rules.permission {
            Permission::Read => shared.access().read(&parts.headers)?,
            Permission::Write => shared.access().write(&parts.headers)?,
            Permission::Open | Permission::Own => {}
        }
        if !self.rules.keyed && parts.headers.contains_key(IDEMPOTENCY_KEY) {
            let Rules { method, path, .. } = &self.rules;
            let message = format!("{method} {path} takes no Idempotency-Key: send it without one; nothing was done");
            return Err(Failure::invalid("idempotency_key", message));
        }
        let params = read_params(&self.rules, parts.uri.query().unwrap_or_default())?;
        let ask = AskOf { shared, parts, params, rest };
        ask.check_namespaces(&self.rules)?;
        (self.handler)(ask, body).await
    }
}

impl<S: State> AskOf<S> {
    pub fn headers(&self) -> &HeaderMap {
        &self.parts.headers
    }

    /// The part of the path in the place of the names, still escaped.
    pub fn rest(&self) -> &str {
        self.parts.uri.path().get(self.rest.clone()).unwrap_or_default()
    }

    /// The first name in the path, where that is a namespace.
    pub fn namespace(&self) -> Cow<'_, str> {
        percent_decode_str(self.rest().split('/').next().unwrap_or_default()).decode_utf8_lossy()
    }

    /// The counter that the path names, `{namespace}/{key}`.
    pub fn counter(&self) -> Result<CounterName, Failure> {
        counter_of(self.rest())
    }

    /// Refuses namespaces that do not exist. The hottest path leaves it to the process, which has to look anyway.
    fn check_namespaces(&self, rules: &Rules) -> Result<(), Failure> {
        if rules.path.contains("{namespace}") && !rules.keyed {
            self.shared.check_namespace(&self.namespace())?;
        }
        for (name, value) in self.params.iter() {
            let param = rules.params.iter().find(|param| param.name == name);
            if let Some(namespace) = param.and_then(|param| param.namespace_in(value)) {
                self.shared.check_namespace(namespace)?;
            }
        }
        Ok(())
    }
}

/// A path, and what may be done there.
struct Resource<S> {
    before: &'static str,
    after: &'static str,
    /// Parts of the path between the two.
    parts: usize,
    /// Whether there may be more of them.
    has_key: bool,
    operations: Vec<Operation<S>>,
    allow: HeaderValue,
}

impl<S: State> Resource<S> {
    fn new(path: &'static str) -> Resource<S> {
        let (before, names) = path.split_at(path.find('{').unwrap_or(path.len()));
        let (names, after) = names.split_at(names.rfind('}').map_or(0, |end| end + 1));
        Resource {
            before,
            after,
            parts: names.matches('{').count(),
            has_key: names.contains("{key}"),
            operations: Vec::new(),
            allow: HeaderValue::from_static(""),
        }
    }

    /// Where the names stand in a path that is of this form.
    fn find(&self, path: &str) -> Option<Range<usize>> {
        let names = path.strip_prefix(self.before)?.strip_suffix(self.after)?;
        let parts = if names.is_empty() { 0 } else { names.split('/').count() };
        let fits = parts == self.parts || self.has_key && parts > self.parts;
        fits.then_some(self.before.len()..self.before.len() + names.len())
    }

    fn is_called(&self, path: &str) -> bool {
        self.operations.first().is_some_and(|operation| operation.rules.path == path)
    }
}

/// All operations, by their paths.
pub(super) struct Api<S> {
    shared: Arc<S>,
    /// By the first part of the path behind its version; of those that begin so, longer endings come first.
    resources: HashMap<&'static str, Vec<Resource<S>>>,
}

impl<S: State> Api<S> {
    pub fn new(shared: Arc<S>, operations: Vec<Operation<S>>) -> Api<S> {
        let mut resources: HashMap<&'static str, Vec<Resource<S>>> = HashMap::new();
        for operation in operations {
            let path = operation.rules.path;
            let all = resources.entry(first_part(path)).or_default();
            match all.iter_mut().find(|resource| resource.is_called(path)) {
                Some(resource) => resource.operations.push(operation),
                None => all.push(Resource { operations: vec![operation], ..Resource::new(path) }),
            }
        }
        for all in resources.values_mut() {
            all.sort_by_key(|resource| std::cmp::Reverse(resource.after.len()));
            all.iter_mut().for_each(|resource| resource.allow = allow(&resource.operations));
        }
        Api { shared, resources }
    }

    /// Answers a request to any path.
    pub async fn answer(&self, request: Request) -> Response {
        let path = request.uri().path();
        let candidates = self.resources.get(first_part(path)).map_or(&[][..], Vec::as_slice);
        let found = candidates.iter().find_map(|resource| Some((resource, resource.find(path)?)));
        let Some((resource, rest)) = found else { return unknown(path, candidates).into_response() };
        let method = if request.method() == Method::HEAD { &Method::GET } else { request.method() };
        match resource.operations.iter().find(|operation| operation.rules.method == *method) {
            Some(operation) => {
                let answer = operation.answer(self.shared.clone(), request, rest).await;
                answer.unwrap_or_else(|failure| operation.rules.failed(failure))
            }
            None => not_allowed(method, path, &resource.allow),
        }
    }
}

/// `counters` of `/v1/counters/…`, `healthz` of `/healthz`.
fn first_part(path: &str) -> &str {
    let path = path.strip_prefix("/v1").unwrap_or(path);
    path.split('/').nth(1).unwrap_or_default()
}

fn allow<S>(operations: &[Operation<S>]) -> HeaderValue {
    let mut methods: Vec<&str> = operations.iter().map(|operation| operation.rules.method.as_str()).collect();
    if methods.contains(&"GET") {
        methods.push("HEAD");
    }
    HeaderValue::from_str(&methods.join(", ")).expect("methods are visible ASCII")
}

/// A method that a path does not have.
pub(super) fn not_allowed(method: &Method, path: &str, allow: &HeaderValue) -> Response {
    let allowed = allow.to_str().unwrap_or_default();
    let message = format!("{method} is not possible on {path}: {allowed} allowed");
    let mut response = Failure::http(StatusCode::METHOD_NOT_ALLOWED, "method", message).into_response();
    response.headers_mut().insert(header::ALLOW, allow.clone());
    response
}

/// Of routes outside of the table that are only posted to.
pub async fn only_post(method: Method, uri: Uri) -> Response {
    not_allowed(&method, uri.path(), &HeaderValue::from_static("POST"))
}

/// Of routes outside of the table that are only read.
pub(super) async fn only_get(method: Method, uri: Uri) -> Response {
    not_allowed(&method, uri.path(), &HeaderValue::from_static("GET, HEAD"))
}

fn unknown<S>(path: &str, candidates: &[Resource<S>]) -> Failure {
    let known: Vec<&str> = candidates
        .iter()
        .flat_map(|resource| resource.operations.first())
        .map(|operation| operation.rules.path)
        .collect();
    match known.is_empty() {
        true => Failure::NotFound(format!("no such path: {path}")),
        false => Failure::NotFound(format!("no such path: {path}; there are {}", known.join(", "))),
    }
}

/// All of a body, unless it is longer than may be.
pub(super) async fn whole_body(body: Body, most: usize) -> Result<Bytes, Failure> {
    match Limited::new(body, most).collect().await {
        Ok(whole) => Ok(whole.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            Err(Failure::TooLarge { what: "bytes of the body", value: "more".to_owned(), max: most })
        }
        Err(error) => Err(Failure::invalid("malformed_body", format!("the body: {error}"))),
    }
}

/// Refuses a body where none is read.
pub(super) async fn refuse_body(mut body: Body) -> Result<(), Failure> {
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Failure::invalid("malformed_body", format!("the body: {error}")))?;
        if frame.data_ref().is_some_and(|data| !data.is_empty()) {
            let message = "this request has a body, and none is read here: send it without one; nothing was done";
            return Err(Failure::invalid("unexpected_body", message));
        }
    }
    Ok(())
}
