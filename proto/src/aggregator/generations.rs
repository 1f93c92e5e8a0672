//! Tells groups which counters began again, in pages: what a group has not heard yet goes out in a bounded number of messages, and the
//! next ones follow when it has heard those.
//!
//! A group has heard of a generation when its feed names the generation's cell. Each group is told what is new at once. When it connects, a
//! walk through all records tells it what it missed; and a slower walk, one step at each reminder, covers whatever was lost since.

use super::AggregatorCore;
use crate::ids::{CounterName, GroupId};
use crate::ledger::Ledger;
use crate::limits::GENERATIONS_PER_MESSAGE_MAX;
use crate::msg::ToGroup;
use crate::time::{Span, Time};
use std::collections::BTreeMap;

/// Generations that one group was told of and is not known to have heard. At most so many: the others wait.
const UNHEARD_MAX: usize = 4 * GENERATIONS_PER_MESSAGE_MAX;
/// Records that one step of a walk looks at: a millisecond or two.
const STEP_MAX: usize = 4 * GENERATIONS_PER_MESSAGE_MAX;
/// The time between two steps of a walk that has room to go on.
const STEP_INTERVAL: Span = Span::from_millis(5);
/// The same behind counters that are not held here: nobody here knows when the group has heard of those.
const BLIND_STEP_INTERVAL: Span = Span::from_millis(100);

/// What one group was told of counters that began again.
#[derive(Clone, Debug, Default)]
pub(super) struct Telling {
    /// Told, and not known to be heard.
    unheard: BTreeMap<CounterName, u32>,
    walk: Option<Walk>,
    /// Something new found no room: another walk has to follow.
    again: bool,
}

/// A walk through the ledger's records of lives, in the order of names.
#[derive(Clone, Debug, Default)]
struct Walk {
    /// Looked at up to this one.
    after: Option<CounterName>,
    /// It goes on whenever there is room, and not only at reminders.
    is_quick: bool,
}

impl Telling {
    fn is_walking(&self) -> bool {
        self.walk.as_ref().is_some_and(|walk| walk.is_quick)
    }
}

impl AggregatorCore {
    /// The group has connected or registers: it is told whatever it has not heard.
    pub(super) fn tell_all_generations(&mut self, now: Time, group: GroupId, ledger: &Ledger) {
        if !self.groups.contains(&group) {
            return;
        }
        // One that walks already goes on: who asks again and again would never hear of the last ones.
        let telling = self.telling.entry(group).or_default();
        if !telling.is_walking() {
            let walk = Some(Walk { after: None, is_quick: true });
            *telling = Telling { walk, ..Telling::default() };
        }
        self.walk_generations(now, group, ledger);
    }

    /// Of counters that began again just now, what the group has not heard.
    pub(super) fn tell_new_generations<'l>(
        &mut self,
        now: Time,
        group: GroupId,
        begun: impl Iterator<Item = (&'l CounterName, u32)>,
    ) {
        let new: Vec<_> = begun.filter(|&(counter, generation)| !self.has_heard(group, counter, generation)).collect();
        let telling = self.telling.entry(group).or_default();
        let room = UNHEARD_MAX.saturating_sub(telling.unheard.len());
        telling.again |= new.len() > room;
        let page: Vec<_> = new.into_iter().take(room).map(|(counter, of)| (counter.clone(), of)).collect();
        if telling.again {
            self.step_at.get_or_insert(now + STEP_INTERVAL);
        }
        self.tell_page(group, page);
    }

    fn tell_page(&mut self, group: GroupId, page: Vec<(CounterName, u32)>) {
        for part in page.chunks(GENERATIONS_PER_MESSAGE_MAX) {
            self.tell(group, ToGroup::Generations(part.to_vec()));
        }
        // Of others nobody here knows what the group has heard, so nothing waits for that.
        let held = |(counter, _): &(CounterName, u32)| self.holds(self.view.shard_of(counter));
        let page: Vec<_> = page.into_iter().filter(held).collect();
        self.telling.entry(group).or_default().unheard.extend(page);
    }

    /// The group has named further cells: some of what it was told it has heard.
    pub(super) fn note_heard(&mut self, now: Time, group: GroupId) {
        let Some(telling) = self.telling.get_mut(&group) else { return };
        let mut unheard = std::mem::take(&mut telling.unheard);
        unheard.retain(|counter, generation| !self.has_heard(group, counter, *generation));
        if let Some(telling) = self.telling.get_mut(&group) {
            telling.unheard = unheard;
            if telling.again || telling.is_walking() {
                self.step_at = Some(now);
            }
        }
    }

    /// Walks go on where there is room.
    pub(super) fn run_generations(&mut self, now: Time, ledger: &Ledger) {
        if self.step_at.is_none_or(|at| at > now) {
            return;
        }
        self.step_at = None;
        for group in self.groups.clone() {
            self.walk_generations(now, group, ledger);
        }
    }

    /// What was told and not heard is told again, and a walk goes on or begins.
    pub(super) fn remind_of_generations(&mut self, now: Time, group: GroupId, ledger: &Ledger) {
        let telling = self.telling.entry(group).or_default();
        let unheard = std::mem::take(&mut telling.unheard);
        let is_quick = telling.is_walking();
        telling.walk.get_or_insert_default();
        // The page holds again what is still unheard of it.
        let page: Vec<_> = unheard.into_iter().filter(|(counter, of)| !self.has_heard(group, counter, *of)).collect();
        self.tell_page(group, page);
        if is_quick {
            self.walk_generations(now, group, ledger);
        } else {
            self.step(group, ledger);
        }
    }

    fn walk_generations(&mut self, now: Time, group: GroupId, ledger: &Ledger) {
        let Some(telling) = self.telling.get_mut(&group) else { return };
        let has_room = telling.unheard.len() + GENERATIONS_PER_MESSAGE_MAX <= UNHEARD_MAX;
        if has_room && std::mem::take(&mut telling.again) {
            telling.walk = Some(Walk { after: None, is_quick: true });
        }
        if !has_room || !telling.is_walking() {
            return;
        }
        let interval = if self.step(group, ledger) { BLIND_STEP_INTERVAL } else { STEP_INTERVAL };
        if self.telling.get(&group).is_some_and(|telling| telling.walk.is_some()) {
            self.step_at.get_or_insert(now + interval);
        }
    }

    /// One step of a group's walk; true if it told of counters that are not held here. Only quick walks do: a group that registers waits
    /// until it has heard of all.
    fn step(&mut self, group: GroupId, ledger: &Ledger) -> bool {
        let Some(telling) = self.telling.get(&group) else { return false };
        let Some(Walk { after, is_quick }) = telling.walk.clone() else { return false };
        let mut is_blind = false;
        let room = UNHEARD_MAX.saturating_sub(telling.unheard.len());
        let (mut last, mut looked, mut page) = (after.clone(), 0, Vec::new());
        for (counter, generation) in ledger.resets().lives_behind(after.as_ref(), STEP_MAX) {
            if page.len() >= room {
                break;
            }
            (last, looked) = (Some(counter.clone()), looked + 1);
            let is_held = self.holds(self.view.shard_of(counter));
            let is_told = telling.unheard.contains_key(counter) || !(is_held || is_quick);
            if !is_told && !self.has_heard(group, counter, generation) {
                is_blind |= !is_held;
                page.push((counter.clone(), generation));
            }
        }
        let is_done = looked < STEP_MAX && page.len() < room;
        self.tell_page(group, page);
        let telling = self.telling.entry(group).or_default();
        telling.walk = (!is_done).then_some(Walk { after: last, is_quick });
        is_blind
    }
}
