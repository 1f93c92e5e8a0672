//! `kill`: kills a server with `kill -9` again and again while it counts. Each time it is started on the same directory, and the time
//! passes until an answer has every event that was acknowledged and one that came after the start. At the end
//! the total of the blobs equals the number of sent events.

use crate::BenchError;
use crate::client::Client;
use crate::process::{Server, program};
use crate::recount::compare_total;
use clap::Args;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The bench fails where a server does not count again after so long.
const AGAIN_MAX_S: u64 = 60;
/// 2026-10-14T00:00:00Z.
const BEGIN_S: u64 = 1_791_936_000;
const QUERY: &str = r#"{"tenant":"shop","from":"2026-10-14","to":"2026-10-24","dimensions":["day"]}"#;

#[derive(Clone, Debug, Args)]
pub struct KillArgs {
    /// The program that is measured [default: tidemark-streams beside this one]
    #[arg(long, value_name = "FILE")]
    pub program: Option<PathBuf>,
    /// How often it is killed
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub kills: u32,
    /// Events of a request
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub batch: u32,
    /// Milliseconds between a start that counts again and the kill, at most
    #[arg(long, default_value_t = 1_500, value_parser = clap::value_parser!(u64).range(1..))]
    pub life_ms: u64,
    /// Seconds between two flushes of the server
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    pub flush_s: u64,
    /// Folder in which the directory is created [default: the folder of temporary files]
    #[arg(long, value_name = "DIR")]
    pub folder: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// One producer with numbered batches, which sends a batch again until it is acknowledged.
struct Producer {
    batch: u32,
    seq: u64,
    seed: u64,
    sent: u64,
}

pub fn run(args: &KillArgs) -> Result<String, BenchError> {
    let program = program(args.program.as_deref(), "tidemark-streams")?;
    let folder = match &args.folder {
        Some(folder) => tempfile::tempdir_in(folder)?,
        None => tempfile::tempdir()?,
    };
    let dir = folder.path().join("streams");
    let mut producer = Producer { batch: args.batch, seq: 1, seed: 1, sent: 0 };
    let mut again_s = Vec::new();
    let mut cpu_s = 0.0;
    for _ in 0..args.kills {
        let started = Instant::now();
        let server = start(&program, &dir, args)?;
        producer.count_again(&server, started)?;
        again_s.push(started.elapsed().as_secs_f64());
        let life = Duration::from_millis(producer.draw() % args.life_ms);
        producer.send_for(&server, life)?;
        cpu_s += server.cpu_s();
        // A batch may be under way, acknowledged or not: it is sent again.
        producer.begin(&server)?;
        server.kill()?;
    }
    let server = start(&program, &dir, args)?;
    producer.count_again(&server, Instant::now())?;
    cpu_s += server.cpu_s();
    server.stop()?;
    compare_total(&dir, producer.sent)?;
    Ok(report(args, again_s, &producer, cpu_s))
}

fn start(program: &Path, dir: &Path, args: &KillArgs) -> Result<Server, BenchError> {
    let path = dir.to_string_lossy();
    let flush_s = args.flush_s.to_string();
    Server::start(program, &["serve", "--dir", &path, "--listen", "127.0.0.1:0", "--flush-s", &flush_s])
}

impl Producer {
    fn draw(&mut self) -> u64 {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.seed >> 20
    }

    /// The batch of the present number: the same events each time.
    fn body(&self) -> Vec<u8> {
        let event = |event: u32| {
            let number = self.seq * u64::from(self.batch) + u64::from(event);
            let at = BEGIN_S + number % (10 * 86_400);
            format!("{{\"tenant\":\"shop\",\"listing\":\"l{}\",\"at\":{at}}}\n", number % 1_000)
        };
        (0..self.batch).flat_map(|number| event(number).into_bytes()).collect()
    }

    fn path(&self) -> String {
        format!("/v1/events?producer=bench&seq={}", self.seq)
    }

    fn send(&mut self, client: &mut Client) -> Result<(), BenchError> {
        client.post(&self.path(), &self.body())?;
        self.seq += 1;
        self.sent += u64::from(self.batch);
        Ok(())
    }

    /// Sends a batch, and asks until all that was acknowledged is counted.
    fn count_again(&mut self, server: &Server, started: Instant) -> Result<(), BenchError> {
        let mut client = Client::connect(&server.address)?;
        self.send(&mut client)?;
        loop {
            let answer: Value = serde_json::from_str(&client.post("/v1/impressions/query", QUERY.as_bytes())?)
                .map_err(std::io::Error::other)?;
            let found = answer["total"].as_u64();
            if found == Some(self.sent) {
                return Ok(());
            }
            if started.elapsed() > Duration::from_secs(AGAIN_MAX_S) {
                return Err(BenchError::NotAgain { seconds: AGAIN_MAX_S, found, sent: self.sent });
            }
        }
    }

    fn send_for(&mut self, server: &Server, life: Duration) -> Result<(), BenchError> {
        let mut client = Client::connect(&server.address)?;
        let end = Instant::now() + life;
        while Instant::now() < end {
            self.send(&mut client)?;
        }
        Ok(())
    }

    /// Sends a batch whose answer nobody reads.
    fn begin(&self, server: &Server) -> Result<(), BenchError> {
        Client::connect(&server.address)?.write(&self.path(), &self.body())
    }
}

fn report(args: &KillArgs, mut again_s: Vec<f64>, producer: &Producer, cpu_s: f64) -> String {
    again_s.sort_by(f64::total_cmp);
    let median = again_s[again_s.len() / 2];
    let worst = again_s.last().copied().unwrap_or_default();
    let sent = producer.sent;
    match args.json {
        true => json!({
            "bench": "kill", "kills": args.kills, "batch": args.batch, "life_ms": args.life_ms, "flush_s": args.flush_s,
            "events": sent, "counts_again_s_median": median, "counts_again_s_worst": worst,
            "server_cpu_s": cpu_s, "server_cpu_us_per_event": cpu_s * 1e6 / sent.max(1) as f64, "total_equals_sent": true,
        })
        .to_string(),
        false => format!(
            "{} kills: counts again after {median:.2} s (worst {worst:.2}); {sent} events, and as many in the blobs",
            args.kills
        ),
    }
}
