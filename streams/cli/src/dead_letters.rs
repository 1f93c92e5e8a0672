//! `dead-letters`: lists, replays and drops the rows that were refused.

use crate::args::{DeadLettersCommand, DropLettersArgs, ListLettersArgs, ReplayLettersArgs, SelectArgs};
use crate::driver::{Driver, PARTITION, now};
use crate::error::CliError;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::Path;
use tidemark_streams_core::blob::{BlobMeta, Level};
use tidemark_streams_core::event::EventTypes;
use tidemark_streams_core::owner::{DeadLetter, Fate, Input, Letter, Letters, Record};
use tidemark_streams_core::source::SourceId;
use tidemark_streams_core::time::Day;
use tidemark_streams_intake::body::{ReadError, Rules, replayed};
use tidemark_streams_intake::entry::ValidEvent;
use tidemark_streams_serve::AsOf;
use tidemark_streams_store::catalogue::{Catalogue, View};
use tidemark_streams_store::dead_letters::{decode, encode, tenant_of};
use tidemark_streams_store::directory::{Directory, IfMissing};
use tidemark_streams_store::folder::file_name;

/// A larger file of texts is refused: it is held in memory.
const FIXED_BYTES_MAX: u64 = 256 << 20;
/// Counts of one blob of letters, which are held in memory.
const FLUSH_COUNTS: u64 = 1_048_576;

/// Texts that stand in place of those of dead letters, by source and row.
type Fixed = BTreeMap<(SourceId, u64), String>;

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
    let directory = Directory::open(&args.directory.dir, IfMissing::Refuse)?;
    for meta in blobs(&directory) {
        let mut letters = read(&directory, &meta)?;
        letters.retain(|letter| args.select.has(letter));
        let name = || file_name(&meta.key, meta.level);
        out.write_all(&encode(&letters).map_err(|error| CliError::DeadLetters { name: name(), error })?)?;
    }
    Ok(())
}

fn replay(args: &ReplayLettersArgs, out: &mut impl Write) -> Result<(), CliError> {
    let types = EventTypes::new(&args.types)?;
    let mut fixed = args.fixed.as_deref().map(read_fixed).transpose()?;
    let directory = Directory::open(&args.directory.dir, IfMissing::Refuse)?;
    let catalogue = Catalogue::open(&args.directory.dir, directory.id())?.view()?;
    let mut driver = Driver::claim(directory, types.clone(), FLUSH_COUNTS)?;
    let types = driver.directory.manifest().schema().effective(&types);
    let mut settled = Settled::default();
    let metas: Vec<BlobMeta> = blobs(&driver.directory).collect();
    for meta in metas {
        let mut letters = read(&driver.directory, &meta)?;
        let mut is_meant = Vec::with_capacity(letters.len());
        for letter in &mut letters {
            let text = fixed.as_mut().map(|fixed| fixed.remove(&(letter.source, letter.row)));
            is_meant.push(args.select.has(letter) && text.as_ref().is_none_or(Option::is_some));
            if let Some(text) = text.flatten().filter(|_| is_meant.last() == Some(&true)) {
                letter.text = text;
            }
        }
        let meant = Meant { letters: &letters, is_meant: &is_meant };
        settle_replayed(&mut driver, &meta, &meant, &types, &catalogue, &mut settled)?;
    }
    finish(&mut driver)?;
    let Settled { replayed, kept, .. } = settled;
    writeln!(out, "{replayed} dead letters were replayed, {kept} of those that were tried stay")?;
    match fixed.map_or(0, |fixed| fixed.len()) {
        0 => Ok(()),
        missing => {
            Ok(writeln!(out, "{missing} lines of the file name no dead letter: they were replayed or dropped before")?)
        }
    }
}

/// The letters of a blob, and which of them are replayed.
struct Meant<'a> {
    letters: &'a [DeadLetter],
    is_meant: &'a [bool],
}

/// The events of a letter, or why it stays. `None`: it is not meant.
type Tried<'a> = Option<Result<Vec<ValidEvent<'a>>, String>>;

/// Replays the letters of a blob that are meant.
fn settle_replayed(
    driver: &mut Driver,
    meta: &BlobMeta,
    meant: &Meant<'_>,
    types: &EventTypes,
    catalogue: &View,
    settled: &mut Settled,
) -> Result<(), CliError> {
    let Meant { letters, is_meant } = *meant;
    // An operator may replay a row that is too old for the intake, as long as its day is kept. Ids of events are not compared, so any seed
    // of their hashes does.
    let kept_from = driver.directory.manifest().partition(PARTITION).map_or(Day(0), |known| known.horizons.kept);
    let tenants = AsOf::latest(catalogue);
    let rules = Rules { now: now(), types, kept_from, seed: 0, tenants: &tenants };
    let tries: Vec<Tried<'_>> = letters
        .iter()
        .zip(is_meant)
        .map(|(letter, is_meant)| is_meant.then(|| events(letter, &rules)).transpose())
        .collect::<Result<_, CliError>>()?;
    let records: Vec<Option<Vec<Record<'_>>>> = tries
        .iter()
        .map(|tried| {
            Some(match tried.as_ref()? {
                Ok(events) => events.iter().flat_map(ValidEvent::rows).map(Record::Event).collect(),
                Err(reason) => vec![Record::Broken { reason, text: "" }],
            })
        })
        .collect();
    let fate = |records: &'_ Option<Vec<Record<'_>>>| records.is_some();
    settled.kept += records.iter().filter(|records| fate(records)).count() as u64;
    let letters: Vec<Letter<'_>> = letters
        .iter()
        .zip(&records)
        .map(|(letter, records)| Letter {
            letter,
            fate: records.as_ref().map_or(Fate::Keep, |records| Fate::Replay(records)),
        })
        .collect();
    let before = driver.settled_letters();
    driver.handle(Input::Settle(Letters { key: meta.key, letters: &letters }))?;
    let counted = driver.settled_letters() - before;
    settled.replayed += counted;
    settled.kept -= counted;
    Ok(())
}

/// The events of a letter, or why it stays.
fn events<'a>(letter: &'a DeadLetter, rules: &Rules<'_>) -> Result<Result<Vec<ValidEvent<'a>>, String>, CliError> {
    match replayed(letter.text.as_bytes(), rules) {
        Ok(events) => Ok(Ok(events)),
        Err(ReadError::Refused(refused)) => Ok(Err(refused.to_string())),
        Err(ReadError::Lookup(failed)) => Err(failed.into()),
    }
}

fn give_up(args: &DropLettersArgs, out: &mut impl Write) -> Result<(), CliError> {
    if !args.all && args.select.is_empty() {
        return Err(CliError::DropNothing);
    }
    let directory = Directory::open(&args.directory.dir, IfMissing::Refuse)?;
    let mut driver = Driver::claim(directory, EventTypes::none(), FLUSH_COUNTS)?;
    let mut settled = Settled::default();
    let metas: Vec<BlobMeta> = blobs(&driver.directory).collect();
    for meta in metas {
        let letters = read(&driver.directory, &meta)?;
        let fate = |letter: &DeadLetter| if args.select.has(letter) { Fate::Drop } else { Fate::Keep };
        let letters: Vec<Letter<'_>> = letters.iter().map(|letter| Letter { letter, fate: fate(letter) }).collect();
        let before = driver.settled_letters();
        driver.handle(Input::Settle(Letters { key: meta.key, letters: &letters }))?;
        let dropped = driver.settled_letters() - before;
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
    let letters = decode(&bytes).map_err(|error| CliError::Fixed { path: path.to_owned(), why: error.to_string() })?;
    let mut fixed = Fixed::new();
    for DeadLetter { source, row, text, .. } in letters {
        if fixed.insert((source, row), text).is_some() {
            let why = format!("row {} of source {source} stands twice", row + 1);
            return Err(CliError::Fixed { path: path.to_owned(), why });
        }
    }
    Ok(fixed)
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
    fn is_empty(&self) -> bool {
        let SelectArgs { source, row, reason, tenant } = self;
        source.is_none() && row.is_none() && reason.is_none() && tenant.is_none()
    }

    fn has(&self, letter: &DeadLetter) -> bool {
        let digest = || letter.source.0.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        self.row.is_none_or(|row| row == letter.row + 1)
            && self.source.as_deref().is_none_or(|begin| digest().starts_with(&begin.to_ascii_lowercase()))
            && self.reason.as_deref().is_none_or(|text| letter.reason.contains(text))
            && self.tenant.as_deref().is_none_or(|tenant| tenant_of(letter).as_deref() == Some(tenant))
    }
}
