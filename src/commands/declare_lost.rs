//! `tidemark declare-lost`: gives up what only the lost disks of a group held, so that the others, and the group itself, go on.

use super::{Outcome, block_on, show};
use crate::remote::Remote;
use clap::Args;
use hyper::Method;
use tidemark_server::api::groups::{GroupBody, GroupName, GroupState, GroupsBody, LoseBody, lost_path};

/// Arguments of `tidemark declare-lost`.
#[derive(Debug, Args)]
pub struct DeclareLost {
    /// Group: DC/GROUP, or DC/GROUP#INCARNATION if several incarnations match. Ask the aggregator of that data centre if it runs
    group: GroupName,
    /// Give up the group even if it was heard of a moment ago: it stops, and increments that no data centre has received yet are lost
    #[arg(long)]
    force: bool,
    /// Carry it out; without --yes, only print what would be done
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    remote: Remote,
}

pub fn run(args: DeclareLost) -> Outcome {
    block_on(async {
        let DeclareLost { group, force, yes, remote } = args;
        let known: GroupsBody = remote.get("/v1/groups").await?;
        let meant = choose(&group, &known.groups)?;
        if !yes {
            return show(remote.json, meant, || plan_text(meant));
        }
        if !remote.json {
            outln!("{}", what_text(meant));
        }
        let name: GroupName = meant.name.parse()?;
        let path = lost_path(&name.dc, name.group, name.incarnation.unwrap_or_default());
        let done: GroupBody = remote.call(Method::POST, &path, Some(&LoseBody { force })).await?;
        show(remote.json, &done, || format!("{} is declared lost", done.name))
    })
}

/// Why it is not known which incarnation of a group is meant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum ChooseError {
    #[error("no group {wanted} ever registered")]
    Unknown { wanted: GroupName },
    #[error("{wanted} was declared lost before, and {by} is in its place: name that one if it is meant")]
    Replaced { wanted: GroupName, by: String },
    #[error("every incarnation of {wanted} was declared lost before")]
    AllLost { wanted: GroupName },
    #[error("{wanted} may be one of {}: name one of them", open.join(", "))]
    Several { wanted: GroupName, open: Vec<String> },
}

/// The incarnation that is meant: the one named, else the one that is not given up and not heard of, else the only one.
fn choose<'g>(wanted: &GroupName, known: &'g [GroupBody]) -> Result<&'g GroupBody, ChooseError> {
    let is_it = |body: &&GroupBody| {
        let name = body.name.parse::<GroupName>().ok();
        name.is_some_and(|name| {
            let incarnation = wanted.incarnation.is_none() || wanted.incarnation == name.incarnation;
            (&name.dc, name.group) == (&wanted.dc, wanted.group) && incarnation
        })
    };
    let named: Vec<&GroupBody> = known.iter().filter(is_it).collect();
    let open: Vec<&GroupBody> = named.iter().copied().filter(|body| body.state != GroupState::Lost).collect();
    let silent: Vec<&GroupBody> = open.iter().copied().filter(|body| body.state != GroupState::Heard).collect();
    let is_new = |body: &GroupBody| body.state == GroupState::Heard && named.len() > open.len();
    match (&named[..], &open[..], &silent[..]) {
        // It was founded anew: to ask twice must not give up what took the place of the lost one.
        (_, [one], _) if wanted.incarnation.is_none() && is_new(one) => {
            Err(ChooseError::Replaced { wanted: wanted.clone(), by: one.name.clone() })
        }
        ([], ..) => Err(ChooseError::Unknown { wanted: wanted.clone() }),
        ([one], ..) | (_, [one], _) | (_, _, [one]) => Ok(one),
        (_, [], _) => Err(ChooseError::AllLost { wanted: wanted.clone() }),
        _ => {
            let open = open.iter().map(|body| body.name.clone()).collect();
            Err(ChooseError::Several { wanted: wanted.clone(), open })
        }
    }
}

fn what_text(group: &GroupBody) -> String {
    let GroupBody { name, silent_s, rights, counters, .. } = group;
    let mut lines = vec![format!("{name}: not reached for {silent_s} s")];
    for stake in counters {
        let counter = &stake.counter;
        let rights = stake.rights;
        let counted = stake.counted;
        lines.push(format!(
            "  {}/{}: {counted} counted as far as is known, {rights} outstanding",
            counter.namespace, counter.key
        ));
    }
    lines.push(format!(
        "Up to {rights} increments may be lost that it answered as counted, and all other durable increments that no data centre has \
         received. Received increments stay counted. Certificates of later awards say how much was written off."
    ));
    lines.push(
        "This incarnation never serves again: its nodes set its disks aside and found the group anew, empty, under another one."
            .to_owned(),
    );
    lines.join("\n")
}

fn plan_text(group: &GroupBody) -> String {
    match &group.refused {
        Some(reason) => format!("{}\nNothing was done, and --yes would be refused now: {reason}", what_text(group)),
        None => format!("{}\nNothing was done: repeat it with --yes.", what_text(group)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(name: &str, state: GroupState) -> GroupBody {
        GroupBody { name: name.to_owned(), state, silent_s: 40, refused: None, rights: 7, counters: Vec::new() }
    }

    #[test]
    fn the_incarnation_that_is_silent_is_meant_unless_another_is_named() {
        let known = [
            body("usa-0/0#5", GroupState::Lost),
            body("usa-0/0#7", GroupState::Silent),
            body("usa-0/0#9", GroupState::Heard),
            body("usa-0/1#3", GroupState::Heard),
            body("asia-0/0#1", GroupState::Silent),
            body("asia-0/0#2", GroupState::Fenced),
        ];
        let chosen = |text: &str| {
            let chosen = choose(&text.parse().unwrap(), &known);
            chosen.map(|body| body.name.as_str()).map_err(|error| error.to_string())
        };
        assert_eq!(chosen("usa-0/0"), Ok("usa-0/0#7"));
        assert_eq!(chosen("usa-0/0#9"), Ok("usa-0/0#9"));
        assert_eq!(chosen("usa-0/1"), Ok("usa-0/1#3"), "who is heard of is refused by the process that is asked");
        assert_eq!(chosen("asia-0/0"), Err("asia-0/0 may be one of asia-0/0#1, asia-0/0#2: name one of them".into()));
        assert_eq!(chosen("usa-1/0"), Err("no group usa-1/0 ever registered".into()));
        let text = plan_text(&known[1]);
        assert!(text.contains("Up to 7 increments may be lost") && text.ends_with("--yes."), "{text}");
        let text = plan_text(&GroupBody {
            refused: Some("it is connected".to_owned()),
            ..body("usa-0/0#9", GroupState::Heard)
        });
        assert!(text.ends_with("--yes would be refused now: it is connected"), "{text}");
    }
}
