//! Awards are claimed by the sessions that they name: once, from whichever data centre, in time, and also when the ledger's leader
//! is killed in between.

use crate::cluster::{Cluster, QUERIES, Role, arm, ready};
use crate::http;
use crate::process::{run, until};
use crate::receiver::{Receiver, Seen};
use crate::webhooks;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::SocketAddr;

const DCS: [&str; 3] = ["usa-0", "europe-0", "asia-0"];
const LEADER: usize = 0;

async fn rule(at: SocketAddr, period_s: u64, fallback: &str) -> (u16, Value) {
    let body = json!({"period_s": period_s, "fallback": fallback}).to_string();
    until("a rule", async || {
        http::send(at, "PUT", &format!("/v1/counters/{QUERIES}/claims"), &body).await.filter(|(code, _)| *code < 500)
    })
    .await
}

/// Counts one for a browser; asked again until it is counted.
async fn count(at: SocketAddr, session: &str) {
    let path = format!("/v1/counters/{QUERIES}/add");
    let body = json!({ "session": session }).to_string();
    until("an increment", async || http::send(at, "POST", &path, &body).await.filter(|(code, _)| *code == 200)).await;
}

/// Status, and the failure's code or the claim's state.
async fn claim(at: SocketAddr, number: u64, session: &str, id: &str) -> (u16, String) {
    let body = json!({"session": session, "id": id}).to_string();
    let (code, body) = until("an answer to a claim", async || {
        let path = format!("/v1/awards/{QUERIES}/{number}/claim");
        http::send(at, "POST", &path, &body).await.filter(|(code, _)| *code < 500)
    })
    .await;
    let text = body["error"]["code"].as_str().or(body["state"].as_str()).unwrap().to_owned();
    (code, text)
}

async fn until_state(at: SocketAddr, number: u64, state: &str) -> Value {
    until(state, async || {
        let (_, body) = http::get(at, &format!("/v1/awards/{QUERIES}/{number}/claim")).await?;
        (body["state"] == state).then_some(body)
    })
    .await
}

fn said(code: u16, text: &str) -> (u16, String) {
    (code, text.to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_award_is_claimed_once_by_whom_it_names_or_passes_on() {
    let cluster = Cluster::new(&DCS);
    let receiver = Receiver::start([]).await;
    (0..DCS.len()).for_each(|dc| webhooks::configure(&cluster, dc, &receiver));
    let mut centres = cluster.centres().await;
    let http: Vec<SocketAddr> = centres.iter().map(|centre| centre.http).collect();
    assert_eq!(rule(http[1], 60, "nobody").await.0, 404, "nothing is awarded here yet");
    arm(http[LEADER], QUERIES, &[2, 3, 4, 5]).await;
    assert_eq!(rule(http[1], 1 << 31, "nobody").await.1["error"]["code"], "period_s");
    assert_eq!(rule(http[1], 3_600, "nobody").await, (200, json!({"period_s": 3_600, "fallback": "nobody"})));
    assert_eq!(claim(http[1], 2, "one", "a").await, said(409, "not_awarded"));
    assert_eq!(claim(http[1], 7, "one", "a").await, said(404, "not_found"));

    for session in ["one", "two"] {
        count(http[2], session).await;
    }
    let open = until_state(http[1], 2, "open").await;
    assert_eq!((&open["at"], &open["holder"]), (&2.into(), &2.into()));
    assert_eq!(claim(http[1], 2, "one", "a").await, said(403, "forbidden"));
    // A name that can be guessed is no permission.
    let body = r#"{"session":"two","id":"a"}"#;
    let text = format!(
        "POST /v1/awards/{QUERIES}/2/claim HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    assert!(http::raw(http[1], text.as_bytes(), false).await.unwrap().starts_with("HTTP/1.1 401 "));
    assert_eq!(claim(http[1], 2, "two", "").await, said(400, "id"));
    let both = tokio::join!(claim(http[1], 2, "two", "here"), claim(http[2], 2, "two", "there"));
    let (won, at) = if both.0.0 == 200 { ("here", &both.1) } else { ("there", &both.0) };
    assert_eq!(*at, said(409, "claimed"), "{both:?}");
    let claimed = until_state(http[LEADER], 2, "claimed").await;
    for at in &http {
        until_state(*at, 2, "claimed").await;
        assert_eq!(claim(*at, 2, "two", won).await, said(200, "claimed"), "the same claim");
        assert_eq!(claim(*at, 2, "two", "again").await, said(409, "claimed"));
    }

    // The next award is not claimed in time.
    assert_eq!(rule(http[1], 8, "next_award").await.0, 200);
    count(http[1], "three").await;
    centres[LEADER].aggregator.kill();
    until_state(http[1], 3, "waiting").await;
    assert_eq!(claim(http[1], 3, "three", "a").await, said(409, "claim_over"));
    assert_eq!(rule(http[1], 3_600, "nobody").await.0, 200);
    let (aggregator, restarted) = cluster.start(LEADER, Role::Aggregator).await;
    centres[LEADER].aggregator = aggregator;
    ready(restarted).await;
    count(http[1], "four").await;
    let passed = until("its passing on", async || {
        let (_, body) = http::get(restarted, &format!("/v1/awards/{QUERIES}/3/claim")).await?;
        (body["holder"] == 4).then_some(body)
    })
    .await;
    let (_, fourth) = http::get(http[1], &format!("/v1/awards/{QUERIES}/4/claim")).await.unwrap();
    assert_eq!((&fourth["at"], &fourth["also"]), (&4.into(), &json!([{"at": 3, "state": "open"}])));
    assert_eq!(
        (&passed["at"], &passed["state"], &passed["fallback"]),
        (&3.into(), &"open".into(), &"next_award".into())
    );
    assert_eq!(claim(http[1], 3, "three", "a").await, said(403, "forbidden"));
    assert_eq!(claim(http[1], 3, "four", "a").await, said(200, "claimed"));
    assert_eq!(claim(http[1], 4, "four", "a").await, said(200, "claimed"));
    assert_eq!(until_state(restarted, 2, "claimed").await, claimed, "as before it was killed");

    // No rule, no claim.
    assert_eq!(rule(http[1], 0, "nobody").await.0, 200);
    count(http[1], "five").await;
    assert_eq!(claim(http[1], 5, "five", "a").await.0, 404);
    told_to_a_back_end(&receiver).await;
}

/// A back end is told the awards and every turn of their claims, once each, by the data centre that counted them.
async fn told_to_a_back_end(receiver: &Receiver) {
    let all = [
        (2, "award", 2),
        (2, "claimed", 2),
        (3, "award", 3),
        (3, "waiting", 3),
        (3, "passed", 4),
        (3, "claimed", 4),
        (4, "award", 4),
        (4, "claimed", 4),
        (5, "award", 5),
    ];
    let ids = receiver.until_different(all.len()).await;
    assert_eq!(ids.len(), all.len());
    let turn = |seen: &Seen| {
        let body = seen.json();
        let kind = if body["type"] == "award" { "award" } else { body["state"].as_str().unwrap() };
        let at = body["at"].as_u64().unwrap();
        (at, kind.to_owned(), body["holder"].as_u64().unwrap_or(at))
    };
    let told: BTreeSet<(u64, String, u64)> = receiver.seen().iter().map(turn).collect();
    assert_eq!(told, all.into_iter().map(|(at, kind, holder)| (at, kind.to_owned(), holder)).collect());
}

/// The output of `tidemark claims`, and whether it ended well.
fn shell(at: SocketAddr, arguments: &[&str]) -> (bool, String) {
    let server = format!("http://{at}");
    let output = run(&[&["claims", "--server", &server, "--token", http::TOKEN], arguments].concat());
    let text = if output.status.success() { &output.stdout } else { &output.stderr };
    (output.status.success(), String::from_utf8_lossy(text).trim().to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_shell_says_how_awards_are_claimed_and_how_each_claim_stands() {
    let cluster = Cluster::new(&["usa-0"]);
    let centre = cluster.centres().await.remove(0);
    let at = centre.http;
    let refused = shell(at, &["rule", QUERIES, "--period-s", "60"]);
    assert!(!refused.0 && refused.1.contains("has no milestones: define one before"), "{refused:?}");
    arm(at, QUERIES, &[1, 2, 3]).await;
    assert_eq!(shell(at, &["show", QUERIES]), (true, "awards are not claimed".to_owned()));
    let rule = "awards may be claimed for 8 s, and then pass to the winner of the next one";
    let asked = ["rule", QUERIES, "--period-s", "8", "--fallback", "next-award"];
    assert_eq!(shell(at, &asked), (true, rule.to_owned()));
    assert_eq!(shell(at, &["show", QUERIES]), (true, rule.to_owned()));
    let coming = shell(at, &["show", QUERIES, "1"]);
    assert!(!coming.0 && coming.1.contains("409 Conflict: milestone 1 of "), "{coming:?}");
    assert!(coming.1.ends_with(" is not awarded yet"), "{coming:?}");

    count(at, "one").await;
    until_state(at, 1, "waiting").await;
    let waits = "it was not claimed in time: it waits for the counter's next award";
    assert_eq!(shell(at, &["show", QUERIES, "1"]), (true, waits.to_owned()));
    let lapse = "awards may be claimed for 3600 s, and then lapse";
    assert_eq!(shell(at, &["rule", QUERIES, "--period-s", "3600"]), (true, lapse.to_owned()));
    count(at, "two").await;
    let until_unix_ms = until("a time to claim it", async || {
        let (_, body) = http::get(at, &format!("/v1/awards/{QUERIES}/1/claim")).await?;
        body["until_unix_ms"].as_u64().filter(|_| body["state"] == "open")
    })
    .await;
    let open = format!("open: the session that the award for 2 names may claim it until {until_unix_ms} ms since 1970");
    assert_eq!(shell(at, &["show", QUERIES, "1"]), (true, open));
    assert_eq!(claim(at, 2, "two", "a").await, said(200, "claimed"));
    let (good, claimed) = shell(at, &["show", QUERIES, "2"]);
    assert!(good && claimed.starts_with("claimed by the session that it names, ledger entry "), "{claimed}");
    let (good, json) = shell(at, &["show", QUERIES, "2", "--json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((good, &json["state"], &json["also"]), (true, &"claimed".into(), &json!([{"at": 1, "state": "open"}])));

    assert_eq!(shell(at, &["rule", QUERIES, "--period-s", "0"]).1, "awards are not claimed");
    count(at, "three").await;
    until("the third award", async || {
        shell(at, &["show", QUERIES, "3"]).1.contains("404 Not Found: the award for 3").then_some(())
    })
    .await;
    let nonsense = shell(at, &["rule", QUERIES, "--period-s", "4000000000"]);
    assert!(!nonsense.0 && nonsense.1.contains("period_s is 4000000000: at most"), "{nonsense:?}");
}
