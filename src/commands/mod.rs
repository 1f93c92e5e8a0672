//! The subcommands, each in its own file, and what several of them share.

pub mod add;
pub mod aggregator;
pub mod audit;
pub mod award;
pub mod awards;
pub mod backup;
pub mod certs;
pub mod claims;
pub mod completions;
pub mod counter;
pub mod dc;
pub mod declare_lost;
pub mod export;
pub mod get;
pub mod graph;
pub mod ledger;
pub mod load;
pub mod log_level;
pub mod man;
pub mod milestones;
pub mod namespaces;
pub mod node;
mod numbers;
pub mod process;
pub mod restore;
pub mod series;
pub mod slots;
pub mod status;
pub mod verify;
pub mod watch;
pub mod webhooks;

use crate::Outcome;
use std::future::Future;
use std::pin::{Pin, pin};
use std::process::ExitCode;

/// Runs a client command to its end.
fn block_on<F: Future<Output = Outcome>>(command: F) -> Outcome {
    run(pin!(command))
}

/// The runtime is compiled once, and not for each command.
fn run(command: Pin<&mut dyn Future<Output = Outcome>>) -> Outcome {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(command)
}

/// Prints one value: as one line of JSON, or as text.
fn show(json: bool, value: &impl serde::Serialize, text: impl FnOnce() -> String) -> Outcome {
    if json {
        outln!("{}", serde_json::to_string(value)?)
    } else {
        outln!("{}", text().trim_end())
    }
    Ok(ExitCode::SUCCESS)
}
