//! The command line of `tidemark-lab`: its experiments, and all commands of `tidemark`.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tidemark::Outcome;

use crate::bench::{self, command::BenchArgs};
use crate::sim;
use crate::soak::{self, SoakOptions};
use tidemark_demo::options::DemoOptions;

/// Run experiments with Tidemark: a demo of 15 data centres, benches, soaks and the simulator.
#[derive(Debug, Parser)]
#[command(name = "tidemark-lab", version = tidemark::VERSION)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[command(flatten)]
    Tidemark(Box<tidemark::cli::Command>),
    Demo(Box<DemoOptions>),
    /// The demo's load generator
    #[command(hide = true)]
    DemoLoad,
    /// Measure the promised figures on this machine; without a name, list the benches
    #[command(after_help = "Examples:\n  tidemark bench\n  tidemark bench reads --runs 5 --json")]
    Bench(BenchArgs),
    /// Run the part of a bench that belongs in another process
    #[command(hide = true)]
    BenchChild,
    Soak(SoakOptions),
    /// Run the deterministic simulator of the core: one seed, many seeds, or one seed with all its events
    #[command(subcommand)]
    Sim(sim::SimCommand),
}

impl Cli {
    /// Runs the subcommand.
    ///
    /// # Errors
    /// The subcommand's own error; its text names what was wrong.
    pub fn run(self) -> Outcome {
        match self.command {
            Command::Tidemark(command) => command.run(),
            Command::Demo(options) => Ok(tidemark_demo::run::run(&options)?),
            Command::DemoLoad => {
                tidemark_demo::load::run()?;
                Ok(ExitCode::SUCCESS)
            }
            Command::Bench(args) => bench::command::run(args),
            Command::BenchChild => bench::task::run().map(|()| ExitCode::SUCCESS),
            Command::Soak(options) => soak::run(&options),
            Command::Sim(command) => sim::run(command).map(|()| ExitCode::SUCCESS).map_err(Into::into),
        }
    }
}
