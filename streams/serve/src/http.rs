//! Requests and answers over HTTP/1.1.

mod answer;
mod assets;
mod counted;
mod dead_letters;
mod events;
mod health;
mod listings;
mod operate;
mod question;
mod refused;
mod request;
mod retention;
mod sql;
mod test_tenants;
mod types;
mod write_timeout;

use crate::node::Node;
use crate::settings::{CONNECTIONS_MAX, HEAD_BYTES_MAX, SQL_UNSENT_BYTES_MAX, WRITE_TIMEOUT_S};
use answer::{Answer, Failure};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request};
use hyper_util::rt::{TokioIo, TokioTimer};
use request::Route;
use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use write_timeout::WriteTimeout;

/// A request's head must have come after this, and an idle connection is closed.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// After a failed accept (too many open files) the next try waits so long.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The state that all requests share.
struct Server {
    node: Arc<Node>,
    bodies: Semaphore,
    /// Permits for bodies of listings. Additions wait for each other, and events do not wait for them.
    listings: Semaphore,
    /// Permits for bodies of queries in SQL. They are separate from permits for events.
    sql_bodies: Semaphore,
    /// Permits for bytes of SQL results that are not sent yet.
    sql_unsent: Arc<Semaphore>,
    /// Permits for requests about dead letters, each of which holds the letters of a blob.
    letters: Semaphore,
    queries: Semaphore,
    waiting: Semaphore,
}

/// Serves connections until `stop`, and lets requests under way finish.
pub async fn serve(listener: TcpListener, node: &Arc<Node>, stop: impl Future<Output = ()>, grace: Duration) {
    let server = Arc::new(Server {
        node: Arc::clone(node),
        bodies: Semaphore::new(crate::settings::BODIES_MAX),
        listings: Semaphore::new(crate::settings::ADDITIONS_MAX),
        sql_bodies: Semaphore::new(crate::settings::SQL_BODIES_MAX),
        sql_unsent: Arc::new(Semaphore::new(SQL_UNSENT_BYTES_MAX)),
        letters: Semaphore::new(crate::settings::LETTER_REQUESTS_MAX),
        queries: Semaphore::new(crate::settings::QUERIES_MAX),
        waiting: Semaphore::new(crate::settings::QUERIES_WAITING_MAX),
    });
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
                    connections.spawn(connection(stream, Arc::clone(&server), is_stopping.clone()));
                }
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
        }
    }
    node.set_stopping();
    drop(listener);
    stopping.send_replace(true);
    let rest = async { while connections.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(grace, rest).await;
}

async fn connection(stream: TcpStream, server: Arc<Server>, mut is_stopping: watch::Receiver<bool>) {
    let _ = stream.set_nodelay(true);
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

impl Server {
    async fn answer(&self, request: Request<Incoming>) -> Answer {
        let answered = self.carry_out(request).await;
        answered.unwrap_or_else(|failure| {
            self.node.counters.refused.add(1);
            failure.into()
        })
    }

    async fn carry_out(&self, request: Request<Incoming>) -> Result<Answer, Failure> {
        let route = Route::of(request.uri().path())?;
        let method = route.method();
        if request.method() != method && !(method == Method::GET && request.method() == Method::HEAD) {
            return Err(Failure::method(request.method(), method));
        }
        let params = request::params(request.uri().query(), route.params())?;
        match route {
            Route::Healthz => Ok(health::healthz()),
            Route::Readyz => Ok(health::readyz(&self.node, &params)),
            Route::Metrics => {
                request::authorize_producer(&self.node, request.headers())?;
                Ok(Answer::text(crate::metrics::text(&self.node)))
            }
            Route::Events => events::take(self, request, &params).await,
            Route::Listings => listings::add(self, request).await,
            Route::Query => question::ask(self, request).await,
            Route::Sql => sql::ask(self, request).await,
            Route::Page(page) => Ok(page.answer(request.headers())),
            Route::Pause => operate::pause(&self.node, request.headers(), &params).await,
            Route::Erase => operate::erase(&self.node, request.headers(), &params).await,
            Route::Types => types::list(&self.node, request.headers()),
            Route::RenameType => types::rename(&self.node, request.headers(), &params).await,
            Route::DeleteType => types::delete(&self.node, request.headers(), &params).await,
            Route::AddType => types::add(&self.node, request.headers(), &params).await,
            Route::AddDimension => types::add_dimension(&self.node, request.headers(), &params).await,
            Route::DeadLetters => dead_letters::list(self, request.headers(), &params).await,
            Route::ReplayDeadLetters => dead_letters::replay(self, request, &params).await,
            Route::DropDeadLetters => dead_letters::give_up(self, request.headers(), &params).await,
            Route::Refused => refused::list(&self.node, request.headers(), &params),
            Route::Retention => retention::show(&self.node, request.headers()),
            Route::SetRetention => retention::set(&self.node, request.headers(), &params).await,
            Route::TestTenants => test_tenants::list(&self.node, request.headers()),
            Route::AddTestTenant => test_tenants::add(&self.node, request.headers(), &params).await,
            Route::RemoveTestTenant => test_tenants::remove(&self.node, request.headers(), &params).await,
            Route::DeleteTestRows => test_tenants::delete_rows(&self.node, request.headers()).await,
            Route::Resume => operate::resume(&self.node, request.headers(), &params).await,
        }
    }
}
