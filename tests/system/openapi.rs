//! The description of the API is valid, and what a running process answers is as it says: by tools of others, that know nothing else.

use crate::cluster::{Cluster, Role, ready};
use crate::http::{TOKEN, get};
use crate::process::{Process, command, until};
use crate::python;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/openapi");
/// Requests of each operation that are made up at random, besides those that its limits give.
const EXAMPLES: &str = "4";
/// How many instead, for longer runs.
const EXAMPLES_VARIABLE: &str = "TIDEMARK_SCHEMATHESIS_EXAMPLES";

fn tools() -> PathBuf {
    python::environment("openapi", &Path::new(FOLDER).join("requirements.txt"))
}

/// `tidemark serve` in a folder, where it serves, and its token.
async fn serve(folder: &Path) -> (Process, SocketAddr, String) {
    let data = folder.join("data");
    let mut serve = command(&["serve", "--port", "0", "--updown", "stock", "--series", "qa=1m:2d,1h:30d,1d:730d"]);
    serve.arg("--data-dir").arg(&data);
    let process = Process::start(serve, folder.join("serve.log"));
    let look = || async {
        let running = std::fs::read_to_string(data.join("run.toml")).ok()?;
        let token = std::fs::read_to_string(data.join("token")).ok()?;
        let server = running.lines().find_map(|line| line.strip_prefix("server = \"http://"))?;
        let address = server.trim_end_matches('"').parse().ok()?;
        Some((address, token.trim().to_owned()))
    };
    let (address, token) = until("a process that serves", look).await;
    (process, address, token)
}

/// Has the tools judge the description that is served at an address, and everything that is answered there.
async fn judge(address: SocketAddr, token: &str, folder: &Path) {
    let tools = tools();
    let url = format!("http://{address}/openapi.json");
    let (status, document) = get(address, "/openapi.json").await.expect("a process that serves");
    assert_eq!(status, 200, "{document}");
    let file = folder.join("openapi.json");
    std::fs::write(&file, document.to_string()).unwrap();
    python::must(Command::new(tools.join("openapi-spec-validator")).arg(&file));
    let examples = std::env::var(EXAMPLES_VARIABLE).unwrap_or_else(|_| EXAMPLES.to_owned());
    let mut run = Command::new(tools.join("schemathesis"));
    run.args([
        "--config-file",
        &format!("{FOLDER}/schemathesis.toml"),
        "run",
        &url,
        "--checks",
        "all",
        "--mode",
        "all",
    ]);
    run.args(["--max-examples", &examples, "--seed", "1", "--workers", "1", "--continue-on-failure"]);
    run.args(["--header", &format!("Authorization: Bearer {token}"), "--request-timeout", "35"]);
    // Its answer has no end.
    run.args(["--exclude-operation-id", "events"]);
    run.env("SCHEMATHESIS_HOOKS", "checks").env("PYTHONPATH", FOLDER).current_dir(folder);
    run.env("PYTHONDONTWRITEBYTECODE", "1");
    let output = run.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_description_is_valid_and_every_answer_is_as_it_says() {
    let folder = tempfile::tempdir().unwrap();
    let (_process, address, token) = serve(folder.path()).await;
    ready(address).await;
    judge(address, &token, folder.path()).await;
    let log = std::fs::read_to_string(folder.path().join("serve.log")).unwrap();
    assert!(!log.contains("the API does not declare"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_node_answers_is_as_described() {
    let cluster = Cluster::new(&["usa-0"]);
    let ((_node, address), _aggregator) =
        tokio::join!(cluster.start(0, Role::Node), cluster.start(0, Role::Aggregator));
    ready(address).await;
    judge(address, TOKEN, &cluster.path(".")).await;
}
