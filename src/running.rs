//! How commands find a `tidemark serve` that runs on this machine: it describes itself in its data directory while it runs.
//!
//! `run.toml` names the address, and the input of `tidemark load`: a layout with the addresses of this run, the data centre's name, and a
//! client's credentials. A killed process leaves the file behind, so a reader must expect that no process listens.

use crate::config::{ClusterFile, DcLayout};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use tidemark_server::token::TOKEN_FILE;

/// Data directory of `tidemark serve`, and where commands look, unless another one is named.
pub const DATA_DIR: &str = "tidemark-data";
/// Port of HTTP: that of `tidemark serve`, of an aggregator, and of the process that commands ask, unless another one is named.
pub const HTTP_PORT: u16 = 7171;
/// Folder of the client's credentials in a data directory.
pub const CLIENT_DIR: &str = "clients/local";

const RUN_FILE: &str = "run.toml";
const CLUSTER_FILE: &str = "cluster.toml";
const HEADER: &str = "# Written by `tidemark serve`; it holds while that runs.\n";

/// A running `tidemark serve`. Paths are relative to the data directory in the file, and complete in memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Running {
    /// `http://HOST:PORT`.
    pub server: String,
    /// Layout with the addresses of this run.
    pub cluster: PathBuf,
    pub dc: String,
    /// Folder of a client's certificate, its key and the CA.
    pub credentials: PathBuf,
    /// File of the bearer token.
    pub token: PathBuf,
}

/// Why a data directory does not say what runs there.
#[derive(Debug, thiserror::Error)]
pub enum RunningError {
    #[error("cannot {verb} {}: {source}", path.display())]
    File { verb: &'static str, path: PathBuf, source: std::io::Error },
    #[error("{}: {reason}", path.display())]
    Content { path: PathBuf, reason: String },
    #[error("{}: no `tidemark serve` runs with this data directory", dir.display())]
    NotRunning { dir: PathBuf },
}

impl Running {
    /// Describes a process in its data directory.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn publish(dir: &Path, server: String, layout: &ClusterFile, dc: &DcLayout) -> Result<(), RunningError> {
        let text = |value: Result<String, toml::ser::Error>, path: &Path| {
            let refused =
                |error: toml::ser::Error| RunningError::Content { path: path.into(), reason: error.to_string() };
            value.map(|text| format!("{HEADER}{text}")).map_err(refused)
        };
        let running = Running {
            server,
            cluster: CLUSTER_FILE.into(),
            dc: dc.name.clone(),
            credentials: CLIENT_DIR.into(),
            token: TOKEN_FILE.into(),
        };
        let cluster = dir.join(CLUSTER_FILE);
        let run = dir.join(RUN_FILE);
        write(&cluster, &text(toml::to_string(layout), &cluster)?)?;
        write(&run, &text(toml::to_string(&running), &run)?)
    }

    /// Says that nothing runs any more.
    pub fn withdraw(dir: &Path) {
        let _ = std::fs::remove_file(dir.join(RUN_FILE));
    }

    /// The process that runs with a data directory, if there is one.
    ///
    /// # Errors
    /// The file cannot be read, or is none.
    pub fn find(dir: &Path) -> Result<Option<Running>, RunningError> {
        let path = dir.join(RUN_FILE);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if is_absent(&error) => return Ok(None),
            Err(source) => return Err(RunningError::File { verb: "read", path, source }),
        };
        let running: Running = toml::from_str(&text)
            .map_err(|error| RunningError::Content { path, reason: error.message().to_owned() })?;
        let Running { server, cluster, dc: name, credentials, token } = running;
        let cluster = dir.join(cluster);
        let credentials = dir.join(credentials);
        let token = dir.join(token);
        Ok(Some(Running { server, cluster, dc: name, credentials, token }))
    }

    /// The same; an error where nothing runs.
    ///
    /// # Errors
    /// As [`Running::find`], and [`RunningError::NotRunning`].
    pub fn must_find(dir: &Path) -> Result<Running, RunningError> {
        Running::find(dir)?.ok_or_else(|| RunningError::NotRunning { dir: dir.to_owned() })
    }
}

fn is_absent(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory)
}

/// Whole or not at all: a reader may come at any time.
fn write(path: &Path, text: &str) -> Result<(), RunningError> {
    let new = path.with_extension("new");
    let failed = |verb, path: &Path| {
        let path = path.to_owned();
        move |source| RunningError::File { verb, path, source }
    };
    std::fs::write(&new, text).map_err(failed("write", &new))?;
    std::fs::rename(&new, path).map_err(failed("create", path))
}
