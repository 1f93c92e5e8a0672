//! Logs of a process as JSON: lines name their request, connection and group.

use crate::cookbook::serve;
use crate::http::{self, TOKEN};
use crate::process::{Process, run, until};
use serde_json::Value;
use std::net::SocketAddr;

/// The lines that are objects: `serve` also says what it does.
fn lines(process: &Process) -> Vec<Value> {
    process.said().lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn span<'a>(line: &'a Value, name: &str) -> Option<&'a Value> {
    line["spans"].as_array()?.iter().find(|span| span["span"] == name)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_is_found_in_the_log_by_its_id() {
    let folder = tempfile::tempdir().unwrap();
    let of_log = ["--log-level", "warn,tidemark_server=debug,tidemark_node=info", "--log-format", "json"];
    let served = [&["serve", "--namespace", "search"], &of_log[..]].concat();
    let (process, at) = serve(&served, &folder.path().join("data")).await;
    let body = r#"{"delta":1}"#;
    let request = format!(
        "POST /v1/counters/search/queries/add HTTP/1.1\r\nhost: x\r\nconnection: close\r\nx-request-id: order-7\r\n\
         authorization: Bearer {TOKEN}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let answer = http::raw(at, request.as_bytes(), false).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("x-request-id: order-7\r\n"), "{answer}");
    let line = until("a line of the request", async || {
        lines(&process).into_iter().find(|line| span(line, "request").is_some_and(|span| span["id"] == "order-7"))
    })
    .await;
    assert_eq!((&line["message"], &line["status"]), (&"the request is answered".into(), &200.into()));
    let request = span(&line, "request").unwrap();
    assert_eq!((&request["namespace"], &request["method"]), (&"search".into(), &"POST".into()));
    assert!(span(&line, "connection").unwrap()["peer"].as_str().unwrap().starts_with("127.0.0.1:"));
}

/// Runs `tidemark log-level` against a process.
fn log_level(at: SocketAddr, arguments: &[&str]) -> (bool, String) {
    let server = format!("http://{at}");
    let output = run(&[&["log-level", "--server", &server, "--token", TOKEN], arguments].concat());
    let said = if output.status.success() { &output.stdout } else { &output.stderr };
    (output.status.success(), String::from_utf8_lossy(said).trim().to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_level_of_a_running_process_changes_what_it_logs() {
    let folder = tempfile::tempdir().unwrap();
    let (process, at) = serve(&["serve", "--log-format", "json"], &folder.path().join("data")).await;
    let answered = || lines(&process).iter().filter(|line| line["message"] == "the request is answered").count();
    let present = |level: &str| assert_eq!(log_level(at, &[]), (true, level.to_owned()));
    present("info");
    assert_eq!(answered(), 0);
    assert_eq!(log_level(at, &["tidemark_server=debug"]), (true, "tidemark_server=debug (was info)".to_owned()));
    present("tidemark_server=debug");
    until("a line of a request", async || (answered() > 0).then_some(())).await;
    let (done, said) = log_level(at, &["tidemark_server=loud"]);
    assert!(!done && said.contains("\"tidemark_server=loud\" is no level") && said.contains("use off"), "{said}");
    present("tidemark_server=debug");
    assert!(log_level(at, &["warn"]).0);
    let before = answered();
    present("warn");
    assert_eq!(answered(), before);
    assert!(process.said().contains("the level of the log was changed"));
}
