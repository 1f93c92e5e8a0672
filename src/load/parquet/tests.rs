//! Files as writers make them, and damaged ones.

use super::*;
use crate::load::columns::Event;
use crate::load::fault::RowFault;
use crate::load::rows::{Lines, Read};
use crate::load::tests::shown;
use bytes::Bytes;
use parquet::basic::{Compression, CompressionCodec, Encoding};
use parquet::data_type::{
    ByteArrayType, DataType, DoubleType, FixedLenByteArrayType, FloatType, Int32Type, Int64Type, Int96, Int96Type,
};
use parquet::file::metadata::{ColumnChunkMetaDataBuilder, ParquetMetaDataReader, ParquetMetaDataWriter};
use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder, WriterVersion};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use tidemark_files::unpack::Text;
use tidemark_proto::series::UnixTime;

/// A column as it is written: `None` is null.
enum Written {
    Texts(Vec<Option<&'static str>>),
    Bytes(Vec<Option<Vec<u8>>>),
    I32(Vec<Option<i32>>),
    I64(Vec<Option<i64>>),
    I96(Vec<Option<Int96>>),
    F32(Vec<Option<f32>>),
    F64(Vec<Option<f64>>),
    Fixed(Vec<Option<Vec<u8>>>),
}

fn write<T: DataType>(group: &mut SerializedRowGroupWriter<'_, Vec<u8>>, values: Vec<Option<T::T>>) {
    let mut column = group.next_column().unwrap().unwrap();
    let levels: Vec<i16> = values.iter().map(|value| i16::from(value.is_some())).collect();
    let values: Vec<T::T> = values.into_iter().flatten().collect();
    column.typed::<T>().write_batch(&values, Some(&levels), None).unwrap();
    column.close().unwrap();
}

/// A file of these row groups.
fn file(schema: &str, properties: WriterPropertiesBuilder, groups: Vec<Vec<Written>>) -> Vec<u8> {
    let schema = Arc::new(parse_message_type(&format!("message rows {{ {schema} }}")).unwrap());
    let mut file = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties.build())).unwrap();
    for columns in groups {
        let mut group = file.next_row_group().unwrap();
        for column in columns {
            let bytes = |text: Option<&str>| text.map(ByteArray::from);
            match column {
                Written::Texts(texts) => write::<ByteArrayType>(&mut group, texts.into_iter().map(bytes).collect()),
                Written::Bytes(bytes) => {
                    let values = bytes.into_iter().map(|bytes| bytes.map(ByteArray::from)).collect();
                    write::<ByteArrayType>(&mut group, values);
                }
                Written::I32(values) => write::<Int32Type>(&mut group, values),
                Written::I64(values) => write::<Int64Type>(&mut group, values),
                Written::I96(values) => write::<Int96Type>(&mut group, values),
                Written::F32(values) => write::<FloatType>(&mut group, values),
                Written::F64(values) => write::<DoubleType>(&mut group, values),
                Written::Fixed(values) => {
                    let values = values.into_iter().map(|bytes| bytes.map(|bytes| ByteArray::from(bytes).into()));
                    write::<FixedLenByteArrayType>(&mut group, values.collect());
                }
            }
        }
        group.close().unwrap();
    }
    file.into_inner().unwrap()
}

fn told(bytes: &[u8], naming: &Naming) -> Result<Vec<String>, String> {
    let mut rows = Rows::open(Bytes::copy_from_slice(bytes), naming).map_err(|error| error.to_string())?;
    let mut told = Vec::new();
    while let Some(read) = rows.next_row().map_err(|error| error.to_string())? {
        told.push(shown(&read));
    }
    Ok(told)
}

fn in_zone(zone: &str) -> Naming {
    Naming { zone: Some(zone.to_owned()), ..Naming::default() }
}

#[test]
fn rows_are_read_and_broken_ones_named_by_their_numbers() {
    let counters = ["qa/a", "qa/b%2F", "qa", "qa/c"].map(Some).into_iter().chain([None, Some("qa/a")]);
    let deltas = [Some(1), Some(-3), Some(1), Some(0), Some(1), Some(1)];
    let times = [Some(60_999), None, Some(0), Some(0), Some(0), Some(-1)];
    let columns = || {
        vec![Written::Texts(counters.clone().collect()), Written::I64(deltas.to_vec()), Written::I64(times.to_vec())]
    };
    let schema = "optional binary counter (STRING); optional int64 delta; optional int64 at (TIMESTAMP(MILLIS,true));";
    let bytes = file(schema, WriterProperties::builder(), vec![columns(), columns()]);
    let told = told(&bytes, &Naming::default()).unwrap();
    let expected = [
        "1: qa/a Up 1 60",
        "2: qa/b/ Down 3 -",
        "3: \"qa\" names no counter: NAMESPACE/KEY expected",
        "4: nothing",
        "5: counter is empty: NAMESPACE/KEY expected",
    ];
    assert_eq!(told[..5], expected);
    assert!(told[5].starts_with("6: ") && told[5].contains("-1"), "{}", told[5]);
    assert_eq!((told.len(), told[6].as_str()), (12, "7: qa/a Up 1 60"));
}

/// How a column `delta` or `at` is read, of rows of one counter.
fn read_in(zone: &str, schema: &str, column: Written) -> String {
    let rows = match &column {
        Written::Texts(values) => values.len(),
        Written::Bytes(values) | Written::Fixed(values) => values.len(),
        Written::I32(values) => values.len(),
        Written::I64(values) => values.len(),
        Written::I96(values) => values.len(),
        Written::F32(values) => values.len(),
        Written::F64(values) => values.len(),
    };
    let counters = Written::Texts(vec![Some("qa/a"); rows]);
    let schema = format!("optional binary counter; {schema};");
    let bytes = file(&schema, WriterProperties::builder(), vec![vec![counters, column]]);
    let naming = if zone.is_empty() { Naming::default() } else { in_zone(zone) };
    told(&bytes, &naming).unwrap_or_else(|error| vec![error]).join(", ").replace(" qa/a", "")
}

#[test]
fn columns_may_be_of_any_type_that_says_it() {
    // The content of the column `delta` or `at` of a row, and the value that is read.
    let read = |schema: &str, column: Written| read_in("UTC", schema, column);
    assert_eq!(
        read("optional int32 delta (INTEGER(32,false))", Written::I32(vec![Some(7), Some(-1)])),
        "1: Up 7 -, 2: Up 4294967295 -"
    );
    assert_eq!(read("optional int32 delta", Written::I32(vec![Some(-1)])), "1: Down 1 -");
    assert_eq!(read("optional int64 delta (UINT_64)", Written::I64(vec![Some(7)])), "1: Up 7 -");
    let huge = read("optional int64 delta (INTEGER(64,false))", Written::I64(vec![Some(-1)]));
    assert_eq!(huge, "1: delta 18446744073709551615: at most 1099511627776 up or down");
    let texts = Written::Texts(vec![Some("-7"), Some(""), Some("x")]);
    let expected =
        "1: Down 7 -, 2: delta has no value: a whole number expected, 3: delta \"x\": a whole number expected";
    assert_eq!(read("optional binary delta (STRING)", texts), expected);
    let texts = Written::Texts(vec![Some("60"), Some("1970-01-01T00:01:00Z"), Some("")]);
    assert_eq!(read("optional binary at (UTF8)", texts), "1: Up 1 60, 2: Up 1 60, 3: Up 1 -");
    assert_eq!(read("optional int32 at", Written::I32(vec![Some(60)])), "1: Up 1 60");
    assert_eq!(read("optional int32 at (DATE)", Written::I32(vec![Some(2)])), "1: Up 1 172800");
    for (unit, per_s) in [("MICROS", 1_000_000), ("NANOS", 1_000_000_000)] {
        let times = Written::I64(vec![Some(61 * per_s - 1), Some(61 * per_s)]);
        let schema = format!("optional int64 at (TIMESTAMP({unit},false))");
        assert_eq!(read(&schema, times), "1: Up 1 60, 2: Up 1 61", "{unit}");
    }
    assert_eq!(read("optional int64 at (TIMESTAMP_MILLIS)", Written::I64(vec![Some(60_001)])), "1: Up 1 60");
    let julian = Written::I96(vec![Some(Int96::from(vec![4_165_425_152, 13, 2_440_588])), None]);
    assert_eq!(read("optional int96 at", julian), "1: Up 1 60, 2: Up 1 -");
}

#[test]
fn counters_may_be_numbers_and_columns_have_other_names() {
    let naming =
        Naming { counter: "answer".into(), delta: "views".into(), prefix: "qa/answer/".into(), ..Naming::default() };
    let bytes = |schema: &str| {
        let columns = || vec![Written::I64(vec![Some(7), None]), Written::I64(vec![Some(3), Some(3)])];
        file(schema, WriterProperties::builder(), vec![columns()])
    };
    let both = bytes("optional int64 answer; optional int64 views;");
    assert_eq!(
        told(&both, &naming),
        Ok(vec!["1: qa/answer/7 Up 3 -".to_owned(), "2: answer is empty: NAMESPACE/KEY expected".to_owned()])
    );
    let missing = told(&bytes("optional int64 answer; optional int64 delta;"), &naming);
    assert_eq!(missing, Err("Parquet: there is no column \"views\": there are \"answer\", \"delta\"".to_owned()));
    let times = told(&bytes("optional int64 answer (TIMESTAMP(MILLIS,true)); optional int64 views;"), &naming);
    assert_eq!(times, Err("Parquet: column \"answer\" has times: texts or whole numbers expected".to_owned()));
}

#[test]
fn ids_may_be_texts_whole_numbers_or_uuids() {
    let naming = Naming { event_id: Some("pay".to_owned()), ..Naming::default() };
    let read = |schema: &str, column: Written, rows: usize| {
        let counters = Written::Texts(vec![Some("qa/a"); rows]);
        let bytes = file(
            &format!("optional binary counter; optional {schema};"),
            WriterProperties::builder(),
            vec![vec![counters, column]],
        );
        told(&bytes, &naming).unwrap_or_else(|error| vec![error]).join(", ").replace("qa/a Up 1 - id ", "")
    };
    let allowed = "1 to 128 visible ASCII characters";
    assert_eq!(
        read("binary pay (STRING)", Written::Texts(vec![Some("p-1"), Some(""), None, Some("a b")]), 4),
        format!(
            "1: p-1, 2: pay is empty: {allowed} expected, 3: pay is empty: {allowed} expected, 4: pay \"a b\": {allowed} allowed"
        )
    );
    assert_eq!(read("int64 Pay", Written::I64(vec![Some(-7), Some(i64::MAX)]), 2), "1: -7, 2: 9223372036854775807");
    assert_eq!(read("int64 pay (DECIMAL(9,2))", Written::I64(vec![Some(700), Some(750)]), 2), "1: 7, 2: 7.50");
    let uuid: Vec<u8> = (0..16).map(|byte| byte * 17).collect();
    assert_eq!(
        read("fixed_len_byte_array(16) pay (UUID)", Written::Fixed(vec![Some(uuid), None]), 2),
        format!("1: 00112233-4455-6677-8899-aabbccddeeff, 2: pay is empty: {allowed} expected")
    );
    let refused = "Parquet: column \"pay\" has";
    assert_eq!(
        read("double pay", Written::F64(vec![Some(1.0)]), 1),
        format!("{refused} floating-point numbers: texts or whole numbers expected")
    );
    let times = read("int64 pay (TIMESTAMP(MILLIS,true))", Written::I64(vec![Some(1)]), 1);
    assert_eq!(times, format!("{refused} times: texts or whole numbers expected"));
    assert!(read("int64 other", Written::I64(vec![Some(1)]), 1).contains("there is no column \"pay\""));
    let uuids = |column: &str| {
        let schema = format!("optional binary counter; optional fixed_len_byte_array(16) {column} (UUID);");
        let columns = vec![Written::Texts(vec![Some("qa/a")]), Written::Fixed(vec![Some(vec![0; 16])])];
        told(&file(&schema, WriterProperties::builder(), vec![columns]), &Naming::default()).unwrap_err()
    };
    assert_eq!(uuids("delta"), "Parquet: column \"delta\" has UUIDs: texts or whole numbers expected");
    assert_eq!(uuids("at"), "Parquet: column \"at\" has UUIDs: times, texts or whole numbers expected");
}

/// Numbers as DuckDB's `sum()`, Snowflake and pandas write them.
#[test]
fn floats_and_decimals_count_where_they_are_whole_numbers() {
    let read = |schema: &str, column: Written| read_in("", schema, column);
    let doubles = [5.0, -3.0, 0.0, 1.5, f64::NAN, 9_007_199_254_740_994.0].map(Some).into_iter().chain([None]);
    assert_eq!(
        read("optional double delta", Written::F64(doubles.collect())),
        "1: Up 5 -, 2: Down 3 -, 3: nothing, 4: delta 1.5: a whole number expected, 5: delta NaN: a whole number expected, \
         6: delta 9007199254740994: a floating-point number is exact up to 9007199254740992 only: write it as a whole number, \
         7: delta has no value: a whole number expected"
    );
    let floats = Written::F32(vec![Some(7.0), Some(16_777_218.0)]);
    let told = read("optional float delta", floats);
    assert!(
        told.starts_with("1: Up 7 -, 2: delta 16777218: a floating-point number is exact up to 16777216"),
        "{told}"
    );
    let fixed = |numbers: &[i128], bytes: usize| {
        Written::Fixed(numbers.iter().map(|number| Some(number.to_be_bytes()[16 - bytes..].to_vec())).collect())
    };
    assert_eq!(
        read("optional fixed_len_byte_array(16) delta (DECIMAL(38,0))", fixed(&[5, -3, 0], 16)),
        "1: Up 5 -, 2: Down 3 -, 3: nothing"
    );
    let many: Vec<i128> = (1..=100).collect();
    let told = read("optional fixed_len_byte_array(1) delta (DECIMAL(2,0))", fixed(&many, 1));
    assert!(told.ends_with("100: Up 100 -"), "{told}");
    assert_eq!(
        read("optional int64 delta (DECIMAL(9,2))", Written::I64(vec![Some(500), Some(-1_250)])),
        "1: Up 5 -, 2: delta \"-12.50\": a whole number expected"
    );
    assert_eq!(read("optional int32 delta (DECIMAL(9,0))", Written::I32(vec![Some(5)])), "1: Up 5 -");
    let bytes = Written::Bytes(vec![
        Some(vec![0xff, 0xfd]),
        Some(vec![]),
        Some([vec![0; 4], vec![1; 16]].concat()),
        Some(vec![1; 17]),
    ]);
    let told = read("optional binary delta (DECIMAL(40,0))", bytes);
    assert!(
        told.starts_with("1: Down 3 -, 2: nothing, 3: delta 1334440654591915542993625911497130241: at most"),
        "{told}"
    );
    assert!(told.ends_with("4: delta is a decimal number of more than 16 bytes: a whole number expected"), "{told}");
    let seconds = Written::F64(vec![Some(60.0), None]);
    assert_eq!(read("optional double at", seconds), "1: Up 1 60, 2: Up 1 -");
    let names = |schema: &str, column: Written| {
        let bytes = file(schema, WriterProperties::builder(), vec![vec![column]]);
        self::told(&bytes, &Naming { prefix: "qa/".into(), ..Naming::default() })
    };
    let numbers = names("optional fixed_len_byte_array(16) counter (DECIMAL(38,0));", fixed(&[7], 16));
    assert_eq!(numbers, Ok(vec!["1: qa/7 Up 1 -".to_owned()]));
    let floats = names("optional double counter;", Written::F64(vec![Some(7.0)])).unwrap_err();
    assert_eq!(floats, "Parquet: column \"counter\" has floating-point numbers: texts or whole numbers expected");
}

#[test]
fn times_without_a_zone_need_one_in_parquet_too() {
    let clock = [Some(1_761_445_800_000), Some(1_774_751_400_000)];
    let written = || Written::I64(clock.to_vec());
    let refused = read_in("", "optional int64 at (TIMESTAMP(MILLIS,false))", written());
    assert!(
        refused.starts_with("Parquet: column \"at\" has no zone: name the zone") && refused.contains("--zone"),
        "{refused}"
    );
    let s = |text: &str| text.parse::<UnixTime>().unwrap().s();
    // Twice on the clock, and left out by it.
    let expected = format!("1: Up 1 {}, 2: Up 1 {}", s("2025-10-26T02:30:00+02:00"), s("2026-03-29T03:30:00+02:00"));
    assert_eq!(read_in("Europe/Berlin", "optional int64 at (TIMESTAMP(MILLIS,false))", written()), expected);
    let instants = "1: Up 1 1761445800, 2: Up 1 1774751400";
    for schema in ["optional int64 at (TIMESTAMP(MILLIS,true))", "optional int64 at (TIMESTAMP_MILLIS)"] {
        for zone in ["", "Europe/Berlin"] {
            assert_eq!(read_in(zone, schema, written()), instants, "{schema}");
        }
    }
    let date = || Written::I32(vec![Some(20_785)]);
    assert!(read_in("", "optional int32 at (DATE)", date()).contains("--zone"));
    let midnight = format!("1: Up 1 {}", s("2026-11-28T00:00:00+01:00"));
    assert_eq!(read_in("Europe/Berlin", "optional int32 at (DATE)", date()), midnight);
    let julian = || Written::I96(vec![Some(Int96::from(vec![0, 0, 2_440_588 + 20_785]))]);
    assert!(read_in("", "optional int96 at", julian()).contains("--zone"));
    assert_eq!(read_in("Europe/Berlin", "optional int96 at", julian()), midnight);
}

#[test]
fn columns_that_are_no_single_values_are_named_as_what_they_are() {
    let told = |schema: &str| {
        let schema = Arc::new(parse_message_type(&format!("message rows {{ {schema} }}")).unwrap());
        let properties = Arc::new(WriterProperties::builder().build());
        let bytes = SerializedFileWriter::new(Vec::new(), schema, properties).unwrap().into_inner().unwrap();
        self::told(&bytes, &Naming::default()).unwrap_err()
    };
    let list = told("optional group counter (LIST) { repeated group list { optional binary element (UTF8); } }");
    assert_eq!(list, "Parquet: column \"counter\" has lists: texts, numbers or times expected");
    assert!(told("repeated binary counter (UTF8);").contains("has lists"));
    let map = "optional group counter (MAP) { repeated group key_value { required binary key (UTF8); optional int32 value; } }";
    assert!(told(map).contains("has maps"));
    assert!(told("optional group counter { optional binary a (UTF8); }").contains("has fields of its own"));
    assert!(told("optional binary counter (UTF8); optional boolean delta;").contains("column \"delta\" is BOOLEAN"));
    assert!(
        told("optional binary counter (UTF8); optional int64 delta; optional int64 Delta;")
            .contains("two columns are called")
    );
    let lz4 = file(
        "optional binary counter (UTF8);",
        WriterProperties::builder().set_compression(Compression::UNCOMPRESSED),
        vec![vec![Written::Texts(vec![Some("qa/a")])]],
    );
    for (codec, name) in [(CompressionCodec::LZ4_RAW, "LZ4_RAW"), (CompressionCodec::BROTLI, "BROTLI")] {
        let told = self::told(&with_columns(&lz4, |column| column.set_compression_codec(codec)), &Naming::default())
            .unwrap_err();
        assert!(told.contains(&format!("compressed with {name}, which is not read: write it with snappy")), "{told}");
    }
}

/// The file with other words about its columns.
fn with_columns(bytes: &[u8], change: impl Fn(ColumnChunkMetaDataBuilder) -> ColumnChunkMetaDataBuilder) -> Vec<u8> {
    let file = Bytes::copy_from_slice(bytes);
    let metadata = ParquetMetaDataReader::new().parse_and_finish(&file).unwrap();
    let length = u32::from_le_bytes(bytes[bytes.len() - 8..][..4].try_into().unwrap()) as usize;
    let groups = metadata.row_groups().iter().map(|group| {
        let columns = group.columns().iter().map(|column| change(column.clone().into_builder()).build().unwrap());
        group.clone().into_builder().set_column_metadata(columns.collect()).build().unwrap()
    });
    let metadata = ParquetMetaData::new(metadata.file_metadata().clone(), groups.collect());
    let mut changed = bytes[..bytes.len() - 8 - length].to_vec();
    ParquetMetaDataWriter::new(&mut changed, &metadata).finish().unwrap();
    changed
}

/// As `dict-page-offset-zero.parquet` of Apache's test files has it.
#[test]
fn a_dictionary_at_offset_0_is_none() {
    let properties = WriterProperties::builder().set_dictionary_enabled(false);
    let bytes = file(
        "optional binary counter (UTF8);",
        properties,
        vec![vec![Written::Texts(vec![Some("qa/a"), Some("qa/b")])]],
    );
    let expected = ["1: qa/a Up 1 -", "2: qa/b Up 1 -"];
    assert_eq!(told(&bytes, &Naming::default()).unwrap(), expected);
    let changed = with_columns(&bytes, |column| column.set_dictionary_page_offset(Some(0)));
    assert_eq!(told(&changed, &Naming::default()).unwrap(), expected);
}

/// The same table in the three formats.
#[test]
fn csv_json_lines_and_parquet_of_one_table_have_the_same_rows() {
    let mut random = ChaCha8Rng::seed_from_u64(70);
    let counters = ["qa/a", "qa/b,c", "qa/\"d\"", "qa/e\nf", "qa/%41", "none", " ", "qa/ü"];
    let deltas = ["5", "-3", "0", "5.0", "1e3", "1.5", "x", "", "1099511627777"];
    let times = ["60", "60.0", "1970-01-01T00:01:00Z", "1970-01-02", "1970-01-02 03:00:00.5", "", "soon", "-1"];
    let mut pick = |texts: &[&'static str]| match random.random_range(0..=texts.len()) {
        none if none == texts.len() => None,
        some => Some(texts[some]),
    };
    let rows: Vec<_> = (0..2_000).map(|_| (pick(&counters), pick(&deltas), pick(&times))).collect();
    let quoted = |text: Option<&str>| text.map_or(String::new(), |text| format!("\"{}\"", text.replace('"', "\"\"")));
    let csv =
        rows.iter().map(|(counter, delta, at)| format!("{},{},{}\n", quoted(*counter), quoted(*delta), quoted(*at)));
    let csv = format!("counter,delta,at\n{}", csv.collect::<String>());
    let json = rows.iter().map(|(counter, delta, at)| {
        serde_json::json!({"counter": counter, "delta": delta, "at": at}).to_string() + "\n"
    });
    let naming = in_zone("Asia/Kathmandu");
    let without_line = |told: String| told.split_once(": ").unwrap().1.to_owned();
    let lines = |text: String| {
        let text = Text::open(std::io::Cursor::new(text.into_bytes())).unwrap();
        let mut lines = Lines::new(text, &naming).unwrap();
        let mut told = Vec::new();
        while let Some(read) = lines.next_row().unwrap() {
            told.push(without_line(shown(&read)));
        }
        told
    };
    let schema = "optional binary counter (UTF8); optional binary delta (UTF8); optional binary at (UTF8);";
    let columns = vec![
        Written::Texts(rows.iter().map(|row| row.0).collect()),
        Written::Texts(rows.iter().map(|row| row.1).collect()),
        Written::Texts(rows.iter().map(|row| row.2).collect()),
    ];
    let parquet = told(&file(schema, WriterProperties::builder(), vec![columns]), &naming).unwrap();
    let parquet: Vec<String> = parquet.into_iter().map(without_line).collect();
    let csv = lines(csv);
    let json = lines(json.collect());
    assert_eq!(csv, parquet);
    assert_eq!(json, parquet);
    assert!(parquet.iter().filter(|told| told.starts_with("qa/")).count() > 200, "{parquet:?}");
}

#[test]
fn texts_that_are_none_are_broken_rows() {
    let long = vec![b'a'; 9 << 10];
    let counters = Written::Bytes(vec![Some(b"qa/\xff".to_vec()), Some(long), Some(b"qa/a".to_vec())]);
    let bytes = file("optional binary counter;", WriterProperties::builder(), vec![vec![counters]]);
    let expected = ["1: a text is no UTF-8", "2: a text has more than 8192 bytes", "3: qa/a Up 1 -"];
    assert_eq!(told(&bytes, &Naming::default()).unwrap(), expected);
}

/// `tests/parquet/make.py` has written it.
#[test]
fn rows_that_another_program_has_written() {
    let bytes = include_bytes!("../../../tests/parquet/pyarrow.parquet");
    let begin = "2026-01-01T00:00:00Z".parse::<UnixTime>().unwrap().s();
    let expected = (0..60).map(|row| {
        let delta = row % 5 + 1;
        let at = if row % 4 == 3 { "-".to_owned() } else { (begin + row * 3_600).to_string() };
        match row {
            13 => "14: counter is empty: NAMESPACE/KEY expected".to_owned(),
            row if row % 10 == 9 => format!("{}: delta has no value: a whole number expected", row + 1),
            row => format!("{}: qa/page/{} Up {delta} {at}", row + 1, row % 7),
        }
    });
    assert_eq!(told(bytes, &Naming::default()).unwrap(), expected.collect::<Vec<_>>());
    // A byte of a page, so that the page's checksum differs.
    let mut damaged = bytes.to_vec();
    damaged[420] ^= 1;
    assert_eq!(told(&damaged, &Naming::default()).unwrap_err(), "Parquet: Page CRC checksum mismatch (behind row 0)");
}

/// Small files, as different as writers make them.
fn small() -> Vec<Vec<u8>> {
    let schema = "optional binary counter (STRING); required int32 delta; optional int64 at (TIMESTAMP(MILLIS,true));";
    let groups = |number: usize| {
        let columns = || {
            let counters = ["qa/a", "qa/b", "qa/a", "qa/abc", "qa/abcd", "qa/b"].map(Some).into_iter().chain([None]);
            let times = [60_000, 120_000, 60_000].map(Some).into_iter().chain([None, Some(1), Some(1 << 40), None]);
            let deltas = Written::I32([1, 2, 3, -4, 1, 1, 9].map(Some).to_vec());
            vec![Written::Texts(counters.collect()), deltas, Written::I64(times.collect())]
        };
        (0..number).map(|_| columns()).collect()
    };
    let plain = || WriterProperties::builder().set_dictionary_enabled(false);
    let second = || plain().set_writer_version(WriterVersion::PARQUET_2_0);
    let prefixes = || second().set_column_encoding("counter".into(), Encoding::DELTA_BYTE_ARRAY);
    let lengths = plain().set_column_encoding("counter".into(), Encoding::DELTA_LENGTH_BYTE_ARRAY);
    vec![
        file(schema, WriterProperties::builder().set_compression(Compression::SNAPPY), groups(2)),
        file(schema, prefixes().set_compression(Compression::ZSTD(Default::default())), groups(1)),
        file(schema, lengths.set_compression(Compression::GZIP(Default::default())), groups(1)),
        file(schema, prefixes(), groups(1)),
        file(schema, plain(), groups(1)),
    ]
}

/// Changes of each file.
const DAMAGES: u32 = 3_000;
/// Rows that are read of a damaged file. Few bytes may say that a value comes again, very often.
const ROWS_READ_MAX: u64 = 2_000;

/// How many rows a file gives, each with its number, and whether it ends with an error, which is then its last word.
fn outcome(bytes: &Bytes) -> (Vec<Result<Option<Event>, RowFault>>, Option<String>) {
    let mut rows = match Rows::open(bytes.clone(), &Naming::default()) {
        Ok(rows) => rows,
        Err(error) => return (Vec::new(), Some(error.to_string())),
    };
    let mut read = Vec::new();
    for number in 1..=ROWS_READ_MAX {
        match rows.next_row() {
            Ok(Some(Read { line, row })) => {
                assert_eq!(line, number, "rows are numbered one after the other");
                read.push(row);
            }
            Ok(None) => {
                assert!(matches!(rows.next_row(), Ok(None)), "nothing comes behind the end");
                return (read, None);
            }
            Err(error) => {
                let again = rows.next_row().map(drop).unwrap_err().to_string();
                assert_eq!(again, error.to_string(), "nothing comes behind an error");
                return (read, Some(again));
            }
        }
    }
    (read, None)
}

#[test]
fn a_damaged_file_is_an_error_or_has_the_same_rows_each_time() {
    let mut random = ChaCha8Rng::seed_from_u64(47);
    for (which, good) in small().into_iter().map(Bytes::from).enumerate() {
        let (rows, error) = outcome(&good);
        assert!(
            error.is_none() && rows.len().is_multiple_of(7) && rows.iter().flatten().count() > 0,
            "{which}: {error:?}"
        );
        for end in 0..good.len() {
            let (rows, error) = outcome(&good.slice(..end));
            assert!(rows.is_empty() && error.is_some(), "{which}: cut off at {end}");
        }
        let mut refused = 0;
        let mut unchanged = 0;
        let mut taken = 0;
        for _ in 0..DAMAGES {
            let mut bytes = good.to_vec();
            for _ in 0..random.random_range(1..=3) {
                let at = random.random_range(0..bytes.len());
                bytes[at] = random.random();
            }
            let bytes = Bytes::from(bytes);
            let found = outcome(&bytes);
            assert_eq!(found, outcome(&bytes), "{which}: the same bytes twice");
            match found {
                (_, Some(_)) => refused += 1,
                (read, None) if read == rows => unchanged += 1,
                (_, None) => taken += 1,
            }
        }
        assert!(refused > 0 && unchanged > 0 && taken > 0, "{which}: {refused} {unchanged} {taken}");
    }
}

/// A number as it stands in the header of a page.
fn zigzag(number: u64, bytes: usize) -> Vec<u8> {
    let all = (0..bytes).map(|at| (number << 1 >> (at * 7)) as u8 & 0x7f | if at + 1 < bytes { 0x80 } else { 0 });
    all.collect()
}

/// Sizes are believed up to their limits only, and no further than what is there.
#[test]
fn what_would_become_too_large_is_refused_before_it_is_made() {
    let one = |compression, text: Vec<u8>| {
        let properties = WriterProperties::builder().set_compression(compression).set_dictionary_enabled(false);
        file("optional binary counter;", properties, vec![vec![Written::Bytes(vec![Some(text)])]])
    };
    // Behind the magic: a page of kind 0, and its size in four bytes.
    let saying = |compression, mib: u64| {
        let mut bytes = one(compression, vec![b'a'; 2 << 20]);
        assert_eq!((&bytes[4..7], bytes[10] & 0x80), (&[0x15, 0, 0x15][..], 0));
        bytes[7..11].copy_from_slice(&zigzag(mib << 20, 4));
        told(&bytes, &Naming::default()).unwrap_err()
    };
    let gzip = Compression::GZIP(Default::default());
    let zstd = Compression::ZSTD(Default::default());
    let refused = "Parquet: a page has 104857600 bytes, and 67108864 are allowed (behind row 0)";
    assert_eq!((saying(gzip, 100).as_str(), saying(zstd, 100).as_str()), (refused, refused));
    assert_eq!(saying(gzip, 1), "Parquet: a page unpacks to more than it says (behind row 0)");
    // A dictionary of one text of 4 bytes, that says it has 60.
    let properties = WriterProperties::builder();
    let mut bytes = file("optional binary counter;", properties, vec![vec![Written::Texts(vec![Some("qa/a")])]]);
    assert_eq!(bytes[10..13], [0x4c, 0x15, 2]);
    bytes[12] = 120;
    let refused = "Parquet: a dictionary has 60 values (behind row 0)";
    assert_eq!(told(&bytes, &Naming::default()).unwrap_err(), refused);
    let mut bytes = one(Compression::UNCOMPRESSED, b"qa/a".to_vec());
    let length = bytes.len() - 8;
    bytes[length..length + 4].copy_from_slice(&(17u32 << 20).to_le_bytes());
    let refused = "Parquet: its metadata has 17825792 bytes, and 16777216 are allowed";
    assert_eq!(told(&bytes, &Naming::default()).unwrap_err(), refused);
}
