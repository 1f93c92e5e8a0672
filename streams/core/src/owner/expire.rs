//! Blobs that are too old are taken out of the manifest once a day, at a time of day of their partition.

use super::{Output, Owner, State, Stop};
use crate::manifest::{Command, Expire, ExpireRefused, Expired, Manifest};
use crate::merge::phase_s;
use crate::time::{DAY_S, Now};

impl Owner {
    /// Proposes to take away what has expired. `false`: nothing has.
    pub(super) fn begin_expire(&mut self, now: Now) -> bool {
        if now < self.expire_at {
            return false;
        }
        self.expire_at = self.next_expiry(now);
        if self.retention.is_for_ever() {
            return false;
        }
        let horizons = self.horizons.raised_to(&self.retention.horizons(now));
        let has_blobs = || self.live.values().any(|meta| horizons.has_passed(&meta));
        if horizons == self.horizons && !has_blobs() {
            return false;
        }
        self.horizons = horizons;
        self.state = State::Expiring;
        self.propose_expire(now);
        true
    }

    pub(super) fn propose_expire(&mut self, now: Now) {
        let expire = Expire { partition: self.config.partition, epoch: self.epoch, horizons: self.horizons };
        self.outputs.push_back(Output::Propose(Command::Expire(expire)));
        self.retry_later(now);
    }

    pub(super) fn expired(&mut self, now: Now, result: &Result<Expired, ExpireRefused>, manifest: &Manifest) {
        let partition = manifest.partition(self.config.partition);
        let has_reached = partition.is_some_and(|known| known.horizons.raised_to(&self.horizons) == known.horizons);
        // An earlier proposal may be applied late, and once more. Rows are refused behind the present horizons, so it has to wait.
        if !matches!(self.state, State::Expiring) || (result.is_ok() && !has_reached) {
            if let Ok(expired) = result {
                self.forget(expired);
            }
            return;
        }
        match result {
            Ok(expired) => {
                self.forget(expired);
                self.plan_at = now;
                if expired.has_more {
                    return self.propose_expire(now);
                }
                self.retry_at = None;
                self.state = State::Idle;
            }
            Err(ExpireRefused::OtherEpoch { .. } | ExpireRefused::NoSuchPartition(_)) => self.stop(Stop::Deposed),
            Err(ExpireRefused::Order(_)) => self.state = State::Idle,
        }
    }

    fn forget(&mut self, expired: &Expired) {
        for meta in &expired.blobs {
            self.live.remove(&meta.key);
        }
        self.erasures.settle(&self.live);
    }

    /// The same time of day tomorrow.
    fn next_expiry(&self, now: Now) -> Now {
        let phase_s = phase_s(format!("expire {}", self.config.partition.0).as_bytes(), DAY_S);
        let slots = (now.seconds() + DAY_S - phase_s) / DAY_S;
        Now((slots * DAY_S + phase_s).saturating_mul(1_000))
    }
}
