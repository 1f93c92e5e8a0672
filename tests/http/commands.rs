//! The command's clients, as processes, against a real server.

use crate::memory::Memory;
use crate::support::{Running, TOKEN, add, options, start, start_with};
use std::process::{Output, Stdio};
use tidemark_transport::certs::{ClusterCa, Identity, Role};
use tokio::process::Command;

async fn run(running: &Running, arguments: &[&str]) -> Output {
    command(running, arguments).output().await.unwrap()
}

fn command(running: &Running, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidemark"));
    command.args(arguments).env("TIDEMARK_SERVER", format!("http://{}", running.address)).env("TIDEMARK_TOKEN", TOKEN);
    command.stdin(Stdio::null()).kill_on_drop(true);
    command
}

fn text(output: &Output) -> (i32, String) {
    let text = if output.status.success() { &output.stdout } else { &output.stderr };
    (output.status.code().unwrap(), String::from_utf8_lossy(text).trim().to_owned())
}

#[tokio::test]
async fn counting_from_the_shell() {
    let running = start().await;
    let said = async |arguments: &[&str]| text(&run(&running, arguments).await);
    assert_eq!(said(&["add", "search/a/milestones", "2"]).await, (0, "counted; search/a/milestones is 2".into()));
    assert_eq!(said(&["add", "search/a/milestones", "1", "--no-value"]).await, (0, "counted".into()));
    assert_eq!(
        said(&["get", "search/a/milestones", "search/b"]).await,
        (0, "search/a/milestones 3\nsearch/b 0 (never counted)".into())
    );
    let defined = said(&["milestones", "define", "search/b", "--at", "2,5"]).await;
    assert_eq!(defined, (0, "2 armed\n5 armed".into()));
    assert_eq!(said(&["milestones", "disarm", "search/b", "--at", "5"]).await, (0, "2 armed".into()));
    let timely = ["milestones", "define", "search/c", "--at", "7", "--policy", "timely"];
    assert_eq!(said(&timely).await, (0, "7 armed, timely".into()));
    let (code, why) = said(&["milestones", "define", "search/d", "--at", "7", "--of", "total"]).await;
    assert!(
        code == 1 && why.contains("400 Bad Request: milestones stand on direct counts: a total is derived"),
        "{why}"
    );
    assert_eq!(said(&["milestones", "list", "search/d"]).await, (0, "no milestones".into()));
    let won = said(&["add", "search/b", "3", "--session", "abc"]).await;
    assert_eq!(won, (0, "the milestone 2, counted as numbers 1 to 3; search/b is 3".into()));
    let version = said(&["add", "search/b", "--json"]).await.1;
    let version = serde_json::from_str::<serde_json::Value>(&version).unwrap()["version"].as_str().unwrap().to_owned();
    assert_eq!(said(&["get", "search/b", "--at-least", &version]).await, (0, "search/b 4".into()));
    let two = said(&["get", "search/a", "search/b", "--at-least", &version]).await;
    assert!(two.0 == 1 && two.1.contains("--at-least goes with one counter, and 2 are given"), "{two:?}");
    assert_eq!(said(&["milestones", "list", "search/b"]).await, (0, "2 awarded".into()));
    let awards = said(&["awards", "list"]).await.1;
    assert!(
        awards.starts_with("search/b milestone 2 at 2026-11-28T06:15:44.120Z: numbers 1 to 3, client "),
        "{awards}"
    );
    let json = said(&["get", "search/b", "--json"]).await.1;
    assert!(json.contains(r#""value":4"#), "{json}");
    assert!(said(&["status"]).await.1.contains("dc: usa-0"));
}

#[tokio::test]
async fn what_is_wrong_is_said_with_a_failing_exit() {
    let running = start().await;
    let said = async |arguments: &[&str]| text(&run(&running, arguments).await);
    let zero = said(&["add", "search/a", "0"]).await;
    assert!(zero.0 == 1 && zero.1.contains("400 Bad Request: delta 0 of item 0: 1 to"), "{zero:?}");
    assert!(said(&["add", "search"]).await.1.contains("NAMESPACE/KEY expected"));
    let token = said(&["get", "search/a", "--token", "another-token-of-32-characters.."]).await;
    assert!(
        token.1.contains("401 Unauthorized: the token is not that of this process; pass --token-file"),
        "{token:?}"
    );
    let watch = said(&["watch", "search/a", "--token", "another-token-of-32-characters.."]).await;
    assert!(watch.0 == 1 && watch.1.contains("401"), "{watch:?}");
    let address = said(&["status", "--server", "ftp://127.0.0.1:1"]).await;
    assert!(address.1.contains("http://HOST:PORT or https://HOST:PORT expected"), "{address:?}");
    let plain = said(&["status", "--server", "http://127.0.0.1:1", "--ca", "ca.pem"]).await;
    assert!(plain.1.contains("--ca goes with https://"), "{plain:?}");
    let no_authority = said(&["status", "--server", "https://127.0.0.1:1", "--ca", "no-such-file.pem"]).await;
    assert!(no_authority.1.contains("cannot read the authorities in no-such-file.pem"), "{no_authority:?}");
    let nobody = said(&["status", "--server", "http://127.0.0.1:1"]).await;
    assert!(nobody.1.contains("cannot reach 127.0.0.1:1: Connection refused"), "{nobody:?}");
}

#[tokio::test]
async fn numbers_are_written_as_people_write_them() {
    let running = start().await;
    let said = async |arguments: &[&str]| text(&run(&running, arguments).await);
    for delta in ["1k", "1e3", "1_000"] {
        assert_eq!(said(&["add", "search/n", delta, "--no-value"]).await, (0, "counted".into()), "{delta}");
    }
    assert_eq!(said(&["get", "search/n"]).await.1, "search/n 3000");
    let defined = said(&["milestones", "define", "search/m", "--at", "1e9,5k", "--at", "1_000_000"]).await;
    assert_eq!(defined, (0, "1000000000 armed\n5000 armed\n1000000 armed".into()));
    for wrong in [&["add", "search/n", "1,000,000"][..], &["milestones", "define", "search/n", "--at", "1,000,000"]] {
        let (code, why) = said(wrong).await;
        assert!(code == 2 && why.contains("1_000_000"), "{wrong:?}: {why}");
    }
}

#[tokio::test]
async fn what_is_wrong_is_said_in_the_words_of_the_command_line() {
    let running = start().await;
    let said = async |arguments: &[&str]| text(&run(&running, arguments).await);
    for wrong in [&["window", "search/a"][..], &["series", "search/a", "--every", "1d"], &["top", "search/"]] {
        let (code, why) = said(wrong).await;
        assert!(code == 1 && why.contains("one of --last PERIOD, --from TIME") && !why.contains("last="), "{why}");
    }
    let series = said(&["window", "search/a", "--last", "1d"]).await.1;
    assert!(series.contains("tidemark namespaces series search --keep"), "{series}");
    let namespace = said(&["get", "serach/a"]).await.1;
    assert!(namespace.contains("did you mean \"search\"? Known: default, search, stock."), "{namespace}");
    let watch = said(&["watch", "serach/a"]).await.1;
    assert!(watch.contains("404") && watch.contains("did you mean \"search\"?") && !watch.contains('{'), "{watch}");
    let grows = said(&["add", "search/a", "-1"]).await.1;
    assert!(grows.contains("tidemark serve --updown search"), "{grows}");
    let token = said(&["get", "search/a", "--token", "another-token-of-32-characters.."]).await.1;
    assert!(token.contains("pass --token-file DATA_DIR/token"), "{token}");
    let mut none = command(&running, &["get", "search/a"]);
    let none = text(&none.env("TIDEMARK_TOKEN", "").output().await.unwrap());
    assert!(none.1.contains("a token is needed; pass --token-file"), "a variable of nothing is none: {none:?}");
}

#[tokio::test]
async fn counters_are_read_in_the_order_asked() {
    let running = start().await;
    running.memory.count_ones("search/b", 2);
    let read = text(&run(&running, &["get", "search/b", "search/a", "search/b"]).await);
    assert_eq!(read, (0, "search/b 2\nsearch/a 0 (never counted)\nsearch/b 2".into()));
}

#[tokio::test]
async fn the_shell_says_when_it_happened() {
    let running = start().await;
    let said = async |arguments: &[&str]| text(&run(&running, arguments).await);
    for at in ["1700000000", "2023-11-14T23:13:20+01:00"] {
        let (code, text) = said(&["add", "search/a", "2", "--at", at]).await;
        assert!(code == 0 && text.starts_with("counted; search/a is "), "{text}");
    }
    assert_eq!(running.memory.events(), vec![("search/a".to_owned(), 1_700_000_000, 2); 2]);
    let late = said(&["add", "search/a", "--at", "1600000000"]).await;
    assert!(late.0 == 1 && late.1.contains("at most 3600 s allowed"), "{late:?}");
    let none = said(&["add", "search/a", "--at", "noon"]).await;
    assert!(none.0 == 2 && none.1.contains("such as 2026-11-24T08:00:00Z"), "{none:?}");
}

#[tokio::test]
async fn watching_shows_totals_and_awards() {
    let running = start().await;
    running.send("PUT", "/v1/counters/search/q/milestones", r#"{"at":[1]}"#).await;
    running.memory.count(&add("search/q", 1));
    let watched = run(&running, &["watch", "search/q", "--after", "0.0", "--messages", "2"]).await;
    let (code, lines) = text(&watched);
    assert_eq!(code, 0, "{lines}");
    let mut lines: Vec<&str> = lines.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines[0], "search/q 1");
    assert!(lines[1].starts_with("search/q milestone 1 at 2026-11-28T06:15:44.120Z: number 1, "), "{}", lines[1]);
}

#[tokio::test]
async fn a_certificate_is_fetched_and_verified_with_a_ca_from_outside_only() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let ca = ClusterCa::generate("demo").unwrap();
    ca.save(&dir.path().join("ca")).unwrap();
    let signer = ca.issue(&Identity::new("demo", "usa-0", Role::Aggregator, "0").unwrap(), 1).unwrap();
    let running = start_with(Memory::new(Some(signer)), options()).await;
    running.send("PUT", "/v1/counters/search/q/milestones", r#"{"at":[1]}"#).await;
    running.memory.count(&add("search/q", 1));
    let said = async |arguments: &[&str]| text(&run(&running, arguments).await);
    let file = path("award.json");
    let ca = path("ca/ca.pem");
    assert_eq!(said(&["awards", "certificate", "search/q", "1", "--out", &file]).await.0, 0);
    let again = said(&["awards", "certificate", "search/q", "1", "--out", &file]).await;
    assert!(again.0 == 1 && again.1.contains("exists"), "{again:?}");
    let good = said(&["verify", "--ca", &ca, "--voters", "1", &file]).await;
    assert!(good.0 == 0 && good.1.contains("number 1: exactly 0 were counted before it"), "{good:?}");
    let few = said(&["verify", "--ca", &ca, "--voters", "usa-0,asia-0,europe-0", &file]).await;
    assert!(few.0 == 1 && few.1.contains("signed by 1 of 3 voters: 2 needed"), "{few:?}");
    assert_eq!(said(&["verify", "--voters", "1", &file]).await.0, 2);
    assert_eq!(said(&["verify", "--ca", &ca, &file]).await.0, 2);
    assert_eq!(said(&["verify", "--ca", &path("none.pem"), "--voters", "1", &file]).await.0, 2);
    let changed = std::fs::read_to_string(&file).unwrap().replace("\"delta\": 1", "\"delta\": 2");
    std::fs::write(&file, changed).unwrap();
    let refused = said(&["verify", "--ca", &ca, "--voters", "1", &file]).await;
    assert!(refused.0 == 1 && refused.1.contains("is not the one that was signed"), "{refused:?}");
}
