//! How soon a process that was killed answers again: `kill -9` under full load with a million cells, then from its start to the first
//! answer. The probes are processes of their own that try again and again, many attempts at a time. A handshake that begins before the
//! process listens would wait for its own retransmission.

use std::error::Error;
use std::future::Future;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tidemark_client::GroupSite;
use tidemark_proto::ids::{ClientId, CounterName, OwnerId};
use tidemark_proto::msg::{FromClient, ToClient, WireItem};
use tidemark_proto::read::{ReadRequest, ReadResponse};
use tidemark_proto::wire::{self, channel};
use tidemark_transport::{Channel, Credentials, Endpoint, EndpointOptions, PeerName, Role};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::child::TaskChild;
use super::cluster::{Cluster, NAMESPACE};
use super::line::{Asked, Sample};
use super::load::{Content, Draw, LoadTask, Pace, name};
use super::task::{Place, Said, Task, wait_for_start};
use super::{BenchError, Plan, node, reads};

const CELLS: usize = 1_000_000;
/// Deltas a second while it is killed.
const RATE_PER_S: f64 = 1_000_000.0;
const ROUND_MS: u64 = 20;
/// It is under load for so long before.
const LOADED_S: f64 = 3.0;
/// Kills of each process in one run.
const KILLS: usize = 4;
/// Between two attempts of a probe, and how long one may take.
const ATTEMPT_EVERY: Duration = Duration::from_millis(25);
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);
/// A process that does not answer for so long is lost.
const GIVE_UP: Duration = Duration::from_secs(300);
/// The counter of attempts, which no load counts.
const PROBE: &[u8] = b"probe";
const REFUSED_POLL: Duration = Duration::from_millis(2);

/// `recovery`: kills the node and the aggregator in turn.
pub fn run(plan: &Plan) -> Result<Vec<Sample>, BenchError> {
    let cells = plan.size_or(CELLS);
    let mut cluster = Cluster::start(plan.flush_delay)?;
    reads::fill(&mut cluster, plan, cells)?;
    let mut samples = Vec::new();
    for _ in 0..KILLS {
        let ms = kill(&mut cluster, plan, cells, Victim::Node)?;
        samples.push(
            Asked::cost("node killed under load: start to first durable answer", "ms")
                .must(5_000.0)
                .aim(2_000.0)
                .is(ms),
        );
        let ms = kill(&mut cluster, plan, cells, Victim::Aggregator)?;
        samples.push(Asked::cost("aggregator killed: start to first read", "ms").must(5_000.0).aim(2_000.0).is(ms));
    }
    Ok(samples)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Victim {
    Node,
    Aggregator,
}

/// Loads, kills, starts again; milliseconds from the start to the first answer.
fn kill(cluster: &mut Cluster, plan: &Plan, cells: usize, victim: Victim) -> Result<f64, BenchError> {
    let content = Content::Deltas { keys: cells, round_ms: ROUND_MS, draw: Draw::InTurn };
    let task = node::task(cluster, plan, content, Pace::Rate { per_s: plan.rate_or(RATE_PER_S) });
    let mut loading = TaskChild::start("load", &Task::Load(LoadTask { seconds: 600.0, ..task }), cluster.folder())?;
    let probe = match victim {
        Victim::Node => Task::ProbeNode(cluster.place()),
        Victim::Aggregator => Task::ProbeAggregator(cluster.place()),
    };
    let mut probe = TaskChild::start("probe", &probe, cluster.folder())?;
    probe.wait_ready()?;
    loading.wait_ready()?;
    loading.go()?;
    loading.wait_for(Duration::from_secs(10), |said| matches!(said, Said::Measuring).then_some(()))?;
    std::thread::sleep(Duration::from_secs_f64(plan.seconds_or(LOADED_S)));
    match victim {
        Victim::Node => cluster.kill_node(0),
        Victim::Aggregator => cluster.kill_aggregator(),
    }
    let started_unix_us = unix_us();
    match victim {
        Victim::Node => cluster.start_node(0)?,
        Victim::Aggregator => cluster.start_aggregator()?,
    }
    probe.go()?;
    let answered = probe.wait_for(GIVE_UP, |said| match said {
        Said::Answered { unix_us } => Some(unix_us),
        _ => None,
    })?;
    drop(loading);
    cluster.wait_ready()?;
    Ok(answered.saturating_sub(started_unix_us) as f64 / 1_000.0)
}

/// Kills the node and the aggregator and starts both again; seconds from there to the first durable answer, and to the first read.
///
/// # Errors
/// A process does not come back.
pub fn kill_all(cluster: &mut Cluster) -> Result<(f64, f64), BenchError> {
    let tasks = [Task::ProbeNode(cluster.place()), Task::ProbeAggregator(cluster.place())];
    let mut probes = Vec::new();
    for (who, task) in ["probe-node", "probe-aggregator"].iter().zip(&tasks) {
        let mut probe = TaskChild::start(who, task, cluster.folder())?;
        probe.wait_ready()?;
        probes.push(probe);
    }
    cluster.kill_node(0);
    cluster.kill_aggregator();
    let started_unix_us = unix_us();
    cluster.start_node(0)?;
    cluster.start_aggregator()?;
    probes.iter_mut().try_for_each(TaskChild::go)?;
    let answered = probes.iter_mut().map(|probe| {
        let answered = probe.wait_for(GIVE_UP, |said| match said {
            Said::Answered { unix_us } => Some(unix_us),
            _ => None,
        })?;
        Ok(answered.saturating_sub(started_unix_us) as f64 / 1e6)
    });
    let seconds = answered.collect::<Result<Vec<f64>, BenchError>>()?;
    Ok((seconds[0], seconds[1]))
}

fn unix_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}

// ---- the other process ----

/// When the first increment was durable.
///
/// # Errors
/// No answer came within [`GIVE_UP`].
pub async fn probe_node(place: &Place) -> Result<u64, Box<dyn Error>> {
    let endpoint = endpoint(place)?;
    first(|| count_once(endpoint.clone(), place.clone())).await
}

/// When the first read was answered.
///
/// # Errors
/// No answer came within [`GIVE_UP`].
pub async fn probe_aggregator(place: &Place) -> Result<u64, Box<dyn Error>> {
    let endpoint = endpoint(place)?;
    first(|| read_once(endpoint.clone(), place.clone())).await
}

fn endpoint(place: &Place) -> Result<Endpoint, Box<dyn Error>> {
    let credentials = Credentials::load(&place.credentials)?;
    Ok(Endpoint::bind(([127, 0, 0, 1], 0).into(), credentials, EndpointOptions::default())?)
}

/// Starts an attempt every few milliseconds until one has succeeded.
async fn first<F>(mut attempt: impl FnMut() -> F) -> Result<u64, Box<dyn Error>>
where
    F: Future<Output = Option<()>> + Send + 'static,
{
    if !wait_for_start().await? {
        return Err("nobody waits for the answer".into());
    }
    let mut attempts = JoinSet::new();
    let mut ticks = interval(ATTEMPT_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let succeeded = async {
        loop {
            tokio::select! {
                _ = ticks.tick() => drop(attempts.spawn(timeout(ATTEMPT_TIMEOUT, attempt()))),
                Some(done) = attempts.join_next() => if let Ok(Ok(Some(()))) = done {
                    return unix_us();
                },
            }
        }
    };
    Ok(timeout(GIVE_UP, succeeded).await.map_err(|_| format!("no answer within {} s", GIVE_UP.as_secs()))?)
}

async fn count_once(endpoint: Endpoint, place: Place) -> Option<()> {
    let peer = PeerName::any(&place.dc, Role::Node).ok()?;
    let site = GroupSite::new(place.nodes.into(), peer, tidemark::local::GROUP.into());
    let Channel { mut writer, mut reader } = site.open(&endpoint).await.ok()?.1;
    let client = ClientId::new(OwnerId(endpoint.identity().digest()), rand::random());
    writer.send_bytes(wire::encode(&FromClient::Open { client, since: None, asks_known: false }).into()).await.ok()?;
    let counter = CounterName::new(NAMESPACE, PROBE).ok()?;
    let items = vec![WireItem { number: 0, delta: 1, session: None }];
    let batch = FromClient::Batch { lane: 0, seq: 1, defs: vec![(0, counter)], items, times: Vec::new() };
    writer.send_bytes(wire::encode(&batch).into()).await.ok()?;
    while let Ok(Some(frame)) = reader.next().await {
        match wire::decode(&frame).ok()? {
            ToClient::Durable { .. } => return Some(()),
            ToClient::Refused { .. } => {
                tokio::time::sleep(REFUSED_POLL).await;
                writer.send_bytes(wire::encode(&batch).into()).await.ok()?;
            }
            _ => {}
        }
    }
    None
}

async fn read_once(endpoint: Endpoint, place: Place) -> Option<()> {
    let peer = PeerName::any(&place.dc, Role::Aggregator).ok()?;
    let connection = endpoint.connect(place.aggregator, &peer).await.ok()?;
    let Channel { mut writer, mut reader } = connection.open_channel(channel::READS).await.ok()?;
    let mut defs = vec![(0, name(0).ok()?)];
    for id in 1.. {
        let request = ReadRequest { id, strong: false, defs: std::mem::take(&mut defs), numbers: vec![0] };
        writer.send_bytes(wire::encode(&request).into()).await.ok()?;
        let response: ReadResponse = wire::decode(&reader.next().await.ok()??).ok()?;
        match response.result {
            // Before the view is there a counter reads as nothing: the fill had counted every one.
            Ok(values) if values.values.first().is_some_and(|value| value.up > 0) => return Some(()),
            _ => tokio::time::sleep(REFUSED_POLL).await,
        }
    }
    None
}
