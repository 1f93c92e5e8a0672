//! Claims: the session that an award names has a limited time to claim it, once. The counter's rule decides beforehand the fate
//! of an award that is not claimed in time.
//!
//! The ledger reads no clock. Its leader writes into the log until when an award may be claimed, and that this time is over. A
//! claim that stands before that entry in the log was in time. So of a claim and the end of its time exactly one counts,
//! everywhere the same.

use super::counter::{Awarded, CounterLedger};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use tidemark_types::ids::{CounterName, LogIndex, SessionId};
use tidemark_types::limits::CLAIM_PASSES_MAX;
use tidemark_types::teeth::{Bug, bites};
use tidemark_types::time::WallMs;
use tidemark_wire::msg::{ClaimRule, Fallback, LedgerCmd};

/// All claims, and the counters' rules for those to come.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claims {
    rules: BTreeMap<CounterName, Ruled>,
    claims: BTreeMap<(CounterName, u64), Claim>,
    /// The open claims among them.
    open: BTreeSet<(CounterName, u64)>,
    /// The claims among them that wait for the counter's next award.
    waiting: BTreeSet<(CounterName, u64)>,
    /// Claims that have passed on, by the award with the session that holds them since. Not in a snapshot, which has it with each
    /// claim.
    #[serde(skip)]
    passed: BTreeMap<(CounterName, u64), BTreeSet<u64>>,
    /// The turns of claims, in the order of the log; of two turns by one entry the last.
    turns: BTreeMap<LogIndex, BTreeMap<(CounterName, u64), Turn>>,
}

/// A counter's rule and how often it was changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Ruled {
    rule: Option<ClaimRule>,
    revision: u64,
}

/// The state of an award's claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    pub state: ClaimState,
    /// The award with the session that may claim it: its own, or a later award of the counter to which the claim has passed.
    pub holder: u64,
    /// The number of times it has passed on.
    pub passes: u8,
    /// The end of the time to claim; none while the ledger's leader has not set it.
    pub until: Option<WallMs>,
    /// The counter's rule when the award was made.
    pub rule: ClaimRule,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClaimState {
    /// It may be claimed.
    Open,
    /// It was: under this name of the claimer's choice, by this entry.
    Claimed { id: u128, index: LogIndex },
    /// It was not claimed in time: it passes to the winner of the counter's next award.
    Waiting,
    /// It was not claimed in time: no session may claim it.
    Lapsed,
}

/// A turn of an award that is to be claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turn {
    pub kind: TurnKind,
    /// The award with the session that was to claim it then.
    pub holder: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnKind {
    /// The holder has claimed it.
    Claimed,
    /// The holder before has not claimed it in time: this one may.
    Passed,
    /// The holder has not claimed it in time: it waits for the counter's next award.
    Waiting,
    /// The holder has not claimed it in time: no session may.
    Lapsed,
}

/// A session that claims an award.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claimant<'a> {
    pub counter: &'a CounterName,
    /// The claimed award.
    pub at: u64,
    /// The award that holds the claim as the session knows it.
    pub holder: u64,
    pub session: SessionId,
    /// A name of the session's choice for this claim.
    pub id: u128,
}

impl Claim {
    fn may_be_claimed(&self) -> bool {
        match self.state {
            ClaimState::Open => true,
            ClaimState::Claimed { .. } => bites(Bug::ClaimTakenTwice),
            ClaimState::Waiting | ClaimState::Lapsed => bites(Bug::ClaimTakenLate),
        }
    }
}

impl Claims {
    /// The claim of the award at a milestone.
    pub fn get(&self, counter: &CounterName, at: u64) -> Option<&Claim> {
        self.claims.get(&(counter.clone(), at))
    }

    /// The rule for a counter's awards to come.
    pub fn rule(&self, counter: &CounterName) -> Option<ClaimRule> {
        self.rules.get(counter).and_then(|ruled| ruled.rule)
    }

    /// The number of changes of the counter's rule.
    pub fn revision(&self, counter: &CounterName) -> u64 {
        self.rules.get(counter).map_or(0, |ruled| ruled.revision)
    }

    /// Claims that are open, for the leader that looks after their time.
    pub fn open(&self) -> impl Iterator<Item = (&CounterName, u64, &Claim)> {
        self.open.iter().map(|key| (&key.0, key.1, &self.claims[key]))
    }

    /// The commands of the ledger's leader about the time of claims, at most `most` at once; its clock shows `now`. A new leader
    /// ends no claims (without `may_end`): claims made while there was no leader are still on their way.
    pub fn due(&self, now: WallMs, may_end: bool, most: usize) -> Vec<LedgerCmd> {
        let said = |(counter, at, claim): (&CounterName, u64, &Claim)| match claim.until {
            None => {
                let until = WallMs(now.0.saturating_add(u64::from(claim.rule.period_s) * 1_000));
                Some(LedgerCmd::ClaimUntil { counter: counter.clone(), at, holder: claim.holder, until })
            }
            Some(until) if may_end && until <= now => {
                Some(LedgerCmd::ClaimOver { counter: counter.clone(), at, holder: claim.holder })
            }
            Some(_) => None,
        };
        self.open().filter_map(said).take(most).collect()
    }

    /// Other awards of a counter that have passed to the winner of this one, and how their claims stand.
    pub fn passed_to(&self, counter: &CounterName, holder: u64) -> impl Iterator<Item = (u64, &Claim)> {
        let passed = self.passed.get(&(counter.clone(), holder)).into_iter().flatten();
        passed.filter_map(|&at| Some((at, self.get(counter, at)?)))
    }

    /// The turns of claims, by entries from `first` on, in their order: the entry, the counter, the award and its turn.
    pub fn turns(&self, first: LogIndex) -> impl Iterator<Item = (LogIndex, &CounterName, u64, Turn)> {
        self.turns
            .range(first..)
            .flat_map(|(&index, turns)| turns.iter().map(move |((counter, at), turn)| (index, counter, *at, *turn)))
    }

    /// After reading a snapshot.
    pub(super) fn index_passed(&mut self) {
        let passed = self.claims.iter().filter(|(key, claim)| claim.holder != key.1);
        let passed: Vec<_> = passed.map(|(key, claim)| ((key.0.clone(), claim.holder), key.1)).collect();
        for (holder, at) in passed {
            self.passed.entry(holder).or_default().insert(at);
        }
    }

    // ---- commands ----

    /// Decided on a state that is no more, it changes nothing.
    pub(super) fn set_rule(&mut self, counter: &CounterName, revision: u64, rule: Option<ClaimRule>) {
        if self.revision(counter) == revision {
            self.rules.insert(counter.clone(), Ruled { rule, revision: revision + 1 });
        }
    }

    /// An award was made.
    pub(super) fn on_award(&mut self, counter: &CounterName, at: u64, index: LogIndex) {
        let first = (counter.clone(), 0);
        let passed: Vec<_> = self.waiting.range(first..).take_while(|key| key.0 == *counter).cloned().collect();
        for key in passed {
            self.pass(&key, at, index);
        }
        if let Some(rule) = self.rule(counter) {
            let key = (counter.clone(), at);
            self.open.insert(key.clone());
            self.claims.insert(key, Claim { state: ClaimState::Open, holder: at, passes: 0, until: None, rule });
        }
    }

    /// Sets until when the holder of an award's claim may claim it; once.
    pub(super) fn set_until(&mut self, counter: &CounterName, at: u64, holder: u64, until: WallMs) {
        if let Some(claim) = self.held(counter, at, holder) {
            let said = claim.until.filter(|_| !bites(Bug::ClaimTimeMoves));
            claim.until = said.or(Some(until));
        }
    }

    /// The holder's time is over. `state` is the counter's.
    pub(super) fn on_over(
        &mut self,
        counter: &CounterName,
        at: u64,
        holder: u64,
        index: LogIndex,
        state: &CounterLedger,
    ) {
        let Some(claim) = self.held(counter, at, holder).filter(|claim| claim.until.is_some()) else { return };
        let key = (counter.clone(), at);
        let lapses = claim.rule.fallback == Fallback::Nobody || claim.passes >= CLAIM_PASSES_MAX;
        match next_award(state, holder) {
            Some(next) if !lapses => self.pass(&key, next, index),
            _ => {
                let (state, kind) = match lapses {
                    true => (ClaimState::Lapsed, TurnKind::Lapsed),
                    false => (ClaimState::Waiting, TurnKind::Waiting),
                };
                claim.state = state;
                self.open.remove(&key);
                self.turned(&key, index, Turn { kind, holder });
                if !lapses {
                    self.waiting.insert(key);
                }
            }
        }
    }

    /// A session claims an award: only the session that holds the claim may, once.
    pub(super) fn claim(&mut self, claimant: &Claimant<'_>, index: LogIndex, awards: &BTreeMap<u64, Awarded>) {
        let Claimant { counter, at, holder, session, id } = *claimant;
        let key = (counter.clone(), at);
        let held = |claim: &&mut Claim| claim.may_be_claimed() && claim.holder == holder;
        let Some(claim) = self.claims.get_mut(&key).filter(held) else { return };
        let of = awards.get(&holder).and_then(|awarded| awarded.award.session);
        if of == Some(session) || bites(Bug::ClaimOfAnybody) {
            claim.state = ClaimState::Claimed { id, index };
            let turn = Turn { kind: TurnKind::Claimed, holder: claim.holder };
            self.open.remove(&key);
            self.turned(&key, index, turn);
        }
    }

    /// An open claim, if it is held by this award's session.
    fn held(&mut self, counter: &CounterName, at: u64, holder: u64) -> Option<&mut Claim> {
        let claim = self.claims.get_mut(&(counter.clone(), at))?;
        let holds = claim.holder == holder || bites(Bug::ClaimOverOfAnother);
        (claim.state == ClaimState::Open && holds).then_some(claim)
    }

    /// Passes an unclaimed award on to the winner of a later one, with as much time.
    fn pass(&mut self, key: &(CounterName, u64), holder: u64, index: LogIndex) {
        let Some(claim) = self.claims.get_mut(key) else { return };
        let before = (key.0.clone(), claim.holder);
        (claim.state, claim.holder, claim.until) = (ClaimState::Open, holder, None);
        claim.passes += 1;
        if let Some(theirs) = self.passed.get_mut(&before) {
            theirs.remove(&key.1);
            // A replica that begins with a snapshot has no empty ones.
            if theirs.is_empty() {
                self.passed.remove(&before);
            }
        }
        self.passed.entry((key.0.clone(), holder)).or_default().insert(key.1);
        self.waiting.remove(key);
        self.open.insert(key.clone());
        self.turned(key, index, Turn { kind: TurnKind::Passed, holder });
    }

    fn turned(&mut self, key: &(CounterName, u64), index: LogIndex, turn: Turn) {
        self.turns.entry(index).or_default().insert(key.clone(), turn);
    }

    /// The number of items that [`check_invariants`](Self::check_invariants) looks at: claims, and turns that they took.
    pub fn size(&self) -> usize {
        self.claims.len() + self.turns.len()
    }

    /// Panics when a rule about one claim is broken.
    pub fn check_claim(&self, counter: &CounterName, at: u64) {
        let key = (counter.clone(), at);
        if let Some(claim) = self.claims.get(&key) {
            self.check_indexed(&key, claim);
        }
    }

    fn check_indexed(&self, key: &(CounterName, u64), claim: &Claim) {
        assert_eq!(self.open.contains(key), claim.state == ClaimState::Open, "{key:?}");
        assert_eq!(self.waiting.contains(key), claim.state == ClaimState::Waiting, "{key:?}");
        assert!(claim.passes <= CLAIM_PASSES_MAX, "{key:?}");
        let theirs = self.passed.get(&(key.0.clone(), claim.holder));
        assert_eq!(theirs.is_some_and(|theirs| theirs.contains(&key.1)), claim.holder != key.1, "{key:?}");
    }

    /// Panics when a rule is broken. Looks at every claim there ever was.
    pub fn check_invariants(&self) {
        self.claims.iter().for_each(|(key, claim)| self.check_indexed(key, claim));
        assert!(self.passed.values().all(|theirs| !theirs.is_empty()));
        let passed: usize = self.passed.values().map(BTreeSet::len).sum();
        assert_eq!(passed, self.claims.iter().filter(|(key, claim)| claim.holder != key.1).count());
        assert!(self.open.iter().chain(&self.waiting).all(|key| self.claims.contains_key(key)));
        for (&at, key, turn) in
            self.turns.iter().flat_map(|(at, turns)| turns.iter().map(move |(key, turn)| (at, key, turn)))
        {
            let claimed = matches!(self.claims[key].state, ClaimState::Claimed { index, .. } if index == at);
            assert_eq!(claimed, turn.kind == TurnKind::Claimed, "{key:?}");
        }
    }
}

/// The award after that at `holder`: the next milestone of its epoch, or else the first of a later one. An increment may have several
/// awards: they are one winner's.
fn next_award(state: &CounterLedger, holder: u64) -> Option<u64> {
    let of = &state.awards().get(&holder)?.award;
    let of_same = |(_, awarded): &(&u64, &Awarded)| awarded.award.epoch == of.epoch && awarded.award.first != of.first;
    let mut later = state.awards().range(holder + 1..).filter(of_same);
    let next = if bites(Bug::ClaimPassesTooFar) { later.next_back() } else { later.next() };
    let of_later = || {
        let later = state.awards().iter().filter(|(_, awarded)| awarded.award.epoch > of.epoch);
        later.min_by_key(|(at, awarded)| (awarded.award.epoch, **at))
    };
    // With one epoch only, which is nearly always so, there is nothing to look through.
    next.or_else(|| if of.epoch < state.epoch() { of_later() } else { None }).map(|(&at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Ledger;
    use proptest::prelude::*;
    use tidemark_types::ids::{ClientId, DcId, GroupId};
    use tidemark_wire::msg::{Hello, MilestoneSpec, Offer, OfferBody, OfferItem};

    const PERIOD: ClaimRule = ClaimRule { period_s: 60, fallback: Fallback::NextAward };

    fn counter() -> CounterName {
        CounterName::new("search", b"queries").unwrap()
    }

    fn session(of: u64) -> SessionId {
        SessionId([of as u8; 16])
    }

    /// Every increment is a milestone, and number n is session n's; multiples of five have none.
    struct World {
        ledger: Ledger,
        index: u64,
        counted: u64,
        /// The session of the next increment, if it is another one's.
        wins_next: Option<u64>,
    }

    impl World {
        fn new(rule: Option<ClaimRule>) -> World {
            let mut world = World { ledger: Ledger::default(), index: 0, counted: 0, wins_next: None };
            let group = GroupId { dc: DcId(0), group: 0, incarnation: 1 };
            let spec = MilestoneSpec { every: Some(1), ..MilestoneSpec::default() };
            world.apply(LedgerCmd::Namespace("search".into()));
            world.apply(LedgerCmd::Define { counter: counter(), revision: 0, spec });
            world.apply(LedgerCmd::ClaimRule { counter: counter(), revision: 0, rule });
            world.apply(LedgerCmd::Hello(Hello { group, lanes: 1, nonces: vec![1], number: 1, accounts: Vec::new() }));
            world
        }

        fn apply(&mut self, cmd: LedgerCmd) {
            self.index += 1;
            self.ledger.apply(LogIndex(self.index), &cmd);
            self.ledger.check_invariants();
        }

        /// Counts one; its number.
        fn count(&mut self) -> u64 {
            let group = GroupId { dc: DcId(0), group: 0, incarnation: 1 };
            let first_pos = self.counted;
            let number = self.counted + 1;
            let own = (!number.is_multiple_of(5)).then_some(number);
            let session = self.wins_next.take().or(own).map(session);
            let item = OfferItem { delta: 1, session, client: ClientId(1), lane: 0, seq: number, idx: 0 };
            let body = OfferBody::Items(vec![item]);
            self.counted = number;
            self.apply(LedgerCmd::Offer(Offer { counter: counter(), epoch: 1, group, start: 1, first_pos, body }));
            assert!(self.ledger.counter(&counter()).unwrap().is_awarded(number));
            number
        }

        fn claim(&mut self, at: u64, of: u64, id: u128) {
            let holder = self.ledger.claims().get(&counter(), at).map_or(at, |claim| claim.holder);
            self.claim_as(at, holder, of, id);
        }

        fn claim_as(&mut self, at: u64, holder: u64, of: u64, id: u128) {
            self.apply(LedgerCmd::Claim { counter: counter(), at, holder, session: session(of), id });
        }

        fn until(&mut self, at: u64, holder: u64) {
            self.apply(LedgerCmd::ClaimUntil { counter: counter(), at, holder, until: WallMs(1_000) });
        }

        fn over(&mut self, at: u64, holder: u64) {
            self.apply(LedgerCmd::ClaimOver { counter: counter(), at, holder });
        }

        fn state(&self, at: u64) -> Option<ClaimState> {
            self.ledger.claims().get(&counter(), at).map(|claim| claim.state)
        }

        fn claimed(&self, at: u64) -> Option<u128> {
            match self.state(at) {
                Some(ClaimState::Claimed { id, .. }) => Some(id),
                _ => None,
            }
        }
    }

    #[test]
    fn who_is_named_claims_once_and_nobody_else() {
        let mut world = World::new(Some(PERIOD));
        world.count();
        world.until(1, 1);
        world.claim(1, 2, 7);
        assert_eq!(world.state(1), Some(ClaimState::Open), "another session's");
        world.claim(1, 1, 8);
        world.claim(1, 1, 9);
        world.over(1, 1);
        world.count();
        assert_eq!(world.claimed(1), Some(8));
        world.count();
        world.claim(3, 4, 1);
        assert_eq!((world.claimed(3), world.ledger.claims().get(&counter(), 4)), (None, None));
    }

    #[test]
    fn what_nobody_claims_lapses_or_passes_on_as_the_rule_says() {
        let mut world = World::new(Some(ClaimRule { fallback: Fallback::Nobody, ..PERIOD }));
        world.count();
        world.over(1, 1);
        assert_eq!(world.state(1), Some(ClaimState::Open), "nobody has said how long");
        world.until(1, 1);
        world.over(1, 1);
        world.claim(1, 1, 7);
        assert_eq!(world.state(1), Some(ClaimState::Lapsed));
        // A rule is for awards to come; a late copy of an earlier change changes nothing.
        world.apply(LedgerCmd::ClaimRule { counter: counter(), revision: 1, rule: Some(PERIOD) });
        world.apply(LedgerCmd::ClaimRule { counter: counter(), revision: 1, rule: None });
        assert_eq!(world.ledger.claims().rule(&counter()), Some(PERIOD));
        world.count();
        world.until(2, 2);
        world.over(2, 2);
        assert_eq!(world.state(2), Some(ClaimState::Waiting));
        world.claim(2, 2, 7);
        world.count();
        let claim = *world.ledger.claims().get(&counter(), 2).unwrap();
        assert_eq!((claim.state, claim.holder, claim.until), (ClaimState::Open, 3, None));
        let passed_to = |world: &World, holder| {
            world.ledger.claims().passed_to(&counter(), holder).map(|(at, claim)| (at, claim.state)).collect::<Vec<_>>()
        };
        assert_eq!((passed_to(&world, 3), passed_to(&world, 2)), (vec![(2, ClaimState::Open)], vec![]));
        // The time of the earlier holder was over, not that of the present one.
        world.over(2, 2);
        world.claim(2, 2, 8);
        world.claim(2, 3, 9);
        assert_eq!(
            (world.claimed(2), world.state(3), world.state(1)),
            (Some(9), Some(ClaimState::Open), Some(ClaimState::Lapsed))
        );
    }

    #[test]
    fn every_turn_is_told_in_the_order_of_the_log() {
        let mut world = World::new(Some(PERIOD));
        world.count();
        world.until(1, 1);
        world.over(1, 1);
        let waits = world.index;
        world.count();
        world.until(1, 2);
        world.claim(1, 2, 7);
        world.claim(1, 2, 8);
        let turns = |first| -> Vec<(u64, TurnKind, u64)> {
            let turns = world.ledger.claims().turns(LogIndex(first));
            turns.map(|(_, _, at, Turn { kind, holder })| (at, kind, holder)).collect()
        };
        let all = [(1, TurnKind::Waiting, 1), (1, TurnKind::Passed, 2), (1, TurnKind::Claimed, 2)];
        assert_eq!((turns(0), turns(waits + 1)), (all.to_vec(), all[1..].to_vec()));
    }

    #[test]
    fn a_claim_that_was_denied_does_not_count_when_the_award_comes_back_to_its_session() {
        let mut world = World::new(Some(PERIOD));
        world.count();
        world.until(1, 1);
        world.over(1, 1);
        world.count();
        world.until(1, 2);
        // The first session wins again, and holds the claim again.
        world.wins_next = Some(1);
        world.over(1, 2);
        world.count();
        world.claim_as(1, 1, 1, 7);
        assert_eq!(world.state(1), Some(ClaimState::Open), "late: it was told that the time is over");
        world.claim_as(1, 3, 1, 8);
        assert_eq!(world.claimed(1), Some(8));
    }

    #[test]
    fn what_nobody_wants_does_not_pile_up() {
        let mut world = World::new(Some(PERIOD));
        for number in 1..=u64::from(CLAIM_PASSES_MAX) + 1 {
            world.count();
            assert_eq!(world.state(1), Some(ClaimState::Open), "{number}");
            world.until(1, number);
            world.over(1, number);
        }
        assert_eq!(world.state(1), Some(ClaimState::Lapsed));
    }

    #[test]
    fn the_leader_says_what_is_due_and_no_more() {
        let mut world = World::new(Some(PERIOD));
        world.count();
        world.count();
        let due = |world: &World, now| world.ledger.claims().due(WallMs(now), true, 10);
        let begun = due(&world, 5_000);
        assert_eq!((begun.len(), world.ledger.claims().due(WallMs(5_000), false, 1).len()), (2, 1));
        for cmd in begun {
            world.apply(cmd);
        }
        assert_eq!(due(&world, 64_999), []);
        world.claim(1, 1, 7);
        assert_eq!(world.ledger.claims().due(WallMs(65_000), false, 10), [], "it has just begun to lead");
        let over = due(&world, 65_000);
        assert_eq!(over, [LedgerCmd::ClaimOver { counter: counter(), at: 2, holder: 2 }]);
        world.apply(over[0].clone());
        assert_eq!((due(&world, 70_000), world.state(2)), (vec![], Some(ClaimState::Waiting)));
    }

    #[test]
    fn without_a_rule_nothing_is_claimed() {
        let mut world = World::new(None);
        world.count();
        world.claim(1, 1, 7);
        assert_eq!((world.state(1), world.ledger.claims().open().count()), (None, 0));
    }

    proptest! {
        /// With any commands in any order, copies included: a claim that counted stays, it was the holder's, and each award has
        /// one.
        #[test]
        fn a_claim_that_counted_stays_and_was_the_holders(
            steps in prop::collection::vec((0u8..6, 1u64..4, 0u64..8, 0u128..4), 1..120),
            nobody in any::<bool>(),
        ) {
            let fallback = if nobody { Fallback::Nobody } else { Fallback::NextAward };
            let mut world = World::new(Some(ClaimRule { fallback, ..PERIOD }));
            let mut claimed: BTreeMap<u64, u128> = BTreeMap::new();
            for (what, at, other, id) in steps {
                let before = world.ledger.claims().get(&counter(), at).copied();
                // Mostly the present holder, else an earlier one or a session that never held it.
                let other = before.filter(|_| other > 2).map_or(other + 1, |claim| claim.holder);
                match what {
                    0 => drop(world.count()),
                    1 | 2 => world.claim(at, other, id),
                    3 => world.until(at, other),
                    4 => world.over(at, other),
                    _ => {
                        let copy = postcard::to_allocvec(&world.ledger).unwrap();
                        world.ledger = postcard::from_bytes(&copy).unwrap();
                    }
                }
                for number in 1..4 {
                    let before = claimed.get(&number).copied();
                    prop_assert!(number == at || world.claimed(number) == before, "another one's claim");
                    prop_assert!(before.is_none() || world.claimed(number) == before, "it stays");
                }
                if let Some(id) = world.claimed(at).filter(|_| !claimed.contains_key(&at)) {
                    prop_assert_eq!(before.map(|claim| (claim.state, claim.holder)), Some((ClaimState::Open, other)));
                    prop_assert!(other % 5 != 0, "an increment without a session");
                    claimed.insert(at, id);
                }
                if nobody {
                    prop_assert!(world.ledger.claims().get(&counter(), at).is_none_or(|claim| claim.holder == at));
                }
            }
        }
    }
}
