//! `types`: lists event types, renames them, deletes them, and uses their names again.

use crate::args::{RenameTypeArgs, TypesCommand};
use crate::driver::{Driver, PARTITION, now, time};
use crate::error::CliError;
use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use tidemark_streams_core::blob::BlobMeta;
use tidemark_streams_core::manifest::{Command, Outcome, SetTypes, TypesSet};
use tidemark_streams_core::schema::{FormerName, Schema, TypeChange};
use tidemark_streams_store::directory::{Collected, Directory, IfMissing};
use tidemark_streams_store::parquet_rows::Wanted;

pub fn run(command: &TypesCommand, out: &mut impl Write) -> Result<(), CliError> {
    match command {
        TypesCommand::List(args) => print(listed(&args.dir)?.manifest().schema(), out),
        TypesCommand::Rename(args) => rename(args, out),
        TypesCommand::Delete(args) => delete(&args.name, &args.directory.dir, out),
        TypesCommand::Add(args) => {
            let mut directory = listed(&args.directory.dir)?;
            change(&mut directory, TypeChange::Add { name: args.name.clone() })?;
            print(directory.manifest().schema(), out)
        }
    }
}

fn rename(args: &RenameTypeArgs, out: &mut impl Write) -> Result<(), CliError> {
    let mut directory = listed(&args.directory.dir)?;
    let RenameTypeArgs { from, to, merge, .. } = args;
    change(&mut directory, TypeChange::Rename { from: from.clone(), to: to.clone(), merges: *merge })?;
    print(directory.manifest().schema(), out)
}

/// Deletes a type, and returns once no file holds its rows. A deletion that was cut off goes on.
fn delete(name: &str, dir: &Path, out: &mut impl Write) -> Result<(), CliError> {
    let mut directory = listed(dir)?;
    if let Some(at_ms) = directory.manifest().pauses().of_partition(PARTITION) {
        return Err(CliError::Paused { since: time(at_ms) });
    }
    change(&mut directory, TypeChange::Delete { name: name.to_owned() })?;
    let mut driver = Driver::claim_for_operator(directory)?;
    let collected = driver.directory.collect()?;
    match (driver.owner.deleting(), collected) {
        (0, Collected::Done) => {}
        (0, Collected::Held { damaged }) => return Err(CliError::ErasureHeld { damaged }),
        (blobs, _) => return Err(CliError::DeletionPending { blobs }),
    }
    writeln!(out, "no file holds rows of event type {name}; later events of it become dead letters")?;
    print(driver.directory.manifest().schema(), out)
}

fn change(directory: &mut Directory, change: TypeChange) -> Result<(), CliError> {
    let set = SetTypes { set: TypesSet::Change(change), asked_at_ms: now().0 };
    propose(directory, set)
}

fn propose(directory: &mut Directory, set: SetTypes) -> Result<(), CliError> {
    if let Outcome::Types { result: Err(refused) } = directory.propose(&Command::Types(set))? {
        return Err(CliError::TypesChange(refused));
    }
    Ok(())
}

/// Opens a directory of which all event types are known. Blobs of an earlier version are read for it once.
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
    let set = SetTypes { set: TypesSet::List(names.into_iter().collect()), asked_at_ms: now().0 };
    propose(&mut directory, set)?;
    Ok(directory)
}

fn print(schema: &Schema, out: &mut impl Write) -> Result<(), CliError> {
    for name in schema.listed() {
        writeln!(out, "{name}")?;
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
