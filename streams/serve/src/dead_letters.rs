//! Dead letters that an operator lists, replays or drops: which are meant, and what becomes of the letters of a blob.
//!
//! The command line and the server share this. Either gives the owner all letters of one blob at a time.

use tidemark_streams_core::owner::{DeadLetter, Fate, Letter, Record};
use tidemark_streams_intake::body::{ReadError, Rules, replayed};
use tidemark_streams_intake::entry::ValidEvent;
use tidemark_streams_intake::listings::LookupFailed;
use tidemark_streams_store::dead_letters::tenant_of;

/// Which dead letters are meant: those that fit all of these.
#[derive(Clone, Copy, Debug, Default)]
pub struct Select<'a> {
    /// How the digest of the source begins.
    pub source: Option<&'a str>,
    /// Counted from 1 on.
    pub row: Option<u64>,
    /// A part of the reason.
    pub reason: Option<&'a str>,
    pub tenant: Option<&'a str>,
}

/// The letters of a blob, and which of them are meant.
#[derive(Clone, Copy, Debug)]
pub struct Meant<'a> {
    pub letters: &'a [DeadLetter],
    pub is_meant: &'a [bool],
}

/// The events of a letter, or why it stays. `None`: it is not meant.
type Tried<'a> = Option<Result<Vec<ValidEvent<'a>>, String>>;

impl Select<'_> {
    /// Whether all letters are meant.
    pub fn is_empty(&self) -> bool {
        let Select { source, row, reason, tenant } = self;
        source.is_none() && row.is_none() && reason.is_none() && tenant.is_none()
    }

    pub fn has(&self, letter: &DeadLetter) -> bool {
        let digest = || letter.source.0.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        self.row.is_none_or(|row| row == letter.row + 1)
            && self.source.is_none_or(|begin| digest().starts_with(&begin.to_ascii_lowercase()))
            && self.reason.is_none_or(|text| letter.reason.contains(text))
            && self.tenant.is_none_or(|tenant| tenant_of(letter).as_deref() == Some(tenant))
    }
}

impl Meant<'_> {
    /// The number of letters that are meant.
    pub fn count(&self) -> u64 {
        self.is_meant.iter().filter(|is_meant| **is_meant).count() as u64
    }

    /// Reads the letters that are meant as events, and hands all letters of the blob to `settle`. The event ids of letters are not
    /// compared, so any seed of their hashes does.
    ///
    /// # Errors
    /// The catalogue cannot be read.
    pub fn replay<R>(&self, rules: &Rules<'_>, settle: impl FnOnce(&[Letter<'_>]) -> R) -> Result<R, LookupFailed> {
        let pairs = || self.letters.iter().zip(self.is_meant);
        let tries: Vec<Tried<'_>> = pairs()
            .map(|(letter, is_meant)| is_meant.then(|| events(letter, rules)).transpose())
            .collect::<Result<_, LookupFailed>>()?;
        let records: Vec<Option<Vec<Record<'_>>>> = tries.iter().map(records_of).collect();
        let letters: Vec<Letter<'_>> = self
            .letters
            .iter()
            .zip(&records)
            .map(|(letter, records)| Letter {
                letter,
                fate: records.as_ref().map_or(Fate::Keep, |records| Fate::Replay(records)),
            })
            .collect();
        Ok(settle(&letters))
    }

    /// Gives up the letters that are meant, and hands all letters of the blob to `settle`.
    pub fn give_up<R>(&self, settle: impl FnOnce(&[Letter<'_>]) -> R) -> R {
        let fate = |is_meant: bool| if is_meant { Fate::Drop } else { Fate::Keep };
        let pairs = self.letters.iter().zip(self.is_meant);
        let letters: Vec<Letter<'_>> =
            pairs.map(|(letter, is_meant)| Letter { letter, fate: fate(*is_meant) }).collect();
        settle(&letters)
    }
}

fn records_of<'a>(tried: &'a Tried<'_>) -> Option<Vec<Record<'a>>> {
    Some(match tried.as_ref()? {
        Ok(events) => events.iter().flat_map(ValidEvent::rows).map(Record::Event).collect(),
        Err(reason) => vec![Record::Broken { reason, text: "" }],
    })
}

/// The events of a letter, or why it stays.
fn events<'a>(letter: &'a DeadLetter, rules: &Rules<'_>) -> Result<Result<Vec<ValidEvent<'a>>, String>, LookupFailed> {
    match replayed(letter.text.as_bytes(), rules) {
        Ok(events) => Ok(Ok(events)),
        Err(ReadError::Refused(refused)) => Ok(Err(refused.to_string())),
        Err(ReadError::Lookup(failed)) => Err(failed),
    }
}
