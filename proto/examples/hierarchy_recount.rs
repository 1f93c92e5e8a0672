//! Totals counted anew as a process does when it starts, and increments and an edge beside that, measured:
//! `cargo run --release -p tidemark-proto --example hierarchy_recount [counters]`.

#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "a measurement, not the core")]

use std::borrow::Cow;
use std::time::Instant;
use tidemark_proto::graph::{Edge, EdgeChange};
use tidemark_proto::ids::{CounterName, LogIndex};
use tidemark_proto::ledger::{EdgeAuthor, Ledger};
use tidemark_proto::limits::EDGE_CHANGES_PER_COMMAND_MAX;
use tidemark_proto::msg::LedgerCmd;
use tidemark_proto::series::*;
use tidemark_proto::shards::ShardId;
use tidemark_proto::table::CellTable;
use tidemark_proto::time::WallMs;
use tidemark_proto::view::hierarchy::{DirectCounts, Hierarchy};

const BUDGET: usize = 10_000;

/// Resident MiB of this process, from the kernel (4 KiB pages).
fn resident_mib() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or(0) / 256
}

/// Every counter has counted 1, and its row has this number of buckets.
struct Direct {
    cells: CellTable,
    rows: Vec<Row>,
}

impl DirectCounts for Direct {
    fn table(&self, _: ShardId) -> &CellTable {
        &self.cells
    }

    fn sum(&self, _: ShardId, _: u32) -> u64 {
        1
    }

    fn rows(&self, _: ShardId, slot: u32) -> impl Iterator<Item = Cow<'_, Row>> + '_ {
        self.rows.get(slot as usize % self.rows.len().max(1)).into_iter().map(Cow::Borrowed)
    }
}

fn name(kind: char, number: u32) -> CounterName {
    CounterName::new("site", format!("{kind}:{number:016}").as_bytes()).expect("a name")
}

/// Answers below questions, and every tenth below an author as well; questions below topics.
fn edges(counters: u32) -> impl Iterator<Item = Edge<CounterName>> {
    let questions = counters / 10;
    let topics = counters / 1_000;
    let authors = counters / 100;
    let answers = counters - questions - topics - authors;
    let of_answers = (0..answers).flat_map(move |number| {
        let spread = number.wrapping_mul(2_654_435_761);
        let author = (number % 10 == 0).then(|| name('u', spread % authors));
        let question = name('q', spread % questions);
        [Some(question), author].into_iter().flatten().map(move |to| Edge { from: name('a', number), to })
    });
    let of_questions =
        (0..questions).map(move |number| Edge { from: name('q', number), to: name('t', number % topics) });
    of_answers.chain(of_questions)
}

fn load(ledger: &mut Ledger, edges: impl Iterator<Item = Edge<CounterName>>) {
    let all: Vec<_> = edges.map(EdgeChange::Insert).collect();
    for (entry, changes) in (2..).zip(all.chunks(EDGE_CHANGES_PER_COMMAND_MAX)) {
        let revision = ledger.graph().revision();
        let changes = changes.to_vec();
        let by = "load".to_owned();
        ledger.apply(
            LogIndex(entry),
            &LedgerCmd::Edges { revision, id: revision, lenient: false, changes, at: WallMs(0), by },
        );
    }
    ledger.take_changes();
}

fn row(policy: &SeriesPolicy, hits: u64) -> (Row, Horizon) {
    let now = UnixTime::from_s(1_700_000_000).expect("a time");
    let horizon = SeriesState::new(policy.clone(), now.minus(10 * 86_400)).horizon().clone();
    let mut row = Row::default();
    for hit in 0..hits {
        row.add(&horizon, now.minus(hit * 3_600), 1).expect("room");
    }
    (row, horizon)
}

fn main() {
    let counters: u32 = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(10_000_000);
    let kept = [(Granularity::MINUTE, 86_400), (Granularity::HOUR, 30 * 86_400), (Granularity::DAY, 730 * 86_400)];
    let kept = kept.map(|(granularity, ttl_s)| Kept { granularity, ttl_s }).to_vec();
    let policy =
        SeriesPolicy::new(Retention::new(kept).expect("a retention"), 0, 0, OutOfRange::Refused).expect("a policy");
    let mut ledger = Ledger::default();
    ledger.apply(LogIndex(1), &LedgerCmd::Namespace("site".into()));
    let since = Instant::now();
    load(&mut ledger, edges(counters));
    let graph = ledger.graph();
    println!(
        "{} counters, {} edges: applied in {:.1} s, {} MiB",
        graph.vertices(),
        graph.dag().len(),
        since.elapsed().as_secs_f64(),
        resident_mib()
    );
    let since = Instant::now();
    let bytes = postcard::to_allocvec(graph).expect("a graph");
    let written = since.elapsed().as_secs_f64();
    let restored: tidemark_proto::ledger::Graph = postcard::from_bytes(&bytes).expect("what was written");
    assert_eq!(restored.index(), graph.index());
    println!(
        "snapshot of {} MiB: written in {written:.1} s, both in {:.1} s",
        bytes.len() >> 20,
        since.elapsed().as_secs_f64()
    );
    drop((restored, bytes));
    let mut direct = Direct { cells: CellTable::new(7), rows: Vec::new() };
    for vertex in 0..graph.vertices() {
        direct.cells.intern(&graph.name(tidemark_proto::graph::Vertex(vertex)).total()).expect("room");
    }
    for hits in [0, 1, 10] {
        let (row, horizon) = row(&policy, hits);
        let buckets = row.len();
        direct.rows = if hits == 0 { Vec::new() } else { vec![row] };
        let mut hierarchy = Hierarchy::default();
        hierarchy.on_horizon("site", &horizon, &ledger);
        let before = resident_mib();
        let since = Instant::now();
        hierarchy.recount(&ledger, &direct);
        println!(
            "recount, {buckets} buckets a counter: {:.1} s, {} MiB more",
            since.elapsed().as_secs_f64(),
            resident_mib().saturating_sub(before)
        );
        let since = Instant::now();
        let count = 1_000_000u32;
        (0..count)
            .for_each(|n| hierarchy.on_raised(ShardId::FIRST, n.wrapping_mul(2_654_435_761) % graph.vertices(), 1));
        println!("an increment: {} ns", since.elapsed().as_nanos() / u128::from(count));
    }
    let (row, horizon) = row(&policy, 20);
    move_much(&mut ledger, &mut direct, row, &horizon);
}

/// An edge that moves 100,000 descendants, and one that moves 100,000 ancestors, 40 buckets each.
fn move_much(ledger: &mut Ledger, direct: &mut Direct, row: Row, horizon: &Horizon) {
    let buckets = row.len();
    direct.rows = vec![row];
    let fan = |from: CounterName, to: CounterName| Edge { from, to };
    let out = (0..100_000).map(|number| fan(name('x', 0), name('y', number)));
    load(ledger, out.chain((0..100_000).map(|number| fan(name('z', number), name('x', 1)))));
    for vertex in direct.cells.len()..ledger.graph().vertices() {
        direct.cells.intern(&ledger.graph().name(tidemark_proto::graph::Vertex(vertex)).total()).expect("room");
    }
    let mut hierarchy = Hierarchy::default();
    hierarchy.on_horizon("site", horizon, ledger);
    hierarchy.recount(ledger, direct);
    for (what, edge) in
        [("descendants", fan(name('w', 0), name('x', 0))), ("ancestors", fan(name('x', 1), name('w', 1)))]
    {
        for (how, change) in [("inserted", EdgeChange::Insert(edge.clone())), ("removed", EdgeChange::Remove(edge))] {
            let cmd =
                ledger.edges(vec![change], EdgeAuthor::alone("one", ledger), false).expect("a change").expect("new");
            ledger.apply(LogIndex(u64::MAX), &cmd);
            for vertex in direct.cells.len()..ledger.graph().vertices() {
                direct.cells.intern(&ledger.graph().name(tidemark_proto::graph::Vertex(vertex)).total()).expect("room");
            }
            let changes = ledger.take_changes();
            let since = Instant::now();
            hierarchy.on_ledger(&changes, ledger, direct);
            let mut steps = 0;
            let mut longest = std::time::Duration::ZERO;
            let mut more = true;
            while more {
                let since = Instant::now();
                more = hierarchy.step(BUDGET, ledger, direct);
                longest = longest.max(since.elapsed());
                steps += 1;
            }
            println!(
                "100000 {what} of {buckets} buckets, {how}: {:.2} s in {steps} steps, the longest {:.1} ms",
                since.elapsed().as_secs_f64(),
                longest.as_secs_f64() * 1e3
            );
        }
    }
}
