//! `tidemark milestones`: defines, lists and disarms them.

use super::numbers::{parse_count, parse_counts};
use super::{Outcome, block_on, show};
use crate::remote::{Remote, counter_path};
use clap::{Args, Subcommand};
use hyper::Method;
use std::time::Duration;
use tidemark_proto::ids::CounterName;
use tidemark_server::api::Of;
use tidemark_server::api::body::{DefineBody, PolicyBody};
use tidemark_server::http::{MilestoneList, MilestoneState, ProgressBody};
use tidemark_server::names::parse_counter;
use tokio::time::Instant;

/// The longest time for which `define` waits until milestones are armed. It covers a round trip to each region.
const ARMING_MAX: Duration = Duration::from_secs(5);
/// The interval at which it asks again.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// Arguments of `tidemark milestones`.
#[derive(Debug, Args)]
pub struct Milestones {
    #[command(subcommand)]
    action: Action,
    #[command(flatten)]
    remote: Remote,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Add milestones, wait up to 5 s until they are armed, and print the state of each
    #[command(
        after_help = "Examples:\n  tidemark milestones define search/queries --at 1M,1G\n  tidemark milestones define search/queries --every 100k --policy timely"
    )]
    Define {
        /// Name of the counter: NAMESPACE/KEY
        #[arg(value_parser = parse_counter)]
        counter: CounterName,
        /// Milestones, such as 1000,1000000 or 1k,1M; may be repeated
        #[arg(long, value_parser = parse_counts, required_unless_present_any = ["every", "sequence_from"])]
        at: Vec<Vec<u64>>,
        /// Make every multiple of this number a milestone
        #[arg(long, value_parser = parse_count)]
        every: Option<u64>,
        /// Sequence every increment from this count on
        #[arg(long, value_parser = parse_count)]
        sequence_from: Option<u64>,
        /// Treatment of a data centre that is cut off while it holds rights
        #[arg(long, value_enum, default_value = "strict")]
        policy: PolicyBody,
        /// Which counts; totals have no milestones, so `total` is refused with the reason
        #[arg(long, value_enum, default_value = "direct")]
        of: Of,
    },
    /// List the milestones of a counter
    #[command(after_help = "Example:\n  tidemark milestones list search/queries")]
    List {
        /// Name of the counter: NAMESPACE/KEY
        #[arg(value_parser = parse_counter)]
        counter: CounterName,
    },
    /// Remove a milestone that is not awarded, or the rule of --every
    #[command(
        after_help = "Examples:\n  tidemark milestones disarm search/queries --at 1M\n  tidemark milestones disarm search/queries --rule"
    )]
    Disarm {
        /// Name of the counter: NAMESPACE/KEY
        #[arg(value_parser = parse_counter)]
        counter: CounterName,
        /// Milestone to remove
        #[arg(long, value_parser = parse_count, required_unless_present = "rule", conflicts_with = "rule")]
        at: Option<u64>,
        /// Remove the rule that `milestones define --every` made
        #[arg(long)]
        rule: bool,
    },
}

pub fn run(args: Milestones) -> Outcome {
    block_on(async {
        let Milestones { action, remote } = args;
        let progress = match &action {
            // An older process knows no progress.
            Action::List { counter } => remote.get::<ProgressBody>(&counter_path(counter, "/progress")).await.ok(),
            Action::Define { .. } | Action::Disarm { .. } => None,
        };
        let list = carry_out(action, &remote).await?;
        let (next, eta_s) = progress.map_or((None, None), |progress| (progress.next, progress.eta_s));
        show(remote.json, &list, || text(&list, next.zip(eta_s)))
    })
}

async fn carry_out(action: Action, remote: &Remote) -> Result<MilestoneList, crate::remote::RemoteError> {
    match action {
        Action::Define { counter, at, every, sequence_from, policy, of } => {
            // An older process knows no other than strict.
            let policy = Some(policy).filter(|policy| *policy != PolicyBody::Strict);
            let body = DefineBody { at: at.concat(), every, policy, sequence_from, of };
            let path = counter_path(&counter, "/milestones");
            let list = remote.call(Method::PUT, &path, Some(&body)).await?;
            armed(list, &path, remote).await
        }
        Action::List { counter } => remote.get(&counter_path(&counter, "/milestones")).await,
        Action::Disarm { counter, at, .. } => {
            let what = at.map_or_else(|| "rule".to_owned(), |at| format!("at={at}"));
            let path = counter_path(&counter, &format!("/milestones?{what}"));
            remote.call(Method::DELETE, &path, None::<&()>).await
        }
    }
}

/// The milestones once none is arming. An increment that passes an arming milestone gets no award, so a script may count afterwards.
async fn armed(
    mut list: MilestoneList,
    path: &str,
    remote: &Remote,
) -> Result<MilestoneList, crate::remote::RemoteError> {
    let end = Instant::now() + ARMING_MAX;
    while list.milestones.iter().any(|milestone| milestone.state == MilestoneState::Arming) && Instant::now() < end {
        tokio::time::sleep(ASK_AGAIN).await;
        list = remote.get(path).await?;
    }
    Ok(list)
}

/// With the next milestone and in how many seconds it comes, where that is estimated.
fn text(list: &MilestoneList, next: Option<(u64, u64)>) -> String {
    let mut lines: Vec<String> = list.every.iter().map(|every| format!("every {every}")).collect();
    lines.extend(list.sequence_from.map(|from| format!("every increment is sequenced from {from} on")));
    for milestone in &list.milestones {
        let state = format!("{:?}", milestone.state).to_lowercase();
        let waits = match &milestone.waits_for[..] {
            [] => String::new(),
            names => format!(", waits for {}", names.join(", ")),
        };
        let policy = if milestone.policy == Some(PolicyBody::Timely) { ", timely" } else { "" };
        let eta =
            next.filter(|(at, _)| *at == milestone.at).map(|(_, eta_s)| format!(", in about {}", span_text(eta_s)));
        lines.push(format!("{} {state}{policy}{waits}{}", milestone.at, eta.unwrap_or_default()));
    }
    if lines.is_empty() { "no milestones".to_owned() } else { lines.join("\n") }
}

/// A span in the unit in which it has few digits.
fn span_text(seconds: u64) -> String {
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7_199 => format!("{} min", seconds / 60),
        7_200..=172_799 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_has_few_digits() {
        let texts = [0, 119, 120, 7_199, 7_200, 172_799, 172_800].map(span_text);
        assert_eq!(texts, ["0 s", "119 s", "2 min", "119 min", "2 h", "47 h", "2 days"]);
    }
}
