//! `manifest.json`: which images a backup holds, and what they have to be.

use super::format::{Head, Part};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

pub const MANIFEST_FILE: &str = "manifest.json";
/// Version of the directory's format; with images of which each has a part of a view it is the second.
pub const MANIFEST_VERSION: u32 = 1;
pub const MANIFEST_VERSION_PARTS: u32 = 2;
/// Bytes of a manifest: a hundred for each group of each data centre.
const MANIFEST_BYTES_MAX: u64 = 64 << 20;

/// The file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    pub version: u32,
    pub cluster: String,
    pub era: u64,
    /// All data centres of the layout, by their numbers.
    pub dcs: Vec<String>,
    pub images: Vec<ImageEntry>,
}

/// The entry of one image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImageEntry {
    /// Its file, in the directory of the manifest.
    pub file: String,
    pub dc: String,
    /// Which part of the data centre's view, if not all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<Part>,
    pub bytes: u64,
    /// Of the whole file, in hexadecimal.
    pub sha256: String,
    /// Milliseconds since 1970, UTC.
    pub taken_ms: u64,
    /// The entry up to which the ledger was applied.
    pub ledger_index: u64,
    /// Of the data centre's groups: the entry of its log up to which it is contained.
    pub groups: Vec<GroupEntry>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupEntry {
    /// `DC/GROUP#INCARNATION`.
    pub group: String,
    pub index: u64,
}

impl ImageEntry {
    /// The aggregator of which it has a part; `None`: it has all.
    pub fn aggregator(&self) -> Option<&str> {
        self.part.as_ref().map(|part| part.aggregator.as_str())
    }
}

/// Why a directory is no backup.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: std::io::Error },
    #[error("{path}: {bytes} bytes: at most {MANIFEST_BYTES_MAX} allowed")]
    TooLong { path: PathBuf, bytes: u64 },
    #[error("{path}: {reason}")]
    Malformed { path: PathBuf, reason: String },
    #[error("{path}: {fault}")]
    Contradiction { path: PathBuf, fault: ManifestFault },
    #[error("{path} is of version {found}, and this program reads versions up to {MANIFEST_VERSION_PARTS}")]
    Version { path: PathBuf, found: u32 },
}

/// Why the parts of a manifest do not make a backup.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManifestFault {
    #[error("it names no image")]
    Empty,
    #[error("{file:?} names no file beside it")]
    NotBeside { file: String },
    #[error("{dc} is listed twice")]
    Twice { dc: String },
    #[error("{dc:?} is none of its data centres")]
    UnknownDc { dc: String },
    #[error("the images of {dc} are without its slots {slots:?}")]
    Gap { dc: String, slots: Vec<u16> },
}

/// Whether a name that came from elsewhere is of a file in the directory where it is used, and of none that is hidden.
pub fn is_file_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(['/', '\\', '\0']) && !name.starts_with('.')
}

impl Manifest {
    /// Of a cluster, without images yet.
    pub fn of(head: &Head) -> Manifest {
        let Head { cluster, era, dcs, .. } = head.clone();
        Manifest { version: MANIFEST_VERSION, cluster, era, dcs, images: Vec::new() }
    }

    /// Reads the manifest of a backup's directory.
    ///
    /// # Errors
    /// [`ManifestError`], naming the file.
    pub fn read(dir: &Path) -> Result<Manifest, ManifestError> {
        let path = dir.join(MANIFEST_FILE);
        let failed = |source| ManifestError::Io { path: path.clone(), source };
        let bytes = std::fs::metadata(&path).map_err(failed)?.len();
        if bytes > MANIFEST_BYTES_MAX {
            return Err(ManifestError::TooLong { path, bytes });
        }
        Manifest::parse(&path, &std::fs::read(&path).map_err(failed)?)
    }

    fn parse(path: &Path, text: &[u8]) -> Result<Manifest, ManifestError> {
        let malformed = |reason: String| ManifestError::Malformed { path: path.to_owned(), reason };
        let value: serde_json::Value = serde_json::from_slice(text).map_err(|error| malformed(error.to_string()))?;
        match value["version"].as_u64() {
            Some(version) if (MANIFEST_VERSION..=MANIFEST_VERSION_PARTS).any(|known| version == u64::from(known)) => {}
            Some(version) => {
                let found = u32::try_from(version).unwrap_or(u32::MAX);
                return Err(ManifestError::Version { path: path.to_owned(), found });
            }
            None => return Err(malformed("it has no version".to_owned())),
        }
        let manifest: Manifest = serde_json::from_value(value).map_err(|error| malformed(error.to_string()))?;
        manifest.check().map_err(|fault| ManifestError::Contradiction { path: path.to_owned(), fault })?;
        Ok(manifest)
    }

    fn check(&self) -> Result<(), ManifestFault> {
        for (at, image) in self.images.iter().enumerate() {
            if !is_file_name(&image.file) {
                return Err(ManifestFault::NotBeside { file: image.file.clone() });
            }
            let is_same = |other: &&ImageEntry| other.dc == image.dc && other.aggregator() == image.aggregator();
            if self.images[..at].iter().any(|other| other.file == image.file || is_same(&other)) {
                return Err(ManifestFault::Twice { dc: image.dc.clone() });
            }
            if !self.dcs.contains(&image.dc) {
                return Err(ManifestFault::UnknownDc { dc: image.dc.clone() });
            }
        }
        if let Some((dc, slots)) = self.gap() {
            return Err(ManifestFault::Gap { dc, slots });
        }
        if self.images.is_empty() { Err(ManifestFault::Empty) } else { Ok(()) }
    }

    /// Adds an image.
    pub fn push(&mut self, entry: ImageEntry) {
        if entry.part.is_some() {
            self.version = MANIFEST_VERSION_PARTS;
        }
        self.images.push(entry);
    }

    /// A data centre with shards of its view that are in no image.
    pub fn gap(&self) -> Option<(String, Vec<u16>)> {
        self.images.iter().find_map(|image| {
            image.part.as_ref()?;
            let of_dc = self.images.iter().filter(|other| other.dc == image.dc);
            // An aggregator that has split a shard knows of more shards than one that is still splitting it.
            let parts = of_dc.clone().filter_map(|other| other.part.as_ref());
            let slots = parts.map(|part| part.slots).max().unwrap_or_default();
            let is_whole = of_dc.clone().any(|other| other.part.is_none());
            let held: BTreeSet<u16> =
                of_dc.filter_map(|other| other.part.as_ref()).flat_map(|part| part.held.clone()).collect();
            let missing: Vec<u16> = (0..slots).filter(|slot| !held.contains(slot)).collect();
            (!is_whole && !missing.is_empty()).then(|| (image.dc.clone(), missing))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parse(change: impl Fn(&mut serde_json::Value)) -> Result<Manifest, String> {
        let image = ImageEntry {
            file: "usa-0.image".into(),
            dc: "usa-0".into(),
            part: None,
            bytes: 3,
            sha256: "00".into(),
            taken_ms: 1,
            ledger_index: 2,
            groups: vec![GroupEntry { group: "usa-0/0#7".into(), index: 4 }],
        };
        let cluster = "t".to_owned();
        let dcs = vec!["usa-0".to_owned()];
        let manifest = Manifest { version: MANIFEST_VERSION, cluster, era: 0, dcs, images: vec![image] };
        let mut value = serde_json::to_value(manifest).unwrap();
        change(&mut value);
        Manifest::parse(Path::new("m"), &serde_json::to_vec(&value).unwrap()).map_err(|error| error.to_string())
    }

    #[test]
    fn only_a_name_in_the_same_directory_is_a_file_name() {
        for name in ["", ".", "..", ".hidden", "a/b", "/etc/passwd", "../x", "a\\b", "a\0"] {
            assert!(!is_file_name(name), "{name:?}");
        }
        assert!(is_file_name("usa-0.image"));
    }

    #[test]
    fn what_is_not_understood_is_refused_and_said() {
        assert_eq!(parse(|_| {}).unwrap().images[0].dc, "usa-0");
        let refused = |change: &dyn Fn(&mut serde_json::Value)| parse(change).unwrap_err();
        assert!(refused(&|m| m["version"] = 9.into()).contains("version 9"));
        assert!(refused(&|m| m["more"] = 1.into()).contains("more"));
        assert!(refused(&|m| m["images"][0]["file"] = "../x".into()).contains("names no file beside it"));
        assert!(refused(&|m| m["images"][0]["dc"] = "asia-0".into()).contains("none of its data centres"));
        assert!(refused(&|m| m["images"] = serde_json::json!([])).contains("names no image"));
        let twice = |m: &mut serde_json::Value| m["images"] = vec![m["images"][0].clone(); 2].into();
        assert!(refused(&twice).contains("twice"));
    }

    #[test]
    fn parts_of_a_view_are_all_there_or_it_is_said_which_are_not() {
        let parts = |held: &[(&[u16], u16)]| {
            let part = |(at, (held, slots)): (usize, &(&[u16], u16))| {
                let aggregator = ["first", "second", "third"][at];
                json!({ "aggregator": aggregator, "held": held, "slots": slots })
            };
            let parts: Vec<serde_json::Value> = held.iter().enumerate().map(part).collect();
            parse(|m| {
                m["version"] = 2.into();
                let image = |(at, part): (usize, &serde_json::Value)| {
                    let mut image = m["images"][0].clone();
                    (image["file"], image["part"]) = (format!("usa-0-{at}.image").into(), part.clone());
                    image
                };
                m["images"] = parts.iter().enumerate().map(image).collect();
            })
        };
        let refused = |held: &[(&[u16], u16)]| parts(held).unwrap_err();
        assert_eq!(parts(&[(&[0, 1], 4), (&[1, 2], 4), (&[2, 3], 4)]).unwrap().images.len(), 3);
        assert!(refused(&[(&[0, 1], 4), (&[3, 1], 4)]).contains("the images of usa-0 are without its slots [2]"));
        assert!(refused(&[(&[], 4)]).contains("[0, 1, 2, 3]"));

        // Slot 1 was split into 4 and 5: it counts as held, and its parts are missed, also where one is still at the split.
        assert_eq!(parts(&[(&[0, 1, 2, 4], 6), (&[1, 3, 5], 6)]).unwrap().images.len(), 2);
        assert!(refused(&[(&[0, 1, 2, 4], 6), (&[1, 3], 6)]).contains("without its slots [5]"));
        assert_eq!(parts(&[(&[0, 1, 2, 3], 4), (&[0, 1, 4, 5], 6)]).unwrap().images.len(), 2);
        assert!(refused(&[(&[0, 1, 2, 3], 4), (&[1], 6)]).contains("without its slots [4, 5]"));
    }
}
