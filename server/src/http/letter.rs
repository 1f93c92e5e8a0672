//! The rules of HTTP itself for every request, pages and front ends included: one `Host`, no content coding, no condition that is not
//! checked. Pages are read without a body; operations look at their bodies themselves.

use super::Failure;
use super::operation::refuse_body;
use axum::body::Body;
use axum::extract::Request;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, StatusCode, Version, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use hyper::body::Body as _;

/// Conditions about versions of a resource, which answers here do not have.
const CONDITIONS: [HeaderName; 3] = [header::IF_MATCH, header::IF_NONE_MATCH, header::IF_UNMODIFIED_SINCE];

/// Refuses what breaks the rules.
pub(super) async fn check(request: Request, next: Next) -> Response {
    match checked(&request) {
        Ok(()) => next.run(request).await,
        Err(failure) => failure.into_response(),
    }
}

/// Refuses a body that comes with a read of a page. For routes with a possible method, because a wrong method is answered first.
pub(super) async fn without_body(request: Request, next: Next) -> Response {
    if !request.method().is_safe() || request.body().is_end_stream() {
        return next.run(request).await;
    }
    let (parts, body) = request.into_parts();
    match refuse_body(body).await {
        Ok(()) => next.run(Request::from_parts(parts, Body::empty())).await,
        Err(failure) => failure.into_response(),
    }
}

fn checked(request: &Request) -> Result<(), Failure> {
    let method = request.method();
    let headers = request.headers();
    check_host(request.version(), headers)?;
    check_coding(headers)?;
    if method.is_safe() {
        return Ok(());
    }
    if let Some(name) = CONDITIONS.iter().find(|name| headers.contains_key(*name)) {
        let message = format!("{name}: answers here have no versions to compare; use if_generation where there is one");
        return Err(Failure::http(StatusCode::PRECONDITION_FAILED, "condition", message));
    }
    if headers.contains_key(header::CONTENT_RANGE) {
        return Err(Failure::invalid("content_range", "a part of a body cannot be stored: send all of it"));
    }
    Ok(())
}

/// RFC 9112, section 3.2.
fn check_host(version: Version, headers: &HeaderMap) -> Result<(), Failure> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let wrong = |reason: &str| Err(Failure::invalid("host", format!("{reason}: one Host header is needed")));
    match (hosts.next(), hosts.next()) {
        (None, _) if version == Version::HTTP_11 => wrong("the request has no Host header"),
        (None, _) => Ok(()),
        (Some(_), Some(_)) => wrong("the request has several Host headers"),
        (Some(host), None) if is_host(host.as_bytes()) => Ok(()),
        (Some(host), None) => wrong(&format!("{host:?} is no host")),
    }
}

fn is_host(host: &[u8]) -> bool {
    host.is_empty() || (!host.contains(&b'@') && Authority::try_from(host).is_ok())
}

/// RFC 9110, section 15.5.16.
fn check_coding(headers: &HeaderMap) -> Result<(), Failure> {
    let codings = headers.get_all(header::CONTENT_ENCODING).iter().map(|value| value.as_bytes());
    let mut codings = codings.flat_map(|value| value.split(|byte| *byte == b',')).map(<[u8]>::trim_ascii);
    if let Some(coding) = codings.find(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case(b"identity")) {
        let coding = String::from_utf8_lossy(coding);
        let message = format!("content-encoding {coding:?}: bodies are read as they are, without compression");
        let refused = Failure::http(StatusCode::UNSUPPORTED_MEDIA_TYPE, "content_encoding", message);
        return Err(refused.with_header(header::ACCEPT_ENCODING, "identity"));
    }
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    match charset(kind) {
        None => Ok(()),
        Some(charset) if ["utf-8", "utf8", "us-ascii"].iter().any(|known| charset.eq_ignore_ascii_case(known)) => {
            Ok(())
        }
        Some(charset) => {
            let message = format!("charset {charset:?}: JSON is read as UTF-8");
            Err(Failure::http(StatusCode::UNSUPPORTED_MEDIA_TYPE, "charset", message))
        }
    }
}

/// The `charset` of a media type.
fn charset(kind: &str) -> Option<&str> {
    let params = kind.split(';').skip(1).filter_map(|param| param.split_once('='));
    let mut charsets = params.filter(|(name, _)| name.trim().eq_ignore_ascii_case("charset"));
    charsets.next().map(|(_, value)| value.trim().trim_matches('"'))
}

/// Refuses any parameter, for routes that are not in the table.
pub async fn no_params(request: Request, next: Next) -> Response {
    match request.uri().query() {
        None | Some("") => next.run(request).await,
        Some(_) => Failure::invalid("parameter", "no parameters are allowed here").into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    #[test]
    fn a_host_is_a_name_or_an_address_with_a_port_or_without() {
        for host in ["", "localhost", "127.0.0.1:8480", "[::1]:8480", "a.example"] {
            assert!(is_host(host.as_bytes()), "{host}");
        }
        for host in ["a b", "me@a.example", "a/b"] {
            assert!(!is_host(host.as_bytes()), "{host}");
        }
    }

    #[test]
    fn a_charset_is_found_among_other_parameters() {
        assert_eq!(charset("application/json; x=1; Charset=\"UTF-16\""), Some("UTF-16"));
        assert_eq!((charset("application/json"), charset("")), (None, None));
    }

    #[test]
    fn identity_is_no_coding() {
        let check = |value: &'static str| {
            check_coding(&HeaderMap::from_iter([(header::CONTENT_ENCODING, HeaderValue::from_static(value))]))
        };
        assert!(check("identity").is_ok() && check("Identity, identity").is_ok() && check("").is_ok());
        assert!(check("gzip").is_err() && check("identity, br").is_err());
    }
}
