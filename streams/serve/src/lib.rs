//! Event streams in one process: an intake over HTTP, the owner of the partition, and queries.
//!
//! A request's events are acknowledged once they are in the log of the intake. The owner folds them, writes blobs and commits them
//! with the position of the log; then the log is cut. A start goes on behind the committed position.
//!
//! * `settings`: what a start takes.
//! * `log`: the intake's log on disk; many requests share one sync.
//! * `archive`: raw events that were counted, for recounts and rebuilds.
//! * `engine`: the thread that owns the partition, and the thread that writes blobs.
//! * `catalogue`: tenants of events that name listings only.
//! * `dead_letters`: which dead letters an operator means, and what becomes of them.
//! * `query`: counts of a tenant, from blobs and from the owner's rows; `commit_times`: when blobs were committed.
//! * `fetch`: what queries read of blobs; `flights`: reads that queries share; `blob_cache` and `row_cache`: what was read before.
//! * `sql_rows`: the rows for a child of SQL; `query_log`: a line about each query in SQL.
//! * `http`: requests and answers. It decides nothing about counts.
//! * `pin_source`: the state that queries pin, of the owner here or of `following`, a manifest that is followed by `feed_client`.
//! * `queries` and `query_stores`: shared by queries; `feed`: what followers of this process may ask for; `names`: of event types.
//! * `secret` and `signed`: tokens of two kinds; `token_keys`: what a process checks them with; `token`: its own, for the servers.
//! * `open`: directories that a process may create.
//! * `node`: shared by these; `messages`: to the owner's thread; `counters` and `metrics`: what `/metrics` shows.

mod archive;
mod blob_cache;
mod catalogue;
mod clock;
mod commit_times;
mod counters;
pub mod dead_letters;
mod engine;
mod feed;
mod feed_client;
mod fetch;
mod flights;
mod following;
mod http;
mod log;
pub mod masking;
mod messages;
mod metrics;
mod names;
mod node;
mod open;
mod pin_source;
mod queries;
mod query;
mod query_log;
mod query_stores;
mod row_cache;
mod run;
pub mod secret;
pub mod settings;
pub mod signed;
mod sql_rows;
pub mod token;
pub mod token_keys;

pub use archive::{
    Archive, ArchiveError, Coverage, Damaged, DamagedFile, Missing, RAW_FOLDER, RawError, RawRead, read_raw,
};
pub use catalogue::AsOf;
pub use engine::SOURCE;
pub use log::{LOG_FILE, LogError, check_log, next_row};
pub use open::open_or_create;
pub use run::{ServeError, run, run_queries};
