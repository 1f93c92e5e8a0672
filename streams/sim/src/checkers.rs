//! What must hold, whatever happens. Each checker has a name, which a violation carries.

use crate::oracle::{Source, combined};
use crate::store::{Store, checksum};
use crate::worker::PARTITION;
use std::collections::BTreeMap;
use tidemark_streams_core::manifest::{Command, Committed, Manifest, Outcome, Partition};
use tidemark_streams_core::owner::Content;
use tidemark_streams_core::query::Plan;
use tidemark_streams_core::rollup::Rollups;
use tidemark_streams_core::source::SourceId;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub checker: &'static str,
    pub what: String,
}

/// The sum of all live blobs is the sum of the accepted rows below the position, key by key; so are dead letters.
pub const CONSERVATION: &str = "conservation";
/// The rows that a commit counts begin where those of the commit before it end.
pub const NO_OVERLAP: &str = "no overlap";
/// Every live blob is in the store, whole and synced.
pub const LIVE_BLOBS_EXIST: &str = "live blobs exist";
/// A query answers the sum of the rows below the positions that it states.
pub const QUERY: &str = "query";
/// Once faults end, every row of every source is counted.
pub const COMPLETE: &str = "complete";

/// Follows the positions by itself, from the commits that were applied.
#[derive(Debug, Default)]
pub struct Positions(BTreeMap<SourceId, u64>);

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
pub fn state(manifest: &Manifest, store: &Store, sources: &[Source]) -> Result<(), Violation> {
    let Some(partition) = manifest.partition(PARTITION) else { return Ok(()) };
    exist(manifest, partition, store)?;
    let mut found = Rollups::new();
    let mut letters = Vec::new();
    for content in partition.live.keys().filter_map(|key| store.read(key)) {
        match content {
            Content::Rows(rows) => rows.iter().for_each(|row| {
                let _ = found.push(row);
            }),
            Content::DeadLetters(some) => letters.extend(some.iter().map(|letter| (letter.source, letter.row))),
        }
    }
    found.combine();
    letters.sort_unstable();
    let position = |source: &Source| partition.source(source.id).next_row;
    let expected = combined(sources.iter().flat_map(|source| source.counted(position(source), |_| true)));
    let refused =
        sources.iter().flat_map(|source| source.refused(position(source)).into_iter().map(|row| (source.id, row)));
    let refused: Vec<_> = refused.collect();
    let index = manifest.index();
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

fn exist(manifest: &Manifest, partition: &Partition, store: &Store) -> Result<(), Violation> {
    let is_lost = |key: &&_| !store.is_durable(key) || partition.live[*key].stored.checksum != checksum(**key);
    match partition.live.keys().find(is_lost) {
        Some(key) => {
            let what = format!("at index {} blob {key} is live and not in the store", manifest.index());
            Err(Violation { checker: LIVE_BLOBS_EXIST, what })
        }
        None => Ok(()),
    }
}

/// Checks an answer about a tenant: the plan's positions say which rows it stands for.
pub fn answer(plan: &Plan, tenant: &str, found: &Rollups, sources: &[Source]) -> Result<(), Violation> {
    let position = |source: &Source| plan.sources.get(&source.id).map_or(0, |state| state.next_row);
    let rows = sources.iter().flat_map(|source| source.counted(position(source), |row| row.tenant() == tenant));
    let expected = combined(rows);
    if *found == expected {
        return Ok(());
    }
    let what =
        format!("at index {} {tenant} has {}, and its rows count {}", plan.index, found.total(), expected.total());
    Err(Violation { checker: QUERY, what })
}
