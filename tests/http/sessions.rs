//! Sessions of browsers: issued in bulk, believed while they last, told only of their own awards.

use crate::live::{Socket, connect, next};
use crate::memory::Memory;
use crate::support::{Answer, Running, TOKEN, options, start, start_with};
use tidemark_proto::ids::{CounterName, DcId};
use tidemark_proto::ledger::{Turn, TurnKind};
use tidemark_server::http::{Access, ClaimTurn, LIVE_PROTOCOL, Options, SUBSCRIPTIONS_PER_SESSION_MAX};
use tidemark_server::names::session_id;
use tidemark_server::session::SessionKeys;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Error;

pub async fn issue(running: &Running, body: &str) -> Vec<String> {
    let answer = running.send("POST", "/v1/sessions", body).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.json()["sessions"].as_array().unwrap().iter().map(|token| token.as_str().unwrap().to_owned()).collect()
}

pub async fn count(running: &Running, counter: &str, session: &str) -> Answer {
    running.send("POST", &format!("/v1/counters/{counter}/add"), &format!(r#"{{"session":"{session}"}}"#)).await
}

async fn open(running: &Running, query: &str, session: &str) -> Result<Socket, Error> {
    connect(running, query, &format!("{LIVE_PROTOCOL}, session.{session}")).await
}

fn status(result: Result<Socket, Error>) -> (u16, String) {
    match result {
        Err(Error::Http(response)) => {
            let body = String::from_utf8(response.body().clone().unwrap_or_default()).unwrap();
            (response.status().as_u16(), body)
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_session_is_told_of_its_own_awards_now_and_when_it_comes_back() {
    let running = start().await;
    running.send("PUT", "/v1/counters/search/q/milestones", r#"{"at":[2,3,4]}"#).await;
    let sessions = issue(&running, r#"{"namespace":"search","count":2}"#).await;
    let mut winner = open(&running, "counter=search/q", &sessions[0]).await.unwrap();
    let mut other = open(&running, "", &sessions[1]).await.unwrap();
    assert_eq!(next(&mut winner).await["value"], 0);
    for session in [&sessions[1], &sessions[0], &sessions[1]] {
        assert_eq!(count(&running, "search/q", session).await.status, 200);
    }
    let mut told = next(&mut winner).await;
    while told["type"] == "total" {
        told = next(&mut winner).await;
    }
    assert_eq!((&told["type"], &told["at"]), (&"yours".into(), &2.into()));
    assert_eq!(next(&mut other).await["at"], 3, "and not of the winner's");
    drop((winner, other));
    assert_eq!(count(&running, "search/q", &sessions[0]).await.status, 200);
    let mut again = open(&running, "", &sessions[0]).await.unwrap();
    assert_eq!([next(&mut again).await["at"].clone(), next(&mut again).await["at"].clone()], [2, 4]);
    let position = told["position"].as_str().unwrap();
    let mut behind = open(&running, &format!("own_after={position}"), &sessions[0]).await.unwrap();
    assert_eq!(next(&mut behind).await["at"], 4);
}

#[tokio::test]
async fn a_session_is_told_what_becomes_of_awards_that_are_its_own_to_claim() {
    let running = start().await;
    running.send("PUT", "/v1/counters/search/q/milestones", r#"{"at":[1]}"#).await;
    let sessions = issue(&running, r#"{"namespace":"search","count":2}"#).await;
    let mut other = open(&running, "", &sessions[1]).await.unwrap();
    assert_eq!(count(&running, "search/q", &sessions[0]).await.status, 200);
    let mut winner = open(&running, "", &sessions[0]).await.unwrap();
    assert_eq!(next(&mut winner).await["type"], "yours");
    let turn = |index, kind, of: &str| ClaimTurn {
        counter: CounterName::new("search", b"q").unwrap(),
        at: 1,
        index,
        turn: Turn { kind, holder: index },
        session: Some(session_id(of).unwrap()),
        dc: DcId(0),
    };
    running.memory.turn(turn(10, TurnKind::Waiting, &sessions[0]));
    running.memory.turn(turn(11, TurnKind::Passed, &sessions[1]));
    let over = next(&mut winner).await;
    let passed = next(&mut other).await;
    assert_eq!((&over["type"], &over["state"], &over["at"]), (&"claim".into(), &"waiting".into(), &1.into()));
    assert_eq!((&passed["state"], &passed["holder"]), (&"passed".into(), &11.into()), "and nothing of the winner's");
    let position = over["position"].as_str().unwrap();
    running.memory.turn(turn(12, TurnKind::Claimed, &sessions[0]));
    let mut behind = open(&running, &format!("own_after={position}"), &sessions[0]).await.unwrap();
    assert_eq!(next(&mut behind).await["state"], "claimed", "once, and what came since");
}

#[tokio::test]
async fn tokens_that_are_not_good_are_refused_and_change_nothing() {
    let running = start().await;
    let good = issue(&running, r#"{"namespace":"search"}"#).await.remove(0);
    let brief = issue(&running, r#"{"namespace":"search","expires_s":1}"#).await.remove(0);
    let foreign = SessionKeys::random().unwrap().issue("search", 1, 60).unwrap().0.remove(0);
    let elsewhere = issue(&running, r#"{"namespace":"default"}"#).await.remove(0);
    let forged = format!("{}.other", good.strip_suffix(".search").unwrap());
    tokio::time::sleep(std::time::Duration::from_millis(1_100)).await;
    let counted = async |token: &str| count(&running, "search/q", token).await.failure();
    for (token, code) in [
        (&brief, "session_expired"),
        (&foreign, "session_key"),
        (&forged, "session_forged"),
        (&elsewhere, "session_namespace"),
        (&"v1.x".to_owned(), "session_malformed"),
    ] {
        let refused = counted(token).await;
        assert_eq!((refused.0, refused.1.as_str()), (400, code), "{token}: {}", refused.2);
        if code != "session_namespace" {
            let shown = status(open(&running, "", token).await);
            assert!(shown.0 == 401 && shown.1.contains(code), "{shown:?}");
        }
    }
    let other = status(open(&running, "counter=search/q", &elsewhere).await);
    assert!(other.0 == 403 && other.1.contains("this session is for the namespace default"), "{other:?}");
    assert_eq!(count(&running, "search/q", "a-front-end-s-own").await.status, 200);
    assert_eq!(running.memory.value(&"search/q".parse_counter()), 1);
}

trait ParseCounter {
    fn parse_counter(&self) -> tidemark_proto::ids::CounterName;
}

impl ParseCounter for str {
    fn parse_counter(&self) -> tidemark_proto::ids::CounterName {
        tidemark_server::names::parse_counter(self).unwrap()
    }
}

#[tokio::test]
async fn sessions_are_issued_to_who_has_the_token_and_within_limits() {
    let running = start().await;
    assert_eq!(issue(&running, r#"{"namespace":"search","count":1000}"#).await.len(), 1_000);
    let refused = async |body: &str| running.send("POST", "/v1/sessions", body).await.failure();
    assert_eq!(refused(r#"{"namespace":"search","count":0}"#).await.1, "count");
    assert!(refused(r#"{"namespace":"search","expires_s":9999999}"#).await.2.contains("1 to 2592000 allowed"));
    assert_eq!(refused(r#"{"namespace":"Search"}"#).await.1, "namespace");
    let session = format!("authorization: Session {}\r\n", issue(&running, r#"{"namespace":"search"}"#).await[0]);
    let body = r#"{"namespace":"search"}"#;
    assert_eq!(running.send_with("POST", "/v1/sessions", &session, body).await.status, 401, "a session issues none");
    assert_eq!(running.send_with("POST", "/v1/counters/search/q/add", &session, "").await.status, 401);
}

#[tokio::test]
async fn pages_of_other_origins_are_refused_unless_they_are_named() {
    let access = Access { origins: vec!["https://search.example".to_owned()], ..options().access };
    let running = start_with(Memory::new(None), Options { access, ..options() }).await;
    let ask = async |origin: &str| {
        let headers = format!("authorization: Bearer {TOKEN}\r\norigin: {origin}\r\n");
        running.send_with("GET", "/v1/events?awards=all&after=some", &headers, "").await
    };
    // The parameter is wrong, which is seen only behind the check of the origin.
    let named = ask("https://search.example").await;
    assert!(named.status == 400 && named.head.contains("access-control-allow-origin: https://search.example"));
    assert_eq!(ask("http://test").await.status, 403, "a name that leads here is not ours");
    for origin in ["https://evil.example", "null", "https://search.example.evil.example"] {
        let refused = ask(origin).await;
        assert!(refused.status == 403 && !refused.head.contains("allow-origin"), "{origin}: {}", refused.head);
        let headers = format!("origin: {origin}\r\n");
        let hop = running.send_with("POST", "/v1/hops/count", &headers, r#"{"hop":"h1"}"#).await;
        assert_eq!(hop.status, 403, "{origin}");
    }
    let first = running.send_with("OPTIONS", "/v1/counters", "origin: https://search.example\r\n", "").await;
    assert!(
        first.status == 204 && first.head.contains("access-control-allow-headers: authorization"),
        "{}",
        first.head
    );
    let refused = running.send_with("OPTIONS", "/v1/counters", "origin: https://evil.example\r\n", "").await;
    assert!(refused.status == 405 && !refused.head.contains("allow-origin"), "{}", refused.head);
}

#[tokio::test]
async fn a_subscription_ends_with_its_session_and_one_session_has_only_so_many() {
    let running = start_with(Memory::new(None), Options { live_connections_max: 64, ..options() }).await;
    let brief = issue(&running, r#"{"namespace":"search","expires_s":2}"#).await.remove(0);
    let mut socket = open(&running, "", &brief).await.unwrap();
    let ended = async {
        loop {
            match futures_util::StreamExt::next(&mut socket).await {
                Some(Ok(tokio_tungstenite::tungstenite::Message::Close(frame))) => {
                    return frame.unwrap().reason.to_string();
                }
                Some(Ok(_)) => {}
                other => panic!("{other:?}"),
            }
        }
    };
    let reason = tokio::time::timeout(std::time::Duration::from_secs(10), ended).await.unwrap();
    assert_eq!(reason, "the session has ended");
    let session = issue(&running, r#"{"namespace":"search"}"#).await.remove(0);
    let mut sockets = Vec::new();
    for _ in 0..SUBSCRIPTIONS_PER_SESSION_MAX {
        sockets.push(open(&running, "", &session).await.unwrap());
    }
    let refused = status(open(&running, "", &session).await);
    assert!(refused.0 == 503 && refused.1.contains("subscriptions of this session"), "{refused:?}");
}

#[tokio::test]
async fn awards_of_one_entry_for_two_counters_are_both_told() {
    let running = start().await;
    let session = issue(&running, r#"{"namespace":"search"}"#).await.remove(0);
    for counter in ["search/a", "search/b"] {
        running.send("PUT", &format!("/v1/counters/{counter}/milestones"), r#"{"at":[1]}"#).await;
    }
    running.memory.in_one_entry.store(true, std::sync::atomic::Ordering::Relaxed);
    let mut own = open(&running, "awards=all", &session).await.unwrap();
    // In the order of their digests, as a backend tells them.
    for counter in ["search/b", "search/a"] {
        count(&running, counter, &session).await;
    }
    let mut told = std::collections::BTreeSet::new();
    while told.len() < 4 {
        let message = next(&mut own).await;
        told.insert((message["type"].to_string(), message["counter"]["key"].to_string()));
    }
}

pub async fn events(running: &Running, query: &str, headers: &str) -> Lines<BufReader<TcpStream>> {
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    let request = format!("GET /v1/events?{query} HTTP/1.1\r\nhost: test\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    BufReader::new(stream).lines()
}

pub async fn next_event(lines: &mut Lines<BufReader<TcpStream>>) -> (Option<String>, serde_json::Value) {
    let mut id = None;
    loop {
        let line = lines.next_line().await.unwrap().expect("another event");
        if let Some(text) = line.strip_prefix("id: ") {
            id = Some(text.to_owned());
        }
        if let Some(data) = line.strip_prefix("data: ") {
            let json = serde_json::from_str(data).unwrap();
            // The id may stand before or behind the data.
            let more = lines.next_line().await.unwrap().unwrap_or_default();
            return (id.or(more.strip_prefix("id: ").map(str::to_owned)), json);
        }
    }
}

#[tokio::test]
async fn server_sent_events_say_the_same_and_go_on_where_they_ended() {
    let running = start().await;
    running.send("PUT", "/v1/counters/search/q/milestones", r#"{"at":[1,2]}"#).await;
    let session = issue(&running, r#"{"namespace":"search"}"#).await.remove(0);
    let headers = format!("authorization: Session {session}\r\n");
    let mut first = events(&running, "counter=search/q", &headers).await;
    assert_eq!(next_event(&mut first).await.1["type"], "begin");
    assert_eq!(next_event(&mut first).await.1["value"], 0);
    count(&running, "search/q", &session).await;
    let (id, award) = loop {
        let event = next_event(&mut first).await;
        if event.1["type"] == "yours" {
            break event;
        }
    };
    assert_eq!((id, &award["at"]), (None, &1.into()), "one's own award says nothing of others'");
    drop(first);
    let reader = format!("authorization: Bearer {TOKEN}\r\n");
    let mut reading = events(&running, "", &reader).await;
    let begin = next_event(&mut reading).await;
    assert_eq!((begin.0.as_deref(), &begin.1["type"]), (begin.1["position"].as_str(), &"begin".into()));
    drop(reading);
    count(&running, "search/q", &session).await;
    let reader = format!("{reader}last-event-id: {}\r\n", begin.0.unwrap());
    let mut again = events(&running, "", &reader).await;
    assert_eq!(next_event(&mut again).await.1["type"], "begin");
    assert_eq!(next_event(&mut again).await.1["at"], 2);
}
