//! Reading an image back: its file's digest, its records, the rows of the view and the ledger's state in it.

use super::format::{FormatError, Head, Part, Record, RecordReader};
use super::manifest::{GroupEntry, ImageEntry, Manifest};
use crate::names::hex;
use ring::digest::{Context, SHA256};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use tidemark_aggregator::{LedgerStateError, read_ledger};
use tidemark_proto::aggregator::{ImageReader, RowError, ViewImage};
use tidemark_proto::ids::{CounterName, DcId, GroupId, LogIndex};
use tidemark_proto::ledger::Ledger;
use tidemark_proto::view::MergeError;

/// Bytes of a ledger's state: as of a snapshot between members.
pub const LEDGER_BYTES_MAX: usize = 1 << 30;
const READ_BYTES: usize = 1 << 20;

/// Why an image is not used.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: std::io::Error },
    #[error("{path}: {source}")]
    Format { path: PathBuf, source: FormatError },
    #[error("{path}: {source}")]
    Rows { path: PathBuf, source: RowError },
    #[error("{path}: its shards do not fit one view: {source}")]
    Merge { path: PathBuf, source: MergeError },
    #[error("{path}: the ledger's state: {reason}")]
    Ledger { path: PathBuf, reason: String },
    #[error("{path}: its {what} is {found}, and the manifest says {expected}: it was changed after it was taken")]
    Changed { path: PathBuf, what: &'static str, expected: String, found: String },
}

/// The content of an image.
pub struct ImageFile {
    pub head: Head,
    pub part: Option<Part>,
    pub ledger: Ledger,
    pub view: ViewImage,
}

/// Takes an image's bytes, wherever they come from.
pub struct Contents {
    records: RecordReader,
    head: Option<Head>,
    part: Option<Part>,
    ledger: Vec<u8>,
    /// Rows of the current shard.
    rows: Option<ImageReader>,
    /// Of those before it.
    view: Option<ViewImage>,
    seed: u64,
}

/// Why bytes were not taken.
#[derive(Debug, thiserror::Error)]
pub enum ContentError {
    #[error(transparent)]
    Format(#[from] FormatError),
    #[error(transparent)]
    Rows(#[from] RowError),
    #[error("its shards do not fit one view: {0}")]
    Merge(#[from] MergeError),
    #[error("the ledger's state: {0}")]
    Ledger(#[from] LedgerStateError),
    #[error("the ledger's state: more than {LEDGER_BYTES_MAX} bytes")]
    LedgerTooLong,
}

impl Contents {
    /// `seed` hashes names in memory.
    pub fn new(seed: u64) -> Contents {
        Contents {
            records: RecordReader::new(),
            head: None,
            part: None,
            ledger: Vec::new(),
            rows: None,
            view: None,
            seed,
        }
    }

    /// Further bytes. Errors: [`ContentError`]; never panics.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), ContentError> {
        self.records.push(bytes);
        while let Some(record) = self.records.next_record()? {
            match record {
                Record::Head(head) => {
                    self.rows = Some(ImageReader::new(DcId(head.dc), self.seed));
                    self.head = Some(head);
                }
                Record::Part(part) => self.part = Some(part),
                Record::Ledger(piece) if self.ledger.len() + piece.len() > LEDGER_BYTES_MAX => {
                    return Err(ContentError::LedgerTooLong);
                }
                Record::Ledger(piece) => self.ledger.extend(piece),
                Record::Rows(rows) => {
                    for (key, value) in rows {
                        self.rows.iter_mut().try_for_each(|reader| reader.take(&key, &value))?;
                    }
                }
                Record::Shard(_) => self.next_shard()?,
                Record::End => {}
            }
        }
        Ok(())
    }

    /// All rows of a shard were taken.
    fn next_shard(&mut self) -> Result<(), ContentError> {
        let (Some(rows), Some(head)) = (self.rows.take(), &self.head) else { return Ok(()) };
        self.rows = Some(ImageReader::new(DcId(head.dc), self.seed));
        let shard = rows.finish()?;
        match &mut self.view {
            Some(view) => view.merge(&shard)?,
            none => *none = Some(shard),
        }
        Ok(())
    }

    /// Everything, when there are no further bytes.
    pub fn finish(mut self) -> Result<ImageFile, ContentError> {
        self.records.finish()?;
        self.next_shard()?;
        let (Some(head), Some(view)) = (self.head, self.view) else { return Err(FormatError::CutOff(0).into()) };
        let ledger = read_ledger(&self.ledger)?;
        Ok(ImageFile { head, part: self.part, ledger, view })
    }
}

/// All-time totals of the counters' present generations, as a view and a ledger know them: of counters with milestones the ledger may
/// have heard of more.
pub fn present_totals(view: &ViewImage, ledger: &Ledger) -> impl Iterator<Item = (CounterName, u64)> {
    let is_present = |name: &CounterName, generation| ledger.resets().generation(name) == generation;
    let present = view.totals().into_iter().filter(move |((name, generation), _)| is_present(name, *generation));
    present.map(|((name, _), total)| {
        let certain = ledger.certain(&name);
        (name, total.max(certain))
    })
}

/// Awards that a ledger knows.
pub fn awards_in(ledger: &Ledger) -> usize {
    ledger.guarded().filter_map(|name| ledger.counter(name)).map(|state| state.awards().len()).sum()
}

impl ImageFile {
    /// Reads an image of a backup's directory and compares it with what the manifest says.
    pub fn read(dir: &Path, manifest: &Manifest, entry: &ImageEntry) -> Result<ImageFile, ReadError> {
        let path = dir.join(&entry.file);
        let failed = |source| ReadError::Io { path: path.clone(), source };
        let refused = |error| match error {
            ContentError::Format(source) => ReadError::Format { path: path.clone(), source },
            ContentError::Rows(source) => ReadError::Rows { path: path.clone(), source },
            ContentError::Merge(source) => ReadError::Merge { path: path.clone(), source },
            ContentError::Ledger(error) => ReadError::Ledger { path: path.clone(), reason: error.to_string() },
            ContentError::LedgerTooLong => {
                ReadError::Ledger { path: path.clone(), reason: format!("more than {LEDGER_BYTES_MAX} bytes") }
            }
        };
        let mut file = File::open(&path).map_err(failed)?;
        let mut contents = Contents::new(rand::random());
        let mut digest = Context::new(&SHA256);
        let mut buffer = vec![0; READ_BYTES];
        let mut bytes = 0u64;
        loop {
            let read = file.read(&mut buffer).map_err(failed)?;
            if read == 0 {
                break;
            }
            bytes += read as u64;
            digest.update(&buffer[..read]);
            contents.push(&buffer[..read]).map_err(refused)?;
        }
        let image = contents.finish().map_err(refused)?;
        let entry_of = image.entry(&entry.file, bytes, &hex(digest.finish().as_ref()));
        image.compare(&path, manifest, entry, &entry_of)?;
        Ok(image)
    }

    /// The entry of this image in a manifest.
    pub fn entry(&self, file: &str, bytes: u64, sha256: &str) -> ImageEntry {
        let cursors: Vec<_> = self.view.cursors().iter().map(|(&group, &index)| (group, index)).collect();
        ImageEntry {
            file: file.to_owned(),
            dc: self.head.dcs.get(usize::from(self.head.dc)).cloned().unwrap_or_default(),
            part: self.part.clone(),
            bytes,
            sha256: sha256.to_owned(),
            taken_ms: self.head.taken_ms,
            ledger_index: self.head.ledger_index,
            groups: groups_of(&self.head, &cursors),
        }
    }

    fn compare(
        &self,
        path: &Path,
        manifest: &Manifest,
        said: &ImageEntry,
        found: &ImageEntry,
    ) -> Result<(), ReadError> {
        let groups = |entry: &ImageEntry| format!("{:?}", entry.groups);
        let part = |entry: &ImageEntry| format!("{:?}", entry.part);
        let pairs = [
            ("length", said.bytes.to_string(), found.bytes.to_string()),
            ("digest", said.sha256.clone(), found.sha256.clone()),
            ("cluster", manifest.cluster.clone(), self.head.cluster.clone()),
            ("era", manifest.era.to_string(), self.head.era.to_string()),
            ("list of data centres", manifest.dcs.join(", "), self.head.dcs.join(", ")),
            ("data centre", said.dc.clone(), found.dc.clone()),
            ("time", said.taken_ms.to_string(), found.taken_ms.to_string()),
            ("index of the ledger", said.ledger_index.to_string(), found.ledger_index.to_string()),
            ("part of a view", part(said), part(found)),
            ("list of groups", groups(said), groups(found)),
        ];
        match pairs.into_iter().find(|(_, said, found)| said != found) {
            None => Ok(()),
            Some((what, expected, found)) => Err(ReadError::Changed { path: path.to_owned(), what, expected, found }),
        }
    }
}

/// In order, by name and index.
pub fn groups_of(head: &Head, cursors: &[(GroupId, LogIndex)]) -> Vec<GroupEntry> {
    let name = |group: &GroupId| {
        let dc = head.dcs.get(usize::from(group.dc.0)).map_or("?", String::as_str);
        format!("{dc}/{}#{}", group.group, group.incarnation)
    };
    let mut sorted = cursors.to_vec();
    sorted.sort_unstable();
    sorted.iter().map(|(group, index)| GroupEntry { group: name(group), index: index.0 }).collect()
}
