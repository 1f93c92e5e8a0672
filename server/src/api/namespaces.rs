//! Namespaces.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `GET /v1/namespaces`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NamespacesBody {
    /// In the order of their names.
    pub namespaces: Vec<NamespaceBody>,
}

/// One namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NamespaceBody {
    pub name: String,
    /// Its counters may go down.
    pub updown: bool,
    /// It keeps series.
    pub series: bool,
}

/// The code of that failure.
pub(crate) const UNKNOWN_NAMESPACE: &str = "unknown_namespace";
