//! The total of all live blobs of a directory. Each blob is read whole.

use crate::BenchError;
use std::path::Path;
use tidemark_streams_store::directory::{Directory, IfMissing};
use tidemark_streams_store::parquet_rows::Wanted;

/// Compares the total of the live blobs with the number of sent events. It does not compare single rows.
pub fn compare_total(dir: &Path, sent: u64) -> Result<(), BenchError> {
    let directory = Directory::open(dir, IfMissing::Refuse)?;
    let mut found = 0;
    for meta in directory.manifest().live().filter(|meta| meta.level.is_of_rows()) {
        found += directory.rows(&meta, Wanted::All)?.total();
    }
    if found == sent { Ok(()) } else { Err(BenchError::Total { found, sent }) }
}
