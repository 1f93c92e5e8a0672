//! `dead-letters`: lists, replays and drops the rows that were refused.

use crate::args::{DeadLettersCommand, DropLettersArgs, ListLettersArgs, ReplayLettersArgs, SelectArgs};
use crate::driver::{Driver, PARTITION, now};
use crate::error::CliError;
use crate::serve::mask_fields;
use std::io::{self, Read, Write};
use std::path::Path;
use tidemark_streams_core::blob::{BlobMeta, Level};
use tidemark_streams_core::event::EventTypes;
use tidemark_streams_core::owner::{DeadLetter, Input, Letters};
use tidemark_streams_core::time::Day;
use tidemark_streams_intake::body::Rules;
use tidemark_streams_serve::AsOf;
use tidemark_streams_serve::dead_letters::{Chosen, Fixed, Select, Tried, settle};
use tidemark_streams_serve::masking::Masking;
use tidemark_streams_store::catalogue::Catalogue;
use tidemark_streams_store::dead_letters::{decode, encode};
use tidemark_streams_store::directory::{Directory, IfMissing};
use tidemark_streams_store::folder::file_name;

/// Reasons that a replay prints of letters that stay.
const REFUSED_SHOWN_MAX: usize = 20;
/// A larger file of texts is refused: it is held in memory.
const FIXED_BYTES_MAX: u64 = 256 << 20;
/// Counts of one blob of letters, which are held in memory.
const FLUSH_COUNTS: u64 = 1_048_576;

/// The results of letters.
#[derive(Default)]
struct Settled {
    replayed: u64,
    dropped: u64,
    kept: u64,
}

pub fn run(command: &DeadLettersCommand, out: &mut impl Write) -> Result<(), CliError> {
    match command {
        DeadLettersCommand::List(args) => list(args, out),
        DeadLettersCommand::Replay(args) => replay(args, out),
        DeadLettersCommand::Drop(args) => give_up(args, out),
    }
}

fn list(args: &ListLettersArgs, out: &mut impl Write) -> Result<(), CliError> {
    let select = args.select.select()?;
    let directory = Directory::open(&args.directory.dir, IfMissing::Refuse)?;
    let fields = mask_fields(&args.mask_fields);
    let masking = Masking { fields: &fields, dimensions: &directory.manifest().schema().dimensions().names };
    for meta in blobs(&directory) {
        let mut letters = read(&directory, &meta)?;
        letters.retain(|letter| select.has(letter));
        if !args.raw {
            letters.iter_mut().for_each(|letter| letter.text = masking.text(&letter.text).into_owned());
        }
        let name = || file_name(&meta.key, meta.level);
        out.write_all(&encode(&letters).map_err(|error| CliError::DeadLetters { name: name(), error })?)?;
    }
    Ok(())
}

fn replay(args: &ReplayLettersArgs, out: &mut impl Write) -> Result<(), CliError> {
    let types = EventTypes::new(&args.types)?;
    let fixed = args.fixed.as_deref().map(read_fixed).transpose()?;
    let chosen = Chosen { select: args.select.select()?, fixed: fixed.as_ref() };
    let directory = Directory::open(&args.directory.dir, IfMissing::Refuse)?;
    let catalogue = Catalogue::open(&args.directory.dir, directory.id())?.view()?;
    let mut driver = Driver::claim(directory, types.clone(), FLUSH_COUNTS)?;
    let types = driver.directory.manifest().schema().effective(&types);
    let mut settled = Settled::default();
    let mut known = 0;
    let mut told = 0;
    let metas: Vec<BlobMeta> = blobs(&driver.directory).collect();
    for meta in metas {
        let letters = read(&driver.directory, &meta)?;
        known += fixed.as_ref().map_or(0, |fixed| fixed.known(&letters));
        // An operator may replay a row that is too old for the intake, as long as its day is kept.
        let kept_from = driver.directory.manifest().partition(PARTITION).map_or(Day(0), |known| known.horizons.kept);
        let tenants = AsOf::latest(&catalogue);
        let rules = Rules { now: now(), types: &types, kept_from, seed: 0, tenants: &tenants };
        let tried = chosen.replayed(&letters, &rules)?;
        tell_refused(&letters, &tried, &mut told);
        let counted = settle_blob(&mut driver, &meta, &letters, &tried)?;
        settled.replayed += counted;
        settled.kept += Tried::meant(&tried) - counted;
    }
    finish(&mut driver)?;
    let Settled { replayed, kept, .. } = settled;
    writeln!(out, "{replayed} dead letters were replayed, {kept} of those that were tried stay")?;
    match fixed.map_or(0, |fixed| fixed.len()).saturating_sub(known) {
        0 => Ok(()),
        missing => {
            Ok(writeln!(out, "{missing} lines of the file name no dead letter: they were replayed or dropped before")?)
        }
    }
}

/// Says why letters stay, up to a number.
fn tell_refused(letters: &[DeadLetter], tried: &[Tried], told: &mut usize) {
    for (letter, tried) in letters.iter().zip(tried) {
        if let Some(reason) = tried.refused().filter(|_| *told < REFUSED_SHOWN_MAX) {
            let _ = writeln!(io::stderr(), "row {} of source {} stays: {reason}", letter.row + 1, letter.source);
            *told += 1;
        }
    }
}

/// Settles the letters of a blob, and returns how many were.
fn settle_blob(driver: &mut Driver, meta: &BlobMeta, letters: &[DeadLetter], tried: &[Tried]) -> Result<u64, CliError> {
    let before = driver.settled_letters();
    settle(letters, tried, |letters| driver.handle(Input::Settle(Letters { key: meta.key, letters })))?;
    Ok(driver.settled_letters() - before)
}

fn give_up(args: &DropLettersArgs, out: &mut impl Write) -> Result<(), CliError> {
    let select = args.select.select()?;
    if !args.all && select.is_empty() {
        return Err(CliError::DropNothing);
    }
    let chosen = Chosen { select, fixed: None };
    let directory = Directory::open(&args.directory.dir, IfMissing::Refuse)?;
    let mut driver = Driver::claim(directory, EventTypes::none(), FLUSH_COUNTS)?;
    let mut settled = Settled::default();
    let metas: Vec<BlobMeta> = blobs(&driver.directory).collect();
    for meta in metas {
        let letters = read(&driver.directory, &meta)?;
        let dropped = settle_blob(&mut driver, &meta, &letters, &chosen.given_up(&letters))?;
        settled.dropped += dropped;
        settled.kept += meta.rows - dropped;
    }
    finish(&mut driver)?;
    let Settled { dropped, kept, .. } = settled;
    Ok(writeln!(out, "{dropped} dead letters were dropped, {kept} stay")?)
}

/// Merges what was counted, and deletes the files that count no longer.
fn finish(driver: &mut Driver) -> Result<(), CliError> {
    driver.handle(Input::Seal)?;
    driver.directory.collect()?;
    Ok(())
}

/// Lines as `list` prints them.
fn read_fixed(path: &Path) -> Result<Fixed, CliError> {
    let of_file = |error: std::io::Error| CliError::Fixed { path: path.to_owned(), why: error.to_string() };
    let mut bytes = Vec::new();
    std::fs::File::open(path).map_err(of_file)?.take(FIXED_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(of_file)?;
    if bytes.len() as u64 > FIXED_BYTES_MAX {
        let why = format!("it has more than {FIXED_BYTES_MAX} bytes: replay it in parts");
        return Err(CliError::Fixed { path: path.to_owned(), why });
    }
    Fixed::read(&bytes).map_err(|error| CliError::Fixed { path: path.to_owned(), why: error.to_string() })
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

impl SelectArgs {
    /// An empty text would mean all letters.
    fn select(&self) -> Result<Select<'_>, CliError> {
        let SelectArgs { source, row, reason, tenant } = self;
        let [source, reason, tenant] = [source, reason, tenant].map(|text| text.as_deref());
        let texts = [("source", source), ("reason", reason), ("tenant", tenant)];
        if let Some((name, _)) = texts.into_iter().find(|(_, text)| *text == Some("")) {
            return Err(CliError::EmptySelect(name));
        }
        if let Some(begin) = source.filter(|begin| !begin.bytes().all(|byte| byte.is_ascii_hexdigit())) {
            return Err(CliError::SelectSource(begin.chars().take(80).collect()));
        }
        Ok(Select { source, row: *row, reason, tenant })
    }
}
