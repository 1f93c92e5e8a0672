//! Runs the guides to webhooks and to the browser block by block against real data centres, and compares their outputs.

use crate::cluster::{Cluster, Role};
use crate::cookbook::{Block, Page, Place, ask, blocks, run};
use crate::http;
use crate::process::{Process, until};
use crate::receiver::{Receiver, SECRET};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Command;

const WEBHOOKS: Page = Page { path: "docs/guides/webhooks.md", text: include_str!("../../docs/guides/webhooks.md") };
const BROWSER: Page = Page { path: "docs/guides/browser.md", text: include_str!("../../docs/guides/browser.md") };
/// The addresses that the guides write, which are nobody's.
const RECEIVER: &str = "https://hooks.example/tidemark";
const SERVERS: [&str; 2] = ["https://counts-usa.example", "https://counts-europe.example"];
/// What a page has and a plain program has not.
const PAGE: &str = "
globalThis.requestAnimationFrame = step => setTimeout(step, 16);
const answer = globalThis.fetch;
const say = (what, value) => console.log(`${what} ${value}`);
globalThis.fetch = async (url, init) => {
  if (String(url) === '/session') return new Response(process.env.SESSION);
  const answered = await answer(url, init);
  say('connected', answered.status);
  return answered;
};
const total = { set textContent(value) { say('total', value); } };
const show = text => say('award', text), celebrate = award => say('yours', award.at), forgetAwardsBehind = () => {};
";

/// A guide that is followed against one data centre.
struct Reader<'a> {
    place: Place<'a>,
    at: SocketAddr,
    /// What answers said for `$NAME`.
    names: BTreeMap<String, String>,
}

impl<'a> Reader<'a> {
    fn new(page: Page, cluster: &'a Cluster, folder: &'a Path, at: SocketAddr) -> Reader<'a> {
        let token = cluster.path("token").to_str().unwrap().to_owned();
        let environment = vec![("TIDEMARK_SERVER", format!("http://{at}")), ("TIDEMARK_TOKEN_FILE", token)];
        Reader { place: Place { page, folder, environment, called: Vec::new() }, at, names: BTreeMap::new() }
    }

    /// Follows a script, or a request with its answer.
    async fn follow(&mut self, block: &Block, next: Option<&Block>) {
        match block.kind {
            "sh" => {
                run(block, next.filter(|next| next.kind == "text"), &self.place).await;
                self.until_armed(block).await;
            }
            "http" => {
                let answer = next.filter(|next| next.kind == "json").expect("an answer");
                ask(self.place.page, block, answer, self.at, &mut self.names).await;
            }
            // They belong to the block before.
            "json" | "text" => {}
            kind => panic!("{}:{}: a block of {kind:?}", self.place.page.path, block.line),
        }
    }

    /// A milestone that a script defined is armed within milliseconds.
    async fn until_armed(&self, script: &Block) {
        for line in script.text.lines().filter_map(|line| line.strip_prefix("tidemark milestones define ")) {
            let path = format!("/v1/counters/{}/milestones", line.split(' ').next().unwrap());
            until("an armed milestone", async || {
                let (_, list) = http::get(self.at, &path).await?;
                let is_armed = |status: &Value| status["state"] != "waiting" && status["state"] != "arming";
                list["milestones"].as_array()?.iter().all(is_armed).then_some(())
            })
            .await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guide_to_webhooks_says_what_happens() {
    let cluster = Cluster::new(&["usa"]);
    let receiver = Receiver::start([]).await;
    let blocks = blocks(WEBHOOKS);
    let (configuration, rest) = blocks.split_first().unwrap();
    assert_eq!(configuration.kind, "toml");
    let mut secret = std::fs::OpenOptions::new();
    let mut secret = secret.write(true).create_new(true).mode(0o600).open(cluster.path("webhook-secret")).unwrap();
    std::io::Write::write_all(&mut secret, SECRET.as_bytes()).unwrap();
    // The receiver of the test is on this machine.
    let here = configuration.text.replace(RECEIVER, &receiver.url()) + "allow_private = true\n";
    assert!(here.contains(&receiver.url()));
    let path = cluster.config(0, Role::Aggregator);
    std::fs::write(&path, std::fs::read_to_string(&path).unwrap() + &here).unwrap();
    let centres = cluster.centres().await;
    let folder = tempfile::tempdir().unwrap();
    let mut reader = Reader::new(WEBHOOKS, &cluster, folder.path(), centres[0].http);
    for (number, block) in rest.iter().enumerate() {
        reader.follow(block, rest.get(number + 1)).await;
    }
    let seen = until("the award and its claim", async || {
        let seen = receiver.seen();
        let is_there = |kind: &str| seen.iter().any(|seen| seen.json()["type"] == kind);
        (is_there("award") && is_there("claim")).then_some(seen)
    })
    .await;
    assert!(seen.iter().all(|seen| seen.is_signed()));
    let award = seen.iter().map(|seen| seen.json()).find(|body| body["type"] == "award" && body["trial"] != true);
    assert_eq!(award.unwrap()["at"], 1_000_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guide_to_the_browser_says_what_happens() {
    let cluster = Cluster::new(&["usa", "europe", "asia"]);
    let centres = cluster.centres().await;
    let blocks = blocks(BROWSER);
    let folder = tempfile::tempdir().unwrap();
    let mut reader = Reader::new(BROWSER, &cluster, folder.path(), centres[0].http);
    let (programs, rest): (Vec<Block>, Vec<Block>) = blocks.into_iter().partition(|block| block.kind == "js");
    let program = &programs[0];
    let servers = [centres[0].http, centres[1].http].map(|at| format!("http://{at}"));
    let page = SERVERS.iter().zip(&servers).fold(program.text.clone(), |text, (page, here)| text.replace(page, here));
    std::fs::copy(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("client/web/tidemark.js"),
        folder.path().join("tidemark.js"),
    )
    .unwrap();
    // An import stands first.
    let (import, page) = page.split_once('\n').unwrap();
    std::fs::write(folder.path().join("page.mjs"), format!("{import}\n{PAGE}{page}")).unwrap();
    let mut running: Option<Process> = None;
    for (number, block) in rest.iter().enumerate() {
        reader.follow(block, rest.get(number + 1)).await;
        if let (None, Some(token)) = (&running, reader.names.get("$TOKEN")) {
            let mut command = Command::new("node");
            command.arg("page.mjs").current_dir(folder.path()).env("SESSION", token);
            let process = running.insert(Process::start(command, folder.path().join("page.log")));
            process.until_said("connected 200").await;
        }
    }
    let mut running = running.expect("a page that has a session");
    for said in ["award number 10 was reached", "yours 10", "total 10"] {
        running.until_said(said).await;
    }
}
