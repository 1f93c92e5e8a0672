//! Parquet as other programs write it, and damaged.

use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int32Type, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use tidemark_proto::series::calendar::Zone;
use tidemark_streams_core::event::RawEvent;
use tidemark_streams_core::manifest::{Command, Manifest, SetTypes, TypesSet};
use tidemark_streams_core::owner::Record;
use tidemark_streams_core::schema::TypeChange;
use tidemark_streams_core::values::{DimensionNames, Values};
use tidemark_streams_source::file::FileRows;
use tidemark_streams_source::mapping::Mapping;
use tidemark_streams_source::rows::Rows;
use tidemark_streams_source::value::Reading;

const SCHEMA: &str = "message sales {
    optional binary shop (STRING);
    required int32 item;
    required int64 at (TIMESTAMP(NANOS,false));
    required double n;
    required boolean paid;
}";
/// 2017-01-01T11:53:26 by a clock without a zone.
const AT_S: i64 = 1_483_271_606;
/// Rows of the file; the second has no shop, the third half a count.
const ROWS: usize = 300;

fn sales() -> Vec<u8> {
    let schema = Arc::new(parse_message_type(SCHEMA).unwrap());
    let properties = WriterProperties::builder().set_data_page_row_count_limit(50).set_write_batch_size(50).build();
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties)).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let levels: Vec<i16> = (0..ROWS).map(|row| i16::from(row != 1)).collect();
    let shops = vec![ByteArray::from("a"); ROWS - 1];
    column.typed::<ByteArrayType>().write_batch(&shops, Some(&levels), None).unwrap();
    column.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let items: Vec<i32> = (0..ROWS as i32).collect();
    column.typed::<Int32Type>().write_batch(&items, None, None).unwrap();
    column.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let times: Vec<i64> = (0..ROWS as i64).map(|row| (AT_S + row) * 1_000_000_000 + 999).collect();
    column.typed::<Int64Type>().write_batch(&times, None, None).unwrap();
    column.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let counts: Vec<f64> = (0..ROWS).map(|row| if row == 2 { 0.5 } else { 2.0 }).collect();
    column.typed::<DoubleType>().write_batch(&counts, None, None).unwrap();
    column.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<parquet::data_type::BoolType>().write_batch(&[true; ROWS], None, None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.into_inner().unwrap()
}

fn file(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file
}

/// All rows up to the end or the first error.
fn read(bytes: &[u8], map: &str, zone: &str) -> (Rows, Option<String>) {
    let mapping = Mapping::parse(map, None).unwrap();
    let dimensions = DimensionNames::default();
    let reading = Reading { mapping, zone: Zone::named(zone).unwrap(), dimensions };
    let mut rows = Rows::default();
    let read = FileRows::open(&file(bytes), reading).and_then(|mut file| file.read(&mut rows, 10 * ROWS));
    (rows, read.err().map(|error| error.to_string()))
}

const MAP: &str = "tenant=shop,listing=item,at=at,n=n";

#[test]
fn columns_are_read_by_their_types() {
    let (rows, error) = read(&sales(), MAP, "Asia/Kathmandu");
    assert_eq!((rows.len(), error), (ROWS, None));
    let at_s = AT_S - 20_700;
    let records: Vec<Record<'_>> = rows.records("view").collect();
    let event = RawEvent { tenant: "a", listing: "0", at_s, event_type: "view", count: 2, values: Values::NONE };
    assert_eq!(records[0], Record::Event(event));
    let reason = |record: &Record<'_>| match record {
        Record::Broken { reason, .. } => reason.to_string(),
        Record::Event(_) => String::new(),
    };
    assert_eq!(reason(&records[1]), "tenant is missing");
    assert_eq!(reason(&records[2]), "n 0.5: a whole number is expected");
    assert!(records[3..].iter().all(|record| matches!(record, Record::Event(RawEvent { count: 2, .. }))));
}

#[test]
fn column_of_a_dimension_is_read_as_values() {
    let mut manifest = Manifest::new();
    let set = |set| Command::Types(SetTypes { set, asked_at_ms: 0, log_row: 0 });
    manifest.apply(&set(TypesSet::List(vec!["view".to_owned()])));
    let dimension = "country".to_owned();
    let change = TypeChange::AddDimension { name: "view".to_owned(), dimension, values_max: 9 };
    manifest.apply(&set(TypesSet::Change(change)));
    let mapping = Mapping::parse("tenant=shop,listing=item,at=at,country=shop", None).unwrap();
    let reading = Reading { mapping, zone: Zone::UTC, dimensions: DimensionNames::default() };
    let mut file = FileRows::open(&file(&sales()), reading).unwrap();
    file.name_dimensions(manifest.schema().dimensions().names).unwrap();
    let mut rows = Rows::default();
    file.read(&mut rows, ROWS).unwrap();
    let value = |record: Record<'_>| match record {
        Record::Event(event) => Some((event.tenant.to_owned(), event.values.as_str().to_owned())),
        Record::Broken { .. } => None,
    };
    let values: Vec<(String, String)> = rows.records("view").filter_map(value).collect();
    assert!(values.len() > ROWS / 2 && values.iter().all(|(tenant, value)| *value == format!("\u{1}{tenant}")));
}

#[test]
fn column_of_another_type_is_refused_by_name() {
    let (rows, error) = read(&sales(), "tenant=shop,listing=item,at=at,n=paid", "UTC");
    assert!(rows.is_empty());
    assert_eq!(error.unwrap(), "Parquet: column \"paid\" is BOOLEAN: texts, whole numbers or times are expected");
}

#[test]
fn pages_of_parquet_are_texts_with_a_separator() {
    let pages = |schema: &str| {
        let schema = Arc::new(parse_message_type(schema).unwrap());
        let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::default()).unwrap();
        let mut group = writer.next_row_group().unwrap();
        while let Some(mut column) = group.next_column().unwrap() {
            let levels = (&[1_i16, 1][..], &[0_i16, 0][..]);
            let texts = ["x|y", "z"].map(ByteArray::from);
            column.typed::<ByteArrayType>().write_batch(&texts, Some(levels.0), Some(levels.1)).unwrap();
            column.close().unwrap();
        }
        group.close().unwrap();
        writer.into_inner().unwrap()
    };
    let read = |bytes: &[u8]| {
        let mapping = Mapping::parse("tenant=shop,listings=items,at=shop", None).unwrap().separated(Some("|")).unwrap();
        let reading = Reading { mapping, zone: Zone::UTC, dimensions: DimensionNames::default() };
        let mut rows = Rows::default();
        FileRows::open(&file(bytes), reading).and_then(|mut file| file.read(&mut rows, 10)).map(|()| rows.len())
    };
    let texts = pages("message m { optional binary shop (STRING); optional binary items (STRING); }");
    assert_eq!(read(&texts).unwrap(), 3);
    let lists = pages("message m { optional binary shop (STRING); repeated binary items (STRING); }");
    let refused = read(&lists).unwrap_err().to_string();
    assert!(refused.contains("column \"items\" is a list of BYTE_ARRAY (String): "), "{refused}");
    assert!(
        refused.ends_with("texts with --listings-separator are expected; lists are read from JSON lines"),
        "{refused}"
    );
}

/// A damaged file is an error or gives rows, the same ones each time, so that they keep their numbers.
#[test]
fn damaged_file_gives_the_same_rows_each_time() {
    let sound = sales();
    let mut errors = 0;
    for at in (0..sound.len()).step_by(7) {
        let mut bytes = sound.clone();
        bytes[at] ^= 1 << (at % 8);
        let first = read(&bytes, MAP, "UTC");
        assert_eq!(first, read(&bytes, MAP, "UTC"), "byte {at}");
        assert!(first.0.len() <= ROWS);
        errors += usize::from(first.1.is_some());
    }
    for end in (0..sound.len()).step_by(101) {
        let (rows, error) = read(&sound[..end], MAP, "UTC");
        assert!(rows.is_empty() && error.is_some(), "cut at {end}");
    }
    assert!(errors > 10, "{errors} damages were noticed");
}
