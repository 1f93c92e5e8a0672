//! The command line: one variant per subcommand, each handed on to the module that does the work. Experiments are in another program,
//! `tidemark-lab`, which is started where it stands beside this one.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory, Parser, Subcommand};

use crate::commands::{
    add, aggregator, audit, award, awards, backup, certs, claims, completions, counter, dc, declare_lost, export, get,
    graph, ledger, load, man, milestones, namespaces, node, restore, series, slots, status, verify, watch, webhooks,
};
use crate::serve::{self, ServeOptions};
use crate::{Outcome, VERSION, lab, plan};

/// Count anything, in every region, and know exactly who was the billionth.
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
    /// Run the demo of 15 data centres (a command of tidemark-lab)
    #[command(disable_help_flag = true)]
    Demo(HandedOver),
    /// Measure what is promised on this machine (a command of tidemark-lab)
    #[command(disable_help_flag = true)]
    Bench(HandedOver),
    /// Run a cluster under load and faults (a command of tidemark-lab)
    #[command(disable_help_flag = true)]
    Soak(HandedOver),
    /// Run the deterministic simulator of the core (a command of tidemark-lab)
    #[command(disable_help_flag = true)]
    Sim(HandedOver),
}

/// What another program parses.
#[derive(Debug, Args)]
struct HandedOver {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    arguments: Vec<OsString>,
}

/// The commands of the product.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Runs a node: it holds valves and makes increments durable
    Node(node::NodeArgs),
    /// Runs an aggregator: it shows the view and is a member of the ledger
    Aggregator(aggregator::AggregatorArgs),
    /// Counts
    Add(add::Add),
    /// Values of counters
    Get(get::Get),
    /// What a counter counted in each step of an interval
    Series(series::Series),
    /// What counters counted in an interval
    Window(series::Windows),
    /// Counters in the order of their keys, below a prefix
    Range(series::Range),
    /// The counters below a prefix that counted most in an interval
    Top(series::Top),
    /// How a namespace keeps series
    Namespaces(namespaces::Namespaces),
    /// Counts the rows of files, each exactly once, also when it is cut off and run again
    Load(load::LoadArgs),
    /// Writes what counters have counted to a file that `load` reads
    Export(export::ExportArgs),
    /// Compares what reads show of a counter with what the nodes' logs hold, component by component
    Audit(audit::AuditArgs),
    /// Edges between counters, and totals
    Graph(graph::GraphArgs),
    /// Totals and awards as they happen
    Watch(watch::Watch),
    /// Resets a counter, removes it, or says when it expires
    Counter(counter::Counter),
    /// Defines, lists and disarms milestones
    Milestones(milestones::Milestones),
    /// Waits until a milestone is awarded
    Award(award::Award),
    /// Lists awards and fetches their certificates
    Awards(awards::Awards),
    /// How awards are claimed by the sessions that they name
    Claims(claims::Claims),
    /// Gives up what only the lost disks of a group held; says what, and does it with --yes
    DeclareLost(declare_lost::DeclareLost),
    /// Lists the data centres, and gives one up that never returns
    Dc(dc::Dc),
    /// Takes images of data centres while they run, and looks whether they are whole
    Backup(backup::Backup),
    /// Begins a data centre whose disks are gone, or a whole cluster, from images
    Restore(restore::Restore),
    /// The ledger's members: who votes, and whose views arming waits for
    Ledger(ledger::LedgerArgs),
    /// The ranges into which a view is cut, who holds each, and moves of them
    Slots(slots::SlotsArgs),
    /// Receivers of awards: what they have not acknowledged
    Webhooks(webhooks::Webhooks),
    /// What a process says of itself
    Status(status::Status),
    /// Checks an award's certificate offline, against the cluster's CA
    Verify(verify::Verify),
    /// A cluster's CA, and the credentials of its processes
    Certs(certs::Certs),
    Serve(ServeOptions),
    /// Print a script that completes commands and options in a shell
    Completions(completions::Completions),
    /// Write a manual page for each command
    Man(man::Man),
    /// Capacity, voters, latencies and prices of a cluster that is only on paper
    Plan {
        /// What the cluster has to carry; see deploy/plan.toml
        file: PathBuf,
        /// One line of JSON instead of a table
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
            Called::Demo(given) => lab::run("demo", &given.arguments),
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
