//! `tidemark graph`: edges between counters, and totals.

use super::remote::{Remote, counter_path};
use super::{Outcome, block_on, show};
use crate::edges::{AuditBody, ChangeBody, ChangedBody, GraphBody, Unknown};
use crate::names::{counter_text, parse_counter};
use clap::{Args, Subcommand};
use hyper::Method;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use tidemark_proto::ids::CounterName;
use tidemark_proto::limits::EDGE_CHANGES_PER_COMMAND_MAX;

/// Bad lines of a file that are shown; more are counted.
const BAD_LINES_SHOWN_MAX: usize = 20;

/// Arguments of `tidemark graph`.
#[derive(Debug, Args)]
pub struct GraphArgs {
    #[command(subcommand)]
    action: Action,
    #[command(flatten)]
    remote: Remote,
}

#[derive(Debug, Args)]
struct Pair {
    /// Counts of this counter, NAMESPACE/KEY, …
    #[arg(value_parser = parse_counter)]
    from: CounterName,
    /// … flow to this one
    #[arg(value_parser = parse_counter)]
    to: CounterName,
    /// Who changes it, for the audit
    #[arg(long, default_value = "")]
    by: String,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Lets counts of one counter flow to another
    Add {
        #[command(flatten)]
        pair: Pair,
        /// Also where nothing was counted of one of them
        #[arg(long)]
        unknown: bool,
    },
    /// Takes an edge away
    Remove(Pair),
    /// Shows a counter's own count, its total, and its neighbours
    Show {
        /// The counter, NAMESPACE/KEY
        #[arg(value_parser = parse_counter)]
        counter: CounterName,
    },
    /// Adds the edges of a file: two counters a line, with a tab or a comma between them. What is there already stays
    Load {
        file: PathBuf,
        /// Who changes it, for the audit
        #[arg(long, default_value = "")]
        by: String,
    },
    /// Permits edges from one namespace to another
    Allow { from: String, to: String },
    /// Shows who changed edges last
    Audit,
}

pub fn run(args: GraphArgs) -> Outcome {
    block_on(async {
        let GraphArgs { action, remote } = args;
        match action {
            Action::Add { pair, unknown } => {
                let unknown = if unknown { Unknown::Allow } else { Unknown::Refuse };
                let body = ChangeBody { insert: vec![pair.texts()], unknown, by: pair.by, ..ChangeBody::default() };
                changed(&remote, change(&remote, &body).await?)
            }
            Action::Remove(pair) => {
                let body = ChangeBody { remove: vec![pair.texts()], by: pair.by, ..ChangeBody::default() };
                changed(&remote, change(&remote, &body).await?)
            }
            Action::Show { counter } => {
                let graph: GraphBody = remote.get(&counter_path(&counter, "/graph")).await?;
                show(remote.json, &graph, || text(&graph))
            }
            Action::Load { file, by } => load(&remote, file, &by).await,
            Action::Allow { from, to } => {
                let path = format!("/v1/edges/allowed/{from}/{to}");
                let said: serde_json::Value = remote.call(Method::PUT, &path, None::<&()>).await?;
                show(remote.json, &said, || format!("counts of {from} may flow to {to}"))
            }
            Action::Audit => {
                let audit: AuditBody = remote.get("/v1/edges/audit").await?;
                show(remote.json, &audit, || audit_text(&audit))
            }
        }
    })
}

impl Pair {
    fn texts(&self) -> (String, String) {
        (counter_text(&self.from), counter_text(&self.to))
    }
}

async fn change(remote: &Remote, body: &ChangeBody) -> Result<ChangedBody, super::remote::RemoteError> {
    remote.call(Method::POST, "/v1/edges", Some(body)).await
}

fn changed(remote: &Remote, changed: ChangedBody) -> Outcome {
    let ChangedBody { inserted, removed, index, .. } = changed;
    show(remote.json, &changed, || {
        format!("{inserted} edges added, {removed} removed; {index} changes of the graph so far")
    })
}

/// In batches, each of which is carried out whole or not at all. A load that was cut off is done again: what is there stays.
async fn load(remote: &Remote, file: PathBuf, by: &str) -> Outcome {
    let reader = BufReader::new(std::fs::File::open(&file).map_err(|error| format!("{}: {error}", file.display()))?);
    let (mut batch, mut bad, mut loaded, mut last) = (Vec::new(), Vec::new(), 0, None);
    let mut lines = (1..).zip(reader.lines());
    loop {
        let next = lines.next();
        let is_end = next.is_none();
        if let Some((number, line)) = next {
            match edge_of(&line?) {
                Ok(edge) => batch.extend(edge),
                Err(reason) => bad.push(format!("line {number}: {reason}")),
            }
        }
        if batch.len() >= EDGE_CHANGES_PER_COMMAND_MAX || is_end && !batch.is_empty() {
            let insert = std::mem::take(&mut batch);
            let by = by.to_owned();
            let body = ChangeBody { insert, lenient: true, unknown: Unknown::Allow, by, ..ChangeBody::default() };
            let done = change(remote, &body).await?;
            loaded += done.inserted;
            eprintln!("{loaded} edges added");
            last = Some(done);
        }
        if is_end {
            break;
        }
    }
    bad.iter().take(BAD_LINES_SHOWN_MAX).for_each(|line| eprintln!("{line}"));
    if !bad.is_empty() {
        return Err(format!("{} lines are no edges; {loaded} edges were added", bad.len()).into());
    }
    let index = last.map_or(0, |last| last.index);
    show(remote.json, &serde_json::json!({ "added": loaded, "index": index }), || format!("{loaded} edges added"))
}

/// `None` of an empty line and of a comment.
fn edge_of(line: &str) -> Result<Option<(String, String)>, String> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    let (from, to) =
        line.split_once(['\t', ',']).ok_or_else(|| format!("{line:?}: a tab or a comma between two counters"))?;
    for name in [from, to] {
        parse_counter(name.trim()).map_err(|error| error.to_string())?;
    }
    Ok(Some((from.trim().to_owned(), to.trim().to_owned())))
}

fn text(graph: &GraphBody) -> String {
    let list = |names: &[String]| if names.is_empty() { "-".to_owned() } else { names.join(" ") };
    let waiting = if graph.waiting > 0 {
        format!("\n{} changes of edges are being carried out", graph.waiting)
    } else {
        String::new()
    };
    format!(
        "{}\n  own count {}\n  total     {}\n  from      {}\n  to        {}{waiting}",
        graph.counter,
        graph.direct,
        graph.total,
        list(&graph.parents),
        list(&graph.children)
    )
}

fn audit_text(audit: &AuditBody) -> String {
    let line = |batch: &crate::edges::BatchBody| {
        let by = if batch.by.is_empty() { "-" } else { &batch.by };
        format!(
            "{} {by}: {} added, {} removed (entry {})",
            batch.at_ms / 1_000,
            batch.inserted,
            batch.removed,
            batch.entry
        )
    };
    let lines: Vec<String> = audit.batches.iter().map(line).collect();
    format!("{} edges after {} changes\n{}", audit.edges, audit.index, lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_two_counters_or_says_what_is_wrong() {
        let edge = |line| edge_of(line).map(|edge| edge.map(|(from, to)| format!("{from} > {to}")));
        assert_eq!(edge("qa/a, qa/b"), Ok(Some("qa/a > qa/b".into())));
        assert_eq!(edge("qa/a\tqa/b"), Ok(Some("qa/a > qa/b".into())));
        assert_eq!((edge(""), edge(" # more")), (Ok(None), Ok(None)));
        for (line, what) in [("qa/a qa/b", "a tab or a comma"), ("qa/a,b", "b"), ("QA/a,qa/b", "QA")] {
            assert!(edge(line).unwrap_err().contains(what), "{line}");
        }
    }
}
