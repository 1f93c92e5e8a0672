//! The consumer's side of one group's feed: its cursor, and what of the group's slots is known by name.

use crate::aggregator::{AggregatorConfig, AggregatorCore, Output};
use crate::gossip::Fed;
use crate::ids::{CounterName, GroupId, LogIndex, ValveId};
use crate::ledger::Ledger;
use crate::limits::COMPONENT_MAX;
use crate::msg::{FeedChunk, FeedPull, FeedWalk, ForGroup};
use crate::time::{Span, Time};
use crate::view::{Cells, Merged};
use crate::warm;
use std::collections::BTreeSet;

/// The time between two pulls without an answer doubles so often at most.
const RETRY_DOUBLINGS_MAX: u32 = 8;

/// State of following one group.
#[derive(Clone, Debug, Default)]
pub struct Feed {
    pub cursor: LogIndex,
    walk: Option<FeedWalk>,
    /// Of the entry behind the cursor so many changes of rows are known.
    rows_told: u32,
    /// The group's slots as the view's.
    slots: Vec<u32>,
    /// Those of them that are cells of counters that began again.
    begun: BTreeSet<u32>,
    /// The pull that is out, since when, and how often it was sent again.
    pulled: Option<Time>,
    retries: u32,
    applied: LogIndex,
    connected: bool,
}

impl Feed {
    /// A feed that continues at a persisted cursor; names are asked for again.
    pub fn at(cursor: LogIndex) -> Feed {
        Feed { cursor, ..Feed::default() }
    }

    pub fn lag(&self) -> u64 {
        self.applied.0.saturating_sub(self.cursor.0)
    }

    /// When the next pull is due. One that finds nothing new is answered when there is something, so it may take long.
    pub fn due(&self, config: &AggregatorConfig) -> Option<Time> {
        let patience = config.feed_retry.0.saturating_mul(1 << self.retries).min(config.feed_retry_max.0);
        self.connected.then(|| self.pulled.map_or(Time(0), |at| at + Span(patience)))
    }

    pub fn on_up(&mut self) {
        (self.connected, self.pulled, self.walk, self.rows_told, self.retries) = (true, None, None, 0, 0);
    }

    pub fn on_gone(&mut self) {
        self.connected = false;
    }

    /// Whether everything up to here is merged, and nothing of what comes after.
    pub fn stands_at(&self, cursor: LogIndex) -> bool {
        self.cursor == cursor && self.walk.is_none() && self.rows_told == 0
    }

    /// A slot of the group as the view's.
    fn slot(&self, of_group: u32) -> Option<u32> {
        self.slots.get(of_group as usize).copied()
    }

    fn pull(&self, group: GroupId, bytes_max: u32) -> FeedPull {
        let slots_known = self.slots.len() as u32;
        FeedPull { group, cursor: self.cursor, walk: self.walk, slots_known, bytes_max, rows_told: self.rows_told }
    }
}

impl AggregatorCore {
    /// Groups of this data centre that are not known to have heard of a counter's generation: what they count until then belongs to
    /// an earlier one. A group that has heard has named the generation's cell.
    pub fn unheard(&self, counter: &CounterName, generation: u32, ledger: &Ledger) -> Vec<GroupId> {
        let here =
            ledger.groups().iter().filter(|(group, registered)| group.dc == self.config.own.dc && !registered.fenced);
        here.map(|(&group, _)| group).filter(|&group| !self.has_heard(group, counter, generation)).collect()
    }

    /// Whether a group is known to have heard of a counter's generation.
    pub(super) fn has_heard(&self, group: GroupId, counter: &CounterName, generation: u32) -> bool {
        let named = |slot| self.feeds.get(&group).is_some_and(|feed| feed.begun.contains(&slot));
        generation == 0 || self.view.cells().table().find_total(counter, generation).is_some_and(named)
    }

    /// Asks every connected group for what is new, one pull at a time.
    pub(super) fn run_feeds(&mut self, now: Time) {
        for (&group, feed) in &mut self.feeds {
            if feed.due(&self.config).is_some_and(|due| due <= now) {
                feed.retries = if feed.pulled.is_some() { (feed.retries + 1).min(RETRY_DOUBLINGS_MAX) } else { 0 };
                feed.pulled = Some(now);
                let msg = ForGroup::Feed(feed.pull(group, self.config.feed_bytes_max));
                self.outputs.push_back(Output::Group { group, msg });
            }
        }
    }

    /// Merges a chunk that continues the cursor; another one is the answer to an older pull.
    pub(super) fn on_feed(&mut self, now: Time, group: GroupId, chunk: &FeedChunk) {
        let Some(feed) = self.feeds.get_mut(&group) else { return };
        if chunk.group != group || chunk.base != feed.cursor || !names_its_slots(feed, chunk) {
            return;
        }
        feed.pulled = None;
        feed.applied = feed.applied.max(chunk.applied);
        // What does not fit the view is not skipped: the cursor stays, and the feed's lag grows for all to see.
        if !self.learn_slots(group, chunk) || !self.learn_valves(group, chunk) {
            return;
        }
        self.merge_chunk(now, group, chunk);
        // What was counted in cells that are new here is to flow on.
        if !chunk.cells.is_empty() {
            self.graph_at.get_or_insert(now);
        }
        if let Some(feed) = self.feeds.get_mut(&group) {
            (feed.cursor, feed.walk, feed.rows_told) = (chunk.upto, chunk.walk, chunk.rows_told);
        }
        self.checkpoint.moved(now, self.config.checkpoint_interval);
        self.want_notifications(now);
    }

    /// Names of the group's slots; false when the view's table is full.
    fn learn_slots(&mut self, group: GroupId, chunk: &FeedChunk) -> bool {
        let Some(feed) = self.feeds.get_mut(&group) else { return false };
        self.view.change(|cells| {
            let known = feed.slots.len().saturating_sub(chunk.first_slot as usize);
            for cell in chunk.cells.iter().skip(known) {
                let Ok(slot) = cells.slot(cell) else { return false };
                feed.slots.push(slot);
                if cell.generation > 0 {
                    feed.begun.insert(slot);
                }
            }
            true
        })
    }

    /// False when the view can take no further valve.
    fn learn_valves(&mut self, group: GroupId, chunk: &FeedChunk) -> bool {
        let lanes = chunk.components.iter().map(|&(_, lane, _)| lane).chain(chunk.rows.iter().map(|row| row.1));
        self.view.change(|cells| lanes.into_iter().all(|lane| cells.valve(ValveId { group, lane }).is_ok()))
    }

    fn merge_chunk(&mut self, now: Time, group: GroupId, chunk: &FeedChunk) {
        let AggregatorCore { view, feeds, checkpoint, .. } = self;
        let Some(feed) = feeds.get(&group) else { return };
        let raised = view.change(|cells| {
            let mut raised = merge_components(cells, feed, chunk);
            raised.iter().for_each(|fed| checkpoint.touch(fed.slot));
            if !chunk.rows.is_empty() {
                merge_rows(cells, feed, chunk, &mut raised);
            }
            raised
        });
        self.gossip.on_fed(now, raised);
        self.heard.on_raised(now, &mut self.view);
    }
}

fn merge_components(cells: &mut Cells, feed: &Feed, chunk: &FeedChunk) -> Vec<Fed> {
    let mut raised = Vec::new();
    for (at, &(slot, lane, value)) in chunk.components.iter().enumerate() {
        warm::ahead(&chunk.components, at, |&(slot, ..)| feed.slot(slot).map_or(0, |slot| cells.warm(slot)));
        let Some((slot, valve)) = place_of(cells, feed, ValveId { group: chunk.group, lane }, slot) else { continue };
        if value <= COMPONENT_MAX && cells.merge(slot, valve, value) == Merged::Raised {
            raised.push(Fed { slot, valve, rows: Vec::new() });
        }
    }
    raised
}

/// What changed in rows goes with the component, as both have changed in one entry.
fn merge_rows(cells: &mut Cells, feed: &Feed, chunk: &FeedChunk, raised: &mut Vec<Fed>) {
    let mut places: Vec<((u32, u16), usize)> =
        raised.iter().enumerate().map(|(at, fed)| ((fed.slot, fed.valve), at)).collect();
    places.sort_unstable();
    for (at, &(slot, lane, ref row)) in chunk.rows.iter().enumerate() {
        warm::ahead(&chunk.rows, at, |&(slot, ..)| feed.slot(slot).map_or(0, |slot| cells.warm_row(slot)));
        let Some((slot, valve)) = place_of(cells, feed, ValveId { group: chunk.group, lane }, slot) else { continue };
        let Some(by) = cells.merge_row(slot, valve, row) else { continue };
        let parts = by.parts.iter().map(|&part| (by.number, part));
        match places.binary_search_by_key(&(slot, valve), |&(of, _)| of) {
            Ok(found) => raised[places[found].1].rows.extend(parts),
            Err(_) => raised.push(Fed { slot, valve, rows: parts.collect() }),
        }
    }
}

/// A slot and a valve of a group, as a slot and a number of the view.
fn place_of(cells: &mut Cells, feed: &Feed, valve: ValveId, slot: u32) -> Option<(u32, u16)> {
    Some((feed.slot(slot)?, cells.valve(valve).ok()?))
}

/// Whether every slot that the chunk speaks of is known, or named in it.
fn names_its_slots(feed: &Feed, chunk: &FeedChunk) -> bool {
    let known = (chunk.first_slot as usize + chunk.cells.len()).max(feed.slots.len());
    let continues = chunk.first_slot as usize <= feed.slots.len();
    let slots = chunk.components.iter().map(|&(slot, ..)| slot).chain(chunk.rows.iter().map(|row| row.0));
    continues && slots.into_iter().all(|slot| (slot as usize) < known)
}
