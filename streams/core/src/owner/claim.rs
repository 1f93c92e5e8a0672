//! How an owner comes by its partition, and how it loses it.

use super::{Output, Owner, State, Stop};
use crate::blob::Epoch;
use crate::manifest::{Claim, Command, CommitRefused, Committed, Manifest, Outcome, ReplaceRefused};
use crate::merge::Scheduler;
use crate::teeth::{Bug, bites};
use crate::time::Now;

impl Owner {
    pub(super) fn propose_claim(&mut self, now: Now) {
        let partition = self.config.partition;
        let generation = self.config.generation;
        let member = self.config.member;
        let types = Some(self.configured.names().to_vec());
        self.outputs.push_back(Output::Propose(Command::Claim(Claim { partition, generation, member, types })));
        self.retry_later(now);
    }

    pub(super) fn applied(&mut self, now: Now, outcome: &Outcome, manifest: &Manifest) {
        let own = self.config.partition;
        match outcome {
            Outcome::Claim { partition, .. }
            | Outcome::Commit { partition, .. }
            | Outcome::Fence { partition, .. }
            | Outcome::Expire { partition, .. }
            | Outcome::Erase { partition, .. }
            | Outcome::Replace { partition, .. }
                if *partition != own => {}
            Outcome::Claim { generation, member, result, .. } => {
                let is_own = (*generation, *member) == (self.config.generation, self.config.member);
                match (is_own, result) {
                    (true, Ok(epoch)) => self.adopt(now, *epoch, manifest),
                    (true, Err(refused)) => self.stop(Stop::Claim(refused.clone())),
                    (false, Ok(epoch)) if *epoch > self.epoch && !matches!(self.state, State::Claiming) => {
                        self.stop(Stop::Deposed);
                    }
                    (false, _) => {}
                }
            }
            Outcome::Commit { epoch, seq, result, .. } => {
                let State::Writing(write) = &self.state else { return };
                if *epoch != self.epoch || !write.is_proposed_as(*seq) {
                    return;
                }
                match result {
                    Ok(Committed::Now | Committed::Already) => self.committed(now),
                    Err(CommitRefused::OtherEpoch { .. }) => self.stop(Stop::Deposed),
                    Err(refused) => self.stop(Stop::Commit(*refused)),
                }
            }
            Outcome::Replace { epoch, seq, result, .. } => {
                let State::Writing(write) = &self.state else { return };
                if *epoch != self.epoch || !write.is_proposed_as(*seq) {
                    return;
                }
                match result {
                    Ok(Committed::Now | Committed::Already) => self.committed(now),
                    Err(ReplaceRefused::Commit(CommitRefused::OtherEpoch { .. })) => self.stop(Stop::Deposed),
                    Err(refused) => self.stop(Stop::Replace(*refused)),
                }
            }
            Outcome::Fence { result: Ok(epoch), .. } if *epoch > self.epoch && self.epoch > Epoch(0) => {
                self.stop(Stop::Deposed);
            }
            Outcome::Fence { .. } => {}
            Outcome::Layout { result: Ok(_) } => {
                self.layout = manifest.layout().clone();
                self.plan_at = now;
            }
            Outcome::Layout { result: Err(_) } => {}
            Outcome::Expire { epoch, seq, result, .. } => {
                if *epoch == self.epoch {
                    self.expired(now, *seq, result, manifest);
                }
            }
            Outcome::TestTenant { .. } => self.test_tenants.clone_from(manifest.test_tenants()),
            Outcome::Erase { .. } => self.adopt_erasures(now, manifest),
            Outcome::Types { .. } => self.adopt_types(now, manifest),
            Outcome::Retention { .. } => {
                self.retention = *manifest.retention();
                self.expire_at = now;
            }
            Outcome::Pause { .. } => {
                self.is_paused = manifest.pauses().of_partition(own).is_some();
                self.plan_at = now;
            }
        }
    }

    /// Takes over the manifest's state under a new epoch. Rows that were read under an earlier epoch are read again.
    fn adopt(&mut self, now: Now, epoch: Epoch, manifest: &Manifest) {
        let partition = manifest.partition(self.config.partition).filter(|partition| partition.epoch == epoch);
        let Some(partition) = partition else { return self.stop(Stop::Deposed) };
        self.epoch = epoch;
        self.last_seq = partition.last_seq();
        self.sources = partition.sources.clone();
        self.touched.clear();
        self.live = partition.live.clone();
        self.layout = manifest.layout().clone();
        self.retention = *manifest.retention();
        self.test_tenants.clone_from(manifest.test_tenants());
        self.horizons = partition.horizons;
        self.erasures = partition.erasures.clone();
        self.claim_types(manifest);
        self.expire_at = now;
        self.is_paused =
            manifest.pauses().of_partition(self.config.partition).is_some() && !bites(Bug::PauseForgottenByClaim);
        self.scheduler = Scheduler::new(now, self.config.partition, self.config.merge);
        self.unreadable = super::Unreadable::default();
        self.plan_at = now;
        self.window = super::Window::new(&self.config);
        self.flushed = None;
        self.retry_at = None;
        self.outputs.clear();
        self.state = State::Idle;
    }
}
