//! Edge changes that move much, measured: `cargo run --release -p tidemark-proto --example graph_moves [vertices moved]`.

#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "a measurement, not the core")]

use std::time::Instant;
use tidemark_proto::graph::*;

/// Edges and pairs that one step looks at.
const BUDGET: usize = 10_000;
/// Edges of the same graph that have nothing to do with the change.
const BESIDE: u32 = 1_000_000;

/// Resident bytes of this process, from the kernel (4 KiB pages).
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or(0) * 4_096
}

fn edge(from: u32, to: u32) -> Edge {
    Edge { from: Vertex(from), to: Vertex(to) }
}

/// Answers below questions below topics: three levels, not involved in the measured change.
fn beside(dag: &mut Dag, first: u32) {
    for number in 0..BESIDE {
        let to = match number {
            0..900_000 => first + 900_000 + number % 99_000,
            900_000..999_000 => first + 999_000 + number % 1_000,
            _ => first + BESIDE,
        };
        dag.insert(edge(first + number, to)).expect("a tree");
    }
}

/// Works a change off, with an increment of `counting` after each step, and prints the cost.
fn measure(what: &str, dag: Dag, change: EdgeChange, counting: Vertex) -> Dag {
    let mut flow = Flow::load(dag, Progress::default(), []).expect("a fresh flow");
    flow.push(change).expect("an empty queue");
    let mut scratch = Scratch::default();
    let mut pairs = 0;
    let mut steps = 0;
    let mut bytes = 0;
    let mut working_ns = 0;
    let mut longest_ns = 0;
    let mut counting_ns = 0;
    loop {
        let since = Instant::now();
        let batch = flow.step(BUDGET).expect("a change under way");
        let step_ns = since.elapsed().as_nanos() as usize;
        working_ns += step_ns;
        longest_ns = longest_ns.max(step_ns);
        pairs += batch.pairs.len();
        steps += 1;
        bytes = bytes.max(flow.moving_bytes());
        if batch.settled {
            break;
        }
        let since = Instant::now();
        assert!(flow.descendants(counting, &mut scratch).len() < 10_000_000);
        counting_ns += since.elapsed().as_nanos() as usize;
    }
    println!(
        "{what}: {pairs} pairs in {:.1} ms and {steps} steps, {} ns per pair; longest step {:.2} ms; {:.1} MiB; an increment meanwhile {:.1} µs",
        working_ns as f64 / 1e6,
        working_ns / pairs.max(1),
        longest_ns as f64 / 1e6,
        bytes as f64 / f64::from(1 << 20),
        counting_ns as f64 / 1e3 / f64::from(steps.max(2) - 1)
    );
    let mut dag = Dag::default();
    flow.settled_edges().for_each(|edge| dag.insert(edge).expect("edges of a graph"));
    dag
}

/// Inserted and removed again.
fn both_ways(what: &str, dag: Dag, moved: Edge, counting: Vertex) {
    let dag = measure(&format!("{what}, inserted"), dag, EdgeChange::Insert(moved), counting);
    measure(&format!("{what}, removed"), dag, EdgeChange::Remove(moved), counting);
}

fn main() {
    let count = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(100_000);
    let low = 0;
    let high = 1;
    let first = 2;
    let others = first + 2 * count;
    let before = resident();
    let since = Instant::now();
    let mut base = Dag::default();
    beside(&mut base, others);
    println!(
        "{} edges inserted in {:.2} s, {:.0} B each resident",
        base.len(),
        since.elapsed().as_secs_f64(),
        (resident() - before) as f64 / base.len() as f64
    );
    // The increments meanwhile are of an answer that has nothing to do with the change; and of one that has.
    let leaf = Vertex(others);
    let mut fan_out = base.clone();
    (0..count).for_each(|n| fan_out.insert(edge(high, first + n)).expect("a fan"));
    both_ways(&format!("{count} descendants"), fan_out.clone(), edge(low, high), leaf);
    both_ways(
        &format!("{count} descendants, counting the one whose counts move"),
        fan_out.clone(),
        edge(low, high),
        Vertex(low),
    );
    both_ways(
        &format!("one more of {count} descendants, with an ancestor above"),
        {
            let mut fan_out = fan_out.clone();
            fan_out.insert(edge(low, high)).expect("an edge");
            fan_out
        },
        edge(high, leaf.0),
        leaf,
    );
    let mut fan_in = base.clone();
    (0..count).for_each(|n| fan_in.insert(edge(first + n, low)).expect("a fan"));
    both_ways(&format!("{count} ancestors"), fan_in, edge(low, high), Vertex(first));
    // Three levels: 100 questions of a thousand answers each, all of one author besides; a topic that lies below three others.
    let mut levels = base;
    for n in 0..count {
        let answer = first + n;
        let question = first + count + n % 100;
        let author = first + count + 100 + n % 1_000;
        levels.insert(edge(answer, question)).expect("a level");
        levels.insert(edge(answer, author)).expect("a level");
    }
    (0..100).for_each(|n| levels.insert(edge(first + count + n, low)).expect("a level"));
    (0..3).for_each(|n| levels.insert(edge(high, first + count + 2_000 + n)).expect("a level"));
    both_ways(&format!("{count} ancestors in two levels, 4 descendants"), levels, edge(low, high), Vertex(first));
}
