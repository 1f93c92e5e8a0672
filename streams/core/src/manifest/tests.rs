//! The rules of commits, one by one, and the laws that any sequence of commands keeps.

use super::*;
use crate::blob::{BlobKey, Level, Seq, StoredBlob};
use crate::codec::DecodeError;
use crate::erasure::{Erasure, ErasureKey, Erasures};
use crate::layout::{BucketsFrom, LargeTenant, LayoutError, PeriodUnit};
use crate::pause::PauseTarget;
use crate::retention::{Horizons, Retention};
use crate::schema::{SchemaRefused, TypeChange};
use crate::scope::{Scope, TenantHash};
use crate::source::ReadingId;
use crate::time::{Day, Days, Hour, HourRange};
use proptest::prelude::*;

const P: PartitionId = PartitionId(0);
const SOURCE: SourceId = SourceId([1; 32]);
const READING: ReadingId = ReadingId(5);

fn key(epoch: u64, seq: u64, part: u32) -> BlobKey {
    BlobKey { partition: P, epoch: Epoch(epoch), seq: Seq(seq), part }
}

fn blob(key: BlobKey, total: u64) -> BlobMeta {
    let stored = StoredBlob { bytes: 1, checksum: 2 };
    BlobMeta { key, level: Level::Delta, scope: Scope::ALL, hours: HourRange::of(Hour(1)), rows: total, total, stored }
}

/// The rows that a store gives back.
fn restored<'a>(rows: impl Iterator<Item = (&'a Vec<u8>, &'a Vec<u8>)>) -> Result<Manifest, SnapshotError> {
    let mut restore = Restore::new();
    for (key, value) in rows {
        restore.add(key, value)?;
    }
    restore.finish()
}

fn claim(generation: u64, member: u64) -> Command {
    Command::Claim(Claim {
        partition: P,
        generation: Generation(generation),
        member: MemberId(member),
        types: Some(vec!["impression".to_owned(), "click".to_owned()]),
    })
}

/// Counts rows `from` to `to` of the source, each once.
fn flush(epoch: u64, seq: u64, from: u64, to: u64) -> Commit {
    let progress =
        Progress { source: SOURCE, reading: READING, from, to, dead_letters: 0, total: to - from, is_end: false };
    let add = vec![blob(key(epoch, seq, 0), to - from)];
    Commit { partition: P, epoch: Epoch(epoch), seq: Seq(seq), progress: Some(progress), add, ..Commit::default() }
}

fn result(manifest: &mut Manifest, commit: &Commit) -> Result<Committed, CommitRefused> {
    match manifest.apply(&Command::Commit(commit.clone())) {
        Outcome::Commit { result, .. } => result,
        other => panic!("{other:?}"),
    }
}

/// Epoch 1, with commit 1 of rows 0 to 10 and commit 2 of rows 10 to 15.
fn manifest() -> Manifest {
    let mut manifest = Manifest::new();
    manifest.apply(&claim(1, 1));
    assert_eq!(result(&mut manifest, &flush(1, 1, 0, 10)), Ok(Committed::Now));
    assert_eq!(result(&mut manifest, &flush(1, 2, 10, 15)), Ok(Committed::Now));
    manifest
}

#[test]
fn claim_needs_a_higher_generation_or_the_same_member() {
    let mut manifest = manifest();
    let result = |outcome| match outcome {
        Outcome::Claim { result, .. } => result,
        other => panic!("{other:?}"),
    };
    let old = Err(ClaimRefused::OldGeneration { generation: Generation(1), known: Generation(1) });
    assert_eq!(result(manifest.apply(&claim(1, 2))), old);
    assert_eq!(result(manifest.apply(&claim(1, 1))), Ok(Epoch(2)));
    assert_eq!(result(manifest.apply(&claim(2, 2))), Ok(Epoch(3)));
    assert!(result(manifest.apply(&claim(1, 1))).is_err());
    let far = Claim { partition: PartitionId(1 << 16), generation: Generation(1), member: MemberId(1), types: None };
    assert!(result(manifest.apply(&Command::Claim(far))).is_err());
}

#[test]
fn commit_of_another_epoch_is_refused() {
    let mut manifest = manifest();
    manifest.apply(&claim(2, 2));
    let refused = CommitRefused::OtherEpoch { epoch: Epoch(1), known: Epoch(2) };
    assert_eq!(result(&mut manifest, &flush(1, 3, 15, 20)), Err(refused));
    // Also the last one that was applied: its owner is deposed.
    assert_eq!(result(&mut manifest, &flush(1, 2, 10, 15)), Err(refused));
    assert_eq!(result(&mut manifest, &flush(2, 3, 15, 20)), Ok(Committed::Now));
}

#[test]
fn fence_deposes_the_owner_once() {
    let mut manifest = manifest();
    let fence = Command::Fence(Fence { partition: P, epoch: Epoch(1) });
    assert_eq!(manifest.apply(&fence), Outcome::Fence { partition: P, result: Ok(Epoch(2)) });
    let refused = FenceRefused::OtherEpoch { epoch: Epoch(1), known: Epoch(2) };
    assert_eq!(manifest.apply(&fence), Outcome::Fence { partition: P, result: Err(refused) });
    assert!(matches!(result(&mut manifest, &flush(1, 3, 15, 16)), Err(CommitRefused::OtherEpoch { .. })));
    assert_eq!(manifest.partition(P).unwrap().owner, None);
}

#[test]
fn last_commit_again_is_answered_and_changes_nothing() {
    let mut manifest = manifest();
    let before = manifest.partition(P).cloned();
    assert_eq!(result(&mut manifest, &flush(1, 2, 10, 15)), Ok(Committed::Already));
    let refused = CommitRefused::OldSeq { seq: Seq(1), last: Seq(2) };
    assert_eq!(result(&mut manifest, &flush(1, 1, 0, 10)), Err(refused));
    assert_eq!(manifest.partition(P).cloned(), before);
}

#[test]
fn commit_that_begins_elsewhere_is_refused() {
    let mut manifest = manifest();
    for from in [0, 14, 16] {
        let refused = CommitRefused::OtherPosition { source_id: SOURCE, from, position: 15 };
        assert_eq!(result(&mut manifest, &flush(1, 3, from, 20)), Err(refused));
    }
    let mut other = flush(1, 3, 15, 16);
    other.progress.as_mut().unwrap().reading = ReadingId(6);
    assert_eq!(result(&mut manifest, &other), Err(CommitRefused::OtherReading { source_id: SOURCE }));
    let mut end = flush(1, 3, 15, 15);
    end.add.clear();
    end.progress.as_mut().unwrap().is_end = true;
    assert_eq!(result(&mut manifest, &end), Ok(Committed::Now));
    assert_eq!(result(&mut manifest, &flush(1, 4, 15, 16)), Err(CommitRefused::SourceComplete(SOURCE)));
}

#[test]
fn merge_of_a_blob_that_is_not_live_is_refused() {
    let mut manifest = manifest();
    let remove = vec![key(1, 1, 0), key(1, 2, 0)];
    let merge =
        Commit { progress: None, add: vec![blob(key(1, 3, 0), 15)], remove: remove.clone(), ..flush(1, 3, 0, 15) };
    let mut twice = merge.clone();
    twice.remove = vec![key(1, 1, 0), key(1, 1, 0)];
    assert!(matches!(result(&mut manifest, &twice), Err(CommitRefused::NotLive(_))));
    assert_eq!(result(&mut manifest, &merge), Ok(Committed::Now));
    let again = Commit { seq: Seq(4), add: vec![blob(key(1, 4, 0), 15)], ..merge };
    assert_eq!(result(&mut manifest, &again), Err(CommitRefused::NotLive(key(1, 1, 0))));
    assert_eq!(manifest.live().map(|meta| meta.key).collect::<Vec<_>>(), [key(1, 3, 0)]);
}

#[test]
fn commit_whose_sums_differ_is_refused() {
    let mut manifest = manifest();
    let mut commit = flush(1, 3, 15, 20);
    commit.add[0].total = 6;
    assert_eq!(result(&mut manifest, &commit), Err(CommitRefused::SumChanges { added: 6, accounted: 5 }));
    let mut commit = flush(1, 3, 15, 20);
    commit.progress.as_mut().unwrap().dead_letters = 6;
    assert!(matches!(result(&mut manifest, &commit), Err(CommitRefused::TooManyDeadLetters { .. })));
    commit.progress.as_mut().unwrap().dead_letters = 1;
    assert_eq!(result(&mut manifest, &commit), Err(CommitRefused::DeadLettersDiffer { named: 1, stored: 0 }));
}

/// A blob of dead letters.
fn letters(key: BlobKey, rows: u64) -> BlobMeta {
    BlobMeta { level: Level::DeadLetters, rows, ..blob(key, 0) }
}

/// Rows 15 to 20, of which three are dead letters.
fn flush_letters() -> Commit {
    let mut commit = flush(1, 3, 15, 20);
    commit.add = vec![blob(key(1, 3, 0), 2), letters(key(1, 3, 1), 3)];
    commit.progress = commit.progress.map(|progress| Progress { dead_letters: 3, total: 2, ..progress });
    commit
}

/// Replays one of the three letters, drops another, and keeps the third.
fn settle() -> Commit {
    let settled = Some(Settled { source: SOURCE, replayed: 1, dropped: 1, total: 7 });
    let add = vec![blob(key(1, 4, 0), 7), letters(key(1, 4, 1), 1)];
    Commit { progress: None, settled, add, remove: vec![key(1, 3, 1)], ..flush(1, 4, 0, 0) }
}

#[test]
fn dead_letters_are_settled_once_and_with_what_they_count() {
    let mut manifest = manifest();
    assert_eq!(result(&mut manifest, &flush_letters()), Ok(Committed::Now));
    let mut merge = settle();
    merge.settled = None;
    assert_eq!(result(&mut manifest, &merge), Err(CommitRefused::DeadLettersRemoved(key(1, 3, 1))));
    assert_eq!(result(&mut manifest, &settle()), Ok(Committed::Now));
    let partition = manifest.partition(P).unwrap();
    let SourceState { accepted, dead_letters, dropped, next_row, .. } = partition.source(SOURCE);
    assert_eq!((accepted, dead_letters, dropped, next_row), (18, 1, 1, 20));
    assert_eq!((partition.total, partition.live.total()), (24, 24));
    assert_eq!(result(&mut manifest, &settle()), Ok(Committed::Already));
    let again = Commit { seq: Seq(5), add: vec![blob(key(1, 5, 0), 7), letters(key(1, 5, 1), 1)], ..settle() };
    assert_eq!(result(&mut manifest, &again), Err(CommitRefused::NotLive(key(1, 3, 1))));
}

#[test]
fn commit_that_settles_other_letters_than_it_removes_is_refused() {
    let mut manifest = manifest();
    assert_eq!(result(&mut manifest, &flush_letters()), Ok(Committed::Now));
    let refused = |change: &dyn Fn(&mut Commit)| {
        let mut commit = settle();
        change(&mut commit);
        result(&mut manifest.clone(), &commit).unwrap_err()
    };
    let settled = |replayed, dropped, total| Some(Settled { source: SOURCE, replayed, dropped, total });
    let differ = |named| CommitRefused::DeadLettersDiffer { named, stored: 1 };
    assert_eq!(refused(&|commit| commit.settled = settled(2, 1, 7)), differ(0));
    assert_eq!(refused(&|commit| commit.settled = settled(1, 0, 7)), differ(2));
    let sum = CommitRefused::SumChanges { added: 7, accounted: 8 };
    assert_eq!(refused(&|commit| commit.settled = settled(1, 1, 8)), sum);
    let many = CommitRefused::SettledTooMany { source_id: SOURCE, settled: 4, known: 3 };
    assert_eq!(refused(&|commit| commit.settled = settled(4, 0, 7)), many);
    let others = CommitRefused::SettledWithOthers;
    assert_eq!(refused(&|commit| commit.remove = vec![key(1, 1, 0)]), others);
    assert_eq!(refused(&|commit| commit.remove.push(key(1, 1, 0))), others);
    assert_eq!(refused(&|commit| commit.progress = flush(1, 4, 20, 20).progress), others);
}

/// Days of the newest row of [`of_days`].
const NEWEST: u32 = 100;

/// A manifest with blobs of days 10, 10 to 12, and 100, of every level of rows, that keeps rows of 30 days.
fn of_days(retention: Retention) -> Manifest {
    let mut manifest = Manifest::new();
    manifest.apply(&claim(1, 1));
    manifest.apply(&Command::Retention(SetRetention { retention }));
    let hours = [[10, 10], [10, 12], [NEWEST, NEWEST]];
    for (seq, level) in (1..).zip(Level::OF_ROWS) {
        let mut commit = flush(1, seq, 3 * (seq - 1), 3 * seq);
        commit.add = (0..3)
            .zip(hours)
            .map(|(part, [first, last])| {
                let hours = HourRange { first: Hour(24 * first), last: Hour(24 * last + 23) };
                BlobMeta { level, hours, ..blob(key(1, seq, part), 1) }
            })
            .collect();
        assert_eq!(result(&mut manifest, &commit), Ok(Committed::Now));
    }
    manifest
}

fn expire(manifest: &mut Manifest, epoch: u64, today: u32) -> Result<Vec<u32>, ExpireRefused> {
    let seq = Seq(manifest.partition(P).unwrap().last_seq().0 + 1);
    expire_as(manifest, Expire { partition: P, epoch: Epoch(epoch), seq, today: Day(today) })
}

fn expire_as(manifest: &mut Manifest, expire: Expire) -> Result<Vec<u32>, ExpireRefused> {
    match manifest.apply(&Command::Expire(expire)) {
        Outcome::Expire { result, .. } => {
            result.map(|expired| expired.blobs.iter().map(|meta| meta.key.part).collect())
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn blobs_of_all_levels_expire_together_and_horizons_never_fall() {
    let mut manifest = of_days(Retention { late_days: 7, kept_days: 30 });
    let other = ExpireRefused::OtherEpoch { epoch: Epoch(2), known: Epoch(1) };
    assert_eq!(expire(&mut manifest, 2, 50), Err(other));
    // Day 10 is too old for a late row. A blob of it is kept, whether it has risen or not.
    assert_eq!(expire(&mut manifest, 1, 40), Ok(Vec::new()));
    assert_eq!(manifest.partition(P).unwrap().horizons, Horizons { late: Day(33), kept: Day(10) });
    assert_eq!(expire(&mut manifest, 1, 41), Ok(vec![0; 4]));
    assert_eq!(expire(&mut manifest, 1, 20), Ok(Vec::new()));
    let partition = manifest.partition(P).unwrap();
    assert_eq!(partition.horizons, Horizons { late: Day(34), kept: Day(11) });
    assert_eq!((partition.total, partition.expired_total, partition.live.total()), (8, 4, 8));
}

/// A retention that became shorter, or a merge, makes blobs expire that a copy of the command must leave to the next expiry.
#[test]
fn late_copy_of_an_expiry_removes_nothing() {
    let mut manifest = of_days(Retention { late_days: 7, kept_days: 30 });
    let seq = Seq(manifest.partition(P).unwrap().last_seq().0 + 1);
    let first = Expire { partition: P, epoch: Epoch(1), seq, today: Day(40) };
    assert_eq!(expire_as(&mut manifest, first), Ok(Vec::new()));
    manifest.apply(&Command::Retention(SetRetention { retention: Retention { late_days: 7, kept_days: 29 } }));
    let before = manifest.partition(P).unwrap().clone();
    assert_eq!(expire_as(&mut manifest, first), Err(ExpireRefused::OldSeq { seq, last: seq }));
    assert_eq!(manifest.partition(P), Some(&before));
    let next = Expire { seq: Seq(seq.0 + 1), ..first };
    assert_eq!(expire_as(&mut manifest, next), Ok(vec![0; 4]));
    assert_eq!(expire_as(&mut manifest, first), Err(ExpireRefused::OldSeq { seq, last: next.seq }));
}

#[test]
fn clock_that_jumps_raises_horizons_by_a_day_at_most() {
    let mut manifest = of_days(Retention { late_days: 7, kept_days: 95 });
    assert_eq!(expire(&mut manifest, 1, 30_000), Ok(Vec::new()));
    let horizons = Horizons { late: Day(NEWEST + 1 - 7), kept: Day(NEWEST + 1 - 95) };
    assert_eq!(manifest.partition(P).unwrap().horizons, horizons);
    let mut empty = Manifest::new();
    empty.apply(&claim(1, 1));
    empty.apply(&Command::Retention(SetRetention { retention: Retention { late_days: 7, kept_days: 95 } }));
    assert_eq!(expire(&mut empty, 1, 30_000), Ok(Vec::new()));
    assert_eq!(empty.partition(P).unwrap().horizons, Horizons::default());
}

#[test]
fn erasure_by_a_clock_that_jumps_ends_a_day_behind_the_rows() {
    let mut manifest = of_days(Retention::default());
    let mut before = |tenant: &str, before: u32| {
        let key = ErasureKey::of(tenant, None);
        manifest.apply(&Command::Erase(Erase { partition: P, key, before: Hour(before), asked_at_ms: 9 }));
        manifest.partition(P).unwrap().erasures.get(&key).unwrap().before.0
    };
    let last = 24 * (NEWEST + 2);
    assert_eq!([before("a", last - 1), before("b", last), before("c", last + 1)], [last - 1, last, last]);
    assert_eq!(before("d", Hour::MAX.0), last);
}

#[test]
fn erasure_is_done_once_earlier_blobs_are_written_again_without_its_rows() {
    let mut manifest = manifest();
    let key_of_a = ErasureKey::of("a", None);
    let erase = |before| Command::Erase(Erase { partition: P, key: key_of_a, before: Hour(before), asked_at_ms: 9 });
    assert_eq!(manifest.apply(&erase(2)), Outcome::Erase { partition: P, result: Ok(1) });
    let is_done = |manifest: &Manifest| manifest.partition(P).unwrap().erasures.get(&key_of_a).unwrap().is_done;
    // An owner that did not know it is refused.
    let unknowing = CommitRefused::OtherRevision { named: 0, known: 1 };
    assert_eq!(result(&mut manifest, &flush(1, 3, 15, 20)), Err(unknowing));
    assert_eq!(result(&mut manifest, &Commit { revision: 1, ..flush(1, 3, 15, 20) }), Ok(Committed::Now));
    // Blob by blob is written again: ten counts become four, and five stay.
    let rewrite = |seq, removed, total, erased| Commit {
        progress: None,
        revision: 1,
        erased,
        add: vec![blob(key(1, seq, 0), total)],
        remove: vec![removed],
        ..flush(1, seq, 0, 0)
    };
    let wrong = Err(CommitRefused::SumChanges { added: 11, accounted: 10 });
    assert_eq!(result(&mut manifest, &rewrite(4, key(1, 1, 0), 4, 7)), wrong);
    assert_eq!(result(&mut manifest, &rewrite(4, key(1, 1, 0), 4, 6)), Ok(Committed::Now));
    assert!(!is_done(&manifest));
    assert_eq!(result(&mut manifest, &rewrite(5, key(1, 2, 0), 5, 0)), Ok(Committed::Now));
    assert!(is_done(&manifest));
    let partition = manifest.partition(P).unwrap();
    assert_eq!((partition.total, partition.live.total(), partition.erased_total), (14, 14, 6));
    // Nothing of hour 0 is live, so an erasure up to there is done at once.
    let mut other = manifest.clone();
    other.apply(&Command::Erase(Erase {
        partition: P,
        key: ErasureKey::of("b", None),
        before: Hour(1),
        asked_at_ms: 9,
    }));
    assert_eq!(other.partition(P).unwrap().erasures.pending(), 0);
    let far = Hour(Hour::MAX.0 + 1);
    assert_eq!(manifest.apply(&erase(far.0)), Outcome::Erase { partition: P, result: Err(EraseRefused::Hour(far)) });
    let mut fresh = self::manifest();
    let nothing = Commit { erased: 1, ..flush(1, 3, 15, 20) };
    assert_eq!(result(&mut fresh, &nothing), Err(CommitRefused::NothingErased { erased: 1 }));
}

#[test]
fn snapshot_with_wrong_horizons_or_erasures_is_refused() {
    let restored_with = |change: &dyn Fn(&mut Partition)| {
        let mut manifest = of_days(Retention::default());
        change(manifest.partitions.get_mut(&P).unwrap());
        let rows: Vec<(Vec<u8>, Vec<u8>)> = manifest.rows().map(|row| (row.key, row.value.unwrap())).collect();
        restored(rows.iter().map(|(key, value)| (key, value))).map(|_| ())
    };
    let erased = |before, count| {
        let erasure = Erasure { before: Hour(before), asked_at_ms: 0, seq: Seq(1), is_done: false };
        let known = [(ErasureKey::of("a", None), erasure)].into();
        move |partition: &mut Partition| partition.erasures = Erasures::restored(Clone::clone(&known), count).unwrap()
    };
    assert_eq!(restored_with(&|_| ()), Ok(()));
    assert_eq!(restored_with(&erased(Hour::MAX.0, 1)), Ok(()));
    assert_eq!(restored_with(&erased(Hour::MAX.0 + 1, 1)), Err(SnapshotError::ErasureHour(Hour::MAX.0 + 1)));
    let differ = SnapshotError::ErasureCount { partition: 0, known: 1, count: 0 };
    assert_eq!(restored_with(&erased(1, 0)), Err(differ));
    let horizons = Horizons { late: Day(1), kept: Day(2) };
    assert_eq!(restored_with(&move |partition| partition.horizons = horizons), Err(SnapshotError::Horizons(0)));
}

#[test]
fn names_of_another_commit_are_refused() {
    let mut manifest = manifest();
    for foreign in [key(1, 2, 0), key(2, 3, 0), BlobKey { partition: PartitionId(1), ..key(1, 3, 0) }] {
        let mut commit = flush(1, 3, 15, 20);
        commit.add[0].key = foreign;
        assert_eq!(result(&mut manifest, &commit), Err(CommitRefused::ForeignName(foreign)));
    }
}

fn change_types(manifest: &mut Manifest, change: TypeChange) -> Result<bool, SchemaRefused> {
    match manifest.apply(&Command::Types(SetTypes { set: TypesSet::Change(change), asked_at_ms: 7, log_row: 0 })) {
        Outcome::Types { result } => result,
        other => panic!("{other:?}"),
    }
}

#[test]
fn commit_that_did_not_know_a_type_change_is_refused() {
    let mut manifest = manifest();
    let rename = TypeChange::Rename { from: "click".to_owned(), to: "press".to_owned(), merges: false };
    assert_eq!(change_types(&mut manifest, rename.clone()), Ok(true));
    let unknowing = CommitRefused::OtherRevision { named: 0, known: 1 };
    assert_eq!(result(&mut manifest, &flush(1, 3, 15, 20)), Err(unknowing));
    assert_eq!(result(&mut manifest, &Commit { revision: 1, ..flush(1, 3, 15, 20) }), Ok(Committed::Now));
    // The change applies to blobs up to the commit before it, and not to later blobs.
    let types = manifest.types_of(P);
    assert_eq!((types.since(Seq(2)).name("click"), types.since(Seq(3)).name("click")), (Some("press"), Some("click")));
    // Counts leave a blob only if a type was deleted.
    let less = Commit { revision: 1, erased: 1, ..flush(1, 4, 20, 25) };
    assert_eq!(result(&mut manifest, &less), Err(CommitRefused::NothingErased { erased: 1 }));
    assert_eq!((change_types(&mut manifest, rename), manifest.partition(P).unwrap().revision()), (Ok(false), 1));
}

#[test]
fn pause_of_a_type_goes_with_its_name_and_ends_with_it() {
    let mut manifest = manifest();
    let pause = |name: &str, at_ms| {
        Command::Pause(SetPause { target: PauseTarget::EventType(name.to_owned()), paused_at_ms: Some(at_ms) })
    };
    manifest.apply(&pause("click", 5));
    let rename = TypeChange::Rename { from: "click".to_owned(), to: "press".to_owned(), merges: false };
    change_types(&mut manifest, rename).unwrap();
    assert_eq!(manifest.pauses().types().collect::<Vec<_>>(), [("press", 5)]);
    assert_eq!(manifest.apply(&pause("click", 9)), Outcome::Pause { result: Ok(false) }, "it is paused already");
    // One type of two is paused if either was.
    let merge = TypeChange::Rename { from: "press".to_owned(), to: "impression".to_owned(), merges: true };
    change_types(&mut manifest, merge).unwrap();
    assert_eq!(manifest.pauses().types().collect::<Vec<_>>(), [("impression", 5)]);
    change_types(&mut manifest, TypeChange::Delete { name: "impression".to_owned() }).unwrap();
    assert!(manifest.pauses().is_empty());
}

#[test]
fn snapshot_whose_partitions_lack_type_changes_is_refused() {
    let mut manifest = manifest();
    change_types(&mut manifest, TypeChange::Delete { name: "click".to_owned() }).unwrap();
    manifest.partitions.get_mut(&P).unwrap().type_changes.clear();
    let rows: Vec<(Vec<u8>, Vec<u8>)> = manifest.rows().map(|row| (row.key, row.value.unwrap())).collect();
    let refused = restored(rows.iter().map(|(key, value)| (key, value)));
    assert_eq!(refused, Err(SnapshotError::TypeChanges { partition: P.0, found: 0, known: 1 }));
}

fn set_layout(manifest: &mut Manifest, version: u64, layout: Layout) -> Result<u64, LayoutRefused> {
    match manifest.apply(&Command::Layout(SetLayout { version, layout })) {
        Outcome::Layout { result } => result,
        other => panic!("{other:?}"),
    }
}

#[test]
fn layout_is_free_without_blobs_and_only_grows_with_them() {
    let mut empty = Manifest::new();
    let first = Layout { period: PeriodUnit::Week, virtual_partitions: 4, ..Layout::default() };
    assert_eq!(set_layout(&mut empty, 0, first), Ok(1));
    let refused = LayoutRefused::OtherVersion { version: 0, known: 1 };
    assert_eq!(set_layout(&mut empty, 0, Layout::default()), Err(refused));
    assert_eq!(set_layout(&mut empty, 1, Layout::default()), Ok(2));

    let mut manifest = manifest();
    let weeks = Layout { period: PeriodUnit::Week, ..Layout::default() };
    assert_eq!(set_layout(&mut manifest, 0, weeks), Err(LayoutRefused::Incompatible));
    let mut more = Layout::default();
    more.buckets.push(BucketsFrom { from: Day(20_000), buckets: 5 });
    more.large.push(LargeTenant { tenant: TenantHash(1), from: Day(1), parts: 2 });
    assert_eq!(set_layout(&mut manifest, 0, more.clone()), Ok(1));
    assert_eq!(set_layout(&mut manifest, 1, Layout::default()), Err(LayoutRefused::Incompatible));
    let bad = Layout { buckets: Vec::new(), ..more };
    assert_eq!(set_layout(&mut manifest, 1, bad), Err(LayoutRefused::Invalid(LayoutError::BucketDays)));
}

#[test]
fn rows_of_a_snapshot_that_do_not_fit_together_are_refused() {
    let rows: Vec<(Vec<u8>, Vec<u8>)> = manifest().rows().map(|row| (row.key, row.value.unwrap())).collect();
    assert_eq!(rows.len(), 3, "a head, a partition, and a chunk");
    let without = |left_out: usize| {
        let kept = rows.iter().enumerate().filter(|(at, _)| *at != left_out);
        restored(kept.map(|(_, (key, value))| (key, value)))
    };
    assert_eq!(without(9), Ok(manifest()));
    assert_eq!(without(0), Err(SnapshotError::Partitions { found: 1, expected: 0 }));
    assert_eq!(without(1), Err(SnapshotError::Partitions { found: 0, expected: 1 }));
    assert_eq!(without(2), Err(SnapshotError::Blobs { partition: 0, found: 0, expected: 2 }));
    let mut restore = Restore::new();
    assert!(matches!(restore.add(b"x", b""), Err(SnapshotError::Key(_))));
    assert!(matches!(restore.add(b"c\0\0\0\0\0\0\0\0", b""), Err(SnapshotError::Decode(DecodeError::Empty))));
    assert!(matches!(restore.add(b"h", &[9]), Err(SnapshotError::Decode(DecodeError::Version { found: 9, .. }))));
}

/// Replaces the rows of day 0 of both commits, which count `before`, by rows that count `after`.
fn replace(seq: u64, before: u64, after: u64) -> Replace {
    Replace {
        partition: P,
        epoch: Epoch(1),
        seq: Seq(seq),
        days: Days { first: Day(0), last: Day(0) },
        add: vec![blob(key(1, seq, 0), after)],
        remove: vec![key(1, 1, 0), key(1, 2, 0)],
        revision: 0,
        erased: 0,
        before,
        after,
        readings: Vec::new(),
    }
}

fn replaced(manifest: &mut Manifest, replace: &Replace) -> Result<Committed, ReplaceRefused> {
    match manifest.apply(&Command::Replace(replace.clone())) {
        Outcome::Replace { result, .. } => result,
        other => panic!("{other:?}"),
    }
}

#[test]
fn replacement_changes_the_sum_once_and_again_says_so() {
    let mut manifest = manifest();
    let reading = SourceReading { source: SOURCE, reading: ReadingId(6) };
    let replace = Replace { readings: vec![reading], ..replace(3, 15, 40) };
    assert_eq!(replaced(&mut manifest, &replace), Ok(Committed::Now));
    let behind = manifest.partition(P).cloned().unwrap();
    assert_eq!((behind.total, behind.live.total(), behind.live.len()), (40, 40, 1));
    let SourceState { next_row, reading, .. } = behind.source(SOURCE);
    assert_eq!((next_row, reading), (15, ReadingId(6)), "the position stays");
    assert_eq!(replaced(&mut manifest, &replace), Ok(Committed::Already));
    assert_eq!(manifest.partition(P), Some(&behind));
    let later = Replace { remove: vec![key(1, 3, 0)], ..self::replace(4, 40, 40) };
    assert_eq!(replaced(&mut manifest, &later), Ok(Committed::Now));
}

/// A row that came late, or a merge, has made another blob live: what was recounted is not what counts.
#[test]
fn replacement_of_other_blobs_than_are_live_is_refused() {
    let mut late = manifest();
    assert_eq!(result(&mut late, &flush(1, 3, 15, 20)), Ok(Committed::Now));
    let before = late.clone();
    assert_eq!(replaced(&mut late, &replace(4, 15, 15)), Err(ReplaceRefused::NotRecounted(key(1, 3, 0))));
    let mut merged = manifest();
    let merge = Commit { progress: None, add: vec![blob(key(1, 3, 0), 15)], ..flush(1, 3, 0, 0) };
    let merge = Commit { remove: vec![key(1, 1, 0), key(1, 2, 0)], ..merge };
    assert_eq!(result(&mut merged, &merge), Ok(Committed::Now));
    let refused = CommitRefused::NotLive(key(1, 1, 0)).into();
    assert_eq!(replaced(&mut merged, &replace(4, 15, 15)), Err(refused));
    assert_eq!(late.partitions, before.partitions);
    let twice = Replace { remove: vec![key(1, 1, 0); 2], ..replace(4, 15, 15) };
    assert!(matches!(replaced(&mut manifest(), &twice), Err(ReplaceRefused::Commit(CommitRefused::NotLive(_)))));
}

#[test]
fn replacement_with_other_sums_days_or_owner_is_refused() {
    use ReplaceRefused::{Backwards, Commit as OfCommit, DeadLetters, NotKept, OtherDays, SumChanges, UnknownSource};
    let first = Day(2);
    let last = Day(0);
    let letters = letters(key(1, 3, 1), 1);
    let other = SourceReading { source: SourceId([9; 32]), reading: READING };
    let day_2 = Days { first, last: first };
    let cases = [
        (Replace { after: 41, ..replace(3, 15, 40) }, SumChanges { added: 55, accounted: 56 }),
        (Replace { days: Days { first, last }, ..replace(3, 15, 40) }, Backwards { first, last }),
        (Replace { days: day_2, ..replace(3, 15, 40) }, OtherDays(key(1, 1, 0))),
        (Replace { add: vec![letters], ..replace(3, 15, 0) }, DeadLetters(key(1, 3, 1))),
        (Replace { readings: vec![other], ..replace(3, 15, 40) }, UnknownSource(SourceId([9; 32]))),
        (Replace { erased: 1, ..replace(3, 14, 40) }, OfCommit(CommitRefused::NothingErased { erased: 1 })),
        (replace(1, 15, 40), OfCommit(CommitRefused::OldSeq { seq: Seq(1), last: Seq(2) })),
        (Replace { revision: 1, ..replace(3, 15, 40) }, OfCommit(CommitRefused::OtherRevision { named: 1, known: 0 })),
        (
            Replace { add: vec![blob(key(1, 9, 0), 40)], ..replace(3, 15, 40) },
            OfCommit(CommitRefused::ForeignName(key(1, 9, 0))),
        ),
    ];
    for (replace, refused) in cases {
        assert_eq!(replaced(&mut manifest(), &replace), Err(refused));
    }
    let mut deposed = manifest();
    deposed.apply(&claim(2, 2));
    let refused = CommitRefused::OtherEpoch { epoch: Epoch(1), known: Epoch(2) };
    assert_eq!(replaced(&mut deposed, &replace(3, 15, 40)), Err(refused.into()));
    let mut expired = manifest();
    expired.partitions.get_mut(&P).unwrap().horizons.kept = Day(1);
    let refused = NotKept { first: Day(0), kept: Day(1) };
    assert_eq!(replaced(&mut expired, &replace(3, 15, 40)), Err(refused));
}

fn command() -> impl Strategy<Value = Command> {
    let numbers = (0..4_u64, 0..6_u64, 0..8_u64, 0..5_u64);
    let removed = proptest::collection::vec((0..4_u64, 0..6_u64, 0..2_u32), 0..3);
    (0..15_u8, numbers, removed).prop_map(|(kind, (epoch, seq, from, rows), removed)| match kind {
        0 => claim(epoch, seq),
        6 => {
            let buckets = vec![BucketsFrom { from: Day(0), buckets: 1 + seq as u32 % 2 }];
            let layout = Layout { buckets, ..Layout::default() };
            Command::Layout(SetLayout { version: epoch % 2, layout })
        }
        12 => {
            let name = |number: u64| ["impression", "click", "view"][number as usize % 3].to_owned();
            let change = match rows {
                0 | 1 => TypeChange::Rename { from: name(seq), to: name(from), merges: rows == 0 },
                2 => TypeChange::Delete { name: name(seq) },
                _ => TypeChange::Add { name: name(seq) },
            };
            Command::Types(SetTypes { set: TypesSet::Change(change), asked_at_ms: epoch, log_row: from })
        }
        11 => Command::TestTenant(SetTestTenant { tenant: TenantHash(seq), is_test: from > 3 }),
        10 => Command::Erase(Erase {
            partition: P,
            key: ErasureKey::of(&format!("t{seq}"), None),
            before: Hour(from as u32),
            asked_at_ms: rows,
        }),
        8 => Command::Retention(SetRetention {
            retention: Retention { late_days: seq as u32, kept_days: 3 * (rows as u32 % 2) },
        }),
        9 if rows % 2 == 0 => Command::ExpireUnnumbered(ExpireUnnumbered {
            partition: P,
            epoch: Epoch(epoch),
            today: Day(10 * seq as u32),
        }),
        9 => Command::Expire(Expire { partition: P, epoch: Epoch(epoch), seq: Seq(seq), today: Day(10 * seq as u32) }),
        7 => {
            let target = match seq % 2 {
                0 => PauseTarget::Partition(PartitionId(epoch as u32)),
                _ => PauseTarget::EventType("click".to_owned()),
            };
            Command::Pause(SetPause { target, paused_at_ms: (from > 3).then_some(rows) })
        }
        1 => Command::Fence(Fence { partition: P, epoch: Epoch(epoch) }),
        14 => {
            let remove: Vec<BlobKey> = removed.into_iter().map(|(epoch, seq, part)| key(epoch, seq, part)).collect();
            let add = vec![blob(key(epoch, seq, 0), rows + from)];
            Command::Replace(Replace { epoch: Epoch(epoch), add, remove, ..replace(seq, rows, from) })
        }
        2 => {
            let remove = removed.into_iter().map(|(epoch, seq, part)| key(epoch, seq, part)).collect();
            let add = vec![blob(key(epoch, seq, 0), from), blob(key(epoch, seq, 1), rows)];
            Command::Commit(Commit { progress: None, add, remove, ..flush(epoch, seq, 0, 0) })
        }
        _ => Command::Commit(Commit { revision: seq / 3, ..flush(epoch, seq, from, from + rows) }),
    })
}

proptest! {
    #[test]
    fn any_commands_keep_the_laws_and_a_snapshot_is_the_state(
        commands in proptest::collection::vec(command(), 0..60),
    ) {
        let mut manifest = Manifest::new();
        let mut rows = 0_u64;
        let mut recounted = 0_i128;
        let mut store: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        for (number, command) in commands.iter().enumerate() {
            let before = manifest.clone();
            let outcome = manifest.apply(command);
            let is_refused = matches!(
                outcome,
                Outcome::Claim { result: Err(_), .. }
                    | Outcome::Fence { result: Err(_), .. }
                    | Outcome::Commit { result: Err(_) | Ok(Committed::Already), .. }
                    | Outcome::Layout { result: Err(_) }
                    | Outcome::Pause { result: Err(_) | Ok(false) }
                    | Outcome::Retention { result: Err(_) }
                    | Outcome::Expire { result: Err(_), .. }
                    | Outcome::Erase { result: Err(_), .. }
                    | Outcome::TestTenant { result: Err(_) | Ok(false) }
                    | Outcome::Types { result: Err(_) | Ok(false) }
                    | Outcome::Replace { result: Err(_) | Ok(Committed::Already), .. }
            );
            if is_refused {
                prop_assert_eq!(&manifest.partitions, &before.partitions);
                prop_assert_eq!(&manifest.layout, &before.layout);
                prop_assert_eq!(&manifest.pauses, &before.pauses);
                prop_assert_eq!(&manifest.retention, &before.retention);
                prop_assert_eq!(&manifest.test_tenants, &before.test_tenants);
                prop_assert_eq!(&manifest.schema, &before.schema);
            }
            if let (Command::Commit(commit), Outcome::Commit { result: Ok(Committed::Now), .. }) = (command, &outcome) {
                rows += commit.progress.map_or(0, |progress| progress.to - progress.from);
            }
            if let (Command::Replace(replace), Outcome::Replace { result: Ok(Committed::Now), .. }) = (command, &outcome) {
                recounted += i128::from(replace.after) - i128::from(replace.before);
            }
            let expired = manifest.partition(P).map_or(0, |partition| partition.expired_total) as u64;
            let live: u64 = expired + manifest.live().map(|meta| meta.total).sum::<u64>();
            let position = manifest.partition(P).map_or(0, |partition| partition.source(SOURCE).next_row);
            prop_assert_eq!((i128::from(live), position), (i128::from(rows) + recounted, rows));
            let all: Vec<(Vec<u8>, Vec<u8>)> = manifest.rows().map(|row| (row.key, row.value.unwrap())).collect();
            let back = restored(all.iter().map(|(key, value)| (key, value)));
            prop_assert_eq!(back.as_ref(), Ok(&manifest));
            if number % 3 == 0 {
                for Row { key, value } in manifest.take_changes() {
                    match value {
                        Some(value) => store.insert(key, value),
                        None => store.remove(&key),
                    };
                }
                let back = restored(store.iter());
                prop_assert_eq!(back.as_ref(), Ok(&manifest));
            }
            let encoded = command.encode().unwrap();
            let decoded = Command::decode(&encoded);
            prop_assert_eq!(decoded.as_ref(), Ok(command));
        }
    }

    #[test]
    fn arbitrary_bytes_are_refused_or_understood(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        for version in [0, 1, 2, 3, 4, 5, 6] {
            let bytes = [&[version][..], &bytes].concat();
            if let Ok(command) = Command::decode(&bytes) {
                Manifest::new().apply(&command);
                let again = Command::decode(&command.encode().unwrap());
                prop_assert_eq!(again, Ok(command));
            }
            let _ = Manifest::from_version_1(&bytes);
            for key in [&b"h"[..], b"p\0\0\0\0", b"c\0\0\0\0\0\0\0\0", &bytes] {
                let mut restore = Restore::new();
                let _ = restore.add(key, &bytes);
                let _ = restore.finish();
            }
        }
    }
}
