//! The guide to three regions, command by command: its three machines are three folders here, and its host names are addresses on loopback.

use crate::cluster::free_address;
use crate::cookbook::{Block, Page, Place, blocks, run};
use crate::http;
use crate::process::{Process, command, until};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;

const GUIDE: Page =
    Page { path: "docs/guides/three-regions.md", text: include_str!("../../docs/guides/three-regions.md") };
const REGIONS: [&str; 3] = ["usa", "europe", "asia"];
/// Ports of the processes in the guide's layout.
const PORTS: [u16; 2] = [7200, 7300];
/// Where the guide's aggregators serve HTTP.
const HTTP_PORT: u16 = 7171;

/// The sockets of the cluster in the guide, and their addresses here.
fn addresses() -> Vec<(String, String)> {
    let all = REGIONS.iter().flat_map(|region| PORTS.map(|port| format!("{region}.example:{port}")));
    all.map(|name| (name, free_address().to_string())).collect()
}

fn renamed(text: &str, called: &[(String, String)]) -> String {
    called.iter().fold(text.to_owned(), |text, (page, here)| text.replace(page, here))
}

/// Starts what the guide starts on the machine of one region on those of all, with HTTP on any port. The aggregators' HTTP addresses.
async fn start(block: &Block, of: &str, folder: &Path) -> (Vec<Process>, BTreeMap<&'static str, SocketAddr>) {
    let mut processes = Vec::new();
    let mut servers = BTreeMap::new();
    for region in REGIONS {
        for line in block.text.lines() {
            let line = line.replace(&format!("dc={of}"), &format!("dc={region}"));
            let words: Vec<&str> = line.split_whitespace().collect();
            let mut command = command(&[&words[1..], &["--set", "http.listen=127.0.0.1:0"]].concat());
            command.current_dir(folder.join(region));
            processes.push(Process::start(command, folder.join(format!("{region}-{}.log", words[1]))));
            let at = processes.last_mut().unwrap().until_serves().await;
            if words[1] == "aggregator" {
                servers.insert(region, at);
            }
        }
    }
    for at in servers.values() {
        until("readiness", async || (http::get(*at, "/readyz").await?.0 == 200).then_some(())).await;
    }
    (processes, servers)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guide_to_three_regions_says_what_is_answered() {
    let folder = tempfile::tempdir().unwrap();
    let blocks = blocks(GUIDE);
    let mut called = addresses();
    let mut processes = Vec::new();
    let mut servers = BTreeMap::new();
    let mut rest = blocks.iter().peekable();
    while let Some(block) = rest.next() {
        let expected = rest.next_if(|next| next.kind == "text" && block.kind.starts_with("sh"));
        match block.kind.split_once(' ') {
            Some(("toml", name)) => {
                std::fs::write(folder.path().join(name), renamed(&block.text, &called)).unwrap();
            }
            Some(("run", region)) => {
                (processes, servers) = start(block, region, folder.path()).await;
                called.extend(
                    servers.iter().map(|(region, at)| (format!("{region}.example:{HTTP_PORT}"), at.to_string())),
                );
            }
            Some(("sh", region)) => {
                let environment = vec![("TIDEMARK_SERVER", format!("http://{}", servers[region]))];
                let at = folder.path().join(region);
                run(block, expected, &Place { page: GUIDE, folder: &at, environment, called: called.clone() }).await;
            }
            None if block.kind == "sh" => {
                let called = called.clone();
                run(block, expected, &Place { page: GUIDE, folder: folder.path(), environment: Vec::new(), called })
                    .await;
            }
            // Pictures.
            None if block.kind == "text" => {}
            _ => panic!("{}:{}: a block of {:?}", GUIDE.path, block.line, block.kind),
        }
    }
    assert_eq!(processes.len(), 2 * REGIONS.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_of_the_guide_to_certificates_run() {
    const CERTIFICATES: Page =
        Page { path: "docs/guides/certificates.md", text: include_str!("../../docs/guides/certificates.md") };
    let folder = tempfile::tempdir().unwrap();
    let guide = blocks(GUIDE);
    let layout = guide.iter().find(|block| block.kind == "toml cluster.toml").expect("a layout");
    std::fs::write(folder.path().join("cluster.toml"), &layout.text).unwrap();
    let place = Place { page: CERTIFICATES, folder: folder.path(), environment: Vec::new(), called: Vec::new() };
    for block in blocks(CERTIFICATES).iter().filter(|block| block.kind == "sh") {
        run(block, None, &place).await;
    }
    for made in ["ca/ca-key.pem", "credentials/asia/aggregator/session-keys", "clients/web/cert.pem"] {
        assert!(folder.path().join(made).is_file(), "{made} is not made");
    }
}
