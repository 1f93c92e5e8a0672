//! Connections, plain or with TLS: each request of them is answered by a service.

use super::answer::{Answer, Failure};
use super::write_timeout::WriteTimeout;
use crate::settings::{CONNECTIONS_MAX, HEAD_BYTES_MAX, WRITE_TIMEOUT_S};
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tidemark_tls::ServerTls;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::server::TlsStream;

/// A request's head must have come after this, and an idle connection is closed.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// After a failed accept (too many open files) the next try waits so long.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The handshake of TLS ends after this.
const TLS_TIMEOUT: Duration = Duration::from_secs(10);
/// The first byte of a connection with TLS: a record of its handshake.
const TLS_HANDSHAKE: u8 = 0x16;
/// Where connections are taken, and how.
pub struct Listen {
    pub listener: TcpListener,
    /// `None`: connections are not encrypted.
    pub tls: Option<ServerTls>,
}

/// What answers requests.
pub trait Service: Send + Sync + 'static {
    fn answer(&self, request: Request<Incoming>) -> impl Future<Output = Answer> + Send;

    /// The process stops: requests under way are finished.
    fn stop(&self);
}

/// Serves connections until `stop`, and lets requests under way finish.
pub async fn serve<S: Service>(listen: Listen, service: S, stop: impl Future<Output = ()>, grace: Duration) {
    let Listen { listener, tls } = listen;
    let service = Arc::new(service);
    let (stopping, is_stopping) = watch::channel(false);
    let mut connections = JoinSet::new();
    let mut stop = pin!(stop);
    loop {
        let may_accept = connections.len() < CONNECTIONS_MAX;
        tokio::select! {
            () = &mut stop => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept(), if may_accept => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(connection(stream, tls.clone(), Arc::clone(&service), is_stopping.clone()));
                }
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
        }
    }
    service.stop();
    drop(listener);
    stopping.send_replace(true);
    let rest = async { while connections.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(grace, rest).await;
}

async fn connection<S: Service>(
    stream: TcpStream,
    tls: Option<ServerTls>,
    server: Arc<S>,
    is_stopping: watch::Receiver<bool>,
) {
    let _ = stream.set_nodelay(true);
    let Some(tls) = tls else { return answer_requests(stream, server, is_stopping).await };
    let agreed = tokio::time::timeout(TLS_TIMEOUT, agree(stream, &tls)).await;
    match agreed {
        Ok(Ok(Agreed::Encrypted(stream))) => answer_requests(stream, server, is_stopping).await,
        Ok(Ok(Agreed::Plain(stream))) => answer_requests(stream, Arc::new(TlsNeeded), is_stopping).await,
        // A client that does not trust the certificate, or says nothing, ends its connection only.
        Ok(Err(_)) | Err(_) => {}
    }
}

/// A connection to an address with TLS.
enum Agreed {
    Encrypted(Box<TlsStream<TcpStream>>),
    /// Its client does not speak TLS.
    Plain(TcpStream),
}

async fn agree(stream: TcpStream, tls: &ServerTls) -> io::Result<Agreed> {
    let mut first = [0];
    match stream.peek(&mut first).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ if first[0] == TLS_HANDSHAKE => Ok(Agreed::Encrypted(Box::new(tls.acceptor().accept(stream).await?))),
        _ => Ok(Agreed::Plain(stream)),
    }
}

/// Answers requests without TLS where TLS is needed.
struct TlsNeeded;

impl Service for TlsNeeded {
    async fn answer(&self, _request: Request<Incoming>) -> Answer {
        Failure::bad("tls_needed", "this address takes connections with TLS only: use https://").into()
    }

    fn stop(&self) {}
}

async fn answer_requests<S: Service>(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    server: Arc<S>,
    mut is_stopping: watch::Receiver<bool>,
) {
    let service = service_fn(move |request: Request<Incoming>| {
        let server = Arc::clone(&server);
        async move { Ok::<_, Infallible>(server.answer(request).await.into_response()) }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(HEAD_BYTES_MAX.max(64 << 10));
    let stream = WriteTimeout::new(stream, Duration::from_secs(WRITE_TIMEOUT_S));
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        // A client that is gone or speaks no HTTP ends its connection only.
        _ = connection.as_mut() => return,
        _ = is_stopping.wait_for(|is_stopping| *is_stopping) => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}
