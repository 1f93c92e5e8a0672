//! Others who touch the partition: a compaction worker, the collector, queries, and an operator who rebuilds damaged blobs.

use crate::checkers::{self, Settled, Violation};
use crate::oracle::{START_S, Source, combined, types};
use crate::rng::Rng;
use crate::store::{Store, checksum};
use crate::worker::PARTITION;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use tidemark_streams_core::blob::{BlobKey, BlobMeta, Level, Seq, StoredBlob};
use tidemark_streams_core::collector::{Verdict, judge};
use tidemark_streams_core::erasure::Erasures;
use tidemark_streams_core::manifest::{Command, Commit, Manifest, Replace};
use tidemark_streams_core::owner::{Content, Counted, DeadLetter, Record, Recount, RowBatch};
use tidemark_streams_core::query::{self, Continues, OwnerRows, Plan};
use tidemark_streams_core::rebuild::{Inputs, Lineages, Rebuilder, SourceRows};
use tidemark_streams_core::rollup::{RollupRow, Rollups};
use tidemark_streams_core::schema::{Renaming, Schema};
use tidemark_streams_core::scope::Scope;
use tidemark_streams_core::source::ReadingId;
use tidemark_streams_core::time::{Day, Days, HOUR_S, Hour, HourRange, Now};

/// A merge that is proposed from an old copy of the manifest, as by a process that was paused meanwhile.
pub fn stale_merge(old: &Manifest, store: &mut Store, rng: &mut Rng) -> Option<Command> {
    let partition = old.partition(PARTITION)?;
    let inputs: Vec<BlobMeta> =
        partition.live.values().filter(|meta| meta.level.is_of_rows() && rng.percent(60)).collect();
    let contents: Option<Vec<&Content>> = inputs.iter().map(|meta| store.read(&meta.key)).collect();
    let contents: Vec<Content> = contents?.into_iter().cloned().collect();
    // It knows the names of its copy.
    let types = old.types_of(PARTITION);
    let renamings: Vec<Renaming> = inputs.iter().map(|meta| types.since(meta.key.seq)).collect();
    let renamed = contents.iter().zip(&renamings);
    let stored: u64 = inputs.iter().map(|meta| meta.total).sum();
    let rows = combined(renamed.flat_map(|(content, renaming)| rows_of(content).filter_map(|row| renaming.row(&row))));
    // It knows the erasures of its copy.
    let kept = partition.erasures.kept(&rows).ok()?;
    let rows = kept.unwrap_or(rows);
    let erased = stored - rows.total();
    if inputs.is_empty() || rows.is_empty() {
        return None;
    }
    // Numbers of its own: an owner gives out those that follow the last one.
    let seq = Seq(partition.last_seq().0 + rng.between(1_000, 2_000));
    let key = BlobKey { partition: PARTITION, epoch: partition.epoch, seq, part: 0 };
    let meta = BlobMeta {
        key,
        level: Level::Delta,
        scope: Scope::ALL,
        hours: rows.hours().unwrap_or(HourRange::of(Hour(0))),
        rows: rows.len() as u64,
        total: rows.total(),
        stored: StoredBlob { bytes: 1, checksum: checksum(key) },
    };
    if !store.write(key, Content::Rows(Arc::new(rows))) {
        return None;
    }
    store.sync(key)?;
    Some(Command::Commit(Commit {
        partition: PARTITION,
        epoch: partition.epoch,
        seq,
        progress: None,
        add: vec![meta],
        remove: inputs.iter().map(|meta| meta.key).collect(),
        revision: partition.revision(),
        erased,
        ..Commit::default()
    }))
}

/// A replacement of past days that is proposed from an old copy of the manifest, as by an operator's process that was paused meanwhile.
pub fn stale_replacement(
    old: &Manifest,
    days: Days,
    recounted: &Rollups,
    store: &mut Store,
    rng: &mut Rng,
) -> Option<Command> {
    let partition = old.partition(PARTITION)?;
    let inputs = partition.of_days(&days);
    let contents: Option<Vec<Content>> = inputs.iter().map(|meta| store.read(&meta.key).cloned()).collect();
    let contents = contents?;
    let types = old.types_of(PARTITION);
    let renamings: Vec<Renaming> = inputs.iter().map(|meta| types.since(meta.key.seq)).collect();
    let renamed = contents.iter().zip(&renamings);
    let stored: u64 = inputs.iter().map(|meta| meta.total).sum();
    let rows = combined(renamed.flat_map(|(content, renaming)| rows_of(content).filter_map(|row| renaming.row(&row))));
    let rows = partition.erasures.kept(&rows).ok()?.unwrap_or(rows);
    let recounted = partition.erasures.kept(recounted).ok()?.unwrap_or_else(|| recounted.clone());
    let carried = combined(rows.iter().filter(|row| !days.contains(row.hour.day())));
    let all = combined(carried.iter().chain(recounted.iter()));
    let seq = Seq(partition.last_seq().0 + rng.between(1_000, 2_000));
    let key = BlobKey { partition: PARTITION, epoch: partition.epoch, seq, part: 0 };
    let content = Content::Rows(Arc::new(all));
    let meta = content.meta(key, Level::Delta, Scope::ALL, StoredBlob { bytes: 1, checksum: checksum(key) });
    if meta.rows == 0 || !store.write(key, content) {
        return None;
    }
    store.sync(key)?;
    Some(Command::Replace(Replace {
        partition: PARTITION,
        epoch: partition.epoch,
        seq,
        days,
        add: vec![meta],
        remove: inputs.iter().map(|meta| meta.key).collect(),
        revision: partition.revision(),
        erased: stored - rows.total(),
        before: rows.total() - carried.total(),
        after: recounted.total(),
        readings: Vec::new(),
    }))
}

/// A blob of dead letters that is live in a copy of the manifest, and its letters.
pub fn dead_letters(copy: &Manifest, store: &Store, rng: &mut Rng) -> Option<(BlobKey, Arc<Vec<DeadLetter>>)> {
    let live = copy.partition(PARTITION)?.live.of_level(Level::DeadLetters);
    let metas: Vec<BlobMeta> = live.collect();
    let meta = metas.get(rng.below(metas.len().max(1) as u64) as usize)?;
    match store.read(&meta.key)? {
        Content::DeadLetters(letters) => Some((meta.key, Arc::clone(letters))),
        Content::Rows(_) => None,
    }
}

/// What is left to rebuild a blob from.
struct Left<'a> {
    now: Now,
    store: &'a Store,
    sources: &'a [Source],
}

impl Inputs for Left<'_> {
    fn rows(&mut self, key: &BlobKey) -> Option<Rollups> {
        match self.store.read(key)? {
            Content::Rows(rows) => Some(Rollups::clone(rows)),
            Content::DeadLetters(_) => None,
        }
    }

    fn letters(&mut self, key: &BlobKey) -> Option<Vec<DeadLetter>> {
        match self.store.read(key)? {
            Content::Rows(_) => None,
            Content::DeadLetters(letters) => Some(letters.to_vec()),
        }
    }

    fn count(&mut self, rows: &SourceRows, schema: &Schema, refused: Option<&BTreeSet<u64>>) -> Option<Counted> {
        let source = self.sources.iter().find(|source| source.id == rows.source)?;
        let mut recount = Recount::new(schema.effective(&types().ok()?), refused);
        let of_range = source.rows.get(rows.from as usize..rows.to as usize)?;
        let records: Vec<Record<'_>> = of_range.iter().map(|row| row.record()).collect();
        let reading = ReadingId(0);
        let is_logged = source.is_logged;
        let batch = RowBatch { source: source.id, reading, from: rows.from, is_logged, records: &records };
        recount.add(self.now, &batch);
        recount.finish().ok()
    }
}

/// What a damaged blob held, by a copy of the manifest and what is left. `None`: too little is left.
pub fn rebuilt(
    copy: &Manifest,
    meta: &BlobMeta,
    lineages: &Lineages,
    now: Now,
    store: &Store,
    sources: &[Source],
) -> Option<Content> {
    let mut left = Left { now, store, sources };
    let partition = copy.partition(PARTITION)?;
    let mut rebuilder =
        Rebuilder::new(copy.layout(), copy.test_tenants(), partition, copy.types_of(PARTITION), lineages, &mut left);
    match meta.level.is_of_rows() {
        true => Some(Content::Rows(Arc::new(rebuilder.rows(meta).ok()?))),
        false => Some(Content::DeadLetters(Arc::new(rebuilder.letters(meta).ok()?))),
    }
}

fn rows_of(content: &Content) -> Box<dyn Iterator<Item = RollupRow<'_>> + '_> {
    match content {
        Content::Rows(rows) => Box::new(rows.iter()),
        Content::DeadLetters(_) => Box::new(std::iter::empty()),
    }
}

/// All hours, or some of the days that rows are of.
fn hours(rng: &mut Rng) -> HourRange {
    if rng.percent(40) {
        return HourRange::ALL;
    }
    let now = (START_S / HOUR_S) as u32;
    let last = now - rng.below(100) as u32;
    HourRange { first: Hour(last - rng.below(60) as u32), last: Hour(last) }
}

/// Deletes what the collector may delete, of a list and by a copy of the manifest that may both be old. Returns how many.
pub fn collect(old: &Manifest, list: &[BlobKey], store: &mut Store) -> u64 {
    let unreachable = list.iter().filter(|key| judge(old, key) == Verdict::Unreachable);
    unreachable.filter(|key| store.delete(key)).count() as u64
}

/// A query between its steps.
#[derive(Clone, Debug)]
pub struct Query {
    pub tenant: String,
    pub hours: HourRange,
    pub plan: Plan,
    /// The manifest's state of retention.
    kept_from: Day,
    not_kept_before: Day,
    erasures: Erasures,
    /// The erasures that the owner may have known when it was asked.
    owner_erasures: Erasures,
    /// How many changes of event types there were.
    pub known_types: usize,
    /// The owner's rows, once it was asked.
    owner_rows: Vec<OwnerRows>,
}

/// How a query ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answered {
    FromBlobs,
    WithOwnerRows,
    OwnerRowsInBlobs,
    BehindOwner,
    /// A blob of its plan is gone: it plans again.
    Replanned,
}

impl Query {
    pub fn pin(manifest: &Rc<Manifest>, rng: &mut Rng) -> Query {
        let tenant = format!("tenant-{}", rng.below(3));
        let hours = hours(rng);
        let plan = query::plan_of_tenant(manifest, PARTITION, &tenant, hours);
        let partition = manifest.partition(PARTITION);
        let kept_from = partition.map_or(Day(0), |partition| partition.horizons.kept);
        let not_kept_before = kept_from;
        let erasures = partition.map(|partition| partition.erasures.clone()).unwrap_or_default();
        let known_types = manifest.schema().changes().len();
        let owner_erasures = erasures.clone();
        let owner_rows = Vec::new();
        Query { tenant, hours, plan, kept_from, not_kept_before, erasures, owner_erasures, known_types, owner_rows }
    }

    /// Rows that their owner may refuse are not compared.
    pub fn add_owner_rows(&mut self, rows: Vec<OwnerRows>, kept_from: Day, erasures: Erasures) {
        self.owner_rows = rows;
        self.owner_erasures = erasures;
        self.not_kept_before = self.not_kept_before.max(kept_from);
    }

    /// Adds blobs and the owner's rows, and checks the answer.
    ///
    /// # Errors
    /// The answer is wrong.
    pub fn answer(mut self, store: &Store, sources: &[Source], settled: &Settled) -> Result<Answered, Violation> {
        let contents: Option<Vec<&Content>> = self.plan.blobs.iter().map(|meta| store.read(&meta.key)).collect();
        let Some(contents) = contents else { return Ok(Answered::Replanned) };
        let tenant = &self.tenant;
        let hours = self.hours;
        let view = self.plan.view.clone();
        let of_tenant = |row: &RollupRow<'_>| row.tenant == tenant && hours.contains(row.hour) && view.shows(row);
        let mut answered = Answered::FromBlobs;
        let renamings: Vec<Renaming> = self.plan.blobs.iter().map(|meta| view.renaming(&meta.key)).collect();
        let renamed = contents.into_iter().zip(&renamings);
        let renamed = renamed.flat_map(|(content, renaming)| rows_of(content).filter_map(|row| renaming.row(&row)));
        let mut rows: Vec<RollupRow<'_>> = renamed.filter(of_tenant).collect();
        let mut added = Vec::new();
        for set in &self.owner_rows {
            match self.plan.join(set) {
                Continues::Yes => {
                    added.push(set.clone());
                    rows.extend(set.rows.iter().filter(of_tenant));
                    answered = Answered::WithOwnerRows;
                }
                Continues::InBlobs => answered = Answered::OwnerRowsInBlobs,
                Continues::Gap { .. } => answered = Answered::BehindOwner,
            }
        }
        let kept_from = self.kept_from;
        let not_kept_before = self.not_kept_before;
        let known_types = self.known_types;
        let asked = checkers::Asked {
            tenant,
            hours,
            kept_from,
            not_kept_before,
            known_types,
            added: &added,
            erasures: &self.erasures,
            owner_erasures: &self.owner_erasures,
        };
        checkers::answer(&self.plan, &asked, &combined(rows.into_iter()), sources, settled)?;
        Ok(answered)
    }
}
