//! Tells groups which counters began again, in the order of their resets and in pages. Resets that a group has not heard of go
//! out in a bounded number of messages, and the next ones follow when it has heard those.
//!
//! A group's feed reports the number up to which it has heard without a gap. Resets that it was told of and does not report are
//! told again at the reminders.

use super::AggregatorCore;
use std::collections::{BTreeMap, VecDeque};
use tidemark_ledger::ledger::Ledger;
use tidemark_types::ids::{CounterName, GroupId};
use tidemark_types::limits::GENERATIONS_PER_MESSAGE_MAX;
use tidemark_types::time::{Span, Time};
use tidemark_wire::msg::ToGroup;

/// Resets that one group was told of and has not heard, at most: the others wait.
const UNHEARD_MAX: usize = 4 * GENERATIONS_PER_MESSAGE_MAX;
/// Messages about them, at most.
const PAGES_MAX: usize = 64;
/// Resets that are heard of within this time go in one message.
const SAY_AFTER: Span = Span::from_secs(1);

/// The resets that one group was told of, on this connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Telling {
    /// The group has heard of all resets up to this number.
    heard: u64,
    /// Messages that it is not known to have heard: up to which number, and how many resets are in each.
    pages: VecDeque<(u64, usize)>,
    /// When reminders were last due, it had heard so far.
    heard_before: u64,
}

impl Telling {
    /// It was told of all resets up to this number.
    fn told(&self) -> u64 {
        self.pages.back().map_or(self.heard, |&(upto, _)| upto)
    }

    fn unheard(&self) -> usize {
        self.pages.iter().map(|&(_, resets)| resets).sum()
    }
}

/// The progress of the groups of this data centre in hearing of resets.
#[derive(Clone, Debug, Default)]
pub(super) struct ResetsHeard {
    groups: BTreeMap<GroupId, u64>,
    /// When that is said to the ledger.
    say_at: Option<Time>,
}

impl ResetsHeard {
    pub fn due(&self) -> Option<Time> {
        self.say_at
    }

    /// Up to which number a group has heard of resets without a gap, as far as is known here.
    pub fn of(&self, group: GroupId) -> u64 {
        self.groups.get(&group).copied().unwrap_or_default()
    }

    /// There may be something to say.
    pub fn say_soon(&mut self, now: Time) {
        self.say_at.get_or_insert(now + SAY_AFTER);
    }
}

impl AggregatorCore {
    /// Says to the ledger how far this view and its groups have come.
    pub(super) fn say_heard(&mut self, now: Time, ledger: &Ledger) {
        if self.resets_heard.say_at.is_none_or(|at| at > now) {
            return;
        }
        self.resets_heard.say_at = None;
        let heard = |group| self.resets_heard.of(group);
        if let Some(cmd) = ledger.hearing(self.config.own, heard) {
            self.standing.add(cmd);
        }
    }

    /// The group has connected. The resets that it had heard of before are in its log.
    pub(super) fn begin_telling(&mut self, group: GroupId) {
        let heard = self.resets_heard.of(group);
        self.telling.insert(group, Telling { heard, ..Telling::default() });
    }

    /// Tells a group of resets that it was not told of, as far as there is room.
    pub(super) fn tell_generations(&mut self, group: GroupId, ledger: &Ledger) {
        if !self.groups.contains(&group) {
            return;
        }
        let last = ledger.resets().last();
        loop {
            let telling = self.telling.entry(group).or_default();
            let after = telling.told();
            let room = UNHEARD_MAX.saturating_sub(telling.unheard());
            let most = room.min(GENERATIONS_PER_MESSAGE_MAX);
            if after >= last || most == 0 || telling.pages.len() >= PAGES_MAX {
                return;
            }
            let behind: Vec<(u64, CounterName, u32)> =
                ledger.resets().after(after).take(most).map(|(at, of, began)| (at, of.clone(), began)).collect();
            // Counters up to there that are not listed have begun again since.
            let upto = if behind.len() < most { last } else { behind.last().map_or(last, |&(number, ..)| number) };
            telling.pages.push_back((upto, behind.len()));
            let begun = behind.into_iter().map(|(_, counter, generation)| (counter, generation)).collect();
            self.tell(group, ToGroup::Resets { after, upto, begun });
        }
    }

    /// The group's feed says how far it has heard.
    pub(super) fn note_heard(&mut self, now: Time, group: GroupId, heard: u64, ledger: &Ledger) {
        let known = self.resets_heard.groups.entry(group).or_default();
        if heard > *known {
            *known = heard;
            self.resets_heard.say_soon(now);
        }
        let telling = self.telling.entry(group).or_default();
        if heard > telling.heard {
            telling.heard = heard;
            while telling.pages.front().is_some_and(|&(upto, _)| upto <= heard) {
                telling.pages.pop_front();
            }
            self.tell_generations(group, ledger);
        }
    }

    /// Resets that were told and not heard since the last reminder are told again.
    pub(super) fn remind_of_generations(&mut self, group: GroupId, ledger: &Ledger) {
        let telling = self.telling.entry(group).or_default();
        if telling.heard == telling.heard_before {
            telling.pages.clear();
        }
        telling.heard_before = telling.heard;
        self.tell_generations(group, ledger);
    }
}
