//! One increment with a session, followed until its place is known.

use crate::error::HitError;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tidemark_proto::ids::SessionId;
use tidemark_proto::msg::Place;

/// A browser session's token. Only its digest leaves the process.
#[derive(Clone, Copy)]
pub struct SessionToken<'a>(&'a [u8]);

impl<'a> SessionToken<'a> {
    /// The token as the browser holds it.
    pub fn new(token: &'a (impl AsRef<[u8]> + ?Sized)) -> SessionToken<'a> {
        SessionToken(token.as_ref())
    }

    /// The first 16 bytes of the token's SHA-256: what is stored and sent of a session.
    pub fn id(self) -> SessionId {
        let digest = ring::digest::digest(&ring::digest::SHA256, self.0);
        let mut id = [0; 16];
        id.copy_from_slice(&digest.as_ref()[..16]);
        SessionId(id)
    }
}

impl From<SessionToken<'_>> for SessionId {
    fn from(token: SessionToken<'_>) -> SessionId {
        token.id()
    }
}

/// Where a hit stands after a wait with a bound.
#[derive(Debug)]
pub enum HitOutcome {
    /// Durable and placed.
    Placed(Place),
    /// Not yet placed: wait on, now or later.
    Pending(Hit),
}

/// A hit under way: resolves to its place. Dropping it changes nothing: the hit is counted all the same.
#[derive(Debug)]
#[must_use = "a hit is counted in any case, but its place is lost"]
pub struct Hit(pub(crate) Arc<HitCell>);

/// Resolves when a hit is durable.
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct HitDurable<'a>(&'a Hit);

#[derive(Debug, Default)]
pub(crate) struct HitCell(Mutex<HitState>);

#[derive(Debug, Default)]
struct HitState {
    /// The core's ticket, once the core has it.
    ticket: Option<u64>,
    durable: bool,
    known: bool,
    outcome: Option<Result<Place, HitError>>,
    waker: Option<Waker>,
}

impl HitCell {
    pub fn set_ticket(&self, ticket: u64) {
        self.lock().ticket = Some(ticket);
    }

    pub fn ticket(&self) -> Option<u64> {
        let state = self.lock();
        state.ticket.filter(|_| state.outcome.is_none())
    }

    pub fn set_durable(&self) {
        let mut state = self.lock();
        state.durable = true;
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Before it is durable.
    pub fn set_known(&self) {
        self.lock().known = true;
    }

    pub fn resolve(&self, outcome: Result<Place, HitError>) {
        let mut state = self.lock();
        state.outcome = Some(outcome);
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }

    fn lock(&self) -> MutexGuard<'_, HitState> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl HitState {
    fn wait(&mut self, context: &mut Context<'_>) {
        match &mut self.waker {
            Some(waker) => waker.clone_from(context.waker()),
            None => self.waker = Some(context.waker().clone()),
        }
    }
}

impl Hit {
    /// Waits until the hit is durable: never lost, counted once. Its place may still be open.
    ///
    /// Errors: the increment was not counted, or may or may not be counted.
    pub fn durable(&self) -> HitDurable<'_> {
        HitDurable(self)
    }

    /// Whether its id counted before, and nothing was counted now, once it is durable. So it is also of a hit that was counted and sent
    /// again, since the answer was lost. Without an id it never is.
    pub fn is_known(&self) -> bool {
        self.0.lock().known
    }

    /// Waits for the place for at most `timeout`; a hit that is not placed by then is given back as `Pending`.
    pub async fn within(mut self, timeout: Duration) -> Result<HitOutcome, HitError> {
        match tokio::time::timeout(timeout, &mut self).await {
            Ok(outcome) => outcome.map(HitOutcome::Placed),
            Err(_) => Ok(HitOutcome::Pending(self)),
        }
    }
}

impl Future for Hit {
    type Output = Result<Place, HitError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.0.lock();
        match &state.outcome {
            Some(outcome) => Poll::Ready(outcome.clone()),
            None => {
                state.wait(context);
                Poll::Pending
            }
        }
    }
}

impl Future for HitDurable<'_> {
    type Output = Result<(), HitError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.0.0.lock();
        match (&state.outcome, state.durable) {
            (Some(Ok(_) | Err(HitError::PlaceUnknown)), _) | (None, true) => Poll::Ready(Ok(())),
            (Some(Err(error)), _) => Poll::Ready(Err(error.clone())),
            (None, false) => {
                state.wait(context);
                Poll::Pending
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_the_first_half_of_the_sha_256_of_its_token() {
        // FIPS 180-2, appendix B.1: SHA-256 of "abc".
        assert_eq!(SessionToken::new("abc").id().to_string(), "ba7816bf8f01cfea414140de5dae2223");
    }

    #[tokio::test(start_paused = true)]
    async fn a_hit_that_takes_long_is_pending_and_can_be_waited_for_again() {
        let cell = Arc::new(HitCell::default());
        let hit = Hit(cell.clone());
        let outcome = hit.within(Duration::from_secs(1)).await.unwrap();
        let HitOutcome::Pending(hit) = outcome else { panic!("placed by nobody: {outcome:?}") };
        cell.set_durable();
        hit.durable().await.unwrap();
        cell.resolve(Ok(Place::Number(7)));
        assert_eq!(hit.await, Ok(Place::Number(7)));
    }
}
