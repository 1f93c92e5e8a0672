//! Measures what a ledger, a group and a view keep of counters that live for a day, over some weeks.
//!
//!     cargo run --release -p tidemark-proto --example ended_cells -- 10000 21
//!
//! The arguments are counters a day, and days. With a third argument `kept`, the view gives no slot to a new cell. One group
//! counts each counter once, and the ledger removes it a day later. Each line is of the end of a day; the last column is the longest
//! time that one input took the aggregator in that day.

#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "a measurement, not the core")]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tidemark_proto::aggregator::{AggregatorConfig, AggregatorCore, Input, Output};
use tidemark_proto::group::{Group, GroupConfig};
use tidemark_proto::ids::{ClientId, CounterName, DcId, GroupId, LogIndex};
use tidemark_proto::ledger::Ledger;
use tidemark_proto::msg::*;
use tidemark_proto::node::NodeConfig;
use tidemark_proto::query::KeyOrder;
use tidemark_proto::shards::ShardId;
use tidemark_proto::time::{Span, Time, WallMs};

const DC: DcId = DcId(0);
const GROUP: GroupId = GroupId { dc: DC, group: 0, incarnation: 1 };
const BEGIN_MS: u64 = 1_790_000_000_000;
const HOUR_MS: u64 = 3_600_000;

fn name(key: u64) -> CounterName {
    CounterName::new("visitors", format!("2026-11-28/visitor-{key:08}").as_bytes()).expect("a valid name")
}

struct World {
    ledger: Ledger,
    group: Group,
    core: AggregatorCore,
    disk: BTreeMap<Vec<u8>, Vec<u8>>,
    written: u64,
    now: Time,
    wall: WallMs,
    batches: u64,
    pull: Option<FeedPull>,
    compactions: u64,
    longest: Duration,
}

impl World {
    fn new(keeps: bool) -> World {
        let mut config = AggregatorConfig::new(DC, 1);
        if keeps {
            config.reused_min = u32::MAX;
        }
        let mut world = World {
            ledger: Ledger::default(),
            group: Group::new(GroupConfig::new(GROUP, 1)),
            core: AggregatorCore::new(config),
            disk: BTreeMap::new(),
            written: 0,
            now: Time(1_000),
            wall: WallMs(BEGIN_MS),
            batches: 0,
            pull: None,
            compactions: 1,
            longest: Duration::ZERO,
        };
        world.commit(GroupCmd::Boot { nonce: 1, lanes: 1 }, Vec::new());
        let hello = Hello { group: GROUP, lanes: 1, nonces: vec![1], number: 1, accounts: Vec::new() };
        world.apply(vec![LedgerCmd::Namespace("visitors".into()), LedgerCmd::View(DC.into()), LedgerCmd::Hello(hello)]);
        let start = tidemark_proto::ids::Start { number: 1, nonce: 1 };
        let confirmed = ToGroup::Confirmed { group: GROUP, start, accounts: Vec::new(), resets: 0 };
        world.commit(GroupCmd::Ledger(confirmed), Vec::new());
        world.say(Input::Leader(Some((DC.into(), 1))));
        world.say(Input::GroupUp { group: GROUP });
        world
    }

    fn commit(&mut self, cmd: GroupCmd, new_cells: Vec<tidemark_proto::ids::CellId>) {
        let first_new_slot = self.group.table().len();
        let entry = GroupEntry { now: self.wall, first_new_slot, new_cells, cmds: vec![cmd] };
        let index = LogIndex(self.group.applied().0 + 1);
        self.group.apply(index, &entry);
        while self.group.poll_effect().is_some() {}
    }

    fn apply(&mut self, cmds: Vec<LedgerCmd>) {
        for cmd in cmds {
            let index = self.ledger.applied().next();
            self.ledger.apply(index, &cmd);
        }
        let changes = self.ledger.take_changes();
        self.say(Input::Ledger(changes));
    }

    fn say(&mut self, input: Input) {
        let begin = Instant::now();
        self.core.handle(self.now, input, &self.ledger);
        self.longest = self.longest.max(begin.elapsed());
        while let Some(output) = self.core.poll_output() {
            match output {
                Output::Propose(cmds) => self.apply(cmds),
                Output::Group { msg: ForGroup::Feed(pull), .. } => self.pull = Some(pull),
                Output::Group { msg: ForGroup::Ledger(msg @ ToGroup::Resets { .. }), .. } => {
                    self.commit(GroupCmd::Ledger(msg), Vec::new());
                }
                Output::Persist { shard, rows } => {
                    for (key, value) in rows {
                        self.written += (key.len() + value.len()) as u64;
                        self.disk.insert(key, value);
                    }
                    self.disk.retain(|_, value| !value.is_empty());
                    self.say(Input::Persisted { shard });
                }
                _ => {}
            }
        }
    }

    /// The group counts these counters once, and each expires in a day.
    fn count(&mut self, keys: std::ops::Range<u64>) {
        let expires = WallMs(self.wall.0 + 24 * HOUR_MS);
        let expiry = |ledger: &Ledger, key| ledger.expiry(&name(key), Some(expires), true).expect("room");
        let first = self.group.table().len();
        let names = keys.clone().map(|key| name(key).total()).collect();
        let items = (first..).zip(keys.clone()).map(|(slot, _)| Item { slot, delta: 1, session: None }).collect();
        self.batches += 1;
        let batch = Batch { client: ClientId(1), lane: 0, seq: self.batches, since: 0, items, times: Vec::new() };
        self.commit(GroupCmd::Batch(batch), names);
        let cmds = keys.filter_map(|key| expiry(&self.ledger, key)).collect();
        self.apply(cmds);
    }

    /// A few seconds, in which everything is told, passed, dropped and written; then the rest of an hour.
    fn pass_hour(&mut self) {
        for second in 1..=12 {
            self.wall = WallMs(self.wall.0 + 2_000);
            self.say(Input::Clock(self.wall));
            for _ in 0..40 {
                self.now = self.now + Span::from_millis(50);
                if let Some(pull) = self.pull.take_if(|pull| self.group.has_feed(pull)) {
                    let chunk = self.group.tell(&pull);
                    self.say(Input::Group { group: GROUP, msg: FromGroup::Feed(chunk) });
                }
                self.say(Input::Tick);
            }
            let NodeConfig { compacted_min, compacted_part, .. } = NodeConfig::new(GROUP, 1);
            if second == 12 && self.group.is_to_compact(compacted_min, compacted_part) {
                self.compactions += 1;
                self.commit(GroupCmd::Compact { nonce: self.compactions }, Vec::new());
            }
        }
        self.now = self.now + Span::from_secs(3_600 - 24);
        self.wall = WallMs(self.wall.0 + HOUR_MS - 24_000);
    }

    /// The time until the keys of the view are in order: the next page of keys takes it after slots were freed.
    fn order_keys(&self) {
        let cells = self.core.view().cells(ShardId::FIRST);
        let mut order = KeyOrder::default();
        let begin = Instant::now();
        while !order.follow(cells, 1_024) {}
        println!("{} keys in order after {:.1?}", order.len(), begin.elapsed());
    }

    fn line(&mut self, day: u64) {
        let cells = self.core.view().cells(ShardId::FIRST);
        let bytes: usize = self.disk.iter().map(|(key, value)| key.len() + value.len()).sum();
        println!(
            "{day:>4} {:>9} {:>9} {:>9} {:>9} {:>8} {:>12} {:>12} {:>12} {:>8.1?}",
            self.ledger.resets().len(),
            self.group.table().len(),
            cells.len(),
            cells.over_len(),
            self.disk.len(),
            bytes,
            std::mem::take(&mut self.written),
            cells.heap_bytes(),
            std::mem::take(&mut self.longest),
        );
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: u64| arguments.next().and_then(|text| text.parse().ok()).unwrap_or(default);
    let a_day = number(10_000);
    let days = number(21);
    let mut world = World::new(arguments.next().as_deref() == Some("kept"));
    println!(
        "{:>4} {:>9} {:>9} {:>9} {:>9} {:>8} {:>12} {:>12} {:>12} {:>8}",
        "day", "records", "of group", "of view", "ended", "rows", "bytes", "written", "memory", "longest"
    );
    let mut next = 0;
    for day in 1..=days {
        for hour in 1..=24 {
            let until = (day - 1) * a_day + a_day * hour / 24;
            world.count(next..until);
            next = until;
            world.pass_hour();
        }
        world.line(day);
    }
    world.order_keys();
}
