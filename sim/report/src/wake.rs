//! When a machine wants its next tick.

use tidemark_proto::time::{Span, Time};

/// A tick is queued for `armed`, or none is. An earlier wish queues another one; the later one then means nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wake {
    armed: Option<Time>,
}

impl Wake {
    /// When a new tick has to be queued, if one has.
    pub fn arm(&mut self, now: Time, wanted: Option<Time>) -> Option<Time> {
        let at = wanted?.max(now + Span(1));
        if self.armed.is_some_and(|armed| armed <= at && armed > now) {
            return None;
        }
        self.armed = Some(at);
        self.armed
    }

    /// A tick came: whether it is the one that was armed last.
    pub fn fired(&mut self, now: Time) -> bool {
        let fired = self.armed.is_some_and(|armed| armed <= now);
        if fired {
            self.armed = None;
        }
        fired
    }
}
