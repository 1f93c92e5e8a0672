//! Dead letters that are replayed or dropped.
//!
//! One commit removes a blob of letters and adds what its letters count, together with the letters that stay. So a letter counts once, even
//! if the process is killed: either its blob is live, or its counts are.

use super::{DeadLetter, Owner, Record, State, Stop};
use crate::blob::{BlobKey, Level};
use crate::event::{Event, EventError};
use crate::fold::Fold;
use crate::manifest::Settled;
use crate::names::Names;
use crate::rollup::{Rollups, RowError};
use crate::source::SourceId;
use crate::time::Now;

/// The fate of a dead letter.
#[derive(Clone, Copy, Debug)]
pub enum Fate<'a> {
    /// It stays as it is.
    Keep,
    /// It is given up.
    Drop,
    /// These rows count in its place, if all of them are valid. Otherwise it stays; it takes the new reason if another letter of the blob is
    /// settled.
    Replay(&'a [Record<'a>]),
}

/// A dead letter, and what is to become of it.
#[derive(Clone, Copy, Debug)]
pub struct Letter<'a> {
    pub letter: &'a DeadLetter,
    pub fate: Fate<'a>,
}

/// All letters of one blob.
#[derive(Clone, Copy, Debug)]
pub struct Letters<'a> {
    pub key: BlobKey,
    pub letters: &'a [Letter<'a>],
}

/// A dead letter on its way to a blob. Its text may be cut, its names are not.
pub(super) struct Held {
    pub letter: DeadLetter,
    pub names: Names,
}

/// No other job begins for so long while letters have their turn. The shell needs a moment to hand them over.
const TURN_MS: u64 = 1_000;

/// Whose turn it is while letters wait. A settling and another job take turns, so neither waits for more than one job of the other.
#[derive(Default)]
pub(super) struct LettersTurn {
    is_asked: bool,
    /// The turn of letters has begun, and is over then.
    until: Option<Now>,
    /// The last job was a settling, or letters had a turn and did not come.
    is_of_others: bool,
}

/// Why a dead letter stays although it was to be replayed.
#[derive(Debug, thiserror::Error)]
enum ReplayError {
    #[error(transparent)]
    Event(#[from] EventError),
    #[error("{reason}")]
    Broken { reason: String },
    #[error("it has no rows")]
    Empty,
}

impl LettersTurn {
    /// Notes whether letters wait.
    pub fn ask(&mut self, is_asked: bool) {
        self.is_asked = is_asked;
        self.until = self.until.filter(|_| is_asked);
    }

    pub fn is_asked(&self) -> bool {
        self.is_asked
    }

    /// The end of the turn of letters, if it has begun.
    pub fn until(&self) -> Option<Now> {
        self.until
    }

    /// Whether no other job may begin. No job is under way.
    pub fn holds_others(&mut self, now: Now) -> bool {
        if !self.is_asked || self.is_of_others {
            return false;
        }
        let until = *self.until.get_or_insert(now.plus_ms(TURN_MS));
        let is_over = until <= now;
        if is_over {
            self.other_job_is_next();
        }
        !is_over
    }

    /// The turn of letters is over, or used.
    pub fn other_job_is_next(&mut self) {
        self.until = None;
        self.is_of_others = true;
    }

    pub fn other_job_has_begun(&mut self) {
        self.until = None;
        self.is_of_others = false;
    }
}

/// Letters by what becomes of them.
pub(super) struct Sorted {
    pub settled: Settled,
    pub rows: Rollups,
    pub kept: Vec<DeadLetter>,
    /// The sum of the counts with values beyond a bound.
    pub others: u64,
}

impl Owner {
    /// Begins to settle letters, if nothing is under way, nothing is paused, and their blob is live.
    pub(super) fn settle(&mut self, now: Now, batch: &Letters<'_>) {
        let is_idle = matches!(self.state, State::Idle) && !self.is_paused;
        let is_live = self
            .live
            .get(&batch.key)
            .is_some_and(|meta| meta.level == Level::DeadLetters && meta.rows == batch.letters.len() as u64);
        let source = batch.letters.first().map(|first| first.letter.source);
        let Some(source) = source.filter(|_| is_idle && is_live) else { return };
        if batch.letters.iter().any(|other| other.letter.source != source) {
            return;
        }
        match self.sort(now, source, batch) {
            Ok(sorted) if sorted.settled.letters() > 0 => {
                self.letters_turn.other_job_is_next();
                self.begin_settle(now, batch.key, sorted);
            }
            Ok(_) => {}
            Err(error) => self.stop(Stop::Rows(error)),
        }
    }

    fn sort(&self, now: Now, source: SourceId, batch: &Letters<'_>) -> Result<Sorted, RowError> {
        let mut fold = Fold::new(self.config.types.clone(), self.config.seed);
        let mut settled = Settled { source, replayed: 0, dropped: 0, total: 0 };
        let mut kept = Vec::new();
        for Letter { letter, fate } in batch.letters {
            if self.is_erased_letter(now, batch.key, letter) {
                settled.dropped += 1;
                continue;
            }
            match fate {
                Fate::Keep => kept.push(DeadLetter::clone(letter)),
                Fate::Drop => settled.dropped += 1,
                Fate::Replay(records) => match self.valid(now, records) {
                    Ok(events) => {
                        settled.replayed += 1;
                        events.iter().for_each(|event| fold.add(event));
                    }
                    Err(error) => kept.push(DeadLetter { reason: error.to_string(), ..DeadLetter::clone(letter) }),
                },
            }
        }
        // Erased rows do not come back by a replay.
        let rows = fold.rollups()?;
        let rows = self.erasures.kept(&rows)?.unwrap_or(rows);
        settled.total = rows.total();
        Ok(Sorted { settled, rows, kept, others: fold.others() })
    }

    /// The events of a letter, or why it stays.
    fn valid<'a>(&self, now: Now, records: &[Record<'a>]) -> Result<Vec<Event<'a>>, ReplayError> {
        let event = |record: &Record<'a>| match record {
            Record::Event(raw) => {
                let event = raw.check(now, &self.config.types)?;
                event.check_kept(self.horizons.kept)?;
                Ok(event)
            }
            Record::Broken { reason, .. } => Err(ReplayError::Broken { reason: (*reason).to_owned() }),
        };
        match records.is_empty() {
            true => Err(ReplayError::Empty),
            false => records.iter().map(event).collect(),
        }
    }
}
