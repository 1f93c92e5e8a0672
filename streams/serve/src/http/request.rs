//! Parts of a request: its path, its parameters, its body, and its sender.

use super::answer::Failure;
use super::assets::Page;
use crate::node::{Node, now_ms};
use crate::secret::Role;
use crate::token_keys::{Caller, Refused, TokenKeys};
use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::{Body, Incoming};
use hyper::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_RANGE, HOST, HeaderMap, HeaderName, HeaderValue, ORIGIN};
use hyper::http::uri::Authority;
use hyper::{Method, Request, StatusCode, Version};
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;
use tidemark_streams_intake::unpack::{Coding, UnpackError};

/// A body must have come after this.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// A refused body is read up to this many times its limit.
const DRAINED_TIMES: usize = 4;

/// Bytes that are read of a body that a route does not take, so that its sender gets to read the answer.
const BODY_PASSED_BYTES_MAX: usize = 1 << 20;

/// Letters of a value that an error shows.
const SHOWN_MAX: usize = 40;

/// The paths that are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    Healthz,
    Readyz,
    Metrics,
    Events,
    Listings,
    Query,
    Sql,
    Tables,
    UploadTable,
    DropTable,
    FeedSnapshot,
    FeedCommands,
    FeedRows,
    Pause,
    Resume,
    Erase,
    Types,
    RenameType,
    DeleteType,
    AddType,
    AddDimension,
    DeadLetters,
    ReplayDeadLetters,
    DropDeadLetters,
    Refused,
    Retention,
    SetRetention,
    TestTenants,
    AddTestTenant,
    RemoveTestTenant,
    DeleteTestRows,
    Page(Page),
}

const ROUTES: [(&str, Route); 31] = [
    ("/healthz", Route::Healthz),
    ("/readyz", Route::Readyz),
    ("/metrics", Route::Metrics),
    ("/v1/events", Route::Events),
    ("/v1/listings", Route::Listings),
    ("/v1/impressions/query", Route::Query),
    ("/v1/sql", Route::Sql),
    ("/v1/tables", Route::Tables),
    ("/v1/tables/upload", Route::UploadTable),
    ("/v1/tables/drop", Route::DropTable),
    ("/v1/feed/snapshot", Route::FeedSnapshot),
    ("/v1/feed/commands", Route::FeedCommands),
    ("/v1/feed/rows", Route::FeedRows),
    ("/v1/pause", Route::Pause),
    ("/v1/resume", Route::Resume),
    ("/v1/erase", Route::Erase),
    ("/v1/types", Route::Types),
    ("/v1/types/rename", Route::RenameType),
    ("/v1/types/delete", Route::DeleteType),
    ("/v1/types/add", Route::AddType),
    ("/v1/types/add-dimension", Route::AddDimension),
    ("/v1/dead-letters", Route::DeadLetters),
    ("/v1/dead-letters/replay", Route::ReplayDeadLetters),
    ("/v1/dead-letters/drop", Route::DropDeadLetters),
    ("/v1/refused", Route::Refused),
    ("/v1/retention", Route::Retention),
    ("/v1/retention/set", Route::SetRetention),
    ("/v1/test-tenants", Route::TestTenants),
    ("/v1/test-tenants/add", Route::AddTestTenant),
    ("/v1/test-tenants/remove", Route::RemoveTestTenant),
    ("/v1/test-tenants/delete-rows", Route::DeleteTestRows),
];

impl Route {
    pub fn of(path: &str) -> Result<Route, Failure> {
        if let Some(page) = Page::of(path) {
            return Ok(Route::Page(page));
        }
        let found = ROUTES.iter().find(|(known, _)| *known == path);
        let missing = || {
            let known = ROUTES.map(|(known, _)| known).join(", ");
            let message = format!("no path {:?}; there are {known} and the page /impressions", shown(path));
            Failure::new(StatusCode::NOT_FOUND, "not_found", message)
        };
        found.map(|(_, route)| *route).ok_or_else(missing)
    }

    /// The route of a request, which has its method.
    pub fn of_request<B>(request: &Request<B>) -> Result<Route, Failure> {
        let route = Route::of(request.uri().path())?;
        let method = route.method();
        match request.method() == method || (method == Method::GET && request.method() == Method::HEAD) {
            true => Ok(route),
            false => Err(Failure::method(request.method(), method)),
        }
    }

    pub fn method(self) -> Method {
        match self {
            Route::Healthz | Route::Readyz | Route::Metrics | Route::Types | Route::Page(_) => Method::GET,
            Route::DeadLetters | Route::Refused | Route::Retention | Route::TestTenants => Method::GET,
            Route::SetRetention | Route::AddTestTenant | Route::RemoveTestTenant | Route::DeleteTestRows => {
                Method::POST
            }
            Route::FeedSnapshot | Route::FeedCommands | Route::FeedRows => Method::GET,
            Route::ReplayDeadLetters | Route::DropDeadLetters => Method::POST,
            Route::Tables => Method::GET,
            Route::Events | Route::Listings | Route::Query | Route::Sql => Method::POST,
            Route::UploadTable | Route::DropTable => Method::POST,
            Route::Pause | Route::Resume | Route::Erase => Method::POST,
            Route::RenameType | Route::DeleteType | Route::AddType | Route::AddDimension => Method::POST,
        }
    }

    /// Whether the body of a request is read. Other requests have none.
    pub fn reads_body(self) -> bool {
        match self {
            Route::Events | Route::Listings | Route::Query | Route::Sql => true,
            Route::UploadTable | Route::ReplayDeadLetters => true,
            Route::Healthz | Route::Readyz | Route::Metrics | Route::Types | Route::Page(_) => false,
            Route::DeadLetters | Route::DropDeadLetters | Route::Refused | Route::Tables | Route::DropTable => false,
            Route::Retention | Route::SetRetention => false,
            Route::TestTenants | Route::AddTestTenant | Route::RemoveTestTenant | Route::DeleteTestRows => false,
            Route::FeedSnapshot | Route::FeedCommands | Route::FeedRows => false,
            Route::Pause | Route::Resume | Route::Erase => false,
            Route::RenameType | Route::DeleteType | Route::AddType | Route::AddDimension => false,
        }
    }

    /// Parameters behind `?`.
    pub fn params(self) -> &'static [&'static str] {
        match self {
            Route::Healthz | Route::Metrics | Route::Listings | Route::Query => &[],
            Route::Retention | Route::TestTenants | Route::DeleteTestRows => &[],
            Route::SetRetention => &["kept_days", "late_days"],
            Route::AddTestTenant | Route::RemoveTestTenant => &["tenant"],
            Route::Sql | Route::Types | Route::Page(_) | Route::FeedSnapshot => &[],
            Route::FeedCommands => &["session", "after"],
            Route::FeedRows => &["tenant", "first", "last"],
            Route::Tables => &["tenant"],
            Route::UploadTable | Route::DropTable => &["tenant", "name"],
            Route::Readyz => &["verbose"],
            Route::Events => &["producer", "seq"],
            Route::Pause | Route::Resume | Route::DeleteType | Route::AddType => &["type"],
            Route::RenameType => &["from", "to", "merge"],
            Route::AddDimension => &["type", "dimension", "values_max"],
            Route::Erase => &["tenant", "listing", "again"],
            Route::DeadLetters => &["source", "row", "reason", "tenant", "raw", "limit", "from"],
            Route::ReplayDeadLetters => &["source", "row", "reason", "tenant", "fixed", "from"],
            Route::Refused => &["tenant", "limit"],
            Route::DropDeadLetters => &["source", "row", "reason", "tenant", "all", "from"],
        }
    }
}

/// Parameters by name.
pub type Params = BTreeMap<String, String>;

/// Reads parameters. Unknown and repeated ones are refused.
pub fn params(query: Option<&str>, known: &[&str]) -> Result<Params, Failure> {
    let mut params = Params::new();
    for part in query.unwrap_or_default().split('&').filter(|part| !part.is_empty()) {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        let decoded = decoded(name).zip(decoded(value));
        let Some((name, value)) = decoded else {
            return Err(Failure::bad(
                "parameter",
                format!("parameter {:?}: `%` is followed by two digits", shown(part)),
            ));
        };
        if !known.contains(&name.as_str()) {
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            let message = format!("unknown parameter {:?}; known parameters: {known}", shown(&name));
            return Err(Failure::bad("parameter", message));
        }
        if params.insert(name.clone(), value).is_some() {
            return Err(Failure::bad("parameter", format!("parameter {name} is given twice")));
        }
    }
    Ok(params)
}

/// A parameter that is true or false. A missing parameter is false.
pub fn flag(params: &Params, name: &str) -> Result<bool, Failure> {
    match params.get(name).map(String::as_str) {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(other) => Err(Failure::bad("parameter", format!("{name} {:?}: true or false", shown(other)))),
    }
}

fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'%' => {
                let high = char::from(rest.next()?).to_digit(16)?;
                let low = char::from(rest.next()?).to_digit(16)?;
                bytes.push((16 * high + low) as u8);
            }
            b'+' => bytes.push(b' '),
            byte => bytes.push(byte),
        }
    }
    String::from_utf8(bytes).ok()
}

pub fn shown(text: &str) -> String {
    text.chars().take(SHOWN_MAX).collect()
}

/// How the body of a request is packed.
pub fn coding(headers: &HeaderMap) -> Result<Coding, Failure> {
    if headers.contains_key(CONTENT_RANGE) {
        return Err(Failure::bad("content_range", "content-range: a part of a body is not read"));
    }
    let mut values = headers.get_all(CONTENT_ENCODING).iter();
    let first = values.next();
    let unsupported = |error: UnpackError| Failure::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "content_encoding", error);
    if values.next().is_some() {
        return Err(unsupported(UnpackError::Unsupported("more than one".to_owned())));
    }
    let name = first.map_or(Ok(""), HeaderValue::to_str);
    Coding::named(name.unwrap_or("no text")).map_err(unsupported)
}

/// Refuses a query with a packed body.
pub fn refuse_packed(headers: &HeaderMap) -> Result<(), Failure> {
    match coding(headers)? {
        Coding::Identity => Ok(()),
        Coding::Gzip | Coding::Zstd => {
            let message = "content-encoding: packed queries are not read";
            Err(Failure::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "content_encoding", message))
        }
    }
}

/// The server failed on a query. Its own words are for the operator.
pub fn query_failed() -> Failure {
    let message = "the server failed on the query: tell its operator, or ask for another range";
    Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "query_failed", message)
}

/// Refuses a body that the route does not read. A form that names a tenant or a type there would be carried out for all of them.
pub async fn check_body(route: Route, request: &mut Request<Incoming>) -> Result<(), Failure> {
    if route.reads_body() {
        return Ok(());
    }
    let incoming = request.body_mut();
    let first = async {
        while let Some(frame) = incoming.frame().await {
            // Chunks may be empty. A body that was cut off is a body too.
            if frame.map_or(true, |frame| frame.data_ref().is_some_and(|bytes| !bytes.is_empty())) {
                pass_over(incoming, BODY_PASSED_BYTES_MAX).await;
                return true;
            }
        }
        false
    };
    match tokio::time::timeout(BODY_TIMEOUT, first).await {
        Ok(false) => Ok(()),
        Ok(true) | Err(_) => {
            let message = format!("{} takes no body: name parameters behind `?`", request.uri().path());
            Err(Failure::bad("malformed_body", message))
        }
    }
}

/// The body of a request, up to a limit.
pub async fn body(request: Request<Incoming>, max: usize) -> Result<Bytes, Failure> {
    let incoming = refuse_longer(request, max).await?;
    match tokio::time::timeout(BODY_TIMEOUT, Limited::new(incoming, max).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large(max)),
        Ok(Err(error)) => Err(cut_off(&error)),
        Err(_) => Err(too_late()),
    }
}

/// The same of a body that needs a permit beyond its first bytes.
pub async fn large_body<P>(
    request: Request<Incoming>,
    first: usize,
    max: usize,
    permit: impl FnOnce() -> Result<P, Failure>,
) -> Result<Bytes, Failure> {
    let mut incoming = refuse_longer(request, max).await?;
    let reading = async {
        let mut body = BytesMut::new();
        let mut permit = Some(permit);
        let mut _held = None;
        while let Some(frame) = incoming.frame().await {
            let frame = frame.map_err(|error| cut_off(&error))?;
            let Some(bytes) = frame.data_ref() else { continue };
            let length = body.len() + bytes.len();
            if length > max {
                return Err(too_large(max));
            }
            if length > first
                && let Some(permit) = permit.take()
            {
                _held = Some(permit()?);
            }
            body.extend_from_slice(bytes);
        }
        Ok(body.freeze())
    };
    tokio::time::timeout(BODY_TIMEOUT, reading).await.unwrap_or_else(|_| Err(too_late()))
}

async fn refuse_longer(request: Request<Incoming>, max: usize) -> Result<Incoming, Failure> {
    let mut incoming = request.into_body();
    if incoming.size_hint().lower() <= max as u64 {
        return Ok(incoming);
    }
    let _ = tokio::time::timeout(BODY_TIMEOUT, pass_over(&mut incoming, DRAINED_TIMES * max)).await;
    Err(too_large(max))
}

fn too_large(max: usize) -> Failure {
    let message = format!("the body has more than {max} bytes: send less at a time");
    Failure::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
}

fn cut_off(error: &dyn fmt::Display) -> Failure {
    Failure::bad("malformed_request", format!("the body was cut off: {error}"))
}

fn too_late() -> Failure {
    let message = format!("the body did not come within {} s", BODY_TIMEOUT.as_secs());
    Failure::new(StatusCode::REQUEST_TIMEOUT, "body_timeout", message)
}

/// Reads a body that is refused, so that its sender gets to read the answer.
async fn pass_over(incoming: &mut Incoming, max: usize) {
    let mut passed = 0;
    while let Some(Ok(frame)) = incoming.frame().await {
        passed += frame.data_ref().map_or(0, Bytes::len);
        if passed > max {
            return;
        }
    }
}

/// Lets producers through.
pub fn authorize_producer(keys: Option<&TokenKeys>, headers: &HeaderMap) -> Result<(), Failure> {
    authorize(keys, headers, &[Role::Producer])
}

/// Refuses a request without a token, where one is needed.
pub fn check_token(keys: Option<&TokenKeys>, headers: &HeaderMap) -> Result<(), Failure> {
    match keys {
        Some(_) => bearer(headers).map(|_| ()),
        None => Ok(()),
    }
}

/// The caller of a query; `None`: no token is needed. Refuses a request before its body is read if its token is valid for no query at all. The
/// token of a tenant without an expiry that was made from a secret does not name the tenant, so only its form can be checked before the
/// body names the tenant.
pub fn caller(keys: Option<&TokenKeys>, headers: &HeaderMap) -> Result<Option<Caller>, Failure> {
    let Some(keys) = keys else { return Ok(None) };
    keys.caller(bearer(headers)?, now_ms() / 1_000).map(Some).map_err(refusal)
}

/// Lets a tenant through, and producers. Returns the tenant: the one that is named, or that of a token that names it.
///
/// A refusal is the same whether or not another tenant exists.
pub fn authorize_tenant(keys: Option<&TokenKeys>, headers: &HeaderMap, named: Option<&str>) -> Result<String, Failure> {
    tenant_of(caller(keys, headers)?, keys, headers, named)
}

/// The same for a caller that is known from the same headers. A signature is not verified again.
pub fn tenant_of(
    caller: Option<Caller>,
    keys: Option<&TokenKeys>,
    headers: &HeaderMap,
    named: Option<&str>,
) -> Result<String, Failure> {
    let missing = || Failure::bad("tenant", "tenant is missing: name it, or send a token that names it");
    match caller {
        Some(Caller::Tenant(tenant)) if named.is_none_or(|named| named == tenant) => Ok(tenant),
        Some(Caller::Tenant(_)) => Err(forbidden()),
        Some(Caller::Producer) | None => named.map(str::to_owned).ok_or_else(missing),
        Some(Caller::Unnamed) => {
            let named = named.ok_or_else(missing)?;
            authorize(keys, headers, &[Role::Tenant(named), Role::Producer])?;
            Ok(named.to_owned())
        }
    }
}

/// RFC 9112, section 3.2.
pub fn check_host<B>(request: &Request<B>) -> Result<(), Failure> {
    let mut hosts = request.headers().get_all(HOST).iter();
    let wrong = |reason: &str| Err(Failure::bad("host", format!("{reason}: one header host is needed")));
    match (hosts.next(), hosts.next()) {
        (None, _) if request.version() == Version::HTTP_11 => wrong("the request has no header host"),
        (None, _) => Ok(()),
        (Some(_), Some(_)) => wrong("the request has several headers host"),
        (Some(host), None) if is_host(host.as_bytes()) => Ok(()),
        (Some(host), None) => wrong(&format!("{host:?} is no host")),
    }
}

fn is_host(host: &[u8]) -> bool {
    host.is_empty() || (!host.contains(&b'@') && Authority::try_from(host).is_ok())
}

/// Refuses a request that a page of another site makes. A browser adds these headers, also to a request without a token.
pub fn check_site(headers: &HeaderMap) -> Result<(), Failure> {
    let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let site = text(HeaderName::from_static("sec-fetch-site"));
    let is_own_site = site.is_none_or(|site| site == "same-origin" || site == "none");
    let host = text(HOST).unwrap_or_default();
    let is_own_origin = text(ORIGIN).is_none_or(|origin| {
        let named = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        named.is_some_and(|named| named == host)
    });
    match is_own_site && is_own_origin {
        true => Ok(()),
        false => {
            let message = "a page of another site may not operate this server: send the request from a program";
            Err(Failure::new(StatusCode::FORBIDDEN, "other_site", message))
        }
    }
}

/// Lets operators through.
pub fn authorize_operator(node: &Node, headers: &HeaderMap) -> Result<(), Failure> {
    authorize(node.settings.keys.as_ref(), headers, &[Role::Operator])
}

/// Lets query processes through, which read the rows of all tenants and the manifest.
pub fn authorize_follower(node: &Node, headers: &HeaderMap) -> Result<(), Failure> {
    check_site(headers)?;
    authorize(node.settings.keys.as_ref(), headers, &[Role::Follower])
}

fn authorize(keys: Option<&TokenKeys>, headers: &HeaderMap, roles: &[Role<'_>]) -> Result<(), Failure> {
    let Some(keys) = keys else { return Ok(()) };
    keys.check(bearer(headers)?, roles, now_ms() / 1_000).map_err(refusal)
}

fn bearer(headers: &HeaderMap) -> Result<&str, Failure> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let header = values.next().and_then(|value| value.to_str().ok());
    if values.next().is_some() {
        return Err(Failure::bad("malformed_request", "the header authorization is given twice"));
    }
    // The name of a scheme has no case (RFC 9110, section 11.1).
    let parts = header.and_then(|value| value.split_once(' '));
    let token = parts.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map(|(_, token)| token.trim());
    token.ok_or_else(|| {
        let message = "a token is needed: send the header authorization: Bearer TOKEN";
        Failure::new(StatusCode::UNAUTHORIZED, "unauthorized", message)
    })
}

fn refusal(refused: Refused) -> Failure {
    match refused {
        Refused::Expired => expired(),
        Refused::Forbidden => forbidden(),
    }
}

fn expired() -> Failure {
    Failure::new(StatusCode::UNAUTHORIZED, "token_expired", "the token has expired: ask for a new one")
}

fn forbidden() -> Failure {
    Failure::new(StatusCode::FORBIDDEN, "forbidden", "the token is not one for this request")
}
/// The fields of a body that is a JSON object. An array is refused: its elements would be taken for fields in their order.
///
/// # Errors
/// `malformed_body`.
pub fn object<T: DeserializeOwned>(body: &[u8], fields: &str) -> Result<T, Failure> {
    let refused = |why: &str| Failure::bad("malformed_body", format!("the body is no JSON object of {fields}{why}"));
    match body.iter().find(|byte| !byte.is_ascii_whitespace()) {
        Some(b'{') => serde_json::from_slice(body).map_err(|error| refused(&format!(": {error}"))),
        Some(_) => Err(refused("")),
        None => Err(refused(": it is empty")),
    }
}
