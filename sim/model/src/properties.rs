//! The invariants of docs/internals/protocol.md as far as one look at the whole shows them. Facts about one machine alone are checked where
//! its states are made (`groups`, `ledgers`), facts about messages where they are sent (`channel`).

use super::Violation;
use super::groups::Facts;
use super::ledgers::Known;
use super::order::noted;
use super::state::{Model, State};
use tidemark_proto::msg::Award;

impl Model {
    /// The properties of every state.
    pub fn check(&self, state: &State) -> Result<(), Violation> {
        self.conserved(state)?;
        self.unseen(state)?;
        for number in 0..self.config.groups {
            self.covered(state, number)?;
        }
        let ledger = &self.ledgers.part(state.ledger).facts;
        let decided = u64::from(state.used.decisions);
        Violation::unless(ledger.revision <= decided, "definitions", || {
            format!("{decided} decisions were made and {} carried out", ledger.revision)
        })
    }

    fn facts<'m>(&'m self, state: &'m State) -> impl Iterator<Item = &'m Facts> {
        self.groups.iter().zip(&state.groups).map(|(group, &at)| &group.part(at).facts)
    }

    /// Everything that happened, by the components.
    pub fn total(&self, state: &State) -> u64 {
        self.facts(state).map(|facts| facts.component).sum()
    }

    /// I9.
    fn conserved(&self, state: &State) -> Result<(), Violation> {
        let batches = &self.config.batches[..usize::from(state.used.batches)];
        let asked = batches.iter().copied().flatten().sum::<u64>();
        let total = self.total(state);
        Violation::unless(asked == total, "I9", || format!("{asked} was asked for, and {total} is counted"))?;
        let certain = self.ledgers.part(state.ledger).facts.certain;
        Violation::unless(certain <= total, "I9", || format!("the ledger is certain of {certain} of {total}"))
    }

    /// I3; and while a strict milestone is armed, nothing is late.
    fn unseen(&self, state: &State) -> Result<(), Violation> {
        let ledger = &self.ledgers.part(state.ledger).facts;
        let Some(next) = ledger.next_armed else { return Ok(()) };
        let late = |(facts, known): (&Facts, &Known)| facts.awaits_late || is_beyond(facts, known);
        let any_late = ledger.strict_armed && self.facts(state).zip(&ledger.accounts).any(late);
        Violation::unless(!any_late, "I3", || {
            format!("something is late, {next} is armed, and a strict milestone is")
        })?;
        let happened = ledger.sequenced + self.certified(state);
        Violation::unless(happened < next, "I3", || {
            format!("{happened} are placed, and {next} is armed and not awarded")
        })
    }

    /// I2, and of I9 the ledger's knowledge of one group's queue; that no group is fenced that has done nothing wrong.
    fn covered(&self, state: &State, number: usize) -> Result<(), Violation> {
        let part = self.groups[number].part(state.groups[number]);
        let ledger = self.ledgers.part(state.ledger);
        let facts = &part.facts;
        let known = &ledger.facts.accounts[number];
        let name = name(number);
        let fenced = facts.fenced_out || ledger.ledger.is_fenced(self.groups[number].id);
        Violation::unless(!fenced, "fence", || format!("{name} is fenced out"))?;
        Violation::unless(is_covered(facts, known), "I2", || {
            format!("{name} has {facts:?}; the ledger knows {known:?}")
        })?;
        let offered = part.queued.get(..known.next_pos as usize);
        let weight = offered.map(|items| items.iter().map(|item| item.delta).sum());
        Violation::unless(weight == Some(known.placed + known.offered), "I9", || {
            format!("{name} queued {:?}; the ledger knows {known:?}", part.queued)
        })
    }

    /// The properties of a step of the ledger from one state to another.
    pub fn check_ledger_step(&self, from: &State, to: &State, news: u32) -> Result<(), Violation> {
        let before = &self.ledgers.part(from.ledger).facts;
        let after = &self.ledgers.part(to.ledger).facts;
        let news = self.ledgers.news(news);
        news.awards.iter().try_for_each(|award| self.check_award(to, award))?;
        let mut free = before.sequenced + self.certified(to) + 1;
        for &(first, weight) in &news.ordinals {
            let exact = first >= free && first + weight - 1 <= after.sequenced + self.certified(to);
            Violation::unless(exact, "I6", || {
                format!("number {first} is given; {} are certified", self.certified(to))
            })?;
            free = first + weight;
        }
        let total = self.total(to);
        let too_early = after.passed.iter().find(|&at| *at > total && !before.passed.contains(at));
        Violation::unless(too_early.is_none(), "I8", || format!("{too_early:?} counts as passed, and {total} happened"))
    }

    /// Everything that the groups counted without asking; increments that they certified beyond the end of a generation are late.
    fn certified(&self, state: &State) -> u64 {
        let known = &self.ledgers.part(state.ledger).facts.accounts;
        self.facts(state).zip(known).map(|(facts, known)| certified(facts, known)).sum()
    }

    /// I6 and I7.
    fn check_award(&self, state: &State, award: &Award) -> Result<(), Violation> {
        let of = self.groups.iter().position(|group| group.id == award.group).expect("a group of the configuration");
        let winner = self.groups[of].part(state.groups[of]).queued.get(award.pos as usize);
        let is_it = winner.is_some_and(|item| item.delta == award.delta) && award.seq == award.pos;
        Violation::unless(is_it, "I6", || format!("{award:?} names {winner:?}"))?;
        let told = winner.is_some_and(|item| item.placed);
        Violation::unless(!told, "I6", || format!("the winner of {award:?} was answered before"))?;
        let ledger = &self.ledgers.part(state.ledger).facts;
        for (number, (facts, known)) in self.facts(state).zip(&ledger.accounts).enumerate() {
            let certified = certified(facts, known);
            let name = name(number);
            Violation::unless(certified == known.certain, "I6", || {
                format!("{award:?} takes {} of {name} for certified; it certified {certified}", known.certain)
            })?;
            let earlier = if number == of { 0 } else { noted(&self.config, state.before[of], of, award.pos, number) };
            self.stands_before(state, number, earlier, known.placed, award)?;
        }
        Ok(())
    }

    /// I7: the positions in `earlier` are among the first `placed` of what the group queued.
    fn stands_before(
        &self,
        state: &State,
        number: usize,
        earlier: u32,
        placed: u64,
        award: &Award,
    ) -> Result<(), Violation> {
        let queued = &self.groups[number].part(state.groups[number]).queued;
        let mut upto = 0;
        for (pos, item) in queued.iter().enumerate() {
            upto += item.delta;
            let holds = earlier >> pos & 1 == 0 || upto <= placed;
            Violation::unless(holds, "I7", || {
                let name = name(number);
                format!(
                    "position {pos} of {name} was answered before the winner was asked for, and stands behind {award:?}"
                )
            })?;
        }
        Ok(())
    }
}

/// Whether a group certified more than counts of its generation, which is closed.
fn is_beyond(facts: &Facts, known: &Known) -> bool {
    facts.generation < known.generation && facts.spent > known.closed_spent
}

/// The count of a group without asking, up to the end of its generation if that is closed.
fn certified(facts: &Facts, known: &Known) -> u64 {
    let of_it = if facts.generation < known.generation { known.closed_spent } else { facts.spent };
    facts.base + facts.closed + of_it
}

/// I2: no group may spend more than the ledger knows to be out, in one generation.
fn is_covered(facts: &Facts, known: &Known) -> bool {
    if facts.guarded && facts.generation < known.generation {
        return known.spent == 0 && known.closed_spent <= facts.spent;
    }
    if !facts.guarded {
        return known.spent == 0;
    }
    let ahead = facts.spent.checked_sub(known.spent);
    ahead.is_some_and(|ahead| facts.available() + ahead <= known.out)
}

/// The groups' names in words.
pub fn name(group: usize) -> char {
    ['A', 'B', 'C'][group]
}
