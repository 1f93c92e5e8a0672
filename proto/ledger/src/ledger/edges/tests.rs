//! The ledger's promises about edges, and all of them against a naive model.

use super::*;
use proptest::prelude::*;
use proptest::sample::Index;

type Change = EdgeChange<CounterName>;

/// Namespaces "a" and "b"; counts of "a" may flow to "b".
const KEYS: u8 = 5;

fn counter(namespace: &str, key: u8) -> CounterName {
    CounterName::new(namespace, &[b'0' + key]).unwrap()
}

fn a(key: u8) -> CounterName {
    counter("a", key)
}

fn insert(from: CounterName, to: CounterName) -> Change {
    EdgeChange::Insert(Edge { from, to })
}

fn remove(from: CounterName, to: CounterName) -> Change {
    EdgeChange::Remove(Edge { from, to })
}

struct World(Ledger, u64);

fn by(id: u64) -> EdgeAuthor<'static> {
    EdgeAuthor { at: WallMs(id), by: "who", id }
}

impl World {
    fn new() -> World {
        let mut world = World(Ledger::default(), 0);
        for name in ["a", "b"] {
            world.apply(&LedgerCmd::Namespace(name.into()));
        }
        let allowing = world.0.allowing_edges("a", "b").unwrap().unwrap();
        world.apply(&allowing);
        world.0.take_changes();
        world
    }

    fn apply(&mut self, cmd: &LedgerCmd) {
        self.1 += 1;
        self.0.apply(LogIndex(self.1), cmd);
        self.0.check_invariants();
    }

    fn ask(&self, changes: &[Change]) -> Result<Option<LedgerCmd>, EdgesError> {
        self.0.edges(changes.to_vec(), by(self.1), false)
    }

    fn change(&mut self, changes: &[Change]) {
        let cmd = self.ask(changes).unwrap().unwrap();
        self.apply(&cmd);
    }

    /// Asked and applied, as a proposer that did not ask might: both refuse, and no edge is changed.
    fn refused(&mut self, changes: &[Change]) -> EdgesError {
        let stands = |world: &World| {
            let graph = world.0.graph();
            (world.edges(), graph.vertices(), graph.index(), graph.audit().len())
        };
        let before = stands(self);
        let revision = self.0.graph().revision();
        let id = self.1;
        let error = self.ask(changes).unwrap_err();
        self.apply(&LedgerCmd::Edges {
            revision,
            id,
            lenient: false,
            changes: changes.to_vec(),
            at: WallMs(0),
            by: String::new(),
        });
        let fate = if changes.is_empty() { EdgesFate::Open } else { EdgesFate::Refused };
        assert_eq!((stands(self), self.0.graph().fate(revision, id)), (before, fate));
        error
    }

    fn edges(&self) -> BTreeSet<(CounterName, CounterName)> {
        let graph = self.0.graph();
        graph.dag().edges().map(|edge| (graph.name(edge.from), graph.name(edge.to))).collect()
    }
}

#[test]
fn a_cycle_is_refused_with_the_path_that_it_would_close() {
    let mut world = World::new();
    world.change(&[insert(a(1), a(2)), insert(a(2), a(3))]);
    let error = world.refused(&[insert(a(0), a(1)), insert(a(3), a(4)), insert(a(4), a(0))]);
    let said = "change 2, insert a/4 → a/0: the edge would close a cycle: a/0 → a/1 → a/2 → a/3 → a/4";
    assert_eq!(error.to_string(), said);
    assert_eq!(world.edges().len(), 2);
    assert_eq!(world.0.graph().vertices(), 3, "counters of a refused batch get no numbers");
    // Where an earlier change of the batch opens the cycle, it is none.
    world.change(&[remove(a(2), a(3)), insert(a(3), a(1))]);
    assert_eq!(world.0.graph().parents(&a(1)).collect::<Vec<_>>(), [a(3)]);
    assert_eq!(world.0.graph().children(&a(1)).collect::<Vec<_>>(), [a(2)]);
}

#[test]
fn of_changes_that_are_asked_for_one_by_one_those_that_are_refused_are_left_out() {
    let mut world = World::new();
    world.change(&[insert(a(1), a(2))]);
    let asked = [insert(a(0), a(0)), insert(a(2), a(3)), insert(a(3), a(1)), insert(a(1), a(2)), insert(a(3), a(4))];
    let told =
        |decided: &EdgesDecided| decided.refused.iter().map(|(at, why)| format!("{at}: {why}")).collect::<Vec<_>>();
    let decided = world.0.edges_each(&asked, by(0), true).unwrap();
    let to_itself = "0: an edge cannot lead from a counter to itself";
    let cycle = "2: the edge would close a cycle: a/1 → a/2 → a/3";
    assert_eq!(told(&decided), [to_itself, cycle]);
    let strict = world.0.edges_each(&asked, by(0), false).unwrap();
    assert_eq!(told(&strict), [to_itself, cycle, "3: the edge exists already"]);
    world.apply(&decided.cmd.unwrap());
    assert_eq!((world.edges().len(), world.0.graph().vertices()), (3, 4), "what is refused gets no number");
}

/// Changes of several data centres are decided on one graph, and come one after the other.
#[test]
fn changes_that_come_together_are_all_carried_out_unless_they_are_of_the_same_edges() {
    let mut world = World::new();
    let decided = |world: &World, id, changes| world.0.edges(vec![changes], by(id), false).unwrap().unwrap();
    let all = [insert(a(1), a(2)), insert(a(2), a(3)), insert(a(2), a(1)), insert(a(1), a(2))];
    let all: Vec<LedgerCmd> = (10..).zip(all).map(|(id, change)| decided(&world, id, change)).collect();
    all.iter().for_each(|cmd| world.apply(cmd));
    let fates = |world: &World| [10, 11, 12, 13, 14].map(|id| world.0.graph().fate(0, id));
    let done = EdgesFate::CarriedOut(EdgesCount { inserted: 1, removed: 0 });
    let refused = EdgesFate::Refused;
    assert_eq!(fates(&world), [done, done, refused, refused, EdgesFate::Open]);
    assert_eq!(world.edges(), BTreeSet::from([(a(1), a(2)), (a(2), a(3))]));
    // A refused change is not carried out later either, and a change that was carried out not twice.
    world.change(&[remove(a(1), a(2))]);
    all.iter().for_each(|cmd| world.apply(cmd));
    assert_eq!(world.edges(), BTreeSet::from([(a(2), a(3))]));
    assert_eq!((world.0.graph().revision(), world.0.graph().index()), (5, 3));
    let audit: Vec<_> = world.0.graph().audit().map(|batch| (batch.revision, batch.entry.0)).collect();
    assert_eq!(audit, [(0, 4), (1, 5), (4, 8)]);
}

#[test]
fn a_command_that_was_decided_on_a_graph_of_long_ago_is_not_carried_out() {
    const OLD: u64 = u64::MAX;
    const FORGOTTEN: u64 = u64::MAX - 1;
    let mut world = World::new();
    let old = world.0.edges(vec![insert(a(5), a(6))], by(OLD), false).unwrap().unwrap();
    let forgotten = world.0.edges(vec![insert(a(1), a(2))], by(FORGOTTEN), false).unwrap().unwrap();
    world.apply(&forgotten);
    let done = EdgesFate::CarriedOut(EdgesCount { inserted: 1, removed: 0 });
    let fates = |ledger: &Ledger| [OLD, FORGOTTEN].map(|id| ledger.graph().fate(0, id));
    for at in 1..EDGE_COMMANDS_REMEMBERED {
        assert_eq!(fates(&world.0), [EdgesFate::Open, done]);
        let change = if at % 2 == 1 { remove(a(1), a(2)) } else { insert(a(1), a(2)) };
        let cmd = world.0.edges(vec![change], by(at as u64 + (1 << 40)), false).unwrap().unwrap();
        world.0.apply(LogIndex(at as u64 + 10), &cmd);
    }
    world.0.check_invariants();
    world.0.take_changes();
    assert_eq!(fates(&world.0), [EdgesFate::Outdated, done]);
    let edges = world.edges();
    world.apply(&old);
    assert_eq!((fates(&world.0), world.edges()), ([EdgesFate::Outdated, done], edges));
    world.change(&[insert(a(3), a(4))]);
    assert_eq!((fates(&world.0), world.0.graph().carried_out(FORGOTTEN)), ([EdgesFate::Outdated; 2], None));
    let edges = world.edges();
    world.apply(&old);
    world.apply(&forgotten);
    // No command is decided on a future graph.
    let LedgerCmd::Edges { lenient, changes, at, by, .. } = old else { panic!("{old:?}") };
    let revision = world.0.graph().revision() + 1;
    let id = u64::MAX - 2;
    world.apply(&LedgerCmd::Edges { revision, id, lenient, changes, at, by });
    assert_eq!(world.edges(), edges);
}

#[test]
fn edges_of_counters_of_which_nothing_was_counted_are_refused_unless_they_are_allowed() {
    let mut world = World::new();
    world.change(&[insert(a(1), a(2))]);
    let is_known = |counter: &CounterName| *counter != a(7) && *counter != a(8);
    let changes = vec![insert(a(3), a(7)), insert(a(2), a(1)), remove(a(8), a(7)), insert(a(2), a(3))];
    let decide = |asked: &EdgesAsked| world.0.edges_asked(asked, WallMs(0), "who", is_known);
    let asked = EdgesAsked { id: 9, changes: changes.clone(), lenient: true, each: true, allow_unknown: false };
    let told = |decided: &EdgesDecided| decided.refused.iter().map(|(at, why)| (*at, why.clone())).collect::<Vec<_>>();
    let cycle = EdgeFault::Cycle { path: vec![a(1), a(2)], left_out: 0 };
    let decided = decide(&asked).unwrap();
    assert_eq!(told(&decided), [(0, EdgeFault::UnknownCounter(a(7))), (1, cycle.clone())]);
    let Some(LedgerCmd::Edges { changes: left, .. }) = decided.cmd else { panic!("{:?}", decided.cmd) };
    assert_eq!(left, [remove(a(8), a(7)), insert(a(2), a(3))]);
    let known: Vec<&CounterName> = asked.to_be_known().collect();
    assert_eq!(known, [&a(3), &a(7), &a(2), &a(1), &a(2), &a(3)]);
    let all = EdgesAsked { allow_unknown: true, ..asked.clone() };
    assert_eq!((told(&decide(&all).unwrap()), all.to_be_known().count()), (vec![(1, cycle)], 0));
    let together = EdgesAsked { each: false, ..asked };
    let error = decide(&together).unwrap_err();
    let said = "change 0, insert a/3 → a/7: counter a/7 has no increments: check its name";
    assert_eq!(error.to_string(), said);
    let only = EdgesAsked { changes: changes[3..].to_vec(), ..together };
    assert!(decide(&only).unwrap().cmd.is_some());
}

#[test]
fn a_long_path_is_cut_in_its_middle() {
    let mut world = World::new();
    let name = |number: usize| CounterName::new("a", format!("{number:03}").as_bytes()).unwrap();
    let chain: Vec<Change> = (0..99).map(|number| insert(name(number), name(number + 1))).collect();
    world.change(&chain);
    let error = world.refused(&[insert(name(99), name(0))]);
    let EdgesError::Change { position: 0, fault, .. } = &error else { panic!("{error}") };
    let EdgeFault::Cycle { path, left_out } = fault.as_ref() else { panic!("{error}") };
    assert_eq!((path.len(), *left_out), (EDGE_PATH_NAMES_MAX, 100 - EDGE_PATH_NAMES_MAX));
    assert!(error.to_string().contains("a/031 → … 36 more … → a/068"), "{error}");
}

#[test]
fn bad_changes_are_refused_by_position_name_and_reason() {
    let mut world = World::new();
    world.change(&[insert(a(1), a(2)), insert(a(1), counter("b", 1))]);
    let told = |world: &mut World, change| world.refused(&[insert(a(3), a(2)), change]).to_string();
    for (change, said) in [
        (insert(a(1), a(1)), "change 1, insert a/1 → a/1: an edge cannot lead from a counter to itself"),
        (insert(a(1), a(2)), "change 1, insert a/1 → a/2: the edge exists already"),
        (insert(a(3), a(2)), "change 1, insert a/3 → a/2: the edge exists already"),
        (remove(a(2), a(1)), "change 1, remove a/2 → a/1: the edge does not exist"),
        (remove(a(4), a(1)), "change 1, remove a/4 → a/1: the edge does not exist"),
        (insert(a(1), counter("c", 1)), "change 1, insert a/1 → c/1: unknown namespace \"c\""),
        (
            insert(counter("b", 1), a(4)),
            "change 1, insert b/1 → a/4: counts of namespace \"b\" may not flow to namespace \"a\": permit it first",
        ),
    ] {
        assert_eq!(told(&mut world, change), said);
    }
    assert_eq!(world.ask(&[]).unwrap_err().to_string(), "0 changes of edges at once: 1 to 1024 allowed");
    let many = vec![insert(a(3), a(4)); EDGE_CHANGES_PER_COMMAND_MAX + 1];
    assert!(matches!(world.ask(&many), Err(EdgesError::Count(1_025))));
    let author = "x".repeat(EDGE_AUTHOR_BYTES_MAX + 1);
    let error = world.0.edges(vec![insert(a(3), a(4))], EdgeAuthor { by: &author, ..by(0) }, false).unwrap_err();
    assert_eq!(error.to_string(), "author of 161 bytes: at most 160 allowed");
    assert_eq!(world.0.allowing_edges("a", "c"), Err(AllowError::UnknownNamespace("c".into())));
    assert_eq!((world.0.allowing_edges("a", "b"), world.0.allowing_edges("b", "b")), (Ok(None), Ok(None)));
}

#[test]
fn late_copies_change_nothing_and_a_load_may_be_said_again() {
    let mut world = World::new();
    let load = vec![insert(a(1), a(2)), insert(a(2), a(3)), insert(a(1), a(2))];
    let lenient = |world: &World, id| world.0.edges(load.clone(), by(id), true).unwrap().unwrap();
    let first = lenient(&world, 7);
    world.apply(&first);
    assert_eq!((world.edges().len(), world.0.graph().index()), (2, 2), "the copy is left out");
    let again = lenient(&world, 70);
    world.apply(&again);
    assert_eq!(world.0.graph().fate(0, 70), EdgesFate::CarriedOut(EdgesCount::default()), "nothing is left to do");
    world.change(&[remove(a(1), a(2))]);
    world.apply(&first);
    world.apply(&again);
    assert_eq!(world.edges(), BTreeSet::from([(a(2), a(3))]), "once is enough");
    assert_eq!((world.0.graph().revision(), world.0.graph().index()), (3, 3));
    assert!(world.0.edges(vec![insert(a(3), a(2))], by(0), true).is_err(), "a cycle is one all the same");
    let audit: Vec<_> = world.0.graph().audit().collect();
    assert_eq!((audit[0].revision, audit[0].at, audit[0].by.as_str()), (0, WallMs(7), "who"));
    assert_eq!((audit[1].revision, audit[1].entry, audit[1].changes.len()), (2, LogIndex(6), 1));
}

/// The proposer may not know yet of the changes of others.
#[test]
fn what_is_left_out_is_said_by_the_graph_that_a_change_meets() {
    let mut world = World::new();
    let moved = vec![remove(a(1), a(2)), insert(a(1), a(3))];
    let moved = world.0.edges(moved, by(7), true).unwrap().unwrap();
    world.change(&[insert(a(1), a(2))]);
    world.apply(&moved);
    assert_eq!(world.edges(), BTreeSet::from([(a(1), a(3))]));
    assert_eq!(world.0.graph().fate(0, 7), EdgesFate::CarriedOut(EdgesCount { inserted: 1, removed: 1 }));
}

/// An answer was lost, and it is asked for again where the first one is known, or is not; one of them comes late.
#[test]
fn what_is_asked_for_twice_under_one_number_is_carried_out_once() {
    let changes = vec![insert(a(1), a(2)), insert(a(2), a(3))];
    let asked = EdgesAsked { id: u64::MAX, changes, allow_unknown: true, ..EdgesAsked::default() };
    let decide = |world: &World| world.0.edges_asked(&asked, WallMs(world.1), "who", |_| true).unwrap();
    let mut world = World::new();
    let first = decide(&world).cmd.unwrap();
    world.change(&[insert(a(5), a(6))]);
    let second = decide(&world).cmd.unwrap();
    let made = EdgesCount { inserted: 2, removed: 0 };
    for (early, late) in [(&first, &second), (&second, &first)] {
        let mut world = World(world.0.clone(), world.1);
        world.apply(early);
        assert_eq!([0, 1].map(|revision| world.0.graph().fate(revision, asked.id)), [EdgesFate::CarriedOut(made); 2]);
        world.change(&[remove(a(1), a(2))]);
        world.apply(late);
        assert_eq!(world.edges(), BTreeSet::from([(a(2), a(3)), (a(5), a(6))]));
        assert_eq!(decide(&world), EdgesDecided { before: Some(made), ..EdgesDecided::default() });
        let LedgerCmd::Edges { at, .. } = early else { panic!("{early:?}") };
        assert_eq!(world.0.graph().carried_out(asked.id), Some((made, *at)));
    }
}

#[test]
fn of_many_changes_and_of_another_state_only_the_graph_is_told() {
    let mut world = World::new();
    world.change(&[insert(a(1), a(2))]);
    let edge = Edge { from: Vertex(0), to: Vertex(1) };
    let told = world.0.take_changes().edges;
    assert_eq!(told, EdgesChanged::Each { since: 0, changes: vec![EdgeChange::Insert(edge)] });
    world.change(&[remove(a(1), a(2))]);
    let told = world.0.take_changes().edges;
    assert_eq!(told, EdgesChanged::Each { since: 1, changes: vec![EdgeChange::Remove(edge)] });
    assert!(world.0.take_changes().edges.is_empty());
    let all: Vec<Change> = (0..512).flat_map(|_| [insert(a(1), a(2)), remove(a(1), a(2))]).collect();
    for _ in 0..EDGE_CHANGES_TOLD_MAX / 1_024 {
        world.change(&all);
    }
    world.change(&[insert(a(1), a(2))]);
    let index = 2 + EDGE_CHANGES_TOLD_MAX as u64 + 1;
    assert_eq!(world.0.take_changes().edges, EdgesChanged::Replaced { index });
    assert!(world.0.graph().audit().map(|batch| batch.changes.len()).sum::<usize>() <= EDGE_AUDIT_CHANGES_MAX);
    let mut other = Ledger::default();
    other.replace(world.0.clone());
    assert_eq!(other.take_changes().edges, EdgesChanged::Replaced { index });
}

#[derive(Clone, Debug)]
enum Step {
    /// Inserts, or removes the edge at such a place; whether it is lenient, and comes at once.
    Batch(Vec<(bool, u8, u8, Index)>, bool, bool),
    /// A command that has not come arrives.
    Come(Index),
    /// A command that has come arrives once more.
    Copy(Index),
    Restore,
}

fn step() -> impl Strategy<Value = Step> {
    let change = (any::<bool>(), 0..2 * KEYS, 0..2 * KEYS, any::<Index>());
    prop_oneof![
        8 => (proptest::collection::vec(change, 1..4), any::<bool>(), any::<bool>()).prop_map(|(changes, lenient, now)| Step::Batch(changes, lenient, now)),
        4 => any::<Index>().prop_map(Step::Come),
        2 => any::<Index>().prop_map(Step::Copy),
        1 => Just(Step::Restore),
    ]
}

type Naive = BTreeSet<(CounterName, CounterName)>;

fn reaches(edges: &Naive, from: &CounterName, to: &CounterName) -> bool {
    from == to || edges.iter().any(|(at, next)| at == from && reaches(edges, next, to))
}

fn naively(mut edges: Naive, changes: &[Change], lenient: bool) -> Option<(Naive, EdgesCount)> {
    let mut made = EdgesCount::default();
    for change in changes {
        let Edge { from, to } = change.edge().clone();
        let across = from.namespace() == "b" && to.namespace() == "a";
        let is_there = edges.contains(&(from.clone(), to.clone()));
        match change {
            EdgeChange::Insert(_) if is_there && lenient => {}
            EdgeChange::Remove(_) if !is_there && lenient => {}
            EdgeChange::Insert(_) if !is_there && !across && !reaches(&edges, &to, &from) => {
                edges.insert((from, to));
                made.inserted += 1;
            }
            EdgeChange::Remove(_) if is_there => {
                edges.remove(&(from, to));
                made.removed += 1;
            }
            _ => return None,
        }
    }
    Some((edges, made))
}

fn named(number: u8) -> CounterName {
    if number < KEYS { a(number) } else { counter("b", number - KEYS) }
}

/// Nothing writes one; a disk may hold anything.
#[test]
fn a_snapshot_with_a_cycle_is_refused() {
    let mut world = World::new();
    world.change(&[insert(a(1), a(2)), insert(a(2), a(3))]);
    let vertex = |number| world.0.graph().vertex(&a(number)).unwrap();
    let closing = Edge { from: vertex(3), to: vertex(1) };
    world.0.graph.dag.insert_checked(closing);
    assert!(postcard::from_bytes::<Ledger>(&postcard::to_allocvec(&world.0).unwrap()).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn edges_are_those_of_a_naive_model_and_a_snapshot_is_the_state(steps in proptest::collection::vec(step(), 1..60)) {
        let mut world = World::new();
        let mut model = Naive::new();
        let mut told = Dag::default();
        let mut on_their_way: Vec<LedgerCmd> = Vec::new();
        let mut come: Vec<LedgerCmd> = Vec::new();
        for (id, step) in (1..).zip(steps) {
            let mut next = None;
            match step {
                Step::Batch(wanted, lenient, now) => {
                    let change = |(inserts, from, to, index): (bool, u8, u8, Index)| {
                        if inserts || model.is_empty() {
                            return insert(named(from), named(to));
                        }
                        let (from, to) = model.iter().nth(index.index(model.len())).unwrap().clone();
                        remove(from, to)
                    };
                    let changes: Vec<Change> = wanted.into_iter().map(change).collect();
                    let asked = world.0.edges(changes.clone(), by(id), lenient);
                    prop_assert_eq!(asked.is_ok(), naively(model.clone(), &changes, lenient).is_some(), "{:?}", asked);
                    let revision = world.0.graph().revision();
                    let at = WallMs(id);
                    let by = "who".to_owned();
                    let cmd = LedgerCmd::Edges { revision, id, lenient, changes, at, by };
                    if let Ok(asked) = asked {
                        prop_assert_eq!(asked.as_ref(), Some(&cmd));
                    }
                    on_their_way.push(cmd);
                    next = now.then(|| on_their_way.pop()).flatten();
                }
                Step::Come(index) if !on_their_way.is_empty() => {
                    next = Some(on_their_way.remove(index.index(on_their_way.len())));
                }
                Step::Copy(index) if !come.is_empty() => world.apply(&come[index.index(come.len())]),
                Step::Come(_) | Step::Copy(_) => {}
                Step::Restore => {
                    let bytes = postcard::to_allocvec(&world.0).unwrap();
                    let restored: Ledger = postcard::from_bytes(&bytes).unwrap();
                    prop_assert_eq!(postcard::to_allocvec(&restored).unwrap(), bytes);
                    prop_assert_eq!(restored.graph().dag(), world.0.graph().dag());
                    let changes = std::mem::take(&mut world.0.changes);
                    world.0 = restored;
                    world.0.changes = changes;
                }
            }
            if let Some(cmd) = next {
                let LedgerCmd::Edges { revision, id, lenient, changes, .. } = &cmd else { panic!("{cmd:?}") };
                let after = naively(model.clone(), changes, *lenient);
                let fate = after.as_ref().map_or(EdgesFate::Refused, |(_, made)| EdgesFate::CarriedOut(*made));
                world.apply(&cmd);
                prop_assert_eq!(world.0.graph().fate(*revision, *id), fate);
                model = after.map_or(model, |(edges, _)| edges);
                come.push(cmd);
            }
            prop_assert_eq!(world.edges(), model.clone());
            // The reported changes, carried out in their order, give the graph.
            let EdgesChanged::Each { since, changes } = world.0.take_changes().edges else { panic!("few changes") };
            prop_assert!(changes.is_empty() || since + changes.len() as u64 == world.0.graph().index());
            for change in changes {
                match change {
                    EdgeChange::Insert(edge) => prop_assert_eq!(told.insert(edge), Ok(())),
                    EdgeChange::Remove(edge) => prop_assert_eq!(told.remove(edge), Ok(())),
                }
            }
            prop_assert_eq!(&told, world.0.graph().dag());
        }
    }

    #[test]
    fn bytes_that_hold_no_graph_are_refused_and_never_panic(cut in any::<Index>(), at in any::<Index>(), value: u8) {
        let mut world = World::new();
        world.change(&[insert(a(1), a(2)), insert(a(1), a(3)), insert(a(2), a(3))]);
        let mut bytes = postcard::to_allocvec(world.0.graph()).unwrap();
        prop_assert!(postcard::from_bytes::<Graph>(&bytes[..cut.index(bytes.len())]).is_err());
        let at = at.index(bytes.len());
        bytes[at] = value;
        if let Ok(graph) = postcard::from_bytes::<Graph>(&bytes) {
            prop_assert!(graph.dag().edges().all(|edge| edge.from.0.max(edge.to.0) < graph.vertices()));
        }
    }
}
