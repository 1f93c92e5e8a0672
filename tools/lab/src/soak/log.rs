//! The log of a front end: what it asked for and what it was told, appended to a file outside the cluster's directories, on a thread
//! of its own. The account at the end is read from these files. [`account`](super::account) says what each line means.
//!
//! Hits have numbers, and what was told of each is found by its number, in runs of equal outcomes. Adds are written down by counter
//! for intervals of about a second: a client says of adds by their counter only that they are lost. Changes of
//! edges are written down batch by batch, one after the other.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::edges::{Change, Counts};

pub const HEADER: &str = "tidemark-soak-log 2";
/// All logs of a soak together. A front end with a full log counts no more, and the soak has failed: unwritten increments cannot be
/// accounted for.
pub const LOGS_BYTES_MAX: u64 = 300_000_000;
/// Lines that wait for the thread; a front end with more waits for it.
const ENTRIES_MAX: usize = 1 << 16;
/// Outcomes are gathered for so long, so that neighbours make one run.
const GATHER: Duration = Duration::from_secs(1);

/// The answer to a hit of a front end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Told {
    Durable,
    /// These and `Durable` mean that it was counted.
    Counted,
    Number(u64),
    Milestone {
        at: u64,
        first: u64,
    },
    Placeless,
    /// Counted once, or not at all.
    Unknown,
    /// Surely not counted.
    Refused,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Hits up to this number are handed over, from 1 on.
    Asked(u64),
    Told(u64, Told),
    /// Weight by number of the counter, handed over in an interval.
    Added {
        interval: u64,
        weights: BTreeMap<usize, u64>,
    },
    /// All of an interval is durable, but what was said to be lost.
    Settled {
        interval: u64,
    },
    RefusedAdd {
        counter: usize,
        weight: u64,
    },
    UnknownAdd {
        counter: usize,
        weight: u64,
    },
    /// A batch of changes is asked for.
    Edges {
        batch: u64,
        changes: Vec<Change>,
    },
    /// It was carried out, and this is what it is told to have changed.
    EdgesMade {
        batch: u64,
        counts: Counts,
    },
}

/// Where a front end writes. Clones write to the same file.
#[derive(Clone)]
pub struct Log(SyncSender<Option<Entry>>);

/// A file that is being written.
pub struct LogFile {
    log: Log,
    thread: JoinHandle<io::Result<u64>>,
}

impl Log {
    /// Whether there is a log to write to: it may be full.
    pub fn write(&self, entry: Entry) -> bool {
        self.0.send(Some(entry)).is_ok()
    }
}

pub fn path(dir: &Path, front_end: usize) -> PathBuf {
    dir.join(format!("front-end-{front_end}.log"))
}

impl LogFile {
    /// Begins the log of a front end with sessions that begin with `sessions`.
    ///
    /// # Errors
    /// There is such a file, or it cannot be made.
    pub fn create(dir: &Path, front_end: usize, sessions: u64, bytes_max: u64) -> io::Result<LogFile> {
        let file = File::create_new(path(dir, front_end))?;
        let mut lines = Lines { file: BufWriter::new(file), bytes: 0, bytes_max };
        lines.write(&format!("{HEADER}\nsessions {sessions:016x}\n"))?;
        let (sender, entries) = sync_channel(ENTRIES_MAX);
        Ok(LogFile { log: Log(sender), thread: std::thread::spawn(move || lines.write_all(&entries)) })
    }

    pub fn log(&self) -> Log {
        self.log.clone()
    }

    /// Ends the file, waits until the disk has it, and says how long it is.
    ///
    /// # Errors
    /// It is full, or could not be written.
    pub fn finish(self) -> io::Result<u64> {
        let _ = self.log.0.send(None);
        self.thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread that writes it has ended")))
    }
}

struct Lines {
    file: BufWriter<File>,
    bytes: u64,
    bytes_max: u64,
}

impl Lines {
    fn write_all(mut self, entries: &Receiver<Option<Entry>>) -> io::Result<u64> {
        let mut gathered = Gathered::default();
        let mut until = Instant::now() + GATHER;
        loop {
            let entry = entries.recv_timeout(until.saturating_duration_since(Instant::now()));
            match entry {
                Ok(Some(Entry::Asked(number))) => gathered.asked = Some(number),
                Ok(Some(Entry::Told(number, told))) => gathered.told.push((number, told)),
                Ok(Some(entry)) => self.write(&line_of(&entry))?,
                Ok(None) | Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {}
            }
            if Instant::now() >= until {
                self.write(&gathered.take())?;
                until = Instant::now() + GATHER;
            }
        }
        self.write(&(gathered.take() + "end\n"))?;
        self.file.flush()?;
        self.file.get_ref().sync_all()?;
        Ok(self.bytes)
    }

    fn write(&mut self, text: &str) -> io::Result<()> {
        self.bytes += text.len() as u64;
        if self.bytes > self.bytes_max {
            return Err(io::Error::other(format!("it is full: {} bytes are allowed", self.bytes_max)));
        }
        self.file.write_all(text.as_bytes())
    }
}

fn line_of(entry: &Entry) -> String {
    match entry {
        Entry::Added { interval, weights } => {
            let mut line = format!("added {interval}");
            for (counter, weight) in weights {
                write!(line, " {counter}:{weight}").expect("a string takes everything");
            }
            line + "\n"
        }
        Entry::Settled { interval } => format!("settled {interval}\n"),
        Entry::RefusedAdd { counter, weight } => format!("refused-add {counter} {weight}\n"),
        Entry::UnknownAdd { counter, weight } => format!("unknown-add {counter} {weight}\n"),
        Entry::Edges { batch, changes } => {
            let mut line = format!("edges {batch}");
            for Change { inserts, from, to } in changes {
                let sign = if *inserts { '+' } else { '-' };
                write!(line, " {sign}{from}:{to}").expect("a string takes everything");
            }
            line + "\n"
        }
        Entry::EdgesMade { batch, counts: Counts { inserted, removed } } => {
            format!("edges-made {batch} {inserted} {removed}\n")
        }
        Entry::Asked(_) | Entry::Told(..) => unreachable!("hits are gathered"),
    }
}

/// The known facts about hits since the last write.
#[derive(Default)]
struct Gathered {
    asked: Option<u64>,
    told: Vec<(u64, Told)>,
}

impl Gathered {
    /// The lines of it, and nothing is left.
    fn take(&mut self) -> String {
        let mut text = self.asked.take().map_or(String::new(), |asked| format!("asked {asked}\n"));
        self.told.sort_unstable();
        let mut runs: Vec<(u64, u64, Told)> = Vec::new();
        for (at, &(number, told)) in self.told.iter().enumerate() {
            let next = self.told.get(at + 1);
            if told == Told::Durable && next.is_some_and(|(next, told)| *next == number && told.is_counted()) {
                continue;
            }
            match runs.last_mut() {
                Some((from, to, of)) if *to + 1 == number && of.after(number - *from) == Some(told) => *to = number,
                _ => runs.push((number, number, told)),
            }
        }
        self.told.clear();
        runs.iter().for_each(|&(from, to, told)| text += &line_of_hits(from, to, told));
        text
    }
}

impl Told {
    pub fn is_counted(self) -> bool {
        !matches!(self, Told::Unknown | Told::Refused)
    }

    /// The answer to the hit that stands `n` further on in a run, if there can be one.
    fn after(self, n: u64) -> Option<Told> {
        match self {
            Told::Number(first) => Some(Told::Number(first + n)),
            Told::Milestone { .. } => None,
            told => Some(told),
        }
    }
}

fn line_of_hits(from: u64, to: u64, told: Told) -> String {
    match told {
        Told::Durable => format!("durable {from} {to}\n"),
        Told::Counted => format!("counted {from} {to}\n"),
        Told::Number(first) => format!("number {from} {to} {first}\n"),
        Told::Milestone { at, first } => format!("milestone {from} {at} {first}\n"),
        Told::Placeless => format!("placeless {from} {to}\n"),
        Told::Unknown => format!("unknown {from} {to}\n"),
        Told::Refused => format!("refused {from} {to}\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::cluster::Folder;

    #[test]
    fn neighbours_of_one_outcome_are_one_run_and_a_place_says_that_it_is_durable() {
        let counted = |number| [(number, Told::Durable), (number, Told::Counted)];
        let mut told: Vec<(u64, Told)> = [3, 1, 2].into_iter().flat_map(counted).collect();
        told.extend([(4, Told::Durable), (5, Told::Durable), (5, Told::Unknown)]);
        told.extend([(6, Told::Number(90)), (7, Told::Number(91)), (8, Told::Number(91))]);
        told.push((9, Told::Milestone { at: 100, first: 100 }));
        let mut gathered = Gathered { asked: Some(9), told };
        let lines =
            "asked 9\ncounted 1 3\ndurable 4 5\nunknown 5 5\nnumber 6 7 90\nnumber 8 8 91\nmilestone 9 100 100\n";
        assert_eq!(gathered.take(), lines);
        assert_eq!(gathered.take(), "");
    }

    #[test]
    fn a_full_log_says_so_to_who_writes_and_at_the_end() {
        let folder = Folder::new().unwrap();
        let file = LogFile::create(folder.path(), 0, 7, 100).unwrap();
        let log = file.log();
        let added = |interval| Entry::Added { interval, weights: BTreeMap::from([(1, 1)]) };
        let refused = (0..).find(|&interval| !log.write(added(interval)));
        assert!(refused.is_some());
        assert!(file.finish().unwrap_err().to_string().contains("100 bytes are allowed"));
        assert!(LogFile::create(folder.path(), 0, 7, 100).is_err(), "a log is never written over");
    }
}
