//! A server to test, and requests written by hand: the server is not tested with its own client.

use crate::memory::Memory;
use std::fs::Permissions;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tidemark_proto::ids::Half;
use tidemark_server::http::{Access, Add, Options, Server};
use tidemark_server::names::parse_counter;
use tidemark_server::session::SessionKeys;
use tidemark_server::token::Token;
use tidemark_tls::ServerTls;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

pub const TOKEN: &str = "0123456789abcdef0123456789abcdef";

pub struct Running {
    pub server: Server,
    pub memory: Arc<Memory>,
    pub address: SocketAddr,
}

pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

pub fn options() -> Options {
    let sessions = Some(SessionKeys::random().unwrap());
    let access = Access { token: Token::new(TOKEN).unwrap(), open_reads: false, sessions, origins: Vec::new() };
    Options {
        access,
        connections_max: 64,
        live_connections_max: 8,
        metrics: None,
        front: None,
        log_level: None,
        webhooks: None,
        tls: None,
    }
}

pub async fn start_with(memory: Memory, options: Options) -> Running {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let memory = Arc::new(memory);
    let server = Server::start(listener, memory.clone(), options).unwrap();
    Running { address: server.address(), server, memory }
}

pub async fn start() -> Running {
    start_with(Memory::new(None), options()).await
}

/// A certificate for `localhost`, in files of a folder, and as the authority that a client believes.
pub fn server_tls(folder: &Path, name: &str) -> (ServerTls, String) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let [certificate, key] = ["certificate", "key"].map(|what| folder.join(format!("{name}-{what}.pem")));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    std::fs::set_permissions(&key, Permissions::from_mode(0o640)).unwrap();
    (ServerTls::read(&certificate, &key).unwrap(), made.cert.pem())
}

pub fn add(counter: &str, delta: u64) -> Add {
    Add { counter: parse_counter(counter).unwrap(), half: Half::Up, delta, session: None, event: None, id: None }
}

impl Running {
    /// Until this many more than `before` wait for an award.
    pub async fn until_waiting(&self, before: usize, more: usize) {
        for _ in 0..3_000 {
            if self.memory.followers() >= before + more {
                return;
            }
            sleep(Duration::from_millis(10)).await;
        }
        panic!("{more} shall wait: {}", self.memory.followers() - before);
    }

    /// With the token.
    pub async fn send(&self, method: &str, path: &str, body: &str) -> Answer {
        self.send_with(method, path, &format!("authorization: Bearer {TOKEN}\r\n"), body).await
    }

    /// With these header lines.
    pub async fn send_with(&self, method: &str, path: &str, headers: &str, body: &str) -> Answer {
        ask(self.address, method, path, headers, body).await
    }

    pub async fn raw(&self, bytes: &[u8]) -> Answer {
        ask_raw(self.address, bytes).await
    }
}

/// Asks a server, with these header lines.
pub async fn ask(address: SocketAddr, method: &str, path: &str, headers: &str, body: &str) -> Answer {
    let length = body.len();
    let text = format!(
        "{method} {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
    );
    ask_raw(address, text.as_bytes()).await
}

async fn ask_raw(address: SocketAddr, bytes: &[u8]) -> Answer {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // A server that has answered already may not want the rest.
    let _ = stream.write_all(bytes).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    let text = String::from_utf8(answer).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    Answer { status, head: head.to_lowercase(), body: body.to_owned() }
}

impl Answer {
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    /// Status, code and text of a failure.
    pub fn failure(&self) -> (u16, String, String) {
        let json = self.json();
        let text = |name: &str| json["error"][name].as_str().unwrap().to_owned();
        (self.status, text("code"), text("message"))
    }
}
