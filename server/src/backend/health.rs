//! The health of an aggregator's process: its view, the groups of its data centre, and the ledger.

use crate::api::{HealthCheck, HealthState};
use tidemark_aggregator::{Aggregator, Check, CheckState, Health};
use tidemark_client::{Client, LinkState};

/// Each part, and why it does not work. `namespaces` are those that the ledger must know before increments of them are taken.
pub(super) fn of(aggregator: &Aggregator, client: &Client, namespaces: &[String]) -> Vec<HealthCheck> {
    let Health { reads, writes, ledger } = aggregator.health();
    let writes = match writes.state {
        CheckState::Fails => writes,
        CheckState::Works | CheckState::Degraded => writes_of(aggregator, client, namespaces).unwrap_or(writes),
    };
    vec![check("reads", reads), check("writes", writes), check("ledger", ledger)]
}

/// Why increments are not taken though a group is connected, if they are not.
fn writes_of(aggregator: &Aggregator, client: &Client, namespaces: &[String]) -> Option<Check> {
    let is_unknown =
        |name: &&String| !aggregator.with_ledger(|ledger| ledger.namespaces().any(|known| known == name.as_str()));
    if let Some(name) = namespaces.iter().find(is_unknown) {
        return Some(Check::fails(format!("the ledger does not know the namespace {name} yet")));
    }
    match client.link_state() {
        LinkState::Up => None,
        LinkState::Down { reason, .. } => Some(Check::fails(format!("no group takes increments: {reason}"))),
    }
}

fn check(name: &'static str, check: Check) -> HealthCheck {
    let state = match check.state {
        CheckState::Works => HealthState::Ok,
        CheckState::Degraded => HealthState::Degraded,
        CheckState::Fails => HealthState::Fails,
    };
    HealthCheck { name, state, reason: check.reason }
}
