//! Edges between counters at one data centre: changed in the ledger, and what has flowed along them.

use crate::api::Failure;
use crate::names::{counter_text, parse_counter};
use crate::patience::late;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidemark_aggregator::{Aggregator, LEDGER_PATIENCE, shown};
use tidemark_proto::edge_changes::{EdgesMade, EdgesRefusal};
use tidemark_proto::graph::{Edge, EdgeChange};
use tidemark_proto::ids::CounterName;
use tidemark_proto::ledger::{AllowError, EdgeBatch, EdgeFault, EdgesAsked, EdgesCount, EdgesError, Graph};

/// Counters listed of those before and behind one. More: the list says that it is cut.
const NEIGHBOURS_MAX: usize = 1_000;
/// With which the names of certificates begin, by which clients stand in the audit.
const IDENTITY_SCHEME: &str = "tidemark://";
/// Batches listed of the audit.
const AUDIT_MAX: usize = 100;

/// Edges of one data centre's aggregator. Clones are the same.
#[derive(Clone)]
pub struct Edges {
    aggregator: Aggregator,
}

/// A change of edges: counts of the first of each pair flow to the second, or no longer do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ChangeBody {
    #[schemars(schema_with = "crate::schemas::edges")]
    pub insert: Vec<(String, String)>,
    #[schemars(schema_with = "crate::schemas::edges")]
    pub remove: Vec<(String, String)>,
    /// Skips inserted edges that exist, and removed edges that do not exist; else both are refused.
    pub lenient: bool,
    /// Counters may be named that nothing was counted of; else they are refused, as a slip of the pen would be.
    pub unknown: Unknown,
    /// Leaves out refused edges, lists them, and carries out the others; else one refused edge keeps all others from being carried out.
    pub each: bool,
    /// The author of the change, for the audit: a text that is not checked, but no certificate's name.
    pub by: String,
}

/// The treatment of an edge with a counter that never counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "UnknownCounters")]
pub enum Unknown {
    #[default]
    Refuse,
    Allow,
}

/// How the graph stands after a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChangedBody {
    /// Commands on changes that were decided so far, and single changes that were made.
    pub revision: u64,
    pub index: u64,
    pub inserted: usize,
    pub removed: usize,
    /// With `each`: what was left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<RefusedBody>,
}

/// A change that was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RefusedBody {
    /// Which, from 0: those to be removed come before those to be inserted.
    pub change: usize,
    pub code: String,
    pub message: String,
}

/// The edges and totals of one counter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GraphBody {
    pub counter: String,
    /// Its own count: up less down. Milestones stand on this.
    #[schemars(schema_with = "crate::schemas::whole")]
    pub direct: i128,
    /// With the direct counts of all counters from which it can be reached, each once.
    #[schemars(schema_with = "crate::schemas::whole")]
    pub total: i128,
    /// From where counts flow to it next, and to where its own do.
    pub parents: Vec<String>,
    pub children: Vec<String>,
    /// Not all parents, or not all children, are listed.
    pub cut: bool,
    /// Totals are those of the graph after this number of changes, and of a part of the next change; `waiting` are to be carried out here.
    pub index: u64,
    pub waiting: usize,
    /// Pairs of counters that are done of the change under way.
    #[serde(default)]
    pub pairs: u64,
}

/// The last batches of changes, newest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "EdgesAuditBody")]
pub struct AuditBody {
    pub revision: u64,
    pub index: u64,
    pub edges: usize,
    pub batches: Vec<BatchBody>,
}

/// A change of edges.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BatchBody {
    /// The revision of the graph before it.
    pub revision: u64,
    /// The entry of the ledger's log.
    pub entry: u64,
    pub at_ms: u64,
    pub by: String,
    pub inserted: usize,
    pub removed: usize,
    /// Which, where one batch was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes: Option<ChangesBody>,
}

/// The edges of one batch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChangesBody {
    pub insert: Vec<(String, String)>,
    pub remove: Vec<(String, String)>,
}

impl ChangesBody {
    fn new(graph: &Graph, changes: &[EdgeChange]) -> ChangesBody {
        let name = |vertex| counter_text(&graph.name(vertex));
        let mut body = ChangesBody::default();
        for change in changes {
            let (list, edge) = match change {
                EdgeChange::Insert(edge) => (&mut body.insert, edge),
                EdgeChange::Remove(edge) => (&mut body.remove, edge),
            };
            list.push((name(edge.from), name(edge.to)));
        }
        body
    }
}

impl ChangeBody {
    /// The edges of the request: those to be removed come first.
    pub fn asked(&self) -> Result<EdgesAsked, Failure> {
        let name = |text: &str| parse_counter(text).map_err(|error| Failure::invalid("counter", error));
        let edge = |(from, to): &(String, String)| Ok::<_, Failure>(Edge { from: name(from)?, to: name(to)? });
        let removed = self.remove.iter().map(|pair| edge(pair).map(EdgeChange::Remove));
        let all = removed.chain(self.insert.iter().map(|pair| edge(pair).map(EdgeChange::Insert)));
        let (id, changes) = (rand::random(), all.collect::<Result<_, _>>()?);
        let lenient = self.lenient;
        let each = self.each;
        let allow_unknown = self.unknown == Unknown::Allow;
        Ok(EdgesAsked { id, changes, lenient, each, allow_unknown })
    }

    /// The author that the request names: a text that stands in lines of the audit, and is no certificate's name.
    pub fn author(&self) -> Result<&str, Failure> {
        let is_name = self.by.starts_with(IDENTITY_SCHEME);
        if is_name || self.by.chars().any(char::is_control) {
            let message =
                format!("author {:?}: no control characters, and no {IDENTITY_SCHEME} of a certificate", self.by);
            return Err(Failure::invalid("edges", message));
        }
        Ok(&self.by)
    }
}

impl From<EdgesMade> for ChangedBody {
    fn from(EdgesMade { revision, index, inserted, removed, refused, .. }: EdgesMade) -> ChangedBody {
        let refused = refused.into_iter().map(|(position, fault)| refused_body(position, &fault)).collect();
        ChangedBody { revision, index, inserted: inserted as usize, removed: removed as usize, refused }
    }
}

impl Edges {
    pub fn new(aggregator: &Aggregator) -> Edges {
        Edges { aggregator: aggregator.clone() }
    }

    /// Permits edges from one namespace to another.
    pub async fn allow(&self, from: &str, to: &str) -> Result<(), Failure> {
        let cmd = self.aggregator.with_ledger(|ledger| ledger.allowing_edges(from, to))?;
        let Some(cmd) = cmd else { return Ok(()) };
        self.aggregator.submit_edges(cmd).await;
        let allowed = || self.aggregator.with_ledger(|ledger| ledger.graph().is_allowed(from, to)).then_some(());
        shown(LEDGER_PATIENCE, allowed).await.ok_or_else(late)
    }

    /// The edges of one counter, with its count and its total.
    pub fn of(&self, counter: &CounterName, direct: i128, total: i128) -> GraphBody {
        self.aggregator.with_ledger(|ledger| {
            self.aggregator.with_core(|core| {
                let view = core.view();
                let graph = ledger.graph();
                let (parents, more) = listed(graph.parents(counter));
                let (children, still_more) = listed(graph.children(counter));
                let progress = view.graph_progress();
                GraphBody {
                    counter: counter_text(counter),
                    direct,
                    total,
                    parents,
                    children,
                    cut: more || still_more,
                    index: progress.index,
                    waiting: progress.waiting,
                    pairs: progress.pairs,
                }
            })
        })
    }

    /// The authors of the last changes of edges; for one entry of the ledger's log also the edges.
    ///
    /// # Errors
    /// That entry changed no edge, or it is forgotten after many later changes.
    pub fn audit(&self, entry: Option<u64>) -> Result<AuditBody, Failure> {
        self.aggregator.with_ledger(|ledger| {
            let graph = ledger.graph();
            let batches = match entry {
                None => graph.audit().rev().take(AUDIT_MAX).map(batch_body).collect(),
                Some(entry) => vec![batch_of_entry(graph, entry)?],
            };
            Ok(AuditBody { revision: graph.revision(), index: graph.index(), edges: graph.dag().len(), batches })
        })
    }
}

fn batch_of_entry(graph: &Graph, entry: u64) -> Result<BatchBody, Failure> {
    let batch = graph.audit().find(|batch| batch.entry.0 == entry).ok_or_else(|| {
        let known = graph.audit().len();
        Failure::NotFound(format!(
            "entry {entry} is not among the last {known} changes of edges, which are all that are remembered"
        ))
    })?;
    Ok(BatchBody { changes: Some(ChangesBody::new(graph, &batch.changes)), ..batch_body(batch) })
}

fn batch_body(batch: &EdgeBatch) -> BatchBody {
    let EdgesCount { inserted, removed } = EdgesCount::of(&batch.changes);
    let inserted = inserted.into();
    let removed = removed.into();
    let EdgeBatch { revision, entry, at, by, .. } = batch;
    BatchBody { revision: *revision, entry: entry.0, at_ms: at.0, by: by.clone(), inserted, removed, changes: None }
}

fn refused_body(position: u32, fault: &EdgeFault) -> RefusedBody {
    let failure = of_fault(fault, fault.to_string());
    RefusedBody { change: position as usize, code: failure.code().to_owned(), message: failure.to_string() }
}

fn of_fault(fault: &EdgeFault, message: String) -> Failure {
    let code = match fault {
        EdgeFault::UnknownNamespace(_) => return Failure::Absent { code: "unknown_namespace", message },
        EdgeFault::NotAllowed { .. } => "not_allowed",
        EdgeFault::UnknownCounter(_) => {
            let message = format!("{message}, or say \"unknown\": \"allow\"");
            return Failure::Conflict { code: "unknown_counter", message };
        }
        EdgeFault::Cycle { .. } => "cycle",
        EdgeFault::ToItself => "to_itself",
        EdgeFault::Duplicate => "duplicate",
        EdgeFault::Absent => "absent",
        EdgeFault::Full | EdgeFault::Names => "full",
    };
    Failure::Conflict { code, message }
}

fn listed(names: impl Iterator<Item = CounterName>) -> (Vec<String>, bool) {
    let mut all: Vec<String> = names.take(NEIGHBOURS_MAX + 1).map(|name| counter_text(&name)).collect();
    let more = all.len() > NEIGHBOURS_MAX;
    all.truncate(NEIGHBOURS_MAX);
    (all, more)
}

impl From<EdgesError> for Failure {
    fn from(error: EdgesError) -> Failure {
        let message = error.to_string();
        match &error {
            EdgesError::Change { fault, .. } => of_fault(fault, message),
            EdgesError::Count(_) | EdgesError::Author(_) => Failure::invalid("edges", message),
        }
    }
}

impl From<EdgesRefusal> for Failure {
    fn from(refusal: EdgesRefusal) -> Failure {
        let message = refusal.to_string();
        match refusal {
            EdgesRefusal::Edges(error) => error.into(),
            EdgesRefusal::NotPermitted { .. } => Failure::Forbidden(message),
            EdgesRefusal::Contended => Failure::Conflict { code: "changed", message },
            EdgesRefusal::InDoubt => late(),
            EdgesRefusal::Outdated => Failure::InDoubt(message),
            EdgesRefusal::NotServing(reason) => Failure::NotServing(reason),
        }
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
