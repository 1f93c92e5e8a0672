//! The image of a data centre in a backup, read while everything runs.

use super::Aggregator;
use crate::storage::ViewRows;
use std::sync::Arc;
use tidemark_consensus::local::PersistError;
use tokio::sync::OwnedSemaphorePermit;

/// Images that are read at a time: while one is, the view's file keeps what it replaces.
pub const IMAGES_MAX: usize = 1;

/// A data centre at one moment: all that its view knew when it was asked for, and the ledger as applied there a little later.
pub struct Image {
    /// The entry up to which the ledger was applied.
    pub ledger_index: u64,
    /// The ledger's state, as a snapshot of it.
    pub ledger: Vec<u8>,
    pub rows: ViewRows,
    _permit: OwnedSemaphorePermit,
}

/// Why there is no image. Nothing was changed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ImageError {
    #[error("{IMAGES_MAX} image is being read already")]
    Busy,
    #[error("the view's file: {0}")]
    View(#[from] PersistError),
    #[error("the aggregator stops")]
    Stopped,
}

impl Aggregator {
    /// Writes the content of the view and returns it as it is then, with the ledger. No process waits for the reader of the image.
    pub async fn image(&self) -> Result<Image, ImageError> {
        let permit = Arc::clone(self.images()).try_acquire_owned().map_err(|_| ImageError::Busy)?;
        let rows = self.flushed_rows().await.ok_or(ImageError::Stopped)??;
        let (ledger_index, ledger) = self.with_ledger(|ledger| {
            let state = postcard::to_allocvec(ledger).expect("the ledger holds only what postcard can encode");
            (ledger.applied().0, state)
        });
        Ok(Image { ledger_index, ledger, rows, _permit: permit })
    }
}
