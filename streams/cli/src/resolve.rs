//! Tenants of the rows of a file that names listings only.

use crate::error::CliError;
use std::path::Path;
use tidemark_streams_core::source::SourceId;
use tidemark_streams_serve::AsOf;
use tidemark_streams_source::file::FileRows;
use tidemark_streams_source::rows::Rows;
use tidemark_streams_store::catalogue::{Catalogue, SourceVersions, Version, View};
use tidemark_streams_store::directory::Directory;

/// The catalogue for the rows of a source.
pub struct OfSource {
    view: View,
    /// `None`: all entries are known.
    versions: Option<SourceVersions>,
}

/// The catalogue of a directory, which has entries.
///
/// # Errors
/// It cannot be read, or has no entries.
pub fn opened(path: &Path, directory: &Directory) -> Result<Catalogue, CliError> {
    let catalogue = Catalogue::open(path, directory.id())?;
    match catalogue.view()?.version() {
        Version(0) => Err(CliError::NoListings),
        Version(_) => Ok(catalogue),
    }
}

impl OfSource {
    /// For a load that goes on at a row. It writes down the version, so that a later reader resolves these rows in the same way.
    ///
    /// # Errors
    /// The catalogue cannot be written, or was lost.
    pub fn begin(catalogue: &Catalogue, source: SourceId, row: u64) -> Result<OfSource, CliError> {
        let versions = Some(catalogue.begin_source(source, row)?);
        Ok(OfSource { view: catalogue.view()?, versions })
    }

    /// For rows that were loaded before: as they were resolved then.
    ///
    /// # Errors
    /// The catalogue cannot be read, or was lost.
    pub fn as_loaded(catalogue: &Catalogue, source: SourceId) -> Result<OfSource, CliError> {
        let versions = Some(catalogue.source(source)?);
        Ok(OfSource { view: catalogue.view()?, versions })
    }

    /// For rows that were accepted, also later by a replay. A listing keeps its tenant, so its entry may be of any version.
    ///
    /// # Errors
    /// The catalogue cannot be read.
    pub fn as_accepted(catalogue: &Catalogue) -> Result<OfSource, CliError> {
        Ok(OfSource { view: catalogue.view()?, versions: None })
    }

    /// Gives the rows of a batch their tenants. `from` is the number of its first row in the file.
    ///
    /// # Errors
    /// The catalogue cannot be read.
    pub fn resolve(&self, rows: &FileRows, batch: &mut Rows, event_type: &str, from: u64) -> Result<(), CliError> {
        let catalogue_of = |number: usize| match &self.versions {
            Some(versions) => AsOf { view: &self.view, version: versions.of_row(from + number as u64) },
            None => AsOf::latest(&self.view),
        };
        Ok(rows.resolve(batch, event_type, catalogue_of)?)
    }
}
