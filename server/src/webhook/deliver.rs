//! One request to a receiver: resolve its name, refuse forbidden addresses, connect to the very address that was judged, sign, send, and
//! look at the status. No redirect is followed, no answer is believed beyond its status.

use super::address::is_public;
use super::queue::Failed;
use super::sign::Secrets;
use crate::session::now_s;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Bytes};
use hyper::client::conn::http1;
use hyper::{Method, Request, Response, StatusCode, Uri, header};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use std::net::SocketAddr;
use std::time::Duration;
use tidemark_tls::Trust;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

/// Bytes of an answer's head. More: the delivery fails.
pub const ANSWER_HEAD_BYTES_MAX: usize = 16 * 1024;
/// Bytes of an answer's body that are read, for the receiver's sake: one that is cut off may take it for a failure. The rest is
/// not.
pub const ANSWER_BODY_BYTES_MAX: usize = 16 * 1024;
/// How long an answer's body is waited for; its status is known by then.
const ANSWER_BODY_TIMEOUT: Duration = Duration::from_secs(1);
/// Addresses of one name that are tried.
const ADDRESSES_MAX: usize = 4;

/// Why a URL is none that can be delivered to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    #[error("https://HOST/PATH is expected")]
    Shape,
    #[error("http:// is for receivers of the own network: it needs allow_private")]
    Plain,
    #[error("names and passwords do not belong into a URL")]
    UserInfo,
}

/// Where a receiver is. `Debug` and `Display` show no path, which may be a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Url {
    is_https: bool,
    /// As it stands in the URL, without the brackets of an IPv6 address.
    host: String,
    port: u16,
    /// For the `Host` header.
    authority: String,
    path: String,
}

/// A receiver, as requests need it.
#[derive(Clone, Debug)]
pub struct Receiver {
    pub url: Url,
    pub secrets: Secrets,
    pub trust: Option<Trust>,
    pub allow_private: bool,
    /// For all of a request.
    pub timeout: Duration,
}

/// Why a request did not succeed.
#[derive(Debug, thiserror::Error)]
enum RequestError {
    #[error("no answer within {} ms", .0.as_millis())]
    Timeout(Duration),
    #[error("the name cannot be resolved: {0}")]
    Resolve(std::io::Error),
    #[error("the name has no address")]
    NoAddress,
    #[error("{0} is no public address: it needs allow_private")]
    Private(std::net::IpAddr),
    #[error("no connection to {address}: {source}")]
    Connect { address: SocketAddr, source: std::io::Error },
    #[error("TLS with {address}: {source}")]
    Tls { address: SocketAddr, source: std::io::Error },
    #[error("the host is no name that a certificate could have")]
    ServerName,
    #[error("the answer cannot be read: {0}")]
    Http(#[from] hyper::Error),
    #[error("it answers {0}")]
    Status(StatusCode),
}

impl Url {
    /// Reads a URL; a URL without TLS only with `allow_private`.
    pub fn parse(text: &str, allow_private: bool) -> Result<Url, UrlError> {
        let uri: Uri = text.parse().map_err(|_| UrlError::Shape)?;
        let is_https = match uri.scheme_str() {
            Some("https") => true,
            Some("http") if allow_private => false,
            Some("http") => return Err(UrlError::Plain),
            _ => return Err(UrlError::Shape),
        };
        let authority = uri.authority().ok_or(UrlError::Shape)?;
        if authority.as_str().contains('@') {
            return Err(UrlError::UserInfo);
        }
        let host = authority.host();
        let port = authority.port_u16().unwrap_or(if is_https { 443 } else { 80 });
        let has_port = authority.as_str().len() > host.len();
        if host.is_empty() || has_port && authority.port_u16().is_none() || port == 0 || text.contains('#') {
            return Err(UrlError::Shape);
        }
        Ok(Url {
            is_https,
            host: host.trim_matches(['[', ']']).to_owned(),
            port,
            authority: authority.as_str().to_owned(),
            path: uri.path_and_query().map_or_else(|| "/".to_owned(), |path| path.as_str().to_owned()),
        })
    }

    pub fn is_https(&self) -> bool {
        self.is_https
    }
}

impl std::fmt::Display for Url {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}://{}/…", if self.is_https { "https" } else { "http" }, self.authority)
    }
}

impl std::fmt::Debug for Url {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Url({self})")
    }
}

impl Receiver {
    /// Sends a body once, within the timeout. Any 2xx is success; 410 Gone says that the receiver wants nothing more (Standard Webhooks).
    pub async fn post(&self, id: &str, body: &str) -> Result<StatusCode, Failed> {
        let deadline = Instant::now() + self.timeout;
        let answered = tokio::time::timeout_at(deadline, self.exchange(id, body, deadline)).await;
        let status = match answered {
            Ok(Ok(status)) if status.is_success() => return Ok(status),
            Ok(Ok(status)) => RequestError::Status(status),
            Ok(Err(error)) => error,
            Err(_) => RequestError::Timeout(self.timeout),
        };
        let gone = matches!(status, RequestError::Status(StatusCode::GONE));
        Err(Failed { reason: status.to_string(), gone })
    }

    async fn exchange(&self, id: &str, body: &str, deadline: Instant) -> Result<StatusCode, RequestError> {
        let (stream, address) = self.connect().await?;
        // A small request that waits for its answer must not wait for more bytes.
        let _ = stream.set_nodelay(true);
        let request = self.request(id, body);
        match &self.trust {
            None => send(stream, request, deadline).await,
            Some(Trust(config)) => {
                let name = ServerName::try_from(self.url.host.clone()).map_err(|_| RequestError::ServerName)?;
                let tls = TlsConnector::from(config.clone()).connect(name, stream).await;
                send(tls.map_err(|source| RequestError::Tls { address, source })?, request, deadline).await
            }
        }
    }

    /// Connects to an address that was judged, and not to one that a second look at the DNS might give.
    async fn connect(&self) -> Result<(TcpStream, SocketAddr), RequestError> {
        let found = tokio::net::lookup_host((self.url.host.as_str(), self.url.port)).await;
        let mut error = RequestError::NoAddress;
        let found = found.map_err(RequestError::Resolve)?;
        for address in found.take(ADDRESSES_MAX) {
            if !self.allow_private && !is_public(address.ip()) {
                error = RequestError::Private(address.ip());
                continue;
            }
            match TcpStream::connect(address).await {
                Ok(stream) => return Ok((stream, address)),
                Err(source) => error = RequestError::Connect { address, source },
            }
        }
        Err(error)
    }

    fn request(&self, id: &str, body: &str) -> Request<Full<Bytes>> {
        let timestamp = now_s();
        let builder = Request::builder()
            .method(Method::POST)
            .uri(self.url.path.as_str())
            .header(header::HOST, self.url.authority.as_str())
            .header(header::USER_AGENT, concat!("tidemark/", env!("CARGO_PKG_VERSION")))
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::CONNECTION, "close")
            .header("webhook-id", id)
            .header("webhook-timestamp", timestamp)
            .header("webhook-signature", self.secrets.sign(id, timestamp, body.as_bytes()));
        builder.body(Full::from(body.to_owned())).expect("a URL that was parsed, and headers of ours, make a request")
    }
}

async fn send<S>(stream: S, request: Request<Full<Bytes>>, deadline: Instant) -> Result<StatusCode, RequestError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = http1::Builder::new();
    let (mut sender, connection) = builder.max_buf_size(ANSWER_HEAD_BYTES_MAX).handshake(TokioIo::new(stream)).await?;
    // Ended when this future is, however that comes about.
    let mut connections = JoinSet::new();
    connections.spawn(connection);
    let response = sender.send_request(request).await?;
    let status = response.status();
    // The status stands, however little time is left.
    let left = deadline.saturating_duration_since(Instant::now());
    let _ = tokio::time::timeout(ANSWER_BODY_TIMEOUT.min(left / 2), read_some(response)).await;
    Ok(status)
}

/// Reads some of an answer's body and forgets it.
async fn read_some(mut response: Response<impl Body<Data = Bytes> + Unpin>) {
    let mut read = 0;
    while let Some(Ok(frame)) = response.frame().await {
        read += frame.data_ref().map_or(0, Bytes::len);
        if read >= ANSWER_BODY_BYTES_MAX {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_a_scheme_a_host_and_no_password() {
        let parse = |text: &str| Url::parse(text, false);
        let url = parse("https://hooks.example/secret/path?key=1").unwrap();
        assert_eq!((url.host.as_str(), url.port, url.path.as_str()), ("hooks.example", 443, "/secret/path?key=1"));
        assert_eq!(format!("{url} {url:?}"), "https://hooks.example/… Url(https://hooks.example/…)");
        let six = parse("https://[2606:4700::1]:8443").unwrap();
        assert_eq!((six.host.as_str(), six.port, six.path.as_str()), ("2606:4700::1", 8443, "/"));
        assert_eq!(parse("http://hooks.example/"), Err(UrlError::Plain));
        assert_eq!(Url::parse("http://hooks.example/", true).map(|url| url.port), Ok(80));
        assert_eq!(parse("https://me:word@hooks.example/"), Err(UrlError::UserInfo));
        for wrong in ["hooks.example", "/path", "ftp://hooks.example/", "https://", "https://h:0/", "https://h:70000/"]
        {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
