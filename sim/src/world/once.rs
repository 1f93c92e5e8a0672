//! Increments with ids: sent by several processes to the group that owns each, again and again, also after crashes; and what must be
//! answered. They are drawn from a stream of their own.

use super::{Event, World};
use crate::oracle::{NOBODY, session_of};
use crate::plan::once::OncePlan;
use crate::rng::Rng;
use std::collections::BTreeMap;
use tidemark_proto::client::{AddError, KeyedHit, Outcome, Ticket};
use tidemark_proto::ids::{DcId, Half};
use tidemark_proto::msg::{ItemId, Place};
use tidemark_proto::owners::owner_of as owner_of_id;
use tidemark_proto::time::{Span, Time};

const NAME: &str = "ids";
/// Tickets of attempts begin here; below are those of increments without ids.
const ATTEMPTS: u64 = 1 << 32;
/// Increments that are sent again: the newest of this number.
const RECENT: usize = 64;

/// What was sent with an id.
#[derive(Clone, Copy, Debug)]
struct Attempt {
    number: u32,
    /// With other content than the first.
    other: bool,
}

pub struct Once {
    rng: Rng,
    /// By door, the client at each group.
    doors: Vec<BTreeMap<usize, usize>>,
    recent: Vec<(u32, Time)>,
    attempts: Vec<Attempt>,
    /// Increments that somebody was told to be counted, and where as far as that was told.
    told: BTreeMap<u32, Option<Place>>,
}

impl Once {
    pub fn new(rng: Rng, plan: Option<&OncePlan>) -> Once {
        let doors = vec![BTreeMap::new(); plan.map_or(0, |plan| plan.doors)];
        Once { rng, doors, recent: Vec::new(), attempts: Vec::new(), told: BTreeMap::new() }
    }
}

impl World {
    pub(super) fn begin_once(&mut self) {
        if self.plan.once.is_some() {
            self.after(Span::from_millis(300), Event::Once);
        }
    }

    /// A door sends an increment with an id, a new one or one that was sent before.
    pub(super) fn on_once(&mut self) {
        let Some(plan) = self.plan.once.clone() else { return };
        if self.arrivals_over() {
            return;
        }
        let pause = Span(self.once.rng.exponential(plan.every.0 as f64) as u64 + 1);
        self.after(pause, Event::Once);
        let door = self.once.rng.below(plan.doors as u64) as usize;
        if self.once.rng.per_10k(plan.crash_per_10k) {
            self.coverage.saw("process with ids crashes");
            for client in std::mem::take(&mut self.once.doors[door]).into_values() {
                self.crash_client(client, false);
            }
        }
        let now = self.now;
        self.once.recent.retain(|(_, at)| *at + plan.repeated_for > now);
        let again = !self.once.recent.is_empty() && self.once.rng.per_10k(plan.again_per_10k);
        let number = if again { self.sent_before() } else { self.sent_first() };
        let Some(number) = number else { return };
        // Other content is sent only where the first is known to count: it would count itself.
        let other = again && self.once.told.contains_key(&number) && self.once.rng.per_10k(500);
        self.send_once(&plan, door, Attempt { number, other });
    }

    fn sent_before(&mut self) -> Option<u32> {
        let at = self.once.rng.below(self.once.recent.len() as u64) as usize;
        self.coverage.saw("id sent again");
        Some(self.once.recent[at].0)
    }

    fn sent_first(&mut self) -> Option<u32> {
        let counters = &self.plan.workload.counters;
        let hits: Vec<usize> = (0..counters.len()).filter(|&at| !counters[at].adds).collect();
        let counter = *hits.get(self.once.rng.below(hits.len().max(1) as u64) as usize)?;
        let oracle = &mut self.audit.oracle;
        let counter = oracle.half(counter as u16, Half::Up);
        let number = oracle.invoke(NOBODY, counter, 1, self.now);
        self.once.recent.push((number, self.now));
        if self.once.recent.len() > RECENT {
            self.once.recent.remove(0);
        }
        Some(number)
    }

    fn send_once(&mut self, plan: &OncePlan, door: usize, attempt: Attempt) {
        let Attempt { number, other } = attempt;
        let mut id = ItemId { digest: [0; 16], content: [0; 8], items: 1 };
        id.digest[..4].copy_from_slice(&number.to_be_bytes());
        id.content[0] = u8::from(other);
        // Here each group has a data centre of its own for that.
        let owners: Vec<(DcId, u16)> = plan.owners.iter().map(|group| (DcId(*group as u16), 1)).collect();
        let Some(owner) = owner_of_id(&owners, &id.digest, None) else { return };
        let client = self.door_client(door, owner.dc.0.into());
        // Its first generation: what is counted names the present one.
        let counter = self.audit.oracle.cell_of(self.audit.oracle.increments[number as usize].counter).0;
        let delta = 1 + u64::from(other);
        let ticket = Ticket(ATTEMPTS + self.once.attempts.len() as u64);
        self.once.attempts.push(attempt);
        let now = self.now;
        let process = &mut self.clients[client];
        let (to, session) = (process.counter(counter), Some(session_of(number)));
        if let Some(core) = process.core_mut() {
            let sent = core.try_hit_once(now, to, KeyedHit { session, delta, event: None, id }, ticket);
            self.coverage.saw_times("id not taken by its process", u64::from(sent.is_err()));
        }
        self.drain_client(client);
    }

    fn door_client(&mut self, door: usize, group: usize) -> usize {
        if let Some(&client) = self.once.doors[door].get(&group) {
            return client;
        }
        let client = self.add_pinned_client(group);
        self.once.doors[door].insert(group, client);
        client
    }

    /// Whether the ticket is that of an attempt; then what its door was told is looked at.
    pub(super) fn told_once(&mut self, ticket: Ticket, told: Option<&Outcome>) -> bool {
        let Some(at) = ticket.0.checked_sub(ATTEMPTS) else { return false };
        let Attempt { number, other } = self.once.attempts[at as usize];
        let applied = self.audit.oracle.increments[number as usize].applied;
        let findings = &mut self.audit.findings;
        let counted = matches!(told, None | Some(Outcome::Placed(_) | Outcome::PlaceUnknown));
        findings.check(NAME, !counted || (applied == 1 && !other), || {
            format!("increment {number}, counted {applied} times, other content: {other}: its door was told {told:?}")
        });
        let is_reused = matches!(told, Some(Outcome::Failed(AddError::IdReused)));
        findings
            .check(NAME, !is_reused || other, || format!("increment {number} was refused as another one under its id"));
        self.coverage.saw_times("id refused for other content", u64::from(is_reused));
        let full = matches!(told, Some(Outcome::Failed(AddError::IdsFull { .. })));
        self.coverage.saw_times("id refused for want of room", u64::from(full));
        if !counted {
            return true;
        }
        let place = match told {
            Some(Outcome::Placed(place)) => Some(*place),
            _ => None,
        };
        let late = self.audit.oracle.increments[number as usize].late;
        let before = self.once.told.entry(number).or_default();
        self.coverage.saw_times("place of an id told again", u64::from(before.is_some() && place.is_some()));
        let agrees = |before: Place, now: Place| before == now || before == Place::Counted && (late || is_number(now));
        let is_same = before.zip(place).is_none_or(|(before, now)| agrees(before, now) || agrees(now, before));
        self.audit.findings.check(NAME, is_same, || {
            format!("increment {number} was answered {before:?} under its id, and now {place:?}")
        });
        *before = place.or(*before);
        true
    }
}

fn is_number(place: Place) -> bool {
    matches!(place, Place::Number(_))
}
