//! Rows that are of use to one process only: a tree (fjall) in a directory of its own. No write waits for the disk, and what another process
//! has left is removed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

use fjall::{Database, Keyspace};

use super::PersistError;
use super::lsm::{LsmOptions, database, persist_error};

/// See the module. The directory is made with the first row.
pub struct Scratch {
    path: PathBuf,
    options: LsmOptions,
    tree: RwLock<Option<Tree>>,
}

struct Tree {
    rows: Keyspace,
    /// Its threads end with it.
    _db: Database,
}

impl Scratch {
    /// No rows, in place of what is in the directory.
    pub fn new(path: &Path, options: LsmOptions) -> Result<Self, PersistError> {
        match fs::remove_dir_all(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(persist_error(error.into())),
            _ => Ok(Self { path: path.to_owned(), options, tree: RwLock::default() }),
        }
    }

    /// The value of a row.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, PersistError> {
        let tree = self.tree.read().unwrap_or_else(PoisonError::into_inner);
        let value = tree.as_ref().map(|tree| tree.rows.get(key)).transpose().map_err(persist_error)?;
        Ok(value.flatten().map(|value| value.to_vec()))
    }

    /// Writes or deletes a row, which is read so from then on.
    pub fn put(&self, key: &[u8], value: Option<&[u8]>) -> Result<(), PersistError> {
        let put = |tree: &Tree| match value {
            Some(value) => tree.rows.insert(key, value).map_err(persist_error),
            None => tree.rows.remove(key).map_err(persist_error),
        };
        if let Some(tree) = self.tree.read().unwrap_or_else(PoisonError::into_inner).as_ref() {
            return put(tree);
        }
        let mut tree = self.tree.write().unwrap_or_else(PoisonError::into_inner);
        let made = match tree.take() {
            Some(made) => made,
            None if value.is_none() => return Ok(()),
            None => self.make()?,
        };
        put(tree.insert(made))
    }

    fn make(&self) -> Result<Tree, PersistError> {
        let db = database(&self.path, &self.options).map_err(persist_error)?;
        let rows = db.keyspace("rows", || self.options.keyspace()).map_err(persist_error)?;
        Ok(Tree { rows, _db: db })
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
        scratch.put(b"a", None).unwrap();
        assert!(!path.exists(), "nothing was written");
        // More than stays in a memtable.
        let value = |n: u32, round: u8| [&n.to_be_bytes()[..], &[round; 200]].concat();
        for round in 0..3 {
            (0..10_000).for_each(|n: u32| scratch.put(&n.to_be_bytes(), Some(&value(n, round))).unwrap());
        }
        scratch.put(&7u32.to_be_bytes(), None).unwrap();
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
