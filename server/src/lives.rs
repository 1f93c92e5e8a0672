//! Lives of counters at one data centre: a counter is reset, removed, or given a time to expire.

use crate::api::Failure;
use crate::api::body::Signed;
use crate::api::lag::LivesUsed;
use crate::audit::{self, AuditBody};
use crate::patience::late;
pub use crate::schemas::EXPIRES_S_MAX;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tidemark_aggregator::{Aggregator, LEDGER_PATIENCE, LEDGER_POLL, shown};
use tidemark_proto::asking::About;
use tidemark_proto::ids::CounterName;
use tidemark_proto::ledger::{Ledger, Life, ResetError};
use tidemark_proto::msg::LedgerCmd;
use tidemark_proto::time::WallMs;
use tokio::time::{Instant, sleep};

/// So long an answer waits for groups to hear of a reset.
const HEARD_PATIENCE: Duration = Duration::from_secs(2);

/// Resets counters of one data centre. Clones are the same.
#[derive(Clone)]
pub struct Lives(Aggregator);

/// The present life of a counter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LifeBody {
    /// The number of resets of the counter.
    pub generation: u32,
    /// When it is removed, in milliseconds since 1970; `null`: never.
    pub expires_unix_ms: Option<u64>,
    /// Groups that may not have received the generation yet: any group of this data centre, and groups of other data centres with counters
    /// that have milestones. Until then, increments at these groups belong to the previous generation.
    pub waits_for: Vec<String>,
    /// Said when the ledger has little room left for counters that are reset or removed, or that expire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
}

/// A counter that began again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BegunBody {
    pub generation: u32,
    /// Its value here, as far as it was known; `null` in the answer to a request that was carried out before.
    pub was: Option<Signed>,
    /// As in [`LifeBody`].
    pub waits_for: Vec<String>,
    /// As in [`LifeBody`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
}

/// `POST …/reset`.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResetBody {
    /// Resets only this generation: said again, it is the same reset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub if_generation: Option<u32>,
}

/// `PUT …/life`: one of both, or neither for a counter that never expires.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExpiryBody {
    /// In milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_unix_ms: Option<u64>,
    /// In seconds from now on, 1 to 100 years.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schemas::expires_or_null")]
    pub expires_s: Option<u64>,
    /// Only if the counter is in this generation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub if_generation: Option<u32>,
}

impl Lives {
    pub fn new(aggregator: &Aggregator) -> Lives {
        Lives(aggregator.clone())
    }

    /// The present life of a counter.
    pub async fn of(&self, counter: &CounterName) -> Result<LifeBody, Failure> {
        let Life { generation, expires, .. } = self.life(counter);
        let waits_for = self.unheard(counter).await?;
        Ok(LifeBody { generation, expires_unix_ms: expires.map(|at| at.0), waits_for, warning: self.warning() })
    }

    /// Groups that may not know yet that a counter began again, by the word of the counter's holder.
    async fn unheard(&self, counter: &CounterName) -> Result<Vec<String>, Failure> {
        if let Some(here) = self.0.if_held(counter, async { self.0.unheard(counter) }).await {
            return Ok(here);
        }
        let said = self.0.ask_about(About::Unheard, counter).await?;
        let understood = serde_json::from_slice(&said);
        understood.map_err(|error| {
            Failure::NotServing(format!("the holder of {counter} gave an answer that cannot be read: {error}"))
        })
    }

    fn warning(&self) -> Option<String> {
        self.0.with_ledger(|ledger| LivesUsed::of(ledger).warning)
    }

    fn life(&self, counter: &CounterName) -> Life {
        self.0.with_ledger(|ledger| ledger.resets().life(counter))
    }

    /// Begins a counter again at 0, with its milestones that are not awarded, or without; returns once the ledger has applied it.
    ///
    /// # Errors
    /// Unknown namespace, nothing that could be reset, too many resets, another generation than `if_generation`, or another change at the
    /// same time.
    pub async fn reset(
        &self,
        counter: &CounterName,
        keeps_milestones: bool,
        if_generation: Option<u32>,
    ) -> Result<BegunBody, Failure> {
        let was = match self.0.is_split() {
            false => self.0.get(counter),
            true => self.0.read_many(std::slice::from_ref(counter)).await?.into_iter().next().unwrap_or_default(),
        };
        let was = Signed(was.value());
        match (if_generation, self.life(counter)) {
            (Some(wanted), life)
                if wanted.checked_add(1) == Some(life.generation) && life.kept_milestones == keeps_milestones =>
            {
                return Ok(self.begun(counter, life.generation, None).await);
            }
            (Some(wanted), life) if wanted != life.generation => return Err(other_generation(counter, life, wanted)),
            _ => {}
        }
        let decide = |ledger: &Ledger, is_counted| ledger.reset(counter, keeps_milestones, is_counted);
        let (before, cmd) = self.decide(counter, decide).await?;
        if let Some(wanted) = if_generation.filter(|&wanted| wanted != before.generation) {
            return Err(other_generation(counter, before, wanted));
        }
        let after = self.carry_out(counter, before, cmd).await?;
        match after.generation == before.generation + 1 && after.kept_milestones == keeps_milestones {
            true => Ok(self.begun(counter, after.generation, Some(was)).await),
            false => Err(changed(counter)),
        }
    }

    /// Decides on the ledger as it is applied here. Where it knows nothing of the counter, the view and the groups of this data centre are
    /// asked first: a name that never counted takes no place in the ledger.
    async fn decide<T>(
        &self,
        counter: &CounterName,
        decide: impl Fn(&Ledger, bool) -> Result<T, ResetError>,
    ) -> Result<(Life, T), Failure> {
        let now = |is_counted| {
            let decided = |ledger: &Ledger| (ledger.resets().life(counter), decide(ledger, is_counted));
            let (life, decided) = self.0.with_ledger(decided);
            decided.map(|decided| (life, decided))
        };
        match now(false) {
            Err(ResetError::NothingThere { .. }) => {
                let is_counted = self.is_counted(counter).await?;
                now(is_counted).map_err(failure)
            }
            decided => decided.map_err(failure),
        }
    }

    /// True when something was counted in the present generation, as far as the view here shows. Where it shows nothing yet, the groups of
    /// this data centre say what they have applied by now.
    async fn is_counted(&self, counter: &CounterName) -> Result<bool, Failure> {
        let deadline = Instant::now() + LEDGER_PATIENCE;
        loop {
            let audited = match self.0.if_held(counter, audit::audit(&self.0, counter, false)).await {
                Some(audited) => audited,
                None => self.audit_elsewhere(counter).await,
            };
            match audited {
                Ok(body) => return self.counted_by(counter, &body),
                Err(failure) if Instant::now() >= deadline => return Err(failure),
                // The limit of audits is reached, or the holder of the counter was not reached.
                Err(_) => sleep(LEDGER_POLL).await,
            }
        }
    }

    async fn audit_elsewhere(&self, counter: &CounterName) -> Result<AuditBody, Failure> {
        let said = self.0.ask_about(About::Audit { with_rows: false }, counter).await?;
        let understood = serde_json::from_slice(&said);
        understood.map_err(|error| Failure::NotServing(format!("the answer about {counter} is malformed: {error}")))
    }

    fn counted_by(&self, counter: &CounterName, body: &AuditBody) -> Result<bool, Failure> {
        let counts =
            |component: &audit::ComponentBody| component.view > 0 || component.held.is_some_and(|held| held > 0);
        if body.shown_up > 0 || body.shown_down > 0 || body.pending > 0 || body.components.iter().any(counts) {
            return Ok(true);
        }
        // The counts of an unreachable group are not known.
        match self.0.silent_groups().first() {
            None => Ok(false),
            Some(group) => Err(Failure::NotServing(format!(
                "nothing is known of {counter}, but group {group} cannot be asked whether it counted it: try again when its node \
                 is connected"
            ))),
        }
    }

    /// Answers once the groups here have heard, so that what is counted after it counts in the generation, or when its patience ends.
    async fn begun(&self, counter: &CounterName, generation: u32, was: Option<Signed>) -> BegunBody {
        let deadline = Instant::now() + HEARD_PATIENCE;
        loop {
            // A group that cannot be asked may know it already.
            let waits_for = self.unheard(counter).await.unwrap_or_else(|failure| vec![failure.to_string()]);
            if waits_for.is_empty() || Instant::now() >= deadline {
                return BegunBody { generation, was, waits_for, warning: self.warning() };
            }
            sleep(LEDGER_POLL).await;
        }
    }

    /// Says when a counter is removed, if ever; returns once the ledger has applied it.
    ///
    /// # Errors
    /// Unknown namespace, a time that is none, a counter of which nothing is known, or another change at the same time.
    pub async fn expire(&self, counter: &CounterName, wanted: ExpiryBody) -> Result<LifeBody, Failure> {
        let at = expiry(wanted)?;
        let decide = |ledger: &Ledger, is_counted| ledger.expiry(counter, at, is_counted);
        let (before, cmd) = self.decide(counter, decide).await?;
        if let Some(wanted) = wanted.if_generation.filter(|wanted| *wanted != before.generation) {
            return Err(other_generation(counter, before, wanted));
        }
        let Some(cmd) = cmd else { return self.of(counter).await };
        let after = self.carry_out(counter, before, cmd).await?;
        let is_it = after.expires == at && after.generation == before.generation;
        if is_it { self.of(counter).await } else { Err(changed(counter)) }
    }

    /// The counter's life once the ledger as applied here shows the next one.
    async fn carry_out(&self, counter: &CounterName, before: Life, cmd: LedgerCmd) -> Result<Life, Failure> {
        self.0.submit_reset(cmd).await;
        let next = || Some(self.life(counter)).filter(|life| life.revision > before.revision);
        shown(LEDGER_PATIENCE, next).await.ok_or_else(late)
    }
}

fn expiry(wanted: ExpiryBody) -> Result<Option<WallMs>, Failure> {
    let invalid = |code, message| Err(Failure::Invalid { code, message });
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let last = now + Duration::from_secs(EXPIRES_S_MAX);
    match (wanted.expires_unix_ms, wanted.expires_s) {
        (None, None) => Ok(None),
        (Some(_), Some(_)) => invalid("expires", "either expires_unix_ms or expires_s is allowed".to_owned()),
        (None, Some(s)) if s == 0 || s > EXPIRES_S_MAX => {
            invalid("expires_s", format!("expires_s is {s}: 1 to {EXPIRES_S_MAX} allowed"))
        }
        (None, Some(s)) => Ok(Some(WallMs((now + Duration::from_secs(s)).as_millis() as u64))),
        (Some(ms), None) if u128::from(ms) > last.as_millis() => {
            invalid("expires_unix_ms", format!("expires_unix_ms is {ms}: at most {} allowed", last.as_millis()))
        }
        (Some(ms), None) if u128::from(ms) < now.as_millis() => {
            let message = format!("expires_unix_ms is {ms}, which is in the past: it is {} now", now.as_millis());
            invalid("expires_unix_ms", message)
        }
        (Some(ms), None) => Ok(Some(WallMs(ms))),
    }
}

fn changed(counter: &CounterName) -> Failure {
    let message =
        format!("{counter} was reset or its expiry changed at the same time: read the present state, and decide again");
    Failure::Conflict { code: "changed", message }
}

fn other_generation(counter: &CounterName, life: Life, wanted: u32) -> Failure {
    let message = format!("{counter} is in generation {}, not {wanted}", life.generation);
    Failure::Conflict { code: "generation", message }
}

fn failure(error: ResetError) -> Failure {
    let message = error.to_string();
    match error {
        ResetError::UnknownNamespace(_) => Failure::NotFound(message),
        ResetError::NothingThere { .. } => Failure::Absent { code: "unknown_counter", message },
        ResetError::TooMany { .. } | ResetError::Generations(_) => Failure::Conflict { code: "resets", message },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_to_expire_is_one_of_two_kinds_and_bounded() {
        let wanted =
            |expires_unix_ms, expires_s| expiry(ExpiryBody { expires_unix_ms, expires_s, if_generation: None });
        assert_eq!(wanted(None, None).unwrap(), None);
        let later = 1 << 42;
        assert_eq!(wanted(Some(later), None).unwrap(), Some(WallMs(later)));
        assert!(wanted(None, Some(60)).unwrap().is_some_and(|at| at.0 > 60_000));
        for (ms, s, code) in [
            (Some(1), Some(1), "expires"),
            (None, Some(0), "expires_s"),
            (None, Some(u64::MAX), "expires_s"),
            (Some(u64::MAX), None, "expires_unix_ms"),
            // Seconds.
            (Some(1_790_000_000), None, "expires_unix_ms"),
        ] {
            assert_eq!(wanted(ms, s).unwrap_err().code(), code);
        }
    }
}
