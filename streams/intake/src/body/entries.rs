//! Bodies with entries of the catalogue: a JSON object with a listing and its tenant in each line, or a JSON array of such objects.
//!
//! A body counts as a whole: a bad entry refuses it.

use super::json::{Elements, Id};
use crate::limits::LISTINGS_ADDED_MAX;
use serde::Deserialize;
use std::borrow::Cow;
use tidemark_streams_core::event::{EventError, check_listing, check_tenant};

/// A listing and its tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListingEntry<'a> {
    pub listing: Cow<'a, str>,
    pub tenant: Cow<'a, str>,
}

/// Why a body with entries is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntriesError {
    #[error("the body has no listings: send a JSON object in each line, or a JSON array")]
    Empty,
    #[error("the body is no JSON array: {0}")]
    Array(String),
    #[error("{entries} listings: at most {LISTINGS_ADDED_MAX} in a request")]
    TooMany { entries: usize },
    #[error("entry {entry}: {why}; an entry is such as {{\"listing\":\"1095275\",\"tenant\":\"367\"}}")]
    Json { entry: usize, why: String },
    #[error("entry {entry}: {error}")]
    Id { entry: usize, error: EventError },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Body<'a> {
    #[serde(borrow)]
    listing: Id<'a>,
    #[serde(borrow)]
    tenant: Id<'a>,
}

/// Reads a body.
///
/// # Errors
/// [`EntriesError`]: nothing of it is added.
pub fn entries(body: &[u8]) -> Result<Vec<ListingEntry<'_>>, EntriesError> {
    let texts = match body.trim_ascii_start().first() {
        None => return Err(EntriesError::Empty),
        Some(b'[') => array(body)?,
        Some(_) => body.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty()).collect(),
    };
    match texts.len() {
        0 => Err(EntriesError::Empty),
        1..=LISTINGS_ADDED_MAX => texts.iter().enumerate().map(|(at, text)| entry(at + 1, text)).collect(),
        entries => Err(EntriesError::TooMany { entries }),
    }
}

fn array(body: &[u8]) -> Result<Vec<&[u8]>, EntriesError> {
    let elements: Elements<'_> =
        serde_json::from_slice(body).map_err(|error| EntriesError::Array(error.to_string()))?;
    match elements.count {
        entries if entries > LISTINGS_ADDED_MAX => Err(EntriesError::TooMany { entries }),
        _ => Ok(elements.first.iter().map(|element| element.get().as_bytes()).collect()),
    }
}

fn entry(number: usize, text: &[u8]) -> Result<ListingEntry<'_>, EntriesError> {
    let why = |why: String| EntriesError::Json { entry: number, why };
    // The code of a derived reader takes an array for an object.
    if text.first() != Some(&b'{') {
        return Err(why("no JSON object".to_owned()));
    }
    let Body { listing: Id(listing), tenant: Id(tenant) } =
        serde_json::from_slice(text).map_err(|error| why(error.to_string()))?;
    let checked = check_tenant(&tenant).and_then(|()| check_listing(&listing));
    checked.map_err(|error| EntriesError::Id { entry: number, error })?;
    Ok(ListingEntry { listing, tenant })
}
