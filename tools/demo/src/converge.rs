//! Whether all views show the same, and what was durable.

use tidemark_proto::ids::CounterName;

use tidemark::local::{LocalCluster, LocalDc};

/// The values in a view of the counter, and of all cold cells together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Target {
    pub total: u64,
    pub cold: u64,
}

/// The counter's total in a data centre's view.
pub fn total(dc: &LocalDc, counter: &CounterName) -> u64 {
    dc.aggregator.get(counter).up
}

/// The furthest that any view is.
pub fn largest(cluster: &LocalCluster, counter: &CounterName, cold: &[CounterName]) -> Target {
    let views = || cluster.dcs.iter();
    Target {
        total: views().map(|dc| total(dc, counter)).max().unwrap_or(0),
        cold: views().map(|dc| cold_sum(dc, cold)).max().unwrap_or(0),
    }
}

/// The least total of any view.
pub fn smallest(cluster: &LocalCluster, counter: &CounterName) -> u64 {
    cluster.dcs.iter().map(|dc| total(dc, counter)).min().unwrap_or(0)
}

/// Whether every view shows exactly this. The cold cells, which are many, are looked at last.
pub fn reached(cluster: &LocalCluster, counter: &CounterName, cold: &[CounterName], target: &Target) -> bool {
    let all = |holds: &dyn Fn(&LocalDc) -> bool| cluster.dcs.iter().all(holds);
    all(&|dc| total(dc, counter) == target.total) && all(&|dc| cold_sum(dc, cold) == target.cold)
}

fn cold_sum(dc: &LocalDc, cold: &[CounterName]) -> u64 {
    if cold.is_empty() {
        return 0;
    }
    dc.aggregator.get_many(cold.iter()).iter().map(|reading| reading.up).sum()
}
