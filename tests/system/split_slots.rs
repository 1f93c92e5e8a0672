//! Shards are split while they are counted and read, the first shard too. Reads go on at every aggregator and never go back, totals along
//! edges between the halves are right, the halves may be moved, kills lose nothing, and the disk has the halves and not the shard that was
//! split.

use crate::cluster::{Centre, Cluster, Role, operate, ready, until_views_show};
use crate::http;
use crate::process::{until, until_true};
use crate::slots::restore;
use crate::split::{
    DCS, SEATS, SLOTS, Split, count_and_link, count_until, data_of, held_by, read_until, send, until_alike,
};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tidemark_client::Client;
use tidemark_server::names::parse_counter;
use tokio::task::JoinHandle;

/// Of the first slot, beside those that all tests with slots count: to copy them takes some steps.
const COUNTERS: usize = 20_000;
const ADDED_AT_ONCE: usize = 5_000;
/// A counter of each half.
const EARLY: &str = "search/a/00000";
const LATE: &str = "search/a/19998";
/// Each is in the other half than the one that flows to it.
const EDGES: [[&str; 2]; 4] = [
    ["search/a/00000", "search/a/19999"],
    ["search/a/19998", "search/a/00001"],
    ["search/a/00000", "search/topic"],
    ["search/a/19998", "search/topic"],
];

/// The total of the topic in all tests with shards without these edges.
const TOPIC: u64 = 54_011;

/// Counts one of each of `count` counters with names that begin alike.
async fn add_many(at: SocketAddr, prefix: &str, count: usize) {
    let lines: Vec<String> =
        (0..count).map(|nth| json!({ "counter": format!("{prefix}/{nth:05}") }).to_string()).collect();
    for some in lines.chunks(ADDED_AT_ONCE) {
        let (code, added) = http::send(at, "POST", "/v1/add", &some.join("\n")).await.expect("it answers");
        assert!(code == 200 && added["added"] == some.len(), "{added}");
    }
}

/// Waits until an aggregator shows a total.
async fn until_total(at: SocketAddr, counter: &str, total: u64) {
    let mut last = Value::Null;
    let start = std::time::Instant::now();
    while start.elapsed() < crate::process::WAIT_MAX {
        if let Some((200, body)) = http::get(at, &format!("/v1/counters/{counter}/graph")).await {
            last = body["total"].clone();
            assert!(last.as_u64().is_some_and(|last| last <= total), "{counter} at {at}: {last} of {total}");
            if last == total {
                return;
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{counter} at {at}: {last} and not {total}")
}

/// Waits until an aggregator lists these slots, in this order, and none of them is being split.
async fn until_listed(at: SocketAddr, numbers: &[u16]) {
    until(&format!("slots {numbers:?} at {at}"), async || {
        let (_, body) = http::get(at, "/v1/slots").await?;
        let slots = body["slots"].as_array()?;
        let is_split = slots.iter().all(|slot| slot.get("splits").is_none());
        (is_split && slots.iter().map(|slot| &slot["slot"]).eq(numbers)).then_some(())
    })
    .await;
}

/// All list both splits as done.
async fn all_list(views: &[SocketAddr]) {
    for &view in views {
        until_listed(view, &[5, 6, 1, 7, 8, 3, 4]).await;
    }
}

/// Of which slots a directory has files of their own.
fn files_in(data: &Path) -> Vec<usize> {
    (1..32).filter(|slot| data.join(format!("shard-{slot}.redb")).exists()).collect()
}

/// A load that counts and reads until it is told to end.
struct Load {
    is_over: Arc<AtomicBool>,
    counts: Vec<(&'static str, JoinHandle<u64>)>,
    reads: Vec<(JoinHandle<()>, Arc<AtomicU64>)>,
}

impl Load {
    fn begin(counted: &[(SocketAddr, &'static str)], read: &[(SocketAddr, (&'static str, &'static str))]) -> Load {
        let is_over = Arc::new(AtomicBool::new(false));
        let count = |&(at, counter): &(SocketAddr, &'static str)| {
            let is_over = is_over.clone();
            (counter, tokio::spawn(async move { count_until(at, counter, &is_over).await }))
        };
        let read_one = |&(at, what): &(SocketAddr, (&'static str, &'static str))| {
            let is_over = is_over.clone();
            let reads = Arc::new(AtomicU64::new(0));
            let count = reads.clone();
            (tokio::spawn(async move { read_until(at, what.0, what.1, &count, &is_over).await }), reads)
        };
        let counts = counted.iter().map(count).collect();
        let reads = read.iter().map(read_one).collect();
        Load { is_over, counts, reads }
    }

    /// Counts of both halves, and reads of counters in them and of what flows across, at all views.
    fn of_halves(counted: &[SocketAddr], views: &[SocketAddr]) -> Load {
        let read = [
            ("/v1/counters/search/a/00000", "value"),
            ("/v1/counters/search/a/19999/graph", "total"),
            ("/v1/counters/search/a/00001/graph", "total"),
            ("/v1/counters/search/topic/graph", "total"),
        ];
        let read: Vec<_> = views.iter().flat_map(|&view| read.map(|what| (view, what))).collect();
        let counted: Vec<_> = counted.iter().flat_map(|&at| [(at, EARLY), (at, LATE)]).collect();
        Load::begin(&counted, &read)
    }

    /// Waits until each reader has read so often more.
    async fn all_read(&self, times: u64) {
        for (_, reads) in &self.reads {
            let before = reads.load(Ordering::Relaxed);
            until_true("it is read", || reads.load(Ordering::Relaxed) >= before + times).await;
        }
    }

    /// Ends it; how much was acknowledged of a counter.
    async fn end(self, counters: &[&str]) -> Vec<u64> {
        self.is_over.store(true, Ordering::Relaxed);
        let mut counted = vec![0; counters.len()];
        for (counter, count) in self.counts {
            let at = counters.iter().position(|of| *of == counter).expect("a counter that is counted");
            counted[at] += count.await.unwrap();
        }
        for (read, _) in self.reads {
            read.await.unwrap();
        }
        counted
    }
}

/// Orders that are refused.
fn refused_splits(cluster: &Cluster, usa: &Split) {
    let cases: [(usize, &[&str], &str); 7] = [
        (2, &["slots", "split", "0"], "slot 0 is held by usa-0 and usa-0/second"),
        (0, &["slots", "split", "99"], "slot 99: the last one is slot 4"),
        (0, &["slots", "split", "4"], "slot 4 has fewer than two counters here"),
        (2, &["slots", "split", "1", "--at", "search/b"], "search/b does not lie behind the beginning of slot 1"),
        (2, &["slots", "split", "1", "--at", "search/c"], "from search/b to search/c"),
        (2, &["slots", "split", "1", "--at", "search"], "NAMESPACE/KEY expected"),
        (2, &["slots", "split", "1", "--at", "no such/b"], "no such"),
    ];
    for (seat, arguments, reason) in cases {
        let (done, said) = operate(cluster, usa.http[seat], arguments);
        assert!(!done && said.contains(reason), "{arguments:?}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_are_split_while_they_are_counted_and_read_and_their_halves_are_moved() {
    let cluster = Cluster::with_aggregators(&DCS, &DCS[..1], &[SEATS, 1], &SLOTS);
    let first = cluster.centre(0).await;
    let europe = cluster.centre(1).await;
    let (mut usa, _node) = Split::start(&cluster, first).await;
    ready(europe.http).await;
    count_and_link(&usa).await;
    add_many(usa.http[0], "search/a", COUNTERS).await;
    add_many(usa.http[0], "search/c", 2).await;
    send(usa.http[1], "POST", "/v1/edges", json!({ "insert": EDGES, "unknown": "allow" })).await;
    let views: Vec<SocketAddr> = usa.http.iter().copied().chain([europe.http]).collect();
    until_views_show(&views, "search/a/19999", 1).await;
    refused_splits(&cluster, &usa);

    let load = Load::of_halves(&[usa.http[1], usa.http[3], europe.http], &views);
    load.all_read(5).await;
    let (done, said) = operate(&cluster, usa.http[0], &["slots", "split", "0"]);
    assert!(done && said.contains("slot 0 is split at search/a/09999 into slots 5 and 6"), "{said}");
    assert!(said.contains("held by usa-0 and usa-0/second"), "{said}");
    let (done, said) = operate(&cluster, usa.http[3], &["slots", "split", "2"]);
    assert!(done && said.contains("slot 2 is split at search/c/00000 into slots 7 and 8"), "{said}");
    all_list(&views).await;
    load.all_read(10).await;
    let (done, said) = operate(&cluster, usa.http[0], &["slots", "split", "0"]);
    assert!(!done && said.contains("slot 0 was split into slots 5 and 6"), "{said}");

    // The counters of the first shard may be moved now.
    let (done, said) = operate(&cluster, usa.http[3], &["slots", "move", "6", "usa-0", "usa-0/third"]);
    assert!(done && said.contains("slot 6: from search/a/09999, before search/b; held by"), "{said}");
    for &at in &usa.http {
        held_by(at, 6, &["usa-0/second", "usa-0/third"]).await;
    }
    load.all_read(10).await;
    let counted = load.end(&[EARLY, LATE]).await;
    let early = 1 + counted[0];
    let late = 1 + counted[1];
    are_right(&views, early, late, TOPIC + early + late).await;
    until_alike(&views).await;
    until_true("files of what was split are deleted", || have_halves_only(&cluster)).await;

    // A holder of halves knows that when it comes back.
    for seat in [1, 2] {
        usa.kill(seat);
        are_right(&[usa.http[0], usa.http[3], europe.http], early, late, TOPIC + early + late).await;
        usa.restart(&cluster, seat).await;
    }
    let views: Vec<SocketAddr> = usa.http.iter().copied().chain([europe.http]).collect();
    all_list(&views).await;
    for counter in [EARLY, LATE] {
        send(usa.http[1], "POST", &format!("/v1/counters/{counter}/add"), json!({ "delta": 1 })).await;
    }
    are_right(&views, early + 1, late + 1, TOPIC + early + late + 2).await;
    until_alike(&views).await;
    assert!(have_halves_only(&cluster));
}

/// Whether all aggregators of both data centres have files of just those slots that they hold in the end.
fn have_halves_only(cluster: &Cluster) -> bool {
    let usa = (0..SEATS).map(|seat| files_in(&data_of(cluster, seat)));
    let usa_has = usa.eq([vec![3, 4, 5], vec![1, 4, 5, 6], vec![1, 6, 7, 8], vec![3, 7, 8]]);
    usa_has && files_in(&cluster.data(1, Role::Aggregator)) == [1, 3, 4, 5, 6, 7, 8]
}

/// All views show what was counted of two counters in the halves, and what flows from them, to one that others flow to as well.
async fn are_right(views: &[SocketAddr], early: u64, late: u64, topic: u64) {
    until_views_show(views, EARLY, early).await;
    until_views_show(views, LATE, late).await;
    for &view in views {
        until_total(view, "search/a/19999", 1 + early).await;
        until_total(view, "search/a/00001", 1 + late).await;
        until_total(view, "search/topic", topic).await;
    }
}

/// How long after each order the aggregator is killed: before it has begun, while it copies, while it writes, and when all is done.
const KILLED_AFTER: [u64; 5] = [0, 15, 40, 120, 1_000];

/// Counts of both halves at a node, which goes on without its aggregator, two of the one for each of the other; how often.
async fn count_natively(client: Client, is_over: Arc<AtomicBool>) -> u64 {
    let [early, late] = [EARLY, LATE].map(|name| parse_counter(name).unwrap());
    let mut counted = 0;
    while !is_over.load(Ordering::Relaxed) {
        client.add(&early, 1).unwrap();
        client.add(&late, 2).unwrap();
        client.flush().await.unwrap();
        counted += 1;
    }
    client.close().await.unwrap();
    counted
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn splits_of_slots_outlive_kills_and_a_backup_has_what_was_in_them() {
    let cluster = Cluster::new(&DCS[..1]);
    let Centre { mut node, mut aggregator, http: mut at } = cluster.centres().await.remove(0);
    add_many(at, "search/a", COUNTERS).await;
    until_views_show(&[at], "search/a/19999", 1).await;
    send(at, "POST", "/v1/edges", json!({ "insert": EDGES, "unknown": "allow" })).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let count = tokio::spawn(count_natively(cluster.client(&[0]).await, is_over.clone()));
    let mut numbers = vec![0];
    for (nth, after_ms) in KILLED_AFTER.into_iter().enumerate() {
        // Now from the front, now from behind.
        let place = if nth % 2 == 0 { 0 } else { numbers.len() - 1 };
        let slot = numbers[place].to_string();
        let (done, said) = operate(&cluster, at, &["slots", "split", &slot]);
        assert!(done && said.contains(&format!("slot {slot} is split at search/a/")), "{said}");
        let first = 2 * nth as u16 + 1;
        numbers.splice(place..=place, [first, first + 1]);
        tokio::time::sleep(Duration::from_millis(after_ms)).await;
        aggregator.kill();
        (aggregator, at) = cluster.start(0, Role::Aggregator).await;
        ready(at).await;
        until_listed(at, &numbers).await;
    }
    is_over.store(true, Ordering::Relaxed);
    let counted = count.await.unwrap();
    let early = 1 + counted;
    let late = 1 + 2 * counted;
    are_right(&[at], early, late, early + late).await;
    let data = cluster.data(0, Role::Aggregator);
    let files: Vec<usize> = (1..=2 * KILLED_AFTER.len()).filter(|slot| numbers.contains(&(*slot as u16))).collect();
    until_true("files of what was split are deleted", || files_in(&data) == files).await;

    // Also while one is being split. It begins as the layout says: with one slot.
    let (done, said) = operate(&cluster, at, &["slots", "split", &numbers[0].to_string()]);
    assert!(done, "{said}");
    let backup = cluster.path("backup");
    let take = ["backup", "take", "--whole", "--out", backup.to_str().unwrap()];
    let (done, said) = operate(&cluster, at, &take);
    assert!(done, "{said}");
    aggregator.kill();
    node.kill();
    restore(&cluster, &backup, &data);
    let centre = cluster.centres().await.remove(0);
    are_right(&[centre.http], early, late, early + late).await;
    until_listed(centre.http, &[0]).await;
    assert_eq!(files_in(&data), [0; 0]);
    let (_, listed) = http::get(centre.http, "/v1/slots").await.expect("it answers");
    assert_eq!(listed["slots"][0]["counters"], COUNTERS, "{listed}");
}
