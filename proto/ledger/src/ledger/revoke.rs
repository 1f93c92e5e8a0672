//! Generations of accounts: opened for good or under a lease, closed by revocation. See docs/internals/protocol.md, A4 and B1 to B5.
//!
//! Whether rights are leased is fixed for a generation. It changes, with the policy of the milestones, only when nothing of the
//! generation is outstanding. A group learns of a generation by a message that only applied state makes, and confirms it by its
//! next report; until then it is granted nothing. Increments that it had certified and not reported before the revocation come
//! back as late increments. They stand at the end of its queue, so they never touch a budget of rights.

use super::account::AccountState;
use super::counter::{CounterLedger, Touched};
use super::milestones::Pending;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use tidemark_types::ids::{AggregatorId, GroupId, LogIndex};
use tidemark_types::limits::GRANTED_CUMULATIVE_MAX;
use tidemark_types::teeth::{Bug, bites};
use tidemark_wire::msg::{Account, MilestoneSpec, Opened, Policy, ToGroup};

/// The parts that milestones under `timely` add to the state of a counter; empty if there never was one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// Single milestones that are `timely`.
    timely: BTreeSet<u64>,
    /// The rule's policy.
    rule: Policy,
    /// By account: generations that are leased, or not the first.
    generations: BTreeMap<GroupId, Generation>,
}

/// An account's present generation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Generation {
    pub leased: bool,
    /// No report of it was applied: its group may not know of it.
    pub unheard: bool,
    /// The one before was revoked with rights outstanding, and the late increments of its group may not all have their places.
    pub late: bool,
    /// Spending of the one before.
    pub closed_spent: u64,
}

impl Terms {
    pub fn is_empty(&self) -> bool {
        self.timely.is_empty() && self.rule == Policy::Strict && self.generations.is_empty()
    }

    pub fn generation(&self, group: GroupId) -> Generation {
        self.generations.get(&group).copied().unwrap_or_default()
    }

    /// Whether increments may have been counted that the ledger neither knows of nor holds for outstanding.
    pub fn any_late(&self) -> bool {
        self.late().next().is_some()
    }

    /// Groups that may have counted such increments.
    pub fn late(&self) -> impl Iterator<Item = GroupId> + '_ {
        self.generations.iter().filter(|(_, generation)| generation.late).map(|(&group, _)| group)
    }

    /// A report of the present generation was applied. True when it is the first.
    fn hear(&mut self, group: GroupId) -> bool {
        let Some(generation) = self.generations.get_mut(&group) else { return false };
        generation.late = false;
        std::mem::replace(&mut generation.unheard, false)
    }

    /// For a counter that began again: its policies. All accounts are new.
    pub(super) fn begun_again(self) -> Terms {
        Terms { generations: BTreeMap::new(), ..self }
    }

    /// The group says nothing any more.
    pub(super) fn lose(&mut self, group: GroupId) {
        if let Some(generation) = self.generations.get_mut(&group) {
            generation.late = false;
        }
    }

    /// The message about an account.
    pub fn message(&self, account: Account) -> ToGroup {
        match self.generations.get(&account.group) {
            None => ToGroup::Account(account),
            Some(&Generation { leased, closed_spent, .. }) => ToGroup::Opened(Opened { account, leased, closed_spent }),
        }
    }

    /// The account as a greeting's answer lists it, by which nothing can be spent that is leased or of a later generation.
    pub fn listed(&self, account: Account) -> Account {
        let granted = if self.generations.contains_key(&account.group) { 0 } else { account.granted };
        Account { granted, ..account }
    }
}

impl CounterLedger {
    pub fn terms(&self) -> &Terms {
        &self.terms
    }

    /// For a state that was read without them.
    pub(super) fn set_terms(&mut self, terms: Terms) {
        self.terms = terms;
    }

    /// The policy of a milestone that is neither awarded nor passed: its own, or that of the rule, which is the same where both
    /// cover it.
    pub fn policy_of(&self, at: u64) -> Policy {
        if self.milestones().singles().contains(&at) { self.single_policy(at) } else { self.rule_policy() }
    }

    /// The milestones of a definition that may be added. A single milestone that a rule covers is one milestone with it and is
    /// armed with it. So a policy of its own would be a promise without a check.
    pub(super) fn of_one_policy(&self, spec: &MilestoneSpec) -> (BTreeSet<u64>, Option<u64>) {
        let mixed = bites(Bug::PoliciesMixed);
        let rule = self.milestones().every().filter(|_| self.rule_policy() != spec.policy);
        let is_free = |at: &u64| mixed || !rule.is_some_and(|every| at.is_multiple_of(every));
        let others = || self.milestones().singles().iter().filter(|&&at| self.single_policy(at) != spec.policy);
        let rules = |every: &u64| *every > 0 && (mixed || !others().any(|at| at.is_multiple_of(*every)));
        (spec.at.iter().copied().filter(is_free).collect(), spec.every.filter(rules))
    }

    /// The policy of a single milestone, of the rule.
    pub(super) fn single_policy(&self, at: u64) -> Policy {
        if self.terms.timely.contains(&at) { Policy::Timely } else { Policy::Strict }
    }

    pub(super) fn rule_policy(&self) -> Policy {
        self.terms.rule
    }

    /// The policy in force: while any milestone that is to come is strict, nothing is revoked.
    pub fn policy(&self) -> Policy {
        if self.terms.timely.is_empty() && self.terms.rule == Policy::Strict {
            return Policy::Strict;
        }
        let mut pending = self.milestones().pending().peekable();
        let some = pending.peek().is_some();
        let timely = some && pending.all(|(at, _)| self.policy_of(at) == Policy::Timely);
        if timely { Policy::Timely } else { Policy::Strict }
    }

    /// Whether a strict milestone is armed: then no increment is late.
    pub fn has_strict_armed(&self) -> bool {
        let is_armed = |state: &Pending| *state == Pending::Armed;
        let mut armed = self.milestones().pending().filter(|(_, state)| is_armed(state));
        armed.any(|(at, _)| self.policy_of(at) == Policy::Strict)
    }

    /// Notes the policy of added milestones; `known` are the single milestones that stood before, and the rule.
    pub(super) fn define_policy(&mut self, spec: &MilestoneSpec, known: (&BTreeSet<u64>, Option<u64>), first: bool) {
        let new: Vec<u64> = self.milestones().singles().difference(known.0).copied().collect();
        if spec.policy == Policy::Timely {
            self.terms.timely.extend(new);
        }
        if self.milestones().every() != known.1 {
            self.terms.rule = spec.policy;
        }
        if first {
            self.open_all();
        }
    }

    /// Sets the generations of accounts that no group was told of yet.
    pub(super) fn open_all(&mut self) {
        if self.policy() == Policy::Timely {
            let leased = Generation { leased: true, ..Generation::default() };
            self.terms.generations = self.accounts().keys().map(|&group| (group, leased)).collect();
        }
    }

    /// Forgets policies of removed milestones.
    pub(super) fn tidy_policies(&mut self) {
        if !self.terms.timely.is_empty() {
            let singles = self.milestones.singles();
            self.terms.timely.retain(|at| singles.contains(at));
        }
        if self.milestones.every().is_none() {
            self.terms.rule = Policy::Strict;
        }
    }

    /// A group that registers now has certified nothing.
    pub(super) fn open_for_new_group(&mut self, group: GroupId) {
        if self.policy() == Policy::Timely {
            self.terms.generations.insert(group, Generation { leased: true, ..Generation::default() });
        }
    }

    /// Whether the account may be granted rights: its group knows of its generation, and that is of the kind in force.
    pub fn may_hold(&self, group: GroupId) -> bool {
        let generation = self.terms.generation(group);
        (!generation.unheard || bites(Bug::GrantUnheard)) && generation.leased == (self.policy() == Policy::Timely)
    }

    /// Whether the group may lose rights or its turn once its lease is over.
    pub fn may_lose(&self, group: GroupId) -> bool {
        match self.accounts().get(&group).map(AccountState::out) {
            None => false,
            Some(0) => self.may_defer(group),
            Some(_) => self.may_revoke(group),
        }
    }

    /// Whether the account's rights may be revoked once its group's lease is over.
    pub fn may_revoke(&self, group: GroupId) -> bool {
        let generation = self.terms.generation(group);
        let due = generation.leased && !generation.unheard && !bites(Bug::NeverRevoked);
        due && self.policy() == Policy::Timely
    }

    /// Accounts with rights of the kind that is not in force: nothing more is granted to them until these are back.
    pub fn of_other_kind(&self) -> impl Iterator<Item = GroupId> + '_ {
        let leased = self.policy() == Policy::Timely;
        let other = move |group: &GroupId| self.terms.generation(*group).leased != leased;
        self.accounts().iter().filter(|(_, account)| account.out() > 0).map(|(&group, _)| group).filter(other)
    }

    pub(super) fn hear(&mut self, group: GroupId) -> bool {
        self.losses.hear(group);
        self.terms.hear(group)
    }

    /// Closes a leased generation with rights outstanding, if no newer report of it was applied than the proposer knew. With
    /// nothing outstanding the group loses its turn, if everything waits for identities that it alone has.
    pub fn revoke(
        &mut self,
        group: GroupId,
        generation: u32,
        if_last_report: u64,
        index: LogIndex,
        views: &BTreeSet<AggregatorId>,
        touched: &mut Touched,
    ) {
        let Some(account) = self.accounts().get(&group) else { return };
        let in_time = account.report_no != if_last_report && !bites(Bug::RenewalIgnored);
        let out = account.out();
        if account.generation != generation || in_time || !self.may_lose(group) {
            return;
        }
        if out == 0 {
            self.defer(group);
        } else {
            self.losses.revoke(group, out);
            self.close(group, true);
        }
        touched.groups.insert(group);
        self.settle(index, views, touched);
    }

    /// Opens the next generation of an account, of the kind in force.
    pub(super) fn close(&mut self, group: GroupId, late: bool) {
        let leased = self.policy() == Policy::Timely;
        let closed_spent = self.change_account(group, AccountState::close).unwrap_or(0);
        let was_late = self.terms.generation(group).late;
        let opened = Generation { leased, unheard: true, late: late || was_late, closed_spent };
        if !bites(Bug::RevokedInPlace) {
            self.terms.generations.insert(group, opened);
        }
    }

    /// Begins the next generation of accounts with nothing outstanding, if theirs is of the other kind, or near the limit of
    /// grants.
    pub(super) fn reopen(&mut self, touched: &mut Touched) {
        let leased = self.policy() == Policy::Timely;
        let is_worn = |account: &AccountState| account.granted > GRANTED_CUMULATIVE_MAX / 2;
        if !leased && self.terms.generations.is_empty() && !self.accounts().values().any(is_worn) {
            return;
        }
        let due = |(group, account): (&GroupId, &AccountState)| {
            let generation = self.terms.generation(*group);
            let other = generation.leased != leased || is_worn(account);
            (other && !generation.unheard && account.out() == 0).then_some(*group)
        };
        let due: Vec<GroupId> = self.accounts().iter().filter_map(due).collect();
        for group in due {
            self.close(group, false);
            touched.groups.insert(group);
        }
    }
}

#[cfg(test)]
mod retired;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{DefineError, Ledger};
    use tidemark_types::ids::{CounterName, DcId};
    use tidemark_wire::msg::{Hello, LedgerCmd};

    fn counter() -> CounterName {
        CounterName::new("search", b"queries").unwrap()
    }

    fn spec(at: &[u64], every: Option<u64>, policy: Policy) -> MilestoneSpec {
        MilestoneSpec { at: at.to_vec(), every, policy, ..MilestoneSpec::default() }
    }

    struct World {
        ledger: Ledger,
        index: u64,
    }

    impl World {
        fn new() -> World {
            let mut world = World { ledger: Ledger::default(), index: 0 };
            let group = GroupId { dc: DcId(0), group: 0, incarnation: 1 };
            world.apply(LedgerCmd::Namespace("search".into()));
            world.apply(LedgerCmd::Hello(Hello { group, lanes: 1, nonces: vec![1], number: 1, accounts: Vec::new() }));
            world
        }

        fn apply(&mut self, cmd: LedgerCmd) {
            self.index += 1;
            self.ledger.apply(LogIndex(self.index), &cmd);
            self.ledger.check_invariants();
        }

        /// A definition without a check before.
        fn define(&mut self, spec: MilestoneSpec) {
            let revision = self.ledger.revision(&counter());
            self.apply(LedgerCmd::Define { counter: counter(), revision, spec });
        }

        fn refusal(&self, spec: MilestoneSpec) -> Option<DefineError> {
            self.ledger.definition(&counter(), spec, 0).err()
        }

        fn policies(&self) -> Vec<(u64, Policy)> {
            let state = self.ledger.counter(&counter()).unwrap();
            state.milestones().pending().map(|(at, _)| (at, state.policy_of(at))).collect()
        }
    }

    #[test]
    fn what_a_timely_rule_covers_is_not_made_strict() {
        let mut world = World::new();
        world.define(spec(&[], Some(100), Policy::Timely));
        for at in [100, 300] {
            let refused = world.refusal(spec(&[at], None, Policy::Strict));
            assert_eq!(refused, Some(DefineError::OfRulePolicy { at, every: 100, policy: "timely" }));
            world.define(spec(&[at], None, Policy::Strict));
            world.define(spec(&[at], Some(7), Policy::Strict));
            world.define(spec(&[], Some(100), Policy::Timely));
        }
        assert_eq!(world.policies(), [(100, Policy::Timely)]);
    }

    #[test]
    fn a_strict_rule_does_not_cover_what_is_timely() {
        let mut world = World::new();
        world.define(spec(&[300], None, Policy::Timely));
        let refused = world.refusal(spec(&[], Some(100), Policy::Strict));
        assert_eq!(refused, Some(DefineError::Policy { at: 300, policy: "timely" }));
        world.define(spec(&[], Some(100), Policy::Strict));
        assert_eq!(world.policies(), [(300, Policy::Timely)]);
        assert_eq!(world.ledger.counter(&counter()).unwrap().milestones().every(), None);
    }

    #[test]
    fn beside_a_rule_a_milestone_has_a_policy_of_its_own() {
        let mut world = World::new();
        world.define(spec(&[], Some(100), Policy::Timely));
        assert_eq!(world.refusal(spec(&[250], None, Policy::Strict)), None);
        world.define(spec(&[250], None, Policy::Strict));
        assert_eq!(world.policies(), [(100, Policy::Timely), (250, Policy::Strict)]);
        assert_eq!(world.refusal(spec(&[300], Some(100), Policy::Timely)), None);
    }
}
