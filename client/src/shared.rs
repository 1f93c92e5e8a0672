//! The state that callers and the flusher share: slots, handles, and an inbox for requests that need an answer.

use crate::error::{AddError, HandleError, HitError};
use crate::hit::HitCell;
use crate::keys::KeyTables;
use crate::stripe::Striped;
use crate::timed::{EventTime, TimedAdds};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use tidemark_proto::ids::{CounterName, GroupId, Half, SessionId};
use tidemark_proto::msg::ItemId;
use tidemark_proto::series::UnixTime;
use tokio::sync::{Notify, Semaphore, oneshot};
use tokio::time::Instant;

/// Handles of one client. More: [`HandleError::TooManyHandles`]. A handle takes some 2 KiB.
pub const HANDLES_MAX: usize = 65_536;

/// A counter with a handle.
#[derive(Debug)]
pub(crate) struct CounterInner {
    pub name: CounterName,
    pub slots: Striped,
    /// Weight that is counted down; few counters ever have any.
    pub down: OnceLock<Box<Striped>>,
}

impl CounterInner {
    fn new(name: CounterName) -> CounterInner {
        CounterInner { name, slots: Striped::new(), down: OnceLock::new() }
    }

    pub fn subtract(&self, n: u64) {
        self.down.get_or_init(|| Box::new(Striped::new())).add(n);
    }

    /// All that was ever added, and subtracted, modulo 2^64.
    pub fn sums(&self) -> (u64, u64) {
        (self.slots.sum(), self.down.get().map_or(0, |down| down.sum()))
    }
}

/// A hit that the flusher has not yet seen.
#[derive(Debug)]
pub(crate) struct NewHit {
    pub counter: Target,
    pub half: Half,
    pub session: Option<SessionId>,
    pub delta: u64,
    pub event: Option<UnixTime>,
    pub id: Option<ItemId>,
    pub cell: Arc<HitCell>,
}

#[derive(Debug)]
pub(crate) enum Target {
    Handle(Arc<CounterInner>),
    Name(CounterName),
}

impl Target {
    pub fn name(&self) -> &CounterName {
        match self {
            Target::Handle(counter) => &counter.name,
            Target::Name(name) => name,
        }
    }

    pub fn into_name(self) -> CounterName {
        match self {
            Target::Handle(counter) => counter.name.clone(),
            Target::Name(name) => name,
        }
    }
}

/// The group that a client counts at, as its last welcome said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenGroup {
    pub id: GroupId,
    /// How many ages ([`AGE_UNIT`](tidemark_proto::limits::AGE_UNIT)) old it was at least.
    pub age: u32,
    /// Ages for which it remembers ids; 0 if its node is of a version that knows no ids.
    pub ids_kept: u32,
}

/// The answer to a flush: weights refused and unknown.
pub(crate) type FlushAnswer = oneshot::Sender<(u64, u64)>;

#[derive(Debug, Default)]
pub(crate) struct Inbox {
    pub hits: Vec<NewHit>,
    pub flushes: Vec<FlushAnswer>,
    /// Hits to be taken back, if they were not sent.
    pub withdrawals: Vec<(Arc<HitCell>, oneshot::Sender<bool>)>,
    /// Nothing more is taken; by then the client is to end.
    pub close: Option<Instant>,
    /// The flusher has ended.
    pub ended: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Handles {
    by_name: HashMap<CounterName, Arc<CounterInner>>,
    fresh: Vec<Arc<CounterInner>>,
}

/// On a cache line of its own: every add reads it.
#[derive(Debug)]
#[repr(align(64))]
struct Asleep(AtomicBool);

#[derive(Debug)]
pub(crate) struct Shared {
    asleep: Asleep,
    pub keys: KeyTables,
    /// Of what is counted down by name.
    pub keys_down: KeyTables,
    pub timed: TimedAdds,
    handles: Mutex<Handles>,
    inbox: Mutex<Inbox>,
    group: Mutex<Option<SeenGroup>>,
    pub notify: Notify,
    pub permits: Semaphore,
    pub hits_max: usize,
}

impl Shared {
    pub fn new(seed: u64, hits_max: usize) -> Shared {
        Shared {
            asleep: Asleep(AtomicBool::new(false)),
            keys: KeyTables::new(seed),
            keys_down: KeyTables::new(seed),
            timed: TimedAdds::default(),
            handles: Mutex::default(),
            inbox: Mutex::default(),
            group: Mutex::default(),
            notify: Notify::new(),
            permits: Semaphore::new(hits_max),
            hits_max,
        }
    }

    /// Called after every add. The flusher may miss one that is made while it falls asleep; it looks again once a second.
    #[inline]
    pub fn added(&self) {
        if self.asleep.0.load(Ordering::Relaxed) {
            self.wake();
        }
    }

    /// Adds as of a time. Errors: nothing was added.
    pub fn add_at(&self, name: &CounterName, half: Half, n: u64, at: impl EventTime) -> Result<(), AddError> {
        self.timed.add(name, half, n, at)?;
        self.added();
        Ok(())
    }

    #[cold]
    fn wake(&self) {
        if self.asleep.0.swap(false, Ordering::Relaxed) {
            self.notify.notify_one();
        }
    }

    pub fn set_asleep(&self, asleep: bool) {
        self.asleep.0.store(asleep, Ordering::SeqCst);
    }

    pub fn is_asleep(&self) -> bool {
        self.asleep.0.load(Ordering::Relaxed)
    }

    /// The group of the present stay.
    pub fn group(&self) -> Option<SeenGroup> {
        *self.group.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub fn set_group(&self, group: Option<SeenGroup>) {
        *self.group.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = group;
    }

    pub fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Hands a hit to the flusher. The caller has a permit for it, which comes back with the answer.
    pub fn submit(&self, hit: NewHit) -> Result<(), HitError> {
        let mut inbox = self.inbox();
        if inbox.close.is_some() || inbox.ended {
            return Err(HitError::Closed);
        }
        let first = inbox.hits.is_empty();
        inbox.hits.push(hit);
        drop(inbox);
        // The flusher takes all that is there when it wakes.
        if first {
            self.notify.notify_one();
        }
        Ok(())
    }

    fn lock_handles(&self) -> MutexGuard<'_, Handles> {
        self.handles.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The counter of a name, the same for the same name as long as it has a handle.
    pub fn handle(&self, name: CounterName) -> Result<Arc<CounterInner>, HandleError> {
        let mut handles = self.lock_handles();
        if let Some(counter) = handles.by_name.get(&name) {
            return Ok(counter.clone());
        }
        if handles.by_name.len() >= HANDLES_MAX {
            return Err(HandleError::TooManyHandles { limit: HANDLES_MAX });
        }
        let counter = Arc::new(CounterInner::new(name.clone()));
        handles.by_name.insert(name, counter.clone());
        handles.fresh.push(counter.clone());
        Ok(counter)
    }

    /// Counters that the flusher has not yet seen.
    pub fn fresh_handles(&self) -> Vec<Arc<CounterInner>> {
        std::mem::take(&mut self.lock_handles().fresh)
    }

    /// Forgets a counter that only the flusher and this registry know and of which `seen` is all; whether it did.
    pub fn forget_handle(&self, counter: &Arc<CounterInner>, seen: (u64, u64)) -> bool {
        let mut handles = self.lock_handles();
        // Under the lock no thread can get at it any more; the fence makes the last adds of its last holder visible.
        if Arc::strong_count(counter) != 2 {
            return false;
        }
        std::sync::atomic::fence(Ordering::Acquire);
        counter.sums() == seen && handles.by_name.remove(&counter.name).is_some()
    }
}
