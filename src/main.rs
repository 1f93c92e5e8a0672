//! `tidemark`: the command. It parses arguments and hands over; the work is in the library beside this file.

use std::process::ExitCode;

use clap::Parser;

/// Deliberate bugs are for tests alone, which are built for debugging: no other program can have them.
const _: () = assert!(
    cfg!(debug_assertions) || !tidemark_proto::teeth::COMPILED,
    "the feature `teeth` is for tests: a program without debug assertions has no deliberate bugs"
);

/// Memory here is mostly freed on other threads than it was allocated on: messages go from a connection's task to a core to a log.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    tidemark::cli::Cli::parse().run().unwrap_or_else(|error| {
        tidemark::out::report(format_args!("tidemark: {error}"));
        ExitCode::FAILURE
    })
}
