//! Errors of files.

use crate::mapping::MappingError;
use std::io;
use tidemark_files::csv::CsvError;

/// Why a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("CSV: {0}")]
    Csv(#[from] CsvError),
    #[error(transparent)]
    Mapping(#[from] MappingError),
    #[error("CSV: the first line, which names the columns: {0}")]
    Names(String),
    #[error("the file is empty: a line of names, JSON objects or Parquet are expected")]
    Empty,
    #[error(
        "the file begins with \"[\": a JSON array is not read: write one object in each line, as `jq -c '.[]'` does"
    )]
    JsonArray,
    #[error("Parquet: {0}")]
    Parquet(String),
    #[error("Parquet: column {name:?} is {found}: {expected}")]
    Column { name: String, found: String, expected: &'static str },
}
