//! Data centres of the layout.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `GET /v1/dcs`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DcsBody {
    /// In the order of the layout.
    pub dcs: Vec<DcBody>,
}

/// One data centre, as the answering data centre knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DcBody {
    pub name: String,
    /// It can be reached from here, or is this one.
    pub connected: bool,
    /// It was given up, and never returns.
    pub forgotten: bool,
    pub member: Member,
    /// Incarnations of its groups that are not given up, as `DC/GROUP#INCARNATION`.
    pub groups: Vec<String>,
    /// Rights outstanding at them, of all counters: weight that they may have counted unseen.
    pub rights: u64,
    /// Why it would not be given up now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// The role of its aggregators in the ledger: the highest of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Member {
    Voter,
    Learner,
    None,
}

/// `POST …/forgotten`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ForgetBody {
    /// Although it was heard of a moment ago.
    #[serde(default)]
    pub force: bool,
}

/// Where [`ForgetBody`] is posted to.
pub fn forgotten_path(dc: &str) -> String {
    format!("/v1/dcs/{}/forgotten", utf8_percent_encode(dc, NON_ALPHANUMERIC))
}
