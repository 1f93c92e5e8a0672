//! Records of CSV as RFC 4180 has them, without what the RFC leaves out: a field in quotes may hold line breaks, separators and
//! quotes, which are written twice. A record ends with LF, CRLF or CR. Blanks around a field are no part of it, and those within
//! quotes are.
//!
//! Where a quote is in doubt nothing is guessed, as a guess decides which text is data and which is rows. Text behind a closing
//! quote makes the record a broken row; if the record is of several lines, the whole file is an error. A quoted field that does
//! not end has the same effect.
//!
//! `csv-core` reads the same sound records (a test compares them), and takes text behind a closing quote in silence: decision 0071.

use std::io::{self, BufRead};

/// Bytes of a record with its quotes. A longer one is a broken row, or an error of the file where a quoted field does not end before.
pub const RECORD_BYTES_MAX: usize = 1 << 20;
/// Fields of a record. More: the record is a broken row.
pub const FIELDS_MAX: usize = 4_096;

/// Why a file is not read.
#[derive(Debug, thiserror::Error)]
pub enum CsvError {
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A quote is in doubt.
    #[error("{0}")]
    Quote(String),
}

/// Reads records one after the other.
pub struct Records<R> {
    reader: R,
    delimiter: u8,
    fields: Fields,
    /// Line breaks that were read.
    breaks: u64,
    line: u64,
    has_only_lines: bool,
}

/// The next record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// Its fields are in [`Records::fields`].
    Sound,
    Broken(String),
    End,
}

/// The fields of a record, without their quotes.
#[derive(Default)]
pub struct Fields {
    text: Vec<u8>,
    spans: Vec<Span>,
}

#[derive(Clone, Copy)]
struct Span {
    start: usize,
    end: usize,
    is_quoted: bool,
}

/// Where a record's reading is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing but blanks of a field.
    Begin,
    Unquoted,
    Quoted,
    /// Behind a quote in a quoted field: the field ends, or the quote is the first of two.
    Quote,
    /// At blanks behind a quoted field.
    Behind,
    /// Behind a CR that ends the record: an LF belongs to it.
    Cr,
}

/// The effect of a byte.
enum Step {
    More,
    /// It is the last of the record.
    End,
    /// The record ended before it.
    Ended,
}

/// Reads one record, a piece of it at a time.
struct Machine {
    state: State,
    delimiter: u8,
    /// Of the whole record, with its quotes.
    bytes: usize,
    /// Where the field that is being read begins, and whether it is in quotes.
    start: usize,
    is_quoted: bool,
    /// Line breaks within quotes. The last byte was a CR: an LF behind it is the same line break.
    breaks: u64,
    was_cr: bool,
    /// Line breaks before text behind a closing quote.
    misquoted: Option<u64>,
    has_too_many: bool,
    ends_with_cr: bool,
}

impl<R: BufRead> Records<R> {
    /// Reads on behind this number of lines.
    pub fn new(reader: R, delimiter: u8, lines: u64) -> Records<R> {
        Records { reader, delimiter, fields: Fields::default(), breaks: lines, line: 0, has_only_lines: true }
    }

    /// Of the last record.
    pub fn fields(&self) -> &Fields {
        &self.fields
    }

    /// The line in which the last record begins, from 1 on.
    pub fn line(&self) -> u64 {
        self.line
    }

    /// Whether every record so far was one line that ends with LF or CRLF.
    pub fn has_only_lines(&self) -> bool {
        self.has_only_lines
    }

    /// Reads the next record that is no blank line.
    ///
    /// # Errors
    /// The file cannot be read, or a quote is in doubt.
    pub fn read(&mut self) -> Result<Record, CsvError> {
        loop {
            self.fields.clear();
            self.line = self.breaks + 1;
            let record = match self.simple_line()? {
                true => Record::Sound,
                false => self.any_record()?,
            };
            if record != Record::Sound || !self.fields.is_blank() {
                return Ok(record);
            }
        }
    }

    /// Takes a whole line without quotes. `false`: the record is of another kind, and nothing of it is taken.
    fn simple_line(&mut self) -> io::Result<bool> {
        let buffer = self.reader.fill_buf()?;
        let Some(end) = memchr::memchr(b'\n', buffer) else { return Ok(false) };
        let line = buffer[..end].strip_suffix(b"\r").unwrap_or(&buffer[..end]);
        if line.len() > RECORD_BYTES_MAX || memchr::memchr2(b'"', b'\r', line).is_some() {
            return Ok(false);
        }
        let mut start = 0;
        let spans = &mut self.fields.spans;
        for end in memchr::memchr_iter(self.delimiter, line).chain([line.len()]) {
            if spans.len() == FIELDS_MAX {
                self.fields.clear();
                return Ok(false);
            }
            spans.push(Span { start, end, is_quoted: false });
            start = end + 1;
        }
        self.fields.text.extend_from_slice(line);
        self.reader.consume(end + 1);
        self.breaks += 1;
        Ok(true)
    }

    fn any_record(&mut self) -> Result<Record, CsvError> {
        let mut machine = Machine::new(self.delimiter);
        let is_end = loop {
            let buffer = self.reader.fill_buf()?;
            if buffer.is_empty() {
                break true;
            }
            let (used, is_done) = machine.take(buffer, &mut self.fields);
            self.reader.consume(used);
            if is_done {
                break false;
            }
            if machine.state == State::Quoted && machine.bytes > RECORD_BYTES_MAX {
                return Err(self.too_long());
            }
        };
        if machine.bytes == 0 {
            return Ok(Record::End);
        }
        if is_end {
            machine.end_of_file(&mut self.fields);
        }
        self.breaks += machine.breaks + 1;
        self.has_only_lines &= machine.breaks == 0 && !machine.ends_with_cr;
        self.judge(&machine)
    }

    fn judge(&self, machine: &Machine) -> Result<Record, CsvError> {
        let line = self.line;
        if machine.state == State::Quoted {
            return Err(CsvError::Quote(format!(
                "line {line}: a quote opens a field, and no quote closes it before the file ends: {} lines would be one row",
                machine.breaks + 1
            )));
        }
        if let Some(breaks) = machine.misquoted {
            if machine.breaks > 0 {
                let end = self.breaks;
                let at = line + breaks;
                return Err(CsvError::Quote(format!(
                    "lines {line} to {end} would be one row: a quote opens a field, and text stands behind the quote that closes it in \
                     line {at}; a quote within a field is written twice"
                )));
            }
            let why = "text stands behind the quote that closes a field; a quote within a field is written twice";
            return Ok(Record::Broken(why.to_owned()));
        }
        if machine.bytes > RECORD_BYTES_MAX {
            let why = format!("more than {RECORD_BYTES_MAX} bytes");
            return if machine.breaks > 0 { Err(self.too_long()) } else { Ok(Record::Broken(why)) };
        }
        Ok(match machine.has_too_many {
            true => Record::Broken(format!("more than {FIELDS_MAX} fields")),
            false => Record::Sound,
        })
    }

    fn too_long(&self) -> CsvError {
        CsvError::Quote(format!(
            "line {}: a quote opens a field, and its row is longer than {RECORD_BYTES_MAX} bytes: close the quote, or leave the column out",
            self.line
        ))
    }
}

impl Machine {
    fn new(delimiter: u8) -> Machine {
        Machine {
            state: State::Begin,
            delimiter,
            bytes: 0,
            start: 0,
            is_quoted: false,
            breaks: 0,
            was_cr: false,
            misquoted: None,
            has_too_many: false,
            ends_with_cr: false,
        }
    }

    /// Takes what is there of the record: how many bytes, and whether it ends there.
    fn take(&mut self, buffer: &[u8], fields: &mut Fields) -> (usize, bool) {
        let mut at = 0;
        while let Some(&byte) = buffer.get(at) {
            let rest = &buffer[at..];
            let run = match self.state {
                State::Quoted => memchr::memchr(b'"', rest).unwrap_or(rest.len()),
                State::Unquoted => memchr::memchr3(self.delimiter, b'\n', b'\r', rest).unwrap_or(rest.len()),
                State::Begin | State::Quote | State::Behind | State::Cr => 0,
            };
            if run > 0 {
                self.keep(&rest[..run], fields);
                self.bytes += run;
                at += run;
                continue;
            }
            match self.step(byte, fields) {
                Step::More => at += 1,
                Step::End => return (at + 1, true),
                Step::Ended => return (at, true),
            }
            self.bytes += 1;
        }
        (at, false)
    }

    fn step(&mut self, byte: u8, fields: &mut Fields) -> Step {
        match self.state {
            State::Cr if byte == b'\n' => return Step::End,
            State::Cr => {
                self.ends_with_cr = true;
                return Step::Ended;
            }
            State::Quoted => {
                self.state = State::Quote;
                return Step::More;
            }
            State::Quote if byte == b'"' => {
                self.state = State::Quoted;
                self.keep(b"\"", fields);
                return Step::More;
            }
            State::Begin if byte == b'"' => {
                // Blanks before a quote are no part of the field.
                fields.text.truncate(self.start);
                (self.state, self.is_quoted) = (State::Quoted, true);
                return Step::More;
            }
            State::Begin | State::Unquoted | State::Quote | State::Behind => {}
        }
        if byte == self.delimiter || byte == b'\n' || byte == b'\r' {
            self.end_field(fields);
            self.state = if byte == b'\r' { State::Cr } else { State::Begin };
            return if byte == b'\n' { Step::End } else { Step::More };
        }
        let is_blank = byte == b' ' || byte == b'\t';
        match self.state {
            State::Quote | State::Behind if is_blank => self.state = State::Behind,
            State::Begin if is_blank => self.keep(&[byte], fields),
            State::Quote | State::Behind => {
                self.misquoted.get_or_insert(self.breaks);
                self.state = State::Unquoted;
            }
            State::Begin | State::Unquoted | State::Quoted | State::Cr => {
                self.keep(&[byte], fields);
                self.state = State::Unquoted;
            }
        }
        Step::More
    }

    /// Text of a field.
    fn keep(&mut self, text: &[u8], fields: &mut Fields) {
        if self.state == State::Quoted {
            for at in memchr::memchr2_iter(b'\n', b'\r', text) {
                let follows_cr = if at == 0 { self.was_cr } else { text[at - 1] == b'\r' };
                self.breaks += u64::from(text[at] == b'\r' || !follows_cr);
            }
        }
        self.was_cr = text.last() == Some(&b'\r');
        if self.bytes <= RECORD_BYTES_MAX {
            fields.text.extend_from_slice(text);
        }
    }

    fn end_field(&mut self, fields: &mut Fields) {
        let end = fields.text.len();
        match fields.spans.len() < FIELDS_MAX {
            true => fields.spans.push(Span { start: self.start, end, is_quoted: self.is_quoted }),
            false => self.has_too_many = true,
        }
        (self.start, self.is_quoted, self.was_cr) = (end, false, false);
    }

    fn end_of_file(&mut self, fields: &mut Fields) {
        match self.state {
            State::Cr => self.ends_with_cr = true,
            State::Quoted => {}
            State::Begin | State::Unquoted | State::Quote | State::Behind => self.end_field(fields),
        }
    }
}

impl Fields {
    fn clear(&mut self) {
        self.text.clear();
        self.spans.clear();
    }

    pub fn len(&self) -> usize {
        self.spans.len()
    }

    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// A line without anything.
    fn is_blank(&self) -> bool {
        matches!(&self.spans[..], [span] if !span.is_quoted && self.text[span.start..span.end].trim_ascii().is_empty())
    }

    /// The text of a field; a quoted field as it is, another without blanks around it.
    pub fn get(&self, at: usize) -> Option<&[u8]> {
        let span = self.spans.get(at)?;
        let text = self.text.get(span.start..span.end)?;
        Some(if span.is_quoted { text } else { text.trim_ascii() })
    }

    /// Whether a field was in quotes.
    pub fn is_quoted(&self, at: usize) -> bool {
        self.spans.get(at).is_some_and(|span| span.is_quoted)
    }

    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).filter_map(|at| self.get(at))
    }
}
