//! A load for PostgreSQL: connections that draw counters as clients of a node do, fold them into a batch, and write it with one statement,
//! which is one transaction. In a process of its own, on one thread.
//!
//! Every increment goes into a total, a minute, an hour and a day. A connection's counters are no other connection's, and are written in
//! the order of their keys, so that no transaction waits for a row of another one.

use std::collections::HashMap;
use std::error::Error;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio_postgres::{Client, Config, NoTls, Statement};

use super::keys::{self, Keys, part};
use super::{Draw, LoadReport, Moments, Pace, Seen, bring};
use tidemark_server::clock::wall_now;

/// User of the measured cluster, which no other program reaches.
pub const USER: &str = "bench";
const DATABASE: &str = "postgres";
/// Rows of a counter that an increment goes into: its total, minute, hour and day.
pub const ROWS_PER_COUNTER: usize = 4;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
const MS_PER_MINUTE: u64 = 60_000;
const MINUTES_PER_HOUR: i32 = 60;
const HOURS_PER_DAY: i32 = 24;

/// The target and the form of the writes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PostgresTask {
    /// The folder of its socket.
    pub socket: PathBuf,
    pub layout: Layout,
    /// Each has counters of its own.
    pub connections: usize,
    /// A batch is written once it has this number of rows.
    pub batch_rows: usize,
    pub counters: usize,
    /// A closed loop, or every counter once.
    pub pace: Pace,
    pub warm_s: f64,
    pub seconds: f64,
    pub seed: u64,
}

/// In which tables a counter's rows are. Counters are numbers, not names, and each row has room beside it: an update that changes no key then
/// stays in its page and leaves the index alone (`fillfactor`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    /// One table for all.
    OneTable,
    /// A table for totals, and a table for each granularity.
    FourTables,
}

impl Layout {
    pub const ALL: [Layout; 2] = [Layout::OneTable, Layout::FourTables];

    /// As it is printed.
    pub fn name(self) -> &'static str {
        match self {
            Layout::OneTable => "one table",
            Layout::FourTables => "a table for totals and one for each granularity",
        }
    }

    /// Its tables, empty.
    pub fn create(self) -> &'static str {
        match self {
            Layout::OneTable => {
                "CREATE TABLE counts (counter bigint, value bigint NOT NULL, bucket int, granularity smallint, \
                 PRIMARY KEY (counter, granularity, bucket)) WITH (fillfactor = 70)"
            }
            Layout::FourTables => {
                "CREATE TABLE totals (counter bigint PRIMARY KEY, value bigint NOT NULL) WITH (fillfactor = 70);
                 CREATE TABLE minutes (counter bigint, value bigint NOT NULL, bucket int, PRIMARY KEY (counter, bucket)) \
                 WITH (fillfactor = 70);
                 CREATE TABLE hours (LIKE minutes INCLUDING ALL) WITH (fillfactor = 70);
                 CREATE TABLE days (LIKE minutes INCLUDING ALL) WITH (fillfactor = 70)"
            }
        }
    }

    pub fn drop(self) -> &'static str {
        match self {
            Layout::OneTable => "DROP TABLE counts",
            Layout::FourTables => "DROP TABLE totals, minutes, hours, days",
        }
    }

    /// Of counters and what is added to each, in a minute, an hour and a day.
    fn upsert(self) -> &'static str {
        match self {
            Layout::OneTable => {
                "INSERT INTO counts AS t (counter, value, bucket, granularity)
                 SELECT d.counter, b.delta, b.bucket, b.granularity
                 FROM unnest($1::bigint[], $2::bigint[]) AS d (counter, delta), LATERAL (VALUES
                     (0::smallint, 0, d.delta), (1::smallint, $3::int, d.delta),
                     (2::smallint, $4::int, d.delta), (3::smallint, $5::int, d.delta)
                 ) AS b (granularity, bucket, delta)
                 ON CONFLICT (counter, granularity, bucket) DO UPDATE SET value = t.value + excluded.value"
            }
            Layout::FourTables => {
                "WITH d AS MATERIALIZED (SELECT * FROM unnest($1::bigint[], $2::bigint[]) AS d (counter, delta)),
                 m AS (INSERT INTO minutes AS t (counter, value, bucket) SELECT counter, delta, $3::int FROM d
                     ON CONFLICT (counter, bucket) DO UPDATE SET value = t.value + excluded.value),
                 h AS (INSERT INTO hours AS t (counter, value, bucket) SELECT counter, delta, $4::int FROM d
                     ON CONFLICT (counter, bucket) DO UPDATE SET value = t.value + excluded.value),
                 n AS (INSERT INTO days AS t (counter, value, bucket) SELECT counter, delta, $5::int FROM d
                     ON CONFLICT (counter, bucket) DO UPDATE SET value = t.value + excluded.value)
                 INSERT INTO totals AS t (counter, value) SELECT counter, delta FROM d
                 ON CONFLICT (counter) DO UPDATE SET value = t.value + excluded.value"
            }
        }
    }

    /// The sums in totals, minutes, hours and days.
    pub fn sums(self) -> &'static str {
        match self {
            Layout::OneTable => "SELECT sum(value)::bigint FROM counts GROUP BY granularity ORDER BY granularity",
            Layout::FourTables => {
                "SELECT sum(value)::bigint FROM totals UNION ALL SELECT sum(value)::bigint FROM minutes
                 UNION ALL SELECT sum(value)::bigint FROM hours UNION ALL SELECT sum(value)::bigint FROM days"
            }
        }
    }
}

/// Brings the load, as a load of a node is brought.
///
/// # Errors
/// No connection, or the server refuses.
pub async fn run(task: PostgresTask) -> Result<LoadReport, Box<dyn Error>> {
    let origin = Instant::now();
    let mut connected = Vec::new();
    for at in 0..task.connections {
        let writer = Writer::new(&task, at, origin).await?;
        connected.push(|moments| writer.run(moments));
    }
    bring(connected, origin, task.pace, task.warm_s, task.seconds).await
}

/// A connection to the server with a socket in this folder. Its other half runs until it is dropped.
///
/// # Errors
/// No server answers, or it refuses.
pub async fn connect(socket: &Path) -> Result<Client, tokio_postgres::Error> {
    let mut config = Config::new();
    config.host_path(socket).user(USER).dbname(DATABASE).connect_timeout(CONNECT_TIMEOUT);
    let (client, connection) = config.connect(NoTls).await?;
    tokio::spawn(async move {
        // A task that waits for an answer gets the error too.
        if let Err(error) = connection.await {
            tracing::warn!(%error, "a connection to PostgreSQL");
        }
    });
    Ok(client)
}

/// One connection, and its observations.
struct Writer {
    client: Client,
    upsert: Statement,
    keys: Keys,
    /// Its counters.
    own: Range<usize>,
    /// How many counters are left to be counted once.
    left: Option<usize>,
    batch_counters: usize,
    batch_items: usize,
    origin: Instant,
    seen: Seen,
    last_ack_us: u64,
}

/// Increments that are written together.
struct Batch {
    counters: Vec<i64>,
    deltas: Vec<i64>,
    items: u64,
}

impl Writer {
    async fn new(task: &PostgresTask, at: usize, origin: Instant) -> Result<Writer, Box<dyn Error>> {
        let client = connect(&task.socket).await?;
        let upsert = client.prepare(task.layout.upsert()).await?;
        let own = part(task.counters, task.connections, at);
        let (draw, left, items) = match task.pace {
            Pace::Once { items } => (Draw::InTurn, Some(own.len()), items),
            Pace::Window { items } => (Draw::Zipf, None, items),
            Pace::Rate { .. } => return Err("PostgreSQL is loaded in a closed loop only".into()),
        };
        Ok(Writer {
            client,
            upsert,
            keys: Keys::new(draw, 0, own.len(), keys::seed(task.seed, at))?,
            own,
            left,
            batch_counters: (task.batch_rows / ROWS_PER_COUNTER).max(1),
            batch_items: (items / task.connections).max(1),
            origin,
            seen: Seen::default(),
            last_ack_us: 0,
        })
    }

    fn now_us(&self) -> u64 {
        self.origin.elapsed().as_micros() as u64
    }

    /// Writes batch after batch; returns the observations, and when the last answer came.
    async fn run(mut self, moments: Moments) -> io::Result<(Seen, u64)> {
        loop {
            let begun_us = self.now_us();
            if self.left.map_or(begun_us >= moments.end_us, |left| left == 0) {
                return Ok((self.seen, self.last_ack_us));
            }
            let batch = self.gather();
            self.seen.sent += batch.items;
            self.write(&batch).await.map_err(io::Error::other)?;
            self.on_durable(batch.items, begun_us, moments);
        }
    }

    /// Draws until the batch is full: of rows, or of what may be under way.
    fn gather(&mut self) -> Batch {
        let mut folded: HashMap<usize, i64> = HashMap::new();
        let mut items = 0;
        let most = self.batch_items.min(self.left.unwrap_or(usize::MAX));
        while items < most && folded.len() < self.batch_counters {
            *folded.entry(self.own.start + self.keys.next()).or_default() += 1;
            items += 1;
        }
        self.left = self.left.map(|left| left - items);
        let mut folded: Vec<(usize, i64)> = folded.into_iter().collect();
        folded.sort_unstable();
        let (counters, deltas) = folded.into_iter().map(|(counter, delta)| (counter as i64, delta)).unzip();
        Batch { counters, deltas, items: items as u64 }
    }

    /// Until it is durable.
    async fn write(&self, batch: &Batch) -> Result<(), tokio_postgres::Error> {
        let minute = (wall_now().0 / MS_PER_MINUTE) as i32;
        let hour = minute / MINUTES_PER_HOUR;
        let day = hour / HOURS_PER_DAY;
        self.client.execute(&self.upsert, &[&batch.counters, &batch.deltas, &minute, &hour, &day]).await.map(drop)
    }

    fn on_durable(&mut self, items: u64, begun_us: u64, moments: Moments) {
        let now_us = self.now_us();
        self.last_ack_us = now_us;
        self.seen.acknowledged += items;
        if moments.measures(now_us) {
            self.seen.measured += items;
        }
        if moments.measures(begun_us) {
            self.seen.ack.saturating_record_n((now_us - begun_us).max(1), items);
        }
    }
}
