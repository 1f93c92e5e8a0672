//! Counters of two namespaces lie together by a piece of their keys. Counts that flow between them along edges stay within a shard, pages
//! and rankings are in the order of keys all the same, a shard is split between two pieces and not within one, and with another order no
//! aggregator starts on the disk.

use crate::cluster::{Cluster, Role, operate, ready, until_views_show};
use crate::http;
use crate::process::until;
use crate::split::{SEATS, Split, send};
use serde_json::{Value, json};
use std::net::SocketAddr;

const DCS: [&str; 2] = ["usa-0", "europe-0"];
/// Of users 2, 4 and 6 the first counters.
const SLOTS: [&str; 3] = ["search/views/2", "search/views/4", "search/views/6"];
const SHARD_BY: &str = "[[shard_by]]\nnamespace = \"search\"\nspace = \"users\"\npiece = 2\n\
                        [[shard_by]]\nnamespace = \"stock\"\nspace = \"users\"\n";
const USERS: usize = 9;

/// Of each user four counters, and a fifth one to which all of these but the one of the other namespace flow.
fn counters() -> Vec<(String, usize)> {
    let of_user = |user: usize| {
        let keys = [format!("search/views/{user}"), format!("search/clicks/{user}"), format!("search/clicks/{user}/b")];
        keys.into_iter().chain([format!("stock/{user}")]).map(move |counter| (counter, user))
    };
    (1..=USERS).flat_map(of_user).collect()
}

async fn count(usa: &Split) {
    for (at, (counter, user)) in counters().iter().enumerate() {
        let path = format!("/v1/counters/{counter}/add");
        send(usa.http[at % SEATS], "POST", &path, json!({ "delta": user })).await;
    }
    let of_user = |user: usize| {
        let from = [format!("search/views/{user}"), format!("search/clicks/{user}"), format!("search/clicks/{user}/b")];
        from.map(|from| [from, format!("search/all/{user}")])
    };
    let edges: Vec<[String; 2]> = (1..=USERS).flat_map(of_user).collect();
    send(usa.http[1], "POST", "/v1/edges", json!({ "insert": edges, "unknown": "allow" })).await;
}

/// All keys of a range, page by page.
async fn paged(at: SocketAddr, range: &str) -> Vec<String> {
    let mut keys = Vec::new();
    let mut after = String::new();
    loop {
        let (code, page) = http::get(at, &format!("/v1/range?{range}&limit=3{after}")).await.expect("it answers");
        assert_eq!(code, 200, "{page}");
        let key = |read: &Value| read["counter"]["key"].as_str().unwrap().to_owned();
        keys.extend(page["counters"].as_array().unwrap().iter().map(key));
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => return keys,
        }
    }
}

/// Every view shows each user's total, and pages in the order of keys.
async fn are_right(views: &[SocketAddr]) {
    let mut expected: Vec<String> =
        counters().iter().filter_map(|(name, _)| Some(name.strip_prefix("search/")?.to_owned())).collect();
    expected.sort();
    let mut related: Vec<String> = (1..=USERS).map(|user| format!("all/{user}")).chain(expected.clone()).collect();
    related.sort();
    for &view in views {
        for user in 1..=USERS {
            until("the total", async || {
                let (_, body) = http::get(view, &format!("/v1/counters/search/all/{user}/graph")).await?;
                (body["total"] == 3 * user).then_some(())
            })
            .await;
            until_views_show(&[view], &format!("stock/{user}"), user as u64).await;
        }
        assert_eq!(paged(view, "prefix=search/").await, expected);
        assert_eq!(paged(view, "prefix=search/&of=total").await, related);
        assert_eq!(paged(view, "prefix=search/clicks/8").await, ["clicks/8", "clicks/8/b"]);
        let (_, top) = http::get(view, "/v1/top?prefix=search/clicks/&last=1h&k=2").await.expect("it answers");
        assert_eq!(top["error"]["code"], "no_series", "{top}");
    }
}

async fn slots(at: SocketAddr) -> Vec<Value> {
    let (_, body) = http::get(at, "/v1/slots").await.expect("it answers");
    body["slots"].as_array().expect("slots").clone()
}

/// Which parts slots begin with, and of each how many counters and totals are in it.
fn parts(slots: &[Value]) -> Vec<(Option<&str>, Option<u64>, Option<u64>)> {
    let of = |slot: &'_ Value| (slot["counters"].as_u64(), slot["totals"].as_u64());
    slots.iter().map(|slot| (slot["from_part"]["part"].as_str(), of(slot).0, of(slot).1)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_has_the_same_piece_lies_in_one_slot() {
    let cluster = Cluster::with_aggregators(&DCS, &DCS[..1], &[SEATS, 1], &SLOTS);
    let plain = cluster.layout_text(&cluster.aggregators);
    std::fs::write(cluster.path("layout.toml"), format!("{plain}{SHARD_BY}")).unwrap();
    let first = cluster.centre(0).await;
    let mut europe = cluster.centre(1).await;
    let (mut usa, _node) = Split::start(&cluster, first).await;
    ready(europe.http).await;
    count(&usa).await;
    let views: Vec<SocketAddr> = usa.http.iter().copied().chain([europe.http]).collect();
    are_right(&views).await;

    // A user's total is of one slot, though its counters are of two namespaces, and the other's lie between.
    let listed = slots(europe.http).await;
    let expected = [(None, 4), (Some("2"), 8), (Some("4"), 8), (Some("6"), 16)];
    let expected = expected.map(|(part, counters)| (part, Some(counters), Some(counters / 4)));
    assert_eq!(parts(&listed), expected, "{listed:#?}");
    assert_eq!((&listed[1]["from"], &listed[1]["from_part"]["space"]), (&json!("search/views/2"), &json!("users")));

    // In the middle; a named counter is taken with all that have its piece.
    let (done, said) = operate(&cluster, usa.http[3], &["slots", "split", "3"]);
    assert!(done && said.contains("slot 3 is split at ") && said.contains("into slots 4 and 5"), "{said}");
    let (done, said) = operate(&cluster, usa.http[0], &["slots", "split", "2", "--at", "search/views/4/z"]);
    assert!(
        !done && said.contains("does not lie behind the beginning of slot 2, which is from all of users \"4\""),
        "{said}"
    );
    let (done, said) = operate(&cluster, usa.http[0], &["slots", "split", "2", "--at", "search/views/5/z"]);
    assert!(done && said.contains("slot 2 is split at search/views/5/z into slots 6 and 7"), "{said}");
    for &view in &views {
        until("both splits are done", async || {
            let all = slots(view).await;
            (all.len() == 6 && all.iter().all(|slot| slot.get("splits").is_none())).then_some(())
        })
        .await;
    }
    let listed = slots(europe.http).await;
    let expected = [(None, 4), (Some("2"), 8), (Some("4"), 4), (Some("5"), 4), (Some("6"), 8), (Some("8"), 8)];
    let expected = expected.map(|(part, counters)| (part, Some(counters), Some(counters / 4)));
    assert_eq!(parts(&listed), expected, "{listed:#?}");
    let (done, said) = operate(&cluster, europe.http, &["slots", "list"]);
    assert!(done && said.contains("from users \"5\", as that of search/views/5/z, before users \"6\""), "{said}");
    are_right(&views).await;
    usa.kill(2);
    usa.restart(&cluster, 2).await;
    europe.aggregator.kill();

    // Its files are made for this order.
    std::fs::write(cluster.path("layout.toml"), &plain).unwrap();
    let said = cluster.refusal(1, Role::Aggregator, &[]);
    let lie = "lie by name, but those of search in users by piece 2 of their keys, those of stock in users by piece 1 of their keys";
    assert!(said.contains(lie) && said.contains("are to lie by name:"), "{said}");
    std::fs::write(cluster.path("layout.toml"), format!("{plain}{SHARD_BY}")).unwrap();
    let (_aggregator, at) = cluster.start(1, Role::Aggregator).await;
    ready(at).await;
    let views: Vec<SocketAddr> = usa.http.iter().copied().chain([at]).collect();
    are_right(&views).await;
}
