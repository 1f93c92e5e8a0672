//! Events without a tenant: the catalogue gives the tenant of each listing.
//!
//! A page is split into an event for each tenant, and a dead letter for each unknown listing. An event with an `event_id` stays whole: the
//! id names one event of one tenant. A later page with the same id would otherwise count listings twice, which became known meanwhile.

use super::{EventRefused, Read, ReadError, Rules, Split, Unknown, key};
use crate::entry::{Listings, ValidEvent, parsed};
use crate::listings::{ListingUnknown, text_of_page, text_without_tenant};
use std::borrow::Cow;
use std::collections::BTreeMap;
use tidemark_streams_core::event::RawEvent;
use tidemark_streams_core::limits::DEAD_LETTER_TEXT_BYTES_MAX;

/// The listings of an event by what the catalogue knows.
#[derive(Default)]
struct Sorted<'a> {
    by_tenant: BTreeMap<String, Vec<Cow<'a, str>>>,
    unknown: Vec<Cow<'a, str>>,
}

pub fn by_tenant<'a>(
    event: ValidEvent<'a>,
    event_id: Option<Cow<'a, str>>,
    rules: &Rules<'_>,
) -> Result<Read<'a>, ReadError> {
    let mut sorted = Sorted::default();
    for listing in event.listings.as_slice() {
        match rules.tenants.tenant_of(listing)? {
            Some(tenant) => sorted.by_tenant.entry(tenant).or_default().push(listing.clone()),
            None => sorted.unknown.push(listing.clone()),
        }
    }
    match event_id {
        Some(id) => whole(event, sorted, &id, rules),
        None => Ok(split(event, sorted, rules)),
    }
}

/// An event with an id counts as a whole, or not at all.
fn whole<'a>(event: ValidEvent<'a>, sorted: Sorted<'a>, id: &str, rules: &Rules<'_>) -> Result<Read<'a>, ReadError> {
    let Sorted { mut by_tenant, unknown } = sorted;
    if let Some(listing) = unknown.first() {
        let listings = event.listings.as_slice().iter().map(|listing| listing.to_string());
        let text = text_of_page(&raw(&event, listing), rules.types.dimensions(), listings, id);
        let refused = match text.len() {
            ..=DEAD_LETTER_TEXT_BYTES_MAX => ListingUnknown::new(listing),
            _ => ListingUnknown::of_long_page(listing),
        };
        let unknown = vec![Unknown { refused, text, listings: event.listings.as_slice().len() }];
        return Ok(Read::Split(Split { events: Vec::new(), unknown }));
    }
    match (by_tenant.pop_first(), by_tenant.is_empty()) {
        (Some((tenant, _)), true) => {
            let id = Some(key(rules, &tenant, &event.event_type, id));
            Ok(Read::Whole(ValidEvent { tenant: tenant.into(), id, ..event }))
        }
        (Some(_) | None, _) => Err(EventRefused::ListingTenants { listings: event.listings.as_slice().len() }.into()),
    }
}

fn split<'a>(event: ValidEvent<'a>, sorted: Sorted<'a>, rules: &Rules<'_>) -> Read<'a> {
    let Sorted { by_tenant, unknown } = sorted;
    if let (Listings::One(_), Some(tenant)) = (&event.listings, by_tenant.keys().next()) {
        let tenant = tenant.clone().into();
        return Read::Whole(ValidEvent { tenant, ..event });
    }
    let letter = |listing: &Cow<'_, str>| Unknown {
        refused: ListingUnknown::new(listing),
        text: text_without_tenant(&raw(&event, listing), rules.types.dimensions()),
        listings: 1,
    };
    let unknown = unknown.iter().map(letter).collect();
    let event = ValidEvent { listings: Listings::Page(Vec::new()), ..event };
    let of_tenant = |(tenant, listings): (String, Vec<Cow<'a, str>>)| ValidEvent {
        tenant: tenant.into(),
        listings: Listings::Page(listings),
        ..event.clone()
    };
    Read::Split(Split { events: by_tenant.into_iter().map(of_tenant).collect(), unknown })
}

fn raw<'e>(event: &'e ValidEvent<'_>, listing: &'e str) -> RawEvent<'e> {
    RawEvent {
        tenant: "",
        listing,
        at_s: event.at_s,
        event_type: &event.event_type,
        count: i64::from(event.count),
        values: parsed(&event.values),
    }
}
