//! When the flushes of this process were committed. Nothing keeps these times: after a restart they are not known.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use tidemark_streams_core::blob::{BlobKey, Epoch, Seq};

/// Flushes whose times are kept: of more than two hours, at a flush a second. Older times are forgotten.
pub const COMMIT_TIMES_MAX: usize = 8_192;

/// Times of commits, in milliseconds since 1970.
#[derive(Default)]
pub struct CommitTimes(Mutex<BTreeMap<(Epoch, Seq), u64>>);

impl CommitTimes {
    pub fn record(&self, epoch: Epoch, seq: Seq, at_ms: u64) {
        let mut times = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        times.insert((epoch, seq), at_ms);
        while times.len() > COMMIT_TIMES_MAX {
            times.pop_first();
        }
    }

    /// Forgets all: another history may give the same keys again.
    pub fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// When a blob was committed; `None`: it is not the blob of a flush, or its time was forgotten.
    pub fn of(&self, key: &BlobKey) -> Option<u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&(key.epoch, key.seq)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemark_streams_core::blob::PartitionId;

    #[test]
    fn oldest_times_are_forgotten() {
        let times = CommitTimes::default();
        let key = |seq: u64| BlobKey { partition: PartitionId(0), epoch: Epoch(1), seq: Seq(seq), part: 0 };
        (0..=COMMIT_TIMES_MAX as u64).for_each(|seq| times.record(Epoch(1), Seq(seq), seq));
        assert_eq!((times.of(&key(0)), times.of(&key(1)), times.of(&key(9_999))), (None, Some(1), None));
    }
}
