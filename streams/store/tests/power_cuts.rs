//! A blob that was stored outlives a power cut at any later moment, whole, though everything that was not synced may be cut off.

use proptest::prelude::*;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io;
use std::path::Path;
use std::rc::Rc;
use tidemark_streams_core::blob::{BlobKey, BlobMeta, Epoch, Level, PartitionId, Seq, StoredBlob};
use tidemark_streams_core::scope::Scope;
use tidemark_streams_core::time::{Hour, HourRange};
use tidemark_streams_store::disk::Durability;
use tidemark_streams_store::folder::{Folder, FolderError};

/// Remembers what was synced, until the power is cut.
#[derive(Debug)]
struct Synced {
    files: BTreeSet<String>,
    names: BTreeSet<String>,
    /// Operations left before the cut.
    left: usize,
}

#[derive(Clone, Debug)]
struct CutDisk<'p> {
    path: &'p Path,
    synced: Rc<RefCell<Synced>>,
}

impl<'p> CutDisk<'p> {
    fn new(path: &'p Path, left: usize) -> CutDisk<'p> {
        let synced = Synced { files: BTreeSet::new(), names: BTreeSet::new(), left };
        CutDisk { path, synced: Rc::new(RefCell::new(synced)) }
    }

    fn step(&self) -> io::Result<std::cell::RefMut<'_, Synced>> {
        let mut synced = self.synced.borrow_mut();
        synced.left = synced.left.checked_sub(1).ok_or_else(|| io::Error::other("the power is cut"))?;
        Ok(synced)
    }

    /// Takes names that were not synced, and the tails of files that were not. Each bit of `luck` spares one.
    fn cut(&self, mut luck: u64) {
        let mut is_lucky = || {
            luck = luck.rotate_right(1);
            luck & 1 == 1
        };
        let synced = self.synced.borrow();
        for name in names(self.path) {
            let path = self.path.join(&name);
            if !synced.names.contains(&name) && !is_lucky() {
                fs::remove_file(path).unwrap();
            } else if !synced.files.contains(&name) && !is_lucky() {
                let file = OpenOptions::new().write(true).open(path).unwrap();
                file.set_len(file.metadata().unwrap().len() / 2).unwrap();
            }
        }
    }
}

impl Durability for CutDisk<'_> {
    fn sync_file(&mut self, name: &str) -> io::Result<()> {
        assert!(self.path.join(name).is_file());
        self.step()?.files.insert(name.to_owned());
        Ok(())
    }

    fn sync_names(&mut self) -> io::Result<()> {
        self.step()?.names = names(self.path);
        Ok(())
    }
}

fn names(path: &Path) -> BTreeSet<String> {
    fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn meta(seq: u64, stored: StoredBlob) -> BlobMeta {
    let key = BlobKey { partition: PartitionId(0), epoch: Epoch(1), seq: Seq(seq), part: 0 };
    BlobMeta { key, level: Level::Delta, scope: Scope::ALL, hours: HourRange::of(Hour(0)), rows: 1, total: 1, stored }
}

fn key(seq: u64) -> BlobKey {
    meta(seq, StoredBlob { bytes: 0, checksum: 0 }).key
}

fn content(seq: u64) -> Vec<u8> {
    format!("the content of blob {seq}").into_bytes()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn stored_blob_outlives_a_power_cut_at_any_later_moment(steps in 0..16_usize, luck in any::<u64>()) {
        let folder = tempfile::tempdir().unwrap();
        let disk = CutDisk::new(folder.path(), steps);
        let mut stored = Vec::new();
        let mut blobs = Folder::on(folder.path(), disk.clone()).unwrap();
        for seq in 1..=8 {
            match blobs.put(&key(seq), Level::Delta, content(seq)) {
                Ok(blob) => stored.push(meta(seq, blob)),
                Err(_) => break,
            }
        }
        prop_assert_eq!(stored.len(), steps / 2, "a blob takes two syncs");
        disk.cut(luck);
        let blobs = Folder::open(folder.path()).unwrap();
        for meta in &stored {
            prop_assert_eq!(&blobs.read(meta).unwrap()[..], content(meta.key.seq.0));
        }
        let listing = blobs.list().unwrap();
        prop_assert!(listing.others.is_empty(), "{:?}", listing.others);
        prop_assert!(listing.blobs.len() <= stored.len() + 1);
    }
}

#[test]
fn name_of_a_blob_is_used_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut blobs = Folder::open(folder.path()).unwrap();
    let stored = blobs.put(&key(1), Level::Delta, b"one".to_vec()).unwrap();
    let again = blobs.put(&key(1), Level::Delta, b"two".to_vec()).unwrap_err();
    assert!(matches!(again, FolderError::Store(object_store::Error::AlreadyExists { .. })), "{again}");
    assert_eq!(&blobs.read(&meta(1, stored)).unwrap()[..], b"one");
}

/// A writer that is killed leaves the temporary file of `object_store`, which its listings leave out.
#[test]
fn half_written_files_are_removed_when_the_folder_is_opened() {
    let folder = tempfile::tempdir().unwrap();
    let mut blobs = Folder::open(folder.path()).unwrap();
    blobs.put(&key(1), Level::Delta, b"one".to_vec()).unwrap();
    drop(blobs);
    for name in ["0-1-2-0.parquet#1", "0-1-2-0.parquet#12", "0-1-3-0.parquet", "notes#a"] {
        fs::write(folder.path().join(name), "x").unwrap();
    }
    let listing = Folder::open(folder.path()).unwrap().list().unwrap();
    assert_eq!((listing.blobs.len(), listing.others), (2, vec!["notes#a".to_owned()]));
    assert_eq!(names(folder.path()).len(), 3);
}
