//! The glue between a run and its checkers: what is looked at after which step.

use super::World;
use super::aggregators::AggregatorProc;
use crate::checkers::claims::Claims;
use crate::checkers::definitions::Definitions;
use crate::checkers::edges::Edges;
use crate::checkers::positions::Positions;
use crate::checkers::rights::Rights;
use crate::checkers::sizes::Sizes;
use crate::checkers::views::Views;
use crate::checkers::{Account, Findings, award, conservation, convergence, limits, liveness, order};
use crate::oracle::{Oracle, Told};
use crate::plan::{Plan, ZONE};
use crate::teeth::Mutation;
use std::rc::Rc;
use tidemark_proto::ids::{CounterName, Half, LogIndex};
use tidemark_proto::ledger::{Changes, CounterLedger, Pending};
use tidemark_proto::msg::{ForGroup, FromGroup, LedgerCmd, Place, Report, ToGroup};

pub struct Audit {
    pub findings: Findings,
    pub oracle: Oracle,
    pub rights: Rights,
    pub positions: Positions,
    pub awards: award::Awards,
    pub views: Views,
    /// The answers of others of the data centre, and the messages to subscribers.
    pub asked: Views,
    pub notified: Views,
    pub definitions: Definitions,
    pub claims: Claims,
    pub sizes: Sizes,
    pub edges: Edges,
    /// Steps of aggregators of a run with edges.
    pub steps: u64,
    /// By group.
    pub streams_peak: Vec<u64>,
    /// Increments without session that were asked for.
    pub adds: u64,
    /// The next unguarded counter to look at in a view.
    cold: usize,
}

impl Audit {
    pub fn new(oracle: Oracle, plan: &Plan) -> Audit {
        let groups = plan.nodes.len();
        let views = plan.places().len();
        let counters = oracle.numbers();
        Audit {
            oracle,
            rights: Rights::new(groups, counters),
            views: Views::new(views, counters),
            asked: Views::new(views, counters),
            notified: Views::new(views, counters),
            findings: Findings::default(),
            definitions: Definitions::default(),
            claims: Claims::default(),
            sizes: Sizes::default(),
            edges: Edges::default(),
            steps: 0,
            streams_peak: vec![0; groups],
            positions: Positions::default(),
            awards: award::Awards::default(),
            adds: 0,
            cold: 0,
        }
    }

    /// A client was told about a hit: never something else than its node answered.
    pub fn told(&mut self, number: u32, told: Told) {
        let Told::Placed(place) = told else { return };
        let answered = self.oracle.increments[number as usize].place.map(|(place, _)| place);
        let same = answered.is_some_and(|answered| answered == place || place == Place::Counted);
        self.findings.check("answers", same, || {
            format!("client was told {place:?} of increment {number}; its node answered {answered:?}")
        });
    }
}

impl World {
    pub(super) fn counter_index(&self, key: &[u8]) -> Option<u16> {
        self.audit.oracle.counter_of(key)
    }

    /// The number of a counter in an epoch of its guard.
    fn number_in(&self, name: &CounterName, epoch: u32) -> Option<u16> {
        Some(self.audit.oracle.number(self.counter_index(name.key())?, epoch - 1))
    }

    /// The number of a counter in the generation that the log of the ledger has it in.
    pub(super) fn number_now(&self, counter: usize) -> u16 {
        self.audit.oracle.number(counter as u16, self.reference.resets().generation(&self.names[counter]))
    }

    /// The value of a counter in its present generation.
    pub(super) fn total_now(&self, counter: usize) -> u64 {
        self.audit.oracle.totals[usize::from(self.number_now(counter))]
    }

    /// After a group's committed state may have changed.
    pub(super) fn audit_node(&mut self, node: usize) {
        let at = self.nodes[node].group;
        if self.serving(at) != Some(node) || self.old_disk.is_of(node) {
            return;
        }
        let Some(core) = self.nodes[node].core() else { return };
        // An earlier leader may be behind.
        if core.group().applied().0 < self.audit.oracle.groups[at].seen {
            return;
        }
        let touched = std::mem::take(&mut self.audit.oracle.groups[at].touched);
        let group = at as u16;
        for &number in &touched {
            let (counter, half, generation) = self.audit.oracle.cell_of(number);
            let name = &self.names[counter];
            let slot = core.group().table().find_half(name, half, generation);
            if slot.is_none() && self.audit.oracle.groups[at].given_back.contains(&number) {
                continue;
            }
            let shown = slot.map_or(0, |slot| core.group().sum(slot));
            conservation::component(&mut self.audit.findings, &self.audit.oracle, group, number, shown);
            let over = generation < self.reference.resets().generation(name);
            self.coverage.saw_times("counted in what is over", u64::from(over));
        }
        touched.iter().for_each(|&number| self.audit_rows(node, at, number));
        let guarded: Vec<usize> = self.guarded().collect();
        for counter in guarded {
            self.audit_account(at, counter);
        }
    }

    /// Counters of the workload that the ledger guards.
    fn guarded(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.names.len()).filter(|&counter| self.reference.counter(&self.names[counter]).is_some())
    }

    fn audit_account(&mut self, at: usize, counter: usize) {
        if self.audit.oracle.lost == Some(at as u16) {
            return;
        }
        let Some(account) = self.group_account(at, counter) else { return };
        let group = at as u16;
        let id = self.audit.oracle.number(counter as u16, account.epoch - 1);
        let before = self.audit.rights.accounts[at][usize::from(id)];
        if before.is_some_and(|before| before.generation != account.generation) {
            self.audit_generation(at, counter);
        }
        let audit = &mut self.audit;
        audit.rights.update(&mut audit.findings, group, id, account);
        let state = self.reference.counter(&self.names[counter]).filter(|state| state.epoch() == account.epoch);
        let Some(state) = state else { return };
        if let Some(known) = state.accounts().get(&self.groups[at]) {
            audit.rights.covered(&mut audit.findings, group, id, known);
        }
        audit.rights.unseen(&mut audit.findings, &self.groups, id, state);
    }

    pub(super) fn group_account(&self, at: usize, counter: usize) -> Option<Account> {
        let group = self.nodes[self.serving(at)?].core()?.group();
        let guard = &group.guards()[group.guard_of(&self.names[counter])? as usize];
        Some(Account {
            epoch: guard.epoch,
            generation: guard.generation,
            base: guard.base,
            granted: guard.granted,
            spent: guard.spent,
            returned: guard.returned,
            next_pos: guard.next_pos(),
            placed_upto: guard.placed_upto(),
            closed: guard.closed(),
        })
    }

    /// Whether every replica has applied all that is committed.
    fn replicas_at_rest(&self) -> bool {
        let behind = |group: usize| {
            if self.lost.is_over(group) || !self.joins.is_founded(group) {
                return false;
            }
            let seen = LogIndex(self.audit.oracle.groups[group].seen);
            self.present_of(group)
                .into_iter()
                .any(|node| self.nodes[node].core().is_none_or(|core| core.group().applied() < seen))
        };
        !(0..self.groups.len()).any(behind)
    }

    /// All replicas of a group hold the same, which is the truth.
    fn audit_replicas_end(&mut self) {
        for node in 0..self.nodes.len() {
            let (at, Some(core)) = (self.nodes[node].group, self.nodes[node].core()) else { continue };
            for number in 0..self.audit.oracle.numbers() as u16 {
                let (counter, half, generation) = self.audit.oracle.cell_of(number);
                let slot = core.group().table().find_half(&self.names[counter], half, generation);
                if slot.is_none() && self.audit.oracle.groups[at].given_back.contains(&number) {
                    continue;
                }
                let shown = slot.map_or(0, |slot| core.group().sum(slot));
                let id = number;
                conservation::component(&mut self.audit.findings, &self.audit.oracle, at as u16, id, shown);
            }
            (0..self.audit.oracle.numbers() as u16).for_each(|number| self.audit_rows(node, at, number));
        }
    }

    pub(super) fn audit_from_group(&mut self, node: usize, msg: &FromGroup) {
        let (FromGroup::Offer(offer) | FromGroup::Detail(offer)) = msg else { return };
        if self.old_disk.is_of(self.processes_of(node).start) {
            let judged = self.old_disk.is_judged();
            let what = || format!("a start on an old disk that nobody has confirmed offers {offer:?}");
            return self.audit.findings.check("fencing", judged, what);
        }
        if let Some(counter) = self.number_in(&offer.counter, offer.epoch) {
            let audit = &mut self.audit;
            audit.positions.offered(&mut audit.findings, &mut audit.oracle, node as u16, counter, offer);
            let block = matches!(offer.body, tidemark_proto::msg::OfferBody::Block { .. });
            self.coverage.saw(if block { "block offered" } else { "items offered" });
        }
    }

    pub(super) fn audit_for_group(&mut self, node: usize, msg: &ForGroup) {
        match msg {
            ForGroup::Ledger(ToGroup::FencedOut { .. } | ToGroup::Placed(_))
                if self.old_disk.is_of(self.processes_of(node).start) => {}
            ForGroup::Ledger(ToGroup::Placed(placed)) => {
                if let Some(counter) = self.number_in(&placed.counter, placed.epoch) {
                    let audit = &mut self.audit;
                    audit.positions.placed(&mut audit.findings, node as u16, counter, placed);
                    self.coverage.saw_times("identities of a block asked for", u64::from(placed.need_items.is_some()));
                }
            }
            ForGroup::Ledger(ToGroup::FencedOut { group }) if self.reference.is_lost(*group) => {}
            ForGroup::Ledger(ToGroup::FencedOut { group }) => {
                self.audit.findings.found("fencing", format!("group {group} is fenced out without reason"));
            }
            _ => {}
        }
    }

    // ---- the ledger ----

    /// Applies what a member knows to be committed to the reference, command by command.
    pub(super) fn advance_reference(&mut self, dc: usize) {
        while self.reference_index < self.raft.members[dc].commit {
            let cmds = Rc::clone(&self.raft.members[dc].log[self.reference_index].cmds);
            self.reference_index += 1;
            let index = LogIndex(self.reference_index as u64);
            let mut stale = false;
            for cmd in cmds.iter() {
                self.cover_what_is_late(cmd);
                stale |= self.apply_to_reference(index, cmd);
                self.block_moment(cmd);
                let changes = self.reference.take_changes();
                if changes != Changes::default() {
                    self.audit_ledger(cmd, &changes);
                }
                self.audit_claims(index, cmd, &changes.awards);
            }
            self.reference.skip(index);
            self.admin_applied(&cmds, stale);
        }
    }

    /// True for a definition, removal or rule that was decided on what is no more.
    fn apply_to_reference(&mut self, index: LogIndex, cmd: &LedgerCmd) -> bool {
        if let LedgerCmd::Reset { counter, .. } | LedgerCmd::Expire { counter, .. } = cmd {
            return self.apply_to_life(index, counter, cmd);
        }
        if let LedgerCmd::Revoke { .. } = cmd {
            self.apply_revocation(index, cmd);
            return false;
        }
        if let LedgerCmd::DeclareLost { group, .. } = cmd {
            self.apply_declaration(index, cmd, *group);
            return false;
        }
        if let LedgerCmd::Edges { .. } = cmd {
            self.apply_edges(index, cmd);
            return false;
        }
        if let LedgerCmd::Hello(hello) = cmd {
            self.apply_greeting(index, cmd, hello.group);
            return false;
        }
        if let LedgerCmd::ClaimRule { counter, .. } = cmd {
            let before = self.reference.claims().revision(counter);
            self.reference.apply(index, cmd);
            return self.reference.claims().revision(counter) == before;
        }
        let (LedgerCmd::Define { counter, .. }
        | LedgerCmd::Disarm { counter, .. }
        | LedgerCmd::ViewAck { counter, .. }) = cmd
        else {
            self.reference.apply(index, cmd);
            return false;
        };
        let before = self.reference.counter(counter).map(|state| state.milestones().clone()).unwrap_or_default();
        self.reference.apply(index, cmd);
        let Some(after) = self.reference.counter(counter).map(CounterLedger::milestones) else { return false };
        let audit = &mut self.audit;
        audit.definitions.applied(&mut audit.findings, cmd, &before, after);
        let stale = !matches!(cmd, LedgerCmd::ViewAck { .. }) && before.revision() == after.revision();
        self.coverage.saw_times("definition of an older revision", u64::from(stale));
        stale
    }

    /// A reset, or an expiry; true if it was decided on what is no more.
    fn apply_to_life(&mut self, index: LogIndex, counter: &CounterName, cmd: &LedgerCmd) -> bool {
        let before = self.reference.resets().life(counter);
        let certain = self.reference.certain(counter);
        let guarded = self.reference.counter(counter).is_some();
        self.reference.apply(index, cmd);
        let after = self.reference.resets().life(counter);
        if after == before {
            self.coverage.saw("reset of an older revision");
            return true;
        }
        let audit = &mut self.audit;
        audit.definitions.of_life(&mut audit.findings, cmd);
        if after.generation > before.generation {
            self.counter_index(counter.key()).into_iter().for_each(|number| self.forget_loss_of(number));
            self.coverage.saw("counter reset");
            let removed = matches!(cmd, LedgerCmd::Reset { keeps_milestones: false, .. });
            if let Some(number) = self.counter_index(counter.key()).filter(|_| removed && guarded) {
                self.audit.claims.removed(number);
            }
            self.coverage.saw_times("guarded counter reset", u64::from(certain > 0));
            self.coverage.saw_times("counter expired", u64::from(before.expires.is_some()));
        }
        false
    }

    fn audit_ledger(&mut self, cmd: &LedgerCmd, changes: &Changes) {
        for name in &changes.counters {
            let Some(state) = self.reference.counter(name) else { continue };
            let Some(counter) = self.number_in(name, state.epoch()) else { continue };
            state.check_invariants();
            let audit = &mut self.audit;
            audit.rights.below_milestone(&mut audit.findings, counter, state);
            audit.rights.unseen(&mut audit.findings, &self.groups, counter, state);
            conservation::ledger(&mut audit.findings, &audit.oracle, counter, state);
            limits::window(&mut audit.findings, counter, state);
        }
        for (name, group) in &changes.accounts {
            let Some(state) = self.reference.counter(name) else { continue };
            let Some(counter) = self.number_in(name, state.epoch()) else { continue };
            let Some(node) = self.groups.iter().position(|known| known == group) else { continue };
            if let Some(known) = state.accounts().get(group) {
                let audit = &mut self.audit;
                audit.rights.covered(&mut audit.findings, node as u16, counter, known);
            }
        }
        changes.awards.iter().for_each(|(name, at)| self.audit_award(name, *at));
        self.cover_ledger(cmd);
    }

    fn audit_award(&mut self, name: &tidemark_proto::ids::CounterName, at: u64) {
        let Some(state) = self.reference.counter(name) else { return };
        let Some(counter) = self.number_in(name, state.epoch()) else { return };
        let Some(awarded) = state.awards().get(&at) else { return };
        let award = &awarded.award;
        let written_off = awarded.written_off;
        self.trace.note(self.now, 60, [at, award.first, award.pos], || format!("award {award:?}"));
        for earlier in 1..state.epoch() {
            let before = self.number_in(name, earlier).and_then(|number| self.audit.awards.covering(number, at));
            let what = before.map(|before| format!("I8: {before:?} came before a reset, and {at} is awarded again"));
            what.into_iter().for_each(|what| self.audit.findings.found("award", what));
        }
        let audit = &mut self.audit;
        let new = award::NewAward { counter, awarded, state, groups: &self.groups };
        audit.awards.awarded(&mut audit.findings, &audit.oracle, &audit.rights, new);
        order::awarded(&mut audit.findings, &audit.oracle, &audit.positions, new);
        let group = award.group;
        let winner = award.client;
        let lane = award.lane;
        let heavy = award.delta > 1;
        let several = award.count > 1;
        let next = state.next_armed().is_some_and(|next| next < at + ZONE);
        self.audit_written_off(counter, at, written_off);
        self.coverage.saw("award");
        self.coverage.saw_times("award of a heavy increment", u64::from(heavy));
        self.coverage.saw_times("award of several milestones", u64::from(several));
        self.coverage.saw_times("two milestones in one zone", u64::from(next));
        self.award_moment(group);
        self.tempt(group, winner, lane);
    }

    /// Reports of groups from before they heard of a reset or a revocation.
    fn cover_what_is_late(&mut self, cmd: &LedgerCmd) {
        let (counter, epoch, report) = match cmd {
            LedgerCmd::Report(report) => (&report.counter, report.epoch, Some(report)),
            LedgerCmd::Offer(offer) => (&offer.counter, offer.epoch, None),
            _ => return,
        };
        let Some(state) = self.reference.counter(counter) else { return };
        let closed = |report: &Report| {
            let account = state.accounts().get(&report.group);
            epoch == state.epoch() && account.is_some_and(|account| account.generation > report.generation)
        };
        self.coverage.saw_times("message of a stale epoch", u64::from(epoch < state.epoch()));
        self.coverage.saw_times("report of a closed generation", u64::from(report.is_some_and(closed)));
    }

    fn cover_ledger(&mut self, cmd: &LedgerCmd) {
        match cmd {
            LedgerCmd::Define { counter, .. } => {
                self.coverage.saw("milestones defined");
                let running = self.counter_index(counter.key()).map_or(0, |c| self.total_now(usize::from(c)));
                self.coverage.saw_times("defined on a running counter", u64::from(running > 0));
            }
            LedgerCmd::Disarm { .. } => self.coverage.saw("disarmed"),
            LedgerCmd::Grant { if_awarded, .. } => {
                self.coverage.saw(if if_awarded.is_some() { "grant with an award" } else { "grant" });
            }
            LedgerCmd::ViewAck { shown_below: false, .. } => self.coverage.saw("view had shown the milestone"),
            LedgerCmd::Detail(_) => self.coverage.saw("identities given"),
            LedgerCmd::Remains { .. } => self.coverage.saw("remains of a lost group counted"),
            LedgerCmd::Shard { dc, shard, revision, change } => {
                self.audit_shard_change((*dc, *shard), *revision, change)
            }
            LedgerCmd::SetAside { view, .. } => {
                let aside = !self.reference.views().contains(view);
                self.coverage.saw_times("view of a pair set aside", u64::from(aside));
            }
            _ => {}
        }
    }

    // ---- views ----

    /// After a step of an aggregator: every guarded counter and one other.
    pub(super) fn audit_view(&mut self, dc: usize) {
        self.audit.cold = (self.audit.cold + 1) % self.names.len();
        let cold = self.audit.cold;
        self.audit_view_rows(dc, cold);
        self.audit_over(dc, cold);
        self.audit_totals(dc, cold);
        let forgets = self.old_views.forgets(dc, self.aggregators[dc].ledger.applied());
        self.note_left(dc);
        // If not all shards are held here, an aggregator of which the ledger does not know yet refuses its own shards as well as others.
        let is_heard_of =
            |process: &AggregatorProc| process.core().is_none_or(|core| core.view().is_registered(&process.ledger));
        if self.is_split_at(dc) && !is_heard_of(&self.aggregators[dc]) {
            return;
        }
        for counter in 0..self.names.len() {
            let state = self.reference.counter(&self.names[counter]);
            if state.is_none() && counter != cold {
                continue;
            }
            if !self.may_show(dc, counter) {
                self.audit_asked(dc, counter);
                continue;
            }
            let state = self.reference.counter(&self.names[counter]);
            let next = state.and_then(|state| state.next_armed());
            let epoch = state.map(|state| state.epoch());
            let Some(core) = self.aggregators[dc].core() else { return };
            let mut reading = core.read(&self.names[counter], &self.aggregators[dc].ledger);
            if self.mutation == Mutation::ViewNotClamped {
                reading.up += reading.pending;
            }
            let audit = &mut self.audit;
            let number = audit.oracle.number(counter as u16, reading.generation);
            let total = audit.oracle.totals[usize::from(number)];
            let next = next.filter(|_| epoch == Some(reading.generation + 1));
            audit.views.generation(&mut audit.findings, dc, counter as u16, reading.generation);
            match forgets {
                true => audit.views.shown_by_one_that_forgot(&mut audit.findings, dc, number, reading.up, total),
                false => audit.views.shown(&mut audit.findings, dc, number, reading.up, total, next),
            }
            if self.is_split_at(dc) && !forgets {
                self.shown_of_another(dc, counter, &reading, true);
            }
            let audit = &mut self.audit;
            if self.plan.updown.is_some() {
                let number = audit.oracle.number(audit.oracle.half(counter as u16, Half::Down), reading.generation);
                let total = audit.oracle.totals[usize::from(number)];
                audit.views.shown(&mut audit.findings, dc, number, reading.down, total, None);
            }
        }
    }

    // ---- the end ----

    /// Nothing is on its way any more.
    pub(super) fn is_at_rest(&mut self) -> bool {
        let oracle = &self.audit.oracle;
        liveness::unanswered(oracle).is_none()
            && self.clients_settled()
            && self.is_founded_anew()
            && (0..self.names.len()).all(|counter| self.counter_at_rest(counter))
            && self.claims_at_rest()
            && self.moves_at_rest()
            && self.shards_at_rest()
            && self.once.ids.are_all_told()
    }

    fn counter_at_rest(&self, counter: usize) -> bool {
        let total = self.remaining(counter);
        let down = self.remaining_down(counter);
        let name = &self.names[counter];
        let surplus = self.reference.counter(name).map_or(0, |state| state.losses().surplus());
        let ledger = self
            .reference
            .counter(name)
            .is_none_or(|state| liveness::ledger_waits(state, total).is_none() && state.certain() + surplus == total);
        let shows = |dc: usize| {
            let process = &self.aggregators[dc];
            process.core().is_some_and(|core| {
                let reading = core.read(name, &process.ledger);
                reading.up + reading.pending == total && reading.pending <= surplus && reading.down == down
            })
        };
        let placed = |at: usize| self.group_account(at, counter).is_none_or(|a| !liveness::group_waits(&a));
        ledger
            && (0..self.aggregators.len()).filter(|&at| self.holds(at, counter)).all(shows)
            && (0..self.groups.len()).all(placed)
            && self.replicas_at_rest()
            && self.rows_at_rest(counter)
            && self.totals_at_rest(counter)
    }

    /// Everything must have arrived.
    pub(super) fn audit_end(&mut self) {
        conservation::at_end(&mut self.audit.findings, &self.audit.oracle);
        if let Some(number) = liveness::unanswered(&self.audit.oracle) {
            let what = format!("increment {number} has no place: {:?}", self.audit.oracle.increments[number]);
            liveness::found(&mut self.audit.findings, what);
        }
        self.audit_shards_end();
        for counter in 0..self.names.len() {
            self.audit_counter_end(counter);
        }
        let founded = self.is_founded_anew();
        self.audit.findings.check("liveness", founded, || "a lost group was not founded anew".to_owned());
        let settled = self.moves_at_rest();
        self.audit.findings.check("liveness", settled, || "a group is not where its layout wants it".to_owned());
        self.cover_remains();
        self.audit_valves();
        self.audit_claims_end();
        self.audit_replicas_end();
        self.audit_once_end();
        self.audit_eras();
    }

    fn audit_counter_end(&mut self, counter: usize) {
        let total = self.remaining(counter);
        let down = self.remaining_down(counter);
        let id = self.number_now(counter);
        let surplus = self.reference.counter(&self.names[counter]).map_or(0, |state| state.losses().surplus());
        if let Some(state) = self.reference.counter(&self.names[counter]) {
            conservation::ledger_at_rest(&mut self.audit.findings, total, id, state);
            if let Some(waits) = liveness::ledger_waits(state, total) {
                liveness::found(&mut self.audit.findings, format!("counter {counter}: {waits}"));
            }
            let passed = state.milestones().passed().count() as u64;
            let armed = state.milestones().pending().filter(|(_, pending)| **pending == Pending::Armed).count() as u64;
            self.coverage.saw_times("milestone passed before it was armed", passed);
            self.coverage.saw_times("milestone armed at the end", armed);
        }
        for node in 0..self.groups.len() {
            if let Some(account) = self.group_account(node, counter).filter(liveness::group_waits) {
                liveness::found(&mut self.audit.findings, format!("group {node} counter {counter}: {account:?}"));
            }
        }
        for dc in 0..self.aggregators.len() {
            self.audit_rows_end(dc, counter);
            self.audit_totals_end(dc, counter);
            let process = &self.aggregators[dc];
            let reading =
                process.core().map(|core| core.read(&self.names[counter], &process.ledger)).unwrap_or_default();
            let is_held = self.holds(dc, counter);
            let findings = &mut self.audit.findings;
            if is_held {
                convergence::at_end(findings, dc, id, reading.up, reading.pending, total, surplus);
                convergence::down_at_end(findings, dc, id, reading.down, down);
            }
            let same = process.applied != self.reference_index
                || process.ledger.counter(&self.names[counter]) == self.reference.counter(&self.names[counter]);
            findings.check("replicas", same, || format!("ledger {dc} differs from the log in counter {counter}"));
        }
    }
}
