//! The effect of a command, or the reason why it has none.

use super::{
    AppliedCommit, Claim, Command, Commit, Erase, Expire, ExpireRefused, ExpireUnnumbered, Expired, Fence, Generation,
    Manifest, MemberId, Partition, Progress, Replace, ReplaceRefused, SetLayout, SetRetention, SetTestTenant, SetTypes,
    Settled, TypesSet,
};
use crate::blob::{BlobKey, BlobMeta, Epoch, Level, PartitionId, Seq};
use crate::erasure::{Erasure, TooManyErasures};
use crate::layout::LayoutError;
use crate::limits::{COMMIT_BLOBS_MAX, PARTITIONS_MAX, SOURCES_MAX, TEST_TENANTS_MAX};
use crate::pause::PauseRefused;
use crate::retention::RetentionError;
use crate::schema::{Changed, Position, SchemaRefused};
use crate::source::{SourceId, SourceState};
use crate::teeth::{Bug, bites};
use crate::time::{HOURS_PER_DAY, Hour};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The result of a command. It names the command, so that the proposing owner knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Claim {
        partition: PartitionId,
        generation: Generation,
        member: MemberId,
        result: Result<Epoch, ClaimRefused>,
    },
    Commit {
        partition: PartitionId,
        epoch: Epoch,
        seq: Seq,
        result: Result<Committed, CommitRefused>,
    },
    Fence {
        partition: PartitionId,
        result: Result<Epoch, FenceRefused>,
    },
    Layout {
        result: Result<u64, LayoutRefused>,
    },
    /// Whether it was otherwise before.
    Pause {
        result: Result<bool, PauseRefused>,
    },
    Retention {
        result: Result<(), RetentionError>,
    },
    Expire {
        partition: PartitionId,
        epoch: Epoch,
        /// `None`: an earlier program proposed it.
        seq: Option<Seq>,
        result: Result<Expired, ExpireRefused>,
    },
    /// How many erasures there are now.
    Erase {
        partition: PartitionId,
        result: Result<u64, EraseRefused>,
    },
    /// Whether it was otherwise before.
    TestTenant {
        result: Result<bool, TooManyTestTenants>,
    },
    /// Whether it was otherwise before.
    Types {
        result: Result<bool, SchemaRefused>,
    },
    Replace {
        partition: PartitionId,
        epoch: Epoch,
        seq: Seq,
        result: Result<Committed, ReplaceRefused>,
    },
}

/// How a commit is in the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Committed {
    /// By this command.
    Now,
    /// By an earlier copy of this command.
    Already,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClaimRefused {
    #[error("partition {} is too high: a manifest has {PARTITIONS_MAX}", .0.0)]
    NoSuchPartition(PartitionId),
    #[error("generation {} is not above {}, of another member", generation.0, known.0)]
    OldGeneration { generation: Generation, known: Generation },
    #[error(transparent)]
    Types(#[from] SchemaRefused),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FenceRefused {
    #[error("partition {} was never claimed", .0.0)]
    NoSuchPartition(PartitionId),
    #[error("epoch {} was named, and {} holds", epoch.0, known.0)]
    OtherEpoch { epoch: Epoch, known: Epoch },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EraseRefused {
    #[error("partition {} was never claimed", .0.0)]
    NoSuchPartition(PartitionId),
    #[error("hour {} since 1970 is behind the last that a row may have", .0.0)]
    Hour(Hour),
    #[error(transparent)]
    TooMany(#[from] TooManyErasures),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{TEST_TENANTS_MAX} tenants are marked as tests: take the mark from one")]
pub struct TooManyTestTenants;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutRefused {
    #[error("layout {version} was named, and {known} holds")]
    OtherVersion { version: u64, known: u64 },
    #[error(transparent)]
    Invalid(#[from] LayoutError),
    #[error(
        "blobs are live, so a layout may only add to the one before: buckets of later days, and large tenants; \
         periods and virtual partitions stay"
    )]
    Incompatible,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommitRefused {
    #[error("partition {} was never claimed", .0.0)]
    NoSuchPartition(PartitionId),
    #[error("epoch {} was named, and {} holds: another process has claimed the partition", epoch.0, known.0)]
    OtherEpoch { epoch: Epoch, known: Epoch },
    #[error("number {} is not above {}, the last that was applied", seq.0, last.0)]
    OldSeq { seq: Seq, last: Seq },
    #[error("it begins at row {from} of source {source_id}, and the position of that source is {position}")]
    OtherPosition { source_id: SourceId, from: u64, position: u64 },
    #[error("source {source_id} is read in another way than before: other columns, or another zone")]
    OtherReading { source_id: SourceId },
    #[error("it ends at row {to} of a source, before it begins at {from}")]
    Backwards { from: u64, to: u64 },
    #[error("source {0} is complete and has no further rows")]
    SourceComplete(SourceId),
    #[error("{dead_letters} dead letters of {rows} rows")]
    TooManyDeadLetters { dead_letters: u64, rows: u64 },
    #[error("more than {SOURCES_MAX} sources")]
    TooManySources,
    #[error("{blobs} blobs are added or removed: at most {COMMIT_BLOBS_MAX}")]
    TooManyBlobs { blobs: usize },
    #[error("blob {0} is added, and its name is not of this commit, or stands twice")]
    ForeignName(BlobKey),
    #[error("blob {0} is removed, and is not live, or stands twice")]
    NotLive(BlobKey),
    #[error("its owner knew {named} erasures and changes of event types, and there are {known}")]
    OtherRevision { named: u64, known: u64 },
    #[error("{erased} counts are erased, and no erasure and no deleted type is known")]
    NothingErased { erased: u64 },
    #[error(
        "it adds blobs and erases rows that count {added}, and removes blobs and counts rows that count {accounted}"
    )]
    SumChanges { added: u128, accounted: u128 },
    #[error("blob {0} of dead letters is removed, and the commit settles none")]
    DeadLettersRemoved(BlobKey),
    #[error("{named} dead letters are named, and {stored} are in blobs that are added")]
    DeadLettersDiffer { named: u64, stored: u64 },
    #[error("dead letters are settled: such a commit removes one blob of them, and counts no rows of a source")]
    SettledWithOthers,
    #[error("{settled} dead letters of source {source_id} are settled, and it has {known}")]
    SettledTooMany { source_id: SourceId, settled: u64, known: u64 },
}

impl Manifest {
    /// Applies the next command of the log.
    pub fn apply(&mut self, command: &Command) -> Outcome {
        self.index += 1;
        match command {
            Command::Claim(claim) => {
                let &Claim { partition, generation, member, types: _ } = claim;
                Outcome::Claim { partition, generation, member, result: self.claim(claim) }
            }
            Command::Commit(commit) => {
                let &Commit { partition, epoch, seq, .. } = commit;
                Outcome::Commit { partition, epoch, seq, result: self.commit(commit) }
            }
            Command::Fence(fence) => Outcome::Fence { partition: fence.partition, result: self.fence(fence) },
            Command::Layout(set) => Outcome::Layout { result: self.set_layout(set) },
            Command::Retention(set) => Outcome::Retention { result: self.set_retention(set) },
            Command::Expire(expire) => {
                let &Expire { partition, epoch, seq, today } = expire;
                let result = self.expire(&ExpireUnnumbered { partition, epoch, today }, Some(seq));
                Outcome::Expire { partition, epoch, seq: Some(seq), result }
            }
            Command::ExpireUnnumbered(expire) => {
                let &ExpireUnnumbered { partition, epoch, .. } = expire;
                Outcome::Expire { partition, epoch, seq: None, result: self.expire(expire, None) }
            }
            Command::Erase(erase) => Outcome::Erase { partition: erase.partition, result: self.erase(erase) },
            Command::TestTenant(set) => Outcome::TestTenant { result: self.set_test_tenant(set) },
            Command::Types(set) => Outcome::Types { result: self.set_types(set) },
            Command::Replace(replace) => {
                let &Replace { partition, epoch, seq, .. } = replace;
                Outcome::Replace { partition, epoch, seq, result: self.replace(replace) }
            }
            Command::Pause(set) => {
                let target = set.target.present(&self.schema);
                Outcome::Pause { result: self.pauses.set(&target, set.paused_at_ms) }
            }
        }
    }

    fn claim(&mut self, claim: &Claim) -> Result<Epoch, ClaimRefused> {
        let &Claim { partition: id, generation, member, ref types } = claim;
        if id.0 >= PARTITIONS_MAX {
            return Err(ClaimRefused::NoSuchPartition(id));
        }
        let known = self.partitions.get(&id).map(|known| (known.generation, known.owner));
        if let Some((known, owner)) = known {
            let is_again = generation == known && owner == Some(member);
            if generation <= known && !is_again && !bites(Bug::ClaimWithoutGeneration) {
                return Err(ClaimRefused::OldGeneration { generation, known });
            }
        }
        Arc::make_mut(&mut self.schema).claim(types.as_deref())?;
        self.changed.insert(id);
        let positions = vec![Position::default(); self.schema.changes().len()];
        let new = || Partition { type_changes: positions, ..Partition::default() };
        let partition = self.partitions.entry(id).or_insert_with(new);
        partition.epoch = Epoch(partition.epoch.0 + 1);
        (partition.generation, partition.owner) = (generation, Some(member));
        Ok(partition.epoch)
    }

    fn fence(&mut self, fence: &Fence) -> Result<Epoch, FenceRefused> {
        let Fence { partition: id, epoch } = *fence;
        let partition = self.partitions.get_mut(&id).ok_or(FenceRefused::NoSuchPartition(id))?;
        if epoch != partition.epoch {
            return Err(FenceRefused::OtherEpoch { epoch, known: partition.epoch });
        }
        partition.epoch = Epoch(epoch.0 + 1);
        partition.owner = None;
        self.changed.insert(id);
        Ok(partition.epoch)
    }

    fn set_layout(&mut self, set: &SetLayout) -> Result<u64, LayoutRefused> {
        let SetLayout { version, layout } = set;
        if *version != self.layout_version {
            return Err(LayoutRefused::OtherVersion { version: *version, known: self.layout_version });
        }
        layout.check()?;
        let has_blobs = self.partitions.values().any(|partition| !partition.live.is_empty());
        if has_blobs && !self.layout.is_extended_by(layout) {
            return Err(LayoutRefused::Incompatible);
        }
        self.layout = layout.clone();
        self.layout_version += 1;
        Ok(self.layout_version)
    }

    fn erase(&mut self, erase: &Erase) -> Result<u64, EraseRefused> {
        let Erase { partition: id, key, before, asked_at_ms } = *erase;
        let partition = self.partitions.get_mut(&id).ok_or(EraseRefused::NoSuchPartition(id))?;
        if before > Hour::MAX {
            return Err(EraseRefused::Hour(before));
        }
        // A clock that is ahead does not erase what comes in years: at most the day behind that of the newest live row.
        let asked = Hour(before.0.saturating_sub(1)).day();
        let before = match partition.live.plausible(asked) {
            Some(last) if last < asked => Hour((last.0 + 1) * HOURS_PER_DAY),
            Some(_) | None => before,
        };
        let seq = partition.last_seq();
        partition.erasures.add(key, Erasure { before, asked_at_ms, seq, is_done: false })?;
        partition.erasures.settle_key(&key, &partition.live);
        self.changed.insert(id);
        Ok(partition.erasures.count())
    }

    fn set_test_tenant(&mut self, set: &SetTestTenant) -> Result<bool, TooManyTestTenants> {
        let SetTestTenant { tenant, is_test } = *set;
        match is_test {
            false => Ok(self.test_tenants.remove(&tenant)),
            true if self.test_tenants.contains(&tenant) => Ok(false),
            true if self.test_tenants.len() >= TEST_TENANTS_MAX => Err(TooManyTestTenants),
            true => Ok(self.test_tenants.insert(tenant)),
        }
    }

    fn set_types(&mut self, set: &SetTypes) -> Result<bool, SchemaRefused> {
        let schema = Arc::make_mut(&mut self.schema);
        let change = match &set.set {
            TypesSet::List(names) => return schema.list_all(names),
            TypesSet::Change(change) => change,
        };
        let SetTypes { asked_at_ms, log_row, .. } = *set;
        if !schema.change(&Changed { change: change.clone(), at_ms: asked_at_ms, log_row })? {
            return Ok(false);
        }
        self.pauses.follow(change);
        for (id, partition) in &mut self.partitions {
            partition.type_changes.push(Position { epoch: partition.epoch, before: partition.last_seq() });
            self.changed.insert(*id);
        }
        Ok(true)
    }

    fn set_retention(&mut self, set: &SetRetention) -> Result<(), RetentionError> {
        set.retention.check()?;
        self.retention = set.retention;
        Ok(())
    }

    fn commit(&mut self, commit: &Commit) -> Result<Committed, CommitRefused> {
        let id = commit.partition;
        let has_deletions = self.schema.has_deletions();
        let partition = self.partitions.get_mut(&id).ok_or(CommitRefused::NoSuchPartition(id))?;
        let this = AppliedCommit { epoch: commit.epoch, seq: commit.seq };
        if commit.epoch != partition.epoch {
            return Err(CommitRefused::OtherEpoch { epoch: commit.epoch, known: partition.epoch });
        }
        if partition.last_commit == Some(this) {
            return Ok(Committed::Already);
        }
        let may_erase = has_deletions || !partition.erasures.is_empty();
        if commit.erased > 0 && !may_erase {
            return Err(CommitRefused::NothingErased { erased: commit.erased });
        }
        partition.check(commit)?;
        partition.exchange(commit);
        partition.last_commit = Some(this);
        self.changed.insert(id);
        Ok(Committed::Now)
    }
}

impl Partition {
    fn check(&self, commit: &Commit) -> Result<(), CommitRefused> {
        let exchange = Exchange::of(commit);
        self.check_number(&exchange)?;
        if let Some(progress) = &commit.progress {
            self.check_progress(progress)?;
        }
        check_names(&exchange)?;
        let removed = self.removed(&exchange)?;
        if let Some(settled) = &commit.settled {
            self.check_settled(commit, settled, &removed)?;
        }
        check_sums(commit, &removed)
    }

    /// Whether a commit comes behind the last one, and its owner knew all erasures and changes of event types.
    pub(super) fn check_number(&self, exchange: &Exchange<'_>) -> Result<(), CommitRefused> {
        let &Exchange { seq, revision, add, remove, .. } = exchange;
        let last = self.last_seq();
        if seq <= last && !bites(Bug::NumbersMayFall) {
            return Err(CommitRefused::OldSeq { seq, last });
        }
        let known = self.revision();
        let is_passed_over = match self.type_changes.is_empty() {
            true => bites(Bug::CommitsBeforeErasure),
            false => bites(Bug::CommitsBeforeTypeChange) && self.erasures.is_empty(),
        };
        if revision != known && !is_passed_over {
            return Err(CommitRefused::OtherRevision { named: revision, known });
        }
        let blobs = add.len().max(remove.len());
        if blobs > COMMIT_BLOBS_MAX {
            return Err(CommitRefused::TooManyBlobs { blobs });
        }
        Ok(())
    }

    fn check_progress(&self, progress: &Progress) -> Result<(), CommitRefused> {
        let Progress { source, from, to, dead_letters, .. } = *progress;
        let known = self.source(source);
        if from != known.next_row {
            return Err(CommitRefused::OtherPosition { source_id: source, from, position: known.next_row });
        }
        if to < from {
            return Err(CommitRefused::Backwards { from, to });
        }
        if self.sources.contains_key(&source) && known.reading != progress.reading {
            return Err(CommitRefused::OtherReading { source_id: source });
        }
        if known.is_complete {
            return Err(CommitRefused::SourceComplete(source));
        }
        if dead_letters > to - from {
            return Err(CommitRefused::TooManyDeadLetters { dead_letters, rows: to - from });
        }
        if self.sources.len() >= SOURCES_MAX && !self.sources.contains_key(&source) {
            return Err(CommitRefused::TooManySources);
        }
        Ok(())
    }

    fn check_settled(&self, commit: &Commit, settled: &Settled, removed: &[BlobMeta]) -> Result<(), CommitRefused> {
        let is_letters = matches!(removed, [meta] if meta.level == Level::DeadLetters);
        if commit.progress.is_some() || !(is_letters || bites(Bug::ReplayKeepsLetters)) {
            return Err(CommitRefused::SettledWithOthers);
        }
        let source_id = settled.source;
        let known = self.source(source_id).dead_letters;
        let settled = settled.letters();
        match settled <= known || bites(Bug::ReplayKeepsLetters) {
            true => Ok(()),
            false => Err(CommitRefused::SettledTooMany { source_id, settled, known }),
        }
    }

    /// The live blobs that a commit removes.
    pub(super) fn removed(&self, exchange: &Exchange<'_>) -> Result<Vec<BlobMeta>, CommitRefused> {
        let remove = exchange.remove;
        if bites(Bug::MergeWithoutLiveCheck) {
            return Ok(remove.iter().filter_map(|key| self.live.get(key)).collect());
        }
        let distinct: BTreeSet<&BlobKey> = remove.iter().collect();
        if distinct.len() != remove.len() {
            return Err(CommitRefused::NotLive(remove[0]));
        }
        let live = |key: &BlobKey| self.live.get(key).ok_or(CommitRefused::NotLive(*key));
        remove.iter().map(live).collect()
    }

    fn exchange(&mut self, commit: &Commit) {
        let keeps_letters = commit.settled.is_some() && bites(Bug::ReplayKeepsLetters);
        let keeps_rebuilt = bites(Bug::RebuiltBlobStays) && self.is_rebuilt(commit);
        for key in commit.remove.iter().filter(|_| !keeps_letters && !keeps_rebuilt) {
            self.live.remove(key);
        }
        self.live.extend(commit.add.iter().copied());
        if let Some(Settled { source, replayed, dropped, total }) = commit.settled {
            let state = self.sources.entry(source).or_default();
            state.dead_letters = state.dead_letters.saturating_sub(replayed.saturating_add(dropped));
            state.accepted += replayed;
            state.dropped += dropped;
            self.total += u128::from(total);
        }
        self.total -= u128::from(commit.erased).min(self.total);
        self.erased_total += u128::from(commit.erased);
        self.erasures.settle(&self.live);
        let Some(progress) = &commit.progress else { return };
        let rows = progress.to - progress.from;
        let known = self.source(progress.source);
        self.sources.insert(
            progress.source,
            SourceState {
                reading: progress.reading,
                next_row: progress.to,
                is_complete: progress.is_end,
                accepted: known.accepted + (rows - progress.dead_letters),
                dead_letters: known.dead_letters + progress.dead_letters,
                dropped: known.dropped,
            },
        );
        self.total += u128::from(progress.total);
    }
}

impl Partition {
    /// Whether a commit replaces one blob by another one that holds the same.
    fn is_rebuilt(&self, commit: &Commit) -> bool {
        let ([added], [removed]) = (&commit.add[..], &commit.remove[..]) else { return false };
        let holding = |meta: &BlobMeta| (meta.level, meta.scope, meta.hours, meta.rows, meta.total);
        self.live.get(removed).is_some_and(|removed| holding(&removed) == holding(added))
    }
}

/// The blobs that an entry adds and removes, and the number of the entry.
pub(super) struct Exchange<'a> {
    pub partition: PartitionId,
    pub epoch: Epoch,
    pub seq: Seq,
    pub revision: u64,
    pub add: &'a [BlobMeta],
    pub remove: &'a [BlobKey],
}

impl Exchange<'_> {
    fn of(commit: &Commit) -> Exchange<'_> {
        let &Commit { partition, epoch, seq, revision, ref add, ref remove, .. } = commit;
        Exchange { partition, epoch, seq, revision, add, remove }
    }
}

/// Every blob that is added has a name of this commit.
pub(super) fn check_names(exchange: &Exchange<'_>) -> Result<(), CommitRefused> {
    let mut parts = BTreeSet::new();
    let is_foreign = |meta: &&BlobMeta| {
        let BlobKey { partition, epoch, seq, part } = meta.key;
        (partition, epoch, seq) != (exchange.partition, exchange.epoch, exchange.seq) || !parts.insert(part)
    };
    match exchange.add.iter().find(is_foreign) {
        Some(meta) => Err(CommitRefused::ForeignName(meta.key)),
        None => Ok(()),
    }
}

/// A commit adds what it counts and what it removes: no more and no less.
fn check_sums(commit: &Commit, removed: &[BlobMeta]) -> Result<(), CommitRefused> {
    let letters = |metas: &[BlobMeta]| {
        metas.iter().filter(|meta| meta.level == Level::DeadLetters).map(|meta| meta.rows).fold(0, u64::saturating_add)
    };
    let taken = commit.settled.map_or(0, |settled| settled.letters());
    if let Some(meta) = removed.iter().find(|meta| meta.level == Level::DeadLetters && commit.settled.is_none()) {
        return Err(CommitRefused::DeadLettersRemoved(meta.key));
    }
    let stored = letters(&commit.add);
    let counted = commit.progress.map_or(0, |progress| progress.dead_letters);
    let named = letters(removed).saturating_add(counted).saturating_sub(taken);
    let is_left_out = commit.settled.is_some() && bites(Bug::ReplayKeepsLetters);
    if (named != stored || taken > letters(removed)) && !is_left_out {
        return Err(CommitRefused::DeadLettersDiffer { named, stored });
    }
    let sum = |metas: &mut dyn Iterator<Item = &BlobMeta>| -> u128 { metas.map(|meta| u128::from(meta.total)).sum() };
    let added = u128::from(commit.erased) + sum(&mut commit.add.iter());
    let replayed = commit.settled.map_or(0, |settled| u128::from(settled.total));
    let counted = replayed + commit.progress.map_or(0, |progress| u128::from(progress.total));
    let accounted = counted + sum(&mut removed.iter());
    let is_left_out = bites(Bug::MergeWithoutLiveCheck);
    if added == accounted || is_left_out { Ok(()) } else { Err(CommitRefused::SumChanges { added, accounted }) }
}
