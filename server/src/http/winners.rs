//! Sessions of connected browsers: each is woken by news of itself only, however many there are of others.

use super::{AggregatorProcess, Failure, SUBSCRIPTIONS_PER_SESSION_MAX};
use crate::sync::lock;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use tidemark_proto::ids::SessionId;
use tokio::sync::Notify;
use tokio::sync::broadcast::error::RecvError;

/// The connections that wait for news, by session.
#[derive(Default)]
pub(super) struct Winners {
    waiting: Mutex<BTreeMap<SessionId, Vec<Arc<Line>>>>,
}

/// The signal that wakes one connection.
#[derive(Default)]
struct Line {
    woken: Notify,
    /// The last trial that it has not been told yet.
    trial: Mutex<Option<String>>,
}

/// One connection of a session; until it is dropped.
pub(super) struct Waiting {
    winners: Arc<Winners>,
    pub session: SessionId,
    line: Arc<Line>,
}

impl Winners {
    /// News from now on wake the session's connection; earlier news must be looked up afterwards.
    pub fn wait(self: &Arc<Winners>, session: SessionId) -> Result<Waiting, Failure> {
        let line = Arc::<Line>::default();
        let mut waiting = self.lock();
        let connections = waiting.entry(session).or_default();
        if connections.len() >= SUBSCRIPTIONS_PER_SESSION_MAX {
            let limit = SUBSCRIPTIONS_PER_SESSION_MAX as u64;
            return Err(Failure::Overloaded { what: "subscriptions of this session".to_owned(), limit });
        }
        connections.push(line.clone());
        drop(waiting);
        Ok(Waiting { winners: self.clone(), session, line })
    }

    /// Wakes sessions as news of them come, until the backend ends.
    pub async fn run<B: AggregatorProcess>(&self, backend: &B) {
        let (_, mut news) = backend.subscribe();
        loop {
            match news.recv().await {
                Ok(news) => news.session().iter().for_each(|session| self.wake(session)),
                Err(RecvError::Lagged(_)) => self.lock().values().flatten().for_each(|line| line.woken.notify_one()),
                Err(RecvError::Closed) => return,
            }
        }
    }

    fn wake(&self, session: &SessionId) {
        self.lock().get(session).into_iter().flatten().for_each(|line| line.woken.notify_one());
    }

    /// Has all connections of a session told a trial; how many there are.
    pub fn try_out(&self, session: &SessionId, text: &str) -> usize {
        let waiting = self.lock();
        let lines = waiting.get(session).map_or(&[][..], Vec::as_slice);
        for line in lines {
            *lock(&line.trial) = Some(text.to_owned());
            line.woken.notify_one();
        }
        lines.len()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<SessionId, Vec<Arc<Line>>>> {
        lock(&self.waiting)
    }
}

impl Waiting {
    /// Until there may be news of the session.
    pub async fn woken(&self) {
        self.line.woken.notified().await;
    }

    /// A trial that was not told yet.
    pub fn take_trial(&self) -> Option<String> {
        lock(&self.line.trial).take()
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut waiting = self.winners.lock();
        if let Some(connections) = waiting.get_mut(&self.session) {
            connections.retain(|line| !Arc::ptr_eq(line, &self.line));
            if connections.is_empty() {
                waiting.remove(&self.session);
            }
        }
    }
}
