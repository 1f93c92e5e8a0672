//! What the feed for query processes gets from a session: each command, how far the blobs are, and rows in memory.

use super::Session;
use crate::engine::{HeldRequest, PinError, Problem, SOURCE};
use crate::messages::SUBJECT;
use crate::node::now_ms;
use std::collections::VecDeque;
use tidemark_streams_core::feed::{Applied, Held, HeldSet, Mark, Reach, Recent, Served, SessionId, Snapshot};
use tidemark_streams_core::manifest::Command;
use tidemark_streams_core::time::Now;
use tidemark_streams_store::host::ManifestError;

/// How far the blobs are, by the time at which events were accepted.
pub(super) struct Reached {
    /// Batches that are folded, and not in blobs.
    folded: VecDeque<Folded>,
    reach: Reach,
}

/// A batch of the log.
struct Folded {
    end_row: u64,
    accepted_at_ms: u64,
}

impl Reached {
    /// `at_ms`: when the last batch before the session was accepted.
    pub fn new(at_ms: u64) -> Reached {
        Reached { folded: VecDeque::new(), reach: Reach { complete_to_ms: at_ms, updated_at_ms: at_ms } }
    }

    /// A batch is folded as a whole.
    pub fn folded(&mut self, end_row: u64, accepted_at_ms: u64) {
        self.folded.push_back(Folded { end_row, accepted_at_ms });
    }

    /// The blobs have all rows before this one, and `all_to_ms` all events that were accepted before then.
    fn committed(&mut self, position: u64, all_to_ms: Option<u64>) -> Reach {
        let Reach { complete_to_ms, updated_at_ms } = &mut self.reach;
        while self.folded.front().is_some_and(|folded| folded.end_row <= position) {
            let at_ms = self.folded.pop_front().map_or(0, |folded| folded.accepted_at_ms);
            *updated_at_ms = at_ms.max(*updated_at_ms);
        }
        // What was said once stays true: blobs only gain events.
        *complete_to_ms = all_to_ms.into_iter().fold(*updated_at_ms.max(complete_to_ms), u64::max);
        self.reach
    }
}

impl Session<'_> {
    pub(super) fn begin_feed(&mut self) {
        let reach = self.reach();
        let mark = Mark::of(self.host.manifest(), SUBJECT);
        self.node.feed.begin(Recent::new(SessionId(rand::random()), mark, reach));
    }

    /// Gives a command to followers, which is applied.
    pub(super) fn feed(&mut self, command: &Command, now: Now) -> Result<(), Problem> {
        let reach = self.reach();
        let command = command.encode().map_err(ManifestError::from)?;
        let mark = Mark::of(self.host.manifest(), SUBJECT);
        self.node.feed.push(&Applied { command: &command, at_ms: now.0, mark, reach });
        Ok(())
    }

    /// Tells followers that the session runs.
    pub(super) fn tell_reach(&mut self) {
        let reach = self.reach();
        self.node.feed.tell(reach);
    }

    /// While the log has no event that is not in blobs, they are complete to now.
    fn reach(&mut self) -> Reach {
        let now_ms = now_ms();
        let position = self.committed();
        let is_all = position >= self.log.next_row();
        self.reached.committed(position, is_all.then_some(now_ms))
    }

    pub(super) fn snapshot(&mut self) -> Snapshot {
        let settings = &self.node.settings;
        let served = Served {
            directory: self.directory.clone(),
            session: self.node.feed.session().unwrap_or_default(),
            lateness_s: settings.lateness_s,
            reader_grace_s: settings.reader_grace_s,
            types: settings.types.names().to_vec(),
        };
        self.tell_reach();
        Snapshot::of(self.host.manifest(), SUBJECT, served, self.node.feed.told())
    }

    /// The rows of a tenant in memory, for a query process.
    pub(super) fn held(&mut self, request: &HeldRequest) -> Result<Held, PinError> {
        let HeldRequest { tenant, hours, .. } = request;
        let now = self.now();
        let is_caught_up = self.next_index > self.log.progress().durable;
        let not_claimed = || PinError::NotServing("the partition is not claimed yet".to_owned());
        let folded = self.owner.position(SOURCE).ok_or_else(not_claimed)?;
        let sets = self.owner.rows_of(now, tenant)?;
        Ok(Held {
            session: self.node.feed.session().unwrap_or_default(),
            mark: Mark::of(self.host.manifest(), SUBJECT),
            source: SOURCE,
            folded,
            sets: sets.iter().map(|set| HeldSet::of(set, *hours)).collect(),
            at_ms: now.0,
            complete_to_ms: if is_caught_up { now.0 } else { self.folded_at_ms },
            last_updated_at_ms: self.folded_at_ms,
            late: self.log.late_of(tenant),
        })
    }
}
