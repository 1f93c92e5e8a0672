//! HTTP/JSON and WebSocket in front of an [`AggregatorProcess`] or a [`NodeProcess`]: routes, tokens, sessions, limits, pages.
//!
//! It speaks HTTP/1.1, plainly or over TLS. Numbers in JSON are whole numbers up to 2^62, which some languages must be told to
//! read exactly. Keys may hold `/`. An unescaped last part that is a verb, such as `add` or `milestones`, is that verb. So a key
//! that ends so is written with `%2F`: `…/a%2Fadd`. All routes are in the table of `operations`.

pub mod answer;
mod asset;
mod audit;
mod auth;
mod backup;
pub mod bulk;
mod claims;
mod dcs;
mod dry_run;
mod edges;
mod fails;
mod feed;
mod groups;
mod hop_routes;
mod ledger;
mod letter;
mod live;
mod lives;
mod log_level;
mod milestone;
mod namespaces;
mod node;
mod once;
mod openapi;
mod operation;
mod operations;
mod own_errors;
mod pages;
mod params;
mod path;
mod patient;
mod routes;
pub mod series;
mod server;
mod slots;
mod spans;
mod totals;
mod typed;
mod webhooks;
mod winners;

pub use crate::api::body;
pub use crate::api::cluster::{CLUSTER_AWARDS_MAX, ClusterBody, DcBody, LedgerBody, Mode};
pub use crate::api::namespaces::{NamespaceBody, NamespacesBody};
pub use crate::api::position::birth_text;
pub use crate::api::status::{
    AggregatorStatusBody, GroupRole, GroupStatusBody, LedgerStatusBody, NodeStatusBody, SilentGroupBody, StatusBody,
};
pub use crate::api::{
    Add, AddId, Added, Anew, AnewReason, AwardFilter, AwardPosition, AwardState, ClaimTurn, Counted, Failure,
    GivenPosition, HealthCheck, HealthState, History, MarkedPosition, MilestoneList, MilestoneState, MilestoneStatus,
    News, Progress, ReadVersion,
};
pub use crate::process::{AggregatorProcess, NodeProcess, Process, Unready};
pub use crate::webhook::WebhookTrial;
pub use answer::FailureText;
pub use asset::Asset;
pub use auth::{Access, is_origin};
pub use bulk::{BULK_BYTES_MAX, BULK_LINES_MAX, BULKS_MAX, BulkBody, BulkErrorBody, BulkLine};
pub use claims::ClaimingBody;
pub use dry_run::{DryRunBody, DryRunReport};
pub use hop_routes::{CountHopBody, HopCountedBody, HopIssuedBody, HopPlaceBody, IssueHopBody};
pub use letter::no_params;
pub use live::LIVE_PROTOCOL;
pub use milestone::{AwardStateBody, ProgressBody};
pub use once::IDEMPOTENCY_BYTES_MAX;
pub use openapi::document;
pub use operation::only_post;
pub use operation::{Permission, Rules};
pub use operations::rules;
pub use params::{Param, ParamKind};
pub use server::{NodeOptions, Options, Server};
pub use typed::{AnswerForm, Shape};

use std::time::Duration;

/// Bytes of a request's body, but for many increments ([`BULK_BYTES_MAX`]). More: `413`.
pub const BODY_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a request's line and headers together. More: `431`.
pub const HEAD_BYTES_MAX: usize = 16 * 1024;
/// A request's headers must have come after this, and an idle connection is closed.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// A request is answered after this, with `504` if nothing else is known.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Counters in one read, or in one subscription. More: `400`.
pub const READ_COUNTERS_MAX: usize = 100;
/// Awards in one answer, by default and at most. The rest is asked for with `after`.
pub const AWARDS_MAX: usize = 1_000;
/// The longest that a request waits for an award. Longer: `400`; a caller that wants to wait longer asks again.
pub const AWARD_WAIT_MAX: Duration = Duration::from_secs(20);
/// Totals are looked at, and sent to subscribers, so often at most.
pub const LIVE_INTERVAL: Duration = Duration::from_millis(100);
/// Distinct counters that all subscribers together may watch. More: `503`.
pub const WATCHED_COUNTERS_MAX: usize = 10_000;
/// Subscriptions that one session may have, as windows of one browser. More: `503`.
pub const SUBSCRIPTIONS_PER_SESSION_MAX: usize = 16;
/// A connection that takes no byte for so long is closed.
pub const SEND_TIMEOUT: Duration = Duration::from_secs(20);
/// A WebSocket without messages is pinged at this interval, and a subscriber without news gets a sign of life as often.
pub const LIVE_PING_INTERVAL: Duration = Duration::from_secs(20);
/// TLS is agreed on within this, or the connection is closed.
pub const TLS_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a stopping server waits for requests under way.
pub const STOP_TIMEOUT: Duration = Duration::from_secs(5);

const _: () = assert!(AWARD_WAIT_MAX.as_secs() < REQUEST_TIMEOUT.as_secs());
