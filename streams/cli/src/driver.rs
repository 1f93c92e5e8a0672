//! Carries out what an owner asks for, on a directory.

use crate::error::CliError;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use tidemark_proto::series::UnixTime;
use tidemark_proto::series::calendar::Zone;
use tidemark_streams_core::blob::{BlobKey, BlobMeta, Level, PartitionId};
use tidemark_streams_core::event::EventTypes;
use tidemark_streams_core::manifest::{Generation, MemberId};
use tidemark_streams_core::merge::MergePolicy;
use tidemark_streams_core::owner::{Content, DeadLetter, Input, Output, Owner, OwnerConfig, Put};
use tidemark_streams_core::rollup::Rollups;
use tidemark_streams_core::time::Now;
use tidemark_streams_store::directory::{Directory, DirectoryError, live_blob};
use tidemark_streams_store::folder::ReadError;
use tidemark_streams_store::parquet_rows::Wanted;

/// A directory has one partition.
pub const PARTITION: PartitionId = PartitionId(0);
/// Memory of a fold. Its owner flushes before it takes more.
const FOLD_BYTES_MAX: usize = 1 << 30;
/// Dead letters that are held before they are written.
const DEAD_LETTERS_HELD_MAX: usize = 1_000;
/// A row of a file waits at most so long for its flush.
const FLUSH_AFTER_MS: u64 = 60_000;
/// The local log loses no proposal, and a blob that cannot be written ends the command: neither is tried again.
const RETRY_AFTER_MS: u64 = 60_000;
const KEEP_FLUSHED_MS: u64 = 10_000;
/// Memory of rows that were flushed and not merged yet. Merges read further rows from their blobs.
const RECENT_BYTES_MAX: usize = 128 << 20;
/// Counts that are held where none are counted.
const OPERATOR_COUNTS: u64 = 1;

pub struct Driver {
    pub directory: Directory,
    pub owner: Owner,
    unreadable: Unreadable,
    recent: Recent,
}

/// The rows of deltas that this process wrote, so that the next merge does not unpack their files.
#[derive(Default)]
struct Recent {
    rows: BTreeMap<BlobKey, Arc<Rollups>>,
    bytes: usize,
}

/// What happens where a live blob cannot be read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unreadable {
    EndsCommand,
    /// Merges that need it wait.
    IsPassedOver,
}

pub fn now() -> Now {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Now(since.as_millis() as u64)
}

impl Driver {
    /// Claims the partition of a directory.
    ///
    /// # Errors
    /// The directory fails, something that it needs is paused, or the claim is refused.
    pub fn claim(directory: Directory, types: EventTypes, flush_counts: u64) -> Result<Driver, CliError> {
        let pauses = directory.manifest().pauses();
        if let Some(at_ms) = pauses.of_partition(PARTITION) {
            return Err(CliError::Paused { since: time(at_ms) });
        }
        let paused = |(name, at_ms): (&str, u64)| CliError::TypePaused { name: name.to_owned(), since: time(at_ms) };
        let effective = directory.manifest().schema().effective(&types);
        if let Some(found) = pauses.types().find(|(name, _)| effective.find(name).is_some()) {
            return Err(paused(found));
        }
        Driver::new(directory, types, flush_counts, Unreadable::EndsCommand)
    }

    /// Claims the partition of a directory with blobs that may be damaged, and counts no rows.
    ///
    /// # Errors
    /// The directory fails, the partition is paused, or the claim is refused.
    pub fn claim_for_repair(directory: Directory) -> Result<Driver, CliError> {
        if let Some(at_ms) = directory.manifest().pauses().of_partition(PARTITION) {
            return Err(CliError::Paused { since: time(at_ms) });
        }
        Driver::new(directory, EventTypes::none(), OPERATOR_COUNTS, Unreadable::IsPassedOver)
    }

    /// Claims the partition for an operator, which counts no rows.
    ///
    /// # Errors
    /// The directory fails, or the claim is refused.
    pub fn claim_for_operator(directory: Directory) -> Result<Driver, CliError> {
        Driver::new(directory, EventTypes::none(), OPERATOR_COUNTS, Unreadable::EndsCommand)
    }

    fn new(
        directory: Directory,
        types: EventTypes,
        flush_counts: u64,
        unreadable: Unreadable,
    ) -> Result<Driver, CliError> {
        let generation = directory.manifest().partition(PARTITION).map_or(0, |partition| partition.generation.0);
        let config = OwnerConfig {
            partition: PARTITION,
            member: MemberId(rand::random()),
            // The directory is open in this process only, which therefore gives the generations out.
            generation: Generation(generation + 1),
            types,
            seed: rand::random(),
            flush_after_ms: FLUSH_AFTER_MS,
            cells_max: usize::try_from(flush_counts).unwrap_or(usize::MAX),
            fold_bytes_max: FOLD_BYTES_MAX,
            dead_letters_max: DEAD_LETTERS_HELD_MAX,
            // A load has the directory for itself, and no other process waits for the store.
            merge: MergePolicy { merge_every_ms: 0, put_every_ms: 0, ..MergePolicy::default() },
            retry_after_ms: RETRY_AFTER_MS,
            keep_flushed_ms: KEEP_FLUSHED_MS,
        };
        let owner = Owner::new(now(), config);
        let mut driver = Driver { directory, owner, unreadable, recent: Recent::default() };
        driver.settle()?;
        Ok(driver)
    }

    /// Gives the owner an input, and carries out all that follows.
    ///
    /// # Errors
    /// As of [`Driver::claim`].
    pub fn handle(&mut self, input: Input<'_>) -> Result<(), CliError> {
        self.owner.handle(now(), input);
        self.settle()
    }

    /// Rows of all sources that count or were given up. Each dead letter that is replayed or dropped adds one.
    pub fn settled_letters(&self) -> u64 {
        let partition = self.directory.manifest().partition(PARTITION);
        let sources = partition.into_iter().flat_map(|partition| partition.sources.values());
        sources.map(|state| state.accepted + state.dropped).sum()
    }

    fn settle(&mut self) -> Result<(), CliError> {
        while let Some(output) = self.owner.poll_output() {
            match output {
                Output::Propose(command) => {
                    let outcome = self.directory.propose(&command)?;
                    let manifest = self.directory.manifest();
                    self.owner.handle(now(), Input::Applied { outcome: &outcome, manifest });
                }
                Output::Put(put) => {
                    let stored = self.directory.put(&put)?;
                    self.recent.keep(&put);
                    self.owner.handle(now(), Input::Stored { key: put.key, stored });
                }
                Output::Load(key) => self.load(key)?,
                Output::Stopped(stop) => return Err(CliError::Stopped(stop)),
            }
        }
        Ok(())
    }

    fn load(&mut self, key: BlobKey) -> Result<(), CliError> {
        let missing = || DirectoryError::Read(ReadError::Missing { name: key.to_string() });
        let meta = live_blob(self.directory.manifest(), &key).ok_or_else(missing)?;
        let may_fail = self.unreadable == Unreadable::IsPassedOver;
        let recent = self.recent.take(&key);
        debug_assert!(recent.as_ref().is_none_or(|rows| self.has(&meta, rows)), "{key} has other rows than were put");
        let recent = recent.map(|rows| Ok(Read::Rows(rows)));
        match recent.unwrap_or_else(|| self.read(&meta)) {
            Ok(Read::Rows(rows)) => self.owner.handle(now(), Input::Loaded { key, rows }),
            Ok(Read::Letters(letters)) => self.owner.handle(now(), Input::LoadedLetters { key, letters }),
            Err(_) if may_fail => self.owner.handle(now(), Input::StoreFailed { key }),
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Whether a blob has these rows, if it can be read.
    fn has(&self, meta: &BlobMeta, rows: &Rollups) -> bool {
        self.directory.rows(meta, Wanted::All).map_or(true, |read| read == *rows)
    }

    fn read(&self, meta: &BlobMeta) -> Result<Read, DirectoryError> {
        match meta.level {
            Level::DeadLetters => Ok(Read::Letters(self.directory.letters(meta)?)),
            Level::Delta | Level::Hour | Level::Day | Level::Period => {
                Ok(Read::Rows(self.directory.rows(meta, Wanted::All)?))
            }
        }
    }
}

impl Recent {
    /// Keeps the rows of a delta, while there is room. The next merge needs them.
    fn keep(&mut self, put: &Put) {
        let (Level::Delta, Content::Rows(rows)) = (put.level, &put.content) else { return };
        let bytes = rows.bytes();
        if self.bytes + bytes <= RECENT_BYTES_MAX {
            self.bytes += bytes;
            self.rows.insert(put.key, Arc::clone(rows));
        }
    }

    /// The rows of a blob. A later merge, which is rare, reads the file.
    fn take(&mut self, key: &BlobKey) -> Option<Rollups> {
        let rows = self.rows.remove(key)?;
        self.bytes -= rows.bytes();
        Some(Arc::unwrap_or_clone(rows))
    }
}

/// What a blob holds.
enum Read {
    Rows(Rollups),
    Letters(Vec<DeadLetter>),
}

/// A time in milliseconds since 1970 as a text of UTC.
pub fn time(at_ms: u64) -> String {
    UnixTime::from_s((at_ms / 1_000) as i64).map_or_else(|_| at_ms.to_string(), |at| Zone::UTC.text(at))
}
