//! The owner of a partition: folds the rows of sources, writes blobs, and commits them to the manifest.
//!
//! There is one job under way at a time: a flush, which writes the folded rows, or a merge. Both write blobs first and propose a commit
//! that names them once the store has them. Rows are taken meanwhile, until they fill the window: it is flushed by the next job.
//!
//! The shell carries out each [`Output`] and answers with an [`Input`]; any answer may be lost with the process. After any loss, the next
//! owner claims the partition and reads each source from the position in the manifest.

mod claim;
mod erase;
mod expire;
mod job;
mod letters;
mod rebuild;
mod replace;
mod types;
mod unreadable;
mod window;

use letters::LettersTurn;
pub use letters::{Fate, Letter, Letters};
pub use rebuild::{Counted, Recount};
pub use replace::Recounted;

use crate::blob::{BlobKey, Epoch, Level, LiveDigest, PartitionId, Seq, StoredBlob};
use crate::erasure::Erasures;
use crate::event::{EventTypes, RawEvent};
use crate::layout::Layout;
use crate::manifest::{
    BlobSet, ClaimRefused, Command, CommitRefused, ExpireRefused, Generation, Manifest, MemberId, Outcome,
    ReplaceRefused,
};
use crate::merge::{MergePolicy, Scheduler};
use crate::query::OwnerRows;
use crate::retention::{Horizons, Retention};
use crate::rollup::{Rollups, RowError};
use crate::schema::TypesOf;
use crate::scope::{Scope, TenantHash};
use crate::source::{ReadingId, SourceId, SourceState};
use crate::teeth::{Bug, bites};
use crate::time::{Day, Now};
use crate::values::DimensionNames;
use job::{Load, Write};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use unreadable::Unreadable;
use window::{Flushed, SourceEnd, Window};

/// Settings of an owner.
#[derive(Clone, Debug)]
pub struct OwnerConfig {
    pub partition: PartitionId,
    pub member: MemberId,
    pub generation: Generation,
    pub types: EventTypes,
    /// Of the hash tables in memory.
    pub seed: u64,
    /// A row waits so long before it is flushed.
    pub flush_after_ms: u64,
    /// Counts that are held before they are flushed.
    pub cells_max: usize,
    /// Memory that is held before it is flushed.
    pub fold_bytes_max: usize,
    /// Dead letters that are held before they are flushed.
    pub dead_letters_max: usize,
    pub merge: MergePolicy,
    /// A proposal without an outcome, and a write that failed, are tried again after this.
    pub retry_after_ms: u64,
    /// A set of rows stays readable for so long after its commit.
    pub keep_flushed_ms: u64,
}

/// A row of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    Event(RawEvent<'a>),
    /// It cannot be read. It becomes a dead letter with this reason and as much of its text as a dead letter keeps.
    Broken {
        reason: &'a str,
        text: &'a str,
    },
}

/// Rows of a source that follow each other.
#[derive(Clone, Copy, Debug)]
pub struct RowBatch<'a> {
    pub source: SourceId,
    pub reading: ReadingId,
    /// The number of the first, from 0 on.
    pub from: u64,
    /// Whether they are of the intake's log. Then names of event types have the meaning from the time when the log took a row.
    pub is_logged: bool,
    pub records: &'a [Record<'a>],
}

/// A row that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    pub source: SourceId,
    /// Its number in the source, from 0 on.
    pub row: u64,
    pub reason: String,
    /// The text of the record, cut.
    pub text: String,
}

#[derive(Debug)]
pub enum Input<'a> {
    /// Time has passed.
    Tick,
    /// The clock of the machine. `now` may be ahead of it, as far as rows of a log were accepted later. Retention follows the clock.
    Clock(Now),
    /// Rows to count. [`Owner::position`] says how many were taken.
    Rows(RowBatch<'a>),
    /// A source has no row behind this one.
    End {
        source: SourceId,
        reading: ReadingId,
        rows: u64,
    },
    /// Flush now what is held.
    Flush,
    /// Flush, and merge all that can be merged.
    Seal,
    /// Whether dead letters wait to be settled. While they do, a settling and another job take turns.
    LettersWait(bool),
    /// Replay or drop the dead letters of a blob. Nothing happens while a job is under way, or where the blob is not live.
    Settle(Letters<'a>),
    /// The store has a blob: file and directory are synced.
    Stored {
        key: BlobKey,
        stored: StoredBlob,
    },
    /// The store could not write or read a blob. A write is tried again. What needs a blob that cannot be read gives way to other work.
    StoreFailed {
        key: BlobKey,
    },
    Loaded {
        key: BlobKey,
        rows: Rollups,
    },
    /// The letters of a blob of dead letters.
    LoadedLetters {
        key: BlobKey,
        letters: Vec<DeadLetter>,
    },
    /// The rows of a live blob whose file is damaged or missing, from its inputs. Nothing happens while a job is under way or the
    /// partition is paused, and where the rows are not those of the blob.
    Rebuild {
        key: BlobKey,
        rows: &'a Rollups,
    },
    /// The same for a blob of dead letters.
    RebuildLetters {
        key: BlobKey,
        letters: &'a [DeadLetter],
    },
    /// Recounted rows of past days, in place of those of live blobs. Nothing happens while a job is under way or the partition is paused,
    /// if other blobs are live than those that were recounted, if a row is of another day or type, or if rows are held and readings change.
    Replace(Recounted<'a>),
    /// A command was applied; the manifest is the state right behind it.
    Applied {
        outcome: &'a Outcome,
        manifest: &'a Manifest,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    Propose(Command),
    Put(Put),
    Load(BlobKey),
    /// The owner does nothing from now on.
    Stopped(Stop),
}

/// A blob to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Put {
    pub key: BlobKey,
    pub level: Level,
    pub scope: Scope,
    pub origin: Origin,
    /// The same for all blobs of a commit.
    pub after: After,
    /// The names of the dimensions of the directory.
    pub dimensions: DimensionNames,
    pub content: Content,
}

/// What the manifest holds once the commit of a blob is applied. Blobs say it of themselves, so that a lost manifest can be built again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct After {
    /// Blobs that the commit adds.
    pub parts: u32,
    pub live: LiveDigest,
    /// The number of erasures and changes of event types that the owner knew.
    pub revision: u64,
    /// The sources of which rows or letters were counted since the claim.
    pub sources: Arc<[SourceAfter]>,
}

/// How far a source is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceAfter {
    pub id: SourceId,
    pub state: SourceState,
}

/// Where the rows of a blob come from. Blobs say it of themselves, so that a lost manifest can be built again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Rows `from` to `to` of a source, `to` not included.
    Source { source: SourceId, from: u64, to: u64 },
    /// Other blobs, which it replaces together with the other blobs of its commit.
    Blobs(Arc<[BlobKey]>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    Rows(Arc<Rollups>),
    DeadLetters(Arc<Vec<DeadLetter>>),
}

/// Why an owner has stopped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stop {
    #[error("another process has claimed the partition, or fenced it")]
    Deposed,
    #[error("the claim was refused: {0}")]
    Claim(#[from] ClaimRefused),
    #[error("a commit was refused: {0}")]
    Commit(#[from] CommitRefused),
    #[error("a replacement was refused: {0}")]
    Replace(#[from] ReplaceRefused),
    #[error("an expiry was refused: {0}")]
    Expire(#[from] ExpireRefused),
    #[error("rows of source {source_id} from {from} on were given, and the next one is {expected}")]
    Gap { source_id: SourceId, expected: u64, from: u64 },
    #[error("source {source_id} ends at row {rows}, and {expected} rows of it are counted")]
    ShortSource { source_id: SourceId, rows: u64, expected: u64 },
    #[error("rows: {0}")]
    Rows(#[from] RowError),
}

/// The machine.
pub struct Owner {
    /// Its event types have their present names.
    config: OwnerConfig,
    /// The event types as they were configured.
    configured: EventTypes,
    state: State,
    epoch: Epoch,
    last_seq: Seq,
    sources: BTreeMap<SourceId, SourceState>,
    /// Those whose state has changed since the claim.
    touched: BTreeSet<SourceId>,
    live: BlobSet,
    layout: Layout,
    test_tenants: BTreeSet<TenantHash>,
    retention: Retention,
    horizons: Horizons,
    /// The live blobs are looked through for what has expired then.
    expire_at: Now,
    clock: Option<Now>,
    erasures: Erasures,
    types: TypesOf,
    /// Live blobs that may hold rows of deleted types.
    deleting: VecDeque<BlobKey>,
    /// A blob was written again for a deletion since the last merge.
    is_turn_of_merges: bool,
    scheduler: Scheduler,
    /// Live blobs that could not be read a moment ago.
    unreadable: Unreadable,
    /// The live blobs are looked through for merges then.
    plan_at: Now,
    window: Window,
    flushed: Option<Flushed>,
    is_sealing: bool,
    is_paused: bool,
    letters_turn: LettersTurn,
    retry_at: Option<Now>,
    /// Of the windows before the present one.
    others: u64,
    outputs: VecDeque<Output>,
}

enum State {
    Claiming,
    Idle,
    Loading(Load),
    Writing(Write),
    /// Blobs that are too old are on their way out of the manifest.
    Expiring {
        seq: Seq,
        today: Day,
    },
    Stopped(Stop),
}

impl Owner {
    /// An owner that claims its partition.
    pub fn new(now: Now, config: OwnerConfig) -> Owner {
        let mut owner = Owner {
            window: Window::new(&config),
            layout: Layout::default(),
            test_tenants: BTreeSet::new(),
            retention: Retention::default(),
            horizons: Horizons::default(),
            expire_at: now,
            clock: None,
            erasures: Erasures::default(),
            types: TypesOf::default(),
            deleting: VecDeque::new(),
            is_turn_of_merges: false,
            configured: config.types.clone(),
            scheduler: Scheduler::new(now, config.partition, config.merge),
            unreadable: Unreadable::default(),
            plan_at: now,
            config,
            state: State::Claiming,
            epoch: Epoch(0),
            last_seq: Seq(0),
            sources: BTreeMap::new(),
            touched: BTreeSet::new(),
            live: BlobSet::new(),
            flushed: None,
            is_sealing: false,
            is_paused: false,
            letters_turn: LettersTurn::default(),
            retry_at: None,
            others: 0,
            outputs: VecDeque::new(),
        };
        owner.propose_claim(now);
        owner
    }

    pub fn handle(&mut self, now: Now, input: Input<'_>) {
        if self.stopped().is_some() {
            return;
        }
        match input {
            Input::Tick => self.retry(now),
            Input::Clock(clock) => self.clock = Some(clock),
            Input::Rows(batch) => self.take(now, &batch),
            Input::End { source, reading, rows } => self.end(now, SourceEnd { source, reading, rows }),
            Input::Flush => self.window.flush_soon(now),
            Input::Seal => {
                self.is_sealing = true;
                self.window.flush_soon(now);
            }
            Input::LettersWait(is_asked) => self.letters_turn.ask(is_asked),
            Input::Settle(letters) => self.settle(now, &letters),
            Input::Stored { key, stored } => self.stored(now, key, stored),
            Input::StoreFailed { key } => self.store_failed(now, key),
            Input::Loaded { key, rows } => self.loaded(now, key, &rows),
            Input::LoadedLetters { key, letters } => self.loaded_letters(now, key, &letters),
            Input::Rebuild { key, rows } => self.rebuild(now, key, rows),
            Input::RebuildLetters { key, letters } => self.rebuild_letters(now, key, letters),
            Input::Replace(recounted) => self.begin_replace(now, &recounted),
            Input::Applied { outcome, manifest } => self.applied(now, outcome, manifest),
        }
        self.release_puts(now);
        self.begin_job(now);
    }

    /// The next action, until `None`.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When to come back with [`Input::Tick`] at the latest.
    pub fn poll_timeout(&self) -> Option<Now> {
        match &self.state {
            State::Idle if self.is_paused => None,
            State::Idle if self.letters_turn.until().is_some() => self.letters_turn.until(),
            State::Idle => {
                let plan_at = Some(self.plan_at).filter(|at| *at < Now(u64::MAX));
                let expire_at = Some(self.expire_at).filter(|_| !self.retention.is_for_ever());
                let read_at = self.unreadable.until();
                self.window.flush_at().into_iter().chain(plan_at).chain(expire_at).chain(read_at).min()
            }
            State::Claiming | State::Expiring { .. } => self.retry_at,
            State::Loading(_) => None,
            State::Writing(write) => self.retry_at.into_iter().chain(write.put_at()).min(),
            State::Stopped(_) => None,
        }
    }

    /// The next row of a source that it takes; `None` before the partition is claimed.
    pub fn position(&self, source: SourceId) -> Option<u64> {
        let committed = self.sources.get(&source).map_or(0, |state| state.next_row);
        match &self.state {
            State::Claiming | State::Stopped(_) => None,
            State::Writing(write) => {
                Some(self.window.end_of(source).or_else(|| write.end_of(source)).unwrap_or(committed))
            }
            State::Idle | State::Loading(_) | State::Expiring { .. } => {
                Some(self.window.end_of(source).unwrap_or(committed))
            }
        }
    }

    /// Whether rows that are given now are taken.
    pub fn takes_rows(&self) -> bool {
        match self.state {
            State::Idle | State::Loading(_) | State::Writing(_) | State::Expiring { .. } => {
                !self.window.is_due() && (!self.is_paused || bites(Bug::RowsTakenWhilePaused))
            }
            State::Claiming | State::Stopped(_) => false,
        }
    }

    /// Whether [`Input::Settle`] is taken now: no job is under way, and the partition is not paused.
    pub fn takes_letters(&self) -> bool {
        matches!(self.state, State::Idle) && !self.is_paused
    }

    /// Whether letters of this blob of dead letters are being replayed or dropped.
    pub fn is_settling(&self, key: &BlobKey) -> bool {
        match &self.state {
            State::Writing(write) => write.settles(key),
            State::Claiming | State::Idle | State::Loading(_) | State::Expiring { .. } | State::Stopped(_) => false,
        }
    }

    /// Whether a source is counted to its end, by commits.
    pub fn is_complete(&self, source: SourceId) -> bool {
        self.sources.get(&source).is_some_and(|state| state.is_complete)
    }

    /// Whether nothing is held and nothing is under way.
    pub fn is_quiet(&self) -> bool {
        matches!(self.state, State::Idle) && self.window.is_empty() && !self.is_sealing && self.outputs.is_empty()
    }

    pub fn stopped(&self) -> Option<&Stop> {
        match &self.state {
            State::Stopped(stop) => Some(stop),
            State::Claiming | State::Idle | State::Loading(_) | State::Writing(_) | State::Expiring { .. } => None,
        }
    }

    /// Whether the partition is paused: no rows are taken, and no flush or merge begins. A job that is under way ends.
    pub fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// Live blobs that could not be read, and were not read since.
    pub fn unreadable_blobs(&self) -> usize {
        self.unreadable.len()
    }

    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The number of the last write or expiry that it began. A write may be abandoned.
    pub fn last_seq(&self) -> Seq {
        self.last_seq
    }

    /// The size of the window in memory.
    pub fn size(&self) -> crate::fold::FoldSize {
        self.window.size()
    }

    /// The sum of the counts since its start whose value was beyond the bound of a dimension. They count as `other`. Rows that are
    /// taken again after another claim are in it again.
    pub fn others(&self) -> u64 {
        self.others + self.window.others()
    }

    /// The rows of a tenant that were read and are, or were a moment ago, in no blob: sets in the order of their rows.
    ///
    /// # Errors
    /// As of [`Fold::rollups_of`](crate::fold::Fold::rollups_of).
    pub fn rows_of(&self, now: Now, tenant: &str) -> Result<Vec<OwnerRows>, RowError> {
        let epoch = self.epoch;
        let flushed = self.flushed.iter().filter(|set| now < set.until);
        let mut sets: Vec<OwnerRows> = flushed.map(|set| set.rows_of(epoch, tenant)).collect::<Result<_, _>>()?;
        if let State::Writing(write) = &self.state
            && let Some(set) = write.flushing()
        {
            sets.push(set.rows_of(epoch, tenant)?);
        }
        sets.extend(self.window.rows_of(epoch, tenant)?);
        Ok(sets)
    }

    /// Whether a source is counted to its end, by commits or by one that is under way.
    fn is_ending(&self, source: SourceId) -> bool {
        let is_under_way = match &self.state {
            State::Writing(write) => write.ends(source),
            State::Claiming | State::Idle | State::Loading(_) | State::Expiring { .. } | State::Stopped(_) => false,
        };
        is_under_way || self.is_complete(source)
    }

    fn stop(&mut self, stop: Stop) {
        self.outputs.clear();
        self.outputs.push_back(Output::Stopped(stop.clone()));
        self.state = State::Stopped(stop);
    }

    fn retry_later(&mut self, now: Now) {
        self.retry_at = Some(now.plus_ms(self.config.retry_after_ms));
    }
}

#[cfg(test)]
mod tests;
