//! A manifest is built again as it was, or what is missing is named.

use super::*;
use crate::blob::{Level, StoredBlob};
use crate::manifest::{
    Claim, Command, Commit, Committed, Generation, Gone, MemberId, Outcome, Progress, Replace, SourceReading,
    replaces_head,
};
use crate::owner::SourceAfter;
use crate::scope::Scope;
use crate::source::ReadingId;
use crate::time::{Day, Days, Hour, HourRange};

const P: PartitionId = PartitionId(0);
const SOURCE: SourceId = SourceId([7; 32]);

/// A manifest, its head, and the files of its blobs.
struct Directory {
    manifest: Manifest,
    head: Head,
    files: Files,
}

fn blob(seq: u64, part: u32, total: u64) -> BlobMeta {
    let key = BlobKey { partition: P, epoch: Epoch(1), seq: Seq(seq), part };
    let stored = StoredBlob { bytes: 1, checksum: 1 };
    BlobMeta { key, level: Level::Delta, scope: Scope::ALL, hours: HourRange::of(Hour(9)), rows: 1, total, stored }
}

impl Directory {
    fn new() -> Directory {
        let mut manifest = Manifest::new();
        let claim = Claim { partition: P, generation: Generation(1), member: MemberId(1), types: Some(Vec::new()) };
        manifest.apply(&Command::Claim(claim));
        let head = manifest.head(Gone::default());
        Directory { manifest, head, files: Files::default() }
    }

    fn claim(&mut self, number: u64) {
        let claim =
            Claim { partition: P, generation: Generation(number), member: MemberId(number), types: Some(Vec::new()) };
        self.manifest.apply(&Command::Claim(claim));
    }

    fn flush(&mut self, seq: u64, from: u64, to: u64) {
        self.flush_as(blob(seq, 0, 0).key, from, to);
    }

    fn flush_as(&mut self, key: BlobKey, from: u64, to: u64) {
        let meta = BlobMeta { key, ..blob(0, 0, to - from) };
        let known = self.manifest.partition(P).and_then(|known| known.sources.get(&SOURCE).copied());
        let reading = known.map_or(ReadingId(1), |known| known.reading);
        let total = to - from;
        let progress = Progress { source: SOURCE, reading, from, to, dead_letters: 0, total, is_end: false };
        self.write(Commit { progress: Some(progress), add: vec![meta], ..Commit::default() }, true);
    }

    /// Writes the files of a commit, which is applied or not.
    fn write(&mut self, commit: Commit, is_applied: bool) {
        let BlobKey { epoch, seq, .. } = commit.add[0].key;
        let commit = Commit { partition: P, epoch, seq, ..commit };
        let mut behind = self.manifest.clone();
        let outcome = behind.apply(&Command::Commit(commit.clone()));
        assert!(matches!(outcome, Outcome::Commit { result: Ok(Committed::Now), .. }), "{outcome:?}");
        let partition = behind.partition(P).unwrap();
        let sources = partition.sources.iter().map(|(id, state)| SourceAfter { id: *id, state: *state }).collect();
        let parts = commit.add.len() as u32;
        let after = After { parts, live: partition.live.digest(), revision: 0, sources };
        let origin = match commit.progress {
            Some(progress) => Origin::Source { source: SOURCE, from: progress.from, to: progress.to },
            None => Origin::Blobs(commit.remove.iter().copied().collect()),
        };
        let found = |meta: &BlobMeta| Found { meta: *meta, origin: origin.clone(), after: Some(after.clone()) };
        self.files.whole.extend(commit.add.iter().map(found));
        if is_applied {
            self.manifest = behind;
        }
    }

    /// Applies a commit that leaves no file.
    fn apply(&mut self, commit: Commit) {
        let epoch = self.manifest.partition(P).unwrap().epoch;
        let outcome = self.manifest.apply(&Command::Commit(Commit { partition: P, epoch, ..commit }));
        assert!(matches!(outcome, Outcome::Commit { result: Ok(Committed::Now), .. }), "{outcome:?}");
    }

    fn merge(&mut self, seq: u64, inputs: &[BlobMeta], is_applied: bool) -> BlobMeta {
        let merged = blob(seq, 0, inputs.iter().map(|meta| meta.total).sum());
        let remove = inputs.iter().map(|meta| meta.key).collect();
        self.write(Commit { add: vec![merged], remove, ..Commit::default() }, is_applied);
        merged
    }

    /// Replaces the rows of day 0 by rows that count `after`, and writes the head or is killed before.
    fn replace(&mut self, seq: u64, inputs: &[BlobMeta], after: u64, is_head_written: bool) {
        let added = blob(seq, 0, after);
        let before = inputs.iter().map(|meta| meta.total).sum();
        let remove: Vec<BlobKey> = inputs.iter().map(|meta| meta.key).collect();
        let replace = Replace {
            partition: P,
            epoch: Epoch(1),
            seq: Seq(seq),
            days: Days { first: Day(0), last: Day(0) },
            add: Some(added).filter(|_| after > 0).into_iter().collect(),
            remove: remove.clone(),
            revision: 0,
            erased: 0,
            before,
            after,
            readings: vec![SourceReading { source: SOURCE, reading: ReadingId(2) }],
        };
        let command = Command::Replace(replace.clone());
        let outcome = self.manifest.apply(&command);
        assert!(matches!(outcome, Outcome::Replace { result: Ok(Committed::Now), .. }), "{outcome:?}");
        assert!(replaces_head(&command, &outcome));
        let partition = self.manifest.partition(P).unwrap();
        let sources = partition.sources.iter().map(|(id, state)| SourceAfter { id: *id, state: *state }).collect();
        let after = After { parts: 1, live: partition.live.digest(), revision: 0, sources };
        let found = |meta: &BlobMeta| Found {
            meta: *meta,
            origin: Origin::Blobs(remove.clone().into()),
            after: Some(after.clone()),
        };
        self.files.whole.extend(replace.add.iter().map(found));
        if is_head_written {
            let mut gone = Gone::default();
            gone.follow(&command, &outcome);
            self.head = self.manifest.head(gone);
        }
    }

    fn lose(&mut self, meta: &BlobMeta) {
        self.files.whole.retain(|found| found.meta.key != meta.key);
    }

    fn recovered(&self) -> Result<Report, CannotRecover> {
        let (manifest, reports) = recover(self.head.clone(), &self.files)?;
        let live: Vec<BlobKey> = manifest.live().map(|meta| meta.key).collect();
        assert_eq!(live.len() as u64, reports[0].live.blobs);
        Ok(reports[0].clone())
    }

    fn is_recovered(&self) -> bool {
        let partition = self.manifest.partition(P).unwrap();
        let report = self.recovered().unwrap();
        report.live == partition.live.digest() && report.sources == partition.sources
    }
}

#[test]
fn replaced_blobs_are_not_live_whatever_files_are_left() {
    let mut directory = Directory::new();
    directory.flush(1, 0, 10);
    directory.flush(2, 10, 30);
    let first = directory.merge(3, &[blob(1, 0, 10), blob(2, 0, 20)], true);
    directory.flush(4, 30, 31);
    directory.merge(5, &[first, blob(4, 0, 1)], true);
    assert!(directory.is_recovered());
    // The collector deletes earlier commits first.
    for collected in [blob(1, 0, 10), blob(2, 0, 20), first, blob(4, 0, 1)] {
        directory.lose(&collected);
        assert!(directory.is_recovered(), "{}", collected.key);
    }
}

#[test]
fn replaced_range_is_found_again_and_never_both_states() {
    for is_head_written in [true, false] {
        let mut directory = Directory::new();
        directory.flush(1, 0, 10);
        directory.flush(2, 10, 30);
        directory.replace(3, &[blob(1, 0, 10), blob(2, 0, 20)], 17, is_head_written);
        assert!(directory.is_recovered());
        directory.flush(4, 30, 31);
        assert!(directory.is_recovered());
        directory.lose(&blob(1, 0, 10));
        assert!(directory.is_recovered());
        // Its rows are merged further.
        directory.merge(5, &[blob(3, 0, 17), blob(4, 0, 1)], true);
        assert!(directory.is_recovered());
    }
    // Nothing is left of the days, and no blob says so.
    let mut directory = Directory::new();
    directory.flush(1, 0, 10);
    directory.replace(2, &[blob(1, 0, 10)], 0, true);
    assert!(directory.is_recovered() && directory.manifest.live().next().is_none());
    directory.flush(3, 10, 12);
    assert!(directory.is_recovered());
}

#[test]
fn merge_that_was_given_up_does_not_count_beside_its_inputs() {
    let mut directory = Directory::new();
    directory.flush(1, 0, 10);
    directory.flush(2, 10, 30);
    directory.merge(3, &[blob(1, 0, 10)], false);
    directory.merge(4, &[blob(1, 0, 10), blob(2, 0, 20)], true);
    directory.flush(5, 30, 40);
    assert!(directory.is_recovered());
    // Without the merge that counts, and the flush behind it, the state before them is found.
    directory.lose(&blob(4, 0, 30));
    directory.lose(&blob(5, 0, 10));
    let report = directory.recovered().unwrap();
    assert_eq!((report.live.total, report.sources[&SOURCE].next_row), (30, 30));
}

#[test]
fn commits_before_a_torn_write_may_have_been_given_up() {
    let mut directory = Directory::new();
    directory.flush(1, 0, 10);
    // One of two files of a merge is complete. The merge was written again under another number, and torn again.
    let merged = blob(2, 1, 10);
    directory.write(Commit { add: vec![merged], remove: vec![blob(1, 0, 10).key], ..Commit::default() }, false);
    let parts = |found: &mut Found| found.after.iter_mut().for_each(|after| after.parts = 2);
    directory.files.whole.iter_mut().filter(|found| found.meta.key == merged.key).for_each(parts);
    directory.files.damaged = vec![blob(2, 0, 0).key, blob(3, 0, 0).key];
    // The next owner knows nothing of it, and its numbers are higher.
    let claim = Claim { partition: P, generation: Generation(2), member: MemberId(2), types: Some(Vec::new()) };
    directory.manifest.apply(&Command::Claim(claim));
    let mut meta = blob(4, 0, 5);
    meta.key.epoch = Epoch(2);
    let reading = ReadingId(1);
    let progress = Progress { source: SOURCE, reading, from: 10, to: 15, dead_letters: 0, total: 5, is_end: false };
    directory.write(Commit { progress: Some(progress), add: vec![meta], ..Commit::default() }, true);
    directory.head = directory.manifest.head(Gone::default());
    assert!(directory.is_recovered());
}

#[test]
fn merges_given_up_in_many_epochs_are_told_by_digests() {
    let mut directory = Directory::new();
    let owners = 20;
    for owner in 0..owners {
        directory.flush(owner + 1, 10 * owner, 10 * (owner + 1));
    }
    // Each owner dies before the merge of one blob is applied, and no later owner merges that blob.
    for owner in 0..owners {
        directory.claim(owner + 2);
        let key = |seq| BlobKey { epoch: Epoch(owner + 2), ..blob(owners + 2 * owner + seq, 0, 0).key };
        let begin = 10 * (owners + owner);
        directory.flush_as(key(1), begin, begin + 10);
        let remove = vec![blob(owner + 1, 0, 10).key];
        let add = vec![BlobMeta { key: key(2), ..blob(0, 0, 10) }];
        directory.write(Commit { add, remove, ..Commit::default() }, false);
    }
    directory.claim(owners + 2);
    directory.head = directory.manifest.head(Gone::default());
    assert!(directory.is_recovered(), "the head has the digest behind the last flush");
    let key = BlobKey { epoch: Epoch(owners + 2), ..blob(3 * owners + 2, 0, 0).key };
    directory.flush_as(key, 20 * owners, 20 * owners + 7);
    assert!(directory.is_recovered(), "the last flush has the digest before it");
}

#[test]
fn flush_given_up_before_its_rows_were_erased_does_not_count() {
    let mut directory = Directory::new();
    directory.flush(1, 0, 10);
    // Two of its files were torn. It was given up, and its rows are erased: the flush that counts them has no file.
    let meta = BlobMeta { level: Level::DeadLetters, total: 0, ..blob(2, 1, 0) };
    let reading = ReadingId(1);
    let progress = Progress { source: SOURCE, reading, from: 10, to: 12, dead_letters: 0, total: 0, is_end: false };
    let given_up = Progress { dead_letters: 1, ..progress };
    directory.write(Commit { progress: Some(given_up), add: vec![meta], ..Commit::default() }, false);
    directory.apply(Commit { seq: Seq(3), progress: Some(progress), ..Commit::default() });
    directory.flush(4, 12, 20);
    // Later owners leave more doubtful commits than are tried.
    for owner in 2..20 {
        directory.claim(owner);
        let key = BlobKey { epoch: Epoch(owner), ..blob(3 + owner, 0, 0).key };
        directory.flush_as(key, 10 + 5 * owner, 15 + 5 * owner);
    }
    directory.head = directory.manifest.head(Gone::default());
    assert!(directory.is_recovered());
}

#[test]
fn missing_blob_is_named_or_the_state_before_it_is_found() {
    let mut directory = Directory::new();
    directory.flush(1, 0, 10);
    directory.head = directory.manifest.head(Gone::default());
    directory.flush(2, 10, 30);
    directory.flush(3, 30, 31);
    directory.lose(&blob(2, 0, 20));
    let report = directory.recovered().unwrap();
    assert_eq!((report.last, report.sources[&SOURCE].next_row), (None, 10));
    assert_eq!(report.later, [blob(3, 0, 1).key]);
    directory.lose(&blob(1, 0, 10));
    let refused = directory.recovered();
    assert!(matches!(refused, Err(CannotRecover::Undecided(_))), "{refused:?}");
}

#[test]
fn blobs_of_a_later_epoch_than_the_head_are_refused() {
    let mut directory = Directory::new();
    directory.flush(1, 0, 10);
    let mut later = directory.files.whole[0].clone();
    later.meta.key.epoch = Epoch(2);
    directory.files.whole.push(later.clone());
    let refused = CannotRecover::OldHead { key: later.meta.key, known: Epoch(1) };
    assert_eq!(directory.recovered(), Err(refused));
}
