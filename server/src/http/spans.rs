//! Spans of connections and requests. While `debug` is logged, each log line within a request names the request.
//!
//! A connection has a number and its peer's address. A request has an id, a method, a path, and the namespace if the path names one. A
//! client may choose the id with the header `x-request-id`, and the answer repeats it.

use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use tracing::{Instrument, Span};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Bytes of an id that a client may choose. A longer id is replaced by a number.
const REQUEST_ID_BYTES_MAX: usize = 128;
/// Prefixes of paths that name a namespace.
const WITH_NAMESPACE: [&str; 2] = ["/v1/counters/", "/v1/awards/"];

/// The span of a new connection.
pub(super) fn of_connection(peer: SocketAddr) -> Span {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
    tracing::info_span!("connection", number, %peer)
}

/// Answers a request within its span, and logs the answer's status and time at the level debug.
pub(super) async fn in_a_span(request: Request, next: Next) -> Response {
    let given = request.headers().get(&REQUEST_ID).filter(|id| is_id(id)).cloned();
    // Making a span and its text costs time, so it happens only if a line may be logged.
    let span = match tracing::enabled!(tracing::Level::DEBUG) {
        true => of_request(&request, given.as_ref()),
        false => Span::none(),
    };
    let begun = Instant::now();
    let mut answer = next.run(request).instrument(span.clone()).await;
    let took_us = begun.elapsed().as_micros() as u64;
    tracing::debug!(parent: &span, status = answer.status().as_u16(), took_us, "the request is answered");
    if let Some(id) = given {
        answer.headers_mut().insert(REQUEST_ID, id);
    }
    answer
}

fn of_request(request: &Request, given: Option<&HeaderValue>) -> Span {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let number = || (LAST.fetch_add(1, Ordering::Relaxed) + 1).to_string();
    let id = given.and_then(|id| id.to_str().ok()).map_or_else(number, str::to_owned);
    let path = request.uri().path();
    let namespace = WITH_NAMESPACE.iter().find_map(|begin| path.strip_prefix(begin)?.split('/').next());
    tracing::info_span!("request", id, method = %request.method(), path, namespace)
}

/// Whether a client's id is short and visible, so that a log line shows it as it was sent.
fn is_id(id: &HeaderValue) -> bool {
    let bytes = id.as_bytes();
    (1..=REQUEST_ID_BYTES_MAX).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_requests_are_short_and_visible() {
        let id = |text: &str| is_id(&HeaderValue::from_str(text).unwrap());
        assert!(id("a") && id("0190-ab\"c") && id(&"a".repeat(128)));
        assert!(!id("") && !id("a b") && !id(&"a".repeat(129)));
        assert!(!is_id(&HeaderValue::from_bytes(&[0xe9]).unwrap()));
    }
}
