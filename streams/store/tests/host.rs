//! The manifest outlives its process, with and without a snapshot, and belongs to one directory.

use tidemark_streams_core::blob::PartitionId;
use tidemark_streams_core::manifest::{Claim, Command, Generation, Manifest, MemberId};
use tidemark_streams_store::host::{ManifestError, ManifestHost, SNAPSHOT_EVERY};

fn claim(generation: u64) -> Command {
    Command::Claim(Claim {
        partition: PartitionId(0),
        generation: Generation(generation),
        member: MemberId(generation),
    })
}

#[test]
fn manifest_is_the_same_after_each_start() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("manifest.redb");
    let mut expected = Manifest::new();
    let mut generation = 0;
    // Before the first snapshot, at it, behind it, and behind the second.
    for commands in [3, SNAPSHOT_EVERY - 3, 1, SNAPSHOT_EVERY] {
        let mut host = ManifestHost::open(&path, "a").unwrap();
        assert_eq!(host.manifest(), &expected);
        for _ in 0..commands {
            generation += 1;
            assert_eq!(host.propose(&claim(generation)).unwrap(), expected.apply(&claim(generation)));
        }
    }
    let host = ManifestHost::open(&path, "a").unwrap();
    assert_eq!((host.manifest(), host.manifest().index()), (&expected, 2 * SNAPSHOT_EVERY + 1));
}

#[test]
fn manifest_of_another_directory_or_in_use_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("manifest.redb");
    let held = ManifestHost::open(&path, "a").unwrap();
    let refused = |directory: &str| match ManifestHost::open(&path, directory) {
        Err(ManifestError::Open(error)) => error.to_string(),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it is opened"),
    };
    assert!(refused("a").contains("in use by another process"));
    drop(held);
    assert!(refused("b").contains("belongs to cluster `streams a`, expected `streams b`"));
}
