//! `tidemark series`, `window`, `range` and `top`: what counters counted over time. As text, what a window holds has a sparkline beside
//! it, which is asked for afterwards: where none comes, the numbers stand alone.

mod text;

use super::{Outcome, block_on, show};
use crate::remote::{Remote, RemoteError, counter_param, counter_path};
use clap::Args;
use futures_util::stream::{self, StreamExt};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use std::time::Duration;
use tidemark_proto::ids::CounterName;
use tidemark_server::api::body::CounterBody;
use tidemark_server::http::series::{AnchorBody, AsOfBody, Of, RangeSeriesBody, SeriesBody, TopBody, WindowAsk};
use tidemark_server::names::{counter_text, parse_counter};
use tokio::time::{Instant, timeout_at};

/// Of an answer with more counters no sparklines are asked for: each is at least one request.
const SPARK_COUNTERS_MAX: usize = 20;
/// Steps of a sparkline, where one of [`SPARK_EVERY`] is long enough for that.
const SPARK_STEPS_MAX: u64 = 48;
/// How long those steps may be, and in seconds; ascending.
const SPARK_EVERY: [(&str, u64); 8] = [
    ("1m", 60),
    ("5m", 300),
    ("15m", 900),
    ("1h", 3_600),
    ("6h", 6 * 3_600),
    ("1d", 86_400),
    ("7d", 7 * 86_400),
    ("28d", 28 * 86_400),
];
/// Number of longer steps to try if the shortest that fits is finer than the kept buckets.
const SPARK_LONGER_TRIED: usize = 3;
/// Sparklines that are asked for at the same time.
const SPARKS_AT_ONCE: usize = 4;
/// Sparklines that take longer, all together, are left out.
pub(super) const SPARKS_PATIENCE: Duration = Duration::from_secs(5);

/// Arguments of `tidemark series`.
#[derive(Debug, Args)]
pub struct Series {
    /// Name of the counter: NAMESPACE/KEY
    #[arg(value_parser = parse_counter)]
    counter: CounterName,
    /// Length of a step, such as 5m, 1h, 1d, 1w or 1mo
    #[arg(long)]
    every: String,
    /// Where steps begin
    #[arg(long, value_enum, default_value = "calendar")]
    anchor: AnchorBody,
    #[command(flatten)]
    ask: WindowAsk,
    /// Which counts to read
    #[arg(long, value_enum, default_value = "direct")]
    of: Of,
    #[command(flatten)]
    remote: Remote,
}

/// Arguments of `tidemark window`.
#[derive(Debug, Args)]
pub struct Windows {
    /// Names of 1 to 100 counters: NAMESPACE/KEY
    #[arg(value_parser = parse_counter, required = true)]
    counters: Vec<CounterName>,
    #[command(flatten)]
    ask: WindowAsk,
    /// Which counts to read
    #[arg(long, value_enum, default_value = "direct")]
    of: Of,
    #[command(flatten)]
    remote: Remote,
}

/// Arguments of `tidemark range`.
#[derive(Debug, Args)]
pub struct Range {
    /// Prefix of the counters: NAMESPACE/ or NAMESPACE/PREFIX
    prefix: String,
    /// Maximum number of counters, 1 to 1000
    #[arg(long, default_value_t = 100)]
    limit: u32,
    /// List only keys after this key, the last of the previous page
    #[arg(long)]
    after: Option<String>,
    /// List only keys before this key
    #[arg(long)]
    before: Option<String>,
    /// Print steps of this length, as `tidemark series` does: 5m, 1h, 1d, 1w, 1mo
    #[arg(long)]
    every: Option<String>,
    /// Where steps begin
    #[arg(long, value_enum, default_value = "calendar", requires = "every")]
    anchor: AnchorBody,
    #[command(flatten)]
    ask: WindowAsk,
    /// Which counts to read
    #[arg(long, value_enum, default_value = "direct")]
    of: Of,
    #[command(flatten)]
    remote: Remote,
}

/// Arguments of `tidemark top`.
#[derive(Debug, Args)]
pub struct Top {
    /// Prefix of the counters: NAMESPACE/ or NAMESPACE/PREFIX
    #[arg(required_unless_present = "children")]
    prefix: Option<String>,
    /// Rank the counters with an edge to this counter, NAMESPACE/KEY
    #[arg(long, value_name = "COUNTER", value_parser = parse_counter, conflicts_with = "prefix")]
    children: Option<CounterName>,
    /// Number of places, 1 to 1000
    #[arg(short, long, default_value_t = 10)]
    k: u32,
    #[command(flatten)]
    ask: WindowAsk,
    /// Which counts to read
    #[arg(long, value_enum, default_value = "direct")]
    of: Of,
    #[command(flatten)]
    remote: Remote,
}

pub fn series(args: Series) -> Outcome {
    block_on(async {
        let Series { counter, every, anchor, ask, of, remote } = args;
        ask.check_options(true)?;
        let params = format!("?{}{}{}", steps(&every, anchor), ask.params(), of.param());
        let read: SeriesBody = remote.get(&counter_path(&counter, &format!("/series{params}"))).await?;
        show(remote.json, &read, || text::series(&read))
    })
}

pub fn windows(args: Windows) -> Outcome {
    block_on(async {
        let Windows { counters, ask, of, remote } = args;
        ask.check_options(true)?;
        let counters: Vec<String> = counters.iter().map(counter_param).collect();
        let read: AsOfBody =
            remote.get(&format!("/v1/window?{}{}{}", counters.join("&"), ask.params(), of.param())).await?;
        let sparks = sparks(&remote, &read, &ask, of).await;
        show(remote.json, &read, || text::counters(&read, &sparks))
    })
}

pub fn range(args: Range) -> Outcome {
    block_on(async {
        let Range { prefix, limit, after, before, every, anchor, ask, of, remote } = args;
        ask.check_options(every.is_some())?;
        let mut params = format!("?prefix={}&limit={limit}{}{}", escaped(&prefix), ask.params(), of.param());
        for (name, key) in [("after", after), ("before", before)] {
            params += &key.map_or(String::new(), |key| format!("&{name}={}", escaped(&key)));
        }
        if let Some(every) = every {
            let path = format!("/v1/range{params}&{}", steps(&every, anchor));
            let read: RangeSeriesBody = remote.get(&path).await?;
            return show(remote.json, &read, || text::range_series(&read));
        }
        let read: AsOfBody = remote.get(&format!("/v1/range{params}")).await?;
        let sparks = sparks(&remote, &read, &ask, of).await;
        show(remote.json, &read, || text::counters(&read, &sparks))
    })
}

pub fn top(args: Top) -> Outcome {
    block_on(async {
        let Top { prefix, children, k, ask, of, remote } = args;
        ask.check_options(true)?;
        let among = match children {
            Some(counter) => format!("children={}", escaped(&counter_text(&counter))),
            None => format!("prefix={}", escaped(&prefix.unwrap_or_default())),
        };
        let path = format!("/v1/top?{among}&k={k}{}{}", ask.params(), of.param());
        let read: TopBody = remote.get(&path).await?;
        let sparks = sparks(&remote, &read.ranked, &ask, of).await;
        show(remote.json, &read, || text::top(&read, &sparks))
    })
}

/// As parameters of a URL.
fn steps(every: &str, anchor: AnchorBody) -> String {
    let anchor = match anchor {
        AnchorBody::Calendar => "calendar",
        AnchorBody::End => "end",
    };
    format!("every={}&anchor={anchor}", escaped(every))
}

fn escaped(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

/// A sparkline of each counter, in their order, as far as they come in time. JSON, a command without a window, and many counters have none.
async fn sparks(remote: &Remote, read: &AsOfBody, ask: &WindowAsk, of: Of) -> Vec<Option<String>> {
    if remote.json || *ask == WindowAsk::default() || read.counters.len() > SPARK_COUNTERS_MAX {
        return Vec::new();
    }
    let params = format!("{}{}", WindowAsk { compare: None, ..ask.clone() }.params(), of.param());
    let asked = read.counters.iter().map(|counter| window_spark(remote, read, &counter.counter, &params));
    let mut answers = stream::iter(asked).buffered(SPARKS_AT_ONCE);
    let deadline = Instant::now() + SPARKS_PATIENCE;
    let mut sparks = Vec::new();
    while let Ok(Some(spark)) = timeout_at(deadline, answers.next()).await {
        sparks.push(spark);
    }
    sparks
}

/// Of one of the counters that were read.
async fn window_spark(remote: &Remote, read: &AsOfBody, counter: &CounterBody, params: &str) -> Option<String> {
    let plans = read.namespaces.iter().find(|plans| plans.namespace == counter.namespace)?;
    let window = &plans.windows.first()?.window;
    // The future has no steps.
    let length_s = window.to_s.min(read.at_unix_ms / 1_000).saturating_sub(window.from_s);
    let tried = SPARK_EVERY.iter().skip(shortest_fitting(length_s)).take(1 + SPARK_LONGER_TRIED);
    let tried = tried.filter(|(_, every_s)| *every_s < length_s);
    let asked: Vec<String> = tried.map(|(every, _)| format!("?every={every}&anchor=end{params}")).collect();
    let counter = parse_counter(&counter.to_string()).ok()?;
    spark(remote, &counter, &asked).await.map(|(_, line)| line)
}

/// The shortest of [`SPARK_EVERY`] that cuts an interval into no more steps than a sparkline has; the longest where none does.
fn shortest_fitting(length_s: u64) -> usize {
    let fits = |&(_, every_s): &(&str, u64)| length_s.div_ceil(every_s) <= SPARK_STEPS_MAX;
    SPARK_EVERY.iter().position(fits).unwrap_or(SPARK_EVERY.len() - 1)
}

/// A sparkline of a counter's counts. Each question holds the parameters of `…/series`. The first question whose answer has no gap between
/// known steps is taken, else the last with an answer. Returns the question as well.
pub(super) async fn spark(remote: &Remote, counter: &CounterName, asked: &[String]) -> Option<(usize, String)> {
    let mut found = None;
    for (nth, params) in asked.iter().enumerate() {
        let path = counter_path(counter, &format!("/series{params}"));
        match remote.get::<SeriesBody>(&path).await {
            Ok(read) => {
                found = text::spark(&read).map(|line| (nth, line)).or(found);
                if !text::has_gaps(&read) {
                    break;
                }
            }
            // Such as steps that are finer than what is kept.
            Err(RemoteError::Refused { .. }) => {}
            Err(_) => break,
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_the_shortest_with_which_a_sparkline_is_not_too_long() {
        let every = |length_s| SPARK_EVERY[shortest_fitting(length_s)].0;
        assert_eq!([0, 300, 2_880, 2_881].map(every), ["1m", "1m", "1m", "5m"]);
        assert_eq!(
            [1_u64, 2, 7, 12, 13, 30, 90, 365].map(|days| every(days * 86_400)),
            ["1h", "1h", "6h", "6h", "1d", "1d", "7d", "28d"]
        );
        assert_eq!(every(u64::MAX), "28d", "none is long enough");
        assert!(SPARK_EVERY.is_sorted_by_key(|&(_, every_s)| every_s));
    }
}
