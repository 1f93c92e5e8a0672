//! `tidemark status`: what a process says of itself.

use super::remote::Remote;
use super::{Outcome, block_on, show};
use clap::Args;

/// Arguments of `tidemark status`.
#[derive(Debug, Args)]
pub struct Status {
    #[command(flatten)]
    remote: Remote,
}

pub fn run(args: Status) -> Outcome {
    block_on(async {
        let status: serde_json::Value = args.remote.get("/v1/status").await?;
        show(args.remote.json, &status, || serde_json::to_string_pretty(&status).unwrap_or_default())
    })
}
