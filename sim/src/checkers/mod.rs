//! The properties that must hold, one per file. Checkers look from outside: at disks, at messages, at answers, at the states that the
//! machines show. They remember only what they compare.

pub mod answers;
pub mod award;
pub mod claims;
pub mod conservation;
pub mod convergence;
pub mod dedupe;
pub mod definitions;
pub mod edges;
pub mod eras;
pub mod ids;
pub mod leases;
pub mod limits;
pub mod liveness;
pub mod lives;
pub mod order;
pub mod positions;
pub mod reads;
pub mod rights;
pub mod series;
pub mod sizes;
pub mod totals;
pub mod versions;
pub mod views;

use tidemark_proto::time::Time;

/// A property that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The checker's name.
    pub property: &'static str,
    pub at: Time,
    pub what: String,
}

/// Violations kept of one run; more say nothing new.
pub const VIOLATIONS_MAX: usize = 20;

/// Collects what the checkers find.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    pub now: Time,
    pub violations: Vec<Violation>,
}

impl Findings {
    pub fn found(&mut self, property: &'static str, what: String) {
        if self.violations.len() < VIOLATIONS_MAX {
            self.violations.push(Violation { property, at: self.now, what });
        }
    }

    pub fn check(&mut self, property: &'static str, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.found(property, what());
        }
    }
}

/// A group's committed state of one guarded counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    pub epoch: u32,
    pub generation: u32,
    pub base: u64,
    pub granted: u64,
    pub spent: u64,
    pub returned: u64,
    /// The next position of the queue.
    pub next_pos: u64,
    /// Every position below has a place.
    pub placed_upto: u64,
    /// Spending of closed generations.
    pub closed: u64,
}

impl Account {
    pub fn available(&self) -> u64 {
        self.granted - self.returned - self.spent
    }

    /// Weight counted without the ledger.
    pub fn certified(&self) -> u64 {
        self.base + self.closed + self.spent
    }
}
