//! I10: from every state, without new increments, everything offered can be decided and every milestone up to the total awarded
//! or passed.
//!
//! Old messages may be lost, so none of them counts here: a way to rest goes by what the machines say *now*, and by the leader
//! asking for rights while they are wanted. So it depends on the machines alone, and every set of machine states has to have one,
//! whatever was said before. Found backwards, from the states at rest.

use super::Violation;
use super::channel::MessageNo;
use super::config::GROUPS_MAX;
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
    /// Looks at all machines of `states`.
    pub fn of(model: &mut Model, states: &Table<State>) -> Result<Rest, Violation> {
        let mut known = Table::default();
        for number in 0..states.len() {
            known.number(machines(states.get(number)));
        }
        let mut rest = Rest { can: vec![false; known.len() as usize], known };
        let mut ways_back = vec![Vec::new(); rest.can.len()];
        let mut reached = Vec::new();
        for number in 0..rest.known.len() {
            let here = *rest.known.get(number);
            if model.is_at_rest(&here) {
                reached.push(number);
            }
            for next in model.helpful(&here)? {
                let next = rest.known.find(&next).expect("what may be said now may arrive");
                ways_back[next as usize].push(number);
            }
        }
        while let Some(number) = reached.pop() {
            if !std::mem::replace(&mut rest.can[number as usize], true) {
                reached.append(&mut ways_back[number as usize]);
            }
        }
        Ok(rest)
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
    /// Nothing waits for its place, every milestone that happened is settled, and the ledger knows of everything.
    pub fn is_at_rest(&self, machines: &Machines) -> bool {
        let ledger = &self.ledgers.part(machines[GROUPS_MAX]).facts;
        let facts = || self.groups.iter().zip(machines).map(|(group, &at)| &group.part(at).facts);
        let total: u64 = facts().map(|facts| facts.component).sum();
        let placed = facts().all(|facts| facts.pending == 0) && ledger.undecided == 0;
        let settled = ledger.least.is_none_or(|at| at > total);
        let guarded = facts().all(|facts| facts.guarded);
        placed && settled && (!guarded || ledger.certain == total)
    }

    /// Where what the machines say now may lead.
    fn helpful(&mut self, here: &Machines) -> Result<Vec<Machines>, Violation> {
        let mut ways = Vec::new();
        for group in 0..self.config.groups {
            let says = self.up[group].set(self.groups[group].part(here[group]).now).to_vec();
            for message in says {
                let input = ledgers::Input::Message { channel: group as u8, message };
                let (ledger, _) = self.ledgers.step(here[GROUPS_MAX], input, &self.up, &mut self.down)?;
                ways.push(with(here, GROUPS_MAX, ledger));
            }
            for message in self.told_now(here, group) {
                let channels = (&mut self.up[group], &self.down[group]);
                let next = self.groups[group].step(here[group], groups::Input::Message(message), channels)?;
                ways.push(with(here, group, next));
            }
        }
        ways.retain(|next| next != here);
        Ok(ways)
    }

    /// What the ledger tells a group now: rights are asked for only while they are wanted.
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
