//! What must hold of an archive.

use super::{Row, Seen, World};
use crate::checkers::{ARCHIVED, Violation};
use std::collections::{BTreeMap, BTreeSet};
use tidemark_streams_core::time::Hour;
use tidemark_streams_intake::archive::coverage::Coverage;
use tidemark_streams_intake::archive::erased::{Kept, kept};
use tidemark_streams_intake::archive::keeper::Keeper;

/// The counts of a tenant and listing in an hour.
type Counts<'a> = BTreeMap<(Hour, &'a str, &'a str), u64>;

fn wrong(what: String) -> Violation {
    Violation { checker: ARCHIVED, what }
}

impl World {
    /// A reader finds each counted row once, as it was, or is told that it is missing. Only erased rows are passed over.
    pub(super) fn check(&mut self) -> Result<(), Violation> {
        self.excuse_old();
        let (coverage, seen) = self.read();
        self.compare(&seen)?;
        let missing: BTreeSet<u64> = coverage.missing().iter().flat_map(|rows| rows.from..rows.to).collect();
        let found: BTreeSet<u64> = seen.iter().map(|seen| seen.row).collect();
        for (number, row) in (0..self.committed).zip(&self.rows) {
            let is_missing = missing.contains(&number);
            if is_missing && !self.excused.contains(&number) {
                return Err(wrong(format!("row {number} is lost, and is to be kept")));
            }
            if is_missing && row.hour() >= coverage.exact_from() {
                return Err(wrong(format!("row {number} is missing in hour {}, which is called exact", row.hour().0)));
            }
            if !is_missing && !found.contains(&number) && !row.is_erased(&self.erasures) {
                return Err(wrong(format!("row {number} is said to be there, and no file has it")));
            }
        }
        if !missing.is_empty() {
            self.meet("rows missing");
            if self.rows.iter().any(|row| row.hour() >= coverage.exact_from()) {
                self.meet("rows behind missing rows compared");
            }
        }
        self.recount(&coverage, &found)
    }

    /// Rows may be missing once their time is over.
    fn excuse_old(&mut self) {
        let is_old = |row: &Row| self.keep_ms.is_none_or(|keep_ms| row.accepted_at_ms + keep_ms <= self.now_ms);
        let old = (0..).zip(&self.rows).filter(|(number, row)| *number < self.committed && is_old(row));
        self.excused.extend(old.map(|(number, _)| number));
    }

    fn compare(&self, seen: &[Seen]) -> Result<(), Violation> {
        let mut next = 0;
        for Seen { row: number, text } in seen {
            let row = self.rows.get(*number as usize).filter(|row| *number >= next && row.text() == *text);
            if row.is_none() {
                return Err(wrong(format!("row {number} is read as {text}, behind row {next}")));
            }
            next = number + 1;
        }
        Ok(())
    }

    /// The sums of the rows that a reader finds, by hour, are those of the live rows, without letters and erased rows.
    fn recount(&self, coverage: &Coverage, found: &BTreeSet<u64>) -> Result<(), Violation> {
        let mut live = Counts::new();
        let mut raw = Counts::new();
        let counts = |row: &Row| !row.is_broken && !row.is_erased(&self.erasures);
        for (number, row) in (0..self.committed).zip(&self.rows).filter(|(_, row)| counts(row)) {
            let key = (row.hour(), row.tenant, row.listing);
            *live.entry(key).or_default() += 1;
            if found.contains(&number) {
                *raw.entry(key).or_default() += 1;
            }
        }
        for (key, expected) in &live {
            let found = raw.get(key).copied().unwrap_or_default();
            let is_exact = key.0 >= coverage.exact_from();
            if found > *expected || (is_exact && found != *expected) {
                return Err(wrong(format!("{key:?} counts {found} in the archive, and {expected} in blobs")));
            }
        }
        Ok(())
    }

    /// With no work left no file is too old, and no file that was looked through holds erased rows.
    pub(super) fn check_idle(&self, keeper: &Keeper) -> Result<(), Violation> {
        for (name, entries) in self.disk.files() {
            let is_old = self.keep_ms.is_none_or(|keep_ms| name.last_ms + keep_ms <= self.now_ms);
            if is_old {
                return Err(wrong(format!("file {name} is kept beyond its time")));
            }
            let is_left = self.disk.is_damaged(name) && keeper.unclean(Some(self.erasures.count())) > 0;
            if !self.is_erased || is_left {
                continue;
            }
            let is_clean = |entry: &Vec<u8>| kept(entry, &self.erasures) == Ok(Kept::Whole);
            if !entries.iter().all(is_clean) {
                return Err(wrong(format!("file {name} holds erased rows, and no work is left")));
            }
        }
        Ok(())
    }
}
