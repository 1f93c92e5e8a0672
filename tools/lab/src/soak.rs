//! `tidemark soak`: a cluster of real processes on this machine, under load and faults for as long as the user likes, and an account at the
//! end. Every acknowledged increment is counted once, everywhere, in each total to which it flows too, and every milestone was awarded
//! once. The account is kept by the front ends in logs of their own, outside the cluster, and read from there.

mod account;
mod awards;
mod check;
mod cluster;
mod edges;
mod faults;
mod load;
mod log;
mod verdict;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use tidemark::{errln, outln};

use clap::Args;
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use serde::Serialize;

use crate::bench::cluster::Folder;
use account::Account;
use cluster::SoakCluster;
use faults::Faults;
use load::Load;
use tidemark::Outcome;

/// Minutes of one soak.
const MINUTES_MAX: f64 = 7.0 * 24.0 * 60.0;
const RATE_MAX: u64 = 1_000_000;
const DCS_MAX: u64 = 15;
/// Hits between two milestones of their counter last about so long.
const MILESTONE_EVERY_S: u64 = 10;
/// After the faults everything must have arrived within this.
const SETTLE_MAX: Duration = Duration::from_secs(180);

/// A soak with less than this share of the rate that was asked for is no evidence.
const RATE_SHARE_MIN: f64 = 0.5;
/// Nor is one so long in which no count came to a total by several ways.
const EDGES_AFTER_S: f64 = 30.0;
/// A soak with less than this share of the faults that come in that time on average, or with fewer in a minute than these, is no evidence
/// either: a fault is not begun while others last that it must not meet.
const FAULT_SHARE_MIN: f64 = 0.25;
const FAULTS_PER_MINUTE_SURE: f64 = 4.0;

/// Run a cluster of real processes under load and faults, and check that every increment is accounted for
#[derive(Clone, Debug, Args)]
#[command(after_help = "Example:\n  tidemark soak --minutes 5 --dcs 3")]
pub struct SoakOptions {
    /// Minutes of load and faults
    #[arg(long, default_value_t = 20.0, value_parser = minutes)]
    pub minutes: f64,
    /// Increments a second of all front ends together; one of five is a hit with a session
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..=RATE_MAX))]
    pub rate: u64,
    /// Number of data centres
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=DCS_MAX))]
    pub dcs: u64,
    /// Number of nodes in each data centre
    #[arg(long, default_value_t = 3, value_parser = nodes)]
    pub nodes: usize,
    /// Number of aggregators in each data centre; two are a pair
    #[arg(long, default_value_t = 2, value_parser = aggregators)]
    pub aggregators: usize,
    /// Seconds between two faults, on average; 0: none
    #[arg(long, default_value_t = 5.0, value_parser = seconds)]
    pub fault_every: f64,
    /// Seed from which faults and load are drawn [default: random, and printed]
    #[arg(long)]
    pub seed: Option<u64>,
    /// Directory for configuration, data and logs, which must not exist [default: a temporary one, removed afterwards unless something is
    /// found]
    #[arg(long)]
    pub dir: Option<PathBuf>,
    /// Directory for the front ends' logs of requests and answers, which must not exist [default: `front-ends` in --dir]
    #[arg(long)]
    pub logs: Option<PathBuf>,
    /// Print one line of JSON
    #[arg(long)]
    pub json: bool,
}

fn nodes(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|nodes| [1, 3, 5].contains(nodes)).ok_or_else(|| "1, 3 or 5 allowed".to_owned())
}

fn aggregators(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|aggregators| [1, 2].contains(aggregators)).ok_or_else(|| "1 or 2 allowed".to_owned())
}

fn minutes(text: &str) -> Result<f64, String> {
    let minutes = text.parse().ok().filter(|minutes| (0.1..=MINUTES_MAX).contains(minutes));
    minutes.ok_or_else(|| format!("0.1 to {MINUTES_MAX} allowed"))
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| *seconds == 0.0 || (0.5..=3_600.0).contains(seconds));
    seconds.ok_or_else(|| "0, or 0.5 to 3600 allowed".to_owned())
}

/// The result of a soak.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    pub seed: u64,
    pub minutes: f64,
    /// Handed to the client library.
    pub increments: u64,
    pub increments_per_s: f64,
    /// Hits, and what their front ends were told.
    pub hits: u64,
    pub durable: u64,
    /// Of all increments: those that may or may not be counted, and those that were surely not.
    pub unknown: u64,
    pub refused: u64,
    /// Longest time from a hit to its durable answer.
    pub longest_ms: f64,
    /// Compared one by one at every aggregator.
    pub counters: u64,
    /// By aggregator and counter: what was acknowledged and is not shown, and what is shown and was never asked for.
    pub lost: u64,
    pub doubled: u64,
    /// Batches of changes of edges that were carried out, and edges in the end.
    pub edge_changes: u64,
    pub edges: u64,
    /// Totals that were compared at every aggregator, and of these such to which counts come by several ways.
    pub totals: u64,
    pub totals_reached_twice: u64,
    /// Milestones that were reached, and how many of them have an award.
    pub milestones: u64,
    pub awards: u64,
    /// Awards with a certificate that is believed, as `tidemark verify` does.
    pub certificates: u64,
    /// Awards with a winner that can no longer be told so.
    pub awards_untold: u64,
    /// Milestones with more than one award or winner, and hits that have won more than one.
    pub awarded_twice: u64,
    pub faults: BTreeMap<&'static str, u64>,
    /// Violations of promises.
    pub violations: Vec<String>,
    pub cpu_s: Option<f64>,
    /// Where the front ends' logs are, if they are kept; and their size.
    pub logs: Option<PathBuf>,
    pub logs_bytes: u64,
}

/// Runs the soak.
///
/// # Errors
/// The cluster could not be started. Faults that were found are in the report, and the exit code is 1.
pub fn run(options: &SoakOptions) -> Outcome {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let report = runtime.block_on(soak(options))?;
    match options.json {
        true => outln!("{}", serde_json::to_string(&report)?),
        false => outln!("{}", serde_json::to_string_pretty(&report)?),
    }
    Ok(if report.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn soak(options: &SoakOptions) -> Result<Report, Box<dyn std::error::Error>> {
    let seed = options.seed.unwrap_or_else(rand::random);
    let SoakOptions { dcs, nodes, aggregators, minutes, .. } = options;
    let (folder, dir) = match &options.dir {
        Some(dir) => (None, made("--dir", dir.clone())?),
        None => {
            let folder = Folder::new()?;
            let path = folder.path().to_owned();
            (Some(folder), path)
        }
    };
    let logs = made("--logs", options.logs.clone().unwrap_or_else(|| dir.join("front-ends")))?;
    errln!("seed {seed}: {dcs} data centres of {nodes} nodes and {aggregators} aggregators, {minutes} minutes");
    errln!("front ends write down in {} what they are told", logs.display());
    let mut report = faulty(options, seed, &dir, &logs).await?;
    let is_kept = options.logs.is_some() || options.dir.is_some() || !report.violations.is_empty();
    report.logs = is_kept.then_some(logs);
    if let Some(folder) = folder.filter(|_| !report.violations.is_empty()) {
        errln!("what the processes said is kept in {}", folder.path().display());
        folder.keep();
    }
    Ok(report)
}

fn made(option: &str, dir: PathBuf) -> Result<PathBuf, String> {
    std::fs::create_dir(&dir).map_err(|error| format!("{option} {}: {error}", dir.display()))?;
    Ok(dir)
}

async fn faulty(
    options: &SoakOptions,
    seed: u64,
    dir: &Path,
    logs: &Path,
) -> Result<Report, Box<dyn std::error::Error>> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut cluster = SoakCluster::start(options, dir).await?;
    let hits_per_s = (options.rate / load::INCREMENTS_PER_HIT).max(1);
    let every = hits_per_s * MILESTONE_EVERY_S;
    cluster.define(load::HITS, every).await?;
    let before = tidemark_demo::cost::of_this_tree();
    let load = Load::start(&cluster, logs, options.rate, rng.random()).await?;
    let mut faults = Faults::new(rng, options.fault_every);
    faults.run(&mut cluster, Duration::from_secs_f64(options.minutes * 60.0)).await?;
    faults.end(&mut cluster).await?;
    let finished = load.finish(SETTLE_MAX).await;
    let mut report = Report { seed, minutes: options.minutes, faults: faults.counts(), ..Report::default() };
    report.cpu_s = before.and_then(|before| Some(tidemark_demo::cost::of_this_tree()?.cpu_s_since(&before)));
    (report.longest_ms, report.logs_bytes) = (finished.longest_ms, finished.logs_bytes);
    report.violations = finished.unfinished;
    match Account::read(logs, cluster.dcs()) {
        Ok(account) => check::all(&cluster, &account, every, SETTLE_MAX, &mut report).await,
        Err(error) => report.violations.push(format!("nothing is accounted for: {error}")),
    }
    report.increments_per_s = (report.increments as f64 / (options.minutes * 60.0)).round();
    let little = too_little(options, &report);
    report.violations.extend(little);
    Ok(report)
}

/// The figures that are too small to be evidence of anything.
fn too_little(options: &SoakOptions, report: &Report) -> Vec<String> {
    let asked = options.rate as f64;
    let least = options.rate as f64 * RATE_SHARE_MIN;
    let faults = report.faults.values().sum::<u64>();
    let of_rate = (report.increments_per_s < least)
        .then(|| format!("{} increments a second, of {asked}: at least {least} are needed", report.increments_per_s));
    let seconds = options.minutes * 60.0;
    let reaches_one = options.rate >= load::INCREMENTS_PER_HIT && seconds >= MILESTONE_EVERY_S as f64 / RATE_SHARE_MIN;
    let milestones = (report.milestones == 0 && reaches_one).then(|| "no milestone was reached".to_owned());
    let edges = (report.totals_reached_twice == 0 && seconds >= EDGES_AFTER_S)
        .then(|| "no count came to a total by several ways".to_owned());
    let expected = if options.fault_every > 0.0 { seconds / options.fault_every } else { 0.0 };
    let least = (expected * FAULT_SHARE_MIN).min(options.minutes * FAULTS_PER_MINUTE_SURE).floor();
    let faults = ((faults as f64) < least)
        .then(|| format!("{faults} faults, where about {expected:.0} were asked for: at least {least} are needed"));
    [of_rate, milestones, edges, faults].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_soak_that_shows_little_is_no_evidence() {
        let options = SoakOptions {
            minutes: 1.0,
            rate: 1_000,
            dcs: 3,
            nodes: 3,
            aggregators: 2,
            fault_every: 6.0,
            seed: None,
            dir: None,
            logs: None,
            json: true,
        };
        let good = Report {
            increments_per_s: 900.0,
            milestones: 1,
            totals_reached_twice: 1,
            faults: [("killed", 5)].into(),
            ..Report::default()
        };
        let found = |report: &Report| too_little(&options, report).join("; ");
        assert_eq!(found(&good), "");
        assert!(found(&Report { increments_per_s: 499.0, ..good.clone() }).contains("at least 500 are needed"));
        assert!(found(&Report { milestones: 0, ..good.clone() }).contains("no milestone"));
        assert!(
            found(&Report { totals_reached_twice: 0, ..good.clone() })
                .contains("no count came to a total by several ways")
        );
        assert!(found(&Report { faults: BTreeMap::new(), ..good.clone() }).contains("0 faults, where about 10"));
        let moment = SoakOptions { minutes: 0.1, rate: 1, ..options.clone() };
        let nothing_yet = Report { increments_per_s: 1.0, ..Report::default() };
        assert_eq!(too_little(&moment, &nothing_yet), [""; 0], "too short to say");
        let quiet = SoakOptions { fault_every: 0.0, ..options.clone() };
        assert!(too_little(&quiet, &Report { faults: BTreeMap::new(), ..good }).is_empty());
    }
}
