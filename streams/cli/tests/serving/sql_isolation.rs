//! Generated queries of five tenants whose rows lie in the same blobs: nothing of a tenant is in an answer to another one.
//!
//! `TIDEMARK_SQL_QUERIES=10000` runs more queries, and `TIDEMARK_SQL_SEED=7` other ones.

use crate::serving::{Place, Server, exchange, until};
use crate::sql_generator::{COUNTS, Generated, Purpose, TENANTS, query};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

const QUERIES: u64 = 250;
const QUERIES_VARIABLE: &str = "TIDEMARK_SQL_QUERIES";
const SEED_VARIABLE: &str = "TIDEMARK_SQL_SEED";
/// Clients that ask at the same time. The server has one child more.
const CLIENTS: u64 = 2;
/// A query that waits for a process is sent again so often, 5 s apart.
const TRIES: usize = 20;
const ARGUMENTS: [&str; 14] = [
    "--flush-s",
    "1",
    "--sql-children",
    "3",
    "--sql-tenant-queries",
    "2",
    "--sql-tenant-s",
    "480",
    "--sql-tenant-rows",
    "1000000000000",
    "--sql-timeout-s",
    "120",
    "--types",
    "impression,click",
];
const LISTINGS: usize = 6;
const HOURS: usize = 4;
/// The hours of a batch of events, so that rows are in several blobs.
const BATCHES: [[usize; 2]; 2] = [[0, 1], [2, 3]];
const FORMATS: [&str; 5] = [
    "application/json",
    "application/json",
    "text/csv",
    "application/vnd.apache.arrow.stream",
    "application/vnd.apache.arrow.file",
];

/// Rows of a tenant: each has more than the one before.
fn listings_of(tenant: usize) -> usize {
    LISTINGS + tenant
}

/// The rows of a tenant with a count: each listing has an impression and a click in each hour.
fn rows_of(tenant: usize) -> u64 {
    (listings_of(tenant) * HOURS * 2) as u64
}

fn events(tenant: usize, hours: [usize; 2]) -> String {
    let known = &TENANTS[tenant];
    let mut lines = String::new();
    for (hour, listing) in hours.into_iter().flat_map(|hour| (0..listings_of(tenant)).map(move |at| (hour, at))) {
        for (at, kind) in ["impression", "click"].into_iter().enumerate() {
            let number = ((listing * HOURS + hour) * 2 + at) as u64;
            assert!(number < COUNTS);
            let mut event = json!({
                "tenant": known.word, "listing": known.listing(listing), "type": kind, "n": known.count + number,
                "at": format!("2026-01-01T{hour:02}:10:00Z"),
            });
            // Some rows have no value.
            if listing % 3 > 0 {
                event["country"] = json!(known.value(["NP", "IN"][listing % 2]));
            }
            if hour % 2 > 0 {
                event["surface"] = json!(known.value("feed"));
            }
            lines += &format!("{event}\n");
        }
    }
    lines
}

/// A server, and the headers of tokens: of producers, and of each tenant.
struct Asked {
    server: Server,
    producer: String,
    tokens: Vec<String>,
}

impl Asked {
    /// A server with the rows and tables of tenants.
    fn start(place: &Place, arguments: &[&str], tenants: &[usize]) -> Asked {
        let secret = place.secret();
        let token = |tenant: &str| place.bearer(&["--tenant", tenant, "--expires-in", "1d"]);
        let tokens = TENANTS.iter().map(|tenant| token(tenant.word)).collect();
        let server = Server::start(&place.dir(), &[&ARGUMENTS, arguments, &["--secret-file", &secret]].concat());
        let asked = Asked { server, producer: place.bearer(&[]), tokens };
        asked.fill(&place.bearer(&["--operator"]), tenants);
        asked
    }

    fn fill(&self, operator: &str, tenants: &[usize]) {
        let post = |token: &str, path: &str, body: &str| {
            let answer = self.server.request("POST", path, &[token], body.as_bytes()).unwrap();
            assert_eq!(answer.status, 200, "{path}: {answer:?}");
        };
        until("the owner", || self.server.get("/readyz").status == 200);
        for (dimension, kind) in
            ["country", "surface"].into_iter().flat_map(|one| [(one, "impression"), (one, "click")])
        {
            post(operator, &format!("/v1/types/add-dimension?type={kind}&dimension={dimension}"), "");
        }
        for hours in BATCHES {
            let batch: String = tenants.iter().map(|&tenant| events(tenant, hours)).collect();
            post(&self.producer, "/v1/events", &batch);
            until("blobs", || {
                self.metric("tidemark_streams_lag_rows") + self.metric("tidemark_streams_counts_held") == 0.0
            });
        }
        for &tenant in tenants {
            let known = &TENANTS[tenant];
            let price = |at: usize| {
                format!("{},{},{}\n", known.listing(at), known.count + 900 + at as u64, known.value("note"))
            };
            let prices: String = (0..4).map(price).collect();
            post(&self.tokens[tenant], "/v1/tables/upload?name=prices", &format!("listing,price,note\n{prices}"));
            let goals = format!("goal,target,{}mark\n{},{},1\n", known.letter, known.value("goal"), known.count + 950);
            post(&self.tokens[tenant], &format!("/v1/tables/upload?name={}_goals", known.word), &goals);
        }
    }

    fn metrics(&self) -> Vec<u8> {
        exchange(&self.server.address, "GET", "/metrics", &[&self.producer], b"").unwrap()
    }

    fn metric(&self, name: &str) -> f64 {
        let text = String::from_utf8(self.metrics()).unwrap();
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
        value.unwrap_or_else(|| panic!("no {name}"))
    }

    /// Each byte of the answer to a query.
    fn ask(&self, query: &Generated, number: u64) -> Vec<u8> {
        let accept = format!("accept: {}", FORMATS[(number % FORMATS.len() as u64) as usize]);
        let to = if is_part(number) { "2026-01-01T02:00" } else { "2026-01-03" };
        let body = json!({ "query": query.sql, "params": query.params, "from": "2026-01-01", "to": to });
        let headers = [self.tokens[query.me].as_str(), &accept];
        let once = || exchange(&self.server.address, "POST", "/v1/sql", &headers, body.to_string().as_bytes()).unwrap();
        // On a busy machine a query waits too long for a process, and may be sent again.
        let mut answers = std::iter::repeat_with(once).take(TRIES);
        answers.find(|answer| parts(answer).code() != "sql_busy").expect("a process gets free")
    }
}

/// Whether a query asks for a part of the rows.
fn is_part(number: u64) -> bool {
    number.is_multiple_of(11)
}

/// The parts of an answer.
struct Parts<'a> {
    status: u16,
    head: String,
    body: &'a [u8],
}

fn parts(answer: &[u8]) -> Parts<'_> {
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("a head");
    let head = String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase();
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    Parts { status, head, body: &answer[end + 4..] }
}

impl Parts<'_> {
    fn json(&self) -> Value {
        serde_json::from_slice(self.body).unwrap_or_default()
    }

    fn header(&self, name: &str) -> Option<u64> {
        let line = self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line?.trim().parse().ok()
    }

    /// A number that JSON has as a field, and other formats as a header.
    fn number(&self, field: &str, header: &str) -> u64 {
        self.header(header).or_else(|| self.json()[field].as_u64()).unwrap_or_default()
    }

    fn code(&self) -> String {
        match self.status {
            200 => "ok".to_owned(),
            _ => self.json()["error"]["code"].as_str().unwrap_or_default().to_owned(),
        }
    }

    /// The parts that do not depend on the time.
    fn lasting(&self) -> (u16, Vec<u8>) {
        let mut json = self.json();
        let Some(fields) = json.as_object_mut() else { return (self.status, self.body.to_vec()) };
        fields.retain(|name, _| {
            ["rows", "columns", "row_count", "scanned_rows", "late_total", "error"].contains(&name.as_str())
        });
        (self.status, json.to_string().into_bytes())
    }
}

/// The first mark of a tenant in bytes. Words and counts that `said` has come from the query itself.
fn mark_in(bytes: &[u8], tenant: usize, said: &str) -> Option<String> {
    let known = &TENANTS[tenant];
    let text = String::from_utf8_lossy(bytes).to_lowercase();
    if text.contains(known.letter) || text.contains(&escaped(known.letter)) {
        return Some(known.letter.to_string());
    }
    let reversed: String = known.word.chars().rev().collect();
    if let Some(word) = [known.word, &reversed].into_iter().find(|word| text.contains(*word))
        && !said.to_lowercase().contains(known.word)
    {
        return Some(word.to_owned());
    }
    let counts = known.count..known.count + COUNTS;
    let is_count = |number: &str| number.parse().is_ok_and(|number| counts.contains(&number)) && !said.contains(number);
    if let Some(number) = text.split(|sign: char| !sign.is_ascii_digit()).find(|number| is_count(number)) {
        return Some(number.to_owned());
    }
    // Arrow has numbers of eight bytes.
    let number = |window: &[u8]| window.try_into().map(u64::from_le_bytes).unwrap_or_default();
    let mut numbers = bytes.windows(8).map(number);
    numbers
        .find(|number| counts.contains(number) && !said.contains(&number.to_string()))
        .map(|number| number.to_string())
}

/// A letter as JSON may write it.
fn escaped(letter: char) -> String {
    letter.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect()
}

/// A mark of any tenant but this one.
fn foreign_mark(bytes: &[u8], me: usize, said: &str) -> Option<String> {
    (0..TENANTS.len()).filter(|&other| other != me).find_map(|other| mark_in(bytes, other, said))
}

/// What was seen of all queries.
#[derive(Debug, Default)]
struct Seen {
    codes: BTreeMap<(Purpose, String), u64>,
    with_rows: u64,
    with_own_letter: u64,
    compared: u64,
    /// Queries that were asked again, because the engine may choose rows.
    repeated: u64,
}

/// Asks a query, and checks each byte of its answer. `alone` has rows of the first tenant only.
fn check(asked: &Asked, alone: &Asked, number: u64, seed: u64, seen: &Mutex<Seen>) {
    let query = query(seed, number);
    let Generated { me, purpose, sql, params } = &query;
    let answer = asked.ask(&query, number);
    let answered = parts(&answer);
    let what = format!("query {number} of seed {seed} by {}: {sql} {params:?}", TENANTS[*me].word);
    let text = String::from_utf8_lossy(answered.body);
    let said = format!("{sql} {}", json!(params));
    assert_eq!(foreign_mark(&answer, *me, &said), None, "{what}: {}: {text}", answered.head);
    let expected = [200, 400, 422];
    assert!(expected.contains(&answered.status), "{what}: {}: {text}", answered.head);
    let scanned = answered.number("scanned_rows", "tidemark-scanned");
    let most = if is_part(number) { rows_of(*me) / 2 } else { rows_of(*me) };
    assert!(scanned == 0 || scanned == most, "{what}: {scanned} rows were read, and the tenant has {most}");
    let rows = answered.number("row_count", "tidemark-rows");
    if *purpose == Purpose::Guess {
        assert_eq!((answered.status, rows), (200, 0), "{what}: {text}");
    }
    let depends_on_time = sql.contains("ANALYZE");
    let is_compared = *me == 0 && !depends_on_time;
    let mut repeated = 0;
    if is_compared {
        let same = |answer: &[u8]| parts(answer).lasting() == parts(&alone.ask(&query, number)).lasting();
        // With LIMIT the engine may choose other rows now and then, if the order leaves it the choice.
        let tries = if sql.contains("LIMIT") { TRIES } else { 1 };
        let is_same = same(&answer)
            || (1..tries).any(|_| {
                repeated += 1;
                same(&asked.ask(&query, number))
            });
        assert!(is_same, "{what}: an answer without other tenants differs from {text}");
    }
    let mut seen = seen.lock().unwrap();
    *seen.codes.entry((*purpose, answered.code())).or_default() += 1;
    seen.with_rows += u64::from(rows > 0 && answered.status == 200 && *purpose != Purpose::Explain);
    seen.with_own_letter += u64::from(mark_in(&answer, *me, &said).is_some());
    seen.compared += u64::from(is_compared);
    seen.repeated += repeated;
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().unwrap_or_else(|_| panic!("{name}={value} is no number")))
}

#[test]
fn tenants_see_nothing_of_each_other() {
    let queries = setting(QUERIES_VARIABLE, QUERIES);
    let seed = setting(SEED_VARIABLE, 1);
    let [place, other] = [Place::new(), Place::new()];
    let log = place.path().join("sql.log");
    let all: Vec<usize> = (0..TENANTS.len()).collect();
    let asked = Asked::start(&place, &["--sql-log", log.to_str().unwrap()], &all);
    let alone = Asked::start(&other, &[], &[0]);
    let next = AtomicU64::new(0);
    let seen = Mutex::new(Seen::default());
    std::thread::scope(|scope| {
        let client = || {
            while let Some(number) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|&number| number < queries) {
                check(&asked, &alone, number, seed, &seen);
            }
        };
        (0..CLIENTS).for_each(|_| drop(scope.spawn(client)));
    });
    let seen = seen.into_inner().unwrap();
    println!("{queries} queries of seed {seed}: {seen:#?}");
    let count = |keeps: &dyn Fn(Purpose, &str) -> bool| -> u64 {
        seen.codes.iter().filter(|((purpose, code), _)| keeps(*purpose, code)).map(|(_, count)| count).sum()
    };
    assert!(seen.with_rows * 100 >= queries * 40, "{seen:?}");
    assert!(seen.with_own_letter * 100 >= queries * 30, "{seen:?}");
    assert!(count(&|_, code| code != "ok") * 100 >= queries * 10, "{seen:?}");
    assert!(count(&|purpose, code| purpose == Purpose::Explain && code == "ok") * 100 >= queries * 3, "{seen:?}");
    assert!(count(&|_, code| code == "sql_execution") * 100 >= queries * 2, "{seen:?}");
    assert!(seen.compared * 100 >= queries * 10, "{seen:?}");
    check_others(&asked, &log, queries + seen.repeated);
}

/// The metrics name no tenant. The log of queries has each query, and no text or count of a row.
fn check_others(asked: &Asked, log: &std::path::Path, queries: u64) {
    let ended = asked.metric("tidemark_streams_sql_children_ended_total{reason=\"tenant\"}");
    assert!(ended > 0.0, "tenants alternate on the places of children");
    let metrics = asked.metrics();
    assert_eq!(foreign_mark(&metrics, TENANTS.len(), ""), None, "{}", String::from_utf8_lossy(&metrics));
    let log = std::fs::read_to_string(log).unwrap();
    let ended = log.lines().filter(|line| !line.contains("\"sql_busy\""));
    assert_eq!(ended.count() as u64, queries);
    for line in log.lines() {
        // The operator sees tenants in the log. Texts of queries name words of tenants.
        let words: Vec<&str> = TENANTS.iter().map(|tenant| tenant.word).collect();
        assert_eq!(foreign_mark(line.as_bytes(), TENANTS.len(), &words.concat()), None, "{line}");
    }
}

#[test]
fn mark_of_a_tenant_is_found_in_each_form() {
    let birch = &TENANTS[1];
    let listing = birch.listing(2);
    let count = birch.count + 3;
    let leaks = [
        listing.clone().into_bytes(),
        listing.to_uppercase().into_bytes(),
        listing.chars().rev().collect::<String>().into_bytes(),
        json!(listing).to_string().replace(birch.letter, "\\uD801\\uDC29").into_bytes(),
        b"BIRCH".to_vec(),
        b"hcrib".to_vec(),
        format!("[{count}.5]").into_bytes(),
        [&b"ARROW"[..], &count.to_le_bytes()].concat(),
    ];
    for leak in &leaks {
        assert!(foreign_mark(leak, 0, "").is_some(), "{}", String::from_utf8_lossy(leak));
        assert_eq!(foreign_mark(leak, 1, ""), None, "its own marks are no leak");
    }
    assert_eq!(foreign_mark(b"table birch_goals not found", 0, "SELECT * FROM birch_goals"), None);
    assert!(foreign_mark(listing.as_bytes(), 0, "SELECT * FROM birch_goals").is_some());
    assert_eq!(foreign_mark(format!("9{count}").as_bytes(), 0, ""), None, "a part of a number is no count");
}
