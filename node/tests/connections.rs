//! A connection that the node gives up is ended, with the reason, so that its peer connects again instead of waiting for ever.

use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;
use tidemark_consensus::local::RowStore;
use tidemark_node::{Node, NodeOptions};
use tidemark_proto::ids::{ClientId, DcId, GroupId};
use tidemark_proto::msg::{Admission, ForWhom, FromClient, FromGroup, Within};
use tidemark_proto::node::NodeConfig;
use tidemark_proto::placement::Placement;
use tidemark_proto::wire::{self, channel};
use tidemark_transport::certs::{ClusterCa, Identity, Role};
use tidemark_transport::{Channel, Connection, ConnectionLost, Credentials, Endpoint, EndpointOptions, PeerName};

const CLUSTER: &str = "test";
const LOOPBACK: &str = "127.0.0.1:0";
const WAIT_MAX: Duration = Duration::from_secs(20);

struct World {
    ca: ClusterCa,
    node: Node,
    addr: SocketAddr,
    _dir: tempfile::TempDir,
}

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(WAIT_MAX, future).await.unwrap_or_else(|_| panic!("{what}: not within {WAIT_MAX:?}"))
}

impl World {
    async fn new() -> World {
        let ca = ClusterCa::generate(CLUSTER).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let endpoint = bind(&credentials(&ca, "usa-0", Role::Node));
        let addr = endpoint.local_addr();
        let node = Node::start(endpoint, options(dir.path(), addr)).await.unwrap();
        World { ca, node, addr, _dir: dir }
    }

    /// A peer's connection with one channel. The endpoint has to be kept.
    async fn connect(&self, dc: &str, role: Role, kind: u8) -> (Endpoint, Connection, Channel) {
        let endpoint = bind(&credentials(&self.ca, dc, role));
        let node = PeerName::any("usa-0", Role::Node).unwrap();
        let connection = soon("a connection", endpoint.connect(self.addr, &node)).await.unwrap();
        let mut channel = connection.open_channel(kind).await.unwrap();
        if kind == channel::INCREMENTS {
            channel.writer.send(&wire::encode(&ForWhom { group: 0 })).await.unwrap();
            let frame = soon("admission", channel.reader.next()).await.unwrap().expect("a frame");
            assert_eq!(wire::decode(&frame), Ok(Admission::Serves));
        } else {
            let head = Within { cluster: CLUSTER.to_owned(), group: 0, known: None };
            channel.writer.send(&wire::encode(&head)).await.unwrap();
        }
        (endpoint, connection, channel)
    }

    async fn aggregator(&self, dc: &str) -> (Endpoint, Connection, Channel) {
        self.connect(dc, Role::Aggregator, channel::GROUP).await
    }
}

fn credentials(ca: &ClusterCa, dc: &str, role: Role) -> Credentials {
    ca.issue(&Identity::new(CLUSTER, dc, role, "0").unwrap(), 1).unwrap()
}

fn bind(credentials: &Credentials) -> Endpoint {
    Endpoint::bind(LOOPBACK.parse().unwrap(), credentials.clone(), EndpointOptions::default()).unwrap()
}

fn options(dir: &Path, addr: SocketAddr) -> NodeOptions {
    let group = GroupId { dc: DcId(0), group: 0, incarnation: 0 };
    NodeOptions {
        data_dir: dir.to_owned(),
        cluster: CLUSTER.to_owned(),
        dc_name: "usa-0".to_owned(),
        dc: DcId(0),
        node: 0,
        nodes: vec![addr.into()],
        placement: Placement::new(1, &[], 1).unwrap(),
        core: NodeConfig::new(group, 2),
        flush_delay: Duration::ZERO,
        rows: RowStore::Beside,
        buckets_bytes_max: usize::MAX,
        fresh: false,
    }
}

async fn reason(connection: &Connection) -> String {
    match soon("the end of the connection", connection.closed()).await {
        ConnectionLost::ClosedByPeer { reason } => reason,
        other => panic!("{other}"),
    }
}

async fn hello(channel: &mut Channel) -> FromGroup {
    let frame = soon("the greeting", channel.reader.next()).await.unwrap().expect("a frame");
    wire::decode(&frame).unwrap()
}

#[tokio::test]
async fn a_process_of_another_era_is_refused() {
    let world = World::new().await;
    let (_aggregator, connection, _channel) = world.aggregator("usa-0").await;
    let mut other = connection.open_channel(channel::GROUP).await.unwrap();
    let head = Within { cluster: format!("{CLUSTER}, era 7"), group: 0, known: None };
    other.writer.send(&wire::encode(&head)).await.unwrap();
    let said = reason(&connection).await;
    assert!(said.starts_with("refused: ") && said.contains(", era 7`"), "{said}");
    world.node.stop().await;
}

#[tokio::test]
async fn a_message_that_is_none_ends_the_connection() {
    let world = World::new().await;
    let (_client, connection, mut channel) = world.connect("web", Role::Client, channel::INCREMENTS).await;
    channel.writer.send(&[255; 9]).await.unwrap();
    let said = reason(&connection).await;
    assert!(said.starts_with("malformed message: "), "{said}");
    let (_aggregator, connection, mut channel) = world.aggregator("usa-0").await;
    channel.writer.send(&[255; 9]).await.unwrap();
    let said = reason(&connection).await;
    assert!(said.starts_with("malformed message: "), "{said}");
    let (_aggregator, _connection, mut channel) = world.aggregator("usa-0").await;
    assert!(matches!(hello(&mut channel).await, FromGroup::Hello(_)), "the next one is served");
    world.node.stop().await;
}

#[tokio::test]
async fn an_aggregator_that_is_not_served_is_told_so() {
    let world = World::new().await;
    let (_foreign, connection, _channel) = world.aggregator("asia-0").await;
    assert_eq!(reason(&connection).await, "this is a node of usa-0: it does not serve the aggregator of asia-0");
    let (_first, replaced, mut channel) = world.aggregator("usa-0").await;
    assert!(matches!(hello(&mut channel).await, FromGroup::Hello(_)));
    let (_second, present, mut channel) = world.aggregator("usa-0").await;
    assert!(matches!(hello(&mut channel).await, FromGroup::Hello(_)), "every connection is greeted");
    assert_eq!(reason(&replaced).await, "replaced by a newer connection");
    drop(present);
    world.node.stop().await;
}

#[tokio::test]
async fn a_client_that_does_not_read_loses_its_connection() {
    let world = World::new().await;
    let (_client, connection, channel) = world.connect("web", Role::Client, channel::INCREMENTS).await;
    let Channel { mut writer, reader: _unread } = channel;
    let ask = FromClient::Fence { of: ClientId(1), lane: 63 };
    let ask = wire::encode(&ask);
    let flood = async { while writer.feed(&ask).await.is_ok() {} };
    soon("the end of the flood", flood).await;
    assert_eq!(reason(&connection).await, "reads too slowly");
    world.node.stop().await;
}
