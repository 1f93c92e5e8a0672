//! Sessions whose browsers are connected here: each is woken by its own awards only, however many there are of others.

use super::{Backend, Failure, SUBSCRIPTIONS_PER_SESSION_MAX};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use tidemark_proto::ids::SessionId;
use tokio::sync::Notify;
use tokio::sync::broadcast::error::RecvError;

/// Who waits for awards, by session.
#[derive(Default)]
pub(super) struct Winners {
    waiting: Mutex<BTreeMap<SessionId, Vec<Arc<Notify>>>>,
}

/// One connection of a session; until it is dropped.
pub(super) struct Waiting {
    winners: Arc<Winners>,
    pub session: SessionId,
    woken: Arc<Notify>,
}

impl Winners {
    /// Awards from now on wake the session's connection; those before must be looked up afterwards.
    pub fn wait(self: &Arc<Winners>, session: SessionId) -> Result<Waiting, Failure> {
        let woken = Arc::new(Notify::new());
        let mut waiting = self.lock();
        let connections = waiting.entry(session).or_default();
        if connections.len() >= SUBSCRIPTIONS_PER_SESSION_MAX {
            let limit = SUBSCRIPTIONS_PER_SESSION_MAX as u64;
            return Err(Failure::Overloaded { what: "subscriptions of this session".to_owned(), limit });
        }
        connections.push(woken.clone());
        drop(waiting);
        Ok(Waiting { winners: self.clone(), session, woken })
    }

    /// Wakes sessions as awards come, until the backend ends.
    pub async fn run<B: Backend>(&self, backend: &B) {
        let (_, mut awarded) = backend.awarded();
        loop {
            match awarded.recv().await {
                Ok(award) => award.session.iter().for_each(|session| self.wake(session)),
                Err(RecvError::Lagged(_)) => self.lock().values().flatten().for_each(|woken| woken.notify_one()),
                Err(RecvError::Closed) => return,
            }
        }
    }

    fn wake(&self, session: &SessionId) {
        self.lock().get(session).into_iter().flatten().for_each(|woken| woken.notify_one());
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<SessionId, Vec<Arc<Notify>>>> {
        self.waiting.lock().expect("nothing panics while it holds this")
    }
}

impl Waiting {
    /// Until the session may have a new award.
    pub async fn woken(&self) {
        self.woken.notified().await;
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut waiting = self.winners.lock();
        if let Some(connections) = waiting.get_mut(&self.session) {
            connections.retain(|woken| !Arc::ptr_eq(woken, &self.woken));
            if connections.is_empty() {
                waiting.remove(&self.session);
            }
        }
    }
}
