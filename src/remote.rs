//! A running process's HTTP interface, seen from the command line.

use crate::running::{DATA_DIR, HTTP_PORT, Running, RunningError};
use clap::Args;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use rustls::pki_types::ServerName;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;
use tidemark_proto::ids::CounterName;
use tidemark_server::http::{BulkBody, BulkLine, FailureText, HEAD_BYTES_MAX, REQUEST_TIMEOUT};
use tidemark_server::names::counter_text;
use tidemark_server::token::{Token, TokenError};
use tidemark_tls::{TlsError, Trust};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Bytes of an answer; nothing that a process answers is longer.
const ANSWER_BYTES_MAX: usize = 16 << 20;
/// An address that takes no connection for so long is not there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A little longer than the server takes to say that it cannot answer in time.
const ANSWER_TIMEOUT: Duration = REQUEST_TIMEOUT.saturating_add(Duration::from_secs(5));

// The address is, in this order: `--server`, `TIDEMARK_SERVER`, that of the `tidemark serve` with the data directory `--data-dir` or
// `./tidemark-data`, and port 7171 of this machine. The token is `--token`, `--token-file`, their variables, and else that of the data
// directory, if its process is the one that is asked.
/// Where to ask, and with which token.
#[derive(Clone, Debug, Args)]
pub struct Remote {
    /// URL of the process to ask: http://HOST:PORT, or https://HOST:PORT with TLS [default: the `tidemark serve` of the data directory,
    /// else http://127.0.0.1:7171]
    #[arg(long, env = "TIDEMARK_SERVER", global = true)]
    server: Option<String>,
    /// Data directory of a `tidemark serve` on this machine, from which its address and token are read [default: tidemark-data]
    #[arg(long, value_name = "DIR", global = true)]
    data_dir: Option<PathBuf>,
    /// Bearer token; prefer the variable or a file, because others can see a command line
    #[arg(long, env = "TIDEMARK_TOKEN", hide_env_values = true, global = true)]
    token: Option<String>,
    /// File with the token, such as DATA_DIR/token
    #[arg(long, env = "TIDEMARK_TOKEN_FILE", conflicts_with = "token", global = true)]
    token_file: Option<PathBuf>,
    /// PEM file of the authority that issued the server's certificate [default: the operating system's authorities]
    #[arg(long, env = "TIDEMARK_CA", global = true)]
    ca: Option<PathBuf>,
    /// Print JSON, one line per value
    #[arg(long, global = true)]
    pub json: bool,
    /// Found once.
    #[arg(skip)]
    target: OnceLock<Box<Target>>,
}

/// The process to ask.
#[derive(Clone, Debug)]
struct Target {
    server: String,
    /// The token of its data directory.
    token_file: Option<PathBuf>,
    source: Source,
}

/// Where an address came from.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    Given,
    DataDir(PathBuf),
    Default,
}

impl Source {
    /// Advice for the case that no process answers there.
    fn advice(&self) -> String {
        match self {
            Source::Given => String::new(),
            Source::DataDir(dir) => format!(
                "; {} says that it runs there: start `tidemark serve` again, or name another process with --server or TIDEMARK_SERVER",
                dir.display()
            ),
            Source::Default => {
                "; start `tidemark serve`, or name the process with --server or TIDEMARK_SERVER".to_owned()
            }
        }
    }
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    #[error("--server {0:?}: http://HOST:PORT or https://HOST:PORT expected")]
    Address(String),
    #[error("--ca goes with https://, and --server is {0:?}")]
    Plain(String),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error(transparent)]
    Running(#[from] RunningError),
    #[error("cannot reach {authority}: {reason}")]
    Unreachable { authority: String, reason: String },
    #[error("{authority} answers {status}: {message}")]
    Refused { authority: String, status: StatusCode, message: String },
    #[error("{authority} gave no answer that can be read: {reason}")]
    Answer { authority: String, reason: String },
}

/// A failure's body, as the server writes it.
#[derive(serde::Deserialize)]
struct FailureBody {
    error: FailureText,
}

impl Remote {
    /// Sends a request and reads the JSON it is answered with.
    pub async fn call<A: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<A, RemoteError> {
        let body = body.map(|body| self.encoded(body)).transpose()?;
        let bytes = self.success(method, path, body).await?;
        serde_json::from_slice(&bytes).map_err(|error| self.unreadable(&error))
    }

    /// Sends many increments. An answer of which each is refused says so of each, and is no error.
    pub async fn add_all(&self, lines: &[&BulkLine]) -> Result<BulkBody, RemoteError> {
        let (status, bytes) = self.answer(Method::POST, "/v1/add", Some(self.encoded(&lines)?)).await?;
        let authority = self.authority()?.to_owned();
        match serde_json::from_slice(&bytes) {
            Ok(body) => Ok(body),
            Err(_) if !status.is_success() => Err(refused(authority, status, &bytes)),
            Err(error) => Err(RemoteError::Answer { authority, reason: error.to_string() }),
        }
    }

    /// Sends a request and reads the body of its answer, if that says success.
    async fn success(&self, method: Method, path: &str, body: Option<Vec<u8>>) -> Result<Bytes, RemoteError> {
        let (status, bytes) = self.answer(method, path, body).await?;
        match status.is_success() {
            true => Ok(bytes),
            false => Err(refused(self.authority()?.to_owned(), status, &bytes)),
        }
    }

    fn encoded(&self, body: &impl Serialize) -> Result<Vec<u8>, RemoteError> {
        serde_json::to_vec(body).map_err(|error| self.unreadable(&error))
    }

    fn unreadable(&self, error: &serde_json::Error) -> RemoteError {
        let authority = self.authority().unwrap_or_default().to_owned();
        RemoteError::Answer { authority, reason: error.to_string() }
    }

    /// Sends a request and reads the answer, whatever its status.
    async fn answer(
        &self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
    ) -> Result<(StatusCode, Bytes), RemoteError> {
        let authority = self.authority()?;
        let late = || RemoteError::Answer {
            authority: authority.to_owned(),
            reason: format!("no answer within {} s", ANSWER_TIMEOUT.as_secs()),
        };
        tokio::time::timeout(ANSWER_TIMEOUT, self.exchange(method, path, body)).await.map_err(|_| late())?
    }

    /// Asks for a long answer and hands its pieces on as they come; `take` says why it does not want any more.
    pub async fn stream<E: std::error::Error>(
        &self,
        path: &str,
        mut take: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), RemoteError> {
        let authority = self.authority()?.to_owned();
        let failed = |reason: String| RemoteError::Answer { authority: authority.clone(), reason };
        let late = || failed(format!("no answer within {} s", ANSWER_TIMEOUT.as_secs()));
        let sent = tokio::time::timeout(ANSWER_TIMEOUT, self.send(Method::GET, path, None)).await;
        let (response, _connection) = sent.map_err(|_| late())??;
        let status = response.status();
        if !status.is_success() {
            let body = self.whole(response.into_body()).await?;
            return Err(refused(authority, status, &body));
        }
        let mut body = response.into_body();
        while let Some(frame) = tokio::time::timeout(ANSWER_TIMEOUT, body.frame()).await.map_err(|_| late())? {
            let frame = frame.map_err(|error| failed(error.to_string()))?;
            if let Some(piece) = frame.data_ref() {
                take(piece).map_err(|error| failed(error.to_string()))?;
            }
        }
        Ok(())
    }

    /// Another process, asked with the same token and trust.
    pub fn also(&self, server: &str) -> Remote {
        Remote { server: Some(server.to_owned()), target: OnceLock::new(), ..self.clone() }
    }

    /// A remote for reads that need no token.
    pub fn at(server: String) -> Remote {
        let server = Some(server);
        let target = OnceLock::new();
        Remote { server, data_dir: None, token: None, token_file: None, ca: None, json: true, target }
    }

    /// Reads.
    pub async fn get<A: DeserializeOwned>(&self, path: &str) -> Result<A, RemoteError> {
        self.call(Method::GET, path, None::<&()>).await
    }

    /// `HOST:PORT`.
    pub fn authority(&self) -> Result<&str, RemoteError> {
        let text = &self.target()?.server;
        let refused = || RemoteError::Address(text.clone());
        let server = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
        let authority = server.ok_or_else(refused)?.trim_end_matches('/');
        let (host, port) = authority.rsplit_once(':').ok_or_else(refused)?;
        let valid = !host.is_empty() && !host.contains(['/', '@', '?', '#']) && port.parse::<u16>().is_ok();
        if valid { Ok(authority) } else { Err(refused()) }
    }

    fn target(&self) -> Result<&Target, RemoteError> {
        if let Some(target) = self.target.get() {
            return Ok(target);
        }
        let found = self.find()?;
        Ok(self.target.get_or_init(|| Box::new(found)))
    }

    fn find(&self) -> Result<Target, RemoteError> {
        let given = self.server.as_deref().filter(|server| !server.is_empty());
        let dir = self.data_dir.clone().unwrap_or_else(|| DATA_DIR.into());
        if let Some(server) = given {
            // Errors of other content in the data directory are ignored.
            let running = Running::find(&dir).ok().flatten();
            let own = running.filter(|running| running.server == server.trim_end_matches('/'));
            let token_file = own.map(|running| running.token);
            return Ok(Target { server: server.to_owned(), token_file, source: Source::Given });
        }
        let running = match &self.data_dir {
            Some(dir) => Some(Running::must_find(dir)?),
            None => Running::find(&dir)?,
        };
        Ok(match running {
            Some(Running { server, token, .. }) => {
                Target { server, token_file: Some(token), source: Source::DataDir(dir) }
            }
            None => {
                let server = format!("http://127.0.0.1:{HTTP_PORT}");
                Target { server, token_file: None, source: Source::Default }
            }
        })
    }

    /// The `tidemark serve` of the data directory.
    pub fn running(&self) -> Result<Running, RunningError> {
        Running::must_find(self.data_dir.as_deref().unwrap_or(Path::new(DATA_DIR)))
    }

    /// The authorities to trust, if TLS is spoken.
    fn trust(&self) -> Result<Option<Trust>, RemoteError> {
        let server = &self.target()?.server;
        match (server.starts_with("https://"), &self.ca) {
            (true, ca) => Ok(Some(Trust::new(ca.as_deref())?)),
            (false, None) => Ok(None),
            (false, Some(_)) => Err(RemoteError::Plain(server.clone())),
        }
    }

    /// The `Authorization` header, if there is a token.
    pub fn authorization(&self) -> Result<Option<String>, RemoteError> {
        // A variable that is set to nothing is as good as one that is not set.
        let given = self.token.as_deref().filter(|text| !text.trim().is_empty());
        let file = self.token_file.as_ref().filter(|path| !path.as_os_str().is_empty());
        let token = match (given, file.or(self.target()?.token_file.as_ref())) {
            (Some(text), _) => Some(Token::new(text)?),
            (None, Some(path)) => Some(Token::read(path)?),
            (None, None) => None,
        };
        Ok(token.map(|token| format!("Bearer {}", token.as_str())))
    }

    pub async fn connect(&self) -> Result<RemoteStream, RemoteError> {
        let authority = self.authority()?;
        let trust = self.trust()?;
        let advice = self.target()?.source.advice();
        let failed = |reason: String| RemoteError::Unreachable {
            authority: authority.to_owned(),
            reason: format!("{reason}{advice}"),
        };
        let connected = tokio::time::timeout(CONNECT_TIMEOUT, connect(authority, trust)).await;
        connected
            .map_err(|_| failed(format!("no connection within {} s", CONNECT_TIMEOUT.as_secs())))?
            .map_err(|error| failed(error.to_string()))
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
    ) -> Result<(StatusCode, Bytes), RemoteError> {
        let (response, _connection) = self.send(method, path, body).await?;
        let (head, body) = response.into_parts();
        Ok((head.status, self.whole(body).await?))
    }

    /// Connects, sends a request and returns the answer as soon as its head is there; its body comes as long as the connection is kept.
    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
    ) -> Result<(Response<Incoming>, Connection), RemoteError> {
        let authority = self.authority()?;
        let failed =
            |error: hyper::Error| RemoteError::Answer { authority: authority.to_owned(), reason: error.to_string() };
        let request = self.request(method, path, body)?;
        let stream = TokioIo::new(self.connect().await?);
        let handshake = http1::Builder::new().max_buf_size(HEAD_BYTES_MAX).handshake(stream).await;
        let (mut sender, connection) = handshake.map_err(failed)?;
        let connection = AbortOnDrop(tokio::spawn(connection));
        Ok((sender.send_request(request).await.map_err(failed)?, connection))
    }

    async fn whole(&self, body: Incoming) -> Result<Bytes, RemoteError> {
        let authority = self.authority()?.to_owned();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
        let failed = |reason: String| RemoteError::Answer { authority: authority.clone(), reason };
        Ok(body.map_err(|error| failed(error.to_string()))?.to_bytes())
    }

    fn request(&self, method: Method, path: &str, body: Option<Vec<u8>>) -> Result<Request<Full<Bytes>>, RemoteError> {
        let authority = self.authority()?;
        let failed = |reason: String| RemoteError::Answer { authority: authority.to_owned(), reason };
        let mut request = Request::builder().method(method).uri(path).header(header::HOST, authority);
        if let Some(authorization) = self.authorization()? {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        request.body(Full::from(body.unwrap_or_default())).map_err(|error| failed(error.to_string()))
    }
}

impl RemoteError {
    /// Whether the same request may be answered soon.
    pub fn passes(&self) -> bool {
        match self {
            RemoteError::Unreachable { .. } | RemoteError::Answer { .. } => true,
            RemoteError::Refused { status, .. } => {
                let passing = [
                    StatusCode::REQUEST_TIMEOUT,
                    StatusCode::TOO_MANY_REQUESTS,
                    StatusCode::BAD_GATEWAY,
                    StatusCode::SERVICE_UNAVAILABLE,
                    StatusCode::GATEWAY_TIMEOUT,
                ];
                passing.contains(status)
            }
            RemoteError::Address(_)
            | RemoteError::Plain(_)
            | RemoteError::Tls(_)
            | RemoteError::Token(_)
            | RemoteError::Running(_) => false,
        }
    }
}

/// A refusal, with what a command's user can do about it.
fn refused(authority: String, status: StatusCode, body: &[u8]) -> RemoteError {
    RemoteError::Refused { authority, status, message: failure_message(body) }
}

/// The message in a failure's body, in the words of the command line.
pub fn failure_message(bytes: &[u8]) -> String {
    let Ok(FailureBody { error }) = serde_json::from_slice(bytes) else {
        return String::from_utf8_lossy(bytes).into_owned();
    };
    let FailureText { code, message } = error;
    let said = IN_OPTIONS.iter().fold(message, |message, (param, option)| message.replace(param, option));
    match code.as_str() {
        "unauthorized" => {
            format!("{said}; pass --token-file DATA_DIR/token, or set TIDEMARK_TOKEN_FILE or TIDEMARK_TOKEN")
        }
        _ => said,
    }
}

/// Parts of messages that name a field of JSON, a parameter of a URL or a header, and the option that is meant here.
const IN_OPTIONS: [(&str, &str); 4] = [
    ("say \"unknown\": \"allow\"", "say --unknown"),
    ("; GET /v1/range?prefix=NAMESPACE/ lists counters", "; `tidemark range NAMESPACE/` lists counters"),
    (": send Authorization: Bearer TOKEN with the token in http.token_file (default: DATA_DIR/token)", ""),
    ("expires_s is", "--in is"),
];

/// A task that ends when its owner no longer waits for it.
struct AbortOnDrop<T>(tokio::task::JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The connection that carries the body of an answer.
type Connection = AbortOnDrop<hyper::Result<()>>;

/// A connection to a process, plain or over TLS.
pub type RemoteStream = Box<dyn Stream>;

/// A stream over which bytes are exchanged.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Connects to `HOST:PORT`.
pub async fn connect(authority: &str, trust: Option<Trust>) -> std::io::Result<RemoteStream> {
    let stream = TcpStream::connect(authority).await?;
    let Some(Trust(config)) = trust else { return Ok(Box::new(stream)) };
    let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host).trim_matches(['[', ']']).to_owned();
    let name = ServerName::try_from(host).map_err(std::io::Error::other)?;
    Ok(Box::new(TlsConnector::from(config).connect(name, stream).await?))
}

/// A counter in a path: all of its key escaped, so that no part of it is taken for a verb.
pub fn counter_path(counter: &CounterName, verb: &str) -> String {
    let key = percent_encoding::percent_encode(counter.key(), NON_ALPHANUMERIC);
    format!("/v1/counters/{}/{key}{verb}", counter.namespace())
}

/// An award in a path.
pub fn award_path(counter: &CounterName, at: u64, verb: &str) -> String {
    let key = percent_encoding::percent_encode(counter.key(), NON_ALPHANUMERIC);
    format!("/v1/awards/{}/{key}/{at}{verb}", counter.namespace())
}

/// `counter=…`, for a query.
pub fn counter_param(counter: &CounterName) -> String {
    format!("counter={}", utf8_percent_encode(&counter_text(counter), NON_ALPHANUMERIC))
}
