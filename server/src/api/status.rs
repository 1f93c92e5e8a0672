//! `GET /v1/status`: what a process says of itself.

use super::HealthCheck;
use crate::api::lag::ViewLag;
use schemars::JsonSchema;
use serde::Serialize;

/// The answer: of an aggregator, or of a node.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum StatusBody {
    Aggregator(Box<AggregatorStatusBody>),
    Node(NodeStatusBody),
}

/// Of an aggregator, and so of `serve` and `demo`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct AggregatorStatusBody {
    pub cluster: String,
    pub dc: Option<String>,
    pub ready: bool,
    /// Why it is not ready.
    pub reason: Option<String>,
    pub checks: Vec<HealthCheck>,
    /// Incarnations of groups that the ledger knows.
    pub groups: usize,
    pub silent_groups: Vec<SilentGroupBody>,
    /// How far the view lags.
    pub view: ViewLag,
    pub ledger: LedgerStatusBody,
}

/// A group that could not be reached for long.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SilentGroupBody {
    /// `DC/GROUP#INCARNATION`.
    pub group: String,
    pub silent_s: u64,
    /// Rights outstanding: weight that it may have counted unseen.
    pub rights: u64,
    /// The command that gives it up.
    pub if_its_disks_are_gone: String,
}

/// The ledger as this process knows it.
#[derive(Debug, Serialize, JsonSchema)]
pub struct LedgerStatusBody {
    /// The last entry that is applied here.
    pub index: u64,
    pub is_leader: bool,
    pub leader: Option<String>,
    /// Voters that can be reached from here.
    pub voters_reached: usize,
    /// Whether the voters are being changed.
    pub changing: bool,
    pub warning: Option<String>,
    pub voters: Vec<String>,
}

/// Of a node.
#[derive(Debug, Serialize, JsonSchema)]
pub struct NodeStatusBody {
    pub dc: String,
    pub node: u16,
    pub ready: bool,
    /// Why it is not ready.
    pub reason: Option<String>,
    pub groups: Vec<GroupStatusBody>,
}

/// A group on a node.
#[derive(Debug, Serialize, JsonSchema)]
pub struct GroupStatusBody {
    pub group: Option<u16>,
    pub incarnation: Option<u32>,
    pub role: GroupRole,
    /// The node that leads it, if known; `null` where its log is on this node only.
    pub leader: Option<u16>,
    /// The nodes that hold its log; none if it is on this node only.
    pub holders: Vec<u16>,
    pub valves: u8,
    /// Whether increments are taken.
    pub serving: bool,
    pub caught_up: bool,
    /// Why its log stopped.
    pub failed: Option<String>,
    /// A fault that keeps it from working until an operator acts.
    pub trouble: Option<String>,
    pub connections: usize,
    pub applied: u64,
    /// Durable commits since the start.
    pub commits: u64,
    pub buckets_bytes: usize,
    pub buckets_bytes_max: Option<usize>,
    pub rows_shelved: usize,
    pub ids: u32,
    pub ids_max: u32,
    /// For how long, since the start, batches waited for views to come nearer.
    pub held_ms: u64,
}

/// The role of a node in a group.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum GroupRole {
    Alone,
    Leads,
    Follows,
}
