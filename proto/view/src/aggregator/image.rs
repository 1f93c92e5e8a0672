//! The part of a view in a backup: names, components, and the cursor of each group's feed. It holds nothing that could act for
//! the original view: no stream of gossip, no versions, no promises.
//!
//! Components are those of the incarnations that counted them, for ever, and are merged by maximum: an image that is read back
//! adds nothing to the knowledge of others.

use super::checkpoint::{BLOCK_CELLS, BUCKETS, CELLS, CURSORS, NAMES, NAMES_PER_ROW, NAMESPACES, SHELVED, VALVES};
use super::checkpoint::{Rows, block_key, buckets_row, bytes_of, cuts_rows, limit_row, malformed, parse, slots_of};
use super::recovery::Loaded;
use super::{AggregatorConfig, RowError};
use crate::view::{Cells, MergeError, NotedLimit, View};
use std::collections::BTreeMap;
use tidemark_types::ids::{Bucket, CellId, CounterName, DcId, GroupId, Half, LogIndex};
use tidemark_types::limits::COMPONENT_MAX;
use tidemark_wire::shards::{Ranges, ShardId};

/// Whether a row of a view's checkpoint belongs into an image.
pub fn is_of_image(key: &[u8]) -> bool {
    matches!(key.first(), Some(&(NAMESPACES | VALVES | CURSORS | NAMES | CELLS | BUCKETS | SHELVED)))
}

/// Whether a row of an image belongs to cells, and not to the data beside them.
pub fn is_of_cells(key: &[u8]) -> bool {
    matches!(key.first(), Some(&(NAMES | CELLS | BUCKETS | SHELVED)))
}

/// The cursors of feeds, if this row of an image has them: (group, up to which entry of its log).
pub fn cursors_in(key: &[u8], value: &[u8]) -> Option<Result<Vec<(GroupId, LogIndex)>, RowError>> {
    (key == [CURSORS]).then(|| parse(key, value))
}

/// The content of an image's rows.
#[derive(Clone, Debug)]
pub struct ViewImage {
    view: View,
    cursors: BTreeMap<GroupId, LogIndex>,
}

/// Reads an image's rows, or those of one shard in it, in the order of their keys.
pub struct ImageReader {
    config: AggregatorConfig,
    head: BTreeMap<Vec<u8>, Vec<u8>>,
    loaded: Option<Loaded>,
    last: Vec<u8>,
}

impl ImageReader {
    /// For the image of a data centre; `seed` hashes names in memory.
    pub fn new(dc: DcId, seed: u64) -> ImageReader {
        let config = AggregatorConfig { seed, ..AggregatorConfig::new(dc, 0) };
        ImageReader { config, head: BTreeMap::new(), loaded: None, last: Vec::new() }
    }

    /// Takes the next row. Errors: [`RowError`]; never panics.
    pub fn take(&mut self, key: &[u8], value: &[u8]) -> Result<(), RowError> {
        if !is_of_image(key) {
            return Err(RowError::Unknown { key: key.to_vec() });
        }
        if key <= self.last.as_slice() {
            return Err(malformed(key, &"rows of an image stand in the order of their keys, each once"));
        }
        self.last = key.to_vec();
        if matches!(key, [NAMESPACES | VALVES]) {
            self.head.insert(key.to_vec(), value.to_vec());
            return Ok(());
        }
        if self.loaded.is_none() {
            self.loaded = Some(Loaded::new(&self.config, ShardId::FIRST, &mut self.head)?);
        }
        self.loaded.iter_mut().try_for_each(|loaded| loaded.take(key, value))
    }

    pub fn finish(mut self) -> Result<ViewImage, RowError> {
        let mut loaded = match self.loaded {
            Some(loaded) => loaded,
            None => Loaded::new(&self.config, ShardId::FIRST, &mut self.head)?,
        };
        loaded.end()?;
        let view = View::of_shards(self.config.own, vec![loaded.cells], Ranges::whole());
        Ok(ViewImage { cursors: loaded.cursors.into_iter().collect(), view })
    }
}

impl ViewImage {
    /// An empty image, for a data centre with a view that is cut into these ranges.
    pub fn empty(dc: DcId, seed: u64, ranges: Ranges) -> ViewImage {
        ViewImage { view: View::cut(dc, seed, ranges), cursors: BTreeMap::new() }
    }

    pub fn view(&self) -> &View {
        &self.view
    }

    /// Up to which entry of its log each group of the data centre is contained.
    pub fn cursors(&self) -> &BTreeMap<GroupId, LogIndex> {
        &self.cursors
    }

    /// Merges another image, with any cuts: the maximum of each component. A group is contained as far as in both.
    pub fn merge(&mut self, other: &ViewImage) -> Result<(), MergeError> {
        for (_, cells) in other.view.shards() {
            (0..cells.len()).try_for_each(|slot| self.merge_cell(cells, slot))?;
        }
        for (&group, &at) in &other.cursors {
            self.cursors.entry(group).and_modify(|known| *known = at.min(*known)).or_insert(at);
        }
        Ok(())
    }

    fn merge_cell(&mut self, other: &Cells, slot: u32) -> Result<(), MergeError> {
        let name = other.name(slot);
        let shard = self.view.shard_of(&name.counter);
        self.view.change(|shards| {
            let cells = &mut shards[usize::from(shard.0)];
            let own = cells.slot(&name)?;
            for (valve, value) in other.components(slot) {
                let valve = cells.valve(other.valves()[usize::from(valve)])?;
                cells.merge(own, valve, value.min(COMPONENT_MAX));
            }
            for (_, valve, row) in other.rows_of(slot) {
                let valve = cells.valve(other.valves()[usize::from(valve)])?;
                cells.merge_row(own, valve, &row);
            }
            Ok(())
        })
    }

    /// All-time totals, by counter and generation, in order: the sum of the up half's components.
    pub fn totals(&self) -> BTreeMap<(CounterName, u32), u64> {
        let total = |cells: &Cells, slot| match cells.name(slot) {
            CellId { counter, generation, half: Half::Up, bucket: Bucket::Total } => {
                Some(((counter, generation), cells.sum(slot)))
            }
            _ => None,
        };
        let all = self.view.shards().flat_map(|(_, cells)| (0..cells.len()).map(move |slot| (cells, slot)));
        all.filter_map(|(cells, slot)| total(cells, slot)).collect()
    }

    /// Limits the readings of a view that begins with an image. It shows no more of counters with milestones than the ledger is
    /// sure of, until its replica of the ledger has come to `index`. The view's promises about milestones since the image was
    /// taken are lost with its disk. `index` must be one that the ledger reached after that.
    pub fn cautious_rows(counters: impl IntoIterator<Item = CounterName>, index: LogIndex) -> Rows {
        let limit = NotedLimit { at: 1, index: index.0, promised: Vec::new(), generation: 0 };
        counters.into_iter().map(|counter| limit_row(&counter, &limit)).collect()
    }

    /// The rows that a shard of an empty view begins with to hold the same, in the order of their keys. Such a view tells all
    /// peers, because it knows of no stream.
    pub fn rows(&self, shard: ShardId) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> + '_ {
        let cells = self.view.cells(shard);
        let len = self.view.cells(shard).len();
        let head: Rows =
            vec![(vec![NAMESPACES], bytes_of(cells.table().namespaces())), (vec![VALVES], bytes_of(cells.valves()))];
        let names = (0..len.div_ceil(NAMES_PER_ROW)).map(move |block| {
            let slots = slots_of(block, NAMES_PER_ROW, len);
            (block_key(NAMES, block), cells.table().records(slots.start, slots.end).into_owned())
        });
        let blocks = (0..len.div_ceil(BLOCK_CELLS)).map(move |block| {
            let of_slot = |slot| cells.components(slot).collect::<Vec<(u16, u64)>>();
            let components: Vec<Vec<(u16, u64)>> = slots_of(block, BLOCK_CELLS, len).map(of_slot).collect();
            (block_key(CELLS, block), bytes_of(&components))
        });
        let buckets = (0..cells.rows_len()).map(|number| buckets_row(cells, number));
        head.into_iter().chain(names).chain(blocks).chain(buckets).chain(cuts_rows(self.view.ranges()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tidemark_types::ids::ValveId;

    fn counter(i: u8) -> CounterName {
        CounterName::new("t", &[b'k', i]).unwrap()
    }

    fn group(i: u16) -> GroupId {
        GroupId { dc: DcId(i % 3), group: 0, incarnation: u32::from(i) }
    }

    fn image(components: &[(u8, u16, u64)]) -> ViewImage {
        let mut image = ViewImage::empty(DcId(0), 7, Ranges::whole());
        for &(cell, valve, value) in components {
            let valve = ValveId { group: group(valve), lane: 0 };
            image.view.merge(&counter(cell).total(), valve, value).unwrap();
        }
        image
    }

    fn read(rows: impl Iterator<Item = (Vec<u8>, Vec<u8>)>, seed: u64) -> Result<ViewImage, RowError> {
        let mut reader = ImageReader::new(DcId(1), seed);
        for (key, value) in rows {
            reader.take(&key, &value)?;
        }
        reader.finish()
    }

    /// Its components, under any numbers of cells and valves.
    fn held(image: &ViewImage) -> BTreeMap<(CellId, ValveId), u64> {
        let view = image.view();
        let of_slot = |(cells, slot): (&Cells, u32)| {
            let of = |(valve, value)| ((cells.name(slot), cells.valves()[usize::from(valve)]), value);
            cells.components(slot).map(of).collect::<Vec<_>>()
        };
        let all = view.shards().flat_map(|(_, cells)| (0..cells.len()).map(move |slot| (cells, slot)));
        all.flat_map(of_slot).collect()
    }

    proptest! {
        #[test]
        fn rows_hold_all_of_it_and_merging_twice_adds_nothing(
            ours in proptest::collection::vec((0u8..40, 0u16..6, 1u64..99), 0..60),
            theirs in proptest::collection::vec((0u8..40, 0u16..6, 1u64..99), 0..60),
        ) {
            let mut left = image(&ours);
            let right = image(&theirs);
            prop_assert_eq!(held(&read(left.rows(ShardId::FIRST), 3).unwrap()), held(&left));
            left.merge(&right).unwrap();
            let both: Vec<_> = ours.iter().chain(&theirs).copied().collect();
            prop_assert_eq!(held(&left), held(&image(&both)));
            left.merge(&right).unwrap();
            left.merge(&image(&ours)).unwrap();
            prop_assert_eq!(held(&left), held(&image(&both)));
            left.view.check_all();
        }

        #[test]
        fn garbage_never_panics(rows in proptest::collection::vec((proptest::collection::vec(any::<u8>(), 0..6), proptest::collection::vec(any::<u8>(), 0..40)), 0..9)) {
            let _ = read(rows.into_iter(), 1);
        }
    }

    #[test]
    fn a_view_that_lost_its_promises_shows_what_is_certain_until_its_ledger_is_where_they_were_made() {
        use tidemark_ledger::ledger::Ledger;
        use tidemark_wire::msg::LedgerCmd;
        let image = image(&[(1, 2, 5)]);
        let rows = image.rows(ShardId::FIRST).chain(ViewImage::cautious_rows([counter(1)], LogIndex(3)));
        let core = super::super::AggregatorCore::recover(AggregatorConfig::new(DcId(0), 9), rows).unwrap();
        let mut ledger = Ledger::default();
        ledger.apply(LogIndex(1), &LedgerCmd::View(DcId(0).into()));
        let shown = |ledger: &Ledger| (core.read(&counter(1), ledger).up, core.read(&counter(1), ledger).pending);
        assert_eq!(shown(&ledger), (0, 5));
        ledger.skip(LogIndex(3));
        assert_eq!(shown(&ledger), (5, 0));
    }

    #[test]
    fn an_aggregator_begins_with_an_image_as_one_that_never_told_anybody() {
        let image = image(&[(1, 2, 5), (1, 3, 7), (2, 3, 4)]);
        let config = AggregatorConfig::new(DcId(2), 9);
        let core = super::super::AggregatorCore::recover(config, image.rows(ShardId::FIRST)).unwrap();
        assert_eq!(core.view().sum_of(&counter(1), 0), 12);
        assert_eq!(
            (core.gossip(ShardId::FIRST).foreign_state(), core.feed_lags(tidemark_types::time::Time(0)).count()),
            (Vec::new(), 0)
        );
        assert_eq!(image.totals()[&(counter(1), 0)], 12);
        let stream = vec![(vec![7], vec![0])].into_iter();
        assert!(matches!(read(stream, 1), Err(RowError::Unknown { .. })), "a stream of gossip is no part of an image");
        let twice = image.rows(ShardId::FIRST).chain(image.rows(ShardId::FIRST));
        assert!(matches!(read(twice, 1), Err(RowError::Malformed { .. })));
    }
}
