//! Counters of a client and what is unsent: one accumulator per counter, hits apart, queued by lane.

use super::{ADD_BYTES, AddError, CLIENT_COUNTERS_MAX, CounterRef, HIT_BYTES, Ticket};
use crate::group::lane_of;
use crate::hash::name_hash;
use crate::ids::{CounterName, Half, SessionId};
use crate::time::Time;
use hashbrown::HashTable;
use std::collections::{BTreeSet, VecDeque};

/// A hit that is unsent.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueuedHit {
    pub counter: CounterRef,
    pub session: Option<SessionId>,
    pub delta: u64,
    pub ticket: Ticket,
    pub epoch: u64,
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

/// What is unsent for one lane.
#[derive(Debug, Default)]
pub(super) struct LaneQueue {
    pub dirty: VecDeque<CounterRef>,
    pub hits: VecDeque<QueuedHit>,
    /// When a batch should be formed; set while there is content.
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
    hits: usize,
}

impl Default for Counters {
    fn default() -> Counters {
        let queues = vec![LaneQueue::default()];
        Counters { slots: Vec::new(), by_name: HashTable::new(), routes: Routes::default(), queues, dirty: 0, hits: 0 }
    }
}

impl Counters {
    /// Each half of a counter has a number of its own: what goes up and what goes down is never summed.
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

    /// Bars half a counter.
    pub fn bar(&mut self, counter: CounterRef, until: Time) {
        self.slots[counter.0 as usize].barred_until = until;
    }

    /// Bars all counters of a namespace, or only what would go down.
    pub fn bar_namespace(&mut self, namespace: &str, down_only: bool, until: Time) {
        let of = self.slots.iter_mut().filter(|slot| slot.name.namespace() == namespace);
        of.filter(|slot| !down_only || slot.half == Half::Down).for_each(|slot| slot.barred_until = until);
    }

    pub fn holds(&self, counter: CounterRef) -> bool {
        self.slots[counter.0 as usize].held > 0
    }

    pub fn add(&mut self, counter: CounterRef, delta: u64, epoch: u64, due: Time) {
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

    pub fn hit(&mut self, hit: QueuedHit, due: Time) {
        let queue = self.lane_queue(hit.counter, due);
        queue.hits.push_back(hit);
        self.hits += 1;
    }

    /// Puts back hits that were in a batch, before the others.
    pub fn hits_first(&mut self, hits: Vec<QueuedHit>, due: Time) {
        self.hits += hits.len();
        for hit in hits.into_iter().rev() {
            self.lane_queue(hit.counter, due).hits.push_front(hit);
        }
    }

    fn lane_queue(&mut self, counter: CounterRef, due: Time) -> &mut LaneQueue {
        let lane = self.slots[counter.0 as usize].lane;
        let queue = &mut self.queues[usize::from(lane)];
        queue.due.get_or_insert(due);
        queue
    }

    /// Takes a lane's next dirty counter with at most `delta_max` of its weight; a rest stays dirty, at the end.
    pub fn take_add(&mut self, lane: u8, delta_max: u64) -> Option<(CounterRef, u64, u64)> {
        let queue = &mut self.queues[usize::from(lane)];
        let counter = queue.dirty.pop_front()?;
        let slot = &mut self.slots[counter.0 as usize];
        let delta = slot.held.min(delta_max);
        slot.held -= delta;
        match slot.held {
            0 => self.dirty -= 1,
            _ => queue.dirty.push_back(counter),
        }
        Some((counter, delta, slot.epoch))
    }

    pub fn take_hit(&mut self, lane: u8) -> Option<QueuedHit> {
        let hit = self.queues[usize::from(lane)].hits.pop_front();
        self.hits -= usize::from(hit.is_some());
        hit
    }

    pub fn all_due(&mut self, now: Time) {
        let with_content = self.queues.iter_mut().filter(|queue| !queue.is_empty());
        with_content.for_each(|queue| queue.due = Some(now));
    }

    pub fn is_empty(&self) -> bool {
        self.dirty == 0 && self.hits == 0
    }

    pub fn bytes_held(&self) -> usize {
        self.dirty * ADD_BYTES + self.hits * HIT_BYTES
    }

    /// Routes new batches as the node now in use says, what is unsent included.
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
            for hit in queue.hits {
                self.lane_queue(hit.counter, due).hits.push_back(hit);
            }
        }
    }

    pub fn oldest_epoch(&self) -> Option<u64> {
        let dirty = self.queues.iter().flat_map(|queue| &queue.dirty).map(|at| self.slots[at.0 as usize].epoch);
        let hits = self.queues.iter().flat_map(|queue| &queue.hits).map(|hit| hit.epoch);
        dirty.chain(hits).min()
    }

    pub fn weight_held(&self) -> u64 {
        let dirty = self.queues.iter().flat_map(|queue| &queue.dirty).map(|at| self.slots[at.0 as usize].held);
        let hits = self.queues.iter().flat_map(|queue| &queue.hits).map(|hit| hit.delta);
        dirty.chain(hits).sum()
    }

    pub fn check_invariants(&self) {
        let dirty: usize = self.queues.iter().map(|queue| queue.dirty.len()).sum();
        let hits: usize = self.queues.iter().map(|queue| queue.hits.len()).sum();
        assert_eq!((dirty, hits), (self.dirty, self.hits));
        for (lane, queue) in self.queues.iter().enumerate() {
            assert!(queue.due.is_some() || queue.is_empty());
            assert!(queue.dirty.iter().all(|at| self.holds(*at) && usize::from(self.lane(*at)) == lane));
            assert!(queue.hits.iter().all(|hit| usize::from(self.lane(hit.counter)) == lane));
        }
    }
}

impl LaneQueue {
    pub fn is_empty(&self) -> bool {
        self.dirty.is_empty() && self.hits.is_empty()
    }

    pub fn len(&self) -> usize {
        self.dirty.len() + self.hits.len()
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
