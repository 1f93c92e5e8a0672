//! The account at the end of a soak: what front ends know against what every data centre shows.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tidemark_client::{Client, CounterName};
use tokio::time::sleep;

use super::Report;
use super::account::{Account, HitFate};
use super::cluster::{NAMESPACE, SoakCluster};
use super::load::HITS;
use super::verdict::{self, Difference, Expected, Totals};

const POLL: Duration = Duration::from_millis(500);
/// Awards of one page.
const AWARDS_PAGE: usize = 1_000;

/// Fills the report in.
pub async fn all(cluster: &SoakCluster, account: &Account, every: u64, within: Duration, report: &mut Report) {
    let Totals { asked, unknown, refused, .. } = Totals::of(account);
    (report.increments, report.hits, report.unknown, report.refused) = (asked, account.hits(), unknown, refused);
    let lost = [HitFate::Unknown, HitFate::Refused].map(|fate| account.hits_that_are(fate));
    report.durable = report.hits - lost.iter().sum::<u64>();
    report.violations.extend(verdict::of_what_was_told(account));
    let expected = verdict::expected(account);
    report.counters = expected.len() as u64;
    for at in cluster.aggregators() {
        view(cluster, at, &expected, within, report).await;
    }
    let least = expected[0].least;
    for at in cluster.aggregators() {
        awards(cluster, at, every, least, within, report).await;
    }
    let mut won = BTreeMap::<u64, u64>::new();
    account.milestones().for_each(|(_, at, _)| *won.entry(at).or_default() += 1);
    for (at, times) in won.iter().filter(|(_, times)| **times > 1) {
        report.awarded_twice += 1;
        report.violations.push(format!("{times} hits were told to be the milestone {at}"));
    }
}

/// Waits until an aggregator shows what it must, and says what is missing or too much if it does not.
async fn view(cluster: &SoakCluster, at: (usize, usize), expected: &[Expected], within: Duration, report: &mut Report) {
    let name = cluster.name_of(at);
    let names: Vec<CounterName> = expected.iter().map(|expected| expected.counter.clone()).collect();
    let client = match cluster.client_credentials() {
        Ok(credentials) => Client::builder().credentials(credentials).site(cluster.site(at)).connect().await,
        Err(error) => return report.violations.push(error.to_string()),
    };
    let client = match client {
        Ok(client) => client,
        Err(error) => return report.violations.push(error.to_string()),
    };
    let deadline = Instant::now() + within;
    loop {
        let read = client.get_many(&names).await;
        let late = Instant::now() > deadline;
        match read {
            Ok(readings) => {
                let shown: Vec<u64> = readings.iter().map(|reading| reading.up + reading.pending).collect();
                let difference = Difference::new(expected, &shown);
                let pending: u64 = readings.iter().map(|reading| reading.pending).sum();
                if difference.is_nothing() && pending == 0 {
                    return;
                }
                if late {
                    report.lost += difference.lost();
                    report.doubled += difference.doubled();
                    return report.violations.push(format!("{name}: {difference}, {pending} without a place"));
                }
            }
            Err(error) if late => return report.violations.push(format!("{name} cannot be read: {error}")),
            Err(_) => {}
        }
        sleep(POLL).await;
    }
}

/// Each multiple of `every` that was reached has one award.
async fn awards(
    cluster: &SoakCluster,
    at: (usize, usize),
    every: u64,
    reached: u64,
    within: Duration,
    report: &mut Report,
) {
    let deadline = Instant::now() + within;
    let wanted = reached / every;
    loop {
        let found = all_awards(cluster, at).await;
        let whole = found.as_ref().is_some_and(|found| (1..=wanted).all(|n| found.contains_key(&(n * every))));
        if !whole && Instant::now() < deadline {
            sleep(POLL).await;
            continue;
        }
        let found = found.unwrap_or_default();
        (report.milestones, report.awards) = (report.milestones.max(wanted), report.awards.max(found.len() as u64));
        let missing: Vec<u64> = (1..=wanted).map(|n| n * every).filter(|at| !found.contains_key(at)).collect();
        let twice: Vec<u64> = found.iter().filter(|(_, times)| **times > 1).map(|(at, _)| *at).collect();
        report.awarded_twice += twice.len() as u64;
        if !missing.is_empty() || !twice.is_empty() {
            let name = cluster.name_of(at);
            report.violations.push(format!("{name}: milestones {missing:?} without an award, {twice:?} with several"));
        }
        return;
    }
}

/// How many awards there are of each milestone.
async fn all_awards(cluster: &SoakCluster, at: (usize, usize)) -> Option<BTreeMap<u64, u64>> {
    let mut found = BTreeMap::<u64, u64>::new();
    let mut after = String::new();
    loop {
        let path = format!("/v1/awards?counter={NAMESPACE}/{HITS}&limit={AWARDS_PAGE}{after}");
        let page = cluster.ask(at, &path).await?;
        for award in page["awards"].as_array()? {
            *found.entry(award["at"].as_u64()?).or_default() += 1;
        }
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => return Some(found),
        }
    }
}
