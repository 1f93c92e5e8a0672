//! `tidemark counter`: resets a counter, removes it, or says when it expires.

use super::{Outcome, block_on, show};
use crate::remote::{Remote, counter_path};
use clap::{Args, Subcommand};
use hyper::Method;
use tidemark_proto::ids::CounterName;
use tidemark_proto::time::WallMs;
use tidemark_server::api::body::ReadingBody;
use tidemark_server::lives::{BegunBody, ExpiryBody, LifeBody, ResetBody};
use tidemark_server::names::parse_counter;
use tidemark_server::series::seconds;

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
    /// Print a counter's generation (how often it began again) and the time of its expiry
    #[command(after_help = "Example:\n  tidemark counter show search/queries")]
    Show {
        /// Name of the counter: NAMESPACE/KEY
        #[arg(value_parser = parse_counter)]
        counter: CounterName,
    },
    /// Reset a counter to 0
    ///
    /// Awards stay, and milestones that are not awarded are armed again. Without --yes, the command prints what would be lost and changes
    /// nothing.
    #[command(
        after_help = "Examples:\n  tidemark counter reset search/queries\n  tidemark counter reset search/queries --if-generation 0 --yes"
    )]
    Reset(Begin),
    /// Remove a counter with its milestones and claims
    ///
    /// Awards stay, and the counter begins again at 0. Without --yes, the command prints what would be lost and changes nothing.
    #[command(after_help = "Example:\n  tidemark counter remove search/queries --yes")]
    Remove(Begin),
    /// Set or cancel the time when a counter is removed
    #[command(
        after_help = "Examples:\n  tidemark counter expire search/queries --in 30d\n  tidemark counter expire search/queries --never"
    )]
    Expire {
        /// Name of the counter: NAMESPACE/KEY
        #[arg(value_parser = parse_counter)]
        counter: CounterName,
        /// Period from now, such as 60s, 90m, 12h or 30d
        #[arg(long = "in", value_name = "PERIOD", value_parser = seconds)]
        #[arg(required_unless_present = "never", conflicts_with = "never")]
        in_s: Option<u64>,
        /// Cancel the expiry
        #[arg(long)]
        never: bool,
    },
}

#[derive(Debug, Args)]
struct Begin {
    /// Name of the counter: NAMESPACE/KEY
    #[arg(value_parser = parse_counter)]
    counter: CounterName,
    /// Act only in this generation, so that a repeated command changes nothing more [default: the counter's generation when the command
    /// starts]
    #[arg(long)]
    if_generation: Option<u32>,
    /// Carry it out; without --yes, only print what would be done
    #[arg(long)]
    yes: bool,
}

pub fn run(args: Counter) -> Outcome {
    block_on(async {
        let Counter { action, remote } = args;
        match action {
            Action::Show { counter } => {
                let life: LifeBody = remote.get(&counter_path(&counter, "/life")).await?;
                show(remote.json, &life, || life_text(&life))
            }
            Action::Expire { counter, in_s, .. } => {
                let wanted = ExpiryBody { expires_s: in_s, ..ExpiryBody::default() };
                let life: LifeBody = remote.call(Method::PUT, &counter_path(&counter, "/life"), Some(&wanted)).await?;
                show(remote.json, &life, || life_text(&life))
            }
            Action::Reset(begin) => begin_again(&remote, &begin, Way::Reset).await,
            Action::Remove(begin) => begin_again(&remote, &begin, Way::Remove).await,
        }
    })
}

/// How a counter begins again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Reset,
    Remove,
}

async fn begin_again(remote: &Remote, begin: &Begin, way: Way) -> Outcome {
    let Begin { counter, if_generation, yes } = begin;
    let now: ReadingBody = remote.get(&counter_path(counter, "")).await?;
    let life: LifeBody = remote.get(&counter_path(counter, "/life")).await?;
    let generation = if_generation.unwrap_or(life.generation);
    if !yes {
        return show(remote.json, &now, || {
            format!("{}\nNothing was done: repeat it with --yes.", what_text(&now, life.generation, generation, way))
        });
    }
    let body = Some(&ResetBody { if_generation: Some(generation) });
    let (method, verb) = match way {
        Way::Reset => (Method::POST, "/reset"),
        Way::Remove => (Method::DELETE, ""),
    };
    let begun: BegunBody = remote.call(method, &counter_path(counter, verb), body).await?;
    show(remote.json, &begun, || begun_text(&begun))
}

fn what_text(now: &ReadingBody, generation: u32, wanted: u32, way: Way) -> String {
    let ReadingBody { counter, value, known, .. } = now;
    if !known {
        return format!("{counter} was never counted: there is nothing to begin again.");
    }
    let otherwise = if generation == wanted { "" } else { ", not the requested generation: it would be refused" };
    let loses = match way {
        Way::Reset => "It would begin again at 0. Awards stay; milestones that are not awarded are armed anew.",
        Way::Remove => "It would begin again at 0, without milestones and claims. Awards stay.",
    };
    format!("{counter} stands at {value} here, in generation {generation}{otherwise}. {loses} Its counts are lost.")
}

fn begun_text(begun: &BegunBody) -> String {
    let was = begun.was.map_or("it was carried out before".to_owned(), |was| format!("it stood at {was} here"));
    let waits = waits_text(&begun.waits_for);
    let warning = warning_text(&begun.warning);
    format!("generation {} begins at 0: {was}{waits}{warning}", begun.generation)
}

fn life_text(life: &LifeBody) -> String {
    let expires = life.expires_unix_ms.map_or("never expires".to_owned(), |at| format!("expires at {}", WallMs(at)));
    let waits = waits_text(&life.waits_for);
    let warning = warning_text(&life.warning);
    format!("generation {}, {expires}{waits}{warning}", life.generation)
}

fn warning_text(warning: &Option<String>) -> String {
    warning.as_ref().map_or_else(String::new, |warning| format!("\nwarning: {warning}"))
}

fn waits_text(groups: &[String]) -> String {
    match groups {
        [] => String::new(),
        groups => format!("; not known yet by {}, which go on counting in the previous generation", groups.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemark_proto::msg::Reading;

    #[test]
    fn it_is_said_what_would_be_lost() {
        let counter = parse_counter("search/q").unwrap();
        let now = |up, generation| ReadingBody::new(&counter, &Reading { up, generation, ..Reading::default() });
        let text = what_text(&now(22, 1), 1, 1, Way::Remove);
        assert!(
            text.starts_with("search/q stands at 22 here, in generation 1. It would begin again at 0, without"),
            "{text}"
        );
        assert!(what_text(&now(22, 1), 1, 5, Way::Reset).contains("not the requested generation"));
        assert!(what_text(&now(0, 0), 0, 0, Way::Reset).contains("never counted"));
    }
}
