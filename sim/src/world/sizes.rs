//! How much processes keep, measured every hour of a run of days.

use super::{Event, World};
use crate::checkers::sizes::Size;
use crate::plan::month::DAY;
use tidemark_proto::ids::LogIndex;
use tidemark_proto::limits::{CLAIM_PASSES_MAX, JOURNAL_TRIM_MIN};
use tidemark_proto::time::{Span, Time};

/// How often it is measured.
const MEASURE_INTERVAL: Span = Span(DAY.0 / 24);
/// Entries that a node keeps behind its last checkpoint, which is a minute old at most: two minutes of the busiest hours.
const LOG_ENTRIES_MAX: u64 = 64;
const LOG_BYTES_MAX: u64 = 8 << 10;
/// Of a group's checkpoint: its cells and guards, and each stream that it has to remember, with places of its last batches.
const CHECKPOINT_BYTES_MAX: u64 = 16 << 10;
const STREAM_BYTES_MAX: u64 = 128;
/// An increment gets its place at most this number of ages (an hour) after its batch: that its stream is remembered from then on is not
/// read here.
const PLACED_AGES_LATER_MAX: u32 = 6;
/// Certified increments that a group remembers until the ledger has heard of them, and a few more until it forgets them.
const JOURNAL_MAX: u64 = JOURNAL_TRIM_MIN as u64 + QUEUED_MAX;
/// Cells of ended generations, until the group frees them or the view gives their slots to new cells.
const CELLS_OVER_MAX: u64 = 4;
/// Rows of a view: nothing in them is of a client or an increment.
const VIEW_BYTES_MAX: u64 = 4 << 10;
/// Increments that wait for a place, and places that a group has not acknowledged: of minutes in which something is cut off.
const QUEUED_MAX: u64 = 500;
/// Of a snapshot of the ledger: counters, groups, and each award, which is kept for ever with what became of its claim.
const LEDGER_BYTES_MAX: u64 = 4 << 10;
const AWARD_BYTES_MAX: u64 = 512;
/// Connections that a node believes in, for each client that lives: until it hears that one broke.
const CONNECTIONS_A_CLIENT: u64 = 3;

impl World {
    pub(super) fn plan_measuring(&mut self) {
        if self.plan.days.is_some() {
            self.queue.push(Time(MEASURE_INTERVAL.0), Event::Measure);
        }
    }

    pub(super) fn on_measure(&mut self) {
        if self.faults_over {
            return;
        }
        self.measure_groups();
        self.measure_aggregators();
        self.measure_ledger();
        let (held, most) = self.held_by_clients();
        self.measured("bytes held by clients", held, most);
        self.after(MEASURE_INTERVAL, Event::Measure);
    }

    fn measured(&mut self, name: &'static str, is: u64, bound: u64) {
        let day = ((self.now.0 - 1) / DAY.0) as u32 + 1;
        let audit = &mut self.audit;
        audit.sizes.measured(&mut audit.findings, day, name, Size { is, bound });
    }

    fn measure_groups(&mut self) {
        let cells = self.names.len() as u64 + CELLS_OVER_MAX;
        let clients = self.clients.iter().filter(|client| client.is_alive()).count() as u64;
        for group in 0..self.groups.len() {
            let truth = &self.audit.oracle.groups[group];
            let Some(core) = self.serving(group).and_then(|node| self.nodes[node].core()) else { continue };
            let state = core.group();
            // It knows of an age a moment later than the log.
            if state.applied() < LogIndex(truth.seen) {
                continue;
            }
            let streams = u64::from(state.streams());
            let queued = state.queued();
            let journals: u64 = state.guards().iter().map(|guard| guard.journal().count() as u64).sum();
            // Nothing is forgotten of which an increment waits, or is in a journal.
            let ages = self.audit.oracle.streams_kept + PLACED_AGES_LATER_MAX;
            let kept = truth.remembered(ages) + queued + journals;
            let named = u64::from(state.table().len());
            let connections = core.connections() as u64;
            self.measured("streams of a group", streams, kept);
            self.measured("increments queued at a group", queued, QUEUED_MAX);
            self.measured("journals of a group", journals, JOURNAL_MAX);
            self.measured("cells of a group", named, cells);
            self.measured("connections of a node", connections, clients * CONNECTIONS_A_CLIENT);
            for node in self.processes_of(group) {
                let disk = self.nodes[node].disk().bytes();
                self.measured("log entries on a disk", disk.entries, LOG_ENTRIES_MAX);
                self.measured("log bytes on a disk", disk.log, LOG_BYTES_MAX);
                let most = CHECKPOINT_BYTES_MAX + STREAM_BYTES_MAX * self.streams_peak(group, kept);
                self.measured("checkpoint bytes of a group", disk.rows, most);
            }
        }
    }

    /// The most streams that the group has had to remember: numbers of forgotten ones are given again, and leave a byte until then.
    fn streams_peak(&mut self, group: usize, kept: u64) -> u64 {
        let peak = &mut self.audit.streams_peak[group];
        *peak = kept.max(*peak);
        *peak
    }

    fn measure_aggregators(&mut self) {
        let cells = self.names.len() as u64 + CELLS_OVER_MAX;
        for dc in self.members() {
            let bytes =
                self.aggregators[dc].rows().flatten().map(|(key, value)| (key.len() + value.len()) as u64).sum();
            self.measured("view bytes", bytes, VIEW_BYTES_MAX);
            let Some(core) = self.aggregators[dc].core() else { continue };
            let named = core.view().len();
            let standing = core.standing() as u64;
            self.measured("cells of a view", named, cells);
            self.measured("commands that wait for the ledger", standing, QUEUED_MAX);
        }
    }

    fn measure_ledger(&mut self) {
        let ledger = &self.reference;
        let counters = || self.names.iter().filter_map(|name| ledger.counter(name));
        let awards = self.audit.awards.known.len() as u64;
        let kept = counters().map(|state| state.awards().len() as u64).sum();
        let undecided = counters().map(|state| state.window().undecided()).sum();
        let untaken = counters().flat_map(|state| state.accounts().values());
        let untaken = untaken.map(|account| account.unacknowledged()).sum();
        let claims = ledger.claims().size() as u64;
        let bytes = ledger.stored_bytes() as u64;
        let passes = u64::from(CLAIM_PASSES_MAX);
        self.measured("awards", kept, awards);
        self.measured("claims and their turns", claims, awards * (2 * passes + 2));
        self.measured("increments undecided", undecided, QUEUED_MAX);
        self.measured("places not acknowledged", untaken, QUEUED_MAX);
        self.measured("ledger bytes", bytes, LEDGER_BYTES_MAX + AWARD_BYTES_MAX * awards);
    }

    fn held_by_clients(&self) -> (u64, u64) {
        let alive = self.clients.iter().filter(|client| client.is_alive());
        let (held, count) = alive.fold((0, 0), |(held, count), client| (held + client.bytes_held(), count + 1));
        (held, count * self.plan.workload.client_bytes_max as u64)
    }
}
