//! `manifest.json`: which images a backup holds, and what they have to be.

use super::format::Head;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

pub const MANIFEST_FILE: &str = "manifest.json";
/// Version of the directory's format.
pub const MANIFEST_VERSION: u32 = 1;
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

/// One image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImageEntry {
    /// Its file, in the directory of the manifest.
    pub file: String,
    pub dc: String,
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

/// Why a directory is no backup.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: std::io::Error },
    #[error("{path}: {bytes} bytes: at most {MANIFEST_BYTES_MAX} allowed")]
    TooLong { path: PathBuf, bytes: u64 },
    #[error("{path}: {reason}")]
    Malformed { path: PathBuf, reason: String },
    #[error("{path} is of version {found}, and this program reads version {MANIFEST_VERSION}")]
    Version { path: PathBuf, found: u32 },
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
            Some(version) if version == u64::from(MANIFEST_VERSION) => {}
            Some(version) => {
                let found = u32::try_from(version).unwrap_or(u32::MAX);
                return Err(ManifestError::Version { path: path.to_owned(), found });
            }
            None => return Err(malformed("it has no version".to_owned())),
        }
        let manifest: Manifest = serde_json::from_value(value).map_err(|error| malformed(error.to_string()))?;
        manifest.check().map_err(malformed)?;
        Ok(manifest)
    }

    fn check(&self) -> Result<(), String> {
        for (at, image) in self.images.iter().enumerate() {
            if !is_file_name(&image.file) {
                return Err(format!("{:?} names no file beside it", image.file));
            }
            if self.images[..at].iter().any(|other| other.file == image.file || other.dc == image.dc) {
                return Err(format!("{} stands there twice", image.dc));
            }
            if !self.dcs.contains(&image.dc) {
                return Err(format!("{:?} is none of its data centres", image.dc));
            }
        }
        if self.images.is_empty() { Err("it names no image".to_owned()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(change: impl Fn(&mut serde_json::Value)) -> Result<Manifest, String> {
        let image = ImageEntry {
            file: "usa-0.image".into(),
            dc: "usa-0".into(),
            bytes: 3,
            sha256: "00".into(),
            taken_ms: 1,
            ledger_index: 2,
            groups: vec![GroupEntry { group: "usa-0/0#7".into(), index: 4 }],
        };
        let (cluster, dcs) = ("t".to_owned(), vec!["usa-0".to_owned()]);
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
}
