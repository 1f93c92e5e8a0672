//! A server from its start to its end.

use crate::engine::{Engine, MESSAGES_MAX, Message, Opened, Problem, open_archive, open_log};
use crate::following::{Following, FollowingSettings};
use crate::http::{self, QueryOnly, Server, Service};
use crate::node::{Kept, Node};
use crate::pin_source::PinSource;
use crate::queries::{Queries, QueryParts};
use crate::query_stores::QueryStores;
use crate::secret::{Role, Secret};
use crate::settings::{QuerySettings, STOP_S, Settings};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;
use tidemark_streams_sql::process::forbid_inspection;
use tidemark_streams_store::catalogue::{Catalogue, CatalogueError};
use tidemark_streams_store::directory::{Directory, DirectoryError, IfMissing, ReadOnly, open_to_read};
use tidemark_streams_store::uploads::Uploads;
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
        "--listen {listen}: other machines reach it, and requests need no token: name --secret-file, or listen on 127.0.0.1"
    )]
    Open { listen: SocketAddr },
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Serves until SIGTERM or SIGINT. `out` is told where it listens.
///
/// # Errors
/// [`ServeError`].
pub fn run(settings: Settings, out: &mut impl Write) -> Result<(), ServeError> {
    let listen = settings.listen;
    check_open(listen, settings.secret.as_ref())?;
    let directory = Directory::open_through(&settings.dir, IfMissing::Create, settings.store_layer.clone())?;
    let (sender, inbox) = sync_channel(MESSAGES_MAX);
    let log = open_log(&directory, &settings, &sender)?;
    let archive = open_archive(&directory, &settings, &log)?;
    let catalogue = Catalogue::open(&settings.dir, directory.id())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let bound = runtime.block_on(TcpListener::bind(listen));
    let listener = bound.map_err(|error| ServeError::Listen { listen, error })?;
    let address = listener.local_addr()?;
    let node = Arc::new(Node::new(settings, directory.reader()?, catalogue, sender));
    // Children for SQL run as the user of this process. They must not read its memory. Their program may be installed later.
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
    writeln!(out, "listening on http://{address}")?;
    out.flush()?;
    runtime.block_on(serve(listener, Server::new(&node), signals));
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
    let QuerySettings { dir, listen, servers, feed_age_max_s, secret, sql, store_layer } = settings;
    check_open(listen, secret.as_ref())?;
    let ReadOnly { id, reader } = open_to_read(&dir, &store_layer)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let bound = runtime.block_on(TcpListener::bind(listen));
    let listener = bound.map_err(|error| ServeError::Listen { listen, error })?;
    let address = listener.local_addr()?;
    forbid_inspection()?;
    let token = secret.as_ref().map(|secret| secret.token(Role::Follower));
    let age_max = Duration::from_secs(feed_age_max_s);
    let stores = Arc::new(QueryStores::default());
    let follows = FollowingSettings { servers, age_max, token, directory: id };
    let following = Arc::new(Following::new(follows, Arc::clone(&stores)));
    let source = PinSource::Follower(Arc::clone(&following));
    let parts = QueryParts { source, reader, stores, secret, tables: Uploads::of(&dir) };
    let queries = Arc::new(Queries::new(parts, &sql));
    let signals = runtime.block_on(async { Signals::new() })?;
    runtime.spawn(Arc::clone(&following).run());
    writeln!(out, "listening on http://{address}")?;
    out.flush()?;
    let service = QueryOnly::new(queries, following);
    runtime.block_on(serve(listener, service, signals));
    runtime.shutdown_timeout(Duration::from_secs(1));
    Ok(())
}

/// Refuses to listen for other machines without tokens.
fn check_open(listen: SocketAddr, secret: Option<&Secret>) -> Result<(), ServeError> {
    match listen.ip().is_loopback() || secret.is_some() {
        true => Ok(()),
        false => Err(ServeError::Open { listen }),
    }
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
}

async fn serve(listener: TcpListener, service: impl Service, signals: Signals) {
    let Signals { mut terminate, mut interrupt } = signals;
    let stop = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    http::serve(listener, service, stop, Duration::from_secs(STOP_S)).await;
}
