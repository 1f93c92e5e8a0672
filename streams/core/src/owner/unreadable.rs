//! Live blobs that could not be read. What needs them is left until later, so that one damaged blob holds up no other work.

use crate::blob::BlobKey;
use crate::manifest::BlobSet;
use crate::time::Now;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// A blob is tried again after the time of a retry, and after twice as long each time, this often.
const DOUBLINGS: u32 = 6;

/// Blobs, and when each is read again.
#[derive(Debug, Default)]
pub(super) struct Unreadable(BTreeMap<BlobKey, Failed>);

#[derive(Debug)]
struct Failed {
    times: u32,
    /// `None`: it may be read.
    until: Option<Now>,
}

impl Unreadable {
    pub fn add(&mut self, now: Now, key: BlobKey, retry_after_ms: u64) {
        let failed = self.0.entry(key).or_insert(Failed { times: 0, until: None });
        failed.until = Some(now.plus_ms(retry_after_ms.saturating_mul(1 << failed.times.min(DOUBLINGS))));
        failed.times = failed.times.saturating_add(1);
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// These were read.
    pub fn read(&mut self, keys: Vec<BlobKey>) {
        keys.iter().for_each(|key| {
            self.0.remove(key);
        });
    }

    /// Lets blobs be read whose time has come. `false`: there is none.
    pub fn forget(&mut self, now: Now) -> bool {
        let mut has_passed = false;
        for failed in self.0.values_mut().filter(|failed| failed.until.is_some_and(|until| until <= now)) {
            failed.until = None;
            has_passed = true;
        }
        has_passed
    }

    /// When the next blob may be read again.
    pub fn until(&self) -> Option<Now> {
        self.0.values().filter_map(|failed| failed.until).min()
    }

    /// Whether a blob is deferred, because it could not be read.
    pub fn is_left(&self, key: &BlobKey) -> bool {
        self.0.get(key).is_some_and(|failed| failed.until.is_some())
    }

    /// The live blobs without those that are left until later.
    pub fn left_out_of<'l>(&self, live: &'l BlobSet) -> Cow<'l, BlobSet> {
        if self.until().is_none() {
            return Cow::Borrowed(live);
        }
        let mut rest = live.clone();
        for (key, _) in self.0.iter().filter(|(_, failed)| failed.until.is_some()) {
            rest.remove(key);
        }
        Cow::Owned(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blob::Seq;

    #[test]
    fn blob_that_cannot_be_read_is_tried_again_later_and_later() {
        let mut unreadable = Unreadable::default();
        let key = BlobKey { seq: Seq(7), ..BlobKey::FIRST };
        let mut now = Now(1_000);
        for wait_ms in [100, 200, 400, 800, 1_600, 3_200, 6_400, 6_400] {
            unreadable.add(now, key, 100);
            assert_eq!(unreadable.until(), Some(now.plus_ms(wait_ms)));
            now = now.plus_ms(wait_ms);
            assert!(!unreadable.forget(Now(now.0 - 1)) && unreadable.forget(now));
            assert_eq!(unreadable.until(), None);
        }
        unreadable.add(now, key, 100);
        unreadable.read(vec![key]);
        assert_eq!(unreadable.until(), None);
    }
}
