//! The files of the archive: merged, cleaned, removed, and after kills.

use super::{Archive, NEW, RAW_FOLDER, Turn, read_raw};
use crate::messages::SOURCE;
use std::fs;
use std::path::{Path, PathBuf};
use tidemark_streams_core::blob::Seq;
use tidemark_streams_core::erasure::{Erasure, ErasureKey, Erasures};
use tidemark_streams_core::owner::Record;
use tidemark_streams_core::rebuild::SourceRows;
use tidemark_streams_core::time::Hour;
use tidemark_streams_intake::archive::file::{FileName, FileWriter};
use tidemark_streams_intake::entry::{Batch, Event, Listings, ValidEvent};

const HOUR_MS: u64 = 3_600_000;
const DIRECTORY: &str = "here";

/// An entry with a row of each tenant.
fn entry(first_row: u64, tenants: &[&'static str], at_ms: u64) -> Vec<u8> {
    let event = |tenant: &&'static str| {
        Event::Valid(ValidEvent {
            tenant: (*tenant).into(),
            listings: Listings::One("x".into()),
            at_s: 7_200,
            event_type: "impression".into(),
            count: 1,
            id: None,
            values: "".into(),
        })
    };
    Batch { events: tenants.iter().map(event).collect(), ..Batch::default() }.encode(first_row, at_ms)
}

/// Writes a file of one entry.
fn put(dir: &Path, from: u64, tenants: &[&'static str], at_ms: u64) -> PathBuf {
    let name = FileName { from, to: from + tenants.len() as u64, first_ms: at_ms, last_ms: at_ms, erasures: 0 };
    let mut writer = FileWriter::new().unwrap();
    writer.push(&entry(from, tenants, at_ms)).unwrap();
    let folder = dir.join(RAW_FOLDER);
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join(name.to_string());
    fs::write(&path, writer.finish(DIRECTORY, &name).unwrap()).unwrap();
    path
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir.join(RAW_FOLDER)).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Rows 0 to 8 that are there, each as its number and its tenant.
fn rows(dir: &Path) -> Vec<(u64, String)> {
    let mut rows = Vec::new();
    let all = SourceRows { source: SOURCE, from: 0, to: 8 };
    let read = read_raw(dir, DIRECTORY, &all, |_, batch| {
        for (row, record) in (batch.from..).zip(batch.records) {
            match record {
                Record::Event(raw) => rows.push((row, raw.tenant.to_owned())),
                Record::Broken { .. } => panic!("all rows are events"),
            }
        }
    });
    read.unwrap();
    rows
}

fn erasures(tenant: &str) -> Erasures {
    let mut erasures = Erasures::default();
    let erasure = Erasure { before: Hour(9), asked_at_ms: 0, seq: Seq(1), is_done: true };
    erasures.add(ErasureKey::of(tenant, None), erasure).unwrap();
    erasures
}

/// Works until nothing is left to do.
fn tidy(dir: &Path, now_ms: u64, keep_ms: Option<u64>, erasures: &Erasures) -> Archive {
    let mut archive = Archive::open(dir, DIRECTORY).unwrap();
    archive.tidy(&Turn { committed: 0, now_ms, keep_ms, erasures: Some(erasures) }).unwrap();
    archive
}

/// Four files of two rows.
fn four(dir: &Path) -> Vec<PathBuf> {
    (0..4).map(|file| put(dir, 2 * file, &["a", "b"], 10 + file)).collect()
}

#[test]
fn files_of_an_hour_become_one_with_the_same_rows() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path();
    let files = four(dir);
    let before = rows(dir);
    assert_eq!(before.len(), 8);
    let copies: Vec<Vec<u8>> = files.iter().map(|file| fs::read(file).unwrap()).collect();
    let archive = tidy(dir, HOUR_MS, Some(HOUR_MS), &Erasures::default());
    let merged = FileName { from: 0, to: 8, first_ms: 10, last_ms: 13, erasures: 0 };
    assert_eq!((names(dir), rows(dir)), (vec![merged.to_string()], before.clone()));
    assert_eq!(archive.view(None).bytes, fs::metadata(archive.path(&merged)).unwrap().len());
    // A kill came before the old files were removed, and another one while a file was written.
    files.iter().zip(copies).skip(1).for_each(|(file, bytes)| fs::write(file, bytes).unwrap());
    fs::write(dir.join(RAW_FOLDER).join(NEW), "half a file").unwrap();
    assert_eq!(rows(dir), before, "a row counts once");
    Archive::open(dir, DIRECTORY).unwrap();
    assert_eq!((names(dir), rows(dir)), (vec![merged.to_string()], before));
}

#[test]
fn erased_rows_leave_all_files_and_damage_stays_by_itself() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path();
    let files = four(dir);
    put(dir, 6, &["b", "b"], 13);
    fs::write(&files[1], "no file").unwrap();
    let archive = tidy(dir, 0, Some(HOUR_MS), &erasures("a"));
    let row = |row: u64| (row, "b".to_owned());
    assert_eq!(rows(dir), [row(1), row(5), row(6), row(7)]);
    let view = archive.view(Some(&erasures("a")));
    assert_eq!((view.files, view.damaged, view.unclean), (4, 1, 1));
    assert_eq!(archive.first_damaged(), Some(files[1].clone()));
    // An operator deletes the file.
    fs::remove_file(&files[1]).unwrap();
    let mut archive = archive;
    archive.forget_missing();
    assert_eq!(archive.view(Some(&erasures("a"))).unclean, 0);
    let archive = tidy(dir, HOUR_MS, Some(HOUR_MS), &erasures("a"));
    assert_eq!((archive.view(None).files, rows(dir).len()), (2, 4), "files beside a gap are not merged");
}

#[test]
fn files_are_removed_at_their_age_and_without_an_archive() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path();
    let files = four(dir);
    fs::write(&files[0], "damaged files go too").unwrap();
    tidy(dir, HOUR_MS + 11, Some(HOUR_MS), &Erasures::default());
    assert_eq!(rows(dir).len(), 4);
    let archive = tidy(dir, HOUR_MS + 11, None, &Erasures::default());
    assert_eq!((archive.view(None).files, names(dir).len()), (0, 0));
}

#[test]
fn missing_rows_are_told_with_their_latest_time() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path();
    let files = four(dir);
    fs::remove_file(&files[1]).unwrap();
    fs::write(&files[2], "no file").unwrap();
    let read = |from: u64, to: u64| {
        let rows = SourceRows { source: SOURCE, from, to };
        let read = read_raw(dir, DIRECTORY, &rows, |_, _| {}).unwrap();
        let missing: Vec<_> = read.coverage.missing().iter().map(|rows| (rows.from, rows.to, rows.until_ms)).collect();
        (missing, read.damaged.len())
    };
    assert_eq!(read(0, 2), (vec![], 0));
    assert_eq!(read(1, 5), (vec![(2, 4, 12), (4, 5, 12)], 1));
    assert_eq!(read(5, 9), (vec![(5, 6, 12), (8, 9, u64::MAX)], 1));
}
