//! A child that does not keep to the messages: the test holds its end of the socket.

use super::process::Process;
use super::*;
use crate::frames::{self, Column, Format, Planned, Query, Reply};
use crate::limits::{COLUMNS_MAX, QUICK_CPU_MS, WAITING_MAX};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;

const TIMEOUT: Duration = Duration::from_millis(500);
/// More than a shell takes while it starts.
const MEMORY_BYTES: u64 = 64 << 20;

fn pool() -> Arc<Pool> {
    let tenant = TenantLimits { queries: 2, time: Duration::from_secs(60), rows: u64::MAX, quick_ms: QUICK_CPU_MS };
    Pool::new(PoolSettings {
        program: "/bin/sleep".into(),
        children: 2,
        memory_bytes: MEMORY_BYTES,
        timeout: TIMEOUT,
        wait: Duration::from_secs(1),
        scan_rows_max: 1_000,
        rows_max: 1_000,
        bytes_max: 1 << 20,
        tenant,
    })
}

fn query() -> Query {
    Query {
        sql: "SELECT 1".to_owned(),
        params: Vec::new(),
        zone: "UTC".to_owned(),
        types: Vec::new(),
        dimensions: Vec::new(),
        uploads: Vec::new(),
        format: Format::Csv,
        rows_max: 1_000,
        bytes_max: 1 << 20,
        memory_bytes: MEMORY_BYTES,
    }
}

/// A session with a process that sleeps as its child, and the child's end of the socket.
fn session(pool: &Arc<Pool>) -> (Session, UnixStream) {
    session_of(pool, "exec sleep 600")
}

fn session_of(pool: &Arc<Pool>, script: &str) -> (Session, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let child = tokio::process::Command::new("sh").args(["-c", script]).kill_on_drop(true).spawn().unwrap();
    let process = Process::of(Arc::downgrade(pool), child, ours);
    let mut charged = pool.charged("a").unwrap();
    charged.began = Some(Instant::now());
    (Session::new(charged, process), theirs)
}

/// The error of a query, after its child sends `first` once, and then `again` without an end.
async fn ended(first: &[Reply], again: &Reply) -> SqlError {
    let pool = pool();
    let (mut session, mut child) = session(&pool);
    let planned = [Reply::Planned(Planned { reads: None, uploads: Vec::new() })];
    let first: Vec<u8> = planned.iter().chain(first).flat_map(|reply| frames::encode(reply).unwrap()).collect();
    let again = frames::encode(again).unwrap().repeat(100);
    let sending = tokio::spawn(async move {
        let mut sent = child.write_all(&first).await;
        while sent.is_ok() {
            sent = child.write_all(&again).await;
        }
    });
    session.plan(query()).await.unwrap();
    let error = tokio::time::timeout(20 * TIMEOUT, session.finish()).await.expect("it goes on for ever").unwrap_err();
    sending.abort();
    error
}

fn columns(count: usize) -> Reply {
    Reply::Columns(vec![Column { name: "n".to_owned(), kind: "Int64".to_owned() }; count])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replies_that_no_child_sends_end_the_query() {
    let empty = Reply::Output(bytes::Bytes::new());
    assert_eq!(ended(&[columns(1)], &empty).await.code(), "sql_failed");
    assert_eq!(ended(&[], &columns(COLUMNS_MAX + 1)).await.code(), "sql_failed");
    assert_eq!(ended(&[columns(COLUMNS_MAX)], &columns(1)).await.code(), "sql_failed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_with_more_than_its_answer_is_ended() {
    let pool = pool();
    let (mut session, mut child) = session(&pool);
    let answer = [Reply::Planned(Planned { reads: None, uploads: Vec::new() }), columns(1), Reply::Done { rows: 0 }];
    // A message for the next query follows the answer in the same bytes.
    let more = Reply::Refused { refusal: crate::frames::Refusal::Plan, message: "of the query before".to_owned() };
    let bytes: Vec<u8> = answer.iter().chain([&more]).flat_map(|reply| frames::encode(reply).unwrap()).collect();
    child.write_all(&bytes).await.unwrap();
    session.plan(query()).await.unwrap();
    session.finish().await.unwrap();
    let stats = pool.stats();
    assert_eq!(stats.ended.get(&Ended::Protocol), Some(&1), "{stats:?}");
    assert!(pool.shared().idle.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_that_takes_too_much_memory_is_ended() {
    let pool = Pool::new(PoolSettings { timeout: Duration::from_secs(60), ..pool().settings().clone() });
    // It holds what it reads, and the kernel ends it at 2 GB.
    let (mut session, mut child) = session_of(&pool, "ulimit -v 2000000; exec tail /dev/zero");
    let planned = frames::encode(&Reply::Planned(Planned { reads: None, uploads: Vec::new() })).unwrap();
    child.write_all(&planned).await.unwrap();
    session.plan(query()).await.unwrap();
    let error = session.finish().await.unwrap_err();
    assert_eq!((error.code(), pool.stats().ended.get(&Ended::Memory)), ("sql_memory", Some(&1)), "{error}");
}

#[tokio::test]
async fn query_begins_in_a_free_turn_when_all_places_are_taken() {
    let pool = pool();
    let places: Vec<Place> = (0..WAITING_MAX).map(|_| pool.turns.place(Pace::Untried).unwrap()).collect();
    let begin = async |tenant| pool.enter(tenant).unwrap().begin().await;
    let first = begin("a").await.unwrap();
    let second = begin("b").await.unwrap();
    assert!(matches!([&first, &second], [Begun::Admitted(_), Begun::Admitted(_)]));
    assert_eq!(begin("c").await.unwrap_err().code(), "sql_busy");
    drop(places);
    assert!(matches!(begin("c").await, Ok(Begun::Reads(_))));
}

#[tokio::test]
async fn read_before_a_turn_is_charged_and_the_wait_is_not() {
    let pool = pool();
    let _turn = pool.turns.take(Pace::Quick).await.unwrap();
    let reads = async |tenant, time| {
        let Begun::Reads(mut entered) = pool.enter(tenant).unwrap().begin().await.unwrap() else { panic!() };
        entered.charged.began = Instant::now().checked_sub(time);
        entered
    };
    let budget = pool.settings().tenant.time;
    drop(reads("a", budget).await);
    assert_eq!(pool.enter("a").unwrap_err().code(), "sql_over_budget", "the query was refused behind its read");
    let admitted = reads("b", budget).await.turn().await.unwrap();
    assert!((budget..2 * budget).contains(&admitted.charged.read));
    drop(admitted);
    assert_eq!(pool.enter("b").unwrap_err().code(), "sql_over_budget");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn time_of_the_read_is_part_of_the_time_of_a_query() {
    let timeout = Duration::from_secs(600);
    let pool = Pool::new(PoolSettings { timeout, ..pool().settings().clone() });
    let (ours, _theirs) = UnixStream::pair().unwrap();
    let child = tokio::process::Command::new("sleep").arg("600").kill_on_drop(true).spawn().unwrap();
    let mut charged = pool.charged("a").unwrap();
    charged.read = timeout;
    let mut session = Session::new(charged, Process::of(Arc::downgrade(&pool), child, ours));
    let planned = tokio::time::timeout(20 * TIMEOUT, session.plan(query())).await.expect("nothing of its time is left");
    assert_eq!(planned.unwrap_err().code(), "sql_time");
}
