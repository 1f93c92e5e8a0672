//! Turns of queries: each running query has one. Half of them are for quick queries only.
//!
//! A query is quick until its child has worked for [`crate::limits::QUICK_CPU_MS`]. Then it needs a slow turn, and its child works behind all others.
//! So slow queries of any number of tenants leave turns and processors to quick ones.

use super::SqlError;
use crate::budget::Pace;
use crate::limits::WAITING_MAX;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The turn of a query.
#[derive(Debug)]
pub struct Turn {
    pace: Pace,
    _permit: OwnedSemaphorePermit,
}

/// All turns of a pool.
#[derive(Debug)]
pub struct Turns {
    quick: Arc<Semaphore>,
    slow: Arc<Semaphore>,
    waiting: Semaphore,
    /// Quick queries that wait for a turn.
    quick_waiting: AtomicUsize,
    wait: Duration,
}

/// A quick query that waits.
struct Waits<'t>(&'t AtomicUsize);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Turns {
    /// As many turns as children. A query waits for one at most this long.
    pub fn new(children: usize, wait: Duration) -> Turns {
        let slow = children / 2;
        Turns {
            quick: Arc::new(Semaphore::new(children - slow)),
            slow: Arc::new(Semaphore::new(slow)),
            waiting: Semaphore::new(WAITING_MAX),
            quick_waiting: AtomicUsize::new(0),
            wait,
        }
    }

    /// Waits for a turn. A quick query takes any turn.
    ///
    /// # Errors
    /// Too many queries wait, or this one has waited too long.
    pub async fn take(&self, pace: Pace) -> Result<Turn, SqlError> {
        if let Some(turn) = self.free_turn(pace) {
            return Ok(turn);
        }
        let full = |_| SqlError::QueueFull { max: WAITING_MAX };
        let _waits = self.waiting.try_acquire().map_err(full)?;
        let slow = Arc::clone(&self.slow).acquire_owned();
        let turn = match pace {
            Pace::Slow => {
                let turn = tokio::time::timeout(self.wait, slow).await;
                turn.map(|permit| permit.map(|permit| Turn { pace, _permit: permit }))
            }
            Pace::Quick => {
                self.quick_waiting.fetch_add(1, Ordering::Relaxed);
                let _waits = Waits(&self.quick_waiting);
                let quick = Arc::clone(&self.quick).acquire_owned();
                let any = async {
                    tokio::select! {
                        permit = quick => permit.map(|permit| Turn { pace: Pace::Quick, _permit: permit }),
                        permit = slow => permit.map(|permit| Turn { pace: Pace::Slow, _permit: permit }),
                    }
                };
                tokio::time::timeout(self.wait, any).await
            }
        };
        turn.ok().and_then(Result::ok).ok_or(SqlError::Waited { seconds: self.wait.as_secs() })
    }

    fn free_turn(&self, pace: Pace) -> Option<Turn> {
        let of = |turns: &Arc<Semaphore>, pace: Pace| {
            let permit = Arc::clone(turns).try_acquire_owned().ok()?;
            Some(Turn { pace, _permit: permit })
        };
        let quick = match pace {
            Pace::Quick => of(&self.quick, Pace::Quick),
            Pace::Slow => None,
        };
        quick.or_else(|| of(&self.slow, Pace::Slow))
    }

    /// Turns that no query has.
    pub fn free(&self) -> usize {
        self.quick.available_permits() + self.slow.available_permits()
    }

    /// A query is slow from now on. False: there is no slow turn, and a quick query waits for its turn.
    pub fn slow_down(&self, turn: &mut Turn) -> bool {
        match turn.pace {
            Pace::Slow => true,
            Pace::Quick => match self.free_turn(Pace::Slow) {
                Some(slow) => {
                    *turn = slow;
                    true
                }
                None => self.quick_waiting.load(Ordering::Relaxed) == 0,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Duration = Duration::from_millis(20);

    #[tokio::test]
    async fn slow_queries_leave_half_of_the_turns() {
        let turns = Turns::new(4, WAIT);
        let _slow = [turns.take(Pace::Slow).await.unwrap(), turns.take(Pace::Slow).await.unwrap()];
        assert!(matches!(turns.take(Pace::Slow).await, Err(SqlError::Waited { .. })));
        let _quick = [turns.take(Pace::Quick).await.unwrap(), turns.take(Pace::Quick).await.unwrap()];
        assert_eq!(turns.free(), 0);
        assert!(matches!(turns.take(Pace::Quick).await, Err(SqlError::Waited { .. })));
    }

    #[tokio::test]
    async fn quick_queries_take_all_turns() {
        let turns = Turns::new(3, WAIT);
        for left in (0..3).rev() {
            std::mem::forget(turns.take(Pace::Quick).await.unwrap());
            assert_eq!(turns.free(), left);
        }
    }

    #[tokio::test]
    async fn query_that_becomes_slow_gives_its_quick_turn_back() {
        let turns = Turns::new(2, WAIT);
        let mut first = turns.take(Pace::Quick).await.unwrap();
        assert!(turns.slow_down(&mut first) && turns.slow_down(&mut first));
        let mut second = turns.take(Pace::Quick).await.unwrap();
        assert!(turns.slow_down(&mut second), "it goes on while no query waits");
        let waits = turns.take(Pace::Quick);
        let ends = async {
            while turns.slow_down(&mut second) {
                tokio::task::yield_now().await;
            }
            drop(second);
        };
        let (waited, ()) = tokio::join!(waits, ends);
        assert!(waited.is_ok());
    }
}
