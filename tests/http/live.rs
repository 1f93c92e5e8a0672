//! Totals and awards over a WebSocket.

use crate::memory::Memory;
use crate::support::{Running, TOKEN, add, options, start, start_with};
use futures_util::{SinkExt, StreamExt};
use std::time::Duration;
use tidemark_server::http::{LIVE_PROTOCOL, Options};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

pub type Socket = WebSocketStream<TcpStream>;

pub async fn connect(running: &Running, query: &str, protocols: &str) -> Result<Socket, Error> {
    let mut request = format!("ws://{}/v1/live?{query}", running.address).into_client_request().unwrap();
    request.headers_mut().insert("sec-websocket-protocol", protocols.parse().unwrap());
    let stream = TcpStream::connect(running.address).await.unwrap();
    client_async(request, stream).await.map(|(socket, response)| {
        assert_eq!(response.headers()["sec-websocket-protocol"], LIVE_PROTOCOL);
        socket
    })
}

async fn open(running: &Running, query: &str) -> Socket {
    connect(running, query, &format!("{LIVE_PROTOCOL}, bearer.{TOKEN}")).await.unwrap()
}

pub async fn next(socket: &mut Socket) -> serde_json::Value {
    loop {
        let message = tokio::time::timeout(Duration::from_secs(10), socket.next()).await.expect("a message in time");
        match message.unwrap().unwrap() {
            Message::Text(text) if [r#""type":"begin""#, r#""type":"here""#].iter().any(|kind| text.contains(kind)) => {
            }
            Message::Text(text) => return serde_json::from_str(&text).unwrap(),
            Message::Ping(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

async fn until_total(socket: &mut Socket, value: u64) -> usize {
    for seen in 1.. {
        if next(socket).await["value"] == value {
            return seen;
        }
    }
    unreachable!("the total does not come")
}

#[tokio::test]
async fn totals_come_at_once_and_then_as_they_change() {
    let running = start().await;
    running.memory.count(&add("search/q", 7));
    let mut socket = open(&running, "counter=search/q&counter=search/other").await;
    let mut first = [next(&mut socket).await, next(&mut socket).await];
    first.sort_by_key(|message| message["value"].as_u64());
    assert_eq!((&first[0]["counter"]["key"], &first[0]["value"]), (&"other".into(), &0.into()));
    assert_eq!((&first[1]["type"], &first[1]["value"]), (&"total".into(), &7.into()));
    running.memory.count_ones("search/q", 1_000);
    let messages = until_total(&mut socket, 1_007).await;
    assert!(messages < 100, "{messages} messages for what one can tell");
}

#[tokio::test]
async fn awards_come_to_whom_they_concern() {
    let running = start().await;
    for counter in ["search/q", "search/other"] {
        running.send("PUT", &format!("/v1/counters/{counter}/milestones"), r#"{"at":[1]}"#).await;
    }
    let mut watched = open(&running, "counter=search/other").await;
    let mut all = open(&running, "").await;
    assert_eq!(next(&mut watched).await["type"], "total");
    running.send("POST", "/v1/counters/search/q/add", "").await;
    running.send("POST", "/v1/counters/search/other/add", "").await;
    let award = next(&mut all).await;
    assert_eq!((&award["type"], &award["counter"]["key"]), (&"award".into(), &"q".into()));
    assert_eq!(next(&mut all).await["counter"]["key"], "other");
    let mut message = next(&mut watched).await;
    while message["type"] == "total" {
        message = next(&mut watched).await;
    }
    assert_eq!(message["counter"]["key"], "other");
}

#[tokio::test]
async fn awards_that_were_missed_are_read_again_in_order_and_once() {
    let running = start().await;
    let at: Vec<String> = (1..=60).map(|at| at.to_string()).collect();
    running.send("PUT", "/v1/counters/search/q/milestones", &format!(r#"{{"at":[{}]}}"#, at.join(","))).await;
    running.memory.count_ones("search/q", 20);
    let mut live = open(&running, "").await;
    // The test's runtime has one thread: the server cannot take these one by one, and the backend keeps four.
    running.memory.count_ones("search/q", 40);
    for at in 21..=60 {
        assert_eq!(next(&mut live).await["at"], at);
    }
    let begin = open(&running, "").await.next().await.unwrap().unwrap();
    assert!(
        begin
            .to_text()
            .unwrap()
            .starts_with(r#"{"type":"begin","birth":"0000000000000001","position":"0000000000000001.60.60."#),
        "{begin:?}"
    );
    let mut resumed = open(&running, "after=0000000000000001.5.5").await;
    for at in 6..=60 {
        assert_eq!(next(&mut resumed).await["at"], at);
    }
}

#[tokio::test]
async fn a_reader_that_reads_nothing_holds_up_nobody() {
    let running = start().await;
    let mut stuck = open(&running, "counter=search/q").await;
    let mut reading = open(&running, "counter=search/q").await;
    for round in 1..=20 {
        running.memory.count(&add("search/q", 1));
        until_total(&mut reading, round).await;
    }
    until_total(&mut stuck, 20).await;
}

#[tokio::test]
async fn a_reader_that_falls_far_behind_misses_no_award() {
    // More than all buffers between the two ends hold, at some 330 bytes each.
    const AWARDS: u64 = 40_000;
    let running = start().await;
    let mut slow = open(&running, "").await;
    let mut quick = open(&running, "").await;
    for before in (0..AWARDS).step_by(100) {
        running.memory.count_ones("search/each", 100);
        for at in before + 1..=before + 100 {
            assert_eq!(next(&mut quick).await["at"], at);
        }
    }
    for at in 1..=AWARDS {
        assert_eq!(next(&mut slow).await["at"], at);
    }
}

#[tokio::test]
async fn a_browser_without_the_token_or_past_the_limit_is_refused() {
    let running = start_with(Memory::new(None), Options { live_connections_max: 1, ..options() }).await;
    let refused = |result: Result<Socket, Error>| match result {
        Err(Error::Http(response)) => response.status().as_u16(),
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(connect(&running, "", LIVE_PROTOCOL).await), 401);
    assert_eq!(refused(connect(&running, "", &format!("{LIVE_PROTOCOL}, bearer.wrong-wrong-wrong")).await), 401);
    let good = format!("{LIVE_PROTOCOL}, bearer.{TOKEN}");
    assert_eq!(refused(connect(&running, "awards=some", &good).await), 400);
    let mut first = connect(&running, "", &good).await.unwrap();
    assert_eq!(refused(connect(&running, "", &good).await), 503);
    first.close(None).await.unwrap();
    let freed = async { while connect(&running, "", &good).await.is_err() {} };
    tokio::time::timeout(Duration::from_secs(10), freed).await.unwrap();
}

#[tokio::test]
async fn a_client_that_talks_too_much_is_disconnected() {
    let running = start().await;
    let mut socket = open(&running, "").await;
    socket.send(Message::text("x".repeat(5_000))).await.unwrap();
    let ended = async { while let Some(Ok(_)) = socket.next().await {} };
    tokio::time::timeout(Duration::from_secs(10), ended).await.unwrap();
}

#[tokio::test]
async fn a_stopping_server_says_goodbye() {
    let running = start().await;
    let mut socket = open(&running, "").await;
    running.server.stop().await;
    let goodbye = loop {
        match socket.next().await {
            Some(Ok(Message::Close(frame))) => break frame.unwrap(),
            Some(Ok(_)) => {}
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(u16::from(goodbye.code), 1001);
}
