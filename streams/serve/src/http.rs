//! Requests and answers over HTTP/1.1.

mod accept;
mod answer;
mod arrow;
mod asking;
mod assets;
mod counted;
mod dead_letters;
mod events;
mod feed;
mod health;
mod listen;
mod listings;
mod operate;
mod query_only;
mod question;
mod refused;
mod request;
mod retention;
mod sql;
mod tables;
mod test_tenants;
mod types;
mod unsent;
mod write_timeout;

use crate::node::Node;
use crate::settings::{
    ADDITIONS_MAX, BODIES_MAX, FEED_REQUESTS_MAX, HELD_REQUESTS_MAX, LETTER_REQUESTS_MAX, SNAPSHOTS_MAX,
    UPLOADS_AT_A_TIME_MAX,
};
use answer::{Answer, Failure};
use asking::Asking;
use hyper::Request;
use hyper::body::Incoming;
pub use listen::{Listen, Service, serve};
pub use query_only::QueryOnly;
use request::Route;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// The state that all requests share.
pub struct Server {
    node: Arc<Node>,
    asking: Asking,
    bodies: Semaphore,
    /// Permits for bodies of listings. Additions wait for each other, and events do not wait for them.
    listings: Semaphore,
    /// Permits for bodies of tables, until they are kept.
    uploads: Semaphore,
    /// Permits for requests about dead letters, each of which holds the letters of a blob.
    letters: Semaphore,
    /// Permits of query processes: for commands, for snapshots, and for rows of the owner.
    feeds: Semaphore,
    snapshots: Semaphore,
    held: Semaphore,
}

impl Service for Server {
    async fn answer(&self, request: Request<Incoming>) -> Answer {
        let answered = self.carry_out(request).await;
        answered.unwrap_or_else(|failure| {
            self.node.counters().refused.add(1);
            failure.into()
        })
    }

    fn stop(&self) {
        self.node.set_stopping();
    }
}

impl Server {
    pub fn new(node: &Arc<Node>) -> Server {
        Server {
            node: Arc::clone(node),
            asking: Asking::new(Arc::clone(&node.queries)),
            bodies: Semaphore::new(BODIES_MAX),
            listings: Semaphore::new(ADDITIONS_MAX),
            uploads: Semaphore::new(UPLOADS_AT_A_TIME_MAX),
            letters: Semaphore::new(LETTER_REQUESTS_MAX),
            feeds: Semaphore::new(FEED_REQUESTS_MAX),
            snapshots: Semaphore::new(SNAPSHOTS_MAX),
            held: Semaphore::new(HELD_REQUESTS_MAX),
        }
    }

    async fn carry_out(&self, mut request: Request<Incoming>) -> Result<Answer, Failure> {
        request::check_host(&request)?;
        let route = Route::of_request(&request)?;
        let params = request::params(request.uri().query(), route.params())?;
        request::check_body(route, &mut request).await?;
        match route {
            Route::Healthz => Ok(health::healthz()),
            Route::Readyz => Ok(health::readyz(&self.node, &params)),
            Route::Metrics => {
                request::authorize_producer(self.node.settings.keys.as_ref(), request.headers())?;
                Ok(Answer::text(crate::metrics::text(&self.node)))
            }
            Route::Events => events::take(self, request, &params).await,
            Route::Listings => listings::add(self, request).await,
            Route::Query => question::ask(&self.asking, request).await,
            Route::Sql => sql::ask(&self.asking, request).await,
            Route::Tables => tables::list(&self.node.queries, request.headers(), &params),
            Route::UploadTable => tables::upload(self, request, &params).await,
            Route::DropTable => tables::drop_table(&self.node, request.headers(), &params),
            Route::FeedSnapshot => feed::snapshot(self, request.headers()).await,
            Route::FeedCommands => feed::commands(self, request.headers(), &params).await,
            Route::FeedRows => feed::rows(self, request.headers(), &params).await,
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
