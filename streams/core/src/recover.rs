//! Builds a lost manifest again, from its [`Head`] and from what blobs say of themselves.
//!
//! A blob names its commit, the rows or blobs that its commit stands for, and the state behind it: which blobs are live then, and how
//! far each source is ([`After`]). Files of blobs that are not live lie beside those that are: inputs of merges that the collector has
//! not reached, and blobs of commits that were never applied. These rules tell them apart, from the last commit back:
//!
//! 1. A blob that an applied commit has replaced is not live. The head names those that were removed without a replacement.
//! 2. The owner of a later commit, applied or not, knew what was applied before it. If it replaces the same blob or counts the same row
//!    as an earlier commit, the earlier one was given up.
//! 3. Numbers of applied commits rise from epoch to epoch. A commit knew all erasures and changes of event types of its time. The head
//!    has the position of each among the commits.
//! 4. The digest behind a commit, without what the commit did, is the digest before it (`Proof`). If it equals the digest behind an
//!    earlier commit, then that one was applied, and no commit between both was. The head proves its last commit in the same way.
//! 5. **The digest decides.** The blobs that are found live must be those that the last commit, or the head, says are live. If they are
//!    not, each commit that may never have been applied is left out in turn: the last commit of an epoch, or a commit before an
//!    erasure or a change of event types, unless rule 4 has decided about it. If no attempt fits, nothing is built.
//!
//! So no row counts twice: rules 1 to 3 may be wrong about a commit whose traces were collected, and then rule 5 says so.

use crate::blob::{BlobKey, BlobMeta, Epoch, LiveDigest, PartitionId, Seq};
use crate::limits::RECOVER_DOUBTS_MAX;
use crate::manifest::{AppliedCommit, Gone, Head, Manifest, Partition, Recovered, SnapshotError};
use crate::owner::{After, Origin};
use crate::source::{SourceId, SourceState};
use crate::teeth::{Bug, bites};
use std::collections::{BTreeMap, BTreeSet};

/// A whole file of a blob, and what it says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub meta: BlobMeta,
    pub origin: Origin,
    /// `None`: an earlier version wrote it.
    pub after: Option<After>,
}

/// The files of a directory.
#[derive(Clone, Debug, Default)]
pub struct Files {
    pub whole: Vec<Found>,
    /// Files with the name of a blob that are damaged.
    pub damaged: Vec<BlobKey>,
}

/// A partition as it is found again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    pub partition: PartitionId,
    pub live: LiveDigest,
    /// The last commit that counts; `None`: the head is newer than all of them.
    pub last: Option<AppliedCommit>,
    pub sources: BTreeMap<SourceId, SourceState>,
    /// Whole files that do not count: replaced, or of commits that were not applied.
    pub left_out: Vec<BlobKey>,
    /// Those of them whose commits are later than the last one that counts.
    pub later: Vec<BlobKey>,
}

/// Why a manifest is not built again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CannotRecover {
    #[error("blob {key} is of epoch {}, and manifest.head is of epoch {}: it is older than the blobs", key.epoch.0, known.0)]
    OldHead { key: BlobKey, known: Epoch },
    #[error("blob {0} is of a partition that manifest.head does not know")]
    UnknownPartition(BlobKey),
    #[error(transparent)]
    Undecided(Box<Undecided>),
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
}

/// The files that are there give no state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "partition {}: {} blobs that count {} were live, and the files that are there do not give them: the nearest are {} that count {}; {}",
    partition.0, expected.blobs, expected.total, found.blobs, found.total, lacking(damaged, missing)
)]
pub struct Undecided {
    pub partition: PartitionId,
    pub expected: LiveDigest,
    pub found: LiveDigest,
    pub damaged: Vec<BlobKey>,
    pub missing: Vec<BlobKey>,
}

fn lacking(damaged: &[BlobKey], missing: &[BlobKey]) -> String {
    let names = |keys: &[BlobKey]| keys.iter().take(20).map(BlobKey::to_string).collect::<Vec<_>>().join(" ");
    match (damaged, missing) {
        ([], []) => "files of blobs were removed or added".to_owned(),
        ([], missing) => format!("these may be missing: {}", names(missing)),
        (damaged, []) => format!("these are damaged: {}", names(damaged)),
        (damaged, missing) => {
            format!("these are damaged: {}; these may be missing: {}", names(damaged), names(missing))
        }
    }
}

/// Builds a manifest again.
///
/// # Errors
/// [`CannotRecover`] names what cannot be decided.
pub fn recover(head: Head, files: &Files) -> Result<(Manifest, Vec<Report>), CannotRecover> {
    let unknown = |key: &BlobKey| head.manifest().partition(key.partition).is_none();
    let mut keys = files.whole.iter().map(|found| found.meta.key).chain(files.damaged.iter().copied());
    if let Some(key) = keys.find(unknown) {
        return Err(CannotRecover::UnknownPartition(key));
    }
    let mut reports = Vec::new();
    let mut found = BTreeMap::new();
    for (id, partition) in head.manifest().partitions() {
        let search = Search::new(id, &head, partition, files)?;
        let (report, live) = search.run()?;
        let last_commit = report.last.or(partition.last_commit);
        found.insert(id, Recovered { live, sources: report.sources.clone(), last_commit });
        reports.push(report);
    }
    Ok((head.recovered(found)?, reports))
}

/// The files of a commit.
struct CommitFiles<'f> {
    id: AppliedCommit,
    blobs: Vec<&'f Found>,
    /// Whether a file of it is damaged.
    is_damaged: bool,
}

/// A state that may be that of the lost manifest.
struct Authority<'f> {
    last: Option<AppliedCommit>,
    live: LiveDigest,
    after: Option<&'f After>,
}

/// A digest says that a commit was applied, and that none between both was.
struct Proof {
    /// The places of the commit that was applied, and of the first one between both, among all commits from the last one back.
    applied: usize,
    between: usize,
}

/// What is live if some commits were not applied.
#[derive(Default)]
struct Derived {
    live: Vec<BlobMeta>,
    digest: LiveDigest,
    accepted: BTreeSet<AppliedCommit>,
    removed: BTreeSet<BlobKey>,
}

struct Search<'f> {
    id: PartitionId,
    head: &'f Partition,
    head_live: LiveDigest,
    gone: &'f Gone,
    /// From the last one back.
    commits: Vec<CommitFiles<'f>>,
    damaged: Vec<BlobKey>,
    /// Commits that were not applied.
    refuted: BTreeSet<AppliedCommit>,
    /// Commits that were applied.
    proved: BTreeSet<AppliedCommit>,
}

impl CommitFiles<'_> {
    fn after(&self) -> Option<&After> {
        self.blobs.first()?.after.as_ref()
    }

    /// Whether all its blobs are there.
    fn is_complete(&self) -> bool {
        !self.is_damaged && self.after().is_none_or(|after| after.parts as usize == self.blobs.len())
    }

    fn removed(&self) -> &[BlobKey] {
        match self.blobs.first().map(|found| &found.origin) {
            Some(Origin::Blobs(keys)) => keys,
            Some(Origin::Source { .. }) | None => &[],
        }
    }

    /// The digest of the names of all blobs that are live before it.
    fn names_before(&self, partition: PartitionId) -> Option<u128> {
        let After { parts, live, .. } = self.after()?;
        let AppliedCommit { epoch, seq } = self.id;
        let added = (0..*parts).map(|part| BlobKey { partition, epoch, seq, part }.hash());
        let added = added.fold(0, u128::wrapping_add);
        let removed = self.removed().iter().map(BlobKey::hash).fold(0, u128::wrapping_add);
        Some(live.names.wrapping_sub(added).wrapping_add(removed))
    }
}

impl<'f> Search<'f> {
    fn new(
        id: PartitionId,
        head: &'f Head,
        partition: &'f Partition,
        files: &'f Files,
    ) -> Result<Search<'f>, CannotRecover> {
        let damaged: Vec<BlobKey> = files.damaged.iter().filter(|key| key.partition == id).copied().collect();
        let mut commits: BTreeMap<(Epoch, Seq), CommitFiles<'f>> = BTreeMap::new();
        for found in files.whole.iter().filter(|found| found.meta.key.partition == id) {
            commit_of(&mut commits, &found.meta.key).blobs.push(found);
        }
        for key in &damaged {
            commit_of(&mut commits, key).is_damaged = true;
        }
        let known = partition.epoch;
        let keys = files.whole.iter().map(|found| found.meta.key).chain(damaged.iter().copied());
        if let Some(key) = keys.filter(|key| key.partition == id).find(|key| key.epoch > known) {
            return Err(CannotRecover::OldHead { key, known });
        }
        let commits = commits.into_values().rev().collect();
        let head_live = head.live(id);
        let gone = head.gone();
        let refuted = BTreeSet::new();
        let proved = BTreeSet::new();
        let mut search = Search { id, head: partition, head_live, gone, commits, damaged, refuted, proved };
        search.refute();
        search.prove();
        Ok(search)
    }

    fn is_behind_head(&self, id: AppliedCommit) -> bool {
        id.epoch == self.head.epoch && id.seq > self.head.last_seq()
    }

    /// States that may be the last one, the latest first.
    fn authorities(&self) -> Vec<Authority<'f>> {
        let behind = self.commits.iter().filter(|commit| self.is_behind_head(commit.id) && commit.is_complete());
        let of_commits = behind.filter(|commit| !self.refuted.contains(&commit.id)).filter_map(|commit| {
            let after = commit.blobs.first()?.after.as_ref()?;
            Some(Authority { last: Some(commit.id), live: after.live, after: Some(after) })
        });
        let head = Authority { last: None, live: self.head_live, after: None };
        of_commits.chain([head]).collect()
    }

    fn run(&self) -> Result<(Report, Vec<BlobMeta>), CannotRecover> {
        let doubts = self.doubts();
        let mut nearest: Option<(LiveDigest, Derived)> = None;
        for authority in self.authorities() {
            for left_out in choices(&doubts) {
                for keeps_expired in [true, false] {
                    let derived = self.derive(&authority, &left_out, keeps_expired);
                    if derived.digest == authority.live || bites(Bug::RecoveredWithoutDigest) {
                        return Ok((self.report(&authority, &derived), derived.live));
                    }
                    nearest.get_or_insert((authority.live, derived));
                }
            }
        }
        let (expected, nearest) = nearest.unwrap_or_default();
        let missing = self.missing(&nearest);
        let damaged = self.damaged.clone();
        let undecided = Undecided { partition: self.id, expected, found: nearest.digest, damaged, missing };
        Err(CannotRecover::Undecided(Box::new(undecided)))
    }

    /// Commits that may never have been applied although no later commit contradicts them. Commits with missing blobs come first. A torn
    /// write may have been abandoned, so it tells nothing about the commits before it.
    fn doubts(&self) -> Vec<AppliedCommit> {
        let mut doubts: Vec<(bool, AppliedCommit)> = Vec::new();
        let mut later: Option<&CommitFiles<'_>> = None;
        let is_decided = |id: &AppliedCommit| self.refuted.contains(id) || self.proved.contains(id);
        for commit in &self.commits {
            let revision = |commit: &CommitFiles<'_>| commit.after().map_or(0, |after| after.revision);
            let is_last = later.is_none_or(|later| later.id.epoch != commit.id.epoch);
            let is_doubtful = is_last || later.is_some_and(|later| revision(later) != revision(commit));
            if is_doubtful && !is_decided(&commit.id) {
                doubts.push((commit.is_complete(), commit.id));
            }
            if !commit.is_damaged {
                later = Some(commit);
            }
        }
        doubts.truncate(RECOVER_DOUBTS_MAX);
        doubts.sort_by_key(|(is_complete, _)| *is_complete);
        doubts.into_iter().map(|(_, id)| id).collect()
    }

    /// What is live behind a state, if these commits were not applied.
    fn derive(&self, authority: &Authority<'_>, left_out: &[AppliedCommit], keeps_expired: bool) -> Derived {
        let mut derived = Derived { removed: self.gone.iter().copied().collect(), ..Derived::default() };
        let mut lowest = authority.last.map_or(Seq(self.head.last_seq().0 + 1), |last| Seq(last.seq.0 + 1));
        for commit in &self.commits {
            let is_authority = Some(commit.id) == authority.last;
            let is_later = authority.last.is_none_or(|last| commit.id.seq > last.seq) && self.is_behind_head(commit.id);
            let is_left_out = left_out.contains(&commit.id) && !is_authority;
            if is_later || is_left_out || commit.id.seq >= lowest || self.refuted.contains(&commit.id) {
                continue;
            }
            lowest = commit.id.seq;
            derived.accepted.insert(commit.id);
            derived.removed.extend(commit.removed());
            let is_live = |meta: &BlobMeta| {
                !derived.removed.contains(&meta.key) && (keeps_expired || !self.head.horizons.has_passed(meta))
            };
            let live: Vec<BlobMeta> = commit.blobs.iter().map(|found| found.meta).filter(is_live).collect();
            derived.digest = live.iter().fold(derived.digest, LiveDigest::with);
            derived.live.extend(live);
        }
        derived
    }

    /// Whether a commit came too late: after a later claim, or after a commit under one.
    fn is_fenced(&self, id: AppliedCommit) -> bool {
        let is_behind_claim = id.epoch < self.head.epoch && id.seq > self.head.last_seq();
        is_behind_claim || self.head.last_commit.is_some_and(|last| id.epoch < last.epoch && id.seq >= last.seq)
    }

    /// Whether as many erasures and changes of event types had come before a commit as its owner knew. Of an erasure that came again, only
    /// the last time is known. If all of these last times are before the commit, the earlier times are too.
    fn may_have_known(&self, id: AppliedCommit, revision: u64) -> bool {
        let erased = self.head.erasures.iter().map(|(_, erasure)| erasure.seq);
        let known: Vec<Seq> = erased.chain(self.head.type_changes.iter().map(|position| position.before)).collect();
        let repeated = self.head.revision().saturating_sub(known.len() as u64);
        let before = known.iter().filter(|seq| **seq < id.seq).count() as u64;
        let all_erased_before = self.head.erasures.iter().all(|(_, erasure)| erasure.seq < id.seq);
        let least = if all_erased_before { before + repeated } else { before };
        (least..=before + repeated).contains(&revision)
    }

    /// Commits that were not applied. The owner of a later commit, applied or not, knew what was applied before: if it replaces the same
    /// blob, or counts the same row, the earlier commit was given up.
    fn refute(&mut self) {
        let mut replaced: BTreeSet<BlobKey> = self.gone.iter().copied().collect();
        let mut begins: BTreeMap<SourceId, u64> = BTreeMap::new();
        for commit in &self.commits {
            let origin = commit.blobs.first().map(|found| &found.origin);
            let is_replaced_again = commit.removed().iter().any(|key| replaced.contains(key));
            let is_counted_again = match origin {
                Some(Origin::Source { source, to, .. }) => begins.get(source).is_some_and(|from| to > from),
                Some(Origin::Blobs(_)) | None => false,
            };
            let is_void = commit.after().is_some_and(|after| !self.may_have_known(commit.id, after.revision));
            if is_replaced_again || is_counted_again || is_void || self.is_fenced(commit.id) {
                self.refuted.insert(commit.id);
            }
            replaced.extend(commit.removed());
            if let Some(Origin::Source { source, from, .. }) = origin {
                begins.entry(*source).and_modify(|known| *known = (*known).min(*from)).or_insert(*from);
            }
        }
    }

    /// Decides about commits by the digests before and behind them. A name is never used again. So blobs of a commit that are in the digest
    /// before a later one were live then.
    fn prove(&mut self) {
        for Proof { applied, between } in self.proofs() {
            self.refuted.extend(self.commits[between..applied].iter().map(|commit| commit.id));
            self.proved.insert(self.commits[applied].id);
        }
        self.refuted.retain(|id| !self.proved.contains(id));
    }

    fn proofs(&self) -> Vec<Proof> {
        let behind = |commit: &CommitFiles<'_>| commit.after().map(|after| after.live.names);
        let at = self.commits.iter().enumerate();
        let places: BTreeMap<u128, usize> = at.filter_map(|(at, commit)| Some((behind(commit)?, at))).collect();
        let of_head = self.commits.partition_point(|commit| self.is_behind_head(commit.id));
        let before_head = [(of_head, Some(self.head_live.names))];
        let before_commits = self.commits.iter().enumerate().map(|(at, commit)| (at + 1, commit.names_before(self.id)));
        // Of several later commits that prove the same one, the last tells most.
        let mut first: BTreeMap<usize, usize> = BTreeMap::new();
        for (between, names) in before_commits.chain(before_head) {
            let Some(applied) = names.and_then(|names| places.get(&names).copied()) else { continue };
            if applied >= between {
                first.entry(applied).and_modify(|known| *known = between.min(*known)).or_insert(between);
            }
        }
        first.into_iter().map(|(applied, between)| Proof { applied, between }).collect()
    }

    /// Blobs of commits that count, without a file and not known to be replaced. Most of them were replaced.
    fn missing(&self, derived: &Derived) -> Vec<BlobKey> {
        let mut missing = Vec::new();
        for commit in self.commits.iter().filter(|commit| derived.accepted.contains(&commit.id)) {
            let AppliedCommit { epoch, seq } = commit.id;
            let parts = commit.after().map_or(0, |after| after.parts);
            let keys = (0..parts).map(|part| BlobKey { partition: self.id, epoch, seq, part });
            let is_there = |key: &BlobKey| commit.blobs.iter().any(|found| found.meta.key == *key);
            missing.extend(keys.filter(|key| !is_there(key) && !derived.removed.contains(key)));
        }
        missing
    }

    fn report(&self, authority: &Authority<'_>, derived: &Derived) -> Report {
        let mut sources = self.head.sources.clone();
        if let Some(after) = authority.after {
            sources.extend(after.sources.iter().map(|after| (after.id, after.state)));
        }
        let live: BTreeSet<BlobKey> = derived.live.iter().map(|meta| meta.key).collect();
        let files =
            || self.commits.iter().flat_map(|commit| commit.blobs.iter().map(move |found| (commit.id, found.meta.key)));
        let last_seq = authority.last.map_or(self.head.last_seq(), |last| last.seq);
        let is_later = |id: &AppliedCommit| self.is_behind_head(*id) && id.seq > last_seq;
        Report {
            partition: self.id,
            live: derived.digest,
            last: authority.last,
            sources,
            left_out: files().map(|(_, key)| key).filter(|key| !live.contains(key)).collect(),
            later: files().filter(|(id, _)| is_later(id)).map(|(_, key)| key).collect(),
        }
    }
}

fn commit_of<'c, 'f>(
    commits: &'c mut BTreeMap<(Epoch, Seq), CommitFiles<'f>>,
    key: &BlobKey,
) -> &'c mut CommitFiles<'f> {
    let BlobKey { epoch, seq, .. } = *key;
    let id = AppliedCommit { epoch, seq };
    commits.entry((epoch, seq)).or_insert_with(|| CommitFiles { id, blobs: Vec::new(), is_damaged: false })
}

/// None of the doubtful commits, then each one, then each two.
fn choices(doubts: &[AppliedCommit]) -> Vec<Vec<AppliedCommit>> {
    let ones = doubts.iter().map(|one| vec![*one]);
    let twos = doubts.iter().enumerate().flat_map(|(at, one)| doubts[at + 1..].iter().map(|two| vec![*one, *two]));
    [Vec::new()].into_iter().chain(ones).chain(twos).collect()
}

#[cfg(test)]
mod tests;
