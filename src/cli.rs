//! The command line: one variant per subcommand, each handed on to the module that does the work. Experiments are in another program,
//! `tidemark-lab`, which is started where it stands beside this one.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory, Parser, Subcommand};

use crate::commands::{
    add, aggregator, audit, award, awards, backup, certs, claims, completions, counter, dc, declare_lost, export, get,
    graph, ledger, load, log_level, man, milestones, namespaces, node, restore, series, slots, status, verify, watch,
    webhooks,
};
use crate::serve::{self, ServeOptions};
use crate::{Outcome, VERSION, lab, plan};

/// Count anything, in every region, and name exactly the billionth increment.
#[derive(Debug, Parser)]
#[command(name = "tidemark", version = VERSION)]
pub struct Cli {
    #[command(subcommand)]
    called: Called,
}

#[derive(Debug, Subcommand)]
enum Called {
    #[command(flatten)]
    Command(Box<Command>),
    /// Run the demo of 15 data centres (the program tidemark-demo)
    #[command(disable_help_flag = true)]
    Demo(HandedOver),
    /// Measure the promised figures on this machine (a command of tidemark-lab)
    #[command(disable_help_flag = true)]
    Bench(HandedOver),
    /// Run a cluster under load and faults (a command of tidemark-lab)
    #[command(disable_help_flag = true)]
    Soak(HandedOver),
    /// Run the deterministic simulator of the core (a command of tidemark-lab)
    #[command(disable_help_flag = true)]
    Sim(HandedOver),
}

/// Arguments that another program parses.
#[derive(Debug, Args)]
struct HandedOver {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    arguments: Vec<OsString>,
}

/// The commands of the product.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a node, which holds valves and makes increments durable
    #[command(after_help = "Example:\n  tidemark node --config node.toml")]
    Node(node::NodeArgs),
    /// Run an aggregator, which answers reads and is a member of the ledger
    #[command(after_help = "Example:\n  tidemark aggregator --config aggregator.toml")]
    Aggregator(aggregator::AggregatorArgs),
    /// Add to a counter
    #[command(
        after_help = "Examples:\n  tidemark add search/queries\n  tidemark add search/queries 10k --id order-4711"
    )]
    Add(add::Add),
    /// Print the values of counters
    #[command(after_help = "Example:\n  tidemark get search/queries default/visits")]
    Get(get::Get),
    /// Print the counts of one counter in each step of an interval
    #[command(after_help = "Example:\n  tidemark series search/queries --every 1h --last 1d")]
    Series(series::Series),
    /// Print the counts of counters in an interval
    #[command(
        after_help = "Examples:\n  tidemark window search/queries --last 7d --compare previous\n  tidemark window search/queries --unit month --back 1 --zone Europe/Berlin"
    )]
    Window(series::Windows),
    /// List the counters below a prefix in the order of their keys
    #[command(after_help = "Example:\n  tidemark range search/ --limit 20")]
    Range(series::Range),
    /// Rank the counters below a prefix by their counts in an interval
    #[command(after_help = "Example:\n  tidemark top search/ -k 5 --last 1d")]
    Top(series::Top),
    /// Show or change how a namespace keeps time series
    Namespaces(namespaces::Namespaces),
    /// Count the rows of files, each exactly once, also when a load is interrupted and run again
    Load(load::LoadArgs),
    /// Write the counts of counters to a file that `load` reads
    #[command(after_help = "Example:\n  tidemark export search/ --out search.csv.zst")]
    Export(export::ExportArgs),
    /// Compare the reads of a counter with the logs of the nodes, component by component
    #[command(
        after_help = "Examples:\n  tidemark audit search/queries\n  tidemark audit search/ --prefix --and http://127.0.0.1:7172 --quiet"
    )]
    Audit(audit::AuditArgs),
    /// Show and change edges between counters, along which counts flow into totals
    Graph(graph::GraphArgs),
    /// Print totals and awards as they happen
    #[command(after_help = "Examples:\n  tidemark watch search/queries\n  tidemark watch --after 0.0")]
    Watch(watch::Watch),
    /// Show, reset, remove or expire a counter
    Counter(counter::Counter),
    /// Define, list and disarm milestones
    Milestones(milestones::Milestones),
    /// Wait until a milestone is awarded
    #[command(
        after_help = "Examples:\n  tidemark award search/queries 1M\n  tidemark award search/queries 1M --dry-run"
    )]
    Award(award::Award),
    /// List awards and fetch their certificates
    Awards(awards::Awards),
    /// Show or set how the winning sessions claim their awards
    Claims(claims::Claims),
    /// Give up a group with lost disks
    ///
    /// Increments that only those disks held are lost. Without --yes, the command prints the possible loss and changes nothing.
    #[command(after_help = "Examples:\n  tidemark declare-lost usa-0/0\n  tidemark declare-lost usa-0/0#5 --yes")]
    DeclareLost(declare_lost::DeclareLost),
    /// List the data centres, or give up a data centre that never returns
    Dc(dc::Dc),
    /// Take images of running data centres, and check that images are complete
    Backup(backup::Backup),
    /// Restore a data centre with lost disks, or a whole cluster, from images
    Restore(restore::Restore),
    /// Show and change the members of the ledger
    Ledger(ledger::LedgerArgs),
    /// Show, move and split the shards of a view (slots)
    Slots(slots::SlotsArgs),
    /// Show and control the deliveries of awards to webhooks
    Webhooks(webhooks::Webhooks),
    /// Print the state of a process
    #[command(after_help = "Examples:\n  tidemark status\n  tidemark status --ready --server http://127.0.0.1:7171")]
    Status(status::Status),
    /// Show or change the log level of a running process
    ///
    /// A change lasts until the process ends. `--log-level` sets the level of its next start.
    #[command(
        after_help = "Examples:\n  tidemark log-level\n  tidemark log-level debug\n  tidemark log-level warn,tidemark_node=debug"
    )]
    LogLevel(log_level::LogLevelArgs),
    /// Check the certificate of an award offline, against the cluster's CA
    #[command(after_help = "Example:\n  tidemark verify award.json --ca ca.pem --voters usa-0,asia-0,europe-0")]
    Verify(verify::Verify),
    /// Create a cluster's CA, and issue credentials to its processes
    Certs(certs::Certs),
    Serve(ServeOptions),
    /// Print a script that completes commands and options in a shell
    Completions(completions::Completions),
    /// Write a manual page for each command
    Man(man::Man),
    /// Print capacity, voters, latencies and prices of a planned cluster
    #[command(after_help = "Example:\n  tidemark plan deploy/plan.toml")]
    Plan {
        /// TOML file with the load of the cluster; deploy/plan.toml is a sample
        file: PathBuf,
        /// Print one line of JSON instead of a table
        #[arg(long)]
        json: bool,
    },
}

impl Cli {
    /// Runs the subcommand.
    ///
    /// # Errors
    /// The subcommand's own error; its text names what was wrong.
    pub fn run(self) -> Outcome {
        match self.called {
            Called::Command(command) => command.run(),
            Called::Demo(given) => lab::demo(&given.arguments),
            Called::Bench(given) => lab::run("bench", &given.arguments),
            Called::Soak(given) => lab::run("soak", &given.arguments),
            Called::Sim(given) => lab::run("sim", &given.arguments),
        }
    }
}

impl Command {
    /// Runs it.
    ///
    /// # Errors
    /// The subcommand's own error; its text names what was wrong.
    pub fn run(self) -> Outcome {
        match self {
            Command::Node(args) => node::run(args),
            Command::Aggregator(args) => aggregator::run(args),
            Command::Add(args) => add::run(args),
            Command::Get(args) => get::run(args),
            Command::Series(args) => series::series(args),
            Command::Window(args) => series::windows(args),
            Command::Range(args) => series::range(args),
            Command::Top(args) => series::top(args),
            Command::Namespaces(args) => namespaces::run(args),
            Command::Load(args) => load::run(args),
            Command::Export(args) => export::run(args),
            Command::Audit(args) => audit::run(args),
            Command::Graph(args) => graph::run(args),
            Command::Watch(args) => watch::run(args),
            Command::Counter(args) => counter::run(args),
            Command::Milestones(args) => milestones::run(args),
            Command::Award(args) => award::run(args),
            Command::Awards(args) => awards::run(args),
            Command::Claims(args) => claims::run(args),
            Command::DeclareLost(args) => declare_lost::run(args),
            Command::Dc(args) => dc::run(args),
            Command::Backup(args) => backup::run(args),
            Command::Restore(args) => restore::run(args),
            Command::Ledger(args) => ledger::run(args),
            Command::Slots(args) => slots::run(args),
            Command::Webhooks(args) => webhooks::run(args),
            Command::Status(args) => status::run(args),
            Command::LogLevel(args) => log_level::run(args),
            Command::Verify(args) => verify::run(args),
            Command::Certs(args) => certs::run(args),
            Command::Completions(args) => completions::run(&args, Cli::command()),
            Command::Man(args) => man::run(&args, Cli::command()),
            Command::Serve(options) => {
                serve::run(&options)?;
                Ok(ExitCode::SUCCESS)
            }
            Command::Plan { file, json } => {
                outln!("{}", plan::run(&file, json)?.trim_end());
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}
