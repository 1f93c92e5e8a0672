//! The client as a program sees it: over the fake cluster, and over QUIC to a node that answers as the fake does.

mod edges;
mod queries;

use crate::fake::FakeCluster;
use crate::link_event::Event;
use crate::*;
use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};
use tidemark_proto::client::LinkId;
use tidemark_proto::msg::{Admission, ForWhom, FromClient};
use tidemark_proto::read::{ReadRequest, ReadResponse, ReadValue, ReadValues};
use tidemark_proto::series::{Granularity, Kept, OutOfRange, Retention, SeriesPolicy};
use tidemark_proto::wait::{Heard, WAITS_MAX, WaitAnswer, WaitError, WaitOutcome, WaitRequest};
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
        let client = client.clone();
        let counter = counter.clone();
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
    let cluster = FakeCluster::new();
    let losses = Arc::new(Mutex::new(Vec::new()));
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

/// Hours kept for a day; events up to an hour late and a minute ahead.
fn hours() -> SeriesPolicy {
    let retention = Retention::new(vec![Kept { granularity: Granularity::HOUR, ttl_s: 86_400 }]).unwrap();
    SeriesPolicy::new(retention, 3_600, 60, OutOfRange::Refused).unwrap()
}

#[tokio::test]
async fn what_is_added_with_its_time_counts_at_that_time_and_what_is_too_late_is_told() {
    let cluster = FakeCluster::new();
    let losses = Arc::new(Mutex::new(Vec::new()));
    cluster.keep_series("site", hours());
    cluster.let_go_down("site");
    let told = losses.clone();
    let builder = Client::builder().fake(&cluster).flush_interval(Duration::from_millis(1));
    let client = builder.on_loss(move |loss| told.lock().unwrap().push(loss)).connect().await.unwrap();
    let views = client.counter("site", b"views").unwrap();
    let name = CounterName::new("site", b"views").unwrap();
    let now = SystemTime::now().unix_time().unwrap();
    views.add_at(5, now.minus(1_800)).unwrap();
    client.add_at(&name, 2, now.minus(1_800)).unwrap();
    views.subtract_at(1, now.minus(1_800)).unwrap();
    views.add(10);
    views.add_at(100, now.minus(7_200)).unwrap();
    let hit = client.hit_at(&views, Some(session(1)), 3, now.minus(600)).await.unwrap();
    assert_eq!(soon("a place", hit).await, Ok(Place::Counted));
    let late = soon("a refusal", client.hit_at(&views, None, 1, now.minus(9_000)).await.unwrap()).await.unwrap_err();
    assert!(late.to_string().contains("at most 3600 s allowed"), "{late}");
    let back = client.take_back_at(&views, 1, now.plus(3_600)).await.unwrap();
    let ahead = soon("a refusal", back).await.unwrap_err();
    assert!(ahead.to_string().contains("s ahead: at most 60 s allowed"), "{ahead}");
    // Whether it is refused here or by the cluster, and before or after the flush was asked for.
    let _ = soon("a flush", client.flush()).await;
    assert_eq!(cluster.value("site", b"views"), 5 + 2 - 1 + 10 + 3);
    let between = |from_s, to_s| cluster.counted_between("site", b"views", now.minus(from_s), now.minus(to_s));
    assert_eq!((between(1_860, 1_740), between(601, 599), between(9_000, 3_600)), (6, 3, 0));
    assert_eq!(cluster.counted_between("site", b"views", now.minus(1), now.plus(60)), 10, "without a time it is now");
    let losses = std::mem::take(&mut *losses.lock().unwrap());
    let [AddLoss::Failed { weight: 100, half: Half::Up, event: Some(event), .. }] = losses[..] else {
        panic!("{losses:?}")
    };
    assert_eq!(event, now.minus(7_200));
    assert!(views.add_at(1, SystemTime::UNIX_EPOCH - Duration::from_secs(5)).is_err());
    soon("the end", client.close()).await.unwrap();
    assert_eq!(views.add_at(1, now), Err(AddError::Closed));
}

#[tokio::test]
async fn times_are_kept_while_nothing_can_be_reached() {
    let (cluster, client) = fake().await;
    cluster.keep_series("site", hours());
    cluster.set_reachable(false);
    let views = client.counter("site", b"views").unwrap();
    let now = SystemTime::now().unix_time().unwrap();
    (0..3_000).for_each(|s| views.add_at(1, now.minus(s)).unwrap());
    tokio::time::sleep(Duration::from_millis(20)).await;
    cluster.set_reachable(true);
    soon("a flush", client.flush()).await.unwrap();
    assert_eq!(cluster.counted_between("site", b"views", now.minus(3_060), now.plus(1)), 3_000);
    let half_way = cluster.counted_between("site", b"views", now.minus(1_500), now.plus(1));
    assert!((1_440..=1_560).contains(&half_way), "{half_way}: to the minute");
}

#[tokio::test]
async fn what_is_subtracted_is_counted_apart_and_no_milestone_is_about_it() {
    let (cluster, client) = fake().await;
    cluster.let_go_down("stock");
    cluster.milestone("stock", b"shoes", 10).unwrap();
    let shoes = client.counter("stock", b"shoes").unwrap();
    let name = CounterName::new("stock", b"shoes").unwrap();
    shoes.add(6);
    shoes.subtract(7);
    client.subtract(&name, 1).unwrap();
    soon("a flush", client.flush()).await.unwrap();
    let reading = client.get(&name).await.unwrap();
    assert_eq!((reading.value(), reading.up, reading.down, cluster.value("stock", b"shoes")), (-2, 6, 8, -2));
    let back = client.take_back(&shoes, 1).await.unwrap();
    assert_eq!(soon("a durable decrement", back).await, Ok(Place::Counted));
    client.add(&name, 3).unwrap();
    soon("a flush", client.flush()).await.unwrap();
    let tenth = client.hit(&shoes, session(1)).await.unwrap();
    assert_eq!(soon("a place", tenth).await, Ok(Place::Milestone { at: 10, first: 10 }), "of those that went up");
    assert_eq!(cluster.value("stock", b"shoes"), 1);
    soon("the end", client.close()).await.unwrap();
}

#[tokio::test]
async fn a_counter_that_only_grows_takes_nothing_back_and_goes_on() {
    let cluster = FakeCluster::new();
    let losses = Arc::new(Mutex::new(Vec::new()));
    let told = losses.clone();
    let builder = Client::builder().fake(&cluster).flush_interval(Duration::from_millis(1));
    let client = builder.on_loss(move |loss| told.lock().unwrap().push(loss)).connect().await.unwrap();
    let queries = client.counter("search", b"queries").unwrap();
    queries.add(5);
    queries.subtract(3);
    assert_eq!(soon("a flush", client.flush()).await, Err(FlushError::Losses { refused: 3, unknown: 0 }));
    assert!(matches!(losses.lock().unwrap()[..], [AddLoss::Failed { weight: 3, half: Half::Down, .. }]));
    queries.add(2);
    soon("a flush", client.flush()).await.unwrap();
    let refused = soon("a refusal", client.take_back(&queries, 1).await.unwrap()).await;
    let grow_only = tidemark_proto::msg::BatchError::GrowOnly("search".into());
    assert_eq!(refused, Err(HitError::Failed(tidemark_proto::client::AddError::Refused(grow_only))));
    assert_eq!(cluster.value("search", b"queries"), 7, "what goes up is not barred with what goes down");
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
    let frame = reader.next().await.unwrap().unwrap();
    assert_eq!(wire::decode::<ForWhom>(&frame), Ok(ForWhom { group: 0 }));
    writer.send_bytes(wire::encode(&Admission::Serves).into()).await.unwrap();
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
        let node = bind(dc, Role::Node);
        let aggregator = bind(dc, Role::Aggregator);
        let addrs = (node.local_addr(), aggregator.local_addr());
        builder = builder.site(Site { dc: dc.into(), nodes: vec![addrs.0.into()], aggregator: Some(addrs.1.into()) });
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
    assert_eq!(soon("a read", client.get(&name)).await.unwrap().value(), 2);
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

const PATIENCE: NamedPatience = NamedPatience { durable: Duration::from_secs(20), places: Duration::from_secs(20) };

fn id(n: u64) -> tidemark_proto::msg::ItemId {
    let mut digest = [0; 16];
    digest[..8].copy_from_slice(&n.to_be_bytes());
    tidemark_proto::msg::ItemId { digest, content: [1; 8], items: 1 }
}

fn named(key: &str) -> (CounterName, u64) {
    (CounterName::new("search", key.as_bytes()).unwrap(), 1)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_id_counts_once_over_whatever_link_and_not_behind_its_fence() {
    let (cluster, client) = fake().await;
    cluster.milestone("search", b"queries", 3).unwrap();
    let items = [named("queries"), named("own")];
    for name in 1..=3 {
        for _ in 0..2 {
            let counted = client.count_named(id(name), &items, Some(session(1)), PATIENCE).await.unwrap();
            let first = if name == 3 { Place::Milestone { at: 3, first: 3 } } else { Place::Number(name) };
            assert_eq!(counted, NamedOutcome::Placed(vec![first, Place::Counted]), "{name}");
        }
    }
    assert_eq!(
        (client.fence_named(id(3), PATIENCE.durable).await, client.fence_named(id(4), PATIENCE.durable).await),
        (Ok(true), Ok(false))
    );
    assert_eq!(client.count_named(id(4), &items, None, PATIENCE).await, Err(NamedError::Fenced));
    assert!(
        client.count_named(id(3), &items, None, PATIENCE).await.is_ok(),
        "what was counted is answered also behind its fence"
    );
    let other = tidemark_proto::msg::ItemId { content: [2; 8], ..id(3) };
    assert_eq!(client.count_named(other, &items, None, PATIENCE).await, Err(NamedError::Reused));
    assert_eq!(client.count_named(id(5), &[], None, PATIENCE).await, Err(NamedError::Items { items: 0 }));
    assert_eq!((cluster.value("search", b"queries"), cluster.value("search", b"own")), (3, 3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_id_is_asked_for_again_when_links_break_and_refused_only_when_nothing_was_sent_before() {
    let (cluster, client) = fake().await;
    cluster.refuse_namespace("elsewhere");
    let elsewhere = (CounterName::new("elsewhere", b"x").unwrap(), 1);
    let refused = client.count_named(id(1), std::slice::from_ref(&elsewhere), None, PATIENCE).await;
    assert_eq!(
        refused,
        Err(NamedError::Refused(tidemark_proto::msg::BatchError::UnknownNamespace("elsewhere".into())))
    );
    cluster.set_reachable(false);
    let short = NamedPatience { durable: Duration::from_millis(300), ..PATIENCE };
    assert_eq!(client.count_named(id(2), &[named("queries")], None, short).await, Err(NamedError::Unknown));
    assert_eq!(client.fence_named(id(2), short.durable).await, Err(NamedError::Unknown));
    // The link that was kept is gone; nothing was sent over it, so the refusal is one.
    let items = [elsewhere];
    let (asked, ()) = tokio::join!(client.count_named(id(3), &items, None, PATIENCE), async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        cluster.set_reachable(true);
    });
    assert!(matches!(asked, Err(NamedError::Refused(_))), "{asked:?}");
    let all = (0..300).map(|name| {
        let client = client.clone();
        tokio::spawn(async move { client.count_named(id(100 + name), &[named("queries")], None, PATIENCE).await })
    });
    for counted in all.collect::<Vec<_>>() {
        soon("a named increment", counted).await.unwrap().unwrap();
    }
    assert_eq!(cluster.value("search", b"queries"), 300);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hit_with_an_id_counts_once_and_the_same_id_for_another_is_refused() {
    let (cluster, client) = fake().await;
    cluster.milestone("search", b"queries", 1_000).unwrap();
    let queries = named("queries").0;
    let pinned = client.at_group("dc", 0).unwrap();
    let hit = |n, weight, content| OnceHit {
        half: Half::Up,
        session: None,
        weight,
        event: None,
        id: tidemark_proto::msg::ItemId { content: [content; 8], ..id(n) },
    };
    for _ in 0..3 {
        assert_eq!(pinned.hit_once(&queries, hit(1, 5, 1)).await.unwrap().await, Ok(Place::Number(1)));
        assert_eq!(pinned.hit_once(&queries, hit(2, 1, 1)).await.unwrap().await, Ok(Place::Number(6)));
    }
    for (n, known) in [(1, true), (3, false), (3, true)] {
        let hit = pinned.hit_once(&queries, hit(n, if n == 1 { 5 } else { 1 }, 1)).await.unwrap();
        hit.durable().await.unwrap();
        assert_eq!(hit.is_known(), known, "id {n}");
    }
    let reused = pinned.hit_once(&queries, hit(1, 7, 2)).await.unwrap().await;
    assert_eq!(reused, Err(HitError::Failed(tidemark_proto::client::AddError::IdReused)));
    assert_eq!(cluster.value("search", b"queries"), 7);
    assert_eq!(pinned.group().map(|group| group.ids_kept), Some(144));
    client.close().await.unwrap();
    assert!(pinned.hit_once(&queries, hit(9, 1, 1)).await.is_err(), "it is closed with the client that made it");
}

/// An aggregator's end of a channel of waits, answered from the fake cluster; how many were asked for is counted.
async fn serve_waits(channel: Channel, cluster: &FakeCluster, asked: &AtomicUsize) {
    let Channel { mut writer, mut reader } = channel;
    let (answers, mut answered) = mpsc::channel(100);
    let mut waits = tokio::task::JoinSet::new();
    loop {
        let answer = tokio::select! {
            frame = reader.next() => {
                let Ok(Some(frame)) = frame else { return };
                let WaitRequest::WaitAward { id, counter, at, .. } = wire::decode(&frame).unwrap() else { continue };
                asked.fetch_add(1, Ordering::Relaxed);
                let cluster = cluster.clone();
                let answers = answers.clone();
                waits.spawn(async move {
                    let outcome = match cluster.award(&counter, at).await {
                        Ok(award) => WaitOutcome::Awarded(Box::new(award)),
                        Err(_) => WaitOutcome::Refused(WaitError::NoMilestone),
                    };
                    let _ = answers.send(WaitAnswer { id, heard: Heard::default(), outcome }).await;
                });
                WaitAnswer { id, heard: Heard { index: 7, birth: None }, outcome: WaitOutcome::Waiting }
            }
            answer = answered.recv() => answer.unwrap(),
        };
        writer.send_bytes(wire::encode(&answer).into()).await.unwrap();
    }
}

/// An aggregator that serves waits as the fake cluster does, or, without one, redirects every caller.
async fn serve_waits_on(endpoint: Endpoint, cluster: Option<FakeCluster>, asked: Arc<AtomicUsize>) {
    while let Some(connection) = endpoint.accept().await {
        let (Ok(connection), cluster, asked) = (connection, cluster.clone(), asked.clone()) else { continue };
        tokio::spawn(async move {
            while let Ok((channel::AWARDS, mut channel)) = connection.accept_channel().await {
                match &cluster {
                    Some(cluster) => serve_waits(channel, cluster, &asked).await,
                    None => {
                        let Ok(Some(frame)) = channel.reader.next().await else { continue };
                        let WaitRequest::WaitAward { id, .. } = wire::decode(&frame).unwrap() else { continue };
                        asked.fetch_add(1, Ordering::Relaxed);
                        let outcome = WaitOutcome::Refused(WaitError::NotServing("no leader".to_owned()));
                        let answer = WaitAnswer { id, heard: Heard { index: 1, birth: None }, outcome };
                        let _ = channel.writer.send_bytes(wire::encode(&answer).into()).await;
                        let _ = channel.reader.next().await;
                    }
                }
            }
        });
    }
}

#[tokio::test]
async fn an_award_is_waited_for_and_known_at_once_afterwards() {
    let (cluster, client) = fake().await;
    for at in [5, 6, 100] {
        cluster.milestone("search", b"queries", at).unwrap();
    }
    let queries = client.counter("search", b"queries").unwrap();
    let waiting = tokio::spawn({
        let client = client.clone();
        let queries = queries.clone();
        async move { client.award(&queries, 6).await }
    });
    let removed = tokio::spawn({
        let client = client.clone();
        let name = queries.name().clone();
        async move { client.award(&name, 100).await }
    });
    queries.add(4);
    soon("a flush", client.flush()).await.unwrap();
    assert!(!waiting.is_finished());
    let hit = client.hit_weighted(&queries, Some(session(9)), 3).await.unwrap();
    assert_eq!(soon("a place", hit).await, Ok(Place::Milestone { at: 5, first: 5 }));
    let award = soon("the award", waiting).await.unwrap().unwrap();
    assert_eq!((award.at, award.first, award.delta, award.session), (6, 5, 3, Some(session(9))));
    assert_eq!(client.award(&queries, 6).await, Ok(award));
    cluster.disarm("search", b"queries", 100).unwrap();
    assert_eq!(soon("the removal", removed).await.unwrap(), Err(AwardError::NoMilestone));
    cluster.milestone("search", b"queries", 2).unwrap();
    assert_eq!(client.award(&queries, 2).await, Err(AwardError::Passed));
    let refused = client.award(&queries, 0).await.unwrap_err();
    assert_eq!(refused.to_string(), "milestone 0: 1 to 4611686018427387904 allowed");
    soon("the end", client.close()).await.unwrap();
    assert_eq!(client.award(&queries, 6).await, Err(AwardError::Closed));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_moves_on_when_an_aggregator_is_lost_or_cannot_say() {
    let ca = ClusterCa::generate("demo").unwrap();
    let bind = |dc, role| Endpoint::bind(loopback(), credentials(&ca, dc, role), EndpointOptions::default()).unwrap();
    let cluster = FakeCluster::new();
    let gone = FakeCluster::new();
    let asked: [Arc<AtomicUsize>; 3] = Default::default();
    let mut builder = Client::builder().credentials(credentials(&ca, "usa-0", Role::Client));
    let mut aggregators = Vec::new();
    let sites = [("usa-0", Some(gone.clone())), ("sa-0", None), ("asia-0", Some(cluster.clone()))];
    for ((dc, cluster), asked) in sites.into_iter().zip(&asked) {
        let node = bind(dc, Role::Node);
        let aggregator = bind(dc, Role::Aggregator);
        let addrs = (node.local_addr(), aggregator.local_addr());
        builder = builder.site(Site { dc: dc.into(), nodes: vec![addrs.0.into()], aggregator: Some(addrs.1.into()) });
        tokio::spawn(serve_waits_on(aggregator.clone(), cluster, asked.clone()));
        aggregators.push((node, aggregator));
    }
    for cluster in [&cluster, &gone] {
        cluster.milestone("search", b"queries", 1).unwrap();
        cluster.milestone("search", b"queries", 2).unwrap();
    }
    let client = builder.connect().await.unwrap();
    let name = CounterName::new("search", b"queries").unwrap();
    let wait = |at| {
        let client = client.clone();
        let name = name.clone();
        tokio::spawn(async move { client.award(&name, at).await })
    };
    let first = wait(1);
    let second = wait(2);
    let until = async |asked: &AtomicUsize, count| {
        while asked.load(Ordering::Relaxed) < count {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    soon("both are asked for", until(&asked[0], 2)).await;
    aggregators[0].1.close("gone").await;
    soon("the second site", until(&asked[1], 1)).await;
    soon("the third site", until(&asked[2], 2)).await;
    let counting = Client::builder().fake(&cluster).flush_interval(Duration::from_millis(1)).connect().await.unwrap();
    counting.add(&name, 1).unwrap();
    assert_eq!(soon("the award", first).await.unwrap().map(|award| award.first), Ok(1));
    drop(second);
    soon("the end", client.close()).await.unwrap();
}

#[tokio::test]
async fn waits_have_a_limit_and_make_room_when_they_are_dropped() {
    let ca = ClusterCa::generate("demo").unwrap();
    let addr = loopback();
    let node = Endpoint::bind(addr, credentials(&ca, "usa-0", Role::Node), EndpointOptions::default()).unwrap();
    let site =
        Site { dc: "usa-0".into(), nodes: vec![node.local_addr().into()], aggregator: Some(node.local_addr().into()) };
    let client =
        Client::builder().credentials(credentials(&ca, "usa-0", Role::Client)).site(site).connect().await.unwrap();
    let name = CounterName::new("search", b"queries").unwrap();
    let mut waiting = Vec::new();
    for at in 1..=WAITS_MAX as u64 {
        let mut wait = Box::pin(client.award(&name, at));
        assert!(futures_poll(&mut wait).await.is_none());
        waiting.push(wait);
    }
    assert_eq!(client.award(&name, 1).await, Err(AwardError::TooManyWaits { limit: WAITS_MAX }));
    waiting.pop();
    let mut wait = Box::pin(client.award(&name, 1));
    assert!(futures_poll(&mut wait).await.is_none(), "there is room again");
}

/// Looks at a future once.
async fn futures_poll<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    std::future::poll_fn(|context| match std::pin::Pin::new(&mut *future).poll(context) {
        std::task::Poll::Ready(output) => std::task::Poll::Ready(Some(output)),
        std::task::Poll::Pending => std::task::Poll::Ready(None),
    })
    .await
}
