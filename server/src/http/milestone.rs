//! One milestone over HTTP: waiting for its award, and how far its counter is from it.

use super::operation::Ask;
use super::params::{number, value};
use super::path::award_of;
use super::typed::InTime;
use super::{AWARD_WAIT_MAX, AggregatorProcess, AwardState, Failure, MilestoneState, Mode, News, Progress, body};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use tidemark_proto::ids::CounterName;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;

/// How often it is looked at whether there still is such a milestone.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// `GET /v1/awards/NS/KEY/AT`: with `200` the award, with `202` how far the milestone is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AwardStateBody {
    pub state: MilestoneState,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub award: Option<body::AwardBody>,
}

/// `GET …/progress`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProgressBody {
    pub counter: body::CounterBody,
    pub value: body::Signed,
    /// Something was counted on it once, as far as is known here.
    #[serde(default = "body::is_known_by_default")]
    pub known: bool,
    pub pending: u64,
    #[serde(flatten)]
    pub halves: Option<body::HalvesBody>,
    /// The least armed milestone, or if there is none, the least that is arming; and how far it is.
    pub next: Option<u64>,
    pub state: Option<MilestoneState>,
    /// From `value` to it; where something was counted down, from `up`.
    pub remaining: Option<u64>,
    /// Weight per second in all data centres: an estimate. Each group says its own, forecast from the last seconds, when it reports, and
    /// else when it is off by half; the sum still includes a group that is gone. `null` for counters that are not guarded.
    pub rate_per_s: Option<u64>,
    /// `remaining` at that rate, rounded up; `null` when nothing is armed, or nothing comes.
    pub eta_s: Option<u64>,
    pub mode: Mode,
}

/// Answers a wait: at once, or when something is known, or when the time is over.
pub(super) async fn award<B: AggregatorProcess>(ask: Ask<B>) -> Result<InTime<AwardStateBody>, Failure> {
    let (shared, (counter, at)) = (&ask.shared, award_of(ask.rest())?);
    let given =
        value(&ask.params, "wait_s").map(|text| number("wait_s", text, AWARD_WAIT_MAX.as_secs())).transpose()?;
    let deadline = Instant::now() + Duration::from_secs(given.unwrap_or_default());
    // A waiting caller holds a connection, as a follower of events does.
    let overloaded = |_| Failure::Overloaded { what: "waits and events".to_owned(), limit: shared.events_max as u64 };
    let room = given.map(|_| shared.events.clone().try_acquire_owned());
    let _room = room.transpose().map_err(overloaded)?;
    let (_, mut news) = shared.backend.subscribe();
    let mut stopping = shared.stopping.clone();
    loop {
        let state = match shared.backend.award_state(&counter, at).await? {
            AwardState::Awarded(award) => {
                let state = MilestoneState::Awarded;
                let award = Some(body::AwardBody::new(&award, &shared.backend.history().births));
                return Ok(InTime::Known(AwardStateBody { state, award }));
            }
            AwardState::Coming(state) => state,
            AwardState::Passed => return Err(passed(&counter, at)),
            AwardState::Unknown => return Err(unknown(&counter, at)),
        };
        let over = Instant::now() >= deadline || *stopping.borrow_and_update();
        if over {
            return Ok(InTime::Pending(AwardStateBody { state, award: None }));
        }
        tokio::select! {
            () = next_award_of(&mut news, &counter) => {}
            _ = stopping.changed() => {}
            () = tokio::time::sleep_until(deadline.min(Instant::now() + LOOK_INTERVAL)) => {}
        }
    }
}

pub(super) fn unknown(counter: &CounterName, at: u64) -> Failure {
    Failure::NotFound(format!("{counter} has no milestone {at}"))
}

pub(super) fn passed(counter: &CounterName, at: u64) -> Failure {
    let message = format!("the count of {counter} had passed {at} before it was armed: it has no winner");
    Failure::Conflict { code: "passed", message }
}

/// Until the counter may have a new award.
async fn next_award_of(news: &mut broadcast::Receiver<News>, counter: &CounterName) {
    loop {
        match news.recv().await {
            Ok(News::Award(award)) if award.counter == *counter => return,
            Ok(_) => {}
            Err(RecvError::Lagged(_)) => return,
            // The backend ends, and so does the server.
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}

impl ProgressBody {
    pub(super) fn new(counter: &CounterName, progress: &Progress) -> ProgressBody {
        let Progress { reading, next, rate_per_s, mode } = *progress;
        let remaining = next.map(|(at, _)| at.saturating_sub(reading.up));
        let is_armed = next.is_some_and(|(_, state)| state == MilestoneState::Armed);
        let rate = rate_per_s.filter(|&rate| is_armed && rate > 0);
        ProgressBody {
            counter: counter.into(),
            value: body::Signed(reading.value()),
            known: body::is_known(&reading),
            pending: reading.pending,
            halves: body::HalvesBody::of(&reading),
            next: next.map(|(at, _)| at),
            state: next.map(|(_, state)| state),
            remaining,
            rate_per_s,
            eta_s: remaining.zip(rate).map(|(remaining, rate)| remaining.div_ceil(rate)),
            mode,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemark_proto::msg::Reading;

    fn body(up: u64, next: Option<(u64, MilestoneState)>, rate_per_s: Option<u64>) -> ProgressBody {
        let reading = Reading { up, ..Reading::default() };
        let counter = CounterName::new("search", b"q").unwrap();
        ProgressBody::new(&counter, &Progress { reading, next, rate_per_s, mode: Mode::Rights })
    }

    #[test]
    fn a_time_is_said_only_of_what_is_armed_and_comes() {
        let armed = |at| Some((at, MilestoneState::Armed));
        assert_eq!(body(900, armed(1_000), Some(30)).eta_s, Some(4));
        assert_eq!((body(900, armed(1_000), Some(0)).eta_s, body(900, armed(1_000), None).eta_s), (None, None));
        assert_eq!(body(900, None, Some(30)), ProgressBody { rate_per_s: Some(30), ..body(900, None, None) });
        let arming = body(1_200, Some((1_000, MilestoneState::Arming)), Some(30));
        assert_eq!((arming.remaining, arming.eta_s), (Some(0), None), "never negative");
    }

    #[test]
    fn how_far_a_milestone_is_goes_by_what_was_counted_up() {
        let reading = Reading { up: 990, down: 980, ..Reading::default() };
        let next = Some((1_000, MilestoneState::Armed));
        let progress = Progress { reading, next, rate_per_s: None, mode: Mode::Rights };
        let body = ProgressBody::new(&CounterName::new("stock", b"q").unwrap(), &progress);
        assert_eq!((body.value.0, body.remaining), (10, Some(10)));
        assert_eq!(body.halves, Some(body::HalvesBody { up: 990, down: 980 }));
    }
}
