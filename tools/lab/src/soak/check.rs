//! The account at the end of a soak: what front ends know against what every data centre shows.

use std::collections::BTreeSet;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tidemark_client::{Client, CounterName, Neighbours, ReadAt, Reading};
use tokio::time::sleep;

use super::Report;
use super::account::{Account, HitFate};
use super::awards;
use super::cluster::{AggregatorAt, NAMESPACE, SoakCluster};
use super::edges::{self, WithEdges};
use super::load::HITS;
use super::verdict::{self, Difference, Expected, Totals};
use tidemark_server::api::body::{AwardBody, AwardsBody};
use tidemark_server::certificate::Voters;

const POLL: Duration = Duration::from_millis(500);
/// An aggregator that refuses to be read is asked again so long after it must show everything.
const READ_PATIENCE: Duration = Duration::from_secs(10);
/// Awards of one page.
const AWARDS_PAGE: usize = 1_000;
/// Certificates are fetched from this aggregator.
const WHERE_CERTIFIED: AggregatorAt = AggregatorAt { dc: 0, which: 0 };

/// Fills the report in.
pub async fn all(cluster: &SoakCluster, account: &Account, every: u64, within: Duration, report: &mut Report) {
    let Totals { asked, unknown, refused, .. } = Totals::of(account);
    (report.increments, report.hits, report.unknown, report.refused) = (asked, account.hits(), unknown, refused);
    let lost = [HitFate::Unknown, HitFate::Refused].map(|fate| account.hits_that_are(fate));
    report.durable = report.hits - lost.iter().sum::<u64>();
    report.violations.extend(verdict::of_what_was_told(account));
    let expected = verdict::expected(account);
    report.counters = expected.len() as u64;
    let totals = edges::totals(account, &expected);
    report.edge_changes = account.0.iter().map(|of| of.edge_changes).sum();
    report.edges = account.0.iter().map(|of| of.edges.len() as u64).sum();
    report.totals = totals.len() as u64;
    report.totals_reached_twice = totals.iter().filter(|of| of.reached_twice).count() as u64;
    for at in cluster.aggregators() {
        view(cluster, at, &expected, &totals, within, report).await;
    }
    awards(cluster, account, every, within, report).await;
    // The values that all show when they no longer change: nothing comes after them.
    if report.violations.is_empty() {
        for at in cluster.aggregators() {
            view(cluster, at, &expected, &totals, Duration::ZERO, report).await;
        }
    }
}

/// Waits so long until an aggregator shows the required values of counters, and of those with edges. Says what is missing or too much if
/// it does not.
async fn view(
    cluster: &SoakCluster,
    at: AggregatorAt,
    own: &[Expected],
    totals: &[WithEdges],
    within: Duration,
    report: &mut Report,
) {
    let name = cluster.name_of(at);
    let client = match cluster.client_credentials() {
        Ok(credentials) => Client::builder().credentials(credentials).site(cluster.site(at)).connect().await,
        Err(error) => return report.violations.push(error.to_string()),
    };
    let client = match client {
        Ok(client) => client,
        Err(error) => return report.violations.push(error.to_string()),
    };
    let deadline = Instant::now() + within;
    let own_names: Vec<CounterName> = own.iter().map(|of| of.counter.clone()).collect();
    let values = async || client.get_many(&own_names).await.map_err(|error| error.to_string());
    if let Some((found, difference)) = compared(own, deadline, values).await {
        report.lost += difference.lost();
        report.doubled += difference.doubled();
        report.violations.push(format!("{name}: {found}"));
    }
    let sums_expected: Vec<Expected> = totals.iter().map(|of| of.total.clone()).collect();
    let names: Vec<CounterName> = sums_expected.iter().map(|of| of.counter.clone()).collect();
    let sums = async || {
        let read = client.read_at(ReadAt::of(names.clone()).total()).await.map_err(|error| error.to_string())?;
        Ok(read.counters.into_iter().map(|of| of.reading).collect())
    };
    // Increments that one counter lost are missing in all totals to which it flows: they are not counted among the losses there.
    let found = compared(&sums_expected, deadline, sums).await;
    report.violations.extend(found.map(|(found, _)| format!("{name}: of totals {found}")));
    for WithEdges { total, parents, .. } in totals {
        let found = parents_of(&client, &total.counter, parents, deadline).await;
        report.violations.extend(found.map(|found| format!("{name}: {found}")));
    }
}

/// Asks until edges lead to a counter from those from which they should; returns the remaining faults.
async fn parents_of(
    client: &Client,
    counter: &CounterName,
    should: &BTreeSet<CounterName>,
    deadline: Instant,
) -> Option<String> {
    loop {
        let page = Neighbours::first().limit(should.len() + 1);
        match client.parents(counter, page).await.map(|read| BTreeSet::from_iter(read.counters)) {
            Ok(shown) if shown == *should => return None,
            Ok(shown) if Instant::now() > deadline => {
                return Some(format!("to {counter} lead edges from {shown:?}, and should from {should:?}"));
            }
            Err(error) if Instant::now() > deadline + READ_PATIENCE => {
                return Some(format!("the edges to {counter} cannot be read: {error}"));
            }
            _ => sleep(POLL).await,
        }
    }
}

/// Reads until the values are those that they must be; returns the remaining faults.
async fn compared(
    expected: &[Expected],
    deadline: Instant,
    read: impl AsyncFn() -> Result<Vec<Reading>, String>,
) -> Option<(String, Difference)> {
    loop {
        let read = read().await;
        let late = Instant::now() > deadline;
        match read {
            Ok(readings) => {
                let shown: Vec<u64> = readings.iter().map(|reading| reading.up + reading.pending).collect();
                let difference = Difference::new(expected, &shown);
                let pending: u64 = readings.iter().map(|reading| reading.pending).sum();
                if difference.is_nothing() && pending == 0 {
                    return None;
                }
                if late {
                    return Some((format!("{difference}, {pending} without a place"), difference));
                }
            }
            Err(error) if Instant::now() > deadline + READ_PATIENCE => {
                return Some((format!("it cannot be read: {error}"), Difference::default()));
            }
            Err(_) => {}
        }
        sleep(POLL).await;
    }
}

/// Waits until all aggregators show the awards that they must, and each has a certificate; says what is wrong if they do not.
async fn awards(cluster: &SoakCluster, account: &Account, every: u64, within: Duration, report: &mut Report) {
    let deadline = Instant::now() + within;
    let (shown, judged) = loop {
        let mut shown = Vec::new();
        for at in cluster.aggregators() {
            shown.push((cluster.name_of(at).to_owned(), all_awards(cluster, at).await.unwrap_or_default()));
        }
        let judged = awards::judge(account, every, &shown);
        if judged.found.is_empty() || Instant::now() > deadline {
            break (shown, judged);
        }
        sleep(POLL).await;
    };
    (report.milestones, report.awards) = (judged.milestones, judged.awards);
    (report.awarded_twice, report.awards_untold) = (judged.twice, judged.untold);
    report.violations.extend(judged.found);
    let (_, of_one) = &shown[0];
    for award in of_one {
        match certificate(cluster, award, deadline).await {
            Ok(()) => report.certificates += 1,
            Err(why) => report.violations.push(format!("the certificate of milestone {}: {why}", award.at)),
        }
    }
}

/// Waits until an award's certificate is believed: voters sign one after the other.
async fn certificate(cluster: &SoakCluster, award: &AwardBody, deadline: Instant) -> Result<(), String> {
    let voters = Voters::Named(cluster.voters().map(str::to_owned).collect());
    let path = format!("/v1/awards/{NAMESPACE}/{HITS}/{}/certificate", award.at);
    loop {
        let text = cluster.ask(WHERE_CERTIFIED, &path).await.ok_or("there is none");
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let checked = match &text {
            Ok(text) => awards::certified(text, award, cluster.anchor(), &voters, now),
            Err(why) => Err((*why).to_owned()),
        };
        if checked.is_ok() || Instant::now() > deadline {
            return checked;
        }
        sleep(POLL).await;
    }
}

/// The awards that an aggregator shows, all pages of them.
async fn all_awards(cluster: &SoakCluster, at: AggregatorAt) -> Option<Vec<AwardBody>> {
    let mut found = Vec::new();
    let mut after = String::new();
    loop {
        let path = format!("/v1/awards?counter={NAMESPACE}/{HITS}&limit={AWARDS_PAGE}{after}");
        let page: AwardsBody = serde_json::from_str(&cluster.ask(at, &path).await?).ok()?;
        found.extend(page.awards);
        match page.next {
            Some(next) => after = format!("&after={next}"),
            None => return Some(found),
        }
    }
}
