//! The live table: one line per data centre, redrawn in place once a second. A pure function of what is known.

use std::fmt::Write;

use tidemark_server::http::Mode;

/// To the top left, and clear to the end of the screen after drawing: less flicker than clearing first.
const HOME: &str = "\x1b[H";
const CLEAR_LINE: &str = "\x1b[K\n";
const CLEAR_REST: &str = "\x1b[J";
/// Once, before the first drawing.
pub const CLEAR_SCREEN: &str = "\x1b[2J";
/// Awards shown, newest first.
const AWARDS_SHOWN: usize = 5;

/// A data centre at present.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub name: String,
    pub rate_per_s: f64,
    /// Increments that it may place without asking.
    pub rights: u64,
    pub mode: Mode,
    /// Durable and not yet placed.
    pub pending: u64,
    /// Increments that are durable somewhere and not yet in its view.
    pub behind: u64,
    /// The same as time, at the cluster's rate.
    pub behind_ms: f64,
}

/// Everything that is drawn.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Picture {
    pub counter: String,
    pub page: String,
    pub elapsed_s: f64,
    pub total: u64,
    pub rate_per_s: f64,
    pub ack_p50_ms: f64,
    pub ack_p99_ms: f64,
    pub cores: f64,
    pub rss_mib: f64,
    pub next_milestone: Option<u64>,
    pub rows: Vec<Row>,
    /// (milestone, ordinal, data centre), oldest first.
    pub awards: Vec<(u64, u64, String)>,
}

/// The picture as text for a terminal, from its top left corner.
pub fn render(picture: &Picture) -> String {
    let mut lines = head(picture);
    lines.extend(picture.rows.iter().map(row));
    lines.push(String::new());
    lines.extend(awards(picture));
    lines.push(format!("{}  (ctrl-C ends)", picture.page));
    let mut text = HOME.to_owned();
    for line in lines {
        text.push_str(&line);
        text.push_str(CLEAR_LINE);
    }
    text + CLEAR_REST
}

fn head(picture: &Picture) -> Vec<String> {
    let next = picture.next_milestone.map_or("none".to_owned(), grouped);
    vec![
        format!("{}  {}   {:.0} s", picture.counter, grouped(picture.total), picture.elapsed_s),
        format!(
            "{}/s   durable p50 {:.0} ms, p99 {:.0} ms   {:.2} cores, {:.0} MiB   next milestone {next}",
            grouped(picture.rate_per_s as u64),
            picture.ack_p50_ms,
            picture.ack_p99_ms,
            picture.cores,
            picture.rss_mib,
        ),
        String::new(),
        format!(
            "{:<12}{:>10}{:>14}  {:<10}{:>10}{:>12}{:>9}",
            "", "per s", "rights", "mode", "pending", "behind", "lag ms"
        ),
    ]
}

fn row(row: &Row) -> String {
    let Row { name, rate_per_s, rights, mode, pending, behind, behind_ms } = row;
    format!(
        "{name:<12}{:>10}{:>14}  {:<10}{:>10}{:>12}{behind_ms:>9.0}",
        grouped(*rate_per_s as u64),
        grouped(*rights),
        mode.text(),
        grouped(*pending),
        grouped(*behind),
    )
}

fn awards(picture: &Picture) -> Vec<String> {
    let shown = picture.awards.iter().rev().take(AWARDS_SHOWN);
    let line = |(at, ordinal, dc): &(u64, u64, String)| {
        format!("milestone {}: increment number {} at {dc}", grouped(*at), grouped(*ordinal))
    };
    let mut lines: Vec<String> = shown.map(line).collect();
    if picture.awards.len() > AWARDS_SHOWN {
        lines.push(format!("… {} awards in all", picture.awards.len()));
    }
    lines
}

/// Digits in groups of three.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        let _ = write!(text, "{digit}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture() -> Picture {
        let row = |name: &str, mode| Row {
            name: name.into(),
            rate_per_s: 3_500.4,
            rights: 7_000,
            mode,
            pending: 12,
            behind: 1_050,
            behind_ms: 15.0,
        };
        Picture {
            counter: "search/queries".into(),
            page: "http://127.0.0.1:8080/".into(),
            total: 1_234_567,
            next_milestone: Some(2_000_000),
            rows: vec![row("usa-0", Mode::Rights), row("asia-0", Mode::Cut)],
            awards: (1..=7).map(|n| (n * 100_000, n * 100_000, "sa-0".to_owned())).collect(),
            ..Picture::default()
        }
    }

    #[test]
    fn numbers_are_grouped() {
        let of = [0, 12, 999, 1_000, 1_234_567];
        assert_eq!(of.map(grouped), ["0", "12", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn every_data_centre_has_a_line_as_wide_as_the_head() {
        let text = render(&picture());
        let lines: Vec<&str> = text.lines().collect();
        let head = lines.iter().position(|line| line.contains("rights") && line.contains("behind")).unwrap();
        let width = |line: &str| line.trim_end_matches("\x1b[K").chars().count();
        assert!(lines[head + 1].starts_with("usa-0") && lines[head + 2].contains("cut off"), "{text}");
        assert_eq!(width(lines[head]), width(lines[head + 1]));
        assert!(text.starts_with(HOME) && text.ends_with(CLEAR_REST));
    }

    #[test]
    fn only_the_newest_awards_are_shown() {
        let text = render(&picture());
        assert!(text.contains("milestone 700,000") && !text.contains("milestone 200,000"), "{text}");
        assert!(text.contains("7 awards in all"));
    }

    #[test]
    fn the_width_fits_a_terminal() {
        let text = render(&picture());
        let longest = text.lines().map(|line| line.trim_end_matches("\x1b[K").chars().count()).max().unwrap();
        assert!(longest <= 100, "{longest}");
    }
}
