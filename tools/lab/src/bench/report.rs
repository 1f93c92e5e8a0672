//! `docs/figures.md`: a table made of the lines that benches have printed.

use std::path::{Path, PathBuf};

use super::BenchError;
use super::line::{Line, Row, number};

/// The lines of these files, in their order. Other lines of JSON in them are refused.
///
/// # Errors
/// A file that cannot be read, or a line that is none of a bench.
pub fn read(files: &[PathBuf]) -> Result<Vec<Line>, BenchError> {
    let mut lines = Vec::new();
    for path in files {
        let text = std::fs::read_to_string(path).map_err(BenchError::io(path.display().to_string()))?;
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            lines.push(parse(path, line)?);
        }
    }
    Ok(lines)
}

fn parse(path: &Path, line: &str) -> Result<Line, BenchError> {
    serde_json::from_str(line).map_err(|error| BenchError::Line { path: path.to_owned(), reason: error.to_string() })
}

/// The table.
pub fn table(lines: &[Line]) -> String {
    let mut out = vec![
        "| figure | must | aim | median | worst | cores | reached |".to_owned(),
        "|---|---|---|---|---|---|---|".to_owned(),
    ];
    for line in lines {
        let delay = match line.flush_delay_ms {
            0 => String::new(),
            ms => format!("; {ms} ms added to every flush"),
        };
        let cells = "| | | | | | |";
        out.push(format!("| **{}**: `{}`, {} runs{delay} {cells}", line.bench, line.command, line.runs));
        out.extend(line.figures.iter().map(row));
    }
    out.join("\n") + "\n"
}

fn row(row: &Row) -> String {
    let asked = &row.asked;
    let with_unit = |value: f64| match asked.unit.as_str() {
        unit if unit.starts_with('/') => format!("{}{unit}", number(value)),
        unit => format!("{} {unit}", number(value)),
    };
    let optional = |value: Option<f64>| value.map_or(String::new(), with_unit);
    let cores = row.cores.map_or(String::new(), number);
    let reached = match row.reached {
        None => "",
        Some(true) => "yes",
        Some(false) => "**no**",
    };
    format!(
        "| {} | {} | {} | {} | {} | {cores} | {reached} |",
        asked.name,
        optional(asked.must),
        optional(asked.aim),
        with_unit(row.median),
        with_unit(row.worst)
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::line::Asked;
    use super::*;

    #[test]
    fn a_line_becomes_rows() {
        let runs = [vec![Asked::rate("hits", "/s").must(100.0).is(90.0).costing(Some(1.0), 2.0)]];
        let line = Line::new("b", "tidemark bench b".into(), Duration::from_millis(5), &runs);
        let table = table(&[line]);
        assert!(
            table.contains("| **b**: `tidemark bench b`, 1 runs; 5 ms added to every flush | | | | | | |"),
            "{table}"
        );
        assert!(table.contains("| hits | 100/s |  | 90/s | 90/s | 0.50 | **no** |"), "{table}");
        assert!(parse(Path::new("x"), "{}").is_err());
    }
}
