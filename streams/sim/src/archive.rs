//! The archive of raw events beside a log that is cut, by the shipped rules. The disk fills up and fails, and processes end within a turn.
//!
//! A plain loop stands for the owner: it counts all rows up to a position, and a manifest keeps that. The shell of `serve` is modelled.

mod check;
mod disk;

use crate::checkers::Violation;
use crate::oracle::START_S;
use crate::rng::Rng;
use crate::world::Situations;
use disk::{Disk, Entries, Fault};
use std::collections::BTreeSet;
use tidemark_streams_core::blob::Seq;
use tidemark_streams_core::erasure::{self, Erasure, ErasureKey, Erasures};
use tidemark_streams_core::event::RawEvent;
use tidemark_streams_core::names::Names;
use tidemark_streams_core::owner::Record;
use tidemark_streams_core::scope::TenantHash;
use tidemark_streams_core::time::{HOUR_S, Hour, Now};
use tidemark_streams_intake::archive::coverage::Coverage;
use tidemark_streams_intake::archive::erased::{Kept, kept, without_ids};
use tidemark_streams_intake::archive::file::FileName;
use tidemark_streams_intake::archive::index::Index;
use tidemark_streams_intake::archive::keeper::{Append, Keeper, Step, Turn, cut_to};
use tidemark_streams_intake::entry::{Batch, Event, Head, Listings, ValidEvent};

const HOUR_MS: u64 = 3_600_000;
/// Actions of a run.
const ACTIONS: u64 = 160;
/// Entries of a new file.
const ENTRIES_MAX: usize = 3;
/// An event may lie ahead of the time at which it is accepted.
const AHEAD_S: u64 = 300;
const TENANTS: [&str; 3] = ["tenant-0", "tenant-1", "tenant-2"];
const LISTINGS: [&str; 3] = ["listing-0", "listing-1", "listing-2"];

#[derive(Clone, Debug)]
pub struct Outcome {
    pub violation: Option<Violation>,
    pub situations: Situations,
}

/// An event as it was accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    tenant: &'static str,
    listing: &'static str,
    at_s: u64,
    accepted_at_ms: u64,
    /// It becomes a dead letter.
    is_broken: bool,
}

/// A row as a reader finds it.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    row: u64,
    text: String,
}

/// An entry of the log.
struct Entry {
    head: Head,
    bytes: Vec<u8>,
}

struct World {
    rng: Rng,
    now_ms: u64,
    keep_ms: Option<u64>,
    rows: Vec<Row>,
    log: Vec<Entry>,
    /// Rows before this one are counted.
    committed: u64,
    erasures: Erasures,
    /// Whether all erasures are done in blobs.
    is_erased: bool,
    disk: Disk,
    /// `None`: the process is down.
    keeper: Option<Keeper>,
    /// Rows that may be missing: they were too old, or not to be kept, or in a file that was damaged.
    excused: BTreeSet<u64>,
    situations: Situations,
}

/// Runs a seed.
pub fn run(seed: u64) -> Outcome {
    let mut rng = Rng::new(seed);
    let keep_ms = Some(rng.between(2, 60) * HOUR_MS);
    let mut world = World {
        rng,
        now_ms: START_S * 1_000,
        keep_ms,
        rows: Vec::new(),
        log: Vec::new(),
        committed: 0,
        erasures: Erasures::default(),
        is_erased: true,
        disk: Disk::default(),
        keeper: None,
        excused: BTreeSet::new(),
        situations: Situations::new(),
    };
    let mut violation = None;
    for action in 0..ACTIONS {
        // In the end the disk has room, and all work is done.
        let done = if action + 1 < ACTIONS { world.act() } else { world.finish() };
        if let Err(found) = done.and_then(|()| world.check()) {
            violation = Some(found);
            break;
        }
    }
    Outcome { violation, situations: world.situations }
}

impl Row {
    fn draw(now_ms: u64, rng: &mut Rng) -> Row {
        let latest_s = now_ms / 1_000 + AHEAD_S;
        let late_s = if rng.percent(30) { rng.below(2 * AHEAD_S) } else { rng.below(30 * HOUR_S) };
        Row {
            tenant: TENANTS[rng.below(3) as usize],
            listing: LISTINGS[rng.below(3) as usize],
            at_s: latest_s - late_s,
            accepted_at_ms: now_ms,
            is_broken: rng.percent(10),
        }
    }

    fn text(&self) -> String {
        let Row { tenant, listing, at_s, .. } = self;
        format!("{{\"tenant\":\"{tenant}\",\"listing\":\"{listing}\",\"at\":{at_s}}}")
    }

    fn event(&self) -> Event<'static> {
        if self.is_broken {
            return Event::Broken { reason: "count is negative".into(), text: self.text().into() };
        }
        Event::Valid(ValidEvent {
            tenant: self.tenant.into(),
            listings: Listings::One(self.listing.into()),
            at_s: self.at_s as i64,
            event_type: "impression".into(),
            count: 1,
            id: None,
            values: "".into(),
        })
    }

    fn hour(&self) -> Hour {
        Hour((self.at_s / HOUR_S) as u32)
    }

    fn is_erased(&self, erasures: &Erasures) -> bool {
        match self.is_broken {
            true => erasures.erases_raw_letter(&Names::of_text(&self.text(), Now(0)), self.accepted_at_ms),
            false => erasures.erases(TenantHash::of(self.tenant), self.listing, self.hour()),
        }
    }
}

impl World {
    fn meet(&mut self, situation: &'static str) {
        *self.situations.entry(situation).or_default() += 1;
    }

    fn act(&mut self) -> Result<(), Violation> {
        match self.rng.below(30) {
            0..=6 => self.accept(),
            7..=11 => self.committed = self.rng.between(self.committed, self.rows.len() as u64),
            12..=17 => return self.turn().map(|_| ()),
            18 | 19 => self.cut_log(),
            20 => self.now_ms += self.rng.below(20 * HOUR_MS),
            21 => self.erase(),
            22 | 23 => self.is_erased = true,
            24 => {
                self.disk.power_cut(&mut self.rng);
                self.keeper = None;
                self.meet("power cut");
            }
            25 => self.keeper = None,
            26 => self.disk.is_full = self.rng.percent(50),
            27 if self.rng.percent(30) => self.damage(),
            28 if self.rng.percent(30) => {
                self.disk.delete_damaged();
                self.keeper = None;
            }
            29 if self.rng.percent(10) => {
                // The server starts again with other settings.
                self.keep_ms = self.rng.percent(80).then(|| self.rng.between(2, 60) * HOUR_MS);
                self.keeper = None;
            }
            _ => self.now_ms += self.rng.below(HOUR_MS),
        }
        Ok(())
    }

    fn accept(&mut self) {
        self.now_ms += self.rng.below(HOUR_MS / 3);
        let first_row = self.rows.len() as u64;
        let rows: Vec<Row> = (0..self.rng.between(1, 6)).map(|_| Row::draw(self.now_ms, &mut self.rng)).collect();
        let batch = Batch { events: rows.iter().map(Row::event).collect(), ..Batch::default() };
        let bytes = batch.encode(first_row, self.now_ms);
        let head = Head { first_row, rows: rows.len() as u32, accepted_at_ms: self.now_ms };
        self.log.push(Entry { head, bytes });
        self.rows.extend(rows);
    }

    fn erase(&mut self) {
        let listing = self.rng.percent(50).then(|| LISTINGS[self.rng.below(3) as usize]);
        let key = ErasureKey::of(TENANTS[self.rng.below(3) as usize], listing);
        let before = erasure::before(Now(self.now_ms));
        let erasure = Erasure { before, asked_at_ms: self.now_ms, seq: Seq(1), is_done: false };
        // A run has far fewer than the most.
        let _ = self.erasures.add(key, erasure);
        self.is_erased = false;
        self.meet("erasure");
    }

    fn damage(&mut self) {
        if let Some(name) = self.disk.damage(&mut self.rng) {
            self.excused.extend(name.from..name.to);
            self.meet("file damaged");
        }
    }

    fn counted(&self) -> Option<u64> {
        let counted = self.log.iter().map(|entry| entry.head.end_row());
        counted.take_while(|end| *end <= self.committed).last()
    }

    fn cut_log(&mut self) {
        let Some(keeper) = &self.keeper else { return };
        let to = cut_to(self.committed, self.keep_ms.map(|_| keeper.end()));
        let len = self.log.len();
        if self.keep_ms.is_none() {
            self.excused.extend(0..to);
        }
        self.log.retain(|entry| entry.head.end_row() > to);
        if self.log.len() < len {
            self.meet("log cut");
        }
    }

    fn finish(&mut self) -> Result<(), Violation> {
        self.disk.is_full = false;
        self.committed = self.rows.len() as u64;
        self.is_erased = true;
        self.keeper = None;
        while self.turn()? {
            self.cut_log();
            self.check()?;
        }
        Ok(())
    }

    fn rules(&self) -> Turn {
        let erasures = self.is_erased.then(|| self.erasures.count());
        Turn { counted: self.counted(), now_ms: self.now_ms, keep_ms: self.keep_ms, erasures }
    }

    /// A turn of the archive, which may end within. `true`: more is to be done.
    fn turn(&mut self) -> Result<bool, Violation> {
        let is_last = self.committed == self.rows.len() as u64 && !self.disk.is_full;
        self.disk.fuse = (!is_last && self.rng.percent(20)).then(|| self.rng.below(8));
        let mut keeper = match self.keeper.take() {
            Some(keeper) => keeper,
            None => Keeper::new(Index::of(self.disk.names().into_iter().map(|name| (name, 1)))),
        };
        keeper.begin();
        let done = self.work(&mut keeper);
        self.disk.fuse = None;
        let has_more = done == Ok(true);
        match done {
            Ok(true) => self.keeper = Some(keeper),
            Ok(false) => {
                self.check_idle(&keeper)?;
                self.keeper = Some(keeper);
            }
            Err(Fault::Full) => {
                self.meet("full disk");
                self.keeper = Some(keeper);
            }
            Err(Fault::Ended) => {
                self.meet("end within a turn");
                if self.rng.percent(50) {
                    self.disk.power_cut(&mut self.rng);
                }
            }
        }
        Ok(has_more)
    }

    /// As the shell does it. `false`: no work is left.
    fn work(&mut self, keeper: &mut Keeper) -> Result<bool, Fault> {
        let rules = self.rules();
        while let Some(step) = keeper.next(&rules) {
            match &step {
                Step::Sync => {
                    self.disk.sync()?;
                    keeper.synced();
                }
                Step::Remove(old) => {
                    for name in old {
                        self.disk.remove(*name)?;
                        keeper.removed(name);
                    }
                    self.disk.sync()?;
                    self.meet("files removed");
                }
                Step::Append { from } => {
                    self.append(keeper, *from)?;
                    return Ok(true);
                }
                Step::Rewrite { old, new } => self.rewrite(keeper, old, *new)?,
            }
        }
        Ok(false)
    }

    fn append(&mut self, keeper: &mut Keeper, from: u64) -> Result<(), Fault> {
        let none = Erasures::default();
        let erasures = if self.is_erased { &self.erasures } else { &none };
        let mut append = Append::new(from, erasures.count());
        let mut entries = Entries::new();
        let is_counted = |entry: &&Entry| entry.head.first_row >= from && entry.head.end_row() <= self.committed;
        for entry in self.log.iter().filter(is_counted).take(ENTRIES_MAX) {
            if append.add(&entry.head)
                && let Ok(bytes) = without_ids(&entry.bytes)
            {
                push(&mut entries, &bytes, erasures);
            }
        }
        if let Some(name) = append.name() {
            self.disk.replace(name, &entries)?;
        }
        keeper.appended(&append, 1);
        self.meet("entries archived");
        Ok(())
    }

    fn rewrite(&mut self, keeper: &mut Keeper, old: &[FileName], new: FileName) -> Result<(), Fault> {
        let mut entries = Entries::new();
        let mut has_erased = false;
        for name in old {
            let Some(found) = self.disk.read(name) else {
                keeper.cannot_read(name);
                return Ok(());
            };
            for entry in found {
                has_erased |= push(&mut entries, entry, &self.erasures);
            }
        }
        if let ([name], false) = (old, has_erased) {
            self.disk.rename(*name, new)?;
            keeper.renamed(name, new);
            self.meet("file found clean");
            return Ok(());
        }
        self.disk.replace(new, &entries)?;
        keeper.rewritten(old, new, 1);
        self.meet(if has_erased { "erased rows removed" } else { "files merged" });
        Ok(())
    }

    /// The rows that a reader finds of those that are counted.
    fn read(&self) -> (Coverage, Vec<Seen>) {
        let mut coverage = Coverage::of(0..self.committed);
        let mut seen = Vec::new();
        let found = Index::of(self.disk.names().into_iter().map(|name| (name, 1)));
        for name in found.index.files() {
            if !coverage.begin(name) {
                continue;
            }
            let Some(entries) = self.disk.read(name) else {
                coverage.end_damaged(name);
                continue;
            };
            for entry in entries {
                read_entry(entry, &mut coverage, &mut seen);
            }
            coverage.end(name);
        }
        for Entry { head, bytes } in &self.log {
            let from = head.first_row.max(coverage.next().unwrap_or(u64::MAX));
            if from < head.end_row().min(self.committed) {
                coverage.take_logged(from..from, head.accepted_at_ms);
                read_entry(bytes, &mut coverage, &mut seen);
            }
        }
        coverage.finish();
        (coverage, seen)
    }
}

/// Adds what is kept of an entry. `true`: rows of it are erased.
fn push(entries: &mut Entries, entry: &[u8], erasures: &Erasures) -> bool {
    match kept(entry, erasures) {
        Ok(Kept::Rest(parts)) => {
            entries.extend(parts);
            true
        }
        // Entries of a run can be decoded; a checker would miss the rows of others.
        Ok(Kept::Whole) | Err(_) => {
            entries.push(entry.to_vec());
            false
        }
    }
}

fn read_entry(entry: &[u8], coverage: &mut Coverage, seen: &mut Vec<Seen>) {
    let Ok((head, batch)) = Batch::decode(entry) else { return };
    let Some(rows) = coverage.needs(head.first_row..head.end_row()) else { return };
    for (row, record) in (head.first_row..).zip(batch.records()).filter(|(row, _)| rows.contains(row)) {
        let text = match record {
            Record::Event(raw) => {
                let RawEvent { tenant, listing, at_s, .. } = raw;
                format!("{{\"tenant\":\"{tenant}\",\"listing\":\"{listing}\",\"at\":{at_s}}}")
            }
            Record::Broken { text, .. } => text.to_owned(),
        };
        seen.push(Seen { row, text });
    }
    coverage.take(&rows);
}
