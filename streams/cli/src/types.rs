//! `types`: lists event types, renames them, deletes them, reuses their names, and adds dimensions to them.

use crate::args::{AddDimensionArgs, RenameTypeArgs, TypesCommand};
use crate::driver::{Driver, PARTITION, now, time};
use crate::error::CliError;
use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use tidemark_streams_core::blob::{BlobMeta, Level};
use tidemark_streams_core::manifest::{Command, Outcome, SetTypes, TypesSet};
use tidemark_streams_core::schema::{FormerName, Schema, TypeChange};
use tidemark_streams_serve::{LOG_FILE, SOURCE, next_row};
use tidemark_streams_store::directory::{Collected, Directory, IfMissing};
use tidemark_streams_store::parquet_rows::Wanted;

pub fn run(command: &TypesCommand, out: &mut impl Write) -> Result<(), CliError> {
    match command {
        TypesCommand::List(args) => print(listed(&args.dir)?.manifest().schema(), out),
        TypesCommand::Rename(args) => rename(args, out),
        TypesCommand::Delete(args) => delete(&args.name, &args.directory.dir, out),
        TypesCommand::Add(args) => {
            let dir = &args.directory.dir;
            let mut directory = listed(dir)?;
            change(dir, &mut directory, TypeChange::Add { name: args.name.clone() })?;
            print(directory.manifest().schema(), out)
        }
        TypesCommand::AddDimension(args) => add_dimension(args, out),
    }
}

fn add_dimension(args: &AddDimensionArgs, out: &mut impl Write) -> Result<(), CliError> {
    let AddDimensionArgs { name, dimension, values_max, directory } = args;
    let dir = &directory.dir;
    let mut directory = listed(dir)?;
    let change_to =
        TypeChange::AddDimension { name: name.clone(), dimension: dimension.clone(), values_max: *values_max };
    change(dir, &mut directory, change_to)?;
    print(directory.manifest().schema(), out)
}

fn rename(args: &RenameTypeArgs, out: &mut impl Write) -> Result<(), CliError> {
    let dir = &args.directory.dir;
    let mut directory = listed(dir)?;
    let RenameTypeArgs { from, to, merge, .. } = args;
    change(dir, &mut directory, TypeChange::Rename { from: from.clone(), to: to.clone(), merges: *merge })?;
    print(directory.manifest().schema(), out)
}

/// Deletes a type, and returns once no blob of rows holds it. It continues an interrupted deletion.
fn delete(name: &str, dir: &Path, out: &mut impl Write) -> Result<(), CliError> {
    let mut directory = listed(dir)?;
    if let Some(at_ms) = directory.manifest().pauses().of_partition(PARTITION) {
        return Err(CliError::Paused { since: time(at_ms) });
    }
    change(dir, &mut directory, TypeChange::Delete { name: name.to_owned() })?;
    let mut driver = Driver::claim_for_operator(directory)?;
    let collected = driver.directory.collect()?;
    match (driver.owner.deleting(), collected) {
        (0, Collected::Done) => {}
        (0, Collected::Held { damaged }) => return Err(CliError::FilesHeld { damaged }),
        (blobs, _) => return Err(CliError::DeletionPending { blobs }),
    }
    let manifest = driver.directory.manifest();
    let position = manifest.partition(PARTITION).map_or(0, |partition| partition.source(SOURCE).next_row);
    let events = log_row(dir, &driver.directory)?.saturating_sub(position);
    let letters: u64 = manifest.live().filter(|meta| meta.level == Level::DeadLetters).map(|meta| meta.rows).sum();
    writeln!(out, "no blob of rows holds event type {name}; later events of it become dead letters")?;
    writeln!(out, "{events} events in the intake's log and {letters} dead letters are left, and may be of this type")?;
    print(driver.directory.manifest().schema(), out)
}

fn change(dir: &Path, directory: &mut Directory, change: TypeChange) -> Result<(), CliError> {
    let log_row = log_row(dir, directory)?;
    propose(directory, SetTypes { set: TypesSet::Change(change), asked_at_ms: now().0, log_row })
}

/// The first row after all events in the intake's log. A killed server may have left events that are not in blobs.
fn log_row(dir: &Path, directory: &Directory) -> Result<u64, CliError> {
    let path = dir.join(LOG_FILE);
    match path.exists() {
        true => Ok(next_row(&path, directory.id())?),
        false => Ok(0),
    }
}

fn propose(directory: &mut Directory, set: SetTypes) -> Result<(), CliError> {
    if let Outcome::Types { result: Err(refused) } = directory.propose(&Command::Types(set))? {
        return Err(CliError::TypesChange(refused));
    }
    Ok(())
}

/// Opens a directory and makes sure that all its event types are known. Blobs of an earlier version are read once for this.
fn listed(dir: &Path) -> Result<Directory, CliError> {
    let mut directory = Directory::open(dir, IfMissing::Refuse)?;
    if directory.manifest().schema().is_whole() {
        return Ok(directory);
    }
    let mut names: BTreeSet<String> = BTreeSet::new();
    let metas: Vec<BlobMeta> = directory.manifest().live().filter(|meta| meta.level.is_of_rows()).collect();
    for meta in &metas {
        names.extend(directory.rows(meta, Wanted::All)?.types().iter().cloned());
    }
    let set = SetTypes { set: TypesSet::List(names.into_iter().collect()), asked_at_ms: now().0, log_row: 0 };
    propose(&mut directory, set)?;
    Ok(directory)
}

fn print(schema: &Schema, out: &mut impl Write) -> Result<(), CliError> {
    let dimensions = schema.dimensions();
    for name in schema.listed() {
        writeln!(out, "{name}")?;
        for (dimension, values_max) in dimensions.of_types.get(name).into_iter().flatten() {
            let dimension = dimensions.names.name(*dimension);
            writeln!(out, "{name}\tdimension {dimension}, at most {values_max} values of a tenant in a flush")?;
        }
    }
    for (name, former) in schema.former() {
        match former {
            FormerName::Alias(now) => writeln!(out, "{name}\tcounts as {now}")?,
            FormerName::Deleted => {
                let at = schema.deleted_at_ms(name).map_or_else(String::new, time);
                writeln!(out, "{name}\tdeleted {at}")?;
            }
        }
    }
    Ok(())
}
