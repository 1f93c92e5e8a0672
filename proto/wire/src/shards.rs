//! The cuts of a view: ranges of counters, each of one shard (users read "slot"; decision 0048).
//!
//! The order is that of [positions](crate::counter_order), by default of names. A cut is the first counter of the range that it
//! begins. Where counters are laid by a piece of their keys, the range begins with all counters that have the cut's piece.
//! A range that is split is replaced: two new ranges have its counters, under numbers that were never given before.

use crate::counter_order::KeySpan;
use crate::counter_order::{CounterOrder, ShardBy};
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use tidemark_types::hash::bytes_hash;
use tidemark_types::ids::{AggregatorId, CounterName, DcId};
use tidemark_types::limits::SHARDS_MAX;

/// A range of counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ShardId(pub u16);

impl ShardId {
    /// The range before the first cut: all counters, if there is no cut.
    pub const FIRST: ShardId = ShardId(0);
}

/// A set of shards. Shards with numbers that are equal modulo 64 are not told apart: all of them are in it, or none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardMask(u64);

impl ShardMask {
    pub const NONE: ShardMask = ShardMask(0);
    pub const EVERY: ShardMask = ShardMask(u64::MAX);

    pub fn of(shard: ShardId) -> ShardMask {
        ShardMask(1 << (shard.0 % 64))
    }

    /// The shards of either set.
    pub fn with(self, other: ShardMask) -> ShardMask {
        ShardMask(self.0 | other.0)
    }

    pub fn has(self, shard: ShardId) -> bool {
        self.0 & ShardMask::of(shard).0 != 0
    }
}

/// A range that is cut in two.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Split {
    /// The range that is no more then.
    pub shard: ShardId,
    /// The first counter of the second of the two.
    pub at: CounterName,
    /// The number of the first of the two; the second has the next one.
    pub first: ShardId,
}

impl Split {
    /// The two ranges that replace the range, in the order of counters.
    pub fn parts(&self) -> [ShardId; 2] {
        [self.first, ShardId(self.first.0 + 1)]
    }
}

/// The descent of ranges by splits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lineage {
    /// For each split: the range that it cut, and the first of its two parts.
    splits: Vec<(ShardId, ShardId)>,
}

impl Lineage {
    /// The lineage of splits in their order.
    pub fn of<'a>(splits: impl Iterator<Item = &'a Split>) -> Lineage {
        Lineage { splits: splits.map(|split| (split.shard, split.first)).collect() }
    }

    /// The number of splits.
    pub fn len(&self) -> usize {
        self.splits.len()
    }

    /// Whether nothing was split.
    pub fn is_empty(&self) -> bool {
        self.splits.is_empty()
    }

    /// The two parts that a range was cut into.
    pub fn parts(&self, shard: ShardId) -> Option<[ShardId; 2]> {
        let of = self.splits.iter().find(|(of, _)| *of == shard);
        of.map(|&(_, first)| [first, ShardId(first.0 + 1)])
    }

    /// The range that was cut into this one and another.
    pub fn parent(&self, shard: ShardId) -> Option<ShardId> {
        let of = self.splits.iter().find(|(_, first)| shard.0 == first.0 || shard.0 == first.0 + 1);
        of.map(|&(parent, _)| parent)
    }

    /// The range of the founding that it is a part of.
    pub fn root(&self, shard: ShardId) -> ShardId {
        std::iter::successors(Some(shard), |&of| self.parent(of)).last().unwrap_or(shard)
    }

    /// Whether a range is another one, or a part of it.
    pub fn is_within(&self, shard: ShardId, whole: ShardId) -> bool {
        std::iter::successors(Some(shard), |&of| self.parent(of)).any(|of| of == whole)
    }

    /// The ranges that have a range's counters: itself, unless it was split.
    pub fn finest(&self, shard: ShardId) -> BTreeSet<ShardId> {
        match self.parts(shard) {
            None => BTreeSet::from([shard]),
            Some(parts) => parts.into_iter().flat_map(|part| self.finest(part)).collect(),
        }
    }
}

/// All counters, cut into ranges: each counter is in exactly one. By default there is one for all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges {
    /// Ascending, each once.
    cuts: Vec<CounterName>,
    /// The shard of each range, once a range was split. Until then the range before the first cut is shard 0, and the range that
    /// the k-th cut begins is shard k.
    shards: Vec<ShardId>,
    /// The cuts at first, if they differ from the present ones.
    founded: Option<Vec<CounterName>>,
    lineage: Lineage,
    /// The order in which counters lie.
    order: CounterOrder,
    /// The fingerprint of the first cuts and of the order: needed for each input.
    fingerprint: u64,
}

/// One of [`Ranges`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range<'a> {
    pub shard: ShardId,
    /// Its first counter; `None`: it begins before all.
    pub from: Option<&'a CounterName>,
    /// The first counter behind it; `None`: it ends behind all.
    pub before: Option<&'a CounterName>,
}

/// The number of a data centre's aggregators that hold each range, if it has as many.
pub const HOLDERS: u8 = 2;

/// The holders of a range of one data centre that was moved, or is being moved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holding {
    /// Seats of the holders, the first holder first: two, each once.
    pub seats: [u8; HOLDERS as usize],
    /// The aggregator that is receiving all of the range, and the holder that it replaces.
    pub joins: Option<Joining>,
}

/// A move that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Joining {
    /// The seat that is told all of the range.
    pub seat: u8,
    /// The seat that holds it no more once the other does.
    pub leaves: u8,
    /// The revision of the map with this change.
    pub revision: u64,
}

impl Holding {
    /// The holders once the joining aggregator has all of the range. The remaining holder is first from then on: it knows the
    /// gossip sent to other data centres.
    pub fn moved(&self) -> Holding {
        let Some(Joining { seat, leaves, .. }) = self.joins else { return self.clone() };
        let stays = self.seats.iter().copied().find(|of| *of != leaves).unwrap_or(seat);
        Holding { seats: [stays, seat], joins: None }
    }
}

/// The aggregators of each data centre that hold each range. One or two aggregators hold all ranges, as a pair. With more, the
/// k-th range is held first by the aggregator at seat k modulo their number, and second by the next, unless the range was moved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seats {
    /// The number of aggregators of each data centre.
    counts: Vec<u8>,
    moved: BTreeMap<(DcId, ShardId), Holding>,
    /// The parts of a split range are held by the range's holders.
    lineage: Lineage,
}

impl Seats {
    /// The counts of data centres in their order, without moves. A data centre with a count of 0, or without one, is taken to
    /// have two.
    pub fn new(counts: Vec<u8>) -> Seats {
        Seats { counts, ..Seats::default() }
    }

    /// The same with these ranges moved, or being moved.
    pub fn with_moved(&self, moved: BTreeMap<(DcId, ShardId), Holding>) -> Seats {
        Seats { moved, ..self.clone() }
    }

    /// The same where ranges were split.
    pub fn with_lineage(&self, lineage: Lineage) -> Seats {
        Seats { lineage, ..self.clone() }
    }

    /// The number of aggregators of a data centre.
    pub fn count(&self, dc: DcId) -> u8 {
        self.counts.get(usize::from(dc.0)).copied().filter(|count| *count > 0).unwrap_or(HOLDERS)
    }

    /// All data centres that are said.
    pub fn dcs(&self) -> impl Iterator<Item = DcId> + use<> {
        (0..self.counts.len() as u16).map(DcId)
    }

    /// Whether a range came from a split.
    pub fn is_part(&self, shard: ShardId) -> bool {
        self.lineage.parent(shard).is_some()
    }

    /// Whether a data centre has aggregators that hold some ranges only.
    pub fn are_split(&self, dc: DcId) -> bool {
        self.count(dc) > HOLDERS
    }

    /// Whether there is such a data centre.
    pub fn are_any_split(&self) -> bool {
        self.counts.iter().any(|&count| count > HOLDERS)
    }

    fn holding(&self, shard: ShardId, dc: DcId) -> Option<&Holding> {
        self.moved.get(&(dc, shard)).filter(|_| self.are_split(dc))
    }

    /// The holders of a range in a data centre: the first, and the second if there is one.
    pub fn holders(&self, shard: ShardId, dc: DcId) -> impl Iterator<Item = AggregatorId> + use<> {
        let count = u16::from(self.count(dc));
        let first = if self.are_split(dc) { self.lineage.root(shard).0 % count } else { 0 };
        let founded = [0, 1].map(|next| ((first + next) % count) as u8);
        let seats = self.holding(shard, dc).map_or(founded, |holding| holding.seats);
        seats.into_iter().take(usize::from(count.min(HOLDERS.into()))).map(move |seat| AggregatorId { dc, seat })
    }

    /// Whether an aggregator holds a range.
    pub fn holds(&self, aggregator: AggregatorId, shard: ShardId) -> bool {
        self.holders(shard, aggregator.dc).any(|holder| holder == aggregator)
    }

    /// The aggregator that is receiving all of a range, to replace one of its holders.
    pub fn joining(&self, shard: ShardId, dc: DcId) -> Option<Joining> {
        self.holding(shard, dc)?.joins
    }

    /// Whether an aggregator is receiving all of a range.
    pub fn joins(&self, aggregator: AggregatorId, shard: ShardId) -> bool {
        self.joining(shard, aggregator.dc).is_some_and(|joining| joining.seat == aggregator.seat)
    }

    /// Whether an aggregator is told of a range: it holds it, or joins its holders.
    pub fn gathers(&self, aggregator: AggregatorId, shard: ShardId) -> bool {
        self.holds(aggregator, shard) || self.joins(aggregator, shard)
    }

    /// The holder of a range that gossips about it to other data centres.
    pub fn first(&self, shard: ShardId, dc: DcId) -> AggregatorId {
        self.holders(shard, dc).next().unwrap_or_else(|| dc.into())
    }

    /// Whether it is the second holder of a range, or joins the holders: it sends nothing abroad while it hears the first.
    pub fn is_second(&self, aggregator: AggregatorId, shard: ShardId) -> bool {
        self.holders(shard, aggregator.dc).nth(1) == Some(aggregator) || self.joins(aggregator, shard)
    }

    /// The other holder of a range beside this one; for a joining aggregator the first holder.
    pub fn partner(&self, aggregator: AggregatorId, shard: ShardId) -> Option<AggregatorId> {
        let other = self.holders(shard, aggregator.dc).find(|holder| *holder != aggregator);
        other.filter(|_| self.gathers(aggregator, shard))
    }
}

/// Why counters are no cuts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadCuts {
    #[error("{0} cuts: at most {CUTS_MAX} are allowed")]
    TooMany(usize),
    #[error("{0} is there twice: each cut begins a range of its own")]
    Twice(CounterName),
    #[error("{later} stands behind {earlier}: cuts ascend, by namespace, then by the bytes of the key")]
    Unsorted { earlier: CounterName, later: CounterName },
    #[error("{later} begins with the part of keys that {earlier} begins with: each cut begins a range of its own")]
    Alike { earlier: CounterName, later: CounterName },
    #[error(
        "{later} stands behind {earlier}: cuts ascend, by namespace or space, there by part, then by the bytes of the key"
    )]
    OutOfOrder { earlier: CounterName, later: CounterName },
}

/// Each cut makes one range more.
const CUTS_MAX: usize = SHARDS_MAX - 1;
const _: () = assert!(SHARDS_MAX <= 1 << 16, "a shard's number has 16 bits");

impl Ranges {
    /// One range of all counters.
    pub fn whole() -> Ranges {
        Ranges::default()
    }

    /// Ranges that begin with these counters, and one before the first of them.
    ///
    /// # Errors
    /// [`BadCuts`]: too many, one twice, or not in ascending order.
    pub fn of_cuts(cuts: Vec<CounterName>) -> Result<Ranges, BadCuts> {
        Ranges::of_ordered(cuts, CounterOrder::by_name())
    }

    /// The same where counters lie in this order.
    ///
    /// # Errors
    /// [`BadCuts`]: too many, two that begin with the same, or not in ascending order.
    pub fn of_ordered(cuts: Vec<CounterName>, order: CounterOrder) -> Result<Ranges, BadCuts> {
        if cuts.len() > CUTS_MAX {
            return Err(BadCuts::TooMany(cuts.len()));
        }
        for pair in cuts.windows(2) {
            let earlier = pair[0].clone();
            let later = pair[1].clone();
            match order.begin(&earlier).cmp(&order.begin(&later)) {
                Ordering::Less => {}
                Ordering::Equal if earlier == later => return Err(BadCuts::Twice(later)),
                Ordering::Equal => return Err(BadCuts::Alike { earlier, later }),
                Ordering::Greater if order.is_by_name() => return Err(BadCuts::Unsorted { earlier, later }),
                Ordering::Greater => return Err(BadCuts::OutOfOrder { earlier, later }),
            }
        }
        let fingerprint = fingerprint(&cuts, &order);
        Ok(Ranges { cuts, order, fingerprint, ..Ranges::default() })
    }

    /// The same after a range is split; `None` where that cannot be: it is no range, or the cut is not within it, or the numbers are given.
    pub fn split(&self, split: &Split) -> Option<Ranges> {
        let Range { from, before, .. } = self.range(split.shard)?;
        let is_less = |one: &CounterName, other: &CounterName| self.order.begin(one) < self.order.begin(other);
        let is_within =
            from.is_none_or(|from| is_less(from, &split.at)) && before.is_none_or(|before| is_less(&split.at, before));
        if !is_within || usize::from(split.first.0) != self.numbers() || self.numbers() + 2 > SHARDS_MAX {
            return None;
        }
        let mut next = self.clone();
        next.founded.get_or_insert_with(|| self.cuts.clone());
        next.shards = self.iter().map(|range| range.shard).collect();
        let at = next.shards.iter().position(|shard| *shard == split.shard)?;
        next.shards.splice(at..=at, split.parts());
        next.cuts.insert(at, split.at.clone());
        next.lineage.splits.push((split.shard, split.first));
        Some(next)
    }

    /// The same after these splits; the first of them are applied already.
    pub fn with_splits<'a>(&self, splits: impl IntoIterator<Item = &'a Split>) -> Ranges {
        let further = splits.into_iter().skip(self.lineage.len());
        further.fold(self.clone(), |ranges, split| ranges.split(split).unwrap_or(ranges))
    }

    /// The number of ranges, at least one.
    pub fn count(&self) -> usize {
        self.cuts.len() + 1
    }

    /// The number of numbers given to ranges, split ranges included: all numbers are below it.
    pub fn numbers(&self) -> usize {
        self.founding_cuts().len() + 1 + 2 * self.lineage.len()
    }

    /// Whether there is one range for all counters.
    pub fn is_whole(&self) -> bool {
        self.cuts.is_empty()
    }

    /// Whether there was one range at first.
    pub fn began_whole(&self) -> bool {
        self.founding_cuts().is_empty()
    }

    /// Whether there was one range at first, in the order of earlier versions: then later cuts cannot be confused with others.
    pub fn began_plain(&self) -> bool {
        self.began_whole() && self.order.is_by_name()
    }

    /// Whether a number is that of a range that was not split.
    pub fn has(&self, shard: ShardId) -> bool {
        usize::from(shard.0) < self.numbers() && self.lineage.parts(shard).is_none()
    }

    /// The descent of ranges by splits.
    pub fn lineage(&self) -> &Lineage {
        &self.lineage
    }

    /// A range by its number.
    pub fn range(&self, shard: ShardId) -> Option<Range<'_>> {
        self.iter().find(|range| range.shard == shard)
    }

    fn shard_at(&self, at: usize) -> ShardId {
        self.shards.get(at).copied().unwrap_or(ShardId(at as u16))
    }

    /// The range of a counter.
    pub fn find(&self, counter: &CounterName) -> ShardId {
        self.find_key(counter.namespace(), counter.key())
    }

    /// The same by namespace and key.
    pub fn find_key(&self, namespace: &str, key: &[u8]) -> ShardId {
        let begins_before = |cut: &CounterName| self.order.is_from(namespace, key, cut);
        self.shard_at(self.cuts.partition_point(begins_before))
    }

    /// The order in which counters lie.
    pub fn order(&self) -> &CounterOrder {
        &self.order
    }

    /// Where they are cut, ascending.
    pub fn cuts(&self) -> &[CounterName] {
        &self.cuts
    }

    /// Where they were cut at first.
    pub fn founding_cuts(&self) -> &[CounterName] {
        self.founded.as_ref().unwrap_or(&self.cuts)
    }

    /// A number for the first cuts and the order of counters: equal for equal ones, and 0 if there was no cut and the order is
    /// that of names. Later splits do not change it: peers that began alike have the same number, even if some do not know of a
    /// split yet.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// All ranges in their order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Range<'_>> {
        (0..self.count()).map(|at| Range {
            shard: self.shard_at(at),
            from: at.checked_sub(1).map(|before| &self.cuts[before]),
            before: self.cuts.get(at),
        })
    }

    /// The ranges of some shards as spans of counters, ascending, in as few spans as possible.
    pub fn spans(&self, is_wanted: impl Fn(ShardId) -> bool) -> Vec<KeySpan> {
        let mut spans: Vec<KeySpan> = Vec::new();
        for range in self.iter().filter(|range| is_wanted(range.shard)) {
            match spans.last_mut().filter(|last| last.before.is_some() && last.before.as_ref() == range.from) {
                Some(last) => last.before = range.before.cloned(),
                None => spans.push(KeySpan { from: range.from.cloned(), before: range.before.cloned() }),
            }
        }
        spans
    }
}

/// [`Ranges::fingerprint`].
fn fingerprint(cuts: &[CounterName], order: &CounterOrder) -> u64 {
    let of_cut = |hash, cut: &CounterName| bytes_hash(bytes_hash(hash, cut.namespace().as_bytes()), cut.key());
    let of_laid = |hash, laid: &ShardBy| {
        let of_names = bytes_hash(bytes_hash(hash, laid.namespace.as_bytes()), laid.space.as_bytes());
        bytes_hash(of_names, &[laid.piece])
    };
    let hash = order.laid().iter().fold(cuts.iter().fold(0, of_cut), of_laid);
    if cuts.is_empty() && order.is_by_name() { 0 } else { hash.max(1) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name(namespace: usize, key: &[u8]) -> CounterName {
        CounterName::new(["a", "a.b", "b"][namespace], key).unwrap()
    }

    /// Few namespaces and short keys: cuts and counters meet.
    fn names(most: usize) -> impl Strategy<Value = Vec<CounterName>> {
        let key = proptest::collection::vec(prop::sample::select(vec![0u8, b'a', b'b', b'/', 255]), 1..4);
        let names = (0..3usize, key).prop_map(|(namespace, key)| name(namespace, &key));
        proptest::collection::vec(names, 0..most)
    }

    /// Counters of some of these namespaces are laid by a piece of their keys, of others not.
    fn orders() -> impl Strategy<Value = CounterOrder> {
        let laid = |(namespace, (space, piece)): (&str, (usize, u8))| ShardBy {
            namespace: namespace.to_owned(),
            space: ["s", "t"][space].to_owned(),
            piece,
        };
        let laid = move |of: [Option<(usize, u8)>; 3]| {
            let all = ["a", "a.b", "b"].into_iter().zip(of);
            all.filter_map(|(namespace, of)| Some(laid((namespace, of?)))).collect()
        };
        proptest::array::uniform3(prop::option::of((0usize..2, 1u8..3)))
            .prop_map(move |of| CounterOrder::new(laid(of)).unwrap())
    }

    /// Cuts of an order, ascending, without two that begin with the same piece.
    fn ascending(mut cuts: Vec<CounterName>, order: &CounterOrder) -> Vec<CounterName> {
        cuts.sort_by(|one, other| order.begin(one).cmp(&order.begin(other)));
        cuts.dedup_by(|one, other| order.begin(one) == order.begin(other));
        cuts
    }

    fn holds(range: &Range<'_>, counter: &CounterName, order: &CounterOrder) -> bool {
        let span = KeySpan { from: range.from.cloned(), before: range.before.cloned() };
        order.is_in(counter.namespace(), counter.key(), &[span])
    }

    /// One or two aggregators hold all ranges, the first seat first. With more, each range is held by two neighbours, and the
    /// numbers of ranges that they hold differ by one at most.
    #[test]
    fn each_range_has_as_many_holders_as_there_may_be_and_they_know_each_other() {
        for count in 1..=8u8 {
            let seats = Seats::new(vec![5, count]);
            let dc = DcId(1);
            assert_eq!((seats.count(DcId(0)), seats.count(dc), seats.count(DcId(2))), (5, count, HOLDERS));
            let mut held = vec![0; usize::from(count)];
            for shard in (0..16).map(ShardId) {
                let holders: Vec<AggregatorId> = seats.holders(shard, dc).collect();
                let first = if count > 2 { (shard.0 % u16::from(count)) as u8 } else { 0 };
                let expected = [first, (first + 1) % count].map(|seat| AggregatorId { dc, seat });
                assert_eq!(holders, expected[..usize::from(count.min(2))]);
                assert_eq!(seats.first(shard, dc), holders[0]);
                for seat in 0..count {
                    let own = AggregatorId { dc, seat };
                    let other = holders.iter().copied().find(|holder| holders.contains(&own) && *holder != own);
                    assert_eq!((seats.holds(own, shard), seats.partner(own, shard)), (holders.contains(&own), other));
                    assert_eq!(seats.is_second(own, shard), holders.get(1) == Some(&own));
                    held[usize::from(seat)] += usize::from(seats.holds(own, shard));
                }
            }
            let least = held.iter().min().unwrap();
            let most = held.iter().max().unwrap();
            assert!(most - least <= 2 && held.iter().sum::<usize>() == 16 * usize::from(count.min(2)), "{held:?}");
        }
    }

    proptest! {
        #[test]
        fn spans_of_some_ranges_have_their_counters_and_no_others(
            cuts in names(12), order in orders(), counters in names(40), wanted: u16,
        ) {
            let cuts = ascending(cuts, &order);
            let is_wanted = |shard: ShardId| wanted >> shard.0 & 1 == 1;
            let ranges = Ranges::of_ordered(cuts.clone(), order.clone()).unwrap();
            let spans = ranges.spans(is_wanted);
            let is_apart = |pair: &[KeySpan]| {
                let ends = pair[0].before.as_ref().zip(pair[1].from.as_ref());
                ends.is_some_and(|(before, from)| order.begin(before) < order.begin(from))
            };
            prop_assert!(spans.windows(2).all(is_apart), "none could be joined: {:?}", spans);
            for counter in counters.iter().chain(&cuts) {
                let is_in = order.is_in(counter.namespace(), counter.key(), &spans);
                prop_assert_eq!(is_in, is_wanted(ranges.find(counter)));
            }
        }

        #[test]
        fn a_counter_is_in_the_one_range_that_a_linear_search_finds(
            cuts in names(40), order in orders(), counters in names(40),
        ) {
            let cuts = ascending(cuts, &order);
            let ranges = Ranges::of_ordered(cuts.clone(), order.clone()).unwrap();
            prop_assert_eq!((ranges.count(), ranges.is_whole()), (cuts.len() + 1, cuts.is_empty()));
            for counter in counters.iter().chain(&cuts) {
                let holders: Vec<ShardId> =
                    ranges.iter().filter(|range| holds(range, counter, &order)).map(|range| range.shard).collect();
                prop_assert_eq!(holders, vec![ranges.find(counter)]);
            }
        }

        /// After any splits, counters of a range that is not split keep its number, and counters of a split range have one of its
        /// parts.
        #[test]
        fn a_split_cuts_one_range_and_leaves_the_others_their_numbers(
            cuts in names(4), order in orders(), splits in proptest::collection::vec((0u16..12, (0usize..3, proptest::collection::vec(0u8..4, 1..4))), 0..8),
            counters in names(40),
        ) {
            let founded = Ranges::of_ordered(ascending(cuts, &order), order.clone()).unwrap();
            let mut ranges = founded.clone();
            let mut done = Vec::new();
            for (shard, (namespace, key)) in splits {
                let at = name(namespace, &key);
                let split = Split { shard: ShardId(shard), at, first: ShardId(ranges.numbers() as u16) };
                let before = ranges.clone();
                let is_first = |from: &CounterName| order.begin(from) == order.begin(&split.at);
                let is_within = before
                    .range(split.shard)
                    .is_some_and(|range| holds(&range, &split.at, &order) && !range.from.is_some_and(is_first));
                let Some(next) = before.split(&split) else {
                    prop_assert!(!is_within, "{split:?} of {before:?}");
                    continue;
                };
                prop_assert!(is_within);
                for counter in &counters {
                    let was = before.find(counter);
                    let is = next.find(counter);
                    let part = usize::from(order.is_from(counter.namespace(), counter.key(), &split.at));
                    let expected = if was == split.shard { split.parts()[part] } else { was };
                    prop_assert_eq!(is, expected);
                    prop_assert!(next.lineage().is_within(is, was) && next.has(is));
                    prop_assert_eq!(next.lineage().root(is), founded.find(counter));
                }
                prop_assert!(!next.has(split.shard) && next.fingerprint() == founded.fingerprint());
                prop_assert_eq!(next.lineage().finest(split.shard), BTreeSet::from(split.parts()));
                prop_assert_eq!(before.split(&Split { first: ShardId(split.first.0 + 1), ..split.clone() }), None);
                done.push(split);
                ranges = next;
            }
            prop_assert_eq!(ranges.count() + ranges.lineage().len(), ranges.numbers());
            prop_assert_eq!(&founded.with_splits(&done), &ranges);
            prop_assert_eq!(ranges.with_splits(&done), ranges);
        }

        #[test]
        fn what_is_no_ascending_list_is_refused_with_the_cut(cuts in names(6)) {
            let refused = Ranges::of_cuts(cuts.clone()).err();
            let wrong = cuts.windows(2).find(|pair| pair[0] >= pair[1]);
            prop_assert_eq!(refused.is_some(), wrong.is_some());
            if let (Some(refused), Some(pair)) = (refused, wrong) {
                prop_assert!(refused.to_string().contains(&pair[1].to_string()), "{}", refused);
            }
        }
    }

    #[test]
    fn without_cuts_there_is_one_range() {
        let ranges = Ranges::whole();
        assert_eq!(ranges, Ranges::of_cuts(Vec::new()).unwrap());
        assert_eq!(ranges.find(&name(2, &[255; 4])), ShardId(0));
        assert_eq!(ranges.iter().collect::<Vec<_>>(), [Range { shard: ShardId(0), from: None, before: None }]);
    }

    #[test]
    fn too_many_cuts_are_refused_with_their_number_and_the_limit() {
        let cut = |number: usize| CounterName::new("a", format!("{number:04}").as_bytes()).unwrap();
        let most = Ranges::of_cuts((1..SHARDS_MAX).map(cut).collect()).unwrap();
        assert_eq!((most.count(), most.find(&cut(SHARDS_MAX))), (SHARDS_MAX, ShardId(SHARDS_MAX as u16 - 1)));
        let refused = Ranges::of_cuts((0..SHARDS_MAX).map(cut).collect()).unwrap_err();
        assert_eq!(refused.to_string(), "1024 cuts: at most 1023 are allowed");
    }
}
