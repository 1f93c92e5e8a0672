//! JSON lines: an object in each line. Lines end with LF, CRLF or CR; empty ones say nothing.

use super::columns::{Cell, Columns, Naming};
use super::fault::RowFault;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::fmt;
use std::io::{self, BufRead};
use tidemark_files::csv::RECORD_BYTES_MAX;

/// Names of other fields that are remembered, to say that they are ignored.
const IGNORED_MAX: usize = 16;

/// Reads lines one after the other.
pub struct JsonLines<R> {
    reader: R,
    text: Vec<u8>,
    breaks: u64,
    line: u64,
    is_cut: bool,
    has_only_lines: bool,
    pub ignored: Vec<String>,
}

impl<R: BufRead> JsonLines<R> {
    pub fn new(reader: R) -> JsonLines<R> {
        let (text, ignored) = Default::default();
        JsonLines { reader, text, breaks: 0, line: 0, is_cut: false, has_only_lines: true, ignored }
    }

    /// Of the last line that was read, from 1 on.
    pub fn line(&self) -> u64 {
        self.line
    }

    /// Whether every line so far ended with LF or CRLF.
    pub fn has_only_lines(&self) -> bool {
        self.has_only_lines
    }

    /// Reads the next line that is not blank. `false`: there is none.
    pub fn read(&mut self) -> io::Result<bool> {
        loop {
            self.line = self.breaks + 1;
            if !self.read_any()? {
                return Ok(false);
            }
            self.breaks += 1;
            if self.is_cut || !self.text.trim_ascii().is_empty() {
                return Ok(true);
            }
        }
    }

    fn read_any(&mut self) -> io::Result<bool> {
        self.text.clear();
        self.is_cut = false;
        let mut is_begun = false;
        loop {
            let buffer = self.reader.fill_buf()?;
            if buffer.is_empty() {
                return Ok(is_begun);
            }
            is_begun = true;
            let end = memchr::memchr2(b'\n', b'\r', buffer);
            let piece = &buffer[..end.unwrap_or(buffer.len())];
            let room = RECORD_BYTES_MAX - self.text.len();
            self.is_cut |= piece.len() > room;
            self.text.extend_from_slice(&piece[..piece.len().min(room)]);
            let ends_with_cr = end.is_some_and(|end| buffer[end] == b'\r');
            let used = piece.len() + usize::from(end.is_some());
            self.reader.consume(used);
            if ends_with_cr {
                let has_lf = self.reader.fill_buf()?.first() == Some(&b'\n');
                self.reader.consume(usize::from(has_lf));
                self.has_only_lines &= has_lf;
            }
            if end.is_some() {
                return Ok(true);
            }
        }
    }

    /// The values in the line.
    ///
    /// # Errors
    /// It is no JSON object.
    pub fn cells(&mut self, naming: &Naming) -> Result<Columns<Cell<'_>>, RowFault> {
        if self.is_cut {
            return Err(RowFault::LineTooLong);
        }
        let mut json = serde_json::Deserializer::from_slice(&self.text);
        let cells = Object { wanted: naming.columns(), ignored: &mut self.ignored }.deserialize(&mut json);
        let cells = cells.and_then(|cells| json.end().map(|()| cells));
        cells.map_err(|error| RowFault::Format { reason: error.to_string().replace(" at line 1 column ", " at byte ") })
    }
}

/// An object, of which some fields are read.
struct Object<'n> {
    wanted: Columns<Option<&'n str>>,
    ignored: &'n mut Vec<String>,
}

#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de> DeserializeSeed<'de> for Object<'_> {
    type Value = Columns<Cell<'de>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Object<'_> {
    type Value = Columns<Cell<'de>>;

    fn expecting(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        text.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut cells = self.wanted.map(|_| Cell::NoColumn);
        while let Some(Name(name)) = map.next_key()? {
            let places = self.wanted.into_array().into_iter().zip(cells.as_mut().into_array());
            let mut is_wanted = false;
            let value = map.next_value::<AnyCell<'de>>()?.0;
            let is_it = |wanted: &Option<&str>| wanted.is_some_and(|wanted| name.eq_ignore_ascii_case(wanted));
            for (_, cell) in places.filter(|(wanted, _)| is_it(wanted)) {
                if *cell != Cell::NoColumn {
                    return Err(A::Error::custom(format_args!("{name:?} stands twice")));
                }
                *cell = value.clone();
                is_wanted = true;
            }
            if !is_wanted && self.ignored.len() < IGNORED_MAX && !self.ignored.iter().any(|known| *known == name) {
                self.ignored.push(name.into_owned());
            }
        }
        Ok(cells)
    }
}

struct AnyCell<'a>(Cell<'a>);

impl<'de> Deserialize<'de> for AnyCell<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<AnyCell<'de>, D::Error> {
        deserializer.deserialize_any(CellVisitor).map(AnyCell)
    }
}

struct CellVisitor;

impl<'de> Visitor<'de> for CellVisitor {
    type Value = Cell<'de>;

    fn expecting(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        text.write_str("a value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Cell<'de>, E> {
        Ok(Cell::Other("true or false"))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Cell<'de>, E> {
        Ok(Cell::Whole(number.into()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Cell<'de>, E> {
        Ok(Cell::Whole(number.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Cell<'de>, E> {
        Ok(Cell::double(value))
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Cell<'de>, E> {
        Ok(Cell::text(text))
    }

    fn visit_str<E>(self, text: &str) -> Result<Cell<'de>, E> {
        Ok(Cell::text(text.to_owned()))
    }

    fn visit_unit<E>(self) -> Result<Cell<'de>, E> {
        Ok(Cell::Missing)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Cell<'de>, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Cell::Other("a list"))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Cell<'de>, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Cell::Other("an object"))
    }
}
