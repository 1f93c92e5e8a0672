//! Raw events of `serve`: from the archive, and behind it from the intake's log.

use crate::adding::Adding;
use crate::driver::{PARTITION, now, time};
use crate::error::CliError;
use std::collections::BTreeSet;
use std::path::Path;
use tidemark_streams_core::event::{EventTypes, Judged};
use tidemark_streams_core::fold::Fold;
use tidemark_streams_core::owner::{Record, RowBatch};
use tidemark_streams_core::rebuild::SourceRows;
use tidemark_streams_core::rollup::Rollups;
use tidemark_streams_core::time::{Day, Now};
use tidemark_streams_intake::body::{ReadError, Rules, replayed};
use tidemark_streams_intake::entry::ValidEvent;
use tidemark_streams_intake::listings::{LookupFailed, NoTenants, Tenants};
use tidemark_streams_serve::{Archive, AsOf, Coverage, Damaged, RawRead, SOURCE, read_raw};
use tidemark_streams_store::catalogue::{CATALOGUE, Catalogue, View};
use tidemark_streams_store::directory::Directory;

/// What raw events count.
pub struct RawCounts {
    pub coverage: Coverage,
    /// Files of the archive that cannot be read.
    pub damaged: Vec<Damaged>,
    /// Rows that were refused and are no dead letters any more: they were replayed or dropped.
    pub settled: u64,
    /// What these rows count if they were replayed as they are.
    pub possible: Rollups,
    /// The sum of possible counts with values beyond a bound.
    pub others: u64,
}

/// Adds raw events to a fold.
struct Count<'a, 'b> {
    types: &'a EventTypes,
    rules: Rules<'a>,
    /// Rows that are dead letters.
    refused: &'a BTreeSet<u64>,
    adding: &'a mut Adding<'b>,
    possible: Fold,
    settled: u64,
    failed: Option<LookupFailed>,
}

/// The number of rows that `serve` has counted in a directory.
pub fn counted(directory: &Directory) -> u64 {
    directory.manifest().partition(PARTITION).map_or(0, |partition| partition.source(SOURCE).next_row)
}

/// Counts the raw events that the blobs have, as far as they are kept. Dead letters are left out.
///
/// # Errors
/// The archive, the log or the catalogue cannot be read.
pub fn count(directory: &Directory, refused: &BTreeSet<u64>, adding: &mut Adding<'_>) -> Result<RawCounts, CliError> {
    let types = adding.types;
    let view = catalogue(directory)?;
    let latest = view.as_ref().map(AsOf::latest);
    let tenants: &dyn Tenants = match &latest {
        Some(latest) => latest,
        None => &NoTenants,
    };
    let kept_from = directory.manifest().partition(PARTITION).map_or(Day(0), |known| known.horizons.kept);
    let rules = Rules { now: now(), types, kept_from, seed: 0, tenants };
    let possible = Fold::new(types.clone(), rand::random());
    let mut count = Count { types, rules, refused, adding, possible, settled: 0, failed: None };
    let rows = SourceRows { source: SOURCE, from: 0, to: counted(directory) };
    let RawRead { coverage, damaged } = read_raw(directory.path(), directory.id(), &rows, |_, batch| count.add(batch))?;
    let Count { possible, settled, failed, .. } = count;
    match failed {
        Some(failed) => Err(failed.into()),
        None => {
            let others = possible.others();
            Ok(RawCounts { coverage, damaged, settled, others, possible: possible.rollups()? })
        }
    }
}

/// How far back the archive reaches, as a text.
///
/// # Errors
/// The archive cannot be read.
pub fn reach(directory: &Directory) -> Result<String, CliError> {
    let view = Archive::open(directory.path(), directory.id())?.view(None);
    Ok(match view.first_row.zip(view.first_ms) {
        Some((row, at_ms)) => format!("the archive begins at row {}, which was accepted at {}", row + 1, time(at_ms)),
        None => "the archive is empty".to_owned(),
    })
}

fn catalogue(directory: &Directory) -> Result<Option<View>, CliError> {
    let path: &Path = directory.path();
    match path.join(CATALOGUE).exists() {
        true => Ok(Some(Catalogue::open(path, directory.id())?.view()?)),
        false => Ok(None),
    }
}

impl Count<'_, '_> {
    fn add(&mut self, batch: &RowBatch<'_>) {
        for (row, record) in (batch.from..).zip(batch.records) {
            if self.refused.contains(&row) {
                continue;
            }
            match record {
                // The intake has judged its time. Its type has the meaning from the time when the log took the row.
                Record::Event(raw) => {
                    self.adding.add(batch.source, row, raw, Judged::AsOfLogRow(row));
                }
                Record::Broken { text, .. } => {
                    self.settled += 1;
                    self.add_possible(text);
                }
            }
        }
    }

    /// Adds what a refused row counts if it was replayed.
    fn add_possible(&mut self, text: &str) {
        let events = match replayed(text.as_bytes(), &self.rules) {
            Ok(events) => events,
            Err(ReadError::Refused(_)) => return,
            Err(ReadError::Lookup(failed)) => {
                self.failed.get_or_insert(failed);
                return;
            }
        };
        for raw in events.iter().flat_map(ValidEvent::rows) {
            if let Ok(event) = raw.check(Now(u64::MAX), self.types) {
                self.possible.add(&event);
            }
        }
    }
}

/// Takes erased rows out of the archive, once all erasures are done in blobs.
///
/// # Errors
/// The archive cannot be written, or a file of it cannot be read.
pub fn clean(directory: &Directory) -> Result<(), CliError> {
    let Some(known) = directory.manifest().partition(PARTITION) else { return Ok(()) };
    let mut archive = Archive::open(directory.path(), directory.id())?;
    archive.clean(&known.erasures)?;
    match archive.first_damaged() {
        None => Ok(()),
        Some(path) => Err(CliError::RawHeld { path }),
    }
}
