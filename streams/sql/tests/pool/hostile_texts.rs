//! A hundred texts of queries that mean harm: they want all memory, all time, or what no tenant may see. A test and a bench send them.

/// The texts, for tables with listings that have a `-`.
pub fn hostile() -> Vec<String> {
    let mut queries: Vec<String> = FIXED.iter().map(|sql| (*sql).to_owned()).collect();
    for tables in 2..12 {
        let names: Vec<String> = (0..tables).map(|at| format!("impressions t{at}")).collect();
        queries.push(format!("SELECT count(*) FROM {}", names.join(", ")));
        queries.push(format!("SELECT * FROM {} ORDER BY 1", names.join(" CROSS JOIN ")));
    }
    for depth in [10, 49, 200, 5_000] {
        queries.push(format!("SELECT {}1{}", "(".repeat(depth), ")".repeat(depth)));
        queries.push(format!("SELECT {}n{} FROM click", "abs(".repeat(depth), ")".repeat(depth)));
        queries.push(format!("SELECT {}1", "NOT ".repeat(depth)));
        queries.push(format!("SELECT * FROM {}click{}", "(SELECT * FROM ".repeat(depth), ") x".repeat(depth)));
        queries.push(format!("SELECT CASE {} END", "WHEN true THEN CASE ".repeat(depth)));
    }
    for length in [400, 1_000, 9_000] {
        queries.push(format!("SELECT 1{}", " + 1".repeat(length)));
        queries.push(format!("SELECT count(*) FROM click WHERE n = 1{}", " OR n = 1".repeat(length)));
        queries.push(format!("SELECT 1{}", " UNION ALL SELECT 1".repeat(length / 5)));
        queries.push(format!("SELECT count(*) FROM click WHERE listing IN ('x'{})", ", 'y'".repeat(length)));
        queries.push(format!("SELECT n{} FROM click", ", n + 1".repeat(length)));
    }
    for doublings in [8, 16, 30] {
        queries.push(doubled("SELECT x.a FROM t{} x CROSS JOIN t{} y", doublings));
        queries.push(doubled("SELECT a FROM t{} UNION ALL SELECT a FROM t{}", doublings));
        queries.push(format!("SELECT {} FROM click", grown("listing", doublings)));
    }
    queries
}

/// Views, each of which names the one before twice.
fn doubled(step: &str, times: usize) -> String {
    let first = "WITH t0 AS (SELECT n AS a FROM click)".to_owned();
    let step = |sql: String, at: usize| format!("{sql}, t{} AS ({})", at + 1, step.replace("{}", &at.to_string()));
    (0..times).fold(first, step) + &format!(" SELECT count(*) FROM t{times}")
}

/// A text that doubles again and again.
fn grown(text: &str, times: usize) -> String {
    (0..times).fold(text.to_owned(), |text, _| format!("replace({text}, '-', '----------')"))
}

const FIXED: [&str; 39] = [
    "SELECT * FROM generate_series(1, 1000000000000)",
    "SELECT sum(value) FROM range(0, 9223372036854775807)",
    "WITH RECURSIVE t AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM t) SELECT count(*) FROM t",
    "SELECT repeat('x', 2000000000)",
    "SELECT lpad('x', 2000000000)",
    "SELECT array_agg(listing) FROM impressions a, impressions b",
    "SELECT string_agg(a.listing, b.listing) FROM impressions a, impressions b",
    "SELECT make_array(1, 2, 3)",
    "SELECT a.listing || b.listing || c.listing AS x, count(*) FROM impressions a, impressions b, click c GROUP BY 1",
    "SELECT DISTINCT a.listing, b.listing, c.listing FROM impressions a, impressions b, impressions c",
    "SELECT a.listing, b.hour, count(*) FROM impressions a, impressions b GROUP BY 1, 2",
    "SELECT count(DISTINCT a.listing || b.listing || a.hour::varchar || b.hour::varchar) FROM impressions a, impressions b",
    "SELECT median(a.n + b.n) FROM impressions a, impressions b",
    "SELECT a.listing, sum(b.n) OVER (ORDER BY a.hour, b.hour) FROM impressions a, impressions b ORDER BY 2",
    "SELECT row_number() OVER () FROM impressions a, impressions b, impressions c",
    "SELECT * FROM impressions a FULL JOIN impressions b ON a.n + b.n > 0 FULL JOIN impressions c ON b.n + c.n > 0",
    "SELECT count(*) FROM impressions a JOIN impressions b ON a.type = b.type JOIN impressions c ON b.type = c.type",
    "SELECT count(*) FROM impressions a LEFT JOIN impressions b ON a.listing <> b.listing LEFT JOIN click c ON true",
    "SELECT * FROM impressions WHERE n > (SELECT avg(b.n) FROM impressions b WHERE b.listing <> impressions.listing)",
    "SELECT count(*) FROM impressions a WHERE EXISTS (SELECT 1 FROM impressions b, click c WHERE b.n > a.n + c.n)",
    "SELECT a.listing FROM impressions a, impressions b ORDER BY a.listing || b.listing",
    "SELECT a.listing FROM impressions a, impressions b, impressions c ORDER BY 1 LIMIT 10",
    "SELECT a.*, b.* FROM impressions a NATURAL JOIN impressions b NATURAL JOIN impressions_local() c",
    "SELECT count(*) FROM impressions_local('UTC') a, impressions_local('Europe/Berlin') b, click c",
    "SELECT power(10, 400), exp(100000), 1 / 0",
    "SELECT sum(a.n * b.n * 9223372036854775807) FROM impressions a, click b",
    "SELECT levenshtein(concat(listing, listing), concat(listing, listing, listing)) FROM impressions",
    "SELECT concat(a.listing, b.listing, c.listing) FROM click a, click b, click c",
    "SELECT listing FROM click GROUP BY CUBE (listing, n, hour)",
    "SELECT listing, n, hour, count(*) FROM impressions GROUP BY ROLLUP (listing, n, hour), CUBE (type, n, listing)",
    "SELECT * FROM impressions a, impressions b INTERSECT SELECT * FROM impressions a, impressions b",
    "SELECT * FROM impressions WHERE listing LIKE '%a%b%c%d%e%f%g%h%i%j%k%l%m%n%o%p%'",
    "SELECT * FROM impressions WHERE listing SIMILAR TO '(a|a)*(b|b)*'",
    "SELECT * FROM impressions WHERE listing ~ '(x+x+)+y'",
    "COPY (SELECT * FROM impressions) TO 'out.csv'",
    "CREATE TABLE x AS SELECT * FROM impressions a, impressions b",
    "SELECT * FROM '/etc/passwd'",
    "SELECT \u{0}",
    "EXPLAIN ANALYZE SELECT count(*) FROM impressions a, impressions b, impressions c",
];
