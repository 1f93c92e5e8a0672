//! Tables that a tenant has uploaded: files of CSV, which nobody has read before.
//!
//! The first record of a file has the names of the columns. The type of a column is the first of boolean, whole number, number, date
//! and time that all of its values have; else it is text. An empty field without quotes is NULL. A number with a leading zero, such as a
//! postal code, is text.

use super::provider::{NamedTable, TableRows};
use super::refused::Refused;
use crate::frames::{Inspected, Refusal, UploadColumn, UploadKind, UploadPart, UploadedTable};
use crate::limits::{BATCH_ROWS_MAX, UPLOAD_BYTES_MAX, UPLOAD_COLUMNS_MAX, UPLOAD_NAME_BYTES_MAX};
use datafusion::arrow::array::{
    ArrayRef, BooleanArray, Date32Array, Float64Array, Int64Array, StringViewBuilder, TimestampMicrosecondArray,
};
use datafusion::arrow::compute::kernels::cast_utils::{Parser, string_to_timestamp_nanos};
use datafusion::arrow::datatypes::{DataType, Date32Type, Field, Schema, SchemaRef, TimeUnit};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::error::DataFusionError;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::logical_expr::Expr;
use datafusion::physical_plan::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tidemark_files::csv::{Fields, Record, Records};

const UTC: &str = "UTC";
/// Memory of a value beside its text.
const VALUE_BYTES: usize = 16;
const BOM: &[u8] = "\u{feff}".as_bytes();

/// The columns and the number of rows of a file.
///
/// # Errors
/// It is not a table, or needs more memory than it may have.
pub fn inspect(bytes: &[u8], memory_bytes: u64) -> Result<Inspected, Refused> {
    let mut reader = Reader::open(bytes)?;
    let mut candidates = vec![Candidates::default(); reader.names.len()];
    let mut rows = 0_u64;
    while let Some(fields) = reader.next()? {
        rows += 1;
        for (candidates, value) in candidates.iter_mut().zip(values(fields)) {
            if let Some(value) = value {
                candidates.see(value);
            }
        }
    }
    let needed = rows.saturating_mul((reader.names.len() * VALUE_BYTES) as u64).saturating_add(2 * bytes.len() as u64);
    if needed > memory_bytes {
        return Err(Refused::memory(memory_bytes));
    }
    let kinds = candidates.iter().map(Candidates::kind);
    let columns = reader.names.into_iter().zip(kinds).map(|(name, kind)| UploadColumn { name, kind });
    Ok(Inspected { columns: columns.collect(), rows })
}

/// Records of a file with the number of fields that its header has.
struct Reader<'b> {
    records: Records<&'b [u8]>,
    names: Vec<String>,
}

impl<'b> Reader<'b> {
    fn open(bytes: &'b [u8]) -> Result<Reader<'b>, Refused> {
        let bytes = bytes.strip_prefix(BOM).unwrap_or(bytes);
        let mut records = Records::new(bytes, b',', 0);
        let header =
            read(&mut records)?.ok_or_else(|| refused("the file is empty: its first line names the columns"))?;
        let names = header.iter().map(column_name).collect::<Result<Vec<String>, Refused>>()?;
        let found = names.len();
        if found > UPLOAD_COLUMNS_MAX {
            return Err(refused(format!("the header has {found} columns: at most {UPLOAD_COLUMNS_MAX}")));
        }
        let mut known = BTreeSet::new();
        match names.iter().find(|name| !known.insert(name.as_str())) {
            Some(twice) => Err(refused(format!("the header has the column {twice:?} twice"))),
            None => Ok(Reader { records, names }),
        }
    }

    fn next(&mut self) -> Result<Option<&Fields>, Refused> {
        let expected = self.names.len();
        let Some(fields) = read(&mut self.records)? else { return Ok(None) };
        let found = fields.len();
        let line = self.records.line();
        if found != expected {
            return Err(refused(format!("line {line} has {found} fields, and the header has {expected}")));
        }
        let fields = self.records.fields();
        match fields.iter().position(|value| std::str::from_utf8(value).is_err()) {
            Some(at) => Err(refused(format!("line {line}: column {:?} is not UTF-8", self.names[at]))),
            None => Ok(Some(fields)),
        }
    }
}

fn read<'r>(records: &'r mut Records<&[u8]>) -> Result<Option<&'r Fields>, Refused> {
    match records.read() {
        Ok(Record::Sound) => Ok(Some(records.fields())),
        Ok(Record::End) => Ok(None),
        Ok(Record::Broken(reason)) => Err(refused(format!("line {}: {reason}", records.line()))),
        Err(error) => Err(refused(format!("line {}: {error}", records.line()))),
    }
}

fn column_name(bytes: &[u8]) -> Result<String, Refused> {
    let name = std::str::from_utf8(bytes).map_err(|_| refused("the header is not UTF-8"))?;
    match name.len() {
        0 => Err(refused("the header has a column without a name")),
        1..=UPLOAD_NAME_BYTES_MAX => Ok(name.to_owned()),
        bytes => Err(refused(format!("a column's name has {bytes} bytes: at most {UPLOAD_NAME_BYTES_MAX}"))),
    }
}

fn refused(message: impl ToString) -> Refused {
    Refused::new(Refusal::Upload, message)
}

/// The values of a record; `None`: NULL. All are UTF-8.
fn values(fields: &Fields) -> impl Iterator<Item = Option<&str>> {
    (0..fields.len()).map(|at| {
        let text = fields.get(at).map(|bytes| std::str::from_utf8(bytes).unwrap_or_default()).unwrap_or_default();
        if text.is_empty() && !fields.is_quoted(at) { None } else { Some(text) }
    })
}

/// The types that all values of a column have so far, the narrowest first.
#[derive(Clone, Debug)]
struct Candidates {
    kinds: Vec<UploadKind>,
    has_values: bool,
}

impl Default for Candidates {
    fn default() -> Candidates {
        let kinds = [UploadKind::Bool, UploadKind::Int, UploadKind::Float, UploadKind::Date, UploadKind::Time];
        Candidates { kinds: kinds.to_vec(), has_values: false }
    }
}

impl Candidates {
    fn see(&mut self, value: &str) {
        self.has_values = true;
        self.kinds.retain(|kind| kind.has(value));
    }

    fn kind(&self) -> UploadKind {
        let narrowest = self.kinds.first().filter(|_| self.has_values);
        narrowest.copied().unwrap_or(UploadKind::Text)
    }
}

impl UploadKind {
    fn has(self, value: &str) -> bool {
        match self {
            UploadKind::Bool => bool_of(value).is_some(),
            UploadKind::Int => int_of(value).is_some(),
            UploadKind::Float => float_of(value).is_some(),
            UploadKind::Date => date_of(value).is_some(),
            UploadKind::Time => time_of(value).is_some(),
            UploadKind::Text => true,
        }
    }

    fn data_type(self) -> DataType {
        match self {
            UploadKind::Bool => DataType::Boolean,
            UploadKind::Int => DataType::Int64,
            UploadKind::Float => DataType::Float64,
            UploadKind::Date => DataType::Date32,
            UploadKind::Time => DataType::Timestamp(TimeUnit::Microsecond, Some(Arc::from(UTC))),
            UploadKind::Text => DataType::Utf8View,
        }
    }
}

fn bool_of(value: &str) -> Option<bool> {
    match value {
        "true" | "TRUE" | "True" => Some(true),
        "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// Whether digits have no zero in front. With one, they are more likely a code than a number.
fn has_plain_digits(value: &str) -> bool {
    let digits = value.strip_prefix('-').unwrap_or(value);
    let whole = digits.split(['.', 'e', 'E']).next().unwrap_or_default();
    !whole.is_empty()
        && whole.bytes().all(|byte| byte.is_ascii_digit())
        && (whole.len() == 1 || !whole.starts_with('0'))
}

fn int_of(value: &str) -> Option<i64> {
    if has_plain_digits(value) { value.parse().ok() } else { None }
}

fn float_of(value: &str) -> Option<f64> {
    // Whole numbers beyond 64 bits would lose digits: they are more likely ids.
    let is_id = value.trim_start_matches('-').bytes().all(|byte| byte.is_ascii_digit()) && int_of(value).is_none();
    if is_id || !has_plain_digits(value) {
        return None;
    }
    value.parse().ok().filter(|number: &f64| number.is_finite())
}

/// Days since 1970.
fn date_of(value: &str) -> Option<i32> {
    if value.len() == "2026-01-01".len() { Date32Type::parse(value) } else { None }
}

/// Microseconds since 1970. A date is its midnight in UTC, and a time without a zone is one of UTC.
fn time_of(value: &str) -> Option<i64> {
    let starts_with_year = value.len() >= "2026-01-01".len() && value.as_bytes()[..4].iter().all(u8::is_ascii_digit);
    let nanos = if starts_with_year { string_to_timestamp_nanos(value).ok()? } else { return None };
    Some(nanos.div_euclid(1_000))
}

/// A table that the tenant has uploaded. Its rows are there once its file has arrived.
#[derive(Debug)]
pub struct Upload {
    content: Arc<Content>,
    is_named: Arc<AtomicBool>,
}

#[derive(Debug)]
struct Content {
    columns: Vec<UploadColumn>,
    schema: SchemaRef,
    filling: Mutex<Filling>,
    rows: OnceLock<RecordBatch>,
    memory_bytes: u64,
}

/// The bytes of the file that have arrived.
#[derive(Debug)]
struct Filling {
    bytes: Vec<u8>,
    reservation: MemoryReservation,
}

impl Upload {
    /// A table whose rows take memory of a pool. `memory_bytes` is what a message says.
    pub fn new(table: &UploadedTable, pool: &Arc<dyn MemoryPool>, memory_bytes: u64) -> Upload {
        let field = |column: &UploadColumn| Field::new(&column.name, column.kind.data_type(), true);
        let schema = Arc::new(Schema::new(table.columns.iter().map(field).collect::<Vec<_>>()));
        let reservation = MemoryConsumer::new("uploads").register(pool);
        let content = Content {
            columns: table.columns.clone(),
            schema,
            filling: Mutex::new(Filling { bytes: Vec::new(), reservation }),
            rows: OnceLock::new(),
            memory_bytes,
        };
        Upload { content: Arc::new(content), is_named: Arc::default() }
    }

    /// The table as the engine sees it.
    pub fn table(&self) -> NamedTable {
        let rows = Arc::new(UploadedRows(Arc::clone(&self.content)));
        NamedTable { rows, is_named: Arc::clone(&self.is_named) }
    }

    /// Whether the query names it.
    pub fn is_named(&self) -> bool {
        self.is_named.load(Ordering::Relaxed)
    }

    /// Adds a part of its file.
    ///
    /// # Errors
    /// The file is too long, or the query may not have as much memory.
    pub fn add(&self, part: &UploadPart) -> Result<(), Refused> {
        let mut filling = self.content.filling.lock().unwrap_or_else(PoisonError::into_inner);
        if filling.bytes.len() + part.bytes.len() > UPLOAD_BYTES_MAX {
            return Err(refused(format!("an uploaded table has more than {UPLOAD_BYTES_MAX} bytes")));
        }
        let full = |_| Refused::memory(self.content.memory_bytes);
        filling.reservation.try_grow(part.bytes.len()).map_err(full)?;
        filling.bytes.extend_from_slice(&part.bytes);
        Ok(())
    }

    /// All of its file has arrived: reads it.
    ///
    /// # Errors
    /// It does not have the columns that it had when it was uploaded, or needs more memory than the query may have.
    pub fn close(&self) -> Result<(), Refused> {
        let content = &self.content;
        let mut filling = content.filling.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = std::mem::take(&mut filling.bytes);
        let columns = content.decoded(&bytes)?;
        let rows = RecordBatch::try_new(Arc::clone(&content.schema), columns);
        let rows = rows.map_err(|_| refused("an uploaded table has other columns than before"))?;
        let full = |_| Refused::memory(content.memory_bytes);
        filling.reservation.try_resize(rows.get_array_memory_size()).map_err(full)?;
        let _ = content.rows.set(rows);
        Ok(())
    }
}

impl Content {
    fn decoded(&self, bytes: &[u8]) -> Result<Vec<ArrayRef>, Refused> {
        let mut reader = Reader::open(bytes)?;
        let names = self.columns.iter().map(|column| &column.name);
        if !reader.names.iter().eq(names) {
            return Err(refused("an uploaded table has other columns than before"));
        }
        let mut columns: Vec<Column> = self.columns.iter().map(|column| Column::new(column.kind)).collect();
        while let Some(fields) = reader.next()? {
            for (column, value) in columns.iter_mut().zip(values(fields)) {
                column.push(value).map_err(|_| refused("an uploaded table has other values than before"))?;
            }
        }
        Ok(columns.into_iter().map(Column::finish).collect())
    }
}

/// The values of a column.
enum Column {
    Bool(Vec<Option<bool>>),
    Int(Vec<Option<i64>>),
    Float(Vec<Option<f64>>),
    Date(Vec<Option<i32>>),
    Time(Vec<Option<i64>>),
    Text(StringViewBuilder),
}

impl Column {
    fn new(kind: UploadKind) -> Column {
        match kind {
            UploadKind::Bool => Column::Bool(Vec::new()),
            UploadKind::Int => Column::Int(Vec::new()),
            UploadKind::Float => Column::Float(Vec::new()),
            UploadKind::Date => Column::Date(Vec::new()),
            UploadKind::Time => Column::Time(Vec::new()),
            UploadKind::Text => Column::Text(StringViewBuilder::new()),
        }
    }

    /// Adds a value; `None`: NULL.
    fn push(&mut self, value: Option<&str>) -> Result<(), OtherType> {
        match self {
            Column::Bool(values) => values.push(parsed(value, bool_of)?),
            Column::Int(values) => values.push(parsed(value, int_of)?),
            Column::Float(values) => values.push(parsed(value, float_of)?),
            Column::Date(values) => values.push(parsed(value, date_of)?),
            Column::Time(values) => values.push(parsed(value, time_of)?),
            Column::Text(values) => values.append_option(value),
        }
        Ok(())
    }

    fn finish(self) -> ArrayRef {
        match self {
            Column::Bool(values) => Arc::new(BooleanArray::from(values)),
            Column::Int(values) => Arc::new(Int64Array::from(values)),
            Column::Float(values) => Arc::new(Float64Array::from(values)),
            Column::Date(values) => Arc::new(Date32Array::from(values)),
            Column::Time(values) => Arc::new(TimestampMicrosecondArray::from(values).with_timezone(UTC)),
            Column::Text(mut values) => Arc::new(values.finish()),
        }
    }
}

/// A value is not of the type of its column. No file has one that was inspected.
struct OtherType;

fn parsed<T>(value: Option<&str>, parse: impl Fn(&str) -> Option<T>) -> Result<Option<T>, OtherType> {
    value.map(|text| parse(text).ok_or(OtherType)).transpose()
}

struct UploadedRows(Arc<Content>);

/// Some columns of the rows.
struct UploadedColumns {
    content: Arc<Content>,
    columns: Vec<usize>,
    schema: SchemaRef,
}

impl fmt::Debug for UploadedRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("uploaded rows")
    }
}

impl TableRows for UploadedRows {
    fn schema(&self) -> &SchemaRef {
        &self.0.schema
    }

    fn can_apply(&self, _: &Expr) -> bool {
        false
    }

    fn scan(&self, columns: &[usize], _: &[Expr]) -> Result<Arc<dyn PartitionStream>, DataFusionError> {
        let schema = Arc::new(self.0.schema.project(columns)?);
        Ok(Arc::new(UploadedColumns { content: Arc::clone(&self.0), columns: columns.to_vec(), schema }))
    }
}

impl fmt::Debug for UploadedColumns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("uploaded rows")
    }
}

impl PartitionStream for UploadedColumns {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let rows = self.content.rows.get().cloned();
        let columns = self.columns.clone();
        let starts = (0..rows.as_ref().map_or(0, RecordBatch::num_rows)).step_by(BATCH_ROWS_MAX);
        let batches = starts.filter_map(move |from| {
            let rows = rows.as_ref()?;
            let rows = rows.slice(from, BATCH_ROWS_MAX.min(rows.num_rows() - from));
            Some(rows.project(&columns).map_err(DataFusionError::from))
        });
        let stream = futures_util::stream::iter(batches);
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), stream))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::execution::memory_pool::GreedyMemoryPool;
    use proptest::prelude::*;

    /// Reads a file with the columns that it had when it was uploaded. Returns the number of its rows.
    fn read_as(columns: Vec<UploadColumn>, file: &[u8]) -> Result<usize, Refused> {
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(1 << 24));
        let upload = Upload::new(&UploadedTable { name: "t".to_owned(), columns }, &pool, 1 << 24);
        upload.add(&UploadPart { table: 0, bytes: file.to_vec().into() })?;
        upload.close()?;
        Ok(upload.content.rows.get().map_or(0, RecordBatch::num_rows))
    }

    #[test]
    fn file_with_values_of_another_type_is_refused() {
        let planned = inspect(b"price\n40\n", 1 << 20).unwrap().columns;
        assert_eq!(read_as(planned.clone(), b"price\n41\n").unwrap(), 1);
        let refused = read_as(planned.clone(), b"price\n40.5\n").unwrap_err();
        assert_eq!((refused.refusal, refused.message.contains("other values")), (Refusal::Upload, true), "{refused:?}");
        let refused = read_as(planned, b"cost\n40\n").unwrap_err();
        assert!(refused.message.contains("other columns"), "{refused:?}");
    }

    /// Bytes that are mostly CSV.
    fn any_file() -> impl Strategy<Value = Vec<u8>> {
        let field = prop_oneof![
            "[0-9.eE+-]{0,6}",
            "[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9:.Z+]{0,12})?",
            "\"[ -~]{0,5}\"",
            "[\\PC]{0,6}",
        ];
        let line = prop::collection::vec(field, 1..4).prop_map(|fields| fields.join(","));
        let text = prop::collection::vec(line, 0..6).prop_map(|lines| lines.join("\n").into_bytes());
        prop_oneof![4 => text, 1 => prop::collection::vec(any::<u8>(), 0..200)]
    }

    proptest! {
        #[test]
        fn file_that_was_inspected_is_read_with_all_its_rows(file in any_file()) {
            if let Ok(inspected) = inspect(&file, 1 << 24) {
                prop_assert_eq!(read_as(inspected.columns, &file).unwrap() as u64, inspected.rows);
            }
        }
    }

    fn columns(text: &str) -> Result<Vec<(String, UploadKind)>, String> {
        let inspected = inspect(text.as_bytes(), 1 << 20).map_err(|refused| refused.message)?;
        Ok(inspected.columns.into_iter().map(|UploadColumn { name, kind }| (name, kind)).collect())
    }

    fn kind(values: &[&str]) -> UploadKind {
        let text = format!("c,d\n{}\n", values.iter().map(|value| format!("{value},x")).collect::<Vec<_>>().join("\n"));
        columns(&text).unwrap()[0].1
    }

    #[test]
    fn column_has_the_narrowest_type_of_all_its_values() {
        for (values, expected) in [
            (&["true", "False"][..], UploadKind::Bool),
            (&["0", "-7", "9223372036854775807"], UploadKind::Int),
            (&["1", "2.5", "1e3"], UploadKind::Float),
            (&["9223372036854775808", "1"], UploadKind::Text),
            (&["1969-12-31", "2026-02-28"], UploadKind::Date),
            (&["2026-01-01", "2026-01-01T09:00:00+05:45"], UploadKind::Time),
            (&["2026-01-01 09:00:00", ""], UploadKind::Time),
            (&["007", "42"], UploadKind::Text),
            (&["NaN", "1"], UploadKind::Text),
            (&["2026-02-30"], UploadKind::Text),
            (&["1", "x"], UploadKind::Text),
            (&["\"\"", "1"], UploadKind::Text),
            (&["", ""], UploadKind::Text),
        ] {
            assert_eq!(kind(values), expected, "{values:?}");
        }
    }

    #[test]
    fn file_that_is_no_table_is_refused_with_its_line() {
        for (text, expected) in [
            ("", "the file is empty"),
            ("a,a\n", "column \"a\" twice"),
            ("a,\n", "a column without a name"),
            ("a,b\n1,2\n1\n", "line 3 has 1 fields, and the header has 2"),
            ("a,b\n1,\"2\n", "line 2"),
        ] {
            let refused = columns(text).unwrap_err();
            assert!(refused.contains(expected), "{text:?}: {refused}");
        }
        let wide = format!("{}\n", (0..=UPLOAD_COLUMNS_MAX).map(|at| format!("c{at}")).collect::<Vec<_>>().join(","));
        assert!(columns(&wide).unwrap_err().contains("101 columns: at most 100"));
        let refused = inspect(b"a\n\xff\n", 1 << 20).unwrap_err().message;
        assert!(refused.contains("line 2: column \"a\" is not UTF-8"), "{refused}");
        let large = inspect(format!("a\n{}", "1\n".repeat(10_000)).as_bytes(), 1_000).unwrap_err();
        assert_eq!(large.refusal, Refusal::Memory);
    }
}
