//! Retention: how many days blobs of each level are kept.
//!
//! Rows rise from hours to days and periods, so a lower level is never kept longer than a higher one. The horizon of the hours is
//! the one for late rows: an older row becomes a dead letter, so what has expired does not come back. Horizons are of the manifest,
//! not of a clock, and never fall.

use crate::blob::{BlobMeta, Level};
use crate::limits::{RETENTION_DAYS_MAX, RETENTION_DAYS_MIN};
use crate::teeth::{Bug, bites};
use crate::time::{DAY_S, Day, Now};
use serde::{Deserialize, Serialize};

/// Days that blobs of a level are kept; 0: for ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retention {
    /// Of deltas and hours, and how old a row may be that comes late.
    pub hour_days: u32,
    pub day_days: u32,
    pub period_days: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("blobs of a {level} are kept for {days} days: {RETENTION_DAYS_MIN} to {RETENTION_DAYS_MAX}, or 0 for ever")]
pub struct RetentionError {
    pub level: Level,
    pub days: u32,
}

/// The first day that is kept of each level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Horizons {
    pub hour: Day,
    pub day: Day,
    pub period: Day,
}

impl Retention {
    /// # Errors
    /// [`RetentionError`].
    pub fn check(&self) -> Result<(), RetentionError> {
        let levels = [(Level::Hour, self.hour_days), (Level::Day, self.day_days), (Level::Period, self.period_days)];
        let is_wrong = |days: u32| days != 0 && !(RETENTION_DAYS_MIN..=RETENTION_DAYS_MAX).contains(&days);
        match levels.into_iter().find(|(_, days)| is_wrong(*days)) {
            Some((level, days)) => Err(RetentionError { level, days }),
            None => Ok(()),
        }
    }

    pub fn is_for_ever(&self) -> bool {
        *self == Retention::default()
    }

    /// Where the horizons are at a time.
    pub fn horizons(&self, now: Now) -> Horizons {
        let today = Day(u32::try_from(now.seconds() / DAY_S).unwrap_or(u32::MAX));
        let horizon = |days: u32| if days == 0 { Day(0) } else { today.minus(days) };
        let period = horizon(self.period_days);
        let day = horizon(self.day_days).max(period);
        Horizons { hour: horizon(self.hour_days).max(day), day, period }
    }
}

impl Horizons {
    /// The first day that is kept of a level.
    pub fn of_level(&self, level: Level) -> Day {
        match level {
            Level::Delta | Level::Hour => self.hour,
            Level::Day => self.day,
            Level::Period => self.period,
            Level::DeadLetters => Day(0),
        }
    }

    /// Whether no row of a blob is kept.
    pub fn has_passed(&self, meta: &BlobMeta) -> bool {
        let hour = if bites(Bug::ExpiryByFirstHour) { meta.hours.first } else { meta.hours.last };
        hour.day() < self.of_level(meta.level)
    }

    /// The later ones of both.
    #[must_use]
    pub fn raised_to(&self, other: &Horizons) -> Horizons {
        Horizons {
            hour: self.hour.max(other.hour),
            day: self.day.max(other.day),
            period: self.period.max(other.period),
        }
    }

    /// Whether a lower level is not kept longer than a higher one.
    pub fn is_ordered(&self) -> bool {
        self.hour >= self.day && self.day >= self.period
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn now(day: u64) -> Now {
        Now(day * DAY_S * 1_000)
    }

    #[test]
    fn lower_level_is_never_kept_longer_than_a_higher_one() {
        let retention = Retention { hour_days: 0, day_days: 30, period_days: 400 };
        let horizons = retention.horizons(now(20_000));
        assert_eq!(horizons, Horizons { hour: Day(19_970), day: Day(19_970), period: Day(19_600) });
        assert_eq!(Retention::default().horizons(now(20_000)), Horizons::default());
        assert_eq!(retention.horizons(now(5)), Horizons::default());
    }

    #[test]
    fn days_outside_the_limits_are_refused() {
        let retention = |day_days| Retention { day_days, ..Retention::default() };
        assert_eq!(retention(2).check(), Err(RetentionError { level: Level::Day, days: 2 }));
        assert_eq!(retention(36_501).check(), Err(RetentionError { level: Level::Day, days: 36_501 }));
        assert_eq!([retention(0).check(), retention(3).check(), retention(36_500).check()], [Ok(()); 3]);
    }

    proptest! {
        #[test]
        fn horizons_are_ordered_and_rise_with_time(
            days in [0..500_u32, 0..500, 0..500],
            at in 0..40_000_u64,
            later in 0..1_000_u64,
        ) {
            let [hour_days, day_days, period_days] = days;
            let retention = Retention { hour_days, day_days, period_days };
            let before = retention.horizons(now(at));
            let after = retention.horizons(now(at + later));
            prop_assert!(before.is_ordered() && after.is_ordered());
            prop_assert_eq!(before.raised_to(&after), after);
        }
    }
}
