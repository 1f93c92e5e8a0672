//! The rows of the sources, and what they add up to by a plain loop.

use crate::rng::Rng;
use tidemark_streams_core::blob::PartitionId;
use tidemark_streams_core::erasure::{ErasureKey, Erasures};
use tidemark_streams_core::event::{EventTypes, EventTypesError, RawEvent};
use tidemark_streams_core::layout::{BucketsFrom, LargeTenant, Layout, PeriodUnit};
use tidemark_streams_core::manifest::{Command, Erase, SetTypes, TypesSet};
use tidemark_streams_core::owner::Record;
use tidemark_streams_core::retention::Retention;
use tidemark_streams_core::rollup::{RollupRow, Rollups};
use tidemark_streams_core::schema::TypeChange;
use tidemark_streams_core::scope::TenantHash;
use tidemark_streams_core::source::SourceId;
use tidemark_streams_core::time::{DAY_S, Day, HOUR_S, Hour, Now};
use tidemark_streams_core::values::Values;

/// When the run begins, and what events are near.
pub const START_S: u64 = 1_700_000_000;
const TYPES: [&str; 2] = ["impression", "click"];
/// The names of types in the course of a run.
const NAMES: [&str; 4] = ["impression", "click", "view", "impression-view"];
/// The tenant that is marked as a test in some runs.
pub const TEST_TENANT: &str = "tenant-2";
/// The dimension that types have in some runs.
const DIMENSION: &str = "country";
/// A flush keeps so many values of a tenant and type.
pub const VALUES_MAX: usize = 2;
/// The values of rows, as rows have them. Further values than [`VALUES_MAX`] become [`OTHER_VALUE`].
const VALUES: [&str; 4] = ["\u{1}de", "\u{1}in", "\u{1}np", "\u{1}us"];
pub const OTHER_VALUE: &str = "\u{1}other";
/// A logged source has all its rows after this time.
const LOG_MS: u64 = 40_000;
/// A log takes its rows in batches of this size.
const LOG_BATCH: u64 = 20;
/// A row of this type cannot be read.
const BROKEN: &str = "broken";

#[derive(Clone, Debug)]
pub struct Row {
    tenant: String,
    listing: String,
    at_s: i64,
    event_type: &'static str,
    count: i64,
    /// What it counts by a wrong column, until its day is counted again.
    wrong: Option<i64>,
    /// The text of its value of [`DIMENSION`].
    values: &'static str,
    /// Its number in the intake's log; `None`: it is of a file, or was a dead letter.
    log_row: Option<u64>,
}

#[derive(Clone, Debug)]
pub struct Source {
    pub id: SourceId,
    /// Whether it is the intake's log, which grows. Files are whole.
    pub is_logged: bool,
    pub rows: Vec<Row>,
    /// The rows as which the dead letters are replayed.
    pub fixed: Vec<Row>,
}

pub fn types() -> Result<EventTypes, EventTypesError> {
    EventTypes::new(&TYPES)
}

impl Source {
    pub fn draw(number: u8, has_values: bool, is_logged: bool, rng: &mut Rng) -> Source {
        let log_row = |row| is_logged.then_some(row);
        let rows = (0..rng.between(5, 120)).map(|row| Row { log_row: log_row(row), ..Row::draw(has_values, rng) });
        let rows: Vec<Row> = rows.collect();
        let fixed =
            |row: &Row| Row { event_type: TYPES[0], count: 5, wrong: None, values: "", log_row: None, ..row.clone() };
        let fixed = rows.iter().map(fixed).collect();
        Source { id: SourceId([number; 32]), is_logged, rows, fixed }
    }

    /// A third of its rows count by a wrong column.
    pub fn read_wrongly(&mut self, rng: &mut Rng) {
        for row in self.rows.iter_mut().filter(|row| row.count > 0) {
            row.wrong = rng.percent(33).then(|| row.count + 1 + rng.below(4) as i64);
        }
    }

    /// How many rows it has at a time of the run.
    pub fn len_at(&self, now: Now) -> usize {
        let len = self.rows.len() as u64;
        let elapsed_ms = now.0.saturating_sub(START_S * 1_000);
        let logged = len * elapsed_ms / LOG_MS / LOG_BATCH * LOG_BATCH;
        let is_whole = !self.is_logged || elapsed_ms >= LOG_MS;
        if is_whole { self.rows.len() } else { logged.min(len) as usize }
    }

    /// The first `below` rows that are not bad, with their numbers.
    pub fn good(&self, below: u64) -> impl Iterator<Item = (u64, &Row)> {
        (0..below).zip(&self.rows).filter(|(_, row)| !row.is_bad())
    }

    /// The numbers of the refused rows among the first `below`.
    pub fn refused(&self, below: u64) -> Vec<u64> {
        let numbered = (0..below).zip(&self.rows);
        numbered.filter(|(_, row)| row.is_bad()).map(|(number, _)| number).collect()
    }
}

impl Row {
    /// Most are near now, some are late by days, some are bad.
    fn draw(has_values: bool, rng: &mut Rng) -> Row {
        let late_s = if rng.percent(20) { rng.below(4 * 86_400) } else { rng.below(7_200) };
        Row {
            tenant: format!("tenant-{}", rng.below(3)),
            listing: format!("listing-{}", rng.below(4)),
            at_s: (START_S - late_s) as i64,
            event_type: if rng.percent(4) { BROKEN } else { TYPES[rng.below(2) as usize] },
            count: if rng.percent(4) { -1 } else { rng.below(4) as i64 },
            wrong: None,
            values: if has_values && rng.percent(60) { VALUES[rng.below(4) as usize] } else { "" },
            log_row: None,
        }
    }

    pub fn tenant(&self) -> &str {
        &self.tenant
    }

    pub fn hour(&self) -> Hour {
        Hour((self.at_s as u64 / 3_600) as u32)
    }

    pub fn record(&self) -> Record<'_> {
        if self.event_type == BROKEN {
            return Record::Broken { reason: "cannot be read", text: BROKEN };
        }
        let Row { tenant, listing, at_s, event_type, values, .. } = self;
        let values = Values::parse(values).unwrap_or_default();
        Record::Event(RawEvent { tenant, listing, at_s: *at_s, event_type, count: self.counted(), values })
    }

    fn counted(&self) -> i64 {
        self.wrong.unwrap_or(self.count)
    }

    pub fn is_wrong(&self) -> bool {
        self.wrong.is_some()
    }

    /// The row as its source says it.
    pub fn corrected(&self) -> Row {
        Row { wrong: None, ..self.clone() }
    }

    /// Whether a dead letter of it says what it is.
    pub fn has_names(&self) -> bool {
        self.event_type != BROKEN
    }

    pub fn is_erased(&self, erasures: &Erasures) -> bool {
        erasures.erases(TenantHash::of(&self.tenant), &self.listing, self.hour())
    }

    fn is_bad(&self) -> bool {
        self.count < 0 || self.event_type == BROKEN
    }

    /// The name of its type in the source.
    pub fn event_type(&self) -> &str {
        self.event_type
    }

    /// The text of its value; empty without a value.
    pub fn values(&self) -> &'static str {
        self.values
    }

    /// Its number in the intake's log.
    pub fn log_row(&self) -> Option<u64> {
        self.log_row
    }

    pub fn counts_nothing(&self) -> bool {
        self.count == 0
    }

    /// Its count under a name and a value.
    pub fn rollup<'a>(&'a self, event_type: &'a str, values: &'a str) -> RollupRow<'a> {
        let at_s = self.at_s as u64;
        let mut quarters = [0; 4];
        quarters[(at_s % 3_600 / 900) as usize] = self.counted() as u32;
        let tenant = &self.tenant;
        let listing = &self.listing;
        let values = Values::parse(values).unwrap_or_default();
        RollupRow { tenant, values, listing, hour: self.hour(), event_type, quarters }
    }
}

/// An erasure of a tenant, or of one listing of it, in all hours that rows have.
pub fn erase(partition: PartitionId, now: Now, rng: &mut Rng) -> Erase {
    let listing = format!("listing-{}", rng.below(4));
    let key = ErasureKey::of(&format!("tenant-{}", rng.below(3)), rng.percent(40).then_some(&listing));
    Erase { partition, key, before: Hour((START_S / HOUR_S) as u32 + 1), asked_at_ms: now.0 }
}

/// Lists the types of a run, and adds a dimension to each of them.
pub fn dimension_commands() -> Vec<Command> {
    let names = TYPES.map(str::to_owned);
    let list = TypesSet::List(names.to_vec());
    let add = |name| TypesSet::Change(add_dimension(name));
    let sets = [list].into_iter().chain(names.map(add));
    sets.map(|set| Command::Types(SetTypes { set, asked_at_ms: 0, log_row: 0 })).collect()
}

fn add_dimension(name: String) -> TypeChange {
    TypeChange::AddDimension { name, dimension: DIMENSION.to_owned(), values_max: VALUES_MAX as u32 }
}

/// Renames, deletes or uses a name again, or adds the dimension. Some of it is refused.
pub fn type_change(rng: &mut Rng) -> TypeChange {
    let mut name = || NAMES[rng.below(NAMES.len() as u64) as usize].to_owned();
    let from = name();
    let to = name();
    match rng.below(9) {
        0..=3 => TypeChange::Rename { from, to, merges: rng.percent(20) },
        4 | 5 => TypeChange::Delete { name: from },
        6 => add_dimension(from),
        _ => TypeChange::Add { name: from },
    }
}

/// A name is deleted, and used again at once.
pub fn reuse(rng: &mut Rng) -> [TypeChange; 2] {
    let name = TYPES[rng.below(TYPES.len() as u64) as usize].to_owned();
    [TypeChange::Delete { name: name.clone() }, TypeChange::Add { name }]
}

/// Nothing expires in most runs.
pub fn retention(rng: &mut Rng) -> Retention {
    let mut days = || if rng.percent(60) { rng.between(3, 4) as u32 } else { 0 };
    let drawn = Retention { late_days: days(), kept_days: days() };
    if rng.percent(50) { drawn } else { Retention::default() }
}

/// A layout for the days that rows have. The number of buckets changes in the middle of them.
pub fn layout(rng: &mut Rng) -> Layout {
    let today = (START_S / DAY_S) as u32;
    let mut buckets = vec![BucketsFrom { from: Day(0), buckets: rng.between(1, 3) as u32 }];
    if rng.percent(60) {
        buckets.push(BucketsFrom { from: Day(today), buckets: rng.between(1, 4) as u32 });
    }
    let period = if rng.percent(70) { PeriodUnit::Week } else { PeriodUnit::Month };
    Layout { period, virtual_partitions: rng.between(1, 3) as u32, buckets, large: Vec::new() }
}

/// The same layout with one more large tenant; nothing where all of them are large.
pub fn with_large_tenant(layout: &Layout, rng: &mut Rng) -> Option<Layout> {
    let from = Day((START_S / DAY_S - rng.below(5)) as u32);
    let tenants = (0..3).map(|number| TenantHash::of(&format!("tenant-{number}")));
    let tenant = tenants.into_iter().find(|tenant| layout.split(*tenant).is_none())?;
    let mut layout = layout.clone();
    layout.large.push(LargeTenant { tenant, from, parts: rng.between(1, 3) as u32 });
    layout.large.sort_by_key(|large| large.tenant);
    Some(layout)
}

/// Rows added up.
pub fn combined<'a>(rows: impl Iterator<Item = RollupRow<'a>>) -> Rollups {
    let mut all = Rollups::new();
    for row in rows {
        // Drawn rows are within their limits; a row outside of them would be missing, which the checkers see.
        let _ = all.push(row);
    }
    all.combine();
    all
}
