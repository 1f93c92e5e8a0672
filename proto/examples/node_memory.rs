//! Memory of a node per cell, and the speed of its parts, measured:
//! `cargo run --release -p tidemark-proto --example node_memory [cells]`.

#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "a measurement, not the core")]

use std::time::Instant;
use tidemark_proto::group::{Group, GroupConfig};
use tidemark_proto::ids::{ClientId, CounterName, DcId, GroupId, LogIndex, OwnerId, SessionId, Start};
use tidemark_proto::msg::*;
use tidemark_proto::node::{ConnId, Input, NodeConfig, NodeCore, Output};
use tidemark_proto::time::{Time, WallMs};
use tidemark_proto::wire::encode;

const LANES: u8 = 10;
const KEY_BYTES: usize = 24;
const BATCH_ITEMS: usize = 1_000;

fn id() -> GroupId {
    GroupId { dc: DcId(0), group: 0, incarnation: 1 }
}

fn name(key: usize) -> CounterName {
    CounterName::new("bench", format!("{key:0KEY_BYTES$}").as_bytes()).expect("a valid name")
}

/// Resident bytes of this process, from the kernel (4 KiB pages).
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or(0) * 4_096
}

/// A node with a disk that is always fast, counting the given increments.
struct Bench {
    core: NodeCore,
    time: u64,
    acked: usize,
    log_bytes: usize,
    rows: Vec<(Vec<u8>, Vec<u8>)>,
    keep_rows: bool,
}

impl Bench {
    fn new() -> Bench {
        let mut config = NodeConfig::new(id(), LANES);
        config.checkpoint_log_bytes = u64::MAX;
        let core = NodeCore::new(config, 1);
        let mut bench = Bench { core, time: 0, acked: 0, log_bytes: 0, rows: Vec::new(), keep_rows: false };
        bench.tick();
        let confirmed =
            ToGroup::Confirmed { group: id(), start: Start { number: 1, nonce: 1 }, accounts: Vec::new(), resets: 0 };
        bench.input(Input::Aggregator { seat: 0, msg: ForGroup::Ledger(confirmed) });
        bench.input(Input::Aggregator { seat: 0, msg: ForGroup::Ledger(ToGroup::Namespaces(vec!["bench".into()])) });
        bench.tick();
        bench
    }

    fn input(&mut self, input: Input) {
        self.core.handle(Time(self.time), input);
        let mut durable = None;
        let mut persisted = false;
        while let Some(output) = self.core.poll_output() {
            match output {
                Output::Append { index, entry } => {
                    self.log_bytes += entry.len();
                    durable = Some(index);
                }
                Output::Client { msg: ToClient::Durable { .. }, .. } => self.acked += 1,
                Output::Client { msg: ToClient::Refused { error, .. }, .. } => panic!("{error}"),
                Output::Persist(part) => {
                    persisted = true;
                    if self.keep_rows {
                        self.rows.extend(part.rows);
                    }
                }
                _ => {}
            }
        }
        if let Some(upto) = durable {
            self.input(Input::Durable { upto });
        }
        if persisted {
            self.input(Input::Persisted);
        }
    }

    fn tick(&mut self) {
        self.time += self.core.config().commit_interval.0;
        self.input(Input::Tick);
    }

    fn open(&mut self, client: u64) {
        self.input(Input::ClientUp { conn: ConnId(client), owner: OwnerId(0) });
        let msg = FromClient::Open { client: ClientId(client.into()), since: None, asks_known: false };
        self.input(Input::Client { conn: ConnId(client), msg });
    }

    fn batch(&mut self, client: u64, lane: u8, seq: u64, defs: Vec<(u32, CounterName)>, items: Vec<WireItem>) {
        let msg = FromClient::Batch { lane, seq, defs, items, times: Vec::new() };
        self.input(Input::Client { conn: ConnId(client), msg });
    }
}

fn rate(what: &str, count: usize, since: Instant) {
    let seconds = since.elapsed().as_secs_f64();
    println!("{what}: {:.2} M/s ({:.0} ns each)", count as f64 / seconds / 1e6, seconds * 1e9 / count as f64);
}

fn wire_items(keys: std::ops::Range<usize>, session: bool) -> Vec<WireItem> {
    let session = session.then_some(SessionId([7; 16]));
    keys.map(|key| WireItem { number: key as u32, delta: 3, session }).collect()
}

fn memory(cells: usize) {
    let before = resident();
    let mut bench = Bench::new();
    // As many connections as cells / 10,000, so that numbering is a part of the measurement.
    let clients = cells.div_ceil(10_000) as u64;
    (0..clients).for_each(|client| bench.open(client));
    let since = Instant::now();
    let mut seq = vec![0; clients as usize];
    for from in (0..cells).step_by(BATCH_ITEMS) {
        let client = from / 10_000;
        seq[client] += 1;
        let to = cells.min(from + BATCH_ITEMS);
        let defs = (from..to).map(|key| ((key - client * 10_000) as u32, name(key))).collect();
        let items = wire_items(from - client * 10_000..to - client * 10_000, false);
        bench.batch(client as u64, (client % 10) as u8, seq[client], defs, items);
        bench.tick();
    }
    rate("new cells, client message to applied", cells, since);
    let after = resident();
    let per_cell = |bytes: usize| bytes as f64 / cells as f64;
    println!(
        "memory: {:.1} B per cell resident, {:.1} allocated",
        per_cell(after - before),
        per_cell(bench.core.group().heap_bytes())
    );
    let since = Instant::now();
    bench.keep_rows = true;
    bench.time += 61_000_000;
    bench.tick();
    println!(
        "first checkpoint: {:.3} s, {} rows, {:.1} B per cell",
        since.elapsed().as_secs_f64(),
        bench.rows.len(),
        per_cell(bench.rows.iter().map(|row| row.1.len()).sum())
    );
    let mut rows = std::mem::take(&mut bench.rows);
    rows.sort();
    drop(bench);
    let since = Instant::now();
    let before = resident();
    let loaded = Group::load(GroupConfig::new(id(), LANES), rows.iter().cloned()).expect("its own rows");
    let loaded = loaded.expect("a complete checkpoint");
    println!(
        "load: {:.3} s, {:.1} B per cell resident",
        since.elapsed().as_secs_f64(),
        per_cell(resident().saturating_sub(before))
    );
    assert_eq!(loaded.table().len() as usize, cells);
}

/// Apply alone, of entries in memory.
fn apply(what: &str, sessions: bool, guarded: bool, items_per_batch: usize) {
    let mut group = Group::new(GroupConfig::new(id(), LANES));
    let confirmed =
        ToGroup::Confirmed { group: id(), start: Start { number: 1, nonce: 1 }, accounts: Vec::new(), resets: 0 };
    let mut cmds = vec![GroupCmd::Boot { nonce: 1, lanes: LANES }, GroupCmd::Ledger(confirmed)];
    if guarded {
        let granted = 1 << 50;
        let counter = name(0);
        let group = id();
        let account = Account {
            counter,
            epoch: 1,
            group,
            generation: 0,
            granted,
            acked_spent: 0,
            recall: false,
            next_pos: 0,
            last_report: 0,
            identities_wanted: true,
        };
        cmds.push(GroupCmd::Ledger(ToGroup::Account(account)));
    }
    let new_cells: Vec<_> = (0..10_000).map(|key| name(key).total()).collect();
    group.apply(LogIndex(1), &GroupEntry { now: WallMs(0), first_new_slot: 0, new_cells, cmds });
    let session = sessions.then_some(SessionId([7; 16]));
    let clients = 10;
    let entries: Vec<GroupEntry> = (0..200_u64)
        .map(|seq| {
            let item =
                |idx: usize| Item { slot: if guarded { 0 } else { (idx * 7_919 % 10_000) as u32 }, delta: 1, session };
            let per_client = 10_000 / items_per_batch / clients;
            let batches = (0..clients * per_client).map(|n| Batch {
                since: 0,
                client: ClientId((n / per_client) as u128),
                lane: (n / per_client % 10) as u8,
                seq: seq * per_client as u64 + (n % per_client) as u64 + 1,
                items: (n * items_per_batch..(n + 1) * items_per_batch).map(item).collect(),
                times: Vec::new(),
            });
            GroupEntry {
                now: WallMs(0),
                first_new_slot: 0,
                new_cells: vec![],
                cmds: batches.map(GroupCmd::Batch).collect(),
            }
        })
        .collect();
    let since = Instant::now();
    for (entry, index) in entries.iter().zip(2..) {
        group.apply(LogIndex(index), entry);
        while let Some(effect) = group.poll_effect() {
            assert!(
                matches!(
                    effect,
                    tidemark_proto::group::Effect::Acked { .. }
                        | tidemark_proto::group::Effect::Spread
                        | tidemark_proto::group::Effect::Confirmed
                ),
                "{effect:?}"
            );
        }
    }
    rate(what, 200 * 10_000, since);
    let since = Instant::now();
    let bytes: usize = entries.iter().map(|entry| encode(entry).len()).sum();
    rate(&format!("  encoding its entries ({:.1} B each)", bytes as f64 / 2e6), 200 * 10_000, since);
}

/// The whole node: client message to answer, without decoding, network and disk.
fn whole(what: &str, session: bool, items_per_batch: usize) {
    let mut bench = Bench::new();
    (0..10).for_each(|client| bench.open(client));
    for client in 0..10 {
        let defs = (0..10_000).map(|key| (key as u32, name(key))).collect();
        bench.batch(client, client as u8, 1, defs, wire_items(0..1, false));
        bench.tick();
    }
    let messages: Vec<_> = (0..100).map(|round| (round, wire_items(0..10_000, session))).collect();
    let since = Instant::now();
    let mut seq = 1;
    for (round, items) in &messages {
        for chunk in items.chunks(items_per_batch) {
            if round % 10 == 0 || chunk.is_empty() { /* one client after the other */ }
            seq += 1;
            bench.batch(0, 0, seq, Vec::new(), chunk.to_vec());
        }
        bench.tick();
    }
    rate(what, 1_000_000, since);
}

fn main() {
    let cells = std::env::args().nth(1).and_then(|cells| cells.parse().ok()).unwrap_or(1_000_000);
    memory(cells);
    apply("apply, distinct deltas over 10,000 keys", false, false, 1_000);
    apply("apply, single hits with sessions in batches of 20, unguarded", true, false, 20);
    apply("apply, single hits with sessions in batches of 20, guarded", true, true, 20);
    apply("apply, single hits with sessions in batches of 1, guarded", true, true, 1);
    whole("node, distinct deltas over 10,000 keys in batches of 1,000", false, 1_000);
    whole("node, single hits with sessions in batches of 20", true, 20);
}
