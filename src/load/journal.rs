//! The journal of a load: one file for each content and target, a line of JSON for each record.
//!
//! A record that precedes a send is synced before the send. A last line that is not whole was never acted upon, and is cut off. The file is
//! locked while a loader has it.

use super::Naming;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Seek, Write};
use std::path::{Path, PathBuf};
use tidemark_proto::ids::OwnerId;
use tidemark_proto::load::{BadRecord, Progress, Record};
use tidemark_server::names::{hex, sha256_prefix};

/// Version of the lines below and of how rows are numbered (decision 0071).
const VERSION: u32 = 2;
/// Rows were the lines of a file. A journal of it is gone on with where rows still have those numbers.
const VERSION_OF_LINES: u32 = 1;
/// In what zone that version took times of Parquet without one.
const ZONE_OF_LINES: &str = "UTC";

/// The rows and their destination: the first line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    pub version: u32,
    pub bytes: u64,
    /// Of the file's content, hexadecimal.
    pub sha256: String,
    pub cluster: String,
    /// Empty where rows have ids: they go to the owners of these, wherever they are.
    pub dc: String,
    /// Owner of the streams, by the certificate; 0 for rows with ids.
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
    #[error(
        "journal {0:?} is of an earlier version, which took each line of the file for a row; rows of this file have several \
         lines, so the numbers of its counted rows are not known: load the rest under another name, as rows of a file of their own"
    )]
    Renumbered(PathBuf),
    #[error("journal {path:?}, line {line}: {reason}")]
    Damaged { path: PathBuf, line: u64, reason: String },
}

/// How far a load has come, as the lines of its journal say.
pub trait Replay: Default {
    type Record: DeserializeOwned;
    type Error: std::error::Error;

    /// Takes the next line.
    ///
    /// # Errors
    /// It does not follow from those before.
    fn replay(&mut self, record: &Self::Record) -> Result<(), Self::Error>;

    /// Whether rows were on their way, and not all are done.
    fn is_cut_off(&self) -> bool;
}

impl Replay for Progress {
    type Record = Record;
    type Error = BadRecord;

    fn replay(&mut self, record: &Record) -> Result<(), BadRecord> {
        self.apply(record)
    }

    fn is_cut_off(&self) -> bool {
        self.has_begun() && self.finished().is_none()
    }
}

/// The content of a journal: its complete lines.
#[derive(Default)]
struct Before<P> {
    progress: P,
    bytes: u64,
    version: Option<u32>,
}

#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    is_dirty: bool,
}

impl Head {
    pub fn new(bytes: u64, sha256: String, cluster: &str, dc: &str, owner: OwnerId, naming: &Naming) -> Head {
        let cluster = cluster.to_owned();
        let dc = dc.to_owned();
        let naming = naming.clone();
        Head { version: VERSION, bytes, sha256, cluster, dc, owner, naming }
    }

    /// The same content for other counters is another load.
    fn name(&self) -> String {
        let namespace = self.naming.namespace.as_deref().unwrap_or_default();
        let parts = [&self.sha256, &self.cluster, &self.naming.prefix, namespace];
        let parts: Vec<&[u8]> = parts.iter().flat_map(|part| [part.as_bytes(), b"\n"]).collect();
        format!("{}.load", hex(&sha256_prefix::<16>(&parts)))
    }

    /// Refuses a journal of another file, destination or choice of columns.
    fn check(&self, before: &Head, path: &Path) -> Result<(), JournalError> {
        let is_of_lines = before.version == VERSION_OF_LINES;
        let columns = |naming: &Naming| {
            let names = [&naming.counter, &naming.delta, &naming.at].map(|name| format!("{name:?}")).join(" ");
            let ids = naming.event_id.as_ref().map_or(String::new(), |name| format!(" with ids in {name:?}"));
            let delimiter = naming.delimiter.map_or(String::new(), |delimiter| format!(" separated by {delimiter:?}"));
            names + &ids + &delimiter
        };
        let zone = |naming: &Naming| match naming.zone.as_deref() {
            Some(zone) if !is_of_lines || zone != ZONE_OF_LINES => format!("{zone:?}"),
            _ => "none".to_owned(),
        };
        let version = if is_of_lines { VERSION } else { before.version };
        let pairs = [
            ("version", version.to_string(), self.version.to_string()),
            ("size", before.bytes.to_string(), self.bytes.to_string()),
            ("content", before.sha256.clone(), self.sha256.clone()),
            ("cluster", before.cluster.clone(), self.cluster.clone()),
            ("choice of columns", columns(&before.naming), columns(&self.naming)),
            ("data centre", before.dc.clone(), self.dc.clone()),
            ("certificate", format!("{:x}", before.owner.0), format!("{:x}", self.owner.0)),
            ("zone", zone(&before.naming), zone(&self.naming)),
        ];
        match pairs.into_iter().find(|(_, before, now)| before != now) {
            Some((what, before, now)) => Err(JournalError::Differs { path: path.to_owned(), what, before, now }),
            None => Ok(()),
        }
    }
}

impl Journal {
    /// Opens or begins the journal of a load in a folder, and how far that has come. `has_only_lines`: each row of the file is a line.
    pub fn open(dir: &Path, head: &Head, has_only_lines: bool) -> Result<(Journal, Progress), JournalError> {
        Journal::open_as(dir, head, has_only_lines)
    }

    /// The same for a load with another kind of lines.
    pub fn open_as<P: Replay>(dir: &Path, head: &Head, has_only_lines: bool) -> Result<(Journal, P), JournalError> {
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
        let Before { progress, bytes: whole, version } = journal.read::<P>(head)?;
        if version == Some(VERSION_OF_LINES) && progress.is_cut_off() && !has_only_lines {
            return Err(JournalError::Renumbered(path));
        }
        journal.file.set_len(whole).map_err(failed)?;
        journal.file.seek(io::SeekFrom::End(0)).map_err(failed)?;
        if whole == 0 {
            journal.write(head)?;
        }
        journal.sync()?;
        File::open(dir).and_then(|dir| dir.sync_all()).map_err(failed)?;
        Ok((journal, progress))
    }

    fn read<P: Replay>(&self, head: &Head) -> Result<Before<P>, JournalError> {
        let mut found = Before::<P>::default();
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
                found.version = Some(before.version);
            } else {
                let record = serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
                found.progress.replay(&record).map_err(|error| damaged(error.to_string()))?;
            }
            found.bytes += text.len() as u64 + 1;
        }
        Ok(found)
    }

    pub fn append(&mut self, record: &impl Serialize) -> Result<(), JournalError> {
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

    /// Makes the appended lines outlive the machine.
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
        let (mut journal, progress) = Journal::open(dir.path(), &head, true).unwrap();
        assert_eq!(progress, Progress::default());
        journal.append(&Record::Stream(stream)).unwrap();
        journal.append(&chunk).unwrap();
        assert!(matches!(Journal::open(dir.path(), &head, true), Err(JournalError::InUse(_))));
        journal.file.write_all(b"{\"Done\":{\"chu").unwrap();
        let path = journal.path.clone();
        drop(journal);
        let (journal, progress) = Journal::open(dir.path(), &head, true).unwrap();
        assert_eq!((progress.looked_at(), progress.done_before()), (5, 5));
        drop(journal);
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 3);
        let other = Head { naming: Naming { at: "day".into(), ..Naming::default() }, ..head.clone() };
        let refused = Journal::open(dir.path(), &other, true).unwrap_err().to_string();
        assert!(refused.contains("another choice of columns: \"counter\" \"delta\" \"at\" before"), "{refused}");
        let elsewhere = Head { naming: Naming { namespace: Some("copy".into()), ..Naming::default() }, ..head.clone() };
        assert_eq!(Journal::open(dir.path(), &elsewhere, true).unwrap().1, Progress::default());
        std::fs::write(&path, std::fs::read_to_string(&path).unwrap() + "{\"Done\":{\"chunk\":9}}\n").unwrap();
        let damaged = Journal::open(dir.path(), &head, true).unwrap_err().to_string();
        assert!(damaged.ends_with("line 4: chunk 9 is not open"), "{damaged}");
    }

    /// Writes a journal as the first version did, which numbered rows by lines.
    fn written_by_the_first_version(dir: &Path, head: &Head, records: &str) {
        let text = format!(
            "{{\"version\":1,\"bytes\":7,\"sha256\":\"ab\",\"cluster\":\"test\",\"dc\":\"usa-0\",\"owner\":3,\"naming\":{{\
             \"counter\":\"counter\",\"delta\":\"delta\",\"at\":\"at\",\"prefix\":\"\",\"namespace\":null}}}}\n{records}"
        );
        std::fs::write(dir.join(head.name()), text).unwrap();
    }

    #[test]
    fn a_journal_of_lines_goes_on_only_where_rows_are_lines() {
        let dir = tempfile::tempdir().unwrap();
        let head = Head::new(7, "ab".into(), "test", "usa-0", OwnerId(3), &Naming::default());
        let stream = Stream { client: ClientId(1 << 100), group: GroupId::default(), lanes: 2, since: 0 };
        let chunk = Record::Chunk { task: Task { rows: 0..5, only: Vec::new() }, sent: Vec::new() };
        let line = |record: &Record| serde_json::to_string(record).unwrap() + "\n";
        let begun = line(&Record::Stream(stream)) + &line(&chunk);
        written_by_the_first_version(dir.path(), &head, &begun);
        let refused = Journal::open(dir.path(), &head, false).unwrap_err().to_string();
        assert!(refused.contains("is of an earlier version"), "{refused}");
        assert_eq!(Journal::open(dir.path(), &head, true).unwrap().1.done_before(), 5);
        // Times of Parquet without a zone were in UTC.
        let zoned =
            |zone: &str| Head { naming: Naming { zone: Some(zone.to_owned()), ..Naming::default() }, ..head.clone() };
        assert!(Journal::open(dir.path(), &zoned("UTC"), true).is_ok());
        let refused = Journal::open(dir.path(), &zoned("Europe/Berlin"), true).unwrap_err().to_string();
        assert!(refused.contains("another zone: none before, \"Europe/Berlin\" now"), "{refused}");
        // A file that was loaded stays loaded, however its rows would be numbered now.
        written_by_the_first_version(dir.path(), &head, &(begun + &line(&Record::Finished { rows: 5 })));
        assert_eq!(Journal::open(dir.path(), &head, false).unwrap().1.finished(), Some(5));
    }

    #[test]
    fn a_file_that_was_loaded_without_ids_is_not_loaded_with_them_and_the_reverse() {
        let dir = tempfile::tempdir().unwrap();
        let plain = Head::new(7, "ab".into(), "test", "usa-0", OwnerId(3), &Naming::default());
        let naming = Naming { event_id: Some("pay".into()), ..Naming::default() };
        let with_ids = Head::new(7, "ab".into(), "test", "", OwnerId(0), &naming);
        drop(Journal::open(dir.path(), &plain, true).unwrap());
        let refused = Journal::open_as::<crate::load::ids::IdProgress>(dir.path(), &with_ids, true).unwrap_err();
        let choice = "another choice of columns: \"counter\" \"delta\" \"at\" before, \"counter\" \"delta\" \"at\" with ids in \"pay\" now";
        assert!(refused.to_string().ends_with(choice), "{refused}");
        let other = tempfile::tempdir().unwrap();
        drop(Journal::open_as::<crate::load::ids::IdProgress>(other.path(), &with_ids, true).unwrap());
        let refused = Journal::open(other.path(), &plain, true).unwrap_err().to_string();
        assert!(refused.contains("another choice of columns"), "{refused}");
    }

    #[test]
    fn another_zone_or_delimiter_is_another_choice() {
        let dir = tempfile::tempdir().unwrap();
        let head = |naming: Naming| Head::new(7, "ab".into(), "test", "usa-0", OwnerId(3), &naming);
        let zoned = head(Naming { zone: Some("UTC".into()), ..Naming::default() });
        drop(Journal::open(dir.path(), &zoned, true).unwrap());
        let refused = |naming: Naming| Journal::open(dir.path(), &head(naming), true).unwrap_err().to_string();
        let other = refused(Naming::default());
        assert!(other.ends_with("another zone: \"UTC\" before, none now"), "{other}");
        let other = refused(Naming { delimiter: Some(';'), zone: Some("UTC".into()), ..Naming::default() });
        assert!(other.contains("another choice of columns") && other.ends_with("separated by ';' now"), "{other}");
    }
}
