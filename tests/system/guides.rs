//! Runs the guide to webhooks block by block against a real data centre, and compares its outputs.

use crate::cluster::{Cluster, Role};
use crate::cookbook::{Block, Page, Place, ask, blocks, run};
use crate::http;
use crate::process::until;
use crate::receiver::{Receiver, SECRET};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

const WEBHOOKS: Page = Page { path: "docs/guides/webhooks.md", text: include_str!("../../docs/guides/webhooks.md") };
/// The address that the guide writes, which is nobody's.
const RECEIVER: &str = "https://hooks.example/tidemark";

/// A guide that is followed against one data centre.
struct Reader<'a> {
    place: Place<'a>,
    at: SocketAddr,
    /// Values of `$NAME` from answers.
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
