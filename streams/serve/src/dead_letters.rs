//! Dead letters that an operator lists, replays or drops: which are meant, and what becomes of the letters of a blob.
//!
//! The command line and the server share this. Texts are read before the owner is asked. Then either gives the owner all letters of one
//! blob at a time.

use crate::masking::unmasked;
use std::borrow::Cow;
use std::collections::BTreeMap;
use tidemark_streams_core::owner::{DeadLetter, Fate, Letter, Record};
use tidemark_streams_core::source::SourceId;
use tidemark_streams_intake::body::{ReadError, Rules, replayed};
use tidemark_streams_intake::entry::ValidEvent;
use tidemark_streams_intake::listings::LookupFailed;
use tidemark_streams_store::dead_letters::{DeadLettersError, decode, tenant_of};

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

/// The row of a source that a letter stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LetterKey {
    pub source: SourceId,
    /// From 0 on.
    pub row: u64,
}

/// Repaired texts that are read in place of those of the letters.
#[derive(Clone, Debug, Default)]
pub struct Fixed(BTreeMap<LetterKey, String>);

/// Why repaired texts are refused. Nothing is replayed then.
#[derive(Debug, thiserror::Error)]
pub enum FixedError {
    #[error(transparent)]
    Lines(#[from] DeadLettersError),
    #[error("row {} of source {} stands twice", key.row + 1, key.source)]
    Twice { key: LetterKey },
}

/// The letters of a blob that are tried, and the texts that are read in place of theirs.
#[derive(Clone, Copy, Debug)]
pub struct Chosen<'a> {
    pub select: Select<'a>,
    /// Only letters with a text here are meant.
    pub fixed: Option<&'a Fixed>,
}

/// The result of trying a letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tried {
    /// It is not meant.
    Passed,
    GivenUp,
    /// These events count in its place.
    Counts(Vec<ValidEvent<'static>>),
    /// It stays, with this reason.
    Refused {
        reason: String,
    },
    /// The text in place of its own was refused. It stays as it is.
    FixRefused {
        reason: String,
    },
}

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

impl LetterKey {
    pub fn of(letter: &DeadLetter) -> LetterKey {
        LetterKey { source: letter.source, row: letter.row }
    }
}

impl Fixed {
    /// Reads lines as a list of letters has them.
    ///
    /// # Errors
    /// [`FixedError`] names the line or the row.
    pub fn read(lines: &[u8]) -> Result<Fixed, FixedError> {
        let mut fixed = BTreeMap::new();
        for letter in decode(lines)? {
            let key = LetterKey::of(&letter);
            if fixed.insert(key, letter.text).is_some() {
                return Err(FixedError::Twice { key });
            }
        }
        Ok(Fixed(fixed))
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn text_of(&self, letter: &DeadLetter) -> Option<&str> {
        self.0.get(&LetterKey::of(letter)).map(String::as_str)
    }

    /// The number of these letters that have a text here.
    pub fn known(&self, letters: &[DeadLetter]) -> usize {
        letters.iter().filter(|letter| self.text_of(letter).is_some()).count()
    }
}

impl Chosen<'_> {
    fn has(&self, letter: &DeadLetter) -> bool {
        self.select.has(letter) && self.fixed.is_none_or(|fixed| fixed.text_of(letter).is_some())
    }

    /// Reads the letters that are meant as events. The event ids of letters are not compared, so any seed of their hashes does.
    ///
    /// # Errors
    /// The catalogue cannot be read.
    pub fn replayed(&self, letters: &[DeadLetter], rules: &Rules<'_>) -> Result<Vec<Tried>, LookupFailed> {
        let tried = |letter| if self.has(letter) { self.replay(letter, rules) } else { Ok(Tried::Passed) };
        letters.iter().map(tried).collect()
    }

    fn replay(&self, letter: &DeadLetter, rules: &Rules<'_>) -> Result<Tried, LookupFailed> {
        let fixed = self.fixed.and_then(|fixed| fixed.text_of(letter));
        let text = match fixed.map(|text| unmasked(text, &letter.text)) {
            None => Cow::Borrowed(letter.text.as_str()),
            Some(Ok(text)) => text,
            Some(Err(masked)) => return Ok(Tried::FixRefused { reason: masked.to_string() }),
        };
        match replayed(text.as_bytes(), rules) {
            Ok(events) => Ok(Tried::Counts(events.into_iter().map(ValidEvent::into_owned).collect())),
            Err(ReadError::Refused(refused)) => match fixed {
                Some(_) => Ok(Tried::FixRefused { reason: refused.reason() }),
                None => Ok(Tried::Refused { reason: refused.reason() }),
            },
            Err(ReadError::Lookup(failed)) => Err(failed),
        }
    }

    /// Gives up the letters that are meant.
    pub fn given_up(&self, letters: &[DeadLetter]) -> Vec<Tried> {
        letters.iter().map(|letter| if self.has(letter) { Tried::GivenUp } else { Tried::Passed }).collect()
    }
}

impl Tried {
    pub fn is_meant(&self) -> bool {
        *self != Tried::Passed
    }

    /// Why the letter stays.
    pub fn refused(&self) -> Option<&str> {
        match self {
            Tried::Refused { reason } | Tried::FixRefused { reason } => Some(reason),
            Tried::Passed | Tried::GivenUp | Tried::Counts(_) => None,
        }
    }

    /// The number of letters that are meant.
    pub fn meant(tried: &[Tried]) -> u64 {
        tried.iter().filter(|tried| tried.is_meant()).count() as u64
    }

    fn records(&self) -> Vec<Record<'_>> {
        match self {
            Tried::Counts(events) => events.iter().flat_map(ValidEvent::rows).map(Record::Event).collect(),
            Tried::Refused { reason } => vec![Record::Broken { reason, text: "" }],
            Tried::Passed | Tried::GivenUp | Tried::FixRefused { .. } => Vec::new(),
        }
    }
}

/// Hands all letters of a blob to `settle`, each with what is to become of it.
pub fn settle<R>(letters: &[DeadLetter], tried: &[Tried], settle: impl FnOnce(&[Letter<'_>]) -> R) -> R {
    let records: Vec<Vec<Record<'_>>> = tried.iter().map(Tried::records).collect();
    let fate = |(tried, records)| match tried {
        &Tried::Passed | &Tried::FixRefused { .. } => Fate::Keep,
        &Tried::GivenUp => Fate::Drop,
        &Tried::Counts(_) | &Tried::Refused { .. } => Fate::Replay(records),
    };
    let fates = tried.iter().zip(records.iter().map(Vec::as_slice)).map(fate);
    let letters: Vec<Letter<'_>> = letters.iter().zip(fates).map(|(letter, fate)| Letter { letter, fate }).collect();
    settle(&letters)
}
