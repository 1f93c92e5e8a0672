//! Rebuilds what a blob held whose file is damaged or missing, from the inputs of its commit.
//!
//! The manifest's log says where the rows of a blob come from ([`Lineages`]): from a source, or from other blobs, whose files may still
//! lie in the store. What is rebuilt has to hold what the manifest says of the blob: rows, sum and hours. The owner replaces the blob
//! then by a commit like a merge of this one blob, so its rows count once.

use crate::blob::{BlobKey, BlobMeta, Level, Seq};
use crate::erasure::Erasures;
use crate::layout::Layout;
use crate::limits::REBUILD_READS_MAX;
use crate::manifest::{Commit, Partition, Progress, Replace};
use crate::merge::scope_of;
use crate::names::Names;
use crate::owner::{Counted, DeadLetter, Origin};
use crate::rollup::{RollupRow, Rollups, RowError};
use crate::schema::{Schema, TypesOf};
use crate::scope::TenantHash;
use crate::source::{SourceId, SourceState};
use crate::time::{HourRange, Now};
use crate::values::OTHER;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// What a commit said of a blob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lineage {
    pub meta: BlobMeta,
    pub origin: Origin,
    /// The blob of dead letters of the same commit.
    pub letters: Option<BlobKey>,
}

/// Where the rows of blobs come from, also of blobs that are not live any more.
#[derive(Clone, Debug, Default)]
pub struct Lineages {
    of_blobs: BTreeMap<BlobKey, Lineage>,
    /// Blobs with recounted rows, and with rows beside them.
    recounted: BTreeSet<BlobKey>,
    /// Sources that were recounted by other columns or another zone.
    reread: BTreeSet<SourceId>,
}

/// Rows `from` to `to` of a source, `to` not included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SourceRows {
    pub source: SourceId,
    pub from: u64,
    pub to: u64,
}

/// What is left of inputs. `None` everywhere: it is damaged or missing.
pub trait Inputs {
    fn rows(&mut self, key: &BlobKey) -> Option<Rollups>;
    fn letters(&mut self, key: &BlobKey) -> Option<Vec<DeadLetter>>;
    /// Counts rows of a source again, by the names of event types of that time. It skips rows that are known to be dead letters.
    fn count(&mut self, rows: &SourceRows, schema: &Schema, refused: Option<&BTreeSet<u64>>) -> Option<Counted>;
}

/// What a blob is rebuilt by.
pub struct Rebuilder<'a, I> {
    layout: &'a Layout,
    test_tenants: &'a BTreeSet<TenantHash>,
    erasures: Erasures,
    types: TypesOf,
    lineages: &'a Lineages,
    inputs: &'a mut I,
    reads: usize,
}

/// Why a blob is not rebuilt. Nothing changes then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CannotRebuild {
    #[error("the inputs of blob {0} are not known: the manifest's log does not reach back to its commit")]
    UnknownInputs(BlobKey),
    #[error(
        "blob {0} holds rows of a rebuilt range, and the manifest's log does not say which: restore its file from a copy"
    )]
    Recounted(BlobKey),
    #[error("rows {} to {} of source {} are needed, and the source is not there", rows.from + 1, rows.to, rows.source)]
    NoSource { rows: SourceRows },
    #[error("blob {0} has rows of replayed dead letters, and a replay cannot be repeated")]
    Replayed(BlobKey),
    #[error("dead letters of the blob that {0} replaced were replayed or dropped, and nothing says which of them")]
    Settled(BlobKey),
    #[error(
        "a name of an event type was used again, a dimension was added, or types with dimensions were merged, while the rows of blob {0} \
         were counted: nothing says which of its rows came before"
    )]
    TypesChanged(BlobKey),
    #[error(
        "rows of tenant {tenant} and event type {event_type} were erased, and they have values beyond the bound of a dimension: nothing \
         says whether the commit of blob {key} took erased rows or refused them, so its values may differ"
    )]
    ValuesErased { key: BlobKey, tenant: String, event_type: String },
    #[error("more than {REBUILD_READS_MAX} inputs would be read")]
    TooManyInputs,
    #[error("the inputs of blob {key} give {found}, and the manifest says {expected}")]
    Differs { key: BlobKey, found: Holding, expected: Holding },
    #[error(
        "the source gives {found} for the commit of blob {key}, and the manifest says {expected}, or they are other rows: name the event \
         types that were configured then"
    )]
    OtherRefused { key: BlobKey, found: Refused, expected: Refused },
    #[error("rows: {0}")]
    Rows(#[from] RowError),
}

/// How many rows of a commit were refused, and what the others count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    pub letters: u64,
    pub accepted: Holding,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} dead letters beside {}", self.letters, self.accepted)
    }
}

/// How much a blob holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holding {
    pub rows: u64,
    pub total: u64,
}

impl Holding {
    fn of(rows: &Rollups) -> Holding {
        Holding { rows: rows.len() as u64, total: rows.total() }
    }
}

impl fmt::Display for Holding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} rows that count {}", self.rows, self.total)
    }
}

impl Lineages {
    pub fn get(&self, key: &BlobKey) -> Option<&Lineage> {
        self.of_blobs.get(key)
    }

    /// All blobs of the commit of a blob.
    fn of_commit(&self, key: &BlobKey) -> impl Iterator<Item = &BlobMeta> {
        let blobs = self.of_blobs.range(BlobKey { part: 0, ..*key }..=BlobKey { part: u32::MAX, ..*key });
        blobs.map(|(_, lineage)| &lineage.meta)
    }

    /// Takes the blobs of a commit over.
    pub fn add(&mut self, commit: &Commit) {
        let origin = match commit.progress {
            Some(Progress { source, from, to, .. }) => Origin::Source { source, from, to },
            None => Origin::Blobs(commit.remove.iter().copied().collect()),
        };
        let letters = commit.add.iter().find(|meta| meta.level == Level::DeadLetters).map(|meta| meta.key);
        for meta in &commit.add {
            self.of_blobs.insert(meta.key, Lineage { meta: *meta, origin: origin.clone(), letters });
        }
    }

    /// Takes the blobs of a replacement over. They serve as inputs of others.
    pub fn add_replaced(&mut self, replace: &Replace) {
        let origin = Origin::Blobs(replace.remove.iter().copied().collect());
        for meta in &replace.add {
            self.of_blobs.insert(meta.key, Lineage { meta: *meta, origin: origin.clone(), letters: None });
            self.recounted.insert(meta.key);
        }
        self.reread.extend(replace.readings.iter().map(|of| of.source));
    }

    /// The hours of all rows of a source that count. `None`: the log does not say them of each row, or rows of replayed letters are among
    /// them, or the source was recounted by other columns.
    pub fn hours_of(&self, source: SourceId, state: &SourceState) -> Option<Vec<HourRange>> {
        let mut hours = Vec::new();
        let mut letters = 0;
        let mut rows = Vec::new();
        for Lineage { meta, origin, .. } in self.of_blobs.values() {
            match origin {
                Origin::Source { source: of, from, to } if *of == source => {
                    rows.push(SourceRows { source, from: *from, to: *to })
                }
                Origin::Source { .. } | Origin::Blobs(_) => continue,
            }
            match meta.level.is_of_rows() {
                true => hours.push(meta.hours),
                false => letters += meta.rows,
            }
        }
        rows.sort_unstable();
        let mut next = 0;
        for SourceRows { from, to, .. } in rows {
            if from > next {
                return None;
            }
            next = next.max(to);
        }
        let is_known = next == state.next_row && letters == state.dead_letters + state.dropped;
        (is_known && !self.reread.contains(&source)).then_some(hours)
    }
}

impl<'a, I: Inputs> Rebuilder<'a, I> {
    pub fn new(
        layout: &'a Layout,
        test_tenants: &'a BTreeSet<TenantHash>,
        partition: &Partition,
        types: TypesOf,
        lineages: &'a Lineages,
        inputs: &'a mut I,
    ) -> Rebuilder<'a, I> {
        let erasures = partition.erasures.clone();
        Rebuilder { layout, test_tenants, erasures, types, lineages, inputs, reads: 0 }
    }

    /// The rows of a blob of rows.
    ///
    /// # Errors
    /// [`CannotRebuild`].
    pub fn rows(&mut self, meta: &BlobMeta) -> Result<Rollups, CannotRebuild> {
        if self.lineages.recounted.contains(&meta.key) {
            return Err(CannotRebuild::Recounted(meta.key));
        }
        let lineage = self.lineages.get(&meta.key).ok_or(CannotRebuild::UnknownInputs(meta.key))?;
        let all = match &lineage.origin {
            Origin::Source { source, from, to } => {
                let rows = SourceRows { source: *source, from: *from, to: *to };
                let letters = lineage.letters.map(|key| self.inputs.letters(&key));
                // Without letters no row was refused.
                let refused = match letters {
                    None => Some(BTreeSet::new()),
                    Some(letters) => letters.map(|letters| letters.iter().map(|letter| letter.row).collect()),
                };
                let is_judged_again = refused.is_none();
                self.read()?;
                self.check_names(&meta.key, &rows)?;
                let schema = self.types.known_by(meta.key.seq);
                let mut counted =
                    self.inputs.count(&rows, &schema, refused.as_ref()).ok_or(CannotRebuild::NoSource { rows })?;
                if is_judged_again {
                    self.leave_out_erased(&meta.key, &mut counted.letters);
                    self.check_refused(&meta.key, &counted)?;
                }
                self.check_values(&meta.key, &counted.rows)?;
                counted.rows
            }
            Origin::Blobs(inputs) => self.joined(&meta.key, &inputs.clone())?,
        };
        self.of_blob(meta, &all)
    }

    /// The letters of a blob of dead letters.
    ///
    /// # Errors
    /// [`CannotRebuild`].
    pub fn letters(&mut self, meta: &BlobMeta) -> Result<Vec<DeadLetter>, CannotRebuild> {
        let lineage = self.lineages.get(&meta.key).ok_or(CannotRebuild::UnknownInputs(meta.key))?;
        match &lineage.origin {
            Origin::Source { source, from, to } => {
                self.letters_of_source(meta, SourceRows { source: *source, from: *from, to: *to })
            }
            Origin::Blobs(inputs) => match inputs[..] {
                [input] => self.letters_of_input(meta, input),
                [] | [_, ..] => Err(CannotRebuild::Settled(meta.key)),
            },
        }
    }

    /// The letters of a commit that counted a source.
    fn letters_of_source(&mut self, meta: &BlobMeta, rows: SourceRows) -> Result<Vec<DeadLetter>, CannotRebuild> {
        self.read()?;
        let schema = self.types.known_by(meta.key.seq);
        let mut counted = self.inputs.count(&rows, &schema, None).ok_or(CannotRebuild::NoSource { rows })?;
        self.leave_out_erased(&meta.key, &mut counted.letters);
        self.check_refused(&meta.key, &counted)?;
        Ok(counted.letters)
    }

    /// The letters of a blob that replaced another one: as a rebuild wrote it, or without erased letters. Where others were replayed or
    /// dropped too, fewer are left than the erasures take, and nothing says which.
    fn letters_of_input(&mut self, meta: &BlobMeta, input: BlobKey) -> Result<Vec<DeadLetter>, CannotRebuild> {
        self.read()?;
        let mut letters = match self.inputs.letters(&input) {
            Some(letters) => letters,
            None => {
                let before = self.lineages.get(&input).ok_or(CannotRebuild::UnknownInputs(input))?.meta;
                // A commit removes blobs of earlier commits only, so this comes to an end.
                if before.level.is_of_rows() || input.seq >= meta.key.seq {
                    return Err(CannotRebuild::UnknownInputs(meta.key));
                }
                self.letters(&before)?
            }
        };
        let known = self.erasures.known_by(meta.key.seq);
        letters.retain(|letter| !known.erases_stored_letter(&Names::of_text(&letter.text, Now(0)), input.seq));
        match letters.len() as u64 == meta.rows {
            true => Ok(letters),
            false => Err(CannotRebuild::Settled(meta.key)),
        }
    }

    /// Rows of a source are read again under the names that the commit knew. The owner may have taken them before it knew the last
    /// changes. It knew all changes before its own claim.
    fn check_names(&self, key: &BlobKey, rows: &SourceRows) -> Result<(), CannotRebuild> {
        let ends_there = |lineage: &&Lineage| match lineage.origin {
            Origin::Source { source, to, .. } => source == rows.source && to == rows.from,
            Origin::Blobs(_) => false,
        };
        let before = self.lineages.of_blobs.values().filter(ends_there).map(|lineage| lineage.meta.key.seq).max();
        match self.types.is_ambiguous(key.epoch, before.unwrap_or(Seq(0)), key.seq) {
            true => Err(CannotRebuild::TypesChanged(*key)),
            false => Ok(()),
        }
    }

    /// A commit has no letter of a refused row that was erased before. Such a row counts again here, so its value takes the place of a value
    /// that the commit kept. It makes no difference while all values are within their bounds.
    fn check_values(&self, key: &BlobKey, rows: &Rollups) -> Result<(), CannotRebuild> {
        if self.erasures.is_empty() {
            return Ok(());
        }
        let is_erased = |row: &RollupRow<'_>| self.erasures.erases(TenantHash::of(row.tenant), row.listing, row.hour);
        let name = |row: &RollupRow<'_>| (row.tenant.to_owned(), row.event_type.to_owned());
        let is_other = |row: &RollupRow<'_>| row.values.iter().any(|(_, value)| value == OTHER);
        let having = || rows.iter().filter(|row| !row.values.is_empty());
        let beyond: BTreeSet<(String, String)> = having().filter(is_other).map(|row| name(&row)).collect();
        let erased: BTreeSet<(String, String)> = having().filter(is_erased).map(|row| name(&row)).collect();
        let is_open = |row: &RollupRow<'_>| beyond.contains(&name(row)) && erased.contains(&name(row));
        match having().filter(|row| !is_erased(row)).find(is_open) {
            Some(row) => {
                let (tenant, event_type) = name(&row);
                Err(CannotRebuild::ValuesErased { key: *key, tenant, event_type })
            }
            None => Ok(()),
        }
    }

    /// Letters as the commit wrote them, which knew the erasures before it.
    fn leave_out_erased(&self, key: &BlobKey, letters: &mut Vec<DeadLetter>) {
        let known = self.erasures.known_by(key.seq);
        // A text without a time was held under the time of its arrival, which is not known any more: it counts as earlier.
        letters.retain(|letter| !known.erases_held_letter(&Names::of_text(&letter.text, Now(0))));
    }

    /// Rows of a commit that were judged again are refused and accepted as they were then: as many letters, and the same rows beside them.
    fn check_refused(&mut self, key: &BlobKey, counted: &Counted) -> Result<(), CannotRebuild> {
        let of_commit: Vec<BlobMeta> = self.lineages.of_commit(key).copied().collect();
        let of_rows = || of_commit.iter().filter(|meta| meta.level.is_of_rows());
        let letters = of_commit.iter().filter(|meta| !meta.level.is_of_rows()).map(|meta| meta.rows).sum();
        let accepted =
            Holding { rows: of_rows().map(|meta| meta.rows).sum(), total: of_rows().map(|meta| meta.total).sum() };
        // The blob was written without rows that were erased before, and erasures may have come since.
        let kept = self.erasures.kept(&counted.rows)?;
        let kept = kept.as_ref().unwrap_or(&counted.rows);
        let is_as_many = [&counted.rows, kept].into_iter().any(|rows| Holding::of(rows) == accepted);
        let is_same = match of_rows().map(|meta| self.inputs.rows(&meta.key)).collect::<Option<Vec<Rollups>>>() {
            Some(files) => {
                let mut then = Rollups::new();
                files.iter().flat_map(Rollups::iter).try_for_each(|row| then.push_checked(row))?;
                then.combine();
                self.erasures.kept(&then)?.as_ref().unwrap_or(&then) == kept
            }
            None => is_as_many,
        };
        if counted.letters.len() as u64 == letters && is_same {
            return Ok(());
        }
        let found = Refused { letters: counted.letters.len() as u64, accepted: Holding::of(&counted.rows) };
        Err(CannotRebuild::OtherRefused { key: *key, found, expected: Refused { letters, accepted } })
    }

    /// The rows of blobs, each from its file or from its own inputs.
    fn joined(&mut self, key: &BlobKey, inputs: &[BlobKey]) -> Result<Rollups, CannotRebuild> {
        let mut joined = Rollups::new();
        for input in inputs {
            self.read()?;
            let rows = match self.inputs.rows(input) {
                Some(rows) => rows,
                None => {
                    let lineage = self.lineages.get(input).ok_or(CannotRebuild::UnknownInputs(*input))?;
                    if !lineage.meta.level.is_of_rows() {
                        return Err(CannotRebuild::Replayed(*key));
                    }
                    // A commit removes blobs of earlier commits only, so this comes to an end.
                    if input.seq >= key.seq {
                        return Err(CannotRebuild::UnknownInputs(*key));
                    }
                    let meta = lineage.meta;
                    self.rows(&meta)?
                }
            };
            // The commit knew the changes of event types since its input.
            let renaming = self.types.between(input.seq, key.seq);
            rows.iter()
                .filter_map(|row| renaming.row(&row).map(|row| joined.push_checked(row)))
                .collect::<Result<(), _>>()?;
        }
        joined.combine();
        Ok(joined)
    }

    fn read(&mut self) -> Result<(), CannotRebuild> {
        self.reads += 1;
        if self.reads > REBUILD_READS_MAX { Err(CannotRebuild::TooManyInputs) } else { Ok(()) }
    }

    /// Those of the rows of a commit that went into one of its blobs. The layout may have grown since; what it gives is compared with
    /// what the manifest says of the blob.
    fn of_blob(&self, meta: &BlobMeta, all: &Rollups) -> Result<Rollups, CannotRebuild> {
        let hash = |row: &RollupRow<'_>| TenantHash::of(row.tenant);
        let is_placed = |row: &RollupRow<'_>| match meta.level {
            Level::Delta | Level::DeadLetters => true,
            Level::Hour | Level::Day | Level::Period => {
                scope_of(meta.level, self.layout, self.test_tenants, hash(row), row) == meta.scope
            }
        };
        let is_in_scope = |row: &RollupRow<'_>| meta.scope.holds(hash(row), row.listing);
        let by_layout = selected(all, |row| meta.hours.contains(row.hour) && is_placed(row))?;
        let by_scope = selected(all, |row| meta.hours.contains(row.hour) && is_in_scope(row))?;
        // Inputs may be older than an erasure that the blob does without. Its commit knew the erasures before it.
        let known = self.erasures.known_by(meta.key.seq);
        for erasures in [&known, &Erasures::default(), &self.erasures] {
            for rows in [&by_layout, &by_scope] {
                let kept = erasures.kept(rows)?;
                let rows = kept.as_ref().unwrap_or(rows);
                if meta.holds(rows) {
                    return Ok(rows.clone());
                }
            }
        }
        let found = Holding::of(&by_layout);
        let expected = Holding { rows: meta.rows, total: meta.total };
        Err(CannotRebuild::Differs { key: meta.key, found, expected })
    }
}

fn selected(rows: &Rollups, is_wanted: impl Fn(&RollupRow<'_>) -> bool) -> Result<Rollups, RowError> {
    let mut selected = Rollups::new();
    rows.iter().filter(|row| is_wanted(row)).try_for_each(|row| selected.push_checked(row))?;
    Ok(selected)
}

#[cfg(test)]
mod tests;
