//! The result of a query as JSON, CSV or Arrow, within its limits.

use super::refused::Refused;
use crate::frames::{Column, Format, Query, Refusal};
use bytes::Bytes;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, StringArray};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::datatypes::{DataType, Field, Float32Type, Float64Type, Schema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::ipc::writer::{FileWriter, StreamWriter};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::Arc;

/// Bytes of one message.
const PIECE_BYTES: usize = 1 << 20;

/// A result that is being written.
pub struct Output {
    schema: SchemaRef,
    writer: Writer,
    /// Bytes that were not taken yet.
    text: Vec<u8>,
    taken: u64,
    rows: u64,
    rows_max: u64,
    bytes_max: u64,
    is_finished: bool,
}

enum Writer {
    /// Each column with its name as JSON.
    Json(Vec<String>),
    Csv,
    Arrow(ArrowWriter),
}

enum ArrowWriter {
    Stream(Box<StreamWriter<Vec<u8>>>),
    File(Box<FileWriter<Vec<u8>>>),
}

/// A column of a batch.
struct Cells<'a> {
    array: &'a ArrayRef,
    formatter: ArrayFormatter<'a>,
    nulls: Option<NullBuffer>,
    is_bare: bool,
}

impl Output {
    /// # Errors
    /// Two columns have the same name.
    pub fn of(query: &Query, schema: SchemaRef) -> Result<Output, Refused> {
        let mut names = BTreeSet::new();
        if let Some(twice) = schema.fields().iter().find(|field| !names.insert(field.name())) {
            let message = format!("two columns of the result are named {:?}: name one with AS", twice.name());
            return Err(Refused::new(Refusal::Plan, message));
        }
        let mut text = Vec::new();
        let names = schema.fields().iter().map(|field| field.name());
        let writer = match query.format {
            Format::Json => Writer::Json(names.map(|name| json(name)).collect()),
            Format::Csv => {
                let names: Vec<String> = names.map(|name| quoted(name)).collect();
                text = (names.join(",") + "\r\n").into_bytes();
                Writer::Csv
            }
            Format::ArrowStream => {
                let writer = StreamWriter::try_new(Vec::new(), &plain_schema(&schema)).map_err(failed)?;
                Writer::Arrow(ArrowWriter::Stream(Box::new(writer)))
            }
            Format::ArrowFile => {
                let writer = FileWriter::try_new(Vec::new(), &plain_schema(&schema)).map_err(failed)?;
                Writer::Arrow(ArrowWriter::File(Box::new(writer)))
            }
        };
        let Query { rows_max, bytes_max, .. } = *query;
        Ok(Output { schema, writer, text, taken: 0, rows: 0, rows_max, bytes_max, is_finished: false })
    }

    pub fn columns(&self) -> Vec<Column> {
        let column = |name: &String, kind: &DataType| Column { name: name.clone(), kind: kind.to_string() };
        self.schema.fields().iter().map(|field| column(field.name(), field.data_type())).collect()
    }

    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// # Errors
    /// The result exceeds its limit of rows or bytes.
    pub fn add(&mut self, batch: &RecordBatch) -> Result<(), Refused> {
        let before = self.rows;
        self.rows += batch.num_rows() as u64;
        if self.rows > self.rows_max {
            let message = format!("the result has more than {} rows: add a LIMIT, or group the rows", self.rows_max);
            return Err(Refused::new(Refusal::ResultRows, message));
        }
        match &mut self.writer {
            Writer::Arrow(writer) => {
                writer.write(&plain(batch)?)?;
                self.text.append(writer.written());
                return self.below_limit();
            }
            Writer::Json(_) | Writer::Csv => {}
        }
        let options = FormatOptions::default();
        let cells = batch.columns().iter().map(|array| Cells::of(array, &options)).collect::<Result<Vec<_>, _>>()?;
        for row in 0..batch.num_rows() {
            match &self.writer {
                Writer::Json(names) => write_json(&mut self.text, names, &cells, row, before + row as u64 == 0)?,
                Writer::Csv => write_csv(&mut self.text, &cells, row)?,
                Writer::Arrow(_) => {}
            }
            self.below_limit()?;
        }
        Ok(())
    }

    /// Ends the result after the last batch.
    ///
    /// # Errors
    /// As of [`Output::add`].
    pub fn finish(&mut self) -> Result<(), Refused> {
        self.is_finished = true;
        if let Writer::Arrow(writer) = &mut self.writer {
            writer.finish()?;
            self.text.append(writer.written());
        }
        self.below_limit()
    }

    /// Takes bytes for one message, once enough are there or the result has ended.
    pub fn take(&mut self) -> Option<Bytes> {
        let is_due = self.text.len() >= PIECE_BYTES || self.is_finished && !self.text.is_empty();
        if !is_due {
            return None;
        }
        let rest = self.text.split_off(self.text.len().min(PIECE_BYTES));
        let piece = std::mem::replace(&mut self.text, rest);
        self.taken += piece.len() as u64;
        Some(Bytes::from(piece))
    }

    fn below_limit(&self) -> Result<(), Refused> {
        if self.taken + self.text.len() as u64 <= self.bytes_max {
            return Ok(());
        }
        let message = format!("the result has more than {} bytes: ask for fewer rows or columns", self.bytes_max);
        Err(Refused::new(Refusal::ResultBytes, message))
    }
}

impl<'a> Cells<'a> {
    fn of(array: &'a ArrayRef, options: &FormatOptions<'a>) -> Result<Cells<'a>, Refused> {
        let kind = array.data_type();
        let is_bare = kind.is_integer() || kind.is_decimal() || *kind == DataType::Boolean || kind.is_floating();
        let formatter = ArrayFormatter::try_new(array, options).map_err(failed)?;
        Ok(Cells { array, formatter, nulls: array.logical_nulls(), is_bare })
    }

    fn text(&self, row: usize) -> Result<String, Refused> {
        self.formatter.value(row).try_to_string().map_err(failed)
    }

    fn is_null(&self, row: usize) -> bool {
        self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row))
    }

    /// JSON has no NaN and no infinite numbers.
    fn is_number(&self, row: usize) -> bool {
        let double = self.array.as_primitive_opt::<Float64Type>().map(|floats| floats.value(row).is_finite());
        let single = self.array.as_primitive_opt::<Float32Type>().map(|floats| floats.value(row).is_finite());
        double.or(single).unwrap_or(true)
    }

    fn json(&self, row: usize) -> Result<String, Refused> {
        if self.is_null(row) || !self.is_number(row) {
            return Ok("null".to_owned());
        }
        let text = self.text(row)?;
        // A number that is not valid JSON becomes a text.
        let is_bare = self.is_bare && serde_json::from_str::<serde_json::Value>(&text).is_ok();
        Ok(if is_bare { text } else { json(&text) })
    }
}

impl ArrowWriter {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), Refused> {
        let written = match self {
            ArrowWriter::Stream(writer) => writer.write(batch),
            ArrowWriter::File(writer) => writer.write(batch),
        };
        written.map_err(failed)
    }

    fn finish(&mut self) -> Result<(), Refused> {
        let finished = match self {
            ArrowWriter::Stream(writer) => writer.finish(),
            ArrowWriter::File(writer) => writer.finish(),
        };
        finished.map_err(failed)
    }

    fn written(&mut self) -> &mut Vec<u8> {
        match self {
            ArrowWriter::Stream(writer) => writer.get_mut(),
            ArrowWriter::File(writer) => writer.get_mut(),
        }
    }
}

/// A schema with `Utf8` for string views, which some readers of Arrow do not read.
fn plain_schema(schema: &SchemaRef) -> SchemaRef {
    let plain = |field: &Arc<Field>| match field.data_type() {
        DataType::Utf8View => Arc::new(field.as_ref().clone().with_data_type(DataType::Utf8)),
        _ => Arc::clone(field),
    };
    let fields: Vec<Arc<Field>> = schema.fields().iter().map(plain).collect();
    Arc::new(Schema::new(fields))
}

/// A batch of [`plain_schema`]. It has only the texts of its rows: a string view keeps the texts of all rows of its source alive.
fn plain(batch: &RecordBatch) -> Result<RecordBatch, Refused> {
    let plain = |array: &ArrayRef| match array.as_string_view_opt() {
        Some(texts) => Arc::new(texts.iter().collect::<StringArray>()) as ArrayRef,
        None => Arc::clone(array),
    };
    let columns = batch.columns().iter().map(plain).collect();
    RecordBatch::try_new(plain_schema(&batch.schema()), columns).map_err(failed)
}

fn failed(error: ArrowError) -> Refused {
    Refused::new(Refusal::Execution, error)
}

fn json(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn write_json(
    to: &mut Vec<u8>,
    names: &[String],
    cells: &[Cells<'_>],
    row: usize,
    is_first: bool,
) -> Result<(), Refused> {
    let mut line = if is_first { String::from("{") } else { String::from(",\n{") };
    for (at, (name, cell)) in names.iter().zip(cells).enumerate() {
        // Writing to a text cannot fail.
        let _ = write!(line, "{}{name}:{}", if at == 0 { "" } else { "," }, cell.json(row)?);
    }
    line.push('}');
    to.extend(line.into_bytes());
    Ok(())
}

fn write_csv(to: &mut Vec<u8>, cells: &[Cells<'_>], row: usize) -> Result<(), Refused> {
    for (at, cell) in cells.iter().enumerate() {
        if at > 0 {
            to.push(b',');
        }
        if !cell.is_null(row) {
            to.extend(quoted(&cell.text(row)?).into_bytes());
        }
    }
    to.extend(b"\r\n");
    Ok(())
}

/// A field of CSV (RFC 4180). An empty text is quoted, so that it differs from NULL.
fn quoted(text: &str) -> String {
    let has_signs = text.contains([',', '"', '\r', '\n']);
    match has_signs || text.is_empty() || text.starts_with(' ') || text.ends_with(' ') {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}
