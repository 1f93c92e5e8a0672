//! Requests of a process that answers queries only.

use super::answer::{Answer, Failure};
use super::asking::Asking;
use super::assets::Page;
use super::listen::Service;
use super::request::{self, Params, Route};
use super::{health, question, sql, tables};
use crate::following::Following;
use crate::metrics;
use crate::queries::Queries;
use hyper::body::Incoming;
use hyper::{Request, StatusCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// The routes that it answers.
enum Own {
    Healthz,
    Readyz,
    Metrics,
    Query,
    Sql,
    Tables,
    Page(Page),
}

impl Own {
    fn of(route: Route) -> Option<Own> {
        match route {
            Route::Healthz => Some(Own::Healthz),
            Route::Readyz => Some(Own::Readyz),
            Route::Metrics => Some(Own::Metrics),
            Route::Query => Some(Own::Query),
            Route::Sql => Some(Own::Sql),
            Route::Tables => Some(Own::Tables),
            Route::Page(page) => Some(Own::Page(page)),
            Route::Events | Route::Listings | Route::Refused | Route::Pause | Route::Resume | Route::Erase => None,
            Route::Types | Route::RenameType | Route::DeleteType | Route::AddType | Route::AddDimension => None,
            Route::DeadLetters | Route::ReplayDeadLetters | Route::DropDeadLetters => None,
            Route::UploadTable | Route::DropTable => None,
            Route::Retention | Route::SetRetention => None,
            Route::TestTenants | Route::AddTestTenant | Route::RemoveTestTenant | Route::DeleteTestRows => None,
            Route::FeedSnapshot | Route::FeedCommands | Route::FeedRows => None,
        }
    }
}

pub struct QueryOnly {
    asking: Asking,
    following: Arc<Following>,
    is_stopping: AtomicBool,
    started: Instant,
}

impl QueryOnly {
    pub fn new(queries: Arc<Queries>, following: Arc<Following>) -> QueryOnly {
        let asking = Asking::new(queries);
        QueryOnly { asking, following, is_stopping: AtomicBool::new(false), started: Instant::now() }
    }

    async fn carry_out(&self, mut request: Request<Incoming>) -> Result<Answer, Failure> {
        request::check_host(&request)?;
        let path = request.uri().path();
        let own = Own::of(Route::of(path)?).ok_or_else(|| self.elsewhere(path))?;
        let route = Route::of_request(&request)?;
        let params = request::params(request.uri().query(), route.params())?;
        request::check_body(route, &mut request).await?;
        match own {
            Own::Healthz => Ok(health::healthz()),
            Own::Readyz => Ok(self.readyz(&params)),
            Own::Metrics => {
                let queries = &self.asking.queries;
                request::authorize_producer(queries.keys.as_ref(), request.headers())?;
                Ok(Answer::text(metrics::text_of_queries(queries, &self.following, self.started)))
            }
            Own::Query => question::ask(&self.asking, request).await,
            Own::Sql => sql::ask(&self.asking, request).await,
            Own::Tables => tables::list(&self.asking.queries, request.headers(), &params),
            Own::Page(page) => Ok(page.answer(request.headers())),
        }
    }

    fn elsewhere(&self, path: &str) -> Failure {
        let server = self.following.server();
        let message =
            format!("this process answers queries only: send {} to the server, {server}", request::shown(path));
        Failure::new(StatusCode::NOT_FOUND, "not_here", message)
    }

    /// Ready: the manifest is known, and not too old.
    fn readyz(&self, params: &Params) -> Answer {
        let feed = self.following.check_fresh().err().map(|error| error.to_string());
        let is_stopping = self.is_stopping.load(Ordering::Relaxed);
        let stopping = is_stopping.then(|| "the process is stopping".to_owned());
        health::readiness(&[("feed", feed), ("running", stopping)], params)
    }
}

impl Service for QueryOnly {
    async fn answer(&self, request: Request<Incoming>) -> Answer {
        let answered = self.carry_out(request).await;
        answered.unwrap_or_else(|failure| {
            self.asking.queries.stores.counters.refused.add(1);
            failure.into()
        })
    }

    fn stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
    }
}
