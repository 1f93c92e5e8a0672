//! The law of a query that is sent on. Messages may be lost, repeated or late, and visitors may ask any number of times at either
//! of the two data centres. Their groups count the query once together, and every reported count is true.

use proptest::prelude::*;
use tidemark_proto::group::{Effect, Group, GroupConfig};
use tidemark_proto::ids::{ClientId, CounterName, DcId, GroupId, Start};
use tidemark_proto::msg::{Batch, FromClient, GroupCmd, GroupEntry, IdAnswer, Item, ItemId, Keyed, ToClient, ToGroup};
use tidemark_proto::named::{NamedAnswer, NamedIncrement, fence, fenced};
use tidemark_proto::time::WallMs;

const ID: ItemId = ItemId { digest: [9; 16], content: [1; 8], items: 0 };
/// Each exchange is the first batch of a stream of its own: only the id is remembered.
const SEQ: u64 = 1;

/// A message under way between visitors, the home's process and the two groups' logs.
#[derive(Clone, Debug)]
enum Message {
    /// Of the home's process to the origin's group, and back.
    Fence,
    Fenced {
        counted: bool,
    },
    CountAtHome,
    CountAtOrigin,
    /// To a visitor.
    Counted,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    VisitHome,
    VisitOrigin,
    /// One of the messages under way, by its place.
    Deliver(usize),
    Repeat(usize),
    Lose(usize),
}

fn counter() -> CounterName {
    CounterName::new("test", b"queries").unwrap()
}

/// A confirmed group with one cell.
fn group(dc: u16) -> Group {
    let id = GroupId { dc: DcId(dc), group: 0, incarnation: 0 };
    let mut group = Group::new(GroupConfig::new(id, 4));
    let start = Start { number: 1, nonce: 7 };
    let confirmed = ToGroup::Confirmed { group: id, start, accounts: Vec::new(), resets: 0 };
    let cmds = vec![GroupCmd::Boot { nonce: 7, lanes: 4 }, GroupCmd::Ledger(confirmed)];
    let entry = GroupEntry { now: WallMs(1), first_new_slot: 0, new_cells: vec![counter().total()], cmds };
    group.apply(group.applied().next(), &entry);
    while group.poll_effect().is_some() {}
    group
}

/// The messages of the group's node when the command is applied.
fn answers(group: &mut Group, cmd: GroupCmd) -> Vec<ToClient> {
    let entry = GroupEntry { now: WallMs(1), first_new_slot: 0, new_cells: Vec::new(), cmds: vec![cmd] };
    group.apply(group.applied().next(), &entry);
    let said = |effect| match effect {
        Effect::Acked { lane, seq, pending, .. } => Some(ToClient::Durable { lane, seq, pending, next_us: 0 }),
        Effect::Refused { lane, seq, error, .. } => Some(ToClient::Refused { lane, seq, error }),
        Effect::Ids { lane, seq, answers, .. } => Some(ToClient::Ids { lane, seq, answers }),
        _ => None,
    };
    std::iter::from_fn(|| group.poll_effect()).filter_map(said).collect()
}

/// The log entry of a node for a keyed batch that counts in the group's one cell.
fn logged(client: u128, message: FromClient) -> GroupCmd {
    let FromClient::Keyed { lane, seq, items, ids, .. } = message else { panic!("a keyed batch: {message:?}") };
    let items = items.iter().map(|item| Item { slot: 0, delta: item.delta, session: item.session }).collect();
    let batch = Batch { client: ClientId(client), since: 0, lane, seq, items, times: Vec::new() };
    GroupCmd::Keyed(Keyed { batch, asked: 0, ids })
}

/// The two data centres and the messages under way.
struct World {
    clients: u128,
    /// The origin's and the home's.
    groups: [Group; 2],
    under_way: Vec<Message>,
    /// Whether the home asks first.
    asks: bool,
    told: bool,
}

impl World {
    fn new(asks: bool) -> World {
        World { clients: 0, groups: [group(0), group(1)], under_way: Vec::new(), asks, told: false }
    }

    fn total(&self) -> u64 {
        self.groups.iter().map(|group| group.sum(0)).sum()
    }

    fn step(&mut self, step: Step) {
        let at = |n: usize, world: &World| n % world.under_way.len().max(1);
        match step {
            Step::VisitHome => self.under_way.push(if self.asks { Message::Fence } else { Message::CountAtHome }),
            Step::VisitOrigin => self.under_way.push(Message::CountAtOrigin),
            Step::Repeat(n) => self.under_way.extend(self.under_way.get(at(n, self)).cloned()),
            Step::Deliver(n) | Step::Lose(n) if !self.under_way.is_empty() => {
                let message = self.under_way.swap_remove(at(n, self));
                if matches!(step, Step::Deliver(_)) {
                    self.deliver(message);
                }
            }
            Step::Deliver(_) | Step::Lose(_) => {}
        }
    }

    fn deliver(&mut self, message: Message) {
        match message {
            Message::Fence => {
                let client = self.client();
                let said = answers(&mut self.groups[0], logged(client, fence(ID, SEQ)));
                let answer = said.iter().find_map(|said| fenced(SEQ, said)).expect("a fence is answered");
                let counted = answer.expect("there is room for it");
                self.under_way.push(Message::Fenced { counted });
            }
            Message::Fenced { counted: true } => self.under_way.push(Message::Counted),
            Message::Fenced { counted: false } => self.under_way.push(Message::CountAtHome),
            Message::CountAtHome => self.count(1),
            Message::CountAtOrigin => self.count(0),
            Message::Counted => {
                self.told = true;
                assert_eq!(self.total(), 1, "a visitor was told that it counts");
            }
        }
    }

    fn client(&mut self) -> u128 {
        self.clients += 1;
        self.clients
    }

    fn count(&mut self, at: usize) {
        let mut increment = NamedIncrement::new(ID, vec![(counter(), 1)], None);
        let client = self.client();
        for said in answers(&mut self.groups[at], logged(client, increment.start(SEQ))) {
            match increment.on_message(said) {
                NamedAnswer::Placed(_) => self.under_way.push(Message::Counted),
                NamedAnswer::Id(IdAnswer::Fenced) => assert_eq!(at, 0, "only the origin is fenced"),
                NamedAnswer::Nothing => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Checks the invariants, and that the query is counted once a visitor comes to its home and no message is lost any more.
    fn check(&mut self, steps: &[Step]) -> Result<(), String> {
        for (n, step) in steps.iter().enumerate() {
            self.step(*step);
            if self.total() > 1 || self.told && self.total() != 1 {
                return Err(format!("step {n}, {step:?}: counted {} times", self.total()));
            }
        }
        self.step(Step::VisitHome);
        while !self.under_way.is_empty() {
            self.step(Step::Deliver(0));
        }
        match (self.total(), self.told) {
            (1, true) => Ok(()),
            (total, told) => Err(format!("in the end counted {total} times, told: {told}")),
        }
    }
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => Just(Step::VisitHome),
        2 => Just(Step::VisitOrigin),
        6 => any::<usize>().prop_map(Step::Deliver),
        2 => any::<usize>().prop_map(Step::Repeat),
        1 => any::<usize>().prop_map(Step::Lose),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    #[test]
    fn it_counts_once(steps in prop::collection::vec(any_step(), 0..60)) {
        prop_assert_eq!(World::new(true).check(&steps), Ok(()));
    }
}

/// The check has teeth: a home that does not ask counts a hop that the origin has counted.
#[test]
fn a_home_that_does_not_ask_is_found() {
    let steps = [Step::VisitOrigin, Step::Deliver(0), Step::VisitHome, Step::Deliver(1)];
    assert_eq!(World::new(false).check(&steps), Err("step 3, Deliver(1): counted 2 times".to_owned()));
    assert_eq!(World::new(true).check(&steps), Ok(()));
}

/// The answer of the origin's group to a count that comes behind the fence, as clients get it.
#[test]
fn behind_the_fence_nothing_is_counted() {
    let mut world = World::new(true);
    world.step(Step::VisitHome);
    world.step(Step::Deliver(0));
    let mut increment = NamedIncrement::new(ID, vec![(counter(), 1)], None);
    let said = answers(&mut world.groups[0], logged(77, increment.start(SEQ)));
    let fenced = ToClient::Ids { lane: 0, seq: SEQ, answers: vec![(0, IdAnswer::Fenced)] };
    assert_eq!(said, [fenced, ToClient::Durable { lane: 0, seq: SEQ, pending: Vec::new(), next_us: 0 }]);
    assert_eq!(world.groups[0].sum(0), 0);
}

/// One id stands for one content: with other content nothing is counted, from any sender.
#[test]
fn the_same_id_with_other_content_counts_nothing() {
    let mut world = World::new(true);
    world.step(Step::VisitOrigin);
    world.step(Step::Deliver(0));
    let other = ItemId { content: [2; 8], ..ID };
    let mut increment = NamedIncrement::new(other, vec![(counter(), 1)], None);
    let said = answers(&mut world.groups[0], logged(77, increment.start(SEQ)));
    let said: Vec<NamedAnswer> = said.into_iter().map(|said| increment.on_message(said)).collect();
    assert_eq!(said, [NamedAnswer::Nothing, NamedAnswer::Id(IdAnswer::Other)]);
    assert_eq!(world.total(), 1);
}
