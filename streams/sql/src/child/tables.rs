//! The tenant's rows as tables: all rows, rows of one event type, and quarters by the clock of a zone.
//!
//! The rows are once in memory. Each table makes its batches from them when a query reads it. No table has statistics.

use super::provider::{NamedTable, TableRows};
use super::refused::Refused;
use crate::frames::{ListingRun, Param, Refusal, Rows, ValueColumn};
use datafusion::arrow::array::{
    ArrayRef, AsArray, Date32Array, Int64Array, StringViewArray, StringViewBuilder, TimestampMicrosecondArray,
    UInt8Array, UInt32Array,
};
use datafusion::arrow::compute::take;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{ScalarValue, plan_err};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::logical_expr::Expr;
use datafusion::physical_plan::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tidemark_proto::series::UnixTime;
use tidemark_proto::series::calendar::{CalendarUnit, Zone};

const UTC: &str = "UTC";
const HOUR_US: i64 = 3_600_000_000;
const QUARTER_US: i64 = HOUR_US / 4;
const SECOND_US: i64 = 1_000_000;
const DAY_S: i64 = 86_400;
/// Memory of a row: views of its texts, its type, its hour, its quarters and their sum.
const ROW_BYTES: usize = 16 + 1 + 8 + 16 + 8;
/// Columns of each table before those of dimensions.
const ALL_COLUMNS: usize = 4;
const TYPE_COLUMNS: usize = 3;
const LOCAL_COLUMNS: usize = 7;
/// Memory of a row's view of a value.
const VALUE_BYTES: usize = 16;

/// The rows of a query.
#[derive(Debug)]
pub struct Tables {
    filling: Mutex<Filling>,
    chunks: OnceLock<Vec<Chunk>>,
    are_named: Arc<AtomicBool>,
    memory_bytes: u64,
}

#[derive(Debug)]
struct Filling {
    chunks: Vec<Chunk>,
    reservation: MemoryReservation,
}

/// Rows that came in one message.
#[derive(Debug)]
struct Chunk {
    listings: StringViewArray,
    types: StringViewArray,
    type_of: UInt8Array,
    hours: TimestampMicrosecondArray,
    quarters: Vec<[u32; 4]>,
    n: Int64Array,
    /// Of the dimensions of the query.
    values: Vec<StringViewArray>,
}

/// Which rows a table has.
#[derive(Clone, Debug)]
pub enum TableKind {
    All,
    Type(String),
    /// A row for each quarter of an hour with a count, with the hour and the day of a zone's clock.
    Local(Zone),
}

/// The rows that a table reads, and some of its columns.
#[derive(Clone)]
struct Partition {
    tables: Arc<Tables>,
    kind: TableKind,
    /// Of the columns below.
    schema: SchemaRef,
    columns: Vec<usize>,
}

/// `impressions_local(zone)`.
#[derive(Debug)]
pub struct LocalFunction {
    pub tables: Arc<Tables>,
    /// The zone without an argument.
    pub zone: Zone,
    pub params: Vec<Param>,
    pub dimensions: Vec<String>,
}

impl Tables {
    /// Tables whose rows take memory of a pool. `memory_bytes` is what a message says.
    pub fn new(pool: &Arc<dyn MemoryPool>, memory_bytes: u64) -> Tables {
        let reservation = MemoryConsumer::new("rows").register(pool);
        Tables {
            filling: Mutex::new(Filling { chunks: Vec::new(), reservation }),
            chunks: OnceLock::new(),
            are_named: Arc::default(),
            memory_bytes,
        }
    }

    /// Adds rows.
    ///
    /// # Errors
    /// They need more memory than the query may have.
    pub fn add(&self, rows: &Rows) -> Result<(), Refused> {
        let mut filling = self.filling.lock().unwrap_or_else(PoisonError::into_inner);
        let text: usize = rows.listings.iter().map(|run| run.listing.len()).sum();
        let of_values = |column: &ValueColumn| column.texts.iter().map(String::len).sum::<usize>();
        let values: usize = rows.values.iter().map(|column| of_values(column) + rows.len() * VALUE_BYTES).sum();
        let bytes = rows.len() * ROW_BYTES + text + values;
        filling.reservation.try_grow(bytes).map_err(|_| Refused::memory(self.memory_bytes))?;
        filling.chunks.push(Chunk::of(rows)?);
        Ok(())
    }

    /// No rows follow.
    pub fn close(&self) {
        let mut filling = self.filling.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = self.chunks.set(std::mem::take(&mut filling.chunks));
    }

    /// Whether a query names one of them.
    pub fn are_named(&self) -> bool {
        self.are_named.load(Ordering::Relaxed)
    }

    fn chunk(&self, at: usize) -> Option<&Chunk> {
        self.chunks.get()?.get(at)
    }
}

impl Chunk {
    /// Rows that were checked.
    fn of(rows: &Rows) -> Result<Chunk, Refused> {
        let invalid = |_| Refused::new(Refusal::Internal, "rows with texts that are too long");
        let invalid_values = |_| Refused::new(Refusal::Internal, "values that are too long");
        let sum = |quarters: &[u32; 4]| quarters.iter().map(|&count| i64::from(count)).sum();
        Ok(Chunk {
            listings: of_runs(&rows.listings).map_err(invalid)?,
            types: StringViewArray::from_iter_values(&rows.types),
            type_of: UInt8Array::from(rows.type_of.to_vec()),
            hours: TimestampMicrosecondArray::from_iter_values(
                rows.hours.iter().map(|&hour| i64::from(hour) * HOUR_US),
            ),
            n: Int64Array::from_iter_values(rows.quarters.iter().map(sum)),
            quarters: rows.quarters.clone(),
            values: rows.values.iter().map(of_dimension).collect::<Result<_>>().map_err(invalid_values)?,
        })
    }

    fn types(&self) -> Result<ArrayRef> {
        Ok(take(&self.types, &self.type_of, None)?)
    }

    fn hours(&self) -> ArrayRef {
        Arc::new(self.hours.clone().with_timezone(UTC))
    }

    /// A column of `impressions`.
    fn all(&self, column: usize) -> Result<ArrayRef> {
        Ok(match column {
            0 => Arc::new(self.listings.clone()),
            1 => self.types()?,
            2 => self.hours(),
            3 => Arc::new(self.n.clone()),
            _ => self.value(column - ALL_COLUMNS)?,
        })
    }

    /// The rows of an event type.
    fn rows_of_type(&self, name: &str) -> UInt32Array {
        let wanted = self.types.iter().position(|known| known == Some(name));
        let rows = self.type_of.values().iter().zip(0_u32..);
        UInt32Array::from_iter_values(rows.filter(|(at, _)| Some(usize::from(**at)) == wanted).map(|(_, row)| row))
    }

    /// A column of the table of an event type.
    fn of_type(&self, rows: &UInt32Array, column: usize) -> Result<ArrayRef> {
        Ok(match column {
            0 => take(&self.listings, rows, None)?,
            1 => take(&self.hours(), rows, None)?,
            2 => take(&self.n, rows, None)?,
            _ => take(&self.value(column - TYPE_COLUMNS)?, rows, None)?,
        })
    }

    fn local_rows(&self, zone: &Zone) -> Result<LocalRows> {
        let mut columns = LocalColumns::default();
        let mut known = BTreeMap::new();
        for ((row, quarters), hour) in (0_u32..).zip(&self.quarters).zip(self.hours.values()) {
            for (at, &count) in (0_i64..).zip(quarters).filter(|(_, count)| **count > 0) {
                let quarter = hour + at * QUARTER_US;
                let local = match known.get(&quarter) {
                    Some(local) => *local,
                    None => *known.entry(quarter).or_insert(LocalTime::of(zone, quarter)?),
                };
                columns.push(row, quarter, local, count);
            }
        }
        let LocalColumns { rows, quarters, hours, local_hours, days, n } = columns;
        let time = |times: Vec<i64>| TimestampMicrosecondArray::from(times);
        Ok(LocalRows {
            rows: UInt32Array::from(rows),
            quarters: Arc::new(time(quarters).with_timezone(UTC)),
            hours: Arc::new(time(hours).with_timezone(UTC)),
            local_hours: Arc::new(time(local_hours)),
            days: Arc::new(Date32Array::from(days)),
            n: Arc::new(Int64Array::from(n)),
        })
    }

    /// A column of `impressions_local`.
    fn local(&self, rows: &LocalRows, column: usize) -> Result<ArrayRef> {
        Ok(match column {
            0 => take(&self.listings, &rows.rows, None)?,
            1 => take(&self.types()?, &rows.rows, None)?,
            2 => Arc::clone(&rows.quarters),
            3 => Arc::clone(&rows.hours),
            4 => Arc::clone(&rows.local_hours),
            5 => Arc::clone(&rows.days),
            6 => Arc::clone(&rows.n),
            _ => take(&self.value(column - LOCAL_COLUMNS)?, &rows.rows, None)?,
        })
    }

    /// The column of a dimension, by its number.
    fn value(&self, dimension: usize) -> Result<ArrayRef> {
        let missing = || DataFusionError::Internal("rows without a dimension".to_owned());
        Ok(Arc::new(self.values.get(dimension).ok_or_else(missing)?.clone()))
    }
}

/// Rows of `impressions_local`: the row of each, and the columns that other tables do not have.
struct LocalRows {
    rows: UInt32Array,
    quarters: ArrayRef,
    hours: ArrayRef,
    local_hours: ArrayRef,
    days: ArrayRef,
    n: ArrayRef,
}

/// The listing of each row. The texts are once in memory, and the view of a text is made once for its rows.
fn of_runs(runs: &[ListingRun]) -> Result<StringViewArray, ArrowError> {
    let mut once = StringViewBuilder::with_capacity(runs.len());
    // One block has the texts of all rows, so that a batch of them has one buffer.
    let text: Vec<u8> = runs.iter().flat_map(|run| run.listing.bytes()).collect();
    let block = once.append_block(text.into());
    let mut start = 0;
    for run in runs {
        let bytes = run.listing.len() as u32;
        once.try_append_view(block, start, bytes)?;
        start += bytes;
    }
    let run_of = (0_u32..).zip(runs).flat_map(|(at, run)| std::iter::repeat_n(at, run.rows as usize));
    taken(&once.finish(), &UInt32Array::from_iter_values(run_of))
}

/// Texts by their places among others. Their bytes are once in memory.
fn taken(texts: &StringViewArray, places: &UInt32Array) -> Result<StringViewArray, ArrowError> {
    Ok(take(texts, places, None)?.as_string_view().clone())
}

/// The values of a dimension. The texts are once in memory.
fn of_dimension(column: &ValueColumn) -> Result<StringViewArray> {
    let texts = StringViewArray::from_iter_values(&column.texts);
    Ok(taken(&texts, &UInt32Array::from(column.value_of.clone()))?)
}

#[derive(Default)]
struct LocalColumns {
    rows: Vec<u32>,
    quarters: Vec<i64>,
    hours: Vec<i64>,
    local_hours: Vec<i64>,
    days: Vec<i32>,
    n: Vec<i64>,
}

impl LocalColumns {
    fn push(&mut self, row: u32, quarter: i64, local: LocalTime, count: u32) {
        self.rows.push(row);
        self.quarters.push(quarter);
        self.hours.push(local.hour);
        self.local_hours.push(local.clock);
        self.days.push(local.day);
        self.n.push(count.into());
    }
}

/// The hour of a zone that holds a quarter.
#[derive(Clone, Copy)]
struct LocalTime {
    /// When it begins, since 1970 in UTC.
    hour: i64,
    /// The zone's clock at that time.
    clock: i64,
    day: i32,
}

impl LocalTime {
    fn of(zone: &Zone, quarter: i64) -> Result<LocalTime> {
        let error = |error: &dyn fmt::Display| DataFusionError::Execution(error.to_string());
        let at = UnixTime::from_s(quarter / SECOND_US).map_err(|outside| error(&outside))?;
        let hour = zone.unit(CalendarUnit::Hour, at, 0).map_err(|outside| error(&outside))?.from();
        let clock_s = zone.clock(hour);
        let day = zone.clock(at).div_euclid(DAY_S) as i32;
        Ok(LocalTime { hour: hour.s() as i64 * SECOND_US, clock: clock_s * SECOND_US, day })
    }
}

impl TableKind {
    fn schema(&self, dimensions: &[String]) -> SchemaRef {
        let time = |zone: Option<&str>| DataType::Timestamp(TimeUnit::Microsecond, zone.map(Arc::from));
        let field = |name: &str, kind: DataType| Field::new(name, kind, false);
        let text = |name: &str| field(name, DataType::Utf8View);
        let n = field("n", DataType::Int64);
        let mut fields = match self {
            TableKind::All => vec![text("listing"), text("type"), field("hour", time(Some(UTC))), n],
            TableKind::Type(_) => vec![text("listing"), field("hour", time(Some(UTC))), n],
            TableKind::Local(_) => vec![
                text("listing"),
                text("type"),
                field("quarter", time(Some(UTC))),
                field("hour", time(Some(UTC))),
                field("local_hour", time(None)),
                field("local_day", DataType::Date32),
                n,
            ],
        };
        fields.extend(dimensions.iter().map(|name| Field::new(name, DataType::Utf8View, true)));
        Arc::new(Schema::new(fields))
    }
}

impl Tables {
    /// A table of these rows. `dimensions` are the columns behind those of each directory.
    pub fn table(self: &Arc<Tables>, kind: TableKind, dimensions: &[String]) -> NamedTable {
        let schema = kind.schema(dimensions);
        let columns = (0..schema.fields().len()).collect();
        let partition = Partition { tables: Arc::clone(self), kind, schema, columns };
        NamedTable { rows: Arc::new(partition), is_named: Arc::clone(&self.are_named) }
    }
}

impl fmt::Debug for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("rows")
    }
}

impl Partition {
    fn batch(&self, at: usize) -> Option<Result<RecordBatch>> {
        let chunk = self.tables.chunk(at)?;
        Some(self.batch_of(chunk))
    }

    fn batch_of(&self, chunk: &Chunk) -> Result<RecordBatch> {
        let columns = self.columns.iter();
        let (count, columns): (usize, Result<Vec<ArrayRef>>) = match &self.kind {
            TableKind::All => (chunk.hours.len(), columns.map(|&column| chunk.all(column)).collect()),
            TableKind::Type(name) => {
                let rows = chunk.rows_of_type(name);
                (rows.len(), columns.map(|&column| chunk.of_type(&rows, column)).collect())
            }
            TableKind::Local(zone) => {
                let rows = chunk.local_rows(zone)?;
                (rows.rows.len(), columns.map(|&column| chunk.local(&rows, column)).collect())
            }
        };
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns?, &options)?)
    }
}

impl TableRows for Partition {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn with_columns(&self, columns: &[usize]) -> Result<Arc<dyn PartitionStream>> {
        let schema = Arc::new(self.schema.project(columns)?);
        Ok(Arc::new(Partition { schema, columns: columns.to_vec(), ..self.clone() }))
    }
}

impl PartitionStream for Partition {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let partition = self.clone();
        let batches = (0..).map_while(move |at| partition.batch(at));
        let stream = futures_util::stream::iter(batches);
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), stream))
    }
}

impl TableFunctionImpl for LocalFunction {
    fn call_with_args(&self, args: TableFunctionArgs<'_, '_>) -> Result<Arc<dyn TableProvider>> {
        let zone = match args.exprs() {
            [] => self.zone.clone(),
            [argument] => self.named(argument)?,
            [_, _, ..] => return plan_err!("impressions_local takes one time zone, such as 'Europe/Berlin'"),
        };
        Ok(Arc::new(self.tables.table(TableKind::Local(zone), &self.dimensions)))
    }
}

impl LocalFunction {
    fn named(&self, argument: &Expr) -> Result<Zone> {
        let name = match argument {
            Expr::Literal(ScalarValue::Utf8(Some(name)) | ScalarValue::Utf8View(Some(name)), _) => Some(name.as_str()),
            Expr::Placeholder(placeholder) => self.param(&placeholder.id),
            _ => None,
        };
        let Some(name) = name else {
            return plan_err!("impressions_local takes a text with the name of a time zone, such as 'Europe/Berlin'");
        };
        Zone::named(name).map_err(|error| DataFusionError::Plan(error.to_string()))
    }

    /// The text for `$1` and so on.
    fn param(&self, name: &str) -> Option<&str> {
        let number: usize = name.strip_prefix('$')?.parse().ok()?;
        match self.params.get(number.checked_sub(1)?)? {
            Param::Text(text) => Some(text),
            Param::Null | Param::Bool(_) | Param::Int(_) | Param::Float(_) => None,
        }
    }
}
