//! Sizes: what processes keep has a bound by name, and stays below it however long they run.

use super::Findings;
use std::collections::BTreeMap;

const NAME: &str = "sizes";

/// How much there is of something, and how much there may be at that moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    pub is: u64,
    pub bound: u64,
}

/// The largest that each was in a day.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Day {
    /// 1 for the first.
    pub day: u32,
    /// By name: the size that came nearest to its bound.
    pub sizes: BTreeMap<&'static str, Size>,
}

/// The measurements, day by day.
#[derive(Clone, Debug, Default)]
pub struct Sizes {
    pub days: Vec<Day>,
}

impl Sizes {
    /// Something was measured in a day.
    pub fn measured(&mut self, findings: &mut Findings, day: u32, name: &'static str, size: Size) {
        findings
            .check(NAME, size.is <= size.bound, || format!("day {day}: {name}: {} of at most {}", size.is, size.bound));
        if self.days.last().is_none_or(|last| last.day != day) {
            self.days.push(Day { day, ..Day::default() });
        }
        let Some(today) = self.days.last_mut() else { return };
        let most = today.sizes.entry(name).or_insert(size);
        let nearer = |a: Size, b: Size| u128::from(a.is) * u128::from(b.bound) > u128::from(b.is) * u128::from(a.bound);
        if nearer(size, *most) {
            *most = size;
        }
    }
}

/// Days that a table shows.
const COLUMNS: usize = 4;

/// The sizes of a run as a table: what each was on some days, the last day's bound, and how near it came to its bound, when.
pub fn table(days: &[Day]) -> Vec<String> {
    let Some(last) = days.last() else { return Vec::new() };
    let columns = COLUMNS.min(days.len());
    // The first, the last, and others evenly between.
    let shown: Vec<&Day> = (0..columns).map(|n| &days[(days.len() - 1) * n / (columns - 1).max(1)]).collect();
    let name = |name: &str| format!("{name:<NAME_WIDTH$}");
    let cells = |cells: Vec<String>| cells.iter().map(|cell| format!(" {cell:>9}")).collect::<String>();
    let heads = shown.iter().map(|day| format!("day {}", day.day)).chain(["bound".to_owned()]).collect();
    let mut lines = vec![
        "What processes keep, measured every hour: of each day the measure nearest to its bound. Counts; bytes where it says so.".to_owned(),
        format!("{}{}  nearest", name(""), cells(heads)),
    ];
    for (what, size) in &last.sizes {
        let of = |day: &&Day| day.sizes.get(what).map_or("-".to_owned(), |size| size.is.to_string());
        let numbers = shown.iter().map(of).chain([size.bound.to_string()]).collect();
        lines.push(format!("{}{}  {}", name(what), cells(numbers), nearest(days, what)));
    }
    lines
}

/// Wide enough for every name.
const NAME_WIDTH: usize = 33;

/// How near a size came to its bound in all days, and on which first.
fn nearest(days: &[Day], what: &str) -> String {
    let share = |size: &Size| if size.bound == 0 { 0 } else { u128::from(size.is) * 100 / u128::from(size.bound) };
    let shares = days.iter().filter_map(|day| Some((share(day.sizes.get(what)?), day.day)));
    let most = shares.reduce(|most, next| if next.0 > most.0 { next } else { most });
    most.map_or_else(String::new, |(percent, day)| format!("{percent:>3} % on day {day}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_shows_what_came_nearest_to_its_bound_and_what_passes_it_is_found() {
        let mut sizes = Sizes::default();
        let mut findings = Findings::default();
        for (day, is, bound) in [(1, 5, 100), (1, 3, 10), (1, 0, 0), (2, 10, 10)] {
            sizes.measured(&mut findings, day, "streams", Size { is, bound });
        }
        assert_eq!(findings.violations, []);
        let days: Vec<_> = sizes.days.iter().map(|day| (day.day, day.sizes["streams"])).collect();
        assert_eq!(days, [(1, Size { is: 3, bound: 10 }), (2, Size { is: 10, bound: 10 })]);
        sizes.measured(&mut findings, 2, "streams", Size { is: 11, bound: 10 });
        assert_eq!(findings.violations.len(), 1);
    }

    #[test]
    fn a_table_shows_some_days_the_last_bound_and_what_came_nearest() {
        let mut sizes = Sizes::default();
        let mut findings = Findings::default();
        for day in 1..=30 {
            sizes.measured(&mut findings, day, "streams of a group", Size { is: 100 + u64::from(day), bound: 1_000 });
            sizes.measured(&mut findings, day, "awards", Size { is: if day == 17 { 9 } else { 1 }, bound: 10 });
        }
        let lines: Vec<String> = table(&sizes.days).split_off(1);
        assert_eq!(
            lines,
            [
                "                                      day 1    day 10    day 20    day 30     bound  nearest",
                "awards                                    1         1         1         1        10   90 % on day 17",
                "streams of a group                      101       110       120       130      1000   13 % on day 30",
            ]
        );
        assert_eq!(table(&sizes.days[..1])[1], "                                      day 1     bound  nearest");
        assert_eq!(table(&[]), Vec::<String>::new());
    }
}
