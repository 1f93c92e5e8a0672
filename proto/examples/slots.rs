//! The cost of an increment in a view that is cut into 1, 4 and 16 ranges, with edges across them: `cargo run --release -p
//! tidemark-proto --example slots [counters]`.
//!
//! Leaves flow to authors and questions, these to topics; keys are scrambled, so that every total has ancestors in every range.
//! An increment raises a component and a row of two granularities of a leaf drawn at random, as a chunk of a feed would. All
//! views count the same in turns, and are checked against each other. Prints nanoseconds of this thread's CPU for each increment,
//! as JSON.

#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "a measurement, not the core")]

use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeMap;
use tidemark_proto::graph::{Edge, EdgeChange};
use tidemark_proto::ids::{CounterName, DcId, GroupId, Half, LogIndex, ValveId};
use tidemark_proto::ledger::Ledger;
use tidemark_proto::limits::EDGE_CHANGES_PER_COMMAND_MAX;
use tidemark_proto::msg::{LedgerCmd, SeriesTerms};
use tidemark_proto::series::{Granularity, Kept, OutOfRange, Retention, Row, SeriesPolicy, UnixTime};
use tidemark_proto::shards::Ranges;
use tidemark_proto::time::WallMs;
use tidemark_proto::view::View;

const RANGES: [usize; 3] = [1, 4, 16];
const TURNS: usize = 9;
const INCREMENTS: usize = 1_000_000;
/// Increments between two looks at totals: about a chunk of a feed.
const CHUNK: usize = 8_192;
const BEGIN_S: i64 = 1_700_000_000;

/// CPU time of this thread, nanoseconds, from the kernel.
fn cpu_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("the kernel says it");
    stat.split(' ').next().and_then(|ns| ns.parse().ok()).expect("a number first")
}

/// A number that looks like none, each once.
fn scrambled(number: u32) -> u64 {
    u64::from(number).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// A scrambled key; the kind stands behind, so that each kind is in all ranges.
fn name(kind: char, number: u32) -> CounterName {
    CounterName::new("site", format!("{:016x}:{kind}", scrambled(number)).as_bytes()).expect("a name")
}

/// Leaves, and for each the counters to which it flows at once; those flow to topics.
struct Graph {
    leaves: u32,
    questions: u32,
    authors: u32,
    topics: u32,
}

impl Graph {
    fn edges(&self) -> Vec<Edge<CounterName>> {
        let spread = |number: u32, among: u32| (scrambled(number) >> 32) as u32 % among;
        let of_leaves = (0..self.leaves).flat_map(|leaf| {
            // Every tenth flows to two: a walk that is no chain.
            let author = leaf.is_multiple_of(10).then(|| name('u', spread(leaf ^ 1, self.authors)));
            let next = [Some(name('q', spread(leaf, self.questions))), author];
            next.into_iter().flatten().map(move |to| Edge { from: name('a', leaf), to })
        });
        let of_questions = (0..self.questions)
            .map(|number| Edge { from: name('q', number), to: name('t', spread(number ^ 3, self.topics)) });
        of_leaves.chain(of_questions).collect()
    }
}

fn ranges(count: usize) -> Ranges {
    let cut =
        |at: usize| CounterName::new("site", format!("{:016x}", (u64::MAX / count as u64) * at as u64).as_bytes());
    Ranges::of_cuts((1..count).map(|at| cut(at).expect("a name")).collect()).expect("ascending cuts")
}

struct Bench {
    view: View,
    /// By leaf: shard and slot.
    places: Vec<(usize, u32)>,
    valve: u16,
    counts: Vec<u64>,
    rows: BTreeMap<u32, Row>,
    ns: Vec<u64>,
}

impl Bench {
    fn new(count: usize, graph: &Graph, ledger: &Ledger, now: UnixTime) -> Bench {
        let mut view = View::cut(DcId(0), 7, ranges(count));
        view.on_time(now);
        let group = GroupId { dc: DcId(0), group: 0, incarnation: 1 };
        let valve = view.change(|shards| {
            let valve = ValveId { group, lane: 0 };
            shards.iter_mut().map(|cells| cells.valve(valve).expect("room")).max().expect("there are some")
        });
        let place = |leaf| {
            let shard = usize::from(view.shard_of(&name('a', leaf)).0);
            (shard, view.change(|shards| shards[shard].slot(&name('a', leaf).total()).expect("room")))
        };
        let places: Vec<(usize, u32)> = (0..graph.leaves).map(place).collect();
        view.on_start(ledger);
        let counts = vec![0; places.len()];
        Bench { view, places, valve, counts, rows: BTreeMap::new(), ns: Vec::new() }
    }

    /// A turn; increments are prepared before the clock runs.
    fn turn(&mut self, seed: u64, now: UnixTime) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let horizon = self.view.series_of("site").expect("it keeps series").horizon.clone();
        let mut work = Vec::with_capacity(INCREMENTS);
        for _ in 0..INCREMENTS {
            let leaf = rng.random_range(0..self.places.len());
            self.counts[leaf] += 1;
            let row = self.rows.entry(leaf as u32).or_default();
            row.add(&horizon, now, 1).expect("room");
            work.push((self.places[leaf], self.counts[leaf], row.clone()));
        }
        let since = cpu_ns();
        for part in work.chunks(CHUNK) {
            self.view.change(|shards| {
                for ((shard, slot), count, row) in part {
                    shards[*shard].merge(*slot, self.valve, *count);
                    shards[*shard].merge_row(*slot, self.valve, row);
                }
            });
        }
        self.ns.push((cpu_ns() - since) / INCREMENTS as u64);
    }
}

fn founded(graph: &Graph, now: UnixTime) -> Ledger {
    let mut ledger = Ledger::default();
    let mut index = 0;
    let mut say = |cmd: LedgerCmd, ledger: &mut Ledger| {
        index += 1;
        ledger.apply(LogIndex(index), &cmd);
    };
    say(LedgerCmd::Namespace("site".into()), &mut ledger);
    say(LedgerCmd::View(DcId(0).into()), &mut ledger);
    let kept = [(Granularity::HOUR, 30 * 86_400), (Granularity::DAY, 730 * 86_400)];
    let kept = kept.map(|(granularity, ttl_s)| Kept { granularity, ttl_s }).to_vec();
    let retention = Retention::new(kept).expect("a retention");
    let policy = SeriesPolicy::new(retention, 0, 0, OutOfRange::Refused).expect("a policy");
    let terms = SeriesTerms { revision: 1, policy, since: now };
    say(LedgerCmd::Series { namespace: "site".into(), terms }, &mut ledger);
    let all: Vec<_> = graph.edges().into_iter().map(EdgeChange::Insert).collect();
    for changes in all.chunks(EDGE_CHANGES_PER_COMMAND_MAX) {
        let revision = ledger.graph().revision();
        let changes = changes.to_vec();
        let by = "load".to_owned();
        say(LedgerCmd::Edges { revision, id: revision, lenient: false, changes, at: WallMs(0), by }, &mut ledger);
    }
    ledger.take_changes();
    ledger
}

fn main() {
    let counters: u32 = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(500_000);
    let questions = counters / 100;
    let authors = counters / 200;
    let topics = counters / 10_000;
    let graph = Graph { leaves: counters - questions - authors - topics, questions, authors, topics: topics.max(1) };
    let now = UnixTime::from_s(BEGIN_S).expect("a time");
    let ledger = founded(&graph, now);
    let mut benches = RANGES.map(|count| Bench::new(count, &graph, &ledger, now));
    for turn in 0..=TURNS {
        benches.iter_mut().for_each(|bench| bench.turn(turn as u64, now.plus(60 * turn as u64)));
        if turn == 0 {
            // Shares and rows are made in the first.
            benches.iter_mut().for_each(|bench| bench.ns.clear());
        }
    }
    let totals = |bench: &Bench, kind, count| -> Vec<u64> {
        (0..count).map(|number| bench.view.total(&name(kind, number), &ledger).up).collect()
    };
    for (kind, count) in [('q', graph.questions), ('u', graph.authors), ('t', graph.topics)] {
        let expected = totals(&benches[0], kind, count);
        assert!(benches.iter().all(|bench| totals(bench, kind, count) == expected), "totals are the same however cut");
    }
    let topic = |bench: &Bench| {
        bench.view.shares(&name('t', 0), &ledger).filter(|(_, share)| share.count(Half::Up) > 0).count()
    };
    let cut: Vec<String> = benches
        .iter_mut()
        .map(|bench| {
            bench.ns.sort_unstable();
            let ranges = bench.view.ranges().count();
            assert_eq!(topic(bench), ranges, "a topic has ancestors in every range");
            let held = bench.view.loads().map(|load| load.shares.bytes()).sum::<u64>();
            let median = bench.ns[TURNS / 2];
            let worst = bench.ns[TURNS - 1];
            format!(
                r#"{{"ranges":{ranges},"median_ns":{median},"worst_ns":{worst},"least_ns":{},"shares_bytes":{held}}}"#,
                bench.ns[0]
            )
        })
        .collect();
    println!(
        r#"{{"counters":{counters},"edges":{},"increments":{INCREMENTS},"turns":{TURNS},"cut":[{}]}}"#,
        ledger.graph().dag().len(),
        cut.join(",")
    );
}
