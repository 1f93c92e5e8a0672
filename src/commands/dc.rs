//! `tidemark dc`: the data centres of a cluster, and giving one up that never returns.

use super::{Outcome, block_on, show};
use crate::remote::Remote;
use clap::{Args, Subcommand};
use hyper::Method;
use tidemark_server::api::dcs::{DcBody, DcsBody, ForgetBody, Member, forgotten_path};

/// Arguments of `tidemark dc`.
#[derive(Debug, Args)]
pub struct Dc {
    #[command(subcommand)]
    command: DcCommand,
    #[command(flatten)]
    remote: Remote,
}

#[derive(Debug, Subcommand)]
enum DcCommand {
    /// List all data centres: connection, role in the ledger, groups and outstanding rights
    #[command(after_help = "Example:\n  tidemark dc list")]
    List,
    /// Give up a data centre that never returns
    ///
    /// Its groups are lost, and nothing waits for it any more. Without --yes, the command prints what would be lost and changes nothing.
    #[command(after_help = "Examples:\n  tidemark dc forget usa-0\n  tidemark dc forget usa-0 --yes")]
    Forget {
        /// Name of the data centre in the layout
        name: String,
        /// Give it up even if it was heard of a moment ago
        #[arg(long)]
        force: bool,
        /// Carry it out; without --yes, only print what would be done
        #[arg(long)]
        yes: bool,
    },
}

pub fn run(args: Dc) -> Outcome {
    block_on(async {
        let Dc { command, remote } = args;
        let known: DcsBody = remote.get("/v1/dcs").await?;
        let (name, force, yes) = match command {
            DcCommand::List => return show(remote.json, &known, || list_text(&known)),
            DcCommand::Forget { name, force, yes } => (name, force, yes),
        };
        let meant = known.dcs.iter().find(|dc| dc.name == name);
        let meant = meant.ok_or_else(|| format!("the layout has no data centre {name:?}"))?;
        if !yes {
            return show(remote.json, meant, || plan_text(meant));
        }
        if !remote.json {
            outln!("{}", what_text(meant));
        }
        let done: DcBody = remote.call(Method::POST, &forgotten_path(&name), Some(&ForgetBody { force })).await?;
        show(remote.json, &done, || format!("{} is given up", done.name))
    })
}

fn plan_text(dc: &DcBody) -> String {
    match &dc.refused {
        Some(reason) => format!("{}\nNothing was done, and --yes would be refused now: {reason}", what_text(dc)),
        None => format!("{}\nNothing was done: repeat it with --yes.", what_text(dc)),
    }
}

fn list_text(known: &DcsBody) -> String {
    let line = |dc: &DcBody| {
        let state = match (dc.forgotten, dc.connected) {
            (true, _) => "given up",
            (_, true) => "connected",
            _ => "not reached",
        };
        let member = match dc.member {
            Member::Voter => "voter",
            Member::Learner => "learner",
            Member::None => "no member",
        };
        format!("{:<16} {state:<12} {member:<10} {} groups, {} rights outstanding", dc.name, dc.groups.len(), dc.rights)
    };
    known.dcs.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn what_text(dc: &DcBody) -> String {
    let DcBody { name, groups, rights, member, .. } = dc;
    let groups = if groups.is_empty() { "no group".to_owned() } else { groups.join(", ") };
    let member = match member {
        Member::Voter => {
            "Its aggregator votes in the ledger no more; with an even number of voters left, one less may fail: \
             `tidemark ledger add-voter` lets another one vote."
        }
        Member::Learner | Member::None => "Its aggregator is no member of the ledger any more.",
    };
    format!(
        "{name}: {groups} left, {rights} rights outstanding\n\
         Up to {rights} increments may be lost that it answered as counted, and all other durable increments that no data centre has \
         received. Received increments stay counted. Certificates of later awards say how much was written off.\n\
         {member} Milestones wait for it no more. If it comes back it is refused; its number in the layout is never used again."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_what_is_given_up() {
        let name = "usa-0".to_owned();
        let groups = vec!["usa-0/0#5".to_owned()];
        let dc = DcBody {
            name,
            connected: false,
            forgotten: false,
            member: Member::Voter,
            groups,
            rights: 7,
            refused: None,
        };
        assert!(plan_text(&dc).ends_with("repeat it with --yes."));
        let refused = DcBody { refused: Some("it is connected".to_owned()), ..dc.clone() };
        assert!(plan_text(&refused).ends_with("--yes would be refused now: it is connected"));
        let text = what_text(&dc);
        assert!(text.contains("usa-0/0#5 left, 7 rights") && text.contains("Up to 7 increments"), "{text}");
        let list = list_text(&DcsBody { dcs: vec![dc] });
        assert!(list.contains("not reached") && list.contains("voter"), "{list}");
    }
}
