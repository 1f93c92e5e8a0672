//! Figures of several runs or several milestones: median and worst, in the form in which the closing lines print them.

use serde::Serialize;

/// Median and worst of a series; larger is worse unless it was made with [`Figure::of_rates`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    pub median: f64,
    pub worst: f64,
    pub values: Vec<f64>,
}

impl Figure {
    /// Of durations, counts and other costs: the worst is the largest. `None` of an empty series.
    pub fn of_costs(values: Vec<f64>) -> Option<Figure> {
        let worst = values.iter().copied().reduce(f64::max)?;
        Some(Figure { median: median(&values)?, worst, values })
    }

    /// Of rates: the worst is the smallest. `None` of an empty series.
    pub fn of_rates(values: Vec<f64>) -> Option<Figure> {
        let worst = values.iter().copied().reduce(f64::min)?;
        Some(Figure { median: median(&values)?, worst, values })
    }
}

/// The middle value, or the mean of the two in the middle.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        len if len % 2 == 0 => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
        _ => Some(sorted[middle]),
    }
}

/// For people and for JSON: two decimals are more than any of these figures can bear.
pub fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_is_the_largest_cost_and_the_smallest_rate() {
        let values = vec![3.0, 1.0, 2.0, 10.0];
        let cost = Figure::of_costs(values.clone()).unwrap();
        assert_eq!((cost.median, cost.worst), (2.5, 10.0));
        assert_eq!(Figure::of_rates(values).unwrap().worst, 1.0);
        assert_eq!(Figure::of_costs(Vec::new()), None);
    }

    #[test]
    fn a_median_of_an_odd_series_is_one_of_its_values() {
        assert_eq!(median(&[5.0, 1.0, 3.0]), Some(3.0));
        assert_eq!(median(&[]), None);
    }
}
