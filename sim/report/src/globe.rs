//! Locations of data centres without measured distances: sites drawn inside the four regions of the reference layout, with round trips
//! along great circles, calibrated on the measured ones.

use tidemark_sim::rng::Rng;
use tidemark_sim::rtt::RTT_US;

/// A place on the globe, in degrees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Place {
    pub latitude: f64,
    pub longitude: f64,
}

/// The reference sites, in the order of [`tidemark_sim::rtt::SITES`].
pub const REFERENCE: [Place; 15] = [
    place(33.06, -80.04),
    place(41.22, -95.86),
    place(33.75, -84.58),
    place(34.91, -85.75),
    place(35.9, -81.55),
    place(36.24, -95.33),
    place(36.62, -87.26),
    place(45.63, -121.2),
    place(53.32, -6.44),
    place(53.43, 6.86),
    place(60.54, 27.12),
    place(50.47, 3.87),
    place(24.14, 120.43),
    place(1.34, 103.71),
    place(-33.36, -70.7),
];

/// A region, and what of all data centres and of all increments is its own, in percent: those of the reference layout.
#[derive(Clone, Copy, Debug)]
pub struct Region {
    pub rate_percent: u64,
    centres_of_15: usize,
    south_west: Place,
    north_east: Place,
}

/// The USA, Europe, Asia, South America.
pub const REGIONS: [Region; 4] = [
    region(40, 8, place(29.0, -122.0), place(47.0, -75.0)),
    region(30, 4, place(38.0, -8.0), place(60.0, 25.0)),
    region(20, 2, place(1.0, 75.0), place(40.0, 140.0)),
    region(10, 1, place(-35.0, -72.0), place(5.0, -38.0)),
];

/// The region of each reference site.
pub const REGION_OF: [usize; 15] = [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 3];

const EARTH_RADIUS_KM: f64 = 6_371.0;
/// No round trip between two sites is shorter, however near they are.
const RTT_US_MIN: f64 = 1_000.0;
/// Round trips are told in steps of this, as measured ones are, so that the last bit of a cosine does not matter.
const RTT_US_STEP: f64 = 100.0;

const fn place(latitude: f64, longitude: f64) -> Place {
    Place { latitude, longitude }
}

const fn region(rate_percent: u64, centres_of_15: usize, south_west: Place, north_east: Place) -> Region {
    Region { rate_percent, centres_of_15, south_west, north_east }
}

/// Kilometres along the great circle.
pub fn distance_km(a: Place, b: Place) -> f64 {
    let lat_a = a.latitude.to_radians();
    let lat_b = b.latitude.to_radians();
    let north = lat_b - lat_a;
    let east = (b.longitude - a.longitude).to_radians();
    let half = (north / 2.0).sin().powi(2) + lat_a.cos() * lat_b.cos() * (east / 2.0).sin().powi(2);
    2.0 * EARTH_RADIUS_KM * half.sqrt().min(1.0).asin()
}

/// Round trip as a straight line over distance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Calibration {
    pub base_us: f64,
    pub us_per_km: f64,
    /// The part of the measured round trips' variance that the line explains.
    pub explained: f64,
}

impl Calibration {
    /// Least squares over all pairs of reference sites.
    pub fn of_reference() -> Calibration {
        let pairs = || (0..15).flat_map(|a| (a + 1..15).map(move |b| (a, b)));
        let points: Vec<(f64, f64)> =
            pairs().map(|(a, b)| (distance_km(REFERENCE[a], REFERENCE[b]), f64::from(RTT_US[a][b]))).collect();
        let n = points.len() as f64;
        let mean = |of: &dyn Fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / n;
        let km = mean(&|p| p.0);
        let us = mean(&|p| p.1);
        let both = mean(&|p| (p.0 - km) * (p.1 - us));
        let of_km = mean(&|p| (p.0 - km).powi(2));
        let of_us = mean(&|p| (p.1 - us).powi(2));
        let us_per_km = both / of_km;
        Calibration { base_us: us - us_per_km * km, us_per_km, explained: both * both / (of_km * of_us) }
    }

    pub fn rtt_us(&self, a: Place, b: Place) -> u32 {
        let us = (self.base_us + self.us_per_km * distance_km(a, b)).max(RTT_US_MIN);
        ((us / RTT_US_STEP).round() * RTT_US_STEP) as u32
    }
}

/// This number of sites, each with its region, in the reference layout's proportion of regions.
pub fn sites(centres: usize, rng: &mut Rng) -> Vec<(usize, Place)> {
    let mut sites = Vec::with_capacity(centres);
    let mut before = 0;
    for (index, region) in REGIONS.iter().enumerate() {
        let upto = REGIONS[..=index].iter().map(|region| region.centres_of_15).sum::<usize>() * centres / 15;
        sites.extend((before..upto).map(|_| (index, region.draw(rng))));
        before = upto;
    }
    sites
}

impl Region {
    fn draw(&self, rng: &mut Rng) -> Place {
        let low = self.south_west;
        let high = self.north_east;
        let latitude = low.latitude + rng.unit() * (high.latitude - low.latitude);
        let longitude = low.longitude + rng.unit() * (high.longitude - low.longitude);
        place(latitude, longitude)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_near_what_was_measured_and_never_faster_than_light() {
        let line = Calibration::of_reference();
        assert!(line.explained > 0.8, "{line:?}");
        // Light in fibre takes 10 µs per km there and back.
        assert!(line.us_per_km > 10.0 && line.base_us > 0.0, "{line:?}");
        let off = |a: usize, b: usize| f64::from(line.rtt_us(REFERENCE[a], REFERENCE[b])) / f64::from(RTT_US[a][b]);
        // Across an ocean cables go nearly straight; from Ireland to Taiwan they go around.
        assert!((0.8..1.25).contains(&off(1, 9)) && (0.5..1.0).contains(&off(8, 12)), "{line:?}");
    }

    #[test]
    fn regions_keep_their_proportion() {
        let of = |centres| {
            let sites = sites(centres, &mut Rng::new(1));
            [0, 1, 2, 3].map(|region| sites.iter().filter(|site| site.0 == region).count())
        };
        assert_eq!((of(15), of(200)), ([8, 4, 2, 1], [106, 54, 26, 14]));
    }
}
