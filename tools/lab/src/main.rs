//! `tidemark-lab`: the command with its experiments. It parses arguments and hands over.

use std::process::ExitCode;

use clap::Parser;

/// Deliberate bugs are for tests alone, which are built for debugging: no other program can have them.
const _: () = assert!(
    cfg!(debug_assertions) || !tidemark_proto::teeth::COMPILED,
    "the feature `teeth` is for tests: a program without debug assertions has no deliberate bugs"
);

#[global_allocator]
static ALLOCATOR: tidemark_lab::bench::allocations::Counting = tidemark_lab::bench::allocations::Counting;

fn main() -> ExitCode {
    tidemark_lab::cli::Cli::parse().run().unwrap_or_else(|error| {
        tidemark::out::report(format_args!("tidemark-lab: {error}"));
        ExitCode::FAILURE
    })
}
