//! Which counts of a counter a question is about.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidemark_proto::query;

/// The counts of a counter that a request reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Of {
    /// The counter's own counts
    #[default]
    Direct,
    /// Its own counts, and those that flow to it along edges
    Total,
}

impl Of {
    /// Whether it is what is meant where nothing is said.
    pub(crate) fn is_direct(&self) -> bool {
        *self == Of::Direct
    }

    /// As a parameter of a URL, behind a `&`.
    pub fn param(self) -> &'static str {
        match self {
            Of::Direct => "",
            Of::Total => "&of=total",
        }
    }
}

impl From<query::Of> for Of {
    fn from(of: query::Of) -> Of {
        match of {
            query::Of::Direct => Of::Direct,
            query::Of::Total => Of::Total,
        }
    }
}

impl From<Of> for query::Of {
    fn from(of: Of) -> query::Of {
        match of {
            Of::Direct => query::Of::Direct,
            Of::Total => query::Of::Total,
        }
    }
}
