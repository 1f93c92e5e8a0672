//! `listings`: fills the catalogue of listings, and prints the tenant of a listing.

use crate::args::{ListingsCommand, LoadListingsArgs, ShowListingArgs};
use crate::error::CliError;
use std::fs::File;
use std::io::Write;
use tidemark_proto::series::calendar::Zone;
use tidemark_streams_core::event::RawEvent;
use tidemark_streams_core::owner::Record;
use tidemark_streams_core::values::DimensionNames;
use tidemark_streams_serve::open_or_create;
use tidemark_streams_source::file::{FileRows, SourceError};
use tidemark_streams_source::mapping::Mapping;
use tidemark_streams_source::rows::Rows;
use tidemark_streams_source::value::Reading;
use tidemark_streams_store::catalogue::{Added, Addition, Catalogue, CatalogueError};
use tidemark_streams_store::directory::{Directory, IfMissing};

/// Rows that are read at a time.
const BATCH_ROWS: usize = 4_096;

pub fn run(command: &ListingsCommand, out: &mut impl Write) -> Result<(), CliError> {
    match command {
        ListingsCommand::Load(args) => load(args, out),
        ListingsCommand::Show(args) => show(args, out),
    }
}

/// Adds all rows of a file in one transaction. A bad row or a conflict adds nothing.
fn load(args: &LoadListingsArgs, out: &mut impl Write) -> Result<(), CliError> {
    let of_file = |error: SourceError| CliError::Source { path: args.file.clone(), error };
    let mapping = Mapping::of_listings(&args.map)?;
    let file = File::open(&args.file).map_err(|error| of_file(error.into()))?;
    let reading = Reading { mapping, zone: Zone::UTC, dimensions: DimensionNames::default() };
    let mut rows = FileRows::open(&file, reading).map_err(of_file)?;
    let directory = open_or_create(&args.directory.dir)?;
    let catalogue = Catalogue::open(&args.directory.dir, directory.id())?;
    let mut addition = catalogue.addition()?;
    let mut batch = Rows::default();
    let mut read = 0;
    loop {
        batch.clear();
        rows.read(&mut batch, BATCH_ROWS).map_err(of_file)?;
        if batch.is_empty() {
            break;
        }
        for record in batch.records("") {
            read += 1;
            add(&mut addition, record, read, args)?;
        }
    }
    if read == 0 {
        return Err(CliError::NoRows { path: args.file.clone() });
    }
    let Added { added, known, .. } = addition.commit()?;
    Ok(writeln!(out, "{}: {added} listings were added, {known} were known", args.file.display())?)
}

fn add(addition: &mut Addition, record: Record<'_>, row: u64, args: &LoadListingsArgs) -> Result<(), CliError> {
    let refused = |why: String| CliError::ListingRow { path: args.file.clone(), row, why };
    match record {
        Record::Broken { reason, .. } => Err(refused(reason.to_owned())),
        Record::Event(RawEvent { listing, tenant, .. }) => match addition.add(listing, tenant) {
            Err(error @ (CatalogueError::Entry(_) | CatalogueError::Conflict { .. })) => {
                Err(refused(error.to_string()))
            }
            added => Ok(added?),
        },
    }
}

fn show(args: &ShowListingArgs, out: &mut impl Write) -> Result<(), CliError> {
    let directory = Directory::open(&args.directory.dir, IfMissing::Refuse)?;
    let entry = Catalogue::open(&args.directory.dir, directory.id())?.view()?.entry(&args.listing)?;
    match entry {
        Some(entry) => Ok(writeln!(out, "{}\tversion {}", entry.tenant, entry.since.0)?),
        None => Err(CliError::UnknownListing { listing: args.listing.chars().take(80).collect() }),
    }
}
