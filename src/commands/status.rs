//! `tidemark status`: what a process says of itself.

use super::{Outcome, block_on, show};
use crate::remote::Remote;
use clap::Args;
use serde_json::{Value, json};
use std::convert::Infallible;

/// Arguments of `tidemark status`.
#[derive(Debug, Args)]
pub struct Status {
    /// Print only whether the process is ready, for probes: exit code 0, or 1 with the reason. It needs no token
    #[arg(long)]
    ready: bool,
    #[command(flatten)]
    remote: Remote,
}

pub fn run(args: Status) -> Outcome {
    block_on(async {
        if args.ready {
            // Not ready is an answer of 503, which is an error with the reason.
            args.remote.stream::<Infallible>("/readyz", |_| Ok(())).await?;
            return show(args.remote.json, &json!({ "ready": true }), || "ready".to_owned());
        }
        let status: Value = args.remote.get("/v1/status").await?;
        show(args.remote.json, &status, || text(&status))
    })
}

/// A process's status as text: a line per value, what belongs together indented.
fn text(status: &Value) -> String {
    let mut lines = Vec::new();
    add_fields(&mut lines, 0, status);
    lines.join("\n")
}

fn add_fields(lines: &mut Vec<String>, depth: usize, value: &Value) {
    let Value::Object(fields) = value else {
        lines.push(format!("{}{}", indent(depth), scalar(value)));
        return;
    };
    for (name, value) in fields {
        let name = format!("{}{}", indent(depth), name.replace('_', " "));
        match value {
            Value::Object(_) => {
                lines.push(format!("{name}:"));
                add_fields(lines, depth + 1, value);
            }
            Value::Array(items) if items.iter().any(Value::is_object) => {
                lines.push(format!("{name}:"));
                for item in items {
                    let first = lines.len();
                    add_fields(lines, depth + 2, item);
                    // The first line of each says that it begins.
                    if let Some(line) = lines.get_mut(first) {
                        *line = format!("{}- {}", indent(depth + 1), line.trim_start());
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                lines.push(format!("{name}: {}", scalar(value)))
            }
        }
    }
}

fn indent(depth: usize) -> String {
    "  ".repeat(depth)
}

fn scalar(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) if items.is_empty() => "none".to_owned(),
        Value::Array(items) => items.iter().map(scalar).collect::<Vec<_>>().join(", "),
        Value::Object(_) | Value::Number(_) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn status_is_a_line_per_value() {
        let status = json!({
            "dc": "usa-0", "ready": true, "reason": null, "silent_groups": [],
            "ledger": { "index": 7, "voters": ["usa-0", "asia-0"] },
            "groups": [{ "group": "usa-0/0", "ms": 0.5 }, { "group": "usa-0/1", "failed": false }],
        });
        let expected = [
            "dc: usa-0",
            "groups:",
            "  - group: usa-0/0",
            "    ms: 0.5",
            "  - failed: no",
            "    group: usa-0/1",
            "ledger:",
            "  index: 7",
            "  voters: usa-0, asia-0",
            "ready: yes",
            "reason: -",
            "silent groups: none",
        ];
        assert_eq!(text(&status).lines().collect::<Vec<_>>(), expected);
    }
}
