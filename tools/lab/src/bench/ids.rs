//! Increments with ids: what each takes of a group's memory, and how many are counted over HTTP beside such without an id, in one run.

use std::error::Error;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tidemark_proto::group::{Group, GroupConfig};
use tidemark_proto::ids::{ClientId, CounterName, DcId, GroupId, LogIndex, Start};
use tidemark_proto::limits::IDS_KEPT_AGES;
use tidemark_proto::msg::{Batch, GroupCmd, GroupEntry, Item, ItemId, Keyed, ToGroup};
use tidemark_proto::time::WallMs;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::cluster::{Cluster, NAMESPACE};
use super::line::{Asked, Sample};
use super::memory::{growth, resident_mib};
use super::{BenchError, Meter, Plan};
use tidemark_server::names::sha256_prefix;

const IDS: usize = 1_000_000;
const IDS_PER_BATCH: usize = 1_000;
const BYTES_MUST: f64 = 64.0;
const BYTES_AIM: f64 = 40.0;
const SECONDS: f64 = 5.0;
/// Each with one request under way.
const CONNECTIONS: usize = 256;
/// Rounds of both kinds, one after the other.
const ROUNDS: usize = 3;
const SHARE_MUST: f64 = 0.8;
const SHARE_AIM: f64 = 0.95;
const KEY: &str = "ids";

/// Runs once.
pub fn run(plan: &Plan) -> Result<Vec<Sample>, BenchError> {
    let ids = plan.size_or(IDS);
    let bytes = hold(ids).map_err(BenchError::setup)?;
    let mut samples =
        vec![Asked::cost(format!("memory of one id, of {ids}"), "bytes").must(BYTES_MUST).aim(BYTES_AIM).is(bytes)];
    let mut cluster = Cluster::start(plan.flush_delay)?;
    cluster.add(KEY)?;
    let token = cluster.token()?.as_str().to_owned();
    let load = Load { address: cluster.aggregator_http(), token, seconds: plan.seconds_or(SECONDS) };
    let meter = Meter::start();
    let begun = Instant::now();
    let mut without = 0.0;
    let mut with = 0.0;
    for round in 0..ROUNDS {
        without += load.rate(None).map_err(BenchError::setup)? / ROUNDS as f64;
        with += load.rate(Some(plan.run as usize * ROUNDS + round)).map_err(BenchError::setup)? / ROUNDS as f64;
        cluster.check()?;
    }
    let cpu_s = meter.cpu_s();
    let seconds = begun.elapsed().as_secs_f64();
    let per_s = |what: &str, rate| {
        let name = format!("increments over HTTP {what}, {CONNECTIONS} connections");
        Asked::rate(name, "1/s").is(rate).costing(cpu_s, seconds)
    };
    let share = Asked::rate("share of the rate that increments with ids have", "").must(SHARE_MUST).aim(SHARE_AIM);
    samples.extend([per_s("without an id", without), per_s("with an id", with), share.is(with / without)]);
    Ok(samples)
}

/// Fills a group's table over a day of its age; bytes for each id.
fn hold(ids: usize) -> Result<f64, Box<dyn Error>> {
    let id = GroupId { dc: DcId(0), group: 0, incarnation: 1 };
    let mut group = Group::new(GroupConfig::new(id, 1));
    let counter = CounterName::new(NAMESPACE, KEY.as_bytes())?;
    let start = Start { number: 1, nonce: 1 };
    let confirmed = ToGroup::Confirmed { group: id, start, accounts: Vec::new(), resets: 0 };
    let cmds = vec![GroupCmd::Boot { nonce: 1, lanes: 1 }, GroupCmd::Ledger(confirmed)];
    let entry = GroupEntry { now: WallMs(1), first_new_slot: 0, new_cells: vec![counter.total()], cmds };
    group.apply(LogIndex(1), &entry);
    let before = resident_mib();
    let batches = ids.div_ceil(IDS_PER_BATCH);
    for batch in 0..batches {
        let age = (batch * IDS_KEPT_AGES as usize / batches) as u32;
        let mut cmds = Vec::new();
        if group.age() < age {
            cmds.push(GroupCmd::Age(group.age() + 1));
        }
        cmds.push(GroupCmd::Keyed(keyed(batch, IDS_PER_BATCH.min(ids - batch * IDS_PER_BATCH), group.age())));
        let entry = GroupEntry { now: WallMs(1), first_new_slot: 0, new_cells: Vec::new(), cmds };
        group.apply(group.applied().next(), &entry);
        while group.poll_effect().is_some() {}
    }
    if group.ids() as usize != ids {
        return Err(format!("{} of {ids} ids are remembered", group.ids()).into());
    }
    let bytes = growth(before, ids, || Ok(()))?;
    // It is held until here.
    debug_assert_eq!(group.ids() as usize, ids);
    Ok(bytes)
}

fn keyed(batch: usize, ids: usize, age: u32) -> Keyed {
    let id = |n: usize| ItemId {
        digest: sha256_prefix(&[&(batch as u64).to_be_bytes(), &n.to_be_bytes()]),
        content: [1; 8],
        items: 1,
    };
    let items = vec![Item { slot: 0, delta: 1, session: None }; ids];
    let seq = batch as u64 + 1;
    let batch = Batch { client: ClientId(1), lane: 0, seq, since: age, items, times: Vec::new() };
    Keyed { batch, asked: age, ids: (0..ids).map(id).collect() }
}

/// Increments over HTTP, as many as are answered.
struct Load {
    address: SocketAddr,
    token: String,
    seconds: f64,
}

impl Load {
    /// Increments in a second; with ids that are new in each round.
    fn rate(&self, round: Option<usize>) -> Result<f64, Box<dyn Error + Send + Sync>> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        runtime.block_on(async {
            let until = Instant::now() + Duration::from_secs_f64(self.seconds);
            let mut connections = JoinSet::new();
            for connection in 0..CONNECTIONS {
                let prefix = round.map(|round| format!("{}-{round}-{connection}", std::process::id()));
                connections.spawn(count_until(self.address, self.token.clone(), prefix, until));
            }
            let mut counted = 0;
            while let Some(done) = connections.join_next().await {
                counted += done??;
            }
            Ok(counted as f64 / self.seconds)
        })
    }
}

/// Sends one increment after the other over a connection; how many were counted.
async fn count_until(
    address: SocketAddr,
    token: String,
    prefix: Option<String>,
    until: Instant,
) -> Result<u64, Box<dyn Error + Send + Sync>> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let mut counted = 0;
    let mut answer = Vec::new();
    while Instant::now() < until {
        let key = prefix.as_ref().map(|prefix| format!("idempotency-key: {prefix}-{counted}\r\n")).unwrap_or_default();
        let request = format!(
            "POST /v1/counters/{NAMESPACE}/{KEY}/add HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer {token}\r\n{key}\
             content-length: 2\r\n\r\n{{}}"
        );
        stream.write_all(request.as_bytes()).await?;
        answer.clear();
        while !answer.ends_with(b"}") {
            if stream.read_buf(&mut answer).await? == 0 {
                return Err("the connection was ended".into());
            }
        }
        if !answer.starts_with(b"HTTP/1.1 200") {
            return Err(String::from_utf8_lossy(&answer).into_owned().into());
        }
        counted += 1;
    }
    Ok(counted)
}
