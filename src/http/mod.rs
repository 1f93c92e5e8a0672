//! HTTP/JSON and WebSocket in front of a [`Backend`]: routes, tokens, limits, a plain page.
//!
//! It speaks plain HTTP/1.1; who needs TLS puts a proxy in front. Numbers in JSON are whole numbers up to 2^62, which some
//! languages must be told to read exactly. Keys may hold `/`; an unescaped last
//! part `milestones` (or `add`, when posted) is the verb, so the value of a key that ends so is read with `%2Fmilestones`.

mod answer;
mod auth;
mod backend;
pub mod body;
mod live;
mod once;
mod path;
mod routes;
mod server;
mod totals;

pub use answer::Failure;
pub use auth::Access;
pub use backend::{Add, Added, AwardFilter, AwardPosition, Backend, MilestoneList, MilestoneState, MilestoneStatus};
pub use live::LIVE_PROTOCOL;
pub use once::IDEMPOTENCY_KEYS_MAX;
pub use server::{Options, Server};

use std::time::Duration;

/// Bytes of a request's body. More: `413`.
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
/// Totals are looked at, and sent over a WebSocket, so often at most.
pub const LIVE_INTERVAL: Duration = Duration::from_millis(100);
/// Distinct counters that all WebSockets together may watch. More: `503`.
pub const WATCHED_COUNTERS_MAX: usize = 10_000;
/// A WebSocket that takes no byte for so long is closed.
pub const LIVE_SEND_TIMEOUT: Duration = Duration::from_secs(20);
/// A WebSocket that says nothing is asked so often whether it is there.
pub const LIVE_PING_INTERVAL: Duration = Duration::from_secs(20);
/// How long a stopping server waits for requests under way.
pub const STOP_TIMEOUT: Duration = Duration::from_secs(5);
