//! What many counters that were removed or expire take: of the ledger, its snapshot, a group and its checkpoint.
//!
//!     cargo run --release -p tidemark-proto --example counter_lives -- 500000

#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "a measurement, not the core")]

use std::time::Instant;
use tidemark_proto::group::{Group, GroupConfig};
use tidemark_proto::ids::{CounterName, DcId, GroupId, LogIndex, Start};
use tidemark_proto::ledger::Ledger;
use tidemark_proto::limits::GENERATIONS_PER_MESSAGE_MAX;
use tidemark_proto::msg::{GroupCmd, GroupEntry, LedgerCmd, ToGroup};
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
    let (begin, mut steps) = (Instant::now(), 0);
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
    let (begin, mut longest) = (Instant::now(), std::time::Duration::ZERO);
    let all: Vec<(CounterName, u32)> = ledger.resets().generations().map(|(of, at)| (of.clone(), at)).collect();
    for page in all.chunks(GENERATIONS_PER_MESSAGE_MAX) {
        let one = Instant::now();
        group.apply(group.applied().next(), &entry(GroupCmd::Ledger(ToGroup::Generations(page.to_vec()))));
        while group.poll_effect().is_some() {}
        longest = longest.max(one.elapsed());
    }
    println!("a group hears of them in {:?}, the longest entry {longest:?}", begin.elapsed());
    let begin = Instant::now();
    let rows = group.checkpoint();
    let closing = rows.last().map_or(0, |(_, value)| value.len());
    let bytes: usize = rows.iter().map(|(key, value)| key.len() + value.len()).sum();
    println!("its checkpoint: {bytes} bytes in {:?}, the closing row {closing}", begin.elapsed());
    let mut sorted = rows;
    sorted.sort();
    let begin = Instant::now();
    let loaded = Group::load(*group.config(), sorted).expect("a good checkpoint").expect("a complete one");
    assert_eq!(loaded.lives() as u64, counters);
    println!("loaded in {:?}", begin.elapsed());
}
