//! The progress of a load or an export: a bar on a terminal, else a line now and then.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Between two lines where stderr is no terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(5);
/// How often a bar is drawn, a second.
const DRAWN_PER_S: u8 = 5;

pub struct Meter {
    bar: ProgressBar,
    is_terminal: bool,
    begun: Instant,
    said: Instant,
    /// Rows that were done before.
    first: u64,
    label: String,
}

impl Meter {
    /// A meter for this number of rows, of which the first are done.
    pub fn new(label: &str, rows: u64, first: u64) -> Meter {
        let template = "{msg} {wide_bar} {pos}/{len} rows, {per_sec}, {eta} left";
        let meter = Meter::with_template(label, Some(rows), first, template);
        meter.bar.set_message(label.to_owned());
        meter
    }

    /// A meter for rows of an unknown number.
    pub fn endless(label: &str, first: u64) -> Meter {
        Meter::with_template(label, None, first, "{spinner} {wide_msg}")
    }

    fn with_template(label: &str, rows: Option<u64>, first: u64, template: &str) -> Meter {
        let is_terminal = std::io::stderr().is_terminal();
        let target =
            if is_terminal { ProgressDrawTarget::stderr_with_hz(DRAWN_PER_S) } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(rows, target).with_position(first);
        bar.set_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.reset_eta();
        let now = Instant::now();
        Meter { bar, is_terminal, begun: now, said: now, first, label: label.to_owned() }
    }

    pub fn set(&mut self, done: u64) {
        self.bar.set_position(done);
        if self.is_line_due() {
            let rate = self.rate(done);
            let rows = self.bar.length().unwrap_or(0);
            let left_s = (rows.saturating_sub(done)) as f64 / rate.max(1.0);
            errln!("{}: {done} of {rows} rows, {rate:.0} a second, {left_s:.0} s left", self.label);
        }
    }

    /// Of an endless one: how many rows are done, and what more there is to say.
    pub fn tell(&mut self, done: u64, more: &str) {
        let line = format!("{}: {done} rows, {:.0} a second, {more}", self.label, self.rate(done));
        if self.is_line_due() {
            errln!("{line}");
        }
        self.bar.set_message(line);
        self.bar.set_position(done);
    }

    fn is_line_due(&mut self) -> bool {
        let is_due = !self.is_terminal && self.said.elapsed() >= LINE_INTERVAL;
        if is_due {
            self.said = Instant::now();
        }
        is_due
    }

    /// Rows a second since the beginning.
    pub fn rate(&self, done: u64) -> f64 {
        done.saturating_sub(self.first) as f64 / self.begun.elapsed().as_secs_f64().max(1e-3)
    }

    /// Says a line above the bar.
    pub fn say(&self, line: &str) {
        self.bar.suspend(|| errln!("{line}"));
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
