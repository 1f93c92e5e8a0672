//! Edges that front ends insert and remove while everything else goes on, and what totals must be by them.
//!
//! Vertices are the counter of hits and a few counters of adds of each front end, in one order, in which all edges lead onwards: no change
//! closes a cycle. An edge is changed by one front end only, that of its end, one batch after the other; so it is known which edges there are.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rand::RngExt;
use rand::rngs::ChaCha8Rng;
use tidemark_client::{ChangeError, Client, CounterName, EdgeChanges, EdgesMade};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::account::Account;
use super::load::{hits, key};
use super::log::{Entry, Log};
use super::verdict::Expected;

/// Counters of adds of each front end that have edges.
const KEYS_WITH_EDGES: usize = 12;
/// Most changes of a batch.
const TOGETHER_MAX: usize = 4;
/// Share of changes that take an edge that is there, and remove it. The others take any two counters, and remove their edge only if it is
/// there by chance. So many edges arise, and counts that come to a total by several ways.
const REMOVED_SHARE: f64 = 0.3;
/// A batch is begun so often, as the one before is answered.
const CHANGE_EVERY: Duration = Duration::from_millis(200);
/// A batch that was not answered is asked for again after this.
const AGAIN_AFTER: Duration = Duration::from_millis(100);

/// A vertex's place in the order; 0 is the counter of hits.
pub type Vertex = usize;

/// Of an edge: it is inserted, or else removed; from, to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    pub inserts: bool,
    pub from: Vertex,
    pub to: Vertex,
}

/// Edges that a batch adds, and takes away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub inserted: u64,
    pub removed: u64,
}

/// Edges that a front end changes, as far as it knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edges(BTreeSet<(Vertex, Vertex)>);

impl Edges {
    /// The changes of counts by a batch; each change must change something.
    ///
    /// # Errors
    /// A change changes nothing.
    pub fn take(&mut self, batch: &[Change]) -> Result<Counts, String> {
        let mut counts = Counts::default();
        for &Change { inserts, from, to } in batch {
            let done = if inserts { self.0.insert((from, to)) } else { self.0.remove(&(from, to)) };
            if !done || from >= to {
                return Err(format!("an edge from {from} to {to} cannot be changed so"));
            }
            *(if inserts { &mut counts.inserted } else { &mut counts.removed }) += 1;
        }
        Ok(counts)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Changes of some edges: of one that is there, or else of one of all that there may be.
    fn drawn(&self, rng: &mut ChaCha8Rng, front_end: usize, front_ends: usize) -> Vec<Change> {
        let mut edges = self.clone();
        let count = rng.random_range(1..=TOGETHER_MAX);
        let mut change = || {
            let any = edges.0.iter().nth(rng.random_range(0..edges.len().max(1)));
            let (from, to) = match any.filter(|_| rng.random_bool(REMOVED_SHARE)) {
                Some(&edge) => edge,
                None => {
                    let to = vertex(front_end, rng.random_range(0..KEYS_WITH_EDGES), front_ends);
                    (rng.random_range(0..to), to)
                }
            };
            let change = Change { inserts: !edges.0.contains(&(from, to)), from, to };
            edges.take(&[change]).expect("it is there, or it is not");
            change
        };
        (0..count).map(|_| change()).collect()
    }
}

fn vertex(front_end: usize, number: usize, front_ends: usize) -> Vertex {
    1 + number * front_ends + front_end
}

fn counter(vertex: Vertex, front_ends: usize) -> CounterName {
    match vertex.checked_sub(1) {
        None => hits(),
        Some(place) => key(place % front_ends, place / front_ends),
    }
}

/// The task that changes edges for a front end.
pub struct Changer {
    pub client: Client,
    pub log: Log,
    pub rng: ChaCha8Rng,
    pub front_end: usize,
    pub front_ends: usize,
}

impl Changer {
    /// Goes on until it is told to stop or its log takes no more, and until the last batch is answered.
    ///
    /// # Errors
    /// A batch was refused.
    pub async fn run(mut self, mut stopped: watch::Receiver<bool>) -> Result<(), String> {
        let mut ticks = interval(CHANGE_EVERY);
        let mut edges = Edges::default();
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for batch in 1.. {
            tokio::select! {
                _ = ticks.tick() => {}
                _ = stopped.wait_for(|stopped| *stopped) => break,
            }
            let changes = edges.drawn(&mut self.rng, self.front_end, self.front_ends);
            if !self.log.write(Entry::Edges { batch, changes: changes.clone() }) {
                break;
            }
            let EdgesMade { inserted, removed, .. } = self.changed(&changes).await?;
            edges.take(&changes)?;
            self.log.write(Entry::EdgesMade { batch, counts: Counts { inserted, removed } });
        }
        Ok(())
    }

    /// Asks until it is known what came of it.
    async fn changed(&self, batch: &[Change]) -> Result<EdgesMade, String> {
        let name = |vertex| counter(vertex, self.front_ends);
        let changes = batch.iter().fold(EdgeChanges::new().allow_unknown(), |changes, change| {
            let from = name(change.from);
            let to = name(change.to);
            if change.inserts { changes.insert(&from, &to) } else { changes.remove(&from, &to) }
        });
        loop {
            match self.client.change_edges(changes.clone()).await {
                Ok(made) => return Ok(made),
                Err(
                    ChangeError::Unknown(_) | ChangeError::Timeout { .. } | ChangeError::Contended | ChangeError::Busy,
                ) => sleep(AGAIN_AFTER).await,
                Err(error) => return Err(format!("{batch:?}: {error}")),
            }
        }
    }
}

/// A counter that may have edges.
#[derive(Clone, Debug)]
pub struct WithEdges {
    /// The required total: each counter from which it can be reached once, and itself.
    pub total: Expected,
    /// From which edges lead to it.
    pub parents: BTreeSet<CounterName>,
    /// There is a counter from which it can be reached by way of several of these.
    pub reached_twice: bool,
}

/// All of them.
pub fn totals(account: &Account, expected: &[Expected]) -> Vec<WithEdges> {
    let front_ends = account.0.len();
    let edges: BTreeSet<(Vertex, Vertex)> = account.0.iter().flat_map(|of| &of.edges.0).copied().collect();
    let own: BTreeMap<&CounterName, (u64, u64)> =
        expected.iter().map(|of| (&of.counter, (of.least, of.most))).collect();
    let mut sources: Vec<BTreeSet<Vertex>> = Vec::new();
    let mut all = Vec::new();
    for to in 0..=KEYS_WITH_EDGES * front_ends {
        let parents = edges.iter().filter(|edge| edge.1 == to).map(|edge| edge.0);
        let ways: Vec<Vertex> = parents.clone().flat_map(|parent| sources[parent].clone()).collect();
        let mut of = BTreeSet::from_iter(ways.iter().copied());
        let reached_twice = of.len() < ways.len();
        of.insert(to);
        let sums = of.iter().filter_map(|&source| own.get(&counter(source, front_ends)));
        let (least, most) = sums.fold((0, 0), |(least, most), own| (least + own.0, most + own.1));
        let parents = parents.map(|parent| counter(parent, front_ends)).collect();
        let total = Expected { counter: counter(to, front_ends), least, most };
        all.push(WithEdges { total, parents, reached_twice });
        sources.push(of);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::account::tests::account;
    use super::super::verdict;
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn batches_change_something_and_lead_onwards() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let mut edges = Edges::default();
        let mut counts = (0, 0);
        for _ in 0..500 {
            let batch = edges.drawn(&mut rng, 1, 3);
            assert!(batch.iter().all(|change| change.from < change.to && (change.to - 1) % 3 == 1), "{batch:?}");
            let Counts { inserted, removed } = edges.take(&batch).unwrap();
            counts = (counts.0 + inserted, counts.1 + removed);
        }
        assert_eq!(counts.0 - counts.1, edges.len() as u64);
        assert!(counts.1 > 200 && edges.len() > 20, "{counts:?}");
        assert!(edges.take(&[Change { inserts: true, from: 2, to: 2 }]).is_err());
    }

    #[test]
    fn a_total_has_each_counter_once_whatever_the_number_of_paths() {
        // Of two front ends: hits 0; key-0-0 1, key-1-0 2, key-0-1 3, key-1-1 4.
        let logs = [
            "asked 2\ncounted 1 2\nadded 1 0:10 1:100\nsettled 1\nedges 1 +0:1 +1:3 +0:3\nedges-made 1 3 0\n",
            "added 1 0:1000\nsettled 1\nedges 1 +1:2 +2:4 +1:4\nedges-made 1 3 0\nedges 2 -1:4\nedges-made 2 0 1\n",
        ];
        let account = account(&logs);
        let all = totals(&account, &verdict::expected(&account));
        let sums: Vec<(u64, u64)> = all.iter().map(|of| (of.total.least, of.total.most)).collect();
        assert_eq!(sums[..5], [(2, 2), (12, 12), (1_012, 1_012), (112, 112), (1_012, 1_012)]);
        assert!(sums[5..].iter().all(|sum| *sum == (0, 0)) && sums.len() == 1 + 2 * KEYS_WITH_EDGES);
        assert_eq!(all[4].parents, BTreeSet::from([key(1, 0)]), "the other edge was removed");
        assert_eq!(all[4].total.counter, key(1, 1));
        let twice: Vec<Vertex> = (0..all.len()).filter(|&vertex| all[vertex].reached_twice).collect();
        assert_eq!(twice, [3], "from hits and from key-0-0");
    }
}
