//! The cookbook, block by block, against a data centre as `serve` starts it: what the document says is what is answered.

use crate::http::{self, TOKEN};
use crate::process::{Process, WAIT_MAX, command, until};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const COOKBOOK: &str = include_str!("../../docs/cookbook.md");
/// Stands for anything.
const ANYTHING: char = '…';
/// Between two tries of what is only read.
const AGAIN: Duration = Duration::from_millis(50);

/// A block of the document, with the line on which it begins.
struct Block {
    line: usize,
    kind: &'static str,
    text: String,
}

fn blocks() -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut is_open = false;
    for (line, text) in COOKBOOK.lines().enumerate() {
        match text.strip_prefix("```") {
            Some("") => is_open = false,
            Some(kind) => {
                blocks.push(Block { line: line + 1, kind, text: String::new() });
                is_open = true;
            }
            None if is_open => blocks.last_mut().unwrap().text += &format!("{text}\n"),
            None => {}
        }
    }
    blocks
}

fn lines(text: &str) -> Vec<&str> {
    text.lines().collect()
}

/// Whether lines are those that are expected; a line that is only [`ANYTHING`] stands for any number.
fn lines_match(expected: &[&str], said: &[&str]) -> bool {
    match expected.split_first() {
        None => said.is_empty(),
        Some((&first, rest)) if first == ANYTHING.to_string() => {
            (0..=said.len()).any(|skipped| lines_match(rest, &said[skipped..]))
        }
        Some((first, rest)) => {
            said.split_first().is_some_and(|(line, more)| line_matches(first, line) && lines_match(rest, more))
        }
    }
}

fn line_matches(expected: &str, line: &str) -> bool {
    let Some((first, rest)) = expected.split_once(ANYTHING) else { return line == expected };
    let Some(mut left) = line.strip_prefix(first) else { return false };
    let pieces: Vec<&str> = rest.split(ANYTHING).collect();
    let (last, middle) = pieces.split_last().unwrap();
    for piece in middle {
        match left.split_once(piece) {
            Some((_, after)) => left = after,
            None => return false,
        }
    }
    left.ends_with(last)
}

/// Whether an answer has all that is expected. A text `$NAME` takes what stands there.
fn has(answer: &Value, expected: &Value, names: &mut BTreeMap<String, String>) -> bool {
    match (expected, answer) {
        (Value::Object(expected), Value::Object(answer)) => {
            expected.iter().all(|(name, value)| answer.get(name).is_some_and(|found| has(found, value, names)))
        }
        (Value::Array(expected), Value::Array(answer)) => {
            expected.len() == answer.len() && expected.iter().zip(answer).all(|(value, found)| has(found, value, names))
        }
        (Value::String(name), Value::String(found)) if name.starts_with('$') => {
            names.insert(name.clone(), found.clone());
            true
        }
        _ => expected == answer,
    }
}

/// A data centre as the document's first block starts it, but on any port and with the tests' token.
async fn served(block: &Block, data: &Path) -> (Process, SocketAddr) {
    std::fs::create_dir_all(data).unwrap();
    let mut options = std::fs::OpenOptions::new();
    let mut token = options.write(true).create_new(true).mode(0o600).open(data.join("token")).unwrap();
    token.write_all(TOKEN.as_bytes()).unwrap();
    let said: Vec<&str> = block.text.split_whitespace().collect();
    assert_eq!((block.kind, &said[..2]), ("serve", &["tidemark", "serve"][..]));
    let arguments = [&said[1..], &["--port", "0", "--data-dir", data.to_str().unwrap()]].concat();
    let mut process = Process::start(command(&arguments), data.with_extension("log"));
    let at = process.until_said("serves at http://").await.parse().unwrap();
    (process, at)
}

/// What a shell says.
fn shell(script: &str, at: SocketAddr) -> String {
    let folder = Path::new(env!("CARGO_BIN_EXE_tidemark")).parent().unwrap();
    let path = std::env::join_paths(
        [folder.to_owned()].into_iter().chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())),
    );
    let mut shell = Command::new("bash");
    shell.args(["-euo", "pipefail", "-c", script]).stdin(Stdio::null()).env("PATH", path.unwrap());
    let output = shell.env("TIDEMARK_SERVER", format!("http://{at}")).env("TIDEMARK_TOKEN", TOKEN).output().unwrap();
    assert!(output.status.success(), "{script}\n{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a script; again until it says what is expected, if anything is: such a one only reads.
async fn run(script: &Block, expected: Option<&Block>, at: SocketAddr) {
    let start = Instant::now();
    loop {
        let said = shell(&script.text, at);
        let Some(expected) = expected else { break };
        if lines_match(&lines(&expected.text), &lines(&said)) {
            break;
        }
        let late = start.elapsed() > WAIT_MAX / 4;
        assert!(!late, "docs/cookbook.md:{}: {} is expected, not {said}", script.line, expected.text);
        tokio::time::sleep(AGAIN).await;
    }
    for line in script.text.lines() {
        if let Some(rest) = line.strip_prefix("tidemark namespaces series ") {
            holds(at, rest.split(' ').next().unwrap()).await;
        }
    }
}

/// Until groups keep series of a namespace: from then on what is too late is refused.
async fn holds(at: SocketAddr, namespace: &str) {
    let probe = format!("{{\"counter\": \"{namespace}/probe\", \"at\": 9}}");
    until("a refused event", async || {
        let (_, body) = http::send(at, "POST", "/v1/add", &probe).await?;
        (body["errors"][0]["code"] == "event_time").then_some(())
    })
    .await;
}

/// Sends a request; what is read, again until the answer has what is expected.
async fn ask(request: &Block, expected: &Block, at: SocketAddr, names: &mut BTreeMap<String, String>) {
    let (first, body) = request.text.split_once('\n').unwrap();
    let (method, path) = first.split_once(' ').unwrap();
    let body = names.iter().fold(body.to_owned(), |body, (name, value)| body.replace(name, value));
    let wanted: Value = serde_json::from_str(&expected.text).expect("what is expected is JSON");
    let start = Instant::now();
    loop {
        let (code, answer) = http::send(at, method, path, &body).await.expect("the server answers");
        if code == 200 && has(&answer, &wanted, names) {
            return;
        }
        let is_final = path != "/v1/read" || start.elapsed() > WAIT_MAX / 4;
        assert!(!is_final, "docs/cookbook.md:{}: {wanted} is expected, not {answer}", request.line);
        tokio::time::sleep(AGAIN).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cookbook_says_what_is_answered() {
    let (blocks, folder) = (blocks(), tempfile::tempdir().unwrap());
    let (_process, at) = served(&blocks[0], &folder.path().join("data")).await;
    let mut names = BTreeMap::new();
    let mut rest = blocks[1..].iter().peekable();
    while let Some(block) = rest.next() {
        match block.kind {
            "sh" => run(block, rest.next_if(|next| next.kind == "text"), at).await,
            "http" => ask(block, rest.next_if(|next| next.kind == "json").expect("an answer"), at, &mut names).await,
            kind => panic!("docs/cookbook.md:{}: a block of {kind:?} behind nothing that it belongs to", block.line),
        }
    }
}

#[test]
fn what_the_document_does_not_say_does_not_match() {
    assert!(lines_match(&["a… c", "…", "z"], &["ab c", "x", "y", "z"]) && lines_match(&["a", "…"], &["a"]));
    for said in [&["ab c"][..], &["ab", "z"], &["ab c", "z", "y"], &[]] {
        assert!(!lines_match(&["a… c", "…", "z"], said), "{said:?}");
    }
    assert!(!line_matches("a…b…c", "acb") && line_matches("…3… of 7", "3 of 7"));
    let json = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    let (answer, mut names) = (json(r#"{"a": [{"b": 1, "c": "t"}], "d": 2}"#), BTreeMap::new());
    assert!(has(&answer, &json(r#"{"a": [{"b": 1, "c": "$T"}]}"#), &mut names) && names["$T"] == "t");
    for wrong in [r#"{"a": [{"b": 2}]}"#, r#"{"a": []}"#, r#"{"e": 1}"#, r#"{"d": "2"}"#] {
        assert!(!has(&answer, &json(wrong), &mut names), "{wrong}");
    }
}
