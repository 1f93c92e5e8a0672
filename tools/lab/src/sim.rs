//! `tidemark sim`: runs the deterministic simulator of the core, or explores the rights protocol in its smallest forms, and prints
//! what it found.

use clap::{Args, Subcommand, ValueEnum};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use tidemark::{errln, out, outln};
use tidemark_sim::checkers::sizes;
use tidemark_sim::coverage::Unmet;
use tidemark_sim::engine::Mode;
use tidemark_sim::plan::Only;
use tidemark_sim::runner::{self, SweepPlan, Timed, replay_command};
use tidemark_sim::teeth::Mutation;
use tidemark_sim_model::check::{Checked, check_models};
use tidemark_sim_model::config::{self, Config};
use tidemark_sim_raft::{QUIC, RAFT, is_repeatable};
use tidemark_sim_report::{self as report, Extent, RunLine};

/// The simulator's subcommands.
#[derive(Debug, Subcommand)]
pub enum SimCommand {
    /// Run one seed
    #[command(after_help = "Example:\n  tidemark sim run --seed 7")]
    Run(SeedArgs),
    /// Run many seeds, on two threads
    #[command(after_help = "Examples:\n  tidemark sim sweep --minutes 5\n  tidemark sim sweep --seeds 0..100")]
    Sweep(SweepArgs),
    /// Run one seed, and print everything that happens
    #[command(after_help = "Example:\n  tidemark sim replay --seed 7")]
    Replay(SeedArgs),
    /// Remove from a failing seed the faults, operators' commands and clients that it does not need to fail
    #[command(after_help = "Example:\n  tidemark sim shrink --seed 7")]
    Shrink(ShrinkArgs),
    /// Explore every state of the rights protocol in its smallest forms, on two threads (see docs/model-check.md)
    #[command(after_help = "Example:\n  tidemark sim model --quick")]
    Model(ModelArgs),
    /// Print the costs of the protocol in tables and plots: messages, bytes, sequenced increments, latencies
    #[command(after_help = "Example:\n  tidemark sim report --out docs")]
    Report(ReportArgs),
}

#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Folder for `costs.md`, `costs.json` and `costs/*.svg` [default: the page is printed]
    #[arg(long)]
    out: Option<PathBuf>,
    /// Print one line of JSON for each run
    #[arg(long)]
    json: bool,
    /// Make only a few runs
    #[arg(long, conflicts_with = "from")]
    quick: bool,
    /// Seed of the runs
    #[arg(long, default_value_t = 1, conflicts_with = "from")]
    seed: u64,
    /// File with lines of --json to report; nothing is run
    #[arg(long)]
    from: Option<PathBuf>,
}

/// The basis of the core's machines.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum ModeName {
    /// Modelled logs, for the most seeds in a given time.
    #[default]
    Fast,
    /// Real logs, openraft and redb on virtual time, in smaller runs.
    Raft,
    /// Real logs that speak QUIC to one another over datagrams in memory.
    Quic,
    /// Modelled logs for a virtual hour of the reference layout at a thousand increments a second.
    Hour,
    /// Modelled logs for a virtual month with the constants that ship; memory of processes is measured each day. A run takes minutes.
    Month,
}

impl ModeName {
    fn name(self) -> &'static str {
        match self {
            ModeName::Fast => Mode::FAST.name,
            ModeName::Raft => RAFT.name,
            ModeName::Quic => QUIC.name,
            ModeName::Hour => Mode::HOUR.name,
            ModeName::Month => Mode::MONTH.name,
        }
    }

    fn mode(self) -> Result<Mode, SimError> {
        match self {
            ModeName::Fast => Ok(Mode::FAST),
            ModeName::Raft | ModeName::Quic if !is_repeatable() => Err(SimError::NotRepeatable(self.name())),
            ModeName::Raft => Ok(RAFT),
            ModeName::Quic => Ok(QUIC),
            ModeName::Hour => Ok(Mode::HOUR),
            ModeName::Month => Ok(Mode::MONTH),
        }
    }
}

#[derive(Debug, Args)]
pub struct SeedArgs {
    /// Basis of the state machines
    #[arg(long, value_enum, default_value_t)]
    mode: ModeName,
    /// Seed of the run
    #[arg(long)]
    seed: u64,
    /// Meaning that another build printed with the seed; a build in which the seed has another meaning refuses it
    #[arg(long, value_name = "HEX", value_parser = meaning)]
    meaning: Option<u32>,
    /// Use only these of the seed's faults, by number: `3,7,9`, or `none`
    #[arg(long, value_parser = indices)]
    only_faults: Option<Indices>,
    /// Use only these of the operators' commands, the namespace and the last milestone
    #[arg(long, value_parser = indices)]
    only_admin: Option<Indices>,
    /// Let only these clients count
    #[arg(long, value_parser = indices)]
    only_clients: Option<Indices>,
    /// On real logs, let machines come and go only in these data centres
    #[arg(long, value_parser = indices)]
    only_moves: Option<Indices>,
    /// Run no process of the next version of the wire, whatever the seed says
    #[arg(long)]
    one_version: bool,
    /// Close with one line of JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub struct ShrinkArgs {
    /// Basis of the state machines
    #[arg(long, value_enum, default_value_t)]
    mode: ModeName,
    /// Seed that fails
    #[arg(long)]
    seed: u64,
    /// Close with one line of JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub struct SweepArgs {
    /// Basis of the state machines
    #[arg(long, value_enum, default_value_t)]
    mode: ModeName,
    /// Stop after this number of minutes
    #[arg(long, conflicts_with = "seeds", default_value_t = 1.0)]
    minutes: f64,
    /// First seed of a sweep by time
    #[arg(long, conflicts_with = "seeds", default_value_t = 0)]
    from: u64,
    /// Run the seeds `A..B` (B not included)
    #[arg(long, value_parser = seed_range)]
    seeds: Option<(u64, u64)>,
    /// Close with one line of JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub struct ModelArgs {
    /// Explore only this configuration
    #[arg(long, value_parser = named_config)]
    config: Option<&'static Config>,
    /// Explore only the small configurations that every test run explores
    #[arg(long, conflicts_with = "config")]
    quick: bool,
    /// Close with one line of JSON
    #[arg(long)]
    json: bool,
}

fn named_config(name: &str) -> Result<&'static Config, String> {
    let names: Vec<&str> = config::all().map(|config| config.name).collect();
    config::named(name).ok_or_else(|| format!("there are {}", names.join(", ")))
}

/// Numbers in a list of a plan. A type of its own: to clap, a set would be an argument that may be repeated.
#[derive(Clone, Debug)]
struct Indices(BTreeSet<usize>);

fn indices(text: &str) -> Result<Indices, String> {
    let parse = |part: &str| part.parse::<usize>().map_err(|error| format!("{part:?}: {error}"));
    match text {
        "none" => Ok(Indices(BTreeSet::new())),
        some => some.split(',').map(parse).collect::<Result<_, _>>().map(Indices),
    }
}

fn meaning(text: &str) -> Result<u32, String> {
    u32::from_str_radix(text, 16).map_err(|error| format!("{text:?} is not up to eight hexadecimal digits: {error}"))
}

fn seed_range(text: &str) -> Result<(u64, u64), String> {
    let parse = |part: &str| part.parse::<u64>().map_err(|error| format!("seed {part:?}: {error}"));
    let (first, end) = text.split_once("..").ok_or_else(|| format!("{text:?} is not A..B"))?;
    let first = parse(first)?;
    let end = parse(end)?;
    if first < end { Ok((first, end)) } else { Err(format!("{first}..{end} holds no seed")) }
}

/// Why the simulator's command failed.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// A property did not hold; the details were printed when it was found.
    #[error("{failed} of the {of} failed")]
    Failed { failed: u64, of: &'static str },
    #[error("--only-{list} {number}: seed {seed} has {of}, numbered from 0")]
    Part { list: &'static str, number: usize, seed: u64, of: usize },
    #[error(
        "--mode {0}: this program was built without `--cfg tokio_unstable`, so that a seed would mean another run each time; \
         build it with `cargo build --config sim/repeatable.toml`, without RUSTFLAGS in the environment"
    )]
    NotRepeatable(&'static str),
    #[error(
        "--meaning {meant:08x}: to this build seed {seed} means another run ({means:08x}): replay it with the build that printed it"
    )]
    Meaning { seed: u64, meant: u32, means: u32 },
    #[error("seed {0} does not fail: there is nothing to shrink")]
    Holds(u64),
    #[error("{path}: {source}")]
    File { path: PathBuf, source: std::io::Error },
    #[error("line {number} of {path} is none of a report: {source}")]
    Line { path: PathBuf, number: usize, source: serde_json::Error },
}

const SEEDS: &str = "simulated seeds";
const CONFIGS: &str = "explored configurations";
const FLOORS: &str = "situations to be met";
const EVIDENCE: &str = "measures of evidence";

/// Runs a subcommand.
///
/// # Errors
/// [`SimError`]: a property did not hold, or a file cannot be read or written.
pub fn run(command: SimCommand) -> Result<(), SimError> {
    match command {
        SimCommand::Report(args) => report_costs(&args),
        SimCommand::Run(args) => run_seed(&args, None),
        SimCommand::Replay(args) => run_seed(&args, Some(&mut |line| outln!("{line}"))),
        SimCommand::Shrink(args) => shrink(&args),
        SimCommand::Sweep(args) => sweep(&args),
        SimCommand::Model(args) => model(&args),
    }
}

fn run_seed(args: &SeedArgs, print: Option<&mut dyn FnMut(&str)>) -> Result<(), SimError> {
    let mode = args.mode.mode()?;
    let mut plan = (mode.plan)(args.seed);
    let seed = args.seed;
    let means = plan.meaning();
    if let Some(meant) = args.meaning.filter(|meant| *meant != means) {
        return Err(SimError::Meaning { seed, meant, means });
    }
    let some = |list: &'static str, given: &Option<Indices>, of: usize| match given {
        Some(Indices(some)) => match some.last().filter(|&&last| last >= of) {
            Some(&number) => Err(SimError::Part { list, number, seed: args.seed, of }),
            None => Ok(Some(some.clone())),
        },
        None => Ok(None),
    };
    plan.only = Only {
        faults: some("faults", &args.only_faults, plan.faults.len())?,
        admin: some("admin", &args.only_admin, plan.admin.len())?,
        clients: some("clients", &args.only_clients, plan.clients.len())?,
        moves: some("moves", &args.only_moves, plan.sites.len())?,
        one_version: args.one_version,
    };
    let only = plan.only.clone();
    close(mode, &runner::run_plan_in(mode, plan, Mutation::None, print), &only, args.json)
}

fn shrink(args: &ShrinkArgs) -> Result<(), SimError> {
    let mode = args.mode.mode()?;
    let shrunk = runner::shrink_in(mode, args.seed, Mutation::None).ok_or(SimError::Holds(args.seed))?;
    if args.json {
        outln!("{}", shrunk.json());
    } else {
        outln!("{} of {} parts are needed, found by {} runs:", shrunk.parts.len(), shrunk.of, shrunk.runs);
        shrunk.words().iter().for_each(|line| outln!("  {line}"));
    }
    violations(mode, &shrunk.timed, &shrunk.plan.only);
    success(1, SEEDS)
}

fn close(mode: Mode, timed: &Timed, only: &Only, json: bool) -> Result<(), SimError> {
    violations(mode, timed, only);
    let closing = timed.json();
    if json {
        outln!("{closing}");
    } else {
        let n = |key: &str| closing[key].to_string();
        outln!(
            "seed {}: {} violations, {} events ({}/s), {} increments, {} milestones, {} virtual s, trace {}",
            timed.outcome.seed,
            timed.outcome.findings.violations.len(),
            n("events"),
            n("events_per_s"),
            n("increments"),
            n("milestones"),
            n("virtual_s"),
            closing["trace_hash"].as_str().unwrap_or_default(),
        );
        sizes::table(&timed.outcome.days).iter().for_each(|line| outln!("{line}"));
    }
    success(u64::from(!timed.outcome.findings.violations.is_empty()), SEEDS)
}

fn violations(mode: Mode, timed: &Timed, only: &Only) {
    for violation in &timed.outcome.findings.violations {
        let seed = timed.outcome.seed;
        let at = violation.at.0 as f64 / 1e6;
        errln!("seed {seed} at {at:.6} s: {}: {}", violation.property, violation.what);
        errln!("  replay: {}", replay_command(mode.name, timed, only));
    }
}

fn sweep(args: &SweepArgs) -> Result<(), SimError> {
    let plan = match args.seeds {
        Some((first, end)) => SweepPlan { first, count: end - first, seconds: f64::MAX },
        None => SweepPlan { first: args.from, count: u64::MAX - args.from, seconds: args.minutes * 60.0 },
    };
    let mode = args.mode.mode()?;
    let report = |timed: &Timed| violations(mode, timed, &Only::default());
    let sweep = runner::sweep_in(mode, plan, Mutation::None, &report);
    if args.json {
        outln!("{}", sweep.json());
    } else {
        outln!(
            "{} seeds, {} failures, {} events/s per core",
            sweep.seeds,
            sweep.failures,
            sweep.json()["events_per_s"]
        );
        sweep.coverage.counts().for_each(|(what, times)| outln!("{times:>12} {what}"));
    }
    let unmet = sweep.unmet();
    for Unmet { situation, met, least } in &unmet {
        errln!("{situation}: met {met} times by {} seeds, {least} expected", sweep.seeds);
    }
    let thin = sweep.thin();
    thin.iter().for_each(|words| errln!("{words}"));
    success(sweep.failures, SEEDS)?;
    success(unmet.len() as u64, FLOORS)?;
    success(thin.len() as u64, EVIDENCE)
}

fn model(args: &ModelArgs) -> Result<(), SimError> {
    let wanted = |config: &&'static Config| match args.config {
        Some(only) => config.name == only.name,
        None => config.quick || !args.quick,
    };
    let configs: Vec<&'static Config> = config::all().filter(wanted).collect();
    let checked = check_models(&configs, &|checked| {
        errln!("{}: {} states", checked.config.name, checked.explored.states);
    });
    if args.json {
        let lines: Vec<_> = checked.iter().map(Checked::json).collect();
        outln!("{}", serde_json::json!({ "configs": lines }));
    } else {
        outln!("{:16} {:>10} {:>12} {:>6} {:>8}", "configuration", "states", "transitions", "depth", "seconds");
        checked.iter().for_each(print_checked);
    }
    success(checked.iter().filter(|checked| checked.explored.violation.is_some()).count() as u64, CONFIGS)
}

fn print_checked(checked: &Checked) {
    let explored = &checked.explored;
    outln!(
        "{:16} {:>10} {:>12} {:>6} {:>8.1}  {}",
        checked.config.name,
        explored.states,
        explored.transitions,
        explored.depth,
        checked.seconds,
        checked.config.about
    );
    if let Some(violation) = &explored.violation {
        outln!("  {violation}");
        explored.trace.iter().enumerate().for_each(|(step, words)| outln!("  {:>3}. {words}", step + 1));
    }
}

fn success(failed: u64, of: &'static str) -> Result<(), SimError> {
    if failed == 0 { Ok(()) } else { Err(SimError::Failed { failed, of }) }
}

// ---- costs ----

fn report_costs(args: &ReportArgs) -> Result<(), SimError> {
    let lines = match &args.from {
        Some(path) => read_lines(path)?,
        None => measure(args),
    };
    let json = report::to_json(&lines);
    let files = report::files(&lines, &json);
    if args.json {
        out!("{json}");
    }
    match &args.out {
        Some(folder) => files.iter().try_for_each(|file| write(&folder.join(&file.path), &file.text)),
        None if args.json => Ok(()),
        None => {
            files.iter().filter(|file| file.path == "costs.md").for_each(|page| out!("{}", page.text));
            Ok(())
        }
    }
}

fn measure(args: &ReportArgs) -> Vec<RunLine> {
    let extent = if args.quick { Extent::Quick } else { Extent::Whole };
    let mut progress = |line: &RunLine| {
        errln!(
            "{:?}: {} data centres, {}/s, milestone {}",
            line.section,
            line.centres,
            line.rate_per_s,
            line.milestone
        );
    };
    report::measure(extent, args.seed, &mut progress)
}

fn read_lines(path: &Path) -> Result<Vec<RunLine>, SimError> {
    let text = std::fs::read_to_string(path).map_err(|source| SimError::File { path: path.to_owned(), source })?;
    report::from_json(&text).map_err(|(number, source)| SimError::Line { path: path.to_owned(), number, source })
}

fn write(path: &Path, text: &str) -> Result<(), SimError> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let written = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(path, text));
    written.map_err(|source| SimError::File { path: path.to_owned(), source })
}
