//! Real children: their walls, their limits, and queries that mean harm.
#![cfg(feature = "sql")]

#[path = "pool/hostile.rs"]
mod hostile;
#[path = "pool/hostile_texts.rs"]
mod hostile_texts;
#[path = "pool/isolation.rs"]
mod isolation;
#[path = "pool/large.rs"]
mod large;
#[path = "pool/lifecycle.rs"]
mod lifecycle;
#[path = "pool/slow.rs"]
mod slow;

use bytes::Bytes;
use rustix::process::{Pid, getpriority_process};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidemark_streams_sql::budget::TenantLimits;
use tidemark_streams_sql::frames::{Format, ListingRun, Query, Rows};
use tidemark_streams_sql::limits::{FRAME_ROWS_MAX, QUICK_CPU_MS};
use tidemark_streams_sql::pool::{Pool, PoolSettings, QueryResult, Session, SqlError};

const MIB: u64 = 1 << 20;
/// A process without optimisation works ten times as long, and machines differ.
const QUICK_MS: u64 = 20 * QUICK_CPU_MS;
/// A condition must hold after this.
const WAIT_MAX: Duration = Duration::from_secs(60);

fn settings() -> PoolSettings {
    PoolSettings {
        program: Path::new(env!("CARGO_BIN_EXE_tidemark-sql")).to_owned(),
        children: 2,
        memory_bytes: 96 * MIB,
        timeout: Duration::from_secs(30),
        wait: Duration::from_secs(30),
        scan_rows_max: 1_000_000,
        rows_max: 10_000,
        bytes_max: 4 * MIB,
        tenant: TenantLimits { queries: 100, time: Duration::from_secs(6_000), rows: u64::MAX, quick_ms: QUICK_MS },
    }
}

fn query(settings: &PoolSettings, sql: &str) -> Query {
    Query {
        sql: sql.to_owned(),
        params: Vec::new(),
        zone: "UTC".to_owned(),
        types: vec!["click".to_owned(), "impression".to_owned()],
        dimensions: Vec::new(),
        uploads: Vec::new(),
        format: Format::Csv,
        rows_max: settings.rows_max,
        bytes_max: settings.bytes_max,
        memory_bytes: settings.memory_bytes,
    }
}

/// Rows of `listings` listings with a common prefix: each has a click and an impression in each of `hours` hours.
fn rows(prefix: &str, listings: u32, hours: u32) -> Vec<Rows> {
    let each = FRAME_ROWS_MAX as u32 / (2 * hours);
    let numbers: Vec<u32> = (0..listings).collect();
    let frame = |numbers: &[u32]| {
        let run = |number: &u32| ListingRun { listing: format!("{prefix}-{number}"), rows: 2 * hours };
        let count = numbers.len() * hours as usize;
        let of_row = |at: u32| [at % 7, 1, 0, at % 3];
        Rows {
            listings: numbers.iter().map(run).collect(),
            types: vec!["impression".to_owned(), "click".to_owned()],
            type_of: Bytes::from([0_u8, 1].repeat(count)),
            hours: numbers.iter().flat_map(|_| (0..hours).flat_map(|hour| [490_000 + hour; 2])).collect(),
            quarters: (0..2 * count as u32).map(of_row).collect(),
            sums: Vec::new(),
            values: Vec::new(),
        }
    };
    numbers.chunks(each.max(1) as usize).map(frame).collect()
}

/// Carries out a query of a tenant as a server does.
async fn run(pool: &Arc<Pool>, tenant: &str, query: Query, rows: &[Rows]) -> Result<QueryResult, SqlError> {
    let session = pool.begin(tenant).await?;
    carry_out(session, query, rows).await
}

async fn carry_out(mut session: Session, query: Query, rows: &[Rows]) -> Result<QueryResult, SqlError> {
    if let Some(columns) = session.plan(query).await?.reads {
        for rows in rows {
            if let Err(error) = session.rows(rows.only(&columns)).await {
                session.give_up().await;
                return Err(error);
            }
        }
    }
    session.finish().await
}

async fn ask(pool: &Arc<Pool>, sql: &str, rows: &[Rows]) -> Result<String, SqlError> {
    let result = run(pool, "a", query(pool.settings(), sql), rows).await?;
    Ok(String::from_utf8(result.output).unwrap())
}

fn priority(id: u32) -> i32 {
    Pid::from_raw(id as i32).and_then(|id| getpriority_process(Some(id)).ok()).unwrap_or_default()
}

/// Asks until a query of a tenant begins as a quick one. A tenant whose queries have worked much is slow until the next minute, so it
/// asks seldom and waits longer than a minute.
async fn until_known(pool: &Arc<Pool>, tenant: &str) {
    let end = Instant::now() + 3 * WAIT_MAX;
    loop {
        let session = pool.begin(tenant).await.unwrap();
        let is_quick = priority(session.id().unwrap()) == 0;
        carry_out(session, query(pool.settings(), "SELECT 1"), &[]).await.unwrap();
        if is_quick {
            return;
        }
        assert!(Instant::now() < end, "{tenant} is not known within {:?}", 3 * WAIT_MAX);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Waits until a condition holds.
async fn until(what: &str, condition: impl Fn() -> bool) {
    let end = Instant::now() + WAIT_MAX;
    while !condition() {
        assert!(Instant::now() < end, "{what} did not happen within {WAIT_MAX:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn resident_bytes(id: u32) -> u64 {
    let statm = std::fs::read_to_string(format!("/proc/{id}/statm")).unwrap_or_default();
    let pages: u64 = statm.split_whitespace().nth(1).and_then(|pages| pages.parse().ok()).unwrap_or_default();
    pages * rustix::param::page_size() as u64
}

/// Hundredths of a second that a process has worked.
fn worked(id: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum()
}
