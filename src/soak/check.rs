//! The account at the end of a soak: what front ends know against what every data centre shows.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use tidemark_client::{Client, CounterName};
use tokio::time::sleep;

use super::Report;
use super::cluster::{NAMESPACE, SoakCluster};
use super::load::{Added, Counted, HITS, hits, key};

const POLL: Duration = Duration::from_millis(500);
/// Awards of one page.
const AWARDS_PAGE: usize = 1_000;

/// What a counter must show: at least, at most.
type Expected = (CounterName, u64, u64);

/// Fills the report in.
pub async fn all(cluster: &SoakCluster, counted: &Counted, every: u64, within: Duration, report: &mut Report) {
    let adds = counted.adds.lock().expect("nobody panics").clone();
    report.hits = counted.hits.load(Relaxed);
    report.increments = report.hits + adds.iter().map(|added| added.added).sum::<u64>();
    report.durable = counted.durable.load(Relaxed);
    report.unknown = counted.unknown.load(Relaxed) + adds.iter().map(|added| added.unknown).sum::<u64>();
    report.longest_ms = counted.longest_us.load(Relaxed) as f64 / 1_000.0;
    report.violations.extend(counted.unfinished.lock().expect("nobody panics").iter().cloned());
    let failed = counted.failed.load(Relaxed) + adds.iter().map(|added| added.failed).sum::<u64>();
    if failed > 0 {
        report.violations.push(format!("{failed} increments were refused"));
    }
    let expected = expected(counted, &adds);
    for at in cluster.aggregators() {
        view(cluster, at, &expected, within, report).await;
    }
    let least = expected[0].1;
    for at in cluster.aggregators() {
        awards(cluster, at, every, least, within, report).await;
    }
    for (at, times) in counted.won.lock().expect("nobody panics").iter().filter(|(_, times)| **times > 1) {
        report.awarded_twice += 1;
        report.violations.push(format!("{times} hits were told to be the milestone {at}"));
    }
}

fn expected(counted: &Counted, adds: &[Added]) -> Vec<Expected> {
    let unknown = counted.unknown.load(Relaxed);
    let sure = counted.hits.load(Relaxed) - unknown - counted.failed.load(Relaxed);
    let of_key = |(number, added): (usize, &Added)| {
        let most = added.added - added.failed;
        (key(number), most - added.unknown, most)
    };
    std::iter::once((hits(), sure, sure + unknown)).chain(adds.iter().enumerate().map(of_key)).collect()
}

/// Waits until an aggregator shows what it must, and says what is missing or too much if it does not.
async fn view(cluster: &SoakCluster, at: (usize, usize), expected: &[Expected], within: Duration, report: &mut Report) {
    let name = cluster.name_of(at);
    let names: Vec<CounterName> = expected.iter().map(|(name, ..)| name.clone()).collect();
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
                let (lost, doubled) = difference(expected, &shown);
                let pending: u64 = readings.iter().map(|reading| reading.pending).sum();
                if (lost, doubled, pending) == (0, 0, 0) {
                    return;
                }
                if late {
                    report.lost += lost;
                    report.doubled += doubled;
                    let told = format!("{name}: {lost} lost, {doubled} doubled, {pending} without a place");
                    return report.violations.push(told);
                }
            }
            Err(error) if late => return report.violations.push(format!("{name} cannot be read: {error}")),
            Err(_) => {}
        }
        sleep(POLL).await;
    }
}

fn difference(expected: &[Expected], shown: &[u64]) -> (u64, u64) {
    let each = expected.iter().zip(shown);
    each.fold((0, 0), |(lost, doubled), ((_, least, most), shown)| {
        (lost + least.saturating_sub(*shown), doubled + shown.saturating_sub(*most))
    })
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
