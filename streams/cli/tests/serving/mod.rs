//! A server as a process of its own, and a client that speaks plain HTTP.

use serde_json::{Value, json};
use std::cell::RefCell;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_tidemark-streams");
/// A condition must hold after this.
const WAIT_MAX: Duration = Duration::from_secs(150);
const AGAIN: Duration = Duration::from_millis(20);

/// A running server. It is killed when it is dropped.
pub struct Server {
    child: Child,
    pub address: String,
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub text: String,
}

impl Server {
    pub fn start(dir: &Path, arguments: &[&str]) -> Server {
        Server::try_start(dir, arguments).unwrap_or_else(|said| panic!("{said}"))
    }

    /// Starts a server, or says what it said when it ended.
    pub fn try_start(dir: &Path, arguments: &[&str]) -> Result<Server, String> {
        let mut command = Command::new(PROGRAM);
        command.args(["serve", "--listen", "127.0.0.1:0", "--dir"]).arg(dir).args(arguments);
        Server::of(command)
    }

    pub fn of(mut command: Command) -> Result<Server, String> {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        match line.trim_end().strip_prefix("listening on ").and_then(|url| url.split_once("://")) {
            Some((_, address)) => Ok(Server { address: address.to_owned(), child }),
            None => {
                let mut said = String::new();
                child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
                child.wait().unwrap();
                Err(said)
            }
        }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The most memory that it ever used.
    pub fn peak_kib(&self) -> u64 {
        peak_kib(self.child.id()).unwrap()
    }

    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ends it by SIGTERM.
    pub fn stop(mut self) {
        let done = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().unwrap();
        assert!(done.success());
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}");
    }

    /// Waits until it has ended by itself, with an error, and returns what it said.
    pub fn ended(mut self) -> String {
        let child = RefCell::new(&mut self.child);
        until("the end", || child.borrow_mut().try_wait().unwrap().is_some());
        assert!(!self.child.wait().unwrap().success());
        let mut said = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        said
    }

    pub fn request(&self, method: &str, path: &str, headers: &[&str], body: &[u8]) -> io::Result<Answer> {
        request(&self.address, method, path, headers, body)
    }

    pub fn post(&self, path: &str, body: impl AsRef<[u8]>) -> Answer {
        self.request("POST", path, &[], body.as_ref()).unwrap()
    }

    pub fn get(&self, path: &str) -> Answer {
        self.request("GET", path, &[], b"").unwrap()
    }

    /// Sends events, all of which are accepted.
    pub fn send(&self, body: impl AsRef<[u8]>) -> Value {
        let answer = self.post("/v1/events", body);
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    }

    /// The counts of a tenant on 2026-01-01 and the day after.
    pub fn ask(&self, tenant: &str, more: Value) -> Value {
        let mut query = json!({ "tenant": tenant, "from": "2026-01-01", "to": "2026-01-03" });
        more.as_object().unwrap().iter().for_each(|(key, value)| query[key] = value.clone());
        let answer = self.post("/v1/impressions/query", query.to_string());
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    }

    pub fn total(&self, tenant: &str) -> u64 {
        self.ask(tenant, json!({ "dimensions": [] }))["total"].as_u64().unwrap()
    }

    /// The value of a metric.
    pub fn metric(&self, name: &str) -> f64 {
        let text = self.get("/metrics").text;
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).map(str::to_owned);
        line.unwrap_or_else(|| panic!("no {name}")).parse().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The code of a refusal.
    pub fn code(&self) -> String {
        self.json()["error"]["code"].as_str().unwrap_or_default().to_owned()
    }

    pub fn header(&self, name: &str) -> Option<String> {
        let line = self.head.lines().find(|line| line.to_ascii_lowercase().starts_with(&format!("{name}:")))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    }
}

pub fn request(address: &str, method: &str, path: &str, headers: &[&str], body: &[u8]) -> io::Result<Answer> {
    answer_in(&exchange(address, method, path, headers, body)?)
}

/// The answer in the bytes of a connection.
pub fn answer_in(bytes: &[u8]) -> io::Result<Answer> {
    let text = String::from_utf8_lossy(bytes).into_owned();
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return Err(io::Error::other(format!("no answer: {text:?}")));
    };
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| io::Error::other(head.to_owned()))?;
    Ok(Answer { status, head: head.to_owned(), text: body.to_owned() })
}

/// Sends a request, and returns each byte of its answer.
pub fn exchange(address: &str, method: &str, path: &str, headers: &[&str], body: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(WAIT_MAX))?;
    stream.write_all(head_of(address, method, path, headers, body.len()).as_bytes())?;
    // A refusal may come before the body is read.
    let sent = stream.write_all(body);
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    if !answer.windows(4).any(|bytes| bytes == b"\r\n\r\n") {
        sent?;
        read?;
    }
    Ok(answer)
}

/// The head of a request.
pub fn head_of(address: &str, method: &str, path: &str, headers: &[&str], body_bytes: usize) -> String {
    let mut head = format!("{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n");
    for header in headers {
        head += &format!("{header}\r\n");
    }
    head + &format!("content-length: {body_bytes}\r\n\r\n")
}

/// The most memory that a process ever used; `None`: it has ended.
pub fn peak_kib(process: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    peak.trim().split(' ').next()?.parse().ok()
}

/// Waits until a condition holds.
pub fn until(what: &str, condition: impl Fn() -> bool) {
    let end = Instant::now() + WAIT_MAX;
    while !condition() {
        assert!(Instant::now() < end, "{what} did not happen within {WAIT_MAX:?}");
        std::thread::sleep(AGAIN);
    }
}

pub const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// Writes a file that only its owner may read.
pub fn write_private(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

/// A folder for directories.
pub struct Place(tempfile::TempDir);

impl Place {
    pub fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    pub fn dir(&self) -> PathBuf {
        self.0.path().join("streams")
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// The file of the secret of a server.
    pub fn secret(&self) -> String {
        let path = self.path().join("secret");
        write_private(&path, &format!("{SECRET}\n"));
        path.to_str().unwrap().to_owned()
    }

    /// A token that the program prints for the secret.
    pub fn token(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(PROGRAM);
        let output = command.args(["token", "--secret-file", &self.secret()]).args(arguments).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// The header of a request with such a token.
    pub fn bearer(&self, arguments: &[&str]) -> String {
        format!("authorization: Bearer {}", self.token(arguments))
    }

    /// Runs a command on the directory, which no server has open.
    pub fn run(&self, arguments: &[&str]) -> Output {
        Command::new(PROGRAM).args(arguments).arg("--dir").arg(self.dir()).output().unwrap()
    }

    pub fn said(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }
}

/// An event of 2026-01-01, as a line.
pub fn event(tenant: &str, listing: &str, time: &str) -> String {
    format!("{}\n", json!({ "tenant": tenant, "listing": listing, "at": format!("2026-01-01T{time}Z") }))
}
