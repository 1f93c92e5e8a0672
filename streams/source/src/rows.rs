//! Rows that were read. Their texts share one buffer, so that a row needs no allocation.

use std::borrow::Cow;
use std::fmt::Write;
use std::ops::Range;
use tidemark_streams_core::event::RawEvent;
use tidemark_streams_core::owner::Record;
use tidemark_streams_core::values::Values;

/// A row on its way into [`Rows`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Row<'a> {
    Event {
        tenant: Id<'a>,
        listing: Id<'a>,
        at_s: i64,
        event_type: Option<Id<'a>>,
        count: i64,
        /// The text of the values of dimensions.
        values: String,
    },
    Broken {
        reason: String,
        text: String,
    },
}

/// The name of a tenant, a listing or a type. A number stands for its decimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Id<'a> {
    Text(&'a str),
    Number(i64),
}

impl<'a> Id<'a> {
    pub fn text(self) -> Cow<'a, str> {
        match self {
            Id::Text(text) => Cow::Borrowed(text),
            Id::Number(number) => Cow::Owned(number.to_string()),
        }
    }
}

/// Rows of a file, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rows {
    text: String,
    rows: Vec<Packed>,
}

/// A row whose texts are ranges of the shared text.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Packed {
    Event {
        tenant: Range<usize>,
        listing: Range<usize>,
        at_s: i64,
        event_type: Option<Range<usize>>,
        count: i64,
        values: Range<usize>,
    },
    Broken {
        reason: Range<usize>,
        text: Range<usize>,
    },
}

impl Rows {
    pub fn clear(&mut self) {
        self.text.clear();
        self.rows.clear();
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Bytes of all texts.
    pub fn text_bytes(&self) -> usize {
        self.text.len()
    }

    pub fn push(&mut self, row: &Row<'_>) {
        let packed = match row {
            Row::Event { tenant, listing, at_s, event_type, count, values } => Packed::Event {
                tenant: self.add(*tenant),
                listing: self.add(*listing),
                at_s: *at_s,
                event_type: event_type.map(|name| self.add(name)),
                count: *count,
                values: self.add(Id::Text(values)),
            },
            Row::Broken { reason, text } => {
                Packed::Broken { reason: self.add(Id::Text(reason)), text: self.add(Id::Text(text)) }
            }
        };
        self.rows.push(packed);
    }

    /// The rows as the core takes them. `event_type` is the type of all rows that do not name one.
    pub fn records<'a>(&'a self, event_type: &'a str) -> impl Iterator<Item = Record<'a>> {
        self.rows.iter().map(move |row| match row {
            Packed::Broken { reason, text } => Record::Broken { reason: self.text(reason), text: self.text(text) },
            Packed::Event { tenant, listing, at_s, event_type: own, count, values } => Record::Event(RawEvent {
                tenant: self.text(tenant),
                listing: self.text(listing),
                at_s: *at_s,
                event_type: own.as_ref().map_or(event_type, |own| self.text(own)),
                count: *count,
                // `Reading` made the text.
                values: Values::parse(self.text(values)).unwrap_or_default(),
            }),
        })
    }

    fn add(&mut self, id: Id<'_>) -> Range<usize> {
        let start = self.text.len();
        match id {
            Id::Text(text) => self.text.push_str(text),
            // Writing into a text does not fail.
            Id::Number(number) => drop(write!(self.text, "{number}")),
        }
        start..self.text.len()
    }

    fn text(&self, range: &Range<usize>) -> &str {
        &self.text[range.clone()]
    }
}
