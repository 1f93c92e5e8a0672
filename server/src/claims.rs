//! Claims of awards at one data centre: the winner of an award confirms it, once and in time.

use crate::api::Failure;
use crate::names::{is_id, sha256_prefix};
use crate::patience::late;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use tidemark_aggregator::{Aggregator, LEDGER_PATIENCE, LEDGER_POLL, shown};
use tidemark_proto::claiming::{ClaimError, Claimable, Claiming, Step};
use tidemark_proto::ids::{CounterName, SessionId};
use tidemark_proto::ledger::{ClaimState, Ledger};
use tidemark_proto::limits::CLAIM_PERIOD_S_MAX;
use tidemark_proto::msg::{ClaimRule, Fallback};
use tidemark_proto::time::Time;
use tokio::time::{Instant, sleep};

/// Longest name of a claim, in bytes.
pub const CLAIM_ID_BYTES_MAX: usize = 128;
/// How often the replica here is looked at for what it may not have heard of yet.
const LAG_POLL: Duration = Duration::from_millis(100);
/// Awards in a claim's `also`.
const ALSO_MAX: usize = 100;

/// Looks after claims at one data centre. Clones are the same.
#[derive(Clone)]
pub struct Claims(Aggregator);

/// How a counter's awards to come are claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClaimRuleBody {
    /// For how long, in seconds, 1 to 30 days; 0: not at all.
    #[schemars(schema_with = "crate::schemas::claim_period")]
    pub period_s: u32,
    /// The fate of awards that are not claimed.
    #[serde(default = "nobody")]
    #[schemars(schema_with = "crate::schemas::fallback")]
    pub fallback: Fallback,
}

fn nobody() -> Fallback {
    Fallback::Nobody
}

/// The state of an award's claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClaimBody {
    pub state: ClaimStateBody,
    /// The award's (first) milestone.
    pub at: u64,
    /// The award that names the session with the right to claim: its own, or a later award of the counter, after it passed to that winner.
    pub holder: u64,
    /// Until when it may, in milliseconds since 1970; `null` for a moment at the beginning.
    pub until_unix_ms: Option<u64>,
    #[schemars(schema_with = "crate::schemas::fallback")]
    pub fallback: Fallback,
    /// The ledger entry that made the claim count.
    pub index: Option<u64>,
    /// Other awards of the counter that have passed to this one's winner; the first 100.
    pub also: Vec<AlsoBody>,
}

/// An award that has passed to the winner of a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AlsoBody {
    /// Its (first) milestone.
    pub at: u64,
    pub state: ClaimStateBody,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ClaimStateBody {
    Open,
    Claimed,
    /// It was not claimed in time, and waits for the counter's next award.
    Waiting,
    /// It was not claimed in time, and can be claimed no more.
    Lapsed,
}

impl Claims {
    pub fn new(aggregator: &Aggregator) -> Claims {
        Claims(aggregator.clone())
    }

    /// The rule for a counter's awards to come.
    pub fn rule(&self, counter: &CounterName) -> ClaimRuleBody {
        let rule = self.0.with_ledger(|ledger| ledger.claims().rule(counter));
        rule.map_or(ClaimRuleBody { period_s: 0, fallback: Fallback::Nobody }, |rule| ClaimRuleBody {
            period_s: rule.period_s,
            fallback: rule.fallback,
        })
    }

    /// Changes the rule for a counter's awards to come; returns once the ledger has applied it.
    ///
    /// # Errors
    /// The counter has no milestones, the time is too long, or another operator changed the rule at the same time.
    pub async fn set_rule(&self, counter: &CounterName, wanted: ClaimRuleBody) -> Result<ClaimRuleBody, Failure> {
        let ClaimRuleBody { period_s, fallback } = wanted;
        if period_s > CLAIM_PERIOD_S_MAX {
            let message = format!("period_s is {period_s}: at most {CLAIM_PERIOD_S_MAX} allowed, or 0 for no claims");
            return Err(Failure::Invalid { code: "period_s", message });
        }
        if self.0.with_ledger(|ledger| ledger.counter(counter).is_none()) {
            return Err(Failure::NotFound(format!("{counter} has no milestones: define one before")));
        }
        let rule = (period_s > 0).then_some(ClaimRule { period_s, fallback });
        let known = || self.0.with_ledger(|ledger| (ledger.claims().rule(counter), ledger.claims().revision(counter)));
        let (_, revision) = known();
        self.0.set_claim_rule(counter, revision, rule).await;
        let later = || Some(known()).filter(|&(_, at)| at > revision);
        match shown(LEDGER_PATIENCE, later).await {
            Some((stands, _)) if stands == rule => Ok(self.rule(counter)),
            Some(_) => {
                let message = format!(
                    "the claims of {counter} were changed at the same time: read the present state, and decide again"
                );
                Err(Failure::Conflict { code: "changed", message })
            }
            None => Err(late()),
        }
    }

    /// How the claim of the award stands that covers the milestone `at`.
    ///
    /// # Errors
    /// It is not awarded, or its awards were not claimed when it was.
    pub fn of(&self, counter: &CounterName, at: u64) -> Result<ClaimBody, Failure> {
        self.0.with_ledger(|ledger| match ledger.claimable(counter, at) {
            Ok(found) => Ok(body(&found, ledger, counter)),
            Err(error) => Err(failure(error, counter, at)),
        })
    }

    /// Claims an award for a session under a name of its choice: with the same name again, it is the same claim.
    ///
    /// # Errors
    /// It is not awarded, another session's, claimed, or its time is over.
    pub async fn claim(
        &self,
        counter: &CounterName,
        at: u64,
        session: SessionId,
        id: &str,
    ) -> Result<ClaimBody, Failure> {
        let name = name_of(session, id)?;
        let began = Instant::now();
        let mut claiming = Claiming::new(Time(0), counter.clone(), at, session, name);
        loop {
            let now = Time(began.elapsed().as_micros() as u64);
            match self.0.with_ledger(|ledger| claiming.look(now, ledger)) {
                Step::Say(claim) => self.0.claim(claim).await,
                Step::Wait => sleep(if claiming.is_said() { LEDGER_POLL } else { LAG_POLL }).await,
                Step::Done(Ok(found)) => return Ok(self.0.with_ledger(|ledger| body(&found, ledger, counter))),
                Step::Done(Err(error)) => return Err(failure(error, counter, at)),
            }
        }
    }
}

/// The stored form of a claim's name. Claims of the same name by two sessions differ.
fn name_of(session: SessionId, id: &str) -> Result<u128, Failure> {
    if !is_id(id, CLAIM_ID_BYTES_MAX) {
        let message =
            format!("id of {} bytes: 1 to {CLAIM_ID_BYTES_MAX} visible ASCII characters are allowed", id.len());
        return Err(Failure::Invalid { code: "id", message });
    }
    Ok(u128::from_be_bytes(sha256_prefix(&[&session.0, id.as_bytes()])))
}

fn failure(error: ClaimError, counter: &CounterName, at: u64) -> Failure {
    let conflict = |code, message: String| Failure::Conflict { code, message };
    match error {
        ClaimError::NotAwarded => conflict("not_awarded", format!("milestone {at} of {counter} is not awarded yet")),
        ClaimError::NoAward => Failure::NotFound(format!("{counter} has no award for {at}")),
        ClaimError::NotToBeClaimed => {
            Failure::NotFound(format!("the award for {at} of {counter} is not to be claimed: there was no rule"))
        }
        ClaimError::NotTheHolder => {
            Failure::Forbidden(format!("the award for {at} of {counter} is another session's to claim"))
        }
        ClaimError::Claimed => conflict("claimed", format!("the award for {at} of {counter} is claimed already")),
        ClaimError::Over => {
            conflict("claim_over", format!("the time to claim the award for {at} of {counter} is over"))
        }
        ClaimError::InDoubt => late(),
    }
}

fn body(found: &Claimable, ledger: &Ledger, counter: &CounterName) -> ClaimBody {
    let Claimable { at, claim, .. } = *found;
    let (state, index) = stands(claim.state);
    let until_unix_ms = claim.until.map(|until| until.0);
    let passed = ledger.claims().passed_to(counter, at).take(ALSO_MAX);
    let also = passed.map(|(at, claim)| AlsoBody { at, state: stands(claim.state).0 }).collect();
    ClaimBody { state, at, holder: claim.holder, until_unix_ms, fallback: claim.rule.fallback, index, also }
}

/// The state, and the entry that made a claim count.
fn stands(state: ClaimState) -> (ClaimStateBody, Option<u64>) {
    match state {
        ClaimState::Open => (ClaimStateBody::Open, None),
        ClaimState::Claimed { index, .. } => (ClaimStateBody::Claimed, Some(index.0)),
        ClaimState::Waiting => (ClaimStateBody::Waiting, None),
        ClaimState::Lapsed => (ClaimStateBody::Lapsed, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claims_name_is_its_sessions_and_bounded() {
        let one = SessionId([1; 16]);
        let other = SessionId([2; 16]);
        assert_eq!(name_of(one, "a").unwrap(), name_of(one, "a").unwrap());
        assert_ne!(name_of(one, "a").unwrap(), name_of(other, "a").unwrap());
        for wrong in ["", "a b", "é", &"x".repeat(CLAIM_ID_BYTES_MAX + 1)] {
            assert_eq!(name_of(one, wrong).unwrap_err().code(), "id");
        }
    }
}
