//! Rows of text: CSV with a line of names, or a JSON object in each line.

use crate::error::SourceError;
use crate::mapping::{Columns, Mapping};
use crate::rows::{Row, Rows};
use crate::value::{Reading, Value, ValueError};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value as Json;
use std::borrow::Cow;
use std::fmt;
use std::io::{self, BufRead, Read};
use tidemark_files::csv::{Fields, RECORD_BYTES_MAX, Record, Records};
use tidemark_files::unpack::Text;
use tidemark_streams_core::names::CUT;

const COMMA: u8 = b',';
/// Letters of a line that a dead letter gets. It keeps fewer, and marks where it cut them.
const SHOWN_MAX: usize = 4_096;

type Reader = Box<dyn BufRead + Send>;

pub enum Lines {
    Csv { records: Records<Reader>, columns: Columns<Option<usize>>, names: usize },
    Json { reader: Reader, line: Vec<u8> },
}

impl Lines {
    pub fn open(text: Text, mapping: &Mapping) -> Result<Lines, SourceError> {
        let Text { mut reader, begin } = text;
        let first = match begin.trim_ascii_start().first() {
            Some(first) => Some(*first),
            None => first_behind_blanks(&mut reader)?,
        };
        match first {
            None => Err(SourceError::Empty),
            Some(b'[') => Err(SourceError::JsonArray),
            Some(b'{') => Ok(Lines::Json { reader, line: Vec::new() }),
            Some(_) => Lines::csv(reader, mapping),
        }
    }

    fn csv(reader: Reader, mapping: &Mapping) -> Result<Lines, SourceError> {
        let mut records = Records::new(reader, COMMA, 0);
        match records.read()? {
            Record::End => return Err(SourceError::Empty),
            Record::Broken(why) => return Err(SourceError::Names(why)),
            Record::Sound => {}
        }
        let names: Result<Vec<&str>, _> = records.fields().iter().map(std::str::from_utf8).collect();
        let names = names.map_err(|_| SourceError::Names("it is no UTF-8".to_owned()))?;
        let columns = mapping.find(&names)?;
        let names = names.len();
        Ok(Lines::Csv { records, columns, names })
    }

    /// Adds the next row. `false`: there is none.
    pub fn next(&mut self, reading: &Reading, rows: &mut Rows) -> Result<bool, SourceError> {
        match self {
            Lines::Csv { records, columns, names } => match records.read()? {
                Record::End => return Ok(false),
                Record::Broken(reason) => {
                    let text = format!("line {}", records.line());
                    rows.push(&Row::Broken { reason, text });
                }
                Record::Sound => push_csv(records.fields(), columns, *names, reading, rows),
            },
            Lines::Json { reader, line } => loop {
                if !next_line(reader, line)? {
                    return Ok(false);
                }
                // The rest of a longer line was passed over, and may not be blank.
                if line.len() > RECORD_BYTES_MAX || !line.trim_ascii().is_empty() {
                    push_json(line, reading, rows);
                    break;
                }
            },
        }
        Ok(true)
    }
}

/// A record has as many fields as there are names, or more where nothing is in them.
fn push_csv(fields: &Fields, columns: &Columns<Option<usize>>, names: usize, reading: &Reading, rows: &mut Rows) {
    let is_empty = |at: usize| fields.get(at).is_none_or(<[u8]>::is_empty);
    if fields.len() < names || !(names..fields.len()).all(is_empty) {
        let texts: Vec<_> = fields.iter().take(8).map(String::from_utf8_lossy).collect();
        let reason = format!("{} fields: the first line names {names} columns", fields.len());
        // Fields are no record, though one field may be the JSON of an event.
        return rows.push(&Row::Broken { reason, text: format!("{}{CUT}", shown(&texts.join(","))) });
    }
    let values = columns.as_ref().try_map(|at| {
        let Some(at) = *at else { return Ok(Value::NoColumn) };
        let text = std::str::from_utf8(fields.get(at).unwrap_or_default());
        text.map(Value::of_text).map_err(|_| at + 1)
    });
    match values {
        Ok(values) => reading.push(values, rows),
        Err(field) => rows.push(&Row::Broken { reason: format!("field {field} is no UTF-8"), text: String::new() }),
    }
}

/// The first byte that is not blank. The blanks before it are passed over.
fn first_behind_blanks(reader: &mut Reader) -> io::Result<Option<u8>> {
    loop {
        let buffer = reader.fill_buf()?;
        if buffer.is_empty() {
            return Ok(None);
        }
        if let Some(first) = buffer.trim_ascii_start().first() {
            return Ok(Some(*first));
        }
        let blanks = buffer.len();
        reader.consume(blanks);
    }
}

/// Reads a line, of which no more than a limit is kept. `false`: there is none.
fn next_line(reader: &mut Reader, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    reader.by_ref().take(RECORD_BYTES_MAX as u64 + 1).read_until(b'\n', line)?;
    if line.len() > RECORD_BYTES_MAX && line.last() != Some(&b'\n') {
        reader.skip_until(b'\n')?;
    }
    Ok(!line.is_empty())
}

fn push_json(line: &[u8], reading: &Reading, rows: &mut Rows) {
    let broken = |reason: String| {
        let text = match String::from_utf8_lossy(line) {
            Cow::Borrowed(text) => shown(text),
            // Where bytes had to be replaced it is not the record.
            Cow::Owned(replaced) => format!("{}{CUT}", shown(&replaced)),
        };
        Row::Broken { reason, text }
    };
    if line.len() > RECORD_BYTES_MAX {
        return rows.push(&broken(format!("a line of more than {RECORD_BYTES_MAX} bytes")));
    }
    let object: Object = match serde_json::from_slice(line) {
        Ok(object) => object,
        Err(error) => return rows.push(&broken(format!("no JSON object: {error}"))),
    };
    let values = reading.mapping.names().try_map(|name| name.map_or(Ok(Value::NoColumn), |name| object.value(name)));
    match values {
        Ok(values) => reading.push(values, rows),
        Err(error) => rows.push(&broken(error.to_string())),
    }
}

/// The fields of an object, in their order. A map of them would keep the last of two fields with one name.
struct Object(Vec<Field>);

struct Field {
    name: String,
    value: Json,
}

impl Object {
    /// The value of a column. Upper and lower case of ASCII letters are the same, as in the names of CSV.
    ///
    /// # Errors
    /// [`ValueError::TwoFields`].
    fn value(&self, column: &str) -> Result<Value<'_>, ValueError> {
        let mut found = self.0.iter().filter(|field| field.name.eq_ignore_ascii_case(column));
        let Some(field) = found.next() else { return Ok(Value::NoColumn) };
        match found.next() {
            None => Ok(json_value(&field.value)),
            Some(other) => Err(ValueError::TwoFields { first: field.name.clone(), second: other.name.clone() }),
        }
    }
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Object, D::Error> {
        deserializer.deserialize_map(ObjectVisitor)
    }
}

struct ObjectVisitor;

impl<'de> Visitor<'de> for ObjectVisitor {
    type Value = Object;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Object, A::Error> {
        let mut fields = Vec::new();
        while let Some((name, value)) = object.next_entry()? {
            fields.push(Field { name, value });
        }
        Ok(Object(fields))
    }
}

fn json_value(json: &Json) -> Value<'_> {
    match json {
        Json::Null => Value::Missing,
        Json::Bool(_) => Value::Other("true or false"),
        Json::Array(values) => Value::List(values.iter().map(json_value).collect()),
        Json::Object(_) => Value::Other("an object"),
        Json::String(text) => Value::of_text(text),
        Json::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(whole), ..) => Value::Whole(whole),
            // Ids of 64 bits without a sign are hashes. Their digits are the id, as in a text.
            (None, Some(large), _) => Value::Text(large.to_string().into()),
            (None, None, Some(float)) => Value::Float(float),
            (None, None, None) => Value::Other("a number that is too large"),
        },
    }
}

fn shown(text: &str) -> String {
    text.trim_end().chars().take(SHOWN_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::NoTenant;
    use std::io::Cursor;
    use tidemark_proto::series::calendar::Zone;
    use tidemark_streams_core::event::RawEvent;
    use tidemark_streams_core::owner::Record as Said;
    use tidemark_streams_core::values::DimensionNames;

    fn rows(text: &str) -> Result<Vec<String>, SourceError> {
        let mapping = Mapping::parse("tenant=t,listing=l,at=a,n=n", None).unwrap();
        let reading = Reading { mapping, zone: Zone::UTC, dimensions: DimensionNames::default() };
        let mut lines = Lines::open(Text::open(Cursor::new(text.as_bytes().to_vec()))?, &reading.mapping)?;
        let mut rows = Rows::default();
        while lines.next(&reading, &mut rows)? {}
        let shown = |record| match record {
            Said::Event(RawEvent { tenant, listing, at_s, count, .. }) => format!("{tenant} {listing} {at_s} {count}"),
            Said::Broken { reason, .. } => format!("broken: {reason}"),
        };
        Ok(rows.records("").map(shown).collect())
    }

    #[test]
    fn csv_and_json_lines_give_the_same_rows() {
        let csv = "t,l,a,n,other\nx,1,100,2,\n\ny,\"a\nb\",200,3.0,z\n";
        let json = r#"{"t":"x","l":1,"a":100,"n":2}

{"n":3.0,"T":"y","l":"a\nb","a":"200"}"#;
        let expected = ["x 1 100 2", "y a\nb 200 3"];
        assert_eq!(rows(csv).unwrap(), expected);
        assert_eq!(rows(json).unwrap(), expected);
    }

    #[test]
    fn ids_of_64_bits_without_a_sign_keep_their_digits() {
        let largest = u64::MAX;
        let expected = [format!("x {largest} 100 1"), format!("{largest} 9223372036854775808 100 1")];
        let csv = format!("t,l,a,n\nx,{largest},100,1\n{largest},9223372036854775808,100,1\n");
        let json = format!(
            r#"{{"t":"x","l":{largest},"a":100,"n":1}}
{{"t":{largest},"l":9223372036854775808,"a":100,"n":1}}"#
        );
        assert_eq!((rows(&csv).unwrap(), rows(&json).unwrap()), (expected.to_vec(), expected.to_vec()));
        let count = format!(r#"{{"t":"x","l":1,"a":100,"n":{largest}}}"#);
        assert!(rows(&count).unwrap()[0].starts_with("broken: n \"18446744073709551615\""));
    }

    #[test]
    fn pages_of_csv_and_json_lines_give_the_same_rows() {
        let read = |text: &str, separator| {
            let mapping = Mapping::parse("tenant=t,listings=l,at=a", None).unwrap().separated(separator).unwrap();
            let reading = Reading { mapping, zone: Zone::UTC, dimensions: DimensionNames::default() };
            let mut lines =
                Lines::open(Text::open(Cursor::new(text.as_bytes().to_vec())).unwrap(), &reading.mapping).unwrap();
            let mut rows = Rows::default();
            while lines.next(&reading, &mut rows).unwrap() {}
            rows
        };
        let lists = read("{\"t\":\"x\",\"l\":[1,\"a|b\"],\"a\":100}\n{\"t\":\"y\",\"l\":[\"c\"],\"a\":200}\n", None);
        let texts = read("{\"t\":\"x\",\"l\":\"1;a|b\",\"a\":100}\n{\"t\":\"y\",\"l\":\"c\",\"a\":200}\n", Some(";"));
        let csv = read("t,l,a\nx,1;a|b,100\ny,c,200\n", Some(";"));
        let listings: Vec<_> = lists.records("").map(|record| format!("{record:?}")).collect();
        let of = |rows: &Rows| rows.records("").map(|record| format!("{record:?}")).collect::<Vec<_>>();
        assert_eq!(listings.len(), 3);
        assert_eq!((of(&texts), of(&csv)), (listings.clone(), listings));
    }

    #[test]
    fn bad_rows_are_broken_and_the_next_is_read() {
        let csv = "t,l,a,n\nx,1,100\nx,1,100,many\nx,\"1\"2,100,1\nx,1,100,1\n";
        let found = rows(csv).unwrap();
        assert_eq!(found[0], "broken: 3 fields: the first line names 4 columns");
        assert_eq!(found[1], "broken: n \"many\": a whole number is expected");
        assert!(found[2].contains("a quote within a field is written twice"), "{}", found[2]);
        assert_eq!(found[3], "x 1 100 1");
        let json = "{\"t\":\"x\"}\n{\"t\"\n[1]\n{\"t\":true,\"l\":1,\"a\":1,\"n\":1}\n";
        let found = rows(json).unwrap();
        assert_eq!(found.len(), 4);
        assert!(found.iter().all(|row| row.starts_with("broken: ")), "{found:?}");
        let long = format!("{{\"t\":\"{}\"}}\n{{\"t\":\"x\",\"l\":1,\"a\":1,\"n\":1}}\n", "x".repeat(2 << 20));
        let found = rows(&long).unwrap();
        assert_eq!(found, ["broken: a line of more than 1048576 bytes", "x 1 1 1"]);
        let event = r#"{"t":"x","l":1,"a":1,"n":1}"#;
        let found = rows(&format!("{event}\n{}{event}\n", " ".repeat(2 << 20))).unwrap();
        assert_eq!(found, ["x 1 1 1", "broken: a line of more than 1048576 bytes"]);
    }

    #[test]
    fn json_line_with_a_column_twice_is_broken() {
        let json = [
            r#"{"t":"x","t":"y","l":1,"a":1,"n":1}"#,
            r#"{"t":"x","l":1,"a":1,"n":1,"t":null}"#,
            r#"{"t":"x","l":1,"L":2,"a":1,"n":1}"#,
            r#"{"N":1,"t":"x","l":1,"a":1,"n":1}"#,
            // No column is read from these.
            r#"{"t":"x","l":1,"a":1,"n":1,"other":1,"other":{"t":2}}"#,
        ];
        let twice = |first: &str, second: &str| {
            format!(
                "broken: the line has fields {first:?} and {second:?}: a column is expected once, in upper or lower case"
            )
        };
        let expected = [twice("t", "t"), twice("t", "t"), twice("l", "L"), twice("N", "n"), "x 1 1 1".to_owned()];
        assert_eq!(rows(&json.join("\n")).unwrap(), expected);
    }

    #[test]
    fn text_that_is_not_the_record_ends_with_a_mark() {
        let texts = |bytes: &[u8]| {
            let mapping = Mapping::parse("tenant=t,listing=l,at=a", None).unwrap();
            let reading = Reading { mapping, zone: Zone::UTC, dimensions: DimensionNames::default() };
            let mut lines = Lines::open(Text::open(Cursor::new(bytes.to_vec())).unwrap(), &reading.mapping).unwrap();
            let mut rows = Rows::default();
            assert!(lines.next(&reading, &mut rows).unwrap());
            match rows.records("").next().unwrap() {
                Said::Broken { text, .. } => text.to_owned(),
                Said::Event(event) => panic!("{event:?}"),
            }
        };
        assert_eq!(texts(b"{\"t\":\"a\xff\",\"l\":\"x\",\"a\":1}\n"), "{\"t\":\"a\u{fffd}\",\"l\":\"x\",\"a\":1}…");
        let event = "t,l,a\n\"{\"\"tenant\"\":1,\"\"listing\"\":2,\"\"at\"\":3}\"\n";
        assert_eq!(texts(event.as_bytes()), r#"{"tenant":1,"listing":2,"at":3}…"#);
    }

    #[test]
    fn blank_lines_before_the_first_row_are_passed_over() {
        let blanks = "\n".repeat(100_000);
        let json = r#"{"t":"x","l":1,"a":1,"n":1}"#;
        for text in [json, "t,l,a,n\nx,1,1,1\n"] {
            assert_eq!(rows(&format!("{blanks}{text}")).unwrap(), ["x 1 1 1"]);
        }
        assert!(matches!(rows(&blanks), Err(SourceError::Empty)));
    }

    #[test]
    fn file_without_its_columns_is_refused() {
        assert!(rows("t,l,a\n").unwrap_err().to_string().contains("no column \"n\""));
        assert!(matches!(rows(""), Err(SourceError::Empty)));
        assert!(matches!(rows("[{}]"), Err(SourceError::JsonArray)));
        assert!(matches!(rows("t,l,a,n\nx,\"1"), Err(SourceError::Csv(_))));
    }

    #[test]
    fn rows_without_tenants_get_those_of_the_catalogue() {
        let mapping = Mapping::parse("listing=l,at=a,n=n", None).unwrap();
        let reading = Reading { mapping, zone: Zone::UTC, dimensions: DimensionNames::default() };
        let csv = "l,a,n\nx,100,1\ny,1970-01-01T00:05:00Z,2\nz,200,many\n,1,1\n";
        let text = Text::open(Cursor::new(csv.as_bytes().to_vec())).unwrap();
        let mut lines = Lines::open(text, &reading.mapping).unwrap();
        let mut rows = Rows::default();
        while lines.next(&reading, &mut rows).unwrap() {}
        let mut asked = Vec::new();
        let resolved = rows.resolve("click", |number, event| {
            asked.push((number, event.listing.to_owned(), event.event_type.to_owned()));
            let no_tenant = || NoTenant { reason: "unknown".to_owned(), text: "the event".to_owned() };
            Ok::<_, ()>(if event.listing == "x" { Ok("tenant of x".to_owned()) } else { Err(no_tenant()) })
        });
        assert_eq!(resolved, Ok(()));
        assert_eq!(asked, [(0, "x".to_owned(), "click".to_owned()), (1, "y".to_owned(), "click".to_owned())]);
        let shown = |record| match record {
            Said::Event(RawEvent { tenant, listing, .. }) => format!("{tenant}: {listing}"),
            Said::Broken { reason, text } => format!("{reason}: {text}"),
        };
        let found: Vec<String> = rows.records("click").map(shown).collect();
        assert_eq!(found[..2], ["tenant of x: x", "unknown: the event"]);
        let broken = r#"n "many": a whole number is expected: {"at":200,"listing":"z","n":"many","type":"impression"}"#;
        assert_eq!(found[2], broken, "a replay looks the listing up");
        assert!(found[3].starts_with("listing is missing"), "{}", found[3]);
    }
}
