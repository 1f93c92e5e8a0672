//! Files with unusable rows, and files that unpack into far more than they seem: rows become dead letters, and memory stays bounded.

#[allow(dead_code, reason = "the tests of the server use the rest")]
mod serving;
#[allow(dead_code, reason = "other tests use the rest")]
mod shop;

use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use serving::peak_kib;
use shop::Shop;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

const MIB: usize = 1 << 20;
const MAP: &str = "tenant=shop,listing=item,at=at";
/// The first second of year 1, and the last one of year 9999.
const YEAR_1_S: i64 = -62_135_596_800;
const YEAR_9999_S: i64 = 253_402_300_799;
/// A moment of 2026.
const SOUND_S: i64 = 1_767_225_600;
/// Memory that a load of a bomb may have used at most: less than any of them unpacks into.
const PEAK_KIB_MAX: u64 = 30 << 10;

impl Shop {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    /// Loads a file, and returns the last line that the command says.
    fn load(&self, path: &Path, map: &str, event_type: &str) -> String {
        let said = self.said(&["load", path.to_str().unwrap(), "--map", map, "--type", event_type]);
        said.lines().last().unwrap().rsplit_once("rows: ").unwrap().1.to_owned()
    }

    /// The reasons of the dead letters, without numbers that depend on the clock. All letters are dropped.
    fn reasons(&self) -> Vec<String> {
        let letters = self.said(&["dead-letters", "list"]);
        if !letters.is_empty() {
            self.said(&["dead-letters", "drop", "--all"]);
        }
        let reason = |line: &str| {
            let letter: serde_json::Value = serde_json::from_str(line).unwrap();
            let reason = letter["reason"].as_str().unwrap().to_owned();
            match reason.split_once(" s ahead of now") {
                Some((begin, end)) => format!("{} N s ahead of now{end}", begin.rsplit_once(' ').unwrap().0),
                None => reason,
            }
        };
        letters.lines().map(reason).collect()
    }
}

/// What a row of seconds says, of which the first are those of year 1, of year 9999 and of milliseconds.
const REASONS_OF_NUMBERS: [&str; 3] = [
    "time -62135596800 s is before 1970",
    "time 253402300799 s is N s ahead of now: at most 300 s; are these milliseconds?",
    "time 1767225600000 s is N s ahead of now: at most 300 s; are these milliseconds?",
];

#[test]
fn years_1_and_9999_and_milliseconds_in_text_are_named() {
    let shop = Shop::new();
    let times = [YEAR_1_S, YEAR_9999_S, SOUND_S * 1_000, SOUND_S].map(|at| at.to_string());
    let texts = ["0001-01-01T00:00:00Z", "0001-01-01", "9999-12-31T23:59:59Z", "9999-12-31", "2026-01-01T00:00:00Z"];
    let no_clock = |text: &str| {
        format!(
            "at: time {text:?}: seconds since 1970, or a date or time such as 2026-11-24 or 2026-11-24T10:30, between 1970 and 3000"
        )
    };
    let reasons = [
        "at: time -62135596800 s: 0 (1970) to 32503680000 allowed".to_owned(),
        no_clock(texts[1]),
        no_clock(texts[2]),
        no_clock(texts[3]),
    ];
    let csv = |times: &[&str]| times.iter().fold("shop,item,at\n".to_owned(), |csv, at| format!("{csv}a,x,{at}\n"));
    let json = |times: &[&str], quote: &str| -> String {
        let line = |at: &&str| format!("{{\"shop\":\"a\",\"item\":\"x\",\"at\":{quote}{at}{quote}}}\n");
        times.iter().map(line).collect()
    };
    let times = times.each_ref().map(String::as_str);
    for (name, file) in [("times.csv", csv(&times)), ("times.ndjson", json(&times, ""))] {
        let path = shop.write(name, file);
        assert_eq!(shop.load(&path, MAP, "impression"), "1 counted, 3 dead letters", "{name}");
        assert_eq!(shop.reasons(), REASONS_OF_NUMBERS, "{name}");
    }
    for (name, file) in [("texts.csv", csv(&texts)), ("texts.ndjson", json(&texts, "\""))] {
        let path = shop.write(name, file);
        assert_eq!(shop.load(&path, MAP, "impression"), "1 counted, 4 dead letters", "{name}");
        assert_eq!(shop.reasons(), reasons, "{name}");
    }
    assert_eq!(shop.said(&["query", "a", "--by", "day"]), "2026-01-01T00:00:00+00:00\t4\n");
}

/// A Parquet file with the times as timestamps of UTC, by a clock, and as numbers.
fn times_as_parquet() -> Vec<u8> {
    const SCHEMA: &str = "message times {
        required binary shop (STRING);
        required int64 instant (TIMESTAMP(MILLIS,true));
        required int64 clock (TIMESTAMP(MICROS,false));
        required int64 number;
    }";
    let seconds = [YEAR_1_S, YEAR_9999_S, SOUND_S];
    let schema = Arc::new(parse_message_type(SCHEMA).unwrap());
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<ByteArrayType>().write_batch(&vec![ByteArray::from("a"); 3], None, None).unwrap();
    column.close().unwrap();
    for values in
        [seconds.map(|at| at * 1_000), seconds.map(|at| at * 1_000_000), [YEAR_1_S, YEAR_9999_S, SOUND_S * 1_000]]
    {
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<Int64Type>().write_batch(&values, None, None).unwrap();
        column.close().unwrap();
    }
    group.close().unwrap();
    writer.into_inner().unwrap()
}

#[test]
fn years_1_and_9999_and_milliseconds_in_parquet_are_named() {
    let shop = Shop::new();
    let path = shop.write("times.parquet", times_as_parquet());
    let load = |at: &str| shop.load(&path, &format!("tenant=shop,listing=shop,at={at}"), at);
    assert_eq!(load("instant"), "1 counted, 2 dead letters");
    assert_eq!(shop.reasons(), REASONS_OF_NUMBERS[..2]);
    assert_eq!(load("clock"), "1 counted, 2 dead letters");
    let clock = |at: i64| format!("at {at} s from 1970 on: not between 1970 and 3000");
    assert_eq!(shop.reasons(), [YEAR_1_S, YEAR_9999_S].map(clock));
    assert_eq!(load("number"), "0 counted, 3 dead letters");
    assert_eq!(shop.reasons(), REASONS_OF_NUMBERS);
}

#[test]
fn ids_of_a_mebibyte_in_a_file_are_dead_letters() {
    let shop = Shop::new();
    // A record has at most a mebibyte.
    let long = "x".repeat(MIB - 100);
    let longer = "x".repeat(MIB);
    let csv = format!(
        "shop,item,at\n{long},x,{SOUND_S}\na,{long},{SOUND_S}\n{longer},x,{SOUND_S}\na,{longer},{SOUND_S}\na,x,{SOUND_S}\n"
    );
    let json: String = [(&long, "x"), (&longer, "x"), (&"a".to_owned(), "x")]
        .map(|(tenant, listing)| format!("{{\"shop\":\"{tenant}\",\"item\":\"{listing}\",\"at\":{SOUND_S}}}\n"))
        .concat();
    assert_eq!(shop.load(&shop.write("ids.csv", csv), MAP, "impression"), "1 counted, 4 dead letters");
    let long = ["tenant has 1048476 bytes: at most 128", "listing has 1048476 bytes: at most 255"];
    assert_eq!(shop.reasons(), [&long[..], &["more than 1048576 bytes"; 2]].concat());
    assert_eq!(shop.load(&shop.write("ids.ndjson", json), MAP, "impression"), "1 counted, 2 dead letters");
    assert_eq!(shop.reasons(), ["tenant has 1048476 bytes: at most 128", "a line of more than 1048576 bytes"]);
}

#[test]
fn line_with_a_field_twice_is_a_dead_letter_and_stays_one() {
    let shop = Shop::new();
    let json = [
        r#"{"tenant":"a","tenant":"b","listing":"x","at":1767225600}"#,
        r#"{"tenant":"a","listing":"x","Listing":"y","at":1767225600}"#,
        r#"{"tenant":"a","listing":"x","at":1767225600,"other":1,"other":2}"#,
    ];
    let map = "tenant=tenant,listing=listing,at=at";
    assert_eq!(shop.load(&shop.write("twice.ndjson", json.join("\n")), map, "impression"), "1 counted, 2 dead letters");
    let twice = |first: &str, second: &str| {
        format!("the line has fields {first:?} and {second:?}: a column is expected once, in upper or lower case")
    };
    assert!(shop.said(&["dead-letters", "replay"]).starts_with("0 dead letters were replayed, 2 "));
    assert_eq!(shop.reasons(), [twice("tenant", "tenant"), twice("listing", "Listing")]);
    assert_eq!(shop.said(&["query", "a", "--by", "listing"]), "x\t1\n");
}

/// A file that unpacks into one byte, again and again.
struct Bomb<'a> {
    begin: &'a str,
    byte: u8,
    bytes: usize,
    end: &'a str,
}

impl Bomb<'_> {
    /// Writes the file, packed.
    fn write(&self, path: &Path) {
        let Bomb { begin, byte, bytes, end } = *self;
        let mut command = Command::new("gzip");
        let mut child = command.arg("-c").stdin(Stdio::piped()).stdout(File::create(path).unwrap()).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        let chunk = vec![byte; MIB];
        input.write_all(begin.as_bytes()).unwrap();
        (0..bytes / MIB).for_each(|_| input.write_all(&chunk).unwrap());
        input.write_all(end.as_bytes()).unwrap();
        drop(input);
        assert!(child.wait().unwrap().success());
        assert!(path.metadata().unwrap().len() < MIB as u64);
    }
}

/// Runs a command, and watches its memory.
fn bounded(mut command: Command) -> Output {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut peak = 0;
    while child.try_wait().unwrap().is_none() {
        peak = peak_kib(child.id()).unwrap_or(peak);
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!((1..PEAK_KIB_MAX).contains(&peak), "{peak} KiB");
    child.wait_with_output().unwrap()
}

#[test]
fn packed_bombs_are_read_within_bounded_memory() {
    /// What a bomb of one record unpacks into.
    const BYTES: usize = 256 * MIB;
    const BLANK_LINES: usize = 32 * MIB;
    let shop = Shop::new();
    let json = &format!("{{\"shop\":\"a\",\"item\":\"x\",\"at\":{SOUND_S}}}\n");
    let next_json = &format!("\n{json}");
    let row = &format!("a,x,{SOUND_S}\n");
    let next_row = &format!("\n{row}");
    let csv = &format!("shop,item,at\n{row}");
    let blanks = |begin, end| Bomb { begin, byte: b'\n', bytes: BLANK_LINES, end };
    let record = |begin, byte, end| Bomb { begin, byte, bytes: BYTES, end };
    let cases = [
        ("lines", blanks(json, json), "2 counted, 0 dead letters"),
        ("line", record(json, b' ', next_json), "2 counted, 1 dead letters"),
        ("blank", blanks("", ""), "the file is empty"),
        ("rows", blanks(csv, row), "2 counted, 0 dead letters"),
        ("row", record(csv, b'x', next_row), "2 counted, 1 dead letters"),
        ("names", record("shop,item,", b'x', next_row), "names the columns"),
    ];
    for (name, bomb, expected) in cases {
        let path = shop.path(&format!("{name}.gz"));
        bomb.write(&path);
        let output = bounded(shop.command(&["load", path.to_str().unwrap(), "--map", MAP]));
        let said = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).concat();
        assert!(said.contains(expected), "{name}: {said}");
        assert_eq!(output.status.success(), expected.ends_with("dead letters"), "{name}: {said}");
    }
    assert_eq!(shop.said(&["query", "a", "--by", "listing"]), "x\t8\n");
}
