//! Ranges of counters that come to this view, and that leave it (decision 0048).
//!
//! An aggregator that applies a map in which it joins the holders of a range is told all of it. Its groups tell it beside its
//! feeds, until both are equally far. The other holders and data centres tell it as they tell an aggregator that has lost its
//! disk. When nothing is missing any more, and all of it is on disk, it reports that to the ledger. An aggregator that applies a
//! map in which it no longer holds a range no longer shows it, and forgets it. The file of a range is made before the map on disk
//! names it, and deleted after the map names it no more.

use super::AggregatorCore;
use super::feed::Feed;
use super::shard::Shard;
use crate::asking::Stand;
use std::collections::{BTreeMap, BTreeSet};
use tidemark_ledger::ledger::{Ledger, MoveError};
use tidemark_types::ids::{AggregatorId, GroupId, LogIndex};
use tidemark_types::teeth::{Bug, bites};
use tidemark_types::time::Time;
use tidemark_wire::msg::{KeySpan, LedgerCmd, ShardChange};
use tidemark_wire::shards::{ShardId, Split};

/// Ranges that come here, and the scopes of the feeds.
#[derive(Clone, Debug, Default)]
pub(super) struct Moves {
    /// The map that this view goes by is of this revision.
    revision: u64,
    /// Told here, and not shown yet.
    arriving: BTreeMap<ShardId, Arrival>,
    filling: Option<Filling>,
    /// The ranges that the groups are asked for, if not all are held here.
    scopes: Option<Scopes>,
    /// The number of changes of the scopes.
    changes: u32,
    /// The stand of this view in ranges when it showed them last.
    left: BTreeMap<ShardId, Stand>,
}

/// The progress of a range's arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arrival {
    /// Something of it is missing.
    Told,
    /// When this number of its checkpoint's flushes is done, all of it is on disk.
    Written(u64),
    /// Nothing is missing.
    Complete,
}

/// The missing part of a range that this view is to hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The counts of these groups of its data centre.
    Groups(Vec<GroupId>),
    /// None of its holders is connected.
    Holders,
    /// The data of its connected holders.
    Told,
    /// Its counters are yet to be added to totals.
    Totals,
    /// All of it is here, and not on disk yet.
    Disk,
    /// The ledger is yet to say that it is held here.
    Ledger,
}

/// Ranges that groups tell beside the feeds, which lack them.
#[derive(Clone, Debug, Default)]
pub(super) struct Filling {
    shards: BTreeSet<ShardId>,
    /// The filling feeds of groups with feeds that do not have these ranges yet.
    pub feeds: BTreeMap<GroupId, Feed>,
}

#[derive(Clone, Debug, Default)]
struct Scopes {
    all: Vec<KeySpan>,
    /// All ranges but the filled ones.
    without: Vec<KeySpan>,
    filled: Vec<KeySpan>,
}

/// One of two feeds of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    Usual,
    /// The feed that brings ranges which the usual one lacks.
    Filling,
}

impl AggregatorCore {
    /// The revision of the map that this view uses.
    pub fn map_revision(&self) -> u64 {
        self.moves.revision
    }

    /// Whether a range is held and shown here.
    pub fn holds(&self, shard: ShardId) -> bool {
        self.config.holds(shard) && (!self.moves.arriving.contains_key(&shard) || bites(Bug::ServesUnfilled))
    }

    /// The stand of this view in ranges that it holds no more, when it showed them last. Given once.
    pub fn take_left(&mut self) -> BTreeMap<ShardId, Stand> {
        std::mem::take(&mut self.moves.left)
    }

    /// The command that moves a range of this data centre from one aggregator to another. Refused if the new holder is not
    /// connected here.
    ///
    /// # Errors
    /// [`MoveError`]: nothing was changed.
    pub fn moving(
        &self,
        shard: ShardId,
        leaves: AggregatorId,
        to: AggregatorId,
        ledger: &Ledger,
    ) -> Result<LedgerCmd, MoveError> {
        let cmd = ledger.moving(shard, leaves, to, &self.config.ranges, &self.config.seats)?;
        let is_here = to == self.config.own || self.rtts.contains_key(&to);
        if is_here { Ok(cmd) } else { Err(MoveError::NotConnected) }
    }

    /// The command that lets a range of this data centre stay that is being moved.
    ///
    /// # Errors
    /// [`MoveError`]: nothing was changed.
    pub fn staying(&self, shard: ShardId, ledger: &Ledger) -> Result<LedgerCmd, MoveError> {
        ledger.staying(shard, self.config.own.dc, &self.config.ranges, &self.config.seats)
    }

    /// Whether any range is still arriving here.
    pub fn is_arriving(&self) -> bool {
        !self.moves.arriving.is_empty()
    }

    /// A range is split while it arrives here. That happens only to an aggregator that began anew from an old disk, since a
    /// moving range is never split. The range itself is not told any more, but its parts are.
    pub(super) fn arrive_in_parts(&mut self, split: &Split) {
        if self.moves.arriving.remove(&split.shard).is_some() {
            self.moves.arriving.extend(split.parts().map(|part| (part, Arrival::Told)));
        }
        if let Some(filling) = &mut self.moves.filling
            && filling.shards.remove(&split.shard)
        {
            filling.shards.extend(split.parts());
        }
    }

    /// After a start: uses the map on disk, and continues to receive arriving ranges.
    pub(super) fn begin_moves(&mut self, cursors: BTreeMap<GroupId, LogIndex>) {
        self.moves.revision = self.config.map_revision;
        let all: Vec<ShardId> = self.config.ranges.iter().map(|range| range.shard).collect();
        let arriving: BTreeSet<ShardId> = all.into_iter().filter(|&shard| self.config.joins(shard)).collect();
        self.arrive(arriving, cursors);
    }

    /// These ranges are new here, or not complete yet; the groups' counts in them up to the cursors are known.
    fn arrive(&mut self, shards: BTreeSet<ShardId>, cursors: BTreeMap<GroupId, LogIndex>) {
        let begins_anew = !shards.is_empty();
        for shard in shards {
            self.moves.arriving.insert(shard, Arrival::Told);
            self.moves.filling.get_or_insert_default().shards.insert(shard);
        }
        if let Some(filling) = self.moves.filling.as_mut().filter(|_| begins_anew) {
            filling.feeds.clear();
            for (&group, feed) in &mut self.feeds {
                feed.has_all = feed.is_new();
                if !feed.has_all {
                    let mut beside = cursors.get(&group).map_or_else(Feed::default, |&cursor| Feed::at(cursor));
                    if feed.is_connected() {
                        beside.on_up();
                    }
                    filling.feeds.insert(group, beside);
                }
            }
        }
        self.ask_anew();
        self.end_filling();
    }

    /// The scopes of the groups' feeds have changed.
    fn ask_anew(&mut self) {
        self.moves.changes += 1;
        let config = &self.config;
        let fills = |shard: ShardId| self.moves.fills(shard);
        self.moves.scopes = config.seats.are_split(config.own.dc).then(|| Scopes {
            all: config.ranges.spans(|shard| config.gathers(shard)),
            without: config.ranges.spans(|shard| config.gathers(shard) && !fills(shard)),
            filled: config.ranges.spans(fills),
        });
        self.for_each_feed(Feed::ask_again);
    }

    // ---- the map ----

    /// Takes the ledger's map, as applied here. A map that is older than the one on disk comes from a replica that is behind.
    pub(super) fn on_map(&mut self, now: Time, ledger: &Ledger) {
        let map = ledger.shard_map();
        if map.revision() <= self.moves.revision {
            // After a start it may only now hear of splits that are done on disk here, and that it has not said so of yet.
            self.say_parted(ledger);
            return;
        }
        let before = self.gathered();
        let shown = before.iter().copied().filter(|&shard| self.holds(shard)).collect();
        self.moves.revision = map.revision();
        self.config.seats = self.config.seats.with_moved(map.moved().clone());
        self.say_parted(ledger);
        self.gather_by_map(now, &before, shown, ledger);
    }

    /// The ranges that are told here.
    pub(super) fn gathered(&self) -> BTreeSet<ShardId> {
        let all = self.config.ranges.iter().map(|range| range.shard);
        all.filter(|&shard| self.config.gathers(shard)).collect()
    }

    /// Ranges, or their holders, have changed: ranges that were told and shown here leave or stay, and new ones arrive.
    pub(super) fn gather_by_map(
        &mut self,
        now: Time,
        before: &BTreeSet<ShardId>,
        shown: BTreeSet<ShardId>,
        ledger: &Ledger,
    ) {
        let after = self.gathered();
        let left = shown.into_iter().filter(|&shard| !self.config.holds(shard));
        let left: Vec<_> = left.map(|shard| (shard, self.stand(now, shard, ledger))).collect();
        self.moves.left.extend(left);
        before.difference(&after).for_each(|&shard| self.leave(shard));
        for own in &mut self.shards {
            own.gossip.on_seats(now, &self.config.seats);
        }
        // Also a range that has left and is to come back, if this view hears of both at once: it keeps its data, and is told all
        // of the range.
        let is_new = |shard: &&ShardId| {
            !before.contains(shard) || self.config.joins(**shard) && !self.moves.arriving.contains_key(shard)
        };
        let arriving = after.iter().filter(is_new).copied().collect();
        self.arrive(arriving, BTreeMap::new());
        self.meet_holders(now);
        self.say_kept(ledger);
    }

    /// A range is not held here any more.
    fn leave(&mut self, shard: ShardId) {
        let told = self.notified.iter().filter(|(counter, _)| self.view.shard_of(counter) == shard);
        let told: Vec<_> = told.map(|(counter, &reading)| (counter.clone(), reading)).collect();
        self.told.extend(told);
        self.moves.arriving.remove(&shard);
        self.forget_flushes(shard);
        self.forget_writing(shard);
        if let Some(filling) = &mut self.moves.filling {
            filling.shards.remove(&shard);
        }
        self.for_each_feed(|feed| feed.forget(shard));
        self.view.forget_shard(shard, self.config.seed);
        self.shards[usize::from(shard.0)] = Shard::new(&self.config, shard);
    }

    // ---- missing parts ----

    /// The filling feed of a group is as far as its usual feed: from now on the usual feed has these ranges, too.
    pub(super) fn join_feeds(&mut self, group: GroupId) {
        let Some(filling) = &mut self.moves.filling else { return };
        let (Some(usual), Some(beside)) = (self.feeds.get_mut(&group), filling.feeds.get(&group)) else { return };
        if usual.has_all || !usual.can_take_over(beside) {
            return;
        }
        usual.take_over(beside);
        filling.feeds.remove(&group);
        self.end_filling();
    }

    /// The counts of groups that are fenced come from the other holders and data centres.
    fn leave_out_fenced(&mut self, ledger: &Ledger) {
        let Some(filling) = &mut self.moves.filling else { return };
        for (group, _) in filling.feeds.extract_if(.., |group, _| ledger.is_fenced(*group)) {
            self.feeds.entry(group).or_default().has_all = true;
        }
        self.end_filling();
    }

    fn end_filling(&mut self) {
        let is_over = |filling: &Filling| filling.shards.is_empty() || filling.feeds.is_empty();
        if self.moves.filling.as_ref().is_some_and(is_over) {
            self.moves.filling = None;
            self.ask_anew();
        }
    }

    /// Looks at the arrived ranges, and reports those that are complete.
    pub(super) fn run_moves(&mut self, now: Time, ledger: &Ledger) {
        if self.moves.arriving.is_empty() {
            return;
        }
        self.leave_out_fenced(ledger);
        for (shard, arrival) in self.moves.arriving.clone() {
            let next = match arrival {
                Arrival::Told if self.missing(shard, ledger).is_none() => {
                    Arrival::Written(self.shards[usize::from(shard.0)].checkpoint.flush(now))
                }
                Arrival::Written(flush) if self.shards[usize::from(shard.0)].checkpoint.has_flushed(flush) => {
                    Arrival::Complete
                }
                other @ (Arrival::Told | Arrival::Written(_) | Arrival::Complete) => other,
            };
            self.moves.arriving.insert(shard, next);
            let joining = self.config.seats.joining(shard, self.config.own.dc);
            match joining.filter(|joining| joining.seat == self.config.own.seat) {
                Some(joining) if next == Arrival::Complete || bites(Bug::ServesUnfilled) => {
                    let dc = self.config.own.dc;
                    let revision = joining.revision;
                    self.standing.add(LedgerCmd::Shard { dc, shard, revision, change: ShardChange::Hold });
                }
                None if next == Arrival::Complete => {
                    self.moves.arriving.remove(&shard);
                }
                _ => {}
            }
        }
    }

    /// The part of a range that is missing here and that its holders have.
    fn missing(&self, shard: ShardId, ledger: &Ledger) -> Option<Missing> {
        let here = ledger.groups().iter().filter(|(group, of)| group.dc == self.config.own.dc && !of.fenced);
        let is_told =
            |group: &GroupId| self.feeds.get(group).is_some_and(Feed::has_some) && !self.is_filled(*group, shard);
        let groups: Vec<GroupId> = here.map(|(&group, _)| group).filter(|group| !is_told(group)).collect();
        let gossip = &self.shards[usize::from(shard.0)].gossip;
        let holders = self.config.seats.holders(shard, self.config.own.dc);
        if !groups.is_empty() || self.moves.fills(shard) {
            Some(Missing::Groups(groups))
        } else if !holders.filter(|holder| *holder != self.config.own).any(|holder| gossip.has_peer(holder)) {
            Some(Missing::Holders)
        } else if !gossip.has_what_holders_have() {
            Some(Missing::Told)
        } else {
            (!self.view.has_taken_in_all(shard)).then_some(Missing::Totals)
        }
    }

    /// Whether a group still tells a range beside its feed.
    fn is_filled(&self, group: GroupId, shard: ShardId) -> bool {
        let filling = self.moves.filling.as_ref().filter(|filling| filling.shards.contains(&shard));
        filling.is_some_and(|filling| filling.feeds.contains_key(&group))
    }

    /// The missing part of a range that arrives at this view, to be held here.
    pub fn waits_for(&self, shard: ShardId, ledger: &Ledger) -> Option<Missing> {
        match self.moves.arriving.get(&shard)? {
            Arrival::Told => Some(self.missing(shard, ledger).unwrap_or(Missing::Disk)),
            Arrival::Written(_) => Some(Missing::Disk),
            Arrival::Complete => Some(Missing::Ledger),
        }
    }

    // ---- feeds ----

    /// The ranges that a group is asked for, and their number; `None`: everything.
    pub(super) fn scope_of(&self, feed: &Feed, which: Which) -> Option<(&[KeySpan], u32)> {
        let scopes = self.moves.scopes.as_ref()?;
        let (ranges, number) = match which {
            Which::Filling => (&scopes.filled, 2),
            Which::Usual if feed.has_all => (&scopes.all, 1),
            Which::Usual => (&scopes.without, 0),
        };
        Some((ranges, self.moves.changes.wrapping_mul(3).wrapping_add(number)))
    }

    pub(super) fn feed(&self, group: GroupId, which: Which) -> Option<&Feed> {
        match which {
            Which::Usual => self.feeds.get(&group),
            Which::Filling => self.moves.filling.as_ref()?.feeds.get(&group),
        }
    }

    pub(super) fn feed_mut(&mut self, group: GroupId, which: Which) -> Option<&mut Feed> {
        match which {
            Which::Usual => self.feeds.get_mut(&group),
            Which::Filling => self.moves.filling.as_mut()?.feeds.get_mut(&group),
        }
    }

    /// Changes both feeds of all groups.
    pub(super) fn for_each_feed(&mut self, change: impl FnMut(&mut Feed)) {
        let beside = self.moves.filling.iter_mut().flat_map(|filling| filling.feeds.values_mut());
        self.feeds.values_mut().chain(beside).for_each(change);
    }

    /// Both feeds of all groups.
    pub(super) fn all_feeds(&self) -> impl Iterator<Item = (GroupId, Which, &Feed)> {
        let usual = self.feeds.iter().map(|(&group, feed)| (group, Which::Usual, feed));
        let beside = self.moves.filling.iter().flat_map(|filling| &filling.feeds);
        usual.chain(beside.map(|(&group, feed)| (group, Which::Filling, feed)))
    }

    /// Whether a feed brings a range.
    pub(super) fn brings(&self, has_all: bool, which: Which, shard: ShardId) -> bool {
        let is_filled = self.moves.fills(shard);
        match which {
            Which::Filling => is_filled,
            Which::Usual => self.config.gathers(shard) && (has_all || !is_filled),
        }
    }

    /// A group is connected.
    pub(super) fn feed_up(&mut self, group: GroupId) {
        let feed = self.feeds.entry(group).or_default();
        feed.on_up();
        let Some(filling) = &mut self.moves.filling else { return };
        feed.has_all |= feed.is_new();
        if !feed.has_all {
            filling.feeds.entry(group).or_default().on_up();
        }
    }

    pub(super) fn feed_gone(&mut self, group: GroupId) {
        for which in [Which::Usual, Which::Filling] {
            if let Some(feed) = self.feed_mut(group, which) {
                feed.on_gone();
            }
        }
    }

    /// The entry up to which each group's log is merged in a range.
    pub(super) fn cursors_in(&self, shard: ShardId) -> Vec<(GroupId, LogIndex)> {
        let which = |feed: &Feed| if self.moves.fills(shard) && !feed.has_all { Which::Filling } else { Which::Usual };
        let feeds = self.feeds.iter().filter_map(|(&group, feed)| Some((group, self.feed(group, which(feed))?)));
        feeds.map(|(group, feed)| (group, feed.cursor)).collect()
    }
}

impl Moves {
    /// The position in a group's log up to which entries may be merged in some range; `None` if that is not known, just after a
    /// start.
    pub fn shown_of(&self, group: GroupId, feeds: &BTreeMap<GroupId, Feed>) -> Option<LogIndex> {
        let beside = self.filling.as_ref().and_then(|filling| filling.feeds.get(&group));
        feeds.get(&group).into_iter().chain(beside).filter_map(Feed::shows_no_more_than).max()
    }

    fn fills(&self, shard: ShardId) -> bool {
        self.filling.as_ref().is_some_and(|filling| filling.shards.contains(&shard))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{AggregatorConfig, Input, Output};
    use super::*;
    use tidemark_ledger::ledger::ShardMap;
    use tidemark_types::ids::{CounterName, DcId, Start};
    use tidemark_wire::counter_order::CounterOrder;
    use tidemark_wire::msg::{FeedChunk, ForGroup, FromGroup, Hello, ScopedChunk, ScopedPull};
    use tidemark_wire::shards::{Ranges, Seats};

    const DC: DcId = DcId(0);
    const GROUP: GroupId = GroupId { dc: DC, group: 0, incarnation: 1 };
    const COMES: ShardId = ShardId(2);

    fn counter(number: u8) -> CounterName {
        CounterName::new("t", &[number, 1]).unwrap()
    }

    fn has(span: &KeySpan, key: &[u8]) -> bool {
        CounterOrder::by_name().is_in("t", key, std::slice::from_ref(span))
    }

    /// The second of four, which holds the first two of four ranges, and its pulls.
    struct Stage {
        core: AggregatorCore,
        ledger: Ledger,
        pulls: Vec<ScopedPull>,
        kept: Vec<(ShardMap, BTreeSet<ShardId>)>,
    }

    impl Stage {
        fn new() -> Stage {
            let own = AggregatorId { dc: DC, seat: 1 };
            let cut = |number: u8| CounterName::new("t", &[number]).unwrap();
            let ranges = Ranges::of_cuts((1..4).map(cut).collect()).unwrap();
            let config = AggregatorConfig {
                own,
                paired: true,
                ranges,
                seats: Seats::new(vec![4]),
                ..AggregatorConfig::new(DC, 1)
            };
            let core = AggregatorCore::new(config);
            let ledger = Ledger::default();
            let mut stage = Stage { core, ledger, pulls: Vec::new(), kept: Vec::new() };
            let hello = Hello { group: GROUP, lanes: 1, nonces: vec![1], number: 1, accounts: Vec::new() };
            stage.apply([LedgerCmd::Namespace("t".into()), LedgerCmd::Hello(hello)]);
            stage.say(Input::GroupUp { group: GROUP });
            stage
        }

        fn say(&mut self, input: Input) {
            self.core.handle(Time(1_000), input, &self.ledger);
            self.core.check_invariants();
            while let Some(output) = self.core.poll_output() {
                match output {
                    Output::Group { msg: ForGroup::FeedIn(pull), .. } => self.pulls.push(pull),
                    Output::Kept { map, kept } => self.kept.push((map, kept)),
                    _ => {}
                }
            }
        }

        fn apply(&mut self, cmds: impl IntoIterator<Item = LedgerCmd>) {
            for cmd in cmds {
                self.ledger.apply(self.ledger.applied().next(), &cmd);
            }
            let changes = self.ledger.take_changes();
            self.say(Input::Ledger(changes));
        }

        fn change(&mut self, revision: u64, change: ShardChange) {
            self.apply([LedgerCmd::Shard { dc: DC, shard: COMES, revision, change }]);
        }

        /// The group answers a pull: one counter, with this count by that entry.
        fn answer(&mut self, pull: &ScopedPull, number: u8, upto: u64, value: u64) {
            let chunk = FeedChunk {
                group: GROUP,
                start: Start { number: 1, nonce: 1 },
                base: pull.pull.cursor,
                upto: LogIndex(upto),
                applied: LogIndex(upto),
                first_slot: pull.pull.slots_known,
                cells: vec![counter(number).total()],
                components: vec![(number.into(), 0, value)],
                ..FeedChunk::default()
            };
            let scope = pull.scope;
            let fills = pull.fills;
            let told = ScopedChunk { chunk, slots: vec![number.into()], named: 4, scope, fills };
            self.say(Input::Group { group: GROUP, msg: FromGroup::FedIn(told) });
        }

        fn has(&self, number: u8) -> u64 {
            self.core.view().sum_of(&counter(number), 0)
        }
    }

    #[test]
    fn a_range_that_comes_is_told_beside_the_feed_until_both_are_as_far_and_an_answer_to_an_older_pull_is_not_taken() {
        let mut stage = Stage::new();
        let first = stage.pulls.pop().unwrap();
        assert!(!first.fills && first.ranges.iter().all(|range| !has(range, &[2, 1])));
        stage.answer(&first, 1, 7, 100);
        let before = stage.pulls.pop().unwrap();
        assert_eq!((stage.has(1), before.pull.cursor), (100, LogIndex(7)));

        stage.change(0, ShardChange::Join { seats: [2, 3], seat: 1, leaves: 3 });
        assert_eq!(stage.kept.last().unwrap().1, [0, 1, 2].map(ShardId).into());
        let (beside, usual): (Vec<_>, Vec<_>) = stage.pulls.drain(..).partition(|pull| pull.fills);
        let beside = beside.last().unwrap().clone();
        let usual = usual.last().unwrap().clone();
        assert!(beside.ranges.len() == 1 && has(&beside.ranges[0], &[2, 1]) && beside.pull.cursor == LogIndex(0));
        assert!(usual.scope != before.scope && usual.ranges == before.ranges);
        stage.answer(&before, 1, 8, 101);
        assert_eq!(stage.has(1), 100, "asked for before it was known what comes");
        stage.answer(&beside, 2, 9, 20);
        assert_eq!((stage.has(2), stage.core.is_arriving(), stage.core.holds(COMES)), (20, true, false));

        // From now on one feed brings all ranges; the answer to a pull without the range is not taken.
        let joined = stage.pulls.pop().unwrap();
        assert!(!joined.fills && joined.ranges.iter().any(|range| has(range, &[2, 1])));
        stage.answer(&usual, 1, 12, 500);
        assert_eq!((stage.has(1), joined.pull.cursor), (100, LogIndex(7)));
        stage.answer(&joined, 2, 12, 23);
        assert_eq!(stage.has(2), 23);

        // The range stays where it was: the data that had come is forgotten, and has no file.
        stage.change(1, ShardChange::Stay);
        assert_eq!((stage.has(2), stage.has(1), stage.core.is_arriving()), (0, 100, false));
        assert_eq!(stage.kept.last().unwrap().1, [0, 1].map(ShardId).into());
        assert!(stage.core.take_left().is_empty(), "it was never shown here");
    }

    #[test]
    fn what_leaves_and_is_to_come_back_at_once_is_told_anew_and_shown_by_others_until_then() {
        let mut stage = Stage::new();
        let pull = stage.pulls.pop().unwrap();
        stage.answer(&pull, 1, 7, 100);
        let of = |revision, change| LedgerCmd::Shard { dc: DC, shard: ShardId(1), revision, change };
        stage.apply([
            of(0, ShardChange::Join { seats: [1, 2], seat: 3, leaves: 1 }),
            of(1, ShardChange::Hold),
            of(2, ShardChange::Join { seats: [2, 3], seat: 1, leaves: 3 }),
        ]);
        assert_eq!((stage.core.holds(ShardId(1)), stage.core.is_arriving(), stage.has(1)), (false, true, 100));
        assert!(stage.core.take_left().contains_key(&ShardId(1)));
        assert!(stage.pulls.iter().any(|pull| pull.fills && has(&pull.ranges[0], &[1, 1])));
    }

    #[test]
    fn what_a_group_tells_in_part_is_not_all_of_its_log() {
        let mut stage = Stage::new();
        for (base, upto, stands) in [(0, 7, (0, 7)), (7, 8, (0, 8)), (8, 9, (9, 9))] {
            let pull = stage.pulls.pop().unwrap();
            let chunk = FeedChunk {
                group: GROUP,
                start: Start { number: 1, nonce: 1 },
                base: LogIndex(base),
                upto: LogIndex(upto),
                applied: LogIndex(9),
                ..FeedChunk::default()
            };
            let told = ScopedChunk { chunk, slots: Vec::new(), named: 0, scope: pull.scope, fills: false };
            stage.say(Input::Group { group: GROUP, msg: FromGroup::FedIn(told) });
            let stand = stage.core.stand(Time(1_000), ShardId(1), &stage.ledger);
            assert_eq!(stand.groups, [(GROUP, LogIndex(stands.0), LogIndex(stands.1))]);
        }
    }

    #[test]
    fn what_leaves_is_forgotten_and_how_far_it_stood_is_said_once() {
        let mut stage = Stage::new();
        let pull = stage.pulls.pop().unwrap();
        stage.answer(&pull, 1, 7, 100);
        let of = |change| LedgerCmd::Shard { dc: DC, shard: ShardId(1), revision: 0, change };
        stage.apply([of(ShardChange::Join { seats: [1, 2], seat: 3, leaves: 1 })]);
        assert!(stage.core.holds(ShardId(1)), "until the other one has it");
        stage.apply([LedgerCmd::Shard { dc: DC, shard: ShardId(1), revision: 1, change: ShardChange::Hold }]);
        assert_eq!((stage.core.holds(ShardId(1)), stage.has(1)), (false, 0));
        let left = stage.core.take_left();
        assert_eq!(left[&ShardId(1)].groups, [(GROUP, LogIndex(7), LogIndex(7))]);
        assert!(stage.core.take_left().is_empty());
    }
}
