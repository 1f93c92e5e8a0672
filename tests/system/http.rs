//! Requests written by hand: the server is not tested with its own client.

use serde_json::Value;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub const TOKEN: &str = "0123456789abcdef0123456789abcdef";
/// Longer than a server waits for the ledger before it says that it does not know.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// Status and body; `None` without a listener there.
pub async fn send(address: SocketAddr, method: &str, path: &str, body: &str) -> Option<(u16, Value)> {
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\nauthorization: Bearer {TOKEN}\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let text = raw(address, request.as_bytes(), false).await?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, serde_json::from_str(body).unwrap_or(Value::Null)))
}

/// Sends bytes, ends its own side if that is `all`, and reads to the end.
pub async fn raw(address: SocketAddr, bytes: &[u8], all: bool) -> Option<String> {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await.ok()?;
        let _ = stream.write_all(bytes).await;
        if all {
            let _ = stream.shutdown().await;
        }
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.ok()?;
        Some(String::from_utf8_lossy(&answer).into_owned())
    };
    tokio::time::timeout(ANSWER_MAX, exchange).await.ok().flatten()
}

pub async fn get(address: SocketAddr, path: &str) -> Option<(u16, Value)> {
    send(address, "GET", path, "").await
}

/// Value and pending of a counter.
pub async fn reading(address: SocketAddr, counter: &str) -> Option<(u64, u64)> {
    let (_, body) = get(address, &format!("/v1/counters/{counter}")).await?;
    Some((body["value"].as_u64()?, body["pending"].as_u64()?))
}
