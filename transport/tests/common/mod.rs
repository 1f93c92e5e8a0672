//! A small cluster on loopback, and waiting with a bound.
#![allow(dead_code, reason = "each test file uses a part")]

use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tidemark_transport::certs::ClusterCa;
use tidemark_transport::{Channel, Connection, Credentials, Endpoint, EndpointOptions, Identity, PeerName, Role};

/// No test waits longer for anything.
const BOUND: Duration = Duration::from_secs(20);

pub async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(BOUND, future).await {
        Ok(value) => value,
        Err(_) => panic!("{what} did not happen within {BOUND:?}"),
    }
}

pub fn loopback() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

pub fn credentials(ca: &ClusterCa, dc: &str, role: Role, name: &str) -> Credentials {
    ca.issue(&Identity::new(ca.cluster(), dc, role, name).unwrap(), 1).unwrap()
}

pub fn bind(credentials: Credentials, options: EndpointOptions) -> Endpoint {
    Endpoint::bind(loopback(), credentials, options).unwrap()
}

/// An aggregator of usa-0 and a node of asia-0 of one cluster.
pub struct Pair {
    pub server: Endpoint,
    pub client: Endpoint,
}

impl Pair {
    pub fn new(server: EndpointOptions, client: EndpointOptions) -> Self {
        let ca = ClusterCa::generate("demo").unwrap();
        Self {
            server: bind(credentials(&ca, "usa-0", Role::Aggregator, "a1"), server),
            client: bind(credentials(&ca, "asia-0", Role::Node, "n1"), client),
        }
    }

    /// The client's and the server's view of a new connection.
    pub async fn connect(&self) -> (Connection, Connection) {
        let expected = PeerName::any("usa-0", Role::Aggregator).unwrap();
        let both =
            async { tokio::join!(self.client.connect(self.server.local_addr(), &expected), self.server.accept()) };
        let (dialled, accepted) = soon("a connection", both).await;
        (dialled.unwrap(), accepted.unwrap().unwrap())
    }

    /// A new channel on a new connection, seen from both ends.
    pub async fn channel(&self) -> (Connection, Channel, Connection, Channel) {
        let (client, server) = self.connect().await;
        let ours = client.open_channel(7).await.unwrap();
        let (kind, theirs) = soon("a channel", server.accept_channel()).await.unwrap();
        assert_eq!(kind, 7);
        (client, ours, server, theirs)
    }
}
