//! Pages of the book, block by block, against a data centre as `serve` starts it: what a page says is what is answered. `sh` blocks run in
//! the folder of `tidemark-data`; a `text` block behind one is what it says. `http` blocks are requests, `json` blocks their answers.

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
use tidemark::running::DATA_DIR;

/// Kinds of blocks that are for readers only.
const FOR_READERS: [&str; 2] = ["console", "rust"];
/// Where pages say that `serve` listens.
const SERVED: &str = "127.0.0.1:7171";
/// Stands for anything.
const ANYTHING: char = '…';
/// Between two tries of what is only read.
const AGAIN: Duration = Duration::from_millis(50);

/// A page of the book.
#[derive(Clone, Copy)]
pub struct Page {
    pub path: &'static str,
    pub text: &'static str,
}

/// A block of a page, with the line on which it begins.
pub struct Block {
    pub line: usize,
    pub kind: &'static str,
    pub text: String,
}

/// Where the scripts of a page run: in a folder, beside a server.
pub struct Place<'a> {
    pub page: Page,
    pub folder: &'a Path,
    pub environment: Vec<(&'static str, String)>,
    /// The names in a page, and their names here.
    pub called: Vec<(String, String)>,
}

pub fn blocks(page: Page) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut is_open = false;
    for (line, text) in page.text.lines().enumerate() {
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
    blocks.retain(|block| !FOR_READERS.contains(&block.kind));
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

/// A data centre as the page's first block starts it.
async fn served(block: &Block, data: &Path) -> (Process, SocketAddr) {
    let said: Vec<&str> = block.text.split_whitespace().collect();
    assert_eq!((block.kind, &said[..2]), ("serve", &["tidemark", "serve"][..]));
    serve(&said[1..], data).await
}

/// A data centre as `serve` starts it, on any port and with the tests' token.
pub async fn serve(arguments: &[&str], data: &Path) -> (Process, SocketAddr) {
    std::fs::create_dir_all(data).unwrap();
    let mut options = std::fs::OpenOptions::new();
    let mut token = options.write(true).create_new(true).mode(0o600).open(data.join("token")).unwrap();
    token.write_all(TOKEN.as_bytes()).unwrap();
    let arguments = [arguments, &["--port", "0", "--data-dir", data.to_str().unwrap()]].concat();
    let mut process = Process::start(command(&arguments), data.with_extension("log"));
    let at = process.until_said("serves at http://").await.parse().unwrap();
    (process, at)
}

/// The output of a shell.
fn shell(script: &str, place: &Place) -> String {
    let script = place.called.iter().fold(script.to_owned(), |script, (page, here)| script.replace(page, here));
    let folder = Path::new(env!("CARGO_BIN_EXE_tidemark")).parent().unwrap();
    let path = std::env::join_paths(
        [folder.to_owned()].into_iter().chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())),
    );
    let mut shell = Command::new("bash");
    shell.args(["-euo", "pipefail", "-c", &script]).stdin(Stdio::null()).env("PATH", path.unwrap());
    let output = shell.current_dir(place.folder).envs(place.environment.iter().cloned()).output().unwrap();
    assert!(output.status.success(), "{}: {script}\n{}", place.page.path, String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a script. Again until it says what is expected, if anything is: one that counts says it at once, and one that reads may be early.
pub async fn run(script: &Block, expected: Option<&Block>, place: &Place<'_>) {
    let start = Instant::now();
    loop {
        let said = shell(&script.text, place);
        let Some(expected) = expected else { break };
        if lines_match(&lines(&expected.text), &lines(&said)) {
            break;
        }
        let late = start.elapsed() > WAIT_MAX / 4;
        assert!(!late, "{}:{}: {} is expected, not {said}", place.page.path, script.line, expected.text);
        tokio::time::sleep(AGAIN).await;
    }
}

/// Until the series of namespaces that a script has begun are kept.
async fn until_kept(script: &Block, at: SocketAddr) {
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

/// Sends a request. A read, and a claim under one name, are repeated until the answer has the expected content.
pub async fn ask(page: Page, request: &Block, expected: &Block, at: SocketAddr, names: &mut BTreeMap<String, String>) {
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
        let is_repeated = path == "/v1/read" || path.ends_with("/claim");
        let is_final = !is_repeated || start.elapsed() > WAIT_MAX / 4;
        assert!(!is_final, "{}:{}: {wanted} is expected, not {answer}", page.path, request.line);
        tokio::time::sleep(AGAIN).await;
    }
}

async fn runs(page: Page) {
    let blocks = blocks(page);
    let folder = tempfile::tempdir().unwrap();
    let (_process, at) = served(&blocks[0], &folder.path().join(DATA_DIR)).await;
    let called = vec![(SERVED.to_owned(), at.to_string())];
    let place = Place { page, folder: folder.path(), environment: Vec::new(), called };
    let mut names = BTreeMap::new();
    let mut rest = blocks[1..].iter().peekable();
    while let Some(block) = rest.next() {
        match block.kind {
            "sh" => {
                run(block, rest.next_if(|next| next.kind == "text"), &place).await;
                until_kept(block, at).await;
            }
            "http" => {
                let answer = rest.next_if(|next| next.kind == "json").expect("an answer");
                ask(page, block, answer, at, &mut names).await;
            }
            kind => panic!("{}:{}: a block of {kind:?} behind nothing that it belongs to", page.path, block.line),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cookbook_says_what_is_answered() {
    runs(Page { path: "docs/cookbook.md", text: include_str!("../../docs/cookbook.md") }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_of_one_node_says_what_is_answered() {
    runs(Page { path: "docs/start/one-node.md", text: include_str!("../../docs/start/one-node.md") }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_of_the_first_client_says_what_is_answered() {
    runs(Page { path: "docs/start/first-client.md", text: include_str!("../../docs/start/first-client.md") }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guide_to_history_says_what_is_answered() {
    runs(Page { path: "docs/guides/history.md", text: include_str!("../../docs/guides/history.md") }).await;
}

#[test]
fn what_the_document_does_not_say_does_not_match() {
    assert!(lines_match(&["a… c", "…", "z"], &["ab c", "x", "y", "z"]) && lines_match(&["a", "…"], &["a"]));
    for said in [&["ab c"][..], &["ab", "z"], &["ab c", "z", "y"], &[]] {
        assert!(!lines_match(&["a… c", "…", "z"], said), "{said:?}");
    }
    assert!(!line_matches("a…b…c", "acb") && line_matches("…3… of 7", "3 of 7"));
    let json = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    let answer = json(r#"{"a": [{"b": 1, "c": "t"}], "d": 2}"#);
    let mut names = BTreeMap::new();
    assert!(has(&answer, &json(r#"{"a": [{"b": 1, "c": "$T"}]}"#), &mut names) && names["$T"] == "t");
    for wrong in [r#"{"a": [{"b": 2}]}"#, r#"{"a": []}"#, r#"{"e": 1}"#, r#"{"d": "2"}"#] {
        assert!(!has(&answer, &json(wrong), &mut names), "{wrong}");
    }
}
