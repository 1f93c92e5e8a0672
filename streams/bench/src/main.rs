//! `tidemark-streams-bench`: measures the intake over HTTP, kills, a backlog, latencies, queries on a slow store, the fold alone, SQL,
//! hostile queries, and a day of one partition.
//!
//! It is a program of its own, so the product has no load generator.

mod backlog;
mod client;
mod day;
mod duckdb;
mod fold;
mod hostile;
#[path = "../../sql/tests/pool/hostile_texts.rs"]
mod hostile_texts;
mod intake;
mod kill;
mod latency;
mod peers;
mod process;
mod queries;
mod recount;
mod slow;
mod sql;

use clap::{Parser, Subcommand};
use std::io::{self, Write};
use std::process::ExitCode;

/// Measure event streams
#[derive(Debug, Parser)]
#[command(name = "tidemark-streams-bench", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Send events to a server of its own, and compare the blobs with a recount
    #[command(after_help = "Example:\n  tidemark-streams-bench intake --seconds 10 --runs 1")]
    Intake(intake::IntakeArgs),
    /// Kill a server again and again while it counts, and compare the total of its blobs with the sent events
    Kill(kill::KillArgs),
    /// Have a paused server take the events of an hour, and measure how fast it counts them
    Backlog(backlog::BacklogArgs),
    /// Measure how long after it is sent an event is in an answer, and in a blob
    Latency(latency::LatencyArgs),
    /// Load a Parquet file, and compare the processor time with that of DuckDB
    Duckdb(duckdb::DuckdbArgs),
    /// Fold decoded events on one core
    #[command(after_help = "Example:\n  tidemark-streams-bench fold --runs 1")]
    Fold(fold::FoldArgs),
    /// Query children of SQL: a scan with a filter and groups on one core, and a large query
    #[command(after_help = "Example:\n  tidemark-streams-bench sql --rows 1000000 --runs 5")]
    Sql(sql::SqlArgs),
    /// Measure queries of good tenants alone, and beside a hundred queries that mean harm
    #[command(after_help = "Example:\n  tidemark-streams-bench hostile --runs 1")]
    Hostile(hostile::HostileArgs),
    /// Ask for months of many tenants at once, typed and in SQL, while the store of blobs is slow, and compare the totals
    #[command(after_help = "Example:\n  tidemark-streams-bench queries --runs 1")]
    Queries(queries::QueriesArgs),
    /// Serve a directory with a slow store of blobs
    #[command(name = slow::COMMAND, hide = true)]
    Slow(slow::SlowArgs),
    /// Pass a virtual day of one partition, and count the blobs and bytes of all partitions
    #[command(after_help = "Example:\n  tidemark-streams-bench day --partitions 1000")]
    Day(day::DayArgs),
}

/// Why there is no measurement.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("the server said {0:?}, and not where it listens")]
    Address(String),
    #[error("a request was answered {status}: {body}")]
    Refused { status: u16, body: String },
    #[error("an answer is no HTTP: {0:?}")]
    Http(String),
    #[error("the server ended with {0}")]
    Ended(std::process::ExitStatus),
    #[error("the blobs count {found}, and {sent} events were sent; {tenants} tenants differ")]
    Differs { found: u64, sent: u64, tenants: usize },
    #[error(
        "the server's stop ended before all was written: the blobs count {written} of {sent} events; measure a shorter time"
    )]
    Unwritten { written: u128, sent: u64 },
    #[error("tenant {0:?} was never sent")]
    Tenant(String),
    #[error("{seconds} s after a kill the server has not counted again: it counts {found:?} of {sent} events")]
    NotAgain { seconds: u64, found: Option<u64>, sent: u64 },
    #[error("the blobs count {found}, and {sent} is expected")]
    Total { found: u64, sent: u64 },
    #[error("a program has failed: {0}")]
    Program(String),
    #[error("the server has no metric {0}")]
    Metric(String),
    #[error("a generator thread has panicked")]
    Panicked,
    #[error("blob {0} is not there, or was not merged into its period")]
    Unmerged(String),
    #[error("the owner took rows up to {position:?}, and {expected} were given")]
    NotTaken { position: Option<u64>, expected: u64 },
    #[error("a commit of the directory was refused: {0}")]
    Uncommitted(String),
    #[error("{wrong} of {queries} answers are others than the counts that were loaded; the first: {first}")]
    Wrong { wrong: usize, queries: usize, first: String },
    #[error(transparent)]
    Rows(#[from] tidemark_streams_core::rollup::RowError),
    #[error(transparent)]
    Calendar(#[from] tidemark_proto::series::calendar::CalendarError),
    #[error(transparent)]
    Zone(#[from] tidemark_proto::series::calendar::UnknownZone),
    #[error(transparent)]
    Serve(#[from] Box<tidemark_streams_serve::ServeError>),
    #[error("the owner stopped: {0}")]
    Stopped(tidemark_streams_core::owner::Stop),
    #[error("{0}")]
    Sql(#[from] tidemark_streams_sql::pool::SqlError),
    #[error("{query}: the child counts {found:?}, and {other:?} is expected")]
    Answers { query: &'static str, found: String, other: String },
    #[error("a child took {peak_mib} MiB, and {limit_mib} MiB is its limit")]
    Memory { peak_mib: u64, limit_mib: u64 },
    #[error(transparent)]
    Directory(#[from] tidemark_streams_store::directory::DirectoryError),
    #[error(transparent)]
    Event(#[from] tidemark_streams_core::event::EventError),
    #[error(transparent)]
    Types(#[from] tidemark_streams_core::event::EventTypesError),
}

fn main() -> ExitCode {
    let measured = match Cli::parse().command {
        Command::Intake(args) => intake::run(&args),
        Command::Kill(args) => kill::run(&args),
        Command::Backlog(args) => backlog::run(&args),
        Command::Latency(args) => latency::run(&args),
        Command::Duckdb(args) => duckdb::run(&args),
        Command::Fold(args) => fold::run(&args),
        Command::Day(args) => day::run(&args),
        Command::Sql(args) => sql::run(&args),
        Command::Hostile(args) => hostile::run(&args),
        Command::Queries(args) => queries::run(&args),
        Command::Slow(args) => {
            return match slow::run(args) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => {
                    let _ = writeln!(io::stderr(), "error: {error}");
                    ExitCode::FAILURE
                }
            };
        }
    };
    let said = match &measured {
        Ok(text) => writeln!(io::stdout(), "{text}"),
        Err(error) => writeln!(io::stderr(), "error: {error}"),
    };
    match (measured, said) {
        (Ok(_), Ok(())) => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}
