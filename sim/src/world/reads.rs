//! Reads that wait for the groups of their data centre, as the shell of an aggregator does it: each known group is asked, again until it
//! answers or the reader's patience is over. They are drawn from a stream of their own.

use super::{Event, World};
use crate::checkers::reads::{self, Durable, ReadVersion, Reader, Shown};
use crate::rng::Rng;
use std::collections::BTreeMap;
use tidemark_proto::aggregator::{CellAudit, Input};
use tidemark_proto::ids::{CellId, Half, LogIndex};
use tidemark_proto::time::{Span, Time};

/// A group that has not answered is asked again after this.
const ASK_AGAIN: Span = Span::from_secs(1);
/// How long a reader waits.
const PATIENCE: Span = Span::from_secs(5);
/// Answers of which versions are asked for: the newest of this number.
const ANSWERS_KEPT: usize = 32;

/// An answer that a later read asks for.
#[derive(Clone, Debug)]
struct Answer {
    dc: usize,
    counter: usize,
    generation: u32,
    version: ReadVersion,
    durable: Durable,
}

/// A read that waits.
#[derive(Clone, Debug)]
struct Read {
    at: usize,
    boot: u32,
    counter: usize,
    generation: u32,
    /// The durable counts of each group of the data centre when it began.
    durable: Durable,
    wanted: Option<Answer>,
    until: Time,
    /// Which question is asked of each group, of which entry it has answered so far, and whether that is all.
    asked: BTreeMap<usize, (u64, Option<LogIndex>, bool)>,
}

pub struct Reads {
    rng: Rng,
    next: u64,
    /// By its first question.
    waiting: BTreeMap<u64, Read>,
    answers: Vec<Answer>,
}

impl Reads {
    pub fn new(rng: Rng) -> Reads {
        Reads { rng, next: 1, waiting: BTreeMap::new(), answers: Vec::new() }
    }
}

impl World {
    pub(super) fn begin_reads(&mut self) {
        if let Some(plan) = &self.plan.reads {
            let every = plan.every;
            self.after(every, Event::Read);
        }
    }

    /// A reader comes.
    pub(super) fn on_read(&mut self) {
        let Some(plan) = self.plan.reads.clone() else { return };
        if self.arrivals_over() {
            return;
        }
        let pause = Span(self.reads.rng.exponential(plan.every.0 as f64) as u64 + 1);
        self.after(pause, Event::Read);
        let at = self.reads.rng.below(self.aggregators.len() as u64) as usize;
        let counter = self.reads.rng.below(self.names.len() as u64) as usize;
        let asks = self.reads.rng.per_10k(plan.at_least_per_10k);
        let of_here: Vec<usize> =
            (0..self.reads.answers.len()).filter(|&answer| self.reads.answers[answer].dc == self.home_of(at)).collect();
        let wanted = (asks && !of_here.is_empty()).then(|| *self.reads.rng.pick(&of_here));
        let wanted = wanted.map(|wanted| self.reads.answers[wanted].clone());
        let counter = wanted.as_ref().map_or(counter, |wanted| wanted.counter);
        if self.aggregators[at].is_up() && self.holds(at, counter) {
            self.begin_read(at, counter, wanted);
        }
    }

    fn begin_read(&mut self, at: usize, counter: usize, wanted: Option<Answer>) {
        let generation = self.aggregators[at].ledger.resets().generation(&self.names[counter]);
        let number = self.audit.oracle.number(counter as u16, generation);
        let groups = self.plan.nodes.iter().enumerate().filter(|&(_, &dc)| dc == self.home_of(at));
        let founded = groups.map(|(group, _)| group).filter(|&group| self.joins.is_founded(group));
        let truth = |group: usize| (group, self.audit.oracle.groups[group].components[usize::from(number)]);
        let durable = founded.map(truth).collect();
        let boot = self.aggregators[at].boot;
        let until = self.now + PATIENCE;
        let read = Read { at, boot, counter, generation, durable, wanted, until, asked: BTreeMap::new() };
        self.coverage.saw("read that waits for its groups");
        let id = self.reads.next;
        self.reads.next += 1;
        self.reads.waiting.insert(id, read);
        self.on_read_again(id);
    }

    /// Groups that have not answered are asked.
    pub(super) fn on_read_again(&mut self, id: u64) {
        let Some(read) = self.reads.waiting.get(&id) else { return };
        let at = read.at;
        let is_gone = self.aggregators[read.at].boot != read.boot;
        if is_gone || self.now >= read.until {
            self.coverage.saw("read that was told nothing");
            self.reads.waiting.remove(&id);
            return;
        }
        let cell = self.cell_of_read(read);
        let heard: Vec<_> = self.aggregators[at].core().into_iter().flat_map(|core| core.groups_heard()).collect();
        self.after(ASK_AGAIN, Event::ReadAgain { read: id });
        for group in heard {
            let Some(number) = self.groups.iter().position(|known| *known == group) else { continue };
            let question = self.reads.next;
            let Some(read) = self.reads.waiting.get_mut(&id) else { return };
            if read.asked.get(&number).is_some_and(|(.., is_all)| *is_all) {
                continue;
            }
            read.asked.insert(number, (question, None, false));
            self.reads.next += 1;
            self.aggregator_input(at, Input::Audit { group, id: question, cell: cell.clone() });
        }
    }

    fn cell_of_read(&self, read: &Read) -> CellId {
        self.names[read.counter].half_of(Half::Up, read.generation)
    }

    /// A group has answered.
    pub(super) fn on_audited(&mut self, at: usize, audited: &CellAudit) {
        let is_of =
            |(number, asked): (&usize, &(u64, Option<LogIndex>, bool))| (asked.0 == audited.id).then_some(*number);
        let of = |(&id, read): (&u64, &Read)| {
            let number = read.asked.iter().find_map(is_of)?;
            (read.at == at && read.boot == self.aggregators[at].boot).then_some((id, number))
        };
        let Some((id, number)) = self.reads.waiting.iter().find_map(of) else { return };
        let Some(read) = self.reads.waiting.get_mut(&id) else { return };
        if let Some((_, entry, is_all)) = read.asked.get_mut(&number) {
            // Of several parts each stands for its own entry.
            *entry = Some(entry.map_or(audited.index, |entry| entry.min(audited.index)));
            *is_all = audited.last;
        }
        let is_answered = |group: &usize| read.asked.get(group).is_some_and(|(.., is_all)| *is_all);
        let is_heard = read.asked.values().all(|(.., is_all)| *is_all);
        if is_heard
            && read.durable.keys().all(is_answered)
            && let Some(read) = self.reads.waiting.remove(&id)
        {
            self.audit_read(read);
        }
    }

    fn audit_read(&mut self, read: Read) {
        let name = &self.names[read.counter];
        let at = read.at;
        let counter = read.counter;
        let process = &self.aggregators[at];
        let Some(core) = process.core() else { return };
        // The shell then asks another holder, which has the groups asked again.
        if !self.holds(at, counter) {
            return self.coverage.saw("read of a counter that has moved to another aggregator");
        }
        let reading = core.read(name, &process.ledger);
        // It began again meanwhile, or an aggregator that has just started may not show anything yet.
        if reading.generation != read.generation || !core.view().is_registered(&process.ledger) {
            return self.coverage.saw("read of another generation or of nothing yet");
        }
        let mut of_groups = BTreeMap::new();
        for (valve, held) in core.view().components_held(&self.cell_of_read(&read)) {
            if let Some(group) = self.groups.iter().position(|known| *known == valve.group) {
                *of_groups.entry(group).or_default() += held.value;
            }
        }
        let shown = Shown { of_groups, reading: reading.up + reading.pending };
        let entries = read.asked.iter().filter_map(|(&group, (_, entry, _))| Some((self.groups[group], (*entry)?)));
        let version = ReadVersion(entries.collect());
        let reader = Reader { at, counter };
        let findings = &mut self.audit.findings;
        reads::answered(findings, reader, "what was durable when it began", &read.durable, &shown);
        self.coverage.saw("read that shows what was durable");
        if let Some(wanted) = read.wanted.filter(|wanted| wanted.generation == read.generation) {
            match version.covers(&wanted.version) {
                true => {
                    reads::answered(findings, reader, "at least an earlier answer", &wanted.durable, &shown);
                    self.coverage.saw("read of at least a version");
                }
                false => self.coverage.saw("read whose version is not known"),
            }
        }
        let dc = self.home_of(at);
        let durable = shown.of_groups;
        let generation = read.generation;
        let durable = durable.into_iter().filter(|(group, _)| read.durable.contains_key(group)).collect();
        let answer = Answer { dc, counter, generation, version, durable };
        match self.reads.answers.len() < ANSWERS_KEPT {
            true => self.reads.answers.push(answer),
            false => {
                let place = self.reads.rng.below(ANSWERS_KEPT as u64) as usize;
                self.reads.answers[place] = answer;
            }
        }
    }
}
