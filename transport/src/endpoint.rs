//! An endpoint: one UDP socket that dials and is dialled.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use quinn::udp::UdpSocketState;
use quinn::{AsyncUdpSocket, ConnectionError, Incoming, Runtime, TokioRuntime, TransportConfig};
use rustls::pki_types::CertificateDer;
use thiserror::Error;
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::address::{Host, HostPort};
use crate::certs::trust::identity_of;
use crate::certs::{CertificateRefusal, Credentials, Identity, PeerName};
use crate::connection::{CLOSE_CODE, Connection};
use crate::link::LinkSocket;
use crate::lost::ConnectionLost;
use crate::options::{EndpointOptions, OptionError};
use crate::recognition;
use crate::resolve::{Names, ResolveError};
use crate::tls::{self, Verdict};

/// Connections, and failures, that wait to be accepted.
pub const ACCEPT_QUEUE_MAX: usize = 64;
/// Handshakes of diallers under way at once, those that wait for room in the accept queue included. More are refused:
/// [`ConnectError::Overloaded`].
pub const HANDSHAKES_MAX: usize = 256;
/// Dialling attempts that wait for the first look at them.
const INCOMING_MAX: usize = 1024;
/// Bytes of memory that such attempts may hold together.
const INCOMING_BYTES_MAX: u64 = 8 << 20;
/// How often an idle connection of [`Endpoint::noticing_within`] is kept alive within its timeout: three of four may be lost.
const PINGS_PER_TIMEOUT: u64 = 4;
/// The byte of the dialled side after it has checked the dialler: TLS 1.3 alone lets a dialler believe that it is connected before its
/// certificate was looked at.
const WELCOME: u8 = 1;
/// Of a name with several addresses the next one is dialled when the ones before have not answered for so long (RFC 8305, 5).
pub const NEXT_ADDRESS_AFTER: Duration = Duration::from_millis(250);
/// Named where a socket cannot say its own address.
const UNKNOWN_ADDR: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// An endpoint was not opened.
#[derive(Debug, Error)]
pub enum BindError {
    /// Another socket has the address.
    #[error("{addr} is in use by another process")]
    InUse {
        /// The address.
        addr: SocketAddr,
    },
    /// The operating system refused.
    #[error("cannot open {addr}: {source}")]
    Io {
        /// The address.
        addr: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// An option is out of range.
    #[error(transparent)]
    Option(#[from] OptionError),
    /// TLS does not take the credentials.
    #[error("the credentials are not usable: {0}")]
    Credentials(String),
}

/// The TLS alert (RFC 8446, 6) of the other side when it refused us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerAlert {
    /// It wants a certificate, and we showed none.
    CertificateRequired,
    /// Its CA is not ours.
    UnknownCa,
    /// Our certificate is expired, or not yet valid, by its clock.
    CertificateExpired,
    /// It expected another peer, or cannot read our certificate.
    BadCertificate,
    /// It does not speak `tidemark/1`.
    NoCommonProtocol,
    /// Any other alert.
    Other(u8),
}

impl PeerAlert {
    fn new(alert: u8) -> Self {
        match alert {
            42 => Self::BadCertificate,
            45 => Self::CertificateExpired,
            48 => Self::UnknownCa,
            116 => Self::CertificateRequired,
            120 => Self::NoCommonProtocol,
            other => Self::Other(other),
        }
    }
}

impl fmt::Display for PeerAlert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CertificateRequired => f.write_str("a certificate is required"),
            Self::UnknownCa => f.write_str("unknown CA"),
            Self::CertificateExpired => f.write_str("certificate expired or not yet valid"),
            Self::BadCertificate => f.write_str("bad certificate"),
            Self::NoCommonProtocol => f.write_str("no common protocol, expected tidemark/1"),
            Self::Other(alert) => write!(f, "TLS alert {alert}"),
        }
    }
}

/// A dialled address, and the host name that it was found by, if there was one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dialled {
    /// The address.
    pub addr: SocketAddr,
    /// The resolved name.
    pub name: Option<HostPort>,
}

impl From<SocketAddr> for Dialled {
    fn from(addr: SocketAddr) -> Self {
        Self { addr, name: None }
    }
}

impl fmt::Display for Dialled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{name} ({})", self.addr),
            None => self.addr.fmt(f),
        }
    }
}

/// A connection was not made by dialling.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ConnectError {
    /// We do not believe the peer's certificate.
    #[error("{addr} is refused: {refusal}")]
    Refused {
        /// The dialled address.
        addr: Dialled,
        /// Why.
        refusal: CertificateRefusal,
    },
    /// The peer does not believe ours.
    #[error("{addr} refuses us, {us} with the CA of {cluster}: {alert} ({reason})", cluster = us.cluster())]
    RefusedByPeer {
        /// The dialled address.
        addr: Dialled,
        /// Our identity.
        us: Identity,
        /// The kind of refusal.
        alert: PeerAlert,
        /// The peer's words.
        reason: String,
    },
    /// No answer came in time.
    #[error("{addr} (expected {expected}) did not answer within {waited_ms} ms")]
    TimedOut {
        /// The dialled address.
        addr: Dialled,
        /// The expected peer.
        expected: String,
        /// How long we waited.
        waited_ms: u64,
    },
    /// The peer has as many handshakes under way as it allows.
    #[error("{addr} has too many handshakes under way")]
    Overloaded {
        /// The dialled address.
        addr: Dialled,
    },
    /// The address cannot be dialled from this endpoint.
    #[error("{addr} cannot be dialled: {reason}")]
    Address {
        /// The address.
        addr: Dialled,
        /// Why not.
        reason: String,
    },
    /// The host name has no addresses now.
    #[error("the host name of {address} does not resolve: {reason}")]
    Unresolved {
        /// The dialled address.
        address: HostPort,
        /// Why not.
        reason: ResolveError,
    },
    /// The connection was lost during the handshake.
    #[error("{addr}: {lost}")]
    Lost {
        /// The dialled address.
        addr: Dialled,
        /// How.
        lost: ConnectionLost,
    },
}

impl ConnectError {
    /// Whether no address was dialled, as a host name has no addresses now. The log has said so.
    pub fn is_unresolved(&self) -> bool {
        matches!(self, Self::Unresolved { .. })
    }

    /// How much it says: of several addresses, that one knows us and does not want us says more than that another is silent.
    fn weight(&self) -> u8 {
        match self {
            Self::Unresolved { .. } | Self::Address { .. } => 0,
            Self::TimedOut { .. } => 1,
            Self::Lost { .. } | Self::Overloaded { .. } => 2,
            Self::Refused { .. } | Self::RefusedByPeer { .. } => 3,
        }
    }
}

/// A dialler was not admitted.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AcceptError {
    /// The dialler shows no certificate.
    #[error("{addr} shows no certificate, expected one of the cluster {cluster}")]
    NoCertificate {
        /// The dialler.
        addr: SocketAddr,
        /// Our cluster.
        cluster: String,
    },
    /// We do not believe the dialler's certificate.
    #[error("{addr} is refused: {refusal}")]
    Refused {
        /// The dialler.
        addr: SocketAddr,
        /// Why.
        refusal: CertificateRefusal,
    },
    /// The dialler speaks something else.
    #[error("{addr} does not speak tidemark/1")]
    Protocol {
        /// The dialler.
        addr: SocketAddr,
    },
    /// The dialler does not believe our certificate.
    #[error("{addr} refuses us: {alert} ({reason})")]
    RefusedByPeer {
        /// The dialler.
        addr: SocketAddr,
        /// The kind of refusal.
        alert: PeerAlert,
        /// The dialler's words.
        reason: String,
    },
    /// The handshake took too long.
    #[error("{addr} did not complete its handshake within {waited_ms} ms")]
    TimedOut {
        /// The dialler.
        addr: SocketAddr,
        /// How long we waited.
        waited_ms: u64,
    },
    /// The connection was lost during the handshake.
    #[error("{addr}: {lost}")]
    Lost {
        /// The dialler.
        addr: SocketAddr,
        /// How.
        lost: ConnectionLost,
    },
}

impl AcceptError {
    /// The dialler.
    pub fn addr(&self) -> SocketAddr {
        match self {
            Self::NoCertificate { addr, .. }
            | Self::Refused { addr, .. }
            | Self::Protocol { addr }
            | Self::RefusedByPeer { addr, .. }
            | Self::TimedOut { addr, .. }
            | Self::Lost { addr, .. } => *addr,
        }
    }
}

/// One UDP socket, client and server in one. Clones are the same endpoint; with the last one, or
/// [`close`](Self::close), its connections end.
#[derive(Clone)]
pub struct Endpoint {
    inner: Arc<Inner>,
    /// Settings of the connections that this clone dials, if they differ from the endpoint's.
    dialler: Option<(u64, Arc<TransportConfig>)>,
}

struct Inner {
    quic: quinn::Endpoint,
    setup: Arc<Setup>,
    local_addr: SocketAddr,
    accepted: Mutex<mpsc::Receiver<Result<Connection, AcceptError>>>,
    names: Names,
}

/// The context of every handshake.
struct Setup {
    credentials: Credentials,
    options: EndpointOptions,
    /// Settings of the connections that it dials.
    dialler: Arc<TransportConfig>,
    server: quinn::ServerConfig,
}

impl Endpoint {
    /// Opens the socket and begins to admit diallers. To be called within a tokio runtime.
    #[allow(clippy::wildcard_enum_match_arm, reason = "io::ErrorKind is of another crate and grows")]
    pub fn bind(addr: SocketAddr, credentials: Credentials, options: EndpointOptions) -> Result<Self, BindError> {
        options.check()?;
        let setup = Arc::new(Setup::new(credentials, options)?);
        let io = |source: io::Error| match source.kind() {
            io::ErrorKind::AddrInUse => BindError::InUse { addr },
            _ => BindError::Io { addr, source },
        };
        let socket = open_socket(addr, &setup.options).map_err(io)?;
        Self::start(socket, setup).map_err(io)
    }

    /// As [`bind`](Self::bind), on all addresses of this machine: of IPv6 and IPv4 where it has both.
    pub fn bind_any(port: u16, credentials: Credentials, options: EndpointOptions) -> Result<Self, BindError> {
        let bind = |ip: IpAddr| Self::bind((ip, port).into(), credentials.clone(), options.clone());
        match bind(Ipv6Addr::UNSPECIFIED.into()) {
            // In use is in use: an IPv4 socket beside that of another process would get a part of the datagrams.
            Err(BindError::Io { .. }) => bind(Ipv4Addr::UNSPECIFIED.into()),
            bound => bound,
        }
    }

    /// As [`bind`](Self::bind), on a free port, to dial these addresses. Host names may turn out to be of IPv6 or IPv4.
    pub fn bind_to_dial<'a>(
        addresses: impl IntoIterator<Item = &'a HostPort>,
        credentials: Credentials,
        options: EndpointOptions,
    ) -> Result<Self, BindError> {
        let is_ipv4 = |address: &HostPort| address.ip().is_some_and(|addr| addr.is_ipv4());
        match addresses.into_iter().all(is_ipv4) {
            true => Self::bind((Ipv4Addr::UNSPECIFIED, 0).into(), credentials, options),
            false => Self::bind_any(0, credentials, options),
        }
    }

    /// As [`bind`](Self::bind), on a socket that is open already, such as one of a [`MemoryNetwork`](crate::memory::MemoryNetwork).
    /// Its buffers are its opener's affair. Time is tokio's, which may be paused.
    pub fn bind_on(
        socket: Arc<dyn AsyncUdpSocket>,
        credentials: Credentials,
        options: EndpointOptions,
    ) -> Result<Self, BindError> {
        options.check()?;
        let addr = socket.local_addr().map_err(|source| BindError::Io { addr: UNKNOWN_ADDR, source })?;
        let setup = Arc::new(Setup::new(credentials, options)?);
        let io = |source| BindError::Io { addr, source };
        let socket = with_links(socket, &setup.options).map_err(io)?;
        Self::start(socket, setup).map_err(io)
    }

    /// The same endpoint, with dialled connections that end when nothing comes for `idle_timeout_ms`; on an idle connection a frame is sent
    /// and answered four times in that time.
    ///
    /// # Errors
    /// The timeout is outside its range.
    pub fn noticing_within(&self, idle_timeout_ms: u64) -> Result<Endpoint, OptionError> {
        let keep_alive_ms = (idle_timeout_ms / PINGS_PER_TIMEOUT).max(1);
        let options = EndpointOptions { idle_timeout_ms, keep_alive_ms, ..self.inner.setup.options.clone() };
        options.check()?;
        Ok(Endpoint { inner: self.inner.clone(), dialler: Some((idle_timeout_ms, options.transport(true))) })
    }

    /// A connection that this clone dials is lost when nothing comes for so long.
    pub fn idle_timeout(&self) -> Duration {
        let of_all = self.inner.setup.options.idle_timeout_ms;
        Duration::from_millis(self.dialler.as_ref().map_or(of_all, |(idle_timeout_ms, _)| *idle_timeout_ms))
    }

    /// Dials a peer and waits until both sides have checked each other: two round trips.
    ///
    /// A host name is resolved first, which takes [`RESOLVE_MAX`](crate::resolve::RESOLVE_MAX) at most. All its addresses are tried, each
    /// `NEXT_ADDRESS_AFTER` the one before or when that has failed, until one answers as the expected peer. Otherwise nothing is tried
    /// twice. On an error nothing is left behind.
    pub async fn connect(&self, to: impl Into<HostPort>, expected: &PeerName) -> Result<Connection, ConnectError> {
        let to = to.into();
        let name = match to.host() {
            Host::Ip(addr) => return self.connect_to(addr.into(), expected).await,
            Host::Name(name) => name,
        };
        let unresolved = |reason| ConnectError::Unresolved { address: to.clone(), reason };
        let found = self.inner.names.addresses(name).await.map_err(unresolved)?;
        let connection = self.connect_to_any(&to, found, expected).await?;
        self.inner.names.prefer(name, connection.remote_addr().ip());
        Ok(connection)
    }

    /// The next dialler that was admitted, or why one was not; `None` when the endpoint is closed.
    ///
    /// May be cancelled, and called from many tasks. An endpoint that never accepts admits
    /// [`ACCEPT_QUEUE_MAX`] + [`HANDSHAKES_MAX`] diallers, then none.
    pub async fn accept(&self) -> Option<Result<Connection, AcceptError>> {
        self.inner.accepted.lock().await.recv().await
    }

    /// Where the endpoint listens; the port that the system chose if 0 was asked for.
    pub fn local_addr(&self) -> SocketAddr {
        self.inner.local_addr
    }

    /// Our identity.
    pub fn identity(&self) -> &Identity {
        self.inner.setup.credentials.identity()
    }

    /// Closes all connections, and waits until their peers know or three timeouts of the longest round trip have
    /// passed.
    pub async fn close(&self, reason: &str) {
        self.inner.quic.close(CLOSE_CODE, reason.as_bytes());
        self.inner.quic.wait_idle().await;
    }

    /// Runs the endpoint on a socket.
    fn start(socket: Arc<dyn AsyncUdpSocket>, setup: Arc<Setup>) -> io::Result<Self> {
        let config = recognition::endpoint_config(&setup.credentials, setup.options.rng_seed);
        let server = setup.server.clone();
        let runtime = Arc::new(TokioRuntime);
        let quic = quinn::Endpoint::new_with_abstract_socket(config, Some(server), socket, runtime)?;
        let local_addr = quic.local_addr()?;
        let (admitted, accepted) = mpsc::channel(ACCEPT_QUEUE_MAX);
        tokio::spawn(admit_all(quic.clone(), setup.clone(), admitted));
        let names = Names::new(setup.options.resolver.clone());
        let inner = Inner { quic, setup, local_addr, accepted: Mutex::new(accepted), names };
        Ok(Self { inner: Arc::new(inner), dialler: None })
    }

    async fn connect_to(&self, to: Dialled, expected: &PeerName) -> Result<Connection, ConnectError> {
        let setup = &self.inner.setup;
        let name = expected.dns_name(setup.credentials.identity().cluster());
        match timeout(setup.options.handshake_timeout(), self.dial(&to, &name)).await {
            Ok(result) => result,
            Err(_) => Err(setup.timed_out(&to, name)),
        }
    }

    /// The first connection that comes about; of the errors, one that says most. Connections that come about at the same time end.
    async fn connect_to_any(
        &self,
        to: &HostPort,
        found: Vec<IpAddr>,
        expected: &PeerName,
    ) -> Result<Connection, ConnectError> {
        let mut attempts = JoinSet::new();
        let mut waiting = found.into_iter();
        let mut failed: Option<ConnectError> = None;
        loop {
            if let Some(ip) = waiting.next() {
                let next = Dialled { addr: (ip, to.port()).into(), name: Some(to.clone()) };
                let endpoint = self.clone();
                let expected = expected.clone();
                attempts.spawn(async move { endpoint.connect_to(next, &expected).await });
            }
            let ended = tokio::select! {
                ended = attempts.join_next() => ended,
                () = sleep(NEXT_ADDRESS_AFTER), if waiting.len() > 0 => continue,
            };
            match (ended, failed.take()) {
                (Some(Ok(Ok(connection))), _) => return Ok(connection),
                (Some(Ok(Err(error))), before) => {
                    let says_more = before.filter(|before| before.weight() >= error.weight());
                    failed = Some(says_more.unwrap_or(error));
                }
                (Some(Err(ended)), before) => {
                    if let Ok(panic) = ended.try_into_panic() {
                        std::panic::resume_unwind(panic);
                    }
                    failed = before;
                }
                (None, failed) => {
                    let address = to.clone();
                    let reason = ResolveError::NotDialled;
                    return Err(failed.unwrap_or(ConnectError::Unresolved { address, reason }));
                }
            }
        }
    }

    async fn dial(&self, to: &Dialled, name: &str) -> Result<Connection, ConnectError> {
        let setup = &self.inner.setup;
        let addr = to.addr;
        let verdict = Verdict::default();
        let config = setup
            .client(&verdict, self.dialler.as_ref().map(|(_, dialler)| dialler))
            .map_err(|error| ConnectError::Address { addr: to.clone(), reason: error.to_string() })?;
        let dialled = self.inner.quic.connect_with(config, addr, name);
        let dialled = dialled.map_err(|error| ConnectError::Address { addr: to.clone(), reason: error.to_string() })?;
        let failed = |error| setup.connect_error(to, name, &verdict, error);
        let quic = dialled.await.map_err(failed)?;
        await_welcome(&quic).await.map_err(failed)?;
        match peer_of(&quic) {
            Ok(peer) => Ok(Connection::new(quic, peer, setup.options.frame_bytes_max)),
            Err(refusal) => Err(ConnectError::Refused { addr: to.clone(), refusal }),
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.quic.close(CLOSE_CODE, b"endpoint dropped");
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Endpoint({} at {})", self.identity(), self.local_addr())
    }
}

impl Setup {
    fn new(credentials: Credentials, options: EndpointOptions) -> Result<Self, BindError> {
        let refused = |error: rustls::Error| BindError::Credentials(error.to_string());
        let crypto = tls::server(&credentials, &Verdict::default()).map_err(refused)?;
        let crypto = recognition::first_crypto(crypto, options.rng_seed.is_some());
        let mut server = quinn::ServerConfig::with_crypto(crypto);
        server.transport_config(options.transport(false));
        server.max_incoming(INCOMING_MAX).incoming_buffer_size_total(INCOMING_BYTES_MAX);
        let dialler = options.transport(true);
        Ok(Self { credentials, options, dialler, server })
    }

    fn client(
        &self,
        verdict: &Verdict,
        dialler: Option<&Arc<TransportConfig>>,
    ) -> Result<quinn::ClientConfig, rustls::Error> {
        let crypto = tls::client(&self.credentials, verdict)?;
        let mut config = quinn::ClientConfig::new(crypto);
        config.transport_config(dialler.unwrap_or(&self.dialler).clone());
        Ok(config)
    }

    fn server(&self, verdict: &Verdict) -> Result<Arc<quinn::ServerConfig>, rustls::Error> {
        let mut config = self.server.clone();
        config.crypto = tls::server(&self.credentials, verdict)?;
        Ok(Arc::new(config))
    }

    fn timed_out(&self, to: &Dialled, expected: String) -> ConnectError {
        ConnectError::TimedOut { addr: to.clone(), expected, waited_ms: self.options.handshake_timeout_ms }
    }

    #[allow(clippy::wildcard_enum_match_arm, reason = "ConnectionError is of another crate and grows")]
    fn connect_error(&self, to: &Dialled, name: &str, verdict: &Verdict, error: ConnectionError) -> ConnectError {
        let addr = to.clone();
        if let Some(refusal) = verdict.take() {
            return ConnectError::Refused { addr, refusal };
        }
        if let Some((alert, reason)) = alert_of_peer(&error) {
            let us = self.credentials.identity().clone();
            return ConnectError::RefusedByPeer { addr, us, alert, reason };
        }
        match error {
            ConnectionError::TimedOut => self.timed_out(to, name.to_owned()),
            ConnectionError::ConnectionClosed(close)
                if close.error_code == quinn::TransportErrorCode::CONNECTION_REFUSED =>
            {
                ConnectError::Overloaded { addr }
            }
            other => ConnectError::Lost { addr, lost: other.into() },
        }
    }

    fn accept_error(&self, addr: SocketAddr, verdict: &Verdict, error: ConnectionError) -> AcceptError {
        if let Some(refusal) = verdict.take() {
            return AcceptError::Refused { addr, refusal };
        }
        if let Some((alert, reason)) = alert_of_peer(&error) {
            return AcceptError::RefusedByPeer { addr, alert, reason };
        }
        match (alert_of_ours(&error), error) {
            (Some(PeerAlert::CertificateRequired), _) => {
                AcceptError::NoCertificate { addr, cluster: self.credentials.identity().cluster().to_owned() }
            }
            (Some(PeerAlert::NoCommonProtocol), _) => AcceptError::Protocol { addr },
            (_, error) => AcceptError::Lost { addr, lost: error.into() },
        }
    }

    async fn admit(&self, incoming: Incoming) -> Result<Connection, AcceptError> {
        let addr = incoming.remote_address();
        // Of an IPv4 peer that comes to an IPv6 socket, its IPv4 address.
        let addr = SocketAddr::new(addr.ip().to_canonical(), addr.port());
        let waited_ms = self.options.handshake_timeout_ms;
        let shaken = timeout(self.options.handshake_timeout(), self.shake_hands(addr, incoming)).await;
        shaken.unwrap_or(Err(AcceptError::TimedOut { addr, waited_ms }))
    }

    async fn shake_hands(&self, addr: SocketAddr, incoming: Incoming) -> Result<Connection, AcceptError> {
        let verdict = Verdict::default();
        let failed = |error| self.accept_error(addr, &verdict, error);
        let config = self.server(&verdict).expect("the credentials were usable when the endpoint was opened");
        let quic = incoming.accept_with(config).map_err(failed)?.await.map_err(failed)?;
        let peer = peer_of(&quic).map_err(|refusal| AcceptError::Refused { addr, refusal })?;
        welcome(&quic).await.map_err(failed)?;
        Ok(Connection::new(quic, peer, self.options.frame_bytes_max))
    }
}

/// Admits diallers until the endpoint is closed or all acceptors are dropped.
async fn admit_all(quic: quinn::Endpoint, setup: Arc<Setup>, admitted: mpsc::Sender<Result<Connection, AcceptError>>) {
    let mut handshakes = JoinSet::new();
    while let Some(incoming) = quic.accept().await {
        while handshakes.try_join_next().is_some() {}
        if handshakes.len() >= HANDSHAKES_MAX {
            incoming.refuse();
            continue;
        }
        let setup = setup.clone();
        let admitted = admitted.clone();
        handshakes.spawn(async move {
            // Fails when the endpoint is gone, and the connection with it.
            let _ = admitted.send(setup.admit(incoming).await).await;
        });
    }
}

fn open_socket(addr: SocketAddr, options: &EndpointOptions) -> io::Result<Arc<dyn AsyncUdpSocket>> {
    let socket = UdpSocket::bind(addr)?;
    let state = UdpSocketState::new((&socket).into())?;
    let bytes = options.socket_buffer_bytes as usize;
    for set in
        [state.set_send_buffer_size((&socket).into(), bytes), state.set_recv_buffer_size((&socket).into(), bytes)]
    {
        if let Err(error) = set {
            tracing::warn!(%addr, bytes, %error, "the kernel does not give the socket its buffers");
        }
    }
    with_links(TokioRuntime.wrap_udp_socket(socket)?, options)
}

fn with_links(socket: Arc<dyn AsyncUdpSocket>, options: &EndpointOptions) -> io::Result<Arc<dyn AsyncUdpSocket>> {
    match &options.link_plan {
        Some(plan) => Ok(LinkSocket::wrap(socket, plan.clone())?),
        None => Ok(socket),
    }
}

async fn welcome(quic: &quinn::Connection) -> Result<(), ConnectionError> {
    let mut stream = quic.open_uni().await?;
    // Either write fails only with the connection, which its next use reports.
    let _ = stream.write_all(&[WELCOME]).await;
    let _ = stream.finish();
    Ok(())
}

async fn await_welcome(quic: &quinn::Connection) -> Result<(), ConnectionError> {
    let mut stream = quic.accept_uni().await?;
    match stream.read_exact(&mut [0]).await {
        Err(quinn::ReadExactError::ReadError(quinn::ReadError::ConnectionLost(error))) => Err(error),
        _ => Ok(()),
    }
}

/// The identity in the peer's certificate, which TLS has checked.
fn peer_of(quic: &quinn::Connection) -> Result<Identity, CertificateRefusal> {
    let shown = quic.peer_identity().and_then(|any| any.downcast::<Vec<CertificateDer<'static>>>().ok());
    let chain = shown.unwrap_or_default();
    let first = chain.first().ok_or_else(|| CertificateRefusal::Malformed("none was shown".into()))?;
    identity_of(first)
}

/// The TLS alert with which the peer ended the handshake, and its words.
fn alert_of_peer(error: &ConnectionError) -> Option<(PeerAlert, String)> {
    let ConnectionError::ConnectionClosed(close) = error else {
        return None;
    };
    let alert = tls_alert(close.error_code)?;
    Some((alert, String::from_utf8_lossy(&close.reason).into_owned()))
}

/// The TLS alert with which we ended the handshake.
fn alert_of_ours(error: &ConnectionError) -> Option<PeerAlert> {
    let ConnectionError::TransportError(error) = error else {
        return None;
    };
    tls_alert(error.code)
}

/// QUIC carries alerts as 0x100 + alert (RFC 9001, 4.8).
fn tls_alert(code: quinn::TransportErrorCode) -> Option<PeerAlert> {
    let code = u64::from(code).checked_sub(0x100)?;
    u8::try_from(code).ok().map(PeerAlert::new)
}
