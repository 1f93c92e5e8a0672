//! `manifest.head`: all of the manifest but its blobs, in a file of its own. A lost manifest is built again from it and from the blobs.

use crate::disk::replace;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::Path;
use tidemark_streams_core::blob::{BlobKey, LiveDigest, PartitionId};
use tidemark_streams_core::manifest::{Gone, Head, LiveOf, Manifest, Row, SnapshotError};
use xxhash_rust::xxh3::xxh3_64;

pub const HEAD: &str = "manifest.head";
const NEW_HEAD: &str = "manifest.head.new";
const VERSION: u32 = 1;

/// Why a head is not read.
#[derive(Debug, thiserror::Error)]
pub enum HeadError {
    #[error("{HEAD}: {0}")]
    Io(#[from] io::Error),
    #[error("{HEAD} is damaged: {0}")]
    Damaged(String),
    #[error("{HEAD} has version {found}; this program knows version {VERSION}")]
    Version { found: u32 },
    #[error(
        "{HEAD} is of another directory ({found}), and this one is {expected}: restore it from a copy of this directory; if there is none, and \
         the manifest is whole and no older copy, move {HEAD} away, and the next command writes it again"
    )]
    OtherDirectory { found: String, expected: String },
    #[error("{HEAD}: {0}")]
    Snapshot(#[from] SnapshotError),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct HeadFile {
    version: u32,
    directory: String,
    /// Which manifest it is of. A manifest that was built again has another number.
    generation: String,
    /// As a snapshot of the manifest has them, in hexadecimal digits.
    rows: Vec<HeadRow>,
    live: Vec<HeadLive>,
    /// Blobs that were removed without a replacement.
    gone: Vec<String>,
    /// XXH3 with 64 bits of this file with an empty checksum.
    checksum: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct HeadRow {
    key: String,
    value: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct HeadLive {
    partition: u32,
    blobs: u64,
    total: String,
    names: String,
}

/// A manifest, of which the head is written.
pub struct Written<'a> {
    pub directory: &'a str,
    pub generation: u64,
    pub manifest: &'a Manifest,
    pub gone: &'a Gone,
}

/// A head that was read, and which manifest it is of.
pub struct HeadOf {
    pub head: Head,
    pub generation: u64,
}

/// Writes the head of a manifest beside it.
///
/// # Errors
/// It cannot be written.
pub fn write(folder: &Path, written: &Written<'_>) -> Result<(), HeadError> {
    let Written { directory, generation, manifest, gone } = *written;
    let row = |row: Row| HeadRow { key: hex(&row.key), value: hex(&row.value.unwrap_or_default()) };
    let live = |of: LiveOf| {
        let LiveDigest { blobs, total, names } = of.live;
        HeadLive { partition: of.partition.0, blobs, total: total.to_string(), names: format!("{names:032x}") }
    };
    let mut file = HeadFile {
        version: VERSION,
        directory: directory.to_owned(),
        generation: format!("{generation:016x}"),
        rows: manifest.head_rows().into_iter().map(row).collect(),
        live: manifest.live_digests().into_iter().map(live).collect(),
        gone: gone.iter().map(BlobKey::to_string).collect(),
        checksum: String::new(),
    };
    file.checksum = checksum(&file)?;
    let bytes = serde_json::to_vec(&file).map_err(io::Error::other)?;
    Ok(replace(folder, NEW_HEAD, HEAD, &bytes)?)
}

/// Reads the head that lies in a folder; `None`: there is none.
///
/// # Errors
/// [`HeadError`].
pub fn read(folder: &Path, directory: &str) -> Result<Option<HeadOf>, HeadError> {
    let bytes = match fs::read(folder.join(HEAD)) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let mut file: HeadFile = serde_json::from_slice(&bytes).map_err(|error| HeadError::Damaged(error.to_string()))?;
    if file.version != VERSION {
        return Err(HeadError::Version { found: file.version });
    }
    let expected = std::mem::take(&mut file.checksum);
    let found = checksum(&file)?;
    if found != expected {
        return Err(HeadError::Damaged(format!("its checksum is {found}, and it says {expected:?}")));
    }
    if file.directory != directory {
        return Err(HeadError::OtherDirectory { found: file.directory, expected: directory.to_owned() });
    }
    let wrong = || HeadError::Damaged("a value is none".to_owned());
    let generation = u64::from_str_radix(&file.generation, 16).map_err(|_| wrong())?;
    let row = |row: &HeadRow| Some(Row { key: bytes_of(&row.key)?, value: Some(bytes_of(&row.value)?) });
    let rows: Vec<Row> = file.rows.iter().map(row).collect::<Option<_>>().ok_or_else(wrong)?;
    let live = |of: &HeadLive| {
        let total = of.total.parse().ok()?;
        let names = u128::from_str_radix(&of.names, 16).ok()?;
        Some(LiveOf { partition: PartitionId(of.partition), live: LiveDigest { blobs: of.blobs, total, names } })
    };
    let live: Vec<LiveOf> = file.live.iter().map(live).collect::<Option<_>>().ok_or_else(wrong)?;
    let keys: Vec<BlobKey> = file.gone.iter().map(|name| name.parse().ok()).collect::<Option<_>>().ok_or_else(wrong)?;
    let mut gone = Gone::default();
    gone.extend(keys);
    Ok(Some(HeadOf { head: Head::read(&rows, &live, gone)?, generation }))
}

fn checksum(file: &HeadFile) -> Result<String, HeadError> {
    let bytes = serde_json::to_vec(file).map_err(io::Error::other)?;
    Ok(format!("{:016x}", xxh3_64(&bytes)))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes_of(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    if digits.len().is_multiple_of(2) { digits.chunks(2).map(byte).collect() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemark_streams_core::blob::{BlobMeta, Epoch, Level, Seq, StoredBlob};
    use tidemark_streams_core::manifest::{Claim, Command, Commit, Generation, MemberId, Progress};
    use tidemark_streams_core::scope::Scope;
    use tidemark_streams_core::source::{ReadingId, SourceId};
    use tidemark_streams_core::time::{Hour, HourRange};

    const GOLDEN: &str = include_str!("../tests/golden/manifest-1-types.head");
    const GOLDEN_PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/manifest-1-types.head");
    /// Its rows are of version 3 of snapshots, which say no event types.
    const GOLDEN_WITHOUT_TYPES: &str = include_str!("../tests/golden/manifest-1.head");

    /// Directories keep these bytes. Bless with `TIDEMARK_BLESS=1`.
    #[test]
    fn bytes_of_a_head_are_those_of_version_1() {
        let folder = tempfile::tempdir().unwrap();
        let (manifest, gone) = short_life();
        write(folder.path(), &Written { directory: "a", generation: 0xfeed, manifest: &manifest, gone: &gone })
            .unwrap();
        let written = fs::read_to_string(folder.path().join(HEAD)).unwrap();
        if std::env::var_os("TIDEMARK_BLESS").is_some() {
            fs::write(GOLDEN_PATH, &written).unwrap();
        }
        assert_eq!(written, GOLDEN);
    }

    #[test]
    fn head_without_event_types_is_understood() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(HEAD), GOLDEN_WITHOUT_TYPES).unwrap();
        let HeadOf { head, generation } = read(folder.path(), "a").unwrap().unwrap();
        let (manifest, gone) = short_life();
        let without_blobs = manifest.head(gone);
        assert_eq!((head.manifest(), generation), (without_blobs.manifest(), 0xfeed));
        assert!(!head.manifest().schema().is_whole());
    }

    /// A claim of an earlier version and a commit.
    fn short_life() -> (Manifest, Gone) {
        let partition = PartitionId(0);
        let mut manifest = Manifest::new();
        manifest.apply(&Command::Claim(Claim {
            partition,
            generation: Generation(5),
            member: MemberId(2),
            types: None,
        }));
        let key = BlobKey { partition, epoch: Epoch(1), seq: Seq(1), part: 0 };
        let hours = HourRange::of(Hour(412_018));
        let stored = StoredBlob { bytes: 1_234, checksum: 0xfeed_beef };
        let blob = BlobMeta { key, level: Level::Delta, scope: Scope::ALL, hours, rows: 3, total: 700, stored };
        let progress = Progress {
            source: SourceId([0xab; 32]),
            reading: ReadingId(1),
            from: 0,
            to: 700,
            dead_letters: 0,
            total: 700,
            is_end: false,
        };
        let commit =
            Commit { epoch: Epoch(1), seq: Seq(1), progress: Some(progress), add: vec![blob], ..Commit::default() };
        manifest.apply(&Command::Commit(commit));
        assert_eq!(manifest.live().count(), 1);
        let mut gone = Gone::default();
        gone.extend([BlobKey { part: 7, ..key }]);
        (manifest, gone)
    }

    #[test]
    fn head_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let mut manifest = Manifest::new();
        let member = MemberId(2);
        manifest.apply(&Command::Claim(Claim {
            partition: PartitionId(0),
            generation: Generation(5),
            member,
            types: None,
        }));
        assert!(read(folder.path(), "a").unwrap().is_none());
        let mut gone = Gone::default();
        gone.extend([BlobKey::FIRST, BlobKey::LAST]);
        let written = Written { directory: "a", generation: 0xfeed, manifest: &manifest, gone: &gone };
        write(folder.path(), &written).unwrap();
        let HeadOf { head, generation } = read(folder.path(), "a").unwrap().unwrap();
        assert_eq!(generation, 0xfeed);
        assert_eq!((head.manifest(), head.gone()), (&manifest, &gone));
        assert!(matches!(read(folder.path(), "b"), Err(HeadError::OtherDirectory { .. })));
        let path = folder.path().join(HEAD);
        let text = fs::read_to_string(&path).unwrap();
        for (from, to) in [("\"blobs\":0", "\"blobs\":1"), ("{", "["), ("\"version\":1", "\"version\":2")] {
            fs::write(&path, text.replacen(from, to, 1)).unwrap();
            assert!(matches!(read(folder.path(), "a"), Err(HeadError::Damaged(_) | HeadError::Version { found: 2 })));
        }
    }
}
