//! Host names are resolved anew at each dial: a peer may come back at another address, and need not be known yet.

mod common;

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::{bind, credentials, loopback, soon};
use tidemark_transport::certs::{CertificateRefusal, ClusterCa};
use tidemark_transport::resolve::Resolving;
use tidemark_transport::{
    BindError, ConnectError, Connection, ConnectionLost, Endpoint, EndpointOptions, HostPort, PeerName, ResolveError,
    Resolver, Role,
};

/// Between two dials.
const PAUSE: Duration = Duration::from_millis(50);
const HOST: &str = "node-0.test";

/// Names that a test may change.
#[derive(Debug, Default)]
struct Table(Mutex<BTreeMap<String, Vec<IpAddr>>>);

impl Table {
    fn set(&self, name: &str, addresses: &[IpAddr]) {
        self.0.lock().unwrap().insert(name.to_owned(), addresses.to_vec());
    }
}

impl Resolver for Table {
    fn resolve<'a>(&'a self, name: &'a str) -> Resolving<'a> {
        let found = self.0.lock().unwrap().get(name).cloned();
        Box::pin(async move { found.ok_or_else(|| io::Error::other("no such name")) })
    }
}

/// A client, and nodes of one data centre.
struct World {
    ca: ClusterCa,
    table: Arc<Table>,
    client: Endpoint,
}

fn ip(last: u8) -> IpAddr {
    Ipv4Addr::new(127, 0, 0, last).into()
}

impl World {
    fn new() -> World {
        let ca = ClusterCa::generate("demo").unwrap();
        let table = Arc::<Table>::default();
        let options =
            EndpointOptions { resolver: table.clone(), handshake_timeout_ms: 2_000, ..EndpointOptions::default() };
        let client = bind(credentials(&ca, "usa-0", Role::Client, "c"), options);
        World { ca, table, client }
    }

    /// A node's endpoint; an endpoint that has just ended may still hold the address for a moment.
    async fn node(&self, number: u8, addr: SocketAddr) -> Endpoint {
        let own = credentials(&self.ca, "usa-0", Role::Node, &number.to_string());
        let binding = async {
            loop {
                match Endpoint::bind(addr, own.clone(), EndpointOptions::default()) {
                    Err(BindError::InUse { .. }) => tokio::time::sleep(PAUSE).await,
                    bound => return bound.unwrap(),
                }
            }
        };
        soon("a socket", binding).await
    }

    async fn connect(&self, port: u16) -> Result<Connection, ConnectError> {
        let expected = PeerName::one("usa-0", Role::Node, "0").unwrap();
        let address: HostPort = format!("{HOST}:{port}").parse().unwrap();
        soon("an outcome", self.client.connect(address, &expected)).await
    }

    /// Dials again and again, as processes do.
    async fn until_connected(&self, port: u16) -> Connection {
        let dialling = async {
            loop {
                match tokio::time::timeout(Duration::from_secs(2), self.connect(port)).await {
                    Ok(Ok(connection)) => return connection,
                    Ok(Err(_)) | Err(_) => tokio::time::sleep(PAUSE).await,
                }
            }
        };
        soon("a connection", dialling).await
    }
}

#[tokio::test]
async fn link_comes_back_when_a_peer_restarts_at_another_address() {
    let world = World::new();
    let node = world.node(0, loopback()).await;
    let port = node.local_addr().port();
    world.table.set(HOST, &[ip(1)]);
    let first = world.until_connected(port).await;
    assert_eq!(first.remote_addr(), (ip(1), port).into());
    node.close("moves").await;
    drop(node);
    assert!(matches!(soon("the end", first.closed()).await, ConnectionLost::ClosedByPeer { .. }));
    // Meanwhile another node of the data centre has the address: it is not taken for the one that had the name.
    let _other = world.node(1, (ip(1), port).into()).await;
    let refused = world.connect(port).await.unwrap_err();
    assert!(
        matches!(&refused, ConnectError::Refused { refusal: CertificateRefusal::WrongName { .. }, .. }),
        "{refused}"
    );
    assert!(refused.to_string().starts_with(&format!("{HOST}:{port} (127.0.0.1:{port}) is refused")), "{refused}");
    let _moved = world.node(0, (ip(2), port).into()).await;
    world.table.set(HOST, &[ip(2)]);
    let second = world.until_connected(port).await;
    assert_eq!((second.remote_addr(), second.peer().name()), ((ip(2), port).into(), "0"));
}

#[tokio::test]
async fn name_that_does_not_resolve_is_an_error_until_it_does() {
    let world = World::new();
    let node = world.node(0, loopback()).await;
    let port = node.local_addr().port();
    let error = world.connect(port).await.unwrap_err();
    let address = format!("{HOST}:{port}").parse().unwrap();
    let reason = ResolveError::Failed { reason: "no such name".to_owned() };
    assert_eq!(error, ConnectError::Unresolved { address, reason });
    assert_eq!(error.to_string(), format!("the host name of {HOST}:{port} does not resolve: no such name"));
    assert!(error.is_unresolved());
    world.table.set(HOST, &[ip(1)]);
    assert_eq!(world.until_connected(port).await.peer().name(), "0");
}

#[tokio::test]
async fn all_addresses_of_a_name_are_tried_and_the_one_that_answered_first_next_time() {
    let world = World::new();
    let node = world.node(0, loopback()).await;
    let port = node.local_addr().port();
    let _silent = UdpSocket::bind((ip(3), port)).unwrap();
    let _other = world.node(1, (ip(4), port).into()).await;
    // The endpoint is of IPv4: the first cannot be dialled, the second does not answer, the third is another peer.
    world.table.set(HOST, &[Ipv6Addr::LOCALHOST.into(), ip(3), ip(4), ip(1)]);
    let began = Instant::now();
    let connection = world.connect(port).await.unwrap();
    assert_eq!((connection.remote_addr().ip(), connection.peer().name()), (ip(1), "0"));
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    for _ in 0..3 {
        assert_eq!(world.connect(port).await.unwrap().remote_addr().ip(), ip(1));
    }
    node.close("ends").await;
    drop(node);
    let error = world.connect(port).await.unwrap_err();
    assert!(matches!(error, ConnectError::Refused { .. }), "a refusal says more than silence: {error}");
}

#[tokio::test]
async fn endpoint_on_all_addresses_is_reached_by_each_and_dials_both_families() {
    let world = World::new();
    let node = credentials(&world.ca, "usa-0", Role::Node, "0");
    let port = UdpSocket::bind(loopback()).unwrap().local_addr().unwrap().port();
    let node_endpoint = Endpoint::bind_any(port, node.clone(), EndpointOptions::default()).unwrap();
    assert_eq!(node_endpoint.local_addr().port(), port);
    assert!(node_endpoint.local_addr().ip().is_unspecified());
    for last in [1, 2] {
        world.table.set(HOST, &[ip(last)]);
        let connection = world.until_connected(port).await;
        let accepted = soon("the dialler", node_endpoint.accept()).await.unwrap().unwrap();
        assert_eq!(accepted.remote_addr().ip(), ip(1), "an IPv4 address, whatever the socket is");
        drop(connection);
        tokio::time::sleep(tidemark_transport::resolve::REUSE).await;
    }
    let taken = Endpoint::bind_any(port, node.clone(), EndpointOptions::default()).unwrap_err();
    assert!(matches!(taken, BindError::InUse { .. }), "{taken}");
    let dialler = |addresses: &[&str]| {
        let addresses: Vec<HostPort> = addresses.iter().map(|address| address.parse().unwrap()).collect();
        Endpoint::bind_to_dial(&addresses, node.clone(), EndpointOptions::default()).unwrap()
    };
    assert!(dialler(&["127.0.0.1:1", "127.0.0.2:1"]).local_addr().is_ipv4());
    let any = dialler(&["127.0.0.1:1", "localhost:1"]);
    let expected = PeerName::any("usa-0", Role::Node).unwrap();
    let address: HostPort = format!("localhost:{port}").parse().unwrap();
    let connection = soon("a connection", any.connect(&address, &expected)).await.unwrap();
    assert!(connection.remote_addr().ip().is_loopback());
}
