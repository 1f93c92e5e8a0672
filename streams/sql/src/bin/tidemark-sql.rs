//! A child of `tidemark-streams serve`. It executes queries of one tenant, one at a time, and has nothing but its socket.

use std::io::Write;
use std::process::ExitCode;
use tidemark_streams_sql::child;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let memory_bytes = match arguments.as_slice() {
        [name, value] if name == "--memory-bytes" => value.parse().ok(),
        _ => None,
    };
    let Some(memory_bytes) = memory_bytes else {
        return told("tidemark-sql is started by `tidemark-streams serve`, which answers POST /v1/sql with it.");
    };
    match child::run(memory_bytes) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => told(&format!("tidemark-sql: {error}")),
    }
}

/// Prints why the program ends.
fn told(line: &str) -> ExitCode {
    // Standard error may be closed.
    let _ = writeln!(std::io::stderr(), "{line}");
    ExitCode::FAILURE
}
