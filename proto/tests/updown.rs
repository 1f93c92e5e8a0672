//! Counters that go down: two grow-only halves, each counted exactly once, and milestones on the up half, whatever the other half
//! does.

use crdts::{CmRDT, PNCounter};
use proptest::prelude::*;
use std::collections::BTreeMap;
use tidemark_proto::group::{Effect, Group, GroupConfig};
use tidemark_proto::ids::*;
use tidemark_proto::ledger::Ledger;
use tidemark_proto::msg::*;
use tidemark_proto::node::{ConnId, Input, NodeConfig, NodeCore, Output};
use tidemark_proto::time::{Time, WallMs};
use tidemark_proto::view::View;

const LANES: u8 = 3;
const UP: u32 = 0;
const DOWN: u32 = 1;

fn counter() -> CounterName {
    CounterName::new("stock", b"shoes").unwrap()
}

fn id(dc: u16) -> GroupId {
    GroupId { dc: DcId(dc), group: 0, incarnation: 1 }
}

fn entry(cmds: Vec<GroupCmd>) -> GroupEntry {
    GroupEntry { now: WallMs(1), first_new_slot: 0, new_cells: Vec::new(), cmds }
}

fn batch(lane: u8, seq: u64, items: &[(u32, u64)]) -> GroupCmd {
    let items = items.iter().map(|&(slot, delta)| Item { slot, delta, session: None }).collect();
    GroupCmd::Batch(Batch { client: ClientId(9), lane, seq, since: 0, items, times: Vec::new() })
}

fn apply(group: &mut Group, entry: &GroupEntry) -> Vec<Effect> {
    group.apply(group.applied().next(), entry);
    group.check_invariants();
    std::iter::from_fn(|| group.poll_effect()).collect()
}

fn confirmed(dc: u16) -> ToGroup {
    let start = Start { number: 1, nonce: 7 };
    ToGroup::Confirmed { group: id(dc), start, accounts: Vec::new(), resets: 0 }
}

/// A group with the halves of the counter in its first two slots.
fn started(dc: u16) -> Group {
    let mut group = Group::new(GroupConfig::new(id(dc), LANES));
    let cmds = vec![GroupCmd::Boot { nonce: 7, lanes: LANES }, GroupCmd::Ledger(confirmed(dc))];
    let new_cells = vec![counter().total(), counter().half_of(Half::Down, 0)];
    apply(&mut group, &GroupEntry { new_cells, ..entry(cmds) });
    group
}

fn begun(generation: u32) -> GroupCmd {
    GroupCmd::Ledger(ToGroup::Resets { after: 0, upto: 1, begun: vec![(counter(), generation)] })
}

/// The count of a half in each generation.
fn sums(group: &Group, half: Half, upto: u32) -> Vec<u64> {
    let sum = |generation| group.table().find_half(&counter(), half, generation).map_or(0, |slot| group.sum(slot));
    (0..=upto).map(sum).collect()
}

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// The group as its disk holds it after the next checkpoint.
fn reloaded(group: &mut Group, disk: &mut Rows) -> Group {
    disk.extend(group.checkpoint());
    disk.retain(|_, value| !value.is_empty());
    Group::load(*group.config(), disk.clone()).unwrap().unwrap()
}

fn account(epoch: u32, granted: u64) -> Account {
    Account {
        counter: counter(),
        epoch,
        group: id(0),
        generation: 0,
        granted,
        acked_spent: 0,
        recall: false,
        next_pos: 0,
        last_report: 0,
        identities_wanted: true,
    }
}

#[test]
fn a_decrement_waits_for_no_milestone_and_gives_no_rights_back() {
    let mut group = started(0);
    apply(&mut group, &entry(vec![GroupCmd::Ledger(ToGroup::Account(account(1, 5)))]));
    let effects = apply(&mut group, &entry(vec![batch(0, 1, &[(UP, 4), (DOWN, 3), (UP, 4), (DOWN, 9)])]));
    let [Effect::Acked { pending, leased, .. }] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(
        (pending, leased.len()),
        (&vec![2], 0),
        "the second 4 is beyond the rights; nothing that goes down waits"
    );
    let guard = &group.guards()[0];
    assert_eq!((guard.spent, guard.available(), guard.pending()), (4, 1, 1), "3 and 9 down gave none back");
    assert_eq!((sums(&group, Half::Up, 0), sums(&group, Half::Down, 0)), (vec![8], vec![12]));
}

#[test]
fn the_down_half_begins_again_with_its_counter_and_is_named_by_the_next_decrement() {
    let mut group = started(0);
    apply(&mut group, &entry(vec![batch(0, 1, &[(UP, 5), (DOWN, 2)]), begun(1)]));
    // Proposed before the group heard: the present cell of the down half has no name.
    let late = entry(vec![batch(0, 2, &[(UP, 1), (DOWN, 1)])]);
    let mut disk = Rows::new();
    let loaded = reloaded(&mut group, &mut disk);
    for mut group in [group, loaded] {
        let mut disk = disk.clone();
        let effects = apply(&mut group, &late);
        assert!(matches!(&effects[..], [Effect::Refused { error: BatchError::NotServing(_), .. }]), "{effects:?}");
        assert_eq!((sums(&group, Half::Up, 1), sums(&group, Half::Down, 1)), (vec![5, 0], vec![2, 0]), "none of it");
        let cell = group.unnamed_cell_of(DOWN).unwrap();
        assert_eq!((cell.clone(), group.unnamed_cell_of(UP)), (counter().half_of(Half::Down, 1), None));
        let named = GroupEntry { first_new_slot: group.table().len(), new_cells: vec![cell], ..late.clone() };
        assert!(matches!(apply(&mut group, &named)[..], [Effect::Acked { .. }]), "asked again, by the slots of before");
        assert_eq!((sums(&group, Half::Up, 1), sums(&group, Half::Down, 1)), (vec![5, 1], vec![2, 1]));
        // Twice over, everything that is over leads to the newest, named before or after.
        apply(&mut group, &entry(vec![begun(3)]));
        let first_new_slot = group.table().len();
        let new_cells = vec![counter().half_of(Half::Down, 2), counter().half_of(Half::Down, 3)];
        let all = [(DOWN, 1), (first_new_slot, 1), (first_new_slot + 1, 1)];
        apply(&mut group, &GroupEntry { first_new_slot, new_cells, ..entry(vec![batch(0, 3, &all)]) });
        let mut again = reloaded(&mut group, &mut disk);
        apply(&mut again, &entry(vec![batch(0, 4, &[(DOWN, 1)])]));
        assert_eq!((sums(&group, Half::Down, 3), sums(&again, Half::Down, 3)), (vec![2, 1, 0, 3], vec![2, 1, 0, 4]));
    }
}

#[test]
fn a_checkpoint_from_before_there_were_series_and_counters_that_go_down_is_read() {
    let mut group = started(0);
    apply(&mut group, &entry(vec![batch(0, 1, &[(UP, 5)])]));
    let rows: Rows = group.checkpoint().into_iter().collect();
    let meta = &rows[&vec![0]];
    assert_eq!(
        (meta[0], &meta[meta.len() - 3..]),
        (12, &[0; 3][..]),
        "no namespace goes down or keeps series, no stamp"
    );
    for (format, lacks) in [(11, 1), (10, 2), (9, 6), (8, 6), (7, 6), (6, 8), (5, 9)] {
        let mut before = rows.clone();
        let meta = before.get_mut(&vec![0]).unwrap();
        meta[0] = format;
        meta.truncate(meta.len() - lacks);
        let loaded = Group::load(*group.config(), before).unwrap().unwrap();
        assert_eq!((sums(&loaded, Half::Up, 0), loaded.updown().len()), (vec![5], 0), "format {format}");
    }
}

/// A single node with a disk that never fails.
struct Node {
    core: NodeCore,
    conn: ConnId,
}

impl Node {
    fn new() -> Node {
        let mut node = Node { core: NodeCore::new(NodeConfig::new(id(0), LANES), 7), conn: ConnId(1) };
        node.settle();
        node.put(Input::AggregatorUp { seat: 0 });
        node.hear(confirmed(0));
        node.hear(ToGroup::Namespaces(vec!["stock".into()]));
        node.put(Input::ClientUp { conn: node.conn, owner: OwnerId(0) });
        node.put(Input::Client {
            conn: node.conn,
            msg: FromClient::Open { client: ClientId(9), since: None, asks_known: false },
        });
        node
    }

    fn put(&mut self, input: Input) -> Vec<ToClient> {
        self.core.handle(Time(1), input);
        self.settle()
    }

    fn settle(&mut self) -> Vec<ToClient> {
        let mut answers = Vec::new();
        for now in (1..100).map(|ms| Time(ms * 100_000)) {
            let mut last = None;
            while let Some(output) = self.core.poll_output() {
                match output {
                    Output::Append { index, .. } => last = Some(index),
                    Output::Client { msg, .. } => answers.push(msg),
                    _ => {}
                }
            }
            self.core.check_invariants();
            match last {
                Some(upto) => self.core.handle(now, Input::Durable { upto }),
                None => self.core.handle(now, Input::Tick),
            }
        }
        answers
    }

    fn hear(&mut self, message: ToGroup) {
        self.put(Input::Aggregator { seat: 0, msg: ForGroup::Ledger(message) });
    }

    fn count(&mut self, seq: u64, defs: &[(u32, Half)], items: &[(u32, u64)]) -> Option<BatchError> {
        let defs = defs.iter().map(|&(number, half)| (definition(number, half), counter())).collect();
        let items = items.iter().map(|&(number, delta)| WireItem { number, delta, session: None }).collect();
        let answers = self.put(Input::Client {
            conn: self.conn,
            msg: FromClient::Batch { lane: 0, seq, defs, items, times: Vec::new() },
        });
        match answers.into_iter().next() {
            Some(ToClient::Refused { error, .. }) => Some(error),
            Some(ToClient::Durable { lane: 0, seq: said, pending, .. }) if said == seq && pending.is_empty() => None,
            answer => panic!("batch {seq}: {answer:?}"),
        }
    }
}

#[test]
fn only_counters_of_a_namespace_that_says_so_go_down() {
    let mut node = Node::new();
    let both = [(4, Half::Up), (7, Half::Down)];
    let refused = node.count(1, &both, &[(4, 5), (7, 2)]);
    assert_eq!(refused, Some(BatchError::GrowOnly("stock".into())));
    assert_eq!(
        node.count(1, &[(4, Half::Up)], &[(4, 5)]),
        None,
        "nothing was counted of it, and up is always possible"
    );
    node.hear(ToGroup::UpDown(vec!["stock".into()]));
    assert_eq!(node.count(2, &both, &[(4, 5), (7, 2)]), None);
    assert_eq!((sums(node.core.group(), Half::Up, 0), sums(node.core.group(), Half::Down, 0)), (vec![10], vec![2]));
    assert!(!node.core.group().would_change(&ToGroup::UpDown(Vec::new())), "what may go down may for ever");
    // After a reset the earlier numbers name the present cells.
    node.hear(ToGroup::Resets { after: 0, upto: 1, begun: vec![(counter(), 1)] });
    assert_eq!(node.count(3, &[], &[(7, 3), (7, 1)]), None);
    assert_eq!(node.count(4, &[], &[(4, 1), (7, 1)]), None);
    assert_eq!(
        (sums(node.core.group(), Half::Up, 1), sums(node.core.group(), Half::Down, 1)),
        (vec![10, 1], vec![2, 5])
    );
}

#[test]
fn a_view_shows_down_halves_of_namespaces_that_have_them_and_milestones_look_at_the_other() {
    let mut ledger = Ledger::default();
    let mut view = View::new(DcId(0), 1);
    let valve = ValveId { group: id(0), lane: 0 };
    for (half, value) in [(Half::Up, 99), (Half::Down, 120)] {
        view.merge(&counter().half_of(half, 0), valve, value).unwrap();
    }
    let mut index = 0;
    let mut say = |ledger: &mut Ledger, cmd: LedgerCmd| {
        index += 1;
        ledger.apply(LogIndex(index), &cmd);
        ledger.check_invariants();
    };
    say(&mut ledger, LedgerCmd::UpDown("stock".into()));
    assert!(ledger.namespaces().eq(["stock"]) && ledger.goes_down(&counter()));
    let nothing = view.read(&counter(), &ledger);
    assert_eq!((nothing.value(), nothing.down, nothing.pending), (0, 0, 99), "it is not registered");
    say(&mut ledger, LedgerCmd::View(DcId(0).into()));
    let reading = view.read(&counter(), &ledger);
    assert_eq!((reading.value(), reading.up, reading.down, reading.value_at_most()), (-21, 99, 120, None));
    // 100 lies above the sum of increments, though the value is far below 99.
    let spec = |at| MilestoneSpec { at: vec![at], ..MilestoneSpec::default() };
    assert!(ledger.definition(&counter(), spec(99), reading.up).is_err());
    let define = ledger.definition(&counter(), spec(100), reading.up).unwrap().unwrap();
    say(&mut ledger, define);
    let reading = view.read(&counter(), &ledger);
    assert_eq!((reading.up, reading.down), (99, 120));
}

#[test]
fn a_ledger_with_up_down_namespaces_survives_its_snapshot() {
    let mut ledger = Ledger::default();
    ledger.apply(LogIndex(1), &LedgerCmd::Namespace("search".into()));
    ledger.apply(LogIndex(2), &LedgerCmd::UpDown("stock".into()));
    let bytes = postcard::to_allocvec(&ledger).unwrap();
    let again: Ledger = postcard::from_bytes(&bytes).unwrap();
    assert!(again.updown().eq(["stock"]) && again.namespaces().eq(["search", "stock"]));
    assert!(!again.goes_down(&CounterName::new("search", b"all").unwrap()));
}

/// Feeds a view the changes of a group, as its aggregator does.
fn tell(view: &mut View, group: &Group) {
    for slot in 0..group.table().len() {
        let cell = group.table().name(slot);
        for lane in 0..LANES {
            let valve = ValveId { group: group.config().id, lane };
            view.merge(&cell, valve, group.component(slot, lane)).unwrap();
        }
    }
}

proptest! {
    /// After repetitions, delays, or messages to one view first, both views show the value of the `crdts` crate's PN-counter,
    /// with a valve as the actor; and a half never goes back.
    #[test]
    fn values_equal_the_up_down_counter(steps in proptest::collection::vec((0u16..3, 0u8..LANES, 0u8..8, 1u64..50), 1..120)) {
        let mut groups: Vec<Group> = (0..3).map(started).collect();
        let mut disks = [Rows::new(), Rows::new(), Rows::new()];
        let mut views = [View::new(DcId(0), 1), View::new(DcId(1), 2)];
        let mut ledger = Ledger::default();
        for (index, cmd) in [LedgerCmd::UpDown("stock".into()), LedgerCmd::View(DcId(0).into()), LedgerCmd::View(DcId(1).into())].iter().enumerate() {
            ledger.apply(LogIndex(index as u64 + 1), cmd);
        }
        let mut oracle: PNCounter<(u16, u8)> = PNCounter::new();
        let mut said: BTreeMap<(u16, u8), Vec<GroupCmd>> = BTreeMap::new();
        let mut shown = [(0, 0); 2];
        for (dc, lane, what, n) in steps {
            let group = &mut groups[usize::from(dc)];
            let stream = said.entry((dc, lane)).or_default();
            match what {
                0..=4 => {
                    let slot = if what < 3 { UP } else { DOWN };
                    let op = if what < 3 { oracle.inc_many((dc, lane), n) } else { oracle.dec_many((dc, lane), n) };
                    oracle.apply(op);
                    stream.push(batch(lane, stream.len() as u64 + 1, &[(slot, n)]));
                    apply(group, &entry(vec![stream[stream.len() - 1].clone()]));
                }
                5 if !stream.is_empty() => {
                    let again = stream[n as usize % stream.len()].clone();
                    apply(group, &entry(vec![again]));
                }
                6 => *group = reloaded(group, &mut disks[usize::from(dc)]),
                _ => {
                    let to = usize::from(lane % 2);
                    tell(&mut views[to], group);
                    let reading = views[to].read(&counter(), &ledger);
                    prop_assert!(reading.up >= shown[to].0 && reading.down >= shown[to].1);
                    shown[to] = (reading.up, reading.down);
                }
            }
        }
        for view in &mut views {
            groups.iter().for_each(|group| tell(view, group));
            prop_assert_eq!(view.read(&counter(), &ledger).value().to_string(), oracle.read().to_string());
        }
        prop_assert_eq!(views[0].hash_of(DcId(2)), views[1].hash_of(DcId(2)));
    }
}
