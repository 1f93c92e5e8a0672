//! The tenant's rows as tables: all rows, rows of one event type, and quarters by the clock of a zone.
//!
//! The rows are once in memory. Each table makes its batches from them when a query reads it. No table has statistics.

use super::conditions::TypeConditions;
use super::local::{LocalTime, LocalTimes};
use super::provider::{NamedTable, TableRows};
use super::refused::Refused;
use crate::frames::{ListingRun, Param, ReadColumns, ReadCounts, Refusal, Rows, ValueColumn, sum};
use crate::limits::{BATCH_ROWS_MAX, FRAME_ROWS_MAX};
use datafusion::arrow::array::{
    ArrayRef, AsArray, BooleanArray, Date32Array, Int64Array, StringViewArray, StringViewBuilder,
    TimestampMicrosecondArray, UInt8Array, UInt32Array,
};
use datafusion::arrow::buffer::Buffer;
use datafusion::arrow::compute::{filter_record_batch, take};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{ScalarValue, internal_err, plan_err};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::logical_expr::Expr;
use datafusion::physical_plan::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tidemark_proto::series::calendar::Zone;

/// The name of the column with the event type.
pub const TYPE_COLUMN: &str = "type";
const UTC: &str = "UTC";
const HOUR_US: i64 = 3_600_000_000;
const QUARTER_US: i64 = HOUR_US / 4;
const SECOND_US: i64 = 1_000_000;
/// Memory of a row: a view of its listing, its type, its hour, its quarters and their sum.
const LISTING_BYTES: usize = 16;
const TYPE_BYTES: usize = 1;
const HOUR_BYTES: usize = 8;
const QUARTERS_BYTES: usize = 16;
const SUM_BYTES: usize = 8;
const _: () = assert!(FRAME_ROWS_MAX <= BATCH_ROWS_MAX, "rows with columns are one batch");
/// Columns of each table before those of dimensions.
const ALL_COLUMNS: usize = 4;
const LOCAL_COLUMNS: usize = 7;
/// Memory of a row's view of a value.
const VALUE_BYTES: usize = 16;

/// The rows of a query.
#[derive(Debug)]
pub struct Tables {
    filling: Mutex<Filling>,
    chunks: OnceLock<Vec<Chunk>>,
    are_named: Arc<AtomicBool>,
    reads: Mutex<ReadColumns>,
    memory_bytes: u64,
}

#[derive(Debug)]
struct Filling {
    chunks: Vec<Chunk>,
    reservation: MemoryReservation,
}

/// Rows that came in one message. A column is missing if the query does not read it.
#[derive(Debug)]
struct Chunk {
    rows: usize,
    listings: Option<StringViewArray>,
    types: StringViewArray,
    type_of: Option<UInt8Array>,
    hours: Option<TimestampMicrosecondArray>,
    quarters: Option<Vec<[u32; 4]>>,
    n: Option<Int64Array>,
    /// Of the dimensions of the query.
    values: Vec<Option<StringViewArray>>,
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
    conditions: TypeConditions,
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
            reads: Mutex::default(),
            memory_bytes,
        }
    }

    /// The columns that plans read so far.
    pub fn reads(&self) -> ReadColumns {
        *self.reads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds rows.
    ///
    /// # Errors
    /// They need more memory than the query may have, or have not all columns.
    pub fn add(&self, rows: Rows) -> Result<(), Refused> {
        let reads = self.reads();
        if !rows.has(&reads) {
            return Err(Refused::new(Refusal::Internal, "rows without a column that the query reads"));
        }
        let mut filling = self.filling.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = bytes_of(&rows, &reads);
        filling.reservation.try_grow(bytes).map_err(|_| Refused::memory(self.memory_bytes))?;
        let mut chunk = Chunk::of(rows, &reads)?;
        // Only rows without columns may be more than a batch.
        while chunk.rows > BATCH_ROWS_MAX {
            chunk.rows -= BATCH_ROWS_MAX;
            filling.chunks.push(Chunk::counted(BATCH_ROWS_MAX));
        }
        filling.chunks.push(chunk);
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

/// Memory that the read columns of rows take.
fn bytes_of(rows: &Rows, reads: &ReadColumns) -> usize {
    let ReadColumns { listing, event_type, hour, counts, values } = *reads;
    let text: usize = rows.listings.iter().map(|run| run.listing.len()).sum();
    let of_values = |column: &ValueColumn| column.texts.iter().map(String::len).sum::<usize>();
    let of_values = |column: &ValueColumn| of_values(column) + rows.len() * VALUE_BYTES;
    let values: usize = rows.values.iter().zip(values).filter(|(_, reads)| *reads).map(|(of, _)| of_values(of)).sum();
    let counts = match counts {
        ReadCounts::None => 0,
        ReadCounts::Sums => SUM_BYTES,
        ReadCounts::Quarters => QUARTERS_BYTES + SUM_BYTES,
    };
    let flags = [(listing, LISTING_BYTES), (event_type, TYPE_BYTES), (hour, HOUR_BYTES)];
    let row: usize = flags.into_iter().filter(|(reads, _)| *reads).map(|(_, bytes)| bytes).sum();
    let text = if listing { text } else { 0 };
    rows.len() * (row + counts) + text + values
}

impl Chunk {
    /// Rows without columns.
    fn counted(rows: usize) -> Chunk {
        let types = StringViewArray::from_iter_values([""; 0]);
        let values = Vec::new();
        Chunk { rows, listings: None, types, type_of: None, hours: None, quarters: None, n: None, values }
    }

    /// The read columns of rows that were checked.
    fn of(rows: Rows, reads: &ReadColumns) -> Result<Chunk, Refused> {
        let invalid = |_| Refused::new(Refusal::Internal, "rows with texts that are too long");
        let invalid_values = |_| Refused::new(Refusal::Internal, "values that are too long");
        let len = rows.len();
        let times = || rows.hours.iter().map(|&hour| i64::from(hour) * HOUR_US).collect::<Vec<_>>();
        let reads_value = |at: usize| reads.values.get(at).copied().unwrap_or_default();
        let value = |(at, column)| reads_value(at).then(|| of_dimension(column)).transpose();
        let n = match reads.counts {
            ReadCounts::None => None,
            ReadCounts::Sums => Some(rows.sums.into_iter().map(|sum| sum as i64).collect::<Vec<_>>()),
            ReadCounts::Quarters => Some(rows.quarters.iter().map(|quarters| sum(quarters) as i64).collect()),
        };
        Ok(Chunk {
            rows: len,
            listings: reads.listing.then(|| of_runs(&rows.listings)).transpose().map_err(invalid)?,
            types: StringViewArray::from_iter_values(&rows.types),
            type_of: reads.event_type.then(|| UInt8Array::new(Buffer::from(rows.type_of).into(), None)),
            hours: reads.hour.then(|| TimestampMicrosecondArray::from(times())),
            n: n.map(Int64Array::from),
            values: rows.values.iter().enumerate().map(value).collect::<Result<_>>().map_err(invalid_values)?,
            quarters: (reads.counts == ReadCounts::Quarters).then_some(rows.quarters),
        })
    }

    fn listings(&self) -> Result<&StringViewArray> {
        self.listings.as_ref().ok_or_else(missing)
    }

    fn type_of(&self) -> Result<&UInt8Array> {
        self.type_of.as_ref().ok_or_else(missing)
    }

    fn times(&self) -> Result<&TimestampMicrosecondArray> {
        self.hours.as_ref().ok_or_else(missing)
    }

    fn n(&self) -> Result<&Int64Array> {
        self.n.as_ref().ok_or_else(missing)
    }

    fn types(&self) -> Result<ArrayRef> {
        Ok(take(&self.types, self.type_of()?, None)?)
    }

    fn hours(&self) -> Result<ArrayRef> {
        Ok(Arc::new(self.times()?.clone().with_timezone(UTC)))
    }

    /// A column of `impressions`.
    fn all(&self, column: usize) -> Result<ArrayRef> {
        Ok(match column {
            0 => Arc::new(self.listings()?.clone()),
            1 => self.types()?,
            2 => self.hours()?,
            3 => Arc::new(self.n()?.clone()),
            _ => self.value(column - ALL_COLUMNS)?,
        })
    }

    /// The rows that meet conditions. `None`: all rows meet them.
    fn selection(&self, conditions: &TypeConditions) -> Result<Option<BooleanArray>> {
        match conditions.is_empty() {
            true => Ok(None),
            false => Ok(conditions.selection(&self.types, self.type_of()?)),
        }
    }

    /// The quarters of the selected rows. Without a selection, of all rows.
    fn local_rows(&self, selection: Option<&BooleanArray>, times: &mut LocalTimes) -> Result<LocalRows> {
        let room = selection.map_or(self.rows, BooleanArray::true_count);
        let mut columns = LocalColumns::with_room(room * 4);
        let quarters = self.quarters.as_ref().ok_or_else(missing)?;
        for ((row, quarters), hour) in (0_u32..).zip(quarters).zip(self.times()?.values()) {
            if selection.is_some_and(|selection| !selection.value(row as usize)) {
                continue;
            }
            for (at, &count) in (0_i64..).zip(quarters).filter(|(_, count)| **count > 0) {
                let quarter = hour + at * QUARTER_US;
                columns.push(row, quarter, times.of(quarter / SECOND_US)?, count);
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
            0 => take(self.listings()?, &rows.rows, None)?,
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
        Ok(Arc::new(self.values.get(dimension).and_then(Option::as_ref).ok_or_else(missing)?.clone()))
    }
}

/// A column that was not among those that the plan reads.
fn missing() -> DataFusionError {
    DataFusionError::Internal("rows without a column that the query reads".to_owned())
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

struct LocalColumns {
    rows: Vec<u32>,
    quarters: Vec<i64>,
    hours: Vec<i64>,
    local_hours: Vec<i64>,
    days: Vec<i32>,
    n: Vec<i64>,
}

impl LocalColumns {
    fn with_room(rows: usize) -> LocalColumns {
        LocalColumns {
            rows: Vec::with_capacity(rows),
            quarters: Vec::with_capacity(rows),
            hours: Vec::with_capacity(rows),
            local_hours: Vec::with_capacity(rows),
            days: Vec::with_capacity(rows),
            n: Vec::with_capacity(rows),
        }
    }

    fn push(&mut self, row: u32, quarter: i64, local: LocalTime, count: u32) {
        self.rows.push(row);
        self.quarters.push(quarter);
        self.hours.push(local.hour_s * SECOND_US);
        self.local_hours.push(local.clock_s * SECOND_US);
        self.days.push(local.day);
        self.n.push(count.into());
    }
}

impl TableKind {
    /// The column of `impressions` that is a column of this table. Tables of an event type have no column of types.
    fn column_of_all(&self, column: usize) -> usize {
        match self {
            TableKind::Type(_) if column > 0 => column + 1,
            TableKind::All | TableKind::Type(_) | TableKind::Local(_) => column,
        }
    }

    fn schema(&self, dimensions: &[String]) -> SchemaRef {
        let time = |zone: Option<&str>| DataType::Timestamp(TimeUnit::Microsecond, zone.map(Arc::from));
        let field = |name: &str, kind: DataType| Field::new(name, kind, false);
        let text = |name: &str| field(name, DataType::Utf8View);
        let n = field("n", DataType::Int64);
        let mut fields = match self {
            TableKind::All => vec![text("listing"), text(TYPE_COLUMN), field("hour", time(Some(UTC))), n],
            TableKind::Type(_) => vec![text("listing"), field("hour", time(Some(UTC))), n],
            TableKind::Local(_) => vec![
                text("listing"),
                text(TYPE_COLUMN),
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
    /// Notes that a plan reads some columns of a table, and the column of its conditions.
    fn note(&self, kind: &TableKind, columns: &[usize], conditions: &TypeConditions) {
        let mut reads = self.reads.lock().unwrap_or_else(PoisonError::into_inner);
        reads.event_type |= !conditions.is_empty();
        let first_value = match kind {
            TableKind::All | TableKind::Type(_) => ALL_COLUMNS,
            TableKind::Local(_) => {
                reads.hour = true;
                reads.counts = ReadCounts::Quarters;
                LOCAL_COLUMNS
            }
        };
        for column in columns.iter().map(|&column| kind.column_of_all(column)) {
            match (kind, column) {
                (_, 0) => reads.listing = true,
                (_, 1) => reads.event_type = true,
                (TableKind::All | TableKind::Type(_), 2) => reads.hour = true,
                (TableKind::All | TableKind::Type(_), 3) => reads.counts = reads.counts.max(ReadCounts::Sums),
                (TableKind::All | TableKind::Type(_) | TableKind::Local(_), column) => {
                    let value = column.checked_sub(first_value).and_then(|at| reads.values.get_mut(at));
                    value.into_iter().for_each(|reads| *reads = true);
                }
            }
        }
    }

    /// A table of these rows. `dimensions` are the columns behind those of each directory.
    pub fn table(self: &Arc<Tables>, kind: TableKind, dimensions: &[String]) -> NamedTable {
        let schema = kind.schema(dimensions);
        let columns = (0..schema.fields().len()).collect();
        let conditions = match &kind {
            TableKind::Type(name) => TypeConditions::only(name),
            TableKind::All | TableKind::Local(_) => TypeConditions::default(),
        };
        let partition = Partition { tables: Arc::clone(self), kind, conditions, schema, columns };
        NamedTable { rows: Arc::new(partition), is_named: Arc::clone(&self.are_named) }
    }
}

impl fmt::Debug for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("rows")
    }
}

impl Partition {
    fn batch(&self, at: usize, times: &mut Option<LocalTimes>) -> Option<Result<RecordBatch>> {
        let chunk = self.tables.chunk(at)?;
        Some(self.batch_of(chunk, times))
    }

    fn batch_of(&self, chunk: &Chunk, times: &mut Option<LocalTimes>) -> Result<RecordBatch> {
        let selection = chunk.selection(&self.conditions)?;
        let columns = self.columns.iter();
        if let TableKind::Local(zone) = &self.kind {
            let times = times.get_or_insert_with(|| LocalTimes::new(zone.clone()));
            let rows = chunk.local_rows(selection.as_ref(), times)?;
            return self.record(rows.rows.len(), columns.map(|&column| chunk.local(&rows, column)).collect());
        }
        let columns = columns.map(|&column| chunk.all(self.kind.column_of_all(column))).collect();
        let batch = self.record(chunk.rows, columns)?;
        match selection {
            None => Ok(batch),
            Some(rows) => Ok(filter_record_batch(&batch, &rows)?),
        }
    }

    fn record(&self, rows: usize, columns: Result<Vec<ArrayRef>>) -> Result<RecordBatch> {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns?, &options)?)
    }
}

impl TableRows for Partition {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn can_apply(&self, condition: &Expr) -> bool {
        match self.kind {
            TableKind::All | TableKind::Local(_) => TypeConditions::can_apply(condition),
            TableKind::Type(_) => false,
        }
    }

    fn scan(&self, columns: &[usize], conditions: &[Expr]) -> Result<Arc<dyn PartitionStream>> {
        // The engine may have changed a condition since the table accepted it.
        if let Some(condition) = conditions.iter().find(|condition| !self.can_apply(condition)) {
            return internal_err!("a table got a condition that it cannot apply: {condition}");
        }
        let schema = Arc::new(self.schema.project(columns)?);
        let conditions = self.conditions.clone().and(conditions);
        self.tables.note(&self.kind, columns, &conditions);
        Ok(Arc::new(Partition { schema, conditions, columns: columns.to_vec(), ..self.clone() }))
    }
}

impl PartitionStream for Partition {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let partition = self.clone();
        let mut times = None;
        let batches = (0..).map_while(move |at| partition.batch(at, &mut times));
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
