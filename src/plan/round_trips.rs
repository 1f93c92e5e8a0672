//! The matrix of round trips: a CSV with sites as header and as first column, in milliseconds. A pair that is missing, empty, not a number
//! or absurd is an error that names its row and column. A hole that is read as zero would quietly make a far data centre the ledger's best
//! leader.

use super::PlanError;

/// A round trip longer than this is a mistake in the file, not a network.
pub const ROUND_TRIP_MS_MAX: f64 = 10_000.0;

/// Round trips in milliseconds between sites.
#[derive(Clone, Debug, PartialEq)]
pub struct RoundTrips {
    sites: Vec<String>,
    ms: Vec<Vec<f64>>,
}

impl RoundTrips {
    /// Reads a matrix; its rows may stand in any order.
    ///
    /// # Errors
    /// [`PlanError`] for a site named twice, a row that is missing or unknown, and a cell that is empty, not a number, negative or above
    /// [`ROUND_TRIP_MS_MAX`].
    pub fn parse(text: &str) -> Result<Self, PlanError> {
        let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let sites = parse_header(lines.next().unwrap_or_default())?;
        let mut rows: Vec<Option<Vec<f64>>> = vec![None; sites.len()];
        for line in lines {
            let (name, cells) = line.split_once(',').unwrap_or((line, ""));
            let row = find(&sites, name).ok_or_else(|| PlanError::UnknownRow { row: name.to_owned() })?;
            if rows[row].is_some() {
                return Err(PlanError::DuplicateSite { site: name.to_owned() });
            }
            rows[row] = Some(parse_row(&sites, name, cells)?);
        }
        let ms = rows.into_iter().zip(&sites).map(|(row, site)| row_or_missing(row, site)).collect::<Result<_, _>>()?;
        Ok(Self { sites, ms })
    }

    /// The square matrix of round trips between `chosen`, in their order; `[from][to]`.
    ///
    /// # Errors
    /// [`PlanError::UnknownSite`] for a data centre with a site that is not in the file.
    pub fn between<'a>(&self, chosen: impl Iterator<Item = (&'a str, &'a str)>) -> Result<Vec<Vec<f64>>, PlanError> {
        let unknown = |dc: &str, site: &str| PlanError::UnknownSite { dc: dc.to_owned(), site: site.to_owned() };
        let indices = chosen
            .map(|(dc, site)| find(&self.sites, site).ok_or_else(|| unknown(dc, site)))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(indices.iter().map(|&from| indices.iter().map(|&to| self.ms[from][to]).collect()).collect())
    }
}

fn find(sites: &[String], name: &str) -> Option<usize> {
    sites.iter().position(|site| site == name)
}

fn parse_header(line: &str) -> Result<Vec<String>, PlanError> {
    let sites: Vec<String> = line.split(',').skip(1).map(|name| name.trim().to_owned()).collect();
    if sites.is_empty() {
        return Err(PlanError::NoHeader);
    }
    match sites.iter().enumerate().find(|(at, site)| find(&sites, site) != Some(*at)) {
        Some((_, site)) => Err(PlanError::DuplicateSite { site: site.clone() }),
        None => Ok(sites),
    }
}

fn parse_row(sites: &[String], row: &str, cells: &str) -> Result<Vec<f64>, PlanError> {
    let cells: Vec<&str> = cells.split(',').map(str::trim).collect();
    if cells.len() > sites.len() {
        return Err(PlanError::LongRow { row: row.to_owned(), cells: cells.len(), max: sites.len() });
    }
    let cell = |(column, site): (usize, &String)| parse_cell(row, site, cells.get(column).copied().unwrap_or(""));
    sites.iter().enumerate().map(cell).collect()
}

fn parse_cell(row: &str, column: &str, text: &str) -> Result<f64, PlanError> {
    let row = row.to_owned();
    let column = column.to_owned();
    if text.is_empty() {
        return Err(PlanError::RoundTripHole { row, column });
    }
    match text.parse::<f64>() {
        Ok(ms) if (0.0..=ROUND_TRIP_MS_MAX).contains(&ms) => Ok(ms),
        _ => Err(PlanError::RoundTripValue { row, column, text: text.to_owned(), max: ROUND_TRIP_MS_MAX }),
    }
}

fn row_or_missing(row: Option<Vec<f64>>, site: &str) -> Result<Vec<f64>, PlanError> {
    row.ok_or_else(|| PlanError::MissingRow { row: site.to_owned() })
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub const REFERENCE: &str = include_str!("../../deploy/reference/rtt_ms.csv");

    fn error_of(text: &str) -> String {
        RoundTrips::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn rows_stand_in_any_order() {
        let trips = RoundTrips::parse("ms,a,b\nb,2,0.3\na,0.3,1\n").unwrap();
        let matrix = trips.between([("x", "b"), ("y", "a")].into_iter()).unwrap();
        assert_eq!(matrix, [[0.3, 2.0], [1.0, 0.3]]);
    }

    #[test]
    fn a_hole_is_named_by_row_and_column() {
        assert_eq!(error_of("ms,a,b\na,0,\nb,1,0"), "the round trip from a to b is missing");
        assert_eq!(error_of("ms,a,b\na,0,1\nb,1"), "the round trip from b to b is missing");
        assert_eq!(error_of("ms,a,b\na,0,1"), "the round trips from b are missing: the file has a column but no row b");
    }

    #[test]
    fn values_that_no_network_has_are_refused() {
        for text in ["-1", "NaN", "inf", "10001", "fast"] {
            let message = error_of(&format!("ms,a,b\na,0,{text}\nb,1,0"));
            assert_eq!(message, format!("the round trip from a to b is {text}; it must be 0 to 10000 ms"));
        }
    }

    #[test]
    fn shapes_that_are_not_a_square_are_refused() {
        assert!(error_of("").contains("no header"));
        assert!(error_of("ms,a,a\na,0,0").contains("site a stands twice"));
        assert!(error_of("ms,a\na,0\na,0").contains("site a stands twice"));
        assert!(error_of("ms,a\nz,0").contains("row z"));
        assert!(error_of("ms,a\na,0,1").contains("row a has 2 values; the header has 1"));
    }

    #[test]
    fn a_site_that_the_file_lacks_is_named_with_its_data_centre() {
        let trips = RoundTrips::parse(REFERENCE).unwrap();
        let message = trips.between([("usa-9", "us-xx")].into_iter()).unwrap_err().to_string();
        assert_eq!(message, "data centre usa-9 stands at site us-xx, which the round-trip file does not have");
    }
}
