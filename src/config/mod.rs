//! The settings of a process: files, overridden by the environment, overridden by flags.
//!
//! Every key has one dotted name. `http.listen` stands as `listen` below `[http]` in the file, is `TIDEMARK_HTTP_LISTEN` in the environment
//! and `--set http.listen=VALUE` on the command line; the later wins. Settings that all processes of a cluster must have in common stand
//! apart, in the cluster's layout ([`ClusterFile`]).

mod cluster;
mod listen;
mod process;
mod sources;
mod webhooks;

pub use cluster::{ClusterFile, DcLayout, Layout, SeriesKeys};
pub use listen::{ListenAddress, ListenError};
pub use process::{AggregatorFile, GossipKeys, HttpKeys, LogKeys, NodeFile, NodeKeys, RowKeys, RowPlace, ViewKeys};
pub use sources::{Overrides, Settings};
pub use webhooks::{WebhookKeys, WebhookKeysError};

use std::path::{Path, PathBuf};

/// A configuration file is small; anything longer is not one.
pub const FILE_BYTES_MAX: u64 = 1 << 20;

/// Why a configuration was refused. Nothing was started.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{} has more than {FILE_BYTES_MAX} bytes", path.display())]
    TooLong { path: PathBuf },
    /// The text names line and key.
    #[error("{}: {message}", path.display())]
    Toml { path: PathBuf, message: String },
    #[error("{origin}: {key} is {value}; {expected}")]
    Value { origin: String, key: String, value: String, expected: String },
    #[error("--set {text}: KEY=VALUE expected")]
    Flag { text: String },
    #[error("--set: there is no key {key}; there are {known}")]
    UnknownKey { key: String, known: String },
}

/// Reads a small text file.
pub(crate) fn read(path: &Path) -> Result<String, ConfigError> {
    use std::io::Read;
    let failed = |source| ConfigError::Read { path: path.to_owned(), source };
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > FILE_BYTES_MAX { Err(ConfigError::TooLong { path: path.to_owned() }) } else { Ok(text) }
}

#[cfg(test)]
mod tests;
