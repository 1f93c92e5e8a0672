//! Laws of a group: exactly once, one way out of the queue, conservation of rights, checkpoints that equal their state, a feed
//! that misses nothing.

use super::generations::{Present, SavedGenerations};
use super::*;
use crdts::{CmRDT, GCounter};
use proptest::prelude::*;
use tidemark_types::ids::{DcId, SessionId, Start};
use tidemark_types::time::WallMs;
use tidemark_wire::scope::Scope;
use tidemark_wire::wire;

const LANES: u8 = 3;
const NONCE: u64 = 7;

fn id() -> GroupId {
    GroupId { dc: DcId(2), group: 1, incarnation: 5 }
}

fn config() -> GroupConfig {
    GroupConfig { ring_capacity: 64, ring_per_component: 0, ..GroupConfig::new(id(), LANES) }
}

fn name(key: usize) -> CounterName {
    CounterName::new("test", format!("counter-{key}").as_bytes()).unwrap()
}

fn account(key: usize, granted: u64) -> Account {
    Account {
        counter: name(key),
        epoch: 1,
        group: id(),
        generation: 0,
        granted,
        acked_spent: 0,
        recall: false,
        next_pos: 0,
        last_report: 0,
        identities_wanted: true,
    }
}

fn item(slot: u32, delta: u64) -> Item {
    Item { slot, delta, session: (delta % 2 == 1).then_some(SessionId([slot as u8; 16])) }
}

fn batch(client: u128, lane: u8, seq: u64, items: &[(u32, u64)]) -> GroupCmd {
    let items = items.iter().map(|&(slot, delta)| item(slot, delta)).collect();
    GroupCmd::Batch(Batch { client: ClientId(client), lane, seq, since: 0, items, times: Vec::new() })
}

fn entry(cmds: Vec<GroupCmd>) -> GroupEntry {
    GroupEntry { now: WallMs(1), first_new_slot: 0, new_cells: Vec::new(), cmds }
}

fn placed(key: usize, runs: &[(u64, u64, Place)]) -> ToGroup {
    let runs = runs.iter().map(|&(first_pos, count, place)| PlacedRun { first_pos, count, place }).collect();
    ToGroup::Placed(Placed { counter: name(key), epoch: 1, group: id(), runs, need_items: None })
}

/// Applies one command and returns its effects.
fn apply(group: &mut Group, cmd: GroupCmd) -> Vec<Effect> {
    apply_entry(group, &entry(vec![cmd]))
}

fn apply_entry(group: &mut Group, entry: &GroupEntry) -> Vec<Effect> {
    group.apply(group.applied().next(), entry);
    group.check_invariants();
    std::iter::from_fn(|| group.poll_effect()).collect()
}

/// A confirmed group with cells `0 .. cells`.
fn started(cells: usize) -> Group {
    let mut group = Group::new(config());
    let cmds = vec![
        GroupCmd::Boot { nonce: NONCE, lanes: LANES },
        GroupCmd::Ledger(ToGroup::Confirmed {
            group: id(),
            start: Start { number: 1, nonce: NONCE },
            accounts: Vec::new(),
            resets: 0,
        }),
    ];
    let new_cells = (0..cells).map(|key| name(key).total()).collect();
    apply_entry(&mut group, &GroupEntry { new_cells, ..entry(cmds) });
    group
}

fn acked(effects: &[Effect]) -> Vec<u32> {
    match effects {
        [Effect::Acked { pending, .. }, ..] => pending.clone(),
        other => panic!("no answer: {other:?}"),
    }
}

/// All replicated state, readable.
fn dump(group: &Group) -> String {
    let names: Vec<_> = (0..group.table().len()).map(|slot| group.table().name(slot)).collect();
    let components: Vec<_> = (0..group.cells.len()).map(|number| group.cells.component(number)).collect();
    let streams: Vec<_> = group.streams.iter().collect();
    let flags = (&group.boots, group.starts, group.confirmed, group.ever_confirmed, group.fenced_out, group.queued);
    let settings = (&group.namespaces, &group.spread, &group.guard_of_slot, group.generations.save_ahead());
    let past = group.generations.all();
    format!(
        "{:?} {names:?} {components:?} {streams:?} {:?} {flags:?} {settings:?} {past:?} {:?}",
        group.applied, group.guards, group.age
    )
}

#[test]
fn items_are_certified_in_order_until_one_does_not_fit_and_a_retry_gets_the_current_answer() {
    let mut group = started(2);
    apply(&mut group, GroupCmd::Ledger(ToGroup::Account(account(0, 5))));
    let first = batch(1, 0, 1, &[(0, 2), (1, 9), (0, 4), (0, 1), (1, 1)]);
    assert_eq!(acked(&apply(&mut group, first.clone())), [2, 3], "4 does not fit; 1 would, but comes after it");
    assert_eq!((group.guards()[0].spent, group.guards()[0].next_pos()), (2, 2));
    assert_eq!(group.sum(0), 7, "queued items are in the component too");
    apply(&mut group, GroupCmd::Ledger(ToGroup::Account(account(0, 100))));
    assert_eq!(group.guards()[0].pending(), 2, "a grant never certifies what is queued");
    let effects = apply(&mut group, GroupCmd::Ledger(placed(0, &[(1, 1, Place::Number(42))])));
    let number = Effect::Placed { client: ClientId(1), lane: 0, seq: 1, idx: 3, place: Place::Number(42) };
    assert_eq!(effects, std::slice::from_ref(&number));
    let again = apply(&mut group, first.clone());
    assert_eq!(acked(&again), [2, 3], "one is queued, the place of the other follows");
    assert_eq!(again[1..], *std::slice::from_ref(&number));
    let milestone = Place::Milestone { at: 40, first: 38 };
    apply(&mut group, GroupCmd::Ledger(placed(0, &[(0, 2, milestone)])));
    let again = apply(&mut group, first);
    assert_eq!(acked(&again), [2, 3]);
    assert_eq!(again[1], number, "a decision never changes");
    assert_eq!(group.guards()[0].placed_upto(), 2);
}

/// A start on an old copy of the disk lacks later entries: its answer to a fence would be believed.
#[test]
fn a_fence_is_answered_by_a_confirmed_start_only() {
    let mut group = started(1);
    apply(&mut group, batch(1, 0, 1, &[(0, 1)]));
    let fence = || GroupCmd::Fence { client: ClientId(1), lane: 0, since: 0 };
    apply(&mut group, GroupCmd::Boot { nonce: NONCE + 1, lanes: LANES });
    assert_eq!(apply(&mut group, fence()), []);
    assert_eq!(acked(&apply(&mut group, batch(1, 0, 2, &[(0, 1)]))), [0_u32; 0], "it counts on");
    let start = Start { number: 2, nonce: NONCE + 1 };
    apply(&mut group, GroupCmd::Ledger(ToGroup::Confirmed { group: id(), start, accounts: Vec::new(), resets: 0 }));
    assert_eq!(apply(&mut group, fence()), [Effect::Fenced { client: ClientId(1), lane: 0, last_seq: 2 }]);
    let mut old = started(1);
    apply(&mut old, GroupCmd::Ledger(ToGroup::FencedOut { group: id() }));
    assert_eq!(apply(&mut old, fence()), []);
}

/// Settings come from any replica of the ledger that is near; a replica that is behind must not take back newer settings.
#[test]
fn settings_of_a_replica_that_is_behind_take_nothing_back() {
    let mut group = started(0);
    let namespaces = |names: &[&str]| ToGroup::Namespaces(names.iter().map(|name| (*name).to_owned()).collect());
    apply(&mut group, GroupCmd::Ledger(namespaces(&["a", "b"])));
    apply(&mut group, GroupCmd::Ledger(ToGroup::Spread(vec![name(0), name(1)])));
    for late in [namespaces(&["a"]), namespaces(&[]), ToGroup::Spread(vec![name(1)])] {
        assert!(!group.would_change(&late));
        apply(&mut group, GroupCmd::Ledger(late));
    }
    assert_eq!((group.namespaces().len(), group.spread().len()), (2, 2));
    assert!(group.would_change(&namespaces(&["c"])));
}

#[test]
fn a_guard_begins_with_the_component_and_interns_a_counter_never_seen() {
    let mut group = started(1);
    apply(&mut group, batch(1, 0, 1, &[(0, 10)]));
    apply(&mut group, batch(1, 2, 1, &[(0, 5)]));
    apply(&mut group, GroupCmd::Ledger(ToGroup::Account(account(0, 0))));
    apply(&mut group, GroupCmd::Ledger(ToGroup::Account(account(9, 3))));
    assert_eq!(group.guards().iter().map(|guard| guard.base).collect::<Vec<_>>(), [15, 0]);
    assert_eq!(group.table().find(&name(9).total()), Some(1));
    assert_eq!(acked(&apply(&mut group, batch(1, 0, 2, &[(1, 3), (0, 1)]))), [1]);
}

#[test]
fn recalls_return_what_is_unspent_and_stale_ones_are_ignored() {
    let mut group = started(1);
    apply(&mut group, GroupCmd::Ledger(ToGroup::Account(account(0, 10))));
    apply(&mut group, batch(1, 0, 1, &[(0, 3)]));
    let recall = |granted| GroupCmd::Ledger(ToGroup::Account(Account { recall: true, ..account(0, granted) }));
    apply(&mut group, recall(9));
    assert_eq!(group.guards()[0].available(), 7, "it was granted more since");
    apply(&mut group, recall(10));
    assert_eq!((group.guards()[0].returned, group.guards()[0].available()), (7, 0));
    apply(&mut group, GroupCmd::Ledger(ToGroup::Account(account(0, 12))));
    assert_eq!(group.guards()[0].available(), 2);
    apply(&mut group, recall(10));
    assert_eq!(group.guards()[0].available(), 2, "an old recall");
    let next = Account { generation: 1, acked_spent: 3, ..account(0, 4) };
    apply(&mut group, GroupCmd::Ledger(ToGroup::Account(next.clone())));
    assert_eq!(group.guards()[0].generation, 0, "only its terms open a generation");
    let opened = Opened { account: next, leased: false, closed_spent: 3 };
    apply(&mut group, GroupCmd::Ledger(ToGroup::Opened(opened)));
    let guard = &group.guards()[0];
    assert_eq!((guard.generation, guard.granted, guard.spent, guard.returned), (1, 4, 0, 0));
    apply(&mut group, GroupCmd::Ledger(ToGroup::Account(account(0, 99))));
    assert_eq!(group.guards()[0].granted, 4, "an old generation");
}

#[test]
fn after_a_start_rights_wait_for_the_confirmation_and_a_new_group_serves_nobody_before_it() {
    let mut group = Group::new(config());
    let refused = |effects: &[Effect]| matches!(effects, [Effect::Refused { error: BatchError::NotServing(_), .. }]);
    apply(&mut group, GroupCmd::Boot { nonce: 1, lanes: LANES });
    assert!(refused(&apply(&mut group, batch(1, 0, 1, &[(0, 1)]))));
    let confirm = |nonce, granted| {
        GroupCmd::Ledger(ToGroup::Confirmed {
            group: id(),
            start: Start { number: 0, nonce },
            accounts: vec![account(0, granted)],
            resets: 0,
        })
    };
    apply(&mut group, confirm(1, 5));
    assert_eq!(acked(&apply(&mut group, batch(1, 0, 1, &[(0, 1)]))), [] as [u32; 0]);
    apply(&mut group, GroupCmd::Boot { nonce: 2, lanes: LANES });
    assert_eq!(group.hello().nonces, [1, 2]);
    assert_eq!(acked(&apply(&mut group, batch(1, 0, 2, &[(0, 1)]))), [0], "counted, but not certified");
    apply(&mut group, confirm(1, 5));
    assert!(!group.rights_usable(), "an old confirmation");
    apply(&mut group, confirm(2, 5));
    assert_eq!(acked(&apply(&mut group, batch(1, 0, 3, &[(0, 1)]))), [] as [u32; 0]);
    let effects = apply(&mut group, GroupCmd::Ledger(ToGroup::FencedOut { group: id() }));
    assert_eq!(effects, [Effect::FencedOut]);
    assert!(refused(&apply(&mut group, batch(1, 0, 4, &[(0, 1)]))));
    (10..10 + 2 * BOOTS_UNCONFIRMED_MAX as u64)
        .for_each(|nonce| drop(apply(&mut group, GroupCmd::Boot { nonce, lanes: LANES })));
    assert_eq!(group.hello().nonces.len(), BOOTS_UNCONFIRMED_MAX + 1);
}

#[test]
fn refused_batches_change_nothing() {
    let mut group = started(2);
    apply(&mut group, batch(1, 0, 1, &[(0, DELTA_MAX)]));
    for seq in 2..=1 << 16 {
        group.apply(group.applied().next(), &entry(vec![batch(1, 0, seq, &[(0, DELTA_MAX)])]));
        while group.poll_effect().is_some() {}
    }
    let next = (1 << 16) + 1;
    let before = (group.sum(0), group.sum(1), group.stream(ClientId(1), 0));
    assert_eq!(before.0, COMPONENT_MAX);
    let too_much = apply(&mut group, batch(1, 0, next, &[(1, 7), (0, 1)]));
    let error = |effects: Vec<Effect>| match effects.into_iter().next() {
        Some(Effect::Refused { error, .. }) => error,
        other => panic!("not refused: {other:?}"),
    };
    let expected = BatchError::Overflow { counter: name(0), value: COMPONENT_MAX, delta: 1, max: COMPONENT_MAX };
    assert_eq!(error(too_much), expected);
    assert_eq!(
        error(apply(&mut group, batch(1, 0, next + 1, &[(1, 7)]))),
        BatchError::Gap { seq: next + 1, last: 1 << 16 }
    );
    assert_eq!(error(apply(&mut group, batch(2, 0, 2, &[(1, 7)]))), BatchError::Gap { seq: 2, last: 0 });
    assert_eq!(error(apply(&mut group, batch(2, 0, 0, &[(1, 7)]))), BatchError::Gap { seq: 0, last: 0 });
    assert_eq!(error(apply(&mut group, batch(1, 0, next, &[]))), BatchError::Empty);
    assert_eq!(error(apply(&mut group, batch(1, 9, 1, &[(1, 7)]))), BatchError::UnknownLane { lane: 9, lanes: LANES });
    assert_eq!(error(apply(&mut group, batch(1, 0, next, &[(1, 1), (77, 7)]))), BatchError::UnknownNumber(77));
    let twice = DELTA_MAX / 2 + 1;
    let delta = BatchError::Delta { idx: 1, delta: 2 * twice, max: DELTA_MAX };
    assert_eq!(error(apply(&mut group, batch(1, 0, next, &[(1, 1), (1, 2 * twice)]))), delta);
    assert_eq!(before, (group.sum(0), group.sum(1), group.stream(ClientId(1), 0)));
    assert_eq!(group.stream(ClientId(2), 0), None);
}

#[test]
fn a_later_epoch_begins_at_nothing_and_ends_the_queue() {
    let mut group = started(1);
    apply(&mut group, GroupCmd::Ledger(ToGroup::Account(account(0, 0))));
    apply(&mut group, batch(1, 0, 1, &[(0, 4), (0, 5)]));
    let effects = apply(&mut group, begun(Account { epoch: 2, ..account(0, 1) }));
    assert_eq!(effects.len(), 3, "it began again, and what was queued is counted");
    let guard = &group.guards()[0];
    assert_eq!((guard.epoch, guard.base, guard.next_pos(), guard.available()), (2, 0, 0, 1));
    assert_eq!(acked(&apply(&mut group, batch(1, 0, 1, &[(0, 4), (0, 5)]))), [] as [u32; 0]);
    apply(&mut group, GroupCmd::Ledger(placed(0, &[(0, 2, Place::Number(3))])));
    apply(&mut group, GroupCmd::Ledger(ToGroup::Account(account(0, 50))));
    assert_eq!(group.guards()[0].epoch, 2, "messages of the old epoch are void");
}

#[test]
fn rows_of_an_old_epochs_queue_are_not_taken_for_the_new_ones() {
    let mut group = started(1);
    let mut store = Store::default();
    apply(&mut group, GroupCmd::Ledger(ToGroup::Account(account(0, 0))));
    apply(&mut group, batch(1, 0, 1, &vec![(0, 1); 3_000]));
    store.put(group.checkpoint());
    apply(&mut group, begun(Account { epoch: 2, ..account(0, 0) }));
    apply(&mut group, batch(1, 0, 2, &vec![(0, 3); 1_500]));
    for _ in 0..3 {
        store.put(group.checkpoint());
        assert_eq!(dump(&store.load().unwrap()), dump(&group));
    }
    let queue_rows = store.0.keys().filter(|key| key[0] == 4).count();
    assert!(queue_rows <= 4, "rows of the old queue are deleted in the end: {queue_rows} left");
}

#[test]
fn offers_are_items_or_blocks_of_one_weight() {
    let mut group = started(1);
    apply(&mut group, GroupCmd::Ledger(ToGroup::Account(account(0, 0))));
    let many = vec![(0, 1); OFFER_ITEMS_MAX + 10];
    apply(&mut group, batch(1, 0, 1, &[&[(0, 2), (0, 3)], &many[..]].concat()));
    let body = |offer: Option<Offer>| offer.map(|offer| (offer.first_pos, offer.body));
    let Some((0, OfferBody::Items(items))) = body(group.offer(0, 0, true)) else { panic!("two weights are no block") };
    assert_eq!((items.len(), items[1].delta, items[1].idx), (OFFER_ITEMS_MAX, 3, 1));
    let block = OfferBody::Block { count: OFFER_ITEMS_MAX as u64 + 10, delta: 1 };
    assert_eq!(body(group.offer(0, 2, true)), Some((2, block)));
    let Some((12, OfferBody::Items(items))) = body(group.offer(0, 12, true)) else { panic!("few enough for items") };
    assert_eq!(items.len(), OFFER_ITEMS_MAX);
    let Some((5, OfferBody::Items(items))) = body(group.detail(0, 5, 9)) else { panic!("no detail") };
    assert_eq!(items.iter().map(|item| item.idx).collect::<Vec<_>>(), [5, 6, 7, 8]);
    let block = OfferBody::Block { count: OFFER_ITEMS_MAX as u64, delta: 1 };
    assert_eq!(body(group.offer(0, 12, false)), Some((12, block)), "nobody wants names");
    assert_eq!(group.offer(0, OFFER_ITEMS_MAX as u64 + 12, true), None);
}

/// A small generator, so that a run is a function of its seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 33) % sides
    }
}

/// Items of a batch: slot, delta.
type Items = Vec<(u32, u64)>;

/// The expected state of a group, kept by simpler means.
#[derive(Default)]
struct Oracle {
    cells: BTreeMap<u32, GCounter<u8>>,
    batches: BTreeMap<(u128, u8), Vec<Items>>,
    fenced: BTreeSet<(u128, u8)>,
    /// Items answered as pending and not placed since.
    pending: BTreeMap<(u128, u8, u64), BTreeSet<u32>>,
    places: BTreeMap<(u128, u8, u64, u32), Place>,
    /// Weight placed, by slot.
    placed_weight: BTreeMap<u32, u64>,
    messages: Vec<ToGroup>,
    nonce: u64,
}

const KEYS: usize = 5;
const GUARDED: usize = 2;

impl Oracle {
    /// A command: something new, a repetition, or something out of order.
    fn command(&mut self, dice: &mut Dice, group: &Group) -> GroupCmd {
        let client = u128::from(dice.roll(3));
        let lane = dice.roll(LANES.into()) as u8;
        match dice.roll(12) {
            0..5 => {
                let items: Vec<_> =
                    (0..1 + dice.roll(6)).map(|_| (dice.roll(KEYS as u64) as u32, 1 + dice.roll(4))).collect();
                let next = self.batches.get(&(client, lane)).map_or(0, Vec::len) as u64 + 1;
                batch(client, lane, next + dice.roll(20) / 19, &items)
            }
            5 => {
                let known = self.batches.get(&(client, lane)).map_or(0, Vec::len) as u64;
                let seq = 1 + dice.roll(known.max(1));
                batch(client, lane, seq, &[(0, 1)])
            }
            6 if dice.roll(20) == 0 => GroupCmd::Fence { client: ClientId(client), lane, since: 0 },
            7 if dice.roll(5) == 0 => {
                self.nonce += 1;
                GroupCmd::Boot { nonce: self.nonce, lanes: LANES }
            }
            7 => GroupCmd::Ledger(ToGroup::Confirmed {
                group: id(),
                start: Start { number: 0, nonce: self.nonce },
                accounts: Vec::new(),
                resets: 0,
            }),
            8 if !self.messages.is_empty() => {
                let at = dice.roll(self.messages.len() as u64) as usize;
                GroupCmd::Ledger(self.messages[at].clone())
            }
            9 | 10 => self.message(dice, group, true),
            _ => self.message(dice, group, false),
        }
    }

    /// A message as a ledger may send it: grants and recalls are cumulative, places never contradict each other.
    fn message(&mut self, dice: &mut Dice, group: &Group, rights: bool) -> GroupCmd {
        let key = dice.roll(GUARDED as u64) as usize;
        let guard = group.guards().iter().find(|guard| guard.counter == name(key));
        let message = match guard {
            Some(guard) if !rights => {
                let from = guard.placed_upto();
                let to = guard.next_pos();
                let first = from + dice.roll((to - from).max(1));
                let count = 1 + dice.roll(4);
                let place = match dice.roll(3) {
                    0 => Place::Number(1_000 + first),
                    _ => Place::Counted,
                };
                placed(key, &[(first, count.min(to.saturating_sub(first)), place)])
            }
            guard => {
                let granted = guard.map_or(0, |guard| guard.granted);
                let recall = dice.roll(4) == 0;
                let more = if recall { 0 } else { dice.roll(12) };
                let acked_spent = guard.map_or(0, |guard| guard.spent);
                ToGroup::Account(Account { recall, acked_spent, ..account(key, granted + more) })
            }
        };
        self.messages.push(message.clone());
        GroupCmd::Ledger(message)
    }

    /// Checks and notes a command's effects.
    fn check(&mut self, group: &Group, cmd: &GroupCmd, effects: &[Effect]) {
        for effect in effects {
            match effect {
                Effect::Acked { client, lane, seq, pending, .. } => {
                    self.on_acked(cmd, (client.0, *lane), *seq, pending)
                }
                Effect::Placed { client, lane, seq, idx, place } => {
                    self.on_placed((client.0, *lane, *seq, *idx), *place, matches!(cmd, GroupCmd::Batch(_)))
                }
                Effect::Refused { client, lane, error, .. } => match error {
                    BatchError::Gap { .. } => {}
                    BatchError::Fenced { .. } => assert!(self.fenced.contains(&(client.0, *lane))),
                    other => panic!("{other}"),
                },
                Effect::Fenced { client, lane, last_seq } => {
                    self.fenced.insert((client.0, *lane));
                    assert_eq!(*last_seq, self.batches.get(&(client.0, *lane)).map_or(0, Vec::len) as u64);
                }
                Effect::Forgotten { .. } => panic!("nobody is that old"),
                Effect::Confirmed | Effect::FencedOut | Effect::Spread | Effect::Closed { .. } => {}
                Effect::Began { .. } | Effect::Settled { .. } => {}
                Effect::Compacted => panic!("nothing here is over"),
                Effect::Ids { .. } => panic!("nothing here has an id"),
            }
        }
        self.check_sums(group);
    }

    fn on_acked(&mut self, cmd: &GroupCmd, stream: (u128, u8), seq: u64, pending: &[u32]) {
        let GroupCmd::Batch(batch) = cmd else { panic!("an answer to {cmd:?}") };
        assert_eq!((batch.client.0, batch.lane, batch.seq), (stream.0, stream.1, seq));
        let batches = self.batches.entry(stream).or_default();
        let pending: BTreeSet<u32> = pending.iter().copied().collect();
        if seq as usize <= batches.len() {
            let of_batch = (stream.0, stream.1, seq, 0)..=(stream.0, stream.1, seq, u32::MAX);
            let told =
                self.places.range(of_batch).filter(|(_, place)| **place != Place::Counted).map(|(item, _)| item.3);
            let mut expected = self.pending.get(&(stream.0, stream.1, seq)).cloned().unwrap_or_default();
            expected.extend(told);
            assert_eq!(expected, pending, "retry: what is queued, and what gets its place right behind");
            return;
        }
        assert!(seq as usize == batches.len() + 1 && !self.fenced.contains(&stream), "applied out of order");
        for item in &batch.items {
            let cell = self.cells.entry(item.slot).or_default();
            cell.apply(cell.inc_many(stream.1, item.delta));
        }
        batches.push(batch.items.iter().map(|item| (item.slot, item.delta)).collect());
        self.pending.insert((stream.0, stream.1, seq), pending);
    }

    fn on_placed(&mut self, item: (u128, u8, u64, u32), place: Place, is_retry: bool) {
        let (client, lane, seq, idx) = item;
        let was_pending = self.pending.get_mut(&(client, lane, seq)).is_some_and(|items| items.remove(&idx));
        assert!(was_pending != is_retry, "an item got a place twice, or one that was not queued: {item:?}");
        if was_pending {
            let (slot, delta) = self.batches[&(client, lane)][seq as usize - 1][idx as usize];
            *self.placed_weight.entry(slot).or_default() += delta;
        }
        assert_eq!(*self.places.entry(item).or_insert(place), place, "a decision changed");
    }

    /// Components equal the oracle; base + spent + placed + queued is the component (I4, I9).
    fn check_sums(&self, group: &Group) {
        for slot in 0..group.table().len() {
            let read = self.cells.get(&slot).map(|cell| cell.read().to_string()).unwrap_or("0".into());
            assert_eq!(read, group.sum(slot).to_string(), "components of slot {slot}");
        }
        for guard in group.guards() {
            let queued: u64 = guard.queue.items().filter(|item| !item.placed).map(|item| item.delta).sum();
            let placed = self.placed_weight.get(&guard.slot).copied().unwrap_or(0);
            assert_eq!(guard.base + guard.spent + placed + queued, group.sum(guard.slot), "conservation");
        }
    }
}

/// An ordered store that may have got only a part of a checkpoint.
#[derive(Default)]
struct Store(BTreeMap<Vec<u8>, Vec<u8>>);

impl Store {
    fn put(&mut self, rows: impl IntoIterator<Item = Row>) {
        for (key, value) in rows {
            if value.is_empty() {
                self.0.remove(&key)
            } else {
                self.0.insert(key, value)
            };
        }
    }

    fn load(&self) -> Option<Group> {
        Group::load(config(), self.0.clone()).unwrap()
    }
}

fn run(seed: u64, steps: usize) {
    let mut dice = Dice(seed);
    let mut group = started(KEYS);
    let mut oracle = Oracle { nonce: NONCE, ..Oracle::default() };
    let mut store = Store::default();
    let mut log: Vec<GroupEntry> = Vec::new();
    let mut copy: Option<Group> = None;
    // Otherwise the first checkpoint may be one that is not completed.
    if dice.roll(2) == 0 {
        store.put(group.checkpoint());
    }
    for _ in 0..steps {
        let cmd = oracle.command(&mut dice, &group);
        let entry = entry(vec![cmd.clone()]);
        let effects = apply_entry(&mut group, &entry);
        oracle.check(&group, &cmd, &effects);
        if let Some(copy) = &mut copy {
            assert_eq!(apply_entry(copy, &entry), effects, "the same entries give the same effects");
            assert_eq!(dump(copy), dump(&group));
        }
        log.push(entry);
        match dice.roll(30) {
            0 => {
                store.put(group.checkpoint());
                log.clear();
                let loaded = store.load().unwrap();
                assert_eq!(dump(&loaded), dump(&group), "a checkpoint is what it was made of");
                copy = Some(loaded);
            }
            1 => {
                let rows = group.checkpoint();
                let kept = dice.roll(rows.len() as u64) as usize;
                store.put(rows.into_iter().take(kept));
                let mut loaded = store.load().unwrap_or_else(|| started(KEYS));
                log.iter().for_each(|entry| drop(apply_entry(&mut loaded, entry)));
                assert_eq!(dump(&loaded), dump(&group), "an unfinished checkpoint is not seen");
                (group, copy) = (loaded, None);
            }
            _ => {}
        }
    }
}

/// It crashed, and makes the next one before it has heard of its log again as far as then.
#[test]
fn what_an_unfinished_checkpoint_left_of_blocks_that_are_not_there_again_is_no_hindrance() {
    let mut group = started(KEYS);
    let mut store = Store::default();
    store.put(group.checkpoint());
    // Further blocks of names, of components and of streams.
    let new_cells: Vec<CellId> = (KEYS..KEYS + 600).map(|key| name(key).total()).collect();
    let items: Vec<(u32, u64)> = (0..KEYS as u32 + 600).map(|slot| (slot, 1)).collect();
    let streams = (0..200).map(|client| batch(client, 0, 1, &items[client as usize..][..400])).collect();
    let grown = GroupEntry { first_new_slot: KEYS as u32, new_cells, ..entry(streams) };
    apply_entry(&mut group, &grown);
    let full = dump(&group);
    let rows = group.checkpoint();
    for kept in 0..rows.len() {
        let mut store = Store(store.0.clone());
        store.put(rows.iter().take(kept).cloned());
        let mut group = store.load().expect("the first is complete");
        let before = dump(&group);
        store.put(group.checkpoint());
        assert_eq!(dump(&store.load().expect("the second is complete")), before, "{kept} rows were left");
        apply_entry(&mut group, &grown);
        let third = group.checkpoint();
        third_may_stop_anywhere(&store, &third, &before, &full);
        store.put(third);
        assert_eq!(dump(&store.load().expect("the third is complete")), full, "{kept} rows were left");
    }
}

/// Nothing of its rows is seen once another checkpoint is complete, though that has the same number and another state.
fn third_may_stop_anywhere(store: &Store, rows: &[Row], before: &str, full: &str) {
    for kept in 0..=rows.len() {
        let mut store = Store(store.0.clone());
        store.put(rows.iter().take(kept).cloned());
        let mut group = store.load().expect("the second is complete");
        assert_eq!(dump(&group), if kept < rows.len() { before } else { full });
        if kept < rows.len() {
            apply(&mut group, batch(900, 0, 1, &[(0, 2)]));
        }
        let now = dump(&group);
        store.put(group.checkpoint());
        assert_eq!(dump(&store.load().expect("the next is complete")), now, "{kept} rows were left");
    }
}

/// A consumer of the feed.
#[derive(Default)]
struct Consumer {
    /// The counters that it wants, if not all.
    scope: Option<Scope>,
    cursor: LogIndex,
    walk: Option<FeedWalk>,
    /// Slots below are named, or not wanted.
    named: u32,
    names: BTreeMap<u32, CellId>,
    components: BTreeMap<(u32, u8), u64>,
}

impl Consumer {
    fn pull(&self, bytes_max: u32) -> FeedPull {
        FeedPull {
            group: id(),
            cursor: self.cursor,
            walk: self.walk,
            slots_known: self.named,
            bytes_max,
            ..FeedPull::default()
        }
    }

    fn follow(&mut self, group: &mut Group, bytes_max: u32) {
        let pull = self.pull(bytes_max);
        let Some(scope) = &mut self.scope else {
            let chunk = group.tell(&pull);
            let slots = chunk.first_slot..;
            let named = chunk.first_slot + chunk.cells.len() as u32;
            return self.take(chunk, slots, named);
        };
        let told = group.tell_in(&pull, scope);
        let message = FromGroup::FedIn(told.clone());
        assert_eq!(wire::decode(&wire::encode(&message)), Ok(message));
        assert!(told.slots.iter().all(|&slot| scope.has(slot, group.table())), "named, and not wanted");
        assert!(told.chunk.components.iter().all(|&(slot, ..)| scope.has(slot, group.table())), "told, and not wanted");
        self.take(told.chunk, told.slots, told.named);
    }

    fn take(&mut self, chunk: FeedChunk, slots: impl IntoIterator<Item = u32>, named: u32) {
        assert_eq!((chunk.base, chunk.first_slot), (self.cursor, self.named));
        assert!(self.cursor != chunk.upto || self.walk != chunk.walk || self.named < named, "it goes on");
        self.names.extend(slots.into_iter().zip(chunk.cells));
        self.named = named;
        (self.cursor, self.walk) = (chunk.upto, chunk.walk);
        for (slot, lane, value) in chunk.components {
            assert!(self.names.contains_key(&slot), "a component before its name");
            let known = self.components.entry((slot, lane)).or_default();
            assert!(*known <= value, "a component went back");
            *known = value;
        }
    }
}

proptest! {
    #[test]
    fn exactly_once_one_way_out_conserved_and_recoverable(seed: u64) {
        run(seed, 400);
    }

    #[test]
    fn a_feed_misses_nothing_that_is_wanted_and_tells_nothing_else(
        seed: u64, bytes_max in 0u32..3_000, cells in 1u64..200,
        wanted in prop::option::of(prop::collection::vec((0usize..200, 0usize..200), 0..4)),
    ) {
        let mut dice = Dice(seed);
        let mut group = started(0);
        if dice.roll(2) == 0 {
            group.tells_from_here();
        }
        let span = |&(from, before): &(usize, usize)| KeySpan { from: Some(name(from)), before: (before < 190).then(|| name(before)) };
        let scope = wanted.as_ref().map(|wanted| Scope::new(wanted.iter().map(span).collect()));
        let mut consumer = Consumer { scope: scope.clone(), ..Consumer::default() };
        let mut seqs = [0; 3];
        for _ in 0..60 {
            let first_new_slot = group.table().len();
            let new = first_new_slot..(first_new_slot + dice.roll(20) as u32).min(cells as u32);
            let new_cells: Vec<_> = new.map(|key| name(key as usize).total()).collect();
            let slots = u64::from(first_new_slot) + new_cells.len() as u64;
            let mut cmds = Vec::new();
            if slots > 0 {
                let lane = dice.roll(3) as u8;
                seqs[usize::from(lane)] += 1;
                let items: Vec<_> = (0..1 + dice.roll(30)).map(|_| (dice.roll(slots) as u32, 1)).collect();
                cmds.push(batch(1, lane, seqs[usize::from(lane)], &items));
            }
            apply_entry(&mut group, &GroupEntry { first_new_slot, new_cells, ..entry(cmds) });
            for _ in 0..dice.roll(4) {
                if group.has_feed(&consumer.pull(bytes_max)) {
                    consumer.follow(&mut group, bytes_max);
                }
            }
        }
        let mut pulls = 0;
        while group.has_feed(&consumer.pull(bytes_max)) {
            consumer.follow(&mut group, bytes_max);
            pulls += 1;
            prop_assert!(pulls < 5_000, "the feed makes no progress");
        }
        let mut scope = scope;
        let mut is_wanted = |slot: &u32| scope.as_mut().is_none_or(|scope| scope.has(*slot, group.table()));
        let slots: Vec<u32> = (0..group.table().len()).filter(&mut is_wanted).collect();
        let expected: BTreeMap<_, _> = slots.iter().flat_map(|slot| (0..LANES).map(move |lane| (*slot, lane)))
            .map(|(slot, lane)| ((slot, lane), group.component(slot, lane))).filter(|&(_, value)| value > 0).collect();
        prop_assert_eq!(&consumer.components, &expected);
        let names: BTreeMap<u32, CellId> = slots.iter().map(|&slot| (slot, group.table().name(slot))).collect();
        prop_assert_eq!((consumer.named, &consumer.names), (group.table().len(), &names));
        prop_assert_eq!(consumer.cursor, group.applied());
    }

    #[test]
    fn corrupt_rows_are_refused_or_another_checkpoint(seed: u64, at: usize, byte: usize, xor in 1u8..) {
        let mut dice = Dice(seed);
        let mut group = started(KEYS);
        let mut oracle = Oracle { nonce: NONCE, ..Oracle::default() };
        for _ in 0..100 {
            let cmd = oracle.command(&mut dice, &group);
            apply(&mut group, cmd);
        }
        let mut rows = group.checkpoint();
        rows.sort();
        let at = at % rows.len();
        let byte = byte % rows[at].1.len();
        rows[at].1[byte] ^= xor;
        if let Ok(Some(mut loaded)) = Group::load(config(), rows) {
            apply(&mut loaded, GroupCmd::Boot { nonce: 1, lanes: LANES });
            (0..20).for_each(|_| drop(apply(&mut loaded, oracle.command(&mut dice, &group))));
        }
    }
}

#[test]
fn a_feed_passes_by_what_is_not_wanted_in_steps_and_comes_to_its_end() {
    let mut group = started(0);
    let count = 3 * FEED_PASSED_BY_MAX + 7;
    let step = 8_000;
    for first_new_slot in (0..count).step_by(step as usize) {
        let new = first_new_slot..(first_new_slot + step).min(count);
        let new_cells =
            new.map(|key| CounterName::new("test", format!("{key:06}").as_bytes()).unwrap().total()).collect();
        apply_entry(&mut group, &GroupEntry { first_new_slot, new_cells, ..entry(Vec::new()) });
    }
    apply_entry(&mut group, &entry(vec![batch(1, 0, 1, &[(3, 5), (count - 1, 7)])]));
    let last = CounterName::new("test", format!("{:06}", count - 1).as_bytes()).unwrap();
    let mut consumer = Consumer {
        scope: Some(Scope::new(vec![KeySpan { from: Some(last.clone()), before: None }])),
        ..Consumer::default()
    };
    let mut chunks = 0;
    while group.has_feed(&consumer.pull(1_000)) {
        let before = consumer.named;
        consumer.follow(&mut group, 1_000);
        assert!(consumer.named - before <= FEED_PASSED_BY_MAX + 1, "no more in one chunk");
        chunks += 1;
    }
    assert_eq!((chunks, consumer.named), (4, count));
    assert_eq!(
        (consumer.names, consumer.components),
        ([(count - 1, last.total())].into(), [((count - 1, 0), 7)].into())
    );
}

#[test]
fn a_start_adds_the_valves_that_it_asks_for_and_takes_none_away() {
    let start = |nonce, lanes| GroupCmd::Boot { nonce, lanes };
    let confirm = |number, nonce| {
        let start = Start { number, nonce };
        GroupCmd::Ledger(ToGroup::Confirmed { group: id(), start, accounts: Vec::new(), resets: 0 })
    };
    // Replicas with different configurations: the log's value holds for both.
    let replicas = [1, LANES].map(|lanes| {
        let mut group = Group::new(GroupConfig { lanes, ..config() });
        let cmds = vec![start(1, 2), confirm(1, 1), batch(1, 0, 1, &[(0, 5)]), batch(2, 1, 1, &[(0, 7)])];
        apply_entry(&mut group, &GroupEntry { new_cells: vec![name(0).total()], ..entry(cmds) });
        let refused = [Effect::Refused {
            client: ClientId(3),
            lane: 2,
            seq: 1,
            error: BatchError::UnknownLane { lane: 2, lanes: 2 },
        }];
        assert_eq!(apply(&mut group, batch(3, 2, 1, &[(0, 9)])), refused);
        apply(&mut group, start(2, 4));
        apply(&mut group, confirm(2, 2));
        apply(&mut group, batch(3, 2, 1, &[(0, 9)]));
        apply(&mut group, start(3, 1));
        apply(&mut group, confirm(3, 3));
        apply(&mut group, batch(4, 3, 1, &[(0, 11)]));
        assert_eq!(group.lanes(), 4);
        assert_eq!((0..4).map(|lane| group.component(0, lane)).collect::<Vec<_>>(), [5, 7, 9, 11]);
        group
    });
    assert_eq!(dump(&replicas[0]), dump(&replicas[1]));
    let [mut group, _] = replicas;
    // A request to end a stream of a missing valve is answered, and the stream stays ended.
    let fenced = [Effect::Fenced { client: ClientId(5), lane: 4, last_seq: 0 }];
    assert_eq!(apply(&mut group, GroupCmd::Fence { client: ClientId(5), lane: 4, since: 0 }), fenced);
    let mut rows: Vec<_> = group.checkpoint().into_iter().collect();
    rows.sort();
    let loaded = Group::load(GroupConfig { lanes: 1, ..config() }, rows).unwrap().unwrap();
    assert_eq!((loaded.lanes(), dump(&loaded)), (4, dump(&group)));
    let mut group = loaded;
    apply(&mut group, start(4, u8::MAX));
    assert_eq!(group.lanes(), LANES_MAX, "no log makes more");
    apply(&mut group, confirm(4, 4));
    let late = [Effect::Refused { client: ClientId(5), lane: 4, seq: 1, error: BatchError::Fenced { last: 0 } }];
    assert_eq!(apply(&mut group, batch(5, 4, 1, &[(0, 3)])), late);
}

#[test]
fn foreign_checkpoints_are_refused() {
    let mut group = started(3);
    apply(&mut group, batch(1, 0, 1, &[(0, 1)]));
    let rows = group.checkpoint();
    let other = GroupConfig { id: GroupId { incarnation: 6, ..id() }, ..config() };
    let error = Group::load(other, rows.clone().into_iter().rev()).unwrap_err();
    assert!(matches!(error, LoadError::Foreign { .. }), "{error}");
    assert!(Group::load(config(), []).unwrap().is_none());
    let mut rows: Vec<_> = rows.into_iter().collect();
    rows.sort();
    rows.swap(1, 2);
    assert!(matches!(Group::load(config(), rows.clone()), Err(LoadError::Order) | Err(LoadError::Malformed { .. })));
    rows.truncate(1);
    assert!(matches!(Group::load(config(), rows), Err(LoadError::Incomplete { .. })));
}

fn begun(account: Account) -> GroupCmd {
    GroupCmd::Ledger(ToGroup::Begun { opened: Opened { account, leased: false, closed_spent: 0 }, won: Vec::new() })
}

fn generations(begun: &[(usize, u32)]) -> GroupCmd {
    GroupCmd::Ledger(page(0, 0, begun))
}

/// All resets between two numbers.
fn page(after: u64, upto: u64, begun: &[(usize, u32)]) -> ToGroup {
    ToGroup::Resets { after, upto, begun: begun.iter().map(|&(key, of)| (name(key), of)).collect() }
}

/// Sums of the cells of a counter's generations.
fn sums(group: &Group, key: usize, upto: u32) -> Vec<u64> {
    let sum = |generation| group.table().find(&name(key).total_of(generation)).map_or(0, |slot| group.sum(slot));
    (0..=upto).map(sum).collect()
}

#[test]
fn a_counter_that_began_again_counts_in_its_present_generation_whatever_cell_a_batch_names() {
    let mut group = started(2);
    apply(&mut group, batch(1, 0, 1, &[(0, 5), (1, 7)]));
    apply(&mut group, generations(&[(0, 2), (9, 1)]));
    // Proposed before the group heard: by the slot it had, and as the first to name a counter.
    apply(&mut group, batch(1, 0, 2, &[(0, 3), (1, 1)]));
    let late = GroupEntry {
        first_new_slot: group.table().len(),
        new_cells: vec![name(9).total()],
        ..entry(vec![batch(1, 0, 3, &[(group.table().len(), 4)])])
    };
    apply_entry(&mut group, &late);
    assert_eq!((sums(&group, 0, 2), sums(&group, 1, 0), sums(&group, 9, 1)), (vec![5, 0, 3], vec![8], vec![0, 4]));
    // Resets that were heard before, or of an earlier generation, change nothing; twice over, all old cells lead to the newest.
    assert!(!group.would_change(&page(0, 0, &[(0, 1), (9, 1)])));
    apply(&mut group, generations(&[(0, 1), (9, 1)]));
    assert_eq!((group.generation(&name(0)), group.generation(&name(9)), group.table().len()), (2, 1, 5));
    apply(&mut group, generations(&[(0, 3)]));
    let second = group.table().find(&name(0).total_of(2)).unwrap();
    apply(&mut group, batch(1, 0, 4, &[(0, 1), (second, 1)]));
    assert_eq!(sums(&group, 0, 3), [5, 0, 3, 2]);
    assert_eq!(
        acked(&apply(&mut group, batch(1, 0, 2, &[(0, 3), (1, 1)]))),
        [] as [u32; 0],
        "counted once all the same"
    );
    assert_eq!(sums(&group, 0, 3), [5, 0, 3, 2]);
    let mut store = Store::default();
    store.put(group.checkpoint());
    let mut loaded = store.load().unwrap();
    assert_eq!(dump(&loaded), dump(&group));
    apply(&mut loaded, batch(1, 0, 5, &[(0, 10), (second, 10)]));
    assert_eq!(
        (sums(&loaded, 0, 3), loaded.generation(&name(0)), loaded.generation(&name(1))),
        (vec![5, 0, 3, 22], 3, 0)
    );
}

/// Every format of a checkpoint holds the same group.
#[test]
fn generations_are_read_from_names_as_from_the_list_of_older_formats() {
    let mut group = started(3);
    for round in 1..4 {
        let new_cells = vec![name(1).half_of(Half::Down, round - 1), name(7 + round as usize).total_of(round)];
        let named = GroupEntry { first_new_slot: group.table().len(), new_cells, ..entry(vec![]) };
        apply_entry(&mut group, &named);
        apply(&mut group, generations(&[(0, 2 * round), (1, round)]));
    }
    let (present, _) = group.generations.all();
    let slot = |counter: &CounterName, generation| group.table().find_total(counter, generation).unwrap();
    let listed = present.iter().map(|(counter, generation)| {
        (counter.clone(), Present { generation: *generation, slot: slot(counter, *generation) })
    });
    let of_list = Generations::load(SavedGenerations::All(listed.collect()), group.table()).unwrap();
    let ahead = SavedGenerations::Ahead(group.generations.save_ahead());
    let of_names = Generations::load(ahead, group.table()).unwrap();
    assert_eq!((of_list.all(), of_names.all()), (group.generations.all(), group.generations.all()));
    assert_eq!(of_names.save_ahead().len(), 3, "three cells were named and never began");
    let foreign = SavedGenerations::Ahead(vec![(name(2), Present { generation: 1, slot: 2 })]);
    assert!(Generations::load(foreign, group.table()).is_none());
}

/// A guard holds back a generation with a cell that is named already.
#[test]
fn a_cell_named_ahead_of_its_generation_outlives_a_checkpoint() {
    let mut group = started(1);
    apply(&mut group, GroupCmd::Ledger(ToGroup::Account(account(0, 3))));
    let named = |group: &Group, generation| GroupEntry {
        first_new_slot: group.table().len(),
        new_cells: vec![name(0).total_of(generation)],
        ..entry(vec![generations(&[(0, generation)])])
    };
    let early = named(&group, 1);
    apply_entry(&mut group, &early);
    assert_eq!(group.generation(&name(0)), 0, "it waits for its account");
    let mut store = Store::default();
    store.put(group.checkpoint());
    let mut loaded = store.load().unwrap();
    assert_eq!(dump(&loaded), dump(&group));
    for group in [&mut group, &mut loaded] {
        let skipped = named(group, 2);
        apply_entry(group, &skipped);
        apply(group, begun(Account { epoch: 3, ..account(0, 4) }));
        apply(group, batch(1, 0, 1, &[(0, 1), (1, 2), (2, 4)]));
        assert_eq!((sums(group, 0, 2), group.generation(&name(0))), (vec![0, 0, 7], 2), "whatever cell is named");
    }
    assert_eq!(dump(&loaded), dump(&group));
    store.put(loaded.checkpoint());
    assert_eq!(dump(&store.load().unwrap()), dump(&group));
}

#[test]
fn many_lives_take_no_room_in_the_row_that_completes_a_checkpoint() {
    let mut group = started(0);
    let closing = |group: &mut Group| group.checkpoint().last().map(|(_, value)| value.len()).unwrap();
    let empty = closing(&mut group);
    for first in (0..50_000).step_by(1_000) {
        let some: Vec<(usize, u32)> = (first..first + 1_000).map(|key| (key, 1 + (key % 2) as u32)).collect();
        apply(&mut group, generations(&some));
    }
    assert_eq!(group.lives(), 50_000);
    assert!(closing(&mut group) < empty + 16, "{} bytes, of none {empty}", closing(&mut group));
}

#[test]
fn a_guarded_counter_begins_again_with_its_account() {
    let mut group = started(1);
    apply(&mut group, GroupCmd::Ledger(ToGroup::Account(account(0, 3))));
    assert_eq!(acked(&apply(&mut group, batch(1, 0, 1, &[(0, 3), (0, 5)]))), [1]);
    apply(&mut group, generations(&[(0, 1)]));
    assert_eq!(group.generation(&name(0)), 0, "it waits for the account");
    let later = Account { epoch: 2, ..account(0, 4) };
    assert!(!group.would_change(&ToGroup::Account(later.clone())), "not every message about it");
    apply(&mut group, GroupCmd::Ledger(ToGroup::Account(later.clone())));
    assert_eq!(group.guards()[0].epoch, 1);
    let effects = apply(&mut group, begun(later));
    assert_eq!(effects.len(), 2, "it began again, and what was queued is counted in what is over");
    let guard = &group.guards()[0];
    assert_eq!((guard.epoch, guard.base, guard.available(), group.generation(&name(0))), (2, 0, 4, 1));
    assert_eq!(acked(&apply(&mut group, batch(1, 0, 2, &[(0, 3), (0, 2)]))), [1]);
    assert_eq!((sums(&group, 0, 1), group.guards()[0].spent), (vec![8, 5], 3));
    assert_eq!(group.guard_of(&name(0)), Some(0));
    let mut store = Store::default();
    store.put(group.checkpoint());
    assert_eq!(dump(&store.load().unwrap()), dump(&group));
}

#[test]
fn what_counted_without_a_guard_since_it_began_again_is_the_base_of_the_guard() {
    let mut group = started(1);
    apply(&mut group, batch(1, 0, 1, &[(0, 9)]));
    apply(&mut group, generations(&[(0, 1)]));
    apply(&mut group, batch(1, 0, 2, &[(0, 2)]));
    apply(&mut group, GroupCmd::Ledger(ToGroup::Account(account(0, 1))));
    assert!(group.guards().is_empty(), "an account of what is over");
    apply(&mut group, GroupCmd::Ledger(ToGroup::Account(Account { epoch: 2, ..account(0, 1) })));
    assert_eq!((group.guards()[0].base, sums(&group, 0, 1)), (2, vec![9, 2]));
}

#[test]
fn a_new_group_counts_nothing_before_it_has_heard_of_every_reset() {
    let mut group = Group::new(config());
    apply(&mut group, GroupCmd::Boot { nonce: NONCE, lanes: LANES });
    let confirmed = |resets| {
        let start = Start { number: 1, nonce: NONCE };
        ToGroup::Confirmed { group: id(), start, accounts: Vec::new(), resets }
    };
    apply(&mut group, GroupCmd::Ledger(page(0, 2, &[(0, 2)])));
    assert!(!group.would_change(&confirmed(3)));
    apply(&mut group, GroupCmd::Ledger(confirmed(3)));
    assert!(!group.is_serving());
    apply(&mut group, GroupCmd::Ledger(page(2, 3, &[(1, 1)])));
    apply(&mut group, GroupCmd::Ledger(confirmed(3)));
    assert!(group.is_serving());
}

#[test]
fn a_group_hears_of_resets_in_their_order_and_knows_where_a_gap_is() {
    let mut group = started(4);
    let mut hear = |message: ToGroup| {
        let would_change = group.would_change(&message);
        apply(&mut group, GroupCmd::Ledger(message));
        let begun: Vec<u32> = (0..4).map(|key| group.generation(&name(key))).collect();
        (would_change, group.heard(), begun)
    };
    assert_eq!(hear(page(0, 2, &[(0, 1), (1, 1)])), (true, 2, vec![1, 1, 0, 0]));
    // The resets before it are lost: the counter begins again all the same.
    assert_eq!(hear(page(5, 6, &[(3, 1)])), (true, 2, vec![1, 1, 0, 1]));
    assert_eq!(hear(page(5, 6, &[(3, 1)])), (false, 2, vec![1, 1, 0, 1]), "again");
    // A message of another aggregator, which tells fewer resets at once.
    assert_eq!(hear(page(1, 4, &[(0, 2)])), (true, 4, vec![2, 1, 0, 1]));
    assert_eq!(hear(page(0, 3, &[(1, 1)])), (false, 4, vec![2, 1, 0, 1]));
    assert_eq!(hear(page(4, 6, &[(2, 1), (3, 1)])), (true, 6, vec![2, 1, 1, 1]));
    assert_eq!(hear(page(6, 9, &[])), (true, 9, vec![2, 1, 1, 1]), "the others began again since");
    // It is in the log: it outlives checkpoints and compactions, and consumers of the feed are told, though nothing else is new.
    let known = FeedPull { group: id(), cursor: group.applied(), slots_known: 99, heard: 8, ..FeedPull::default() };
    assert!(group.has_feed(&known) && !group.has_feed(&FeedPull { heard: 9, ..known }));
    assert_eq!(group.tell(&FeedPull { slots_known: 0, ..known }).heard, 9);
    apply(&mut group, GroupCmd::Compact { nonce: 5 });
    let mut store = Store::default();
    store.put(group.checkpoint());
    assert_eq!((group.heard(), store.load().unwrap().heard()), (9, 9));
}

/// The deliberate bug: lost resets are taken for heard.
#[cfg(feature = "teeth")]
#[test]
fn a_gap_that_is_taken_for_heard_is_noticed() {
    use tidemark_types::teeth::{Bug, leave_out};
    let mut group = started(2);
    leave_out(Some(Bug::GapHeard));
    apply(&mut group, GroupCmd::Ledger(page(5, 6, &[(1, 1)])));
    leave_out(None);
    assert_eq!((group.heard(), group.generation(&name(0))), (6, 0));
}

// ---- streams are forgotten ----

const KEPT: u32 = 3;

fn forgetful(cells: usize) -> Group {
    let mut group = started(cells);
    group.config.streams_kept = KEPT;
    group
}

fn since(cmd: GroupCmd, since: u32) -> GroupCmd {
    match cmd {
        GroupCmd::Batch(batch) => GroupCmd::Batch(Batch { since, ..batch }),
        GroupCmd::Fence { client, lane, .. } => GroupCmd::Fence { client, lane, since },
        other => other,
    }
}

fn grow(group: &mut Group, ages: u32) {
    (0..ages).for_each(|_| assert_eq!(apply(group, GroupCmd::Age(group.age() + 1)), []));
}

#[test]
fn a_stream_is_forgotten_when_nothing_comes_of_it_and_then_takes_nothing_more() {
    let mut group = forgetful(1);
    let refused =
        |effects: Vec<Effect>| matches!(effects[..], [Effect::Refused { error: BatchError::Expired { .. }, .. }]);
    apply(&mut group, batch(1, 0, 1, &[(0, 1)]));
    apply(&mut group, batch(2, 0, 1, &[(0, 1)]));
    grow(&mut group, KEPT);
    assert_eq!(apply(&mut group, GroupCmd::Age(KEPT)), [], "a second copy of an age is none");
    assert_eq!((group.age(), group.streams()), (KEPT, 2));
    assert_eq!(acked(&apply(&mut group, batch(2, 0, 2, &[(0, 1)]))), [0_u32; 0]);
    grow(&mut group, 1);
    assert_eq!(group.streams(), 1, "the other one was used since");
    assert!(refused(apply(&mut group, batch(1, 0, 1, &[(0, 1)]))), "a late copy");
    assert!(refused(apply(&mut group, batch(1, 0, 2, &[(0, 1)]))), "a client that was away");
    assert!(refused(apply(&mut group, batch(2, 0, 3, &[(0, 1)]))), "one that is remembered takes nothing new either");
    assert_eq!(acked(&apply(&mut group, batch(2, 0, 2, &[(0, 1)]))), [0_u32; 0], "but is answered");
    let fence = |client| GroupCmd::Fence { client: ClientId(client), lane: 0, since: 0 };
    assert_eq!(apply(&mut group, fence(1)), [Effect::Forgotten { client: ClientId(1), lane: 0 }]);
    assert_eq!(apply(&mut group, fence(2)), [Effect::Fenced { client: ClientId(2), lane: 0, last_seq: 2 }]);
    let another = since(batch(3, 1, 1, &[(0, 5)]), group.age());
    assert_eq!(acked(&apply(&mut group, another)), [0_u32; 0]);
    assert_eq!(
        (group.streams(), group.streams.numbers(), group.sum(0)),
        (2, 2, 8),
        "it has the number of the one forgotten"
    );
}

#[test]
fn a_stream_with_increments_that_wait_is_remembered_until_they_have_their_places_for_long() {
    let mut group = forgetful(1);
    apply(&mut group, GroupCmd::Ledger(ToGroup::Account(account(0, 0))));
    let first = batch(1, 0, 1, &[(0, 3)]);
    assert_eq!(acked(&apply(&mut group, first.clone())), [0]);
    grow(&mut group, 3 * KEPT);
    assert_eq!((group.streams(), acked(&apply(&mut group, first.clone()))), (1, vec![0]));
    let won = Place::Milestone { at: 40, first: 38 };
    assert!(matches!(apply(&mut group, GroupCmd::Ledger(placed(0, &[(0, 1, won)])))[..], [Effect::Placed { .. }]));
    grow(&mut group, KEPT);
    assert!(matches!(apply(&mut group, first)[1..], [Effect::Placed { place: Place::Milestone { .. }, .. }]));
    grow(&mut group, 1);
    assert_eq!(group.streams(), 0);
}

/// A client as the group may meet it: any of its messages may come again at any time.
#[derive(Clone, Copy)]
struct Caller {
    id: u128,
    since: u32,
    sent: u64,
}

proptest! {
    #[test]
    fn whatever_is_forgotten_no_batch_counts_twice_and_streams_do_not_pile_up(steps in proptest::collection::vec((0..12u8, 0..64usize), 1..400)) {
        let mut group = forgetful(2);
        apply(&mut group, GroupCmd::Ledger(ToGroup::Account(account(0, 0))));
        let mut callers = vec![Caller { id: 1, since: 0, sent: 0 }];
        let mut counted = BTreeSet::new();
        let mut total = 0;
        let mut last_used = BTreeMap::new();
        let mut store = BTreeMap::new();
        for (what, which) in steps {
            let at = which % callers.len();
            match what {
                0 => callers.push(Caller { id: 1 + callers.len() as u128, since: group.age(), sent: 0 }),
                1 | 2 => grow(&mut group, 1),
                3 => {
                    apply(&mut group, GroupCmd::Fence { client: ClientId(callers[at].id), lane: 0, since: callers[at].since });
                    last_used.insert(callers[at].id, group.age());
                }
                4 => {
                    let head = group.guards()[0].placed_upto();
                    let next = group.guards()[0].next_pos();
                    apply(&mut group, GroupCmd::Ledger(placed(0, &[(head, next - head, Place::Counted)])));
                    last_used.extend(callers.iter().map(|caller| (caller.id, group.age())));
                }
                5 => {
                    for (key, value) in group.checkpoint() {
                        let _ = if value.is_empty() { store.remove(&key) } else { store.insert(key, value) };
                    }
                    let loaded = Group::load(group.config, store.clone()).unwrap().unwrap();
                    prop_assert_eq!(dump(&loaded), dump(&group));
                }
                _ => {
                    let caller = &mut callers[at];
                    // The next one, or any before it again.
                    let seq = if what < 9 { caller.sent + 1 } else { 1 + which as u64 % (caller.sent + 1) };
                    let slot = (caller.id % 2) as u32;
                    let effects = apply(&mut group, since(batch(caller.id, 0, seq, &[(slot, seq)]), caller.since));
                    match &effects[0] {
                        Effect::Acked { .. } => {
                            total += if counted.insert((caller.id, seq)) { seq } else { 0 };
                            caller.sent = caller.sent.max(seq);
                            last_used.insert(caller.id, group.age());
                        }
                        Effect::Refused { error: BatchError::Expired { since, age, kept }, .. } => {
                            prop_assert!(since + kept < *age);
                        }
                        Effect::Refused { error: BatchError::Fenced { .. }, .. } => {}
                        other => prop_assert!(false, "{other:?}"),
                    }
                }
            }
            prop_assert_eq!(group.sum(0) + group.sum(1), total);
            let recent = last_used.values().filter(|used| **used + KEPT >= group.age()).count() as u64;
            prop_assert!(u64::from(group.streams()) <= recent + group.queued, "{} streams", group.streams());
        }
    }
}
