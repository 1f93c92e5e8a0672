//! How long requests wait, and what they answer then.

use crate::api::Failure;
use std::time::Duration;

/// How long an increment's place is waited for; then it is `pending`, as it may be for as long as a data centre is away.
pub(crate) const PLACE_PATIENCE: Duration = Duration::from_secs(2);

/// How long an increment's durability is waited for; then it is in doubt.
pub(crate) const DURABLE_PATIENCE: Duration = Duration::from_secs(20);

/// A group of which no node was heard for so long is gone: increments are refused at once, or in doubt if they were sent. A node that
/// restarts is back before.
pub(crate) const GONE_AFTER: Duration = Duration::from_millis(1_500);

/// A group with reachable nodes but without a leader is waited for this long.
pub(crate) const LEADERLESS_MAX: Duration = Duration::from_secs(5);

/// The failure of a command to the ledger that takes no effect in time.
pub(crate) fn late() -> Failure {
    Failure::InDoubt("the ledger did not answer in time: read the present state, and ask again".to_owned())
}
