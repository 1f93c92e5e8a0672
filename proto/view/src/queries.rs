//! Questions of clients about many counters, their series and the graph: client ↔ aggregator, each on a channel of its own of
//! kind [`tidemark_wire::wire::channel::QUERIES`] (decision 0052). [`crate::query`] defines their meaning. Zones are sent by
//! name, and the answering aggregator looks them up.
//!
//! A question and its answer may be longer than a message, and go in frames ([`tidemark_wire::framed`]).

mod answer;

pub use answer::{
    AsOfTold, BASIS_STREAMS_MAX, Interval, PlanTold, QueryAnswer, QueryRefusal, RelativesTold, SeriesTold, StepTold,
    TopTold,
};

use crate::query::{Among, Asked, KeyRange, Of, Relation, SeriesQuery, WindowQuery, keys_valid};
use serde::{Deserialize, Serialize};
use tidemark_types::ids::CounterName;
use tidemark_types::limits::{
    NAME_BYTES_MAX, QUERY_COUNTERS_MAX, QUERY_WINDOWS_MAX, RANGE_MAX, RANKS_MAX, ZONE_NAME_BYTES_MAX,
};
use tidemark_types::series::calendar::{Anchor, Period, UnknownZone, Zone};
use tidemark_wire::framed::{Framed, at_most, few};
use tidemark_wire::wire::{Message, Tail, WireError};

/// Bytes of a question: 10,000 of the longest names. More: refused when they come.
pub const QUESTION_BYTES_MAX: usize = 4 << 20;
/// Bytes of an answer: 10,000 counters with all that is told of 8 windows of each, or 200,000 values. More: refused when they come.
pub const ANSWER_BYTES_MAX: usize = 16 << 20;

const HEAD_BYTES: usize = 1_024;
const WINDOW_BYTES_MAX: usize = 16 + ZONE_NAME_BYTES_MAX + 1 + 10 + 1;
const _: () = assert!(
    HEAD_BYTES + QUERY_COUNTERS_MAX * NAME_BYTES_MAX + QUERY_WINDOWS_MAX * WINDOW_BYTES_MAX <= QUESTION_BYTES_MAX
);

/// A client's question, and the counts that it is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueryRequest {
    pub of: Of,
    pub query: Query,
}

/// The questions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Query {
    /// Values and windows of counters, at one instant. Answered by [`QueryAnswer::AsOf`].
    At {
        #[serde(deserialize_with = "few::<QUERY_COUNTERS_MAX, _, _, _>")]
        counters: Vec<CounterName>,
        #[serde(deserialize_with = "few::<QUERY_WINDOWS_MAX, _, _, _>")]
        windows: Vec<AskedWindow>,
    },
    /// One counter in steps. Answered by [`QueryAnswer::Series`].
    Series { counter: CounterName, steps: AskedSteps },
    /// The next counters of a range of keys, at most `limit` (and of totals as many again). Answered like the question about
    /// each.
    Range { keys: KeyRange, limit: u32, each: Each },
    /// The `places` that counted most in a window. Answered by [`QueryAnswer::Top`].
    Top { among: Among, places: u32, window: AskedWindow },
    /// Counters to which a counter has edges, or from which it has some. Answered by [`QueryAnswer::Relatives`].
    Relatives { counter: CounterName, which: Relation, behind: Option<CounterName>, limit: u32 },
}

/// The question about each counter of a range.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Each {
    /// Its value, and these windows.
    Windows(#[serde(deserialize_with = "few::<QUERY_WINDOWS_MAX, _, _, _>")] Vec<AskedWindow>),
    Steps(AskedSteps),
}

/// A [`WindowQuery`] with the name of its zone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskedWindow {
    pub asked: Asked,
    pub zone: String,
    pub error_s: Option<u64>,
    pub compare: bool,
}

/// A [`SeriesQuery`] with the name of its zone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskedSteps {
    pub asked: Asked,
    pub every: Period,
    pub anchor: Anchor,
    pub zone: String,
    pub error_s: Option<u64>,
}

impl AskedWindow {
    /// The query, with the zone that the answering aggregator knows under the name.
    pub fn query(&self) -> Result<WindowQuery, UnknownZone> {
        let AskedWindow { asked, zone, error_s, compare } = self;
        Ok(WindowQuery { asked: *asked, zone: Zone::named(zone)?, error_s: *error_s, compare: *compare })
    }
}

impl AskedSteps {
    /// The query, with the zone that the answering aggregator knows under the name.
    pub fn query(&self) -> Result<SeriesQuery, UnknownZone> {
        let AskedSteps { asked, every, anchor, zone, error_s } = self;
        let zone = Zone::named(zone)?;
        Ok(SeriesQuery { asked: *asked, every: *every, anchor: *anchor, zone, error_s: *error_s })
    }
}

fn zone_valid(zone: &str) -> Result<(), WireError> {
    at_most("bytes of a time zone's name", zone.len(), ZONE_NAME_BYTES_MAX)
}

fn windows_valid(windows: &[AskedWindow]) -> Result<(), WireError> {
    at_most("windows of each counter", windows.len(), QUERY_WINDOWS_MAX)?;
    windows.iter().try_for_each(|window| zone_valid(&window.zone))
}

fn page_valid(limit: u32) -> Result<(), WireError> {
    match limit {
        0 => Err(WireError::Malformed(format!("0 counters of a page: 1 to {RANGE_MAX} allowed"))),
        limit => at_most("counters of a page", limit as usize, RANGE_MAX),
    }
}

impl Message for QueryRequest {
    const TAIL: Tail = Tail::Skipped;

    fn validate(&self) -> Result<(), WireError> {
        match &self.query {
            Query::At { counters, windows } => {
                at_most("counters of a question", counters.len(), QUERY_COUNTERS_MAX)?;
                counters.iter().try_for_each(CounterName::validate)?;
                windows_valid(windows)
            }
            Query::Series { counter, steps } => {
                counter.validate()?;
                zone_valid(&steps.zone)
            }
            Query::Range { keys, limit, each } => {
                keys_valid(keys)?;
                page_valid(*limit)?;
                match each {
                    Each::Windows(windows) => windows_valid(windows),
                    Each::Steps(steps) => zone_valid(&steps.zone),
                }
            }
            Query::Top { among, places, window } => {
                at_most("places of a ranking", *places as usize, RANKS_MAX)?;
                zone_valid(&window.zone)?;
                match among {
                    Among::Keys(keys) => keys_valid(keys),
                    Among::FlowingTo { counter, behind } => names_valid([counter].into_iter().chain(behind)),
                }
            }
            Query::Relatives { counter, behind, limit, .. } => {
                names_valid([counter].into_iter().chain(behind))?;
                page_valid(*limit)
            }
        }
    }
}

fn names_valid<'a>(mut names: impl Iterator<Item = &'a CounterName>) -> Result<(), WireError> {
    Ok(names.try_for_each(CounterName::validate)?)
}

impl Framed for QueryRequest {
    const BYTES_MAX: usize = QUESTION_BYTES_MAX;
}

impl Framed for QueryAnswer {
    const BYTES_MAX: usize = ANSWER_BYTES_MAX;
}
