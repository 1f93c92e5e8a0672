//! `latency`: how long after it is sent an event is in an answer, and in a blob, while other events come at a rate.

use crate::BenchError;
use crate::client::Client;
use crate::process::{Server, program};
use clap::Args;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const BATCH: u64 = 100;
/// Between two looks at the server's metrics.
const LOOK: Duration = Duration::from_millis(5);

#[derive(Clone, Debug, Args)]
pub struct LatencyArgs {
    /// The program that is measured [default: tidemark-streams beside this one]
    #[arg(long, value_name = "FILE")]
    pub program: Option<PathBuf>,
    /// Events whose way into an answer is measured, while others come
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub probes: u64,
    /// Events whose way into a blob is measured, one after the other
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub blob_probes: u64,
    /// Other events a second, in batches of 100; 0: none
    #[arg(long, default_value_t = 10_000)]
    pub rate: u64,
    /// Seconds between two flushes of the server
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    pub flush_s: u64,
    /// Folder in which the directory is created [default: the folder of temporary files]
    #[arg(long, value_name = "DIR")]
    pub folder: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Sends other events until it is told to end.
struct Others {
    ends: Arc<AtomicBool>,
    thread: JoinHandle<Result<u64, BenchError>>,
}

/// Seconds, sorted.
pub struct Times(Vec<f64>);

pub fn run(args: &LatencyArgs) -> Result<String, BenchError> {
    let program = program(args.program.as_deref(), "tidemark-streams")?;
    let folder = match &args.folder {
        Some(folder) => tempfile::tempdir_in(folder)?,
        None => tempfile::tempdir()?,
    };
    let dir = folder.path().join("streams");
    let path = dir.to_string_lossy();
    let flush_s = args.flush_s.to_string();
    let serve = ["serve", "--dir", &path, "--listen", "127.0.0.1:0", "--flush-s", &flush_s];
    let server = Server::start(&program, &serve)?;
    let others = Others::start(&server, args.rate);
    let begun = Instant::now();
    let mut client = Client::connect(&server.address)?;
    let answers =
        (1..=args.probes).map(|number| answered(&mut client, number)).collect::<Result<Vec<f64>, BenchError>>()?;
    let seconds = begun.elapsed().as_secs_f64();
    let sent = others.end()?;
    let cpu_s = server.cpu_s();
    drop(client);
    let blobs = (0..args.blob_probes).map(|number| in_blob(&server.address, number, args.flush_s));
    let blobs = blobs.collect::<Result<Vec<f64>, BenchError>>()?;
    server.stop()?;
    let answers = Times::new(answers);
    let blobs = Times::new(blobs);
    if !args.json {
        return Ok(format!(
            "in an answer after {:.3} s (p99 {:.3}), in a blob after {:.1} s (p99 {:.1})",
            answers.at(50),
            answers.at(99),
            blobs.at(50),
            blobs.at(99)
        ));
    }
    let events = sent + args.probes;
    Ok(json!({
        "bench": "latency", "rate": args.rate, "flush_s": args.flush_s, "others": sent, "seconds": seconds,
        "answer_s": answers.json(), "blob_s": blobs.json(),
        "server_cpu_s": cpu_s, "server_cpu_us_per_event": cpu_s * 1e6 / events.max(1) as f64,
    })
    .to_string())
}

impl Times {
    pub fn new(mut times: Vec<f64>) -> Times {
        times.sort_by(f64::total_cmp);
        Times(times)
    }

    pub fn at(&self, percent: usize) -> f64 {
        let at = (self.0.len() * percent).div_ceil(100).saturating_sub(1);
        self.0.get(at).copied().unwrap_or_default()
    }

    pub fn json(&self) -> Value {
        let worst = self.0.last().copied().unwrap_or_default();
        json!({ "probes": self.0.len(), "p50": self.at(50), "p99": self.at(99), "worst": worst })
    }
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Seconds from sending an event of a tenant until an answer has it.
fn answered(client: &mut Client, number: u64) -> Result<f64, BenchError> {
    let at = now_s();
    let sent = Instant::now();
    client.post("/v1/events", format!("{{\"tenant\":\"probe\",\"listing\":\"x\",\"at\":{at}}}").as_bytes())?;
    let query = r#"{"tenant":"probe","from":"2020-01-01","to":"2100-01-01","dimensions":["listing"]}"#;
    loop {
        let answer: Value = serde_json::from_str(&client.post("/v1/impressions/query", query.as_bytes())?)
            .map_err(std::io::Error::other)?;
        if answer["total"].as_u64() >= Some(number) {
            return Ok(sent.elapsed().as_secs_f64());
        }
    }
}

/// Seconds from sending an event until a blob has it. No other event comes meanwhile.
fn in_blob(address: &str, number: u64, flush_s: u64) -> Result<f64, BenchError> {
    wait_for_blob(&mut Client::connect(address)?)?;
    // At another moment of the interval each time. The server closes a connection that is idle for so long.
    std::thread::sleep(Duration::from_millis(number * 37 % 100 * flush_s * 10));
    let mut client = Client::connect(address)?;
    let at = now_s();
    let sent = Instant::now();
    client.post("/v1/events", format!("{{\"tenant\":\"blob\",\"listing\":\"x\",\"at\":{at}}}").as_bytes())?;
    wait_for_blob(&mut client)?;
    Ok(sent.elapsed().as_secs_f64())
}

/// Waits until all rows are in blobs.
fn wait_for_blob(client: &mut Client) -> Result<(), BenchError> {
    while client.metric("tidemark_streams_uncommitted_rows")? > 0.0 {
        std::thread::sleep(LOOK);
    }
    Ok(())
}

impl Others {
    fn start(server: &Server, rate: u64) -> Others {
        let ends = Arc::new(AtomicBool::new(false));
        let address = server.address.clone();
        let is_over = Arc::clone(&ends);
        let thread = std::thread::spawn(move || send(&address, rate, &is_over));
        Others { ends, thread }
    }

    fn end(self) -> Result<u64, BenchError> {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| BenchError::Panicked)?
    }
}

fn send(address: &str, rate: u64, is_over: &AtomicBool) -> Result<u64, BenchError> {
    let mut client = Client::connect(address)?;
    let start = Instant::now();
    let mut sent = 0;
    while rate > 0 && !is_over.load(Ordering::Relaxed) {
        let due = Duration::from_secs_f64(sent as f64 / rate as f64);
        std::thread::sleep(due.saturating_sub(start.elapsed()));
        let at = now_s();
        let event = |event: u64| {
            let number = sent + event;
            format!("{{\"tenant\":\"{}\",\"listing\":\"{}\",\"at\":{at}}}\n", number % 100_003, number % 11)
        };
        let body: String = (0..BATCH).map(event).collect();
        client.post("/v1/events", body.as_bytes())?;
        sent += BATCH;
    }
    Ok(sent)
}
