//! A receiver of webhooks, written by hand: it answers as it is told, and checks signatures by its own arithmetic.

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// 24 bytes: `0` to `9`, `a` to `n`.
pub const SECRET: &str = "whsec_MDEyMzQ1Njc4OWFiY2RlZmdoaWprbG1u";
const SECRET_BYTES: &[u8] = b"0123456789abcdefghijklmn";

/// How a request is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Behaviour {
    Status(u16),
    /// To somewhere else.
    Redirect(String),
    /// No answer, however long the sender waits.
    Hang,
    Close,
    /// 200, and a body that never ends.
    Endless,
    /// A head that never ends.
    EndlessHead,
}

/// One request that came.
#[derive(Clone, Debug)]
pub struct Seen {
    pub id: String,
    pub timestamp: String,
    pub signature: String,
    pub body: String,
    pub head: String,
    pub answered: Behaviour,
}

#[derive(Default)]
struct State {
    next: VecDeque<Behaviour>,
    seen: Vec<Seen>,
    connections: usize,
}

/// Answers 204 when it is told nothing else. Dropped, it is gone.
pub struct Receiver {
    pub address: SocketAddr,
    state: Arc<Mutex<State>>,
    task: tokio::task::JoinHandle<()>,
}

impl Receiver {
    pub async fn start(next: impl IntoIterator<Item = Behaviour>) -> Receiver {
        Receiver::start_with(next, None).await
    }

    /// With TLS, if there is a configuration for it.
    pub async fn start_with(next: impl IntoIterator<Item = Behaviour>, tls: Option<TlsAcceptor>) -> Receiver {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(Mutex::new(State { next: next.into_iter().collect(), ..State::default() }));
        let task = tokio::spawn(serve(listener, state.clone(), tls));
        Receiver { address, state, task }
    }

    pub fn url(&self) -> String {
        format!("http://{}/secret-path?and=query", self.address)
    }

    /// From now on.
    pub fn answer(&self, next: impl IntoIterator<Item = Behaviour>) {
        self.state.lock().unwrap().next = next.into_iter().collect();
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.state.lock().unwrap().seen.clone()
    }

    /// Connections that were made, whatever came of them.
    pub fn connections(&self) -> usize {
        self.state.lock().unwrap().connections
    }

    /// Ids of what was acknowledged, in order.
    pub fn acknowledged(&self) -> Vec<String> {
        let good = |seen: &Seen| matches!(seen.answered, Behaviour::Status(200..300) | Behaviour::Endless);
        self.seen().into_iter().filter(good).map(|seen| seen.id).collect()
    }

    /// Waits until this number was acknowledged.
    pub async fn until_acknowledged(&self, count: usize) -> Vec<String> {
        self.until("acknowledgements", || self.acknowledged().len() >= count).await;
        self.acknowledged()
    }

    /// Waits until this number of different deliveries was acknowledged: a delivery that lost its answer with a process comes again.
    pub async fn until_different(&self, count: usize) -> BTreeSet<String> {
        let different = || self.acknowledged().into_iter().collect::<BTreeSet<_>>();
        self.until("acknowledgements", || different().len() >= count).await;
        different()
    }

    /// Waits until this number of requests came.
    pub async fn until_seen(&self, count: usize) -> Vec<Seen> {
        self.until("requests", || self.seen().len() >= count).await;
        self.seen()
    }

    async fn until(&self, what: &str, holds: impl Fn() -> bool) {
        let waiting = async {
            while !holds() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(30), waiting).await;
        assert!(waited.is_ok(), "no such {what} in time: {:?}", self.seen());
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Seen {
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap()
    }

    /// Whether the signature is that of the secret over `ID.TIMESTAMP.BODY`, and the time is now.
    pub fn is_signed(&self) -> bool {
        let signed = format!("{}.{}.{}", self.id, self.timestamp, self.body);
        let expected = format!("v1,{}", base64(&hmac_sha256(SECRET_BYTES, signed.as_bytes())));
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        let age = now.abs_diff(self.timestamp.parse().unwrap());
        self.signature == expected && age < 60
    }
}

/// RFC 2104, by the definition.
fn hmac_sha256(key: &[u8], text: &[u8]) -> Vec<u8> {
    let sha256 = |parts: &[&[u8]]| ring::digest::digest(&ring::digest::SHA256, &parts.concat()).as_ref().to_vec();
    let pad = |byte: u8| (0..64).map(|at| key.get(at).copied().unwrap_or(0) ^ byte).collect::<Vec<u8>>();
    sha256(&[&pad(0x5c), &sha256(&[&pad(0x36), text])])
}

/// RFC 4648, section 4.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let encode = |chunk: &[u8]| {
        let bits = chunk.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        let digit =
            |at: usize| if at <= chunk.len() { DIGITS[(bits >> (18 - 6 * at) & 63) as usize] as char } else { '=' };
        (0..4).map(digit).collect::<String>()
    };
    bytes.chunks(3).map(encode).collect()
}

async fn serve(listener: TcpListener, state: Arc<Mutex<State>>, tls: Option<TlsAcceptor>) {
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        state.lock().unwrap().connections += 1;
        connections.spawn(accept(stream, state.clone(), tls.clone()));
    }
}

async fn accept(stream: TcpStream, state: Arc<Mutex<State>>, tls: Option<TlsAcceptor>) {
    match tls {
        None => drop(serve_one(stream, &state).await),
        Some(tls) => {
            if let Ok(stream) = tls.accept(stream).await {
                let _ = serve_one(stream, &state).await;
            }
        }
    }
}

async fn serve_one<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, state: &Mutex<State>) -> std::io::Result<()> {
    let (head, body) = read_request(&mut stream).await?;
    let answered = state.lock().unwrap().next.pop_front().unwrap_or(Behaviour::Status(204));
    let header = |name: &str| {
        let line = head.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")).map(str::to_owned));
        line.unwrap_or_else(|| panic!("no {name} in {head}"))
    };
    let id = header("webhook-id");
    let timestamp = header("webhook-timestamp");
    let signature = header("webhook-signature");
    let seen = Seen { id, timestamp, signature, body, head: head.clone(), answered: answered.clone() };
    state.lock().unwrap().seen.push(seen);
    let text = match &answered {
        Behaviour::Status(status) => format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\n\r\n"),
        Behaviour::Redirect(to) => format!("HTTP/1.1 307 X\r\nlocation: {to}\r\ncontent-length: 0\r\n\r\n"),
        Behaviour::Hang => std::future::pending().await,
        Behaviour::Close => return Ok(()),
        Behaviour::Endless => "HTTP/1.1 200 X\r\ntransfer-encoding: chunked\r\n\r\n".to_owned(),
        Behaviour::EndlessHead => "HTTP/1.1 200 X\r\n".to_owned(),
    };
    stream.write_all(text.as_bytes()).await?;
    let more = match answered {
        Behaviour::Endless => format!("400\r\n{}\r\n", "x".repeat(0x400)),
        Behaviour::EndlessHead => format!("x: {}\r\n", "y".repeat(1_000)),
        _ => return stream.shutdown().await,
    };
    loop {
        stream.write_all(more.as_bytes()).await?;
    }
}

async fn read_request<S: AsyncRead + Unpin>(stream: &mut S) -> std::io::Result<(String, String)> {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
                return Ok((head.to_owned(), body.to_owned()));
            }
        }
        if stream.read_buf(&mut bytes).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
}
