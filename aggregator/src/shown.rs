//! Waits for what was said to the ledger.

use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How long what is said to the ledger, which may be electing a leader, may take until it has been applied here.
pub const LEDGER_PATIENCE: Duration = Duration::from_secs(20);
/// Between two looks.
pub const LEDGER_POLL: Duration = Duration::from_millis(10);

/// Waits until something shows in the ledger as applied here; `None` when that takes longer than `patience`.
pub async fn shown<T>(patience: Duration, look: impl Fn() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + patience;
    loop {
        match look() {
            None if Instant::now() < deadline => sleep(LEDGER_POLL).await,
            seen => return seen,
        }
    }
}
