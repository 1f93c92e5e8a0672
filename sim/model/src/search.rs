//! Explores every state of a configuration, nearest first, so that the first violation has a shortest way to it; then looks for
//! states from which nothing comes to rest.

use super::Violation;
use super::config::{Config, Decision};
use super::order;
use super::properties::name;
use super::rest::Rest;
use super::state::{Model, State};
use super::steps::Step;
use super::table::Table;
use tidemark_sim::teeth::Mutation;

/// States of one configuration; a configuration with more is too large to be searched, and says so.
pub const STATES_MAX: u32 = 40_000_000;

/// The result of exploring a configuration.
#[derive(Clone, Debug, Default)]
pub struct Explored {
    pub states: u32,
    pub transitions: u64,
    /// Steps to the farthest state.
    pub depth: u32,
    /// States that the groups were found in, all together; and the ledger.
    pub group_states: usize,
    pub ledger_states: usize,
    /// Sets of machine states, from each of which a way to rest was looked for.
    pub machine_states: u32,
    /// The same while one group never comes back, over all groups; where milestones are `timely`.
    pub machine_states_without: u32,
    /// Of the ledger's states: how many hold an award, a milestone that had passed, something undecided.
    pub met: [usize; 3],
    pub violation: Option<Violation>,
    /// The steps to the violation, in words.
    pub trace: Vec<String>,
}

/// How a state was found: from which one, and its distance.
#[derive(Clone, Copy, Debug)]
struct Found {
    from: u32,
    depth: u32,
}

/// A violation, the state before it, and the step that shows it, if it takes one.
struct Broken(Violation, u32, Option<Step>);

struct Search {
    model: Model,
    states: Table<State>,
    found: Vec<Found>,
    explored: Explored,
}

/// Explores a configuration with one rule left out, or none.
pub fn explore(config: &Config, mutation: Mutation) -> Explored {
    assert!(order::fits(config), "{}: too many increments for the notes of what was placed before", config.name);
    mutation.enter();
    let model = Model::new(*config, mutation);
    let mut search = Search { model, states: Table::default(), found: Vec::new(), explored: Explored::default() };
    if let Err(Broken(violation, at, step)) = search.run() {
        search.explored.trace = search.trace(at, step);
        search.explored.violation = Some(violation);
    }
    Mutation::None.enter();
    search.explored.states = search.states.len();
    search.explored.depth = search.found.last().map_or(0, |found| found.depth);
    search.explored.group_states = search.model.groups.iter().map(|group| group.len()).sum();
    search.explored.ledger_states = search.model.ledgers.len();
    search.explored.met = search.model.ledgers.met();
    search.explored
}

impl Search {
    fn run(&mut self) -> Result<(), Broken> {
        let first = self.model.first().map_err(|violation| Broken(violation, 0, None))?;
        self.reached(first, Found { from: 0, depth: 0 });
        let mut next = 0;
        while next < self.states.len() {
            self.expand(next)?;
            next += 1;
            if self.states.len() > STATES_MAX {
                let what = format!("more than {STATES_MAX} states");
                return Err(Broken(Violation::new("size", what), next, None));
            }
        }
        self.come_to_rest()
    }

    fn reached(&mut self, state: State, found: Found) {
        if self.states.number(state).1 {
            self.found.push(found);
        }
    }

    fn expand(&mut self, number: u32) -> Result<(), Broken> {
        let state = *self.states.get(number);
        let depth = self.found[number as usize].depth + 1;
        for (step, outcome) in self.model.steps(&state) {
            let next = outcome.map_err(|violation| Broken(violation, number, Some(step)))?;
            self.explored.transitions += 1;
            self.reached(next, Found { from: number, depth });
        }
        Ok(())
    }

    fn come_to_rest(&mut self) -> Result<(), Broken> {
        let rest = Rest::of(&mut self.model, &self.states, None).map_err(|violation| Broken(violation, 0, None))?;
        self.explored.machine_states = rest.len();
        let stuck = (0..self.states.len()).find(|&number| !rest.is_reachable_from(self.states.get(number)));
        let what = || "from here nothing comes to rest without new increments".to_owned();
        stuck.map_or(Ok(()), |number| Err(Broken(Violation::new("I10", what()), number, None)))?;
        let any_timely = self.model.config.decisions.iter().any(|decision| matches!(decision, Decision::Timely(_)));
        (0..self.model.config.groups).filter(|_| any_timely).try_for_each(|gone| self.come_to_rest_without(gone))
    }

    /// Of the states at which the group may be gone for good, the nearest from which the others do not come to rest.
    fn come_to_rest_without(&mut self, gone: usize) -> Result<(), Broken> {
        let rest =
            Rest::of(&mut self.model, &self.states, Some(gone)).map_err(|violation| Broken(violation, 0, None))?;
        self.explored.machine_states_without += rest.len();
        let is_stuck = |&number: &u32| {
            let state = self.states.get(number);
            self.model.must_rest_without(state, gone) && !rest.is_reachable_from(state)
        };
        let stuck = (0..self.states.len()).find(is_stuck);
        let what = || format!("if {} never comes back, from here the others do not come to rest", name(gone));
        stuck.map_or(Ok(()), |number| Err(Broken(Violation::new("I10", what()), number, None)))
    }

    /// The steps to a state, and the one after it, in words.
    fn trace(&mut self, to: u32, last: Option<Step>) -> Vec<String> {
        let mut way = vec![to];
        while let Some(&number) = way.last().filter(|&&number| number > 0) {
            way.push(self.found[number as usize].from);
        }
        way.reverse();
        let mut words = Vec::new();
        for pair in way.windows(2) {
            let from = *self.states.get(pair[0]);
            let to = *self.states.get(pair[1]);
            let steps = self.model.steps(&from);
            let step = steps.iter().find(|(_, outcome)| outcome.as_ref() == Ok(&to)).map(|(step, _)| *step);
            words.extend(step.map(|step| self.model.told(&from, step)));
        }
        let from = *self.states.get(to);
        words.extend(last.map(|step| self.model.told(&from, step)));
        words
    }
}
