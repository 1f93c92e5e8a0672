//! Changes of edges that come together: front ends of three continents insert one edge at a time, each of its own counters, as a site does
//! that lets each answer's counts flow to its question. The data centres are in this process, real ones with links as slow as the
//! reference's.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tidemark_client::{ChangeError, Client, CounterName, EdgeChanges, Site};
use tidemark_consensus::local::RowStore;
use tokio::task::JoinSet;

use super::cluster::Folder;
use super::line::{Asked, Sample};
use super::{BenchError, Meter, Plan};
use tidemark::layout::Layout;
use tidemark::local::{LocalCluster, LocalOptions};

const DCS: [&str; 3] = ["usa-1", "europe-1", "asia-0"];
const NAMESPACE: &str = "site";
const SECONDS: f64 = 20.0;
/// Changes of each data centre that are under way at a time.
const AT_ONCE: usize = 16;
/// Counters to which those of others flow.
const QUESTIONS: u64 = 1_000;
/// An election, and a namespace that becomes known.
const PATIENCE: Duration = Duration::from_secs(30);
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// The result of one data centre's front end.
struct Done {
    made: u64,
    contended: u64,
    ms: Histogram<u64>,
}

/// `edge-changes`.
pub fn run(plan: &Plan) -> Result<Vec<Sample>, BenchError> {
    let folder = Folder::new()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.map_err(BenchError::io("the runtime"))?.block_on(measure(plan, folder.path()))
}

async fn measure(plan: &Plan, folder: &Path) -> Result<Vec<Sample>, BenchError> {
    let cluster = LocalCluster::start(LocalOptions {
        layout: Layout::part(&DCS).map_err(BenchError::setup)?,
        data_dir: folder.to_owned(),
        cluster: "bench".to_owned(),
        namespaces: vec![NAMESPACE.to_owned()],
        updown: Vec::new(),
        series: Vec::new(),
        base_port: None,
        jitter_ms: 0.0,
        loss: 0.0,
        flush_delay: plan.flush_delay,
        rows: RowStore::Beside,
        seed: u64::from(plan.run),
    });
    let cluster = cluster.await.map_err(BenchError::setup)?;
    let seconds = plan.seconds_or(SECONDS);
    let mut loads = JoinSet::new();
    let mut clients = Vec::new();
    for (dc, name) in DCS.into_iter().enumerate() {
        let local = &cluster.dcs[dc];
        let site = Site {
            dc: name.into(),
            nodes: vec![local.node_addr.into()],
            aggregator: Some(local.aggregator_addr.into()),
        };
        let credentials = cluster.client_credentials(dc, "bench").map_err(BenchError::setup)?;
        let builder = Client::builder().credentials(credentials).read_timeout(READ_TIMEOUT).site(site);
        let client = builder.connect().await.map_err(BenchError::setup)?;
        begins(&client, dc).await?;
        clients.push(client);
    }
    let meter = Meter::start();
    let begun = Instant::now();
    for (dc, client) in clients.into_iter().enumerate() {
        loads.spawn(load(client, dc, begun + Duration::from_secs_f64(seconds)));
    }
    let mut all: Vec<(usize, Done)> = loads.join_all().await.into_iter().collect::<Result<_, BenchError>>()?;
    let cpu_s = meter.cpu_s();
    let took_s = begun.elapsed().as_secs_f64();
    all.sort_by_key(|(dc, _)| *dc);
    let index = cluster.leader().aggregator.with_ledger(|ledger| ledger.graph().index());
    cluster.stop().await;
    let made: u64 = all.iter().map(|(_, done)| done.made).sum();
    if index != made + DCS.len() as u64 {
        let reason = format!("{index} changes of the graph, {made} and {} were made", DCS.len());
        return Err(BenchError::Failed { who: "the ledger".to_owned(), reason });
    }
    Ok(samples(&all, made as f64 / took_s, cpu_s, took_s))
}

fn samples(all: &[(usize, Done)], per_s: f64, cpu_s: Option<f64>, took_s: f64) -> Vec<Sample> {
    let all_of_them =
        Asked::rate(format!("changes of one edge, {AT_ONCE} at a time in each of three continents"), "/s");
    let mut samples = vec![all_of_them.is(per_s).costing(cpu_s, took_s)];
    for (dc, Done { made, ms, .. }) in all {
        let name = DCS[*dc];
        samples.push(Asked::rate(format!("of these in {name}"), "/s").is(*made as f64 / took_s));
        for (what, quantile) in [("median", 0.5), ("p99", 0.99)] {
            let figure = Asked::cost(format!("in {name} until the ledger has it there, {what}"), "ms");
            samples.push(figure.is(ms.value_at_quantile(quantile) as f64));
        }
    }
    let contended: u64 = all.iter().map(|(_, done)| done.contended).sum();
    samples.push(Asked::cost("given up, as others came first each time", "").must(0.0).is(contended as f64));
    samples
}

fn name(kind: &str, dc: usize, number: u64) -> Result<CounterName, BenchError> {
    CounterName::new(NAMESPACE, format!("{kind}/{dc}/{number}").as_bytes()).map_err(BenchError::setup)
}

fn posted(dc: usize, number: u64) -> Result<EdgeChanges, BenchError> {
    let answer = name("answer", dc, number)?;
    let question = name("question", dc, number % QUESTIONS)?;
    Ok(EdgeChanges::new().insert(&answer, &question).allow_unknown())
}

/// Until a first change is made: the ledger has a leader then, and knows the namespace.
async fn begins(client: &Client, dc: usize) -> Result<(), BenchError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match client.change_edges(posted(dc, u64::MAX)?).await {
            Ok(_) => return Ok(()),
            Err(error) if Instant::now() >= deadline => {
                return Err(BenchError::Failed { who: DCS[dc].to_owned(), reason: error.to_string() });
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

/// Changes one edge after the other, a number of them at a time.
async fn load(client: Client, dc: usize, until: Instant) -> Result<(usize, Done), BenchError> {
    let next = Arc::new(AtomicU64::new(0));
    let mut workers = JoinSet::new();
    for _ in 0..AT_ONCE {
        workers.spawn(work(client.clone(), dc, next.clone(), until));
    }
    let mut all = Done { made: 0, contended: 0, ms: histogram()? };
    for done in workers.join_all().await {
        let Done { made, contended, ms } = done?;
        all.made += made;
        all.contended += contended;
        all.ms.add(ms).map_err(BenchError::setup)?;
    }
    Ok((dc, all))
}

async fn work(client: Client, dc: usize, next: Arc<AtomicU64>, until: Instant) -> Result<Done, BenchError> {
    let mut done = Done { made: 0, contended: 0, ms: histogram()? };
    while Instant::now() < until {
        let begun = Instant::now();
        let number = next.fetch_add(1, Ordering::Relaxed);
        match client.change_edges(posted(dc, number)?).await {
            Ok(_) => {
                done.made += 1;
                done.ms.record(begun.elapsed().as_millis() as u64).map_err(BenchError::setup)?;
            }
            Err(ChangeError::Contended) => done.contended += 1,
            Err(error) => return Err(BenchError::Failed { who: DCS[dc].to_owned(), reason: error.to_string() }),
        }
    }
    Ok(done)
}

fn histogram() -> Result<Histogram<u64>, BenchError> {
    Histogram::new(3).map_err(BenchError::setup)
}
