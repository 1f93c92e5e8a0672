//! When hits are sent: at once by an idle client; while a batch is under way the next one gathers.

use super::*;
use tidemark_types::ids::GroupId;

const GATHER_MAX: Span = Span::from_millis(20);

/// A client with a welcomed link, driven by hand.
struct Driven {
    core: ClientCore,
    now: Time,
    link: LinkId,
    counter: CounterRef,
    next_ticket: u64,
    /// The time of the next commit in answers.
    next_us: u32,
    /// Batches without an answer: lane, number, items.
    under_way: VecDeque<(u8, u64, usize)>,
}

impl Driven {
    fn new(config: ClientConfig) -> Driven {
        let mut core = ClientCore::new(ClientConfig { gather_max: Some(GATHER_MAX), ..config }, [3; 32]);
        core.handle(Time(1), Input::Tick);
        let Some(Output::Connect { link, .. }) = core.poll_output() else { panic!("connects first") };
        core.handle(Time(1), Input::Connected { link });
        let message = ToClient::Welcome { group: GroupId::default(), own_lane: 0, lanes: 1, age: 0, ids_kept: 0 };
        core.handle(Time(1), Input::FromNode { link, message });
        let counter = core.counter(&CounterName::new("test", b"one").unwrap()).unwrap();
        let mut driven =
            Driven { core, now: Time(1_000), link, counter, next_ticket: 0, next_us: 0, under_way: VecDeque::new() };
        driven.tick(Span(0));
        driven
    }

    fn hit(&mut self, hits: usize) {
        for _ in 0..hits {
            self.core.try_hit(self.now, self.counter, None, 1, Ticket(self.next_ticket)).unwrap();
            self.next_ticket += 1;
        }
        self.tick(Span(0));
    }

    /// Time passes, and due actions are done in between.
    fn tick(&mut self, span: Span) {
        let end = self.now + span;
        while let Some(at) = self.core.poll_timeout().filter(|at| *at <= end) {
            self.now = at.max(self.now);
            self.core.handle(self.now, Input::Tick);
            self.drain();
        }
        self.now = end;
        self.drain();
    }

    fn drain(&mut self) {
        while let Some(output) = self.core.poll_output() {
            if let Output::Send { message: FromClient::Batch { lane, seq, items, .. }, .. } = output {
                self.under_way.push_back((lane, seq, items.len()));
            }
        }
    }

    fn answer(&mut self) {
        let (lane, seq, _) = self.under_way.pop_front().expect("a batch is under way");
        let message = ToClient::Durable { lane, seq, pending: Vec::new(), next_us: self.next_us };
        self.core.handle(self.now, Input::FromNode { link: self.link, message });
        self.drain();
    }

    /// Items of the batches under way.
    fn sizes(&self) -> Vec<usize> {
        self.under_way.iter().map(|(_, _, items)| *items).collect()
    }
}

#[test]
fn a_hit_of_an_idle_client_is_sent_at_once_each_time() {
    let mut client = Driven::new(config(1));
    for _ in 0..5 {
        client.hit(1);
        assert_eq!(client.sizes(), [1]);
        client.tick(Span::from_millis(3));
        client.answer();
    }
}

#[test]
fn hits_behind_a_batch_gather_until_it_is_answered() {
    let mut client = Driven::new(config(1));
    client.hit(1);
    for _ in 0..4 {
        client.tick(Span::from_millis(1));
        client.hit(1);
    }
    assert_eq!(client.sizes(), [1], "four wait");
    client.answer();
    assert_eq!(client.sizes(), [4]);
}

#[test]
fn hits_behind_a_batch_without_an_answer_wait_for_a_bound() {
    let mut client = Driven::new(config(1));
    client.hit(1);
    client.hit(2);
    client.tick(Span(GATHER_MAX.0 - 1));
    assert_eq!(client.sizes(), [1]);
    client.tick(Span(1));
    assert_eq!(client.sizes(), [1, 2]);
}

#[test]
fn a_busy_client_gathers_for_as_long_as_the_last_round_trip_took() {
    let mut client = Driven::new(config(1));
    let round_trip = Span::from_millis(8);
    client.hit(4);
    client.tick(round_trip);
    client.answer();
    client.hit(1);
    client.tick(Span(round_trip.0 * 3 / 4 - 1));
    assert_eq!(client.sizes(), [0; 0]);
    client.tick(Span(1));
    assert_eq!(client.sizes(), [1]);
    let eager = ClientConfig { gather_round_trips: 0, ..config(1) };
    let mut client = Driven::new(eager);
    client.hit(4);
    client.tick(round_trip);
    client.answer();
    client.hit(1);
    assert_eq!(client.sizes(), [1], "one that is told not to gather does not");
}

#[test]
fn a_busy_client_sends_shortly_before_the_next_commit() {
    let mut client = Driven::new(config(1));
    let round_trip = Span::from_millis(2);
    let next = Span::from_millis(10);
    client.next_us = next.0 as u32;
    client.hit(4);
    client.tick(round_trip);
    client.answer();
    client.hit(1);
    // A quarter of a round trip to spare.
    let gathers = next.0 - round_trip.0 * 5 / 4;
    client.tick(Span(gathers - 1));
    assert_eq!(client.sizes(), [0; 0]);
    client.tick(Span(1));
    assert_eq!(client.sizes(), [1]);
}

#[test]
fn a_lone_hit_does_not_wait_for_the_next_commit() {
    let mut client = Driven::new(config(1));
    client.next_us = 10_000;
    for _ in 0..5 {
        client.hit(1);
        assert_eq!(client.sizes(), [1]);
        client.tick(Span::from_millis(2));
        client.answer();
    }
}

#[test]
fn as_many_hits_as_went_together_wait_for_nothing() {
    let mut client = Driven::new(config(1));
    client.hit(4);
    client.tick(Span::from_millis(8));
    client.answer();
    client.hit(3);
    assert_eq!(client.sizes(), [0; 0], "the fourth is on its way");
    client.hit(1);
    assert_eq!(client.sizes(), [4]);
}

#[test]
fn adds_wait_for_their_interval_and_ride_with_a_hit() {
    let mut client = Driven::new(config(1));
    let other = client.core.counter(&CounterName::new("test", b"two").unwrap()).unwrap();
    client.core.try_add(client.now, other, 7).unwrap();
    client.tick(Span(client.core.config.flush_interval.0 - 1));
    assert_eq!(client.sizes(), [0; 0]);
    client.hit(1);
    assert_eq!(client.sizes(), [2]);
    client.answer();
    client.core.try_add(client.now, other, 7).unwrap();
    client.tick(client.core.config.flush_interval);
    assert_eq!(client.sizes(), [1]);
}
