//! Clocks that go wrong, and what is looked at when generations are revoked and groups learn of it.

use super::World;
use crate::checkers::leases::{self, Journal};
use crate::oracle::number_of;
use crate::plan::leases::{shown, when};
use std::collections::{BTreeMap, BTreeSet};
use tidemark_proto::ids::LogIndex;
use tidemark_proto::msg::{LedgerCmd, ToClient};
use tidemark_proto::time::{Span, Time};

/// A change of the ledger's leader so shortly before a revocation is one around it.
const AROUND: Span = Span::from_secs(15);

/// The memory of leases.
#[derive(Debug, Default)]
pub struct Leases {
    /// Of groups for which no process speaks, by group and counter, with the epoch.
    journals: BTreeMap<(usize, usize), (u32, Journal)>,
    /// Late increments that have a place.
    placed: BTreeSet<u32>,
}

impl World {
    /// The time of a node's clock.
    pub(super) fn node_time(&self, node: usize) -> Time {
        shown(self.now, self.plan.leases.nodes_ppm[self.nodes[node].group])
    }

    /// The time at which it shows as much.
    pub(super) fn node_when(&self, node: usize, wanted: Option<Time>) -> Option<Time> {
        wanted.map(|at| when(at, self.plan.leases.nodes_ppm[self.nodes[node].group]))
    }

    pub(super) fn aggregator_time(&self, dc: usize) -> Time {
        shown(self.now, self.plan.leases.aggregators_ppm[self.home_of(dc)])
    }

    pub(super) fn aggregator_when(&self, dc: usize, wanted: Option<Time>) -> Option<Time> {
        wanted.map(|at| when(at, self.plan.leases.aggregators_ppm[self.home_of(dc)]))
    }

    /// The certified increments of a group in its present epoch of a counter. An old copy of its disk knows less.
    fn journal(&self, group: usize, counter: usize) -> (u32, Journal) {
        let serving = self.serving(group).filter(|&node| !self.old_disk.is_of(node));
        let Some(core) = serving.and_then(|node| self.nodes[node].core()) else {
            return self.leases.journals.get(&(group, counter)).cloned().unwrap_or_default();
        };
        let Some(number) = core.group().guard_of(&self.names[counter]) else { return Default::default() };
        let guard = &core.group().guards()[number as usize];
        let items = guard.journal();
        (guard.epoch, items.filter_map(|(upto, _, session)| Some((upto, number_of(session?)))).collect())
    }

    /// A node is about to speak for its group no longer: what it had certified stays known.
    pub(super) fn keep_journals(&mut self, node: usize) {
        let group = self.nodes[node].group;
        if self.serving(group) != Some(node) || self.old_disk.is_of(node) {
            return;
        }
        for counter in 0..self.names.len() {
            let journal = self.journal(group, counter);
            self.leases.journals.insert((group, counter), journal);
        }
    }

    /// Applies a revocation to the reference.
    pub(super) fn apply_revocation(&mut self, index: LogIndex, cmd: &LedgerCmd) {
        let LedgerCmd::Revoke { counter, group, generation, if_last_report, .. } = cmd else { return };
        let known = |world: &World| {
            let account = world.reference.counter(counter)?.accounts().get(group)?;
            Some((account.generation, account.report_no))
        };
        let deferred = |world: &World| world.reference.counter(counter).map(|state| state.deferred().weight());
        let before = (known(self), deferred(self));
        self.reference.apply(index, cmd);
        self.coverage.saw_times("block lost its turn", u64::from(deferred(self) > before.1));
        let before = before.0;
        let Some((after, _)) = known(self) else { return };
        let raced = before.is_some_and(|(now, no)| now == *generation && no != *if_last_report);
        self.coverage.saw_times("report raced a revocation", u64::from(raced && after == *generation));
        let (Some(node), Some(at)) =
            (self.groups.iter().position(|known| known == group), self.counter_index(counter.key()))
        else {
            return;
        };
        if before.is_none_or(|(now, _)| now == after) {
            return;
        }
        self.coverage.saw("generation revoked");
        let elected = self.elected.iter().flatten().any(|at| self.now - *at < AROUND) && self.elections > 1;
        self.coverage.saw_times("leader of the ledger changed around a revocation", u64::from(elected));
        let Some(state) = self.reference.counter(counter) else { return };
        let closed = state.terms().generation(*group).closed_spent;
        let (epoch, journal) = self.journal(node, usize::from(at));
        // A group that has not heard of a reset has certified nothing in the present generation.
        let late = if epoch == state.epoch() { leases::beyond(&journal, closed) } else { BTreeSet::new() };
        self.coverage.saw_times("certified increments revoked", u64::from(!late.is_empty()));
        leases::revoked(&mut self.audit.oracle, &late);
    }

    /// The group has gone to another generation: what it queues as late is late.
    pub(super) fn audit_generation(&mut self, group: usize, counter: usize) {
        let Some(core) = self.serving(group).and_then(|node| self.nodes[node].core()) else { return };
        let Some(number) = core.group().guard_of(&self.names[counter]) else { return };
        let (mut from, to) = core.group().guards()[number as usize].late();
        self.coverage.saw("generation opened at its group");
        let mut late = BTreeSet::new();
        while let Some(detail) = core.group().detail(number, from, to) {
            let tidemark_proto::msg::OfferBody::Items(items) = &detail.body else { break };
            late.extend(items.iter().filter_map(|item| item.session).map(number_of));
            from = detail.first_pos + items.len() as u64;
        }
        self.coverage.saw_times("data centre returned with late increments", u64::from(!late.is_empty()));
        leases::revoked(&mut self.audit.oracle, &late);
    }

    /// Before an answer is believed.
    pub(super) fn audit_leased_answer(&mut self, node: usize, client: tidemark_proto::ids::ClientId, msg: &ToClient) {
        if !matches!(msg, ToClient::Durable { .. } | ToClient::Placed { .. }) {
            return;
        }
        let node = self.nodes[node].group;
        // Answers of a group that was given up while it ran count among the possible losses of certificates.
        if self.audit.oracle.lost == Some(node as u16) {
            return;
        }
        for counter in 0..self.names.len() {
            let Some(account) = self.group_account(node, counter) else { continue };
            let Some(state) = self.reference.counter(&self.names[counter]) else { continue };
            if leases::is_behind(&account, state, self.groups[node]) {
                let closed = state.terms().generation(self.groups[node]).closed_spent;
                let late = leases::beyond(&self.journal(node, counter).1, closed);
                let counted = self.counted_by(node, client, msg);
                leases::answered(&mut self.audit.findings, &late, counted.into_iter());
            }
        }
    }

    /// The increments that an answer says are counted.
    fn counted_by(&self, node: usize, client: tidemark_proto::ids::ClientId, msg: &ToClient) -> Vec<u32> {
        let (lane, seq) = match msg {
            ToClient::Durable { lane, seq, .. } | ToClient::Placed { lane, seq, .. } => (*lane, *seq),
            _ => return Vec::new(),
        };
        let stream = self.audit.oracle.groups[node].streams.get(&(client, lane));
        let items = stream.and_then(|stream| stream.batch(seq)).unwrap_or_default();
        let counted = |idx: &u32| match msg {
            ToClient::Durable { pending, .. } => pending.binary_search(idx).is_err(),
            ToClient::Placed { idx: from, count, .. } => (*from..from + count).contains(idx),
            _ => false,
        };
        (0..).zip(items).filter(|(idx, _)| counted(idx)).map(|(_, number)| *number).collect()
    }

    /// A node said a place: of a late increment for the first time?
    pub(super) fn cover_late(&mut self, number: u32, place: tidemark_proto::msg::Place) {
        if self.audit.oracle.increments[number as usize].late && self.leases.placed.insert(number) {
            self.coverage.saw("late increment placed");
            let won = matches!(place, tidemark_proto::msg::Place::Milestone { .. });
            self.coverage.saw_times("late increment is a later milestone", u64::from(won));
        }
    }
}
