//! The description of the API: OpenAPI 3.1, made from the table of operations and the types that they read and answer.
//!
//! Schemas are JSON Schema 2020-12 as `schemars` derives them. Objects are closed: what an answer may hold is all that it says. The text
//! for people about each operation is the text of its section in the reference.

mod shapes;

use super::asset::Asset;
use super::operation::{AskOf, IDEMPOTENCY_KEY, Permission};
use super::params::{Param, ParamKind};
use super::server::State;
use super::typed::{Answer, AnswerForm, JSON, Shape};
use super::{BULK_LINES_MAX, Failure, READ_COUNTERS_MAX, Rules, answer, rules};
use crate::schemas::{COUNTER_PATTERN, ID_PATTERN, NAMESPACE_PATTERN, PREFIX_PATTERN, TIME_PATTERN};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};
use shapes::Shapes;
use std::collections::BTreeMap;
use std::sync::OnceLock;
use tidemark_proto::limits::{KEY_BYTES_MAX, MILESTONE_MAX};

/// The text for people about each operation.
const REFERENCE: &str = include_str!("../../../docs/reference/http.md");
/// The rules for all requests, in short.
const ABOUT: &str = "Counts increments in many data centres, and names the one increment that was the n-th.\n\n\
    A request is carried out as it stands, or refused: unknown or repeated parameters and fields are errors. Numbers are whole numbers of 64 \
    bits, which some languages must be told to read exactly. A key may hold any byte; `/` in it is written `%2F`.\n\n\
    `GET /v1/live` speaks WebSocket, which OpenAPI does not describe: it takes the parameters of `GET /v1/events`, and each message is a \
    `LiveBody`. Clients send nothing.";
/// A path that becomes a WebSocket.
const WEBSOCKET: &str = "/v1/live";

/// The answer of [`serve`].
pub(super) struct Described(Response);

/// `GET /openapi.json`.
pub(super) async fn serve<S: State>(ask: AskOf<S>) -> Result<Described, Failure> {
    Ok(Described(asset().answer(ask.headers())))
}

fn asset() -> &'static Asset {
    static DOCUMENT: OnceLock<Asset> = OnceLock::new();
    DOCUMENT.get_or_init(|| Asset::new(JSON, String::leak(document().to_string())))
}

impl IntoResponse for Described {
    fn into_response(self) -> Response {
        self.0
    }
}

impl Answer for Described {
    fn forms() -> Vec<AnswerForm> {
        vec![AnswerForm {
            shape: |_| schemars::json_schema!({ "type": "object" }),
            ..AnswerForm::text("OpenAPI 3.1.", JSON)
        }]
    }
}

/// The description of all operations.
pub fn document() -> Value {
    let mut shapes = Shapes::new();
    let mut paths: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for rules in rules().iter().filter(|rules| rules.path != WEBSOCKET) {
        let path = paths.entry(rules.path).or_insert_with(|| path_item(rules));
        path.insert(rules.method.as_str().to_lowercase(), operation(rules, &mut shapes));
    }
    let mut paths = json!(paths);
    let schemas = shapes.finish(&mut paths);
    let tags: Vec<Value> = groups().map(|name| json!({ "name": name })).collect();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Tidemark",
            "version": env!("CARGO_PKG_VERSION"),
            "description": ABOUT,
            "license": { "name": "Apache License 2.0", "identifier": "Apache-2.0" },
        },
        "servers": [{ "url": "/", "description": "The process that serves this description." }],
        "tags": tags,
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "token": { "type": "http", "scheme": "bearer", "description": "The token of the process." },
                "session": {
                    "type": "apiKey",
                    "in": "header",
                    "name": "Authorization",
                    "description": "`Session TOKEN`, of a session that the cluster has issued.",
                },
            },
        },
    })
}

/// Sections of the reference.
fn groups() -> impl Iterator<Item = &'static str> {
    REFERENCE.lines().filter_map(|line| line.strip_prefix("## ")).filter(|title| *title != "Rules of requests")
}

/// The section that an operation stands in, and its text.
fn told(rules: &Rules) -> (&'static str, String) {
    let heading = format!("### {} {}", rules.method, rules.path);
    let mut group = "";
    let mut lines = REFERENCE.lines();
    for line in lines.by_ref() {
        group = line.strip_prefix("## ").unwrap_or(group);
        if line == heading {
            break;
        }
    }
    // Behind a blank line and the facts, which stand elsewhere in the description.
    let text: Vec<&str> = lines.skip(3).take_while(|line| !line.starts_with('#')).collect();
    (group, shapes::without_links(text.join("\n").trim()))
}

fn path_item(rules: &Rules) -> Map<String, Value> {
    let names = rules.path.split('{').skip(1).filter_map(|part| part.split_once('}')).map(|(name, _)| name);
    let params: Vec<Value> = names.map(path_param).collect();
    if params.is_empty() { Map::new() } else { Map::from_iter([("parameters".to_owned(), params.into())]) }
}

fn path_param(name: &str) -> Value {
    let schema = match name {
        "namespace" | "from" | "to" => json!({ "type": "string", "pattern": NAMESPACE_PATTERN }),
        "key" => json!({ "type": "string", "minLength": 1, "maxLength": KEY_BYTES_MAX }),
        "at" => json!({ "type": "integer", "minimum": 1, "maximum": MILESTONE_MAX }),
        "group" => json!({ "type": "integer", "minimum": 0, "maximum": u16::MAX }),
        "incarnation" => json!({ "type": "integer", "minimum": 0, "maximum": u32::MAX }),
        _ => json!({ "type": "string", "minLength": 1 }),
    };
    json!({ "name": name, "in": "path", "required": true, "schema": schema })
}

fn operation(rules: &Rules, shapes: &mut Shapes) -> Value {
    let (group, text) = told(rules);
    let summary = text.split_once(". ").map_or(text.as_str(), |(first, _)| first);
    let summary = summary.split_once(".\n").map_or(summary, |(first, _)| first).replace('\n', " ");
    let headers = if rules.keyed { id_headers() } else { Vec::new() };
    let params: Vec<Value> = rules.params.iter().map(query_param).chain(headers).collect();
    let mut said = json!({
        "operationId": rules.name,
        "tags": [group],
        "summary": summary.trim_end_matches(['.', ':']),
        "description": text,
        "parameters": params,
        "responses": responses(rules, shapes),
        "security": security(rules.permission),
    });
    if let Some(body) = body(rules, shapes) {
        said["requestBody"] = body;
    }
    said
}

fn security(permission: Permission) -> Value {
    match permission {
        Permission::Open => json!([]),
        // If reads are open, no token is needed.
        Permission::Read => json!([{ "token": [] }, {}]),
        Permission::Write => json!([{ "token": [] }]),
        Permission::Own => json!([{ "token": [] }, { "session": [] }, {}]),
    }
}

fn query_param(param: &Param) -> Value {
    let one = match param.kind {
        ParamKind::Text(pattern) => json!({ "type": "string", "pattern": pattern }),
        ParamKind::Number { min, max } => json!({ "type": "integer", "minimum": min, "maximum": max }),
        ParamKind::OneOf(values) => json!({ "type": "string", "enum": values }),
        ParamKind::Flag => json!({ "type": "string", "maxLength": 0 }),
        ParamKind::Namespace => json!({ "type": "string", "pattern": NAMESPACE_PATTERN }),
        ParamKind::Counter => json!({ "type": "string", "pattern": COUNTER_PATTERN }),
        ParamKind::Prefix => json!({ "type": "string", "pattern": PREFIX_PATTERN }),
        ParamKind::Key => json!({ "type": "string", "minLength": 1 }),
    };
    let schema = match param.repeats {
        true => json!({ "type": "array", "items": one, "minItems": 1, "maxItems": READ_COUNTERS_MAX }),
        false => one,
    };
    let mut said = json!({ "name": param.name, "in": "query", "required": param.is_needed, "schema": schema });
    if param.kind == ParamKind::Flag {
        said["allowEmptyValue"] = true.into();
    }
    said
}

/// Headers that say the id of an increment.
fn id_headers() -> Vec<Value> {
    let header = |name: &str, about: &str, schema: Value| json!({ "name": name, "in": "header", "description": about, "schema": schema });
    vec![
        header(
            IDEMPOTENCY_KEY,
            "The id: sent again with it, it is not counted again.",
            json!({ "type": "string", "pattern": ID_PATTERN }),
        ),
        header(
            "idempotency-home",
            "The data centre that remembers the id.",
            json!({ "type": "string", "minLength": 1 }),
        ),
        header(
            "idempotency-first-sent",
            "When it was first sent.",
            json!({ "type": "string", "pattern": TIME_PATTERN }),
        ),
    ]
}

fn body(rules: &Rules, shapes: &mut Shapes) -> Option<Value> {
    let one = shapes.read(rules.body_shape?);
    let schema = match rules.many {
        true => json!({ "anyOf": [{ "type": "array", "items": one, "minItems": 1, "maxItems": BULK_LINES_MAX }, one] }),
        false => one,
    };
    let mut content = json!({ JSON: { "schema": schema } });
    if rules.many {
        content["application/x-ndjson"] =
            json!({ "schema": { "type": "string", "description": "An object in each line." } });
    }
    let about = format!("At most {} bytes.", rules.body_bytes_max);
    Some(json!({ "required": rules.needs_body, "description": about, "content": content }))
}

/// By status: how the operation answers, and with which errors it fails.
fn responses(rules: &Rules, shapes: &mut Shapes) -> Value {
    let mut by_status: BTreeMap<u16, Vec<(&str, &str, Value)>> = BTreeMap::new();
    for AnswerForm { status, about, media, shape } in &rules.answers {
        by_status.entry(status.as_u16()).or_default().push((about, media, shapes.written(*shape)));
    }
    let mut codes: BTreeMap<u16, Vec<&str>> = BTreeMap::new();
    for (status, code) in rules.errors() {
        codes.entry(status).or_default().push(code);
    }
    let error: Shape = answer::failure_shape;
    for status in codes.keys() {
        by_status.entry(*status).or_default().push(("", JSON, shapes.written(error)));
    }
    let said = by_status.into_iter().map(|(status, forms)| {
        let codes = codes.get(&status).map_or(&[][..], Vec::as_slice);
        (status.to_string(), response(status, &forms, codes))
    });
    Value::Object(said.collect())
}

fn response(status: u16, forms: &[(&str, &str, Value)], codes: &[&str]) -> Value {
    let mut content: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    forms.iter().for_each(|(_, media, schema)| content.entry(media).or_default().push(schema.clone()));
    let content = content.into_iter().map(|(media, mut schemas)| {
        let schema = if schemas.len() == 1 { schemas.remove(0) } else { json!({ "anyOf": schemas }) };
        (media.to_owned(), json!({ "schema": schema }))
    });
    let mut texts: Vec<String> =
        forms.iter().map(|(about, ..)| (*about).to_owned()).filter(|text| !text.is_empty()).collect();
    if !codes.is_empty() {
        let reason = StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason()).unwrap_or_default();
        let codes: Vec<String> = codes.iter().map(|code| format!("`{code}`")).collect();
        texts.push(format!("{reason}: {}.", codes.join(", ")));
    }
    let mut said = json!({ "description": texts.join(" "), "content": Value::Object(content.collect()) });
    if !codes.is_empty() {
        said["x-error-codes"] = json!(codes);
    }
    said
}
