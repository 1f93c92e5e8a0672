//! A group's log on several nodes: one of them leads and proposes, all apply committed entries, in the same order.
//!
//! A leadership is a start of the group, like a process start with one node. It draws a nonce and logs it, and the ledger hears
//! of it before rights are used (decision 0005). Each proposal of a leader names that start and the place that it was made for. A
//! proposal that is committed in another place, or is not of the last start in the log, is the same nothing on every replica. So
//! the entries of a leadership that count are the first ones that it made, without a gap. That holds even if the log's consensus
//! loses, repeats or delays entries when leaders change. And a leader's assumptions about entries under way (slots of new cells)
//! hold.

use crate::group::{Group, Row};
use crate::node::{Feed, NodeConfig, NodeCore, Output, RecoverError, commit, pulse};
use tidemark_types::ids::LogIndex;
use tidemark_types::teeth::{Bug, bites};
use tidemark_types::time::{Time, WallMs};
use tidemark_wire::msg::{GroupCmd, GroupEntry, Proposed};
use tidemark_wire::wire::{WireError, decode, encode};

/// The role of this process in the group's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The log is on this node alone.
    Alone,
    Leads,
    Follows,
}

impl NodeCore {
    /// A replica that follows, from the rows of its checkpoints (in the order of their keys; empty if there are none). Entries
    /// committed behind them are handed in as [`crate::node::Input::Committed`]. The group's incarnation comes from the log: that
    /// of `config` is 0. If old buckets may have left memory, the caller must set their shelf ([`NodeCore::keep_within`]).
    /// Errors: [`RecoverError`]; never panics.
    pub fn replica(config: NodeConfig, rows: impl IntoIterator<Item = Row>) -> Result<NodeCore, RecoverError> {
        debug_assert_eq!(config.group.id.incarnation, 0, "the incarnation of a replica is its log's");
        let group = Group::load(config.group, rows)?.unwrap_or_else(|| Group::new(config.group));
        let config = NodeConfig { group: *group.config(), ..config };
        let mut core = NodeCore::with_group(config, 0, group, 0);
        core.begin(Role::Follows, 0);
        core.outputs.clear();
        Ok(core)
    }

    /// Whether this process leads the group: it is alone, or leads a log that has an incarnation. Only then are clients and the
    /// aggregator connected.
    pub fn leads(&self) -> bool {
        self.proposes() && self.config.group.id.incarnation != 0
    }

    pub(super) fn proposes(&self) -> bool {
        self.role != Role::Follows
    }

    pub(super) fn is_replica(&self) -> bool {
        self.role != Role::Alone
    }

    /// Forgets everything under way here: connections, repetitions, commands that wait for the log.
    fn begin(&mut self, role: Role, nonce: u64) {
        (self.role, self.nonce) = (role, nonce);
        self.log = commit::Log::new(self.group.applied(), self.group.table().len());
        (self.clients, self.leases) = (Default::default(), Default::default());
        self.holds.forget();
        self.feeds = Feed::all(self.group.applied());
        match role {
            Role::Follows => self.group.is_told_by_others(),
            Role::Alone | Role::Leads => self.group.tells_from_here(),
        }
        self.pulses = pulse::Pulses::new(self.group.guards().len());
        (self.aged_at, self.id_terms_said, self.compacts_as) = (None, false, None);
        self.outputs.push_back(Output::EndClients);
    }

    /// Frees slots of ended generations, once they are many.
    pub(super) fn propose_compaction(&mut self) {
        // Starts without a confirmation are not to pile up.
        let is_at_rest = self.group.is_last_boot(self.nonce) && self.group.rights_usable();
        let may = is_at_rest && self.proposes() && self.compacts_as.is_none() && !bites(Bug::NothingGivenBack);
        if may && self.group.is_to_compact(self.config.compacted_min, self.config.compacted_part) {
            let nonce = self.next_nonce();
            self.compacts_as = Some(nonce);
            self.log.push_compact(nonce);
        }
    }

    /// Slots have other numbers: every process that names old ones was told them by this process, which begins anew. Clients send
    /// again all that has no answer.
    pub(super) fn on_compacted(&mut self) {
        let Some(nonce) = self.compacts_as.filter(|&nonce| self.group.is_last_boot(nonce)) else { return };
        let up = self.pulses.up();
        self.begin(self.role, nonce);
        self.pulses.set_up(up);
    }

    fn next_nonce(&self) -> u64 {
        tidemark_types::hash::bytes_hash(self.nonce, &self.group.applied().0.to_le_bytes())
    }

    pub(super) fn on_follow(&mut self) {
        self.begin(Role::Follows, 0);
    }

    pub(super) fn on_lead(&mut self, now: Time, nonce: u64) {
        self.begin(Role::Leads, nonce);
        match self.config.group.id.incarnation {
            0 => self.propose_incarnation(now),
            _ => self.push_boot(),
        }
    }

    /// Seconds since 1970, so that a log that replaces a lost one is never taken for it.
    fn propose_incarnation(&mut self, now: Time) {
        let WallMs(wall) = self.wall(now);
        let second = || u32::try_from(wall / 1_000).unwrap_or(u32::MAX);
        let incarnation = if bites(Bug::IncarnationReused) { 1 } else { self.config.founded_as.unwrap_or_else(second) };
        let incarnation = incarnation.max(1);
        let entry = encode(&Proposed::Found { incarnation });
        self.outputs.push_back(Output::Append { index: self.group.applied(), entry });
    }

    pub(super) fn on_committed(&mut self, now: Time, command: &[u8]) {
        match decode::<Proposed>(command) {
            Ok(Proposed::Found { incarnation }) => self.on_found(incarnation),
            Ok(Proposed::Entry { start, index, entry }) => self.on_proposed(now, start, index, &entry, command.len()),
            Err(error) => return self.stop(error),
        }
        let touched = self.group.take_touched();
        if self.proposes() {
            touched.into_iter().for_each(|guard| self.pulses.touch(guard, now));
        }
    }

    fn stop(&mut self, error: WireError) {
        self.is_stopped = true;
        self.outputs.push_back(Output::Stop { error });
    }

    fn on_found(&mut self, incarnation: u32) {
        self.group.found(incarnation);
        let founded = std::mem::replace(&mut self.config.group.id, self.group.config().id).incarnation == 0;
        if founded && self.proposes() {
            self.push_boot();
        }
    }

    fn on_proposed(&mut self, now: Time, start: u64, index: LogIndex, entry: &GroupEntry, bytes: usize) {
        let own = self.proposes() && start == self.nonce;
        let follows = index == self.group.applied().next() || bites(Bug::LeadershipGapTaken);
        let counts = follows && (self.group.is_last_boot(start) || begins(entry, start));
        if counts || bites(Bug::StaleLeaderTaken) {
            self.log.on_durable(now, index);
            let due = self.log.next_durable().is_some();
            debug_assert!(due || !own, "an own entry that counts is the next one under way");
            self.apply(now, self.group.applied().next(), entry, bytes);
        }
        // An entry of an earlier leadership came between this one's entries: its assumptions about them no longer hold.
        if self.proposes() && own != counts {
            self.lead_again();
        }
    }

    /// Leads with another nonce: entries of this leadership that are still under way do not count.
    fn lead_again(&mut self) {
        let up = self.pulses.up();
        let nonce = self.next_nonce();
        self.begin(Role::Leads, nonce);
        self.pulses.set_up(up);
        self.push_boot();
    }

    fn push_boot(&mut self) {
        self.log.push_cmd(&self.config, self.config.group.boot(self.nonce));
    }

    /// The entry as it is proposed to other nodes.
    pub(super) fn envelop(&self, index: LogIndex, entry: GroupEntry) -> (GroupEntry, Vec<u8>) {
        let proposed = Proposed::Entry { start: self.nonce, index, entry };
        let encoded = encode(&proposed);
        match proposed {
            Proposed::Entry { entry, .. } => (entry, encoded),
            Proposed::Found { .. } => unreachable!("made above"),
        }
    }
}

/// Whether the entry begins the leadership that `start` stands for.
fn begins(entry: &GroupEntry, start: u64) -> bool {
    matches!(entry.cmds.first(), Some(GroupCmd::Boot { nonce, .. }) if *nonce == start)
}
