//! `POST /v1/awards/{namespace}/{key}/{at}/dry-run`: rehearses an award that is still to come. Every receiver of a real award gets a trial
//! that is marked as such; nothing is counted, awarded or kept.

use super::operation::Ask;
use super::path::award_of;
use super::typed::Json;
use super::{AggregatorProcess, AwardState, Failure, MilestoneState, ProgressBody, milestone};
use crate::api::body::{LiveBody, TrialBody};
use crate::claims::ClaimRuleBody;
use crate::webhook::WebhookTrial;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `POST …/dry-run`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DryRunBody {
    /// Token of a session; its connections to this process get the messages of the winner. The cluster must have signed the token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
}

/// The effects of an award here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DryRunReport {
    pub state: MilestoneState,
    /// How far it is, if it is the counter's next.
    pub progress: Option<ProgressBody>,
    /// How the winner would claim it.
    pub claims: Option<ClaimRuleBody>,
    /// The receivers that would be told if this data centre counted the winner, and what they answered to a trial.
    pub webhooks: Vec<WebhookTrial>,
    /// Connections of the session that were told; `null` where none was named.
    pub connections: Option<usize>,
}

pub(super) async fn dry_run<B: AggregatorProcess>(
    ask: Ask<B>,
    said: DryRunBody,
) -> Result<Json<DryRunReport>, Failure> {
    let (counter, at) = award_of(ask.rest())?;
    let (shared, DryRunBody { session }) = (&ask.shared, said);
    let session = match session {
        Some(token) => Some(shared.access.sessions()?.verify_for(&token, counter.namespace())?.id),
        None => None,
    };
    let state = match shared.backend.award_state(&counter, at).await? {
        AwardState::Coming(state) => state,
        AwardState::Passed => return Err(milestone::passed(&counter, at)),
        AwardState::Unknown => return Err(milestone::unknown(&counter, at)),
        AwardState::Awarded(_) => {
            let message = format!("milestone {at} of {counter} is awarded: there is nothing to rehearse");
            return Err(Failure::Conflict { code: "awarded", message });
        }
    };
    let progress = ProgressBody::new(&counter, &shared.backend.progress(&counter).await?);
    let claims = shared.backend.claims().map(|claims| claims.rule(&counter)).filter(|rule| rule.period_s > 0);
    let trial = LiveBody::Trial(TrialBody { counter: (&counter).into(), at });
    let connections = session.map(|session| shared.winners.try_out(&session, &trial.text()));
    let webhooks = match &shared.webhooks {
        Some(webhooks) => webhooks.try_out(&counter).await,
        None => Vec::new(),
    };
    let progress = (progress.next == Some(at)).then_some(progress);
    Ok(Json(DryRunReport { state, progress, claims, webhooks, connections }))
}
