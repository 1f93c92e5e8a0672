//! A block with a group that does not name its increments, and the increments behind it.

use super::super::{Fate, Ledger};
use super::{Body, Deferred};
use tidemark_types::ids::{ClientId, CounterName, DcId, GroupId, LogIndex};
use tidemark_types::limits::{OFFER_ITEMS_MAX, UNDECIDED_ITEMS_MAX};
use tidemark_wire::msg::{Hello, LedgerCmd, MilestoneSpec, Offer, OfferBody, OfferItem, Place, Policy, Report};

fn counter() -> CounterName {
    CounterName::new("search", b"queries").unwrap()
}

fn group(dc: u16) -> GroupId {
    GroupId { dc: DcId(dc), group: 0, incarnation: 1 }
}

fn items(dc: u16, count: u32) -> OfferBody {
    let item = |idx| OfferItem { delta: 1, session: None, client: ClientId(dc.into()), lane: 0, seq: 1, idx };
    OfferBody::Items((0..count).map(item).collect())
}

fn block(count: u64) -> OfferBody {
    OfferBody::Block { count, delta: 1 }
}

/// A ledger of three groups, and the index of its last entry.
struct Stage(Ledger, u64);

impl Stage {
    /// A milestone at `at` that is armed.
    fn new(at: u64, policy: Policy) -> Stage {
        let mut stage = Stage(Ledger::default(), 0);
        stage.apply(LedgerCmd::Namespace("search".into()));
        for dc in 0..3 {
            let group = group(dc);
            stage.apply(LedgerCmd::Hello(Hello { group, lanes: 1, nonces: vec![1], number: 1, accounts: Vec::new() }));
        }
        stage.define(at, policy);
        (0..3).for_each(|dc| stage.report(dc, 1));
        stage
    }

    fn apply(&mut self, cmd: LedgerCmd) {
        self.1 += 1;
        self.0.apply(LogIndex(self.1), &cmd);
        self.0.check_invariants();
        if self.0.counter(&counter()).is_some_and(|state| state.window().undecided() > 1_000) {
            return;
        }
        // A replica may be replaced by its snapshot at any time.
        let bytes = postcard::to_allocvec(&self.0).unwrap();
        let loaded: Ledger = postcard::from_bytes(&bytes).unwrap();
        assert_eq!(loaded.counter(&counter()), self.0.counter(&counter()));
    }

    fn define(&mut self, at: u64, policy: Policy) {
        let spec = MilestoneSpec { at: vec![at], policy, ..MilestoneSpec::default() };
        self.apply(LedgerCmd::Define { counter: counter(), revision: self.0.revision(&counter()), spec });
    }

    fn report(&mut self, dc: u16, report_no: u64) {
        self.give_back(dc, report_no, 0);
    }

    fn give_back(&mut self, dc: u16, report_no: u64, returned: u64) {
        self.say(dc, report_no, 0, returned);
    }

    fn say(&mut self, dc: u16, report_no: u64, spent: u64, returned: u64) {
        let generation = self.0.counter(&counter()).unwrap().accounts()[&group(dc)].generation;
        let report = Report { report_no, generation, spent, returned, ..Report::first(counter(), 1, group(dc), 1) };
        self.apply(LedgerCmd::Report(report));
    }

    fn grant(&mut self, dc: u16, amount: u64) {
        self.apply(LedgerCmd::Grant { counter: counter(), epoch: 1, group: group(dc), amount, if_awarded: None });
    }

    fn offer_of(&self, dc: u16, first_pos: u64, body: OfferBody) -> Offer {
        Offer { counter: counter(), epoch: 1, group: group(dc), start: 1, first_pos, body }
    }

    fn offer(&mut self, dc: u16, first_pos: u64, body: OfferBody) {
        self.apply(LedgerCmd::Offer(self.offer_of(dc, first_pos, body)));
    }

    /// As many as an offer holds.
    fn fill(&mut self, dc: u16, first_pos: u64) {
        self.offer(dc, first_pos, items(dc, OFFER_ITEMS_MAX as u32));
    }

    fn name(&mut self, dc: u16, first_pos: u64, count: u32) {
        self.apply(LedgerCmd::Detail(self.offer_of(dc, first_pos, items(dc, count))));
    }

    fn revoke(&mut self, dc: u16) {
        let account = &self.0.counter(&counter()).unwrap().accounts()[&group(dc)];
        let generation = account.generation;
        let if_last_report = account.report_no;
        self.apply(LedgerCmd::Revoke { counter: counter(), epoch: 1, group: group(dc), generation, if_last_report });
    }

    fn places(&self, dc: u16) -> Vec<(u64, u64, Place)> {
        let runs = self.0.placed(&counter(), group(dc)).map(|placed| placed.runs).unwrap_or_default();
        runs.iter().map(|run| (run.first_pos, run.count, run.place)).collect()
    }

    /// `certain`, the window's weight, and the deferred weight.
    fn sums(&self) -> (u64, u64, u64) {
        let state = self.0.counter(&counter()).unwrap();
        (state.certain(), state.window().weight(), state.deferred().weight())
    }

    fn winner(&self, at: u64) -> Option<(u16, u64)> {
        let award = &self.0.counter(&counter())?.award_of(at)?.award;
        Some((award.group.dc.0, award.pos))
    }
}

#[test]
fn what_stands_behind_a_block_is_behind_a_timely_milestone_only_if_it_is_without_the_block() {
    let mut stage = Stage::new(10, Policy::Timely);
    stage.grant(2, 2);
    stage.offer(0, 0, block(20));
    assert_eq!(stage.places(0), [(0, 7, Place::Counted)]);
    stage.offer(1, 0, items(1, 3));
    assert_eq!((stage.places(1), stage.sums()), (vec![], (7, 16, 0)));
    // Whatever the outcome of the block, three others stand before these.
    stage.offer(1, 3, items(1, 4));
    assert_eq!(stage.places(1), [(3, 4, Place::Counted)]);
    // Not so the increments that go with the block.
    stage.offer(0, 20, items(0, 50));
    assert_eq!(stage.places(0), [(0, 7, Place::Counted)]);
    stage.give_back(2, 2, 2);
    stage.revoke(0);
    assert_eq!((stage.winner(10), stage.sums()), (Some((1, 0)), (16, 0, 61)));
}

#[test]
fn under_strict_what_stands_behind_a_block_is_behind_the_milestone_and_the_block_is_waited_for() {
    let mut stage = Stage::new(10, Policy::Strict);
    stage.grant(2, 2);
    stage.offer(0, 0, block(20));
    stage.offer(1, 0, items(1, 3));
    assert_eq!(stage.places(1), [(0, 3, Place::Counted)]);
    stage.give_back(2, 2, 2);
    stage.revoke(0);
    assert_eq!((stage.winner(10), stage.sums()), (None, (9, 14, 0)));
}

#[test]
fn a_block_without_names_loses_its_turn_and_takes_one_when_its_group_is_heard_of() {
    for heard in 0..3 {
        let mut stage = Stage::new(10, Policy::Timely);
        stage.offer(0, 0, block(20));
        stage.offer(0, 20, items(0, 2));
        stage.offer(1, 0, items(1, 3));
        stage.revoke(0);
        assert_eq!((stage.winner(10), stage.sums()), (Some((1, 0)), (12, 0, 13)));
        match heard {
            0 => stage.report(0, 2),
            1 => stage.name(0, 9, 1),
            _ => stage.offer(0, 22, items(0, 1)),
        }
        let more = u64::from(heard == 2);
        assert_eq!(stage.sums(), (25 + more, 0, 0));
        let after: u64 = stage.places(0).iter().map(|(_, count, _)| count).sum();
        assert_eq!(after, 22 + more, "each of them has one place");
    }
}

#[test]
fn a_report_from_before_it_is_no_word_of_the_group() {
    let mut stage = Stage::new(10, Policy::Timely);
    stage.report(0, 5);
    stage.offer(0, 0, block(20));
    stage.offer(1, 0, items(1, 3));
    stage.revoke(0);
    stage.report(0, 4);
    stage.offer(0, 0, block(20));
    assert_eq!(stage.sums(), (12, 0, 11));
}

#[test]
fn a_block_stands_again_before_the_next_milestone_and_may_lose_its_turn_again() {
    let mut stage = Stage::new(10, Policy::Timely);
    stage.define(14, Policy::Timely);
    stage.offer(0, 0, block(20));
    stage.offer(1, 0, items(1, 3));
    stage.revoke(0);
    assert_eq!(stage.winner(10), Some((1, 0)));
    stage.report(0, 2);
    assert_eq!(stage.sums(), (13, 10, 0), "one was placed, the next is the milestone");
    stage.offer(2, 0, items(2, 1));
    stage.revoke(0);
    assert_eq!((stage.winner(14), stage.sums()), (Some((2, 0)), (14, 0, 10)));
}

#[test]
fn of_a_group_that_is_declared_lost_what_lost_its_turn_counts() {
    let mut stage = Stage::new(10, Policy::Timely);
    stage.offer(0, 0, block(20));
    stage.offer(0, 20, items(0, 2));
    stage.offer(1, 0, items(1, 3));
    stage.revoke(0);
    assert_eq!(stage.0.counter(&counter()).unwrap().known_of(group(0)), 22);
    let cmd = stage.0.declaration(group(0), true).unwrap();
    stage.apply(cmd);
    assert_eq!(stage.sums(), (25, 0, 0));
}

#[test]
fn what_was_decided_while_a_strict_milestone_stood_keeps_its_side() {
    let mut stage = Stage::new(10, Policy::Strict);
    stage.define(12, Policy::Timely);
    for view in [10, 12] {
        assert_eq!(stage.0.fate(&counter(), view), Fate::Armed);
    }
    stage.grant(2, 2);
    stage.offer(0, 0, block(20));
    stage.offer(1, 0, items(1, 3));
    stage.give_back(2, 2, 2);
    stage.name(0, 9, 1);
    assert_eq!(stage.winner(10), Some((0, 9)));
    // All that is to come is timely, but these were told that they are behind 12.
    stage.revoke(0);
    assert_eq!((stage.winner(12), stage.sums()), (None, (11, 12, 0)));
    stage.name(0, 11, 1);
    assert_eq!((stage.winner(12), stage.sums()), (Some((0, 11)), (23, 0, 0)));
}

#[test]
fn what_was_decided_of_the_group_itself_keeps_its_block_where_it_is() {
    let mut stage = Stage::new(100, Policy::Strict);
    stage.define(108, Policy::Timely);
    stage.grant(2, 1);
    stage.offer(1, 0, items(1, 98));
    assert_eq!(stage.sums(), (98, 0, 0));
    stage.offer(0, 0, block(9));
    stage.offer(1, 98, items(1, 1));
    stage.offer(0, 9, items(0, 2));
    assert_eq!(stage.places(0), [(2, 6, Place::Counted), (9, 2, Place::Counted)]);
    stage.say(2, 2, 1, 0);
    stage.name(0, 0, 1);
    assert_eq!(stage.winner(100), Some((0, 0)));
    // Position 8 is at 108, and 9 and 10 were told that they are behind it.
    stage.revoke(0);
    assert_eq!((stage.winner(108), stage.sums()), (None, (107, 4, 0)));
    stage.name(0, 8, 1);
    assert_eq!((stage.winner(108), stage.sums()), (Some((0, 8)), (111, 0, 0)));
}

#[test]
fn what_is_left_of_a_group_that_was_heard_of_comes_back_when_there_is_room_and_in_order() {
    let mut stage = Stage::new(10, Policy::Timely);
    (0..3).for_each(|n| stage.offer(0, n * 20, block(20)));
    stage.offer(1, 0, items(1, 1));
    stage.revoke(0);
    assert_eq!((stage.winner(10), stage.sums()), (Some((1, 0)), (10, 0, 51)));
    // The window is full: these wait for rights that are out.
    stage.define(200_010, Policy::Timely);
    [2, 3].into_iter().for_each(|report_no| stage.report(2, report_no));
    stage.grant(2, 199_000);
    let offers = UNDECIDED_ITEMS_MAX / OFFER_ITEMS_MAX as u64 + 1;
    let each = OFFER_ITEMS_MAX as u64;
    (0..offers).for_each(|n| stage.fill(1, 1 + n * each));
    stage.report(0, 2);
    assert_eq!(stage.sums().2, 51, "no room");
    stage.give_back(2, 4, 199_000);
    assert_eq!(stage.sums(), (10 + offers * each + 51, 0, 0));
    let numbers: Vec<u64> = stage.places(0).iter().map(|(first, ..)| *first).collect();
    assert!(numbers.is_sorted() && stage.places(0).iter().map(|(_, count, _)| count).sum::<u64>() == 60);
}

#[test]
fn what_is_deferred_again_stands_before_what_is_left() {
    let at = |first| (first, Body::Block { count: 1, delta: 1 });
    let runs = |deferred: &mut Deferred| deferred.take(group(0)).iter().map(|(first, _)| *first).collect::<Vec<_>>();
    let mut deferred = Deferred::default();
    deferred.put(group(0), [at(7), at(9)].into());
    deferred.put(group(0), [at(3), at(5)].into());
    deferred.check_invariants();
    assert_eq!((deferred.weight(), runs(&mut deferred), deferred.weight()), (4, vec![3, 5, 7, 9], 0));
}
