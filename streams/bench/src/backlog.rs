//! `backlog`: a paused server takes the events of an hour into its log. Then it is resumed, and the time passes until all of them count,
//! and until all are in blobs.

use crate::BenchError;
use crate::client::Client;
use crate::process::{Server, program};
use crate::recount::compare_total;
use clap::Args;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// 2026-10-14T00:00:00Z.
const BEGIN_S: u64 = 1_791_936_000;
/// Between two looks at the server's metrics.
const LOOK: Duration = Duration::from_millis(20);
/// Bytes of the log: the whole backlog fits.
const LOG_BYTES_MAX: &str = "1099511627776";

#[derive(Clone, Debug, Args)]
pub struct BacklogArgs {
    /// The program that is measured [default: tidemark-streams beside this one]
    #[arg(long, value_name = "FILE")]
    pub program: Option<PathBuf>,
    /// Events of a second of the backlog
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub rate: u64,
    /// Seconds of the backlog
    #[arg(long, default_value_t = 3_600, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub seconds: u64,
    /// Number of tenants, over which events are spread evenly
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=99_999_999))]
    pub tenants: u64,
    #[arg(long, default_value_t = 3)]
    pub runs: usize,
    /// Folder in which directories are created [default: the folder of temporary files]
    #[arg(long, value_name = "DIR")]
    pub folder: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

struct Run {
    events: u64,
    counted_s: f64,
    in_blobs_s: f64,
    cpu_s: f64,
    paused_peak_bytes: u64,
    peak_bytes: u64,
}

pub fn run(args: &BacklogArgs) -> Result<String, BenchError> {
    let program = program(args.program.as_deref(), "tidemark-streams")?;
    let mut runs = (0..args.runs.max(1)).map(|_| once(args, &program)).collect::<Result<Vec<Run>, BenchError>>()?;
    runs.sort_by(|a, b| a.counted_s.total_cmp(&b.counted_s));
    let multiple = |run: &Run| args.seconds as f64 / run.counted_s;
    let median = multiple(&runs[runs.len() / 2]);
    let worst = multiple(&runs[runs.len() - 1]);
    if !args.json {
        return Ok(format!(
            "a backlog is counted in {median:.1} times real time (worst {worst:.1}); the blobs have as many events as were sent"
        ));
    }
    let shown: Vec<Value> = runs.iter().map(Run::json).collect();
    Ok(json!({
        "bench": "backlog", "rate": args.rate, "seconds": args.seconds, "tenants": args.tenants,
        "times_real_time_median": median, "times_real_time_worst": worst, "total_equals_sent": true, "runs": shown,
    })
    .to_string())
}

impl Run {
    fn json(&self) -> Value {
        json!({
            "events": self.events, "counted_s": self.counted_s, "in_blobs_s": self.in_blobs_s,
            "events_per_s": self.events as f64 / self.counted_s, "server_cpu_s": self.cpu_s,
            "server_cpu_us_per_event": self.cpu_s * 1e6 / self.events.max(1) as f64,
            "paused_peak_mb": self.paused_peak_bytes as f64 / 1e6, "peak_mb": self.peak_bytes as f64 / 1e6,
        })
    }
}

fn once(args: &BacklogArgs, program: &Path) -> Result<Run, BenchError> {
    let folder = match &args.folder {
        Some(folder) => tempfile::tempdir_in(folder)?,
        None => tempfile::tempdir()?,
    };
    let dir = folder.path().join("streams");
    let path = dir.to_string_lossy();
    let listen = ["--listen", "127.0.0.1:0", "--log-bytes-max", LOG_BYTES_MAX];
    let server = Server::start(program, &[&["serve", "--dir", &path][..], &listen].concat())?;
    let mut client = Client::connect(&server.address)?;
    client.post("/v1/pause", b"")?;
    let events = fill(args, &mut client)?;
    let cpu_before_s = server.cpu_s();
    let paused_peak_bytes = server.peak_bytes();
    client.post("/v1/resume", b"")?;
    let resumed = Instant::now();
    let wait = |client: &mut Client, metric: &str| -> Result<f64, BenchError> {
        while client.metric(metric)? > 0.0 {
            std::thread::sleep(LOOK);
        }
        Ok(resumed.elapsed().as_secs_f64())
    };
    let counted_s = wait(&mut client, "tidemark_streams_lag_rows")?;
    let cpu_s = server.cpu_s() - cpu_before_s;
    let in_blobs_s = wait(&mut client, "tidemark_streams_uncommitted_rows")?;
    let peak_bytes = server.peak_bytes();
    server.stop()?;
    compare_total(&dir, events)?;
    Ok(Run { events, counted_s, in_blobs_s, cpu_s, paused_peak_bytes, peak_bytes })
}

/// Sends the events of the backlog, a batch for each of its seconds at least.
fn fill(args: &BacklogArgs, client: &mut Client) -> Result<u64, BenchError> {
    const BATCH: u64 = 1_000;
    let events = args.rate * args.seconds;
    let mut seed = 1_u64;
    let mut sent = 0;
    for seq in 1_u64.. {
        let count = BATCH.min(events - sent);
        if count == 0 {
            break;
        }
        let mut body = String::new();
        for event in sent..sent + count {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let tenant = (seed >> 33) % args.tenants;
            let listing = (seed >> 20) % 10;
            let at = BEGIN_S + event / args.rate;
            body.push_str(&format!("{{\"tenant\":\"{tenant:08}\",\"listing\":\"{listing}\",\"at\":{at}}}\n"));
        }
        client.post(&format!("/v1/events?producer=bench&seq={seq}"), body.as_bytes())?;
        sent += count;
    }
    Ok(events)
}
