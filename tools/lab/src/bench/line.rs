//! The output of a bench: one line of JSON with, per figure, the requirement, the median and the worst of the runs, and the cost.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use tidemark_demo::figures::{Figure, median, rounded};

/// A figure of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    pub figure: Asked,
    pub value: f64,
    /// CPU seconds of the whole tree of processes while it was measured, and for how long.
    pub cost: Option<(f64, f64)>,
    /// The tools of the measurement, if they were not known before.
    pub with: Option<String>,
}

/// A figure's name, and what was promised of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Asked {
    pub name: String,
    pub unit: String,
    /// Whether more is better.
    pub rate: bool,
    pub must: Option<f64>,
    pub aim: Option<f64>,
}

impl Asked {
    /// A figure of which more is better.
    pub fn rate(name: impl Into<String>, unit: &str) -> Asked {
        Asked { name: name.into(), unit: unit.to_owned(), rate: true, must: None, aim: None }
    }

    /// A figure of which less is better.
    pub fn cost(name: impl Into<String>, unit: &str) -> Asked {
        Asked { rate: false, ..Asked::rate(name, unit) }
    }

    /// Sets the value that it must reach.
    pub fn must(self, must: f64) -> Asked {
        Asked { must: Some(must), ..self }
    }

    /// Sets the value that it should reach.
    pub fn aim(self, aim: f64) -> Asked {
        Asked { aim: Some(aim), ..self }
    }

    /// This figure in one run.
    pub fn is(self, value: f64) -> Sample {
        Sample { figure: self, value, cost: None, with: None }
    }

    fn reaches(&self, value: f64, bound: f64) -> bool {
        if self.rate { value >= bound } else { value <= bound }
    }
}

impl Sample {
    /// With the CPU seconds that it took, and the seconds in which it took them.
    pub fn costing(self, cpu_s: Option<f64>, seconds: f64) -> Sample {
        Sample { cost: cpu_s.map(|cpu_s| (cpu_s, seconds)), ..self }
    }

    /// And what it was measured with.
    pub fn with(self, with: String) -> Sample {
        Sample { with: Some(with), ..self }
    }
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} {}", self.figure.name, rounded(self.value), self.figure.unit)
    }
}

/// A figure of all runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    #[serde(flatten)]
    pub asked: Asked,
    pub median: f64,
    pub worst: f64,
    pub values: Vec<f64>,
    /// CPU seconds of the whole tree of processes, and how many cores that was: medians.
    pub cpu_s: Option<f64>,
    pub cores: Option<f64>,
    /// Whether the worst run reached what is promised.
    pub reached: Option<bool>,
    /// The tools of the runs, if they were not known before; each once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub with: Vec<String>,
}

/// The line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    pub bench: String,
    pub command: String,
    pub runs: usize,
    pub flush_delay_ms: u64,
    /// Cores that this machine lets the process have.
    pub machine_cores: usize,
    pub figures: Vec<Row>,
}

impl Line {
    /// Of the samples of each run; a figure stands where its first sample stood.
    pub fn new(bench: &str, command: String, flush_delay: Duration, runs: &[Vec<Sample>]) -> Line {
        let mut figures: Vec<Row> = Vec::new();
        for sample in runs.iter().flatten() {
            if !figures.iter().any(|row| row.asked.name == sample.figure.name) {
                let same = runs.iter().flatten().filter(|other| other.figure.name == sample.figure.name);
                figures.extend(Row::new(&sample.figure, &same.collect::<Vec<_>>()));
            }
        }
        Line {
            bench: bench.to_owned(),
            command,
            runs: runs.len(),
            flush_delay_ms: flush_delay.as_millis() as u64,
            machine_cores: std::thread::available_parallelism().map_or(1, usize::from),
            figures,
        }
    }

    /// One line for programs.
    pub fn json(&self) -> String {
        serde_json::to_string(self).expect("numbers, texts and lists of them are JSON")
    }

    /// A few lines for people.
    pub fn text(&self) -> String {
        let lines = self.figures.iter().map(|row| {
            let cost = row.cores.map_or(String::new(), |cores| format!("; {cores:.2} cores"));
            let asked = row.asked.must.map_or(String::new(), |must| format!("; must {}", number(must)));
            let Asked { name, unit, .. } = &row.asked;
            let with: String = row.with.iter().map(|with| format!("\n  with {with}")).collect();
            format!("{name}: {} {unit} (worst {}){cost}{asked}{with}", number(row.median), number(row.worst))
        });
        lines.collect::<Vec<_>>().join("\n")
    }
}

impl Row {
    fn new(asked: &Asked, samples: &[&Sample]) -> Option<Row> {
        let values: Vec<f64> = samples.iter().map(|sample| rounded(sample.value)).collect();
        let figure = if asked.rate { Figure::of_rates(values) } else { Figure::of_costs(values) }?;
        let mut with: Vec<String> = Vec::new();
        for said in samples.iter().filter_map(|sample| sample.with.as_ref()) {
            if !with.contains(said) {
                with.push(said.clone());
            }
        }
        let of_cost = |of: fn((f64, f64)) -> f64| -> Option<f64> {
            median(&samples.iter().filter_map(|sample| sample.cost.map(of)).collect::<Vec<_>>()).map(rounded)
        };
        Some(Row {
            reached: asked.must.map(|must| asked.reaches(figure.worst, must)),
            asked: asked.clone(),
            median: figure.median,
            worst: figure.worst,
            values: figure.values,
            cpu_s: of_cost(|(cpu_s, _)| cpu_s),
            cores: of_cost(|(cpu_s, seconds)| cpu_s / seconds.max(f64::MIN_POSITIVE)),
            with,
        })
    }
}

/// With commas between thousands, and decimals only where they say something.
pub fn number(value: f64) -> String {
    let decimals = if value.fract() == 0.0 || value.abs() >= 1_000.0 { 0 } else { 2 };
    let text = format!("{value:.decimals$}");
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let digits = whole.trim_start_matches('-').len();
    let mut out = String::new();
    for (at, c) in whole.chars().enumerate() {
        let behind = whole.len() - at;
        if c.is_ascii_digit() && behind.is_multiple_of(3) && behind < digits {
            out.push(',');
        }
        out.push(c);
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_become_median_worst_and_cost() {
        let run = |rate: f64, ms: f64| {
            vec![
                Asked::rate("hits", "/s").must(100.0).is(rate).costing(Some(3.0), 2.0),
                Asked::cost("p99", "ms").must(20.0).is(ms),
            ]
        };
        let runs = [run(120.0, 5.0), run(90.0, 7.0), run(110.0, 6.0)];
        let line = Line::new("b", "tidemark bench b".into(), Duration::ZERO, &runs);
        let [hits, p99] = &line.figures[..] else { panic!("{line:?}") };
        assert_eq!((hits.median, hits.worst, hits.cores, hits.reached), (110.0, 90.0, Some(1.5), Some(false)));
        assert_eq!((p99.median, p99.worst, p99.cpu_s, p99.reached), (6.0, 7.0, None, Some(true)));
        assert_eq!(serde_json::from_str::<Line>(&line.json()).unwrap(), line);
        assert!(!line.json().contains('\n'));
    }

    #[test]
    fn what_the_runs_were_measured_with_is_said_once() {
        let run = |with: &str| {
            vec![Asked::rate("hits", "/s").is(1.0).with(with.to_owned()), Asked::cost("p99", "ms").is(2.0)]
        };
        let line = Line::new("b", "tidemark bench b".into(), Duration::ZERO, &[run("a"), run("a"), run("b")]);
        assert_eq!(line.figures[0].with, ["a", "b"]);
        assert!(line.text().contains("\n  with a\n  with b\np99"), "{}", line.text());
        assert_eq!(line.json().matches("with").count(), 1);
        assert_eq!(serde_json::from_str::<Line>(&line.json()).unwrap(), line);
    }

    #[test]
    fn numbers_are_grouped() {
        let numbers = [0.0, 1.5, 999.0, 1_000.4, 1_234_567.0, -1_000.0];
        assert_eq!(numbers.map(number), ["0", "1.50", "999", "1,000", "1,234,567", "-1,000"]);
    }
}
