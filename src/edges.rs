//! Edges between counters at one data centre: changed in the ledger, and what has flowed along them.

use crate::backend::{LEDGER_PATIENCE, late, shown};
use crate::http::Failure;
use crate::names::{counter_text, parse_counter};
use serde::{Deserialize, Serialize};
use std::time::{SystemTime, UNIX_EPOCH};
use tidemark_aggregator::Aggregator;
use tidemark_proto::graph::{Edge, EdgeChange, EdgeRefused};
use tidemark_proto::ids::{CounterName, Half};
use tidemark_proto::ledger::{AllowError, EdgeBatch, EdgeFault, EdgesError, Graph, Ledger};
use tidemark_proto::msg::LedgerCmd;
use tidemark_proto::time::WallMs;
use tidemark_proto::view::View;

/// How often a change is decided again because another one came first.
const DECISIONS_MAX: usize = 8;
/// Counters listed of those before and behind one. More: the list says that it is cut.
const NEIGHBOURS_MAX: usize = 1_000;
/// Batches listed of the audit.
const AUDIT_MAX: usize = 100;

/// Edges of one data centre's aggregator. Clones are the same.
#[derive(Clone)]
pub struct Edges {
    aggregator: Aggregator,
}

/// A change of edges: counts of the first of each pair flow to the second, or no longer do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ChangeBody {
    pub insert: Vec<(String, String)>,
    pub remove: Vec<(String, String)>,
    /// What is there already is not inserted again, and what is not there not removed; else both are refused.
    pub lenient: bool,
    /// Counters may be named that nothing was counted of; else they are refused, as a slip of the pen would be.
    pub unknown: Unknown,
    /// Who changes them, for the audit.
    pub by: String,
}

/// What becomes of an edge of a counter of which nothing was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unknown {
    #[default]
    Refuse,
    Allow,
}

/// How the graph stands after a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedBody {
    /// Batches of changes so far, and single changes.
    pub revision: u64,
    pub index: u64,
    pub inserted: usize,
    pub removed: usize,
}

/// One counter in the graph.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GraphBody {
    pub counter: String,
    /// Its own count: up less down. Milestones stand on this.
    pub direct: i128,
    /// With the direct counts of all counters from which it can be reached, each once.
    pub total: i128,
    /// From where counts flow to it next, and to where its own do.
    pub parents: Vec<String>,
    pub children: Vec<String>,
    /// Not all parents, or not all children, are listed.
    pub cut: bool,
    /// Totals are those of the graph after so many changes, and of a part of the next; `waiting` are to be carried out here.
    pub index: u64,
    pub waiting: usize,
}

/// The last batches of changes, newest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditBody {
    pub revision: u64,
    pub index: u64,
    pub edges: usize,
    pub batches: Vec<BatchBody>,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchBody {
    /// Of the graph before it.
    pub revision: u64,
    /// The entry of the ledger's log.
    pub entry: u64,
    pub at_ms: u64,
    pub by: String,
    pub inserted: usize,
    pub removed: usize,
}

impl ChangeBody {
    fn changes(&self) -> Result<Vec<EdgeChange<CounterName>>, Failure> {
        let name = |text: &str| parse_counter(text).map_err(|error| Failure::invalid("counter", error));
        let edge = |(from, to): &(String, String)| Ok::<_, Failure>(Edge { from: name(from)?, to: name(to)? });
        let removed = self.remove.iter().map(|pair| edge(pair).map(EdgeChange::Remove));
        removed.chain(self.insert.iter().map(|pair| edge(pair).map(EdgeChange::Insert))).collect()
    }
}

impl Edges {
    pub fn new(aggregator: &Aggregator) -> Edges {
        Edges { aggregator: aggregator.clone() }
    }

    /// Changes edges, all that are asked for or none; returns once the ledger has applied it.
    ///
    /// # Errors
    /// One of them is refused, or others change the graph all the time.
    pub async fn change(&self, body: &ChangeBody) -> Result<ChangedBody, Failure> {
        let changes = body.changes()?;
        for _ in 0..DECISIONS_MAX {
            let decided = self.aggregator.with_ledger(|ledger| {
                self.check_known(&changes, body.unknown, ledger)?;
                Ok::<_, Failure>(ledger.edges(changes.clone(), wall_now(), &body.by, body.lenient)?)
            })?;
            let Some(cmd) = decided else {
                return Ok(self.aggregator.with_ledger(|ledger| changed(ledger.graph(), &[])));
            };
            let LedgerCmd::Edges { revision, changes: made, .. } = &cmd else { continue };
            let (revision, made) = (*revision, made.clone());
            let said = cmd.clone();
            self.aggregator.submit_edges(cmd).await;
            let applied = || {
                self.aggregator.with_ledger(|ledger| {
                    let graph = ledger.graph();
                    (graph.revision() > revision).then(|| (is_ours(graph, &said), changed(graph, &made)))
                })
            };
            match shown(LEDGER_PATIENCE, applied).await {
                Some((true, changed)) => return Ok(changed),
                Some((false, _)) => {}
                None => return Err(late()),
            }
        }
        let message = "other changes of the graph came first each time: ask again".to_owned();
        Err(Failure::Conflict { code: "changed", message })
    }

    fn check_known(
        &self,
        changes: &[EdgeChange<CounterName>],
        unknown: Unknown,
        ledger: &Ledger,
    ) -> Result<(), Failure> {
        if unknown == Unknown::Allow {
            return Ok(());
        }
        let inserted = changes.iter().filter(|change| matches!(change, EdgeChange::Insert(_)));
        let mut named = inserted.flat_map(|change| [&change.edge().from, &change.edge().to]);
        let strange = self
            .aggregator
            .with_core(|core| named.find(|counter| !is_known(core.view(), ledger, counter)).map(counter_text));
        let refused = |name: String| {
            let message =
                format!("nothing was counted of {name}: it may be a slip; say \"unknown\": \"allow\" if it is not");
            Failure::Conflict { code: "unknown_counter", message }
        };
        strange.map_or(Ok(()), |name| Err(refused(name)))
    }

    /// Permits edges from one namespace to another.
    pub async fn allow(&self, from: &str, to: &str) -> Result<(), Failure> {
        let cmd = self.aggregator.with_ledger(|ledger| ledger.allowing_edges(from, to))?;
        let Some(cmd) = cmd else { return Ok(()) };
        self.aggregator.submit_edges(cmd).await;
        let allowed = || self.aggregator.with_ledger(|ledger| ledger.graph().is_allowed(from, to)).then_some(());
        shown(LEDGER_PATIENCE, allowed).await.ok_or_else(late)
    }

    /// One counter in the graph, with its count and its total.
    pub fn of(&self, counter: &CounterName) -> GraphBody {
        self.aggregator.with_ledger(|ledger| {
            self.aggregator.with_core(|core| {
                let (view, graph) = (core.view(), ledger.graph());
                let total = view.total(counter, ledger);
                let (parents, more) = listed(graph.parents(counter));
                let (children, still_more) = listed(graph.children(counter));
                let progress = view.graph_progress();
                GraphBody {
                    counter: counter_text(counter),
                    direct: total.direct.value(),
                    total: total.value(),
                    parents,
                    children,
                    cut: more || still_more,
                    index: progress.index,
                    waiting: progress.waiting,
                }
            })
        })
    }

    /// Who changed edges last.
    pub fn audit(&self) -> AuditBody {
        self.aggregator.with_ledger(|ledger| {
            let graph = ledger.graph();
            let batches = graph.audit().rev().take(AUDIT_MAX).map(batch_body).collect();
            AuditBody { revision: graph.revision(), index: graph.index(), edges: graph.dag().len(), batches }
        })
    }
}

fn batch_body(batch: &EdgeBatch) -> BatchBody {
    let (inserted, removed) = counts(&batch.changes);
    let EdgeBatch { revision, entry, at, by, .. } = batch;
    BatchBody { revision: *revision, entry: entry.0, at_ms: at.0, by: by.clone(), inserted, removed }
}

fn counts<N>(changes: &[EdgeChange<N>]) -> (usize, usize) {
    let inserted = changes.iter().filter(|change| matches!(change, EdgeChange::Insert(_))).count();
    (inserted, changes.len() - inserted)
}

fn changed(graph: &Graph, made: &[EdgeChange<CounterName>]) -> ChangedBody {
    let (inserted, removed) = counts(made);
    ChangedBody { revision: graph.revision(), index: graph.index(), inserted, removed }
}

/// Whether the batch that was carried out at a command's revision is that command.
fn is_ours(graph: &Graph, said: &LedgerCmd) -> bool {
    let LedgerCmd::Edges { revision, changes, at, by } = said else { return false };
    let carried_out = graph.audit().find(|batch| batch.revision == *revision);
    carried_out.is_some_and(|batch| (batch.at, &batch.by, batch.changes.len()) == (*at, by, changes.len()))
}

fn is_known(view: &View, ledger: &Ledger, counter: &CounterName) -> bool {
    let counted = [Half::Up, Half::Down].iter().any(|&half| view.table().find_half(counter, half, 0).is_some());
    counted || ledger.graph().vertex(counter).is_some()
}

fn listed(names: impl Iterator<Item = CounterName>) -> (Vec<String>, bool) {
    let mut all: Vec<String> = names.take(NEIGHBOURS_MAX + 1).map(|name| counter_text(&name)).collect();
    let more = all.len() > NEIGHBOURS_MAX;
    all.truncate(NEIGHBOURS_MAX);
    (all, more)
}

fn wall_now() -> WallMs {
    WallMs(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64)
}

impl From<EdgesError> for Failure {
    fn from(error: EdgesError) -> Failure {
        let message = error.to_string();
        let EdgesError::Change { fault, .. } = &error else { return Failure::invalid("edges", message) };
        let code = match &**fault {
            EdgeFault::UnknownNamespace(_) => return Failure::NotFound(message),
            EdgeFault::NotAllowed { .. } => "not_allowed",
            EdgeFault::Cycle { .. } | EdgeFault::Refused(EdgeRefused::Cycle { .. }) => "cycle",
            EdgeFault::Refused(EdgeRefused::ToItself) => "to_itself",
            EdgeFault::Refused(EdgeRefused::Duplicate) => "duplicate",
            EdgeFault::Refused(EdgeRefused::Absent) => "absent",
            EdgeFault::Refused(EdgeRefused::Full) | EdgeFault::Names => "full",
        };
        Failure::Conflict { code, message }
    }
}

impl From<AllowError> for Failure {
    fn from(error: AllowError) -> Failure {
        match &error {
            AllowError::UnknownNamespace(_) => Failure::NotFound(error.to_string()),
            AllowError::TooMany => Failure::Conflict { code: "full", message: error.to_string() },
        }
    }
}
