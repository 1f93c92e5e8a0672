//! Whether the process runs, and whether requests should come here.

use super::answer::Answer;
use super::request::Params;
use crate::node::Node;
use hyper::StatusCode;
use serde_json::json;

pub fn healthz() -> Answer {
    Answer::json(&json!({ "status": "ok" }))
}

/// Ready: the log takes events, the partition is owned, and nothing has failed since.
pub fn readyz(node: &Node, params: &Params) -> Answer {
    let log_failure = match node.log() {
        Some(log) => log.progress().failed.map(|error| error.to_string()),
        None => Some("the intake's log is not open".to_owned()),
    };
    let owner = (!node.owner().is_owner).then(|| "the partition is not owned yet".to_owned());
    let stopping = node.is_stopping().then(|| "the process is stopping".to_owned());
    let checks = [("log", log_failure), ("owner", owner), ("progress", node.problem()), ("running", stopping)];
    readiness(&checks, params)
}

/// The answer to these checks, by name, with why one fails.
pub fn readiness(checks: &[(&str, Option<String>)], params: &Params) -> Answer {
    let reason = checks.iter().find_map(|(name, failure)| failure.as_ref().map(|failure| format!("{name}: {failure}")));
    let mut body = json!({ "ready": reason.is_none() });
    if let Some(reason) = &reason {
        body["reason"] = json!(reason);
    }
    if params.contains_key("verbose") {
        body["checks"] = checks.iter().map(|(name, failure)| json!({ "check": name, "failure": failure })).collect();
    }
    let status = if reason.is_none() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    Answer::json(&body).with_status(status)
}
