//! `tidemark series`, `window`, `range` and `top`: what counters counted over time.

mod text;

use super::remote::{Remote, counter_param, counter_path};
use super::{Outcome, block_on, show};
use crate::http::series::{AnchorBody, AsOfBody, Of, SeriesBody, TopBody, WindowAsk};
use crate::names::{counter_text, parse_counter};
use clap::Args;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tidemark_proto::ids::CounterName;

/// Arguments of `tidemark series`.
#[derive(Debug, Args)]
pub struct Series {
    /// NAMESPACE/KEY
    #[arg(value_parser = parse_counter)]
    counter: CounterName,
    /// Length of a step: 5m, 1h, 1d, 1w, 1mo
    #[arg(long)]
    every: String,
    /// Where steps are cut
    #[arg(long, value_enum, default_value = "calendar")]
    anchor: AnchorBody,
    #[command(flatten)]
    ask: WindowAsk,
    /// Which counts
    #[arg(long, value_enum, default_value = "direct")]
    of: Of,
    #[command(flatten)]
    remote: Remote,
}

/// Arguments of `tidemark window`.
#[derive(Debug, Args)]
pub struct Windows {
    /// NAMESPACE/KEY, at most 100
    #[arg(value_parser = parse_counter, required = true)]
    counters: Vec<CounterName>,
    #[command(flatten)]
    ask: WindowAsk,
    /// Which counts
    #[arg(long, value_enum, default_value = "direct")]
    of: Of,
    #[command(flatten)]
    remote: Remote,
}

/// Arguments of `tidemark range`.
#[derive(Debug, Args)]
pub struct Range {
    /// NAMESPACE/ or NAMESPACE/PREFIX
    prefix: String,
    /// At most so many counters, 1 to 1000
    #[arg(long, default_value_t = 100)]
    limit: u32,
    /// Only keys behind this one: where the page before ended
    #[arg(long)]
    after: Option<String>,
    /// Only keys before this one
    #[arg(long)]
    before: Option<String>,
    #[command(flatten)]
    ask: WindowAsk,
    /// Which counts
    #[arg(long, value_enum, default_value = "direct")]
    of: Of,
    #[command(flatten)]
    remote: Remote,
}

/// Arguments of `tidemark top`.
#[derive(Debug, Args)]
pub struct Top {
    /// NAMESPACE/ or NAMESPACE/PREFIX
    #[arg(required_unless_present = "children")]
    prefix: Option<String>,
    /// Of those whose counts flow straight to this counter, NAMESPACE/KEY
    #[arg(long, value_name = "COUNTER", value_parser = parse_counter, conflicts_with = "prefix")]
    children: Option<CounterName>,
    /// So many places, 1 to 1000
    #[arg(short, long, default_value_t = 10)]
    k: u32,
    #[command(flatten)]
    ask: WindowAsk,
    /// Which counts
    #[arg(long, value_enum, default_value = "direct")]
    of: Of,
    #[command(flatten)]
    remote: Remote,
}

pub fn series(args: Series) -> Outcome {
    block_on(async {
        let Series { counter, every, anchor, ask, of, remote } = args;
        let anchor = match anchor {
            AnchorBody::Calendar => "calendar",
            AnchorBody::End => "end",
        };
        let params = format!("?every={}&anchor={anchor}{}{}", escaped(&every), ask.params(), of.param());
        let read: SeriesBody = remote.get(&counter_path(&counter, &format!("/series{params}"))).await?;
        show(remote.json, &read, || text::series(&read))
    })
}

pub fn windows(args: Windows) -> Outcome {
    block_on(async {
        let Windows { counters, ask, of, remote } = args;
        let counters: Vec<String> = counters.iter().map(counter_param).collect();
        let read: AsOfBody =
            remote.get(&format!("/v1/window?{}{}{}", counters.join("&"), ask.params(), of.param())).await?;
        show(remote.json, &read, || text::counters(&read))
    })
}

pub fn range(args: Range) -> Outcome {
    block_on(async {
        let Range { prefix, limit, after, before, ask, of, remote } = args;
        let mut params = format!("?prefix={}&limit={limit}{}{}", escaped(&prefix), ask.params(), of.param());
        for (name, key) in [("after", after), ("before", before)] {
            params += &key.map_or(String::new(), |key| format!("&{name}={}", escaped(&key)));
        }
        let read: AsOfBody = remote.get(&format!("/v1/range{params}")).await?;
        show(remote.json, &read, || text::counters(&read))
    })
}

pub fn top(args: Top) -> Outcome {
    block_on(async {
        let Top { prefix, children, k, ask, of, remote } = args;
        let among = match children {
            Some(counter) => format!("children={}", escaped(&counter_text(&counter))),
            None => format!("prefix={}", escaped(&prefix.unwrap_or_default())),
        };
        let path = format!("/v1/top?{among}&k={k}{}{}", ask.params(), of.param());
        let read: TopBody = remote.get(&path).await?;
        show(remote.json, &read, || text::top(&read))
    })
}

fn escaped(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}
