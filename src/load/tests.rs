//! Rows as users write them: each format, each rule of columns, and CSV against two other readers.

use super::columns::{Event, Naming};
use super::rows::{Found, Lines, Read, RowError, Source, parse_delimiter};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use std::fs::File;
use std::io::{BufReader, Cursor, Write};
use std::process::{Command, Stdio};
use tidemark_files::csv::{FIELDS_MAX, RECORD_BYTES_MAX, Record, Records};
use tidemark_files::unpack::Text;
use tidemark_proto::load::Row;

/// Small pieces, so that records begin and end anywhere in them.
const PIECE_BYTES: usize = 7;

fn lines(bytes: &[u8], naming: &Naming) -> Result<Lines, RowError> {
    let reader = BufReader::with_capacity(PIECE_BYTES, Cursor::new(bytes.to_vec()));
    Lines::new(Text::open(reader)?, naming)
}

fn all(bytes: &[u8], naming: &Naming) -> Result<Vec<Read>, RowError> {
    let mut lines = lines(bytes, naming)?;
    let mut rows = Vec::new();
    while let Some(read) = lines.next_row()? {
        rows.push(read);
    }
    Ok(rows)
}

/// A row, or why it is none, in one line.
pub fn shown(read: &Read) -> String {
    match &read.row {
        Ok(Some(Event { row: Row { counter, half, delta, at }, id })) => {
            let at = at.map_or("-".to_owned(), |at| at.s().to_string());
            let id = id.as_ref().map_or(String::new(), |id| format!(" id {id}"));
            format!("{}: {counter} {half:?} {delta} {at}{id}", read.line)
        }
        Ok(None) => format!("{}: nothing", read.line),
        Err(why) => format!("{}: {why}", read.line),
    }
}

fn told_as(bytes: &[u8], naming: &Naming) -> Result<Vec<String>, String> {
    Ok(all(bytes, naming).map_err(|error| error.to_string())?.iter().map(shown).collect())
}

fn told(text: &str) -> Vec<String> {
    told_as(text.as_bytes(), &Naming::default()).unwrap()
}

fn refused(text: &str) -> String {
    told_as(text.as_bytes(), &Naming::default()).unwrap_err()
}

fn in_zone(zone: &str) -> Naming {
    Naming { zone: Some(zone.to_owned()), ..Naming::default() }
}

#[test]
fn text_inside_a_quoted_field_is_never_a_row() {
    let file = "counter,delta,comment\nshop/v1,1,\"a\nshop/v2,777,\n b\"\nshop/v3,3,c\n";
    assert_eq!(told(file), ["2: shop/v1 Up 1 -", "5: shop/v3 Up 3 -"]);
    let file = "comment,counter,delta\r\n\"a\r\nx,shop/v2,7\r\n\"\"b\"\"\",shop/v1,1\r\n,shop/v3,3\r\n";
    assert_eq!(told(file), ["2: shop/v1 Up 1 -", "5: shop/v3 Up 3 -"]);
    // A blank in front of the quote changes nothing.
    let file = "counter,delta,comment\nshop/v1, 1 , \"a\nshop/v2,777,\n b\" \nshop/v3,3,c\n";
    assert_eq!(told(file), ["2: shop/v1 Up 1 -", "5: shop/v3 Up 3 -"]);
}

#[test]
fn a_quote_that_is_not_closed_refuses_the_file_and_says_where_it_opened() {
    let open = refused("counter,delta\nshop/a,1\n\"shop/b,2\nshop/c,3\n");
    assert_eq!(
        open,
        "line 3: a quote opens a field, and no quote closes it before the file ends: 3 lines would be one row"
    );
    // The quote of a later row closes it, and text follows.
    let swallowed = refused("counter,delta,x\nshop/a,1,\"abc\nshop/b,2,d\nshop/c,3,\"e\"\n");
    assert!(swallowed.starts_with("lines 2 to 4 would be one row:") && swallowed.contains("in line 4"), "{swallowed}");
    let long = format!("counter,x\nshop/a,\"{}\nshop/b,\"\"\n", "y\n".repeat(RECORD_BYTES_MAX));
    assert!(refused(&long).starts_with("line 2: a quote opens a field, and its row is longer than 1048576 bytes"));
    let closed = format!("counter,x\nshop/a,\"{}\"\nshop/b,\"\"\n", "y\n".repeat(RECORD_BYTES_MAX / 2));
    assert!(refused(&closed).starts_with("line 2: a quote opens"));
}

#[test]
fn rows_of_csv_are_read_and_broken_ones_named_by_their_lines() {
    let csv = "\u{feff}at,counter,delta\r\n1970-01-01T00:01:00Z,qa/a,2\r\n\n,\"qa/b,c\",1\nx,qa/a,1\n60,qa,1\n\
               60,qa/a,0\n60,qa/a,-3\n60\n60,\"qa/a\"x,1\n60,qa/\"a\",1\n60,qa/a,1,2\n60,qa/a,1,,\n60,qa/a%2F%FF,1";
    assert_eq!(
        told(csv),
        [
            "2: qa/a Up 2 60",
            "4: qa/b,c Up 1 -",
            "5: time \"x\": whole seconds since 1970, or as RFC 3339 writes it, such as 2026-11-24T08:00:00Z",
            "6: \"qa\" names no counter: NAMESPACE/KEY expected",
            "7: nothing",
            "8: qa/a Down 3 60",
            "9: 1 fields: the names of columns are 3",
            "10: text stands behind the quote that closes a field; a quote within a field is written twice",
            "11: qa/\"a\" Up 1 60",
            "12: 4 fields: the names of columns are 3",
            "13: qa/a Up 1 60",
            "14: qa/a/%FF Up 1 60",
        ]
    );
}

#[test]
fn records_that_are_too_large_are_broken_rows() {
    let long = format!("counter,x\nqa/a,{}\nqa/b,{}\nqa/c,1\n", "y".repeat(RECORD_BYTES_MAX + 1), "y".repeat(9 << 10));
    assert_eq!(told(&long), ["2: more than 1048576 bytes", "3: qa/b Up 1 -", "4: qa/c Up 1 -"]);
    let wide = format!("counter\nqa/a{}\nqa/b\n", ",".repeat(FIELDS_MAX));
    assert_eq!(told(&wide), ["2: more than 4096 fields", "3: qa/b Up 1 -"]);
    let names = refused(&format!("counter{}\n", ",x".repeat(FIELDS_MAX)));
    assert_eq!(names, "the names of columns, line 1: more than 4096 fields");
    let many = format!("{}counter\n{}qa/a\n", "x,".repeat(300), "1,".repeat(300));
    assert_eq!(told(&many), ["2: qa/a Up 1 -"]);
}

#[test]
fn lines_end_with_lf_crlf_or_cr_in_csv_and_json() {
    for end in ["\n", "\r\n", "\r"] {
        let csv = ["counter,delta", "qa/a,1", "", "qa/b,2", ""].join(end);
        assert_eq!(told(&csv), ["2: qa/a Up 1 -", "4: qa/b Up 2 -"], "{end:?}");
        let json = ["{\"counter\": \"qa/a\"}", "", "{\"counter\": \"qa/b\"}"].join(end);
        assert_eq!(told(&json), ["1: qa/a Up 1 -", "3: qa/b Up 1 -"], "{end:?}");
    }
}

#[test]
fn files_know_whether_each_row_is_a_line() {
    let has_only_lines = |text: &str| {
        let path = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(path.path(), text).unwrap();
        let mut source = Source::open(&File::open(path.path()).unwrap(), &Naming::default()).unwrap();
        while source.next_row().unwrap().is_some() {}
        source.has_only_lines()
    };
    assert!(has_only_lines("counter,x\r\n\"qa/a\",\"1\"\nqa/b,2"));
    assert!(has_only_lines("{\"counter\": \"qa/a\"}\r\n{\"counter\": \"qa/a\"}"));
    assert!(!has_only_lines("counter,x\nqa/a,\"\n\"\n"));
    assert!(!has_only_lines("counter\rqa/a\r"));
    assert!(!has_only_lines("{\"counter\": \"qa/a\"}\r{\"counter\": \"qa/a\"}"));
}

#[test]
fn the_delimiter_is_said_by_a_flag_or_a_first_line_and_named_where_it_is_missing() {
    let rows = ["2: qa/a,b Up 1 -"];
    for (flag, sign) in [(";", ";"), ("tab", "\t"), ("\\t", "\t"), ("|", "|")] {
        let naming = Naming { delimiter: Some(parse_delimiter(flag).unwrap()), ..Naming::default() };
        let text = format!("counter{sign}delta\nqa/a,b{sign}1\n");
        assert_eq!(told_as(text.as_bytes(), &naming).unwrap(), rows, "{flag}");
        let missing = refused(&text);
        assert!(missing.starts_with("the names of columns, line 1: there is no column \"counter\""), "{missing}");
        assert!(missing.ends_with(&format!("pass `--delimiter '{}'`", flag.replace("\\t", "tab"))), "{missing}");
    }
    assert_eq!(told("sep=;\r\ncounter;delta\r\nqa/a,b;1\r\n"), ["3: qa/a,b Up 1 -"]);
    let comma = Naming { delimiter: Some(','), ..Naming::default() };
    let differs = told_as(b"sep=;\ncounter;delta\n", &comma).unwrap_err();
    assert_eq!(
        differs,
        "the names of columns, line 1: it says that fields are separated by ';': leave `--delimiter` out"
    );
    for wrong in ["", "ab", "a", "\"", "1", "\n"] {
        assert!(parse_delimiter(wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn columns_may_have_other_names_in_csv_and_json_and_counters_another_namespace() {
    let naming =
        Naming { counter: "answer".into(), delta: "views".into(), prefix: "qa/answer/".into(), ..Naming::default() };
    let told = |bytes: &[u8], naming: &Naming| told_as(bytes, naming);
    assert_eq!(told(b"day,ANSWER,Views\n1,7,3", &naming).unwrap(), ["2: qa/answer/7 Up 3 -"]);
    assert_eq!(told(b"{\"day\": [1], \"Answer\": 7, \"VIEWS\": 3}", &naming).unwrap(), ["1: qa/answer/7 Up 3 -"]);
    let moved = Naming { namespace: Some("copy".into()), ..Naming::default() };
    assert_eq!(told(b"{\"counter\": \"qa/a\", \"at\": 61}", &moved).unwrap(), ["1: copy/a Up 1 61"]);
    let missing = told(b"counter,views\nqa/a,3", &naming).unwrap_err();
    assert_eq!(
        missing,
        "the names of columns, line 1: there is no column \"answer\": there are \"counter\", \"views\""
    );
    let missing = told(b"answer\n7", &naming).unwrap_err();
    assert!(missing.contains("there is no column \"views\""), "{missing}");
}

#[test]
fn two_columns_of_one_name_are_refused_and_others_are_named_as_ignored() {
    for names in ["counter,delta,delta", "counter,delta,DELTA", "Counter,counter"] {
        assert!(refused(&format!("{names}\nqa/a,1,2\n")).contains("two columns are called"), "{names}");
    }
    let found = |text: &str| {
        let mut lines = lines(text.as_bytes(), &Naming::default()).unwrap();
        while lines.next_row().unwrap().is_some() {}
        lines.found()
    };
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let csv = found("x,counter,x,,dleta\n,qa/a,,,5\n");
    assert_eq!(csv, Found { missing: names(&["delta", "at"]), ignored: names(&["x", "x", "dleta"]) });
    let json = found("{\"counter\": \"qa/a\", \"dleta\": {}}\n{\"counter\": \"qa/a\", \"dleta\": 1, \"x\": null}\n");
    assert_eq!(json, Found { missing: Vec::new(), ignored: names(&["dleta", "x"]) });
}

#[test]
fn json_lines_are_objects_whose_fields_stand_once() {
    let json = "\u{feff}{\"counter\": \"qa/a\", \"delta\": 3, \"at\": \"1970-01-01T00:01:00Z\", \"more\": {\"delta\": [1]}}\n\
                [\"qa/a\", 5]\n5\n{\"counter\": \"qa/a\", \"delta\": 1, \"delta\": 2}\n\
                {\"counter\": \"qa/a\", \"delta\": 1, \"Delta\": 2}\n{\"counter\": \"qa/a\"}{\"counter\": \"qa/a\"}\n{\"counter\":\n\
                {\"counter\": \"qa/\\u0061\\n\", \"delta\": \"5\"}\n{\"delta\": 5}\n{\"counter\": {}}\n{\"counter\": \"qa/a\", \"delta\": true}";
    let told = told(json);
    assert_eq!(told[0], "1: qa/a Up 3 60");
    for (line, why) in told[1..].iter().zip([
        "2: invalid type: sequence, expected a JSON object",
        "3: invalid type: integer `5`, expected a JSON object",
        "4: \"delta\" stands twice",
        "5: \"Delta\" stands twice",
        "6: trailing characters",
        "7: EOF",
        "8: qa/a\\n Up 5 -",
        "9: counter is missing",
        "10: counter is an object: a text expected",
        "11: delta is true or false: a whole number expected",
    ]) {
        assert!(line.starts_with(why) || line.escape_debug().to_string().starts_with(why), "{line} instead of {why}");
    }
    assert_eq!(refused("[{\"counter\": \"qa/a\"}]"), RowError::JsonArray.to_string());
    let long = format!(
        "{{}}\n{{\"counter\": \"qa/a\", \"x\": \"{}\"}}\n{{\"counter\": \"qa/a\"}}",
        "y".repeat(RECORD_BYTES_MAX)
    );
    assert_eq!(self::told(&long)[1..], ["2: more than 1048576 bytes", "3: qa/a Up 1 -"]);
}

/// A value of `delta` in both formats of text.
fn delta(value: &str) -> [String; 2] {
    let csv = told(&format!("counter,delta\nqa/a,{value}\n")).remove(0);
    let quoted = value.parse::<f64>().is_ok_and(f64::is_finite) && !value.starts_with('.') && !value.ends_with('.');
    let json = if quoted { value.to_owned() } else { format!("{value:?}") };
    let json = told(&format!("{{\"counter\":\"qa/a\",\"delta\":{json}}}\n")).remove(0);
    [csv, json].map(|line| line.split_once(": ").unwrap().1.to_owned())
}

#[test]
fn whole_numbers_may_be_written_with_a_point_or_an_exponent() {
    for (value, expected) in [
        ("5", "qa/a Up 5 -"),
        ("5.0", "qa/a Up 5 -"),
        ("5.000", "qa/a Up 5 -"),
        ("1e3", "qa/a Up 1000 -"),
        ("1.5E+1", "qa/a Up 15 -"),
        ("-20e-1", "qa/a Down 2 -"),
        ("0", "nothing"),
        ("-0.0", "nothing"),
        ("1099511627776", "qa/a Up 1099511627776 -"),
        ("1099511627776.0", "qa/a Up 1099511627776 -"),
        ("1099511627777", "delta 1099511627777: at most 1099511627776 up or down"),
        ("1e12", "qa/a Up 1000000000000 -"),
    ] {
        assert_eq!(delta(value), [expected, expected], "{value}");
    }
    for value in ["1.5", "1e-1", "1 234", "NaN", "null", "0x10", "1_0", "x", "1.", ".5", "1e999", "Infinity", "--1"] {
        for told in delta(value) {
            assert!(
                told.contains("a whole number expected") || told.contains("number out of range"),
                "{value}: {told}"
            );
        }
    }
    assert_eq!(told("counter,delta\nqa/a,\"1,234\"\n"), ["2: delta \"1,234\": a whole number expected"]);
    let inexact = told("{\"counter\":\"qa/a\",\"delta\":9007199254740994.0}").remove(0);
    assert!(
        inexact.contains("delta 9007199254740994: a floating-point number is exact up to 9007199254740992"),
        "{inexact}"
    );
}

#[test]
fn a_missing_column_a_missing_value_and_a_null_mean_the_same_in_each_format() {
    let csv = told("counter,delta,at\nqa/a,,60\n,1,60\nqa/a,1,\nqa/a,\"\",\" \"\n");
    let json = told(
        "{\"counter\":\"qa/a\",\"delta\":null,\"at\":60}\n{\"counter\":null,\"delta\":1,\"at\":60}\n\
         {\"counter\":\"qa/a\",\"delta\":1,\"at\":null}\n{\"counter\":\"qa/a\",\"delta\":\"\",\"at\":\" \"}\n",
    );
    let expected = [
        "delta has no value: a whole number expected",
        "counter is empty: NAMESPACE/KEY expected",
        "qa/a Up 1 -",
        "delta has no value: a whole number expected",
    ];
    for told in [csv, json] {
        assert_eq!(told.iter().map(|line| line.split_once(": ").unwrap().1).collect::<Vec<_>>(), expected);
    }
    assert_eq!(told("counter\nqa/a\n"), ["2: qa/a Up 1 -"]);
    assert_eq!(told("{\"counter\":\"qa/a\"}\n"), ["1: qa/a Up 1 -"]);
}

fn with_ids(column: &str) -> Naming {
    Naming { event_id: Some(column.to_owned()), ..Naming::default() }
}

#[test]
fn ids_are_texts_or_whole_numbers_and_broken_ones_name_column_value_and_limit() {
    let longest = "x".repeat(128);
    let csv = |id: &str| told_as(format!("counter,delta,Pay\nqa/a,2,{id}\n").as_bytes(), &with_ids("pay")).unwrap();
    let json = |id: &str| {
        told_as(format!("{{\"counter\":\"qa/a\",\"delta\":2,\"PAY\":{id}}}\n").as_bytes(), &with_ids("pay")).unwrap()
    };
    let row = |line: &str, id: &str| vec![format!("{line}: qa/a Up 2 - id {id}")];
    for id in ["p-1", "a/b#?%=", "007", "1.50", longest.as_str()] {
        assert_eq!(csv(id), row("2", id));
        assert_eq!(json(&format!("{id:?}")), row("1", id));
    }
    assert_eq!((csv("7"), json("7")), (row("2", "7"), row("1", "7")), "a number is its digits");
    assert_eq!(json("-18446744073709551615"), ["1: pay -18446744073709552000: a text or a whole number expected"]);
    let allowed = "1 to 128 visible ASCII characters";
    for (id, why) in [
        ("\"\"", format!("pay is empty: {allowed} expected")),
        ("\" \"", format!("pay is empty: {allowed} expected")),
        ("\"a b\"", format!("pay \"a b\": {allowed} allowed")),
        ("\"é\"", format!("pay \"é\": {allowed} allowed")),
        (&format!("\"{}\"", "x".repeat(129)), format!("pay \"{}…\" of 129 bytes: {allowed} allowed", "x".repeat(80))),
    ] {
        assert_eq!(csv(id), [format!("2: {why}")]);
        assert_eq!(json(id), [format!("1: {why}")]);
    }
    for (value, why) in [
        ("null", format!("pay is empty: {allowed} expected")),
        ("1.5", "pay 1.5: a text or a whole number expected".to_owned()),
        ("true", "pay is true or false: a text expected".to_owned()),
        ("[1]", "pay is a list: a text expected".to_owned()),
        ("{}", "pay is an object: a text expected".to_owned()),
    ] {
        assert_eq!(json(value), [format!("1: {why}")]);
    }
    let absent = told_as(b"{\"counter\":\"qa/a\"}\n", &with_ids("pay")).unwrap();
    assert_eq!(absent, ["1: pay is missing"]);
    // The column must be there, and is none of those that are ignored; without the flag it is one of them.
    let missing = told_as(b"counter\nqa/a\n", &with_ids("pay")).unwrap_err();
    assert!(missing.contains("there is no column \"pay\": there are \"counter\""), "{missing}");
    assert!(told_as(b"counter,pay,PAY\n", &with_ids("pay")).unwrap_err().contains("two columns are called"));
    let ignored = |naming: &Naming| lines(b"counter,pay\nqa/a,1\n", naming).unwrap().found().ignored;
    assert_eq!((ignored(&with_ids("pay")), ignored(&Naming::default())), (vec![], vec!["pay".to_owned()]));
    // A row that counts nothing needs an id all the same.
    assert_eq!(told_as(b"counter,delta,pay\nqa/a,0,\nqa/a,0,1\n", &with_ids("pay")).unwrap()[1], "3: nothing");
}

#[test]
fn times_without_a_zone_are_read_by_the_clock_of_the_zone_or_refuse_the_file() {
    let at = |text: &str, naming: &Naming| {
        let csv = told_as(format!("counter,at\nqa/a,{text}\n").as_bytes(), naming);
        let json = told_as(format!("{{\"counter\":\"qa/a\",\"at\":\"{text}\"}}\n").as_bytes(), naming);
        let time = |told: Result<Vec<String>, String>| match told {
            Ok(rows) => rows[0].split_once(": ").unwrap().1.replace("qa/a Up 1 ", ""),
            Err(why) => why.split_once(": ").unwrap().1.to_owned(),
        };
        let csv = time(csv);
        let json = time(json);
        assert_eq!(csv, json, "{text}");
        csv
    };
    let s = |text: &str| text.parse::<tidemark_proto::series::UnixTime>().unwrap().s().to_string();
    let none = Naming::default();
    let utc = in_zone("UTC");
    let berlin = in_zone("Europe/Berlin");
    for text in [
        "2026-11-28",
        "2026-11-28 03:00:00",
        "2026-11-28T03:00:00",
        "2026-11-28 03:00",
        "2026-11-28 03:00:00.123456789012",
    ] {
        let refused = at(text, &none);
        assert!(refused.contains(&format!("{text:?} has no zone")) && refused.contains("--zone"), "{refused}");
        let time = if text.len() == 10 { "00:00:00" } else { "03:00:00" };
        assert_eq!(at(text, &utc), s(&format!("2026-11-28T{time}Z")), "{text}");
        assert_eq!(at(text, &berlin), s(&format!("2026-11-28T{time}+01:00")), "{text}");
    }
    // With an offset, or as a number, the zone changes nothing.
    for naming in [&none, &berlin] {
        for text in [
            "2026-11-28 03:00:00+00:00",
            "2026-11-28 03:00:00+00",
            "2026-11-28 03:00:00 UTC",
            "1795834800",
            "1795834800.0",
        ] {
            assert_eq!(at(text, naming), s("2026-11-28T03:00:00Z"), "{text}");
        }
        for text in ["yesterday", "2026-13-01", "2026-11-28T25:00:00", "1969-12-31T00:00:00Z", "1.5"] {
            assert!(at(text, naming).parse::<u64>().is_err(), "{text}");
        }
    }
    // The clock shows 02:30 twice, the first time in summer; and never on the day on which it leaps from 02:00 to 03:00.
    assert_eq!(at("2026-10-25 02:30:00", &berlin), s("2026-10-25T02:30:00+02:00"));
    assert_eq!(at("2026-03-29 02:30:00", &berlin), s("2026-03-29T03:30:00+02:00"));
    // The day that Samoa left out is the next one.
    assert_eq!(at("2011-12-30", &in_zone("Pacific/Apia")), s("2011-12-31T00:00:00+14:00"));
    let unknown = told_as(b"counter\n", &in_zone("Europe/Bonn")).unwrap_err();
    assert!(unknown.contains("unknown time zone \"Europe/Bonn\""), "{unknown}");
}

#[test]
fn a_file_is_what_its_content_says() {
    let plain = b"{\"counter\": \"qa/a\", \"delta\": 3, \"at\": \"1970-01-01T00:01:00Z\"}\n{\"counter\": []}\n";
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(plain).unwrap();
    let dir = tempfile::tempdir().unwrap();
    for (name, bytes) in [
        ("plain", plain.to_vec()),
        ("gzip", gzip.finish().unwrap()),
        ("zstd", zstd::encode_all(&plain[..], 1).unwrap()),
    ] {
        let path = dir.path().join(name);
        std::fs::write(&path, &bytes).unwrap();
        let read_all = || {
            let mut source = Source::open(&File::open(&path).unwrap(), &Naming::default())?;
            let mut lines = Vec::new();
            while let Some(read) = source.next_row()? {
                lines.push((read.line, read.row.is_ok()));
            }
            Ok::<_, RowError>(lines)
        };
        assert_eq!(read_all().unwrap(), [(1, true), (2, false)], "{name}");
        std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
        assert!(name == "plain" || read_all().is_err(), "{name} is cut off");
    }
}

#[test]
fn parquet_is_known_by_its_first_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let open = |bytes: &[u8]| {
        let path = dir.path().join("file");
        std::fs::write(&path, bytes).unwrap();
        Source::open(&File::open(&path).unwrap(), &Naming::default()).map(drop).unwrap_err().to_string()
    };
    let alone = open(b"PAR1");
    #[cfg(feature = "parquet")]
    assert_eq!(alone, "Parquet: it is cut off");
    #[cfg(not(feature = "parquet"))]
    assert_eq!(alone, format!("Parquet: {}", super::rows::NO_PARQUET));
    let inside = open(&zstd::encode_all(&b"PAR1"[..], 1).unwrap());
    assert_eq!(inside, "the file is zstd with Parquet inside: unpack it once, and load what comes out");
}

/// The records of a text with their fields, or `None` where the text is refused. A broken record stands for a refusal too.
fn records(text: &[u8], piece_bytes: usize) -> Option<Vec<Vec<Vec<u8>>>> {
    let mut records = Records::new(BufReader::with_capacity(piece_bytes, text), b',', 0);
    let mut all = Vec::new();
    loop {
        match records.read().ok()? {
            Record::Sound => all.push(records.fields().iter().map(<[u8]>::to_vec).collect()),
            Record::Broken(_) => return None,
            Record::End => return Some(all),
        }
    }
}

/// The records that `csv-core` reads.
fn records_of_csv_core(text: &[u8]) -> Vec<Vec<Vec<u8>>> {
    let mut reader = csv_core::Reader::new();
    let mut rest = text;
    let mut all = Vec::new();
    let mut output = vec![0; text.len() + 1];
    let mut ends = vec![0; text.len() + 2];
    loop {
        let mut written = 0;
        let mut count = 0;
        loop {
            let (result, read, bytes, fields) = reader.read_record(rest, &mut output[written..], &mut ends[count..]);
            (rest, written, count) = (&rest[read..], written + bytes, count + fields);
            match result {
                csv_core::ReadRecordResult::InputEmpty => {}
                csv_core::ReadRecordResult::Record => break,
                csv_core::ReadRecordResult::End => return all,
                full => panic!("{full:?}"),
            }
        }
        let starts = [0].into_iter().chain(ends.iter().copied());
        all.push(starts.zip(&ends[..count]).map(|(start, end)| output[start..*end].to_vec()).collect());
    }
}

/// Fields without what is read differently on purpose: blanks in front of quotes.
fn any_csv() -> impl Strategy<Value = String> {
    let signs =
        prop_oneof![Just("\""), Just(","), Just("\n"), Just("\r"), Just("\r\n"), Just("a"), Just("\"\""), Just("é")];
    prop::collection::vec(signs, 0..40).prop_map(|signs| signs.concat())
}

/// The records that Python's `csv` finds in each text, in one process: `null`, where its strict reader refuses it.
fn records_of_python(texts: &[String]) -> Vec<Option<Vec<Vec<String>>>> {
    const PROGRAM: &str = "
import csv, io, json, sys
def read(text):
    try:
        return [row for row in csv.reader(io.StringIO(text, newline=''), strict=True) if row]
    except csv.Error:
        return None
json.dump([read(text) for text in json.load(sys.stdin)], sys.stdout)";
    python(PROGRAM, texts)
}

/// The answer of a Python program to an input.
fn python<T: serde::de::DeserializeOwned>(program: &str, input: &(impl serde::Serialize + ?Sized)) -> T {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("input.json");
    std::fs::write(&path, serde_json::to_vec(input).unwrap()).unwrap();
    let mut python = Command::new("python3");
    python.args(["-c", program]).stdin(File::open(&path).unwrap()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    let output = python.output().expect("python3 runs");
    assert!(output.status.success(), "python3 failed");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Values of a strategy, the same in each run.
fn generated<T>(strategy: &impl Strategy<Value = T>, count: usize) -> Vec<T> {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    (0..count).map(|_| strategy.new_tree(&mut runner).unwrap().current()).collect()
}

/// Texts of the property test.
const TEXTS: usize = 5_000;

#[test]
fn csv_is_read_as_python_reads_it_strictly() {
    let texts = generated(&any_csv(), TEXTS);
    let mut sound = 0;
    let mut refused = 0;
    for (text, expected) in texts.iter().zip(records_of_python(&texts)) {
        let bytes = |rows: Vec<Vec<String>>| -> Vec<Vec<Vec<u8>>> {
            rows.into_iter().map(|row| row.into_iter().map(String::into_bytes).collect()).collect()
        };
        for piece_bytes in [1, 3, 4_096] {
            assert_eq!(records(text.as_bytes(), piece_bytes), expected.clone().map(bytes), "{text:?}");
        }
        if expected.is_some() { sound += 1 } else { refused += 1 }
    }
    assert!(sound > TEXTS / 10 && refused > TEXTS / 10, "{sound} {refused}");
}

#[test]
fn tables_that_python_writes_are_read_as_they_were() {
    const PROGRAM: &str = "
import csv, io, json, sys
def write(table, dialect):
    text = io.StringIO(newline='')
    end, quoting, delimiter = dialect
    csv.writer(text, lineterminator=end, quoting=quoting, delimiter=delimiter).writerows(table)
    return text.getvalue()
dialects = [(end, quoting, delimiter) for end in ['\\n', '\\r\\n'] for quoting in [csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]
            for delimiter in ',;\\t']
json.dump([[(d[2], write(table, d)) for d in dialects] for table in json.load(sys.stdin)], sys.stdout)";
    let field = prop_oneof![
        "[a-z0-9/]{1,6}",
        prop::collection::vec(
            prop_oneof![
                Just("\""),
                Just(","),
                Just(";"),
                Just("\t"),
                Just("\n"),
                Just("\r\n"),
                Just("x"),
                Just("ü"),
                Just("qa/b,1\n")
            ],
            0..6
        )
        .prop_map(|parts| format!("x{}x", parts.concat())),
    ];
    let table = prop::collection::vec((0..4u32, 1..100u64, field), 1..8);
    let tables = generated(&table, 300);
    let rows = |table: &[(u32, u64, String)]| {
        let names = ["counter", "comment", "delta"].map(str::to_owned).to_vec();
        let rows =
            table.iter().map(|(counter, delta, text)| vec![format!("qa/{counter}"), text.clone(), delta.to_string()]);
        std::iter::once(names).chain(rows).collect::<Vec<_>>()
    };
    let written: Vec<Vec<(String, String)>> =
        python(PROGRAM, &tables.iter().map(|table| rows(table)).collect::<Vec<_>>());
    for (table, files) in tables.iter().zip(written) {
        let expected: Vec<String> =
            table.iter().map(|(counter, delta, _)| format!("qa/{counter} Up {delta} -")).collect();
        for (delimiter, file) in files {
            let naming = Naming { delimiter: delimiter.chars().next(), ..Naming::default() };
            let told = told_as(file.as_bytes(), &naming).unwrap_or_else(|error| panic!("{error}: {file}"));
            let told: Vec<&str> = told.iter().map(|line| line.split_once(": ").unwrap().1).collect();
            assert_eq!(told, expected, "{file}");
        }
    }
}

proptest! {
    #[test]
    fn sound_csv_is_read_as_csv_core_reads_it(text in any_csv()) {
        let found = records(text.as_bytes(), 5);
        // csv-core reads also what is refused here.
        if let Some(found) = found {
            prop_assert_eq!(found, records_of_csv_core(text.as_bytes()));
        }
    }

    #[test]
    fn garbage_never_panics(bytes in prop::collection::vec(prop_oneof![any::<u8>(), Just(b'\n'), Just(b','), Just(b'"')], 0..400)) {
        for begin in [&b""[..], b"counter,delta,at\n", b"{}\n", b"sep=;\n"] {
            let _ = all(&[begin, &bytes].concat(), &Naming::default());
            let _ = all(&[begin, &bytes].concat(), &in_zone("Europe/Berlin"));
        }
    }

    #[test]
    fn a_row_has_the_number_of_its_first_line(fields in prop::collection::vec("[a-z\n]{0,4}", 1..20)) {
        let mut text = "counter,x\n".to_owned();
        let mut line = 2;
        let mut expected = Vec::new();
        for field in fields {
            expected.push(line);
            text += &format!("qa/a,\"{field}\"\n");
            line += 1 + field.matches('\n').count() as u64;
        }
        let found: Vec<u64> = all(text.as_bytes(), &Naming::default()).unwrap().iter().map(|read| read.line).collect();
        prop_assert_eq!(found, expected);
    }
}
