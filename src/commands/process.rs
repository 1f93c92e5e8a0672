//! The common parts of `tidemark node` and `tidemark aggregator`: settings, credentials, logs, metrics, and the end of a process.

use crate::config::{ClusterFile, ConfigError, HttpKeys, ListenAddress, Overrides, Settings};
use crate::logs::{LogError, LogOptions};
use clap::Args;
use std::future::Future;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use tidemark_aggregator::{Cluster, DataCentre};
use tidemark_proto::ids::DcId;
use tidemark_transport::{BindError, Credentials, Endpoint, EndpointOptions, HostPort, Role};
use tokio::net::TcpListener;

use super::Outcome;

/// A process that was told to end and cannot is ended after this; nothing durable is lost.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// Peers are told that a process ends for at most this long.
const FAREWELL_TIMEOUT: Duration = Duration::from_millis(300);

/// Arguments of a process with a configuration file.
#[derive(Debug, Args)]
pub struct ProcessArgs {
    /// Configuration file; `deploy/` has a sample that explains every key
    #[arg(long)]
    config: PathBuf,
    /// Override one key of the configuration, such as http.listen=127.0.0.1:0; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Local address of the UDP socket that the cluster's processes dial: an IP address of this machine, :PORT or both, such as
    /// 0.0.0.0:7300. The same as --set listen=ADDR [default: the address of this process in the layout; for a host name, all addresses of
    /// this machine]
    #[arg(long, value_name = "ADDR")]
    listen: Option<ListenAddress>,
    #[command(flatten)]
    logs: LogOptions,
}

impl ProcessArgs {
    /// Starts logging and returns the settings: file, then environment, then flags.
    pub fn start<S: Settings>(self) -> Result<S, StartError> {
        let listen = self.listen.map(|listen| format!("listen={listen}"));
        let settings = S::load(&self.config, &Overrides::from_process(self.set.into_iter().chain(listen).collect()))?;
        self.logs.start()?;
        Ok(settings)
    }
}

/// Why a process does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Logs(#[from] LogError),
}

/// The identity of a process, on which the layout, its settings and its certificate agree.
pub struct Place {
    pub layout: ClusterFile,
    pub cluster: Cluster,
    pub dc: DcId,
    pub credentials: Credentials,
}

impl Place {
    /// Reads layout and credentials and compares them.
    pub fn load(layout: &Path, dc: &str, credentials: &Path, role: Role) -> Result<Place, PlaceError> {
        let file = ClusterFile::load(layout)?;
        let index =
            file.index_of(dc).ok_or_else(|| PlaceError::UnknownDc { path: layout.into(), dc: dc.to_owned() })?;
        let credentials_dir = credentials;
        let credentials = Credentials::load(credentials_dir)?;
        let own = credentials.identity();
        if (own.cluster(), own.dc(), own.role()) != (file.name.as_str(), dc, role) {
            let path = credentials_dir.to_owned();
            let found = own.to_string();
            let expected = format!("tidemark://{}/{dc}/{role}/…", file.name);
            return Err(PlaceError::Certificate { path, found, expected });
        }
        Ok(Place { cluster: cluster_of(&file), layout: file, dc: DcId(index), credentials })
    }

    /// Says goodbye to all peers. A peer that is away is not waited for.
    pub async fn close(endpoint: Endpoint, reason: &str) {
        let _ = tokio::time::timeout(FAREWELL_TIMEOUT, endpoint.close(reason)).await;
    }

    /// Opens the socket of this process, which others reach at `advertised`.
    pub fn bind(&self, listen: ListenAddress, advertised: &HostPort) -> Result<Endpoint, SocketError> {
        let options = EndpointOptions::of(self.credentials.identity().role());
        listen.bind(advertised, self.credentials.clone(), options).map_err(|source| match &source {
            BindError::Io { source: io, .. } if listen.is_advertised() && io.kind() == ErrorKind::AddrNotAvailable => {
                SocketError::NotHere { advertised: advertised.clone(), source }
            }
            BindError::InUse { .. } | BindError::Io { .. } | BindError::Option(_) | BindError::Credentials(_) => {
                SocketError::Bind(source)
            }
        })
    }
}

/// Why a process has no socket.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    #[error(transparent)]
    Bind(BindError),
    #[error(
        "{source}; the layout says that others reach this process at {advertised}: say with --listen where it listens itself"
    )]
    NotHere { advertised: HostPort, source: BindError },
}

/// Why the identity of a process differs from its settings.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Credentials(#[from] tidemark_transport::certs::FileError),
    #[error("{}: there is no [[dc]] named {dc}", path.display())]
    UnknownDc { path: PathBuf, dc: String },
    #[error("{}: the certificate is that of {found}, expected {expected}", path.display())]
    Certificate { path: PathBuf, found: String, expected: String },
}

fn cluster_of(file: &ClusterFile) -> Cluster {
    let layout = file.layout();
    let dc = |dc: &crate::config::DcLayout| DataCentre {
        name: dc.name.clone(),
        aggregators: dc.aggregators(),
        nodes: dc.nodes.clone(),
        placement: dc.placement().expect("checked when it was parsed"),
    };
    Cluster {
        name: layout.name.clone(),
        era: file.era,
        dcs: layout.dcs.iter().map(dc).collect(),
        voters: layout.voters.iter().map(|&voter| DcId(voter)).collect(),
        leader: DcId(layout.leader),
    }
}

/// Why a process has no socket for HTTP.
#[derive(Debug, thiserror::Error)]
pub enum HttpSocketError {
    #[error("http.listen: {listen} is in use by another process")]
    InUse { listen: SocketAddr },
    #[error("http.listen: cannot open {listen}: {source}")]
    Io { listen: SocketAddr, source: std::io::Error },
}

/// The HTTP interface's socket, bound before anything else is started: a port in use changes nothing.
#[allow(clippy::wildcard_enum_match_arm, reason = "io::ErrorKind is of another crate and grows")]
pub async fn bind_http(keys: &HttpKeys) -> Result<TcpListener, HttpSocketError> {
    TcpListener::bind(keys.listen).await.map_err(|error| match error.kind() {
        std::io::ErrorKind::AddrInUse => HttpSocketError::InUse { listen: keys.listen },
        _ => HttpSocketError::Io { listen: keys.listen, source: error },
    })
}

/// Names in data directories of nodes and aggregators; of files that are copied beside, the first part.
const OWN_FILES: [&str; 6] = ["group.", "group-", "view.", "shard-", "ledger.", "webhook"];
/// And whole names: marks, what HTTP interfaces keep there, and what file systems put there.
const OTHER_FILES: [&str; 5] = [
    "left",
    tidemark_aggregator::NEW_FILE,
    tidemark_server::token::TOKEN_FILE,
    tidemark_server::session::SESSION_KEYS_FILE,
    "lost+found",
];

/// The content of a data directory when a process starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataDir {
    /// It is absent or empty.
    New,
    /// It holds files of this program.
    Used,
}

/// Why a data directory is not used.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    #[error("data_dir {}: {source}", dir.display())]
    Io { dir: PathBuf, source: std::io::Error },
    #[error(
        "data_dir {} holds files of something else, such as {file}, and nothing of Tidemark: name a new or an empty directory",
        dir.display()
    )]
    Foreign { dir: PathBuf, file: String },
}

/// Refuses a data directory that holds files of something else, and nothing of this program.
pub fn check_data_dir(dir: &Path) -> Result<DataDir, DataDirError> {
    let refused = |source: std::io::Error| DataDirError::Io { dir: dir.to_owned(), source };
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(DataDir::New),
        Err(error) => return Err(refused(error)),
    };
    let mut foreign = None;
    for entry in entries {
        let name = entry.map_err(refused)?.file_name();
        let name = name.to_string_lossy();
        if OWN_FILES.iter().any(|own| name.starts_with(own)) || OTHER_FILES.contains(&&*name) {
            return Ok(DataDir::Used);
        }
        foreign = Some(name.into_owned());
    }
    match foreign {
        Some(file) => Err(DataDirError::Foreign { dir: dir.to_owned(), file }),
        None => Ok(DataDir::New),
    }
}

/// Runs a process to its end on a runtime of all cores.
pub fn block_on<F: Future<Output = Outcome>>(process: F) -> Outcome {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(process);
    // Only connections are left; everything that lasts has been stopped, or waited for long enough.
    runtime.shutdown_background();
    outcome
}

/// Waits until the process is told to end or has failed; then stops it, within a bound.
pub async fn until_end(failed: impl Future<Output = String>, stop: impl Future<Output = ()>) -> Outcome {
    let reason = tokio::select! {
        signal = tidemark_client::terminated() => signal.map(|()| None)?,
        reason = failed => Some(reason),
    };
    tracing::info!(reason = reason.as_deref().unwrap_or("told to end"), "stopping");
    if tokio::time::timeout(STOP_TIMEOUT, stop).await.is_err() {
        tracing::warn!(waited_s = STOP_TIMEOUT.as_secs(), "ended without waiting further");
    }
    match reason {
        None => Ok(ExitCode::SUCCESS),
        Some(reason) => Err(reason.into()),
    }
}
