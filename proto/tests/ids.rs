//! Ids of increments against a plain map: each counts once while it is remembered, with any clients, retries, checkpoints and
//! ages in between. It is forgotten after its time, not before.

use proptest::prelude::*;
use std::collections::BTreeMap;
use tidemark_proto::group::{Effect, Group, GroupConfig, Row};
use tidemark_proto::ids::{ClientId, CounterName, DcId, GroupId, Start};
use tidemark_proto::limits::{COMPONENT_MAX, IDS_GRACE_AGES, IDS_LATE_AGES};
use tidemark_proto::msg::{Batch, BatchError, GroupCmd, GroupEntry, IdAnswer, IdTerms, Item, ItemId, Keyed, ToGroup};
use tidemark_proto::time::WallMs;

const TERMS: IdTerms = IdTerms { kept: 3, max: 12 };
/// Ages after which an id is forgotten.
const KEPT: u32 = TERMS.kept + IDS_GRACE_AGES;

fn counter() -> CounterName {
    CounterName::new("shop", b"sold").unwrap()
}

fn id(n: u8, content: u8, items: u8) -> ItemId {
    ItemId { digest: [n; 16], content: [content; 8], items }
}

/// A group with its disk.
struct Counting {
    group: Group,
    disk: BTreeMap<Vec<u8>, Vec<u8>>,
    clients: u128,
}

impl Counting {
    fn new() -> Counting {
        let group = GroupId { dc: DcId(0), group: 0, incarnation: 1 };
        let mut place = Counting { group: Group::new(GroupConfig::new(group, 2)), disk: BTreeMap::new(), clients: 0 };
        let start = Start { number: 1, nonce: 7 };
        let confirmed = ToGroup::Confirmed { group, start, accounts: Vec::new(), resets: 0 };
        let cmds = vec![GroupCmd::Boot { nonce: 7, lanes: 2 }, GroupCmd::Ledger(confirmed), GroupCmd::IdTerms(TERMS)];
        let entry = GroupEntry { now: WallMs(1), first_new_slot: 0, new_cells: vec![counter().total()], cmds };
        place.group.apply(place.group.applied().next(), &entry);
        place.effects();
        place
    }

    fn effects(&mut self) -> Vec<Effect> {
        std::iter::from_fn(|| self.group.poll_effect()).collect()
    }

    fn apply(&mut self, cmd: GroupCmd) -> Vec<Effect> {
        let entry = GroupEntry { now: WallMs(1), first_new_slot: 0, new_cells: Vec::new(), cmds: vec![cmd] };
        self.group.apply(self.group.applied().next(), &entry);
        self.group.check_invariants();
        self.effects()
    }

    /// A batch of a new client.
    fn batch(&mut self, ids: &[(ItemId, u64)]) -> Keyed {
        self.clients += 1;
        let items = ids.iter().flat_map(|(id, delta)| (0..id.items).map(|_| item(*delta))).collect();
        let client = ClientId(self.clients);
        let batch = Batch { client, lane: 0, seq: 1, since: self.group.age(), items, times: Vec::new() };
        Keyed { batch, asked: self.group.age(), ids: ids.iter().map(|(id, _)| *id).collect() }
    }

    /// Counts, and returns the answers about ids.
    fn count(&mut self, ids: &[(ItemId, u64)]) -> Vec<(u32, IdAnswer)> {
        let keyed = self.batch(ids);
        answers(self.apply(GroupCmd::Keyed(keyed)))
    }

    fn total(&self) -> u64 {
        self.group.sum(0)
    }

    fn older(&mut self) {
        self.apply(GroupCmd::Age(self.group.age() + 1));
    }

    /// Its process ends, and another one begins with its last checkpoint.
    fn restart(&mut self) {
        for (key, value) in self.group.checkpoint() {
            match value.is_empty() {
                true => drop(self.disk.remove(&key)),
                false => drop(self.disk.insert(key, value)),
            }
        }
        let rows: Vec<Row> = self.disk.clone().into_iter().collect();
        self.group = Group::load(*self.group.config(), rows).unwrap().unwrap();
        self.group.check_invariants();
    }
}

fn item(delta: u64) -> Item {
    Item { slot: 0, delta, session: None }
}

fn answers(effects: Vec<Effect>) -> Vec<(u32, IdAnswer)> {
    let said = |effect| match effect {
        Effect::Ids { answers, .. } => Some(answers),
        _ => None,
    };
    effects.into_iter().filter_map(said).flatten().collect()
}

#[derive(Clone, Debug)]
enum Step {
    Count(Vec<(u8, u8, u8)>),
    Again,
    Older,
    Restart,
}

fn any_step() -> impl Strategy<Value = Step> {
    let unit = (0_u8..20, 0_u8..2, prop_oneof![6 => Just(1_u8), 1 => Just(0_u8), 1 => Just(3_u8)]);
    prop_oneof![
        8 => prop::collection::vec(unit, 1..6).prop_map(Step::Count),
        3 => Just(Step::Again),
        3 => Just(Step::Older),
        2 => Just(Step::Restart),
    ]
}

/// An id as a plain map remembers it.
#[derive(Clone, Copy, Debug)]
struct Known {
    content: [u8; 8],
    items: u8,
    age: u32,
}

#[derive(Default)]
struct Model {
    known: BTreeMap<[u8; 16], Known>,
    total: u64,
    age: u32,
}

impl Model {
    fn entries(&self) -> u32 {
        self.known.values().map(|known| u32::from(known.items.max(1))).sum()
    }

    /// The expected answer, if there is one.
    fn count(&mut self, id: &ItemId) -> Option<IdAnswer> {
        match self.known.get(&id.digest) {
            Some(known) if known.items == 0 => Some(IdAnswer::Fenced),
            Some(_) if id.items == 0 => Some(IdAnswer::Counted),
            Some(known) if known.content != id.content || known.items != id.items => Some(IdAnswer::Other),
            Some(_) => Some(IdAnswer::Known),
            None if self.entries() + u32::from(id.items.max(1)) > TERMS.max => Some(IdAnswer::Full { max: TERMS.max }),
            None => {
                let known = Known { content: id.content, items: id.items, age: self.age };
                self.known.insert(id.digest, known);
                self.total += u64::from(id.items);
                (id.items == 0).then_some(IdAnswer::Fenced)
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn ids_count_once_as_a_plain_map_says(steps in prop::collection::vec(any_step(), 1..60)) {
        let mut place = Counting::new();
        let mut model = Model::default();
        let mut last: Option<(Keyed, Vec<(u32, IdAnswer)>)> = None;
        for step in steps {
            match step {
                Step::Count(units) => {
                    let units: Vec<(ItemId, u64)> =
                        units.into_iter().map(|(n, content, items)| (id(n, content, items), 1)).collect();
                    let expected = units.iter().map(|(id, _)| model.count(id)).collect::<Vec<_>>();
                    let expected: Vec<_> = (0..).zip(expected).filter_map(|(at, answer)| Some((at, answer?))).collect();
                    let keyed = place.batch(&units);
                    prop_assert_eq!(&answers(place.apply(GroupCmd::Keyed(keyed.clone()))), &expected);
                    last = Some((keyed, expected));
                }
                // Said once more, by the same client: answered as before, but that what counted then has counted before now, also
                // what found no room then and has counted since.
                Step::Again => {
                    let Some((keyed, expected)) = &last else { continue };
                    let said = answers(place.apply(GroupCmd::Keyed(keyed.clone())));
                    let full = |at: &u32| expected.contains(&(*at, IdAnswer::Full { max: TERMS.max }));
                    let rest = |all: &[(u32, IdAnswer)]| -> Vec<_> {
                        all.iter().filter(|(at, answer)| !full(at) && *answer != IdAnswer::Known).copied().collect()
                    };
                    if place.group.age() <= keyed.asked + IDS_LATE_AGES {
                        prop_assert_eq!(rest(&said), rest(expected));
                        prop_assert_eq!(said.len(), keyed.ids.len(), "of each it is said that it counted before, or why not");
                    }
                }
                Step::Older => {
                    place.older();
                    model.age += 1;
                    let age = model.age;
                    model.known.retain(|_, known| known.age + KEPT >= age);
                }
                Step::Restart => place.restart(),
            }
            prop_assert_eq!((place.total(), place.group.ids()), (model.total, model.entries()));
        }
    }
}

#[test]
fn an_id_is_remembered_for_its_time_and_new_afterwards() {
    let mut place = Counting::new();
    let pay = [(id(1, 1, 1), 5)];
    place.count(&pay);
    for age in 1..=KEPT {
        place.older();
        assert_eq!((place.count(&pay), place.total()), (vec![(0, IdAnswer::Known)], 5), "age {age}");
    }
    place.older();
    place.count(&pay);
    assert_eq!((place.total(), place.group.ids()), (10, 1));
}

#[test]
fn past_the_number_new_ids_are_refused_and_none_is_forgotten() {
    let mut place = Counting::new();
    for n in 0..TERMS.max as u8 {
        assert_eq!(place.count(&[(id(n, 1, 1), 1)]), []);
    }
    let full = IdAnswer::Full { max: TERMS.max };
    assert_eq!(place.count(&[(id(100, 1, 1), 1), (id(0, 1, 1), 1)]), [(0, full), (1, IdAnswer::Known)]);
    assert_eq!(place.total(), u64::from(TERMS.max));
}

#[test]
fn a_batch_that_is_refused_leaves_no_id_behind() {
    let mut place = Counting::new();
    let heavy = Item { slot: 0, delta: 1 << 40, session: None };
    let items = vec![heavy; (COMPONENT_MAX >> 40) as usize];
    let batch = Batch { client: ClientId(900), lane: 0, seq: 1, since: 0, items, times: Vec::new() };
    place.apply(GroupCmd::Batch(batch));
    let keyed = place.batch(&[(id(1, 1, 1), 1)]);
    let effects = place.apply(GroupCmd::Keyed(keyed));
    assert!(matches!(&effects[..], [Effect::Refused { error: BatchError::Overflow { .. }, .. }]), "{effects:?}");
    assert_eq!(place.group.ids(), 0);
}

#[test]
fn a_batch_of_long_ago_is_refused_before_its_ids_are_forgotten() {
    let mut place = Counting::new();
    let keyed = place.batch(&[(id(1, 1, 1), 1)]);
    place.count(&[(id(1, 1, 1), 1)]);
    for _ in 0..=IDS_LATE_AGES {
        place.older();
    }
    let age = place.group.age();
    let late = BatchError::IdsLate { asked: 0, age, late: IDS_LATE_AGES };
    let effects = place.apply(GroupCmd::Keyed(keyed));
    assert!(matches!(&effects[..], [Effect::Refused { error, .. }] if *error == late), "{effects:?}");
    assert!(IDS_LATE_AGES < IDS_GRACE_AGES && place.group.ids() == 1);
}

#[test]
fn ids_that_do_not_cover_the_items_are_refused() {
    let mut place = Counting::new();
    let mut keyed = place.batch(&[(id(1, 1, 1), 1), (id(2, 1, 1), 1)]);
    keyed.ids.pop();
    let effects = place.apply(GroupCmd::Keyed(keyed));
    let wrong = BatchError::Ids { covered: 1, items: 2 };
    assert!(matches!(&effects[..], [Effect::Refused { error, .. }] if *error == wrong), "{effects:?}");
}

#[test]
fn rows_of_checkpoints_hold_blocks_that_filled_and_went() {
    let mut place = Counting::new();
    place.apply(GroupCmd::IdTerms(IdTerms { max: 1 << 20, ..TERMS }));
    let digest = |n: u32| {
        let mut digest = [0; 16];
        digest[..4].copy_from_slice(&n.to_be_bytes());
        ItemId { digest, content: [1; 8], items: 1 }
    };
    for age in 0..30 {
        let ids: Vec<_> = (0..700).map(|n| (digest(age * 1_000 + n), 1)).collect();
        place.count(&ids);
        place.restart();
        place.older();
    }
    let remembered = KEPT.min(30);
    let all: Vec<_> = (0..700).map(|n| (digest(29_000 + n), 1)).collect();
    assert_eq!((place.count(&all).len(), place.total()), (700, 30 * 700));
    assert_eq!(place.group.ids(), 700 * remembered, "of the last ages, and of no other");
    assert!(place.disk.len() < 3 * 60, "rows of blocks that went are given again: {}", place.disk.len());
}
