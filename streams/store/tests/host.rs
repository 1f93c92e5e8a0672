//! The manifest outlives its process, with and without a snapshot, and belongs to one directory.

use tidemark_consensus::local::{CheckpointPart, Execution, Identity, LocalLog, LocalLogOptions, Row};
use tidemark_streams_core::blob::PartitionId;
use tidemark_streams_core::manifest::{Claim, Command, Generation, Manifest, MemberId};
use tidemark_streams_store::host::{ManifestError, ManifestHost, SNAPSHOT_EVERY};

fn claim(generation: u64) -> Command {
    Command::Claim(Claim {
        partition: PartitionId(0),
        generation: Generation(generation),
        member: MemberId(generation),
        types: Some(vec!["impression".to_owned()]),
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

/// Bytes of a line of what version 1 wrote.
fn of_version_1(name: &str) -> Vec<u8> {
    let golden = include_str!("../../core/tests/golden/manifest-1.txt");
    let text = golden.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).unwrap();
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

#[test]
fn manifest_of_version_1_is_read_and_its_row_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("manifest.redb");
    let identity = || Identity { cluster: "streams a".to_owned(), owner: "manifest".to_owned() };
    let open = || {
        let options = LocalLogOptions { execution: Execution::Inline, ..LocalLogOptions::new(identity()) };
        LocalLog::open(path.as_path(), options, |_| {}).unwrap().0
    };
    let log = open();
    for name in ["claim", "flush", "merge", "fence"] {
        log.append(vec![of_version_1(name).into()]).unwrap();
    }
    drop(log);
    // From the log alone.
    let from_log = ManifestHost::open(&path, "a").unwrap().manifest().clone();
    assert_eq!((from_log.index(), from_log.live().map(|meta| meta.total).sum::<u64>()), (4, 1_000));
    // From the one row of its snapshot.
    let log = open();
    let rows =
        vec![Row { table: "manifest", key: b"snapshot"[..].into(), value: Some(of_version_1("snapshot").into()) }];
    log.checkpoint(CheckpointPart { applied: 4, last: true, rows }).unwrap();
    log.truncate_before(5).unwrap();
    drop(log);
    let mut host = ManifestHost::open(&path, "a").unwrap();
    assert_eq!(host.manifest(), &from_log);
    // The next snapshot has rows of its own.
    let mut expected = from_log;
    for generation in 1..=SNAPSHOT_EVERY {
        assert_eq!(host.propose(&claim(generation)).unwrap(), expected.apply(&claim(generation)));
    }
    drop(host);
    assert_eq!(ManifestHost::open(&path, "a").unwrap().manifest(), &expected);
    assert_eq!(open().rows().unwrap().get("manifest", b"snapshot").unwrap(), None);
}
