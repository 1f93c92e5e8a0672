//! Milestones of a counter, and how far they are.

use super::Mode;
use schemars::JsonSchema;
use tidemark_proto::msg::{Award, Reading};

/// How far a milestone is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MilestoneState {
    /// Baselines are being collected: nothing is promised yet.
    Arming,
    /// It cannot happen unseen.
    Armed,
    /// It had happened before it was armed: there will be no award.
    Passed,
    Awarded,
}

/// One milestone.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, JsonSchema)]
pub struct MilestoneStatus {
    pub at: u64,
    pub state: MilestoneState,
    /// Of one that is to come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<super::body::PolicyBody>,
    /// While arming: data centres that it waits for. Once armed: groups with rights that it waits for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits_for: Vec<String>,
}

/// A counter's milestones, ascending.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, JsonSchema)]
pub struct MilestoneList {
    pub milestones: Vec<MilestoneStatus>,
    /// The rule: every multiple of this.
    pub every: Option<u64>,
    /// From this count on every increment is sequenced.
    pub sequence_from: Option<u64>,
}

/// The known state of a milestone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AwardState {
    Awarded(Box<Award>),
    /// Arming or armed.
    Coming(MilestoneState),
    /// It had happened before it was armed.
    Passed,
    /// Never defined, or removed.
    Unknown,
}

/// How far a counter is from its next milestone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    pub reading: Reading,
    /// The least armed milestone, or else the least that is arming.
    pub next: Option<(u64, MilestoneState)>,
    /// The rates that the groups have reported; of guarded counters only.
    pub rate_per_s: Option<u64>,
    /// Of the whole cluster; data centres that are cut off are not reported.
    pub mode: Mode,
}
