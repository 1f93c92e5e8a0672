//! A new era that begins with images has every award that any of them knows, and awards nothing again that was awarded. It counts at least
//! what any image knows and no more than happened, and names its first milestone exactly.

use super::Findings;
use tidemark_proto::ids::{ClientId, CounterName, DcId, GroupId, LogIndex};
use tidemark_proto::ledger::{CounterLedger, Fate, Ledger};
use tidemark_proto::msg::{Hello, LedgerCmd, MilestoneSpec, Offer, OfferBody, OfferItem, Report};
use tidemark_proto::view::View;

const PROPERTY: &str = "eras";
/// From what a new era begins with to the milestone that it is tried with.
const TRIED_AHEAD: u64 = 7;

/// The outside knowledge of a counter.
pub struct Known<'a> {
    pub name: &'a CounterName,
    /// Milestones that were awarded, even if no process knows it.
    pub awarded: &'a [u64],
    /// Everything that was counted in the generation that the era begins in.
    pub happened: u64,
}

/// No copy's award is missing, and each is as it was.
pub fn keeps_awards(findings: &mut Findings, next: &Ledger, copies: &[Ledger]) {
    for copy in copies {
        for (name, state) in copy.guarded().filter_map(|name| Some((name, copy.counter(name)?))) {
            for (at, awarded) in state.awards() {
                let kept = next.counter(name).and_then(|state| state.awards().get(at));
                let same = kept.is_some_and(|kept| kept.award == awarded.award);
                findings.check(PROPERTY, same, || format!("{name} {at} was awarded, and the new era has {kept:?}"));
            }
        }
    }
}

/// At the beginning of an era no group holds rights, counts in images are counted, and awarded milestones are not armed.
pub fn begins_well(findings: &mut Findings, next: &Ledger, view: &View, known: &Known) {
    let Some(state) = next.counter(known.name) else { return };
    let name = known.name;
    let certain = state.certain();
    let shown = view.sum_of(name, state.epoch() - 1);
    findings.check(PROPERTY, state.upper() == certain, || format!("{name}: rights or increments are left: {state:?}"));
    findings.check(PROPERTY, (shown..=known.happened).contains(&certain), || {
        format!("{name}: the era begins with {certain}; images know {shown}, {} happened", known.happened)
    });
    for &at in known.awarded {
        let fate = next.fate(name, at);
        let again = matches!(fate, Fate::Armed | Fate::Arming) || state.milestones().is_covered(at);
        findings.check(PROPERTY, !again, || format!("{name} {at} was awarded and may be again: {fate:?}"));
    }
}

/// A group of the new era counts to the next milestone.
pub fn goes_on(findings: &mut Findings, mut next: Ledger, name: &CounterName) {
    let Some(begins) = next.counter(name).map(CounterLedger::certain) else { return };
    // No run has this number of groups in a data centre.
    let group = GroupId { dc: DcId(0), group: u16::MAX, incarnation: 1 };
    let at = (begins + TRIED_AHEAD..).find(|&at| next.counter(name).is_some_and(|state| !state.is_settled(at)));
    let (Some(at), epoch) = (at, next.counter(name).map_or(1, CounterLedger::epoch)) else { return };
    let counter = name.clone();
    let index = next.applied().0;
    let item = |idx| OfferItem { delta: 1, session: None, client: ClientId(1), lane: 0, seq: 1, idx };
    let body = OfferBody::Items((0..=(at - begins) as u32).map(item).collect());
    let start = 1;
    let spec = MilestoneSpec { at: vec![at], ..MilestoneSpec::default() };
    let cmds = [
        LedgerCmd::Hello(Hello { group, lanes: 1, nonces: vec![start], number: 1, accounts: Vec::new() }),
        LedgerCmd::Define { counter: counter.clone(), revision: next.revision(name), spec },
        LedgerCmd::Report(Report::first(counter.clone(), epoch, group, start)),
        LedgerCmd::Offer(Offer { counter, epoch, group, start, first_pos: 0, body }),
    ];
    for (index, cmd) in (index + 1..).zip(cmds) {
        next.apply(LogIndex(index), &cmd);
        next.check_invariants();
    }
    let award = next.counter(name).and_then(|state| Some(state.awards().get(&at)?.award.clone()));
    let exact = award.as_ref().is_some_and(|award| {
        (award.first, award.group) == (at, group)
            && award.before.iter().map(|(_, weight)| weight).sum::<u64>() == at - 1
    });
    findings.check(PROPERTY, exact, || {
        let account = next.counter(name).and_then(|state| state.accounts().get(&group));
        let fate = next.fate(name, at);
        let certain = next.certain(name);
        format!(
            "{name} {at}, behind {begins} of before ({certain} now), is {fate:?}, awarded as {award:?}; {account:?}"
        )
    });
}
