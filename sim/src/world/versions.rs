//! Processes of the next version among those of this one: their messages end with a tail, which only they know. Where links are modelled, a
//! message that has one of them at an end is really encoded, and decoded when it comes.

use super::World;
use crate::checkers::versions;
use crate::engine::Party;
use crate::plan::Plan;
use crate::rng::Rng;
use std::fmt::Debug;
use tidemark_proto::limits::TAIL_BYTES_MAX;
use tidemark_proto::wire::{self, Message};

/// Lengths of tails: empty, of a field or some, about where a length takes a second byte, and the longest.
const TAILS: [usize; 7] = [0, 1, 8, 40, 127, 128, TAIL_BYTES_MAX];

/// The additional tails of the processes of the next version.
pub struct Versions {
    is_mixed: bool,
    rng: Rng,
    tail: Vec<u8>,
}

impl Versions {
    pub fn new(plan: &Plan) -> Versions {
        let is_mixed = plan.versions.is_mixed() && !plan.only.one_version;
        Versions { is_mixed, rng: plan.versions.tails(), tail: Vec::new() }
    }

    /// The message as a process of the next version says it.
    fn encode<M: Message>(&mut self, message: &M) -> Vec<u8> {
        let length = *self.rng.pick(&TAILS);
        self.tail.clear();
        while self.tail.len() < length {
            self.tail.extend_from_slice(&self.rng.next().to_le_bytes());
        }
        self.tail.truncate(length);
        let room = TAIL_BYTES_MAX - message.tail().len();
        wire::encode_with_tail(message, &self.tail[..self.tail.len().min(room)])
    }
}

impl World {
    /// Whether the process, as it runs now, is of the next version.
    fn is_next(&self, process: Party) -> bool {
        self.was_next(process, self.start_of(process))
    }

    /// Whether it was, since that start.
    pub(super) fn was_next(&self, process: Party, start: u32) -> bool {
        self.versions.is_mixed && self.plan.versions.is_next(process, start)
    }

    fn start_of(&self, process: Party) -> u32 {
        match process {
            // Counts ends as well as starts.
            Party::Aggregator(at) => self.aggregators[at].boot / 2,
            Party::Node(node) => self.nodes[node].boot.saturating_sub(1),
            Party::Client { .. } => 0,
        }
    }

    /// For the words of a trace.
    pub(super) fn version_of(&self, process: Party) -> &'static str {
        if self.is_next(process) { ", of the next version" } else { "" }
    }

    /// A process has started again.
    pub(super) fn cover_version(&mut self, process: Party) {
        let start = self.start_of(process);
        let changed = start > 0 && self.was_next(process, start - 1) != self.was_next(process, start);
        self.coverage.saw_times("process came back in another version", u64::from(changed));
    }

    /// A client's process is followed by another.
    pub(super) fn cover_successor(&mut self, before: usize, after: usize) {
        // Where they stand does not matter.
        let process = |client| Party::Client { client, dc: 0 };
        let changed = self.is_next(process(before)) != self.is_next(process(after));
        self.coverage.saw_times("process came back in another version", u64::from(changed));
    }

    /// A message as its sender encodes it.
    pub(super) fn encoded<M: Message>(&mut self, from: Party, message: &M) -> Vec<u8> {
        if self.is_next(from) { self.versions.encode(message) } else { wire::encode(message) }
    }

    /// A message comes by a modelled link: what its receiver reads. A link does not outlive a start of its ends, so both are what they
    /// were when it was said.
    pub(super) fn heard<M: Message + PartialEq + Debug>(&mut self, from: Party, to: Party, said: M) -> Option<M> {
        self.heard_of(from, self.start_of(from), to, said)
    }

    /// As above, from a process that may have started again since, of its start by number, from 0.
    pub(super) fn heard_of<M>(&mut self, from: Party, start: u32, to: Party, said: M) -> Option<M>
    where
        M: Message + PartialEq + Debug,
    {
        let from_next = self.was_next(from, start);
        let to_next = self.is_next(to);
        if !(from_next || to_next) || self.has_lines() {
            return Some(said);
        }
        let bytes = if from_next { self.versions.encode(&said) } else { wire::encode(&said) };
        let read = versions::read(&mut self.audit.findings, &said, wire::decode(&bytes));
        self.cover_heard(from_next, to_next);
        read
    }

    pub(super) fn cover_heard(&mut self, from_next: bool, to_next: bool) {
        match (from_next, to_next) {
            (true, false) => self.coverage.saw("message of the next version read"),
            (false, true) => self.coverage.saw("message read by the next version"),
            _ => {}
        }
    }

    /// A message came by a real connection and was decoded: one with a tail is longer than what was read of it.
    pub(super) fn cover_came<M: Message>(&mut self, to: Party, bytes: usize, message: &M) {
        if self.versions.is_mixed {
            self.cover_heard(bytes > wire::encode(message).len(), self.is_next(to));
        }
    }
}
