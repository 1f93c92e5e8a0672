//! The longest waits of requests, and the failure after them.

use crate::api::Failure;
use std::time::Duration;

/// The longest wait for an increment's place. Then the place is `pending`, for as long as a data centre is away.
pub(crate) const PLACE_PATIENCE: Duration = Duration::from_secs(2);

/// The longest wait until an increment is durable. Then it is in doubt.
pub(crate) const DURABLE_PATIENCE: Duration = Duration::from_secs(20);

/// A group is gone after this silence of all its nodes: increments are refused at once, or in doubt if they were sent. A node that
/// restarts is back before.
pub(crate) const GONE_AFTER: Duration = Duration::from_millis(1_500);

/// The longest wait for a leader of a group with reachable nodes.
pub(crate) const LEADERLESS_MAX: Duration = Duration::from_secs(5);

/// The failure of a command to the ledger that takes no effect in time.
pub(crate) fn late() -> Failure {
    Failure::InDoubt("the ledger did not answer in time: read the present state, and ask again".to_owned())
}
