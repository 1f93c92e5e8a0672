//! `GET /v1/retention` and `POST /v1/retention/set`: how many days rows are kept.

use super::answer::{Answer, Failure};
use super::operate::{propose, time};
use super::request::{self, Params, shown};
use crate::node::{Kept, Node};
use hyper::header::HeaderMap;
use serde_json::{Value, json};
use tidemark_streams_core::limits::RETENTION_DAYS_MAX;
use tidemark_streams_core::manifest::{Command, Outcome, SetRetention};
use tidemark_streams_core::retention::{Horizons, Retention};
use tidemark_streams_core::time::{DAY_S, Day};

pub fn show(node: &Node, headers: &HeaderMap) -> Result<Answer, Failure> {
    request::authorize_operator(node, headers)?;
    Ok(Answer::json(&retention(&node.kept())))
}

/// Sets one or both numbers of days. The owner expires old blobs at once, unless the partition is paused.
pub async fn set(node: &Node, headers: &HeaderMap, params: &Params) -> Result<Answer, Failure> {
    request::check_site(headers)?;
    request::authorize_operator(node, headers)?;
    let late_days = days(params, "late_days")?;
    let kept_days = days(params, "kept_days")?;
    if late_days.is_none() && kept_days.is_none() {
        let message = "nothing is to be set: name kept_days, late_days or both; 0 means no limit";
        return Err(Failure::bad("parameter", message));
    }
    let _changing = node.changing_retention.lock().await;
    let known = node.kept().retention;
    let retention =
        Retention { late_days: late_days.unwrap_or(known.late_days), kept_days: kept_days.unwrap_or(known.kept_days) };
    let outcome = propose(node, Command::Retention(SetRetention { retention })).await?;
    if let Outcome::Retention { result: Err(refused) } = outcome {
        return Err(Failure::bad("parameter", refused));
    }
    Ok(Answer::json(&self::retention(&node.kept())))
}

fn days(params: &Params, name: &'static str) -> Result<Option<u32>, Failure> {
    let Some(text) = params.get(name) else { return Ok(None) };
    text.parse().map(Some).map_err(|_| {
        let message =
            format!("{name} {:?}: a whole number of days up to {RETENTION_DAYS_MAX}; 0: no limit", shown(text));
        Failure::bad("parameter", message)
    })
}

fn retention(kept: &Kept) -> Value {
    let Kept { retention: Retention { late_days, kept_days }, horizons, expired, .. } = kept;
    let Horizons { late, kept } = *horizons;
    let begin = |day: Day| (day > Day(0)).then(|| time(u64::from(day.0) * DAY_S * 1_000));
    json!({
        "kept_days": kept_days,
        "late_days": late_days,
        "not_kept_before": begin(kept),
        "late_rows_from": begin(late),
        "expired": expired,
    })
}
