//! Series as people read them: tables, with bars of block characters.

use tidemark_server::api::body::Signed;
use tidemark_server::http::series::{
    AsOfBody, CounterAsOfBody, CounterSeriesBody, IntervalBody, RangeSeriesBody, SeriesBody, StepBody, TopBody,
};

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
    let least = known().min().unwrap_or(0).min(0);
    let most = known().max().unwrap_or(0).max(0);
    let block = |value: i128| {
        let eighths = (value - least) * (BLOCKS.len() as i128 - 1);
        // Rounded up: what counted anything stands above what counted nothing.
        let height = if most > least { (eighths + most - least - 1) / (most - least) } else { 0 };
        BLOCKS[height as usize]
    };
    values.iter().map(|value| value.map_or(GAP, block)).collect()
}

/// Values summed so that there are at most `most`.
fn summed(values: &[Option<i128>], most: usize) -> Vec<Option<i128>> {
    let each = values.len().div_ceil(most).max(1);
    let sum = |part: &[Option<i128>]| part.iter().flatten().copied().reduce(|a, b| a + b);
    values.chunks(each).map(sum).collect()
}

fn values_of(read: &SeriesBody) -> Vec<Option<i128>> {
    read.steps.iter().map(|step| step.value.map(|value| value.0)).collect()
}

/// A series as a sparkline only; `None` where it would say nothing: of one step, and where nothing is known.
pub(super) fn spark(read: &SeriesBody) -> Option<String> {
    let values = values_of(read);
    let says = values.len() > 1 && values.iter().any(Option::is_some);
    says.then(|| sparkline(&summed(&values, SPARK_COLUMNS_MAX)).trim_end().to_owned())
}

/// Whether steps without buckets of their own lie between others: they are finer there than what is kept.
pub(super) fn has_gaps(read: &SeriesBody) -> bool {
    let known = read.steps.split(|step| step.error_s.is_none());
    known.filter(|steps| !steps.is_empty()).count() > 1
}

pub(super) fn series(read: &SeriesBody) -> String {
    let values = values_of(read);
    let sum: i128 = values.iter().flatten().sum();
    let unknown = values.iter().filter(|value| value.is_none()).count();
    let unknown = if unknown > 0 { format!(", {unknown} steps are not kept") } else { String::new() };
    let shared = read.steps.iter().filter(|step| step.value.is_some() && step.error_s.is_none()).count();
    let shared = if shared > 0 { format!(", {shared} steps have no bucket of their own") } else { String::new() };
    let line = sparkline(&summed(&values, SPARK_COLUMNS_MAX));
    let head = format!("{} every {} in {}: {sum}{unknown}{shared}\n{line}\n", read.counter, read.every, read.zone);
    if read.steps.len() > LINES_MAX {
        return format!("{head}{} steps; --json has all\n", read.steps.len());
    }
    let widest = widest(values.iter().flatten());
    let most = values.iter().flatten().max().copied().unwrap_or(0);
    let lines = read.steps.iter().map(|step| step_line(step, widest, most));
    format!("{head}{}", lines.collect::<String>())
}

fn step_line(step: &StepBody, widest: usize, most: i128) -> String {
    let Some(Signed(value)) = step.value else { return format!("{}  {:>widest$}\n", step.from, "-") };
    let least = step.at_least.unwrap_or_default();
    let most_true = step.at_most.unwrap_or_default();
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

/// Counters in a table, below the intervals that the numbers are of. `sparks`: of the first counters, as far as there are any.
pub(super) fn counters(read: &AsOfBody, sparks: &[Option<String>]) -> String {
    let plans = read.namespaces.iter().flat_map(|plans| plans.windows.iter().map(move |plan| (&plans.namespace, plan)));
    let heads = plans.map(|(namespace, plan)| {
        let previous =
            plan.previous.as_ref().map_or(String::new(), |previous| format!("; before: {}", interval(previous)));
        let why = plan.no_previous.as_ref().map_or(String::new(), |why| format!("; before: {}", why.message));
        format!("{namespace}: {}{previous}{why}\n", interval(&plan.window))
    });
    let next = more(read.next.as_ref());
    heads.chain(counter_lines(&read.counters, sparks)).collect::<String>() + &next
}

fn counter_lines(counters: &[CounterAsOfBody], sparks: &[Option<String>]) -> Vec<String> {
    let table: Vec<(String, String)> = counters.iter().map(|read| (read.counter.to_string(), values(read))).collect();
    let names = table.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let columns = table.iter().map(|(_, values)| values.chars().count()).max().unwrap_or(0);
    let line = |(nth, (name, values)): (usize, &(String, String))| match sparks.get(nth) {
        Some(Some(spark)) => format!("{name:names$}  {values:columns$}  {spark}\n"),
        _ => format!("{name:names$}  {values}\n"),
    };
    table.iter().enumerate().map(line).collect()
}

fn values(read: &CounterAsOfBody) -> String {
    let known = if read.known { "" } else { " (never counted)" };
    let Some(window) = read.windows.first() else { return format!("{}{known}", read.value) };
    let counted = &window.counted;
    let exact = counted.at_least == counted.at_most;
    let bounds = if exact { String::new() } else { format!(" ({} to {})", counted.at_least, counted.at_most) };
    let previous = window.previous.as_ref();
    let previous = previous.map_or(String::new(), |before| change(counted.value.0, before.value.0));
    format!("{}{bounds}{previous} of {}{known}", counted.value, read.value)
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

/// Counters in the same steps: of each the sum, and a sparkline.
pub(super) fn range_series(read: &RangeSeriesBody) -> String {
    let from = read.steps.first().map_or("", |step| &step.from);
    let head = format!("every {} in {}, {} steps from {from}\n", read.every, read.zone, read.steps.len());
    let line = |counter: &CounterSeriesBody| {
        let values: Vec<Option<i128>> = counter.values.iter().map(|value| value.map(|Signed(value)| value)).collect();
        let sum: i128 = values.iter().flatten().sum();
        (counter.counter.to_string(), sum.to_string(), sparkline(&summed(&values, SPARK_COLUMNS_MAX)))
    };
    let lines: Vec<_> = read.counters.iter().map(line).collect();
    let names = lines.iter().map(|(name, ..)| name.chars().count()).max().unwrap_or(0);
    let sums = lines.iter().map(|(_, sum, _)| sum.len()).max().unwrap_or(0);
    let lines = lines.iter().map(|(name, sum, spark)| format!("{name:names$}  {sum:>sums$}  {spark}"));
    let lines: String = lines.map(|line| format!("{}\n", line.trim_end())).collect();
    head + &lines + &more(read.next.as_ref())
}

/// Where the page ended.
fn more(next: Option<&String>) -> String {
    next.map_or(String::new(), |next| format!("more: --after {next:?}\n"))
}

pub(super) fn top(read: &TopBody, sparks: &[Option<String>]) -> String {
    let shown = read.ranked.counters.len();
    let ranked = counters(&read.ranked, sparks);
    format!("the first {shown} of {} counters\n{ranked}", read.looked_at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemark_server::api::body::CounterBody;
    use tidemark_server::http::series::{CountedBody, PlanBody, PlansBody, WindowedBody};

    #[test]
    fn a_sparkline_shows_gaps_zeros_and_the_largest() {
        assert_eq!(sparkline(&[Some(0), Some(1), None, Some(50), Some(100)]), "▁▂ ▅█");
        assert_eq!(sparkline(&[Some(-10), Some(0), Some(10)]), "▁▅█");
        assert_eq!(sparkline(&[Some(0), None]), "▁ ");
        assert_eq!(sparkline(&[]), "");
        let summed = summed(&vec![Some(1); 161], 80);
        assert_eq!((summed.len(), summed.iter().flatten().sum::<i128>()), (54, 161));
    }

    fn step(from: &str, value: Option<i128>, at_most: i128) -> StepBody {
        StepBody {
            from: from.to_owned(),
            from_s: 0,
            to_s: 0,
            value: value.map(Signed),
            at_least: value.map(Signed),
            at_most: value.map(|_| Signed(at_most)),
            error_s: value.map(|_| [0, 0]),
        }
    }

    fn daily(steps: Vec<StepBody>) -> SeriesBody {
        SeriesBody {
            counter: CounterBody { namespace: "qa".into(), key: "a/1".into() },
            known: true,
            at_unix_ms: 0,
            zone: "UTC".into(),
            every: "1d".into(),
            from_s: 0,
            to_s: 0,
            steps,
            instants: 1,
            basis: None,
        }
    }

    #[test]
    fn a_sparkline_of_a_series_says_something_and_knows_its_gaps() {
        let said = |values: &[Option<i128>]| {
            let read = daily(values.iter().map(|&value| step("-", value, 0)).collect());
            (spark(&read), has_gaps(&read))
        };
        let line = |line: &str| Some(line.to_owned());
        assert_eq!(said(&[Some(0), Some(7)]), (line("▁█"), false));
        assert_eq!(said(&[None, Some(7), Some(0), None]), (line(" █▁"), false), "nothing is kept of the ends");
        assert_eq!(said(&[Some(7), None, None, Some(0)]), (line("█  ▁"), true));
        assert_eq!((said(&[Some(7)]).0, said(&[None, None]), said(&[])), (None, (None, false), (None, false)));
        let many = said(&[Some(1); 731]).0.unwrap();
        assert_eq!(many.chars().count(), 74);
    }

    #[test]
    fn a_series_is_a_table_with_bars_and_says_what_is_not_known() {
        let body = daily(vec![step("mon", None, 0), step("tue", Some(5), 5), step("wed", Some(10), 12)]);
        let bars = ["█".repeat(15), "█".repeat(30)];
        assert_eq!(
            series(&body),
            format!(
                "qa/a/1 every 1d in UTC: 15, 1 steps are not kept\n ▅█\nmon   -\ntue   5  {}\nwed  10  {}  10 to 12\n",
                bars[0], bars[1]
            )
        );
    }

    /// Two counters of one namespace in a window, and more of them.
    fn two() -> AsOfBody {
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
            known: true,
            windows: vec![WindowedBody { counted, previous }],
        };
        let plan = PlanBody { window: interval([7, 0]), previous: Some(interval([0, 0])), no_previous: None };
        AsOfBody {
            at_unix_ms: 0,
            namespaces: vec![PlansBody { namespace: "qa".into(), windows: vec![plan] }],
            counters: vec![
                counter("a", counted(5, 5), Some(counted(4, 4))),
                counter("bcd", counted(0, 3), Some(counted(0, 0))),
            ],
            next: Some("bcd".into()),
            instants: 1,
            basis: None,
        }
    }

    #[test]
    fn counters_are_told_in_a_line_each_below_their_intervals() {
        assert_eq!(
            counters(&two(), &[]),
            "qa: A to B, off by 7 s and 0 s; before: A to B\nqa/a    5, before 4, +25 %; of 100\n\
             qa/bcd  0 (0 to 3), before 0; of 100\nmore: --after \"bcd\"\n"
        );
    }

    #[test]
    fn sparklines_stand_below_each_other_and_lines_without_one_are_as_they_were() {
        let none = counters(&two(), &[]);
        let line = |line: &str| Some(line.to_owned());
        let head = "qa: A to B, off by 7 s and 0 s; before: A to B\n";
        let lines = "qa/a    5, before 4, +25 %; of 100";
        let next = "more: --after \"bcd\"\n";
        assert_eq!(
            counters(&two(), &[line("▁▂"), line(" █")]),
            format!("{head}{lines}    ▁▂\nqa/bcd  0 (0 to 3), before 0; of 100   █\n{next}")
        );
        assert_eq!(counters(&two(), &[None, None]), none);
        let second = counters(&two(), &[None, line("▁█")]);
        assert_eq!(second, format!("{head}{lines}\nqa/bcd  0 (0 to 3), before 0; of 100  ▁█\n{next}"));
        let ranked = top(&TopBody { looked_at: 9, ranked: two() }, &[line("▁█")]);
        assert!(ranked.starts_with("the first 2 of 9 counters\n") && ranked.contains("of 100    ▁█\n"), "{ranked}");
    }
}
