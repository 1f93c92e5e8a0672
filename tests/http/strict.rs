//! Undeclared input of an operation is refused, and changes nothing. This is tried on each operation of the table that the router is made
//! from, so that a new operation is tried by itself.

use crate::support::{Answer, Running, TOKEN, start};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::collections::BTreeSet;
use tidemark_server::http::{Param, ParamKind, Rules, rules};

const METHODS: [&str; 6] = ["GET", "POST", "PUT", "DELETE", "PATCH", "PROPFIND"];

/// The difference between a request and a declared one.
struct Wrong {
    what: String,
    method: String,
    path: String,
    headers: String,
    body: String,
    status: u16,
    code: String,
}

/// The answer that a wrong request must get.
#[derive(Clone, Copy)]
struct Refusal<'a> {
    status: u16,
    code: &'a str,
}

fn refusal(status: u16, code: &str) -> Refusal<'_> {
    Refusal { status, code }
}

/// A path of this form.
pub fn path_of(rules: &Rules, namespace: &str) -> String {
    let names = [
        ("{namespace}", namespace),
        ("{key}", "q"),
        ("{at}", "3"),
        ("{dc}", "usa-0"),
        ("{group}", "0"),
        ("{incarnation}", "1"),
        ("{name}", "hook"),
        ("{from}", namespace),
        ("{to}", "stock"),
    ];
    names.iter().fold(rules.path.to_owned(), |path, (name, value)| path.replace(name, value))
}

fn value_of(param: &Param, namespace: &str) -> String {
    match param.kind {
        ParamKind::Text(_) => "1".to_owned(),
        ParamKind::Number { min, .. } => min.to_string(),
        ParamKind::OneOf(values) => values[0].to_owned(),
        ParamKind::Flag => String::new(),
        ParamKind::Namespace => namespace.to_owned(),
        ParamKind::Counter | ParamKind::Prefix => format!("{namespace}/q"),
        ParamKind::Key => "q".to_owned(),
    }
}

impl Wrong {
    fn new(rules: &Rules, what: impl ToString, refusal: Refusal<'_>) -> Wrong {
        let Refusal { status, code } = refusal;
        Wrong {
            what: what.to_string(),
            method: rules.method.to_string(),
            path: path_of(rules, "search"),
            headers: format!("authorization: Bearer {TOKEN}\r\n"),
            body: String::new(),
            status,
            code: code.to_owned(),
        }
    }

    fn query(self, query: impl std::fmt::Display) -> Wrong {
        Wrong { path: format!("{}?{query}", self.path), ..self }
    }

    fn body(self, body: &str) -> Wrong {
        Wrong { body: body.to_owned(), ..self }
    }

    fn header(self, line: &str) -> Wrong {
        Wrong { headers: format!("{}{line}\r\n", self.headers), ..self }
    }
}

fn wrong_params(rules: &Rules) -> Vec<Wrong> {
    let refused = refusal(400, "parameter");
    let mut all = vec![
        Wrong::new(rules, "an unknown parameter", refused).query("colour=1"),
        Wrong::new(rules, "an unknown parameter without a value", refused).query("colour"),
        Wrong::new(rules, "a parameter without a name", refused).query("=1"),
        Wrong::new(rules, "a parameter whose name is no UTF-8", refused).query("%FF=1"),
    ];
    for param in &rules.params {
        let name = param.name;
        let value = value_of(param, "search");
        let upper = name.to_uppercase();
        all.push(Wrong::new(rules, "a parameter in capitals", refused).query(format!("{upper}={value}")));
        if !param.repeats {
            all.push(Wrong::new(rules, "twice", refused).query(format!("{name}={value}&{name}={value}")));
        }
        match param.kind {
            ParamKind::Flag => {
                all.push(Wrong::new(rules, "a flag with a value", refusal(400, name)).query(format!("{name}=1")))
            }
            _ => all.push(Wrong::new(rules, "empty", refusal(400, name)).query(format!("{name}="))),
        }
        match param.kind {
            ParamKind::Number { min, max } => {
                let beyond = max.checked_add(1).map_or("18446744073709551616".to_owned(), |beyond| beyond.to_string());
                let below = min.checked_sub(1).map_or("-1".to_owned(), |below| below.to_string());
                let wrong = [beyond, below, "%2B1".to_owned(), "1.0".to_owned(), "one".to_owned()];
                all.extend(wrong.map(|wrong| {
                    Wrong::new(rules, "no such number", refusal(400, name)).query(format!("{name}={wrong}"))
                }));
            }
            ParamKind::OneOf(_) => {
                all.push(Wrong::new(rules, "none of them", refusal(400, name)).query(format!("{name}=nonsense")));
            }
            _ => {}
        }
        if !matches!(param.kind, ParamKind::Flag | ParamKind::Counter | ParamKind::Prefix | ParamKind::Key) {
            all.push(Wrong::new(rules, "no UTF-8", refusal(400, name)).query(format!("{name}=a%FF")));
        }
    }
    let fields = rules.body.unwrap_or_default().iter();
    let in_body = fields.filter(|field| !rules.params.iter().any(|param| param.name == **field));
    all.extend(in_body.map(|field| Wrong::new(rules, "a field in the URL", refused).query(format!("{field}=1"))));
    all
}

fn wrong_bodies(rules: &Rules) -> Vec<Wrong> {
    let refused = refusal(400, "malformed_body");
    let Some(fields) = rules.body else {
        return vec![Wrong::new(rules, "a body where none is read", refusal(400, "unexpected_body")).body("{}")];
    };
    if rules.many {
        let bodies =
            ["[[]]", "[[1]]", r#"{"colour":1}"#, "7", r#"[{"colour":1}]"#, "{", "[", "counter,delta\nsearch/q,1"];
        return bodies.map(|body| Wrong::new(rules, "a body of many", refused).body(body)).into();
    }
    let mut bodies = vec!["[]".to_owned(), "[1]".to_owned(), "[[]]".to_owned(), r#"{"colour":1}"#.to_owned()];
    bodies.extend(["{}{}", "{", "null", "7", "\"text\"", "{}]", "\u{feff}\u{feff}{}"].map(str::to_owned));
    for field in fields {
        bodies.push(format!(r#"{{"{field}":null,"{field}":null}}"#));
        bodies.push(format!(r#"{{"{field}":[[]]}}"#));
    }
    let params = rules.params.iter().filter(|param| !fields.contains(&param.name));
    bodies.extend(params.map(|param| format!(r#"{{"{}":1}}"#, param.name)));
    bodies.into_iter().map(|body| Wrong::new(rules, "a wrong body", refused).body(&body)).collect()
}

fn wrong_headers(rules: &Rules) -> Vec<Wrong> {
    let mut all = vec![
        Wrong::new(rules, "a coding", refusal(415, "content_encoding")).header("content-encoding: gzip"),
        Wrong::new(rules, "a second coding", refusal(415, "content_encoding")).header("content-encoding: identity, br"),
        Wrong::new(rules, "another charset", refusal(415, "charset"))
            .header("content-type: application/json; charset=utf-16"),
        Wrong::new(rules, "two hosts", refusal(400, "host")).header("host: other"),
    ];
    if !rules.keyed {
        let key = "idempotency-key: k";
        all.push(Wrong::new(rules, "an idempotency key", refusal(400, "idempotency_key")).header(key));
    }
    if rules.method != "GET" {
        all.push(Wrong::new(rules, "a condition", refusal(412, "condition")).header("if-match: \"x\""));
        all.push(Wrong::new(rules, "a part", refusal(400, "content_range")).header("content-range: bytes 0-1/2"));
    }
    all
}

fn wrong_methods(all: &[Rules]) -> Vec<Wrong> {
    let mut wrong = Vec::new();
    for path in all.iter().map(|rules| rules.path).collect::<BTreeSet<_>>() {
        let here: Vec<&Rules> = all.iter().filter(|rules| rules.path == path).collect();
        for method in METHODS.iter().filter(|method| here.iter().all(|rules| rules.method != **method)) {
            let rules = Rules { method: method.parse().unwrap(), ..here[0].clone() };
            wrong.push(Wrong::new(&rules, "a method", refusal(405, "method")));
        }
    }
    wrong
}

fn unknown_namespaces(rules: &Rules) -> Vec<Wrong> {
    let refused = refusal(404, "unknown_namespace");
    let mut all = Vec::new();
    if rules.path.contains("{namespace}") || rules.path.contains("{from}") {
        let wrong = Wrong::new(rules, "a namespace that is none", refused);
        all.push(Wrong { path: path_of(rules, "serach"), ..wrong });
    }
    let named = rules
        .params
        .iter()
        .filter(|param| matches!(param.kind, ParamKind::Namespace | ParamKind::Counter | ParamKind::Prefix));
    all.extend(named.map(|param| {
        let query = format!("{}={}", param.name, value_of(param, "serach"));
        Wrong::new(rules, "a namespace that is none", refused).query(query)
    }));
    if rules.many {
        all.push(Wrong::new(rules, "a namespace that is none", refused).body(r#"{"counter":"serach/q"}"#));
    }
    all
}

async fn check(running: &Running, wrong: &Wrong) {
    let before = running.memory.fingerprint();
    let answer = running.send_with(&wrong.method, &wrong.path, &wrong.headers, &wrong.body).await;
    let said =
        || format!("{}: {} {} {}{}\n{}", wrong.what, wrong.method, wrong.path, wrong.headers, wrong.body, answer.body);
    assert_eq!(answer.status, wrong.status, "{}", said());
    assert!(answer.head.contains("content-type: application/json"), "{}", said());
    let (_, code, message) = answer.failure();
    assert_eq!(code, wrong.code, "{}", said());
    assert!(!message.is_empty(), "{}", said());
    assert_eq!(running.memory.fingerprint(), before, "{}", said());
}

#[tokio::test]
async fn whatever_an_operation_does_not_declare_is_refused() {
    let running = start().await;
    running.memory.count_ones("search/q", 2);
    let all = rules();
    assert!(all.len() > 50, "{} operations", all.len());
    let mut tried = 0;
    for rules in &all {
        let wrong = [wrong_params(rules), wrong_bodies(rules), wrong_headers(rules), unknown_namespaces(rules)];
        for wrong in wrong.iter().flatten() {
            check(&running, wrong).await;
            tried += 1;
        }
    }
    for wrong in wrong_methods(&all) {
        check(&running, &wrong).await;
        tried += 1;
    }
    assert!(tried > 1_500, "{tried} requests");
}

#[tokio::test]
async fn a_wrong_method_is_told_those_that_there_are() {
    let running = start().await;
    let allow = |answer: &Answer| {
        let line = answer.head.lines().find_map(|line| line.strip_prefix("allow: ")).unwrap_or_default();
        line.to_owned()
    };
    let add = running.send("GET", "/v1/counters/search/q/add", "").await;
    assert_eq!((add.status, allow(&add).as_str()), (405, "post"));
    assert_eq!(running.send("GET", "/v1/counters/search/q%2Fadd", "").await.json()["counter"]["key"], "q/add");
    let counter = running.send("PATCH", "/v1/counters/search/q", "").await;
    assert_eq!((counter.status, allow(&counter).as_str()), (405, "get, delete, head"));
    assert!(counter.failure().2.contains("PATCH is not possible on /v1/counters/search/q: GET, DELETE, HEAD allowed"));
    let page = running.send("POST", "/cluster", "").await;
    assert_eq!((page.status, allow(&page).as_str(), page.failure().1.as_str()), (405, "get, head", "method"));
    let options = running.send("OPTIONS", "/v1/counters/search/q/milestones", "").await;
    assert_eq!((options.status, allow(&options).as_str()), (405, "get, put, delete, head"));
}

/// Requests of parts that are right and parts that are not.
fn requests() -> impl Strategy<Value = (usize, Vec<(String, String)>, String)> {
    let name = prop_oneof![
        Just("counter".to_owned()),
        Just("prefix".to_owned()),
        Just("limit".to_owned()),
        Just("last".to_owned()),
        Just("after".to_owned()),
        "[a-z_%=+;]{0,8}",
    ];
    let value = prop_oneof![
        Just("search/q".to_owned()),
        Just("1".to_owned()),
        Just("7d".to_owned()),
        "[ -~]{0,12}".prop_map(escaped)
    ];
    let body = prop_oneof![
        Just(String::new()),
        Just("{}".to_owned()),
        Just("[]".to_owned()),
        Just(r#"{"delta":1}"#.to_owned()),
        Just(r#"{"counter":"search/q"}"#.to_owned()),
        "[\\[\\]{}:\",a-z0-9]{0,20}",
    ];
    (0..rules().len(), prop::collection::vec((name, value), 0..4), body)
}

fn escaped(text: String) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

#[test]
fn any_request_is_answered_or_refused_with_a_code_and_without_an_effect() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let running = runtime.block_on(start());
    let all = rules();
    // These hold their connection for as long as the caller wants.
    let streams = ["/v1/events", "/v1/awards/{namespace}/{key}/{at}"];
    let mut runner = TestRunner::new_with_rng(
        Config { cases: 400, failure_persistence: None, ..Config::default() },
        proptest::test_runner::TestRng::deterministic_rng(proptest::test_runner::RngAlgorithm::ChaCha),
    );
    let done = runner.run(&requests(), |(at, params, body)| {
        let rules = &all[at];
        if streams.contains(&rules.path) {
            return Ok(());
        }
        let query: Vec<String> = params.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let path = format!("{}?{}", path_of(rules, "search"), query.join("&"));
        let before = running.memory.fingerprint();
        let answer = runtime.block_on(running.send(rules.method.as_str(), &path, &body));
        prop_assert!(answer.status >= 200 && answer.status < 500, "{} {path} {body}: {}", rules.method, answer.status);
        if answer.status >= 400 {
            let (_, code, _) = answer.failure();
            prop_assert!(!code.is_empty());
            prop_assert_eq!(running.memory.fingerprint(), before);
        }
        Ok(())
    });
    done.unwrap();
}
