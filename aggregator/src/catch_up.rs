//! What a start has caught up with: the log of the ledger, and the feeds of groups.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Between two looks whether the log is applied.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// How far a start has caught up with the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caught {
    /// The length of the log is not known yet.
    Asking,
    /// The leader said that the log is committed up to here.
    Applying { upto: u64 },
    /// All that the leader had committed when it was asked is applied.
    All,
    /// No leader answered in time; all that this disk knew to be committed is applied.
    Own,
}

/// The progress with which a start has caught up. Once it has, later troubles are of the present.
#[derive(Clone)]
pub(crate) struct CatchUp(Arc<Mutex<Progress>>);

#[derive(Clone, Copy)]
pub(crate) struct Progress {
    pub since: Instant,
    pub ledger: Caught,
    pub feeds: bool,
}

impl Default for CatchUp {
    fn default() -> CatchUp {
        let progress = Progress { since: Instant::now(), ledger: Caught::Asking, feeds: false };
        CatchUp(Arc::new(Mutex::new(progress)))
    }
}

impl CatchUp {
    /// Waits until the ledger's log is applied as far as this start could learn.
    pub async fn until_ledger(&self) {
        while !self.has_ledger() {
            sleep(LOOK_INTERVAL).await;
        }
    }

    pub fn lock(&self) -> MutexGuard<'_, Progress> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the ledger's log is applied as far as this start could learn.
    pub fn has_ledger(&self) -> bool {
        matches!(self.lock().ledger, Caught::All | Caught::Own)
    }
}
