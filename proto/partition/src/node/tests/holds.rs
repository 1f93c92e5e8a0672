//! A view that is slower than the counting: its lag, its effect on counting, and the views without such an effect.

use super::*;
use crate::node::hold::{HELD_MAX, PACED_BYTES_MAX, STUCK_AFTER};

/// Counters, counted in turn; this number of changes can be behind a view.
const COUNTERS: u64 = 100_000;
/// The client's increments per second, and the view's speed.
const OFFERED: u64 = 8_000;
const TAKEN: u64 = 2_000;
/// Most of a batch; as much goes into a chunk.
const ITEMS_MAX: u64 = 200;
const CHUNK_BYTES: u32 = 15 * ITEMS_MAX as u32;
const STEP: Span = Span::from_millis(10);
const LIMIT: Span = Span::from_secs(4);
/// The time that a view may be behind beyond the limit for a moment.
const SLACK: Span = Span::from_secs(1);

/// One client, one view, and the log on a disk that is quick.
struct Spike {
    core: NodeCore,
    now: Time,
    seq: u64,
    next: u64,
    /// Increments that wait at the client: all that it could not send come with the next batch.
    unsaid: u64,
    /// The batch without an answer: how much it holds, and since when it is out.
    out: Option<(u64, Time)>,
    /// The longest time for which a batch had no answer.
    slowest: Span,
    counted: u64,
    view: View,
    /// Times, and the entry that was applied by then.
    applied: VecDeque<(Time, LogIndex)>,
}

/// An aggregator that needs its time for each chunk.
#[derive(Default)]
struct View {
    is_up: bool,
    is_stuck: bool,
    pull: FeedPull,
    /// It asks for more then: it is busy with a chunk until.
    asks_at: Option<Time>,
}

impl Spike {
    fn new(limit: Span) -> Spike {
        let config = NodeConfig { view_behind_max: limit, ..NodeConfig::new(id(), LANES) };
        let mut world = World::new(config);
        world.pass(Span::from_secs(1));
        let conn = ConnId(7);
        let owner = OwnerId(0);
        world.inbox.push_back(Input::ClientUp { conn, owner });
        world.inbox.push_back(Input::Client {
            conn,
            msg: FromClient::Open { client: ClientId(1), since: None, asks_known: false },
        });
        world.pass(Span::from_secs(1));
        let World { core, now, .. } = world;
        let seq = 0;
        let next = 0;
        let unsaid = 0;
        let counted = 0;
        let out = None;
        let slowest = Span(0);
        let view = View::default();
        let applied = VecDeque::new();
        let mut spike = Spike { core, now, seq, next, unsaid, out, slowest, counted, view, applied };
        spike.input(Input::AggregatorGone { seat: 0 });
        // Every counter has its slot, so that a change is a change and nothing else.
        spike.unsaid = COUNTERS;
        while spike.counted < COUNTERS {
            spike.step();
        }
        (spike.counted, spike.slowest) = (0, Span(0));
        spike.view.pull = FeedPull { group: id(), bytes_max: 1 << 20, ..FeedPull::default() };
        spike.connect();
        while spike.lag() > Span(0) || spike.view.asks_at.is_some() {
            spike.step();
        }
        spike.view.pull.bytes_max = CHUNK_BYTES;
        spike
    }

    fn connect(&mut self) {
        self.view.is_up = true;
        self.input(Input::AggregatorUp { seat: 0 });
        self.input(Input::Aggregator { seat: 0, msg: ForGroup::Feed(self.view.pull) });
    }

    fn disconnect(&mut self) {
        (self.view.is_up, self.view.asks_at) = (false, None);
        self.input(Input::AggregatorGone { seat: 0 });
    }

    /// Handles one input and its immediate effects; the ticks that were asked for.
    fn input(&mut self, input: Input) {
        let mut inputs = VecDeque::from([input]);
        let mut ticks = 0;
        while let Some(input) = inputs.pop_front() {
            self.core.handle(self.now, input);
            self.core.log.check_invariants(self.core.group.applied(), self.core.group.table().len());
            let mut durable = None;
            while let Some(output) = self.core.poll_output() {
                match output {
                    Output::Append { index, .. } => durable = Some(index),
                    Output::Client { msg, .. } => self.on_answer(&msg),
                    Output::Aggregator { msg: FromGroup::Feed(chunk), .. } => self.on_chunk(&chunk),
                    Output::Persist(_) => inputs.push_back(Input::Persisted),
                    _ => {}
                }
            }
            inputs.extend(durable.map(|upto| Input::Durable { upto }));
            if inputs.is_empty() && self.core.poll_timeout().is_some_and(|due| due <= self.now) {
                ticks += 1;
                inputs.push_back(Input::Tick);
            }
            assert!(ticks < 100, "it asks for ticks and does nothing");
        }
        let applied = self.core.group().applied();
        if self.applied.back().is_none_or(|&(_, last)| last < applied) {
            self.applied.push_back((self.now, applied));
        }
    }

    fn on_answer(&mut self, msg: &ToClient) {
        match (msg, self.out) {
            (ToClient::Durable { .. }, Some((items, since))) => {
                (self.out, self.counted) = (None, self.counted + items);
                self.slowest = self.slowest.max(self.now - since);
            }
            (ToClient::Refused { error, .. }, _) => panic!("{error}"),
            _ => {}
        }
    }

    fn on_chunk(&mut self, chunk: &FeedChunk) {
        if !self.view.is_up {
            return;
        }
        let pull = &mut self.view.pull;
        (pull.cursor, pull.walk, pull.slots_known) =
            (chunk.upto, chunk.walk, pull.slots_known + chunk.cells.len() as u32);
        self.view.asks_at = Some(self.now + Span(chunk.components.len() as u64 * 1_000_000 / TAKEN));
    }

    /// The client counts on, and the view takes its chunks.
    fn step(&mut self) {
        self.now = self.now + STEP;
        self.input(Input::Tick);
        if self.view.asks_at.is_some_and(|at| at <= self.now) && !self.view.is_stuck {
            self.view.asks_at = None;
            self.input(Input::Aggregator { seat: 0, msg: ForGroup::Feed(self.view.pull) });
        }
        let items = self.unsaid.min(ITEMS_MAX);
        if self.out.is_none() && items > 0 {
            self.unsaid -= items;
            self.seq += 1;
            let keys: Vec<(usize, u64)> =
                (self.next..self.next + items).map(|nth| ((nth % COUNTERS) as usize, 1)).collect();
            self.next += items;
            self.out = Some((items, self.now));
            self.input(Input::Client { conn: ConnId(7), msg: batch(0, self.seq, &keys) });
        }
    }

    /// The load goes on; how far the view was behind at most, and how much was counted.
    fn load(&mut self, span: Span) -> (Span, u64) {
        let end = self.now + span;
        let counted = self.counted;
        let mut worst = Span(0);
        while self.now < end {
            self.unsaid += OFFERED * STEP.0 / 1_000_000;
            self.step();
            worst = worst.max(self.lag());
        }
        (worst, self.counted - counted)
    }

    /// Since when the oldest entry that the view does not know is applied.
    fn lag(&mut self) -> Span {
        let known = self.view.pull.cursor;
        while self.applied.front().is_some_and(|&(_, index)| index <= known) {
            self.applied.pop_front();
        }
        self.applied.front().map_or(Span(0), |&(at, _)| self.now - at)
    }

    /// As much as is counted without holding, except for increments on their way.
    fn is_free(counted: u64, span: Span) -> bool {
        counted >= OFFERED * span.0 / 1_000_000 * 95 / 100
    }

    /// After a spike for which batches are held.
    fn held() -> Spike {
        let mut spike = Spike::new(LIMIT);
        spike.load(Span::from_secs(10));
        assert!(spike.core.held(spike.now) > Span(0));
        spike
    }
}

#[test]
fn a_spike_becomes_lag_up_to_the_limit_and_counting_goes_on_as_fast_as_the_view_follows() {
    let mut spike = Spike::new(LIMIT);
    let (_, first) = spike.load(Span::from_secs(1));
    assert!(Spike::is_free(first, Span::from_secs(1)), "nobody is held before: {first}");
    let span = Span::from_secs(60);
    let (worst, counted) = spike.load(span);
    assert!(worst <= Span(LIMIT.0 + SLACK.0), "{worst:?} behind");
    let taken = TAKEN * span.as_secs_f64() as u64;
    assert!((taken * 8 / 10..taken * 14 / 10).contains(&counted), "{counted} counted, while it took {taken}");
    assert!(spike.slowest < Span::from_secs(1), "{:?} for an answer", spike.slowest);
    let held = spike.core.held(spike.now);
    assert!(held > Span(span.0 / 3) && held < Span(span.0 + 1_000_000), "{held:?}");
    while spike.lag() > Span(0) || spike.out.is_some() || spike.unsaid > 0 {
        spike.step();
    }
    let after = spike.core.held(spike.now);
    spike.load(Span::from_millis(500));
    assert_eq!(spike.core.held(spike.now), after, "caught up");
}

#[test]
fn without_a_limit_nobody_is_held_and_the_lag_grows_with_the_load() {
    let mut spike = Spike::new(Span(0));
    let span = Span::from_secs(14);
    let (worst, counted) = spike.load(span);
    assert!(worst > Span(2 * LIMIT.0) && Spike::is_free(counted, span), "{worst:?} behind, {counted} counted");
    assert_eq!(spike.core.held(spike.now), Span(0));
}

#[test]
fn spikes_that_are_caught_up_within_the_limit_hold_nobody() {
    let mut spike = Spike::new(Span::from_millis(500));
    for _ in 0..40 {
        spike.unsaid += TAKEN / 4;
        (0..50).for_each(|_| spike.step());
        assert_eq!((spike.unsaid, spike.lag()), (0, Span(0)));
    }
    assert_eq!(spike.core.held(spike.now), Span(0));
}

#[test]
fn a_view_that_is_gone_stuck_or_walks_holds_nobody() {
    let span = Span::from_secs(3);
    let goes_on = |what: &str, mut spike: Spike| {
        let (before, (_, counted)) = (spike.core.held(spike.now), spike.load(span));
        assert!(Spike::is_free(counted, span), "{what}: {counted} counted");
        assert_eq!(spike.core.held(spike.now), before, "{what}");
    };
    let mut gone = Spike::held();
    gone.disconnect();
    goes_on("gone", gone);

    let mut stuck = Spike::held();
    stuck.view.is_stuck = true;
    let before = stuck.core.held(stuck.now);
    stuck.load(STUCK_AFTER);
    assert!(stuck.core.held(stuck.now) > before, "perhaps it only takes its time");
    goes_on("stuck", stuck);

    let mut walking = Spike::held();
    walking.view.is_stuck = true;
    let walk = FeedWalk { started: walking.core.group().applied(), next_slot: 1 };
    let pull = FeedPull { walk: Some(walk), ..walking.view.pull };
    walking.view.is_up = false;
    walking.input(Input::Aggregator { seat: 0, msg: ForGroup::Feed(pull) });
    goes_on("walking", walking);
}

#[test]
fn a_view_that_comes_back_holds_nobody_for_what_it_missed() {
    let mut spike = Spike::new(LIMIT);
    spike.disconnect();
    // Three times as much as it may be behind.
    spike.load(Span(3 * LIMIT.0 * TAKEN / OFFERED));
    spike.connect();
    assert!(spike.lag() > Span(0));
    // In this time less comes than it may be behind.
    let span = Span(LIMIT.0 * TAKEN / OFFERED * 7 / 10);
    let (_, counted) = spike.load(span);
    assert!(Spike::is_free(counted, span), "{counted} counted");
    assert_eq!(spike.core.held(spike.now), Span(0));
    // Then later counting is held, and does not stand still until the view is near enough.
    for _ in 0..60 {
        let (_, counted) = spike.load(Span::from_secs(1));
        assert!(counted >= TAKEN / 4, "{counted} counted in a second");
    }
    assert!(spike.core.held(spike.now) > Span(0) && spike.lag() <= Span(LIMIT.0 + SLACK.0), "{:?}", spike.lag());
}

#[test]
fn what_is_no_batch_passes_those_that_are_held() {
    let mut spike = Spike::held();
    spike.view.is_stuck = true;
    spike.load(Span::from_millis(500));
    let waiting = spike.core.waiting_bytes();
    assert!(waiting > 0, "a batch is held");
    let mut appended = |message: ToGroup| {
        spike.now = spike.now + spike.core.config().commit_interval;
        spike.core.handle(spike.now, Input::Aggregator { seat: 0, msg: ForGroup::Ledger(message) });
        spike.core.log.check_invariants(spike.core.group.applied(), spike.core.group.table().len());
        let outputs = std::iter::from_fn(|| spike.core.poll_output()).collect::<Vec<_>>();
        let entry = outputs.into_iter().find_map(|output| match output {
            Output::Append { index, entry } => Some((index, decode::<GroupEntry>(&entry).unwrap())),
            _ => None,
        });
        let (index, entry) = entry.expect("it is not held");
        spike.core.handle(spike.now, Input::Durable { upto: index });
        while spike.core.poll_output().is_some() {}
        (entry.cmds, spike.core.waiting_bytes())
    };
    let (cmds, still) = appended(ToGroup::Namespaces(vec!["test".into(), "more".into()]));
    assert!(matches!(&cmds[..], [GroupCmd::Ledger(ToGroup::Namespaces(_))]), "alone");
    assert_eq!(still, waiting);
    // A command that gives a slot keeps its place among such commands.
    let (cmds, still) = appended(ToGroup::Resets { after: 0, upto: 0, begun: vec![(name(COUNTERS as usize + 1), 1)] });
    assert!(matches!(cmds.last(), Some(GroupCmd::Ledger(ToGroup::Resets { .. }))) && cmds.len() > 1);
    assert_eq!(still, 0, "with what was before it");
}

#[test]
fn no_batch_is_held_for_longer_than_a_client_waits() {
    let mut spike = Spike::new(LIMIT);
    // The view needs nearly as long for a chunk as one may that is not stuck.
    spike.view.pull.bytes_max = 15 * TAKEN as u32 * 19 / 10;
    let (_, counted) = spike.load(Span::from_secs(60));
    assert!(spike.core.held(spike.now) > Span::from_secs(10), "{:?} held", spike.core.held(spike.now));
    assert!(spike.slowest <= Span(HELD_MAX.0 + 2 * STEP.0), "{:?} for an answer", spike.slowest);
    assert!(counted < OFFERED * 60 / 2, "{counted}");
}

#[test]
fn of_batches_few_wait_while_they_are_held_and_more_are_refused() {
    let mut spike = Spike::held();
    spike.view.is_stuck = true;
    let items: Vec<(usize, u64)> = (1..=1_000).map(|key| (key, 1)).collect();
    let mut refused = None;
    while refused.is_none() {
        spike.seq += 1;
        spike.core.handle(spike.now, Input::Client { conn: ConnId(7), msg: batch(0, spike.seq, &items) });
        refused = std::iter::from_fn(|| spike.core.poll_output()).find_map(|output| match output {
            Output::Client { msg: ToClient::Refused { error, .. }, .. } => Some(error),
            _ => None,
        });
        assert!(spike.core.waiting_bytes() < 2 * PACED_BYTES_MAX);
    }
    assert!(
        matches!(refused, Some(BatchError::Overloaded { limit, .. }) if limit == PACED_BYTES_MAX as u64),
        "{refused:?}"
    );
}
