//! The home data centre of each country (ISO 3166-1, two letters), from a table. Where a country's home is not in the layout, the data
//! centre that is nearest to it, by the reference round trips, is.

use crate::layout::{Layout, LayoutError};
use serde::Serialize;

const COUNTRIES: &str = include_str!("../../deploy/reference/countries.csv");
const HEADER: &str = "code,name,home";

/// A country and the index of its home in the layout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Country {
    pub code: String,
    pub name: String,
    pub home: usize,
}

/// Why a table of countries is none.
#[derive(Debug, thiserror::Error)]
pub enum CountriesError {
    #[error("countries, line {line}: {reason}")]
    Line { line: usize, reason: String },
    #[error(transparent)]
    Layout(#[from] LayoutError),
}

/// The reference table for a layout, by names.
pub fn homes(layout: &Layout) -> Result<Vec<Country>, CountriesError> {
    parse(COUNTRIES, layout, &Layout::reference()?)
}

fn parse(text: &str, layout: &Layout, reference: &Layout) -> Result<Vec<Country>, CountriesError> {
    let mut countries: Vec<Country> = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let refused = |reason: String| CountriesError::Line { line: at + 1, reason };
        if at == 0 {
            match line == HEADER {
                true => continue,
                false => return Err(refused(format!("{HEADER} expected"))),
            }
        }
        let [code, name, home] = line.split(',').collect::<Vec<_>>()[..] else {
            return Err(refused("three fields expected".to_owned()));
        };
        if code.len() != 2 || !code.bytes().all(|byte| byte.is_ascii_uppercase()) {
            return Err(refused(format!("{code:?} is no country's code: two capital letters expected")));
        }
        if countries.iter().any(|country| country.code == code) {
            return Err(refused(format!("{code} is named twice")));
        }
        let home = reference.index_of(home).ok_or_else(|| refused(format!("there is no data centre {home:?}")))?;
        countries.push(Country {
            code: code.to_owned(),
            name: name.to_owned(),
            home: nearest(home, layout, reference),
        });
    }
    countries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(countries)
}

/// The layout's data centre that is nearest to one of the reference layout; itself, if it is there.
fn nearest(home: usize, layout: &Layout, reference: &Layout) -> usize {
    let distance = |dc: &usize| match reference.index_of(&layout.dcs[*dc].name) {
        Some(same) if same == home => -1.0,
        Some(other) => reference.rtt_ms[home][other],
        None => f64::INFINITY,
    };
    (0..layout.dcs.len()).min_by(|a, b| distance(a).total_cmp(&distance(b))).unwrap_or(layout.leader)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home(layout: &Layout, code: &str) -> String {
        let countries = homes(layout).unwrap();
        layout.dcs[countries.iter().find(|country| country.code == code).unwrap().home].name.clone()
    }

    #[test]
    fn every_country_has_a_home_and_the_nearest_one_where_that_is_not_there() {
        let reference = Layout::reference().unwrap();
        assert_eq!(homes(&reference).unwrap().len(), 249);
        assert_eq!([home(&reference, "FI"), home(&reference, "JP")], ["europe-2", "asia-0"]);
        let part = Layout::part(&["usa-1", "europe-1", "asia-1"]).unwrap();
        assert_eq!([home(&part, "FI"), home(&part, "JP"), home(&part, "BR")], ["europe-1", "asia-1", "usa-1"]);
        assert_eq!(home(&Layout::single(), "FI"), "local-0");
    }

    #[test]
    fn a_table_with_holes_is_refused_with_its_line() {
        let reference = Layout::reference().unwrap();
        let refused = |text: &str| parse(text, &reference, &reference).unwrap_err().to_string();
        assert_eq!(refused("a,b"), "countries, line 1: code,name,home expected");
        assert_eq!(refused("code,name,home\nFI,Finland"), "countries, line 2: three fields expected");
        assert!(refused("code,name,home\nfi,Finland,europe-2").contains("two capital letters"));
        assert!(refused("code,name,home\nFI,Finland,mars-0").contains("mars-0"));
        assert!(refused("code,name,home\nFI,Finland,europe-2\nFI,Finland,europe-2").contains("FI is named twice"));
    }
}
