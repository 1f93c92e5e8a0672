//! The rules of event streams: hourly rollups of events per (tenant, listing), each event counted exactly once.
//!
//! Nothing here does IO, reads a clock or iterates in an order that differs between two runs. Two machines carry the rules:
//!
//! * [`manifest::Manifest`] is replicated: `apply(command) -> outcome`. It knows which blobs are live and up to which row of each
//!   source they count.
//! * [`owner::Owner`] is event-driven: `handle(now, input)`, `poll_output()` until `None`, `poll_timeout()`. It folds the rows of
//!   a source in memory, writes blobs, and commits them to the manifest.
//!
//! Reading order: [`limits`], [`values`], [`event`], [`rollup`], [`fold`], [`scope`], [`layout`], [`blob`], [`pause`], [`retention`],
//! [`erasure`], [`schema`], [`manifest`], [`owner`], [`merge`], [`collector`], [`query`], [`feed`], [`rebuild`], [`recover`].

pub mod blob;
pub mod codec;
pub mod collector;
pub mod erasure;
pub mod event;
pub mod feed;
pub mod fold;
pub mod layout;
pub mod limits;
mod live;
pub mod manifest;
pub mod merge;
pub mod names;
pub mod owner;
pub mod pause;
pub mod query;
pub mod rebuild;
pub mod recover;
pub mod retention;
pub mod rollup;
pub mod schema;
pub mod scope;
pub mod source;
pub mod teeth;
pub mod time;
pub mod values;
