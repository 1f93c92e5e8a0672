//! Messages that come late, twice, or from an attacker: no group is fenced for them, nothing panics, nothing waits for ever, and
//! no view goes back.

use proptest::prelude::*;
use std::collections::BTreeMap;
use tidemark_proto::aggregator::{AggregatorConfig, AggregatorCore, Input, Output};
use tidemark_proto::ids::{ClientId, CounterName, DcId, GroupId, LogIndex, SessionId, Start};
use tidemark_proto::ledger::{DefineError, Ledger};
use tidemark_proto::limits::*;
use tidemark_proto::msg::*;
use tidemark_proto::shards::ShardId;
use tidemark_proto::time::{Span, Time, WallMs};
use tidemark_proto::wire;

fn counter() -> CounterName {
    CounterName::new("t", b"k").unwrap()
}

fn group(number: u16) -> GroupId {
    GroupId { dc: DcId(0), group: number, incarnation: 1 }
}

fn hello(number: u16, nonces: &[u64]) -> LedgerCmd {
    LedgerCmd::Hello(Hello {
        group: group(number),
        lanes: 64,
        nonces: nonces.to_vec(),
        number: nonces.len() as u64,
        accounts: Vec::new(),
    })
}

fn define(at: &[u64]) -> LedgerCmd {
    define_on(0, at)
}

fn define_on(revision: u64, at: &[u64]) -> LedgerCmd {
    let spec = MilestoneSpec { at: at.to_vec(), ..MilestoneSpec::default() };
    LedgerCmd::Define { counter: counter(), revision, spec }
}

fn disarm_on(revision: u64, at: Option<u64>) -> LedgerCmd {
    LedgerCmd::Disarm { counter: counter(), revision, at }
}

fn report(number: u16, base: u64, report_no: u64) -> LedgerCmd {
    LedgerCmd::Report(Report { base, report_no, ..Report::first(counter(), 1, group(number), 1) })
}

fn offer(number: u16, first_pos: u64, body: OfferBody) -> LedgerCmd {
    LedgerCmd::Offer(Offer { counter: counter(), epoch: 1, group: group(number), start: 1, first_pos, body })
}

fn view_ack(dc: u16, at: u64, arming: u64) -> LedgerCmd {
    LedgerCmd::ViewAck { counter: counter(), epoch: 1, at, arming, view: DcId(dc).into(), shown_below: true }
}

struct Log {
    ledger: Ledger,
    index: u64,
}

impl Log {
    fn new(cmds: &[LedgerCmd]) -> Log {
        let mut log = Log { ledger: Ledger::default(), index: 0 };
        log.apply(&[LedgerCmd::Namespace("t".into())]);
        log.apply(cmds);
        log
    }

    /// All in one entry.
    fn apply_together(&mut self, cmds: &[LedgerCmd]) {
        self.index += 1;
        cmds.iter().for_each(|cmd| self.ledger.apply(LogIndex(self.index), cmd));
        self.ledger.check_invariants();
    }

    fn apply(&mut self, cmds: &[LedgerCmd]) {
        for cmd in cmds {
            self.index += 1;
            self.ledger.apply(LogIndex(self.index), cmd);
            self.ledger.check_invariants();
        }
    }
}

/// An aggregator with its disk.
struct Dc {
    core: AggregatorCore,
    config: AggregatorConfig,
    rows: BTreeMap<Vec<u8>, Vec<u8>>,
    said: Vec<LedgerCmd>,
    told: Vec<ToGroup>,
    now: Time,
    /// Rows that are on their way to the disk.
    unpersisted: Vec<Vec<(Vec<u8>, Vec<u8>)>>,
    hold: bool,
}

impl Dc {
    fn new(leader: u16) -> Dc {
        let config = AggregatorConfig::new(DcId(0), 1);
        let core = AggregatorCore::new(config.clone());
        let (rows, said, told, unpersisted) = Default::default();
        let mut dc = Dc { core, config, rows, said, told, now: Time(1), unpersisted, hold: false };
        dc.input(Input::Leader(Some((DcId(leader).into(), 1))), &Ledger::default());
        dc
    }

    fn input(&mut self, input: Input, ledger: &Ledger) {
        self.core.handle(self.now, input, ledger);
        self.drain(ledger);
    }

    fn drain(&mut self, ledger: &Ledger) {
        while let Some(output) = self.core.poll_output() {
            match output {
                Output::Persist { rows, .. } if self.hold => self.unpersisted.push(rows),
                Output::Persist { rows, .. } => {
                    self.rows.extend(rows);
                    self.core.handle(self.now, Input::Persisted { shard: ShardId::FIRST }, ledger);
                }
                Output::Peer { msg: PeerMsg::Propose(cmds), .. } | Output::Propose(cmds) => self.said.extend(cmds),
                Output::Group { msg: ForGroup::Ledger(message), .. } => self.told.push(message),
                _ => {}
            }
        }
    }

    fn pass(&mut self, span: Span, ledger: &Ledger) {
        let end = self.now + span;
        while let Some(at) = self.core.poll_timeout().filter(|&at| at <= end) {
            self.now = self.now.max(at) + Span(1);
            self.input(Input::Tick, ledger);
        }
        self.now = end;
    }

    fn catch_up(&mut self, log: &mut Log) {
        let changes = log.ledger.take_changes();
        self.input(Input::Ledger(changes), &log.ledger);
        self.pass(Span::from_millis(50), &log.ledger);
    }

    fn persisted(&mut self, ledger: &Ledger) {
        for rows in std::mem::take(&mut self.unpersisted) {
            self.rows.extend(rows);
        }
        self.core.handle(self.now, Input::Persisted { shard: ShardId::FIRST }, ledger);
        self.drain(ledger);
    }

    fn restart(&mut self) {
        self.config.epoch += 1;
        self.core = AggregatorCore::recover(self.config.clone(), self.rows.clone()).unwrap();
        self.said.clear();
    }

    /// The group of this data centre has counted so much.
    fn feed(&mut self, value: u64, ledger: &Ledger) {
        self.input(Input::GroupUp { group: group(0) }, ledger);
        let chunk = FeedChunk {
            group: group(0),
            start: Start { number: 1, nonce: 1 },
            base: LogIndex(0),
            upto: LogIndex(0),
            walk: None,
            applied: LogIndex(9),
            first_slot: 0,
            cells: vec![counter().total()],
            components: vec![(0, 0, value)],
            ..FeedChunk::default()
        };
        self.input(Input::Group { group: group(0), msg: FromGroup::Feed(chunk) }, ledger);
    }

    fn shown(&self, ledger: &Ledger) -> u64 {
        self.core.read(&counter(), ledger).up
    }

    fn has_acked(&self, at: u64) -> bool {
        self.said.iter().any(|cmd| matches!(cmd, LedgerCmd::ViewAck { at: a, .. } if *a == at))
    }
}

#[test]
fn a_late_greeting_of_an_earlier_start_fences_nobody() {
    let mut log = Log::new(&[hello(0, &[1]), hello(0, &[1, 2, 3])]);
    log.apply(&[hello(0, &[1]), hello(0, &[1, 2])]);
    assert!(!log.ledger.is_fenced(group(0)));
    assert_eq!(log.ledger.confirmed(group(0)), Some(Start { number: 3, nonce: 3 }));
    log.apply(&[hello(0, &[1, 4])]);
    assert!(log.ledger.is_fenced(group(0)), "a copy of the disk draws a start of its own");
}

#[test]
fn no_weight_that_groups_may_report_is_too_much_for_the_ledger() {
    let groups: Vec<LedgerCmd> = (0..8).map(|number| hello(number, &[1])).collect();
    let mut log = Log::new(&groups);
    log.apply(&[define(&[1000])]);
    let bases: Vec<LedgerCmd> = (0..8).map(|number| report(number, 1 << 62, 1)).collect();
    log.apply(&bases);
    let state = log.ledger.counter(&counter()).unwrap();
    assert!(state.is_settled(1000), "passed long ago");
    for number in 0..8 {
        let grant =
            LedgerCmd::Grant { counter: counter(), epoch: 1, group: group(number), amount: u64::MAX, if_awarded: None };
        log.apply(&[grant]);
    }
    assert!(log.ledger.upper(&counter()) >= 1 << 62);
}

#[test]
fn no_weight_that_groups_may_offer_is_too_much_for_the_ledger() {
    let mut log = Log::new(&[hello(0, &[1]), hello(1, &[1]), define(&[1000, 1 << 61])]);
    log.apply(&[report(0, 0, 1), report(1, 0, 1)]);
    log.apply(&[LedgerCmd::Grant { counter: counter(), epoch: 1, group: group(1), amount: 900, if_awarded: None }]);
    let block = || OfferBody::Block { count: 1 << 20, delta: 1 << 40 };
    (0..40).for_each(|i| log.apply(&[offer(0, i << 20, block())]));
    log.apply(&[disarm_on(1, Some(1000)), disarm_on(2, Some(1 << 61))]);
    for _ in 0..40 {
        let next = log.ledger.account(&counter(), group(0)).unwrap().next_pos;
        log.apply(&[offer(0, next, block())]);
    }
    assert!(log.ledger.certain(&counter()) >= 1 << 62);
    let spec = MilestoneSpec { every: Some(1 << 62), ..MilestoneSpec::default() };
    log.apply(&[LedgerCmd::Define { counter: counter(), revision: 3, spec }]);
    let next = log.ledger.account(&counter(), group(0)).unwrap().next_pos;
    log.apply(&[offer(0, next, block())]);
}

#[test]
fn rights_ride_in_the_entry_that_awards_and_in_no_other() {
    let mut log = Log::new(&[hello(0, &[1]), hello(1, &[1]), define(&[3, 1000]), report(0, 0, 1), report(1, 0, 1)]);
    let item = OfferItem { delta: 1, session: None, client: ClientId(1), lane: 1, seq: 9, idx: 2 };
    let items = |first_pos, count| offer(0, first_pos, OfferBody::Items(vec![item; count]));
    let rider = |number| LedgerCmd::Grant {
        counter: counter(),
        epoch: 1,
        group: group(number),
        amount: 50,
        if_awarded: Some(3),
    };
    let out = |log: &Log| log.ledger.counter(&counter()).unwrap().out();
    log.apply_together(&[items(0, 2), rider(0), rider(1)]);
    assert_eq!(out(&log), 0, "the second is no milestone");
    log.apply_together(&[items(2, 1), rider(0), rider(1), rider(0)]);
    assert!(log.ledger.counter(&counter()).unwrap().is_awarded(3));
    assert_eq!(out(&log), 100, "once for each, though two proposals share the entry");
    log.apply_together(&[items(3, 1), rider(0), rider(1)]);
    assert_eq!(out(&log), 100, "this one was under way when the one before it awarded");
}

#[test]
fn a_promise_outlives_the_view_for_as_long_as_its_milestone_is_being_armed() {
    let mut log = Log::new(&[LedgerCmd::View(DcId(0).into()), LedgerCmd::View(DcId(1).into()), define(&[1000])]);
    let mut dc = Dc::new(1);
    dc.catch_up(&mut log);
    assert!(dc.has_acked(1000));
    dc.restart();
    dc.feed(1003, &log.ledger);
    assert_eq!(dc.shown(&log.ledger), 999, "promised, and not yet applied by the ledger");
    log.apply(&[view_ack(0, 1000, 1)]);
    dc.restart();
    dc.feed(1003, &log.ledger);
    assert_eq!(dc.shown(&log.ledger), 999, "promised, and the other view has not answered");
    log.apply(&[disarm_on(1, Some(1000))]);
    assert_eq!(dc.shown(&log.ledger), 1003, "gone, also when the view was not told of the change");
}

#[test]
fn a_promise_that_was_dropped_does_not_come_back_with_the_disk() {
    let mut log = Log::new(&[LedgerCmd::View(DcId(0).into()), LedgerCmd::View(DcId(1).into()), define(&[1000])]);
    let mut dc = Dc::new(1);
    dc.feed(1, &log.ledger);
    dc.catch_up(&mut log);
    log.apply(&[view_ack(0, 1000, 1), disarm_on(1, Some(1000))]);
    dc.catch_up(&mut log);
    dc.feed(1003, &log.ledger);
    dc.pass(Span::from_secs(5), &log.ledger);
    assert_eq!(dc.shown(&log.ledger), 1003);
    dc.restart();
    assert_eq!(dc.shown(&log.ledger), 1003, "a view never goes back");
    log.apply(&[define_on(2, &[1000])]);
    dc.catch_up(&mut log);
    let promised = |cmd: &LedgerCmd| matches!(cmd, LedgerCmd::ViewAck { shown_below: true, .. });
    assert!(!dc.said.iter().any(promised), "it has shown more");
}

#[test]
fn each_promise_is_durable_before_the_ledger_hears_of_it() {
    let mut log = Log::new(&[LedgerCmd::View(DcId(0).into()), LedgerCmd::View(DcId(1).into()), define(&[500])]);
    let mut dc = Dc::new(1);
    dc.hold = true;
    dc.catch_up(&mut log);
    assert!(!dc.has_acked(500) && !dc.unpersisted.is_empty());
    log.apply(&[define_on(1, &[1000])]);
    dc.catch_up(&mut log);
    dc.persisted(&log.ledger);
    dc.pass(Span::from_millis(50), &log.ledger);
    assert!(!dc.has_acked(1000), "what was persisted does not hold it");
    dc.persisted(&log.ledger);
    dc.pass(Span::from_millis(50), &log.ledger);
    assert!(dc.has_acked(500) && dc.has_acked(1000));
    log.apply(&[view_ack(0, 500, 1), view_ack(1, 500, 1), view_ack(0, 1000, 2), disarm_on(2, Some(500))]);
    dc.restart();
    dc.feed(1003, &log.ledger);
    assert_eq!(dc.shown(&log.ledger), 999, "the second promise outlives the view too");
}

#[test]
fn the_items_of_a_block_are_asked_for_until_they_are_there() {
    let mut log = Log::new(&[hello(0, &[1]), define(&[10])]);
    log.apply(&[report(0, 0, 1)]);
    let mut dc = Dc::new(1);
    dc.input(Input::GroupUp { group: group(0) }, &log.ledger);
    log.apply(&[offer(0, 0, OfferBody::Block { count: 5_000, delta: 1 })]);
    dc.catch_up(&mut log);
    let asks = |message: &ToGroup| matches!(message, ToGroup::Placed(Placed { need_items: Some(_), .. }));
    assert!(dc.told.iter().any(asks));
    dc.told.clear();
    dc.pass(Span::from_secs(5), &log.ledger);
    assert!(dc.told.iter().any(asks), "the answer may have been lost, and nobody else has anything to say");
}

/// A leader and a group that offers increments of one weight, a hundred at a time.
struct Offering {
    log: Log,
    dc: Dc,
    next: u64,
}

impl Offering {
    fn before(milestone: u64) -> Offering {
        let mut log = Log::new(&[hello(0, &[1]), define(&[milestone]), report(0, 0, 1)]);
        let mut dc = Dc::new(0);
        dc.input(Input::GroupUp { group: group(0) }, &log.ledger);
        dc.catch_up(&mut log);
        Offering { log, dc, next: 0 }
    }

    /// The command that the leader puts into the log for the next hundred.
    fn offer(&mut self, delta: u64) -> LedgerCmd {
        let item = |idx| OfferItem { delta, session: None, client: ClientId(7), lane: 0, seq: 1, idx };
        let items = (self.next as u32..self.next as u32 + 100).map(item).collect();
        let LedgerCmd::Offer(offer) = offer(0, self.next, OfferBody::Items(items)) else { unreachable!() };
        self.next += 100;
        self.dc.said.clear();
        self.dc.input(Input::Group { group: group(0), msg: FromGroup::Offer(offer) }, &self.log.ledger);
        self.dc.pass(Span::from_millis(50), &self.log.ledger);
        self.dc.said.iter().find(|cmd| matches!(cmd, LedgerCmd::Offer(_))).unwrap().clone()
    }
}

fn is_block(cmd: &LedgerCmd) -> bool {
    matches!(cmd, LedgerCmd::Offer(Offer { body: OfferBody::Block { count: 100, delta: 1 }, .. }))
}

#[test]
fn increments_that_cannot_be_a_milestone_go_into_the_log_without_identities() {
    assert!(is_block(&Offering::before(101).offer(1)), "the hundredth is the last before it");
    for milestone in [1, 50, 100] {
        assert!(!is_block(&Offering::before(milestone).offer(1)), "{milestone}");
    }
    assert!(!is_block(&Offering::before(100_000).offer(2)), "each of these gets a number of its own");
    let mut offering = Offering::before(150);
    assert!(is_block(&offering.offer(1)));
    assert!(!is_block(&offering.offer(1)), "those under way are not applied, but stand before these");
}

#[test]
fn an_offer_from_nowhere_is_not_counted_as_under_way() {
    let mut offering = Offering::before(150);
    offering.next = 1 << 40;
    assert!(!is_block(&offering.offer(1)), "apply refuses it as it is");
    offering.next = 0;
    assert!(is_block(&offering.offer(1)));
}

#[test]
fn a_leader_that_left_an_identity_out_gives_it_when_the_ledger_asks() {
    let mut offering = Offering::before(1_000);
    let block = offering.offer(1);
    offering.log.apply(&[define_on(1, &[50]), block]);
    let needed =
        |offering: &Offering| offering.log.ledger.placed(&counter(), group(0)).and_then(|placed| placed.need_items);
    assert_eq!(needed(&offering), Some((49, 50)), "the fiftieth and no other");
    offering.dc.said.clear();
    offering.dc.catch_up(&mut offering.log);
    let details: Vec<LedgerCmd> =
        offering.dc.said.iter().filter(|cmd| matches!(cmd, LedgerCmd::Detail(_))).cloned().collect();
    let [LedgerCmd::Detail(detail)] = &details[..] else { panic!("one answer: {details:?}") };
    assert!(matches!(&detail.body, OfferBody::Items(items) if items.len() == 1 && items[0].idx == 49), "{detail:?}");
    offering.log.apply(&details);
    let state = offering.log.ledger.counter(&counter()).unwrap();
    assert_eq!(
        (state.awards()[&50].award.idx, state.certain()),
        (49, 100),
        "the fiftieth has it, and the rest goes on"
    );
}

#[test]
fn only_the_leader_may_ask_for_rights() {
    let mut log = Log::new(&[hello(0, &[1]), define(&[1000])]);
    let mut dc = Dc::new(1);
    dc.input(Input::GroupUp { group: group(0) }, &log.ledger);
    dc.catch_up(&mut log);
    let recall = Recall { counter: counter(), epoch: 1, generation: 0, group: group(0), granted: 1 << 60 };
    let recalls = |dc: &Dc| dc.told.iter().filter(|m| matches!(m, ToGroup::Account(a) if a.recall)).count();
    dc.input(Input::Peer { peer: DcId(2).into(), msg: PeerMsg::Recall(recall.clone()) }, &log.ledger);
    assert_eq!(recalls(&dc), 0, "the group would claim to have returned what it never had, and be fenced");
    dc.input(Input::Peer { peer: DcId(1).into(), msg: PeerMsg::Recall(recall) }, &log.ledger);
    assert_eq!(recalls(&dc), 1);
}

#[test]
fn a_view_that_answered_an_earlier_arming_has_not_answered_this_one() {
    let mut log = Log::new(&[LedgerCmd::View(DcId(0).into()), define(&[1000])]);
    let mut dc = Dc::new(1);
    dc.catch_up(&mut log);
    assert!(dc.has_acked(1000));
    log.apply(&[disarm_on(1, Some(1000))]);
    dc.feed(1003, &log.ledger);
    assert_eq!(dc.shown(&log.ledger), 1003, "nothing holds it back");
    log.apply(&[define_on(2, &[1000]), view_ack(0, 1000, 1)]);
    assert_eq!(log.ledger.next_milestone(&counter()), None, "a late copy of the answer to the first arming");
    assert_eq!(log.ledger.awaiting_view(DcId(0).into()).len(), 1);
    dc.said.clear();
    dc.catch_up(&mut log);
    dc.pass(Span::from_millis(50), &log.ledger);
    let refused = |cmd: &LedgerCmd| matches!(cmd, LedgerCmd::ViewAck { shown_below: false, arming: 2, .. });
    assert!(
        dc.said.iter().any(refused)
            && dc.said.iter().all(|cmd| !matches!(cmd, LedgerCmd::ViewAck { shown_below: true, .. }))
    );
}

#[test]
#[cfg(feature = "teeth")]
fn an_answer_to_an_earlier_arming_that_counts_is_noticed() {
    use tidemark_proto::teeth::{Bug, leave_out};
    leave_out(Some(Bug::StaleAckTaken));
    let shown = std::panic::catch_unwind(a_view_that_answered_an_earlier_arming_has_not_answered_this_one);
    leave_out(None);
    assert!(shown.is_err());
}

#[test]
fn a_late_copy_of_a_definition_or_removal_changes_nothing() {
    let mut log = Log::new(&[hello(0, &[1]), define(&[1000]), report(0, 0, 1)]);
    let armed = |log: &Log| log.ledger.next_milestone(&counter());
    assert_eq!(armed(&log), Some(1000));
    log.apply(&[disarm_on(1, Some(1000)), define(&[1000])]);
    assert_eq!(armed(&log), None, "the removal stands against a copy of the definition before it");
    log.apply(&[define_on(2, &[1000]), disarm_on(1, Some(1000))]);
    assert_eq!(armed(&log), Some(1000), "and the next definition against a copy of the removal");
    let spec = |at: &[u64]| MilestoneSpec { at: at.to_vec(), ..MilestoneSpec::default() };
    assert_eq!(log.ledger.definition(&counter(), spec(&[1000]), 0), Ok(None), "to ask again is to do nothing");
    let removal = log.ledger.removal(&counter(), Some(1000)).unwrap().unwrap();
    assert_eq!(removal, disarm_on(3, Some(1000)));
}

#[test]
fn a_standing_command_is_dropped_when_its_revision_is_gone_and_never_for_want_of_a_leader() {
    let mut log = Log::new(&[LedgerCmd::View(DcId(0).into()), hello(0, &[1])]);
    let mut dc = Dc::new(1);
    dc.input(Input::Leader(None), &log.ledger);
    dc.input(Input::Submit(vec![define(&[1000])]), &log.ledger);
    dc.pass(Span::from_secs(300), &log.ledger);
    let says = |dc: &Dc| dc.said.iter().filter(|cmd| matches!(cmd, LedgerCmd::Define { .. })).count();
    assert_eq!((says(&dc), dc.core.standing()), (0, 1), "nobody to tell, and not given up");
    dc.input(Input::Leader(Some((DcId(1).into(), 1))), &log.ledger);
    dc.pass(Span::from_secs(300), &log.ledger);
    assert!(says(&dc) > 100, "not connected to the leader: what is said is lost");
    log.apply(&[define(&[2000])]);
    dc.said.clear();
    dc.pass(Span::from_secs(5), &log.ledger);
    assert_eq!((says(&dc), dc.core.standing()), (0, 0), "decided on what is no more");
}

#[test]
fn a_rule_leaves_the_single_milestones_that_it_covers_as_they_are() {
    let mut log = Log::new(&[hello(0, &[1]), define(&[1000, 1500]), report(0, 0, 1), hello(1, &[1])]);
    let state = |log: &Log| log.ledger.counter(&counter()).unwrap().clone();
    log.apply(&[LedgerCmd::View(DcId(0).into())]);
    let every = |every: u64| MilestoneSpec { every: Some(every), ..MilestoneSpec::default() };
    log.apply(&[LedgerCmd::Define { counter: counter(), revision: 1, spec: every(500) }]);
    assert_eq!(state(&log).next_armed(), Some(1000), "500 waits for the view, 1000 goes on");
    log.apply(&[view_ack(0, 500, 3)]);
    assert_eq!(state(&log).next_armed(), Some(500));
    let item = |seq| OfferItem { delta: 1_000, session: None, client: ClientId(1), lane: 0, seq, idx: 0 };
    log.apply(&[offer(0, 0, OfferBody::Items(vec![item(1)]))]);
    assert!(state(&log).is_awarded(500) && state(&log).is_awarded(1000));
    assert_eq!(state(&log).awards().len(), 1, "one award for both, though 1000 was asked for twice");
    log.apply(&[disarm_on(2, None)]);
    assert_eq!(state(&log).next_armed(), Some(1500), "without the rule the single one stands");
}

#[test]
fn a_rule_that_begins_at_an_armed_milestone_is_armed_with_it() {
    let mut log = Log::new(&[hello(0, &[1]), define(&[1000]), report(0, 0, 1), LedgerCmd::View(DcId(0).into())]);
    let spec = MilestoneSpec { every: Some(1000), ..MilestoneSpec::default() };
    log.apply(&[LedgerCmd::Define { counter: counter(), revision: 1, spec }]);
    let state = log.ledger.counter(&counter()).unwrap();
    assert_eq!((state.next_armed(), state.milestones().armed_from(1001)), (Some(1000), Some(2000)));
    let by_rule = log.ledger.removal(&counter(), Some(1000)).unwrap_err();
    assert_eq!(by_rule.to_string(), "milestone 1000 is a multiple of the rule \"every 1000\": remove the rule");
    log.apply(&[disarm_on(2, None)]);
    assert_eq!(log.ledger.next_milestone(&counter()), Some(1000));
}

#[test]
fn places_that_a_group_never_acknowledges_are_bounded() {
    let mut log = Log::new(&[hello(0, &[1]), define(&[1 << 40]), report(0, 0, 1)]);
    // Numbers of increments that weigh two are no run: each takes room.
    let items =
        |seq| vec![OfferItem { delta: 2, session: None, client: ClientId(1), lane: 0, seq, idx: 0 }; OFFER_ITEMS_MAX];
    let next = |log: &Log| log.ledger.account(&counter(), group(0)).unwrap().next_pos;
    for seq in 0..2 * UNACKNOWLEDGED_RUNS_MAX / OFFER_ITEMS_MAX as u64 {
        let cmd = offer(0, next(&log), OfferBody::Items(items(seq)));
        log.ledger.apply(LogIndex(100 + seq), &cmd);
    }
    assert_eq!(next(&log), UNACKNOWLEDGED_RUNS_MAX, "the rest stays queued at the group");
    let LedgerCmd::Report(said) = report(0, 0, 2) else { unreachable!() };
    log.apply(&[LedgerCmd::Report(Report { placed_upto: 5_000, ..said })]);
    let cmd = offer(0, next(&log), OfferBody::Items(items(1)));
    log.apply(&[cmd]);
    assert_eq!(next(&log), UNACKNOWLEDGED_RUNS_MAX + OFFER_ITEMS_MAX as u64, "and is taken once there is room");
}

#[test]
fn everything_about_as_many_counters_as_may_be_guarded_fits_one_message() {
    let name = |n: usize| {
        let mut key = [255; KEY_BYTES_MAX];
        key[..8].copy_from_slice(&(n as u64).to_be_bytes());
        CounterName::new(&"n".repeat(NAMESPACE_BYTES_MAX), &key).unwrap()
    };
    let far = GroupId { dc: DcId(255), group: u16::MAX, incarnation: u32::MAX };
    let greeting = LedgerCmd::Hello(Hello {
        group: far,
        lanes: 64,
        nonces: vec![u64::MAX],
        number: u64::MAX,
        accounts: Vec::new(),
    });
    let namespace = LedgerCmd::Namespace("n".repeat(NAMESPACE_BYTES_MAX));
    let mut log = Log::new(&[namespace, greeting]);
    let spec = MilestoneSpec { at: vec![MILESTONE_MAX], ..MilestoneSpec::default() };
    for n in 0..=GUARDED_COUNTERS_MAX {
        let cmd = LedgerCmd::Define { counter: name(n), revision: 0, spec: spec.clone() };
        log.ledger.apply(LogIndex(100), &cmd);
        log.ledger.apply(LogIndex(100), &LedgerCmd::Spread(name(GUARDED_COUNTERS_MAX + n)));
    }
    assert_eq!(log.ledger.guarded().count(), GUARDED_COUNTERS_MAX);
    let refused = log.ledger.definition(&name(GUARDED_COUNTERS_MAX), spec, 0).unwrap_err();
    assert_eq!(refused, DefineError::GuardedCounters(GUARDED_COUNTERS_MAX));
    let full = |account: Account| Account { granted: u64::MAX, acked_spent: u64::MAX, next_pos: u64::MAX, ..account };
    let accounts = log.ledger.accounts_of(far).into_iter().map(full).collect();
    let confirmed =
        ToGroup::Confirmed { group: far, start: Start { number: u64::MAX, nonce: u64::MAX }, accounts, resets: 0 };
    let fits = |bytes: Vec<u8>| assert!(bytes.len() <= MESSAGE_BYTES_MAX, "{} bytes", bytes.len());
    fits(wire::encode(&ForGroup::Ledger(confirmed.clone())));
    fits(wire::encode(&ToClient::Spread { counters: log.ledger.spread() }));
    let new_cells = log.ledger.guarded().map(CounterName::total).collect();
    let cmds = vec![GroupCmd::Ledger(confirmed)];
    fits(wire::encode(&GroupEntry { now: WallMs(u64::MAX), first_new_slot: u32::MAX, new_cells, cmds }));
}

#[test]
fn what_an_earlier_start_says_is_not_heard_once_a_later_one_has_greeted() {
    let mut log = Log::new(&[hello(0, &[1]), define(&[1000]), report(0, 0, 1)]);
    log.apply(&[LedgerCmd::Grant { counter: counter(), epoch: 1, group: group(0), amount: 500, if_awarded: None }]);
    log.apply(&[hello(0, &[1, 2])]);
    let spent = |start: u64, spent: u64| {
        let LedgerCmd::Report(said) = report(0, 0, 7) else { unreachable!() };
        LedgerCmd::Report(Report { start, spent, ..said })
    };
    log.apply(&[spent(1, 400), spent(3, 400), offer(0, 0, OfferBody::Block { count: 3_000, delta: 1 })]);
    assert_eq!((log.ledger.certain(&counter()), log.ledger.upper(&counter())), (0, 500), "neither spent nor offered");
    log.apply(&[spent(2, 300)]);
    assert_eq!(log.ledger.certain(&counter()), 300);
    assert!(!log.ledger.is_fenced(group(0)));
    let mut dc = Dc::new(1);
    dc.feed(50, &log.ledger);
    assert_eq!(dc.shown(&log.ledger), 0, "nor is its feed believed: the view has heard of no cell");
    let last = Start { number: 2, nonce: 2 };
    assert!(
        dc.told.iter().any(|told| matches!(told, ToGroup::Confirmed { start, .. } if *start == last)),
        "it learns of it"
    );
    let same_place = Hello { group: group(0), lanes: 64, nonces: vec![1, 9], number: 2, accounts: Vec::new() };
    log.apply(&[LedgerCmd::Hello(same_place)]);
    assert!(log.ledger.is_fenced(group(0)), "two starts in one place of the chain");
}

/// One of every command of the ledger's log, with everything that a command may hold.
fn one_of_every_command() -> Vec<LedgerCmd> {
    let item = OfferItem { delta: 3, session: Some(SessionId([7; 16])), client: ClientId(1), lane: 1, seq: 9, idx: 2 };
    let account =
        HelloAccount { counter: counter(), epoch: 1, generation: 0, granted: 9, spent: 3, returned: 1, next_pos: 5 };
    let greeting = Hello { group: group(1), lanes: 2, nonces: vec![1, 2], number: 2, accounts: vec![account] };
    let signature = vec![1; 64];
    let certificate = vec![2; 200];
    let rule = ClaimRule { period_s: 3_600, fallback: Fallback::NextAward };
    let spec = MilestoneSpec { at: vec![1_500], every: Some(500), sequence_from: Some(90), ..MilestoneSpec::default() };
    let detail = offer(0, 0, OfferBody::Items(vec![item; 3]));
    let detail = if let LedgerCmd::Offer(detail) = detail { LedgerCmd::Detail(detail) } else { unreachable!() };
    vec![
        LedgerCmd::Namespace("other".into()),
        LedgerCmd::Spread(counter()),
        LedgerCmd::View(DcId(2).into()),
        LedgerCmd::Hello(greeting),
        LedgerCmd::Define { counter: counter(), revision: 1, spec },
        disarm_on(1, Some(1000)),
        report(0, 10, 2),
        offer(0, 0, OfferBody::Items(vec![item; 3])),
        offer(0, 0, OfferBody::Block { count: 5_000, delta: 2 }),
        detail,
        LedgerCmd::Grant { counter: counter(), epoch: 1, group: group(0), amount: 900, if_awarded: Some(1000) },
        view_ack(0, 1000, 1),
        LedgerCmd::Signature { counter: counter(), at: 1000, dc: DcId(1), signature, certificate },
        LedgerCmd::ClaimRule { counter: counter(), revision: 0, rule: Some(rule) },
        LedgerCmd::ClaimUntil { counter: counter(), at: 1000, holder: 1000, until: WallMs(1 << 41) },
        LedgerCmd::Claim { counter: counter(), at: 1000, holder: 1000, session: SessionId([7; 16]), id: 1 << 100 },
        LedgerCmd::ClaimOver { counter: counter(), at: 1000, holder: 1000 },
        LedgerCmd::Reset { counter: counter(), revision: 0, keeps_milestones: true },
        LedgerCmd::Expire { counter: counter(), revision: 0, at: Some(WallMs(1 << 41)) },
    ]
}

proptest! {
    #[test]
    fn changed_commands_are_refused_or_harmless(
        changes in proptest::collection::vec((0usize..19, any::<usize>(), 0u8..=255, any::<bool>()), 1..20),
    ) {
        let commands = one_of_every_command();
        let mut log = Log::new(&[hello(0, &[1]), hello(1, &[1]), LedgerCmd::View(DcId(0).into()), define(&[1000])]);
        for (which, at, xor, cut) in changes {
            let mut bytes = wire::encode(&commands[which]);
            let at = at % bytes.len();
            bytes[at] ^= xor;
            bytes.truncate(if cut { at } else { bytes.len() });
            if let Ok(cmd) = wire::decode::<LedgerCmd>(&bytes) {
                prop_assert_eq!(wire::decode::<LedgerCmd>(&wire::encode(&cmd)), Ok(cmd.clone()));
                log.apply(&[cmd]);
            }
        }
    }

    #[test]
    fn changed_messages_to_and_from_groups_and_clients_are_refused_or_valid(at in any::<usize>(), xor in 1u8..=255) {
        let start = Start { number: 3, nonce: u64::MAX };
        let mut log = Log::new(&[hello(0, &[1]), define(&[1000])]);
        log.apply(&[report(0, 0, 1)]);
        let confirmed = ToGroup::Confirmed { group: group(0), start, accounts: log.ledger.accounts_of(group(0)), resets: 0 };
        let chunk = FeedChunk {
            group: group(0),
            start,
            base: LogIndex(0),
            upto: LogIndex(9),
            walk: None,
            applied: LogIndex(9),
            first_slot: 0,
            cells: vec![counter().total()],
            components: vec![(0, 0, 7)],
            ..FeedChunk::default()
        };
        let delta = Delta {
            sender: 1,
            origin: DcId(0).into(),
            epoch: 1,
            base: 0,
            upto: 1,
            walk: None,
            cells: vec![(0, counter().total())],
            groups: vec![group(0), group(1)],
            components: vec![(0, 100, 5)],
            ..Delta::default()
        };
        fn change<M: wire::Message + PartialEq + std::fmt::Debug>(message: M, at: usize, xor: u8) {
            let mut bytes = wire::encode(&message);
            assert_eq!(wire::decode::<M>(&bytes), Ok(message));
            let at = at % bytes.len();
            let _ = wire::decode::<M>(&bytes[..at]);
            bytes[at] ^= xor;
            if let Ok(other) = wire::decode::<M>(&bytes) {
                assert!(other.validate().is_ok());
            }
        }
        change(ForGroup::Ledger(confirmed), at, xor);
        let begun = vec![(counter(), 1), (counter(), u32::MAX)];
        change(ForGroup::Ledger(ToGroup::Resets { after: 1, upto: u64::MAX, begun }), at, xor);
        change(FromGroup::Feed(chunk), at, xor);
        change(PeerMsg::Delta(delta), at, xor);
        change(PeerMsg::Propose(one_of_every_command()), at, xor);
        change(ToClient::NotYours { of: ClientId(u128::MAX) }, at, xor);
    }
}
