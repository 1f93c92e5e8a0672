//! Turns of queries: each running query has one. Half of them are for quick queries only, and one of these for tenants that are known for
//! quick queries.
//!
//! A query is quick until its child has worked for [`crate::limits::QUICK_CPU_MS`]. Then it needs a slow turn, and its child works behind all
//! others. So slow queries of any number of tenants leave turns and processors to quick ones, and the first queries of new tenants do too.

use super::SqlError;
use crate::budget::Pace;
use crate::limits::WAITING_MAX;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Quick turns that only a query of a tenant with a record of quick queries takes, while there are others beside them.
const KEPT: usize = 1;

/// Which queries may have a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Any query.
    Slow,
    /// Those that are quick, or that nobody has tried.
    Open,
    /// Those that are quick.
    Kept,
}

/// The turn of a query.
#[derive(Debug)]
pub struct Turn {
    kind: Kind,
    _permit: OwnedSemaphorePermit,
}

/// All turns of a pool.
#[derive(Debug)]
pub struct Turns {
    all: usize,
    slow: Arc<Semaphore>,
    open: Arc<Semaphore>,
    kept: Arc<Semaphore>,
    /// Places of quick queries, and of all others. So others cannot take the places of known tenants.
    known_places: Arc<Semaphore>,
    places: Arc<Semaphore>,
    /// Quick queries that wait for a turn.
    known_waiting: AtomicUsize,
    /// The same of tenants that nobody has tried.
    untried_waiting: AtomicUsize,
    wait: Duration,
}

/// The place of a query that has no turn yet.
#[derive(Debug)]
pub struct Place {
    _permit: OwnedSemaphorePermit,
}

/// A query that waits, and is not slow.
struct Waits<'t>(&'t AtomicUsize);

impl<'t> Waits<'t> {
    fn begin(waiting: &'t AtomicUsize) -> Waits<'t> {
        waiting.fetch_add(1, Ordering::Relaxed);
        Waits(waiting)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Turns {
    /// As many turns as children. A query waits for one at most this long.
    pub fn new(children: usize, wait: Duration) -> Turns {
        let slow = children / 2;
        let quick = children - slow;
        let kept = if quick > KEPT { KEPT } else { 0 };
        Turns {
            all: children,
            slow: Arc::new(Semaphore::new(slow)),
            open: Arc::new(Semaphore::new(quick - kept)),
            kept: Arc::new(Semaphore::new(kept)),
            known_places: Arc::new(Semaphore::new(WAITING_MAX)),
            places: Arc::new(Semaphore::new(WAITING_MAX)),
            known_waiting: AtomicUsize::new(0),
            untried_waiting: AtomicUsize::new(0),
            wait,
        }
    }

    /// Waits for a turn. A quick query takes any turn.
    ///
    /// # Errors
    /// Too many queries wait, or this one has waited too long.
    pub async fn take(&self, pace: Pace) -> Result<Turn, SqlError> {
        match self.free_turn(pace) {
            Some(turn) => Ok(turn),
            None => self.take_from(self.place(pace)?, pace).await,
        }
    }

    /// A turn for a query that may not use it at once, if at least half of all turns are left to others.
    pub fn take_early(&self, pace: Pace) -> Option<Turn> {
        if self.free() > self.all.div_ceil(2) { self.free_turn(pace) } else { None }
    }

    /// A place for a query that has no turn yet.
    ///
    /// # Errors
    /// Too many queries have none.
    pub fn place(&self, pace: Pace) -> Result<Place, SqlError> {
        let places = match pace {
            Pace::Quick => &self.known_places,
            Pace::Untried | Pace::Slow => &self.places,
        };
        let permit = Arc::clone(places).try_acquire_owned();
        Ok(Place { _permit: permit.map_err(|_| SqlError::QueueFull { max: WAITING_MAX })? })
    }

    /// Waits for a turn in a place.
    ///
    /// # Errors
    /// The query has waited too long.
    pub async fn take_from(&self, _place: Place, pace: Pace) -> Result<Turn, SqlError> {
        if let Some(turn) = self.free_turn(pace) {
            return Ok(turn);
        }
        let any = async {
            match pace {
                Pace::Slow => self.next(Kind::Slow).await,
                Pace::Untried => {
                    let _waits = Waits::begin(&self.untried_waiting);
                    tokio::select! {
                        turn = self.next(Kind::Open) => turn,
                        turn = self.next(Kind::Slow) => turn,
                    }
                }
                Pace::Quick => {
                    let _waits = Waits::begin(&self.known_waiting);
                    tokio::select! {
                        turn = self.next(Kind::Open) => turn,
                        turn = self.next(Kind::Kept) => turn,
                        turn = self.next(Kind::Slow) => turn,
                    }
                }
            }
        };
        let turn = tokio::time::timeout(self.wait, any).await;
        turn.ok().flatten().ok_or(SqlError::Waited { seconds: self.wait.as_secs() })
    }

    fn of(&self, kind: Kind) -> &Arc<Semaphore> {
        match kind {
            Kind::Slow => &self.slow,
            Kind::Open => &self.open,
            Kind::Kept => &self.kept,
        }
    }

    /// The next turn of a kind. The semaphores are never closed.
    async fn next(&self, kind: Kind) -> Option<Turn> {
        let permit = Arc::clone(self.of(kind)).acquire_owned().await.ok()?;
        Some(Turn { kind, _permit: permit })
    }

    /// A turn that no query has, of those that the query may take.
    pub fn free_turn(&self, pace: Pace) -> Option<Turn> {
        let kinds: &[Kind] = match pace {
            Pace::Slow => &[Kind::Slow],
            // An open turn may be needed by a quick query.
            Pace::Untried => &[Kind::Slow, Kind::Open],
            // The kept turn is for the next quick query, when others have all the rest.
            Pace::Quick => &[Kind::Open, Kind::Slow, Kind::Kept],
        };
        kinds.iter().find_map(|kind| self.free_of(*kind))
    }

    fn free_of(&self, kind: Kind) -> Option<Turn> {
        let permit = Arc::clone(self.of(kind)).try_acquire_owned().ok()?;
        Some(Turn { kind, _permit: permit })
    }

    /// Turns that no query has.
    pub fn free(&self) -> usize {
        [Kind::Slow, Kind::Open, Kind::Kept].iter().map(|kind| self.of(*kind).available_permits()).sum()
    }

    /// A query is slow from now on. False: there is no other turn for it, and a query waits that may take its turn.
    pub fn slow_down(&self, turn: &mut Turn) -> bool {
        let kinds: &[Kind] = match turn.kind {
            Kind::Slow => return true,
            Kind::Open => &[Kind::Slow],
            Kind::Kept => &[Kind::Slow, Kind::Open],
        };
        match kinds.iter().find_map(|kind| self.free_of(*kind)) {
            Some(other) => {
                *turn = other;
                true
            }
            None => {
                let untried = match turn.kind {
                    Kind::Kept => 0,
                    Kind::Open | Kind::Slow => self.untried_waiting.load(Ordering::Relaxed),
                };
                self.known_waiting.load(Ordering::Relaxed) + untried == 0
            }
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
    async fn untried_queries_leave_a_turn_to_known_tenants() {
        let turns = Turns::new(4, WAIT);
        let mut untried = Vec::new();
        for _ in 0..3 {
            untried.push(turns.take(Pace::Untried).await.unwrap());
        }
        assert!(matches!(turns.take(Pace::Untried).await, Err(SqlError::Waited { .. })));
        let mut known = turns.take(Pace::Quick).await.unwrap();
        assert!(matches!(turns.take(Pace::Quick).await, Err(SqlError::Waited { .. })));
        let open = untried.iter().position(|turn| turn.kind == Kind::Open).unwrap();
        drop(untried.swap_remove(open));
        assert!(turns.slow_down(&mut known), "a slow query does not keep the turn of known tenants");
        assert!(turns.take(Pace::Untried).await.is_err());
        assert!(turns.take(Pace::Quick).await.is_ok());
    }

    #[tokio::test]
    async fn half_of_the_turns_is_not_taken_early() {
        let turns = Turns::new(5, WAIT);
        let early = [turns.take_early(Pace::Quick), turns.take_early(Pace::Untried), turns.take_early(Pace::Quick)];
        assert_eq!(early.each_ref().map(Option::is_some), [true, true, false]);
        let place = turns.place(Pace::Quick).unwrap();
        assert!(turns.take_from(place, Pace::Quick).await.is_ok());
    }

    #[tokio::test]
    async fn places_of_queries_without_a_turn_are_bounded() {
        let turns = Turns::new(2, WAIT);
        let places: Vec<Place> = (0..WAITING_MAX).map(|_| turns.place(Pace::Untried).unwrap()).collect();
        assert!(matches!(turns.place(Pace::Untried), Err(SqlError::QueueFull { .. })));
        assert!(matches!(turns.place(Pace::Slow), Err(SqlError::QueueFull { .. })));
        let known: Vec<Place> = (0..WAITING_MAX).map(|_| turns.place(Pace::Quick).unwrap()).collect();
        assert!(matches!(turns.place(Pace::Quick), Err(SqlError::QueueFull { .. })));
        assert!(turns.take(Pace::Quick).await.is_ok(), "a free turn needs no place");
        drop((places, known));
        assert!(turns.place(Pace::Slow).is_ok() && turns.place(Pace::Quick).is_ok());
    }

    #[tokio::test]
    async fn kept_turn_is_given_back_to_known_tenants_only() {
        let turns = Turns::new(4, Duration::from_secs(5));
        let all = [Pace::Quick, Pace::Slow, Pace::Slow];
        let mut taken = Vec::new();
        for pace in all {
            taken.push(turns.take(pace).await.unwrap());
        }
        let mut kept = turns.take(Pace::Quick).await.unwrap();
        assert_eq!((kept.kind, turns.free()), (Kind::Kept, 0));
        let untried = turns.take(Pace::Untried);
        tokio::pin!(untried);
        assert!(tokio::time::timeout(WAIT, untried.as_mut()).await.is_err());
        assert!(turns.slow_down(&mut kept), "an untried query cannot take the kept turn");
        assert!(!turns.slow_down(&mut taken[0]), "it can take an open turn");
        let known = turns.take(Pace::Quick);
        tokio::pin!(known);
        assert!(tokio::time::timeout(WAIT, known.as_mut()).await.is_err());
        assert!(!turns.slow_down(&mut kept));
    }

    #[tokio::test]
    async fn untried_query_has_a_turn_of_two() {
        let turns = Turns::new(2, WAIT);
        let _slow = turns.take(Pace::Slow).await.unwrap();
        assert!(turns.take(Pace::Untried).await.is_ok(), "nothing is kept of a single quick turn");
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
