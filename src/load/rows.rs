//! Rows of files: CSV with a line of names, or a JSON object in each line, plain or compressed with gzip or zstd. Parquet is read
//! if the program was built with that feature. The content of a file says which. The meanings of columns are in
//! [`columns`](super::columns).

use super::columns::{Cell, Columns, Event, Naming, NoRow, Rule};
use super::fault::{ColumnFault, RowFault};
use super::json::JsonLines;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _, Seek};
use tidemark_files::csv::{CsvError, Fields, Record, Records};
use tidemark_files::unpack::{BUFFER_BYTES, PARQUET_MAGIC, Text};
use tidemark_proto::series::calendar::UnknownZone;

/// The error for a file of Parquet that cannot be read or written.
#[cfg(not(feature = "parquet"))]
pub const NO_PARQUET: &str = "this program was built without it: build it with `--features parquet`";
/// Separators that files have in place of a comma, and how `--delimiter` names them.
const DELIMITERS: [(u8, &str); 4] = [(b',', ","), (b';', ";"), (b'\t', "tab"), (b'|', "|")];
/// The line that spreadsheets write in front of the names, to give the separator.
const SEPARATOR_LINE: &[u8] = b"sep=";

type Reader = Box<dyn BufRead + Send>;

/// Why a file is not read. Nothing of it was counted.
#[derive(Debug, thiserror::Error)]
pub enum RowError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("the names of columns, line {line}: {why}")]
    Names { line: u64, why: String },
    /// A quote of CSV is in doubt.
    #[error("{0}")]
    Quote(String),
    #[error(transparent)]
    Zone(#[from] UnknownZone),
    #[error(
        "{place}: {what} has no zone: name the zone of the clock that wrote it, such as `--zone UTC` or `--zone Europe/Berlin`"
    )]
    NoZone { place: String, what: String },
    #[error(
        "the file begins with \"[\": a JSON array is not read: write one object in each line, as `jq -c '.[]'` does"
    )]
    JsonArray,
    #[error("Parquet: {0}")]
    Parquet(String),
}

/// One row, or the reason why it is none.
#[derive(Debug, PartialEq, Eq)]
pub struct Read {
    /// Line of the file in which the row begins, or row of a file of [`Source::unit`], from 1 on.
    pub line: u64,
    /// `None`: its delta is 0, and nothing of it is counted.
    pub row: Result<Option<Event>, RowFault>,
}

/// Which columns a file has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Usual columns that the file lacks. JSON lines may differ from one to the next, and none is named of them.
    pub missing: Vec<String>,
    /// Columns that are not read, or some of them.
    pub ignored: Vec<String>,
}

/// The rows of a file, from the first on.
pub enum Source {
    Lines(Box<Lines>),
    #[cfg(feature = "parquet")]
    Parquet(Box<super::parquet::Rows<File>>),
}

/// The rows of a file of text.
pub struct Lines {
    rule: Rule,
    format: Format,
}

enum Format {
    Csv { records: Records<Reader>, columns: Columns<Option<usize>>, names: Vec<String> },
    Json(JsonLines<Reader>),
}

impl From<CsvError> for RowError {
    fn from(error: CsvError) -> RowError {
        match error {
            CsvError::Io(error) => RowError::Io(error),
            CsvError::Quote(why) => RowError::Quote(why),
        }
    }
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
        Ok(Source::Lines(Box::new(Lines::new(Text::open(reader)?, naming)?)))
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
    pub fn next_row(&mut self) -> Result<Option<Read>, RowError> {
        match self {
            Source::Lines(lines) => lines.next_row(),
            #[cfg(feature = "parquet")]
            Source::Parquet(rows) => rows.next_row(),
        }
    }

    /// The unit that [`Read::line`] counts.
    pub fn unit(&self) -> &'static str {
        match self {
            Source::Lines(_) => "line",
            #[cfg(feature = "parquet")]
            Source::Parquet(_) => "row",
        }
    }

    /// The columns, as far as the file has been read.
    pub fn found(&self) -> Found {
        match self {
            Source::Lines(lines) => lines.found(),
            #[cfg(feature = "parquet")]
            Source::Parquet(rows) => rows.found(),
        }
    }

    /// Whether rows have the numbers that the first version of journals gave them, which counted lines: as far as the file has been read.
    pub fn has_only_lines(&self) -> bool {
        match self {
            Source::Lines(lines) => match &lines.format {
                Format::Csv { records, .. } => records.has_only_lines(),
                Format::Json(lines) => lines.has_only_lines(),
            },
            #[cfg(feature = "parquet")]
            Source::Parquet(_) => true,
        }
    }
}

impl Lines {
    pub fn new(text: Text, naming: &Naming) -> Result<Lines, RowError> {
        let Text { reader, begin } = text;
        let rule = Rule::new(naming)?;
        let format = match begin.trim_ascii_start().first() {
            Some(b'{') => Format::Json(JsonLines::new(reader)),
            Some(b'[') => return Err(RowError::JsonArray),
            _ => csv(reader, &begin, naming)?,
        };
        Ok(Lines { rule, format })
    }

    /// The next row; `None` at the end.
    pub fn next_row(&mut self) -> Result<Option<Read>, RowError> {
        let (line, row) = match &mut self.format {
            Format::Json(lines) => {
                if !lines.read()? {
                    return Ok(None);
                }
                let line = lines.line();
                let cells = lines.cells(&self.rule.naming).map_err(NoRow::Broken);
                (line, cells.and_then(|cells| self.rule.row(&cells)))
            }
            Format::Csv { records, columns, names } => {
                let row = match records.read()? {
                    Record::End => return Ok(None),
                    Record::Broken(reason) => Err(RowFault::Format { reason }.into()),
                    Record::Sound => cells(records.fields(), columns, names).and_then(|cells| self.rule.row(&cells)),
                };
                (records.line(), row)
            }
        };
        read("line", line, row).map(Some)
    }

    /// The columns, as far as the file has been read.
    pub fn found(&self) -> Found {
        match &self.format {
            Format::Json(lines) => Found { missing: Vec::new(), ignored: lines.ignored.clone() },
            Format::Csv { columns, names, .. } => Found::new(columns, &self.rule.naming, names),
        }
    }
}

impl Found {
    pub fn new(columns: &Columns<Option<usize>>, naming: &Naming, names: &[String]) -> Found {
        let read = columns.into_array();
        let missing = naming.columns().into_array().into_iter().zip(read).filter(|(_, at)| at.is_none());
        let ignored = (0..names.len()).filter(|at| !read.contains(&Some(*at)) && !names[*at].is_empty());
        Found {
            missing: missing.filter_map(|(name, _)| name.map(str::to_owned)).collect(),
            ignored: ignored.map(|at| names[at].clone()).collect(),
        }
    }
}

/// The event that is read from a row. A single time without a zone stands for the whole file.
pub fn read(unit: &str, line: u64, row: Result<Option<Event>, NoRow>) -> Result<Read, RowError> {
    match row {
        Ok(row) => Ok(Read { line, row: Ok(row) }),
        Err(NoRow::Broken(why)) => Ok(Read { line, row: Err(why) }),
        Err(NoRow::NoZone(what)) => Err(RowError::NoZone { place: format!("{unit} {line}"), what }),
    }
}

/// The columns that are read of a record. A record has as many fields as there are names; more only where nothing is in them.
fn cells<'f>(
    fields: &'f Fields,
    columns: &Columns<Option<usize>>,
    names: &[String],
) -> Result<Columns<Cell<'f>>, NoRow> {
    let is_empty = |at: usize| fields.get(at).is_none_or(<[u8]>::is_empty);
    if fields.len() < names.len() || !(names.len()..fields.len()).all(is_empty) {
        return Err(RowFault::Fields { fields: fields.len(), names: names.len() }.into());
    }
    columns.try_map(|at| {
        let Some(at) = at else { return Ok(Cell::NoColumn) };
        match std::str::from_utf8(fields.get(at).unwrap_or_default()) {
            Ok(text) => Ok(Cell::text(text)),
            Err(_) => Err(RowFault::ColumnNotUtf8 { column: names[at].clone() }.into()),
        }
    })
}

/// CSV behind its names, and behind the line that says its separator, if there is one.
fn csv(mut reader: Reader, begin: &[u8], naming: &Naming) -> Result<Format, RowError> {
    let (said, bytes) = separator(begin);
    (&mut reader).take(bytes as u64).read_to_end(&mut Vec::new())?;
    let lines = u64::from(said.is_some());
    let wanted = naming.delimiter.map(|delimiter| delimiter as u8);
    if let (Some(said), Some(wanted)) = (said, wanted)
        && said != wanted
    {
        let why = format!("it says that fields are separated by {:?}: leave `--delimiter` out", char::from(said));
        return Err(RowError::Names { line: 1, why });
    }
    let delimiter = wanted.or(said).unwrap_or(b',');
    let mut records = Records::new(reader, delimiter, lines);
    let first = records.read()?;
    let broken = |why: String| RowError::Names { line: records.line(), why };
    let names = match first {
        Record::End => Vec::new(),
        Record::Broken(why) => return Err(broken(why)),
        Record::Sound => {
            let names = records.fields().iter().map(|name| std::str::from_utf8(name).map(str::to_owned));
            names.collect::<Result<Vec<_>, _>>().map_err(|_| {
                broken("no UTF-8: convert the file, such as with `iconv -f ISO-8859-1 -t UTF-8`".to_owned())
            })?
        }
    };
    if names.is_empty() {
        return Ok(Format::Csv { records, columns: Columns::default(), names });
    }
    let not_found = |fault: ColumnFault| broken(fault.to_string() + &other_delimiter(&names, delimiter, naming));
    let columns = naming.find(&names).map_err(not_found)?;
    Ok(Format::Csv { records, columns, names })
}

/// The separator of a line `sep=;` at the beginning, and the bytes of that line.
fn separator(begin: &[u8]) -> (Option<u8>, usize) {
    let Some((name, rest)) = begin.split_at_checked(SEPARATOR_LINE.len()) else { return (None, 0) };
    match rest {
        [separator, end @ ..] if name.eq_ignore_ascii_case(SEPARATOR_LINE) && is_delimiter(*separator) => {
            let ends: [&[u8]; 3] = [b"\r\n", b"\n", b"\r"];
            let end = ends.iter().find(|line_end| end.starts_with(line_end));
            end.map_or((None, 0), |end| (Some(*separator), SEPARATOR_LINE.len() + 1 + end.len()))
        }
        _ => (None, 0),
    }
}

/// Whether a byte may separate fields: no letter, no digit, and no sign that quotes fields or ends lines.
pub fn is_delimiter(byte: u8) -> bool {
    byte == b'\t' || byte.is_ascii_punctuation() && byte != b'"'
}

/// Says by what the names seem to be separated, if they are found that way.
fn other_delimiter(names: &[String], delimiter: u8, naming: &Naming) -> String {
    let line = names.join(&char::from(delimiter).to_string());
    let is_found = |other: u8| {
        let parts = line.split(char::from(other)).map(|part| part.trim().trim_matches('"'));
        other != delimiter && parts.into_iter().any(|part| part.eq_ignore_ascii_case(&naming.counter))
    };
    let other = DELIMITERS.iter().find(|(other, _)| is_found(*other));
    other.map_or(String::new(), |(_, name)| {
        format!("; fields seem to be separated by {name}: pass `--delimiter '{name}'`")
    })
}

/// A text separates no fields.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?}: one sign such as , or ; or |, or tab, expected")]
pub struct DelimiterError {
    text: String,
}

/// Reads `--delimiter`.
pub fn parse_delimiter(text: &str) -> Result<char, DelimiterError> {
    match text.as_bytes() {
        b"tab" | b"\\t" => Ok('\t'),
        [byte] if is_delimiter(*byte) => Ok(char::from(*byte)),
        _ => Err(DelimiterError { text: text.to_owned() }),
    }
}
