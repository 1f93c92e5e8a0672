//! Leases as this process start holds them: their ends, by its own clock, and the answers that wait for one.
//!
//! A lease runs from the sending of a report of this start, once the ledger is known to have applied that very report. So a start
//! begins without any. The log decides which increments are certified: in it this start writes when the lease begins and ends.
//! This module decides whether they are answered as counted, by the clock when the answer leaves. An answer that has to wait says
//! "pending".

use crate::group::{Group, Leased};
use crate::node::NodeCore;
use std::collections::{BTreeMap, VecDeque};
use tidemark_types::ids::ClientId;
use tidemark_types::limits::LEASE;
use tidemark_types::teeth::{Bug, bites};
use tidemark_types::time::Time;
use tidemark_wire::msg::{GroupCmd, Opened, Place};

/// Reports of one guard that are remembered until their lease would be over; of more the oldest are forgotten.
const REPORTS_MAX: usize = 1_024;

/// All leases of this start.
#[derive(Debug, Default)]
pub(super) struct Leases {
    guards: BTreeMap<u32, Clock>,
    /// Answers that wait, by guard and spending: at most the journals' increments.
    withheld: BTreeMap<(u32, u64), Withheld>,
}

/// The lease of one guard's present generation.
#[derive(Debug, Default)]
struct Clock {
    generation: u32,
    /// Reports sent: number and time.
    sent: VecDeque<(u64, Time)>,
    /// It runs until then.
    until: Time,
    /// As the log says it, entries on their way included.
    logged: bool,
}

#[derive(Clone, Copy, Debug)]
struct Withheld {
    client: ClientId,
    lane: u8,
    seq: u64,
    idx: u32,
}

impl Leases {
    /// The clock of a guard's present generation.
    fn clock(&mut self, number: u32, generation: u32) -> &mut Clock {
        let clock = self.guards.entry(number).or_default();
        if clock.generation != generation {
            *clock = Clock { generation, ..Clock::default() };
        }
        clock
    }

    fn runs(&self, number: u32, generation: u32, now: Time) -> bool {
        let clock = self.guards.get(&number).filter(|clock| clock.generation == generation);
        clock.is_some_and(|clock| now < clock.until)
    }

    /// A report leaves.
    pub fn on_report(&mut self, group: &Group, number: u32, report_no: u64, now: Time) {
        let guard = &group.guards()[number as usize];
        if !guard.is_leased() {
            return;
        }
        let clock = self.clock(number, guard.generation);
        while clock.sent.len() >= REPORTS_MAX || clock.sent.front().is_some_and(|&(_, at)| at + LEASE <= now) {
            clock.sent.pop_front();
        }
        clock.sent.push_back((report_no, now));
    }

    /// The ledger has applied a report. Only one of this start counts: a later start's numbers are above its own.
    fn on_applied(&mut self, number: u32, generation: u32, report_no: u64) {
        let clock = self.clock(number, generation);
        if let Some(at) = clock.sent.iter().position(|&(no, _)| no == report_no) {
            clock.until = clock.until.max(clock.sent[at].1 + LEASE);
            clock.sent.drain(..at);
        }
    }
}

impl NodeCore {
    /// Takes the ledger's message about a leased account, before it goes through the log.
    pub(super) fn on_lease_acks(&mut self, opened: &Opened) {
        let account = &opened.account;
        let number = self.group.guard_of(&account.counter).filter(|_| account.group == self.config.group.id);
        let Some(number) = number else { return };
        let guard = &self.group.guards()[number as usize];
        if !guard.is_leased() || (guard.epoch, guard.generation) != (account.epoch, account.generation) {
            return;
        }
        self.leases.on_applied(number, account.generation, account.last_report);
        self.release(number, account.acked_spent);
    }

    /// Releases the answers with spending that the ledger has applied: these increments count, whatever happens to the lease.
    fn release(&mut self, number: u32, upto: u64) {
        while let Some((&key, _)) = self.leases.withheld.range((number, 0)..=(number, upto)).next() {
            let Some(Withheld { client, lane, seq, idx }) = self.leases.withheld.remove(&key) else { return };
            self.tell_placed(client, lane, seq, idx, Place::Counted);
        }
    }

    /// A generation ended: its uncounted increments are queued, and their places are reported like any other.
    pub(super) fn on_closed(&mut self, number: u32, upto: u64) {
        self.release(number, upto);
        self.leases.withheld.retain(|&(guard, _), _| guard != number);
        self.leases.guards.remove(&number);
    }

    /// The items of an answer that are pending, including those that were certified under a lease that is over by now.
    pub(super) fn pending_now(
        &mut self,
        now: Time,
        client: ClientId,
        lane: u8,
        seq: u64,
        mut pending: Vec<u32>,
        leased: &[Leased],
    ) -> Vec<u32> {
        for &Leased { idx, guard, upto } in leased {
            let generation = self.group.guards()[guard as usize].generation;
            if !self.leases.runs(guard, generation, now) && !bites(Bug::AnsweredWithoutLease) {
                self.leases.withheld.insert((guard, upto), Withheld { client, lane, seq, idx });
                pending.push(idx);
            }
        }
        if !leased.is_empty() {
            pending.sort_unstable();
            pending.dedup();
        }
        pending
    }

    /// Writes the state of leases by the clock into the log, and sends clients the answers that waited for a lease.
    pub(super) fn run_leases(&mut self, now: Time) {
        if !self.group.is_last_boot(self.nonce) {
            return;
        }
        let mut cmds = Vec::new();
        let mut running = Vec::new();
        for (&guard, clock) in &mut self.leases.guards {
            let runs = now < clock.until;
            if clock.logged != runs {
                clock.logged = runs;
                cmds.push(GroupCmd::Lease { guard, generation: clock.generation, held: runs });
            }
            running.extend(runs.then_some(guard));
        }
        cmds.into_iter().for_each(|cmd| self.log.push_cmd(&self.config, cmd));
        if !self.leases.withheld.is_empty() {
            running.into_iter().for_each(|number| self.release(number, u64::MAX));
        }
    }

    /// When a lease ends that the log holds for running.
    pub(super) fn leases_due(&self) -> Option<Time> {
        self.leases.guards.values().filter(|clock| clock.logged).map(|clock| clock.until).min()
    }
}
