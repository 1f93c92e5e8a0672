//! Reads of one aggregator that has 10,000,000 counters with series: by name through the client library, and what a page shows of one counter
//! and those around it, over HTTP.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant, SystemTime};

use hdrhistogram::Histogram;
use serde_json::{Value, json};

use super::cluster::{Cluster, NAMESPACE};
use super::line::{Asked, Sample};
use super::reads::{self, Promise};
use super::series::{COUNTERS, Series, Shape};
use super::{BenchError, Plan, node};

/// Of a counter that is looked at.
const RELATIVES: usize = 100;
pub const DAYS: u64 = 30;
pub const DAY: Duration = Duration::from_secs(86_400);
pub const PER_DAY: u64 = 3;

/// `point-reads`.
pub fn run(plan: &Plan) -> Result<Vec<Sample>, BenchError> {
    let counters = plan.size_or(COUNTERS).max(2 * reads::AT_ONCE);
    let mut series = Series::start(plan, Shape::of(counters))?;
    let mut samples = vec![series.found()?, series.catches_up("view behind the node then")?];
    let busy = "get of an open loop while node and view write and merge what was founded";
    samples.extend(reads::open_loop(&mut series.cluster, plan, counters, busy)?);
    let rest = Asked::cost("from then until they are at rest", "s");
    samples.extend(series.rest()?.map(|waited| rest.is(waited.as_secs_f64())));
    let promise = Promise { many_per_s: Some(1_000_000.0), p99_ms: Some(1.0), ..Promise::default() };
    samples.extend(reads::all(&mut series.cluster, plan, counters, &promise)?);
    samples.extend(page(&series, plan)?);
    Ok(samples)
}

/// Names of the counter and its relatives.
pub fn names() -> Vec<String> {
    (0..=RELATIVES).map(|number| format!("{NAMESPACE}/relative-{number:03}")).collect()
}

/// Counts all of them on each of the last days, and waits until the view shows it.
fn fill(series: &Series<'_>) -> Result<(), BenchError> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    for day in 0..DAYS {
        let at = (now - DAY * day as u32).as_secs();
        let line = |counter| json!({ "counter": counter, "delta": PER_DAY, "at": at }).to_string() + "\n";
        let added = series.cluster.json("POST", "/v1/add", &names().into_iter().map(line).collect::<String>())?;
        if added["added"].as_u64() != Some(RELATIVES as u64 + 1) {
            return Err(BenchError::Failed { who: "the fill".to_owned(), reason: added.to_string() });
        }
    }
    let begun = Instant::now();
    let asked = json!({ "counters": names() }).to_string();
    let shown = || -> Result<bool, BenchError> {
        let read = series.cluster.json("POST", "/v1/read", &asked)?;
        let counters = read["counters"].as_array().map_or(&[][..], Vec::as_slice);
        Ok(counters.iter().all(|counter| counter["value"] == PER_DAY * DAYS))
    };
    while !shown()? {
        if begun.elapsed() > reads::VISIBLE {
            let what = "relatives being visible".to_owned();
            return Err(BenchError::Patience { what, waited_s: reads::VISIBLE.as_secs() });
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// One after the other, on a connection that is kept: the days of one counter, and at one instant it and its relatives with their counts in
/// these days. Client and server are on this machine, so a time is the server's with both ways of HTTP.
fn page(series: &Series<'_>, plan: &Plan) -> Result<Vec<Sample>, BenchError> {
    fill(series)?;
    let all = look(&series.cluster, plan.seconds_or(node::LOAD_S))?;
    let asked = |share: &str| {
        Asked::cost(format!("one counter by day over {DAYS} days and {RELATIVES} relatives with theirs, {share}"), "ms")
    };
    Ok(vec![asked("p99").must(1.0).is(ms(&all, 0.99)), asked("p50").is(ms(&all, 0.5))])
}

/// At a share of all that was measured.
pub fn ms(all: &Histogram<u64>, share: f64) -> f64 {
    all.value_at_quantile(share) as f64 / 1e6
}

/// Looks at the page for so long.
///
/// # Errors
/// A read was refused, or has not all of it.
pub fn look(cluster: &Cluster, seconds: f64) -> Result<Histogram<u64>, BenchError> {
    let failed = |reason: String| BenchError::Failed { who: "the page".to_owned(), reason };
    let mut kept = Kept::connect(cluster).map_err(BenchError::io("the page"))?;
    let window = format!("{DAYS}d");
    let days = format!("/v1/counters/{}/series?last={window}&every=1d&error=1d", names()[0]);
    let around = json!({ "counters": names(), "windows": [{ "last": window, "error": "1d" }] }).to_string();
    let mut all = Histogram::<u64>::new_with_bounds(1, 60_000_000_000, 3).map_err(BenchError::setup)?;
    let begun = Instant::now();
    while begun.elapsed().as_secs_f64() < seconds {
        let asked = Instant::now();
        let one = kept.json("GET", &days, "").map_err(BenchError::io("the page"))?;
        let read = kept.json("POST", "/v1/read", &around).map_err(BenchError::io("the page"))?;
        all.saturating_record(asked.elapsed().as_nanos() as u64);
        let steps = one["steps"].as_array().map_or(0, Vec::len);
        let counters = read["counters"].as_array().map_or(0, Vec::len);
        if counters != RELATIVES + 1 || steps < DAYS as usize || !counted(&read) {
            return Err(failed(format!("{one} {read}")));
        }
    }
    Ok(all)
}

/// Whether each has counted in the window what it was to.
fn counted(read: &Value) -> bool {
    let of_window = |counter: &Value| counter["windows"][0]["counted"]["value"].as_u64();
    let counters = read["counters"].as_array().map_or(&[][..], Vec::as_slice);
    // The first of the days may lie before the window by what has passed since.
    counters.iter().all(|counter| of_window(counter).is_some_and(|count| count >= PER_DAY * (DAYS - 1)))
}

/// A connection that is kept, so that a request costs no more than it says.
struct Kept {
    stream: BufReader<TcpStream>,
    token: String,
}

impl Kept {
    fn connect(cluster: &Cluster) -> std::io::Result<Kept> {
        let token = cluster.token().map_err(std::io::Error::other)?;
        let stream = TcpStream::connect(cluster.aggregator_http())?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        Ok(Kept { stream: BufReader::new(stream), token: token.as_str().to_owned() })
    }

    fn json(&mut self, method: &str, path: &str, body: &str) -> std::io::Result<Value> {
        let length = body.len();
        let token = &self.token;
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer {token}\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        self.stream.get_mut().write_all(request.as_bytes())?;
        let mut head = String::new();
        let mut length = 0;
        loop {
            let start = head.len();
            if self.stream.read_line(&mut head)? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            let line = head[start..].trim_end().to_ascii_lowercase();
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().map_err(std::io::Error::other)?;
            }
            if line.is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        match head.starts_with("HTTP/1.1 200") {
            true => serde_json::from_slice(&body).map_err(std::io::Error::other),
            false => Err(std::io::Error::other(format!("{head}{}", String::from_utf8_lossy(&body)))),
        }
    }
}
