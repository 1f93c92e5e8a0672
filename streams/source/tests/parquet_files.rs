//! Parquet as other programs write it, and damaged.

use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int32Type, Int64Type};
use parquet::file::properties::{WriterProperties, WriterVersion};
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

const CLICKS: &str = "message clicks {
    optional binary shop (STRING);
    required int64 item;
    required int64 clock (TIMESTAMP(MILLIS,false));
    required int64 instant (TIMESTAMP(MILLIS,true));
    optional int64 n;
    required binary type (STRING);
}";

/// Texts, whole numbers and times: rows that are read without a value for each cell, and rows beside them that are not usual.
#[test]
fn usual_rows_stand_beside_rows_with_bad_cells() {
    let schema = Arc::new(parse_message_type(CLICKS).unwrap());
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let texts = |texts: &[&[u8]]| texts.iter().map(|text| ByteArray::from(text.to_vec())).collect::<Vec<_>>();
    // The shops of the rows are: a, none, a blank, no UTF-8, a, a.
    let shops = texts(&[b"a", b" ", &[0xff], b"a", b"a"]);
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<ByteArrayType>().write_batch(&shops, Some(&[1, 0, 1, 1, 1, 1]), None).unwrap();
    column.close().unwrap();
    let ms = AT_S * 1_000;
    for numbers in [[i64::MIN, 1, 2, 3, i64::MAX, 5], [ms, ms, ms, ms, i64::MAX, ms], [ms; 6]] {
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<Int64Type>().write_batch(&numbers, None, None).unwrap();
        column.close().unwrap();
    }
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<Int64Type>().write_batch(&[i64::MAX, 1, 1, 1, -1], Some(&[1, 1, 1, 1, 1, 0]), None).unwrap();
    column.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<ByteArrayType>().write_batch(&texts(&[b"click".as_slice(); 6]), None, None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    let bytes = writer.into_inner().unwrap();
    let said = |map: &str| {
        let (rows, error) = read(&bytes, map, "Asia/Kathmandu");
        assert_eq!(error, None, "{map}");
        let shown = |record: Record<'_>| match record {
            Record::Event(RawEvent { tenant, listing, at_s, event_type, count, .. }) => {
                format!("{tenant} {listing} {} {event_type} {count}", at_s - AT_S)
            }
            Record::Broken { reason, .. } => reason.to_owned(),
        };
        rows.records("view").map(shown).collect::<Vec<_>>()
    };
    let missing = "tenant is missing";
    let no_text = "tenant is a text that is no UTF-8: a text or a whole number is expected";
    let first = format!("a {} -20700 click {}", i64::MIN, i64::MAX);
    let late = format!("at {} s from 1970 on: not between 1970 and 3000", i64::MAX / 1_000);
    assert_eq!(
        said("tenant=shop,listing=item,at=clock,n=n,type=type"),
        [&first, missing, missing, no_text, &late, "n is missing"]
    );
    let last = format!("a {} 0 view -1", i64::MAX);
    assert_eq!(
        said("tenant=shop,listing=item,at=instant,n=n")[..],
        [&format!("a {} 0 view {}", i64::MIN, i64::MAX), missing, missing, no_text, &last, "n is missing"]
    );
    assert_eq!(said("tenant=item,listing=shop,at=instant")[5], "5 a 0 view 1");
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
    let maps = pages(
        "message m { optional binary shop (STRING);
           repeated group items { required binary name (STRING); } }",
    );
    let refused = read(&maps).unwrap_err().to_string();
    let parts = "a map, a structure, or a list of these or of lists";
    let expected = "lists of texts or whole numbers are expected, or texts with --listings-separator";
    assert_eq!(refused, format!("Parquet: column \"items\" is {parts}: {expected}"));
}

/// A file with a column of lists. `None` is a missing list, or a missing element.
struct ListsFile {
    /// The type of the column.
    items: &'static str,
    /// The definition levels of a missing list, an empty one, and one with an element that is missing or present.
    levels: [Option<i16>; 4],
    properties: WriterProperties,
}

type List<'a> = Option<Vec<Option<&'a str>>>;

impl ListsFile {
    fn bytes(&self, lists: &[List<'_>]) -> Vec<u8> {
        let schema = format!("message m {{ required binary shop (STRING); {} required int64 at; }}", self.items);
        let schema = Arc::new(parse_message_type(&schema).unwrap());
        let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(self.properties.clone())).unwrap();
        let mut group = writer.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let shops = vec![ByteArray::from("a"); lists.len()];
        column.typed::<ByteArrayType>().write_batch(&shops, None, None).unwrap();
        column.close().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let (levels, repeated, texts) = self.column(lists);
        let levels = Some(&levels[..]);
        let repeated = Some(&repeated[..]);
        if self.items.contains("int32") {
            let numbers: Vec<i32> = texts.iter().map(|text| text.parse().unwrap()).collect();
            column.typed::<Int32Type>().write_batch(&numbers, levels, repeated).unwrap();
        } else {
            let texts: Vec<ByteArray> = texts.iter().map(|text| ByteArray::from(*text)).collect();
            column.typed::<ByteArrayType>().write_batch(&texts, levels, repeated).unwrap();
        }
        column.close().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let times: Vec<i64> = (0..lists.len() as i64).map(|row| AT_S + row).collect();
        column.typed::<Int64Type>().write_batch(&times, None, None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
        writer.into_inner().unwrap()
    }

    /// Definition levels, repetition levels and values.
    fn column<'a>(&self, lists: &[List<'a>]) -> (Vec<i16>, Vec<i16>, Vec<&'a str>) {
        let [missing, empty, missing_element, element] = self.levels;
        let mut levels = Vec::new();
        let mut repeated = Vec::new();
        let mut texts = Vec::new();
        for list in lists {
            let elements = list.as_deref().unwrap_or_default();
            if elements.is_empty() {
                levels.push(if list.is_none() { missing } else { empty }.unwrap());
                repeated.push(0);
            }
            for (at, text) in elements.iter().enumerate() {
                levels.push(if text.is_none() { missing_element } else { element }.unwrap());
                repeated.push(i16::from(at > 0));
                texts.extend(text);
            }
        }
        (levels, repeated, texts)
    }
}

/// Each row as its listing, or as the reason for which it is none.
fn listings(bytes: &[u8]) -> Result<Vec<String>, String> {
    let (rows, error) = read(bytes, "tenant=shop,listings=items,at=at", "UTC");
    error.map_or_else(|| Ok(shown(&rows)), Err)
}

fn shown(rows: &Rows) -> Vec<String> {
    let shown = |record: Record<'_>| match record {
        Record::Event(event) => format!("{}@{}", event.listing, event.at_s - AT_S),
        Record::Broken { reason, .. } => reason.to_owned(),
    };
    rows.records("view").map(shown).collect()
}

fn small_pages(version: WriterVersion) -> WriterProperties {
    let limited = WriterProperties::builder().set_data_page_row_count_limit(3).set_write_batch_size(3);
    limited.set_writer_version(version).build()
}

#[test]
fn lists_of_each_form_are_pages() {
    const TEXTS: &str = "optional group items (LIST) { repeated group list { optional binary element (STRING); } }";
    const FULL: &str = "required group items (LIST) { repeated group list { required binary element (STRING); } }";
    const OLD: &str = "optional group items (LIST) { repeated binary element (STRING); }";
    const BARE: &str = "repeated binary items (STRING);";
    const NUMBERS: &str = "optional group items (LIST) { repeated group bag { optional int32 item; } }";
    let forms = [
        (TEXTS, [Some(0), Some(1), Some(2), Some(3)]),
        (FULL, [None, Some(0), None, Some(1)]),
        (OLD, [Some(0), Some(1), None, Some(2)]),
        (BARE, [None, Some(0), None, Some(1)]),
        (NUMBERS, [Some(0), Some(1), Some(2), Some(3)]),
    ];
    let rows = [
        (Some(vec![Some("7"), Some("8")]), vec!["7@0", "8@0"]),
        (None, vec!["listings is missing"]),
        (Some(Vec::new()), vec!["0 listings: 1 to 1000 in a page"]),
        (Some(vec![Some("9"), None]), vec!["9@3", "listing is missing"]),
        (Some(vec![Some("5"); 1_000]), vec!["5@4"; 1_000]),
        (Some(vec![Some("5"); 1_001]), vec!["1001 listings: 1 to 1000 in a page"]),
        (Some(vec![Some("1"), Some("1"), Some("2")]), vec!["1@6", "1@6", "2@6"]),
    ];
    for (items, levels) in forms {
        for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
            let lists: Vec<List<'_>> = rows.iter().map(|(list, _)| list.clone()).collect();
            let has = |list: &List<'_>| match list {
                None => levels[0].is_some(),
                Some(elements) => elements.iter().all(Option::is_some) || levels[2].is_some(),
            };
            let lists: Vec<List<'_>> =
                lists.into_iter().map(|list| if has(&list) { list } else { Some(vec![]) }).collect();
            let file = ListsFile { items, levels, properties: small_pages(version) };
            let said = |(list, said): (&List<'_>, &(List<'_>, Vec<&'static str>))| {
                if list.as_ref().is_some_and(Vec::is_empty) {
                    vec!["0 listings: 1 to 1000 in a page"]
                } else {
                    said.1.clone()
                }
            };
            let expected: Vec<&str> = lists.iter().zip(&rows).flat_map(said).collect();
            assert_eq!(listings(&file.bytes(&lists)).unwrap(), expected, "{items} {version:?}");
        }
    }
}

#[test]
fn lists_of_another_program_are_pages() {
    let bytes = include_bytes!("../../../tests/parquet/pyarrow.parquet");
    let (rows, error) = read(bytes, "tenant=counter,listings=tags,at=at", "UTC");
    assert_eq!(error, None);
    let reason = |record: &Record<'_>| match record {
        Record::Broken { reason, .. } => reason.to_string(),
        Record::Event(event) => event.listing.to_owned(),
    };
    let found: Vec<String> = rows.records("view").map(|record| reason(&record)).collect();
    let row = |row: usize| {
        let listing = |name: &str| match () {
            () if row == 13 => "tenant is missing".to_owned(),
            () if row % 4 == 3 => "at is missing".to_owned(),
            () => name.to_owned(),
        };
        match row % 3 {
            0 => vec!["0 listings: 1 to 1000 in a page".to_owned()],
            1 => vec![listing("a")],
            _ => vec![listing("a"), listing("b")],
        }
    };
    assert_eq!(found, (0..60).flat_map(row).collect::<Vec<_>>());
}

#[test]
fn lists_that_are_no_pages_are_refused() {
    let refused = |items: &'static str, map: &str| {
        let file = ListsFile { items, levels: [Some(0), Some(1), Some(2), Some(3)], properties: <_>::default() };
        let (rows, error) = read(&file.bytes(&[Some(vec![Some("7")])]), map, "UTC");
        assert!(rows.is_empty());
        error.unwrap()
    };
    let texts = "optional group items (LIST) { repeated group list { optional binary element (STRING); } }";
    let one = refused(texts, "tenant=shop,listing=items,at=at");
    let expected = "texts, whole numbers or times are expected; --map listings=COLUMN reads lists of listings";
    assert_eq!(one, format!("Parquet: column \"items\" is a list of BYTE_ARRAY (String): {expected}"));
    assert_eq!(refused(texts, "tenant=items,listings=items,at=at"), one);
    let pages = "tenant=shop,listings=items,at=at";
    let structures = "optional group items (LIST) { repeated group array { optional binary name (STRING); } }";
    assert!(refused(structures, pages).contains("is a map, a structure, or a list of these or of lists: lists of"));
    let bytes = "optional group items (LIST) { repeated group list { optional binary element (BSON); } }";
    assert!(refused(bytes, pages).contains("is a list of BYTE_ARRAY (Bson): lists of texts"));
}

#[test]
fn long_lists_stay_beside_the_other_columns_of_their_rows() {
    let items = "required group items (LIST) { repeated group list { required binary element (STRING); } }";
    let file = ListsFile { items, levels: [None, Some(0), None, Some(1)], properties: <_>::default() };
    let names: Vec<String> = (0..1_000).map(|number| format!("item-{number}")).collect();
    let length = |row: usize| if row.is_multiple_of(2) { 1_000 } else { 1 };
    let list = |row: usize| Some(names.iter().take(length(row)).map(|name| Some(&**name)).collect());
    let lists: Vec<List<'_>> = (0..300).map(list).collect();
    let mapping = Mapping::parse("tenant=shop,listings=items,at=at", None).unwrap();
    let reading = Reading { mapping, zone: Zone::UTC, dimensions: DimensionNames::default() };
    let mut open = FileRows::open(&self::file(&file.bytes(&lists)), reading).unwrap();
    let mut found = Vec::new();
    let mut rows = Rows::default();
    loop {
        rows.clear();
        open.read(&mut rows, 7_777).unwrap();
        if rows.is_empty() {
            break;
        }
        found.extend(shown(&rows));
    }
    let expected = |row: usize| names.iter().take(length(row)).map(move |name| format!("{name}@{row}"));
    assert_eq!(found, (0..300).flat_map(expected).collect::<Vec<_>>());
}

#[test]
fn long_texts_of_a_list_are_not_copied() {
    let items = "required group items (LIST) { repeated group list { required binary element (STRING); } }";
    let file = ListsFile { items, levels: [None, Some(0), None, Some(1)], properties: <_>::default() };
    let long = "x".repeat(100_000);
    let most = "y".repeat(255);
    let bytes = file.bytes(&[Some(vec![Some(&long); 1_000]), Some(vec![Some(&most)]), Some(vec![Some(&long); 1_001])]);
    let said = "listing is a text of more than 255 bytes: a text or a whole number is expected".to_owned();
    let mut expected = vec![said; 1_000];
    expected.extend([format!("{most}@1"), "1001 listings: 1 to 1000 in a page".to_owned()]);
    assert_eq!(listings(&bytes).unwrap(), expected);
}

/// A list of many elements takes some bytes of a file.
#[test]
fn list_that_is_too_long_is_refused() {
    let items = "optional group items (LIST) { repeated group list { optional binary element (STRING); } }";
    let file = ListsFile { items, levels: [Some(0), Some(1), Some(2), Some(3)], properties: <_>::default() };
    let bytes = file.bytes(&[Some(vec![Some("7"); (2 << 20) + 1])]);
    assert!(bytes.len() < 5_000, "{}", bytes.len());
    let refused = listings(&bytes).unwrap_err();
    assert_eq!(refused, "Parquet: a list has 2097153 elements or more, and 2097152 are allowed");
}

#[test]
fn damaged_lists_give_the_same_rows_each_time() {
    let items = "optional group items (LIST) { repeated group list { optional binary element (STRING); } }";
    let lists: Vec<List<'_>> =
        (0..90).map(|row| Some(vec![Some("item"), None, Some("7")][..row % 4].to_vec())).collect();
    let mut errors = 0;
    for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
        let file = ListsFile { items, levels: [Some(0), Some(1), Some(2), Some(3)], properties: small_pages(version) };
        let sound = file.bytes(&lists);
        assert!(listings(&sound).is_ok());
        for at in (0..sound.len()).step_by(7) {
            let mut bytes = sound.clone();
            bytes[at] ^= 1 << (at % 8);
            let read = || read(&bytes, "tenant=shop,listings=items,at=at", "UTC");
            let first = read();
            assert_eq!(first, read(), "byte {at}");
            errors += usize::from(first.1.is_some());
        }
    }
    assert!(errors > 100, "{errors} damages were noticed");
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
