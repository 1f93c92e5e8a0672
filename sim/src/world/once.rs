//! Increments with ids: callers send each through processes at several aggregators to the group that owns its id, again until they have an
//! answer, and some again after that; also after crashes. They are drawn from a stream of their own.

use super::{Event, World};
use crate::checkers::ids::{Ids, Said, without_ids};
use crate::oracle::{NOBODY, session_of};
use crate::plan::once::OncePlan;
use crate::rng::Rng;
use std::collections::{BTreeMap, VecDeque};
use tidemark_proto::client::{AddError, KeyedHit, Outcome, Ticket};
use tidemark_proto::ids::{DcId, Half};
use tidemark_proto::msg::{ItemId, Place};
use tidemark_proto::owners::owner_of as owner_of_id;
use tidemark_proto::time::{Span, Time};

/// Tickets of copies begin here; below are those of increments without ids.
const COPIES: u64 = 1 << 32;
/// Increments that are sent again without need: the newest of this number.
const RECENT: usize = 64;
/// Number of 10,000 copies of an increment that is known to count with other content.
const OTHER_PER_10K: u32 = 500;
/// Number of 10,000 increments sent again without need that are milestones, if there are such.
const WON_PER_10K: u32 = 500;
/// Callers that lose their patience at a time.
const IMPATIENT_MAX: usize = 4;

/// A copy of an increment, sent under its id.
#[derive(Clone, Copy, Debug)]
struct Copy {
    number: u32,
    /// With other content than the first.
    other: bool,
    door: usize,
    client: usize,
    /// When, and how often the owner's processes had started by then.
    at: Time,
    starts: u32,
    /// Nothing was said of it yet.
    waits: bool,
    /// More may be said of it.
    is_open: bool,
}

/// A process of one aggregator that sends increments with ids.
#[derive(Clone, Debug)]
struct Door {
    /// The place of its aggregator.
    at: usize,
    /// By group, the client there.
    clients: BTreeMap<usize, usize>,
}

pub struct Once {
    rng: Rng,
    doors: Vec<Door>,
    /// Increments of late, and when each was first sent.
    recent: VecDeque<(u32, Time)>,
    copies: Vec<Copy>,
    /// Those of them that are known to be a milestone.
    won: Vec<(u32, Time)>,
    /// Copies with callers that wait for an answer, the oldest first.
    waiting: VecDeque<usize>,
    pub(super) ids: Ids,
}

impl Once {
    pub fn new(rng: Rng, plan: Option<&OncePlan>) -> Once {
        let doors = plan.map(|plan| plan.doors.clone()).unwrap_or_default();
        let doors = doors.into_iter().map(|at| Door { at, clients: BTreeMap::new() }).collect();
        let (recent, won, copies, waiting, ids) = Default::default();
        Once { rng, doors, recent, won, copies, waiting, ids }
    }

    /// When an increment was first sent, if it may still be sent again.
    fn first_sent(&self, number: u32) -> Option<Time> {
        self.recent.iter().find(|(recent, _)| *recent == number).map(|(_, at)| *at)
    }
}

impl World {
    pub(super) fn begin_once(&mut self) {
        if self.plan.once.is_some() {
            self.after(Span::from_millis(300), Event::Once);
        }
    }

    /// Callers that have waited for too long send again, and one sends something else.
    pub(super) fn on_once(&mut self) {
        let Some(plan) = self.plan.once.clone() else { return };
        if self.arrivals_over() {
            return;
        }
        let pause = Span(self.once.rng.exponential(plan.every.0 as f64) as u64 + 1);
        self.after(pause, Event::Once);
        if self.once.rng.per_10k(plan.crash_per_10k) {
            let door = self.once.rng.below(plan.doors.len() as u64) as usize;
            self.crash_door(door);
        }
        let now = self.now;
        self.once.recent.retain(|(_, at)| *at + plan.repeated_for > now);
        self.once.won.retain(|(_, at)| *at + plan.repeated_for > now);
        self.send_impatiently(&plan);
        let again = !self.once.recent.is_empty() && self.once.rng.per_10k(plan.again_per_10k);
        let number = if again { self.sent_before() } else { self.sent_first() };
        let Some(number) = number else { return };
        // Other content is sent only where the first is known to count: it would count itself.
        let other = again && self.once.ids.is_counted(number) && self.once.rng.per_10k(OTHER_PER_10K);
        let Some(door) = self.door_but(None) else { return };
        self.send_copy(&plan, door, number, other);
    }

    /// Callers that have waited long enough send again, through another door if they can.
    fn send_impatiently(&mut self, plan: &OncePlan) {
        for _ in 0..IMPATIENT_MAX {
            let now = self.now;
            let is_over = |copy: &Copy| !copy.waits || copy.at + plan.patience <= now;
            let Some(&at) = self.once.waiting.front().filter(|&&at| is_over(&self.once.copies[at])) else { return };
            self.once.waiting.pop_front();
            let copy = self.once.copies[at];
            let may_be_sent = self.once.first_sent(copy.number).is_some();
            if !copy.waits || self.once.ids.is_counted(copy.number) || !may_be_sent {
                continue;
            }
            let Some(door) = self.door_but(Some(copy.door)) else { return };
            self.cover_again(&copy, door);
            self.send_copy(plan, door, copy.number, false);
        }
    }

    fn cover_again(&mut self, copy: &Copy, door: usize) {
        self.coverage.saw("id sent again without an answer");
        let [before, now] = [copy.door, door].map(|door| self.once.doors[door].at);
        let is_gone = !self.clients[copy.client].is_alive();
        self.coverage.saw_times("id sent again after its process crashed", u64::from(is_gone));
        match self.home_of(before) == self.home_of(now) {
            true => self.coverage.saw_times("id sent again by the other aggregator", u64::from(before != now)),
            false => self.coverage.saw("id sent again at another data centre"),
        }
    }

    /// A door with a running aggregator, another one than this if there is one.
    fn door_but(&mut self, but: Option<usize>) -> Option<usize> {
        let is_up = |door: &usize| self.aggregators[self.once.doors[*door].at].is_up();
        let all: Vec<usize> = (0..self.once.doors.len()).filter(is_up).collect();
        let others: Vec<usize> = all.iter().copied().filter(|door| Some(*door) != but).collect();
        let of = if others.is_empty() { all } else { others };
        (!of.is_empty()).then(|| *self.once.rng.pick(&of))
    }

    fn sent_before(&mut self) -> Option<u32> {
        let once = &mut self.once;
        self.coverage.saw("id sent again");
        if !once.won.is_empty() && once.rng.per_10k(WON_PER_10K) {
            return Some(once.rng.pick(&once.won).0);
        }
        let at = once.rng.below(once.recent.len() as u64) as usize;
        Some(once.recent[at].0)
    }

    fn sent_first(&mut self) -> Option<u32> {
        let counters = &self.plan.workload.counters;
        let hits: Vec<usize> = (0..counters.len()).filter(|&at| !counters[at].adds).collect();
        let counter = *hits.get(self.once.rng.below(hits.len() as u64) as usize)?;
        let oracle = &mut self.audit.oracle;
        let counter = oracle.half(counter as u16, Half::Up);
        let number = oracle.invoke(NOBODY, counter, 1, self.now);
        self.once.recent.push_back((number, self.now));
        if self.once.recent.len() > RECENT {
            self.once.recent.pop_front();
        }
        self.coverage.saw("increment with an id");
        Some(number)
    }

    fn send_copy(&mut self, plan: &OncePlan, door: usize, number: u32, other: bool) {
        let mut id = ItemId { digest: [0; 16], content: [0; 8], items: 1 };
        id.digest[..4].copy_from_slice(&number.to_be_bytes());
        id.content[0] = u8::from(other);
        // Here each group has a data centre of its own for that.
        let owners: Vec<(DcId, u16)> = plan.owners.iter().map(|group| (DcId(*group as u16), 1)).collect();
        let Some(owner) = owner_of_id(&owners, &id.digest, None) else { return };
        let group = usize::from(owner.dc.0);
        let client = self.door_client(door, group);
        let ticket = Ticket(COPIES + self.once.copies.len() as u64);
        let at = self.now;
        let starts = self.starts_of(group);
        let copy = Copy { number, other, door, client, at, starts, waits: true, is_open: true };
        let counter = self.audit.oracle.first_of(self.audit.oracle.increments[number as usize].counter);
        let process = &mut self.clients[client];
        let hit = KeyedHit { session: Some(session_of(number)), delta: 1 + u64::from(other), event: None, id };
        let to = process.counter(counter);
        let sent = process.core_mut().is_some_and(|core| core.try_hit_once(at, to, hit, ticket).is_ok());
        self.coverage.saw_times("id not taken by its process", u64::from(!sent));
        if sent {
            self.note(6, [number.into(), door as u64, group as u64], || {
                format!("increment {number} is sent through door {door} to group {group}; other content: {other}")
            });
            self.once.copies.push(copy);
            if !other {
                self.once.ids.sent(number);
                self.once.waiting.push_back(self.once.copies.len() - 1);
            }
            self.drain_client(client);
        }
    }

    /// How often processes of a group have started.
    fn starts_of(&self, group: usize) -> u32 {
        self.processes_of(group).map(|node| self.nodes[node].boot).sum()
    }

    fn door_client(&mut self, door: usize, group: usize) -> usize {
        if let Some(&client) = self.once.doors[door].clients.get(&group) {
            return client;
        }
        let client = self.add_pinned_client(group, self.home_of(self.once.doors[door].at));
        self.once.doors[door].clients.insert(group, client);
        client
    }

    /// An aggregator crashes, and with it what it sends.
    pub(super) fn crash_doors_of(&mut self, at: usize) {
        let doors: Vec<usize> = (0..self.once.doors.len()).filter(|&door| self.once.doors[door].at == at).collect();
        doors.into_iter().for_each(|door| self.crash_door(door));
    }

    fn crash_door(&mut self, door: usize) {
        self.coverage.saw("process with ids crashed");
        for client in std::mem::take(&mut self.once.doors[door].clients).into_values() {
            self.end_client_process(client);
        }
        let once = &mut self.once;
        let open = once.copies.iter_mut().filter(|copy| copy.door == door && copy.is_open);
        for copy in open {
            copy.is_open = false;
            if !copy.other {
                once.ids.lost(copy.number);
            }
        }
    }

    /// Whether the ticket is that of a copy; then what its process was told is looked at.
    pub(super) fn told_once(&mut self, ticket: Ticket, told: Option<&Outcome>) -> bool {
        let Some(at) = ticket.0.checked_sub(COPIES) else { return false };
        let Copy { number, other, client, starts, .. } = self.once.copies[at as usize];
        self.note(7, [number.into(), client as u64, 0], || format!("increment {number} with an id is told {told:?}"));
        let said = said(told);
        let known = self.once.ids.is_counted(number);
        let place = self.once.ids.place(number);
        if let Said::Counted(now) = said {
            let group = self.clients[client].group();
            let again = known && told.is_some();
            self.coverage.saw_times("id that counts answered again", u64::from(again));
            self.coverage.saw_times("place of an id told again", u64::from(again && now.is_some() && now == place));
            let is_won = again && matches!(now, Some(Place::Milestone { .. }));
            self.coverage.saw_times("milestone told again under its id", u64::from(is_won));
            let restarted =
                self.audit.oracle.increments[number as usize].applied == 1 && self.starts_of(group) > starts;
            self.coverage.saw_times("id answered by a later start of its group", u64::from(restarted));
        }
        self.coverage.saw_times("id refused for other content", u64::from(said == Said::Other));
        let full = matches!(told, Some(Outcome::Failed(AddError::IdsFull { .. })));
        self.coverage.saw_times("id refused for want of room", u64::from(full));
        let late = matches!(told, Some(Outcome::Failed(AddError::IdLate)));
        self.coverage.saw_times("id not sent in time", u64::from(late));
        self.coverage.saw_times("id of unknown fate", u64::from(said == Said::Unknown));
        let once = &mut self.once;
        let is_won = matches!(said, Said::Counted(Some(Place::Milestone { .. })));
        if let Some(first) = once.first_sent(number).filter(|_| is_won && place.is_none()) {
            once.won.push((number, first));
        }
        let copy = &mut once.copies[at as usize];
        copy.waits = !matches!(said, Said::Counted(_));
        let ends = told.is_some() && std::mem::take(&mut copy.is_open);
        once.ids.told(&mut self.audit.findings, &self.audit.oracle, number, other, said, ends);
        true
    }

    /// The results of ids, and whether the counts of groups are the requested ones.
    pub(super) fn audit_once_end(&mut self) {
        if self.plan.once.is_none() {
            return;
        }
        let findings = &mut self.audit.findings;
        let oracle = &self.audit.oracle;
        self.once.ids.at_end(findings, oracle);
        for half in 0..oracle.halves() {
            let held = (0..self.groups.len()).map(|group| self.held_by(group, half)).sum();
            let others = without_ids(&self.audit.oracle, half);
            let findings = &mut self.audit.findings;
            let oracle = &self.audit.oracle;
            self.once.ids.total_at_end(findings, oracle, half, held, others);
        }
    }

    /// The count of a half of a counter in a group, in all its generations.
    fn held_by(&self, group: usize, half: usize) -> u64 {
        let Some(core) = self.serving(group).and_then(|node| self.nodes[node].core()) else { return 0 };
        let numbers = (0..self.audit.oracle.numbers() as u16).filter(|&of| self.audit.oracle.first_of(of) == half);
        let sums = numbers.map(|number| {
            let (counter, half, generation) = self.audit.oracle.cell_of(number);
            let slot = core.group().table().find_half(&self.names[counter], half, generation);
            slot.map_or(0, |slot| core.group().sum(slot))
        });
        sums.sum()
    }
}

/// The answer to a process about one copy.
fn said(told: Option<&Outcome>) -> Said {
    match told {
        None | Some(Outcome::PlaceUnknown) => Said::Counted(None),
        Some(Outcome::Placed(place)) => Said::Counted(Some(*place)),
        Some(Outcome::Failed(AddError::IdReused)) => Said::Other,
        Some(Outcome::Failed(_)) => Said::Failed,
        Some(Outcome::Unknown) => Said::Unknown,
    }
}
