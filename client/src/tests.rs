//! The client as a program sees it: over the fake cluster, and over QUIC to a node that answers as the fake does.

use crate::fake::FakeCluster;
use crate::link::Event;
use crate::*;
use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tidemark_proto::client::LinkId;
use tidemark_proto::msg::FromClient;
use tidemark_proto::read::{ReadRequest, ReadResponse, ReadValue, ReadValues};
use tidemark_proto::wire::{self, channel};
use tidemark_transport::certs::ClusterCa;
use tidemark_transport::{Channel, Credentials, Endpoint, EndpointOptions, Identity, Role};
use tokio::sync::mpsc;

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future).await.unwrap_or_else(|_| panic!("{what} did not happen"))
}

async fn fake() -> (FakeCluster, Client) {
    let cluster = FakeCluster::new();
    let client = Client::builder().fake(&cluster).flush_interval(Duration::from_millis(1)).connect().await.unwrap();
    (cluster, client)
}

fn session(n: u32) -> SessionId {
    SessionToken::new(&n.to_le_bytes()).id()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_threads_add_is_there_after_a_flush() {
    let (cluster, client) = fake().await;
    let counter = client.counter("search", b"queries").unwrap();
    let threads = (0..4).map(|_| {
        let (client, counter) = (client.clone(), counter.clone());
        std::thread::spawn(move || {
            for key in 0..1_000u32 {
                counter.add(1);
                client.add_key("search", format!("key-{}", key % 10).as_bytes(), 2).unwrap();
            }
        })
    });
    threads.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
    soon("a flush", client.flush()).await.unwrap();
    assert_eq!(cluster.value("search", b"queries"), 4_000);
    assert_eq!(cluster.value("search", b"key-3"), 4 * 100 * 2);
    soon("the end", client.close()).await.unwrap();
}

#[tokio::test]
async fn exactly_one_hit_is_the_milestone() {
    let (cluster, client) = fake().await;
    cluster.milestone("search", b"queries", 50).unwrap();
    let counter = client.counter("search", b"queries").unwrap();
    let mut hits = Vec::new();
    for n in 0..100 {
        hits.push(client.hit(&counter, session(n)).await.unwrap());
    }
    let mut places = Vec::new();
    for hit in hits {
        places.push(soon("a place", hit).await.unwrap());
    }
    places.sort();
    let numbers = places.iter().filter(|place| matches!(place, Place::Number(_))).count();
    assert_eq!((numbers, places.last()), (99, Some(&Place::Milestone { at: 50, first: 50 })));
}

#[tokio::test]
async fn while_nothing_can_be_reached_counting_goes_on_and_hits_are_pending() {
    let (cluster, client) = fake().await;
    cluster.set_reachable(false);
    let counter = client.counter("search", b"queries").unwrap();
    (0..1_000).for_each(|_| counter.add(1));
    let hit = client.hit(&counter, session(1)).await.unwrap();
    let outcome = hit.within(Duration::from_millis(100)).await.unwrap();
    let HitOutcome::Pending(hit) = outcome else { panic!("placed by nobody") };
    cluster.set_reachable(true);
    assert_eq!(soon("a place", hit).await, Ok(Place::Counted));
    soon("a flush", client.flush()).await.unwrap();
    assert_eq!(cluster.value("search", b"queries"), 1_001);
}

#[tokio::test]
async fn links_that_break_count_nothing_twice() {
    let (cluster, client) = fake().await;
    let counter = client.counter("search", b"queries").unwrap();
    for round in 0..30 {
        counter.add(7);
        tokio::time::sleep(Duration::from_millis(3)).await;
        cluster.set_reachable(round % 2 == 0);
    }
    cluster.set_reachable(true);
    soon("a flush", client.flush()).await.unwrap();
    assert_eq!(cluster.value("search", b"queries"), 30 * 7);
}

#[tokio::test]
async fn what_is_refused_is_told_and_the_rest_is_counted() {
    let (cluster, losses) = (FakeCluster::new(), Arc::new(Mutex::new(Vec::new())));
    cluster.refuse_namespace("nowhere");
    let told = losses.clone();
    let builder = Client::builder().fake(&cluster).flush_interval(Duration::from_millis(1));
    let client = builder.on_loss(move |loss| told.lock().unwrap().push(loss)).connect().await.unwrap();
    client.counter("search", b"queries").unwrap().add(5);
    client.add(&CounterName::new("nowhere", b"k").unwrap(), 3).unwrap();
    let lost = soon("a flush", client.flush()).await;
    assert_eq!(lost, Err(FlushError::Losses { refused: 3, unknown: 0 }));
    assert_eq!(cluster.value("search", b"queries"), 5);
    assert!(matches!(losses.lock().unwrap()[..], [AddLoss::Failed { weight: 3, .. }]));
}

#[tokio::test]
async fn hits_past_the_limit_are_refused_or_wait() {
    let cluster = FakeCluster::new();
    cluster.set_reachable(false);
    let client = Client::builder().fake(&cluster).buffer_bytes_max(64 << 10).connect().await.unwrap();
    let name = CounterName::new("search", b"queries").unwrap();
    let limit = (64 << 10) / tidemark_proto::client::HIT_BYTES;
    let hits: Vec<Hit> = (0..limit).map(|n| client.try_hit(&name, session(n as u32)).unwrap()).collect();
    assert_eq!(client.try_hit(&name, session(0)).unwrap_err(), HitError::Overloaded { limit });
    let waits = client.hit(&name, session(0));
    cluster.set_reachable(true);
    assert_eq!(soon("room", waits).await.unwrap().await, Ok(Place::Counted));
    for hit in hits {
        assert_eq!(soon("a place", hit).await, Ok(Place::Counted));
    }
}

#[tokio::test]
async fn a_client_that_is_dropped_flushes_and_a_closed_one_refuses() {
    let (cluster, client) = fake().await;
    let counter = client.counter("search", b"queries").unwrap();
    counter.add(3);
    drop(client);
    let counted = async {
        while cluster.value("search", b"queries") < 3 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    soon("the last adds", counted).await;

    let (_, client) = fake().await;
    soon("the end", client.close()).await.unwrap();
    assert_eq!(client.flush().await, Err(FlushError::Closed));
    assert_eq!(client.hit(&counter, session(1)).await.unwrap_err(), HitError::Closed);
}

#[tokio::test]
async fn a_sleeping_client_wakes_for_an_add() {
    let (cluster, client) = fake().await;
    let counter = client.counter("search", b"queries").unwrap();
    for n in 1..=3 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        counter.add(1);
        let counted = async {
            while cluster.value("search", b"queries") < n {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        soon("the add", counted).await;
    }
}

#[tokio::test]
async fn options_outside_their_range_are_named() {
    let refused = Client::builder().connect().await.unwrap_err();
    assert_eq!(refused.to_string(), "no site: name at least one, or use a fake cluster");
    let builder = Client::builder().fake(&FakeCluster::new()).flush_interval(Duration::ZERO);
    let refused = builder.connect().await.unwrap_err();
    assert_eq!(refused.to_string(), "flush_interval_ms is 0: 1 to 10000 allowed");
}

fn credentials(ca: &ClusterCa, dc: &str, role: Role) -> Credentials {
    ca.issue(&Identity::new(ca.cluster(), dc, role, "one").unwrap(), 1).unwrap()
}

fn loopback() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

/// A node, or an aggregator, that answers as the fake cluster does.
async fn serve(endpoint: Endpoint, cluster: FakeCluster) {
    while let Some(connection) = endpoint.accept().await {
        let Ok(connection) = connection else { continue };
        let cluster = cluster.clone();
        tokio::spawn(async move {
            while let Ok((kind, channel)) = connection.accept_channel().await {
                match kind {
                    channel::INCREMENTS => serve_increments(channel, &cluster).await,
                    _ => serve_reads(channel, &cluster).await,
                }
            }
        });
    }
}

async fn serve_increments(channel: Channel, cluster: &FakeCluster) {
    let Channel { mut writer, mut reader } = channel;
    let (messages, from_client) = mpsc::channel(100);
    let (to_client, mut events) = mpsc::channel(100);
    let read = async move {
        while let Ok(Some(frame)) = reader.next().await {
            messages.send(wire::decode::<FromClient>(&frame).unwrap()).await.unwrap();
        }
    };
    let write = async {
        while let Some((_, event)) = events.recv().await {
            if let Event::Message(message) = event {
                writer.send_bytes(wire::encode(&message).into()).await.unwrap();
            }
        }
    };
    let serve = cluster.serve(LinkId(0), from_client, &to_client);
    tokio::select! { () = read => {}, () = serve => {}, () = write => {} }
}

async fn serve_reads(channel: Channel, cluster: &FakeCluster) {
    let Channel { mut writer, mut reader } = channel;
    let mut names = std::collections::BTreeMap::new();
    while let Ok(Some(frame)) = reader.next().await {
        let request: ReadRequest = wire::decode(&frame).unwrap();
        names.extend(request.defs);
        let asked: Vec<CounterName> = request.numbers.iter().map(|number| names[number].clone()).collect();
        let values = cluster.read(&asked).into_iter().map(ReadValue::from).collect();
        let response = ReadResponse { id: request.id, result: Ok(ReadValues { ledger_index: 0, values }) };
        writer.send_bytes(wire::encode(&response).into()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_quic_hits_are_placed_reads_are_answered_and_lost_sites_are_left() {
    let ca = ClusterCa::generate("demo").unwrap();
    let bind = |dc, role| Endpoint::bind(loopback(), credentials(&ca, dc, role), EndpointOptions::default()).unwrap();
    let clusters = [FakeCluster::new(), FakeCluster::new()];
    let mut builder = Client::builder().credentials(credentials(&ca, "usa-0", Role::Client));
    let mut nodes = Vec::new();
    for (dc, cluster) in ["usa-0", "asia-0"].into_iter().zip(&clusters) {
        let (node, aggregator) = (bind(dc, Role::Node), bind(dc, Role::Aggregator));
        let addrs = (node.local_addr(), aggregator.local_addr());
        builder = builder.site(Site { dc: dc.into(), node: addrs.0, aggregator: Some(addrs.1) });
        nodes.push((tokio::spawn(serve(node.clone(), cluster.clone())), node));
        tokio::spawn(serve(aggregator, cluster.clone()));
    }
    let client = builder.site_timeout(Duration::from_millis(300)).connect().await.unwrap();
    let name = CounterName::new("search", b"queries").unwrap();
    clusters[0].milestone("search", b"queries", 2).unwrap();
    client.counter("search", b"queries").unwrap().add(1);
    soon("a flush", client.flush()).await.unwrap();
    let hit = client.hit(&name, session(1)).await.unwrap();
    assert_eq!(soon("a place", hit).await, Ok(Place::Milestone { at: 2, first: 2 }));
    assert_eq!(soon("a read", client.get(&name)).await.unwrap().value, 2);
    let others: Vec<CounterName> =
        (0..5_000u32).map(|n| CounterName::new("search", &n.to_le_bytes()).unwrap()).collect();
    assert_eq!(soon("many reads", client.get_many(&others)).await.unwrap().len(), 5_000);

    nodes[0].0.abort();
    nodes[0].1.close("gone").await;
    client.add(&name, 40).unwrap();
    soon("a flush elsewhere", client.flush()).await.unwrap();
    assert_eq!((clusters[0].value("search", b"queries"), clusters[1].value("search", b"queries")), (2, 40));
    soon("the end", client.close()).await.unwrap();
}
