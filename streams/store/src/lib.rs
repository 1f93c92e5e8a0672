//! Where event streams are kept: blobs in a folder, and the manifest on a local log beside them.
//!
//! * [`directory`]: one directory on disk, with its identity, its blobs and its manifest; faults in it are named.
//! * [`folder`] and [`disk`]: blobs as files through `object_store`, durable before a commit names them.
//! * [`blob`]: what is in a file: [`parquet_rows`] for rows, [`dead_letters`] for rows that were refused.
//! * [`footer`]: what a blob says of itself.
//! * [`host`]: the manifest machine on the log of `tidemark-consensus`; [`head`]: all of it but its blobs, in a file beside it.
//! * [`catalogue`]: the tenant of each listing, for events that name listings only.
//! * [`uploads`]: tables that tenants have uploaded, for queries in SQL.
//! * [`recover`]: builds a lost manifest again.
//!
//! Nothing here decides what is counted: `tidemark-streams-core` does.

pub mod blob;
pub mod catalogue;
pub mod dead_letters;
pub mod directory;
pub mod disk;
#[cfg(feature = "faults")]
pub mod faulty;
pub mod folder;
pub mod footer;
pub mod head;
pub mod host;
pub mod parquet_rows;
pub mod recover;
pub mod uploads;
