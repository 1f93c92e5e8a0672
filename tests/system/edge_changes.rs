//! A program changes edges through the client library, where the layout permits it. The change is carried out once although aggregators are
//! killed, refused as HTTP refuses, and in the audit under its certificate's name.

use crate::cluster::{Cluster, ready};
use crate::http;
use crate::process::{run, until};
use serde_json::Value;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use tidemark_client::{ChangeError, Client, CounterName, EdgeChanges, EdgeFault, EdgesError, Neighbours, ReadAt};
use tidemark_server::names::parse_counter;
use tidemark_transport::Credentials;

/// The test's front end, and no other client.
const PERMITTED: &str = "graph_clients = [\"web/0\"]\n";

fn of(key: &str) -> CounterName {
    parse_counter(&format!("search/{key}")).unwrap()
}

fn insert(pairs: &[(&str, &str)]) -> EdgeChanges {
    pairs.iter().fold(EdgeChanges::new(), |changes, (from, to)| changes.insert(&of(from), &of(to)))
}

fn remove(from: &str, to: &str) -> EdgeChanges {
    EdgeChanges::new().remove(&of(from), &of(to))
}

/// A cluster with a layout that names the clients that may change edges.
fn permitting(names: &[&str]) -> Cluster {
    let cluster = Cluster::new(names);
    let layout = cluster.layout_text(&cluster.aggregators);
    std::fs::write(cluster.path("layout.toml"), PERMITTED.to_owned() + &layout).unwrap();
    cluster
}

/// Once the ledger knows the namespaces.
async fn count(client: &Client, at: SocketAddr, counts: &[(&str, u64)]) {
    for (key, delta) in counts {
        client.add(&of(key), *delta).unwrap();
    }
    until("increments", async || client.flush().await.ok()).await;
    let all: Vec<CounterName> = counts.iter().map(|(key, _)| of(key)).collect();
    until("what was counted", async || {
        let read = client.get_many(&all).await.ok()?;
        read.iter().zip(counts).all(|(read, (_, delta))| read.value() == i128::from(*delta)).then_some(())
    })
    .await;
    ready(at).await;
}

async fn totals_are(client: &Client, expected: &[(&str, i128)]) {
    until(&format!("totals {expected:?}"), async || {
        let counters: Vec<CounterName> = expected.iter().map(|(key, _)| of(key)).collect();
        let read = client.read_at(ReadAt::of(counters).total()).await.ok()?;
        let are_so =
            |(read, (_, total)): (&tidemark_client::CounterRead, &(&str, i128))| read.reading.value() == *total;
        read.counters.iter().zip(expected).all(are_so).then_some(())
    })
    .await;
}

async fn refused(client: &Client, changes: EdgeChanges) -> (usize, EdgeFault) {
    match client.change_edges(changes).await {
        Err(ChangeError::Refused(EdgesError::Change { position, fault, .. })) => (position, *fault),
        other => panic!("{other:?}"),
    }
}

/// A wrong change is refused with the reason, and nothing of it is carried out.
async fn what_cannot_be_is_refused(client: &Client) {
    let path = ["topic", "answer", "question"].map(of).to_vec();
    let cycle = |path| EdgeFault::Cycle { path, left_out: 0 };
    let closing = insert(&[("author", "topic"), ("topic", "answer"), ("question", "topic")]);
    assert_eq!(refused(client, closing).await, (2, cycle(path)));
    assert_eq!(refused(client, insert(&[("answer", "answer")])).await, (0, EdgeFault::ToItself));
    assert_eq!(refused(client, insert(&[("anwser", "author")])).await, (0, EdgeFault::UnknownCounter(of("anwser"))));
    let stock = parse_counter("stock/sold").unwrap();
    let other = EdgeChanges::new().insert(&stock, &of("topic"));
    let not_allowed = EdgeFault::NotAllowed { from: "stock".into(), to: "search".into() };
    assert_eq!(refused(client, other.allow_unknown()).await, (0, not_allowed));
    let nowhere = EdgeChanges::new().insert(&of("answer"), &parse_counter("nowhere/a").unwrap());
    let unknown = EdgeFault::UnknownNamespace("nowhere".into());
    assert_eq!(refused(client, nowhere.allow_unknown()).await, (0, unknown));
    assert_eq!(refused(client, insert(&[("answer", "question")]).strict()).await, (0, EdgeFault::Duplicate));
    assert_eq!(refused(client, remove("answer", "topic").strict()).await, (0, EdgeFault::Absent));
    let many = insert(&vec![("answer", "question"); 1_025]);
    let said = client.change_edges(many).await.unwrap_err().to_string();
    assert_eq!(said, "changes of edges at once is 1025: at most 1024 allowed");
    let none = client.change_edges(EdgeChanges::new().strict()).await;
    assert_eq!(none, Err(ChangeError::Refused(EdgesError::Count(0))));
}

/// Changes that are each for itself.
async fn what_can_be_of_many_is_carried_out(client: &Client) {
    let each = insert(&[("answer", "author"), ("question", "answer"), ("nobody", "topic"), ("question", "topic")]);
    let made = client.change_edges(each.each()).await.unwrap();
    let told: Vec<(u32, &EdgeFault)> = made.refused.iter().map(|(at, fault)| (*at, fault)).collect();
    let cycle = EdgeFault::Cycle { path: vec![of("answer"), of("question")], left_out: 0 };
    assert_eq!(told, [(1, &cycle), (2, &EdgeFault::UnknownCounter(of("nobody")))]);
    assert_eq!((made.inserted, made.removed, made.index), (2, 0, 5));
}

async fn authors(at: SocketAddr) -> BTreeSet<String> {
    let (_, audit) = http::get(at, "/v1/edges/audit").await.expect("the aggregator answers");
    let by = |batch: &Value| batch["by"].as_str().unwrap().to_owned();
    audit["batches"].as_array().unwrap().iter().map(by).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_is_permitted_changes_edges_and_goes_on_where_an_aggregator_is_killed() {
    let cluster = permitting(&["usa-0", "europe-0", "asia-0"]);
    let mut centres = cluster.centres().await;
    let client = cluster.client(&[0, 1]).await;
    count(&client, centres[0].http, &[("answer", 1), ("question", 10), ("author", 100), ("topic", 1_000)]).await;
    let made = client.change_edges(insert(&[("answer", "question")])).await.unwrap();
    assert_eq!((made.inserted, made.removed, made.index), (1, 0, 1));
    let again = client.change_edges(insert(&[("answer", "question")])).await.unwrap();
    assert_eq!((again.inserted, again.index), (0, 1), "it is there");
    let strict = insert(&[("topic", "all")]).allow_unknown().strict();
    for again in [false, true] {
        let made = client.change_edges(strict.clone()).await.unwrap();
        assert_eq!((made.inserted, made.index, made.again), (1, 2, again), "the same change, and not another one");
    }
    client.change_edges(remove("topic", "all")).await.unwrap();
    let made = client.change_edges(strict.clone()).await.unwrap();
    assert_eq!((made.inserted, made.index, made.again), (1, 3, true), "what was taken away since stays so");
    what_cannot_be_is_refused(&client).await;
    what_can_be_of_many_is_carried_out(&client).await;
    for dc in [0, 1] {
        let client = cluster.client(&[dc]).await;
        totals_are(&client, &[("answer", 1), ("question", 11), ("author", 101), ("topic", 1_011)]).await;
    }
    assert_eq!(authors(centres[0].http).await, BTreeSet::from(["tidemark://test/web/client/0".to_owned()]));

    centres[0].aggregator.kill();
    // Voters elect another leader meanwhile.
    let moved = async || {
        let moved = EdgeChanges::new().remove(&of("answer"), &of("author")).insert(&of("new"), &of("author"));
        client.change_edges(moved.allow_unknown()).await.ok()
    };
    let made = until("a change at another data centre", moved).await;
    assert_eq!(made.index, 7);
    totals_are(&client, &[("answer", 1), ("question", 11), ("author", 100), ("topic", 1_011)]).await;
    let parents = client.parents(&of("author"), Neighbours::first()).await.unwrap();
    assert_eq!(parents.counters, [of("new")]);
    centres[1].aggregator.kill();
    let lost = client.change_edges(remove("new", "author")).await.unwrap_err();
    assert!(matches!(lost, ChangeError::Timeout { .. } | ChangeError::Unknown(_)), "{lost:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_that_are_asked_for_at_once_are_all_carried_out_once() {
    const CHANGES: usize = 40;
    let cluster = permitting(&["usa-0", "europe-0", "asia-0"]);
    let centres = cluster.centres().await;
    let client = cluster.client(&[0]).await;
    let other = cluster.client(&[1]).await;
    count(&client, centres[0].http, &[("topic", 1)]).await;
    count(&other, centres[1].http, &[("topic", 1)][..0]).await;
    let mut all = tokio::task::JoinSet::new();
    for nth in 0..CHANGES {
        let client = if nth % 2 == 0 { client.clone() } else { other.clone() };
        all.spawn(async move {
            let changes = insert(&[(&format!("answer/{nth}"), "topic")]).allow_unknown();
            let asked = async || match client.change_edges(changes.clone()).await {
                Ok(made) => Some(made),
                Err(ChangeError::Contended | ChangeError::Unknown(_)) => None,
                Err(error) => panic!("{error}"),
            };
            until("a change among others", asked).await
        });
    }
    let made = all.join_all().await;
    assert!(made.iter().all(|made| made.refused.is_empty()));
    let parents = until("all edges", async || {
        let page = client.parents(&of("topic"), Neighbours::first()).await.ok()?;
        (page.counters.len() == CHANGES).then_some(page.counters)
    })
    .await;
    let expected: BTreeSet<CounterName> = (0..CHANGES).map(|nth| of(&format!("answer/{nth}"))).collect();
    assert_eq!(parents.into_iter().collect::<BTreeSet<_>>(), expected);
    let index = made.iter().map(|made| made.index).max();
    assert_eq!(index, Some(CHANGES as u64), "none twice");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_is_not_named_may_not_change_edges_and_an_operator_may() {
    let cluster = Cluster::new(&["usa-0"]);
    let centres = cluster.centres().await;
    let client = cluster.client(&[0]).await;
    count(&client, centres[0].http, &[("answer", 1), ("topic", 10)]).await;
    let refused = client.change_edges(insert(&[("answer", "topic")])).await;
    assert_eq!(refused, Err(ChangeError::NotPermitted { client: "web/0".into() }));
    let said = refused.unwrap_err().to_string();
    assert_eq!(said, "the layout does not name web/0 among `graph_clients`: it may not change edges");
    assert_eq!(client.parents(&of("topic"), Neighbours::first()).await.unwrap().counters, []);

    let ca = cluster.path("ca");
    let own = cluster.path("credentials/editor");
    let arguments = ["certs", "issue", "--ca", ca.to_str().unwrap(), "--dc", "usa-0", "--role", "operator"];
    let output = run(&[&arguments[..], &["--name", "editor", "--out", own.to_str().unwrap()]].concat());
    assert!(output.status.success(), "{output:?}");
    let operator = cluster.client_as(Credentials::load(&own).unwrap(), &[0]).await;
    let made = operator.change_edges(insert(&[("answer", "topic")])).await.unwrap();
    assert_eq!(made.inserted, 1);
    assert_eq!(authors(centres[0].http).await, BTreeSet::from(["tidemark://test/usa-0/operator/editor".to_owned()]));
    totals_are(&client, &[("topic", 11)]).await;
}
