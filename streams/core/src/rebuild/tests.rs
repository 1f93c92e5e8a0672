//! A blob is rebuilt as it was, or not at all.

use super::*;
use crate::blob::{Epoch, PartitionId, Seq, StoredBlob};
use crate::erasure::{Erasure, ErasureKey};
use crate::layout::BucketsFrom;
use crate::manifest::{Claim, Command, Generation, Manifest, MemberId, Outcome, SetTypes, TypesSet};
use crate::schema::{Position, TypeChange};
use crate::scope::{Scope, Slice};
use crate::source::ReadingId;
use crate::time::{Day, Hour, HourRange};
use crate::values::Values;
use std::sync::Arc;

const SOURCE: SourceId = SourceId([7; 32]);

fn key(seq: u64, part: u32) -> BlobKey {
    BlobKey { partition: PartitionId(0), epoch: Epoch(1), seq: Seq(seq), part }
}

fn rows(counts: &[(&str, u32, u32)]) -> Rollups {
    let mut rows = Rollups::new();
    for &(tenant, hour, count) in counts {
        let quarters = [count, 0, 0, 0];
        let values = Values::NONE;
        let row = RollupRow { tenant, values, listing: "x", hour: Hour(hour), event_type: "click", quarters };
        rows.push(row).unwrap();
    }
    rows.combine();
    rows
}

fn meta(key: BlobKey, level: Level, scope: Scope, rows: &Rollups) -> BlobMeta {
    let hours = rows.hours().unwrap_or(HourRange::of(Hour(0)));
    let stored = StoredBlob { bytes: 1, checksum: 1 };
    BlobMeta { key, level, scope, hours, rows: rows.len() as u64, total: rows.total(), stored }
}

/// What is left: blobs, and the rows of the source by their ranges.
#[derive(Default)]
struct Left {
    blobs: BTreeMap<BlobKey, Rollups>,
    letters: BTreeMap<BlobKey, Vec<DeadLetter>>,
    source: BTreeMap<SourceRows, Counted>,
}

impl Inputs for Left {
    fn rows(&mut self, key: &BlobKey) -> Option<Rollups> {
        self.blobs.get(key).cloned()
    }

    fn letters(&mut self, key: &BlobKey) -> Option<Vec<DeadLetter>> {
        self.letters.get(key).cloned()
    }

    fn count(&mut self, rows: &SourceRows, _schema: &Schema, _refused: Option<&BTreeSet<u64>>) -> Option<Counted> {
        self.source.get(rows).cloned()
    }
}

fn flush(seq: u64, from: u64, to: u64, rows: &Rollups) -> Commit {
    let progress = Progress {
        source: SOURCE,
        reading: ReadingId(1),
        from,
        to,
        dead_letters: 0,
        total: rows.total(),
        is_end: false,
    };
    let add = vec![meta(key(seq, 0), Level::Delta, Scope::ALL, rows)];
    Commit { seq: Seq(seq), progress: Some(progress), add, ..Commit::default() }
}

/// Two flushes, which one merge cuts into two buckets.
struct History {
    lineages: Lineages,
    layout: Layout,
    left: Left,
    days: [BlobMeta; 2],
    cut: [Rollups; 2],
    types: TypesOf,
}

fn history() -> History {
    let buckets = vec![BucketsFrom { from: Day(0), buckets: 2 }];
    let layout = Layout { buckets, ..Layout::default() };
    let names: Vec<String> = (0..8).map(|number| format!("t{number}")).collect();
    let of = |remainder: u32| {
        let slice = Slice { modulus: 2, remainder };
        names.iter().find(|name| Slice::of(TenantHash::of(name), 2) == slice).unwrap().as_str()
    };
    let first = rows(&[(of(0), 5, 1), (of(1), 6, 2)]);
    let second = rows(&[(of(0), 5, 4), (of(1), 9, 8)]);
    let cut = [rows(&[(of(0), 5, 5)]), rows(&[(of(1), 6, 2), (of(1), 9, 8)])];
    let scope = |remainder| Scope::Slice(Slice { modulus: 2, remainder });
    let days = [0, 1].map(|at| meta(key(3, at), Level::Day, scope(at), &cut[at as usize]));
    let mut lineages = Lineages::default();
    let flushes = [flush(1, 0, 10, &first), flush(2, 10, 30, &second)];
    flushes.iter().for_each(|commit| lineages.add(commit));
    let remove = vec![key(1, 0), key(2, 0)];
    lineages.add(&Commit { seq: Seq(3), add: days.to_vec(), remove, ..Commit::default() });
    let mut left = Left::default();
    left.blobs.insert(key(1, 0), first.clone());
    left.blobs.insert(key(2, 0), second.clone());
    for (from, to, rows) in [(0, 10, first), (10, 30, second)] {
        left.source.insert(SourceRows { source: SOURCE, from, to }, Counted { rows, letters: Vec::new() });
    }
    History { lineages, layout, left, days, cut, types: TypesOf::default() }
}

impl History {
    fn rebuilt(&mut self, at: usize) -> Result<Rollups, CannotRebuild> {
        let tests = BTreeSet::new();
        let partition = Partition::default();
        Rebuilder::new(&self.layout, &tests, &partition, self.types.clone(), &self.lineages, &mut self.left)
            .rows(&self.days[at])
    }
}

#[test]
fn merged_blob_is_rebuilt_from_files_or_the_source() {
    let mut history = history();
    let expected = history.cut.clone();
    // Both inputs are there; one is; none is.
    for lost in [None, Some(key(1, 0)), Some(key(2, 0))] {
        lost.map(|key| history.left.blobs.remove(&key));
        assert_eq!(history.rebuilt(0).as_ref(), Ok(&expected[0]));
        assert_eq!(history.rebuilt(1).as_ref(), Ok(&expected[1]));
    }
}

#[test]
fn inputs_are_read_under_the_names_that_the_merge_knew() {
    let mut history = history();
    let expected = history.cut[0].clone();
    let mut manifest = Manifest::new();
    let click = || "click".to_owned();
    let claim =
        Claim { partition: PartitionId(0), generation: Generation(1), member: MemberId(1), types: Some(vec![click()]) };
    manifest.apply(&Command::Claim(claim));
    let mut change = |change| {
        let set = SetTypes { set: TypesSet::Change(change), asked_at_ms: 1, log_row: 0 };
        assert_eq!(manifest.apply(&Command::Types(set)), Outcome::Types { result: Ok(true) });
        Arc::clone(manifest.schema())
    };
    // The merge came after the rename, so its rows have the new name.
    let schema = change(TypeChange::Rename { from: click(), to: "seen".to_owned(), merges: false });
    let position = |epoch, before| Position { epoch: Epoch(epoch), before: Seq(before) };
    history.types = TypesOf { schema, positions: vec![position(1, 2)] };
    let named: Vec<_> = expected.iter().map(|row| RollupRow { event_type: "seen", ..row }).collect();
    assert_eq!(history.rebuilt(0).unwrap().iter().collect::<Vec<_>>(), named);
    history.types.positions = vec![position(1, 3)];
    assert_eq!(history.rebuilt(0), Ok(expected.clone()));
    // The second flush may have taken rows before the name was reused. Its file tells their type: it has rows of two names, and the
    // blob has one of them. Its source does not tell the type.
    let schema = change(TypeChange::Add { name: click() });
    history.types = TypesOf { schema, positions: vec![position(1, 1), position(1, 1)] };
    assert!(matches!(history.rebuilt(0), Err(CannotRebuild::Differs { found, .. }) if found.rows == 2));
    history.left.blobs.remove(&key(2, 0));
    assert_eq!(history.rebuilt(0), Err(CannotRebuild::TypesChanged(key(2, 0))));
    // An owner that claimed later knew the names before it took a row.
    history.types.positions = vec![position(0, 1), position(0, 1)];
    assert!(matches!(history.rebuilt(0), Err(CannotRebuild::Differs { found, .. }) if found.rows == 2));
}

#[test]
fn blob_without_an_input_is_not_rebuilt() {
    let mut history = history();
    history.left.blobs.remove(&key(2, 0));
    let rows = SourceRows { source: SOURCE, from: 10, to: 30 };
    history.left.source.remove(&rows);
    assert_eq!(history.rebuilt(0), Err(CannotRebuild::NoSource { rows }));
    history.lineages = Lineages::default();
    assert_eq!(history.rebuilt(0), Err(CannotRebuild::UnknownInputs(key(3, 0))));
}

#[test]
fn inputs_that_give_something_else_are_refused() {
    let mut history = history();
    history.left.blobs.insert(key(1, 0), rows(&[("t0", 5, 70)]));
    let refused = history.rebuilt(0);
    assert!(matches!(refused, Err(CannotRebuild::Differs { key: differs, .. }) if differs == key(3, 0)), "{refused:?}");
}

#[test]
fn blob_is_rebuilt_by_its_scope_though_the_layout_has_grown() {
    let mut history = history();
    let expected = history.cut[1].clone();
    history.layout.buckets = vec![BucketsFrom { from: Day(0), buckets: 4 }];
    assert_eq!(history.rebuilt(1), Ok(expected));
}

/// Other event types refuse as many rows, and others: only the rows beside the letters tell.
#[test]
fn letters_of_other_event_types_are_refused() {
    let delta = rows(&[("t0", 5, 3)]);
    let letters = BlobMeta { rows: 1, ..meta(key(1, 1), Level::DeadLetters, Scope::ALL, &Rollups::new()) };
    let mut commit = flush(1, 0, 2, &delta);
    commit.add.push(letters);
    let mut lineages = Lineages::default();
    lineages.add(&commit);
    let letter = |row| DeadLetter { source: SOURCE, row, reason: "r".to_owned(), text: "t".to_owned() };
    let of_row = |row, rows: &Rollups| Counted { rows: rows.clone(), letters: vec![letter(row)] };
    let rebuilt = |delta_file: Option<&Rollups>, counted: Counted| {
        let mut left = Left::default();
        left.blobs.extend(delta_file.map(|rows| (key(1, 0), rows.clone())));
        left.source.insert(SourceRows { source: SOURCE, from: 0, to: 2 }, counted);
        let layout = Layout::default();
        let tests = BTreeSet::new();
        let partition = Partition::default();
        Rebuilder::new(&layout, &tests, &partition, TypesOf::default(), &lineages, &mut left).letters(&letters)
    };
    for file in [None, Some(&delta)] {
        assert_eq!(rebuilt(file, of_row(1, &delta)), Ok(vec![letter(1)]));
        let refused = rebuilt(file, of_row(0, &rows(&[("t0", 5, 7)])));
        assert!(matches!(refused, Err(CannotRebuild::OtherRefused { .. })), "{refused:?}");
        let refused = rebuilt(file, Counted { rows: delta.clone(), letters: vec![letter(0), letter(1)] });
        assert!(matches!(refused, Err(CannotRebuild::OtherRefused { .. })), "{refused:?}");
    }
    // The other row counts as much.
    let refused = rebuilt(Some(&delta), of_row(0, &rows(&[("t1", 5, 3)])));
    assert!(matches!(refused, Err(CannotRebuild::OtherRefused { .. })), "{refused:?}");
}

#[test]
fn letters_of_a_blob_that_was_rebuilt_are_rebuilt_again() {
    let letter = |row, tenant: &str| DeadLetter {
        source: SOURCE,
        row,
        reason: "r".to_owned(),
        text: format!(r#"{{"tenant":"{tenant}"}}"#),
    };
    let all = vec![letter(0, "a"), letter(1, "b"), letter(2, "b")];
    let of_letters =
        |seq, count| BlobMeta { rows: count, ..meta(key(seq, 0), Level::DeadLetters, Scope::ALL, &rows(&[])) };
    let replaced =
        |seq, by: BlobMeta| Commit { seq: by.key.seq, add: vec![by], remove: vec![key(seq, 0)], ..Commit::default() };
    let mut flushed = flush(1, 0, 3, &rows(&[]));
    flushed.add = vec![of_letters(1, 3)];
    // Rebuilt twice, then written again without the letter of a, then one of the others was dropped.
    let blobs = [of_letters(2, 3), of_letters(3, 3), of_letters(4, 2), of_letters(5, 1)];
    let mut lineages = Lineages::default();
    lineages.add(&flushed);
    (1..).zip(blobs).for_each(|(seq, by)| lineages.add(&replaced(seq, by)));
    let mut partition = Partition::default();
    let erasure = Erasure { before: Hour(9), asked_at_ms: 1, seq: Seq(3), is_done: true };
    partition.erasures.add(ErasureKey::of("a", None), erasure).unwrap();
    let rebuilt = |of: BlobMeta, files: &[(u64, &[DeadLetter])], has_source: bool| {
        let mut left = Left::default();
        left.letters.extend(files.iter().map(|(seq, letters)| (key(*seq, 0), letters.to_vec())));
        let counted = Counted { rows: rows(&[]), letters: all.clone() };
        left.source.extend(has_source.then_some((SourceRows { source: SOURCE, from: 0, to: 3 }, counted)));
        let layout = Layout::default();
        let tests = BTreeSet::new();
        Rebuilder::new(&layout, &tests, &partition, TypesOf::default(), &lineages, &mut left).letters(&of)
    };
    assert_eq!(rebuilt(blobs[0], &[], true), Ok(all.clone()));
    assert_eq!(rebuilt(blobs[1], &[], true), Ok(all.clone()));
    assert_eq!(rebuilt(blobs[1], &[(2, &all)], false), Ok(all.clone()));
    assert_eq!(rebuilt(blobs[2], &[], true), Ok(all[1..].to_vec()));
    assert_eq!(rebuilt(blobs[3], &[], true), Err(CannotRebuild::Settled(key(5, 0))));
    assert!(matches!(rebuilt(blobs[1], &[], false), Err(CannotRebuild::NoSource { .. })));
}

/// The commit may have refused the erased row, and then its value took no place.
#[test]
fn values_beside_erased_ones_are_not_guessed() {
    let collected = |of: &[(&str, &str)]| {
        let mut rows = Rollups::new();
        for &(listing, value) in of {
            let values = Values::parse(value).unwrap();
            let hour = Hour(5);
            let quarters = [1, 0, 0, 0];
            rows.push(RollupRow { tenant: "t0", values, listing, hour, event_type: "click", quarters }).unwrap();
        }
        rows.combine();
        rows
    };
    let mut partition = Partition::default();
    let erasure = Erasure { before: Hour(9), asked_at_ms: 1, seq: Seq(0), is_done: true };
    partition.erasures.add(ErasureKey::of("t0", Some("y")), erasure).unwrap();
    let rebuilt = |kept: &str| {
        let delta = collected(&[("x", kept)]);
        let commit = flush(1, 0, 2, &delta);
        let mut lineages = Lineages::default();
        lineages.add(&commit);
        let mut left = Left::default();
        let counted = Counted { rows: collected(&[("x", kept), ("y", "\u{1}de")]), letters: Vec::new() };
        left.source.insert(SourceRows { source: SOURCE, from: 0, to: 2 }, counted);
        let layout = Layout::default();
        let tests = BTreeSet::new();
        Rebuilder::new(&layout, &tests, &partition, TypesOf::default(), &lineages, &mut left).rows(&commit.add[0])
    };
    assert_eq!(rebuilt("\u{1}in"), Ok(collected(&[("x", "\u{1}in")])));
    let refused = rebuilt("\u{1}other");
    assert!(matches!(refused, Err(CannotRebuild::ValuesErased { .. })), "{refused:?}");
}
