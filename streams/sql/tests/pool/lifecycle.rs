//! Children start, are used again, wear out, and are killed.

use super::*;
use tidemark_streams_sql::limits::CHILD_QUERIES_MAX;
use tidemark_streams_sql::pool::Ended;

/// A query that takes longer than any test.
const ENDLESS: &str = "SELECT count(*) FROM impressions a, impressions b, impressions c, impressions d";

/// Memory enough for [`ENDLESS`], which takes more with time: a fast machine reaches 96 MiB within 600 ms.
fn roomy() -> PoolSettings {
    PoolSettings { memory_bytes: 4_096 * MIB, ..settings() }
}

#[tokio::test]
async fn missing_program_is_said_with_the_next_step() {
    let pool = Pool::new(PoolSettings { program: "/nowhere/tidemark-sql".into(), ..settings() });
    let error = ask(&pool, "SELECT 1", &[]).await.unwrap_err();
    assert_eq!(error.code(), "sql_not_installed");
    assert!(error.to_string().contains("--features sql"), "{error}");
    assert!(!error.to_string().contains("/nowhere"), "{error}");
}

#[tokio::test]
async fn program_of_another_kind_is_no_child() {
    let pool = Pool::new(PoolSettings { program: "/bin/true".into(), ..settings() });
    let error = ask(&pool, "SELECT 1", &[]).await.unwrap_err();
    assert_eq!(error.code(), "sql_start");
    let detail = error.detail().unwrap();
    assert!(detail.contains("exit code 0") && !error.to_string().contains("exit code"), "{error}: {detail}");
    assert_eq!((pool.stats().started, pool.stats().alive()), (1, 0));
}

#[tokio::test]
async fn child_has_no_environment_files_or_network() {
    let pool = Pool::new(settings());
    let mut session = pool.begin("a").await.unwrap();
    let id = session.id().unwrap();
    let read = |name: &str| std::fs::read_to_string(format!("/proc/{id}/{name}"));
    // Only root may look at its environment and its files.
    match read("environ") {
        Ok(environment) => {
            assert_eq!(environment, "");
            has_its_socket_only(id);
        }
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied),
    }
    let limits = read("limits").unwrap();
    let limit = |name: &str| -> Vec<String> {
        let line = limits.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{limits}"));
        line.split_whitespace().take(2).map(str::to_owned).collect()
    };
    // So neither a file nor a socket can be opened, also once another one is closed.
    assert_eq!(limit("Max open files"), ["0", "0"]);
    assert_eq!(limit("Max file size"), ["0", "0"]);
    assert_eq!(limit("Max processes"), ["0", "0"]);
    let data: u64 = limit("Max data size")[1].parse().unwrap();
    assert!(data < pool.settings().memory_bytes + 400 * MIB, "{data}");
    assert!(read("status").unwrap().lines().any(|line| line.split_whitespace().eq(["NoNewPrivs:", "1"])));
    let sql = query(pool.settings(), "SELECT 1 AS one");
    assert_eq!(session.plan(sql).await.unwrap().reads, None);
    assert_eq!(session.finish().await.unwrap().output, b"one\r\n1\r\n");
}

fn has_its_socket_only(id: u32) {
    assert_eq!(std::fs::read_link(format!("/proc/{id}/cwd")).unwrap(), Path::new("/"));
    let mut files: Vec<String> = std::fs::read_dir(format!("/proc/{id}/fd"))
        .unwrap()
        .map(|file| std::fs::read_link(file.unwrap().path()).unwrap().to_string_lossy().into_owned())
        .collect();
    files.sort();
    assert_eq!(files.len(), 4, "{files:?}");
    assert_eq!(&files[..2], ["/dev/null", "/dev/null"]);
    assert!(files[2..].iter().all(|file| file.starts_with("socket:")), "{files:?}");
}

#[tokio::test]
async fn killed_child_costs_one_query() {
    let pool = Pool::new(roomy());
    let rows = rows("a", 100, 24);
    let session = pool.begin("a").await.unwrap();
    let id = session.id().unwrap();
    let before = worked(id);
    let endless = query(pool.settings(), ENDLESS);
    let sent = rows.clone();
    let working = tokio::spawn(async move { carry_out(session, endless, &sent).await });
    until("work", || worked(id) > before + 20).await;
    assert!(std::process::Command::new("kill").args(["-9", &id.to_string()]).status().unwrap().success());
    let error = working.await.unwrap().unwrap_err();
    assert_eq!(error.code(), "sql_crashed");
    assert!(error.to_string().contains("signal 9"), "{error}");
    assert_eq!(pool.stats().ended.get(&Ended::Crashed), Some(&1));
    assert!(ask(&pool, "SELECT sum(n) FROM click", &rows).await.is_ok());
}

#[tokio::test]
async fn idle_child_that_was_killed_is_replaced() {
    let pool = Pool::new(settings());
    let session = pool.begin("a").await.unwrap();
    let id = session.id().unwrap();
    carry_out(session, query(pool.settings(), "SELECT 1"), &[]).await.unwrap();
    assert!(std::process::Command::new("kill").args(["-9", &id.to_string()]).status().unwrap().success());
    // Dead, though its parent has not asked for its status.
    let is_dead = || std::fs::read_to_string(format!("/proc/{id}/stat")).map_or(true, |stat| stat.contains(") Z"));
    until("the end of the child", is_dead).await;
    assert!(ask(&pool, "SELECT 1", &[]).await.is_ok());
    assert_eq!((pool.stats().started, pool.stats().alive()), (2, 1));
}

#[test]
fn child_outlives_the_thread_of_its_first_query() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let pool = Pool::new(settings());
    runtime.block_on(until_known(&pool, "a"));
    let started = pool.stats().started;
    // The known tenant's child ends for another tenant, so the thread starts the next one.
    for tenant in ["b", "c"] {
        assert!(runtime.block_on(run(&pool, tenant, query(pool.settings(), "SELECT 1"), &[])).is_ok());
    }
    let task = std::thread::scope(|scope| {
        let first = scope.spawn(|| {
            assert!(runtime.block_on(ask(&pool, "SELECT 1", &[])).is_ok());
            std::fs::read_link("/proc/thread-self").unwrap()
        });
        first.join().unwrap()
    });
    // The kernel tells children of the thread before it forgets the thread.
    runtime.block_on(until("the end of the thread", || !Path::new("/proc").join(&task).exists()));
    assert!(runtime.block_on(ask(&pool, "SELECT 1", &[])).is_ok());
    assert_eq!(pool.stats().started - started, 3);
}

#[tokio::test]
async fn reader_that_goes_away_ends_the_query() {
    let pool = Pool::new(roomy());
    let rows = rows("a", 100, 24);
    let session = pool.begin("a").await.unwrap();
    let id = session.id().unwrap();
    let asked = carry_out(session, query(pool.settings(), ENDLESS), &rows);
    assert!(tokio::time::timeout(Duration::from_millis(300), asked).await.is_err());
    assert_eq!(pool.stats().ended.get(&Ended::Abandoned), Some(&1));
    until("the end of the child", || resident_bytes(id) == 0).await;
    assert!(ask(&pool, "SELECT 1", &[]).await.is_ok());
}

#[tokio::test]
async fn slow_query_is_ended_and_charged() {
    let short = TenantLimits { queries: 1, time: Duration::from_millis(500), rows: u64::MAX, quick_ms: QUICK_MS };
    let pool = Pool::new(PoolSettings { timeout: Duration::from_millis(600), tenant: short, ..roomy() });
    let rows = rows("a", 100, 24);
    let error = ask(&pool, ENDLESS, &rows).await.unwrap_err();
    assert_eq!(error.to_string(), "the query took more than 600 ms: ask for a shorter range, or fewer joins");
    assert_eq!(error.code(), "sql_time");
    let error = ask(&pool, "SELECT 1", &[]).await.unwrap_err();
    assert_eq!(error.code(), "sql_over_budget");
    assert!(error.retry_after_s().is_some_and(|seconds| (1..=60).contains(&seconds)));
    let other = run(&pool, "b", query(pool.settings(), "SELECT 1"), &[]).await;
    assert!(other.is_ok(), "{other:?}");
}

#[tokio::test]
async fn query_beyond_the_children_waits() {
    let pool = Pool::new(PoolSettings { wait: Duration::from_millis(200), ..settings() });
    let first = pool.begin("a").await.unwrap();
    let second = pool.begin("a").await.unwrap();
    assert_eq!(ask(&pool, "SELECT 1", &[]).await.unwrap_err().code(), "sql_busy");
    drop(first);
    assert!(ask(&pool, "SELECT 1", &[]).await.is_ok());
    drop(second);
    assert_eq!(pool.stats().alive(), 1);
}

#[tokio::test]
async fn rows_beyond_the_limit_of_a_query_are_not_read() {
    let pool = Pool::new(PoolSettings { scan_rows_max: 1_000, ..settings() });
    let error = ask(&pool, "SELECT sum(n) FROM click", &rows("a", 100, 24)).await.unwrap_err();
    assert_eq!((error.code(), error.to_string().contains("1000 rows")), ("sql_scan_rows", true), "{error}");
    assert!(ask(&pool, "SELECT sum(n) FROM click", &rows("a", 10, 24)).await.is_ok());
    assert_eq!(pool.stats().started, 1, "the child waits for the next query");
}

#[tokio::test]
async fn rows_of_a_query_that_is_given_up_are_charged() {
    let tenant = TenantLimits { queries: 1, time: Duration::from_secs(60), rows: 500, quick_ms: QUICK_MS };
    let pool = Pool::new(PoolSettings { tenant, timeout: Duration::from_millis(500), ..settings() });
    let mut session = pool.begin("a").await.unwrap();
    assert!(session.plan(query(pool.settings(), "SELECT n FROM click")).await.unwrap().reads.is_some());
    assert!(session.charge(400).is_ok());
    let late = session.within(std::future::pending::<()>()).await.unwrap_err();
    assert_eq!(late.code(), "sql_time");
    assert_eq!(session.charge(100).unwrap_err().code(), "sql_time");
    drop(session);
    // The minute may have ended meanwhile; then what is beyond the limit counts.
    let stats = pool.stats();
    assert_eq!((stats.rows, stats.started), (500, 1));
    assert_eq!(pool.begin("a").await.unwrap_err().code(), "sql_over_budget");
}

#[tokio::test]
async fn child_ends_after_its_last_query() {
    let pool = Pool::new(settings());
    until_known(&pool, "a").await;
    let before = pool.stats();
    for _ in 0..CHILD_QUERIES_MAX {
        assert!(ask(&pool, "SELECT 1", &[]).await.is_ok());
    }
    let stats = pool.stats();
    assert_eq!((stats.started - before.started, stats.alive()), (1, 1));
    assert_eq!(stats.ended.get(&Ended::Queries), Some(&1));
}

#[tokio::test]
async fn grown_child_ends() {
    // It works behind all other processes of the machine.
    let timeout = Duration::from_secs(600);
    let pool = Pool::new(PoolSettings { memory_bytes: 512 * MIB, bytes_max: 64 * MIB, timeout, ..settings() });
    let rows = rows("a listing with a name that is long enough not to fit into a view", 20_000, 24);
    let sorted = "SELECT max(total) FROM (SELECT sum(n) OVER (PARTITION BY listing, hour ORDER BY type) AS total FROM impressions)";
    let answer = ask(&pool, sorted, &rows).await;
    let stats = pool.stats();
    assert!(answer.is_ok(), "{answer:?}");
    assert_eq!(stats.ended.get(&Ended::Growth), Some(&1), "{stats:?}");
}
