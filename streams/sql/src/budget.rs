//! The use of each tenant: queries at a time, and seconds and rows of the present minute.
//!
//! A query begins if its tenant is below each limit. It is charged when it ends, in the minute of its end. So the last query of a
//! minute may exceed a limit, by no more than the limits of one query. Use beyond a limit is charged to the next minutes.

use crate::limits::{BUDGET_WINDOW_S, QUICK_TENANT_CPU_MS, SLOW_NICE, SLOW_TENANT_S, TENANTS_MAX, UNTRIED_NICE};
use std::collections::BTreeMap;
use std::time::Duration;

/// The limits of each tenant. Its memory is `queries` times the memory of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TenantLimits {
    /// Queries at a time.
    pub queries: usize,
    /// Time of children in a minute.
    pub time: Duration,
    /// Rows that are read in a minute.
    pub rows: u64,
    /// Milliseconds for which a child works for a query before the query is slow: [`crate::limits::QUICK_CPU_MS`] where it is optimised.
    pub quick_ms: u64,
}

/// How a query begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// The last query of its tenant that had a result was quick.
    Quick,
    /// Its tenant is new, or its last query was slow some time ago. No query has shown yet that it asks quick ones.
    Untried,
    /// A query of its tenant was slow a moment ago, or children have worked much for its tenant in the present minute.
    Slow,
}

impl Pace {
    /// How far the child of such a query works behind other processes from its start.
    pub fn nice(self) -> i32 {
        match self {
            Pace::Quick => 0,
            Pace::Untried => UNTRIED_NICE,
            Pace::Slow => SLOW_NICE,
        }
    }
}

/// Why a query does not begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OverBudget {
    #[error("the tenant runs {running} queries: at most {max} at a time; wait until one of them ends")]
    Queries { running: usize, max: usize },
    #[error(
        "the tenant's queries of this minute took {used_ms} ms: at most {max_ms} ms in {BUDGET_WINDOW_S} s; \
         ask for shorter ranges, or again in {again_s} s"
    )]
    Time { used_ms: u128, max_ms: u128, again_s: u64 },
    #[error(
        "the tenant's queries of this minute read {used} rows: at most {max} in {BUDGET_WINDOW_S} s; \
         ask for shorter ranges, or again in {again_s} s"
    )]
    Rows { used: u64, max: u64, again_s: u64 },
}

/// The use of a tenant.
#[derive(Clone, Copy, Debug, Default)]
struct Use {
    running: usize,
    window: u64,
    time: Duration,
    rows: u64,
    worked_ms: u64,
    /// Its queries are slow from their start until then.
    slow_until_s: u64,
    /// A query had a result and was quick, and none was slow since.
    is_tried: bool,
}

/// The use of all tenants.
#[derive(Debug)]
pub struct Budgets {
    limits: TenantLimits,
    tenants: BTreeMap<String, Use>,
}

/// The cost of a query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    pub time: Duration,
    pub rows: u64,
    /// Milliseconds for which its child worked.
    pub worked_ms: u64,
    /// It had a result.
    pub is_answered: bool,
}

impl Use {
    /// Advances to a window. Each window that has passed subtracts its limit from the use.
    fn roll(&mut self, window: u64, limits: TenantLimits) {
        let passed = window.saturating_sub(self.window);
        let times = u32::try_from(passed).unwrap_or(u32::MAX);
        self.time = self.time.saturating_sub(limits.time.saturating_mul(times));
        self.rows = self.rows.saturating_sub(limits.rows.saturating_mul(passed));
        self.worked_ms = self.worked_ms.saturating_sub(QUICK_TENANT_CPU_MS.saturating_mul(passed));
        self.window = window.max(self.window);
    }
}

impl Budgets {
    pub fn new(limits: TenantLimits) -> Budgets {
        Budgets { limits, tenants: BTreeMap::new() }
    }

    /// Lets a query begin. It is slow if its tenant had a slow query a moment ago, or if children worked much for it. `now_s` never goes
    /// back.
    ///
    /// # Errors
    /// [`OverBudget`].
    pub fn begin(&mut self, tenant: &str, now_s: u64) -> Result<Pace, OverBudget> {
        let window = now_s / BUDGET_WINDOW_S;
        let limits = self.limits;
        if self.tenants.len() >= TENANTS_MAX {
            self.tenants.retain(|_, known| {
                known.roll(window, limits);
                known.running > 0 || known.time > Duration::ZERO || known.rows > 0 || known.worked_ms > 0
            });
        }
        if self.tenants.len() >= TENANTS_MAX {
            self.tenants.retain(|_, known| known.running > 0);
        }
        let known = self.tenants.entry(tenant.to_owned()).or_default();
        known.roll(window, limits);
        let TenantLimits { queries, time, rows, quick_ms: _ } = limits;
        let again_s = (window + 1) * BUDGET_WINDOW_S - now_s;
        if known.running >= queries {
            return Err(OverBudget::Queries { running: known.running, max: queries });
        }
        if known.time >= time {
            return Err(OverBudget::Time { used_ms: known.time.as_millis(), max_ms: time.as_millis(), again_s });
        }
        if known.rows >= rows {
            return Err(OverBudget::Rows { used: known.rows, max: rows, again_s });
        }
        known.running += 1;
        let is_slow = known.worked_ms >= QUICK_TENANT_CPU_MS || now_s < known.slow_until_s;
        Ok(match (is_slow, known.is_tried) {
            (true, _) => Pace::Slow,
            (false, false) => Pace::Untried,
            (false, true) => Pace::Quick,
        })
    }

    /// A running query of a tenant is slow.
    pub fn slow_down(&mut self, tenant: &str, now_s: u64) {
        if let Some(known) = self.tenants.get_mut(tenant) {
            known.slow_until_s = now_s + SLOW_TENANT_S;
            known.is_tried = false;
        }
    }

    /// Charges a query that began.
    pub fn end(&mut self, tenant: &str, cost: Cost, now_s: u64) {
        let limits = self.limits;
        let Some(known) = self.tenants.get_mut(tenant) else { return };
        known.roll(now_s / BUDGET_WINDOW_S, limits);
        known.running = known.running.saturating_sub(1);
        known.time += cost.time;
        known.rows = known.rows.saturating_add(cost.rows);
        known.worked_ms = known.worked_ms.saturating_add(cost.worked_ms);
        if cost.is_answered && cost.worked_ms <= limits.quick_ms && now_s >= known.slow_until_s {
            known.is_tried = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::QUICK_CPU_MS;

    /// The cost of a query that had a result at once.
    const ANSWERED: Cost = Cost { time: Duration::ZERO, rows: 0, worked_ms: 0, is_answered: true };
    const LIMITS: TenantLimits =
        TenantLimits { queries: 2, time: Duration::from_secs(10), rows: 100, quick_ms: QUICK_CPU_MS };

    #[test]
    fn tenant_over_a_limit_waits_for_the_next_minute() {
        let mut budgets = Budgets::new(LIMITS);
        budgets.begin("a", 30).unwrap();
        budgets.begin("a", 30).unwrap();
        assert_eq!(budgets.begin("a", 30), Err(OverBudget::Queries { running: 2, max: 2 }));
        assert_eq!(budgets.begin("b", 30), Ok(Pace::Untried), "other tenants go on");
        budgets.end("a", Cost { time: Duration::from_secs(10), rows: 1, ..Cost::default() }, 30);
        let slow = OverBudget::Time { used_ms: 10_000, max_ms: 10_000, again_s: 25 };
        assert_eq!(budgets.begin("a", 35), Err(slow));
        assert_eq!(budgets.begin("a", 60), Ok(Pace::Untried));
        budgets.end("a", Cost { rows: 100, ..Cost::default() }, 60);
        assert_eq!(budgets.begin("a", 61), Err(OverBudget::Rows { used: 100, max: 100, again_s: 59 }));
    }

    #[test]
    fn tenant_whose_queries_worked_much_is_slow() {
        let mut budgets = Budgets::new(LIMITS);
        for (worked_ms, pace) in [(1, Pace::Quick), (QUICK_TENANT_CPU_MS - 2, Pace::Quick), (1, Pace::Slow)] {
            budgets.begin("a", 30).unwrap();
            budgets.end("a", Cost { worked_ms, is_answered: true, ..Cost::default() }, 30);
            assert_eq!(budgets.begin("a", 30), Ok(pace));
            budgets.end("a", Cost::default(), 30);
        }
        assert_eq!(budgets.begin("a", 60), Ok(Pace::Quick), "the next minute begins");
    }

    #[test]
    fn tenant_with_a_slow_query_is_slow_for_seconds() {
        let mut budgets = Budgets::new(LIMITS);
        budgets.begin("a", 30).unwrap();
        budgets.slow_down("a", 31);
        assert_eq!(budgets.begin("a", 31), Ok(Pace::Slow));
        budgets.end("a", ANSWERED, 31);
        assert_eq!(budgets.begin("b", 31), Ok(Pace::Untried));
        assert_eq!(budgets.begin("a", 31 + SLOW_TENANT_S), Ok(Pace::Untried), "a result meanwhile shows nothing");
    }

    #[test]
    fn tenant_is_quick_once_a_quick_query_had_a_result() {
        let mut budgets = Budgets::new(LIMITS);
        let mut next = |cost: Cost| {
            budgets.begin("a", 30).unwrap();
            budgets.end("a", cost, 30);
            let pace = budgets.begin("a", 30);
            budgets.end("a", Cost::default(), 30);
            pace
        };
        assert_eq!(next(Cost::default()), Ok(Pace::Untried), "a query without a result shows nothing");
        let long = Cost { worked_ms: QUICK_CPU_MS + 1, ..ANSWERED };
        assert_eq!(next(long), Ok(Pace::Untried));
        assert_eq!(next(Cost { worked_ms: QUICK_CPU_MS, ..ANSWERED }), Ok(Pace::Quick));
        assert_eq!(next(Cost::default()), Ok(Pace::Quick), "it stays known");
    }

    #[test]
    fn query_over_two_minutes_is_charged_to_the_second() {
        let mut budgets = Budgets::new(LIMITS);
        budgets.begin("a", 55).unwrap();
        budgets.end("a", Cost { time: Duration::from_secs(20), rows: 250, ..Cost::default() }, 75);
        let slow = OverBudget::Time { used_ms: 20_000, max_ms: 10_000, again_s: 44 };
        assert_eq!(budgets.begin("a", 76), Err(slow));
        let slow = OverBudget::Time { used_ms: 10_000, max_ms: 10_000, again_s: 60 };
        assert_eq!(budgets.begin("a", 120), Err(slow), "the excess is charged to the next minute");
        assert_eq!(budgets.begin("a", 180), Ok(Pace::Untried));
        budgets.end("a", Cost { rows: 50, ..Cost::default() }, 180);
        assert_eq!(budgets.begin("a", 181), Err(OverBudget::Rows { used: 100, max: 100, again_s: 59 }));
    }

    #[test]
    fn idle_tenants_are_forgotten_when_there_are_too_many() {
        let mut budgets = Budgets::new(LIMITS);
        budgets.begin("busy", 0).unwrap();
        for number in 0..TENANTS_MAX {
            let tenant = number.to_string();
            budgets.begin(&tenant, 0).unwrap();
            budgets.end(&tenant, Cost::default(), 0);
        }
        assert!(budgets.tenants.len() <= TENANTS_MAX);
        assert_eq!(budgets.tenants["busy"].running, 1);
    }
}
