//! What must hold, whatever happens. Each checker has a name, which a violation carries.

use crate::oracle::{Row, Source, combined};
use crate::store::{Store, checksum};
use crate::worker::PARTITION;
use std::collections::{BTreeMap, BTreeSet};
use tidemark_streams_core::blob::{BlobKey, BlobMeta, Level};
use tidemark_streams_core::manifest::{Command, Committed, Manifest, Outcome, Partition, Restore};
use tidemark_streams_core::owner::Content;
use tidemark_streams_core::query::Plan;
use tidemark_streams_core::rollup::{RollupRow, Rollups};
use tidemark_streams_core::scope::{Scope, TenantHash};
use tidemark_streams_core::source::SourceId;
use tidemark_streams_core::time::{Day, HourRange};

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
/// An owner that was told that its partition is paused takes no rows.
pub const PAUSED: &str = "paused";
/// Blobs are written at a steady rate.
pub const SPREAD: &str = "spread";
/// Once faults end, every row of every source is counted.
pub const COMPLETE: &str = "complete";

/// Follows the positions by itself, from the commits that were applied.
#[derive(Debug, Default)]
pub struct Positions(BTreeMap<SourceId, u64>);

/// Which dead letters were settled, and by the entry of which index.
#[derive(Debug, Default)]
pub struct Settled(BTreeMap<LetterId, u64>);

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
        index: u64,
        command: &Command,
        outcome: &Outcome,
        store: &Store,
    ) -> Result<(), Violation> {
        let (Command::Commit(commit), Outcome::Commit { result: Ok(Committed::Now), .. }) = (command, outcome) else {
            return Ok(());
        };
        if commit.settled.is_none() {
            return Ok(());
        }
        let letters = |key: &BlobKey| match store.read(key) {
            Some(Content::DeadLetters(letters)) => {
                letters.iter().map(|letter| LetterId { source: letter.source, row: letter.row }).collect()
            }
            Some(Content::Rows(_)) | None => Vec::new(),
        };
        let kept: BTreeSet<LetterId> = commit.add.iter().flat_map(|meta| letters(&meta.key)).collect();
        for letter in commit.remove.iter().flat_map(letters).filter(|letter| !kept.contains(letter)) {
            if self.0.insert(letter, index).is_some() {
                let what = format!("at index {index} row {} of source {} is settled again", letter.row, letter.source);
                return Err(Violation { checker: CONSERVATION, what });
            }
        }
        Ok(())
    }

    /// What the letters of a source count that were replayed up to an index.
    fn replayed<'s>(&'s self, source: &'s Source, index: u64) -> impl Iterator<Item = &'s Row> {
        let range = LetterId { source: source.id, row: 0 }..=LetterId { source: source.id, row: u64::MAX };
        let settled = self.0.range(range).filter(move |(letter, at)| **at <= index && is_replayed(letter.row));
        settled.filter_map(|(letter, _)| source.fixed.get(letter.row as usize))
    }

    fn has(&self, source: SourceId, row: u64) -> bool {
        self.0.contains_key(&LetterId { source, row })
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

/// Checks the state behind a command.
pub fn state(manifest: &Manifest, store: &Store, sources: &[Source], settled: &Settled) -> Result<(), Violation> {
    let Some(partition) = manifest.partition(PARTITION) else { return Ok(()) };
    exist(manifest, partition, store)?;
    let mut found = Rollups::new();
    let mut letters = Vec::new();
    for meta in partition.live.values() {
        match store.read(&meta.key) {
            None => {}
            Some(Content::Rows(rows)) => {
                placed(manifest, &meta, rows)?;
                rows.iter().for_each(|row| {
                    let _ = found.push(row);
                });
            }
            Some(Content::DeadLetters(some)) => letters.extend(some.iter().map(|letter| (letter.source, letter.row))),
        }
    }
    found.combine();
    letters.sort_unstable();
    let position = |source: &Source| partition.source(source.id).next_row;
    let index = manifest.index();
    let counted = sources.iter().flat_map(|source| source.counted(position(source), |_| true));
    let replayed = sources.iter().flat_map(|source| settled.replayed(source, index).map(Row::rollup));
    let expected = combined(counted.chain(replayed));
    let refused =
        sources.iter().flat_map(|source| source.refused(position(source)).into_iter().map(|row| (source.id, row)));
    let refused: Vec<_> = refused.filter(|(source, row)| !settled.has(*source, *row)).collect();
    if found != expected {
        let found = found.total();
        let expected = expected.total();
        let what = format!("at index {index} live blobs count {found}, and the rows below the position {expected}");
        return Err(Violation { checker: CONSERVATION, what });
    }
    if letters != refused {
        let letters = letters.len();
        let refused = refused.len();
        let what = format!("at index {index} {letters} dead letters are live, and {refused} rows were refused");
        return Err(Violation { checker: CONSERVATION, what });
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
    if is_of_one && rows.iter().all(is_placed) {
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

/// What a query asked for.
pub struct Asked<'a> {
    pub tenant: &'a str,
    pub hours: HourRange,
}

/// Checks an answer about a tenant: the plan's positions say which rows it stands for.
pub fn answer(
    plan: &Plan,
    asked: &Asked<'_>,
    found: &Rollups,
    sources: &[Source],
    settled: &Settled,
) -> Result<(), Violation> {
    let Asked { tenant, hours } = *asked;
    let position = |source: &Source| plan.sources.get(&source.id).map_or(0, |state| state.next_row);
    let is_asked = |row: &Row| row.tenant() == tenant && hours.contains(row.hour());
    let rows = sources.iter().flat_map(|source| source.counted(position(source), &is_asked));
    let replayed = sources.iter().flat_map(|source| settled.replayed(source, plan.index));
    let replayed = replayed.filter(|row| is_asked(row)).map(Row::rollup);
    let expected = combined(rows.chain(replayed));
    if *found == expected {
        return Ok(());
    }
    let what =
        format!("at index {} {tenant} has {}, and its rows count {}", plan.index, found.total(), expected.total());
    Err(Violation { checker: QUERY, what })
}
