//! Requests of a query process to a server. Connections are kept and used again.

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{AUTHORIZATION, HOST};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::TcpStream;

/// Connections that are kept for later requests. Further ones are closed.
const IDLE_MAX: usize = 8;
/// A connection is there after this.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

pub struct FeedClient {
    token: Option<String>,
    idle: Mutex<Vec<Connection>>,
}

struct Connection {
    address: String,
    requests: SendRequest<Empty<Bytes>>,
}

/// What is asked of a server.
pub struct Get<'a> {
    /// HOST:PORT.
    pub address: &'a str,
    pub path: &'a str,
    pub bytes_max: usize,
    pub timeout: Duration,
}

/// The answer of a server.
pub struct Reply {
    pub status: StatusCode,
    pub body: Bytes,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("server {address}: {error}")]
    Connect { address: String, error: io::Error },
    #[error("server {address}: {error}")]
    Http { address: String, error: hyper::Error },
    #[error("server {address}: no answer within {} ms", timeout.as_millis())]
    Timeout { address: String, timeout: Duration },
    #[error("server {address}: the answer has more than {bytes_max} bytes")]
    TooLarge { address: String, bytes_max: usize },
    #[error("server {address}: the answer ended early: {why}")]
    Body { address: String, why: String },
    #[error("server {address}: the request cannot be sent: {error}")]
    Request { address: String, error: hyper::http::Error },
}

impl FeedClient {
    pub fn new(token: Option<String>) -> FeedClient {
        FeedClient { token, idle: Mutex::default() }
    }

    /// Sends a request and reads its answer.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn get(&self, get: &Get<'_>) -> Result<Reply, ClientError> {
        let address = get.address.to_owned();
        let late = |_| ClientError::Timeout { address, timeout: get.timeout };
        tokio::time::timeout(get.timeout, self.get_in_time(get)).await.map_err(late)?
    }

    async fn get_in_time(&self, get: &Get<'_>) -> Result<Reply, ClientError> {
        // The server may have closed a connection that was idle.
        if let Some(connection) = self.take_idle(get.address)
            && let Ok(reply) = self.ask(connection, get).await
        {
            return Ok(reply);
        }
        let connection = connect(get.address).await?;
        self.ask(connection, get).await
    }

    async fn ask(&self, mut connection: Connection, get: &Get<'_>) -> Result<Reply, ClientError> {
        let address = get.address.to_owned();
        let http = |error| ClientError::Http { address: get.address.to_owned(), error };
        connection.requests.ready().await.map_err(http)?;
        let response = connection.requests.send_request(self.request(get)?).await.map_err(http)?;
        let status = response.status();
        let body = Limited::new(response.into_body(), get.bytes_max).collect().await;
        let body = body.map_err(|error| match error.is::<LengthLimitError>() {
            true => ClientError::TooLarge { address, bytes_max: get.bytes_max },
            false => ClientError::Body { address, why: error.to_string() },
        })?;
        let mut idle = self.idle();
        if idle.len() < IDLE_MAX && !connection.requests.is_closed() {
            idle.push(connection);
        }
        Ok(Reply { status, body: body.to_bytes() })
    }

    fn request(&self, get: &Get<'_>) -> Result<Request<Empty<Bytes>>, ClientError> {
        let mut request = Request::get(get.path).header(HOST, get.address);
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        let invalid = |error| ClientError::Request { address: get.address.to_owned(), error };
        request.body(Empty::new()).map_err(invalid)
    }

    fn take_idle(&self, address: &str) -> Option<Connection> {
        let mut idle = self.idle();
        idle.retain(|connection| !connection.requests.is_closed());
        let at = idle.iter().position(|connection| connection.address == address && connection.requests.is_ready())?;
        Some(idle.swap_remove(at))
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn connect(address: &str) -> Result<Connection, ClientError> {
    let address = address.to_owned();
    let failed = |error| ClientError::Connect { address: address.clone(), error };
    let stream = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(&address)).await;
    let late = |_| ClientError::Timeout { address: address.clone(), timeout: CONNECT_TIMEOUT };
    let stream = stream.map_err(late)?.map_err(failed)?;
    let _ = stream.set_nodelay(true);
    let http = |error| ClientError::Http { address: address.clone(), error };
    let (requests, connection) = handshake(TokioIo::new(stream)).await.map_err(http)?;
    // It ends with the connection. Each request has a timeout of its own.
    tokio::spawn(connection);
    Ok(Connection { address, requests })
}

/// A text as a parameter of a path.
pub fn escaped(text: &str) -> String {
    let escaped = |byte: u8| match byte.is_ascii_alphanumeric() {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    text.bytes().map(escaped).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_of_a_parameter_are_escaped() {
        assert_eq!(escaped("a B/ä&"), "a%20B%2F%C3%A4%26");
    }
}
