//! Series as people read them: tables, with bars of block characters.

use crate::http::body::Signed;
use crate::http::series::{AsOfBody, CounterAsOfBody, IntervalBody, SeriesBody, StepBody, TopBody};

/// Eighths of a character cell, from low to high.
const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Where nothing is known.
const GAP: char = ' ';
/// Columns of one sparkline; more steps are summed.
const SPARK_COLUMNS_MAX: usize = 80;
/// Columns of the longest bar of a table.
const BAR_COLUMNS: i128 = 30;
/// Lines of a table; a longer series is a sparkline only.
const LINES_MAX: usize = 100;

/// A line of blocks, one for each value: nothing for what is unknown, the lowest for the least of 0 and all values.
pub(super) fn sparkline(values: &[Option<i128>]) -> String {
    let known = || values.iter().flatten().copied();
    let (least, most) = (known().min().unwrap_or(0).min(0), known().max().unwrap_or(0).max(0));
    let block = |value: i128| {
        let eighths = (value - least) * (BLOCKS.len() as i128 - 1);
        // Rounded up: what counted anything stands above what counted nothing.
        let height = if most > least { (eighths + most - least - 1) / (most - least) } else { 0 };
        BLOCKS[height as usize]
    };
    values.iter().map(|value| value.map_or(GAP, block)).collect()
}

/// Values summed so that there are at most so many.
fn summed(values: &[Option<i128>], most: usize) -> Vec<Option<i128>> {
    let each = values.len().div_ceil(most).max(1);
    let sum = |part: &[Option<i128>]| part.iter().flatten().copied().reduce(|a, b| a + b);
    values.chunks(each).map(sum).collect()
}

pub(super) fn series(read: &SeriesBody) -> String {
    let values: Vec<Option<i128>> = read.steps.iter().map(|step| step.value.map(|value| value.0)).collect();
    let sum: i128 = values.iter().flatten().sum();
    let unknown = values.iter().filter(|value| value.is_none()).count();
    let unknown = if unknown > 0 { format!(", {unknown} steps are not kept") } else { String::new() };
    let line = sparkline(&summed(&values, SPARK_COLUMNS_MAX));
    let head = format!("{} every {} in {}: {sum}{unknown}\n{line}\n", read.counter, read.every, read.zone);
    if read.steps.len() > LINES_MAX {
        return format!("{head}{} steps; --json has all\n", read.steps.len());
    }
    let (widest, most) = (widest(values.iter().flatten()), values.iter().flatten().max().copied().unwrap_or(0));
    let lines = read.steps.iter().map(|step| step_line(step, widest, most));
    format!("{head}{}", lines.collect::<String>())
}

fn step_line(step: &StepBody, widest: usize, most: i128) -> String {
    let Some(Signed(value)) = step.value else { return format!("{}  {:>widest$}\n", step.from, "-") };
    let (least, most_true) = (step.at_least.unwrap_or_default(), step.at_most.unwrap_or_default());
    let bounds = if least == most_true { String::new() } else { format!("  {least} to {most_true}") };
    let line = format!("{}  {value:>widest$}  {}{bounds}", step.from, bar(value, most));
    format!("{}\n", line.trim_end())
}

fn bar(value: i128, most: i128) -> String {
    let columns = if most > 0 { value.max(0) * BAR_COLUMNS / most } else { 0 };
    "█".repeat(columns as usize)
}

fn widest<'a>(values: impl Iterator<Item = &'a i128>) -> usize {
    values.map(|value| value.to_string().len()).max().unwrap_or(1)
}

/// Counters in a table, below the intervals that the numbers are of.
pub(super) fn counters(read: &AsOfBody) -> String {
    let plans = read.namespaces.iter().flat_map(|plans| plans.windows.iter().map(move |plan| (&plans.namespace, plan)));
    let heads = plans.map(|(namespace, plan)| {
        let previous =
            plan.previous.as_ref().map_or(String::new(), |previous| format!("; before: {}", interval(previous)));
        format!("{namespace}: {}{previous}\n", interval(&plan.window))
    });
    let name = |read: &CounterAsOfBody| read.counter.to_string();
    let names = read.counters.iter().map(|read| name(read).chars().count()).max().unwrap_or(0);
    let lines = read.counters.iter().map(|read| format!("{:names$}  {}\n", name(read), values(read)));
    let next = read.next.as_ref().map_or(String::new(), |next| format!("more: --after {next:?}\n"));
    heads.chain(lines).collect::<String>() + &next
}

fn values(read: &CounterAsOfBody) -> String {
    let Some(window) = read.windows.first() else { return read.value.to_string() };
    let counted = &window.counted;
    let exact = counted.at_least == counted.at_most;
    let bounds = if exact { String::new() } else { format!(" ({} to {})", counted.at_least, counted.at_most) };
    let previous = window.previous.as_ref();
    let previous = previous.map_or(String::new(), |before| change(counted.value.0, before.value.0));
    format!("{}{bounds}{previous} of {}", counted.value, read.value)
}

/// How a value differs from the one before.
fn change(value: i128, before: i128) -> String {
    let percent = if before > 0 { format!(", {:+} %", (value - before) * 100 / before) } else { String::new() };
    format!(", before {before}{percent};")
}

fn interval(interval: &IntervalBody) -> String {
    let [from_s, to_s] = interval.error_s;
    let error = if from_s + to_s > 0 { format!(", off by {from_s} s and {to_s} s") } else { String::new() };
    format!("{} to {}{error}", interval.from, interval.to)
}

pub(super) fn top(read: &TopBody) -> String {
    format!("the first {} of {} counters\n{}", read.ranked.counters.len(), read.looked_at, counters(&read.ranked))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::body::CounterBody;
    use crate::http::series::{CountedBody, PlanBody, PlansBody, WindowedBody};

    #[test]
    fn a_sparkline_shows_gaps_zeros_and_the_largest() {
        assert_eq!(sparkline(&[Some(0), Some(1), None, Some(50), Some(100)]), "▁▂ ▅█");
        assert_eq!(sparkline(&[Some(-10), Some(0), Some(10)]), "▁▅█");
        assert_eq!(sparkline(&[Some(0), None]), "▁ ");
        assert_eq!(sparkline(&[]), "");
        let summed = summed(&vec![Some(1); 161], 80);
        assert_eq!((summed.len(), summed.iter().flatten().sum::<i128>()), (54, 161));
    }

    #[test]
    fn a_series_is_a_table_with_bars_and_says_what_is_not_known() {
        let step = |from: &str, value: Option<i128>, at_most: i128| StepBody {
            from: from.to_owned(),
            from_s: 0,
            to_s: 0,
            value: value.map(Signed),
            at_least: value.map(Signed),
            at_most: value.map(|_| Signed(at_most)),
            error_s: value.map(|_| [0, 0]),
        };
        let body = SeriesBody {
            counter: CounterBody { namespace: "qa".into(), key: "a/1".into() },
            at_unix_ms: 0,
            zone: "UTC".into(),
            every: "1d".into(),
            from_s: 0,
            to_s: 0,
            steps: vec![step("mon", None, 0), step("tue", Some(5), 5), step("wed", Some(10), 12)],
        };
        let bars = ["█".repeat(15), "█".repeat(30)];
        assert_eq!(
            series(&body),
            format!(
                "qa/a/1 every 1d in UTC: 15, 1 steps are not kept\n ▅█\nmon   -\ntue   5  {}\nwed  10  {}  10 to 12\n",
                bars[0], bars[1]
            )
        );
    }

    #[test]
    fn counters_are_told_in_a_line_each_below_their_intervals() {
        let interval = |error_s| IntervalBody {
            from: "A".into(),
            to: "B".into(),
            from_s: 0,
            to_s: 0,
            covered_from_s: 0,
            covered_to_s: 0,
            error_s,
        };
        let counted =
            |value, at_most| CountedBody { value: Signed(value), at_least: Signed(value), at_most: Signed(at_most) };
        let counter = |key: &str, counted, previous| CounterAsOfBody {
            counter: CounterBody { namespace: "qa".into(), key: key.into() },
            value: Signed(100),
            windows: vec![WindowedBody { counted, previous }],
        };
        let plan = PlanBody { window: interval([7, 0]), previous: Some(interval([0, 0])) };
        let body = AsOfBody {
            at_unix_ms: 0,
            namespaces: vec![PlansBody { namespace: "qa".into(), windows: vec![plan] }],
            counters: vec![
                counter("a", counted(5, 5), Some(counted(4, 4))),
                counter("bcd", counted(0, 3), Some(counted(0, 0))),
            ],
            next: Some("bcd".into()),
        };
        assert_eq!(
            counters(&body),
            "qa: A to B, off by 7 s and 0 s; before: A to B\nqa/a    5, before 4, +25 %; of 100\n\
             qa/bcd  0 (0 to 3), before 0; of 100\nmore: --after \"bcd\"\n"
        );
    }
}
