//! Births of the cluster: the founding of its ledger, and each restore of the whole cluster from images.
//!
//! Each birth has a number that is drawn at random and stands in the ledger, so all members know the same one. An index of the
//! ledger's log means something only together with the birth in which it was decided. A cluster that is founded anew counts from
//! 1 again. A restored cluster lacks the decisions made after its images were taken. A restored ledger keeps the earlier births,
//! and how far each is part of its own history.

use super::Ledger;
use serde::{Deserialize, Serialize};
use tidemark_types::ids::{Birth, LogIndex};
use tidemark_types::limits::EARLIER_BIRTHS_MAX;

/// The births that the history of a ledger has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Births {
    /// `None` until it is set: after the founding, or the restore.
    current: Option<Birth>,
    /// The newest last.
    earlier: Vec<EarlierBirth>,
}

/// A birth before the last restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct EarlierBirth {
    birth: Birth,
    /// The last entry of it that the images held. Later decisions are not part of this history.
    until: LogIndex,
}

impl Births {
    /// The births of a ledger that is in its first one.
    pub fn first(birth: Birth) -> Births {
        Births { current: Some(birth), earlier: Vec::new() }
    }

    /// The present birth; `None` while it is not known here.
    pub fn current(&self) -> Option<Birth> {
        self.current
    }

    /// The birth in which an entry of this history was decided; `None` while the present one is not known.
    pub fn of(&self, index: LogIndex) -> Option<Birth> {
        let earlier = self.earlier.iter().find(|earlier| index <= earlier.until);
        earlier.map_or(self.current, |earlier| Some(earlier.birth))
    }

    /// The last entry of a birth that is part of this history; all entries of the present birth are. `None` for a birth that does
    /// not belong to this history, or was forgotten.
    pub fn until(&self, birth: Birth) -> Option<LogIndex> {
        let earlier = || self.earlier.iter().find(|earlier| earlier.birth == birth).map(|earlier| earlier.until);
        if self.current == Some(birth) { Some(LogIndex(u64::MAX)) } else { earlier() }
    }

    /// The first number that is said stands.
    pub fn begin(&mut self, birth: Birth) {
        self.current.get_or_insert(birth);
    }

    /// The same history with a new birth that begins behind `until`. Its number is not known yet.
    pub fn ended(mut self, until: LogIndex) -> Births {
        if let Some(birth) = self.current.take() {
            self.earlier.push(EarlierBirth { birth, until });
        }
        self.earlier.drain(..self.earlier.len().saturating_sub(EARLIER_BIRTHS_MAX));
        self
    }
}

impl Ledger {
    /// The births of this history.
    pub fn births(&self) -> &Births {
        &self.births
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroU64;

    fn birth(number: u64) -> Birth {
        Birth(NonZeroU64::new(number).unwrap())
    }

    #[test]
    fn the_first_number_that_is_said_stands() {
        let mut births = Births::default();
        assert_eq!((births.current(), births.of(LogIndex(1))), (None, None));
        births.begin(birth(7));
        births.begin(birth(8));
        assert_eq!(births, Births::first(birth(7)));
        assert_eq!((births.of(LogIndex(u64::MAX)), births.until(birth(8))), (Some(birth(7)), None));
    }

    #[test]
    fn a_restored_ledger_knows_how_far_each_birth_is_its_own() {
        let births = Births::first(birth(7)).ended(LogIndex(10));
        assert_eq!((births.current(), births.of(LogIndex(10)), births.of(LogIndex(11))), (None, Some(birth(7)), None));
        // It is restored again before anybody has said its number.
        let mut births = births.ended(LogIndex(20));
        births.begin(birth(8));
        let mut births = births.ended(LogIndex(30));
        births.begin(birth(9));
        let of = [5, 10, 11, 30, 31].map(|index| births.of(LogIndex(index)));
        assert_eq!(of, [7, 7, 8, 8, 9].map(|number| Some(birth(number))));
        let until = [7, 8, 9, 10].map(|number| births.until(birth(number)));
        assert_eq!(until, [Some(LogIndex(10)), Some(LogIndex(30)), Some(LogIndex(u64::MAX)), None]);
    }

    #[test]
    fn the_oldest_births_are_forgotten() {
        let mut births = Births::default();
        for number in 1..=EARLIER_BIRTHS_MAX as u64 + 3 {
            births.begin(birth(number));
            births = births.ended(LogIndex(number * 10));
        }
        assert_eq!((births.earlier.len(), births.until(birth(3))), (EARLIER_BIRTHS_MAX, None));
        assert_eq!(births.until(birth(4)), Some(LogIndex(40)));
    }
}
