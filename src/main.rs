//! `tidemark`: the command. It parses arguments and hands over; what it does stands in the library beside this file.

use std::process::ExitCode;

use clap::Parser;

#[global_allocator]
static ALLOCATOR: tidemark::bench::allocations::Counting = tidemark::bench::allocations::Counting;

fn main() -> ExitCode {
    tidemark::cli::Cli::parse().run().unwrap_or_else(|error| {
        eprintln!("tidemark: {error}");
        ExitCode::FAILURE
    })
}
