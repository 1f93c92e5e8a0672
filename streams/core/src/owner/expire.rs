//! Blobs that are too old are taken out of the manifest once a day, at a time of day of their partition.

use super::{Output, Owner, State, Stop};
use crate::manifest::{Command, Expire, ExpireRefused, Expired, Manifest};
use crate::merge::Phase;
use crate::retention::today;
use crate::time::{DAY_S, Day, Now};

impl Owner {
    /// Proposes to expire old blobs. `false`: none is too old, and no horizon rises.
    pub(super) fn begin_expire(&mut self, now: Now) -> bool {
        if now < self.expire_at {
            return false;
        }
        self.expire_at = self.next_expiry(now);
        if self.retention.is_for_ever() {
            return false;
        }
        // A log may have accepted rows under a clock that was ahead. Retention follows the clock of the machine.
        let today = today(self.clock.map_or(now, |clock| clock.min(now)));
        let Some(plausible) = self.live.plausible(today) else { return false };
        let horizons = self.horizons.raised_to(&self.retention.horizons(plausible));
        let has_blobs = || self.live.values().any(|meta| horizons.has_passed(&meta));
        if horizons == self.horizons && !has_blobs() {
            return false;
        }
        self.state = State::Expiring { today };
        self.propose_expire(now, today);
        true
    }

    pub(super) fn propose_expire(&mut self, now: Now, today: Day) {
        let expire = Expire { partition: self.config.partition, epoch: self.epoch, today };
        self.outputs.push_back(Output::Propose(Command::Expire(expire)));
        self.retry_later(now);
    }

    /// The manifest decides the horizons. An outcome may be that of an earlier proposal, and may come twice.
    pub(super) fn expired(
        &mut self,
        now: Now,
        proposed: Day,
        result: &Result<Expired, ExpireRefused>,
        manifest: &Manifest,
    ) {
        let is_awaited = matches!(self.state, State::Expiring { today } if today == proposed);
        match result {
            Ok(expired) => {
                let partition = manifest.partition(self.config.partition);
                self.horizons = partition.map_or(self.horizons, |partition| partition.horizons);
                expired.blobs.iter().for_each(|meta| {
                    self.live.remove(&meta.key);
                });
                self.unreadable.read(expired.blobs.iter().map(|meta| meta.key).collect());
                self.erasures.settle(&self.live);
                self.plan_at = now;
                if !is_awaited {
                    return;
                }
                if expired.has_more {
                    return self.propose_expire(now, proposed);
                }
                self.retry_at = None;
                self.state = State::Idle;
            }
            Err(ExpireRefused::OtherEpoch { .. } | ExpireRefused::NoSuchPartition(_)) if is_awaited => {
                self.stop(Stop::Deposed);
            }
            Err(ExpireRefused::OtherEpoch { .. } | ExpireRefused::NoSuchPartition(_)) => {}
        }
    }

    /// The same time of day tomorrow.
    fn next_expiry(&self, now: Now) -> Now {
        let phase_s = Phase::Expire.of(u64::from(self.config.partition.0), DAY_S);
        let slots = (now.seconds() + DAY_S - phase_s) / DAY_S;
        Now((slots * DAY_S + phase_s).saturating_mul(1_000))
    }
}
