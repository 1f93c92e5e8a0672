//! The state of one milestone, for clients that wait for it.

use super::counter::{Awarded, CounterLedger};
use super::{Ledger, Pending};
use tidemark_types::ids::CounterName;
use tidemark_wire::wait::{Heard, WaitError, WaitOutcome};

/// The progress of a milestone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate<'l> {
    /// The award that covers it.
    Awarded(&'l Awarded),
    /// Armed: it cannot happen unseen.
    Armed,
    /// Not promised yet.
    Arming,
    /// It had happened before it was armed: there will be no award.
    Passed,
    /// Never defined, or removed, or passed so long ago that it is forgotten.
    Unknown,
}

impl Ledger {
    /// The state of the milestone `at` of a counter. All future milestones of a rule have the state of its next one.
    pub fn fate(&self, counter: &CounterName, at: u64) -> Fate<'_> {
        self.counter(counter).map_or(Fate::Unknown, |state| state.fate(at))
    }

    /// The answer to a client that waits for a milestone and has heard of it from a ledger that had applied `after`. A ledger
    /// that has not applied as much denies nothing. Decisions of another history are never applied by this ledger, so they are
    /// not waited for.
    pub fn wait_outcome(&self, counter: &CounterName, at: u64, after: Heard) -> WaitOutcome {
        let after = match (after.birth, self.births().current()) {
            (Some(birth), Some(_)) => self.births().until(birth).map_or(0, |until| until.0.min(after.index)),
            _ => after.index,
        };
        match self.fate(counter, at) {
            Fate::Awarded(awarded) => WaitOutcome::Awarded(Box::new(awarded.award.clone())),
            Fate::Armed | Fate::Arming => WaitOutcome::Waiting,
            Fate::Passed | Fate::Unknown if self.applied().0 < after => WaitOutcome::Waiting,
            Fate::Passed => WaitOutcome::Refused(WaitError::Passed),
            Fate::Unknown => WaitOutcome::Refused(WaitError::NoMilestone),
        }
    }
}

impl CounterLedger {
    fn fate(&self, at: u64) -> Fate<'_> {
        let milestones = self.milestones();
        let by_rule =
            || milestones.rule_next().filter(|_| milestones.is_of_rule(at)).and_then(|next| milestones.get(next));
        if let Some(awarded) = self.award_of(at) {
            return Fate::Awarded(awarded);
        }
        match milestones.get(at).or_else(by_rule) {
            Some(Pending::Armed) => Fate::Armed,
            Some(Pending::Arming { .. }) => Fate::Arming,
            None if milestones.passed().any(|passed| passed == at) => Fate::Passed,
            None => Fate::Unknown,
        }
    }

    /// The award that covers a milestone. An increment may have several, which stand side by side and cover the numbers between.
    pub fn award_of(&self, at: u64) -> Option<&Awarded> {
        let mut below = self.awards().range(..=at).rev().map(|(_, awarded)| awarded);
        // Awards of several generations lie among each other.
        if self.epoch() > 1 {
            return below.find(|awarded| awarded.award.covers(at));
        }
        let first = below.clone().next()?.award.first;
        let mut of_one = below.take_while(|awarded| awarded.award.first == first);
        of_one.find(|awarded| awarded.award.covers(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroU64;
    use tidemark_types::ids::{Birth, ClientId, DcId, GroupId, LogIndex};
    use tidemark_wire::msg::{Hello, LedgerCmd, MilestoneSpec, Offer, OfferBody, OfferItem};

    fn counter() -> CounterName {
        CounterName::new("search", b"queries").unwrap()
    }

    fn group() -> GroupId {
        GroupId { dc: DcId(0), group: 0, incarnation: 1 }
    }

    /// A rule "every 10" and the milestones 15 and 1,000; everything is sequenced, so that an offer is placed at once.
    fn ledger() -> Ledger {
        let mut ledger = Ledger::default();
        let spec = MilestoneSpec { at: vec![15, 1_000], every: Some(10), ..MilestoneSpec::default() };
        let hello = Hello { group: group(), lanes: 1, nonces: vec![1], number: 1, accounts: Vec::new() };
        ledger.apply(LogIndex(1), &LedgerCmd::Namespace("search".into()));
        ledger.apply(LogIndex(2), &LedgerCmd::Define { counter: counter(), revision: 0, spec });
        ledger.apply(LogIndex(3), &LedgerCmd::Hello(hello));
        ledger
    }

    fn count(ledger: &mut Ledger, index: u64, first_pos: u64, delta: u64) {
        let item = OfferItem { delta, session: None, client: ClientId(1), lane: 0, seq: index, idx: 0 };
        let body = OfferBody::Items(vec![item]);
        let offer = Offer { counter: counter(), epoch: 1, group: group(), start: 1, first_pos, body };
        ledger.apply(LogIndex(index), &LedgerCmd::Offer(offer));
    }

    #[test]
    fn who_waits_is_told_of_the_award_that_covers_the_milestone() {
        let mut ledger = ledger();
        let outcome = |ledger: &Ledger, at| ledger.wait_outcome(&counter(), at, Heard::default());
        for at in [10, 15, 20, 30, 1_000, 12_340] {
            assert_eq!(outcome(&ledger, at), WaitOutcome::Waiting, "{at}");
        }
        // Number 5 to 34: three of the rule and a single one.
        count(&mut ledger, 4, 0, 4);
        count(&mut ledger, 5, 1, 30);
        let awarded = |at| match outcome(&ledger, at) {
            WaitOutcome::Awarded(award) => (award.at, award.count, award.first),
            other => panic!("{at}: {other:?}"),
        };
        assert_eq!([awarded(10), awarded(20), awarded(30)], [(10, 3, 5); 3]);
        assert_eq!(awarded(15), (15, 1, 5));
        let state = ledger.counter(&counter()).unwrap();
        assert_eq!([10, 15, 20, 25, 30, 40].map(|at| state.is_awarded(at)), [true, true, true, false, true, false]);
        assert_eq!(outcome(&ledger, 40), WaitOutcome::Waiting);
        for at in [1, 14, 25, 34] {
            assert_eq!(outcome(&ledger, at), WaitOutcome::Refused(WaitError::NoMilestone), "{at}");
        }
    }

    #[test]
    fn what_was_removed_or_never_there_is_denied_but_not_by_who_lags_behind() {
        let mut ledger = ledger();
        let removed = Some(1_000);
        let revision = ledger.revision(&counter());
        ledger.apply(LogIndex(4), &LedgerCmd::Disarm { counter: counter(), revision, at: None });
        ledger.apply(LogIndex(5), &LedgerCmd::Disarm { counter: counter(), revision: revision + 1, at: removed });
        let denied = WaitOutcome::Refused(WaitError::NoMilestone);
        let other = CounterName::new("search", b"other").unwrap();
        let heard = |index| Heard { index, birth: None };
        assert_eq!(ledger.wait_outcome(&counter(), 1_000, heard(5)), denied);
        assert_eq!(
            (ledger.wait_outcome(&counter(), 20, heard(0)), ledger.wait_outcome(&other, 20, heard(0))),
            (denied.clone(), denied)
        );
        assert_eq!(ledger.wait_outcome(&counter(), 1_000, heard(6)), WaitOutcome::Waiting);
        assert_eq!(ledger.wait_outcome(&other, 20, heard(6)), WaitOutcome::Waiting);
        assert_eq!(ledger.wait_outcome(&counter(), 15, heard(0)), WaitOutcome::Waiting, "it stands by itself");
    }

    #[test]
    fn who_has_heard_of_another_history_is_denied_what_is_not_in_this_one() {
        let mut ledger = ledger();
        let birth = |number| NonZeroU64::new(number).map(Birth);
        let outcome = |ledger: &Ledger, birth| ledger.wait_outcome(&counter(), 7, Heard { index: 900, birth });
        let denied = WaitOutcome::Refused(WaitError::NoMilestone);
        assert_eq!(outcome(&ledger, birth(1)), WaitOutcome::Waiting, "nobody has said yet which one this is");
        ledger.births.begin(birth(2).unwrap());
        assert_eq!(outcome(&ledger, birth(2)), WaitOutcome::Waiting);
        assert_eq!(outcome(&ledger, None), WaitOutcome::Waiting);
        assert_eq!(outcome(&ledger, birth(1)), denied, "it was founded anew");
        ledger.births = ledger.births.ended(LogIndex(1));
        ledger.births.begin(birth(3).unwrap());
        assert_eq!(outcome(&ledger, birth(2)), denied, "it was restored from an image of the first entry");
    }
}
