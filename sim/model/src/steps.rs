//! The possible next steps. A lost message simply does not happen; a late message happens later.

use super::Violation;
use super::channel::MessageNo;
use super::groups::{self, Part};
use super::ledgers;
use super::order;
use super::state::{Model, State};
use tidemark_sim::teeth::Mutation;

/// One step of the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Something is committed in a group's log.
    Group { group: usize, input: groups::Input },
    /// Something is committed in the ledger's log.
    Ledger(ledgers::Input),
    /// The operator decides the next thing; the command is on its way.
    Decide,
    /// As a deliberate bug: a group speaks of an entry that is then lost with the process.
    Unsynced { group: usize, input: groups::Input },
    /// As a deliberate bug: the ledger's leader speaks of an entry that is then lost with its leadership.
    Uncommitted(ledgers::Input),
}

/// Where a step leads.
pub type Outcome = Result<State, Violation>;

impl Model {
    /// Every step that changes the state.
    pub fn steps(&mut self, state: &State) -> Vec<(Step, Outcome)> {
        let mut inputs = Vec::new();
        for group in 0..self.config.groups {
            inputs.extend(self.group_inputs(state, group).map(|input| Step::Group { group, input }));
        }
        inputs.extend(self.ledger_inputs(state).into_iter().map(Step::Ledger));
        inputs.extend(self.deliberate(&inputs));
        if usize::from(state.used.decisions) < self.config.decisions.len() {
            inputs.push(Step::Decide);
        }
        let outcomes = inputs.into_iter().map(|step| (step, self.after(state, step)));
        outcomes.filter(|(_, outcome)| outcome.as_ref() != Ok(state)).collect()
    }

    fn group_inputs<'m>(&'m self, state: &'m State, group: usize) -> impl Iterator<Item = groups::Input> + 'm {
        let batches = usize::from(state.used.batches) < self.config.batches.len();
        let crashes = state.used.crashes < self.config.crashes;
        let serving = self.groups[group].part(state.groups[group]).group.is_serving();
        let batch = (batches && serving).then_some(groups::Input::Batch(state.used.batches));
        let boot = crashes.then_some(groups::Input::Boot);
        let messages = self.down[group].set(state.down[group]).iter().map(|&message| groups::Input::Message(message));
        let held = self.groups[group].part(state.groups[group]).facts.lease;
        let lease = held.filter(|held| !held || self.config.lapses).map(|held| groups::Input::Lease(!held));
        batch.into_iter().chain([groups::Input::Again]).chain(boot).chain(lease).chain(messages)
    }

    fn ledger_inputs(&self, state: &State) -> Vec<ledgers::Input> {
        let mut inputs = Vec::new();
        for (channel, up) in self.up.iter().enumerate() {
            let message = |&message: &MessageNo| ledgers::Input::Message { channel: channel as u8, message };
            inputs.extend(up.set(state.up[channel]).iter().map(message));
        }
        let facts = &self.ledgers.part(state.ledger).facts;
        for group in 0..self.config.groups {
            if facts.accounts[group].granted < self.config.granted_max {
                inputs.push(ledgers::Input::Grant { group: group as u8 });
            }
            if state.used.revocations < self.config.revocations {
                inputs.push(ledgers::Input::Revoke { group: group as u8 });
            }
        }
        inputs
    }

    /// Steps that only a deliberate bug allows.
    fn deliberate(&self, steps: &[Step]) -> Vec<Step> {
        let early = |step: &Step| match (self.mutation, *step) {
            (Mutation::AnswerBeforeCommit, Step::Group { group, input }) if input != groups::Input::Boot => {
                Some(Step::Unsynced { group, input })
            }
            (Mutation::LedgerSpeaksBeforeCommit, Step::Ledger(input)) => Some(Step::Uncommitted(input)),
            _ => None,
        };
        steps.iter().filter_map(early).collect()
    }

    /// Where a step leads.
    pub fn after(&mut self, state: &State, step: Step) -> Outcome {
        let next = match step {
            Step::Group { group, input } => self.group_step(state, group, input)?,
            Step::Ledger(input) => self.ledger_step(state, input)?,
            Step::Decide => self.decide(state)?,
            Step::Unsynced { group, input } => self.lose_unsynced(state, group, input)?,
            Step::Uncommitted(input) => self.lose_uncommitted(state, input)?,
        };
        if next != *state {
            self.check(&next)?;
        }
        Ok(next)
    }

    fn group_step(&mut self, state: &State, group: usize, input: groups::Input) -> Outcome {
        let machine = &mut self.groups[group];
        let to = machine.step(state.groups[group], input, &mut self.up[group], &self.down[group])?;
        let mut next = *state;
        next.used.batches += u8::from(matches!(input, groups::Input::Batch(_)));
        next.used.crashes += u8::from(input == groups::Input::Boot);
        if to != state.groups[group] {
            next.groups[group] = to;
            next.up[group] = self.up[group].with(state.up[group], self.groups[group].part(to).says);
            let was = self.part(state, group);
            let is = self.part(&next, group);
            let others = (0..self.config.groups).map(|other| self.part(state, other).facts.placed);
            let placed = order::placed_elsewhere(&self.config, group, others);
            next.before[group] = order::note(&self.config, state.before[group], was, is, placed);
        }
        Ok(next)
    }

    fn part(&self, state: &State, group: usize) -> &Part {
        self.groups[group].part(state.groups[group])
    }

    fn ledger_step(&mut self, state: &State, input: ledgers::Input) -> Outcome {
        let (to, news) = self.ledgers.step(state.ledger, input, &self.up, &mut self.down)?;
        let mut next = State { ledger: to, ..*state };
        if to != state.ledger {
            next.used.revocations += u8::from(matches!(input, ledgers::Input::Revoke { .. }));
            self.tell(&mut next, to);
            self.check_ledger_step(state, &next, news)?;
        }
        Ok(next)
    }

    /// The messages of the ledger in one of its states are on their way.
    fn tell(&mut self, state: &mut State, ledger: u32) {
        let tells = self.ledgers.part(ledger).tells;
        for (group, down) in self.down.iter_mut().enumerate() {
            state.down[group] = down.with(state.down[group], tells[group]);
        }
    }

    fn decide(&mut self, state: &State) -> Outcome {
        let number = state.used.decisions;
        let operator = self.operator();
        let decision = self.config.decisions[usize::from(number)];
        let Some(message) = self.ledgers.decide(state.ledger, number, decision, &mut self.up[operator]) else {
            return Ok(*state);
        };
        let mut next = *state;
        next.used.decisions += 1;
        let said = self.up[operator].alone(message);
        next.up[operator] = self.up[operator].with(state.up[operator], said);
        Ok(next)
    }

    fn lose_unsynced(&mut self, state: &State, group: usize, input: groups::Input) -> Outcome {
        if state.used.crashes >= self.config.crashes {
            return Ok(*state);
        }
        let spoke = self.group_step(state, group, input)?;
        let mut next = *state;
        next.up[group] = spoke.up[group];
        self.group_step(&next, group, groups::Input::Boot)
    }

    fn lose_uncommitted(&mut self, state: &State, input: ledgers::Input) -> Outcome {
        if state.used.leader_changes >= self.config.leader_changes {
            return Ok(*state);
        }
        let spoke = self.ledger_step(state, input)?;
        let mut next = State { down: spoke.down, ..*state };
        next.used.leader_changes += 1;
        Ok(next)
    }
}
