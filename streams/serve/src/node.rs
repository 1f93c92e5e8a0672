//! The state that requests and the owner's thread share.

use crate::archive::ArchiveView;
pub use crate::clock::now_ms;
use crate::counters::Counters;
use crate::feed::Feed;
use crate::log::IntakeLog;
use crate::messages::{Message, PARTITION};
use crate::names::{Names, PresentNames};
use crate::pin_source::{OwnerPins, PinSource};
use crate::queries::{Queries, QueryParts};
use crate::settings::Settings;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tidemark_streams_core::erasure::{Erasure, ErasureKey};
use tidemark_streams_core::manifest::Manifest;
use tidemark_streams_core::pause::Pauses;
use tidemark_streams_core::retention::{Horizons, Retention};
use tidemark_streams_core::schema::Schema;
use tidemark_streams_core::scope::TenantHash;
use tidemark_streams_core::time::Day;
use tidemark_streams_store::catalogue::Catalogue;
use tidemark_streams_store::directory::BlobReader;
use tidemark_streams_store::uploads::Uploads;

/// A running server.
pub struct Node {
    pub settings: Settings,
    pub queries: Arc<Queries>,
    pub catalogue: Catalogue,
    pub engine: SyncSender<Message>,
    pub feed: Feed,
    names: Arc<PresentNames>,
    /// Held while one number of the retention is changed: the other one stays what it is.
    pub changing_retention: tokio::sync::Mutex<()>,
    pub started: Instant,
    state: Mutex<Shared>,
}

#[derive(Default)]
struct Shared {
    log: Option<Arc<IntakeLog>>,
    problem: Option<String>,
    archive: ArchiveView,
    pauses: Arc<Pauses>,
    kept: Arc<Kept>,
    owner: OwnerView,
    is_stopping: bool,
}

/// What the manifest says of the time that rows are kept, and of tenants that are tests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    pub retention: Retention,
    pub horizons: Horizons,
    /// The sum of the counts that have expired.
    pub expired: u64,
    pub test_tenants: Vec<TestTenant>,
}

/// A tenant that is marked as a test, and the last erasure of its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TestTenant {
    pub tenant: TenantHash,
    pub erasure: Option<Erasure>,
}

impl Kept {
    pub fn of(manifest: &Manifest) -> Kept {
        let partition = manifest.partition(PARTITION);
        let erasure =
            |tenant: TenantHash| partition.and_then(|known| known.erasures.get(&ErasureKey { tenant, listing: None }));
        let marked = manifest.test_tenants().iter();
        Kept {
            retention: *manifest.retention(),
            horizons: partition.map_or(Horizons::default(), |known| known.horizons),
            expired: partition.map_or(0, |known| u64::try_from(known.expired_total).unwrap_or(u64::MAX)),
            test_tenants: marked.map(|tenant| TestTenant { tenant: *tenant, erasure: erasure(*tenant) }).collect(),
        }
    }
}

/// The report of the owner's thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct OwnerView {
    /// The partition is claimed.
    pub is_owner: bool,
    /// The row behind all that are folded, and behind all that are committed.
    pub folded: u64,
    pub committed: u64,
    /// When the last batch that is folded was accepted.
    pub folded_at_ms: u64,
    pub counts_held: u64,
    pub bytes_held: u64,
    pub live_blobs: u64,
    pub unreadable_blobs: u64,
    /// In live blobs.
    pub dead_letters: u64,
    pub erasures_pending: u64,
    /// Live blobs that may hold rows of deleted types.
    pub deleting_blobs: u64,
    /// No file holds rows of erasures and deletions of types that were asked for up to then.
    pub cleaned_ms: u64,
    /// The same of files of the archive, for erasures.
    pub archive_cleaned_ms: u64,
    /// The sum of the counts with values beyond the bound of a dimension.
    pub others: u64,
    pub manifest_index: u64,
    /// Events of earlier days are not kept.
    pub kept_from: Day,
}

impl Node {
    pub fn new(settings: Settings, reader: BlobReader, catalogue: Catalogue, engine: SyncSender<Message>) -> Node {
        let names = Arc::new(PresentNames::default());
        let pins = OwnerPins { engine: engine.clone(), names: Arc::clone(&names) };
        let source = PinSource::Owner(pins);
        let tables = Uploads::of(&settings.dir);
        let parts = QueryParts { source, reader, stores: Arc::default(), keys: settings.keys.clone(), tables };
        let queries = Arc::new(Queries::new(parts, &settings.sql));
        Node {
            settings,
            queries,
            catalogue,
            engine,
            feed: Feed::default(),
            names,
            changing_retention: tokio::sync::Mutex::default(),
            started: Instant::now(),
            state: Mutex::default(),
        }
    }

    pub fn counters(&self) -> &Counters {
        &self.queries.stores.counters
    }

    /// The log, while it is open.
    pub fn log(&self) -> Option<Arc<IntakeLog>> {
        self.shared().log.clone()
    }

    pub fn set_log(&self, log: Option<Arc<IntakeLog>>) {
        self.shared().log = log;
    }

    /// Why the owner's thread makes no progress. The log is not cut while the archive cannot be written.
    pub fn problem(&self) -> Option<String> {
        let shared = self.shared();
        shared.problem.clone().or_else(|| shared.archive.problem.clone())
    }

    /// The archive of raw events.
    pub fn archive(&self) -> ArchiveView {
        self.shared().archive.clone()
    }

    pub fn set_archive(&self, archive: ArchiveView) {
        self.shared().archive = archive;
    }

    pub fn set_problem(&self, problem: Option<String>) {
        self.shared().problem = problem;
    }

    /// The pauses.
    pub fn pauses(&self) -> Arc<Pauses> {
        Arc::clone(&self.shared().pauses)
    }

    pub fn set_pauses(&self, pauses: &Pauses) {
        let mut shared = self.shared();
        if *shared.pauses != *pauses {
            shared.pauses = Arc::new(pauses.clone());
        }
    }

    pub fn kept(&self) -> Arc<Kept> {
        Arc::clone(&self.shared().kept)
    }

    pub fn set_kept(&self, kept: Kept) {
        let mut shared = self.shared();
        if *shared.kept != kept {
            shared.kept = Arc::new(kept);
        }
    }

    /// The names of event types.
    pub fn names(&self) -> Names {
        self.names.get()
    }

    pub fn set_schema(&self, schema: &Arc<Schema>) {
        self.names.follow(schema, &self.settings.types);
    }

    pub fn owner(&self) -> OwnerView {
        self.shared().owner
    }

    pub fn set_owner(&self, owner: OwnerView) {
        self.shared().owner = owner;
    }

    pub fn is_stopping(&self) -> bool {
        self.shared().is_stopping
    }

    pub fn set_stopping(&self) {
        self.shared().is_stopping = true;
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
