//! I10: from every state, without new increments, everything offered can be decided and every milestone up to the total awarded
//! or passed. Where milestones are `timely`, that also holds for the others when one group never comes back.
//!
//! Old messages may be lost, so none of them counts here: a way to rest goes by the messages that the machines send *now*, and by the
//! leader that asks for rights while they are wanted. So it depends on the machines alone, and every set of machine states has to have one,
//! whatever was said before. Found backwards, from the states at rest.
//!
//! A group that is gone says nothing and hears nothing. In its place the leader does what it does when a lease is over: what the
//! group holds is revoked. Nothing else is left to happen with it.

use super::Violation;
use super::channel::MessageNo;
use super::config::{Decision, GROUPS_MAX};
use super::state::{Model, State};
use super::table::Table;
use super::{groups, ledgers};
use tidemark_proto::msg::{Account, Opened, ToGroup};

/// Which state each machine is in: the groups, then the ledger.
pub type Machines = [u32; GROUPS_MAX + 1];

pub fn machines(state: &State) -> Machines {
    let [a, b, c] = state.groups;
    [a, b, c, state.ledger]
}

/// The machines that can come to rest.
#[derive(Debug, Default)]
pub struct Rest {
    known: Table<Machines>,
    can: Vec<bool>,
}

impl Rest {
    /// Looks at all machines of `states`, while the group `gone` never comes back.
    pub fn of(model: &mut Model, states: &Table<State>, gone: Option<usize>) -> Result<Rest, Violation> {
        let mut known = Table::default();
        for number in 0..states.len() {
            known.number(machines(states.get(number)));
        }
        let mut ways_back = vec![Vec::new(); known.len() as usize];
        let mut reached = Vec::new();
        let mut number = 0;
        while number < known.len() {
            let here = *known.get(number);
            if model.is_at_rest(&here, gone) {
                reached.push(number);
            }
            for next in model.helpful(&here, gone)? {
                let (next, new) = known.number(next);
                assert!(!new || gone.is_some(), "what may be said now may arrive");
                if new {
                    ways_back.push(Vec::new());
                }
                ways_back[next as usize].push(number);
            }
            number += 1;
        }
        let mut can = vec![false; known.len() as usize];
        while let Some(number) = reached.pop() {
            if !std::mem::replace(&mut can[number as usize], true) {
                reached.append(&mut ways_back[number as usize]);
            }
        }
        Ok(Rest { known, can })
    }

    pub fn is_reachable_from(&self, state: &State) -> bool {
        self.known.find(&machines(state)).is_some_and(|number| self.can[number as usize])
    }

    /// Sets of machine states.
    pub fn len(&self) -> u32 {
        self.known.len()
    }

    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }
}

impl Model {
    /// Nothing waits for its place, every milestone that happened is settled, and the ledger knows of everything. Of a group that
    /// is gone only what the ledger knows of it has happened.
    pub fn is_at_rest(&self, machines: &Machines, gone: Option<usize>) -> bool {
        let ledger = &self.ledgers.part(machines[GROUPS_MAX]).facts;
        let here = || (0..self.config.groups).filter(|&group| Some(group) != gone);
        let facts = |group: usize| &self.groups[group].part(machines[group]).facts;
        let of_gone = gone.map_or(0, |gone| ledger.accounts[gone].counted());
        let total = of_gone + here().map(|group| facts(group).component).sum::<u64>();
        let placed = here().all(|group| facts(group).pending == 0) && ledger.undecided == 0;
        let awaits_base = gone.is_some_and(|gone| ledger.accounts[gone].awaits_base);
        let settled = awaits_base || ledger.least.is_none_or(|at| at > total);
        let guarded = here().all(|group| facts(group).guarded);
        placed && settled && (!guarded || ledger.certain == total)
    }

    /// Whether this must come to rest although the group `gone` never comes back. While a strict milestone is to come nothing is
    /// revoked, and what was granted without a lease never is; and what was decided behind a block meanwhile may keep that there.
    pub fn must_rest_without(&self, state: &State, gone: usize) -> bool {
        let ledger = &self.ledgers.part(state.ledger).facts;
        let of_gone = &ledger.accounts[gone];
        let held = of_gone.out > 0 && !of_gone.leased;
        let was_strict = self.config.decisions.iter().any(|decision| !matches!(decision, Decision::Timely(_)));
        !(ledger.strict_to_come || held || was_strict && of_gone.keeps_turn)
    }

    /// Where what the machines say now may lead.
    fn helpful(&mut self, here: &Machines, gone: Option<usize>) -> Result<Vec<Machines>, Violation> {
        let mut ways = Vec::new();
        for group in (0..self.config.groups).filter(|&group| Some(group) != gone) {
            let says = self.up[group].set(self.groups[group].part(here[group]).now).to_vec();
            for message in says {
                ways.push(self.commit(here, ledgers::Input::Message { channel: group as u8, message })?);
            }
            for message in self.told_now(here, group) {
                let input = groups::Input::Message(message);
                let next = self.groups[group].step(here[group], input, &mut self.up[group], &self.down[group])?;
                ways.push(with(here, group, next));
            }
        }
        if let Some(gone) = gone {
            ways.push(self.commit(here, ledgers::Input::Revoke { group: gone as u8 })?);
        }
        ways.retain(|next| next != here);
        Ok(ways)
    }

    fn commit(&mut self, here: &Machines, input: ledgers::Input) -> Result<Machines, Violation> {
        let (ledger, _) = self.ledgers.step(here[GROUPS_MAX], input, &self.up, &mut self.down)?;
        Ok(with(here, GROUPS_MAX, ledger))
    }

    /// The ledger's messages to a group now: rights are asked for only while they are wanted.
    fn told_now(&self, here: &Machines, group: usize) -> Vec<MessageNo> {
        let ledger = self.ledgers.part(here[GROUPS_MAX]);
        let wanted = ledger.facts.recall_wanted;
        let is_said = |message: &MessageNo| match self.down[group].message(*message) {
            ToGroup::Account(Account { recall: true, .. })
            | ToGroup::Opened(Opened { account: Account { recall: true, .. }, .. }) => wanted,
            _ => true,
        };
        self.down[group].set(ledger.now[group]).iter().copied().filter(is_said).collect()
    }
}

fn with(machines: &Machines, at: usize, state: u32) -> Machines {
    let mut next = *machines;
    next[at] = state;
    next
}
