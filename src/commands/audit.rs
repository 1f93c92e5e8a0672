//! `tidemark audit`: whether the numbers that reads show are those that logs and cells hold.

use super::{Outcome, block_on};
use crate::remote::{Remote, counter_param};
use clap::Args;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use std::process::ExitCode;
use std::time::Duration;
use tidemark_proto::ids::CounterName;
use tidemark_server::audit::{AuditBody, AuditState, ComponentBody};
use tidemark_server::http::series::AsOfBody;
use tidemark_server::names::{key_bytes, parse_counter};
use tokio::time::{Instant, sleep};

/// How long what other data centres hold may take to come to the one that is asked first. Then it is said that it has not.
const SETTLE_MAX: Duration = Duration::from_secs(20);
/// Pause before that is looked at again.
const LOOK_AGAIN: Duration = Duration::from_millis(250);
/// Counters in one page of a prefix.
const PAGE: usize = 1_000;

/// Arguments of `tidemark audit`.
#[derive(Debug, Args)]
pub struct AuditArgs {
    /// Name of the counter: NAMESPACE/KEY; with --prefix, NAMESPACE/ or NAMESPACE/PREFIX
    counter: String,
    /// Audit all counters of the view below a prefix
    #[arg(long)]
    prefix: bool,
    /// URL of an aggregator of another data centre, with the same token and CA; may be repeated
    #[arg(long, value_name = "URL")]
    and: Vec<String>,
    /// Print only differences
    #[arg(long)]
    quiet: bool,
    #[command(flatten)]
    remote: Remote,
}

/// The findings of all counters.
#[derive(Debug, Default)]
struct Verdict {
    counters: u64,
    differ: u64,
    open: u64,
}

impl Verdict {
    fn note(&mut self, found: &AuditBody) {
        self.counters += 1;
        self.differ += u64::from(found.any(AuditState::Differs));
        let is_open = [AuditState::NotReached, AuditState::Elsewhere, AuditState::Behind];
        let is_open = is_open.into_iter().any(|state| found.any(state)) || found.total_not_counted.is_some();
        self.open += u64::from(is_open);
    }
}

pub fn run(args: AuditArgs) -> Outcome {
    block_on(async {
        let others: Vec<Remote> = args.and.iter().map(|url| args.remote.also(url)).collect();
        let mut verdict = Verdict::default();
        if !args.prefix {
            one(&args, &others, &parse_counter(&args.counter)?, &mut verdict).await?;
        } else {
            below(&args, &others, &mut verdict).await?;
        }
        let Verdict { counters, differ, open } = verdict;
        if !args.remote.json {
            outln!("{counters} audited, {differ} differ; of {open} not everything was compared");
        }
        Ok(if differ > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    })
}

async fn below(args: &AuditArgs, others: &[Remote], verdict: &mut Verdict) -> Result<(), Box<dyn std::error::Error>> {
    let escaped = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let mut after = None::<String>;
    loop {
        let behind = after.as_deref().map_or(String::new(), |key| format!("&after={}", escaped(key)));
        let path = format!("/v1/range?prefix={}&limit={PAGE}{behind}", escaped(&args.counter));
        let page: AsOfBody = args.remote.get(&path).await?;
        for read in &page.counters {
            let counter = CounterName::new(&read.counter.namespace, &key_bytes(&read.counter.key))?;
            one(args, others, &counter, verdict).await?;
        }
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(()),
        }
    }
}

async fn one(
    args: &AuditArgs,
    others: &[Remote],
    counter: &CounterName,
    verdict: &mut Verdict,
) -> Result<(), Box<dyn std::error::Error>> {
    let found = audited(&args.remote, others, counter).await?;
    verdict.note(&found);
    if args.remote.json {
        outln!("{}", serde_json::to_string(&found)?);
    } else if !args.quiet || found.any(AuditState::Differs) {
        out!("{}", text(&found, args.quiet));
    }
    Ok(())
}

/// Asks one aggregator, then those of other data centres, then the first again until it has what they hold.
async fn audited(
    first: &Remote,
    others: &[Remote],
    counter: &CounterName,
) -> Result<AuditBody, Box<dyn std::error::Error>> {
    let path = format!("/v1/audit?{}", counter_param(counter));
    if others.is_empty() {
        return Ok(first.get(&path).await?);
    }
    let path = format!("{path}&rows=true");
    let before: AuditBody = first.get(&path).await?;
    let mut elsewhere: Vec<AuditBody> = Vec::new();
    for other in others {
        elsewhere.push(other.get(&path).await?);
    }
    let deadline = Instant::now() + SETTLE_MAX;
    loop {
        let after: AuditBody = first.get(&path).await?;
        let mut joined = before.clone();
        elsewhere.iter().for_each(|there| joined.join(there, &after));
        if !joined.any(AuditState::Behind) || Instant::now() >= deadline {
            joined.components.iter_mut().for_each(|component| component.rows = Vec::new());
            return Ok(joined);
        }
        sleep(LOOK_AGAIN).await;
    }
}

fn text(found: &AuditBody, only_what_differs: bool) -> String {
    let pending = if found.pending > 0 { format!(", {} pending", found.pending) } else { String::new() };
    let down = if found.shown_down > 0 { format!(" - {}", found.shown_down) } else { String::new() };
    let mut text = format!("{} in {}: shows {}{down}{pending}\n", found.counter, found.dc, found.shown_up);
    let shown = |component: &&ComponentBody| !only_what_differs || component.state != AuditState::Agrees;
    let lines = found.components.iter().filter(shown);
    let cells: Vec<[String; 7]> = lines.clone().map(columns).collect();
    let head = ["valve", "half", "view", "held", "buckets", "outside", "as of"].map(str::to_owned);
    let widest = |at: usize| cells.iter().chain([&head]).map(|line| line[at].chars().count()).max().unwrap_or(0);
    let widths: [usize; 7] = std::array::from_fn(widest);
    let line = |cells: &[String; 7]| {
        let padded = cells.iter().zip(widths).enumerate();
        let padded = padded.map(|(at, (cell, width))| match at {
            0 | 1 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        padded.collect::<Vec<_>>().join("  ")
    };
    if !cells.is_empty() {
        text += &format!("  {}  state\n", line(&head));
    }
    for (component, cells) in lines.zip(&cells) {
        text += &format!("  {}  {}\n", line(cells), state_text(component.state));
        component.notes.iter().for_each(|note| text += &format!("    {note}\n"));
    }
    if let Some(total) = &found.total {
        text += &format!(
            "  flows to it from {} counters: {} up, {} down in the view; {} up, {} down counted anew: {}\n",
            total.ancestors,
            total.up,
            total.down,
            total.up_counted,
            total.down_counted,
            state_text(total.state)
        );
        total.notes.iter().for_each(|note| text += &format!("    {note}\n"));
    }
    if let Some(why) = &found.total_not_counted {
        text += &format!("  its total was not counted anew: {why}\n");
    }
    text
}

fn columns(component: &ComponentBody) -> [String; 7] {
    let or_none = |value: Option<u64>| value.map_or_else(|| "-".to_owned(), |value| value.to_string());
    [
        format!("{}/{}", component.group, component.lane),
        component.half.clone(),
        component.view.to_string(),
        or_none(component.held),
        component.buckets.to_string(),
        or_none(component.outside),
        or_none(component.index),
    ]
}

fn state_text(state: AuditState) -> &'static str {
    match state {
        AuditState::Agrees => "agrees",
        AuditState::Differs => "DIFFERS",
        AuditState::NotReached => "not reached",
        AuditState::Elsewhere => "not asked: its data centre is another (--and URL)",
        AuditState::Behind => "not here yet",
    }
}
