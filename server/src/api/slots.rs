//! Shards of a view: their ranges of counters, and the aggregators that hold them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `GET /v1/slots`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SlotsBody {
    /// By the data centre's clock, milliseconds since 1970: of two answers, how fast weight grew.
    pub at_unix_ms: u64,
    /// Ascending by their counters: by namespace, and within a namespace by the bytes of the key. With `shard_by`: by namespace or space,
    /// and within a space by part.
    pub slots: Vec<SlotBody>,
    /// Connected aggregators with other boundaries of shards, or another order of counters, by their layouts: nothing is exchanged with
    /// them.
    pub cut_elsewhere: Vec<String>,
}

/// One range of counters, as the answering aggregator has it; about a shard that it does not hold, it knows only the holders.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SlotBody {
    pub slot: u16,
    /// Its first counter, or any of its first part, as `NAMESPACE/KEY`; `null`: it begins before all.
    pub from: Option<String>,
    /// The first counter, or any of the first part, behind it; `null`: it ends behind all.
    pub before: Option<String>,
    /// With all of which part of a space it begins, where the first counter is of a namespace that is laid so (`shard_by`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_part: Option<PartBody>,
    /// Likewise the first part behind it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before_part: Option<PartBody>,
    /// The aggregators that hold it in this data centre, the one first that tells it abroad.
    pub held_by: Vec<String>,
    /// A move of the shard: the old holder, which drops the shard once the new holder has all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moves: Option<MoveBody>,
    /// Where it was split, or is a part of one that was: what is still to be done here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub splits: Option<SplitsBody>,
    /// Counters in it of which anything was ever counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counters: Option<u64>,
    /// The counts of these counters, up and down, in all data centres, that this aggregator received since its process started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<u64>,
    /// Totals, of counters in any slot, to which counts of this one flow along edges, or once did since the process started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub totals: Option<u64>,
    /// Bytes of memory that its share of those totals takes; each further slot from which counts flow to a total has a share of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub totals_bytes: Option<u64>,
}

/// Counters that lie together: all counters of a space's namespaces with one piece of their keys in common. It is never cut.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PartBody {
    pub space: String,
    /// The piece, as in keys of counters; empty for keys without it.
    pub part: String,
}

/// From which aggregator of the data centre to which other one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MoveBody {
    pub from: String,
    pub to: String,
    /// The reason why it waits, for people. Only the aggregator that it moves to knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
}

/// How far a slot is split, at the aggregator that answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum SplitsBody {
    /// The number of its cells that are in its parts, and the number of all its cells. A counter has some: of each generation, and of each
    /// period of its series.
    Copying { copied: u64, of: u64 },
    /// It is one of the parts, and not all of both is on disk yet.
    Writing,
    /// Other holders of this data centre are at it.
    Others,
}

/// `POST /v1/slots/move`: a slot is to be held by one aggregator in the place of another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MoveSlotBody {
    pub slot: u16,
    /// One of its two holders, as `DC`, or `DC/second`, `DC/third` and so on.
    pub from: String,
    /// Another one of the same data centre.
    pub to: String,
}

/// `POST /v1/slots/stay`: a slot that is being moved stays where it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StaySlotBody {
    pub slot: u16,
}

/// `POST /v1/slots/split`: a slot is to be two, in all data centres.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SplitSlotBody {
    pub slot: u16,
    /// The first counter of the second part, as `NAMESPACE/KEY`; with `shard_by` any counter of its first part. Left out: the middle
    /// counter of those that this aggregator has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schemas::counter_or_null")]
    pub at: Option<String>,
}

/// A slot that the ledger has split.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SplitBody {
    /// The one that was split: its number is given to none again.
    pub slot: u16,
    /// The first counter of the second of the two, as `NAMESPACE/KEY`.
    pub at: String,
    /// The numbers of the two that it becomes, in the order of counters.
    pub parts: [u16; 2],
    /// The aggregators of this data centre that hold them, as they hold it.
    pub held_by: Vec<String>,
}
