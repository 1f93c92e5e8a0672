//! `tidemark awards`: lists awards, fetches their certificates.

use super::numbers::parse_count;
use super::{Outcome, block_on, show};
use crate::remote::{Remote, RemoteError, award_path, counter_param};
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;
use tidemark_proto::ids::CounterName;
use tidemark_server::api::body::{AwardBody, AwardsBody};
use tidemark_server::certificate::Certificate;
use tidemark_server::names::parse_counter;

/// Arguments of `tidemark awards`.
#[derive(Debug, Args)]
pub struct Awards {
    #[command(subcommand)]
    action: Action,
    #[command(flatten)]
    remote: Remote,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List awards in their order
    #[command(after_help = "Example:\n  tidemark awards list search/queries")]
    List {
        /// Name of the counter: NAMESPACE/KEY [default: all counters]
        #[arg(value_parser = parse_counter)]
        counter: Option<CounterName>,
    },
    /// Fetch the certificate of an award, which `tidemark verify` checks
    #[command(after_help = "Example:\n  tidemark awards certificate search/queries 1M --out award.json")]
    Certificate {
        /// Name of the counter: NAMESPACE/KEY
        #[arg(value_parser = parse_counter)]
        counter: CounterName,
        /// Milestone, such as 1000000, 1M or 1e6
        #[arg(value_parser = parse_count)]
        at: u64,
        /// File to write, which must not exist yet [default: standard output]
        #[arg(long)]
        out: Option<PathBuf>,
    },
}

pub fn run(args: Awards) -> Outcome {
    let Awards { action, remote } = args;
    block_on(async {
        match action {
            Action::List { counter } => list(counter, &remote).await,
            Action::Certificate { counter, at, out } => certificate(&counter, at, out, &remote).await,
        }
    })
}

async fn list(counter: Option<CounterName>, remote: &Remote) -> Outcome {
    let wanted = counter.map_or_else(String::new, |counter| counter_param(&counter) + "&");
    let mut after = Some("0.0".to_owned());
    while let Some(position) = after {
        let page: AwardsBody = remote.get(&format!("/v1/awards?{wanted}after={position}")).await?;
        for award in &page.awards {
            show(remote.json, award, || text(award))?;
        }
        after = page.next;
    }
    Ok(ExitCode::SUCCESS)
}

async fn certificate(counter: &CounterName, at: u64, out: Option<PathBuf>, remote: &Remote) -> Outcome {
    let certificate = fetch(counter, at, remote).await?.to_json();
    match out {
        None => out!("{certificate}"),
        Some(path) => {
            let file = std::fs::OpenOptions::new().write(true).create_new(true).open(&path);
            let written = file.and_then(|mut file| std::io::Write::write_all(&mut file, certificate.as_bytes()));
            written.map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn fetch(counter: &CounterName, at: u64, remote: &Remote) -> Result<Certificate, RemoteError> {
    remote.get(&award_path(counter, at, "/certificate")).await
}

/// An award on one line.
pub fn text(award: &AwardBody) -> String {
    let session = award.session.as_deref().map_or_else(|| "no session".to_owned(), |id| format!("session {id}"));
    let milestones = match award.count {
        1 => format!("milestone {}", award.at),
        count => format!("milestones {} and {} more, every {}", award.at, count - 1, award.step),
    };
    let AwardBody { counter, first, delta, client, .. } = award;
    let time = award.time.as_deref().map_or_else(String::new, |time| format!(" at {time}"));
    format!("{counter} {milestones}{time}: {}, client {client}, {session}", numbers(*first, *delta))
}

/// The numbers that an increment takes.
pub fn numbers(first: u64, delta: u64) -> String {
    match delta {
        0 | 1 => format!("number {first}"),
        delta => format!("numbers {first} to {}", first.saturating_add(delta - 1)),
    }
}
