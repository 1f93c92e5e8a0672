//! The options of the demo, and their limits.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;
use tidemark_proto::limits::MILESTONE_MAX;

use super::arrivals::Pattern;
use tidemark::layout::{Layout, LayoutError};

/// Front ends per data centre; as many as lanes, so that every valve is used.
pub const CLIENTS_PER_DC: usize = 10;
const RATE_PER_S_MAX: f64 = 10e6;
const JITTER_MS_MAX: f64 = 1_000.0;
const COLD_CELLS_MAX: usize = 10_000_000;
/// Cold cells are all touched once in this time when a run has no end.
const COLD_PERIOD: Duration = Duration::from_secs(60);

/// Run the reference layout of 15 data centres on this machine, with measured distances and a real query log
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:\n  tidemark demo\n  tidemark demo --milestone 1000000 --exit-after-award --headless")]
pub struct DemoOptions {
    /// Increments a second of the whole cluster: 40, 30, 20 and 10 % in the USA, Europe, Asia and South America
    #[arg(long, default_value_t = 70_000.0)]
    pub rate: f64,
    /// Name the increment that reaches this count; may be repeated [default: the next power of ten that takes a while]
    #[arg(long)]
    pub milestone: Vec<u64>,
    /// Name every increment that reaches a multiple of this
    #[arg(long)]
    pub every: Option<u64>,
    /// Begin from this count: added as increments of a larger weight by a client named `baseline` before anything is armed
    #[arg(long, default_value_t = 0)]
    pub start_at: u64,
    /// Stop after this number of seconds [default: at ctrl-C]
    #[arg(long = "for", value_name = "SECONDS")]
    pub for_s: Option<f64>,
    /// Stop after the first award
    #[arg(long)]
    pub exit_after_award: bool,
    /// Print no live table
    #[arg(long)]
    pub headless: bool,
    /// Directory of the data, from which the next run goes on [default: a temporary folder]
    #[arg(long)]
    pub data_dir: Option<PathBuf>,
    /// Print one closing line of JSON, and no live table
    #[arg(long)]
    pub json: bool,
    /// Add up to this number of milliseconds to every way between data centres
    #[arg(long, default_value_t = 0.0, value_name = "MS")]
    pub jitter: f64,
    /// Lose this share of the datagrams between data centres, 0 to 1
    #[arg(long, default_value_t = 0.0, value_name = "SHARE")]
    pub loss: f64,
    /// Let rates swing by half, each data centre in its own phase
    #[arg(long)]
    pub swing: bool,
    /// Also increment this many other counters, each once during `--for` (or per minute)
    #[arg(long, default_value_t = 0, value_name = "CELLS")]
    pub cold_cells: usize,
    /// Use the simple mode: grant no rights, and let the ledger number every increment
    #[arg(long)]
    pub sequence_all: bool,
    /// Cut a data centre off from all others; FROM and TO are seconds after the beginning; may be repeated
    #[arg(long, value_name = "DC:FROM:TO")]
    pub cut: Vec<Cut>,
    /// Names of the data centres of the reference layout to run [default: all]
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub dcs: Vec<String>,
    /// Gaps between increments
    #[arg(long, value_enum, default_value_t = Pattern::Poisson)]
    pub arrivals: Pattern,
    /// Port of the page on this machine; 0 takes a free one
    #[arg(long, default_value_t = 0)]
    pub port: u16,
    /// Add this number of milliseconds to every flush of a disk
    #[arg(long, default_value_t = 0.0, value_name = "MS")]
    pub flush_delay_ms: f64,
}

/// A data centre cut off for a time, seconds after the load began.
#[derive(Clone, Debug, PartialEq)]
pub struct Cut {
    pub dc: String,
    pub from_s: f64,
    pub to_s: f64,
}

/// Options that cannot be. Nothing was started.
#[derive(Debug, Error)]
pub enum OptionsError {
    #[error("{name} is {value}: {min} to {max} allowed")]
    Range { name: &'static str, value: f64, min: f64, max: f64 },
    #[error("--milestone {at}: above --start-at ({start_at}) and at most {MILESTONE_MAX} allowed")]
    Milestone { at: u64, start_at: u64 },
    #[error("--every {every}: 1 to {MILESTONE_MAX} allowed")]
    Every { every: u64 },
    #[error("--milestone {0} is given twice")]
    DuplicateMilestone(u64),
    #[error("--cut {dc}: there is no such data centre")]
    CutDc { dc: String },
    #[error("--exit-after-award needs a milestone")]
    NoMilestone,
    #[error(transparent)]
    Layout(#[from] LayoutError),
}

impl FromStr for Cut {
    type Err = String;

    fn from_str(text: &str) -> Result<Cut, String> {
        let refused = || format!("{text:?} is not DC:FROM:TO, with seconds as in asia-0:10:20 and FROM before TO");
        let mut parts = text.split(':');
        let (Some(dc), Some(from), Some(to), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
            return Err(refused());
        };
        let seconds = |text: &str| text.parse::<f64>().ok().filter(|s| (0.0..=1e6).contains(s));
        match (seconds(from), seconds(to)) {
            (Some(from_s), Some(to_s)) if from_s < to_s => Ok(Cut { dc: dc.to_owned(), from_s, to_s }),
            _ => Err(refused()),
        }
    }
}

impl DemoOptions {
    /// The layout to run, after everything else has been checked.
    pub fn check(&self) -> Result<Layout, OptionsError> {
        within("--rate", self.rate, 0.0, RATE_PER_S_MAX)?;
        within("--jitter", self.jitter, 0.0, JITTER_MS_MAX)?;
        within("--loss", self.loss, 0.0, 1.0)?;
        within("--flush-delay-ms", self.flush_delay_ms, 0.0, JITTER_MS_MAX)?;
        within("--cold-cells", self.cold_cells as f64, 0.0, COLD_CELLS_MAX as f64)?;
        within("--start-at", self.start_at as f64, 0.0, (MILESTONE_MAX - 1) as f64)?;
        if let Some(for_s) = self.for_s {
            within("--for", for_s, 0.1, 1e7)?;
        }
        self.check_milestones()?;
        let layout = if self.dcs.is_empty() {
            Layout::reference()?
        } else {
            Layout::part(&self.dcs.iter().map(String::as_str).collect::<Vec<_>>())?
        };
        match self.cut.iter().find(|cut| layout.index_of(&cut.dc).is_none()) {
            Some(cut) => Err(OptionsError::CutDc { dc: cut.dc.clone() }),
            None => Ok(layout),
        }
    }

    fn check_milestones(&self) -> Result<(), OptionsError> {
        let start_at = self.start_at;
        for (index, &at) in self.milestone.iter().enumerate() {
            if at <= start_at || at > MILESTONE_MAX {
                return Err(OptionsError::Milestone { at, start_at });
            }
            if self.milestone[..index].contains(&at) {
                return Err(OptionsError::DuplicateMilestone(at));
            }
        }
        match self.every {
            Some(every) if every == 0 || every > MILESTONE_MAX => Err(OptionsError::Every { every }),
            _ => Ok(()),
        }
    }

    /// The milestones to define: those given, or else the next power of ten that takes at least some seconds to reach.
    pub fn milestones(&self) -> Vec<u64> {
        match (&self.milestone[..], self.every) {
            ([], None) => vec![next_power_of_ten(self.start_at, (self.rate * DEFAULT_REACH_S) as u64)],
            (given, _) => given.to_vec(),
        }
    }

    /// The time in which every cold cell is touched once.
    pub fn cold_period(&self) -> Duration {
        self.for_s.map_or(COLD_PERIOD, Duration::from_secs_f64)
    }

    /// Whether standard output is a table that changes.
    pub fn is_live(&self) -> bool {
        !self.headless && !self.json
    }
}

/// A milestone by default is at least this far away, in seconds of the rate.
const DEFAULT_REACH_S: f64 = 5.0;

fn next_power_of_ten(above: u64, reach: u64) -> u64 {
    let wanted = above.saturating_add(reach.max(1));
    std::iter::successors(Some(10_u64), |power| power.checked_mul(10))
        .find(|&power| power >= wanted)
        .unwrap_or(MILESTONE_MAX)
        .min(MILESTONE_MAX)
}

fn within(name: &'static str, value: f64, min: f64, max: f64) -> Result<(), OptionsError> {
    if (min..=max).contains(&value) { Ok(()) } else { Err(OptionsError::Range { name, value, min, max }) }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        demo: DemoOptions,
    }

    fn parse(line: &str) -> DemoOptions {
        let words = std::iter::once("demo").chain(line.split_whitespace());
        Command::try_parse_from(words).unwrap_or_else(|error| panic!("{error}")).demo
    }

    fn error_of(line: &str) -> String {
        parse(line).check().unwrap_err().to_string()
    }

    #[test]
    fn without_options_it_is_the_reference_layout_and_a_million() {
        let options = parse("");
        assert_eq!(options.check().unwrap().dcs.len(), 15);
        assert_eq!((options.milestones(), options.rate, options.is_live()), (vec![1_000_000], 70_000.0, true));
        assert!(!parse("--json").is_live());
    }

    #[test]
    fn a_start_below_a_billion_leads_to_the_billion() {
        assert_eq!(parse("--start-at 999000000").milestones(), [1_000_000_000]);
        assert_eq!(parse("--start-at 999000000 --every 100000").milestones(), [0; 0]);
        assert_eq!(parse("--milestone 5 --milestone 7").milestones(), [5, 7]);
        assert_eq!(next_power_of_ten(0, 0), 10);
        assert_eq!(next_power_of_ten(u64::MAX, 1), MILESTONE_MAX);
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_value_and_the_limit() {
        assert_eq!(error_of("--rate=-1"), "--rate is -1: 0 to 10000000 allowed");
        assert_eq!(error_of("--loss 1.5"), "--loss is 1.5: 0 to 1 allowed");
        assert!(error_of("--milestone 10 --start-at 10").starts_with("--milestone 10: above --start-at (10)"));
        assert_eq!(error_of("--milestone 10 --milestone 10"), "--milestone 10 is given twice");
        assert!(error_of("--every 0").starts_with("--every 0: 1 to "));
        assert_eq!(error_of("--cut mars-0:1:2"), "--cut mars-0: there is no such data centre");
        assert!(error_of("--dcs usa-1,mars-0").contains("mars-0"));
        assert!(error_of("--dcs usa-1 --cut asia-0:1:2").contains("asia-0"));
    }

    #[test]
    fn a_cut_has_a_beginning_before_its_end() {
        let cut = Cut { dc: "asia-0".into(), from_s: 10.0, to_s: 20.5 };
        assert_eq!("asia-0:10:20.5".parse(), Ok(cut));
        for text in ["asia-0", "asia-0:1", "asia-0:2:1", "asia-0:x:1", "asia-0:1:2:3", "asia-0:1:NaN", ""] {
            assert!(text.parse::<Cut>().is_err(), "{text}");
        }
    }
}
