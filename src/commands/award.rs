//! `tidemark award`: waits until a milestone is awarded, and says to whom.

use super::remote::{Remote, RemoteError, award_path};
use super::{Outcome, awards, block_on, show};
use crate::http::{AWARD_WAIT_MAX, AwardStateBody};
use crate::names::parse_counter;
use clap::Args;
use std::time::Duration;
use tidemark_proto::ids::CounterName;

/// A process that was there and is away is asked again after this.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Arguments of `tidemark award`.
#[derive(Debug, Args)]
pub struct Award {
    /// NAMESPACE/KEY
    #[arg(value_parser = parse_counter)]
    counter: CounterName,
    /// The milestone
    at: u64,
    #[command(flatten)]
    remote: Remote,
}

pub fn run(args: Award) -> Outcome {
    block_on(async {
        let path = award_path(&args.counter, args.at, "");
        let known: AwardStateBody = args.remote.get(&path).await?;
        let mut award = known.award;
        let path = format!("{path}?wait_s={}", AWARD_WAIT_MAX.as_secs());
        while award.is_none() {
            match args.remote.get::<AwardStateBody>(&path).await {
                Ok(known) => award = known.award,
                Err(error) if is_passing(&error) => {
                    eprintln!("tidemark: {error}; it is asked again");
                    tokio::time::sleep(RETRY_INTERVAL).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
        show(args.remote.json, &award, || award.as_ref().map(awards::text).unwrap_or_default())
    })
}

/// Whether a process that has answered before may answer again.
fn is_passing(error: &RemoteError) -> bool {
    match error {
        RemoteError::Unreachable { .. } | RemoteError::Answer { .. } => true,
        RemoteError::Refused { status, .. } => status.is_server_error(),
        RemoteError::Address(_) | RemoteError::Plain(_) | RemoteError::Tls(_) | RemoteError::Token(_) => false,
    }
}
