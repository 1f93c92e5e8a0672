//! `tidemark milestones`: defines, lists and disarms them.

use super::remote::{Remote, counter_path};
use super::{Outcome, block_on, show};
use crate::http::MilestoneList;
use crate::http::body::DefineBody;
use crate::names::parse_counter;
use clap::{Args, Subcommand};
use hyper::Method;
use tidemark_proto::ids::CounterName;

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
    /// Adds milestones; prints how far each is
    Define {
        /// NAMESPACE/KEY
        #[arg(value_parser = parse_counter)]
        counter: CounterName,
        /// Counts to be named: 1000,1000000
        #[arg(long, value_delimiter = ',', required_unless_present_any = ["every", "sequence_from"])]
        at: Vec<u64>,
        /// Every multiple of this
        #[arg(long)]
        every: Option<u64>,
        /// Sequence every increment from this count on
        #[arg(long)]
        sequence_from: Option<u64>,
    },
    /// Lists a counter's milestones
    List {
        /// NAMESPACE/KEY
        #[arg(value_parser = parse_counter)]
        counter: CounterName,
    },
    /// Removes a milestone that is not awarded, or the rule "every k"
    Disarm {
        /// NAMESPACE/KEY
        #[arg(value_parser = parse_counter)]
        counter: CounterName,
        /// The milestone
        #[arg(long, required_unless_present = "rule", conflicts_with = "rule")]
        at: Option<u64>,
        /// The rule
        #[arg(long)]
        rule: bool,
    },
}

pub fn run(args: Milestones) -> Outcome {
    block_on(async {
        let Milestones { action, remote } = args;
        let list = carry_out(action, &remote).await?;
        show(remote.json, &list, || text(&list))
    })
}

async fn carry_out(action: Action, remote: &Remote) -> Result<MilestoneList, super::remote::RemoteError> {
    match action {
        Action::Define { counter, at, every, sequence_from } => {
            let body = DefineBody { at, every, policy: None, sequence_from };
            remote.call(Method::PUT, &counter_path(&counter, "/milestones"), Some(&body)).await
        }
        Action::List { counter } => remote.get(&counter_path(&counter, "/milestones")).await,
        Action::Disarm { counter, at, .. } => {
            let what = at.map_or_else(|| "rule".to_owned(), |at| format!("at={at}"));
            let path = counter_path(&counter, &format!("/milestones?{what}"));
            remote.call(Method::DELETE, &path, None::<&()>).await
        }
    }
}

fn text(list: &MilestoneList) -> String {
    let mut lines: Vec<String> = list.every.iter().map(|every| format!("every {every}")).collect();
    lines.extend(list.sequence_from.map(|from| format!("every increment is sequenced from {from} on")));
    for milestone in &list.milestones {
        let state = format!("{:?}", milestone.state).to_lowercase();
        let waits = match &milestone.waits_for[..] {
            [] => String::new(),
            names => format!(", waits for {}", names.join(", ")),
        };
        lines.push(format!("{} {state}{waits}", milestone.at));
    }
    if lines.is_empty() { "no milestones".to_owned() } else { lines.join("\n") }
}
