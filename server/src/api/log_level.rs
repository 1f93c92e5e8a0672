//! The level of a process's log.

use crate::schemas;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `GET /v1/log-level`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LogLevelBody {
    /// The present level, or a filter by module.
    pub level: String,
}

/// The body of `PUT /v1/log-level`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetLogLevelBody {
    /// off, error, warn, info, debug or trace; or a filter by module, such as `warn,tidemark_node=debug`.
    #[schemars(schema_with = "schemas::log_level")]
    pub level: String,
}

/// The answer of `PUT /v1/log-level`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LogLevelChangedBody {
    pub level: String,
    /// The level before.
    pub before: String,
}
