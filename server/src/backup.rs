//! Images of data centres: what a backup takes while everything runs, and what a restore begins with.
//!
//! An image carries nothing that could count or vote: no keys, no votes, no streams of gossip, no promises. What it knows of a
//! component is what a group had counted by then, for ever, and is merged by maximum, so that an image which is put back never
//! counts anything twice (`docs/decisions/0028-images-carry-no-identity.md`).

pub mod format;
pub mod manifest;
pub mod read;
pub mod serve;

use tidemark_proto::ids::AggregatorId;
use tidemark_transport::certs::FURTHER_AGGREGATORS;

/// What an aggregator is called beside others of its data centre.
pub fn part_name(aggregator: AggregatorId) -> &'static str {
    let further = usize::from(aggregator.seat).checked_sub(1).and_then(|further| FURTHER_AGGREGATORS.get(further));
    further.copied().unwrap_or("first")
}

pub use format::{FormatError, Head, RecordReader, RecordWriter};
pub use manifest::{ImageEntry, MANIFEST_FILE, Manifest, ManifestError};
pub use read::{ImageFile, ReadError};
