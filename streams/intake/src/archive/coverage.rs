//! Which of the rows that a reader asks for are in the archive or the log, and which are missing.

use super::file::FileName;
use std::ops::Range;
use tidemark_streams_core::erasure;
use tidemark_streams_core::teeth::{Bug, bites};
use tidemark_streams_core::time::{Hour, Now};

/// Which of the rows that were asked for were there. A reader goes through files and entries in the order of their rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coverage {
    asked: Range<u64>,
    /// The next row.
    next: u64,
    missing: Vec<Missing>,
}

/// Rows that are not there: `from` to `to`, `to` not included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missing {
    pub from: u64,
    pub to: u64,
    /// They were accepted up to then, in milliseconds since 1970.
    pub until_ms: u64,
}

impl Coverage {
    /// A reader asks for these rows.
    pub fn of(asked: Range<u64>) -> Coverage {
        Coverage { next: asked.start, asked, missing: Vec::new() }
    }

    /// Whether all rows were there. Rows that were erased count as being there.
    pub fn is_whole(&self) -> bool {
        self.missing.is_empty()
    }

    /// Whether any row was there.
    pub fn has_rows(&self) -> bool {
        self.missing_rows() < self.asked_rows()
    }

    pub fn asked_rows(&self) -> u64 {
        self.asked.end.saturating_sub(self.asked.start)
    }

    pub fn missing_rows(&self) -> u64 {
        self.missing.iter().map(|missing| missing.to - missing.from).sum()
    }

    /// In the order of their numbers.
    pub fn missing(&self) -> &[Missing] {
        &self.missing
    }

    /// The time up to which missing rows were accepted, in milliseconds since 1970.
    pub fn missing_until_ms(&self) -> Option<u64> {
        self.missing.iter().map(|missing| missing.until_ms).max()
    }

    /// From this hour on all events are there. An event may lie ahead of the time at which it was accepted.
    pub fn exact_from(&self) -> Hour {
        self.missing_until_ms().map_or(Hour(0), |until_ms| erasure::before(Now(until_ms)))
    }

    /// The row that the reader comes to next, if it is one that was asked for.
    pub fn next(&self) -> Option<u64> {
        Some(self.next).filter(|next| self.asked.contains(next))
    }

    /// The reader comes to a file. `false`: it needs none of its rows.
    pub fn begin(&mut self, name: &FileName) -> bool {
        if name.to <= self.next || name.from >= self.asked.end {
            return false;
        }
        self.reach(name.from, name.first_ms);
        true
    }

    /// The rows that the reader needs of an entry with these rows, if any.
    pub fn needs(&self, rows: Range<u64>) -> Option<Range<u64>> {
        let needed = rows.start.max(self.next)..rows.end.min(self.asked.end);
        (!needed.is_empty()).then_some(needed)
    }

    /// The reader has taken rows that it needed.
    pub fn take(&mut self, rows: &Range<u64>) {
        self.next = rows.end;
    }

    /// A file was read. Rows of its range without an entry are erased.
    pub fn end(&mut self, name: &FileName) {
        self.next = self.next.max(name.to.min(self.asked.end));
    }

    /// A file cannot be read further.
    pub fn end_damaged(&mut self, name: &FileName) -> Missing {
        let missing = Missing { from: self.next, to: name.to.min(self.asked.end), until_ms: name.last_ms };
        self.missing.push(missing);
        self.next = missing.to;
        missing
    }

    /// The reader takes these rows of the log, which were accepted at a time.
    pub fn take_logged(&mut self, rows: Range<u64>, accepted_at_ms: u64) {
        self.reach(rows.start, accepted_at_ms);
        self.next = rows.end;
    }

    /// The reader is at the end of the log.
    pub fn finish(&mut self) {
        self.reach(self.asked.end, u64::MAX);
    }

    /// Rows from this position on are there, but for missing rows before it, which were accepted until `until_ms`.
    fn reach(&mut self, from: u64, until_ms: u64) {
        if from <= self.next {
            return;
        }
        if !bites(Bug::RawHolesPassedOver) {
            self.missing.push(Missing { from: self.next, to: from, until_ms });
        }
        self.next = from;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(from: u64, to: u64, at_ms: u64) -> FileName {
        FileName { from, to, first_ms: at_ms, last_ms: at_ms + 5, erasures: 0 }
    }

    #[test]
    fn rows_between_files_are_missing_and_erased_rows_are_not() {
        let mut coverage = Coverage::of(2..40);
        let first = name(4, 10, 100);
        assert!(coverage.begin(&first) && !coverage.begin(&name(50, 60, 1)));
        assert_eq!(coverage.needs(3..6), Some(4..6));
        coverage.take(&(4..6));
        assert_eq!(coverage.needs(5..6), None);
        coverage.end(&first);
        assert!(!coverage.begin(&first), "another file has its rows");
        assert!(coverage.begin(&name(10, 20, 200)));
        assert_eq!(coverage.needs(8..12), Some(10..12));
        coverage.take(&(10..12));
        assert_eq!(coverage.end_damaged(&name(10, 20, 200)), Missing { from: 12, to: 20, until_ms: 205 });
        coverage.take_logged(25..30, 300);
        let rows =
            |missing: &[Missing]| missing.iter().map(|rows| (rows.from, rows.to, rows.until_ms)).collect::<Vec<_>>();
        assert_eq!(rows(coverage.missing()), [(2, 4, 100), (12, 20, 205), (20, 25, 300)]);
        assert_eq!((coverage.missing_rows(), coverage.has_rows(), coverage.next()), (15, true, Some(30)));
        coverage.finish();
        assert_eq!((coverage.missing_until_ms(), coverage.next()), (Some(u64::MAX), None));
    }

    #[test]
    fn hours_are_exact_behind_the_last_missing_row() {
        let mut coverage = Coverage::of(0..20);
        assert_eq!(coverage.exact_from(), Hour(0));
        // Accepted at 3 300 s, so an event may be of the second hour.
        coverage.begin(&name(10, 20, 3_300_000));
        assert_eq!(coverage.exact_from(), Hour(2));
    }
}
