//! Slow queries work behind quick ones, and leave turns to them.

use super::*;
use rustix::process::{Pid, getpriority_process};
use tidemark_streams_sql::limits::QUICK_CPU_MS;
use tidemark_streams_sql::pool::Ended;

const ENDLESS: &str = "SELECT count(*) FROM impressions a, impressions b, impressions c WHERE a.n + b.n + c.n > 0";
/// A query that is slow, and ends.
const SLOW: &str =
    "SELECT count(*) AS c FROM impressions a, impressions b WHERE a.n + b.n > 0 AND a.listing || b.listing <> a.type";
const LAST: i32 = 19;

/// Children may wait for other work of the machine.
fn patient() -> PoolSettings {
    PoolSettings { timeout: Duration::from_secs(600), memory_bytes: 4_096 * MIB, ..settings() }
}

fn priority(id: u32) -> i32 {
    Pid::from_raw(id as i32).and_then(|id| getpriority_process(Some(id)).ok()).unwrap_or_default()
}

#[tokio::test]
async fn quick_query_is_answered_while_all_turns_are_slow() {
    let pool = Pool::new(patient());
    let rows = Arc::new(rows("a", 100, 24));
    let mut ids = Vec::new();
    let mut running = tokio::task::JoinSet::new();
    for tenant in ["a", "b"] {
        let session = pool.begin(tenant).await.unwrap();
        ids.push(session.id().unwrap());
        let sql = query(pool.settings(), ENDLESS);
        let rows = Arc::clone(&rows);
        running.spawn(async move { carry_out(session, sql, &rows).await });
    }
    until("two slow queries", || ids.iter().all(|&id| priority(id) == LAST)).await;
    let answered = run(&pool, "c", query(pool.settings(), "SELECT 1 AS one"), &[]).await;
    assert_eq!(answered.unwrap().output, b"one\r\n1\r\n");
    let displaced = running.join_next().await.unwrap().unwrap().unwrap_err();
    assert_eq!((displaced.code(), displaced.retry_after_s()), ("sql_busy", Some(1)), "{displaced}");
    assert_eq!(pool.stats().ended.get(&Ended::Displaced), Some(&1));
    assert!(running.try_join_next().is_none(), "the other slow query goes on");
}

#[tokio::test]
async fn child_of_a_slow_query_answers_no_quick_one() {
    let pool = Pool::new(patient());
    let rows = rows("a", 60, 24);
    let session = pool.begin("a").await.unwrap();
    let id = session.id().unwrap();
    let before = worked(id);
    carry_out(session, query(pool.settings(), SLOW), &rows).await.unwrap();
    assert!((worked(id) - before) * 10 > QUICK_CPU_MS, "it is slow");
    assert_eq!(priority(id), LAST);
    let session = pool.begin("a").await.unwrap();
    assert_eq!(session.id(), Some(id), "a tenant with a slow query is slow for some seconds");
    carry_out(session, query(pool.settings(), "SELECT 1"), &[]).await.unwrap();
    until_quick(&pool).await;
    assert_eq!(pool.stats().ended.get(&Ended::Priority), Some(&1));
}

/// Waits until a query of tenant `a` is quick again.
async fn until_quick(pool: &Arc<Pool>) {
    let end = Instant::now() + WAIT_MAX;
    loop {
        let session = pool.begin("a").await.unwrap();
        let is_quick = priority(session.id().unwrap()) == 0;
        carry_out(session, query(pool.settings(), "SELECT 1"), &[]).await.unwrap();
        if is_quick {
            return;
        }
        assert!(Instant::now() < end, "it is slow for ever");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
