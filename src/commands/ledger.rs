//! `tidemark ledger`: the ledger's members, their votes, and the views that arming waits for.

use super::{Outcome, block_on, show};
use crate::remote::{Remote, RemoteError};
use clap::{Args, Subcommand};
use hyper::Method;
use tidemark_server::api::ledger::{ChangeVotersBody, MemberBody, MembersBody, SetAsideBody};

/// Arguments of `tidemark ledger`.
#[derive(Debug, Args)]
pub struct LedgerArgs {
    #[command(subcommand)]
    action: Action,
    #[command(flatten)]
    remote: Remote,
}

/// Aggregators are named `DC`, or `DC/second`, `DC/third` and so on.
#[derive(Debug, Subcommand)]
enum Action {
    /// List the members: votes, entries behind, and views that arming waits for
    #[command(after_help = "Example:\n  tidemark ledger members")]
    Members,
    /// Give a vote to an aggregator
    ///
    /// The command must ask the aggregator that leads the ledger (--server).
    #[command(after_help = "Example:\n  tidemark ledger add-voter asia-0")]
    AddVoter {
        /// Aggregator that gets a vote: DC, DC/second, DC/third and so on
        joins: String,
    },
    /// Take the vote from an aggregator, which stays a member
    ///
    /// This also cancels a vote that a member would get back. The command must ask the aggregator that leads the ledger (--server).
    #[command(after_help = "Example:\n  tidemark ledger remove-voter usa-0/second")]
    RemoveVoter {
        /// Aggregator that loses its vote: DC, DC/second, DC/third and so on
        leaves: String,
    },
    /// Give the vote of one aggregator to another
    ///
    /// The command must ask the aggregator that leads the ledger (--server).
    #[command(after_help = "Example:\n  tidemark ledger replace-voter usa-0 asia-0")]
    ReplaceVoter {
        /// Aggregator that votes now; it stays a member without a vote
        leaves: String,
        /// Aggregator that votes from then on
        joins: String,
    },
    /// Let arming wait no longer for the view of an aggregator that does not run
    ///
    /// It must be one of a pair. When it comes back, it shows nothing before the ledger knows.
    #[command(after_help = "Example:\n  tidemark ledger set-aside usa-0/second")]
    SetAside {
        /// Aggregator that does not run: DC, DC/second, DC/third and so on
        aggregator: String,
    },
}

pub fn run(args: LedgerArgs) -> Outcome {
    block_on(async {
        let LedgerArgs { action, remote } = args;
        let members: MembersBody = match action {
            Action::Members => remote.get("/v1/ledger").await?,
            Action::AddVoter { joins } => change(&remote, Some(joins), None).await?,
            Action::RemoveVoter { leaves } => change(&remote, None, Some(leaves)).await?,
            Action::ReplaceVoter { leaves, joins } => change(&remote, Some(joins), Some(leaves)).await?,
            Action::SetAside { aggregator } => {
                remote.call(Method::POST, "/v1/ledger/set-aside", Some(&SetAsideBody { aggregator })).await?
            }
        };
        show(remote.json, &members, || text(&members))
    })
}

async fn change(remote: &Remote, joins: Option<String>, leaves: Option<String>) -> Result<MembersBody, RemoteError> {
    remote.call(Method::POST, "/v1/ledger/voters", Some(&ChangeVotersBody { joins, leaves })).await
}

fn text(body: &MembersBody) -> String {
    let line = |member: &MemberBody| {
        let MemberBody { aggregator, votes, returns, connected, behind, view } = member;
        let leads = body.leader.as_deref() == Some(aggregator);
        let role = if leads {
            "leads"
        } else if *votes {
            "votes"
        } else if *returns {
            "learns, votes again once it has the log"
        } else {
            "learns"
        };
        let reached = if *connected { "" } else { ", not reached" };
        let behind = behind.map_or(String::new(), |entries| format!(", {entries} entries behind"));
        let view = if *view { "" } else { ", arming does not wait for its view" };
        format!("{aggregator}: {role}{reached}{behind}{view}")
    };
    let warning = body.warning.as_ref().map(|text| format!("warning: {text}"));
    body.members.iter().map(line).chain(warning).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_told_in_a_line_each() {
        let member = |name: &str, votes, connected, behind, view| MemberBody {
            aggregator: name.to_owned(),
            votes,
            returns: behind == Some(7),
            connected,
            behind,
            view,
        };
        let members = vec![
            member("usa-0", true, true, Some(0), true),
            member("asia-0", true, true, Some(3), true),
            member("sa-0", false, true, Some(7), true),
            member("usa-0/second", false, false, Some(90), false),
        ];
        let warning = Some("2 voters".to_owned());
        let body = MembersBody { leader: Some("usa-0".to_owned()), members, changing: false, warning };
        assert_eq!(
            text(&body),
            "usa-0: leads, 0 entries behind\nasia-0: votes, 3 entries behind\n\
             sa-0: learns, votes again once it has the log, 7 entries behind\n\
             usa-0/second: learns, not reached, 90 entries behind, arming does not wait for its view\n\
             warning: 2 voters"
        );
    }
}
