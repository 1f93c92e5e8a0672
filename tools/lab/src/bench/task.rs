//! The part of a bench in another process, `tidemark bench-child`: one task on its standard input, then its output as lines of JSON on its
//! standard output. A task that has a beginning waits for the line `start`.

use std::io::{BufRead, Write};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tidemark_transport::HostPort;

use super::hot_path::{self, HotPathReport};
use super::live::{SubscribeReport, SubscribeTask};
use super::live_demo::{self, WatchReport, WatchTask};
use super::load::requests::RequestTask;
use super::load::{self, LoadReport, LoadTask};
use super::reads::{ReadReport, ReadTask};
use super::replicas::{CountReport, CountTask};
use super::{memory, recovery, replicas};

/// The hidden subcommand.
pub const SUBCOMMAND: &str = "bench-child";

/// The task of the child.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Task {
    Load(LoadTask),
    /// Count into PostgreSQL.
    #[cfg(feature = "postgres")]
    Postgres(load::postgres::PostgresTask),
    Read(ReadTask),
    /// Increments one by one, over connections that wait for each answer.
    Requests(RequestTask),
    Subscribe(SubscribeTask),
    Watch(WatchTask),
    /// Count by the client library, and say how long answers took.
    Count(CountTask),
    /// Count once as soon as the node answers, and say when.
    ProbeNode(Place),
    /// Read once as soon as the aggregator answers, and say when.
    ProbeAggregator(Place),
    /// Count in this process only, and say what it costs.
    HotPath {
        adds: usize,
    },
    /// Fill a node's core, and say what a cell takes.
    HoldNode {
        cells: usize,
    },
    /// The same for a view that receives counts of this number of data centres.
    HoldView {
        cells: usize,
        dcs: u16,
    },
}

/// The place of a data centre, and the child's identity there.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Place {
    pub dc: String,
    pub nodes: Vec<HostPort>,
    pub aggregator: HostPort,
    pub credentials: PathBuf,
}

/// The output of the child.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Said {
    /// Everything is connected; it waits for `start`.
    Ready,
    /// From here on it measures.
    Measuring,
    /// Up to here.
    Measured,
    Loaded(LoadReport),
    Read(ReadReport),
    Subscribed(SubscribeReport),
    Watched(WatchReport),
    Counted(CountReport),
    /// When the first answer came, microseconds since 1970.
    Answered {
        unix_us: u64,
    },
    HotPath(HotPathReport),
    BytesPerCell(f64),
    /// The last line.
    Failed {
        reason: String,
    },
}

/// Runs the child: reads its task and does it.
///
/// # Errors
/// The error, which has also been printed.
pub fn run() -> Result<(), Box<dyn std::error::Error>> {
    let done = read_task().and_then(|task| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(perform(task))
    });
    if let Err(error) = &done {
        say(&Said::Failed { reason: error.to_string() })?;
    }
    done
}

async fn perform(task: Task) -> Result<(), Box<dyn std::error::Error>> {
    match task {
        Task::Load(task) => say(&Said::Loaded(load::run(task).await?))?,
        #[cfg(feature = "postgres")]
        Task::Postgres(task) => say(&Said::Loaded(load::postgres::run(task).await?))?,
        Task::Requests(task) => say(&Said::Loaded(load::requests::run(task).await?))?,
        Task::Read(task) => say(&Said::Read(super::reads::read(task).await?))?,
        Task::Subscribe(task) => drop(super::live::subscribe(task).await?),
        Task::Watch(task) => say(&Said::Watched(live_demo::watch(task).await?))?,
        Task::Count(task) => say(&Said::Counted(replicas::count(task).await?))?,
        Task::HotPath { adds } => say(&Said::HotPath(hot_path::count(adds).await?))?,
        Task::HoldNode { cells } => say(&Said::BytesPerCell(memory::hold_node(cells)?))?,
        Task::HoldView { cells, dcs } => say(&Said::BytesPerCell(memory::hold_view(cells, dcs)?))?,
        Task::ProbeNode(place) => say(&Said::Answered { unix_us: recovery::probe_node(&place).await? })?,
        Task::ProbeAggregator(place) => say(&Said::Answered { unix_us: recovery::probe_aggregator(&place).await? })?,
    }
    Ok(())
}

fn read_task() -> Result<Task, Box<dyn std::error::Error>> {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}

/// Says something to the parent.
pub(super) fn say(said: &Said) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, said)?;
    out.write_all(b"\n")?;
    out.flush()
}

/// Says that everything is ready and waits until the parent says `start`; false when the parent is gone.
pub(super) async fn wait_for_start() -> std::io::Result<bool> {
    say(&Said::Ready)?;
    let read = tokio::task::spawn_blocking(|| std::io::stdin().lock().read_line(&mut String::new()));
    Ok(read.await.map_err(std::io::Error::other)?? > 0)
}
