//! Rows that are of use to one process only: a tree (fjall) in a directory of its own, which is emptied at first.
//!
//! No write is synced, and none waits for files that are behind: it is refused. It may wait for fjall's own sync where a memtable is written away.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use super::PersistError;
use super::lsm::{Lsm, LsmOptions, persist_error};

const TABLE: &str = "scratch";

/// See the module. The directory is made with the first row.
pub struct Scratch {
    path: PathBuf,
    options: LsmOptions,
    tree: RwLock<Option<Lsm>>,
}

impl Scratch {
    /// Begins without rows, in place of the content of the directory. The caller has seen to it that no other process uses it.
    pub fn new(path: &Path, options: LsmOptions) -> Result<Self, PersistError> {
        match fs::remove_dir_all(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(persist_error(error.into())),
            _ => Ok(Self { path: path.to_owned(), options, tree: RwLock::default() }),
        }
    }

    /// The value of a row.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, PersistError> {
        let tree = self.tree.read().unwrap_or_else(PoisonError::into_inner);
        tree.as_ref().map_or(Ok(None), |tree| tree.get(TABLE, key))
    }

    /// Writes or deletes a row, which is read so from then on. False: files are behind what was written; nothing was changed.
    pub fn put(&self, key: &[u8], value: Option<&[u8]>) -> Result<bool, PersistError> {
        if let Some(tree) = self.tree.read().unwrap_or_else(PoisonError::into_inner).as_ref() {
            return tree.try_put(TABLE, key, value);
        }
        let mut tree = self.tree.write().unwrap_or_else(PoisonError::into_inner);
        let made = match tree.take() {
            Some(made) => made,
            None if value.is_none() => return Ok(true),
            None => Lsm::open(&self.path, &self.options, Duration::ZERO)?,
        };
        tree.insert(made).try_put(TABLE, key, value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_as_they_were_written_last_and_are_gone_with_the_process() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("scratch");
        let open = || Scratch::new(&path, LsmOptions { memtable_bytes: 1 << 20, ..LsmOptions::default() }).unwrap();
        let scratch = open();
        assert_eq!(scratch.get(b"a"), Ok(None));
        assert_eq!(scratch.put(b"a", None), Ok(true));
        assert!(!path.exists(), "nothing was written");
        // More than stays in a memtable.
        let value = |n: u32, round: u8| [&n.to_be_bytes()[..], &[round; 200]].concat();
        for round in 0..3 {
            for n in 0..10_000u32 {
                while !scratch.put(&n.to_be_bytes(), Some(&value(n, round))).unwrap() {
                    std::thread::yield_now();
                }
            }
        }
        assert_eq!(scratch.put(&7u32.to_be_bytes(), None), Ok(true));
        for n in 0..10_000u32 {
            assert_eq!(scratch.get(&n.to_be_bytes()), Ok((n != 7).then(|| value(n, 2))));
        }
        drop(scratch);
        assert!(path.exists());
        let scratch = open();
        assert!(!path.exists());
        assert_eq!(scratch.get(&3u32.to_be_bytes()), Ok(None));
    }
}
