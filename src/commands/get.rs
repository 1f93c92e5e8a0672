//! `tidemark get`: values of counters.

use super::{Outcome, block_on, show};
use crate::remote::{Remote, counter_param, counter_path};
use clap::Args;
use std::process::ExitCode;
use tidemark_proto::ids::CounterName;
use tidemark_server::api::body::{ReadingBody, ReadingsBody};
use tidemark_server::http::ReadVersion;
use tidemark_server::names::parse_counter;

/// Arguments of `tidemark get`.
#[derive(Debug, Args)]
pub struct Get {
    /// Names of 1 to 100 counters: NAMESPACE/KEY
    #[arg(value_parser = parse_counter, required = true)]
    counters: Vec<CounterName>,
    /// Print a value that includes an earlier increment, or fail: VERSION is the `version` in the answer to that increment. It needs
    /// exactly one counter
    #[arg(long, value_name = "VERSION")]
    at_least: Option<ReadVersion>,
    #[command(flatten)]
    remote: Remote,
}

pub fn run(args: Get) -> Outcome {
    block_on(async {
        if let Some(version) = &args.at_least {
            let [counter] = &args.counters[..] else {
                return Err(format!("--at-least goes with one counter, and {} are given", args.counters.len()).into());
            };
            let path = counter_path(counter, &format!("?at_least={version}"));
            let reading: ReadingBody = args.remote.get(&path).await?;
            show(args.remote.json, &reading, || text(&reading))?;
            return Ok(ExitCode::SUCCESS);
        }
        let query: Vec<String> = args.counters.iter().map(counter_param).collect();
        let read: ReadingsBody = args.remote.get(&format!("/v1/counters?{}", query.join("&"))).await?;
        for reading in &read.counters {
            show(args.remote.json, reading, || text(reading))?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// A reading on one line.
pub fn text(reading: &ReadingBody) -> String {
    let pending = if reading.pending > 0 { format!(" ({} pending)", reading.pending) } else { String::new() };
    let halves = reading.halves.map_or(String::new(), |halves| format!(" ({} up, {} down)", halves.up, halves.down));
    let known = if reading.known { "" } else { " (never counted)" };
    format!("{} {}{known}{halves}{pending}", reading.counter, reading.value)
}
