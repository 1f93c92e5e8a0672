//! Links are as slow, lossy or cut as their table says, and QUIC gets everything across all the same.

mod common;

use std::time::{Duration, Instant};

use common::{Pair, soon};
use tidemark_transport::{ConnectionLost, EndpointOptions, Link, LinkPlan};

/// A pair with a plan at each end.
struct Linked {
    pair: Pair,
    at_server: LinkPlan,
    at_client: LinkPlan,
}

impl Linked {
    fn new(options: EndpointOptions) -> Self {
        let at_server = LinkPlan::new(1);
        let at_client = LinkPlan::new(2);
        let with = |plan: &LinkPlan| EndpointOptions { link_plan: Some(plan.clone()), ..options.clone() };
        Self { pair: Pair::new(with(&at_server), with(&at_client)), at_server, at_client }
    }

    /// The same link in both directions.
    fn set(&self, link: Link) {
        self.at_client.set(self.pair.server.local_addr(), link).unwrap();
        self.at_server.set(self.pair.client.local_addr(), link).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_round_trip_takes_both_delays() {
    const ONE_WAY_US: u64 = 50_000;
    let linked = Linked::new(EndpointOptions::default());
    linked.set(Link::delay(ONE_WAY_US));
    let (client, mut ours, _server, mut theirs) = linked.pair.channel().await;
    let echo = tokio::spawn(async move {
        while let Some(frame) = theirs.reader.next().await.unwrap() {
            theirs.writer.send(&frame).await.unwrap();
        }
    });
    let mut fastest = Duration::MAX;
    for _ in 0..20 {
        let start = Instant::now();
        ours.writer.send(b"ping").await.unwrap();
        soon("an echo", ours.reader.next()).await.unwrap().unwrap();
        fastest = fastest.min(start.elapsed());
    }
    let expected = Duration::from_micros(2 * ONE_WAY_US);
    assert!(fastest >= expected && fastest < expected + Duration::from_millis(5), "{fastest:?}");
    assert!(client.rtt() >= expected, "{:?}", client.rtt());
    ours.writer.finish().await.unwrap();
    soon("the end", echo).await.unwrap();
}

#[tokio::test]
async fn a_link_without_an_entry_adds_nothing_but_counts() {
    let linked = Linked::new(EndpointOptions::default());
    let (_client, mut ours, _server, mut theirs) = linked.pair.channel().await;
    ours.writer.send(&[0; 100_000]).await.unwrap();
    soon("the frame", theirs.reader.next()).await.unwrap().unwrap();
    let to_server = linked.at_client.counters(linked.pair.server.local_addr());
    assert!(to_server.bytes > 100_000 && to_server.bytes < 120_000, "{to_server:?}");
    assert!(to_server.datagrams >= to_server.bytes / 1500, "{to_server:?}");
    assert_eq!((to_server.lost, to_server.cut, to_server.overflowed), (0, 0, 0));
}

/// Sends frames over such a link and expects each once, in order.
async fn deliver(link: Link) {
    const FRAMES: u32 = 20_000;
    let content = |n: u32| [n.to_le_bytes(); 10].concat();
    let linked = Linked::new(EndpointOptions::default());
    linked.set(link);
    let (_client, mut ours, _server, mut theirs) = linked.pair.channel().await;
    let writer = tokio::spawn(async move {
        for n in 0..FRAMES {
            ours.writer.feed(&content(n)).await.unwrap();
        }
        ours.writer.finish().await.unwrap();
        ours
    });
    for n in 0..FRAMES {
        assert_eq!(soon("a frame", theirs.reader.next()).await.unwrap().unwrap(), content(n));
    }
    assert_eq!(soon("the end", theirs.reader.next()).await.unwrap(), None);
    soon("the writer", writer).await.unwrap();
    let counters = linked.at_client.counters(linked.pair.server.local_addr());
    assert!(counters.lost > 0, "{counters:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_that_only_loses_still_delivers_all_in_order() {
    deliver(Link { loss_ppm: 50_000, ..Link::default() }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_lossy_and_reordering_link_still_delivers_all_in_order() {
    deliver(Link { one_way_us: 2_000, jitter_us: 3_000, loss_ppm: 50_000, cut: false, reorder: true }).await;
}

#[tokio::test]
async fn a_short_cut_only_delays() {
    let linked = Linked::new(EndpointOptions::default());
    let (_client, mut ours, _server, mut theirs) = linked.pair.channel().await;
    let server = linked.pair.server.local_addr();
    linked.at_client.cut(server).unwrap();
    ours.writer.send(b"late").await.unwrap();
    soon("a lost datagram", async {
        while linked.at_client.counters(server).cut == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    linked.at_client.heal(server).unwrap();
    assert_eq!(soon("the frame", theirs.reader.next()).await.unwrap().unwrap(), b"late"[..]);
}

#[tokio::test]
async fn a_long_cut_loses_the_connection_and_a_heal_allows_the_next() {
    let options = EndpointOptions { idle_timeout_ms: 300, keep_alive_ms: 100, ..Default::default() };
    let linked = Linked::new(options);
    let (client, server) = linked.pair.connect().await;
    // One table is enough to cut both directions.
    linked.at_client.cut(linked.pair.server.local_addr()).unwrap();
    let both = async { tokio::join!(client.closed(), server.closed()) };
    assert_eq!(soon("the loss", both).await, (ConnectionLost::TimedOut, ConnectionLost::TimedOut));
    client.close("who closes it later does not change why it was lost");
    assert_eq!(soon("the reason", client.closed()).await, ConnectionLost::TimedOut);
    linked.at_client.heal(linked.pair.server.local_addr()).unwrap();
    linked.pair.connect().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_loses_what_is_under_way() {
    let linked = Linked::new(EndpointOptions::default());
    let (_client, mut ours, _server, _theirs) = linked.pair.channel().await;
    let server = linked.pair.server.local_addr();
    linked.at_client.set(server, Link::delay(200_000)).unwrap();
    let before = linked.at_client.counters(server).datagrams;
    ours.writer.send(b"under way").await.unwrap();
    soon("a datagram", async {
        while linked.at_client.counters(server).datagrams == before {
            tokio::task::yield_now().await;
        }
    })
    .await;
    linked.at_client.cut(server).unwrap();
    soon("its loss", async {
        while linked.at_client.counters(server).cut == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_words_of_a_closed_endpoint_still_arrive() {
    let linked = Linked::new(EndpointOptions::default());
    linked.set(Link::delay(20_000));
    let (client, _server) = linked.pair.connect().await;
    soon("the close", linked.pair.server.close("bye")).await;
    let lost = soon("the news", client.closed()).await;
    assert_eq!(lost, ConnectionLost::ClosedByPeer { reason: "bye".into() });
}
