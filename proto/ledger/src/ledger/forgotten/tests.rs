//! Groups, views and milestones when a data centre is forgotten.

use super::super::{Fate, ForgetError, Ledger, SetAsideError};
use tidemark_types::ids::{AggregatorId, CounterName, DcId, GroupId, LogIndex};
use tidemark_wire::msg::{Hello, LedgerCmd, MilestoneSpec, Offer, OfferBody, OfferItem, Report};

const MILESTONE: u64 = 10;

fn counter() -> CounterName {
    CounterName::new("search", b"queries").unwrap()
}

fn group(dc: u16, group: u16) -> GroupId {
    GroupId { dc: DcId(dc), group, incarnation: 1 }
}

/// A ledger, and the index of its last entry.
struct Stage(Ledger, u64);

impl Stage {
    /// Two data centres with two groups and a view each; a milestone that waits for everybody.
    fn new() -> Stage {
        let mut stage = Stage(Ledger::default(), 0);
        stage.apply(LedgerCmd::Namespace("search".into()));
        for dc in [0, 1] {
            stage.apply(LedgerCmd::View(DcId(dc).into()));
            [0, 1].into_iter().for_each(|number| stage.greet(group(dc, number)));
        }
        let spec = MilestoneSpec { at: vec![MILESTONE], ..MilestoneSpec::default() };
        stage.apply(LedgerCmd::Define { counter: counter(), revision: 0, spec });
        stage
    }

    fn armed() -> Stage {
        let mut stage = Stage::new();
        (0..4).for_each(|i| stage.report(group(i / 2, i % 2), 1, 0));
        [0, 1].into_iter().for_each(|dc| stage.acknowledge(dc));
        assert_eq!(stage.fate(), Fate::Armed);
        stage
    }

    fn apply(&mut self, cmd: LedgerCmd) {
        self.1 += 1;
        self.0.apply(LogIndex(self.1), &cmd);
        self.0.check_invariants();
    }

    fn greet(&mut self, group: GroupId) {
        self.apply(LedgerCmd::Hello(Hello { group, lanes: 1, nonces: vec![1], number: 1, accounts: Vec::new() }));
    }

    fn report(&mut self, group: GroupId, report_no: u64, spent: u64) {
        self.apply(LedgerCmd::Report(Report { spent, report_no, ..Report::first(counter(), 1, group, 1) }));
    }

    fn acknowledge(&mut self, dc: u16) {
        for awaiting in self.0.awaiting_view(DcId(dc).into()) {
            self.apply(awaiting.answer(DcId(dc).into(), true));
        }
    }

    fn grant(&mut self, group: GroupId, amount: u64) {
        self.apply(LedgerCmd::Grant { counter: counter(), epoch: 1, group, amount, if_awarded: None });
    }

    fn hits(&mut self, count: u32) {
        let item =
            |idx| OfferItem { delta: 1, session: None, client: tidemark_types::ids::ClientId(7), lane: 0, seq: 1, idx };
        let body = OfferBody::Items((0..count).map(item).collect());
        self.apply(LedgerCmd::Offer(Offer {
            counter: counter(),
            epoch: 1,
            group: group(0, 0),
            start: 1,
            first_pos: 0,
            body,
        }));
    }

    fn fate(&self) -> Fate<'_> {
        self.0.fate(&counter(), MILESTONE)
    }

    fn forget(&mut self, dc: u16) {
        let cmd = self.0.forgetting(DcId(dc), false).unwrap();
        self.apply(cmd);
    }
}

#[test]
fn a_milestone_is_armed_and_awarded_though_a_data_centre_never_returns() {
    let mut stage = Stage::new();
    [group(0, 0), group(0, 1), group(1, 1)].into_iter().for_each(|of| stage.report(of, 1, 0));
    stage.acknowledge(0);
    assert_eq!(stage.fate(), Fate::Arming, "it waits for a base and a view of the other");
    stage.forget(1);
    // The known counts of the lost groups come from the remaining view.
    stage.acknowledge(0);
    assert_eq!((stage.fate(), stage.0.views().len()), (Fate::Armed, 1));
    stage.hits(10);
    assert!(matches!(stage.fate(), Fate::Awarded(_)));
}

#[test]
fn all_rights_of_a_forgotten_data_centre_are_written_off() {
    let mut stage = Stage::armed();
    stage.grant(group(1, 0), 3);
    stage.grant(group(1, 1), 4);
    stage.report(group(1, 1), 2, 1);
    stage.hits(8);
    assert_eq!(stage.fate(), Fate::Armed, "six may have been counted unseen");
    stage.forget(1);
    let Fate::Armed = stage.fate() else { panic!("nine are known, and no right is left") };
    let state = stage.0.counter(&counter()).unwrap();
    assert_eq!((state.certain(), state.out(), state.losses().written_off()), (9, 0, 6));
}

#[test]
fn nothing_of_a_forgotten_data_centre_is_heard_or_registered_again() {
    let mut stage = Stage::armed();
    stage.grant(group(1, 0), 3);
    stage.forget(1);
    let before = postcard::to_allocvec(&stage.0).unwrap();
    stage.report(group(1, 0), 2, 3);
    stage.greet(GroupId { incarnation: 2, ..group(1, 0) });
    stage.apply(LedgerCmd::View(DcId(1).into()));
    let mut after = stage.0.clone();
    assert_eq!(after.groups().len(), 4);
    assert!(after.is_fenced(group(1, 0)) && after.is_lost(group(1, 1)) && !after.views().contains(&DcId(1).into()));
    after.replace(postcard::from_bytes(&before).unwrap());
    assert!(after.is_forgotten(DcId(1)), "a snapshot has it");
    assert_eq!(stage.0.forgetting(DcId(1), true), Err(ForgetError::Forgotten(DcId(1))));
}

#[test]
fn both_views_of_a_pair_go_with_their_data_centre_and_one_that_was_set_aside_does_not_come_back() {
    let mut stage = Stage::new();
    let first = AggregatorId::from(DcId(1));
    let second = AggregatorId { dc: DcId(1), seat: 1 };
    for view in [first, second] {
        stage.apply(LedgerCmd::ViewStart { view, start: 5 });
    }
    let aside = stage.0.setting_aside(second).unwrap();
    for set_aside in [false, true] {
        let mut stage = Stage(stage.0.clone(), stage.1);
        if set_aside {
            stage.apply(aside.clone());
        }
        [0, 1].into_iter().for_each(|number| stage.report(group(0, number), 1, 0));
        stage.acknowledge(0);
        assert_eq!(stage.fate(), Fate::Arming);
        stage.forget(1);
        stage.acknowledge(0);
        assert_eq!(stage.fate(), Fate::Armed, "nothing of the pair is waited for");
        assert_eq!(stage.0.views().iter().copied().collect::<Vec<_>>(), [AggregatorId::from(DcId(0))]);
        for view in [first, second] {
            stage.apply(LedgerCmd::ViewStart { view, start: 6 });
            stage.apply(LedgerCmd::View(view));
            assert_eq!((stage.0.views().contains(&view), stage.0.view_start(view)), (false, None));
            assert_eq!(stage.0.setting_aside(view), Err(SetAsideError::Unknown));
        }
        assert_eq!(stage.0.forgetting(DcId(0), true), Err(ForgetError::Last(DcId(0))));
    }
}

#[test]
fn the_last_data_centre_with_views_stays_also_when_it_has_a_pair() {
    let mut stage = Stage::new();
    stage.apply(LedgerCmd::ViewStart { view: AggregatorId { dc: DcId(0), seat: 1 }, start: 5 });
    stage.forget(1);
    assert_eq!(stage.0.views().len(), 2);
    assert_eq!(stage.0.forgetting(DcId(0), true), Err(ForgetError::Last(DcId(0))));
}

#[test]
fn a_decision_is_void_once_the_data_centre_was_heard_of_again_unless_it_is_forced() {
    let mut stage = Stage::armed();
    let decided = stage.0.forgetting(DcId(1), false).unwrap();
    stage.report(group(1, 1), 2, 0);
    stage.apply(decided);
    assert!(!stage.0.is_forgotten(DcId(1)));
    let forced = stage.0.forgetting(DcId(1), true).unwrap();
    stage.report(group(1, 1), 3, 0);
    stage.apply(forced.clone());
    assert!(stage.0.is_forgotten(DcId(1)));
    stage.apply(forced);
    assert_eq!(stage.0.forgetting(DcId(0), true), Err(ForgetError::Last(DcId(0))));
    stage.apply(LedgerCmd::Forget { dc: DcId(0), forced: true, heard: 0 });
    assert!(!stage.0.is_forgotten(DcId(0)), "somebody has to show what is counted");
    assert_eq!(stage.0.forgetting(DcId(999), true), Err(ForgetError::Unknown(DcId(999))));
}
