//! `tidemark-streams`: counts events of files and of HTTP requests into hourly rollups per tenant and listing, and answers queries.
//!
//! The command moves bytes between files, the machines of `tidemark-streams-core` and a directory. It decides nothing about counts.

mod adding;
mod args;
mod audit;
mod blobs;
mod dead_letters;
mod driver;
mod erase;
mod error;
mod layout;
mod listings;
mod load;
mod manifest;
mod pause;
mod plan;
mod query;
mod range;
mod raw;
mod rebuild;
mod recount;
mod resolve;
mod retention;
mod serve;
mod test_tenants;
mod types;

use args::{Cli, Command, ManifestCommand};
use clap::Parser;
use error::CliError;
use std::io::{self, Write};
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut out = io::BufWriter::new(io::stdout().lock());
    let done = run(&Cli::parse(), &mut out).and_then(|()| Ok(out.flush()?));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of the output has enough.
        Err(CliError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            let _ = out.flush();
            let _ = writeln!(io::stderr(), "error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli, out: &mut impl Write) -> Result<(), CliError> {
    match &cli.command {
        Command::Load(args) => load::run(args, out),
        Command::Query(args) => query::run(args, out),
        Command::Layout(args) => layout::run(args, out),
        Command::Listings(command) => listings::run(command, out),
        Command::Blobs(args) => blobs::run(args, out),
        Command::DeadLetters(args) => dead_letters::run(args, out),
        Command::Pause(args) => pause::pause(args, out),
        Command::Resume(args) => pause::resume(args, out),
        Command::Retention(args) => retention::run(args, out),
        Command::Erase(args) => erase::run(args, out),
        Command::TestTenants(command) => test_tenants::run(command, out),
        Command::Types(command) => types::run(command, out),
        Command::Audit(args) => audit::run(args, out),
        Command::Rebuild(args) => rebuild::run(args, out),
        Command::Manifest(ManifestCommand::Rebuild(args)) => manifest::rebuild(args, out),
        Command::Serve(args) => serve::run(args, out),
        Command::QueryServer(args) => serve::run_queries(args, out),
        Command::Token(args) => serve::token(args, out),
        Command::Plan(args) => plan::run(args, out),
    }
}
