//! The journal of a load: one file for each content and target, a line of JSON for each record.
//!
//! What comes before a send is synced before it. A last line that is not whole was never acted upon, and is cut off. The file is locked
//! while a loader has it.

use super::Naming;
use crate::names::{hex, sha256_prefix};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Seek, Write};
use std::path::{Path, PathBuf};
use tidemark_proto::ids::OwnerId;
use tidemark_proto::load::{BadRecord, Progress, Record};

/// Of the lines below; another one is another program's.
const VERSION: u32 = 1;

/// What is loaded where: the first line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    pub version: u32,
    pub bytes: u64,
    /// Of the file's content, hexadecimal.
    pub sha256: String,
    pub cluster: String,
    pub dc: String,
    /// Of the certificate whose streams are used.
    pub owner: OwnerId,
    pub naming: Naming,
}

/// Why there is no journal to go on with. Nothing was counted.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error("journal {path:?}: {error}")]
    Io { path: PathBuf, error: io::Error },
    #[error("journal {0:?} is in use: another load of the same file runs")]
    InUse(PathBuf),
    #[error("journal {path:?}: the file was loaded with another {what}: {before} before, {now} now")]
    Differs { path: PathBuf, what: &'static str, before: String, now: String },
    #[error("journal {path:?}, line {line}: {reason}")]
    Damaged { path: PathBuf, line: u64, reason: String },
}

#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    is_dirty: bool,
}

impl Head {
    pub fn new(bytes: u64, sha256: String, cluster: &str, dc: &str, owner: OwnerId, naming: &Naming) -> Head {
        let (cluster, dc, naming) = (cluster.to_owned(), dc.to_owned(), naming.clone());
        Head { version: VERSION, bytes, sha256, cluster, dc, owner, naming }
    }

    /// The same content for other counters is another load.
    fn name(&self) -> String {
        let namespace = self.naming.namespace.as_deref().unwrap_or_default();
        let parts = [&self.sha256, &self.cluster, &self.naming.prefix, namespace];
        let parts: Vec<&[u8]> = parts.iter().flat_map(|part| [part.as_bytes(), b"\n"]).collect();
        format!("{}.load", hex(&sha256_prefix::<16>(&parts)))
    }

    /// What must not change between two runs.
    fn check(&self, before: &Head, path: &Path) -> Result<(), JournalError> {
        let columns =
            |naming: &Naming| [&naming.counter, &naming.delta, &naming.at].map(|name| format!("{name:?}")).join(" ");
        let pairs = [
            ("version", before.version.to_string(), self.version.to_string()),
            ("size", before.bytes.to_string(), self.bytes.to_string()),
            ("content", before.sha256.clone(), self.sha256.clone()),
            ("cluster", before.cluster.clone(), self.cluster.clone()),
            ("data centre", before.dc.clone(), self.dc.clone()),
            ("certificate", format!("{:x}", before.owner.0), format!("{:x}", self.owner.0)),
            ("choice of columns", columns(&before.naming), columns(&self.naming)),
        ];
        match pairs.into_iter().find(|(_, before, now)| before != now) {
            Some((what, before, now)) => Err(JournalError::Differs { path: path.to_owned(), what, before, now }),
            None => Ok(()),
        }
    }
}

impl Journal {
    /// Opens or begins the journal of a load in a folder, and how far that has come.
    pub fn open(dir: &Path, head: &Head) -> Result<(Journal, Progress), JournalError> {
        let path = dir.join(head.name());
        let failed = |error| JournalError::Io { path: path.clone(), error };
        std::fs::create_dir_all(dir).map_err(failed)?;
        let options = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let file = options.map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(std::fs::TryLockError::WouldBlock) => return Err(JournalError::InUse(path)),
            Err(std::fs::TryLockError::Error(error)) => return Err(failed(error)),
        }
        let mut journal = Journal { path: path.clone(), file, is_dirty: true };
        let (progress, whole) = journal.read(head)?;
        journal.file.set_len(whole).map_err(failed)?;
        journal.file.seek(io::SeekFrom::End(0)).map_err(failed)?;
        if whole == 0 {
            journal.write(head)?;
        }
        journal.sync()?;
        File::open(dir).and_then(|dir| dir.sync_all()).map_err(failed)?;
        Ok((journal, progress))
    }

    /// All whole lines, and their bytes.
    fn read(&self, head: &Head) -> Result<(Progress, u64), JournalError> {
        let (mut progress, mut whole) = (Progress::default(), 0);
        let mut reader = BufReader::new(&self.file);
        let mut text = Vec::new();
        for line in 1.. {
            text.clear();
            reader.read_until(b'\n', &mut text).map_err(|error| JournalError::Io { path: self.path.clone(), error })?;
            if text.pop() != Some(b'\n') {
                break;
            }
            let damaged = |reason: String| JournalError::Damaged { path: self.path.clone(), line, reason };
            if line == 1 {
                let before: Head = serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
                head.check(&before, &self.path)?;
            } else {
                let record: Record = serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
                progress.apply(&record).map_err(|error: BadRecord| damaged(error.to_string()))?;
            }
            whole += text.len() as u64 + 1;
        }
        Ok((progress, whole))
    }

    pub fn append(&mut self, record: &Record) -> Result<(), JournalError> {
        self.write(record)
    }

    fn write(&mut self, line: &impl Serialize) -> Result<(), JournalError> {
        let failed = |error| JournalError::Io { path: self.path.clone(), error };
        let mut text = serde_json::to_vec(line).map_err(|error| failed(error.into()))?;
        text.push(b'\n');
        self.file.write_all(&text).map_err(failed)?;
        self.is_dirty = true;
        Ok(())
    }

    /// What was appended outlives the machine.
    pub fn sync(&mut self) -> Result<(), JournalError> {
        if std::mem::take(&mut self.is_dirty) {
            self.file.sync_data().map_err(|error| JournalError::Io { path: self.path.clone(), error })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemark_proto::ids::{ClientId, GroupId};
    use tidemark_proto::load::{Stream, Task};

    #[test]
    fn a_journal_goes_on_behind_its_last_whole_line_and_belongs_to_one_load() {
        let dir = tempfile::tempdir().unwrap();
        let head = Head::new(7, "ab".into(), "test", "usa-0", OwnerId(3), &Naming::default());
        let stream = Stream { client: ClientId(1 << 100), group: GroupId::default(), lanes: 2, since: 0 };
        let chunk = Record::Chunk { task: Task { rows: 0..5, only: Vec::new() }, sent: Vec::new() };
        let (mut journal, progress) = Journal::open(dir.path(), &head).unwrap();
        assert_eq!(progress, Progress::default());
        journal.append(&Record::Stream(stream)).unwrap();
        journal.append(&chunk).unwrap();
        assert!(matches!(Journal::open(dir.path(), &head), Err(JournalError::InUse(_))));
        journal.file.write_all(b"{\"Done\":{\"chu").unwrap();
        let path = journal.path.clone();
        drop(journal);
        let (journal, progress) = Journal::open(dir.path(), &head).unwrap();
        assert_eq!((progress.looked_at(), progress.done_before()), (5, 5));
        drop(journal);
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 3);
        let other = Head { naming: Naming { at: "day".into(), ..Naming::default() }, ..head.clone() };
        let refused = Journal::open(dir.path(), &other).unwrap_err().to_string();
        assert!(refused.contains("another choice of columns: \"counter\" \"delta\" \"at\" before"), "{refused}");
        let elsewhere = Head { naming: Naming { namespace: Some("copy".into()), ..Naming::default() }, ..head.clone() };
        assert_eq!(Journal::open(dir.path(), &elsewhere).unwrap().1, Progress::default());
        std::fs::write(&path, std::fs::read_to_string(&path).unwrap() + "{\"Done\":{\"chunk\":9}}\n").unwrap();
        let damaged = Journal::open(dir.path(), &head).unwrap_err().to_string();
        assert!(damaged.ends_with("line 4: chunk 9 is not open"), "{damaged}");
    }
}
