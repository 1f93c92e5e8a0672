//! Steps and states in words, for the trace of a violation.

use super::ledgers;
use super::properties::name;
use super::state::{Model, State};
use super::steps::Step;
use super::{config::Decision, groups};
use tidemark_proto::msg::{Account, LedgerCmd, OfferBody, Place, PlacedRun, ToGroup};

impl Model {
    /// A step from a state, and what it leads to.
    pub fn told(&mut self, from: &State, step: Step) -> String {
        let said = self.step_words(step);
        match (step, self.after(from, step)) {
            (Step::Group { group, .. }, Ok(to)) => format!("{said}: {}", self.group_words(&to, group)),
            (Step::Ledger(_), Ok(to)) => format!("{said}: {}", self.ledger_words(&to)),
            _ => said,
        }
    }

    fn step_words(&self, step: Step) -> String {
        match step {
            Step::Group { group, input } => self.input_words(group, input),
            Step::Ledger(input) => self.ledger_input_words(input),
            Step::Decide => format!("the operator decides: {}", decisions(self.config.decisions)),
            Step::Unsynced { group, input } => {
                let said = self.input_words(group, input);
                format!("{said}; {0} speaks of it, loses it with the process and starts again", name(group))
            }
            Step::Uncommitted(input) => {
                format!(
                    "{}; the leader speaks of it, and it is lost with its leadership",
                    self.ledger_input_words(input)
                )
            }
        }
    }

    fn input_words(&self, group: usize, input: groups::Input) -> String {
        let who = name(group);
        match input {
            groups::Input::Batch(number) => format!("{who} counts {:?}", self.config.batches[usize::from(number)]),
            groups::Input::Again => format!("{who} is sent its last batch again"),
            groups::Input::Boot => format!("{who} starts again"),
            groups::Input::Lease(true) => format!("{who} has a lease"),
            groups::Input::Lease(false) => format!("the lease of {who} ends"),
            groups::Input::Message(message) => to_group(who, self.down[group].message(message)),
        }
    }

    fn ledger_input_words(&self, input: ledgers::Input) -> String {
        match input {
            ledgers::Input::Grant { group } => format!("a leader grants {} 1", name(group.into())),
            ledgers::Input::Revoke { group } => format!("what {} holds is revoked", name(group.into())),
            ledgers::Input::Message { channel, message } => {
                let channel = usize::from(channel);
                let who = if channel == self.operator() { "the operator".into() } else { name(channel).to_string() };
                to_ledger(&who, self.up[channel].message(message))
            }
        }
    }

    fn group_words(&self, state: &State, group: usize) -> String {
        let facts = &self.groups[group].part(state.groups[group]).facts;
        let queued = &self.groups[group].part(state.groups[group]).queued;
        if !facts.guarded {
            return format!("component {}, not guarded", facts.component);
        }
        let open: Vec<String> =
            queued.iter().enumerate().filter(|(_, item)| !item.placed).map(|(pos, _)| pos.to_string()).collect();
        let open = if open.is_empty() { String::new() } else { format!(", positions {} queued", open.join(" ")) };
        let groups::Facts { component, base, granted, spent, returned, .. } = facts;
        format!("component {component}, base {base}, G {granted} S {spent} R {returned}{open}")
    }

    fn ledger_words(&self, state: &State) -> String {
        let part = self.ledgers.part(state.ledger);
        let ledgers::Facts { certain, undecided, next_armed, awarded, passed, .. } = &part.facts;
        let out: u64 = part.facts.accounts.iter().map(|known| known.out).sum();
        let armed = next_armed.map_or("nothing armed".to_owned(), |at| format!("{at} armed"));
        let of = |what: &str, list: &[u64]| if list.is_empty() { String::new() } else { format!(", {what} {list:?}") };
        format!(
            "certain {certain}, out {out}, {undecided} undecided, {armed}{}{}",
            of("awarded", awarded),
            of("passed", passed)
        )
    }
}

fn decisions(all: &[Decision]) -> String {
    let words = |decision: &Decision| match decision {
        Decision::Define(at) => format!("milestones {at:?}"),
        Decision::Timely(at) => format!("milestones {at:?} under timely"),
        Decision::Every(every) => format!("every {every}"),
        Decision::Remove(at) => format!("{at} is none"),
    };
    all.iter().map(words).collect::<Vec<_>>().join(", then ")
}

fn to_ledger(who: &str, cmd: &LedgerCmd) -> String {
    match cmd {
        LedgerCmd::Report(report) => {
            format!("a report of {who} arrives (base {} S {} R {})", report.base, report.spent, report.returned)
        }
        LedgerCmd::Returned(report) => format!("a report of {who} arrives (back in generation {})", report.generation),
        LedgerCmd::Offer(offer) | LedgerCmd::Detail(offer) => {
            let what = match &offer.body {
                OfferBody::Items(items) => {
                    items.iter().map(|item| item.delta.to_string()).collect::<Vec<_>>().join(" + ")
                }
                OfferBody::Block { count, delta } => format!("{count} of {delta} without identities"),
            };
            format!("an offer of {who} arrives (from position {}: {what})", offer.first_pos)
        }
        LedgerCmd::Hello(hello) => format!("{who} greets as start {}", hello.number),
        LedgerCmd::Define { revision, spec, .. } => match spec.every {
            Some(every) => format!("{who} defines every {every}, decided on revision {revision}"),
            None => format!("{who} defines {:?}, decided on revision {revision}", spec.at),
        },
        LedgerCmd::Disarm { revision, at, .. } => format!("{who} removes {at:?}, decided on revision {revision}"),
        other => format!("{who}: {other:?}"),
    }
}

fn to_group(who: char, message: &ToGroup) -> String {
    match message {
        ToGroup::Account(Account { granted, recall: true, .. }) => {
            format!("{who} is asked for its rights (G {granted})")
        }
        ToGroup::Account(Account { granted, .. }) => format!("{who} hears of its account (G {granted})"),
        ToGroup::Opened(opened) => {
            let Account { generation, granted, recall, .. } = opened.account;
            let what = if recall { "is asked for its rights" } else { "hears of its account" };
            format!("{who} {what} (generation {generation}, G {granted})")
        }
        ToGroup::Placed(placed) => {
            format!("{who} hears that {}", placed.runs.iter().map(run).collect::<Vec<_>>().join(", "))
        }
        ToGroup::Confirmed { start, .. } => format!("{who} hears that start {} is confirmed", start.number),
        other => format!("{who}: {other:?}"),
    }
}

fn run(run: &PlacedRun) -> String {
    let positions = match run.count {
        1 => format!("position {}", run.first_pos),
        count => format!("positions {}..{}", run.first_pos, run.first_pos + count),
    };
    match run.place {
        Place::Counted => format!("{positions} is counted"),
        Place::Number(n) => format!("{positions} is number {n}"),
        Place::Milestone { at, first } => format!("{positions} is milestone {at}, number {first}"),
    }
}
