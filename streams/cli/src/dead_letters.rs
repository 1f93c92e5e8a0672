//! `dead-letters`: prints the rows that were refused.

use crate::args::DirectoryArgs;
use crate::error::CliError;
use std::io::Write;
use tidemark_streams_core::blob::{BlobMeta, Level};
use tidemark_streams_core::owner::DeadLetter;
use tidemark_streams_store::dead_letters::{decode, encode};
use tidemark_streams_store::directory::{Directory, IfMissing};
use tidemark_streams_store::folder::file_name;

pub fn run(args: &DirectoryArgs, out: &mut impl Write) -> Result<(), CliError> {
    let directory = Directory::open(&args.dir, IfMissing::Refuse)?;
    for meta in blobs(&directory) {
        let letters = read(&directory, &meta)?;
        let name = || file_name(&meta.key, meta.level);
        out.write_all(&encode(&letters).map_err(|error| CliError::DeadLetters { name: name(), error })?)?;
    }
    Ok(())
}

/// The blobs of dead letters, in the order of their commits.
pub fn blobs(directory: &Directory) -> impl Iterator<Item = BlobMeta> {
    directory.manifest().live().filter(|meta| meta.level == Level::DeadLetters)
}

pub fn read(directory: &Directory, meta: &BlobMeta) -> Result<Vec<DeadLetter>, CliError> {
    let name = || file_name(&meta.key, meta.level);
    decode(&directory.read(meta)?).map_err(|error| CliError::DeadLetters { name: name(), error })
}

/// The dead letter that was written last.
pub fn last(directory: &Directory) -> Result<Option<DeadLetter>, CliError> {
    let last = blobs(directory).max_by_key(|meta| meta.key.seq);
    last.map_or(Ok(None), |meta| Ok(read(directory, &meta)?.pop()))
}
