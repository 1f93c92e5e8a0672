//! Weight with an event time, on its way to the flusher: coalesced per counter, half and minute.

use crate::error::AddError;
use hashbrown::HashTable;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard};
use std::time::{SystemTime, UNIX_EPOCH};
use tidemark_proto::ids::{CounterName, Half};
use tidemark_proto::series::{Granularity, TimeOutOfRange, UnixTime};

/// Different counters and minutes that are added to before the flusher takes them, which it does each flush interval while it has room.
/// More: [`AddError::Overloaded`].
pub const TIMED_ADDS_MAX: usize = 65_536;

/// When something happened, to the second.
pub trait EventTime {
    /// Error: before 1970, or after the year 3000.
    fn unix_time(self) -> Result<UnixTime, TimeOutOfRange>;
}

impl EventTime for UnixTime {
    fn unix_time(self) -> Result<UnixTime, TimeOutOfRange> {
        Ok(self)
    }
}

impl EventTime for SystemTime {
    fn unix_time(self) -> Result<UnixTime, TimeOutOfRange> {
        match self.duration_since(UNIX_EPOCH) {
            Ok(since) => UnixTime::try_from(since.as_secs()),
            Err(before) => Err(TimeOutOfRange(-i128::from(before.duration().as_secs()) - 1)),
        }
    }
}

/// Weight of a counter's half and a minute.
#[derive(Debug)]
pub(crate) struct TimedAdd {
    pub counter: CounterName,
    pub half: Half,
    pub weight: u64,
    /// The latest of its times, all of one minute.
    pub event: UnixTime,
}

/// Weight that the flusher has not yet seen.
#[derive(Debug, Default)]
pub(crate) struct TimedAdds {
    state: Mutex<State>,
    hashes: RandomState,
}

#[derive(Debug, Default)]
struct State {
    adds: HashTable<TimedAdd>,
    ended: bool,
}

impl TimedAdd {
    fn minute(&self) -> u32 {
        Granularity::MINUTE.index_at(self.event)
    }
}

impl TimedAdds {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn hash(&self, name: &CounterName, half: Half, minute: u32) -> u64 {
        self.hashes.hash_one((name, half, minute))
    }

    /// Errors: nothing was added.
    pub fn add(&self, name: &CounterName, half: Half, weight: u64, at: impl EventTime) -> Result<(), AddError> {
        let event = at.unix_time()?;
        let minute = Granularity::MINUTE.index_at(event);
        let hash = self.hash(name, half, minute);
        let mut state = self.state();
        if state.ended {
            return Err(AddError::Closed);
        }
        if weight == 0 {
            return Ok(());
        }
        let overloaded = AddError::Overloaded { limit: TIMED_ADDS_MAX };
        let same = |add: &TimedAdd| add.minute() == minute && add.half == half && add.counter == *name;
        if let Some(add) = state.adds.find_mut(hash, same) {
            add.weight = add.weight.checked_add(weight).ok_or(overloaded)?;
            add.event = add.event.max(event);
            return Ok(());
        }
        if state.adds.len() >= TIMED_ADDS_MAX {
            return Err(overloaded);
        }
        let add = TimedAdd { counter: name.clone(), half, weight, event };
        state.adds.insert_unique(hash, add, |add| self.hash(&add.counter, add.half, add.minute()));
        Ok(())
    }

    /// All that was added since the flusher last asked.
    pub fn take(&self) -> Vec<TimedAdd> {
        self.state().adds.drain().collect()
    }

    /// Nothing more is taken.
    pub fn end(&self) {
        self.state().ended = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_is_added_in_one_minute_is_one_and_too_many_are_refused_with_the_limit() {
        let adds = TimedAdds::default();
        let name = CounterName::new("site", b"views").unwrap();
        let at = |s: u64| UnixTime::try_from(s).unwrap();
        for minute in 0..TIMED_ADDS_MAX as u64 {
            adds.add(&name, Half::Up, 1, at(minute * 60)).unwrap();
        }
        adds.add(&name, Half::Up, 2, at(59)).unwrap();
        adds.add(&name, Half::Up, 4, at(30)).unwrap();
        let refused = adds.add(&name, Half::Down, 1, at(59));
        assert_eq!(refused, Err(AddError::Overloaded { limit: TIMED_ADDS_MAX }));
        let taken = adds.take();
        assert_eq!(taken.iter().map(|add| add.weight).sum::<u64>(), TIMED_ADDS_MAX as u64 + 6);
        let first = taken.iter().find(|add| add.minute() == 0).unwrap();
        assert_eq!((first.weight, first.event), (7, at(59)));
        adds.add(&name, Half::Down, 1, at(59)).unwrap();
        adds.end();
        assert_eq!(adds.add(&name, Half::Up, 1, at(59)), Err(AddError::Closed));
    }

    #[test]
    fn times_outside_1970_to_3000_are_refused_with_what_they_are() {
        let refused = |at: SystemTime| at.unix_time().unwrap_err().0;
        assert_eq!(refused(UNIX_EPOCH - Duration::from_millis(500)), -1);
        assert_eq!(refused(UNIX_EPOCH + Duration::from_secs(1 << 40)), 1 << 40);
        assert_eq!((UNIX_EPOCH + Duration::from_millis(1_999)).unix_time(), UnixTime::from_s(1));
    }
}
