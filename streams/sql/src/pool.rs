//! The parent's side: a few children. Each child answers one query at a time, and queries of one tenant only.
//!
//! [`Pool::begin`] waits for a child and returns a [`Session`]; [`Pool::admit`] waits for the turn only, and [`Pool::enter`] for nothing:
//! a query may read its blobs before it has a turn. The session sends the query, then
//! the tenant's rows, and takes the result. While the child works, the parent measures its memory every 20 ms, and kills a child that takes
//! too much memory or time. A child that has worked long for a query works behind other processes from then on.
//! A session that is dropped before its end kills its child, so a client that disconnects costs nothing more.

mod error;
mod priority;
mod process;
mod session;
mod starter;
mod stats;
mod turns;

pub use error::SqlError;
pub use session::{QueryResult, Session};
pub use stats::{Ended, Stats};

use crate::budget::{Budgets, Cost, Pace, TenantLimits};
use process::{Lane, Process};
use starter::Starter;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use turns::{Place, Turn, Turns};

/// Settings of a pool.
#[derive(Clone, Debug)]
pub struct PoolSettings {
    /// The program of a child.
    pub program: PathBuf,
    /// Largest number of children. Each answers one query at a time.
    pub children: usize,
    /// Memory of a query, with the rows that it reads.
    pub memory_bytes: u64,
    /// Time of a query, from the moment at which it gets a turn.
    pub timeout: Duration,
    /// Time that a query waits for a child.
    pub wait: Duration,
    /// Largest number of rows that a query reads.
    pub scan_rows_max: u64,
    /// Largest number of rows and bytes of a result.
    pub rows_max: u64,
    pub bytes_max: u64,
    pub tenant: TenantLimits,
}

/// Children, and the use of queries.
#[derive(Debug)]
pub struct Pool {
    settings: PoolSettings,
    started: Instant,
    turns: Turns,
    starter: Starter,
    shared: Mutex<Shared>,
}

/// A child that waits for a query. It has had rows of one tenant, and gets no rows of other tenants.
#[derive(Debug)]
struct Idle {
    tenant: String,
    process: Process,
}

#[derive(Debug)]
struct Shared {
    /// The last is the newest.
    idle: Vec<Idle>,
    budgets: Budgets,
    stats: Stats,
}

/// Gives a tenant's turn back with its cost.
#[derive(Debug)]
struct Charged {
    pool: Arc<Pool>,
    tenant: String,
    cost: Cost,
    /// The time at which the query began to read, or got its turn.
    began: Option<Instant>,
    /// The time that it read before its turn.
    read: Duration,
    pace: Pace,
    turn: Option<Turn>,
}

/// A query within the budget of its tenant that has no turn yet.
#[derive(Debug)]
pub struct Entered {
    charged: Charged,
    place: Option<Place>,
}

/// A query before its blobs are read.
#[derive(Debug)]
pub enum Begun {
    /// Its child may start while blobs are read.
    Admitted(Admitted),
    /// Its blobs are read first, because others may need the children meanwhile.
    Reads(Entered),
}

/// A query that has its turn, and no child yet.
#[derive(Debug)]
pub struct Admitted {
    charged: Charged,
}

impl Entered {
    /// Takes a turn before the query has its rows, if it is slow, or if others have turns enough left. So a slow store does not block the
    /// children that are for quick queries. A slow query waits for its turn here, so that it holds no blobs meanwhile.
    ///
    /// # Errors
    /// Too many queries wait, or this one has waited too long.
    pub async fn begin(mut self) -> Result<Begun, SqlError> {
        let pool = Arc::clone(&self.charged.pool);
        match self.charged.pace {
            Pace::Slow => self.turn().await.map(Begun::Admitted),
            pace @ (Pace::Quick | Pace::Untried) => match pool.turns.take_early(pace) {
                Some(turn) => Ok(Begun::Admitted(self.charged.admitted(turn))),
                None => match pool.turns.place(pace) {
                    Ok(place) => {
                        self.place = Some(place);
                        self.charged.began = Some(Instant::now());
                        Ok(Begun::Reads(self))
                    }
                    Err(full) => {
                        let turn = pool.turns.free_turn(pace).ok_or(full)?;
                        Ok(Begun::Admitted(self.charged.admitted(turn)))
                    }
                },
            },
        }
    }

    /// Waits for a turn.
    ///
    /// # Errors
    /// Too many queries wait, or this one has waited too long.
    pub async fn turn(self) -> Result<Admitted, SqlError> {
        let Entered { mut charged, place } = self;
        // Waiting costs the tenant nothing.
        charged.read = charged.began.take().map_or(Duration::ZERO, |began| began.elapsed());
        let turns = &charged.pool.turns;
        let turn = match place {
            Some(place) => turns.take_from(place, charged.pace).await?,
            None => turns.take(charged.pace).await?,
        };
        Ok(charged.admitted(turn))
    }
}

impl Admitted {
    /// Takes or starts a child.
    ///
    /// # Errors
    /// It does not start.
    pub async fn start(self) -> Result<Session, SqlError> {
        let Admitted { charged } = self;
        let pool = Arc::clone(&charged.pool);
        let pace = charged.pace;
        let mut process = match pool.idle(&charged.tenant, pace) {
            Some(process) => process,
            None => {
                pool.make_room();
                Process::start(&pool.settings, &pool, pace).await?
            }
        };
        process.put_behind(pace.nice());
        Ok(Session::new(charged, process))
    }
}

impl Pool {
    /// A pool without children: a child starts when a query needs one.
    pub fn new(settings: PoolSettings) -> Arc<Pool> {
        let turns = Turns::new(settings.children, settings.wait);
        let budgets = Budgets::new(settings.tenant);
        Arc::new(Pool {
            settings,
            started: Instant::now(),
            turns,
            starter: Starter::default(),
            shared: Mutex::new(Shared { idle: Vec::new(), budgets, stats: Stats::default() }),
        })
    }

    pub fn settings(&self) -> &PoolSettings {
        &self.settings
    }

    /// Whether the program of a child is there.
    pub fn is_installed(&self) -> bool {
        self.settings.program.is_file()
    }

    /// Counts since the start of the pool.
    pub fn stats(&self) -> Stats {
        self.shared().stats.clone()
    }

    /// Counts a query that was refused.
    pub fn count_refusal(&self, error: &SqlError) {
        self.shared().stats.count_refusal(error.code());
    }

    /// Waits for a turn, and takes or starts a child.
    ///
    /// # Errors
    /// The program is missing, too many queries wait, or the tenant is over its budget.
    pub async fn begin(self: &Arc<Pool>, tenant: &str) -> Result<Session, SqlError> {
        self.admit(tenant).await?.start().await
    }

    /// Waits for a turn.
    ///
    /// # Errors
    /// The program is missing, too many queries wait, or the tenant is over its budget.
    pub async fn admit(self: &Arc<Pool>, tenant: &str) -> Result<Admitted, SqlError> {
        self.enter(tenant)?.turn().await
    }

    /// Takes a query of a tenant within its budget.
    ///
    /// # Errors
    /// The program is missing, or the tenant is over its budget.
    pub fn enter(self: &Arc<Pool>, tenant: &str) -> Result<Entered, SqlError> {
        if !self.is_installed() {
            return Err(SqlError::NotInstalled { program: self.settings.program.clone() });
        }
        Ok(Entered { charged: self.charged(tenant)?, place: None })
    }

    fn charged(self: &Arc<Pool>, tenant: &str) -> Result<Charged, SqlError> {
        let pace = self.shared().budgets.begin(tenant, self.started.elapsed().as_secs())?;
        let pool = Arc::clone(self);
        Ok(Charged {
            pool,
            tenant: tenant.to_owned(),
            cost: Cost::default(),
            began: None,
            read: Duration::ZERO,
            pace,
            turn: None,
        })
    }

    /// Takes an idle child that still runs and has had only this tenant's rows, if there is one. A query takes no child that works further
    /// behind others than the query has to.
    fn idle(&self, tenant: &str, pace: Pace) -> Option<Process> {
        loop {
            let mut process = self.shared().take(tenant)?;
            match process.is_quiet() {
                Ok(()) if process.is_behind(pace.nice()) => process.end(Ended::Priority),
                Ok(()) => return Some(process),
                Err(reason) => process.end(reason),
            }
        }
    }

    /// Ends the oldest idle children until there is room for one more. The caller has a turn.
    fn make_room(&self) {
        let room = self.turns.free();
        let oldest: Vec<Idle> = {
            let idle = &mut self.shared().idle;
            let surplus = idle.len().saturating_sub(room);
            idle.drain(..surplus).collect()
        };
        oldest.into_iter().for_each(|idle| idle.process.end(Ended::Tenant));
    }

    /// Takes a child back after it has answered a query of a tenant.
    fn give_back(&self, tenant: &str, mut process: Process) {
        match process.is_quiet().err().or_else(|| process.worn_out()) {
            Some(reason) => process.end(reason),
            None => self.shared().idle.push(Idle { tenant: tenant.to_owned(), process }),
        }
    }

    /// A query of a tenant is slow.
    fn slow_down(&self, tenant: &str) {
        self.shared().budgets.slow_down(tenant, self.started.elapsed().as_secs());
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    /// The newest idle child of a tenant.
    fn take(&mut self, tenant: &str) -> Option<Process> {
        let at = self.idle.iter().rposition(|idle| idle.tenant == tenant)?;
        Some(self.idle.remove(at).process)
    }
}

impl Charged {
    /// The query got its turn.
    fn admitted(mut self, turn: Turn) -> Admitted {
        self.turn = Some(turn);
        self.began = Some(Instant::now());
        Admitted { charged: self }
    }

    /// The turn of the query, for the time in which its child works.
    fn lane(&mut self) -> Option<Lane<'_>> {
        Some(Lane { pool: &self.pool, tenant: &self.tenant, turn: self.turn.as_mut()?, cost: &mut self.cost })
    }
}

impl Drop for Charged {
    fn drop(&mut self) {
        let mut shared = self.pool.shared();
        self.cost.time = self.read + self.began.map_or(Duration::ZERO, |began| began.elapsed());
        shared.stats.seconds += self.cost.time.as_secs_f64();
        shared.stats.rows += self.cost.rows;
        shared.budgets.end(&self.tenant, self.cost, self.pool.started.elapsed().as_secs());
        drop(shared);
        // Another query may begin once this one is charged.
        drop(self.turn.take());
    }
}

#[cfg(test)]
mod tests;
