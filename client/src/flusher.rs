//! The one task of a client: moves what callers counted into the core, messages between the core and its links, and the
//! core's answers to the callers. It decides nothing about counting.
//!
//! Hits wake it, and the core says when they are sent. Adds wake no task, so that they cost their callers nothing: rounds, one in each
//! interval, look for them.

use crate::error::{AddLoss, HitError};
use crate::hit::HitCell;
use crate::keys::KeySlots;
use crate::link::{Dialer, Link};
use crate::link_event::{EVENTS_MAX, Event, Events};
use crate::link_state::{LinkState, Links};
use crate::shared::{CounterInner, FlushAnswer, NewHit, SeenGroup, Shared};
use crate::timed::TimedAdd;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tidemark_proto::client::{
    AddError, ClientCore, CounterRef, InDoubt, Input, KeyedHit, LinkId, Outcome, Output, Ticket,
};
use tidemark_proto::ids::Half;
use tidemark_proto::limits::DELTA_MAX;
use tidemark_proto::time::Time;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// Rounds without content before the flusher falls asleep.
const IDLE_ROUNDS: u32 = 3;
/// How often a sleeping flusher looks all the same.
const ASLEEP: Duration = Duration::from_secs(1);
/// Rounds between looks for counters without handles.
const FORGET_ROUNDS: u32 = 512;

pub(crate) type OnLoss = Box<dyn Fn(AddLoss) + Send + Sync>;

/// Adds of one counter or one thread's table, as far as the core has them.
enum Source {
    Handle { counter: Arc<CounterInner>, up: Seen, down: Seen },
    Keys { slots: Arc<KeySlots>, half: Half, seen: Vec<Seen> },
}

/// The part of one half of a counter that the core has.
#[derive(Default)]
struct Seen {
    to: Option<CounterRef>,
    sum: u64,
}

pub(crate) struct Flusher {
    core: ClientCore,
    shared: Arc<Shared>,
    dialer: Dialer,
    interval: Duration,
    on_loss: OnLoss,
    start: Instant,
    links: HashMap<LinkId, Link>,
    events: mpsc::Receiver<(LinkId, Event)>,
    to_events: Events,
    sources: Vec<Source>,
    /// Hits that the core had no room for.
    waiting: VecDeque<NewHit>,
    /// Adds with event times that the core had no room for.
    waiting_timed: Vec<TimedAdd>,
    cells: Vec<Option<Arc<HitCell>>>,
    free_cells: Vec<usize>,
    /// Flushes with content that is not yet all in the core.
    flushes: Vec<FlushAnswer>,
    flushing: HashMap<u64, FlushAnswer>,
    next_flush: u64,
    next_round: Instant,
    /// No rounds are made but for one in [`ASLEEP`], as far as the flusher knows: an add has it wake.
    sleeps: bool,
    idle_rounds: u32,
    rounds: u32,
    group: Option<SeenGroup>,
    close: Option<Instant>,
    close_told: bool,
    /// Whether the node in use takes increments.
    state: Links,
    closed: watch::Sender<Option<InDoubt>>,
    done: Option<InDoubt>,
}

impl Flusher {
    pub fn new(
        core: ClientCore,
        shared: Arc<Shared>,
        dialer: Dialer,
        interval: Duration,
        on_loss: OnLoss,
        state: watch::Sender<LinkState>,
        closed: watch::Sender<Option<InDoubt>>,
    ) -> Flusher {
        let (to_events, events) = mpsc::channel(EVENTS_MAX);
        let start = Instant::now();
        Flusher {
            core,
            shared,
            dialer,
            interval,
            on_loss,
            start,
            links: HashMap::new(),
            events,
            to_events,
            sources: Vec::new(),
            waiting: VecDeque::new(),
            waiting_timed: Vec::new(),
            cells: Vec::new(),
            free_cells: Vec::new(),
            flushes: Vec::new(),
            flushing: HashMap::new(),
            next_flush: 0,
            next_round: start,
            sleeps: false,
            idle_rounds: 0,
            rounds: 0,
            group: None,
            close: None,
            close_told: false,
            state: Links::new(state),
            closed,
            done: None,
        }
    }

    pub async fn run(mut self) {
        loop {
            self.round_if_due();
            self.core.handle(self.now(), Input::Tick);
            self.drain_core();
            self.state.publish(self.core.site().is_some_and(|(_, is_up)| is_up));
            self.note_group();
            if let Some(in_doubt) = self.done {
                return self.end(in_doubt);
            }
            let wake_at = self.wake_at();
            tokio::select! {
                Some((link, event)) = self.events.recv() => self.on_events(link, event),
                () = self.shared.notify.notified() => self.on_notified(),
                () = tokio::time::sleep_until(wake_at) => {}
            }
        }
    }

    /// Callers may ask which group this is.
    fn note_group(&mut self) {
        let seen = self.core.group().map(|(id, age, ids_kept)| SeenGroup { id, age, ids_kept });
        if seen != self.group {
            self.group = seen;
            self.shared.set_group(seen);
        }
    }

    fn now(&self) -> Time {
        Time(self.start.elapsed().as_micros() as u64)
    }

    fn wake_at(&self) -> Instant {
        let core = self.core.poll_timeout().map(|at| self.start + Duration::from_micros(at.0));
        core.map_or(self.next_round, |core| core.min(self.next_round))
    }

    fn on_events(&mut self, link: LinkId, event: Event) {
        self.on_event(link, event);
        for _ in 0..EVENTS_MAX {
            let Ok((link, event)) = self.events.try_recv() else { break };
            self.on_event(link, event);
        }
    }

    fn on_event(&mut self, link: LinkId, event: Event) {
        let input = match event {
            Event::Connected => Input::Connected { link },
            Event::Message(message) => Input::FromNode { link, message },
            Event::Gone(gone) => {
                self.links.remove(&link);
                self.state.note(gone);
                Input::Disconnected { link }
            }
        };
        self.core.handle(self.now(), input);
        self.drain_core();
        self.state.publish(self.core.site().is_some_and(|(_, is_up)| is_up));
    }

    /// A caller hits, waits for a flush, closes, or adds while no rounds are made.
    fn on_notified(&mut self) {
        let mut inbox = self.shared.inbox();
        let urgent = !inbox.flushes.is_empty() || !inbox.withdrawals.is_empty() || inbox.close.is_some();
        self.waiting.extend(inbox.hits.drain(..));
        drop(inbox);
        self.take_hits();
        let woken = std::mem::replace(&mut self.sleeps, self.shared.is_asleep()) && !self.sleeps;
        if urgent || woken {
            self.idle_rounds = 0;
            self.next_round = Instant::now();
        }
    }

    fn round_if_due(&mut self) {
        let now = Instant::now();
        if now < self.next_round {
            return;
        }
        self.rounds = self.rounds.wrapping_add(1);
        let asleep = self.shared.is_asleep();
        if !asleep && self.idle_rounds >= IDLE_ROUNDS {
            self.shared.set_asleep(true);
        }
        if self.round() {
            self.idle_rounds = 0;
            self.shared.set_asleep(false);
        } else {
            self.idle_rounds = self.idle_rounds.saturating_add(1);
        }
        self.sleeps = self.shared.is_asleep();
        self.next_round = now + if self.sleeps { ASLEEP } else { self.interval };
        if self.rounds.is_multiple_of(FORGET_ROUNDS) {
            self.forget_handles();
        }
    }

    /// Takes all that callers counted into the core; whether there was anything.
    fn round(&mut self) -> bool {
        let mut inbox = std::mem::take(&mut *self.shared.inbox());
        if inbox.close.is_some() {
            self.shared.inbox().close = inbox.close;
            self.close = self.close.or(inbox.close);
        }
        self.waiting.extend(inbox.hits.drain(..));
        self.flushes.append(&mut inbox.flushes);
        let all_hits = self.take_hits();
        for (cell, answer) in inbox.withdrawals.drain(..) {
            let _ = answer.send(self.withdraw(&cell));
        }
        let (adds, all_adds) = self.take_adds();
        let (timed, all_timed) = self.take_timed();
        let adds = adds || timed;
        let all_adds = all_adds && all_timed;
        if all_hits && all_adds {
            self.start_flushes();
        }
        let late = self.close.is_some_and(|deadline| deadline <= Instant::now());
        if let Some(deadline) = self.close.filter(|_| !self.close_told && (late || (all_hits && all_adds))) {
            self.close_told = true;
            let deadline = Time(deadline.saturating_duration_since(self.start).as_micros() as u64);
            self.core.handle(self.now(), Input::Close { deadline });
        }
        adds || !self.flushes.is_empty()
    }

    /// Whether the core has taken all that wait.
    fn take_hits(&mut self) -> bool {
        let now = self.now();
        while let Some(hit) = self.waiting.pop_front() {
            let counter = match self.core.half_of(hit.counter.name(), hit.half) {
                Ok(counter) => counter,
                Err(error) => {
                    self.answer(&hit.cell, Err(HitError::Failed(error)));
                    continue;
                }
            };
            let ticket = self.ticket(&hit.cell);
            let NewHit { session, delta, event, .. } = hit;
            let taken = match hit.id {
                None => self.core.try_hit_at(now, counter, session, delta, ticket, event),
                Some(id) => self.core.try_hit_once(now, counter, KeyedHit { session, delta, event, id }, ticket),
            };
            match taken {
                Ok(()) => {}
                Err(AddError::Overloaded { .. } | AddError::TooHeavy) => {
                    self.cell(ticket);
                    self.waiting.push_front(hit);
                    return false;
                }
                Err(error) => {
                    self.cell(ticket);
                    self.answer(&hit.cell, Err(HitError::Failed(error)));
                }
            }
        }
        true
    }

    /// Takes a hit back that was not sent; whether it was.
    fn withdraw(&mut self, cell: &Arc<HitCell>) -> bool {
        if let Some(at) = self.waiting.iter().position(|hit| Arc::ptr_eq(&hit.cell, cell)) {
            self.waiting.remove(at);
            self.answer(cell, Err(HitError::Failed(AddError::Withdrawn)));
            return true;
        }
        let withdrawn = cell.ticket().is_some_and(|ticket| self.core.withdraw(Ticket(ticket)));
        self.drain_core();
        withdrawn
    }

    fn ticket(&mut self, cell: &Arc<HitCell>) -> Ticket {
        let at = self.free_cells.pop().unwrap_or_else(|| {
            self.cells.push(None);
            self.cells.len() - 1
        });
        self.cells[at] = Some(cell.clone());
        cell.set_ticket(at as u64);
        Ticket(at as u64)
    }

    fn cell(&mut self, ticket: Ticket) -> Option<Arc<HitCell>> {
        let at = ticket.0 as usize;
        self.free_cells.push(at);
        self.cells[at].take()
    }

    fn answer(&self, cell: &HitCell, outcome: Result<tidemark_proto::msg::Place, HitError>) {
        self.shared.permits.add_permits(1);
        cell.resolve(outcome);
    }

    /// Takes what has event times, as [`Flusher::take_adds`] does the other.
    fn take_timed(&mut self) -> (bool, bool) {
        let now = self.now();
        let mut any = false;
        loop {
            while let Some(mut add) = self.waiting_timed.pop() {
                any = true;
                if !self.take_timed_add(now, &mut add) {
                    self.waiting_timed.push(add);
                    return (any, false);
                }
            }
            // Increments without room in the core stay here, and the rest where it is bounded.
            self.waiting_timed = self.shared.timed.take();
            if self.waiting_timed.is_empty() {
                return (any, true);
            }
        }
    }

    /// Whether the core has taken all of it.
    fn take_timed_add(&mut self, now: Time, add: &mut TimedAdd) -> bool {
        let TimedAdd { counter: name, half, weight, event } = add;
        while *weight > 0 {
            let delta = (*weight).min(DELTA_MAX);
            let counter = self.core.half_of(name, *half);
            match counter.and_then(|counter| self.core.try_add_at(now, counter, delta, *event)) {
                Ok(()) => *weight -= delta,
                Err(AddError::Overloaded { .. } | AddError::TooHeavy) => return false,
                Err(error) => {
                    let counter = name.clone();
                    let half = *half;
                    let event = Some(*event);
                    (self.on_loss)(AddLoss::Failed { counter, half, weight: *weight, event, error });
                    return true;
                }
            }
        }
        true
    }

    /// Whether there was something to take, and whether all of it was taken.
    fn take_adds(&mut self) -> (bool, bool) {
        let fresh = self.shared.fresh_handles().into_iter();
        let handle = |counter| Source::Handle { counter, up: Seen::default(), down: Seen::default() };
        self.sources.extend(fresh.map(handle));
        for (keys, half) in [(&self.shared.keys, Half::Up), (&self.shared.keys_down, Half::Down)] {
            let fresh = keys.take_fresh().into_iter();
            self.sources.extend(fresh.map(|slots| Source::Keys { slots, half, seen: Vec::new() }));
        }
        let now = self.now();
        let mut any = false;
        let mut all = true;
        let mut sources = std::mem::take(&mut self.sources);
        sources.retain_mut(|source| {
            let taken = self.take_source(now, source);
            any |= taken.any;
            all &= taken.all;
            !taken.forget
        });
        self.sources = sources;
        (any, all)
    }

    fn take_source(&mut self, now: Time, source: &mut Source) -> Taken {
        let mut taken = Taken { any: false, all: true, forget: false };
        match source {
            Source::Handle { counter, up, down } => {
                let sums = counter.sums();
                for (half, sum, seen) in [(Half::Up, sums.0, up), (Half::Down, sums.1, down)] {
                    if sum != seen.sum {
                        self.take(now, || counter.name.clone(), half, sum, seen, &mut taken);
                    }
                }
            }
            Source::Keys { slots, half, seen } => {
                let closed = slots.is_closed();
                for name in slots.names_from(seen.len()) {
                    seen.push(Seen { to: self.core.half_of(&name, *half).ok(), sum: 0 });
                }
                for (slot, seen) in seen.iter_mut().enumerate() {
                    let sum = slots.sum(slot);
                    if sum != seen.sum {
                        let name = || slots.names_from(slot).swap_remove(0);
                        self.take(now, name, *half, sum, seen, &mut taken);
                    }
                }
                taken.forget = closed && taken.all;
                if taken.forget {
                    slots.set_taken();
                }
            }
        }
        taken
    }

    /// Moves what a slot has more than was seen into the core, as far as that has room.
    fn take(
        &mut self,
        now: Time,
        name: impl Fn() -> tidemark_proto::ids::CounterName,
        half: Half,
        sum: u64,
        seen: &mut Seen,
        taken: &mut Taken,
    ) {
        taken.any = true;
        while sum != seen.sum {
            let delta = sum.wrapping_sub(seen.sum).min(DELTA_MAX);
            let counter = match seen.to {
                Some(counter) => Ok(counter),
                None => self.core.half_of(&name(), half),
            };
            seen.to = counter.as_ref().ok().copied();
            match counter.and_then(|counter| self.core.try_add(now, counter, delta)) {
                Ok(()) => seen.sum = seen.sum.wrapping_add(delta),
                Err(AddError::Overloaded { .. } | AddError::TooHeavy) => {
                    taken.all = false;
                    return;
                }
                Err(error) => {
                    let weight = sum.wrapping_sub(seen.sum);
                    (self.on_loss)(AddLoss::Failed { counter: name(), half, weight, event: None, error });
                    seen.sum = sum;
                }
            }
        }
    }

    fn forget_handles(&mut self) {
        let shared = &self.shared;
        self.sources.retain(|source| match source {
            Source::Handle { counter, up, down } => !shared.forget_handle(counter, (up.sum, down.sum)),
            Source::Keys { .. } => true,
        });
    }

    fn start_flushes(&mut self) {
        for answer in std::mem::take(&mut self.flushes) {
            self.next_flush += 1;
            self.flushing.insert(self.next_flush, answer);
            self.core.handle(self.now(), Input::Flush { ticket: Ticket(self.next_flush) });
        }
    }

    fn drain_core(&mut self) {
        while let Some(output) = self.core.poll_output() {
            self.on_output(output);
        }
    }

    fn on_output(&mut self, output: Output) {
        match output {
            Output::Connect { link, site } => {
                self.links.insert(link, Link::open(&self.dialer, link, site, self.to_events.clone()));
            }
            Output::Disconnect { link } => drop(self.links.remove(&link)),
            Output::Send { link, message } => {
                if !self.links.get(&link).is_some_and(|link| link.send(message)) && self.links.remove(&link).is_some() {
                    self.core.handle(self.now(), Input::Disconnected { link });
                }
            }
            Output::Durable { ticket } => {
                if let Some(cell) = &self.cells[ticket.0 as usize] {
                    cell.set_durable();
                }
            }
            Output::Known { ticket } => {
                if let Some(cell) = &self.cells[ticket.0 as usize] {
                    cell.set_known();
                }
            }
            Output::Resolved { ticket, outcome } => {
                if let Some(cell) = self.cell(ticket) {
                    self.answer(&cell, resolved(outcome));
                }
            }
            Output::Flushed { ticket, refused, unknown } => {
                if let Some(answer) = self.flushing.remove(&ticket.0) {
                    let _ = answer.send((refused, unknown));
                }
            }
            Output::Failed { counter, delta, event, error } => {
                let half = self.core.half(counter);
                let counter = self.core.name(counter).clone();
                (self.on_loss)(AddLoss::Failed { counter, half, weight: delta, event, error });
            }
            Output::Unknown { counter, delta, event } => {
                let half = self.core.half(counter);
                let counter = self.core.name(counter).clone();
                (self.on_loss)(AddLoss::Unknown { counter, half, weight: delta, event });
            }
            Output::Writable => self.next_round = Instant::now(),
            Output::Closed { in_doubt } => self.done = Some(in_doubt),
        }
    }

    /// No caller waits for an answer that will never come.
    fn end(mut self, in_doubt: InDoubt) {
        let mut inbox = self.shared.inbox();
        inbox.ended = true;
        let late = std::mem::take(&mut inbox.hits);
        inbox.flushes.clear();
        inbox.withdrawals.clear();
        drop(inbox);
        for hit in self.waiting.drain(..).chain(late) {
            hit.cell.resolve(Err(HitError::Closed));
        }
        self.shared.permits.close();
        let _ = self.closed.send(Some(in_doubt));
    }
}

impl Drop for Flusher {
    /// Also when the runtime ends under it.
    fn drop(&mut self) {
        self.shared.inbox().ended = true;
        self.shared.timed.end();
        let open = self.cells.iter().flatten().map(|cell| &**cell).chain(self.waiting.iter().map(|hit| &*hit.cell));
        open.for_each(|cell| cell.resolve(Err(HitError::Closed)));
    }
}

/// The result of a source in one round.
struct Taken {
    any: bool,
    all: bool,
    forget: bool,
}

fn resolved(outcome: Outcome) -> Result<tidemark_proto::msg::Place, HitError> {
    match outcome {
        Outcome::Placed(place) => Ok(place),
        Outcome::PlaceUnknown => Err(HitError::PlaceUnknown),
        Outcome::Failed(error) => Err(HitError::Failed(error)),
        Outcome::Unknown => Err(HitError::Unknown),
    }
}
