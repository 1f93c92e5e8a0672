//! `tidemark`: the command. It parses arguments and hands over; what it does stands in the library beside this file.

use std::process::ExitCode;

use clap::Parser;

/// A process frees on other threads than it allocates on, all the time: messages go from a connection's task to a core to a log.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    tidemark::cli::Cli::parse().run().unwrap_or_else(|error| {
        eprintln!("tidemark: {error}");
        ExitCode::FAILURE
    })
}
