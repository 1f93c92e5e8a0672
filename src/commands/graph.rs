//! `tidemark graph`: edges between counters, and totals.

use super::series::{SPARKS_PATIENCE, spark};
use super::{Outcome, block_on, show};
use crate::lines::{LineTooLong, check_length, next_line};
use crate::remote::{Remote, counter_path};
use clap::{Args, Subcommand};
use hyper::Method;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::str::Utf8Error;
use tidemark_proto::ids::CounterName;
use tidemark_proto::limits::EDGE_CHANGES_PER_COMMAND_MAX;
use tidemark_server::api::Of;
use tidemark_server::edges::{
    AuditBody, BatchBody, ChangeBody, ChangedBody, ChangesBody, GraphBody, RefusedBody, Unknown,
};
use tidemark_server::names::{CounterTextError, counter_text, parse_counter};

/// Bad lines of a file that are shown; more are counted.
const BAD_LINES_SHOWN_MAX: usize = 20;
/// Characters that are shown of a line that is no edge.
const LINE_SHOWN_CHARS: usize = 80;
/// Of what a total's sparkline may be, up to now, and its steps; the first that is kept so finely.
const TOTAL_LAST: [(&str, &str); 2] = [("48h", "1h"), ("48d", "1d")];

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
    /// Counter that counts flow from: NAMESPACE/KEY
    #[arg(value_parser = parse_counter)]
    from: CounterName,
    /// Counter that counts flow to: NAMESPACE/KEY
    #[arg(value_parser = parse_counter)]
    to: CounterName,
    /// Name of the author of the change, for `tidemark graph audit`
    #[arg(long, default_value = "")]
    by: String,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Add an edge, along which counts of one counter flow to another
    #[command(after_help = "Example:\n  tidemark graph add shop/berlin shop/germany")]
    Add {
        #[command(flatten)]
        pair: Pair,
        /// Accept counters that never counted
        #[arg(long)]
        unknown: bool,
    },
    /// Remove an edge
    #[command(after_help = "Example:\n  tidemark graph remove shop/berlin shop/germany")]
    Remove(Pair),
    /// Show a counter's own count, its total, and its neighbours
    #[command(after_help = "Example:\n  tidemark graph show shop/germany")]
    Show {
        /// Name of the counter: NAMESPACE/KEY
        #[arg(value_parser = parse_counter)]
        counter: CounterName,
    },
    /// Add the edges of a file
    ///
    /// Each line has two counters with a tab or a comma between them. Existing edges stay. Refused lines are printed, and the other lines
    /// are loaded.
    #[command(after_help = "Example:\n  tidemark graph load edges.csv --by alice")]
    Load {
        /// File of edges
        file: PathBuf,
        /// Accept counters that never counted
        #[arg(long)]
        unknown: bool,
        /// Name of the author of the change, for `tidemark graph audit`
        #[arg(long, default_value = "")]
        by: String,
    },
    /// Remove the edges of a file
    ///
    /// Each line has two counters with a tab or a comma between them. Missing edges are skipped. Wrong lines are printed, and the edges of
    /// the other lines are removed.
    #[command(after_help = "Example:\n  tidemark graph unload edges.csv --by alice")]
    Unload {
        /// File of edges
        file: PathBuf,
        /// Name of the author of the change, for `tidemark graph audit`
        #[arg(long, default_value = "")]
        by: String,
    },
    /// Allow edges from one namespace to another
    #[command(after_help = "Example:\n  tidemark graph allow shop regions")]
    Allow {
        /// Namespace that counts flow from
        from: String,
        /// Namespace that counts flow to
        to: String,
    },
    /// Print the last changes of edges, with their authors
    #[command(after_help = "Example:\n  tidemark graph audit")]
    Audit {
        /// Print only the change in this entry of the ledger's log, with its edges
        #[arg(long)]
        entry: Option<u64>,
    },
}

pub fn run(args: GraphArgs) -> Outcome {
    block_on(async {
        let GraphArgs { action, remote } = args;
        match action {
            Action::Add { pair, unknown } => {
                let insert = vec![pair.texts()];
                let unknown = of_unknown(unknown);
                let body = ChangeBody { insert, unknown, by: pair.by, ..ChangeBody::default() };
                changed(&remote, change(&remote, &body).await?)
            }
            Action::Remove(pair) => {
                let body = ChangeBody { remove: vec![pair.texts()], by: pair.by, ..ChangeBody::default() };
                changed(&remote, change(&remote, &body).await?)
            }
            Action::Show { counter } => {
                let graph: GraphBody = remote.get(&counter_path(&counter, "/graph")).await?;
                let lately = if remote.json { None } else { lately(&remote, &counter).await };
                show(remote.json, &graph, || text(&graph, lately.as_deref()))
            }
            Action::Load { file, unknown, by } => {
                let wanted =
                    ChangeBody { lenient: true, each: true, unknown: of_unknown(unknown), by, ..ChangeBody::default() };
                load(&remote, &file, &wanted, Way::In).await
            }
            Action::Unload { file, by } => {
                let wanted = ChangeBody { lenient: true, each: true, by, ..ChangeBody::default() };
                load(&remote, &file, &wanted, Way::Out).await
            }
            Action::Allow { from, to } => {
                let path = format!("/v1/edges/allowed/{from}/{to}");
                let said: serde_json::Value = remote.call(Method::PUT, &path, None::<&()>).await?;
                show(remote.json, &said, || format!("counts of {from} may flow to {to}"))
            }
            Action::Audit { entry } => {
                let param = entry.map_or(String::new(), |entry| format!("?entry={entry}"));
                let audit: AuditBody = remote.get(&format!("/v1/edges/audit{param}")).await?;
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

/// The recent counts of a total, as a line of text; `None` where that is not kept, or does not come in time.
async fn lately(remote: &Remote, counter: &CounterName) -> Option<String> {
    let of = Of::Total.param();
    let asked = TOTAL_LAST.map(|(last, every)| format!("?last={last}&every={every}&anchor=end{of}"));
    let (nth, line) = tokio::time::timeout(SPARKS_PATIENCE, spark(remote, counter, &asked)).await.ok()??;
    Some(format!("last {}  {line}", TOTAL_LAST[nth].0))
}

async fn change(remote: &Remote, body: &ChangeBody) -> Result<ChangedBody, crate::remote::RemoteError> {
    remote.call(Method::POST, "/v1/edges", Some(body)).await
}

fn changed(remote: &Remote, changed: ChangedBody) -> Outcome {
    let ChangedBody { inserted, removed, index, .. } = changed;
    show(remote.json, &changed, || {
        format!("{inserted} edges added, {removed} removed; {index} changes of the graph so far")
    })
}

fn of_unknown(is_allowed: bool) -> Unknown {
    if is_allowed { Unknown::Allow } else { Unknown::Refuse }
}

/// Which way the edges of a file go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    In,
    Out,
}

impl Way {
    /// The past participle for an edge that went.
    fn done(self) -> &'static str {
        match self {
            Way::In => "added",
            Way::Out => "removed",
        }
    }

    /// The change of these edges.
    fn change(self, edges: Vec<(String, String)>, wanted: &ChangeBody) -> ChangeBody {
        match self {
            Way::In => ChangeBody { insert: edges, ..wanted.clone() },
            Way::Out => ChangeBody { remove: edges, ..wanted.clone() },
        }
    }
}

/// The results of a file so far.
struct Loaded {
    way: Way,
    done: usize,
    /// Of the graph.
    index: u64,
    bad: usize,
}

impl Loaded {
    fn bad(&mut self, line: u64, reason: &str) {
        self.bad += 1;
        if self.bad <= BAD_LINES_SHOWN_MAX {
            errln!("line {line}: {reason}");
        }
    }

    /// Adds the edges of some lines, or takes them away.
    async fn change(
        &mut self,
        remote: &Remote,
        edges: Vec<(u64, (String, String))>,
        wanted: &ChangeBody,
    ) -> Result<(), crate::remote::RemoteError> {
        let (lines, edges): (Vec<u64>, Vec<_>) = edges.into_iter().unzip();
        let ChangedBody { inserted, removed, index, refused, .. } =
            change(remote, &self.way.change(edges, wanted)).await?;
        (self.done, self.index) = (self.done + inserted + removed, index);
        for RefusedBody { change, message, .. } in refused {
            self.bad(lines.get(change).copied().unwrap_or(0), &message);
        }
        errln!("{} edges {}", self.done, self.way.done());
        Ok(())
    }
}

/// In batches. A load that was cut off is done again: what is there stays, and what is gone too.
async fn load(remote: &Remote, file: &Path, wanted: &ChangeBody, way: Way) -> Outcome {
    let named = |error: io::Error| format!("{}: {error}", file.display());
    let mut reader = BufReader::new(std::fs::File::open(file).map_err(named)?);
    let mut loaded = Loaded { way, done: 0, index: 0, bad: 0 };
    let mut batch = Vec::new();
    let mut line = Vec::new();
    for number in 1.. {
        let is_end = !next_line(&mut reader, &mut line).map_err(named)?;
        match if is_end { Ok(None) } else { edge_of(&line) } {
            Ok(edge) => batch.extend(edge.map(|edge| (number, edge))),
            Err(reason) => loaded.bad(number, &reason.to_string()),
        }
        if batch.len() >= EDGE_CHANGES_PER_COMMAND_MAX || is_end && !batch.is_empty() {
            loaded.change(remote, std::mem::take(&mut batch), wanted).await?;
        }
        if is_end {
            break;
        }
    }
    let Loaded { done, index, bad, .. } = loaded;
    let what = way.done();
    if bad > 0 {
        return Err(format!("{bad} lines were refused; {done} edges were {what}").into());
    }
    show(remote.json, &serde_json::json!({ what: done, "index": index }), || format!("{done} edges {what}"))
}

/// Why a line names no edge.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum EdgeLineError {
    #[error(transparent)]
    TooLong(#[from] LineTooLong),
    #[error("no UTF-8 from byte {from} on")]
    NotUtf8 { from: usize },
    #[error("{begins:?}: a tab or a comma between two counters expected")]
    NoSeparator { begins: String },
    #[error(transparent)]
    Counter(#[from] CounterTextError),
}

/// `None` of an empty line and of a comment.
fn edge_of(line: &[u8]) -> Result<Option<(String, String)>, EdgeLineError> {
    check_length(line)?;
    let no_text = |error: Utf8Error| EdgeLineError::NotUtf8 { from: error.valid_up_to() };
    let line = std::str::from_utf8(line).map_err(no_text)?;
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    let (from, to) = line.split_once(['\t', ',']).ok_or_else(|| {
        let begins = line.chars().take(LINE_SHOWN_CHARS).collect();
        EdgeLineError::NoSeparator { begins }
    })?;
    for name in [from, to] {
        parse_counter(name.trim())?;
    }
    Ok(Some((from.trim().to_owned(), to.trim().to_owned())))
}

fn text(graph: &GraphBody, lately: Option<&str>) -> String {
    let list = |names: &[String]| if names.is_empty() { "-".to_owned() } else { names.join(" ") };
    let lately = lately.map_or(String::new(), |lately| format!("\n  {lately}"));
    let waiting = if graph.waiting > 0 {
        let GraphBody { waiting, pairs, .. } = graph;
        format!("\n{waiting} changes of edges are being carried out, {pairs} pairs of counters of the first are done")
    } else {
        String::new()
    };
    format!(
        "{}\n  own count {}\n  total     {}{lately}\n  from      {}\n  to        {}{waiting}",
        graph.counter,
        graph.direct,
        graph.total,
        list(&graph.parents),
        list(&graph.children)
    )
}

fn audit_text(audit: &AuditBody) -> String {
    let line = |batch: &BatchBody| {
        let by = if batch.by.is_empty() { "-" } else { &batch.by };
        let BatchBody { at_ms, inserted, removed, entry, changes, .. } = batch;
        let head = format!("{} {by}: {inserted} added, {removed} removed (entry {entry})", at_ms / 1_000);
        let edges = changes.iter().flat_map(|ChangesBody { insert, remove }| {
            let signed = |sign| move |(from, to): &(String, String)| format!("\n  {sign} {from} > {to}");
            insert.iter().map(signed('+')).chain(remove.iter().map(signed('-')))
        });
        head + &edges.collect::<String>()
    };
    let lines: Vec<String> = audit.batches.iter().map(line).collect();
    format!("{} edges after {} changes\n{}", audit.edges, audit.index, lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lines::LINE_BYTES_MAX;

    #[test]
    fn a_line_is_two_counters_or_says_what_is_wrong() {
        let edge = |line: &str| edge_of(line.as_bytes()).map(|edge| edge.map(|(from, to)| format!("{from} > {to}")));
        assert_eq!(edge("qa/a, qa/b"), Ok(Some("qa/a > qa/b".into())));
        assert_eq!(edge("qa/a\tqa/b"), Ok(Some("qa/a > qa/b".into())));
        assert_eq!((edge(""), edge(" # more")), (Ok(None), Ok(None)));
        for (line, what) in [("qa/a qa/b", "a tab or a comma"), ("qa/a,b", "b"), ("QA/a,qa/b", "QA")] {
            assert!(edge(line).unwrap_err().to_string().contains(what), "{line}");
        }
    }

    #[test]
    fn a_counter_is_told_with_what_it_counted_lately_where_that_is_kept() {
        let graph = GraphBody {
            counter: "qa/b".into(),
            direct: 1,
            total: 7,
            parents: vec!["qa/a".into(), "qa/c".into()],
            children: Vec::new(),
            cut: false,
            index: 2,
            waiting: 0,
            pairs: 0,
        };
        let head = "qa/b\n  own count 1\n  total     7\n";
        let rest = "  from      qa/a qa/c\n  to        -";
        assert_eq!(text(&graph, None), format!("{head}{rest}"));
        assert_eq!(text(&graph, Some("last 48h  ▁█")), format!("{head}  last 48h  ▁█\n{rest}"));
    }

    #[test]
    fn lines_that_are_too_long_or_no_text_are_said_and_skipped() {
        let long = "x".repeat(3 * LINE_BYTES_MAX);
        let exact = format!("#{}", "x".repeat(LINE_BYTES_MAX - 1));
        let file = [b"qa/a,qa/b\n", long.as_bytes(), b"\n", exact.as_bytes(), b"\nqa/\xff,qa/b\n\n# last"].concat();
        let mut reader = BufReader::new(&file[..]);
        let mut line = Vec::new();
        let lines = std::iter::from_fn(|| next_line(&mut reader, &mut line).unwrap().then(|| line.clone()));
        let edges: Vec<_> = lines.map(|line| edge_of(&line).map(|edge| edge.is_some())).collect();
        let too_long = Err(EdgeLineError::TooLong(LineTooLong));
        let no_text = Err(EdgeLineError::NotUtf8 { from: 3 });
        assert_eq!(edges, [Ok(true), too_long, Ok(false), no_text, Ok(false), Ok(false)]);
    }
}
