//! Single increments, each sent when the one before it on its connection is answered: over HTTP, to a Redis, or by the client
//! library. A connection may pause between an answer and its next increment.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tidemark_client::{Client, CounterName, Site};
use tidemark_transport::Credentials;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{LoadReport, Moments, Pace, Seen, bring};
use crate::bench::cluster::NAMESPACE;
use crate::bench::task::Place;

/// Bytes of an answer's head and body, at most.
const ANSWER_BYTES_MAX: usize = 16 << 10;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// The requests, and their form.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RequestTask {
    pub server: Server,
    pub connections: usize,
    /// Between an answer and the next increment of its connection.
    pub pause_ms: u64,
    /// Before anything is measured.
    pub warm_s: f64,
    pub seconds: f64,
}

/// The process that counts.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Server {
    /// `POST` of the path; all connections count one counter.
    Http { address: SocketAddr, path: String, token: String },
    /// `INCR` of the key.
    Redis { address: SocketAddr, key: String },
    /// Hits by the client library, all by one client.
    Library { place: Place, key: String },
}

/// One connection.
enum Connection {
    Lines(Lines),
    Library { client: Client, counter: CounterName },
}

/// A connection over which the same request goes again and again.
struct Lines {
    stream: TcpStream,
    request: Vec<u8>,
    is_http: bool,
    answer: Vec<u8>,
}

/// Sends increments. Says `Ready`, waits for `start`, says `Measuring` and `Measured`.
///
/// # Errors
/// No connection, or an answer that is none.
pub async fn run(task: RequestTask) -> Result<LoadReport, Box<dyn Error>> {
    let origin = Instant::now();
    let mut connections = Vec::new();
    match &task.server {
        Server::Http { address, path, token } => {
            let request = format!(
                "POST {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\ncontent-length: 0\r\n\r\n"
            );
            for _ in 0..task.connections {
                connections.push(Connection::Lines(Lines::connect(*address, request.clone(), true).await?));
            }
        }
        Server::Redis { address, key } => {
            for _ in 0..task.connections {
                let request = format!("*2\r\n$4\r\nINCR\r\n${}\r\n{key}\r\n", key.len());
                connections.push(Connection::Lines(Lines::connect(*address, request, false).await?));
            }
        }
        Server::Library { place, key } => {
            let site = Site { dc: place.dc.clone(), nodes: place.nodes.clone(), aggregator: None };
            let credentials = Credentials::load(&place.credentials)?;
            let client = Client::builder().credentials(credentials).site(site).connect().await?;
            let counter = CounterName::new(NAMESPACE, key.as_bytes())?;
            let library = || Connection::Library { client: client.clone(), counter: counter.clone() };
            connections.extend((0..task.connections).map(|_| library()));
        }
    }
    let pause = Duration::from_millis(task.pause_ms);
    let connected = connections.into_iter().map(|connection| {
        move |moments| async move { connection.run(origin, pause, moments).await.map_err(io::Error::other) }
    });
    bring(connected.collect(), origin, Pace::Window { items: task.connections }, task.warm_s, task.seconds).await
}

impl Connection {
    async fn run(mut self, origin: Instant, pause: Duration, moments: Moments) -> Result<(Seen, u64), String> {
        let mut seen = Seen::default();
        loop {
            let sent_us = origin.elapsed().as_micros() as u64;
            if sent_us >= moments.end_us {
                if let Connection::Library { client, .. } = &self {
                    client.flush().await.map_err(|error| error.to_string())?;
                }
                return Ok((seen, sent_us));
            }
            seen.sent += 1;
            self.count().await?;
            let answered_us = origin.elapsed().as_micros() as u64;
            seen.acknowledged += 1;
            if moments.measures(answered_us) {
                seen.measured += 1;
                seen.ack.saturating_record((answered_us - sent_us).max(1));
            }
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
        }
    }

    /// Sends one increment, until it is durable.
    async fn count(&mut self) -> Result<(), String> {
        match self {
            Connection::Lines(lines) => lines.ask().await.map_err(|error| error.to_string()),
            Connection::Library { client, counter } => {
                let hit = client.hit_weighted(&*counter, None, 1).await.map_err(|error| error.to_string())?;
                hit.durable().await.map_err(|error| error.to_string())
            }
        }
    }
}

impl Lines {
    async fn connect(address: SocketAddr, request: String, is_http: bool) -> io::Result<Lines> {
        let late = |_| io::Error::new(io::ErrorKind::TimedOut, format!("{address} does not answer"));
        let stream = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await.map_err(late)??;
        stream.set_nodelay(true)?;
        Ok(Lines { stream, request: request.into_bytes(), is_http, answer: Vec::with_capacity(ANSWER_BYTES_MAX) })
    }

    async fn ask(&mut self) -> io::Result<()> {
        self.stream.write_all(&self.request).await?;
        self.answer.clear();
        loop {
            if self.stream.read_buf(&mut self.answer).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let is_whole = if self.is_http { http_answer(&self.answer)? } else { redis_answer(&self.answer)? };
            if is_whole {
                return Ok(());
            }
            if self.answer.len() >= ANSWER_BYTES_MAX {
                return Err(refused(&self.answer));
            }
        }
    }
}

/// Whether the answer is whole. Errors: it is none of an increment that was counted.
fn http_answer(answer: &[u8]) -> io::Result<bool> {
    let Some(head) = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n") else { return Ok(false) };
    if !answer.starts_with(b"HTTP/1.1 200 ") {
        return Err(refused(answer));
    }
    let text = std::str::from_utf8(&answer[..head]).map_err(|_| refused(answer))?;
    let mut fields = text.lines().filter_map(|line| line.split_once(':'));
    let length = fields.find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let length: usize = length.and_then(|(_, value)| value.trim().parse().ok()).ok_or_else(|| refused(answer))?;
    Ok(answer.len() >= head + 4 + length)
}

fn redis_answer(answer: &[u8]) -> io::Result<bool> {
    match answer.first() {
        Some(b':') => Ok(answer.ends_with(b"\r\n")),
        _ => Err(refused(answer)),
    }
}

fn refused(answer: &[u8]) -> io::Error {
    io::Error::other(format!("not counted: {}", String::from_utf8_lossy(answer)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_whole_with_its_body() {
        let whole = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nx: y\r\n\r\n{}";
        for cut in 0..whole.len() {
            assert!(!http_answer(&whole[..cut]).unwrap(), "{cut} bytes");
        }
        assert!(http_answer(whole).unwrap());
        assert!(http_answer(b"HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n").is_err());
        assert!(
            redis_answer(b":17\r\n").unwrap() && !redis_answer(b":1").unwrap() && redis_answer(b"-ERR\r\n").is_err()
        );
    }
}
