//! Events that name no tenant: the catalogue gives the tenant of each listing when the event is taken.
//!
//! A listing that the catalogue does not know becomes a dead letter. Its text has all that a later replay needs, also the time at which the
//! event arrived.

use serde_json::{Map, Value};
use std::fmt::Display;
use tidemark_proto::series::UnixTime;
use tidemark_proto::series::calendar::Zone;
use tidemark_streams_core::event::RawEvent;
use tidemark_streams_core::values::DimensionNames;

/// The catalogue.
pub trait Tenants {
    /// The tenant of a listing, if the catalogue knows the listing.
    ///
    /// # Errors
    /// The catalogue cannot be read.
    fn tenant_of(&self, listing: &str) -> Result<Option<String>, LookupFailed>;
}

/// The catalogue cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the catalogue of listings cannot be read: {0}")]
pub struct LookupFailed(pub String);

/// The reason of a dead letter. It begins with a code that stays the same.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("listing_unknown: the catalogue has no tenant for listing {listing:?}: add the listing, and {next}")]
pub struct ListingUnknown {
    pub listing: String,
    /// What to do next.
    pub next: &'static str,
}

impl ListingUnknown {
    pub fn new(listing: &str) -> ListingUnknown {
        ListingUnknown { listing: listing.to_owned(), next: "replay this dead letter" }
    }

    /// Of a page whose text does not fit into a dead letter.
    pub fn of_long_page(listing: &str) -> ListingUnknown {
        let next = "send the event again: it is too long to be replayed";
        ListingUnknown { listing: listing.to_owned(), next }
    }
}

/// A catalogue without entries.
#[derive(Clone, Copy, Debug)]
pub struct NoTenants;

impl Tenants for NoTenants {
    fn tenant_of(&self, _: &str) -> Result<Option<String>, LookupFailed> {
        Ok(None)
    }
}

impl LookupFailed {
    pub fn new(error: impl Display) -> LookupFailed {
        LookupFailed(error.to_string())
    }
}

/// The text of a dead letter: the JSON of an event without a tenant.
pub fn text_without_tenant(event: &RawEvent<'_>, dimensions: &DimensionNames) -> String {
    Value::Object(object(event, dimensions, ("listing", Value::from(event.listing)))).to_string()
}

/// The same of a page, which one event id names.
pub(crate) fn text_of_page(
    event: &RawEvent<'_>,
    dimensions: &DimensionNames,
    listings: impl Iterator<Item = String>,
    event_id: &str,
) -> String {
    let mut object = object(event, dimensions, ("listings", listings.collect()));
    object.insert("event_id".to_owned(), Value::from(event_id));
    Value::Object(object).to_string()
}

fn object(event: &RawEvent<'_>, dimensions: &DimensionNames, listings: (&str, Value)) -> Map<String, Value> {
    // A text, because a number may read as a date. What is no time stays as it is, and a replay refuses it.
    let at = match UnixTime::from_s(event.at_s) {
        Ok(at) => Value::from(Zone::UTC.text(at)),
        Err(_) => Value::from(event.at_s),
    };
    let named = [listings, ("at", at), ("type", Value::from(event.event_type)), ("n", Value::from(event.count))];
    let values = event.values.iter().map(|(dimension, value)| (dimensions.name(dimension), Value::from(value)));
    named.into_iter().chain(values).map(|(name, value)| (name.to_owned(), value)).collect()
}
