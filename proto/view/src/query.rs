//! Questions about series and their answers: windows, series of steps, rankings, ranges of keys, many counters at one instant.
//!
//! A question is planned once against the horizon of a namespace and a `now`, and the plan is read for all requested counters.
//! Counts come from a [`Source`]: a view with the ledger applied beside it ([`Shown`]), or the data that several processes have
//! sent about their shards ([`Gathered`]). An answer holds all that the source has heard of. `value` is exact for the interval
//! that the plan covers. The truth about the requested interval lies between `at_least` and `at_most`.
//!
//! An answer never shows more of a counter than its reading does, which stays below a milestone that is not awarded. Halves of
//! windows are cut to those of the reading. So are the steps of a series together, the latest first. (Within one generation
//! nothing can be counted in a window that is not in the total.)

mod asked;
mod asks;
mod basis;
mod export;
mod gathered;
mod inquiry;
mod keys;
mod ranking;
mod read;
mod top;
mod wanted;

pub use asked::{Asked, SeriesPlan, SeriesQuery, Step, WindowPlan, WindowQuery};
pub(crate) use asks::keys_valid;
pub use asks::{SHARD_SCAN_MAX, ShardAnswer, ShardAsk, readings};
pub use basis::Basis;
pub use export::{Exported, ExportedHalf, export};
pub use gathered::{
    COUNTS_BUCKETS_MAX, Counts, GatherError, Gathered, Gathering, SHARD_ASK_COUNTERS_MAX, gather, gather_some,
};
pub use inquiry::{CountsAnswer, CountsAsk, Cut, Inquiry};
pub use keys::{KeyOrder, KeyRange, Page, scan, scan_across};
pub use ranking::{Among, Places, RANK_PAGE, Ranking, TopAsOf};
pub use read::{
    AsOf, Buckets, Counted, CounterAsOf, CounterSeries, Of, SeriesRead, Shown, ShownTotals, Source, Windowed, read_at,
    read_series,
};
pub use tidemark_types::graph::Relation;
pub use top::{Ranked, Top};
pub use wanted::{WANTED_RUNS_MAX, Wanted};

use serde::{Deserialize, Serialize};
use tidemark_types::limits::{QUERY_COUNTERS_MAX, QUERY_WINDOWS_MAX, RANKED_MAX, RANKS_MAX, SERIES_VALUES_MAX};
use tidemark_types::series::calendar::{CalendarError, Period};
use tidemark_types::series::{ErrorNotAttainable, Granularity, NoCover, TimeOutOfRange, WindowEmpty};

/// Why a question is not answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum QueryError {
    #[error("the namespace {0:?} keeps no series")]
    NoSeries(String),
    #[error(transparent)]
    Calendar(#[from] CalendarError),
    #[error(transparent)]
    Time(#[from] TimeOutOfRange),
    #[error(transparent)]
    Empty(#[from] WindowEmpty),
    #[error("the window begins at {from_s} s, far ahead of now, {now_s} s")]
    Ahead { from_s: u64, now_s: u64 },
    #[error(transparent)]
    NotKept(#[from] NoCover),
    #[error(transparent)]
    Error(#[from] ErrorNotAttainable),
    #[error("steps of {every}: the finest buckets that are kept are of {finest}")]
    FinerThanKept { every: Period, finest: Granularity },
    #[error("{0} counters in one read: at most {QUERY_COUNTERS_MAX} allowed")]
    TooManyCounters(usize),
    #[error("{counters} counters in {steps} steps: at most {SERIES_VALUES_MAX} values allowed in one answer")]
    TooManyValues { counters: usize, steps: usize },
    #[error("{0} windows of each counter: at most {QUERY_WINDOWS_MAX} allowed")]
    TooManyWindows(usize),
    #[error("more than {RANKED_MAX} counters to rank: use a longer prefix")]
    TooManyToRank,
    #[error("{0} places of a ranking: 1 to {RANKS_MAX} allowed")]
    Ranks(usize),
}
