//! `tidemark-demo`: the demo as a program of its own, which builds without benches and simulators.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tidemark_demo::options::DemoOptions;
use tidemark_demo::{load, run};

/// Deliberate bugs are for tests alone, which are built for debugging: no other program can have them.
const _: () = assert!(
    cfg!(debug_assertions) || !tidemark_proto::teeth::COMPILED,
    "the feature `teeth` is for tests: a program without debug assertions has no deliberate bugs"
);

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Run the reference layout of 15 data centres on this machine, with measured distances and a real query log
#[derive(Debug, Parser)]
#[command(name = "tidemark-demo", version = tidemark::VERSION, args_conflicts_with_subcommands = true)]
#[command(after_help = "Examples:\n  tidemark-demo\n  tidemark-demo --milestone 1000000 --exit-after-award --headless")]
struct Cli {
    #[command(flatten)]
    options: Box<DemoOptions>,
    #[command(subcommand)]
    part: Option<Part>,
}

#[derive(Debug, Subcommand)]
enum Part {
    /// The load generator
    #[command(hide = true)]
    DemoLoad,
}

fn main() -> ExitCode {
    let Cli { options, part } = Cli::parse();
    let outcome: tidemark::Outcome = match part {
        None => run::run(&options).map_err(Into::into),
        Some(Part::DemoLoad) => load::run().map(|()| ExitCode::SUCCESS).map_err(Into::into),
    };
    outcome.unwrap_or_else(|error| {
        tidemark::out::report(format_args!("tidemark-demo: {error}"));
        ExitCode::FAILURE
    })
}
