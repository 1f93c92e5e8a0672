//! Waiting for an award over HTTP and from the shell, and how far it is.

use crate::memory::Memory;
use crate::support::{Running, TOKEN, add, options, start, start_with};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tidemark_server::http::Options;
use tokio::process::{Child, Command};

fn command(running: &Running, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidemark"));
    command.args(arguments).env("TIDEMARK_SERVER", format!("http://{}", running.address)).env("TIDEMARK_TOKEN", TOKEN);
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).kill_on_drop(true);
    command
}

/// The output of a process at its end, and whether it ended well.
async fn said(child: Child) -> (Option<i32>, String) {
    let output = tokio::time::timeout(Duration::from_secs(30), child.wait_with_output()).await.unwrap().unwrap();
    let text = if output.status.success() { &output.stdout } else { &output.stderr };
    (output.status.code(), String::from_utf8_lossy(text).trim().to_owned())
}

#[tokio::test]
async fn an_award_is_told_at_once_or_when_it_comes_or_not_yet() {
    let running = start().await;
    running.send("PUT", "/v1/counters/search/q/milestones", r#"{"at":[2,5]}"#).await;
    let now = running.send("GET", "/v1/awards/search/q/2", "").await;
    assert_eq!((now.status, now.body.as_str()), (202, r#"{"state":"armed"}"#));
    let before = running.memory.followers();
    let waiting = async {
        let start = Instant::now();
        let told = running.send("GET", "/v1/awards/search/q/2?wait_s=20", "").await;
        (told, start.elapsed())
    };
    let counting = async {
        running.until_waiting(before, 1).await;
        running.memory.count_ones("search/q", 2);
    };
    let ((told, took), ()) = tokio::join!(waiting, counting);
    assert!(took < Duration::from_secs(20), "it is told when it comes: {took:?}");
    assert_eq!((told.status, &told.json()["award"]["first"]), (200, &2.into()));
    assert_eq!(running.send("GET", "/v1/awards/search/q/2", "").await.json()["state"], "awarded");
    let start = Instant::now();
    assert_eq!(running.send("GET", "/v1/awards/search/q/5?wait_s=1", "").await.status, 202);
    assert!(start.elapsed() >= Duration::from_secs(1));
}

#[tokio::test]
async fn who_waits_for_what_cannot_come_is_told_so() {
    let running = start().await;
    let failure = async |path: &str| running.send("GET", path, "").await.failure();
    assert_eq!(failure("/v1/awards/search/q/7").await, (404, "not_found".into(), "search/q has no milestone 7".into()));
    assert_eq!(failure("/v1/awards/search/q/7?wait_s=21").await.2, "wait_s is \"21\": 1 to 20 allowed");
    assert_eq!(failure("/v1/awards/search/q/7?wait=1").await.1, "parameter");
    assert_eq!(failure("/v1/awards/search/q/seven").await.0, 404);
    running.send("PUT", "/v1/counters/search/q/milestones", r#"{"at":[7]}"#).await;
    let before = running.memory.followers();
    let removing = async {
        running.until_waiting(before, 1).await;
        running.send("DELETE", "/v1/counters/search/q/milestones?at=7", "").await
    };
    let (told, removed) = tokio::join!(running.send("GET", "/v1/awards/search/q/7?wait_s=20", ""), removing);
    assert_eq!((told.status, removed.status), (404, 200), "it was removed meanwhile");
}

#[tokio::test]
async fn those_who_wait_leave_room_for_others() {
    let running = start_with(Memory::new(None), Options { connections_max: 4, ..options() }).await;
    running.send("PUT", "/v1/counters/search/q/milestones", r#"{"at":[7]}"#).await;
    let before = running.memory.followers();
    let waiting = (0..2).map(|_| running.send("GET", "/v1/awards/search/q/7?wait_s=2", ""));
    let third = async {
        running.until_waiting(before, 2).await;
        let refused = running.send("GET", "/v1/awards/search/q/7?wait_s=2", "").await;
        (refused.failure(), running.send("GET", "/v1/awards/search/q/7", "").await.status)
    };
    let (waited, (refused, looked)) = tokio::join!(futures_util::future::join_all(waiting), third);
    assert!(waited.iter().all(|answer| answer.status == 202));
    assert_eq!((refused.0, refused.1.as_str(), looked), (503, "overloaded", 202), "to look needs no room");
}

#[tokio::test]
async fn the_command_waits_for_an_award_and_prints_it() {
    let running = start().await;
    running.send("PUT", "/v1/counters/search/q/milestones", r#"{"at":[3]}"#).await;
    let before = running.memory.followers();
    let text = command(&running, &["award", "search/q", "3"]).spawn().unwrap();
    let json = command(&running, &["award", "search/q", "3", "--json"]).spawn().unwrap();
    let ended = command(&running, &["award", "search/q", "3"]).spawn().unwrap();
    running.until_waiting(before, 3).await;
    let signal = format!("kill -TERM {}", ended.id().unwrap());
    assert!(std::process::Command::new("sh").args(["-c", &signal]).status().unwrap().success());
    assert!(said(ended).await.0.is_none(), "SIGTERM ends it");
    running.memory.count_ones("search/q", 3);
    let (code, award) = said(text).await;
    assert!(
        code == Some(0) && award.starts_with("search/q milestone 3 at 2026-11-28T06:15:44.120Z: number 3, client "),
        "{award}"
    );
    let (code, award) = said(json).await;
    let award: serde_json::Value = serde_json::from_str(&award).unwrap();
    assert_eq!((code, &award["at"], &award["first"]), (Some(0), &3.into(), &3.into()));
    let none = said(command(&running, &["award", "search/q", "4"]).spawn().unwrap()).await;
    assert!(none.0 == Some(1) && none.1.ends_with("404 Not Found: search/q has no milestone 4"), "{none:?}");
}

#[tokio::test]
async fn progress_says_how_far_the_next_milestone_is_and_about_when_it_comes() {
    let running = start().await;
    let progress =
        async |counter: &str| running.send("GET", &format!("/v1/counters/{counter}/progress"), "").await.json();
    let free = progress("search/q").await;
    assert_eq!((&free["mode"], &free["next"]), (&"free".into(), &serde_json::Value::Null));
    running.send("PUT", "/v1/counters/search/q/milestones", r#"{"at":[1000,5000]}"#).await;
    running.memory.count(&add("search/q", 100));
    let still = progress("search/q").await;
    assert_eq!((&still["rate_per_s"], &still["eta_s"]), (&0.into(), &serde_json::Value::Null));
    running.memory.rate.store(7, Ordering::Relaxed);
    let going = progress("search/q").await;
    let shown = |name: &str| going[name].clone();
    assert_eq!([shown("value"), shown("pending"), shown("next"), shown("remaining")], [100, 2, 1_000, 900]);
    assert_eq!([shown("rate_per_s"), shown("eta_s")], [7, 129]);
    assert_eq!([shown("mode"), shown("state")], ["rights", "armed"]);
    let listed = said(command(&running, &["milestones", "list", "search/q"]).spawn().unwrap()).await;
    assert_eq!(listed, (Some(0), "1000 armed, in about 2 min\n5000 armed".to_owned()));
    assert_eq!(running.send_with("GET", "/v1/counters/search/q/progress", "", "").await.status, 401);
}
