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

/// What was measured, day by day.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_shows_what_came_nearest_to_its_bound_and_what_passes_it_is_found() {
        let (mut sizes, mut findings) = (Sizes::default(), Findings::default());
        for (day, is, bound) in [(1, 5, 100), (1, 3, 10), (1, 0, 0), (2, 10, 10)] {
            sizes.measured(&mut findings, day, "streams", Size { is, bound });
        }
        assert_eq!(findings.violations, []);
        let days: Vec<_> = sizes.days.iter().map(|day| (day.day, day.sizes["streams"])).collect();
        assert_eq!(days, [(1, Size { is: 3, bound: 10 }), (2, Size { is: 10, bound: 10 })]);
        sizes.measured(&mut findings, 2, "streams", Size { is: 11, bound: 10 });
        assert_eq!(findings.violations.len(), 1);
    }
}
