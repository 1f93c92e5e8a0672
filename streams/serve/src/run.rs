//! A server from its start to its end.

use crate::engine::{Engine, MESSAGES_MAX, Message, Opened, Problem, open_archive, open_log};
use crate::feed_client::{Address, Scheme};
use crate::following::{Following, FollowingSettings};
use crate::http::{self, Listen, QueryOnly, Server, Service};
use crate::log::LOG_FILE;
use crate::node::{Kept, Node};
use crate::open::open_or_create_through;
use crate::pin_source::PinSource;
use crate::queries::{Queries, QueryParts};
use crate::query_stores::QueryStores;
use crate::settings::{QuerySettings, STOP_S, Settings, TlsFiles};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tidemark_streams_sql::process::forbid_inspection;
use tidemark_streams_store::catalogue::{Catalogue, CatalogueError};
use tidemark_streams_store::directory::{DirectoryError, MANIFEST, ReadOnly, open_to_read};
use tidemark_streams_store::uploads::Uploads;
use tidemark_tls::{Changes, RENEWAL_INTERVAL, ServerTls, TlsError, Trust};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Why a server does not start, or ends.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
    #[error(transparent)]
    Problem(#[from] Problem),
    #[error("--listen {listen}: {error}")]
    Listen { listen: SocketAddr, error: io::Error },
    #[error(
        "--listen {listen}: other machines reach it, and requests need no token: name --secret-file or --token-key-file, or listen on \
         127.0.0.1"
    )]
    Open { listen: SocketAddr },
    #[error(
        "--listen {listen}: other machines reach it, and tokens and rows would not be encrypted: name --tls-certificate-file and \
         --tls-key-file, or listen on 127.0.0.1; --plain-http allows it"
    )]
    Plain { listen: SocketAddr },
    #[error("--server {server}: HOST:PORT, http://HOST:PORT or https://HOST:PORT is expected")]
    Server { server: String },
    #[error(
        "--server {server}: it is on another machine, and tokens and rows would not be encrypted: name https://HOST:PORT, or \
         http://HOST:PORT together with --plain-http"
    )]
    PlainServer { server: String },
    #[error("--ca goes with a --server that begins with https://")]
    Ca,
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(
        "{path} is no longer the file that was opened: the folder was emptied or replaced while the server ran. The server stops, and \
         events that are in no copy of the folder are lost"
    )]
    Gone { path: String },
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// How often the files of the directory are looked at.
const PLACE_INTERVAL: Duration = Duration::from_secs(1);

/// Files of a directory that stay the same while a process has it.
struct Place(Vec<PlacedFile>);

/// A file, and which one it was when it was opened.
struct PlacedFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl PlacedFile {
    fn is_gone(&self) -> bool {
        match std::fs::metadata(&self.path) {
            Ok(found) => found.dev() != self.device || found.ino() != self.inode,
            // Others, such as a disk that fails, have alarms of their own.
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        }
    }
}

impl Place {
    fn of(dir: &Path) -> io::Result<Place> {
        let file = |name: &str| {
            let path = dir.join(name);
            let found = std::fs::metadata(&path)?;
            Ok(PlacedFile { path, device: found.dev(), inode: found.ino() })
        };
        [MANIFEST, LOG_FILE].into_iter().map(file).collect::<io::Result<_>>().map(Place)
    }

    /// The first file that is missing, or another one.
    fn first_gone(&self) -> Option<String> {
        self.0.iter().find(|file| file.is_gone()).map(|file| file.path.display().to_string())
    }

    async fn until_gone(&self) -> String {
        loop {
            tokio::time::sleep(PLACE_INTERVAL).await;
            if let Some(path) = self.first_gone() {
                return path;
            }
        }
    }
}

/// Serves until SIGTERM or SIGINT. `out` is told where it listens.
///
/// # Errors
/// [`ServeError`].
pub fn run(settings: Settings, out: &mut impl Write) -> Result<(), ServeError> {
    let listen = settings.listen;
    check_open(listen, settings.keys.is_some())?;
    let tls = identity(listen, settings.tls.as_ref(), settings.may_be_plain)?;
    let directory = open_or_create_through(&settings.dir, settings.store_layer.clone())?;
    let (sender, inbox) = sync_channel(MESSAGES_MAX);
    let log = open_log(&directory, &settings, &sender)?;
    let archive = open_archive(&directory, &settings, &log)?;
    let catalogue = Catalogue::open(&settings.dir, directory.id())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let bound = runtime.block_on(TcpListener::bind(listen));
    let listener = bound.map_err(|error| ServeError::Listen { listen, error })?;
    let address = listener.local_addr()?;
    let node = Arc::new(Node::new(settings, directory.reader()?, catalogue, sender));
    // Children for SQL run as the user of this process. They must not read its memory. The program beside this one may be installed later.
    forbid_inspection()?;
    node.set_log(Some(Arc::clone(&log)));
    node.set_pauses(directory.manifest().pauses());
    node.set_schema(directory.manifest().schema());
    node.set_kept(Kept::of(directory.manifest()));
    let engine = Engine { node: Arc::clone(&node), inbox, sessions: 0 };
    let thread = std::thread::Builder::new().name("owner".to_owned());
    let owner = thread.spawn(move || engine.run(Opened { directory, log, archive }))?;
    // A stop may come once the address is printed.
    let signals = runtime.block_on(async { Signals::new() })?;
    writeln!(out, "listening on {}://{address}", scheme(tls.as_ref()))?;
    out.flush()?;
    if let Some(tls) = tls.clone() {
        let node = Arc::clone(&node);
        runtime.spawn(keep_renewing(tls, move || node.counters().certificates_refused.add(1)));
    }
    let place = Place::of(&node.settings.dir)?;
    let gone = OnceLock::new();
    let stop = async {
        tokio::select! {
            () = signals.received() => {}
            path = place.until_gone() => gone.set(path).unwrap_or_default(),
        }
    };
    runtime.block_on(serve(Listen { listener, tls }, Server::new(&node), stop));
    if let Some(path) = gone.into_inner() {
        // The owner would write blobs of a manifest that is gone.
        runtime.shutdown_timeout(Duration::from_secs(1));
        return Err(ServeError::Gone { path });
    }
    // The queue is bounded, and the thread takes from it until it ends.
    let _ = node.engine.send(Message::Stop);
    let _ = owner.join();
    runtime.shutdown_timeout(Duration::from_secs(1));
    Ok(())
}

/// Answers queries until SIGTERM or SIGINT. It has no state: the manifest is followed from a server, and blobs are only read.
///
/// # Errors
/// [`ServeError`].
pub fn run_queries(settings: QuerySettings, out: &mut impl Write) -> Result<(), ServeError> {
    let QuerySettings { listen, keys, token, sql, .. } = settings;
    check_open(listen, keys.is_some())?;
    let tls = identity(listen, settings.tls.as_ref(), settings.may_be_plain)?;
    let trust = trust(&settings.servers, settings.ca.as_deref(), settings.may_be_plain)?;
    let QuerySettings { dir, servers, feed_age_max_s, store_layer, .. } = settings;
    let ReadOnly { id, reader } = open_to_read(&dir, &store_layer)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let bound = runtime.block_on(TcpListener::bind(listen));
    let listener = bound.map_err(|error| ServeError::Listen { listen, error })?;
    let address = listener.local_addr()?;
    forbid_inspection()?;
    let age_max = Duration::from_secs(feed_age_max_s);
    let stores = Arc::new(QueryStores::default());
    let follows = FollowingSettings { servers, age_max, token, trust, directory: id };
    let following = Arc::new(Following::new(follows, Arc::clone(&stores)));
    let source = PinSource::Follower(Arc::clone(&following));
    let parts = QueryParts { source, reader, stores, keys, tables: Uploads::of(&dir) };
    let queries = Arc::new(Queries::new(parts, &sql));
    let signals = runtime.block_on(async { Signals::new() })?;
    runtime.spawn(Arc::clone(&following).run());
    writeln!(out, "listening on {}://{address}", scheme(tls.as_ref()))?;
    out.flush()?;
    if let Some(tls) = tls.clone() {
        let queries = Arc::clone(&queries);
        runtime.spawn(keep_renewing(tls, move || queries.stores.counters.certificates_refused.add(1)));
    }
    let service = QueryOnly::new(queries, following);
    runtime.block_on(serve(Listen { listener, tls }, service, signals.received()));
    runtime.shutdown_timeout(Duration::from_secs(1));
    Ok(())
}

/// Refuses to listen for other machines without tokens.
fn check_open(listen: SocketAddr, has_keys: bool) -> Result<(), ServeError> {
    match listen.ip().is_loopback() || has_keys {
        true => Ok(()),
        false => Err(ServeError::Open { listen }),
    }
}

/// Reads the identity of a server with TLS. Refuses to listen for other machines without it, unless that is allowed.
fn identity(listen: SocketAddr, files: Option<&TlsFiles>, may_be_plain: bool) -> Result<Option<ServerTls>, ServeError> {
    match files {
        Some(TlsFiles { certificate, key }) => Ok(Some(ServerTls::read(certificate, key)?)),
        None if may_be_plain || listen.ip().is_loopback() => Ok(None),
        None => Err(ServeError::Plain { listen }),
    }
}

/// The authorities that servers are checked with; `None`: none has TLS. Refuses a server on another machine without it, unless that is
/// allowed and its address says so: a forgotten `https://` must not send the token as plain text.
fn trust(servers: &[String], ca: Option<&Path>, may_be_plain: bool) -> Result<Option<Trust>, ServeError> {
    let mut is_needed = false;
    for server in servers {
        let invalid = || ServeError::Server { server: server.clone() };
        let address = Address::parse(server).ok_or_else(invalid)?;
        let may_be_followed = match address.scheme {
            Scheme::Tls => true,
            Scheme::Plain => may_be_plain || address.is_loopback(),
            Scheme::Unnamed => address.is_loopback(),
        };
        if !may_be_followed {
            return Err(ServeError::PlainServer { server: server.clone() });
        }
        is_needed |= address.scheme == Scheme::Tls;
    }
    match (is_needed, ca) {
        (true, ca) => Ok(Some(Trust::new(ca)?)),
        (false, None) => Ok(None),
        (false, Some(_)) => Err(ServeError::Ca),
    }
}

/// Reads a renewed certificate and key from time to time. What cannot be used is told once, and what is used stays as it is.
async fn keep_renewing(tls: ServerTls, refused: impl Fn() + Send) {
    let mut told = Told::default();
    loop {
        tokio::time::sleep(RENEWAL_INTERVAL).await;
        // Looked at before they are read: what changes meanwhile is told again.
        let changed = tls.changed();
        let Err(error) = tls.renew() else { continue };
        refused();
        let why = error.to_string();
        if told.is_new(changed, &why) {
            let _ = writeln!(io::stderr(), "the certificate is not renewed, the old one stays: {why}");
        }
    }
}

/// The refusal of files that was told last.
#[derive(Default)]
struct Told(Option<(Changes, String)>);

impl Told {
    /// Whether the files have changed since, or are refused for another reason.
    fn is_new(&mut self, changed: Changes, why: &str) -> bool {
        let found = Some((changed, why.to_owned()));
        let is_new = self.0 != found;
        self.0 = found;
        is_new
    }
}

fn scheme(tls: Option<&ServerTls>) -> &'static str {
    if tls.is_some() { "https" } else { "http" }
}

/// Signals that stop the process.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// It is called on a runtime.
    fn new() -> io::Result<Signals> {
        Ok(Signals { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn received(mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

async fn serve(listen: Listen, service: impl Service, stop: impl Future<Output = ()>) {
    http::serve(listen, service, stop, Duration::from_secs(STOP_S)).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    #[test]
    fn plain_server_elsewhere_needs_its_scheme_and_the_option() {
        let is_followed = |server: &str, may_be_plain| trust(&[server.to_owned()], None, may_be_plain).is_ok();
        assert_eq!(["10.1.2.3:1", "http://10.1.2.3:1"].map(|server| is_followed(server, false)), [false; 2]);
        assert_eq!(["10.1.2.3:1", "http://10.1.2.3:1"].map(|server| is_followed(server, true)), [false, true]);
        assert!(["127.0.0.1:1", "http://localhost:1"].iter().all(|server| is_followed(server, false)));
        let said = trust(&["10.1.2.3:1".to_owned()], None, true).unwrap_err().to_string();
        assert!(said.contains("name https://HOST:PORT, or http://HOST:PORT together with --plain-http"), "{said}");
    }

    #[test]
    fn refused_certificate_is_told_once_for_each_change() {
        let mut told = Told::default();
        let changed = [Some(SystemTime::UNIX_EPOCH), None];
        assert!(told.is_new(changed, "no key"));
        assert!(!told.is_new(changed, "no key"));
        assert!(told.is_new(changed, "no certificate"));
        let later = [changed[0].map(|at| at + RENEWAL_INTERVAL), None];
        assert!(told.is_new(later, "no certificate"));
        assert!(!told.is_new(later, "no certificate"));
    }
}
