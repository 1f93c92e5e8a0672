//! Awards: one per milestone for ever (I8), to an increment that happened, with the exact ordinal (I6).

use super::Findings;
use super::rights::Rights;
use crate::oracle::{Oracle, number_of};
use std::collections::BTreeMap;
use tidemark_proto::ids::GroupId;
use tidemark_proto::ledger::{Awarded, CounterLedger};
use tidemark_proto::msg::{Award, Place};
use tidemark_proto::time::Time;

const NAME: &str = "award";

/// An award that the ledger has just made.
#[derive(Clone, Copy)]
pub struct NewAward<'a> {
    pub counter: u16,
    pub awarded: &'a Awarded,
    /// The counter after it.
    pub state: &'a CounterLedger,
    /// The groups of the run by their number.
    pub groups: &'a [GroupId],
}

#[derive(Clone, Debug, Default)]
pub struct Awards {
    /// By counter and first milestone of the award.
    pub known: BTreeMap<(u16, u64), Award>,
    /// When the last one was made.
    pub last: Time,
    /// Increments that won, and the first milestone of their award.
    winners: BTreeMap<u32, (u16, u64)>,
    /// Ordinals with an owner: first → (last, increment).
    numbers: BTreeMap<(u16, u64), (u64, u32)>,
}

impl Awards {
    /// The ledger awarded.
    pub fn awarded(&mut self, findings: &mut Findings, oracle: &Oracle, rights: &Rights, new: NewAward<'_>) {
        let NewAward { counter, awarded: Awarded { award, .. }, state, groups } = new;
        let a = award.first;
        let last = award.first + award.delta - 1;
        let milestones: Vec<u64> = (0..award.count).map(|n| award.at + n * award.step).take(1_000).collect();
        let covered = milestones.iter().all(|at| (a..=last).contains(at)) && award.count >= 1;
        findings.check(NAME, covered, || format!("I6: {award:?} covers none of its milestones"));
        let sum: u64 = award.before.iter().map(|(_, weight)| weight).sum();
        findings.check(NAME, sum == a - 1, || format!("I6: {award:?}: weights before it sum to {sum}"));
        findings.check(NAME, state.out() == 0, || format!("I6: awarded with {} outstanding: {award:?}", state.out()));
        for at in milestones {
            let again = self.covering(counter, at).is_some();
            findings.check(NAME, !again, || format!("I8: milestone {at} of counter {counter} was awarded before"));
        }
        let lost = |group: &GroupId| state.losses().lost().any(|(lost, _)| lost == *group);
        let kept = state.accounts().iter().filter(|(group, _)| !lost(group));
        let known: u64 = kept.map(|(_, account)| account.certain()).sum();
        let certified = rights.certified(counter) - rights.late(groups, counter, state);
        findings.check(NAME, certified == known, || {
            format!("I6: {award:?} takes {known} for certified; the groups certified {certified}")
        });
        self.last = findings.now;
        self.winner(findings, oracle, counter, award);
        self.known.insert((counter, award.at), award.clone());
    }

    fn winner(&mut self, findings: &mut Findings, oracle: &Oracle, counter: u16, award: &Award) {
        let Some(number) = award.session.map(number_of) else { return };
        let Some(winner) = oracle.increments.get(number as usize) else {
            return findings.found(NAME, format!("{award:?} names an increment that was never asked for"));
        };
        let happened = winner.applied == 1 && winner.counter == counter && winner.delta == award.delta;
        findings.check(NAME, happened, || format!("{award:?} names {winner:?}"));
        let place = winner.place.map(|(place, _)| place);
        findings.check(NAME, place.is_none() || winner.late, || {
            format!("I6: the winner {number} was answered {place:?} before")
        });
        self.own(findings, counter, award.first, award.delta, number);
        self.winners.insert(number, (counter, award.at));
    }

    /// The award that covers a milestone.
    pub fn covering(&self, counter: u16, at: u64) -> Option<&Award> {
        let (_, award) = self.known.range((counter, 0)..=(counter, at)).next_back()?;
        let steps = (at - award.at).checked_div(award.step).unwrap_or(0);
        let exact = award.at + steps * award.step == at && steps < award.count;
        exact.then_some(award)
    }

    /// A node placed an increment: ordinals are disjoint, and a milestone's answer is its award.
    pub fn placed(&mut self, findings: &mut Findings, oracle: &Oracle, number: u32, place: Place) {
        let increment = &oracle.increments[number as usize];
        let counter = increment.counter;
        match place {
            Place::Counted => {}
            Place::Number(first) => self.own(findings, counter, first, increment.delta, number),
            Place::Milestone { at, first } => {
                let award = self.covering(counter, at);
                let is_it = award.is_some_and(|a| a.first == first && a.session.map(number_of) == Some(number));
                findings.check(NAME, is_it, || {
                    format!("increment {number} was answered milestone {at}; its award is {award:?}")
                });
            }
        }
        let told = !self.winners.contains_key(&number) || matches!(place, Place::Milestone { .. });
        findings.check(NAME, told, || format!("I6: the winner {number} was answered {place:?}"));
    }

    fn own(&mut self, findings: &mut Findings, counter: u16, first: u64, delta: u64, number: u32) {
        let last = first + delta - 1;
        let before = self.numbers.range((counter, 0)..=(counter, last)).next_back();
        let clash = before.filter(|(at, owner)| owner.0 >= first && (at.1, owner.1) != (first, number));
        findings.check(NAME, clash.is_none(), || {
            format!("increment {number} takes ordinals {first}..={last} of counter {counter}; {clash:?} has some")
        });
        self.numbers.insert((counter, first), (last, number));
    }
}
