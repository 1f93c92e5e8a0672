//! The properties that must always hold. Each checker has a name, which a violation carries.

use crate::oracle::{OTHER_VALUE, Row, Source, VALUES_MAX, combined};
use crate::store::{Store, checksum};
use crate::type_names::{Fate, Known, TypeNames};
use crate::worker::PARTITION;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use tidemark_streams_core::blob::{BlobKey, BlobMeta, Epoch, Level};
use tidemark_streams_core::erasure::Erasures;
use tidemark_streams_core::manifest::{
    AppliedCommit, Claim, Command, Committed, Manifest, Outcome, Partition, Replace, Restore,
};
use tidemark_streams_core::names::Names;
use tidemark_streams_core::owner::{Content, DeadLetter, Origin};
use tidemark_streams_core::query::{OwnerRows, Plan};
use tidemark_streams_core::recover::{CannotRecover, Files, Found, Report};
use tidemark_streams_core::retention::Horizons;
use tidemark_streams_core::rollup::{RollupRow, Rollups};
use tidemark_streams_core::scope::{Scope, TenantHash};
use tidemark_streams_core::source::SourceId;
use tidemark_streams_core::time::{Day, Hour, HourRange, Now};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub checker: &'static str,
    pub what: String,
}

/// The sum of all live blobs is the sum of the accepted rows below the position, key by key; so are dead letters. A letter is
/// replayed or dropped once.
pub const CONSERVATION: &str = "conservation";
/// The rows that a commit counts begin where those of the commit before it end.
pub const NO_OVERLAP: &str = "no overlap";
/// The generation of claims never falls, and two members never claim with one generation. Commits are of the last epoch.
pub const OWNERSHIP: &str = "ownership";
/// Every live blob is in the store, whole and synced.
pub const LIVE_BLOBS_EXIST: &str = "live blobs exist";
/// A query answers the sum of the rows below the positions that it states.
pub const QUERY: &str = "query";
/// Every row of a live blob is of its scope and hours, and the levels keep what they say: one day, one period.
pub const PLACEMENT: &str = "placement";
/// Rows that are written to the manifest's store give the manifest back, at every index.
pub const RESTORE: &str = "restore";
/// Once days are over, their rows are in blobs of periods; after a seal one for each bucket and period.
pub const MERGED: &str = "merged";
/// Expired rows were too old, do not come back, and are not shown.
pub const RETENTION: &str = "retention";
/// Once an erasure is done, no live blob holds its rows and letters. From its entry on no query shows them.
pub const ERASED: &str = "erased";
/// No blob of a commit has a name that was renamed or deleted before. A rename takes no name in use, unless it merges both types. In the
/// end no blob holds rows of deleted types.
pub const TYPES: &str = "types";
/// An owner that was told that its partition is paused takes no rows.
pub const PAUSED: &str = "paused";
/// A lost manifest is built again from what blobs say of themselves: as it was, or with the one commit that was under way.
pub const RECOVERED: &str = "recovered";
/// Each counted row is in the archive or in the log once, or is told to be missing, until its days are over. From the hour that is called
/// exact on, raw events count what blobs do. Nothing is kept beyond its days or after an erasure.
pub const ARCHIVED: &str = "archived";
/// Blobs are written at a steady rate.
pub const SPREAD: &str = "spread";
/// Once faults end, every row of every source is counted.
pub const COMPLETE: &str = "complete";

/// Follows the positions by itself, from the commits that were applied.
#[derive(Debug, Default)]
pub struct Positions(BTreeMap<SourceId, u64>);

/// Follows by itself who owns the partition, from the claims and fences that were applied.
#[derive(Debug, Default)]
pub struct Ownership {
    claimed: Option<Claim>,
    /// Of the last claim or fence.
    epoch: Epoch,
}

/// Which dead letters were settled, by the entry of which index, and which rows were refused because they were too old.
#[derive(Debug, Default)]
pub struct Settled {
    /// The names of event types.
    pub names: TypeNames,
    at: BTreeMap<LetterId, SettledAt>,
    /// Letters that went with an erasure.
    erased: BTreeSet<LetterId>,
    too_old: BTreeSet<LetterId>,
    /// Rows of days that were counted again, with the index of the first such entry.
    corrected: BTreeMap<LetterId, u64>,
    /// Rows that owners took when they knew that they are too old, with the epochs of these owners.
    must_refuse: BTreeMap<LetterId, BTreeSet<Epoch>>,
    /// Rows of blobs that have expired, with what their owners knew.
    expired: Vec<(Known, Rollups)>,
}

/// When a letter was settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SettledAt {
    index: u64,
    /// How many changes of event types there were.
    known: Known,
}

/// The count of rows that are read by a wrong column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Columns {
    /// As the state at an index has it.
    AsOf(u64),
    /// The right one.
    Right,
}

/// A dead letter: the row of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct LetterId {
    source: SourceId,
    row: u64,
}

/// Letters of even rows are replayed, the others dropped.
pub fn is_replayed(row: u64) -> bool {
    row.is_multiple_of(2)
}

impl Settled {
    /// Compares the letters that a commit removed with those that it added.
    pub fn on_applied(
        &mut self,
        manifest: &Manifest,
        command: &Command,
        outcome: &Outcome,
        store: &Store,
    ) -> Result<(), Violation> {
        let index = manifest.index();
        let (Command::Commit(commit), Outcome::Commit { result: Ok(Committed::Now), .. }) = (command, outcome) else {
            return Ok(());
        };
        let Some(settled) = commit.settled else { return Ok(()) };
        let erasures = manifest.partition(PARTITION).map(|partition| partition.erasures.clone()).unwrap_or_default();
        // An erased letter is dropped, whatever the operator wishes.
        let is_erased = |letter: &DeadLetter, key: &BlobKey| {
            erasures.erases_stored_letter(&Names::of_text(&letter.text, Now(0)), key.seq)
        };
        let letters = |key: &BlobKey| match store.truth(key) {
            Some(Content::DeadLetters(letters)) => {
                let named =
                    |letter: &DeadLetter| (LetterId { source: letter.source, row: letter.row }, is_erased(letter, key));
                letters.iter().map(named).collect()
            }
            Some(Content::Rows(_)) | None => Vec::new(),
        };
        let kept: BTreeSet<LetterId> =
            commit.add.iter().flat_map(|meta| letters(&meta.key)).map(|(letter, _)| letter).collect();
        let gone = commit.remove.iter().flat_map(letters).filter(|(letter, _)| !kept.contains(letter));
        for (letter, is_erased) in gone {
            if is_erased || settled.replayed == 0 {
                self.erased.insert(letter);
            }
            if self.at.insert(letter, SettledAt { index, known: self.names.known() }).is_some() {
                let what = format!("at index {index} row {} of source {} is settled again", letter.row, letter.source);
                return Err(Violation { checker: CONSERVATION, what });
            }
        }
        Ok(())
    }

    /// The counts of a source's letters that were replayed up to an index, under the names after a number of changes.
    fn add_replayed(&self, source: &Source, index: u64, now: Known, into: &mut Rollups) {
        let range = LetterId { source: source.id, row: 0 }..=LetterId { source: source.id, row: u64::MAX };
        let is_counted = |letter: &LetterId| is_replayed(letter.row) && !self.erased.contains(letter);
        for (letter, at) in self.at.range(range).filter(|(letter, at)| at.index <= index && is_counted(letter)) {
            let Some(row) = source.fixed.get(letter.row as usize) else { continue };
            self.add(row, "", at.known, now, into);
        }
    }

    fn add(&self, row: &Row, values: &str, taken: Known, now: Known, into: &mut Rollups) {
        match self.names.fate(row, taken.min(now), now) {
            Fate::Counts(name) => {
                // Names of types are valid, and few.
                let _ = into.push(row.rollup(&name, values));
            }
            Fate::Refused | Fate::Deleted => {}
        }
    }

    /// Whether a row is refused because its type was deleted.
    fn is_refused_by_type(&self, source: SourceId, number: u64, row: &Row) -> bool {
        let taken = self.names.taken(source, number);
        self.names.fate(row, taken, taken) == Fate::Refused
    }

    fn has(&self, source: SourceId, row: u64) -> bool {
        self.at.contains_key(&LetterId { source, row })
    }

    /// The owner of an epoch, which knows horizons, takes rows of a source.
    pub fn on_taken(&mut self, epoch: Epoch, source: &Source, rows: Range<u64>, horizons: &Horizons) {
        let is_too_old = |(number, row): &(u64, &Row)| rows.contains(number) && row.hour().day() < horizons.late;
        for (row, _) in source.good(rows.end).filter(is_too_old) {
            self.must_refuse.entry(LetterId { source: source.id, row }).or_default().insert(epoch);
        }
    }

    /// Every row of a blob that has expired is too old, and is remembered.
    pub fn on_expired(&mut self, manifest: &Manifest, outcome: &Outcome, store: &Store) -> Result<(), Violation> {
        let Outcome::Expire { result: Ok(expired), .. } = outcome else { return Ok(()) };
        let horizons = manifest.partition(PARTITION).map(|partition| partition.horizons).unwrap_or_default();
        for meta in &expired.blobs {
            let Some(Content::Rows(rows)) = store.truth(&meta.key) else { continue };
            for row in rows.iter() {
                if row.hour.day() >= horizons.kept {
                    let what = format!(
                        "at index {} {} blob {} has expired, and holds rows that are kept",
                        manifest.index(),
                        meta.level,
                        meta.key
                    );
                    return Err(Violation { checker: RETENTION, what });
                }
            }
            self.expired.push((self.names.known_by(meta.key.seq), Rollups::clone(rows)));
        }
        Ok(())
    }

    /// The rows below a position that were counted: neither bad, nor too old, nor of a deleted type. They have the names after the changes.
    /// Rows of an owner's sets are not committed yet.
    fn add_counted(
        &self,
        source: &Source,
        below: u64,
        sets: &[OwnerRows],
        now: Known,
        columns: Columns,
        into: &mut Rollups,
    ) {
        let id = |row| LetterId { source: source.id, row };
        let mut kept = KeptValues::default();
        for (number, row) in source.good(below).filter(|(number, _)| !self.too_old.contains(&id(*number))) {
            let has = |set: &&OwnerRows| set.source == source.id && (set.from..set.to).contains(&number);
            let set = sets.iter().find(has);
            let refused_by = self.must_refuse.get(&id(number));
            // A commit may drop the letter of a refused row, if an erasure names it. Later owners refuse what earlier ones refused.
            if refused_by.is_some_and(|epochs| set.is_none_or(|set| epochs.contains(&set.epoch))) {
                continue;
            }
            let taken = match set {
                Some(set) => self.names.taken_by(set.epoch, source.id, number),
                None => self.names.taken(source.id, number),
            };
            kept.begin(set.map(|set| set.from).or_else(|| self.names.window(source.id, number)));
            let values = match self.names.taken_as(row, taken) {
                Some(name) => kept.value(row, name),
                None => "",
            };
            let is_right = set.is_none() && self.is_right(&id(number), columns);
            let corrected = is_right.then(|| row.corrected());
            self.add(corrected.as_ref().unwrap_or(row), values, taken, now, into);
        }
    }

    fn is_right(&self, row: &LetterId, columns: Columns) -> bool {
        match columns {
            Columns::AsOf(index) => self.corrected.get(row).is_some_and(|at| *at <= index),
            Columns::Right => true,
        }
    }

    /// The rows that count in a state, by the right columns.
    pub fn recounted(&self, manifest: &Manifest, sources: &[Source]) -> Rollups {
        let mut rows = Rollups::new();
        let known = manifest.schema().changes().len();
        for source in sources {
            let position = manifest.partition(PARTITION).map_or(0, |partition| partition.source(source.id).next_row);
            self.add_counted(source, position, &[], known, Columns::Right, &mut rows);
            self.add_replayed(source, manifest.index(), known, &mut rows);
        }
        rows.combine();
        rows
    }

    /// From now on the rows of replaced days count by the right columns. Returns how many had counted by a wrong one.
    pub fn on_replaced(&mut self, manifest: &Manifest, replace: &Replace, sources: &[Source]) -> u64 {
        let mut corrected = 0;
        for source in sources {
            let position = manifest.partition(PARTITION).map_or(0, |partition| partition.source(source.id).next_row);
            for (row, known) in source.good(position).filter(|(_, row)| replace.days.contains(row.hour().day())) {
                let id = LetterId { source: source.id, row };
                if let Entry::Vacant(vacant) = self.corrected.entry(id) {
                    vacant.insert(manifest.index());
                    corrected += u64::from(known.is_wrong());
                }
            }
        }
        corrected
    }
}

/// The values that a flush keeps for a tenant and type: the first ones of its rows.
#[derive(Default)]
struct KeptValues {
    window: Option<u64>,
    kept: BTreeMap<(String, String), BTreeSet<&'static str>>,
}

impl KeptValues {
    /// The next row is in the flush that begins with this row.
    fn begin(&mut self, window: Option<u64>) {
        if window != self.window {
            *self = KeptValues { window, kept: BTreeMap::new() };
        }
    }

    fn value(&mut self, row: &Row, event_type: String) -> &'static str {
        if row.values().is_empty() || row.counts_nothing() {
            return row.values();
        }
        let kept = self.kept.entry((row.tenant().to_owned(), event_type)).or_default();
        if kept.len() < VALUES_MAX {
            kept.insert(row.values());
        }
        if kept.contains(row.values()) { row.values() } else { OTHER_VALUE }
    }
}

impl Positions {
    pub fn on_applied(&mut self, command: &Command, outcome: &Outcome) -> Result<(), Violation> {
        let (Command::Commit(commit), Outcome::Commit { result: Ok(Committed::Now), .. }) = (command, outcome) else {
            return Ok(());
        };
        let Some(progress) = &commit.progress else { return Ok(()) };
        let known = self.0.entry(progress.source).or_default();
        if progress.from != *known || progress.to < progress.from {
            let what = format!("rows {} to {} behind row {known}", progress.from, progress.to);
            return Err(Violation { checker: NO_OVERLAP, what });
        }
        *known = progress.to;
        Ok(())
    }
}

impl Ownership {
    pub fn on_applied(&mut self, command: &Command, outcome: &Outcome) -> Result<(), Violation> {
        if let (Command::Claim(claim), Outcome::Claim { result: Ok(epoch), .. }) = (command, outcome) {
            self.look_at_claim(claim)?;
            self.claimed = Some(claim.clone());
            return self.raise(*epoch);
        }
        if let Outcome::Fence { result: Ok(epoch), .. } = outcome {
            return self.raise(*epoch);
        }
        let (Outcome::Commit { epoch, result: Ok(_), .. } | Outcome::Replace { epoch, result: Ok(_), .. }) = outcome
        else {
            return Ok(());
        };
        if *epoch == self.epoch {
            return Ok(());
        }
        let what = format!("an owner of epoch {} commits, and the partition has {}", epoch.0, self.epoch.0);
        Err(Violation { checker: OWNERSHIP, what })
    }

    fn look_at_claim(&self, claim: &Claim) -> Result<(), Violation> {
        let Some(before) = &self.claimed else { return Ok(()) };
        let is_again = claim.generation == before.generation && claim.member == before.member;
        if claim.generation > before.generation || is_again {
            return Ok(());
        }
        let what = format!("generation {} claims behind generation {}", claim.generation.0, before.generation.0);
        Err(Violation { checker: OWNERSHIP, what })
    }

    fn raise(&mut self, epoch: Epoch) -> Result<(), Violation> {
        if epoch <= self.epoch {
            let what = format!("epoch {} follows epoch {}", epoch.0, self.epoch.0);
            return Err(Violation { checker: OWNERSHIP, what });
        }
        self.epoch = epoch;
        Ok(())
    }
}

/// Checks the state behind a command.
pub fn state(manifest: &Manifest, store: &Store, sources: &[Source], settled: &mut Settled) -> Result<(), Violation> {
    let Some(partition) = manifest.partition(PARTITION) else { return Ok(()) };
    exist(manifest, partition, store)?;
    let mut found = Rollups::new();
    let mut letters = Vec::new();
    for meta in partition.live.values() {
        match store.truth(&meta.key) {
            None => {}
            Some(Content::Rows(rows)) => {
                placed(manifest, &meta, rows)?;
                settled.names.of_blob(meta.key.seq, rows).iter().for_each(|row| {
                    let _ = found.push(row);
                });
            }
            Some(Content::DeadLetters(some)) => letters.extend(some.iter().map(|letter| (letter.source, letter.row))),
        }
    }
    let live = found.clone();
    for (known, rows) in &settled.expired {
        settled.names.rows_of(*known, rows).iter().for_each(|row| {
            let _ = found.push(row);
        });
    }
    found.combine();
    letters.sort_unstable();
    look_for_old_rows(partition, sources, settled, &letters)?;
    look_for_horizons(manifest, partition, sources)?;
    let position = |source: &Source| partition.source(source.id).next_row;
    let index = manifest.index();
    let is_erased = |row: &RollupRow<'_>| partition.erasures.erases(TenantHash::of(row.tenant), row.listing, row.hour);
    if partition.erasures.pending() == 0
        && let Some(row) = live.iter().find(is_erased)
    {
        let what = format!("at index {index} all erasures are done, and a blob holds rows of {}", row.tenant);
        return Err(Violation { checker: ERASED, what });
    }
    let now = settled.names.known();
    let mut counted = Rollups::new();
    for source in sources {
        settled.add_counted(source, position(source), &[], now, Columns::AsOf(index), &mut counted);
        settled.add_replayed(source, index, now, &mut counted);
    }
    // Until an erasure is done, blobs may hold its rows.
    let expected = combined(counted.iter().filter(|row| !is_erased(row)));
    let found = combined(found.iter().filter(|row| !is_erased(row)));
    if found != expected {
        let found = found.total();
        let expected = expected.total();
        let what = format!("at index {index} live blobs count {found}, and the rows below the position {expected}");
        return Err(Violation { checker: CONSERVATION, what });
    }
    look_for_letters(manifest, partition, sources, settled, letters)
}

/// Dead letters are the rows that were refused, without those that were settled or erased.
fn look_for_letters(
    manifest: &Manifest,
    partition: &Partition,
    sources: &[Source],
    settled: &Settled,
    mut letters: Vec<(SourceId, u64)>,
) -> Result<(), Violation> {
    let index = manifest.index();
    let position = |source: &Source| partition.source(source.id).next_row;
    let refused =
        sources.iter().flat_map(|source| source.refused(position(source)).into_iter().map(|row| (source.id, row)));
    let too_old = settled.too_old.iter().map(|letter| (letter.source, letter.row));
    let is_below = |(id, row): &(SourceId, u64)| *row < partition.source(*id).next_row;
    let of_deleted_type = sources.iter().flat_map(|source| {
        let is_refused = |(number, row): &(u64, &Row)| settled.is_refused_by_type(source.id, *number, row);
        source.good(position(source)).filter(is_refused).map(|(number, _)| (source.id, number))
    });
    let refused = refused.chain(too_old.filter(is_below)).chain(of_deleted_type);
    let mut refused: Vec<_> = refused.filter(|(source, row)| !settled.has(*source, *row)).collect();
    refused.sort_unstable();
    refused.dedup();
    // Until an erasure is done, its letters may be live, and then none is. A text that cannot be read names no tenant.
    let is_erased = |(id, row): &(SourceId, u64)| {
        let source = sources.iter().find(|source| source.id == *id);
        let row = source.and_then(|source| source.rows.get(*row as usize));
        row.is_some_and(|row| row.has_names() && row.is_erased(&partition.erasures))
    };
    if partition.erasures.pending() == 0 && letters.iter().any(is_erased) {
        let what = format!("at index {index} all erasures are done, and a dead letter names an erased tenant");
        return Err(Violation { checker: ERASED, what });
    }
    letters.retain(|letter| !is_erased(letter));
    refused.retain(|letter| !is_erased(letter));
    if letters != refused {
        let letters = letters.len();
        let refused = refused.len();
        let what = format!("at index {index} {letters} dead letters are live, and {refused} rows were refused");
        return Err(Violation { checker: CONSERVATION, what });
    }
    Ok(())
}

/// Horizons follow the newest row, and not a clock that is ahead of it.
fn look_for_horizons(manifest: &Manifest, partition: &Partition, sources: &[Source]) -> Result<(), Violation> {
    let newest = sources.iter().flat_map(|source| &source.rows).map(|row| row.hour().day()).max().unwrap_or_default();
    let most = manifest.retention().horizons(Day(newest.0 + 1));
    match partition.horizons.raised_to(&most) == most {
        true => Ok(()),
        false => {
            let Day(kept) = partition.horizons.kept;
            let what = format!("day {kept} is the first that is kept, and the newest row is of day {}", newest.0);
            Err(Violation { checker: RETENTION, what })
        }
    }
}

/// Letters of rows that are not bad have to be of rows that are too old; and rows that had to be refused are letters.
fn look_for_old_rows(
    partition: &Partition,
    sources: &[Source],
    settled: &mut Settled,
    letters: &[(SourceId, u64)],
) -> Result<(), Violation> {
    for source in sources {
        let below = partition.source(source.id).next_row;
        for (row, known) in source.good(below) {
            if known.is_erased(&partition.erasures) || settled.is_refused_by_type(source.id, row, known) {
                continue;
            }
            let id = LetterId { source: source.id, row };
            let is_letter = letters.binary_search(&(source.id, row)).is_ok();
            let is_too_old = known.hour().day() < partition.horizons.late;
            if is_letter && !is_too_old {
                let what = format!("row {row} of source {} is refused as too old, and is kept", source.id);
                return Err(Violation { checker: RETENTION, what });
            }
            if is_letter {
                settled.too_old.insert(id);
            } else if settled.must_refuse.contains_key(&id) && !settled.too_old.contains(&id) {
                let what = format!("row {row} of source {} is too old, and is counted", source.id);
                return Err(Violation { checker: RETENTION, what });
            }
        }
    }
    Ok(())
}

fn placed(manifest: &Manifest, meta: &BlobMeta, rows: &Rollups) -> Result<(), Violation> {
    let is_placed =
        |row: RollupRow<'_>| meta.scope.holds(TenantHash::of(row.tenant), row.listing) && meta.hours.contains(row.hour);
    let period = |day: Day| manifest.layout().period.start_of(day);
    let is_of_one = match meta.level {
        Level::Hour => meta.hours.single_day().is_some(),
        Level::Day | Level::Period => period(meta.hours.first.day()) == period(meta.hours.last.day()),
        Level::Delta | Level::DeadLetters => true,
    };
    // Merges keep the rows of test tenants in blobs of their own, deltas do not.
    let is_shared = |row: RollupRow<'_>| {
        let is_test = manifest.test_tenants().contains(&TenantHash::of(row.tenant));
        is_test && meta.level != Level::Delta && matches!(meta.scope, Scope::Slice(_))
    };
    if is_of_one && rows.iter().all(is_placed) && !rows.iter().any(is_shared) {
        return Ok(());
    }
    let BlobMeta { key, level, scope, .. } = meta;
    let what = format!("at index {} {level} blob {key} of {scope} holds rows that are of another", manifest.index());
    Err(Violation { checker: PLACEMENT, what })
}

/// How far merges went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merged {
    /// Each bucket and period has one blob.
    IntoOne,
    /// All rows are in blobs of periods.
    IntoPeriods,
    No,
}

pub fn merged(manifest: &Manifest) -> Merged {
    let blobs: Vec<BlobMeta> = manifest.live().filter(|meta| meta.level.is_of_rows()).collect();
    if blobs.iter().any(|meta| meta.level != Level::Period) {
        return Merged::No;
    }
    let group = |meta: &BlobMeta| (meta.scope, manifest.layout().period.start_of(meta.hours.first.day()));
    let groups: BTreeSet<(Scope, Day)> = blobs.iter().map(group).collect();
    if groups.len() == blobs.len() { Merged::IntoOne } else { Merged::IntoPeriods }
}

/// Compares the manifest with what its rows give back.
pub fn restored(manifest: &Manifest, rows: &BTreeMap<Vec<u8>, Vec<u8>>) -> Result<Manifest, Violation> {
    let index = manifest.index();
    let wrong = |what: String| Violation { checker: RESTORE, what: format!("at index {index} {what}") };
    let mut restore = Restore::new();
    let added = rows.iter().try_for_each(|(key, value)| restore.add(key, value));
    let found = added.and_then(|()| restore.finish()).map_err(|error| wrong(error.to_string()))?;
    if found == *manifest { Ok(found) } else { Err(wrong("the rows give another manifest".to_owned())) }
}

/// Commits beyond the entries of the log.
pub struct UnderWay<'a> {
    pub names: &'a TypeNames,
    /// Commits that replace rows of past days.
    pub replacing: &'a BTreeSet<AppliedCommit>,
}

/// Compares a manifest that was built again with the one that was lost. `true`: a commit that was under way counts in it.
pub fn recovered(
    lost: &Manifest,
    found: Result<(Manifest, Vec<Report>), CannotRecover>,
    files: &Files,
    store: &Store,
    under_way: &UnderWay<'_>,
) -> Result<bool, Violation> {
    let names = under_way.names;
    let index = lost.index();
    let wrong = |what: String| Violation { checker: RECOVERED, what: format!("at index {index} {what}") };
    let (found, reports) = found.map_err(|refused| wrong(refused.to_string()))?;
    let Some((lost, found)) = lost.partition(PARTITION).zip(found.partition(PARTITION)) else { return Ok(false) };
    let last = reports.first().and_then(|report| report.last);
    let ahead = last.filter(|last| last.seq > lost.last_seq());
    let commit = files.whole.iter().filter(|file| {
        let BlobKey { epoch, seq, .. } = file.meta.key;
        ahead.is_some_and(|ahead| (epoch, seq) == (ahead.epoch, ahead.seq))
    });
    let rows = |metas: &mut dyn Iterator<Item = BlobMeta>| {
        let of_blob = |meta: BlobMeta| match store.truth(&meta.key)? {
            Content::Rows(rows) => Some(names.of_blob(meta.key.seq, rows)),
            Content::DeadLetters(_) => None,
        };
        let sets: Vec<Rollups> = metas.filter_map(of_blob).collect();
        let rows = sets.iter().map(Rollups::iter);
        let is_erased = |row: &RollupRow<'_>| lost.erasures.erases(TenantHash::of(row.tenant), row.listing, row.hour);
        combined(rows.flatten().filter(|row| !is_erased(row)))
    };
    let is_counted = |meta: &BlobMeta| !lost.live.contains_key(&meta.key);
    let is_new = |file: &&Found| match &file.origin {
        Origin::Source { .. } => true,
        Origin::Blobs(keys) => keys.iter().any(|key| lost.live.get(key).is_some_and(|meta| !meta.level.is_of_rows())),
    };
    // A replacement that was under way counts in place of what it removes.
    let is_replacement = ahead.is_some_and(|ahead| under_way.replacing.contains(&ahead));
    let removed: BTreeSet<BlobKey> = match commit.clone().next().map(|file| &file.origin) {
        Some(Origin::Blobs(keys)) if is_replacement => keys.iter().copied().collect(),
        Some(Origin::Blobs(_) | Origin::Source { .. }) | None => BTreeSet::new(),
    };
    let added = commit.clone().filter(|file| is_replacement || is_new(file)).map(|file| file.meta).filter(is_counted);
    let kept = lost.live.values().filter(|meta| !removed.contains(&meta.key));
    let expected = rows(&mut kept.chain(added));
    let built = rows(&mut found.live.values());
    if built != expected {
        let built = built.total();
        let expected = expected.total();
        return Err(wrong(format!("the manifest that was built again counts {built}, and {expected} were counted")));
    }
    let mut sources = lost.sources.clone();
    if let Some(after) = commit.clone().next().and_then(|file| file.after.as_ref()) {
        sources.extend(after.sources.iter().map(|after| (after.id, after.state)));
    }
    let is_same = ahead.is_some() || found.live == lost.live;
    match is_same && found.sources == sources {
        true => Ok(ahead.is_some()),
        false => Err(wrong(format!("the manifest that was built again has {:?}", reports))),
    }
}

fn exist(manifest: &Manifest, partition: &Partition, store: &Store) -> Result<(), Violation> {
    let is_lost = |meta: &BlobMeta| !store.is_durable(&meta.key) || meta.stored.checksum != checksum(meta.key);
    match partition.live.values().find(is_lost) {
        Some(BlobMeta { key, .. }) => {
            let what = format!("at index {} blob {key} is live and not in the store", manifest.index());
            Err(Violation { checker: LIVE_BLOBS_EXIST, what })
        }
        None => Ok(()),
    }
}

/// The request of a query.
pub struct Asked<'a> {
    pub tenant: &'a str,
    pub hours: HourRange,
    /// The manifest's state of retention.
    pub kept_from: Day,
    pub not_kept_before: Day,
    /// How many changes of event types there were.
    pub known_types: Known,
    /// The owner's sets that were added to the blobs.
    pub added: &'a [OwnerRows],
    pub erasures: &'a Erasures,
    /// Rows that these erase are not compared: the owner may have left them out.
    pub owner_erasures: &'a Erasures,
}

/// Checks an answer about a tenant: the plan's positions say which rows it stands for.
pub fn answer(
    plan: &Plan,
    asked: &Asked<'_>,
    found: &Rollups,
    sources: &[Source],
    settled: &Settled,
) -> Result<(), Violation> {
    let Asked { tenant, hours, .. } = *asked;
    let position = |source: &Source| plan.sources.get(&source.id).map_or(0, |state| state.next_row);
    let is_kept = |hour: Hour| hour.day() >= asked.not_kept_before;
    let is_asked = |row: &RollupRow<'_>| row.tenant == tenant && hours.contains(row.hour) && is_kept(row.hour);
    let mut rows = Rollups::new();
    for source in sources {
        let columns = Columns::AsOf(plan.index);
        settled.add_counted(source, position(source), asked.added, asked.known_types, columns, &mut rows);
        settled.add_replayed(source, plan.index, asked.known_types, &mut rows);
    }
    let expected = combined(rows.iter().filter(is_asked));
    if let Some(row) = found.iter().find(|row| row.hour.day() < asked.kept_from) {
        let what = format!("at index {} {tenant} is shown hour {}, which is not kept", plan.index, row.hour.0);
        return Err(Violation { checker: RETENTION, what });
    }
    let is_erased = |row: &RollupRow<'_>| asked.erasures.erases(TenantHash::of(row.tenant), row.listing, row.hour);
    if let Some(row) = found.iter().find(is_erased) {
        let what = format!("at index {} {tenant} is shown hour {}, which is erased", plan.index, row.hour.0);
        return Err(Violation { checker: ERASED, what });
    }
    let is_compared = |row: &RollupRow<'_>| {
        let is_left_out = asked.owner_erasures.erases(TenantHash::of(row.tenant), row.listing, row.hour);
        is_kept(row.hour) && !is_erased(row) && !is_left_out
    };
    let expected = combined(expected.iter().filter(is_compared));
    let found = combined(found.iter().filter(is_compared));
    if found == expected {
        return Ok(());
    }
    let what =
        format!("at index {} {tenant} has {}, and its rows count {}", plan.index, found.total(), expected.total());
    Err(Violation { checker: QUERY, what })
}
