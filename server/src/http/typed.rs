//! The answers of operations, as types: each says its statuses, its media types and the shapes of its bodies. The described form is the
//! sent form.

use super::answer::json;
use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;

/// Makes the shape of a body.
pub type Shape = fn(&mut SchemaGenerator) -> Schema;

/// One form of an answer that is no failure.
#[derive(Clone, Copy, Debug)]
pub struct AnswerForm {
    pub status: StatusCode,
    /// Its meaning, for people.
    pub about: &'static str,
    pub media: &'static str,
    pub shape: Shape,
}

/// The answer of a handler.
pub trait Answer: IntoResponse {
    fn forms() -> Vec<AnswerForm>;
}

/// 200 with JSON.
pub(super) struct Json<T>(pub T);

/// 200, or 202 while something of it is not known yet.
pub(super) enum InTime<T> {
    Known(T),
    Pending(T),
}

/// 200 with bytes as they come.
pub(super) struct Stream(pub Body);

/// 200 with text for Prometheus.
pub(super) struct Exposition(pub String);

/// 200 with a line of text.
pub(super) struct Line(pub &'static str);

pub(super) const JSON: &str = "application/json";
const TEXT: &str = "text/plain";
const BYTES: &str = "application/octet-stream";

impl AnswerForm {
    pub fn json<T: JsonSchema>(status: StatusCode, about: &'static str) -> AnswerForm {
        AnswerForm { status, about, media: JSON, shape: shape_of::<T> }
    }

    pub fn text(about: &'static str, media: &'static str) -> AnswerForm {
        AnswerForm { status: StatusCode::OK, about, media, shape: shape_of::<String> }
    }
}

/// The shape of a type.
pub(super) fn shape_of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        json(StatusCode::OK, &self.0)
    }
}

impl<T: Serialize + JsonSchema> Answer for Json<T> {
    fn forms() -> Vec<AnswerForm> {
        vec![AnswerForm::json::<T>(StatusCode::OK, "Done.")]
    }
}

impl<T> InTime<T> {
    pub fn new(body: T, is_pending: bool) -> InTime<T> {
        if is_pending { InTime::Pending(body) } else { InTime::Known(body) }
    }
}

impl<T: Serialize> IntoResponse for InTime<T> {
    fn into_response(self) -> Response {
        match self {
            InTime::Known(body) => json(StatusCode::OK, &body),
            InTime::Pending(body) => json(StatusCode::ACCEPTED, &body),
        }
    }
}

impl<T: Serialize + JsonSchema> Answer for InTime<T> {
    fn forms() -> Vec<AnswerForm> {
        vec![
            AnswerForm::json::<T>(StatusCode::OK, "Done."),
            AnswerForm::json::<T>(StatusCode::ACCEPTED, "Not all of it is known yet."),
        ]
    }
}

impl IntoResponse for Stream {
    fn into_response(self) -> Response {
        ([(header::CONTENT_TYPE, BYTES), (header::CACHE_CONTROL, "no-store")], self.0).into_response()
    }
}

impl Answer for Stream {
    fn forms() -> Vec<AnswerForm> {
        vec![AnswerForm::text("Bytes.", BYTES)]
    }
}

impl IntoResponse for Exposition {
    fn into_response(self) -> Response {
        ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], self.0).into_response()
    }
}

impl Answer for Exposition {
    fn forms() -> Vec<AnswerForm> {
        vec![AnswerForm::text("Text for Prometheus.", TEXT)]
    }
}

impl IntoResponse for Line {
    fn into_response(self) -> Response {
        self.0.into_response()
    }
}

impl Answer for Line {
    fn forms() -> Vec<AnswerForm> {
        vec![AnswerForm::text("A line of text.", TEXT)]
    }
}
