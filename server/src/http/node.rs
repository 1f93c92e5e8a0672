//! The operations of a node. It serves what every process serves. Each other operation of the table it knows too, and says where that is
//! served: a client that asks the wrong process is told so, not that there is no such path.

use super::Failure;
use super::operation::{Operation, Rules};
use super::operations::{of_every_process, rules};
use super::server::State;

/// What a node says to operations of these names; to all others it names its data centre's aggregator.
const ELSEWHERE: [(&str, &[&str]); 10] = [
    ("namespaces are known to aggregators only", &["namespaces"]),
    (
        "series are read and set at aggregators only",
        &[
            "window",
            "series",
            "windows",
            "range",
            "top",
            "export",
            "audit",
            "read",
            "series_policy",
            "set_series_policy",
        ],
    ),
    ("edges are read and changed at aggregators only", &["graph", "change_edges", "edges_audit", "allow_edges"]),
    ("only aggregators have a view that is cut into slots", &["slots", "move_slot", "split_slot", "keep_slot"]),
    (
        "this process is no member of the ledger",
        &["backup", "groups", "declare_group_lost", "dcs", "forget_dc", "ledger", "change_voters", "set_view_aside"],
    ),
    ("counters are reset at aggregators only", &["remove_counter", "reset_counter", "counter_life", "expire_counter"]),
    ("awards are claimed at aggregators only", &["claim_rule", "set_claim_rule", "claim_state", "claim"]),
    ("hops are counted by aggregators only", &["issue_hop", "count_hop"]),
    ("sessions are known to aggregators only", &["issue_sessions"]),
    (
        "awards are told by aggregators only",
        &["live", "events", "webhooks", "redeliver_webhook", "hold_webhook", "test_webhook"],
    ),
];

/// The operations of the table, as a node of this data centre answers them.
pub(super) fn operations<S: State>(dc: &str) -> Vec<Operation<S>> {
    let mut operations = of_every_process::<S>();
    let served: Vec<&str> = operations.iter().map(|operation| operation.rules.name).collect();
    let elsewhere = |rules: Rules| {
        let failure = elsewhere(rules.name, dc);
        Operation::elsewhere(rules, failure)
    };
    operations.extend(rules().into_iter().filter(|rules| !served.contains(&rules.name)).map(elsewhere));
    operations
}

/// The answer to an operation that a node does not serve.
fn elsewhere(name: &str, dc: &str) -> Failure {
    let said = ELSEWHERE.iter().find(|(_, names)| names.contains(&name)).map(|(said, _)| (*said).to_owned());
    let aggregator = || format!("this is a node of {dc}: counters and milestones are served by {dc}'s aggregator");
    Failure::NotFound(said.unwrap_or_else(aggregator))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_name_operations_of_the_table_each_once() {
        let known: Vec<&str> = rules().iter().map(|rules| rules.name).collect();
        let mut named: Vec<&str> = ELSEWHERE.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        assert!(named.iter().all(|name| known.contains(name)), "{named:?}");
        let count = named.len();
        named.sort_unstable();
        named.dedup();
        assert_eq!(named.len(), count);
    }
}
