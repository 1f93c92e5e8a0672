//! `GET /v1/export?prefix=NAMESPACE/PREFIX`: all that is shown of counters, to be written down or counted elsewhere.

use super::asked::key_range;
use super::{RANGE_DEFAULT, RANGE_MAX};
use crate::api::Of;
use crate::http::operation::Ask;
use crate::http::params::{number, value};
use crate::http::typed::Json;
use crate::http::{AggregatorProcess, Failure};
use crate::names::{counter_text, key_text};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidemark_proto::query::{Exported, ExportedHalf};

/// Its answer: a page of counters in the order of their keys, read at one instant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExportBody {
    /// When they were read, milliseconds since 1970.
    pub at_unix_ms: u64,
    pub counters: Vec<ExportedBody>,
    /// The last key of this page, to be given as `after`; left out where there is nothing more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A counter's own counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExportedBody {
    /// `NAMESPACE/KEY`.
    pub counter: String,
    pub up: HalfBody,
    /// Of one that never went down, nothing.
    #[serde(default, skip_serializing_if = "HalfBody::is_nothing")]
    pub down: HalfBody,
}

/// The upward or the downward half.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HalfBody {
    /// Seconds since 1970, and what is to be counted then so that all buckets hold what they hold now.
    pub parts: Vec<(u64, u64)>,
    /// Weight that is in no bucket.
    pub rest: u64,
}

impl HalfBody {
    fn is_nothing(&self) -> bool {
        self.parts.is_empty() && self.rest == 0
    }
}

impl From<ExportedHalf> for HalfBody {
    fn from(half: ExportedHalf) -> HalfBody {
        let parts = half.parts.into_iter().map(|(at, value)| (at.s(), value)).collect();
        HalfBody { parts, rest: half.rest }
    }
}

impl From<Exported> for ExportedBody {
    fn from(read: Exported) -> ExportedBody {
        ExportedBody { counter: counter_text(&read.counter), up: read.up.into(), down: read.down.into() }
    }
}

pub(in crate::http) async fn export<B: AggregatorProcess>(
    Ask { shared, params, .. }: Ask<B>,
) -> Result<Json<ExportBody>, Failure> {
    let keys = key_range(&params)?;
    let limit = value(&params, "limit").map(|text| number("limit", text, RANGE_MAX as u64)).transpose()?;
    let page = shared.backend.scan(Of::Direct, &keys, limit.map_or(RANGE_DEFAULT, |limit| limit as usize)).await?;
    let (at, read) = shared.backend.export(&page.counters).await?;
    let next = match read.last().filter(|_| read.len() < page.counters.len()) {
        Some(last) => Some(key_text(last.counter.key())),
        None => page.next.as_deref().map(key_text),
    };
    let counters = read.into_iter().map(ExportedBody::from).collect();
    Ok(Json(ExportBody { at_unix_ms: at.0, counters, next }))
}
