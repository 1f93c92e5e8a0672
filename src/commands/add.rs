//! `tidemark add`: counts, and says where the increment stands and what the counter's value is then. A negative number is counted down.

use super::awards::numbers;
use super::numbers::parse_signed;
use super::{Outcome, block_on, show};
use crate::remote::{Remote, counter_path};
use clap::Args;
use hyper::Method;
use tidemark_proto::ids::CounterName;
use tidemark_proto::series::UnixTime;
use tidemark_server::api::body::{AddAnswerBody, AddBody, AddedBody, EventAt, Signed};
use tidemark_server::names::{counter_text, parse_counter};

/// Arguments of `tidemark add`.
#[derive(Debug, Args)]
pub struct Add {
    /// Name of the counter: NAMESPACE/KEY
    #[arg(value_parser = parse_counter)]
    counter: CounterName,
    /// Number to add, such as 5, 10k, 1e6 or 1_000_000; negative only in a namespace with counters that go down
    #[arg(default_value = "1", allow_hyphen_values = true, value_parser = parse_signed)]
    delta: i64,
    /// Token of the session that the increment belongs to
    #[arg(long)]
    session: Option<String>,
    /// Time of the event: seconds since 1970, or such as 2026-11-24T08:00:00Z [default: now]
    #[arg(long, value_name = "TIME", allow_negative_numbers = true)]
    at: Option<UnixTime>,
    /// Do not wait for the counter's value: the answer comes sooner, but a read right after it may not show the increment yet
    #[arg(long)]
    no_value: bool,
    /// Id of the increment; a repeated increment with the same id is not counted again
    #[arg(long)]
    id: Option<String>,
    #[command(flatten)]
    remote: Remote,
}

pub fn run(args: Add) -> Outcome {
    block_on(async {
        let Add { counter, delta, session, at, id, no_value, remote } = args;
        let path = counter_path(&counter, "/add");
        let at = at.map(EventAt::from);
        let body = AddBody { delta: Signed(delta.into()), session, at, id, value: !no_value, ..AddBody::default() };
        let added: AddAnswerBody = remote.call(Method::POST, &path, Some(&body)).await?;
        show(remote.json, &added, || text(&counter, &added, delta.unsigned_abs()))
    })
}

fn text(counter: &CounterName, added: &AddAnswerBody, delta: u64) -> String {
    let place = place_text(added.place, delta);
    let pending =
        added.pending.filter(|pending| *pending > 0).map_or(String::new(), |more| format!(" ({more} pending)"));
    match (&added.value, &added.value_unknown) {
        (Some(value), _) => format!("{place}; {} is {value}{pending}", counter_text(counter)),
        (None, Some(why)) => format!("{place}; the value of {} is not known: {why}", counter_text(counter)),
        (None, None) => place,
    }
}

fn place_text(added: AddedBody, delta: u64) -> String {
    match added {
        AddedBody::Counted => "counted".to_owned(),
        AddedBody::Number { number } => format!("counted as {}", numbers(number, delta)),
        AddedBody::Milestone { at, first } => format!("the milestone {at}, counted as {}", numbers(first, delta)),
        AddedBody::Pending => "durable; its place is pending".to_owned(),
    }
}
