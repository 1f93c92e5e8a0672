//! `tidemark log-level`: the log level of a running process.

use super::{Outcome, block_on, show};
use crate::remote::Remote;
use clap::Args;
use hyper::Method;
use tidemark_server::api::log_level::{LogLevelBody, LogLevelChangedBody, SetLogLevelBody};

const PATH: &str = "/v1/log-level";

/// Arguments of `tidemark log-level`.
#[derive(Debug, Args)]
pub struct LogLevelArgs {
    /// Level to set: off, error, warn, info, debug or trace; or a filter by module, such as warn,tidemark_node=debug
    /// [default: none, which shows the present level]
    level: Option<String>,
    #[command(flatten)]
    remote: Remote,
}

pub fn run(args: LogLevelArgs) -> Outcome {
    block_on(async {
        let LogLevelArgs { level, remote } = args;
        let Some(level) = level else {
            let present: LogLevelBody = remote.get(PATH).await?;
            return show(remote.json, &present, || present.level.clone());
        };
        let changed: LogLevelChangedBody = remote.call(Method::PUT, PATH, Some(&SetLogLevelBody { level })).await?;
        show(remote.json, &changed, || format!("{} (was {})", changed.level, changed.before))
    })
}
