//! The errors of operations, by status and code: those that each row of the table declares, and those that follow from what it takes.

use super::Failure;
use super::operation::{ErrorCode, Permission, Rules};
use super::params::ParamKind;
use axum::http::Method;
use axum::response::{IntoResponse, Response};
use std::collections::BTreeSet;

/// Increments, without and with an id.
pub(super) const COUNTS: &[ErrorCode] = &[
    (400, "delta"),
    (400, "event_time"),
    (400, "id"),
    (400, "home"),
    (400, "first_sent"),
    (400, "id_too_old"),
    (404, "unknown_namespace"),
    (409, "grow_only"),
    (409, "overflow"),
    (409, "id_fenced"),
    (422, "id_reused"),
    (503, "ids_full"),
    (503, "id_owner_lost"),
];
/// Questions about intervals.
pub(super) const WINDOWS: &[ErrorCode] = &[
    (400, "window"),
    (400, "period"),
    (400, "zone"),
    (400, "error"),
    (400, "compare"),
    (400, "too_many_counters"),
    (400, "too_many_values"),
    (400, "too_many_windows"),
    (400, "k"),
    (409, "no_series"),
    (409, "not_kept"),
    (409, "finer_than_kept"),
    (409, "error_not_attainable"),
];
/// Reads of many counters in steps.
pub(super) const STEPS: &[ErrorCode] = &[(400, "every"), (400, "anchor")];
/// Reads of the counters below a prefix.
pub(super) const KEYS: &[ErrorCode] = &[(400, "prefix"), (400, "too_many_counters")];
/// A counter's own life.
pub(super) const LIFE: &[ErrorCode] =
    &[(400, "if_generation"), (404, "unknown_counter"), (409, "changed"), (409, "generation"), (409, "resets")];
/// Milestones that are defined or disarmed.
pub(super) const MILESTONES: &[ErrorCode] = &[
    (400, "milestone"),
    (400, "milestone_of_total"),
    (400, "nothing_defined"),
    (404, "unknown_namespace"),
    (409, "awarded"),
    (409, "by_rule"),
    (409, "changed"),
    (409, "not_above"),
    (409, "policy"),
];
/// Tokens of sessions.
pub(super) const SESSIONS: &[ErrorCode] = &[
    (400, "session"),
    (401, "session_malformed"),
    (401, "session_key"),
    (401, "session_forged"),
    (401, "session_expired"),
    (401, "session_namespace"),
];
/// Tokens of sessions in a body. The caller has shown the token of the process, so a wrong session makes a wrong request.
pub(super) const SESSION_OF_ANOTHER: &[ErrorCode] = &[
    (400, "session"),
    (400, "session_malformed"),
    (400, "session_key"),
    (400, "session_forged"),
    (400, "session_expired"),
    (400, "session_namespace"),
];
/// Claims of awards.
pub(super) const CLAIMS: &[ErrorCode] =
    &[(400, "id"), (403, "forbidden"), (409, "not_awarded"), (409, "claimed"), (409, "claim_over")];
/// Redirect tokens.
pub(super) const HOPS: &[ErrorCode] = &[
    (400, "hop"),
    (400, "hop_elsewhere"),
    (401, "hop_malformed"),
    (401, "hop_key"),
    (401, "hop_forged"),
    (401, "hop_expired"),
    (403, "forbidden"),
    (409, "hop_taken"),
];
/// Subscriptions.
pub(super) const SUBSCRIBES: &[ErrorCode] =
    &[(400, "after"), (400, "own_after"), (400, "awards"), (400, "too_many_counters"), (403, "forbidden")];
/// Changes of edges.
pub(super) const EDGES: &[ErrorCode] = &[
    (400, "counter"),
    (400, "edges"),
    (403, "forbidden"),
    (404, "unknown_namespace"),
    (409, "absent"),
    (409, "changed"),
    (409, "cycle"),
    (409, "duplicate"),
    (409, "full"),
    (409, "not_allowed"),
    (409, "to_itself"),
    (409, "unknown_counter"),
];
/// Groups that are given up.
pub(super) const LOSES: &[ErrorCode] = &[(400, "group"), (409, "elsewhere"), (409, "heard"), (409, "lost")];
/// Data centres that are given up.
pub(super) const FORGETS: &[ErrorCode] =
    &[(409, "forgotten"), (409, "heard"), (409, "itself"), (409, "last"), (409, "majority")];
/// Shards that are moved or split.
pub(super) const SHARDS: &[ErrorCode] = &[
    (400, "at"),
    (400, "from"),
    (400, "to"),
    (409, "cut-elsewhere"),
    (409, "first"),
    (409, "held"),
    (409, "moving"),
    (409, "no-middle"),
    (409, "not-connected"),
    (409, "not-held"),
    (409, "not-moving"),
    (409, "not-split"),
    (409, "not-within"),
    (409, "split"),
    (409, "splitting"),
    (409, "too-many"),
];
/// Changes of the ledger's voters.
pub(super) const VOTERS: &[ErrorCode] = &[
    (400, "joins"),
    (400, "leaves"),
    (400, "voters"),
    (409, "behind"),
    (409, "elsewhere"),
    (409, "forgotten"),
    (409, "full"),
    (409, "last"),
    (409, "majority"),
    (409, "no-member"),
    (409, "under-way"),
    (409, "unreached"),
    (409, "votes"),
];

/// Of every request.
const ALL: &[ErrorCode] = &[
    (400, "host"),
    (400, "idempotency_key"),
    (400, "malformed_body"),
    (400, "malformed_request"),
    (400, "parameter"),
    (400, "unexpected_body"),
    (404, "not_found"),
    (414, "url_too_long"),
    (415, "charset"),
    (415, "content_encoding"),
    (431, "head_too_large"),
    (503, "not_serving"),
    (503, "overloaded"),
    (504, "in_doubt"),
];

impl Rules {
    /// All errors with which it may fail, in order.
    pub fn errors(&self) -> BTreeSet<ErrorCode> {
        let mut errors: BTreeSet<ErrorCode> = ALL.iter().chain(&self.fails).copied().collect();
        if self.permission != Permission::Open {
            errors.insert((401, "unauthorized"));
        }
        if self.method != Method::GET {
            errors.extend([(400, "content_range"), (412, "condition")]);
        }
        if self.body.is_some() {
            errors.remove(&(400, "unexpected_body"));
            errors.insert((413, "too_large"));
        }
        if self.path.contains("{key}") {
            errors.insert((400, "counter"));
        }
        if self.path.contains("{namespace}") {
            errors.extend([(400, "namespace"), (404, "unknown_namespace")]);
        }
        for param in &self.params {
            errors.insert((400, param.name));
            match param.kind {
                ParamKind::Namespace | ParamKind::Counter | ParamKind::Prefix => {
                    errors.insert((404, "unknown_namespace"));
                }
                ParamKind::Text(_)
                | ParamKind::Number { .. }
                | ParamKind::OneOf(_)
                | ParamKind::Flag
                | ParamKind::Key => {}
            }
        }
        errors
    }

    /// The answer to a failure. A failure that the table does not declare is a fault of the table: the log says so.
    pub(super) fn failed(&self, failure: Failure) -> Response {
        let status = failure.status();
        let code = failure.code();
        if !self.errors().contains(&(status.as_u16(), code)) {
            tracing::error!(method = %self.method, path = self.path, %status, code, "the API does not declare this error");
        }
        failure.into_response()
    }
}
