//! The parts of an old era that count in the next, and the parts that do not.

use super::super::{Fate, Ledger};
use super::{ERA_INDEX_GAP, EraError, KnownCounts, OpenMilestones};
use std::collections::BTreeSet;
use std::num::NonZeroU64;
use tidemark_types::ids::{AggregatorId, Birth, ClientId, CounterName, DcId, GroupId, LogIndex};
use tidemark_wire::msg::{Hello, LedgerCmd, MilestoneSpec, Offer, OfferBody, OfferItem, Report};

fn counter() -> CounterName {
    CounterName::new("search", b"queries").unwrap()
}

fn group(incarnation: u32) -> GroupId {
    GroupId { dc: DcId(0), group: 0, incarnation }
}

/// A ledger, and the index of its last entry.
struct Stage(Ledger, u64);

impl Stage {
    fn new() -> Stage {
        let mut stage = Stage(Ledger::default(), 0);
        stage.apply(LedgerCmd::Namespace("search".into()));
        stage.begin(1, vec![5, 20]);
        stage
    }

    fn apply(&mut self, cmd: LedgerCmd) {
        self.1 += 1;
        self.0.apply(LogIndex(self.1), &cmd);
        self.0.check_invariants();
    }

    /// A group greets, milestones are defined, and armed once it has reported.
    fn begin(&mut self, incarnation: u32, at: Vec<u64>) {
        let group = group(incarnation);
        self.apply(LedgerCmd::Hello(Hello { group, lanes: 1, nonces: vec![1], number: 1, accounts: Vec::new() }));
        let spec = MilestoneSpec { at, ..MilestoneSpec::default() };
        self.apply(LedgerCmd::Define { counter: counter(), revision: self.0.revision(&counter()), spec });
        self.apply(LedgerCmd::Report(Report::first(counter(), 1, group, 1)));
    }

    fn hits(&mut self, incarnation: u32, first_pos: u64, count: u32) {
        let item = |idx| OfferItem { delta: 1, session: None, client: ClientId(7), lane: 0, seq: first_pos, idx };
        let body = OfferBody::Items((0..count).map(item).collect());
        let counter = counter();
        let group = group(incarnation);
        self.apply(LedgerCmd::Offer(Offer { counter, epoch: 1, group, start: 1, first_pos, body }));
    }

    fn awarded(&self) -> Vec<u64> {
        self.0.counter(&counter()).unwrap().awards().keys().copied().collect()
    }
}

/// A view's state of one group, in the first generation of the counter.
struct Shown {
    group: GroupId,
    count: u64,
}

impl KnownCounts for Shown {
    fn groups(&self) -> BTreeSet<GroupId> {
        [self.group].into()
    }

    fn count_of(&self, name: &CounterName, generation: u32, group: GroupId) -> u64 {
        if (name, generation, group) == (&counter(), 0, self.group) { self.count } else { 0 }
    }
}

fn view(incarnation: u32, count: u64) -> Shown {
    Shown { group: group(incarnation), count }
}

fn restored(copies: Vec<Ledger>, view: &Shown, open: OpenMilestones) -> Stage {
    let ledger = Ledger::in_new_era(copies, view, open).unwrap();
    ledger.check_invariants();
    let index = ledger.applied().0;
    // The same ledger, read from a snapshot.
    let ledger = postcard::from_bytes(&postcard::to_allocvec(&ledger).unwrap()).unwrap();
    Stage(ledger, index)
}

#[test]
fn what_was_awarded_stays_and_is_never_awarded_again() {
    let mut stage = Stage::new();
    let old = stage.0.clone();
    stage.hits(1, 0, 7);
    assert_eq!(stage.awarded(), [5]);
    // The components are older than the award: the increments before it were counted all the same.
    let mut next = restored(vec![old, stage.0.clone()], &view(1, 3), OpenMilestones::Rearm);
    assert_eq!((next.0.certain(&counter()), next.awarded()), (7, vec![5]));
    assert!(next.0.is_lost(group(1)) && next.0.views().is_empty());
    assert!(next.1 >= stage.1 + ERA_INDEX_GAP, "later than whatever the old era decided");
    assert_eq!(next.0.fate(&counter(), 20), Fate::Armed);
    // Messages of an earlier group are ignored; the new incarnation wins.
    next.hits(1, 7, 30);
    assert_eq!(next.0.certain(&counter()), 7);
    next.begin(2, vec![]);
    next.hits(2, 0, 20);
    assert_eq!((next.awarded(), next.0.certain(&counter())), (vec![5, 20], 27));
    let award = &next.0.counter(&counter()).unwrap().awards()[&20].award;
    assert_eq!((award.first, award.group.incarnation), (20, 2));
    assert_eq!(award.before, [(group(1), 7), (group(2), 12)]);
}

#[test]
fn a_milestone_that_may_have_been_awarded_since_is_withheld() {
    let stage = Stage::new();
    assert_eq!(stage.0.open_milestones(), [(counter(), vec![5, 20], None)]);
    let mut next = restored(vec![stage.0], &view(1, 3), OpenMilestones::Withhold);
    assert_eq!((next.0.fate(&counter(), 5), next.0.fate(&counter(), 20)), (Fate::Passed, Fate::Passed));
    next.begin(2, vec![20, 30]);
    assert_eq!(next.0.fate(&counter(), 20), Fate::Passed, "it is not armed again");
    next.hits(2, 0, 40);
    assert_eq!(next.awarded(), [30]);
}

#[test]
fn what_has_happened_by_then_is_passed_and_a_rule_goes_on_above_it() {
    let mut stage = Stage::new();
    let spec = MilestoneSpec { every: Some(10), ..MilestoneSpec::default() };
    let revision = stage.0.revision(&counter());
    stage.apply(LedgerCmd::Define { counter: counter(), revision, spec });
    let mut next = restored(vec![stage.0], &view(1, 23), OpenMilestones::Rearm);
    assert_eq!((next.0.fate(&counter(), 5), next.0.fate(&counter(), 20)), (Fate::Passed, Fate::Passed));
    assert_eq!(next.0.next_milestone(&counter()), Some(30));
    next.begin(2, vec![]);
    next.hits(2, 0, 7);
    assert_eq!(next.awarded(), [30]);
}

#[test]
fn rights_that_were_outstanding_stand_in_later_certificates() {
    let mut stage = Stage::new();
    stage.apply(LedgerCmd::Grant { counter: counter(), epoch: 1, group: group(1), amount: 4, if_awarded: None });
    let mut next = restored(vec![stage.0], &view(1, 3), OpenMilestones::Rearm);
    assert_eq!((next.0.certain(&counter()), next.0.upper(&counter())), (3, 3), "and none is left");
    next.begin(2, vec![]);
    next.hits(2, 0, 2);
    assert_eq!(next.0.counter(&counter()).unwrap().awards()[&5].written_off, 4);
}

#[test]
fn views_register_anew_whatever_their_starts_were() {
    let mut stage = Stage::new();
    let second = AggregatorId { dc: DcId(0), seat: 1 };
    stage.apply(LedgerCmd::ViewStart { view: second, start: 9 });
    let mut next = restored(vec![stage.0], &view(1, 3), OpenMilestones::Rearm);
    assert_eq!(next.0.view_start(second), None);
    next.apply(LedgerCmd::ViewStart { view: second, start: 3 });
    assert_eq!(next.0.view_start(second), Some(3));
}

#[test]
fn what_nobody_registered_is_lost_too_and_without_a_ledger_there_is_no_era() {
    let stage = Stage::new();
    let next = restored(vec![stage.0], &view(9, 3), OpenMilestones::Rearm);
    assert!(next.0.is_lost(group(9)) && next.0.is_fenced(group(1)));
    assert_eq!(next.0.certain(&counter()), 3);
    let none = Ledger::in_new_era(Vec::new(), &view(9, 3), OpenMilestones::Rearm);
    assert_eq!(none.err(), Some(EraError::NoLedger));
    let last = Ledger { applied: LogIndex(u64::MAX), ..next.0 };
    assert!(matches!(Ledger::in_new_era(vec![last], &view(9, 3), OpenMilestones::Rearm), Err(EraError::Index(_))));
}

#[test]
fn a_restored_ledger_has_a_birth_of_its_own_and_knows_how_far_the_one_before_is() {
    let birth = |number| Birth(NonZeroU64::new(number).unwrap());
    let mut stage = Stage::new();
    stage.apply(LedgerCmd::Birth(birth(7)));
    stage.hits(1, 0, 7);
    let image = stage.0.clone();
    let until = stage.0.applied();
    let mut next = restored(vec![image], &view(1, 3), OpenMilestones::Rearm);
    assert_eq!((next.0.births().current(), next.0.births().until(birth(7))), (None, Some(until)));
    next.apply(LedgerCmd::Birth(birth(8)));
    next.apply(LedgerCmd::Birth(birth(9)));
    let births = next.0.births();
    let applied = next.0.applied();
    assert_eq!(
        (births.current(), births.of(until), births.of(applied)),
        (Some(birth(8)), Some(birth(7)), Some(birth(8)))
    );
}
