//! `GET /v1/refused`: how many events of a tenant were refused, and why.

use super::answer::{Answer, Failure};
use super::operate::time;
use super::request::{self, Params, shown};
use crate::log::IntakeLog;
use crate::node::Node;
use crate::settings::{REFUSED_DEFAULT, REFUSED_MAX};
use hyper::header::HeaderMap;
use serde_json::{Value, json};
use tidemark_streams_intake::refused::{ByCode, OfCode, OfTenant};

/// Answers for a tenant, or for operators for the tenants with the most refused events.
pub fn list(node: &Node, headers: &HeaderMap, params: &Params) -> Result<Answer, Failure> {
    let is_operator = request::authorize_operator(node, headers).is_ok();
    let named = params.get("tenant").map(String::as_str);
    let limit = params.get("limit").map(|text| limit(text)).transpose()?;
    let tenant = match (is_operator, named) {
        (true, named) => named.map(str::to_owned),
        (false, named) => Some(request::authorize_tenant(node.settings.keys.as_ref(), headers, named)?),
    };
    let log = node.log().ok_or_else(|| Failure::later("not_serving", "the intake's log is not open"))?;
    let Some(tenant) = tenant else { return Ok(of_all(&log, limit.unwrap_or(REFUSED_DEFAULT))) };
    if limit.is_some() {
        return Err(Failure::bad("parameter", "limit stands beside a tenant: leave one of them out"));
    }
    let codes = log.refused_of(&tenant);
    Ok(Answer::json(&of_tenant(&log, OfTenant { tenant: Some(tenant), codes })))
}

fn of_all(log: &IntakeLog, limit: usize) -> Answer {
    let mut most = log.most_refused(limit + 1);
    let is_cut = most.len() > limit;
    most.truncate(limit);
    let tenants: Vec<Value> = most.into_iter().map(|tenant| of_tenant(log, tenant)).collect();
    let all = log.refused_by_code();
    let events: u64 = all.values().map(|of_code| of_code.events).sum();
    Answer::json(&json!({ "events": events, "codes": codes(&all), "tenants": tenants, "more": is_cut }))
}

fn of_tenant(log: &IntakeLog, refused: OfTenant) -> Value {
    let over_quota = refused.tenant.as_deref().map(|tenant| log.over_quota_of(tenant));
    json!({
        "tenant": refused.tenant,
        "events": refused.events(),
        "codes": codes(&refused.codes),
        "requests_over_quota": over_quota,
    })
}

/// The codes with the most events first.
fn codes(by_code: &ByCode) -> Vec<Value> {
    let mut codes: Vec<(&String, &OfCode)> = by_code.iter().collect();
    codes.sort_by_key(|(_, of_code)| std::cmp::Reverse(of_code.events));
    let shown = |(code, of_code): (&String, &OfCode)| {
        let OfCode { events, last_at_ms } = *of_code;
        json!({ "code": code, "events": events, "last_at": time(last_at_ms) })
    };
    codes.into_iter().map(shown).collect()
}

fn limit(text: &str) -> Result<usize, Failure> {
    let found = text.parse().ok().filter(|found| (1..=REFUSED_MAX).contains(found));
    found.ok_or_else(|| {
        Failure::bad("parameter", format!("limit {:?}: a whole number from 1 to {REFUSED_MAX}", shown(text)))
    })
}
