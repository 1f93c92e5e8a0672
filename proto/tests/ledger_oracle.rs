//! The ledger against a literal, item-by-item reading of the protocol's `settle`: same decisions, same awards, same sums,
//! under random reports, offers, grants, recalls and milestones.

use proptest::prelude::*;
use std::collections::BTreeMap;
use tidemark_proto::ids::{ClientId, CounterName, DcId, GroupId, LogIndex};
use tidemark_proto::ledger::{Ledger, Pending};
use tidemark_proto::msg::{Hello, LedgerCmd, MilestoneSpec, Offer, OfferBody, OfferItem, Place, Report};
use tidemark_proto::time::WallMs;

const GROUPS: usize = 3;

/// One item of the oracle's window.
#[derive(Clone, Debug)]
struct Queued {
    group: usize,
    pos: u64,
    delta: u64,
    decided: bool,
}

#[derive(Clone, Debug, Default)]
struct Oracle {
    granted: [u64; GROUPS],
    spent: [u64; GROUPS],
    returned: [u64; GROUPS],
    sequenced: u64,
    window: Vec<Queued>,
    /// Armed and not awarded.
    armed: Vec<u64>,
    awards: BTreeMap<u64, (usize, u64, u64)>,
    counted: BTreeMap<(usize, u64), Option<u64>>,
}

impl Oracle {
    fn certain(&self) -> u64 {
        self.spent.iter().sum::<u64>() + self.sequenced
    }

    fn out(&self) -> u64 {
        (0..GROUPS).map(|v| self.granted[v] - self.returned[v] - self.spent[v]).sum()
    }

    fn upper(&self) -> u64 {
        self.certain() + self.out() + self.window.iter().map(|item| item.delta).sum::<u64>()
    }

    fn undecided(&self) -> bool {
        self.window.iter().any(|item| !item.decided)
    }

    fn grant(&mut self, v: usize, amount: u64) {
        if self.undecided() {
            return;
        }
        let room = self.armed.iter().min().map_or(u64::MAX, |next| next - 1 - self.upper().min(next - 1));
        self.granted[v] += amount.min(room);
    }

    /// The protocol's text, one item after the other.
    fn settle(&mut self) {
        while self.settle_once() {}
    }

    fn settle_once(&mut self) -> bool {
        let mut ahead = 0;
        for at in 0..self.window.len() {
            let item = self.window[at].clone();
            let lo = self.certain() + ahead + 1;
            let hi = self.certain() + self.out() + ahead + item.delta;
            let hit = self.armed.iter().any(|m| (lo..=hi).contains(m));
            if !hit {
                let number = (self.out() == 0).then_some(lo);
                self.counted.entry((item.group, item.pos)).or_insert(number);
                self.window[at].decided = true;
            }
            let award = hit && self.out() == 0 && at == 0;
            if award {
                let taken: Vec<u64> = self.armed.iter().copied().filter(|m| (lo..=hi).contains(m)).collect();
                self.armed.retain(|m| !taken.contains(m));
                self.awards.extend(taken.iter().map(|&m| (m, (item.group, item.pos, lo))));
            }
            if at == 0 && (award || self.window[0].decided) {
                self.window.remove(0);
                self.sequenced += item.delta;
                return true;
            }
            ahead += item.delta;
        }
        false
    }
}

#[derive(Clone, Debug)]
enum Step {
    Grant(usize, u64),
    Spend(usize, u64),
    Return(usize),
    Offer(usize, Vec<u64>),
    Block(usize, u64, u64),
    Milestone(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let v = 0..GROUPS;
    prop_oneof![
        3 => (v.clone(), 1u64..12).prop_map(|(v, n)| Step::Grant(v, n)),
        4 => (v.clone(), 1u64..6).prop_map(|(v, n)| Step::Spend(v, n)),
        2 => v.clone().prop_map(Step::Return),
        5 => (v.clone(), proptest::collection::vec(1u64..4, 1..5)).prop_map(|(v, ds)| Step::Offer(v, ds)),
        1 => (v, 1u64..9, 1u64..3).prop_map(|(v, n, d)| Step::Block(v, n, d)),
        2 => (1u64..25).prop_map(Step::Milestone),
    ]
}

struct Pair {
    ledger: Ledger,
    oracle: Oracle,
    index: u64,
    next_pos: [u64; GROUPS],
    deltas: BTreeMap<(usize, u64), u64>,
}

fn counter() -> CounterName {
    CounterName::new("t", b"k").unwrap()
}

fn group(v: usize) -> GroupId {
    GroupId { dc: DcId(v as u16), group: 0, incarnation: 1 }
}

/// The leader's clock in an entry: it is set back now and then.
fn clock_at(index: u64) -> WallMs {
    WallMs(1_000_000 + index * 7 % 100)
}

impl Pair {
    /// A guarded counter with a first milestone far away, armed.
    fn new() -> Pair {
        let mut pair = Pair {
            ledger: Ledger::default(),
            oracle: Oracle::default(),
            index: 0,
            next_pos: [0; GROUPS],
            deltas: BTreeMap::new(),
        };
        for v in 0..GROUPS {
            pair.apply(LedgerCmd::Hello(Hello {
                group: group(v),
                lanes: 1,
                nonces: vec![1],
                number: 1,
                accounts: vec![],
            }));
        }
        pair.define(1_000_000);
        (0..GROUPS).for_each(|v| pair.report(v));
        assert_eq!(pair.ledger.next_milestone(&counter()), Some(1_000_000));
        pair
    }

    fn apply(&mut self, cmd: LedgerCmd) {
        self.index += 1;
        self.ledger.apply(LogIndex(self.index), &LedgerCmd::Clock(clock_at(self.index)));
        self.ledger.apply(LogIndex(self.index), &cmd);
        self.ledger.check_invariants();
    }

    fn define(&mut self, at: u64) {
        let (counter, revision) = (counter(), self.ledger.revision(&counter()));
        self.apply(LedgerCmd::Define { counter, revision, spec: MilestoneSpec { at: vec![at], ..Default::default() } });
        self.oracle.armed.push(at);
    }

    fn report(&mut self, v: usize) {
        let spent = self.oracle.spent[v];
        let returned = self.oracle.returned[v];
        let report_no = self.index;
        let report = Report { spent, returned, report_no, ..Report::first(counter(), 1, group(v), 1) };
        self.apply(LedgerCmd::Report(report));
    }

    fn offer(&mut self, v: usize, deltas: &[u64], body: OfferBody) {
        let first_pos = self.next_pos[v];
        for (pos, &delta) in (first_pos..).zip(deltas) {
            self.deltas.insert((v, pos), delta);
            self.oracle.window.push(Queued { group: v, pos, delta, decided: false });
        }
        self.next_pos[v] += deltas.len() as u64;
        self.apply(LedgerCmd::Offer(Offer {
            counter: counter(),
            epoch: 1,
            group: group(v),
            start: 1,
            first_pos,
            body,
        }));
        self.give_identities();
    }

    /// Answers `need_items`, as a group would, until nothing is needed.
    fn give_identities(&mut self) {
        while let Some((v, (from, to))) = self.needed() {
            let items: Vec<OfferItem> = (from..to).map(|pos| item(self.deltas[&(v, pos)], pos)).collect();
            let detail = Offer {
                counter: counter(),
                epoch: 1,
                group: group(v),
                start: 1,
                first_pos: from,
                body: OfferBody::Items(items),
            };
            self.apply(LedgerCmd::Detail(detail));
        }
    }

    fn needed(&self) -> Option<(usize, (u64, u64))> {
        (0..GROUPS).find_map(|v| Some((v, self.ledger.placed(&counter(), group(v))?.need_items?)))
    }

    fn run(&mut self, step: &Step) {
        match step {
            Step::Grant(v, amount) => {
                self.apply(LedgerCmd::Grant {
                    counter: counter(),
                    epoch: 1,
                    group: group(*v),
                    amount: *amount,
                    if_awarded: None,
                });
                self.oracle.grant(*v, *amount);
            }
            Step::Spend(v, amount) => {
                let left = self.oracle.granted[*v] - self.oracle.returned[*v] - self.oracle.spent[*v];
                self.oracle.spent[*v] += (*amount).min(left);
                self.report(*v);
                self.give_identities();
            }
            Step::Return(v) => {
                self.oracle.returned[*v] = self.oracle.granted[*v] - self.oracle.spent[*v];
                self.report(*v);
                self.give_identities();
            }
            Step::Offer(v, deltas) => {
                let items = (self.next_pos[*v]..).zip(deltas).map(|(pos, &delta)| item(delta, pos)).collect();
                self.offer(*v, deltas, OfferBody::Items(items));
            }
            Step::Block(v, count, delta) => {
                let deltas = vec![*delta; *count as usize];
                self.offer(*v, &deltas, OfferBody::Block { count: *count, delta: *delta });
            }
            Step::Milestone(above) => {
                let at = self.oracle.upper() + above;
                if !self.oracle.armed.contains(&at) {
                    self.define(at);
                }
            }
        }
        self.oracle.settle();
    }

    fn compare(&self) {
        let state = self.ledger.counter(&counter()).unwrap();
        assert_eq!((state.certain(), state.out()), (self.oracle.certain(), self.oracle.out()));
        let mut armed = self.oracle.armed.clone();
        armed.sort();
        assert_eq!(
            state.milestones().pending().filter(|(_, p)| **p == Pending::Armed).map(|(at, _)| at).collect::<Vec<_>>(),
            armed
        );
        for (at, &(v, pos, first)) in &self.oracle.awards {
            let award = &state.awards()[at].award;
            assert_eq!((award.group, award.pos, award.first), (group(v), pos, first));
            assert_eq!(award.time, Some(clock_at(award.index.0)));
        }
        assert_eq!(state.awards().len(), self.oracle.awards.len());
        self.compare_places();
    }

    fn compare_places(&self) {
        let mut counted = BTreeMap::new();
        for v in 0..GROUPS {
            for run in self.ledger.placed(&counter(), group(v)).map(|placed| placed.runs).unwrap_or_default() {
                for i in 0..run.count {
                    if !matches!(run.place, Place::Milestone { .. }) {
                        let number = if let Place::Number(n) = run.place { Some(n + i) } else { None };
                        counted.insert((v, run.first_pos + i), number);
                    }
                }
            }
        }
        assert_eq!(counted.keys().collect::<Vec<_>>(), self.oracle.counted.keys().collect::<Vec<_>>());
        for (item, number) in counted {
            assert!(number.is_none() || number == self.oracle.counted[&item], "{item:?}");
        }
    }
}

fn item(delta: u64, pos: u64) -> OfferItem {
    OfferItem { delta, session: None, client: ClientId(7), lane: 0, seq: pos, idx: 0 }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn settlement_equals_the_protocols_text(steps in proptest::collection::vec(step(), 1..60)) {
        let mut pair = Pair::new();
        for step in &steps {
            pair.run(step);
            pair.compare();
        }
    }

    /// Any replica, at any time, may be replaced by its snapshot.
    #[test]
    fn a_snapshot_is_the_state(steps in proptest::collection::vec(step(), 1..30)) {
        let mut pair = Pair::new();
        for step in &steps {
            pair.run(step);
            let bytes = postcard::to_allocvec(&pair.ledger).unwrap();
            pair.ledger = postcard::from_bytes(&bytes).unwrap();
        }
        pair.compare();
    }
}
