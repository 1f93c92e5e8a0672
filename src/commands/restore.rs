//! `tidemark restore`: restores a data centre with lost disks, or a whole cluster, from images.

use super::{Outcome, block_on, show};
use crate::backup::restore::{Known, LAYOUT_FILE, NewEra, write_dc};
use crate::backup::take::Draft;
use crate::config::ClusterFile;
use crate::remote::Remote;
use clap::{Args, Subcommand};
use hyper::Method;
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};
use tidemark_proto::ids::{CounterName, DcId, GroupId};
use tidemark_proto::ledger::{Ledger, OpenMilestones};
use tidemark_server::api::dcs::DcsBody;
use tidemark_server::api::groups::{GroupBody, GroupName, GroupState, GroupsBody, LoseBody, lost_path};
use tidemark_server::backup::read::{awards_in, present_totals};
use tidemark_server::names::{counter_text, parse_counter};

type Error = Box<dyn std::error::Error>;

/// Arguments of `tidemark restore`.
#[derive(Debug, Args)]
pub struct Restore {
    #[command(subcommand)]
    command: RestoreCommand,
}

#[derive(Debug, Subcommand)]
enum RestoreCommand {
    /// Restore a data centre with lost disks, while the others run
    ///
    /// The command gives up the lost groups and writes the data directory that the new aggregator begins with. It asks the aggregator of
    /// another data centre (--server). Without --yes, it prints what would be done and changes nothing.
    #[command(
        after_help = "Example:\n  tidemark restore dc usa-0 --from backup --layout layout.toml --out data/usa-0 --yes"
    )]
    Dc(RestoreDc),
    /// Restore all data centres, when no process runs any more
    ///
    /// The command writes the files that the aggregators begin a new era with. Without --yes, it prints what would be done and changes
    /// nothing.
    #[command(
        after_help = "Example:\n  tidemark restore cluster --from backup --layout layout.toml --out restored --rearm --yes"
    )]
    Cluster(RestoreCluster),
}

#[derive(Debug, Args)]
struct RestoreDc {
    /// Name of the data centre in the layout
    name: String,
    #[command(flatten)]
    from: From,
    /// Data directory of its aggregator, which must be missing or empty
    #[arg(long)]
    out: PathBuf,
    /// Restore even if its groups were heard of a moment ago
    #[arg(long)]
    force: bool,
    /// Carry it out; without --yes, only print what would be done
    #[arg(long)]
    yes: bool,
    /// The aggregator of another data centre.
    #[command(flatten)]
    remote: Remote,
}

#[derive(Debug, Args)]
struct RestoreCluster {
    #[command(flatten)]
    from: From,
    /// New directory, for a directory per aggregator and the layout with the new era
    #[arg(long)]
    out: PathBuf,
    /// Arm again all milestones without an award in the newest image: you know that none was awarded since
    #[arg(long, conflicts_with = "withhold")]
    rearm: bool,
    /// Do not arm these milestones, because each may have been awarded since: they count as passed, and others can be defined
    #[arg(long)]
    withhold: bool,
    /// Restore although some data centre has no image
    #[arg(long)]
    partial: bool,
    /// Carry it out; without --yes, only print what would be done
    #[arg(long)]
    yes: bool,
    /// Print one line of JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct From {
    /// Directory of a backup; may be repeated: of each component the largest value in any backup counts
    #[arg(long = "from", value_name = "DIR", required = true)]
    dirs: Vec<PathBuf>,
    /// Layout file of the cluster
    #[arg(long)]
    layout: PathBuf,
}

pub fn run(args: Restore) -> Outcome {
    match args.command {
        RestoreCommand::Dc(args) => block_on(restore_dc(args)),
        RestoreCommand::Cluster(args) => restore_cluster(&args),
    }
}

/// An incarnation that is given up, and the known facts about it.
#[derive(Debug, Serialize)]
struct LostBody {
    name: String,
    rights: u64,
    counters: Vec<LostCounter>,
}

#[derive(Debug, Serialize)]
struct LostCounter {
    counter: String,
    /// Its counts in the images.
    in_images: u64,
    /// Its counts in the ledger; views of other data centres may know more.
    in_ledger: u64,
}

#[derive(Debug, Serialize)]
struct DcReport {
    dc: String,
    taken_ms: u64,
    lost: Vec<LostBody>,
    done: bool,
}

async fn restore_dc(args: RestoreDc) -> Outcome {
    let RestoreDc { name, from, out, force, yes, remote } = args;
    let layout = ClusterFile::load(&from.layout)?;
    let known = Known::read(&from.dirs, &layout)?;
    check_gone(&remote, &name).await?;
    let groups: GroupsBody = remote.get("/v1/groups").await?;
    let left = groups.groups.iter().filter(|group| group.state != GroupState::Lost && is_of(group, &name));
    let lost = left.map(|group| lost_body(group, &known, &layout)).collect::<Result<Vec<_>, Error>>()?;
    let mut report = DcReport { dc: name, taken_ms: known.taken_ms.1, lost, done: false };
    let draft = Draft::begin(&out)?;
    if !yes {
        return show(remote.json, &report, || format!("{}\nNothing was done: repeat it with --yes.", dc_text(&report)));
    }
    let (guarded, index) = promised(&remote, &groups).await?;
    // Any failure here, such as a full disk, happens before anything is given up.
    write_dc(&known, &layout, &report.dc, &draft, guarded, index)?;
    for group in &report.lost {
        let GroupName { dc, group, incarnation } = group.name.parse()?;
        let path = lost_path(&dc, group, incarnation.unwrap_or_default());
        let _: GroupBody = remote.call(Method::POST, &path, Some(&LoseBody { force })).await?;
    }
    draft.finish()?;
    report.done = true;
    let next = format!(
        "Start its nodes on empty data directories, and its aggregator on this one{}.",
        further_text(&layout, |dc| *dc == report.dc)
    );
    show(remote.json, &report, || format!("{}\n{} is written. {next}", dc_text(&report), out.display()))
}

/// The second of a pair needs no image: it is told by the first. Of more each has its part.
fn further_text(layout: &ClusterFile, which: impl Fn(&String) -> bool) -> &'static str {
    let counts = layout.dcs.iter().filter(|dc| which(&dc.name)).map(|dc| dc.aggregators().len());
    match counts.max() {
        None | Some(0 | 1) => "",
        Some(2) => "; the second of a pair on an empty one, with --fresh",
        Some(_) => {
            "; where more than two aggregators hold a view, each on the one of its name, and of a pair the second on an empty \
             one, with --fresh"
        }
    }
}

/// Counters with milestones, and where the ledger stands: before that the view that is gone may have promised something of them.
async fn promised(remote: &Remote, groups: &GroupsBody) -> Result<(Vec<CounterName>, u64), Error> {
    let status: serde_json::Value = remote.get("/v1/status").await?;
    let index = status["ledger"]["index"].as_u64().ok_or("the aggregator does not say where its ledger stands")?;
    let stakes = groups.groups.iter().flat_map(|group| &group.counters);
    let names: BTreeSet<String> = stakes.map(|stake| stake.counter.to_string()).collect();
    let guarded = names.iter().map(|name| parse_counter(name)).collect::<Result<_, _>>()?;
    Ok((guarded, index))
}

fn is_of(group: &GroupBody, dc: &str) -> bool {
    group.name.parse::<GroupName>().is_ok_and(|name| name.dc == dc)
}

async fn check_gone(remote: &Remote, name: &str) -> Result<(), Error> {
    let known: DcsBody = remote.get("/v1/dcs").await?;
    let dc =
        known.dcs.iter().find(|dc| dc.name == name).ok_or_else(|| format!("the layout has no data centre {name:?}"))?;
    match (dc.forgotten, dc.connected) {
        (true, _) => Err(format!("{name} was given up with `tidemark dc forget`: it needs another name").into()),
        (_, true) => Err(format!(
            "the aggregator of {name} runs: this is for a data centre with lost disks; ask the aggregator of another data \
             centre, and stop the processes there"
        )
        .into()),
        _ => Ok(()),
    }
}

fn lost_body(body: &GroupBody, known: &Known, layout: &ClusterFile) -> Result<LostBody, Error> {
    let GroupName { dc, group, incarnation } = body.name.parse()?;
    let dc = DcId(layout.index_of(&dc).ok_or_else(|| format!("the layout has no data centre {dc:?}"))?);
    let group = GroupId { dc, group, incarnation: incarnation.unwrap_or_default() };
    let counter = |stake: &tidemark_server::api::groups::StakeBody| -> Result<LostCounter, Error> {
        let name = parse_counter(&stake.counter.to_string())?;
        let generation = known.ledger().map_or(0, |ledger| ledger.resets().generation(&name));
        let in_images = known.view.view().component_of(&name, generation, group);
        Ok(LostCounter { counter: counter_text(&name), in_images, in_ledger: stake.counted })
    };
    let counters = body.counters.iter().map(counter).collect::<Result<Vec<_>, Error>>()?;
    Ok(LostBody { name: body.name.clone(), rights: body.rights, counters })
}

fn dc_text(report: &DcReport) -> String {
    let mut lines = vec![format!("{}, from images the newest of which was taken at {} ms", report.dc, report.taken_ms)];
    for LostBody { name, rights, counters } in &report.lost {
        lines.push(format!("{name} is given up: {rights} rights outstanding"));
        for LostCounter { counter, in_images, in_ledger } in counters {
            lines.push(format!("  {counter}: the images know {in_images} of it, the ledger {in_ledger}"));
        }
    }
    lines.push(
        "Counts of these groups that any image or any data centre has stay counted, once. Later increments that no data centre has \
         received are lost; of the increments of counters with milestones that were answered as counted, at most the outstanding \
         rights. Clients get `unknown` for increments that were in doubt there."
            .to_owned(),
    );
    lines.join("\n")
}

#[derive(Debug, Serialize)]
struct EraReport {
    era: u64,
    taken_ms: (u64, u64),
    /// Milestones that were open in the newest copy of the ledger, by counter.
    open: Vec<OpenBody>,
    awards: usize,
    totals: Vec<(String, u64)>,
    done: bool,
}

#[derive(Debug, Serialize)]
struct OpenBody {
    counter: String,
    at: Vec<u64>,
    every: Option<u64>,
}

fn restore_cluster(args: &RestoreCluster) -> Outcome {
    let layout = ClusterFile::load(&args.from.layout)?;
    let known = Known::read(&args.from.dirs, &layout)?;
    let open = known.ledger().map_or_else(Vec::new, Ledger::open_milestones).into_iter();
    let open: Vec<OpenBody> = open.map(|(counter, at, every)| open_body(&counter, at, every)).collect();
    let choice = match (args.rearm, args.withhold, open.is_empty()) {
        (false, false, false) if args.yes => return Err(choice_text(&open).into()),
        (true, ..) => OpenMilestones::Rearm,
        _ => OpenMilestones::Withhold,
    };
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let next = NewEra::plan(&known, &layout, seconds.max(layout.era + 1), choice, args.partial)?;
    let mut report = EraReport::new(&known, &next, open);
    if !args.yes {
        show(args.json, &report, || format!("{}\nNothing was done: repeat it with --yes.", era_text(&report, choice)))?;
        return Ok(ExitCode::SUCCESS);
    }
    next.write(&known, &layout, &args.out)?;
    report.done = true;
    let out = args.out.display();
    show(args.json, &report, || {
        format!(
            "{}\n{out} is written. Give all processes {out}/{LAYOUT_FILE} as their layout, each aggregator {out}/DC as its data \
             directory{}, and all nodes empty ones; then start them.",
            era_text(&report, choice),
            further_text(&layout, |_| true)
        )
    })
}

fn open_body(counter: &CounterName, at: Vec<u64>, every: Option<u64>) -> OpenBody {
    OpenBody { counter: counter_text(counter), at, every }
}

fn choice_text(open: &[OpenBody]) -> String {
    let name = |open: &OpenBody| format!("{} {:?}{}", open.counter, open.at, every_text(open.every));
    format!(
        "milestones were not awarded when the newest image was taken, and may have been since ({}): say --withhold, and they are not \
         armed again, or --rearm if you know that none was awarded",
        open.iter().map(name).collect::<Vec<_>>().join("; ")
    )
}

fn every_text(every: Option<u64>) -> String {
    every.map_or_else(String::new, |every| format!(" every {every}"))
}

impl EraReport {
    fn new(known: &Known, next: &NewEra, open: Vec<OpenBody>) -> EraReport {
        let totals = present_totals(&known.view, &next.ledger);
        EraReport {
            era: next.era,
            taken_ms: known.taken_ms,
            open,
            awards: awards_in(&next.ledger),
            totals: totals.map(|(counter, total)| (counter_text(&counter), total)).collect(),
            done: false,
        }
    }
}

fn era_text(report: &EraReport, choice: OpenMilestones) -> String {
    let EraReport { era, taken_ms: (oldest, newest), open, awards, totals, .. } = report;
    let mut lines =
        vec![format!("era {era}, from images taken between {oldest} and {newest} ms; {awards} awards stay")];
    lines.extend(totals.iter().map(|(counter, total)| format!("  {counter}: {total}")));
    for body in open {
        let what = match choice {
            OpenMilestones::Rearm => "armed anew, as nothing was awarded since",
            OpenMilestones::Withhold => "withheld: it may have been awarded since",
        };
        lines.push(format!("  {} {:?}{}: {what}", body.counter, body.at, every_text(body.every)));
    }
    lines.push(
        "Increments and awards after the images were taken are lost, and no certificate says how many. All groups of the earlier era are \
         given up; its disks and processes are refused by the new era, and refuse it."
            .to_owned(),
    );
    lines.join("\n")
}
