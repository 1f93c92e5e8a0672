//! Rights: while a milestone is armed, what is certain and what is out stay below it (I1); no group may spend more than the
//! ledger knows to be out (I2); the milestone cannot have happened unseen (I3).

use super::leases::is_behind;
use super::{Account, Findings};
use tidemark_proto::ids::GroupId;
use tidemark_proto::ledger::{AccountState, CounterLedger};

const NAME: &str = "rights";

/// Sums over the true accounts of all groups, per counter.
#[derive(Clone, Debug, Default)]
pub struct Rights {
    /// `accounts[group][counter]`, as the groups' committed states have them.
    pub accounts: Vec<Vec<Option<Account>>>,
    /// Σ of what the groups certified, per counter.
    certified: Vec<u64>,
}

impl Rights {
    pub fn new(groups: usize, counters: usize) -> Rights {
        Rights { accounts: vec![vec![None; counters]; groups], certified: vec![0; counters] }
    }

    /// A group's account changed. Positions and cumulative numbers of one generation never go back.
    pub fn update(&mut self, findings: &mut Findings, group: u16, counter: u16, now: Account) {
        let known = &mut self.accounts[usize::from(group)][usize::from(counter)];
        if let Some(before) = known.filter(|before| before.epoch == now.epoch) {
            let grown = before.base == now.base
                && before.next_pos <= now.next_pos
                && before.placed_upto <= now.placed_upto
                && (before.generation < now.generation
                    || (before.granted <= now.granted && before.spent <= now.spent && before.returned <= now.returned));
            findings.check(NAME, grown, || format!("group {group} counter {counter} went from {before:?} to {now:?}"));
        }
        let overdrawn = now.spent + now.returned > now.granted;
        findings.check(NAME, !overdrawn, || format!("group {group} counter {counter} is overdrawn: {now:?}"));
        self.certified[usize::from(counter)] -= known.map_or(0, |before| before.certified());
        self.certified[usize::from(counter)] += now.certified();
        *known = Some(now);
    }

    /// A group was declared lost. Its certified increments are looked at no more; of that the ledger knows all but what it wrote off.
    pub fn lose(&mut self, findings: &mut Findings, group: u16, counter: u16, state: &CounterLedger, id: GroupId) {
        let account = self.accounts[usize::from(group)][usize::from(counter)].take();
        let certified = account.map_or(0, |account| account.certified());
        self.certified[usize::from(counter)] -= certified;
        let known = state.accounts().get(&id).map_or(0, AccountState::certain);
        let written_off = state.losses().lost().find(|(lost, _)| *lost == id).map_or(0, |(_, loss)| loss.written_off);
        let unseen = certified.saturating_sub(known);
        // Without a base the ledger never knew what was counted before the guard, and views say that.
        let base = account.map_or(0, |account| account.base);
        findings.check(NAME, unseen <= written_off.saturating_add(base), || {
            format!("group {group} had certified {unseen} of counter {counter} that nobody knows of; {written_off} are written off")
        });
    }

    /// I1: after every entry of the ledger.
    pub fn below_milestone(&self, findings: &mut Findings, counter: u16, state: &CounterLedger) {
        let Some(next) = state.next_armed() else { return };
        let certain = state.certain();
        let out = state.out();
        findings.check(NAME, certain + out < next, || {
            format!("I1: counter {counter} certain {certain} + out {out}, and {next} is armed")
        });
    }

    /// I2: after a step of the group or of the ledger.
    pub fn covered(&self, findings: &mut Findings, group: u16, counter: u16, known: &AccountState) {
        let Some(account) = self.accounts[usize::from(group)][usize::from(counter)] else { return };
        if account.generation != known.generation || account.granted < account.returned + account.spent {
            return;
        }
        let ahead = account.spent.saturating_sub(known.spent);
        let may = account.available() + ahead;
        findings.check(NAME, may <= known.out() && account.spent >= known.spent, || {
            format!("I2: group {group} counter {counter}: {account:?} may spend {may}, the ledger knows {known:?}")
        });
    }

    /// Increments that groups certified beyond the end of generations that they do not know to be closed.
    pub fn late(&self, groups: &[GroupId], counter: u16, state: &CounterLedger) -> u64 {
        let of = |(group, accounts): (&GroupId, &Vec<Option<Account>>)| {
            let account = accounts[usize::from(counter)]?;
            let behind = is_behind(&account, state, *group);
            behind.then(|| account.spent.saturating_sub(state.terms().generation(*group).closed_spent))
        };
        groups.iter().zip(&self.accounts).filter_map(of).sum()
    }

    /// I3: the true count that is placed stays below the milestone. While a strict one is armed nothing is late.
    pub fn unseen(&self, findings: &mut Findings, groups: &[GroupId], counter: u16, state: &CounterLedger) {
        let Some(next) = state.next_armed() else { return };
        let late = self.late(groups, counter, state);
        findings.check(NAME, late == 0 || !state.has_strict_armed(), || {
            format!("I3: {late} of counter {counter} are late, and a strict milestone is armed")
        });
        let account = |(group, _)| state.accounts().get(&group).map_or(0, AccountState::certain);
        let lost: u64 = state.losses().lost().map(account).sum();
        let happened = self.certified[usize::from(counter)] - late + state.sequenced() + lost;
        findings.check(NAME, happened < next, || {
            format!("I3: {happened} of counter {counter} are placed, and {next} is armed and not awarded")
        });
    }

    /// Σ of what the groups truly certified.
    pub fn certified(&self, counter: u16) -> u64 {
        self.certified[usize::from(counter)]
    }
}
