//! `tidemark bench`: measures what is promised, or makes the table of what was measured.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tidemark::{out, outln};

use clap::Args;

use crate::bench::{self, BENCHES, Plan, report};
use tidemark::Outcome;

const SECONDS_MAX: f64 = 3_600.0;
/// Counters, or buckets at rest.
const SIZE_MAX: usize = 1_000_000_000;
const RUNS: u32 = 3;
const FLUSH_DELAY_MS_MAX: u64 = 1_000;
/// In the place of a bench's name.
const REPORT: &str = "report";

/// Arguments of `tidemark bench`.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// Name of the bench, or `report` for a table of FILES with lines that benches printed [default: list the benches]
    name: Option<String>,
    /// Files for `report`
    #[arg(value_name = "FILES")]
    files: Vec<PathBuf>,
    /// Print one line of JSON
    #[arg(long)]
    json: bool,
    /// Number of runs, 1 to 100; median and worst are printed
    #[arg(long, default_value_t = RUNS, value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,
    /// Measured seconds per load [default: the bench's own]
    #[arg(long, value_parser = seconds)]
    seconds: Option<f64>,
    /// Delay added to every flush of a node's disk, such as 5ms
    #[arg(long, default_value = "0ms", value_parser = millis)]
    flush_delay: Duration,
    /// Requests per second of an open loop [default: the promised rate]; with another rate nothing is compared with a promise
    #[arg(long, value_parser = rate)]
    rate: Option<f64>,
    /// Number of cells, keys or events [default: that of the promise]
    #[arg(long, value_parser = size)]
    size: Option<usize>,
    /// Directory of PostgreSQL's `initdb`, `postgres` and `pg_ctl` [default: searched for]
    #[arg(long, value_name = "DIR")]
    postgres_bin: Option<PathBuf>,
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.1..=SECONDS_MAX).contains(seconds));
    seconds.ok_or_else(|| format!("0.1 to {SECONDS_MAX} allowed"))
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate| (1.0..=1e9).contains(rate));
    rate.ok_or_else(|| "1 to 1000000000 allowed".to_owned())
}

fn size(text: &str) -> Result<usize, String> {
    let size = text.parse().ok().filter(|size| (1..=SIZE_MAX).contains(size));
    size.ok_or_else(|| format!("1 to {SIZE_MAX} allowed"))
}

fn millis(text: &str) -> Result<Duration, String> {
    let millis = text.strip_suffix("ms").and_then(|number| number.parse().ok());
    let allowed = millis.filter(|millis| *millis <= FLUSH_DELAY_MS_MAX).map(Duration::from_millis);
    allowed.ok_or_else(|| format!("milliseconds are expected, as in 5ms, 0 to {FLUSH_DELAY_MS_MAX}"))
}

pub fn run(args: BenchArgs) -> Outcome {
    match args.name.as_deref() {
        None => BENCHES.iter().for_each(|bench| outln!("{:<16}{}", bench.name, bench.about)),
        Some(REPORT) => out!("{}", report::table(&report::read(&args.files)?)),
        Some(name) => measure(name, &args)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn measure(name: &str, args: &BenchArgs) -> Result<(), bench::BenchError> {
    let BenchArgs { seconds, rate, size, flush_delay, .. } = *args;
    let plan = Plan { seconds, rate, size, flush_delay, postgres_bin: args.postgres_bin.clone(), run: 0 };
    let line = bench::measure(bench::find(name)?, &plan, args.runs, command(name, args))?;
    outln!("{}", if args.json { line.json() } else { line.text() });
    Ok(())
}

/// The command that measures the same again: what differs from the defaults.
fn command(name: &str, args: &BenchArgs) -> String {
    let mut words = vec![format!("tidemark bench {name} --json")];
    if args.runs != RUNS {
        words.push(format!("--runs {}", args.runs));
    }
    words.extend(args.seconds.map(|seconds| format!("--seconds {seconds}")));
    if !args.flush_delay.is_zero() {
        words.push(format!("--flush-delay {}ms", args.flush_delay.as_millis()));
    }
    words.extend(args.rate.map(|rate| format!("--rate {rate}")));
    words.extend(args.size.map(|size| format!("--size {size}")));
    words.extend(args.postgres_bin.iter().map(|folder| format!("--postgres-bin {}", folder.display())));
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        bench: BenchArgs,
    }

    #[test]
    fn the_command_is_the_one_that_was_given() {
        for line in [
            "reads --json",
            "node-hits --json --runs 1 --seconds 0.5 --flush-delay 5ms --rate 10 --size 7 --postgres-bin pg",
        ] {
            let args = Command::try_parse_from(std::iter::once("bench").chain(line.split(' '))).unwrap().bench;
            assert_eq!(command(args.name.as_deref().unwrap(), &args), format!("tidemark bench {line}"));
        }
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_limit() {
        assert_eq!(millis("5"), Err("milliseconds are expected, as in 5ms, 0 to 1000".to_owned()));
        assert_eq!(millis("5ms"), Ok(Duration::from_millis(5)));
        assert!(seconds("0").is_err() && rate("NaN").is_err() && size("0").is_err());
        assert!(bench::find("no").err().unwrap().to_string().contains("node-hits"));
    }
}
