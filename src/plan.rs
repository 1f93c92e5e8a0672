//! `tidemark plan`: what a cluster of given rates, data centres, round trips and prices will need.
//!
//! Everything but [`run`] is a pure function of two texts, the plan file and the matrix of round trips. The result is
//! arithmetic on stated inputs, not a measurement: replace the file's `[node]` figures by your own before buying.

mod capacity;
mod input;
mod report;
mod round_trips;
mod voters;

use std::io::Read;
use std::path::{Path, PathBuf};

use thiserror::Error;

pub use capacity::{Plan, electorate};
pub use input::PlanFile;
pub use round_trips::RoundTrips;
pub use voters::{Choice, Electorate, Rule, best_leader, choose_voters, zone};

/// Both input files are small; anything longer is not one of them.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Why there is no plan. Nothing was changed.
#[derive(Debug, Error)]
pub enum PlanError {
    #[error("cannot read {path}: {source}")]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{path} is longer than {max} bytes")]
    TooLong { path: PathBuf, max: u64 },
    #[error("the plan file does not parse: {message}")]
    Toml { message: String },
    #[error("{name} is {value}; it must be {min} to {max}")]
    OutOfRange { name: String, value: f64, min: f64, max: f64 },
    #[error("ledger.voters is {voters}; it must be 1, 3, 5 or 7")]
    VoterCount { voters: u32 },
    #[error("two regions are named {name}")]
    DuplicateRegion { name: String },
    #[error("region {name} has no data centre")]
    EmptyRegion { name: String },
    #[error("the shares of the regions add up to {sum:.4}; they must add up to 1")]
    Shares { sum: f64 },
    #[error("two data centres are named {name}")]
    DuplicateDc { name: String },
    #[error("data centre {dc} stands in region {region}, which has no [[region]]")]
    MissingRegion { dc: String, region: String },
    #[error("data centre {dc} stands at site {site}, which the round-trip file does not have")]
    UnknownSite { dc: String, site: String },
    #[error("the round-trip file has no header of sites")]
    NoHeader,
    #[error("site {site} stands twice in the round-trip file")]
    DuplicateSite { site: String },
    #[error("the round-trip file has a row {row} but no column of that name")]
    UnknownRow { row: String },
    #[error("the round trips from {row} are missing: the file has a column but no row {row}")]
    MissingRow { row: String },
    #[error("row {row} has {cells} values; the header has {max}")]
    LongRow { row: String, cells: usize, max: usize },
    #[error("the round trip from {row} to {column} is missing")]
    RoundTripHole { row: String, column: String },
    #[error("the round trip from {row} to {column} is {text}; it must be 0 to {max} ms")]
    RoundTripValue { row: String, column: String, text: String, max: f64 },
    #[error("ledger.fixed_voters names {name}, which is no data centre or is listed twice")]
    FixedVoter { name: String },
    #[error("ledger.fixed_voters has {found} names; ledger.voters is {voters}")]
    FixedVoterCount { found: usize, voters: usize },
    #[error("no {voters} of the {dcs} data centres satisfy the rule for the ledger: {rule}")]
    NoVoters { voters: usize, dcs: usize, rule: String },
}

/// Plans for the file at `path` and renders it, as a table or as one line of JSON.
///
/// # Errors
/// A [`PlanError`] that names what is wrong with the file or its round trips.
pub fn run(path: &Path, json: bool) -> Result<String, PlanError> {
    let file = PlanFile::parse(&read(path)?)?;
    let matrix = path.parent().unwrap_or(Path::new("")).join(&file.round_trips);
    let trips = RoundTrips::parse(&read(&matrix)?)?;
    let plan = Plan::new(&file, &trips)?;
    Ok(if json { report::json(&plan) } else { report::table(&plan) })
}

fn read(path: &Path) -> Result<String, PlanError> {
    let failed = |source| PlanError::Read { path: path.to_owned(), source };
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(PlanError::TooLong { path: path.to_owned(), max: FILE_BYTES_MAX });
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/plan.toml")
    }

    #[test]
    fn the_sample_gives_a_table_and_json() {
        let table = run(&sample(), false).unwrap();
        assert!(table.contains("1,200 B"), "{table}");
        let json: serde_json::Value = serde_json::from_str(&run(&sample(), true).unwrap()).unwrap();
        assert_eq!(json["valves"], 150);
        assert_eq!(json["counter_state_bytes"], 1_200);
    }

    #[test]
    fn a_file_that_cannot_be_read_is_named() {
        let message = run(Path::new("no/such/plan.toml"), false).unwrap_err().to_string();
        assert!(message.starts_with("cannot read no/such/plan.toml: "), "{message}");
    }

    #[test]
    fn a_file_of_another_kind_is_refused_before_it_is_read_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plan.toml");
        std::fs::write(&path, "#".repeat(FILE_BYTES_MAX as usize + 1)).unwrap();
        assert!(matches!(run(&path, false), Err(PlanError::TooLong { max: FILE_BYTES_MAX, .. })));
    }

    #[test]
    fn round_trips_with_a_hole_are_named_through_the_whole_way() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plan.toml");
        std::fs::write(&path, input::tests::SAMPLE).unwrap();
        std::fs::create_dir(folder.path().join("reference")).unwrap();
        let holed = round_trips::tests::REFERENCE.replacen("38.6,0.3", ",0.3", 1);
        std::fs::write(folder.path().join("reference/rtt_ms.csv"), holed).unwrap();
        let message = run(&path, false).unwrap_err().to_string();
        assert_eq!(message, "the round trip from us-ia to us-sc is missing");
    }
}
