//! A load for one node: clients that drive the core of the client library over connections of their own and count what comes
//! back. In a process of its own, on one thread.
//!
//! An open loop sends by time and never by answers; a late increment is sent late and measured from when it was due. A closed loop keeps a
//! number of increments under way and shows what the node takes at most.

mod driver;
mod keys;
#[cfg(feature = "postgres")]
pub mod postgres;
pub mod requests;

pub use keys::{TENANTS, name};

use std::error::Error;
use std::future::Future;
use std::io;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use self::driver::Driver;
use super::task::{Place, Said, say, wait_for_start};
use tidemark_demo::messages::Latency;
use tidemark_transport::{Credentials, Endpoint, EndpointOptions};

/// Longest latency told apart, microseconds (an hour); longer ones count as this.
const LATENCY_US_MAX: u64 = 3_600_000_000;
const DIGITS: u8 = 3;
/// After the end of the load, answers may take so long.
const DRAIN: Duration = Duration::from_secs(30);
const US_PER_S: f64 = 1e6;

/// The parameters of a load.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LoadTask {
    pub place: Place,
    /// Each has a connection of its own.
    pub clients: usize,
    pub content: Content,
    pub pace: Pace,
    /// Before anything is measured.
    pub warm_s: f64,
    pub seconds: f64,
    pub seed: u64,
}

/// The increments of a load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Content {
    /// Single increments of one counter, each with a session of its own.
    Hits { key: String },
    /// Adds to this number of keys of 24 bytes. A client's round is all that it has gathered in `round_ms`.
    Deltas { keys: usize, round_ms: u64, draw: Draw },
}

/// Which key comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Draw {
    /// One key after the other, so that no two of a batch are of one key: as after coalescing.
    InTurn,
    /// By Zipf's law with exponent 1 over the keys of the client, which belong to no other client: the n-th most frequent is counted an
    /// n-th as often as the first, wherever it stands among the keys.
    Zipf,
}

/// How fast.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pace {
    /// An open loop: this number a second, all clients together.
    Rate { per_s: f64 },
    /// A closed loop: this number under way, all clients together.
    Window { items: usize },
    /// Every key once, as a closed loop; then the load ends.
    Once { items: usize },
}

/// The result of a load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadReport {
    /// In all, the time before measuring included.
    pub sent: u64,
    pub acknowledged: u64,
    pub overloaded: u64,
    pub failed: u64,
    pub unknown: u64,
    /// Acknowledged while it was measured, per second.
    pub acknowledged_per_s: f64,
    /// From when an increment (a round of deltas) was due until it was durable.
    pub ack: Latency,
    /// The generator's own: from when it was due until it was handed to the client's core.
    pub lateness: Latency,
}

/// The moments of a load, microseconds since the process's origin.
#[derive(Clone, Copy, Debug)]
struct Moments {
    start_us: u64,
    measure_us: u64,
    end_us: u64,
}

impl Moments {
    fn measures(&self, at_us: u64) -> bool {
        (self.measure_us..self.end_us).contains(&at_us)
    }
}

/// The observations of one client, or of all.
#[derive(Clone, Debug)]
struct Seen {
    sent: u64,
    acknowledged: u64,
    measured: u64,
    overloaded: u64,
    failed: u64,
    unknown: u64,
    ack: Histogram<u64>,
    lateness: Histogram<u64>,
}

impl Default for Seen {
    fn default() -> Seen {
        let empty =
            || Histogram::new_with_bounds(1, LATENCY_US_MAX, DIGITS).expect("the bounds are constants that fit");
        Seen {
            sent: 0,
            acknowledged: 0,
            measured: 0,
            overloaded: 0,
            failed: 0,
            unknown: 0,
            ack: empty(),
            lateness: empty(),
        }
    }
}

impl Seen {
    fn add(&mut self, other: &Seen) {
        self.sent += other.sent;
        self.acknowledged += other.acknowledged;
        self.measured += other.measured;
        self.overloaded += other.overloaded;
        self.failed += other.failed;
        self.unknown += other.unknown;
        self.ack.add(&other.ack).expect("all have the same bounds");
        self.lateness.add(&other.lateness).expect("all have the same bounds");
    }

    fn report(&self, seconds: f64) -> LoadReport {
        LoadReport {
            sent: self.sent,
            acknowledged: self.acknowledged,
            overloaded: self.overloaded,
            failed: self.failed,
            unknown: self.unknown,
            acknowledged_per_s: self.measured as f64 / seconds,
            ack: latency(&self.ack),
            lateness: latency(&self.lateness),
        }
    }
}

/// The marks of a distribution in microseconds.
pub fn latency(histogram: &Histogram<u64>) -> Latency {
    let ms = |quantile: f64| histogram.value_at_quantile(quantile) as f64 / 1_000.0;
    if histogram.is_empty() {
        return Latency::default();
    }
    Latency {
        count: histogram.len(),
        p50_ms: ms(0.5),
        p90_ms: ms(0.9),
        p99_ms: ms(0.99),
        p999_ms: ms(0.999),
        max_ms: ms(1.0),
    }
}

/// Brings the load. Says `Ready`, waits for `start`, says `Measuring` and `Measured`.
///
/// # Errors
/// No connection, or credentials that cannot be read.
pub async fn run(task: LoadTask) -> Result<LoadReport, Box<dyn Error>> {
    let origin = Instant::now();
    let endpoint = Endpoint::bind(
        ([127, 0, 0, 1], 0).into(),
        Credentials::load(&task.place.credentials)?,
        EndpointOptions::default(),
    )?;
    let mut connected = Vec::new();
    for at in 0..task.clients {
        let mut driver = Driver::new(&task, at, endpoint.clone(), origin)?;
        driver.connect().await?;
        connected.push(|moments| driver.run(moments));
    }
    bring(connected, origin, task.pace, task.warm_s, task.seconds).await
}

/// At the parent's order, has connected clients count, for a time to get warm and a measured time; returns the observations of all.
async fn bring<C, F>(
    connected: Vec<C>,
    origin: Instant,
    pace: Pace,
    warm_s: f64,
    seconds: f64,
) -> Result<LoadReport, Box<dyn Error>>
where
    C: FnOnce(Moments) -> F,
    F: Future<Output = io::Result<(Seen, u64)>> + Send + 'static,
{
    if !wait_for_start().await? {
        return Ok(LoadReport::default());
    }
    let start_us = origin.elapsed().as_micros() as u64;
    let measure_us = start_us + (warm_s * US_PER_S) as u64;
    let moments = Moments { start_us, measure_us, end_us: measure_us + (seconds * US_PER_S) as u64 };
    let mut clients = JoinSet::new();
    for client in connected {
        clients.spawn(client(moments));
    }
    let mut seen = Seen::default();
    let mut last_us = 0;
    if !matches!(pace, Pace::Once { .. }) {
        sleep_until(origin, measure_us).await;
        say(&Said::Measuring)?;
        sleep_until(origin, moments.end_us).await;
        say(&Said::Measured)?;
    }
    while let Some(done) = clients.join_next().await {
        let (part, at_us) = done??;
        seen.add(&part);
        last_us = last_us.max(at_us);
    }
    let seconds = match pace {
        Pace::Once { .. } => (last_us.saturating_sub(start_us)) as f64 / US_PER_S,
        Pace::Rate { .. } | Pace::Window { .. } => seconds,
    };
    Ok(seen.report(seconds))
}

async fn sleep_until(origin: Instant, at_us: u64) {
    tokio::time::sleep_until((origin + Duration::from_micros(at_us)).into()).await;
}
