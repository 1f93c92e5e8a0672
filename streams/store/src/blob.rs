//! A blob's content as bytes, and back.

use crate::dead_letters::{self, DeadLettersError};
use crate::footer::Footer;
use crate::parquet_rows::{self, RowsError};
use tidemark_streams_core::owner::{Content, Put};

/// Why content cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    #[error(transparent)]
    Rows(#[from] RowsError),
    #[error(transparent)]
    DeadLetters(#[from] DeadLettersError),
}

/// The bytes of a blob. `directory` is the id of the directory it is written to.
///
/// # Errors
/// [`BlobError`]: the library cannot write it.
pub fn encode(put: &Put, directory: &str) -> Result<Vec<u8>, BlobError> {
    match &put.content {
        Content::Rows(rows) => Ok(parquet_rows::encode(rows, &parquet_rows::footer_of(put, directory))?),
        Content::DeadLetters(letters) => Ok(dead_letters::encode_blob(letters, Footer::of(put, directory))?),
    }
}
