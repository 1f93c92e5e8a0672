//! Rows of files: CSV with a line of names, or a JSON object in each line, plain or compressed with gzip or zstd; or Parquet, where the
//! program was built with that feature. What a file is, its content says.

use crate::http::bulk::BulkLine;
use crate::lines::{LINE_BYTES_MAX, next_line, too_long};
use crate::names::key_bytes;
use csv_core::ReadRecordResult;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek};
use tidemark_proto::ids::{CounterName, Half};
use tidemark_proto::limits::DELTA_MAX;
use tidemark_proto::load::Row;
use tidemark_proto::series::UnixTime;

/// Columns of a CSV file. More: its lines are refused.
const COLUMNS_MAX: usize = 256;
/// What a file of Parquet begins with.
const PARQUET_MAGIC: &[u8] = b"PAR1";
/// What is said of such a file where it cannot be read or written.
#[cfg(not(feature = "parquet"))]
pub const NO_PARQUET: &str = "this program was built without it: build it with `--features parquet`";
/// Bytes that are read of a file at a time.
const BUFFER_BYTES: usize = 256 << 10;

/// What columns are called, and what counters are.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Naming {
    pub counter: String,
    pub delta: String,
    pub at: String,
    /// Stands in front of every counter.
    pub prefix: String,
    /// Takes the place of every counter's namespace.
    pub namespace: Option<String>,
}

impl Default for Naming {
    fn default() -> Naming {
        let name = str::to_owned;
        Naming {
            counter: name("counter"),
            delta: name("delta"),
            at: name("at"),
            prefix: String::new(),
            namespace: None,
        }
    }
}

/// How lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Csv,
    Ndjson,
}

/// Why a file has no rows at all. Nothing was counted.
#[derive(Debug, thiserror::Error)]
pub enum RowError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("the first line has no column {0:?}: it has {1}")]
    NoColumn(String, String),
    #[error("the first line: {0}")]
    Names(String),
    #[error("Parquet: {0}")]
    Parquet(String),
}

/// One row, or why it is none.
#[derive(Debug, PartialEq, Eq)]
pub struct Read {
    /// Line of the file, or row of a file of [`Source::unit`], from 1 on.
    pub line: u64,
    pub row: Result<Row, String>,
}

/// The rows of a file, from the first on.
pub enum Source {
    Lines(Box<Lines>),
    #[cfg(feature = "parquet")]
    Parquet(Box<super::parquet::Rows<File>>),
}

/// The rows of a file of lines.
pub struct Lines {
    reader: Box<dyn BufRead + Send>,
    format: Format,
    naming: Naming,
    columns: Columns,
    line: u64,
    text: Vec<u8>,
    fields: Fields,
}

/// The fields of a line, one after the other, and where each ends.
struct Fields {
    text: Box<[u8]>,
    ends: Box<[usize]>,
    count: usize,
}

/// Where columns are.
#[derive(Clone, Copy, Debug, Default)]
struct Columns {
    counter: usize,
    delta: Option<usize>,
    at: Option<usize>,
}

impl Source {
    /// From the beginning of a file.
    pub fn open(file: &File, naming: &Naming) -> Result<Source, RowError> {
        let mut file = file.try_clone()?;
        file.rewind()?;
        let mut reader = BufReader::with_capacity(BUFFER_BYTES, file);
        if reader.fill_buf()?.starts_with(PARQUET_MAGIC) {
            return Source::parquet(reader.into_inner(), naming);
        }
        Ok(Source::Lines(Box::new(Lines::new(decompressed(reader)?, naming)?)))
    }

    #[cfg(feature = "parquet")]
    fn parquet(file: File, naming: &Naming) -> Result<Source, RowError> {
        super::parquet::Rows::open(file, naming).map(Box::new).map(Source::Parquet)
    }

    #[cfg(not(feature = "parquet"))]
    fn parquet(_: File, _: &Naming) -> Result<Source, RowError> {
        Err(RowError::Parquet(NO_PARQUET.to_owned()))
    }

    /// The next row; `None` at the end.
    pub fn next_row(&mut self) -> io::Result<Option<Read>> {
        match self {
            Source::Lines(lines) => lines.next_row(),
            #[cfg(feature = "parquet")]
            Source::Parquet(rows) => rows.next_row(),
        }
    }

    /// What [`Read::line`] counts.
    pub fn unit(&self) -> &'static str {
        match self {
            Source::Lines(_) => "line",
            #[cfg(feature = "parquet")]
            Source::Parquet(_) => "row",
        }
    }
}

impl Lines {
    /// Of what is not compressed, or no more.
    pub fn new(mut reader: Box<dyn BufRead + Send>, naming: &Naming) -> Result<Lines, RowError> {
        let begin = reader.fill_buf()?;
        if begin.starts_with(PARQUET_MAGIC) {
            return Err(RowError::Parquet("it is compressed as a whole: its pages may be, not the file".to_owned()));
        }
        let (first, is_empty) = (begin.iter().find(|byte| !byte.is_ascii_whitespace()), begin.is_empty());
        let format = if first == Some(&b'{') { Format::Ndjson } else { Format::Csv };
        let (columns, line, text) = Default::default();
        let (naming, fields) = (naming.clone(), Fields::new());
        let mut lines = Lines { reader, format, naming, columns, line, text, fields };
        if format == Format::Csv && !is_empty {
            lines.columns = lines.names()?;
        }
        Ok(lines)
    }

    /// The next row; `None` at the end.
    pub fn next_row(&mut self) -> io::Result<Option<Read>> {
        loop {
            if !next_line(&mut self.reader, &mut self.text)? {
                return Ok(None);
            }
            self.line += 1;
            if !self.text.iter().all(u8::is_ascii_whitespace) {
                let row = match too_long(&self.text) {
                    Some(why) => Err(why),
                    None => self.parse(),
                };
                return Ok(Some(Read { line: self.line, row }));
            }
        }
    }

    fn parse(&mut self) -> Result<Row, String> {
        match self.format {
            Format::Ndjson => {
                let line: BulkLine = serde_json::from_slice(&self.text).map_err(|error| error.to_string())?;
                let at = line.at.map(|at| at.time().map_err(|error| error.to_string())).transpose()?;
                row_of(&line.counter, line.delta.0, at, &self.naming)
            }
            Format::Csv => {
                self.fields.split(&self.text)?;
                let field = |at: usize| self.fields.get(at);
                let counter = field(self.columns.counter)?;
                let delta = self.columns.delta.map_or(Ok("1"), field)?;
                let at = self.columns.at.map_or(Ok(""), field)?;
                row_of_text(counter, delta, at, &self.naming)
            }
        }
    }

    /// The line of names.
    fn names(&mut self) -> Result<Columns, RowError> {
        let read = loop {
            let read = next_line(&mut self.reader, &mut self.text)?;
            self.line += u64::from(read);
            if !read || !self.text.iter().all(u8::is_ascii_whitespace) {
                break read;
            }
        };
        if let Some(why) = too_long(&self.text).or((!read).then(|| "it is missing".to_owned())) {
            return Err(RowError::Names(why));
        }
        let line = self.text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&self.text);
        self.fields.split(line).map_err(RowError::Names)?;
        let names = (0..self.fields.count).map(|at| self.fields.get(at)).collect::<Result<Vec<_>, _>>();
        let names = names.map_err(RowError::Names)?;
        let find = |name: &str| names.iter().position(|found| *found == name);
        let needed = |name: &String| {
            let shown = names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ");
            find(name).ok_or_else(|| RowError::NoColumn(name.clone(), shown.chars().take(200).collect()))
        };
        // What is named on purpose has to be there.
        let (usual, said) = (Naming::default(), &self.naming);
        let optional =
            |name: &String, usual: &String| if name == usual { Ok(find(name)) } else { needed(name).map(Some) };
        Ok(Columns {
            counter: needed(&said.counter)?,
            delta: optional(&said.delta, &usual.delta)?,
            at: optional(&said.at, &usual.at)?,
        })
    }
}

impl Fields {
    fn new() -> Fields {
        Fields { text: vec![0; LINE_BYTES_MAX].into(), ends: vec![0; COLUMNS_MAX].into(), count: 0 }
    }

    fn split(&mut self, line: &[u8]) -> Result<(), String> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.iter().filter(|byte| **byte == b'"').count() % 2 == 1 {
            return Err("a quote that is not closed in its line".to_owned());
        }
        let mut reader = csv_core::Reader::new();
        let (result, read, written, count) = reader.read_record(line, &mut self.text, &mut self.ends);
        match result {
            ReadRecordResult::InputEmpty if read == line.len() => {}
            ReadRecordResult::OutputEndsFull => return Err(format!("more than {COLUMNS_MAX} columns")),
            _ => return Err("no CSV".to_owned()),
        }
        // Nothing more comes: the last field ends.
        let (result, .., more) = reader.read_record(&[], &mut self.text[written..], &mut self.ends[count..]);
        if result == ReadRecordResult::OutputEndsFull {
            return Err(format!("more than {COLUMNS_MAX} columns"));
        }
        self.count = count + more;
        Ok(())
    }

    fn get(&self, at: usize) -> Result<&str, String> {
        let ends = &self.ends[..self.count];
        let end = ends.get(at).ok_or_else(|| format!("{} columns: column {} is wanted", ends.len(), at + 1))?;
        let start = at.checked_sub(1).map_or(0, |before| ends[before]);
        let bytes = self.text.get(start..*end).unwrap_or_default();
        let field = std::str::from_utf8(bytes).map_err(|_| format!("column {} is no UTF-8", at + 1))?;
        Ok(field.trim())
    }
}

/// A row of three texts; empty ones say what is usual.
fn row_of_text(counter: &str, delta: &str, at: &str, naming: &Naming) -> Result<Row, String> {
    row_of(counter, delta_of_text(delta)?, time_of_text(at)?, naming)
}

/// An empty text is 1.
pub fn delta_of_text(delta: &str) -> Result<i128, String> {
    let shown = |text: &str| text.chars().take(80).collect::<String>();
    match delta {
        "" => Ok(1),
        text => text.parse().map_err(|_| format!("delta {:?}: a whole number expected", shown(text))),
    }
}

/// An empty text is no time.
pub fn time_of_text(at: &str) -> Result<Option<UnixTime>, String> {
    match at {
        "" => Ok(None),
        text => text.parse::<UnixTime>().map(Some).map_err(|error| error.to_string()),
    }
}

pub fn row_of(counter: &str, delta: i128, at: Option<UnixTime>, naming: &Naming) -> Result<Row, String> {
    let prefixed;
    let counter = match naming.prefix.as_str() {
        "" => counter,
        prefix => {
            prefixed = format!("{prefix}{counter}");
            &prefixed
        }
    };
    let shown =
        || format!("{:?} names no counter: NAMESPACE/KEY expected", counter.chars().take(80).collect::<String>());
    let (namespace, key) = counter.split_once(['/', ':']).ok_or_else(shown)?;
    let namespace = naming.namespace.as_deref().unwrap_or(namespace);
    let counter = match key.contains('%') {
        true => CounterName::new(namespace, &key_bytes(key)),
        false => CounterName::new(namespace, key.as_bytes()),
    };
    let counter = counter.map_err(|error| error.to_string())?;
    let half = if delta < 0 { Half::Down } else { Half::Up };
    let weight = u64::try_from(delta.unsigned_abs()).ok().filter(|weight| (1..=DELTA_MAX).contains(weight));
    let weight = weight.ok_or_else(|| format!("delta {delta}: 1 to {DELTA_MAX}, or less than 0, allowed"))?;
    Ok(Row { counter, half, delta: weight, at })
}

/// What a file holds, by its first bytes.
fn decompressed(mut reader: BufReader<File>) -> io::Result<Box<dyn BufRead + Send>> {
    let magic = reader.fill_buf()?;
    if magic.starts_with(&[0x1f, 0x8b]) {
        let decoder = flate2::bufread::MultiGzDecoder::new(reader);
        return Ok(Box::new(BufReader::with_capacity(BUFFER_BYTES, decoder)));
    }
    if magic.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        let decoder = zstd::stream::read::Decoder::with_buffer(reader)?;
        return Ok(Box::new(BufReader::with_capacity(BUFFER_BYTES, decoder)));
    }
    Ok(Box::new(reader))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;

    fn all(bytes: &[u8], naming: &Naming) -> Result<Vec<Read>, RowError> {
        let mut lines = Lines::new(Box::new(io::Cursor::new(bytes.to_vec())), naming)?;
        let mut rows = Vec::new();
        while let Some(read) = lines.next_row()? {
            rows.push(read);
        }
        Ok(rows)
    }

    fn told(bytes: &str, naming: &Naming) -> Vec<String> {
        let text = |read: &Read| match &read.row {
            Ok(Row { counter, half, delta, at }) => {
                let at = at.map_or("-".to_owned(), |at| at.s().to_string());
                format!("{}: {counter} {half:?} {delta} {at}", read.line)
            }
            Err(why) => format!("{}: {why}", read.line),
        };
        all(bytes.as_bytes(), naming).unwrap().iter().map(text).collect()
    }

    #[test]
    fn rows_of_csv_are_read_and_broken_ones_named_by_their_lines() {
        let csv = "\u{feff}at,counter,delta\r\n1970-01-01T00:01:00Z,qa/a,2\r\n\n,\"qa/b,c\",\nx,qa/a,1\n60,qa,1\n\
                   60,qa/a,0\n60,qa/a,-3\n60\n60,\"qa/a,1\n60,qa/a%2F%FF,1";
        assert_eq!(
            told(csv, &Naming::default()),
            [
                "2: qa:a Up 2 60",
                "4: qa:b,c Up 1 -",
                "5: time \"x\": whole seconds since 1970, or as RFC 3339 writes it, such as 2026-11-24T08:00:00Z",
                "6: \"qa\" names no counter: NAMESPACE/KEY expected",
                "7: delta 0: 1 to 1099511627776, or less than 0, allowed",
                "8: qa:a Down 3 60",
                "9: 1 columns: column 2 is wanted",
                "10: a quote that is not closed in its line",
                "11: qa:a/\u{fffd} Up 1 60",
            ]
        );
    }

    #[test]
    fn columns_may_have_other_names_and_counters_another_namespace() {
        let naming = Naming {
            counter: "answer".into(),
            delta: "views".into(),
            prefix: "qa/answer/".into(),
            ..Naming::default()
        };
        assert_eq!(told("day,answer,views\n1,7,3", &naming), ["2: qa:answer/7 Up 3 -"]);
        let moved = Naming { namespace: Some("copy".into()), ..Naming::default() };
        assert_eq!(told("{\"counter\": \"qa/a\", \"at\": 61}", &moved), ["1: copy:a Up 1 61"]);
        let missing = all(b"counter,views\nqa/a,3", &naming).unwrap_err().to_string();
        assert_eq!(missing, "the first line has no column \"answer\": it has \"counter\", \"views\"");
    }

    #[test]
    fn a_file_is_what_its_content_says() {
        let plain = b"{\"counter\": \"qa/a\", \"delta\": 3, \"at\": \"1970-01-01T00:01:00Z\"}\n{\"counter\": 5}\n";
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
    fn members_that_stand_behind_each_other_are_one_file() {
        let texts = ["counter,delta\nqa/a,3\n", "", "qa/b,4\n"];
        let member = |text: &str| {
            let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            gzip.write_all(text.as_bytes()).unwrap();
            gzip.finish().unwrap()
        };
        let frame = |text: &str| zstd::encode_all(text.as_bytes(), 1).unwrap();
        let dir = tempfile::tempdir().unwrap();
        for (name, members) in [("gzip", texts.map(member)), ("zstd", texts.map(frame))] {
            let path = dir.path().join(name);
            std::fs::write(&path, members.concat()).unwrap();
            let mut source = Source::open(&File::open(&path).unwrap(), &Naming::default()).unwrap();
            let rows = std::iter::from_fn(|| source.next_row().unwrap());
            assert_eq!(rows.map(|read| read.row.unwrap().delta).collect::<Vec<_>>(), [3, 4], "{name}");
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
        assert_eq!(alone, format!("Parquet: {NO_PARQUET}"));
        let inside = open(&zstd::encode_all(&b"PAR1"[..], 1).unwrap());
        assert_eq!(inside, "Parquet: it is compressed as a whole: its pages may be, not the file");
    }

    proptest! {
        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(prop_oneof![any::<u8>(), Just(b'\n'), Just(b','), Just(b'"')], 0..400)) {
            let _ = all(&bytes, &Naming::default());
            let headed = [b"counter,delta,at\n", &bytes[..]].concat();
            let _ = all(&headed, &Naming::default());
            let _ = all(&[b"{}\n", &bytes[..]].concat(), &Naming::default());
        }

        #[test]
        fn every_line_that_is_not_blank_is_a_row_of_its_own_number(lines in prop::collection::vec("[a-z\", /]{0,12}", 0..30)) {
            let expected: Vec<u64> =
                lines.iter().zip(2..).filter(|(line, _)| !line.trim().is_empty()).map(|(_, number)| number).collect();
            let text = format!("counter,delta\n{}", lines.join("\n"));
            let found: Vec<u64> = all(text.as_bytes(), &Naming::default()).unwrap().iter().map(|read| read.line).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
