//! `tidemark slots`: the key ranges (shards) of a view with their holders, and moves and splits of them while the cluster counts.

use super::{Outcome, block_on, show};
use crate::remote::Remote;
use clap::{Args, Subcommand};
use hyper::Method;
use tidemark_server::api::slots::{
    MoveBody, MoveSlotBody, PartBody, SlotBody, SlotsBody, SplitBody, SplitSlotBody, SplitsBody, StaySlotBody,
};

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
    /// List the shards of the view with ranges and holders
    ///
    /// Counters and bytes are shown for the shards that the asked aggregator holds.
    #[command(after_help = "Example:\n  tidemark slots list")]
    List,
    /// Move a shard from one aggregator of a data centre to another
    ///
    /// The old holder drops the shard once the new holder has all of it. Counting and reading go on.
    #[command(after_help = "Example:\n  tidemark slots move 2 usa-0 usa-0/third")]
    Move {
        /// Number of the shard
        slot: u16,
        /// Aggregator that holds the shard
        from: String,
        /// Running aggregator of the data centre that gets the shard
        to: String,
    },
    /// Split a shard into two, in all data centres
    ///
    /// Counting and reading go on. The shard needs its memory twice until the split has ended.
    #[command(after_help = "Example:\n  tidemark slots split 2 --at search/m")]
    Split {
        /// Number of the shard
        slot: u16,
        /// First counter of the second shard: NAMESPACE/KEY. With `shard_by`, any counter with that piece of the key [default: the middle
        /// counter, which a holder of the shard knows]
        #[arg(long, value_name = "NAMESPACE/KEY")]
        at: Option<String>,
    },
    /// Cancel the move of a shard
    #[command(after_help = "Example:\n  tidemark slots stay 2")]
    Stay {
        /// Number of the shard
        slot: u16,
    },
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
            Action::Split { slot, at } => {
                let asked = SplitSlotBody { slot, at };
                let split: SplitBody = remote.call(Method::POST, "/v1/slots/split", Some(&asked)).await?;
                return show(remote.json, &split, || split_text(&split));
            }
            Action::Stay { slot } => remote.call(Method::POST, "/v1/slots/stay", Some(&StaySlotBody { slot })).await?,
        };
        show(remote.json, &slot, || line(&slot))
    })
}

fn list_text(body: &SlotsBody) -> String {
    let elsewhere = body
        .cut_elsewhere
        .iter()
        .map(|peer| format!("{peer}: its view is cut, or its counters laid, otherwise: nothing is exchanged"));
    body.slots.iter().map(line).chain(elsewhere).collect::<Vec<_>>().join("\n")
}

fn line(body: &SlotBody) -> String {
    let SlotBody { slot, from, before, from_part, before_part, held_by, moves, splits, counters, .. } = body;
    let [from, before] = [(from, from_part), (before, before_part)].map(|(counter, part)| {
        let part = part.as_ref().map(|PartBody { space, part }| {
            format!("{space} {part:?}, as that of {}", counter.as_deref().unwrap_or_default())
        });
        part.or_else(|| counter.clone())
    });
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
    let splits = splits.as_ref().map_or(String::new(), |splits| format!(", {}", splits_text(splits)));
    let counters = counters.map_or(String::new(), |counters| format!(", {counters} counters"));
    format!("slot {slot}: {range}; held by {}{moves}{splits}{counters}", held_by.join(" and "))
}

fn splits_text(body: &SplitsBody) -> String {
    match body {
        SplitsBody::Copying { of: 0, .. } => "is being split".to_owned(),
        SplitsBody::Copying { copied, of } => format!("is being split: {copied} of {of} cells are copied"),
        SplitsBody::Writing => "is one of two parts, which are being written".to_owned(),
        SplitsBody::Others => "is being split by its holders".to_owned(),
    }
}

fn split_text(body: &SplitBody) -> String {
    let SplitBody { slot, at, parts: [first, second], held_by } = body;
    format!("slot {slot} is split at {at} into slots {first} and {second}, held by {}", held_by.join(" and "))
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
            from_part: None,
            before_part: None,
            held_by: vec!["x".to_owned(), "x/third".to_owned()],
            moves: Some(MoveBody { from: "x".to_owned(), to: "x/second".to_owned(), waits_for: None }),
            splits: None,
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
        let splitting = |splits| line(&SlotBody { splits: Some(splits), ..all.clone() });
        let told = "slot 0: all counters; held by x and x/third, is";
        let copying = splitting(SplitsBody::Copying { copied: 3, of: 9 });
        assert_eq!(copying, format!("{told} being split: 3 of 9 cells are copied"));
        assert_eq!(splitting(SplitsBody::Copying { copied: 0, of: 0 }), format!("{told} being split"));
        let writing = splitting(SplitsBody::Writing);
        assert_eq!(writing, format!("{told} one of two parts, which are being written"));
        assert_eq!(splitting(SplitsBody::Others), format!("{told} being split by its holders"));
        let cut_elsewhere = vec!["y".to_owned()];
        let list = SlotsBody { at_unix_ms: 0, slots: vec![all], cut_elsewhere };
        assert!(
            list_text(&list).ends_with("\ny: its view is cut, or its counters laid, otherwise: nothing is exchanged")
        );
    }

    #[test]
    fn a_split_is_told_with_the_numbers_of_its_parts() {
        let held_by = vec!["x".to_owned(), "x/third".to_owned()];
        let body = SplitBody { slot: 2, at: "qa/m".to_owned(), parts: [5, 6], held_by };
        assert_eq!(split_text(&body), "slot 2 is split at qa/m into slots 5 and 6, held by x and x/third");
        let asked = SplitSlotBody { slot: 2, at: None };
        assert_eq!(serde_json::to_string(&asked).unwrap(), r#"{"slot":2}"#);
    }
}
