//! The catalogue of listings as the intake asks for it.

use std::cell::OnceCell;
use tidemark_streams_intake::listings::{LookupFailed, Tenants};
use tidemark_streams_store::catalogue::{Catalogue, Version, View};

/// The catalogue as of a version.
#[derive(Clone, Copy)]
pub struct AsOf<'v> {
    pub view: &'v View,
    pub version: Version,
}

impl AsOf<'_> {
    /// All entries of a view.
    pub fn latest(view: &View) -> AsOf<'_> {
        AsOf { view, version: view.version() }
    }
}

impl Tenants for AsOf<'_> {
    fn tenant_of(&self, listing: &str) -> Result<Option<String>, LookupFailed> {
        self.view.tenant(listing, self.version).map_err(LookupFailed::new)
    }
}

/// The catalogue as of the first lookup. Most requests name tenants, and look nothing up.
pub(crate) struct Latest<'c> {
    catalogue: &'c Catalogue,
    view: OnceCell<View>,
}

impl Latest<'_> {
    pub fn of(catalogue: &Catalogue) -> Latest<'_> {
        Latest { catalogue, view: OnceCell::new() }
    }
}

impl Tenants for Latest<'_> {
    fn tenant_of(&self, listing: &str) -> Result<Option<String>, LookupFailed> {
        let view = match self.view.get() {
            Some(view) => view,
            None => {
                let view = self.catalogue.view().map_err(LookupFailed::new)?;
                self.view.get_or_init(|| view)
            }
        };
        let found = view.tenant(listing, view.version()).inspect_err(|error| self.catalogue.close_after(error));
        found.map_err(LookupFailed::new)
    }
}
