//! Two tenants on one pool: nothing of one is in an answer, an error or a plan of the other.

use super::*;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use tidemark_streams_sql::pool::Ended;

const CASES: usize = 200;
/// Counts of each tenant have digits that the other's never have.
const TENANTS: [(&str, &str, u32); 2] = [("a", "apple", 1_000_003), ("b", "birch", 2_000_029)];

fn rows_of(word: &str, count: u32) -> Vec<Rows> {
    let mut rows = rows(word, 5, 6);
    rows.iter_mut().flat_map(|rows| &mut rows.quarters).for_each(|quarters| *quarters = [count, 0, 0, 0]);
    rows
}

/// Texts of queries, right and wrong ones.
fn sqls() -> impl Strategy<Value = String> {
    let table = prop_oneof![
        Just("impressions"),
        Just("click"),
        Just("impression"),
        Just("impressions_local('Asia/Kathmandu')"),
        Just("nothing"),
        Just("information_schema.tables"),
        Just("(SELECT * FROM impressions UNION ALL SELECT * FROM impressions)"),
    ];
    let column = prop_oneof![
        Just("*"),
        Just("t.*"),
        Just("listing"),
        Just("n"),
        Just("hour"),
        Just("type"),
        Just("count(*)"),
        Just("min(listing)"),
        Just("max(n)"),
        Just("max(hour)"),
        Just("count(DISTINCT listing)"),
        Just("nothing"),
        Just("CAST(listing AS BIGINT)"),
        Just("n / 0"),
        Just("row_number() OVER (ORDER BY n)"),
    ];
    let condition = prop_oneof![
        Just(""),
        Just(" WHERE listing LIKE '%r%'"),
        Just(" WHERE n > 0"),
        Just(" WHERE n = 1000003 OR n = 2000029"),
        Just(" WHERE listing IN ('apple-1', 'birch-1')"),
        Just(" WHERE hour > '1970-01-01'"),
        Just(" WHERE listing = n"),
    ];
    let rest = prop_oneof![Just(""), Just(" LIMIT 3"), Just(" ORDER BY 1 DESC"), Just(" GROUP BY listing")];
    let head =
        prop_oneof![Just("SELECT"), Just("EXPLAIN SELECT"), Just("EXPLAIN ANALYZE SELECT"), Just("SELECT DISTINCT")];
    (head, column, table, condition, rest)
        .prop_map(|(head, column, table, condition, rest)| format!("{head} {column} FROM {table} t{condition}{rest}"))
}

#[tokio::test]
async fn tenants_see_nothing_of_each_other() {
    let pool = Pool::new(PoolSettings { children: 2, ..settings() });
    let rows = TENANTS.map(|(_, word, count)| rows_of(word, count));
    let mut runner = TestRunner::deterministic();
    let mut answers = 0;
    for case in 0..CASES {
        let sql = sqls().new_tree(&mut runner).unwrap().current();
        let [this, other] = if case % 2 == 0 { [0, 1] } else { [1, 0] };
        let asked = run(&pool, TENANTS[this].0, query(pool.settings(), &sql), &rows[this]).await;
        let text = match asked {
            Ok(result) => {
                answers += 1;
                assert!(!result.columns.iter().any(|column| column.name.contains(TENANTS[other].1)), "{sql}");
                String::from_utf8(result.output).unwrap()
            }
            Err(error) => error.to_string(),
        };
        // Constants that the query names itself may come back.
        let [word, number] = [TENANTS[other].1.to_owned(), TENANTS[other].2.to_string()];
        for secret in [word, number].iter().filter(|secret| !sql.contains(*secret)) {
            assert!(!text.contains(secret), "{sql}: {text}");
        }
    }
    assert!(answers > CASES / 3, "{answers}");
    let stats = pool.stats();
    assert_eq!((stats.started, stats.ended.get(&Ended::Tenant)), (2, None), "each tenant has a child of its own");
}

#[tokio::test]
async fn child_has_one_tenant_in_its_life() {
    let pool = Pool::new(PoolSettings { children: 2, ..settings() });
    let mut children = std::collections::BTreeMap::new();
    for tenant in ["a", "b", "a", "b", "c", "b", "a", "c", "c"] {
        let session = pool.begin(tenant).await.unwrap();
        let id = session.id().unwrap();
        let before = children.insert(id, tenant);
        assert!(before.is_none_or(|before| before == tenant), "{tenant} got the child of {before:?}");
        carry_out(session, query(pool.settings(), "SELECT 1"), &[]).await.unwrap();
        assert!(pool.stats().alive() <= 2, "{:?}", pool.stats());
    }
    // a and b have a child each. c ends the child of a, the oldest. b goes on. a ends the child of c, and c the child of b.
    let stats = pool.stats();
    assert_eq!((stats.started, stats.ended.get(&Ended::Tenant)), (5, Some(&3)), "{stats:?}");
}
