//! The memory of many counters that were removed or expire: in the ledger, its snapshot, a group and its checkpoint.
//!
//!     cargo run --release -p tidemark-proto --example counter_lives -- 500000

#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "a measurement, not the core")]

use std::time::Instant;
use tidemark_proto::group::{Group, GroupConfig};
use tidemark_proto::ids::{ClientId, CounterName, DcId, GroupId, LogIndex, Start};
use tidemark_proto::ledger::Ledger;
use tidemark_proto::limits::GENERATIONS_PER_MESSAGE_MAX;
use tidemark_proto::msg::{Batch, GroupCmd, GroupEntry, Item, LedgerCmd, ToGroup};
use tidemark_proto::time::WallMs;

const GROUP: GroupId = GroupId { dc: DcId(0), group: 0, incarnation: 1 };

fn name(key: u64) -> CounterName {
    CounterName::new("visitors", format!("2026-11-28/visitor-{key:08}").as_bytes()).expect("a valid name")
}

fn entry(cmd: GroupCmd) -> GroupEntry {
    GroupEntry { now: WallMs(1), first_new_slot: 0, new_cells: Vec::new(), cmds: vec![cmd] }
}

fn main() {
    let counters: u64 = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(100_000);
    let mut ledger = Ledger::default();
    let apply = |ledger: &mut Ledger, cmd: &LedgerCmd| {
        let index = ledger.applied().next();
        ledger.apply(index, cmd);
    };
    apply(&mut ledger, &LedgerCmd::Namespace("visitors".into()));
    let begin = Instant::now();
    for key in 0..counters {
        let expiry = ledger.expiry(&name(key), Some(WallMs(1_000 + key)), true).expect("room").expect("a new time");
        apply(&mut ledger, &expiry);
    }
    println!("{counters} times of expiry: {:?}; snapshot {} bytes", begin.elapsed(), ledger.stored_bytes());
    let begin = Instant::now();
    let mut steps = 0;
    loop {
        let due = ledger.resets().due(WallMs(u64::MAX), 256);
        if due.is_empty() {
            break;
        }
        steps += 1;
        due.iter().for_each(|cmd| apply(&mut ledger, cmd));
    }
    println!("removed in {steps} steps: {:?}; snapshot {} bytes", begin.elapsed(), ledger.stored_bytes());
    drop(ledger.take_changes());

    let mut group = Group::new(GroupConfig::new(GROUP, 4));
    let start = Start { number: 1, nonce: 1 };
    group.apply(LogIndex(1), &entry(GroupCmd::Boot { nonce: 1, lanes: 4 }));
    let confirmed = ToGroup::Confirmed { group: GROUP, start, accounts: Vec::new(), resets: 0 };
    group.apply(LogIndex(2), &entry(GroupCmd::Ledger(confirmed)));
    let slots: Vec<u32> = (0..counters as u32).collect();
    for (seq, page) in (1..).zip(slots.chunks(1_000)) {
        let items = page.iter().map(|&slot| Item { slot, delta: 1, session: None }).collect();
        let batch = Batch { client: ClientId(1), lane: 0, seq, since: 0, items, times: Vec::new() };
        let new_cells = page.iter().map(|&slot| name(slot.into()).total()).collect();
        let counted = GroupEntry { first_new_slot: page[0], new_cells, ..entry(GroupCmd::Batch(batch)) };
        group.apply(group.applied().next(), &counted);
    }
    let begin = Instant::now();
    let mut longest = std::time::Duration::ZERO;
    let all: Vec<(CounterName, u32)> = ledger.resets().generations().map(|(of, at)| (of.clone(), at)).collect();
    for page in all.chunks(GENERATIONS_PER_MESSAGE_MAX) {
        let one = Instant::now();
        let message = ToGroup::Resets { after: 0, upto: 0, begun: page.to_vec() };
        group.apply(group.applied().next(), &entry(GroupCmd::Ledger(message)));
        while group.poll_effect().is_some() {}
        longest = longest.max(one.elapsed());
    }
    println!("a group hears of them in {:?}, the longest entry {longest:?}", begin.elapsed());
    let begin = Instant::now();
    let rows = group.checkpoint();
    let closing = rows.last().map_or(0, |(_, value)| value.len());
    let bytes: usize = rows.iter().map(|(key, value)| key.len() + value.len()).sum();
    println!("its checkpoint: {bytes} bytes in {:?}, the closing row {closing}", begin.elapsed());
    let cells = group.table().len();
    let begin = Instant::now();
    group.apply(group.applied().next(), &entry(GroupCmd::Compact { nonce: 2 }));
    println!("{} of {cells} cells given back in {:?}", cells - group.table().len(), begin.elapsed());
    let mut store: std::collections::BTreeMap<Vec<u8>, Vec<u8>> = rows.into_iter().collect();
    store.extend(group.checkpoint());
    store.retain(|_, value| !value.is_empty());
    let bytes: usize = store.iter().map(|(key, value)| key.len() + value.len()).sum();
    println!("its checkpoint on disk afterwards: {bytes} bytes, of two sides");
    let begin = Instant::now();
    let loaded = Group::load(*group.config(), store).expect("a good checkpoint").expect("a complete one");
    assert_eq!(loaded.lives() as u64, counters);
    println!("loaded in {:?}", begin.elapsed());
}
