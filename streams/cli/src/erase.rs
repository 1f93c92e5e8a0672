//! `erase`: takes away the rows of a tenant, or of one listing, for good.

use crate::args::EraseArgs;
use crate::dead_letters;
use crate::driver::{Driver, PARTITION, now, time};
use crate::error::CliError;
use crate::raw;
use std::io::Write;
use tidemark_streams_core::blob::{BlobMeta, Level};
use tidemark_streams_core::erasure::{self, Erasure, ErasureKey};
use tidemark_streams_core::event::{check_listing, check_tenant};
use tidemark_streams_core::manifest::{Command, Erase, Outcome};
use tidemark_streams_serve::RAW_FOLDER;
use tidemark_streams_store::catalogue::CATALOGUE;
use tidemark_streams_store::directory::{Collected, Directory, IfMissing};
use tidemark_streams_store::uploads::{TABLES, Uploads};

pub fn run(args: &EraseArgs, out: &mut impl Write) -> Result<(), CliError> {
    check_tenant(&args.tenant).map_err(CliError::EraseName)?;
    args.listing.as_deref().map_or(Ok(()), check_listing).map_err(CliError::EraseName)?;
    let key = ErasureKey::of(&args.tenant, args.listing.as_deref());
    let directory = Directory::open(&args.directory.dir, IfMissing::Refuse)?;
    let log = args.directory.dir.join("intake.redb");
    let driver = erase(directory, &[key], args.again)?;
    report(&driver.directory, &key, out)?;
    if args.directory.dir.join(RAW_FOLDER).exists() {
        writeln!(out, "done\tthe archive of raw events ({RAW_FOLDER}/), but for refused texts that name no tenant")?;
    }
    if args.listing.is_none() && args.directory.dir.join(TABLES).exists() {
        writeln!(out, "done\ttables that the tenant uploaded ({TABLES}/)")?;
    }
    if log.exists() {
        writeln!(
            out,
            "not reached\tintake.redb: its events are dropped when `serve` counts them; then its log is cut off, and the file uses the \
             space again"
        )?;
    }
    if args.directory.dir.join(CATALOGUE).exists() {
        writeln!(out, "not reached\t{CATALOGUE}: it keeps the tenant of each listing, without counts")?;
    }
    let files = "files that were loaded, and copies of the directory: delete the rows there; if they are loaded again, they are left out";
    Ok(writeln!(out, "not reached\t{files}")?)
}

/// Erases rows of tenants and listings, and returns once that is done. An erasure that was cut off goes on. A known erasure is not begun
/// `again` by itself.
///
/// # Errors
/// The directory fails, or the partition is paused.
pub fn erase(mut directory: Directory, keys: &[ErasureKey], again: bool) -> Result<Driver, CliError> {
    let pauses = directory.manifest().pauses();
    if let Some(at_ms) = pauses.of_partition(PARTITION) {
        return Err(CliError::Paused { since: time(at_ms) });
    }
    let asked_at_ms = now().0;
    let before = erasure::before(now());
    for key in keys {
        let known = directory.manifest().partition(PARTITION).and_then(|known| known.erasures.get(key));
        if known.is_some_and(|known| !again || known.before >= before) {
            continue;
        }
        let erase = Erase { partition: PARTITION, key: *key, before, asked_at_ms };
        if let Outcome::Erase { result: Err(refused), .. } = directory.propose(&Command::Erase(erase))? {
            return Err(CliError::Erase(refused));
        }
    }
    let mut driver = Driver::claim_for_operator(directory)?;
    let collected = driver.directory.collect()?;
    let known = driver.directory.manifest().partition(PARTITION);
    match known.map_or(0, |known| known.erasures.pending()) {
        0 => match collected {
            Collected::Done => {
                raw::clean(&driver.directory)?;
                drop_tables(&driver.directory, keys)?;
                Ok(driver)
            }
            Collected::Held { damaged } => Err(CliError::FilesHeld { damaged }),
        },
        pending => Err(CliError::ErasurePending { pending }),
    }
}

/// Drops the tables that erased tenants uploaded before their erasure.
fn drop_tables(directory: &Directory, keys: &[ErasureKey]) -> Result<(), CliError> {
    let uploads = Uploads::of(directory.path());
    let Some(known) = directory.manifest().partition(PARTITION) else { return Ok(()) };
    for key in keys.iter().filter(|key| key.listing.is_none()) {
        let Some(Erasure { asked_at_ms, .. }) = known.erasures.get(key) else { continue };
        uploads.erase(key.tenant, asked_at_ms)?;
    }
    Ok(())
}

fn report(directory: &Directory, key: &ErasureKey, out: &mut impl Write) -> Result<(), CliError> {
    let known = directory.manifest().partition(PARTITION);
    let Some((known, erasure)) = known.and_then(|known| Some((known, known.erasures.get(key)?))) else { return Ok(()) };
    let Erasure { before, asked_at_ms, .. } = erasure;
    let metas: Vec<BlobMeta> = directory.manifest().live().filter(|meta| meta.level == Level::DeadLetters).collect();
    let mut unread = 0;
    for meta in &metas {
        let letters = dead_letters::read(directory, meta)?;
        unread +=
            letters.iter().filter(|letter| tidemark_streams_store::dead_letters::tenant_of(letter).is_none()).count();
    }
    writeln!(out, "asked\t{}", time(asked_at_ms))?;
    writeln!(
        out,
        "done\trows of hours before {} are in no blob, also of rows that come later",
        time(before.start_s() * 1_000)
    )?;
    writeln!(out, "erased\t{} counts since the directory began", known.erased_total)?;
    match unread {
        0 => writeln!(out, "done\tdead letters")?,
        unread => writeln!(
            out,
            "not reached\t{unread} dead letters with a text that is no event, or names no tenant: `tidemark-streams dead-letters drop` gives them up"
        )?,
    }
    Ok(())
}
