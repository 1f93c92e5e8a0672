//! The values in an aggregator of counters that others of its data centre hold: the readings that it asks for, and those that it is told.

use super::World;
use tidemark_proto::asking::{Stands, Taken};
use tidemark_proto::ids::CounterName;
use tidemark_proto::msg::Reading;
use tidemark_proto::shards::ShardId;

impl World {
    /// A reader asks for a counter that is not held here. Its holder answers at once, or no process can.
    pub(super) fn audit_asked(&mut self, at: usize, counter: usize) {
        let seats = self.seats_at(at);
        let home = self.id_of(at).dc;
        let name = self.names[counter].clone();
        let shard = self.ranges_at(at).find(&name);
        self.learn_splits(at);
        let mut is_linked = Vec::new();
        for holder in seats.holders(shard, home) {
            let other = self.at_of(holder).filter(|&other| other != at && self.links.peer(at, other).up);
            is_linked.extend(other.map(|_| holder));
        }
        let chosen = self.aggregators[at].asking.choose(&seats, home, shard, |holder| is_linked.contains(&holder));
        let Some(holder) = chosen.and_then(|chosen| self.at_of(chosen)) else { return };
        // Both are asked: the other one is so of shards of which this one was behind.
        let others = is_linked.iter().filter_map(|&other| self.at_of(other)).filter(|&other| other != holder);
        for holder in std::iter::once(holder).chain(others.collect::<Vec<_>>()) {
            if self.ask(at, holder, shard, counter) == Some(Taken::Yes) {
                return;
            }
        }
    }

    fn ask(&mut self, at: usize, holder: usize, shard: ShardId, counter: usize) -> Option<Taken> {
        let now = self.aggregator_time(holder);
        let source = self.id_of(holder);
        let process = &self.aggregators[holder];
        let core = process.core()?;
        // The asking aggregator may know of fewer splits, or not know of a split that was made there.
        let own = core.view().shard_of(&self.names[counter]);
        let is_part = self.aggregators[at].ledger.shard_map().lineage().is_within(own, shard);
        if !is_part || !core.holds(own) || !core.view().is_registered(&process.ledger) {
            return None;
        }
        self.coverage.saw_times("asked of one that has split the range", u64::from(own != shard));
        let reading = core.read(&self.names[counter], &process.ledger);
        let stand = core.stand(now, own, &process.ledger);
        let start = process.boot.into();
        // An aggregator that was set aside does not know of later arming.
        if self.seats().count(source.dc) > 1 && self.aggregators[at].ledger.view_start(source) != Some(start) {
            return None;
        }
        let before = self.aggregators[at].asking.given_up();
        let taken = self.aggregators[at].asking.take(self.now, (source, start), Stands::of([(own, stand)]));
        self.note_given_up(at, before);
        match taken {
            Taken::Yes => self.shown_of_another(at, counter, &reading, true),
            Taken::StandsBehind | Taken::ShownHere => {
                self.coverage.saw("answer of a holder that lacks what was shown");
            }
        }
        Some(taken)
    }

    /// From here on a reader misses values that were given up because no aggregator had them for long.
    pub(super) fn note_given_up(&mut self, at: usize, before: u64) {
        if self.aggregators[at].asking.given_up() > before {
            self.coverage.saw("what was shown of another is given up");
            self.audit.asked.restarted(at);
            self.audit.views.restarted(at);
        }
    }

    /// The values that subscribers of an aggregator get of a guarded counter.
    pub(super) fn audit_notified(&mut self, at: usize, name: &CounterName, reading: &Reading) {
        let Some(counter) = self.counter_index(name.key()) else { return };
        let is_held = self.holds(at, usize::from(counter));
        self.coverage.saw_times("told of a counter that another holds", u64::from(!is_held));
        self.shown_of_another(at, counter.into(), reading, false);
    }

    pub(super) fn shown_of_another(&mut self, at: usize, counter: usize, reading: &Reading, is_asked: bool) {
        let state =
            self.reference.counter(&self.names[counter]).filter(|state| state.epoch() == reading.generation + 1);
        // A view on an old copy of its disk does not know what it had promised.
        let next = state.and_then(|state| state.next_armed()).filter(|_| !self.old_views.are_any());
        let audit = &mut self.audit;
        let views = if is_asked { &mut audit.asked } else { &mut audit.notified };
        let number = audit.oracle.number(counter as u16, reading.generation);
        let total = audit.oracle.totals[usize::from(number)];
        views.shown(&mut audit.findings, at, number, reading.up, total, next);
        self.coverage.saw_times("asked of who holds it", u64::from(is_asked));
    }
}
