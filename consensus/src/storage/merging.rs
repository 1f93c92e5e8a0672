//! Merges the files of a tree on a thread of our own. One of fjall's threads has to be free to write memtables away. While another thread
//! merges, that free thread takes the next merge from their queue and puts it back, without rest, until the other is done.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use fjall::compaction::Leveled;
use fjall::{AbstractTree, Database, Keyspace, KeyspaceCreateOptions};

/// Number of files of the first level that are merged into the next level together; that level is this many times as large as a file.
/// Fewer, and rows are written again more often; more, and a start reads from more files at a time.
pub(super) const FILES_MERGED: u8 = 8;
const _: () = assert!(FILES_MERGED < FILES_BEHIND);
/// Files of the first level at which fjall's threads merge too: more than there are unless merges fall behind, and fewer than those that
/// halt writers (20).
pub(super) const FILES_BEHIND: u8 = 16;
/// How long a memtable that is being written away is waited for before looking again.
const LOOK: Duration = Duration::from_millis(20);

/// The thread; dropped, it ends when the merge that is under way has.
pub(super) struct Merging {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// There may be something to merge.
    due: bool,
    over: bool,
    failed: bool,
}

/// Why files are not merged.
#[derive(Debug, thiserror::Error)]
enum MergeError {
    #[error(transparent)]
    Store(#[from] fjall::Error),
    #[error("it panicked")]
    Panicked,
}

impl Merging {
    /// Begins with what a tree that was closed has left. `options` are those of a table that is not there, which does not happen.
    pub fn start(db: Database, options: KeyspaceCreateOptions, step_back: fn()) -> std::io::Result<Merging> {
        let shared =
            Arc::new(Shared { state: Mutex::new(State { due: true, ..State::default() }), ..Shared::default() });
        let of_thread = shared.clone();
        let work = move || {
            step_back();
            while of_thread.wait() {
                let merged = catch_unwind(AssertUnwindSafe(|| of_thread.merge(&db, &options)));
                // fjall asserts on some damaged files.
                let merged = merged.unwrap_or(Err(MergeError::Panicked));
                if let Err(error) = merged {
                    tracing::error!(%error, "files of rows could not be merged: no more rows are written");
                    of_thread.lock().failed = true;
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("rows-merge".to_owned()).spawn(work)?;
        Ok(Merging { shared, thread: Some(thread) })
    }

    /// A memtable was sealed: there will be one file more.
    pub fn is_due(&self) {
        self.shared.lock().due = true;
        self.shared.changed.notify_one();
    }

    /// Whether a merge has failed. The files are whole.
    pub fn has_failed(&self) -> bool {
        self.shared.lock().failed
    }

    /// No further merge begins.
    pub fn end(&self) {
        self.shared.lock().over = true;
        self.shared.changed.notify_one();
    }
}

impl Drop for Merging {
    fn drop(&mut self) {
        self.end();
        if let Some(thread) = self.thread.take() {
            // It says by itself why it failed.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there may be something to do; whether that is before the end.
    fn wait(&self) -> bool {
        let idle = |state: &mut State| !state.due && !state.over;
        let mut state = self.changed.wait_while(self.lock(), idle).unwrap_or_else(PoisonError::into_inner);
        state.due = false;
        !state.over
    }

    /// Merges until nothing is left of it.
    fn merge(&self, db: &Database, options: &KeyspaceCreateOptions) -> Result<(), MergeError> {
        let all = || -> Result<Vec<Keyspace>, fjall::Error> {
            db.list_keyspace_names().iter().map(|name| db.keyspace(name, || options.clone())).collect()
        };
        loop {
            let tables = all()?;
            let is_written = tables.iter().all(|table| table.sealed_memtable_count() == 0);
            let mut is_changed = false;
            for table in &tables {
                if self.lock().over {
                    return Ok(());
                }
                is_changed |= merge_once(db, table)?;
            }
            match (is_changed, is_written) {
                (true, _) => {}
                (false, true) => return Ok(()),
                (false, false) => {
                    let over = |state: &mut State| !state.over;
                    drop(self.changed.wait_timeout_while(self.lock(), LOOK, over));
                }
            }
        }
    }
}

/// One merge, if one is due; whether there was one. Rows that no moment shows any more are left out, as fjall knows them.
fn merge_once(db: &Database, table: &Keyspace) -> Result<bool, fjall::Error> {
    // A file that only moves to another level is a change too.
    let version = || table.tree.current_version().id();
    let before = version();
    let unseen = db.supervisor.snapshot_tracker.get_seqno_safe_to_gc();
    table.tree.compact(Arc::new(Leveled::default().with_l0_threshold(FILES_MERGED)), unseen)?;
    Ok(version() != before)
}
