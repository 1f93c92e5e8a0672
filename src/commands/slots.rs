//! `tidemark slots`: the ranges into which a view is cut, who holds them, and moves of them while the cluster counts.

use super::remote::Remote;
use super::{Outcome, block_on, show};
use crate::http::slots::{MoveBody, MoveSlotBody, SlotBody, SlotsBody, StaySlotBody};
use clap::{Args, Subcommand};
use hyper::Method;

/// Arguments of `tidemark slots`.
#[derive(Debug, Args)]
pub struct SlotsArgs {
    #[command(subcommand)]
    action: Action,
    #[command(flatten)]
    remote: Remote,
}

/// Aggregators are named `DC`, or `DC/second`, `DC/third` and so on.
#[derive(Debug, Subcommand)]
enum Action {
    /// The slots of the view of the data centre that is asked, who holds each, and how much is in those that the one asked holds
    List,
    /// Lets one aggregator hold a slot in the place of another, once it has all of it; both go on counting and answering
    Move {
        /// Its number
        slot: u16,
        /// One of the two that hold it
        from: String,
        /// Another one of the data centre, which runs
        to: String,
    },
    /// Lets a slot stay where it is that is being moved
    Stay { slot: u16 },
}

pub fn run(args: SlotsArgs) -> Outcome {
    block_on(async {
        let SlotsArgs { action, remote } = args;
        let slot: SlotBody = match action {
            Action::List => {
                let slots: SlotsBody = remote.get("/v1/slots").await?;
                return show(remote.json, &slots, || list_text(&slots));
            }
            Action::Move { slot, from, to } => {
                remote.call(Method::POST, "/v1/slots/move", Some(&MoveSlotBody { slot, from, to })).await?
            }
            Action::Stay { slot } => remote.call(Method::POST, "/v1/slots/stay", Some(&StaySlotBody { slot })).await?,
        };
        show(remote.json, &slot, || line(&slot))
    })
}

fn list_text(body: &SlotsBody) -> String {
    let elsewhere =
        body.cut_elsewhere.iter().map(|peer| format!("{peer}: its view is cut elsewhere, nothing is exchanged"));
    body.slots.iter().map(line).chain(elsewhere).collect::<Vec<_>>().join("\n")
}

fn line(body: &SlotBody) -> String {
    let SlotBody { slot, from, before, held_by, moves, counters, .. } = body;
    let range = match (from, before) {
        (None, None) => "all counters".to_owned(),
        (Some(from), None) => format!("from {from}"),
        (None, Some(before)) => format!("before {before}"),
        (Some(from), Some(before)) => format!("from {from}, before {before}"),
    };
    let moves = moves.as_ref().map_or(String::new(), |MoveBody { from, to, waits_for }| {
        let waits_for = waits_for.as_ref().map_or(String::new(), |waits_for| format!(", which waits for {waits_for}"));
        format!(", moves from {from} to {to}{waits_for}")
    });
    let counters = counters.map_or(String::new(), |counters| format!(", {counters} counters"));
    format!("slot {slot}: {range}; held by {}{moves}{counters}", held_by.join(" and "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_told_in_a_line() {
        let body = SlotBody {
            slot: 2,
            from: Some("qa/m".to_owned()),
            before: None,
            held_by: vec!["x".to_owned(), "x/third".to_owned()],
            moves: Some(MoveBody { from: "x".to_owned(), to: "x/second".to_owned(), waits_for: None }),
            counters: Some(7),
            weight: None,
            totals: None,
            totals_bytes: None,
        };
        assert_eq!(line(&body), "slot 2: from qa/m; held by x and x/third, moves from x to x/second, 7 counters");
        let moves = body.moves.clone().map(|moves| MoveBody { waits_for: Some("the ledger".to_owned()), ..moves });
        let waiting = SlotBody { moves, counters: None, ..body.clone() };
        assert!(line(&waiting).ends_with("moves from x to x/second, which waits for the ledger"), "{}", line(&waiting));
        let all = SlotBody { slot: 0, from: None, moves: None, counters: None, ..body };
        assert_eq!(line(&all), "slot 0: all counters; held by x and x/third");
        let cut_elsewhere = vec!["y".to_owned()];
        let list = SlotsBody { at_unix_ms: 0, slots: vec![all], cut_elsewhere };
        assert!(list_text(&list).ends_with("\ny: its view is cut elsewhere, nothing is exchanged"));
    }
}
