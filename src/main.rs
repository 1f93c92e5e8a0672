//! `tidemark`: the command. It parses arguments and hands over; what it does stands in the library beside this file.

use std::process::ExitCode;

use clap::Parser;

/// Deliberate bugs are for the tests of the simulator alone: a program that could have them is not built.
const _: () = assert!(
    cfg!(debug_assertions) || !tidemark_proto::teeth::COMPILED,
    "the command is never shipped with the feature `teeth`"
);

#[global_allocator]
static ALLOCATOR: tidemark::bench::allocations::Counting = tidemark::bench::allocations::Counting;

fn main() -> ExitCode {
    tidemark::cli::Cli::parse().run().unwrap_or_else(|error| {
        eprintln!("tidemark: {error}");
        ExitCode::FAILURE
    })
}
