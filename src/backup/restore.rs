//! The input of a restore: the files of one data centre's aggregator, or of all aggregators with the ledger of a new era.
//!
//! Nothing is written to a data directory that is in use, and nothing under its name before all of it is there. Groups are not restored: a
//! node without its disk founds its groups anew, under other incarnations. The image's counts of the old groups stay in the view as theirs,
//! so each is counted once, whatever other data centres know of them.

use super::take::{Draft, TakeError};
use crate::config::ClusterFile;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use tidemark_aggregator::{Cluster, LEDGER_FILE, ViewStoreError, found_view, with_era};
use tidemark_consensus::raft::{Config, FoundError, found_with_state};
use tidemark_proto::aggregator::{ViewImage, is_of_cells};
use tidemark_proto::ids::{AggregatorId, CounterName, DcId, LogIndex};
use tidemark_proto::ledger::{EraError, Ledger, OpenMilestones};
use tidemark_proto::shards::{Seats, ShardId};
use tidemark_proto::view::MergeError;
use tidemark_server::backup::manifest::{Manifest, ManifestError};
use tidemark_server::backup::part_name;
use tidemark_server::backup::read::{ImageFile, ReadError};

/// Name of the ledger's Raft group.
pub const LEDGER_GROUP: &str = "ledger";
/// The layout beside the data of a new era, with that era in it.
pub const LAYOUT_FILE: &str = "cluster.toml";

/// Why nothing was restored. Nothing is left behind.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Write(#[from] TakeError),
    #[error(transparent)]
    View(#[from] ViewStoreError),
    #[error(transparent)]
    Merge(#[from] MergeError),
    #[error(transparent)]
    Ledger(#[from] FoundError),
    #[error(transparent)]
    Era(#[from] EraError),
    #[error(
        "{dir} is a backup of the cluster `{found}`, and the layout is of `{expected}`: another cluster's image is never used"
    )]
    OtherCluster { dir: PathBuf, found: String, expected: String },
    #[error(
        "{dir} is a backup of era {found}, and the layout is of era {expected}: a cluster of another era has begun since"
    )]
    OtherEra { dir: PathBuf, found: u64, expected: u64 },
    #[error(
        "{dir} knows data centre {number} as `{found}`, and the layout as `{expected}`: numbers of data centres never change"
    )]
    OtherLayout { dir: PathBuf, number: usize, found: String, expected: String },
    #[error("there is no image of {0}: counts that only it knew are lost; use --partial if that is meant")]
    Missing(String),
    #[error("the layout has no data centre {0:?}")]
    UnknownDc(String),
    #[error("no voter of the layout is left: all of them were given up")]
    NoVoter,
}

/// The merged content of some backups.
pub struct Known {
    pub view: ViewImage,
    /// Each image's copy of the ledger.
    pub ledgers: Vec<Ledger>,
    /// Data centres with an image.
    pub dcs: BTreeSet<String>,
    /// When the oldest and the newest were taken, in milliseconds since 1970.
    pub taken_ms: (u64, u64),
}

impl Known {
    /// Reads all images of some backups of the layout's cluster.
    pub fn read(dirs: &[PathBuf], layout: &ClusterFile) -> Result<Known, RestoreError> {
        let view = ViewImage::empty(DcId(0), rand::random(), layout.layout().ranges);
        let mut known = Known { view, ledgers: Vec::new(), dcs: BTreeSet::new(), taken_ms: (u64::MAX, 0) };
        for dir in dirs {
            let manifest = Manifest::read(dir)?;
            check(dir, &manifest, layout)?;
            for entry in &manifest.images {
                let ImageFile { ledger, view, .. } = ImageFile::read(dir, &manifest, entry)?;
                known.view.merge(&view)?;
                known.ledgers.push(ledger);
                known.dcs.insert(entry.dc.clone());
                known.taken_ms = (known.taken_ms.0.min(entry.taken_ms), known.taken_ms.1.max(entry.taken_ms));
            }
        }
        Ok(known)
    }

    /// The newest copy of the ledger.
    pub fn ledger(&self) -> Option<&Ledger> {
        self.ledgers.iter().max_by_key(|ledger| ledger.applied())
    }
}

fn check(dir: &Path, manifest: &Manifest, layout: &ClusterFile) -> Result<(), RestoreError> {
    let dir = dir.to_owned();
    let found = manifest.cluster.clone();
    if manifest.cluster != layout.name {
        return Err(RestoreError::OtherCluster { dir, found, expected: layout.name.clone() });
    }
    if manifest.era != layout.era {
        return Err(RestoreError::OtherEra { dir, found: manifest.era, expected: layout.era });
    }
    for (number, found) in manifest.dcs.iter().enumerate() {
        let expected = layout.dcs.get(number).map_or("nothing", |dc| dc.name.as_str());
        if expected != found {
            let found = found.clone();
            let expected = expected.to_owned();
            return Err(RestoreError::OtherLayout { dir, number, found, expected });
        }
    }
    Ok(())
}

/// Writes the view of a data centre's aggregator to a draft of its data directory. If several aggregators hold a part of the view each, it
/// writes all of them to directories of their names in the draft. Of the counters with milestones it shows only what is certain until its
/// ledger has come to `index`, which the others' had after it was gone.
pub fn write_dc(
    known: &Known,
    layout: &ClusterFile,
    dc: &str,
    draft: &Draft,
    guarded: Vec<CounterName>,
    index: u64,
) -> Result<(), RestoreError> {
    let number = layout.index_of(dc).ok_or_else(|| RestoreError::UnknownDc(dc.to_owned()))?;
    let cluster = with_era(&layout.name, layout.era);
    let cautious = ViewImage::cautious_rows(guarded, LogIndex(index));
    let parts = Parts::of(layout, number);
    if !parts.are_several() {
        return parts.found(known, draft.dir(), &cluster, 0, &cautious);
    }
    for seat in 0..parts.aggregators {
        let dir = draft.make_dir(part_name(AggregatorId { dc: parts.dc, seat }))?;
        parts.found(known, &dir, &cluster, seat, &cautious)?;
    }
    Ok(())
}

/// The aggregators that hold each part of a data centre's view.
struct Parts {
    dc: DcId,
    name: String,
    aggregators: u8,
    seats: Seats,
}

impl Parts {
    fn of(layout: &ClusterFile, number: u16) -> Parts {
        let counts: Vec<u8> = layout.dcs.iter().map(|dc| dc.aggregators().len() as u8).collect();
        let name = layout.dcs[usize::from(number)].name.clone();
        let aggregators = counts[usize::from(number)];
        Parts { dc: DcId(number), name, aggregators, seats: Seats::new(counts) }
    }

    /// Whether each has a part, and not one of them, or a pair, all of it.
    fn are_several(&self) -> bool {
        self.seats.are_split(self.dc)
    }

    /// Founds the files of one aggregator's view, one of each shard that it has; The limits of readings go with the first.
    fn found(
        &self,
        known: &Known,
        dir: &Path,
        cluster: &str,
        seat: u8,
        limits: &[(Vec<u8>, Vec<u8>)],
    ) -> Result<(), RestoreError> {
        let own = AggregatorId { dc: self.dc, seat };
        let name = if seat == 0 { self.name.clone() } else { format!("{}/{}", self.name, part_name(own)) };
        for (shard, _) in known.view.view().shards() {
            let is_held = self.seats.holds(own, shard);
            if !is_held && shard != ShardId::FIRST {
                continue;
            }
            let rows = known.view.rows(shard).filter(|(key, _)| is_held || !is_of_cells(key));
            let limits = if shard == ShardId::FIRST { limits } else { &[] };
            found_view(dir, cluster, &name, shard, rows.chain(limits.iter().cloned()))?;
        }
        Ok(())
    }
}

/// The initial state of a new era's ledger, and its voters.
pub struct NewEra {
    pub era: u64,
    pub ledger: Ledger,
    voters: BTreeSet<u64>,
}

impl NewEra {
    /// Decides everything; nothing is written.
    pub fn plan(
        known: &Known,
        layout: &ClusterFile,
        era: u64,
        open: OpenMilestones,
        partial: bool,
    ) -> Result<NewEra, RestoreError> {
        let ledger = Ledger::in_new_era(known.ledgers.clone(), known.view.view(), open)?;
        let is_left = |dc: &str| layout.index_of(dc).is_some_and(|number| !ledger.is_forgotten(DcId(number)));
        let missing = layout.dcs.iter().map(|dc| &dc.name).find(|name| is_left(name) && !known.dcs.contains(*name));
        if let Some(name) = missing.filter(|_| !partial) {
            return Err(RestoreError::Missing(name.clone()));
        }
        let voters = layout.voters.iter().filter(|name| is_left(name)).filter_map(|name| layout.index_of(name));
        let voters: BTreeSet<u64> = voters.map(|number| Cluster::member(DcId(number))).collect();
        if voters.is_empty() {
            return Err(RestoreError::NoVoter);
        }
        Ok(NewEra { era, ledger, voters })
    }

    /// Writes the data directories of aggregators and the layout of the new era. The first aggregator of a data centre has a directory
    /// under the data centre's name; others that hold a part of a view have theirs in it.
    pub fn write(&self, known: &Known, layout: &ClusterFile, target: &Path) -> Result<(), RestoreError> {
        let draft = Draft::begin(target)?;
        let cluster = with_era(&layout.name, self.era);
        let state = postcard::to_allocvec(&self.ledger).expect("the ledger holds only what postcard can encode");
        let config = Config::new(cluster.clone(), LEDGER_GROUP);
        for (number, dc) in layout.dcs.iter().enumerate() {
            let dir = draft.make_dir(&dc.name)?;
            let parts = Parts::of(layout, number as u16);
            parts.found(known, &dir, &cluster, 0, &[])?;
            for seat in (1..parts.aggregators).filter(|_| parts.are_several()) {
                let own = part_name(AggregatorId { dc: parts.dc, seat });
                // No name of a data centre has a dot.
                let dir = draft.make_dir(&format!("{}.{own}", dc.name))?;
                parts.found(known, &dir, &cluster, seat, &[])?;
            }
            let member = Cluster::member(DcId(number as u16));
            if self.voters.contains(&member) {
                let index = self.ledger.applied().0;
                found_with_state(&dir.join(LEDGER_FILE), member, &config, self.voters.clone(), index, &state)?;
            }
        }
        let layout = ClusterFile { era: self.era, ..layout.clone() };
        let text = toml::to_string(&layout).expect("a layout is TOML");
        draft.write(LAYOUT_FILE, text.as_bytes())?;
        Ok(draft.finish()?)
    }
}
