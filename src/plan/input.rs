//! The plan file: what an operator writes, with a default for everything that is not theirs to know, and named limits
//! for every number. Nothing past [`PlanFile::parse`] meets an unknown key, a value out of range or a name used twice.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde::Deserialize;

use super::PlanError;

/// Data centres in one plan; choosing voters is exhaustive, so its cost grows with the fifth power of this.
pub const DCS_MAX: usize = 32;
/// Increments a second, whole cluster.
pub const RATE_PER_S_MAX: f64 = 1e9;
/// Any other count a second, or a number of bytes.
const COUNT_MAX: f64 = 1e12;
/// Processes, lanes, peers: small whole numbers.
const SMALL_MAX: f64 = 10_000.0;
/// Any interval.
const INTERVAL_MS_MAX: f64 = 60_000.0;
/// Any price, in the plan's currency.
const PRICE_MAX: f64 = 1e6;
/// Shares of the regions must add up to 1 within this.
const SHARE_TOLERANCE: f64 = 1e-6;

/// A parsed and checked plan file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanFile {
    /// Increments a second of the whole cluster at peak.
    pub rate_per_s: f64,
    /// The matrix of round trips, relative to the plan file.
    pub round_trips: PathBuf,
    #[serde(default)]
    pub traffic: Traffic,
    #[serde(default)]
    pub ledger: Ledger,
    #[serde(default)]
    pub node: Node,
    #[serde(default)]
    pub gossip: Gossip,
    #[serde(default)]
    pub view: View,
    #[serde(default)]
    pub prices: Prices,
    #[serde(rename = "region")]
    pub regions: Vec<Region>,
    #[serde(rename = "dc")]
    pub dcs: Vec<Dc>,
}

/// The increments, and the number of processes that count them. Intervals in milliseconds.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct Traffic {
    pub valves_per_dc: u32,
    pub clients_per_dc: u32,
    pub client_flush_ms: f64,
    /// Counters with increments that touch every valve of a data centre.
    pub spread_counters: u32,
    /// Distinct other cells that change per second in the whole cluster.
    pub cold_cells_per_s: f64,
    /// Cells kept in every view.
    pub cells: u64,
    pub key_bytes: u32,
}

/// How the ledger's voters are chosen.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct Ledger {
    /// 1, 3, 5 or 7.
    pub voters: u32,
    pub regions_min: u32,
    pub survive_region_loss: bool,
    /// Names of data centres to evaluate instead of choosing; empty: choose.
    pub fixed_voters: Vec<String>,
    /// Increments expected to be sequenced per milestone, as a multiple of the zone.
    pub sequenced_factor: f64,
}

/// One node: its capacity, and the cost of its log and memory. Sizes in bytes.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct Node {
    /// Single increments with sessions that one node makes durable per second.
    pub hits_per_s: f64,
    /// Share of `hits_per_s` that a node shall carry at peak, 0.05 to 1.
    pub load_max: f64,
    pub count_min: u32,
    /// Copies of a group's log inside a data centre.
    pub replicas_max: u32,
    pub group_commit_ms: f64,
    pub hit_log_bytes: u32,
    pub commit_log_bytes: u32,
    pub cell_bytes: u32,
}

/// Gossip between aggregators. Sizes in bytes.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct Gossip {
    pub interval_ms: f64,
    /// Peers that get a digest each interval.
    pub peers: u32,
    pub component_bytes: f64,
    pub component_id_bytes: u32,
    /// How often a component arrives at a receiver, mean; at least 1.
    pub redundancy: f64,
    pub digest_entry_bytes: u32,
    pub packet_bytes: u32,
}

/// Memory of a view. Sizes in bytes.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct View {
    pub cell_bytes: u32,
    pub component_bytes: u32,
}

/// Prices per GB (10⁹ bytes) and per month of 30 days.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct Prices {
    pub currency: String,
    pub egress_per_gb: f64,
    pub node_per_month: f64,
}

/// A region: what may vanish as a whole.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Region {
    pub name: String,
    /// Share of the cluster's rate, 0 to 1; all regions' shares add up to 1.
    pub share: f64,
    /// Overrides [`Prices::egress_per_gb`].
    pub egress_per_gb: Option<f64>,
}

/// A data centre.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dc {
    pub name: String,
    /// Its name in the matrix of round trips.
    pub site: String,
    pub region: String,
    /// Its part of the region's rate, relative to the others of the region.
    #[serde(default = "one")]
    pub weight: f64,
}

fn one() -> f64 {
    1.0
}

impl Default for Traffic {
    fn default() -> Self {
        Self {
            valves_per_dc: 10,
            clients_per_dc: 10,
            client_flush_ms: 20.0,
            spread_counters: 1,
            cold_cells_per_s: 1000.0,
            cells: 1_000_000,
            key_bytes: 24,
        }
    }
}

impl Default for Ledger {
    fn default() -> Self {
        Self { voters: 5, regions_min: 3, survive_region_loss: true, fixed_voters: Vec::new(), sequenced_factor: 1.5 }
    }
}

impl Default for Node {
    fn default() -> Self {
        Self {
            hits_per_s: 150_000.0,
            load_max: 0.5,
            count_min: 1,
            replicas_max: 3,
            group_commit_ms: 5.0,
            hit_log_bytes: 48,
            commit_log_bytes: 128,
            cell_bytes: 150,
        }
    }
}

impl Default for Gossip {
    fn default() -> Self {
        Self {
            interval_ms: 200.0,
            peers: 3,
            component_bytes: 12.0,
            component_id_bytes: 8,
            redundancy: 1.3,
            digest_entry_bytes: 8,
            packet_bytes: 100,
        }
    }
}

impl Default for View {
    fn default() -> Self {
        Self { cell_bytes: 104, component_bytes: 16 }
    }
}

impl Default for Prices {
    fn default() -> Self {
        Self { currency: "USD".to_owned(), egress_per_gb: 0.08, node_per_month: 60.0 }
    }
}

impl PlanFile {
    /// Reads and checks a plan file's text.
    ///
    /// # Errors
    /// [`PlanError::Toml`] for text that is not TOML of this shape; it names the key and the line. There is one error each for a number
    /// outside its limits, a name used twice, a region that is missing or empty, and shares that do not add up.
    pub fn parse(text: &str) -> Result<Self, PlanError> {
        let plan: Self = toml::from_str(text).map_err(|error| PlanError::Toml { message: error.to_string() })?;
        plan.check_numbers()?;
        plan.check_ledger()?;
        plan.check_regions()?;
        plan.check_dcs()?;
        Ok(plan)
    }

    /// Region of each data centre, as an index into `regions`.
    pub fn region_of_dc(&self) -> Vec<usize> {
        let index = |dc: &Dc| self.regions.iter().position(|region| region.name == dc.region);
        self.dcs.iter().map(|dc| index(dc).expect("checked by parse")).collect()
    }

    /// Increments a second of each data centre at peak.
    pub fn rate_of_dc(&self) -> Vec<f64> {
        let regions = self.region_of_dc();
        let mut weights = vec![0.0; self.regions.len()];
        for (dc, &region) in self.dcs.iter().zip(&regions) {
            weights[region] += dc.weight;
        }
        let share = |(dc, &region): (&Dc, &usize)| self.regions[region].share * dc.weight / weights[region];
        self.dcs.iter().zip(&regions).map(|pair| self.rate_per_s * share(pair)).collect()
    }

    fn check_numbers(&self) -> Result<(), PlanError> {
        within("rate_per_s", self.rate_per_s, 1.0, RATE_PER_S_MAX)?;
        self.check_traffic()?;
        self.check_node()?;
        self.check_gossip()?;
        within("view.cell_bytes", self.view.cell_bytes.into(), 1.0, SMALL_MAX)?;
        within("view.component_bytes", self.view.component_bytes.into(), 1.0, SMALL_MAX)?;
        within("prices.egress_per_gb", self.prices.egress_per_gb, 0.0, PRICE_MAX)?;
        within("prices.node_per_month", self.prices.node_per_month, 0.0, PRICE_MAX)
    }

    fn check_traffic(&self) -> Result<(), PlanError> {
        let traffic = &self.traffic;
        within("traffic.valves_per_dc", traffic.valves_per_dc.into(), 1.0, SMALL_MAX)?;
        within("traffic.clients_per_dc", traffic.clients_per_dc.into(), 1.0, SMALL_MAX)?;
        within("traffic.client_flush_ms", traffic.client_flush_ms, 0.1, INTERVAL_MS_MAX)?;
        within("traffic.spread_counters", traffic.spread_counters.into(), 0.0, SMALL_MAX)?;
        within("traffic.cold_cells_per_s", traffic.cold_cells_per_s, 0.0, RATE_PER_S_MAX)?;
        within("traffic.cells", traffic.cells as f64, 1.0, COUNT_MAX)?;
        within("traffic.key_bytes", traffic.key_bytes.into(), 1.0, SMALL_MAX)
    }

    fn check_node(&self) -> Result<(), PlanError> {
        let node = &self.node;
        within("node.hits_per_s", node.hits_per_s, 1.0, RATE_PER_S_MAX)?;
        within("node.load_max", node.load_max, 0.05, 1.0)?;
        within("node.count_min", node.count_min.into(), 1.0, SMALL_MAX)?;
        within("node.replicas_max", node.replicas_max.into(), 1.0, 7.0)?;
        within("node.group_commit_ms", node.group_commit_ms, 0.1, INTERVAL_MS_MAX)?;
        within("node.hit_log_bytes", node.hit_log_bytes.into(), 1.0, SMALL_MAX)?;
        within("node.commit_log_bytes", node.commit_log_bytes.into(), 0.0, SMALL_MAX)?;
        within("node.cell_bytes", node.cell_bytes.into(), 1.0, SMALL_MAX)
    }

    fn check_gossip(&self) -> Result<(), PlanError> {
        let gossip = &self.gossip;
        within("gossip.interval_ms", gossip.interval_ms, 1.0, INTERVAL_MS_MAX)?;
        within("gossip.peers", gossip.peers.into(), 1.0, DCS_MAX as f64)?;
        within("gossip.component_bytes", gossip.component_bytes, 1.0, SMALL_MAX)?;
        within("gossip.component_id_bytes", gossip.component_id_bytes.into(), 1.0, SMALL_MAX)?;
        within("gossip.redundancy", gossip.redundancy, 1.0, DCS_MAX as f64)?;
        within("gossip.digest_entry_bytes", gossip.digest_entry_bytes.into(), 1.0, SMALL_MAX)?;
        within("gossip.packet_bytes", gossip.packet_bytes.into(), 0.0, SMALL_MAX)
    }

    fn check_ledger(&self) -> Result<(), PlanError> {
        let ledger = &self.ledger;
        within("ledger.sequenced_factor", ledger.sequenced_factor, 1.0, 100.0)?;
        within("ledger.regions_min", ledger.regions_min.into(), 1.0, f64::from(ledger.voters.max(1)))?;
        match ledger.voters {
            1 | 3 | 5 | 7 => Ok(()),
            voters => Err(PlanError::VoterCount { voters }),
        }
    }

    fn check_regions(&self) -> Result<(), PlanError> {
        let mut names = BTreeSet::new();
        for region in &self.regions {
            if !names.insert(&region.name) {
                return Err(PlanError::DuplicateRegion { name: region.name.clone() });
            }
            within(&format!("region.{}.share", region.name), region.share, 0.0, 1.0)?;
            if let Some(price) = region.egress_per_gb {
                within(&format!("region.{}.egress_per_gb", region.name), price, 0.0, PRICE_MAX)?;
            }
            if !self.dcs.iter().any(|dc| dc.region == region.name) {
                return Err(PlanError::EmptyRegion { name: region.name.clone() });
            }
        }
        let sum: f64 = self.regions.iter().map(|region| region.share).sum();
        if (sum - 1.0).abs() > SHARE_TOLERANCE { Err(PlanError::Shares { sum }) } else { Ok(()) }
    }

    fn check_dcs(&self) -> Result<(), PlanError> {
        within("number of [[dc]]", self.dcs.len() as f64, 1.0, DCS_MAX as f64)?;
        let mut names = BTreeSet::new();
        for dc in &self.dcs {
            if !names.insert(&dc.name) {
                return Err(PlanError::DuplicateDc { name: dc.name.clone() });
            }
            if !self.regions.iter().any(|region| region.name == dc.region) {
                return Err(PlanError::MissingRegion { dc: dc.name.clone(), region: dc.region.clone() });
            }
            within(&format!("dc.{}.weight", dc.name), dc.weight, 0.001, 1000.0)?;
        }
        Ok(())
    }
}

/// Refuses what is below `min`, above `max`, or not a number.
fn within(name: &str, value: f64, min: f64, max: f64) -> Result<(), PlanError> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    Err(PlanError::OutOfRange { name: name.to_owned(), value, min, max })
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub const SAMPLE: &str = include_str!("../../deploy/plan.toml");

    fn error_of(from: &str, to: &str) -> String {
        assert!(SAMPLE.contains(from), "the sample no longer holds {from:?}");
        PlanFile::parse(&SAMPLE.replacen(from, to, 1)).unwrap_err().to_string()
    }

    #[test]
    fn sample_states_the_defaults() {
        let plan = PlanFile::parse(SAMPLE).unwrap();
        assert_eq!(plan.traffic, Traffic::default());
        assert_eq!(plan.ledger, Ledger::default());
        assert_eq!(plan.node, Node::default());
        assert_eq!(plan.gossip, Gossip::default());
        assert_eq!(plan.view, View::default());
        assert_eq!(plan.prices, Prices::default());
    }

    #[test]
    fn rates_follow_shares_and_weights() {
        let plan = PlanFile::parse(SAMPLE).unwrap();
        let rates = plan.rate_of_dc();
        assert!((rates.iter().sum::<f64>() - 70_000.0).abs() < 1e-6);
        assert!((rates[0] - 3_500.0).abs() < 1e-9, "0.4 × 70,000 over eight");
        let heavier = PlanFile::parse(&SAMPLE.replacen("weight = 1.0", "weight = 2.0", 1)).unwrap();
        assert!((heavier.rate_of_dc()[0] - 28_000.0 * 2.0 / 9.0).abs() < 1e-9);
    }

    #[test]
    fn numbers_outside_their_limits_are_named_with_the_limit() {
        let negative = error_of("rate_per_s = 70000.0", "rate_per_s = -1.0");
        assert_eq!(negative, "rate_per_s is -1; it must be 1 to 1000000000");
        assert!(error_of("rate_per_s = 70000.0", "rate_per_s = nan").contains("rate_per_s is NaN"));
        assert!(error_of("rate_per_s = 70000.0", "rate_per_s = inf").contains("rate_per_s is inf"));
        assert!(error_of("load_max = 0.5", "load_max = 1.5").contains("node.load_max is 1.5; it must be 0.05 to 1"));
        assert!(error_of("share = 0.1", "share = -0.1").contains("region.sa.share is -0.1"));
        assert!(error_of("egress_per_gb = 0.12", "egress_per_gb = nan").contains("region.sa.egress_per_gb is NaN"));
        assert!(error_of("voters = 5", "voters = 4").contains("ledger.voters is 4"));
        assert!(error_of("clients_per_dc = 10", "clients_per_dc = -3").contains("clients_per_dc"));
    }

    #[test]
    fn names_must_be_known_and_used_once() {
        assert!(error_of("name = \"usa-1\"", "name = \"usa-0\"").contains("two data centres are named usa-0"));
        assert!(error_of("name = \"asia\"", "name = \"usa\"").contains("two regions are named usa"));
        assert!(error_of("region = \"sa\"", "region = \"mars\"").contains("region sa has no data centre"));
        let missing = error_of("region = \"usa\"", "region = \"mars\"");
        assert!(missing.contains("usa-0 stands in region mars, which has no [[region]]"), "{missing}");
        assert!(error_of("share = 0.1", "share = 0.2").contains("add up to 1.1"));
    }

    #[test]
    fn unknown_keys_are_refused_by_name() {
        assert!(error_of("rate_per_s = 70000.0", "rate_per_s = 1.0\nspeed = 3").contains("unknown field `speed`"));
        assert!(error_of("[prices]", "[prices]\ncolour = 1").contains("unknown field `colour`"));
    }
}
