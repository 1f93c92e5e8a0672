//! Hierarchies against brute force: totals are equal to a recount under any order of increments, edge changes, batches and
//! restarts.

use proptest::prelude::*;
use proptest::sample::Index;
use std::collections::BTreeSet;
use tidemark_proto::graph::*;
use tidemark_proto::limits::EDGE_CHANGES_QUEUED_MAX;

const VERTICES: u32 = 9;
/// Buckets of a counter: each has to come out right.
const BUCKETS: usize = 2;

type Counts = Vec<[u64; BUCKETS]>;

fn edge(from: u32, to: u32) -> Edge {
    Edge { from: Vertex(from), to: Vertex(to) }
}

fn pair(from: u32, to: u32) -> Pair {
    Pair { from: Vertex(from), to: Vertex(to) }
}

/// Every pair of vertices with a path between them.
fn closure(edges: impl IntoIterator<Item = Edge>) -> BTreeSet<Pair> {
    let edges: Vec<Edge> = edges.into_iter().collect();
    let mut pairs: BTreeSet<Pair> = edges.iter().map(|edge| Pair { from: edge.from, to: edge.to }).collect();
    loop {
        let further = |pair: &Pair| {
            let from = pair.from;
            let to = pair.to;
            edges.iter().filter(move |edge| edge.from == to).map(move |edge| Pair { from, to: edge.to })
        };
        let before = pairs.len();
        pairs.extend(pairs.iter().flat_map(further).collect::<Vec<_>>());
        if pairs.len() == before {
            return pairs;
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u32, u32),
    Remove(Index),
    Increment { vertex: u32, bucket: usize, delta: u64 },
    Work { budget: usize },
    Persist,
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let vertex = || 0..VERTICES;
    let step = prop_oneof![
        6 => (vertex(), vertex()).prop_map(|(from, to)| Step::Insert(from, to)),
        3 => any::<Index>().prop_map(Step::Remove),
        6 => (vertex(), 0..BUCKETS, 1u64..100).prop_map(|(vertex, bucket, delta)| Step::Increment { vertex, bucket, delta }),
        9 => (1usize..8).prop_map(|budget| Step::Work { budget }),
        2 => Just(Step::Persist),
        1 => Just(Step::Restart),
    ];
    proptest::collection::vec(step, 1..150)
}

/// The content of one transaction of a view.
#[derive(Clone)]
struct Disk {
    edges: Vec<Edge>,
    progress: Progress,
    direct: Counts,
    totals: Counts,
}

/// One view, and the ledger that orders the changes.
struct World {
    ledger: Dag,
    accepted: Vec<EdgeChange>,
    /// The counts of valves: told again after a restart.
    counted: Counts,
    flow: Flow,
    direct: Counts,
    totals: Counts,
    /// The pairs that flow at present, updated from batches.
    flowing: BTreeSet<Pair>,
    disk: Disk,
}

impl World {
    fn new() -> World {
        let none: Counts = vec![[0; BUCKETS]; VERTICES as usize];
        let disk =
            Disk { edges: Vec::new(), progress: Progress::default(), direct: none.clone(), totals: none.clone() };
        World {
            ledger: Dag::default(),
            accepted: Vec::new(),
            counted: none.clone(),
            flow: Flow::default(),
            direct: none.clone(),
            totals: none,
            flowing: BTreeSet::new(),
            disk,
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Insert(from, to) => self.insert(edge(from, to)),
            Step::Remove(_) if self.ledger.is_empty() => {}
            Step::Remove(index) => {
                let edge = self.ledger.edges().nth(index.index(self.ledger.len())).unwrap();
                self.ledger.remove(edge).unwrap();
                assert_eq!(self.ledger.remove(edge), Err(EdgeRefused::Absent));
                self.accept(EdgeChange::Remove(edge));
            }
            Step::Increment { vertex, bucket, delta } => {
                self.counted[vertex as usize][bucket] += delta;
                self.hear(vertex);
            }
            Step::Work { budget } => {
                self.work(budget);
            }
            Step::Persist => {
                let edges = self.flow.settled_edges().collect();
                let direct = self.direct.clone();
                let totals = self.totals.clone();
                self.disk = Disk { edges, progress: self.flow.progress(), direct, totals };
            }
            Step::Restart => self.restart(),
        }
    }

    fn insert(&mut self, edge: Edge) {
        let pairs = closure(self.ledger.edges());
        let closes = pairs.contains(&Pair { from: edge.to, to: edge.from });
        match self.ledger.insert(edge) {
            Ok(()) => {
                assert!(!closes && edge.from != edge.to);
                self.accept(EdgeChange::Insert(edge));
            }
            Err(EdgeRefused::Cycle { path }) => {
                assert!(closes);
                assert_eq!((path.first(), path.last()), (Some(&edge.to), Some(&edge.from)));
                assert!(path.windows(2).all(|step| self.ledger.contains(Edge { from: step[0], to: step[1] })));
            }
            Err(EdgeRefused::ToItself) => assert_eq!(edge.from, edge.to),
            Err(EdgeRefused::Duplicate) => assert!(self.ledger.contains(edge)),
            Err(refused) => panic!("{refused}"),
        }
    }

    fn accept(&mut self, change: EdgeChange) {
        self.accepted.push(change);
        self.flow.push(change).unwrap();
    }

    /// A direct count is raised to the valves' count, and as much is added wherever it flows.
    fn hear(&mut self, vertex: u32) {
        let at = vertex as usize;
        let mut scratch = Scratch::default();
        let descendants = self.flow.descendants(Vertex(vertex), &mut scratch).to_vec();
        let expected: Vec<Vertex> =
            self.flowing.iter().filter(|pair| pair.from.0 == vertex).map(|pair| pair.to).collect();
        assert_eq!(descendants.iter().copied().collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>(), expected);
        assert_eq!(descendants.len(), expected.len(), "each once");
        for bucket in 0..BUCKETS {
            let delta = self.counted[at][bucket] - self.direct[at][bucket];
            self.direct[at][bucket] += delta;
            self.totals[at][bucket] += delta;
            descendants.iter().for_each(|to| self.totals[to.0 as usize][bucket] += delta);
        }
    }

    /// Returns whether any work was left.
    fn work(&mut self, budget: usize) -> bool {
        let Some(batch) = self.flow.step(budget) else { return false };
        assert!(batch.pairs.len() <= budget);
        for &pair in &batch.pairs {
            let from = pair.from.0 as usize;
            let to = pair.to.0 as usize;
            match batch.change {
                EdgeChange::Insert(_) => {
                    assert!(self.flowing.insert(pair), "{pair:?} flowed already");
                    (0..BUCKETS).for_each(|bucket| self.totals[to][bucket] += self.direct[from][bucket]);
                }
                EdgeChange::Remove(_) => {
                    assert!(self.flowing.remove(&pair), "{pair:?} did not flow");
                    (0..BUCKETS).for_each(|bucket| self.totals[to][bucket] -= self.direct[from][bucket]);
                }
            }
        }
        if batch.settled {
            assert_eq!(self.flowing, closure(self.flow.settled_edges()), "after {:?}", batch.change);
        }
        true
    }

    fn restart(&mut self) {
        let mut dag = Dag::default();
        self.disk.edges.iter().for_each(|&edge| dag.insert(edge).unwrap());
        let progress = self.disk.progress;
        let known = self.accepted[progress.settled as usize..].to_vec();
        self.flow = Flow::load(dag, progress, known).unwrap();
        (self.direct, self.totals) = (self.disk.direct.clone(), self.disk.totals.clone());
        // The graph and the cursor alone decide which pairs flow.
        let mut scratch = Scratch::default();
        let to = |from: u32, flow: &Flow, scratch: &mut Scratch| {
            flow.descendants(Vertex(from), scratch).iter().map(|to| pair(from, to.0)).collect::<Vec<_>>()
        };
        self.flowing = (0..VERTICES).flat_map(|from| to(from, &self.flow, &mut scratch)).collect();
        (0..VERTICES).for_each(|vertex| self.hear(vertex));
    }

    fn check(&self) {
        self.flow.check_invariants();
        assert_eq!(self.totals, recount(&self.direct, &self.flowing));
    }
}

fn recount(direct: &Counts, flowing: &BTreeSet<Pair>) -> Counts {
    let mut totals = direct.clone();
    for pair in flowing {
        (0..BUCKETS).for_each(|bucket| totals[pair.to.0 as usize][bucket] += direct[pair.from.0 as usize][bucket]);
    }
    totals
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn totals_equal_a_recount_whatever_is_interleaved(steps in steps()) {
        let mut world = World::new();
        for step in &steps {
            world.step(step);
            world.check();
        }
        while world.work(3) {
            world.check();
        }
        prop_assert_eq!(world.flow.unsettled(), 0);
        prop_assert_eq!(world.flow.progress(), Progress { settled: world.accepted.len() as u64, done: None });
        prop_assert_eq!(&world.direct, &world.counted);
        prop_assert_eq!(&world.totals, &recount(&world.counted, &closure(world.ledger.edges())));
    }

    #[test]
    fn relatives_are_those_of_the_closure(edges in proptest::collection::vec((0..VERTICES, 0..VERTICES), 0..30), of in 0..VERTICES) {
        let mut dag = Dag::default();
        edges.iter().for_each(|&(from, to)| drop(dag.insert(edge(from, to))));
        dag.check_invariants();
        let pairs = closure(dag.edges());
        let mut scratch = Scratch::default();
        let sorted = |found: &[Vertex]| found.iter().copied().collect::<BTreeSet<_>>();
        let down = dag.descendants(Vertex(of), &mut scratch).to_vec();
        let up = dag.ancestors(Vertex(of), &mut scratch).to_vec();
        prop_assert_eq!((sorted(&down).len(), sorted(&up).len()), (down.len(), up.len()), "each once");
        prop_assert_eq!(sorted(&down), pairs.iter().filter(|pair| pair.from.0 == of).map(|pair| pair.to).collect());
        prop_assert_eq!(sorted(&up), pairs.iter().filter(|pair| pair.to.0 == of).map(|pair| pair.from).collect());
    }
}

/// The moves of a change, worked off at once.
fn moved(flow: &mut Flow, change: EdgeChange) -> Vec<Pair> {
    flow.push(change).unwrap();
    let mut pairs = Vec::new();
    while let Some(batch) = flow.step(100) {
        pairs.extend(batch.pairs);
    }
    pairs
}

/// All that a vertex reaches, by a search of its own.
fn reached(edges: &BTreeSet<(u32, u32)>, from: u32) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    let mut open = vec![from];
    while let Some(vertex) = open.pop() {
        let next = edges.range((vertex, 0)..=(vertex, u32::MAX)).map(|&(_, to)| to);
        open.extend(next.filter(|&to| found.insert(to)));
    }
    found
}

/// A few counters with very many neighbours, and others: edges go from lower to higher numbers.
const WIDE: u32 = 400;

fn wide() -> impl Strategy<Value = BTreeSet<(u32, u32)>> {
    let any = (0..WIDE, 0..WIDE).prop_map(|(one, other)| (one.min(other), one.max(other)));
    let from_hub = (prop_oneof![Just(3u32), Just(150)], 0..WIDE).prop_map(|(hub, to)| (hub, hub.max(to)));
    let to_hub = (0..WIDE, prop_oneof![Just(200u32), Just(390)]).prop_map(|(from, hub)| (hub.min(from), hub));
    let edges = prop_oneof![1 => any, 2 => from_hub, 2 => to_hub];
    proptest::collection::btree_set(edges, 1..500)
        .prop_map(|edges| edges.into_iter().filter(|(from, to)| from < to).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Wherever many edges lie, and however long a step is: the moved pairs are those that begin or end to be reached.
    #[test]
    fn pairs_of_a_change_are_what_the_edge_alone_connects(
        edges in wide(),
        picked in any::<Index>(),
        beginning in 0..WIDE - 1,
        length in 1..WIDE,
        budget in 1usize..2_000,
    ) {
        let all: Vec<(u32, u32)> = edges.iter().copied().collect();
        let inserted = (beginning, (beginning + length).min(WIDE - 1));
        let picked = all.get(picked.index(all.len().max(1))).copied();
        let changes = [Some((inserted, true)), picked.map(|edge| (edge, false))];
        for ((from, to), inserts) in changes.into_iter().flatten() {
            let mut flow = flow(&all);
            let mut with = edges.clone();
            let mut without = edges.clone();
            with.insert((from, to));
            without.remove(&(from, to));
            let is_real = inserts != edges.contains(&(from, to));
            let change = if inserts { EdgeChange::Insert(edge(from, to)) } else { EdgeChange::Remove(edge(from, to)) };
            flow.push(change).expect("an empty queue");
            let mut moved = Vec::new();
            loop {
                let batch = flow.step(budget).expect("a change under way");
                moved.extend(batch.pairs.iter().map(|pair| (pair.from.0, pair.to.0)));
                if batch.settled {
                    break;
                }
            }
            let connected = (0..=from).filter(|_| is_real).flat_map(|of| {
                let after = reached(&with, of);
                let before = reached(&without, of);
                after.into_iter().filter(move |to| !before.contains(to)).map(move |to| (of, to))
            });
            prop_assert_eq!(moved, connected.collect::<Vec<_>>());
        }
    }
}

/// Each looked at no more than a few edges, however many neighbours its ends have: else a counter with many costs their square.
#[test]
fn one_more_neighbour_of_a_counter_with_very_many_is_a_small_change() {
    const MANY: u32 = 20_000;
    let top = 0;
    let hub = 1;
    let new = MANY + 2;
    let below = MANY + 3;
    let fan_out: Vec<(u32, u32)> = (2..MANY + 2).map(|child| (hub, child)).chain([(top, hub)]).collect();
    let fan_in: Vec<(u32, u32)> = (2..MANY + 2).map(|parent| (parent, hub)).chain([(hub, below)]).collect();
    let cases = [
        (fan_out, edge(hub, new), vec![pair(top, new), pair(hub, new)]),
        (fan_in, edge(new, hub), vec![pair(new, hub), pair(new, below)]),
    ];
    for (edges, edge, pairs) in cases {
        let mut flow = flow(&edges);
        for change in [EdgeChange::Insert(edge), EdgeChange::Remove(edge)] {
            flow.push(change).unwrap();
            let batch = flow.step(1_000).unwrap();
            assert_eq!((batch.pairs, batch.settled), (pairs.clone(), true), "{change:?} in one step");
        }
    }
}

fn flow(edges: &[(u32, u32)]) -> Flow {
    let mut flow = Flow::default();
    edges.iter().for_each(|&(from, to)| drop(moved(&mut flow, EdgeChange::Insert(edge(from, to)))));
    flow
}

/// 0 → 1, and 2 → 3: joined in the middle, the count of 0 reaches 3 as well.
#[test]
fn a_chain_carries_counts_to_its_end() {
    let mut flow = flow(&[(0, 1), (2, 3)]);
    let joined = [pair(0, 2), pair(0, 3), pair(1, 2), pair(1, 3)];
    assert_eq!(moved(&mut flow, EdgeChange::Insert(edge(1, 2))), joined);
    assert_eq!(moved(&mut flow, EdgeChange::Remove(edge(1, 2))), joined);
}

/// 0 → 1 → 3, and 0 → 2: with 2 → 3 the count of 0 reaches 3 a second time, and is not added again.
#[test]
fn a_diamond_that_is_reached_twice_counts_once() {
    let mut flow = flow(&[(0, 1), (1, 3), (0, 2)]);
    assert_eq!(moved(&mut flow, EdgeChange::Insert(edge(2, 3))), [pair(2, 3)]);
    assert_eq!(flow.descendants(Vertex(0), &mut Scratch::default()).len(), 3);
}

/// One side of the diamond is taken away: the count of 0 still flows over the other one, and stays.
#[test]
fn a_removed_edge_takes_nothing_that_another_path_carries() {
    let mut flow = flow(&[(0, 1), (1, 3), (0, 2), (2, 3)]);
    assert_eq!(moved(&mut flow, EdgeChange::Remove(edge(2, 3))), [pair(2, 3)]);
    assert_eq!(moved(&mut flow, EdgeChange::Remove(edge(1, 3))), [pair(0, 3), pair(1, 3)]);
}

#[test]
fn an_edge_that_would_close_a_cycle_is_refused_with_the_path() {
    let mut dag = Dag::default();
    [(0, 1), (1, 2), (2, 3), (7, 1)].into_iter().for_each(|(from, to)| dag.insert(edge(from, to)).unwrap());
    let before = dag.clone();
    let path = [0, 1, 2, 3].map(Vertex).to_vec();
    assert_eq!(dag.insert(edge(3, 0)), Err(EdgeRefused::Cycle { path }));
    assert_eq!(dag.insert(edge(1, 1)), Err(EdgeRefused::ToItself));
    assert_eq!(dag.insert(edge(0, 1)), Err(EdgeRefused::Duplicate));
    assert_eq!(dag.remove(edge(0, 2)), Err(EdgeRefused::Absent));
    assert_eq!(dag, before);
}

#[test]
fn a_copy_of_a_change_settles_and_moves_nothing() {
    let mut flow = flow(&[(0, 1)]);
    assert_eq!(moved(&mut flow, EdgeChange::Insert(edge(0, 1))), []);
    assert_eq!(moved(&mut flow, EdgeChange::Remove(edge(5, 6))), []);
    assert_eq!(flow.progress().settled, 3);
    assert_eq!(flow.settled_edges().collect::<Vec<_>>(), [edge(0, 1)]);
}

#[test]
fn changes_beyond_the_limit_wait_outside_and_a_cursor_needs_its_change() {
    let mut flow = Flow::default();
    // The first is under way and does not wait.
    (0..=EDGE_CHANGES_QUEUED_MAX as u32).for_each(|to| flow.push(EdgeChange::Insert(edge(0, to + 1))).unwrap());
    let next = EdgeChange::Insert(edge(1, 2));
    assert_eq!(flow.push(next), Err(FlowError::QueueFull));
    while !flow.step(100).is_some_and(|batch| batch.settled) {}
    assert_eq!(flow.push(next), Ok(()));
    let progress = Progress { settled: 4, done: Some(pair(0, 1)) };
    let missing = Flow::load(Dag::default(), progress, []).map(|_| ());
    assert_eq!(missing, Err(FlowError::ChangeMissing(4)));
}

proptest! {
    /// For any edges: the graph made at once is the graph that inserting them one by one makes, or a cycle is refused.
    #[test]
    fn a_graph_made_at_once_is_the_one_made_edge_by_edge(pairs in proptest::collection::btree_set((0..VERTICES, 0..VERTICES), 0..20)) {
        let edges: Vec<_> = pairs.iter().filter(|(from, to)| from != to).map(|&(from, to)| (Vertex(from), Vertex(to))).collect();
        let mut each = Dag::default();
        let inserted = edges.iter().try_for_each(|&(from, to)| each.insert(Edge { from, to }));
        match Dag::from_ascending(VERTICES, edges) {
            Ok(dag) => {
                dag.check_invariants();
                prop_assert_eq!(inserted, Ok(()));
                prop_assert_eq!(&dag, &each);
                let mut scratch = [Scratch::default(), Scratch::default()];
                for of in (0..VERTICES).map(Vertex) {
                    prop_assert!(dag.children(of).eq(each.children(of)) && dag.parents(of).eq(each.parents(of)));
                    let [first, second] = &mut scratch;
                    prop_assert_eq!(dag.descendants(of, first), each.descendants(of, second));
                }
            }
            Err(error) => {
                prop_assert_eq!(error, NoGraph::Cycle);
                prop_assert!(matches!(inserted, Err(EdgeRefused::Cycle { .. })), "{:?}", inserted);
            }
        }
    }

    /// Edges in any order, of any vertices: refused at the first that is out of place.
    #[test]
    fn edges_that_do_not_ascend_are_no_graph(pairs in proptest::collection::vec((0..VERTICES + 1, 0..VERTICES + 1), 0..6)) {
        let is_bad = |at: &usize| {
            let (from, to) = pairs[*at];
            from == to || from.max(to) >= VERTICES || (*at > 0 && pairs[at - 1] >= pairs[*at])
        };
        let bad = (0..pairs.len()).find(is_bad);
        let made = Dag::from_ascending(VERTICES, pairs.iter().map(|&(from, to)| (Vertex(from), Vertex(to))).collect());
        match bad {
            Some(at) => prop_assert_eq!(made, Err(NoGraph::Edge(at))),
            None => prop_assert!(made.is_ok() || made == Err(NoGraph::Cycle)),
        }
    }
}
