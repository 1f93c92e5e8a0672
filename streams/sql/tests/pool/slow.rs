//! Slow queries work behind quick ones, and leave turns to them.

use super::*;
use tidemark_streams_sql::limits::{SLOW_NICE, UNTRIED_NICE};
use tidemark_streams_sql::pool::{Begun, Ended};

const ENDLESS: &str = "SELECT count(*) FROM impressions a, impressions b, impressions c WHERE a.n + b.n + c.n > 0";
/// A query that is slow, and ends.
const SLOW: &str =
    "SELECT count(*) AS c FROM impressions a, impressions b WHERE a.n + b.n > 0 AND a.listing || b.listing <> a.type";

/// Children may wait for other work of the machine.
fn patient() -> PoolSettings {
    PoolSettings { timeout: Duration::from_secs(600), memory_bytes: 4_096 * MIB, ..settings() }
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
    until("two slow queries", || ids.iter().all(|&id| priority(id) == SLOW_NICE)).await;
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
    assert!((worked(id) - before) * 10 > QUICK_MS, "it is slow");
    assert_eq!(priority(id), SLOW_NICE);
    let session = pool.begin("a").await.unwrap();
    assert_eq!(session.id(), Some(id), "a tenant with a slow query is slow for some seconds");
    carry_out(session, query(pool.settings(), "SELECT 1"), &[]).await.unwrap();
    until_known(&pool, "a").await;
    assert!(pool.stats().ended.contains_key(&Ended::Priority));
}

#[tokio::test]
async fn queries_that_wait_for_blobs_leave_children() {
    let pool = Pool::new(PoolSettings { children: 4, wait: Duration::from_secs(1), ..settings() });
    let mut early = Vec::new();
    let mut reading = Vec::new();
    for tenant in ["a", "b", "c", "d", "e", "f"] {
        match pool.enter(tenant).unwrap().begin().await.unwrap() {
            Begun::Admitted(turn) => early.push(turn),
            Begun::Reads(entered) => reading.push(entered),
        }
    }
    assert_eq!((early.len(), reading.len()), (2, 4));
    assert!(run(&pool, "g", query(pool.settings(), "SELECT 1"), &[]).await.is_ok());
    // Their blobs are there.
    let session = reading.pop().unwrap().turn().await.unwrap().start().await.unwrap();
    assert!(carry_out(session, query(pool.settings(), "SELECT 1"), &[]).await.is_ok());
}

#[tokio::test]
async fn tenant_begins_behind_those_that_are_known() {
    let pool = Pool::new(settings());
    let mut niced = Vec::new();
    for sql in ["SELECT nothing", "SELECT 1"] {
        let session = pool.begin("a").await.unwrap();
        niced.push(priority(session.id().unwrap()));
        let _ = carry_out(session, query(pool.settings(), sql), &[]).await;
    }
    // Only a result shows that it is quick. Then another child works for it.
    assert_eq!(niced, [UNTRIED_NICE, UNTRIED_NICE]);
    assert!(!pool.stats().ended.contains_key(&Ended::Priority));
    until_known(&pool, "a").await;
    assert!(pool.stats().ended.contains_key(&Ended::Priority));
}
