//! Group commit: one thread (in a simulation: one task) persists whatever waits, in one transaction, then says so.
//!
//! The first failed transaction poisons the committer for ever. Nothing is reported durable after it, because the content of the disk is
//! unknown until the file is opened again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use super::PersistError;

/// The executor of transactions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Execution {
    /// An operating system thread of its own; waiting requests are merged into one transaction.
    #[default]
    Thread,
    /// The caller, one transaction per request: for deterministic simulation.
    Inline,
    /// A task of the present tokio runtime, which waits before each transaction as the thread does. It is for simulation on virtual time,
    /// in which the wait is the time that the disk takes. Waiting requests are merged, and are lost if the process ends first.
    Task,
}

/// Why a request was not taken. Nothing of it was or will be persisted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// The queue is full; try again later.
    #[error("the log's queue is full ({limit} requests wait)")]
    Overloaded {
        /// Requests that may wait.
        limit: usize,
    },
    /// An earlier transaction failed; open the log again.
    #[error("the log has stopped: {0}")]
    Poisoned(PersistError),
}

/// Counters of one committer since it was opened. They only grow.
#[derive(Debug, Default)]
pub struct CommitStats {
    /// Transactions made durable.
    pub commits: AtomicU64,
    /// Requests they carried.
    pub requests: AtomicU64,
    /// Log entries they carried.
    pub entries: AtomicU64,
    /// Bytes of entries and rows they carried.
    pub bytes: AtomicU64,
    /// Sum of their durations, in microseconds.
    pub micros_sum: AtomicU64,
    /// The longest of them, in microseconds.
    pub micros_max: AtomicU64,
}

impl CommitStats {
    fn record(&self, cost: Cost, requests: usize, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.commits.fetch_add(1, Ordering::Relaxed);
        self.requests.fetch_add(requests as u64, Ordering::Relaxed);
        self.entries.fetch_add(cost.entries as u64, Ordering::Relaxed);
        self.bytes.fetch_add(cost.bytes as u64, Ordering::Relaxed);
        self.micros_sum.fetch_add(micros, Ordering::Relaxed);
        self.micros_max.fetch_max(micros, Ordering::Relaxed);
    }
}

/// The weight of a request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    pub entries: usize,
    pub bytes: usize,
}

impl Cost {
    fn add(&mut self, other: Cost) {
        self.entries += other.entries;
        self.bytes += other.bytes;
    }
}

/// A store's handling of the requests of one transaction.
pub(crate) trait Persist: Send + 'static {
    type Op: Send + 'static;

    fn cost(op: &Self::Op) -> Cost;

    /// Writes all of `ops`, in order, in one durable transaction; on error nothing of them may remain.
    fn persist(&mut self, ops: &[Self::Op]) -> Result<(), PersistError>;

    /// Tells the callers that wait for `ops` the result.
    fn complete(&mut self, ops: Vec<Self::Op>, outcome: Result<(), PersistError>);
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct CommitterOptions {
    pub execution: Execution,
    pub requests_max: usize,
    pub commit_bytes_max: usize,
    /// The writer's thread waits so long for further requests before it begins a transaction.
    pub gather: Duration,
}

pub(crate) struct Committer<P: Persist> {
    queue: Queue<P>,
    shared: Arc<Shared>,
    requests_max: usize,
}

enum Queue<P: Persist> {
    /// Without a thread: it is a task that reads the other end.
    Thread {
        sender: Option<mpsc::Sender<P::Op>>,
        thread: Option<JoinHandle<()>>,
    },
    Inline(Mutex<Worker<P>>),
}

#[derive(Default)]
struct Shared {
    stats: CommitStats,
    poison: OnceLock<PersistError>,
    /// Microseconds for which the writer waits for further requests.
    gather_us: AtomicU64,
}

struct Worker<P: Persist> {
    store: P,
    shared: Arc<Shared>,
    commit_bytes_max: usize,
}

impl Shared {
    fn gathering(&self) -> Duration {
        Duration::from_micros(self.gather_us.load(Ordering::Relaxed))
    }
}

impl<P: Persist> Committer<P> {
    /// From the next request on the writer waits so long for further ones.
    pub fn set_gather(&self, gather: Duration) {
        self.shared.gather_us.store(gather.as_micros() as u64, Ordering::Relaxed);
    }

    pub fn new(store: P, options: CommitterOptions) -> Self {
        let shared = Arc::new(Shared::default());
        let CommitterOptions { commit_bytes_max, gather, .. } = options;
        shared.gather_us.store(gather.as_micros() as u64, Ordering::Relaxed);
        let worker = Worker { store, shared: shared.clone(), commit_bytes_max };
        let queue = match options.execution {
            Execution::Inline => Queue::Inline(Mutex::new(worker)),
            Execution::Thread => spawn(worker, options.requests_max),
            Execution::Task => spawn_task(worker, options.requests_max),
        };
        Self { queue, shared, requests_max: options.requests_max }
    }

    pub fn stats(&self) -> &CommitStats {
        &self.shared.stats
    }

    /// Hands `op` over without waiting; refuses when the queue is full.
    pub fn try_submit(&self, op: P::Op) -> Result<(), SubmitError> {
        self.check_poison()?;
        match &self.queue {
            Queue::Inline(worker) => worker.lock().expect("a commit panicked").run(vec![op]),
            Queue::Thread { sender, .. } => {
                let sent = sender.as_ref().expect("closed only by drop").try_send(op);
                sent.map_err(|error| self.refusal(&error))?;
            }
        }
        Ok(())
    }

    /// Hands `op` over; waits while the queue is full.
    pub async fn submit(&self, op: P::Op) -> Result<(), SubmitError> {
        self.check_poison()?;
        if let Queue::Thread { sender: Some(sender), .. } = &self.queue {
            return sender.send(op).await.map_err(|_| SubmitError::Poisoned(self.poison()));
        }
        self.try_submit(op)
    }

    /// Why it has stopped, if it has.
    pub fn failure(&self) -> Option<PersistError> {
        self.shared.poison.get().cloned()
    }

    fn check_poison(&self) -> Result<(), SubmitError> {
        self.shared.poison.get().map_or(Ok(()), |error| Err(SubmitError::Poisoned(error.clone())))
    }

    fn refusal(&self, error: &TrySendError<P::Op>) -> SubmitError {
        match error {
            TrySendError::Full(_) => SubmitError::Overloaded { limit: self.requests_max },
            TrySendError::Closed(_) => SubmitError::Poisoned(self.poison()),
        }
    }

    fn poison(&self) -> PersistError {
        self.shared.poison.get().cloned().unwrap_or_else(|| PersistError::Io("the writer thread has ended".into()))
    }
}

impl<P: Persist> Drop for Committer<P> {
    /// Persists what waits, then closes the file, so that it can be opened again at once.
    fn drop(&mut self) {
        if let Queue::Thread { sender, thread } = &mut self.queue {
            drop(sender.take());
            if let Some(thread) = thread.take().filter(|thread| thread.thread().id() != thread::current().id()) {
                let _ = thread.join();
            }
        }
    }
}

fn spawn<P: Persist>(worker: Worker<P>, requests_max: usize) -> Queue<P> {
    let (sender, receiver) = mpsc::channel(requests_max);
    let thread = thread::Builder::new()
        .name("log-writer".into())
        .spawn(move || worker.run_until_closed(receiver))
        .expect("the operating system refuses a thread");
    Queue::Thread { sender: Some(sender), thread: Some(thread) }
}

fn spawn_task<P: Persist>(worker: Worker<P>, requests_max: usize) -> Queue<P> {
    let (sender, receiver) = mpsc::channel(requests_max);
    tokio::spawn(worker.run_on_a_task(receiver));
    Queue::Thread { sender: Some(sender), thread: None }
}

impl<P: Persist> Worker<P> {
    async fn run_on_a_task(mut self, mut receiver: mpsc::Receiver<P::Op>) {
        while let Some(first) = receiver.recv().await {
            tokio::time::sleep(self.shared.gathering()).await;
            let ops = self.gather(first, &mut receiver);
            self.run(ops);
        }
    }

    fn run_until_closed(mut self, mut receiver: mpsc::Receiver<P::Op>) {
        while let Some(first) = receiver.blocking_recv() {
            let gather = self.shared.gathering();
            if !gather.is_zero() {
                thread::sleep(gather);
            }
            let ops = self.gather(first, &mut receiver);
            self.run(ops);
        }
    }

    fn gather(&self, first: P::Op, receiver: &mut mpsc::Receiver<P::Op>) -> Vec<P::Op> {
        let mut bytes = P::cost(&first).bytes;
        let mut ops = vec![first];
        while bytes < self.commit_bytes_max {
            let Ok(op) = receiver.try_recv() else { break };
            bytes += P::cost(&op).bytes;
            ops.push(op);
        }
        ops
    }

    fn run(&mut self, ops: Vec<P::Op>) {
        let outcome = match self.shared.poison.get() {
            Some(error) => Err(error.clone()),
            None => self.persist(&ops),
        };
        if let Err(error) = &outcome {
            let _ = self.shared.poison.set(error.clone());
        }
        self.store.complete(ops, outcome);
    }

    fn persist(&mut self, ops: &[P::Op]) -> Result<(), PersistError> {
        let started = Instant::now();
        self.store.persist(ops)?;
        let mut cost = Cost::default();
        ops.iter().for_each(|op| cost.add(P::cost(op)));
        self.shared.stats.record(cost, ops.len(), started.elapsed());
        Ok(())
    }
}
