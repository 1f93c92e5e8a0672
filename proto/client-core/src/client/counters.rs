//! Counters of a client and their unsent content: one accumulator per counter, hits apart, queued by lane.

use super::{ADD_BYTES, AddError, CounterRef, HIT_BYTES, KEY_BYTES, TIME_BYTES, Ticket};
use hashbrown::HashTable;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use tidemark_types::hash::lane_of;
use tidemark_types::hash::name_hash;
use tidemark_types::ids::{CounterName, Half, SessionId};
use tidemark_types::limits::CLIENT_COUNTERS_MAX;
use tidemark_types::series::{Granularity, UnixTime};
use tidemark_types::time::Time;
use tidemark_wire::msg::ItemId;

/// A hit that is unsent.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueuedHit {
    pub counter: CounterRef,
    pub session: Option<SessionId>,
    pub delta: u64,
    pub ticket: Ticket,
    pub epoch: u64,
    pub event: Option<UnixTime>,
    pub key: Option<Key>,
}

/// The id of a hit, and when the hit was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub id: ItemId,
    pub since: Time,
}

/// Added weight that goes into a batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unsent {
    pub counter: CounterRef,
    pub delta: u64,
    pub epoch: u64,
    pub event: Option<UnixTime>,
}

/// The kind of a batch: its items all have event times, or all happen when they are logged; and each has an id, or none has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    #[default]
    Untimed,
    Timed,
    Keyed,
    KeyedTimed,
}

/// A counter and a minute since 1970.
type Minute = (CounterRef, u32);

/// Added weight of one counter and minute that is unsent.
#[derive(Clone, Copy, Debug)]
struct Timed {
    held: u64,
    /// The latest of its event times. All are in the same buckets, as no bucket is shorter than a minute. An event that is in
    /// time must not become late because it was folded with an earlier one.
    event: UnixTime,
    /// The epoch of the oldest part of `held`.
    epoch: u64,
}

#[derive(Debug)]
struct Slot {
    name: CounterName,
    half: Half,
    lane: u8,
    /// Added weight that is unsent; the counter is in its lane's `dirty` exactly while it is not 0.
    held: u64,
    /// The epoch of the oldest part of `held`.
    epoch: u64,
    barred_until: Time,
}

/// The unsent content of one lane.
#[derive(Debug, Default)]
pub(super) struct LaneQueue {
    dirty: VecDeque<CounterRef>,
    hits: VecDeque<QueuedHit>,
    timed: BTreeMap<Minute, Timed>,
    timed_hits: VecDeque<QueuedHit>,
    keyed: VecDeque<QueuedHit>,
    keyed_timed: VecDeque<QueuedHit>,
    /// The last minute taken from `timed`: minutes are taken in turn, so that no content waits for ever behind newer content.
    last_taken: Option<Minute>,
    /// The kind of the next batch, if there is content of that kind.
    turn: Kind,
    /// When a batch is formed at the latest; set while there is content.
    pub due: Option<Time>,
}

/// How the node in use routes counters to lanes.
#[derive(Clone, Debug, Default)]
pub(super) struct Routes {
    pub lanes: u8,
    pub own_lane: u8,
    pub spread: BTreeSet<CounterName>,
}

#[derive(Debug)]
pub(super) struct Counters {
    slots: Vec<Slot>,
    by_name: HashTable<u32>,
    routes: Routes,
    queues: Vec<LaneQueue>,
    dirty: usize,
    timed: usize,
    hits: usize,
    timed_hits: usize,
    keyed: usize,
}

impl Default for Counters {
    fn default() -> Counters {
        let queues = vec![LaneQueue::default()];
        let (slots, by_name, routes) = Default::default();
        Counters { slots, by_name, routes, queues, dirty: 0, timed: 0, hits: 0, timed_hits: 0, keyed: 0 }
    }
}

impl Counters {
    /// Each half of a counter has a number of its own: increments and decrements are never summed.
    pub fn intern(&mut self, name: &CounterName, half: Half) -> Result<CounterRef, AddError> {
        let hash = name_hash(name);
        let same = |at: &u32| self.slots[*at as usize].half == half && self.slots[*at as usize].name == *name;
        if let Some(found) = self.by_name.find(hash, same) {
            return Ok(CounterRef(*found));
        }
        if self.slots.len() >= CLIENT_COUNTERS_MAX {
            return Err(AddError::TooManyCounters);
        }
        let number = self.slots.len() as u32;
        let lane = self.routes.lane(name);
        self.slots.push(Slot { name: name.clone(), half, lane, held: 0, epoch: 0, barred_until: Time(0) });
        let slots = &self.slots;
        self.by_name.insert_unique(hash, number, |at| name_hash(&slots[*at as usize].name));
        Ok(CounterRef(number))
    }

    /// Reads the memory that an addition to a counter needs.
    pub fn warm(&self, counter: CounterRef) -> u64 {
        self.slots.get(counter.0 as usize).map_or(0, |slot| slot.held ^ slot.barred_until.0)
    }

    pub fn name(&self, counter: CounterRef) -> &CounterName {
        &self.slots[counter.0 as usize].name
    }

    pub fn half(&self, counter: CounterRef) -> Half {
        self.slots[counter.0 as usize].half
    }

    pub fn lane(&self, counter: CounterRef) -> u8 {
        self.slots[counter.0 as usize].lane
    }

    pub fn lanes(&self) -> u8 {
        self.queues.len() as u8
    }

    pub fn queue(&self, lane: u8) -> &LaneQueue {
        &self.queues[usize::from(lane)]
    }

    pub fn queue_mut(&mut self, lane: u8) -> &mut LaneQueue {
        &mut self.queues[usize::from(lane)]
    }

    pub fn barred_until(&self, counter: CounterRef) -> Option<Time> {
        self.slots.get(counter.0 as usize).map(|slot| slot.barred_until)
    }

    /// Added weight of a counter that is unsent.
    pub fn waits(&self, counter: CounterRef) -> u64 {
        self.slots.get(counter.0 as usize).map_or(0, |slot| slot.held)
    }

    /// Bars half a counter.
    pub fn bar(&mut self, counter: CounterRef, until: Time) {
        self.slots[counter.0 as usize].barred_until = until;
    }

    /// Bars all counters of a namespace, or only decrements.
    pub fn bar_namespace(&mut self, namespace: &str, down_only: bool, until: Time) {
        let of = self.slots.iter_mut().filter(|slot| slot.name.namespace() == namespace);
        of.filter(|slot| !down_only || slot.half == Half::Down).for_each(|slot| slot.barred_until = until);
    }

    /// Whether added weight joins waiting weight and takes no more room.
    pub fn holds(&self, counter: CounterRef, event: Option<UnixTime>) -> bool {
        let slot = &self.slots[counter.0 as usize];
        match event {
            None => slot.held > 0,
            Some(event) => self.queues[usize::from(slot.lane)].timed.contains_key(&minute(counter, event)),
        }
    }

    pub fn add(&mut self, unsent: Unsent, due: Time) {
        let Unsent { counter, delta, epoch, event } = unsent;
        if let Some(event) = event {
            return self.add_timed(counter, Timed { held: delta, event, epoch }, due);
        }
        let slot = &mut self.slots[counter.0 as usize];
        if slot.held == 0 {
            slot.epoch = epoch;
            let queue = &mut self.queues[usize::from(slot.lane)];
            queue.dirty.push_back(counter);
            queue.due.get_or_insert(due);
            self.dirty += 1;
        }
        slot.epoch = slot.epoch.min(epoch);
        slot.held = slot.held.checked_add(delta).expect("at most WEIGHT_HELD_MAX is held");
    }

    fn add_timed(&mut self, counter: CounterRef, more: Timed, due: Time) {
        let queue = self.lane_queue(counter, due);
        let mut fresh = false;
        let folded = queue.timed.entry(minute(counter, more.event)).or_insert_with(|| {
            fresh = true;
            Timed { held: 0, ..more }
        });
        folded.held = folded.held.checked_add(more.held).expect("at most WEIGHT_HELD_MAX is held");
        folded.event = folded.event.max(more.event);
        folded.epoch = folded.epoch.min(more.epoch);
        self.timed += usize::from(fresh);
    }

    pub fn hit(&mut self, hit: QueuedHit, due: Time) {
        self.note_hit(&hit);
        let queue = self.lane_queue(hit.counter, due);
        // Adds may wait for longer than a hit does.
        queue.due = queue.due.map(|earlier| earlier.min(due));
        queue.hits_mut(hit.kind()).push_back(hit);
    }

    /// Puts back hits that were in a batch, before the others.
    pub fn hits_first(&mut self, hits: Vec<QueuedHit>, due: Time) {
        for hit in hits.into_iter().rev() {
            self.note_hit(&hit);
            self.lane_queue(hit.counter, due).hits_mut(hit.kind()).push_front(hit);
        }
    }

    fn note_hit(&mut self, hit: &QueuedHit) {
        self.hits += 1;
        self.timed_hits += usize::from(hit.event.is_some());
        self.keyed += usize::from(hit.key.is_some());
    }

    fn lane_queue(&mut self, counter: CounterRef, due: Time) -> &mut LaneQueue {
        let lane = self.slots[counter.0 as usize].lane;
        let queue = &mut self.queues[usize::from(lane)];
        queue.due.get_or_insert(due);
        queue
    }

    /// The kind of the lane's next batch; all kinds take turns.
    pub fn next_kind(&mut self, lane: u8) -> Kind {
        let queue = &mut self.queues[usize::from(lane)];
        let turn = queue.turn;
        let order = [turn, turn.next(), turn.next().next(), turn.next().next().next()];
        let kind = order.into_iter().find(|kind| queue.len(*kind) > 0).unwrap_or(turn);
        queue.turn = kind.next();
        kind
    }

    /// Takes the additions to a lane's next counter (and minute), at most `delta_max` of their weight; the rest stays, at the
    /// end.
    pub fn take_add(&mut self, lane: u8, kind: Kind, delta_max: u64) -> Option<Unsent> {
        let queue = &mut self.queues[usize::from(lane)];
        if kind.is_keyed() {
            return None;
        }
        if kind == Kind::Timed {
            let unsent = queue.take_timed(delta_max)?;
            self.timed -= usize::from(!self.holds(unsent.counter, unsent.event));
            return Some(unsent);
        }
        let counter = queue.dirty.pop_front()?;
        let slot = &mut self.slots[counter.0 as usize];
        let delta = slot.held.min(delta_max);
        slot.held -= delta;
        match slot.held {
            0 => self.dirty -= 1,
            _ => queue.dirty.push_back(counter),
        }
        Some(Unsent { counter, delta, epoch: slot.epoch, event: None })
    }

    pub fn take_hit(&mut self, lane: u8, kind: Kind) -> Option<QueuedHit> {
        let hit = self.queues[usize::from(lane)].hits_mut(kind).pop_front();
        let taken = usize::from(hit.is_some());
        self.hits -= taken;
        self.timed_hits -= if matches!(kind, Kind::Timed | Kind::KeyedTimed) { taken } else { 0 };
        self.keyed -= if kind.is_keyed() { taken } else { 0 };
        hit
    }

    /// Takes a hit back that is in no batch. Hits are looked for in the order in which they came.
    pub fn withdraw(&mut self, ticket: Ticket) -> Option<QueuedHit> {
        for queue in &mut self.queues {
            for kind in [Kind::Untimed, Kind::Timed, Kind::Keyed, Kind::KeyedTimed] {
                let hits = queue.hits_mut(kind);
                let Some(at) = hits.iter().position(|hit| hit.ticket == ticket) else { continue };
                let hit = hits.remove(at);
                self.hits -= 1;
                self.timed_hits -= usize::from(matches!(kind, Kind::Timed | Kind::KeyedTimed));
                self.keyed -= usize::from(kind.is_keyed());
                if queue.is_empty() {
                    queue.due = None;
                }
                return hit;
            }
        }
        None
    }

    pub fn all_due(&mut self, now: Time) {
        let with_content = self.queues.iter_mut().filter(|queue| !queue.is_empty());
        with_content.for_each(|queue| queue.due = Some(now));
    }

    pub fn is_empty(&self) -> bool {
        self.dirty + self.timed + self.hits == 0
    }

    pub fn bytes_held(&self) -> usize {
        let times = self.timed + self.timed_hits;
        (self.dirty + self.timed) * ADD_BYTES + self.hits * HIT_BYTES + times * TIME_BYTES + self.keyed * KEY_BYTES
    }

    /// Routes new batches by the routes of the node now in use, unsent content included.
    pub fn route(&mut self, routes: Routes) {
        self.routes = routes;
        for slot in &mut self.slots {
            slot.lane = self.routes.lane(&slot.name);
        }
        let fresh = (0..self.routes.lanes.max(1)).map(|_| LaneQueue::default()).collect();
        for queue in std::mem::replace(&mut self.queues, fresh) {
            let Some(due) = queue.due else { continue };
            for counter in queue.dirty {
                self.lane_queue(counter, due).dirty.push_back(counter);
            }
            for (minute, timed) in queue.timed {
                self.lane_queue(minute.0, due).timed.insert(minute, timed);
            }
            let keyed = queue.keyed.into_iter().chain(queue.keyed_timed);
            for hit in queue.hits.into_iter().chain(queue.timed_hits).chain(keyed) {
                self.lane_queue(hit.counter, due).hits_mut(hit.kind()).push_back(hit);
            }
        }
    }

    pub fn oldest_epoch(&self) -> Option<u64> {
        let dirty = self.queues.iter().flat_map(|queue| &queue.dirty).map(|at| self.slots[at.0 as usize].epoch);
        let timed = self.queues.iter().flat_map(|queue| queue.timed.values()).map(|timed| timed.epoch);
        let hits = self.queues.iter().flat_map(LaneQueue::all_hits).map(|hit| hit.epoch);
        dirty.chain(timed).chain(hits).min()
    }

    pub fn weight_held(&self) -> u64 {
        let dirty = self.queues.iter().flat_map(|queue| &queue.dirty).map(|at| self.slots[at.0 as usize].held);
        let timed = self.queues.iter().flat_map(|queue| queue.timed.values()).map(|timed| timed.held);
        let hits = self.queues.iter().flat_map(LaneQueue::all_hits).map(|hit| hit.delta);
        dirty.chain(timed).chain(hits).sum()
    }

    pub fn check_invariants(&self) {
        let sum = |of: fn(&LaneQueue) -> usize| self.queues.iter().map(of).sum::<usize>();
        assert_eq!((sum(|queue| queue.dirty.len()), sum(|queue| queue.timed.len())), (self.dirty, self.timed));
        assert_eq!(sum(|queue| queue.all_hits().count()), self.hits);
        assert_eq!(sum(|queue| queue.timed_hits.len() + queue.keyed_timed.len()), self.timed_hits);
        assert_eq!(sum(|queue| queue.keyed.len() + queue.keyed_timed.len()), self.keyed);
        for (lane, queue) in self.queues.iter().enumerate() {
            let here = |counter| usize::from(self.lane(counter)) == lane;
            assert!(queue.due.is_some() || queue.is_empty());
            assert!(queue.dirty.iter().all(|at| self.holds(*at, None) && here(*at)));
            assert!(
                queue.timed.iter().all(|(at, timed)| timed.held > 0 && *at == minute(at.0, timed.event) && here(at.0))
            );
            assert!(queue.all_hits().all(|hit| here(hit.counter)));
            for kind in [Kind::Untimed, Kind::Timed, Kind::Keyed, Kind::KeyedTimed] {
                assert!(queue.hits_of(kind).iter().all(|hit| hit.kind() == kind));
            }
        }
    }
}

fn minute(counter: CounterRef, event: UnixTime) -> Minute {
    (counter, Granularity::MINUTE.index_at(event))
}

impl Kind {
    pub fn of(event: Option<UnixTime>) -> Kind {
        if event.is_some() { Kind::Timed } else { Kind::Untimed }
    }

    pub fn of_keyed(event: Option<UnixTime>) -> Kind {
        if event.is_some() { Kind::KeyedTimed } else { Kind::Keyed }
    }

    pub fn is_keyed(self) -> bool {
        matches!(self, Kind::Keyed | Kind::KeyedTimed)
    }

    fn next(self) -> Kind {
        match self {
            Kind::Untimed => Kind::Timed,
            Kind::Timed => Kind::Keyed,
            Kind::Keyed => Kind::KeyedTimed,
            Kind::KeyedTimed => Kind::Untimed,
        }
    }
}

impl QueuedHit {
    fn kind(&self) -> Kind {
        if self.key.is_some() { Kind::of_keyed(self.event) } else { Kind::of(self.event) }
    }
}

impl LaneQueue {
    pub fn is_empty(&self) -> bool {
        self.len(Kind::Untimed) + self.len(Kind::Timed) + self.keyed.len() + self.keyed_timed.len() == 0
    }

    /// Items of a kind.
    pub fn len(&self, kind: Kind) -> usize {
        match kind {
            Kind::Untimed => self.dirty.len() + self.hits.len(),
            Kind::Timed => self.timed.len() + self.timed_hits.len(),
            Kind::Keyed | Kind::KeyedTimed => self.hits_of(kind).len(),
        }
    }

    pub fn has_hits(&self, kind: Kind) -> bool {
        !self.hits_of(kind).is_empty()
    }

    fn hits_of(&self, kind: Kind) -> &VecDeque<QueuedHit> {
        match kind {
            Kind::Untimed => &self.hits,
            Kind::Timed => &self.timed_hits,
            Kind::Keyed => &self.keyed,
            Kind::KeyedTimed => &self.keyed_timed,
        }
    }

    /// Hits that wait, of all kinds.
    pub fn hits(&self) -> usize {
        self.hits.len() + self.timed_hits.len() + self.keyed.len() + self.keyed_timed.len()
    }

    fn hits_mut(&mut self, kind: Kind) -> &mut VecDeque<QueuedHit> {
        match kind {
            Kind::Untimed => &mut self.hits,
            Kind::Timed => &mut self.timed_hits,
            Kind::Keyed => &mut self.keyed,
            Kind::KeyedTimed => &mut self.keyed_timed,
        }
    }

    fn all_hits(&self) -> impl Iterator<Item = &QueuedHit> {
        self.hits.iter().chain(&self.timed_hits).chain(&self.keyed).chain(&self.keyed_timed)
    }

    fn take_timed(&mut self, delta_max: u64) -> Option<Unsent> {
        let behind = self.last_taken.map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.timed.range((behind, Bound::Unbounded)).next().or_else(|| self.timed.iter().next());
        let (&at, &Timed { held, event, epoch }) = next?;
        let delta = held.min(delta_max);
        match held - delta {
            0 => drop(self.timed.remove(&at)),
            rest => drop(self.timed.insert(at, Timed { held: rest, event, epoch })),
        }
        self.last_taken = Some(at);
        Some(Unsent { counter: at.0, delta, epoch, event: Some(event) })
    }
}

impl Routes {
    fn lane(&self, name: &CounterName) -> u8 {
        match self.spread.contains(name) {
            true => self.own_lane,
            false => lane_of(name, self.lanes),
        }
    }
}
