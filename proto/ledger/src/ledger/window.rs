//! The window of a counter's ledger: offered increments in the order of their arrival, some of them not yet decided.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use tidemark_types::ids::GroupId;
use tidemark_wire::msg::OfferItem;

/// A run of neighbours in the window.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Slot {
    /// Undecided increments of one group, positions from `first_pos` on.
    Open { group: GroupId, first_pos: u64, body: Body },
    /// Decided increments that wait for those before them: only their weights still matter.
    Decided { weights: BTreeMap<GroupId, u64> },
}

/// A run of undecided increments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Body {
    Items {
        items: VecDeque<OfferItem>,
        weight: u64,
    },
    /// `count` increments of weight `delta` each; identities are still at the group.
    Block {
        count: u64,
        delta: u64,
    },
}

impl Body {
    pub fn items(items: impl IntoIterator<Item = OfferItem>) -> Body {
        let items: VecDeque<OfferItem> = items.into_iter().collect();
        let weight = items.iter().map(|item| item.delta).sum();
        Body::Items { items, weight }
    }

    /// Number of increments.
    pub fn count(&self) -> u64 {
        match self {
            Body::Items { items, .. } => items.len() as u64,
            Body::Block { count, .. } => *count,
        }
    }

    /// Sum of weights.
    pub fn weight(&self) -> u64 {
        match self {
            Body::Items { weight, .. } => *weight,
            Body::Block { count, delta } => count * delta,
        }
    }

    /// The number of increments from the front that weigh at most `budget` together.
    pub fn fitting(&self, budget: u64) -> u64 {
        if self.weight() <= budget {
            return self.count();
        }
        match self {
            Body::Items { items, .. } if !self.is_unit() => {
                let mut sum = 0u64;
                items.iter().take_while(|item| add_within(&mut sum, item.delta, budget)).count() as u64
            }
            Body::Items { .. } => budget,
            Body::Block { delta, .. } => budget / delta,
        }
    }

    /// Splits the first `count` increments off.
    pub fn split_front(&mut self, count: u64) -> Body {
        match self {
            Body::Items { items, weight } => {
                let front = Body::items(items.drain(..count as usize));
                *weight -= front.weight();
                front
            }
            Body::Block { count: all, delta } => {
                *all -= count;
                Body::Block { count, delta: *delta }
            }
        }
    }

    /// Whether every increment weighs one, so that numbers of neighbours are consecutive.
    pub fn is_unit(&self) -> bool {
        self.weight() == self.count()
    }
}

fn add_within(sum: &mut u64, delta: u64, budget: u64) -> bool {
    *sum += delta;
    *sum <= budget
}

impl Slot {
    pub fn weight(&self) -> u64 {
        match self {
            Slot::Open { body, .. } => body.weight(),
            Slot::Decided { weights } => weights.values().sum(),
        }
    }
}

/// Slots in order of arrival, with the sums that settlement needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    pub slots: VecDeque<Slot>,
    weight: u64,
    undecided: u64,
    /// Count and weight of the increments in blocks. Not kept in snapshots.
    #[serde(skip)]
    nameless: (u64, u64),
}

impl Window {
    /// Weight of everything in the window.
    pub fn weight(&self) -> u64 {
        self.weight
    }

    /// Weight of one group's increments.
    pub fn weight_of(&self, of: GroupId) -> u64 {
        let weight = |slot: &Slot| match slot {
            Slot::Open { group, body, .. } if *group == of => body.weight(),
            Slot::Open { .. } => 0,
            Slot::Decided { weights } => weights.get(&of).copied().unwrap_or(0),
        };
        self.slots.iter().map(weight).sum()
    }

    /// Takes out the undecided increments of a group without known identities; returns their weight.
    pub fn drop_blocks(&mut self, of: GroupId) -> u64 {
        let blocks = self.take_open(of, |body| matches!(body, Body::Block { .. }));
        blocks.iter().map(|(_, body)| body.weight()).sum()
    }

    /// Takes out undecided increments of a group, in the order of their positions, each run with its first one.
    pub fn take_open(&mut self, of: GroupId, which: impl Fn(&Body) -> bool) -> VecDeque<(u64, Body)> {
        let slots = std::mem::take(&mut self.slots);
        let mut taken = VecDeque::new();
        for slot in slots {
            match slot {
                Slot::Open { group, first_pos, body } if group == of && which(&body) => {
                    self.count_out(&body);
                    taken.push_back((first_pos, body));
                }
                slot @ (Slot::Open { .. } | Slot::Decided { .. }) => {
                    self.slots.push_back(slot);
                    self.join_decided(self.slots.len() - 1);
                }
            }
        }
        taken
    }

    /// Open increments came in.
    fn count_in(&mut self, body: &Body) {
        self.weight += body.weight();
        self.undecided += body.count();
        if matches!(body, Body::Block { .. }) {
            self.nameless = (self.nameless.0 + body.count(), self.nameless.1 + body.weight());
        }
    }

    /// Open increments went out.
    fn count_out(&mut self, body: &Body) {
        self.weight -= body.weight();
        self.count_decided(body);
    }

    /// Open increments are open no more.
    fn count_decided(&mut self, body: &Body) {
        self.undecided -= body.count();
        if matches!(body, Body::Block { .. }) {
            self.nameless = (self.nameless.0 - body.count(), self.nameless.1 - body.weight());
        }
    }

    /// After it was read.
    pub(super) fn recount(&mut self) {
        self.nameless = self.in_blocks();
    }

    fn in_blocks(&self) -> (u64, u64) {
        let blocks = self.slots.iter().filter_map(|slot| match slot {
            Slot::Open { body: body @ Body::Block { .. }, .. } => Some((body.count(), body.weight())),
            Slot::Open { .. } | Slot::Decided { .. } => None,
        });
        blocks.fold((0, 0), |(counts, weights), (count, weight)| (counts + count, weights + weight))
    }

    /// Weight of undecided increments without known identities.
    pub fn nameless_weight(&self) -> u64 {
        self.nameless.1
    }

    /// Its cost in memory: undecided increments with their identities, and slots.
    pub fn load(&self) -> u64 {
        self.undecided - self.nameless.0 + self.slots.len() as u64
    }

    /// Number of undecided increments.
    pub fn undecided(&self) -> u64 {
        self.undecided
    }

    /// The first undecided position of a group.
    pub fn first_open(&self, of: GroupId) -> Option<u64> {
        self.slots.iter().find_map(|slot| match slot {
            Slot::Open { group, first_pos, .. } if *group == of => Some(*first_pos),
            Slot::Open { .. } | Slot::Decided { .. } => None,
        })
    }

    pub fn push(&mut self, group: GroupId, first_pos: u64, body: Body) {
        self.count_in(&body);
        self.slots.push_back(Slot::Open { group, first_pos, body });
    }

    /// Takes the first slot out, when it is decided.
    pub fn pop_decided(&mut self) -> Option<BTreeMap<GroupId, u64>> {
        match self.slots.front() {
            Some(Slot::Decided { .. }) => {}
            _ => return None,
        }
        let Some(Slot::Decided { weights }) = self.slots.pop_front() else { return None };
        self.weight -= weights.values().sum::<u64>();
        Some(weights)
    }

    /// Takes the first `count` increments of the first slot out; the slot is open.
    pub fn take_front(&mut self, count: u64) -> Option<(GroupId, u64, Body)> {
        let Some(Slot::Open { group, first_pos, body }) = self.slots.front_mut() else { return None };
        let taken = (*group, *first_pos, body.split_front(count));
        *first_pos += count;
        if body.count() == 0 {
            self.slots.pop_front();
        }
        self.count_out(&taken.2);
        Some(taken)
    }

    /// Decides the first `count` increments of the open slot at `at`; returns the index of the slot that now stands behind them.
    /// A decided slot before them takes them in; a decided slot behind them is joined by [`Window::join_decided`].
    pub fn decide(&mut self, at: usize, count: u64) -> usize {
        let Some(Slot::Open { group, first_pos, body }) = self.slots.get_mut(at) else { return at };
        let group = *group;
        let decided = body.split_front(count);
        *first_pos += count;
        let emptied = body.count() == 0;
        self.count_decided(&decided);
        if emptied {
            self.slots.remove(at);
        }
        self.put_decided(at, group, decided.weight())
    }

    /// Puts decided weight in front of the slot at `at`; returns the index after it.
    fn put_decided(&mut self, at: usize, group: GroupId, weight: u64) -> usize {
        if let Some(Slot::Decided { weights }) = at.checked_sub(1).and_then(|i| self.slots.get_mut(i)) {
            *weights.entry(group).or_default() += weight;
            return at;
        }
        self.slots.insert(at, Slot::Decided { weights: BTreeMap::from([(group, weight)]) });
        at + 1
    }

    /// Joins the slot at `at` into the one before it, if both are decided; says whether it did.
    pub fn join_decided(&mut self, at: usize) -> bool {
        let is_decided = |at: usize| matches!(self.slots.get(at), Some(Slot::Decided { .. }));
        if at == 0 || !is_decided(at) || !is_decided(at - 1) {
            return false;
        }
        let Some(Slot::Decided { weights: next }) = self.slots.remove(at) else { return false };
        if let Some(Slot::Decided { weights }) = self.slots.get_mut(at - 1) {
            next.into_iter().for_each(|(group, weight)| *weights.entry(group).or_default() += weight);
        }
        true
    }

    /// Splits the open slot at `at` after `count` increments; both parts stay open.
    pub fn split(&mut self, at: usize, count: u64) {
        let Some(Slot::Open { group, first_pos, body }) = self.slots.get_mut(at) else { return };
        let front = Slot::Open { group: *group, first_pos: *first_pos, body: body.split_front(count) };
        *first_pos += count;
        self.slots.insert(at, front);
    }

    /// Gives the first increments of a block, at `first_pos`, their identities. False when there is no such block or the
    /// items do not agree with it.
    pub fn detail(&mut self, of: GroupId, pos: u64, items: &[OfferItem]) -> bool {
        let is_it = |slot: &Slot| matches!(slot, Slot::Open { group, first_pos, body: Body::Block { .. } } if *group == of && *first_pos == pos);
        let Some(at) = self.slots.iter().position(is_it) else { return false };
        let Some(Slot::Open { first_pos, body: Body::Block { count, delta }, .. }) = self.slots.get_mut(at) else {
            return false;
        };
        let given = items.len() as u64;
        if given == 0 || given > *count || items.iter().any(|item| item.delta != *delta) {
            return false;
        }
        *count -= given;
        *first_pos += given;
        let emptied = *count == 0;
        self.nameless = (self.nameless.0 - given, self.nameless.1 - given * *delta);
        let known = Slot::Open { group: of, first_pos: pos, body: Body::items(items.iter().copied()) };
        if emptied {
            self.slots[at] = known
        } else {
            self.slots.insert(at, known)
        }
        true
    }

    /// Panics when a sum does not agree with the slots.
    pub fn check_invariants(&self) {
        let weight: u64 = self.slots.iter().map(Slot::weight).sum();
        let undecided: u64 =
            self.slots.iter().map(|slot| if let Slot::Open { body, .. } = slot { body.count() } else { 0 }).sum();
        assert_eq!((weight, undecided), (self.weight, self.undecided), "window's sums");
        assert_eq!(self.in_blocks(), self.nameless, "sums over blocks");
        for pair in self.slots.iter().zip(self.slots.iter().skip(1)) {
            let joined = !matches!(pair, (Slot::Decided { .. }, Slot::Decided { .. }));
            assert!(joined, "decided neighbours are one slot");
        }
        let empty = |slot: &Slot| matches!(slot, Slot::Open { body, .. } if body.count() == 0);
        assert!(!self.slots.iter().any(empty), "no empty slot");
    }
}
