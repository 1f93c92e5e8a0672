//! The feed of the manifest for query processes: the owner's thread writes it, and requests read it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tidemark_streams_core::feed::{Applied, FeedRefused, Page, Reach, Recent, SessionId, Told};
use tokio::sync::watch;

/// A request for commands waits so long for the first one.
pub const FEED_WAIT: Duration = Duration::from_secs(1);

pub struct Feed {
    state: Mutex<State>,
    /// Rises with each change.
    changes: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    recent: Option<Recent>,
    told_at: Option<Instant>,
}

/// Why there is no page.
#[derive(Debug, thiserror::Error)]
pub enum NoPage {
    #[error(transparent)]
    Refused(#[from] FeedRefused),
    #[error("the owner's thread does not run")]
    NotServing,
}

impl Default for Feed {
    fn default() -> Feed {
        Feed { state: Mutex::default(), changes: watch::Sender::new(0) }
    }
}

impl Feed {
    /// A session of the owner begins.
    pub fn begin(&self, recent: Recent) {
        *self.state() = State { recent: Some(recent), told_at: Some(Instant::now()) };
        self.changed();
    }

    /// The session has ended.
    pub fn end(&self) {
        *self.state() = State::default();
        self.changed();
    }

    /// Adds a command that is durable and applied.
    pub fn push(&self, applied: &Applied<'_>) {
        if let Some(recent) = &mut self.state().recent {
            recent.push(applied);
        }
        self.changed();
    }

    /// The owner's thread runs, and the blobs reach so far.
    pub fn tell(&self, reach: Reach) {
        let mut state = self.state();
        state.told_at = Some(Instant::now());
        if let Some(recent) = &mut state.recent {
            recent.tell(reach);
        }
    }

    /// The session, while there is one.
    pub fn session(&self) -> Option<SessionId> {
        self.state().recent.as_ref().map(Recent::session)
    }

    pub fn told(&self) -> Told {
        let state = self.state();
        let reach = state.recent.as_ref().map(Recent::reach).unwrap_or_default();
        Told { reach, age_ms: age_ms(&state) }
    }

    /// The commands after an index. It waits a moment for the first one.
    ///
    /// # Errors
    /// [`NoPage`].
    pub async fn page(&self, session: SessionId, after: u64) -> Result<Page, NoPage> {
        let mut changes = self.changes.subscribe();
        let end = tokio::time::Instant::now() + FEED_WAIT;
        loop {
            changes.mark_unchanged();
            let page = self.present_page(session, after)?;
            if !page.commands.is_empty() {
                return Ok(page);
            }
            if tokio::time::timeout_at(end, changes.changed()).await.is_err() {
                // More may be known of the same state.
                return self.present_page(session, after);
            }
        }
    }

    fn present_page(&self, session: SessionId, after: u64) -> Result<Page, NoPage> {
        let state = self.state();
        let recent = state.recent.as_ref().ok_or(NoPage::NotServing)?;
        Ok(recent.page(session, after, age_ms(&state))?)
    }

    fn changed(&self) {
        self.changes.send_modify(|changes| *changes += 1);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn age_ms(state: &State) -> u64 {
    state.told_at.map_or(0, |at| at.elapsed().as_millis() as u64)
}
