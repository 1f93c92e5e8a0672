//! A hundred queries that mean harm end with an error or a bounded answer, within their memory, while others go on.

use super::hostile_texts::hostile;
use super::*;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tidemark_streams_sql::limits::DATA_SLACK_BYTES;

const QUERIES: usize = 100;
/// Of a child that waits: its code and what it touches at its start. The rest of its memory is held to the limits.
const IDLE_BYTES_MAX: u64 = 64 * MIB;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn hundred_hostile_queries_end_while_others_go_on() {
    let timeout = Duration::from_millis(1_500);
    let pool = Pool::new(PoolSettings { children: 4, timeout, wait: WAIT_MAX, ..settings() });
    let rows = Arc::new(rows("a-listing", 100, 24));
    let peak = Arc::new(AtomicU64::new(0));
    let is_over = Arc::new(AtomicBool::new(false));
    let others = tokio::spawn(go_on(Arc::clone(&pool), Arc::clone(&rows), Arc::clone(&is_over)));
    let queries = hostile();
    assert!(queries.len() >= QUERIES, "{}", queries.len());
    let mut running = tokio::task::JoinSet::new();
    for sql in queries {
        if running.len() == 3 {
            running.join_next().await.unwrap().unwrap();
        }
        running.spawn(harmless(Arc::clone(&pool), sql, Arc::clone(&rows), Arc::clone(&peak)));
    }
    while let Some(done) = running.join_next().await {
        done.unwrap();
    }
    is_over.store(true, Ordering::Relaxed);
    let answered = others.await.unwrap();
    assert!(answered >= 3, "{answered} queries of another tenant were answered");
    let most = IDLE_BYTES_MAX + pool.settings().memory_bytes + DATA_SLACK_BYTES;
    let peak = peak.load(Ordering::Relaxed);
    println!("the largest child had {} MiB; {:?}", peak / MIB, pool.stats());
    assert!(peak < most, "{} MiB", peak / MIB);
}

/// A query of another tenant, again and again. Returns how many were answered.
async fn go_on(pool: Arc<Pool>, rows: Arc<Vec<Rows>>, is_over: Arc<AtomicBool>) -> usize {
    let mut answered = 0;
    while !is_over.load(Ordering::Relaxed) {
        let sql = query(pool.settings(), "SELECT sum(n) AS n FROM click");
        match run(&pool, "b", sql, &rows).await {
            Ok(result) => {
                assert!(result.output.starts_with(b"n\r\n"));
                answered += 1;
            }
            // The machine may be slow.
            Err(error) => assert_eq!(error.code(), "sql_time", "{error}"),
        }
    }
    answered
}

async fn harmless(pool: Arc<Pool>, sql: String, rows: Arc<Vec<Rows>>, peak: Arc<AtomicU64>) {
    let shown: String = sql.chars().take(100).collect();
    let session = pool.begin("a").await.unwrap_or_else(|error| panic!("{shown}: {error}"));
    let id = session.id().unwrap();
    let asked = carry_out(session, query(pool.settings(), &sql), &rows);
    let watched = async {
        loop {
            peak.fetch_max(resident_bytes(id), Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let ended = tokio::select! {
        ended = asked => ended,
        () = watched => return,
    };
    match ended {
        Ok(result) => {
            assert!(result.rows <= pool.settings().rows_max, "{shown}");
            assert!(result.output.len() as u64 <= pool.settings().bytes_max, "{shown}");
        }
        // A refusal, or the end of its child only.
        Err(error) => assert!(!matches!(error.code(), "sql_failed" | "sql_start"), "{shown}: {error}"),
    }
}
