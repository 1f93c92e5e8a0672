//! `GET /v1/cluster`: a counter in all data centres, as one aggregator knows it. Values that this aggregator cannot know are `null`.

use super::body::{AwardBody, CounterBody, HalvesBody, Signed};
use crate::places::Place;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Awards in one answer, at most: the newest.
pub const CLUSTER_AWARDS_MAX: usize = 10;

/// The answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterBody {
    /// The data centre that answers: all of this is what is known there.
    pub dc: String,
    pub ledger: LedgerBody,
    pub counter: CounterBody,
    /// As `GET /v1/counters/…` shows the value: never exceeds what happened; its upward half stays below the next milestone.
    pub total: Signed,
    /// Something was counted on it once, as far as is known here.
    #[serde(default = "super::body::is_known_by_default")]
    pub known: bool,
    #[serde(flatten)]
    pub halves: Option<HalvesBody>,
    /// Durable or heard of, but not yet in `total`.
    pub pending: u64,
    /// The least armed milestone that is not awarded; `null` where there is none.
    pub next_milestone: Option<u64>,
    /// The newest awards, newest first; at most [`CLUSTER_AWARDS_MAX`].
    pub awards: Vec<AwardBody>,
    /// All data centres of the cluster, in the order of their numbers: an award's `dc` is an index into this.
    pub dcs: Vec<DcBody>,
}

/// The ledger as it is applied here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LedgerBody {
    /// The last entry.
    pub index: u64,
    /// The data centre that leads it; `null` while there is none, or none that is known here.
    pub leader: Option<String>,
}

/// The state of one data centre.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ClusterDcBody")]
pub struct DcBody {
    pub name: String,
    /// `null` for a data centre without a known location.
    pub place: Option<Place>,
    /// Whether it votes in the ledger.
    pub voter: bool,
    /// Whether the data centre that answers is connected to it, or is it. A connection on which nothing comes ends after some
    /// seconds, so a cut shows first in `heard_ms`.
    pub reachable: bool,
    /// From the data centre that answers and back, smoothed, in milliseconds; `null` for itself and where it is not connected.
    pub round_trip_ms: Option<f64>,
    /// How long ago something new of its counting (of any counter) came here, in milliseconds; grows where nothing is counted.
    /// `null` for the data centre that answers, and before anything came.
    pub heard_ms: Option<f64>,
    /// Its part of the counter, as far as it is known here. All parts add up to `total + pending`, unless the ledger knows of
    /// more than has come here.
    pub counted: Signed,
    /// Rights outstanding in it as the ledger knows them: weight that it may count without asking. `null` without a milestone.
    pub rights: Option<u64>,
    pub mode: Mode,
    /// Weight that is durable there and surely has no place yet: what has come here of its part, less what the ledger has placed,
    /// less what its rights may have. `null` without a milestone, and while its baseline is not known.
    pub pending: Option<u64>,
}

/// How a data centre's increments are placed at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// No milestone concerns it.
    Free,
    /// Placed at once, under rights.
    Rights,
    /// Placed by the ledger.
    Sequenced,
    /// Cut off from the others.
    Cut,
}

impl Mode {
    /// The mode of a data centre that is connected or not, with these rights; `None` without a milestone.
    pub fn of(is_connected: bool, rights: Option<u64>) -> Mode {
        match (is_connected, rights) {
            (false, _) => Mode::Cut,
            (true, None) => Mode::Free,
            (true, Some(0)) => Mode::Sequenced,
            (true, Some(_)) => Mode::Rights,
        }
    }

    /// For people.
    pub fn text(self) -> &'static str {
        match self {
            Mode::Free => "free",
            Mode::Rights => "rights",
            Mode::Sequenced => "sequenced",
            Mode::Cut => "cut off",
        }
    }
}
