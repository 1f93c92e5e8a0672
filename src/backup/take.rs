//! The side of a backup that runs where it is kept. It asks aggregators for their images and writes them to a directory, which appears
//! under its name only when all images are there and durable.

use crate::remote::{Remote, RemoteError};
use ring::digest::{Context, SHA256};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use tidemark_proto::aggregator::{RowError, cursors_in};
use tidemark_proto::ids::{GroupId, LogIndex};
use tidemark_server::backup::format::{FormatError, Head, Part, Record, RecordReader};
use tidemark_server::backup::manifest::{ImageEntry, MANIFEST_FILE, Manifest, is_file_name};
use tidemark_server::backup::read::groups_of;
use tidemark_server::names::hex;

/// Where an aggregator hands its image out.
pub const BACKUP_PATH: &str = "/v1/backup";
/// The ending of an image's file, behind its data centre's name.
pub const IMAGE_SUFFIX: &str = ".image";

/// Why nothing was taken. Nothing is left behind.
#[derive(Debug, thiserror::Error)]
pub enum TakeError {
    #[error("{0} is there already and is not empty: a backup needs a name of its own")]
    Exists(PathBuf),
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Remote(#[from] RemoteError),
    #[error("{authority}: {reason}")]
    Image { authority: String, reason: String },
    #[error("two of the asked aggregators are of {0}: one image of each data centre is enough")]
    Twice(String),
    #[error(
        "several aggregators of {dc} hold a part of its view each, and those asked hold all but its slots {slots:?}: name the others \
         with --and; `GET /v1/slots` lists the holders"
    )]
    Gap { dc: String, slots: Vec<u16> },
    #[error(
        "{authority} is of `{found}`, era {found_era}, and the first one asked of `{expected}`, era {expected_era}"
    )]
    Other { authority: String, found: String, found_era: u64, expected: String, expected_era: u64 },
}

/// A directory that is being written. Dropped, it is gone.
pub struct Draft {
    target: PathBuf,
    dir: PathBuf,
    done: bool,
}

impl Draft {
    /// Beside its target, which must not be there, or be empty.
    pub fn begin(target: &Path) -> Result<Draft, TakeError> {
        let failed = |path: &Path, source| TakeError::Io { path: path.to_owned(), source };
        match fs::read_dir(target).map(|mut entries| entries.next().is_some()) {
            Ok(true) => return Err(TakeError::Exists(target.to_owned())),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(target, error)),
            _ => {}
        }
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        let dir = parent_of(target).join(format!(".{name}.writing-{}", std::process::id()));
        fs::create_dir_all(parent_of(target)).map_err(|error| failed(target, error))?;
        fs::create_dir(&dir).map_err(|error| failed(&dir, error))?;
        Ok(Draft { target: target.to_owned(), dir, done: false })
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// A directory in it.
    pub fn make_dir(&self, name: &str) -> Result<PathBuf, TakeError> {
        let path = self.path(name);
        fs::create_dir(&path).map_err(|source| TakeError::Io { path: path.clone(), source })?;
        Ok(path)
    }

    /// Writes a whole file.
    pub fn write(&self, name: &str, content: &[u8]) -> Result<(), TakeError> {
        let path = self.path(name);
        let written = File::create(&path).and_then(|mut file| {
            file.write_all(content)?;
            file.sync_all()
        });
        written.map_err(|source| TakeError::Io { path, source })
    }

    /// It gets its name. All files in it must be durable.
    pub fn finish(mut self) -> Result<(), TakeError> {
        let named = sync_dirs(&self.dir).and_then(|()| {
            // Only an empty one is replaced.
            if self.target.exists() {
                fs::remove_dir(&self.target)?;
            }
            fs::rename(&self.dir, &self.target)?;
            File::open(parent_of(&self.target))?.sync_all()
        });
        named.map_err(|source| TakeError::Io { path: self.target.clone(), source })?;
        self.done = true;
        Ok(())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.done {
            let _ = fs::remove_dir_all(&self.dir);
        }
    }
}

fn sync_dirs(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            sync_dirs(&path)?;
        }
    }
    File::open(dir)?.sync_all()
}

fn parent_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Takes an image of each, one after the other, into a new directory.
pub async fn take(first: &Remote, others: &[Remote], target: &Path) -> Result<Manifest, TakeError> {
    let draft = Draft::begin(target)?;
    let (head, entry) = take_one(first, &draft).await?;
    let mut manifest = Manifest::of(&head);
    manifest.push(entry);
    for remote in others {
        let (head, entry) = take_one(remote, &draft).await?;
        if (&manifest.cluster, manifest.era) != (&head.cluster, head.era) {
            return Err(TakeError::Other {
                authority: remote.authority()?.to_owned(),
                found: head.cluster,
                found_era: head.era,
                expected: manifest.cluster.clone(),
                expected_era: manifest.era,
            });
        }
        let is_same = |image: &ImageEntry| image.dc == entry.dc && image.aggregator() == entry.aggregator();
        if manifest.images.iter().any(is_same) {
            return Err(TakeError::Twice(entry.dc));
        }
        manifest.push(entry);
    }
    if let Some((dc, slots)) = manifest.gap() {
        return Err(TakeError::Gap { dc, slots });
    }
    let text = serde_json::to_vec_pretty(&manifest).expect("a manifest is JSON");
    draft.write(MANIFEST_FILE, &text)?;
    draft.finish()?;
    Ok(manifest)
}

/// Why an image is not taken any further.
#[derive(Debug, thiserror::Error)]
enum PieceError {
    #[error(transparent)]
    Format(#[from] FormatError),
    #[error(transparent)]
    Rows(#[from] RowError),
    #[error("it cannot be written: {reason}")]
    Write { reason: String },
}

/// Why an image has no file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum ImageNameError {
    #[error("it is of data centre {number} of {dcs}, which is no data centre")]
    NoDc { number: u16, dcs: usize },
    #[error("{dc:?} is no name of a data centre")]
    BadName { dc: String },
}

/// Follows an image that passes by: its digest, and what a manifest says of it. Of its rows nothing is kept.
struct Passing {
    records: RecordReader,
    digest: Context,
    bytes: u64,
    head: Option<Head>,
    part: Option<Part>,
    /// Of groups how far all shards are.
    cursors: BTreeMap<GroupId, LogIndex>,
}

impl Passing {
    fn push(&mut self, piece: &[u8]) -> Result<(), PieceError> {
        self.digest.update(piece);
        self.bytes += piece.len() as u64;
        self.records.push(piece);
        while let Some(record) = self.records.next_record()? {
            match record {
                Record::Head(head) => self.head = Some(head),
                Record::Part(part) => self.part = Some(part),
                Record::Rows(rows) => {
                    let cursors: Result<Vec<_>, RowError> =
                        rows.iter().filter_map(|(key, value)| cursors_in(key, value)).collect();
                    for (group, at) in cursors?.into_iter().flatten() {
                        self.cursors.entry(group).and_modify(|least| *least = at.min(*least)).or_insert(at);
                    }
                }
                Record::Ledger(_) | Record::Shard(_) | Record::End => {}
            }
        }
        Ok(())
    }
}

async fn take_one(remote: &Remote, draft: &Draft) -> Result<(Head, ImageEntry), TakeError> {
    let authority = remote.authority()?.to_owned();
    let part = draft.path("part");
    let failed = |source| TakeError::Io { path: part.clone(), source };
    let mut file = File::create(&part).map_err(failed)?;
    let records = RecordReader::new();
    let digest = Context::new(&SHA256);
    let mut passing = Passing { records, digest, bytes: 0, head: None, part: None, cursors: BTreeMap::new() };
    let mut full = None;
    let taken = remote.stream(BACKUP_PATH, |piece| {
        passing.push(piece)?;
        file.write_all(piece).map_err(|error| {
            let reason = error.to_string();
            full = Some(error);
            PieceError::Write { reason }
        })
    });
    let taken = taken.await;
    if let Some(error) = full {
        return Err(failed(error));
    }
    taken?;
    file.sync_all().map_err(failed)?;
    let cut_off = |reason: &dyn ToString| TakeError::Image { authority: authority.clone(), reason: reason.to_string() };
    passing.records.finish().map_err(|error| cut_off(&error))?;
    let head = passing.head.ok_or_else(|| cut_off(&"it says nothing of itself"))?;
    let (dc, file) = named_by(&head, passing.part.as_ref()).map_err(|error| cut_off(&error))?;
    let entry = ImageEntry {
        file,
        dc,
        part: passing.part,
        bytes: passing.bytes,
        sha256: hex(passing.digest.finish().as_ref()),
        taken_ms: head.taken_ms,
        ledger_index: head.ledger_index,
        groups: groups_of(&head, &passing.cursors.into_iter().collect::<Vec<_>>()),
    };
    fs::rename(&part, draft.path(&entry.file)).map_err(failed)?;
    Ok((head, entry))
}

/// The data centre that an image says it is of, and its file. The words of another process never become a path out of the directory.
fn named_by(head: &Head, part: Option<&Part>) -> Result<(String, String), ImageNameError> {
    let dc = head
        .dcs
        .get(usize::from(head.dc))
        .cloned()
        .ok_or(ImageNameError::NoDc { number: head.dc, dcs: head.dcs.len() })?;
    // No name of a data centre has a dot.
    let of = part.map(|part| format!(".{}", part.aggregator)).unwrap_or_default();
    let file = format!("{dc}{of}{IMAGE_SUFFIX}");
    if is_file_name(&file) { Ok((dc, file)) } else { Err(ImageNameError::BadName { dc }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemark_server::backup::format::IMAGE_VERSION;

    #[test]
    fn a_name_from_another_process_stays_in_the_directory() {
        let named = |dc: u16, name: &str| {
            let cluster = "t".to_owned();
            let dcs = vec![name.to_owned()];
            named_by(&Head { version: IMAGE_VERSION, cluster, era: 0, dc, dcs, taken_ms: 0, ledger_index: 0 }, None)
        };
        assert_eq!(named(0, "usa-0").unwrap(), ("usa-0".to_owned(), "usa-0.image".to_owned()));
        assert!(named(1, "usa-0").unwrap_err().to_string().contains("no data centre"));
        for name in ["../../etc/cron.d/x", "/x", "a/b", "..", ""] {
            assert!(named(0, name).unwrap_err().to_string().contains(&format!("{name:?}")), "{name:?}");
        }
    }
}
