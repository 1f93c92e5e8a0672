//! `tidemark counter`: resets a counter, removes it, or says when it expires.

use super::remote::{Remote, counter_path};
use super::{Outcome, block_on, show};
use crate::lives::{BegunBody, ExpiryBody, LifeBody, ResetBody};
use crate::names::parse_counter;
use clap::{Args, Subcommand};
use hyper::Method;
use tidemark_proto::ids::CounterName;

/// Arguments of `tidemark counter`.
#[derive(Debug, Args)]
pub struct Counter {
    #[command(subcommand)]
    action: Action,
    #[command(flatten)]
    remote: Remote,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Shows how often a counter began again, and when it expires
    Show {
        /// NAMESPACE/KEY
        #[arg(value_parser = parse_counter)]
        counter: CounterName,
    },
    /// Begins a counter again at 0; awards stay, milestones that are not awarded are armed anew
    Reset(Begin),
    /// Begins a counter again at 0 without milestones and claims, as if it had never been counted; awards stay
    Remove(Begin),
    /// Removes a counter later
    Expire {
        /// NAMESPACE/KEY
        #[arg(value_parser = parse_counter)]
        counter: CounterName,
        /// In so many seconds
        #[arg(long, required_unless_present = "never", conflicts_with = "never")]
        in_s: Option<u64>,
        /// Not at all
        #[arg(long)]
        never: bool,
    },
}

#[derive(Debug, Args)]
struct Begin {
    /// NAMESPACE/KEY
    #[arg(value_parser = parse_counter)]
    counter: CounterName,
    /// Only if it began again so often: said again, nothing more happens
    #[arg(long)]
    if_generation: Option<u32>,
}

pub fn run(args: Counter) -> Outcome {
    block_on(async {
        let Counter { action, remote } = args;
        let begun = match action {
            Action::Show { counter } => {
                let life: LifeBody = remote.get(&counter_path(&counter, "/life")).await?;
                return show(remote.json, &life, || life_text(&life));
            }
            Action::Expire { counter, in_s, .. } => {
                let wanted = ExpiryBody { expires_s: in_s, ..ExpiryBody::default() };
                let life: LifeBody = remote.call(Method::PUT, &counter_path(&counter, "/life"), Some(&wanted)).await?;
                return show(remote.json, &life, || life_text(&life));
            }
            Action::Reset(Begin { counter, if_generation }) => {
                let path = counter_path(&counter, "/reset");
                remote.call::<BegunBody>(Method::POST, &path, Some(&ResetBody { if_generation })).await?
            }
            Action::Remove(Begin { counter, if_generation }) => {
                let only = if_generation.map_or(String::new(), |generation| format!("?if_generation={generation}"));
                remote.call(Method::DELETE, &counter_path(&counter, &only), None::<&()>).await?
            }
        };
        show(remote.json, &begun, || begun_text(&begun))
    })
}

fn begun_text(begun: &BegunBody) -> String {
    let was = begun.was.map_or("it was carried out before".to_owned(), |was| format!("it stood at {was} here"));
    let (waits, warning) = (waits_text(&begun.waits_for), warning_text(&begun.warning));
    format!("generation {} begins at 0: {was}{waits}{warning}", begun.generation)
}

fn life_text(life: &LifeBody) -> String {
    let expires =
        life.expires_unix_ms.map_or("never expires".to_owned(), |at| format!("expires at {at} ms since 1970"));
    let (waits, warning) = (waits_text(&life.waits_for), warning_text(&life.warning));
    format!("generation {}, {expires}{waits}{warning}", life.generation)
}

fn warning_text(warning: &Option<String>) -> String {
    warning.as_ref().map_or_else(String::new, |warning| format!("\nwarning: {warning}"))
}

fn waits_text(groups: &[String]) -> String {
    match groups {
        [] => String::new(),
        groups => format!("; not heard of yet by {}, which go on counting what is over", groups.join(", ")),
    }
}
