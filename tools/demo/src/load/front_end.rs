//! One front end: the client's core, and the result of each hit. Without IO, so that it can be tested against a node that is not there;
//! [`super::site`] moves its messages.
//!
//! It drives [`ClientCore`] itself, as the client library does, because the library's future per hit would cost the generator more than the
//! measured cluster; counting, retries and fences are decided by the same core.

use std::collections::VecDeque;

use tidemark_proto::client::{
    AddError, ClientConfig, ClientCore, CounterRef, Input, LinkId, Outcome, Output, SiteId, Ticket,
};
use tidemark_proto::ids::CounterName;
use tidemark_proto::msg::{BatchError, FromClient, Place};
use tidemark_proto::time::Time;

use super::tally::SiteTally;
use crate::messages::MilestoneHit;
use crate::query_log::Replay;

/// The actions of a front end on its links.
#[derive(Debug)]
pub enum LinkAction {
    Connect { link: LinkId, site: SiteId },
    Disconnect { link: LinkId },
    Send { link: LinkId, message: FromClient },
}

/// A hit whose last report is out.
#[derive(Clone, Copy, Debug)]
struct Hit {
    intended_us: u64,
    /// When it became durable, if it did without a place.
    durable_us: Option<u64>,
    done: bool,
}

/// A front end. Times are microseconds of the process's clock.
#[derive(Debug)]
pub struct FrontEnd {
    core: ClientCore,
    counter: CounterRef,
    replay: Replay,
    /// Hits by ticket, from `first_ticket` on; finished hits at the front are forgotten.
    hits: VecDeque<Hit>,
    first_ticket: u64,
    undone: u64,
    durable_seen: u64,
}

impl FrontEnd {
    /// A front end that counts `counter` and replays the log from its own place.
    pub fn new(
        config: ClientConfig,
        seed: [u8; 32],
        counter: &CounterName,
        replay: Replay,
    ) -> Result<FrontEnd, AddError> {
        let mut core = ClientCore::new(config, seed);
        let counter = core.counter(counter)?;
        Ok(FrontEnd { core, counter, replay, hits: VecDeque::new(), first_ticket: 0, undone: 0, durable_seen: 0 })
    }

    /// Sends the next line of the log, which should have been sent at `intended_us`.
    pub fn hit(&mut self, now_us: u64, intended_us: u64, tally: &mut SiteTally) {
        let (_, session) = self.replay.next_hit();
        let ticket = Ticket(self.first_ticket + self.hits.len() as u64);
        tally.counts.sent += 1;
        tally.lateness.record(now_us.saturating_sub(intended_us));
        match self.core.try_hit(Time(now_us), self.counter, Some(session), 1, ticket) {
            Ok(()) => {
                self.hits.push_back(Hit { intended_us, durable_us: None, done: false });
                self.undone += 1;
            }
            Err(error) => count_failure(&error, tally),
        }
    }

    /// Adds to another counter.
    ///
    /// # Errors
    /// The core's; nothing was added.
    pub fn add(&mut self, now_us: u64, name: &CounterName, amount: u64) -> Result<(), AddError> {
        let counter = self.core.counter(name)?;
        self.core.try_add(Time(now_us), counter, amount)
    }

    /// Something happened to a link.
    pub fn handle(&mut self, now_us: u64, input: Input) {
        self.core.handle(Time(now_us), input);
    }

    /// When [`FrontEnd::tick`] has something to do, if nothing happens before.
    pub fn due_us(&self) -> Option<u64> {
        self.core.poll_timeout().map(|due| due.0)
    }

    /// Time passed.
    pub fn tick(&mut self, now_us: u64) {
        if self.due_us().is_some_and(|due_us| due_us <= now_us) {
            self.core.handle(Time(now_us), Input::Tick);
        }
    }

    /// Whether its node has said welcome.
    pub fn is_connected(&self) -> bool {
        self.core.site().is_some_and(|(_, up)| up)
    }

    /// Weight without an answer about durability.
    pub fn unacknowledged(&self) -> u64 {
        self.core.weight_held()
    }

    /// Hits without a last word.
    pub fn unanswered(&self) -> u64 {
        self.undone
    }

    /// Takes in all outputs of the core; those for a link go to `act`.
    pub fn drain(&mut self, now_us: u64, tally: &mut SiteTally, mut act: impl FnMut(LinkAction)) {
        while let Some(output) = self.core.poll_output() {
            match output {
                Output::Connect { link, site } => act(LinkAction::Connect { link, site }),
                Output::Disconnect { link } => act(LinkAction::Disconnect { link }),
                Output::Send { link, message } => act(LinkAction::Send { link, message }),
                Output::Durable { ticket } => self.on_durable(now_us, ticket, tally),
                Output::Resolved { ticket, outcome } => self.on_resolved(now_us, ticket, &outcome, tally),
                Output::Failed { delta, .. } => tally.counts.failed += delta,
                Output::Unknown { delta, .. } => tally.counts.unknown += delta,
                Output::Known { .. } | Output::Flushed { .. } | Output::Writable | Output::Closed { .. } => {}
            }
        }
        let durable = self.core.totals().durable as u64;
        if durable > self.durable_seen {
            self.durable_seen = durable;
            tally.last_ack_us = tally.last_ack_us.max(now_us);
        }
    }

    /// Weight that is durable since the start, hits and added.
    pub fn durable(&self) -> u64 {
        self.durable_seen
    }

    fn hit_of(&mut self, ticket: Ticket) -> &mut Hit {
        let at = ticket.0 - self.first_ticket;
        &mut self.hits[at as usize]
    }

    fn on_durable(&mut self, now_us: u64, ticket: Ticket, tally: &mut SiteTally) {
        let hit = self.hit_of(ticket);
        hit.durable_us = Some(now_us);
        tally.ack.record(now_us.saturating_sub(hit.intended_us));
        tally.counts.acknowledged += 1;
        tally.counts.sequenced += 1;
    }

    fn on_resolved(&mut self, now_us: u64, ticket: Ticket, outcome: &Outcome, tally: &mut SiteTally) {
        let hit = self.hit_of(ticket);
        hit.done = true;
        let hit = *hit;
        self.undone -= 1;
        match outcome {
            Outcome::Placed(place) => {
                acknowledge_at_once(now_us, &hit, tally);
                tally.placement.record(now_us.saturating_sub(hit.intended_us));
                place_hit(now_us, &hit, *place, tally);
            }
            Outcome::PlaceUnknown => {
                acknowledge_at_once(now_us, &hit, tally);
                tally.counts.place_unknown += 1;
            }
            Outcome::Failed(error) => count_failure(error, tally),
            Outcome::Unknown => tally.counts.unknown += 1,
        }
        while self.hits.front().is_some_and(|hit| hit.done) {
            self.hits.pop_front();
            self.first_ticket += 1;
        }
    }
}

/// A hit that is durable and placed in one answer.
fn acknowledge_at_once(now_us: u64, hit: &Hit, tally: &mut SiteTally) {
    if hit.durable_us.is_none() {
        tally.ack.record(now_us.saturating_sub(hit.intended_us));
        tally.counts.acknowledged += 1;
    }
}

fn place_hit(now_us: u64, hit: &Hit, place: Place, tally: &mut SiteTally) {
    match place {
        Place::Counted => tally.counts.counted += 1,
        Place::Number(_) => tally.counts.numbered += 1,
        Place::Milestone { at, first } => {
            tally.counts.milestones += 1;
            tally.milestones.push(MilestoneHit {
                at,
                first,
                site: 0,
                sent_unix_us: hit.intended_us,
                durable_unix_us: hit.durable_us.unwrap_or(now_us),
                placed_unix_us: now_us,
                sequenced: 0,
            });
            tally.found.notify_one();
        }
    }
}

fn count_failure(error: &AddError, tally: &mut SiteTally) {
    match error {
        AddError::Overloaded { .. } | AddError::Refused(BatchError::Overloaded { .. }) => tally.counts.overloaded += 1,
        _ => tally.counts.failed += 1,
    }
}

#[cfg(test)]
mod tests {
    use tidemark_proto::ids::GroupId;
    use tidemark_proto::msg::ToClient;

    use super::*;

    struct Bench {
        front_end: FrontEnd,
        tally: SiteTally,
        batches: Vec<(LinkId, u8, u64, usize)>,
    }

    /// A front end with a welcome from its node.
    fn connected() -> Bench {
        let counter = CounterName::new("search", b"queries").unwrap();
        let front_end = FrontEnd::new(ClientConfig::default(), [7; 32], &counter, Replay::new(0, 1, 1)).unwrap();
        let mut bench = Bench { front_end, tally: SiteTally::default(), batches: Vec::new() };
        bench.front_end.handle(1, Input::Tick);
        bench.drain(1);
        bench
    }

    impl Bench {
        fn drain(&mut self, now_us: u64) {
            let mut actions = Vec::new();
            self.front_end.drain(now_us, &mut self.tally, |action| actions.push(action));
            for action in actions {
                self.act(now_us, action);
            }
        }

        fn act(&mut self, now_us: u64, action: LinkAction) {
            match action {
                LinkAction::Connect { link, .. } => {
                    self.front_end.handle(now_us, Input::Connected { link });
                    let message =
                        ToClient::Welcome { group: GroupId::default(), own_lane: 3, lanes: 10, age: 0, ids_kept: 0 };
                    self.front_end.handle(now_us, Input::FromNode { link, message });
                    self.drain(now_us);
                }
                LinkAction::Send { link, message: FromClient::Batch { lane, seq, items, .. } } => {
                    self.batches.push((link, lane, seq, items.len()));
                }
                LinkAction::Send { .. } | LinkAction::Disconnect { .. } => {}
            }
        }

        fn answer(&mut self, now_us: u64, message: impl Fn(u8, u64) -> ToClient) {
            let (link, lane, seq, _) = self.batches[0];
            self.front_end.handle(now_us, Input::FromNode { link, message: message(lane, seq) });
            self.drain(now_us);
        }
    }

    #[test]
    fn a_hit_is_followed_from_when_it_should_have_been_sent_to_its_place() {
        let mut bench = connected();
        for intended_us in [1_000, 2_000, 3_000] {
            bench.front_end.hit(5_000, intended_us, &mut bench.tally);
        }
        bench.front_end.tick(100_000);
        bench.drain(100_000);
        assert_eq!(bench.batches.iter().map(|batch| batch.3).sum::<usize>(), 3, "one batch with all three");
        bench.answer(101_000, |lane, seq| ToClient::Durable { lane, seq, pending: vec![1, 2], next_us: 0 });
        assert_eq!(
            (bench.tally.counts.acknowledged, bench.tally.counts.counted, bench.tally.counts.sequenced),
            (3, 1, 2)
        );
        assert_eq!(
            (bench.tally.counts.pending(), bench.front_end.unanswered(), bench.front_end.unacknowledged()),
            (2, 2, 0)
        );
        bench.answer(300_000, |lane, seq| ToClient::Placed { lane, seq, idx: 1, count: 1, place: Place::Number(9) });
        let milestone = Place::Milestone { at: 10, first: 10 };
        bench.answer(301_000, |lane, seq| ToClient::Placed { lane, seq, idx: 2, count: 1, place: milestone });
        let counts = &bench.tally.counts;
        assert_eq!((counts.numbered, counts.milestones, counts.pending(), counts.answered()), (1, 1, 0, 3));
        let found = &bench.tally.milestones[0];
        assert_eq!((found.sent_unix_us, found.durable_unix_us, found.placed_unix_us), (3_000, 101_000, 301_000));
        assert!(bench.tally.ack.summary().max_ms >= 100.0, "{:?}", bench.tally.ack.summary());
        assert_eq!(bench.tally.last_ack_us, 101_000);
        assert!(bench.front_end.hits.is_empty());
    }

    #[test]
    fn a_full_buffer_is_overload_and_not_a_failure() {
        let mut tally = SiteTally::default();
        count_failure(&AddError::Overloaded { limit: 1 }, &mut tally);
        count_failure(&AddError::Refused(BatchError::Overloaded { what: "queue".into(), limit: 1 }), &mut tally);
        count_failure(&AddError::Refused(BatchError::Empty), &mut tally);
        assert_eq!((tally.counts.overloaded, tally.counts.failed), (2, 1));
    }
}
