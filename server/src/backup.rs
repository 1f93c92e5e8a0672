//! Images of data centres: what a backup takes while everything runs, and what a restore begins with.
//!
//! An image carries nothing that could count or vote: no keys, no votes, no streams of gossip, no promises. Its value of a component is a
//! count that the group had reached by then, and is merged by maximum. So a restored image never counts anything twice
//! (`docs/decisions/0028-images-carry-no-identity.md`).

pub mod format;
pub mod manifest;
pub mod read;
pub mod serve;

use tidemark_proto::ids::AggregatorId;
use tidemark_transport::certs::FURTHER_AGGREGATORS;

/// The name of an aggregator among those of its data centre.
pub fn part_name(aggregator: AggregatorId) -> &'static str {
    let further = usize::from(aggregator.seat).checked_sub(1).and_then(|further| FURTHER_AGGREGATORS.get(further));
    further.copied().unwrap_or("first")
}

pub use format::{FormatError, Head, RecordReader, RecordWriter};
pub use manifest::{ImageEntry, MANIFEST_FILE, Manifest, ManifestError};
pub use read::{ImageFile, ReadError};
