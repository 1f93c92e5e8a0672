//! `tidemark claims`: how a counter's awards are claimed, and how an award's claim stands.

use super::numbers::parse_count;
use super::{Outcome, block_on, show};
use crate::remote::{Remote, award_path, counter_path};
use clap::{Args, Subcommand, ValueEnum};
use hyper::Method;
use tidemark_proto::ids::CounterName;
use tidemark_proto::msg::Fallback;
use tidemark_server::claims::{ClaimBody, ClaimRuleBody, ClaimStateBody};
use tidemark_server::names::parse_counter;

/// Arguments of `tidemark claims`.
#[derive(Debug, Args)]
pub struct Claims {
    #[command(subcommand)]
    action: Action,
    #[command(flatten)]
    remote: Remote,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Set how the winning sessions claim future awards of a counter
    #[command(
        after_help = "Examples:\n  tidemark claims rule search/queries --period-s 86400\n  tidemark claims rule search/queries --period-s 86400 --fallback next-award"
    )]
    Rule {
        /// Name of the counter: NAMESPACE/KEY
        #[arg(value_parser = parse_counter)]
        counter: CounterName,
        /// Seconds after an award in which it can be claimed; 0: awards are not claimed
        #[arg(long)]
        period_s: u32,
        /// Fate of an award that is not claimed in time
        #[arg(long, value_enum, default_value = "nobody")]
        fallback: FallbackArg,
    },
    /// Show the rule of a counter, or the claim of one award
    #[command(
        after_help = "Examples:\n  tidemark claims show search/queries\n  tidemark claims show search/queries 1M"
    )]
    Show {
        /// Name of the counter: NAMESPACE/KEY
        #[arg(value_parser = parse_counter)]
        counter: CounterName,
        /// Milestone of the award, such as 1000000, 1M or 1e6
        #[arg(value_parser = parse_count)]
        at: Option<u64>,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum FallbackArg {
    /// The award has no owner
    Nobody,
    /// The award passes to the winner of the counter's next award
    NextAward,
}

pub fn run(args: Claims) -> Outcome {
    block_on(async {
        let Claims { action, remote } = args;
        match action {
            Action::Rule { counter, period_s, fallback } => {
                let fallback = match fallback {
                    FallbackArg::Nobody => Fallback::Nobody,
                    FallbackArg::NextAward => Fallback::NextAward,
                };
                let wanted = ClaimRuleBody { period_s, fallback };
                let path = counter_path(&counter, "/claims");
                let rule: ClaimRuleBody = remote.call(Method::PUT, &path, Some(&wanted)).await?;
                show(remote.json, &rule, || rule_text(&rule))
            }
            Action::Show { counter, at: None } => {
                let rule: ClaimRuleBody = remote.get(&counter_path(&counter, "/claims")).await?;
                show(remote.json, &rule, || rule_text(&rule))
            }
            Action::Show { counter, at: Some(at) } => {
                let claim: ClaimBody = remote.get(&award_path(&counter, at, "/claim")).await?;
                show(remote.json, &claim, || claim_text(&claim))
            }
        }
    })
}

pub(super) fn rule_text(rule: &ClaimRuleBody) -> String {
    let otherwise = match rule.fallback {
        Fallback::Nobody => "lapse",
        Fallback::NextAward => "pass to the winner of the next one",
    };
    match rule.period_s {
        0 => "awards are not claimed".to_owned(),
        s => format!("awards may be claimed for {s} s, and then {otherwise}"),
    }
}

fn claim_text(claim: &ClaimBody) -> String {
    let holder = match claim.holder {
        holder if holder == claim.at => "the session that it names".to_owned(),
        holder => format!("the session that the award for {holder} names"),
    };
    let until = claim.until_unix_ms.map_or(String::new(), |until| format!(" until {until} ms since 1970"));
    match claim.state {
        ClaimStateBody::Open => format!("open: {holder} may claim it{until}"),
        ClaimStateBody::Claimed => format!("claimed by {holder}, ledger entry {}", claim.index.unwrap_or_default()),
        ClaimStateBody::Waiting => "it was not claimed in time: it waits for the counter's next award".to_owned(),
        ClaimStateBody::Lapsed => "it was not claimed in time: it has no owner".to_owned(),
    }
}
