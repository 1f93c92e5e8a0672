//! The description of the API has every operation of the table, refers to nothing that is not there, and is closed.

use crate::memory::Memory;
use crate::support::{options, start, start_with};
use serde_json::Value;
use std::collections::BTreeSet;
use tidemark_server::http::{document, rules};

const COMPONENTS: &str = "#/components/schemas/";

/// Calls `look` with each object below a value.
fn each<'v>(value: &'v Value, look: &mut impl FnMut(&'v serde_json::Map<String, Value>)) {
    match value {
        Value::Object(fields) => {
            look(fields);
            fields.values().for_each(|below| each(below, look));
        }
        Value::Array(all) => all.iter().for_each(|below| each(below, look)),
        _ => {}
    }
}

#[test]
fn every_operation_is_described_with_its_errors() {
    let document = document();
    let mut names = BTreeSet::new();
    for rules in rules() {
        assert!(names.insert(rules.name), "{} names two operations", rules.name);
        let said = &document["paths"][rules.path][rules.method.as_str().to_lowercase()];
        if rules.path == "/v1/live" {
            assert!(said.is_null(), "WebSockets are described in words");
            continue;
        }
        assert_eq!(said["operationId"], rules.name, "{} {}", rules.method, rules.path);
        assert!(said["description"].as_str().is_some_and(|text| !text.is_empty()), "{} has no text", rules.name);
        for answer in &rules.answers {
            let content = &said["responses"][answer.status.as_str()]["content"];
            assert!(content.get(answer.media).is_some(), "{}: {}", rules.name, answer.status);
        }
        for (status, code) in rules.errors() {
            let codes = &said["responses"][status.to_string()]["x-error-codes"];
            assert!(codes.as_array().is_some_and(|codes| codes.contains(&code.into())), "{}: {code}", rules.name);
        }
    }
}

#[test]
fn every_reference_leads_to_a_schema_and_every_schema_is_used() {
    let document = document();
    let mut used = BTreeSet::new();
    each(&document, &mut |fields| {
        used.extend(fields.get("$ref").and_then(Value::as_str).map(|link| link.strip_prefix(COMPONENTS).unwrap()));
    });
    let known: BTreeSet<&str> =
        document["components"]["schemas"].as_object().unwrap().keys().map(String::as_str).collect();
    assert!(known.len() > 100, "{} schemas", known.len());
    assert_eq!(used.difference(&known).collect::<Vec<_>>(), Vec::<&&str>::new());
    assert_eq!(known.difference(&used).collect::<Vec<_>>(), Vec::<&&str>::new());
}

#[test]
fn every_object_of_a_body_is_closed() {
    let document = document();
    let is_closed = |fields: &serde_json::Map<String, Value>| {
        ["additionalProperties", "unevaluatedProperties"].iter().any(|keyword| fields.contains_key(*keyword))
    };
    for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
        let parts = ["oneOf", "anyOf"].iter().filter_map(|keyword| schema[*keyword].as_array()).flatten();
        for one in std::iter::once(schema).chain(parts) {
            let fields = one.as_object().unwrap();
            let is_object = fields.contains_key("properties");
            assert!(!is_object || is_closed(fields) || is_closed(schema.as_object().unwrap()), "{name} is open");
        }
    }
}

#[tokio::test]
async fn the_description_and_its_page_are_served_to_anybody() {
    let running = start().await;
    let said = running.send_with("GET", "/openapi.json", "", "").await;
    assert_eq!((said.status, &said.json()), (200, &document()));
    let page = running.send_with("GET", "/api", "", "").await;
    assert_eq!(page.status, 200);
    assert!(
        page.head.contains("content-security-policy: default-src 'none'") && !page.body.contains("//"),
        "{}",
        page.body
    );
    let front = start_with(Memory::new(None), options()).await;
    assert_eq!(front.send_with("POST", "/openapi.json", "", "").await.status, 405);
}
