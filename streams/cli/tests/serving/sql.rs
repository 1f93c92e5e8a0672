//! SQL over HTTP, on a real server with real children: answers to tenants, refusals, and remains of ended queries.

use crate::query_server::{Gone, free_address, is_ready, query_server, serve};
use crate::serving::{Answer, PROGRAM, Place, SECRET, Server, event, request, until};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const SQL: &str = "/v1/sql";
/// A query that takes longer than any test.
const ENDLESS: &str = "SELECT count(*) FROM impressions a, impressions b, impressions c, impressions d, impressions e";

/// The program is built by another crate: `cargo build -p tidemark-streams-sql --features sql`.
fn start(place: &Place, arguments: &[&str]) -> Server {
    let program = Path::new(PROGRAM).with_file_name("tidemark-sql");
    assert!(program.is_file(), "{} is missing: build it with the feature tidemark-streams-sql/sql", program.display());
    Server::start(&place.dir(), &[&["--flush-s", "1"], arguments].concat())
}

fn body(tenant: &str, sql: &str) -> Value {
    json!({ "tenant": tenant, "from": "2026-01-01", "to": "2026-01-03", "query": sql })
}

fn ask(server: &Server, tenant: &str, sql: &str) -> Answer {
    server.post(SQL, body(tenant, sql).to_string())
}

fn rows(server: &Server, tenant: &str, sql: &str) -> Value {
    let answer = ask(server, tenant, sql);
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["rows"].clone()
}

fn folded(server: &Server) {
    until("the fold", || server.metric("tidemark_streams_lag_rows") == 0.0);
}

#[test]
fn sql_sees_rows_of_memory_and_blobs_in_the_range() {
    let place = Place::new();
    let server = start(&place, &[]);
    server.send(event("a", "lamp", "00:10:00") + &event("a", "lamp", "00:50:00") + &event("b", "sofa", "00:10:00"));
    folded(&server);
    let all = "SELECT listing, type, hour, n FROM impressions";
    let expected = json!([{ "listing": "lamp", "type": "impression", "hour": "2026-01-01T00:00:00Z", "n": 2 }]);
    assert_eq!(rows(&server, "a", all), expected, "from memory or blobs, a listing, hour and type is one row");
    until("blobs", || server.metric("tidemark_streams_counts_held") == 0.0);
    server.send(event("a", "lamp", "00:20:00"));
    folded(&server);
    assert_eq!(rows(&server, "a", "SELECT sum(n) AS n, count(*) AS c FROM impression"), json!([{ "n": 3, "c": 1 }]));
    let part = json!({ "tenant": "a", "from": "2026-01-01T00:15", "to": "2026-01-01T00:30", "query": all });
    let answer = server.post(SQL, part.to_string()).json();
    assert_eq!((&answer["rows"][0]["n"], &answer["scanned_rows"]), (&json!(1), &json!(1)), "{answer}");
    assert_eq!(answer["state"], "settled");
    assert_eq!(answer["columns"][3], json!({ "name": "n", "type": "Int64" }));
}

#[test]
fn answers_have_the_format_that_is_accepted() {
    let place = Place::new();
    let server = start(&place, &[]);
    server.send(event("a", "la,mp", "00:10:00"));
    folded(&server);
    let sent = body("a", "SELECT listing, n FROM impressions").to_string();
    let asked = |accept: &str| server.request("POST", SQL, &[accept], sent.as_bytes()).unwrap();
    let csv = asked("accept: text/csv");
    assert_eq!(csv.text, "listing,n\r\n\"la,mp\",1\r\n");
    assert_eq!(csv.header("tidemark-rows").as_deref(), Some("1"));
    let arrow = asked("accept: application/vnd.apache.arrow.stream");
    assert_eq!(arrow.header("content-type").as_deref(), Some("application/vnd.apache.arrow.stream"));
    assert!(arrow.text.contains("la,mp"), "{arrow:?}");
    let file = asked("accept: text/csv;q=0.9, application/vnd.apache.arrow.file");
    assert_eq!(file.header("content-type").as_deref(), Some("application/vnd.apache.arrow.file"));
    assert!(file.text.starts_with("ARROW1") && file.text.contains("la,mp"), "{file:?}");
    assert_eq!(asked("accept: image/png").code(), "not_acceptable");
}

#[test]
fn token_of_a_tenant_opens_no_other_rows() {
    let place = Place::new();
    let secret = &place.secret();
    let token = |arguments: &[&str]| place.bearer(arguments);
    let producer = token(&[]);
    let apple = token(&["--tenant", "apple", "--expires-in", "1h"]);
    let server = start(&place, &["--secret-file", secret]);
    let events = event("apple", "apple-1", "00:10:00") + &event("birch", "birch-1", "00:10:00").repeat(7_919);
    assert_eq!(server.request("POST", "/v1/events", &[&producer], events.as_bytes()).unwrap().status, 200);
    let sees = |named: Option<&str>, sql: &str| {
        let mut sent = body("", sql);
        match named {
            Some(named) => sent["tenant"] = json!(named),
            None => drop(sent.as_object_mut().unwrap().remove("tenant")),
        }
        server.request("POST", SQL, &[&apple], sent.to_string().as_bytes()).unwrap()
    };
    let all = "SELECT * FROM impressions";
    until("the fold", || sees(None, all).text.contains("apple-1"));
    for named in ["birch", "nobody"] {
        let refused = sees(Some(named), all);
        assert_eq!((refused.status, refused.code().as_str()), (403, "forbidden"), "{refused:?}");
    }
    assert_eq!(server.request("POST", SQL, &[], body("apple", all).to_string().as_bytes()).unwrap().status, 401);
    let texts = [
        all,
        "SELECT min(listing), max(listing), count(*), sum(n) FROM impressions",
        "EXPLAIN SELECT * FROM impressions WHERE n > 3",
        "EXPLAIN ANALYZE SELECT listing, sum(n) FROM impressions GROUP BY listing",
        "SELECT * FROM birch",
        "SELECT listing / 0 FROM impressions",
        "SELECT CAST(listing AS INT) FROM impressions",
        "SELECT tenant FROM impressions",
        "SELECT * FROM information_schema.tables",
        "SELECT approx_distinct(listing) AS d, median(n) AS m FROM impressions",
    ];
    for sql in texts {
        let answer = sees(None, sql);
        let text = answer.text.replace("no table \\\"birch\\\"", "");
        assert!(!text.contains("birch") && !text.contains("7919"), "{sql}: {text}");
        for foreign in [".parquet", "/", "apple.", SECRET] {
            let text = text.replace("https://", "").replace(" / ", "");
            assert!(!text.contains(foreign), "{sql}: {foreign}: {text}");
        }
    }
}

/// Requests whose bodies do not come.
fn waiting_bodies(server: &Server, token: &str, count: usize, bytes: usize) -> Vec<TcpStream> {
    let open = |_| {
        let mut stream = TcpStream::connect(&server.address).unwrap();
        write!(stream, "POST {SQL} HTTP/1.1\r\nhost: x\r\n{token}\r\ncontent-length: {bytes}\r\n\r\n").unwrap();
        stream.write_all(&vec![b' '; bytes - 1]).unwrap();
        stream
    };
    (0..count).map(open).collect()
}

#[test]
fn bodies_of_queries_do_not_stop_the_intake() {
    const BODIES: usize = 40;
    const LARGE: usize = 70_000;
    let place = Place::new();
    let secret = &place.secret();
    let token = |arguments: &[&str]| place.bearer(arguments);
    let producer = token(&[]);
    let server = start(&place, &["--secret-file", secret]);
    // A token that no role has is refused before the body comes.
    for mut stream in waiting_bodies(&server, "authorization: Bearer wrong", 1, 1_000) {
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut head = [0; 12];
        stream.read_exact(&mut head).unwrap();
        assert_eq!(&head, b"HTTP/1.1 403");
    }
    let small = body("a", "SELECT 1").to_string();
    let large = small.clone() + &" ".repeat(LARGE);
    let asked = |token: &str, sent: &str| server.request("POST", SQL, &[token], sent.as_bytes()).unwrap();
    let of_tenant = token(&["--tenant", "a"]);
    // Whether a tenant has the token is known once the body names the tenant, so anyone may send a token of this form.
    let stranger = format!("authorization: Bearer {}", "ab".repeat(32));
    let strangers = waiting_bodies(&server, &stranger, BODIES, LARGE);
    until("as many bodies as are read of strangers", || asked(&of_tenant, &large).code() == "overloaded");
    let of_strangers = [asked(&of_tenant, &small), asked(&producer, &large)].map(|answer| answer.status);
    assert_eq!(of_strangers, [200, 200], "small bodies and known callers have places of their own");
    let waiting = waiting_bodies(&server, &producer, BODIES, LARGE);
    until("as many bodies as are read at a time", || asked(&producer, &large).code() == "overloaded");
    assert_eq!(asked(&producer, &small).status, 200);
    let events = event("a", "lamp", "00:10:00");
    assert_eq!(server.request("POST", "/v1/events", &[&producer], events.as_bytes()).unwrap().status, 200);
    drop((waiting, strangers));
    until("a place for a body", || asked(&of_tenant, &large).status == 200 && asked(&producer, &large).status == 200);
}

#[test]
fn errors_have_codes_with_values_and_limits() {
    let place = Place::new();
    let server = start(&place, &["--sql-timeout-s", "1", "--sql-rows-max", "2000"]);
    let listings: String = (0..1_200).map(|number| event("a", &format!("l{number}"), "00:10:00")).collect();
    server
        .send(listings + &(0..2_500).map(|number| event("big", &format!("l{number}"), "00:10:00")).collect::<String>());
    folded(&server);
    let long = ask(&server, "a", &format!("SELECT '{}'", "x".repeat(70_000)));
    assert_eq!((long.status, long.code().as_str()), (400, "sql_text"));
    assert_eq!(server.metric("tidemark_streams_sql_children"), 0.0, "it is refused without a process");
    let cases = [
        ("a", "SELEC 1", 400, "sql_syntax", "SELEC"),
        ("a", "DROP TABLE impressions", 400, "sql_not_allowed", "one SELECT"),
        ("a", "SELECT nothing FROM impressions", 400, "sql_plan", "nothing"),
        ("a", "SELECT $1", 400, "sql_params", "0 values for 1"),
        ("a", "SELECT 1 / (n - n) AS x FROM impressions", 400, "sql_execution", "zero"),
        ("a", "SELECT a.n FROM impressions a, impressions b", 422, "sql_result_rows", "100000 rows"),
        // Its tenant is slow from then on.
        ("a", ENDLESS, 504, "sql_time", "1000 ms"),
        ("big", "SELECT n FROM impressions", 422, "sql_scan_rows", "2000 rows"),
    ];
    for (tenant, sql, status, code, value) in cases {
        let answer = ask(&server, tenant, sql);
        assert_eq!((answer.status, answer.code().as_str()), (status, code), "{sql}: {answer:?}");
        assert!(answer.text.contains(value), "{sql}: {answer:?}");
    }
    let mut wrong = body("a", "SELECT $1");
    wrong["params"] = json!([[1]]);
    assert_eq!(server.post(SQL, wrong.to_string()).code(), "sql_params");
    wrong["params"] = json!(["x"]);
    assert_eq!(server.post(SQL, wrong.to_string()).status, 200);
    assert_eq!(server.post(SQL, r#"{"query": "SELECT 1", "form": 1}"#).code(), "malformed_body");
    // An array of the fields in their order is no object.
    for path in [SQL, "/v1/impressions/query"] {
        for array in [r#"["a", "2026-01-01", "2026-01-02", "SELECT 1", null, null]"#, "[]", " "] {
            let refused = server.post(path, array);
            assert_eq!((refused.status, refused.code().as_str()), (400, "malformed_body"), "{refused:?}");
            assert!(refused.text.contains("no JSON object of") && !refused.text.contains("struct"), "{refused:?}");
        }
    }
    for code in ["sql_time", "sql_scan_rows"] {
        assert_eq!(server.metric(&format!("tidemark_streams_sql_refused_total{{code=\"{code}\"}}")), 1.0, "{code}");
    }
    assert_eq!(server.metric("tidemark_streams_sql_children_ended_total{reason=\"time\"}"), 1.0);
    // A query that reads too much costs no child.
    assert_eq!(server.metric("tidemark_streams_sql_children_ended_total{reason=\"abandoned\"}"), 0.0);
    assert_eq!(rows(&server, "a", "SELECT sum(n) AS n FROM impressions"), json!([{ "n": 1_200 }]));
}

#[test]
fn tenant_over_its_budget_is_told_when_to_ask_again() {
    let place = Place::new();
    let server = start(&place, &["--sql-tenant-rows", "1"]);
    server.send(event("a", "x", "00:10:00") + &event("b", "x", "00:10:00"));
    folded(&server);
    // The minute may end in between.
    until("the budget", || {
        let answer = ask(&server, "a", "SELECT n FROM impressions");
        let is_over = answer.status == 429;
        assert!(is_over || answer.status == 200, "{answer:?}");
        if is_over {
            let seconds: u64 = answer.header("retry-after").unwrap().parse().unwrap();
            assert!((1..=60).contains(&seconds) && answer.code() == "sql_over_budget", "{answer:?}");
        }
        is_over
    });
    assert_eq!(ask(&server, "b", "SELECT n FROM impressions").status, 200);
}

#[test]
fn client_that_goes_away_ends_its_query() {
    let place = Place::new();
    let log = place.path().join("sql.log");
    let server = start(&place, &["--sql-log", log.to_str().unwrap(), "--sql-timeout-s", "600"]);
    let listings: String = (0..1_000).map(|number| event("a", &format!("l{number}"), "00:10:00")).collect();
    server.send(listings);
    folded(&server);
    let sent = body("a", ENDLESS).to_string();
    let mut stream = TcpStream::connect(&server.address).unwrap();
    write!(stream, "POST {SQL} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{sent}", sent.len()).unwrap();
    until("a child", || server.metric("tidemark_streams_sql_children") == 1.0);
    stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    assert!(stream.read(&mut [0]).is_err(), "there is no answer yet");
    drop(stream);
    let ended = "tidemark_streams_sql_children_ended_total{reason=\"abandoned\"}";
    until("the end of the query", || server.metric(ended) == 1.0);
    let text = || std::fs::read_to_string(&log).unwrap_or_default();
    until("the line of the query", || text().contains(r#""outcome":"abandoned""#));
}

#[test]
fn queries_go_on_after_children_are_killed() {
    let place = Place::new();
    let server = start(&place, &["--sql-timeout-s", "600"]);
    let listings: String = (0..1_000).map(|number| event("a", &format!("l{number}"), "00:10:00")).collect();
    server.send(listings);
    folded(&server);
    let address = server.address.clone();
    let sent = body("a", ENDLESS).to_string();
    let asked = std::thread::spawn(move || request(&address, "POST", SQL, &[], sent.as_bytes()).unwrap());
    until("work", || children(server.id()).iter().any(|child| worked(child) > 50));
    for child in children(server.id()) {
        assert!(Command::new("kill").args(["-9", &child]).status().unwrap().success());
    }
    let answer = asked.join().unwrap();
    assert_eq!((answer.status, answer.code().as_str()), (422, "sql_crashed"), "{answer:?}");
    assert_eq!(rows(&server, "a", "SELECT sum(n) AS n FROM impressions"), json!([{ "n": 1_000 }]));
}

/// Hundredths of a second that a process has worked.
fn worked(id: &str) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum()
}

/// Processes that a process has started.
fn children(id: u32) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{id}/task")).unwrap();
    let of_task = |task: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(task.unwrap().path().join("children")).unwrap_or_default()
    };
    tasks.flat_map(|task| of_task(task).split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect()
}

#[test]
fn query_process_answers_sql_as_the_server_does() {
    let place = Place::new();
    let address = free_address();
    let server = serve(&place, &address, &["--flush-s", "1"]);
    let process = query_server(&place, &address, &[]);
    until("the manifest", || is_ready(&process));
    for batch in 1..=10 {
        server.send(event("a", "lamp", "00:10:00"));
        let answer = ask(&process, "a", "SELECT sum(n) AS n FROM impression").json();
        match answer["as_of"]["held_rows"].as_bool().unwrap() {
            true => assert_eq!(answer["rows"], json!([{ "n": batch }]), "{answer}"),
            false => assert!(answer["rows"][0]["n"].as_u64().unwrap_or_default() <= batch, "{answer}"),
        }
    }
    let all = body("a", "SELECT * FROM impressions").to_string();
    let arrow = ["accept: application/vnd.apache.arrow.stream"];
    let answer = process.request("POST", SQL, &arrow, all.as_bytes()).unwrap();
    assert_eq!((answer.status, answer.header("tidemark-held-rows").is_some()), (200, true), "{answer:?}");
}

#[test]
fn sql_whose_blob_is_gone_is_pinned_at_the_next_index() {
    let place = Place::new();
    let gone = Gone::at(&place);
    let sql = |process: &Server| ask(process, "a", "SELECT sum(n) AS n FROM impressions");
    let refused = sql(&gone.process);
    assert_eq!((refused.status, refused.code().as_str()), (503, "blob_gone"), "{refused:?}");
    assert!(!refused.text.contains(".parquet"), "{refused:?}");
    let answer = gone.asked_meanwhile(sql);
    assert_eq!((answer.status, &answer.json()["rows"]), (200, &json!([{ "n": 2 }])), "{answer:?}");
}

#[test]
fn guide_about_sql_says_what_the_program_does() {
    assert!(crate::guide::runs(include_str!("../../../../docs/guides/sql.md")) >= 5);
}

const TABLES: &str = "/v1/tables";
const PRICES: &str = "listing,price,since\nlamp,2.5,2026-01-01\nsofa,,2025-12-31\n";

fn upload(server: &Server, token: &str, params: &str, file: &str) -> Answer {
    server.request("POST", &format!("/v1/tables/upload?{params}"), &[token], file.as_bytes()).unwrap()
}

#[test]
fn query_joins_a_table_that_its_tenant_uploaded() {
    let place = Place::new();
    let mut server = start(&place, &[]);
    server.send(event("a", "lamp", "00:10:00").repeat(3) + &event("b", "lamp", "00:10:00"));
    folded(&server);
    let put = upload(&server, "x: y", "tenant=a&name=prices", PRICES).json();
    let columns = json!([
        { "name": "listing", "type": "text" },
        { "name": "price", "type": "float" },
        { "name": "since", "type": "date" },
    ]);
    assert_eq!((&put["table"]["columns"], &put["table"]["rows"]), (&columns, &json!(2)), "{put}");
    assert_eq!(put["replaced"], json!(false));
    let worth = "SELECT i.listing, sum(i.n * p.price) AS worth FROM impressions i JOIN prices p USING (listing) GROUP BY i.listing";
    let expected = json!([{ "listing": "lamp", "worth": 7.5 }]);
    assert_eq!(rows(&server, "a", worth), expected);
    assert_eq!(rows(&server, "a", "SELECT count(*) AS n, count(price) AS p FROM prices"), json!([{ "n": 2, "p": 1 }]));
    assert_eq!(ask(&server, "b", worth).code(), "sql_plan", "tables belong to one tenant");
    // The table outlives the server.
    server.kill();
    server = start(&place, &[]);
    folded(&server);
    until("the rows", || ask(&server, "a", worth).status == 200);
    assert_eq!(rows(&server, "a", worth), expected);
    let replaced = upload(&server, "x: y", "tenant=a&name=prices", "listing,price\nlamp,4\n").json();
    assert_eq!(replaced["replaced"], json!(true));
    assert_eq!(rows(&server, "a", worth), json!([{ "listing": "lamp", "worth": 12 }]));
    let dropped = server.post("/v1/tables/drop?tenant=a&name=prices", "");
    assert_eq!(dropped.status, 200, "{dropped:?}");
    assert_eq!(ask(&server, "a", worth).code(), "sql_plan");
    assert_eq!(server.post("/v1/tables/drop?tenant=a&name=prices", "").code(), "table_missing");
}

#[test]
fn table_that_may_not_be_is_refused_with_its_reason() {
    let place = Place::new();
    let server = start(&place, &["--sql-tenant-tables-mib", "1"]);
    let refused = |params: &str, file: &str| {
        let answer = upload(&server, "x: y", params, file);
        (answer.status, answer.code(), answer.text)
    };
    for (params, file, status, code, value) in [
        ("tenant=a", "a\n", 400, "parameter", "name is missing"),
        ("tenant=a&name=Prices", "a\n", 400, "table_name", "Prices"),
        ("tenant=a&name=click", "a\n", 409, "table_name", "click"),
        ("tenant=a&name=impressions_old", "a\n", 409, "table_name", "impressions_old"),
        ("tenant=a&name=t", "", 400, "sql_table", "the file is empty"),
        ("tenant=a&name=t", "a,b\n1\n", 400, "sql_table", "line 2 has 1 fields, and the header has 2"),
        ("tenant=a&name=t", &format!("a\n{}", "x".repeat(1 << 20)), 409, "tables_full", "at most 1048576"),
        ("tenant=a&name=t", &"a\n".repeat(5 << 20), 413, "too_large", "8388608"),
    ] {
        let (found, found_code, text) = refused(params, file);
        assert_eq!((found, found_code.as_str()), (status, code), "{params}: {text}");
        assert!(text.contains(value), "{params}: {text}");
    }
    let list = || server.get(&format!("{TABLES}?tenant=a")).json()["tables"].clone();
    assert_eq!(list(), json!([]), "nothing of them is kept");
    for at in 0..16 {
        assert_eq!(upload(&server, "x: y", &format!("tenant=a&name=t{at}"), "a\n1\n").status, 200);
    }
    let (status, code, text) = refused("tenant=a&name=t16", "a\n1\n");
    assert_eq!((status, code.as_str()), (409, "tables_full"), "{text}");
    assert_eq!(list().as_array().unwrap().len(), 16);
    let erase = || assert_eq!(server.post("/v1/erase?tenant=a", "").status, 200);
    until("the owner", || server.post("/v1/erase?tenant=a", "").status == 200);
    assert_eq!(list(), json!([]), "an erasure of the tenant drops its tables");
    assert_eq!(upload(&server, "x: y", "tenant=a&name=later", "a\n1\n").status, 200);
    erase();
    assert_eq!(list().as_array().unwrap().len(), 1, "to ask how far it is drops nothing");
}

#[test]
fn token_of_a_tenant_opens_its_own_tables_only() {
    let place = Place::new();
    let secret = &place.secret();
    let token = |arguments: &[&str]| place.bearer(arguments);
    let apple = token(&["--tenant", "apple", "--expires-in", "1h"]);
    let birch = token(&["--tenant", "birch", "--expires-in", "1h"]);
    let server = start(&place, &["--secret-file", secret]);
    assert_eq!(upload(&server, "x: y", "name=prices", PRICES).status, 401);
    assert_eq!(upload(&server, &birch, "tenant=apple&name=prices", PRICES).code(), "forbidden");
    assert_eq!(upload(&server, &apple, "name=prices", PRICES).status, 200);
    let listed = |token: &str| server.request("GET", TABLES, &[token], b"").unwrap().json()["tables"].clone();
    assert_eq!(listed(&apple)[0]["name"], json!("prices"));
    assert_eq!(listed(&birch), json!([]));
    let count = |token: &str| {
        let mut sent = body("", "SELECT count(*) AS n FROM prices");
        sent.as_object_mut().unwrap().remove("tenant");
        server.request("POST", SQL, &[token], sent.to_string().as_bytes()).unwrap()
    };
    until("the owner", || count(&apple).status == 200);
    assert_eq!(count(&apple).json()["rows"], json!([{ "n": 2 }]));
    assert_eq!(count(&birch).code(), "sql_plan");
    let dropped = server.request("POST", "/v1/tables/drop?name=prices", &[&birch], b"").unwrap();
    assert_eq!(dropped.code(), "table_missing");
}
