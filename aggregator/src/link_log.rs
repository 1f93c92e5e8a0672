//! A line in the log for each change of a link: lost, with the reason and its length of life, and regained, with the length of the outage.

use std::future::Future;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// A peer that does not answer for so long is said.
const UNANSWERED_AFTER: Duration = Duration::from_secs(10);

/// How a reason begins where the connection or the channel was closed: by the peer, or by this process, which ends.
const CLOSED_IN_ORDER: [&str; 2] = ["closed by the peer", "closed here"];

/// The state of a link to one peer.
pub(crate) struct LinkLog {
    peer: String,
    state: State,
}

enum State {
    /// Never up since the start.
    New {
        said: String,
    },
    Up {
        since: Instant,
    },
    Down {
        since: Instant,
        reason: String,
    },
}

impl LinkLog {
    pub fn new(peer: String) -> LinkLog {
        LinkLog { peer, state: State::New { said: String::new() } }
    }

    /// The link is there.
    pub fn up(&mut self) {
        let peer = &self.peer;
        match &self.state {
            State::Up { .. } => return,
            State::New { .. } => tracing::info!(%peer, "connected"),
            State::Down { since, .. } => tracing::info!(%peer, away_ms = ms(*since), "connected again"),
        }
        self.state = State::Up { since: Instant::now() };
    }

    /// The link has ended. A peer that closes it in order, as a process that is told to end does, is nothing to warn of.
    pub fn down(&mut self, reason: &str) {
        if let State::Up { since } = self.state {
            let peer = &self.peer;
            let up_ms = ms(since);
            match CLOSED_IN_ORDER.iter().any(|closed| reason.starts_with(closed)) {
                true => tracing::info!(%peer, %reason, up_ms, "connection closed"),
                false => tracing::warn!(%peer, %reason, up_ms, "connection lost"),
            }
            self.state = State::Down { since: Instant::now(), reason: reason.to_owned() };
        }
    }

    /// An attempt failed, or has had no answer for long. Said when the reason changes.
    pub fn refused(&mut self, reason: &str) {
        let peer = &self.peer;
        match &mut self.state {
            State::Up { .. } => {}
            State::New { said } => {
                if said != reason {
                    tracing::warn!(%peer, %reason, "not connected yet");
                    reason.clone_into(said);
                }
            }
            State::Down { reason: before, .. } if before == reason => {}
            State::Down { reason: before, since } => {
                tracing::warn!(%peer, %reason, away_ms = ms(*since), "still not connected");
                reason.clone_into(before);
            }
        }
    }
}

/// Waits for an attempt that goes on until it is answered; a long wait is logged.
pub(crate) async fn patiently<T>(attempt: impl Future<Output = T>, late: impl Fn()) -> T {
    let mut attempt = std::pin::pin!(attempt);
    loop {
        tokio::select! {
            answered = &mut attempt => return answered,
            () = sleep(UNANSWERED_AFTER) => late(),
        }
    }
}

/// The reason for a peer that does not answer.
pub(crate) const UNANSWERED: &str = "no answer";

fn ms(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}
