//! Positions of awards that are not part of the history: of a cluster before it was founded anew or restored, or ahead of the ledger.

use crate::live::{Socket, connect};
use crate::memory::Memory;
use crate::sessions::{count, events, issue, next_event};
use crate::support::{Running, TOKEN, add, options, start, start_with};
use futures_util::StreamExt;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tidemark_proto::ids::SessionId;
use tidemark_proto::ledger::{Turn, TurnKind};
use tidemark_server::http::{ClaimTurn, LIVE_PROTOCOL, Options};
use tidemark_server::names::parse_counter;
use tokio_tungstenite::tungstenite::Message;

/// Every increment of this counter is awarded.
fn award(memory: &Memory, times: u64) {
    memory.count_ones("search/each", times);
}

/// The next message of a subscription, whatever it is.
async fn next(socket: &mut Socket) -> serde_json::Value {
    loop {
        let message = tokio::time::timeout(Duration::from_secs(10), socket.next()).await.expect("a message in time");
        if let Message::Text(text) = message.unwrap().unwrap() {
            return serde_json::from_str(&text).unwrap();
        }
    }
}

async fn open(running: &Running, query: &str) -> Socket {
    connect(running, query, &format!("{LIVE_PROTOCOL}, bearer.{TOKEN}")).await.unwrap()
}

/// Positions of all awards, in order.
async fn positions(running: &Running) -> Vec<String> {
    listed(running, "").await.1
}

/// Status and positions of a list of awards.
async fn listed(running: &Running, query: &str) -> (u16, Vec<String>) {
    let answer = running.send("GET", &format!("/v1/awards{query}"), "").await;
    let awards = answer.json()["awards"].as_array().cloned().unwrap_or_default();
    (answer.status, awards.iter().map(|award| award["position"].as_str().unwrap().to_owned()).collect())
}

/// The refusal of a position.
async fn refused(running: &Running, position: &str) -> String {
    let (status, code, message) = running.send("GET", &format!("/v1/awards?after={position}"), "").await.failure();
    assert_eq!((status, code.as_str()), (409, "position_unknown"), "{position}: {message}");
    assert!(message.starts_with(&format!("the position {position} is ")), "{message}");
    message
}

/// Where a refusal says that one goes on.
fn go_on(message: &str) -> &str {
    message.rsplit_once(' ').unwrap().1
}

#[tokio::test]
async fn a_position_of_a_cluster_that_was_founded_anew_is_refused_with_where_to_begin() {
    let running = start().await;
    award(&running.memory, 3);
    let old = positions(&running).await;
    assert!(old.iter().all(|position| position.starts_with("0000000000000001.")), "{old:?}");
    running.memory.found_anew();
    award(&running.memory, 5);
    let new = positions(&running).await;
    assert!(new.iter().all(|position| position.starts_with("0000000000000002.")), "{new:?}");
    for position in old.iter().map(String::as_str).chain(["3.3.ffffffffffffffff", "99999.1.ffffffffffffffff", "7.7"]) {
        let message = refused(&running, position).await;
        assert!(message.contains("is not part of this cluster's history"), "{message}");
        assert_eq!(listed(&running, &format!("?after={}", go_on(&message))).await, (200, new.clone()));
    }
    assert_eq!(listed(&running, "?after=0.0").await, (200, new.clone()), "0.0 is the beginning of any history");
    assert_eq!(listed(&running, &format!("?after={}", new[3])).await, (200, new[4..].to_vec()));
    for wrong in ["abc", "7", "7.x", "1.2.3.4.5"] {
        let (status, code, message) = running.send("GET", &format!("/v1/awards?after={wrong}"), "").await.failure();
        assert_eq!((status, code.as_str()), (400, "after"), "{message}");
        assert!(message.contains(&format!("{wrong:?}")), "{message}");
    }
}

#[tokio::test]
async fn a_position_is_good_in_a_restored_cluster_as_far_as_its_image_goes() {
    let running = start().await;
    award(&running.memory, 6);
    let old = positions(&running).await;
    running.memory.restore(4);
    award(&running.memory, 3);
    let new = positions(&running).await;
    assert_eq!((&new[..4], new.len()), (&old[..4], 7), "what the image has stays where it was");
    for (seen, position) in old[..4].iter().enumerate() {
        assert_eq!(listed(&running, &format!("?after={position}")).await, (200, new[seen + 1..].to_vec()));
    }
    for position in &old[4..] {
        let message = refused(&running, position).await;
        assert_eq!(listed(&running, &format!("?after={}", go_on(&message))).await, (200, new[4..].to_vec()));
    }
}

#[tokio::test]
async fn a_position_ahead_of_the_ledger_is_refused_once_the_ledger_was_asked() {
    let running = start().await;
    award(&running.memory, 4);
    let all = positions(&running).await;
    // Another process has told the caller of an award of which this one has not heard.
    running.memory.heard.store(2, Ordering::Relaxed);
    assert_eq!(listed(&running, &format!("?after={}", all[3])).await, (200, vec![]));
    running.memory.heard.store(2, Ordering::Relaxed);
    running.memory.away.store(true, Ordering::Relaxed);
    let (status, code, message) = running.send("GET", &format!("/v1/awards?after={}", all[3]), "").await.failure();
    assert_eq!((status, code.as_str()), (503, "not_serving"), "{message}");
    running.memory.away.store(false, Ordering::Relaxed);
    let message = refused(&running, "0000000000000001.99999.1.ffffffffffffffff").await;
    assert!(message.contains("is ahead of all that the ledger has decided"), "{message}");
    assert_eq!(listed(&running, &format!("?after={}", go_on(&message))).await, (200, all));
}

#[tokio::test]
async fn a_subscriber_with_a_position_of_another_history_is_told_and_misses_nothing() {
    let running = start_with(Memory::new(None), Options { live_connections_max: 64, ..options() }).await;
    award(&running.memory, 6);
    let old = positions(&running).await;
    running.memory.restore(4);
    award(&running.memory, 2);
    let new = positions(&running).await;
    let beginning = "0000000000000001.0.0.0000000000000000";
    let image = "0000000000000001.4.18446744073709551615.ffffffffffffffff";
    let ahead = "0000000000000002.2000000.1.ffffffffffffffff".to_owned();
    for (given, reason, begins, seen) in [
        (old[5].clone(), "other_birth", image, 4),
        ("99999.1.ffffffffffffffff".to_owned(), "other_birth", beginning, 0),
        ("99999999.1".to_owned(), "other_birth", beginning, 0),
        (ahead, "ahead", beginning, 0),
    ] {
        let mut socket = open(&running, &format!("after={given}")).await;
        let reader = format!("authorization: Bearer {TOKEN}\r\nlast-event-id: {given}\r\n");
        let mut stream = events(&running, "after=0.0", &reader).await;
        let begin = next(&mut socket).await;
        let expected = serde_json::json!({"type": "begin", "birth": "0000000000000002", "position": begins});
        assert_eq!(begin, expected, "{given} is not repeated");
        assert_eq!(next_event(&mut stream).await, (Some(begins.to_owned()), begin));
        let anew = serde_json::json!({
            "type": "anew", "of": "awards", "reason": reason, "given": given, "position": begins,
        });
        assert_eq!(next(&mut socket).await, anew);
        assert_eq!(
            next_event(&mut stream).await,
            (Some(begins.to_owned()), anew),
            "a browser comes back with this one"
        );
        for position in &new[seen..] {
            assert_eq!(next(&mut socket).await["position"], position.as_str());
            assert_eq!(next_event(&mut stream).await.0.as_ref(), Some(position));
        }
    }
    let mut known = open(&running, &format!("after={}", old[3])).await;
    assert_eq!(next(&mut known).await["position"], old[3].as_str());
    assert_eq!(next(&mut known).await["position"], new[4].as_str(), "nothing is said where nothing is wrong");
    let wrong = connect(&running, "after=abc", &format!("{LIVE_PROTOCOL}, bearer.{TOKEN}")).await;
    assert!(wrong.is_err());
}

#[tokio::test]
async fn a_session_with_a_position_of_another_history_is_told_all_of_its_own() {
    let running = start().await;
    let session = issue(&running, r#"{"namespace":"search"}"#).await.remove(0);
    count(&running, "search/each", &session).await;
    let old = positions(&running).await.remove(0);
    running.memory.found_anew();
    count(&running, "search/each", &session).await;
    let own = positions(&running).await.remove(0);
    let protocols = format!("{LIVE_PROTOCOL}, session.{session}");
    let mut socket = connect(&running, &format!("own_after={old}"), &protocols).await.unwrap();
    assert_eq!(next(&mut socket).await, serde_json::json!({"type": "begin", "birth": "0000000000000002"}));
    let anew = next(&mut socket).await;
    assert_eq!((&anew["type"], &anew["of"], &anew["given"]), (&"anew".into(), &"own".into(), &old.as_str().into()));
    let yours = next(&mut socket).await;
    assert_eq!((&yours["type"], &yours["position"]), (&"yours".into(), &own.as_str().into()));
    // A turn of its claim has a position, too.
    let id: SessionId = tidemark_server::names::session_id(&session).unwrap();
    let turn = Turn { kind: TurnKind::Claimed, holder: 1 };
    let counter = parse_counter("search/each").unwrap();
    let dc = tidemark_proto::ids::DcId(0);
    running.memory.turn(ClaimTurn { counter, at: 1, index: 7, turn, session: Some(id), dc });
    let claim = next(&mut socket).await;
    assert_eq!(claim["type"], "claim");
    assert!(claim["position"].as_str().unwrap().starts_with("0000000000000002.7.1."), "{claim}");
}

#[tokio::test]
async fn a_subscriber_whose_position_cannot_be_judged_yet_has_totals_and_then_its_awards() {
    let running = start().await;
    award(&running.memory, 4);
    let all = positions(&running).await;
    running.memory.heard.store(2, Ordering::Relaxed);
    running.memory.away.store(true, Ordering::Relaxed);
    let mut socket = open(&running, &format!("counter=search/q&awards=all&after={}", all[3])).await;
    assert_eq!(next(&mut socket).await["type"], "total", "where it begins is not said before it is known");
    running.memory.count(&add("search/q", 7));
    assert_eq!(next(&mut socket).await["value"], 7);
    award(&running.memory, 1);
    running.memory.away.store(false, Ordering::Relaxed);
    let begin = next(&mut socket).await;
    assert_eq!((&begin["type"], &begin["position"]), (&"begin".into(), &all[3].as_str().into()));
    assert_eq!(next(&mut socket).await["at"], 5);
}
