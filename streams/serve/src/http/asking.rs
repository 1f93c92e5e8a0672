//! The state that requests with queries share.

use super::answer::Failure;
use super::unsent::Space;
use crate::fetch::FetchError;
use crate::messages::Pinned;
use crate::pin_source::PinFailure;
use crate::queries::Queries;
use crate::settings::{
    PINS_MAX, QUERIES_MAX, QUERIES_WAITING_MAX, QUERY_WAIT_S, SQL_BODIES_MAX, SQL_BODIES_UNNAMED_MAX,
    SQL_UNSENT_BYTES_MAX,
};
use hyper::StatusCode;
use std::sync::Arc;
use std::time::Duration;
use tidemark_streams_core::time::HourRange;
use tidemark_streams_store::directory::DirectoryError;
use tidemark_streams_store::folder::ReadError;
use tokio::sync::{Semaphore, SemaphorePermit};

pub struct Asking {
    pub queries: Arc<Queries>,
    /// Permits for bodies of queries in SQL. They are separate from permits for events.
    pub sql_bodies: Semaphore,
    pub sql_bodies_unnamed: Semaphore,
    /// Permits for bytes of SQL results that are not sent yet.
    pub sql_unsent: Arc<Semaphore>,
    /// Space for answers to other queries that are not sent yet.
    pub unsent: Arc<Space>,
    /// Permits for queries from their pin to their answer.
    open: Semaphore,
    /// Permits to count. A query holds one while it reads nothing.
    turns: Semaphore,
    pins: Semaphore,
}

impl Asking {
    pub fn new(queries: Arc<Queries>) -> Asking {
        Asking {
            queries,
            sql_bodies: Semaphore::new(SQL_BODIES_MAX),
            sql_bodies_unnamed: Semaphore::new(SQL_BODIES_UNNAMED_MAX),
            sql_unsent: Arc::new(Semaphore::new(SQL_UNSENT_BYTES_MAX)),
            unsent: Arc::default(),
            open: Semaphore::new(QUERIES_MAX + QUERIES_WAITING_MAX),
            turns: Semaphore::new(QUERIES_MAX),
            pins: Semaphore::new(PINS_MAX),
        }
    }

    /// Takes a query, unless too many wait.
    pub fn enter(&self) -> Result<SemaphorePermit<'_>, Failure> {
        let full = |_| Failure::later("overloaded", format!("{QUERIES_WAITING_MAX} queries wait: at most so many"));
        self.open.try_acquire().map_err(full)
    }

    /// Waits until fewer queries count.
    pub async fn turn(&self) -> Result<SemaphorePermit<'_>, Failure> {
        let wait = Duration::from_secs(QUERY_WAIT_S);
        let slow = || Failure::later("overloaded", format!("the query has waited {QUERY_WAIT_S} s for others"));
        let turn = tokio::time::timeout(wait, self.turns.acquire()).await;
        turn.ok().and_then(Result::ok).ok_or_else(slow)
    }

    /// Pins the rows of a tenant.
    pub async fn pin(&self, tenant: &str, hours: HourRange) -> Result<Pinned, Failure> {
        let _permit = self.pins.acquire().await.ok();
        self.queries.source.pin(tenant, hours).await.map_err(|failure| match failure {
            PinFailure::Overloaded => Failure::later("overloaded", failure),
            PinFailure::Ended => Failure::later("not_serving", failure),
            PinFailure::Stale(_) => Failure::later("feed_stale", failure),
            PinFailure::Refused(error) => refused(error),
        })
    }
}

/// A query has waited too long to read blobs.
pub fn waited(error: &FetchError) -> Failure {
    Failure::later("overloaded", error)
}

/// Why the owner gives nothing.
pub fn refused(error: crate::messages::PinError) -> Failure {
    use crate::messages::PinError;
    match error {
        PinError::Rows(_) => Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "query_failed", error),
        PinError::Gap { .. } | PinError::NotServing(_) => Failure::later("not_serving", error),
    }
}

/// Whether a query with a missing blob may be pinned again: a merge has replaced the blob, and its file was removed meanwhile.
pub async fn may_pin_again(queries: &Queries, pinned: &Pinned, error: &DirectoryError, tries: u32) -> bool {
    if !is_missing(error) || tries >= queries.source.pins_again_max() {
        return false;
    }
    queries.stores.counters.blobs_gone.add(1);
    queries.source.has_successor_of(pinned).await
}

/// A blob cannot be read. A process that follows may see the folder at another time than the manifest.
pub fn unreadable(queries: &Queries, error: &DirectoryError, message: String) -> Failure {
    match queries.source.is_follower() && is_missing(error) {
        true => Failure::later("blob_gone", message),
        false => Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "blob_failed", message),
    }
}

fn is_missing(error: &DirectoryError) -> bool {
    matches!(error, DirectoryError::Read(ReadError::Missing { .. }))
}
