//! Extracts of real files: what is loaded is what DuckDB counts for each tenant, listing and hour, and what it finds unfit is a dead letter.

mod duckdb;
#[allow(dead_code, reason = "the tests of the server use the rest")]
mod serving;

use duckdb::{must, python};
use serde_json::{Value, json};
use serving::{Place, Server};
use std::collections::BTreeMap;
use std::process::Command;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/real-files");
/// A zone of :45, and one of :30 that had moved its clock in May and had moved it back in November.
const ZONES: [&str; 2] = ["Asia/Kathmandu", "America/St_Johns"];
const ROWS: u64 = 10_000;

/// By tenant, and there by hour and listing, such as "2019-11-24T05 14".
type Counts = BTreeMap<String, BTreeMap<String, u64>>;

/// A file, and which of its columns is what.
struct Loaded {
    file: &'static str,
    event_type: &'static str,
    tenant: &'static str,
    listing: &'static str,
    at: &'static str,
    /// A column, or a number.
    count: &'static str,
}

/// What DuckDB says.
struct Expected {
    letters: BTreeMap<String, u64>,
    zones: BTreeMap<String, Counts>,
}

impl Loaded {
    fn path(&self) -> String {
        format!("{FOLDER}/{}", self.file)
    }

    /// What DuckDB counts.
    fn expected(&self) -> Expected {
        let Loaded { tenant, listing, at, count, .. } = self;
        let mut script = Command::new(python());
        script.arg(format!("{FOLDER}/count.py")).arg(self.path()).args([tenant, listing, at, count]).args(ZONES);
        let mut said: Value = serde_json::from_str(&must(&mut script)).unwrap();
        let letters = serde_json::from_value(said["letters"].take()).unwrap();
        Expected { letters, zones: serde_json::from_value(said["zones"].take()).unwrap() }
    }

    /// Loads the file, and compares the number of rows that count.
    fn load(&self, place: &Place, expected: &Expected) {
        let Loaded { event_type, tenant, listing, at, count, .. } = self;
        let mut map = format!("tenant={tenant},listing={listing},at={at}");
        if count.parse::<u64>().is_err() {
            map += &format!(",n={count}");
        }
        let said = place.said(&["load", &self.path(), "--map", &map, "--type", event_type]);
        let letters = expected.letters.values().sum::<u64>();
        let ending = format!(": {ROWS} rows: {} counted, {letters} dead letters\n", ROWS - letters);
        assert!(said.ends_with(&ending), "{said}");
    }

    /// Compares each count of a server with those of DuckDB.
    fn compare(&self, server: &Server, expected: &Expected) {
        for (zone, tenants) in &expected.zones {
            for (tenant, counts) in tenants {
                let found = asked(server, tenant, self.event_type, zone);
                assert_eq!(&found, counts, "{} of {tenant} by the clock of {zone}", self.event_type);
            }
        }
    }
}

/// The counts of a tenant by hour and listing.
fn asked(server: &Server, tenant: &str, event_type: &str, zone: &str) -> BTreeMap<String, u64> {
    let query = json!({
        "tenant": tenant, "from": "2015-01-01", "to": "2020-01-01", "zone": zone, "types": [event_type],
        "dimensions": ["hour", "listing"], "limit": 100_000,
    });
    let answer = server.post("/v1/impressions/query", query.to_string());
    assert_eq!(answer.status, 200, "{answer:?}");
    let answer = answer.json();
    assert_eq!(answer["more"], json!(false), "{tenant}");
    let mut counts = BTreeMap::new();
    for row in answer["rows"].as_array().unwrap() {
        let hour = &row["hour"].as_str().unwrap()[..13];
        let key = format!("{hour} {}", row["listing"].as_str().unwrap());
        *counts.entry(key).or_default() += row["n"].as_u64().unwrap();
    }
    counts
}

/// Sums by hour, or by listing.
fn sums(counts: &BTreeMap<String, u64>, by: &str) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for (key, n) in counts {
        let (hour, listing) = key.split_once(' ').unwrap();
        *sums.entry(if by == "hour" { hour } else { listing }.to_owned()).or_default() += n;
    }
    sums
}

/// The same as the command `query` prints them.
fn queried(place: &Place, tenant: &str, event_type: &str, by: &str, zone: &str) -> BTreeMap<String, u64> {
    let said = place.said(&["query", tenant, "--type", event_type, "--by", by, "--zone", zone]);
    let mut counts = BTreeMap::new();
    for line in said.lines() {
        let (label, n) = line.split_once('\t').unwrap();
        let label = if by == "hour" { &label[..13] } else { label };
        *counts.entry(label.to_owned()).or_default() += n.parse::<u64>().unwrap();
    }
    counts
}

#[test]
fn impressions_and_clicks_are_counted_as_duckdb_counts_them() {
    const IMPRESSIONS: Loaded = Loaded {
        file: "impressions.csv.gz",
        event_type: "impression",
        tenant: "position",
        listing: "item_id",
        at: "timestamp",
        count: "1",
    };
    const CLICKS: Loaded = Loaded { event_type: "click", count: "click", ..IMPRESSIONS };
    let place = Place::new();
    let files = [IMPRESSIONS, CLICKS].map(|file| {
        let expected = file.expected();
        file.load(&place, &expected);
        (file, expected)
    });
    for (file, expected) in &files {
        assert!(expected.letters.is_empty());
        assert_eq!(expected.zones["Asia/Kathmandu"].len(), 3);
        for (zone, tenants) in &expected.zones {
            for (tenant, counts) in tenants {
                for by in ["hour", "listing"] {
                    let found = queried(&place, tenant, file.event_type, by, zone);
                    assert_eq!(found, sums(counts, by), "{by}s of {tenant} by the clock of {zone}");
                }
            }
        }
    }
    assert!(place.said(&["audit"]).ends_with(" count 10038\n"));
    let server = Server::start(&place.dir(), &[]);
    files.iter().for_each(|(file, expected)| file.compare(&server, expected));
}

#[test]
fn visits_that_cannot_count_are_dead_letters_by_reason() {
    const VISITS: Loaded = Loaded {
        file: "visits.csv.gz",
        event_type: "impression",
        tenant: "path",
        listing: "referrer",
        at: "at",
        count: "bytes",
    };
    let place = Place::new();
    let expected = VISITS.expected();
    VISITS.load(&place, &expected);
    let mut letters: BTreeMap<String, u64> = BTreeMap::new();
    for line in place.said(&["dead-letters", "list"]).lines() {
        let letter: Value = serde_json::from_str(line).unwrap();
        let reason = letter["reason"].as_str().unwrap();
        let long = |field: &str, max: u64| {
            let is_it = reason.starts_with(&format!("{field} has ")) && reason.ends_with(&format!(": at most {max}"));
            is_it.then(|| format!("{field} has more than {max} bytes"))
        };
        let reason = long("tenant", 128).or(long("listing", 255)).unwrap_or_else(|| reason.to_owned());
        *letters.entry(reason).or_default() += 1;
    }
    assert_eq!(letters, expected.letters);
    assert_eq!(letters.len(), 4, "{letters:?}");
    let sum: u64 = expected.zones["Asia/Kathmandu"].values().flat_map(BTreeMap::values).sum();
    assert!(place.said(&["audit"]).ends_with(&format!(" count {sum}\n")));
    VISITS.compare(&Server::start(&place.dir(), &[]), &expected);
}
