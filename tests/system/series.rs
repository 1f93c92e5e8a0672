//! Series in real processes: how namespaces keep them, said by the layout at first and changed while they run; windows, equal everywhere; and
//! counters in the order of their keys.

use crate::cluster::{Centre, Cluster, Role};
use crate::http;
use crate::process::{now_s, until};
use serde_json::{Value, json};
use std::net::SocketAddr;

const LAYOUT: &str = "[[series]]\nnamespace = \"stock\"\nkeep = { \"1h\" = \"30d\" }\n";

async fn terms(at: SocketAddr, namespace: &str) -> Option<(u64, Value)> {
    let (_, terms) = http::get(at, &format!("/v1/namespaces/{namespace}/series")).await?;
    Some((terms["revision"].as_u64()?, terms["policy"]["keep"].clone()))
}

async fn set(at: SocketAddr, namespace: &str, keep: Value) -> (u16, Value) {
    let body = json!({ "keep": keep }).to_string();
    let path = format!("/v1/namespaces/{namespace}/series");
    http::send(at, "PUT", &path, &body).await.expect("the aggregator answers")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_is_said_once_by_the_layout_and_changed_while_processes_run() {
    let cluster = Cluster::new(&["usa-0"]);
    let layout = cluster.layout_text(&cluster.aggregators);
    std::fs::write(cluster.path("layout.toml"), layout + LAYOUT).unwrap();
    let mut centre = cluster.centres().await.remove(0);
    let first =
        until("the layout's policy", async || terms(centre.http, "stock").await.filter(|(at, _)| *at > 0)).await;
    assert_eq!(first, (1, json!({"1h": "30d"})));
    assert_eq!(terms(centre.http, "search").await, Some((0, Value::Null)));
    let (code, body) = set(centre.http, "stock", json!({"1m": "2d", "1h": "30d"})).await;
    assert_eq!((code, &body["revision"]), (200, &2.into()), "{body}");
    assert_eq!(set(centre.http, "search", json!({"1d": "730d"})).await.0, 200);
    assert_eq!(set(centre.http, "nowhere", json!({"1d": "730d"})).await.0, 404);
    assert_eq!(set(centre.http, "search", json!({"7m": "2d"})).await.0, 400);
    centre.aggregator.kill();
    (centre.aggregator, centre.http) = cluster.start(0, Role::Aggregator).await;
    crate::cluster::ready(centre.http).await;
    // The layout does not take back what was changed since.
    assert_eq!(terms(centre.http, "stock").await, Some((2, json!({"1m": "2d", "1h": "30d"}))));
    assert_eq!(terms(centre.http, "search").await, Some((1, json!({"1d": "730d"}))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counters_come_in_the_order_of_their_keys_and_removed_ones_no_more() {
    let cluster = Cluster::new(&["usa-0"]);
    let centre = cluster.centres().await.remove(0);
    for key in ["b", "a%2F10", "a%2F2", "a%2F1", "c"] {
        let path = format!("/v1/counters/search/{key}/add");
        until("an increment", async || {
            http::send(centre.http, "POST", &path, "").await.filter(|(code, _)| *code == 200)
        })
        .await;
    }
    let keys = async |query: &str| {
        let (code, page) = http::get(centre.http, &format!("/v1/range?{query}")).await?;
        assert_eq!(code, 200, "{page}");
        let read = |read: &Value| Some((read["counter"]["key"].as_str()?.to_owned(), read["value"].as_u64()?));
        page["counters"].as_array()?.iter().map(read).collect::<Option<Vec<_>>>()
    };
    let named = |keys: &[&str]| keys.iter().map(|key| ((*key).to_owned(), 1)).collect::<Vec<_>>();
    let all = named(&["a/1", "a/10", "a/2", "b", "c"]);
    until("all counters", async || keys("prefix=search/").await.filter(|found| *found == all)).await;
    assert_eq!(keys("prefix=search/a/&limit=2").await, Some(named(&["a/1", "a/10"])));
    assert_eq!(keys("prefix=search/a/&limit=2&after=a/10").await, Some(named(&["a/2"])));
    let (code, _) = http::send(centre.http, "DELETE", "/v1/counters/search/a%2F10", "").await.unwrap();
    assert_eq!(code, 200);
    assert_eq!(keys("prefix=search/a/").await, Some(named(&["a/1", "a/2"])));
}

/// The counts of a counter in the last period, once they are exact but for the minute that holds the beginning.
async fn counted(at: SocketAddr, counter: &str, last: &str) -> Option<i64> {
    let (code, body) = http::get(at, &format!("/v1/counters/{counter}/window?last={last}")).await?;
    (code == 200).then(|| body["counted"]["value"].as_i64())?
}

async fn counted_is(views: &[SocketAddr], counter: &str, last: &str, expected: i64) {
    for &at in views {
        let what = format!("{expected} of {counter} in the last {last} at {at}");
        until(&what, async || (counted(at, counter, last).await? == expected).then_some(())).await;
    }
}

/// Ends all processes by `kill -9` and starts them again; where the views are.
async fn restart_all(cluster: &Cluster, centres: &mut [Centre]) -> Vec<SocketAddr> {
    for centre in &mut *centres {
        centre.node.kill();
        centre.aggregator.kill();
    }
    for (dc, centre) in centres.iter_mut().enumerate() {
        centre.node = cluster.node(dc).await;
        (centre.aggregator, centre.http) = cluster.start(dc, Role::Aggregator).await;
    }
    centres.iter().map(|centre| centre.http).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn windows_are_equal_in_all_data_centres_and_outlive_kill_9() {
    let cluster = Cluster::new(&["usa-0", "europe-0", "asia-0"]);
    let mut centres = cluster.centres().await;
    assert_eq!(set(centres[0].http, "search", json!({"1m": "2d", "1h": "30d", "1d": "730d"})).await.0, 200);
    let now = now_s();
    let line = |ago_s: u64| json!({"counter": "search/answer", "delta": 2, "at": now - ago_s}).to_string() + "\n";
    // An hour late is the most: once it is refused, groups have heard of the policy.
    until("a refused event", async || {
        let probe = line(20_000).replace("answer", "probe");
        let (code, body) = http::send(centres[0].http, "POST", "/v1/add", &probe).await?;
        (code == 400 && body["errors"].as_array()?.len() == 1).then_some(())
    })
    .await;
    let lines: String = [600, 600, 1_200, 2_400, 20_000].map(line).concat();
    let (code, body) = http::send(centres[0].http, "POST", "/v1/add", &lines).await.unwrap();
    assert_eq!((code, &body["added"], &body["errors"][0]["line"]), (200, &4.into(), &5.into()), "{body}");
    assert_eq!(body["errors"][0]["code"], "event_time");
    let in_two_hours = 8;
    let views: Vec<SocketAddr> = centres.iter().map(|centre| centre.http).collect();
    counted_is(&views, "search/answer", "2h", in_two_hours).await;
    counted_is(&views, "search/answer", "15m", in_two_hours / 2).await;
    let views = restart_all(&cluster, &mut centres).await;
    counted_is(&views, "search/answer", "2h", in_two_hours).await;
    until("an increment in the other data centre", async || {
        let (code, _) = http::send(views[1], "POST", "/v1/counters/search/answer/add", "{\"delta\": 5}").await?;
        (code == 200).then_some(())
    })
    .await;
    counted_is(&views, "search/answer", "15m", in_two_hours / 2 + 5).await;
    let (_, series) = http::get(views[0], "/v1/counters/search/answer/series?last=1h&every=5m").await.unwrap();
    let steps = series["steps"].as_array().expect("steps").len();
    assert!((12..=14).contains(&steps), "{series}");
    let (_, reading) = http::get(views[0], "/v1/counters/search/answer").await.unwrap();
    assert_eq!(reading["value"].as_i64(), Some(in_two_hours + 5), "the total is the same");
}

/// In the first namespace a minute is over soon; in the second what is too late counts in the total only.
const SHORT: &str = r#"
[[series]]
namespace = "search"
keep = { "1m" = "5m", "1h" = "30d" }
late = "10m"
[[series]]
namespace = "stock"
keep = { "1h" = "30d" }
late = "10m"
out_of_range = "total"
"#;

/// The counts of a counter in one minute, or the reason why they are not shown.
async fn in_minute(at: SocketAddr, counter: &str, minute: u64) -> Option<Result<i64, String>> {
    let query = format!("from={}&to={}&error=0", minute * 60, minute * 60 + 60);
    let (code, body) = http::get(at, &format!("/v1/counters/{counter}/window?{query}")).await?;
    match code {
        200 => body["counted"]["value"].as_i64().map(Ok),
        _ => body["error"]["code"].as_str().map(|code| Err(code.to_owned())),
    }
}

async fn minute_is(views: &[SocketAddr], minute: u64, expected: Result<i64, String>) {
    for &at in views {
        let what = format!("{expected:?} of minute {minute} at {at}");
        until(&what, async || (in_minute(at, "search/answer", minute).await? == expected).then_some(())).await;
    }
}

/// Counts as of a time, once a server answers; whether that was taken.
async fn add_at(at: SocketAddr, counter: &str, delta: u64, event_s: u64) -> bool {
    let line = json!({"counter": counter, "delta": delta, "at": event_s}).to_string() + "\n";
    until("an answer", async || {
        let (code, body) = http::send(at, "POST", "/v1/add", &line).await?;
        (code < 500).then(|| body["added"] == 1)
    })
    .await
}

/// The most that may have been counted of a counter in the last day: all that hours hold of it, those that hold an end of the day included.
async fn at_most(at: SocketAddr, counter: &str) -> Option<i64> {
    let (code, body) = http::get(at, &format!("/v1/counters/{counter}/window?last=1d")).await?;
    let counted = &body["counted"];
    counted["at_most"].as_i64().or(counted["value"].as_i64()).filter(|_| code == 200)
}

async fn hours_hold(views: &[SocketAddr], expected: i64) {
    for &at in views {
        let what = format!("{expected} in hours at {at}");
        until(&what, async || (at_most(at, "search/answer").await? == expected).then_some(())).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_has_expired_is_gone_everywhere_and_does_not_come_back() {
    let cluster = Cluster::new(&["usa-0", "europe-0", "asia-0"]);
    std::fs::write(cluster.path("layout.toml"), cluster.layout_text(&cluster.aggregators) + SHORT).unwrap();
    let mut centres = cluster.centres().await;
    let views: Vec<SocketAddr> = centres.iter().map(|centre| centre.http).collect();
    until("a refused event", async || (!add_at(views[0], "search/probe", 1, now_s() - 1_200).await).then_some(()))
        .await;
    // At the end of a minute the one before the last five is over. Time is left to see it before.
    let over_s = (now_s() + 20).next_multiple_of(60);
    let minute = over_s / 60 - 6;
    assert!(add_at(views[0], "search/answer", 7, minute * 60 + 30).await);
    assert!(add_at(views[0], "search/answer", 2, now_s()).await);
    minute_is(&views, minute, Ok(7)).await;
    let mut looks = tokio::time::interval(std::time::Duration::from_secs(1));
    while now_s() < over_s {
        looks.tick().await;
        for &at in &views {
            let shown = in_minute(at, "search/answer", minute).await;
            assert!(shown == Some(Ok(7)) || now_s() >= over_s, "{shown:?} at {at} before it is over");
        }
    }
    minute_is(&views, minute, Err("error_not_attainable".to_owned())).await;
    hours_hold(&views, 9).await;
    let views = restart_all(&cluster, &mut centres).await;
    // A late event counts in the hour and in the total.
    assert!(add_at(views[0], "search/answer", 1, minute * 60 + 30).await);
    hours_hold(&views, 10).await;
    // Nor is it there again when minutes are kept for longer.
    let (code, body) = http::send(
        views[0],
        "PUT",
        "/v1/namespaces/search/series",
        &json!({"keep": {"1m": "2h", "1h": "30d"}, "late": "10m"}).to_string(),
    )
    .await
    .unwrap();
    assert_eq!(code, 200, "{body}");
    until("the longer policy", async || terms(views[1], "search").await.filter(|(at, _)| *at == 2)).await;
    minute_is(&views, minute, Err("error_not_attainable".to_owned())).await;
    let of_total = async |at: SocketAddr| http::get(at, "/v1/counters/search/answer").await?.1["value"].as_i64();
    assert_eq!(of_total(views[0]).await, Some(10));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_too_late_counts_in_the_total_only_where_a_namespace_says_so() {
    let cluster = Cluster::new(&["usa-0"]);
    std::fs::write(cluster.path("layout.toml"), cluster.layout_text(&cluster.aggregators) + SHORT).unwrap();
    let centre = cluster.centres().await.remove(0);
    let at = centre.http;
    until("the policy at the group", async || {
        add_at(at, "stock/probe", 1, now_s()).await;
        at_most(at, "stock/probe").await.filter(|&counted| counted > 0)
    })
    .await;
    assert!(add_at(at, "stock/sold", 3, now_s()).await && add_at(at, "stock/sold", 5, now_s() - 3 * 3_600).await);
    until("the total", async || {
        let value = http::get(at, "/v1/counters/stock/sold").await?.1["value"].as_i64()?;
        (value == 8).then_some(())
    })
    .await;
    assert_eq!(at_most(at, "stock/sold").await, Some(3), "of what is in time");
}
