//! `tidemark award`: waits until a milestone is awarded, and prints the winner; or rehearses it.

use super::numbers::parse_count;
use super::{Outcome, awards, block_on, claims, show, webhooks};
use crate::remote::{Remote, RemoteError, award_path};
use clap::Args;
use hyper::Method;
use std::time::Duration;
use tidemark_proto::ids::CounterName;
use tidemark_server::http::{AWARD_WAIT_MAX, AwardStateBody, DryRunBody, DryRunReport, WebhookTrial};
use tidemark_server::names::parse_counter;

/// A process that was there and is away is asked again after this.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Arguments of `tidemark award`.
#[derive(Debug, Args)]
pub struct Award {
    /// Name of the counter: NAMESPACE/KEY
    #[arg(value_parser = parse_counter)]
    counter: CounterName,
    /// Milestone, such as 1000000, 1M or 1e6
    #[arg(value_parser = parse_count)]
    at: u64,
    /// Rehearse the award instead of waiting: send every notification, marked as a trial
    #[arg(long)]
    dry_run: bool,
    /// Token of the session that wins in the rehearsal
    #[arg(long, env = "TIDEMARK_SESSION", hide_env_values = true, requires = "dry_run")]
    session: Option<String>,
    #[command(flatten)]
    remote: Remote,
}

pub fn run(args: Award) -> Outcome {
    if args.dry_run {
        return block_on(rehearse(args));
    }
    block_on(async {
        let path = award_path(&args.counter, args.at, "");
        let known: AwardStateBody = args.remote.get(&path).await?;
        let mut award = known.award;
        let path = format!("{path}?wait_s={}", AWARD_WAIT_MAX.as_secs());
        while award.is_none() {
            match args.remote.get::<AwardStateBody>(&path).await {
                Ok(known) => award = known.award,
                Err(error) if is_passing(&error) => {
                    errln!("tidemark: {error}; it is asked again");
                    tokio::time::sleep(RETRY_INTERVAL).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
        show(args.remote.json, &award, || award.as_ref().map(awards::text).unwrap_or_default())
    })
}

async fn rehearse(args: Award) -> Outcome {
    let path = award_path(&args.counter, args.at, "/dry-run");
    let report: DryRunReport =
        args.remote.call(Method::POST, &path, Some(&DryRunBody { session: args.session })).await?;
    show(args.remote.json, &report, || report_text(&report))
}

fn report_text(report: &DryRunReport) -> String {
    let mut lines = vec![format!("milestone: {:?}", report.state).to_lowercase()];
    lines.extend(report.progress.iter().map(|progress| {
        let eta = progress.eta_s.map_or(String::new(), |s| format!(", in about {s} s"));
        format!("to go: {}{eta}", progress.remaining.unwrap_or_default())
    }));
    lines.push(report.claims.as_ref().map_or("awards are not claimed".to_owned(), claims::rule_text));
    for WebhookTrial { webhook, held, result } in &report.webhooks {
        let held = if *held { " (its awards are held)" } else { "" };
        lines.push(format!("webhook {webhook}{held}: {}", webhooks::result_text(result)));
    }
    if report.webhooks.is_empty() {
        lines.push("no webhook is told by this data centre".to_owned());
    }
    lines.extend(
        report.connections.map(|connections| format!("connections of the session that were told: {connections}")),
    );
    lines.join("\n")
}

/// Whether a process that has answered before may answer again.
fn is_passing(error: &RemoteError) -> bool {
    match error {
        RemoteError::Unreachable { .. } | RemoteError::Answer { .. } => true,
        RemoteError::Refused { status, .. } => status.is_server_error(),
        RemoteError::Address(_) | RemoteError::Plain(_) | RemoteError::Tls(_) => false,
        RemoteError::Token(_) | RemoteError::Running(_) => false,
    }
}
