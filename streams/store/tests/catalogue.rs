//! The catalogue of listings: one tenant for ever, versions, and what a refused or a lost file means.

use proptest::prelude::*;
use std::path::Path;
use tidemark_streams_core::source::SourceId;
use tidemark_streams_store::catalogue::{
    Added, CATALOGUE, Catalogue, CatalogueError, DecodeError, Entry, SOURCE_VERSIONS_MAX, Version, decode_entry,
    encode_entry,
};

const SOURCE: SourceId = SourceId([7; 32]);

fn open(dir: &Path) -> Catalogue {
    Catalogue::open(dir, "one").unwrap()
}

fn add(catalogue: &Catalogue, entries: &[(&str, &str)]) -> Result<Added, CatalogueError> {
    catalogue.add(entries.iter().copied())
}

fn tenant(catalogue: &Catalogue, listing: &str, as_of: u64) -> Option<String> {
    catalogue.view().unwrap().tenant(listing, Version(as_of)).unwrap()
}

#[test]
fn listing_keeps_its_tenant_and_its_version() {
    let dir = tempfile::tempdir().unwrap();
    let catalogue = open(dir.path());
    assert_eq!(catalogue.view().unwrap().version(), Version(0));
    assert!(!dir.path().join(CATALOGUE).exists(), "no entry, no file");
    let first = add(&catalogue, &[("x", "a"), ("y", "b")]).unwrap();
    assert_eq!(first, Added { added: 2, known: 0, version: Version(1) });
    let same = add(&catalogue, &[("x", "a")]).unwrap();
    assert_eq!(same, Added { added: 0, known: 1, version: Version(1) }, "nothing new is no version");
    let more = add(&catalogue, &[("y", "b"), ("z", "a"), ("z", "a")]).unwrap();
    assert_eq!(more, Added { added: 1, known: 2, version: Version(2) });
    let refused = add(&catalogue, &[("w", "a"), ("x", "b")]).unwrap_err().to_string();
    assert!(refused.starts_with("listing \"x\" belongs to tenant \"a\", and tenant \"b\" is named"), "{refused}");
    drop(catalogue);
    let catalogue = open(dir.path());
    let view = catalogue.view().unwrap();
    assert_eq!((view.version(), view.listings()), (Version(2), 3));
    assert_eq!(view.entry("z").unwrap(), Some(Entry { tenant: "a".into(), since: Version(2) }));
    assert_eq!(tenant(&catalogue, "z", 1), None, "it came later");
    assert_eq!(tenant(&catalogue, "z", 2), Some("a".into()));
    assert_eq!(tenant(&catalogue, "w", 2), None, "a refused addition adds nothing");
}

#[test]
fn view_does_not_see_later_additions() {
    let dir = tempfile::tempdir().unwrap();
    let catalogue = open(dir.path());
    add(&catalogue, &[("x", "a")]).unwrap();
    let view = catalogue.view().unwrap();
    add(&catalogue, &[("y", "a")]).unwrap();
    assert_eq!((view.entry("y").unwrap(), view.version()), (None, Version(1)));
    assert!(catalogue.view().unwrap().entry("y").unwrap().is_some());
    drop(catalogue);
    assert!(view.entry("x").unwrap().is_some(), "a view keeps the file open");
}

#[test]
fn addition_without_a_commit_is_not_kept() {
    let dir = tempfile::tempdir().unwrap();
    let catalogue = open(dir.path());
    let mut addition = catalogue.addition().unwrap();
    addition.add("x", "a").unwrap();
    drop(addition);
    drop(catalogue);
    assert_eq!(open(dir.path()).view().unwrap().entry("x").unwrap(), None);
}

#[test]
fn ids_that_are_none_are_refused_with_their_limit() {
    let dir = tempfile::tempdir().unwrap();
    let catalogue = open(dir.path());
    let long = "x".repeat(256);
    let refused = |listing: &str, tenant: &str| add(&catalogue, &[(listing, tenant)]).unwrap_err().to_string();
    assert_eq!(refused(&long, "a"), "listing has 256 bytes: at most 255");
    assert_eq!(refused("x", &long[..129]), "tenant has 129 bytes: at most 128");
    assert_eq!(refused("", "a"), "listing is empty");
    assert_eq!(refused("x", "a\n"), "tenant \"a\\n\" has a control character");
    assert_eq!(catalogue.view().unwrap().listings(), 0);
}

#[test]
fn rows_of_a_source_keep_the_version_of_their_load() {
    let dir = tempfile::tempdir().unwrap();
    let catalogue = open(dir.path());
    add(&catalogue, &[("x", "a")]).unwrap();
    catalogue.begin_source(SOURCE, 0).unwrap();
    add(&catalogue, &[("y", "a")]).unwrap();
    // It goes on at the same row: no row was counted by the first version.
    let versions = catalogue.begin_source(SOURCE, 0).unwrap();
    assert_eq!(versions.of_row(0), Version(2));
    add(&catalogue, &[("z", "a")]).unwrap();
    catalogue.begin_source(SOURCE, 100).unwrap();
    add(&catalogue, &[("w", "a")]).unwrap();
    // The rows from 50 on are in no commit, so they are resolved anew.
    catalogue.begin_source(SOURCE, 50).unwrap();
    drop(catalogue);
    let versions = open(dir.path()).source(SOURCE).unwrap();
    let found = [0, 49, 50, 100, u64::MAX].map(|row| versions.of_row(row).0);
    assert_eq!(found, [2, 2, 4, 4, 4]);
}

#[test]
fn versions_of_a_source_are_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let catalogue = open(dir.path());
    for number in 0..SOURCE_VERSIONS_MAX as u64 + 3 {
        add(&catalogue, &[(&number.to_string(), "a")]).unwrap();
        catalogue.begin_source(SOURCE, number).unwrap();
    }
    let versions = catalogue.source(SOURCE).unwrap();
    assert_eq!(versions.of_row(u64::MAX), Version(SOURCE_VERSIONS_MAX as u64), "the last one is kept");
}

#[test]
fn lost_catalogue_of_a_source_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let catalogue = open(dir.path());
    let lost = |error: CatalogueError| assert!(error.to_string().contains("has no version for row"), "{error}");
    lost(catalogue.source(SOURCE).unwrap_err());
    add(&catalogue, &[("x", "a")]).unwrap();
    lost(catalogue.source(SOURCE).unwrap_err());
    lost(catalogue.begin_source(SOURCE, 9).unwrap_err());
}

#[test]
fn foreign_and_damaged_files_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    add(&open(dir.path()), &[("x", "a")]).unwrap();
    let foreign = Catalogue::open(dir.path(), "two").err().unwrap().to_string();
    assert!(foreign.contains("belongs to cluster `streams one`, expected `streams two`"), "{foreign}");
    let path = dir.path().join(CATALOGUE);
    let whole = std::fs::read(&path).unwrap();
    for bytes in [&whole[..100], b"no catalogue", &[0; 4_096]] {
        std::fs::write(&path, bytes).unwrap();
        let refused = Catalogue::open(dir.path(), "one").err().unwrap().to_string();
        assert!(refused.contains("corrupt or not a database"), "{refused}");
    }
}

#[test]
fn stored_entries_are_read_as_they_were_written() {
    let entry = Entry { tenant: "shop ä".into(), since: Version(9) };
    assert_eq!(decode_entry(&encode_entry(&entry)), Ok(entry));
    assert_eq!(decode_entry(b"short"), Err(DecodeError::Length { bytes: 5, expected: 8 }));
    assert_eq!(decode_entry(b"12345678\xff"), Err(DecodeError::Utf8));
    assert!(matches!(decode_entry(b"12345678"), Err(DecodeError::Tenant(_))));
}

/// A step of a load that is killed and run again while the catalogue grows.
#[derive(Clone, Copy, Debug)]
enum Step {
    Add,
    /// The load begins at its last commit, and commits so many rows before it is killed.
    Load(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![Just(Step::Add), (0..4_u64).prop_map(Step::Load)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn committed_rows_keep_the_version_that_resolved_them(steps in proptest::collection::vec(step(), 1..14)) {
        let dir = tempfile::tempdir().unwrap();
        let catalogue = open(dir.path());
        let mut added = 0_u64;
        let mut committed = Vec::new();
        for step in steps {
            match step {
                Step::Add => {
                    added += 1;
                    add(&catalogue, &[(&format!("x-{added}"), "a")]).unwrap();
                }
                Step::Load(rows) => {
                    let begin = committed.len() as u64;
                    let versions = catalogue.begin_source(SOURCE, begin).unwrap();
                    for row in begin..begin + rows {
                        prop_assert_eq!(versions.of_row(row), Version(added), "a load uses all entries");
                        committed.push(Version(added));
                    }
                }
            }
        }
        drop(catalogue);
        if !committed.is_empty() {
            let versions = open(dir.path()).source(SOURCE).unwrap();
            for (row, version) in committed.iter().enumerate() {
                prop_assert_eq!(versions.of_row(row as u64), *version, "row {}", row);
            }
        }
    }
}
