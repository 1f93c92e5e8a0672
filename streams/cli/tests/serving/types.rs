//! Event types that are renamed and deleted while a server runs.

use crate::serving::{Place, Server, event, until};
use serde_json::{Value, json};

/// An event of a type.
fn typed(name: &str, id: Option<u32>) -> String {
    let mut event: Value = serde_json::from_str(&event("a", "x", "00:10:00")).unwrap();
    event["type"] = json!(name);
    if let Some(id) = id {
        event["event_id"] = json!(id);
    }
    format!("{event}\n")
}

/// The counts of tenant `a` by type.
fn by_type(server: &Server) -> Value {
    let rows = server.ask("a", json!({ "dimensions": ["type"] }))["rows"].clone();
    let pair = |row: &Value| (row["type"].as_str().unwrap().to_owned(), row["n"].clone());
    rows.as_array().unwrap().iter().map(pair).collect::<serde_json::Map<_, _>>().into()
}

const ARGUMENTS: [&str; 6] = ["--types", "view,click,impression", "--flush-s", "1", "--reader-grace-s", "1"];

#[test]
fn running_server_renames_rows_of_blobs_memory_and_log() {
    let place = Place::new();
    let server = Server::start(&place.dir(), &ARGUMENTS);
    server.send(typed("view", Some(1)) + &typed("click", None));
    until("the flush", || server.metric("tidemark_streams_log_entries") == 0.0);
    server.send(typed("view", Some(2)));
    let version = server.ask("a", json!({ "dimensions": ["type"] }))["version"].clone();
    let said = server.post("/v1/types/rename?from=view&to=impression-view", "").json();
    assert_eq!(said["types"], json!(["click", "impression", "impression-view"]), "{said}");
    assert_eq!(said["aliases"], json!({ "view": "impression-view" }));
    assert_eq!(by_type(&server), json!({ "impression-view": 2, "click": 1 }));
    let again = server.ask("a", json!({ "dimensions": ["type"], "unless_version": version }));
    assert!(again["rows"].is_array(), "a page that polls gets the new names: {again}");
    // Events of both names count for it, and an id that was sent under the old name is known under the new one.
    let answer = server.send(typed("view", Some(2)) + &typed("impression-view", Some(1)) + &typed("view", Some(3)));
    assert_eq!((&answer["accepted"], &answer["duplicates"]), (&json!(1), &json!(2)), "{answer}");
    let filtered = |name: &str| server.ask("a", json!({ "dimensions": [], "types": [name] }))["total"].clone();
    assert_eq!((filtered("impression-view"), filtered("view")), (json!(3), json!(3)));
    // A pause goes with the type.
    server.post("/v1/pause?type=view", "");
    let paused = server.post("/v1/events", typed("view", None));
    assert_eq!((paused.status, paused.code().as_str()), (503, "type_paused"));
    server.post("/v1/types/rename?from=impression-view&to=seen", "");
    assert_eq!(server.post("/v1/events", typed("impression-view", None)).code(), "type_paused");
    assert_eq!(server.post("/v1/resume?type=seen", "").json()["types"], json!({}));
    server.kill();
    let server = Server::start(&place.dir(), &ARGUMENTS);
    until("the claim", || server.get("/readyz").status == 200);
    server.send(typed("view", None) + &typed("seen", None));
    until("the fold", || by_type(&server) == json!({ "seen": 5, "click": 1 }));
    server.stop();
    assert!(place.said(&["audit"]).contains(" count 6\n"));
}

#[test]
fn running_server_deletes_a_type_and_uses_its_name_again() {
    let place = Place::new();
    let server = Server::start(&place.dir(), &ARGUMENTS);
    server.send(typed("view", Some(1)) + &typed("click", None));
    until("the flush", || server.metric("tidemark_streams_log_entries") == 0.0);
    server.send(typed("view", None).repeat(3));
    let said = server.post("/v1/types/delete?type=view", "").json();
    assert_eq!((&said["types"], &said["deleted"]["view"]["is_done"]), (&json!(["click", "impression"]), &json!(false)));
    assert_eq!(by_type(&server), json!({ "click": 1 }));
    let answer = server.send(typed("view", None) + &typed("click", None));
    assert_eq!((&answer["dead_letters"], &answer["errors"][0]["code"]), (&json!(1), &json!("event_type_deleted")));
    let is_done = |server: &Server| server.get("/v1/types").json()["deleted"]["view"]["is_done"] == json!(true);
    server.kill();
    let server = Server::start(&place.dir(), &ARGUMENTS);
    until("the deletion", || server.get("/readyz").status == 200 && is_done(&server));
    assert_eq!(server.metric("tidemark_streams_deleting_blobs"), 0.0);
    // The page of a shop asks as before, and the id of a deleted event does not stand in the way of a new one.
    server.post("/v1/types/add?type=view", "");
    assert_eq!(by_type(&server), json!({ "click": 2 }));
    assert_eq!(server.send(typed("view", Some(1)))["accepted"], json!(1));
    until("the fold", || by_type(&server) == json!({ "click": 2, "view": 1 }));
    server.stop();
    assert!(place.said(&["audit"]).contains(" count 3\n"));
}

/// A change of types by a command has to know which events wait in the log of a server that was killed.
#[test]
fn waiting_events_of_a_deleted_type_do_not_come_back() {
    let place = Place::new();
    let waiting = ["--types", "view,click", "--flush-s", "3600"];
    let server = Server::start(&place.dir(), &waiting);
    // The manifest knows a type once a server with it has claimed the partition.
    until("the claim", || server.request("GET", "/readyz", &[], b"").unwrap().status == 200);
    server.send(typed("view", None).repeat(3) + &typed("click", None));
    server.kill();
    let said = place.said(&["types", "delete", "view"]);
    assert!(said.contains("\n4 events in the intake's log and 0 dead letters are left"), "{said}");
    place.said(&["types", "add", "view"]);
    let server = Server::start(&place.dir(), &waiting);
    until("the fold", || by_type(&server) == json!({ "click": 1 }));
    server.send(typed("view", None));
    until("the fold", || by_type(&server) == json!({ "click": 1, "view": 1 }));
    // The same for changes over HTTP, with events that wait in the log after a kill.
    server.post("/v1/types/rename?from=view&to=seen", "");
    server.post("/v1/types/add?type=view", "");
    server.send(typed("view", None).repeat(5));
    server.kill();
    let server = Server::start(&place.dir(), &waiting);
    until("the fold", || by_type(&server) == json!({ "click": 1, "seen": 1, "view": 5 }));
    server.stop();
    assert!(place.said(&["audit"]).contains(" count 7\n"));
    assert_eq!(place.said(&["dead-letters", "list", "--reason", "was deleted"]).lines().count(), 3);
}

#[test]
fn event_ids_of_merged_types_stay_known() {
    let place = Place::new();
    let server = Server::start(&place.dir(), &ARGUMENTS);
    let both = typed("view", Some(1)) + &typed("click", Some(2));
    assert_eq!(server.send(both.clone())["accepted"], json!(2));
    server.post("/v1/types/rename?from=view&to=click&merge=true", "");
    assert_eq!(server.send(both)["duplicates"], json!(2));
    assert_eq!(by_type(&server), json!({ "click": 2 }));
}

#[test]
fn types_are_changed_by_operators_and_refusals_are_named() {
    let place = Place::new();
    let secret = &place.secret();
    let token = |arguments: &[&str]| place.bearer(arguments);
    let operator = token(&["--operator"]);
    let producer = token(&[]);
    let server = Server::start(&place.dir(), &["--secret-file", secret]);
    until("the claim", || server.request("GET", "/readyz", &[], b"").unwrap().status == 200);
    let ask = |token: &str, method: &str, path: &str| server.request(method, path, &[token], b"").unwrap();
    assert_eq!(ask(&producer, "GET", "/v1/types").status, 403);
    assert_eq!(ask(&producer, "POST", "/v1/types/delete?type=click").status, 403);
    assert_eq!(ask(&operator, "GET", "/v1/types").json()["types"], json!(["click", "impression"]));
    let foreign = [operator.as_str(), "origin: https://elsewhere.example"];
    let refused = server.request("POST", "/v1/types/delete?type=click", &foreign, b"").unwrap();
    assert_eq!(refused.code(), "other_site");
    for path in ["/v1/types/rename?from=click&to=impression", "/v1/types/delete?type=view", "/v1/types/add?type=A"] {
        let refused = ask(&operator, "POST", path);
        assert_eq!((refused.status, refused.code().as_str()), (409, "type_change"), "{refused:?}");
    }
    for path in ["/v1/types/rename?from=click", "/v1/types/delete", "/v1/types/rename?from=click&to=x&merge=1"] {
        assert_eq!(ask(&operator, "POST", path).code(), "parameter");
    }
    let merged = ask(&operator, "POST", "/v1/types/rename?from=click&to=impression&merge=true");
    assert_eq!(merged.json()["types"], json!(["impression"]), "{merged:?}");
}
