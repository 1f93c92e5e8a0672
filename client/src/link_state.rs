//! Whether the node that a client uses takes increments, and since when it does not.

use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Whether the node in use takes increments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// It has welcomed this client.
    Up,
    /// No node does.
    Down {
        /// Since when.
        since: Instant,
        /// When a node of the group said last that it is there, and does not lead.
        answered: Option<Instant>,
        /// Why the last link ended, or was not made.
        reason: String,
    },
}

impl LinkState {
    /// From which time on the group counts as gone, if no link comes up before: `silent` after it was heard last, or `leaderless` after
    /// the link went down while its nodes answer.
    pub fn gone_at(&self, silent: Duration, leaderless: Duration) -> Option<Instant> {
        match self {
            LinkState::Up => None,
            LinkState::Down { since, answered: None, .. } => Some(*since + silent),
            LinkState::Down { since, answered: Some(answered), .. } => {
                Some((*answered + silent).min(*since + leaderless).max(*since + silent))
            }
        }
    }

    /// Why there is no link; nothing while there is one.
    pub fn reason(&self) -> &str {
        match self {
            LinkState::Up => "",
            LinkState::Down { reason, .. } => reason,
        }
    }
}

/// How a link ended, or why it was not made.
#[derive(Clone, Debug)]
pub(crate) struct Gone {
    pub why: String,
    /// The other side was not heard for so long when that was noticed.
    pub silent_for: Duration,
    /// A node answered that it does not lead the group.
    pub answered: bool,
}

/// Publishes the state of the link in use.
pub(crate) struct Links {
    state: watch::Sender<LinkState>,
    last: Gone,
}

impl Links {
    pub fn new(state: watch::Sender<LinkState>) -> Links {
        Links { state, last: Gone { why: NOT_YET.to_owned(), silent_for: Duration::ZERO, answered: false } }
    }

    /// The state before the first link.
    pub fn first() -> LinkState {
        LinkState::Down { since: Instant::now(), answered: None, reason: NOT_YET.to_owned() }
    }

    /// A link has ended.
    pub fn note(&mut self, gone: Gone) {
        let now = Instant::now();
        self.state.send_if_modified(|state| {
            let LinkState::Down { answered, reason, .. } = state else { return false };
            if gone.answered {
                *answered = Some(now);
            }
            reason.clone_from(&gone.why);
            true
        });
        self.last = gone;
    }

    /// Whether the link in use is up now.
    pub fn publish(&mut self, is_up: bool) {
        let Gone { why, silent_for, .. } = &self.last;
        self.state.send_if_modified(|state| match (&*state, is_up) {
            (LinkState::Up, true) | (LinkState::Down { .. }, false) => false,
            (LinkState::Down { .. }, true) => {
                *state = LinkState::Up;
                true
            }
            (LinkState::Up, false) => {
                let now = Instant::now();
                let since = now.checked_sub(*silent_for).unwrap_or(now);
                *state = LinkState::Down { since, answered: None, reason: why.clone() };
                true
            }
        });
    }
}

const NOT_YET: &str = "not connected yet";

#[cfg(test)]
mod tests {
    use super::*;

    const SILENT: Duration = Duration::from_millis(1_500);
    const LEADERLESS: Duration = Duration::from_millis(5_000);

    #[tokio::test(start_paused = true)]
    async fn a_group_whose_nodes_answer_is_gone_later_than_a_silent_one() {
        let (sender, state) = watch::channel(Links::first());
        let mut links = Links::new(sender);
        links.publish(true);
        assert_eq!(state.borrow().gone_at(SILENT, LEADERLESS), None);
        let start = Instant::now();
        let silent_for = Duration::from_secs(1);
        links.note(Gone { why: "nothing heard".into(), silent_for, answered: false });
        links.publish(false);
        let after = |state: &LinkState| state.gone_at(SILENT, LEADERLESS).unwrap().saturating_duration_since(start);
        assert_eq!((after(&state.borrow()), state.borrow().reason()), (SILENT - silent_for, "nothing heard"));
        tokio::time::advance(Duration::from_secs(1)).await;
        let elsewhere = || Gone { why: "led elsewhere".into(), silent_for: Duration::ZERO, answered: true };
        links.note(elsewhere());
        links.publish(false);
        assert_eq!(after(&state.borrow()), Duration::from_secs(1) + SILENT, "it answered now");
        tokio::time::advance(Duration::from_secs(9)).await;
        links.note(elsewhere());
        assert_eq!(after(&state.borrow()), LEADERLESS - silent_for, "and never has a leader");
    }
}
