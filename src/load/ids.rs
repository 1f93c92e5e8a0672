//! The ids of a file's rows: which rows repeat others, and how far a load of them has come.

use super::columns::Event;
use super::journal::Replay;
use serde::{Deserialize, Serialize};
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use tidemark_proto::ids::Half;
use tidemark_proto::load::Row;
use tidemark_server::idempotency::digest_of;
use tidemark_server::names::{counter_text, sha256_prefix};

/// Different ids of one file: seven eighths of 2^23, so that the table of them takes at most 280 MB. A larger file is refused.
pub const FILE_IDS_MAX: usize = 7 << 20;

/// The ids of a file, each with what it stands for.
#[derive(Debug, Default)]
pub struct FileIds(HashMap<[u8; 16], Meaning>);

#[derive(Clone, Copy, Debug)]
struct Meaning {
    content: [u8; 8],
    /// Line, or row, that has it first.
    line: u64,
}

/// The relation of a row to earlier rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// It has an id of its own.
    First,
    /// An earlier row has its id and content.
    Same,
    /// An earlier row, in this line, has its id and other content.
    Other { first: u64 },
    /// The file has as many ids as it may have.
    Full,
}

impl FileIds {
    /// Takes the next row.
    pub fn enter(&mut self, line: u64, row: &Row, id: &str) -> Repeat {
        let digest = digest(row, id);
        let content = content(row);
        let is_full = self.0.len() >= FILE_IDS_MAX;
        match self.0.entry(digest) {
            Entry::Occupied(known) if known.get().content == content => Repeat::Same,
            Entry::Occupied(known) => Repeat::Other { first: known.get().line },
            Entry::Vacant(_) if is_full => Repeat::Full,
            Entry::Vacant(free) => {
                free.insert(Meaning { content, line });
                Repeat::First
            }
        }
    }

    /// Whether a row that was entered is the first of its id. Rows are asked for in their order, each once.
    pub fn take_first(&mut self, event: &Event) -> bool {
        let Event { row, id } = event;
        id.as_deref().is_some_and(|id| self.0.remove(&digest(row, id)).is_some())
    }
}

fn digest(row: &Row, id: &str) -> [u8; 16] {
    digest_of(row.counter.namespace(), id)
}

/// Digest of all that a row counts.
fn content(row: &Row) -> [u8; 8] {
    sha256_prefix(&[row_text(row).as_bytes()])
}

/// All that a row counts.
pub fn row_text(row: &Row) -> String {
    let Row { counter, half, delta, at } = row;
    let sign = if *half == Half::Up { "+" } else { "-" };
    let at = at.map_or(String::new(), |at| format!(" at {}", at.s()));
    format!("{sign}{delta}{at} on {}", counter_text(counter))
}

/// Rows with ids, by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdTally {
    /// Counted by this load.
    pub counted: u64,
    /// Their ids had counted before.
    pub known: u64,
    /// An earlier row of the file has the same id and content.
    pub repeated: u64,
    /// Of those counted, now or before, rows that count in totals only.
    pub total_only: u64,
    pub refused: u64,
}

impl IdTally {
    pub fn add(&mut self, other: IdTally) {
        let IdTally { counted, known, repeated, total_only, refused } = other;
        self.counted += counted;
        self.known += known;
        self.repeated += repeated;
        self.total_only += total_only;
        self.refused += refused;
    }
}

/// A line of the journal of a load of rows with ids. Rows are counted from 0 on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum IdRecord {
    /// The next rows are on their way, since this number of seconds after 1970.
    Sent { rows: Range<u64>, at_s: u64 },
    /// The result of each of these rows is known.
    Done { rows: Range<u64>, tally: IdTally },
    /// All rows of the file are done.
    Finished { rows: u64 },
}

/// How far a load of rows with ids has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdProgress {
    /// Rows that were on their way once are those before this.
    next: u64,
    /// Rows that are still on their way: by the first of some rows, the number behind the last, and since when.
    open: BTreeMap<u64, (u64, u64)>,
    pub tally: IdTally,
    pub finished: Option<u64>,
}

impl IdProgress {
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Rows that are on their way, with the second of the first time.
    pub fn open(&self) -> impl Iterator<Item = (Range<u64>, u64)> {
        self.open.iter().map(|(&start, &(end, at_s))| (start..end, at_s))
    }

    /// Rows before this are done.
    pub fn done_before(&self) -> u64 {
        self.open.keys().next().copied().unwrap_or(self.next)
    }
}

/// A record that cannot come behind those before it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadIdRecord {
    #[error("rows {rows:?} are on their way, and rows from {next} on expected")]
    Sent { rows: Range<u64>, next: u64 },
    #[error("rows {rows:?} are done, and were not on their way")]
    Done { rows: Range<u64> },
    #[error("{rows} rows are finished, and {done} are done")]
    Finished { rows: u64, done: u64 },
}

impl Replay for IdProgress {
    type Record = IdRecord;
    type Error = BadIdRecord;

    fn replay(&mut self, record: &IdRecord) -> Result<(), BadIdRecord> {
        match record {
            IdRecord::Sent { rows, .. } if rows.start != self.next || rows.is_empty() => {
                Err(BadIdRecord::Sent { rows: rows.clone(), next: self.next })
            }
            IdRecord::Sent { rows, at_s } => {
                self.open.insert(rows.start, (rows.end, *at_s));
                self.next = rows.end;
                Ok(())
            }
            IdRecord::Done { rows, tally } => match self.open.remove(&rows.start) {
                Some((end, _)) if end == rows.end => {
                    self.tally.add(*tally);
                    Ok(())
                }
                _ => Err(BadIdRecord::Done { rows: rows.clone() }),
            },
            IdRecord::Finished { rows } if *rows == self.next && self.open.is_empty() => {
                self.finished = Some(*rows);
                Ok(())
            }
            IdRecord::Finished { rows } => Err(BadIdRecord::Finished { rows: *rows, done: self.done_before() }),
        }
    }

    fn is_cut_off(&self) -> bool {
        self.next > 0 && self.finished.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemark_proto::ids::CounterName;
    use tidemark_proto::series::UnixTime;

    fn row(namespace: &str, delta: u64, at: Option<i64>) -> Row {
        let counter = CounterName::new(namespace, b"a").unwrap();
        Row { counter, half: Half::Up, delta, at: at.map(|at| UnixTime::from_s(at).unwrap()) }
    }

    #[test]
    fn a_row_repeats_one_of_the_same_namespace_id_and_content_only() {
        let mut ids = FileIds::default();
        let first = row("shop", 5, Some(60));
        assert_eq!(ids.enter(2, &first, "x"), Repeat::First);
        assert_eq!(ids.enter(3, &first, "x"), Repeat::Same);
        assert_eq!(ids.enter(4, &first, "y"), Repeat::First);
        assert_eq!(ids.enter(5, &row("site", 5, Some(60)), "x"), Repeat::First, "ids of two namespaces are two");
        let down = Row { half: Half::Down, ..first.clone() };
        let other = Row { counter: CounterName::new("shop", b"b").unwrap(), ..first.clone() };
        for other in [row("shop", 6, Some(60)), row("shop", 5, Some(61)), row("shop", 5, None), down, other] {
            assert_eq!(ids.enter(6, &other, "x"), Repeat::Other { first: 2 }, "{other:?}");
        }
        let event = |id: &str| Event { row: first.clone(), id: Some(id.to_owned()) };
        assert_eq!(["x", "x", "y", "z"].map(|id| ids.take_first(&event(id))), [true, false, true, false]);
    }

    #[test]
    fn a_journal_whose_lines_do_not_follow_from_each_other_is_refused() {
        let sent = |rows| IdRecord::Sent { rows, at_s: 7 };
        let done = |rows| IdRecord::Done { rows, tally: IdTally { counted: 1, ..IdTally::default() } };
        let begun = [sent(0..3), sent(3..5), sent(5..6), done(3..5)];
        let after = |record: IdRecord| {
            let mut progress = IdProgress::default();
            begun.iter().for_each(|record| progress.replay(record).unwrap());
            progress.replay(&record).map(|()| progress)
        };
        let progress = after(done(0..3)).unwrap();
        assert_eq!((progress.next(), progress.done_before(), progress.tally.counted), (6, 5, 2));
        assert_eq!(progress.open().collect::<Vec<_>>(), [(5..6, 7)]);
        for wrong in [sent(7..9), sent(6..6), done(3..5), done(0..2), IdRecord::Finished { rows: 6 }] {
            assert!(after(wrong.clone()).is_err(), "{wrong:?}");
        }
    }
}
