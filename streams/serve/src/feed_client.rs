//! Requests of a query process to a server, plain or with TLS. Connections are kept and used again.

use crate::token::Token;
use bytes::Bytes;
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{AUTHORIZATION, HOST};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use std::io;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tidemark_tls::Trust;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Connections that are kept for later requests. Further ones are closed.
const IDLE_MAX: usize = 8;
/// A connection is there after this.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

const TLS: &str = "https://";
const PLAIN: &str = "http://";

pub struct FeedClient {
    token: Option<Token>,
    /// Authorities of servers with TLS; `None`: no server has it.
    trust: Option<Trust>,
    idle: Mutex<Vec<Connection>>,
}

struct Connection {
    address: String,
    requests: SendRequest<Empty<Bytes>>,
}

/// What is asked of a server.
pub struct Get<'a> {
    /// [`Address`] as a text.
    pub address: &'a str,
    pub path: &'a str,
    pub bytes_max: usize,
    pub timeout: Duration,
}

/// The address of a server: HOST:PORT or http://HOST:PORT, or https://HOST:PORT with TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address<'a> {
    pub scheme: Scheme,
    /// HOST:PORT.
    pub authority: &'a str,
    /// Without brackets.
    pub host: &'a str,
}

/// What stands before an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Nothing: without TLS.
    Unnamed,
    /// `http://`
    Plain,
    /// `https://`
    Tls,
}

impl<'a> Address<'a> {
    /// `None`: the text is no address.
    pub fn parse(text: &'a str) -> Option<Address<'a>> {
        let (scheme, authority) = match (text.strip_prefix(TLS), text.strip_prefix(PLAIN)) {
            (Some(rest), _) => (Scheme::Tls, rest),
            (None, Some(rest)) => (Scheme::Plain, rest),
            (None, None) => (Scheme::Unnamed, text),
        };
        let (host, port) = authority.rsplit_once(':')?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let is_host = |sign: char| sign.is_ascii_alphanumeric() || ".-_:%".contains(sign);
        let is_valid = port.parse::<u16>().is_ok_and(|port| port > 0) && !host.is_empty() && host.chars().all(is_host);
        is_valid.then_some(Address { scheme, authority, host })
    }

    /// Whether it is of this machine, whatever names mean elsewhere.
    pub fn is_loopback(self) -> bool {
        self.host == "localhost" || self.host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
    }
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
    #[error(
        "server {address}: TLS: {error}; --ca names the authority that signed the server's own certificate, which may not be one of an \
         authority; a server without TLS is named with http://"
    )]
    Tls { address: String, error: io::Error },
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
    pub fn new(token: Option<Token>, trust: Option<Trust>) -> FeedClient {
        FeedClient { token, trust, idle: Mutex::default() }
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
        let connection = self.connect(get.address).await?;
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
        let authority = Address::parse(get.address).map_or(get.address, |address| address.authority);
        let mut request = Request::get(get.path).header(HOST, authority);
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, format!("Bearer {}", token.text()));
        }
        let invalid = |error| ClientError::Request { address: get.address.to_owned(), error };
        request.body(Empty::new()).map_err(invalid)
    }

    async fn connect(&self, address: &str) -> Result<Connection, ClientError> {
        let failed = |error| ClientError::Connect { address: address.to_owned(), error };
        let no_address = || failed(io::Error::other("no address: HOST:PORT or https://HOST:PORT is expected"));
        let Address { scheme, authority, host } = Address::parse(address).ok_or_else(no_address)?;
        let stream = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(authority)).await;
        let late = |_| ClientError::Timeout { address: address.to_owned(), timeout: CONNECT_TIMEOUT };
        let stream = stream.map_err(late)?.map_err(failed)?;
        let _ = stream.set_nodelay(true);
        if scheme != Scheme::Tls {
            return spoken_to(address, stream).await;
        }
        let refused = |error| ClientError::Tls { address: address.to_owned(), error };
        let name = ServerName::try_from(host.to_owned()).map_err(|error| refused(io::Error::other(error)))?;
        let trust = self.trust.as_ref().ok_or_else(|| refused(io::Error::other("no authority is trusted")))?;
        let agreed = TlsConnector::from(trust.0.clone()).connect(name, stream);
        let stream = tokio::time::timeout(CONNECT_TIMEOUT, agreed).await.map_err(late)?.map_err(refused)?;
        spoken_to(address, stream).await
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

/// A connection on which HTTP is spoken.
async fn spoken_to(
    address: &str,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Result<Connection, ClientError> {
    let address = address.to_owned();
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
    fn addresses_of_servers_have_a_host_and_a_port() {
        let parsed = |text| Address::parse(text).map(|found| (found.scheme, found.authority, found.host));
        assert_eq!(parsed("10.0.0.1:7180"), Some((Scheme::Unnamed, "10.0.0.1:7180", "10.0.0.1")));
        assert_eq!(parsed("http://a.b:1"), Some((Scheme::Plain, "a.b:1", "a.b")));
        assert_eq!(parsed("https://[::1]:7180"), Some((Scheme::Tls, "[::1]:7180", "::1")));
        for wrong in ["", "a", "a:", ":1", "a:0", "a:65536", "ftp://a:1", "https://a:1/x", "a b:1", "https://u@a:1"] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn addresses_of_this_machine_are_loopback() {
        let is_loopback = |text| Address::parse(text).unwrap().is_loopback();
        assert!(["127.0.0.1:1", "http://[::1]:1", "https://localhost:1", "127.9.9.9:1"].into_iter().all(is_loopback));
        assert!(!["10.0.0.1:1", "localhost.example:1", "[::2]:1", "0.0.0.0:1"].into_iter().any(is_loopback));
    }

    #[test]
    fn signs_of_a_parameter_are_escaped() {
        assert_eq!(escaped("a B/ä&"), "a%20B%2F%C3%A4%26");
    }
}
