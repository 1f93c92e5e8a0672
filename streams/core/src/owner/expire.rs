//! Blobs that are too old are taken out of the manifest once a day, at a time of day of their partition.

use super::{Output, Owner, State, Stop};
use crate::blob::Seq;
use crate::manifest::{Command, Expire, ExpireRefused, Expired, Manifest};
use crate::merge::Phase;
use crate::retention::today;
use crate::time::{DAY_S, Day, Now};

impl Owner {
    /// Proposes to expire old blobs. `false`: none is too old, and no horizon rises.
    pub(super) fn expire_if_due(&mut self, now: Now) -> bool {
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
        self.begin_expiry(now, today);
        true
    }

    fn begin_expiry(&mut self, now: Now, today: Day) {
        self.last_seq = Seq(self.last_seq.0 + 1);
        self.state = State::Expiring { seq: self.last_seq, today };
        self.propose_expire(now, self.last_seq, today);
    }

    pub(super) fn propose_expire(&mut self, now: Now, seq: Seq, today: Day) {
        let expire = Expire { partition: self.config.partition, epoch: self.epoch, seq, today };
        self.outputs.push_back(Output::Propose(Command::Expire(expire)));
        self.retry_later(now);
    }

    /// The manifest decides the horizons. An outcome may be of an expiry that is not awaited.
    pub(super) fn expired(
        &mut self,
        now: Now,
        proposed: Option<Seq>,
        result: &Result<Expired, ExpireRefused>,
        manifest: &Manifest,
    ) {
        let awaited = match self.state {
            State::Expiring { seq, today } => Some(today).filter(|_| proposed == Some(seq)),
            State::Claiming | State::Idle | State::Loading(_) | State::Writing(_) | State::Stopped(_) => None,
        };
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
                let Some(today) = awaited else { return };
                if expired.has_more {
                    return self.begin_expiry(now, today);
                }
                self.retry_at = None;
                self.state = State::Idle;
            }
            // The refused command was a copy.
            Err(_) if awaited.is_none() => {}
            Err(ExpireRefused::OtherEpoch { .. } | ExpireRefused::NoSuchPartition(_)) => self.stop(Stop::Deposed),
            // Another process commits under this epoch. The next claim begins behind the numbers of that process.
            Err(refused @ ExpireRefused::OldSeq { .. }) => self.stop(Stop::Expire(*refused)),
        }
    }

    /// The same time of day tomorrow.
    fn next_expiry(&self, now: Now) -> Now {
        let phase_s = Phase::Expire.of(u64::from(self.config.partition.0), DAY_S);
        let slots = (now.seconds() + DAY_S - phase_s) / DAY_S;
        Now((slots * DAY_S + phase_s).saturating_mul(1_000))
    }
}
