//! Rows that were read. Their texts share one buffer, so that a row needs no allocation.

use std::borrow::Cow;
use std::ops::Range;
use tidemark_streams_core::event::RawEvent;
use tidemark_streams_core::owner::Record;
use tidemark_streams_core::values::Values;

/// A row on its way into [`Rows`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Row<'a> {
    Event {
        /// `None`: the catalogue knows it.
        tenant: Option<Id<'a>>,
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

/// Why a row gets no tenant, and the text of its dead letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoTenant {
    pub reason: String,
    pub text: String,
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
        tenant: Option<Range<usize>>,
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

    #[inline]
    pub fn push(&mut self, row: &Row<'_>) {
        let packed = match row {
            Row::Event { tenant, listing, at_s, event_type, count, values } => Packed::Event {
                tenant: tenant.map(|name| self.add(name)),
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

    /// Adds a row of other rows.
    ///
    /// # Panics
    /// There is no such row.
    pub fn push_of(&mut self, other: &Rows, number: usize) {
        let text = |range: &Range<usize>| Id::Text(other.text(range));
        let row = match &other.rows[number] {
            Packed::Event { tenant, listing, at_s, event_type, count, values } => Row::Event {
                tenant: tenant.as_ref().map(text),
                listing: text(listing),
                at_s: *at_s,
                event_type: event_type.as_ref().map(text),
                count: *count,
                values: other.text(values).to_owned(),
            },
            Packed::Broken { reason, text } => {
                Row::Broken { reason: other.text(reason).to_owned(), text: other.text(text).to_owned() }
            }
        };
        self.push(&row);
    }

    /// Gives each row without a tenant the one that `tenant_of` finds for its number and its event. A row that gets none becomes broken,
    /// with the reason and the text that `tenant_of` gives.
    ///
    /// # Errors
    /// The first error of `tenant_of`.
    pub fn resolve<E>(
        &mut self,
        event_type: &str,
        mut tenant_of: impl FnMut(usize, RawEvent<'_>) -> Result<Result<String, NoTenant>, E>,
    ) -> Result<(), E> {
        for number in 0..self.rows.len() {
            let Some(Packed::Event { tenant: None, .. }) = self.rows.get(number) else { continue };
            let Some(event) = self.event(number, event_type) else { continue };
            let found = tenant_of(number, event)?;
            let broken = match found {
                Ok(name) => {
                    let range = self.add(Id::Text(&name));
                    if let Some(Packed::Event { tenant, .. }) = self.rows.get_mut(number) {
                        *tenant = Some(range);
                    }
                    continue;
                }
                Err(NoTenant { reason, text }) => {
                    Packed::Broken { reason: self.add(Id::Text(&reason)), text: self.add(Id::Text(&text)) }
                }
            };
            if let Some(row) = self.rows.get_mut(number) {
                *row = broken;
            }
        }
        Ok(())
    }

    fn event<'a>(&'a self, number: usize, event_type: &'a str) -> Option<RawEvent<'a>> {
        match self.record(self.rows.get(number)?, event_type) {
            Record::Event(event) => Some(event),
            Record::Broken { .. } => None,
        }
    }

    /// The rows as the core takes them. `event_type` is the type of all rows that do not name one.
    pub fn records<'a>(&'a self, event_type: &'a str) -> impl Iterator<Item = Record<'a>> {
        self.rows.iter().map(move |row| self.record(row, event_type))
    }

    #[inline]
    fn record<'a>(&'a self, row: &'a Packed, event_type: &'a str) -> Record<'a> {
        match row {
            Packed::Broken { reason, text } => Record::Broken { reason: self.text(reason), text: self.text(text) },
            Packed::Event { tenant, listing, at_s, event_type: own, count, values } => Record::Event(RawEvent {
                // The core refuses an empty tenant.
                tenant: tenant.as_ref().map_or("", |tenant| self.text(tenant)),
                listing: self.text(listing),
                at_s: *at_s,
                event_type: own.as_ref().map_or(event_type, |own| self.text(own)),
                count: *count,
                // `Reading` made the text.
                values: Values::parse(self.text(values)).unwrap_or_default(),
            }),
        }
    }

    #[inline]
    fn add(&mut self, id: Id<'_>) -> Range<usize> {
        let start = self.text.len();
        match id {
            Id::Text(text) => self.text.push_str(text),
            Id::Number(number) => push_number(&mut self.text, number),
        }
        start..self.text.len()
    }

    #[inline]
    fn text(&self, range: &Range<usize>) -> &str {
        &self.text[range.clone()]
    }
}

/// Digits of the longest number.
const DIGITS_MAX: usize = 20;

/// Appends the decimal digits of a number. The formatter of the standard library takes several times as long.
fn push_number(text: &mut String, number: i64) {
    let mut digits = [b'0'; DIGITS_MAX];
    let mut begin = DIGITS_MAX;
    let mut rest = number.unsigned_abs();
    loop {
        begin -= 1;
        digits[begin] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if number < 0 {
        text.push('-');
    }
    text.extend(digits[begin..].iter().map(|digit| char::from(*digit)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_is_written_as_its_decimal_digits() {
        let ends = [0, 1, -1, 9, 10, -10, 99, 100, i64::MAX, i64::MIN, i64::MIN + 1];
        let powers = (0..19).map(|power| 10_i64.pow(power)).flat_map(|power| [power - 1, power, -power]);
        for number in ends.into_iter().chain(powers) {
            let mut text = "x".to_owned();
            push_number(&mut text, number);
            assert_eq!(text, format!("x{number}"));
        }
    }
}
