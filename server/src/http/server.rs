//! The server: accepts connections up to a limit, serves them, and stops without cutting requests off.

use super::namespaces::check_namespace;
use super::own_errors::OwnErrors;
use super::patient::Patient;
use super::routes::{AggregatorRouter, NodeRouter};
use super::spans::of_connection;
use super::totals::Totals;
use super::winners::Winners;
use super::{Access, AggregatorProcess, BULKS_MAX, Failure, HEAD_BYTES_MAX, HEAD_TIMEOUT, STOP_TIMEOUT, TLS_TIMEOUT};
use crate::backend::LocalBackend;
use crate::log_level::LogLevel;
use crate::process::{NodeProcess, Process};
use crate::webhook::Webhooks;
use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use metrics_exporter_prometheus::PrometheusHandle;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tidemark_tls::ServerTls;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};
use tracing::Instrument;

/// After a failed accept (too many open files) the next try waits so long.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Server-sent events may hold one connection of this number: the others are for requests.
const EVENTS_SHARE: usize = 2;

/// How the server of an aggregator behaves.
#[derive(Clone)]
pub struct Options {
    pub access: Access,
    /// Connections at a time. More are told `overloaded` and closed.
    pub connections_max: usize,
    /// Subscriptions at a time; WebSockets no longer count as connections, server-sent events do. More: `503`.
    pub live_connections_max: usize,
    /// The source of `/metrics`.
    pub metrics: Option<PrometheusHandle>,
    /// The log of this process, which `/v1/log-level` shows and changes.
    pub log_level: Option<Arc<dyn LogLevel>>,
    /// Routes of a front end on the same port; it has its own page at `/`, and ours is at `/console`.
    pub front: Option<Router>,
    /// Receivers of awards, shown and asked for at `/v1/webhooks`.
    pub webhooks: Option<Webhooks>,
    /// All connections speak TLS.
    pub tls: Option<ServerTls>,
}

/// How the server of a node behaves.
#[derive(Clone)]
pub struct NodeOptions {
    pub access: Access,
    /// Connections at a time. More are told `overloaded` and closed.
    pub connections_max: usize,
    /// The source of `/metrics`.
    pub metrics: Option<PrometheusHandle>,
    /// The log of this process, which `/v1/log-level` shows and changes.
    pub log_level: Option<Arc<dyn LogLevel>>,
    /// All connections speak TLS.
    pub tls: Option<ServerTls>,
}

/// The state that all requests to a process share, as far as operations of every process need it.
pub(super) trait State: Send + Sync + 'static {
    type Process: Process;

    fn process(&self) -> &Self::Process;

    fn access(&self) -> &Access;

    fn metrics(&self) -> Option<&PrometheusHandle>;

    fn log_level(&self) -> Option<&dyn LogLevel>;

    /// Refuses a namespace that does not exist.
    fn check_namespace(&self, name: &str) -> Result<(), Failure>;
}

/// The state that all requests to a node share.
pub(super) struct NodeShared<N> {
    process: Arc<N>,
    access: Access,
    metrics: Option<PrometheusHandle>,
    log_level: Option<Arc<dyn LogLevel>>,
}

impl<N: NodeProcess> State for NodeShared<N> {
    type Process = N;

    fn process(&self) -> &N {
        &self.process
    }

    fn access(&self) -> &Access {
        &self.access
    }

    fn metrics(&self) -> Option<&PrometheusHandle> {
        self.metrics.as_ref()
    }

    fn log_level(&self) -> Option<&dyn LogLevel> {
        self.log_level.as_deref()
    }

    /// A node knows no namespaces: what it says of any is that aggregators serve it.
    fn check_namespace(&self, _: &str) -> Result<(), Failure> {
        Ok(())
    }
}

impl<B: AggregatorProcess> State for Shared<B> {
    type Process = B;

    fn process(&self) -> &B {
        &self.backend
    }

    fn access(&self) -> &Access {
        &self.access
    }

    fn metrics(&self) -> Option<&PrometheusHandle> {
        self.metrics.as_ref()
    }

    fn log_level(&self) -> Option<&dyn LogLevel> {
        self.log_level.as_deref()
    }

    fn check_namespace(&self, name: &str) -> Result<(), Failure> {
        check_namespace(self, name)
    }
}

/// The state that all requests to an aggregator share.
pub(super) struct Shared<B> {
    pub backend: Arc<B>,
    pub access: Access,
    pub metrics: Option<PrometheusHandle>,
    pub log_level: Option<Arc<dyn LogLevel>>,
    pub totals: Arc<Totals>,
    pub winners: Arc<Winners>,
    pub bulks: Semaphore,
    pub live: Arc<Semaphore>,
    pub live_max: usize,
    pub events: Arc<Semaphore>,
    pub events_max: usize,
    pub webhooks: Option<Webhooks>,
    pub stopping: watch::Receiver<bool>,
}

/// A running server. Dropping it ends it at once.
pub struct Server {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    live: Arc<Semaphore>,
    live_max: usize,
    accepting: JoinHandle<()>,
    /// For ever: they read totals, wake sessions, and renew the certificate.
    beside: Vec<JoinHandle<()>>,
}

impl Server {
    /// Serves a node on a bound listener. To be called within a tokio runtime.
    ///
    /// # Errors
    /// The listener's, if it has no address.
    pub fn start_node<N: NodeProcess>(
        listener: TcpListener,
        process: Arc<N>,
        options: NodeOptions,
    ) -> std::io::Result<Server> {
        let address = listener.local_addr()?;
        let NodeOptions { access, connections_max, metrics, log_level, tls } = options;
        let shared = Arc::new(NodeShared { process, access, metrics, log_level });
        let router = NodeRouter::new(shared).0;
        let (stop, stopping) = watch::channel(false);
        let beside = renewing(tls.as_ref());
        let accepting = tokio::spawn(accept(listener, tls, router, connections_max, stopping));
        Ok(Server { address, stop, live: Arc::new(Semaphore::new(0)), live_max: 0, accepting, beside })
    }

    /// Serves an aggregator of this process on a bound listener. To be called within a tokio runtime. Callers need not compile the
    /// operations, as they do with [`Server::start`].
    ///
    /// # Errors
    /// The listener's, if it has no address.
    pub fn start_local(listener: TcpListener, backend: Arc<LocalBackend>, options: Options) -> std::io::Result<Server> {
        Server::start(listener, backend, options)
    }

    /// Serves an aggregator on a bound listener. To be called within a tokio runtime.
    ///
    /// # Errors
    /// The listener's, if it has no address.
    pub fn start<B: AggregatorProcess>(
        listener: TcpListener,
        backend: Arc<B>,
        options: Options,
    ) -> std::io::Result<Server> {
        let address = listener.local_addr()?;
        let (stop, stopping) = watch::channel(false);
        let totals = Totals::new();
        let winners = Arc::<Winners>::default();
        let live_max = options.live_connections_max;
        let live = Arc::new(Semaphore::new(live_max));
        let events_max = options.connections_max / EVENTS_SHARE;
        let shared = Arc::new(Shared {
            backend: backend.clone(),
            access: options.access,
            metrics: options.metrics,
            log_level: options.log_level,
            totals: totals.clone(),
            winners: winners.clone(),
            bulks: Semaphore::new(BULKS_MAX),
            live: live.clone(),
            live_max,
            events: Arc::new(Semaphore::new(events_max)),
            events_max,
            webhooks: options.webhooks,
            stopping: stopping.clone(),
        });
        let waking = tokio::spawn({
            let backend = backend.clone();
            async move { winners.run(&*backend).await }
        });
        let reading = tokio::spawn(async move { totals.run(&*backend).await });
        let beside = renewing(options.tls.as_ref()).into_iter().chain([reading, waking]).collect();
        let router = AggregatorRouter::new(shared, options.front).0;
        let max = options.connections_max;
        let accepting = tokio::spawn(accept(listener, options.tls, router, max, stopping));
        Ok(Server { address, stop, live, live_max, accepting, beside })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes no more connections, lets requests under way finish for at most [`STOP_TIMEOUT`], and says goodbye to subscribers.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        let _ = (&mut self.accepting).await;
        let all = self.live.acquire_many(u32::try_from(self.live_max).unwrap_or(u32::MAX));
        let _ = tokio::time::timeout(STOP_TIMEOUT, all).await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
        self.beside.iter().for_each(JoinHandle::abort);
    }
}

/// The task that renews the certificate, where there is one.
fn renewing(tls: Option<&ServerTls>) -> Vec<JoinHandle<()>> {
    tls.cloned().map(|tls| tokio::spawn(tls.keep_renewing())).into_iter().collect()
}

async fn accept(
    listener: TcpListener,
    tls: Option<ServerTls>,
    router: Router,
    max: usize,
    mut stopping: watch::Receiver<bool>,
) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
            () = stopped(&mut stopping) => break,
        };
        match accepted {
            Ok((stream, peer)) if connections.len() < max => {
                let serving = serve(stream, tls.clone(), router.clone(), stopping.clone());
                connections.spawn(serving.instrument(of_connection(peer)));
            }
            // To say so over TLS would cost what there is no room for.
            Ok((stream, _)) if tls.is_some() => drop(stream),
            Ok((stream, _)) => turn_away(stream, max).await,
            Err(error) => {
                tracing::warn!(%error, "cannot accept an HTTP connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    let _ = tokio::time::timeout(STOP_TIMEOUT, async { while connections.join_next().await.is_some() {} }).await;
}

async fn serve(stream: TcpStream, tls: Option<ServerTls>, router: Router, stopping: watch::Receiver<bool>) {
    // Answers are small and wanted now.
    let _ = stream.set_nodelay(true);
    let stream = Patient::new(stream);
    let Some(tls) = tls else { return serve_http(stream, router, stopping).await };
    let mut ending = stopping.clone();
    let agreed = tokio::select! {
        agreed = tokio::time::timeout(TLS_TIMEOUT, tls.acceptor().accept(stream)) => agreed,
        () = stopped(&mut ending) => return,
    };
    match agreed {
        Ok(Ok(stream)) => serve_http(stream, router, stopping).await,
        Ok(Err(error)) => tracing::debug!(%error, "TLS was not agreed on"),
        Err(_) => tracing::debug!("TLS was not agreed on in time"),
    }
}

async fn serve_http<S>(stream: S, router: Router, mut stopping: watch::Receiver<bool>)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(HEAD_BYTES_MAX);
    let connection = builder
        .serve_connection(TokioIo::new(OwnErrors::new(stream)), TowerToHyperService::new(router))
        .with_upgrades();
    tokio::pin!(connection);
    let served = tokio::select! {
        served = connection.as_mut() => served,
        () = stopped(&mut stopping) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = served {
        tracing::debug!(%error, "an HTTP connection ended");
    }
}

/// The kernel's buffer of a new connection takes this answer whole, so a peer cannot hold us up here.
async fn turn_away(mut stream: TcpStream, max: usize) {
    let body = Failure::Overloaded { what: "HTTP connections".to_owned(), limit: max as u64 }.body();
    let head = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    let _ = stream.write_all(&[head.as_bytes(), &body].concat()).await;
    let _ = stream.shutdown().await;
}

/// Until the server stops or is dropped.
pub(super) async fn stopped(stopping: &mut watch::Receiver<bool>) {
    let _ = stopping.wait_for(|&stopping| stopping).await;
}
