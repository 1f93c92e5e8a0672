//! `GET /v1/test-tenants` and `POST /v1/test-tenants/...`: tenants that are marked as tests, and the deletion of their rows.

use super::answer::{Answer, Failure};
use super::operate::{begin_erasure, propose, time};
use super::request::{self, Params};
use super::tables;
use crate::node::{Node, OwnerView};
use hyper::StatusCode;
use hyper::header::HeaderMap;
use serde_json::{Value, json};
use tidemark_streams_core::erasure::{Erasure, ErasureKey};
use tidemark_streams_core::event::check_tenant;
use tidemark_streams_core::manifest::{Command, Outcome, SetTestTenant};
use tidemark_streams_core::scope::TenantHash;

pub fn list(node: &Node, headers: &HeaderMap) -> Result<Answer, Failure> {
    request::authorize_operator(node, headers)?;
    Ok(Answer::json(&tenants(node)))
}

pub async fn add(node: &Node, headers: &HeaderMap, params: &Params) -> Result<Answer, Failure> {
    mark(node, headers, params, true).await
}

pub async fn remove(node: &Node, headers: &HeaderMap, params: &Params) -> Result<Answer, Failure> {
    mark(node, headers, params, false).await
}

async fn mark(node: &Node, headers: &HeaderMap, params: &Params, is_test: bool) -> Result<Answer, Failure> {
    request::check_site(headers)?;
    request::authorize_operator(node, headers)?;
    let missing = || Failure::bad("parameter", "tenant is missing: name the tenant");
    let tenant = params.get("tenant").ok_or_else(missing)?;
    check_tenant(tenant).map_err(|error| Failure::bad("parameter", error))?;
    let tenant = TenantHash::of(tenant);
    let outcome = propose(node, Command::TestTenant(SetTestTenant { tenant, is_test })).await?;
    if let Outcome::TestTenant { result: Err(refused) } = outcome {
        return Err(Failure::new(StatusCode::CONFLICT, "test_tenants_full", refused));
    }
    Ok(Answer::json(&tenants(node)))
}

/// Erases the rows of all test tenants. An erasure under way goes on.
pub async fn delete_rows(node: &Node, headers: &HeaderMap) -> Result<Answer, Failure> {
    request::check_site(headers)?;
    request::authorize_operator(node, headers)?;
    let marked: Vec<TenantHash> = node.kept().test_tenants.iter().map(|marked| marked.tenant).collect();
    if marked.is_empty() {
        let message = "no tenant is marked as a test: POST /v1/test-tenants/add?tenant=TENANT marks one";
        return Err(Failure::new(StatusCode::CONFLICT, "no_test_tenants", message));
    }
    let mut begun = Vec::with_capacity(marked.len());
    for tenant in &marked {
        begun.push(begin_erasure(node, ErasureKey { tenant: *tenant, listing: None }, true)?);
    }
    for (tenant, erasure) in marked.into_iter().zip(begun) {
        let erased = erasure.end().await?;
        tables::erase(node, tenant, erased.erasure.asked_at_ms)?;
    }
    // Rows that queries have read go too.
    node.queries.stores.forget_blobs();
    Ok(Answer::json(&tenants(node)))
}

fn tenants(node: &Node) -> Value {
    let OwnerView { cleaned_ms, archive_cleaned_ms, .. } = node.owner();
    let cleaned_ms = cleaned_ms.min(archive_cleaned_ms);
    let kept = node.kept();
    let shown = kept.test_tenants.iter().map(|marked| {
        let erased_before = marked.erasure.map(|Erasure { before, .. }| time(before.start_s() * 1_000));
        let is_done = marked.erasure.map(|known| known.is_done && known.asked_at_ms <= cleaned_ms);
        json!({
            "tenant_hash": format!("{:016x}", marked.tenant.0),
            "erased_before": erased_before,
            "is_done": is_done,
        })
    });
    json!({ "test_tenants": shown.collect::<Vec<Value>>() })
}
