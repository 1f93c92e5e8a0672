//! The rows of past days are replaced by a recount of their sources.
//!
//! A recount stands for the rows below the positions of its time. Each row of these days that was counted since, late or by a replay, is
//! in a blob that was not recounted: then the command is refused. So no row is lost, and none counts twice.

use super::apply::{Exchange, check_names};
use super::{AppliedCommit, CommitRefused, Committed, Manifest, Partition, Replace, SourceReading};
use crate::blob::{BlobKey, BlobMeta, Level};
use crate::source::SourceId;
use crate::teeth::{Bug, bites};
use crate::time::{Day, Days};
use std::collections::BTreeSet;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplaceRefused {
    #[error(transparent)]
    Commit(#[from] CommitRefused),
    #[error("it ends at day {} since 1970, before it begins at day {}", last.0, first.0)]
    Backwards { first: Day, last: Day },
    #[error("day {} since 1970 is not kept: the first that is kept is {}", first.0, kept.0)]
    NotKept { first: Day, kept: Day },
    #[error("blob {0} has rows of these days, and was not recounted")]
    NotRecounted(BlobKey),
    #[error("blob {0} is removed, and has no rows of these days")]
    OtherDays(BlobKey),
    #[error("blob {0} of dead letters is added: a recount has none")]
    DeadLetters(BlobKey),
    #[error("source {0} has counted no rows")]
    UnknownSource(SourceId),
    #[error(
        "it adds, replaces and erases rows that count {added}, and removes and recounts rows that count {accounted}"
    )]
    SumChanges { added: u128, accounted: u128 },
}

impl Manifest {
    pub(super) fn replace(&mut self, replace: &Replace) -> Result<Committed, ReplaceRefused> {
        let id = replace.partition;
        let has_deletions = self.schema.has_deletions();
        let partition = self.partitions.get_mut(&id).ok_or(CommitRefused::NoSuchPartition(id))?;
        let this = AppliedCommit { epoch: replace.epoch, seq: replace.seq };
        if replace.epoch != partition.epoch {
            return Err(CommitRefused::OtherEpoch { epoch: replace.epoch, known: partition.epoch }.into());
        }
        if partition.last_commit == Some(this) {
            return Ok(Committed::Already);
        }
        let may_erase = has_deletions || !partition.erasures.is_empty();
        if replace.erased > 0 && !may_erase {
            return Err(CommitRefused::NothingErased { erased: replace.erased }.into());
        }
        partition.check_replace(replace)?;
        partition.apply_replace(replace);
        partition.last_commit = Some(this);
        self.changed.insert(id);
        Ok(Committed::Now)
    }
}

impl Replace {
    fn exchange(&self) -> Exchange<'_> {
        let &Replace { partition, epoch, seq, revision, ref add, ref remove, .. } = self;
        Exchange { partition, epoch, seq, revision, add, remove }
    }
}

impl Partition {
    /// The live blobs that may hold rows of some days.
    pub fn of_days(&self, days: &Days) -> Vec<BlobMeta> {
        self.live.of_days(days)
    }

    fn check_replace(&self, replace: &Replace) -> Result<(), ReplaceRefused> {
        let exchange = replace.exchange();
        self.check_number(&exchange)?;
        let Days { first, last } = replace.days;
        if last < first {
            return Err(ReplaceRefused::Backwards { first, last });
        }
        let kept = self.horizons.kept;
        if first < kept {
            return Err(ReplaceRefused::NotKept { first, kept });
        }
        check_names(&exchange)?;
        if let Some(meta) = replace.add.iter().find(|meta| meta.level == Level::DeadLetters) {
            return Err(ReplaceRefused::DeadLetters(meta.key));
        }
        let is_unknown = |of: &&SourceReading| !self.sources.contains_key(&of.source);
        if let Some(of) = replace.readings.iter().find(is_unknown) {
            return Err(ReplaceRefused::UnknownSource(of.source));
        }
        if bites(Bug::ReplaceWithoutLiveCheck) {
            return Ok(());
        }
        let removed = self.removed(&exchange)?;
        self.check_days(replace, &removed)?;
        check_sums(replace, &removed)
    }

    /// The removed blobs are all that have rows of the days.
    fn check_days(&self, replace: &Replace, removed: &[BlobMeta]) -> Result<(), ReplaceRefused> {
        let hours = replace.days.hours();
        let is_other = |meta: &&BlobMeta| !meta.level.is_of_rows() || !meta.hours.overlaps(&hours);
        if let Some(meta) = removed.iter().find(is_other) {
            return Err(ReplaceRefused::OtherDays(meta.key));
        }
        let recounted: BTreeSet<&BlobKey> = replace.remove.iter().collect();
        match self.of_days(&replace.days).iter().find(|meta| !recounted.contains(&meta.key)) {
            Some(meta) => Err(ReplaceRefused::NotRecounted(meta.key)),
            None => Ok(()),
        }
    }

    fn apply_replace(&mut self, replace: &Replace) {
        for key in &replace.remove {
            self.live.remove(key);
        }
        self.live.extend(replace.add.iter().copied());
        for SourceReading { source, reading } in &replace.readings {
            if let Some(state) = self.sources.get_mut(source) {
                state.reading = *reading;
            }
        }
        self.total = self.live.total();
        self.erased_total += u128::from(replace.erased);
        self.erasures.settle(&self.live);
    }
}

/// What is added is what is removed, but for the difference that the command states.
fn check_sums(replace: &Replace, removed: &[BlobMeta]) -> Result<(), ReplaceRefused> {
    let sum = |metas: &[BlobMeta]| -> u128 { metas.iter().map(|meta| u128::from(meta.total)).sum() };
    let added = sum(&replace.add) + u128::from(replace.before) + u128::from(replace.erased);
    let accounted = sum(removed) + u128::from(replace.after);
    if added == accounted { Ok(()) } else { Err(ReplaceRefused::SumChanges { added, accounted }) }
}
