//! Answers: JSON, and for every failure a status, a code for programs and a text for people.

use crate::api::Failure;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

/// The body of every failure.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Error")]
struct FailureBody {
    error: FailureText,
}

/// A failure in JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ErrorText")]
pub struct FailureText {
    /// For programs.
    pub code: String,
    /// For people.
    pub message: String,
}

impl Failure {
    pub(super) fn body(&self) -> Vec<u8> {
        let error = FailureText { code: self.code().to_owned(), message: self.to_string() };
        serde_json::to_vec(&FailureBody { error }).expect("two texts are JSON")
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let mut response = (self.status(), json_type(), self.body()).into_response();
        let extra = match self {
            Failure::Unauthorized(_) => vec![(header::WWW_AUTHENTICATE, "Bearer")],
            Failure::Overloaded { .. } | Failure::NotServing(_) => vec![(header::RETRY_AFTER, "1")],
            Failure::Unavailable { .. } => vec![(header::RETRY_AFTER, "60")],
            Failure::Http(refusal) => refusal.headers,
            Failure::Invalid { .. }
            | Failure::NotFound(_)
            | Failure::Absent { .. }
            | Failure::Mismatch { .. }
            | Failure::Conflict { .. }
            | Failure::Session { .. }
            | Failure::Forbidden(_)
            | Failure::TooLarge { .. }
            | Failure::InDoubt(_) => Vec::new(),
        };
        for (name, value) in extra {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        response
    }
}

/// The shape of that body.
pub(super) fn failure_shape(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<FailureBody>()
}

/// `value` as JSON.
pub fn json(status: StatusCode, value: &impl Serialize) -> Response {
    let body = serde_json::to_vec(value).expect("our answers are JSON");
    (status, json_type(), body).into_response()
}

fn json_type() -> [(header::HeaderName, &'static str); 2] {
    [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")]
}
