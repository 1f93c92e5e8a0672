//! Locations of data centres: the name that people use, and the coordinates. Those of the reference layout are the sites of the measured
//! round trips.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

const REFERENCE_SITES: &str = include_str!("../../deploy/reference/rtt_sites.csv");

/// Degrees from the equator, at most.
pub const LATITUDE_MAX: f64 = 90.0;
/// Degrees from Greenwich, at most.
pub const LONGITUDE_MAX: f64 = 180.0;

/// A place on the globe.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Place {
    /// As a person would say it: `Dublin, Ireland`.
    pub name: String,
    /// Degrees north, -90 to 90.
    pub latitude: f64,
    /// Degrees east, -180 to 180.
    pub longitude: f64,
}

/// The places of the reference sites, by their codes.
pub fn reference_sites() -> BTreeMap<String, Place> {
    REFERENCE_SITES.lines().skip(1).filter_map(site).collect()
}

/// `code,place,latitude,longitude,…`, the place in quotes where it has commas.
fn site(line: &str) -> Option<(String, Place)> {
    let (code, rest) = line.split_once(',')?;
    let (name, rest) = match rest.strip_prefix('"') {
        Some(quoted) => quoted.split_once("\",")?,
        None => rest.split_once(',')?,
    };
    let mut numbers = rest.split(',').map(|text| text.parse().ok());
    let latitude = numbers.next()??;
    let longitude = numbers.next()??;
    Some((code.to_owned(), Place { name: name.to_owned(), latitude, longitude }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reference_site_has_a_place_on_the_globe() {
        let sites = reference_sites();
        assert_eq!(sites.len(), REFERENCE_SITES.lines().count() - 1);
        let dublin = Place { name: "Dublin, Ireland".to_owned(), latitude: 53.32, longitude: -6.44 };
        assert_eq!((&sites["eu-ie"], sites["as-sg"].name.as_str()), (&dublin, "Singapore"));
        let on_globe = |place: &Place| place.latitude.abs() <= LATITUDE_MAX && place.longitude.abs() <= LONGITUDE_MAX;
        assert!(sites.values().all(on_globe));
    }
}
