//! A claim on its way at one data centre. It is submitted to the ledger once the replica here shows that it may count, and
//! answered with the replica's state after that. A retry under the same name, here or elsewhere, is the same claim.

use crate::ledger::{Claim, ClaimState, Fate, Ledger};
use tidemark_types::ids::{CounterName, SessionId};
use tidemark_types::teeth::{Bug, bites};
use tidemark_types::time::{Span, Time};
use tidemark_wire::msg::LedgerCmd;

/// Time for the ledger, which may be electing a leader.
pub const CLAIM_PATIENCE: Span = Span::from_secs(20);
/// Time for entries that a replica may not have applied yet, before a claim is denied.
pub const LAG_PATIENCE: Span = Span::from_secs(1);

/// Why a claim is none, as far as is known here. Nothing was changed but for [`ClaimError::InDoubt`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimError {
    /// The milestone is to come.
    NotAwarded,
    /// There is no such milestone, or it was passed before it could be armed: it has no award.
    NoAward,
    /// There was no rule when it was awarded.
    NotToBeClaimed,
    /// Another session may claim it.
    NotTheHolder,
    /// It is claimed under another name. That stays so.
    Claimed,
    /// The award was not claimed in time.
    Over,
    /// The ledger did not answer in time: the claim may count or not. A retry under its name gets the answer.
    InDoubt,
}

/// The claim of an award, as a replica shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claimable {
    /// The award's (first) milestone.
    pub at: u64,
    pub claim: Claim,
    /// The session that may claim it, or has.
    pub holder: Option<SessionId>,
}

impl Ledger {
    /// The claim of the award that covers the milestone `at`.
    pub fn claimable(&self, counter: &CounterName, at: u64) -> Result<Claimable, ClaimError> {
        let award = match self.fate(counter, at) {
            Fate::Awarded(awarded) => &awarded.award,
            Fate::Armed | Fate::Arming => return Err(ClaimError::NotAwarded),
            Fate::Passed | Fate::Unknown => return Err(ClaimError::NoAward),
        };
        let claim = *self.claims().get(counter, award.at).ok_or(ClaimError::NotToBeClaimed)?;
        let holder = self.counter(counter).and_then(|state| state.awards().get(&claim.holder));
        Ok(Claimable { at: award.at, claim, holder: holder.and_then(|awarded| awarded.award.session) })
    }
}

/// The next action for a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Submit it, and look again.
    Say(LedgerCmd),
    /// Look again when the replica has applied more, or some time has passed.
    Wait,
    /// It counts, or it does not.
    Done(Result<Claimable, ClaimError>),
}

/// A claim that waits for its answer.
#[derive(Clone, Debug)]
pub struct Claiming {
    counter: CounterName,
    at: u64,
    session: SessionId,
    name: u128,
    began: Time,
    /// When it was submitted, and the holder of the award's claim then.
    said: Option<(Time, u64)>,
}

impl Claiming {
    /// A session claims the award that covers the milestone `at`. Claims of different sessions must differ in their `name`.
    pub fn new(now: Time, counter: CounterName, at: u64, session: SessionId, name: u128) -> Claiming {
        Claiming { counter, at, session, name, began: now, said: None }
    }

    /// Whether it was handed to the ledger.
    pub fn is_said(&self) -> bool {
        self.said.is_some()
    }

    /// Looks at the replica here.
    pub fn look(&mut self, now: Time, ledger: &Ledger) -> Step {
        match (self.judge(ledger), self.said) {
            (Ok((found, true)), _) => Step::Done(Ok(found)),
            (Ok((found, false)), None) => {
                self.said = Some((now, found.claim.holder));
                Step::Say(self.command(&found))
            }
            // It has passed on, and come back to this session by a later award.
            (Ok((found, false)), Some((_, holder))) if found.claim.holder != holder => {
                Step::Done(Err(ClaimError::Over))
            }
            (Ok(_), Some((said, _))) if now - said >= CLAIM_PATIENCE => Step::Done(Err(ClaimError::InDoubt)),
            (Ok(_), Some(_)) => Step::Wait,
            // That it is claimed stays so; of all else another replica may know more.
            (Err(error), None) if error != ClaimError::Claimed && now - self.began < LAG_PATIENCE => Step::Wait,
            (Err(error), _) => Step::Done(Err(error)),
        }
    }

    /// The award's claim, and whether it is this one already; else it may be.
    fn judge(&self, ledger: &Ledger) -> Result<(Claimable, bool), ClaimError> {
        let found = ledger.claimable(&self.counter, self.at)?;
        match found.claim.state {
            ClaimState::Claimed { id, .. } if id == self.name => Ok((found, true)),
            ClaimState::Claimed { .. } if bites(Bug::ClaimNameLoose) && found.holder == Some(self.session) => {
                Ok((found, true))
            }
            _ if found.holder != Some(self.session) => Err(ClaimError::NotTheHolder),
            ClaimState::Open => Ok((found, false)),
            ClaimState::Claimed { .. } => Err(ClaimError::Claimed),
            ClaimState::Waiting | ClaimState::Lapsed => Err(ClaimError::Over),
        }
    }

    fn command(&self, found: &Claimable) -> LedgerCmd {
        let counter = self.counter.clone();
        let at = found.at;
        let holder = found.claim.holder;
        LedgerCmd::Claim { counter, at, holder, session: self.session, id: self.name }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemark_types::ids::{ClientId, DcId, GroupId, LogIndex};
    use tidemark_types::time::WallMs;
    use tidemark_wire::msg::{ClaimRule, Fallback, Hello, MilestoneSpec, Offer, OfferBody, OfferItem};

    const WINNER: SessionId = SessionId([1; 16]);
    const OTHER: SessionId = SessionId([2; 16]);

    fn counter() -> CounterName {
        CounterName::new("search", b"queries").unwrap()
    }

    fn group() -> GroupId {
        GroupId { dc: DcId(0), group: 0, incarnation: 1 }
    }

    fn apply(ledger: &mut Ledger, cmd: LedgerCmd) {
        let index = LogIndex(ledger.applied().0 + 1);
        ledger.apply(index, &cmd);
    }

    /// Milestones 2 and 1,000; only the holder may make the first claims.
    fn ledger() -> Ledger {
        let mut ledger = Ledger::default();
        let spec = MilestoneSpec { at: vec![2, 1_000], ..MilestoneSpec::default() };
        let rule = Some(ClaimRule { period_s: 60, fallback: Fallback::Nobody });
        apply(&mut ledger, LedgerCmd::Namespace("search".into()));
        apply(&mut ledger, LedgerCmd::Define { counter: counter(), revision: 0, spec });
        apply(&mut ledger, LedgerCmd::ClaimRule { counter: counter(), revision: 0, rule });
        let hello = Hello { group: group(), lanes: 1, nonces: vec![1], number: 1, accounts: Vec::new() };
        apply(&mut ledger, LedgerCmd::Hello(hello));
        ledger
    }

    /// Number 1 to 3 are the winner's.
    fn award(ledger: &mut Ledger) {
        let item = OfferItem { delta: 3, session: Some(WINNER), client: ClientId(1), lane: 0, seq: 1, idx: 0 };
        let body = OfferBody::Items(vec![item]);
        let offer = Offer { counter: counter(), epoch: 1, group: group(), start: 1, first_pos: 0, body };
        apply(ledger, LedgerCmd::Offer(offer));
    }

    fn claiming(session: SessionId, name: u128) -> Claiming {
        Claiming::new(Time(0), counter(), 2, session, name)
    }

    fn denied(error: ClaimError) -> Step {
        Step::Done(Err(error))
    }

    #[test]
    fn a_claim_is_said_once_and_answered_when_the_replica_shows_it() {
        let mut ledger = ledger();
        let mut one = claiming(WINNER, 7);
        assert_eq!(one.look(Time(0), &ledger), Step::Wait, "the replica may be behind");
        award(&mut ledger);
        let Step::Say(cmd) = one.look(Time(1), &ledger) else { panic!("it may be claimed") };
        assert_eq!((one.look(Time(2), &ledger), one.is_said()), (Step::Wait, true));
        let mut other = claiming(WINNER, 8);
        assert!(matches!(other.look(Time(2), &ledger), Step::Say(_)));
        apply(&mut ledger, cmd);
        for mut same in [one, claiming(WINNER, 7)] {
            assert!(matches!(same.look(Time(3), &ledger), Step::Done(Ok(Claimable { at: 2, .. }))));
        }
        for mut second in [other, claiming(WINNER, 9)] {
            assert_eq!(second.look(Time(3), &ledger), denied(ClaimError::Claimed), "at once");
        }
    }

    #[test]
    fn what_a_replica_may_not_have_heard_of_is_denied_after_a_while() {
        let mut ledger = ledger();
        let late = Time(LAG_PATIENCE.0);
        assert_eq!(claiming(WINNER, 7).look(late, &ledger), denied(ClaimError::NotAwarded));
        award(&mut ledger);
        let mut other = claiming(OTHER, 7);
        assert_eq!(other.look(Time(0), &ledger), Step::Wait);
        assert_eq!(other.look(late, &ledger), denied(ClaimError::NotTheHolder));
        let mut unknown = Claiming::new(Time(0), counter(), 5, WINNER, 7);
        assert_eq!(unknown.look(late, &ledger), denied(ClaimError::NoAward));
    }

    #[test]
    fn who_is_not_answered_is_in_doubt_and_who_is_too_late_is_told() {
        let mut ledger = ledger();
        award(&mut ledger);
        let mut claiming = claiming(WINNER, 7);
        claiming.look(Time(5), &ledger);
        let mut told = claiming.clone();
        assert_eq!(claiming.look(Time(5) + CLAIM_PATIENCE, &ledger), denied(ClaimError::InDoubt));
        apply(&mut ledger, LedgerCmd::ClaimUntil { counter: counter(), at: 2, holder: 2, until: WallMs(9) });
        apply(&mut ledger, LedgerCmd::ClaimOver { counter: counter(), at: 2, holder: 2 });
        assert_eq!(told.look(Time(6), &ledger), denied(ClaimError::Over));
    }
}
