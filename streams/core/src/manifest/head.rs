//! The head of a manifest: all of it but its blobs, and which blobs are live in short.
//!
//! It lies in a file of its own. A lost manifest is built again from it and from what blobs say of themselves: see
//! [`recover`](crate::recover). Blobs say it of each commit that adds some; each other entry that changes something replaces the head.

use super::{AppliedCommit, BlobSet, Command, Committed, Manifest, Outcome, Partition, Restore, Row, SnapshotError};
use crate::blob::{BlobKey, BlobMeta, Epoch, LiveDigest, PartitionId};
use crate::limits::GONE_BLOBS_MAX;
use crate::source::{SourceId, SourceState};
use std::collections::{BTreeMap, BTreeSet};

/// A manifest without its blobs.
#[derive(Clone, Debug, Default)]
pub struct Head {
    manifest: Manifest,
    live: BTreeMap<PartitionId, LiveDigest>,
    gone: Gone,
}

/// Blobs that have expired, or that commits removed which added none, so that no blob says so. Their files may still be there. The latest
/// are remembered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gone(BTreeSet<BlobKey>);

impl Gone {
    /// Takes over what an entry did.
    pub fn follow(&mut self, command: &Command, outcome: &Outcome) {
        match (command, outcome) {
            (Command::Commit(commit), Outcome::Commit { result: Ok(Committed::Now), .. }) if commit.add.is_empty() => {
                self.extend(commit.remove.iter().copied());
            }
            (Command::Replace(replace), Outcome::Replace { result: Ok(Committed::Now), .. })
                if replace.add.is_empty() =>
            {
                self.extend(replace.remove.iter().copied());
            }
            (_, Outcome::Expire { result: Ok(expired), .. }) => {
                self.extend(expired.blobs.iter().map(|meta| meta.key));
            }
            _ => {}
        }
    }

    pub fn extend(&mut self, keys: impl IntoIterator<Item = BlobKey>) {
        self.0.extend(keys);
        while self.0.len() > GONE_BLOBS_MAX {
            self.0.pop_first();
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &BlobKey> {
        self.0.iter()
    }

    pub fn contains(&self, key: &BlobKey) -> bool {
        self.0.contains(key)
    }

    /// Forgets those whose files are deleted.
    pub fn retain(&mut self, is_there: impl Fn(&BlobKey) -> bool) {
        self.0.retain(is_there);
    }
}

/// Which blobs of a partition are live, in short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveOf {
    pub partition: PartitionId,
    pub live: LiveDigest,
}

/// What is live in a partition again.
#[derive(Clone, Debug)]
pub struct Recovered {
    pub live: Vec<BlobMeta>,
    pub sources: BTreeMap<SourceId, SourceState>,
    /// The last commit or expiry that counts.
    pub last_commit: Option<AppliedCommit>,
}

/// Whether an entry changes a manifest and leaves no blob that says so.
pub fn replaces_head(command: &Command, outcome: &Outcome) -> bool {
    match (command, outcome) {
        (Command::Commit(commit), Outcome::Commit { result: Ok(Committed::Now), .. }) => {
            commit.add.is_empty() || commit.erased > 0
        }
        (Command::Commit(_), _) => false,
        (_, Outcome::Commit { .. }) => false,
        (_, Outcome::Claim { result, .. }) => result.is_ok(),
        (_, Outcome::Fence { result, .. }) => result.is_ok(),
        (_, Outcome::Layout { result }) => result.is_ok(),
        (_, Outcome::Pause { result }) => result.is_ok(),
        (_, Outcome::Retention { result }) => result.is_ok(),
        (_, Outcome::Expire { result, .. }) => result.is_ok(),
        (_, Outcome::Erase { result, .. }) => result.is_ok(),
        (_, Outcome::TestTenant { result }) => result.is_ok(),
        (_, Outcome::Types { result }) => result.is_ok(),
        // The sum of all counts changes, and the reading of sources.
        (_, Outcome::Replace { result, .. }) => *result == Ok(Committed::Now),
    }
}

impl Manifest {
    /// The rows of the head, as a snapshot has them.
    pub fn head_rows(&self) -> Vec<Row> {
        let partitions = self.partitions.iter().map(|(id, partition)| partition.row(*id));
        [self.head_row()].into_iter().chain(partitions).collect()
    }

    /// Which blobs are live, for each partition.
    pub fn live_digests(&self) -> Vec<LiveOf> {
        let of = |(id, partition): (&PartitionId, &Partition)| LiveOf { partition: *id, live: partition.live.digest() };
        self.partitions.iter().map(of).collect()
    }

    /// Its head, as its file would give it.
    pub fn head(&self, gone: Gone) -> Head {
        let mut manifest = self.clone();
        let mut live = BTreeMap::new();
        for (id, partition) in &mut manifest.partitions {
            live.insert(*id, partition.live.digest());
            partition.live = BlobSet::new();
        }
        Head { manifest, live, gone }
    }
}

impl Head {
    /// Reads a head.
    ///
    /// # Errors
    /// [`SnapshotError`]: rows are missing, or do not fit together.
    pub fn read(rows: &[Row], live: &[LiveOf], gone: Gone) -> Result<Head, SnapshotError> {
        let mut restore = Restore::new();
        rows.iter().try_for_each(|row| restore.add(&row.key, row.value.as_deref().unwrap_or_default()))?;
        let manifest = restore.finish_head()?;
        match live.iter().find(|of| manifest.partition(of.partition).is_none()) {
            Some(of) => Err(SnapshotError::Partition(of.partition.0)),
            None => Ok(Head { manifest, live: live.iter().map(|of| (of.partition, of.live)).collect(), gone }),
        }
    }

    /// The manifest without its blobs.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    pub fn gone(&self) -> &Gone {
        &self.gone
    }

    /// Which blobs were live.
    pub fn live(&self, id: PartitionId) -> LiveDigest {
        self.live.get(&id).copied().unwrap_or_default()
    }

    /// The manifest with the blobs that are live again. Each partition is fenced, so that nothing of before is committed any more.
    ///
    /// # Errors
    /// [`SnapshotError`]: blobs do not fit.
    pub fn recovered(self, mut found: BTreeMap<PartitionId, Recovered>) -> Result<Manifest, SnapshotError> {
        let mut manifest = Manifest { index: 0, ..self.manifest };
        for (id, partition) in &mut manifest.partitions {
            let Some(Recovered { live, sources, last_commit }) = found.remove(id) else { continue };
            partition.live = BlobSet::new();
            for meta in &live {
                if !partition.live.insert(meta) {
                    return Err(SnapshotError::Blob(meta.key));
                }
            }
            partition.total = partition.live.total();
            partition.sources = sources;
            partition.last_commit = last_commit;
            partition.epoch = Epoch(partition.epoch.0 + 1);
            partition.owner = None;
            partition.erasures.settle(&partition.live);
            partition.check_restored(*id)?;
            manifest.changed.insert(*id);
        }
        match found.first_key_value() {
            Some((id, _)) => Err(SnapshotError::Partition(id.0)),
            None => Ok(manifest),
        }
    }
}
