//! Memory of a view per cell, everything included (names, components, sums, gossip's numbers and rings), by resident pages:
//! `cargo run --release -p tidemark-proto --example view_memory -- [data centres] [cells]`. One component per cell and data
//! centre, keys of 24 bytes, told by one connected peer per data centre; then the time of a read.

#![allow(clippy::disallowed_methods, reason = "a measurement reads the kernel's accounts of this process")]

use tidemark_proto::aggregator::{AggregatorConfig, AggregatorCore, Input, Output};
use tidemark_proto::ids::*;
use tidemark_proto::ledger::Ledger;
use tidemark_proto::msg::*;
use tidemark_proto::time::{Span, Time};

/// Cells of one delta or chunk.
const PIECE: u32 = 2_000;

fn name(cell: u32) -> CounterName {
    CounterName::new("bench", format!("key-of-24-bytes-{cell:08}").as_bytes()).expect("a valid name")
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4_096
}

/// Nanoseconds that this process was on a processor: other load on the machine does not count.
fn cpu_ns() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    stat.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0.0)
}

fn group(dc: u16) -> GroupId {
    GroupId { dc: DcId(dc), group: 0, incarnation: 1 }
}

/// What the peer of a data centre tells of cells `from .. to`.
fn delta(dc: u16, from: u32, to: u32) -> Delta {
    let cells: Vec<(u32, CellId)> = (from..to).map(|cell| (cell, name(cell).total())).collect();
    let valve = |cell: u32| cell % 10;
    let ahead = |cell: u32| if cell == from { from } else { 1 };
    Delta {
        sender: 1,
        origin: DcId(dc),
        epoch: 1,
        base: u64::from(from / PIECE),
        upto: u64::from(from / PIECE) + 1,
        walk: None,
        cells,
        groups: vec![group(dc)],
        components: (from..to).map(|cell| (ahead(cell), valve(cell), u64::from(cell) + 1)).collect(),
    }
}

fn feed(from: u32, to: u32) -> FeedChunk {
    FeedChunk {
        group: group(0),
        start: Start { number: 1, nonce: 1 },
        base: LogIndex(u64::from(from / PIECE)),
        upto: LogIndex(u64::from(from / PIECE) + 1),
        walk: None,
        applied: LogIndex(u64::from(from / PIECE) + 1),
        first_slot: from,
        cells: (from..to).map(|cell| name(cell).total()).collect(),
        components: (from..to).map(|cell| (cell, (cell % 10) as u8, u64::from(cell) + 1)).collect(),
    }
}

/// Throws outputs away, and says that what was to be persisted is.
fn drain(core: &mut AggregatorCore, now: Time, ledger: &Ledger) {
    let mut persisted = false;
    while let Some(output) = core.poll_output() {
        persisted |= matches!(output, Output::Persist(_));
    }
    if persisted {
        core.handle(now, Input::Persisted, ledger);
    }
}

fn main() {
    let mut args = std::env::args().skip(1).filter_map(|arg| arg.parse::<u32>().ok());
    let (dcs, cells) = (args.next().unwrap_or(15) as u16, args.next().unwrap_or(1_000_000));
    let mut ledger = Ledger::default();
    ledger.apply(LogIndex(1), &LedgerCmd::View(DcId(0)));
    let before = resident_bytes();
    let mut core = AggregatorCore::new(AggregatorConfig::new(DcId(0), 1));
    let mut now = Time(1);
    core.handle(now, Input::GroupUp { group: group(0) }, &ledger);
    for dc in 1..dcs {
        core.handle(now, Input::PeerUp { dc: DcId(dc), rtt: Span::from_millis(80) }, &ledger);
    }
    let start = cpu_ns();
    for from in (0..cells).step_by(PIECE as usize) {
        let to = (from + PIECE).min(cells);
        now = now + Span::from_millis(10);
        let chunk = FromGroup::Feed(feed(from, to));
        core.handle(now, Input::Group { group: group(0), msg: chunk }, &ledger);
        for dc in 1..dcs {
            let msg = PeerMsg::Delta(delta(dc, from, to));
            core.handle(now, Input::Peer { dc: DcId(dc), msg }, &ledger);
        }
        drain(&mut core, now, &ledger);
    }
    let filled = cpu_ns() - start;
    let per_cell = (resident_bytes() - before) as f64 / f64::from(cells);
    let counted = core.view().heap_bytes() as f64 / f64::from(cells);
    println!(
        "{dcs} data centres, {cells} cells: {per_cell:.1} B per cell resident ({counted:.1} B of them the view's own)"
    );
    let merges = f64::from(cells) * f64::from(dcs);
    println!("filled: {:.0} ns per component, with the making of messages", filled / merges);
    time_reads(&core, &ledger, cells);
}

fn time_reads(core: &AggregatorCore, ledger: &Ledger, cells: u32) {
    for range in [1, 10_000, cells] {
        let names: Vec<CounterName> = (0..200_000u64).map(|i| name((i * 7_919 % u64::from(range)) as u32)).collect();
        let start = cpu_ns();
        let total: u64 = names.iter().map(|name| core.read(name, ledger).value).sum();
        println!("read one of {range}: {:.0} ns (sum {total})", (cpu_ns() - start) / names.len() as f64);
    }
}
