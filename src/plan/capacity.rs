//! Capacity as arithmetic: from a checked plan file and its round trips to counts, bytes, milliseconds and prices.
//!
//! Each formula stands in the function that is named after its result. Rates are per second at peak, volumes per day
//! and month assume that peak lasts, so they are upper bounds; a month has 30 days, a GB 10⁹ bytes.

use serde::Serialize;

use super::PlanError;
use super::input::PlanFile;
use super::round_trips::RoundTrips;
use super::voters::{Choice, Electorate, Rule, best_leader, choose_voters, increments_in_flight};

const SECONDS_PER_DAY: f64 = 86_400.0;
const DAYS_PER_MONTH: f64 = 30.0;
const BYTES_PER_GB: f64 = 1e9;
/// A component's value on disk and in memory.
const VALUE_BYTES: u64 = 8;
/// Besides its key, a cell's id has a generation (4), a half (1) and a bucket (8).
const CELL_ID_BYTES: u64 = 13;
/// The award's aim is `RTT_i + q` and this: one group commit at either end, one frame.
const AWARD_AIM_MS: f64 = 30.0;
/// The award's limit is `RTT_i + 2q` and this.
const AWARD_LIMIT_MS: f64 = 60.0;
/// A milestone's median of sequenced increments must stay below this multiple of the zone.
const SEQUENCED_LIMIT_FACTOR: f64 = 2.0;

/// The answer to a plan file. Field names end in their unit; without one they are counts.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    pub dcs: usize,
    pub rate_per_s: f64,
    pub valves: u64,
    pub nodes: u64,
    /// Values of one spread counter: one component per valve.
    pub counter_state_bytes: u64,
    /// The same as stored: the cell's id once, and an id before each component.
    pub counter_state_with_ids_bytes: u64,
    pub client_batches_per_s: f64,
    pub commits_per_s: f64,
    pub log_bytes_per_s: f64,
    pub feed_bytes_per_s: f64,
    /// Deltas of components between data centres.
    pub wan_delta_bytes_per_s: f64,
    /// Digests (version vectors) between data centres.
    pub wan_digest_bytes_per_s: f64,
    pub wan_bytes_per_s: f64,
    pub wan_gb_per_month: f64,
    pub transfer_price_per_month: f64,
    pub node_price_per_month: f64,
    pub currency: String,
    /// Memory of the cells in one aggregator when every data centre touched every cell.
    pub aggregator_bytes: u64,
    /// Memory of the cells in one aggregator when one data centre touched each cell.
    pub aggregator_bytes_min: u64,
    pub ledger: LedgerPlan,
    /// The results of the other rules, which show the cost of the chosen rule.
    pub ledger_alternatives: Vec<LedgerPlan>,
    pub dc: Vec<DcPlan>,
}

/// A set of voters and what it means for a milestone.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LedgerPlan {
    pub rule: String,
    pub voters: Vec<String>,
    pub leader: String,
    pub quorum_ms: f64,
    /// `Σ r_i · RTT_i`.
    pub increments_in_flight: f64,
    /// `L = Σ r_i · (RTT_i + q)`.
    pub zone: f64,
    /// L with the leader's data centre gone; null with one voter.
    pub zone_without_leader: Option<f64>,
    pub sequenced_expected: f64,
    pub sequenced_limit: f64,
    /// Winner's apply → frame, mean over where increments come from.
    pub award_aim_ms: f64,
    pub award_aim_ms_worst: f64,
    pub award_limit_ms_worst: f64,
}

/// The plan of one data centre.
#[derive(Clone, Debug, Serialize)]
pub struct DcPlan {
    pub name: String,
    pub rate_per_s: f64,
    pub nodes: u64,
    pub client_batches_per_s: f64,
    pub commits_per_s_per_node: f64,
    pub log_bytes_per_s_per_node: f64,
    pub log_gb_per_day_per_node: f64,
    pub feed_bytes_per_s: f64,
    pub wan_out_bytes_per_s: f64,
    pub transfer_price_per_month: f64,
    pub leader_rtt_ms: f64,
    pub award_aim_ms: f64,
    pub award_limit_ms: f64,
    /// Memory of the cells in one node when they are spread over the data centre's nodes.
    pub node_cells_bytes: u64,
}

impl Plan {
    /// Plans for a file and its round trips.
    ///
    /// # Errors
    /// [`PlanError::UnknownSite`], and what is wrong with the ledger's voters.
    pub fn new(file: &PlanFile, trips: &RoundTrips) -> Result<Self, PlanError> {
        let electorate = electorate(file, trips)?;
        let (choice, rule) = choose(file, &electorate)?;
        let rates = &electorate.rate_per_s;
        let dc: Vec<DcPlan> = (0..rates.len()).map(|dc| plan_dc(file, &electorate, &choice, dc)).collect();
        let valves = (file.dcs.len() as u64) * u64::from(file.traffic.valves_per_dc);
        let deltas = wan_delta_bytes_per_s(file, rates);
        let digests = wan_digest_bytes_per_s(file);
        let nodes = dc.iter().map(|dc| dc.nodes).sum();
        Ok(Self {
            dcs: dc.len(),
            rate_per_s: file.rate_per_s,
            valves,
            nodes,
            counter_state_bytes: valves * VALUE_BYTES,
            counter_state_with_ids_bytes: counter_state_with_ids_bytes(file, valves),
            client_batches_per_s: dc.iter().map(|dc| dc.client_batches_per_s).sum(),
            commits_per_s: dc.iter().map(|dc| dc.commits_per_s_per_node * dc.nodes as f64).sum(),
            log_bytes_per_s: dc.iter().map(|dc| dc.log_bytes_per_s_per_node * dc.nodes as f64).sum(),
            feed_bytes_per_s: dc.iter().map(|dc| dc.feed_bytes_per_s).sum(),
            wan_delta_bytes_per_s: deltas,
            wan_digest_bytes_per_s: digests,
            wan_bytes_per_s: deltas + digests,
            wan_gb_per_month: gb_per_month(deltas + digests),
            transfer_price_per_month: dc.iter().map(|dc| dc.transfer_price_per_month).sum(),
            node_price_per_month: nodes as f64 * file.prices.node_per_month,
            currency: file.prices.currency.clone(),
            aggregator_bytes: aggregator_bytes(file, file.dcs.len() as u64),
            aggregator_bytes_min: aggregator_bytes(file, 1),
            ledger: plan_ledger(file, &electorate, &choice, rule),
            ledger_alternatives: alternatives(file, &electorate, &choice),
            dc,
        })
    }
}

/// The data centres of a file as the choice of voters sees them.
///
/// # Errors
/// [`PlanError::UnknownSite`].
pub fn electorate(file: &PlanFile, trips: &RoundTrips) -> Result<Electorate, PlanError> {
    let rtt_ms = trips.between(file.dcs.iter().map(|dc| (dc.name.as_str(), dc.site.as_str())))?;
    Ok(Electorate { rate_per_s: file.rate_of_dc(), region: file.region_of_dc(), rtt_ms })
}

fn rule_of(file: &PlanFile, survive_region_loss: bool) -> Rule {
    let ledger = &file.ledger;
    Rule { voters: ledger.voters as usize, regions_min: ledger.regions_min as usize, survive_region_loss }
}

fn describe(rule: Rule) -> String {
    let loss = if rule.survive_region_loss { ", surviving the loss of any region" } else { "" };
    format!("{} voters in at least {} regions{loss}", rule.voters, rule.regions_min)
}

fn choose(file: &PlanFile, electorate: &Electorate) -> Result<(Choice, String), PlanError> {
    let rule = rule_of(file, file.ledger.survive_region_loss);
    if !file.ledger.fixed_voters.is_empty() {
        let voters = fixed_voters(file)?;
        return Ok((best_leader(electorate, &voters), "fixed by the plan file".to_owned()));
    }
    let none = || PlanError::NoVoters { voters: rule.voters, dcs: file.dcs.len(), rule: describe(rule) };
    Ok((choose_voters(electorate, rule).ok_or_else(none)?, describe(rule)))
}

fn fixed_voters(file: &PlanFile) -> Result<Vec<usize>, PlanError> {
    let names = &file.ledger.fixed_voters;
    let voters = file.ledger.voters as usize;
    if names.len() != voters {
        return Err(PlanError::FixedVoterCount { found: names.len(), voters });
    }
    let mut found = Vec::with_capacity(voters);
    for name in names {
        match file.dcs.iter().position(|dc| dc.name == *name) {
            Some(index) if !found.contains(&index) => found.push(index),
            _ => return Err(PlanError::FixedVoter { name: name.clone() }),
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// The sets that the rule with and without survival of a region gives, as far as they differ from `chosen`.
fn alternatives(file: &PlanFile, electorate: &Electorate, chosen: &Choice) -> Vec<LedgerPlan> {
    let rules = [true, false].map(|survive| rule_of(file, survive));
    let choices = rules.iter().filter_map(|&rule| Some((choose_voters(electorate, rule)?, rule)));
    let others = choices.filter(|(choice, _)| choice != chosen);
    others.map(|(choice, rule)| plan_ledger(file, electorate, &choice, describe(rule))).collect()
}

fn plan_ledger(file: &PlanFile, electorate: &Electorate, choice: &Choice, rule: String) -> LedgerPlan {
    let name = |&dc: &usize| file.dcs[dc].name.clone();
    let aims: Vec<f64> = (0..file.dcs.len()).map(|dc| award_aim_ms(electorate, choice, dc)).collect();
    let weighted = |(aim, rate): (&f64, &f64)| aim * rate / file.rate_per_s;
    let limits = (0..file.dcs.len()).map(|dc| award_limit_ms(electorate, choice, dc));
    LedgerPlan {
        rule,
        voters: choice.voters.iter().map(name).collect(),
        leader: name(&choice.leader),
        quorum_ms: choice.quorum_ms,
        increments_in_flight: increments_in_flight(electorate, choice.leader),
        zone: choice.zone,
        zone_without_leader: Some(choice.zone_without_leader).filter(|zone| zone.is_finite()),
        sequenced_expected: choice.zone * file.ledger.sequenced_factor,
        sequenced_limit: choice.zone * SEQUENCED_LIMIT_FACTOR,
        award_aim_ms: aims.iter().zip(&electorate.rate_per_s).map(weighted).sum(),
        award_aim_ms_worst: aims.iter().copied().fold(0.0, f64::max),
        award_limit_ms_worst: limits.fold(0.0, f64::max),
    }
}

fn plan_dc(file: &PlanFile, electorate: &Electorate, choice: &Choice, dc: usize) -> DcPlan {
    let rate = electorate.rate_per_s[dc];
    let nodes = nodes(file, rate);
    let batches = client_batches_per_s(file, rate);
    let commits = commits_per_s_per_node(file, batches, nodes);
    let log = log_bytes_per_s_per_node(file, rate, commits, nodes);
    let wan_out = wan_out_bytes_per_s(file, &electorate.rate_per_s);
    DcPlan {
        name: file.dcs[dc].name.clone(),
        rate_per_s: rate,
        nodes,
        client_batches_per_s: batches,
        commits_per_s_per_node: commits,
        log_bytes_per_s_per_node: log,
        log_gb_per_day_per_node: log * SECONDS_PER_DAY / BYTES_PER_GB,
        feed_bytes_per_s: feed_bytes_per_s(file, rate),
        wan_out_bytes_per_s: wan_out,
        transfer_price_per_month: gb_per_month(wan_out) * egress_per_gb(file, electorate.region[dc]),
        leader_rtt_ms: electorate.rtt_ms[dc][choice.leader],
        award_aim_ms: award_aim_ms(electorate, choice, dc),
        award_limit_ms: award_limit_ms(electorate, choice, dc),
        node_cells_bytes: file.traffic.cells.div_ceil(nodes) * u64::from(file.node.cell_bytes),
    }
}

/// Nodes that carry `rate` at the load allowed, and at least the minimum.
fn nodes(file: &PlanFile, rate: f64) -> u64 {
    let needed = (rate / (file.node.hits_per_s * file.node.load_max)).ceil();
    (needed as u64).max(file.node.count_min.into())
}

/// A client sends at most one batch per flush interval, and never more batches than increments.
fn client_batches_per_s(file: &PlanFile, rate: f64) -> f64 {
    let flushes = f64::from(file.traffic.clients_per_dc) * 1000.0 / file.traffic.client_flush_ms;
    flushes.min(rate)
}

/// Commits of the group that a node leads (as many groups as nodes): one per interval, while there are batches.
fn commits_per_s_per_node(file: &PlanFile, batches: f64, nodes: u64) -> f64 {
    (1000.0 / file.node.group_commit_ms).min(batches / nodes as f64)
}

/// Log bytes that a node writes: each group's log is kept by as many nodes as there are, at most `replicas_max`.
fn log_bytes_per_s_per_node(file: &PlanFile, rate: f64, commits: f64, nodes: u64) -> f64 {
    let replicas = nodes.min(file.node.replicas_max.into()) as f64;
    let own = rate / nodes as f64 * f64::from(file.node.hit_log_bytes);
    (own + commits * f64::from(file.node.commit_log_bytes)) * replicas
}

/// Component updates that a data centre produces when it tells at most once in `interval_ms`.
fn updates_per_s(file: &PlanFile, rate: f64, interval_ms: f64) -> f64 {
    let traffic = &file.traffic;
    let lanes = f64::from(traffic.valves_per_dc) * f64::from(traffic.spread_counters);
    let spread = (lanes * 1000.0 / interval_ms).min(rate * f64::from(traffic.spread_counters));
    spread + traffic.cold_cells_per_s * rate / file.rate_per_s
}

/// The feed stays inside the data centre; it tells each commit's changed components.
fn feed_bytes_per_s(file: &PlanFile, rate: f64) -> f64 {
    updates_per_s(file, rate, file.node.group_commit_ms) * file.gossip.component_bytes
}

/// Each data centre's updates reach all others, some of them more than once.
fn wan_delta_bytes_per_s(file: &PlanFile, rates: &[f64]) -> f64 {
    let updates: f64 = rates.iter().map(|&rate| updates_per_s(file, rate, file.gossip.interval_ms)).sum();
    let receivers = (rates.len() - 1) as f64;
    updates * receivers * file.gossip.component_bytes * file.gossip.redundancy
}

/// Each interval a digest with an entry per data centre goes to each peer, and is answered.
fn wan_digest_bytes_per_s(file: &PlanFile) -> f64 {
    let dcs = file.dcs.len() as f64;
    let peers = f64::from(file.gossip.peers).min(dcs - 1.0);
    let digest = dcs * f64::from(file.gossip.digest_entry_bytes) + f64::from(file.gossip.packet_bytes);
    dcs * peers * 2.0 * digest * 1000.0 / file.gossip.interval_ms
}

/// Relaying spreads the sending evenly, from whatever data centre the updates come.
fn wan_out_bytes_per_s(file: &PlanFile, rates: &[f64]) -> f64 {
    (wan_delta_bytes_per_s(file, rates) + wan_digest_bytes_per_s(file)) / rates.len() as f64
}

fn egress_per_gb(file: &PlanFile, region: usize) -> f64 {
    file.regions[region].egress_per_gb.unwrap_or(file.prices.egress_per_gb)
}

fn gb_per_month(bytes_per_s: f64) -> f64 {
    bytes_per_s * SECONDS_PER_DAY * DAYS_PER_MONTH / BYTES_PER_GB
}

fn counter_state_with_ids_bytes(file: &PlanFile, valves: u64) -> u64 {
    let component = VALUE_BYTES + u64::from(file.gossip.component_id_bytes);
    u64::from(file.traffic.key_bytes) + CELL_ID_BYTES + valves * component
}

/// Cells with a component from each of `dcs` data centres, and the spread counters' further components.
fn aggregator_bytes(file: &PlanFile, dcs: u64) -> u64 {
    let component = u64::from(file.view.component_bytes);
    let lanes = file.dcs.len() as u64 * u64::from(file.traffic.valves_per_dc);
    let spread = u64::from(file.traffic.spread_counters) * lanes * component;
    file.traffic.cells * (u64::from(file.view.cell_bytes) + dcs * component) + spread
}

fn award_aim_ms(electorate: &Electorate, choice: &Choice, dc: usize) -> f64 {
    electorate.rtt_ms[dc][choice.leader] + choice.quorum_ms + AWARD_AIM_MS
}

fn award_limit_ms(electorate: &Electorate, choice: &Choice, dc: usize) -> f64 {
    electorate.rtt_ms[dc][choice.leader] + 2.0 * choice.quorum_ms + AWARD_LIMIT_MS
}

#[cfg(test)]
pub mod tests {
    use super::super::input::tests::SAMPLE;
    use super::super::round_trips::tests::REFERENCE;
    use super::*;

    pub fn plan_of(text: &str) -> Result<Plan, PlanError> {
        Plan::new(&PlanFile::parse(text)?, &RoundTrips::parse(REFERENCE)?)
    }

    fn with(from: &str, to: &str) -> String {
        assert!(SAMPLE.contains(from), "the sample no longer holds {from:?}");
        SAMPLE.replacen(from, to, 1)
    }

    fn near(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-6 * expected.abs().max(1.0), "{found} is not {expected}");
    }

    #[test]
    fn the_reference_layout_has_150_valves_and_1200_bytes() {
        let plan = plan_of(SAMPLE).unwrap();
        assert_eq!((plan.dcs, plan.valves, plan.nodes), (15, 150, 15));
        assert_eq!(plan.counter_state_bytes, 15 * 10 * 8);
        assert_eq!(plan.counter_state_with_ids_bytes, 24 + 13 + 150 * 16);
    }

    #[test]
    fn batches_and_commits_follow_the_intervals() {
        let plan = plan_of(SAMPLE).unwrap();
        near(plan.client_batches_per_s, 15.0 * 10.0 * 50.0);
        near(plan.dc[0].commits_per_s_per_node, 200.0);
        let slow = plan_of(&with("client_flush_ms = 20.0", "client_flush_ms = 1000.0")).unwrap();
        near(slow.dc[0].commits_per_s_per_node, 10.0);
        let idle = plan_of(&with("rate_per_s = 70000.0", "rate_per_s = 15.0")).unwrap();
        near(idle.client_batches_per_s, 15.0);
    }

    #[test]
    fn a_log_holds_each_increment_on_every_replica() {
        let one = plan_of(SAMPLE).unwrap();
        near(one.dc[0].log_bytes_per_s_per_node, 3_500.0 * 48.0 + 200.0 * 128.0);
        near(one.dc[0].log_gb_per_day_per_node, (3_500.0 * 48.0 + 200.0 * 128.0) * 86_400.0 / 1e9);
        let three = plan_of(&with("count_min = 1", "count_min = 3")).unwrap();
        near(three.dc[0].log_bytes_per_s_per_node, 3_500.0 * 48.0 + 3.0 * (500.0_f64 / 3.0) * 128.0);
    }

    #[test]
    fn nodes_follow_the_load() {
        let plan = plan_of(&with("hits_per_s = 150000.0", "hits_per_s = 2000.0")).unwrap();
        assert_eq!(plan.dc[0].nodes, 4, "3,500/s at 1,000/s each");
        assert_eq!(plan.dc[14].nodes, 7, "7,000/s");
        near(plan.node_price_per_month, plan.nodes as f64 * 60.0);
    }

    #[test]
    fn wide_area_bytes_and_price_add_up() {
        let plan = plan_of(SAMPLE).unwrap();
        let updates = 15.0 * 10.0 * 5.0 + 1000.0;
        near(plan.wan_delta_bytes_per_s, updates * 14.0 * 12.0 * 1.3);
        near(plan.wan_digest_bytes_per_s, 15.0 * 3.0 * 2.0 * (15.0 * 8.0 + 100.0) * 5.0);
        near(plan.wan_gb_per_month, plan.wan_bytes_per_s * 2_592_000.0 / 1e9);
        let mean = (12.0 * 0.08 + 2.0 * 0.11 + 0.12) / 15.0;
        near(plan.transfer_price_per_month, plan.wan_gb_per_month * mean);
    }

    #[test]
    fn aggregator_memory_stays_within_what_a_cell_may_cost() {
        let plan = plan_of(SAMPLE).unwrap();
        assert!(plan.aggregator_bytes_min <= 120 * 1_000_000 + 2_400);
        assert!(plan.aggregator_bytes <= 350 * 1_000_000);
    }

    #[test]
    fn fixed_voters_are_evaluated_not_chosen() {
        let names = "fixed_voters = [\"usa-1\", \"usa-6\", \"usa-7\", \"europe-1\", \"asia-0\"]";
        let plan = plan_of(&with("fixed_voters = []", names)).unwrap();
        assert_eq!(plan.ledger.rule, "fixed by the plan file");
        assert_eq!(plan.ledger_alternatives.len(), 2);
        let twice = "fixed_voters = [\"usa-1\", \"usa-1\", \"usa-7\", \"europe-1\", \"asia-0\"]";
        let message = plan_of(&with("fixed_voters = []", twice)).unwrap_err().to_string();
        assert!(message.contains("names usa-1"), "{message}");
        let few = plan_of(&with("fixed_voters = []", "fixed_voters = [\"usa-1\"]")).unwrap_err().to_string();
        assert_eq!(few, "ledger.fixed_voters has 1 names; ledger.voters is 5");
    }

    #[test]
    fn a_rule_that_nothing_satisfies_is_an_error() {
        let message = plan_of(&with("regions_min = 3", "regions_min = 5")).unwrap_err().to_string();
        assert!(message.starts_with("no 5 of the 15 data centres satisfy"), "{message}");
    }

    #[test]
    fn one_data_centre_with_one_voter_has_a_plan() {
        let text = "rate_per_s = 1000.0\nround_trips = 'x'\n[ledger]\nvoters = 1\nregions_min = 1\n\
                    survive_region_loss = false\n[[region]]\nname = 'r'\nshare = 1.0\n\
                    [[dc]]\nname = 'd'\nsite = 'us-ia'\nregion = 'r'\n";
        let plan = plan_of(text).unwrap();
        assert_eq!(plan.ledger.quorum_ms, 0.0);
        assert_eq!(plan.ledger.zone_without_leader, None);
        assert_eq!(plan.wan_bytes_per_s, 0.0);
    }
}
