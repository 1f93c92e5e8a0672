//! Retention: how many days rows are kept, and how old a row may be that arrives late.
//!
//! A single horizon expires blobs of every level. Merges replace blobs, so a blob of a low level holds rows that no other blob has. It is
//! kept as long as the blob of a period that its rows go into.
//!
//! Horizons are part of the manifest and never fall. They follow the newest live row and not the clock alone: a clock that jumps ahead
//! raises them by one day at most.

use crate::blob::BlobMeta;
use crate::limits::{RETENTION_DAYS_MAX, RETENTION_DAYS_MIN};
use crate::teeth::{Bug, bites};
use crate::time::{DAY_S, Day, Now};
use serde::{Deserialize, Serialize};
use std::fmt;

/// How many days; 0: without a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retention {
    /// The age of the oldest row that is accepted. An older row becomes a dead letter.
    pub late_days: u32,
    /// The age of the oldest row that is kept.
    pub kept_days: u32,
}

/// A setting of [`Retention`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetentionField {
    Late,
    Kept,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {days} days: {RETENTION_DAYS_MIN} to {RETENTION_DAYS_MAX} are allowed, or 0 for no limit")]
pub struct RetentionError {
    pub field: RetentionField,
    pub days: u32,
}

/// First days.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Horizons {
    /// The first day that late rows are accepted for.
    pub late: Day,
    /// The first day that is kept.
    pub kept: Day,
}

impl fmt::Display for RetentionField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RetentionField::Late => "the age of late rows",
            RetentionField::Kept => "the age of kept rows",
        })
    }
}

impl Retention {
    /// # Errors
    /// [`RetentionError`].
    pub fn check(&self) -> Result<(), RetentionError> {
        let fields = [(RetentionField::Late, self.late_days), (RetentionField::Kept, self.kept_days)];
        let is_wrong = |days: u32| days != 0 && !(RETENTION_DAYS_MIN..=RETENTION_DAYS_MAX).contains(&days);
        match fields.into_iter().find(|(_, days)| is_wrong(*days)) {
            Some((field, days)) => Err(RetentionError { field, days }),
            None => Ok(()),
        }
    }

    pub fn is_for_ever(&self) -> bool {
        *self == Retention::default()
    }

    /// The horizons of a day.
    pub fn horizons(&self, today: Day) -> Horizons {
        let horizon = |days: u32| if days == 0 { Day(0) } else { today.minus(days) };
        let kept = horizon(self.kept_days);
        Horizons { late: horizon(self.late_days).max(kept), kept }
    }
}

/// The day of a time.
pub fn today(now: Now) -> Day {
    Day(u32::try_from(now.seconds() / DAY_S).unwrap_or(u32::MAX))
}

impl Horizons {
    /// Whether no row of a blob is kept.
    pub fn has_passed(&self, meta: &BlobMeta) -> bool {
        let hour = if bites(Bug::ExpiryByFirstHour) { meta.hours.first } else { meta.hours.last };
        meta.level.is_of_rows() && hour.day() < self.kept
    }

    /// The later ones of both.
    #[must_use]
    pub fn raised_to(&self, other: &Horizons) -> Horizons {
        Horizons { late: self.late.max(other.late), kept: self.kept.max(other.kept) }
    }

    /// Whether every row that is accepted is kept.
    pub fn is_ordered(&self) -> bool {
        self.late >= self.kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn accepted_rows_are_never_older_than_kept_rows() {
        let retention = Retention { late_days: 0, kept_days: 30 };
        assert_eq!(retention.horizons(Day(20_000)), Horizons { late: Day(19_970), kept: Day(19_970) });
        let retention = Retention { late_days: 7, kept_days: 30 };
        assert_eq!(retention.horizons(Day(20_000)), Horizons { late: Day(19_993), kept: Day(19_970) });
        assert_eq!(Retention::default().horizons(Day(20_000)), Horizons::default());
        assert_eq!(retention.horizons(Day(5)), Horizons::default());
        assert_eq!(today(Now(u64::MAX)), Day(u32::MAX));
    }

    #[test]
    fn days_outside_the_limits_are_refused() {
        let retention = |kept_days| Retention { kept_days, ..Retention::default() };
        let refused = |days| Err(RetentionError { field: RetentionField::Kept, days });
        assert_eq!([retention(2).check(), retention(36_501).check()], [refused(2), refused(36_501)]);
        assert_eq!([retention(0).check(), retention(3).check(), retention(36_500).check()], [Ok(()); 3]);
    }

    proptest! {
        #[test]
        fn horizons_are_ordered_and_rise_with_time(
            late_days in 0..500_u32,
            kept_days in 0..500_u32,
            at in 0..40_000_u32,
            later in 0..1_000_u32,
        ) {
            let retention = Retention { late_days, kept_days };
            let before = retention.horizons(Day(at));
            let after = retention.horizons(Day(at + later));
            prop_assert!(before.is_ordered() && after.is_ordered());
            prop_assert_eq!(before.raised_to(&after), after);
        }
    }
}
