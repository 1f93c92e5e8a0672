//! The rows of one source that an owner has read and not begun to flush.

use super::letters::Held;
use super::{DeadLetter, Owner, OwnerConfig, Record, RowBatch, Stop};
use crate::blob::Epoch;
use crate::event::{Event, EventError, EventTypes, Judged, RawEvent};
use crate::fold::{Fold, FoldSize};
use crate::limits::{
    DEAD_LETTER_REASON_BYTES_MAX, DEAD_LETTER_TEXT_BYTES_MAX, ROW_TEXT_BYTES_MAX, ROWS_TEXT_BYTES_MAX,
};
use crate::merge::Phase;
use crate::names::{CUT, Names};
use crate::query::OwnerRows;
use crate::rollup::{Rollups, RowError};
use crate::schema::{Renaming, TypeChange};
use crate::source::{ReadingId, SourceId};
use crate::teeth::{Bug, bites};
use crate::time::{Day, Now};
use std::cmp::Ordering;
use std::sync::Arc;

/// Rows that are counted at once.
const RUN_MAX: usize = 256;

/// Rows of one source, folded.
pub(super) struct Window {
    fold: Fold,
    dead_letters: Vec<Held>,
    open: Option<Open>,
    limits: Limits,
    /// The changes to the names of its rows since it began.
    renaming: Renaming,
}

/// Which rows the window holds.
#[derive(Clone, Copy)]
struct Open {
    source: SourceId,
    reading: ReadingId,
    from: u64,
    to: u64,
    is_end: bool,
    flush_at: Now,
    is_due: bool,
}

#[derive(Clone, Copy)]
struct Limits {
    cells: usize,
    bytes: usize,
    dead_letters: usize,
    flush_every_ms: u64,
    /// When within each `flush_every_ms`: partitions that began together do not flush together.
    flush_phase_ms: u64,
}

/// By which rules rows are counted.
#[derive(Clone, Copy)]
pub(super) struct Rules<'a> {
    pub types: &'a EventTypes,
    pub kept_from: Day,
}

impl Rules<'_> {
    fn checked<'r>(&self, now: Now, judged: Judged, raw: &RawEvent<'r>) -> Result<Event<'r>, EventError> {
        let event = raw.check_judged(now, judged, self.types)?;
        event.check_kept(self.kept_from)?;
        Ok(event)
    }
}

/// The end of a source, after this number of rows.
#[derive(Clone, Copy)]
pub(super) struct SourceEnd {
    pub source: SourceId,
    pub reading: ReadingId,
    pub rows: u64,
}

/// The rows that a flush writes.
pub(super) struct Taken {
    pub reading: ReadingId,
    pub set: Flushed,
    pub dead_letters: Vec<Held>,
    pub is_end: bool,
}

/// A set of rows on its way to a blob, or in one since a moment.
pub(super) struct Flushed {
    pub source: SourceId,
    pub from: u64,
    pub to: u64,
    pub rows: Arc<Rollups>,
    /// Until when it can be read.
    pub until: Now,
}

impl Window {
    pub fn new(config: &OwnerConfig) -> Window {
        let limits = Limits {
            cells: config.cells_max,
            bytes: config.fold_bytes_max,
            dead_letters: config.dead_letters_max,
            flush_every_ms: config.flush_after_ms.max(1),
            flush_phase_ms: Phase::Flush.of(u64::from(config.partition.0), config.flush_after_ms),
        };
        Window {
            fold: Fold::new(config.types.clone(), config.seed),
            dead_letters: Vec::new(),
            open: None,
            limits,
            renaming: Renaming::default(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.open.is_none()
    }

    pub fn end_of(&self, source: SourceId) -> Option<u64> {
        self.open.filter(|open| open.source == source).map(|open| open.to)
    }

    pub fn flush_at(&self) -> Option<Now> {
        self.open.map(|open| open.flush_at)
    }

    /// Whether a flush has to come before any further row.
    pub fn is_due(&self) -> bool {
        self.open.is_some_and(|open| open.is_due)
    }

    /// Applies a change to the names of its rows.
    pub fn rename(&mut self, change: &TypeChange) {
        self.renaming.push(change);
    }

    pub fn flush_soon(&mut self, now: Now) {
        if let Some(open) = &mut self.open {
            (open.flush_at, open.is_due) = (now, true);
        }
    }

    pub fn size(&self) -> FoldSize {
        self.fold.size()
    }

    /// The sum of the counts whose value is beyond the bound of its dimension.
    pub fn others(&self) -> u64 {
        self.fold.others()
    }

    pub fn is_of(&self, source: SourceId) -> bool {
        self.open.is_none_or(|open| open.source == source)
    }

    /// Counts rows of a source, which begin where the window ends, until it is full.
    pub fn fold(&mut self, now: Now, rules: Rules<'_>, batch: &RowBatch<'_>) {
        let mut from = batch.from;
        let mut records = batch.records;
        while !records.is_empty() && !self.is_due() {
            let run = records.len().min(self.limits.run(self.fold.size()));
            let taken = self.fold_run(now, rules, &RowBatch { from, records: &records[..run], ..*batch });
            from += taken as u64;
            records = &records[taken..];
        }
    }

    /// Counts some rows, and says how many. The window has room for the counts of all of them.
    fn fold_run(&mut self, now: Now, rules: Rules<'_>, batch: &RowBatch<'_>) -> usize {
        let RowBatch { source, reading, from, is_logged, records } = *batch;
        let flush_at = self.limits.next_flush(now);
        let fresh = Open { source, reading, from, to: from, is_end: false, flush_at, is_due: false };
        let judged = |row| if is_logged { Judged::AsOfLogRow(row) } else { Judged::AsNow };
        let mut events = Vec::with_capacity(records.len());
        let mut taken = 0;
        for (row, record) in (from..).zip(records) {
            taken += 1;
            let refused = match record {
                Record::Broken { reason, text } => {
                    Held { letter: letter(source, row, reason, text), names: Names::of_text(text, now) }
                }
                Record::Event(raw) => match rules.checked(now, judged(row), raw) {
                    Ok(event) => {
                        events.push(event);
                        continue;
                    }
                    Err(error) => {
                        let letter = letter(source, row, &error.to_string(), &shown(raw, rules.types));
                        Held { letter, names: Names::of_event(raw, now) }
                    }
                },
            };
            self.dead_letters.push(refused);
            if self.dead_letters.len() >= self.limits.dead_letters {
                break;
            }
        }
        self.fold.add_all(&events);
        let open = self.open.get_or_insert(fresh);
        open.to = from + taken as u64;
        open.is_due = self.dead_letters.len() >= self.limits.dead_letters || self.fold.is_full(&self.limits);
        taken
    }

    /// The source ends where the window does.
    pub fn end(&mut self, end: SourceEnd) {
        let SourceEnd { source, reading, rows } = end;
        let fresh = Open { source, reading, from: rows, to: rows, is_end: true, flush_at: Now(0), is_due: true };
        let open = self.open.get_or_insert(fresh);
        (open.is_end, open.is_due) = (true, true);
    }

    pub fn rows_of(&self, epoch: Epoch, tenant: &str) -> Result<Option<OwnerRows>, RowError> {
        let Some(Open { source, from, to, .. }) = self.open else { return Ok(None) };
        let rows = self.fold.rollups_of(tenant)?;
        let rows = self.renaming.rows(&rows)?.unwrap_or(rows);
        Ok(Some(OwnerRows { epoch, source, from, to, rows }))
    }

    /// All that it holds; it is empty then.
    pub fn take(&mut self, config: &OwnerConfig) -> Result<Option<Taken>, RowError> {
        let Some(Open { source, reading, from, to, is_end, .. }) = self.open.take() else { return Ok(None) };
        let full = std::mem::replace(self, Window::new(config));
        let rows = full.fold.rollups()?;
        let renamed = full.renaming.rows(&rows)?.filter(|_| !bites(Bug::OldNamesInFlushes));
        let rows = Arc::new(renamed.unwrap_or(rows));
        let set = Flushed { source, from, to, rows, until: Now(u64::MAX) };
        Ok(Some(Taken { reading, set, dead_letters: full.dead_letters, is_end }))
    }
}

impl Limits {
    /// Rows that are counted at once: none of them is beyond the limit of cells.
    fn run(&self, size: FoldSize) -> usize {
        self.cells.saturating_sub(size.cells).clamp(1, RUN_MAX)
    }

    fn next_flush(&self, now: Now) -> Now {
        let Limits { flush_every_ms, flush_phase_ms, .. } = *self;
        let passed_ms = now.0.saturating_add(flush_every_ms - flush_phase_ms) % flush_every_ms;
        now.plus_ms(flush_every_ms - passed_ms)
    }
}

impl Fold {
    fn is_full(&self, limits: &Limits) -> bool {
        let size = self.size();
        let is_text_full = size.text_max > ROWS_TEXT_BYTES_MAX - RUN_MAX * ROW_TEXT_BYTES_MAX;
        size.cells >= limits.cells || size.bytes >= limits.bytes || is_text_full
    }
}

impl Flushed {
    pub fn rows_of(&self, epoch: Epoch, tenant: &str) -> Result<OwnerRows, RowError> {
        let mut rows = Rollups::new();
        self.rows.iter().filter(|row| row.tenant == tenant).try_for_each(|row| rows.push_checked(row))?;
        Ok(OwnerRows { epoch, source: self.source, from: self.from, to: self.to, rows })
    }
}

impl Owner {
    pub(super) fn take(&mut self, now: Now, batch: &RowBatch<'_>) {
        if !self.takes_rows() || self.is_ending(batch.source) {
            return;
        }
        if !self.window.is_of(batch.source) {
            return self.window.flush_soon(now);
        }
        let expected = self.position(batch.source).unwrap_or(0);
        if batch.from > expected {
            let source_id = batch.source;
            let from = batch.from;
            return self.stop(Stop::Gap { source_id, expected, from });
        }
        // Rows before the position were counted already.
        let skipped = usize::try_from(expected - batch.from).unwrap_or(usize::MAX);
        if let Some(records) = batch.records.get(skipped..) {
            let rest = RowBatch { from: expected, records, ..*batch };
            let rules = Rules { types: &self.config.types, kept_from: self.horizons.late };
            self.window.fold(now, rules, &rest);
        }
    }

    pub(super) fn end(&mut self, now: Now, end: SourceEnd) {
        let SourceEnd { source, rows, .. } = end;
        let Some(expected) = self.position(source).filter(|_| self.takes_rows() && !self.is_ending(source)) else {
            return;
        };
        match expected.cmp(&rows) {
            Ordering::Equal if self.window.is_of(source) => self.window.end(end),
            Ordering::Equal => self.window.flush_soon(now),
            // The rows before the end were not all taken yet.
            Ordering::Less => {}
            Ordering::Greater => self.stop(Stop::ShortSource { source_id: source, rows, expected }),
        }
    }
}

fn letter(source: SourceId, row: u64, reason: &str, text: &str) -> DeadLetter {
    let reason = cut(reason, DEAD_LETTER_REASON_BYTES_MAX);
    DeadLetter { source, row, reason, text: cut(text, DEAD_LETTER_TEXT_BYTES_MAX) }
}

/// A text that was cut ends with a sign that no JSON ends with, so it is not taken for a whole record.
fn cut(text: &str, bytes: usize) -> String {
    match text.len() <= bytes {
        true => text.to_owned(),
        false => format!("{}{CUT}", cut_to(text, bytes - CUT.len_utf8())),
    }
}

/// The event as JSON, as it may be sent again. A text that is too long makes it too long, so that it is cut and is no JSON.
fn shown(raw: &RawEvent<'_>, types: &EventTypes) -> String {
    let RawEvent { tenant, listing, at_s, event_type, count, values } = *raw;
    let quoted = |text: &str| quoted(cut_to(text, DEAD_LETTER_TEXT_BYTES_MAX));
    let tenant = quoted(tenant);
    let listing = quoted(listing);
    let event_type = quoted(event_type);
    let value = |(dimension, value)| format!(",\"{}\":{}", types.dimensions().name(dimension), quoted(value));
    let values: String = values.iter().map(value).collect();
    format!("{{\"tenant\":{tenant},\"listing\":{listing},\"at\":{at_s},\"type\":{event_type},\"n\":{count}{values}}}")
}

/// A text as JSON.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for sign in text.chars() {
        match sign {
            '"' | '\\' => quoted.extend(['\\', sign]),
            sign if sign < ' ' => quoted.push_str(&format!("\\u{:04x}", u32::from(sign))),
            sign => quoted.push(sign),
        }
    }
    quoted.push('"');
    quoted
}

fn cut_to(text: &str, bytes: usize) -> &str {
    let mut end = text.len().min(bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
