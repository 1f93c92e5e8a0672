//! Answers, and refusals with their codes.

use super::unsent::Space;
use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{
    ALLOW, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Method, Response, StatusCode};
use serde_json::{Value, json};
use std::sync::Arc;

/// An answer.
#[derive(Debug)]
pub struct Answer {
    status: StatusCode,
    content_type: &'static str,
    body: Bytes,
    headers: HeaderMap,
    allow: Option<Method>,
    retry_after_s: Option<u64>,
}

/// Why a request is refused.
#[derive(Clone, Debug)]
pub struct Failure {
    pub status: StatusCode,
    pub code: &'static str,
    pub message: String,
    pub allow: Option<Method>,
    pub retry_after_s: Option<u64>,
}

impl Answer {
    pub fn json(body: &Value) -> Answer {
        Answer::of(StatusCode::OK, "application/json", body.to_string())
    }

    pub fn text(body: String) -> Answer {
        Answer::of(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", body)
    }

    pub fn with_status(self, status: StatusCode) -> Answer {
        Answer { status, ..self }
    }

    /// An answer of another kind.
    pub fn of_kind(content_type: &'static str, body: impl Into<Bytes>) -> Answer {
        Answer::of(StatusCode::OK, content_type, body)
    }

    /// The same answer, which takes space until it is sent.
    ///
    /// # Errors
    /// There is none left.
    pub fn held(self, space: &Arc<Space>, tenant: &str) -> Result<Answer, Failure> {
        Ok(Answer { body: space.held(tenant, self.body)?, ..self })
    }

    /// Says this too.
    pub fn with(mut self, name: HeaderName, value: HeaderValue) -> Answer {
        self.headers.insert(name, value);
        self
    }

    fn of(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Answer {
        let headers = HeaderMap::new();
        Answer { status, content_type, body: body.into(), headers, allow: None, retry_after_s: None }
    }

    pub fn into_response(self) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::new(self.body));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        *headers = self.headers;
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        if let Some(value) = self.allow.and_then(|method| HeaderValue::from_str(method.as_str()).ok()) {
            headers.insert(ALLOW, value);
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(seconds) = self.retry_after_s {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

impl Failure {
    pub fn new(status: StatusCode, code: &'static str, message: impl ToString) -> Failure {
        Failure { status, code, message: message.to_string(), allow: None, retry_after_s: None }
    }

    pub fn bad(code: &'static str, message: impl ToString) -> Failure {
        Failure::new(StatusCode::BAD_REQUEST, code, message)
    }

    /// Nothing was counted; the same request may be sent again.
    pub fn later(code: &'static str, message: impl ToString) -> Failure {
        let failure = Failure::new(StatusCode::SERVICE_UNAVAILABLE, code, message);
        Failure { retry_after_s: Some(1), ..failure }
    }

    pub fn method(found: &Method, allowed: Method) -> Failure {
        let message = format!("method {found}: this path takes {allowed}");
        Failure { allow: Some(allowed), ..Failure::new(StatusCode::METHOD_NOT_ALLOWED, "method", message) }
    }
}

impl From<Failure> for Answer {
    fn from(failure: Failure) -> Answer {
        let body = json!({ "error": { "code": failure.code, "message": failure.message } });
        let answer = Answer::of(failure.status, "application/json", body.to_string());
        Answer { allow: failure.allow, retry_after_s: failure.retry_after_s, ..answer }
    }
}
