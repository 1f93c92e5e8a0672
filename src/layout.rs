//! The layouts that the command brings up by itself: the reference cluster of 15 data centres, any part of it, and one data
//! centre alone. Rates, regions, sites and round trips are those of `deploy/plan.toml` and its matrix. Voters and leader are the
//! reference ones (in a part of it, chosen by the plan's rule). L is the plan's formula. So the demo is held to the plan.

use thiserror::Error;

use crate::plan::{
    Choice, Electorate, PlanError, PlanFile, RoundTrips, Rule, best_leader, choose_voters, electorate, zone,
};
use tidemark_server::places::{Place, reference_sites};

const PLAN: &str = include_str!("../deploy/plan.toml");
const ROUND_TRIPS_MS: &str = include_str!("../deploy/reference/rtt_ms.csv");
/// The ledger's voters in the reference layout: three regions, the leader where Σ r·RTT is least.
const REFERENCE_VOTERS: [&str; VOTERS] = ["usa-1", "usa-6", "usa-7", "europe-1", "asia-0"];
/// Voters of a cluster that is large enough.
const VOTERS: usize = 5;
/// Regions in which voters stand, where there are as many.
const VOTER_REGIONS: usize = 3;
/// The data centre of [`Layout::single`].
pub const SINGLE_DC: &str = "local-0";

/// Why there is no such layout.
#[derive(Debug, Error)]
pub enum LayoutError {
    #[error("the reference layout has no data centre {name:?}; it has {known}")]
    UnknownDc { name: String, known: String },
    #[error("data centre {0:?} is named twice")]
    DuplicateDc(String),
    #[error("no data centre is named")]
    Empty,
    #[error(transparent)]
    Plan(#[from] PlanError),
}

/// A data centre of a layout.
#[derive(Clone, Debug, PartialEq)]
pub struct LayoutDc {
    pub name: String,
    pub region: String,
    /// Of the reference sites only.
    pub place: Option<Place>,
    /// Share of the cluster's rate, 0 to 1; all add up to 1.
    pub share: f64,
}

/// Data centres with their distances, and the ledger's voters among them.
#[derive(Clone, Debug, PartialEq)]
pub struct Layout {
    pub dcs: Vec<LayoutDc>,
    /// `[from][to]`, milliseconds.
    pub rtt_ms: Vec<Vec<f64>>,
    /// Indices into `dcs`, ascending.
    pub voters: Vec<usize>,
    pub leader: usize,
    /// From the leader to the nearest voters that make a majority with it, and back.
    pub quorum_ms: f64,
}

impl Layout {
    /// All 15 data centres of the reference layout.
    pub fn reference() -> Result<Layout, LayoutError> {
        let file = PlanFile::parse(PLAN)?;
        let names: Vec<&str> = file.dcs.iter().map(|dc| dc.name.as_str()).collect();
        Layout::part(&names)
    }

    /// Some data centres of the reference layout, in the order given; shares of the rate keep their proportions.
    ///
    /// # Errors
    /// A name that is unknown or stands there twice.
    pub fn part(names: &[&str]) -> Result<Layout, LayoutError> {
        let file = PlanFile::parse(PLAN)?;
        let whole = electorate(&file, &RoundTrips::parse(ROUND_TRIPS_MS)?)?;
        let chosen = names.iter().map(|name| find(&file, name)).collect::<Result<Vec<_>, _>>()?;
        refuse_duplicates(names)?;
        let total: f64 = chosen.iter().map(|&at| whole.rate_per_s[at]).sum();
        let places = reference_sites();
        let dc = |&at: &usize| LayoutDc {
            name: file.dcs[at].name.clone(),
            region: file.dcs[at].region.clone(),
            place: places.get(&file.dcs[at].site).cloned(),
            share: whole.rate_per_s[at] / total,
        };
        let rtt_ms = chosen.iter().map(|&from| chosen.iter().map(|&to| whole.rtt_ms[from][to]).collect()).collect();
        Ok(Layout::with_voters(chosen.iter().map(dc).collect(), rtt_ms))
    }

    /// A layout with a single data centre.
    pub fn single() -> Layout {
        let dc = LayoutDc { name: SINGLE_DC.to_owned(), region: "local".to_owned(), place: None, share: 1.0 };
        Layout { dcs: vec![dc], rtt_ms: vec![vec![0.0]], voters: vec![0], leader: 0, quorum_ms: 0.0 }
    }

    /// The rates of the data centres when the whole cluster counts `rate_per_s`.
    pub fn rates(&self, rate_per_s: f64) -> Vec<f64> {
        self.dcs.iter().map(|dc| dc.share * rate_per_s).collect()
    }

    /// `L = Σ r_i · (RTT_i + q)`: increments that arrive while the decisive exchange is under way.
    pub fn zone(&self, rate_per_s: f64) -> f64 {
        zone(&self.electorate(rate_per_s), self.leader, self.quorum_ms)
    }

    /// The index of a data centre.
    pub fn index_of(&self, name: &str) -> Option<usize> {
        self.dcs.iter().position(|dc| dc.name == name)
    }

    fn with_voters(dcs: Vec<LayoutDc>, rtt_ms: Vec<Vec<f64>>) -> Layout {
        let mut layout = Layout { dcs, rtt_ms, voters: Vec::new(), leader: 0, quorum_ms: 0.0 };
        let reference: Option<Vec<usize>> = REFERENCE_VOTERS.iter().map(|name| layout.index_of(name)).collect();
        let electorate = layout.electorate(1.0);
        let choice = match reference {
            Some(mut voters) => {
                voters.sort_unstable();
                best_leader(&electorate, &voters)
            }
            None => choose(&electorate),
        };
        layout.voters = choice.voters;
        layout.leader = choice.leader;
        layout.quorum_ms = choice.quorum_ms;
        layout
    }

    fn electorate(&self, rate_per_s: f64) -> Electorate {
        let first = |region: &str| self.dcs.iter().position(|dc| dc.region == region).expect("it is one of them");
        Electorate {
            rate_per_s: self.rates(rate_per_s),
            region: self.dcs.iter().map(|dc| first(&dc.region)).collect(),
            rtt_ms: self.rtt_ms.clone(),
        }
    }
}

/// The plan's rule as far as the data centres allow it: fewer voters, then fewer regions, then no survival of a region.
fn choose(electorate: &Electorate) -> Choice {
    let dcs = electorate.region.len();
    let voters = VOTERS.min(if dcs.is_multiple_of(2) { dcs - 1 } else { dcs });
    let rule = |regions_min, survive_region_loss| Rule { voters, regions_min, survive_region_loss };
    let rules = [rule(VOTER_REGIONS, true), rule(VOTER_REGIONS, false), rule(1, false)];
    let chosen = rules.into_iter().find_map(|rule| choose_voters(electorate, rule));
    chosen.unwrap_or_else(|| best_leader(electorate, &[0]))
}

fn find(file: &PlanFile, name: &str) -> Result<usize, LayoutError> {
    let known = || file.dcs.iter().map(|dc| dc.name.as_str()).collect::<Vec<_>>().join(", ");
    let at = file.dcs.iter().position(|dc| dc.name == name);
    at.ok_or_else(|| LayoutError::UnknownDc { name: name.to_owned(), known: known() })
}

fn refuse_duplicates(names: &[&str]) -> Result<(), LayoutError> {
    let again = |at: &usize| names[..*at].contains(&names[*at]);
    match (0..names.len()).find(again) {
        Some(at) => Err(LayoutError::DuplicateDc(names[at].to_owned())),
        None if names.is_empty() => Err(LayoutError::Empty),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(layout: &Layout, indices: &[usize]) -> Vec<String> {
        indices.iter().map(|&at| layout.dcs[at].name.clone()).collect()
    }

    #[test]
    fn the_reference_layout_has_the_voters_and_the_zone_of_the_plan() {
        let layout = Layout::reference().unwrap();
        assert_eq!(layout.dcs.len(), 15);
        assert!(layout.dcs.iter().all(|dc| dc.place.is_some()));
        assert_eq!(names(&layout, &layout.voters), ["usa-1", "usa-6", "usa-7", "europe-1", "asia-0"]);
        assert_eq!(names(&layout, &[layout.leader]), ["usa-1"]);
        assert!((layout.quorum_ms - 40.1).abs() < 0.2, "{}", layout.quorum_ms);
        assert!((9_900.0..9_970.0).contains(&layout.zone(70_000.0)), "{}", layout.zone(70_000.0));
    }

    #[test]
    fn regions_have_their_shares_evenly_inside() {
        let layout = Layout::reference().unwrap();
        let rates = layout.rates(70_000.0);
        let of = |name: &str| rates[layout.index_of(name).unwrap()];
        assert!((of("usa-3") - 3_500.0).abs() < 1e-6);
        assert!((of("europe-3") - 5_250.0).abs() < 1e-6);
        assert!((of("asia-1") - 7_000.0).abs() < 1e-6);
        assert!((of("sa-0") - 7_000.0).abs() < 1e-6);
        assert!((rates.iter().sum::<f64>() - 70_000.0).abs() < 1e-6);
    }

    #[test]
    fn a_part_keeps_proportions_and_distances() {
        let layout = Layout::part(&["usa-1", "europe-1", "asia-0"]).unwrap();
        assert!((layout.dcs.iter().map(|dc| dc.share).sum::<f64>() - 1.0).abs() < 1e-9);
        assert!((layout.dcs[1].share / layout.dcs[0].share - 1.5).abs() < 1e-9);
        assert_eq!(layout.rtt_ms[0][2], 174.8);
        assert_eq!(layout.voters, [0, 1, 2]);
        let two = Layout::part(&["usa-1", "europe-1"]).unwrap();
        assert_eq!(two.voters.len(), 1);
    }

    #[test]
    fn names_that_cannot_be_are_refused() {
        let message = Layout::part(&["usa-9"]).unwrap_err().to_string();
        assert!(message.contains("\"usa-9\"") && message.contains("sa-0"), "{message}");
        assert!(matches!(Layout::part(&["usa-1", "usa-1"]), Err(LayoutError::DuplicateDc(_))));
        assert!(matches!(Layout::part(&[]), Err(LayoutError::Empty)));
    }

    #[test]
    fn one_data_centre_is_its_own_ledger() {
        let layout = Layout::single();
        assert_eq!((layout.voters.len(), layout.zone(1_000.0)), (1, 0.0));
    }
}
