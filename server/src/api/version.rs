//! Versions of answers: up to where the logs of one data centre were counted. A read can ask for at least that.

use super::Failure;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// Bytes of a version's text, at most.
const TEXT_BYTES_MAX: usize = 16 << 10;
const SEPARATOR: char = '~';

/// The last entry of each group's log that a reading of one data centre shows. Text: `DC`, then `GROUP~INCARNATION~ENTRY` of each group,
/// all separated by `~`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadVersion {
    dc: String,
    /// By number and incarnation of the group.
    entries: BTreeMap<(u16, u32), u64>,
}

/// Why a reading does not satisfy a caller that asks for at least a version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VersionError {
    #[error("the version is of {of}, and this is {own}: read at an aggregator of {of}, or without a version")]
    Elsewhere { of: String, own: String },
    #[error("the version is of incarnation {incarnation} of group {group}, which no longer counts here")]
    OtherIncarnation { group: u16, incarnation: u32 },
    #[error("the version is of entry {wanted} of group {group}, and the log of the group has {known}")]
    Unknown { group: u16, wanted: u64, known: u64 },
}

impl ReadVersion {
    pub fn new(dc: impl Into<String>, entries: impl IntoIterator<Item = ((u16, u32), u64)>) -> ReadVersion {
        ReadVersion { dc: dc.into(), entries: entries.into_iter().collect() }
    }

    /// Whether a reading of this version shows all that one of `wanted` does.
    ///
    /// # Errors
    /// It does not, and later ones will not either.
    pub fn covers(&self, wanted: &ReadVersion) -> Result<(), VersionError> {
        if self.dc != wanted.dc {
            return Err(VersionError::Elsewhere { of: wanted.dc.clone(), own: self.dc.clone() });
        }
        for (&(group, incarnation), &wanted) in &wanted.entries {
            match self.entries.get(&(group, incarnation)) {
                None => return Err(VersionError::OtherIncarnation { group, incarnation }),
                Some(&known) if known < wanted => return Err(VersionError::Unknown { group, wanted, known }),
                Some(_) => {}
            }
        }
        Ok(())
    }
}

impl fmt::Display for ReadVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.dc)?;
        let mut entries = self.entries.iter();
        entries.try_for_each(|((group, incarnation), entry)| write!(f, "~{group}~{incarnation}~{entry}"))
    }
}

/// A text is no version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VersionTextError {
    #[error("{bytes} bytes: at most {TEXT_BYTES_MAX} allowed")]
    TooLong { bytes: usize },
    #[error("no version: take `version` from the answer to an increment")]
    Malformed,
}

impl FromStr for ReadVersion {
    type Err = VersionTextError;

    fn from_str(text: &str) -> Result<ReadVersion, VersionTextError> {
        let refused = || VersionTextError::Malformed;
        if text.len() > TEXT_BYTES_MAX {
            return Err(VersionTextError::TooLong { bytes: text.len() });
        }
        let mut parts = text.split(SEPARATOR);
        let dc = parts.next().filter(|dc| !dc.is_empty()).ok_or_else(refused)?;
        let numbers: Vec<&str> = parts.collect();
        if numbers.is_empty() || !numbers.len().is_multiple_of(3) {
            return Err(refused());
        }
        let mut entries = BTreeMap::new();
        for part in numbers.chunks_exact(3) {
            let entry = || Some(((part[0].parse().ok()?, part[1].parse().ok()?), part[2].parse().ok()?));
            let (group, entry) = entry().ok_or_else(refused)?;
            entries.insert(group, entry);
        }
        Ok(ReadVersion { dc: dc.to_owned(), entries })
    }
}

impl From<VersionError> for Failure {
    fn from(error: VersionError) -> Failure {
        let code = match &error {
            VersionError::Elsewhere { .. } => "version_elsewhere",
            VersionError::OtherIncarnation { .. } | VersionError::Unknown { .. } => "version_unknown",
        };
        Failure::Conflict { code, message: error.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(dc: &str, entries: &[((u16, u32), u64)]) -> ReadVersion {
        ReadVersion::new(dc, entries.iter().copied())
    }

    #[test]
    fn a_version_is_read_as_it_is_written() {
        let all = version("europe-0", &[((0, 17), 1_234), ((1, 18), 0)]);
        assert_eq!(all.to_string(), "europe-0~0~17~1234~1~18~0");
        assert_eq!(all.to_string().parse(), Ok(all));
        for wrong in ["", "europe-0", "europe-0~0", "europe-0~0~17~x", "~0~17~1", "e~0~17~1~2"] {
            assert!(wrong.parse::<ReadVersion>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_version_covers_earlier_ones_of_its_data_centre_only() {
        let read = version("europe-0", &[((0, 17), 10), ((1, 18), 5)]);
        assert_eq!(read.covers(&version("europe-0", &[((0, 17), 10)])), Ok(()));
        let later = read.covers(&version("europe-0", &[((1, 18), 6)]));
        assert_eq!(later, Err(VersionError::Unknown { group: 1, wanted: 6, known: 5 }));
        let refounded = read.covers(&version("europe-0", &[((1, 4), 1)]));
        assert_eq!(refounded, Err(VersionError::OtherIncarnation { group: 1, incarnation: 4 }));
        let elsewhere = read.covers(&version("usa-0", &[((0, 17), 1)]));
        assert!(matches!(elsewhere, Err(VersionError::Elsewhere { .. })));
    }
}
