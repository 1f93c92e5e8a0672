//! `POST /v1/listings`: adds listings with their tenants to the catalogue.

use super::Server;
use super::answer::{Answer, Failure};
use super::events::unpacked;
use super::request;
use crate::node::Node;
use hyper::body::Incoming;
use hyper::{Request, StatusCode};
use serde_json::json;
use tidemark_consensus::storage::PersistError;
use tidemark_streams_intake::body::entries::{EntriesError, ListingEntry, entries};
use tidemark_streams_intake::limits::BODY_BYTES_MAX;
use tidemark_streams_intake::unpack::Coding;
use tidemark_streams_store::catalogue::{Added, CatalogueError};

/// Answers once the entries are durable. A refused request adds nothing.
pub async fn add(server: &Server, request: Request<Incoming>) -> Result<Answer, Failure> {
    let node = &server.node;
    // An entry is for ever, so a page of another site may not add one.
    request::check_site(request.headers())?;
    request::authorize_producer(node.settings.keys.as_ref(), request.headers())?;
    let coding = request::coding(request.headers())?;
    let busy = || Failure::later("overloaded", "too many requests add listings at a time; nothing was added");
    let _permit = server.listings.try_acquire().map_err(|_| busy())?;
    let body = request::body(request, BODY_BYTES_MAX).await?;
    // Other tasks of this thread go elsewhere meanwhile.
    let Added { added, known, version } = tokio::task::block_in_place(|| add_all(node, &body, coding))?;
    Ok(Answer::json(&json!({ "added": added, "known": known, "version": version.0 })))
}

fn add_all(node: &Node, body: &[u8], coding: Coding) -> Result<Added, Failure> {
    let unpacked = unpacked(coding, body)?;
    let entries = entries(&unpacked).map_err(|error| match error {
        EntriesError::Empty | EntriesError::Array(_) => Failure::bad("malformed_body", error),
        EntriesError::Json { .. } | EntriesError::Id { .. } => Failure::bad("listing_entry", error),
        EntriesError::TooMany { .. } => Failure::new(StatusCode::PAYLOAD_TOO_LARGE, "too_many_listings", error),
    })?;
    let named = entries.iter().map(|ListingEntry { listing, tenant }| (listing.as_ref(), tenant.as_ref()));
    node.catalogue.add(named).map_err(failure)
}

fn failure(error: CatalogueError) -> Failure {
    let message = format!("nothing was added: {error}");
    match error {
        CatalogueError::Conflict { .. } => Failure::new(StatusCode::CONFLICT, "listing_conflict", message),
        CatalogueError::Entry(_) => Failure::bad("listing_entry", message),
        CatalogueError::Persist { error: PersistError::Full(_), .. } => Failure::later("disk_full", message),
        CatalogueError::Persist { .. } | CatalogueError::Open(_) => Failure::later("catalogue_failed", message),
        CatalogueError::Damaged { .. } | CatalogueError::NoVersion { .. } => {
            Failure::later("catalogue_failed", message)
        }
    }
}
