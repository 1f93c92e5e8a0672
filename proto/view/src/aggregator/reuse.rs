//! Frees the slots of ended cells, so that new cells get them (decision 0091). One shard at a time:
//!
//! 1. **Wait.** Once enough cells of a shard have ended, the aggregator notes their slots. A checkpoint that begins later records on
//!    disk that they are empty. Without it, a new cell could find the old cell's counts after a crash.
//! 2. **Sweep.** In steps, the maps of feeds and the numbers of peers forget these slots. Neither adds a slot of an ended cell again,
//!    so a swept part stays swept.
//! 3. **Free.** Totals forget the slots, and the next new cells get them.
//!
//! Forgetting or splitting the shard ends the work. The aggregator notes the ended cells again later.

use super::AggregatorCore;
use super::moves::Which;
use crate::gossip::{NUMBERS_PER_PAGE, NumbersSwept};
use tidemark_ledger::ledger::Ledger;
use tidemark_types::ids::GroupId;
use tidemark_types::numbers::Numbers;
use tidemark_types::teeth::{Bug, bites};
use tidemark_types::time::Time;
use tidemark_wire::shards::ShardId;

/// The work under way.
#[derive(Clone, Debug, Default)]
pub(super) struct Reuse {
    freeing: Option<Freeing>,
    /// When the sweep continues.
    step_at: Option<Time>,
}

/// Slots of a shard on their way to be free.
#[derive(Clone, Debug)]
struct Freeing {
    shard: ShardId,
    /// The life of its cells.
    life: u32,
    slots: Numbers,
    /// Once this checkpoint is durable, the slots are empty on disk.
    checkpoint: u64,
    sweep: Option<Sweep>,
}

/// The progress of a sweep.
#[derive(Clone, Debug)]
struct Sweep {
    /// The remaining feeds, the present feed last.
    feeds: Vec<(GroupId, Which)>,
    /// The next slot of the present feed.
    slot: usize,
    numbers: NumbersSwept,
}

impl Reuse {
    pub fn due(&self) -> Option<Time> {
        self.step_at
    }
}

impl AggregatorCore {
    /// Continues to free slots, in steps of the same size as those of totals (`graph_step`).
    pub(super) fn run_reuse(&mut self, now: Time, ledger: &Ledger) {
        let going_on = self.reuse.freeing.take().filter(|freeing| self.is_as_noted(freeing));
        let Some(mut freeing) = going_on.or_else(|| self.note_slots(now)) else {
            self.reuse.step_at = None;
            return;
        };
        let checkpoint = &self.shards[usize::from(freeing.shard.0)].checkpoint;
        let is_saved = checkpoint.has_done(freeing.checkpoint) || bites(Bug::FreedUnsaved);
        // Nothing is due before the checkpoint is done.
        self.reuse.step_at = self.reuse.step_at.filter(|_| is_saved);
        if !is_saved || self.reuse.step_at.is_some_and(|at| at > now) {
            self.reuse.freeing = Some(freeing);
            return;
        }
        let is_swept = bites(Bug::ReferencesKept) || self.sweep(&mut freeing);
        self.reuse.step_at = (!is_swept).then(|| now + self.config.graph_interval);
        match is_swept {
            true => self.free_slots(&freeing, ledger),
            false => self.reuse.freeing = Some(freeing),
        }
    }

    /// Whether slots of a shard still have the meaning that they had when they were noted.
    fn is_as_noted(&self, freeing: &Freeing) -> bool {
        let is_split = self.view.splits().is_some_and(|split| split.shard == freeing.shard);
        !is_split && self.view.cells(freeing.shard).life() == freeing.life
    }

    /// Notes the slots of ended cells of a shard that has enough ended cells.
    fn note_slots(&mut self, now: Time) -> Option<Freeing> {
        if bites(Bug::SlotsKept) {
            return None;
        }
        let split = self.view.splits().map(|split| split.shard);
        let mut others = self.view.shards().filter(|&(shard, _)| Some(shard) != split);
        let (shard, cells) = others.find(|(_, cells)| {
            let ended = cells.over_len() - cells.free_len();
            ended >= self.config.reused_min.max(1) && ended.saturating_mul(self.config.reused_part) >= cells.len()
        })?;
        let life = cells.life();
        let slots = cells.to_free();
        let checkpoint = &mut self.shards[usize::from(shard.0)].checkpoint;
        checkpoint.moved(now, self.config.checkpoint_interval);
        Some(Freeing { shard, life, slots, checkpoint: checkpoint.next(), sweep: None })
    }

    /// Runs a step of the sweep. True: the sweep has ended.
    fn sweep(&mut self, freeing: &mut Freeing) -> bool {
        let gossip = &self.shards[usize::from(freeing.shard.0)].gossip;
        // Feeds that fill in ranges come last in the list and are swept first: usual feeds take slots over from them.
        let new = || Sweep {
            feeds: self.all_feeds().map(|(group, which, _)| (group, which)).collect(),
            slot: 0,
            numbers: gossip.begin_sweep(),
        };
        let mut sweep = freeing.sweep.take().unwrap_or_else(new);
        let mut budget = self.config.graph_step.max(1);
        while budget > 0 {
            let Some(&(group, which)) = sweep.feeds.last() else { break };
            let feed = self.feed_mut(group, which);
            let looked_at = feed.map_or(0, |feed| feed.end_slots(freeing.shard, &freeing.slots, sweep.slot, budget));
            sweep.slot += looked_at;
            if looked_at < budget {
                sweep.feeds.pop();
                sweep.slot = 0;
            }
            budget -= looked_at;
        }
        let gossip = &mut self.shards[usize::from(freeing.shard.0)].gossip;
        while budget > 0 {
            if !gossip.sweep_numbers(&mut sweep.numbers, &freeing.slots) {
                return true;
            }
            budget = budget.saturating_sub(NUMBERS_PER_PAGE);
        }
        freeing.sweep = Some(sweep);
        false
    }

    fn free_slots(&mut self, freeing: &Freeing, ledger: &Ledger) {
        self.shards[usize::from(freeing.shard.0)].gossip.free_slots(&freeing.slots);
        self.view.free_slots(freeing.shard, &freeing.slots, ledger);
    }

    /// Panics when something refers to a free slot.
    pub(super) fn check_freed(&self) {
        for (shard, cells) in self.view.shards().filter(|(_, cells)| cells.free_len() > 0) {
            let free = cells.free_slots();
            self.shards[usize::from(shard.0)].gossip.check_freed(free);
            let refers = |(.., feed): (GroupId, Which, &super::feed::Feed)| feed.refers_to(shard, free);
            assert!(!self.all_feeds().any(refers), "a feed refers to a free slot of shard {}", shard.0);
        }
    }
}
