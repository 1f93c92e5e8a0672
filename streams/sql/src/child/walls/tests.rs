//! Which texts may be planned. The lists of functions match those of the engine.

use super::*;
use std::collections::BTreeSet;

/// With the stack that a child has.
fn refused(sql: &str) -> Option<Refused> {
    let thread = std::thread::Builder::new().stack_size(crate::limits::STACK_BYTES);
    std::thread::scope(|scope| {
        let checked = thread.spawn_scoped(scope, || check(sql).err()).unwrap();
        checked.join().unwrap()
    })
}

fn refusal(sql: &str) -> Option<Refusal> {
    refused(sql).map(|refused| refused.refusal)
}

#[test]
fn queries_of_analysts_are_let_through() {
    for sql in [
        "SELECT 1",
        "EXPLAIN SELECT 1",
        "EXPLAIN ANALYZE SELECT n FROM click",
        "WITH a AS (SELECT n FROM click) SELECT * FROM a JOIN impression USING (listing) WHERE a.n IN (SELECT 1)",
        "SELECT listing, rank() OVER (PARTITION BY type ORDER BY sum(n) DESC) FROM impressions GROUP BY 1 HAVING sum(n) > 1",
        "SELECT count(*) FILTER (WHERE n > 1), extract(hour FROM hour), substring(listing, 1, 2) FROM impressions",
        "SELECT * FROM impressions_local('UTC') UNION ALL SELECT * FROM Impressions_Local()",
        "VALUES (1), (2)",
        "SELECT * FROM (SELECT n FROM click) x, (VALUES (1)) y",
    ] {
        assert_eq!(check(sql).err(), None, "{sql}");
    }
    assert_eq!(check("SELECT $1 + $3").map(|checked| checked.params), Ok(3));
}

#[test]
fn whatever_is_no_query_is_refused() {
    for sql in [
        "DROP TABLE click",
        "CREATE TABLE x AS SELECT 1",
        "CREATE EXTERNAL TABLE x STORED AS CSV LOCATION '/etc/passwd'",
        "CREATE VIEW x AS SELECT 1",
        "INSERT INTO click VALUES (1)",
        "UPDATE click SET n = 1",
        "DELETE FROM click",
        "COPY click TO '/x'",
        "SET datafusion.execution.batch_size = 1",
        "SHOW TABLES",
        "DESCRIBE click",
        "EXPLAIN INSERT INTO click VALUES (1)",
        "EXPLAIN FORMAT TREE SELECT n FROM click",
        "EXPLAIN (FORMAT PGJSON) SELECT n FROM click",
        "EXPLAIN (ANALYZE) SELECT n FROM click",
        "PREPARE x AS SELECT 1",
        "EXECUTE x",
        "BEGIN",
        "SELECT 1; SELECT 2",
        "",
        "-- nothing",
        "WITH RECURSIVE a AS (SELECT 1 UNION ALL SELECT 1 FROM a) SELECT * FROM a",
        "SELECT * INTO x FROM click",
        "SELECT * FROM click FOR UPDATE",
        "SELECT * FROM generate_series(1, 1000000000)",
        "SELECT * FROM range(1, 10)",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM UNNEST([1, 2])",
        "SELECT * FROM information_schema.tables",
        "SELECT * FROM tidemark.streams.click",
        "SELECT * FROM click, LATERAL (SELECT 1) x",
        "SELECT * FROM click TABLESAMPLE BERNOULLI (10)",
        "SELECT repeat('a', 1000000000)",
        "SELECT lpad('a', 1000000000, 'b')",
        "SELECT random()",
        "SELECT version()",
        "SELECT array_agg(n) FROM click",
        "SELECT string_agg(listing, ',') FROM click",
        "SELECT unnest(make_array(1, 2))",
        "SELECT (SELECT uuid())",
        "SELECT 1 /*! + 1 */",
        "SELECT /*!/*!/*! 1 */*/*/",
    ] {
        let found = refusal(sql);
        assert!(matches!(found, Some(Refusal::NotAllowed | Refusal::Syntax)), "{sql}: {found:?}");
    }
}

#[test]
fn clauses_that_the_engine_passes_over_are_refused() {
    for sql in [
        "SELECT sum(n) FROM click PREWHERE listing = 'a'",
        "SELECT listing, sum(n) FROM click GROUP BY listing WITH ROLLUP",
        "SELECT listing, sum(n) FROM click GROUP BY listing WITH CUBE",
        "SELECT listing, sum(n) FROM click GROUP BY listing WITH TOTALS",
        "SELECT listing, sum(n) FROM click GROUP BY listing GROUPING SETS ((listing), ())",
        "SELECT sum(n) FROM click GROUP BY ALL WITH TOTALS",
        "SELECT sum(0.5)(n) FROM click",
        "SELECT n FROM click ORDER BY n WITH FILL FROM 1 TO 9",
        "SELECT * FROM (SELECT n FROM click) TABLESAMPLE BERNOULLI (10)",
        "SELECT TOP 1 n FROM click",
        "SELECT n FROM click SORT BY n",
        "SELECT AS VALUE n FROM click",
    ] {
        let found = refusal(sql);
        assert!(matches!(found, Some(Refusal::NotAllowed | Refusal::Syntax)), "{sql}: {found:?}");
    }
    for sql in [
        "SELECT listing, type, sum(n) FROM impressions GROUP BY GROUPING SETS ((listing), (type), ())",
        "SELECT listing, sum(n) FROM click GROUP BY ROLLUP (listing)",
        "SELECT listing, sum(n) FROM click GROUP BY ALL",
        "SELECT n FROM click ORDER BY n DESC NULLS LAST LIMIT 3 OFFSET 1",
    ] {
        assert_eq!(refusal(sql), None, "{sql}");
    }
}

#[test]
fn texts_that_are_too_large_are_refused() {
    let nested = |depth: usize| format!("SELECT {}1{}", "(".repeat(depth), ")".repeat(depth));
    let chain = |length: usize| format!("SELECT 1{}", " + 1".repeat(length));
    let unions = |count: usize| format!("SELECT 1{}", " UNION ALL SELECT 1".repeat(count));
    let tables = |count: usize| format!("SELECT 1 FROM click{}", ", click".repeat(count));
    let queries =
        |depth: usize| format!("SELECT * FROM {}click{}", "(SELECT * FROM ".repeat(depth), ") x".repeat(depth));
    for fits in [nested(20), chain(CHAIN_MAX - 10), unions(SELECTS_MAX - 1), tables(RELATIONS_MAX - 1), queries(10)] {
        assert_eq!(refusal(&fits), None, "{}", &fits[..40]);
    }
    let too_large = [
        nested(NESTING_MAX + 1),
        nested(10_000),
        chain(CHAIN_MAX),
        chain(9_000),
        unions(SELECTS_MAX),
        unions(5_000),
        tables(RELATIONS_MAX),
        queries(NESTING_MAX + 1),
        format!("SELECT 1 IN ({}1)", "1,".repeat(TOKENS_MAX)),
        format!("SELECT '{}'", "x".repeat(SQL_BYTES_MAX)),
        format!("SELECT CAST(1 AS {}INT{})", "ARRAY<".repeat(9_000), ">".repeat(9_000)),
        format!("SELECT CAST(1 AS {}INT{})", "NULLABLE(".repeat(6_000), ")".repeat(6_000)),
        format!("SELECT CAST(1 AS INT{})", "[]".repeat(9_000)),
        format!("SELECT CAST(1 AS {}INT{})", "STRUCT<a ".repeat(5_000), ">".repeat(5_000)),
        format!("SELECT {}true FROM click", "not ".repeat(NESTING_MAX - OUTER_LEVELS + 1)),
        format!("SELECT {}{}true{}", "(".repeat(40), "NOT ".repeat(20), ")".repeat(40)),
        format!("SELECT {}true{} FROM click WHERE n = 1", "NOT (".repeat(24), ")".repeat(24)),
        format!("SELECT {}true", "NOT ".repeat(5_000)),
        format!("SELECT {}1 FROM click", "- ".repeat(NESTING_MAX + 1)),
        format!("SELECT {}1", "+ ".repeat(5_000)),
    ];
    for sql in too_large {
        let refused = refused(&sql).unwrap();
        assert_eq!(refused.refusal, Refusal::Complex, "{}: {}", &sql[..40], refused.message);
    }
    for fits in [
        format!("SELECT {}true FROM click", "not ".repeat(NESTING_MAX - OUTER_LEVELS)),
        format!("SELECT {}n{} FROM click", "(".repeat(20), ")".repeat(20)),
        format!("SELECT {}", vec!["(- n) + NOT (true)"; 40].join(", ")),
    ] {
        assert_eq!(refusal(&fits), None, "{fits}");
    }
    assert_eq!(refusal("SELECT ?"), Some(Refusal::Params));
    assert_eq!(refusal("SELECT $0"), Some(Refusal::Params));
    assert_eq!(refusal("SELECT 'open"), Some(Refusal::Syntax));
}

#[test]
fn listed_functions_are_those_of_the_engine() {
    fn missing(listed: &[&str], known: impl Iterator<Item = String>) -> Vec<String> {
        let known: BTreeSet<String> = known.collect();
        listed.iter().filter(|name| !known.contains(**name)).map(|name| (*name).to_owned()).collect()
    }
    let scalars = datafusion::functions::all_default_functions();
    let aggregates = datafusion::functions_aggregate::all_default_aggregate_functions();
    let windows = datafusion::functions_window::all_default_window_functions();
    assert_eq!(missing(&SCALARS, scalars.iter().map(|known| known.name().to_owned())), [""; 0]);
    assert_eq!(missing(&AGGREGATES, aggregates.iter().map(|known| known.name().to_owned())), [""; 0]);
    assert_eq!(missing(&WINDOWS, windows.iter().map(|known| known.name().to_owned())), [""; 0]);
    for (name, alias) in ALIASES {
        assert!(SCALARS.contains(&name) || AGGREGATES.contains(&name) || WINDOWS.contains(&name), "{name} for {alias}");
    }
}
