//! A group that is lost for good: most of its disks are gone, or an operator gives it up although it runs. An operator declares it lost,
//! and it is founded anew, under another incarnation, while everything else goes on. Its counts may be lost as far as no view and no ledger
//! has received them; the counts that it had answered only as far as they were written off.

use super::{Event, World};
use crate::plan::Fault;
use crate::teeth::Mutation;
use tidemark_proto::aggregator;
use tidemark_proto::ids::{GroupId, Half, LogIndex};
use tidemark_proto::ledger::DeclareError;
use tidemark_proto::msg::{ForGroup, LedgerCmd};
use tidemark_proto::node;
use tidemark_proto::teeth::Bug;
use tidemark_proto::time::Span;
use tidemark_proto::view::View;

/// An operator tries again if a declaration is not carried out.
const DECLARE_AGAIN: Span = Span::from_secs(1);
/// A process that is gone for good would start after this: longer than any run.
const NEVER: Span = Span::from_secs(100_000);

/// The lost group of a run.
#[derive(Debug, Default)]
pub struct LostGroup {
    pub group: Option<usize>,
    /// The group that was founded in its place.
    pub successor: Option<usize>,
    /// By counter: what was written off as seen from outside, rights that were outstanding.
    out: Vec<u64>,
}

impl LostGroup {
    /// Whether its processes are gone, and never come back.
    pub fn is_over(&self, group: usize) -> bool {
        self.group == Some(group) && self.successor.is_some()
    }

    /// The group that is found in the place of another.
    pub fn in_place_of(&self, group: usize) -> usize {
        self.successor.filter(|_| self.group == Some(group)).unwrap_or(group)
    }
}

impl World {
    /// Most of a group's disks are gone at once; or none, and it is given up all the same.
    pub(super) fn lose_group(&mut self, group: usize, forced: bool, declare_after: Span, index: usize) {
        if self.lost.group.is_some() || self.old_disk.is_used() {
            return;
        }
        self.lost.group = Some(group);
        self.lost.out = vec![0; self.names.len()];
        if !forced {
            let all: Vec<usize> = self.processes_of(group).collect();
            let first = self.rng.below(all.len() as u64) as usize;
            for n in 0..=all.len() / 2 {
                self.bury(all[(first + n) % all.len()]);
            }
            self.coverage.saw("majority of a group's disks lost");
        }
        self.after(declare_after, Event::Declare(index));
    }

    /// The process is gone with its disk.
    pub(super) fn bury(&mut self, node: usize) {
        self.nodes[node].doom = self.nodes[node].is_up().then_some((0, NEVER));
        self.crash_node(node);
        self.nodes[node].disk = Default::default();
        self.nodes[node].buried = true;
    }

    /// The operator asks some aggregator, until it is done.
    pub(super) fn on_declare(&mut self, index: usize) {
        let (Fault::LoseGroup { forced, found_after, .. }, Some(group)) = (&self.plan.faults[index].1, self.lost.group)
        else {
            return;
        };
        let forced = *forced;
        let found_after = *found_after;
        let id = self.groups[group];
        if self.reference.is_lost(id) {
            return self.after(found_after, Event::FoundAnew);
        }
        let dc = self.rng.below(self.plan.sites.len() as u64) as usize;
        let now = self.aggregator_time(dc);
        let process = &self.aggregators[dc];
        let declared = process.core().map(|core| core.declaration(now, id, forced, &process.ledger));
        match declared {
            Some(Ok(cmd)) => {
                self.note(54, [group as u64, dc as u64, 0], || format!("operator at {dc}: {cmd:?}"));
                self.aggregator_input(dc, aggregator::Input::Submit(vec![cmd]));
            }
            Some(Err(DeclareError::Heard { .. })) => self.coverage.saw("declaration refused: the group was heard of"),
            // A group that was never registered has served no client.
            Some(Err(DeclareError::Unknown(_))) if self.faults_over && self.is_unknown(id) => {
                return self.after(found_after, Event::FoundAnew);
            }
            _ => {}
        }
        self.after(DECLARE_AGAIN, Event::Declare(index));
    }

    fn is_unknown(&self, id: GroupId) -> bool {
        !self.reference.groups().contains_key(&id)
    }

    /// Applies a declaration to the reference.
    pub(super) fn apply_declaration(&mut self, index: LogIndex, cmd: &LedgerCmd, id: GroupId) {
        let before = self.reference.is_lost(id);
        let stake = self.reference.stake(id);
        let wanted: Vec<bool> = self
            .names
            .iter()
            .map(|name| self.reference.counter(name).is_some_and(|state| state.recall_wanted()))
            .collect();
        self.reference.apply(index, cmd);
        let Some(group) = self.groups.iter().position(|known| *known == id) else { return };
        if before || !self.reference.is_lost(id) {
            return;
        }
        self.coverage.saw("group declared lost");
        self.audit.oracle.lost = Some(group as u16);
        for (name, out, _) in &stake.counters {
            let Some(counter) = self.counter_index(name.key()) else { continue };
            self.lost.out[usize::from(counter)] = *out;
            let Some(state) = self.reference.counter(name) else { continue };
            let audit = &mut self.audit;
            let number = audit.oracle.number(counter, state.epoch() - 1);
            audit.rights.lose(&mut audit.findings, group as u16, number, state, id);
            self.coverage.saw_times("declared lost while holding rights", u64::from(*out > 0));
            let waited = wanted[usize::from(counter)] && *out > 0;
            self.coverage.saw_times("milestone waited for a lost group", u64::from(waited));
        }
    }

    /// A process that still runs sets its disk aside, and the group begins again, with nothing.
    pub(super) fn on_found_anew(&mut self) {
        let Some(group) = self.lost.group.filter(|_| self.lost.successor.is_none()) else { return };
        let id = self.groups[group];
        for node in self.processes_of(group) {
            self.node_input(node, node::Input::Aggregator { seat: 0, msg: ForGroup::Lost { group: id } });
            // A node that knows of no incarnation, or is down, comes back with a disk of the lost one and is told then.
            self.bury(node);
        }
        let successor = self.groups.len();
        let reused = self.mutation == Mutation::Inside(Bug::IncarnationReused);
        let incarnation = if reused { id.incarnation } else { id.incarnation.wrapping_add(1) };
        self.groups.push(GroupId { incarnation, ..id });
        self.plan.nodes.push(self.plan.nodes[group]);
        self.plan.replicas.push(self.plan.replicas[group]);
        self.plan.leases.nodes_ppm.push(self.plan.leases.nodes_ppm[group]);
        self.links.groups.push(Default::default());
        let truth = self.audit.oracle.new_group();
        self.audit.oracle.groups.push(truth);
        self.audit.rights.accounts.push(vec![None; self.audit.oracle.numbers()]);
        self.lost.successor = Some(successor);
        self.note(55, [group as u64, successor as u64, 0], || format!("group {group} is founded anew as {successor}"));
        self.coverage.saw("new incarnation of a group");
        self.add_group(successor);
    }

    /// The incarnation of a group that was founded anew is its log's.
    pub(super) fn learn_incarnation(&mut self, group: usize, node: usize) {
        if self.lost.successor == Some(group)
            && let Some(core) = self.nodes[node].core()
        {
            self.groups[group] = core.config().group.id;
        }
    }

    /// The new incarnation serves.
    pub(super) fn is_founded_anew(&self) -> bool {
        let serves = |successor: usize| self.reference.confirmed(self.groups[successor]).is_some();
        self.lost.group.is_none() || self.lost.successor.is_some_and(serves)
    }

    /// The rest of a counter's total: of a lost group the part that a view or the ledger knows.
    pub(super) fn remaining(&self, counter: usize) -> u64 {
        let total = self.total_now(counter);
        let Some(group) = self.lost.group.filter(|&group| self.reference.is_lost(self.groups[group])) else {
            return total;
        };
        let id = self.groups[group];
        let name = &self.names[counter];
        let generation = self.reference.resets().generation(name);
        let shown = self.aggregators.iter().filter_map(|process| process.core());
        let shown = shown.map(|core| core.view().component_of(name, generation, id)).max().unwrap_or(0);
        let known = self.reference.counter(name).map_or(0, |state| state.known_of(id)).max(shown);
        let counted = self.audit.oracle.groups[group].components[usize::from(self.number_now(counter))];
        total - counted + known.min(counted)
    }

    /// The same of what was counted down, of which the ledger knows nothing.
    pub(super) fn remaining_down(&self, counter: usize) -> u64 {
        if self.plan.updown.is_none() {
            return 0;
        }
        let oracle = &self.audit.oracle;
        let name = &self.names[counter];
        let generation = self.reference.resets().generation(name);
        let number = usize::from(oracle.number(oracle.half(counter as u16, Half::Down), generation));
        let total = oracle.totals[number];
        let Some(group) = self.lost.group.filter(|&group| self.reference.is_lost(self.groups[group])) else {
            return total;
        };
        let shown = |view: &View| {
            let slot = view.cells_of(name).table().find_half(name, Half::Down, generation);
            let of_group =
                |(valve, _): &(u16, u64)| view.cells_of(name).valves()[usize::from(*valve)].group == self.groups[group];
            let components = slot.into_iter().flat_map(|slot| view.cells_of(name).components(slot)).filter(of_group);
            components.map(|(_, value)| value).sum::<u64>()
        };
        let shown = self.aggregators.iter().filter_map(|process| process.core()).map(|core| shown(core.view()));
        let counted = oracle.groups[group].components[number];
        total - counted + shown.max().unwrap_or(0).min(counted)
    }

    pub(super) fn cover_remains(&mut self) {
        let Some(group) = self.lost.group else { return };
        let id = self.groups[group];
        for counter in 0..self.names.len() {
            let lost = self.total_now(counter) - self.remaining(counter);
            self.coverage.saw_times("increments lost with their group", u64::from(lost > 0));
            let name = &self.names[counter];
            let Some(state) = self.reference.counter(name) else { continue };
            let number = usize::from(self.number_now(counter));
            let known = state.known_of(id);
            let counted = self.audit.oracle.groups[group].components[number];
            self.audit.findings.check("conservation", known <= counted, || {
                format!("the ledger knows {known} of counter {counter} of a lost group that counted {counted}")
            });
        }
    }

    /// Losses of a counter that began again are over.
    pub(super) fn forget_loss_of(&mut self, counter: u16) {
        if let Some(out) = self.lost.out.get_mut(usize::from(counter)) {
            *out = 0;
        }
    }

    /// The weight that was written off stands in every later certificate.
    pub(super) fn audit_written_off(&mut self, number: u16, at: u64, written_off: u64) {
        let (counter, ..) = self.audit.oracle.cell_of(number);
        let least = self.lost.out.get(counter).copied().unwrap_or(0);
        self.audit.findings.check("award", written_off >= least, || {
            format!("milestone {at}: {least} were given up with a lost group; the certificate says {written_off}")
        });
        self.coverage.saw_times("award after a loss", u64::from(written_off > 0));
    }
}
