//! `tidemark backup`: takes images of data centres while they run, and looks whether those that were taken are whole.

use super::{Outcome, block_on, show};
use crate::backup::take::take;
use crate::remote::Remote;
use clap::{Args, Subcommand};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use tidemark_server::api::dcs::DcsBody;
use tidemark_server::backup::manifest::Manifest;
use tidemark_server::backup::read::{ImageFile, awards_in, present_totals};
use tidemark_server::names::counter_text;

/// Arguments of `tidemark backup`.
#[derive(Debug, Args)]
pub struct Backup {
    #[command(subcommand)]
    command: BackupCommand,
}

#[derive(Debug, Subcommand)]
enum BackupCommand {
    /// Take an image of the data centre of the aggregator that is asked, and of others, while they run
    #[command(after_help = "Example:\n  tidemark backup take --out backup --and http://127.0.0.1:7172 --whole")]
    Take {
        /// New directory for the images
        #[arg(long)]
        out: PathBuf,
        /// URL of an aggregator of another data centre, with the same token and CA; may be repeated
        #[arg(long, value_name = "URL")]
        and: Vec<String>,
        /// Fail unless there is an image of every data centre that was not given up
        #[arg(long)]
        whole: bool,
        #[command(flatten)]
        remote: Remote,
    },
    /// Read a whole backup, and print its content
    #[command(after_help = "Example:\n  tidemark backup verify backup")]
    Verify {
        /// Directory of the backup
        dir: PathBuf,
        /// Print one line of JSON
        #[arg(long)]
        json: bool,
    },
}

pub fn run(args: Backup) -> Outcome {
    match args.command {
        BackupCommand::Take { out, and, whole, remote } => block_on(async {
            let others: Vec<Remote> = and.iter().map(|url| remote.also(url)).collect();
            if whole {
                check_whole(&remote, &others).await?;
            }
            let manifest = take(&remote, &others, &out).await?;
            show(remote.json, &manifest, || manifest_text(&manifest))
        }),
        BackupCommand::Verify { dir, json } => {
            let verified = Verified::read(&dir)?;
            show(json, &verified, || verified_text(&verified))
        }
    }
}

/// Of each data centre one aggregator has to be asked: of a pair either, which knows what the other knows but for a moment.
async fn check_whole(first: &Remote, others: &[Remote]) -> Result<(), Box<dyn std::error::Error>> {
    let known: DcsBody = first.get("/v1/dcs").await?;
    let mut asked = Vec::new();
    for remote in std::iter::once(first).chain(others) {
        let status: serde_json::Value = remote.get("/v1/status").await?;
        asked.push(status["dc"].as_str().unwrap_or_default().to_owned());
    }
    match known.dcs.iter().find(|dc| !dc.forgotten && !asked.contains(&dc.name)) {
        Some(missing) => {
            Err(format!("{} is not among those asked: name its aggregator with --and", missing.name).into())
        }
        None => Ok(()),
    }
}

fn manifest_text(manifest: &Manifest) -> String {
    let line = |image: &tidemark_server::backup::ImageEntry| {
        let groups: Vec<String> = image.groups.iter().map(|of| format!("{} up to {}", of.group, of.index)).collect();
        let dc = &image.dc;
        let bytes = image.bytes;
        let index = image.ledger_index;
        format!("{dc}: {bytes} bytes, ledger up to {index}; {}", groups.join(", "))
    };
    let head = format!("cluster {}, era {}", manifest.cluster, manifest.era);
    std::iter::once(head).chain(manifest.images.iter().map(line)).collect::<Vec<_>>().join("\n")
}

/// The content that was found in a backup.
#[derive(Debug, Serialize)]
struct Verified {
    manifest: Manifest,
    /// By data centre, or aggregator that holds a part of its view: all-time totals by counter, and the awards in its copy of the ledger.
    contents: BTreeMap<String, Contents>,
}

#[derive(Debug, Serialize)]
struct Contents {
    /// Of the counter's present generation, as this data centre knew it.
    totals: BTreeMap<String, u64>,
    awards: usize,
    groups: usize,
}

impl Verified {
    fn read(dir: &std::path::Path) -> Result<Verified, Box<dyn std::error::Error>> {
        let manifest = Manifest::read(dir)?;
        let mut contents = BTreeMap::new();
        for entry in &manifest.images {
            let image = ImageFile::read(dir, &manifest, entry)?;
            let part = entry.aggregator().map(|aggregator| format!("/{aggregator}")).unwrap_or_default();
            contents.insert(format!("{}{part}", entry.dc), Contents::of(&image));
        }
        Ok(Verified { manifest, contents })
    }
}

impl Contents {
    fn of(image: &ImageFile) -> Contents {
        let ImageFile { ledger, view, .. } = image;
        let totals = present_totals(view, ledger).map(|(counter, total)| (counter_text(&counter), total)).collect();
        Contents { totals, awards: awards_in(ledger), groups: ledger.groups().len() }
    }
}

fn verified_text(verified: &Verified) -> String {
    let mut lines = vec![manifest_text(&verified.manifest)];
    for (dc, Contents { totals, awards, groups }) in &verified.contents {
        lines.push(format!("{dc}: whole; {} counters, {awards} awards, {groups} incarnations of groups", totals.len()));
        lines.extend(totals.iter().map(|(counter, total)| format!("  {counter}: {total}")));
    }
    lines.join("\n")
}
