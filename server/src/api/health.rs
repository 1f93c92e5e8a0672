//! What works in a process.

use schemars::JsonSchema;

/// One part of a process, and its fault.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, JsonSchema)]
pub struct HealthCheck {
    pub name: &'static str,
    pub state: HealthState,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// How a part of a process works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum HealthState {
    Ok,
    /// Something is wrong, and requests are served all the same.
    Degraded,
    /// Requests should go elsewhere: `/readyz` answers 503.
    Fails,
}
