//! `intake`: sends events to a server in batches, as fast as it takes them or at a rate, and compares its blobs with a recount.

use crate::BenchError;
use crate::client::Client;
use crate::process::{Server, cpu_s, program};
use clap::Args;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tidemark_streams_store::directory::{Directory, IfMissing};
use tidemark_streams_store::parquet_rows::Wanted;

#[derive(Clone, Debug, Args)]
pub struct IntakeArgs {
    /// The program that is measured [default: tidemark-streams beside this one]
    #[arg(long, value_name = "FILE")]
    pub program: Option<PathBuf>,
    /// Number of tenants, over which events are spread evenly
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..=99_999_999))]
    pub tenants: u32,
    /// Number of listings of a tenant
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub listings: u32,
    /// Number of events in a request
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub batch: u32,
    /// Number of connections; each is a producer with numbered batches
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub connections: u32,
    /// Events a second of all connections; 0: as fast as the server takes them
    #[arg(long, default_value_t = 0)]
    pub rate: u64,
    /// Seconds of a run
    #[arg(long, default_value_t = 60)]
    pub seconds: u64,
    /// Number of runs; median and worst are printed
    #[arg(long, default_value_t = 3)]
    pub runs: usize,
    /// Seconds between two flushes of the server
    #[arg(long, default_value_t = 60)]
    pub flush_s: u64,
    /// Folder in which directories are created [default: the folder of temporary files]
    #[arg(long, value_name = "DIR")]
    pub folder: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

struct Run {
    sent: u64,
    per_s: f64,
    server_cpu_s: f64,
    generator_cpu_s: f64,
    server_peak_bytes: u64,
    slowest_ms: f64,
    stop_s: f64,
    log_bytes: u64,
}

/// The state that the threads of a generator share.
struct Generator {
    args: IntakeArgs,
    address: String,
    start: Instant,
    /// Events of each tenant.
    sent: Vec<AtomicU32>,
    slowest_us: AtomicU64,
}

pub fn run(args: &IntakeArgs) -> Result<String, BenchError> {
    let program = program(args.program.as_deref(), "tidemark-streams")?;
    let mut runs = (0..args.runs.max(1)).map(|_| once(args, &program)).collect::<Result<Vec<Run>, BenchError>>()?;
    runs.sort_by(|a, b| a.per_s.total_cmp(&b.per_s));
    let median = runs[runs.len() / 2].per_s;
    let worst = runs[0].per_s;
    if !args.json {
        return Ok(format!("{median:.0} events a second (worst {worst:.0}); all blobs equal the recount"));
    }
    let shown: Vec<Value> = runs.iter().map(Run::json).collect();
    Ok(json!({
        "bench": "intake", "tenants": args.tenants, "listings": args.listings, "batch": args.batch,
        "connections": args.connections, "rate": args.rate, "seconds": args.seconds, "flush_s": args.flush_s,
        "events_per_s_median": median, "events_per_s_worst": worst, "equals_recount": true, "runs": shown,
    })
    .to_string())
}

impl Run {
    fn json(&self) -> Value {
        json!({
            "events": self.sent,
            "events_per_s": self.per_s,
            "server_cpu_us_per_event": self.server_cpu_s * 1e6 / self.sent.max(1) as f64,
            "server_cpu_s": self.server_cpu_s,
            "generator_cpu_s": self.generator_cpu_s,
            "server_peak_mb": self.server_peak_bytes as f64 / 1e6,
            "slowest_request_ms": self.slowest_ms,
            "stop_s": self.stop_s,
            "log_file_mb": self.log_bytes as f64 / 1e6,
        })
    }
}

fn once(args: &IntakeArgs, program: &Path) -> Result<Run, BenchError> {
    let folder = match &args.folder {
        Some(folder) => tempfile::tempdir_in(folder)?,
        None => tempfile::tempdir()?,
    };
    let dir = folder.path().join("streams");
    let flush_s = args.flush_s.to_string();
    let path = dir.to_string_lossy();
    let server = Server::start(program, &["serve", "--dir", &path, "--listen", "127.0.0.1:0", "--flush-s", &flush_s])?;
    let generator = Arc::new(Generator {
        args: args.clone(),
        address: server.address.clone(),
        start: Instant::now(),
        sent: (0..args.tenants).map(|_| AtomicU32::new(0)).collect(),
        slowest_us: AtomicU64::new(0),
    });
    let own_cpu_s = cpu_s("self");
    let threads: Vec<JoinHandle<Result<u64, BenchError>>> = (0..args.connections)
        .map(|number| {
            let generator = Arc::clone(&generator);
            std::thread::spawn(move || generator.send(number))
        })
        .collect();
    let mut sent = 0;
    for thread in threads {
        sent += thread.join().map_err(|_| BenchError::Panicked)??;
    }
    let elapsed = generator.start.elapsed();
    let generator_cpu_s = cpu_s("self") - own_cpu_s;
    let stopping = Instant::now();
    let server_cpu_s = server.cpu_s();
    let server_peak_bytes = server.peak_bytes();
    server.stop()?;
    let stop_s = stopping.elapsed().as_secs_f64();
    compare(&dir, &generator.sent, sent)?;
    Ok(Run {
        sent,
        per_s: sent as f64 / elapsed.as_secs_f64(),
        server_cpu_s,
        generator_cpu_s,
        server_peak_bytes,
        slowest_ms: generator.slowest_us.load(Ordering::Relaxed) as f64 / 1e3,
        stop_s,
        log_bytes: std::fs::metadata(dir.join("intake.redb"))?.len(),
    })
}

impl Generator {
    /// Sends batches over one connection until the time is over. Returns how many events were acknowledged.
    fn send(&self, number: u32) -> Result<u64, BenchError> {
        let mut client = Client::connect(&self.address)?;
        let mut body = Vec::new();
        let mut seed = u64::from(number) + 1;
        let mut sent = 0;
        let end = Duration::from_secs(self.args.seconds);
        let rate = self.args.rate as f64 / f64::from(self.args.connections);
        for seq in 1_u64.. {
            if self.start.elapsed() >= end {
                break;
            }
            if rate > 0.0 {
                let due = Duration::from_secs_f64(sent as f64 / rate);
                std::thread::sleep(due.saturating_sub(self.start.elapsed()));
            }
            let tenants = self.fill(&mut body, &mut seed);
            let asked = Instant::now();
            client.post(&format!("/v1/events?producer=bench-{number}&seq={seq}"), &body)?;
            self.slowest_us.fetch_max(asked.elapsed().as_micros() as u64, Ordering::Relaxed);
            for tenant in tenants {
                self.sent[tenant as usize].fetch_add(1, Ordering::Relaxed);
            }
            sent += u64::from(self.args.batch);
        }
        Ok(sent)
    }

    /// Writes a batch, and returns the tenants of its events.
    fn fill(&self, body: &mut Vec<u8>, seed: &mut u64) -> Vec<u32> {
        use std::io::Write;
        body.clear();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let mut tenants = Vec::with_capacity(self.args.batch as usize);
        for _ in 0..self.args.batch {
            *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let tenant = ((*seed >> 33) % u64::from(self.args.tenants)) as u32;
            let listing = (*seed >> 20) % u64::from(self.args.listings);
            // Writing to a vector cannot fail.
            let _ = writeln!(body, r#"{{"tenant":"{tenant:08}","listing":"{tenant:08}{listing:03}","at":{now}}}"#);
            tenants.push(tenant);
        }
        tenants
    }
}

/// Compares the blobs with what was acknowledged, tenant by tenant.
fn compare(dir: &Path, sent: &[AtomicU32], total: u64) -> Result<(), BenchError> {
    let directory = Directory::open(dir, IfMissing::Refuse)?;
    let written = directory.manifest().partitions().map(|(_, partition)| partition.total).sum();
    if written < u128::from(total) {
        return Err(BenchError::Unwritten { written, sent: total });
    }
    let mut found = vec![0_u64; sent.len()];
    for meta in directory.manifest().live().filter(|meta| meta.total > 0) {
        for row in directory.rows(&meta, Wanted::All)?.iter() {
            let at: Option<usize> = row.tenant.parse().ok();
            let count = at.and_then(|at| found.get_mut(at)).ok_or_else(|| BenchError::Tenant(row.tenant.to_owned()))?;
            *count += row.count();
        }
    }
    let differs = |(sent, found): &(&AtomicU32, &u64)| u64::from(sent.load(Ordering::Relaxed)) != **found;
    let tenants = sent.iter().zip(&found).filter(differs).count();
    let found = found.iter().sum();
    if tenants == 0 && found == total { Ok(()) } else { Err(BenchError::Differs { found, sent: total, tenants }) }
}
