//! A client refuses by itself the increments that its node would refuse, with the errors of those increments, and only as long as
//! the node would.

use std::collections::VecDeque;
use tidemark_proto::client::{AddError, ClientConfig, ClientCore, CounterRef, Input, LinkId, Outcome, Output, Ticket};
use tidemark_proto::ids::{CounterName, DcId, GroupId, Half, OwnerId, Start};
use tidemark_proto::limits::{COMPONENT_MAX, DELTA_MAX};
use tidemark_proto::msg::{BatchError, ForGroup, FromClient, ToGroup};
use tidemark_proto::node::{self, ConnId, NodeConfig, NodeCore};
use tidemark_proto::time::{Span, Time};

const GROUP: GroupId = GroupId { dc: DcId(0), group: 0, incarnation: 1 };
/// The time for which a client refuses by itself.
const BAR_FOR: Span = Span::from_secs(60);

fn name(key: &str) -> CounterName {
    CounterName::new("t", key.as_bytes()).unwrap()
}

/// A client and a node with one valve, between which nothing is lost.
struct World {
    client: ClientCore,
    node: NodeCore,
    now: Time,
    tickets: u64,
    /// The outcome of each increment, by its ticket.
    resolved: Vec<(Ticket, Outcome)>,
    /// Connections made: one more for every refusal by the node.
    links: u64,
    /// Batches that the client sent.
    batches: u64,
    /// On its way to the node.
    inbox: VecDeque<node::Input>,
}

impl World {
    fn new() -> World {
        let config = ClientConfig { bar_for: BAR_FOR, ..ClientConfig::default() };
        let client = ClientCore::new(config, [3; 32]);
        let node = NodeCore::new(NodeConfig::new(GROUP, 1), 7);
        let resolved = Vec::new();
        let inbox = VecDeque::new();
        let mut world = World { client, node, now: Time(1), tickets: 0, resolved, links: 0, batches: 0, inbox };
        world.run();
        world.put(node::Input::AggregatorUp { seat: 0 });
        world.hear(ToGroup::Namespaces(vec!["t".into()]));
        let start = Start { number: 1, nonce: 7 };
        world.hear(ToGroup::Confirmed { group: GROUP, start, accounts: Vec::new(), resets: 0 });
        world
    }

    fn put(&mut self, input: node::Input) {
        self.inbox.push_back(input);
        self.run();
    }

    fn hear(&mut self, message: ToGroup) {
        self.put(node::Input::Aggregator { seat: 0, msg: ForGroup::Ledger(message) });
    }

    /// Everything that follows within a second.
    fn run(&mut self) {
        for _ in 0..200 {
            self.now = self.now + Span::from_millis(5);
            self.client.handle(self.now, Input::Tick);
            self.drain_client();
            self.inbox.push_back(node::Input::Tick);
            while let Some(input) = self.inbox.pop_front() {
                self.node.handle(self.now, input);
                while let Some(output) = self.node.poll_output() {
                    self.on_node(output);
                }
                self.drain_client();
            }
        }
    }

    fn drain_client(&mut self) {
        while let Some(output) = self.client.poll_output() {
            self.on_client(output);
        }
    }

    fn on_client(&mut self, output: Output) {
        match output {
            Output::Connect { link, .. } => {
                self.links += 1;
                self.inbox.push_back(node::Input::ClientUp { conn: ConnId(link.0), owner: OwnerId(0) });
                self.client.handle(self.now, Input::Connected { link });
            }
            Output::Disconnect { link } => self.inbox.push_back(node::Input::ClientGone { conn: ConnId(link.0) }),
            Output::Send { link, message } => {
                self.batches += u64::from(matches!(message, FromClient::Batch { .. }));
                self.inbox.push_back(node::Input::Client { conn: ConnId(link.0), msg: message });
            }
            Output::Resolved { ticket, outcome } => self.resolved.push((ticket, outcome)),
            _ => {}
        }
    }

    fn on_node(&mut self, output: node::Output) {
        match output {
            node::Output::Append { index, .. } => self.inbox.push_back(node::Input::Durable { upto: index }),
            node::Output::Client { conn, msg } => {
                self.client.handle(self.now, Input::FromNode { link: LinkId(conn.0), message: msg });
            }
            _ => {}
        }
    }

    fn counter(&mut self, key: &str, half: Half) -> CounterRef {
        self.client.half_of(&name(key), half).unwrap()
    }

    /// Counts once: `Err` with the reason of the refusal, by the node or the client.
    fn count(&mut self, counter: CounterRef, delta: u64) -> Result<(), BatchError> {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        let taken = self.client.try_hit(self.now, counter, None, delta, ticket);
        if taken.is_ok() {
            self.run();
        }
        let outcome = self.resolved.iter().find(|(of, _)| *of == ticket).map(|(_, outcome)| outcome.clone());
        match (taken, outcome) {
            (Err(AddError::Refused(error)), None) => Err(error),
            (Ok(()), Some(Outcome::Failed(AddError::Refused(error)))) => Err(error),
            (Ok(()), Some(Outcome::Placed(_))) => Ok(()),
            other => panic!("{other:?}"),
        }
    }

    /// Counts up to so much below the limit.
    fn fill(&mut self, counter: CounterRef, below: u64) {
        let mut rest = COMPONENT_MAX - below;
        while rest > 0 {
            let delta = rest.min(DELTA_MAX);
            self.client.try_add(self.now, counter, delta).unwrap();
            rest -= delta;
        }
        self.run();
        assert_eq!(self.client.weight_held(), 0, "all of it is counted");
    }
}

fn overflow(key: &str, value: u64, delta: u64) -> BatchError {
    BatchError::Overflow { counter: name(key), value, delta, max: COMPONENT_MAX }
}

#[test]
fn after_an_overflow_what_fits_is_counted_and_the_rest_is_refused_in_its_own_words() {
    let mut world = World::new();
    let full = world.counter("full", Half::Up);
    world.fill(full, 10);
    let value = COMPONENT_MAX - 10;
    assert_eq!(world.count(full, DELTA_MAX), Err(overflow("full", value, DELTA_MAX)));
    let links = world.links;
    assert_eq!(world.count(full, 11), Err(overflow("full", value, 11)), "refused here");
    assert_eq!(world.links, links, "without the node");
    assert_eq!(world.count(full, 4), Ok(()));
    assert_eq!(world.count(full, 6), Ok(()));
    assert_eq!(world.count(full, 1), Err(overflow("full", COMPONENT_MAX, 1)), "the node says how much there is now");
    let other = world.counter("other", Half::Up);
    assert_eq!(world.count(other, DELTA_MAX), Ok(()));
}

#[test]
fn of_one_batch_what_fits_is_counted_and_the_rest_fails_alone() {
    let mut world = World::new();
    let full = world.counter("full", Half::Up);
    let other = world.counter("other", Half::Up);
    world.fill(full, 10);
    for (ticket, (counter, delta)) in [(full, 7), (full, 9), (other, 5), (full, 2), (full, 3)].into_iter().enumerate() {
        let ticket = Ticket(100 + ticket as u64);
        world.client.try_hit(world.now, counter, None, delta, ticket).unwrap();
    }
    world.run();
    let mut failed: Vec<(u64, BatchError)> = Vec::new();
    for (ticket, outcome) in &world.resolved {
        match outcome {
            Outcome::Placed(_) => {}
            Outcome::Failed(AddError::Refused(error)) => failed.push((ticket.0, error.clone())),
            other => panic!("{other:?}"),
        }
    }
    failed.sort_by_key(|(ticket, _)| *ticket);
    let value = COMPONENT_MAX - 3;
    assert_eq!(failed, [(101, overflow("full", value, 9)), (104, overflow("full", COMPONENT_MAX - 1, 3))]);
    assert_eq!(world.resolved.len(), 5);
    let slot = |key: &str| world.node.group().table().find_total(&name(key), 0).unwrap();
    let sums = (world.node.group().sum(slot("full")), world.node.group().sum(slot("other")));
    assert_eq!(sums, (COMPONENT_MAX - 1, 5));
}

#[test]
fn a_reset_ends_what_a_client_refuses_by_itself() {
    let mut world = World::new();
    let full = world.counter("full", Half::Up);
    world.fill(full, 10);
    assert_eq!(world.count(full, DELTA_MAX), Err(overflow("full", COMPONENT_MAX - 10, DELTA_MAX)));
    world.hear(ToGroup::Resets { after: 0, upto: 1, begun: vec![(name("full"), 1)] });
    assert_eq!(world.count(full, DELTA_MAX), Ok(()), "the counter begins at 0");
}

#[test]
fn a_namespace_that_is_declared_ends_what_a_client_refuses_by_itself() {
    let mut world = World::new();
    let other = CounterName::new("other", b"k").unwrap();
    let up = world.client.counter(&other).unwrap();
    let down = world.counter("k", Half::Down);
    assert_eq!(world.count(up, 1), Err(BatchError::UnknownNamespace("other".into())));
    assert_eq!(world.count(down, 1), Err(BatchError::GrowOnly("t".into())));
    // Each in its own words, although both were refused lately.
    let batches = world.batches;
    assert_eq!(world.count(up, 1), Err(BatchError::UnknownNamespace("other".into())));
    assert_eq!(world.count(down, 1), Err(BatchError::GrowOnly("t".into())));
    assert_eq!(world.batches, batches, "without the node");
    world.hear(ToGroup::Namespaces(vec!["t".into(), "other".into()]));
    assert_eq!(world.count(up, 1), Ok(()));
    assert_eq!(world.count(down, 1), Err(BatchError::GrowOnly("t".into())));
    world.hear(ToGroup::UpDown(vec!["t".into()]));
    assert_eq!(world.count(down, 1), Ok(()));
}
