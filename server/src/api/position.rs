//! Positions of awards: where one stands among all, and in which history.
//!
//! A position is said as `BIRTH.INDEX.AT.DIGEST`. The birth is that of the cluster in which the award was decided (see
//! [`tidemark_proto::ledger::births`]). A ledger that was founded anew, or restored from older images, decides other awards at the same
//! indices. A caller goes on behind a position that is part of this history. Any other one is refused, and the caller is told where to
//! begin anew: whatever it has not seen stands behind that.

use super::Failure;
use crate::names::sha256_prefix;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;
use tidemark_proto::ids::{Birth, CounterName, LogIndex};
use tidemark_proto::ledger::Births;
use tidemark_proto::msg::Award;

/// Code of the failure.
pub(crate) const POSITION_UNKNOWN: &str = "position_unknown";
/// Bytes of a position's text. A longer one is refused, and shown up to here.
const TEXT_BYTES_MAX: usize = 100;

/// The position of an award, or of its claim's result, among all: the deciding entry of the ledger, the entry's first milestone, and a
/// digest. The digest covers the counter and the kind of event, since an entry may award the same milestone of several counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct AwardPosition {
    pub index: u64,
    pub at: u64,
    pub counter: u64,
}

/// A position as it is said, with the birth in which it was decided. While a process does not know its cluster's birth, it says 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MarkedPosition {
    pub birth: Option<Birth>,
    pub position: AwardPosition,
}

/// The position that a caller names. Without a birth it is in the form from before there were births.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenPosition {
    text: String,
    birth: Option<Birth>,
    position: AwardPosition,
}

/// How far a process knows the history of awards.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    pub births: Births,
    /// The last entry of the ledger's log that is applied here.
    pub applied: LogIndex,
}

/// Why a caller cannot go on where it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AnewReason {
    /// The cluster was founded anew, or restored from images that are older than the position; or the position names no birth.
    OtherBirth,
    /// The ledger has not decided as much.
    Ahead,
}

/// A caller cannot go on where it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anew {
    pub reason: AnewReason,
    /// The caller's text.
    pub given: String,
    /// All that it may not have seen stands behind this.
    pub position: MarkedPosition,
}

/// The interpretation of a caller's position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// It is part of this history.
    Here(AwardPosition),
    /// It may be part of what this process has not heard of yet.
    NotYet,
    Anew(Anew),
}

impl AwardPosition {
    pub fn of(award: &Award) -> AwardPosition {
        AwardPosition::new(award.index.0, award.at, "", &award.counter)
    }

    pub(crate) fn new(index: u64, at: u64, kind: &str, counter: &CounterName) -> AwardPosition {
        let parts = [kind.as_bytes(), counter.namespace().as_bytes(), b"/", counter.key()];
        AwardPosition { index, at, counter: u64::from_be_bytes(sha256_prefix(&parts)) }
    }

    /// Behind all that an entry decides.
    fn behind(index: LogIndex) -> AwardPosition {
        AwardPosition { index: index.0, at: u64::MAX, counter: u64::MAX }
    }

    /// As it is said, with the birth in which it was decided.
    pub fn marked(self, births: &Births) -> MarkedPosition {
        MarkedPosition { birth: births.of(LogIndex(self.index)), position: self }
    }
}

impl GivenPosition {
    /// A position that this process has kept itself. In the form without a birth it is taken to be of the present birth, because it stands
    /// in the same data directory as the ledger's log.
    pub(crate) fn kept(kept: MarkedPosition, births: &Births) -> GivenPosition {
        let MarkedPosition { birth, position } = kept;
        GivenPosition { text: kept.to_string(), birth: birth.or(births.current()), position }
    }
}

impl History {
    /// The interpretation of a position by this process. With `is_whole`, the process has received all decisions from before the caller's
    /// request.
    pub(crate) fn find(&self, given: &GivenPosition, is_whole: bool) -> Found {
        let GivenPosition { text, birth, position } = given;
        if birth.is_none() && position.index == 0 {
            return Found::Here(AwardPosition::default());
        }
        let anew = |reason, go_on: AwardPosition| {
            Found::Anew(Anew { reason, given: text.clone(), position: go_on.marked(&self.births) })
        };
        if self.births.current().is_none() {
            return Found::NotYet;
        }
        let beginning = AwardPosition::default();
        let Some(until) = birth.and_then(|birth| self.births.until(birth)) else {
            return anew(AnewReason::OtherBirth, beginning);
        };
        match (position.index <= until.0, position.index <= self.applied.0) {
            (false, _) => anew(AnewReason::OtherBirth, AwardPosition::behind(until)),
            (true, true) => Found::Here(*position),
            (true, false) if is_whole => anew(AnewReason::Ahead, beginning),
            (true, false) => Found::NotYet,
        }
    }
}

/// As text: 16 hexadecimal digits.
pub fn birth_text(birth: Option<Birth>) -> String {
    format!("{:016x}", birth.map_or(0, |birth| birth.0.get()))
}

impl fmt::Display for MarkedPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AwardPosition { index, at, counter } = self.position;
        write!(f, "{}.{index}.{at}.{counter:016x}", birth_text(self.birth))
    }
}

/// A text is no position of an award.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{shown:?} is no position of an award: BIRTH.INDEX.AT.DIGEST expected, as in `position`")]
pub struct PositionTextError {
    /// The text, or its beginning.
    shown: String,
}

impl FromStr for GivenPosition {
    type Err = PositionTextError;

    /// `BIRTH.INDEX.AT.DIGEST`, or `BIRTH.INDEX.AT`, which is behind all of them. A position without a birth is read too: its owner is told
    /// to begin anew.
    fn from_str(text: &str) -> Result<GivenPosition, PositionTextError> {
        let refused = || PositionTextError { shown: text.chars().take(TEXT_BYTES_MAX).collect() };
        if text.len() > TEXT_BYTES_MAX {
            return Err(refused());
        }
        let mut parts: Vec<&str> = text.split('.').collect();
        // A birth has 16 digits, and so has the digest of the form before: that one stands last of three.
        let is_marked = parts.len() > 2 && parts[0].len() == 16;
        let birth = if is_marked { Some(hexadecimal(parts.remove(0)).ok_or_else(refused)?) } else { None };
        let (index, at, digest) = match parts[..] {
            [index, at] => (index, at, Some(u64::MAX)),
            [index, at, digest] => (index, at, hexadecimal(digest)),
            _ => return Err(refused()),
        };
        let position = index.parse().ok().zip(at.parse().ok()).zip(digest);
        let ((index, at), counter) = position.ok_or_else(refused)?;
        let birth = birth.and_then(NonZeroU64::new).map(Birth);
        Ok(GivenPosition { text: text.to_owned(), birth, position: AwardPosition { index, at, counter } })
    }
}

fn hexadecimal(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    digits.then(|| u64::from_str_radix(text, 16).ok()).flatten()
}

impl fmt::Display for Anew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Anew { reason, given, position } = self;
        let reason = match reason {
            AnewReason::OtherBirth => {
                "is not part of this cluster's history: it was founded anew, or restored from images"
            }
            AnewReason::Ahead => "is ahead of all that the ledger has decided",
        };
        write!(f, "the position {given} {reason}. Begin anew: awards that you may not have seen are behind {position}")
    }
}

impl From<Anew> for Failure {
    fn from(anew: Anew) -> Failure {
        Failure::Conflict { code: POSITION_UNKNOWN, message: anew.to_string() }
    }
}

#[cfg(test)]
mod tests;
