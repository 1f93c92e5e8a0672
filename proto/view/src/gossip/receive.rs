//! Merging deltas: a delta that continues the state here is taken. Any other is ignored, and the state here is acknowledged.

use super::peer::{Numbered, Receiving};
use super::recent::{Recent, RelayRing};
use super::{Gossip, Origin, OwnChange, Unsure};
use crate::view::{Cells, Merged, parts_of};
use std::collections::BTreeMap;
use tidemark_types::ids::{AggregatorId, CellId, ValveId};
use tidemark_types::limits::LANES_MAX;
use tidemark_types::ring::ChangeRing;
use tidemark_types::row_changes::{Part, RowChanges};
use tidemark_types::series::Row;
use tidemark_types::time::Time;
use tidemark_wire::msg::{Delta, Version};

/// The effect of a delta on this side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Does not continue the state here, or is known already.
    Ignore,
    /// Components to merge that claim nothing.
    Merge,
    /// A piece of a walk.
    Walk(Receiving),
    /// Leads to a version; `anew` when earlier changes are not recorded here.
    Advance { to: Version, anew: Option<u64> },
}

/// Why a delta is not merged.
enum Refusal {
    UnknownNumber,
    /// Beyond a limit, or components that are not the origin's.
    Bad,
}

/// The content of a delta, as slots and valve numbers of the view.
#[derive(Default)]
struct Learnt {
    components: Vec<(u32, u16, u64)>,
    rows: Vec<(u32, u16, Row)>,
    /// Parts of rows in the delta, by the rows' numbers in the view, new or not.
    told: Vec<(u32, Part)>,
}

impl Learnt {
    /// Merges all of it, and returns the raised cells.
    fn merge(&mut self, cells: &mut Cells) -> Vec<OwnChange> {
        let mut raised: BTreeMap<u32, Vec<(u32, Part)>> = BTreeMap::new();
        for &(slot, valve, value) in &self.components {
            if cells.merge(slot, valve, value) == Merged::Raised {
                raised.entry(slot).or_default();
            }
        }
        for (slot, valve, row) in &self.rows {
            if let Some(by) = cells.merge_row(*slot, *valve, row) {
                raised.entry(*slot).or_default().extend(by.parts.iter().map(|&part| (by.number, part)));
            }
            if let Some((number, _)) = cells.row_numbers(*slot).find(|(_, of)| of == valve) {
                self.told
                    .extend(parts_of(row.buckets().map(|(bucket, _)| bucket)).into_iter().map(|part| (number, part)));
            }
        }
        raised.into_iter().map(|(slot, rows)| OwnChange { slot, rows }).collect()
    }
}

impl Gossip {
    /// Merges a delta of a peer, and returns the cells that it raised. If the delta's origin is of this data centre, these cells become
    /// changes of the own stream. A cell that has ended everywhere (`is_over`) gets no slot, and its components are ignored.
    pub fn on_delta(
        &mut self,
        now: Time,
        cells: &mut Cells,
        from: AggregatorId,
        delta: &Delta,
        is_over: &dyn Fn(&CellId) -> bool,
    ) -> Vec<u32> {
        if !self.is_current(from, delta.sender) {
            return Vec::new();
        }
        let step = self.step(from, delta);
        let learnt = self.learn(cells, from, delta, is_over);
        self.schedule_ack(now, from, delta.origin);
        match (step, learnt) {
            (Step::Ignore, _) | (_, Err(Refusal::UnknownNumber)) => self.counts.deltas_ignored += 1,
            (_, Err(Refusal::Bad)) => self.counts.deltas_refused += 1,
            (step, Ok(mut learnt)) => {
                self.counts.deltas_merged += 1;
                if step == Step::Merge && delta.origin.dc != self.own.dc {
                    self.repaired = Some(now);
                }
                let raised = learnt.merge(cells);
                // Data that no version of the pair's streams covers is told on.
                if delta.origin.dc == self.own.dc && step == Step::Merge {
                    self.on_own_changes(now, raised.clone());
                }
                if delta.epoch > 0 {
                    self.on_partner_told(now, cells, delta.origin, &learnt.components);
                }
                self.take(now, from, delta, step, &learnt);
                return raised.into_iter().map(|change| change.slot).collect();
            }
        }
        Vec::new()
    }

    fn step(&self, from: AggregatorId, delta: &Delta) -> Step {
        if delta.epoch == 0 || delta.origin == self.own {
            return if delta.walk.is_some() { Step::Merge } else { Step::Ignore };
        }
        let have = self.origins.get(&delta.origin).map_or(Version::default(), |origin| origin.have);
        let to = Version { epoch: delta.epoch, version: delta.upto };
        let is_announcement = to.epoch > have.epoch;
        match delta.walk {
            _ if to <= have => Step::Ignore,
            Some(walk) => {
                let known = self.peers.get(&from).and_then(|peer| peer.walks.get(&delta.origin));
                let known = known.filter(|known| (known.epoch, known.started) == (delta.epoch, walk.started));
                let at = known.map_or(0, |known| known.next_slot);
                if walk.from_slot > at || walk.started != delta.upto {
                    Step::Ignore
                } else if walk.last {
                    Step::Advance { to, anew: Some(to.version) }
                } else {
                    let next_slot = walk.next_slot.max(at);
                    Step::Walk(Receiving { epoch: delta.epoch, started: walk.started, next_slot })
                }
            }
            None if is_announcement && delta.base == 0 => Step::Advance { to, anew: Some(0) },
            None if !is_announcement && delta.base <= have.version => Step::Advance { to, anew: None },
            None => Step::Ignore,
        }
    }

    /// Learns the names of the delta, and translates its components and rows to slots and valve numbers of the view.
    fn learn(
        &mut self,
        cells: &mut Cells,
        from: AggregatorId,
        delta: &Delta,
        is_over: &dyn Fn(&CellId) -> bool,
    ) -> Result<Learnt, Refusal> {
        let peer = self.peers.get_mut(&from).ok_or(Refusal::Bad)?;
        for (number, cell) in &delta.cells {
            let slot = if is_over(cell) { None } else { Some(cells.slot(cell).map_err(|_| Refusal::Bad)?) };
            let slot = slot.filter(|&slot| !cells.is_over(slot));
            peer.numbers.define(*number, slot.map_or(Numbered::Over, Numbered::Slot), |slot| cells.is_over(slot));
        }
        if delta.groups.iter().any(|group| group.dc != delta.origin.dc) {
            return Err(Refusal::Bad);
        }
        let groups = delta.groups.len() as u32;
        let mut place = |number: &mut u32, ahead: u32, valve: u32| {
            *number = number.checked_add(ahead).ok_or(Refusal::Bad)?;
            let Numbered::Slot(slot) = peer.numbers.get(*number).ok_or(Refusal::UnknownNumber)? else {
                return Ok(None);
            };
            let lane = valve.checked_div(groups).filter(|lane| *lane < LANES_MAX.into()).ok_or(Refusal::Bad)?;
            let group = delta.groups[(valve % groups) as usize];
            let valve = cells.valve(ValveId { group, lane: lane as u8 }).map_err(|_| Refusal::Bad)?;
            Ok(Some((slot, valve)))
        };
        let mut learnt = Learnt { components: Vec::with_capacity(delta.components.len()), ..Learnt::default() };
        let mut number = 0;
        for &(ahead, valve, value) in &delta.components {
            let Some((slot, valve)) = place(&mut number, ahead, valve)? else { continue };
            learnt.components.push((slot, valve, value));
        }
        number = 0;
        for (ahead, valve, row) in &delta.rows {
            let Some((slot, valve)) = place(&mut number, *ahead, *valve)? else { continue };
            learnt.rows.push((slot, valve, row.clone()));
        }
        Ok(learnt)
    }

    fn take(&mut self, now: Time, from: AggregatorId, delta: &Delta, step: Step, learnt: &Learnt) {
        let capacity = self.config.relay_ring_events;
        self.origin(delta.origin);
        if matches!(step, Step::Walk(_) | Step::Advance { .. }) {
            self.note_partly(delta);
        }
        let Some(origin) = self.origins.get_mut(&delta.origin) else { return };
        let Some(peer) = self.peers.get_mut(&from) else { return };
        if let (Some(walk), Step::Walk(_) | Step::Advance { .. }) = (delta.walk, step) {
            let told = Version { epoch: delta.epoch, version: delta.known.max(walk.started) };
            origin.partly = origin.partly.max(told);
        }
        match step {
            Step::Ignore | Step::Merge => return,
            Step::Walk(state) => drop(peer.walks.insert(delta.origin, state)),
            Step::Advance { to, anew } => {
                peer.walks.remove(&delta.origin);
                // A walk tells all there is, and a new stream begins anew.
                origin.advance(to, delta.known, anew.is_some());
                if let Some(reaches) = anew {
                    origin.recent = Recent::Relay(RelayRing::new(capacity, reaches));
                    origin.rows = RowChanges::new(capacity, reaches);
                }
                if let Recent::Relay(ring) = &mut origin.recent
                    && delta.walk.is_none()
                {
                    let mut slots: Vec<u32> = learnt.components.iter().map(|&(slot, ..)| slot).collect();
                    slots.dedup();
                    ring.push(to.version, slots.into_iter());
                    learnt.told.iter().for_each(|&(number, part)| origin.rows.push(to.version, number, part));
                }
            }
        }
        origin.progressed = now;
        if from == delta.origin {
            self.drop_source(now, from);
        }
        if self.peers.values().any(|peer| peer.wants.contains(&delta.origin)) {
            self.something_new(now);
        } else {
            self.expect_digests(now);
        }
    }

    /// Data in a delta of one stream of a data centre may belong to other streams.
    fn note_partly(&mut self, delta: &Delta) {
        let dc = delta.origin.dc;
        let own = self.own.dc;
        for &(of, some) in delta.partly.iter().filter(|(of, _)| of.dc == dc && dc != own) {
            // A stream that has ended gets no further versions.
            if self.seats.gathers(of, self.shard) {
                let origin = self.origin(of);
                origin.partly = origin.partly.max(some);
            }
        }
    }

    /// The state of a stream; empty at first.
    pub(super) fn origin(&mut self, of: AggregatorId) -> &mut Origin {
        let capacity = self.config.relay_ring_events;
        let is_on_disk = (self.is_resumed || self.resumed.is_some()) && self.seats.gathers(of, self.shard);
        let unsure = if is_on_disk { Unsure::Yes } else { Unsure::No };
        let new = || Origin::new(Version::default(), Recent::Relay(RelayRing::new(capacity, 0)), capacity);
        self.origins.entry(of).or_insert_with(|| Origin { unsure, ..new() })
    }

    fn schedule_ack(&mut self, now: Time, from: AggregatorId, origin: AggregatorId) {
        let Some(peer) = self.peers.get_mut(&from) else { return };
        peer.acks.insert(origin);
        peer.unacked_deltas += 1;
        let due = if peer.unacked_deltas as usize >= self.config.window_deltas.div_ceil(2) {
            now
        } else {
            now + self.config.ack_delay
        };
        peer.ack_at = Some(peer.ack_at.map_or(due, |at| at.min(due)));
    }

    /// Starts a new stream of this data centre: nothing told before counts.
    pub(super) fn new_stream(&mut self, epoch: u64) {
        let events = self.config.own_ring_events;
        let Some(own) = self.origins.get_mut(&self.own) else { return };
        own.have = Version { epoch, version: own.have.version + 1 };
        own.recent = Recent::Own(ChangeRing::new(events, own.have.version));
        own.rows = RowChanges::new(events, own.have.version);
        self.touched = 0;
    }
}
