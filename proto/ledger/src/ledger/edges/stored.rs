//! The graph as a snapshot holds it: nothing of it while it was never changed, edges as differences from the one before.

use super::{EdgeBatch, Graph, Remembered, remembered};
use serde::{Deserialize, Serialize, Serializer};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use tidemark_types::graph::{Dag, NoGraph, Vertex};
use tidemark_types::ids::serde_bytes_vec;
use tidemark_types::limits::EDGE_COMMANDS_REMEMBERED;
use tidemark_types::table::CellTable;
use tidemark_wire::framed::few;

#[derive(Deserialize)]
pub(super) struct Stored {
    revision: u64,
    #[serde(deserialize_with = "few::<EDGE_COMMANDS_REMEMBERED, _, _, _>")]
    remembered: VecDeque<Remembered>,
    index: u64,
    allowed: BTreeMap<String, BTreeSet<String>>,
    namespaces: Vec<String>,
    #[serde(with = "serde_bytes_vec")]
    names: Vec<u8>,
    edges: Vec<(u32, u32)>,
    audit: VecDeque<EdgeBatch>,
}

/// The same, borrowed.
#[derive(Serialize)]
struct Storing<'g> {
    revision: u64,
    remembered: &'g VecDeque<Remembered>,
    index: u64,
    allowed: &'g BTreeMap<String, BTreeSet<String>>,
    namespaces: &'g [String],
    #[serde(serialize_with = "serde_bytes_vec::serialize")]
    names: &'g [u8],
    edges: Differences<'g>,
    audit: &'g VecDeque<EdgeBatch>,
}

struct Differences<'g>(&'g Dag);

impl Serialize for Differences<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut last = (0, 0);
        serializer.collect_seq(self.0.edges().map(|edge| {
            let from = edge.from.0;
            let to = edge.to.0;
            let difference = (from - last.0, if from == last.0 { to - last.1 } else { to });
            last = (from, to);
            difference
        }))
    }
}

/// A graph in a snapshot that is none.
#[derive(Debug, thiserror::Error)]
pub(super) enum BadGraph {
    #[error("names of counters with edges: {0}")]
    Names(#[from] tidemark_types::table::BadNames),
    #[error(transparent)]
    Edges(#[from] NoGraph),
    #[error("outcomes of {remembered} commands are remembered after {revision} commands")]
    Remembered { remembered: usize, revision: u64 },
}

impl Serialize for Graph {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Graph { dag, names, revision, remembered, index, allowed, audit } = self;
        let is_new = *revision == 0 && allowed.is_empty();
        let records = names.records(0, names.len());
        let storing = (!is_new).then(|| Storing {
            revision: *revision,
            remembered,
            index: *index,
            allowed,
            namespaces: names.namespaces(),
            names: &records,
            edges: Differences(dag),
            audit,
        });
        storing.serialize(serializer)
    }
}

impl TryFrom<Option<Stored>> for Graph {
    type Error = BadGraph;

    fn try_from(stored: Option<Stored>) -> Result<Graph, BadGraph> {
        let Some(stored) = stored else { return Ok(Graph::default()) };
        let Stored { revision, remembered: memory, index, allowed, namespaces, names: records, edges, audit } = stored;
        if memory.len() != remembered(revision) {
            return Err(BadGraph::Remembered { remembered: memory.len(), revision });
        }
        let names = CellTable::from_records(0, namespaces, records)?;
        let mut last = (0u32, 0u32);
        let mut restored = Vec::with_capacity(edges.len());
        for (at, (gap, to)) in edges.into_iter().enumerate() {
            let to = if gap == 0 { last.1.checked_add(to) } else { Some(to) };
            last = last.0.checked_add(gap).zip(to).ok_or(NoGraph::Edge(at))?;
            restored.push((Vertex(last.0), Vertex(last.1)));
        }
        Ok(Graph {
            dag: Dag::from_ascending(names.len(), restored)?,
            names,
            revision,
            remembered: memory,
            index,
            allowed,
            audit,
        })
    }
}
