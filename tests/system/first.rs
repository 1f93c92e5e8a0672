//! The first minutes of a new user: `tidemark serve`, commands without any flag, a file that is loaded, logs and metrics.

use crate::http;
use crate::process::{Process, command, complaint, run, until};
use serde_json::Value;
use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

/// A folder with a running `tidemark serve`.
struct Desk {
    folder: TempDir,
    serve: Process,
    at: SocketAddr,
}

/// The command in a folder, without variables of this test's environment.
fn in_folder(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = command(arguments);
    for name in ["TIDEMARK_SERVER", "TIDEMARK_TOKEN", "TIDEMARK_TOKEN_FILE", "TIDEMARK_CA", "TIDEMARK_LOG"] {
        command.env_remove(name);
    }
    command.current_dir(folder);
    command
}

impl Desk {
    async fn new(more: &[&str]) -> Desk {
        let folder = tempfile::tempdir().unwrap();
        let (serve, at) = serve(folder.path(), more).await;
        Desk { folder, serve, at }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn output(&self, arguments: &[&str]) -> Output {
        in_folder(self.folder.path(), arguments).output().unwrap()
    }

    /// The output of a command that succeeds.
    fn said(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    async fn until_says(&self, arguments: &[&str], expected: &str) {
        until(expected, async || (self.said(arguments).trim_end() == expected).then_some(())).await;
    }
}

async fn serve(folder: &Path, more: &[&str]) -> (Process, SocketAddr) {
    let arguments = [&["serve", "--port", "0"], more].concat();
    let mut process = Process::start(in_folder(folder, &arguments), folder.join("log"));
    let at = process.until_said("Tidemark serves at http://").await.parse().unwrap();
    (process, at)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_find_serve_without_any_flag() {
    let mut desk = Desk::new(&[]).await;
    assert_eq!(desk.said(&["add", "search/queries", "3"]), "counted; search/queries is 3\n");
    desk.until_says(&["get", "search/queries"], "search/queries 3").await;
    ends_unread(in_folder(desk.folder.path(), &["audit", "--prefix", "search/"]));
    ends_unread(in_folder(desk.folder.path(), &["watch", "search/queries"]));
    let status = desk.said(&["status"]);
    assert!(status.lines().any(|line| line == "dc: local-0"), "{status}");
    let json: Value = serde_json::from_str(&desk.said(&["status", "--json"])).unwrap();
    assert_eq!(json["dc"], "local-0");
    // From elsewhere the directory is named, or the variables that were printed.
    let data = desk.path("tidemark-data");
    let elsewhere = tempfile::tempdir().unwrap();
    let named = |arguments: &[&str]| in_folder(elsewhere.path(), arguments).output().unwrap();
    assert!(named(&["get", "search/queries", "--data-dir", data.to_str().unwrap()]).status.success());
    let log = desk.serve.said();
    let mut exported = in_folder(elsewhere.path(), &["add", "search/queries"]);
    for line in log.lines().filter_map(|line| line.trim().strip_prefix("export ")) {
        let (name, value) = line.split_once('=').unwrap();
        exported.env(name, value);
    }
    assert!(exported.output().unwrap().status.success(), "{log}");
    let wrong = complaint(&named(&["get", "search/queries", "--data-dir", "nowhere"]));
    assert_eq!(wrong, "nowhere: no `tidemark serve` runs with this data directory");
    // An award says when it was.
    desk.said(&["milestones", "define", "search/queries", "--at", "7"]);
    desk.said(&["add", "search/queries", "5"]);
    let award = desk.said(&["award", "search/queries", "7"]);
    assert!(
        award.starts_with("search/queries milestone 7 at 20") && award.contains("Z: numbers 5 to 9, client "),
        "{award}"
    );
    assert_eq!(desk.said(&["awards", "list"]), award);
    // It is killed, and commands say what to do. It stops, and takes back what it said.
    desk.serve.kill();
    let away = complaint(&desk.output(&["get", "search/queries"]));
    assert!(away.starts_with(&format!("cannot reach {}: ", desk.at)), "{away}");
    assert!(away.contains("tidemark-data says that it runs there: start `tidemark serve` again"), "{away}");
    (desk.serve, desk.at) = serve(desk.folder.path(), &[]).await;
    desk.until_says(&["get", "search/queries"], "search/queries 9").await;
    let (status, _) = desk.serve.terminate().await;
    assert!(status.success() && !data.join("run.toml").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn token_of_the_data_directory_goes_to_its_own_server_only() {
    let one = Desk::new(&[]).await;
    let other = Desk::new(&[]).await;
    let url = |desk: &Desk| format!("http://{}", desk.at);
    let own = one.output(&["add", "search/queries", "--server", &url(&one)]);
    assert!(own.status.success(), "{}", String::from_utf8_lossy(&own.stderr));
    let foreign = complaint(&one.output(&["add", "search/queries", "--server", &url(&other)]));
    assert!(foreign.contains("401") && foreign.contains("a token is needed"), "it was not sent: {foreign}");
    assert!(
        foreign.ends_with("pass --token-file DATA_DIR/token, or set TIDEMARK_TOKEN_FILE or TIDEMARK_TOKEN"),
        "{foreign}"
    );
    // A variable that is set to nothing is none.
    let mut empty = in_folder(one.folder.path(), &["add", "search/queries"]);
    assert!(empty.env("TIDEMARK_TOKEN", "").env("TIDEMARK_SERVER", "").output().unwrap().status.success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn file_is_loaded_into_serve_without_a_flag_and_once() {
    let mut desk = Desk::new(&[]).await;
    std::fs::write(desk.path("rows.csv"), "counter,delta\nsearch/a,2\nsearch/b,3\nsearch/a,5\n").unwrap();
    let checked = desk.output(&["load", "--check", "rows.csv"]);
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    assert!(desk.said(&["load", "rows.csv"]).contains("3 rows, 3 counted"));
    desk.until_says(&["get", "search/a"], "search/a 7").await;
    assert!(desk.said(&["load", "rows.csv"]).contains("loaded already"));
    // After a restart the addresses are others, and the file is still known.
    assert!(desk.serve.terminate().await.0.success());
    let without = complaint(&desk.output(&["load", "rows.csv"]));
    assert!(without.contains("--data-dir") && without.contains("--cluster, --dc and --credentials"), "{without}");
    let unasked = desk.output(&["load", "--check", "rows.csv", "--server", "http://127.0.0.1:1"]);
    let said = String::from_utf8_lossy(&unasked.stderr);
    assert!(unasked.status.success() && said.contains("no process answers"), "{said}");
    (desk.serve, desk.at) = serve(desk.folder.path(), &[]).await;
    assert!(desk.said(&["load", "rows.csv"]).contains("loaded already"));
    std::fs::write(desk.path("more.csv"), "counter,delta\nsearch/a,1\n").unwrap();
    desk.said(&["load", "more.csv"]);
    desk.until_says(&["get", "search/a"], "search/a 8").await;
}

#[test]
fn port_in_use_is_reported_before_anything_is_made() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let folder = tempfile::tempdir().unwrap();
    for arguments in [["serve", "--listen", &address.to_string()], ["serve", "--port", &address.port().to_string()]] {
        let said = complaint(&in_folder(folder.path(), &arguments).output().unwrap());
        assert!(said.starts_with(&format!("cannot listen on {address}: it is in use")), "{said}");
        assert!(said.contains("--port or --listen"), "{said}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing was made");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn serve_keeps_metrics_with_help_and_logs_no_warning() {
    let mut desk = Desk::new(&[]).await;
    desk.said(&["add", "search/queries"]);
    let request = format!("GET /metrics HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", desk.at);
    let text = http::raw(desk.at, request.as_bytes(), false).await.unwrap();
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    let metrics = text.lines().filter(|line| line.starts_with("tidemark_"));
    let names: std::collections::BTreeSet<&str> = metrics.map(|line| line.split(['{', ' ']).next().unwrap()).collect();
    assert!(names.contains("tidemark_http_requests_total") && names.contains("tidemark_group_buckets_bytes"), "{text}");
    for name in names {
        let has = |what: &str| text.lines().any(|line| line.starts_with(&format!("# {what} {name} ")));
        assert!(has("HELP") && has("TYPE"), "{name}: {text}");
    }
    let (status, log) = desk.serve.terminate().await;
    assert!(status.success() && log.contains("INFO"), "{log}");
    assert!(!log.contains("WARN") && !log.contains("ERROR"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn serve_listens_where_it_is_told_and_warns_when_that_is_public() {
    let mut desk = Desk::new(&["--listen", "0.0.0.0", "--log-format", "json"]).await;
    assert!(desk.at.ip().is_loopback(), "the address that is printed can be reached from here: {}", desk.at);
    desk.said(&["add", "search/queries"]);
    let (_, log) = desk.serve.terminate().await;
    let lines: Vec<Value> =
        log.lines().filter(|line| line.starts_with('{')).map(|line| serde_json::from_str(line).unwrap()).collect();
    let warnings: Vec<&Value> = lines.iter().filter(|line| line["level"] == "warn").collect();
    assert_eq!(warnings.len(), 1, "{log}");
    assert!(warnings[0]["message"].as_str().unwrap().contains("not encrypted"), "{log}");
    assert!(lines.iter().all(|line| line["time"].is_string() && line["target"].is_string()), "{log}");
}

#[test]
fn log_level_that_is_none_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut serve = in_folder(folder.path(), &["serve", "--port", "0"]);
    let said = complaint(&serve.env("TIDEMARK_LOG", "loud").output().unwrap());
    assert!(said.contains("--log-level (TIDEMARK_LOG) is \"loud\"") && said.contains("use off, error"), "{said}");
}

/// A command without a reader ends quietly.
fn ends_unread(mut command: Command) {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let status = child.wait().unwrap();
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!((status.code(), said.as_str()), (Some(141), ""), "{command:?}");
}

#[test]
fn output_that_nobody_reads_ends_a_command_quietly() {
    for arguments in [&["plan", "deploy/plan.toml"][..], &["plan", "deploy/plan.toml", "--json"]] {
        let mut unread = command(arguments);
        unread.current_dir(env!("CARGO_MANIFEST_DIR"));
        ends_unread(unread);
    }
}

#[test]
fn output_to_a_full_disk_is_an_error() {
    for arguments in [&["plan", "deploy/plan.toml"][..], &["plan", "deploy/plan.toml", "--json"]] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let output = command(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).stdout(full).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        assert!(said.starts_with("tidemark: cannot write to standard output: No space left on device"), "{said}");
    }
    // The error has no reader either: it ends with its code all the same.
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let status = command(&["get", "search/q", "--server", "nonsense"]).stderr(full).status().unwrap();
    assert_eq!(status.code(), Some(1));
}

/// The program alone in a folder, with or without the others beside it. Other processes write all files: a process that another
/// test forks off this one would keep a file open for writing, and the kernel runs no such file.
fn alone(beside: Option<&str>) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("tidemark");
    assert!(Command::new("cp").arg(env!("CARGO_BIN_EXE_tidemark")).arg(&program).status().unwrap().success());
    if let Some(script) = beside {
        let write = r#"printf '%s' "$2" >"$1" && chmod 700 "$1""#;
        for other in ["tidemark-demo", "tidemark-lab"] {
            let other = folder.path().join(other);
            assert!(Command::new("sh").args(["-c", write, "sh"]).arg(&other).arg(script).status().unwrap().success());
        }
    }
    (folder, program)
}

#[test]
fn experiment_without_its_program_says_how_to_build_it() {
    let (_folder, program) = alone(None);
    let lab = ["bench", "soak", "sim"].map(|experiment| (experiment, "tidemark-lab", experiment));
    for (experiment, wanted, arguments) in lab.into_iter().chain([("demo", "tidemark-demo", "--help")]) {
        let output = Command::new(&program).args([experiment, "--json"]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        let how = format!("in the repository: cargo run --release -p {wanted} -- {arguments}");
        assert!(said.starts_with(&format!("tidemark: `{experiment}` needs the program {wanted}")), "{said}");
        assert!(said.trim_end().ends_with(&how), "{said}");
    }
}

#[test]
fn experiment_is_handed_over_with_all_its_arguments() {
    let (_folder, program) = alone(Some("#!/bin/sh\necho \"$@\"; exit 3\n"));
    let lab = [&["sim", "run", "--help"][..], &["bench"], &["soak", "-h"]].map(|arguments| (arguments, arguments));
    let demo = (&["demo", "--json", "--rate", "5"][..], &["--json", "--rate", "5"][..]);
    for (arguments, handed_over) in lab.into_iter().chain([demo]) {
        let output = Command::new(&program).args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!((output.status.code(), said.trim_end()), (Some(3), handed_over.join(" ").as_str()));
    }
}

#[test]
fn each_shell_gets_a_script_that_completes_commands() {
    for (shell, mark) in [("bash", "complete -F"), ("zsh", "#compdef tidemark"), ("fish", "complete -c tidemark")] {
        let output = run(&["completions", shell]);
        let script = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && script.contains(mark) && script.contains("milestones"), "{shell}");
    }
    let output = run(&["completions", "csh"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("csh") && said.contains("bash") && said.contains("zsh"), "{said}");
    let script = run(&["completions", "bash"]).stdout;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tidemark.bash");
    std::fs::write(&path, script).unwrap();
    let asks = "source tidemark.bash; COMP_WORDS=(tidemark mil); COMP_CWORD=1; _tidemark tidemark mil tidemark; echo \"${COMPREPLY[@]}\"";
    let output = Command::new("bash").args(["-c", asks]).current_dir(folder.path()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "milestones", "{output:?}");
}

#[test]
fn each_command_has_a_manual_page() {
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("share/man1");
    let output = run(&["man", pages.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    for (page, word) in
        [("tidemark.1", "milestones"), ("tidemark-add.1", "COUNTER"), ("tidemark-certs-init.1", "cluster")]
    {
        let text = std::fs::read_to_string(pages.join(page)).unwrap_or_else(|error| panic!("{page}: {error}"));
        assert!(text.contains(".TH") && text.contains(word), "{page}: {text}");
    }
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let output = run(&["man", file.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("cannot write") && said.contains("file"), "{said}");
}

#[test]
fn version_names_the_version_of_the_package() {
    let said = String::from_utf8(run(&["--version"]).stdout).unwrap();
    assert!(said.starts_with(concat!("tidemark ", env!("CARGO_PKG_VERSION"))), "{said}");
}
