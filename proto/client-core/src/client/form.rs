//! From unsent content to batches, and from batches to links.

use super::counters::{Key, Kind, QueuedHit, Unsent};
use super::stay::{Asked, Batch, BatchHit, BatchItem, LinkState, Phase, Stay, StayId};
use super::{AddError, BATCH_BYTES_MAX, ClientCore, CounterRef, LinkId, Outcome, Output, TIMEOUTS_MAX};
use tidemark_types::ids::CounterName;
use tidemark_types::limits::DELTA_MAX;
use tidemark_types::series::UnixTime;
use tidemark_types::time::Time;
use tidemark_wire::msg::{FromClient, WireItem, definition};

/// Items waiting for a lane from which on a batch is formed before it is due.
const FULL_ITEMS: usize = 4_096;
/// Bytes of an item on the wire without its counter's name: number, delta, session, definition, each at its longest.
const ITEM_BYTES: usize = 5 + 6 + 17 + 9;
/// And of its event time.
const ITEM_TIME_BYTES: usize = 5;
/// And of its id.
const ITEM_ID_BYTES: usize = 25;

impl ClientCore {
    pub(super) fn form_full_lane(&mut self, now: Time, counter: CounterRef, kind: Kind) {
        let lane = self.counters.lane(counter);
        if self.counters.queue(lane).len(kind) >= FULL_ITEMS.min(self.batch_items_max) && self.has_room(lane) {
            self.form(now, lane, kind);
        }
    }

    /// Forms and sends the due batches that have room.
    pub(super) fn form_due(&mut self, now: Time) {
        for lane in 0..self.counters.lanes() {
            while self.forms_at(lane).is_some_and(|due| due <= now) && self.has_room(lane) {
                let kind = self.counters.next_kind(lane);
                self.form(now, lane, kind);
            }
        }
    }

    pub(super) fn forming_timeout(&self) -> Option<Time> {
        let lanes = (0..self.counters.lanes()).filter(|lane| self.has_room(*lane));
        lanes.filter_map(|lane| self.forms_at(lane)).min()
    }

    /// When the lane's next batch is formed. Hits wait only while earlier batches are under way, and as the lane's pace says.
    fn forms_at(&self, lane: u8) -> Option<Time> {
        let queue = self.counters.queue(lane);
        let due = queue.due?;
        let hits = queue.hits();
        if hits == 0 || self.config.gather_max.is_none() {
            return Some(due);
        }
        let stream = self.current.and_then(|id| self.stays[&id].streams.get(&lane));
        let free_at = stream.map_or(Some(Time(0)), |stream| match stream.undurable {
            0 => Some(stream.pace.free_at(hits)),
            _ => None,
        });
        Some(free_at.map_or(due, |free_at| free_at.min(due)))
    }

    fn has_room(&self, lane: u8) -> bool {
        let Some(stay) = self.current.map(|id| &self.stays[&id]) else { return false };
        let free = |stream: &super::stay::Stream| {
            stream.phase == Phase::Flowing && stream.undurable < self.config.in_flight_max
        };
        stay.is_up() && stay.streams.get(&lane).is_none_or(free)
    }

    /// Forms one batch of a lane's unsent content of a kind, bound to the current stay until that is fenced.
    fn form(&mut self, now: Time, lane: u8, kind: Kind) {
        let mut batch = Batch::new(self.epoch);
        let mut bytes = 0;
        let adds_first = match self.counters.queue(lane).has_hits(kind) {
            false => self.batch_items_max,
            true => self.batch_items_max.div_ceil(2),
        };
        self.take_adds(now, lane, kind, adds_first, &mut batch, &mut bytes);
        self.take_hits(now, lane, kind, &mut batch, &mut bytes);
        self.take_adds(now, lane, kind, self.batch_items_max, &mut batch, &mut bytes);
        let queue = self.counters.queue_mut(lane);
        if queue.is_empty() {
            queue.due = None;
        }
        if !batch.items.is_empty() {
            self.bind(now, lane, batch);
        }
    }

    fn take_adds(&mut self, now: Time, lane: u8, kind: Kind, items_max: usize, batch: &mut Batch, bytes: &mut usize) {
        while batch.items.len() < items_max && *bytes < BATCH_BYTES_MAX {
            let Some(unsent) = self.counters.take_add(lane, kind, DELTA_MAX) else { break };
            let Unsent { counter, delta, epoch, event } = unsent;
            if let Some(error) = self.barred(now, counter, 0, delta, event) {
                self.fail_add(unsent, AddError::Refused(error));
                continue;
            }
            *bytes += self.wire_bytes(counter, event);
            batch.epoch = batch.epoch.min(epoch);
            batch.push(BatchItem { counter, delta, session: None }, event);
        }
    }

    fn take_hits(&mut self, now: Time, lane: u8, kind: Kind, batch: &mut Batch, bytes: &mut usize) {
        while batch.items.len() < self.batch_items_max && *bytes < BATCH_BYTES_MAX {
            let Some(hit) = self.counters.take_hit(lane, kind) else { break };
            let QueuedHit { counter, session, delta, ticket, epoch, event, key } = hit;
            let barred = self.barred(now, counter, 0, delta, event).map(AddError::Refused);
            if let Some(error) = barred.or_else(|| self.id_refused(now, key)) {
                self.fail_hit(ticket, delta, error);
                continue;
            }
            *bytes += self.wire_bytes(counter, event) + key.map_or(0, |_| ITEM_ID_BYTES);
            batch.keys.extend(key);
            batch.epoch = batch.epoch.min(epoch);
            batch.hits.push(BatchHit { idx: batch.items.len() as u32, ticket, epoch, told: false });
            batch.push(BatchItem { counter, delta, session }, event);
        }
    }

    /// Why a hit with an id is not to be sent now.
    fn id_refused(&self, now: Time, key: Option<Key>) -> Option<AddError> {
        let since = key?.since;
        let home = self.current.and_then(|id| self.stays[&id].home);
        match home {
            Some(home) if home.ids_kept == 0 => Some(AddError::IdsUnknown),
            _ if since + self.config.id_unsent_max < now => Some(AddError::IdLate),
            _ => None,
        }
    }

    fn wire_bytes(&self, counter: CounterRef, event: Option<UnixTime>) -> usize {
        let name = self.counters.name(counter);
        let time = if event.is_some() { ITEM_TIME_BYTES } else { 0 };
        ITEM_BYTES + time + name.namespace().len() + name.key().len()
    }

    fn bind(&mut self, now: Time, lane: u8, mut batch: Batch) {
        let id = self.current.expect("has room");
        self.batch_bytes += batch.bytes();
        batch.asked_age = self.stays[&id].home.map_or(0, |home| home.since);
        let stream = self.stays.get_mut(&id).expect("the current stay exists").stream(lane);
        batch.seq = stream.next_seq;
        stream.push(batch);
        self.send_batches(now, id, lane);
    }

    pub(super) fn fail_add(&mut self, unsent: Unsent, error: AddError) {
        let Unsent { counter, delta, event, .. } = unsent;
        self.totals.refused += u128::from(delta);
        self.settled = true;
        self.outputs.push_back(Output::Failed { counter, delta, event, error });
    }

    pub(super) fn fail_hit(&mut self, ticket: super::Ticket, delta: u64, error: AddError) {
        self.totals.refused += u128::from(delta);
        self.settled = true;
        self.outputs.push_back(Output::Resolved { ticket, outcome: Outcome::Failed(error) });
    }

    /// Fences, batches sent again after a back-off or for want of an answer, batches never sent.
    pub(super) fn run_streams(&mut self, now: Time) {
        let up: Vec<StayId> = self.stays.iter().filter(|(_, stay)| stay.is_up()).map(|(id, _)| *id).collect();
        for id in up {
            let lanes: Vec<u8> = self.stays[&id].streams.keys().copied().collect();
            for lane in lanes {
                if !self.run_stream(now, id, lane) {
                    break;
                }
            }
        }
    }

    /// Sends the stream's next messages; returns whether the link still stands.
    fn run_stream(&mut self, now: Time, id: StayId, lane: u8) -> bool {
        let retry_timeout = self.config.retry_timeout;
        let Some(stay) = self.stays.get_mut(&id).filter(|stay| stay.is_up()) else { return false };
        let stream = stay.stream(lane);
        if let Phase::Backoff { until } = stream.phase
            && until <= now
        {
            stream.phase = Phase::Flowing;
            stream.ask_again();
        }
        if let Some(since) = stream.waiting_since().filter(|at| *at + retry_timeout <= now) {
            stream.timeouts += 1;
            let give_up = stream.timeouts >= TIMEOUTS_MAX;
            stream.ask_again();
            if let Phase::Fencing { .. } = stream.phase {
                stream.phase = Phase::Fencing { asked: None };
            }
            stay.trouble_since.get_or_insert(since);
            if give_up {
                self.drop_link(now, id);
                return false;
            }
        }
        self.send_fence(now, id, lane);
        self.send_batches(now, id, lane);
        true
    }

    fn send_fence(&mut self, now: Time, id: StayId, lane: u8) {
        let stay = self.stays.get_mut(&id).expect("looked up by the caller");
        let of = stay.client;
        let link = stay.link_id();
        let stream = stay.stream(lane);
        if let (Phase::Fencing { asked: None }, Some(link)) = (stream.phase, link) {
            stream.phase = Phase::Fencing { asked: Some(now) };
            self.outputs.push_back(Output::Send { link, message: FromClient::Fence { of, lane } });
        }
    }

    pub(super) fn send_batches(&mut self, now: Time, id: StayId, lane: u8) {
        let in_flight_max = self.config.in_flight_max;
        let counters = &self.counters;
        let stay = self.stays.get_mut(&id).expect("looked up by the caller");
        let Stay { link: LinkState::Up { id: link, defined, .. }, streams, .. } = stay else { return };
        let Some(stream) = streams.get_mut(&lane) else { return };
        while let Some(at) = stream.next_to_send(in_flight_max) {
            let batch = &mut stream.batches[at];
            batch.asked = Asked::At(now);
            batch.ever_sent = true;
            stream.asked += 1;
            let fresh = batch.items.iter().map(|item| item.counter).filter(|counter| defined.insert(counter.0));
            let define =
                |counter: CounterRef| (definition(counter.0, counters.half(counter)), counters.name(counter).clone());
            let defs = fresh.map(define).collect();
            let items = batch.items.iter().map(|item| item.to_wire()).collect();
            let message = batch.message(lane, defs, items);
            self.outputs.push_back(Output::Send { link: *link, message });
        }
    }

    pub(super) fn next_link_id(&mut self) -> LinkId {
        self.next_link += 1;
        LinkId(self.next_link)
    }
}

impl Batch {
    fn new(epoch: u64) -> Batch {
        let (items, times, hits, keys) = Default::default();
        let asked = Asked::No;
        let asked_age = 0;
        Batch {
            seq: 0,
            items,
            times,
            hits,
            keys,
            asked_age,
            epoch,
            weight: 0,
            asked,
            ever_sent: false,
            durable: false,
            doom: None,
        }
    }

    fn message(&self, lane: u8, defs: Vec<(u32, CounterName)>, items: Vec<WireItem>) -> FromClient {
        let seq = self.seq;
        let times = self.times.clone();
        let asked = self.asked_age;
        if self.keys.is_empty() {
            return FromClient::Batch { lane, seq, defs, items, times };
        }
        let ids = self.keys.iter().map(|key| key.id).collect();
        FromClient::Keyed { lane, seq, defs, items, times, asked, ids }
    }

    fn push(&mut self, item: BatchItem, event: Option<UnixTime>) {
        self.weight += item.delta;
        self.items.push(item);
        self.times.extend(event);
    }
}

impl BatchItem {
    fn to_wire(self) -> WireItem {
        WireItem { number: self.counter.0, delta: self.delta, session: self.session }
    }
}
