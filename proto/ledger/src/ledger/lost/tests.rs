//! Accounts, the window, milestones and certificates when a group is declared lost.

use super::super::{DeclareError, Fate, Ledger};
use tidemark_types::ids::{ClientId, CounterName, DcId, GroupId, LogIndex};
use tidemark_wire::msg::{Hello, LedgerCmd, MilestoneSpec, Offer, OfferBody, OfferItem, Policy, Report};

fn counter() -> CounterName {
    CounterName::new("search", b"queries").unwrap()
}

fn group(dc: u16) -> GroupId {
    GroupId { dc: DcId(dc), group: 0, incarnation: 1 }
}

/// A ledger, and the index of its last entry.
struct Stage(Ledger, u64);

impl Stage {
    /// Groups 0 and 1, and a milestone at `at` that is armed.
    fn new(at: u64, policy: Policy) -> Stage {
        let mut stage = Stage(Ledger::default(), 0);
        stage.apply(LedgerCmd::Namespace("search".into()));
        [0, 1].into_iter().for_each(|dc| stage.greet(group(dc)));
        stage.define(at, policy);
        [0, 1].into_iter().for_each(|dc| stage.report(dc, 0, 0, 1));
        assert_eq!(stage.0.fate(&counter(), at), Fate::Armed);
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

    fn define(&mut self, at: u64, policy: Policy) {
        let spec = MilestoneSpec { at: vec![at], policy, ..MilestoneSpec::default() };
        self.apply(LedgerCmd::Define { counter: counter(), revision: self.0.revision(&counter()), spec });
    }

    fn report(&mut self, dc: u16, base: u64, spent: u64, report_no: u64) {
        self.say(dc, base, spent, 0, report_no);
    }

    /// A group gives back rights that it has not spent.
    fn give_back(&mut self, dc: u16, returned: u64) {
        self.say(dc, 0, 0, returned, 9);
    }

    fn say(&mut self, dc: u16, base: u64, spent: u64, returned: u64, report_no: u64) {
        let report = Report { spent, returned, base, report_no, ..Report::first(counter(), 1, group(dc), 1) };
        self.apply(LedgerCmd::Report(report));
    }

    fn grant(&mut self, dc: u16, amount: u64) {
        self.apply(LedgerCmd::Grant { counter: counter(), epoch: 1, group: group(dc), amount, if_awarded: None });
    }

    fn offer(&mut self, dc: u16, first_pos: u64, body: OfferBody) {
        self.apply(LedgerCmd::Offer(Offer {
            counter: counter(),
            epoch: 1,
            group: group(dc),
            start: 1,
            first_pos,
            body,
        }));
    }

    fn hits(&mut self, dc: u16, first_pos: u64, count: u32) {
        let item = |idx| OfferItem { delta: 1, session: None, client: ClientId(dc.into()), lane: 0, seq: 1, idx };
        self.offer(dc, first_pos, OfferBody::Items((0..count).map(item).collect()));
    }

    fn declare(&mut self, dc: u16) {
        let cmd = self.0.declaration(group(dc), false).unwrap();
        self.apply(cmd);
    }

    fn remains(&mut self, dc: u16, component: u64) {
        self.apply(LedgerCmd::Remains { counter: counter(), epoch: 1, group: group(dc), component });
    }

    /// `certain`, `out`, the written-off weight and the weight without a place yet.
    fn sums(&self) -> (u64, u64, u64, u64) {
        let state = self.0.counter(&counter()).unwrap();
        (state.certain(), state.out(), state.losses().written_off(), state.losses().surplus())
    }

    fn awarded(&self, at: u64) -> Option<(DcId, u64, u64)> {
        let awarded = self.0.counter(&counter())?.award_of(at)?;
        Some((awarded.award.group.dc, awarded.award.first, awarded.written_off))
    }
}

#[test]
fn a_strict_milestone_is_awarded_once_the_group_that_holds_its_rights_is_declared_lost() {
    let mut stage = Stage::new(10, Policy::Strict);
    stage.grant(1, 5);
    stage.report(1, 0, 2, 2);
    stage.hits(0, 0, 9);
    assert_eq!((stage.sums(), stage.awarded(10)), ((6, 3, 0, 0), None), "it may have counted three more");
    stage.declare(1);
    assert_eq!(stage.awarded(10), Some((DcId(0), 10, 3)));
    assert_eq!(stage.sums(), (11, 0, 3, 0));
    let state = stage.0.counter(&counter()).unwrap();
    let award = &state.awards()[&10];
    assert_eq!(award.signed_bytes(), [tidemark_wire::wire::encode(&award.award), vec![3]].concat());
    assert_eq!(award.award.signed_bytes(0), tidemark_wire::wire::encode(&award.award));
    // Certificates from then on say so too, those from before do not.
    stage.define(12, Policy::Strict);
    stage.hits(0, 9, 2);
    assert_eq!(stage.awarded(12), Some((DcId(0), 12, 3)));
}

#[test]
fn nothing_that_a_lost_group_says_late_is_heard_and_declaring_it_again_changes_nothing() {
    let mut stage = Stage::new(100, Policy::Strict);
    stage.grant(1, 20);
    stage.report(1, 0, 5, 2);
    stage.declare(1);
    let sums = stage.sums();
    assert_eq!(sums, (5, 0, 15, 0));
    stage.report(1, 0, 12, 3);
    stage.hits(1, 0, 4);
    stage.grant(1, 7);
    stage.greet(group(1));
    stage.apply(LedgerCmd::DeclareLost { group: group(1), forced: true, heard: 0 });
    assert_eq!(stage.sums(), sums);
    assert!(stage.0.is_fenced(group(1)) && stage.0.is_lost(group(1)));
    assert_eq!(stage.0.declaration(group(1), true), Err(DeclareError::Lost(group(1))));
    assert_eq!(stage.0.declaration(group(7), true), Err(DeclareError::Unknown(group(7))));
    // The incarnation that follows it has an account of its own.
    let next = GroupId { incarnation: 2, ..group(1) };
    stage.greet(next);
    assert_eq!(stage.0.confirmed(next).map(|start| start.number), Some(1));
    assert!(stage.0.account(&counter(), next).is_some());
}

#[test]
fn a_declaration_is_void_once_the_group_was_heard_of_again_unless_it_is_forced() {
    let mut stage = Stage::new(100, Policy::Strict);
    let cmd = stage.0.declaration(group(1), false).unwrap();
    let forced = stage.0.declaration(group(1), true).unwrap();
    stage.report(1, 0, 0, 2);
    stage.apply(cmd);
    assert!(!stage.0.is_lost(group(1)));
    stage.apply(forced);
    assert!(stage.0.is_lost(group(1)));
}

#[test]
fn what_views_show_of_a_lost_group_is_counted_up_to_the_next_milestone_and_the_rest_behind_it() {
    let mut stage = Stage::new(10, Policy::Strict);
    stage.grant(1, 4);
    stage.declare(1);
    stage.remains(1, 3);
    assert_eq!(stage.sums(), (3, 0, 4, 0));
    stage.remains(1, 2);
    stage.remains(1, 3);
    assert_eq!(stage.sums(), (3, 0, 4, 0), "views that lag behind, and copies, say nothing new");
    stage.remains(1, 30);
    assert_eq!(stage.sums(), (9, 0, 4, 21));
    assert_eq!(stage.0.counter(&counter()).unwrap().known_of(group(1)), 30);
    stage.remains(0, 1_000);
    assert_eq!(stage.sums(), (9, 0, 4, 21), "a group that is not lost speaks for itself");
    stage.hits(0, 0, 1);
    assert_eq!((stage.awarded(10), stage.sums()), (Some((DcId(0), 10, 4)), (31, 0, 4, 0)));
}

#[test]
fn what_was_offered_by_name_keeps_its_turn_and_a_block_is_counted_without_names() {
    let mut stage = Stage::new(10, Policy::Strict);
    stage.grant(0, 3);
    stage.hits(1, 0, 8);
    stage.offer(1, 8, OfferBody::Block { count: 5, delta: 1 });
    stage.hits(0, 0, 1);
    assert_eq!(stage.sums().1, 3);
    stage.declare(1);
    assert_eq!(stage.sums().3, 2, "of the block three were decided, and nobody is asked who the others are");
    stage.report(0, 0, 3, 2);
    // 3 certified, then the eight of the lost group: the seventh is the tenth, and it is named.
    assert_eq!(stage.awarded(10), Some((DcId(1), 10, 0)));
    assert_eq!(stage.sums(), (17, 0, 0, 0));
    assert_eq!(stage.0.counter(&counter()).unwrap().known_of(group(1)), 13);
}

#[test]
fn what_was_decided_to_stand_behind_a_lost_block_does_not_reach_the_milestone() {
    let mut stage = Stage::new(10, Policy::Strict);
    stage.grant(0, 3);
    stage.offer(1, 0, OfferBody::Block { count: 13, delta: 1 });
    assert_eq!(stage.sums(), (6, 3, 0, 0));
    stage.declare(1);
    assert_eq!(stage.sums(), (6, 3, 0, 7), "four had no place, three were behind the tenth");
    stage.give_back(0, 3);
    assert_eq!(stage.sums(), (9, 0, 0, 4));
    stage.hits(0, 0, 1);
    assert_eq!((stage.awarded(10), stage.sums()), (Some((DcId(0), 10, 0)), (14, 0, 0, 0)));

    let mut stage = Stage::new(10, Policy::Strict);
    stage.grant(0, 3);
    stage.hits(1, 0, 8);
    stage.offer(1, 8, OfferBody::Block { count: 5, delta: 1 });
    stage.hits(0, 0, 1);
    stage.declare(1);
    stage.give_back(0, 3);
    assert_eq!(stage.sums(), (9, 0, 0, 5));
    stage.hits(0, 1, 1);
    let said =
        "three of the block were answered as counted, and stand behind one that came later: its certificate says so";
    assert_eq!((stage.awarded(10), stage.sums()), (Some((DcId(0), 10, 3)), (15, 0, 0, 0)), "{said}");
}

#[test]
fn a_milestone_that_is_being_armed_waits_for_what_views_know_of_the_lost_group() {
    let mut stage = Stage(Ledger::default(), 0);
    stage.apply(LedgerCmd::Namespace("search".into()));
    [0, 1].into_iter().for_each(|dc| stage.greet(group(dc)));
    stage.apply(LedgerCmd::View(DcId(0).into()));
    stage.define(1_000, Policy::Strict);
    stage.report(0, 400, 0, 1);
    let answer = stage.0.awaiting_view(DcId(0).into()).remove(0).answer(DcId(0).into(), true);
    stage.apply(answer.clone());
    assert_eq!(stage.0.fate(&counter(), 1_000), Fate::Arming, "group 1 has not said what it counted");
    stage.declare(1);
    stage.apply(answer);
    assert_eq!(stage.0.fate(&counter(), 1_000), Fate::Arming, "an answer from before the loss does not count");
    stage.remains(1, 590);
    let answer = stage.0.awaiting_view(DcId(0).into()).remove(0).answer(DcId(0).into(), true);
    stage.apply(answer);
    assert_eq!((stage.0.fate(&counter(), 1_000), stage.sums().0), (Fate::Armed, 990));
    // A counter that is guarded only now takes the lost group's remains in the same way.
    let other = CounterName::new("search", b"other").unwrap();
    let spec = MilestoneSpec { at: vec![50], ..MilestoneSpec::default() };
    stage.apply(LedgerCmd::Define { counter: other.clone(), revision: 0, spec });
    stage.apply(LedgerCmd::Remains { counter: other.clone(), epoch: 1, group: group(1), component: 45 });
    assert_eq!(stage.0.counter(&other).unwrap().certain(), 45);
}

#[test]
fn what_a_lost_group_certified_before_a_revocation_is_written_off_and_holds_up_nothing() {
    let mut stage = Stage::new(10, Policy::Timely);
    stage.report(1, 0, 0, 2);
    stage.grant(1, 6);
    stage.hits(0, 0, 5);
    stage.apply(LedgerCmd::Revoke { counter: counter(), epoch: 1, group: group(1), generation: 0, if_last_report: 2 });
    assert_eq!(stage.sums(), (5, 0, 0, 0));
    stage.define(20, Policy::Strict);
    stage.declare(1);
    assert_eq!(stage.sums(), (5, 0, 6, 0));
    assert_eq!(stage.0.fate(&counter(), 20), Fate::Armed, "a strict milestone waits for no late increments of it");
}

#[test]
fn a_snapshot_keeps_what_is_lost() {
    let mut stage = Stage::new(10, Policy::Strict);
    stage.grant(1, 5);
    stage.declare(1);
    stage.hits(0, 0, 10);
    stage.remains(1, 3);
    let read: Ledger = postcard::from_bytes(&postcard::to_allocvec(&stage.0).unwrap()).unwrap();
    assert_eq!(read.counter(&counter()), stage.0.counter(&counter()));
    assert_eq!(read.counter(&counter()).unwrap().award_of(10).unwrap().written_off, 5);
    assert!(read.is_lost(group(1)) && !read.is_lost(group(0)));
}
